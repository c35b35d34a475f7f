/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What an address is: see glake_describe(). Whether anything is guarded or not. */
#include "guard/guarded.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>

/* How far away a neighbour may lie. */
#define NEAR (UINT64_C(2) << 20)

/* The live blocks around a range of addresses. */
struct around {
	uint64_t begin, end;
	struct glake_described *d;
};

static int see(const struct glake_run *run, void *arg)
{
	const struct around *a = arg;

	if (run->address > a->end + NEAR)
		return 1;
	if (run->state > GLAKE_RUN_AWAY)
		return 0;
	if (run->address < a->begin) {
		a->d->before = (void *)(uintptr_t)run->address;
		/* one that holds it is none */
		if (run->address + run->size > a->begin)
			a->d->before = NULL;
		return 0;
	}
	if (run->address < a->end)
		return 0;
	a->d->behind = (void *)(uintptr_t)run->address;
	a->d->behind_size = run->asked;
	return 1;
}

static void look_around(
	struct glk_cache *cache, uint64_t begin, uint64_t end, struct glake_described *d)
{
	struct around a = {.begin = begin, .end = end, .d = d};
	struct glake_block block = {.sz = sizeof(block)};

	glk_cache_walk(cache, begin > NEAR ? begin - NEAR : 0, end + NEAR, see, &a);
	/* a part of it may have been seen alone */
	if (d->before && !glk_cache_query(cache, (uintptr_t)d->before, &block)) {
		d->before = block.base;
		d->before_size = block.size;
	} else {
		d->before = NULL;
		d->before_size = 0;
	}
}

/* Of a live block, what guard knows beside. */
static void tell_live(struct glk_cache *cache, struct glake_described *d)
{
	uint64_t addr = (uintptr_t)d->base;
	const struct glk_range *range = glk_cache_range(cache, addr);
	const struct glk_guard_record *record;
	struct glk_extent *e;

	if (!glk_guard_ops(cache) || !range)
		return;
	e = glk_lookup_hold(range, addr);
	if (!e)
		return;
	record = glk_guard_record(glk_guard_of(cache), glk_arena_of(range), e);
	if (record && glk_load_relaxed(&record->guarded) && record->addr == addr) {
		d->thread = record->thread;
		d->age_ns = glk_clock_ns() - record->born;
	}
	glk_word_let_go(&e->word);
}

/* The newest one that held an address. */
static bool tell_freed(struct glk_cache *cache, uint64_t addr, struct glake_described *d)
{
	struct glk_guard *g = glk_guard_of(cache);
	bool found = false;
	uint64_t last;

	if (!glk_guard_ops(cache))
		return false;
	glk_lock(&g->lock);
	last = g->freed > GLK_GUARD_GONE ? g->freed - GLK_GUARD_GONE : 0;
	for (uint64_t i = g->freed; i > last && !found; i--) {
		const struct glk_guard_gone *gone = &g->gone[(i - 1) % GLK_GUARD_GONE];
		uint64_t given = gone->was.asked + gone->was.canary;

		if (addr - gone->was.addr >= given)
			continue;
		found = true;
		d->base = (void *)(uintptr_t)gone->was.addr;
		d->size = gone->was.asked;
		d->given = given;
		d->stream = gone->was.stream;
		d->thread = gone->was.thread;
		d->freed_by = gone->thread;
		d->age_ns = gone->freed - gone->was.born;
		d->freed_ns = glk_clock_ns() - gone->freed;
	}
	glk_unlock(&g->lock);
	return found;
}

/* Whether it lies around blocks that are sampled. */
static bool is_guard(struct glk_cache *cache, uint64_t addr)
{
	const struct glk_range *range = glk_cache_range(cache, addr);

	return range && glk_arena_of(range) == glk_cache_sampled(cache);
}

void glk_guard_describe(struct glk_cache *cache, uint64_t addr, struct glake_described *d)
{
	struct glake_error why = glk_thread_current->error;
	struct glake_block block = {.sz = sizeof(block)};

	d->device = cache->device;
	if (!glk_cache_query(cache, addr, &block)) {
		d->base = block.base;
		d->size = block.size;
		d->given = block.given;
		d->stream = block.stream;
		d->tag = block.tag;
		tell_live(cache, d);
		d->what = addr - (uintptr_t)block.base < block.size ? GLAKE_WHAT_LIVE
								    : GLAKE_WHAT_BEHIND;
	} else {
		d->what = tell_freed(cache, addr, d) ? GLAKE_WHAT_FREED
			: is_guard(cache, addr)	     ? GLAKE_WHAT_GUARD
						     : GLAKE_WHAT_FREE;
	}
	if (d->base) {
		d->offset = (int64_t)(addr - (uintptr_t)d->base);
		look_around(cache, (uintptr_t)d->base, (uintptr_t)d->base + d->given, d);
	} else {
		look_around(cache, addr, addr + 1, d);
	}
	glk_error_back(&why);
}
