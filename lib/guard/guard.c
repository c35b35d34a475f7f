/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which blocks are guarded, from the request to the free: see guard.h. */
#include "guard/guarded.h"

#include "base/clock.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "guard/nvtx.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

uint32_t glk_guard_thread(void)
{
	struct glk_thread *thread = glk_thread_self();

	if (!thread)
		return (uint32_t)gettid();
	if (!thread->number)
		thread->number = (uint32_t)gettid();
	return thread->number;
}

/* A block that large gets none: what it is rounded to must be a number. */
#define SIZE_MOST (UINT64_C(1) << 47)

static bool is_for(const struct glk_cache *cache, uint64_t size, uint64_t most)
{
	return size <= most && cache->conf->pool_managed == GLK_POOL_MANAGED_NO;
}

/* The mode of blocks with a tag, or with none. */
static int mode_of(struct glk_cache *cache, uint32_t tag)
{
	const struct glk_tag_guard *t = tag ? glk_cache_tag_guard(cache, tag) : NULL;

	if (!tag)
		return glk_load_relaxed(&glk_guard_of(cache)->mode);
	return t ? glk_load_relaxed(&t->mode) : GLK_GUARD_OFF;
}

static uint64_t behind(struct glk_cache *cache, uint32_t tag, uint64_t size, bool sampled)
{
	int mode = mode_of(cache, tag);

	if (sampled)
		return cache->conf->guard_tail;
	return mode >= GLK_GUARD_CANARY && is_for(cache, size, SIZE_MOST) ? 1 : 0;
}

/* ---- Samples ---- */

static uint64_t rate(const struct glk_cache *cache)
{
	return glk_load_relaxed(&glk_guard_of(cache)->rate);
}

/* Whether no request may be served by a bin. */
static bool sees_every(struct glk_guard *g)
{
	int mode = glk_load_relaxed(&g->mode);

	return g->tool || mode >= GLK_GUARD_CANARY ||
		(mode == GLK_GUARD_SAMPLE && glk_load_relaxed(&g->rate) == 1) ||
		glk_load_relaxed(&g->level) >= 2 || glk_load_relaxed(&g->left);
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

	if (!g->shared && glk_load_relaxed(&g->mode) == GLK_GUARD_SAMPLE &&
		rate(cache) > 1)
		glk_cache_guard(cache, is_due(cache, &sum) || sees_every(g));
}

static enum glk_sampling samples(struct glk_cache *cache, uint64_t size)
{
	struct glk_guard *g = glk_guard_of(cache);
	int mode = glk_load_relaxed(&g->mode);
	struct glk_seats sum;

	if (mode == GLK_GUARD_FULL && !g->shared && is_for(cache, size, SIZE_MOST))
		return GLK_SAMPLING_ENDS;
	if (mode != GLK_GUARD_SAMPLE || g->shared ||
		!is_for(cache, size, GLK_GUARD_SAMPLE_MOST) || !is_due(cache, &sum))
		return GLK_SAMPLING_NOT;
	glk_store_relaxed(&g->blocks_then, sum.allocs);
	glk_store_relaxed(&g->bytes_then, sum.total_given);
	if (rate(cache) > 1)
		glk_cache_guard(cache, sees_every(g));
	return GLK_SAMPLING_BY_TURNS;
}

/* ---- What is cleared ---- */

static int level_of(struct glk_cache *cache, const struct glk_tag_guard *tag)
{
	int own = tag ? glk_load_relaxed(&tag->level) : 0;

	return own ? own - 1 : glk_load_relaxed(&glk_guard_of(cache)->level);
}

static bool clears(struct glk_cache *cache, uint32_t tag)
{
	const struct glk_tag_guard *t = tag ? glk_cache_tag_guard(cache, tag) : NULL;
	int level = level_of(cache, t);

	/* what was in the pages of one that left was not cleared */
	return level == 3 || (level && t) || glk_load_relaxed(&glk_guard_of(cache)->left);
}

/* Whoever has memory next has it cleared. */
static void clear_all_next(struct glk_guard *g)
{
	if (glk_load_relaxed(&g->left))
		return;
	glk_store_relaxed(&g->left, true);
	glk_cache_guard(g->cache, true);
}

bool glk_guard_shares(struct glk_cache *cache, bool owners)
{
	int level = glk_guard_ops(cache) ? level_of(cache, NULL) : 0;

	if (level < 2 && !(level && owners))
		return false;
	clear_all_next(glk_guard_of(cache));
	return true;
}

static bool wipes(struct glk_cache *cache)
{
	return level_of(cache, NULL) >= 2 || glk_guard_of(cache)->tool;
}

/* On a stream on which it may be queued. */
static void clear(struct glk_cache *cache, uint64_t addr, uint64_t bytes,
	struct CUstream_st *stream)
{
	struct glk_guard *g = glk_guard_of(cache);

	if (cache->drv->ops->fill(cache->drv, addr, 0, bytes / sizeof(uint32_t), stream))
		glk_add_relaxed(&g->uncleared, 1);
	else
		glk_add_relaxed(&g->cleared, bytes);
}

void glk_guard_clear(struct glk_cache *cache, uint64_t addr, uint64_t bytes,
	struct CUstream_st *stream)
{
	struct glake_error why = glk_thread_current->error;

	if (glk_guard_may_queue(cache, stream))
		clear(cache, addr, bytes, stream);
	else
		glk_add_relaxed(&glk_guard_of(cache)->uncleared, 1);
	glk_error_back(&why);
}

/* One that is freed, of a level that says so: on the stream of the free, or behind that on the stream of guard. */
static void wipe(struct glk_guard *g, struct glk_extent *e, uint32_t on,
	struct CUstream_st *stream, uint64_t bytes, uint32_t *behind)
{
	struct glk_cache *cache = g->cache;
	uint64_t addr = glk_load_relaxed(&e->addr);
	uint64_t serial = glk_guard_serial(g, *behind);
	struct glake_error why = glk_thread_current->error;
	int err;

	if (glk_extent_lacks(e))
		return;
	/* others may use it until they are done, and that is told nobody here */
	if (glk_load_relaxed(&e->bin) == GLK_BIN_PINNED) {
		clear_all_next(g);
		return;
	}
	if (on && glk_guard_may_queue(cache, stream) &&
		!glk_guarded_order(cache, e, on, serial, on)) {
		clear(cache, addr, bytes, stream);
		goto out;
	}
	err = glk_guard_stream(g);
	if (!err && !g->behind)
		err = glk_stream_get(&cache->streams, g->work.stream, NULL, &g->behind);
	if (!err)
		err = glk_guarded_order(cache, e, *behind, serial, g->behind);
	if (err) {
		glk_add_relaxed(&g->uncleared, 1);
		goto out;
	}
	clear(cache, addr, bytes, g->work.stream);
	*behind = g->behind;
out:
	glk_error_back(&why);
}

/* ---- Birth ---- */

/* The stretch behind a block that is its canary. */
static uint32_t canary_of(uint64_t asked, uint64_t slack)
{
	uint64_t most = GLK_CANARY_MOST - asked % 16;

	return (uint32_t)(slack < most ? slack : most);
}

/* A block of a record is live, for who asked at `frames`. */
static void has(const struct glk_guard *g, struct glk_guard_record *record,
	const uint64_t *frames, uint32_t owners)
{
	if (g->cache->conf->guard_stacks)
		memcpy(record->made_at, frames, sizeof(record->made_at));
	record->thread = glk_guard_thread();
	record->born = glk_clock_ns();
	record->owners = owners;
	/* pairs with: the acquire of who looks at all */
	glk_store_release(&record->guarded, true);
}

/* Of one that is held. Whether it is guarded. */
static bool arm(struct glk_guard *g, struct glk_arena *arena, struct glk_extent *e,
	struct CUstream_st *stream)
{
	struct glk_guard_record *record = glk_guard_record(g, arena, e);
	uint64_t asked = glk_extent_asked(e), behind = e->size - asked;
	uint64_t addr = glk_load_relaxed(&e->addr);
	bool sampled = arena == glk_cache_sampled(g->cache);
	bool tagged = !sampled && arena != &g->cache->arena;
	int mode = tagged ? glk_load_relaxed(&glk_arena_tag_guard(arena)->mode)
			  : glk_load_relaxed(&g->mode);
	uint64_t body = 0, frames[GLAKE_FRAMES];
	uint32_t canary, front = 0;
	int err = 0;

	if (sampled) {
		/* the rest of its slots, on the side that ends against nothing none or little */
		uint64_t in_slot = glk_slot_bytes(&arena->map) - 1;

		behind += -(addr + e->size) & in_slot;
		front = addr & in_slot ? GLK_CANARY_MOST : 0;
	}
	canary = canary_of(asked, behind);
	if (!record || (!canary && !sampled) || glk_extent_lacks(e))
		return false;
	glk_guard_stack(g, frames);
	glk_lock(&g->lock);
	if (mode >= GLK_GUARD_POISON)
		body = asked;
	if (canary || front || body)
		err = glk_guard_ready(g);
	if (!err && !glk_stream_key(stream) && !glk_guard_may_queue(g->cache, stream))
		err = -EBUSY;
	if (!err && front && !body)
		err = glk_guard_write(g, addr, 0, 0, front, stream);
	if (!err && (canary || body))
		err = glk_guard_write(
			g, addr + asked - body, body, canary, body ? front : 0, stream);
	/* without kernels a sample is one all the same */
	if (!err || sampled) {
		glk_store_relaxed(&record->canary, err ? 0 : canary);
		record->front = err ? 0 : front;
		glk_store_relaxed(&record->said, false);
		record->addr = addr;
		record->asked = asked;
		record->stream = stream;
		/* pairs with: the acquire in glk_guard_check */
		record->serial = glk_add_acq_rel(&g->serial, 1) + 1;
		has(g, record, frames, 1);
	}
	glk_unlock(&g->lock);
	if (sampled)
		glk_add_relaxed(&g->samples, 1);
	return !err || sampled;
}

static bool again(struct glk_cache *cache, uint64_t size, uint32_t on, uint64_t *ret_addr)
{
	struct glk_guard *g = glk_guard_of(cache);
	uint64_t frames[GLAKE_FRAMES];
	struct glk_guard_record *record;
	struct glk_extent *e;

	if (glk_load_relaxed(&g->mode) < GLK_GUARD_CANARY)
		return false;
	glk_guard_stack(g, frames);
	glk_lock(&g->lock);
	e = glk_guard_take(g, size, on);
	if (e) {
		record = glk_guard_record(g, &cache->arena, e);
		*ret_addr = record->addr;
		has(g, record, frames, record->owners + 1);
		/* it is freed by others from here on */
		if (!glk_guarded_again(cache, e)) {
			glk_store_relaxed(&record->guarded, false);
			glk_guarded_release(cache, e, 0, 0);
			e = NULL;
		}
	}
	glk_unlock(&g->lock);
	return e;
}

static void born(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	bool guarded, bool to_clear)
{
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_arena *arena = range ? glk_arena_of(range) : NULL;
	struct glk_guard *g = glk_guard_of(cache);
	struct glake_error why = glk_thread_current->error;
	struct glk_extent *e = NULL;
	bool armed = false;

	/* one that lies on the host is of another arena, and nobody may move it meanwhile */
	if (arena &&
		(arena->binned || arena == glk_cache_sampled(cache) ||
			glk_arena_tag_guard(arena) || glk_guard_tells(g, arena)))
		e = glk_lookup_hold(range, addr);
	if (e && glk_guard_tells(g, arena))
		glk_guard_told(g, range, addr, glk_extent_asked(e));
	if (e && to_clear && !glk_extent_lacks(e) && glk_stream_key(stream))
		clear(cache, addr, e->size, stream);
	else if (e && to_clear && !glk_extent_lacks(e))
		glk_guard_clear(cache, addr, e->size, stream);
	if (e && guarded)
		armed = arm(g, arena, e, stream);
	if (e)
		glk_word_let_go(&e->word);
	if (guarded && !armed) {
		glk_add_relaxed(&g->unguarded, 1);
		glk_error_back(&why);
	}
}

/* ---- Death ---- */

bool glk_guard_may_queue(struct glk_cache *cache, struct CUstream_st *stream)
{
	struct glk_stream_facts facts;
	bool may = true;

	/* work on the legacy stream ends the captures of all blocking ones */
	if (!glk_stream_key(stream)) {
		glk_lock(&cache->lock);
		may = !glk_clock_captures(&cache->streams);
		glk_unlock(&cache->lock);
	}
	if (!may ||
		cache->drv->ops->stream_facts(cache->drv, cache->device, stream, &facts))
		return false;
	return !facts.capture;
}

static bool yield(struct glk_cache *cache)
{
	struct glk_guard *g = glk_guard_of(cache);
	struct glake_error why = glk_thread_current->error;
	bool any;
	uint64_t found;

	found = glk_guard_enter(g);
	any = glk_guard_let_all_go(g);
	glk_guard_leave(g, found);
	glk_error_back(&why);
	return any;
}

/* The last one that was freed is not kept: what lies behind it is looked at now, behind all that used it. */
static bool try_to_look(struct glk_guard *g, struct glk_extent *e)
{
	const struct glk_guard_gone *gone = glk_guard_gone(g, g->freed - 1);
	uint64_t from = g->look_end;

	if (!glk_guard_may_queue(g->cache, gone->stream) ||
		glk_guarded_order(g->cache, e, gone->on, gone->serial, gone->on))
		return false;
	if (glk_load_relaxed(&gone->was.canary) &&
		!glk_guard_look_note(g, g->freed - 1, false))
		return false;
	if (gone->was.front && !glk_guard_look_note(g, g->freed - 1, true)) {
		g->look_end = from;
		return false;
	}
	return glk_guard_look_queue(g, from, gone->stream);
}

static bool look_now(struct glk_guard *g, struct glk_extent *e)
{
	struct glake_error why = glk_thread_current->error;
	bool looks = try_to_look(g, e);

	glk_error_back(&why);
	return looks;
}

/* Whether one may be kept: the driver clears words, so of one that is cleared and not filled no byte is beside them. */
static bool may_keep(const struct glk_guard *g, const struct glk_extent *e, bool wiped)
{
	int mode = glk_load_relaxed(&g->mode);

	return mode >= GLK_GUARD_POISON ||
		(mode == GLK_GUARD_CANARY &&
			!(wiped && glk_extent_asked(e) % sizeof(uint32_t)));
}

/* What is known of one that is freed is the last entry of the ring. Whether it is kept. */
static bool note(struct glk_guard *g, struct glk_guard_record *record,
	const uint64_t *frames, struct glk_extent *e, uint32_t on,
	struct CUstream_st *stream, bool keepable)
{
	bool canary = (glk_load_relaxed(&record->canary) || record->front) &&
		!glk_load_relaxed(&record->said);
	bool whole = canary && on && !glk_extent_lacks(e), looks = false, keeps = false;

	if (g->work.ready)
		glk_guard_poll(g);
	if (!glk_guard_make_place(g, on, stream)) {
		g->unchecked += canary;
		return false;
	}
	*glk_guard_gone(g, g->freed) = (struct glk_guard_gone){.was = *record,
		.record = record,
		.stream = stream,
		.freed = glk_clock_ns(),
		.thread = glk_guard_thread(),
		.on = on,
		.serial = on ? glk_guard_serial(g, on) : 0};
	if (g->cache->conf->guard_stacks)
		memcpy(glk_guard_gone(g, g->freed)->freed_at, frames,
			GLAKE_FRAMES * sizeof(*frames));
	g->freed++;
	if (whole && keepable)
		keeps = glk_guard_keep(g, e);
	if (whole && !keeps)
		looks = look_now(g, e);
	g->looked += keeps || looks;
	g->unchecked += canary && !keeps && !looks;
	return keeps;
}

static bool freed(struct glk_cache *cache, struct glk_extent *e, uint32_t on,
	struct CUstream_st *stream, uint32_t *behind)
{
	struct glk_guard *g = glk_guard_of(cache);
	uint64_t addr = glk_load_relaxed(&e->addr);
	struct glk_arena *arena = glk_arena_of(glk_cache_range(cache, addr));
	struct glk_guard_record *record = glk_guard_record(g, arena, e);
	bool keeps = false, guarded, wiped;
	uint64_t frames[GLAKE_FRAMES];
	const struct glk_tag_guard *tag = glk_arena_tag_guard(arena);
	int level = level_of(cache, tag);
	uint64_t found;

	if (glk_guard_tells(g, arena))
		glk_guard_untold(g, glk_cache_range(cache, addr), addr);
	if (arena->ops->kind == GLAKE_ARENA_MANAGED)
		return false;
	guarded = record && glk_load_relaxed(&record->guarded);
	wiped = level >= 2 || (level && tag);
	if (!guarded && !wiped)
		return false;
	glk_guard_stack(g, frames);
	found = glk_guard_enter(g);
	if (guarded) {
		glk_store_relaxed(&record->guarded, false);
		keeps = note(g, record, frames, e, on, stream,
			arena == &cache->arena && may_keep(g, e, wiped));
	}
	/* of one that is kept the canary stays, and what was filled is wiped */
	if (wiped && !(keeps && glk_guard_gone(g, g->freed - 1)->filled))
		wipe(g, e, on, stream, keeps ? glk_extent_asked(e) : e->size, behind);
	glk_guard_leave(g, found);
	if (guarded && arena == glk_cache_sampled(cache))
		glk_sub_relaxed(&g->samples, 1);
	return keeps;
}

static void left(struct glk_arena *arena, const struct glk_extent *e)
{
	struct glk_guard *g = glk_guard_of(arena->gpu);
	const struct glk_tag_guard *tag = glk_arena_tag_guard(arena);
	struct glk_guard_record *record = glk_guard_record(g, arena, e);

	if (record && glk_load_relaxed(&record->guarded) &&
		(glk_load_relaxed(&record->canary) || record->front)) {
		glk_store_relaxed(&record->canary, 0);
		record->front = 0;
		glk_add_relaxed(&g->unguarded, 1);
	}
	if ((level_of(arena->gpu, tag) >= 2 || (tag && level_of(arena->gpu, tag))) &&
		!glk_load_relaxed(&g->left)) {
		glk_store_relaxed(&g->left, true);
		glk_cache_guard_held(arena->gpu, true);
	}
}

/* What lies against nothing goes with its free. */
static bool at_once(struct glk_cache *cache)
{
	return glk_load_relaxed(&glk_guard_of(cache)->mode) == GLK_GUARD_FULL;
}

static void without(struct glk_cache *cache)
{
	glk_add_relaxed(&glk_guard_of(cache)->unguarded, 1);
}

static void refused(struct glk_cache *cache, uint64_t addr)
{
	struct glk_guard *g = glk_guard_of(cache);
	uint64_t last, found;

	found = glk_guard_enter(g);
	/* the newest that began there */
	last = g->freed > GLK_GUARD_GONE ? g->freed - GLK_GUARD_GONE : 0;
	for (uint64_t i = g->freed; i > last; i--) {
		const struct glk_guard_gone *gone = &g->gone[(i - 1) % GLK_GUARD_GONE];

		if (gone->was.addr != addr)
			continue;
		glk_guard_twice(g, gone);
		break;
	}
	glk_guard_leave(g, found);
}

static const struct glk_guard_ops ops = {
	.behind = behind,
	.samples = samples,
	.clears = clears,
	.wipes = wipes,
	.tick = tick,
	.again = again,
	.born = born,
	.freed = freed,
	.left = left,
	.at_once = at_once,
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

static bool has_tool(const struct glk_cache *cache)
{
	return cache->conf->guard_nvtx && glk_nvtx_attach();
}

static void drop(const struct glk_cache *cache, struct glk_guard *g)
{
	glk_region_free(g->records, records_bytes(cache));
	glk_region_free(g->sampled, records_bytes(cache));
	glk_region_free(g, sizeof(*g));
}

static int make(struct glk_cache *cache)
{
	struct glk_guard *g = glk_region_new(sizeof(*g));
	bool is_first;

	if (!g)
		return -ENOMEM;
	g->records = glk_region_new(records_bytes(cache));
	g->sampled = glk_region_new(records_bytes(cache));
	if (!g->records || !g->sampled) {
		drop(cache, g);
		return -ENOMEM;
	}
	g->shared = cache->node->caps & GLAKE_CAP_MPS;
	g->cache = cache;
	g->secret = new_secret(cache);
	g->base = glk_guard_stack_base();
	g->tool = has_tool(cache);
	glk_lock_init(&g->lock, GLK_RANK_GUARD);
	pthread_cond_init(&g->heap_made, NULL);
	glk_lock(&cache->lock);
	is_first = !glk_guard_ops(cache);
	if (is_first) {
		cache->told = g->tool;
		cache->guarding = g;
		/* pairs with: glk_guard_ops */
		glk_store_release(&cache->guard, &ops);
	}
	glk_unlock(&cache->lock);
	/* a mode of the context and one of a tag have locks of their own */
	if (!is_first) {
		pthread_cond_destroy(&g->heap_made);
		glk_lock_fini(&g->lock);
		drop(cache, g);
	}
	return 0;
}

int glk_guard_set(struct glk_cache *cache, int mode, uint64_t every)
{
	int err = 0;

	if (mode == GLK_GUARD_OFF && !glk_guard_ops(cache) && !has_tool(cache))
		return 0;
	if (!glk_guard_ops(cache))
		err = make(cache);
	if (err)
		return err;
	if (glk_guard_of(cache)->tool && mode != GLK_GUARD_OFF) {
		glk_warn(
			"guard.mode is off on GPU %d: a tool is attached by NVTX, to which canaries would be mistakes",
			cache->device);
		mode = GLK_GUARD_OFF;
	}
	glk_store_relaxed(&glk_guard_of(cache)->rate, every);
	glk_store_relaxed(&glk_guard_of(cache)->mode, mode);
	if (mode < GLK_GUARD_CANARY)
		yield(cache);
	if ((mode == GLK_GUARD_SAMPLE || mode == GLK_GUARD_FULL) &&
		glk_guard_of(cache)->shared)
		glk_warn(
			"no block of GPU %d is sampled: an illegal access would end all programs that share it by MPS",
			cache->device);
	glk_cache_guard(cache, sees_every(glk_guard_of(cache)));
	return 0;
}

int glk_guard_level(struct glk_cache *cache, int level)
{
	int err = 0;

	if (!level && !glk_guard_ops(cache))
		return 0;
	if (level == 3)
		err = glk_cache_encrypt(cache);
	if (err)
		return err;
	if (!glk_guard_ops(cache))
		err = make(cache);
	if (err)
		return err;
	glk_store_relaxed(&glk_guard_of(cache)->level, level);
	glk_cache_guard(cache, sees_every(glk_guard_of(cache)));
	return 0;
}

int glk_guard_tag(struct glk_cache *cache, uint32_t id, int level, int mode)
{
	struct glk_tag_guard *tag = glk_cache_tag_guard(cache, id);
	struct glk_guard_record *records;
	int err = 0;

	if (level == 3)
		err = glk_cache_encrypt(cache);
	if (!err && !glk_guard_ops(cache))
		err = make(cache);
	if (err)
		return err;
	if (glk_guard_of(cache)->tool)
		mode = mode > GLK_GUARD_OFF ? GLK_GUARD_OFF : mode;
	if (mode > GLK_GUARD_OFF && !glk_load_relaxed(&tag->records)) {
		records = glk_region_new(records_bytes(cache));
		if (!records)
			return -ENOMEM;
		/* pairs with: the acquire in glk_guard_record */
		glk_store_release(&tag->records, records);
	}
	if (level >= 0)
		glk_store_relaxed(&tag->level, level + 1);
	if (mode >= 0)
		glk_store_relaxed(&tag->mode, mode);
	return 0;
}

void glk_guard_fini(struct glk_cache *cache)
{
	struct glk_guard *g = glk_guard_of(cache);
	struct glk_tag_guard *tag;
	struct glk_arena *arena;
	uint64_t found;

	if (!g)
		return;
	yield(cache);
	found = glk_guard_enter(g);
	if (g->work.ready)
		glk_guard_poll(g);
	glk_guard_work_fini(g);
	glk_guard_leave(g, found);
	glk_guard_told_fini(g);
	pthread_cond_destroy(&g->heap_made);
	glk_lock_fini(&g->lock);
	glk_store_relaxed(&cache->guard, NULL);
	cache->guarding = NULL;
	for (int i = 0; (tag = glk_cache_tag_guard_at(cache, i, &arena)); i++) {
		if (glk_load_relaxed(&tag->records))
			glk_region_free(
				glk_load_relaxed(&tag->records), records_bytes(cache));
		glk_store_relaxed(&tag->records, NULL);
	}
	drop(cache, g);
}

bool glk_guard_has_tool(struct glk_cache *cache)
{
	return glk_guard_ops(cache) && glk_guard_of(cache)->tool;
}

uint64_t glk_guard_count(struct glk_cache *cache)
{
	struct glk_guard *g = glk_guard_of(cache);
	uint64_t count;

	if (!glk_guard_ops(cache))
		return 0;
	glk_lock(&g->lock);
	count = g->found;
	glk_unlock(&g->lock);
	return count;
}

int glk_guard_finding(struct glk_cache *cache, uint64_t number, struct glake_finding *ret)
{
	struct glk_guard *g = glk_guard_of(cache);
	int err = -ENOENT;

	if (!glk_guard_ops(cache))
		return err;
	glk_lock(&g->lock);
	if (number < g->found && g->found - number <= GLAKE_FINDINGS) {
		*ret = g->findings[number % GLAKE_FINDINGS];
		err = 0;
	}
	glk_unlock(&g->lock);
	return err;
}
