/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which streams used a block, against a list of them: none is forgotten, however many they are and whoever
 * adds them, and with one or two that have no low bit no other is waited for.
 */
#include "move/marks.h"

#include "seed.h"
#include "unit/stream/gpu.h"

#include <pthread.h>

#define STREAMS 150
#define TURNS	4000
#define LOW	38 /* streams with a bit there: the first, which got the lowest */

static struct gpu gpu;
static struct glk_stream *known[STREAMS];

/* In a use, by the name or the bit. */
static bool is_in(const struct glk_use *use, const struct glk_stream *s)
{
	if (!(use->streams & glk_stream_mask(s)))
		return false;
	return s->bit != GLK_STREAM_CROWD || glk_use_crowded(use) ||
		glk_use_names_all(use->named, s->id);
}

static struct glk_use use_of_some(uint64_t *state, bool *used)
{
	struct glk_use use = {0}, one;

	for (int n = (int)seed_below(state, 4); n; n--) {
		uint32_t i = (uint32_t)seed_below(state, STREAMS);

		one = glk_stream_use(known[i], gpu.streams.tick);
		glk_use_add(&use, &one);
		used[i] = true;
	}
	return use;
}

/* A few streams, by themselves and in uses; how many of them have no low bit. */
static uint32_t add_some(uint64_t *state, struct glk_extent *e, bool *used)
{
	uint32_t high = 0;

	for (int n = 1 + (int)seed_below(state, 4); n; n--) {
		uint32_t i =
			(uint32_t)seed_below(state, seed_below(state, 2) ? LOW : STREAMS);
		struct glk_use use;

		if (seed_below(state, 3)) {
			glk_marks_add(&gpu.streams, e, known[i]->id);
			used[i] = true;
			continue;
		}
		use = use_of_some(state, used);
		glk_marks_add_use(&gpu.streams, e, &use);
	}
	for (uint32_t i = LOW; i < STREAMS; i++)
		high += used[i];
	return high;
}

static void test_random(uint64_t *state)
{
	int lost = 0, late = 0, more = 0, few = 0;

	for (int turn = 0; turn < TURNS; turn++) {
		struct glk_extent e = {0};
		bool used[STREAMS] = {0};
		uint32_t high = add_some(state, &e, used);
		uint64_t tick = glk_clock_tick(&gpu.streams, NULL);
		struct glk_use use = glk_marks_use(&gpu.streams, &e, tick);

		few += high && high < 3;
		for (uint32_t i = 0; i < STREAMS; i++) {
			lost += used[i] && !is_in(&use, known[i]);
			late += used[i] &&
				glk_stream_freed(&gpu.streams, known[i]) < tick;
			more += !used[i] && (high < 3 || i < LOW) &&
				is_in(&use, known[i]);
		}
	}
	is_int(lost, 0, "no stream that used a block is forgotten");
	is_int(late, 0, "and what it was given until the free counts");
	is_int(more, 0, "nobody is waited for that did not use it");
	ok(few > TURNS / 5, "one or two of many streams, often");
}

static void *add_own(void *arg)
{
	struct glk_extent *e = arg;

	for (uint32_t i = 0; i < LOW; i++)
		glk_marks_add(&gpu.streams, e, known[i]->id);
	glk_marks_add(&gpu.streams, e, known[STREAMS - 1]->id);
	return NULL;
}

/* Two threads at once. */
static void test_together(void)
{
	int lost = 0;

	for (int turn = 0; turn < 200; turn++) {
		struct glk_extent e = {0};
		pthread_t other;
		struct glk_use use;

		pthread_create(&other, NULL, add_own, &e);
		for (uint32_t i = LOW; i-- > 0;)
			glk_marks_add(&gpu.streams, &e, known[i]->id);
		glk_marks_add(&gpu.streams, &e, known[STREAMS - 2]->id);
		pthread_join(other, NULL);
		use = glk_marks_use(&gpu.streams, &e, gpu.streams.tick);
		for (uint32_t i = 0; i < LOW; i++)
			lost += !is_in(&use, known[i]);
		lost += !is_in(&use, known[STREAMS - 1]) +
			!is_in(&use, known[STREAMS - 2]);
		lost += glk_use_crowded(&use);
	}
	is_int(lost, 0, "two threads that add at once");
}

/* The number of one that has gone is nobody's, and then another one's. */
static void test_gone(void)
{
	struct glk_stream *s = known[STREAMS - 1], *new;
	struct glk_extent e = {0};
	uint32_t id = s->id;
	struct glk_use use;

	glk_marks_add(&gpu.streams, &e, id);
	is_int(glk_stream_leave(&gpu.streams, s->handle), 0, "a stream leaves");
	/* a few of them are asked at a time */
	for (int i = 0; i < STREAMS / 16; i++)
		gpu_finish(&gpu);
	use = glk_marks_use(&gpu.streams, &e, glk_clock_tick(&gpu.streams, NULL));
	ok(!use.streams, "nobody waits for it");
	new = gpu_stream(&gpu);
	is_int(new->id, id, "another one has its number");
	use = glk_marks_use(&gpu.streams, &e, glk_clock_tick(&gpu.streams, NULL));
	ok(use.named == id && !glk_clock_finished(&gpu.streams, &use),
		"and is waited for in vain");
	known[STREAMS - 1] = new;
}

int main(void)
{
	uint64_t state;

	tap_plan_later();
	state = seed_start() | 1;
	gpu_open(&gpu);
	for (int i = 0; i < STREAMS; i++)
		known[i] = gpu_stream(&gpu);
	test_gone();
	test_random(&state);
	test_together();
	gpu_finish(&gpu);
	gpu_close(&gpu);
	return tap_done();
}
