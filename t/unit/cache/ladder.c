/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a request does when a node has no room: rung by rung, and what it says at the end. */
#include "unit/cache/rig.h"

#include <errno.h>

static uint64_t rung(struct rig *rig, enum glake_rung which)
{
	return rig_figures(rig).rungs[which];
}

/* Four blocks on a large page each; the first and the third are free, and apart. */
static void open_apart(struct rig *rig, struct CUstream_st *a)
{
	uint64_t addr[4];

	for (int i = 0; i < 4; i++) {
		addr[i] = rig_alloc(rig, 8 * MIB, a);
		rig_work(rig, addr[i], 8 * MIB, a);
	}
	rig_free(rig, addr[0], a);
	rig_free(rig, addr[2], a);
	rig_flush(rig);
	is_int((int64_t)rig_figures(rig).reserved, 32 * (int64_t)MIB,
		"all in large pages");
}

/* Large pages become small ones under a budget. */
static void recuts(void)
{
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=32MiB", NULL});
	a = rig_stream(&rig);
	open_apart(&rig, a);
	ok(rig_alloc(&rig, 9 * MIB, a), "a large one and a small one are wanted");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_RELEASE), 1, "one large page goes");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_CREATE), 5, "for one small page");
	ok(rung(&rig, GLAKE_RUNG_RECUT) > 0, "as a rung");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_SYNC), 0, "nobody waited");
	is_int((int64_t)rig_figures(&rig).reserved, 26 * (int64_t)MIB,
		"no more than that");
	is_int((int64_t)rig_figures(&rig).peak_reserved, 32 * (int64_t)MIB,
		"the budget holds, and held");
	is_sound(&rig, "the books agree");
	ok(rig_alloc(&rig, 5 * MIB, a), "and three more small pages");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_RELEASE), 1, "have room");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 4);
}

/* The idle page of a contiguous block goes, and what is given back is no more than it takes. */
static void releases(void)
{
	struct CUstream_st *a;
	uint64_t one, calls;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=32MiB", NULL});
	a = rig_stream(&rig);
	one = rig_single(&rig, 10 * MIB, a);
	ok(rig_alloc(&rig, 8 * MIB, a) && rig_alloc(&rig, 8 * MIB, a),
		"blocks beside it");
	rig_free(&rig, one, a);
	calls = rig_calls(&rig, GLAKE_CALL_RELEASE);
	ok(rig_single(&rig, 14 * MIB, a), "a larger one, which needs its room");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_RELEASE) - calls), 1, "it goes");
	ok(rung(&rig, GLAKE_RUNG_RECUT) > 0, "as a rung");
	is_int((int64_t)rung(&rig, GLAKE_RUNG_LIMBO), 0, "and nothing else");
	is_int((int64_t)rig_figures(&rig).reserved, 30 * (int64_t)MIB, "30 MiB are live");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
}

/* Waiting for the GPU is the last rung, taken once and only if it can help. */
static void syncs_last(void)
{
	struct CUstream_st *a;
	uint64_t big = 0, syncs;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"pool.budget=32MiB", "soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	open_apart(&rig, a);
	ok(rig_alloc(&rig, 9 * MIB, a), "large pages that are still in use");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_SYNC), 1, "are waited for, once");
	is_sound(&rig, "the books agree");

	/* 26 of 32 are held */
	ok(rig_alloc(&rig, 6 * MIB, a), "and one more");
	syncs = rig_calls(&rig, GLAKE_CALL_SYNC);
	is_int(rig_try(&rig, 3 * MIB, a, 0, &big), -ENOMEM, "nothing is idle");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_SYNC) - syncs), 0,
		"so nobody waits for it");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 4);
}

/* Work that never ends while the request looks for memory: refused, not stuck. */
static void cannot_sync(void)
{
	struct CUstream_st *a;
	uint64_t one, big = 0;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"pool.budget=8MiB", "soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	one = rig_single(&rig, 8 * MIB, a);
	rig_work(&rig, one, 8 * MIB, a);
	rig_free(&rig, one, a);
	glk_soft_hold(rig.drv, 0, a, true);
	is_int(rig_try(&rig, 6 * MIB, a, GLAKE_ALLOC_CONTIGUOUS, &big), -ENOMEM,
		"the GPU cannot be waited for");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	is_int((int64_t)rig_figures(&rig).free_pages, 8 * (int64_t)MIB,
		"all is as it was");
	is_sound(&rig, "the books agree");
	glk_soft_hold(rig.drv, 0, a, false);
	is_int(rig_try(&rig, 6 * MIB, a, GLAKE_ALLOC_CONTIGUOUS, &big), 0,
		"later it can");
	is_int((int64_t)rig_figures(&rig).reserved, 6 * (int64_t)MIB,
		"with a page of its own");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Blocks in bins, more of them than go for other reasons. */
static void empties_bins(void)
{
	static uint64_t addr[7800];
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=124MiB", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < 7800; i++)
		addr[i] = rig_alloc(&rig, 16 << 10, a);
	for (int i = 0; i < 7800; i++)
		rig_free(&rig, addr[i], a);
	ok(rig_alloc(&rig, 121 * MIB, a), "what all bins have is had");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Work that is over, of which nobody was told yet, is asked for before it is waited for. */
static void asks_first(void)
{
	struct CUstream_st *a, *b;
	uint64_t one, other, syncs;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=16MiB", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	one = rig_alloc(&rig, 8 * MIB, a);
	is_int(glk_cache_spill(&rig.cache, one, a), 0, "a block goes");
	other = rig_single(&rig, 10 * MIB, b);
	rig_work(&rig, other, 10 * MIB, b);
	rig_free(&rig, other, b);
	syncs = rig_calls(&rig, GLAKE_CALL_SYNC);
	is_int(glk_cache_fetch(&rig.cache, one, a), 0, "it comes in another one's room");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_SYNC) - syncs), 0,
		"which is known to be at rest");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Addresses that work is under way on: it is waited for, and nothing that has to do with none of them. */
static void waits_for_addresses(const char *fault)
{
	struct CUstream_st *a, *b, *c;
	uint64_t one, idle, big = 0;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "map.span=1GiB",
			"soft.memory=2GiB", RIG_DONE, "policy.bins=0", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	idle = rig_alloc(&rig, 4 * MIB, c);
	one = rig_alloc(&rig, 700 * MIB, b);
	rig_work(&rig, one, 4 * MIB, b);
	rig_free(&rig, one, b);
	rig_work(&rig, idle, 4 * MIB, c);
	glk_soft_hold(rig.drv, 0, c, !*fault);
	glk_fault_set(rig.drv, *fault ? fault : "off");
	is_int(rig_try(&rig, 700 * MIB, a, 0, &big), 0,
		*fault ? "they are had though a wait fails" : "they are had");
	glk_fault_set(rig.drv, "off");
	glk_soft_hold(rig.drv, 0, c, false);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* A page of a stream that captures a graph stays, and no other one does for it. */
static void passes_captures(void)
{
	struct CUstream_st *s[3];
	uint64_t one[2];
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"pool.budget=16MiB", "soft.streams=stepped", NULL});
	for (int i = 0; i < 3; i++)
		s[i] = rig_stream(&rig);
	for (int i = 0; i < 2; i++) {
		one[i] = rig_single(&rig, 8 * MIB, s[i]);
		rig_work(&rig, one[i], 8 * MIB, s[i]);
	}
	for (int i = 0; i < 2; i++)
		rig_free(&rig, one[i], s[i]);
	rig_capture(&rig, s[0]);
	ok(rig_single(&rig, 6 * MIB, s[2]),
		"a page behind one that cannot be waited for");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void explains(void)
{
	struct CUstream_st *a;
	struct glake_stats s;
	uint64_t addr = 5;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=32MiB", NULL});
	a = rig_stream(&rig);
	rig_alloc(&rig, 20 * MIB, a);
	is_int(rig_try(&rig, 20 * MIB, a, 0, &addr), -ENOMEM, "no room");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	has_str(rig_error().text,
		"no room for 12 MiB of pages more: ", "  what was needed");
	has_str(rig_error().text, "a budget of 32 MiB", "  what may be held");
	has_str(rig_error().text, "20 MiB in live blocks", "  what is live");
	has_str(rig_error().text, "largest hole", "  the largest hole");
	is_int((int64_t)addr, 5, "the output is as it was");
	s = rig_figures(&rig);
	is_int((int64_t)s.oom, 1, "it is counted");
	is_int((int64_t)s.live_blocks, 1, "nothing else has changed");
	is_sound(&rig, "the books agree");
	addr = rig_alloc(&rig, 12 * MIB, a);
	ok(addr, "a smaller one fits");
	rig_close(&rig, 2);
}

/* The sentence tells where all is that is held. */
static void says_where(void)
{
	uint64_t small, kept, addr = 0;
	struct CUstream_st *s;
	struct rig rig;
	int err;

	rig_open(&rig, (const char *const[]){"pool.budget=40MiB", NULL});
	s = rig_stream(&rig);
	small = rig_alloc(&rig, 512, s);
	kept = rig_alloc(&rig, 10 * MIB, s);
	err = rig_try(&rig, 36 * MIB, s, 0, &addr);
	is_int(err, -ENOMEM, "no room");
	has_str(rig_error().text, "10.00 MiB in live blocks", "  what is live");
	has_str(rig_error().text, "1.99 MiB beside them in their pages",
		"  what is beside it");
	has_str(rig_error().text, "in plans", "  what a request had got");
	has_str(rig_error().text, ", 0 bytes idle, largest hole ", "  what nobody uses");
	rig_free(&rig, small, s);
	rig_free(&rig, kept, s);
	rig_close(&rig, 0);
}

/* The driver may have less than the budget says. */
static void meets_driver(void)
{
	struct CUstream_st *a;
	uint64_t addr[16];
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=32MiB", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < 16; i++)
		addr[i] = rig_alloc(&rig, 2 * MIB, a);
	for (int i = 0; i < 16; i++)
		rig_free(&rig, addr[i], a);
	ok(rig_alloc(&rig, 32 * MIB, a), "no budget: the driver's own limit is met too");
	is_int((int64_t)rig_figures(&rig).reserved, 32 * (int64_t)MIB, "exactly");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* No budget: what the driver has left counts with what is given back. */
static void adds_up(void)
{
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=16MiB", NULL});
	a = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, 100, a), a);
	ok(rig_alloc(&rig, 8 * MIB, a),
		"a page of 8 MiB of 16, and one of 2 that is idle");
	ok(rig_alloc(&rig, 8 * MIB, a),
		"the rest of the GPU and the idle one are another");
	is_int((int64_t)rig_figures(&rig).reserved, 16 * (int64_t)MIB, "that is all");
	ok(!rig_alloc(&rig, 1, a), "there is no more");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* A quota of which others leave 38 MiB, and each second time that it is asked more, which they have taken by then. */
#define LEFT (38 * MIB)

static const struct glk_node *limited;
static unsigned asked;

static uint64_t room(const struct glk_quota *quota)
{
	(void)quota;
	return asked++ % 2 ? LEFT : 2 * LEFT;
}

static int take(struct glk_quota *quota, uint64_t bytes, bool may_call)
{
	(void)quota, (void)may_call;
	return glk_load_relaxed(&limited->held) + bytes > LEFT ? -ENOMEM : 0;
}

static void put(struct glk_quota *quota, uint64_t bytes)
{
	(void)quota, (void)bytes;
}

/* No more goes back than what lacks, whatever is left when that is asked. */
static void quota_changes(unsigned from)
{
	struct glk_quota quota = {.room = room, .take = take, .put = put};
	struct CUstream_st *a;
	uint64_t idle[3];
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=96MiB", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < 3; i++)
		idle[i] = rig_single(&rig, 10 * MIB, a);
	for (int i = 0; i < 3; i++)
		rig_free(&rig, idle[i], a);
	limited = rig.cache.node;
	rig.cache.node->quota = &quota;
	asked = from;
	ok(rig_single(&rig, 14 * MIB, a), "14 MiB, for which idle pages of 10 go");
	rig.cache.node->quota = NULL;
	ok(rig_calls(&rig, GLAKE_CALL_RELEASE) < 3, "  and not all three");
	rig_close(&rig, 1);
}

int main(void)
{
	tap_plan_later();
	adds_up();
	recuts();
	quota_changes(0);
	quota_changes(1);
	releases();
	syncs_last();
	cannot_sync();
	passes_captures();
	empties_bins();
	asks_first();
	waits_for_addresses("");
	waits_for_addresses("event_sync:nth=1:err=EIO");
	explains();
	says_where();
	meets_driver();
	return tap_done();
}
