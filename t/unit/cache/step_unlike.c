/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A job whose steps are unlike each other loses nothing by its quiet points. */
#include "cache/step.h"

#include "plan_parts.h"
#include "seed.h"

#define JOBS   6
#define STEPS  60
#define EVENTS 240
#define LIVE   24

static struct rig rig;
static struct CUstream_st *stream;

/* A step: an event takes a block, or frees the one that lies there. */
struct event {
	uint32_t at;
	uint64_t size; /* 0: it is freed */
};

struct job {
	struct event event[EVENTS + LIVE];
	int events;
	uint64_t peak;
};

static void make(struct job *job, uint64_t *rolled)
{
	uint64_t size[LIVE] = {0}, live = 0;

	*job = (struct job){0};
	for (int i = 0; i < EVENTS; i++) {
		struct event *e = &job->event[job->events++];

		e->at = (uint32_t)seed_below(rolled, LIVE);
		live -= size[e->at];
		if (size[e->at]) {
			size[e->at] = 0;
			continue;
		}
		e->size = 300 +
			((UINT64_C(64) << seed_below(rolled, 7)) *
				(1 + seed_below(rolled, 7)));
		e->size <<= 10;
		size[e->at] = e->size;
		live += e->size;
		job->peak = live > job->peak ? live : job->peak;
	}
	for (uint32_t at = 0; at < LIVE; at++) {
		if (size[at])
			job->event[job->events++] = (struct event){.at = at};
	}
}

/* Some of the sizes differ by a percent or two from step to step. */
static void play(const struct job *job, uint64_t *rolled, uint64_t percent)
{
	static uint64_t addr[LIVE];

	for (int i = 0; i < job->events; i++) {
		const struct event *e = &job->event[i];
		uint64_t size = e->size;

		if (size && percent)
			size -= size / 100 * seed_below(rolled, percent + 1);
		if (size)
			addr[e->at] = rig_alloc(&rig, size, stream);
		else if (addr[e->at])
			rig_free(&rig, addr[e->at], stream);
	}
}

static void end_step(void)
{
	struct glake_returned did;

	if (glk_cache_quiet(&rig.cache, &did))
		tap_bail("no quiet point");
	glk_step_end(&rig.cache);
}

struct cost {
	uint64_t called, held;
};

/* Two kinds of steps by turns, or one whose sizes vary, or all at random. */
enum kind { TURNS, SIZES, RANDOM };

static void run(enum kind kind, uint64_t number, bool quiet, struct cost *cost)
{
	uint64_t rolled = seed_thread(number, 0), most = 0, now;
	struct job job[2];

	make(&job[0], &rolled);
	make(&job[1], &rolled);
	rig_open(&rig, (const char *const[]){"soft.memory=16GiB", NULL});
	stream = rig_stream(&rig);
	for (int i = 0; i < STEPS; i++) {
		if (quiet)
			end_step();
		if (kind == RANDOM)
			make(&job[0], &rolled);
		play(&job[kind == TURNS ? i % 2 : 0], &rolled, kind == SIZES ? 4 : 0);
		now = glk_load_relaxed(&rig.cache.node->held);
		most = now > most ? now : most;
	}
	cost->called += rig_figures(&rig).called;
	cost->held += most;
	if (!rig_is_sound(&rig))
		tap_bail("the books do not agree");
	rig_close(&rig, 0);
}

static void loses_nothing(enum kind kind, const char *what)
{
	struct cost without = {0}, with = {0};

	for (uint64_t i = 0; i < JOBS; i++) {
		run(kind, 17 + i, false, &without);
		run(kind, 17 + i, true, &with);
	}
	ok(with.called <= without.called + without.called / 10,
		"%s: %llu requests call the driver with quiet points, %llu without", what,
		(unsigned long long)with.called, (unsigned long long)without.called);
	ok(with.held <= without.held + without.held / 20,
		"%llu MiB are held at most, and %llu",
		(unsigned long long)(with.held / MIB / JOBS),
		(unsigned long long)(without.held / MIB / JOBS));
}

int main(void)
{
	tap_plan_later();
	loses_nothing(TURNS, "two kinds of steps by turns");
	loses_nothing(SIZES, "sizes that vary");
	loses_nothing(RANDOM, "steps at random");
	return tap_done();
}
