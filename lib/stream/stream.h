/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_STREAM_STREAM_H
#define GLK_STREAM_STREAM_H

/*
 * The face of this folder: the streams of one GPU, what is known of their progress, and the
 * only way to take a mapping or a page away.
 *
 * Time on a GPU is told in ticks: every free is one. Memory remembers the streams that used
 * it and the tick of its last free (pool/use.h). An event recorded on a stream at tick t
 * covers everything freed on that stream until t, so one event serves any number of frees,
 * and memory that stays on its stream needs none.
 */
#include "base/lock.h"
#include "base/slab.h"
#include "driver/driver.h"
#include "map/map.h"

#include <stdbool.h>
#include <stdint.h>

/* Streams told apart exactly; the ones above share the last bit and wait for each other. */
#define GLK_STREAM_BITS	 64
#define GLK_STREAM_CROWD (GLK_STREAM_BITS - 1)
/* Most streams of a GPU at a time. */
#define GLK_STREAMS_MAX 4096
/* Events in flight on one stream. */
#define GLK_STREAM_EVENTS 8

struct glk_stream {
	struct CUstream_st *handle;
	uint32_t id;
	uint8_t bit;
	bool dead;
	uint64_t freed; /* tick of the last free on it */
	uint64_t done;	/* its work freed until this tick has finished */
	uint32_t next;	/* in the crowd */
	struct {
		struct glk_drv_event *event;
		uint64_t tick;
	} ring[GLK_STREAM_EVENTS];
	unsigned head, count;
};

struct glk_stream_table;

struct glk_streams {
	struct glk_drv *drv;
	int device;
	struct glk_lock *gpu; /* the lock of the GPU */
	struct glk_lock lock; /* of the table's writers; taken before that of the GPU */
	glk_atomic(struct glk_stream_table *) table;
	struct glk_slab slab;
	/* Under the lock of the GPU from here on. */
	uint32_t by_bit[GLK_STREAM_BITS]; /* first stream of a bit */
	uint64_t tick;
	uint64_t seen[GLK_STREAM_BITS][GLK_STREAM_BITS]; /* [waiter][waited for]: tick */
	uint64_t records, waits;
	uint64_t entered; /* streams that ever got a bit */
};

/* table.c. 0, -ENOMEM. */
int glk_streams_init(struct glk_streams *streams, struct glk_drv *drv, int device,
	struct glk_lock *gpu);
/* Takes a zeroed structure. Ends the events; the streams are the program's. */
void glk_streams_fini(struct glk_streams *streams);

/* The stream of a handle, known from now on. Any thread, without a lock once it is known.
 * 0, or -ENOMEM (class LIMIT above GLK_STREAMS_MAX). */
int glk_stream_get(
	struct glk_streams *streams, struct CUstream_st *handle, uint32_t *ret_stream);
/* Gives it a bit; under the lock of the GPU, before its first use below. */
struct glk_stream *glk_stream_enter(struct glk_streams *streams, uint32_t stream);
/* The stream has no more work and its handle will not be used again. Takes both locks. */
void glk_stream_retire(struct glk_streams *streams, struct CUstream_st *handle);

/* clock.c, all under the lock of the GPU. */
static inline uint64_t glk_stream_mask(const struct glk_stream *stream)
{
	return UINT64_C(1) << stream->bit;
}

/* A free on a stream: the tick to remember. */
static inline uint64_t glk_clock_tick(
	struct glk_streams *streams, struct glk_stream *stream)
{
	return stream->freed = ++streams->tick;
}

/* Whether no more than one stream was ever known: then all memory is in its order. */
static inline bool glk_clock_alone(const struct glk_streams *streams)
{
	return streams->entered < 2;
}

/* Whether all work of a use has finished, as far as is known without asking. */
bool glk_clock_finished(struct glk_streams *streams, const struct glk_use *use);
/* Drops the streams whose work has finished from a use. */
void glk_clock_forget(struct glk_streams *streams, struct glk_use *use);
/* Stream waits needed before `stream` may reuse the memory: 0 if it is ordered already. */
unsigned glk_clock_waits(struct glk_streams *streams, const struct glk_use *use,
	const struct glk_stream *stream);
/* Inserts them. The use is the stream's own afterwards. 0 or the driver's error. */
int glk_clock_order(
	struct glk_streams *streams, struct glk_use *use, struct glk_stream *stream);
/* Asks the events in flight. Whether anything was learned. */
bool glk_clock_ask(struct glk_streams *streams);
/* The same, and records one on each stream with frees that none covers. */
bool glk_clock_poll(struct glk_streams *streams);
/* Waits for all work of the GPU. 0 or the driver's error. */
int glk_clock_sync(struct glk_streams *streams);

/*
 * limbo.c. One limbo stands for one batch of removals.
 */
struct glk_limbo {
	struct glk_streams *streams;
	bool graced;
};

#define GLK_LIMBO(s)                                                                     \
	{                                                                                \
		.streams = (s)                                                           \
	}

/* Whether both clocks allow the mapping of a slot to go (the second by waiting, briefly). */
bool glk_limbo_ready(
	const struct glk_limbo *limbo, const struct glk_span *span, uint32_t slot);
/* Unmaps a run of slots that are ready and in use by nobody. -EAGAIN with nothing changed if
 * one is not ready, else as glk_slots_detach(). */
int glk_limbo_unmap(
	struct glk_limbo *limbo, struct glk_span *span, uint32_t first, uint32_t last);
/* Unmaps an idle page everywhere and releases it. -EAGAIN with nothing changed while a mapping
 * is not ready; the driver's error when the page was lost. */
int glk_limbo_release(struct glk_limbo *limbo, struct glk_map *map, uint32_t page);
/* Unmaps what was mapped by the request itself and never used on the GPU: needs no clock. */
int glk_limbo_undo(struct glk_span *span, uint32_t slot);

#endif
