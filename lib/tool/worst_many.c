/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Patterns of bench worst that grow with the number of streams, of GPUs or of contexts. */
#include "tool/worst.h"

#define KIB ((size_t)1 << 10)

/* Pairs that miss, one stream after the other; most have nothing to do. */
static int miss(struct worst_scene *scene, unsigned streams)
{
	int err = worst_begin(scene);

	for (unsigned i = 0; i < 400 && !err; i++) {
		struct CUstream_st *stream = streams ? scene->stream[i % streams] : NULL;
		void *ptr;

		err = worst_take(scene, 100000 + i * 512, stream, &ptr);
		if (!err)
			err = worst_give(scene, &ptr, stream);
	}
	return err ? err : worst_end(scene);
}

int worst_idle_streams(struct worst_scene *scene)
{
	int err = worst_streams(scene, scene->count);

	for (unsigned i = 0; i < scene->count && !err; i++) {
		err = worst_take(scene, 2 * KIB, scene->stream[i], &scene->block[i]);
		if (!err)
			err = worst_give(scene, &scene->block[i], scene->stream[i]);
	}
	return err ? err : miss(scene, scene->count);
}

int worst_streams_in_turn(struct worst_scene *scene)
{
	int err = worst_streams(scene, scene->count);

	if (!err)
		err = worst_begin(scene);
	if (!err)
		err = worst_pairs(scene, scene->count, 4 * KIB);
	return err ? err : worst_end(scene);
}

/* Memory of each stream is free with work pending, and no page more is to be had. */
int worst_busy_streams(struct worst_scene *scene)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	void *ptr;
	int err = worst_streams(scene, scene->count);

	for (unsigned i = 0; i < scene->count && !err; i++)
		err = worst_take(
			scene, 2 * WORST_MIB, scene->stream[i], &scene->block[i]);
	if (!err)
		err = worst_take(scene, 16 * WORST_MIB, scene->stream[0], &ptr);
	for (unsigned i = 0; i < scene->count && !err; i++)
		err = worst_give(scene, &scene->block[i], scene->stream[i]);
	if (!err)
		err = worst_give(scene, &ptr, scene->stream[0]);
	if (!err)
		err = glake_stats_get(scene->last, scene->device, &stats);
	if (!err)
		err = glake_budget_set(scene->last, scene->device, stats.reserved);
	if (!err)
		err = worst_begin(scene);
	for (unsigned i = 0; i < 20 && !err; i++) {
		struct CUstream_st *stream = scene->stream[i % scene->count];

		err = worst_take(scene, 4 * WORST_MIB + i * 512, stream, &ptr);
		if (!err)
			err = worst_give(scene, &ptr, stream);
	}
	return err ? err : worst_end(scene);
}

/* Pairs that hit, and requests that miss. */
static int use_last(struct worst_scene *scene)
{
	int err = worst_begin(scene);

	if (!err)
		err = worst_pairs(scene, 0, 4 * KIB);
	return err ? err : miss(scene, 0);
}

int worst_last_gpu(struct worst_scene *scene)
{
	scene->device = (int)scene->count - 1;
	return use_last(scene);
}

static bool never(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	(void)arg;
	return false;
}

/* The same with a pool of graphs on each. */
int worst_gpu_pools(struct worst_scene *scene)
{
	int err = 0;

	for (unsigned i = 0; i < scene->count && !err; i++) {
		struct glake_pool_id id = {.low = i + 1};

		err = glake_pool_begin_for(scene->last, (int)i, id, never, NULL);
		if (!err)
			err = glake_pool_end(scene->last, (int)i, id);
	}
	return err ? err : worst_last_gpu(scene);
}

int worst_last_context(struct worst_scene *scene)
{
	return use_last(scene);
}
