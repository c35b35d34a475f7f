/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * No request is refused while what is live and what is asked for fits. Sixteen threads share a budget
 * which is never exceeded, counted in slots that a block may touch: each of them fits, however the
 * others lie. All else that is held is in motion: in plans whose calls of the driver are held up,
 * idle behind work that ends late, in bins, on its way back to the driver, or in the hands of requests
 * that ask for more than there is, and are refused.
 *
 *	stress-motion [seconds of each round]
 */
#define RIG_STREAMS 16
#include "seed.h"
#include "unit/cache/plan_parts.h"

#include <sched.h>
#include <time.h>

#define THREADS 16
#define HELD	6
#define SLOTS	96
#define SLOT	(2 * MIB)
#define SMALL	((size_t)256 << 10)

static struct rig rig;
static glk_atomic(uint32_t) booked; /* slots */
static glk_atomic(bool) stop;
static glk_atomic(uint32_t) wrong, refused, denied;
static glk_atomic(uint64_t) served;

struct block {
	struct held held;
	uint32_t slots;
	struct CUstream_st *stream;
};

static void note(const char *what)
{
	if (!glk_add_relaxed(&wrong, 1))
		tap_note("%s: %s", what, rig_error().text);
}

static size_t draw_size(uint64_t *state)
{
	switch (seed_below(state, 8)) {
	case 0:
	case 1:
	case 2:
	case 3:
		return 8 + seed_below(state, 16 << 10);
	case 4:
		return 8 + seed_below(state, 6 * MIB);
	case 5:
		return SLOT * (1 + seed_below(state, 12));
	default:
		return 8 + seed_below(state, 120 * MIB);
	}
}

/* That a block may touch: a small one lies in one of its kind. */
static uint32_t count_slots(size_t size)
{
	return size <= SMALL ? 1 : (uint32_t)((size + SLOT - 1) / SLOT) + 1;
}

/* Some streams of its own, and the thread's default stream, of which no other one can tell when it is
 * done. */
static struct CUstream_st *draw_stream(uint64_t *state)
{
	uint64_t n = seed_below(state, RIG_STREAMS + 2);

	return n < RIG_STREAMS ? rig.stream[n] : GLK_STREAM_PER_THREAD;
}

static void make(struct block *b, uint64_t *state)
{
	size_t size = draw_size(state);
	uint32_t slots = count_slots(size);
	int err;

	if (glk_add_relaxed(&booked, slots) + slots > SLOTS) {
		glk_sub_relaxed(&booked, slots);
		return;
	}
	b->stream = draw_stream(state);
	b->slots = slots;
	err = plan_take(&rig, &b->held, size, b->stream);
	if (!err) {
		glk_add_relaxed(&served, 1);
		if (seed_below(state, 2) &&
			glk_soft_work(rig.drv, 0, b->stream, b->held.addr, size, true))
			note("work not queued");
		return;
	}
	glk_sub_relaxed(&booked, slots);
	if (err == -ENOMEM && !glk_add_relaxed(&refused, 1))
		tap_note("%zu bytes: %s", size, rig_error().text);
	if (err != -ENOMEM)
		note("an error that is none of the documented ones");
}

/* More than there is, since one block is always live. */
static void ask_too_much(uint64_t *state)
{
	uint64_t addr;

	if (rig_try(&rig, SLOTS * SLOT, draw_stream(state), 0, &addr) != -ENOMEM)
		note("memory that there is not");
	glk_add_relaxed(&denied, 1);
}

static void drop(struct block *b, uint64_t *state)
{
	struct CUstream_st *on = b->stream;

	/* work on it may be left on the stream that it was given to */
	if (!seed_below(state, 4))
		on = draw_stream(state);
	if (!plan_drop(&rig, &b->held, on))
		note("memory of two blocks, or a block refused");
	glk_sub_relaxed(&booked, b->slots);
}

static void *run(void *arg)
{
	uint64_t state = *(uint64_t *)arg, unused;
	struct block blocks[HELD] = {0};

	while (!glk_load_relaxed(&stop) && !glk_load_relaxed(&wrong)) {
		struct block *b = &blocks[seed_below(&state, HELD)];

		if (b->held.addr)
			drop(b, &state);
		else
			make(b, &state);
		if (!seed_below(&state, 100))
			ask_too_much(&state);
		if (!seed_below(&state, 2000))
			glk_cache_trim(&rig.cache, seed_below(&state, 200) * MIB, false,
				&unused);
	}
	for (int i = 0; i < HELD; i++) {
		if (blocks[i].held.addr)
			drop(&blocks[i], &state);
	}
	return NULL;
}

/* The GPU: a stream gets on now and then. */
static void *run_device(void *arg)
{
	const struct timespec pause = {.tv_nsec = 50000};
	uint64_t state = *(uint64_t *)arg;

	while (!glk_load_relaxed(&stop)) {
		struct CUstream_st *s = rig.stream[seed_below(&state, RIG_STREAMS)];

		for (uint64_t n = seed_below(&state, 30); n; n--) {
			if (glk_soft_step(rig.drv, 0, s))
				break;
		}
		if (!seed_below(&state, 40))
			glk_soft_run_all(rig.drv);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void storm(uint64_t seed, double seconds, const char *policy)
{
	struct timespec pause = {.tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
	uint64_t seeds[THREADS + 1], live;
	pthread_t thread[THREADS], device;
	char rules[512];
	int n = (int)(seed % 1000);

	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "pool.budget=192MiB",
			"pool.large_page=2MiB", "map.span=64GiB", policy, NULL});
	for (int i = 0; i < RIG_STREAMS; i++)
		rig_stream(&rig);
	live = rig_alloc(&rig, SLOT, rig.stream[0]);
	snprintf(rules, sizeof(rules),
		"create:p=200000:delay=30:seed=%d;map:p=200000:delay=30:seed=%d;"
		"set_access:p=200000:delay=30:seed=%d;unmap:p=200000:delay=30:seed=%d;"
		"release:p=200000:delay=30:seed=%d;event_sync:p=300000:delay=50:seed=%d;"
		"create:p=2000:delay=2000:seed=%d;unmap:p=2000:delay=2000:seed=%d;"
		"map:p=2000:delay=2000:seed=%d",
		n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8);
	if (glk_fault_set(rig.drv, rules))
		tap_bail(rig_error().text);
	glk_store_relaxed(&stop, false);
	glk_store_relaxed(&wrong, 0);
	glk_store_relaxed(&refused, 0);
	glk_store_relaxed(&denied, 0);
	glk_store_relaxed(&booked, count_slots(SLOT));
	glk_store_relaxed(&served, 0);
	seeds[THREADS] = seed_thread(seed, THREADS);
	pthread_create(&device, NULL, run_device, &seeds[THREADS]);
	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = seed_thread(seed, i);
		pthread_create(&thread[i], NULL, run, &seeds[i]);
	}
	nanosleep(&pause, NULL);
	glk_store_relaxed(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	pthread_join(device, NULL);
	glk_fault_set(rig.drv, "off");
	tap_note("%s: %" PRIu64 " served, %u refused, %u that asked for too much",
		policy ? policy : "as it comes", glk_load_relaxed(&served),
		glk_load_relaxed(&refused), glk_load_relaxed(&denied));
	is_int(glk_load_relaxed(&refused), 0, "no request that fits is refused");
	is_int(glk_load_relaxed(&wrong), 0, "blocks keep what was written");
	is_int(glk_load_relaxed(&booked), count_slots(SLOT), "all but one are freed");
	rig_free(&rig, live, rig.stream[0]);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : STORM_SIZE(800) / 1e3;
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	storm(seed, seconds, NULL);
	storm(seed + 1, seconds, RIG_DONE);
	storm(seed + 2, seconds, "stream.opportunistic=no");
	storm(seed + 3, seconds, "policy.bins=0");
	return tap_done();
}
