/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_RIG_H
#define GLK_UNIT_CACHE_RIG_H

/*
 * What the tests of this folder share: the blocks of one GPU over a small software device, its
 * faults within reach, and a walk over all tables that the figures must agree with.
 */
#include "base/conf.h"
#include "base/rcu.h"
#include "cache/quick.h"
#include "driver/driver.h"
#include "driver/fault.h"
#include "driver/soft.h"
#include "pool/pool.h"
#include "tap.h"

#include <glake/error.h>

#define MIB ((size_t)1 << 20)

#define RIG_STREAMS 80

/* Policies of the section stream: whose memory a stream may have. */
#define RIG_DONE  "stream.internal_dependencies=no" /* what has finished */
#define RIG_NEVER RIG_DONE, "stream.opportunistic=no", "stream.event_dependencies=no"

struct rig {
	struct glk_conf conf;
	struct glk_drv *drv;
	struct glk_pool pool;
	struct glk_cache cache;
	struct CUstream_st *stream[RIG_STREAMS]; /* made here, to be ended */
	int streams;
};

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
	for (; settings && *settings; settings++)
		rig_set(rig, *settings);
	if (glk_rcu_init(false) || glk_drv_open(&rig->conf, NULL, 0, &rig->drv) ||
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

/* What the end of the blocks says, and of the device; the blocks that were live. */
struct rig_end {
	int cache, device;
	size_t live;
};

static inline struct rig_end rig_end(struct rig *rig)
{
	struct rig_end end = {0};

	glk_soft_run_all(rig->drv);
	end.cache = glk_cache_fini(&rig->cache, &end.live);
	glk_pool_fini(&rig->pool);
	while (rig->streams--)
		rig->drv->ops->stream_free(rig->drv, 0, rig->stream[rig->streams]);
	end.device = glk_drv_close(rig->drv);
	return end;
}

/* Everything is given back, and the device says so; `live` blocks were not freed before. */
static inline void rig_close(struct rig *rig, size_t live)
{
	struct rig_end end = rig_end(rig);

	is_int(end.cache, 0, "memory goes back to the driver");
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
	/* the public face asks no GPU for what it does not hold */
	if (!glk_cache_holds(&rig->cache, addr))
		tap_bail("a block that was never given is freed");
	return glk_cache_free(&rig->cache, addr, stream);
}

/* Freed blocks go back to their extents, so that their pages are idle. */
static inline void rig_flush(struct rig *rig)
{
	glk_lock(rig->cache.lock);
	glk_quick_flush(&rig->cache);
	glk_unlock(rig->cache.lock);
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
	struct glake_stats stats;

	glk_cache_figures(&rig->cache, &stats);
	return stats;
}

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

/* Counts what the figures tell from the extents, slots and pages themselves. */
static inline struct glake_stats rig_walk(struct rig *rig)
{
	uint32_t pages = glk_load_relaxed(&rig->pool.pages.used);
	bool *busy = calloc(pages + 1, sizeof(*busy));
	struct glk_map *map = &rig->cache.map;
	struct glake_stats s = {0};

	if (!busy)
		tap_bail("no memory for the walk");
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		struct glk_span *span = &map->span[kind];
		uint32_t end = glk_span_end(span);
		const struct glk_extent *e;

		for (uint32_t id = span->last; id; id = e->prev) {
			e = glk_extent_at(map, id);
			if (glk_extent_state(e) == GLK_EXTENT_LIVE) {
				s.live += glk_extent_asked(e);
				s.given += e->size;
				s.live_blocks++;
			} else if (glk_extent_state(e) == GLK_EXTENT_PARKED) {
				s.free_pages += e->size;
			} else if (glk_extent_state(e) == GLK_EXTENT_QUICK) {
				s.quick += e->size;
			} else {
				s.free_extents++;
				if (s.largest_hole < e->size)
					s.largest_hole = e->size;
			}
		}
		for (uint32_t i = 0; i < end; i++) {
			if (!span->slot[i].page)
				continue;
			busy[span->slot[i].page] |= span->slot[i].live > 0;
			s.mapped += glk_map_page(map, span->slot[i].page)->size;
		}
	}
	for (uint32_t id = 1; id <= pages; id++) {
		struct glk_page *p = glk_page_at(&rig->pool, id);
		enum glk_page_state state = glk_page_state(p);

		if (state == GLK_PAGE_EMPTY)
			continue;
		s.reserved += p->size;
		s.lost += state == GLK_PAGE_LOST ? p->size : 0;
		if (state == GLK_PAGE_FREE || (state == GLK_PAGE_OWNED && !busy[id]))
			s.free_pages += p->size;
	}
	free(busy);
	return s;
}

#define RIG_FIGURES(X)                                                                   \
	X(live)                                                                          \
	X(given)                                                                         \
	X(live_blocks) X(quick)                                                            \
	X(reserved) X(free_pages) X(mapped) X(lost) X(free_extents) X(largest_hole)

/* Whether books, walk and device tell the same; says what does not. */
static inline bool rig_is_sound(struct rig *rig)
{
	struct glake_stats told = rig_figures(rig), seen;
	size_t unused = 0, total = 0;
	bool same = true;

	if (!glk_load_relaxed(&rig->cache.started))
		return true;
	if (glk_map_verify(&rig->cache.map)) {
		tap_note("%s", rig_error().text);
		return false;
	}
	seen = rig_walk(rig);
#define X(figure)                                                                        \
	if (told.figure != seen.figure) {                                                \
		tap_note(#figure ": told %" PRIu64 ", walked %" PRIu64, told.figure,     \
			seen.figure);                                                    \
		same = false;                                                            \
	}
	RIG_FIGURES(X)
#undef X
	/* the software device's own count; only a driver that fails on demand does not tell */
	if (!rig->drv->ops->memory_info(rig->drv, 0, &unused, &total) &&
		total - unused != told.reserved) {
		tap_note("reserved: told %" PRIu64 ", the device has %zu", told.reserved,
			total - unused);
		same = false;
	}
	return same;
}

#define is_sound(rig, what) ok(rig_is_sound(rig), what)

#endif
