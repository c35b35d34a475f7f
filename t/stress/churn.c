/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ten thousand threads that come and go, fifty at a time, each on some streams of three. What
 * the library keeps of a thread is used again by the next: seats, records and rows stay as
 * many as there were threads and streams at a time, and the figures lose nothing.
 */
#include "seed.h"
#include "unit/cache/rig.h"

#include <pthread.h>

#define ALIVE	50
#define THREADS STORM_SIZE(10000)
#define TURNS	20
#define STREAMS 3

static struct rig rig;
static glk_atomic(uint64_t) served, refused;
static glk_atomic(uint32_t) highest; /* number of a record of a thread */
static glk_atomic(uint64_t) left;    /* a block of a thread that has gone */

static void note_highest(uint32_t id)
{
	uint32_t most = glk_load_relaxed(&highest);

	while (id > most && !glk_cas_weak_relaxed(&highest, &most, id))
		;
}

static void *come_and_go(void *arg)
{
	static const size_t size[] = {512, 4096, 200 << 10, 3 * MIB};
	uint64_t state = (uintptr_t)arg, addr;
	struct CUstream_st *stream;

	for (int i = 0; i < TURNS; i++) {
		stream = rig.stream[seed_below(&state, STREAMS)];
		addr = rig_alloc(&rig, size[seed_below(&state, 4)], stream);
		if (!addr) {
			glk_add_relaxed(&refused, 1);
			continue;
		}
		glk_add_relaxed(&served, 1);
		if (i == TURNS / 2) /* whoever comes next frees it */
			addr = glk_xchg_acq_rel(&left, addr);
		if (addr && rig_free(&rig, addr, stream))
			glk_add_relaxed(&refused, 1);
	}
	note_highest(glk_thread_self() ? glk_thread_self()->id : UINT32_MAX);
	return NULL;
}

static void batch(uint64_t seed, unsigned first)
{
	pthread_t thread[ALIVE];

	for (unsigned i = 0; i < ALIVE; i++) {
		void *arg = (void *)(uintptr_t)seed_thread(seed, first + i);

		if (pthread_create(&thread[i], NULL, come_and_go, arg))
			tap_bail("no thread");
	}
	for (int i = 0; i < ALIVE; i++)
		pthread_join(thread[i], NULL);
}

int main(void)
{
	struct glake_stats s;
	uint64_t seed, unused, metadata, mapped;
	unsigned count = 0;

	tap_plan_later();
	seed = seed_start();
	rig_open(&rig, NULL);
	for (int i = 0; i < STREAMS; i++)
		rig_stream(&rig);
	for (; count < THREADS / 10; count += ALIVE)
		batch(seed, count);
	metadata = rig_figures(&rig).metadata;
	mapped = glk_region_bytes();
	for (; count < THREADS; count += ALIVE)
		batch(seed, count);
	is_int(glk_load_relaxed(&refused), 0, "no thread was refused");
	/* the main thread has a record too */
	ok(glk_load_relaxed(&highest) <= ALIVE + 1, "%u records of threads",
		glk_load_relaxed(&highest));
	ok(glk_load_relaxed(&rig.cache.seats.used) <= ALIVE, "%u seats",
		glk_load_relaxed(&rig.cache.seats.used));
	is_int(glk_load_relaxed(&rig.cache.seats.live), 0, "all of them free");
	is_int(rig.cache.streams.slab.used, STREAMS, "rows for the streams");
	is_int(glk_region_bytes(), mapped, "the library's memory is as it was");
	s = rig_figures(&rig);
	ok(s.metadata <= 4 * metadata,
		"%" PRIu64 " bytes of tables after a tenth, %" PRIu64 " in the end",
		metadata, s.metadata);
	is_int(s.allocs, glk_load_relaxed(&served), "the figures have all requests");
	is_int(s.allocs, THREADS * TURNS, "which were all that were made");
	is_int(s.frees, s.allocs - 1, "and all frees");
	ok(s.hits > s.allocs / 2, "%" PRIu64 " hits", s.hits);
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, glk_load_relaxed(&left), rig.stream[0]), 0,
		"the last block is freed");
	is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0, "trimmed");
	s = rig_figures(&rig);
	is_int(s.live + s.given + s.live_blocks + s.quick + s.reserved, 0, "to nothing");
	ok(glk_load_relaxed(&rig.cache.arena.map.extents.live) < 8,
		"with %u extents left",
		glk_load_relaxed(&rig.cache.arena.map.extents.live));
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	return tap_done();
}
