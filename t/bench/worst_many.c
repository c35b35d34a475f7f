/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Patterns of worst of bench-more that grow with the number of streams, of GPUs or of contexts. */
#include "worst.h"

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

/* The second stream of a block that has two. */
static unsigned other_of(const struct worst_scene *scene, unsigned i)
{
	return (i + scene->count / 2) % scene->count;
}

/* What a block of 2 MiB of each stream has to do with another one. */
enum beside {
	ALONE,
	FREED_THERE,
	USED_THERE,
};

/* Frees that block. */
static int give_one(struct worst_scene *scene, unsigned i, enum beside beside)
{
	struct CUstream_st *own = scene->stream[i];
	struct CUstream_st *other = scene->stream[other_of(scene, i)];
	int err = 0;

	if (beside == USED_THERE)
		err = glake_use(scene->last, scene->block[i], other);
	return err ? err
		   : worst_give(scene, &scene->block[i],
			     beside == FREED_THERE ? other : own);
}

/* Memory of each stream is free with work pending, and no page more is to be had. */
static int all_busy(struct worst_scene *scene, enum beside beside)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	/* there are two of them at least, or all of the one */
	size_t size = beside == ALONE || scene->count > 3 ? 4 * WORST_MIB : WORST_MIB;
	void *ptr;
	int err = worst_streams(scene, scene->count);

	for (unsigned i = 0; i < scene->count && !err; i++)
		err = worst_take(
			scene, 2 * WORST_MIB, scene->stream[i], &scene->block[i]);
	if (!err && beside == ALONE)
		err = worst_take(scene, 16 * WORST_MIB, scene->stream[0], &ptr);
	if (!err && beside != ALONE)
		err = worst_begin(scene);
	for (unsigned i = 0; i < scene->count && !err; i++)
		err = give_one(scene, i, beside);
	if (!err && beside == ALONE)
		err = worst_give(scene, &ptr, scene->stream[0]);
	if (!err)
		err = glake_stats_get(scene->last, scene->device, &stats);
	if (!err)
		err = glake_budget_set(scene->last, scene->device, stats.reserved);
	if (!err && beside == ALONE)
		err = worst_begin(scene);
	for (unsigned i = 0; i < 20 && !err; i++) {
		struct CUstream_st *stream = scene->stream[i % scene->count];

		err = worst_take(scene, size + i * 512, stream, &ptr);
		if (!err)
			err = worst_give(scene, &ptr, stream);
	}
	return err ? err : worst_end(scene);
}

int worst_busy_streams(struct worst_scene *scene)
{
	return all_busy(scene, ALONE);
}

int worst_freed_on_others(struct worst_scene *scene)
{
	return all_busy(scene, FREED_THERE);
}

int worst_used_on_others(struct worst_scene *scene)
{
	return all_busy(scene, USED_THERE);
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
