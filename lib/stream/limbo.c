/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The only place that takes a mapping or a page away from a GPU that may be at work.
 *
 * All GPU work that used the mapping must have finished, which the ticks of its slots tell. The
 * driver's unmap does not wait for kernels; taking a mapping away too early is a fault on the
 * GPU. Nothing here waits for the GPU unless that was asked for: what is not ready stays mapped,
 * which costs addresses and no memory, and is asked for again later.
 *
 * No reader without a lock follows a mapping: who looks a block up pins it before it uses what
 * it found. So no grace period is waited for.
 */
#include "stream/stream.h"

#include <errno.h>

bool glk_limbo_ready(const struct glk_limbo *limbo, const struct glk_map *map,
	uint32_t first, uint32_t last)
{
	if (limbo->closed)
		return false;
	if (limbo->patient && !limbo->streams->stuck)
		return true;
	for (uint32_t slot = first; slot <= last; slot = glk_use_end(map, slot, last) + 1) {
		struct glk_use use = glk_use_at(map, slot);

		if (!glk_clock_finished(limbo->streams, &use))
			return false;
	}
	return true;
}

/* The same for one use, and waits for it where that was asked for: then also for what has passed
 * already, since what is waited for counts for more than this mapping. */
static bool has_passed(struct glk_limbo *limbo, const struct glk_use *use)
{
	if (limbo->closed)
		return false;
	if (limbo->patient) {
		if (glk_clock_waited(limbo->streams, use) ||
			!glk_clock_sync(limbo->streams, use->streams))
			return true;
		limbo->streams->stuck = true;
	}
	return glk_clock_finished(limbo->streams, use);
}

static bool run_passed(struct glk_limbo *limbo, const struct glk_map *map,
	uint32_t first, uint32_t last)
{
	for (uint32_t slot = first; slot <= last; slot = glk_use_end(map, slot, last) + 1) {
		struct glk_use use = glk_use_at(map, slot);

		if (!has_passed(limbo, &use)) {
			limbo->streams->held_back++;
			return false;
		}
	}
	return true;
}

int glk_limbo_unmap(
	struct glk_limbo *limbo, struct glk_map *map, uint32_t first, uint32_t last)
{
	int err;

	if (!run_passed(limbo, map, first, last))
		return -EAGAIN;
	err = glk_mapping_remove(map, first, last);
	if (!err)
		limbo->streams->unmapped += (uint64_t)(last - first + 1) << map->shift;
	return err;
}

static bool all_passed(
	struct glk_limbo *limbo, const struct glk_map *map, const struct glk_page *page)
{
	uint32_t slots = glk_page_slots(map, page), first = page->first_alias;

	for (unsigned left = page->aliases; left; left--) {
		if (!run_passed(limbo, map, first, first + slots - 1))
			return false;
		first = map->alias[first];
	}
	return true;
}

/* Unmaps an idle page, which is the caller's then. */
static int unmap_all(struct glk_limbo *limbo, struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	uint32_t slots = glk_page_slots(map, page);
	int err;

	if (!all_passed(limbo, map, page))
		return -EAGAIN;
	glk_page_take(map, id);
	while (page->aliases) {
		/* not asked again: the last one answers for what those before it were used for */
		err = glk_mapping_remove(
			map, page->first_alias, page->first_alias + slots - 1);
		if (err)
			return err; /* the page is lost, with the mappings it has left */
		limbo->streams->unmapped += page->size;
	}
	return 0;
}

int glk_limbo_release(struct glk_limbo *limbo, struct glk_map *map, uint32_t id)
{
	uint64_t size = glk_map_page(map, id)->size;
	int err = unmap_all(limbo, map, id);

	if (err)
		return err;
	err = glk_node_release(map->node, id);
	if (!err)
		limbo->streams->released += size;
	return err;
}

int glk_limbo_strip(struct glk_limbo *limbo, struct glk_map *map, uint32_t id)
{
	int err = unmap_all(limbo, map, id);

	if (!err)
		glk_node_put(map->node, id);
	return err;
}

int glk_limbo_empty(struct glk_limbo *limbo, struct glk_map *map)
{
	int err = glk_clock_sync_all(limbo->streams), failed;
	uint32_t end = glk_map_end(map);

	if (err)
		return err;
	for (uint32_t slot = 0; slot < end; slot++) {
		struct glk_mapping m;

		slot = glk_bits_first(map->mapped, slot, end - 1);
		if (slot == GLK_BITS_NONE)
			break;
		if (!map->page[slot])
			continue;
		m = glk_mapping_at(map, slot);
		failed = glk_mapping_remove(map, m.first, m.last);
		if (failed && !err)
			err = failed;
		if (!failed)
			limbo->streams->unmapped += (uint64_t)(m.last - m.first + 1)
				<< map->shift;
		slot = m.last;
	}
	return err;
}

int glk_limbo_undo(struct glk_map *map, uint32_t first)
{
	struct glk_mapping m = glk_mapping_at(map, first);

	return glk_mapping_remove(map, m.first, m.last);
}
