/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_IDLE_H
#define GLK_MAP_IDLE_H

/*
 * Pages that no live extent touches and that keep mappings: the cache that makes stitching free
 * the second time. A request elsewhere takes them from the group of 64 slots in which nothing has
 * become idle for longest. (Exact order by page, and pages with few mappings first, need a third
 * more driver time: t/bench/policy.)
 *
 * Nearly all idle pages come into use again where they are, and few are taken; so nothing is
 * listed but groups, which costs a step for 64 slots that become idle, and which of their slots
 * are idle is read from the bitmaps when somebody looks.
 */
#include "map/table.h"

/* Groups are numbered from 1 here, and 0 closes the list to a ring. */
static inline uint32_t glk_idle_oldest(const struct glk_stock *stock)
{
	return stock->idle[0].newer;
}

static inline uint32_t glk_idle_newest(const struct glk_stock *stock)
{
	return stock->idle[0].older;
}

static inline bool glk_idle_listed(const struct glk_stock *stock, uint32_t at)
{
	return stock->idle[at].older || glk_idle_oldest(stock) == at;
}

/* Something became idle in a run, as a rule pages of one kind. */
void glk_idle_touch_run(struct glk_stock *stock, uint32_t first, uint32_t last);

static inline void glk_idle_touch(struct glk_map *map, uint32_t first, uint32_t last)
{
	struct glk_stock *of = map->space->of;
	uint32_t newest = glk_idle_newest(of);

	if (of[GLK_OF_HOST].page_bytes && glk_bits_any(map->host, first, last)) {
		glk_idle_touch_run(&of[GLK_OF_HOST], first, last);
		if (glk_bits_all(map->host, first, last))
			return;
	}
	/* most that becomes idle lies beside what just did */
	if (newest != (first >> GLK_GROUP_SHIFT) + 1 ||
		newest != (last >> GLK_GROUP_SHIFT) + 1)
		glk_idle_touch_run(of, first, last);
}

/* Something that is idle is met at another slot than before. */
void glk_idle_list(struct glk_map *map, uint32_t slot);

enum glk_idle_answer {
	GLK_IDLE_NEXT, /* whatever became of this page, the next one */
	GLK_IDLE_STOP,
};

/* The function may take the page, or take it down, and give the lock up meanwhile. Groups in which
 * something becomes idle meanwhile move to the end, where the walk may not come to. */
typedef enum glk_idle_answer (*glk_idle_fn)(
	struct glk_map *map, uint32_t page, void *arg);

struct glk_idle_walk {
	enum glk_of of;
	uint32_t slots;	 /* size of the pages wanted; 0: all */
	uint32_t groups; /* looked at, at the most */
};

/* Calls the function for idle pages, in the order above. */
void glk_idle_each(
	struct glk_map *map, const struct glk_idle_walk *walk, glk_idle_fn fn, void *arg);

#endif
