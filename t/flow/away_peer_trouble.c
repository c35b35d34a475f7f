/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that lie with another GPU, and the driver fails, the process forks, or two GPUs lend to each other. */
#include "away_peer.h"

#include <pthread.h>
#include <time.h>

#define CONTENTS 20

/* Each call of the driver fails once, at each place where it is called: nothing is lost, what cannot lie there
 * lies on the host, and an error leaves a block where it was. */
static void fails(const char *op, const char *err, int most)
{
	int done = 0, wrong = 0, torn = 0;

	/* each of the first calls, and ever fewer of those behind */
	for (int n = 1; n <= most; n += 1 + n / 3) {
		char rule[128];
		void *one, *two;

		snprintf(rule, sizeof(rule), "driver.fault=%s:from=%d:len=1:err=%s", op,
			n, err);
		ctx = flow_open(
			(const char *const[]){ROOM, "tier.peer_room=32MiB", rule, NULL});
		if (glake_alloc(ctx, 0, 18 * MIB, NULL, 0, &one) ||
			glake_alloc(ctx, 0, 18 * MIB, NULL, 0, &two)) {
			glake_close(ctx, NULL);
			continue;
		}
		write_words(one, 18 * MIB);
		write_words(two, 18 * MIB);
		glake_spill(ctx, one, NULL);
		glake_spill(ctx, two, NULL);
		glake_suspend(ctx, 1, NULL);
		glake_resume(ctx, 1, NULL);
		glake_fetch(ctx, one, NULL);
		glake_fetch(ctx, two, NULL);
		/* any of these may have been refused, and is had now */
		for (int i = 0; i < 2; i++) {
			if (about(one).away)
				wrong += glake_fetch(ctx, one, NULL) != 0;
			if (about(two).away)
				wrong += glake_fetch(ctx, two, NULL) != 0;
		}
		torn += !holds(one, 18 * MIB) || !holds(two, 18 * MIB);
		glake_free(ctx, one, NULL);
		glake_free(ctx, two, NULL);
		glake_trim(ctx, 0, 0, NULL);
		wrong += flow_stats(ctx, 0).store_peer_used +
				flow_stats(ctx, 0).store_used !=
			0;
		glake_close(ctx, NULL);
		done++;
	}
	tap_expect_log(tap.logs - tap.expected);
	ok(done > 0, "%s fails with %s, %d times", op, err, done);
	is_int(wrong, 0, "  what is away comes back");
	is_int(torn, 0, "  as it was");
}

static void all_fail(void)
{
	if (tap_one_thread_takes_long())
		return;
	fails("create", "ENOMEM", 14);
	fails("create", "ENODEV", 16);
	fails("create", "EPERM", 14);
	fails("reserve", "EIO", 4);
	fails("map", "EIO", 14);
	fails("set_access", "EPERM", 8);
	fails("copy", "EIO", 10);
	fails("copy", "ENODEV", 3);
	fails("event_record", "EIO", 8);
	fails("stream_wait", "EIO", 4);
	fails("unmap", "EIO", 6);
	fails("unreserve", "EIO", 3);
	fails("release", "EIO", 6);
	fails("host_lock", "ENOMEM", 3);
}

/* A content of which the host has a part: whichever part is refused, that side alone has failed. The content before it
 * takes two copies, since it is larger than a turn of a channel. */
static void one_side_fails(bool host)
{
	void *one, *two;

	set_up((const char *const[]){ROOM, "tier.peer_room=64MiB",
		host ? "driver.fault=copy:from=3:len=1:err=EPERM"
		     : "driver.fault=copy:from=4:len=1:err=EPERM",
		NULL});
	one = take(ctx, 0, 34 * MIB);
	two = take(ctx, 0, 34 * MIB);
	is_int(glake_spill(ctx, one, stream), 0, "a content goes to the lender");
	tap_expect_log(!host);
	is_int(glake_spill(ctx, two, stream), host ? -EPERM : 0,
		host ? "the host does not take its part of the next"
		     : "where the lender does not take its own the host has all");
	is_int(about(two).away != 0, !host, host ? "which stays" : "of it");
	if (host)
		is_int(glake_spill(ctx, two, stream), 0, "  until it does");
	is_int(mib(flow_stats(ctx, 0).store_peer_used), host ? 64 : 34,
		host ? "the lender has its part" : "  and the lender none");
	is_int(glake_fetch(ctx, one, stream) | glake_fetch(ctx, two, stream), 0,
		"both come back");
	ok(holds(one, 34 * MIB) && holds(two, 34 * MIB), "as they were");
	is_int(glake_spill(ctx, one, stream), 0, "and go again");
	is_int(mib(flow_stats(ctx, 0).store_peer_used), host ? 34 : 0,
		host ? "to the lender" : "to the host alone");
	glake_free(ctx, one, NULL);
	glake_free(ctx, two, NULL);
	tear_down(0);
}

/* A lender that takes no content, where the host has no room: it is left alone for a while, whoever of the two GPUs
 * has failed, and no copy is tried for each content. */
static void host_is_full(void)
{
	void *block[CONTENTS];
	uint64_t copies;
	time_t since;
	int wrong = 0, torn = 0;

	set_up((const char *const[]){ROOM, "tier.peer_room=64MiB", "tier.host=1MiB",
		"driver.fault=copy:from=1:err=EIO", NULL});
	for (int i = 0; i < CONTENTS; i++)
		block[i] = take(ctx, 0, 3 * MIB);
	since = time(NULL);
	copies = flow_calls(ctx, GLAKE_CALL_COPY);
	for (int i = 0; i < CONTENTS; i++)
		wrong += glake_spill(ctx, block[i], stream) != -ENOMEM;
	copies = flow_calls(ctx, GLAKE_CALL_COPY) - copies;
	since = time(NULL) - since;
	is_int(wrong, 0, "contents that neither of them takes");
	ok(copies >= 1 && (time_t)copies <= 2 + since, "are copied %d times, of %d",
		(int)copies, CONTENTS);
	for (int i = 0; i < CONTENTS; i++) {
		torn += about(block[i]).away || !holds(block[i], 3 * MIB);
		glake_free(ctx, block[i], NULL);
	}
	is_int(torn, 0, "all of them are here");
	tear_down(0);
}

/* A child has nothing of it, and disturbs nobody. */
static void forks(void)
{
	void *one;
	pid_t pid;

	set_up((const char *const[]){ROOM, NULL});
	one = take(ctx, 0, 20 * MIB);
	is_int(glake_spill(ctx, one, stream), 0, "a block goes");
	pid = flow_fork(20);
	if (!pid)
		_exit(glake_fetch(ctx, one, NULL) != -ENODEV ||
			glake_close(ctx, NULL) != 0);
	is_int(flow_wait(pid), 0, "a child has nothing of it");
	is_int(glake_fetch(ctx, one, stream), 0, "it comes back");
	ok(holds(one, 20 * MIB), "as it was");
	is_int(glake_spill(ctx, one, stream), 0, "it goes again");
	tear_down(1);
}

/* ---- Each lends to the other ---- */

#define ROUNDS 6
#define BLOCKS 3

struct side {
	struct glake *ctx;
	int device, err, torn;
	pthread_t thread;
};

static void *spills(void *arg)
{
	struct side *s = arg;
	void *block[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		block[i] = take(s->ctx, s->device, 24 * MIB);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < BLOCKS; i++)
			s->err |= glake_spill(s->ctx, block[i], NULL);
		if (round % 3 == 2)
			glake_trim(s->ctx, s->device, 0, NULL);
		for (int i = 0; i < BLOCKS; i++)
			s->err |= glake_fetch(s->ctx, block[i], NULL);
		for (int i = 0; i < BLOCKS; i++)
			s->torn += !holds(block[i], 24 * MIB);
	}
	for (int i = 0; i < BLOCKS; i++)
		glake_free(s->ctx, block[i], NULL);
	return NULL;
}

/* The lender goes and comes while others send and fetch. */
static void *rests(void *arg)
{
	struct side *s = arg;

	for (int round = 0; round < 2 * ROUNDS; round++) {
		s->err |= glake_suspend(s->ctx, s->device, NULL);
		s->err |= glake_resume(s->ctx, s->device, NULL);
	}
	return NULL;
}

static void both_ways(void)
{
	struct side side[2] = {{.device = 0}, {.device = 1}};

	side[0].ctx = flow_open((const char *const[]){ROOM, NULL});
	side[1].ctx = flow_open((const char *const[]){ROOM, "tier.peer=0", NULL});
	for (int i = 0; i < 2; i++)
		pthread_create(&side[i].thread, NULL, spills, &side[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(side[i].thread, NULL);
	is_int(side[0].err | side[1].err, 0,
		"two GPUs lend to each other, in two contexts");
	is_int(side[0].torn + side[1].torn, 0, "all is as it was");
	flow_close(side[0].ctx, 0);
	flow_close(side[1].ctx, 0);
}

static void suspended_meanwhile(void)
{
	struct side side[3] = {{.device = 0}, {.device = 0}, {.device = 1}};

	ctx = flow_open((const char *const[]){ROOM, NULL});
	for (int i = 0; i < 3; i++) {
		side[i].ctx = ctx;
		pthread_create(&side[i].thread, NULL, i < 2 ? spills : rests, &side[i]);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(side[i].thread, NULL);
	is_int(side[0].err | side[1].err, 0,
		"a lender is suspended while two threads use it");
	is_int(side[2].err, 0, "and resumed");
	is_int(side[0].torn + side[1].torn, 0, "all is as it was");
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	one_side_fails(true);
	one_side_fails(false);
	host_is_full();
	all_fail();
	forks();
	both_ways();
	suspended_meanwhile();
	return tap_done();
}
