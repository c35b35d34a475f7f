/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A planner of 256 requests that is asked what comes next, so many times, while one more asks to be let in: with all of
 * them running, or with memory for few, so that the others are away.
 *
 *	bench-planner TIMES running|away
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <glake/planner.h>

#define REQUESTS 256
#define LAYERS	 32
#define NS_S	 INT64_C(1000000000)

static int64_t now;

static int must(int err)
{
	if (err) {
		fprintf(stderr, "planner: %d\n", err);
		exit(1);
	}
	return err;
}

static uint32_t come(struct glake_planner *p, uint32_t prompt)
{
	struct glake_planner_request r = {
		.sz = sizeof(r), .prompt = prompt, .generated = 512, .token = 20 * NS_S};
	uint32_t id;

	must(glake_planner_submit(p, now, &r, &id));
	return id;
}

static struct glake_planner_work next(struct glake_planner *p)
{
	struct glake_planner_work w = {.sz = sizeof(w)};

	must(glake_planner_next(p, now, &w));
	now += w.takes;
	return w;
}

/* All that is to move has. */
static void move(struct glake_planner *p)
{
	struct glake_planner_copy c = {.sz = sizeof(c)};

	while (!glake_planner_move(p, now, &c))
		must(glake_planner_moved(p, now, c.id, c.layer, c.layers, 0));
}

int main(int argc, char **argv)
{
	struct glake_planner_options o = {.sz = sizeof(o),
		.layers = LAYERS,
		.layer_bytes = 16384,
		.memory = UINT64_C(4) << 40,
		.out = 25,
		.back = 25,
		.cost = {.prompt_token = 86000, .step = 9e6, .step_token = 350},
		.requests = REQUESTS + 1};
	long times = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
	struct glake_planner_figures f = {.sz = sizeof(f)};
	struct glake_planner *p;
	struct glake_planner_work w;
	uint32_t id;

	if (times < 1)
		return 2;
	if (!strcmp(argv[2], "away"))
		o.memory = (UINT64_C(20000) * LAYERS) << 14;
	must(glake_planner_open(&o, &p));
	for (uint32_t i = 0; i < REQUESTS; i++) {
		come(p, 1000 + i * 7919 % 15000);
		w = next(p);
		for (uint32_t l = 0; w.what == GLAKE_PLANNER_PROMPT && l < w.away; l++)
			must(glake_planner_moved(p, now, w.id, l, 1, 0));
		must(glake_planner_done(p, now));
		move(p);
	}
	while (glake_planner_figures_get(p, &f), f.waiting) {
		w = next(p);
		for (uint32_t l = 0; w.what == GLAKE_PLANNER_PROMPT && l < w.away; l++)
			must(glake_planner_moved(p, now, w.id, l, 1, 0));
		must(glake_planner_done(p, now));
		move(p);
	}
	for (long i = 0; i < times; i++) {
		id = come(p, 1000);
		w = next(p);
		if (w.what == GLAKE_PLANNER_PROMPT)
			for (uint32_t l = 0; l < w.away; l++)
				must(glake_planner_moved(p, now, w.id, l, 1, 0));
		must(glake_planner_done(p, now));
		must(glake_planner_end(p, now, id));
	}
	glake_planner_figures_get(p, &f);
	printf("%u running, %u away\n", f.running, f.away);
	glake_planner_close(p);
	return 0;
}
