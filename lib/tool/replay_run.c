/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One pass over a trace and what it changed. The library keeps its memory from pass to pass,
 * so figures are differences. The blocks that the trace leaves alive are freed after the
 * pass, outside of all that is measured: the next pass begins where the first one did, but
 * with the memory at hand.
 */
#include "tool/replay_worker.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

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
