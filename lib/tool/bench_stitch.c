/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What stitching costs and whether it is right. A comb of blocks is allocated, one large page
 * each, and every second one is freed: half of the memory is free, and no two free pages are
 * neighbours. The budget is closed, so that a large block can only be had from those pages.
 * The first time they must be mapped to its addresses; afterwards, comb and block taking
 * turns, both find their pages mapped already.
 *
 * On the software device the contents are checked: a mark in each page says who wrote it, the
 * large block must show the marks of the blocks that were freed, and the marks of those still
 * in use must be what they were.
 */
#include "tool/bench.h"

#include "base/json.h"
#include "tool/latency.h"

#include <errno.h>
#include <string.h>

#define TEETH	64 /* blocks of the comb */
#define PAGES	(TEETH / 2)
#define DEFAULT 20 /* rounds */

/* One large block on pages that lay elsewhere. */
struct bench_stitched {
	uint64_t calls[GLAKE_CALL_COUNT];
	double driver_ms;
	double wall_ms;
};

struct bench_stitch {
	const char *backend;
	size_t block; /* bytes of the large block */
	size_t pages; /* it is made of */
	struct bench_stitched first;
	struct bench_stitched again; /* mean of the other rounds */
	uint64_t stitches;
	bool checked;  /* the contents were */
	size_t kept;   /* pages whose contents came through the new mapping */
	size_t broken; /* places in other blocks that changed */
	bool ok;
};

struct comb {
	struct glake *ctx;
	size_t page;
	void *teeth[TEETH];
	unsigned rounds;
	struct bench_stitch *result;
};

static int allocate(struct comb *comb, size_t size, void **ret_ptr)
{
	return glake_alloc(comb->ctx, 0, size, NULL, 0, ret_ptr);
}

static int release(struct comb *comb, void **ptr)
{
	int err = glake_free(comb->ctx, *ptr, NULL);

	if (!err)
		*ptr = NULL;
	return err;
}

/* A mark is in the first and the last 8 bytes of each page. */
static void mark(struct comb *comb, void *page, uint64_t value)
{
	char *last = (char *)page + comb->page - sizeof(value);

	memcpy(page, &value, sizeof(value));
	memcpy(last, &value, sizeof(value));
}

static bool has_mark(const struct comb *comb, const void *page, uint64_t value)
{
	const char *last = (const char *)page + comb->page - sizeof(value);

	return !memcmp(page, &value, sizeof(value)) &&
		!memcmp(last, &value, sizeof(value));
}

static uint64_t mark_of(unsigned round, int tooth)
{
	return UINT64_C(0x676c616b65) << 24 | (uint64_t)round << 8 | (uint64_t)tooth;
}

/* The size of a large page: what a large block is made of that has no room for a huge one. */
static int find_page_size(struct comb *comb)
{
	struct glake_block block = {.sz = sizeof(block)};
	void *ptr = NULL;
	int err = allocate(comb, (size_t)48 << 20, &ptr);

	if (err)
		return err;
	err = glake_query(comb->ctx, ptr, &block);
	comb->page = block.page_size;
	release(comb, &ptr);
	return err ? err : glake_trim(comb->ctx, 0, 0, &block.size);
}

/* Fills the gaps of the comb, all of it the first time, and marks what is new. */
static int fill(struct comb *comb, unsigned round)
{
	int err = 0;

	for (int i = 0; i < TEETH && !err; i++) {
		if (comb->teeth[i])
			continue;
		err = allocate(comb, comb->page, &comb->teeth[i]);
		if (!err && comb->result->checked)
			mark(comb, comb->teeth[i], mark_of(i % 2 ? 0 : round, i));
	}
	return err;
}

/* Frees every second tooth. */
static int open_gaps(struct comb *comb)
{
	int err = 0;

	for (int i = 0; i < TEETH && !err; i += 2)
		err = release(comb, &comb->teeth[i]);
	return err;
}

static void check(struct comb *comb, void *block, unsigned round)
{
	struct bench_stitch *result = comb->result;

	if (!result->checked)
		return;
	for (size_t at = 0; at + comb->page <= result->block; at += comb->page) {
		char *page = (char *)block + at;

		for (int i = 0; i < TEETH; i += 2)
			result->kept += has_mark(comb, page, mark_of(round, i));
		mark(comb, page, mark_of(round, TEETH));
	}
	for (int i = 1; i < TEETH; i += 2)
		result->broken += !has_mark(comb, comb->teeth[i], mark_of(0, i));
}

/* One large block, timed. */
static int stitch(struct comb *comb, unsigned round, struct bench_stitched *stitched)
{
	struct glake_driver_stats before = {.sz = sizeof(before)}, after = before;
	void *block = NULL;
	int64_t start;
	int err = glake_driver_stats_get(comb->ctx, &before);

	if (err)
		return err;
	start = latency_now();
	err = allocate(comb, comb->result->block, &block);
	stitched->wall_ms += (double)(latency_now() - start) / 1e6;
	if (err)
		return err;
	err = glake_driver_stats_get(comb->ctx, &after);
	stitched->driver_ms += (double)(after.now_ns - before.now_ns) / 1e6;
	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		stitched->calls[i] += after.calls[i] - before.calls[i];
	check(comb, block, round);
	release(comb, &block);
	return err;
}

/* No page more than there are now. */
static int close_budget(struct comb *comb)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	int err = glake_stats_get(comb->ctx, 0, &stats);

	return err ? err : glake_budget_set(comb->ctx, 0, stats.reserved);
}

static int run_rounds(struct comb *comb)
{
	unsigned rounds = comb->rounds;
	struct bench_stitch *result = comb->result;
	struct bench_stitched *again = &result->again;
	struct glake_stats stats = {.sz = sizeof(stats)};
	int err = 0;

	for (unsigned round = 1; round <= rounds && !err; round++) {
		err = fill(comb, round);
		if (!err && round == 1)
			err = close_budget(comb);
		if (!err)
			err = open_gaps(comb);
		if (!err)
			err = stitch(comb, round, round == 1 ? &result->first : again);
		progress_step(round, rounds);
	}
	if (!err)
		err = glake_stats_get(comb->ctx, 0, &stats);
	result->stitches = stats.stitches;
	if (rounds > 1) {
		again->driver_ms /= rounds - 1;
		again->wall_ms /= rounds - 1;
		for (int i = 0; i < GLAKE_CALL_COUNT; i++)
			again->calls[i] =
				(again->calls[i] + (rounds - 1) / 2) / (rounds - 1);
	}
	return err;
}

static int run(struct comb *comb)
{
	struct bench_stitch *result = comb->result;
	int err = find_page_size(comb);

	if (err)
		return err;
	result->backend = glk_tool_backend_name(comb->ctx);
	result->checked = glake_backend(comb->ctx) == GLAKE_BACKEND_SOFT;
	result->pages = PAGES;
	result->block = PAGES * comb->page;
	err = run_rounds(comb);
	for (int i = 0; i < TEETH; i++)
		glake_free(comb->ctx, comb->teeth[i], NULL);
	return err;
}

static int measure(const struct bench_options *options, void *measured)
{
	struct bench_stitch *result = measured;
	struct comb comb = {
		.result = result, .rounds = options->rounds ? options->rounds : DEFAULT};
	int err = glk_tool_open(&options->context, &comb.ctx);

	if (err)
		return err;
	err = bench_close(&bench_stitch, comb.ctx, run(&comb));
	result->ok = !err && result->stitches && !result->broken &&
		(!result->checked || result->kept == (size_t)PAGES * comb.rounds);
	return err;
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

static void add(struct glk_json *json, const void *measured)
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

static bool finish(const struct bench_options *options, const void *measured)
{
	const struct bench_stitch *result = measured;

	(void)options;
	return result->ok;
}

const struct bench_part bench_stitch = {.name = "stitch",
	.size = sizeof(struct bench_stitch),
	.measure = measure,
	.add = add,
	.finish = finish};
