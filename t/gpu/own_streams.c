/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The default streams of threads on a real GPU: what other threads freed on theirs is had behind an
 * event on the legacy stream, not before their work is done, and not where a capture would see it.
 */
#include "gpu.h"

#include <pthread.h>
#include <sched.h>

#include <glake/glake.h>
#include <glake/memory.h>
#include <glake/stats.h>

#define MIB	((size_t)1 << 20)
#define BLOCK	(32 * MIB)
#define THREADS 500
#define MOST	(64 * MIB)
#define OWN	GLK_STREAM_PER_THREAD
#define TRIALS	2000

static struct glk_drv *drv;
static struct gpu_extra cuda;
static struct glake *ctx;
static struct gate gate;
static pthread_barrier_t together;

static size_t reserved(void)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	must(glake_stats_get(ctx, 0, &stats), "no stats");
	return (size_t)stats.reserved;
}

static unsigned long events(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	must(glake_driver_stats_get(ctx, &stats), "no figures of the driver");
	return (unsigned long)stats.calls[GLAKE_CALL_EVENT_RECORD];
}

static void open_with(const char *budget)
{
	const char *const settings[] = {budget, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};

	must(glake_open(&options, &ctx), "glake_open");
}

static void *use_one(void *arg)
{
	void *p = NULL;

	if (!glake_alloc(ctx, 0, 20000, OWN, 0, &p) &&
		!drv->ops->fill(drv, (uint64_t)(uintptr_t)p, 1, 5000, OWN) &&
		!glake_free(ctx, p, OWN))
		++*(int *)arg;
	return NULL;
}

static void one_after_the_other(void)
{
	pthread_t thread;
	int served = 0;

	open_with("pool.budget=1GiB");
	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&thread, NULL, use_one, &served))
			tap_bail("no thread");
		pthread_join(thread, NULL);
	}
	is_int(served, THREADS, "threads are served, one after the other");
	ok(reserved() <= MOST, "  and little is held: %zu MiB", reserved() / MIB);
	is_done(glake_trim(ctx, 0, 0, NULL), "  trimmed");
	is_int((int64_t)reserved(), 0, "  nothing is");
	must(glake_close(ctx, NULL), "glake_close");
}

/* Frees a block behind work that waits at the gate. */
static void *leave_one(void *arg)
{
	void *p = NULL;

	cuda.context_set(cuda.primary);
	must(glake_alloc(ctx, 0, BLOCK, OWN, 0, &p), "alloc");
	must(gate_close(&cuda, &gate, OWN), "hold the thread's stream");
	must(drv->ops->fill(drv, (uint64_t)(uintptr_t)p, 0x11111111, BLOCK / 4, OWN),
		"fill");
	must(glake_free(ctx, p, OWN), "free");
	*(void **)arg = p;
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	return NULL;
}

static void *open_soon(void *arg)
{
	struct timespec moment = {.tv_nsec = 300000000};

	nanosleep(&moment, NULL);
	gate_open(&gate);
	return arg;
}

/* The budget holds one block: who asks for it waits for the other thread's stream, dead or alive. */
static void handed_over(bool lives)
{
	struct CUstream_st *stream = NULL;
	void *first = NULL, *second = NULL;
	pthread_t thread, opener;
	uint64_t *words = malloc(BLOCK);
	double begun;

	open_with("pool.budget=32MiB");
	must(drv->ops->stream_new(drv, 0, &stream), "no stream");
	pthread_barrier_init(&together, NULL, 2);
	if (!words || pthread_create(&thread, NULL, leave_one, &first))
		tap_bail("no thread");
	pthread_barrier_wait(&together);
	if (!lives) {
		pthread_barrier_wait(&together);
		pthread_join(thread, NULL);
	}
	if (pthread_create(&opener, NULL, open_soon, NULL))
		tap_bail("no thread");
	begun = now_s();
	is_done(glake_alloc(ctx, 0, BLOCK, stream, 0, &second),
		lives ? "what a living thread left is served"
		      : "what an ended thread left is served");
	must(pattern_write(drv, 0, (uint64_t)(uintptr_t)second, BLOCK, 7, stream),
		"write");
	ok(now_s() - begun > 0.25, "  not before its work was done: %.3f s",
		now_s() - begun);
	must(drv->ops->copy(drv, (uint64_t)(uintptr_t)words, (uint64_t)(uintptr_t)second,
		     BLOCK, stream),
		"copy");
	must(drv->ops->stream_sync(drv, 0, stream), "sync");
	is_int((int64_t)pattern_wrong(words, BLOCK, 7), 0, "  nor is it written later");
	pthread_join(opener, NULL);
	if (lives) {
		pthread_barrier_wait(&together);
		pthread_join(thread, NULL);
	}
	is_int(gate.late, 0, "  nor stuck");
	is_done(glake_free(ctx, second, stream), "  it goes back");
	pthread_barrier_destroy(&together);
	free(words);
	must(glake_close(ctx, NULL), "glake_close");
	must(drv->ops->stream_free(drv, 0, stream), "stream_free");
}

/* Another thread's memory is wanted while streams that wait for the legacy one capture. */
struct capturer {
	int mode, bad, own;
	struct CUstream_st *stream;
};

static void *capture(void *arg)
{
	struct capturer *c = arg;
	struct CUstream_st *s = c->own ? OWN : c->stream;
	void *p = NULL;

	cuda.context_set(cuda.primary);
	must(glake_alloc(ctx, 0, BLOCK, s, 0, &p), "alloc");
	for (int i = 0; i < TRIALS; i++) {
		void *graph = NULL;
		int err = cuda.begin_capture(s, c->mode);

		if (!err) {
			err = drv->ops->fill(drv, (uint64_t)(uintptr_t)p, 3, 16, s);
			sched_yield();
			c->bad += err != 0;
			err = cuda.end_capture(s, &graph);
		}
		if (err || !graph) {
			c->bad++;
			tap_note("capture %d in mode %d: error %d", i, c->mode, err);
		}
		if (graph)
			cuda.graph_destroy(graph);
	}
	must(glake_free(ctx, p, s), "free");
	return NULL;
}

static void *leave_many(void *arg)
{
	int *bad = arg;

	cuda.context_set(cuda.primary);
	for (int i = 0; i < TRIALS; i++) {
		void *p = NULL;

		*bad += glake_alloc(ctx, 0, 8 * MIB + (size_t)i % 5 * MIB, OWN, 0, &p) !=
			0;
		*bad += glake_free(ctx, p, OWN) != 0;
	}
	return NULL;
}

static void beside_captures(int mode, bool own)
{
	struct capturer c = {.mode = mode, .own = own};
	struct CUstream_st *stream = NULL;
	int bad[4] = {0}, failed = 0;
	pthread_t thread[5];

	open_with("pool.budget=160MiB");
	/* a stream of the program that waits for the legacy one */
	if (!own) {
		int (*make)(struct CUstream_st * *s, unsigned flags);
		void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

		*(void **)&make = lib ? dlsym(lib, "cuStreamCreate") : NULL;
		cuda.context_set(cuda.primary);
		if (!make || make(&c.stream, 0))
			tap_bail("cuStreamCreate");
	}
	must(drv->ops->stream_new(drv, 0, &stream), "no stream");
	for (int i = 0; i < 4; i++)
		if (pthread_create(&thread[i], NULL, leave_many, &bad[i]))
			tap_bail("no thread");
	if (pthread_create(&thread[4], NULL, capture, &c))
		tap_bail("no thread");
	for (int i = 0; i < TRIALS; i++) {
		void *p = NULL;

		failed += glake_alloc(ctx, 0, 32 * MIB, stream, 0, &p) != 0;
		if (p)
			failed += glake_free(ctx, p, stream) != 0;
		if (i % 500 == 499)
			failed += glake_trim(ctx, 0, 0, NULL) != 0;
	}
	for (int i = 0; i < 5; i++)
		pthread_join(thread[i], NULL);
	tap_note("captures in mode %d of %s", mode,
		own ? "a thread's own stream" : "a stream that waits");
	is_int(c.bad, 0, "captures are not disturbed");
	is_int(bad[0] + bad[1] + bad[2] + bad[3], 0, "  and threads are served");
	is_int(failed, 0, "  and others with what they left");
	is_done(glake_trim(ctx, 0, 0, NULL), "  which is trimmed");
	is_int((int64_t)reserved(), 0, "  to nothing");
	tap_note("%lu events were recorded", events());
	must(glake_close(ctx, NULL), "glake_close");
	must(drv->ops->stream_free(drv, 0, stream), "stream_free");
}

int main(void)
{
	drv = gpu_open();
	tap_plan_later();
	cuda = gpu_extra();
	one_after_the_other();
	handed_over(true);
	handed_over(false);
	for (int mode = 0; mode < 3; mode++) {
		beside_captures(mode, false);
		beside_captures(mode, true);
	}
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
