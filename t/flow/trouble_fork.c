/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fork in the middle of hits: threads allocate and free as fast as they can while the process
 * forks again and again. Each child finds the tables as they stood in mid-step, is answered
 * without looking at them, and the parent's figures are exact at the end.
 */
#include "context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define FORKS	200
#define THREADS 4
#define STUCK_S 100

static struct glake *ctx;
static atomic_bool stop;
static atomic_int wrong;
static _Atomic(uint64_t) turns;

static void *hit(void *arg)
{
	static const size_t size[] = {512, 4096, 60 << 10, MIB / 4};
	struct CUstream_st *stream = arg;
	uint64_t served = 0;
	void *p;

	for (; !atomic_load(&stop); served++) {
		if (glake_alloc(ctx, 0, size[served % 4], stream, 0, &p) ||
			glake_free(ctx, p, stream))
			atomic_fetch_add(&wrong, 1);
		if (served % 64 == 0)
			atomic_fetch_add(&turns, 64);
	}
	return (void *)(uintptr_t)served;
}

/* A thread that a child starts has no seat yet. */
static void *begin(void *arg)
{
	void *p;

	return (void *)(uintptr_t)(glake_alloc(ctx, 0, 512, NULL, 0, &p) == -ENODEV &&
		flow_error().error_class == GLAKE_ERROR_FORKED &&
		!glake_free(ctx, arg, NULL));
}

static bool begins_threads(void *ptr)
{
	void *fine = (void *)1;
	pthread_t thread;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return true; /* the one starts none after a fork, the other may deadlock in its malloc */
#endif
	return !pthread_create(&thread, NULL, begin, ptr) &&
		!pthread_join(thread, &fine) && fine;
}

/* Bits of what a child finds wrong. */
static int child(void *ptr, struct CUstream_st *stream)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glake_driver_stats calls = {.sz = sizeof(calls)};
	struct glake_block what = {.sz = sizeof(what)};
	void *none = NULL;
	size_t leaked = 1, bytes;
	int bits = 0;

	bits |= (glake_alloc(ctx, 0, 512, stream, 0, &none) != -ENODEV || none) << 0;
	bits |= (flow_error().error_class != GLAKE_ERROR_FORKED) << 1;
	bits |= (glake_alloc(ctx, 0, 9 * MIB, stream, 0, &none) != -ENODEV) << 1;
	bits |= (glake_free(ctx, ptr, stream) != 0) << 2;
	bits |= (glake_stats_get(ctx, 0, &stats) != -ENODEV) << 3;
	bits |= (glake_driver_stats_get(ctx, &calls) != -ENODEV) << 3;
	bits |= (glake_query(ctx, ptr, &what) != -ENODEV) << 4;
	bits |= (glake_trim(ctx, 0, 0, &bytes) != -ENODEV) << 4;
	bits |= (glake_budget_set(ctx, 0, GIB) != -ENODEV) << 5;
	bits |= (glake_stream_free(ctx, 0, stream) != -ENODEV) << 5;
	bits |= (glake_device_count(ctx) != -ENODEV) << 5;
	bits |= !begins_threads(ptr) << 6;
	bits |= (glake_close(ctx, &leaked) != 0 || leaked) << 7;
	return bits;
}

static int run_child(void *ptr, struct CUstream_st *stream)
{
	pid_t pid = flow_fork(STUCK_S);

	if (!pid)
		_exit(child(ptr, stream));
	return flow_wait(pid);
}

int main(void)
{
	struct CUstream_st *stream[THREADS] = {0};
	pthread_t thread[THREADS];
	struct glake_stats stats;
	uint64_t served = 1;
	int bits = 0, i;
	void *ret;
	char *p;

	tap_plan_later();
	ctx = flow_open((const char *const[]){"map.span=64GiB", NULL});
	p = flow_alloc(ctx, 5 * MIB, NULL);
	memset(p, 0x5a, 5 * MIB);
	/* the last two threads share a stream */
	for (i = 0; i < THREADS; i++) {
		if (i < THREADS - 1 && glake_stream_new(ctx, 0, &stream[i]))
			tap_bail("no stream");
		if (i == THREADS - 1)
			stream[i] = stream[i - 1];
		pthread_create(&thread[i], NULL, hit, stream[i]);
	}
	for (i = 0; i < FORKS && !bits; i++) {
		uint64_t seen = atomic_load(&turns);

		bits = run_child(p, stream[0]);
		while (atomic_load(&turns) == seen)
			sched_yield();
	}
	is_int(bits, 0, "children are answered");
	is_int(i, FORKS, "all of them");
	atomic_store(&stop, true);
	for (i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &ret);
		served += (uintptr_t)ret;
	}
	is_int(atomic_load(&wrong), 0, "the parent's threads were served all the while");
	ok(p[0] == 0x5a && p[5 * MIB - 1] == 0x5a, "its memory is as it was");
	is_int(glake_free(ctx, p, NULL), 0, "and freed by none but it");
	stats = flow_stats(ctx, 0);
	is_int(stats.allocs, served, "its figures have every request");
	is_int(stats.frees, served, "and every free");
	is_int(stats.live + stats.given, 0, "nothing is live");
	ok(stats.misses < served / 8, "%" PRIu64 " of %" PRIu64 " requests were misses",
		stats.misses, served);
	for (i = 0; i < THREADS - 1; i++)
		is_int(glake_stream_free(ctx, 0, stream[i]), 0, "a stream ends");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	is_int(flow_stats(ctx, 0).reserved, 0, "to nothing");
	flow_close(ctx, 0);
	return tap_done();
}
