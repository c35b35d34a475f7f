/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How the figures of the benchmarks of the hot path and stitching are shown. */
#include "tool/bench.h"

#include "base/json.h"
#include "tool/figure.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct bench_range bench_range_of(double *values, size_t count)
{
	struct bench_range range = {0};

	for (size_t i = 0; i < count; i++)
		range.mean += values[i] / (double)count;
	qsort(values, count, sizeof(*values), by_value);
	range.min = values[0];
	range.median = values[count / 2];
	range.max = values[count - 1];
	return range;
}

void bench_add_range(struct glk_json *json, const char *key, struct bench_range range)
{
	glk_json_key(json, key);
	glk_json_object(json);
	glk_json_add_figure(json, "mean", range.mean, 5);
	glk_json_add_figure(json, "min", range.min, 5);
	glk_json_add_figure(json, "median", range.median, 5);
	glk_json_add_figure(json, "max", range.max, 5);
	glk_json_end(json);
}

void bench_add_hits(struct glk_json *json, const struct bench_hits *count)
{
	glk_json_add_uint(json, "requests", count->requests);
	glk_json_add_uint(json, "hits", count->hits);
	glk_json_add_uint(json, "misses", count->requests - count->hits);
	glk_json_add_uint(json, "driver_called", count->called);
}

void bench_add_alloc(struct glk_json *json, const void *measured)
{
	const struct bench_alloc *alloc = measured;

	glk_json_key(json, "alloc");
	glk_json_object(json);
	glk_json_add_uint(json, "rounds", alloc->rounds);
	glk_json_add_uint(json, "pairs_a_round", alloc->pairs);
	glk_json_key(json, "mutex");
	glk_json_object(json);
	bench_add_range(json, "pair_ns", alloc->mutex_ns);
	bench_add_range(json, "pair_ns_one_thread", alloc->mutex_alone_ns);
	glk_json_end(json);
	glk_json_key(json, "cases");
	glk_json_array(json);
	for (int i = 0; i < BENCH_CASES; i++) {
		glk_json_object(json);
		glk_json_add_text(json, "name", alloc->cases[i].name);
		glk_json_add_bool(json, "steady", alloc->cases[i].steady);
		bench_add_range(json, "pair_ns", alloc->cases[i].ns);
		bench_add_hits(json, &alloc->cases[i].count);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_add_bool(json, "all_hits", alloc->all_hits);
	glk_json_end(json);
}

static void print_row(const char *name, struct bench_range ns)
{
	printf("  %-16s %9.1f %9.1f %9.1f %9.1f", name, ns.mean, ns.min, ns.median,
		ns.max);
}

void bench_print_alloc(const void *measured)
{
	const struct bench_alloc *alloc = measured;

	printf("allocate and free, ns a pair, %u rounds of %zu pairs\n\n", alloc->rounds,
		alloc->pairs);
	printf("  %-16s %9s %9s %9s %9s %9s %9s\n", "", "mean", "min", "median", "max",
		"hits", "driver");
	print_row("mutex", alloc->mutex_ns);
	putchar('\n');
	print_row("mutex, 1 thread", alloc->mutex_alone_ns);
	putchar('\n');
	for (int i = 0; i < BENCH_CASES; i++) {
		const struct bench_hits *count = &alloc->cases[i].count;

		print_row(alloc->cases[i].name, alloc->cases[i].ns);
		printf(" %8.2f%% %9llu\n",
			count->requests
				? 100.0 * (double)count->hits / (double)count->requests
				: 0,
			(unsigned long long)count->called);
	}
	if (!alloc->all_hits)
		printf("\n  NOT ALL HITS: the first two cases should be served by the quick "
		       "bins alone\n");
	putchar('\n');
}

static double gib(const struct bench_stitch *stitch)
{
	return (double)stitch->block / (double)(UINT64_C(1) << 30);
}

static void add_stitched(struct glk_json *json, const char *key,
	const struct bench_stitch *stitch, const struct bench_stitched *stitched)
{
	glk_json_key(json, key);
	glk_json_object(json);
	glk_json_key(json, "driver_calls");
	glk_json_object(json);
	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		glk_json_add_uint(json, glake_call_name(i), stitched->calls[i]);
	glk_json_end(json);
	glk_json_add_figure(json, "driver_ms", stitched->driver_ms, 6);
	glk_json_add_figure(
		json, "driver_ms_per_gib", stitched->driver_ms / gib(stitch), 6);
	glk_json_add_figure(json, "wall_ms", stitched->wall_ms, 6);
	glk_json_end(json);
}

void bench_add_stitch(struct glk_json *json, const void *measured)
{
	const struct bench_stitch *stitch = measured;

	glk_json_key(json, "stitch");
	glk_json_object(json);
	glk_json_add_text(json, "driver", stitch->backend);
	glk_json_add_uint(json, "block_bytes", stitch->block);
	glk_json_add_uint(json, "pages", stitch->pages);
	add_stitched(json, "first", stitch, &stitch->first);
	add_stitched(json, "again", stitch, &stitch->again);
	glk_json_add_uint(json, "stitches", stitch->stitches);
	glk_json_add_bool(json, "contents_checked", stitch->checked);
	glk_json_add_uint(json, "pages_seen_again", stitch->kept);
	glk_json_add_uint(json, "marks_broken", stitch->broken);
	glk_json_add_bool(json, "ok", stitch->ok);
	glk_json_end(json);
}

static void print_stitched(const char *name, const struct bench_stitch *stitch,
	const struct bench_stitched *stitched)
{
	static const int calls[] = {GLAKE_CALL_CREATE, GLAKE_CALL_MAP,
		GLAKE_CALL_SET_ACCESS, GLAKE_CALL_UNMAP, GLAKE_CALL_RELEASE};

	printf("  %-12s", name);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		printf(" %8llu", (unsigned long long)stitched->calls[calls[i]]);
	printf(" %10s", figure_ns(stitched->driver_ms * 1e6).text);
	printf(" %12s", figure_ns(stitched->driver_ms / gib(stitch) * 1e6).text);
	printf(" %10s\n", figure_ns(stitched->wall_ms * 1e6).text);
}

void bench_print_stitch(const void *measured)
{
	const struct bench_stitch *stitch = measured;

	printf("a block of %s on %zu pages that lay apart, %s\n\n",
		figure_bytes(stitch->block).text, stitch->pages,
		stitch->backend[0] == 's' ? "software device (driver time is modelled)"
					  : "CUDA");
	printf("  %-12s %8s %8s %8s %8s %8s %10s %12s %10s\n", "", "create", "map",
		"access", "unmap", "release", "driver", "driver/GiB", "wall");
	print_stitched("first time", stitch, &stitch->first);
	print_stitched("afterwards", stitch, &stitch->again);
	if (stitch->checked)
		printf("\n  contents: %zu pages seen again through the new mapping, %zu marks "
		       "of other blocks broken\n",
			stitch->kept, stitch->broken);
	if (!stitch->ok)
		printf("\n  FAILED: %s\n",
			stitch->broken ? "blocks in use were overwritten"
				: !stitch->stitches
				? "no block was stitched"
				: "pages do not hold what was written");
	putchar('\n');
}
