/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams beyond those with a bit of their own, by chance: what is known of their work is what one finds who
 * looks at all of them, whatever was freed, waited for, asked and ended; and those that rest are not met.
 */
#include "gpu.h"
#include "seed.h"

#define STREAMS 160
#define TURNS	6000
#define USES	64

static struct glk_stream *known[STREAMS];
static struct CUstream_st *handle[STREAMS];

static bool in_crowd(const struct glk_stream *s)
{
	return s->bit == GLK_STREAM_CROWD;
}

/* By a look at each, where that was not found before. */
static bool all_finished(const struct glk_streams *streams, uint64_t tick)
{
	bool finished = true;

	if (tick <= streams->crowd.passed)
		return true;

	for (uint32_t id = streams->by_bit[GLK_STREAM_CROWD]; id;
		id = glk_stream_at(streams, id)->next) {
		const struct glk_stream *s = glk_stream_at(streams, id);

		finished &= s->done >= glk_stream_needs(streams, s, tick);
	}
	return finished;
}

/* Those that the walk meets are those with work. */
static bool meets_all(struct glk_streams *streams)
{
	uint32_t met = 0, working = 0;

	for (uint32_t id = 0; (id = glk_clock_next_working(streams, id));)
		met += in_crowd(glk_stream_at(streams, id));
	for (uint32_t id = streams->by_bit[GLK_STREAM_CROWD]; id;
		id = glk_stream_at(streams, id)->next)
		working += glk_stream_at(streams, id)->done <
			glk_stream_freed(streams, glk_stream_at(streams, id));
	return met == working;
}

static void begin(struct gpu *gpu, unsigned i)
{
	handle[i] = gpu_handle(gpu);
	known[i] = gpu_enter(gpu, handle[i]);
}

/* One stream does something, or something is asked. */
static void turn(struct gpu *gpu, uint64_t *state, struct glk_use *use)
{
	unsigned i = (unsigned)seed_below(state, STREAMS);
	struct glk_use joined;

	switch (seed_below(state, 16)) {
	case 0: /* it ends, and another one begins */
		if (seed_below(state, 2))
			gpu_finish(gpu);
		else
			glk_stream_leave(&gpu->streams, handle[i]);
		glk_stream_retire(&gpu->streams, handle[i]);
		gpu_destroy(gpu, handle[i]);
		begin(gpu, i);
		break;
	case 1:
		gpu_finish(gpu);
		break;
	case 2:
		glk_event_poll(&gpu->streams);
		break;
	case 3:
		glk_event_poll_use(&gpu->streams, use, true);
		break;
	case 4:
		glk_clock_order(&gpu->streams, use, known[i]);
		break;
	case 5:
		joined = glk_use_of(
			GLK_USE_CROWD, glk_clock_tick(&gpu->streams, known[i]));
		glk_clock_join(&gpu->streams, &joined);
		break;
	default:
		*use = gpu_free(gpu, known[i]);
		if (seed_below(state, 2) && use->streams & GLK_USE_CROWD)
			use->named = 0; /* of several */
	}
}

/* A use of one of the crowd, which is named, and of a stream that has a bit of its own. */
static void asks_for_both(struct gpu *gpu)
{
	struct glk_use use = gpu_free(gpu, known[STREAMS - 1]);
	struct glk_use own = gpu_free(gpu, known[0]);

	ok(use.named && !(own.streams & GLK_USE_CROWD), "a use of two");
	use.streams |= own.streams;
	use.tick = own.tick;
	ok(!glk_event_poll_use(&gpu->streams, &use, true), "whose work is under way");
	glk_soft_run_all(gpu->drv);
	ok(!glk_event_poll_use(&gpu->streams, &use, true),
		"and is, where one of them is done");
	gpu_finish(gpu);
	ok(glk_event_poll_use(&gpu->streams, &use, true), "until both are");
}

int main(void)
{
	struct glk_use use[USES] = {{0}};
	bool same = true, met = true, finished;
	uint64_t state, asked = 0;
	struct gpu gpu;

	tap_plan_later();
	state = seed_thread(seed_start(), 0);
	gpu_open(&gpu);
	for (unsigned i = 0; i < STREAMS; i++)
		begin(&gpu, i);
	ok(in_crowd(known[STREAMS - 1]), "more streams than bits");
	asks_for_both(&gpu);
	for (unsigned n = 0; n < TURNS && same && met; n++) {
		struct glk_use *u = &use[seed_below(&state, USES)];

		turn(&gpu, &state, u);
		met = meets_all(&gpu.streams);
		u = &use[seed_below(&state, USES)];
		if (u->streams != GLK_USE_CROWD || u->named)
			continue;
		asked++;
		finished = all_finished(&gpu.streams, u->tick);
		same = glk_clock_finished(&gpu.streams, u) == finished;
	}
	ok(met, "who looks for work meets all that have some");
	ok(same, "and knows what a look at each tells");
	ok(asked > TURNS / 50, "of uses by several, often");
	gpu_finish(&gpu);
	is_int(gpu_sync_all(&gpu), 0, "the GPU is waited for");
	is_int(glk_clock_next_working(&gpu.streams, 0), 0,
		"then all rest, and none is met");
	gpu_close(&gpu);
	return tap_done();
}
