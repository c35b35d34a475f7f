/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One GPU lends memory to another, which gives it to requests that it has no room for, and to what it has
 * while it is suspended. */
#include "context.h"

#define ROOM                                                                             \
	"soft.gpus=2", "soft.memory=64MiB", "soft.host_memory=256MiB",                   \
		"tier.host=128MiB", "tier.place=peer", "tier.peer=1", "policy.bins=0"

static struct glake *ctx;
static struct CUstream_st *stream, *other;

static void set_up(const char *const *settings)
{
	ctx = flow_open(settings);
	glake_stream_new(ctx, 0, &stream);
	glake_stream_new(ctx, 1, &other);
}

static void tear_down(size_t leaked)
{
	glake_stream_free(ctx, 0, stream);
	glake_stream_free(ctx, 1, other);
	flow_close(ctx, leaked);
}

/* Each word says where it is. */
static void *take(int device, size_t size)
{
	void *ptr = NULL;

	if (glake_alloc(ctx, device, size, device ? other : stream, 0, &ptr))
		return NULL;
	for (size_t i = 0; i + 8 <= size; i += 4096)
		*(uintptr_t *)((char *)ptr + i) = (uintptr_t)ptr + i;
	return ptr;
}

static bool holds(const void *ptr, size_t size)
{
	for (size_t i = 0; i + 8 <= size; i += 4096)
		if (*(const uintptr_t *)((const char *)ptr + i) != (uintptr_t)ptr + i)
			return false;
	return true;
}

static uint64_t placed(const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	return glake_query(ctx, ptr, &block) ? UINT64_MAX : block.placed;
}

/* First the GPU, then what the other one lends, then the host; and back. */
static void in_order(void)
{
	void *here, *there, *far, *mine;
	struct glake_stats s, lender;
	size_t released;

	set_up((const char *const[]){ROOM, NULL});
	here = take(0, 60 * MIB);
	is_int((int64_t)placed(here), 0, "a block of the GPU");
	there = take(0, 30 * MIB);
	is_int((int64_t)placed(there), 30 << 20, "one that it has no room for");
	s = flow_stats(ctx, 0);
	lender = flow_stats(ctx, 1);
	is_int((int64_t)s.placed_peer, 30 << 20, "lies on the other");
	is_int((int64_t)s.borrowed, 30 << 20, "which holds pages for it");
	is_int((int64_t)s.host_held, 0, "and the host none");
	is_int((int64_t)s.rungs[GLAKE_RUNG_SPILL_PEER], 1, "a rung of its own");
	is_int((int64_t)lender.lent, 30 << 20, "they are told as lent");
	is_int((int64_t)lender.reserved, 30 << 20, "and are held there");
	is_int((int64_t)lender.in_flight, 0, "in nobody's hands");
	is_int(glake_soft_kernel(ctx, 0, stream, there, 30 * MIB, 1), 0,
		"a kernel uses it");
	is_int(glake_soft_stream_sync(ctx, 0, stream), 0, "where it is");
	far = take(0, 12 * MIB);
	s = flow_stats(ctx, 0);
	is_int((int64_t)placed(far), 12 << 20, "what is more than half of the other");
	is_int((int64_t)s.placed_peer, 32 << 20, "has the rest of that");
	is_int((int64_t)s.host_held, 10 << 20, "and the host");
	mine = take(1, 31 * MIB);
	is_int((int64_t)placed(mine), 0, "the lender has its own half");
	is_int(take(1, 40 * MIB) != NULL, 1, "and the host");
	is_int((int64_t)flow_stats(ctx, 1).placed_peer, 0, "no GPU lends to it");
	glake_free(ctx, here, stream);
	is_int(glake_fetch(ctx, there, stream), 0, "one is fetched");
	is_int((int64_t)placed(there), 0, "it is here");
	is_int(glake_quiet(ctx, 0, NULL), 0, "the others at a quiet point");
	s = flow_stats(ctx, 0);
	is_int((int64_t)(s.placed + s.placed_peer), 0, "nothing is anywhere else");
	ok(holds(there, 30 * MIB) && holds(far, 12 * MIB) && holds(mine, 31 * MIB),
		"all have what was written");
	is_int(glake_trim(ctx, 0, 0, &released), 0, "a trim");
	is_int((int64_t)flow_stats(ctx, 0).borrowed, 0, "gives the pages back");
	is_int((int64_t)flow_stats(ctx, 1).lent, 0, "to their GPU");
	is_int((int64_t)flow_stats(ctx, 1).reserved, 32 << 20, "which has its own alone");
	tear_down(4);
}

/* What it may lend, and its budget. */
static void has_ends(void)
{
	void *here, *there;

	set_up((const char *const[]){ROOM, "tier.peer_room=16MiB", "tier.host=8MiB",
		"pool.large_page=8MiB", NULL});
	here = take(0, 60 * MIB);
	is_int(take(0, 30 * MIB) == NULL, 1, "more than both have is refused");
	is_int(flow_error().err, -ENOMEM, "as any");
	is_int((int64_t)flow_stats(ctx, 1).lent, 0, "and leaves nothing lent");
	there = take(0, 16 * MIB);
	is_int((int64_t)flow_stats(ctx, 0).placed_peer, 16 << 20, "as much as it lends");
	glake_free(ctx, there, stream);
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "a trim");
	is_int(glake_budget_set(ctx, 1, 9 * MIB), 0, "a budget of the lender");
	there = take(0, 16 * MIB);
	is_int((int64_t)flow_stats(ctx, 1).lent, 8 << 20, "is for what it lends too");
	is_int((int64_t)flow_stats(ctx, 0).host_held, 8 << 20, "the host has the rest");
	is_int(glake_conf_set(ctx, "tier.place", "host"), 0, "no lender any more");
	glake_free(ctx, there, stream);
	glake_trim(ctx, 0, 0, NULL);
	is_int(take(0, 4 * MIB) != NULL, 1, "a block");
	is_int((int64_t)flow_stats(ctx, 1).lent, 0, "of the host");
	glake_free(ctx, here, stream);
	tear_down(1);
}

/* A GPU that refuses to lend is asked once; then there is the host. */
static void refuses(void)
{
	void *here, *there;

	set_up((const char *const[]){
		ROOM, "driver.fault=create:from=6:len=1:err=EPERM", NULL});
	is_int(glake_budget_set(ctx, 0, 60 * MIB), 0,
		"a budget, so that the GPU is not asked");
	here = take(0, 60 * MIB);
	there = take(0, 20 * MIB);
	tap_expect_log(1);
	is_int((int64_t)placed(there), 20 << 20, "a block");
	is_int((int64_t)flow_stats(ctx, 0).placed_peer, 0, "of the host");
	ok(holds(there, 20 * MIB) && holds(here, 60 * MIB), "with what was written");
	tear_down(2);
}

/* One that is out of reach lends nothing. */
static void is_far(void)
{
	void *here, *there;

	set_up((const char *const[]){ROOM, "driver.fault=peer_can:nth=1:err=EIO", NULL});
	tap_expect_log(1);
	here = take(0, 60 * MIB);
	there = take(0, 20 * MIB);
	is_int((int64_t)placed(there), 20 << 20, "a block beside the GPU");
	is_int((int64_t)flow_stats(ctx, 0).placed_peer, 0, "lies on the host");
	ok(holds(there, 20 * MIB) && holds(here, 60 * MIB), "with what was written");
	tear_down(2);
}

/* Suspended in place, a GPU has its blocks on the other, and may use them there. */
static void suspends(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	void *one, *two;

	set_up((const char *const[]){ROOM, NULL});
	one = take(0, 25 * MIB);
	two = take(0, 12 * MIB);
	is_int(glake_suspend_in_place(ctx, 0, &did), 0, "suspended");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "the GPU has nothing");
	is_int((int64_t)flow_stats(ctx, 0).placed_peer >= 24 << 20, 1,
		"the other has most");
	is_int((int64_t)flow_stats(ctx, 0).placed, 37 << 20, "of all that there is");
	is_int(glake_resume_lazy(ctx, 0, &did), 0, "resumed lazily");
	is_int(glake_fetch(ctx, two, stream), 0, "one is fetched");
	is_int(glake_suspend_in_place(ctx, 0, &did), 0, "suspended again");
	is_int(glake_resume(ctx, 0, &did), 0, "resumed");
	is_int((int64_t)flow_stats(ctx, 0).placed_peer, 0, "all are here");
	ok(holds(one, 25 * MIB) && holds(two, 12 * MIB), "with what was written");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "a trim");
	is_int((int64_t)flow_stats(ctx, 1).reserved, 0, "the other has its memory back");
	glake_free(ctx, one, stream);
	glake_free(ctx, two, stream);
	tear_down(0);
}

/* A lender that is suspended lends no more, says what others have, and has back what they do not use. */
static void is_suspended(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	void *mine, *here, *there, *more;

	set_up((const char *const[]){ROOM, NULL});
	mine = take(1, 30 * MIB);
	here = take(0, 60 * MIB);
	there = take(0, 10 * MIB);
	more = take(0, 12 * MIB);
	is_int((int64_t)flow_stats(ctx, 1).lent, 22 << 20, "two blocks are lent");
	glake_free(ctx, more, stream);
	is_int(glake_suspend(ctx, 1, &did), 0, "the lender is suspended");
	is_int((int64_t)did.moved, 30 << 20, "its own block goes");
	is_int((int64_t)did.stayed, 10 << 20, "what another uses stays");
	is_int((int64_t)flow_stats(ctx, 1).reserved, 10 << 20, "and no more than that");
	more = take(0, 20 * MIB);
	is_int((int64_t)placed(more), 20 << 20, "a block beside the GPU");
	is_int((int64_t)flow_stats(ctx, 1).reserved, 10 << 20,
		"has nothing of the lender");
	is_int(glake_budget_set(ctx, 1, 30 * MIB), 0, "there is no room for all");
	is_int(glake_resume(ctx, 1, &did), -ENOMEM, "so it stays suspended");
	glake_free(ctx, there, stream);
	is_int(glake_resume(ctx, 1, &did), 0, "until what was lent is freed");
	ok(holds(mine, 30 * MIB) && holds(here, 60 * MIB) && holds(more, 20 * MIB),
		"all have what was written");
	is_int(glake_budget_set(ctx, 1, SIZE_MAX), 0, "with room");
	is_int(take(0, 8 * MIB) != NULL, 1, "another block");
	is_int((int64_t)flow_stats(ctx, 1).lent, 8 << 20, "is lent again");
	tear_down(4);
}

int main(void)
{
	tap_plan_later();
	in_order();
	has_ends();
	refuses();
	is_far();
	suspends();
	is_suspended();
	return tap_done();
}
