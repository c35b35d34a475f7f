/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What bench tier has measured, for programs and for people. */
#include "base/json.h"
#include "tool/bench.h"
#include "tool/figure.h"

static const struct {
	const char *key, *name;
	const char *
		first; /* the first round makes what contents go to, and is told apart; or NULL */
} steps[BENCH_TIER_STEPS] = {
	[BENCH_TIER_CALL] = {"spill_call_us", "spill, us a call", NULL},
	[BENCH_TIER_SPILL] = {"spill_gbs", "spill", "first_spill_gbs"},
	[BENCH_TIER_FETCH] = {"fetch_gbs", "fetch", NULL},
	[BENCH_TIER_BOTH] = {"both_gbs", "both at once", NULL},
	[BENCH_TIER_SUSPEND] = {"suspend_gbs", "suspend", "first_suspend_gbs"},
	[BENCH_TIER_RESUME] = {"resume_gbs", "resume", NULL},
	[BENCH_TIER_LOWER] = {"suspend_in_place_gbs", "suspend in place",
		"first_suspend_in_place_gbs"},
	[BENCH_TIER_LAZY] = {"resume_lazy_us", "resume lazily, us", NULL},
	[BENCH_TIER_QUIET] = {"quiet_gbs", "quiet", NULL},
	[BENCH_TIER_PLACE] = {"place_gbs", "written in place", NULL},
	[BENCH_TIER_PEER_SPILL] = {"peer_spill_gbs", "spill to GPU 1",
		"first_peer_spill_gbs"},
	[BENCH_TIER_PEER_FETCH] = {"peer_fetch_gbs", "fetch from GPU 1", NULL},
	[BENCH_TIER_PEER_BOTH] = {"peer_both_gbs", "both at once", NULL},
};

/* Of those that were taken: without another GPU that lends the last are not. */
static int steps_of(const struct bench_tier_case *c)
{
	return c->peer ? BENCH_TIER_STEPS : BENCH_TIER_PEER_SPILL;
}

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
		for (int step = 0; step < steps_of(c); step++) {
			if (steps[step].first)
				glk_json_add_figure(
					json, steps[step].first, c->first[step], 5);
			bench_add_range(json, steps[step].key, c->figure[step]);
		}
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

	printf("contents that leave the GPU and come back, GB/s, %u rounds\n",
		tier->rounds);
	for (int i = 0; i < BENCH_TIERS; i++) {
		const struct bench_tier_case *c = &tier->cases[i];

		printf("\n  %zu blocks of %s\n  %-17s %8s %8s %8s %8s\n", c->count,
			figure_bytes(c->block).text, "", "first", "least", "median",
			"most");
		for (int step = 0; step < steps_of(c); step++) {
			const struct bench_range *r = &c->figure[step];

			printf("  %-17s ", steps[step].name);
			if (steps[step].first)
				printf("%8.1f", c->first[step]);
			else
				printf("%8s", "");
			printf(" %8.1f %8.1f %8.1f\n", r->min, r->median, r->max);
		}
		if (c->torn)
			printf("  FAILED: %zu blocks do not hold what was written\n",
				c->torn);
	}
	putchar('\n');
}
