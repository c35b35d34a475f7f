/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A GPU that is suspended and resumed a hundred times, away and in place, eagerly and lazily, with
 * graphs of the program replayed between: kernels check every word before and after, and where they read
 * it on the host. First each way for itself with 16 GiB, where the first cycle has the memory of the host
 * to make, then all ways by turns, and the rest of the hundred by turns with 1 GiB. Times are told, and
 * which calls of the driver they went to; contents are checked. What a copy in a graph does where a side of
 * it lies on the host is told, too.
 */
#include "kernels.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define BLOCK  (64 * MIB)
#define BLOCKS 256 /* 16 GiB */
#define FEW    16  /* 1 GiB */
#define CYCLES 100
#define ALIKE  5   /* in a row, behind the first of a way */
#define TURNS  2   /* of all ways */
#define SMALL  512 /* blocks of a few KiB and a few MiB */

enum way { AWAY, IN_PLACE, LAZY, WAYS };

static const char *const way_names[WAYS] = {"away", "in place", "in place, lazily"};

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream;
static void *block[BLOCKS], *small[SMALL], *from, *to;
static void *kernels, *copies; /* graphs to launch */
static int count;
static int (*copy_async)(uint64_t to, uint64_t from, size_t size, struct CUstream_st *on);

static size_t small_size(int i)
{
	return i % 2 ? (size_t)(i % 40 + 1) * 100000 / 8 * 8 : (size_t)(i + 1) * 64;
}

static void each(uint32_t serial, bool check)
{
	for (int i = 0; i < count + SMALL; i++) {
		bool large = i < count;
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(large ? block[i] : small[i - count],
				large ? BLOCK : small_size(i - count), 1,
				serial + (uint32_t)i)};

		must_cuda(check ? gpu_check(&work, &jobs, 1, 0, 0, stream)
				: gpu_put(&work, &jobs, 1, 0, 0, stream),
			"a kernel");
	}
}

static bool holds(uint32_t serial)
{
	each(serial, true);
	return !gpu_counters_take(&work).wrong;
}

static void *end_capture(void)
{
	void *graph = NULL, *exec = NULL;

	must_cuda(work.extra.end_capture(stream, &graph), "no end of a capture");
	must_cuda(work.instantiate(&exec, graph, 0), "no graph to launch");
	must_cuda(work.extra.graph_destroy(graph), "no end of a graph");
	return exec;
}

/* One of kernels, which write a pattern of the round and check it, and one of a copy. */
static void make_graphs(void)
{
	struct gpu_jobs jobs = {.at[0] = gpu_job(to, BLOCK, 2, 9)};

	must_cuda(work.extra.begin_capture(stream, 0), "no capture");
	must_cuda(gpu_turn(&work, work.rounds, stream), "a kernel");
	must_cuda(gpu_put(&work, &jobs, 1, work.rounds, 0, stream), "a kernel");
	must_cuda(gpu_check(&work, &jobs, 1, work.rounds, 0, stream), "a kernel");
	kernels = end_capture();
	must_cuda(work.extra.begin_capture(stream, 0), "no capture");
	must_cuda(copy_async((uintptr_t)to, (uintptr_t)from, BLOCK, stream), "a copy");
	copies = end_capture();
}

static bool replays_kernels(void)
{
	must_cuda(work.graph_launch(kernels, stream), "no launch");
	return !gpu_counters_take(&work).wrong;
}

static bool replays_copy(uint32_t serial)
{
	struct gpu_jobs jobs = {.at[0] = gpu_job(from, BLOCK, 3, serial)};

	must_cuda(gpu_put(&work, &jobs, 1, 0, 0, stream), "a kernel");
	if (work.graph_launch(copies, stream) || work.sync())
		return false;
	jobs.at[0] = gpu_job(to, BLOCK, 3, serial);
	must_cuda(gpu_check(&work, &jobs, 1, 0, 0, stream), "a kernel");
	return !gpu_counters_take(&work).wrong;
}

static size_t free_memory(void)
{
	struct glake_device info = {.sz = sizeof(info)};

	must(glake_device_get(ctx, 0, &info), "the GPU tells nothing");
	return info.free;
}

/* What a cycle took, in seconds, and the calls of the driver meanwhile. */
struct times {
	double suspend, resume, quiet, read;
	double gbs, quiet_gbs; /* of the suspension and of the quiet point */
	double taken; /* MiB of what was free before that are not while it is suspended */
	struct glake_driver_stats out, back;
};

static struct glake_driver_stats driver_now(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	must(glake_driver_stats_get(ctx, &stats), "no figures of the driver");
	return stats;
}

static struct glake_driver_stats driver_since(const struct glake_driver_stats *was)
{
	struct glake_driver_stats is = driver_now();

	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		is.calls[i] -= was->calls[i];
		is.ns[i] -= was->ns[i];
	}
	return is;
}

/* The kinds of call that took a millisecond or more. */
static void tell_calls(const char *what, const struct glake_driver_stats *did, double all)
{
	char text[512];
	int at = 0;

	text[0] = '\0';
	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		if (did->ns[i] < 1000000 || at >= (int)sizeof(text))
			continue;
		at += snprintf(text + at, sizeof(text) - (size_t)at, ", %s %.3f (%llu)",
			glake_call_name(i), (double)did->ns[i] / 1e9,
			(unsigned long long)did->calls[i]);
	}
	tap_note("  %s %.3f s, by calls of the driver%s", what, all, text);
}

/* Where the words are read over the link first. */
static bool comes_lazily(uint32_t serial, struct times *t)
{
	struct glake_returned came = {.sz = sizeof(came)};
	bool right, copied;
	double begin;

	begin = now_s();
	right = holds(serial) && replays_kernels();
	t->read = now_s() - begin;
	copied = replays_copy(serial);
	if (!copied)
		tap_note("a graph's copy FAILS with a side on the host");
	must(glake_fetch(ctx, block[0], stream), "a fetch");
	begin = now_s();
	must(glake_quiet(ctx, 0, &came), "a quiet point");
	t->quiet = now_s() - begin;
	t->quiet_gbs = (double)came.returned / t->quiet / 1e9;
	return right && !came.left;
}

static size_t before; /* what was free of the GPU */
static double most_taken[WAYS];

static bool cycle(enum way way, struct times *t)
{
	struct glake_suspended did = {.sz = sizeof(did)}, back = {.sz = sizeof(back)};
	struct glake_driver_stats calls;
	static uint32_t serial;
	double begin;
	bool right;

	*t = (struct times){0};
	serial = serial % 1000000 + 5000;
	each(serial, false);
	must_cuda(work.sync(), "the GPU has gone");
	calls = driver_now();
	begin = now_s();
	must(way == AWAY ? glake_suspend(ctx, 0, &did)
			 : glake_suspend_in_place(ctx, 0, &did),
		"suspend");
	t->suspend = now_s() - begin;
	t->out = driver_since(&calls);
	t->gbs = (double)did.moved / t->suspend / 1e9;
	t->taken = ((double)before - (double)free_memory()) / (double)MIB;
	if (t->taken > most_taken[way])
		most_taken[way] = t->taken;
	calls = driver_now();
	begin = now_s();
	must(way == LAZY ? glake_resume_lazy(ctx, 0, &back) : glake_resume(ctx, 0, &back),
		"resume");
	t->resume = now_s() - begin;
	t->back = driver_since(&calls);
	right = way != LAZY || (back.stayed == did.moved && comes_lazily(serial, t));
	return right && holds(serial) && replays_kernels() && replays_copy(serial);
}

static int by_value(const void *one, const void *two)
{
	double a = *(const double *)one, b = *(const double *)two;

	return (a > b) - (a < b);
}

/* The least, the median and the most of a time. */
static void tell_times(const char *what, const struct times *times, size_t field, int n)
{
	double value[CYCLES];

	for (int i = 0; i < n; i++)
		value[i] = *(const double *)((const char *)&times[i] + field);
	qsort(value, (size_t)n, sizeof(*value), by_value);
	tap_note("  %s %.4f %.4f %.4f", what, value[0], value[n / 2], value[n - 1]);
}

/* A way for itself: memory of the host is made once. */
static int goes_alike(enum way way)
{
	struct times first, times[ALIKE];
	int torn = !cycle(way, &first);

	tap_note("%s: first suspension %.3f s, %.1f GB/s; resumption %.4f",
		way_names[way], first.suspend, first.gbs, first.resume);
	for (int i = 0; i < ALIKE; i++)
		torn += !cycle(way, &times[i]);
	tap_note("%d more, seconds, min median max, %.1f GB/s the last:", ALIKE,
		times[ALIKE - 1].gbs);
	tell_times("suspension", times, offsetof(struct times, suspend), ALIKE);
	tell_times("resumption", times, offsetof(struct times, resume), ALIKE);
	tell_times("MiB taken meanwhile", times, offsetof(struct times, taken), ALIKE);
	tell_calls(
		"the last suspension", &times[ALIKE - 1].out, times[ALIKE - 1].suspend);
	tell_calls(
		"the last resumption", &times[ALIKE - 1].back, times[ALIKE - 1].resume);
	if (way == LAZY) {
		tell_times("all read on the host", times, offsetof(struct times, read),
			ALIKE);
		tell_times("a quiet point", times, offsetof(struct times, quiet), ALIKE);
		tap_note("  which brings back %.1f GB/s", times[ALIKE - 1].quiet_gbs);
	}
	return torn;
}

/* The ways by turns, each so often, with what a way had made kept beside what the others have. */
static void by_turns(int cycles, int torn[WAYS])
{
	static struct times times[WAYS][CYCLES];
	int n[WAYS] = {0};

	for (int i = 0; i < cycles; i++) {
		int w = i % WAYS;

		torn[w] += !cycle((enum way)w, &times[w][n[w]]);
		n[w]++;
	}
	tap_note("%d cycles by turns, seconds, min median max:", cycles);
	for (int w = 0; w < WAYS; w++) {
		tap_note("%s", way_names[w]);
		tell_times("suspension", times[w], offsetof(struct times, suspend), n[w]);
		tell_times("resumption", times[w], offsetof(struct times, resume), n[w]);
		tell_times("MiB taken meanwhile", times[w], offsetof(struct times, taken),
			n[w]);
	}
}

static void a_hundred_times(void)
{
	int torn[WAYS] = {0}, done = WAYS * (1 + ALIKE + TURNS);

	for (int w = 0; w < WAYS; w++)
		torn[w] += goes_alike((enum way)w);
	by_turns(WAYS * TURNS, torn);
	for (; count > FEW; count--)
		must(glake_free(ctx, block[count - 1], stream), "a free");
	by_turns(CYCLES - done, torn);
	for (int w = 0; w < WAYS; w++)
		is_int(torn[w], 0, way_names[w]);
	for (int w = 0; w < WAYS; w++) {
		/* memory of the host in place is mapped page by page of the system, 8 bytes each */
		double tables = w == AWAY
			? 0
			: (double)BLOCKS * (double)BLOCK / 512 / (double)MIB;

		ok(most_taken[w] <= 64 + tables,
			"%s, %.0f MiB of what was free are taken", way_names[w],
			most_taken[w]);
	}
}

static void *take(size_t size)
{
	void *ptr = NULL;

	must(glake_alloc(ctx, 0, size, stream, 0, &ptr), "a block");
	return ptr;
}

static void take_all(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

	*(void **)&copy_async = cuda ? dlsym(cuda, "cuMemcpyDtoDAsync_v2") : NULL;
	if (!copy_async)
		tap_bail("cuMemcpyDtoDAsync_v2");
	count = before / 2 / BLOCK < BLOCKS ? (int)(before / 2 / BLOCK) : BLOCKS;
	for (int i = 0; i < count; i++)
		block[i] = take(BLOCK);
	for (int i = 0; i < SMALL; i++)
		small[i] = take(small_size(i));
	from = take(BLOCK);
	to = take(BLOCK);
}

int main(void)
{
	static const char *const settings[] = {"tier.host=40GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};
	struct glk_drv *drv = gpu_open();
	size_t leaked = 0;

	must(drv->ops->close(drv), "close");
	alarm(300);
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	gpu_work_init(&work);
	tap_plan_later();
	before = free_memory();
	take_all();
	make_graphs();
	a_hundred_times();
	must_cuda(work.exec_destroy(kernels), "no end of a graph");
	must_cuda(work.exec_destroy(copies), "no end of a graph");
	for (int i = 0; i < count; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	for (int i = 0; i < SMALL; i++)
		must(glake_free(ctx, small[i], stream), "a free");
	must(glake_free(ctx, from, stream), "a free");
	must(glake_free(ctx, to, stream), "a free");
	must(glake_stream_free(ctx, 0, stream), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	is_int((int64_t)leaked, 0, "nothing is left");
	return tap_done();
}
