/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The requests of a simulation: made by a seed, or read from a file. */
#include "tool/simulate.h"
#include "tool/tool.h"

#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX (1u << 28)
#define COUNT_MAX  10000000

/* ---- Made ---- */

static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Above 0, at most 1. */
static double part(uint64_t *state)
{
	return (double)((draw(state) >> 11) + 1) / (double)(UINT64_C(1) << 53);
}

static double normal(uint64_t *state)
{
	double radius = sqrt(-2 * log(part(state)));

	return radius * cos(2 * 3.14159265358979323846 * part(state));
}

/* Tokens of prompts and answers that so many percent of a trace's requests do not exceed. The two are drawn each by
 * itself: their correlation in these traces is below 0.1. */
static const double percents[] = {
	0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.9, 100};
#define QUANTILES (sizeof(percents) / sizeof(*percents))

static const struct trace {
	const char *name;
	uint32_t prompt[QUANTILES], output[QUANTILES];
} traces[] = {
	/* Azure LLM inference trace 2023 (Azure/AzurePublicDataset, CC BY 4.0), conversations and code */
	{"azure-conv",
		{2, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734, 4083, 4098,
			4142, 6212, 14050},
		{7, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 540, 601, 954,
			1000}},
	{"azure-code",
		{3, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5186, 7302, 7436,
			7436, 7437, 7437},
		{6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 172, 252, 824, 1899}},
	/* conversation_trace of FAST '25 (kvcache-ai/Mooncake, Apache 2.0) */
	{"mooncake",
		{891, 901, 964, 1662, 3263, 4993, 6909, 9570, 13196, 17869, 27367, 39549,
			66425, 85401, 121301, 126195},
		{1, 10, 24, 100, 213, 291, 350, 399, 447, 504, 597, 698, 891, 1120, 2000,
			2000}},
	{0},
};

static double of_trace(const uint32_t *quantile, double percent)
{
	size_t i = 1;

	while (i < QUANTILES - 1 && percents[i] < percent)
		i++;
	percent = (percent - percents[i - 1]) / (percents[i] - percents[i - 1]);
	return quantile[i - 1] + percent * (quantile[i] - quantile[i - 1]);
}

static uint32_t length_of(const struct sim_lengths *l, uint64_t *state)
{
	double tokens = l->a;

	if (l->kind == SIM_UNIFORM)
		tokens = l->a + floor((l->b - l->a + 1) * (1 - part(state)));
	else if (l->kind == SIM_LOGNORMAL)
		tokens = l->a * exp(l->b * normal(state));
	else if (l->kind == SIM_TRACE)
		tokens = of_trace(l->quantile, 100 * part(state));
	tokens = tokens < 1 ? 1 : tokens > TOKENS_MAX ? TOKENS_MAX : tokens;
	return (uint32_t)tokens;
}

int sim_lengths_read(bool output, const char *text, struct sim_lengths *ret_lengths)
{
	const char *option = output ? "--output" : "--prompt";
	struct sim_lengths l = {0};
	int end = 0;

	for (const struct trace *t = traces; t->name; t++) {
		if (strcmp(t->name, text))
			continue;
		l.kind = SIM_TRACE;
		l.trace = t->name;
		l.quantile = output ? t->output : t->prompt;
		*ret_lengths = l;
		return 0;
	}
	if (sscanf(text, "uniform:%lf-%lf%n", &l.a, &l.b, &end) == 2 && !text[end] && end)
		l.kind = SIM_UNIFORM;
	else if (sscanf(text, "lognormal:%lf,%lf%n", &l.a, &l.b, &end) == 2 && end &&
		!text[end])
		l.kind = SIM_LOGNORMAL;
	else if (sscanf(text, "%lf%n", &l.a, &end) == 1 && end && !text[end])
		l.kind = SIM_FIXED;
	else
		return glk_tool_usage("kv",
			"%s %s: it is a number, uniform:FROM-TO, lognormal:MEDIAN,SIGMA, "
			"azure-conv, azure-code or mooncake",
			option, text);
	if (!(l.a >= 1) || !(l.a <= TOKENS_MAX) ||
		(l.kind == SIM_UNIFORM && (!(l.b >= l.a) || !(l.b <= TOKENS_MAX))) ||
		(l.kind == SIM_LOGNORMAL && (!(l.b >= 0) || !(l.b <= 10))))
		return glk_tool_usage("kv",
			"%s %s: lengths are 1 to %u tokens, a sigma 0 to 10", option,
			text, TOKENS_MAX);
	*ret_lengths = l;
	return 0;
}

int sim_load_make(const struct sim_recipe *recipe, struct sim_load *ret_load)
{
	/* each has a row of numbers of its own, so that lengths stay where arrivals change */
	uint64_t arrivals = recipe->seed,
		 prompts = recipe->seed ^ UINT64_C(0x70726f6d7074),
		 outputs = recipe->seed ^ UINT64_C(0x6f7574707574);
	struct sim_load load = {.count = recipe->count, .is_made = true};
	double now = 0;

	load.request = calloc(load.count, sizeof(*load.request));
	if (!load.request) {
		glk_tool_say("no memory for %zu requests", load.count);
		return GLK_TOOL_FAILED;
	}
	for (size_t i = 0; i < load.count; i++) {
		struct sim_request *r = &load.request[i];

		if (i % recipe->burst == 0)
			now -= log(part(&arrivals)) * recipe->burst;
		r->arrives = now;
		r->prompt = length_of(&recipe->prompt, &prompts);
		r->output = r->expected = length_of(&recipe->output, &outputs);
	}
	*ret_load = load;
	return 0;
}

/* ---- Read ---- */

static bool number(struct json_object *line, const char *name, bool must, double least,
	double most, double *ret_number)
{
	struct json_object *value;

	if (!json_object_object_get_ex(line, name, &value))
		return !must;
	if (!json_object_is_type(value, json_type_int) &&
		!json_object_is_type(value, json_type_double))
		return false;
	*ret_number = json_object_get_double(value);
	return *ret_number >= least && *ret_number <= most;
}

static bool read_line(const char *text, struct sim_request *r)
{
	struct json_object *line = json_tokener_parse(text);
	double arrival, prompt, output, expected = 0;
	bool good;

	good = line && json_object_is_type(line, json_type_object) &&
		number(line, "arrival", true, 0, 1e9, &arrival) &&
		number(line, "prompt", true, 1, TOKENS_MAX, &prompt) &&
		number(line, "output", true, 1, TOKENS_MAX, &output) &&
		number(line, "expected", false, 1, TOKENS_MAX, &expected);
	if (good)
		*r = (struct sim_request){.arrives = arrival,
			.prompt = (uint32_t)prompt,
			.output = (uint32_t)output,
			.expected = (uint32_t)(expected > 0 ? expected : output)};
	json_object_put(line);
	return good;
}

static bool has_text(const char *line)
{
	return line[strspn(line, " \t\r\n")];
}

static int add(struct sim_load *load, size_t *room, const struct sim_request *r)
{
	struct sim_request *more;

	if (load->count == *room) {
		*room = *room ? 2 * *room : 1024;
		more = reallocarray(load->request, *room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		load->request = more;
	}
	load->request[load->count++] = *r;
	return 0;
}

static int by_arrival(const void *a, const void *b)
{
	const struct sim_request *x = a, *y = b;

	return x->arrives < y->arrives ? -1 : x->arrives > y->arrives;
}

int sim_load_read(const char *path, struct sim_load *ret_load)
{
	FILE *file = strcmp(path, "-") ? fopen(path, "re") : stdin;
	struct sim_load load = {0};
	size_t room = 0, size = 0, row = 0;
	struct sim_request r;
	char *line = NULL;
	int status = GLK_TOOL_OK;

	if (!file) {
		glk_tool_say("%s: %s", path, strerror(errno));
		return GLK_TOOL_FAILED;
	}
	while (status == GLK_TOOL_OK && getline(&line, &size, file) > 0) {
		row++;
		if (!has_text(line))
			continue;
		if (!read_line(line, &r)) {
			glk_tool_say(
				"%s, line %zu: it is no request, as "
				"{\"arrival\": 0.5, \"prompt\": 1000, \"output\": 100}",
				path, row);
			status = GLK_TOOL_FAILED;
		} else if (load.count == COUNT_MAX || add(&load, &room, &r)) {
			glk_tool_say("%s: more than %d requests, or no memory for them",
				path, COUNT_MAX);
			status = GLK_TOOL_FAILED;
		}
	}
	if (status == GLK_TOOL_OK && ferror(file)) {
		glk_tool_say("%s: %s", path, strerror(errno));
		status = GLK_TOOL_FAILED;
	} else if (status == GLK_TOOL_OK && !load.count) {
		glk_tool_say("%s: it has no requests", path);
		status = GLK_TOOL_FAILED;
	}
	free(line);
	if (file != stdin)
		fclose(file);
	if (status != GLK_TOOL_OK) {
		sim_load_free(&load);
		return status;
	}
	qsort(load.request, load.count, sizeof(*load.request), by_arrival);
	*ret_load = load;
	return GLK_TOOL_OK;
}

void sim_load_free(struct sim_load *load)
{
	free(load->request);
	*load = (struct sim_load){0};
}
