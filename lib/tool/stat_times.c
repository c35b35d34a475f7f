/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The times of glakectl stat: how many calls there were, and what half of them, and all but one in
 * a hundred, did not exceed. Counts of a bucket are spread evenly between its bounds, so that is
 * right to within the bucket, whose upper bound is twice the lower one.
 */
#include "tool/stat.h"

#include "tool/figure.h"
#include "tool/process.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MAX 128

struct bucket {
	uint64_t below, count; /* below UINT64_MAX: the last */
};

struct times {
	uint64_t count, sum, longest;
	struct bucket bucket[BUCKETS_MAX];
	size_t buckets;
};

bool stat_is_times(struct json_object *value)
{
	struct json_object *below;

	return json_object_get_type(value) == json_type_object &&
		json_object_object_get_ex(value, "below_ns", &below) &&
		json_object_get_type(below) == json_type_object;
}

/* Several by their names. */
static bool is_many(struct json_object *value)
{
	if (json_object_get_type(value) != json_type_object)
		return false;
	json_object_object_foreach(value, name, one)
	{
		(void)name;
		return stat_is_times(one);
	}
	return false;
}

bool stat_has_times(struct json_object *value)
{
	return stat_is_times(value) || is_many(value);
}

static int by_bound(const void *a, const void *b)
{
	uint64_t x = ((const struct bucket *)a)->below;
	uint64_t y = ((const struct bucket *)b)->below;

	return x < y ? -1 : x > y;
}

static void read_times(struct json_object *value, struct times *ret_times)
{
	struct json_object *below = NULL;

	*ret_times = (struct times){.count = process_number(value, "count"),
		.sum = process_number(value, "sum_ns"),
		.longest = process_number(value, "longest_ns")};
	json_object_object_get_ex(value, "below_ns", &below);
	json_object_object_foreach(below, name, count)
	{
		struct bucket *b = &ret_times->bucket[ret_times->buckets];
		char *end;

		if (ret_times->buckets == BUCKETS_MAX ||
			json_object_get_type(count) != json_type_int)
			break;
		b->below = strtoull(name, &end, 10);
		if (end == name || *end)
			b->below = UINT64_MAX; /* "longer" */
		b->count = json_object_get_uint64(count);
		ret_times->buckets++;
	}
	qsort(ret_times->bucket, ret_times->buckets, sizeof(struct bucket), by_bound);
}

/* What so many of a hundred did not exceed. */
static double quantile(const struct times *times, unsigned percent)
{
	double wanted = (double)times->count * percent / 100, seen = 0;
	double longest = (double)times->longest;

	for (size_t i = 0; i < times->buckets; i++) {
		const struct bucket *b = &times->bucket[i];
		double high = b->below == UINT64_MAX ? longest : (double)b->below;
		double low = b->below <= 128 || b->below == UINT64_MAX ? 0 : high / 2;
		double value;

		if (!b->count || seen + (double)b->count < wanted) {
			seen += (double)b->count;
			continue;
		}
		value = low + (high - low) * (wanted - seen) / (double)b->count;
		return value < longest ? value : longest;
	}
	return longest;
}

static void print_one(const char *name, const char *part, struct json_object *value)
{
	size_t length = strlen(name);
	struct times times;
	char whole[80];

	read_times(value, &times);
	if (length > 3 && !strcmp(name + length - 3, "_ns"))
		length -= 3;
	snprintf(whole, sizeof(whole), "%.*s%s%s", (int)length, name, part ? "." : "",
		part ? part : "");
	for (char *c = whole; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	printf("  %-37s %11s", whole, figure_count((double)times.count).text);
	if (times.count)
		printf(" %8s %8s %8s %8s",
			figure_ns((double)times.sum / (double)times.count).text,
			figure_ns(quantile(&times, 50)).text,
			figure_ns(quantile(&times, 99)).text,
			figure_ns((double)times.longest).text);
	puts("");
}

void stat_print_times(struct json_object *object, const char *head)
{
	printf("  %-37s %11s %8s %8s %8s %8s\n", head, "calls", "mean", "p50", "p99",
		"longest");
	json_object_object_foreach(object, name, value)
	{
		if (stat_is_times(value))
			print_one(name, NULL, value);
		if (!is_many(value))
			continue;
		json_object_object_foreach(value, part, one)
		{
			if (stat_is_times(one))
				print_one(name, part, one);
		}
	}
}
