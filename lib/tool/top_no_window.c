/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where glakectl was built without ncurses. */
#include "tool/tool.h"
#include "tool/top.h"

int top_window(int room, struct top_wanted *wanted, int64_t interval_ns, unsigned count)
{
	(void)room;
	(void)wanted;
	(void)interval_ns;
	(void)count;
	glk_tool_say("top: there is no window, since glakectl was built without ncurses; "
		     "--batch prints tables");
	return GLK_TOOL_FAILED;
}
