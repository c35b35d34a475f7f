/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Large blocks lie where they lay in the step before, between quiet points. */
#include "cache/step.h"

#include "plan_parts.h"

#define LAYERS 24
#define SAVED  9 /* blocks that a layer leaves */
#define PASSES 16
#define LATER  20 /* passes until some have changed places */
#define LIVE   (LAYERS * SAVED + 16)
#define EVENTS 4096
#define SCALE  32 /* of a model whose blocks have 64 and 256 MiB, and 3 GiB */

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

/* The same, where nothing of what is sent has gone before the large ones come. The waits of requests for that. */
static uint64_t play_late(const struct job *job)
{
	struct job part = *job;
	uint64_t waits = 0, before;
	int from = 0;

	for (int i = 0; i < job->events; i++) {
		const struct event *e = &job->event[i];

		if (e->what == TAKE && e->size > 1024 * MIB / SCALE) {
			glk_soft_run_all(rig.drv);
			from = i;
			break;
		}
		part.events = 1;
		part.event[0] = *e;
		before = rig_calls(&rig, GLAKE_CALL_STREAM_WAIT);
		play(&part);
		if (e->what == TAKE)
			waits += rig_calls(&rig, GLAKE_CALL_STREAM_WAIT) - before;
	}
	part.events = job->events - from;
	memcpy(part.event, job->event + from, (size_t)part.events * sizeof(*part.event));
	play(&part);
	glk_soft_run_all(rig.drv);
	return waits;
}

static void end_step(void)
{
	struct glake_returned did;

	if (glk_cache_quiet(&rig.cache, &did))
		tap_bail("no quiet point");
	glk_step_end(&rig.cache);
}

static void begin(uint64_t budget, const char *streams)
{
	char text[64];

	snprintf(text, sizeof(text), "pool.budget=%llu", (unsigned long long)budget);
	rig_open(&rig,
		(const char *const[]){"soft.memory=16GiB", "pool.large_page=4MiB",
			streams, text, NULL});
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

	begin(job->peak + job->peak / 10, "soft.streams=worker");
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

/* What goes away is hardly in the way of the blocks that come next, and little is mapped for that after a while. */
static void goes_round(void)
{
	uint64_t waits = 0, maps = 0, first = 0;
	static struct job job;

	make(&job);
	begin(job.peak + job.peak / 10, "soft.streams=stepped");
	for (int i = 0; i < LATER; i++) {
		maps = all_maps();
		waits = play_late(&job);
		maps = all_maps() - maps;
		first = i == 1 ? waits : first;
		printf("# pass %d: %llu waits, %llu calls that map\n", i,
			(unsigned long long)waits, (unsigned long long)maps);
		end_step();
	}
	ok(first > 40 && 4 * waits <= first,
		"%llu requests of a step are behind contents that leave, at first %llu",
		(unsigned long long)waits, (unsigned long long)first);
	ok(maps <= 32, "and little is mapped for that: %llu calls",
		(unsigned long long)maps);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* What goes when all work is done, and that is known. */
static uint64_t trim(void)
{
	uint64_t first, then;

	if (glk_cache_trim(&rig.cache, 0, &first))
		tap_bail("no trim");
	glk_soft_run_all(rig.drv);
	if (glk_cache_trim(&rig.cache, 0, &then))
		tap_bail("no trim");
	return first + then;
}

/*
 * The place of the last step has no page any more, and those that are idle are another stream's, which is at
 * work: a place that needs nothing is better.
 */
static void takes_no_ladder(void)
{
	uint64_t kept, beside, lain, last, other, again, calls;
	struct CUstream_st *a, *b;

	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "policy.bins=0",
			"pool.large_page=2MiB", "pool.budget=14MiB", RIG_DONE, NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	kept = rig_alloc(&rig, 3 * MIB, a);
	beside = rig_alloc(&rig, MIB, a);
	lain = rig_alloc(&rig, 2 * MIB, a);
	last = rig_alloc(&rig, 2 * MIB, a);
	ok(beside == kept + 3 * MIB && lain == kept + 4 * MIB && last == kept + 6 * MIB,
		"blocks side by side");
	rig_free(&rig, lain, a);
	is_int((int64_t)trim(), 2 << 20, "a page goes");
	end_step();
	is_int((int64_t)rig_alloc(&rig, MIB, a), (int64_t)lain, "a block of a step");
	rig_free(&rig, lain, a);
	end_step();
	is_int((int64_t)trim(), 2 << 20, "the page behind it goes again");
	other = rig_alloc(&rig, 8 * MIB, b);
	rig_work(&rig, other, 8 * MIB, b);
	rig_free(&rig, other, b);
	rig_free(&rig, beside, a);
	calls = rig_all_calls(&rig);
	again = rig_alloc(&rig, MIB, a);
	is_int((int64_t)again, (int64_t)beside, "it has a place where there is one");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0,
		"and nothing is called or waited for");
	rig_free(&rig, again, a);
	rig_free(&rig, last, a);
	rig_free(&rig, kept, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	if (tap_one_thread_takes_long())
		tap_skip_all("takes too long here");
	tap_plan_later();
	settles();
	goes_round();
	takes_no_ladder();
	return tap_done();
}
