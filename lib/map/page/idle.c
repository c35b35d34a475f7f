/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The list of groups that may have idle pages, a ring through number 0, which is no group; group g is
 * number g + 1. A group is at the end of the list while something has just become idle in it. It
 * leaves the list when a walk finds nothing idle in it. One that is on no list has links to 0, as the
 * one that is alone in it does.
 *
 * The function of a walk may give the lock up, and others move groups meanwhile, or walk too. So
 * the map knows all walks under way, and a group that leaves its place takes none of them along.
 * What comes to the end of the list meanwhile does not make a walk longer.
 */
#include "map/map.h"

/* Walks that come to a group next go on behind it. */
static void pass(struct glk_stock *stock, uint32_t at)
{
	for (struct glk_idle_cursor *c = stock->cursors; c; c = c->other)
		c->next = c->next == at ? stock->idle[at].newer : c->next;
}

/* Takes a group out of its place, and leaves its own links as they are. */
static inline void unlink_group(struct glk_stock *stock, uint32_t at)
{
	struct glk_idle_links *all = stock->idle, links = all[at];

	if (stock->cursors)
		pass(stock, at);
	all[links.older].newer = links.newer;
	all[links.newer].older = links.older;
}

static void unlist(struct glk_stock *stock, uint32_t at)
{
	unlink_group(stock, at);
	stock->idle[at] = (struct glk_idle_links){0};
	stock->listed--;
}

void glk_idle_touch_run(struct glk_stock *stock, uint32_t first, uint32_t last)
{
	uint32_t at = (first >> GLK_GROUP_SHIFT) + 1, end = (last >> GLK_GROUP_SHIFT) + 1;
	struct glk_idle_links *all = stock->idle;
	uint32_t newest = glk_idle_newest(stock);

	for (; at <= end; at++) {
		if (at == newest)
			continue;
		if (glk_idle_listed(stock, at))
			unlink_group(stock, at);
		else
			stock->listed++;
		all[at].older = newest;
		all[newest].newer = at;
		newest = at;
	}
	all[newest].newer = 0;
	all[0].older = newest;
}

void glk_idle_list(struct glk_map *map, uint32_t slot)
{
	struct glk_stock *stock = glk_map_stock(map, map->page[slot]);

	if (!glk_idle_listed(stock, (slot >> GLK_GROUP_SHIFT) + 1))
		glk_idle_touch_run(stock, slot, slot);
}

/* Whether a mapping of the kind that is looked for begins at a slot, idle as a whole. A page with
 * several is met at its most recent one only. */
static bool is_wanted(
	const struct glk_map *map, const struct glk_idle_walk *walk, uint32_t slot)
{
	const struct glk_page *page = glk_map_page(map, map->page[slot]);
	uint32_t slots = glk_page_slots(map, page);

	if (walk->slots ? slots != walk->slots
			: slots > 1 && glk_bits_any(map->busy, slot, slot + slots - 1))
		return false;
	if (walk->slots > 1 && glk_bits_any(map->busy, slot, slot + slots - 1))
		return false;
	return page->first_alias == slot;
}

/* The slots of a group where such a mapping may begin. */
static uint64_t candidates(
	const struct glk_map *map, const struct glk_idle_walk *walk, uint32_t group)
{
	uint64_t idle = map->usable[group] & ~map->busy[group] & map->head[group];

	idle &= walk->of == GLK_OF_HOST ? map->host[group] : ~map->host[group];
	if (walk->slots)
		idle &= walk->slots > 1 ? map->wide[group] : ~map->wide[group];
	return idle;
}

/* Whether anything of a group is met by a walk. What is stranded there, and mappings of pages that
 * are met at another one, are not; they would use up the groups that walks look at. */
static bool has_idle(const struct glk_map *map, enum glk_of of, uint32_t group)
{
	const struct glk_idle_walk all = {.of = of};
	uint64_t left = candidates(map, &all, group);

	/* pages of a slot and with one mapping: these need no look at the page */
	if (left & ~map->wide[group] & ~map->shared[group])
		return true;
	for (; left; left &= left - 1) {
		if (is_wanted(map, &all,
			    group << GLK_GROUP_SHIFT | (uint32_t)__builtin_ctzll(left)))
			return true;
	}
	return false;
}

/* Whether the walk is to go on. */
static bool walk_group(struct glk_map *map, const struct glk_idle_walk *walk,
	uint32_t group, glk_idle_fn fn, void *arg)
{
	uint64_t left = candidates(map, walk, group);

	for (; left; left &= left - 1) {
		uint32_t slot =
			group << GLK_GROUP_SHIFT | (uint32_t)__builtin_ctzll(left);

		/* the function may have taken it with another mapping */
		if (!(candidates(map, walk, group) & left & -left) ||
			!is_wanted(map, walk, slot))
			continue;
		if (fn(map, map->page[slot], arg) == GLK_IDLE_STOP)
			return false;
	}
	return true;
}

static void forget(struct glk_stock *stock, const struct glk_idle_cursor *cursor)
{
	struct glk_idle_cursor **link = &stock->cursors;

	while (*link != cursor)
		link = &(*link)->other;
	*link = cursor->other;
}

void glk_idle_each(
	struct glk_map *map, const struct glk_idle_walk *walk, glk_idle_fn fn, void *arg)
{
	struct glk_stock *stock = &map->space->of[walk->of];
	struct glk_idle_cursor cursor = {
		.next = glk_idle_oldest(stock), .other = stock->cursors};
	uint32_t left = walk->groups < stock->listed ? walk->groups : stock->listed, at;
	bool on = true;

	stock->cursors = &cursor;
	while (on && cursor.next && left--) {
		at = cursor.next;
		cursor.next = stock->idle[at].newer;
		on = walk_group(map, walk, at - 1, fn, arg);
		if (glk_idle_listed(stock, at) && !has_idle(map, walk->of, at - 1))
			unlist(stock, at);
	}
	forget(stock, &cursor);
}
