/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program: the engine of glakectl kv simulate (lib/python/glake/simulate.py), a serving engine that is not there, with the planner
 * that is (glake/planner.h). One thing is computed at a time, the link carries one copy at a time each way. A prompt goes
 * layer by layer; where layers leave, the next one is begun when there is memory for it. Time is a number that goes from
 * event to event: a request comes, a layer of a prompt is done, a step, a copy over the link. So a run is the same each
 * time.
 *
 * Standard input has a scene and its requests in the order in which they come, standard output what was found and the
 * requests with what came of them. The module has the structures too.
 */
#include <glake/error.h>
#include <glake/planner.h>

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REQUESTS_MAX 10000000

/* Times are ns. */
struct request {
	uint32_t prompt, output; /* tokens */
	uint32_t expected;	 /* output tokens that the planner is told */
	uint32_t got;		 /* tokens */
	uint32_t away;		 /* layers of it were away */
	uint32_t none;
	int64_t arrives, first, second, ends; /* tokens, from the second on */
};

struct scene {
	uint64_t sz;			      /* sizeof(struct scene) */
	struct glake_planner_options planner; /* what the planner believes */
	struct glake_planner_cost cost;	      /* what holds */
	double out, back;		      /* bytes a ns, likewise */
	int64_t first, token;		      /* objectives; 0: none */
	uint64_t count;			      /* requests */
};

#define SAMPLES 256

struct sample {
	int64_t at;
	uint64_t used, host;
	uint32_t waiting, running, away, none;
};

struct result {
	struct glake_planner_figures planner;
	uint64_t most_used, samples;
	double plan_us_mean, plan_us_most; /* processor time of glake_planner_next */
	struct sample sample[SAMPLES];
};

#define NEVER INT64_MAX
#define WAYS  2
#define TIMED 64 /* one of so many calls of the planner */

struct copy {
	uint32_t id, layer, layers;
	uint64_t bytes;
};

/* The link one way: copies, in the order in which they are made. */
struct link {
	struct copy *copy;
	size_t first, count, room;
	int64_t ends; /* of the first; NEVER: none is */
	double rate;
};

struct engine {
	const struct scene *scene;
	struct request *request;
	struct result *result;
	struct glake_planner *planner;
	struct request **of; /* the request of an id */
	int64_t now, begun,
		done; /* of what is computed; NEVER: nothing is, or it waits */
	struct glake_planner_work work;
	uint32_t *batch;
	uint32_t layer,
		left; /* of a prompt: layers that were begun, and that have left */
	int64_t each; /* ns of a layer */
	struct link link[WAYS]; /* out, back */
	size_t came, ended;
	int64_t sampled;
	uint64_t calls, plans; /* of glake_planner_next, and those that were timed */
	double plan_us;
};

/* of this thread, which nobody else's work is in */
static double cpu_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int must(int err, const char *what)
{
	struct glake_error record = {.sz = sizeof(record)};

	if (err && !glake_last_error(&record) && record.err == err && record.text[0])
		fprintf(stderr, "glakectl: %s: %s\n", what, record.text);
	else if (err)
		fprintf(stderr, "glakectl: %s: %s\n", what, strerror(-err));
	return err;
}

/* ---- The link ---- */

static void start(struct engine *e, struct link *l)
{
	l->ends = l->first == l->count
		? NEVER
		: e->now + (int64_t)ceil((double)l->copy[l->first].bytes / l->rate);
}

static int queue(struct engine *e, int way, uint32_t id, uint32_t layer, uint32_t layers,
	uint32_t tokens)
{
	struct link *l = &e->link[way];
	struct copy *more;

	if (l->first == l->count)
		l->first = l->count = 0;
	if (l->count == l->room) {
		l->room = l->room ? 2 * l->room : 64;
		more = reallocarray(l->copy, l->room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		l->copy = more;
	}
	l->copy[l->count++] = (struct copy){id, layer, layers,
		(uint64_t)layers * tokens * e->scene->planner.layer_bytes};
	if (l->count - l->first == 1)
		start(e, l);
	return 0;
}

static void begin_layer(struct engine *e)
{
	e->done = NEVER;
	if (e->layer - e->left < e->work.room) {
		e->layer++;
		e->done = e->now + e->each;
	}
}

static int arrive(struct engine *e, int way)
{
	struct link *l = &e->link[way];
	struct copy c = l->copy[l->first++];

	if (must(glake_planner_moved(e->planner, e->now, c.id, c.layer, c.layers, 0),
		    "a copy"))
		return -EIO;
	start(e, l);
	if (way || e->work.what != GLAKE_PLANNER_PROMPT || c.id != e->work.id)
		return 0;
	e->left += c.layers;
	if (e->done == NEVER)
		begin_layer(e);
	return 0;
}

static int take_moves(struct engine *e)
{
	struct glake_planner_copy m = {.sz = sizeof(m)};
	int err;

	while (!(err = glake_planner_move(e->planner, e->now, &m))) {
		const struct request *r = e->of[m.id];

		if (queue(e, m.back ? 1 : 0, m.id, m.layer, m.layers, r->prompt + r->got))
			return -ENOMEM;
	}
	return err == -EAGAIN ? 0 : must(err, "a move");
}

/* ---- What is computed ---- */

static double step_ns(const struct engine *e)
{
	const struct glake_planner_cost *c = &e->scene->cost;
	double tokens = 0;

	for (uint32_t i = 0; i < e->work.count; i++)
		tokens += e->of[e->batch[i]]->prompt + e->of[e->batch[i]]->got;
	return c->step + c->step_sequence * e->work.count + c->step_token * tokens;
}

static double prompt_ns(const struct engine *e, double tokens)
{
	const struct glake_planner_cost *c = &e->scene->cost;

	return c->prompt + c->prompt_token * tokens + c->prompt_square * tokens * tokens;
}

static int begin(struct engine *e)
{
	uint32_t layers = e->scene->planner.layers;
	bool timed = e->calls++ % TIMED == 0;
	double before = timed ? cpu_us() : 0, took;

	e->work.sz = sizeof(e->work);
	if (must(glake_planner_next(e->planner, e->now, &e->work), "what comes next"))
		return -EIO;
	took = timed ? cpu_us() - before : 0;
	e->plans += timed;
	e->plan_us += took;
	if (took > e->result->plan_us_most)
		e->result->plan_us_most = took;
	e->begun = e->now;
	e->done = NEVER;
	if (e->work.what == GLAKE_PLANNER_STEP) {
		memcpy(e->batch, e->work.batch, e->work.count * sizeof(*e->batch));
		e->done = e->now + (int64_t)ceil(step_ns(e));
	} else if (e->work.what == GLAKE_PLANNER_PROMPT) {
		e->layer = e->left = 0;
		e->each = (int64_t)ceil(prompt_ns(e, e->of[e->work.id]->prompt) / layers);
		e->of[e->work.id]->away = e->work.away > 0;
		begin_layer(e);
	}
	return 0;
}

static int had(struct engine *e, uint32_t id)
{
	struct request *r = e->of[id];

	r->got++;
	if (r->got == 1)
		r->first = e->now;
	if (r->got == 2)
		r->second = e->now;
	r->ends = e->now;
	if (r->got < r->output)
		return 0;
	e->ended++;
	return must(glake_planner_end(e->planner, e->now, id), "the end of a request");
}

/* A layer, a prompt or a step. */
static int finish(struct engine *e)
{
	struct glake_planner_work work = e->work;
	int err = 0;

	if (work.what == GLAKE_PLANNER_PROMPT) {
		if (e->layer <= work.away &&
			queue(e, 0, work.id, e->layer - 1, 1, e->of[work.id]->prompt))
			return -ENOMEM;
		if (e->layer < e->scene->planner.layers) {
			begin_layer(e);
			return 0;
		}
	}
	if (must(glake_planner_done(e->planner, e->now), "what was computed"))
		return -EIO;
	e->work.what = GLAKE_PLANNER_IDLE;
	e->done = NEVER;
	if (work.what == GLAKE_PLANNER_PROMPT)
		return had(e, work.id);
	for (uint32_t i = 0; i < work.count && !err; i++)
		err = had(e, e->batch[i]);
	return err;
}

/* ---- Requests and samples ---- */

static int64_t next_arrival(const struct engine *e)
{
	return e->came == e->scene->count ? NEVER : e->request[e->came].arrives;
}

static int come(struct engine *e)
{
	struct request *r = &e->request[e->came++];
	struct glake_planner_request request = {.sz = sizeof(request),
		.prompt = r->prompt,
		.generated = r->expected,
		.first = e->scene->first,
		.token = e->scene->token};
	uint32_t id;

	if (must(glake_planner_submit(e->planner, e->now, &request, &id), "the requests"))
		return -EIO;
	e->of[id] = r;
	return 0;
}

/* Twice as far apart once they are too many. */
static void sample(struct engine *e)
{
	struct result *result = e->result;
	struct glake_planner_figures f = {.sz = sizeof(f)};

	glake_planner_figures_get(e->planner, &f);
	if (f.used > result->most_used)
		result->most_used = f.used;
	if (e->now < e->sampled * (int64_t)result->samples)
		return;
	if (result->samples == SAMPLES) {
		for (size_t i = 0; i < SAMPLES / 2; i++)
			result->sample[i] = result->sample[2 * i];
		result->samples /= 2;
		e->sampled *= 2;
		return;
	}
	result->sample[result->samples++] =
		(struct sample){e->now, f.used, f.host, f.waiting, f.running, f.away, 0};
}

/* ---- A run ---- */

static int go(struct engine *e)
{
	while (e->ended < e->scene->count) {
		int64_t arrival = next_arrival(e), at = arrival;
		int err;

		if (take_moves(e))
			return -EIO;
		if (!e->work.what && begin(e))
			return -EIO;
		/* what it let in may have others leave for it */
		if (take_moves(e))
			return -EIO;
		at = e->done < at ? e->done : at;
		for (int way = 0; way < WAYS; way++)
			at = e->link[way].ends < at ? e->link[way].ends : at;
		if (at == NEVER) {
			fprintf(stderr,
				"glakectl: the planner stands still with %zu requests\n",
				(size_t)e->scene->count - e->ended);
			return -EIO;
		}
		e->now = at > e->now ? at : e->now;
		if (arrival == at)
			err = come(e);
		else if (e->link[0].ends == at)
			err = arrive(e, 0);
		else if (e->link[1].ends == at)
			err = arrive(e, 1);
		else
			err = finish(e);
		if (err)
			return err;
		sample(e);
	}
	return 0;
}

/* Under way in memory that is there. */
static int run(const struct scene *scene, struct request *request, struct result *result)
{
	uint32_t requests = scene->planner.requests;
	struct engine e = {.scene = scene,
		.request = request,
		.result = result,
		.done = NEVER,
		.sampled = 1000000,
		.link = {{.rate = scene->out, .ends = NEVER},
			{.rate = scene->back, .ends = NEVER}}};
	int err = must(glake_planner_open(&scene->planner, &e.planner), "a planner");

	if (err)
		return err;
	e.of = calloc(requests, sizeof(*e.of));
	e.batch = calloc(requests, sizeof(*e.batch));
	if (!e.of || !e.batch)
		err = -ENOMEM;
	else
		err = go(&e);
	result->plan_us_mean = e.plans ? e.plan_us / (double)e.plans : 0;
	result->planner.sz = sizeof(result->planner);
	glake_planner_figures_get(e.planner, &result->planner);
	glake_planner_close(e.planner);
	free(e.link[0].copy);
	free(e.link[1].copy);
	free(e.of);
	free(e.batch);
	return err;
}

int main(int argc, char **argv)
{
	struct result *result = calloc(1, sizeof(*result));
	struct request *request = NULL;
	struct scene scene;
	size_t count = 0;

	(void)argv;
	if (argc == 1 && fread(&scene, sizeof(scene), 1, stdin) == 1 &&
		scene.sz == sizeof(scene) && scene.count <= REQUESTS_MAX) {
		count = scene.count;
		request = calloc(count, sizeof(*request));
	}
	if (!result || !request ||
		fread(request, sizeof(*request), count, stdin) != count) {
		fputs("glakectl: engine: glakectl kv simulate runs it\n", stderr);
		count = 0;
	} else if (run(&scene, request, result)) {
		count = 0;
	} else {
		fwrite(result, sizeof(*result), 1, stdout);
		fwrite(request, sizeof(*request), count, stdout);
	}
	free(request);
	free(result);
	return fflush(stdout) || !count;
}
