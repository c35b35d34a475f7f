/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads that send ranges of one block away and have them back, each its own part, while another frees
 * the block and has a new one in its place, the GPU is suspended, and calls of the driver fail by
 * chance.
 */
#define RANGE_STORM
#include "range_parts.h"

#include "seed.h"

#include <sched.h>
#include <time.h>

#define THREADS 2
#define PART	(12 * MIB)
#define MOVES	150 /* of each thread */

static struct rig rig;
static struct CUstream_st *streams[THREADS + 1];
static uint64_t seeds[THREADS + 1];
static struct held block;
static bool turning; /* the GPU is suspended now and then */
static bool fails;   /* the driver does */
static glk_atomic(uint32_t) wrong, moved, running;

static void count_error(const char *what, int err)
{
	if (!glk_add_relaxed(&wrong, 1))
		tap_note("%s: %d: %s", what, err, rig_error().text);
}

/* What a call may answer here. */
static bool is_known(int err)
{
	return !err || err == -ENOMEM || (err == -EIO && fails) || err == -EAGAIN ||
		err == -EBUSY || err == -EALREADY;
}

/* Ranges of its own part, which is read when all of it is back. */
static void *work(void *arg)
{
	uint64_t *state = arg;
	size_t number = (size_t)(state - seeds), base = number * PART;
	struct CUstream_st *stream = streams[number];
	int err;

	/* the GPU may be suspended at each of a few */
	for (int n = 0; n < MOVES || (!glk_load_relaxed(&moved) && n < 100 * MOVES);
		n++) {
		size_t offset = base + seed_below(state, 6) * 2 * MIB;
		size_t bytes =
			(1 + seed_below(state, (base + PART - offset) >> 21)) * 2 * MIB;

		err = seed_below(state, 2)
			? spill_range(&rig, &block, offset, bytes, stream)
			: fetch_range(&rig, &block, offset, bytes, stream);
		if (!is_known(err))
			count_error("a range", err);
		glk_add_relaxed(&moved, !err);
		if (n % 25)
			continue;
		do {
			err = fetch_range(&rig, &block, base, PART, stream);
			if (err == -EAGAIN)
				sched_yield();
		} while (err && err != -EALREADY);
		while (rig.drv->ops->stream_sync(rig.drv, 0, stream))
			;
		/* while the GPU is suspended it is not here */
		if (!turning && !has_words(&block, base, PART))
			count_error("what was written", 0);
	}
	glk_sub_relaxed(&running, 1);
	return NULL;
}

static void storm(const char *rules, bool suspends)
{
	pthread_t thread[THREADS];
	struct glake_suspended did;
	struct held other;

	rig_open(&rig, NULL);
	for (int i = 0; i <= THREADS; i++)
		streams[i] = rig_stream(&rig);
	plan_take(&rig, &block, THREADS * PART, streams[0]);
	write_words(&block, 0, block.size);
	glk_cache_use(&rig.cache, block.addr, streams[1]);
	glk_store_relaxed(&rig.cache.node->budget, 40 * MIB);
	glk_store_relaxed(&moved, 0);
	glk_store_relaxed(&running, THREADS);
	glk_store_relaxed(&wrong, 0);
	turning = suspends;
	fails = strstr(rules, "EIO");
	glk_fault_set(rig.drv, rules);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, work, &seeds[i]);
	while (glk_load_relaxed(&running)) {
		if (!plan_take(&rig, &other, 6 * MIB, streams[THREADS]) &&
			!plan_drop(&rig, &other, streams[THREADS]))
			count_error("another block", 0);
		if (!suspends)
			continue;
		glk_cache_suspend(&rig.cache, false, &did);
		while (glk_cache_resume(&rig.cache, false, &did))
			;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	glk_fault_set(rig.drv, "off");
	glk_store_relaxed(&rig.cache.node->budget, UINT64_MAX);
	glk_cache_fetch(&rig.cache, block.addr, streams[0]);
	rig.drv->ops->stream_sync(rig.drv, 0, streams[0]);
	ok(has_words(&block, 0, block.size), "all is as it was written");
	is_sound(&rig, "the books agree");
	ok(!glk_load_relaxed(&wrong) && glk_load_relaxed(&moved) > 0,
		"%u ranges moved, with %s", glk_load_relaxed(&moved), rules);
	is_int(rig_free(&rig, block.addr, streams[0]), 0, "it is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

/* A block that another thread frees. */
static glk_atomic(uint64_t) shared;

static void *move_shared(void *arg)
{
	uint64_t *state = arg, n = 0;

	while (n < 4 * MOVES) {
		struct held h = {.addr = glk_load_relaxed(&shared), .size = PART};
		size_t offset = seed_below(state, 6) * 2 * MIB;
		int err;

		if (!h.addr)
			continue;
		n++;
		err = seed_below(state, 2)
			? spill_range(&rig, &h, offset, 2 * MIB, streams[state - seeds])
			: fetch_range(&rig, &h, offset, 2 * MIB, streams[state - seeds]);
		/* it is freed, or a part of what came behind it */
		if (!is_known(err) && err != -EINVAL)
			count_error("a range of a block that is freed", err);
	}
	glk_sub_relaxed(&running, 1);
	return NULL;
}

/* A free waits until a range has moved, and the block is gone for the next call. */
static void freed_under_way(void)
{
	pthread_t thread[THREADS];
	uint32_t frees = 0;

	rig_open(&rig, (const char *const[]){"policy.bins=0", NULL});
	for (int i = 0; i <= THREADS; i++)
		streams[i] = rig_stream(&rig);
	glk_store_relaxed(&running, THREADS);
	glk_store_relaxed(&wrong, 0);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, move_shared, &seeds[i]);
	while (glk_load_relaxed(&running)) {
		struct timespec some = {
			.tv_nsec = (long)seed_below(&seeds[THREADS], 400000)};
		uint64_t addr = rig_alloc(&rig, PART, streams[THREADS]);

		if (!addr)
			continue;
		glk_store_relaxed(&shared, addr);
		nanosleep(&some, NULL);
		if (rig_free(&rig, addr, streams[THREADS]))
			count_error("a free", 0);
		frees++;
		glk_store_relaxed(&shared, 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ok(!glk_load_relaxed(&wrong), "%u blocks were freed while ranges of them moved",
		frees);
	is_sound(&rig, "the books agree");
	is_int((int64_t)rig_figures(&rig).away, 0, "nothing is away");
	rig_close(&rig, 0);
}

int main(void)
{
	uint64_t seed = seed_start();

	/* threads take turns there; the sanitizers see them all */
	if (tap_on_valgrind())
		tap_skip_all("takes too long here");
	tap_plan_later();
	for (int i = 0; i <= THREADS; i++)
		seeds[i] = seed + (uint64_t)i;
	storm("off", false);
	storm("off", true);
	storm("copy:p=20000:err=EIO;create:p=30000:err=ENOMEM;map:p=10000:err=EIO",
		false);
	freed_under_way();
	return tap_done();
}
