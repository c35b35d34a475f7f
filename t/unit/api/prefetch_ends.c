/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hints whose block comes back by another way, may not come, or goes again, and cold blocks that may not
 * go. */
#include "tier_parts.h"

#define SMALL  ((size_t)32 << 10)
#define SMALLS 120

static int hint(char *p, struct glake_ticket **ret)
{
	return glake_prefetch(ctx, p, a, 0, 0, ret);
}

static uint64_t away_of(void *p)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glake_query(ctx, p, &block))
		tap_bail("no block");
	return block.away;
}

static uint64_t advice_of(void *p)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glake_query(ctx, p, &block))
		tap_bail("no block");
	return block.advice;
}

static uint32_t open_tag(void)
{
	uint32_t tag = 0, was;

	if (glake_tag_open(ctx, "kv", &tag) || glake_tag_set(ctx, tag, &was))
		tap_bail("no tag");
	return tag;
}

static void leave_tag(void)
{
	uint32_t was;

	if (glake_tag_set(ctx, 0, &was))
		tap_bail("no tag");
}

/* Small ones share pages, of which others are neighbours. */
static void none_of_a_suspended_tag(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_ticket *ticket = NULL;
	void *small[SMALLS];
	char *big, *large;
	uint32_t tag;
	int torn = 0;

	open_soft("soft.streams=stepped", NULL);
	tag = open_tag();
	for (int i = 0; i < SMALLS; i++) {
		torn += glake_alloc(ctx, 0, SMALL, a, 0, &small[i]) != 0;
		for (size_t k = 0; !torn && k < SMALL / sizeof(int); k++)
			((int *)small[i])[k] = i;
	}
	ok(!torn, "small blocks");
	big = give(7);
	large = give_away(8);
	leave_tag();
	is_int(glake_pin(ctx, big), 0, "one that stays");
	glake_budget_set(ctx, 0, SIZE);
	is_int(hint(large, &ticket), 0, "a hint waits for room");
	is_int(glake_tag_suspend(ctx, 0, tag, 0, &did), 0, "and the tag is suspended");
	glake_budget_set(ctx, 0, (size_t)1 << 30);
	is_int(state_of(ticket), GLAKE_TICKET_CANCELLED,
		"which ends it when there is room");
	is_int(ask(ticket).error, -ENOENT, "  its error");
	glake_ticket_close(ticket);
	ok(is_away(large), "its block is away");
	for (int i = 0; i < SMALLS; i++) {
		if (away_of(small[i]))
			torn += hint(small[i], NULL) != -EAGAIN;
	}
	ok(!torn, "no small block comes for itself");
	is_int(hint(large, NULL), -EAGAIN, "nor a large one without its tag");
	is_int(error_class(), GLAKE_ERROR_AGAIN, "  its class");
	run();
	is_int(glake_tag_resume(ctx, 0, tag, &did), 0, "the tag goes on");
	run();
	for (int i = 0; i < SMALLS; i++) {
		torn += away_of(small[i]) != 0;
		for (size_t k = 0; !torn && k < SMALL / sizeof(int); k++)
			torn += ((int *)small[i])[k] != i;
	}
	ok(!torn, "with each small block");
	ok(has_mark(big, 7), "and the one that stayed");
	if (is_away(large))
		glake_fetch(ctx, large, a);
	run();
	ok(has_mark(large, 8), "the large one is whole");
	glake_unpin(ctx, big);
	glake_free(ctx, big, a);
	glake_free(ctx, large, a);
	for (int i = 0; i < SMALLS; i++)
		glake_free(ctx, small[i], a);
	close_soft();
}

/* What a suspension sent comes back without the hint, which must not stay behind. */
static void ends_with_a_resumption(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_ticket *ticket = NULL;
	char *p[4];
	int torn = 0;

	open_soft("soft.streams=stepped", NULL);
	for (int i = 0; i < 4; i++)
		p[i] = give(i);
	/* no more, so that the hint could not be carried out */
	glake_budget_set(ctx, 0, 4 * SIZE + 2 * MIB);
	is_int(glake_suspend(ctx, 0, &did), 0, "the GPU is suspended");
	is_int(hint(p[0], &ticket), 0, "a hint for a block");
	is_int(state_of(ticket), GLAKE_TICKET_QUEUED, "waits");
	is_int(glake_resume(ctx, 0, &did), 0, "the GPU goes on");
	run();
	is_int(glake_fetch(ctx, p[0], a), -EALREADY, "with the block");
	glake_budget_set(ctx, 0, (size_t)1 << 30);
	is_int(state_of(ticket), GLAKE_TICKET_CANCELLED, "which ends the hint");
	is_int(ask(ticket).error, -EALREADY, "  its error");
	glake_ticket_close(ticket);
	is_int((int64_t)stats().prefetch_useless, 1, "it was useless");
	is_int((int64_t)stats().prefetch_queued, 0, "none waits");
	for (int round = 0; round < 3; round++) {
		for (int i = 1; i < 4; i++)
			torn += glake_spill(ctx, p[i], a) != 0;
		run();
		for (int i = 1; i < 4; i++)
			torn += hint(p[i], NULL) != 0;
		run();
	}
	ok(!torn, "hints for others come and go");
	is_int((int64_t)stats().prefetches, 9, "each one is carried out");
	for (int i = 0; i < 4; i++) {
		int err = glake_fetch(ctx, p[i], a);

		run();
		torn += err != (i ? 0 : -EALREADY) || !has_mark(p[i], i) ||
			glake_free(ctx, p[i], a);
	}
	ok(!torn, "nothing was lost");
	close_soft();
}

/* Nothing is copied of a tag that is dropped. */
static void ends_with_a_drop(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	uint32_t tag;
	char *p;

	open_soft("soft.streams=stepped", NULL);
	tag = open_tag();
	p = give_away(1);
	leave_tag();
	is_int(hint(p, NULL), 0, "a block comes");
	run();
	is_int(glake_tag_suspend(ctx, 0, tag, GLAKE_TAG_DROP, &did), 0, "it is dropped");
	is_int((int64_t)did.dropped, SIZE, "all of it");
	is_int((int64_t)stats().prefetch_useless, 1, "it came for nothing");
	is_int(glake_tag_resume(ctx, 0, tag, &did), 0, "it is back");
	run();
	is_int(glake_fetch(ctx, p, a), -EALREADY, "and no fetch meets the hint");
	is_int(glake_spill(ctx, p, a), 0, "it goes");
	run();
	is_int(hint(p, NULL), 0, "and is hinted anew");
	run();
	is_int(glake_fetch(ctx, p, a), 0, "and fetched");
	glake_free(ctx, p, a);
	close_soft();
}

/* A hint makes a block cold, and a fetch ends that: what else was said of it stays. */
static void keeps_what_was_said(void)
{
	struct glake_ticket *ticket = NULL;
	char *p;
	void *other = NULL;

	open_soft("soft.streams=stepped",
		(const char *const[]){"tier.prefetch_spare=1", NULL});
	p = give(3);
	is_int(glake_advise(ctx, p, GLAKE_ADVICE_DISCARDABLE), 0, "a discardable block");
	glake_spill(ctx, p, a);
	run();
	is_int(hint(p, &ticket), 0, "that was sent away is hinted");
	run();
	is_int(advice_of(p), GLAKE_ADVICE_COLD | GLAKE_ADVICE_DISCARDABLE,
		"and is cold as well");
	glake_budget_set(ctx, 0, SIZE + 4 * MIB);
	is_int(glake_alloc(ctx, 0, SIZE, a, 0, &other), 0, "others need the room");
	ok(is_away(p), "so that it goes again");
	run();
	glake_free(ctx, other, a);
	glake_ticket_close(ticket);
	is_int(hint(p, NULL), 0, "and comes");
	run();
	is_int(glake_fetch(ctx, p, a), 0, "and is fetched");
	run();
	ok(has_mark(p, 3), "with what was in it: the program did not call it cold");
	is_int(advice_of(p), GLAKE_ADVICE_DISCARDABLE, "and is discardable");
	is_int(glake_advise(ctx, p, GLAKE_ADVICE_DISCARDABLE | GLAKE_ADVICE_COLD), 0,
		"one that is cold by its word");
	glake_spill(ctx, p, a);
	run();
	is_int(hint(p, NULL), 0, "comes");
	run();
	is_int(glake_alloc(ctx, 0, SIZE, a, 0, &other), 0, "and goes for others");
	is_int((int64_t)stats().spills, 3, "without a copy");
	ok(is_away(p), "so that nothing of it is kept");
	run();
	glake_free(ctx, other, a);
	glake_fetch(ctx, p, a);
	glake_advise(ctx, p, GLAKE_ADVICE_DISCARDABLE);
	glake_spill(ctx, p, a);
	run();
	is_int(hint(p, NULL), 0, "one that comes");
	run();
	glake_advise(ctx, p, GLAKE_ADVICE_DISCARDABLE | GLAKE_ADVICE_COLD);
	is_int(glake_alloc(ctx, 0, SIZE, a, 0, &other), 0, "and is called cold then");
	is_int((int64_t)stats().spills, 4, "goes without a copy too");
	glake_free(ctx, other, a);
	glake_free(ctx, p, a);
	close_soft();
}

/* A fetch for which there is no room changes nothing. */
static void outlives_a_fetch_that_fails(void)
{
	struct glake_ticket *ticket = NULL;
	char *p, *q;

	open_soft("soft.streams=stepped", NULL);
	p = give_away(5);
	q = give(6);
	glake_trim(ctx, 0, 0, NULL);
	glake_budget_set(ctx, 0, SIZE + 2 * MIB);
	is_int(hint(p, &ticket), 0, "a hint waits");
	is_int(glake_fetch(ctx, p, a), -ENOMEM, "there is no room for its block");
	is_int(state_of(ticket), GLAKE_TICKET_QUEUED, "and it waits on");
	is_int((int64_t)stats().prefetch_late, 0, "it is not late yet");
	glake_budget_set(ctx, 0, (size_t)1 << 30);
	is_int(state_of(ticket), GLAKE_TICKET_COPYING, "until there is");
	run();
	is_int(glake_fetch(ctx, p, a), 0, "it is fetched");
	run();
	ok(has_mark(p, 5), "whole");
	glake_ticket_close(ticket);
	glake_free(ctx, p, a);
	glake_free(ctx, q, a);
	close_soft();
}

/* Cold blocks that may not go, or are away, do not make up what a request lacks. */
static void none_goes_in_vain(void)
{
	char *cold, *pinned[2], *away;
	void *p = NULL;

	open_soft("soft.streams=stepped", NULL);
	cold = give(1);
	for (int i = 0; i < 2; i++)
		pinned[i] = give(2 + i);
	away = give_away(4);
	glake_trim(ctx, 0, 0, NULL);
	glake_budget_set(ctx, 0, 3 * SIZE + 2 * MIB);
	is_int(glake_advise(ctx, cold, GLAKE_ADVICE_COLD), 0, "a cold block");
	is_int(glake_advise(ctx, away, GLAKE_ADVICE_COLD), 0, "one that is away");
	for (int i = 0; i < 2; i++) {
		glake_pin(ctx, pinned[i]);
		glake_advise(ctx, pinned[i], GLAKE_ADVICE_COLD);
	}
	is_int(glake_alloc(ctx, 0, 2 * SIZE, a, 0, &p), -ENOMEM, "a request of two");
	is_int(error_class(), GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	ok(!is_away(cold), "for which the one that may go does not go in vain");
	is_int(glake_alloc(ctx, 0, SIZE, a, 0, &p), 0, "a request of one");
	ok(is_away(cold), "for which it goes");
	run();
	glake_free(ctx, p, a);
	glake_free(ctx, cold, a);
	glake_free(ctx, away, a);
	for (int i = 0; i < 2; i++) {
		glake_unpin(ctx, pinned[i]);
		glake_free(ctx, pinned[i], a);
	}
	close_soft();
}

/* A block that was brought back, and went to the host in place before it was fetched. */
static void comes_from_the_host(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_block block = {.sz = sizeof(block)};
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give_away(9);
	is_int(hint(p, NULL), 0, "a block comes");
	run();
	is_int(glake_suspend_in_place(ctx, 0, &did), 0, "the GPU is suspended in place");
	is_int(glake_resume_lazy(ctx, 0, &did), 0, "and goes on");
	ok(!glake_query(ctx, p, &block) && block.placed == SIZE,
		"with the block on the host");
	is_int(glake_fetch(ctx, p, a), 0, "it is fetched");
	run();
	ok(!glake_query(ctx, p, &block) && !block.placed && has_mark(p, 9),
		"and is on the GPU, whole");
	glake_free(ctx, p, a);
	close_soft();
}

int main(void)
{
	tap_plan_later();
	none_of_a_suspended_tag();
	ends_with_a_resumption();
	if (tap_on_valgrind()) {
		tap_skip("the other scenes", "each context takes 2 s under valgrind");
		return tap_done();
	}
	ends_with_a_drop();
	keeps_what_was_said();
	outlives_a_fetch_that_fails();
	none_goes_in_vain();
	comes_from_the_host();
	return tap_done();
}
