/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_INFO_H
#define GLK_TOOL_INFO_H

/* The report of `glakectl info`. Inside this command. */
#include <glake/info.h>
#include <glake/uvm.h>

#include <stdbool.h>
#include <stddef.h>

struct glake;
struct glake_conf_key;
struct glake_conf_value;

struct info {
	struct glake *ctx; /* NULL when the library did not open */
	char failure[300]; /* why it did not */
	bool all;	   /* configuration values at their default too */
};

/* The word of capability bit `index` and the bit; NULL past the last. */
const char *info_capability(unsigned int index, unsigned int *ret_bit);

/* The next value to show, from *index on, which moves behind it; false at the end. */
bool info_next_value(const struct info *info, size_t *index,
	struct glake_conf_key *ret_key, struct glake_conf_value *ret_value);

/* "default", "file", "environment", "option". */
const char *info_origin(int origin);

/* A line that names the installed configuration file, behind `before`. */
void info_print_conf_file(const char *before);

/* The report, into an open object. */
struct glk_json;
void info_report(struct glk_json *json, const struct info *info);

#endif
