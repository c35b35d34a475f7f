/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_REPORT_H
#define GLK_TOOL_REPORT_H

/*
 * What a command reports, described once: as JSON. Programs are given that; for people it becomes
 * lines and tables by the names of its members: what a name ends with is the unit (_bytes, _ns,
 * _us, _ms, _s, _gbs, _percent), and what stands before it the head. Of "min", "median" and "max"
 * the median is shown; an object in a row of a table is a table of its own.
 */
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct report {
	struct glk_json json;
	FILE *file; /* of the text, until it is shown; NULL: for programs */
	char *text;
	size_t size;
};

/* 0, or -ENOMEM after a message; then there is nothing to end. */
int report_begin(struct report *report, bool for_programs);
/* Shows it. The exit status. */
int report_end(struct report *report);

#endif
