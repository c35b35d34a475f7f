/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory that lies idle goes back to the driver while the program rests, and not while it is at work. */
#include "rig.h"

#include <pthread.h>
#include <unistd.h>

#define REST	"pool.rest=100ms"
#define REST_US 100000
/* What may be held beside what is in use, however little that is. */
#define LEAST (16 * MIB)

#define BLOCKS 40

/* Whether what is too early can be told from what is not: else the machine's time is. */
#ifdef GLK_SCHED
#define EXACT true
#else
#define EXACT false
#endif

static uint64_t block[BLOCKS];

static int64_t reserved(struct rig *rig)
{
	return (int64_t)rig_figures(rig).reserved;
}

/* Many blocks come and go, but for one. */
static void peak(struct rig *rig)
{
	for (int i = 0; i < BLOCKS; i++)
		block[i] = rig_alloc(rig, 8 * MIB, NULL);
	for (int i = 1; i < BLOCKS; i++)
		rig_free(rig, block[i], NULL);
}

/* Until no more is held than what is live, lost, or in bins, where threads that met at the lock have their blocks, and
 * may be beside it. */
static void await_small(struct rig *rig)
{
	struct glake_stats s;

	for (;;) {
		s = rig_figures(rig);
		if (s.reserved <= s.given + s.lost + s.quick + LEAST)
			break;
		usleep(REST_US / 10);
	}
}

static void is_off(void)
{
	int64_t held;
	struct rig rig;

	rig_open(&rig, NULL);
	peak(&rig);
	held = reserved(&rig);
	usleep(10 * REST_US);
	ok(!rig.cache.rest.runs, "no thread unless asked for");
	is_int(reserved(&rig), held, "what was held stays");
	rig_close(&rig, 1);
	rig_open(&rig, (const char *const[]){REST, NULL});
	ok(rig_alloc(&rig, 8 * MIB, NULL), "one that holds little");
	ok(!rig.cache.rest.runs, "  has none either");
	rig_close(&rig, 1);
}

static void gives_back(void)
{
	int64_t held;
	struct rig rig;

	rig_open(&rig, (const char *const[]){REST, NULL});
	peak(&rig);
	held = reserved(&rig);
	ok(held >= (int64_t)(BLOCKS * 8 * MIB), "a peak");
	usleep(REST_US / 2);
	ok(!EXACT || reserved(&rig) == held, "all of it stays at first");
	await_small(&rig);
	ok(reserved(&rig) > (int64_t)LEAST, "but for what may be held it goes");
	is_sound(&rig, "the books agree");
	peak(&rig);
	ok(reserved(&rig) >= held, "another one");
	await_small(&rig);
	ok(true, "goes as well");
	is_int((int64_t)rig_figures(&rig).lost, 0, "nothing is lost");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* A request that is no hit now and then is no rest. */
static void is_at_work(void)
{
	int64_t held;
	struct rig rig;

	rig_open(&rig, (const char *const[]){REST, NULL});
	peak(&rig);
	held = reserved(&rig);
	for (int i = 0; i < 40; i++) {
		uint64_t addr = rig_alloc(&rig, 24 * MIB, NULL);

		rig_free(&rig, addr, NULL);
		usleep(REST_US * 2 / 5);
	}
	ok(!EXACT || reserved(&rig) == held, "while the program is at work nothing goes");
	await_small(&rig);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void turn_of_hits(struct rig *rig)
{
	uint64_t small[64];

	for (int i = 0; i < 64; i++)
		small[i] = rig_alloc(rig, 32 << 10, NULL);
	for (int i = 0; i < 64; i++)
		rig_free(rig, small[i], NULL);
}

/* What hits take and give is no idle memory, and stays. */
static void is_hit(void)
{
	uint64_t calls, hits;
	struct rig rig;

	rig_open(&rig, (const char *const[]){REST, NULL});
	for (int turn = 0; turn < 4; turn++)
		turn_of_hits(&rig);
	peak(&rig);
	turn_of_hits(&rig);
	calls = rig_calls(&rig, GLAKE_CALL_CREATE);
	hits = rig_figures(&rig).hits;
	for (int turn = 0; turn < 20; turn++) {
		turn_of_hits(&rig);
		usleep(2 * REST_US);
	}
	is_int((int64_t)(rig_figures(&rig).hits - hits), 20 * 64, "requests are hits");
	ok(reserved(&rig) <= (int64_t)(12 * MIB + LEAST),
		"what lies idle beside them goes: %" PRId64, reserved(&rig));
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - calls), 0,
		"and no page is made anew for them");
	rig_close(&rig, 1);
}

/* Bins that hold more than may be held are emptied when nothing is taken from them either. */
static void empties_bins(void)
{
	static uint64_t small[2000];
	struct rig rig;

	rig_open(&rig, (const char *const[]){REST, NULL});
	for (int i = 0; i < 2000; i++)
		small[i] = rig_alloc(&rig, 200 << 10, NULL);
	for (int i = 0; i < 1000; i++)
		rig_free(&rig, small[i], NULL);
	for (int i = 0; i < 100; i++) {
		rig_free(&rig, rig_alloc(&rig, 200 << 10, NULL), NULL);
		usleep(REST_US / 2);
	}
	ok(!EXACT || reserved(&rig) >= 380 * (int64_t)MIB,
		"while blocks are taken from bins these stay");
	while (reserved(&rig) > 240 * (int64_t)MIB)
		usleep(REST_US / 10);
	for (int i = 1000; i < 2000; i++)
		rig_free(&rig, small[i], NULL);
	await_small(&rig);
	ok(true, "then they are emptied");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* The next request that is no hit ends it. */
static void stops(void)
{
	int64_t held, then;
	struct rig rig;

	rig_open(&rig, (const char *const[]){REST, NULL});
	peak(&rig);
	held = reserved(&rig);
	/* us: so long that somebody comes between two pages */
	glk_fault_set(rig.drv, "release:from=1:delay=10000");
	while (reserved(&rig) == held)
		usleep(1000);
	ok(rig_alloc(&rig, 8 * MIB, NULL), "a request while memory goes");
	then = reserved(&rig);
	ok(!EXACT || then > (int64_t)(200 * MIB), "when little of it has gone");
	usleep(REST_US / 2);
	ok(!EXACT || reserved(&rig) >= then - (int64_t)(8 * MIB),
		"but for the page under way the rest stays");
	glk_fault_set(rig.drv, "off");
	await_small(&rig);
	ok(true, "until the program rests again");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* What was freed on a stream that the program ended without a word is among it: no event tells of that. */
static void waits_for_ended(void)
{
	struct CUstream_st *gone;
	struct rig rig;

	rig_open(&rig, (const char *const[]){REST, NULL});
	peak(&rig);
	gone = rig_stream(&rig);
	for (int i = 1; i < BLOCKS; i++) {
		block[i] = rig_alloc(&rig, 8 * MIB, gone);
		rig_work(&rig, block[i], 8 * MIB, gone);
	}
	for (int i = 1; i < BLOCKS; i++)
		rig_free(&rig, block[i], gone);
	rig.drv->ops->stream_free(rig.drv, 0, rig.stream[--rig.streams]);
	await_small(&rig);
	ok(true, "what is left of a stream that has gone is waited for");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* One that lives is not: an event will tell of it. */
static void waits_for_no_other(void)
{
	struct CUstream_st *a;
	struct rig rig;
	uint64_t addr;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	addr = rig_alloc(&rig, 8 * MIB, a);
	rig_work(&rig, addr, 8 * MIB, a);
	rig_free(&rig, addr, a);
	rig_flush(&rig);
	glk_lock(&rig.cache.lock);
	is_int(glk_clock_sync_ended(&rig.cache.streams, UINT64_MAX), 0,
		"of a stream that lives");
	glk_unlock(&rig.cache.lock);
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_SYNC), 0, "nothing is waited for");
	rig_close(&rig, 0);
}

/* The driver fails: a page is lost, and the others stay until the next rest. */
static void fails(void)
{
	int64_t held;
	struct rig rig;

	rig_open(&rig, (const char *const[]){REST, NULL});
	peak(&rig);
	held = reserved(&rig);
	tap_expect_log(1);
	glk_fault_set(rig.drv, "unmap:nth=1:err=EIO");
	while (!rig_figures(&rig).lost)
		usleep(1000);
	ok(!EXACT || reserved(&rig) >= held - (int64_t)(8 * MIB),
		"one page alone was tried");
	await_small(&rig);
	is_int((int64_t)rig_figures(&rig).lost, 8 * (int64_t)MIB, "and is lost");
	is_sound(&rig, "the books agree");
	glk_rest_set(&rig.cache, 0);
	glk_fault_set(rig.drv, "off");
	rig_close(&rig, 1);
}

static void is_changed(void)
{
	int64_t held;
	struct rig rig;

	rig_open(&rig, NULL);
	peak(&rig);
	held = reserved(&rig);
	glk_rest_set(&rig.cache, (int64_t)REST_US * 1000);
	ok(rig.cache.rest.runs, "a thread when the key is set");
	await_small(&rig);
	glk_rest_set(&rig.cache, 0);
	peak(&rig);
	usleep(20 * REST_US);
	ok(reserved(&rig) >= held, "and none that does anything when it is unset");
	glk_rest_set(&rig.cache, (int64_t)REST_US * 1000);
	await_small(&rig);
	ok(true, "set again");
	rig_close(&rig, 2);
}

static void is_closed(void)
{
	for (int round = 0; round < 20; round++) {
		struct rig_end end;
		struct rig rig;

		rig_open(&rig, (const char *const[]){REST, NULL});
		peak(&rig);
		usleep((unsigned)(REST_US - 1000 + round * 100));
		end = rig_end(&rig);
		if (end.cache || end.device || end.live != 1)
			ok(false, "closed while memory goes");
	}
	ok(true, "closed while memory goes");
}

static void is_suspended(void)
{
	struct glake_suspended did = {0};
	struct rig rig;

	rig_open(&rig, (const char *const[]){REST, NULL});
	peak(&rig);
	usleep(REST_US - 1000);
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0,
		"suspended as the rest begins");
	usleep(3 * REST_US);
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "and resumed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void is_unstarted(void)
{
	pthread_attr_t before;
	struct rig rig;

	rig_open(&rig, (const char *const[]){REST, NULL});
	tap_expect_log(1);
	before = rig_no_threads();
	peak(&rig);
	pthread_setattr_default_np(&before);
	ok(!rig.cache.rest.runs, "no thread could be had, which is said once");
	peak(&rig);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

int main(void)
{
	tap_plan_later();
	is_off();
	gives_back();
	is_at_work();
	is_hit();
	empties_bins();
	stops();
	waits_for_ended();
	waits_for_no_other();
	fails();
	is_changed();
	is_closed();
	is_suspended();
	is_unstarted();
	return tap_done();
}
