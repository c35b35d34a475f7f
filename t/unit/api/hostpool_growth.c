/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How much is locked for what is in use: jobs that only grow, that end and begin again with other sizes,
 * and that free and ask all the time. Nothing is touched, so jobs are as large as real ones.
 */
#include "api/context.h"
#include "numa/topology.h"
#include "seed.h"
#include "tap.h"
#include "tier/piece.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define MIB    ((uint64_t)1 << 20)
#define GIB    ((uint64_t)1 << 30)
#define SLACK  (32 * MIB)
#define BLOCKS 4096
#define JOBS   20

static struct glake *ctx;
static struct glk_hostpool *pool;
static uint64_t seed;

/* Those there are, a ring, the oldest first. */
static struct {
	void *ptr;
	uint64_t size;
} block[BLOCKS];

static struct {
	uint64_t live, most; /* bytes that were asked for */
	unsigned first, count;
	double share; /* most of held, without SLACK, in `most` */
} now;

static void begin(void)
{
	static const char *const settings[] = {"soft.gpus=1", "driver.fault=off",
		"map.span=8GiB", "host.limit=16TiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glk_context *context;

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
	pool = &context->caches[0].hostpool;
	pool->untouched = true;
	memset(&now, 0, sizeof(now));
}

static void look(void)
{
	double over = pool->held > SLACK ? (double)(pool->held - SLACK) : 0;

	if (now.most < now.live)
		now.most = now.live;
	if (now.share < over / (double)now.most)
		now.share = over / (double)now.most;
}

/* Other programs may have the memory of the machine that a piece needs: ten minutes at the most. */
static bool give(uint64_t size, void **ret_ptr)
{
	struct glake_error error = {.sz = sizeof(error)};

	for (int i = 0; i < 60000; i++) {
		if (!glake_host_alloc(ctx, 0, size, 0, ret_ptr))
			return true;
		glake_last_error(&error);
		if (error.error_class != GLAKE_ERROR_NOMEM_HOST)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return false;
}

static void take(uint64_t size)
{
	unsigned at = (now.first + now.count) % BLOCKS;

	size = size < 1 ? 1 : size;
	if (now.count == BLOCKS || !give(size, &block[at].ptr))
		tap_bail("no block");
	block[at].size = size;
	now.live += size;
	now.count++;
	look();
}

/* The oldest takes its place. */
static void drop(unsigned nth)
{
	unsigned at = (now.first + nth) % BLOCKS;

	if (glake_host_free(ctx, block[at].ptr))
		tap_bail("no free");
	now.live -= block[at].size;
	block[at] = block[now.first];
	now.first = (now.first + 1) % BLOCKS;
	now.count--;
}

/* The oldest one is the youngest. */
static void pass_over(void)
{
	block[(now.first + now.count) % BLOCKS] = block[now.first];
	now.first = (now.first + 1) % BLOCKS;
}

static void end(void)
{
	while (now.count)
		drop(0);
	glake_trim(ctx, 0, SIZE_MAX, NULL);
	if (pool->held || pool->pieces)
		tap_bail("something is held");
	sound_close(ctx, NULL);
}

/* From 2^low to 2^high, as many of each power. */
static uint64_t any_size(unsigned low, unsigned high)
{
	unsigned shift = low + (unsigned)seed_below(&seed, high - low);

	return ((uint64_t)1 << shift) + seed_below(&seed, (uint64_t)1 << shift);
}

/* A 50th more each time: from 1000 to 1 GiB in 700 times. */
static uint64_t compound(unsigned times)
{
	uint64_t size = 1000;

	while (times--)
		size += size / 50;
	return size;
}

static uint64_t grows_by(unsigned job, unsigned i)
{
	static const uint64_t same[] = {1000, 65537, 700 * 1024, MIB + 7, 3 * MIB + 1,
		8 * MIB + 64, 33 * MIB, 86 * MIB, 129 * MIB + 5, 300 * MIB + 1};
	static const uint64_t torch[] = {
		MIB + 7, 33 * MIB, 5 * MIB + 1, 65 * MIB + 3, 17 * MIB, 129 * MIB + 5};

	switch (job) {
	case 0: /* slowly, each size once */
		return 4 * MIB + i * 4096;
	case 1:
		return 500000 + (uint64_t)i * 64;
	case 2: /* faster */
		return compound(i % 700);
	case 3: /* and down again */
		return compound(700 - i % 700);
	case 4:
		return any_size(6, 29);
	case 5:
		return any_size(10, 24);
	case 6: /* small beside large */
		return i % 2 ? any_size(6, 14) : any_size(24, 30);
	case 7: /* between those that share pieces and those that do not */
		return now.live / 64 + 64 + seed_below(&seed, 2 + now.live / 640);
	case 8: /* more than what is left of the last piece, where that may be */
		return (pool->there - pool->given) / 2 + 64;
	case 9:
		return torch[i % 6];
	default:
		return same[job - 10];
	}
}

/* Until there are so many bytes. */
static void grow(unsigned job, uint64_t most)
{
	for (unsigned i = 0; i < BLOCKS && now.live < most; i++)
		take(grows_by(job, i));
}

static void growing(void)
{
	double worst = 0, pieces = 0;

	for (unsigned job = 0; job < JOBS; job++) {
		begin();
		grow(job, 48 * GIB);
		tap_note("%u: %u blocks, %" PRIu64 " MiB: %.3f, %" PRIu64 " pieces", job,
			now.count, now.live >> 20, now.share, pool->pieces);
		if (worst < now.share)
			worst = now.share;
		if (pieces < (double)pool->pieces)
			pieces = (double)pool->pieces;
		end();
	}
	ok(worst < 1.15, "jobs that grow lock %.3f of what is in use beside 32 MiB",
		worst);
	ok(pieces < 700, "in up to %.0f pieces", pieces);
}

/* What a job asks for and frees, by turns of which each has its sizes. */
struct churn {
	const char *name;
	uint64_t live;	      /* bytes at a time, about */
	unsigned low, high;   /* sizes: powers of two */
	uint64_t least, more; /* or from, and up to so many more */
	unsigned steps,
		keep;	 /* of `keep` blocks one stays over the end of a phase; 0: none */
	unsigned phases; /* that end with all freed, or nearly */
	bool fifo;	 /* the oldest goes, not any */
};

static uint64_t churn_size(const struct churn *c, unsigned phase)
{
	uint64_t size = c->low ? any_size(c->low, c->high)
			       : c->least + seed_below(&seed, c->more + 1);

	/* each phase has other sizes */
	return size + size * (phase % 4) / 3;
}

static void churn_phase(const struct churn *c, unsigned phase, uint64_t *ret_half)
{
	for (unsigned i = 0; i < c->steps; i++) {
		if (2 * (phase * c->steps + i) == c->phases * c->steps)
			*ret_half = pool->grows;
		take(churn_size(c, phase));
		while (now.live > c->live && now.count > 1)
			drop(c->fifo ? 0 : (unsigned)seed_below(&seed, now.count));
	}
	for (unsigned i = now.count; i; i--) {
		if (c->keep && i % c->keep == 0)
			pass_over();
		else
			drop(0);
	}
}

static const struct churn churns[] = {
	{"batches, one at a time", 1, 0, 0, 100 * MIB, 30 * MIB, 300, 0, 1, true},
	{"batches, eight at a time", 900 * MIB, 0, 0, 100 * MIB, 30 * MIB, 1000, 0, 1,
		true},
	{"any size", 4 * GIB, 6, 28, 0, 0, 3000, 0, 1, false},
	{"any size, in order", 4 * GIB, 6, 28, 0, 0, 3000, 0, 1, true},
	{"large", 16 * GIB, 24, 30, 0, 0, 2000, 0, 1, false},
	{"small", GIB / 2, 12, 20, 0, 0, 6000, 0, 1, false},
	{"phases of one size", 2 * GIB, 0, 0, 33 * MIB, 0, 60, 0, 12, true},
	{"phases of sizes", 4 * GIB, 0, 0, 5 * MIB, 60 * MIB, 200, 0, 12, true},
	{"phases that leave some", 4 * GIB, 0, 0, 5 * MIB, 60 * MIB, 200, 16, 12, true},
	{"phases of any size", 4 * GIB, 10, 28, 0, 0, 400, 0, 12, false},
};

static void churning(void)
{
	uint64_t late = 0, half = 0;
	double worst = 0;

	for (unsigned job = 0; job < sizeof(churns) / sizeof(*churns); job++) {
		const struct churn *c = &churns[job];

		begin();
		for (unsigned phase = 0; phase < c->phases; phase++)
			churn_phase(c, phase, &half);
		half = pool->grows - half;
		tap_note("%s: %" PRIu64 " MiB in use: %.3f, at the end %.3f, %" PRIu64
			 " pieces, %" PRIu64 " made, %" PRIu64 " in the second half",
			c->name, now.most >> 20, now.share,
			(double)pool->held / (double)now.most, pool->pieces, pool->grows,
			half);
		if (worst < now.share)
			worst = now.share;
		if (late < half)
			late = half;
		end();
	}
	ok(worst < 2.2, "jobs that free lock %.3f of the most that was in use, likewise",
		worst);
	ok(late < 40, "and %" PRIu64 " pieces in their second half", late);
}

static pthread_barrier_t meet;

/* Large pieces wait in the driver for each other. */
static int lock_host(struct glk_drv *drv, int device, void *ptr, size_t size)
{
	if (size >= 64 * MIB)
		pthread_barrier_wait(&meet);
	return 0;
}

static int unlock_host(struct glk_drv *drv, int device, void *ptr)
{
	return 0;
}

static void *take_large(void *arg)
{
	void *ptr = NULL;

	return glake_host_alloc(ctx, 0, 64 * MIB, 0, &ptr) ? arg : NULL;
}

static void at_once(void)
{
	static const struct glk_drv_ops ops = {
		.host_lock = lock_host, .host_unlock = unlock_host};
	struct glk_drv fake = {.ops = &ops};
	pthread_t thread[2];
	int failed = 0;
	void *ret, *small;

	begin();
	pool->drv = &fake;
	pthread_barrier_init(&meet, NULL, 3);
	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, take_large, &meet);
	/* what is held grows beside it, so nothing is noted of that */
	is_int(glake_host_alloc(ctx, 0, 64, 0, &small), 0, "a small block");
	is_int((int64_t)pool->pieces, 1, "  waits for no large one that is made");
	pthread_barrier_wait(&meet);
	for (int i = 0; i < 2; i++) {
		pthread_join(thread[i], &ret);
		failed += ret != NULL;
	}
	is_int(failed, 0, "  and those are made at once");
	sound_close(ctx, NULL);
	pthread_barrier_destroy(&meet);
}

static int made; /* calls of the next */

/* As many pieces as a request may want at all. */
static int lock_few(struct glk_drv *drv, int device, void *ptr, size_t size)
{
	return ++made > 4 ? -EIO : 0;
}

/* Free runs of the size asked for, of which none begins at its alignment, hide a piece made for it. */
static void among_fragments(void)
{
	static const struct glk_drv_ops ops = {
		.host_lock = lock_few, .host_unlock = unlock_host};
	struct glk_drv fake = {.ops = &ops};
	void *ptr[100], *q = NULL;
	int err = 0;

	begin();
	pool->drv = &fake;
	take(200 * MIB);
	drop(0);
	for (int i = 0; i < 100; i++)
		err |= glake_host_alloc(ctx, 0, 2 * MIB - 64, 0, &ptr[i]);
	for (int i = 1; i < 98; i += 2)
		err |= glake_host_free(ctx, ptr[i]);
	is_int(err, 0, "every second block of a large piece is freed");
	is_int(glake_host_alloc(ctx, 0, 2 * MIB - 64, 12, &q), 0,
		"one of a larger alignment is given");
	is_int((int64_t)((uintptr_t)q % 4096), 0, "  at that");
	is_int((int64_t)pool->grows, 2, "  from the one piece that was made for it");
	is_int(glake_host_free(ctx, q), 0, "  and freed");
	is_int(glake_host_alloc(ctx, 0, 2 * MIB - 64, 21, &q), 0,
		"of the largest alignment");
	is_int((int64_t)pool->grows, 2, "  from that piece again");
	sound_close(ctx, NULL);
}

static int lock_error;

static int lock_one(struct glk_drv *drv, int device, void *ptr, size_t size)
{
	return ++made > 1 ? lock_error : 0;
}

/* A small piece for small blocks is a wish: a large one that is free serves where none can be had. */
static void wished_for(void)
{
	static const int errors[] = {-EIO, -ENOMEM};
	static const struct glk_drv_ops ops = {
		.host_lock = lock_one, .host_unlock = unlock_host};
	struct glk_drv fake = {.ops = &ops};
	void *ptr;

	for (int i = 0; i < 2; i++) {
		begin();
		pool->drv = &fake;
		lock_error = errors[i];
		made = 0;
		take(256 * MIB);
		drop(0);
		ok(!glake_host_alloc(ctx, 0, 64, 0, &ptr),
			"a block is given from free memory where locking more answers %d",
			errors[i]);
		ok(made > 1, "  which was tried");
		is_int((int64_t)pool->held, 256 * (int64_t)MIB,
			"  and nothing was given back");
		sound_close(ctx, NULL);
	}
}

static void *large; /* a block that another thread frees */

/* Meanwhile a piece of the size that is wanted becomes free, and lies before the other small one. */
static int unlock_beside(struct glk_drv *drv, int device, void *ptr)
{
	void *small, *was = large;

	large = NULL;
	if (was &&
		(glake_host_alloc(ctx, 0, 64 * MIB, 0, &small) ||
			glake_host_free(ctx, was) || glake_host_free(ctx, small)))
		tap_bail("no block");
	return 0;
}

/* Small pieces go for a large one, and none that is as large. */
static void small_alone(void)
{
	static const struct glk_drv_ops ops = {
		.host_lock = lock_few, .host_unlock = unlock_beside};
	struct glk_drv fake = {.ops = &ops};
	void *small[2], *ptr;
	int err = 0;

	begin();
	pool->drv = &fake;
	made = 0;
	for (int i = 0; i < 2; i++)
		err |= glake_host_alloc(ctx, 0, 64 * MIB, 0, &small[i]);
	err |= glake_host_alloc(ctx, 0, 128 * MIB, 0, &large);
	for (int i = 0; i < 2; i++)
		err |= glake_host_free(ctx, small[i]);
	is_int(err, 0, "two small pieces are free");
	ok(!glake_host_alloc(ctx, 0, 128 * MIB, 0, &ptr) && !large,
		"and become a large one while another becomes free");
	is_int((int64_t)pool->held, 256 * (int64_t)MIB, "  which stays");
	sound_close(ctx, NULL);
}

int main(void)
{
	tap_plan_later();
	seed = seed_thread(seed_start(), 0);
	if (glk_numa_usable(NULL) < 2 * GIB) {
		tap_skip("what jobs lock",
			"the machine has less than 2 GiB to spare for a piece");
	} else {
		growing();
		churning();
	}
	at_once();
	among_fragments();
	wished_for();
	small_alone();
	return tap_done();
}
