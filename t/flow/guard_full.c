/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mistakes that are planted with guard.mode=full, where each block lies against nothing and a free waits. */
#include "guarded.h"

#include <dlfcn.h>
#include <execinfo.h>

static const char *const full[] = {"guard.mode=full", NULL};

static const size_t overs[] = {1, 4, 16, 256, MIB};

static bool is_nothing(struct glake *ctx, const char *from, size_t size)
{
	return kernel(ctx, from, size) == -EINVAL &&
		strstr(flow_error().text, "nothing is mapped");
}

/* Each of them, whatever its size and however many there are. */
static void past(size_t size)
{
	struct glake *ctx = open_with(full);
	char *p = given(ctx, size), *end = p + grains(size);
	struct glake_finding f;
	size_t most = size % 512 ? grains(size) - size : 0;

	ok(!kernel(ctx, p, size), "%zu bytes are used", size);
	for (unsigned i = 0; i < COUNT(overs); i++)
		ok(is_nothing(ctx, end, overs[i]),
			"  %zu bytes past its grain meet nothing", overs[i]);
	checked(ctx, 0);
	for (unsigned i = 0; i < COUNT(overs); i++) {
		size_t by = overs[i];

		if (by <= most) {
			p = given(ctx, size);
			spoil(p + size, by);
			checked(ctx, -EIO);
			f = finding(ctx, checked(ctx, 0).findings - 1);
			ok(f.kind == GLAKE_FINDING_OVERRUN && f.base == p &&
					f.offset == size && f.bytes == by,
				"  %zu past its last byte are found", by);
			glake_free(ctx, p, NULL);
		}
		if (by > 512 && size > MIB)
			continue;
		p = given(ctx, size);
		spoil(p - by, by);
		if (i % 2)
			is_int(glake_free(ctx, p, NULL), 0, "freed");
		is_int((int64_t)checked(ctx, -EIO).broken, i % 2 ? 0 : 1, "  before it");
		f = finding(ctx, checked(ctx, 0).findings - 1);
		ok(f.kind == GLAKE_FINDING_UNDERRUN && f.base == p && f.size == size,
			"  %zu bytes are found", by);
		ok(f.bytes == (by < 512 ? by : 512) && f.offset == f.bytes &&
				(f.freed_by != 0) == i % 2,
			"  with where and when");
		if (i % 2 == 0)
			glake_free(ctx, p, NULL);
	}
	flow_close(ctx, 1);
}

/* One that is written before and behind is one block, and two mistakes. */
static void both_ends(void)
{
	struct glake *ctx = open_with(full);
	char *p = given(ctx, 1000);

	spoil(p - 4, 4);
	spoil(p + 1000, 1);
	is_int((int64_t)checked(ctx, -EIO).broken, 1, "a block is broken at both ends");
	is_int((int64_t)checked(ctx, 0).findings, 2, "  and both are found");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
}

/* Each word of it is no number, as it comes, and a use after the free meets nothing, with no call between. */
static void at_once(size_t size)
{
	struct glake *ctx = open_with(full);
	unsigned char *p = given(ctx, size);
	bool filled = true;

	for (size_t i = 0; i + 1 < size; i += 2)
		filled &= (p[i] & 0xc0) == 0xc0 && p[i + 1] == 0xff;
	ok(filled, "%zu bytes come filled", size);
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	ok(is_nothing(ctx, (char *)p, 1) && is_nothing(ctx, (char *)p + size - 1, 1),
		"  a kernel meets nothing");
	ok(signal_at((char *)p) == SIGSEGV, "  nor does a processor");
	ok(described(ctx, p).what == GLAKE_WHAT_FREED, "  it is known whose it was");
	for (int i = 0; i < 100; i++)
		glake_free(ctx, given(ctx, size), NULL);
	ok(is_nothing(ctx, (char *)p, 1), "  nor after a hundred others");
	is_error(glake_free(ctx, p, NULL), -EINVAL, "DOUBLE_FREE");
	is_int(finding(ctx, 0).kind, GLAKE_FINDING_DOUBLE_FREE, "a second free is found");
	flow_close(ctx, 0);
}

/* Work is queued on the stream that it is freed on, and on another: both have finished when the free is done. */
static void waited(void)
{
	struct glake *ctx = open_with(full);
	struct CUstream_st *one, *two;
	char *p;

	if (glake_stream_new(ctx, 0, &one) || glake_stream_new(ctx, 0, &two))
		tap_bail("no streams");
	p = flow_alloc(ctx, 3 * MIB, one);
	is_int(glake_soft_kernel(ctx, 0, one, p, 3 * MIB, 1), 0, "a kernel");
	is_int(glake_soft_kernel(ctx, 0, two, p, 3 * MIB, 1), 0, "and another one");
	is_int(glake_use(ctx, p, two), 0, "which is told");
	is_int(glake_free(ctx, p, one), 0, "freed");
	ok(is_nothing(ctx, p, 1), "its mappings are gone");
	p = flow_alloc(ctx, 1000, one);
	is_int(glake_free_after(ctx, p, NULL, 0), 0, "freed behind no event");
	ok(is_nothing(ctx, p, 1), "  they are gone too");
	is_int((int64_t)checked(ctx, 0).unchecked, 1, "  without a look");
	is_int(glake_stream_free(ctx, 0, one), 0, "a stream ends");
	is_int(glake_stream_free(ctx, 0, two), 0, "and the other one");
	flow_close(ctx, 0);
}

/* A free in a capture cannot wait; the mapping goes later. */
static void captured(void)
{
	struct glake *ctx = open_with(full);
	struct CUstream_st *one;
	uint32_t graph;
	char *p;

	if (glake_stream_new(ctx, 0, &one))
		tap_bail("no stream");
	p = flow_alloc(ctx, 1000, one);
	is_int(glake_soft_kernel(ctx, 0, one, p, 1000, 1), 0, "a kernel");
	is_int(glake_soft_capture_begin(ctx, 0, one), 0, "the stream captures");
	is_int(glake_free(ctx, p, one), 0, "a free in it does not wait");
	is_int(glake_soft_capture_end(ctx, 0, one, &graph), 0, "it ends");
	is_int(glake_soft_graph_free(ctx, graph), 0, "  and its graph");
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "then");
	ok(is_nothing(ctx, p, 1), "  its mappings go");
	is_int(glake_stream_free(ctx, 0, one), 0, "the stream ends");
	flow_close(ctx, 0);
}

/* More than are sampled, of more than that, and a program that is right. */
static void many(void)
{
	struct glake *ctx = open_with(full);
	char *p[100], *large = given(ctx, 69 * MIB);
	struct glake_checked c;

	ok(is_nothing(ctx, large + 69 * MIB, 1), "a large one lies against nothing");
	for (int i = 0; i < 100; i++) {
		p[i] = given(ctx, (size_t)i * 37 + 1);
		memset(p[i], 1, (size_t)i * 37 + 1);
	}
	ok(is_nothing(ctx, p[99] + grains(99 * 37 + 1), 1), "and the hundredth");
	is_int((int64_t)checked(ctx, 0).blocks, 101, "all are looked at");
	for (int i = 0; i < 100; i++)
		glake_free(ctx, p[i], NULL);
	is_int(glake_spill(ctx, large, NULL), 0, "one goes to the host");
	is_int(glake_fetch(ctx, large, NULL), 0, "  and comes back");
	is_int(glake_free(ctx, large, NULL), 0, "freed");
	c = checked(ctx, 0);
	ok(!c.findings && c.unguarded == 1, "nothing is found");
	is_int(glake_conf_set(ctx, "guard.mode", "off"), 0, "the mode ends");
	glake_free(ctx, given(ctx, 1000), NULL);
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "all goes back");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "  to the last page");
	flow_close(ctx, 0);
}

/* Under MPS there is no block beside which nothing lies; and with a budget that has no room for it. */
static void without(void)
{
	struct glake *ctx =
		open_with((const char *const[]){"guard.mode=full", "soft.mps=yes", NULL});
	char *p = given(ctx, 1000);

	ok(!is_nothing(ctx, p + 1024, 1), "under MPS it lies among others");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	spoil(p, 1);
	checked(ctx, -EIO);
	is_int(finding(ctx, 0).kind, GLAKE_FINDING_AFTER_FREE, "as with poison");
	flow_close(ctx, 0);
	ctx = open_with(
		(const char *const[]){"guard.mode=full", "pool.budget=8MiB", NULL});
	p = given(ctx, 7 * MIB);
	ok(p != NULL, "most of a budget");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
}

static __attribute__((noinline)) void *asks(struct glake *ctx)
{
	void *p = NULL;

	/* the frames of a library that is linked in are told too, and leave room for few others */
	glake_alloc(ctx, 0, 1000, NULL, 0, &p);
	return p;
}

static __attribute__((noinline)) int frees(struct glake *ctx, void *p)
{
	return glake_free(ctx, p, NULL) ? 1 : 0;
}

/* Whether a frame of a few lies in a function. */
static bool is_in(const uint64_t *frames, uintptr_t fn)
{
	bool found = false;

	for (int i = 0; i < GLAKE_FRAMES; i++)
		found |= frames[i] - fn < 256;
	return found;
}

static const char *strange; /* name of all programs; NULL: they have their own */

/* Who made a block and who freed it. */
static void stacks(void)
{
	struct glake *ctx = open_with(
		(const char *const[]){"guard.mode=canary", "guard.stacks=12", NULL});
	char *p = asks(ctx);
	struct glake_finding f;

	spoil(p + 1000, 1);
	checked(ctx, -EIO);
	f = finding(ctx, 0);
	ok(is_in(f.made_at, (uintptr_t)asks) && !f.freed_at[0],
		"a finding tells who asked");
	is_int(frees(ctx, p), 0, "freed");
	is_error(glake_free(ctx, p, NULL), -EINVAL, "DOUBLE_FREE");
	f = finding(ctx, 1);
	ok(is_in(f.made_at, (uintptr_t)asks) && is_in(f.freed_at, (uintptr_t)frees),
		"a second free tells who made the first");
	ok(strstr(said.last, "was freed by"), "  as does the log: %s", said.last);
	strange = "/bin/a\"b\\\x1b[1m\xff";
	is_error(glake_free(ctx, p, NULL), -EINVAL, "DOUBLE_FREE");
	strange = NULL;
	ok(strstr(said.last, "a?b??[1m?+0x") && !strpbrk(said.last, "\"\\\x1b"),
		"  and of a strange program what a line of JSON may have: %.150s",
		said.last);
	flow_close(ctx, 0);
}

/* Each mapping costs the same, whatever its size: a block has one, of a page that serves the next one of its size. */
static void large(void)
{
	static const enum glake_call calls[] = {
		GLAKE_CALL_CREATE, GLAKE_CALL_MAP, GLAKE_CALL_UNMAP};
	struct glake *ctx = open_with(full);
	uint64_t before[3];

	glake_free(ctx, given(ctx, 64 * MIB + 5), NULL);
	glake_free(ctx, given(ctx, 7 * MIB), NULL);
	for (int i = 0; i < 3; i++)
		before[i] = flow_calls(ctx, calls[i]);
	glake_free(ctx, given(ctx, 64 * MIB + 5), NULL);
	for (int i = 0; i < 3; i++)
		is_int((int64_t)(flow_calls(ctx, calls[i]) - before[i]), i > 0,
			"64 MiB come and go: calls of a kind");
	flow_close(ctx, 0);
}

/* Where there is no such page it has several. */
static void pieces(void)
{
	struct glake *ctx = open_with((const char *const[]){"guard.mode=full",
		"driver.fault=create:nth=1:err=ENOMEM;create:nth=2:err=ENOMEM", NULL});
	char *p = given(ctx, 65 * MIB + 5), *end = p + grains(65 * MIB + 5);

	ok(!kernel(ctx, p, 65 * MIB + 5) && is_nothing(ctx, end, 1),
		"a block of several pages lies against nothing too");
	ok(flow_calls(ctx, GLAKE_CALL_MAP) > 1 && !checked(ctx, 0).unguarded,
		"  in several mappings");
	glake_free(ctx, p, NULL);
	ok(is_nothing(ctx, p, 1), "  and all of it goes");
	flow_close(ctx, 0);
}

static struct glake *asked; /* by the functions below, which lock what guard does */
static int stacks_seen, names_seen;

/* Both in the place of those of the C library. */
int backtrace(void **frames, int count)
{
	struct glake_finding f = {.sz = sizeof(f)};
	static int (*real)(void **frames, int count);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "backtrace");
	if (asked)
		stacks_seen += glake_finding_get(asked, 0, 0, &f) == -ENOENT;
	return real(frames, count);
}

int dladdr(const void *addr, Dl_info *info)
{
	struct glake_finding f = {.sz = sizeof(f)};
	static int (*real)(const void *addr, Dl_info *info);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "dladdr");
	if (asked)
		names_seen += !glake_finding_get(asked, 0, 0, &f);
	if (!real(addr, info))
		return 0;
	info->dli_fname = strange ? strange : info->dli_fname;
	return 1;
}

/* Stacks are taken, and named, without the lock of guard: both need one of the loader's, whose holder may ask for memory. */
static void unlocked(void)
{
	struct glake *ctx = open_with(
		(const char *const[]){"guard.mode=canary", "guard.stacks=12", NULL});
	char *p;

	asked = ctx;
	p = asks(ctx);
	is_int(frees(ctx, p), 0, "a block is freed");
	p = asks(ctx);
	ok(stacks_seen >= 3, "whoever takes a stack waits for nobody");
	spoil(p + 1000, 1);
	checked(ctx, -EIO);
	ok(names_seen, "nor does whoever names one");
	is_int(frees(ctx, p), 0, "the next one is freed");
	is_error(glake_free(ctx, p, NULL), -EINVAL, "DOUBLE_FREE");
	asked = NULL;
	ok(strstr(said.last, "was freed by"), "  which says both: %s", said.last);
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	glake_log_hook(hook, NULL, GLAKE_LOG_ERROR);
	past(1000);
	past(4096);
	past(3 * MIB + 5);
	past(30 * MIB + 7);
	past(64 * MIB + 5);
	both_ends();
	at_once(1000);
	at_once(3 * MIB);
	waited();
	captured();
	many();
	without();
	large();
	pieces();
	stacks();
	unlocked();
	return tap_done();
}
