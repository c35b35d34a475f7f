/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_RIG_H
#define GLK_UNIT_CACHE_RIG_H

/*
 * What the tests of this folder share: the blocks of one GPU over a small software device, its
 * faults within reach, and a walk over all tables (walk.h) that the figures must agree with.
 */
#include "base/conf.h"
#include "base/rcu.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/block.h"
#include "cache/graph/graph.h"
#include "cache/managed/managed.h"
#include "cache/tag/tag.h"
#include "driver/driver.h"
#include "move/part.h"
#include "move/plan.h"
#include "pool/pool.h"
#include "soft/fault.h"
#include "soft/open.h"
#include "soft/soft.h"
#include "tap.h"
#include "unit/cache/walk.h"
#include "unit/regions.h"

#include <glake/error.h>

#include <errno.h>
#include <pthread.h>

#define MIB ((size_t)1 << 20)

#ifndef RIG_STREAMS
#define RIG_STREAMS 80
#endif

/* Policies of the section stream: whose memory a stream may have. */
#define RIG_DONE  "stream.internal_dependencies=no" /* what has finished */
#define RIG_ALONE RIG_DONE, "stream.event_dependencies=no"

struct rig {
	struct glk_conf conf;
	struct glk_drv *drv;
	struct glk_pool pool;
	struct glk_cache cache;
	struct CUstream_st *stream[RIG_STREAMS]; /* made here, to be ended */
	struct CUevent_st *event[RIG_STREAMS];
	struct CUstream_st *capturing[RIG_STREAMS];
	int streams, events, captures;
};

/* Threads that are begun from now on cannot be had, until what this answers is put back. */
static inline pthread_attr_t rig_no_threads(void)
{
	pthread_attr_t before, attr;

	pthread_getattr_default_np(&before);
	pthread_getattr_default_np(&attr);
	/* more than there are addresses */
	if (pthread_attr_setstacksize(&attr, (size_t)1 << 60) ||
		pthread_setattr_default_np(&attr))
		tap_bail("the size of stacks");
	return before;
}

static inline struct glake_error rig_error(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error;
}

static inline void rig_set(struct rig *rig, const char *setting)
{
	if (glk_conf_set(&rig->conf, setting))
		tap_bail(setting);
}

/* `settings` end with NULL; NULL for none. */
static inline void rig_open(struct rig *rig, const char *const *settings)
{
	int host = 0;

	memset(rig, 0, sizeof(*rig));
	glk_conf_init(&rig->conf);
	rig_set(rig, "driver.backend=soft");
	rig_set(rig, "driver.fault=off");
	rig_set(rig, "soft.memory=1GiB");
	rig_set(rig, "soft.host_memory=64MiB");
	rig_set(rig, "map.span=8GiB");
	rig_set(rig, "map.extents=65536");
	rig_set(rig, "pool.pages=4096");
	rig_set(rig, "pool.large_page=8MiB");
	/* pages as many as blocks need, which can be told */
	rig_set(rig, "policy.target=1.04");
	for (; settings && *settings; settings++)
		rig_set(rig, *settings);
	if (glk_rcu_init(false))
		tap_bail("no RCU");
	regions_open();
	if (glk_drv_open(&rig->conf, NULL, 0, &rig->drv) ||
		glk_pool_init(&rig->pool, rig->drv, &rig->conf, 1, 1, &host) ||
		glk_cache_init(&rig->cache, rig->drv, &rig->pool, &rig->conf, 0))
		tap_bail("no software device");
}

static inline struct CUstream_st *rig_stream(struct rig *rig)
{
	struct CUstream_st **stream = &rig->stream[rig->streams++];

	if (rig->drv->ops->stream_new(rig->drv, 0, stream))
		tap_bail("no stream");
	return *stream;
}

/* Streams become known until the next one needs memory for that. */
static inline void rig_fill_streams(struct rig *rig)
{
	uint32_t id;
	int err;

	do {
		struct CUstream_st *stream = rig_stream(rig);

		glk_region_fail_after(1);
		err = glk_stream_get(&rig->cache.streams, stream, NULL, &id);
		glk_region_fail_after(0);
	} while (!err);
}

/* Of the list of captures: threads may capture too. */
static pthread_mutex_t rig_captures_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void rig_capture(struct rig *rig, struct CUstream_st *stream)
{
	if (glk_soft_capture_begin(rig->drv, 0, stream))
		tap_bail(rig_error().text);
	pthread_mutex_lock(&rig_captures_lock);
	rig->capturing[rig->captures++] = stream;
	pthread_mutex_unlock(&rig_captures_lock);
}

/* The graph, or 0 where the capture was broken. */
static inline uint32_t rig_capture_end(struct rig *rig, struct CUstream_st *stream)
{
	uint32_t graph = 0;
	int i = 0;

	pthread_mutex_lock(&rig_captures_lock);
	while (i < rig->captures && rig->capturing[i] != stream)
		i++;
	if (i == rig->captures)
		tap_bail("no capture");
	rig->capturing[i] = rig->capturing[--rig->captures];
	pthread_mutex_unlock(&rig_captures_lock);
	return glk_soft_capture_end(rig->drv, 0, stream, &graph) ? 0 : graph;
}

static inline void rig_drop(struct rig *rig, uint32_t graph)
{
	if (glk_soft_graph_free(rig->drv, graph))
		tap_bail("no graph");
}

/* What the end of the blocks says, and of the device; the blocks that were live. */
struct rig_end {
	int cache, device;
	bool rests;  /* nothing was under way before, and all books agreed */
	bool tables; /* it has some still */
	size_t live;
	/* Bytes that are counted as held and were not lost, of the GPU and of the host. */
	uint64_t held;
	uint32_t plans; /* counts of who has one, may have one, or waits */
};

static inline uint64_t rig_held(struct glk_node *node)
{
	return glk_load_relaxed(&node->held) - glk_load_relaxed(&node->lost);
}

static inline uint32_t rig_plans(const struct glk_cache *cache)
{
	return cache->plans.waiters + cache->plans.inside + cache->plans.under_way +
		cache->plans.parked + cache->plans.climbing + cache->plans.closed;
}

/* Whether something that is no more is told of. */
static inline bool rig_has_tables(const struct glk_cache *cache)
{
	return glk_graphs(cache) || glk_load_relaxed(&cache->tags) || cache->hints ||
		cache->ahead || cache->reserve.runs || cache->managed;
}

static inline struct rig_end rig_end(struct rig *rig)
{
	struct rig_end end = {.live = 99};
	bool whole = true;
	uint32_t graph;

	while (rig->captures) {
		graph = rig_capture_end(rig, rig->capturing[0]);
		whole &= graph != 0;
		if (graph)
			rig_drop(rig, graph);
	}
	glk_soft_run_all(rig->drv);
	glk_cache_still(&rig->cache); /* as the end does: its threads have plans, too */
	end.rests = !glk_load_relaxed(&rig->cache.started) || books_rest(&rig->cache);
	end.rests &= walk_is_sound(&rig->cache);
	end.cache = glk_cache_fini(&rig->cache, &end.live);
	end.plans = rig_plans(&rig->cache);
	end.tables = rig_has_tables(&rig->cache);
	end.held = rig_held(glk_pool_gpu(&rig->pool, 0)) +
		rig_held(glk_pool_host(&rig->pool, 0));
	glk_pool_fini(&rig->pool);
	while (rig->events--)
		rig->drv->ops->user_event_free(rig->drv, rig->event[rig->events]);
	while (rig->streams--)
		rig->drv->ops->stream_free(rig->drv, 0, rig->stream[rig->streams]);
	end.device = glk_drv_close(rig->drv);
	regions_close();
	if (!whole && !end.device)
		end.device = -EIO;
	return end;
}

/* Everything is given back, and the device says so; `live` blocks were not freed before. */
static inline void rig_close(struct rig *rig, size_t live)
{
	struct rig_end end = rig_end(rig);

	ok(end.rests, "nothing is under way, and all books agree");
	is_int(end.cache, 0, "memory goes back to the driver");
	ok(!end.tables, "nor has it a table");
	is_int((int64_t)end.held, 0, "none is counted any more");
	is_int(end.plans, 0, "nobody has a plan, or waits for one");
	is_int((int64_t)end.live, (int64_t)live, "blocks were live");
	is_int(end.device, 0, "nothing is left at the device");
}

static inline int rig_try(struct rig *rig, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr)
{
	return glk_cache_alloc(&rig->cache, size, stream, flags, ret_addr);
}

/* A block, or 0. */
static inline uint64_t rig_alloc(struct rig *rig, size_t size, struct CUstream_st *stream)
{
	uint64_t addr = 0;

	return rig_try(rig, size, stream, 0, &addr) ? 0 : addr;
}

static inline uint64_t rig_single(
	struct rig *rig, size_t size, struct CUstream_st *stream)
{
	uint64_t addr = 0;

	return rig_try(rig, size, stream, GLAKE_ALLOC_CONTIGUOUS, &addr) ? 0 : addr;
}

static inline int rig_free(struct rig *rig, uint64_t addr, struct CUstream_st *stream)
{
	return glk_cache_free(&rig->cache, addr, stream);
}

/* Pools of graphs, by a number. */
static inline struct glake_pool_id rig_id(uint64_t pool)
{
	return (struct glake_pool_id){.high = 7, .low = pool};
}

static inline int rig_begin(struct rig *rig, uint64_t pool, struct CUstream_st *stream)
{
	return glk_graph_begin(&rig->cache,
		&(struct glk_graph_begin){.id = rig_id(pool), .stream = stream});
}

static inline int rig_begin_for(
	struct rig *rig, uint64_t pool, glake_pool_filter_fn filter, void *arg)
{
	return glk_graph_begin(&rig->cache,
		&(struct glk_graph_begin){
			.id = rig_id(pool), .filter = filter, .arg = arg});
}

static inline int rig_end_pool(struct rig *rig, uint64_t pool)
{
	return glk_graph_end(&rig->cache, rig_id(pool));
}

static inline int rig_release(struct rig *rig, uint64_t pool)
{
	return glk_graph_release(&rig->cache, rig_id(pool));
}

/* All 0 for one that is not there. */
static inline struct glake_pool rig_pool(struct rig *rig, uint64_t pool)
{
	struct glake_pool got = {0};

	glk_graph_get(&rig->cache, rig_id(pool), &got);
	return got;
}

/* What is told of a block. */
static inline struct glake_block rig_query(struct rig *rig, uint64_t addr)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glk_cache_query(&rig->cache, addr, &block))
		tap_bail("no block");
	return block;
}

/* The pool that a live block is of, by its number; 0: of none. */
static inline uint64_t rig_pool_of(struct rig *rig, uint64_t addr)
{
	return rig_query(rig, addr).pool.low;
}

/* What the thread asks for is of a tag; 0: of none. */
static inline void rig_set_tag(struct rig *rig, uint32_t id)
{
	if (glk_seat_set_tag(&rig->cache, id))
		tap_bail("no record of the thread");
	if (id)
		glk_seat_leave(&rig->cache);
}

/* 0, or what the device says of a replay. */
static inline int rig_launch(struct rig *rig, uint32_t graph, struct CUstream_st *stream)
{
	return glk_soft_graph_launch(rig->drv, graph, 0, stream);
}

static inline struct CUevent_st *rig_event(struct rig *rig)
{
	struct CUevent_st **event = &rig->event[rig->events++];

	if (rig->drv->ops->user_event_new(rig->drv, 0, event))
		tap_bail("no event");
	return *event;
}

/* One stream behind another by an event of the program, of which nobody tells. In a capture the
 * second one joins. */
static inline void rig_follow(struct rig *rig, struct CUstream_st *stream,
	struct CUstream_st *behind, struct CUevent_st *event)
{
	if (rig->drv->ops->user_event_record(rig->drv, 0, event, behind) ||
		rig->drv->ops->user_event_wait(rig->drv, 0, stream, event))
		tap_bail(rig_error().text);
}

/* Freed blocks go back to their extents, so that their pages are idle. */
static inline void rig_flush(struct rig *rig)
{
	glk_lock(&rig->cache.lock);
	glk_quick_flush(&rig->cache);
	glk_unlock(&rig->cache.lock);
}

/* A kernel that writes a block, queued. */
static inline void rig_work(
	struct rig *rig, uint64_t addr, size_t size, struct CUstream_st *stream)
{
	if (glk_soft_work(rig->drv, 0, stream, addr, size, true))
		tap_bail(rig_error().text);
}

static inline struct glake_stats rig_figures(struct rig *rig)
{
	return walk_figures(&rig->cache);
}

static inline struct glake_stats rig_walk(struct rig *rig)
{
	return walk_sum(&rig->cache);
}

static inline bool rig_verify(struct rig *rig)
{
	return walk_verify(&rig->cache);
}

/* Whether books, walk and device tell the same; says what does not. */
static inline bool rig_is_sound(struct rig *rig)
{
	return walk_is_sound(&rig->cache);
}

#define is_sound(rig, what) ok(rig_is_sound(rig), what)

static inline uint64_t rig_calls(struct rig *rig, enum glake_call call)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	rig->drv->ops->figures(rig->drv, &stats);
	return stats.calls[call];
}

/* All but questions, which change nothing at the driver and wait for nothing. */
static inline uint64_t rig_all_calls(struct rig *rig)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	uint64_t sum = 0;

	rig->drv->ops->figures(rig->drv, &stats);
	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		sum += i == GLAKE_CALL_OTHER ? 0 : stats.calls[i];
	return sum;
}

/* Whether rules made a call fail since they were set: where the nth was not reached, a later one is not. */
static inline bool rig_struck(struct rig *rig)
{
	uint64_t calls, failed = 0;

	return !glk_fault_count(rig->drv, &calls, &failed) && failed;
}

#endif
