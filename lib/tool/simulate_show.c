/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What came of a simulation: a table, or JSON, in which no member goes or changes its meaning. */
#include "tool/simulate.h"
#include "tool/tool.h"

#include "base/json.h"
#include "tool/figure.h"

#include <inttypes.h>
#include <stdio.h>

const char *const sim_policies[3] = {
	[GLAKE_PLANNER_LAYERS] = "layers",
	[GLAKE_PLANNER_FIRST] = "first",
	[GLAKE_PLANNER_SWAP] = "swap",
};

/* In which they are shown. */
static const int order[3] = {
	GLAKE_PLANNER_FIRST, GLAKE_PLANNER_SWAP, GLAKE_PLANNER_LAYERS};

static uint64_t token_bytes(const struct sim_scene *scene)
{
	return scene->planner.layers * scene->planner.layer_bytes;
}

static double percent(size_t part, size_t all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

static void print_length(const char *what, const struct sim_lengths *l)
{
	if (l->kind == SIM_FIXED)
		printf("%s %.0f", what, l->a);
	else if (l->kind == SIM_UNIFORM)
		printf("%s %.0f to %.0f, uniform", what, l->a, l->b);
	else if (l->kind == SIM_TRACE)
		printf("%s as of %s", what, l->trace);
	else
		printf("%s log-normal, median %.0f, sigma %g", what, l->a, l->b);
}

static void print_scene(const struct sim_report *report)
{
	const struct sim_scene *s = report->scene;
	const struct glake_planner_cost *c = &s->cost;

	printf("model      %s: %" PRIu32 " layers, %s a token\n", report->model,
		s->planner.layers, figure_bytes(token_bytes(s)).text);
	printf("memory     %s, %" PRIu64 " tokens\n",
		figure_bytes(s->planner.memory).text, s->planner.memory / token_bytes(s));
	printf("hardware   %s: link %.4g GB/s to the host, %.4g back\n", report->hardware,
		s->out, s->back);
	printf("prompt     %.4g ms, %.4g us a token, %.4g ns a token squared\n",
		c->prompt / 1e6, c->prompt_token / 1e3, c->prompt_square);
	printf("step       %.4g ms, %.4g us a sequence, %.4g ns a token of its cache\n",
		c->step / 1e6, c->step_sequence / 1e3, c->step_token);
	if (report->recipe) {
		printf("requests   %zu, seed %" PRIu64 ", %s; ", report->recipe->count,
			report->recipe->seed,
			report->recipe->burst > 1 ? "bursts at random times" : "Poisson");
		print_length("prompt", &report->recipe->prompt);
		print_length("; output", &report->recipe->output);
		putchar('\n');
	} else {
		printf("requests   of %s\n", report->file);
	}
	printf("objectives first token %g s, %g ms a token\n", s->first, s->token * 1e3);
	if (report->knee > 0)
		printf("R          %.4g requests a second: there first come, first served "
		       "leaves %g s on the mean\n",
			report->knee, s->first);
}

static void print_result(const struct sim_point *point, int policy)
{
	const struct sim_result *r = &point->result[policy];

	if (point->relative > 0)
		printf("%6.2f R", point->relative);
	else
		printf("%8s", "");
	printf(" %7.3f  %-6s %8.2f %8.2f %8.2f %7.1f %7.1f %7.1f %8.2f %8.2f %6.1f %8.0f %6.1f\n",
		point->rate, sim_policies[policy], r->first.mean, r->first.p50,
		r->first.p99, r->token.mean * 1e3, r->token.p50 * 1e3, r->token.p99 * 1e3,
		r->gap.mean, r->gap.p99, percent(r->late, r->count), r->tokens_a_second,
		percent(r->away, r->count));
}

void sim_show(const struct sim_report *report)
{
	print_scene(report);
	printf("\n%8s %7s  %-6s %26s %23s %17s %6s %8s %6s\n", "", "", "",
		"FIRST TOKEN, s", "A TOKEN, ms", "GAP, s", "LATE", "TOKENS", "AWAY");
	printf("%8s %7s  %-6s %8s %8s %8s %7s %7s %7s %8s %8s %6s %8s %6s\n", "", "RATE",
		"POLICY", "mean", "p50", "p99", "mean", "p50", "p99", "mean", "p99", "%",
		"a second", "%");
	for (size_t i = 0; i < report->points; i++)
		for (int k = 0; k < 3; k++)
			if (report->point[i].has[order[k]])
				print_result(&report->point[i], order[k]);
	printf("\nA TOKEN is a request's mean, with the gap after its first token in it; LATE are "
	       "requests that\nmissed an objective; AWAY are those of whose prompt layers "
	       "left.\n");
}

static void add_spread(struct glk_json *json, const char *key, const struct sim_spread *s)
{
	glk_json_key(json, key);
	glk_json_object(json);
	glk_json_add_figure(json, "mean", s->mean, 9);
	glk_json_add_figure(json, "p50", s->p50, 9);
	glk_json_add_figure(json, "p99", s->p99, 9);
	glk_json_add_figure(json, "max", s->most, 9);
	glk_json_end(json);
}

static void add_samples(struct glk_json *json, const struct sim_result *r)
{
	glk_json_key(json, "samples");
	glk_json_array(json);
	for (size_t i = 0; i < r->samples; i++) {
		const struct sim_sample *s = &r->sample[i];

		glk_json_object(json);
		glk_json_add_figure(json, "at_s", s->at, 9);
		glk_json_add_uint(json, "used_bytes", s->used);
		glk_json_add_uint(json, "host_bytes", s->host);
		glk_json_add_uint(json, "waiting", s->waiting);
		glk_json_add_uint(json, "running", s->running);
		glk_json_add_uint(json, "away", s->away);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add_result(struct glk_json *json, const struct sim_result *r)
{
	glk_json_object(json);
	glk_json_add_uint(json, "requests", r->count);
	add_spread(json, "first_token_s", &r->first);
	add_spread(json, "token_s", &r->token);
	add_spread(json, "gap_s", &r->gap);
	glk_json_add_uint(json, "late_first", r->late_first);
	glk_json_add_uint(json, "late_token", r->late_token);
	glk_json_add_uint(json, "late", r->late);
	glk_json_add_figure(json, "tokens_per_s", r->tokens_a_second, 9);
	glk_json_add_figure(json, "ends_s", r->ends, 9);
	glk_json_add_uint(json, "away", r->away);
	glk_json_add_uint(json, "most_used_bytes", r->most_used);
	glk_json_add_uint(json, "out_bytes", r->planner.out);
	glk_json_add_uint(json, "back_bytes", r->planner.back);
	glk_json_add_uint(json, "held_off", r->planner.held_off);
	glk_json_add_uint(json, "renegotiated", r->planner.renegotiated);
	glk_json_add_uint(json, "layers_back", r->planner.layers_back);
	glk_json_add_uint(json, "layers_late", r->planner.layers_late);
	glk_json_add_figure(json, "plan_us_mean", r->plan_us_mean, 4);
	glk_json_add_figure(json, "plan_us_max", r->plan_us_most, 4);
	add_samples(json, r);
	glk_json_end(json);
}

static void add_scene(struct glk_json *json, const struct sim_report *report)
{
	const struct sim_scene *s = report->scene;

	glk_json_add_text(json, "model", report->model);
	glk_json_add_text(json, "hardware", report->hardware);
	glk_json_add_uint(json, "layers", s->planner.layers);
	glk_json_add_uint(json, "token_bytes", token_bytes(s));
	glk_json_add_uint(json, "memory_bytes", s->planner.memory);
	glk_json_add_figure(json, "out_gb_per_s", s->out, 6);
	glk_json_add_figure(json, "back_gb_per_s", s->back, 6);
	glk_json_add_figure(json, "objective_first_s", s->first, 6);
	glk_json_add_figure(json, "objective_token_s", s->token, 6);
	if (report->recipe)
		glk_json_add_uint(json, "seed", report->recipe->seed);
	if (report->file)
		glk_json_add_text(json, "file", report->file);
	if (report->knee > 0)
		glk_json_add_figure(json, "knee_rate", report->knee, 9);
}

int sim_show_json(const struct sim_report *report)
{
	struct glk_json json;

	glk_json_init(&json, stdout, 2);
	glk_json_object(&json);
	add_scene(&json, report);
	glk_json_key(&json, "points");
	glk_json_array(&json);
	for (size_t i = 0; i < report->points; i++) {
		const struct sim_point *point = &report->point[i];

		glk_json_object(&json);
		glk_json_add_figure(&json, "rate", point->rate, 9);
		if (point->relative > 0)
			glk_json_add_figure(&json, "relative", point->relative, 6);
		for (int k = 0; k < 3; k++) {
			if (!point->has[order[k]])
				continue;
			glk_json_key(&json, sim_policies[order[k]]);
			add_result(&json, &point->result[order[k]]);
		}
		glk_json_end(&json);
	}
	glk_json_end(&json);
	glk_json_end(&json);
	return glk_json_fini(&json) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}
