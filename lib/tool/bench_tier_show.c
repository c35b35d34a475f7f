/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What bench tier has measured, for programs and for people. */
#include "base/json.h"
#include "tool/bench.h"
#include "tool/figure.h"

static const struct {
	const char *key, *name;
} steps[BENCH_TIER_STEPS] = {
	[BENCH_TIER_CALL] = {"spill_call_us", "spill, us a call"},
	[BENCH_TIER_SPILL] = {"spill_gbs", "spill"},
	[BENCH_TIER_FETCH] = {"fetch_gbs", "fetch"},
	[BENCH_TIER_BOTH] = {"both_gbs", "both at once"},
	[BENCH_TIER_SUSPEND] = {"suspend_gbs", "suspend"},
	[BENCH_TIER_RESUME] = {"resume_gbs", "resume"},
	[BENCH_TIER_PLACE] = {"place_gbs", "written in place"},
};

void bench_add_tier(struct glk_json *json, const void *measured)
{
	const struct bench_tier *tier = measured;

	glk_json_key(json, "tier");
	glk_json_object(json);
	glk_json_add_uint(json, "rounds", tier->rounds);
	glk_json_key(json, "cases");
	glk_json_array(json);
	for (int i = 0; i < BENCH_TIERS; i++) {
		const struct bench_tier_case *c = &tier->cases[i];

		glk_json_object(json);
		glk_json_add_uint(json, "block_bytes", c->block);
		glk_json_add_uint(json, "blocks", c->count);
		glk_json_add_figure(json, "first_spill_gbs", c->first_spill, 5);
		glk_json_add_figure(json, "first_suspend_gbs", c->first_suspend, 5);
		for (int step = 0; step < BENCH_TIER_STEPS; step++)
			bench_add_range(json, steps[step].key, c->figure[step]);
		glk_json_add_uint(json, "torn", c->torn);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_add_bool(json, "whole", !tier->torn);
	glk_json_end(json);
}

void bench_print_tier(const void *measured)
{
	const struct bench_tier *tier = measured;

	printf("contents that leave the GPU and come back, GB/s, %u rounds\n", tier->rounds);
	for (int i = 0; i < BENCH_TIERS; i++) {
		const struct bench_tier_case *c = &tier->cases[i];

		printf("\n  %zu blocks of %s\n  %-17s %8s %8s %8s %8s\n", c->count,
			figure_bytes(c->block).text, "", "first", "least", "median", "most");
		for (int step = 0; step < BENCH_TIER_STEPS; step++) {
			const struct bench_range *r = &c->figure[step];
			double first = step == BENCH_TIER_SPILL ? c->first_spill
				: step == BENCH_TIER_SUSPEND	? c->first_suspend
								: 0;

			printf("  %-17s ", steps[step].name);
			if (first > 0)
				printf("%8.1f", first);
			else
				printf("%8s", "");
			printf(" %8.1f %8.1f %8.1f\n", r->min, r->median, r->max);
		}
		if (c->torn)
			printf("  FAILED: %zu blocks do not hold what was written\n", c->torn);
	}
	putchar('\n');
}
