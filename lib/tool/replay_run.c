/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The inner loop of a replay: every event becomes one call of the library, timed by two reads
 * of the clock, and nothing else happens between those two. What it needs besides is an index
 * into two arrays, and what --working-set asks for.
 *
 * Threads	The trace's threads, or its streams if it has one thread, are dealt out in
 *		turn; each worker keeps the order of all that it was dealt. A worker that
 *		frees another's block waits until it was allocated; the entry in `blocks` is
 *		the hand-over. No worker runs more than WINDOW events of the trace ahead of
 *		the slowest, so live memory stays near the trace's.
 * Progress	the worker at the earliest event waits for nobody: a block it frees was
 *		allocated by an earlier event, which no worker still has before it.
 */
#include "tool/replay.h"

#include "base/atomic.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

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

/*
 * Contents of blocks during a replay: one block in sixteen is marked at its first and last words
 * when it was given, and looked at when it is freed. So memory that two blocks have at once, and
 * contents that a move has lost, are found. It is done from the host, where the memory of the
 * software device lies.
 */
#define EVERY 16u

/* Blocks that are too small for two words have none. */
static bool is_marked(const struct replay_run *run, uint32_t block, uint64_t size)
{
	return run->check && block % EVERY == 0 && size >= 2 * sizeof(uint64_t);
}

/* Another one for each block, pass and place. */
static uint64_t mark_of(const struct replay_run *run, uint32_t block, uint64_t at)
{
	return ((uint64_t)run->pass << 32 | block) * UINT64_C(0x9e3779b97f4a7c15) ^ at;
}

static uint64_t last_word(uint64_t size)
{
	return (size - sizeof(uint64_t)) & ~(uint64_t)(sizeof(uint64_t) - 1);
}

static void replay_check_mark(
	const struct replay_run *run, uint32_t block, uintptr_t ptr, uint64_t size)
{
	if (!is_marked(run, block, size))
		return;
	*(uint64_t *)ptr = mark_of(run, block, 0);
	*(uint64_t *)(ptr + last_word(size)) = mark_of(run, block, last_word(size));
}

static bool replay_check_is_whole(
	const struct replay_run *run, uint32_t block, uintptr_t ptr, uint64_t size)
{
	return !is_marked(run, block, size) ||
		(*(uint64_t *)ptr == mark_of(run, block, 0) &&
			*(uint64_t *)(ptr + last_word(size)) ==
				mark_of(run, block, last_word(size)));
}

#define WINDOW	      256u
#define POSITION_END  UINT32_MAX
#define PROGRESS_STEP 4096u

static void replay_worker_note(struct replay_worker *worker,
	const struct trace_event *event, uint32_t at, int err)
{
	struct glake_error record = {.sz = sizeof(record)};
	bool is_free = event->block & TRACE_FREE_BIT;

	if (worker->failed + worker->refused == 1) {
		bool known = !glake_last_error(&record) && record.err == err;

		worker->first_failed = at;
		snprintf(worker->failure, sizeof(worker->failure),
			"event %u, %s of %llu bytes: %s", at + 1,
			is_free ? "free" : "allocate", (unsigned long long)event->size,
			known && record.text[0] ? record.text : strerror(-err));
	}
}

static void replay_worker_torn(
	struct replay_worker *worker, const struct trace_event *event, uint32_t at)
{
	worker->refused++;
	if (worker->failed + worker->refused > 1)
		return;
	worker->first_failed = at;
	snprintf(worker->failure, sizeof(worker->failure),
		"event %u, free of %llu bytes: the block has not kept what was written",
		at + 1, (unsigned long long)event->size);
}

/* The program at work: each line of its data is read and written, and those of the library leave the caches. */
static void work(struct replay_worker *worker)
{
	glk_atomic(unsigned char) *data = worker->work;

	for (size_t i = 0; i < worker->run->working_set; i += 64)
		glk_store_relaxed(&data[i], glk_load_relaxed(&data[i]) + 1);
}

static void play_allocate(
	struct replay_worker *worker, const struct trace_event *event, uint32_t at)
{
	struct replay_run *run = worker->run;
	struct CUstream_st *stream = run->streams[event->stream];
	void *ptr = NULL;
	int64_t before, after;
	int err;

	work(worker);
	before = latency_now();
	err = glake_alloc(run->ctx, 0, event->size, stream, 0, &ptr);
	after = latency_now();
	latency_add(&worker->malloc_ns, after - before - run->clock_cost);
	if (err) {
		worker->failed++;
		replay_worker_note(worker, event, at, err);
	} else {
		replay_check_mark(run, event->block, (uintptr_t)ptr, event->size);
	}
	/* pairs with the acquire in play_free */
	glk_store_release(
		&run->blocks[event->block], err ? BLOCK_FAILED : (uintptr_t)ptr);
}

static void play_free(
	struct replay_worker *worker, const struct trace_event *event, uint32_t at)
{
	struct replay_run *run = worker->run;
	struct CUstream_st *stream = run->streams[event->stream];
	glk_atomic(uintptr_t) *block = &run->blocks[event->block & ~TRACE_FREE_BIT];
	int64_t before, after;
	uintptr_t ptr;
	int err;

	/* pairs with the release in play_allocate */
	while ((ptr = glk_load_acquire(block)) == BLOCK_NONE)
		sched_yield();
	if (ptr == BLOCK_FAILED)
		return;
	if (!replay_check_is_whole(run, event->block & ~TRACE_FREE_BIT, ptr, event->size))
		replay_worker_torn(worker, event, at);
	work(worker);
	before = latency_now();
	err = glake_free(run->ctx, (void *)ptr, stream);
	after = latency_now();
	latency_add(&worker->free_ns, after - before - run->clock_cost);
	if (err) {
		worker->refused++;
		replay_worker_note(worker, event, at, err);
	}
}

static void replay_worker_keep_peaks(
	struct replay_worker *worker, struct glake_stats *stats)
{
	if (worker->hold_ns < stats->hold_max)
		worker->hold_ns = stats->hold_max;
	if (worker->peak_reserved < stats->peak_reserved)
		worker->peak_reserved = stats->peak_reserved;
	if (worker->peak_host < stats->peak_host_held)
		worker->peak_host = stats->peak_host_held;
}

/* To look holds the lock too, which is no part of the job: so the peaks begin anew. */
static void take_sample(struct replay_worker *worker, struct replay_sample *sample)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glake *ctx = worker->run->ctx;
	int64_t before = latency_now();

	if (!glake_stats_get(ctx, 0, &stats)) {
		sample->live = stats.live;
		sample->reserved = stats.reserved;
		replay_worker_keep_peaks(worker, &stats);
		glake_stats_reset(ctx, 0);
	}
	worker->sampling_ns += latency_now() - before;
}

static void play(struct replay_worker *worker, uint32_t at)
{
	struct replay_run *run = worker->run;
	const struct trace_event *event = &run->trace->events[at];

	if (event->block & TRACE_FREE_BIT)
		play_free(worker, event, at);
	else
		play_allocate(worker, event, at);
	while (worker->next_sample < run->samples_end && worker->next_sample->event < at)
		worker->next_sample++;
	if (worker->next_sample < run->samples_end && worker->next_sample->event == at)
		take_sample(worker, worker->next_sample++);
	if (!worker->index && !(at % PROGRESS_STEP))
		progress_step(at, run->trace->count);
}

static unsigned owner_of(const struct replay_run *run, const struct trace_event *event)
{
	return (run->by_stream ? event->stream : event->thread) % run->count;
}

/* Until no other worker is WINDOW events behind. */
static void wait_for_others(struct replay_worker *worker, uint32_t at)
{
	struct replay_run *run = worker->run;

	/* pairs with nothing: positions only hold back, blocks are handed over by `blocks` */
	for (unsigned i = 0; i < run->count; i++) {
		while (at > WINDOW &&
			glk_load_relaxed(&run->workers[i].position) < at - WINDOW)
			sched_yield();
	}
}

static void replay_worker_play_all(struct replay_worker *worker)
{
	size_t count = worker->run->trace->count;

	for (uint32_t at = 0; at < count; at++)
		play(worker, at);
}

static void replay_worker_play_share(struct replay_worker *worker)
{
	struct replay_run *run = worker->run;
	const struct trace *trace = run->trace;

	for (uint32_t at = 0; at < trace->count; at++) {
		if (owner_of(run, &trace->events[at]) != worker->index)
			continue;
		glk_store_relaxed(&worker->position, at);
		wait_for_others(worker, at);
		play(worker, at);
	}
	glk_store_relaxed(&worker->position, POSITION_END);
}

/*
 * One pass over a trace and what it changed. The library keeps its memory from pass to pass,
 * so figures are differences. The blocks that the trace leaves alive are freed after the
 * pass, outside of all that is measured: the next pass begins where the first one did, but
 * with the memory at hand.
 */

enum { GO_WAIT, GO_RUN, GO_GIVE_UP };

static void *worker_main(void *arg)
{
	struct replay_worker *worker = arg;
	int go;

	/* pairs with the release in run_workers */
	while ((go = glk_load_acquire(&worker->run->go)) == GO_WAIT)
		sched_yield();
	if (go == GO_RUN)
		replay_worker_play_share(worker);
	worker->end_ns = latency_now();
	return NULL;
}

/* Runs all workers, the first on this thread; says how long they took. */
static int run_workers(struct replay_run *run, int64_t *ret_wall_ns)
{
	int64_t start, end, sampling = 0;
	unsigned started = 1;
	int err = 0;

	glk_store_relaxed(&run->go, GO_WAIT);
	for (; started < run->count && !err; started += !err)
		err = -pthread_create(&run->workers[started].thread, NULL, worker_main,
			&run->workers[started]);
	start = latency_now();
	/* pairs with the acquire in worker_main */
	glk_store_release(&run->go, err ? GO_GIVE_UP : GO_RUN);
	if (!err && run->count == 1)
		replay_worker_play_all(&run->workers[0]);
	else if (!err)
		replay_worker_play_share(&run->workers[0]);
	run->workers[0].end_ns = latency_now();
	while (--started)
		pthread_join(run->workers[started].thread, NULL);
	end = start;
	for (unsigned i = 0; i < run->count; i++) {
		const struct replay_worker *worker = &run->workers[i];

		end = worker->end_ns > end ? worker->end_ns : end;
		sampling =
			worker->sampling_ns > sampling ? worker->sampling_ns : sampling;
	}
	*ret_wall_ns = end - start - sampling;
	return err;
}

static void prepare(struct replay_run *run, struct replay_sample *samples, size_t count)
{
	for (size_t i = 0; i < run->trace->blocks; i++)
		glk_store_relaxed(&run->blocks[i], BLOCK_NONE);
	run->samples_end = samples ? samples + count : NULL;
	for (unsigned i = 0; i < run->count; i++) {
		struct replay_worker *worker = &run->workers[i];
		glk_atomic(unsigned char) *work = worker->work;

		memset(worker, 0, sizeof(*worker));
		worker->work = work;
		worker->run = run;
		worker->index = i;
		worker->next_sample = samples;
	}
}

/* Blocks the trace leaves alive; not part of what is measured. */
static void free_leftovers(struct replay_run *run)
{
	const struct trace *trace = run->trace;
	struct replay_worker *worker = &run->workers[0];

	for (size_t i = 0; i < trace->leftovers; i++) {
		const struct trace_event *event = &trace->leftover[i];
		uintptr_t ptr =
			glk_load_relaxed(&run->blocks[event->block & ~TRACE_FREE_BIT]);
		int err;

		if (ptr == BLOCK_FAILED)
			continue;
		if (!replay_check_is_whole(
			    run, event->block & ~TRACE_FREE_BIT, ptr, event->size))
			replay_worker_torn(worker, event, (uint32_t)trace->count);
		err = glake_free(run->ctx, (void *)ptr, run->streams[event->stream]);
		if (err) {
			worker->refused++;
			replay_worker_note(worker, event, (uint32_t)trace->count, err);
		}
	}
}

static void collect(
	struct replay_run *run, char *failure, size_t size, struct replay_repeat *repeat)
{
	struct replay_worker *first = &run->workers[0];
	const struct replay_worker *earliest = NULL;

	for (unsigned i = 0; i < run->count; i++) {
		const struct replay_worker *worker = &run->workers[i];

		repeat->failed += worker->failed;
		repeat->refused += worker->refused;
		if (repeat->hold_ns < worker->hold_ns)
			repeat->hold_ns = worker->hold_ns;
		if (repeat->peak_reserved < worker->peak_reserved)
			repeat->peak_reserved = worker->peak_reserved;
		if (repeat->peak_host < worker->peak_host)
			repeat->peak_host = worker->peak_host;
		if (worker->failure[0] &&
			(!earliest || worker->first_failed < earliest->first_failed))
			earliest = worker;
		if (i) {
			latency_merge(&first->malloc_ns, &worker->malloc_ns);
			latency_merge(&first->free_ns, &worker->free_ns);
		}
	}
	latency_sum_up(&first->malloc_ns, &repeat->malloc_ns);
	latency_sum_up(&first->free_ns, &repeat->free_ns);
	if (earliest)
		snprintf(failure, size, "%s", earliest->failure);
}

/* after - before, for every counter. */
static void subtract(
	struct glake_driver_stats *after, const struct glake_driver_stats *before)
{
	after->now_ns -= before->now_ns;
	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		after->calls[i] -= before->calls[i];
		after->ns[i] -= before->ns[i];
	}
}

int replay_run_pass(struct replay_run *run, struct replay_sample *samples, size_t count,
	char *failure, size_t size, struct replay_repeat *ret_repeat)
{
	struct glake_stats before = {.sz = sizeof(before)}, after = {.sz = sizeof(after)};
	struct glake_driver_stats driver = {.sz = sizeof(driver)};
	struct replay_repeat repeat = {.driver.sz = sizeof(repeat.driver)};
	int err;

	prepare(run, samples, count);
	run->pass++;
	err = glake_stats_get(run->ctx, 0, &before);
	if (!err)
		err = glake_driver_stats_get(run->ctx, &driver);
	/* the peaks are of this pass alone; last, since to look holds the lock too */
	if (!err)
		err = glake_stats_reset(run->ctx, 0);
	if (!err)
		err = run_workers(run, &repeat.wall_ns);
	if (!err)
		err = glake_driver_stats_get(run->ctx, &repeat.driver);
	if (!err)
		err = glake_stats_get(run->ctx, 0, &after);
	if (err)
		return err;
	free_leftovers(run);
	subtract(&repeat.driver, &driver);
	repeat.hits = after.hits - before.hits;
	repeat.misses = after.misses - before.misses;
	repeat.oom = after.oom - before.oom;
	repeat.called = after.called - before.called;
	replay_worker_keep_peaks(&run->workers[0], &after);
	collect(run, failure, size, &repeat);
	*ret_repeat = repeat;
	return 0;
}

/* The workers, with nothing but memory of their own. */
static int make_workers(struct replay_run *run)
{
	size_t size = run->count * sizeof(*run->workers);

	run->workers = aligned_alloc(_Alignof(struct replay_worker), size);
	if (!run->workers)
		return -ENOMEM;
	memset(run->workers, 0, size);
	for (unsigned i = 0; run->working_set && i < run->count; i++) {
		run->workers[i].work = malloc(run->working_set);
		if (!run->workers[i].work)
			return -ENOMEM;
		memset(run->workers[i].work, 0, run->working_set);
	}
	return 0;
}

int replay_run_new(struct glake *ctx, const struct trace *trace,
	const struct replay_options *options, struct replay_run **ret_run)
{
	struct replay_run *run = calloc(1, sizeof(*run));
	struct CUstream_st *stream = NULL;
	size_t lanes;
	int err = 0;

	if (!run)
		return -ENOMEM;
	run->ctx = ctx;
	run->trace = trace;
	run->check = options->check;
	run->working_set = options->working_set;
	run->clock_cost = latency_clock_cost();
	run->by_stream = trace->threads < 2;
	lanes = run->by_stream ? trace->streams : trace->threads;
	run->count = lanes < options->threads ? (unsigned)lanes : options->threads;
	err = make_workers(run);
	run->blocks = calloc(trace->blocks + 1, sizeof(*run->blocks));
	run->streams = calloc(trace->streams, sizeof(struct CUstream_st *));
	if (!run->blocks || !run->streams)
		err = -ENOMEM;
	/* the driver's context of the GPU takes it 0.1 s, and is there before a program's first block */
	if (!err)
		err = glake_stream_new(ctx, 0, &stream);
	if (!err)
		err = glake_stream_free(ctx, 0, stream);
	for (size_t i = 0; i < trace->streams && !err; i++) {
		if (trace->stream_ids[i])
			err = glake_stream_new(ctx, 0, &run->streams[i]);
	}
	if (err)
		replay_run_free(run);
	else
		*ret_run = run;
	return err;
}

int replay_run_free(struct replay_run *run)
{
	int first = 0;

	if (!run)
		return 0;
	for (size_t i = 0; run->streams && i < run->trace->streams; i++) {
		int err = glake_stream_free(run->ctx, 0, run->streams[i]);

		first = first ? first : err;
	}
	free(run->streams);
	free(run->blocks);
	for (unsigned i = 0; run->workers && i < run->count; i++)
		free(run->workers[i].work);
	free(run->workers);
	free(run);
	return first;
}

unsigned replay_run_threads(const struct replay_run *run)
{
	return run->count;
}
