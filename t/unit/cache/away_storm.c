/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads that have more blocks than there is memory for, send them away and have them back, while the
 * GPU is suspended and resumed, memory is given back, and calls of the driver fail by chance.
 */
#include "plan_parts.h"

#include "seed.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define THREADS 3
#define HELD	8
#define MOVES	60 /* of each thread, and steps at most for them */
#define STEPS	1000000

static struct rig rig;
static struct CUstream_st *streams[THREADS + 1];
static uint64_t seeds[THREADS + 1];
static glk_atomic(uint32_t) wrong, moved, turned, running;

static void count_error(const char *what)
{
	if (!glk_add_relaxed(&wrong, 1))
		tap_note("%s: %s", what, rig_error().text);
}

/* What a call may answer here. */
static bool is_known(int err)
{
	return err == -ENOMEM || err == -EIO || err == -EAGAIN || err == -EBUSY;
}

struct own {
	uint64_t addr;
	bool away;
};

static bool is_whole(const struct held *h, struct CUstream_st *stream)
{
	while (rig.drv->ops->stream_sync(rig.drv, 0, stream))
		;
	return has_marks(h);
}

/* The GPU's suspension moves blocks too, so that one is looked at only where it cannot be away. */
static bool step(struct own *o, struct CUstream_st *stream, uint64_t *state)
{
	int err = 0;

	if (!o->addr) {
		/* not written: who writes a block from the host must know that it is not copied */
		err = rig_try(
			&rig, 300000 + seed_below(state, 8 * MIB), stream, 0, &o->addr);
		if (err)
			o->addr = 0;
		if (err && !is_known(err))
			count_error("a request");
		o->away = false;
	} else if (!seed_below(state, 4)) {
		if (rig_free(&rig, o->addr, stream))
			count_error("a free");
		o->addr = 0;
	} else if (o->away) {
		err = glk_cache_fetch(&rig.cache, o->addr, stream);
		o->away = err != 0;
		if (err && !is_known(err))
			count_error("a fetch");
	} else {
		err = glk_cache_spill(&rig.cache, o->addr, stream);
		/* who suspends the GPU may have sent it before */
		if (err && !is_known(err) && err != -EALREADY)
			count_error("a spill");
		o->away = !err;
		glk_add_relaxed(&moved, !err);
		return !err;
	}
	if (err == -EAGAIN)
		sched_yield();
	return false;
}

static void *work(void *arg)
{
	struct own list[HELD] = {0};
	uint64_t *state = arg;
	struct CUstream_st *stream = streams[state - seeds];

	for (int n = 0, moves = 0; n < STEPS && moves < MOVES; n++)
		moves += step(&list[seed_below(state, HELD)], stream, state);
	for (int i = 0; i < HELD; i++) {
		if (list[i].addr && rig_free(&rig, list[i].addr, stream))
			count_error("the last free");
	}
	glk_sub_relaxed(&running, 1);
	return NULL;
}

/* Blocks of its own are looked at from end to end between suspensions. */
static void turn(struct held *h, uint64_t *state)
{
	struct timespec some = {.tv_nsec = (long)seed_below(state, 8000000)};
	struct glake_suspended did;
	uint64_t unused;

	nanosleep(&some, NULL);
	if (!seed_below(state, 3)) {
		glk_cache_trim(&rig.cache, 0, &unused);
		return;
	}
	glk_cache_suspend(&rig.cache, &did);
	while (glk_cache_resume(&rig.cache, &did))
		;
	glk_add_relaxed(&turned, 1);
	if (h->addr && !is_whole(h, streams[THREADS]))
		count_error("what was suspended has changed");
}

static void storm(const char *rules)
{
	struct held h = {0};
	pthread_t thread[THREADS];

	rig_open(&rig, (const char *const[]){"policy.bins=64KiB", NULL});
	for (int i = 0; i <= THREADS; i++)
		streams[i] = rig_stream(&rig);
	plan_take(&rig, &h, 3 * MIB, streams[THREADS]);
	glk_store_relaxed(&rig.cache.node->budget, 75 * MIB);
	glk_store_relaxed(&running, THREADS);
	glk_fault_set(rig.drv, rules);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, work, &seeds[i]);
	while (glk_load_relaxed(&running))
		turn(&h, &seeds[THREADS]);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	glk_fault_set(rig.drv, "off");
	ok(is_whole(&h, streams[THREADS]), "a block that stayed through it all is whole");
	rig_free(&rig, h.addr, streams[THREADS]);
	ok(!glk_load_relaxed(&wrong) && glk_load_relaxed(&moved) >= MOVES,
		"%u went away, %u suspensions, with %s", glk_load_relaxed(&moved),
		glk_load_relaxed(&turned), rules);
	is_sound(&rig, "the books agree");
	is_int((int64_t)rig_figures(&rig).away, 0, "nothing is away");
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
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
	storm("off");
	storm("copy:p=20000:err=EIO;create:p=30000:err=ENOMEM;map:p=10000:err=EIO");
	return tap_done();
}
