/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_STAT_H
#define GLK_TOOL_STAT_H

/* Figures of a process for a person. Inside this command. */
#include <stdbool.h>

struct json_object;

/* A column for each GPU, whatever figures there are; then its streams, and the calls of the driver.
 * `times`: how long calls took, too. `all`: also what is 0. */
void stat_print_table(struct json_object *stats, bool times, bool all);

/* stat_times.c: whether a value is times of calls, or an object of such. */
bool stat_is_times(struct json_object *value);
bool stat_has_times(struct json_object *value);
/* All that are members of an object. */
void stat_print_times(struct json_object *object, const char *head);

#endif
