/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_REPLAY_WORKER_H
#define GLK_TOOL_REPLAY_WORKER_H

/* The inside of a replay: a run and the threads that share it out. */
#include "tool/replay.h"

#include "base/atomic.h"

#include <pthread.h>

/* Values in `blocks` besides addresses; the library's blocks lie on 512 B. */
#define BLOCK_NONE   ((uintptr_t)0)
#define BLOCK_FAILED ((uintptr_t)1)

struct replay_worker {
	/* The event at hand or next; written by the worker, read by all. */
	_Alignas(64) glk_atomic(uint32_t) position;
	_Alignas(64) struct replay_run *run;
	unsigned index;
	pthread_t thread;
	struct latency malloc_ns, free_ns;
	uint64_t failed;       /* allocations */
	uint64_t refused;      /* frees */
	uint32_t first_failed; /* event */
	char failure[TRACE_MESSAGE_MAX];
	int64_t end_ns, sampling_ns;
	int64_t hold_ns; /* until the last sample */
	uint64_t peak_reserved, peak_host;
	struct replay_sample *next_sample;
	glk_atomic(unsigned char) *
		work; /* the program's own data; it stays from pass to pass */
};

struct replay_run {
	struct glake *ctx;
	const struct trace *trace;
	int64_t clock_cost;
	bool by_stream; /* what the workers share out: streams, else threads */
	unsigned count; /* of workers */
	struct replay_worker *workers;
	struct CUstream_st *
		*streams; /* of each stream number; NULL is the default stream */
	glk_atomic(uintptr_t) * blocks; /* present address of each block */
	glk_atomic(int) go;
	bool check;    /* contents of blocks */
	uint32_t pass; /* from 1 */
	size_t working_set;
	struct replay_sample *samples_end;
};

/* All events, in the order of the trace; for the only worker. */
void replay_worker_play_all(struct replay_worker *worker);
/* The events that are this worker's, beside the other workers. */
void replay_worker_play_share(struct replay_worker *worker);
/* Keeps the larger ones of the worker's peaks and those of the library. */
void replay_worker_keep_peaks(struct replay_worker *worker, struct glake_stats *stats);
/* Keeps the first failure of a worker; event `at`, to be called when it was counted. */
void replay_worker_note(struct replay_worker *worker, const struct trace_event *event,
	uint32_t at, int err);

/* replay_check.c: marks a block that was given, if blocks are checked and it is one of the sample; and
 * whether it still has these marks. */
void replay_check_mark(
	const struct replay_run *run, uint32_t block, uintptr_t ptr, uint64_t size);
bool replay_check_is_whole(
	const struct replay_run *run, uint32_t block, uintptr_t ptr, uint64_t size);
/* Counts a block that has not as a free that was refused. */
void replay_worker_torn(
	struct replay_worker *worker, const struct trace_event *event, uint32_t at);

#endif
