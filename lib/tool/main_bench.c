/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The part of glakectl that measures. */
#include "tool/tool.h"

int main(int argc, char **argv)
{
	static const struct glk_tool_command commands[] = {
		{"bench", glk_tool_bench},
		{0},
	};

	return glk_tool_part(commands, argc, argv);
}
