/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl kv simulate: requests, hardware and a model by options, policies side by side. What a model takes follows
 * from its sizes and the hardware's data sheet: a prompt by arithmetic at half of the peak, a step by reading weights and
 * caches at three quarters of the memory's rate. Measured figures go in by --prompt-cost and --step-cost.
 */
#include "tool/simulate.h"
#include "tool/tool.h"

#include "base/parse.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: glakectl kv simulate [OPTION]... [REQUESTS]\n"
	"\n"
	"Simulates a serving engine whose requests are planned by the library (glake/planner.h),\n"
	"under several policies side by side: first come, first served (first), the same with\n"
	"whole requests that leave for those who wait (swap), and layers that leave as they are\n"
	"computed and come back before the first step (layers). No GPU is needed.\n"
	"\n"
	"REQUESTS is a file with a line of JSON for each, as in\n"
	"  {\"arrival\": 0.5, \"prompt\": 1000, \"output\": 100}\n"
	"with the arrival in seconds and lengths in tokens, and \"expected\" output tokens where\n"
	"the planner is told another number; '-' is the standard input. Without one they are made:\n"
	"\n"
	"  -n, --requests N       so many (1000)\n"
	"  -r, --rate R[,R]...    a second; or x0.5, of R, the rate at which first come, first served\n"
	"                         leaves the first objective on the mean (x1.2)\n"
	"  -a, --arrivals WAY     poisson, or burst:N, N at a time (poisson)\n"
	"  -p, --prompt LENGTH    tokens: N, uniform:FROM-TO, lognormal:MEDIAN,SIGMA, or as they\n"
	"                         are in a public trace, azure-conv, azure-code or mooncake\n"
	"                         (uniform:1024-16384)\n"
	"  -g, --output LENGTH    likewise (512)\n"
	"  -s, --seed N           of the random numbers (1)\n"
	"\n"
	"  -M, --model NAME       7b, 8b, 13b, 70b (7b: 32 layers, 512 KiB a token)\n"
	"  -H, --hardware NAME    a100, h100, h200, l20 (a100)\n"
	"  -m, --memory TOKENS    whose caches have room; or bytes, as 20GiB (40000)\n"
	"  -l, --link OUT[,BACK]  GB/s that the link to the host carries (by the hardware: 25)\n"
	"      --prompt-cost A,B,C  of a prompt: ms, us a token, ns a token squared\n"
	"      --step-cost A,B,C    of a step: ms, us a sequence, ns a token of its cache\n"
	"      --error F[,G]      the planner believes that prompts take F and steps G times what\n"
	"                         they take (1)\n"
	"  -b, --batch N          sequences of a step at most (256)\n"
	"\n"
	"  -F, --first S          objective of the first token, in seconds (3)\n"
	"  -T, --token MS         and of a token, in ms (200)\n"
	"  -P, --policy NAME      first, swap or layers alone; repeatable\n"
	"  -j, --json             for programs, with samples of the memory over time\n"
	"  -h, --help             show this help\n";

enum { PROMPT_COST = 256, STEP_COST, ERROR };

static const struct option long_options[] = {
	{"requests", required_argument, NULL, 'n'},
	{"rate", required_argument, NULL, 'r'},
	{"arrivals", required_argument, NULL, 'a'},
	{"prompt", required_argument, NULL, 'p'},
	{"output", required_argument, NULL, 'g'},
	{"seed", required_argument, NULL, 's'},
	{"model", required_argument, NULL, 'M'},
	{"hardware", required_argument, NULL, 'H'},
	{"memory", required_argument, NULL, 'm'},
	{"link", required_argument, NULL, 'l'},
	{"prompt-cost", required_argument, NULL, PROMPT_COST},
	{"step-cost", required_argument, NULL, STEP_COST},
	{"error", required_argument, NULL, ERROR},
	{"batch", required_argument, NULL, 'b'},
	{"first", required_argument, NULL, 'F'},
	{"token", required_argument, NULL, 'T'},
	{"policy", required_argument, NULL, 'P'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

/* Weights of 2 bytes; bytes a token of keys and values in all layers. */
static const struct model {
	const char *name;
	double parameters, hidden;
	uint32_t layers;
	uint64_t token_bytes;
} models[] = {
	{"7b", 6.74e9, 4096, 32, 512 << 10}, /* Llama 2, no grouped heads */
	{"8b", 8.03e9, 4096, 32, 128 << 10}, /* Llama 3, 8 heads of keys */
	{"13b", 13.0e9, 5120, 40, 800 << 10},
	{"70b", 70.6e9, 8192, 80, 320 << 10},
	{0},
};

/* Dense FP16 TFLOP/s, TB/s of its memory, GB/s of the link, by the data sheets; the link as copies reach it. */
static const struct hardware {
	const char *name;
	double tera_flops, tera_bytes, link;
} machines[] = {
	{"a100", 312, 2.0, 25},
	{"h100", 989, 3.35, 55},
	{"h200", 989, 4.8, 55},
	{"l20", 119.5, 0.864, 25},
	{0},
};

#define RATES_MAX 64

struct wanted {
	struct sim_recipe recipe;
	struct sim_scene scene;
	const struct model *model;
	const struct hardware *hardware;
	double rate[RATES_MAX];
	bool relative[RATES_MAX];
	size_t rates;
	uint64_t memory, memory_tokens; /* one of them is 0 */
	double link[2], prompt_cost[3], step_cost[3], error[2];
	bool has_prompt, has_step, json, policy[3], has_policy;
};

/* ---- Options ---- */

/* So many numbers from `least` on, with commas between them; how many, or -1. */
static int numbers(const char *text, double least, int most, double *ret_numbers)
{
	char *end;

	for (int i = 0; i < most; i++) {
		ret_numbers[i] = strtod(text, &end);
		if (end == text || !isfinite(ret_numbers[i]) || ret_numbers[i] < least)
			return -1;
		if (!*end)
			return i + 1;
		if (*end != ',')
			return -1;
		text = end + 1;
	}
	return -1;
}

static int read_rates(struct wanted *w, const char *text)
{
	char *end;

	w->rates = 0;
	for (;; text = end + 1) {
		bool relative = *text == 'x';
		double rate = strtod(text + relative, &end);

		if (end == text + relative || !(rate > 0) || !isfinite(rate) ||
			(*end && *end != ',') || w->rates == RATES_MAX)
			return glk_tool_usage("kv",
				"--rate: up to %d numbers above 0, as 0.5,1 or x0.5,x1",
				RATES_MAX);
		w->rate[w->rates] = rate;
		w->relative[w->rates++] = relative;
		if (!*end)
			return 0;
	}
}

static int read_arrivals(struct wanted *w, const char *text)
{
	int end = 0;

	w->recipe.burst = 1;
	if (!strcmp(text, "poisson"))
		return 0;
	if (sscanf(text, "burst:%u%n", &w->recipe.burst, &end) == 1 && !text[end] &&
		w->recipe.burst >= 1 && w->recipe.burst <= 1000000)
		return 0;
	return glk_tool_usage("kv", "--arrivals %s: poisson, or burst:N", text);
}

static int read_memory(struct wanted *w, const char *text)
{
	uint64_t value;
	bool is_number = !text[strspn(text, "0123456789")];

	if (!*text || glk_parse_size(text, &value) || !value)
		return glk_tool_usage(
			"kv", "--memory %s: tokens, or bytes as 20GiB", text);
	w->memory_tokens = is_number ? value : 0;
	w->memory = is_number ? 0 : value;
	return 0;
}

static int read_name(struct wanted *w, int c, const char *text)
{
	for (const struct model *m = models; c == 'M' && m->name; m++)
		if (!strcmp(m->name, text)) {
			w->model = m;
			return 0;
		}
	for (const struct hardware *h = machines; c == 'H' && h->name; h++)
		if (!strcmp(h->name, text)) {
			w->hardware = h;
			return 0;
		}
	for (int i = 0; c == 'P' && i < 3; i++)
		if (!strcmp(sim_policies[i], text)) {
			w->policy[i] = w->has_policy = true;
			return 0;
		}
	return glk_tool_usage("kv", "there is no %s '%s'",
		c == 'M'	   ? "model"
			: c == 'H' ? "hardware"
				   : "policy",
		text);
}

static int take_numbers(struct wanted *w, int c)
{
	double *to = c == 'l'	   ? w->link
		: c == PROMPT_COST ? w->prompt_cost
		: c == STEP_COST   ? w->step_cost
				   : w->error;
	int most = c == PROMPT_COST || c == STEP_COST ? 3 : 2;
	int count = numbers(optarg, most == 3 ? 0 : 1e-6, most, to);

	if (count < 0 || (most == 3 && count != 3))
		return glk_tool_usage("kv", "%s is %s, not '%s'",
			c == 'l'		   ? "--link"
				: c == PROMPT_COST ? "--prompt-cost"
				: c == STEP_COST   ? "--step-cost"
						   : "--error",
			most == 3 ? "three numbers, 0 or more" : "one number or two",
			optarg);
	if (count == 1)
		to[1] = to[0];
	w->has_prompt |= c == PROMPT_COST;
	w->has_step |= c == STEP_COST;
	return 0;
}

static int take_objective(struct wanted *w, int c)
{
	double value;

	if (numbers(optarg, 0, 1, &value) != 1 || value > 1e6)
		return glk_tool_usage("kv", "'%s' is no objective", optarg);
	if (c == 'F')
		w->scene.first = value;
	else
		w->scene.token = value / 1e3;
	return 0;
}

static int take_count(struct wanted *w, int c)
{
	unsigned count;
	uint64_t seed;

	if (c == 's') {
		if (glk_parse_size(optarg, &seed))
			return glk_tool_usage("kv", "--seed %s: it is a number", optarg);
		w->recipe.seed = seed;
		return 0;
	}
	if (glk_tool_read_count("kv", c == 'n' ? "--requests" : "--batch", optarg,
		    c == 'n' ? 10000000 : GLAKE_PLANNER_REQUESTS_MAX, &count))
		return GLK_TOOL_USAGE;
	if (c == 'n')
		w->recipe.count = count;
	else
		w->scene.planner.batch = count;
	return 0;
}

static int take(struct wanted *w, int c)
{
	switch (c) {
	case 'n':
	case 'b':
	case 's':
		return take_count(w, c);
	case 'r':
		return read_rates(w, optarg);
	case 'a':
		return read_arrivals(w, optarg);
	case 'p':
		return sim_lengths_read(false, optarg, &w->recipe.prompt);
	case 'g':
		return sim_lengths_read(true, optarg, &w->recipe.output);
	case 'm':
		return read_memory(w, optarg);
	case 'M':
	case 'H':
	case 'P':
		return read_name(w, c, optarg);
	case 'l':
	case PROMPT_COST:
	case STEP_COST:
	case ERROR:
		return take_numbers(w, c);
	case 'F':
	case 'T':
		return take_objective(w, c);
	case 'j':
		w->json = true;
		return 0;
	default:
		return GLK_TOOL_USAGE;
	}
}

/* ---- The scene ---- */

static void set_cost(struct wanted *w)
{
	const struct hardware *h = w->hardware;
	const struct model *m = w->model;
	double flops = h->tera_flops * 1e3 * 0.5,
	       bytes = h->tera_bytes * 1e3 * 0.75; /* a ns */
	struct glake_planner_cost *c = &w->scene.cost;

	c->prompt_token = 2 * m->parameters / flops;
	/* keys with queries and weights with values, of the half that is not masked */
	c->prompt_square = 2 * m->layers * m->hidden / flops;
	c->step = 2 * m->parameters / bytes;
	c->step_token = (double)m->token_bytes / bytes;
	if (w->has_prompt)
		*c = (struct glake_planner_cost){w->prompt_cost[0] * 1e6,
			w->prompt_cost[1] * 1e3, w->prompt_cost[2], c->step,
			c->step_sequence, c->step_token};
	if (w->has_step) {
		c->step = w->step_cost[0] * 1e6;
		c->step_sequence = w->step_cost[1] * 1e3;
		c->step_token = w->step_cost[2];
	}
}

static void set_scene(struct wanted *w, const struct sim_load *load)
{
	struct sim_scene *s = &w->scene;
	struct glake_planner_options *o = &s->planner;

	set_cost(w);
	s->out = w->link[0] > 0 ? w->link[0] : w->hardware->link;
	s->back = w->link[1] > 0 ? w->link[1] : w->hardware->link;
	o->sz = sizeof(*o);
	o->layers = w->model->layers;
	o->layer_bytes = w->model->token_bytes / w->model->layers;
	o->memory = w->memory ? w->memory : w->memory_tokens * w->model->token_bytes;
	o->out = s->out;
	o->back = s->back;
	o->requests = load->count < GLAKE_PLANNER_REQUESTS_MAX
		? (uint32_t)load->count
		: GLAKE_PLANNER_REQUESTS_MAX;
	o->cost = s->cost;
	o->cost.prompt *= w->error[0];
	o->cost.prompt_token *= w->error[0];
	o->cost.prompt_square *= w->error[0];
	o->cost.step *= w->error[1];
	o->cost.step_sequence *= w->error[1];
	o->cost.step_token *= w->error[1];
}

static int run(struct wanted *w, struct sim_load *load, double rate, int policy,
	struct sim_result *ret_result)
{
	w->scene.planner.policy = policy;
	w->scene.scale = load->is_made ? 1 / rate : 1;
	return sim_run(&w->scene, load, ret_result);
}

/* The rate at which the mean first token of first come, first served comes after its objective. */
static int find_knee(struct wanted *w, struct sim_load *load, double *ret_knee)
{
	struct sim_result *result = malloc(sizeof(*result));
	double low = 1e-4, high = 1e4;
	int status = result ? GLK_TOOL_OK : GLK_TOOL_FAILED;

	for (int i = 0; i < 40 && status == GLK_TOOL_OK && high / low > 1.0005; i++) {
		double middle = sqrt(low * high);

		status = run(w, load, middle, GLAKE_PLANNER_FIRST, result);
		if (result->first.mean > w->scene.first)
			high = middle;
		else
			low = middle;
	}
	free(result);
	*ret_knee = low;
	if (status == GLK_TOOL_OK && low < 2e-4) {
		glk_tool_say(
			"one request at a time takes longer than the first objective: "
			"name rates by --rate");
		status = GLK_TOOL_FAILED;
	}
	return status;
}

static int simulate(struct wanted *w, struct sim_load *load, struct sim_report *report)
{
	bool needs = false;
	int status = GLK_TOOL_OK;

	for (size_t i = 0; i < w->rates; i++)
		needs |= w->relative[i];
	if (load->is_made && needs && w->scene.first > 0)
		status = find_knee(w, load, &report->knee);
	else if (load->is_made && needs)
		return glk_tool_usage("kv", "without a first objective rates have no x");
	for (size_t i = 0; i < report->points && status == GLK_TOOL_OK; i++) {
		struct sim_point *point = &report->point[i];

		point->relative = load->is_made && w->relative[i] ? w->rate[i] : 0;
		point->rate =
			point->relative > 0 ? w->rate[i] * report->knee : w->rate[i];
		for (int k = 0; k < 3 && status == GLK_TOOL_OK; k++) {
			if (w->has_policy && !w->policy[k])
				continue;
			status = run(w, load, point->rate, k, &point->result[k]);
			point->has[k] = true;
		}
		if (!load->is_made)
			point->rate = (double)load->count /
				(load->request[load->count - 1].arrives + 1e-9);
	}
	return status;
}

static int report_on(struct wanted *w, const char *file)
{
	struct sim_report report = {.scene = &w->scene,
		.recipe = file ? NULL : &w->recipe,
		.model = w->model->name,
		.hardware = w->hardware->name,
		.file = file};
	struct sim_load load = {0};
	int status = file ? sim_load_read(file, &load) : sim_load_make(&w->recipe, &load);

	if (status != GLK_TOOL_OK)
		return status;
	set_scene(w, &load);
	report.points = file ? 1 : w->rates;
	report.point = calloc(report.points, sizeof(*report.point));
	if (!report.point) {
		glk_tool_say("no memory for %zu points", report.points);
		status = GLK_TOOL_FAILED;
	} else {
		status = simulate(w, &load, &report);
	}
	if (status == GLK_TOOL_OK && w->json)
		status = sim_show_json(&report);
	else if (status == GLK_TOOL_OK)
		sim_show(&report);
	free(report.point);
	sim_load_free(&load);
	return status == GLK_TOOL_OK ? glk_tool_finish(status) : status;
}

int sim_command(int argc, char **argv)
{
	struct wanted w = {.recipe = {.count = 1000,
				   .seed = 1,
				   .burst = 1,
				   .prompt = {SIM_UNIFORM, 1024, 16384, NULL, NULL},
				   .output = {SIM_FIXED, 512, 0, NULL, NULL}},
		.scene = {.first = 3, .token = 0.2, .planner = {.batch = 256}},
		.model = models,
		.hardware = machines,
		.rate = {1.2},
		.relative = {true},
		.rates = 1,
		.memory_tokens = 40000,
		.error = {1, 1}};
	int c;

	while ((c = glk_tool_option(argc, argv, long_options)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return GLK_TOOL_OK;
		}
		if (take(&w, c))
			return GLK_TOOL_USAGE;
	}
	if (argc - optind > 1)
		return glk_tool_usage("kv", "one file of requests at a time");
	return report_on(&w, argv[optind]);
}
