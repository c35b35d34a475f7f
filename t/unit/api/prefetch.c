/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hints that a block will be wanted, by the public functions. */
#include "tier_parts.h"

#include <time.h>

static int hint(char *p, int64_t deadline, int priority, struct glake_ticket **ret)
{
	return glake_prefetch(ctx, p, a, deadline, priority, ret);
}

static void comes_ahead(void)
{
	struct glake_ticket *ticket = NULL;
	struct glake_block block = {.sz = sizeof(block)};
	uint64_t before;
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give_away(1);
	is_int(hint(p, 0, 0, &ticket), 0, "a block will be wanted");
	ok(!is_away(p), "and is on its way");
	ok(!glake_query(ctx, p, &block) && block.advice == GLAKE_ADVICE_COLD,
		"it may go again");
	ok(ask(ticket).state == GLAKE_TICKET_COPYING && ask(ticket).bytes == SIZE &&
			ask(ticket).kind == GLAKE_TICKET_PREFETCH && ask(ticket).begun_ns,
		"which is told");
	is_int(hint(p, 0, 0, NULL), -EALREADY, "it comes once");
	run();
	is_int(glake_ticket_wait(ticket, -1), 0, "it is here");
	before = copies();
	is_int(glake_fetch(ctx, p, a), 0, "a fetch has it");
	ok(copies() == before, "without a copy");
	ok(!glake_query(ctx, p, &block) && block.advice == GLAKE_ADVICE_NORMAL,
		"it stays");
	work(p);
	run();
	is_int(glake_fetch(ctx, p, a), -EALREADY, "which ends what the hint said");
	is_int((int64_t)stats().prefetches, 1, "one came");
	is_int((int64_t)stats().prefetch_early, 1, "in time");
	ok(!stats().prefetch_late && !stats().prefetch_useless &&
			!stats().prefetch_queued,
		"and all of it was of use");
	glake_ticket_close(ticket);
	glake_free(ctx, p, a);
	close_soft();
}

/* A fetch before the copy has ended puts its stream behind that. */
static void is_late(void)
{
	struct glake_ticket *ticket = NULL;
	uint64_t before;
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give_away(7);
	is_int(hint(p, 0, 0, &ticket), 0, "a hint");
	before = copies();
	is_int(glake_fetch(ctx, p, a), 0, "and the fetch, too soon");
	ok(copies() == before, "which copies nothing");
	work(p);
	run();
	ok(has_mark(p, 7), "work goes behind the copy");
	is_int(glake_ticket_wait(ticket, -1), 0, "which has ended");
	is_int((int64_t)stats().prefetch_late, 1, "late");
	ok(!stats().prefetch_early, "and not early");
	glake_ticket_close(ticket);
	is_int(glake_spill(ctx, p, a), 0, "it goes again");
	run();
	is_int(hint(p, 1, 0, &ticket), 0, "a deadline that has passed");
	is_int(state_of(ticket), GLAKE_TICKET_CANCELLED, "ends a hint");
	is_int(ask(ticket).error, -ETIMEDOUT, "  its error");
	is_int(glake_ticket_wait(ticket, -1), -ECANCELED, "which who waits is told");
	is_int(error_class(), GLAKE_ERROR_AGAIN, "  its class");
	is_int((int64_t)stats().prefetch_useless, 1, "it was useless");
	ok(is_away(p), "the block is where it was");
	glake_ticket_close(ticket);
	is_int(hint(p, in_seconds(1000), 0, &ticket), 0, "one that has not");
	run();
	is_int(glake_ticket_wait(ticket, -1), 0, "is kept");
	is_int((int64_t)stats().prefetch_early, 1, "which counts when it has ended");
	glake_free(ctx, p, a);
	is_int((int64_t)stats().prefetch_useless, 2, "nobody had the block");
	glake_ticket_close(ticket);
	close_soft();
}

/* What the driver may do later the hint waits for. */
static void waits_on(void)
{
	static const char *const errors[] = {"EBUSY", "EAGAIN"};

	for (int i = 0; i < 2; i++) {
		struct glake_ticket *ticket = NULL;
		char rule[64];
		char *p;

		open_soft("soft.streams=stepped", NULL);
		p = give_away(3);
		run();
		snprintf(rule, sizeof(rule), "copy:from=1:err=%s", errors[i]);
		glk_fault_set(context->drv, rule);
		is_int(hint(p, 0, 0, &ticket), 0, "a hint");
		is_int(state_of(ticket), GLAKE_TICKET_QUEUED, errors[i]);
		glk_fault_set(context->drv, "off");
		is_int(glake_fetch(ctx, p, a), 0, "the block is had");
		run();
		ok(has_mark(p, 3), "whole");
		glake_ticket_close(ticket);
		glake_free(ctx, p, a);
		close_soft();
	}
}

/* One at a time, so that the order is seen. */
static void goes_by_deadline(void)
{
	static const int want[] = {0, 4, 2, 3, 1, 5};
	static const struct {
		int seconds, priority;
	} with[] = {{0, 0}, {900, 0}, {600, 5}, {600, 1}, {300, -3}, {0, 9}};
	struct glake_ticket *ticket[6];
	int64_t base;
	char *p[6];
	int torn = 0;

	open_soft("soft.streams=stepped",
		(const char *const[]){"tier.prefetch_window=1", NULL});
	for (int i = 0; i < 6; i++)
		p[i] = give_away(i);
	base = in_seconds(0);
	for (int i = 0; i < 6; i++)
		torn += hint(p[i],
				with[i].seconds
					? base + with[i].seconds * INT64_C(1000000000)
					: 0,
				with[i].priority, &ticket[i]) != 0;
	ok(!torn, "six hints");
	is_int((int64_t)stats().prefetch_queued, 5, "one is on its way, the others wait");
	for (int i = 0; i < 6; i++) {
		for (int k = 0; k < 6; k++) {
			int state = state_of(ticket[want[k]]);

			torn += state !=
				(k < i			 ? GLAKE_TICKET_DONE
						: k == i ? GLAKE_TICKET_COPYING
							 : GLAKE_TICKET_QUEUED);
		}
		run();
		torn += glake_ticket_wait(ticket[want[i]], 0) != 0;
	}
	ok(!torn, "they come by deadline, then priority, then age");
	for (int i = 0; i < 6; i++) {
		torn += glake_fetch(ctx, p[i], a) != 0;
		run();
		torn += !has_mark(p[i], i) || glake_free(ctx, p[i], a) ||
			glake_ticket_close(ticket[i]);
	}
	ok(!torn, "whole");
	is_int((int64_t)stats().prefetches, 6, "all of them");
	close_soft();
}

/* No request is refused for them. */
static void leaves_room(void)
{
	struct glake_ticket *one = NULL, *two = NULL;
	char *p, *q;
	void *others[3];
	uint64_t spills;

	open_soft("soft.streams=stepped",
		(const char *const[]){"tier.prefetch_spare=6MiB", NULL});
	glake_budget_set(ctx, 0, 3 * SIZE + 4 * MIB);
	p = give_away(1);
	q = give_away(2);
	is_int(glake_alloc(ctx, 0, SIZE, a, 0, &others[0]), 0, "a block");
	is_int(hint(p, 0, 1, &one), 0, "one will be wanted");
	is_int(hint(q, 0, 0, &two), 0, "and another");
	is_int(state_of(one), GLAKE_TICKET_COPYING, "the one has room");
	is_int(state_of(two), GLAKE_TICKET_QUEUED, "the other would take what is left");
	is_int(glake_ticket_wait(two, 200000), -ETIMEDOUT, "and waits");
	run();
	is_int(glake_ticket_wait(one, -1), 0, "the first is here");
	spills = stats().spills;
	is_int(glake_alloc(ctx, 0, SIZE, a, 0, &others[1]), 0,
		"there is room for a request");
	is_int((int64_t)(stats().spills - spills), 0, "beside it");
	is_int(glake_alloc(ctx, 0, SIZE, a, 0, &others[2]), 0, "and for another");
	is_int((int64_t)(stats().spills - spills), 1,
		"as what nobody has asked for goes again");
	ok(is_away(p), "it is away");
	is_int((int64_t)stats().prefetch_useless, 1, "and came for nothing");
	run();
	is_int(glake_fetch(ctx, p, a), -ENOMEM, "there is no room for it");
	is_int(state_of(two), GLAKE_TICKET_QUEUED, "nor for the hint");
	for (int i = 0; i < 3; i++)
		glake_free(ctx, others[i], a);
	is_int(state_of(two), GLAKE_TICKET_COPYING,
		"until blocks are freed and somebody calls");
	run();
	is_int(glake_fetch(ctx, q, a), 0, "it is fetched");
	is_int(glake_fetch(ctx, p, a), 0, "and so is the first");
	run();
	ok(has_mark(p, 1) && has_mark(q, 2), "nothing was lost");
	glake_ticket_close(one);
	glake_ticket_close(two);
	glake_free(ctx, p, a);
	glake_free(ctx, q, a);
	close_soft();
}

/* The hint waits, since there is no room, and is overtaken. */
static void stops_what_is_useless(void)
{
	struct glake_ticket *ticket = NULL, *other = NULL;
	char *p;

	open_soft("soft.streams=stepped",
		(const char *const[]){"tier.prefetch_spare=900MiB", NULL});
	glake_budget_set(ctx, 0, 200 * MIB);
	p = give_away(1);
	is_int(hint(p, 0, 0, &ticket), 0, "a hint waits");
	is_int(glake_ticket_cancel(ticket), 0, "it is cancelled");
	is_int(state_of(ticket), GLAKE_TICKET_CANCELLED, "which is told");
	is_int(ask(ticket).error, -ECANCELED, "  its error");
	is_int(glake_ticket_cancel(ticket), -EBUSY, "once");
	glake_ticket_close(ticket);
	is_int(glake_ticket_cancel(ticket), -ESTALE, "and not when it is closed");
	is_int(hint(p, 0, 0, &ticket), 0, "another one");
	is_int(hint(p, 0, 5, &other), 0, "and one more for the same block");
	is_int(state_of(ticket), GLAKE_TICKET_CANCELLED, "which takes its place");
	glake_ticket_close(ticket);
	is_int(glake_fetch(ctx, p, a), 0, "the program is faster");
	is_int(state_of(other), GLAKE_TICKET_CANCELLED, "which ends it");
	is_int((int64_t)stats().prefetch_late, 1, "it was late");
	glake_ticket_close(other);
	is_int(glake_spill(ctx, p, a), 0, "it goes again");
	is_int(hint(p, in_seconds(5000), 0, &ticket), 0, "a hint for later");
	is_int(glake_fetch(ctx, p, a), 0, "that is not waited for");
	is_int((int64_t)stats().prefetch_late, 1, "is not late");
	glake_ticket_close(ticket);
	glake_spill(ctx, p, a);
	is_int(hint(p, 0, 0, &ticket), 0, "one for a block");
	is_int(glake_free(ctx, p, a), 0, "that is freed");
	is_int(state_of(ticket), GLAKE_TICKET_CANCELLED, "ends with it");
	is_int((int64_t)stats().prefetch_useless, 4, "all that came to nothing");
	ok(!stats().prefetches && !stats().prefetch_queued, "and nothing moved");
	glake_ticket_close(ticket);
	close_soft();
}

/* Freed, sent away and suspended while it is copied. */
static void under_way(void)
{
	struct glake_ticket *ticket = NULL, *waits = NULL;
	struct glake_suspended did = {.sz = sizeof(did)};
	char *p, *q;

	open_soft("soft.streams=stepped",
		(const char *const[]){"tier.prefetch_window=1", NULL});
	p = give_away(1);
	is_int(hint(p, 0, 0, &ticket), 0, "a block comes");
	is_int(glake_ticket_cancel(ticket), -EBUSY, "which cannot be stopped");
	is_int(glake_free(ctx, p, a), 0, "it is freed meanwhile");
	run();
	is_int(glake_ticket_wait(ticket, -1), 0, "its copy ends all the same");
	is_int((int64_t)stats().prefetch_useless, 1, "for nothing");
	glake_ticket_close(ticket);
	p = give_away(3);
	q = give_away(4);
	is_int(hint(p, 0, 0, &ticket), 0, "another one");
	is_int(hint(q, 0, 0, &waits), 0, "and one behind it");
	is_int(glake_spill(ctx, p, a), 0, "it is sent away again");
	is_int(hint(p, 0, 0, NULL), 0, "and hinted anew");
	run();
	is_int(glake_ticket_wait(ticket, -1), 0, "the first copy has ended");
	is_int(glake_suspend(ctx, 0, &did), 0, "the GPU is suspended");
	ok(is_away(p) && is_away(q), "with all that came");
	glake_ticket_close(ticket);
	glake_ticket_close(waits);
	is_int(hint(q, 0, 0, &waits), 0, "a hint may be given");
	is_int(state_of(waits), GLAKE_TICKET_QUEUED, "and waits");
	is_int(glake_resume(ctx, 0, &did), 0, "the GPU goes on");
	run();
	is_int(glake_ticket_wait(waits, -1), is_away(q) ? 0 : -ECANCELED,
		"and what is away by then comes");
	glake_fetch(ctx, p, a);
	glake_fetch(ctx, q, a);
	run();
	ok(has_mark(p, 3) && has_mark(q, 4), "nothing was lost");
	glake_ticket_close(waits);
	glake_free(ctx, p, a);
	glake_free(ctx, q, a);
	close_soft();
}

static void refuses(void)
{
	struct glake_ticket *ticket = NULL;
	void *small = NULL;
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give(1);
	glake_alloc(ctx, 0, 600, a, 0, &small);
	is_int(hint(p, 0, 0, &ticket), -EALREADY, "it is here");
	is_int(error_class(), GLAKE_ERROR_BUSY, "  its class");
	is_int(hint(small, 0, 0, &ticket), -EALREADY, "and so is a small one");
	glake_spill(ctx, p, a);
	is_int(hint(p + 512, 0, 0, &ticket), -EINVAL, "no block begins there");
	is_int(hint((char *)&ctx, 0, 0, &ticket), -EINVAL, "nor there");
	is_int(hint(p, -1, 0, &ticket), -EINVAL, "no time is negative");
	is_int(glake_prefetch(
		       ctx, p, (struct CUstream_st *)(uintptr_t)4096, 0, 0, &ticket),
		-EINVAL, "no stream");
	is_int(glake_prefetch(NULL, p, a, 0, 0, &ticket), -ESTALE, "no context");
	ok(!ticket, "no ticket of those");
	is_int(glake_ticket_cancel(NULL), -ESTALE, "none is cancelled");
	run();
	is_int(hint(p, 0, 0, NULL), 0, "one that nobody asks about");
	run();
	is_int(glake_fetch(ctx, p, a), 0, "has its block here");
	is_int(glake_spill_ticket(ctx, p, a, &ticket), 0, "a ticket of a spill");
	is_int(glake_ticket_cancel(ticket), -EBUSY, "cannot be cancelled");
	glake_ticket_close(ticket);
	glake_free(ctx, p, a);
	glake_free(ctx, small, a);
	is_int(hint(p, 0, 0, NULL), -EINVAL, "it was freed");
	close_soft();
}

/* A call of the driver fails once. */
static void every_call_fails(void)
{
	static const char *const calls[] = {"copy", "create", "map", "set_access",
		"event_record", "event_new", "event_query", "stream_wait",
		"stream_facts"};

	open_soft("soft.streams=stepped", NULL);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		int torn = 0, failed = 0;

		for (int nth = 1; nth < 4; nth++) {
			struct glake_ticket *ticket = NULL;
			char rule[64], *p;
			int err;

			p = give_away(nth);
			glake_trim(ctx, 0, 0, NULL);
			snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", calls[i], nth);
			glk_fault_set(context->drv, rule);
			err = hint(p, 0, 0, &ticket);
			glk_fault_set(context->drv, "off");
			if (!err) {
				run();
				failed += state_of(ticket) == GLAKE_TICKET_FAILED;
				torn += (state_of(ticket) == GLAKE_TICKET_FAILED) !=
					is_away(p);
				glake_ticket_close(ticket);
			}
			torn += glake_fetch(ctx, p, a) != 0;
			run();
			torn += !has_mark(p, nth) || glake_free(ctx, p, a);
			run();
		}
		ok(!torn, "%s fails, %d times with the hint", calls[i], failed);
	}
	close_soft();
}

/* With the thread that makes pages ahead, which has nothing else to do. */
static void by_the_thread(void)
{
	struct timespec rest = {.tv_nsec = 1000000};
	char *p;
	int turns = 0;

	open_soft("soft.streams=worker", (const char *const[]){"pool.ahead=32MiB", NULL});
	p = give_away(5);
	glake_soft_stream_sync(ctx, 0, a);
	is_int(hint(p, 0, 0, NULL), 0, "a hint");
	while (!stats().prefetches && turns++ < 600000)
		nanosleep(&rest, NULL);
	is_int((int64_t)stats().prefetches, 1, "is carried out by the thread");
	is_int(glake_fetch(ctx, p, a), 0, "and fetched");
	glake_soft_stream_sync(ctx, 0, a);
	ok(has_mark(p, 5), "whole");
	glake_free(ctx, p, a);
	close_soft();
}

/* Threads hint, fetch, free and cancel. */
static void *player(void *arg)
{
	struct CUstream_st *mine = NULL;
	int torn = 0, seed = *(int *)arg;

	glake_stream_new(ctx, 0, &mine);
	for (int i = 0; i < (tap_on_valgrind() ? 7 : 30); i++) {
		struct glake_ticket *ticket = NULL;
		int64_t deadline = i % 3 ? 0 : in_seconds(i % 2 ? 100 : 0);
		void *p = NULL;
		int err;

		if (glake_alloc(ctx, 0, 4 * MIB, mine, 0, &p))
			continue;
		*(volatile int *)p = i + seed;
		torn += glake_spill(ctx, p, mine) != 0;
		torn += glake_prefetch(ctx, p, mine, deadline, i % 4, &ticket) != 0;
		if (i % 5 == 1)
			glake_ticket_cancel(ticket);
		if (i % 5 == 2)
			glake_ticket_wait(ticket, 2000000);
		if (i % 7 != 3) {
			err = glake_fetch(ctx, p, mine);
			torn += err && err != -ENOMEM;
			glake_soft_stream_sync(ctx, 0, mine);
			torn += !err && *(volatile int *)p != i + seed;
		}
		torn += glake_free(ctx, p, mine) != 0;
		torn += glake_ticket_close(ticket) != 0;
	}
	glake_soft_stream_sync(ctx, 0, mine);
	glake_stream_free(ctx, 0, mine);
	*(int *)arg = torn;
	return NULL;
}

static void from_threads(void)
{
	for (int ahead = tap_on_valgrind(); ahead < 2; ahead++) {
		pthread_t thread[4];
		int torn[4], sum = 0;

		open_soft("soft.streams=worker",
			(const char *const[]){ahead ? "pool.ahead=8MiB" : "pool.ahead=0",
				"tier.prefetch_spare=4MiB", NULL});
		glake_budget_set(ctx, 0, 40 * MIB);
		for (int i = 0; i < 4; i++) {
			torn[i] = i << 20;
			pthread_create(&thread[i], NULL, player, &torn[i]);
		}
		for (int i = 0; i < 4; i++) {
			pthread_join(thread[i], NULL);
			sum += torn[i];
		}
		ok(!sum, "four threads hint and fetch%s",
			ahead ? ", and one carries out" : "");
		ok(!stats().prefetch_queued && !stats().away, "nothing is left of it");
		close_soft();
	}
}

static void ends_with_its_context(void)
{
	struct glake_ticket *one = NULL, *two = NULL;
	int status = -1;
	pid_t child;
	char *p, *q;

	open_soft("soft.streams=stepped",
		(const char *const[]){"tier.prefetch_window=1", NULL});
	p = give_away(1);
	q = give_away(2);
	hint(p, 0, 0, &one);
	hint(q, 0, 0, &two);
	child = fork();
	if (!child)
		_exit(hint(p, 0, 0, NULL) == -ENODEV &&
					glake_ticket_cancel(two) == -ENODEV
				? 0
				: 1);
	waitpid(child, &status, 0);
	is_int(status, 0, "a child can neither hint nor cancel");
	run();
	glake_stream_free(ctx, 0, a);
	is_int(glake_close(ctx, NULL), 0, "a context is closed with hints under way");
	is_int(glake_ticket_wait(one, -1), -ESTALE, "which says so");
	is_int(glake_ticket_cancel(two), -ESTALE, "of both");
	glake_ticket_close(one);
	glake_ticket_close(two);
	tap_expect_log(tap.logs - tap.expected); /* blocks were live */
}

int main(void)
{
	tap_plan_later();
	comes_ahead();
	goes_by_deadline();
	under_way();
	from_threads();
	if (tap_on_valgrind()) {
		tap_skip("the other scenes", "each context takes 2 s under valgrind");
		return tap_done();
	}
	is_late();
	waits_on();
	leaves_room();
	stops_what_is_useless();
	refuses();
	every_call_fails();
	by_the_thread();
	ends_with_its_context();
	return tap_done();
}
