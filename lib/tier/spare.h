/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_SPARE_H
#define GLK_TIER_SPARE_H

/*
 * Memory of the host that threads of the process are about to take. A system that has none left ends
 * processes, and what it says it has falls only as memory is touched, so each says first what it takes:
 * what others are taking is no longer there. Nothing of this is held while memory is touched or locked.
 */
#include <stdint.h>

/*
 * Takes up to *count times `each` bytes, and at least one, of what is left beside the part of others
 * (glk_numa_usable()), on a node or anywhere for -1. Waits for those who are taking where that might
 * leave enough. 0, or -ENOMEM (class NOMEM_HOST).
 */
int glk_spare_take(int node, uint64_t each, uint32_t *count);
/* It is touched now, or is not wanted. */
void glk_spare_taken(uint64_t bytes);

#endif
