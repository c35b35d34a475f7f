/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Planners of serving engines: what each call answers, decisions that can be reckoned by hand, and engines driven by
 * chance, whose memory is counted by what was computed and copied and not by what the planner says.
 */
#include "kv/planner.h"

#include "seed.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <glake/error.h>

#define MS INT64_C(1000000)

/* Four layers of a byte a token each, a prompt 1 ms a token, a step 10 ms; the link takes 4 us a token and layer. */
static const struct glake_planner_options small = {.sz = sizeof(small),
	.layers = 4,
	.layer_bytes = 1,
	.memory = 400,
	.out = 0.00025,
	.back = 0.00025,
	.cost = {.prompt_token = 1e6, .step = 10e6},
	.requests = 8};

static struct glake_planner *open_planner(struct glake_planner_options o)
{
	struct glake_planner *p = NULL;

	if (glake_planner_open(&o, &p))
		tap_bail("no planner");
	return p;
}

static uint32_t come(struct glake_planner *p, int64_t now, uint32_t prompt,
	uint32_t generated, int64_t token)
{
	struct glake_planner_request r = {.sz = sizeof(r),
		.prompt = prompt,
		.generated = generated,
		.token = token};
	uint32_t id = 99;

	is_int(glake_planner_submit(p, now, &r, &id), 0, "a request has come");
	return id;
}

static struct glake_planner_work next(struct glake_planner *p, int64_t now)
{
	struct glake_planner_work w = {.sz = sizeof(w)};

	if (glake_planner_next(p, now, &w))
		tap_bail("nothing comes next");
	return w;
}

static int stage(const struct glake_planner *p, uint32_t id)
{
	struct glake_planner_state s = {.sz = sizeof(s)};

	return glake_planner_state_get(p, id, &s) ? -1 : s.stage;
}

static uint64_t used(const struct glake_planner *p)
{
	struct glake_planner_figures f = {.sz = sizeof(f)};

	glake_planner_figures_get(p, &f);
	return f.used;
}

/* ---- What is answered ---- */

static void refuse(const char *what, struct glake_planner_options o)
{
	struct glake_planner *p = NULL;

	is_int(glake_planner_open(&o, &p), -EINVAL, what);
	ok(!p, "and there is none");
}

#define WITH(field, value)                                                               \
	({                                                                               \
		struct glake_planner_options o_ = small;                                 \
		o_.field = value;                                                        \
		o_;                                                                      \
	})

static void options(void)
{
	struct {
		struct glake_planner_options o;
		char more[8];
	} large = {small, "x"};
	struct glake_planner *p = NULL;

	refuse("no layers", WITH(layers, 0));
	refuse("too many layers", WITH(layers, GLAKE_PLANNER_LAYERS_MAX + 1));
	refuse("layers of nothing", WITH(layer_bytes, 0));
	refuse("no memory", WITH(memory, 0));
	refuse("a link that carries nothing out", WITH(out, 0));
	refuse("or back", WITH(back, 0.0 / 0.0));
	refuse("a cost below 0", WITH(cost.step, -1));
	refuse("a cost that is no number", WITH(cost.prompt_square, 0.0 / 0.0));
	refuse("no requests", WITH(requests, 0));
	refuse("too many", WITH(requests, GLAKE_PLANNER_REQUESTS_MAX + 1));
	refuse("a policy that is none", WITH(policy, 3));
	is_int(glake_planner_open(NULL, &p), -EINVAL, "no options");
	is_int(glake_planner_open(&small, NULL), -EINVAL, "no place");
	large.o.sz = sizeof(large);
	is_int(glake_planner_open(&large.o, &p), -E2BIG, "options of a later version");
	glake_planner_close(NULL);
	p = open_planner(WITH(requests, GLAKE_PLANNER_REQUESTS_MAX));
	ok(p != NULL, "as many as may be");
	glake_planner_close(p);
}

static void refuse_request(struct glake_planner *p, int want, const char *what,
	struct glake_planner_request r)
{
	uint32_t id = 99;

	r.sz = sizeof(r);
	is_int(glake_planner_submit(p, 0, &r, &id), want, what);
	is_int(id, 99, "it has no number");
}

static void requests(void)
{
	struct glake_planner *p = open_planner(small);
	struct glake_planner_request good = {
		.sz = sizeof(good), .prompt = 10, .generated = 2};
	struct glake_planner_work w = {.sz = sizeof(w)}, tiny = {.sz = 3};
	struct glake_planner_copy m = {.sz = sizeof(m)};
	struct glake_planner_state s = {.sz = sizeof(s)};
	struct glake_planner_figures f = {.sz = sizeof(f)};
	uint32_t id;

	refuse_request(
		p, -EINVAL, "no prompt", (struct glake_planner_request){.generated = 1});
	refuse_request(
		p, -EINVAL, "no output", (struct glake_planner_request){.prompt = 1});
	refuse_request(p, -EINVAL, "an objective below 0",
		(struct glake_planner_request){.prompt = 1, .generated = 1, .token = -1});
	refuse_request(p, -ERANGE, "one that has no room alone",
		(struct glake_planner_request){.prompt = 90, .generated = 11});
	is_int(glake_planner_submit(NULL, 0, &good, &id), -EINVAL, "no planner");
	is_int(glake_planner_submit(p, 0, NULL, &id), -EINVAL, "no request");
	is_int(glake_planner_submit(p, 0, &good, NULL), -EINVAL, "no place");
	is_int(glake_planner_move(p, 0, &m), -EAGAIN, "nothing is to move");
	is_int(glake_planner_done(p, 0), -EINVAL, "nothing is done");
	is_int(next(p, 0).what, GLAKE_PLANNER_IDLE, "nothing is to be done");
	is_int(glake_planner_next(p, 0, NULL), -EINVAL, "no place for work");
	is_int(glake_planner_move(p, 0, NULL), -EINVAL, "nor for a move");
	is_int(glake_planner_end(p, 0, 0), -EINVAL, "nobody ends");
	is_int(glake_planner_end(p, 0, 8), -EINVAL, "a number that is none");
	is_int(glake_planner_state_get(p, 0, &s), -EINVAL, "nobody has a state");
	for (int i = 0; i < 8; i++)
		is_int(glake_planner_submit(p, 0, &good, &id), 0, "a request");
	is_int(glake_planner_submit(p, 0, &good, &id), -EBUSY, "one more than it is for");
	is_int(glake_planner_state_get(p, id, NULL), -EINVAL, "no place for a state");
	is_int(glake_planner_next(p, 0, &tiny), -EINVAL, "a structure that cannot be");
	is_int(glake_planner_next(p, 0, &w), 0, "a prompt");
	is_int(w.id, 0, "of the first that came");
	is_int(glake_planner_next(p, 0, &w), -EBUSY, "is under way");
	is_int(glake_planner_end(p, 0, 0), -EBUSY, "and does not end meanwhile");
	is_int(glake_planner_moved(p, 0, 0, 0, 1, 0), -EINVAL, "none of its layers move");
	is_int(glake_planner_moved(p, 0, 0, 4, 1, 0), -EINVAL, "nor is there a fifth");
	is_int(glake_planner_moved(p, 0, 0, 1, UINT32_MAX, 0), -EINVAL, "nor so many");
	is_int(glake_planner_end(p, 0, 5), 0, "one that waits ends");
	is_int(glake_planner_end(p, 0, 5), -EINVAL, "but once");
	is_int(glake_planner_done(p, 10 * MS), 0, "the prompt is done");
	is_int(glake_planner_end(p, 0, 0), 0, "and ends then");
	is_int(glake_planner_figures_get(p, &f), 0, "figures");
	is_int(f.waiting, 6, "six wait");
	is_int((int64_t)f.used, 0, "and nobody has memory");
	is_int(glake_planner_figures_get(p, NULL), -EINVAL, "no place for figures");
	is_int(glake_planner_figures_get(NULL, &f), -EINVAL, "no planner has any");
	is_int(glake_planner_memory(NULL, 0, 1), -EINVAL, "nor memory");
	glake_planner_close(p);
}

/* ---- Decisions ---- */

/* Layers that came too late, of so many that came. */
static uint64_t layers_late(const struct glake_planner *p, uint64_t back)
{
	struct glake_planner_figures f = {.sz = sizeof(f)};

	if (glake_planner_figures_get(p, &f) || f.layers_back != back)
		return UINT64_MAX;
	return f.layers_late;
}

/* A copy that comes back after its deadline is told, and one that fails then is not one that came. */
static void comes_late(void)
{
	struct glake_planner *p = open_planner(small);
	struct glake_planner_copy m = {.sz = sizeof(m)};
	uint32_t a = come(p, 0, 50, 10, 1000 * MS), b = come(p, 0, 60, 10, 1000 * MS);

	next(p, 0);
	glake_planner_done(p, 50 * MS);
	next(p, 50 * MS);
	glake_planner_done(p, 110 * MS);
	glake_planner_moved(p, 110 * MS, b, 0, 2, 0);
	glake_planner_end(p, 135 * MS, a);
	is_int(glake_planner_move(p, 135 * MS, &m), 0, "layers come back");
	is_int(glake_planner_moved(p, m.deadline + 1, b, 0, 2, -EIO), 0, "not in time");
	is_int((int64_t)layers_late(p, 0), 0, "nor at all");
	is_int(glake_planner_move(p, m.deadline + 2, &m), 0, "and again");
	is_int(glake_planner_moved(p, m.deadline, b, 0, 2, 0), 0,
		"a clock that goes back is none");
	is_int((int64_t)layers_late(p, 2), 2, "both are late");
	glake_planner_close(p);
}

/* One that fits, one that does not: its layers leave, and come back when the first has ended. */
static void layers_leave(void)
{
	struct glake_planner *p = open_planner(small);
	struct glake_planner_copy m = {.sz = sizeof(m)};
	uint32_t a = come(p, 0, 50, 10, 1000 * MS), b = come(p, 0, 60, 10, 1000 * MS);
	struct glake_planner_work w = next(p, 0);

	is_int(w.id, a, "who came first is first");
	is_int(w.away, 0, "there is memory for all of it");
	is_int(w.takes, 50 * MS, "its time is reckoned");
	is_int((int64_t)used(p), 240, "with the tokens to come");
	glake_planner_done(p, 50 * MS);
	w = next(p, 50 * MS);
	is_int(w.what, GLAKE_PLANNER_PROMPT, "then the other");
	is_int(w.id, b, "which has no room");
	/* 160 bytes are left, 60 are a layer of its prompt, which leaves in 0.24 ms */
	is_int(w.away, 2, "two of its layers leave");
	is_int(w.room, 2, "two are here at a time");
	is_int((int64_t)used(p), 240 + 2 * 61, "it has memory for two");
	is_int(glake_planner_move(p, 60 * MS, &m), -EAGAIN, "which are no moves");
	is_int(glake_planner_moved(p, 90 * MS, b, 0, 1, 0), 0, "one has left");
	is_int(glake_planner_moved(p, 90 * MS, b, 0, 1, 0), -EINVAL, "but once");
	is_int(glake_planner_moved(p, 90 * MS, b, 0, 2, 0), -EINVAL, "not two of them");
	glake_planner_done(p, 110 * MS);
	is_int(stage(p, b), GLAKE_PLANNER_AWAY, "it has its first token, and is away");
	is_int((int64_t)used(p), 240 + 3 * 61, "with three layers here");
	is_int(glake_planner_moved(p, 125 * MS, b, 1, 1, 0), 0, "the last has left");
	is_int((int64_t)used(p), 240 + 2 * 61, "two are here");
	w = next(p, 125 * MS);
	is_int(w.what, GLAKE_PLANNER_STEP, "a step");
	is_int(w.count, 1, "of one");
	is_int(w.batch[0], a, "who has all layers");
	glake_planner_done(p, 135 * MS);
	is_int(glake_planner_move(p, 135 * MS, &m), -EAGAIN, "nobody has to come yet");
	is_int(glake_planner_end(p, 135 * MS, a), 0, "the first ends");
	is_int(stage(p, b), GLAKE_PLANNER_COMES, "the other comes back");
	is_int(next(p, 135 * MS).what, GLAKE_PLANNER_IDLE,
		"and nothing is to be computed");
	is_int(glake_planner_move(p, 135 * MS, &m), 0, "its layers are to be copied");
	ok(m.id == b && m.layer == 0 && m.layers == 2 && m.back, "the two of them");
	/* 110 + 9 * 1000 - 9 * 10 */
	is_int(m.deadline, (110 + 9000 - 90) * MS,
		"by when its promise can still be kept");
	is_int(glake_planner_moved(p, 150 * MS, b, 0, 2, -EIO), 0, "they are not");
	is_int(glake_planner_move(p, 150 * MS, &m), 0, "and are tried again");
	is_int(glake_planner_moved(p, 200 * MS, b, 0, 2, 0), 0, "they are");
	is_int(stage(p, b), GLAKE_PLANNER_RUNS, "it runs");
	is_int((int64_t)used(p), 280, "with all of its memory");
	is_int((int64_t)layers_late(p, 2), 0, "both layers in time");
	w = next(p, 200 * MS);
	is_int(w.count, 1, "a step of it");
	glake_planner_done(p, 210 * MS);
	glake_planner_end(p, 210 * MS, b);
	is_int((int64_t)used(p), 0, "all memory is free");
	glake_planner_close(p);
}

/* Room that suffices for some of the layers is taken while nobody waits for it. */
static void some_come(void)
{
	struct glake_planner *p = open_planner(small);
	struct glake_planner_copy m = {.sz = sizeof(m)};
	uint32_t a = come(p, 0, 50, 10, 0), b = come(p, 0, 45, 10, 0), c;

	next(p, 0);
	glake_planner_done(p, 50 * MS);
	is_int(next(p, 50 * MS).away, 2, "two layers of the other leave");
	glake_planner_done(p, 95 * MS);
	is_int(glake_planner_moved(p, 100 * MS, b, 0, 2, 0), 0, "they have left");
	is_int(stage(p, b), GLAKE_PLANNER_AWAY, "all of it has no room");
	is_int(glake_planner_move(p, 100 * MS, &m), 0, "but a layer has");
	ok(m.id == b && m.layer == 0 && m.layers == 1 && m.back, "which comes");
	is_int(glake_planner_move(p, 100 * MS, &m), -EAGAIN, "and no other");
	is_int((int64_t)used(p), 240 + 3 * 46, "it has that memory");
	is_int(glake_planner_moved(p, 110 * MS, b, 0, 1, 0), 0, "it has come");
	is_int(stage(p, b), GLAKE_PLANNER_AWAY, "which is not enough to run");
	c = come(p, 110 * MS, 20, 10, 0);
	is_int(next(p, 110 * MS).batch[0], a, "the first runs");
	for (int i = 0; i < 2; i++) {
		is_int(glake_planner_move(p, 110 * MS, &m), 0, "for a third one");
		ok(m.id == b && !m.back, "layers that wait make room");
		is_int(glake_planner_moved(p, 115 * MS, b, m.layer, m.layers, 0), 0,
			"which they have");
	}
	glake_planner_done(p, 120 * MS);
	is_int(glake_planner_move(p, 130 * MS, &m), -EAGAIN,
		"and while it waits nobody else takes it");
	is_int(next(p, 130 * MS).id, c, "so it is computed");
	glake_planner_done(p, 150 * MS);
	glake_planner_end(p, 150 * MS, c);
	glake_planner_end(p, 150 * MS, a);
	is_int(glake_planner_move(p, 150 * MS, &m), 0, "with room for all");
	ok(m.id == b && m.back, "the rest comes");
	is_int(stage(p, b), GLAKE_PLANNER_COMES, "to run");
	glake_planner_close(p);
}

/* Nobody is let in for whom another would have to break its promise; it is as soon as that has the time. */
static void promises(void)
{
	struct glake_planner *p = open_planner(small);
	uint32_t a = come(p, 0, 50, 10, 12 * MS), b = come(p, 0, 60, 10, 1000 * MS);
	struct glake_planner_figures f = {.sz = sizeof(f)};
	struct glake_planner_work w;

	next(p, 0);
	glake_planner_done(p, 50 * MS);
	/* nine tokens by 158 ms take 90; a prompt of 60 ms more would be too much */
	w = next(p, 50 * MS);
	is_int(w.what, GLAKE_PLANNER_STEP, "the other waits");
	is_int(w.batch[0], a, "while the first has its tokens");
	glake_planner_figures_get(p, &f);
	is_int((int64_t)f.held_off, 1, "as is told");
	for (int i = 1; i <= 9; i++) {
		glake_planner_done(p, (50 + 10 * i) * MS);
		if (i < 9)
			is_int(next(p, (50 + 10 * i) * MS).what, GLAKE_PLANNER_STEP,
				"token by token");
	}
	glake_planner_end(p, 140 * MS, a);
	w = next(p, 140 * MS);
	ok(w.what == GLAKE_PLANNER_PROMPT && w.id == b, "then it is let in");
	glake_planner_close(p);
}

/* A promise that cannot be kept holds up nobody for ever. */
static void hopeless(void)
{
	struct glake_planner *p = open_planner(small);
	uint32_t a = come(p, 0, 50, 10, MS), b = come(p, 0, 40, 10, MS);
	struct glake_planner_state s = {.sz = sizeof(s)};
	struct glake_planner_work w = next(p, 0);

	ok(w.flags & GLAKE_PLANNER_LATE_TOKEN, "it is told at admission");
	glake_planner_done(p, 50 * MS);
	w = next(p, 50 * MS);
	ok(w.what == GLAKE_PLANNER_PROMPT && w.id == b,
		"the next is let in all the same");
	glake_planner_state_get(p, a, &s);
	ok(s.flags & GLAKE_PLANNER_LATE_TOKEN, "the first one's state says so");
	ok(s.until >= (50 + 90) * MS, "and has a time that can be kept");
	glake_planner_close(p);
}

/* What work takes is learned. */
static void learns(void)
{
	struct glake_planner *p = open_planner(small);
	struct glake_planner_figures f = {.sz = sizeof(f)};
	int64_t now = 0;
	uint32_t a = come(p, 0, 50, 40, 0);

	next(p, now);
	glake_planner_done(p, now += 150 * MS);
	for (int i = 0; i < 30; i++) {
		next(p, now);
		glake_planner_done(p, now += 30 * MS);
	}
	glake_planner_figures_get(p, &f);
	ok(f.step_factor > 2.99 && f.step_factor < 3.01,
		"steps take three times as long");
	ok(f.prompt_factor > 1.49 && f.prompt_factor < 1.51, "of prompts there was one");
	is_int(next(p, now).takes / MS, 29, "the next is reckoned so");
	glake_planner_done(p, now - 100 * MS);
	is_int(stage(p, a), GLAKE_PLANNER_RUNS,
		"a clock that goes back is one that stands");
	glake_planner_close(p);
}

/* More tokens than were expected, and no memory for them: it leaves for the host, and comes back. */
static void longer(void)
{
	struct glake_planner *p = open_planner(WITH(memory, 4 * (50 + 60 + 4)));
	struct glake_planner_copy m = {.sz = sizeof(m)};
	uint32_t a = come(p, 0, 50, 2, 0), b = come(p, 0, 60, 2, 0);
	struct glake_planner_work w;

	next(p, 0);
	glake_planner_done(p, 50 * MS);
	next(p, 50 * MS);
	glake_planner_done(p, 110 * MS);
	w = next(p, 110 * MS);
	is_int(w.count, 2, "both run");
	glake_planner_done(p, 120 * MS);
	w = next(p, 120 * MS);
	is_int(w.count, 0, "and have all that was expected: nobody does");
	is_int(stage(p, a), GLAKE_PLANNER_AWAY, "the first leaves");
	is_int(stage(p, b), GLAKE_PLANNER_AWAY, "so does the other");
	for (int i = 0; i < 2; i++) {
		is_int(glake_planner_move(p, 120 * MS, &m), 0, "all layers");
		ok(m.layers == 4 && !m.back, "are to go");
	}
	is_int(glake_planner_moved(p, 130 * MS, a, 0, 4, 0), 0, "they have");
	is_int(glake_planner_moved(p, 130 * MS, b, 0, 4, 0), 0, "of both");
	is_int(stage(p, a), GLAKE_PLANNER_COMES,
		"the first comes back, with room for more");
	is_int(glake_planner_move(p, 130 * MS, &m), 0, "its layers");
	glake_planner_end(p, 130 * MS, b);
	is_int(glake_planner_end(p, 130 * MS, a), 0, "it ends on its way");
	ok(used(p) > 0, "its memory is taken until");
	is_int(glake_planner_moved(p, 140 * MS, a, 0, 4, 0), 0, "they have come");
	is_int((int64_t)used(p), 0, "and is free then");
	glake_planner_close(p);
}

/* ---- By chance ---- */

#define IDS    24
#define LAYERS 6

enum place { HERE, GOING, THERE, COMING };

struct known {
	bool live, ended;
	int stage; /* as the engine sees it */
	uint32_t prompt, output, got;
	enum place place[LAYERS];
};

struct copying {
	uint32_t id, layer, layers;
	bool back, of_prompt;
};

struct engine {
	struct glake_planner *p;
	struct glake_planner_options o;
	struct known known[IDS];
	struct copying copy[IDS * LAYERS];
	unsigned copies, live, ended_late;
	struct glake_planner_work work;
	uint32_t batch[IDS], layer; /* of a prompt: done */
	int64_t now;
	uint64_t seed;
	bool lowered;
	const char *wrong;
};

static bool chance(struct engine *e, uint64_t of)
{
	return !seed_below(&e->seed, of);
}

/* What it really has: layers that were computed or that came, and did not leave. */
static uint64_t has(const struct engine *e, const struct known *k, uint32_t id)
{
	uint64_t layers = 0;

	for (uint32_t i = 0; i < LAYERS; i++)
		layers += k->place[i] != THERE;
	if (e->work.what == GLAKE_PLANNER_PROMPT && e->work.id == id)
		layers -= LAYERS - e->layer;
	else if (!k->ended && !k->got)
		return 0;
	return layers * (k->prompt + k->got) * e->o.layer_bytes;
}

static void count_memory(struct engine *e)
{
	struct glake_planner_figures f = {.sz = sizeof(f)};
	uint64_t sum = 0;

	for (uint32_t id = 0; id < IDS; id++)
		if (e->known[id].live && !e->known[id].ended)
			sum += has(e, &e->known[id], id);
	glake_planner_figures_get(e->p, &f);
	if (sum > f.used)
		e->wrong = "more memory is had than the planner knows of";
	if (f.used > f.memory && !e->lowered)
		e->wrong = "more memory is promised than there is";
}

static void submit(struct engine *e)
{
	struct glake_planner_request r = {.sz = sizeof(r),
		.prompt = 1 + (uint32_t)seed_below(&e->seed, 60),
		.generated = 1 + (uint32_t)seed_below(&e->seed, 20),
		.first = (int64_t)seed_below(&e->seed, 3) * 100 * MS,
		.token = (int64_t)seed_below(&e->seed, 4) * 20 * MS};
	struct known k = {.live = true, .prompt = r.prompt, .output = r.generated};
	uint32_t id;

	/* some have fewer tokens than expected, some more */
	if (chance(e, 4))
		k.output = 1 + (uint32_t)seed_below(&e->seed, 20);
	if (glake_planner_submit(e->p, e->now, &r, &id))
		return;
	if (e->known[id].live)
		e->wrong = "a number is given twice";
	e->known[id] = k;
	e->live++;
}

static bool is_computed(const struct engine *e, uint32_t id)
{
	if (e->work.what == GLAKE_PLANNER_PROMPT)
		return e->work.id == id;
	for (uint32_t i = 0; e->work.what && i < e->work.count; i++)
		if (e->batch[i] == id)
			return true;
	return false;
}

static bool is_copied(const struct engine *e, uint32_t id)
{
	for (unsigned i = 0; i < e->copies; i++)
		if (e->copy[i].id == id)
			return true;
	return false;
}

static void end(struct engine *e, uint32_t id)
{
	struct known *k = &e->known[id];
	int err = glake_planner_end(e->p, e->now, id);

	if (err)
		e->wrong = "a request does not end";
	e->live--;
	k->ended = true;
	k->live = is_copied(e, id);
}

static void cancel(struct engine *e)
{
	uint32_t id = (uint32_t)seed_below(&e->seed, IDS);

	if (!e->known[id].live || e->known[id].ended)
		return;
	if (!is_computed(e, id))
		end(e, id);
	else if (glake_planner_end(e->p, e->now, id) != -EBUSY)
		e->wrong = "one that is computed ends";
}

static void begin(struct engine *e)
{
	e->work = (struct glake_planner_work){.sz = sizeof(e->work)};
	if (glake_planner_next(e->p, e->now, &e->work))
		e->wrong = "nothing comes next";
	e->layer = 0;
	for (uint32_t i = 0; i < e->work.count && e->work.what; i++) {
		const struct known *k = &e->known[e->work.batch[i]];

		e->batch[i] = e->work.batch[i];
		for (uint32_t l = 0; l < LAYERS; l++)
			if (k->place[l] != HERE || !k->got || k->ended)
				e->wrong = "a step without all layers";
	}
}

static void had(struct engine *e, uint32_t id)
{
	struct known *k = &e->known[id];

	k->got++;
	if (k->got >= k->output)
		end(e, id);
}

static unsigned here(const struct engine *e)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < e->layer; i++)
		count += e->known[e->work.id].place[i] != THERE;
	return count;
}

/* A layer of a prompt, where there is memory for it, or all of a step. */
static void compute(struct engine *e)
{
	struct glake_planner_work w = e->work;

	if (w.what == GLAKE_PLANNER_PROMPT && e->layer < LAYERS) {
		if (here(e) == w.room)
			return;
		if (e->layer < w.away) {
			e->known[w.id].place[e->layer] = GOING;
			e->copy[e->copies++] =
				(struct copying){w.id, e->layer, 1, false, true};
		}
		e->layer++;
		return;
	}
	if (glake_planner_done(e->p, e->now))
		e->wrong = "what was done is not";
	e->work.what = GLAKE_PLANNER_IDLE;
	if (w.what == GLAKE_PLANNER_PROMPT)
		had(e, w.id);
	for (uint32_t i = 0; i < w.count; i++)
		had(e, e->batch[i]);
}

static void take_moves(struct engine *e)
{
	struct glake_planner_copy m = {.sz = sizeof(m)};

	while (!glake_planner_move(e->p, e->now, &m)) {
		for (uint32_t i = m.layer; i < m.layer + m.layers; i++) {
			enum place *at = &e->known[m.id].place[i];

			if (*at != (m.back ? THERE : HERE) ||
				(is_computed(e, m.id) &&
					(e->work.what == GLAKE_PLANNER_STEP ||
						i >= e->work.away)))
				e->wrong = "a layer moves from where it is not";
			*at = m.back ? COMING : GOING;
		}
		e->copy[e->copies++] =
			(struct copying){m.id, m.layer, m.layers, m.back, false};
	}
}

static void copied(struct engine *e, bool may_fail)
{
	unsigned i = (unsigned)seed_below(&e->seed, e->copies);
	struct copying c = e->copy[i];
	struct known *k = &e->known[c.id];
	int result = may_fail && chance(e, 10) ? -EIO : 0;

	e->copy[i] = e->copy[--e->copies];
	for (uint32_t l = c.layer; l < c.layer + c.layers; l++)
		k->place[l] = (result != 0) != c.back ? HERE : THERE;
	if (glake_planner_moved(e->p, e->now, c.id, c.layer, c.layers, result))
		e->wrong = "what moved did not";
	if (k->ended)
		k->live = is_copied(e, c.id);
}

/* Every request ends once copies do not fail any more and nobody comes. */
static void run_out(struct engine *e)
{
	glake_planner_memory(e->p, e->now, e->o.memory);
	for (int i = 0; i < 20000 && !e->wrong && (e->live || e->copies); i++) {
		e->now += MS;
		if (!e->work.what)
			begin(e);
		take_moves(e);
		if (e->copies && (chance(e, 2) || !e->work.what))
			copied(e, false);
		else if (e->work.what)
			compute(e);
		else if (!e->copies && e->live)
			e->wrong = "the planner stands still";
	}
	if (e->live || e->copies)
		e->wrong = e->wrong ? e->wrong : "requests do not end";
}

static const char *drive(uint64_t seed, int policy)
{
	struct engine e = {.seed = seed, .o = small};
	struct glake_planner_figures f = {.sz = sizeof(f)};

	e.o.layers = LAYERS;
	e.o.requests = IDS;
	e.o.policy = policy;
	e.o.memory = LAYERS * (90 + seed_below(&e.seed, 300));
	e.o.host = chance(&e, 3) ? LAYERS * 200 : 0;
	e.o.batch = chance(&e, 3) ? 3 : 0;
	e.p = open_planner(e.o);
	for (int i = 0; i < 300 && !e.wrong; i++) {
		e.now += chance(&e, 50) ? -MS : (int64_t)seed_below(&e.seed, 3) * MS;
		if (chance(&e, 8))
			submit(&e);
		if (chance(&e, 60))
			cancel(&e);
		if (chance(&e, 100)) {
			e.lowered = true;
			glake_planner_memory(e.p, e.now, e.o.memory / 2);
		}
		if (!e.work.what)
			begin(&e);
		take_moves(&e);
		if (e.copies && chance(&e, 2))
			copied(&e, true);
		else if (e.work.what)
			compute(&e);
		count_memory(&e);
	}
	if (!e.wrong)
		run_out(&e);
	glake_planner_figures_get(e.p, &f);
	if (!e.wrong && (f.used || f.host || f.waiting || f.running || f.away))
		e.wrong = "something is left";
	glake_planner_close(e.p);
	return e.wrong;
}

static void by_chance(void)
{
	uint64_t rounds = getenv("GLAKE_PROGRAMS")
		? strtoull(getenv("GLAKE_PROGRAMS"), NULL, 10)
		: 1000;

	for (int policy = 0; policy < 3; policy++) {
		const char *wrong = NULL;
		uint64_t seed = 0;

		while (seed < rounds && !wrong)
			wrong = drive(++seed, policy);
		ok(!wrong, "policy %d: %" PRIu64 " engines by chance%s%s, seed %" PRIu64,
			policy, rounds, wrong ? ": " : "", wrong ? wrong : "", seed);
	}
}

int main(void)
{
	tap_plan_later();
	options();
	requests();
	layers_leave();
	comes_late();
	some_come();
	promises();
	hopeless();
	learns();
	longer();
	by_chance();
	return tap_done();
}
