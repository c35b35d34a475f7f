/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_INDEX_H
#define GLK_MAP_INDEX_H

/*
 * From any address of the process to the range of addresses it lies in: an array over 48 bits
 * of addresses, an entry for each GiB. Ranges begin and end at multiples of a GiB, so an entry
 * is of one range at most. The array takes 2 MiB of addresses and as much memory as is touched.
 *
 * Guarantees	a lookup that began before a range was removed may still find it; ranges lie in
 *		maps, which are type-stable while their GPU is open, and whose map a range is does
 *		not change. The tables of the map are there for who found it in an RCU section,
 *		until the section ends, or holds the lock of the GPU
 * Progress	lookup: wait-free, one load. Any thread, signal handlers too
 */
#include "map/table.h"

#define GLK_INDEX_SHIFT	  30
#define GLK_INDEX_BITS	  48
#define GLK_INDEX_ENTRIES (UINT64_C(1) << (GLK_INDEX_BITS - GLK_INDEX_SHIFT))

typedef glk_atomic(struct glk_range *) glk_index_entry;

extern glk_atomic(glk_index_entry *) glk_index_entries;

/* 0 or -ENOMEM (NOMEM_HOST), -EOPNOTSUPP (addresses above 48 bits). */
int glk_index_add(struct glk_range *range);
void glk_index_remove(struct glk_range *range);

/* The range that holds an address; NULL: none does. Any thread. */
static inline struct glk_range *glk_index_find(uint64_t addr)
{
	/* pairs with: the release in glk_index_add, which makes the array */
	glk_index_entry *entries = glk_load_acquire(&glk_index_entries);
	uint64_t i = addr >> GLK_INDEX_SHIFT;

	if (i >= GLK_INDEX_ENTRIES || !entries)
		return NULL;
	/* pairs with: the release in glk_index_add */
	return glk_load_acquire(&entries[i]);
}

#endif
