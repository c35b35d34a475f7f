/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The random programs again, on a library with a mistake planted in it: each must be found. The
 * linker puts the functions below in the place of those that other files of the library call.
 */
#include "stress/program/program.h"

#include "cache/bin/quick.h"
#include "cache/graph/graph.h"
#include "seed.h"

/* A mistake shows in a few programs out of a hundred; these are enough for all of them. */
#define PROGRAMS 400000
#define A_WORLD	 20

enum mistake {
	NONE,
	TICK_TOO_EARLY,
	SECOND_STREAM_FORGOTTEN,
	NO_LIMBO,
	WAIT_LEFT_OUT,
	NOTED_TOO_LATE,
	END_FORGOTTEN,
	CAPTURE_NOT_SEEN,
	MISTAKES,
};

static const char *const names[MISTAKES] = {
	[TICK_TOO_EARLY] = "the ticket of a free is taken before its last use",
	[SECOND_STREAM_FORGOTTEN] =
		"only one of the streams that used a block is remembered",
	[NO_LIMBO] = "a mapping goes without its work having finished",
	[WAIT_LEFT_OUT] = "a stream wait is counted and not made",
	[NOTED_TOO_LATE] =
		"an event of the program is taken for one recorded at the wait",
	[END_FORGOTTEN] = "a stream that ends is taken for one without work",
	[CAPTURE_NOT_SEEN] = "a capture is not seen",
};

static enum mistake planted;

void __real_glk_arena_merge(
	struct glk_arena *arena, uint32_t extent, const struct glk_use *use);
void __wrap_glk_arena_merge(
	struct glk_arena *arena, uint32_t extent, const struct glk_use *use);
void __wrap_glk_arena_merge(
	struct glk_arena *arena, uint32_t extent, const struct glk_use *use)
{
	struct glk_use forgot = *use;

	forgot.tick -= planted == TICK_TOO_EARLY;
	if (planted == SECOND_STREAM_FORGOTTEN)
		forgot.streams &= -forgot.streams;
	__real_glk_arena_merge(arena, extent, &forgot);
}

bool __real_glk_clock_finished(struct glk_streams *streams, const struct glk_use *use);
bool __wrap_glk_clock_finished(struct glk_streams *streams, const struct glk_use *use);
bool __wrap_glk_clock_finished(struct glk_streams *streams, const struct glk_use *use)
{
	return planted == NO_LIMBO || __real_glk_clock_finished(streams, use);
}

int __real_glk_event_cover(
	struct glk_streams *streams, struct glk_stream *s, unsigned *ret_slot);
int __wrap_glk_event_cover(
	struct glk_streams *streams, struct glk_stream *s, unsigned *ret_slot);
int __wrap_glk_event_cover(
	struct glk_streams *streams, struct glk_stream *s, unsigned *ret_slot)
{
	/* the newest event in flight, whatever it covers */
	if (planted == WAIT_LEFT_OUT && s->count) {
		*ret_slot =
			(s->head + s->count + GLK_STREAM_EVENTS - 1) % GLK_STREAM_EVENTS;
		s->ring[*ret_slot].tick = streams->tick;
		return 0;
	}
	return __real_glk_event_cover(streams, s, ret_slot);
}

void __real_glk_note_wait(struct glk_streams *streams, const struct CUevent_st *event,
	const struct glk_stream *s);
void __wrap_glk_note_wait(struct glk_streams *streams, const struct CUevent_st *event,
	const struct glk_stream *s);
void __wrap_glk_note_wait(struct glk_streams *streams, const struct CUevent_st *event,
	const struct glk_stream *s)
{
	uint64_t *seen = streams->seen[s->bit < GLK_STREAM_CROWD ? s->bit : 0];
	uint64_t before[GLK_STREAM_BITS];

	for (unsigned bit = 0; bit < GLK_STREAM_BITS; bit++)
		before[bit] = seen[bit];
	__real_glk_note_wait(streams, event, s);
	for (unsigned bit = 0; bit < GLK_STREAM_BITS; bit++) {
		if (planted == NOTED_TOO_LATE && seen[bit] != before[bit])
			seen[bit] = streams->tick;
	}
}

int __real_glk_stream_leave(struct glk_streams *streams, struct CUstream_st *handle);
int __wrap_glk_stream_leave(struct glk_streams *streams, struct CUstream_st *handle);
int __wrap_glk_stream_leave(struct glk_streams *streams, struct CUstream_st *handle)
{
	if (planted != END_FORGOTTEN)
		return __real_glk_stream_leave(streams, handle);
	glk_stream_retire(streams, handle);
	return 0;
}

int __real_glk_graph_route(struct glk_cache *cache, struct CUstream_st *stream,
	const struct glk_stream_facts *facts, uint64_t *ret_session);
int __wrap_glk_graph_route(struct glk_cache *cache, struct CUstream_st *stream,
	const struct glk_stream_facts *facts, uint64_t *ret_session);
int __wrap_glk_graph_route(struct glk_cache *cache, struct CUstream_st *stream,
	const struct glk_stream_facts *facts, uint64_t *ret_session)
{
	if (planted != CAPTURE_NOT_SEEN)
		return __real_glk_graph_route(cache, stream, facts, ret_session);
	*ret_session = 0;
	return 0;
}

/* Programs until something is found; their number, or 0. */
static uint64_t find(uint64_t seed, char *what, size_t size)
{
	const char *wrong = NULL;
	struct world w;

	for (uint64_t n = 0; n < PROGRAMS; n += A_WORLD) {
		uint64_t i = 0;

		world_open(&w, seed + n);
		while (i < A_WORLD && !wrong)
			wrong = program_run(&w, seed + n + i++);
		if (wrong) {
			snprintf(what, size, "%s", wrong);
			/* what is left is of no interest any more */
			world_abandon(&w);
			return n + i;
		}
		wrong = world_close(&w);
		if (wrong) {
			snprintf(what, size, "%s", wrong);
			return n + i;
		}
	}
	return 0;
}

int main(void)
{
	char what[640];
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	for (planted = NONE + 1; planted < MISTAKES; planted++) {
		uint64_t programs = find(seed, what, sizeof(what));

		if (ok(programs > 0, "found: %s", names[planted]))
			tap_note("in program %" PRIu64 ", %s", programs, what);
	}
	/* what a library with a mistake says of it */
	tap_expect_log(tap.logs);
	return tap_done();
}
