/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_FEATURE_H
#define GLK_TOOL_FEATURE_H

/*
 * What glake can do here and what it cannot, since it was built or runs without something: each with
 * what brings it, a package of Debian and Ubuntu where there is one.
 */
#include <stdbool.h>

struct glk_json;

/* A table on stdout, and an exit status; "features" in a report. Blocks: Python is asked which modules it
 * has. */
int glk_feature_print(void);
void glk_feature_add(struct glk_json *json);

#endif
