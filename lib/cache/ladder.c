/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is done when memory is short: all rungs in one table, in the order in which they are climbed, and one
 * loop. A rung is an act for the whole of what is missing. While one waits for the GPU, or has something sent
 * away, others go in and out, and what was given back until then is kept for who climbs.
 *
 * After the last rung the request is refused, see refusal.c, or served with memory of the host in place, or with
 * managed memory, where the configuration says so: see miss.c. Those are no more of the same, and begin anew.
 */
#include "base/cancel.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/thread.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"
#include "cache/graph/graph.h"
#include "cache/reserve.h"

#include <errno.h>

/* Times that work is waited for, which others may have queued more of meanwhile; that a request looks again since
 * others have given memory up; and that cold blocks go for it, whose pages may be needed at its ends only
 * in part. */
#define WAITS 5
#define LOOKS 8
#define ROOMS 4

static struct glk_cache *gpu_of(const struct glk_climb *c)
{
	return c->arena->gpu;
}

/* ---- Pools of graphs whose end is due: their blocks were live then, or a graph was captured ---- */

static bool may_reap(const struct glk_climb *c)
{
	return c->node == gpu_of(c)->node && glk_graphs(gpu_of(c)) &&
		glk_graphs(gpu_of(c))->leaving;
}

static bool reap(struct glk_climb *c)
{
	uint64_t held = glk_load_relaxed(&c->node->held);

	glk_graph_reap(gpu_of(c));
	if (glk_load_relaxed(&c->node->held) >= held)
		return false;
	glk_cache_climbed(gpu_of(c), GLAKE_RUNG_LIMBO);
	return true;
}

/* ---- What the streams have to tell ---- */

/* What can go then must not depend on how far the GPU is. */
static bool is_repeatable(const struct glk_climb *c)
{
	return !gpu_of(c)->conf->stream_opportunistic;
}

static bool sync_all(struct glk_climb *c)
{
	struct glake_error why = glk_thread_current->error;
	int err = glk_clock_sync(&gpu_of(c)->streams, ~UINT64_C(0));

	/* why memory is short stays on record */
	if (err)
		glk_error_back(&why);
	return !err || c->node;
}

static bool poll(struct glk_climb *c)
{
	return glk_event_poll(&gpu_of(c)->streams);
}

/* ---- Memory of the host that contents were kept in, or are to be, which counts against the same budget ---- */

/* Bytes to give back so that what is missing fits: the excess over the budget, or all of it where the driver is the
 * limit. */
static uint64_t shortage(const struct glk_climb *c)
{
	uint64_t held = glk_load_relaxed(&c->node->held);
	/* asked once: a quota leaves more, or less, as others go on */
	uint64_t budget = glk_node_most(c->node);

	return held <= budget && c->lack <= budget - held ? c->lack
							  : held + c->lack - budget;
}

static bool yield_store(struct glk_climb *c)
{
	if (!c->node->gpu || !glk_load_relaxed(&gpu_of(c)->moves))
		return false;
	glk_reserve_yield(gpu_of(c));
	glk_mover_yield(&gpu_of(c)->mover, shortage(c));
	return true;
}

/* ---- Blocks in bins, which keep addresses and descriptors, too, and what is made ahead ---- */

static bool flush(struct glk_climb *c)
{
	bool rested = !c->node && glk_ahead_rest(gpu_of(c));

	if (c->node && c->node != gpu_of(c)->node)
		return false;
	return glk_quick_flush(gpu_of(c)) || rested;
}

/* ---- Idle pages, of any size ---- */

static bool release(struct glk_climb *c)
{
	struct glk_arena *home = c->arena->home;

	if (!c->want)
		c->want = shortage(c);
	for (int many = 0; many < 2 && c->given < c->want; many++) {
		if (many && (c->late.bytes || !c->late.left))
			break;
		c->late = (struct glk_late){.many = many};
		c->given += glk_trim_release(
			home, c->node, c->want - c->given, UINT32_MAX, &c->late);
	}
	return true;
}

/* What the work of streams is in the way of. A capture may be in the way of some of it. */
static bool is_late(const struct glk_climb *c)
{
	return c->late.bytes && c->waits < WAITS;
}

static bool await_late(struct glk_climb *c)
{
	c->waits++;
	glk_work_sync(&gpu_of(c)->streams, &c->late.work);
	return true;
}

/* Pages lie among other addresses, and what is in their way is not known; or it was waited for in vain, as a capture
 * or a plan is, and others may do. */
static bool stays(const struct glk_climb *c)
{
	return c->waits <= WAITS &&
		glk_arena_idle(c->arena->home, c->node) > glk_node_free(c->node);
}

static bool await_all(struct glk_climb *c)
{
	c->waits = WAITS + 1;
	return sync_all(c);
}

/* ---- Other processes, which a broker asks to give what they do not use; once ---- */

static bool may_share(const struct glk_climb *c)
{
	return c->node->source->ask && !c->shared && glk_node_has_room(c->node, c->lack);
}

/* The pages that the request has got already stay with it, what it has released does not. */
static bool share(struct glk_climb *c)
{
	struct glk_cache *gpu = gpu_of(c);
	int err;

	c->shared = true;
	glk_lock_pause(&gpu->lock);
	err = c->node->source->ask(c->node, c->lack, true);
	glk_lock_resume(&gpu->lock);
	if (!err)
		c->given = c->want;
	return !err;
}

/* ---- Places ---- */

/* A page that reaches beyond an end of the place gives a part of itself only. Where the memory that nobody uses
 * would do for the request, all of it is given back, so that there is room for pages of its measure. */
static bool recut(struct glk_climb *c)
{
	struct glk_node *node = glk_request_node(c->arena, c->request);
	uint64_t idle = glk_arena_idle(c->arena->home, node), given;
	uint64_t budget = glk_node_most(node);
	uint64_t held = glk_load_relaxed(&node->held);

	if (budget != UINT64_MAX && budget > held)
		idle += budget - held;
	if (idle < c->request->rounded)
		return false;
	glk_plan_begin(gpu_of(c));
	given = glk_trim_release(c->arena->home, node, UINT64_MAX, UINT32_MAX, NULL);
	glk_plan_end(gpu_of(c));
	return given;
}

static bool may_wait(const struct glk_climb *c)
{
	return c->arena->ops->waits && c->request->patient;
}

/* Runs of equal use that are looked at while nobody else has the lock. */
#define RUNS_HELD 1024

/* That of a run of equal use. Pages that have several mappings there may have been put behind others
 * since, which they alone say. */
static void gather_run(
	const struct glk_map *map, uint32_t first, uint32_t last, struct glk_work *work)
{
	uint32_t w = first >> 6;
	uint64_t shared = glk_mapping_starts(
		map, w, map->shared[w] & glk_bits_mask(w, first, last), first);

	glk_work_add(work, &map->use[glk_use_slot(map, first)]);
	for (; shared; shared &= shared - 1) {
		uint32_t id = map->page[w << 6 | (uint32_t)__builtin_ctzll(shared)];

		if (id)
			glk_work_add(work, &glk_map_page(map, id)->use);
	}
}

/* The work on all that is mapped in the space of an arena. */
static void gather(const struct glk_arena *arena, struct glk_work *work)
{
	const struct glk_map *map = &arena->map;
	uint32_t slot = 0, runs = 0, last;

	for (; slot < glk_space_end(map->space); slot = last + 1) {
		last = glk_use_end(map, slot, glk_space_end(map->space) - 1);
		gather_run(map, slot, last, work);
		if (++runs % RUNS_HELD)
			continue;
		glk_lock_yield(&arena->gpu->lock);
	}
}

/* Holes that are there may be had when the work on them is done, and also where more streams than there are tries
 * cannot be waited for, one by one. */
static bool await_holes(struct glk_climb *c)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_work work = {0};
	int err;

	gather(c->arena, &work);
	if (c->arena->home->map.space != c->arena->map.space)
		gather(c->arena->home, &work);
	err = glk_work_sync(&gpu_of(c)->streams, &work);
	if (err)
		glk_error_back(&why);
	return !err;
}

/* ---- Others: they have freed blocks, or end plans with which they wait ---- */

static uint64_t count_frees(struct glk_cache *gpu)
{
	struct glk_seats sum;

	glk_seats_sum(gpu, &sum);
	return sum.frees;
}

static bool look(struct glk_climb *c)
{
	uint64_t before = c->frees;

	if (!c->request->climbs || c->looks++ == LOOKS)
		return false;
	c->frees = count_frees(gpu_of(c));
	return c->frees != before || glk_plan_wait(gpu_of(c), true);
}

/* ---- What the program gives ---- */

bool glk_shortage_may_ask(
	const struct glk_cache *cache, const struct glk_request *request)
{
	const struct glk_thread *thread = glk_thread_current;

	/* what is more than there may be is refused in any case */
	return cache->shortage.fn && request->rounded <= cache->memory &&
		request->rounded <= glk_load_relaxed(&cache->node->budget) &&
		!request->capture && glk_load_relaxed(&thread->serial) && !thread->told &&
		!thread->asked && thread->error.error_class == GLAKE_ERROR_NOMEM_DEVICE;
}

void glk_shortage_ask(
	struct glk_cache *cache, uint64_t want, struct CUstream_st *stream, int64_t until)
{
	struct glk_thread *thread = glk_thread_self();
	struct glake_error why = thread->error;
	int cancel = glk_cancel_off();
	glake_shortage_fn fn;
	void *user;

	glk_lock(&cache->lock);
	fn = cache->shortage.fn;
	user = cache->shortage.user;
	cache->shortage.callers += fn != NULL;
	glk_unlock(&cache->lock);
	thread->asked++;
	if (fn)
		fn(user, cache->device, want, stream, until);
	thread->asked--;
	thread->error = why;
	glk_lock(&cache->lock);
	cache->shortage.callers -= fn != NULL;
	if (!cache->shortage.callers)
		pthread_cond_broadcast(&cache->moved);
	glk_unlock(&cache->lock);
	glk_cancel_restore(cancel);
}

void glk_cache_shortage(struct glk_cache *cache, glake_shortage_fn fn, void *user)
{
	glk_lock(&cache->lock);
	cache->shortage.fn = fn;
	cache->shortage.user = user;
	/* it may go with the caller */
	while (!fn && cache->shortage.callers)
		glk_lock_wait(&cache->lock, &cache->moved);
	glk_unlock(&cache->lock);
}

/* Its function is called with no lock held and no plan under way: the climb ends, and the request begins
 * anew. */
static bool ask(struct glk_climb *c)
{
	c->request->asks =
		c->request->anew && glk_shortage_may_ask(gpu_of(c), c->request);
	return false;
}

/* Blocks that it called cold. They stay where all of them would not do. */
static bool has_cold(const struct glk_climb *c)
{
	return c->request->cold && !c->request->asks && c->waits < ROOMS &&
		glk_victim_cold(gpu_of(c)) &&
		glk_thread_current->error.error_class == GLAKE_ERROR_NOMEM_DEVICE;
}

bool glk_ladder_cold(struct glk_cache *cache, uint64_t bytes)
{
	return glk_victim_can(cache, bytes) && glk_victim_yield(cache, bytes);
}

/* Where they leave a hole it takes no more than the bytes that there are too few of; the first time. */
static bool send_cold(struct glk_climb *c)
{
	uint64_t slot = glk_slot_bytes(&c->arena->map), lack = c->request->lack;
	uint64_t size = c->request->rounded, room = glk_cache_room(gpu_of(c));

	if (!c->waits++ && size < lack + room)
		lack = size > room + slot ? size - room : slot;
	return glk_ladder_cold(gpu_of(c), lack);
}

/* ---- The ladder ---- */

/* In order. */
enum {
	GRAPHS,
	CLOCK,
	EVENTS,
	STORE,
	BINS,
	IDLE,
	LATE,
	LATE_ALL,
	BROKER,
	SIZES,
	HOLES,
	ALL,
	OTHERS,
	PROGRAM,
	COLD,
	RUNGS
};

/* What it is that is missing. */
enum { PAGES = 1, PLACE = 2 };

static const struct rung {
	bool (*act)(struct glk_climb *c); /* whether something is different now */
	int against;
	/* Of one that waits, while others go in and out: whether there is something that it would wait for. */
	bool (*waits)(const struct glk_climb *c);
	int next; /* where it goes on when something is; 0: with the next one */
} rungs[RUNGS] = {
	[GRAPHS] = {reap, PAGES, .waits = may_reap},
	[CLOCK] = {sync_all, PAGES, .waits = is_repeatable},
	[EVENTS] = {poll, PAGES},
	[STORE] = {yield_store, PAGES},
	[BINS] = {flush, PAGES | PLACE},
	[IDLE] = {release, PAGES},
	[LATE] = {await_late, PAGES, .waits = is_late, .next = IDLE},
	[LATE_ALL] = {await_all, PAGES, .waits = stays, .next = IDLE},
	[BROKER] = {share, PAGES, .waits = may_share},
	[SIZES] = {recut, PLACE},
	[HOLES] = {await_holes, PLACE, .waits = may_wait},
	[ALL] = {sync_all, PLACE, .waits = may_wait},
	[OTHERS] = {look, PLACE, .next = BINS},
	[PROGRAM] = {ask, PLACE},
	[COLD] = {send_cold, PLACE, .waits = has_cold, .next = BINS},
};

/* What has been given back is not for those who go in and out. */
static bool act(struct glk_climb *c, const struct rung *r)
{
	bool opens = r->waits && c->request->climbs, did;
	uint64_t kept = opens && c->node ? c->given : 0;

	if (!opens)
		return r->act(c);
	if (kept && (r->act == share || glk_node_claim(c->node, kept)))
		kept = 0;
	glk_plan_park(gpu_of(c), true);
	did = r->act(c);
	glk_plan_unpark(gpu_of(c), true);
	if (kept)
		glk_node_unclaim(c->node, kept);
	return did;
}

static bool is_enough(const struct glk_climb *c)
{
	return !c->node || (c->want && c->given >= c->want);
}

/* From the first rung to the last. */
static int climb(struct glk_climb *c, int err)
{
	int against = c->node ? PAGES : PLACE;

	for (int i = 0; i < RUNGS;) {
		const struct rung *r = &rungs[i++];

		if (!(r->against & against) || (err == -EBUSY && !r->waits) ||
			(r->waits && !r->waits(c)) || !act(c, r))
			continue;
		i = r->next ? r->next : i;
		if (!is_enough(c))
			continue;
		c->tries++;
		err = c->again(c);
		if (c->node || (err != -ENOMEM && err != -EBUSY))
			return err;
	}
	/* where the driver is the limit, what it has left may be enough with less */
	if (c->node && glk_node_has_room(c->node, c->lack)) {
		c->tries++;
		err = c->again(c);
	}
	return err;
}

/* Pages of the sizes that are missing may not be made of the first that go. */
#define ROUNDS 2

int glk_ladder_pages(struct glk_climb *c)
{
	struct glk_request *request = c->request;
	int err = -ENOMEM;

	if (!request->alone && !glk_plan_climb_now(gpu_of(c)))
		return -ENOMEM;
	request->climbs |= !request->alone;
	request->alone = true;
	for (unsigned i = 0; i < ROUNDS && i == c->tries && err == -ENOMEM; i++) {
		c->want = c->given = c->waits = 0;
		err = climb(c, err);
	}
	request->lack = c->lack;
	return err == -ENOMEM ? glk_refusal_memory(c->arena->home, c->node, c->lack)
			      : err;
}

static int try_again(struct glk_climb *c)
{
	return c->fn(c->arena, c->request, c->extent);
}

int glk_ladder_place(struct glk_arena *arena, struct glk_request *request, glk_try_fn fn,
	uint32_t *extent, int err)
{
	struct glk_climb c = {.arena = arena,
		.request = request,
		.again = try_again,
		.fn = fn,
		.extent = extent};

	if (err != -ENOMEM && err != -EBUSY)
		return err;
	c.frees = count_frees(arena->gpu);
	if (!request->alone) {
		glk_plan_climb(arena->gpu);
		request->alone = request->climbs = true;
		err = try_again(&c);
	}
	return err == -ENOMEM || err == -EBUSY ? climb(&c, err) : err;
}
