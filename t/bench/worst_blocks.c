/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Patterns of worst of bench-more that grow with the number of blocks. Some are what made one call
 * slow before, others are what a program might well do and nobody had in mind.
 */
#include "worst.h"

#include <errno.h>

#define KIB ((size_t)1 << 10)

/* Large blocks of two sizes in turn, freed in no order: each merges with what is free beside it. */
int worst_bin_merges(struct worst_scene *scene)
{
	int err = worst_begin(scene);

	for (int turn = 0; turn < 3 && !err; turn++) {
		err = worst_take_all(scene, (turn % 2 ? 9 : 8) * WORST_MIB, NULL);
		worst_shuffle(scene);
		if (!err)
			err = worst_give_all(scene, NULL);
	}
	return err ? err : worst_end(scene);
}

/* Then one that lies beside them all, and goes too. */
int worst_big_beside(struct worst_scene *scene)
{
	size_t size = 5 * WORST_MIB, all = size * scene->count;
	void *big = NULL;
	int err = worst_begin(scene);

	for (int turn = 0; turn < 2 && !err; turn++) {
		err = worst_take_all(scene, size, NULL);
		worst_shuffle(scene);
		if (!err)
			err = worst_give_all(scene, NULL);
		if (!err)
			err = worst_take(scene, all + all / 40, NULL, &big);
		if (!err)
			err = worst_give(scene, &big, NULL);
	}
	return err ? err : worst_end(scene);
}

/* Small blocks of 4000 sizes, of which every second one goes; then requests of any size. */
int worst_half_freed(struct worst_scene *scene)
{
	uint32_t state = 3;
	int err = 0;

	for (unsigned i = 0; i < scene->count && !err; i++)
		err = worst_take(scene, 512 * (1 + i % 4000), NULL, &scene->block[i]);
	if (!err)
		err = worst_begin(scene);
	for (unsigned i = 0; i < scene->count && !err; i += 2)
		err = worst_give(scene, &scene->block[i], NULL);
	for (unsigned i = 0; i < scene->count && !err; i += 2)
		err = worst_take(scene, 512 * (2 + worst_random(&state, 3999)), NULL,
			&scene->block[i]);
	return err ? err : worst_end(scene);
}

/* All lie in bins when something comes that none of them is large enough for. */
int worst_bins_flushed(struct worst_scene *scene)
{
	size_t size = 4 * KIB;
	void *larger = NULL, *rest;
	int err = worst_take_all(scene, size, NULL);

	/* nor does the end of the last page serve it */
	for (size_t at = size * scene->count; at % (2 * WORST_MIB) && !err; at += size)
		err = worst_take(scene, size, NULL, &rest);
	if (!err)
		err = worst_begin(scene);
	if (!err)
		err = worst_give_all(scene, NULL);
	if (!err)
		err = worst_take(scene, WORST_MIB - 512, NULL, &larger);
	if (!err)
		err = worst_give(scene, &larger, NULL);
	return err ? err : worst_end(scene);
}

/* The same when memory is given back to the driver. */
int worst_trim(struct worst_scene *scene)
{
	size_t released;
	int64_t start;
	int err = worst_take_all(scene, 512, NULL);

	if (!err)
		err = worst_begin(scene);
	if (!err)
		err = worst_give_all(scene, NULL);
	start = worst_now();
	if (!err)
		err = glake_trim(scene->last, scene->device, 0, &released);
	worst_note(scene, WORST_CALL, worst_now() - start - scene->clock_cost);
	return err ? err : worst_end(scene);
}

/* Somebody looks at the figures while there are many blocks. */
int worst_figures(struct worst_scene *scene)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	int err = worst_take_all(scene, 512, NULL);

	if (!err)
		err = worst_begin(scene);
	for (int i = 0; i < 3 && !err; i++) {
		int64_t start = worst_now();

		err = glake_stats_get(scene->last, scene->device, &stats);
		worst_note(scene, WORST_CALL, worst_now() - start - scene->clock_cost);
	}
	return err ? err : worst_end(scene);
}

static int pass_over(const struct glake_run *run, void *arg)
{
	(void)run;
	(void)arg;
	return 0;
}

/* Somebody looks where everything lies. */
int worst_map(struct worst_scene *scene)
{
	int64_t start;
	int err = worst_take_all(scene, 512, NULL);

	if (!err)
		err = worst_begin(scene);
	start = worst_now();
	if (!err)
		err = glake_map(scene->last, scene->device, 0, pass_over, NULL);
	worst_note(scene, WORST_CALL, worst_now() - start - scene->clock_cost);
	return err ? err : worst_end(scene);
}

/* What moves all blocks of a GPU. */
enum motion {
	AWAY,
	IN_PLACE,
	BACK,
	BACK_LAZY,
	QUIET,
};

static int move_all(struct worst_scene *scene, enum motion motion, bool watched)
{
	static int (*const calls[])(struct glake *, int, struct glake_suspended *) = {
		glake_suspend, glake_suspend_in_place, glake_resume, glake_resume_lazy};
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_returned returned = {.sz = sizeof(returned)};
	uint64_t moved, want = motion == BACK_LAZY ? 0 : scene->count;
	int64_t start;
	int err = watched ? worst_begin(scene) : 0;

	start = worst_now();
	if (!err)
		err = motion == QUIET ? glake_quiet(scene->last, scene->device, &returned)
				      : calls[motion](scene->last, scene->device, &did);
	worst_note(scene, WORST_CALL, worst_now() - start - scene->clock_cost);
	moved = motion == QUIET ? returned.returned_blocks : did.moved_blocks;
	if (!err && moved != want)
		err = -EIO;
	return err || !watched ? err : worst_end(scene);
}

/* So many of these, of which the last one is looked at; blocks that are to go away have a tag. */
static int move_tiny(
	struct worst_scene *scene, const enum motion *motions, unsigned count)
{
	uint32_t tag = 0, was;
	int err = 0;

	if (motions[0] == AWAY)
		err = glake_tag_open(scene->last, "worst", &tag);
	if (!err)
		err = glake_tag_set(scene->last, tag, &was);
	if (!err)
		err = worst_take_all(scene, 512, NULL);
	for (unsigned i = 0; i < count && !err; i++)
		err = move_all(scene, motions[i], i + 1 == count);
	if (tag)
		glake_tag_set(scene->last, was, &tag);
	return err;
}

int worst_suspension(struct worst_scene *scene)
{
	return move_tiny(scene, (enum motion[]){AWAY}, 1);
}

int worst_fetch_all(struct worst_scene *scene)
{
	return move_tiny(scene, (enum motion[]){AWAY, BACK}, 2);
}

int worst_suspension_in_place(struct worst_scene *scene)
{
	return move_tiny(scene, (enum motion[]){IN_PLACE}, 1);
}

int worst_resumption_in_place(struct worst_scene *scene)
{
	return move_tiny(scene, (enum motion[]){IN_PLACE, BACK}, 2);
}

int worst_quiet(struct worst_scene *scene)
{
	return move_tiny(scene, (enum motion[]){IN_PLACE, BACK_LAZY, QUIET}, 3);
}

/* Every second block goes, then a large one comes that fits into none of the holes; then the
 * other half goes, and one comes that needs most of what is there. */
int worst_checkerboard(struct worst_scene *scene)
{
	size_t size = 64 * KIB;
	void *large[2] = {NULL};
	int err = worst_take_all(scene, size, NULL);

	if (!err)
		err = worst_begin(scene);
	for (unsigned i = 0; i < scene->count && !err; i += 2)
		err = worst_give(scene, &scene->block[i], NULL);
	if (!err)
		err = worst_take(scene, size * scene->count / 4, NULL, &large[0]);
	if (!err)
		err = worst_give_all(scene, NULL);
	if (!err)
		err = worst_take(scene, size * scene->count / 2, NULL, &large[1]);
	for (int i = 0; i < 2 && !err; i++)
		err = worst_give(scene, &large[i], NULL);
	return err ? err : worst_end(scene);
}

/* Sizes up to 4 MiB that hardly repeat; the oldest quarter of what came is live. */
int worst_new_sizes(struct worst_scene *scene)
{
	unsigned live = scene->count / 4;
	int err = worst_begin(scene);

	for (unsigned i = 0; i < scene->count && !err; i++) {
		size_t size = 512 * (1 + (size_t)i * 5003 % 8191);

		if (i >= live)
			err = worst_give(scene, &scene->block[i - live], NULL);
		if (!err)
			err = worst_take(scene, size, NULL, &scene->block[i]);
	}
	return err ? err : worst_end(scene);
}

/* Blocks of one stream, of which half are freed on another one, with both at work. */
int worst_freed_elsewhere(struct worst_scene *scene)
{
	int err = worst_streams(scene, 2);

	if (!err)
		err = worst_take_all(scene, 64 * KIB, scene->stream[0]);
	worst_shuffle(scene);
	if (!err)
		err = worst_begin(scene);
	for (unsigned i = 0; i < scene->count && !err; i++)
		err = worst_give(scene, &scene->block[i], scene->stream[i % 2]);
	for (unsigned i = 0; i < 200 && !err; i++)
		err = worst_take(
			scene, (128 + i) * KIB, scene->stream[i % 2], &scene->block[i]);
	return err ? err : worst_end(scene);
}

/* As many pages of a stream at work are idle as there are to be; another stream wants much. */
int worst_busy_pages(struct worst_scene *scene)
{
	void *large = NULL;
	int err = worst_streams(scene, 2);

	if (!err)
		err = worst_take(
			scene, 8 * WORST_MIB * scene->count, scene->stream[0], &large);
	if (!err)
		err = worst_give(scene, &large, scene->stream[0]);
	if (!err)
		err = worst_begin(scene);
	if (!err)
		err = worst_take(scene, 4096 * WORST_MIB, scene->stream[1], &large);
	return err ? err : worst_end(scene);
}
