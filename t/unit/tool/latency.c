/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The histogram: its buckets, and its figures against a sorted array of the same values. */
#include "tool/latency.h"
#include "t/tap.h"

#define VALUES 100000

static uint64_t values[VALUES];
static struct latency latency, other;

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static bool near(uint64_t got, uint64_t want)
{
	uint64_t off = got > want ? got - want : want - got;

	return off * 64 <= want;
}

static void test_buckets(void)
{
	uint64_t wrong = 0;
	unsigned last = latency_bucket(0);

	for (uint64_t ns = 1; ns < 1 << 20; ns++) {
		unsigned bucket = latency_bucket(ns);

		wrong += bucket != last && bucket != last + 1;
		last = bucket;
	}
	is_int(wrong, 0, "buckets follow each other without a gap");
	is_int(latency_bucket(127), 127, "small values have a bucket of their own");
	is_int(latency_bucket(INT64_MAX), LATENCY_BUCKETS - 65,
		"the largest value has one");
	ok(latency_bucket(UINT64_MAX) < LATENCY_BUCKETS, "nothing lies beyond the last");
}

static void test_figures(void)
{
	struct latency_figures figures;
	uint64_t x = 1;
	double sum = 0;

	for (int i = 0; i < VALUES; i++) {
		x = x * 16807 % 2147483647;
		/* From 20 ns to some ms, as calls are. */
		values[i] = 20 + (x % 1000) * (x % 7 ? 1 : x % 6000);
		sum += (double)values[i];
		latency_add(i % 2 ? &latency : &other, (int64_t)values[i]);
	}
	latency_merge(&latency, &other);
	latency_sum_up(&latency, &figures);
	qsort(values, VALUES, sizeof(values[0]), by_value);
	is_int(latency.count, VALUES, "count");
	ok(figures.mean > sum / VALUES - 0.001 && figures.mean < sum / VALUES + 0.001,
		"the mean is exact");
	is_int(figures.max, values[VALUES - 1], "the maximum is exact");
	ok(near(figures.p50, values[VALUES / 2 - 1]), "the median within 1/64");
	ok(near(figures.p99, values[VALUES / 100 * 99 - 1]), "p99 within 1/64");
	ok(near(figures.p999, values[VALUES / 1000 * 999 - 1]), "p99.9 within 1/64");
}

static void test_few(void)
{
	struct latency_figures figures;

	memset(&latency, 0, sizeof(latency));
	latency_sum_up(&latency, &figures);
	ok(figures.mean == 0 && !figures.p50 && !figures.p999 && !figures.max,
		"nothing is 0 throughout");
	latency_add(&latency, -5);
	latency_sum_up(&latency, &figures);
	ok(figures.mean == 0 && !figures.p50 && !figures.max, "below 0 counts as 0");
	latency_add(&latency, 1000003);
	latency_sum_up(&latency, &figures);
	is_int(figures.p50, 0, "of two, the lower is the median");
	is_int(figures.p99, 1000003, "no quantile lies above the maximum");
}

int main(void)
{
	tap_plan(15);
	test_buckets();
	test_figures();
	test_few();
	ok(latency_clock_cost() >= 0 && latency_clock_cost() < 1000000,
		"the clock has a cost");
	return tap_done();
}
