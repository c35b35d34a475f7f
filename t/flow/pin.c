/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that others know: pins that keep them where they are, and functions that are told of moves. */
#include "context.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct glake_block asked(struct glake *ctx, const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glake_query(ctx, ptr, &block))
		tap_bail("no block");
	return block;
}

static void pins(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake *ctx = flow_open(NULL);
	char *one = flow_alloc(ctx, 9 * MIB, NULL), *two = flow_alloc(ctx, 9 * MIB, NULL);
	char *small = flow_alloc(ctx, 1000, NULL), *again;
	void *managed = NULL;

	is_error(glake_unpin(ctx, one), -EINVAL, "INVAL");
	is_int(glake_pin(ctx, one), 0, "pinned");
	is_int(glake_pin(ctx, one + 5 * MIB), 0, "once more, from its inside");
	is_int(asked(ctx, one).pins, 2, "they are counted");
	is_error(glake_spill(ctx, one, NULL), -EBUSY, "BUSY");
	is_int(glake_advise(ctx, one, GLAKE_ADVICE_COLD), 0, "whatever is said of it");
	is_error(glake_spill(ctx, one, NULL), -EBUSY, "BUSY");
	is_int(glake_suspend(ctx, 0, &did), 0, "a suspension");
	is_int((int64_t)did.stayed, 9 << 20, "  leaves it where it is");
	is_int((int64_t)asked(ctx, one).away, 0, "  as it says");
	is_error(glake_pin(ctx, two), -EBUSY, "BUSY");
	is_int(glake_unpin(ctx, one), 0, "a pin ends while it is suspended");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	is_error(glake_spill(ctx, one, NULL), -EBUSY, "BUSY");
	is_int(glake_unpin(ctx, one), 0, "the last one ends");
	is_error(glake_unpin(ctx, one), -EINVAL, "INVAL");
	is_int(glake_spill(ctx, one, NULL), 0, "then it moves");
	is_error(glake_pin(ctx, one), -EBUSY, "BUSY");
	is_int(glake_fetch(ctx, one, NULL), 0, "and comes back");
	is_int(glake_pin(ctx, small), 0, "a small block is pinned");
	is_int(glake_pin(ctx, small) | glake_pin(ctx, two), 0, "and another one");
	is_int(glake_free(ctx, small, NULL) | glake_free(ctx, two, NULL), 0,
		"they are freed with their pins");
	is_error(glake_unpin(ctx, small), -EINVAL, "DOUBLE_FREE");
	again = flow_alloc(ctx, 1000, NULL);
	ok(again && !asked(ctx, again).pins, "the next one there has none");
	is_error(glake_unpin(ctx, again), -EINVAL, "INVAL");
	is_error(glake_pin(ctx, &ctx), -EINVAL, "NOT_MINE");
	is_int(glake_alloc(ctx, 0, 1000, NULL, GLAKE_ALLOC_MANAGED, &managed), 0,
		"managed");
	is_error(glake_pin(ctx, managed), -EBUSY, "BUSY");
	is_int(glake_free(ctx, one, NULL) | glake_free(ctx, again, NULL) |
			glake_free(ctx, managed, NULL),
		0, "freed");
	flow_close(ctx, 0);
	is_error(glake_pin(ctx, one), -ESTALE, "STALE");
}

/* A request that lacks room takes cold blocks, and not those that are pinned. */
static void victims(void)
{
	struct glake *ctx = flow_open(NULL);
	void *cold = flow_alloc(ctx, 20 * MIB, NULL), *none = NULL, *pinned;

	pinned = flow_alloc(ctx, 20 * MIB, NULL);
	glake_budget_set(ctx, 0, 44 * MIB);
	is_int(glake_advise(ctx, cold, GLAKE_ADVICE_COLD | GLAKE_ADVICE_DISCARDABLE), 0,
		"cold, and not needed any more");
	is_int(glake_advise(ctx, pinned, GLAKE_ADVICE_COLD), 0, "cold");
	is_int(glake_pin(ctx, pinned), 0, "and pinned");
	is_int(glake_alloc(ctx, 0, 20 * MIB, NULL, 0, &none), 0, "a request");
	is_int((int64_t)asked(ctx, cold).dropped, 20 << 20, "drops the one");
	is_int((int64_t)asked(ctx, pinned).away, 0, "and leaves the other");
	is_int((int64_t)flow_stats(ctx, 0).spilled, 0, "nothing was copied");
	is_int((int64_t)flow_stats(ctx, 0).discarded, 20 << 20, "which is counted");
	is_int(glake_free(ctx, none, NULL), 0, "freed");
	is_int(glake_fetch(ctx, cold, NULL), 0, "it comes back to some memory");
	memset(cold, 5, 20 * MIB);
	is_int((int64_t)asked(ctx, cold).dropped, 0, "and is as others");
	is_error(glake_advise(ctx, cold, GLAKE_ADVICE_PINNED | GLAKE_ADVICE_DISCARDABLE),
		-EINVAL, "INVAL");
	is_error(glake_advise(ctx, cold, 8), -EINVAL, "INVAL");
	is_error(glake_advise(ctx, cold, 3), -EINVAL, "INVAL");
	is_int(glake_free(ctx, cold, NULL) | glake_free(ctx, pinned, NULL), 0, "freed");
	flow_close(ctx, 0);
}

/* As many pages as blocks need. */
static const char *const exact[] = {"policy.target=1.04", NULL};

/* Those of low priority go first, and cold blocks of tags too. */
static void ranks(void)
{
	struct glake *ctx = flow_open(exact);
	void *block[4], *none = NULL;
	uint32_t tag = 0;
	int torn = 0;

	glake_tag_open(ctx, "a", &tag);
	for (int i = 0; i < 4; i++) {
		glake_tag_set(ctx, i == 3 ? tag : 0, NULL);
		block[i] = flow_alloc(ctx, 10 * MIB, NULL);
		torn += glake_advise(ctx, block[i], GLAKE_ADVICE_COLD);
	}
	glake_tag_set(ctx, 0, NULL);
	glake_budget_set(ctx, 0, 42 * MIB);
	is_int(torn, 0, "four cold blocks, one with a tag");
	is_error(glake_advise_priority(ctx, block[0], -1), -EINVAL, "INVAL");
	is_error(glake_advise_priority(ctx, block[0], 8), -EINVAL, "INVAL");
	is_error(glake_advise_priority(ctx, &ctx, 1), -EINVAL, "NOT_MINE");
	is_int(glake_advise_priority(ctx, block[0], 7), 0, "the oldest is worth most");
	for (int i = 0; i < 3; i++) {
		is_int(glake_alloc(ctx, 0, 10 * MIB, NULL, 0, &none), 0, "a request");
		is_int((int64_t)asked(ctx, block[1]).away, 10 << 20, "  the next goes");
		is_int((int64_t)asked(ctx, block[2]).away, i > 0 ? 10 << 20 : 0,
			"  then one");
		is_int((int64_t)asked(ctx, block[0]).away, i > 1 ? 10 << 20 : 0,
			"  then it");
		torn += none == NULL;
	}
	glake_tag_set(ctx, tag, NULL);
	is_int(glake_alloc(ctx, 0, 10 * MIB, NULL, 0, &none), 0,
		"a request with the tag");
	glake_tag_set(ctx, 0, NULL);
	is_int((int64_t)asked(ctx, block[3]).away, 10 << 20,
		"has the memory of another one");
	is_int((int64_t)flow_stats(ctx, 0).victims, 4, "all four are counted");
	flow_close(ctx, 8);
}

/* What a function was told. */
struct notes {
	struct glake *ctx;
	int count, refused, calls;
	char text[512];
	const void *keep; /* not to be moved */
};

static int listen(const struct glake_move *m, void *arg)
{
	static const char *const ways[] = {"away", "back", "in", "out"};
	struct notes *n = arg;
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glake_block block = {.sz = sizeof(block)};
	size_t used = strlen(n->text);
	void *ptr;

	n->count++;
	snprintf(n->text + used, sizeof(n->text) - used, "%s %s %d%s%s; ",
		m->is_over ? "after" : "before", ways[m->way], (int)(m->size >> 20),
		m->tag ? " tagged" : "", m->err ? " not" : "");
	n->calls += glake_query(n->ctx, m->ptr, &block) != -EBUSY;
	n->calls += glake_stats_get(n->ctx, 0, &stats) != -EBUSY;
	n->calls += glake_alloc(n->ctx, 0, 7 * MIB, NULL, 0, &ptr) != -EBUSY;
	n->calls += glake_free(n->ctx, m->ptr, NULL) != -EBUSY;
	n->calls += glake_move_unwatch(n->ctx, 1) != -EBUSY;
	n->refused += !m->is_over && m->ptr == n->keep;
	return !m->is_over && m->ptr == n->keep ? -1 : 0;
}

static void said(struct notes *n, const char *want, const char *what)
{
	is_str(n->text, want, what);
	is_int(n->calls, 0, "  and may call nothing");
	n->text[0] = 0;
}

static void watches(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake *ctx = flow_open(NULL);
	struct notes first = {.ctx = ctx}, second = {.ctx = ctx};
	uint32_t watch[2], more, tag;
	char *one = flow_alloc(ctx, 9 * MIB, NULL), *two = flow_alloc(ctx, 5 * MIB, NULL);
	char *tagged, *small[2];

	is_error(glake_move_watch(ctx, NULL, NULL, watch), -EINVAL, "INVAL");
	is_error(glake_move_watch(ctx, listen, NULL, NULL), -EINVAL, "INVAL");
	is_int(glake_move_watch(ctx, listen, &first, &watch[0]) |
			glake_move_watch(ctx, listen, &second, &watch[1]),
		0, "two functions are told");
	memset(one, 1, 9 * MIB);
	is_int(glake_spill(ctx, one, NULL), 0, "a block goes");
	said(&first, "before away 9; after away 9; ", "  one is told");
	said(&second, "before away 9; after away 9; ", "  and the other");
	is_error(glake_spill(ctx, one, NULL), -EALREADY, "BUSY");
	is_int(glake_fetch(ctx, one, NULL), 0, "it comes back");
	said(&first, "before back 9; after back 9; ", "  which is told");
	second.keep = one;
	second.text[0] = 0;
	is_error(glake_spill(ctx, one, NULL), -EBUSY, "BUSY");
	said(&first, "before away 9; after away 9 not; ", "the first hears of it");
	said(&second, "before away 9; ", "that the second wants it to stay");
	ok(!asked(ctx, one).away && one[9 * MIB - 1] == 1, "which it does");
	is_int(glake_suspend(ctx, 0, &did), 0, "a suspension");
	is_int((int64_t)did.stayed, 9 << 20, "leaves it there");
	is_int((int64_t)did.moved, 5 << 20, "and takes the other");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	first.text[0] = second.text[0] = 0;
	is_int(glake_tag_open(ctx, "a", &tag) | glake_tag_set(ctx, tag, NULL), 0,
		"a tag");
	tagged = flow_alloc(ctx, 3 * MIB, NULL);
	small[0] = flow_alloc(ctx, 1000, NULL);
	small[1] = flow_alloc(ctx, 2000, NULL);
	glake_tag_set(ctx, 0, NULL);
	is_int(glake_tag_suspend(ctx, 0, tag, 0, NULL), 0, "is suspended");
	said(&first,
		"before away 3 tagged; after away 3 tagged; "
		"before away 0 tagged; before away 0 tagged; "
		"after away 0 tagged; after away 0 tagged; ",
		"  with small blocks together");
	is_int(glake_tag_resume(ctx, 0, tag, NULL), 0, "resumed");
	second.keep = small[1];
	first.text[0] = second.text[0] = 0;
	is_int(glake_tag_suspend(ctx, 0, tag, GLAKE_TAG_DROP, &did), 0, "dropped");
	is_int((int64_t)did.stayed_blocks, 2, "  one small one keeps those beside it");
	said(&first,
		"before away 3 tagged; after away 3 tagged; "
		"before away 0 tagged; before away 0 tagged; "
		"after away 0 tagged not; after away 0 tagged not; ",
		"  which is told");
	is_int(glake_tag_resume(ctx, 0, tag, NULL), 0, "resumed");
	is_int(glake_move_unwatch(ctx, watch[1]), 0, "one is told no more");
	is_error(glake_move_unwatch(ctx, watch[1]), -EINVAL, "INVAL");
	first.text[0] = second.text[0] = 0;
	is_int(glake_spill(ctx, two, NULL), 0, "a block goes");
	said(&second, "", "  it is not told");
	said(&first, "before away 5; after away 5; ", "  the other is");
	for (int i = 1; i < GLAKE_MOVE_WATCHES_MAX; i++)
		glake_move_watch(ctx, listen, &first, &more);
	is_error(glake_move_watch(ctx, listen, &first, &more), -ENOMEM, "LIMIT");
	is_int(glake_move_unwatch(ctx, more), 0, "the last one ends");
	is_int(glake_free(ctx, one, NULL) | glake_free(ctx, two, NULL) |
			glake_free(ctx, tagged, NULL) | glake_free(ctx, small[0], NULL) |
			glake_free(ctx, small[1], NULL),
		0, "freed");
	flow_close(ctx, 0);
	is_error(glake_move_watch(ctx, listen, &first, &more), -ESTALE, "STALE");
}

/* In place on the host, to the GPU. */
static void come_in(void)
{
	static const char *const settings[] = {
		"tier.place=host", "policy.target=1.04", NULL};
	struct glake *ctx = flow_open(settings);
	struct notes notes = {.ctx = ctx};
	char *here = flow_alloc(ctx, 20 * MIB, NULL), *there[2];
	struct glake_returned did = {.sz = sizeof(did)};
	uint32_t watch;

	glake_budget_set(ctx, 0, 22 * MIB);
	there[0] = flow_alloc(ctx, 8 * MIB, NULL);
	there[1] = flow_alloc(ctx, 4 * MIB, NULL);
	ok(here && there[0] && there[1] && asked(ctx, there[1]).placed == 4 * MIB,
		"blocks for which the GPU has no room");
	memset(there[0], 6, 8 * MIB);
	memset(there[1], 7, 4 * MIB);
	glake_budget_set(ctx, 0, SIZE_MAX);
	glake_move_watch(ctx, listen, &notes, &watch);
	notes.keep = there[0];
	is_error(glake_fetch(ctx, there[0], NULL), -EBUSY, "BUSY");
	said(&notes, "before in 8; ", "one is kept there");
	is_int((int64_t)asked(ctx, there[0]).placed, 8 << 20, "where it was");
	is_int(glake_quiet(ctx, 0, &did), 0, "a quiet point");
	is_int((int64_t)did.left_blocks, 1, "leaves it");
	is_int((int64_t)did.returned_blocks, 1, "and not the other");
	ok(there[1][4 * MIB - 1] == 7 && there[0][0] == 6, "with what was in them");
	is_int(glake_pin(ctx, there[0]), 0, "it is pinned");
	notes.keep = NULL;
	is_error(glake_fetch(ctx, there[0], NULL), -EBUSY, "BUSY");
	is_int(glake_unpin(ctx, there[0]), 0, "and is not");
	notes.text[0] = 0;
	is_int(glake_fetch(ctx, there[0], NULL), 0, "then it comes");
	said(&notes, "before in 8; after in 8; ", "which is told");
	is_int(glake_free(ctx, here, NULL) | glake_free(ctx, there[0], NULL) |
			glake_free(ctx, there[1], NULL),
		0, "freed");
	flow_close(ctx, 0);
}

/* What is away does not move in place: nobody is told of it, nor asked, and it keeps nothing here. */
static void is_away(void)
{
	struct glake *ctx = flow_open(NULL);
	struct notes notes = {.ctx = ctx};
	struct glake_suspended did = {.sz = sizeof(did)};
	uint32_t watch;
	char *list[3];
	int torn = 0;

	for (int i = 0; i < 3; i++) {
		list[i] = flow_alloc(ctx, 3 * MIB / 2, NULL);
		memset(list[i], i, 3 * MIB / 2);
	}
	is_int(glake_spill(ctx, list[1], NULL), 0, "one of three goes away");
	is_int(glake_advise(ctx, list[1], GLAKE_ADVICE_PINNED), 0, "and is pinned there");
	notes.keep = list[1];
	glake_move_watch(ctx, listen, &notes, &watch);
	is_int(glake_suspend_in_place(ctx, 0, &did), 0, "a suspension in place");
	is_int((int64_t)did.moved_blocks, 2, "  takes those beside it");
	is_int((int64_t)did.stayed, 0, "  and leaves none");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	is_int(notes.refused, 0, "nobody was asked about the one that is away");
	is_int(notes.count, 8, "but of the others, before and after, there and back");
	is_int(glake_move_unwatch(ctx, watch), 0, "unwatched");
	is_int((int64_t)asked(ctx, list[1]).away, 3 << 19, "it is away still");
	is_int(glake_fetch(ctx, list[1], NULL), 0, "and is fetched");
	for (int i = 0; i < 3; i++) {
		torn += list[i][0] != i || list[i][3 * MIB / 2 - 1] != i;
		torn += glake_free(ctx, list[i], NULL) != 0;
	}
	is_int(torn, 0, "all have what was written");
	flow_close(ctx, 0);
}

/* A function that is running is waited for. */
static int slow(const struct glake_move *m, void *arg)
{
	int *inside = arg;

	__atomic_store_n(inside, 1, __ATOMIC_SEQ_CST);
	usleep(m->is_over ? 0 : 50000);
	__atomic_store_n(inside, 0, __ATOMIC_SEQ_CST);
	return 0;
}

struct one {
	struct glake *ctx;
	void *ptr;
};

static void *spill(void *arg)
{
	struct one *one = arg;

	return glake_spill(one->ctx, one->ptr, NULL) ? one : NULL;
}

static void is_waited_for(void)
{
	struct glake *ctx = flow_open(NULL);
	struct one one = {ctx, flow_alloc(ctx, 9 * MIB, NULL)};
	int inside = 0;
	pthread_t thread;
	uint32_t watch;
	void *failed;

	glake_move_watch(ctx, slow, &inside, &watch);
	pthread_create(&thread, NULL, spill, &one);
	while (!__atomic_load_n(&inside, __ATOMIC_SEQ_CST))
		usleep(100);
	is_int(glake_move_unwatch(ctx, watch), 0, "a function that is running is ended");
	is_int(__atomic_load_n(&inside, __ATOMIC_SEQ_CST), 0, "after it has returned");
	pthread_join(thread, &failed);
	ok(!failed && asked(ctx, one.ptr).away, "the move goes on");
	glake_free(ctx, one.ptr, NULL);
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	pins();
	victims();
	ranks();
	watches();
	come_in();
	is_away();
	is_waited_for();
	return tap_done();
}
