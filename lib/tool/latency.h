/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_LATENCY_H
#define GLK_TOOL_LATENCY_H

/*
 * How long calls take: a histogram instead of every value, so that a trace of any length
 * needs 30 KiB. Below 128 ns a bucket is 1 ns wide, above 1/64 of its value; count, sum and
 * maximum are exact. One thread adds; histograms of several are merged afterwards.
 */
#include "base/clock.h"

#include <stdint.h>

#define LATENCY_FINE	64 /* buckets an octave */
#define LATENCY_BUCKETS (LATENCY_FINE * 59)

struct latency {
	uint64_t count;
	uint64_t sum;
	uint64_t max;
	uint64_t buckets[LATENCY_BUCKETS];
};

/* What is said about a histogram, in ns. All 0 for an empty one. */
struct latency_figures {
	double mean;
	uint64_t p50, p99, p999, max;
};

static inline int64_t latency_now(void)
{
	return glk_clock_ns();
}

static inline unsigned latency_bucket(uint64_t ns)
{
	unsigned shift;

	if (ns < 2 * LATENCY_FINE)
		return (unsigned)ns;
	shift = 63 - 6 - (unsigned)__builtin_clzll(ns);
	return shift * LATENCY_FINE + (unsigned)(ns >> shift);
}

/* Times below 0, as the subtraction of the clock's own cost can give, count as 0. */
static inline void latency_add(struct latency *latency, int64_t ns)
{
	uint64_t value = ns > 0 ? (uint64_t)ns : 0;

	latency->count++;
	latency->sum += value;
	if (value > latency->max)
		latency->max = value;
	latency->buckets[latency_bucket(value)]++;
}

/* What two reads of the clock with nothing between them show, in ns. */
int64_t latency_clock_cost(void);

void latency_merge(struct latency *latency, const struct latency *other);
void latency_sum_up(const struct latency *latency, struct latency_figures *ret_figures);

#endif
