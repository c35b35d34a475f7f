/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stitching: puts pages behind an extent. Slots that are usable as they are cost nothing; the
 * others get pages that lay elsewhere, or new ones: large ones inside a run, single ones at an
 * end that is shared with a neighbour.
 *
 * What the driver has to do is a plan. It is made under the lock: the extent is counted on its
 * slots, so that neighbours who are freed meanwhile take nothing from under it; stale mappings
 * are taken out of the tables; the slots that are to be mapped are claimed. Then it is carried out,
 * and the lock is given up for each call of the driver: others go on, but for who wants these very
 * slots. All pages are had before the first is mapped. When a step fails, what this plan mapped
 * is unmapped, which needs no clock since no work can have used it, and the pages go back to where
 * the next request finds them.
 */
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/cache.h"

#include <errno.h>

/* Pages that are mapped between two looks at the tables. */
#define BATCH 64

/* An extent that is to be backed. */
struct job {
	struct glk_arena *arena;
	struct glk_map *map;
	struct glk_request *request;
	const struct glk_extent *e;
	uint32_t first, last; /* slots */
	/* Mappings that have to go first: idle ones at the ends, and what is stale between them. */
	struct glk_limbo_run end[2], stale;
	uint32_t more; /* slots behind the last one that its last page has too */
	uint32_t huge; /* slots of a huge page; 0: there are to be none */
	bool sole;     /* one page is to have all of it */
	uint32_t made; /* pages mapped so far, linked; 0: none */
	struct glk_supply supply;
};

/* A run of slots without a page, and what is to be mapped there. */
struct run {
	uint32_t first, last;
	uint32_t lead;	/* single pages at its beginning */
	uint32_t huge;	/* huge ones behind them, */
	uint32_t large; /* and large ones; the rest are single ones again */
};

/* Single pages at the beginning of a run: in a slot that others may use too. */
static uint32_t lead_of(const struct job *job, uint32_t first)
{
	uint64_t part = glk_slot_bytes(job->map) - 1;

	if (first != glk_extent_first(job->map, job->e))
		return 0;
	return job->request->lead + ((job->e->offset & part) > 0);
}

/* What would be mapped behind a run, at its end likewise. */
static struct run plan_run(const struct job *job, uint32_t first, uint32_t last)
{
	const struct glk_map *map = job->map;
	uint64_t part = glk_slot_bytes(map) - 1;
	struct run run = {.first = first, .last = last};
	uint32_t slots, tail = 0;

	if (last == job->last)
		run.last += job->more;
	slots = run.last - first + 1;
	run.lead = lead_of(job, first);
	if (last == glk_extent_last(map, job->e) && !job->more)
		tail = job->request->tail +
			(((job->e->offset + job->e->size) & part) > 0);
	if (run.lead > slots)
		run.lead = slots;
	slots -= tail < slots ? tail : slots;
	if (map->large < 2 || slots <= run.lead || job->request->single)
		return run;
	slots -= run.lead;
	run.huge = job->huge ? slots / job->huge : 0;
	run.large = (slots - run.huge * job->huge) / map->large;
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

/* Slots of a run behind its lead that are not of single pages. */
static uint32_t in_large(const struct job *job, const struct run *run)
{
	return run->huge * job->huge + run->large * job->map->large;
}

/* Nothing stands in for it. */
static bool is_one_page(const struct job *job)
{
	return job->e->whole || job->request->one || job->sole;
}

static struct glk_need count_need(const struct job *job)
{
	struct glk_need need = {0};
	struct run run;

	if (is_one_page(job)) {
		need = (struct glk_need){.other = (uint64_t)(job->last - job->first + 1)
				<< job->map->shift,
			.others = 1,
			.whole = true,
			.tries = job->sole};
		return need;
	}
	need.other = (uint64_t)job->huge << job->map->shift;
	for (uint32_t slot = job->first; next_run(job, slot, &run); slot = run.last + 1) {
		need.others += run.huge;
		need.large += run.large;
		need.small += run.last - run.first + 1 - in_large(job, &run);
		if (run.last >= job->last)
			break;
	}
	return need;
}

/* Large pages from which on a block ends with single ones all the same: one that it shares serves nobody elsewhere
 * while either is there, and later passes of jobs of large blocks would map more. */
#define WHOLE 4

/*
 * Where nothing lies behind a block, nor has to, and there is plenty of memory, the last page that is made for it is a large one
 * all the same: what comes next begins there. A single page costs what a large one does.
 */
static uint32_t find_more(const struct job *job)
{
	const struct glk_request *request = job->request;
	const struct glk_map *map = job->map;
	uint32_t last = job->last, before, slots, lead, more;

	/* a slot for small blocks has a page of its own */
	if (map->large < 2 || job->e->whole || job->e->size != request->rounded ||
		request->rounded <= job->arena->gpu->small_most ||
		job->arena->gpu->ahead || request->run || request->single ||
		job->arena->ops->place || request->tail || last + 1 != glk_map_end(map) ||
		job->stale.first < job->stale.behind ||
		job->end[0].first < job->end[0].behind ||
		job->end[1].first < job->end[1].behind || glk_bit_get(map->mapped, last))
		return 0;
	before = glk_bits_last(map->mapped, job->first, last);
	before = before == GLK_BITS_NONE ? job->first : before + 1;
	lead = lead_of(job, before);
	slots = last - before + 1;
	slots -= lead < slots ? lead : slots;
	more = (map->large - slots % map->large) % map->large;
	if (!more || slots >= WHOLE * map->large ||
		((uint64_t)last + more + 1) << map->shift > map->end ||
		glk_is_claimed(map, last + 1, last + more) ||
		!glk_supply_is_plenty(job->arena, request->size,
			(uint64_t)(last - job->first + 1 + more) << map->shift))
		return 0;
	return more;
}

/* Slots of the pages that come before large ones inside a run; 0: there are to be none. They are for runs that are had
 * by themselves, such as contents that come back: how much there will be is known then. */
static uint32_t find_huge(const struct job *job)
{
	const struct glk_request *request = job->request;
	uint32_t huge = (uint32_t)(glk_request_node(job->arena, request)->huge >>
		job->map->shift);

	if (!request->run || request->single || is_one_page(job) ||
		job->last - job->first + 1 < huge || !glk_supply_is_ample(job->arena))
		return 0;
	return huge;
}

/* What guard takes away with each free is mapped once and unmapped once: a page of its size costs as much as a slot does. */
static bool is_sole(const struct job *job)
{
	const struct glk_guard_ops *guard = glk_guard_ops(job->arena->gpu);

	return job->arena->ops->place && guard && guard->at_once(job->arena->gpu) &&
		job->last > job->first && !job->request->run && !job->request->single &&
		!job->e->whole &&
		glk_bits_first(job->map->mapped, job->first, job->last) == GLK_BITS_NONE;
}

/* Idle large pages that would serve one end and lie idle beside it go elsewhere. */
static int detach_ends(struct job *job)
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
		err = glk_limbo_detach(&limbo, job->map, m.first, m.last, &job->end[i]);
	}
	return err;
}

/* What was taken out of the tables goes. Each run for itself: what lies between the ends is in the
 * hands of the plan only once it has counted itself there. */
static int finish_ends(const struct job *job)
{
	struct glk_limbo limbo = glk_request_limbo(job->arena);
	int err = glk_limbo_finish(&limbo, job->map, &job->end[0]), failed;

	failed = glk_limbo_finish(&limbo, job->map, &job->end[1]);
	return err ? err : failed;
}

/* Slots that are mapped together, and their pages. */
struct batch {
	uint32_t slot, count;
	uint32_t page[BATCH];
};

/* What of a page lies behind the block is stranded, or no longer. */
static void strand(const struct job *job, const struct glk_page *page, uint64_t sign)
{
	uint32_t behind = page->first_alias + glk_page_slots(job->map, page);

	if (behind > job->last + 1)
		job->map->space->of[GLK_OF_NODE].stranded +=
			sign * (behind - (job->last + 1));
}

static int map_batch(struct job *job, struct batch *batch)
{
	uint32_t slot = batch->slot;
	int err;

	for (uint32_t i = 0; i < batch->count; i++)
		job->request->stitched |=
			glk_map_page(job->map, batch->page[i])->aliases > 0;
	err = glk_mapping_make(job->map, slot, batch->page, batch->count);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct glk_page *page = glk_map_page(job->map, batch->page[i]);

		slot += glk_page_slots(job->map, page);
		if (!err) {
			glk_page_link(job->map, batch->page[i], job->made);
			job->made = batch->page[i];
			strand(job, page, 1);
		} else if (glk_page_state(page) == GLK_PAGE_OWNED) {
			glk_page_put_back(job->map, batch->page[i]);
		}
	}
	batch->slot = slot;
	batch->count = 0;
	return err;
}

static int add(struct job *job, struct batch *batch, uint32_t *list)
{
	batch->page[batch->count++] = glk_supply_pop(job->arena, list);
	return batch->count == BATCH ? map_batch(job, batch) : 0;
}

/* A large page, or small ones in its place, but for so many slots behind the block. */
static int add_large(struct job *job, struct batch *batch, uint32_t more)
{
	int err = 0;

	if (job->supply.large)
		return add(job, batch, &job->supply.large);
	for (uint32_t i = more; i < job->map->large && !err; i++)
		err = add(job, batch, &job->supply.small);
	return err;
}

/* A huge page, or large ones in its place. */
static int add_huge(struct job *job, struct batch *batch)
{
	int err = 0;

	if (job->supply.other)
		return add(job, batch, &job->supply.other);
	for (uint32_t i = 0; i < job->huge && !err; i += job->map->large)
		err = add_large(job, batch, 0);
	return err;
}

static int map_run(struct job *job, const struct run *run)
{
	uint32_t slots = run->last - run->first + 1;
	uint32_t tail = slots - run->lead - in_large(job, run);
	struct batch batch = {.slot = run->first};
	int err = 0;

	if (is_one_page(job)) {
		err = add(job, &batch, &job->supply.other);
		return err ? err : map_batch(job, &batch);
	}
	for (uint32_t i = 0; i < run->lead && !err; i++)
		err = add(job, &batch, &job->supply.small);
	for (uint32_t i = 0; i < run->huge && !err; i++)
		err = add_huge(job, &batch);
	for (uint32_t i = 0; i < run->large && !err; i++)
		err = add_large(job, &batch,
			run->last > job->last && i + 1 == run->large ? job->more : 0);
	for (uint32_t i = 0; i < tail && !err; i++)
		err = add(job, &batch, &job->supply.small);
	return err || !batch.count ? err : map_batch(job, &batch);
}

/* Unmaps what this plan mapped. Pages that the driver keeps then are lost. */
static void undo(struct job *job)
{
	struct glk_map *map = job->map;
	uint32_t next;

	for (uint32_t id = job->made; id; id = next) {
		struct glk_page *page = glk_map_page(map, id);

		next = glk_page_next(map, id);
		strand(job, page, -UINT64_C(1));
		if (!glk_limbo_undo(map, page->first_alias))
			glk_page_put_back(map, id);
	}
	job->made = 0;
}

/* Puts pages behind the slots that have none to use. */
static int stitch(struct job *job)
{
	struct glk_limbo limbo = glk_request_limbo(job->arena);
	struct glk_need need;
	struct run run;
	int err = finish_ends(job), failed;

	failed = glk_limbo_finish(&limbo, job->map, &job->stale);
	err = err ? err : failed;
	if (err)
		return err;
	need = count_need(job);
	err = glk_supply_get(job->arena, job->request, &need, &job->supply);
	if (err == -ENOMEM && job->sole) {
		job->sole = false;
		need = count_need(job);
		err = glk_supply_get(job->arena, job->request, &need, &job->supply);
	}
	if (err)
		return err;
	for (uint32_t slot = job->first; !err && next_run(job, slot, &run);) {
		err = map_run(job, &run);
		if (run.last >= job->last)
			break;
		slot = run.last + 1;
	}
	glk_supply_put_back(job->arena, &job->supply);
	if (err)
		undo(job);
	return err;
}

/* The plan for an extent that was counted on its slots, carried out. */
static int carry_out(struct job *job)
{
	uint32_t last;
	int err;

	job->request->called = true;
	job->more = find_more(job);
	job->huge = find_huge(job);
	job->sole = is_sole(job);
	last = job->last + job->more;
	/* also for what the driver may keep there */
	if (job->more)
		job->map->reach = last + 1;
	glk_claim(job->map, job->first, last);
	glk_plan_begin(job->arena->gpu);
	err = stitch(job);
	glk_unclaim(job->map, job->first, last);
	glk_plan_end(job->arena->gpu);
	return err;
}

/* The request comes behind the streams that used last what is usable as it is, and what has to go first is
 * taken out of the tables. */
static int prepare(struct job *job)
{
	struct glk_request *request = job->request;
	int err = 0;

	if (!request->own)
		err = glk_request_order_run(job->arena, request, job->first, job->last);
	if (!err && request->trim)
		err = detach_ends(job);
	return err;
}

/* The extent is counted on its slots: whether they are usable as they are. */
static inline bool enter(struct glk_map *map, uint32_t first, uint32_t last)
{
	glk_slots_enter(map, first, last);
	return glk_bits_all(map->usable, first, last);
}

/* The rest of the plan for one that is. */
static int make_plan(struct job *job)
{
	struct glk_limbo limbo = glk_request_limbo(job->arena);
	struct glk_use never = {0};
	/* with it, mappings whose page comes into use at an earlier slot of the place go stale */
	int err = glk_limbo_detach_stale(
		&limbo, job->map, job->first, job->last, &job->stale);

	if (err)
		glk_slots_leave(job->map, job->first, job->last, &never);
	return err;
}

/* Until the plan is made the lock is not given up. */
static int back(struct job *job, bool entered)
{
	struct glk_map *map = job->map;
	struct glk_use never = {0};
	int err = entered ? 0 : prepare(job);

	if (!err && !entered && enter(map, job->first, job->last))
		return 0;
	if (!err)
		err = make_plan(job);
	if (err) {
		/* what was taken out of the tables has to go all the same */
		glk_plan_begin(job->arena->gpu);
		finish_ends(job);
		glk_plan_end(job->arena->gpu);
		return err;
	}
	err = carry_out(job);
	if (err)
		glk_slots_leave(map, job->first, job->last, &never);
	return err;
}

static GLK_COLD int back_slowly(struct glk_arena *arena, struct glk_request *request,
	uint32_t extent, struct glk_stretch run, bool entered)
{
	struct job job = {.arena = arena,
		.map = &arena->map,
		.request = request,
		.e = glk_extent_at(&arena->map, extent),
		.first = run.first,
		.last = run.last,
		.end = {{GLK_NO_SLOT, 0}, {GLK_NO_SLOT, 0}},
		.stale = {GLK_NO_SLOT, 0}};

	return back(&job, entered);
}

int glk_back(struct glk_arena *arena, struct glk_request *request, uint32_t extent)
{
	struct glk_map *map = &arena->map;
	const struct glk_extent *e = glk_extent_at(map, extent);
	struct glk_stretch run = {glk_extent_first(map, e), glk_extent_last(map, e)};
	bool plain = request->own && !request->trim;

	if (request->run)
		run = *request->run;
	/* nearly always that is all */
	if (plain && enter(map, run.first, run.last))
		return 0;
	return back_slowly(arena, request, extent, run, plain);
}
