/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_MAP_H
#define GLK_TOOL_MAP_H

/* The forms that glakectl map has for an address space. An exit status each. */
#include "tool/space.h"

/* map_text.c: in so many columns. */
int map_print_text(
	const struct space *space, enum space_by by, unsigned width, bool colour);
int map_print_json(const struct space *space);

#endif
