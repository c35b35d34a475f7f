/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests whose sizes never repeat: no bin can serve them, every free leaves a hole of a new
 * size, and whatever the library remembers of a size is in vain. Jobs with varying lengths do
 * this for days. A bounded number of blocks is live, so all that the library keeps for them
 * must stay bounded too: its tables, its mappings, its addresses.
 *
 * Of seven requests one is of up to 1 MiB, two of up to 4 and four of up to 64; which block goes
 * is chosen by a fixed sequence. Sizes are the steps of a full cycle through a range.
 */
#include "more.h"

#include "base/json.h"
#include "tool/figure.h"
#include "tool/latency.h"

#include <errno.h>
#include <string.h>

#define LIVE  64 /* 2^6: the upper 6 bits of a number choose */
#define KINDS 7
#define MIB   ((size_t)1 << 20)

/* A step that shares no factor with the lengths of the ranges, 2, 3 and 5, reaches each size
 * once; this one is near the golden part of the longest, which spreads neighbours well. */
#define STRIDE 38880667

/* First size and number of sizes, in bytes. Seven million requests are the most for which the
 * low ones suffice. */
static const struct {
	size_t first, count;
} low = {1, MIB}, middle = {MIB + 1, 3 * MIB}, high = {4 * MIB + 1, 60 * MIB};

static size_t size_of(unsigned request)
{
	size_t turn = request / KINDS, kind = request % KINDS;

	if (kind == 0)
		return low.first + turn * STRIDE % low.count;
	if (kind < 3)
		return middle.first + (2 * turn + kind - 1) * STRIDE % middle.count;
	return high.first + (4 * turn + kind - 3) * STRIDE % high.count;
}

/* Mappings and bytes of addresses of this process. */
static void look_at_process(struct bench_sizes_step *step)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned long long kib;
	char line[512];

	while (file && fgets(line, sizeof(line), file))
		step->process_mappings += strchr(line, '\n') != NULL;
	if (file)
		fclose(file);
	file = fopen("/proc/self/status", "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "VmSize: %llu kB", &kib) == 1)
			step->process_bytes = kib << 10;
	}
	if (file)
		fclose(file);
}

static uint64_t calls_until_now(struct glake *ctx)
{
	struct glake_driver_stats driver = {.sz = sizeof(driver)};
	uint64_t calls = 0;

	if (glake_driver_stats_get(ctx, &driver))
		return 0;
	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		calls += driver.calls[i];
	return calls;
}

static int run_step(struct glake *ctx, void **live, unsigned from, unsigned to,
	struct bench_sizes_step *step)
{
	uint64_t calls = calls_until_now(ctx);
	int64_t start = latency_now();
	int err = 0;

	for (unsigned i = from; i < to && !err; i++) {
		void **slot = &live[(uint32_t)(i * UINT32_C(2654435761)) >> 26];

		err = glake_free(ctx, *slot, NULL);
		*slot = NULL;
		if (!err)
			err = glake_alloc(ctx, 0, size_of(i), NULL, 0, slot);
	}
	step->ns = (double)(latency_now() - start) / (to - from);
	step->requests = to;
	step->calls = calls_until_now(ctx) - calls;
	step->stats.sz = sizeof(step->stats);
	look_at_process(step);
	return err ? err : glake_stats_get(ctx, 0, &step->stats);
}

/* What grows with every request doubles in the second half. */
static bool grew(uint64_t before, uint64_t after)
{
	return after > before + before / 2;
}

/* Mappings are not asked about: map.aliases bounds them, by the pages there are. */
static bool is_bounded(const struct bench_sizes *sizes)
{
	const struct bench_sizes_step *half = &sizes->step[BENCH_SIZES_STEPS / 2 - 1];
	const struct bench_sizes_step *end = &sizes->step[BENCH_SIZES_STEPS - 1];

	return !grew(half->stats.metadata, end->stats.metadata) &&
		!grew(half->stats.reserved, end->stats.reserved) &&
		!grew(half->process_bytes, end->process_bytes);
}

static int measure(const struct bench_options *options, void *measured)
{
	struct bench_sizes *sizes = measured;
	void *live[LIVE] = {NULL};
	struct glake *ctx;
	int err = glk_tool_open(&options->context, &ctx);

	if (err)
		return err;
	sizes->requests = options->requests;
	sizes->live = LIVE;
	for (unsigned i = 0; i < BENCH_SIZES_STEPS && !err; i++) {
		uint64_t n = options->requests;

		err = run_step(ctx, live, (unsigned)(n * i / BENCH_SIZES_STEPS),
			(unsigned)(n * (i + 1) / BENCH_SIZES_STEPS), &sizes->step[i]);
		progress_step(i + 1, BENCH_SIZES_STEPS);
	}
	for (int i = 0; i < LIVE; i++)
		glake_free(ctx, live[i], NULL);
	sizes->bounded = !err && is_bounded(sizes);
	return bench_close(&bench_sizes, ctx, err);
}

static bool finish(const struct bench_options *options, const void *measured)
{
	const struct bench_sizes *sizes = measured;

	(void)options;
	return sizes->bounded;
}

static void add(struct glk_json *json, const void *measured)
{
	const struct bench_sizes *sizes = measured;

	glk_json_key(json, "sizes");
	glk_json_object(json);
	glk_json_add_uint(json, "requests", sizes->requests);
	glk_json_add_uint(json, "most_live_blocks", sizes->live);
	glk_json_key(json, "steps");
	glk_json_array(json);
	for (int i = 0; i < BENCH_SIZES_STEPS; i++) {
		const struct bench_sizes_step *step = &sizes->step[i];
		const struct glake_stats *stats = &step->stats;

		glk_json_object(json);
		glk_json_add_uint(json, "requests", step->requests);
		glk_json_add_uint(json, "live_bytes", stats->live);
		glk_json_add_uint(json, "reserved_bytes", stats->reserved);
		glk_json_add_uint(json, "metadata_bytes", stats->metadata);
		glk_json_add_uint(json, "live_extents", stats->live_blocks);
		glk_json_add_uint(json, "free_extents", stats->free_extents);
		glk_json_add_uint(json, "quick_bytes", stats->quick);
		glk_json_add_uint(json, "mapped_bytes", stats->mapped);
		glk_json_add_uint(json, "process_mappings", step->process_mappings);
		glk_json_add_uint(json, "process_address_bytes", step->process_bytes);
		glk_json_add_uint(json, "hits", stats->hits);
		glk_json_add_uint(json, "driver_calls", step->calls);
		glk_json_add_figure(json, "request_ns", step->ns, 5);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_add_bool(json, "bounded", sizes->bounded);
	glk_json_end(json);
}

static void print(const void *measured)
{
	const struct bench_sizes *sizes = measured;

	printf("%u requests whose sizes never repeat, %u blocks live at most\n\n",
		sizes->requests, sizes->live);
	printf("  %9s %9s %9s %9s %8s %9s %9s %9s %9s %8s\n", "requests", "reserved",
		"metadata", "extents", "in bins", "mapped", "mappings", "addresses",
		"calls", "ns each");
	for (int i = 0; i < BENCH_SIZES_STEPS; i++) {
		const struct bench_sizes_step *step = &sizes->step[i];
		const struct glake_stats *stats = &step->stats;

		printf("  %9u %9s %9s %9llu %8s %9s %9llu %9s %9llu %8.0f\n",
			step->requests, figure_bytes(stats->reserved).text,
			figure_bytes(stats->metadata).text,
			(unsigned long long)(stats->live_blocks + stats->free_extents),
			figure_bytes(stats->quick).text, figure_bytes(stats->mapped).text,
			(unsigned long long)step->process_mappings,
			figure_bytes(step->process_bytes).text,
			(unsigned long long)step->calls, step->ns);
	}
	printf("\n  extents without those in bins; mappings and addresses are those of the "
	       "process\n");
	if (!sizes->bounded)
		printf("  FAILED: something grew by half in the second half\n");
	putchar('\n');
}

const struct bench_part bench_sizes = {.name = "sizes",
	.size = sizeof(struct bench_sizes),
	.measure = measure,
	.add = add,
	.print = print,
	.finish = finish};
