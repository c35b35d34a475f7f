/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The part of glakectl that looks at the machine. */
#include "tool/tool.h"

int main(int argc, char **argv)
{
	static const struct glk_tool_command commands[] = {
		{"doctor", glk_tool_doctor},
		{0},
	};

	return glk_tool_part(commands, argc, argv);
}
