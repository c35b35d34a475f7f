/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Other calls beside a suspension, and beside its end. */
#include "plan_parts.h"

#include "cache/ahead.h"

#include <sched.h>

static struct rig rig;
static struct CUstream_st *a;
static struct glake_suspended did;

/* A block that another call has in its hands for good, as one has that was cancelled in it. */
static void is_held(void)
{
	struct held one, two;
	struct glk_extent *e;

	rig_open(&rig, (const char *const[]){"policy.bins=0", NULL});
	a = rig_stream(&rig);
	plan_take(&rig, &one, 5 * MIB, a);
	plan_take(&rig, &two, 7 * MIB, a);
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended");
	e = glk_lookup_claim(glk_cache_range(&rig.cache, one.addr), one.addr);
	is_int(glk_cache_resume(&rig.cache, false, &did), -EBUSY, "its end is given up");
	is_int((int)rig_error().error_class, GLAKE_ERROR_BUSY, "since somebody is busy");
	is_int((int64_t)did.moved, 7 << 20, "the other block is back");
	is_int(rig_try(&rig, 600, a, 0, &(uint64_t){0}), -EAGAIN,
		"the GPU is suspended still");
	glk_extent_set(e, GLK_EXTENT_LIVE);
	is_int(glk_cache_resume(&rig.cache, false, &did), 0,
		"let go of, the end is there");
	is_int((int64_t)did.moved, 5 << 20, "and the block");
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &two, a), "both as they were");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void lower(struct errand *e)
{
	struct glake_suspended unused;

	e->err = glk_cache_suspend(&e->rig->cache, true, &unused);
}

static void raise_all(struct errand *e)
{
	struct glake_suspended unused;

	e->err = glk_cache_resume(&e->rig->cache, false, &unused);
}

/* What would take memory while another thread is in the middle of a call of the driver. */
static void is_answered(struct held *h)
{
	is_int(rig_try(&rig, 5 * MIB, a, 0, &(uint64_t){0}), -EAGAIN,
		"a request is answered");
	is_int(rig_try(&rig, 600, a, 0, &(uint64_t){0}), -EAGAIN, "a small one");
	is_int(glk_cache_fetch(&rig.cache, h->addr, a), -EAGAIN, "a fetch");
}

/* Who asks for memory while blocks go to the host in place, or come from there, is told at once. */
static void is_asked(void)
{
	struct errand out = {.fn = lower, .rig = &rig},
		      back = {.fn = raise_all, .rig = &rig};
	struct held one, two;

	gate_open_rig(&rig,
		(const char *const[]){"soft.host_memory=512MiB", "tier.host=400MiB",
			"policy.bins=0", NULL});
	a = rig_stream(&rig);
	plan_take(&rig, &one, 40 * MIB, a);
	plan_take(&rig, &two, 50 * MIB, a);
	ok(gate_send(&out, GLK_OP_copy, 2), "blocks are about to go");
	is_answered(&one);
	is_answered(&two);
	is_int(gate_end(&out, 0), 0, "suspended in place");
	is_answered(&one);
	is_int(glk_cache_fetch(&rig.cache, one.addr + 512, a), -EINVAL,
		"one of no block is told so");
	ok(gate_send(&back, GLK_OP_copy, 2), "they are about to come");
	is_answered(&one);
	is_answered(&two);
	is_int(gate_end(&back, 0), 0, "resumed");
	is_int(rig_try(&rig, 600, a, 0, &out.addr), 0, "a request is served");
	is_int(rig_free(&rig, out.addr, a), 0, "and freed");
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &two, a),
		"the others as they were");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Also while the suspension waits for a request that is under way. */
static void is_asked_early(void)
{
	struct errand first = {.fn = errand_alloc, .rig = &rig, .size = 5 * MIB};
	struct errand out = {.fn = lower, .rig = &rig};
	struct held one;

	gate_open_rig(&rig,
		(const char *const[]){"soft.host_memory=512MiB", "tier.host=400MiB",
			"policy.bins=0", NULL});
	a = rig_stream(&rig);
	plan_take(&rig, &one, 40 * MIB, a);
	first.stream = a;
	ok(gate_send(&first, GLK_OP_map, 1), "a request stands in the driver");
	if (pthread_create(&out.thread, NULL, gate_run, &out))
		tap_bail("no thread");
	while (!glk_load_relaxed(&rig.cache.suspended))
		sched_yield();
	is_int(glk_cache_fetch(&rig.cache, one.addr, a), -EAGAIN,
		"a fetch behind a suspension");
	is_int(gate_end(&first, 0), 0, "the request is served");
	pthread_join(out.thread, NULL);
	is_int(out.err, 0, "suspended in place");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	is_int(rig_free(&rig, first.addr, a), 0, "what was served is freed");
	ok(plan_drop(&rig, &one, a), "the block is as it was");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* The thread that makes pages ahead, which was about to make some, or is at it. */
static void rests(void)
{
	bool asleep;

	rig_open(&rig,
		(const char *const[]){"soft.host_memory=512MiB", "tier.host=400MiB",
			"pool.ahead=256MiB", "policy.bins=0", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < 8; i++) {
		ok(rig_alloc(&rig, 20 * MIB, a), "a block");
		is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended");
		do {
			sched_yield();
			glk_lock(&rig.cache.lock);
			asleep = rig.cache.ahead->asleep;
			glk_unlock(&rig.cache.lock);
		} while (!asleep);
		is_int((int64_t)rig_figures(&rig).reserved, 0,
			"no page is made ahead meanwhile");
		is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	}
	is_sound(&rig, "the books agree");
	rig_close(&rig, 8);
}

/* What stays on the GPU, and is freed while nothing is served there. */
static void gives_nothing(void)
{
	static const size_t sizes[] = {600, 100 << 10, 5 * MIB, 40 * MIB};
	uint64_t addr[4], other;

	rig_open(&rig,
		(const char *const[]){
			"soft.host_memory=512MiB", "tier.host=400MiB", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < 4; i++) {
		/* the next one of its size finds a bin for it */
		for (int n = 0; n < 3; n++)
			rig_free(&rig, rig_alloc(&rig, sizes[i], a), a);
		addr[i] = rig_alloc(&rig, sizes[i], a);
		/* small ones stay in any case */
		if (i > 1)
			is_int(glk_cache_advise(&rig.cache, addr[i], GLAKE_ADVICE_PINNED),
				0, "a block is pinned");
	}
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended");
	for (int i = 0; i < 4; i++) {
		if (i > 1)
			glk_cache_advise(&rig.cache, addr[i], GLAKE_ADVICE_NORMAL);
		is_int(rig_free(&rig, addr[i], a), 0, "it is freed there");
		is_int(rig_try(&rig, sizes[i], a, 0, &other), -EAGAIN,
			"and serves nobody meanwhile");
	}
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	for (int i = 0; i < 4; i++)
		ok(rig_free(&rig, rig_alloc(&rig, sizes[i], a), a) == 0,
			"and then others have room");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	is_held();
	is_asked();
	is_asked_early();
	rests();
	gives_nothing();
	return tap_done();
}
