/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Recorded jobs under variants of the policy: what each choice is worth. One key is changed at
 * a time from its default, those of a table or those that were asked for; every variant replays
 * every job a few times in a context of its own. On the software device the same run gives the
 * same figures on any machine.
 */
#include "tool/bench.h"

#include "base/json.h"
#include "tool/progress.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#define PASSES 4 /* unless --rounds says otherwise */

/* The jobs of the source tree, from its top. */
#define TRACES "t/data/*.csv*"

static const struct {
	const char *name, *setting;
} variants[] = {
	{"default", NULL},
	{"bins: none", "policy.bins=0"},
	{"bins: 1 MiB", "policy.bins=1MiB"},
	{"bins: all", "policy.bins=16TiB"},
	{"target: 1", "policy.target=1"},
	{"target: 1.002", "policy.target=1.002"},
	{"target: 1.005", "policy.target=1.005"},
	{"target: 1.01", "policy.target=1.01"},
	{"target: 1.05", "policy.target=1.05"},
	{"target: 1.10", "policy.target=1.10"},
	{"ends: low", "policy.ends=low"},
	{"ends: high", "policy.ends=high"},
	{"pages: 2 MiB", "pool.large_page=2MiB"},
	{"pages: 4 MiB", "pool.large_page=4MiB"},
	{"pages: 8 MiB", "pool.large_page=8MiB"},
	{"pages: 32 MiB", "pool.large_page=32MiB"},
};

#define VARIANTS (sizeof(variants) / sizeof(variants[0]))

_Static_assert(VARIANTS <= BENCH_VARIANTS_MAX, "room for all variants");

static void sum_up(const struct replay_result *result, struct bench_outcome *outcome)
{
	uint64_t hits = 0, requests = 0;

	*outcome = (struct bench_outcome){.ok = result->ok};
	if (result->trace->peak_live)
		outcome->over_live =
			(double)result->peak_reserved / (double)result->trace->peak_live;
	for (size_t i = 0; i < result->repeats; i++) {
		const struct replay_repeat *repeat = &result->repeat[i];
		double ms = (double)repeat->driver.now_ns / 1e6;

		hits += repeat->hits;
		requests += repeat->hits + repeat->misses;
		outcome->total_ms += ms;
		if (!i)
			outcome->first_ms = ms;
		else
			outcome->mean_ms += ms / (double)(result->repeats - 1);
		if (i && ms > outcome->most_ms)
			outcome->most_ms = ms;
	}
	outcome->hits = requests ? (double)hits / (double)requests : 0;
}

/* The variants of a "KEY=VALUE,VALUE". 0 or -errno after a message. */
static int add_values(struct bench_policy *policy, const char *vary)
{
	size_t key = strcspn(vary, "=") + 1, length;

	for (const char *value = vary + key;; value += length + 1) {
		char *text = policy->text[policy->variants];

		length = strcspn(value, ",");
		if (policy->variants == BENCH_VARIANTS_MAX ||
			key + length >= sizeof(policy->text[0])) {
			glk_tool_say(
				"bench policy: --vary %s: more than %d values, or a longer "
				"one than %zu letters",
				vary, BENCH_VARIANTS_MAX - 1,
				sizeof(policy->text[0]) - key - 1);
			return -E2BIG;
		}
		memcpy(text, vary, key);
		memcpy(text + key, value, length);
		text[key + length] = '\0';
		policy->variant[policy->variants].name = text;
		policy->variant[policy->variants++].setting = text;
		if (!value[length])
			return 0;
	}
}

/* What is no key, or no value of it, is told before hours of replays. */
static int check_settings(
	const struct bench_options *options, const struct bench_policy *policy)
{
	for (size_t i = 0; i < policy->variants; i++) {
		const char *settings[] = {policy->variant[i].setting, NULL};
		struct glake_options wanted = {.sz = sizeof(wanted),
			.backend = options->context.backend,
			.settings = settings};
		int err = glake_conf_check(&wanted, NULL, NULL);

		if (!err)
			continue;
		glk_tool_say_error("bench policy", err);
		return err;
	}
	return 0;
}

static int choose_variants(
	const struct bench_options *options, struct bench_policy *policy)
{
	int err = 0;

	for (size_t i = 0; i < (options->varied ? 1 : VARIANTS); i++) {
		policy->variant[i].name = variants[i].name;
		policy->variant[i].setting = variants[i].setting;
		policy->variants++;
	}
	for (size_t i = 0; i < options->varied && !err; i++)
		err = add_values(policy, options->vary[i]);
	return err ? err : check_settings(options, policy);
}

static int run_variant(const struct bench_options *options, const struct trace *trace,
	const struct bench_policy *policy, size_t variant, struct bench_outcome *outcome)
{
	static struct replay_result result;
	struct replay_options replay = {
		.context = options->context, .repeats = policy->passes, .threads = 1};
	int err = 0;

	if (policy->variant[variant].setting)
		err = glk_tool_add_setting(
			&replay.context, "bench", policy->variant[variant].setting);
	if (!err)
		err = replay_job(trace, &replay, &result);
	if (err)
		return -EINVAL;
	sum_up(&result, outcome);
	if (!result.ok)
		glk_tool_say("%s, %s: %s", trace->name, policy->variant[variant].name,
			result.failure);
	replay_result_fini(&result);
	return 0;
}

static int run_trace(const struct bench_options *options, const char *path,
	struct bench_policy *policy)
{
	size_t at = policy->traces;
	char message[TRACE_MESSAGE_MAX];
	struct trace trace = {0};
	int err =
		trace_load(path, false, &TRACE_LIMITS, message, sizeof(message), &trace);

	if (err)
		glk_tool_say("%s", message);
	for (size_t i = 0; i < policy->variants && !err; i++) {
		struct bench_outcome *outcome = &policy->trace[at].outcome[i];

		err = run_variant(options, &trace, policy, i, outcome);
		policy->ok = policy->ok && !err && outcome->ok;
	}
	if (!err) {
		snprintf(policy->trace[at].name, sizeof(policy->trace[at].name), "%s",
			trace.name);
		policy->trace[at].peak_live = trace.peak_live;
		policy->trace[at].job_ms = (double)trace.job_us / 1e3;
		policy->traces++;
	}
	trace_fini(&trace);
	return err;
}

static int measure(const struct bench_options *options, void *measured)
{
	struct bench_policy *policy = measured;
	const char *const *paths = options->trace;
	size_t count = options->traces;
	glob_t found = {0};
	int err = 0;

	*policy = (struct bench_policy){
		.passes = options->rounds ? options->rounds : PASSES,
		.ok = true,
	};
	err = choose_variants(options, policy);
	if (err)
		return err;
	if (!count && !glob(TRACES, 0, NULL, &found)) {
		paths = (const char *const *)found.gl_pathv;
		count = found.gl_pathc;
	}
	if (!count) {
		glk_tool_say(
			"bench policy: there is no %s here: name the traces", TRACES);
		err = -ENOENT;
	}
	for (size_t i = 0; i < count && i < BENCH_TRACES_MAX && !err; i++)
		err = run_trace(options, paths[i], policy);
	globfree(&found);
	return err;
}

/* Driver time of a pass as a share of the job, in percent. */
static double share(double ms, double job_ms)
{
	return job_ms > 0 ? ms / job_ms * 100 : 0;
}

static double per_gib(double ms, uint64_t bytes)
{
	return bytes ? ms / ((double)bytes / (double)(UINT64_C(1) << 30)) : 0;
}

static void add(struct glk_json *json, const void *measured)
{
	const struct bench_policy *policy = measured;

	glk_json_key(json, "policy");
	glk_json_object(json);
	glk_json_add_uint(json, "passes", policy->passes);
	glk_json_key(json, "outcomes");
	glk_json_array(json);
	for (size_t i = 0; i < policy->variants * policy->traces; i++) {
		size_t v = i / policy->traces, t = i % policy->traces;
		const struct bench_outcome *outcome = &policy->trace[t].outcome[v];
		double job_ms = policy->trace[t].job_ms;

		glk_json_object(json);
		glk_json_add_text(json, "variant", policy->variant[v].name);
		glk_json_add_text(json, "setting",
			policy->variant[v].setting ? policy->variant[v].setting : "");
		glk_json_add_text(json, "trace", policy->trace[t].name);
		glk_json_add_figure(json, "reserved_over_live", outcome->over_live, 6);
		glk_json_add_figure(json, "driver_ms", outcome->total_ms, 6);
		glk_json_add_figure(json, "first_driver_ms", outcome->first_ms, 6);
		glk_json_add_figure(json, "first_driver_ms_per_gib",
			per_gib(outcome->first_ms, policy->trace[t].peak_live), 6);
		glk_json_add_figure(
			json, "later_percent_of_job", share(outcome->mean_ms, job_ms), 4);
		glk_json_add_figure(json, "later_percent_of_job_worst",
			share(outcome->most_ms, job_ms), 4);
		glk_json_add_figure(json, "hits_percent", outcome->hits * 100, 4);
		glk_json_add_bool(json, "ok", outcome->ok);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_add_bool(json, "ok", policy->ok);
	glk_json_end(json);
}

/* As a table of Markdown, to be kept with the picture. */
static void print(const void *measured)
{
	const struct bench_policy *policy = measured;
	int width = 13;

	for (size_t v = 0; v < policy->variants; v++) {
		if ((int)strlen(policy->variant[v].name) > width)
			width = (int)strlen(policy->variant[v].name);
	}
	printf("| %-*s | %-12s | reserved/live | first ms/GiB | later %% of job | worst  | "
	       "hits %% |\n|",
		width, "variant", "job");
	for (int i = 0; i < width + 2; i++)
		putchar('-');
	printf("|--------------|--------------:|-------------:|--------------:|-------:|"
	       "-------:|\n");
	for (size_t i = 0; i < policy->variants * policy->traces; i++) {
		size_t v = i / policy->traces, t = i % policy->traces;
		const struct bench_outcome *outcome = &policy->trace[t].outcome[v];
		double job_ms = policy->trace[t].job_ms;

		printf("| %-*s | %-12s | %13.4f | %12.2f | %13.2f | %6.2f | %6.1f |%s\n",
			width, policy->variant[v].name, policy->trace[t].name,
			outcome->over_live,
			per_gib(outcome->first_ms, policy->trace[t].peak_live),
			share(outcome->mean_ms, job_ms), share(outcome->most_ms, job_ms),
			outcome->hits * 100, outcome->ok ? "" : " FAILED");
	}
}

static bool finish(const struct bench_options *options, const void *measured)
{
	const struct bench_policy *policy = measured;
	int err = options->svg ? bench_plot_policy(policy, options->svg) : 0;

	return !err && policy->ok;
}

const struct bench_part bench_policy = {.name = "policy",
	.size = sizeof(struct bench_policy),
	.measure = measure,
	.add = add,
	.print = print,
	.finish = finish};
