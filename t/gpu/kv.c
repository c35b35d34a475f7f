/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Elastic blocks and KV caches on a real GPU: kernels write what was committed and find it again while the rest comes
 * and goes; what a page, a step of many sequences and the next sequence of a slot cost the caller, beside the driver's
 * own time in the same calls.
 */
#include "kernels.h"

#include "seed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream;
static uint64_t chance;

static void put(const void *at, size_t bytes, uint32_t serial)
{
	struct gpu_jobs jobs = {.at[0] = gpu_job(at, bytes, 1, serial)};

	must_cuda(gpu_put(&work, &jobs, 1, 0, 0, stream), "a kernel");
}

static void check(const void *at, size_t bytes, uint32_t serial)
{
	struct gpu_jobs jobs = {.at[0] = gpu_job(at, bytes, 1, serial)};

	must_cuda(gpu_check(&work, &jobs, 1, 0, 0, stream), "a kernel");
}

static double driver_s(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	must(glake_driver_stats_get(ctx, &stats), "no figures of the driver");
	return (double)stats.now_ns / 1e9;
}

static uint64_t calls(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	must(glake_driver_stats_get(ctx, &stats), "no figures of the driver");
	return stats.calls[GLAKE_CALL_CREATE] + stats.calls[GLAKE_CALL_MAP] +
		stats.calls[GLAKE_CALL_SET_ACCESS] + stats.calls[GLAKE_CALL_UNMAP];
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Least, median, most. */
static void tell(const char *what, double *list, size_t count, double scale)
{
	qsort(list, count, sizeof(*list), by_value);
	tap_note("%s: %.2f %.2f %.2f", what, list[0] * scale, list[count / 2] * scale,
		list[count - 1] * scale);
}

/* ---- Contents ---- */

#define PAGES ((size_t)200)

static void keeps_contents(void)
{
	static uint32_t serial[PAGES]; /* 0: not committed */
	uint32_t next = 1;
	char *block;
	size_t bytes, kept = 0;
	int torn = 0;

	must(glake_alloc(
		     ctx, 0, PAGES * PAGE, stream, GLAKE_ALLOC_ELASTIC, (void **)&block),
		"an elastic block");
	for (int step = 0; step < 600; step++) {
		size_t first = seed_below(&chance, PAGES);
		size_t count =
			1 + seed_below(&chance, PAGES - first < 20 ? PAGES - first : 20);
		bool more = seed_below(&chance, 2);
		int err = more ? glake_commit(ctx, block, first * PAGE, count * PAGE,
					 stream, &bytes)
			       : glake_decommit(ctx, block, first * PAGE, count * PAGE,
					 stream, &bytes);

		torn += err != 0;
		for (size_t i = first; i < first + count; i++) {
			if (more && !serial[i])
				put(block + i * PAGE, PAGE, serial[i] = next++);
			else if (!more)
				serial[i] = 0;
		}
		if (step % 100 == 50) {
			torn += glake_suspend(ctx, 0, NULL) != 0;
			torn += glake_resume(ctx, 0, NULL) != 0;
		}
		if (step % 20)
			continue;
		for (size_t i = 0; i < PAGES; i++) {
			if (serial[i])
				check(block + i * PAGE, PAGE, serial[i]);
			kept += serial[i] != 0;
		}
		torn += gpu_counters_take(&work).wrong != 0;
	}
	ok(!torn,
		"600 changes of an elastic block, %zu pages looked at, no word is wrong",
		kept);
	must(glake_free(ctx, block, stream), "a free");
}

static void keeps_tokens(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 12,
		.tokens = 8192,
		.lanes = 6,
		.lane_bytes = 4096};
	static struct {
		bool live;
		uint32_t tokens, serial;
	} list[12];
	struct glake_kv *kv;
	uint32_t next = 10000, slot;
	int torn = 0, ended = 0;

	must(glake_kv_open(ctx, 0, &o, stream, &kv), "a KV cache");
	for (int step = 0; step < 800; step++) {
		uint32_t i = (uint32_t)seed_below(&chance, 12);

		if (!list[i].live) {
			must(glake_kv_new(kv, 8192, stream, &slot), "a sequence");
			list[slot].live = true;
			list[slot].tokens = 0;
			i = slot;
		} else if (seed_below(&chance, 10) == 0) {
			must(glake_kv_free(kv, i, stream), "its end");
			list[i].live = false;
			ended++;
			continue;
		}
		list[i].tokens += (uint32_t)seed_below(&chance, 700);
		if (list[i].tokens > 8192)
			list[i].tokens = 8192;
		must(glake_kv_grow(kv, i, list[i].tokens, stream), "more tokens");
		list[i].serial = next++;
		for (uint32_t lane = 0; lane < o.lanes; lane++) {
			struct glake_kv_place at = {.sz = sizeof(at)};

			must(glake_kv_place_get(kv, lane, &at), "a lane");
			if (list[i].tokens)
				put((char *)at.base + i * at.slot,
					list[i].tokens * at.token, list[i].serial);
		}
		for (slot = 0; slot < 12; slot++) {
			for (uint32_t lane = 0; lane < o.lanes && list[slot].live &&
				list[slot].tokens && step % 10 == 0;
				lane++) {
				struct glake_kv_place at = {.sz = sizeof(at)};

				must(glake_kv_place_get(kv, lane, &at), "a lane");
				check((char *)at.base + slot * at.slot,
					list[slot].tokens * at.token, list[slot].serial);
			}
		}
		torn += step % 10 == 0 && gpu_counters_take(&work).wrong;
	}
	ok(!torn, "800 steps of sequences, %d of which ended, no word is wrong", ended);
	must(glake_kv_close(kv, stream), "its end");
}

/* ---- Beginnings that are shared ---- */

#define KINDRED 16u
#define PARTS	64

/* Tokens that were written together. */
struct part {
	uint32_t first, end, serial;
};

struct kin {
	bool live;
	uint32_t tokens, parts;
	struct part part[PARTS];
};

/* Writes tokens of all lanes, or looks at them. */
static void run_part(struct glake_kv *kv, const struct glake_kv_options *o, uint32_t slot,
	const struct part *p, bool write)
{
	for (uint32_t lane = 0; lane < o->lanes; lane++) {
		struct glake_kv_place at = {.sz = sizeof(at)};
		char *begin;

		must(glake_kv_place_get(kv, lane, &at), "a lane");
		begin = (char *)at.base + slot * at.slot + p->first * at.token;
		if (write)
			put(begin, (p->end - p->first) * at.token, p->serial);
		else
			check(begin, (p->end - p->first) * at.token, p->serial);
	}
}

static bool is_whole(struct glake_kv *kv, const struct glake_kv_options *o, uint32_t slot,
	const struct kin *k)
{
	for (uint32_t i = 0; i < k->parts; i++)
		run_part(kv, o, slot, &k->part[i], false);
	return !gpu_counters_take(&work).wrong;
}

/* It has the first tokens of another one. */
static void begin_with(struct kin *k, const struct kin *from, uint32_t tokens)
{
	*k = *from;
	k->tokens = tokens;
	while (k->parts && k->part[k->parts - 1].first >= tokens)
		k->parts--;
	if (k->parts && k->part[k->parts - 1].end > tokens)
		k->part[k->parts - 1].end = tokens;
}

/* With large pages they grow by more than one at once. */
static void shares_tokens(uint32_t flags)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = KINDRED,
		.tokens = 8192,
		.lanes = 4,
		.lane_bytes = 4096,
		.prefixes = 1,
		.flags = flags};
	const uint64_t grows = flags & GLAKE_KV_LARGE ? 6000 : 900;
	static struct kin list[KINDRED], published;
	struct glake_kv_figures f = {.sz = sizeof(f)};
	uint32_t next = 50000, slot, forks = 0, adopts = 0, tokens, live = 0;
	struct glake_kv *kv;
	uint64_t most = 0;
	int torn = 0, err;

	memset(list, 0, sizeof(list));
	memset(&published, 0, sizeof(published));
	must(glake_kv_open(ctx, 0, &o, stream, &kv), "a KV cache");
	for (int step = 0; step < 600; step++) {
		uint32_t i = (uint32_t)seed_below(&chance, KINDRED), want;
		struct kin *k = &list[i];

		if (!k->live) {
			if (glake_kv_new(kv, 8192, stream, &slot))
				continue;
			list[slot] = (struct kin){.live = true};
			live++;
			if (published.live && seed_below(&chance, 2)) {
				must(glake_kv_adopt(kv, slot, "p", 1, stream, &tokens),
					"a prefix");
				begin_with(&list[slot], &published, tokens);
				adopts++;
			}
			continue;
		}
		switch (seed_below(&chance, 8)) {
		case 0:
			must(glake_kv_free(kv, i, stream), "its end");
			k->live = false;
			live--;
			break;
		case 1:
			if (!k->tokens)
				break;
			want = 1 + (uint32_t)seed_below(&chance, k->tokens);
			if (published.live)
				must(glake_kv_withdraw(kv, 0, "p", 1, stream),
					"a prefix");
			must(glake_kv_publish(kv, i, want, "p", 1, stream), "a prefix");
			begin_with(&published, k, want);
			break;
		case 2:
		case 3:
			if (!k->tokens || live == KINDRED)
				break;
			want = 1 + (uint32_t)seed_below(&chance, k->tokens);
			must(glake_kv_fork(kv, i, want, 8192, stream, &slot), "a fork");
			begin_with(&list[slot], k, want);
			live++;
			forks++;
			break;
		default:
			want = k->tokens + 1 + (uint32_t)seed_below(&chance, grows);
			if (want > 8192 || k->parts == PARTS)
				break;
			must(glake_kv_grow(kv, i, want, stream), "more tokens");
			k->part[k->parts] = (struct part){k->tokens, want, next++};
			run_part(kv, &o, i, &k->part[k->parts++], true);
			k->tokens = want;
		}
		if (step % 100 == 50) {
			err = step % 200 == 50 ? glake_suspend(ctx, 0, NULL)
					       : glake_suspend_in_place(ctx, 0, NULL);
			torn += err != 0;
			torn += glake_resume(ctx, 0, NULL) != 0;
		}
		must(glake_kv_figures_get(kv, &f), "figures");
		most = f.shared > most ? f.shared : most;
		for (slot = 0; slot < KINDRED && step % 10 == 0; slot++)
			torn += list[slot].live && !is_whole(kv, &o, slot, &list[slot]);
	}
	ok(!torn,
		"600 steps of sequences%s, %u forks, %u adopted, up to %zu MiB shared, with "
		"suspensions: no word is wrong",
		flags & GLAKE_KV_LARGE ? " with large pages" : "", forks, adopts,
		(size_t)(most >> 20));
	must(glake_kv_close(kv, stream), "its end");
	must(glake_trim(ctx, 0, 0, NULL), "a trim");
}

/* Tokens of a lane as another process would have them, and lanes that are a page each. */
static void gives_tokens(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 4,
		.tokens = 8192,
		.lanes = 4,
		.lane_bytes = 2048};
	struct glake_kv_place place = {.sz = sizeof(place)};
	struct glake_piece pieces[16];
	size_t count = 0, bytes = 0, offset = 0;
	void *here = NULL;
	struct glake_kv *kv;
	uint32_t slot;
	int fd = -1, err;

	for (int single = 0; single < 2; single++) {
		o.flags = single ? GLAKE_KV_SINGLE : 0;
		must(glake_kv_open(ctx, 0, &o, stream, &kv), "a KV cache");
		must(glake_kv_new(kv, 8192, stream, &slot), "a sequence");
		must(glake_kv_grow(kv, slot, 4096, stream), "tokens");
		must(glake_kv_place_get(kv, 3, &place), "its place");
		put((char *)place.base + slot * place.slot, 4096 * 2048, 77);
		must_cuda(work.sync(), "a kernel");
		must(glake_kv_export(kv, slot, 3, 0, 4096, 1, pieces, 16, &count),
			"an export");
		bytes = 0;
		for (size_t i = 0; i < count; i++)
			bytes += pieces[i].length;
		must(glake_import(ctx, 0, pieces, count, bytes, &here), "an import");
		check(here, 4096 * 2048, 77);
		ok(!gpu_counters_take(&work).wrong && bytes == 4096 * 2048,
			"tokens of a lane in %zu pages, read where they are imported",
			count);
		for (size_t i = 0; i < count; i++)
			close(pieces[i].fd);
		must(glake_import_end(ctx, here, stream), "its end");
		must(glake_kv_export_end(kv, slot, 3), "and back");
		err = single ? glake_dmabuf(ctx, place.base, 4 * place.slot, &fd, &offset)
			     : -EOPNOTSUPP;
		if (single)
			ok(err == 0 || err == -EOPNOTSUPP,
				"a dma-buf of a lane that is one page: %d", err);
		if (!err) {
			close(fd);
			must(glake_export_end(ctx, place.base), "it is done");
		}
		must(glake_kv_close(kv, stream), "all ends");
	}
}

/* A kernel that writes what is shared, in a process of its own: what the driver says of it. */
static int writes_sealed(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA};
	const struct glake_sharing s = {0, 4 * PAGE, PAGE};
	char *block;
	int err;

	gpu_work_init(&work);
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	must(glake_alloc(ctx, 0, 8 * PAGE, stream, GLAKE_ALLOC_ELASTIC, (void **)&block),
		"an elastic block");
	must(glake_commit(ctx, block, 0, PAGE, stream, NULL), "a page");
	put(block, PAGE, 1);
	must(glake_commit_shared(ctx, block, &s, 1, stream), "shared");
	check(block + 4 * PAGE, PAGE, 1);
	must_cuda(work.sync(), "it is read");
	put(block + 4 * PAGE, PAGE, 2);
	err = work.sync();
	printf("%d\n", err);
	fflush(stdout);
	_exit(err == 700 ? 0 : 1);
}

static void is_sealed(const char *self)
{
	char command[4096];

	snprintf(command, sizeof(command), "'%s' writes-sealed 2>&1", self);
	fflush(stdout);
	is_int(system(command), 0,
		"a kernel that writes what is shared ends in an illegal access");
}

/* ---- Costs ---- */

#define ROUNDS_OF 200

static void page_costs(void)
{
	static double own[ROUNDS_OF], all[ROUNDS_OF], go[ROUNDS_OF], again[ROUNDS_OF];
	char *block;

	must(glake_alloc(
		     ctx, 0, 8192 * MIB, stream, GLAKE_ALLOC_ELASTIC, (void **)&block),
		"an elastic block");
	for (size_t i = 0; i < ROUNDS_OF; i++) {
		double driver = driver_s(), begin = now_s();

		must(glake_commit(ctx, block, i * PAGE, PAGE, stream, NULL), "a page");
		all[i] = now_s() - begin;
		own[i] = all[i] - (driver_s() - driver);
	}
	tell("a new page, us (least, median, most)", all, ROUNDS_OF, 1e6);
	tell("  of these beside the driver", own, ROUNDS_OF, 1e6);
	ok(own[ROUNDS_OF / 2] <= 3e-6 * 2, "  which is 3 us, or twice that at the most");
	for (size_t i = 0; i < ROUNDS_OF; i++) {
		double begin = now_s();

		must(glake_decommit(ctx, block, i * PAGE, PAGE, stream, NULL), "a page");
		go[i] = now_s() - begin;
		begin = now_s();
		must(glake_commit(ctx, block, i * PAGE, PAGE, stream, NULL), "a page");
		again[i] = now_s() - begin;
	}
	tell("a page decommitted, us", go, ROUNDS_OF, 1e6);
	tell("  and committed again where it was", again, ROUNDS_OF, 1e6);
	must(glake_free(ctx, block, stream), "a free");
}

#define SEQUENCES 256u
#define LANES	  64u
#define STEPS	  60

/* By calls of the driver, for so many pages. */
static void tell_calls(const struct glake_driver_stats *since, uint64_t pages)
{
	struct glake_driver_stats now = {.sz = sizeof(now)};

	must(glake_driver_stats_get(ctx, &now), "no figures of the driver");
	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		double us = (double)(now.ns[i] - since->ns[i]) / 1e3;

		if (us > 100)
			tap_note("    %s: %.2f us a page", glake_call_name(i),
				us / (double)pages);
	}
}

/* A 7B shape: 32 layers of keys and values, 8 heads of 128 halves. With a thread that has pages ready, and the time of a
 * decode step between two. */
static void step_costs(uint32_t ahead)
{
	struct glake_driver_stats since = {.sz = sizeof(since)};
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = SEQUENCES,
		.tokens = 8192,
		.lanes = LANES,
		.lane_bytes = 2048,
		.ahead = ahead};
	static double own[STEPS], all[STEPS], met[STEPS];
	uint32_t lengths[SEQUENCES], slot;
	struct glake_kv_figures f = {.sz = sizeof(f)};
	uint64_t pages, before;
	struct glake_kv *kv;
	double begin, driver;

	must(glake_kv_open(ctx, 0, &o, stream, &kv), "a KV cache");
	for (uint32_t i = 0; i < SEQUENCES; i++) {
		must(glake_kv_new(kv, 8192, stream, &slot), "a sequence");
		lengths[slot] = 4 * i + 1;
	}
	must(glake_kv_step(kv, lengths, stream), "their prompts");
	must(glake_kv_figures_get(kv, &f), "figures");
	before = f.pages;
	must(glake_driver_stats_get(ctx, &since), "no figures of the driver");
	if (ahead)
		usleep(2000000);
	for (int n = 0; n < STEPS; n++) {
		if (ahead)
			usleep(40000);
		for (uint32_t i = 0; i < SEQUENCES; i++)
			lengths[i] += 20;
		driver = driver_s();
		begin = now_s();
		must(glake_kv_step(kv, lengths, stream), "a step");
		all[n] = now_s() - begin;
		own[n] = all[n] - (driver_s() - driver);
		begin = now_s();
		must(glake_kv_step(kv, lengths, stream), "a step without need");
		met[n] = now_s() - begin;
	}
	must(glake_kv_figures_get(kv, &f), "figures");
	pages = (f.pages - before) / STEPS;
	tap_note(
		"256 sequences of 64 lanes, %zu pages a step, %u tokens ahead: %zu of %zu pages were had by "
		"the thread",
		(size_t)pages, ahead, (size_t)f.pages_ahead, (size_t)(f.pages - before));
	if (!ahead)
		tell_calls(&since, f.pages - before);
	tell("  a step, us", all, STEPS, 1e6);
	tell("  of it beside the driver", own, STEPS, 1e6);
	tell("  a step that needs none", met, STEPS, 1e6);
	begin = now_s();
	for (uint32_t n = 0; n < 1000000; n++)
		glake_kv_grow(kv, n % SEQUENCES, lengths[n % SEQUENCES], stream);
	tap_note("  a sequence that needs none: %.3f us", (now_s() - begin));
	for (int round = 0; round < 3; round++) {
		uint64_t was = calls();
		double t[3];

		t[0] = now_s();
		must(glake_kv_free(kv, 7, stream), "the end of a sequence");
		t[1] = now_s();
		must(glake_kv_new(kv, 8192, stream, &slot), "the next one");
		must(glake_kv_grow(kv, slot, lengths[7], stream), "as long");
		t[2] = now_s();
		tap_note(
			"  one of %u tokens ends: %.1f us; the next one as long: %.1f us, %zu "
			"calls of the driver",
			lengths[7], 1e6 * (t[1] - t[0]), 1e6 * (t[2] - t[1]),
			(size_t)(calls() - was));
	}
	begin = now_s();
	must(glake_kv_close(kv, stream), "its end");
	tap_note("  all end in %.2f ms", 1e3 * (now_s() - begin));
	must(glake_trim(ctx, 0, 0, NULL), "a trim");
}

static void memory_costs(bool front)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 64,
		.tokens = 4096,
		.lanes = LANES,
		.lane_bytes = 2048,
		.flags = front ? GLAKE_KV_TOKEN_FRONT : 0};
	struct glake_kv_figures f = {.sz = sizeof(f)};
	uint32_t lengths[64], slot;
	uint64_t most = 0, page = front ? 64 * PAGE : 64 * LANES * PAGE;
	struct glake_kv *kv;

	must(glake_kv_open(ctx, 0, &o, stream, &kv), "a KV cache");
	for (uint32_t i = 0; i < 64; i++)
		must(glake_kv_new(kv, 4096, stream, &slot), "a sequence");
	for (uint32_t n = 32; n <= 4096; n += 8) {
		for (uint32_t i = 0; i < 64; i++)
			lengths[i] = n;
		must(glake_kv_step(kv, lengths, stream), "a step");
		must(glake_kv_figures_get(kv, &f), "figures");
		most = f.held - f.needed > most ? f.held - f.needed : most;
	}
	tap_note(
		"%s in front: 64 sequences of 4096 tokens need %.2f GiB and have %.2f, at most "
		"%.1f MiB more than they needed",
		front ? "the token" : "the layer", (double)f.needed / 1073741824.0,
		(double)f.held / 1073741824.0, (double)most / 1048576.0);
	ok(most <= page, "  which is a page a %s", front ? "sequence" : "lane");
	must(glake_kv_close(kv, stream), "its end");
	must(glake_trim(ctx, 0, 0, NULL), "a trim");
}

/* 32 k tokens of a 7B shape are forked; and 64 sequences have a prefix of 8 k tokens. */
static void fork_costs(const char *order, uint32_t flags)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 66,
		.tokens = 32768 + 1024,
		.lanes = LANES,
		.lane_bytes = 2048,
		.prefixes = 2,
		.flags = flags};
	struct glake_kv_figures f = {.sz = sizeof(f)};
	double all[5], own[5], begin, driver;
	uint32_t slot, other, tokens;
	uint64_t before, copies;
	struct glake_kv *kv;

	must(glake_kv_open(ctx, 0, &o, stream, &kv), "a KV cache");
	must(glake_kv_new(kv, o.tokens, stream, &slot), "a sequence");
	must(glake_kv_grow(kv, slot, 32768 + 100, stream), "of 32 k tokens");
	must_cuda(work.sync(), "the GPU has gone");
	for (int i = 0; i < 5; i++) {
		/* other slots, so that nothing lies there */
		driver = driver_s();
		begin = now_s();
		must(glake_kv_fork(kv, slot, 32768 + 100, o.tokens, stream, &other),
			"a fork");
		all[i] = now_s() - begin;
		own[i] = driver_s() - driver;
		all[i] /= own[i];
		own[i] *= 1e3;
	}
	must(glake_kv_figures_get(kv, &f), "figures");
	tap_note("%s: a fork of 32 k tokens: %zu MiB shared, %zu held", order,
		(size_t)(f.shared / 5 >> 20), (size_t)(f.held >> 20));
	tell("  the driver's own time, ms", own, 5, 1);
	tell("  all of it over that", all, 5, 1);
	ok(all[2] <= 1.1, "  which is 1.1 at the most");
	begin = now_s();
	must(glake_kv_free(kv, other, stream), "its end");
	tap_note("  its end: %.0f us", 1e6 * (now_s() - begin));
	driver = driver_s();
	begin = now_s();
	must(glake_kv_fork(kv, slot, 32768 + 100, o.tokens, stream, &other), "a fork");
	tap_note("  again in the same slot: %.2f ms, the driver's %.2f",
		1e3 * (now_s() - begin), 1e3 * (driver_s() - driver));
	for (uint32_t i = 0; i < o.slots; i++)
		if (i != slot)
			glake_kv_free(kv, i, stream);
	must(glake_kv_publish(kv, slot, 8192, "8k", 2, stream), "a prefix");
	must(glake_kv_free(kv, slot, stream), "its sequence");
	must(glake_kv_figures_get(kv, &f), "figures");
	before = f.held;
	begin = now_s();
	for (int i = 0; i < 64; i++) {
		must(glake_kv_new(kv, o.tokens, stream, &slot), "a sequence");
		must(glake_kv_adopt(kv, slot, "8k", 2, stream, &tokens), "the prefix");
	}
	tap_note("  64 sequences adopt 8 k tokens in %.1f ms", 1e3 * (now_s() - begin));
	must(glake_kv_figures_get(kv, &f), "figures");
	copies = 64 * UINT64_C(8192) * LANES * 2048;
	tap_note("  of %zu MiB of copies %.2f %% are saved", (size_t)(copies >> 20),
		100.0 * (double)(copies - (f.held - before)) / (double)copies);
	ok(f.held - before <= copies / 50, "  98 at the least");
	must(glake_kv_close(kv, stream), "its end");
	must(glake_trim(ctx, 0, 0, NULL), "a trim");
}

/* ---- Layers of a prompt that leave as they are done ---- */

#define DEPTH	 32u
#define PROMPT	 32768u
#define LAYER_MS 14

/* What a layer writes at the end of its kernels, which take so many turns of one. */
static void run_layer(struct glake_kv *kv, uint32_t slot, uint32_t layer, int turns)
{
	for (uint32_t lane = 2 * layer; lane < 2 * layer + 2; lane++) {
		struct glake_kv_place at = {.sz = sizeof(at)};

		must(glake_kv_place_get(kv, lane, &at), "a lane");
		for (int i = 0; i < turns; i++)
			put((char *)at.base + slot * at.slot, PROMPT * at.token,
				5000 + lane);
	}
}

static void check_layer(struct glake_kv *kv, uint32_t slot, uint32_t layer)
{
	for (uint32_t lane = 2 * layer; lane < 2 * layer + 2; lane++) {
		struct glake_kv_place at = {.sz = sizeof(at)};

		must(glake_kv_place_get(kv, lane, &at), "a lane");
		check((char *)at.base + slot * at.slot, PROMPT * at.token, 5000 + lane);
	}
}

/* Seconds of a prompt whose layers all leave; *ret_call those of them until all was queued. */
static double prompt_away(struct glake_kv *kv, uint32_t slot, int turns, double *ret_call)
{
	double begin = now_s();

	for (uint32_t i = 0; i < DEPTH; i++) {
		must(glake_kv_layer_grow(kv, slot, 2 * i, 2, PROMPT, stream), "a layer");
		run_layer(kv, slot, i, turns);
		must(glake_kv_layer_done(kv, slot, 2 * i, 2, stream), "it is done");
	}
	*ret_call = now_s() - begin;
	must_cuda(work.sync(), "the GPU has gone");
	return now_s() - begin;
}

/*
 * A prompt of 32 k tokens of a 7B shape without grouped heads, 16 GiB, whose kernels take some 14 ms a layer: with all of
 * its memory, and with that of a few layers.
 */
static void leaves_by_layers(uint32_t flags)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 1,
		.tokens = PROMPT,
		.lanes = 2 * DEPTH,
		.flags = flags,
		.lane_bytes = 8192};
	const char *pages = flags ? "large pages" : "pages of 2 MiB";
	struct glake_stats stats = {.sz = sizeof(stats)};
	double begin, turn, whole, away[4], call[4], back, wait[2] = {0}, most = 0;
	size_t bytes = (size_t)PROMPT * o.lanes * o.lane_bytes, held = 0;
	struct glake_kv *kv;
	uint32_t slot;
	int turns;

	must(glake_trim(ctx, 0, 0, NULL), "a trim");
	must(glake_kv_open(ctx, 0, &o, stream, &kv), "a KV cache");
	must(glake_kv_new(kv, PROMPT, stream, &slot), "a sequence");
	must(glake_kv_grow(kv, slot, PROMPT, stream), "all of its memory");
	run_layer(kv, slot, 0, 10);
	must_cuda(work.sync(), "the GPU has gone");
	begin = now_s();
	run_layer(kv, slot, 0, 20);
	must_cuda(work.sync(), "the GPU has gone");
	turn = (now_s() - begin) / 20;
	turns = (int)(LAYER_MS * 1e-3 / turn) + 1;
	begin = now_s();
	for (uint32_t i = 0; i < DEPTH; i++)
		run_layer(kv, slot, i, turns);
	must_cuda(work.sync(), "the GPU has gone");
	whole = now_s() - begin;
	must(glake_kv_free(kv, slot, stream), "its end");
	must(glake_trim(ctx, 0, 0, NULL), "a trim");
	must(glake_budget_set(ctx, 0, bytes / 8), "a budget");
	for (int i = 0; i < 4; i++) {
		must(glake_kv_new(kv, PROMPT, stream, &slot), "a sequence");
		away[i] = prompt_away(kv, slot, turns, &call[i]);
		must(glake_stats_get(ctx, 0, &stats), "figures");
		held = stats.reserved > held ? stats.reserved : held;
		if (i < 3)
			must(glake_kv_free(kv, slot, stream), "its end");
	}
	must(glake_budget_set(ctx, 0, SIZE_MAX), "no budget");
	/* the first time with new pages, then with those that lie there */
	for (int round = 0; round < 2; round++) {
		begin = now_s();
		for (uint32_t i = 0; i < DEPTH; i++) {
			double since = now_s();

			must(glake_kv_layer_wait(kv, slot, 2 * i, 2, stream), "it comes");
			since = now_s() - since;
			most = since > most ? since : most;
			wait[round] += since;
			check_layer(kv, slot, i);
		}
		must_cuda(work.sync(), "the GPU has gone");
		back = now_s() - begin;
		tap_note(
			"32 layers of 512 MiB, %s, come back in %.1f ms, of which the caller is held "
			"up for %.1f, at most %.2f for one",
			pages, 1e3 * back, 1e3 * wait[round], 1e3 * most);
		most = 0;
		if (!round)
			must(glake_kv_layer_done(kv, slot, 0, 2 * DEPTH, stream),
				"all leave");
		must_cuda(work.sync(), "the GPU has gone");
	}
	must(glake_kv_grow(kv, slot, PROMPT, stream), "it has the tokens");
	is_int((int64_t)gpu_counters_take(&work).wrong, 0,
		"32 layers went and came back, no word is wrong");
	tap_note(
		"a prompt of 16 GiB, %s: %.1f ms with all of it; %.1f the first time with layers that leave, then "
		"%.1f %.1f %.1f (calls %.1f %.1f %.1f); back and checked in %.1f; %zu MiB of %zu held",
		pages, 1e3 * whole, 1e3 * away[0], 1e3 * away[1], 1e3 * away[2],
		1e3 * away[3], 1e3 * call[1], 1e3 * call[2], 1e3 * call[3], 1e3 * back,
		held >> 20, bytes >> 20);
	qsort(away + 1, 3, sizeof(*away), by_value);
	ok(held <= bytes / 5, "80 %% fewer bytes are held at the least");
	ok(away[2] <= 1.05 * whole, "in 1.05 of the time at the most: %.3f",
		away[2] / whole);
	must(glake_kv_close(kv, stream), "its end");
	must(glake_trim(ctx, 0, 0, NULL), "a trim");
}

/* ---- Parts ---- */

static void contents(const char *self)
{
	keeps_contents();
	keeps_tokens();
	shares_tokens(0);
	shares_tokens(GLAKE_KV_LARGE);
	gives_tokens();
	is_sealed(self);
}

static void forks(const char *self)
{
	(void)self;
	fork_costs("the token in front", GLAKE_KV_TOKEN_FRONT);
	fork_costs("the layer in front", 0);
	fork_costs("the layer in front, large pages", GLAKE_KV_LARGE);
}

static void steps(const char *self)
{
	(void)self;
	page_costs();
	step_costs(0);
	step_costs(64);
	memory_costs(true);
	memory_costs(false);
}

static void layers(const char *self)
{
	(void)self;
	leaves_by_layers(0);
	leaves_by_layers(GLAKE_KV_LARGE);
}

static const struct {
	const char *name;
	void (*fn)(const char *self);
} parts[] = {
	{"contents", contents}, {"forks", forks}, {"steps", steps}, {"layers", layers}};

/* With the name of a part that alone, else all of them. */
int main(int argc, char **argv)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA};
	struct glk_drv *drv = gpu_open();
	size_t leaked = 0;

	must(drv->ops->close(drv), "close");
	if (argc > 1 && !strcmp(argv[1], "writes-sealed"))
		return writes_sealed();
	gpu_work_init(&work);
	tap_plan_later();
	chance = seed_start();
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (argc < 2 || !strcmp(argv[1], parts[i].name))
			parts[i].fn(argv[0]);
	}
	must(glake_stream_free(ctx, 0, stream), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	is_int((int64_t)leaked, 0, "nothing is left");
	return tap_done();
}
