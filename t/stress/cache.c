/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads against the blocks of one GPU, with the software device as judge: each block is
 * written by a kernel that is still queued when the block is freed, often by another thread on
 * another stream, so memory that is given out unordered is refused by the device at the next
 * kernel. Streams come and go meanwhile, memory is trimmed, and the tables are walked between
 * requests.
 */
#include "seed.h"
#include "unit/cache/rig.h"

#include <pthread.h>
#include <sched.h>

#define THREADS 6
#define TURNS	STORM_SIZE(6000)
#define SHELF	48

static struct rig rig;
static glk_atomic(uint64_t) shelf[SHELF]; /* blocks for whoever comes */
static glk_atomic(bool) stop;
static glk_atomic(uint32_t) wrong, refused;

static void count(glk_atomic(uint32_t) * counter, const char *what)
{
	if (!glk_add_relaxed(counter, 1))
		tap_note("%s: %s", what, rig_error().text);
}

static size_t draw_size(uint64_t *state)
{
	return 1 + seed_below(state, seed_below(state, 3) ? MIB : 20 * MIB);
}

static uint64_t make(uint64_t *state, struct CUstream_st *stream)
{
	uint32_t flags = seed_below(state, 30) ? 0 : GLAKE_ALLOC_CONTIGUOUS;
	size_t size = draw_size(state);
	uint64_t addr = 0;

	if (rig_try(&rig, size, stream, flags, &addr)) {
		glk_add_relaxed(&refused, 1);
		return 0;
	}
	if (glk_soft_work(rig.drv, 0, stream, addr, size, true))
		count(&wrong, "memory given out unordered");
	return addr;
}

static void drop(uint64_t addr, struct CUstream_st *stream)
{
	if (addr && rig_free(&rig, addr, stream))
		count(&wrong, "a block refused");
}

static void ask(uint64_t addr)
{
	struct glake_block block;

	if (addr && glk_cache_query(&rig.cache, addr, &block))
		count(&wrong, "a block not found");
}

static struct CUstream_st *renew(struct CUstream_st *stream)
{
	const struct glk_drv_ops *ops = rig.drv->ops;

	if (stream) {
		if (ops->stream_sync(rig.drv, 0, stream))
			count(&wrong, "a stream not waited for");
		glk_cache_stream_end(&rig.cache, stream);
		if (ops->stream_free(rig.drv, 0, stream))
			count(&wrong, "a stream not ended");
	}
	if (ops->stream_new(rig.drv, 0, &stream))
		count(&wrong, "no stream");
	return stream;
}

/* Between requests. */
static void walk(void)
{
	glk_lock(&rig.cache.lock);
	glk_plan_close(&rig.cache);
	if (map_verify(&rig.cache.arena.map))
		count(&wrong, "the books");
	glk_plan_open(&rig.cache);
	glk_unlock(&rig.cache.lock);
}

static void *run(void *arg)
{
	struct CUstream_st *stream = renew(NULL);
	uint64_t state = *(uint64_t *)arg, mine, unused;

	for (int n = 0; n < TURNS; n++) {
		mine = make(&state, stream);
		ask(mine);
		if (seed_below(&state, 3))
			mine = glk_xchg_acq_rel(&shelf[seed_below(&state, SHELF)], mine);
		drop(mine, stream);
		if (!seed_below(&state, 40))
			stream = renew(stream);
		if (!seed_below(&state, 200))
			glk_cache_trim(&rig.cache, 64 * MIB, false, &unused);
		if (!seed_below(&state, 100))
			walk();
	}
	rig.drv->ops->stream_sync(rig.drv, 0, stream);
	glk_cache_stream_end(&rig.cache, stream);
	rig.drv->ops->stream_free(rig.drv, 0, stream);
	return NULL;
}

/* The GPU: work runs when it runs. */
static void *run_device(void *arg)
{
	while (!glk_load_relaxed(&stop)) {
		glk_soft_run_all(rig.drv);
		sched_yield();
	}
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS], device;
	uint64_t seeds[THREADS], seed;
	struct glake_stats s;

	tap_plan_later();
	seed = seed_start();
	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "pool.budget=320MiB",
			"map.aliases=4", "map.span=64GiB", NULL});
	drop(make(&seed, NULL), NULL);
	pthread_create(&device, NULL, run_device, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = seed_thread(seed, i);
		pthread_create(&thread[i], NULL, run, &seeds[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	glk_store_relaxed(&stop, true);
	pthread_join(device, NULL);
	for (int i = 0; i < SHELF; i++)
		drop(glk_load_relaxed(&shelf[i]), NULL);
	s = rig_figures(&rig);
	tap_note("%" PRIu64 " served, %" PRIu64 " hits, %" PRIu64 " stitched, %" PRIu64
		 " waits, %" PRIu64 " refused",
		s.allocs, s.hits, s.stitches, rig.cache.streams.waits, s.oom);
	is_int(glk_load_relaxed(&wrong), 0,
		"all in stream order, all found, all taken back");
	is_int((int64_t)s.oom, glk_load_relaxed(&refused),
		"refused are only those counted");
	is_int((int64_t)s.live_blocks, 0, "nothing is live");
	is_int((int64_t)s.lost, 0, "nothing is lost");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	return tap_done();
}
