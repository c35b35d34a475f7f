/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The calls of worst of bench-more, each between two reads of the clock, and what is kept of them.
 * Whether something was mapped for a request is asked of the driver's figures, outside of the
 * time.
 */
#include "worst.h"

#include <stdlib.h>
#include <time.h>

#define CLOCK_READS 1001
#define PAIRS	    20000

int64_t worst_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

int64_t worst_clock_cost(void)
{
	int64_t costs[CLOCK_READS];

	for (int i = 0; i < CLOCK_READS; i++) {
		int64_t before = worst_now();

		costs[i] = worst_now() - before;
	}
	qsort(costs, CLOCK_READS, sizeof(costs[0]), by_value);
	return costs[CLOCK_READS / 2];
}

/* The lock's time begins anew last: to look at the figures holds it too. */
int worst_begin(struct worst_scene *scene)
{
	scene->watched = true;
	return glake_stats_reset(scene->last, scene->device);
}

static int note_hold(struct worst_scene *scene)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	int err = glake_stats_get(scene->last, scene->device, &stats);

	if (!err)
		worst_note(scene, WORST_HOLD, stats.hold_max);
	return err;
}

/* After each call, so that it is that call's. */
static int end_call(struct worst_scene *scene)
{
	int err = scene->watched ? note_hold(scene) : 0;

	return err || !scene->watched ? err
				      : glake_stats_reset(scene->last, scene->device);
}

int worst_end(struct worst_scene *scene)
{
	int err = note_hold(scene);

	scene->watched = false;
	return err;
}

static void note_quickest(struct worst_quickest *quickest, size_t nth, double ns)
{
	if (nth == quickest->room) {
		size_t room = quickest->room ? 2 * quickest->room : 1024;
		double *grown = realloc(quickest->ns, room * sizeof(*grown));

		if (!grown)
			abort();
		quickest->ns = grown;
		quickest->room = room;
	}
	if (nth == quickest->used) {
		quickest->ns[nth] = ns;
		quickest->used++;
	} else if (quickest->ns[nth] > ns) {
		quickest->ns[nth] = ns;
	}
}

void worst_note(struct worst_scene *scene, enum worst_figure figure, int64_t ns)
{
	double value = ns > 0 ? (double)ns : 0;

	if (!scene->watched)
		return;
	if (scene->figure[figure] < value)
		scene->figure[figure] = value;
	note_quickest(&scene->quickest[figure], scene->noted[figure]++, value);
}

/* Calls that change what is mapped, and the others but for questions about a stream. */
static void count_calls(
	const struct worst_scene *scene, uint64_t *mapping, uint64_t *others)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	*mapping = *others = 0;
	if (glake_driver_stats_get(scene->last, &stats))
		return;
	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		if (i <= GLAKE_CALL_IMPORT || i == GLAKE_CALL_COPY)
			*mapping += stats.calls[i];
		else if (i != GLAKE_CALL_OTHER)
			*others += stats.calls[i];
	}
}

int worst_take(struct worst_scene *scene, size_t size, struct CUstream_st *stream,
	void **ret_ptr)
{
	uint64_t mapping[2] = {0}, others[2] = {0};
	int64_t start;
	int err;

	if (!scene->watched)
		return glake_alloc(scene->last, scene->device, size, stream, 0, ret_ptr);
	count_calls(scene, &mapping[0], &others[0]);
	start = worst_now();
	err = glake_alloc(scene->last, scene->device, size, stream, 0, ret_ptr);
	start = worst_now() - start - scene->clock_cost;
	count_calls(scene, &mapping[1], &others[1]);
	if (err)
		return err;
	worst_note(
		scene, mapping[0] == mapping[1] ? WORST_REQUEST : WORST_MAPPING, start);
	if (mapping[0] == mapping[1] && scene->calls < others[1] - others[0])
		scene->calls = others[1] - others[0];
	return end_call(scene);
}

int worst_give(struct worst_scene *scene, void **ptr, struct CUstream_st *stream)
{
	int64_t start = worst_now();
	int err = glake_free(scene->last, *ptr, stream);

	worst_note(scene, WORST_FREE, worst_now() - start - scene->clock_cost);
	*ptr = NULL;
	return err ? err : end_call(scene);
}

int worst_take_all(struct worst_scene *scene, size_t size, struct CUstream_st *stream)
{
	int err = 0;

	for (unsigned i = 0; i < scene->count && !err; i++)
		err = worst_take(scene, size, stream, &scene->block[i]);
	return err;
}

int worst_give_all(struct worst_scene *scene, struct CUstream_st *stream)
{
	int err = 0;

	for (unsigned i = 0; i < scene->count && !err; i++)
		err = worst_give(scene, &scene->block[i], stream);
	return err;
}

int worst_streams(struct worst_scene *scene, unsigned count)
{
	int err = 0;

	for (unsigned i = 0; i < count && !err; i++)
		err = glake_stream_new(scene->last, scene->device, &scene->stream[i]);
	return err;
}

unsigned worst_random(uint32_t *state, unsigned range)
{
	*state = (uint32_t)((uint64_t)*state * 48271 % 2147483647);
	return (unsigned)((uint64_t)*state * range / 2147483647);
}

void worst_shuffle(struct worst_scene *scene)
{
	uint32_t state = 7;

	for (unsigned i = scene->count - 1; i > 0; i--) {
		unsigned other = worst_random(&state, i + 1);
		void *block = scene->block[i];

		scene->block[i] = scene->block[other];
		scene->block[other] = block;
	}
}

int worst_pairs(struct worst_scene *scene, unsigned streams, size_t size)
{
	int64_t start = 0;
	int err = 0;

	/* the first time for nothing */
	for (unsigned i = 0; i < streams + 1 + PAIRS && !err; i++) {
		struct CUstream_st *stream = streams ? scene->stream[i % streams] : NULL;
		void *ptr;

		if (i == streams + 1)
			start = worst_now();
		err = glake_alloc(scene->last, scene->device, size, stream, 0, &ptr);
		if (!err)
			err = glake_free(scene->last, ptr, stream);
	}
	worst_note(scene, WORST_PAIR, (worst_now() - start) / PAIRS);
	return err;
}
