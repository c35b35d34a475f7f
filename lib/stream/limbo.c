/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The only place that takes a mapping or a page away from a GPU that may be at work.
 *
 * Two clocks must have passed: all GPU work that used the mapping has finished, which the
 * ticks of its slot tell, and an RCU grace period lies behind, so that no reader of a table
 * still follows it. The driver's unmap does not wait for kernels; taking a mapping away too
 * early is a fault on the GPU. Nothing here waits for the GPU: what is not ready stays mapped,
 * which costs addresses and no memory, and is asked for again later.
 *
 * One grace period serves a batch.
 */
#include "stream/stream.h"

#include "base/error.h"
#include "base/rcu.h"

#include <errno.h>

bool glk_limbo_ready(
	const struct glk_limbo *limbo, const struct glk_span *span, uint32_t slot)
{
	if (limbo->closed)
		return false;
	return (limbo->patient && !limbo->streams->stuck) ||
		glk_clock_finished(limbo->streams, &span->use[slot]);
}

/* The same for the first clock, and waits for it where that was asked for: then also for what has
 * passed already, since what is waited for counts for more than this mapping. */
static bool has_passed(
	struct glk_limbo *limbo, const struct glk_span *span, uint32_t slot)
{
	const struct glk_use *use = &span->use[slot];

	if (!limbo->closed && limbo->patient) {
		if (glk_clock_waited(limbo->streams, use) ||
			!glk_clock_sync(limbo->streams, use->streams))
			return true;
		limbo->streams->stuck = true;
	}
	if (!limbo->closed && glk_clock_finished(limbo->streams, use))
		return true;
	limbo->streams->held_back++;
	return false;
}

static void grace(struct glk_limbo *limbo)
{
	if (limbo->graced)
		return;
	glk_rcu_wait();
	limbo->graced = true;
	limbo->streams->graces++;
}

int glk_limbo_unmap(
	struct glk_limbo *limbo, struct glk_span *span, uint32_t first, uint32_t last)
{
	int err;

	for (uint32_t slot = first; slot <= last; slot++) {
		if (!has_passed(limbo, span, slot))
			return glk_error(-EAGAIN, GLAKE_ERROR_AGAIN,
				"work on the GPU may still use the mapping");
	}
	grace(limbo);
	err = glk_slots_detach(span, first, last);
	if (!err)
		limbo->streams->unmapped += (uint64_t)(last - first + 1) << span->shift;
	return err;
}

static bool all_passed(
	struct glk_limbo *limbo, struct glk_map *map, const struct glk_page *page)
{
	for (uint32_t name = page->first_alias; name != GLK_NO_SLOT;) {
		struct glk_span *span = glk_slot_span(map, name);

		if (!has_passed(limbo, span, glk_slot_number(name)))
			return false;
		name = span->more[glk_slot_number(name)].next_alias;
	}
	return true;
}

/* Unmaps an idle page, which is the caller's then. */
static int unmap_all(struct glk_limbo *limbo, struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	int err;

	if (!all_passed(limbo, map, page))
		return glk_error(-EAGAIN, GLAKE_ERROR_AGAIN,
			"work on the GPU may still use page %u", id);
	glk_idle_take(map, id);
	grace(limbo);
	while (page->first_alias != GLK_NO_SLOT) {
		uint32_t name = page->first_alias;

		/* not asked again: the last one answers for what those before it were used for */
		err = glk_slot_detach(glk_slot_span(map, name), glk_slot_number(name));
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

static int empty_span(struct glk_limbo *limbo, struct glk_span *span)
{
	uint32_t end = glk_span_end(span);
	int err = 0, failed;

	for (uint32_t slot = 0; slot < end; slot++) {
		if (!span->slot[slot].page)
			continue;
		failed = glk_slot_detach(span, slot);
		if (failed && !err)
			err = failed;
		if (!failed)
			limbo->streams->unmapped += UINT64_C(1) << span->shift;
	}
	return err;
}

int glk_limbo_empty(struct glk_limbo *limbo, struct glk_map *map)
{
	int err = glk_clock_sync_all(limbo->streams), failed;

	if (err)
		return err;
	grace(limbo);
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		failed = empty_span(limbo, &map->span[kind]);
		if (failed && !err)
			err = failed;
	}
	return err;
}

int glk_limbo_undo(struct glk_span *span, uint32_t slot)
{
	return glk_slot_detach(span, slot);
}
