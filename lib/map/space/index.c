/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The index of all ranges of the process. The array is made with the first range and lives as
 * long as the process, so that nobody who reads it has to be waited for.
 */
#include "map/map.h"

#include "base/error.h"
#include "base/lock.h"

#include <errno.h>
#include <inttypes.h>

glk_atomic(glk_index_entry *) glk_index_entries;

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_INDEX);

/* The array, made with the first range; NULL: it cannot be had. */
static glk_index_entry *entries(void)
{
	glk_index_entry *all = glk_load_relaxed(&glk_index_entries);

	if (all)
		return all;
	all = glk_region_new(GLK_INDEX_ENTRIES * sizeof(*all));
	/* pairs with: glk_index_find */
	glk_store_release(&glk_index_entries, all);
	return all;
}

static void set(glk_index_entry *all, const struct glk_range *range, struct glk_range *to)
{
	uint64_t first = range->base >> GLK_INDEX_SHIFT;
	uint64_t last = (range->base + range->size - 1) >> GLK_INDEX_SHIFT;

	for (uint64_t i = first; i <= last; i++) /* pairs with: glk_index_find */
		glk_store_release(&all[i], to);
}

int glk_index_add(struct glk_range *range)
{
	glk_index_entry *all;

	if ((range->base + range->size - 1) >> GLK_INDEX_BITS)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"addresses from 0x%" PRIx64 " on do not fit into %d bits",
			range->base, GLK_INDEX_BITS);
	glk_lock(&lock);
	all = entries();
	if (all)
		set(all, range, range);
	glk_unlock(&lock);
	return all ? 0 : -ENOMEM;
}

void glk_index_remove(struct glk_range *range)
{
	glk_lock(&lock);
	set(glk_load_relaxed(&glk_index_entries), range, NULL);
	glk_unlock(&lock);
}
