/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What becomes of a seal while the driver is at work for it: blocks that go meanwhile, and copies that are still queued. */
#include "api/context.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>
#include <string.h>

#define PAGE ((size_t)2 << 20)

static struct glake *ctx;

static struct {
	const struct glk_drv_ops *usual;
	struct glk_drv_ops ops;
	void (*waits)(void); /* once, while a stream is waited for */
	bool refuses;	     /* the next mapping */
} during;

static int syncs(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	void (*fn)(void) = during.waits;

	during.waits = NULL;
	if (fn)
		fn();
	return during.usual->stream_sync(drv, device, stream);
}

static int maps(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t page)
{
	if (!during.refuses)
		return during.usual->map(drv, addr, size, page);
	during.refuses = false;
	return -EIO;
}

static void begin(const char *const *settings)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glk_context *context;

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
	during.usual = context->drv->ops;
	during.ops = *during.usual;
	during.ops.stream_sync = syncs;
	during.ops.map = maps;
	context->drv->ops = &during.ops;
}

static void end(void)
{
	struct glk_context *context;
	size_t leaked = 9;

	if (glk_context_get(ctx, &context))
		tap_bail("no context");
	context->drv->ops = during.usual;
	is_int(sound_close(ctx, &leaked), 0, "closed");
	is_int((int64_t)leaked, 0, "nothing was live");
}

static unsigned char *elastic(
	size_t pages, unsigned char value, struct CUstream_st *stream)
{
	void *ptr = NULL;

	if (glake_alloc(ctx, 0, pages * PAGE, stream, GLAKE_ALLOC_ELASTIC, &ptr) ||
		glake_commit(ctx, ptr, 0, pages * PAGE, stream, NULL))
		tap_bail("no block");
	memset(ptr, value, pages * PAGE);
	return ptr;
}

static unsigned char *one, *other;

static void replace(void)
{
	glake_free(ctx, other, NULL);
	glake_trim(ctx, 0, 0, NULL);
	if (elastic(4, 1, NULL) != other)
		tap_bail("the block lies elsewhere");
}

/* A program that frees what it seals, and has another block there by then, writes that one. */
static void test_replaced(void)
{
	begin(NULL);
	one = elastic(4, 1, NULL);
	is_int(glake_seal(ctx, one, NULL, 0, NULL), 0, "a block is sealed");
	other = elastic(4, 1, NULL);
	during.waits = replace;
	is_int(glake_seal(ctx, other, NULL, 0, NULL), -EINVAL,
		"one that is freed meanwhile is not");
	is_int(glake_unseal(ctx, other, NULL), -EINVAL,
		"nor is that which has come to lie there");
	memset(other, 2, 4 * PAGE);
	ok(one[0] == 1 && one[4 * PAGE - 1] == 1, "which is written for itself");
	glake_free(ctx, one, NULL);
	glake_free(ctx, other, NULL);
	end();
}

/* Where the driver maps no page of another, its contents are copied: who has that page next comes behind the copy. */
static void test_copied(void)
{
	static const char *const queued[] = {
		"soft.streams=stepped", "pool.budget=4MiB", NULL};
	struct CUstream_st *stream = NULL;
	void *next = NULL;

	begin(queued);
	is_int(glake_stream_new(ctx, 0, &stream), 0, "a stream");
	one = elastic(1, 1, stream);
	other = elastic(1, 1, NULL);
	is_int(glake_seal(ctx, one, stream, 0, NULL), 0, "a block of it is sealed");
	during.refuses = true;
	is_int(glake_seal(ctx, other, NULL, 0, NULL), -EIO, "the next one is not");
	is_int(glake_free(ctx, one, stream), 0, "the first one is freed");
	is_int(glake_alloc(ctx, 0, PAGE, stream, GLAKE_ALLOC_ELASTIC, &next), 0,
		"another block");
	is_int(glake_commit(ctx, next, 0, PAGE, stream, NULL), 0, "has its page");
	is_int(glake_soft_fill(ctx, stream, next, 2, PAGE / 4), 0,
		"which is written behind the copy");
	is_int(glake_soft_stream_sync(ctx, 0, stream), 0, "done");
	is_int(glake_soft_stream_sync(ctx, 0, NULL), 0, "and the copy");
	ok(other[0] == 1 && other[PAGE - 1] == 1, "every word is there");
	glake_free(ctx, other, NULL);
	glake_free(ctx, next, stream);
	glake_stream_free(ctx, 0, stream);
	end();
}

static bool is_all(const unsigned char *at, size_t pages, unsigned char value)
{
	return at[0] == value && !memcmp(at, at + 1, pages * PAGE - 1);
}

/* Pages of 160 MiB and of 2 that two ranges of a block have, which may write each of them for itself in the end. */
static void test_large(void)
{
	static const char *const settings[] = {
		"pool.large_page=160MiB", "soft.memory=1GiB", NULL};
	const size_t pages = 97;
	const struct glake_sharing all = {0, pages * PAGE, pages * PAGE};
	unsigned char *twice;
	void *ptr = NULL;

	begin(settings);
	if (glake_alloc(ctx, 0, 2 * pages * PAGE, NULL,
		    GLAKE_ALLOC_ELASTIC | GLAKE_ALLOC_GROWS, &ptr) ||
		glake_commit(ctx, ptr, 0, pages * PAGE, NULL, NULL))
		tap_bail("no block");
	one = ptr;
	twice = one + pages * PAGE;
	memset(one, 7, pages * PAGE);
	is_int(glake_commit_shared(ctx, one, &all, 1, NULL), 0, "large pages are shared");
	is_int(glake_seal(ctx, one, NULL, 0, NULL), 0, "sealed");
	is_int(glake_unseal(ctx, one, NULL), 0, "each range has its own");
	memset(twice, 9, pages * PAGE);
	memset(one, 8, PAGE);
	ok(is_all(one, 1, 8) && is_all(one + PAGE, pages - 1, 7) &&
			is_all(twice, pages, 9),
		"and is written");
	glake_free(ctx, one, NULL);
	end();
}

int main(void)
{
	tap_plan_later();
	test_large();
	test_replaced();
	test_copied();
	return tap_done();
}
