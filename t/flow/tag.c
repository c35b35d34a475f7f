/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks with a tag through the public functions: who gets them, what is refused, how many there may be. */
#include "context.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static uint32_t tag_open(struct glake *ctx, const char *name)
{
	uint32_t tag = 0;

	if (glake_tag_open(ctx, name, &tag))
		tap_bail(flow_error().text);
	return tag;
}

static void *with(struct glake *ctx, uint32_t tag, size_t size)
{
	uint32_t was = 99;
	void *ptr;

	if (glake_tag_set(ctx, tag, &was) || was)
		tap_bail("a thread begins without a tag");
	ptr = flow_alloc(ctx, size, NULL);
	if (glake_tag_set(ctx, 0, &was) || was != tag)
		tap_bail("it kept its tag");
	return ptr;
}

static struct glake_block asked(struct glake *ctx, const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glake_query(ctx, ptr, &block))
		tap_bail("no block");
	return block;
}

static bool all_are(const unsigned char *bytes, unsigned char want, size_t size)
{
	return bytes[0] == want && !memcmp(bytes, bytes + 1, size - 1);
}

static void comes_and_goes(void)
{
	static const char *const settings[] = {"soft.gpus=2", NULL};
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_tag told = {.sz = sizeof(told)};
	struct glake *ctx = flow_open(settings);
	uint32_t weights = tag_open(ctx, "weights"), same = tag_open(ctx, "weights");
	uint32_t cache = tag_open(ctx, "kv_cache");
	unsigned char *big, *small, *other, *plain, *freed;
	void *none = NULL;

	ok(weights && weights == same && cache != weights, "a name is one tag");
	big = with(ctx, weights, 20 * MIB);
	small = with(ctx, weights, 3000);
	freed = with(ctx, weights, 5 * MIB);
	other = with(ctx, cache, 6 * MIB);
	plain = flow_alloc(ctx, 6 * MIB, NULL);
	memset(big, 1, 20 * MIB);
	memset(small, 2, 3000);
	memset(other, 3, 6 * MIB);
	memset(plain, 4, 6 * MIB);
	is_int(asked(ctx, small + 10).tag, weights, "a block says its tag");
	is_int(asked(ctx, plain).tag, 0, "one without has none");
	is_int(glake_tag_suspend(ctx, 0, weights, 0, &did), 0, "suspended");
	is_int((int64_t)did.moved, (20 << 20) + 3000 + (5 << 20), "  bytes that went");
	is_int(glake_tag_get(ctx, 0, weights, &told), 0, "described");
	is_str(told.name, "weights", "  its name");
	is_int(told.suspended, 1, "  it is suspended");
	is_int((int64_t)(told.blocks + told.away), 6, "  with three blocks, all away");
	is_int((int64_t)told.held, 0, "  and no memory");
	is_int(glake_tag_get(ctx, 1, weights, &told), 0, "on the other GPU");
	is_int(told.suspended, 0, "  it is not suspended");
	is_error(glake_fetch(ctx, big, NULL), -EAGAIN, "AGAIN");
	glake_tag_set(ctx, weights, NULL);
	is_error(glake_alloc(ctx, 0, 100, NULL, 0, &none), -EAGAIN, "AGAIN");
	is_int(glake_alloc(ctx, 1, 100, NULL, 0, &none), 0, "the other GPU serves");
	is_int(glake_free(ctx, none, NULL), 0, "freed");
	glake_tag_set(ctx, 0, NULL);
	ok(all_are(other, 3, 6 * MIB) && all_are(plain, 4, 6 * MIB),
		"other blocks are where they were");
	is_int(glake_free(ctx, freed, NULL), 0, "one is freed");
	is_error(glake_free(ctx, freed, NULL), -EINVAL, "DOUBLE_FREE");
	is_int(glake_tag_resume(ctx, 0, weights, &did), 0, "resumed");
	is_int((int64_t)did.moved_blocks, 2, "  blocks that came back");
	ok(all_are(big, 1, 20 * MIB) && all_are(small, 2, 3000), "with what was in them");
	is_int(glake_free(ctx, big, NULL) | glake_free(ctx, small, NULL) |
			glake_free(ctx, other, NULL) | glake_free(ctx, plain, NULL),
		0, "freed");
	is_int(glake_tag_close(ctx, weights), 0, "closed as often");
	is_int(glake_tag_set(ctx, weights, NULL), 0, "it is open still");
	glake_tag_set(ctx, 0, NULL);
	is_int(glake_tag_close(ctx, weights), 0, "as it was opened");
	is_error(glake_tag_set(ctx, weights, NULL), -ESTALE, "STALE");
	ok(tag_open(ctx, "weights") != weights, "the next one has another number");
	flow_close(ctx, 0);
}

static void refused(void)
{
	struct glake *ctx = flow_open(NULL);
	char name[GLAKE_TAG_NAME_MAX + 1];
	uint32_t tag = 7;
	void *ptr;

	memset(name, 'x', sizeof(name));
	name[GLAKE_TAG_NAME_MAX] = 0;
	is_error(glake_tag_open(ctx, NULL, &tag), -EINVAL, "INVAL");
	is_error(glake_tag_open(ctx, "", &tag), -EINVAL, "INVAL");
	is_error(glake_tag_open(ctx, name, &tag), -EINVAL, "INVAL");
	is_error(glake_tag_open(ctx, "a", NULL), -EINVAL, "INVAL");
	is_int(tag, 7, "nothing was written");
	name[GLAKE_TAG_NAME_MAX - 1] = 0;
	tag = tag_open(ctx, name);
	is_error(glake_tag_resume(ctx, 0, tag, NULL), -EINVAL, "INVAL");
	is_error(glake_tag_suspend(ctx, 9, tag, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_tag_suspend(ctx, 0, tag, 2, NULL), -EINVAL, "INVAL");
	is_error(glake_tag_suspend(ctx, 0, tag + 1, 0, NULL), -ESTALE, "STALE");
	is_error(glake_tag_suspend(ctx, 0, 0, 0, NULL), -ESTALE, "STALE");
	is_error(glake_tag_get(ctx, 0, tag, NULL), -EINVAL, "INVAL");
	is_error(glake_tag_limit_set(ctx, 9, tag, 1), -EINVAL, "INVAL");
	is_error(glake_tag_limit_set(ctx, 0, 77, 1), -ESTALE, "STALE");
	ptr = with(ctx, tag, 100);
	is_error(glake_tag_close(ctx, tag), -EBUSY, "BUSY");
	is_int(glake_tag_suspend(ctx, 0, tag, GLAKE_TAG_DROP, NULL), 0, "dropped");
	is_int(glake_free(ctx, ptr, NULL), 0, "freed");
	is_error(glake_tag_close(ctx, tag), -EBUSY, "BUSY");
	is_int(glake_tag_resume(ctx, 0, tag, NULL), 0, "resumed");
	is_int(glake_tag_close(ctx, tag), 0, "closed");
	is_error(glake_tag_close(ctx, tag), -ESTALE, "STALE");
	flow_close(ctx, 0);
	is_error(glake_tag_open(ctx, "a", &tag), -ESTALE, "STALE");
}

/* As many as there may be, and a thousand one after the other. */
static void many(void)
{
	struct glake *ctx = flow_open(NULL);
	uint32_t tags[GLAKE_TAGS_MAX], more;
	void *ptr[GLAKE_TAGS_MAX];
	int torn = 0;
	char name[16];

	for (unsigned i = 0; i < GLAKE_TAGS_MAX; i++) {
		snprintf(name, sizeof(name), "tag %u", i);
		tags[i] = tag_open(ctx, name);
		ptr[i] = with(ctx, tags[i], 1000 * (i + 1));
		if (!ptr[i])
			tap_note("tag %u: %s", i, flow_error().text);
		torn += !ptr[i] || asked(ctx, ptr[i]).tag != tags[i];
	}
	ok(!torn, "as many tags as there may be, with a block each");
	is_error(glake_tag_open(ctx, "one more", &more), -ENOMEM, "LIMIT");
	is_int((int64_t)flow_stats(ctx, 0).tags, GLAKE_TAGS_MAX, "they are counted");
	for (int i = 0; i < GLAKE_TAGS_MAX; i++)
		torn += glake_tag_suspend(ctx, 0, tags[i], 0, NULL);
	is_int((int64_t)flow_stats(ctx, 0).tags_suspended, GLAKE_TAGS_MAX, "suspended");
	is_int((int64_t)flow_stats(ctx, 0).tagged_held, 0, "nothing is held");
	for (int i = 0; i < GLAKE_TAGS_MAX; i++)
		torn += glake_tag_resume(ctx, 0, tags[i], NULL) |
			glake_free(ctx, ptr[i], NULL) | glake_tag_close(ctx, tags[i]);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "again %u", i);
		more = tag_open(ctx, name);
		ptr[0] = with(ctx, more, i % 2 ? 500 : 3 * MIB);
		torn += !ptr[0] || glake_free(ctx, ptr[0], NULL) ||
			glake_tag_close(ctx, more);
	}
	ok(!torn, "a thousand come and go");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "nothing is left of them");
	flow_close(ctx, 0);
}

/* A context that is closed while a tag is suspended, and a child that is forked then. */
static void ends_while_suspended(void)
{
	struct glake *ctx = flow_open(NULL);
	uint32_t tag = tag_open(ctx, "a"), made;
	void *ptr = with(ctx, tag, 9 * MIB);
	pid_t child;

	is_int(glake_tag_suspend(ctx, 0, tag, 0, NULL), 0, "suspended");
	child = flow_fork(60);
	if (!child)
		_exit(glake_tag_resume(ctx, 0, tag, NULL) != -ENODEV ||
			glake_tag_set(ctx, tag, NULL) != -ENODEV ||
			glake_tag_open(ctx, "b", &made) != -ENODEV ||
			glake_tag_limit_set(ctx, 0, made, 1) != -ENODEV ||
			glake_free(ctx, ptr, NULL));
	is_int(flow_wait(child), 0, "a child is told that it is one");
	is_int((int64_t)asked(ctx, ptr).away, 9 << 20, "and changes nothing");
	flow_close(ctx, 1);
}

/* The tag of a thread is its own, and ends with it. */
static void *in_thread(void *arg)
{
	struct glake *ctx = arg;
	uint32_t was = 99, tag = tag_open(ctx, "thread");
	void *ptr = NULL;

	if (glake_tag_set(ctx, tag, &was) || was)
		return NULL;
	ptr = flow_alloc(ctx, 1000, NULL);
	return ptr && asked(ctx, ptr).tag == tag ? ptr : NULL;
}

static void of_threads(void)
{
	struct glake *ctx = flow_open(NULL), *next = flow_open(NULL);
	uint32_t tag = tag_open(ctx, "main"), was = 99;
	void *ptr[3] = {NULL}, *mine;
	pthread_t thread;
	bool same = true;

	glake_tag_set(ctx, tag, NULL);
	for (int i = 0; i < 3; i++) {
		pthread_create(&thread, NULL, in_thread, ctx);
		pthread_join(thread, &ptr[i]);
		same &= ptr[i] != NULL;
	}
	ok(same, "threads begin without a tag, one after the other");
	mine = flow_alloc(ctx, 1000, NULL);
	is_int(asked(ctx, mine).tag, tag, "that of another thread stays");
	is_int(glake_tag_set(next, 0, &was), 0, "another context");
	is_int(was, 0, "knows of none");
	is_int(glake_free(ctx, mine, NULL), 0, "freed");
	mine = flow_alloc(ctx, 1000, NULL);
	is_int(asked(ctx, mine).tag, 0, "a tag in one context ends that in another");
	is_int(glake_free(ctx, mine, NULL), 0, "freed");
	for (int i = 0; i < 3; i++)
		same &= !glake_free(ctx, ptr[i], NULL);
	ok(same, "any thread frees");
	mine = flow_alloc(ctx, 1000, NULL);
	is_int((int64_t)flow_stats(ctx, 0).hits, 1,
		"without a tag it is served from bins");
	glake_free(ctx, mine, NULL);
	flow_close(next, 0);
	flow_close(ctx, 0);
}

/* Beyond the budget of the GPU: in memory of the host in place, until a quiet point. */
static void lies_on_the_host(void)
{
	static const char *const settings[] = {
		"tier.place=host", "pool.budget=32MiB", NULL};
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_returned back = {.sz = sizeof(back)};
	struct glake *ctx = flow_open(settings);
	uint32_t weights = tag_open(ctx, "weights");
	unsigned char *here = with(ctx, weights, 30 * MIB),
		      *there = with(ctx, weights, 20 * MIB);
	unsigned char *small = with(ctx, weights, 3 * MIB);

	memset(here, 1, 30 * MIB);
	memset(there, 2, 20 * MIB);
	memset(small, 3, 3 * MIB);
	is_int((int64_t)asked(ctx, there).placed, 20 << 20,
		"a block of a tag lies on the host");
	is_int(asked(ctx, there).tag, weights, "and says its tag");
	is_int(glake_tag_suspend(ctx, 0, weights, GLAKE_TAG_DROP, &did), 0, "suspended");
	is_int((int64_t)did.dropped, 30 << 20, "  bytes that were dropped");
	is_int((int64_t)did.stayed, 23 << 20, "  bytes that stayed");
	is_error(glake_fetch(ctx, there, NULL), -EAGAIN, "AGAIN");
	is_int(glake_tag_resume(ctx, 0, weights, &did), 0, "resumed");
	is_int((int64_t)did.stayed_blocks, 2, "  blocks that are on the host still");
	is_int(glake_budget_set(ctx, 0, SIZE_MAX), 0, "the GPU has room");
	is_int(glake_quiet(ctx, 0, &back), 0, "at a quiet point");
	is_int((int64_t)back.returned, 23 << 20, "they come");
	ok(all_are(there, 2, 20 * MIB) && all_are(small, 3, 3 * MIB),
		"with what was in them");
	is_int(glake_tag_suspend(ctx, 0, weights, 0, &did), 0, "suspended again");
	is_int((int64_t)did.moved_blocks, 3, "all go");
	is_int(glake_tag_resume(ctx, 0, weights, &did), 0, "and come");
	ok(all_are(there, 2, 20 * MIB) && all_are(small, 3, 3 * MIB), "as they were");
	glake_free(ctx, here, NULL);
	glake_free(ctx, there, NULL);
	glake_free(ctx, small, NULL);
	is_int(glake_tag_close(ctx, weights), 0, "the tag is closed");
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	comes_and_goes();
	refused();
	many();
	ends_while_suspended();
	of_threads();
	lies_on_the_host();
	return tap_done();
}
