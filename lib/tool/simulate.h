/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_SIMULATE_H
#define GLK_TOOL_SIMULATE_H

/*
 * glakectl kv simulate: a serving engine that is not there, with the planner that is (glake/planner.h). Time is a number
 * that goes from event to event: a request comes, a layer of a prompt is done, a step, a copy over the link. So a run is
 * the same each time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glake/planner.h>

/* Requests, in the order in which they come. */
struct sim_request {
	double arrives; /* s, at one request a second where they were made: see sim_load.scale */
	uint32_t prompt, output; /* tokens */
	uint32_t expected;	 /* output tokens that the planner is told */
	/* What came of it: s. */
	double first, second, ends; /* tokens */
	uint32_t got;		    /* tokens */
	bool away;		    /* layers of it were away */
};

struct sim_load {
	struct sim_request *request;
	size_t count;
	bool is_made; /* by this program: a rate holds for it */
};

/* How requests are made. */
struct sim_lengths {
	enum { SIM_FIXED, SIM_UNIFORM, SIM_LOGNORMAL, SIM_TRACE } kind;
	double a, b; /* tokens; from and to; the median and the sigma of the logarithm */
	const char *trace;	  /* its name, */
	const uint32_t *quantile; /* and what it has */
};

struct sim_recipe {
	size_t count;
	uint64_t seed;
	unsigned burst; /* requests that come at a time */
	struct sim_lengths prompt, output;
};

/* simulate_load.c. 0; 2 after a message. */
int sim_lengths_read(bool output, const char *text, struct sim_lengths *ret_lengths);
int sim_load_make(const struct sim_recipe *recipe, struct sim_load *ret_load);
/* Lines of JSON: "arrival" in s, "prompt" and "output" in tokens, "expected" where that is not the output. 0, or 1 after
 * a message. */
int sim_load_read(const char *path, struct sim_load *ret_load);
void sim_load_free(struct sim_load *load);

/* What is simulated. */
struct sim_scene {
	struct glake_planner_options planner; /* what the planner believes */
	struct glake_planner_cost cost;	      /* what holds */
	double out, back;		      /* bytes a ns, likewise */
	double first, token;		      /* objectives, s; 0: none */
	double scale; /* s that one s of the load's arrivals takes: 1 / rate of one that was made */
};

#define SIM_SAMPLES 256

struct sim_sample {
	double at; /* s */
	uint64_t used, host;
	uint32_t waiting, running, away;
};

struct sim_spread {
	double mean, p50, p99, most;
};

struct sim_result {
	size_t count, late_first, late_token,
		late; /* requests, whose objectives were not kept */
	struct sim_spread first, token, gap; /* s */
	double tokens_a_second, ends;	     /* s */
	struct glake_planner_figures planner;
	uint64_t most_used;
	size_t away; /* requests */
	struct sim_sample sample[SIM_SAMPLES];
	size_t samples;
	double plan_us_most, plan_us_mean; /* processor time of glake_planner_next */
};

/* simulate_engine.c: runs a load, whose requests have what came of them then. 0, or 1 after a message. */
int sim_run(const struct sim_scene *scene, struct sim_load *load,
	struct sim_result *ret_result);

/* simulate.c: the command, of which argv[0] is the last word. */
int sim_command(int argc, char **argv);

/* simulate_show.c */
struct sim_point {
	double rate,
		relative; /* requests a second; of the one at which first come, first served leaves its objective */
	struct sim_result result[3]; /* by enum glake_planner_policy */
	bool has[3];
};

struct sim_report {
	const struct sim_scene *scene;
	const struct sim_recipe *recipe; /* NULL: requests of a file */
	const char *model, *hardware, *file;
	double knee; /* requests a second; 0: not looked for */
	struct sim_point *point;
	size_t points;
};

extern const char *const sim_policies[3];
void sim_show(const struct sim_report *report);
int sim_show_json(const struct sim_report *report);

#endif
