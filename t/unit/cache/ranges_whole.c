/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that are away in part, where calls are for whole blocks, or for all of them. */
#include "cache/tag/tag.h"
#include "range_parts.h"

#define TAG 0x101u

static struct rig rig;
static struct CUstream_st *a, *b;
static struct glake_suspended did;

static void set_up(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
}

/* A block of 20 MiB, of which 8 are away from 4 MiB on. */
static void give(struct held *h)
{
	plan_take(&rig, h, 20 * MIB, a);
	write_words(h, 0, h->size);
	is_int(spill_range(&rig, h, 4 * MIB, 8 * MIB, a), 0, "a range of a block goes");
}

static void take_away(struct held *h)
{
	is_int(glk_cache_fetch(&rig.cache, h->addr, a), 0, "all of it comes");
	ok(has_words(h, 0, h->size), "with what was written");
	is_int(rig_free(&rig, h->addr, a), 0, "and is freed");
	is_sound(&rig, "the books agree");
}

/* What a suspension sends it brings back, and no more. */
static void is_suspended(void)
{
	struct held one, two;

	for (int way = 0; way < 3; way++) {
		int err;

		set_up((const char *const[]){
			"soft.host_memory=2GiB", "tier.host=1GiB", NULL});
		give(&one);
		plan_take(&rig, &two, 5 * MIB, a);
		err = way ? glk_cache_suspend(&rig.cache, true, &did)
			  : glk_cache_suspend(&rig.cache, false, &did);
		is_int(err, 0, "the GPU is suspended");
		is_int((int64_t)did.moved, 17 * MIB, "with what was here");
		is_int((int64_t)did.moved_blocks, 2, "of both blocks");
		is_int((int64_t)rig_figures(&rig).reserved, 0, "nothing of it is held");
		is_int((int64_t)rig_query(&rig, one.addr).away, way ? 8 * MIB : 20 * MIB,
			way ? "what was away is" : "one is away, all of it");
		is_int((int64_t)rig_query(&rig, one.addr).placed, way ? 12 * MIB : 0,
			way ? "and the rest lies on the host in place"
			    : "nothing lies on the host in place");
		is_sound(&rig, "the books agree");
		is_int(fetch_range(&rig, &one, 0, 1, a), -EAGAIN, "none of it comes now");
		err = way == 2 ? glk_cache_resume(&rig.cache, true, &did)
			       : glk_cache_resume(&rig.cache, false, &did);
		is_int(err, 0, "and resumed");
		is_int((int64_t)did.moved, way == 2 ? 0 : 17 * MIB,
			"with what it had sent");
		is_int((int64_t)rig_query(&rig, one.addr).away, 8 * MIB,
			"what was away before is away");
		ok(has_words(&one, 0, 4 * MIB) && has_words(&one, 12 * MIB, 8 * MIB),
			"what was here is here");
		is_sound(&rig, "the books agree");
		is_int(glk_cache_quiet(&rig.cache, &(struct glake_returned){0}), 0,
			"a quiet point");
		is_sound(&rig, "the books agree");
		ok(plan_drop(&rig, &two, a), "the other is whole");
		take_away(&one);
		rig_close(&rig, 0);
	}
}

static void has_a_tag(void)
{
	struct glake_tag tag = {.sz = sizeof(tag)};
	struct held one;

	set_up(NULL);
	if (glk_cache_tag_open(&rig.cache, TAG))
		tap_bail("no tag");
	rig_set_tag(&rig, TAG);
	give(&one);
	rig_set_tag(&rig, 0);
	is_int(glk_cache_tag_suspend(&rig.cache, TAG, 0, &did), 0,
		"its tag is suspended");
	is_int((int64_t)did.moved, 12 * MIB, "with what was here");
	is_int(glk_cache_tag_get(&rig.cache, TAG, &tag), 0, "which it says");
	is_int((int64_t)tag.away, 1, "of a block");
	is_int(fetch_range(&rig, &one, 4 * MIB, 1, a), -EAGAIN, "none of it comes now");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0,
		"the GPU is suspended as well");
	is_int((int64_t)did.moved, 0, "with nothing of it");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "and resumed");
	is_int((int64_t)rig_query(&rig, one.addr).away, 20 * MIB,
		"which brings nothing of it");
	is_int(glk_cache_tag_resume(&rig.cache, TAG, &did), 0, "its tag is");
	is_int((int64_t)did.moved, 12 * MIB, "with what that had sent");
	is_int((int64_t)rig_query(&rig, one.addr).away, 8 * MIB, "and no more");
	is_sound(&rig, "the books agree");
	take_away(&one);
	rig_close(&rig, 0);
}

/* What is here may be dropped, and what was sent by name is kept. */
static void is_dropped(void)
{
	struct held one;

	set_up(NULL);
	give(&one);
	glk_cache_advise(&rig.cache, one.addr, GLAKE_ADVICE_DISCARDABLE);
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended");
	is_int((int64_t)did.dropped, 12 * MIB, "what was here is dropped");
	ok(rig_query(&rig, one.addr).away == 20 * MIB &&
			rig_query(&rig, one.addr).dropped == 12 * MIB,
		"which is told");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	ok(rig_query(&rig, one.addr).away == 8 * MIB &&
			!rig_query(&rig, one.addr).dropped,
		"all else is away");
	is_int(fetch_range(&rig, &one, 6 * MIB, 2 * MIB, a), 0, "a part comes");
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended again");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "and resumed");
	is_int(glk_cache_fetch(&rig.cache, one.addr, a), 0, "and the rest");
	ok(has_words(&one, 4 * MIB, 2 * MIB) && has_words(&one, 8 * MIB, 4 * MIB),
		"what was kept has what was written");
	is_int(rig_free(&rig, one.addr, a), 0, "it is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* One that is cold goes with what is here of it. */
static void is_a_victim(void)
{
	struct held one, two;

	set_up(NULL);
	glk_store_relaxed(&rig.cache.node->budget, 24 * MIB);
	give(&one);
	is_int(glk_cache_advise(&rig.cache, one.addr, GLAKE_ADVICE_COLD), 0,
		"it is cold");
	is_int(plan_take(&rig, &two, 15 * MIB, b), 0, "another one needs its memory");
	is_int((int64_t)rig_query(&rig, one.addr).away, 20 * MIB,
		"so that all of it is away");
	is_int((int64_t)rig_figures(&rig).victim_bytes, 12 * MIB, "which is told");
	is_sound(&rig, "the books agree");
	ok(plan_drop(&rig, &two, b), "that one is freed");
	is_int(fetch_range(&rig, &one, 0, 2 * MIB, a), 0, "a part of it comes");
	is_int((int64_t)rig_query(&rig, one.addr).advice, GLAKE_ADVICE_NORMAL,
		"it is not cold any more");
	take_away(&one);
	rig_close(&rig, 0);
}

struct seen {
	unsigned count;
	struct glake_run run[8];
};

static int see(const struct glake_run *run, void *arg)
{
	struct seen *seen = arg;

	if (run->state <= GLAKE_RUN_AWAY && seen->count < 8)
		seen->run[seen->count++] = *run;
	return 0;
}

/* The map has a run for each stretch. */
static void is_on_the_map(void)
{
	struct seen seen = {0};
	struct held one;

	set_up(NULL);
	give(&one);
	is_int(glk_cache_walk(&rig.cache, one.addr, UINT64_MAX, see, &seen), 0,
		"the map");
	is_int(seen.count, 3, "has three runs");
	ok(seen.run[0].state == GLAKE_RUN_LIVE && seen.run[0].asked == 4 * MIB &&
			!(seen.run[0].flags & GLAKE_RUN_PART),
		"the first is here");
	ok(seen.run[1].state == GLAKE_RUN_AWAY && seen.run[1].asked == 8 * MIB &&
			seen.run[1].flags & GLAKE_RUN_PART,
		"the second away");
	ok(seen.run[2].state == GLAKE_RUN_LIVE && seen.run[2].asked == 8 * MIB &&
			seen.run[2].address == one.addr + 12 * MIB,
		"the third here");
	take_away(&one);
	rig_close(&rig, 0);
}

/* Functions of the program are told of the block, and may keep it. */
static int told, answer;

static int hear(const struct glake_move *move, void *arg)
{
	(void)arg;
	told += move->is_over ? 100 : 1;
	return move->is_over ? 0 : answer;
}

static void is_told(void)
{
	struct held one;

	set_up(NULL);
	plan_take(&rig, &one, 20 * MIB, a);
	write_words(&one, 0, one.size);
	glk_cache_hear(&rig.cache, 0, hear, NULL);
	answer = 1;
	is_int(spill_range(&rig, &one, 0, 4 * MIB, a), -EBUSY,
		"a function keeps a block");
	is_int((int64_t)rig_query(&rig, one.addr).away, 0, "where it is");
	answer = 0;
	told = 0;
	is_int(spill_range(&rig, &one, 0, 4 * MIB, a), 0, "or lets it go");
	is_int(told, 101, "and is told before and after");
	is_int(fetch_range(&rig, &one, 0, 2 * MIB, a), 0, "a part comes");
	is_int(told, 202, "which it is told likewise");
	is_int(fetch_range(&rig, &one, 0, 2 * MIB, a), -EALREADY, "it is here");
	is_int(told, 202, "of which it is told nothing");
	glk_cache_hear(&rig.cache, 0, NULL, NULL);
	take_away(&one);
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	is_suspended();
	has_a_tag();
	is_dropped();
	is_a_victim();
	is_on_the_map();
	is_told();
	return tap_done();
}
