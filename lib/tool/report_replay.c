/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The replays behind a report: one as the configuration says, which the page is about, and for
 * the frontier one under each of some other targets: a job that may hold more above its peak of
 * live memory needs less time of the driver. These are seven times the work, so not of a long trace
 * unless they are asked for.
 */
#include "tool/report.h"

#include "base/parse.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
	double target;
	const char *setting;
} others[] = {
	{0, "policy.target=auto"},
	{1, "policy.target=1"},
	{1.005, "policy.target=1.005"},
	{1.02, "policy.target=1.02"},
	{1.05, "policy.target=1.05"},
	{1.1, "policy.target=1.1"},
	{1.2, "policy.target=1.2"},
};

struct report_target report_target(const struct report_point *point)
{
	struct report_target target = {"auto"};

	if (point->target > 0)
		snprintf(target.text, sizeof(target.text), "x%g", point->target);
	return target;
}

static void add_point(
	struct report *report, const struct replay_result *result, double target)
{
	struct report_point *point = &report->point[report->points++];

	*point = (struct report_point){.target = target,
		.chosen = result == &report->result,
		.ok = result->ok,
		.reserved = result->peak_reserved,
		.first_ms = (double)result->repeat[0].driver.now_ns / 1e6};
	for (size_t i = 1; i < result->repeats; i++)
		point->later_ms += (double)result->repeat[i].driver.now_ns / 1e6;
}

/* That of the configuration, which has no 'x' in front; 0: auto. */
static double target_of(const struct replay_result *result)
{
	char text[sizeof(result->target.text) + 1];
	double target;

	snprintf(text, sizeof(text), "x%s", result->target.text);
	return glk_parse_ratio(text, &target) ? 0 : target;
}

static int replay_other(struct report *report, size_t which)
{
	static struct replay_result result;
	struct replay_options options = report->replay;
	int err;

	options.context.quiet = true; /* what there is to say was said */
	err = glk_tool_add_setting(&options.context, "report", others[which].setting);
	if (!err)
		err = replay_job(&report->trace, &options, &result);
	if (err)
		return err;
	add_point(report, &result, others[which].target);
	replay_result_fini(&result);
	return 0;
}

static int by_target(const void *a, const void *b)
{
	const struct report_point *x = a, *y = b;

	return x->target < y->target ? -1 : x->target > y->target;
}

static bool wants_others(const struct report *report)
{
	int frontier = report->options->frontier;

	return frontier == REPORT_YES ||
		(frontier == REPORT_AUTO && report->trace.count <= REPORT_AUTO_MAX);
}

int report_replay(struct report *report)
{
	int err;

	report->replay = (struct replay_options){.context = report->options->context,
		.repeats = REPORT_PASSES,
		.threads = 1,
		.samples = REPLAY_SAMPLES_MAX};
	err = replay_job(&report->trace, &report->replay, &report->result);
	if (err)
		return err;
	add_point(report, &report->result, target_of(&report->result));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (!wants_others(report) || others[i].target == report->point[0].target)
			continue;
		err = replay_other(report, i);
		if (err)
			return err;
	}
	qsort(report->point, report->points, sizeof(*report->point), by_target);
	return 0;
}
