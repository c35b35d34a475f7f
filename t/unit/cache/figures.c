/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The figures against a walk over all tables, through a long and mixed life. */
#include "rig.h"

#include "seed.h"

#include <errno.h>

#define BLOCKS 200
#define ROUNDS 6000

struct held {
	uint64_t addr;
	size_t size;
	int stream;
};

static size_t draw_size(uint64_t *state)
{
	switch (seed_below(state, 4)) {
	case 0:
		return 1 + seed_below(state, MIB);
	case 1:
		return MIB + seed_below(state, 3 * MIB);
	case 2:
		return 4 * MIB + seed_below(state, 20 * MIB);
	default:
		return 1 + seed_below(state, 40 * MIB);
	}
}

/* One request or free, or something that moves memory behind both. False for an answer that a
 * full GPU does not give. */
static bool turn(struct rig *rig, struct held *held, uint64_t *state)
{
	struct held *h = &held[seed_below(state, BLOCKS)];
	uint64_t what = seed_below(state, 100), unused;
	int stream = (int)seed_below(state, 4);
	uint32_t flags = what < 5 ? GLAKE_ALLOC_CONTIGUOUS : 0;
	int err = 0;

	if (what == 99) {
		glk_cache_trim(&rig->cache, seed_below(state, 400) * MIB, &unused);
	} else if (what >= 90) {
		glk_soft_run_all(rig->drv);
	} else if (h->addr) {
		rig_work(rig, h->addr, h->size, rig->stream[h->stream]);
		rig_free(rig, h->addr, rig->stream[h->stream]);
		h->addr = 0;
	} else {
		h->size = draw_size(state);
		h->stream = stream;
		err = rig_try(rig, h->size, rig->stream[stream], flags, &h->addr);
		if (err)
			h->addr = 0;
		else
			rig_work(rig, h->addr, h->size, rig->stream[stream]);
	}
	return !err || err == -ENOMEM;
}

#define agree(reuse, seed, ...)                                                          \
	agree_as(reuse, seed,                                                            \
		(const char *const[]){"soft.streams=stepped", "pool.budget=600MiB",      \
			"map.aliases=4", __VA_ARGS__})

static void agree_as(const char *reuse, uint64_t seed, const char *const *settings)
{
	static struct held held[BLOCKS];
	uint64_t state = seed_thread(seed, 0), live = 0, count = 0;
	bool sound = true, adds_up = true, answered = true;
	struct glake_stats s;
	struct rig rig;

	rig_open(&rig, settings);
	for (int i = 0; i < 4; i++)
		rig_stream(&rig);
	memset(held, 0, sizeof(held));
	for (int n = 0; n < ROUNDS; n++) {
		answered &= turn(&rig, held, &state);
		if (n % 50 == 0)
			sound &= rig_is_sound(&rig);
		if (n % 500)
			continue;
		live = 0;
		count = 0;
		for (int i = 0; i < BLOCKS; i++) {
			live += held[i].addr ? held[i].size : 0;
			count += held[i].addr != 0;
		}
		s = rig_figures(&rig);
		adds_up &= s.live == live && s.live_blocks == count &&
			s.allocs - s.frees == count && s.hits + s.misses == s.allocs &&
			s.reserved <= s.budget && s.live <= s.given &&
			s.given <= s.reserved && s.peak_live >= s.live &&
			s.peak_reserved >= s.reserved;
	}
	ok(answered, "%s: requests are served or refused for want of memory", reuse);
	ok(sound, "%s: the figures are those of a walk", reuse);
	ok(adds_up, "%s: and of the one who asked", reuse);
	s = rig_figures(&rig);
	tap_note("%" PRIu64 " requests, %" PRIu64 " hits, %" PRIu64 " stitched, %" PRIu64
		 " refused, rungs %" PRIu64 " %" PRIu64 " %" PRIu64,
		s.allocs, s.hits, s.stitches, s.oom, s.rungs[0], s.rungs[1], s.rungs[2]);
	ok(s.metadata > 0, "tables have a size");
	glk_cache_reset_peaks(&rig.cache);
	s = rig_figures(&rig);
	ok(s.peak_live == s.live && s.peak_reserved == s.reserved, "peaks begin anew");
	for (int i = 0; i < BLOCKS; i++) {
		if (held[i].addr)
			rig_free(&rig, held[i].addr, rig.stream[held[i].stream]);
	}
	s = rig_figures(&rig);
	ok(!s.live && !s.given && !s.live_blocks, "nothing is live at the end");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	agree("wait", seed, NULL);
	agree("done", seed, RIG_DONE, NULL);
	agree("never", seed, RIG_NEVER, NULL);
	return tap_done();
}
