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
	uint32_t
		more; /* slots behind the last one that its last page, of class `ends_in`, has too */
	enum glk_class ends_in, least,
		most;	 /* pages inside runs are of these two and what lies between */
	bool sole;	 /* one page is to have all of it */
	uint32_t beyond; /* a page that is mapped at the end; 0: none, or small ones */
	uint32_t made;	 /* pages mapped so far, linked; 0: none */
	struct glk_supply supply;
};

/* A run of slots without a page, and what is to be mapped there. */
struct run {
	uint32_t first, last;
	uint32_t lead; /* single pages at its beginning */
	uint32_t
		inner; /* slots of larger ones behind them; the rest are single ones again */
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
	run.inner = slots - slots % map->of[job->least];
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

/* Slots of the page at the end of a run that has some behind the block. */
static uint32_t end_of(const struct job *job, const struct run *run)
{
	return run->last > job->last ? job->map->of[job->ends_in] : 0;
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
		need.other = (uint64_t)(job->last - job->first + 1) << job->map->shift;
		need.pages[glk_node_class(
			glk_request_node(job->arena, job->request), need.other)] = 1;
		need.whole = true;
		need.tries = job->sole;
		return need;
	}
	need.least = job->least;
	for (uint32_t slot = job->first; next_run(job, slot, &run); slot = run.last + 1) {
		uint32_t end = end_of(job, &run), left = run.inner - end;

		need.pages[GLK_CLASS_SMALL] += run.last - run.first + 1 - run.inner;
		for (int c = job->most; c >= (int)job->least && left; c--) {
			need.pages[c] += left / job->map->of[c];
			left %= job->map->of[c];
		}
		if (end) {
			need.end = job->ends_in;
			need.pages[job->ends_in]++;
		}
		if (run.last >= job->last)
			break;
	}
	return need;
}

/* Whether so many slots behind a block in the arena of a stream are free, and have no page. In the last one another
 * block may begin, which has lost its contents there. */
static bool is_bare(const struct job *job, uint32_t slots)
{
	const struct glk_map *map = job->map;
	const struct glk_extent *next = glk_extent_at(map, job->e->next);

	return job->arena->number && job->e->next &&
		glk_extent_state(next) == GLK_EXTENT_FREE &&
		next->size >= (uint64_t)slots << map->shift &&
		!glk_bits_any(map->mapped, job->last + 1, job->last + slots) &&
		!glk_bits_any(map->busy, job->last + 1, job->last + slots);
}

/* Large pages from which on a block ends with single ones all the same: one that it shares serves nobody elsewhere
 * while either is there, and later passes of jobs of large blocks would map more. */
#define WHOLE 4

/*
 * Where nothing lies behind a block, nor has to, and there is plenty of memory, the last page that is made for it is a large one
 * all the same: what comes next begins there. A single page costs what a large one does. In the arena of a stream, which has
 * few addresses, there may be others beyond.
 */
static uint32_t find_more(const struct job *job)
{
	const struct glk_request *request = job->request;
	const struct glk_map *map = job->map;
	uint32_t last = job->last, before, slots, lead, more, end = map->of[job->ends_in];

	/* a slot for small blocks has a page of its own */
	if (map->large < 2 || job->e->whole || job->e->size != request->rounded ||
		request->rounded <= job->arena->gpu->small_most ||
		job->arena->gpu->ahead || request->run || request->single ||
		job->arena->ops->place || request->tail ||
		job->stale.first < job->stale.behind ||
		job->end[0].first < job->end[0].behind ||
		job->end[1].first < job->end[1].behind || glk_bit_get(map->mapped, last))
		return 0;
	before = glk_bits_last(map->mapped, job->first, last);
	before = before == GLK_BITS_NONE ? job->first : before + 1;
	lead = lead_of(job, before);
	slots = last - before + 1;
	slots -= lead < slots ? lead : slots;
	more = (end - slots % end) % end;
	if (!more || slots >= WHOLE * map->large ||
		(last + 1 != glk_map_end(map) && !is_bare(job, more)) ||
		((uint64_t)last + more + 1) << map->shift > map->end ||
		glk_is_claimed(map, last + 1, last + more) ||
		!glk_supply_is_plenty(job->arena, request->size,
			(uint64_t)(last - job->first + 1 + more) << map->shift))
		return 0;
	return more;
}

/*
 * The sizes of pages inside runs. Runs that are had by themselves, such as contents that come back, have large pages at the
 * least, since it is known how much there will be. Others have some of half that size, too, which are all that is made for
 * them once half of the GPU was live.
 */
static void find_sizes(struct job *job)
{
	const struct glk_map *map = job->map;
	const struct glk_node *node = glk_request_node(job->arena, job->request);
	bool graded = map->of[GLK_CLASS_HUGE] && !node->gpu && !job->arena->ops->fixed;

	job->most = graded ? GLK_CLASS_HUGE : GLK_CLASS_LARGE;
	job->least = graded && !job->request->run ? GLK_CLASS_HALF : GLK_CLASS_LARGE;
	job->ends_in = glk_supply_largest(job->arena, job->least);
	if (job->ends_in > GLK_CLASS_LARGE)
		job->ends_in = GLK_CLASS_LARGE;
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

static int add(struct job *job, struct batch *batch, uint32_t id)
{
	batch->page[batch->count++] = id;
	return batch->count == BATCH ? map_batch(job, batch) : 0;
}

/* So many slots, in pages of so many or fewer: the largest that there are. */
static int add_slots(struct job *job, struct batch *batch, uint32_t slots, uint32_t most)
{
	int err = 0;

	while (slots && !err) {
		uint32_t id = glk_supply_pop(
			job->arena, &job->supply, most < slots ? most : slots);

		slots -= glk_page_slots(job->map, glk_map_page(job->map, id));
		err = add(job, batch, id);
	}
	return err;
}

/* The same at the end of a run that has slots behind the block. */
static int add_end(struct job *job, struct batch *batch, uint32_t slots)
{
	uint32_t id = job->beyond;

	if (!id)
		return add_slots(job, batch, slots - job->more, 1);
	job->beyond = 0;
	return add(job, batch, id);
}

static int map_run(struct job *job, const struct run *run)
{
	uint32_t slots = run->last - run->first + 1, end = end_of(job, run);
	struct batch batch = {.slot = run->first};
	int err;

	if (is_one_page(job)) {
		err = add_slots(job, &batch, slots, slots);
		return err ? err : map_batch(job, &batch);
	}
	err = add_slots(job, &batch, run->lead, 1);
	if (!err)
		err = add_slots(job, &batch, run->inner - end, UINT32_MAX);
	if (!err && end)
		err = add_end(job, &batch, end);
	if (!err)
		err = add_slots(job, &batch, slots - run->lead - run->inner, 1);
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

/* All runs get their pages, of which the last one's end has its own first: a run before it would take that. */
static int map_runs(struct job *job)
{
	uint32_t *ends = &job->supply.page[job->ends_in];
	struct run run;
	int err = 0;

	if (job->more && *ends) {
		job->beyond = *ends;
		*ends = glk_page_next(job->map, *ends);
	}
	for (uint32_t slot = job->first; !err && next_run(job, slot, &run);) {
		err = map_run(job, &run);
		if (run.last >= job->last)
			break;
		slot = run.last + 1;
	}
	if (job->beyond) {
		glk_page_link(job->map, job->beyond, *ends);
		*ends = job->beyond;
	}
	return err;
}

/* Puts pages behind the slots that have none to use. */
static int stitch(struct job *job)
{
	struct glk_limbo limbo = glk_request_limbo(job->arena);
	struct glk_need need;
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
	err = map_runs(job);
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
	find_sizes(job);
	job->more = find_more(job);
	job->sole = is_sole(job);
	last = job->last + job->more;
	/* also for what the driver may keep there */
	if (job->more && job->map->reach < last + 1)
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
