/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_TRACE_H
#define GLAKE_TRACE_H

#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

/*
 * Recorded traces: the format of the file that a program writes while the key trace.file of
 * its configuration, or GLAKE_TRACE_FILE in its environment, names one, or while it is asked to at
 * its socket (glakectl trace record). `glakectl replay`
 * replays such a file, `glakectl trace` shows what is in it and converts it. There is no
 * function here; this header is for programs that read these files themselves.
 *
 * A file is a header of `header_size` bytes and chunks of `chunk_size` bytes behind it, all
 * numbers in the byte order of the machine that recorded, which is little endian. A chunk is
 * an array of events of `event_size` bytes and has one writer at a time, so its events are in
 * the order of their times; events of several chunks are put in order by merging them by time,
 * and at equal times by the number of the chunk. The first event of a chunk is of kind
 * GLAKE_TRACE_THREAD and says whose events follow; when another thread goes on in a chunk,
 * there is another one. The event of kind 0 ends a chunk, and the rest of the chunk is of no
 * meaning.
 *
 * While a program writes the file it holds a lock on it (flock). What has a time until which its
 * clock (CLOCK_MONOTONIC) has come when reading begins depends only on events that are in the file
 * by then; what comes later may not be complete.
 *
 * An event is complete as soon as its `what` is not 0, and that is written last, so the file of
 * a program that runs or was killed is as good as that of one that has ended; only its size
 * may be larger than its contents, which end behind chunk number `chunks`. What the writer
 * could not record any more has times of `end_ns` or later; what else has such a time is to be
 * left out, so that the rest is all that happened before.
 *
 * The time of an allocation is taken behind it and the time of a free before, so that whoever
 * gets a block that another thread has freed stands behind that free.
 */
#define GLAKE_TRACE_MAGIC      "\x89glake\n\x1a" /* 8 bytes, without a zero behind */
#define GLAKE_TRACE_MAGIC_SIZE 8
#define GLAKE_TRACE_VERSION    2	 /* 1 has no KV caches, and is read as well */
#define GLAKE_TRACE_NEVER      INT64_MAX /* `end_ns` of a trace that has all events */

struct glake_trace_header {
	unsigned char magic[GLAKE_TRACE_MAGIC_SIZE];
	uint32_t version; /* GLAKE_TRACE_VERSION; readers refuse later ones */
	uint32_t header_size, chunk_size, event_size;
	uint64_t chunks;   /* in use, from the first on */
	uint64_t dropped;  /* events that were not recorded */
	int64_t end_ns;	   /* GLAKE_TRACE_NEVER, or from when on some are missing */
	int64_t closed_ns; /* when the context was closed; 0: it was not */
	int64_t start_ns;  /* CLOCK_MONOTONIC where the times of events are 0 */
	int64_t start_realtime_ns; /* the time of day then, since 1970 */
	uint64_t pid;
	uint32_t devices; /* GPUs of the context; 0: not known */
	char backend[12]; /* "cuda" or "soft" */
	char library[32]; /* version of glake */
	char program[256];
	/* 1: recording began while the program ran, so events name blocks that were live then and
	 * that the trace does not have; 0, also in files that have no more than what is above. */
	uint32_t midway;
	uint32_t unused; /* 0 */
};

struct glake_trace_event {
	int64_t ns; /* since start_ns */
	uint64_t address;
	uint64_t stream; /* CUstream */
	uint64_t what;	 /* size << 16 | kind << 8 | GPU */
};

/* What an event has in `address`, `size` and `stream`. New kinds come with a new version. */
enum glake_trace_kind {
	GLAKE_TRACE_NONE = 0,
	/* name of a thread, 8 bytes; its lane << 24 | its id; 8 more bytes of its name. Two
	 * threads have one lane only if one of them began after the other had ended. */
	GLAKE_TRACE_THREAD = 1,
	/* block; bytes asked for; stream */
	GLAKE_TRACE_ALLOC = 2,
	GLAKE_TRACE_ALLOC_CONTIGUOUS = 3,
	/* errno value; bytes asked for, GLAKE_TRACE_SIZE_MAX at most; stream */
	GLAKE_TRACE_ALLOC_FAILED = 4,
	/* block; 0; stream */
	GLAKE_TRACE_FREE = 5,
	/* block; number of events; stream of its allocation */
	GLAKE_TRACE_FREE_AFTER = 6,
	/* pointer; errno value; stream */
	GLAKE_TRACE_FREE_FAILED = 7,
	/* block; 0; stream that uses it too */
	GLAKE_TRACE_USE = 8,
	/* 0; 0; stream */
	GLAKE_TRACE_STREAM_END = 9,
	/* CUevent; 0; stream: dependencies that the program told of */
	GLAKE_TRACE_EVENT_RECORDED = 10,
	GLAKE_TRACE_STREAM_WAITED = 11,
	/* bytes; 0; 0 */
	GLAKE_TRACE_BUDGET = 12,
	/* bytes to keep; bytes released; 0 */
	GLAKE_TRACE_TRIM = 13,
	/* id.low; id.high, the lower 48 bits; stream, 0 with a filter. Of glake_pool_hold there is no
	 * event; glake_pool_restore is told as the frees and allocations that it makes. */
	GLAKE_TRACE_POOL_BEGIN = 14,
	GLAKE_TRACE_POOL_END = 15,
	GLAKE_TRACE_POOL_RELEASE = 16,
	/* KV caches, calls that were served: the cache, by its first address; the number of the slot << 32 | tokens;
	 * stream. Of open its bytes; of fork the new slot; of step how many sequences were given a length, and all
	 * their tokens, 2^32 - 1 at most; of publish, withdraw and what prefixes do slot 0; of layers that are done and
	 * waited for the first lane in place of tokens. */
	GLAKE_TRACE_KV_OPEN = 17,
	GLAKE_TRACE_KV_CLOSE = 18,
	GLAKE_TRACE_KV_NEW = 19,
	GLAKE_TRACE_KV_GROW = 20,
	GLAKE_TRACE_KV_STEP = 21,
	GLAKE_TRACE_KV_TRIM = 22,
	GLAKE_TRACE_KV_FREE = 23,
	GLAKE_TRACE_KV_FORK = 24,
	GLAKE_TRACE_KV_PUBLISH = 25,
	GLAKE_TRACE_KV_ADOPT = 26,
	GLAKE_TRACE_KV_WITHDRAW = 27,
	GLAKE_TRACE_KV_SPILL = 28,
	GLAKE_TRACE_KV_FETCH = 29,
	GLAKE_TRACE_KV_PREFIX_SPILL = 30,
	GLAKE_TRACE_KV_PREFIX_FETCH = 31,
	GLAKE_TRACE_KV_LAYER_GROW = 32,
	GLAKE_TRACE_KV_LAYER_DONE = 33,
	GLAKE_TRACE_KV_LAYER_WAIT = 34,
	GLAKE_TRACE_KINDS = 35,
};

#define GLAKE_TRACE_SIZE_MAX (((uint64_t)1 << 48) - 1)
#define GLAKE_TRACE_LANE_MAX (((uint64_t)1 << 24) - 1)

static inline uint64_t glake_trace_what(unsigned kind, unsigned device, uint64_t size)
{
	return size << 16 | (uint64_t)kind << 8 | device;
}

static inline unsigned glake_trace_kind(uint64_t what)
{
	return (unsigned)(what >> 8) & 0xff;
}

static inline unsigned glake_trace_device(uint64_t what)
{
	return (unsigned)what & 0xff;
}

static inline uint64_t glake_trace_size(uint64_t what)
{
	return what >> 16;
}

GLAKE_END_DECLS

#endif
