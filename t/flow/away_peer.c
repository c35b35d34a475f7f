/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that are away lie in memory of another GPU while that lends some, and on the host beyond. */
#include "away_peer.h"

#include <string.h>

static int64_t figure_of_tier(const char *name, const char *tier);

/* So much of a block is away, and so much of that with the other GPU. */
#define lies(ptr, want_away, want_peer, what)                                            \
	do {                                                                             \
		is_int(mib(about(ptr).away), want_away, what ": so much is away");       \
		is_int(mib(about(ptr).away_peer), want_peer,                             \
			"  of that with the other GPU");                                 \
	} while (0)

static void in_order(void)
{
	struct glake_stats s;
	void *one, *two, *mine;
	size_t released;

	set_up((const char *const[]){ROOM, "tier.peer_room=128MiB", NULL});
	one = take(ctx, 0, 100 * MIB);
	two = take(ctx, 0, 60 * MIB);
	mine = take(ctx, 1, 10 * MIB);
	is_int(glake_spill(ctx, one, stream), 0, "a block goes");
	lies(one, 100, 100, "it");
	s = flow_stats(ctx, 0);
	is_int(mib(s.store_peer), 128, "pieces are lent");
	is_int(mib(s.store_peer_used), 100, "and used");
	is_int(mib(s.store + s.store_used + s.host_held), 0, "the host has nothing");
	is_int(mib(s.borrowed), 128, "they are borrowed");
	is_int(mib(flow_stats(ctx, 1).lent), 128, "and lent");
	is_int(mib(flow_stats(ctx, 1).in_flight), 0, "in nobody's hands");
	is_int(figure_of_tier("tier_live_bytes", "peer"), 100, "figures tell it");
	is_int(figure_of_tier("tier_held_bytes", "peer"), 128, "  by the tier");
	is_int(glake_spill(ctx, two, stream), 0, "one more");
	lies(two, 60, 28, "its rest is on the host");
	is_int(mib(flow_stats(ctx, 0).store_used), 32, "which has no more of it");
	is_int(figure_of_tier("tier_live_bytes", "host"), 32, "as figures tell");
	is_int(glake_spill(ctx, mine, other), 0, "a block of the lender goes");
	lies(mine, 10, 0, "nobody lends to it");
	is_int(glake_fetch(ctx, two, stream) | glake_fetch(ctx, one, stream) |
			glake_fetch(ctx, mine, other),
		0, "all come back");
	lies(two, 0, 0, "one");
	ok(holds(one, 100 * MIB) && holds(two, 60 * MIB) && holds(mine, 10 * MIB),
		"they have what was written");
	s = flow_stats(ctx, 0);
	is_int(mib(s.store_peer_used), 0, "nothing is there");
	is_int(mib(s.store_peer), 128, "what was lent is kept");
	is_int(glake_spill(ctx, one, stream), 0, "it serves again");
	glake_free(ctx, one, stream);
	is_int(mib(flow_stats(ctx, 0).store_peer_used), 0, "one is freed where it is");
	glake_free(ctx, two, stream);
	glake_soft_stream_sync(ctx, 0, stream);
	is_int(glake_trim(ctx, 0, 0, &released), 0, "a trim");
	is_int(mib(flow_stats(ctx, 1).lent), 0, "gives it back");
	is_int(mib(flow_stats(ctx, 0).borrowed), 0, "on both sides");
	tear_down(1);
}

struct search {
	const char *name, *tier;
	uint64_t value;
};

static int find(const struct glake_figure *figure, void *arg)
{
	struct search *s = arg;

	if (figure->device != 0 || strcmp(figure->name, s->name) ||
		strcmp(figure->of, s->tier))
		return 0;
	s->value = figure->value;
	return 1;
}

static int64_t figure_of_tier(const char *name, const char *tier)
{
	struct search s = {name, tier, UINT64_MAX};

	glake_figures(ctx, find, &s);
	return mib(s.value);
}

/* Parts of a block, of which some lie there and some on the host. */
static void in_parts(void)
{
	void *block, *first;

	set_up((const char *const[]){ROOM, "tier.peer_room=64MiB", NULL});
	first = take(ctx, 0, 40 * MIB);
	block = take(ctx, 0, 64 * MIB);
	is_int(glake_spill(ctx, first, stream), 0, "a block goes");
	is_int(glake_spill_range(ctx, block, 8 * MIB, 48 * MIB, stream, NULL), 0,
		"a range of another");
	lies(block, 48, 24, "half of it");
	is_int(glake_fetch_range(ctx, block, 16 * MIB, 8 * MIB, stream, NULL), 0,
		"a part comes");
	is_int(mib(about(block).away), 40, "the rest is away");
	is_int(mib(flow_stats(ctx, 0).store_peer_used + flow_stats(ctx, 0).store_used),
		80, "and takes its room");
	is_int(mib(about(block).away_peer) + 40, mib(flow_stats(ctx, 0).store_peer_used),
		"what is there is told");
	is_int(glake_spill_range(ctx, block, 0, 8 * MIB, stream, NULL), 0,
		"another range goes");
	is_int(mib(about(block).away_peer) + 40, mib(flow_stats(ctx, 0).store_peer_used),
		"and is told");
	is_int(glake_fetch(ctx, first, stream), 0, "the first block comes");
	is_int(glake_fetch(ctx, block, stream), 0, "and all of the other");
	lies(block, 0, 0, "it");
	ok(holds(block, 64 * MIB) && holds(first, 40 * MIB), "with what was written");
	is_int(glake_spill(ctx, block, stream), 0, "it goes whole");
	is_int(glake_fetch_range(ctx, block, 0, 16 * MIB, stream, NULL), 0,
		"and comes in part");
	lies(block, 48, 48, "what is left");
	glake_free(ctx, block, stream);
	is_int(mib(flow_stats(ctx, 0).store_peer_used), 0, "it is freed so");
	tear_down(1);
}

/* Where GPUs lend their links to the host, the part of a content that lies there goes over these. */
static void with_links(void)
{
	void *one, *two;

	set_up((const char *const[]){ROOM, "soft.gpus=3", "io.lend=1,2", "io.least=2MiB",
		"tier.peer_room=64MiB", NULL});
	one = take(ctx, 0, 30 * MIB);
	two = take(ctx, 0, 120 * MIB);
	for (int round = 0; round < 3; round++) {
		is_int(glake_spill(ctx, one, stream), 0, "a block goes");
		is_int(glake_spill(ctx, two, stream), 0, "and another, to both");
		lies(two, 120, 34, "it");
		is_int(glake_fetch_range(ctx, two, 40 * MIB, 50 * MIB, stream, NULL), 0,
			"a part of it comes");
		is_int(glake_fetch(ctx, two, stream) | glake_fetch(ctx, one, stream), 0,
			"and all");
		ok(holds(one, 30 * MIB) && holds(two, 120 * MIB), "as it was");
	}
	tear_down(2);
}

/* What the lender has no room for goes to the host: by its budget, its memory, and for less than a piece. */
static void is_short(void)
{
	void *one, *held;

	set_up((const char *const[]){ROOM, "tier.peer_room=63MiB", NULL});
	one = take(ctx, 0, 20 * MIB);
	is_int(glake_spill(ctx, one, stream), 0, "with room for less than a piece");
	lies(one, 20, 0, "a block");
	tear_down(1);
	set_up((const char *const[]){ROOM, NULL});
	is_int(glake_budget_set(ctx, 1, 100 * MIB), 0, "a budget");
	one = take(ctx, 0, 150 * MIB);
	is_int(glake_spill(ctx, one, stream), 0, "of the lender");
	lies(one, 150, 64, "a block");
	is_int(glake_fetch(ctx, one, stream), 0, "which comes back");
	ok(holds(one, 150 * MIB), "as it was");
	tear_down(1);
	set_up((const char *const[]){ROOM, NULL});
	held = take(ctx, 1, 400 * MIB);
	one = take(ctx, 0, 150 * MIB);
	is_int(glake_spill(ctx, one, stream), 0, "a lender that is nearly full");
	lies(one, 150, 64, "a block");
	is_int(glake_fetch(ctx, one, stream), 0, "which comes back");
	ok(holds(one, 150 * MIB) && holds(held, 400 * MIB), "as it was");
	tear_down(2);
	set_up((const char *const[]){
		ROOM, "tier.peer_room=64MiB", "tier.host=64MiB", NULL});
	one = take(ctx, 0, 150 * MIB);
	is_error(glake_spill(ctx, one, stream), -ENOMEM, "LIMIT");
	lies(one, 0, 0, "neither has room, and a block");
	is_int(mib(flow_stats(ctx, 0).store_peer_used), 0,
		"nothing of it is anywhere else");
	ok(holds(one, 150 * MIB), "it is as it was");
	tear_down(1);
}

/* Blocks in place and contents share what is lent. */
static void shares_room(void)
{
	void *here, *there, *one;

	set_up((const char *const[]){
		ROOM, "tier.place=peer", "tier.peer_room=128MiB", NULL});
	one = take(ctx, 0, 100 * MIB);
	here = take(ctx, 0, 400 * MIB);
	there = take(ctx, 0, 80 * MIB);
	is_int(mib(flow_stats(ctx, 0).placed_peer) > 60, 1,
		"a block lies there in place");
	is_int(glake_spill(ctx, one, stream), 0, "another goes away");
	lies(one, 100, 0, "which has no piece there");
	is_int(mib(flow_stats(ctx, 1).lent) <= 128, 1, "within what is lent");
	glake_free(ctx, there, stream);
	is_int(glake_fetch(ctx, one, stream), 0, "it comes back");
	glake_trim(ctx, 0, 0, NULL);
	is_int(glake_spill(ctx, one, stream), 0, "and goes again");
	lies(one, 100, 100, "all of it to the other GPU");
	is_int(glake_fetch(ctx, one, stream), 0, "from where it comes");
	ok(holds(one, 100 * MIB) && holds(here, 400 * MIB), "as it was");
	tear_down(2);
}

/* One out of reach, one that is not there, and one that lends to itself. */
static void nobody_lends(void)
{
	static const struct {
		const char *setting, *what;
		int warnings;
	} cases[] = {
		{"driver.fault=peer_can:nth=1:err=EIO", "a lender out of reach", 1},
		{"tier.peer=7", "one that is not there", 1},
		{"tier.peer=0", "one that would lend to itself", 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		void *one;

		tap_expect_log(cases[i].warnings);
		set_up((const char *const[]){ROOM, cases[i].setting, NULL});
		one = take(ctx, 0, 20 * MIB);
		is_int(glake_spill(ctx, one, stream), 0, cases[i].what);
		lies(one, 20, 0, "a block");
		is_int(glake_fetch(ctx, one, stream), 0, "it comes back");
		ok(holds(one, 20 * MIB), "as it was");
		tear_down(1);
	}
}

static void turns(void)
{
	void *one, *two;

	set_up((const char *const[]){ROOM, NULL});
	one = take(ctx, 0, 20 * MIB);
	two = take(ctx, 0, 20 * MIB);
	is_int(glake_conf_set(ctx, "tier.away", "host"), 0, "the key is changed");
	is_int(glake_spill(ctx, one, stream), 0, "a block goes");
	lies(one, 20, 0, "to the host");
	is_int(glake_conf_set(ctx, "tier.away", "peer"), 0, "and changed again");
	is_int(glake_spill(ctx, two, stream), 0, "another goes");
	lies(two, 20, 20, "to the other GPU");
	is_int(glake_conf_set(ctx, "tier.away", "host"), 0, "and once more");
	lies(two, 20, 20, "what is there stays");
	is_int(glake_fetch(ctx, one, stream) | glake_fetch(ctx, two, stream), 0,
		"both come");
	is_int(glake_spill(ctx, two, stream), 0, "one goes");
	lies(two, 20, 0, "to the host, beside a piece that is free");
	is_int(glake_conf_set(ctx, "tier.away", "gpu"), -EINVAL, "there is no other");
	is_int(glake_fetch(ctx, two, stream), 0, "it comes");
	ok(holds(one, 20 * MIB) && holds(two, 20 * MIB), "both are as they were");
	tear_down(2);
}

/* Who is suspended has its blocks there, and its memory back. */
static void suspends(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	void *one, *two;

	set_up((const char *const[]){ROOM, "tier.peer_room=64MiB", NULL});
	one = take(ctx, 0, 50 * MIB);
	two = take(ctx, 0, 40 * MIB);
	is_int(glake_suspend(ctx, 0, &did), 0, "suspended");
	is_int(mib(did.moved), 90, "all go");
	is_int(mib(flow_stats(ctx, 0).reserved), 0, "the GPU has nothing");
	is_int(mib(flow_stats(ctx, 0).store_peer_used), 64,
		"the other has what it lends");
	is_int(mib(flow_stats(ctx, 0).store_used), 26, "the host the rest");
	is_int(mib(flow_stats(ctx, 0).store), 64, "in one piece");
	is_int(glake_resume(ctx, 0, &did), 0, "resumed");
	is_int(mib(did.moved), 90, "all are back");
	ok(holds(one, 50 * MIB) && holds(two, 40 * MIB), "as they were");
	is_int(mib(flow_stats(ctx, 0).store_peer_used), 0, "and nothing is there");
	tear_down(2);
}

/* A lender that is suspended has its memory back, and what lay there lies on the host. */
static void lender_suspends(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	void *one, *two, *part, *mine, *small[8], *tagged;
	uint32_t tag;

	set_up((const char *const[]){ROOM, NULL});
	one = take(ctx, 0, 50 * MIB);
	two = take(ctx, 0, 70 * MIB);
	part = take(ctx, 0, 16 * MIB);
	mine = take(ctx, 1, 30 * MIB);
	glake_tag_open(ctx, "some", &tag);
	glake_tag_set(ctx, tag, NULL);
	tagged = take(ctx, 0, 20 * MIB);
	for (int i = 0; i < 8; i++)
		small[i] = take(ctx, 0, 32768);
	glake_tag_set(ctx, 0, NULL);
	is_int(glake_spill(ctx, one, stream), 0, "a block goes");
	is_int(glake_spill(ctx, two, stream), 0, "and another");
	is_int(glake_spill_range(ctx, part, 4 * MIB, 8 * MIB, stream, NULL), 0,
		"and a range");
	is_int(glake_tag_suspend(ctx, 0, tag, 0, &did), 0,
		"and a tag, with small blocks");
	lies(part, 8, 8, "the range");
	lies(tagged, 20, 20, "a block with the tag");
	is_int((int64_t)about(small[3]).away_peer, 32768, "a small one");
	is_int(glake_suspend(ctx, 1, &did), 0, "the lender is suspended");
	is_int(mib(did.moved), 30, "its own block goes");
	is_int((int64_t)did.stayed, 0, "nothing stays");
	is_int(mib(flow_stats(ctx, 1).reserved), 0, "it has nothing");
	is_int(mib(flow_stats(ctx, 0).store_peer), 0, "nor has the other there");
	lies(one, 50, 0, "a block");
	lies(two, 70, 0, "a larger one");
	lies(part, 8, 0, "the range");
	lies(tagged, 20, 0, "a block with the tag");
	is_int((int64_t)about(small[3]).away_peer, 0, "and a small one");
	is_int(glake_fetch(ctx, one, stream), 0, "one comes");
	is_int(glake_spill(ctx, one, stream), 0, "and goes");
	lies(one, 50, 0, "to the host, since nobody lends");
	is_int(glake_resume(ctx, 1, &did), 0, "the lender is resumed");
	is_int(glake_fetch(ctx, one, stream), 0, "one comes");
	is_int(glake_spill(ctx, one, stream), 0, "and goes");
	lies(one, 50, 50, "to the lender again");
	is_int(glake_fetch(ctx, one, stream) | glake_fetch(ctx, two, stream) |
			glake_fetch(ctx, part, stream) |
			glake_tag_resume(ctx, 0, tag, &did),
		0, "all come back");
	ok(holds(one, 50 * MIB) && holds(two, 70 * MIB) && holds(part, 16 * MIB) &&
			holds(tagged, 20 * MIB) && holds(mine, 30 * MIB),
		"as they were");
	for (int i = 0; i < 8; i++)
		ok(holds(small[i], 32768), "a small one too");
	tear_down(13);
}

/* Without room on the host some stays, which is told, and can be used. */
static void stays_there(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	void *one, *two;

	set_up((const char *const[]){ROOM, "tier.host=64MiB", NULL});
	one = take(ctx, 0, 100 * MIB);
	two = take(ctx, 0, 28 * MIB);
	is_int(glake_spill(ctx, one, stream) | glake_spill(ctx, two, stream), 0,
		"two go");
	is_int(glake_suspend(ctx, 1, &did), 0, "the lender is suspended");
	is_int(mib(did.stayed), 64, "one piece stays");
	is_int(mib(flow_stats(ctx, 1).reserved), 64, "it has no more than that");
	is_int(mib(about(one).away + about(two).away), 128, "both are away");
	is_int(mib(about(one).away_peer + about(two).away_peer), 64, "half of it there");
	is_int(glake_fetch(ctx, one, stream), 0, "one comes from both");
	is_int(glake_suspend(ctx, 1, &did), 0, "another suspension");
	is_int((int64_t)did.stayed, 0, "has the rest");
	is_int(mib(flow_stats(ctx, 1).reserved), 0, "back");
	is_int(glake_fetch(ctx, two, stream), 0, "the other comes");
	ok(holds(one, 100 * MIB) && holds(two, 28 * MIB), "as they were");
	is_int(glake_resume(ctx, 1, &did), 0, "resumed");
	tear_down(2);
}

/* A suspension that is refused leaves a lender that lends. */
static void refused(void)
{
	struct glake_pool_id id = {.low = 1};
	void *one, *mine;

	set_up((const char *const[]){ROOM, NULL});
	one = take(ctx, 0, 20 * MIB);
	mine = take(ctx, 1, 20 * MIB);
	is_int(glake_pool_begin(ctx, 1, id, other), 0, "a pool is open");
	is_int(glake_suspend(ctx, 1, NULL), -EBUSY, "so its GPU is not suspended");
	is_int(glake_spill(ctx, one, stream), 0, "a block goes");
	lies(one, 20, 20, "there");
	is_int(glake_pool_end(ctx, 1, id), 0, "the pool ends");
	glake_pool_release(ctx, 1, id);
	is_int(glake_fetch(ctx, one, stream), 0, "it comes back");
	ok(holds(one, 20 * MIB) && holds(mine, 20 * MIB), "both are as they were");
	tear_down(2);
}

static void captures(void)
{
	uint32_t graph;
	void *one;

	set_up((const char *const[]){ROOM, NULL});
	one = take(ctx, 0, 20 * MIB);
	is_int(glake_soft_capture_begin(ctx, 0, stream), 0, "a capture");
	is_int(glake_spill(ctx, one, stream), -EBUSY, "no block goes behind it");
	lies(one, 0, 0, "it is here");
	is_int(mib(flow_stats(ctx, 0).store_peer_used), 0, "nothing was taken");
	is_int(glake_soft_capture_end(ctx, 0, stream, &graph), 0, "its end");
	is_int(glake_spill(ctx, one, stream), 0, "it goes");
	is_int(glake_soft_capture_begin(ctx, 0, stream), 0, "a capture");
	is_int(glake_fetch(ctx, one, stream), -EBUSY, "nothing comes behind it");
	lies(one, 20, 20, "it is there");
	is_int(glake_soft_capture_end(ctx, 0, stream, &graph), 0, "its end");
	is_int(glake_fetch(ctx, one, stream), 0, "it comes");
	ok(holds(one, 20 * MIB), "as it was");
	tear_down(1);
}

int main(void)
{
	tap_plan_later();
	in_order();
	in_parts();
	with_links();
	is_short();
	shares_room();
	nobody_lends();
	turns();
	suspends();
	lender_suspends();
	stays_there();
	refused();
	captures();
	return tap_done();
}
