/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Large blocks lie where they lay in the step before, between quiet points. */
#include "cache/step.h"

#include "plan_parts.h"

#define LAYERS 24
#define SAVED  9 /* blocks that a layer leaves */
#define PASSES 10
#define LIVE   (LAYERS * SAVED + 16)
#define EVENTS 4096
#define SCALE  16 /* of a model whose blocks have 64 and 256 MiB, and 3 GiB */

static struct rig rig;
static struct CUstream_st *stream;

/* A step: what is done with the block that has a number. */
struct event {
	enum { TAKE, DROP, SEND, FETCH } what;
	uint32_t at;
	uint64_t size;
};

struct job {
	struct event event[EVENTS];
	int events;
	uint64_t size[LIVE], peak;
};

static void take(struct job *job, uint64_t *live, uint32_t at, uint64_t size)
{
	job->event[job->events++] = (struct event){.what = TAKE, .at = at, .size = size};
	job->size[at] = size;
	*live += size;
	job->peak = *live > job->peak ? *live : job->peak;
}

static void drop(struct job *job, uint64_t *live, uint32_t at)
{
	job->event[job->events++] = (struct event){.what = DROP, .at = at};
	*live -= job->size[at];
}

static void move(struct job *job, uint64_t *live, uint32_t at, bool away)
{
	job->event[job->events++] = (struct event){.what = away ? SEND : FETCH, .at = at};
	*live += away ? 0 - job->size[at] : job->size[at];
}

static void beside(struct job *job, uint64_t *live, uint32_t at, uint64_t mib)
{
	take(job, live, at, mib * MIB / SCALE);
	drop(job, live, at);
}

/*
 * A step of a model whose layers leave blocks behind, every fourth of which goes away, with others beside
 * them for a moment. Then come three large ones, and it goes back.
 */
static void make(struct job *job)
{
	const uint32_t other = LAYERS * SAVED;
	uint64_t live = 0;

	*job = (struct job){0};
	for (uint32_t at = 0; at < other; at++) {
		uint64_t mib = at % SAVED == SAVED - 1 ? 256 : 64;

		take(job, &live, at, mib * MIB / SCALE);
		beside(job, &live, other, mib);
		if (at % 4 == 3)
			move(job, &live, at, true);
	}
	take(job, &live, other, 1571 * MIB / SCALE);
	for (uint32_t i = 1; i <= 3; i++) {
		take(job, &live, other + i, 3142 * MIB / SCALE);
		if (i == 1)
			drop(job, &live, other);
	}
	take(job, &live, other, 1571 * MIB / SCALE);
	for (uint32_t i = 0; i <= 3; i++)
		drop(job, &live, other + i);
	for (uint32_t at = other; at--;) {
		if (at % 4 == 3)
			move(job, &live, at, false);
		take(job, &live, other + at % 2, job->size[at]);
		drop(job, &live, at);
		if (at + 1 < other)
			drop(job, &live, other + !(at % 2));
	}
	drop(job, &live, other);
}

static void play(const struct job *job)
{
	static uint64_t addr[LIVE];

	for (int i = 0; i < job->events; i++) {
		const struct event *e = &job->event[i];

		if (e->what == TAKE)
			addr[e->at] = rig_alloc(&rig, e->size, stream);
		else if (e->what == DROP)
			rig_free(&rig, addr[e->at], stream);
		else if (e->what == SEND
				? glk_cache_spill(&rig.cache, addr[e->at], stream)
				: glk_cache_fetch(&rig.cache, addr[e->at], stream))
			tap_bail(rig_error().text);
	}
}

static void end_step(void)
{
	struct glake_returned did;

	if (glk_cache_quiet(&rig.cache, &did))
		tap_bail("no quiet point");
	glk_step_end(&rig.cache);
}

static void begin(uint64_t budget)
{
	char text[64];

	snprintf(text, sizeof(text), "pool.budget=%llu", (unsigned long long)budget);
	rig_open(&rig, (const char *const[]){"soft.memory=16GiB", text, NULL});
	stream = rig_stream(&rig);
}

static uint64_t all_maps(void)
{
	return rig_calls(&rig, GLAKE_CALL_MAP) + rig_calls(&rig, GLAKE_CALL_UNMAP);
}

/* Calls of the driver that map or unmap in the last of the passes. */
static uint64_t calls(const struct job *job, bool quiet)
{
	uint64_t before = 0;

	begin(job->peak + job->peak / 10);
	for (int i = 0; i < PASSES; i++) {
		if (quiet)
			end_step();
		if (i == PASSES - 4)
			before = all_maps();
		play(job);
	}
	before = all_maps() - before;
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	return before;
}

static void settles(void)
{
	uint64_t without, with;
	static struct job job;

	make(&job);
	without = calls(&job, false);
	with = calls(&job, true);
	ok(without > 20, "equal steps that best fit maps anew: %llu calls",
		(unsigned long long)without);
	ok(!with, "have no calls with quiet points between: %llu",
		(unsigned long long)with);
}

int main(void)
{
	tap_plan_later();
	settles();
	return tap_done();
}
