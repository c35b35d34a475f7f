/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_MAP_TABLES_H
#define GLK_UNIT_MAP_TABLES_H

/* The tables of a map at rest, checked against each other: 0, or -EIO with a record (class CORRUPT) that names what
 * does not agree. */
#include "map/map.h"

int map_verify(struct glk_map *map);

/* tables_page.c, the half that asks behind the slots: the mappings, the pages, and the list of groups. */
int map_verify_pages(struct glk_map *map);

#define map_unsound(...) glk_error(-EIO, GLAKE_ERROR_CORRUPT, __VA_ARGS__)

#endif
