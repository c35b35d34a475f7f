/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The thread that makes pages before they are needed: what requests save, and that it keeps to
 * its size and the budget, gives way, and ends.
 */
#include "rig.h"

#include "cache/ahead.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

/* In large pages. */
#define AHEAD "pool.ahead=256MiB"
#define READY (256 * MIB)

static struct glk_ahead *ahead_of(struct rig *rig)
{
	if (!rig->cache.ahead)
		tap_bail("no thread");
	return rig->cache.ahead;
}

/* Until the thread has done all it wants to; false when it has ended. */
static bool wait_idle(struct rig *rig)
{
	struct glk_ahead *a = ahead_of(rig);
	bool asleep, broken;

	do {
		glk_lock(&rig->cache.lock);
		asleep = a->asleep;
		broken = a->broken;
		glk_unlock(&rig->cache.lock);
		sched_yield();
	} while (!asleep && !broken);
	return !broken;
}

static int64_t reserved(struct rig *rig)
{
	return (int64_t)rig_figures(rig).reserved;
}

/* The GPU is used for the first time by a block that is as small as can be. */
static void start(struct rig *rig, const char *const *settings)
{
	rig_open(rig, settings);
	ok(rig_alloc(rig, 1, NULL), "a first block");
	wait_idle(rig);
}

static void is_off(void)
{
	struct rig rig;

	rig_open(&rig, NULL);
	ok(rig_alloc(&rig, 1, NULL), "a first block");
	ok(!rig.cache.ahead, "no thread unless asked for");
	is_int(reserved(&rig), 2 * (int64_t)MIB, "and no page but that of the block");
	rig_close(&rig, 1);
}

static void saves_calls(void)
{
	uint64_t calls, called;
	struct rig rig;

	start(&rig, (const char *const[]){AHEAD, NULL});
	ok(reserved(&rig) >= (int64_t)READY &&
			reserved(&rig) <= (int64_t)READY + 2 * (int64_t)MIB,
		"as many pages as wanted, and that of the block");
	is_sound(&rig, "the books agree");
	/* a quarter of a part wakes nobody, so that all calls would be those of requests */
	called = rig_figures(&rig).called;
	calls = rig_all_calls(&rig);
	for (int i = 0; i < 5; i++)
		ok(rig_alloc(&rig, 9 * MIB + 512, NULL), "a large block");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "without a call of the driver");
	is_int((int64_t)(rig_figures(&rig).called - called), 0, "as the figures say");
	is_sound(&rig, "the books agree");
	ok(rig_alloc(&rig, 2 * MIB, NULL), "one of a slot");
	wait_idle(&rig);
	for (int i = 0; i < 24; i++) {
		ok(rig_alloc(&rig, 24 * MIB, NULL), "a larger block");
		wait_idle(&rig);
	}
	is_int((int64_t)(rig_figures(&rig).called - called), 0,
		"the thread follows the mark");
	is_sound(&rig, "the books agree");
	ok(reserved(&rig) <=
			(int64_t)(rig_figures(&rig).given + READY) + 32 * (int64_t)MIB,
		"no more is held than wanted");
	rig_close(&rig, 31);
}

/* A request larger than what is there gets the rest as without. */
static void serves_in_part(void)
{
	uint64_t creates;
	struct rig rig;

	start(&rig, (const char *const[]){AHEAD, NULL});
	creates = rig_calls(&rig, GLAKE_CALL_CREATE);
	ok(rig_alloc(&rig, 400 * MIB, NULL), "a block of 400 MiB");
	ok(rig_calls(&rig, GLAKE_CALL_CREATE) - creates >= 18, "pages are made for it");
	wait_idle(&rig);
	is_sound(&rig, "the books agree");
	is_int((int64_t)rig_figures(&rig).stitches, 0, "none was taken from elsewhere");
	rig_close(&rig, 2);
}

/* The same blocks again and again: nothing more is made. */
static void stays_put(void)
{
	uint64_t addr[8], calls = 0;
	int64_t held = 0;
	struct rig rig;

	start(&rig, (const char *const[]){AHEAD, NULL});
	for (int turn = 0; turn < 6; turn++) {
		for (int i = 0; i < 8; i++)
			addr[i] = rig_alloc(&rig, (size_t)(i + 1) * 5 * MIB, NULL);
		for (int i = 0; i < 8; i++)
			rig_free(&rig, addr[i], NULL);
		wait_idle(&rig);
		if (turn == 2) {
			calls = rig_all_calls(&rig);
			held = reserved(&rig);
		}
	}
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "a cycle makes no calls");
	is_int(reserved(&rig), held, "and holds no more each time");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void keeps_budget(void)
{
	uint64_t addr[64], got;
	int count = 0;
	struct rig rig;

	start(&rig, (const char *const[]){AHEAD, "pool.budget=512MiB", NULL});
	ok(reserved(&rig) <= 256 * (int64_t)MIB,
		"half of a budget of 512 MiB is left alone");
	while (count < 64 && !rig_try(&rig, 8 * MIB, NULL, 0, &addr[count])) {
		count++;
		wait_idle(&rig);
	}
	is_int(count, 63, "blocks get all of the budget but the page of the first one");
	ok(reserved(&rig) <= 512 * (int64_t)MIB, "and no more than that");
	is_int((int64_t)rig_figures(&rig).oom, 1, "the next one is refused");
	is_sound(&rig, "the books agree");
	while (count)
		rig_free(&rig, addr[--count], NULL);
	is_int(glk_cache_trim(&rig.cache, 0, false, &got), 0, "trimmed");
	glk_store_relaxed(&rig.cache.node->budget, 64 * MIB);
	for (int i = 0; i < 7; i++)
		ok(rig_alloc(&rig, 8 * MIB, NULL), "under a lower budget");
	wait_idle(&rig);
	ok(reserved(&rig) <= 64 * (int64_t)MIB, "which nothing is made beyond");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 8);
}

static void is_trimmed(void)
{
	uint64_t released;
	struct rig rig;

	start(&rig, (const char *const[]){AHEAD, NULL});
	is_int(glk_cache_trim(&rig.cache, 0, false, &released), 0, "trimmed");
	wait_idle(&rig);
	is_int(reserved(&rig), 2 * (int64_t)MIB, "the page of the block stays");
	is_sound(&rig, "the books agree");
	ok(rig_alloc(&rig, 8 * MIB, NULL), "the mark rises");
	wait_idle(&rig);
	ok(reserved(&rig) >= 240 * (int64_t)MIB, "and pages are made again");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Pages ahead are put behind blocks elsewhere before new ones are made. */
static void is_taken(void)
{
	uint64_t creates, keep[16];
	struct rig rig;

	start(&rig, (const char *const[]){AHEAD, "pool.budget=512MiB", NULL});
	for (int i = 0; i < 16; i++)
		keep[i] = rig_alloc(&rig, 8 * MIB, NULL);
	wait_idle(&rig);
	glk_store_relaxed(&rig.cache.node->budget, rig_figures(&rig).reserved);
	creates = rig_calls(&rig, GLAKE_CALL_CREATE);
	ok(rig_single(&rig, 24 * MIB, NULL), "a contiguous block has them given back");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - creates), 1,
		"one page is made");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 16; i += 2)
		rig_free(&rig, keep[i], NULL);
	ok(rig_alloc(&rig, 100 * MIB, NULL), "a block over what is left");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 11);
}

/* Want of memory: nothing is made until some was given back. */
static void is_refused(void)
{
	uint64_t creates;
	struct rig rig;

	rig_open(&rig, (const char *const[]){AHEAD, NULL});
	glk_fault_set(rig.drv, "create:from=5:err=ENOMEM");
	rig_alloc(&rig, 1, NULL);
	ok(wait_idle(&rig), "the thread lives");
	is_sound(&rig, "the books agree");
	glk_fault_set(rig.drv, "off");
	creates = rig_calls(&rig, GLAKE_CALL_CREATE);
	for (int i = 0; i < 6; i++)
		ok(rig_alloc(&rig, MIB, NULL), "a block from the pages there are");
	ok(wait_idle(&rig), "the mark has risen");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - creates), 0,
		"and the driver is not asked again");
	ok(rig_alloc(&rig, 40 * MIB, NULL), "a request has its own try");
	wait_idle(&rig);
	ok(reserved(&rig) >= 240 * (int64_t)MIB, "and with it the thread goes on");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 8);
}

/* Any other error ends it, with everything undone and one line in the log. */
static void is_broken(const char *fault, int64_t lost)
{
	struct rig rig;

	/* three large pages; the block that takes one calls no driver, so the thread does */
	start(&rig, (const char *const[]){"pool.ahead=32MiB", NULL});
	tap_expect_log(lost ? 2 : 1);
	glk_fault_set(rig.drv, fault);
	ok(rig_alloc(&rig, 8 * MIB, NULL), "a block wakes the thread");
	ok(!wait_idle(&rig), "%s", fault);
	glk_fault_set(rig.drv, "off");
	is_int((int64_t)rig_figures(&rig).lost, lost, "bytes are lost");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 10; i++)
		ok(rig_alloc(&rig, 20 * MIB, NULL), "the GPU goes on without");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 12);
}

/* Without the memory or the thread for it, the GPU works as if the key were not set. */
static void is_missing(void)
{
	uint64_t addr = 0;
	uint32_t n = 0;
	struct rig rig;

	rig_open(&rig, (const char *const[]){AHEAD, NULL});
	tap_expect_log(1);
	do {
		glk_region_fail_after(++n);
	} while (rig_try(&rig, 1, NULL, 0, &addr) && n < 64);
	glk_region_fail_after(0);
	ok(addr && !rig.cache.ahead, "no memory for the thread");
	ok(rig_alloc(&rig, 40 * MIB, NULL), "blocks all the same");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

static void is_unstarted(void)
{
	pthread_attr_t before;
	struct rig rig;

	rig_open(&rig, (const char *const[]){AHEAD, NULL});
	tap_expect_log(1);
	before = rig_no_threads();
	ok(rig_alloc(&rig, 40 * MIB, NULL), "a block without a thread");
	pthread_setattr_default_np(&before);
	ok(!rig.cache.ahead, "which could not be had");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Closed while the thread is at work, at any moment. */
static void is_closed(void)
{
	for (int round = 0; round < 20; round++) {
		struct rig rig;
		struct rig_end end;

		rig_open(&rig, (const char *const[]){"pool.ahead=512MiB", NULL});
		for (int i = 0; i < round; i++)
			rig_alloc(&rig, 12 * MIB, NULL);
		end = rig_end(&rig);
		if (end.cache || end.device || (int)end.live != round)
			ok(false, "closed with a busy thread");
	}
	ok(true, "closed with a busy thread");
}

int main(void)
{
	tap_plan_later();
	is_off();
	saves_calls();
	serves_in_part();
	stays_put();
	keeps_budget();
	is_trimmed();
	is_taken();
	is_refused();
	is_broken("create:nth=1:err=EIO", 0);
	is_broken("map:nth=1:err=EIO", 0);
	is_broken("set_access:nth=1:err=EIO", 0);
	is_broken("set_access:nth=1:err=EIO;unmap:nth=1:err=EIO", 8 * (int64_t)MIB);
	is_missing();
	is_unstarted();
	is_closed();
	return tap_done();
}
