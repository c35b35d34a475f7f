/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stitching: puts pages behind an extent. Slots that are usable as they are cost nothing; the
 * others get pages that lay elsewhere, or new ones: large ones inside a run, single ones at an
 * end that is shared with a neighbour. All pages are had before the first is mapped. When a step
 * fails, what this request mapped is unmapped, which needs no clock since no work can have used
 * it, and the pages go back to where the next request finds them.
 */
#include "cache/ahead.h"

#include <errno.h>

/* An extent that is to be backed. */
struct job {
	struct glk_arena *arena;
	struct glk_map *map;
	struct glk_request *request;
	const struct glk_extent *e;
	uint32_t first, last; /* slots */
	uint32_t made;	      /* pages mapped so far, linked; 0: none */
	struct glk_supply supply;
};

/* A run of slots without a page, and what is to be mapped there. */
struct run {
	uint32_t first, last;
	uint32_t lead,
		large; /* single pages at its beginning, then large ones; single ones */
};

/* What would be mapped behind a run: at an end in a slot that others may use too, single pages. */
static struct run plan_run(const struct job *job, uint32_t first, uint32_t last)
{
	const struct glk_map *map = job->map;
	uint64_t part = glk_slot_bytes(map) - 1;
	struct run run = {.first = first, .last = last};
	uint32_t slots = last - first + 1;

	run.lead = first == job->first && (job->e->offset & part);
	if (last == job->last && ((job->e->offset + job->e->size) & part))
		slots--;
	if (map->large > 1 && slots > run.lead)
		run.large = (slots - run.lead) / map->large;
	return run;
}

/* The next run at or behind a slot; false: there is none. */
static bool next_run(const struct job *job, uint32_t slot, struct run *ret_run)
{
	const uint64_t *mapped = job->map->mapped;
	uint32_t first = glk_bits_first_clear(mapped, slot, job->last), behind;

	if (first == GLK_BITS_NONE)
		return false;
	behind = glk_bits_first(mapped, first, job->last);
	*ret_run = plan_run(job, first, behind == GLK_BITS_NONE ? job->last : behind - 1);
	return true;
}

static struct glk_need count_need(const struct job *job)
{
	struct glk_need need = {0};
	struct run run;

	if (job->e->whole) {
		need.other = job->e->size;
		return need;
	}
	for (uint32_t slot = job->first; next_run(job, slot, &run); slot = run.last + 1) {
		need.large += run.large;
		need.small += run.last - run.first + 1 - run.large * job->map->large;
		if (run.last == job->last)
			break;
	}
	return need;
}

/* Removes the mappings of pages that are in use elsewhere: one call a run of them. */
static int clear_stale(const struct job *job)
{
	struct glk_limbo limbo = glk_request_limbo(job->arena);
	struct glk_map *map = job->map;
	uint32_t slot = job->first;

	while (slot <= job->last) {
		struct glk_mapping m;
		uint32_t first;
		int err;

		if (!glk_bit_get(map->mapped, slot) || glk_bit_get(map->usable, slot)) {
			slot++;
			continue;
		}
		m = glk_mapping_at(map, slot);
		first = m.first;
		while (m.last < job->last && glk_bit_get(map->mapped, m.last + 1) &&
			!glk_bit_get(map->usable, m.last + 1))
			m = glk_mapping_at(map, m.last + 1);
		err = glk_limbo_unmap(&limbo, map, first, m.last);
		if (err)
			return err;
		slot = m.last + 1;
	}
	return 0;
}

/* Idle large pages that would serve one end and lie idle beside it go elsewhere. */
static int clear_ends(const struct job *job)
{
	struct glk_limbo limbo = glk_request_limbo(job->arena);
	const uint32_t ends[] = {job->first, job->last};
	int err = 0;

	if (job->e->nested)
		return 0;
	for (int i = 0; i < 2 && !err; i++) {
		struct glk_mapping m =
			glk_fit_end(job->map, ends[i], job->first, job->last);

		if (m.first > m.last)
			continue;
		job->request->called = true;
		err = glk_limbo_unmap(&limbo, job->map, m.first, m.last);
	}
	return err;
}

static int map_page(struct job *job, uint32_t slot, uint32_t *list)
{
	uint32_t id = glk_supply_pop(job->arena, list);
	int err;

	job->request->stitched |= glk_map_page(job->map, id)->aliases > 0;
	err = glk_mapping_make(job->map, slot, id);
	if (err) {
		glk_page_put_back(job->map, id);
		return err;
	}
	glk_page_link(job->map, id, job->made);
	job->made = id;
	return 0;
}

/* A large page, or small ones in its place. */
static int map_large(struct job *job, uint32_t slot)
{
	int err = 0;

	if (job->supply.large)
		return map_page(job, slot, &job->supply.large);
	for (uint32_t i = 0; i < job->map->large && !err; i++)
		err = map_page(job, slot + i, &job->supply.small);
	return err;
}

static int map_run(struct job *job, const struct run *run)
{
	uint32_t slot = run->first;
	int err = 0;

	if (job->e->whole) {
		err = map_page(job, slot, &job->supply.other);
		return err ? err : glk_mapping_grant(job->map, run->first, run->last);
	}
	for (uint32_t i = 0; i < run->lead && !err; i++)
		err = map_page(job, slot++, &job->supply.small);
	for (uint32_t i = 0; i < run->large && !err; i++, slot += job->map->large)
		err = map_large(job, slot);
	while (slot <= run->last && !err)
		err = map_page(job, slot++, &job->supply.small);
	return err ? err : glk_mapping_grant(job->map, run->first, run->last);
}

/* Unmaps what this request mapped. Pages that the driver keeps then are lost. */
static void undo(struct job *job)
{
	struct glk_map *map = job->map;
	uint32_t next;

	for (uint32_t id = job->made; id; id = next) {
		struct glk_page *page = glk_map_page(map, id);

		next = glk_page_next(map, id);
		if (!glk_limbo_undo(map, page->first_alias))
			glk_page_put_back(map, id);
	}
	job->made = 0;
}

/* Puts pages behind the slots that have none to use. */
static int stitch(struct job *job)
{
	struct glk_need need;
	struct run run;
	int err;

	job->request->called = true;
	err = clear_stale(job);
	if (err)
		return err;
	need = count_need(job);
	err = glk_supply_get(job->arena, job->request, &need, &job->supply);
	if (err)
		return err;
	for (uint32_t slot = job->first; !err && next_run(job, slot, &run);) {
		err = map_run(job, &run);
		if (run.last == job->last)
			break;
		slot = run.last + 1;
	}
	glk_supply_put_back(job->arena, &job->supply);
	if (err)
		undo(job);
	return err;
}

int glk_back(struct glk_arena *arena, struct glk_request *request, uint32_t extent)
{
	struct glk_map *map = &arena->map;
	struct job job = {.arena = arena,
		.map = map,
		.request = request,
		.e = glk_extent_at(map, extent)};
	struct glk_use never = {0};
	int err = 0;

	job.first = glk_extent_first(map, job.e);
	job.last = glk_extent_last(map, job.e);
	glk_ahead_meet(arena, job.first, job.last);
	if (request->trim)
		err = clear_ends(&job);
	if (err)
		return err;
	/* behind the streams that used last what is usable as it is */
	if (!request->own)
		err = glk_request_order_run(arena, request, job.first, job.last);
	if (err)
		return err;
	glk_slots_enter(map, job.first, job.last);
	if (glk_bits_all(map->usable, job.first, job.last))
		return 0;
	err = stitch(&job);
	if (err)
		glk_slots_leave(map, job.first, job.last, &never);
	return err;
}
