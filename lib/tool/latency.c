/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Latencies of single calls. Calls of some 20 ns are timed by a clock that itself takes as
 * long, so its cost is measured once, in the same process, and taken off every value. The
 * median is taken and not the least, which would leave part of the cost in every value.
 */
#include "tool/latency.h"

#include <stdlib.h>

#define CLOCK_READS 2001

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

int64_t latency_clock_cost(void)
{
	int64_t costs[CLOCK_READS];

	/* Twice, the first time to have code and data at hand. */
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < CLOCK_READS; i++) {
			int64_t before = latency_now();

			costs[i] = latency_now() - before;
		}
	}
	qsort(costs, CLOCK_READS, sizeof(costs[0]), by_value);
	return costs[CLOCK_READS / 2];
}

void latency_merge(struct latency *latency, const struct latency *other)
{
	latency->count += other->count;
	latency->sum += other->sum;
	if (other->max > latency->max)
		latency->max = other->max;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		latency->buckets[i] += other->buckets[i];
}

/* The middle of a bucket. */
static uint64_t value_of(unsigned bucket)
{
	unsigned shift;

	if (bucket < 2 * LATENCY_FINE)
		return bucket;
	shift = bucket / LATENCY_FINE - 1;
	return ((uint64_t)(bucket - shift * LATENCY_FINE) << shift) +
		(UINT64_C(1) << shift) / 2;
}

/* The value that a share of `per_mille` of the calls did not exceed. */
static uint64_t at(const struct latency *latency, uint64_t per_mille)
{
	uint64_t rank = (latency->count * per_mille + 999) / 1000;
	uint64_t seen = 0, value;

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		seen += latency->buckets[i];
		if (seen < rank || !seen)
			continue;
		value = value_of(i);
		return value < latency->max ? value : latency->max;
	}
	return 0;
}

void latency_sum_up(const struct latency *latency, struct latency_figures *ret_figures)
{
	*ret_figures = (struct latency_figures){
		.mean = latency->count ? (double)latency->sum / (double)latency->count
				       : 0,
		.p50 = at(latency, 500),
		.p99 = at(latency, 990),
		.p999 = at(latency, 999),
		.max = latency->max,
	};
}
