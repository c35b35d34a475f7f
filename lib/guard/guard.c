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

static bool is_for(const struct glk_cache *cache, uint64_t size, uint64_t most)
{
	return size <= most && cache->conf->pool_managed == GLK_POOL_MANAGED_NO;
}

static uint64_t behind(struct glk_cache *cache, uint64_t size)
{
	int mode = glk_load_relaxed(&glk_guard_of(cache)->mode);

	return mode >= GLK_GUARD_CANARY && is_for(cache, size, SIZE_MOST) ? 1 : 0;
}

/* ---- Samples ---- */

static uint64_t rate(const struct glk_cache *cache)
{
	return glk_load_relaxed(&glk_guard_of(cache)->rate);
}

/* Whether another block is to be sampled. */
static bool is_due(struct glk_cache *cache, struct glk_seats *ret_sum)
{
	struct glk_guard *g = glk_guard_of(cache);

	if (glk_load_relaxed(&g->samples) >= GLK_GUARD_SAMPLES)
		return false;
	glk_seats_sum(cache, ret_sum);
	return rate(cache) == 1 ||
		(ret_sum->allocs - glk_load_relaxed(&g->blocks_then) >= rate(cache) &&
			ret_sum->total_given - glk_load_relaxed(&g->bytes_then) >=
				rate(cache) * GLK_GUARD_RATE_BYTES);
}

static void tick(struct glk_cache *cache)
{
	struct glk_guard *g = glk_guard_of(cache);
	struct glk_seats sum;

	if (glk_load_relaxed(&g->mode) == GLK_GUARD_SAMPLE && rate(cache) > 1)
		glk_cache_guard(cache, is_due(cache, &sum));
}

static bool samples(struct glk_cache *cache, uint64_t size)
{
	struct glk_guard *g = glk_guard_of(cache);
	struct glk_seats sum;

	if (glk_load_relaxed(&g->mode) != GLK_GUARD_SAMPLE ||
		!is_for(cache, size, GLK_GUARD_SAMPLE_MOST) || !is_due(cache, &sum))
		return false;
	glk_store_relaxed(&g->blocks_then, sum.allocs);
	glk_store_relaxed(&g->bytes_then, sum.total_given);
	if (rate(cache) > 1)
		glk_cache_guard(cache, false);
	return true;
}

/* ---- Birth ---- */

/* Of one that is held. Whether it is guarded. */
static bool arm(struct glk_guard *g, struct glk_arena *arena, struct glk_extent *e,
	struct CUstream_st *stream)
{
	struct glk_guard_record *record = glk_guard_record(g, arena, e);
	uint64_t asked = glk_extent_asked(e), slack = e->size - asked;
	uint64_t addr = glk_load_relaxed(&e->addr);
	bool sampled = arena != &g->cache->arena;
	int err = 0;

	if (!record || (!slack && !sampled) || glk_extent_lacks(e))
		return false;
	if (slack > GLK_CANARY_MOST)
		slack = GLK_CANARY_MOST;
	glk_lock(&g->lock);
	if (slack)
		err = glk_guard_ready(g);
	if (!err && glk_load_relaxed(&g->mode) >= GLK_GUARD_POISON)
		err = g->cache->drv->ops->fill(
			g->cache->drv, addr, UINT32_MAX, (size_t)(asked + 3) / 4, stream);
	if (slack && !err)
		err = glk_guard_write(g, addr + asked, slack, stream);
	glk_unlock(&g->lock);
	/* without kernels a sample is one all the same */
	if (err && !sampled)
		return false;
	record->canary = err ? 0 : (uint32_t)slack;
	record->thread = glk_guard_thread();
	record->addr = addr;
	record->asked = asked;
	record->stream = stream;
	record->born = glk_clock_ns();
	/* pairs with: the acquire in glk_guard_check */
	record->serial = glk_add_acq_rel(&g->serial, 1) + 1;
	/* pairs with: the acquire of who looks at all */
	glk_store_release(&record->guarded, true);
	if (sampled)
		glk_add_relaxed(&g->samples, 1);
	return true;
}

static void born(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_arena *arena = range ? glk_arena_of(range) : NULL;
	struct glk_guard *g = glk_guard_of(cache);
	struct glake_error why = glk_thread_current->error;
	struct glk_extent *e = NULL;
	bool armed = false;

	/* one that lies on the host is of another arena, and nobody may move it meanwhile */
	if (arena && (arena == &cache->arena || arena == glk_cache_sampled(cache)))
		e = glk_lookup_hold(range, addr);
	if (e) {
		armed = arm(g, arena, e, stream);
		glk_word_let_go(&e->word);
	}
	if (!armed) {
		glk_add_relaxed(&g->unguarded, 1);
		glk_error_back(&why);
	}
}

/* ---- Death ---- */

/* Whether a kernel may be queued on a stream: while it captures a graph it would be a part of that. */
static bool may_queue(struct glk_cache *cache, struct CUstream_st *stream)
{
	struct glk_stream_facts facts;

	if (cache->drv->ops->stream_facts(cache->drv, cache->device, stream, &facts))
		return false;
	return !facts.capture;
}

/* The oldest one that is kept is looked at, behind all that uses it, and goes back. Under the lock of guard. */
static void let_go(struct glk_guard *g)
{
	struct glk_guard_kept *k = &g->kept[g->kept_first % GLK_GUARD_KEPT];
	struct glk_cache *cache = g->cache;
	int err = glk_guard_stream(g);

	if (!err && !g->behind)
		err = glk_stream_get(&cache->streams, g->work.stream, NULL, &g->behind);
	if (!err)
		err = glk_guarded_order(cache, k->e, k->on, g->behind);
	if (!glk_guard_look(g, &k->gone, g->work.stream, !err))
		g->unchecked++;
	glk_guarded_release(cache, k->e, err ? k->on : g->behind);
	g->kept_bytes -= k->gone.was.asked + k->gone.was.canary;
	g->kept_first++;
}

/* A block that goes is filled and kept, where a kernel may be queued behind all that uses it. */
static bool keep(struct glk_guard *g, struct glk_extent *e, uint32_t on,
	const struct glk_guard_gone *gone)
{
	uint64_t bytes = gone->was.asked + gone->was.canary;
	uint64_t most = g->cache->memory / GLK_GUARD_KEPT_PART;

	/* others may have the memory of one that is out until they let it go */
	if (bytes > most || glk_load_relaxed(&e->bin) == GLK_BIN_PINNED ||
		glk_guarded_order(g->cache, e, on, on) ||
		glk_guard_write(g, gone->was.addr, bytes, gone->stream))
		return false;
	while (g->kept_end - g->kept_first == GLK_GUARD_KEPT ||
		g->kept_bytes + bytes > most)
		let_go(g);
	g->kept[g->kept_end % GLK_GUARD_KEPT] =
		(struct glk_guard_kept){.e = e, .on = on, .gone = *gone};
	g->kept[g->kept_end++ % GLK_GUARD_KEPT].gone.kept = true;
	g->kept_bytes += bytes;
	return true;
}

static bool yield(struct glk_cache *cache)
{
	struct glk_guard *g = glk_guard_of(cache);
	struct glake_error why = glk_thread_current->error;
	bool any;

	glk_lock(&g->lock);
	any = g->kept_first < g->kept_end;
	while (g->kept_first < g->kept_end)
		let_go(g);
	if (any && g->work.stream)
		cache->drv->ops->stream_sync(cache->drv, cache->device, g->work.stream);
	if (any)
		glk_guard_poll(g);
	glk_unlock(&g->lock);
	glk_error_back(&why);
	return any;
}

static bool freed(struct glk_cache *cache, struct glk_extent *e, uint32_t on,
	struct CUstream_st *stream)
{
	struct glk_guard *g = glk_guard_of(cache);
	struct glk_arena *arena =
		glk_arena_of(glk_cache_range(cache, glk_load_relaxed(&e->addr)));
	struct glk_guard_record *record = glk_guard_record(g, arena, e);
	struct glake_error why = glk_thread_current->error;
	struct glk_guard_gone gone;
	bool may, looks, keeps = false;

	if (!record || !glk_load_relaxed(&record->guarded))
		return false;
	may = on && !glk_extent_lacks(e) && may_queue(cache, stream);
	gone = (struct glk_guard_gone){.was = *record,
		.stream = stream,
		.freed = glk_clock_ns(),
		.thread = glk_guard_thread()};
	glk_store_relaxed(&record->guarded, false);
	glk_lock(&g->lock);
	looks = glk_guard_look(g, &gone, stream, may);
	g->looked += looks;
	g->unchecked += !looks && gone.was.canary;
	if (may && arena == &cache->arena && gone.was.canary &&
		glk_load_relaxed(&g->mode) >= GLK_GUARD_POISON)
		keeps = keep(g, e, on, &gone);
	if (arena != &cache->arena)
		glk_sub_relaxed(&g->samples, 1);
	if (g->work.ready)
		glk_guard_poll(g);
	glk_unlock(&g->lock);
	glk_error_back(&why);
	return keeps;
}

static void left(struct glk_arena *arena, const struct glk_extent *e)
{
	struct glk_guard *g = glk_guard_of(arena->gpu);
	struct glk_guard_record *record = glk_guard_record(g, arena, e);

	if (record && glk_load_relaxed(&record->guarded) && record->canary) {
		record->canary = 0;
		glk_add_relaxed(&g->unguarded, 1);
	}
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
	.samples = samples,
	.tick = tick,
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

int glk_guard_set(struct glk_cache *cache, int mode, uint64_t every)
{
	int err = 0;

	if (mode == GLK_GUARD_OFF && !glk_guard_ops(cache))
		return 0;
	if (!glk_guard_ops(cache))
		err = make(cache);
	if (err)
		return err;
	glk_store_relaxed(&glk_guard_of(cache)->rate, every);
	glk_store_relaxed(&glk_guard_of(cache)->mode, mode);
	glk_cache_guard(cache,
		mode >= GLK_GUARD_CANARY || (mode == GLK_GUARD_SAMPLE && every == 1));
	return 0;
}

void glk_guard_fini(struct glk_cache *cache)
{
	struct glk_guard *g = glk_guard_of(cache);

	if (!g)
		return;
	yield(cache);
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
