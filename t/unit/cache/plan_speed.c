/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two threads whose requests have to call the driver, which takes its time: they take no longer
 * together than one of them alone.
 */
#include "plan_parts.h"

#include <time.h>

#define ROUNDS 10
#define TRIES  100 /* other programs may have a processor at many of them */
#define SIZE   (32 * MIB)

/* Beside each other, and nothing is to be had without the driver. */
#define LEAST 1.8

static struct rig rig;
static struct CUstream_st *streams[2];
static glk_atomic(uint32_t) wrong;

static void *work(void *arg)
{
	struct CUstream_st *stream = *(struct CUstream_st **)arg;
	struct held h = {0};
	uint64_t unused;

	for (int i = 0; i < ROUNDS; i++) {
		bool right = !plan_take(&rig, &h, SIZE, stream);

		right &= plan_drop(&rig, &h, stream);
		rig_flush(&rig);
		right &= !glk_cache_trim(&rig.cache, 0, false, &unused);
		if (!right)
			glk_add_relaxed(&wrong, 1);
	}
	return NULL;
}

static double seconds_of(int threads)
{
	struct timespec from, to;
	pthread_t thread[2];

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < threads; i++)
		pthread_create(&thread[i], NULL, work, &streams[i]);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	return (double)(to.tv_sec - from.tv_sec) +
		(double)(to.tv_nsec - from.tv_nsec) / 1e9;
}

int main(void)
{
	double best = 0;

	if (tap_storms_take_long())
		tap_skip_all(
			"threads run one after the other here, or many times slower");
	tap_plan_later();
	/* neither may have what the other one has just freed */
	rig_open(&rig, (const char *const[]){RIG_ALONE, NULL});
	streams[0] = rig_stream(&rig);
	streams[1] = rig_stream(&rig);
	if (glk_fault_set(rig.drv,
		    "create:from=1:delay=2500;map:from=1:delay=2500;"
		    "set_access:from=1:delay=2500;unmap:from=1:delay=2500;"
		    "release:from=1:delay=2500"))
		tap_bail(rig_error().text);
	for (int i = 0; i < TRIES && best < LEAST; i++) {
		double alone = seconds_of(1), both = seconds_of(2);

		if (best < 2 * alone / both)
			best = 2 * alone / both;
		tap_note("%.0f ms alone, %.0f ms for two at once: %.2f times the work",
			alone * 1e3, both * 1e3, 2 * alone / both);
	}
	ok(best >= LEAST, "two do %.1f times the work of one", LEAST);
	ok(rig_figures(&rig).called >= 3 * ROUNDS, "by calls of the driver");
	glk_fault_set(rig.drv, "off");
	is_int(glk_load_relaxed(&wrong), 0, "all are served");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	return tap_done();
}
