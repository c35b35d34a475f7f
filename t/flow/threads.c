/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads that allocate on streams of their own and on one they share, and free each other's
 * blocks. Each block carries its owner's mark at both ends, so memory given twice shows.
 */
#include "context.h"
#include "seed.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8
#define TURNS	4000
#define SHELF	64

struct mark {
	uint64_t value;
	size_t size;
};

static struct glake *ctx;
static struct CUstream_st *shared;
static _Atomic(struct mark *) shelf[SHELF]; /* blocks for whoever comes */
static atomic_int wrong, refused;

static uint64_t *last_word(struct mark *block)
{
	return (uint64_t *)((char *)block + block->size) - 1;
}

/* Marks a new block. */
static struct mark *make(uint64_t *state, struct CUstream_st *stream)
{
	size_t size = sizeof(struct mark) + 8 +
		(seed_below(state, 8) ? seed_below(state, MIB)
				      : seed_below(state, 20 * MIB)) /
			8 * 8;
	uint32_t flags = seed_below(state, 50) ? 0 : GLAKE_ALLOC_CONTIGUOUS;
	struct mark *block;
	void *ptr = NULL;

	if (glake_alloc(ctx, 0, size, stream, flags, &ptr)) {
		atomic_fetch_add(&refused, 1);
		return NULL;
	}
	block = ptr;
	block->value = seed_next(state);
	block->size = size;
	*last_word(block) = block->value;
	return block;
}

static void drop(struct mark *block, struct CUstream_st *stream)
{
	if (!block)
		return;
	if (*last_word(block) != block->value)
		atomic_fetch_add(&wrong, 1);
	if (glake_free(ctx, block, stream))
		atomic_fetch_add(&wrong, 1);
}

static void *run(void *arg)
{
	uint64_t state = *(uint64_t *)arg;
	struct CUstream_st *own = NULL;
	struct mark *mine;

	if (glake_stream_new(ctx, 0, &own))
		atomic_fetch_add(&wrong, 1);
	for (int i = 0; i < TURNS; i++) {
		struct CUstream_st *stream = seed_below(&state, 3) ? own : shared;
		unsigned place = (unsigned)seed_below(&state, SHELF);
		struct glake_stats stats = {.sz = sizeof(stats)};

		mine = make(&state, stream);
		if (seed_below(&state, 2))
			drop(mine, stream);
		else
			drop(atomic_exchange(&shelf[place], mine), stream);
		if (seed_below(&state, 500))
			continue;
		glake_trim(ctx, 0, 64 * MIB, NULL);
		if (glake_stats_get(ctx, 0, &stats) || stats.reserved > stats.budget)
			atomic_fetch_add(&wrong, 1);
		/* a new stream, while blocks of the old one are on the shelf */
		if (glake_stream_free(ctx, 0, own) || glake_stream_new(ctx, 0, &own))
			atomic_fetch_add(&wrong, 1);
	}
	if (glake_stream_free(ctx, 0, own))
		atomic_fetch_add(&wrong, 1);
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];
	uint64_t seeds[THREADS], seed;
	struct glake_stats stats;

	tap_plan_later();
	seed = seed_start();
	ctx = flow_open((const char *const[]){
		"pool.budget=512MiB", "soft.memory=1GiB", "map.span=64GiB", NULL});
	if (glake_stream_new(ctx, 0, &shared))
		tap_bail("no stream");
	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = seed_thread(seed, i);
		pthread_create(&thread[i], NULL, run, &seeds[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < SHELF; i++)
		drop(shelf[i], shared);
	is_int(atomic_load(&wrong), 0, "no block was given twice, none was refused back");
	stats = flow_stats(ctx, 0);
	is_int((int64_t)stats.live, 0, "nothing is live");
	is_int((int64_t)stats.live_blocks, 0, "no block");
	is_int((int64_t)stats.lost, 0, "nothing is lost");
	is_int((int64_t)(stats.allocs + stats.oom), THREADS * TURNS, "all were counted");
	is_int((int64_t)stats.oom, atomic_load(&refused), "the refused ones too");
	is_int((int64_t)stats.frees, (int64_t)stats.allocs, "all came back");
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "the bins are given back");
	stats = flow_stats(ctx, 0);
	is_int((int64_t)stats.quick, 0, "nothing is in them");
	ok(stats.reserved && stats.free_pages == stats.reserved, "all pages are free");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "to nothing");
	is_int(glake_stream_free(ctx, 0, shared), 0, "the shared stream ends");
	flow_close(ctx, 0);
	return tap_done();
}
