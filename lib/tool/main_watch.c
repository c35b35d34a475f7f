/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The part of glakectl that asks running processes. */
#include "tool/tool.h"

int main(int argc, char **argv)
{
	static const struct glk_tool_command commands[] = {
		{"ps", glk_tool_ps},
		{"stat", glk_tool_stat},
		{"map", glk_tool_map},
		{"top", glk_tool_top},
		{"engine", glk_tool_engine},
		{0},
	};

	return glk_tool_part(commands, argc, argv);
}
