/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A long and mixed life in which calls of the driver fail at random. A request answers with that
 * error or as if nothing had happened, the tables agree, every block can be used, and what the
 * driver refused to take back is all that is lost.
 */
#include "unit/cache/rig.h"

#include "seed.h"

#include <errno.h>

#define BLOCKS	120
#define STREAMS 3
#define ROUNDS	STORM_SIZE(10000)

struct held {
	uint64_t addr;
	size_t size;
	int stream;
};

static struct rig rig;
static struct held held[BLOCKS];

static size_t draw_size(uint64_t *state)
{
	switch (seed_below(state, 4)) {
	case 0:
		return 1 + seed_below(state, 256 << 10);
	case 1:
		return 1 + seed_below(state, 3 * MIB);
	case 2:
		return 4 * MIB + seed_below(state, 20 * MIB);
	default:
		return 2 * MIB * (1 + seed_below(state, 12));
	}
}

/* One call out of the next few fails, or all of one kind do. */
static void draw_fault(uint64_t *state, bool keeps)
{
	static const char *const calls[] = {"create", "map", "set_access", "event_record",
		"stream_wait", "event_query", "device_sync", "unmap", "release"};
	static const char *const errors[] = {"EIO", "ENOMEM"};
	/* the last two leave memory with the driver */
	size_t count = sizeof(calls) / sizeof(*calls) - (keeps ? 0 : 2);
	const char *call = calls[seed_below(state, count)];
	char fault[64];

	snprintf(fault, sizeof(fault), "%s:%s=%d:err=%s", call,
		seed_below(state, 4) ? "nth" : "from", 1 + (int)seed_below(state, 6),
		errors[seed_below(state, 2)]);
	if (glk_fault_set(rig.drv, fault))
		tap_bail(rig_error().text);
}

/* A kernel on the block: the device refuses it where nothing is mapped, or in no order. */
static bool use(const struct held *h)
{
	return !glk_soft_work(rig.drv, 0, rig.stream[h->stream], h->addr, h->size, true);
}

/* False where something is wrong. */
static bool turn(uint64_t *state)
{
	struct held *h = &held[seed_below(state, BLOCKS)];
	struct glake_stats was = rig_figures(&rig);
	uint64_t what = seed_below(state, 100), released;
	uint32_t flags = what < 8 ? GLAKE_ALLOC_CONTIGUOUS : 0;
	int err;

	if (what == 99) {
		glk_cache_trim(&rig.cache, seed_below(state, 200) * MIB, &released);
		return true;
	}
	if (what >= 92) {
		glk_fault_set(rig.drv, "off");
		glk_soft_run_all(rig.drv);
		return true;
	}
	if (h->addr) {
		err = rig_free(&rig, h->addr, rig.stream[h->stream]);
		if (!err)
			h->addr = 0;
		return true;
	}
	h->size = draw_size(state);
	h->stream = (int)seed_below(state, STREAMS);
	err = rig_try(&rig, h->size, rig.stream[h->stream], flags, &h->addr);
	if (!err)
		return use(h);
	h->addr = 0;
	return (err == -EIO || err == -ENOMEM || err == -EBUSY) &&
		rig_figures(&rig).live == was.live;
}

static void live(const char *name, uint64_t seed, bool keeps, const char *const *settings)
{
	bool right = true, sound = true, whole = true;
	uint64_t state = seed_thread(seed, 5);
	int rounds = tap_rounds(ROUNDS);
	struct glake_stats s;
	struct rig_end end;

	rig_open(&rig, settings);
	for (int i = 0; i < STREAMS; i++)
		rig_stream(&rig);
	memset(held, 0, sizeof(held));
	for (int n = 0; n < rounds && right && sound; n++) {
		if (seed_below(&state, 3) == 0)
			draw_fault(&state, keeps);
		right = turn(&state);
		glk_fault_set(rig.drv, "off");
		if (n % 20 == 0)
			sound = rig_is_sound(&rig);
		s = rig_figures(&rig);
		whole &= keeps || !s.lost;
		if (!right || !sound)
			tap_note("%s, round %d: %s", name, n, rig_error().text);
	}
	ok(right, "%s: requests fail as the driver does, and blocks can be used", name);
	ok(sound, "%s: the figures are those of a walk", name);
	ok(whole, "%s: nothing is lost but what the driver keeps", name);
	s = rig_figures(&rig);
	tap_note("%" PRIu64 " requests, %" PRIu64 " stitched, %" PRIu64
		 " refused, %" PRIu64 " MiB lost",
		s.allocs, s.stitches, s.oom, s.lost >> 20);
	for (int i = 0; i < BLOCKS; i++) {
		if (held[i].addr)
			rig_free(&rig, held[i].addr, rig.stream[held[i].stream]);
	}
	is_sound(&rig, "the books agree");
	end = rig_end(&rig);
	ok(!end.cache && !end.device && !end.live, "all of it goes back at the end");
	tap_expect_log(tap.logs - tap.expected);
}

int main(void)
{
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	live("stepped", seed, false,
		(const char *const[]){"soft.streams=stepped", "pool.budget=300MiB",
			"map.aliases=4", NULL});
	live("patient", seed, false,
		(const char *const[]){"soft.streams=stepped", "pool.budget=300MiB",
			"stream.opportunistic=no", "map.aliases=2", NULL});
	live("without a budget", seed, false,
		(const char *const[]){"soft.streams=stepped", "soft.memory=300MiB",
			"policy.target=1", NULL});
	live("keeps memory", seed, true,
		(const char *const[]){"soft.streams=stepped", "pool.budget=600MiB",
			"map.aliases=4", NULL});
	return tap_done();
}
