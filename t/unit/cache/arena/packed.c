/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is held for small and middling blocks that come and go at random. */
#include "unit/cache/rig.h"

#include "seed.h"

#define KIB ((size_t)1 << 10)

static struct rig rig;

#define LIVE	 1600
#define REQUESTS 40000

/* Blocks of random sizes come and go on streams in random order: what waits in bins is not held beside what is
 * live, and what lies beside blocks is had by others, in hundredths of the peak. What is free is given back. */
static void stays_packed(uint64_t seed, int streams, int live, size_t largest, int most)
{
	static uint64_t addr[LIVE];
	uint64_t state = seed_thread(seed, 5), released;
	struct glake_stats early, late;
	int on[LIVE];

	rig_open(&rig, NULL);
	while (rig.streams < streams)
		rig_stream(&rig);
	for (int i = 0; i < REQUESTS; i++) {
		int k = i < live ? i : (int)seed_below(&state, (uint64_t)live);

		if (i >= live)
			rig_free(&rig, addr[k], rig.stream[on[k]]);
		on[k] = (int)seed_below(&state, (uint64_t)streams);
		addr[k] = rig_alloc(
			&rig, 10 * KIB + seed_below(&state, largest), rig.stream[on[k]]);
		if (i == REQUESTS / 4)
			early = rig_figures(&rig);
	}
	late = rig_figures(&rig);
	ok(late.reserved <= late.peak_live / 100 * (uint64_t)most,
		"%d streams, up to %zu KiB: %d hundredths of the peak are held", streams,
		largest / KIB, (int)(late.reserved * 100 / late.peak_live));
	ok(late.reserved <= early.reserved + early.reserved / 20,
		"  which does not grow");
	is_sound(&rig, "  the books agree");
	glk_cache_trim(&rig.cache, 0, false, &released);
	late = rig_figures(&rig);
	ok(late.reserved <= late.live / 100 * 117,
		"  %d hundredths of what is live after a trim",
		(int)(late.reserved * 100 / late.live));
	is_sound(&rig, "  the books agree");
	for (int i = 0; i < live; i++)
		rig_free(&rig, addr[i], rig.stream[on[i]]);
	glk_cache_trim(&rig.cache, 0, false, &released);
	is_int((int64_t)rig_figures(&rig).reserved, 0,
		"  and nothing after all are freed");
	rig_close(&rig, 0);
}

int main(void)
{
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	stays_packed(seed, 1, LIVE, 240 * KIB, 109);
	stays_packed(seed, RIG_STREAMS, LIVE, 240 * KIB, 109);
	stays_packed(seed, 1, LIVE / 2, 590 * KIB, 112);
	stays_packed(seed, RIG_STREAMS, LIVE / 2, 590 * KIB, 113);
	return tap_done();
}
