/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Equal pages of blocks that are sealed exist once: by every word at any time, by the figures, and whatever the driver
 * refuses on the way.
 */
#include "context.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE   (2 * MIB)
#define PAGES  8
#define BLOCKS 4
#define KINDS  4

static struct glake *ctx;

struct copy {
	unsigned char *ptr;
	int kind[PAGES]; /* what each page has, which is all it has */
	bool sealed;
};

/* A call that is refused once works the second time. */
static unsigned char *elastic(size_t pages)
{
	void *ptr = NULL;

	if (glake_alloc(ctx, 0, pages * PAGE, NULL, GLAKE_ALLOC_ELASTIC, &ptr) &&
		glake_alloc(ctx, 0, pages * PAGE, NULL, GLAKE_ALLOC_ELASTIC, &ptr))
		tap_bail(flow_error().text);
	if (glake_commit(ctx, ptr, 0, pages * PAGE, NULL, NULL) &&
		glake_commit(ctx, ptr, 0, pages * PAGE, NULL, NULL))
		tap_bail(flow_error().text);
	return ptr;
}

/* What a page of a kind has. */
static const unsigned char *words_of(int kind)
{
	/* mapped: a search for leaks reads all variables of a program at its end */
	static uint64_t *words[128];

	if (words[kind])
		return (unsigned char *)words[kind];
	words[kind] = mmap(
		NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (words[kind] == MAP_FAILED)
		tap_bail("no memory for words");
	for (size_t i = 0; i < PAGE / 8; i++)
		words[kind][i] = ((uint64_t)kind + 1) * 0x9e3779b97f4a7c15u * (i * 8 + 8);
	return (unsigned char *)words[kind];
}

static void fill(unsigned char *at, int kind)
{
	memcpy(at, words_of(kind), PAGE);
}

static bool holds(const unsigned char *at, int kind)
{
	return !memcmp(at, words_of(kind), PAGE);
}

static struct copy make(const char *kinds)
{
	struct copy c = {.ptr = elastic(strlen(kinds))};

	for (size_t i = 0; kinds[i]; i++) {
		c.kind[i] = kinds[i];
		fill(c.ptr + i * PAGE, kinds[i]);
	}
	return c;
}

static bool right(const struct copy *c)
{
	for (size_t i = 0; i < PAGES && c->kind[i]; i++) {
		if (!holds(c->ptr + i * PAGE, c->kind[i]))
			return false;
	}
	return true;
}

static struct glake_sealed seal(const struct copy *c, int want)
{
	struct glake_sealed s = {.sz = sizeof(s)};

	is_int(glake_seal(ctx, c->ptr, NULL, 0, &s), want, "sealed");
	return s;
}

static int64_t live(void)
{
	return (int64_t)(flow_stats(ctx, 0).live / PAGE);
}

static int64_t shared(void)
{
	return (int64_t)(flow_stats(ctx, 0).elastic_shared / PAGE);
}

static void test_blocks(void)
{
	struct copy base, tune, plain;
	struct glake_sealed s;

	ctx = flow_open(NULL);
	base = make("abcdefgh");
	tune = make("abcxefgh");
	plain = make("abc");
	s = seal(&base, 0);
	is_int((int64_t)(s.saved + s.shared + s.left), 0, "the first one saves nothing");
	s = seal(&tune, 0);
	is_int((int64_t)s.looked, 16 * (int64_t)PAGE, "pages of both are looked at");
	is_int((int64_t)s.saved, 7 * (int64_t)PAGE, "seven of eight exist once");
	is_int(live(), 12, "and are live once");
	is_int(shared(), 7, "which is told");
	ok(right(&base) && right(&tune) && right(&plain), "every word is there");
	s = seal(&tune, 0);
	is_int((int64_t)s.shared, 7 * (int64_t)PAGE, "again, nothing is new");
	is_int((int64_t)s.saved, 0, "nor saved");
	s = seal(&base, 0);
	is_int((int64_t)(s.saved + s.left), 0, "nor left, nor of the first one");
	fill(plain.ptr, 'z');
	ok(right(&base) && right(&tune),
		"a block that is not sealed is written for itself");
	is_int(glake_unseal(ctx, plain.ptr, NULL), -EINVAL, "and cannot be unsealed");
	is_int(glake_unseal(ctx, tune.ptr, NULL), 0,
		"one that is has its own pages again");
	is_int(live(), 19, "which are live");
	is_int(shared(), 0, "and shared no more");
	ok(right(&base) && right(&tune), "with the contents");
	fill(tune.ptr, 'y');
	tune.kind[0] = 'y';
	ok(right(&base) && right(&tune), "each writes for itself");
	is_int(glake_unseal(ctx, tune.ptr, NULL), -EINVAL, "once");
	s = seal(&tune, 0);
	is_int((int64_t)s.saved, 6 * (int64_t)PAGE, "and it is sealed again");
	is_int(glake_free(ctx, base.ptr, NULL), 0, "the first one goes");
	ok(right(&tune), "and leaves what the other has");
	is_int(live(), 8 + 3, "which is live");
	is_int(shared(), 0, "and shared by nobody");
	glake_free(ctx, tune.ptr, NULL);
	glake_free(ctx, plain.ptr, NULL);
	is_int(live(), 0, "nothing is live");
	flow_close(ctx, 0);
}

static uint64_t copies(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	glake_driver_stats_get(ctx, &stats);
	return stats.calls[GLAKE_CALL_COPY];
}

/* What two had, and one of them has left, is the other's to write where it lies, with no memory more. */
static void test_last(void)
{
	for (int goes = 0; goes < 2; goes++) {
		struct copy one, two, *stays = goes ? &one : &two;
		uint64_t before;

		ctx = flow_open(NULL);
		one = make("abcdefgh");
		two = make("abxdefgh");
		seal(&one, 0);
		seal(&two, 0);
		is_int(glake_free(ctx, goes ? two.ptr : one.ptr, NULL), 0,
			goes ? "who came last goes" : "whose pages they were goes");
		glake_trim(ctx, 0, 0, NULL);
		is_int(glake_budget_set(ctx, 0, flow_stats(ctx, 0).reserved), 0,
			"there is no more memory");
		before = copies();
		is_int(glake_unseal(ctx, stays->ptr, NULL), 0,
			"the other one is unsealed");
		is_int((int64_t)(copies() - before), 0, "and nothing is copied");
		is_int(live(), 8, "as much is live");
		is_int(shared(), 0, "and nothing shared");
		ok(right(stays), "every word is there");
		is_int(glake_soft_fill(ctx, NULL, stays->ptr, 7, PAGES * PAGE / 4), 0,
			"to be written by the GPU");
		for (int i = 0; i < PAGES; i++) {
			fill(stays->ptr + (size_t)i * PAGE, 'k' + i % 4);
			stays->kind[i] = 'k' + i % 4;
		}
		ok(right(stays), "and by the host");
		is_int((int64_t)seal(stays, 0).saved, 4 * (int64_t)PAGE,
			"sealed again, equal pages exist once");
		is_int(glake_free(ctx, stays->ptr, NULL), 0, "it goes");
		is_int(live(), 0, "nothing is live");
		flow_close(ctx, 0);
	}
}

/* What is queued may read it until then: rights do not change under it. */
static void test_waits(void)
{
	struct CUstream_st *stream = NULL;
	unsigned char *other;
	struct copy one;

	ctx = flow_open((const char *const[]){"soft.streams=stepped", NULL});
	one = make("ab");
	other = flow_alloc(ctx, 32 * PAGE, NULL);
	memset(other, 1, 32 * PAGE);
	glake_stream_new(ctx, 0, &stream);
	seal(&one, 0);
	for (uint32_t i = 2; i < 10; i++)
		glake_soft_fill(ctx, stream, other, i, 32 * PAGE / 4);
	ok(other[0] < 9, "a stream has work to do");
	is_int(glake_unseal(ctx, one.ptr, stream), 0, "a block is unsealed");
	is_int(other[0], 9, "when that is done");
	ok(right(&one), "every word is there");
	glake_free(ctx, other, NULL);
	glake_free(ctx, one.ptr, NULL);
	glake_stream_free(ctx, 0, stream);
	flow_close(ctx, 0);
}

/* One block: equal pages of its own, and ranges of it that go. */
static void test_one(void)
{
	struct copy one;
	struct glake_sealed s;

	ctx = flow_open(NULL);
	one = make("aabaacaa");
	s = seal(&one, 0);
	is_int((int64_t)s.saved, 5 * (int64_t)PAGE,
		"equal pages of one block exist once");
	ok(right(&one), "every word is there");
	is_int(glake_decommit(ctx, one.ptr, 0, 3 * PAGE, NULL, NULL), 0,
		"the first of them goes");
	ok(holds(one.ptr + 3 * PAGE, 'a') && holds(one.ptr + 7 * PAGE, 'a'),
		"the others stay");
	is_int(live(), 2, "two are live");
	is_int(glake_suspend(ctx, 0, NULL), 0, "all goes away");
	is_int(glake_resume(ctx, 0, NULL), 0, "and comes back");
	ok(holds(one.ptr + 3 * PAGE, 'a') && holds(one.ptr + 5 * PAGE, 'c') &&
			holds(one.ptr + 7 * PAGE, 'a'),
		"every word is there");
	is_int(live(), 2, "once");
	glake_free(ctx, one.ptr, NULL);
	is_int(live(), 0, "nothing is live");
	flow_close(ctx, 0);
}

/* A page that two ranges have goes with the second of them. */
static void test_shared_before(void)
{
	const struct glake_sharing pair = {0, PAGE, PAGE};
	struct glake_sealed s;
	struct copy base;
	void *two = NULL;

	ctx = flow_open(NULL);
	base = make("ab");
	is_int(glake_alloc(ctx, 0, 2 * PAGE, NULL, GLAKE_ALLOC_ELASTIC, &two), 0,
		"a block");
	is_int(glake_commit(ctx, two, 0, PAGE, NULL, NULL), 0, "of a page");
	fill(two, 'a');
	is_int(glake_commit_shared(ctx, two, &pair, 1, NULL), 0, "that it has twice");
	is_int(live(), 3, "three are live");
	s = seal(&base, 0);
	is_int(glake_seal(ctx, two, NULL, 0, &s), 0, "sealed");
	is_int(live(), 2, "then two");
	is_int((int64_t)s.saved, (int64_t)PAGE, "so one was saved");
	is_int((int64_t)s.left, 0, "and none is left");
	ok(right(&base) && holds(two, 'a') && holds((unsigned char *)two + PAGE, 'a'),
		"every word is there");
	glake_free(ctx, base.ptr, NULL);
	glake_free(ctx, two, NULL);
	is_int(live(), 0, "nothing is live");
	flow_close(ctx, 0);
}

static unsigned long long seed = 1;

static unsigned roll(unsigned below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % below;
}

/* Pages on which blocks stand. */
static int64_t stood_on(const struct copy *all)
{
	int64_t sum = 0;

	for (int b = 0; b < BLOCKS; b++)
		sum += all[b].ptr ? PAGES : 0;
	return sum;
}

static void test_random(void)
{
	struct copy all[BLOCKS] = {0};
	bool good = true;

	ctx = flow_open(NULL);
	for (int step = 0; step < 60 && good; step++) {
		struct copy *c = &all[roll(BLOCKS)];
		unsigned what = roll(5);

		if (!c->ptr) {
			c->ptr = elastic(PAGES);
			for (int i = 0; i < PAGES; i++)
				fill(c->ptr + (size_t)i * PAGE,
					c->kind[i] = 1 + (int)roll(KINDS));
			c->sealed = false;
		} else if (what == 0) {
			good = !glake_free(ctx, c->ptr, NULL);
			c->ptr = NULL;
		} else if (what == 1 && c->sealed) {
			good = !glake_unseal(ctx, c->ptr, NULL);
			c->sealed = false;
		} else if (what == 2 && !c->sealed) {
			int i = (int)roll(PAGES);

			fill(c->ptr + (size_t)i * PAGE,
				c->kind[i] = 1 + (int)roll(KINDS));
		} else if (what == 3 && !roll(3)) {
			good = !glake_suspend(ctx, 0, NULL) &&
				!glake_resume(ctx, 0, NULL);
		} else {
			good = !glake_seal(ctx, c->ptr, NULL, 0, NULL);
			c->sealed = true;
		}
		for (int b = 0; b < BLOCKS && good; b++)
			good = !all[b].ptr || right(&all[b]);
		good = good && live() + shared() == stood_on(all);
	}
	ok(good, "60 steps: every word and every page is where it should be");
	for (int b = 0; b < BLOCKS; b++)
		if (all[b].ptr)
			glake_free(ctx, all[b].ptr, NULL);
	is_int(live(), 0, "nothing is live");
	is_int(shared(), 0, "nor shared");
	flow_close(ctx, 0);
}

/* The driver refuses a call of some kind once, at each place in turn. */
static void test_faults(void)
{
	static const char *const calls[] = {"create", "map", "set_access", "unmap",
		"copy", "launch", "stream_sync", "host_lock"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		bool good = true;
		int failed = 0;

		/* slots that the driver keeps are told of */
		tap_expect_log(!strcmp(calls[i], "unmap") ? 11 : 0);
		for (int nth = 1; nth < 14 && good; nth += 1 + nth / 5) {
			char fault[64];
			const char *settings[] = {fault, NULL};
			struct copy base, tune;
			size_t leaked = 9;
			int err;

			snprintf(fault, sizeof(fault), "driver.fault=%s:nth=%d:err=EIO",
				calls[i], nth);
			ctx = flow_open(settings);
			base = make("aba");
			tune = make("xba");
			err = glake_seal(ctx, base.ptr, NULL, 0, NULL);
			if (!err)
				err = glake_seal(ctx, tune.ptr, NULL, 0, NULL);
			good = right(&base) && right(&tune);
			failed += err != 0;
			if (!err && good)
				err = glake_unseal(ctx, tune.ptr, NULL);
			failed += err != 0;
			good = good && right(&base) && right(&tune);
			/* the second time it works */
			good = good &&
				(!glake_seal(ctx, tune.ptr, NULL, 0, NULL) ||
					!glake_seal(ctx, tune.ptr, NULL, 0, NULL)) &&
				right(&base) && right(&tune);
			glake_free(ctx, base.ptr, NULL);
			glake_free(ctx, tune.ptr, NULL);
			glake_close(ctx, &leaked);
		}
		ok(good, "%s refused: every word is there", calls[i]);
		printf("# %d calls of ours failed\n", failed);
	}
}

static void test_refused(void)
{
	struct glake_sealed s = {.sz = sizeof(s)};
	struct CUstream_st *stream = NULL;
	struct copy one;
	uint32_t graph;
	void *plain;

	ctx = flow_open(NULL);
	one = make("ab");
	plain = flow_alloc(ctx, 4 * PAGE, NULL);
	is_int(glake_seal(ctx, plain, NULL, 0, &s), -EINVAL,
		"a plain block is not sealed");
	is_int(glake_seal(ctx, one.ptr + 8, NULL, 0, &s), -EINVAL, "nor a part of one");
	is_int(glake_seal(ctx, &s, NULL, 0, &s), -EINVAL, "nor memory of the host");
	s.sz = 3;
	is_int(glake_seal(ctx, one.ptr, NULL, 0, &s), -EINVAL,
		"nor is a short answer given");
	s.sz = sizeof(s);
	glake_stream_new(ctx, 0, &stream);
	glake_soft_capture_begin(ctx, 0, stream);
	is_int(glake_seal(ctx, one.ptr, stream, 0, &s), -EBUSY, "nor while it captures");
	is_int(glake_soft_capture_end(ctx, 0, stream, &graph), 0,
		"which it goes on to do");
	glake_soft_graph_free(ctx, graph);
	is_int(glake_unseal(ctx, one.ptr, NULL), -EINVAL, "it is not sealed");
	is_int(glake_seal(ctx, one.ptr, stream, 1 << 30, &s), 0, "and then it is");
	is_int(glake_suspend(ctx, 0, NULL), 0, "away");
	is_int(glake_seal(ctx, one.ptr, NULL, 0, &s), -EAGAIN, "it is not looked at");
	is_int(glake_unseal(ctx, one.ptr, NULL), -EAGAIN, "nor unsealed");
	is_int(glake_resume(ctx, 0, NULL), 0, "here");
	ok(right(&one), "every word is there");
	glake_free(ctx, one.ptr, NULL);
	is_int(glake_seal(ctx, one.ptr, NULL, 0, &s), -EINVAL, "freed, it is none");
	glake_free(ctx, plain, NULL);
	glake_stream_free(ctx, 0, stream);
	flow_close(ctx, 0);
}

/* It reads no more in a second than it may. */
static void test_rate(void)
{
	struct timespec a, b;
	struct copy one;

	ctx = flow_open(NULL);
	one = make("abcd");
	clock_gettime(CLOCK_MONOTONIC, &a);
	is_int(glake_seal(ctx, one.ptr, NULL, 400 * MIB, NULL), 0, "with a rate");
	clock_gettime(CLOCK_MONOTONIC, &b);
	ok((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= 19,
		"8 MiB at 400 MiB a second take 20 ms at least");
	glake_free(ctx, one.ptr, NULL);
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	test_blocks();
	test_last();
	test_waits();
	test_one();
	test_shared_before();
	test_random();
	test_faults();
	test_refused();
	test_rate();
	return tap_done();
}
