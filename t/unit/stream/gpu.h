/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_STREAM_GPU_H
#define GLK_UNIT_STREAM_GPU_H

/*
 * What the tests of this folder share: one GPU of the software device whose streams run only
 * when told to, its streams as this folder knows them, and a map.
 */
#include "base/conf.h"
#include "base/rcu.h"
#include "driver/driver.h"
#include "map/map.h"
#include "pool/pool.h"
#include "soft/open.h"
#include "soft/soft.h"
#include "stream/stream.h"
#include "tap.h"
#include "unit/regions.h"

#include <glake/error.h>

#define GPU_STREAMS 200

struct gpu {
	struct glk_conf conf;
	struct glk_drv *drv;
	struct glk_pool pool;
	struct glk_space space;
	struct glk_map map;
	struct glk_lock lock;
	struct glk_streams streams;
	struct CUstream_st *handle[GPU_STREAMS]; /* made here, to be ended */
	int handles;
};

static inline void gpu_open(struct gpu *gpu)
{
	static const char *const settings[] = {"driver.backend=soft", "driver.fault=off",
		"soft.streams=stepped", "soft.memory=1GiB", "pool.large_page=8MiB"};
	const struct glk_map_size size = {
		.step = UINT64_C(4) << 30, .most = UINT64_C(4) << 30};
	int host = 0;

	memset(gpu, 0, sizeof(*gpu));
	glk_conf_init(&gpu->conf);
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		if (glk_conf_set(&gpu->conf, settings[i]))
			tap_bail(settings[i]);
	}
	if (glk_rcu_init(false))
		tap_bail("no RCU");
	regions_open();
	if (glk_drv_open(&gpu->conf, NULL, 0, &gpu->drv) ||
		glk_pool_init(&gpu->pool, gpu->drv, &gpu->conf, 1, 1, &host) ||
		glk_space_init(&gpu->space, glk_pool_gpu(&gpu->pool, 0), size.most) ||
		glk_map_init(&gpu->map, &gpu->space, &gpu->conf, size))
		tap_bail("no software device");
	glk_lock_init(&gpu->lock, GLK_RANK_DEVICE);
	if (glk_streams_init(&gpu->streams, gpu->drv, 0, &gpu->lock))
		tap_bail("no table of streams");
}

/* Stream waits, however much each of them is for; none where a stream is known to come behind. */
static inline unsigned gpu_waits(struct glk_streams *streams, const struct glk_use *use,
	const struct glk_stream *stream)
{
	unsigned waits = glk_clock_waits(streams, use, stream);

	if (glk_clock_behind(streams, use, stream) == (waits > 0))
		tap_bail("a stream that comes behind has none, and only that one");
	return waits < GLK_WAITS_NEVER ? waits % GLK_WAITS_LATE : waits;
}

/* The driver says whether anything was left. */
static inline void gpu_close(struct gpu *gpu)
{
	glk_streams_fini(&gpu->streams);
	glk_map_fini(&gpu->map);
	glk_space_fini(&gpu->space);
	glk_pool_fini(&gpu->pool);
	glk_lock_fini(&gpu->lock);
	while (gpu->handles--)
		gpu->drv->ops->stream_free(gpu->drv, 0, gpu->handle[gpu->handles]);
	is_int(glk_drv_close(gpu->drv), 0, "nothing is left at the device");
	regions_close();
}

/* A stream of the driver. */
static inline struct CUstream_st *gpu_handle(struct gpu *gpu)
{
	struct CUstream_st **handle = &gpu->handle[gpu->handles++];

	if (gpu->drv->ops->stream_new(gpu->drv, 0, handle))
		tap_bail("no stream");
	return *handle;
}

/* Streams become known until the table has no room for one more without memory. */
static inline void gpu_fill(struct gpu *gpu)
{
	uint32_t id;
	int err;

	do {
		struct CUstream_st *handle = gpu_handle(gpu);

		glk_region_fail_after(1);
		err = glk_stream_get(&gpu->streams, handle, NULL, &id);
		glk_region_fail_after(0);
	} while (!err);
}

/* A stream known here, with a bit. */
static inline struct glk_stream *gpu_enter(struct gpu *gpu, struct CUstream_st *handle)
{
	uint32_t id = 0;

	if (glk_stream_get(&gpu->streams, handle, NULL, &id))
		tap_bail("a stream cannot be known");
	return glk_stream_enter(&gpu->streams, id);
}

static inline struct glk_stream *gpu_stream(struct gpu *gpu)
{
	return gpu_enter(gpu, gpu_handle(gpu));
}

/* Memory freed on a stream with work still queued that may use it. */
static inline struct glk_use gpu_free(struct gpu *gpu, struct glk_stream *stream)
{
	return glk_stream_use(stream, glk_clock_tick(&gpu->streams, stream));
}

static inline int gpu_sync(struct gpu *gpu, uint64_t set)
{
	int err;

	glk_lock(&gpu->lock);
	err = glk_clock_sync(&gpu->streams, set);
	glk_unlock(&gpu->lock);
	return err;
}

static inline int gpu_sync_all(struct gpu *gpu)
{
	int err;

	glk_lock(&gpu->lock);
	err = glk_clock_sync_all(&gpu->streams);
	glk_unlock(&gpu->lock);
	return err;
}

static inline void gpu_hold(struct gpu *gpu, struct glk_stream *stream, bool hold)
{
	if (glk_soft_hold(gpu->drv, 0, stream->handle, hold))
		tap_bail("a stream cannot be held");
}

static inline uint32_t gpu_pending(struct gpu *gpu, struct glk_stream *stream)
{
	uint32_t count = 0;

	glk_soft_pending(gpu->drv, 0, stream->handle, &count);
	return count;
}

/* A stream that the program ends without a word, its work done. */
static inline void gpu_destroy(struct gpu *gpu, struct CUstream_st *handle)
{
	int i = gpu->handles;

	while (i && gpu->handle[i - 1] != handle)
		i--;
	if (!i || gpu->drv->ops->stream_free(gpu->drv, 0, handle))
		tap_bail("a stream cannot be ended");
	gpu->handle[i - 1] = gpu->handle[--gpu->handles];
}

static inline void gpu_capture(struct gpu *gpu, const struct glk_stream *stream)
{
	if (glk_soft_capture_begin(gpu->drv, 0, stream->handle))
		tap_bail("no capture");
}

/* 0 if it gave a graph, which nobody wants. */
static inline int gpu_capture_end(struct gpu *gpu, struct CUstream_st *handle)
{
	uint32_t graph = 0;
	int err = glk_soft_capture_end(gpu->drv, 0, handle, &graph);

	return err ? err : glk_soft_graph_free(gpu->drv, graph);
}

/* All that streams have to tell is known. */
static inline void gpu_finish(struct gpu *gpu)
{
	glk_event_poll(&gpu->streams);
	glk_soft_run_all(gpu->drv);
	glk_event_poll(&gpu->streams);
}

static inline uint32_t gpu_known(const struct gpu *gpu)
{
	return glk_load_relaxed(&gpu->streams.slab.live);
}

/*
 * The driver made to speak of a stream as the test wants: its handle has come back for another
 * one; or to tell whether anything is done with a handle that is nobody's.
 */
static struct {
	const struct glk_drv_ops *below;
	struct glk_drv_ops ops;
	const struct CUstream_st *back, *watched;
	unsigned touched;
} gpu_says;

static inline void gpu_touch(const struct CUstream_st *stream)
{
	gpu_says.touched += stream == gpu_says.watched;
}

static inline int gpu_says_facts(struct glk_drv *drv, int device,
	struct CUstream_st *stream, struct glk_stream_facts *ret_facts)
{
	int err = gpu_says.below->stream_facts(drv, device, stream, ret_facts);

	gpu_touch(stream);
	if (!err && stream == gpu_says.back)
		ret_facts->id += UINT64_C(1) << 40;
	return err;
}

static inline int gpu_says_record(
	struct glk_drv *drv, struct glk_drv_event *event, struct CUstream_st *stream)
{
	gpu_touch(stream);
	return gpu_says.below->event_record(drv, event, stream);
}

static inline int gpu_says_wait(
	struct glk_drv *drv, struct CUstream_st *stream, struct glk_drv_event *event)
{
	gpu_touch(stream);
	return gpu_says.below->stream_wait(drv, stream, event);
}

static inline int gpu_says_sync(
	struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	gpu_touch(stream);
	return gpu_says.below->stream_sync(drv, device, stream);
}

static inline void gpu_listen(struct gpu *gpu)
{
	gpu_says.below = gpu->drv->ops;
	gpu_says.ops = *gpu->drv->ops;
	gpu_says.ops.stream_facts = gpu_says_facts;
	gpu_says.ops.event_record = gpu_says_record;
	gpu_says.ops.stream_wait = gpu_says_wait;
	gpu_says.ops.stream_sync = gpu_says_sync;
	gpu_says.back = (const struct CUstream_st *)-1;
	gpu_says.watched = gpu_says.back;
	gpu_says.touched = 0;
	gpu->drv->ops = &gpu_says.ops;
}

static inline int gpu_class(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error.error_class;
}

#endif
