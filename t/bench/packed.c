/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is held beside blocks of random sizes that come and go on streams by turns, and what a trim leaves
 * of it. Each block that is freed is any of those that are live; a naive best fit, with one free list at 512
 * bytes for all streams, is given the same history, and the whole slots that its blocks touch.
 *
 *	packed [REQUESTS [SETTING...]]	3000000 and none; `packed 300000 policy.target=1.005`
 *
 *	held	pages held over the most that was live until then: after a 30th of the requests and after all,
 *		and the most ever
 *	naive	the same of the naive best fit, the most ever
 *	x1.15	requests refused with a budget of 1.15 of the most that is live
 *	trim	pages held after a trim with all blocks live, over the naive best fit's; with the older half
 *		of them left over, or the newer, the smaller, the larger, over what is live; bytes after all are freed
 *	hits, called, ns	of a request and the free before it: hits in hundredths, requests that called the
 *		driver, time of the processor
 */
#include <glake/glake.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KIB	((size_t)1 << 10)
#define MIB	((size_t)1 << 20)
#define GRAIN	512
#define SLOT	(2 * MIB)
#define BLOCKS	16384
#define STREAMS 1000
#define SLOTS	4096

struct phase {
	size_t least, most; /* bytes of a block */
	int live;
};

struct history {
	const char *name;
	struct phase phase
		[2]; /* the second begins after half of the requests, if there is one */
	int streams;
	bool random; /* on any stream, not the next one */
	bool at_once; /* what the first phase left is freed before the second one, not beside it */
};

static const struct history histories[] = {
	{"10 to 250 KiB, 1 stream", {{10 * KIB, 250 * KIB, 1600}}, 1, false, false},
	{"10 to 250 KiB, 16 by turns", {{10 * KIB, 250 * KIB, 1600}}, 16, false, false},
	{"10 to 250 KiB, 16 at random", {{10 * KIB, 250 * KIB, 1600}}, 16, true, false},
	{"10 to 250 KiB, 256 by turns", {{10 * KIB, 250 * KIB, 1600}}, 256, false, false},
	{"10 to 250 KiB, 256 at random", {{10 * KIB, 250 * KIB, 1600}}, 256, true, false},
	{"10 to 250 KiB, 1000 by turns", {{10 * KIB, 250 * KIB, 1600}}, 1000, false,
		false},
	{"10 to 250 KiB, 1000 at random", {{10 * KIB, 250 * KIB, 1600}}, 1000, true,
		false},
	{"10 to 600 KiB, 1 stream", {{10 * KIB, 600 * KIB, 800}}, 1, false, false},
	{"10 to 600 KiB, 64 at random", {{10 * KIB, 600 * KIB, 800}}, 64, true, false},
	{"10 to 600 KiB, 1000 by turns", {{10 * KIB, 600 * KIB, 800}}, 1000, false,
		false},
	{"10 to 600 KiB, 1000 at random", {{10 * KIB, 600 * KIB, 800}}, 1000, true,
		false},
	{"512 B to 32 KiB, then to 900 KiB",
		{{512, 32 * KIB, BLOCKS}, {260 * KIB, 900 * KIB, 800}}, 1, false, false},
	{"the same, freed at once",
		{{512, 32 * KIB, BLOCKS}, {260 * KIB, 900 * KIB, 800}}, 1, false, true},
};

/* Which blocks are freed before the second trim. */
enum half { OLDER, NEWER, SMALLER, LARGER, HALVES };

struct block {
	void *ptr;
	struct CUstream_st *stream;
	uint64_t offset, size; /* in the naive best fit */
	uint64_t asked, born;
	bool is_live;
};

/* A program under way. */
struct job {
	const struct history *history;
	struct glake *ctx;
	struct CUstream_st *stream[STREAMS];
	struct block block[BLOCKS];
	uint64_t requests, done, turn, random;
	uint64_t live, peak, refused;
	double early;
	/* the naive best fit: its holes, in no order */
	struct {
		uint64_t offset, size;
	} hole[BLOCKS + 1];
	int holes;
	uint64_t high, highest;
};

static struct job job;

static void must(int err, const char *what)
{
	struct glake_error error = {.sz = sizeof(error)};

	if (!err)
		return;
	glake_last_error(&error);
	fprintf(stderr, "packed: %s: %s\n", what, error.text);
	exit(1);
}

/* From 0 to below `n`: xorshift64*. */
static uint64_t below(uint64_t n)
{
	job.random ^= job.random >> 12;
	job.random ^= job.random << 25;
	job.random ^= job.random >> 27;
	return (job.random * UINT64_C(0x2545f4914f6cdd1d) >> 11) % n;
}

static void naive_alloc(struct block *b)
{
	uint64_t size = (b->asked + GRAIN - 1) / GRAIN * GRAIN, least = UINT64_MAX;
	int best = -1;

	for (int i = 0; i < job.holes; i++) {
		if (job.hole[i].size >= size && job.hole[i].size < least) {
			best = i;
			least = job.hole[i].size;
		}
	}
	b->size = size;
	if (best < 0) {
		b->offset = job.high;
		job.high += size;
		if (job.high > job.highest)
			job.highest = job.high;
		return;
	}
	b->offset = job.hole[best].offset;
	job.hole[best].offset += size;
	job.hole[best].size -= size;
	if (!job.hole[best].size)
		job.hole[best] = job.hole[--job.holes];
}

static void naive_free(const struct block *b)
{
	uint64_t offset = b->offset, end = b->offset + b->size;

	for (int i = job.holes - 1; i >= 0; i--) {
		if (job.hole[i].offset + job.hole[i].size == offset)
			offset = job.hole[i].offset;
		else if (job.hole[i].offset == end)
			end += job.hole[i].size;
		else
			continue;
		job.hole[i] = job.hole[--job.holes];
	}
	if (end == job.high) {
		job.high = offset;
		return;
	}
	job.hole[job.holes].offset = offset;
	job.hole[job.holes++].size = end - offset;
}

/* Bytes of the slots that blocks touch there. */
static uint64_t naive_held(void)
{
	static bool touched[SLOTS];
	uint64_t slots = 0;

	for (int i = 0; i < SLOTS; i++)
		touched[i] = false;
	for (int k = 0; k < BLOCKS; k++) {
		const struct block *b = &job.block[k];

		for (uint64_t s = b->offset / SLOT;
			b->is_live && s <= (b->offset + b->size - 1) / SLOT; s++) {
			slots += !touched[s];
			touched[s] = true;
		}
	}
	return slots * SLOT;
}

static void leave(struct block *b)
{
	if (!b->is_live)
		return;
	b->is_live = false;
	job.live -= b->asked;
	if (b->ptr)
		must(glake_free(job.ctx, b->ptr, b->stream), "free");
	if (job.ctx)
		naive_free(b);
}

static void enter(struct block *b, const struct phase *phase)
{
	const struct history *h = job.history;
	int err;

	leave(b);
	b->asked = phase->least + below(phase->most - phase->least);
	b->stream = job.stream[h->random ? below((uint64_t)h->streams)
					 : job.turn++ % (uint64_t)h->streams];
	b->born = job.done;
	b->is_live = true;
	job.live += b->asked;
	if (job.live > job.peak)
		job.peak = job.live;
	if (!job.ctx)
		return;
	b->ptr = NULL;
	err = glake_alloc(job.ctx, 0, b->asked, b->stream, 0, &b->ptr);
	job.refused += err != 0;
	naive_alloc(b);
}

static uint64_t held(void)
{
	struct glake_stats s = {.sz = sizeof(s)};

	must(glake_stats_get(job.ctx, 0, &s), "figures");
	return s.reserved;
}

static double ratio(uint64_t a, uint64_t b)
{
	return (double)a / (double)b;
}

static void play(uint64_t from, uint64_t to, const struct phase *phase)
{
	const struct phase *first = &job.history->phase[0];
	int freed = phase == first ? BLOCKS : 0, each = first->live / phase->live + 1;

	/* from its highest one down, so that the new ones lie behind */
	for (int k = first->live - 1; phase != first && job.history->at_once && k >= 0;
		k--)
		leave(&job.block[k]);
	for (job.done = from; job.done < to; job.done++) {
		uint64_t n = job.done - from;
		int k = n < (uint64_t)phase->live ? (int)n
						  : (int)below((uint64_t)phase->live);

		for (int i = 0; freed < first->live && i < each; i++, freed++)
			leave(&job.block[freed]);
		enter(&job.block[k], phase);
		if (job.ctx && job.done == job.requests / 30)
			job.early = ratio(held(), job.peak);
	}
}

/* All of a history on a context, or to know the most that is live; with 0 the one of a budget. */
static void run(const struct history *h, struct glake *ctx, uint64_t requests)
{
	bool twice = h->phase[1].live > 0;

	job = (struct job){.history = h, .ctx = ctx, .requests = requests, .random = 4};
	for (int i = 0; ctx && i < h->streams; i++)
		must(glake_stream_new(ctx, 0, &job.stream[i]), "stream");
	play(0, twice ? requests / 2 : requests, &h->phase[0]);
	if (twice)
		play(requests / 2, requests, &h->phase[1]);
}

static struct glake *open_with(const char **settings, const char *budget)
{
	const char *all[16] = {"soft.memory=64GiB", budget ? budget : "log.level=error"};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = all};
	struct glake *ctx;

	for (int i = 2; i < 15 && *settings; i++)
		all[i] = *settings++;
	must(glake_open(&options, &ctx), "open");
	return ctx;
}

static void end(void)
{
	for (int k = 0; k < BLOCKS; k++)
		leave(&job.block[k]);
	for (int i = 0; i < job.history->streams; i++)
		must(glake_stream_free(job.ctx, 0, job.stream[i]), "stream end");
	must(glake_close(job.ctx, NULL), "close");
}

static enum half order;

static int compare(const void *a, const void *b)
{
	const struct block *x = *(const struct block *const *)a;
	const struct block *y = *(const struct block *const *)b;
	uint64_t v = order < SMALLER ? x->born : x->asked;
	uint64_t w = order < SMALLER ? y->born : y->asked;

	return (v > w) - (v < w);
}

/* Frees one half of the blocks that are live. */
static void halve(enum half half)
{
	static struct block *all[BLOCKS];
	int count = 0;

	for (int k = 0; k < BLOCKS; k++) {
		if (job.block[k].is_live)
			all[count++] = &job.block[k];
	}
	order = half;
	qsort(all, (size_t)count, sizeof(*all), compare);
	for (int i = 0; i < count / 2; i++)
		leave(all[half == OLDER || half == SMALLER ? i : count - 1 - i]);
}

static void measure(const struct history *h, uint64_t requests, const char **settings)
{
	struct glake_stats s = {.sz = sizeof(s)};
	double left[HALVES], naive[HALVES];
	uint64_t refused, rest = 0;
	char budget[64];
	clock_t began;
	double ns;

	run(h, NULL, requests);
	snprintf(budget, sizeof(budget), "pool.budget=%llu",
		(unsigned long long)(job.peak + job.peak * 15 / 100));
	run(h, open_with(settings, budget), requests / 3);
	refused = job.refused;
	end();
	began = clock();
	run(h, open_with(settings, NULL), requests);
	ns = (double)(clock() - began) * 1e9 / CLOCKS_PER_SEC / (double)requests;
	must(glake_stats_get(job.ctx, 0, &s), "figures");
	printf("%-33s %5.3f %5.3f %5.3f  %5.3f  %5llu", h->name, job.early,
		ratio(s.reserved, job.peak), ratio(s.peak_reserved, job.peak),
		ratio(job.highest, job.peak), (unsigned long long)refused);
	fflush(stdout);
	for (int half = 0; half < HALVES; half++) {
		if (half) {
			end();
			run(h, open_with(settings, NULL), requests / 10);
		}
		must(glake_trim(job.ctx, 0, 0, NULL), "trim");
		if (!half)
			printf("  %5.3f", ratio(held(), naive_held()));
		halve((enum half)half);
		must(glake_trim(job.ctx, 0, 0, NULL), "trim");
		left[half] = ratio(held(), job.live);
		naive[half] = ratio(naive_held(), job.live);
		printf(" %5.3f", left[half]);
		for (int k = 0; k < BLOCKS; k++)
			leave(&job.block[k]);
		must(glake_trim(job.ctx, 0, 0, NULL), "trim");
		rest += held();
	}
	printf(" %3llu  %4.1f %6llu %5.0f  (%5.3f %5.3f %5.3f %5.3f)\n",
		(unsigned long long)rest, 100 * ratio(s.hits, s.allocs),
		(unsigned long long)s.called, ns, naive[0], naive[1], naive[2], naive[3]);
	end();
}

int main(int count, char **arguments)
{
	static const char *none[] = {NULL};
	uint64_t requests = count > 1 ? strtoull(arguments[1], NULL, 10) : 3000000;

	if (requests < 60000)
		return 2;
	printf("%-33s %-17s  %-5s  %-5s  %-29s %3s  %4s %6s %5s\n", "",
		"held: early, end, most", "naive", "x1.15",
		"trim: all, old new small large", "0", "hits", "called", "ns");
	for (size_t i = 0; i < sizeof(histories) / sizeof(*histories); i++)
		measure(&histories[i], requests,
			count > 2 ? (const char **)arguments + 2 : none);
	return 0;
}
