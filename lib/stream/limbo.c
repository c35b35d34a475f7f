/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The only place that takes a mapping or a page away from a GPU that may be at work.
 *
 * All GPU work that used the mapping must have finished, which the ticks of its slots tell. The
 * driver's unmap does not wait for kernels; taking a mapping away too early is a fault on the
 * GPU. Nothing here waits for the GPU unless that was asked for: what is not ready stays mapped,
 * which costs addresses and no memory, and is asked for again later.
 *
 * Who looks a block up without the lock reads which pages it has, and looks again whether it is
 * the same block; page descriptors stay where they are. So a mapping goes without a grace period;
 * tables that go wait for one, in glk_map_fini().
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
	for (uint32_t slot = first; slot <= last;
		slot = glk_use_end(map, slot, last) + 1) {
		struct glk_use use = glk_use_at(map, slot);

		if (!glk_clock_finished(limbo->streams, &use))
			return false;
	}
	return true;
}

/* The same for one use, and waits for it where that was asked for. */
static bool has_passed(struct glk_limbo *limbo, const struct glk_use *use)
{
	if (limbo->closed)
		return false;
	if (glk_clock_finished(limbo->streams, use))
		return true;
	if (!limbo->patient)
		return false;
	if (!glk_clock_sync_use_held(limbo->streams, use))
		return true;
	limbo->streams->stuck = true;
	return false;
}

static bool run_passed(
	struct glk_limbo *limbo, const struct glk_map *map, uint32_t first, uint32_t last)
{
	for (uint32_t slot = first; slot <= last;
		slot = glk_use_end(map, slot, last) + 1) {
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

static bool is_stale(const struct glk_map *map, uint32_t slot)
{
	return map->page[slot] && !glk_bit_get(map->usable, slot);
}

/* The next run from a slot on of mappings that are not usable. */
static bool next_stale(const struct glk_map *map, uint32_t slot, uint32_t last,
	uint32_t *ret_first, uint32_t *ret_last)
{
	for (; slot <= last; slot++) {
		slot = glk_bits_first_only(map->mapped, map->usable, slot, last);
		if (slot == GLK_BITS_NONE)
			return false;
		if (!is_stale(map, slot))
			continue;
		*ret_first = glk_mapping_at(map, slot).first;
		*ret_last = slot;
		while (slot <= last && is_stale(map, slot)) {
			*ret_last = glk_mapping_at(map, slot).last;
			slot = *ret_last + 1;
		}
		return true;
	}
	return false;
}

static bool stale_passed(
	struct glk_limbo *limbo, const struct glk_map *map, uint32_t first, uint32_t last)
{
	uint32_t from, to;

	for (uint32_t slot = first; next_stale(map, slot, last, &from, &to);
		slot = to + 1) {
		if (!run_passed(limbo, map, from, to))
			return false;
	}
	return true;
}

static void take_out(
	struct glk_map *map, uint32_t first, uint32_t last, struct glk_limbo_run *run)
{
	glk_mapping_detach(map, first, last);
	if (run->first > first)
		run->first = first;
	if (run->behind <= last)
		run->behind = last + 1;
}

int glk_limbo_detach(struct glk_limbo *limbo, struct glk_map *map, uint32_t first,
	uint32_t last, struct glk_limbo_run *run)
{
	if (!run_passed(limbo, map, first, last))
		return -EAGAIN;
	take_out(map, first, last, run);
	return 0;
}

int glk_limbo_detach_stale(struct glk_limbo *limbo, struct glk_map *map, uint32_t first,
	uint32_t last, struct glk_limbo_run *run)
{
	uint32_t from, to;

	if (!stale_passed(limbo, map, first, last))
		return -EAGAIN;
	for (uint32_t slot = first; next_stale(map, slot, last, &from, &to);
		slot = to + 1)
		take_out(map, from, to, run);
	return 0;
}

static bool is_going(const struct glk_map *map, uint32_t slot)
{
	return glk_bit_get(map->mapped, slot) && !map->page[slot];
}

int glk_limbo_finish(
	struct glk_limbo *limbo, struct glk_map *map, const struct glk_limbo_run *run)
{
	int err = 0;

	for (uint32_t slot = run->first, to; slot < run->behind; slot = to + 1) {
		uint64_t addr = glk_slot_addr(map, slot);
		int failed;

		to = slot;
		if (!is_going(map, slot))
			continue;
		while (to + 1 < run->behind && is_going(map, to + 1))
			to++;
		glk_map_pause(map);
		failed = glk_mapping_unmap(map, addr, to - slot + 1);
		glk_map_resume(map);
		glk_mapping_gone(map, slot, to, failed, false);
		err = err ? err : failed;
		if (!failed)
			limbo->streams->unmapped += (uint64_t)(to - slot + 1)
				<< map->shift;
	}
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

/* Unmaps a page of the caller's. Its mappings are looked up again each time: others may take one that lies in
 * their place. */
static int unmap_taken(struct glk_limbo *limbo, struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	uint32_t slots = glk_page_slots(map, page);
	int err;

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

/* One that is mapped nowhere goes to the driver. */
static int release(struct glk_limbo *limbo, struct glk_map *map, uint32_t id)
{
	uint64_t size = glk_map_page(map, id)->size;
	int err;

	glk_map_pause(map);
	err = glk_node_release(glk_map_node(map, id), id);
	glk_map_resume(map);
	if (!err)
		limbo->streams->released += size;
	return err;
}

/* An idle one, which is the caller's then. */
static int unmap_all(struct glk_limbo *limbo, struct glk_map *map, uint32_t id)
{
	const struct glk_page *page = glk_map_page(map, id);

	if (page->going || !all_passed(limbo, map, page))
		return -EAGAIN;
	glk_page_take(map, id);
	return unmap_taken(limbo, map, id);
}

/* Pages that have to wait still, after which others have their turn with the lock. */
#define LOOKS 512

void glk_limbo_reap(struct glk_limbo *limbo, struct glk_map *map)
{
	uint64_t left = map->space->unsealed_bytes >> map->shift;
	uint32_t id;

	while (left && (id = glk_seal_pop(map))) {
		struct glk_page *page = glk_map_page(map, id);

		/* the driver has kept a mapping of it since */
		if (glk_page_state(page) != GLK_PAGE_OWNED) {
			left--;
			continue;
		}
		/* those behind it may be of another stream */
		if (!all_passed(limbo, map, page) || (page->common && page->going)) {
			glk_seal_push(map, id);
			if (--left % LOOKS == 0) {
				glk_map_pause(map);
				glk_map_resume(map);
			}
			continue;
		}
		/* the page is lost where the driver keeps a mapping */
		if (unmap_taken(limbo, map, id))
			continue;
		page->sealed = false;
		if (page->common)
			release(limbo, map, id);
		else
			glk_page_put_back(map, id);
	}
}

int glk_limbo_release(struct glk_limbo *limbo, struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	int err = unmap_all(limbo, map, id);

	if (err)
		return err;
	/* another one is about to take a mapping away: what comes last then gives it to the list */
	if (page->going) {
		glk_page_put_back(map, id);
		return -EAGAIN;
	}
	return release(limbo, map, id);
}

int glk_limbo_strip(struct glk_limbo *limbo, struct glk_map *map, uint32_t id)
{
	int err = unmap_all(limbo, map, id);

	if (!err)
		glk_page_put_back(map, id);
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

	/* the page is in the caller's hands again, whoever is at these slots */
	glk_bits_clear(map->usable, m.first, m.last);
	glk_map_page(map, map->page[first])->in_use = GLK_NO_SLOT;
	return glk_mapping_remove(map, m.first, m.last);
}
