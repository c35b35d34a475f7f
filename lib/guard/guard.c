/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which blocks are guarded, from the request to the free: see guard.h. */
#include "guard/guarded.h"

#include "base/clock.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

uint32_t glk_guard_thread(void)
{
	return (uint32_t)syscall(SYS_gettid);
}

/* A block that large gets none: what it is rounded to must be a number. */
#define SIZE_MOST (UINT64_C(1) << 47)

static uint64_t behind(struct glk_cache *cache, uint64_t size)
{
	const struct glk_guard *g = glk_guard_of(cache);

	if (glk_load_relaxed(&g->mode) == GLK_GUARD_OFF || size > SIZE_MOST ||
		cache->conf->pool_managed != GLK_POOL_MANAGED_NO)
		return 0;
	return 1;
}

/* Of one that is held. Whether its canary is queued. */
static bool arm(struct glk_guard *g, struct glk_extent *e, struct CUstream_st *stream)
{
	struct glk_guard_record *record = glk_guard_record(g, e);
	uint64_t asked = glk_extent_asked(e), slack = e->size - asked;
	uint64_t addr = glk_load_relaxed(&e->addr);
	int err;

	if (!slack || glk_extent_lacks(e))
		return false;
	if (slack > GLK_CANARY_MOST)
		slack = GLK_CANARY_MOST;
	glk_lock(&g->lock);
	err = glk_guard_ready(g);
	if (!err)
		err = glk_guard_write(g, addr + asked, slack, stream);
	glk_unlock(&g->lock);
	if (err)
		return false;
	record->thread = glk_guard_thread();
	record->addr = addr;
	record->asked = asked;
	record->stream = stream;
	record->born = glk_clock_ns();
	/* pairs with: the acquire in glk_guard_check */
	record->serial = glk_add_acq_rel(&g->serial, 1) + 1;
	/* pairs with: the acquire of who looks at all */
	glk_store_release(&record->canary, (uint32_t)slack);
	return true;
}

static void born(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_guard *g = glk_guard_of(cache);
	struct glake_error why = glk_thread_current->error;
	struct glk_extent *e = NULL;
	bool armed = false;

	/* one that lies on the host is of another arena, and nobody may move it meanwhile */
	if (range && glk_arena_of(range) == &cache->arena)
		e = glk_lookup_hold(range, addr);
	if (e) {
		armed = arm(g, e, stream);
		glk_word_let_go(&e->word);
	}
	if (!armed) {
		glk_add_relaxed(&g->unguarded, 1);
		glk_error_back(&why);
	}
}

/* Whether a kernel may be queued on a stream: while it captures a graph it would be a part of that. */
static bool may_queue(struct glk_cache *cache, struct CUstream_st *stream)
{
	struct glk_stream_facts facts;

	if (cache->drv->ops->stream_facts(cache->drv, cache->device, stream, &facts))
		return false;
	return !facts.capture;
}

static bool freed(struct glk_cache *cache, struct glk_extent *e, uint32_t on,
	struct CUstream_st *stream)
{
	struct glk_guard *g = glk_guard_of(cache);
	struct glk_guard_record *record = glk_guard_record(g, e);
	struct glake_error why = glk_thread_current->error;
	struct glk_guard_gone *gone;
	bool looks;

	if (!glk_load_relaxed(&record->canary))
		return false;
	looks = on && !glk_extent_lacks(e) && may_queue(cache, stream);
	glk_lock(&g->lock);
	glk_guard_poll(g);
	if (g->freed - g->seen == GLK_GUARD_GONE) {
		/* the GPU is behind by so many frees: this one is not looked at, nor remembered */
		g->unchecked++;
	} else {
		gone = &g->gone[g->freed % GLK_GUARD_GONE];
		*gone = (struct glk_guard_gone){.was = *record,
			.stream = stream,
			.freed = glk_clock_ns(),
			.thread = glk_guard_thread()};
		if (looks)
			glk_guard_look(g, gone);
		else
			g->unchecked++;
		g->freed++;
	}
	glk_store_relaxed(&record->canary, 0);
	glk_guard_poll(g);
	glk_unlock(&g->lock);
	glk_error_back(&why);
	return false;
}

static void left(struct glk_cache *cache, const struct glk_extent *e)
{
	struct glk_guard *g = glk_guard_of(cache);
	struct glk_guard_record *record = glk_guard_record(g, e);

	if (glk_load_relaxed(&record->canary)) {
		glk_store_relaxed(&record->canary, 0);
		glk_add_relaxed(&g->unguarded, 1);
	}
}

static bool yield(struct glk_cache *cache)
{
	(void)cache;
	return false;
}

static void without(struct glk_cache *cache)
{
	glk_add_relaxed(&glk_guard_of(cache)->unguarded, 1);
}

static void refused(struct glk_cache *cache, uint64_t addr)
{
	struct glk_guard *g = glk_guard_of(cache);
	uint64_t last;

	glk_lock(&g->lock);
	/* the newest that began there */
	last = g->freed > GLK_GUARD_GONE ? g->freed - GLK_GUARD_GONE : 0;
	for (uint64_t i = g->freed; i > last; i--) {
		const struct glk_guard_gone *gone = &g->gone[(i - 1) % GLK_GUARD_GONE];

		if (gone->was.addr != addr)
			continue;
		glk_guard_twice(g, gone);
		break;
	}
	glk_unlock(&g->lock);
}

static const struct glk_guard_ops ops = {
	.behind = behind,
	.born = born,
	.freed = freed,
	.left = left,
	.yield = yield,
	.without = without,
	.refused = refused,
};

/* ---- Life ---- */

static size_t records_bytes(const struct glk_cache *cache)
{
	return ((size_t)cache->conf->map_extents + 1) * sizeof(struct glk_guard_record);
}

/* On the software device it is the same in each run, so that nothing hangs on it. */
static uint32_t new_secret(const struct glk_cache *cache)
{
	uint32_t secret = UINT32_C(0x6b43a9b5);

	if (strcmp(glk_drv_name(cache->drv), "soft") &&
		getrandom(&secret, sizeof(secret), 0) != sizeof(secret))
		secret ^= (uint32_t)glk_clock_ns();
	return secret;
}

static int make(struct glk_cache *cache)
{
	struct glk_guard *g = glk_region_new(sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->records = glk_region_new(records_bytes(cache));
	if (!g->records) {
		glk_region_free(g, sizeof(*g));
		return -ENOMEM;
	}
	g->cache = cache;
	g->secret = new_secret(cache);
	glk_lock_init(&g->lock, GLK_RANK_GUARD);
	cache->guarding = g;
	/* pairs with: glk_guard_ops */
	glk_store_release(&cache->guard, &ops);
	return 0;
}

int glk_guard_set(struct glk_cache *cache, int mode)
{
	int err = 0;

	if (mode == GLK_GUARD_OFF && !glk_guard_ops(cache))
		return 0;
	if (!glk_guard_ops(cache))
		err = make(cache);
	if (err)
		return err;
	glk_store_relaxed(&glk_guard_of(cache)->mode, mode);
	glk_cache_guard(cache, mode != GLK_GUARD_OFF);
	return 0;
}

void glk_guard_fini(struct glk_cache *cache)
{
	struct glk_guard *g = glk_guard_of(cache);

	if (!g)
		return;
	glk_lock(&g->lock);
	if (g->work.ready)
		glk_guard_poll(g);
	glk_guard_work_fini(g);
	glk_unlock(&g->lock);
	glk_lock_fini(&g->lock);
	glk_store_relaxed(&cache->guard, NULL);
	cache->guarding = NULL;
	glk_region_free(g->records, records_bytes(cache));
	glk_region_free(g, sizeof(*g));
}

int glk_guard_finding(struct glk_cache *cache, uint64_t number, struct glake_finding *ret)
{
	struct glk_guard *g = glk_guard_of(cache);
	int err = -ENOENT;

	if (!glk_guard_ops(cache))
		return err;
	glk_lock(&g->lock);
	if (number < g->found && g->found - number <= GLK_GUARD_FINDINGS) {
		*ret = g->findings[number % GLK_GUARD_FINDINGS];
		err = 0;
	}
	glk_unlock(&g->lock);
	return err;
}
