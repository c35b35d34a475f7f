/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is there more than once, by every byte, in parts; and what is no memory of ours. */
#include "context.h"

#include "tap.h"

#include <errno.h>
#include <string.h>

#include <glake/glake.h>

#define KIB  ((size_t)1 << 10)
#define PART (64 * KIB)
#define SIZE (40 * PART)

static struct glake *ctx;
static unsigned char *block[3];

static void fill(unsigned char *at, size_t bytes, unsigned seed)
{
	uint32_t value = seed * 2654435761u + 1;

	for (size_t i = 0; i < bytes; i += 4) {
		value = value * 1664525u + 1013904223u;
		memcpy(at + i, &value, 4);
	}
}

static struct glake_likeness look(size_t grain, int want, const char *what)
{
	struct glake_likeness l = {.sz = sizeof(l)};
	const struct glake_stretch ranges[] = {
		{block[0], SIZE}, {block[1], SIZE - 1}, {block[2], 3 * PART}};

	is_int(glake_alike(ctx, 0, ranges, 3, grain, &l), want, what);
	return l;
}

static void test_equal(void)
{
	struct glake_likeness l;

	for (int b = 0; b < 3; b++)
		fill(block[b], SIZE, (unsigned)b);
	l = look(0, 0, "memory of which nothing is equal");
	is_int((int64_t)l.looked, (int64_t)(82 * PART), "whole parts are looked at");
	is_int((int64_t)l.equal, 0, "none is");
	memcpy(block[1] + 5 * PART, block[0] + 30 * PART, 7 * PART);
	memcpy(block[2], block[0] + 30 * PART, PART);
	l = look(PART, 0, "eight parts are copies");
	is_int((int64_t)l.equal, (int64_t)(8 * PART), "of other blocks too");
	memcpy(block[2] + 2 * PART, block[2], PART);
	l = look(PART, 0, "and one more in the same");
	is_int((int64_t)l.equal, (int64_t)(9 * PART), "each is told once");
	for (size_t i = 0; i < PART; i += 9973) {
		block[2][i] ^= 1;
		l = look(PART, 0, "one bit is another");
		if (!is_int((int64_t)l.equal, (int64_t)(8 * PART), "and the part is"))
			break;
		block[2][i] ^= 1;
	}
	l = look(4 * PART, 0, "parts of four times that");
	is_int((int64_t)l.looked, (int64_t)(19 * 4 * PART), "are fewer");
	is_int((int64_t)l.equal, 0, "and not equal where they begin elsewhere");
	l = look(16 * KIB, 0, "parts of a quarter");
	is_int((int64_t)l.equal, (int64_t)(9 * PART), "say the same");
	memset(block[0], 0, SIZE);
	l = look(PART, 0, "a block of zeros");
	is_int((int64_t)l.equal, (int64_t)((39 + 2) * PART),
		"is equal to itself, beside what was");
	is_int((int64_t)l.differ, 0, "no number was wrong");
}

static void test_refused(void)
{
	struct glake_likeness l = {.sz = sizeof(l)};
	struct glake_stretch r = {block[0], SIZE};

	is_int(glake_alike(ctx, 7, &r, 1, 0, &l), -EINVAL, "no such GPU");
	is_int(glake_alike(ctx, 0, NULL, 1, 0, &l), -EINVAL, "no ranges");
	is_int(glake_alike(ctx, 0, &r, 0, 0, &l), -EINVAL, "none of them");
	is_int(glake_alike(ctx, 0, &r, 1, 5000, &l), -EINVAL, "parts of no whole round");
	is_int(glake_alike(ctx, 0, &r, 1, 0, NULL), -EINVAL, "no place for what is told");
	r.size = SIZE + 1;
	is_int(glake_alike(ctx, 0, &r, 1, 0, &l), -EINVAL, "more than a block");
	r = (struct glake_stretch){block[0] + 8, PART};
	is_int(glake_alike(ctx, 0, &r, 1, 0, &l), -EINVAL, "an odd beginning");
	r = (struct glake_stretch){&l, 0};
	is_int(glake_alike(ctx, 0, &r, 1, 0, &l), -EINVAL, "memory of the host");
	r = (struct glake_stretch){block[0], PART - 1};
	is_int(glake_alike(ctx, 0, &r, 1, 0, &l), 0, "less than a part");
	is_int((int64_t)l.looked, 0, "is nothing");
	is_int(glake_spill(ctx, block[0], NULL), 0, "a block goes away");
	r.size = SIZE;
	is_int(glake_alike(ctx, 0, &r, 1, 0, &l), -EBUSY, "and cannot be looked at");
	is_int(glake_fetch(ctx, block[0], NULL), 0, "it comes back");
	is_int(glake_alike(ctx, 0, &r, 1, 0, &l), 0, "and can");
}

static void test_faults(void)
{
	static const char *const calls[] = {"host_lock", "module_load", "kernel_find",
		"stream_new", "launch", "stream_sync"};
	struct glake_likeness l = {.sz = sizeof(l)};
	char fault[64];

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		const char *settings[] = {fault, NULL};
		struct glake_stretch r;
		void *ptr = NULL;
		size_t leaked = 9;

		snprintf(fault, sizeof(fault), "driver.fault=%s:nth=1:err=EIO", calls[i]);
		ctx = flow_open(settings);
		glake_alloc(ctx, 0, SIZE, NULL, 0, &ptr);
		r = (struct glake_stretch){ptr, SIZE};
		is_int(glake_alike(ctx, 0, &r, 1, 0, &l), -EIO, calls[i]);
		is_int(glake_alike(ctx, 0, &r, 1, 0, &l), 0, "  then it works");
		glake_free(ctx, ptr, NULL);
		ok(!glake_close(ctx, &leaked) && !leaked, "  and nothing is left");
	}
}

int main(void)
{
	tap_plan_later();
	ctx = flow_open(NULL);
	for (int b = 0; b < 3; b++)
		if (glake_alloc(ctx, 0, SIZE, NULL, 0, (void **)&block[b]))
			tap_bail("no block");
	test_equal();
	test_refused();
	for (int b = 0; b < 3; b++)
		glake_free(ctx, block[b], NULL);
	is_int(glake_close(ctx, NULL), 0, "close");
	test_faults();
	return tap_done();
}
