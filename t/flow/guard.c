/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Mistakes that are planted, and which of them guard.mode finds: with what it says of each. Memory of the software
 * device is the process's own, so that the test writes where a kernel would.
 */
#include "guarded.h"

#include <sys/stat.h>

static const char *const canary[] = {"guard.mode=canary", NULL};

static const char *const poison[] = {"guard.mode=poison", NULL};

static const size_t sizes[] = {
	1, 100, 511, 512, 1000, 4096, 300000, 5 * MIB, 5 * MIB + 3};
static const size_t overs[] = {1, 4, 16, 256, MIB};
/* Whether all of a range lies in memory that is mapped, so that a wild write meets no signal. */
static bool is_mapped(const char *from, size_t size)
{
	static char page[4096];
	int fds[2];
	bool all = !pipe(fds);

	for (size_t i = 0; all && i < size; i += sizeof(page))
		all = write(fds[1], from + i, 1) == 1 && read(fds[0], page, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return all;
}

/* Behind a block lies memory that is mapped, of blocks that were freed. */
static void *with_room(struct glake *ctx, size_t size)
{
	void *kept[16], *room[16], *p;

	for (int i = 0; i < 16; i++) {
		kept[i] = given(ctx, size);
		room[i] = given(ctx, 3 * MIB);
	}
	for (int i = 0; i < 16; i++) {
		glake_free(ctx, room[i], NULL);
		glake_free(ctx, kept[i], NULL);
	}
	p = given(ctx, size);
	if (!is_mapped(p, size + MIB))
		tap_bail("the block lies elsewhere");
	checked(ctx, 0);
	return p;
}

static void over(size_t size, size_t by, bool at_free)
{
	struct glake *ctx = open_with(canary);
	unsigned char *p = with_room(ctx, size);
	struct glake_finding f;
	size_t given = (size + 512) / 512 * 512;

	spoil(p, size);
	checked(ctx, 0);
	spoil(p + size, by);
	if (at_free) {
		ok(!glake_free(ctx, p, NULL), "%zu bytes past %zu, freed", by, size);
		checked(ctx, -EIO);
	} else {
		ok(checked(ctx, -EIO).broken == 1, "%zu bytes past %zu, live", by, size);
		is_str(glake_error_class_name(flow_error().error_class), "GUARD",
			"  its class");
	}
	f = finding(ctx, 0);
	is_int(f.kind, GLAKE_FINDING_OVERRUN, "  is found");
	ok(f.base == p && f.size == size && f.offset == size,
		"  with the block, and where");
	if (given - size <= 512)
		is_int((int64_t)f.bytes, (int64_t)(by < given - size ? by : given - size),
			"  and how many");
	else
		ok(f.bytes && f.bytes <= by, "  and how many of those it looks at");
	ok((f.freed_by != 0) == at_free && f.thread, "  and who");
	is_int(said.count, 1, "  said once");
	checked(ctx, 0);
	if (!at_free)
		is_int(glake_free(ctx, p, NULL), 0, "  then freed");
	is_int(said.count, 1, "  nothing more is said");
	flow_close(ctx, 0);
}

/* What is written before a block is in the canary of the one before it. */
static void under(size_t by)
{
	struct glake *ctx = open_with(canary);
	char *a = given(ctx, 4096), *b = given(ctx, 4096);
	struct glake_finding f;

	if (b != a + 4096 + 512)
		tap_bail("they are no neighbours");
	spoil(b - by, by);
	checked(ctx, -EIO);
	f = finding(ctx, 0);
	ok(f.kind == GLAKE_FINDING_OVERRUN && f.base == a, "%zu bytes before a block",
		by);
	ok(f.offset == 4096 + 512 - by && f.bytes == by, "  where they are");
	ok(f.next == b && f.next_size == 4096, "  with the block they lie before");
	glake_free(ctx, a, NULL);
	glake_free(ctx, b, NULL);
	flow_close(ctx, 0);
}

static void twice(void)
{
	struct glake *ctx = open_with(canary);
	void *p = given(ctx, 3000), *q = given(ctx, 3000);
	struct glake_finding f;

	is_int(glake_free(ctx, p, NULL), 0, "a block is freed");
	is_error(glake_free(ctx, p, NULL), -EINVAL, "DOUBLE_FREE");
	f = finding(ctx, 0);
	ok(f.kind == GLAKE_FINDING_DOUBLE_FREE && f.base == p && f.size == 3000 &&
			f.freed_by,
		"  a finding that says who freed it");
	ok(strstr(said.last, "freed again"), "  and a line: %s", said.last);
	is_int(glake_free(ctx, q, NULL), 0, "the other one");
	is_int((int64_t)checked(ctx, -EIO).freed, 2, "both were looked at");
	flow_close(ctx, 0);
}

/* Blocks of all kinds of sizes, used as they may be. */
static void nothing(const char *const *settings)
{
	struct glake *ctx = open_with(settings);
	void *held[64] = {NULL};
	size_t size[64] = {0};
	struct glake_checked c;
	uint32_t x = 1;

	for (int i = 0; i < 5000; i++) {
		unsigned at;

		x = x * 1664525u + 1013904223u;
		at = x >> 26;
		if (held[at]) {
			spoil(held[at], size[at]);
			if (glake_free(ctx, held[at], NULL))
				tap_bail("a free is refused");
		}
		size[at] = (x >> 8) % (i % 64 ? 20000 : 3000000) + 1;
		held[at] = given(ctx, size[at]);
		memset(held[at], 0, size[at]);
		if (i % 1000 == 999)
			checked(ctx, 0);
	}
	for (unsigned i = 0; i < 64; i++)
		glake_free(ctx, held[i], NULL);
	c = checked(ctx, 0);
	ok(c.freed == 5000 && !c.unchecked && !c.unguarded && !c.findings,
		"all were looked at: %d, %d not, %d unguarded", (int)c.freed,
		(int)c.unchecked, (int)c.unguarded);
	is_int(said.count, 0, "nothing is said");
	flow_close(ctx, 0);
}

/* The mode changes, and blocks of both kinds are freed in the other. */
static void live(void)
{
	struct glake *ctx = open_with(NULL);
	char *plain = given(ctx, 1000), *with, *without;

	is_int((int64_t)checked(ctx, 0).blocks, 0, "nothing is guarded");
	is_int(glake_conf_set(ctx, "guard.mode", "canary"), 0, "the mode changes");
	with = given(ctx, 1000);
	is_int((int64_t)checked(ctx, 0).blocks, 1, "a block is guarded");
	glake_free(ctx, plain, NULL);
	is_int((int64_t)checked(ctx, 0).freed, 0, "one from before is not");
	is_int(glake_conf_set(ctx, "guard.mode", "off"), 0, "and back");
	without = given(ctx, 1000);
	spoil(without + 1000, 24);
	spoil(with + 1000, 2);
	is_int((int64_t)checked(ctx, -EIO).broken, 1,
		"the one with a canary is looked at");
	glake_free(ctx, with, NULL);
	glake_free(ctx, without, NULL);
	is_int((int64_t)checked(ctx, 0).findings, 1, "the others are not");
	flow_close(ctx, 0);
}

/* What leaves the GPU has no canary when it comes back. */
static void leaves(void)
{
	struct glake *ctx = open_with(canary);
	char *p = given(ctx, 3 * MIB), *dropped = given(ctx, 3 * MIB);
	struct glake_checked c;

	is_int(glake_spill(ctx, p, NULL), 0, "a block goes");
	is_int(glake_advise(ctx, dropped, GLAKE_ADVICE_DISCARDABLE), 0,
		"and one without");
	is_int(glake_spill(ctx, dropped, NULL), 0, "  its contents");
	checked(ctx, 0);
	is_int(glake_fetch(ctx, p, NULL), 0, "they come back");
	is_int(glake_fetch(ctx, dropped, NULL), 0, "  both");
	checked(ctx, 0);
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	is_int(glake_free(ctx, dropped, NULL), 0, "freed");
	c = checked(ctx, 0);
	ok(c.unguarded == 2 && !c.findings, "they are counted");
	flow_close(ctx, 0);
}

/* A budget that has room for the block alone. */
static void no_room(void)
{
	struct glake *ctx = open_with(
		(const char *const[]){"guard.mode=canary", "pool.budget=8MiB", NULL});
	void *p = given(ctx, 8 * MIB);
	struct glake_checked c = checked(ctx, 0);

	ok(p && !c.blocks, "a block that leaves no room is served without a canary");
	is_int((int64_t)flow_stats(ctx, 0).oom, 0, "  and counted as no shortage");
	is_int((int64_t)c.unguarded, 1, "  but as one that is not guarded");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
}

static void quiet(void)
{
	struct glake *ctx = open_with(canary);
	char *p = given(ctx, 1000);

	spoil(p + 1000, 1);
	is_int(glake_quiet(ctx, 0, NULL), 0, "a quiet point");
	is_int(said.count, 1, "looks at all");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
}

static void what(void)
{
	struct glake *ctx = open_with(canary);
	char *a = given(ctx, 4096), *b = given(ctx, 1000), *c = given(ctx, 4096);
	struct glake_described d;
	int local = 0;

	d = described(ctx, a + 7);
	ok(d.what == GLAKE_WHAT_LIVE && d.base == a && d.size == 4096 && d.offset == 7,
		"inside of a live block");
	ok(d.thread && d.age_ns >= 0 && !d.freed_by && d.device == 0, "  who has it");
	d = described(ctx, a + 4096 + 3);
	ok(d.what == GLAKE_WHAT_BEHIND && d.base == a && d.offset == 4099 &&
			d.given == 4096 + 512,
		"in its canary");
	ok(d.behind != NULL && d.behind_size, "  with the block behind it");
	is_int(glake_free(ctx, b, NULL), 0, "another one is freed");
	d = described(ctx, b + 999);
	ok(d.what == GLAKE_WHAT_FREED && d.base == b && d.size == 1000 && d.offset == 999,
		"where it was");
	ok(d.thread && d.freed_by && d.freed_ns >= 0, "  who freed it");
	d = described(ctx, c + 4096);
	is_int(d.what, GLAKE_WHAT_BEHIND, "behind the third");
	ok(d.before == a && d.before_size == 4096, "  which lies behind the first");
	d = described(ctx, &local);
	ok(d.what == GLAKE_WHAT_FOREIGN && d.device == -1 && !d.base, "of the host");
	d = described(ctx, NULL);
	is_int(d.what, GLAKE_WHAT_FOREIGN, "nowhere");
	is_str(glake_what_name(GLAKE_WHAT_FREED), "freed", "a name");
	ok(!glake_what_name(6) && !glake_what_name(-1), "of six");
	is_error(glake_describe(ctx, a, NULL), -EINVAL, "INVAL");
	glake_free(ctx, a, NULL);
	glake_free(ctx, c, NULL);
	flow_close(ctx, 0);
	ctx = open_with(NULL);
	a = given(ctx, 5000);
	d = described(ctx, a + 1);
	ok(d.what == GLAKE_WHAT_LIVE && d.base == a && !d.thread, "without guard: live");
	glake_free(ctx, a, NULL);
	d = described(ctx, a + 1);
	ok(d.what == GLAKE_WHAT_FREE && !d.base, "  and forgotten when freed");
	flow_close(ctx, 0);
	is_error(glake_describe(ctx, a, &d), -ESTALE, "STALE");
}

static const char *const sample[] = {"guard.mode=sample", "guard.rate=1", NULL};

static void beyond(size_t size)
{
	struct glake *ctx = open_with(sample);
	char *ends = given(ctx, size), *begins = given(ctx, size);
	char *end = ends + grains(size);
	struct glake_described d;

	ok(!kernel(ctx, ends, size) && !kernel(ctx, begins, size), "%zu bytes are used",
		size);
	for (unsigned i = 0; i < COUNT(overs); i++) {
		is_error(kernel(ctx, ends, grains(size) + overs[i]), -EINVAL, "INVAL");
		ok(strstr(flow_error().text, "nothing is mapped"),
			"  %zu bytes past its end: %s", overs[i], flow_error().text);
		is_error(kernel(ctx, begins - overs[i], overs[i]), -EINVAL, "INVAL");
		ok(strstr(flow_error().text, "nothing is mapped"),
			"  %zu bytes before the other one", overs[i]);
	}
	ok(signal_at(end) == SIGSEGV && signal_at(begins - 1) == SIGSEGV,
		"a processor ends by a signal there");
	ok(!signal_at(end - 1) && !signal_at(begins), "  and not a byte before");
	d = described(ctx, end);
	ok(d.what == GLAKE_WHAT_GUARD && d.before == ends, "what lies there is known");
	d = described(ctx, begins - 1);
	ok(d.what == GLAKE_WHAT_GUARD && d.behind == begins, "  on both sides");
	checked(ctx, 0);
	if (size % 512) {
		spoil(ends + size, 1);
		checked(ctx, -EIO);
		d = described(ctx, ends + size);
		is_int(d.what, GLAKE_WHAT_BEHIND, "the rest up to there has a canary");
	}
	is_int(glake_free(ctx, ends, NULL), 0, "freed");
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "its mappings go");
	is_error(kernel(ctx, ends, 1), -EINVAL, "INVAL");
	d = described(ctx, ends + size - 1);
	ok(d.what == GLAKE_WHAT_FREED && d.base == ends && d.size == size && d.freed_by,
		"  it is known whose they were");
	is_error(glake_free(ctx, ends, NULL), -EINVAL, "DOUBLE_FREE");
	is_int(glake_free(ctx, begins, NULL), 0, "the other one");
	flow_close(ctx, 0);
}

/* By the next request that no bin serves, and not before the work on it has finished. */
static void rests(void)
{
	struct glake *ctx = open_with((const char *const[]){
		"guard.mode=sample", "guard.rate=1", "soft.streams=stepped", NULL});
	char *p = given(ctx, 3 * MIB), *q;

	is_int(kernel(ctx, p, 3 * MIB), 0, "work is queued");
	is_int(glake_free(ctx, p, NULL), 0, "its block is freed");
	q = given(ctx, 3 * MIB);
	ok(q != p, "the next one lies elsewhere");
	is_int(kernel(ctx, p, 1), 0,
		"the first is mapped while the work may be under way");
	is_int(glake_soft_stream_sync(ctx, 0, NULL), 0, "it has finished");
	ok(given(ctx, 3 * MIB) != p, "one more");
	is_error(kernel(ctx, p, 1), -EINVAL, "INVAL");
	flow_close(ctx, 2);
}

static bool is_sampled(struct glake *ctx, const char *p, size_t size)
{
	return described(ctx, p + grains(size)).what == GLAKE_WHAT_GUARD;
}

/* No more than 32, and what a sampled block can do as others can. */
static void as_others(void)
{
	struct glake *ctx = open_with(sample);
	struct glake_block block = {.sz = sizeof(block)};
	char *p[40], *large;
	int sampled = 0;

	large = given(ctx, 65 * MIB);
	for (int i = 0; i < 40; i++) {
		p[i] = given(ctx, 2048);
		sampled += is_sampled(ctx, p[i], 2048);
	}
	is_int(sampled, 32, "32 of 40 are sampled");
	ok(!is_sampled(ctx, large, 65 * MIB), "  and no large one");
	memset(p[0], 7, 2048);
	is_int(glake_spill(ctx, p[0], NULL), 0, "one goes to the host");
	is_int(glake_fetch(ctx, p[0], NULL), 0, "  and comes back");
	is_int(p[0][2047], 7, "  with its contents");
	is_int(kernel(ctx, p[0], 2049) != 0, 1, "  at the same end");
	is_int(glake_use(ctx, p[1], (struct CUstream_st *)2), 0,
		"another stream uses one");
	is_int(glake_query(ctx, p[1] + 5, &block), 0, "one is asked about");
	ok(block.base == p[1] && block.size == 2048 && !block.tag,
		"  it says what it is");
	for (int i = 0; i < 40; i++)
		if (glake_free(ctx, p[i], NULL))
			tap_bail("a free is refused");
	is_int(glake_suspend(ctx, 0, NULL), 0, "all is suspended");
	is_int(glake_resume(ctx, 0, NULL), 0, "  and resumed");
	p[0] = given(ctx, 2048);
	ok(is_sampled(ctx, p[0], 2048), "another one is sampled");
	glake_free(ctx, p[0], NULL);
	glake_free(ctx, large, NULL);
	checked(ctx, 0);
	flow_close(ctx, 0);
}

/* A tail that may be read lies behind those that end, in whole grains with them; a canary is in it. */
static void tail(void)
{
	struct glake *ctx = open_with((const char *const[]){
		"guard.mode=sample", "guard.rate=1", "guard.tail=4096", NULL});
	char *ends = given(ctx, 3000);
	struct glake_finding f;

	is_int(kernel(ctx, ends, grains(3000 + 4096)), 0, "the tail may be reached");
	is_error(kernel(ctx, ends, grains(3000 + 4096) + 1), -EINVAL, "INVAL");
	spoil(ends + 3000, 7);
	checked(ctx, -EIO);
	f = finding(ctx, 0);
	ok(f.base == ends && f.offset == 3000 && f.bytes == 7,
		"what is written there is found");
	glake_free(ctx, ends, NULL);
	flow_close(ctx, 0);
}

/* Under MPS no block is sampled, and a sampled one is not for others. */
static void alone(void)
{
	struct glake_piece pieces[4];
	struct glake *ctx;
	size_t count;
	char *p;

	ctx = open_with((const char *const[]){
		"guard.mode=sample", "guard.rate=1", "soft.mps=yes", NULL});
	p = given(ctx, 2048);
	ok(!is_sampled(ctx, p, 2048), "under MPS no block is sampled");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
	ctx = open_with(sample);
	p = given(ctx, 2048);
	is_error(glake_export(ctx, p, pieces, COUNT(pieces), &count), -EBUSY, "BUSY");
	ok(strstr(flow_error().text, "sampled"), "  with that word: %s",
		flow_error().text);
	is_int(glake_free(ctx, p, NULL), 0, "and it is freed as ever");
	flow_close(ctx, 0);
}

/* One in so many, of those that miss and of those that would hit. */
static void one_in(void)
{
	struct glake *ctx = open_with(
		(const char *const[]){"guard.mode=sample", "guard.rate=100", NULL});
	int small = 0, large = 0, before = 0;

	for (int i = 0; i < 4000; i++) {
		char *a = given(ctx, 3 * MIB), *b = given(ctx, 1024);

		large += is_sampled(ctx, a, 3 * MIB);
		small += is_sampled(ctx, b, 1024);
		glake_free(ctx, a, NULL);
		glake_free(ctx, b, NULL);
		before += i == 50 && !small && !large;
	}
	ok(before, "none of the first hundred");
	ok(small + large <= 80 && small + large >= 8 && small,
		"one in a hundred at most: %d large ones, %d small", large, small);
	ok(flow_stats(ctx, 0).hits > 3000, "and small ones hit");
	checked(ctx, 0);
	flow_close(ctx, 0);
}

/* Whether each word is no number, as a float, as two halves of 16 bits, and as one half of a double. */
static bool is_filled(const unsigned char *p, size_t size)
{
	bool all = true;

	for (size_t i = 0; i < size / 2; i++)
		all &= (p[2 * i] & 0xc0) == 0xc0 && p[2 * i + 1] == 0xff;
	return all;
}

/* What was freed is written, at any place and as late as it may be. */
static void late(size_t size, size_t at, size_t by)
{
	struct glake *ctx = open_with(poison);
	unsigned char *p = given(ctx, size), *q;
	struct glake_finding f;

	ok(is_filled(p, size), "%zu bytes come filled", size);
	memset(p, 1, size);
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	q = given(ctx, size);
	ok(q != p, "  and not given again at once");
	spoil(p + at, by);
	checked(ctx, -EIO);
	f = finding(ctx, 0);
	ok(f.kind == GLAKE_FINDING_AFTER_FREE && f.base == p && f.size == size,
		"a write after the free is found");
	ok(f.offset == at && f.bytes == by && f.freed_by && f.thread,
		"  %zu bytes at %zu, and who freed it", f.bytes, f.offset);
	is_int(said.count, 1, "  said once");
	is_int(glake_free(ctx, q, NULL), 0, "the other one");
	is_int((int64_t)checked(ctx, 0).kept, 2, "both were kept");
	flow_close(ctx, 0);
}

static unsigned char *again_at(struct glake *ctx, size_t size, const unsigned char *at)
{
	unsigned char *p = given(ctx, size);

	ok(p == at, "  %zu bytes lie there again", size);
	return p;
}

/* A block of the same size has the place of one that was freed, with its canary: an overrun of either is found, once. */
static void again(size_t size)
{
	struct glake *ctx = open_with(canary);
	unsigned char *p = given(ctx, size), *q;
	struct glake_finding f;
	struct glake_checked c;

	for (int i = 0; i < 10; i++) {
		spoil(p, size);
		if (i == 3)
			spoil(p + size, 1);
		is_int(glake_free(ctx, p, NULL), 0, "freed");
		again_at(ctx, size, p);
	}
	q = given(ctx, size + 512);
	ok(q != p, "one of another size does not");
	c = checked(ctx, -EIO);
	is_int((int64_t)c.again, 10, "ten were served so");
	f = finding(ctx, 0);
	ok(f.base == p && f.size == size && f.offset == size && f.bytes == 1,
		"the overrun of one before is found");
	is_int(f.owners, 11, "  of eleven that had the place");
	is_int(said.count, 1, "  said once");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	ok((c = checked(ctx, 0)).findings == 1, "  and not again");
	p = given(ctx, size);
	is_int((int64_t)checked(ctx, 0).again, 10, "the place serves no more as it is");
	spoil(p + size, 1);
	is_int((int64_t)checked(ctx, -EIO).findings, 2,
		"  and its next block is looked at");
	glake_free(ctx, p, NULL);
	glake_free(ctx, q, NULL);
	flow_close(ctx, 0);
}

/* Small ones stay beside large ones that come and go, as many as there is memory for. */
static void small_stay(void)
{
	struct glake *ctx = open_with(canary);
	unsigned char *p = given(ctx, 1000), *q;
	struct glake_checked c;

	is_int(glake_free(ctx, p, NULL), 0, "a small one is freed");
	for (unsigned i = 0; i < 20; i++)
		glake_free(ctx, given(ctx, 8 * MIB + 512 * i), NULL);
	is_int((int64_t)checked(ctx, 0).again, 0, "20 large ones come and go");
	again_at(ctx, 1000, p);
	is_int((int64_t)checked(ctx, 0).again, 1, "  and the small one serves again");
	q = given(ctx, 8 * MIB);
	is_int((int64_t)checked(ctx, 0).again, 1, "  as the first of them does not");
	glake_free(ctx, q, NULL);
	for (unsigned i = 0; i < 600; i++)
		glake_free(ctx, given(ctx, 100000 + i), NULL);
	c = checked(ctx, 0);
	glake_free(ctx, given(ctx, 100000), NULL);
	is_int((int64_t)checked(ctx, 0).again, (int64_t)c.again,
		"of 600 small ones the first has gone");
	glake_free(ctx, given(ctx, 100599), NULL);
	is_int((int64_t)checked(ctx, 0).again, (int64_t)c.again + 1,
		"  and not the last");
	glake_free(ctx, p, NULL);
	c = checked(ctx, 0);
	ok(!c.unchecked && !c.findings, "all were looked at");
	flow_close(ctx, 0);
}

/* On another stream, with another size that is rounded to the same, after it was used elsewhere: never. */
static void not_again(void)
{
	struct glake *ctx = open_with(canary);
	struct CUstream_st *one, *two;
	char *p, *q;

	if (glake_stream_new(ctx, 0, &one) || glake_stream_new(ctx, 0, &two))
		tap_bail("no streams");
	p = flow_alloc(ctx, 1000, one);
	is_int(glake_free(ctx, p, one), 0, "freed");
	glake_free(ctx, flow_alloc(ctx, 1000, two), two);
	glake_free(ctx, flow_alloc(ctx, 999, one), one);
	is_int((int64_t)checked(ctx, 0).again, 0, "neither serves again");
	q = flow_alloc(ctx, 1000, one);
	ok(q == p, "on its stream, of its size");
	is_int(glake_use(ctx, q, two), 0, "used elsewhere too");
	is_int(glake_free(ctx, q, one), 0, "freed");
	flow_alloc(ctx, 1000, one);
	is_int((int64_t)checked(ctx, 0).again, 1, "  it serves no more as it is");
	q = flow_alloc(ctx, 5000, two);
	is_int(glake_free(ctx, q, two), 0, "one is kept");
	is_int(glake_stream_free(ctx, 0, two), 0, "its stream ends");
	is_int(glake_stream_new(ctx, 0, &two), 0, "and another one begins");
	flow_alloc(ctx, 5000, two);
	is_int((int64_t)checked(ctx, 0).again, 1, "  which does not have it");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "all goes back");
	is_int(glake_stream_free(ctx, 0, one), 0, "one ends");
	is_int(glake_stream_free(ctx, 0, two), 0, "and the other");
	flow_close(ctx, 2);
}

/* Driver calls of pairs that are served again, and that one kernel looks at some hundred of them. */
static void batches(const char *const *settings, uint64_t most)
{
	struct glake *ctx = open_with(settings);
	struct glake_checked c;
	uint64_t calls;

	for (int i = 0; i < 3000; i++)
		glake_free(ctx, given(ctx, 3000), NULL);
	calls = flow_calls(ctx, GLAKE_CALL_OTHER);
	for (int i = 0; i < 10000; i++)
		glake_free(ctx, given(ctx, 3000), NULL);
	calls = flow_calls(ctx, GLAKE_CALL_OTHER) - calls;
	ok(calls <= most, "%d calls of the driver for 10000 pairs", (int)calls);
	c = checked(ctx, 0);
	ok(c.freed == 13000 && !c.unchecked, "all are looked at");
	flow_close(ctx, 0);
}

/* What was filled serves again filled, when it was looked at. */
static void filled_again(void)
{
	struct glake *ctx = open_with(poison);
	unsigned char *p;
	int good = 0;

	for (int i = 0; i < 3000; i++) {
		p = given(ctx, 2000);
		good += is_filled(p, 2000);
		memset(p, 1, 2000);
		glake_free(ctx, p, NULL);
	}
	is_int(good, 3000, "each comes filled");
	ok(checked(ctx, 0).again > 1500, "most serve again");
	p = given(ctx, 2000);
	memset(p, 1, 2000);
	glake_free(ctx, p, NULL);
	p[7] = 0;
	for (int i = 0; i < 1100; i++)
		glake_free(ctx, given(ctx, 2000), NULL);
	is_int(said.count, 1, "a late write is found without being asked for");
	is_int(glake_suspend(ctx, 0, NULL), 0, "all is suspended");
	is_int(glake_resume(ctx, 0, NULL), 0, "  and resumed");
	p = given(ctx, 2000);
	ok(is_filled(p, 2000), "  and filled as ever");
	glake_free(ctx, p, NULL);
	is_int((int64_t)checked(ctx, -EIO).findings, 1, "nothing else was found");
	flow_close(ctx, 0);
}

/* Blocks beside those that are kept go to the host and come back. */
static void beside(const char *const *settings, size_t size)
{
	struct glake *ctx = open_with(settings);
	unsigned char *p[64];

	for (int i = 0; i < 64; i++)
		p[i] = given(ctx, size);
	for (int i = 0; i < 64; i += 2)
		glake_free(ctx, p[i], NULL);
	/* what shares its page goes with all others alone */
	for (int i = 1; size > 2 * MIB && i < 64; i += 2)
		if (glake_spill(ctx, p[i], NULL) || glake_fetch(ctx, p[i], NULL))
			tap_bail(flow_error().text);
	is_int(glake_suspend(ctx, 0, NULL), 0, "all go away");
	is_int(glake_resume(ctx, 0, NULL), 0, "  and come back");
	for (int i = 0; i < 64; i += 2)
		p[i] = given(ctx, size);
	is_int((int64_t)checked(ctx, 0).findings, 0, "nothing is found");
	for (int i = 0; i < 64; i++)
		glake_free(ctx, p[i], NULL);
	is_int((int64_t)checked(ctx, 0).findings, 0, "  nor when all are freed");
	flow_close(ctx, 0);
}

/* What is suspended has no memory, in each mode. */
static void suspended(const char *const *settings)
{
	struct glake *ctx = open_with(settings);
	char *p = given(ctx, 3 * MIB);

	is_int(glake_suspend(ctx, 0, NULL), 0, "all is suspended");
	is_error(kernel(ctx, p, 1), -EINVAL, "INVAL");
	is_int(glake_resume(ctx, 0, NULL), 0, "  and back");
	is_int(kernel(ctx, p, 1), 0, "  to be used");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
}

/* A stream that was not told uses a block after its free. */
static void untold(void)
{
	struct glake *ctx = open_with(poison);
	struct CUstream_st *one, *two;
	struct glake_finding f;
	char *p;

	if (glake_stream_new(ctx, 0, &one) || glake_stream_new(ctx, 0, &two))
		tap_bail("no streams");
	p = flow_alloc(ctx, 5000, one);
	is_int(glake_free(ctx, p, one), 0, "freed on its stream");
	is_int(glake_soft_stream_sync(ctx, 0, one), 0, "  which ends");
	is_int(glake_soft_fill(ctx, two, p + 72, 7, 5), 0,
		"a stream that was not told writes");
	is_int(glake_soft_stream_sync(ctx, 0, two), 0, "  and ends");
	checked(ctx, -EIO);
	f = finding(ctx, 0);
	ok(f.kind == GLAKE_FINDING_AFTER_FREE && f.base == p && f.offset == 72 &&
			f.bytes == 20,
		"  %zu bytes at %zu", f.bytes, f.offset);
	is_int(glake_stream_free(ctx, 0, one), 0, "one ends");
	is_int(glake_stream_free(ctx, 0, two), 0, "and the other");
	flow_close(ctx, 0);
}

/* Canaries are kept for a small part of what is live. */
static void little(void)
{
	struct glake *ctx = open_with(canary);
	void *live = given(ctx, 640 * MIB), *p[100];

	for (int i = 0; i < 100; i++)
		p[i] = given(ctx, MIB);
	for (int i = 0; i < 100; i++)
		glake_free(ctx, p[i], NULL);
	ok(flow_stats(ctx, 0).quick <= 57 * MIB && flow_stats(ctx, 0).quick >= 40 * MIB,
		"of 100 MiB that were freed 32 MiB and a 32nd of what is live are kept: %d",
		(int)(flow_stats(ctx, 0).quick / MIB));
	is_int((int64_t)checked(ctx, 0).unchecked, 0, "the others went looked at");
	glake_free(ctx, live, NULL);
	flow_close(ctx, 0);
}

/* What is kept goes back: when there is too much of it, when a request has no room, by a trim, and at the end. */
static void goes_back(void)
{
	struct glake *ctx = open_with((const char *const[]){
		"guard.mode=poison", "pool.budget=64MiB", "soft.memory=1GiB", NULL});
	unsigned char *p = given(ctx, 20 * MIB), *q;
	struct glake_stats stats;

	is_int(glake_free(ctx, p, NULL), 0, "a block is kept");
	stats = flow_stats(ctx, 0);
	ok(stats.live == 0 && stats.quick >= 20 * MIB, "  and counts as freed");
	q = given(ctx, 60 * MIB);
	ok(q, "a request that needs its room has it");
	is_int((int64_t)flow_stats(ctx, 0).oom, 0, "  and none was refused");
	glake_free(ctx, q, NULL);
	for (int i = 0; i < 40; i++)
		glake_free(ctx, given(ctx, 3 * MIB), NULL);
	ok(flow_stats(ctx, 0).quick <= 32 * MIB, "no more than a 32nd is kept");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "a trim");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "  has all of it");
	for (int i = 0; i < 17000; i++)
		glake_free(ctx, given(ctx, 512), NULL);
	ok(flow_stats(ctx, 0).quick <= 16384 * 1024, "nor more than 16384 blocks");
	is_int((int64_t)checked(ctx, 0).unchecked, 0, "none went without a look");
	p = given(ctx, 1000);
	glake_free(ctx, p, NULL);
	is_error(glake_free(ctx, p, NULL), -EINVAL, "DOUBLE_FREE");
	p = given(ctx, 1000);
	glake_free(ctx, p, NULL);
	spoil(p, 1);
	said.count = 0;
	flow_close(ctx, 0);
	is_int(said.count, 1, "what was kept to the end is looked at there");
}

/* Freed on another stream than it was used on, with work under way on both: the fill comes behind them. */
static void streams(void)
{
	struct glake *ctx = open_with(
		(const char *const[]){"guard.mode=poison", "soft.streams=stepped", NULL});
	struct CUstream_st *one, *two;
	void *p;

	if (glake_stream_new(ctx, 0, &one) || glake_stream_new(ctx, 0, &two))
		tap_bail("no streams");
	p = flow_alloc(ctx, MIB, one);
	is_int(glake_soft_kernel(ctx, 0, one, p, MIB, 1), 0, "work on the one");
	is_int(glake_use(ctx, p, two), 0, "the other uses it too");
	is_int(glake_soft_stream_sync(ctx, 0, one), 0, "behind the first");
	is_int(glake_soft_kernel(ctx, 0, two, p, MIB, 1), 0, "work on that");
	is_int(glake_free(ctx, p, one), 0, "freed on the one");
	checked(ctx, 0);
	is_int((int64_t)checked(ctx, 0).kept, 1, "it was kept");
	is_int(glake_stream_free(ctx, 0, one), 0, "one ends");
	is_int(glake_stream_free(ctx, 0, two), 0, "and the other");
	flow_close(ctx, 0);
}

/* A block that is not kept is looked at behind the stream that it was asked for on, where its canary is written. */
static void elsewhere(void)
{
	struct glake *ctx = open_with((const char *const[]){"guard.mode=sample",
		"guard.rate=1", "guard.tail=4096", "soft.streams=stepped", NULL});
	struct CUstream_st *one, *two;
	struct glake_checked c;
	void *p;

	if (glake_stream_new(ctx, 0, &one) || glake_stream_new(ctx, 0, &two))
		tap_bail("no streams");
	p = flow_alloc(ctx, 3000, one);
	is_int(glake_free(ctx, p, two), 0, "asked for on one stream, freed on another");
	is_int(glake_soft_stream_sync(ctx, 0, two), 0, "which is ahead");
	c = checked(ctx, 0);
	ok(c.freed == 1 && !c.unchecked, "its canary is looked at");
	ok(!c.findings && !said.count, "  and nothing was written");
	is_int(glake_stream_free(ctx, 0, one), 0, "one ends");
	is_int(glake_stream_free(ctx, 0, two), 0, "and the other");
	flow_close(ctx, 0);
}

static void report(void)
{
	char name[64], setting[96], line[1024] = "";
	struct glake *ctx;
	struct stat st;
	FILE *file;
	char *p;

	snprintf(name, sizeof(name), "guard.%d.json", (int)getpid());
	snprintf(setting, sizeof(setting), "guard.report=guard.%%p.json");
	ctx = open_with((const char *const[]){"guard.mode=canary", setting, NULL});
	p = given(ctx, 1000);
	spoil(p + 1001, 3);
	glake_free(ctx, p, NULL);
	checked(ctx, -EIO);
	ok(!stat(name, &st) && (st.st_mode & 0777) == 0600,
		"a report for the user alone");
	file = fopen(name, "re");
	ok(file && fgets(line, sizeof(line), file), "  of a line");
	if (file)
		fclose(file);
	unlink(name);
	ok(strstr(line, "{\"kind\":\"overrun\"") && strstr(line, "\"size\":1000,") &&
			strstr(line, "\"offset\":1001,\"bytes\":3,"),
		"  that says what: %s", line);
	flow_close(ctx, 0);
	ctx = open_with((const char *const[]){
		"guard.mode=canary", "guard.report=/no/such/folder", NULL});
	p = given(ctx, 1000);
	spoil(p + 1000, 1);
	is_int(glake_free(ctx, p, NULL), 0, "one that cannot be written");
	checked(ctx, -EIO);
	is_int(said.count, 1, "  is in the log");
	flow_close(ctx, 0);
}

/* Spoiled and never freed: seen by a thread all the same. */
static void looked_at(void)
{
	struct glake *ctx = open_with(
		(const char *const[]){"guard.mode=canary", "guard.look=1ms", NULL});
	struct glake_finding f = {.sz = sizeof(f)};
	char *p = given(ctx, 1000);
	int err = -ENOENT;

	spoil(p + 1002, 4);
	/* the thread looks when it is its turn: ten minutes at the most */
	for (int i = 0; i < 600000 && err == -ENOENT; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		err = glake_finding_get(ctx, 0, 0, &f);
	}
	is_int(err, 0, "what nobody frees is looked at each so often");
	ok(f.kind == GLAKE_FINDING_OVERRUN && f.base == p && f.offset == 1002 &&
			f.bytes == 4,
		"  and what was written there is named");
	glake_free(ctx, p, NULL);
	checked(ctx, -EIO);
	flow_close(ctx, 0);
	ctx = open_with((const char *const[]){"guard.look=3600s", NULL});
	flow_close(ctx, 0);
}

static void arguments(void)
{
	struct glake *ctx = open_with(canary);
	struct glake_checked c = {.sz = sizeof(c)};
	struct glake_finding f = {.sz = sizeof(f)};

	is_int(glake_check(ctx, NULL), 0, "nobody wants to know");
	is_int(glake_finding_get(ctx, 0, 0, &f), -ENOENT, "nothing was found");
	is_error(glake_finding_get(ctx, 9, 0, &f), -EINVAL, "INVAL");
	is_error(glake_finding_get(ctx, 0, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_conf_set(ctx, "guard.mode", "loud"), -EINVAL, "CONFIG");
	flow_close(ctx, 0);
	is_error(glake_check(ctx, &c), -ESTALE, "STALE");
	is_error(glake_finding_get(ctx, 0, 0, &f), -ESTALE, "STALE");
}

int main(void)
{
	tap_plan_later();
	glake_log_hook(hook, NULL, GLAKE_LOG_ERROR);
	for (unsigned i = 0; i < COUNT(sizes); i++)
		for (unsigned k = 0; k < COUNT(overs); k++)
			over(sizes[i], overs[k], (i + k) % 2);
	for (unsigned k = 0; k < COUNT(overs) - 1; k++)
		under(overs[k]);
	twice();
	nothing(canary);
	nothing(poison);
	live();
	leaves();
	no_room();
	quiet();
	what();
	beyond(1000);
	beyond(4096);
	beyond(3 * MIB + 5);
	rests();
	as_others();
	tail();
	alone();
	one_in();
	late(1000, 0, 1);
	late(4096, 4095, 1);
	late(300000, 123456, 16);
	late(5 * MIB, 3 * MIB, MIB);
	again(1000);
	again(300000);
	again(5 * MIB + 3);
	not_again();
	small_stay();
	batches(canary, 10000 / 512 * 2 + 8);
	batches(poison, 10000 + 10000 / 512 * 3 + 8);
	filled_again();
	beside(canary, 1000);
	beside(poison, 1000);
	beside(poison, 300000);
	beside(poison, 3 * MIB);
	suspended(canary);
	suspended(poison);
	suspended(sample);
	untold();
	little();
	goes_back();
	streams();
	elsewhere();
	report();
	looked_at();
	arguments();
	return tap_done();
}
