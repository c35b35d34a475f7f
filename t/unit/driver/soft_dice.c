/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Random orders of the software device: told by the seed, and all of them. */
#include "soft_setup.h"

static struct glk_conf conf;

static void open_with(int64_t seed)
{
	conf = setup_conf();
	conf.soft_streams = GLK_SOFT_STREAMS_RANDOM;
	conf.soft_seed = seed;
	set_up(&conf);
}

/* Closes without a word: the test counts by itself. */
static bool closes(void)
{
	int err = 0;

	for (int i = 0; i < STREAMS; i++)
		err |= drv->ops->stream_free(drv, 0, streams[i]);
	for (int i = 0; i < EVENTS; i++)
		err |= drv->ops->user_event_free(drv, events[i]);
	err |= page_unmap();
	err |= drv->ops->unreserve(drv, base, 8 * GRANULE);
	return !(err | glk_drv_close(drv));
}

/* A call that reaches the device and does nothing. */
static void call(void)
{
	drv->ops->stream_owner(drv, 0, NULL);
}

/* What a fixed program did after each of its calls, as a number. */
static uint64_t trace(int64_t seed)
{
	uint64_t sum = 1;

	open_with(seed);
	for (uint32_t i = 0; i < 60; i++) {
		fill((int)(i % STREAMS), i, 1);
		if (i % 7 == 3) {
			record((int)(i % STREAMS), 0);
			wait_for((int)(i / 2 % STREAMS), 0);
		}
		for (uint32_t at = 0; at < 60; at++)
			sum = sum * 31 + word(at);
	}
	drv->ops->device_sync(drv, 0);
	for (uint32_t at = 0; at < 60; at++)
		sum += word(at) == 1 ? 0 : 1000;
	return closes() ? sum : 0;
}

static void seeds(void)
{
	uint64_t sums[8];
	int same = 0, alike = 0;

	for (int i = 0; i < 8; i++) {
		sums[i] = trace(i);
		same += sums[i] && sums[i] == trace(i);
		for (int j = 0; j < i; j++)
			alike += sums[i] == sums[j];
	}
	is_int(same, 8, "the same seed makes the same steps");
	is_int(alike, 0, "other seeds make others");
	ok(trace(INT64_MAX) != trace(INT64_MAX - 1), "up to the largest");
}

/* How two streams of three fills were mixed, a bit for each fill from the first; 0 if two of
 * them ran in one call, so that nobody can tell. */
static uint32_t mixture(void)
{
	uint32_t path = 1, ran[2] = {0, 0};
	bool told = true;

	for (int s = 0; s < 2; s++)
		glk_soft_hold(drv, 0, streams[s], true);
	for (int i = 0; i < 6; i++)
		fill(i % 2, (uint32_t)i, 1);
	for (int s = 0; s < 2; s++)
		glk_soft_hold(drv, 0, streams[s], false);
	while (ran[0] + ran[1] < 6) {
		uint32_t a, b;

		call();
		a = 3 - pending(0) - ran[0];
		b = 3 - pending(1) - ran[1];
		told &= a + b <= 1;
		if (a + b)
			path = path << 1 | (b > 0);
		ran[0] += a;
		ran[1] += b;
	}
	return told ? path & 63 : 0;
}

static void all_orders(void)
{
	uint64_t seen = 0;

	open_with(1);
	for (int i = 0; i < 20000; i++)
		seen |= UINT64_C(1) << mixture();
	is_int(__builtin_popcountll(seen & ~UINT64_C(1)), 20,
		"all 20 ways to mix two streams come up");
	closes();
}

static void early_and_late(void)
{
	int longest = 0, at_once = 0;

	for (int seed = 0; seed < 100; seed++) {
		int calls = 0;

		open_with(seed);
		fill(0, 0, 1);
		for (; pending(0) && calls < 100000; calls++)
			call();
		longest = calls > longest ? calls : longest;
		at_once += calls <= 1;
		closes();
	}
	ok(longest > 100, "work is left behind for long: %d calls", longest);
	ok(longest < 100000, "but not for ever");
	ok(at_once > 10, "and runs soon, too: %d of 100", at_once);
}

static void keeps(void)
{
	open_with(1);
	glk_soft_hold(drv, 0, streams[0], true);
	fill(0, 0, 1);
	for (int i = 0; i < 1000; i++)
		call();
	is_int(word(0), 0, "a held stream stays");
	glk_soft_hold(drv, 0, streams[0], false);
	is_int(word(0), 0, "its end alone runs nothing");
	is_int(glk_soft_step(drv, 0, streams[0]), 0, "steps can be made");
	is_int(word(0), 1, "beside the random ones");
	fill(0, 0, 2);
	is_int(drv->ops->stream_sync(drv, 0, streams[0]), 0, "the host waits");
	is_int(word(0), 2, "and all has run");
	take_down();
}

static void configured(void)
{
	glk_conf_init(&conf);
	is_int(conf.soft_seed, 0, "the seed is 0");
	is_int(glk_conf_set(&conf, "soft.streams=random"), 0, "the mode has a name");
	is_int(conf.soft_streams, GLK_SOFT_STREAMS_RANDOM, "and a number");
	is_int(glk_conf_set(&conf, "soft.seed=9223372036854775807"), 0,
		"the largest seed");
	is_int(conf.soft_seed, INT64_MAX, "is taken");
	is_int(glk_conf_set(&conf, "soft.seed=9223372036854775808"), -EINVAL, "one more");
	is_int(glk_conf_set(&conf, "soft.seed=-1"), -EINVAL, "and one less than none");
}

int main(void)
{
	tap_plan_later();
	configured();
	seeds();
	all_orders();
	early_and_late();
	keeps();
	return tap_done();
}
