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
#include "tool/replay_worker.h"

#include "tool/progress.h"

#include <sched.h>
#include <string.h>

#define WINDOW	      256u
#define POSITION_END  UINT32_MAX
#define PROGRESS_STEP 4096u

void replay_worker_note(struct replay_worker *worker, const struct trace_event *event,
	uint32_t at, int err)
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

void replay_worker_torn(
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

void replay_worker_keep_peaks(struct replay_worker *worker, struct glake_stats *stats)
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

void replay_worker_play_all(struct replay_worker *worker)
{
	size_t count = worker->run->trace->count;

	for (uint32_t at = 0; at < count; at++)
		play(worker, at);
}

void replay_worker_play_share(struct replay_worker *worker)
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
