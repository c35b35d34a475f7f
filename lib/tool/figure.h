/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_FIGURE_H
#define GLK_TOOL_FIGURE_H

/*
 * Figures as people read them: three significant digits or so, with a unit. For programs
 * there is JSON with plain numbers.
 */
#include <stdint.h>

/* Enough for any figure. */
struct figure {
	char text[24];
};

struct figure figure_bytes(uint64_t bytes); /* "55.7 GiB" */
struct figure figure_ns(double ns);	    /* "284 ns", "1.23 ms", "31.2 s" */

/* Whole numbers with their thousands apart, "29 646"; others with what %g gives. */
struct figure figure_count(double value);

#endif
