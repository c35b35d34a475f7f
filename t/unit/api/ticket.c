/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tickets for contents on their way, by the public functions, on a device that goes step by step. */
#include "tier_parts.h"

static void tells_how_far(void)
{
	struct glake_ticket *out = NULL, *back = NULL;
	struct glake_ticket_info info;
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give(1);
	work(p);
	is_int(glake_spill_ticket(ctx, p, a, &out), 0, "a block goes behind work");
	info = ask(out);
	is_int(info.state, GLAKE_TICKET_QUEUED, "it waits for the work");
	ok(info.address == p && info.bytes == SIZE && !info.device && !info.error &&
			info.kind == GLAKE_TICKET_SPILL,
		"the ticket says what it is for");
	ok(info.asked_ns && !info.begun_ns && !info.ended_ns && !info.deadline_ns,
		"and when");
	is_int(glake_ticket_wait(out, 0), -ETIMEDOUT, "it is not done");
	is_int(error_class(), GLAKE_ERROR_AGAIN, "  its class");
	is_int(glake_ticket_wait(out, 300000), -ETIMEDOUT, "nor a little later");
	is_int(glake_fetch_ticket(ctx, p, a, &back), 0, "it comes back behind that");
	is_int(ask(back).state, GLAKE_TICKET_QUEUED, "which it waits for");
	is_int(glake_ticket_wait(out, -1), 0, "the first is waited for");
	info = ask(out);
	is_int(info.state, GLAKE_TICKET_DONE, "and done");
	ok(info.begun_ns >= info.asked_ns && info.ended_ns >= info.begun_ns,
		"its times are in order");
	run();
	is_int(glake_ticket_wait(back, 0), 0, "the second is done as well");
	is_int(ask(back).kind, GLAKE_TICKET_FETCH, "a fetch");
	ok(ask(back).ended_ns == ask(back).ended_ns, "its time stays");
	ok(has_mark(p, 1), "nothing was lost");
	is_int(glake_ticket_close(out), 0, "one is closed");
	is_int(glake_ticket_close(out), -ESTALE, "once");
	is_int(glake_ticket_wait(out, 0), -ESTALE, "and says nothing any more");
	is_int(error_class(), GLAKE_ERROR_STALE, "  its class");
	is_int(glake_ticket_close(back), 0, "the other too");
	is_int(glake_ticket_close(NULL), 0, "none is closed");
	glake_free(ctx, p, a);
	close_soft();
}

/* The second waits for the link alone. */
static void tells_what_is_copied(void)
{
	struct glake_ticket *one = NULL, *two = NULL;
	char *p, *q;

	open_soft("soft.streams=stepped", NULL);
	p = give(1);
	q = give(2);
	glake_spill_ticket(ctx, p, a, &one);
	is_int(ask(one).state, GLAKE_TICKET_QUEUED, "nothing has run");
	glake_spill_ticket(ctx, q, a, &two);
	is_int(ask(two).state, GLAKE_TICKET_QUEUED, "a second one is behind it");
	run();
	is_int(ask(two).state, GLAKE_TICKET_DONE, "both are done");
	is_int(ask(one).state, GLAKE_TICKET_DONE, "at once");
	glake_ticket_close(one);
	glake_ticket_close(two);
	is_int(glake_spill_ticket(ctx, p, a, &one), -EALREADY, "it is away");
	is_int(glake_fetch_ticket(ctx, p, a, &one), 0, "and comes back");
	run();
	is_int(glake_free(ctx, p, a), 0, "it is freed");
	is_int(ask(one).state, GLAKE_TICKET_DONE, "and its ticket tells still");
	glake_ticket_close(one);
	glake_free(ctx, q, a);
	close_soft();
}

static void refuses(void)
{
	struct glake_ticket *ticket = NULL;
	struct glake_ticket_info info = {0};
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give(1);
	is_int(glake_spill_ticket(ctx, p, a, NULL), -EINVAL, "no place for the ticket");
	is_int(glake_spill_ticket(ctx, &ctx, a, &ticket), -EINVAL, "no block");
	is_int(glake_fetch_ticket(ctx, p, a, &ticket), -EALREADY, "it is here");
	is_int(glake_spill_ticket(NULL, p, a, &ticket), -ESTALE, "no context");
	ok(!ticket, "no ticket of those");
	is_int(glake_ticket_get(NULL, &info), -ESTALE, "none is none");
	is_int(glake_ticket_wait((struct glake_ticket *)(uintptr_t)77, -1), -ESTALE,
		"nor is any number");
	is_int(glake_spill_ticket(ctx, p, a, &ticket), 0, "a ticket");
	is_int(glake_ticket_get(ticket, NULL), -EINVAL, "no place for what it says");
	is_int(glake_ticket_get(ticket, &info), -EINVAL, "no size");
	run();
	glk_fault_set(context->drv, "event_query:nth=1:err=EIO");
	is_int(glake_ticket_wait(ticket, INT64_C(60000000000)), 0,
		"a question that fails is asked again");
	glk_fault_set(context->drv, "off");
	glake_ticket_close(ticket);
	is_int(glake_fetch_ticket(ctx, p, a, &ticket), 0, "another one");
	glk_fault_set(context->drv,
		"event_query:from=1:err=EAGAIN;event_sync:nth=1:err=EIO;stream_sync:nth=1:err=EIO");
	is_int(glake_ticket_wait(ticket, -1), -EIO, "a wait that fails");
	glk_fault_set(context->drv, "off");
	is_int(glake_ticket_wait(ticket, -1), 0, "and one that does not");
	glake_ticket_close(ticket);
	glake_free(ctx, p, a);
	close_soft();
}

/* Of a program that closes none. */
static void forgets_the_oldest(void)
{
	struct glake_ticket *first = NULL, *second = NULL, *last = NULL, *kept = NULL;
	struct glk_ticket t = {.kind = GLAKE_TICKET_SPILL};
	uint64_t number = 0;
	char *p;
	int torn = 0;

	open_soft("soft.streams=stepped", NULL);
	p = give(1);
	glake_spill_ticket(ctx, p, a, &first);
	glake_fetch_ticket(ctx, p, a, &second);
	run();
	t.owner = (uintptr_t)ctx;
	for (int i = 0; i < 3000; i++) {
		torn += glk_ticket_close(glk_ticket_new(&t)) != 0;
	}
	is_int(ask(first).state, GLAKE_TICKET_DONE,
		"an open one is not in the way of closed ones");
	for (int i = 0; i < 1000000; i++)
		number = glk_ticket_new(&t);
	ok(!torn && number, "more than there is room for are left open");
	is_int(glake_ticket_wait(first, 0), -ESTALE, "the oldest are none any more");
	is_int(glake_ticket_wait(second, 0), -ESTALE, "both");
	is_int(glake_spill_ticket(ctx, p, a, &last), 0, "one more is had");
	run();
	is_int(glake_ticket_wait(last, -1), 0, "and told of");
	is_int(glk_ticket_read(number, &t), 0, "and so are those before it");
	kept = last;
	is_int(glake_ticket_close(kept), 0, "it is closed");
	glake_free(ctx, p, a);
	close_soft();
}

static void outlives_its_context(void)
{
	struct glake_ticket *ticket = NULL;
	struct glake_ticket_info info = {.sz = sizeof(info)};
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give(1);
	work(p);
	is_int(glake_spill_ticket(ctx, p, a, &ticket), 0, "a block is on its way");
	run();
	glake_stream_free(ctx, 0, a);
	is_int(glake_close(ctx, NULL), 0, "its context is closed");
	is_int(glake_ticket_get(ticket, &info), -ESTALE, "the ticket says so");
	is_int(error_class(), GLAKE_ERROR_STALE, "  its class");
	is_int(glake_ticket_wait(ticket, -1), -ESTALE, "whoever waits");
	is_int(glake_ticket_close(ticket), 0, "it is closed all the same");
	is_int(glake_ticket_get(ticket, &info), -ESTALE, "and is none then");
	tap_expect_log(tap.logs - tap.expected); /* a block was live */
}

/* Threads ask, wait and close while blocks move. */
static void *mover(void *arg)
{
	struct CUstream_st *mine = NULL;
	int torn = 0;

	glake_stream_new(ctx, 0, &mine);
	for (int i = 0; i < (tap_on_valgrind() ? 5 : 40); i++) {
		struct glake_ticket *out = NULL, *back = NULL;
		struct glake_ticket_info info = {.sz = sizeof(info)};
		void *p = NULL;
		int err;

		if (glake_alloc(ctx, 0, 2 * MIB, mine, 0, &p))
			continue;
		*(volatile int *)p = i;
		torn += glake_spill_ticket(ctx, p, mine, &out) != 0;
		torn += glake_ticket_get(out, &info) != 0;
		torn += i % 3 && glake_ticket_wait(out, -1);
		torn += glake_fetch_ticket(ctx, p, mine, &back) != 0;
		err = glake_ticket_wait(back, i % 2 ? -1 : 1000000);
		torn += err && err != -ETIMEDOUT;
		if (!err)
			torn += *(volatile int *)p != i;
		torn += glake_ticket_close(out) || glake_ticket_close(back);
		torn += glake_free(ctx, p, mine) != 0;
	}
	glake_soft_stream_sync(ctx, 0, mine);
	glake_stream_free(ctx, 0, mine);
	*(int *)arg = torn;
	return NULL;
}

static void from_threads(void)
{
	pthread_t thread[4];
	int torn[4], sum = 0;

	open_soft("soft.streams=worker", NULL);
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, mover, &torn[i]);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		sum += torn[i];
	}
	is_int(sum, 0, "four threads move blocks and wait for them");
	close_soft();
}

static void in_a_child(void)
{
	struct glake_ticket *ticket = NULL;
	struct glake_ticket_info info = {.sz = sizeof(info)};
	int status = -1;
	pid_t child;
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give(1);
	glake_spill_ticket(ctx, p, a, &ticket);
	child = fork();
	if (!child) {
		bool good = glake_ticket_get(ticket, &info) == -ENODEV &&
			error_class() == GLAKE_ERROR_FORKED &&
			glake_ticket_wait(ticket, -1) == -ENODEV &&
			!glake_ticket_close(ticket);

		_exit(good ? 0 : 1);
	}
	waitpid(child, &status, 0);
	is_int(status, 0, "a child may close a ticket, and that is all");
	is_int(ask(ticket).state, GLAKE_TICKET_QUEUED, "the parent has it still");
	run();
	is_int(glake_ticket_wait(ticket, -1), 0, "and its block goes on");
	glake_ticket_close(ticket);
	glake_free(ctx, p, a);
	close_soft();
}

int main(void)
{
	tap_plan_later();
	is_str(glake_ticket_state_name(GLAKE_TICKET_CANCELLED), "cancelled",
		"a state has a name");
	is_str(glake_ticket_kind_name(GLAKE_TICKET_PREFETCH), "prefetch", "a kind too");
	is_str(glake_ticket_state_name(-1), "unknown", "others have none");
	is_str(glake_ticket_kind_name(3), "unknown", "others have none");
	tells_how_far();
	tells_what_is_copied();
	refuses();
	if (tap_on_valgrind())
		tap_skip("the oldest of a million tickets are forgotten",
			"valgrind takes long");
	else
		forgets_the_oldest();
	outlives_its_context();
	from_threads();
	in_a_child();
	return tap_done();
}
