/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Large blocks of several streams lie where they lay in the step before, between quiet points. */
#include "cache/step.h"

#include "plan_parts.h"
#include "seed.h"

#define JOBS	6
#define PASSES	10
#define SETTLED 4
#define LIVE	48
#define EVENTS	400

static struct rig rig;
static struct CUstream_st *streams[2];

/* A step: an event takes a block of a stream, or frees the one that lies there. */
struct event {
	uint32_t at;
	uint32_t stream;
	uint64_t size; /* 0: it is freed */
};

struct job {
	struct event event[EVENTS + LIVE];
	int events;
	uint64_t peak;
};

/* Blocks of all sizes in any order, a third of them of the other stream. */
static void make(struct job *job, uint64_t number)
{
	uint64_t size[LIVE] = {0}, live = 0, rolled = seed_thread(number, 0);
	uint32_t stream[LIVE] = {0};

	*job = (struct job){0};
	for (int i = 0; i < EVENTS; i++) {
		struct event *e = &job->event[job->events++];

		e->at = (uint32_t)seed_below(&rolled, LIVE);
		live -= size[e->at];
		if (size[e->at]) {
			e->stream = stream[e->at];
			size[e->at] = 0;
			continue;
		}
		e->size = 300 +
			((UINT64_C(64) << seed_below(&rolled, 9)) *
				(1 + seed_below(&rolled, 7)));
		e->size <<= 10;
		e->stream = stream[e->at] = seed_below(&rolled, 3) == 0;
		size[e->at] = e->size;
		live += e->size;
		job->peak = live > job->peak ? live : job->peak;
	}
	for (uint32_t at = 0; at < LIVE; at++) {
		if (size[at])
			job->event[job->events++] =
				(struct event){.at = at, .stream = stream[at]};
	}
}

static void play(const struct job *job)
{
	static uint64_t addr[LIVE];

	for (int i = 0; i < job->events; i++) {
		const struct event *e = &job->event[i];

		if (e->size) {
			addr[e->at] = rig_alloc(&rig, e->size, streams[e->stream]);
			if (addr[e->at])
				rig_work(&rig, addr[e->at], e->size, streams[e->stream]);
		} else if (addr[e->at]) {
			rig_free(&rig, addr[e->at], streams[e->stream]);
		}
	}
}

static uint64_t all_maps(void)
{
	return rig_calls(&rig, GLAKE_CALL_MAP) + rig_calls(&rig, GLAKE_CALL_UNMAP);
}

static void end_step(void)
{
	struct glake_returned did;

	if (glk_cache_quiet(&rig.cache, &did))
		tap_bail("no quiet point");
	glk_step_end(&rig.cache);
}

/* The calls that map or unmap, and the waits, of each pass. */
struct pass {
	uint64_t maps, waits;
};

static void run(const struct job *job, bool quiet, struct pass pass[PASSES])
{
	uint64_t maps, waits;
	char text[64];

	snprintf(text, sizeof(text), "pool.budget=%llu",
		(unsigned long long)(job->peak + job->peak / 10));
	rig_open(&rig,
		(const char *const[]){
			"soft.memory=16GiB", "soft.streams=stepped", text, NULL});
	streams[0] = rig_stream(&rig);
	streams[1] = rig_stream(&rig);
	for (int i = 0; i < PASSES; i++) {
		glk_soft_run_all(rig.drv);
		if (quiet)
			end_step();
		maps = all_maps();
		waits = rig_calls(&rig, GLAKE_CALL_STREAM_WAIT);
		play(job);
		pass[i].maps = all_maps() - maps;
		pass[i].waits = rig_calls(&rig, GLAKE_CALL_STREAM_WAIT) - waits;
	}
	if (!rig_is_sound(&rig))
		tap_bail("the books do not agree");
	rig_close(&rig, 0);
}

/* Equal steps of two streams, which have to have memory of each other. */
static void settles(void)
{
	uint64_t without = 0, waits = 0, later = 0, with = 0;
	struct pass pass[PASSES];
	static struct job job;

	for (uint64_t number = 0; number < JOBS; number++) {
		make(&job, 2 * number);
		run(&job, false, pass);
		for (int i = SETTLED; i < PASSES; i++) {
			without += pass[i].maps;
			waits += pass[i].waits;
		}
		run(&job, true, pass);
		for (int i = SETTLED; i < PASSES; i++) {
			with += pass[i].maps;
			later += pass[i].waits;
		}
	}
	ok(without > 1000, "equal steps that best fit maps anew: %llu calls",
		(unsigned long long)without);
	ok(!with, "have no calls behind the fourth with quiet points between: %llu",
		(unsigned long long)with);
	ok(later <= waits + waits / 2, "and %llu waits, where best fit has %llu",
		(unsigned long long)later, (unsigned long long)waits);
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
	tap_plan_later();
	settles();
	takes_no_ladder();
	return tap_done();
}
