/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_VERIFY_H
#define GLK_MAP_VERIFY_H

/* The two halves of glk_map_verify(): 0, or -EIO with a record. */
#include "map/table.h"

#define glk_broken(...) glk_error(-EIO, GLAKE_ERROR_CORRUPT, __VA_ARGS__)

/* verify.c: the extents, the trees, what lookups read, and who is counted on the slots. */
int glk_verify_space(struct glk_map *map);
/* verify_page.c: the mappings, the pages, and the list of groups. */
int glk_verify_pages(struct glk_map *map);

#endif
