/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that are away are brought back before the program asks for them, as it hinted.
 *
 * When	at the hint, and at later calls about contents beyond the GPU, as far as the link and the
 *		memory allow then; with the key pool.ahead by its thread alone, also between calls
 * Link	copies of up to tier.prefetch_window bytes are queued at a time, so that a hint that
 *		comes later and is wanted sooner is not behind all others
 * Memory	that nobody uses, while tier.prefetch_spare bytes stay besides. A block that came and was
 *		not asked for yet is a cold one (advice.c): it goes away again before a request is
 *		refused
 * Judged	a copy is early or late by its deadline; without one, by when the program asks for the
 *		block. One that is begun after its deadline, whose block is freed, sent away or
 *		fetched before, is useless
 */
#include "cache/cache.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/slab.h"
#include "base/thread.h"
#include "cache/ahead.h"
#include "cache/fetch.h"

#include <errno.h>
#include <inttypes.h>

/* Of what a GPU may hold, this part is left alone where tier.prefetch_spare is 0. */
#define SPARE_PART 16

/* ---- Carried out ---- */

/* Whether there is memory that nobody uses, with what is to be left besides. */
static bool has_room(const struct glk_cache *cache, const struct glk_hint *h)
{
	uint64_t slot = UINT64_C(1) << cache->arena.map.shift;
	uint64_t room = glk_cache_room(cache);
	uint64_t spare = cache->conf->tier_prefetch_spare;

	if (!spare)
		spare = glk_cache_most(cache) / SPARE_PART;
	/* its ends may share their pages */
	return room >= spare &&
		room - spare >= ((h->bytes + slot - 1) & ~(slot - 1)) + slot;
}

/* The next one that can be carried out now; NULL: none. */
static struct glk_hint *choose(struct glk_cache *cache)
{
	struct glk_hints *hints = cache->hints;
	struct glk_hint *h;

	if (hints->busy || cache->plans.climbing || glk_load_relaxed(&cache->suspended))
		return NULL;
	glk_prefetch_land(cache);
	h = glk_hint_next(hints);
	if (!h || h->deadline < glk_clock_ns())
		return h;
	if (hints->flying && hints->flying + h->bytes > cache->conf->tier_prefetch_window)
		return NULL;
	if (hints->refused && hints->refused == glk_load_relaxed(&cache->node->held))
		return NULL;
	hints->refused = 0;
	return has_room(cache, h) ? h : NULL;
}

/* It is here, for whoever asks; until somebody does it may go again. */
static void came(struct glk_arena *arena, struct glk_extent *e, struct glk_hint *h)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_stream *back = glk_stream_enter(&cache->streams, cache->mover.back);
	struct glk_told told = {.bytes = h->bytes, .way = cache->mover.back};
	uint32_t said = glk_advice_of(arena, e);

	h->use = glk_stream_use(back, back->freed);
	glk_stream_enter(&cache->streams, h->on);
	glk_marks_add(&cache->streams, e, h->on);
	/* as the newest of the cold ones */
	if (said != GLAKE_ADVICE_PINNED && !glk_advice_make(arena)) {
		glk_advice_set(arena, e, said & ~(uint32_t)GLAKE_ADVICE_COLD);
		glk_advice_set(arena, e, said | GLAKE_ADVICE_COLD);
		h->cold = !(said & GLAKE_ADVICE_COLD);
	}
	cache->prefetch.came++;
	glk_hint_fly(cache->hints, h);
	told.after = h->use;
	if (h->ticket)
		glk_ticket_begin(h->ticket, &told);
}

/* With the block claimed. 0, -ENODATA: the hint is of no use any more; or an error. */
static int have(struct glk_arena *arena, struct glk_extent *e, struct glk_hint *h)
{
	const struct glk_part_way way = {0};
	struct glk_cache *cache = arena->gpu;
	int err;

	/* the blocks of a suspended tag come back with it, the small ones in their pages */
	if (h->dropped || !glk_extent_lacks(e) || arena->shut || e->nested)
		return -ENODATA;
	if (glk_load_relaxed(&cache->suspended))
		return -EAGAIN;
	err = glk_fetch(arena, e, &way);
	if (!err)
		came(arena, e, h);
	return err;
}

static int find_and_have(struct glk_cache *cache, struct glk_hint *h)
{
	struct glk_arena *arena = NULL;
	struct glk_extent *e = glk_away_find(cache, h->addr, &arena);
	struct glk_moving m;
	int err;

	if (h->dropped || !e || !glk_away_take(cache, e, &m))
		return -ENODATA;
	err = have(arena, e, h);
	glk_away_let_go(cache, e, &m);
	return err;
}

/* What becomes of one that could not be carried out. Whether it waits on. */
static bool settle(struct glk_cache *cache, struct glk_hint *h, int err)
{
	struct glk_hints *hints = cache->hints;

	if (!h->dropped && (err == -ENOMEM || err == -EBUSY || err == -EAGAIN)) {
		hints->refused =
			err == -ENOMEM ? glk_load_relaxed(&cache->node->held) : 0;
		glk_hint_queue(hints, h);
		return true;
	}
	if (!h->dropped)
		cache->prefetch.useless++;
	if (err == -ENODATA || h->dropped)
		glk_prefetch_tell(h, GLAKE_TICKET_CANCELLED, -ENOENT);
	else
		glk_prefetch_tell(h, GLAKE_TICKET_FAILED, err);
	glk_hint_end(hints, h);
	return false;
}

/* The next one is carried out, or dropped; false: there is none that can be. */
static bool carry(struct glk_cache *cache)
{
	struct glk_hints *hints = cache->hints;
	struct glk_hint *h = choose(cache);
	bool waits = false;
	int err;

	if (!h)
		return false;
	if (h->deadline < glk_clock_ns()) {
		cache->prefetch.useless++;
		glk_prefetch_end(hints, h, -ETIMEDOUT);
		return true;
	}
	glk_hint_unqueue(hints, h);
	h->state = GLK_HINT_BEGUN;
	hints->busy = true;
	err = find_and_have(cache, h);
	hints->busy = false;
	if (err)
		waits = settle(cache, h, err);
	return !waits;
}

bool glk_prefetch_carry(struct glk_cache *cache)
{
	struct glake_error why = glk_thread_current->error;
	bool carried = cache->hints && carry(cache);

	/* who called has something else to say */
	glk_error_back(&why);
	return carried;
}

void glk_prefetch_pump(struct glk_cache *cache)
{
	/* pairs with: the release in make_table */
	struct glk_hints *hints = glk_peek_acquire(&cache->hints);
	struct glk_ahead *a;

	if (!hints || !glk_peek_relaxed(&hints->queued))
		return;
	glk_lock(&cache->lock);
	a = cache->ahead;
	if (a && !a->broken) {
		if (a->asleep)
			glk_ahead_wake(cache);
		a->asleep = false;
	} else {
		glk_plan_enter(cache);
		while (glk_prefetch_carry(cache))
			glk_plan_step(cache);
		glk_plan_leave(cache);
	}
	glk_unlock(&cache->lock);
}

/* ---- Asked for ---- */

static int make_table(struct glk_cache *cache)
{
	struct glk_hints *hints;

	if (cache->hints)
		return 0;
	hints = glk_region_new(sizeof(*hints));
	if (!hints)
		return -ENOMEM;
	glk_poke_release(&cache->hints, hints); /* pairs with: glk_prefetch_pump */
	return 0;
}

void glk_prefetch_fini(struct glk_cache *cache)
{
	if (cache->hints)
		glk_region_free(cache->hints, sizeof(*cache->hints));
	cache->hints = NULL;
}

static int is_here(uint64_t addr)
{
	return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
		"the block at 0x%" PRIx64 " is here, or about to be", addr);
}

static int add(const struct glk_arena *arena, const struct glk_extent *e,
	const struct glk_hint *wish, struct glk_ticket *t)
{
	struct glk_cache *cache = arena->gpu;
	uint64_t addr = glk_load_relaxed(&e->addr);
	struct glk_hint *h;
	int err = make_table(cache);

	if (err)
		return err;
	if (!glk_extent_lacks(e))
		return is_here(addr);
	err = glk_arena_open(arena);
	if (!err && e->nested)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block at 0x%" PRIx64
			" is too small to move: it comes back with its tag",
			addr);
	if (err)
		return err;
	h = glk_hint_find(cache->hints, addr);
	if (h && h->state != GLK_HINT_QUEUED)
		return is_here(addr);
	if (h) {
		cache->prefetch.useless++;
		glk_prefetch_end(cache->hints, h, -EALREADY);
	}
	h = glk_hint_new(cache->hints, addr);
	if (!h)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"%d blocks are to be prefetched, the most there can be",
			GLK_HINTS);
	h->bytes = glk_extent_asked(e) - glk_part_here(arena, e) -
		glk_part_bare_bytes(cache, e);
	h->deadline = wish->deadline;
	h->priority = wish->priority;
	h->on = wish->on;
	if (t) {
		t->told.bytes = h->bytes;
		t->number = h->ticket = glk_ticket_new(t);
	}
	glk_hint_queue(cache->hints, h);
	return 0;
}

int glk_cache_prefetch(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	int64_t deadline, int priority, struct glk_ticket *t)
{
	struct glk_hint wish = {
		.deadline = deadline ? deadline : GLK_HINT_NEVER, .priority = priority};
	const struct glk_range *range;
	struct glk_extent *e;
	int err;

	err = glk_stream_get(&cache->streams, stream, NULL, &wish.on);
	if (err)
		return err;
	do {
		glk_lock(&cache->lock);
		range = glk_cache_range(cache, addr);
		e = range ? glk_lookup_hold(range, addr) : NULL;
		if (e) {
			err = add(glk_arena_of(range), e, &wish, t);
			glk_word_let_go(&e->word);
		}
		glk_unlock(&cache->lock);
	} while (!e && glk_away_settled(cache, addr, false));
	if (!e)
		return glk_block_refuse(cache, addr);
	if (!err)
		glk_prefetch_pump(cache);
	return err;
}

int glk_cache_prefetch_cancel(struct glk_cache *cache, const struct glk_ticket *t)
{
	struct glk_hint *h = NULL;

	glk_lock(&cache->lock);
	if (cache->hints)
		h = glk_hint_find(cache->hints, t->addr);
	if (h && (h->ticket != t->number || h->state != GLK_HINT_QUEUED))
		h = NULL;
	if (h) {
		cache->prefetch.useless++;
		glk_prefetch_end(cache->hints, h, -ECANCELED);
	}
	glk_unlock(&cache->lock);
	return h
		? 0
		: glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			  "the contents are on their way, or were: nothing can be cancelled");
}
