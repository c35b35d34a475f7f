/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BENCH_CLOCKED_H
#define GLK_BENCH_CLOCKED_H

/*
 * A GPU with a clock: the software device, whose streams take the time that the program says, and
 * whose events tell when that is over. One thread, which is the program; its time goes on where
 * it does something, and where it waits. Driver calls of the library take what the software
 * device says. All times in us.
 *
 * With `ideal` set memory costs nothing, is without end, and nobody waits for any.
 */
#include "unit/cache/rig.h"

#define CLOCKED_STREAMS 3

struct glk_drv_event {
	double at; /* when what was queued before it is done */
};

static struct clocked {
	struct rig rig;
	struct glk_drv_ops ops;
	const struct glk_drv_ops *real;
	struct CUstream_st *handle[CLOCKED_STREAMS];
	double done[CLOCKED_STREAMS]; /* when all that is queued on a stream is */
	double now;
	bool ideal;
	int64_t driver_ns;
	uint64_t records, waits, frees, live, peak;
} gpu;

struct clocked_block {
	uint64_t addr, size;
	int stream;
};

static inline double *clocked_done(const struct CUstream_st *stream)
{
	for (int i = 0; i < CLOCKED_STREAMS; i++) {
		if (gpu.handle[i] == stream)
			return &gpu.done[i];
	}
	tap_bail("a stream of nobody");
}

static inline void clocked_until(double at)
{
	gpu.now = gpu.now < at ? at : gpu.now;
}

static inline int clocked_event_new(
	struct glk_drv *drv, int device, struct glk_drv_event **ret_event)
{
	*ret_event = calloc(1, sizeof(**ret_event));
	return *ret_event ? 0 : -ENOMEM;
}

static inline int clocked_event_free(struct glk_drv *drv, struct glk_drv_event *event)
{
	free(event);
	return 0;
}

static inline int clocked_record(
	struct glk_drv *drv, struct glk_drv_event *event, struct CUstream_st *stream)
{
	event->at = *clocked_done(stream);
	gpu.records++;
	return 0;
}

static inline int clocked_query(struct glk_drv *drv, struct glk_drv_event *event)
{
	return event->at <= gpu.now ? 0 : -EAGAIN;
}

static inline int clocked_sync(struct glk_drv *drv, struct glk_drv_event *event)
{
	clocked_until(event->at);
	return 0;
}

static inline int clocked_wait(
	struct glk_drv *drv, struct CUstream_st *stream, struct glk_drv_event *event)
{
	double *done = clocked_done(stream);

	*done = *done < event->at ? event->at : *done;
	gpu.waits++;
	return 0;
}

static inline int clocked_stream_sync(
	struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	clocked_until(*clocked_done(stream));
	return 0;
}

static inline int clocked_device_sync(struct glk_drv *drv, int device)
{
	for (int i = 0; i < CLOCKED_STREAMS; i++)
		clocked_until(gpu.done[i]);
	return 0;
}

/* `settings` end with NULL. */
static inline void clocked_open(const char *const *settings)
{
	memset(&gpu, 0, sizeof(gpu));
	rig_open(&gpu.rig, settings);
	for (int i = 0; i < CLOCKED_STREAMS; i++)
		gpu.handle[i] = rig_stream(&gpu.rig);
	gpu.real = gpu.rig.drv->ops;
	gpu.ops = *gpu.real;
	gpu.ops.event_new = clocked_event_new;
	gpu.ops.event_free = clocked_event_free;
	gpu.ops.event_record = clocked_record;
	gpu.ops.event_query = clocked_query;
	gpu.ops.event_sync = clocked_sync;
	gpu.ops.stream_wait = clocked_wait;
	gpu.ops.stream_sync = clocked_stream_sync;
	gpu.ops.device_sync = clocked_device_sync;
	gpu.rig.drv->ops = &gpu.ops;
}

/* With so many blocks that were not freed. */
static inline void clocked_close(size_t live)
{
	struct rig_end end;

	clocked_device_sync(gpu.rig.drv, 0);
	end = rig_end(&gpu.rig);
	is_int(end.cache, 0, "memory goes back to the driver");
	is_int(end.live, live, "blocks were live");
}

/* What calls of the driver took since this was asked last goes by. */
static inline void clocked_charge(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	gpu.real->figures(gpu.rig.drv, &stats);
	gpu.now += (double)(stats.now_ns - gpu.driver_ns) / 1000;
	gpu.driver_ns = stats.now_ns;
}

static inline struct clocked_block clocked_alloc(uint64_t size, int stream)
{
	struct clocked_block block = {.size = size, .stream = stream};

	gpu.live += size;
	gpu.peak = gpu.live > gpu.peak ? gpu.live : gpu.peak;
	gpu.now += 0.5;
	if (gpu.ideal)
		return block;
	block.addr = rig_alloc(&gpu.rig, size, gpu.handle[stream]);
	if (!block.addr)
		tap_bail(rig_error().text);
	clocked_charge();
	return block;
}

static inline void clocked_use(const struct clocked_block *block, int stream)
{
	if (!gpu.ideal && glk_cache_use(&gpu.rig.cache, block->addr, gpu.handle[stream]))
		tap_bail(rig_error().text);
}

static inline void clocked_free(const struct clocked_block *block)
{
	gpu.live -= block->size;
	gpu.now += 0.5;
	gpu.frees++;
	if (!gpu.ideal && rig_free(&gpu.rig, block->addr, gpu.handle[block->stream]))
		tap_bail(rig_error().text);
}

/* A kernel, or a call that takes a stream so long. */
static inline void clocked_kernel(int stream, double us)
{
	double *done = &gpu.done[stream];

	gpu.now += 6;
	*done = (*done < gpu.now ? gpu.now : *done) + us;
}

/* The program itself puts a stream behind another one. */
static inline void clocked_follow(int stream, int other)
{
	gpu.now += 3;
	if (gpu.done[stream] < gpu.done[other])
		gpu.done[stream] = gpu.done[other];
}

#endif
