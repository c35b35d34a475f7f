/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A part of glakectl: the program with the command of its name, which the build says. */
#include "tool/tool.h"

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)
#define RUN_OF(name)  glk_tool_##name
#define RUN(name)     RUN_OF(name)

int main(int argc, char **argv)
{
	return glk_tool_part(TEXT(PART), RUN(PART), argc, argv);
}
