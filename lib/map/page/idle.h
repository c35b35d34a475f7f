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
static inline uint32_t glk_idle_oldest(const struct glk_map *map)
{
	return map->idle[0].newer;
}

static inline uint32_t glk_idle_newest(const struct glk_map *map)
{
	return map->idle[0].older;
}

static inline bool glk_idle_listed(const struct glk_map *map, uint32_t at)
{
	return map->idle[at].older || glk_idle_oldest(map) == at;
}

/* Something became idle in a run. */
void glk_idle_touch_run(struct glk_map *map, uint32_t first, uint32_t last);

static inline void glk_idle_touch(struct glk_map *map, uint32_t first, uint32_t last)
{
	uint32_t newest = glk_idle_newest(map);

	/* most that becomes idle lies beside what just did */
	if (newest != (first >> GLK_GROUP_SHIFT) + 1 ||
		newest != (last >> GLK_GROUP_SHIFT) + 1)
		glk_idle_touch_run(map, first, last);
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
	uint32_t slots;		     /* size of the pages wanted; 0: all */
	uint32_t groups;	     /* looked at, at the most */
	const struct glk_node *node; /* that they are of; NULL: that of the map */
};

/* Calls the function for idle pages, in the order above. */
void glk_idle_each(
	struct glk_map *map, const struct glk_idle_walk *walk, glk_idle_fn fn, void *arg);

/* Slots of idle pages that are of another node than the map. A look at each group, if there are any
 * such mappings. */
uint32_t glk_idle_guests(const struct glk_map *map);

#endif
