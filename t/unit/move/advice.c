/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the program says of blocks: cold ones make room, pinned ones stay. */
#include "unit/cache/plan_parts.h"

#include "cache/bin/seat.h"
#include "cache/tag/tag.h"
#include "move/advice.h"

static struct rig rig;
static struct CUstream_st *a, *b;

static void set_up(size_t budget, const char *const *more)
{
	const char *settings[8] = {"tier.host=512MiB", "soft.host_memory=512MiB"};

	for (int i = 0; i < 5 && more && more[i]; i++)
		settings[2 + i] = more[i];
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, budget);
}

static int advise(const struct held *h, uint32_t advice)
{
	return glk_cache_advise(&rig.cache, h->addr, advice);
}

static int fetch(const struct held *h)
{
	return glk_cache_fetch(&rig.cache, h->addr, a);
}

/* Those first that were cold first, and no more than are needed. */
static void make_room(void)
{
	struct held list[5], more, last;
	struct glake_stats s;

	set_up(50 * MIB, NULL);
	for (int i = 0; i < 5; i++)
		plan_take(&rig, &list[i], 10 * MIB, a);
	is_int(plan_take(&rig, &more, 15 * MIB, b), -ENOMEM, "no block is cold");
	is_int(advise(&list[3], GLAKE_ADVICE_COLD), 0, "one is");
	is_int(plan_take(&rig, &more, 25 * MIB, b), -ENOMEM, "which is not enough");
	is_int(plan_take(&rig, &more, 90 * MIB, b), -ENOMEM,
		"for more than there is at all");
	ok(!rig_query(&rig, list[3].addr).away, "so it stays");
	is_int(advise(&list[1], GLAKE_ADVICE_COLD), 0, "then another one");
	is_int(advise(&list[2], GLAKE_ADVICE_COLD), 0, "and a third");
	is_int((int64_t)rig_query(&rig, list[1].addr).advice, GLAKE_ADVICE_COLD,
		"as is told");
	is_int((int64_t)rig_figures(&rig).spills, 0, "none of them moves yet");
	is_int(plan_take(&rig, &more, 15 * MIB, b), 0, "a request has room");
	ok(rig_query(&rig, list[3].addr).away && rig_query(&rig, list[1].addr).away,
		"the first two made it");
	ok(!rig_query(&rig, list[2].addr).away, "and the third did not have to");
	s = rig_figures(&rig);
	is_int((int64_t)s.victims, 2, "victims");
	is_int((int64_t)s.victim_bytes, 20 << 20, "and their bytes");
	is_int((int64_t)s.spills, 2, "which went away");
	ok(s.reserved <= 50 * MIB, "the budget holds");
	is_sound(&rig, "the books agree");
	is_int(fetch(&list[2]), -EALREADY, "what is here is fetched");
	is_int((int64_t)rig_query(&rig, list[2].addr).advice, GLAKE_ADVICE_NORMAL,
		"and cold no longer");
	is_int(plan_take(&rig, &last, 15 * MIB, b), -ENOMEM, "so that it stays");
	is_int(fetch(&list[1]), -ENOMEM, "nor is there room for one that went");
	plan_drop(&rig, &more, b);
	is_int(fetch(&list[1]), 0, "until there is");
	is_int((int64_t)rig_query(&rig, list[1].addr).advice, GLAKE_ADVICE_NORMAL,
		"then it is here to stay");
	rig_free(&rig, list[3].addr, a);
	for (int i = 0; i < 5; i++)
		ok(i == 3 || plan_drop(&rig, &list[i], a), "with what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Before anything is placed on the host; and where the host has no room either the request is refused as
 * it would be. */
static void before_the_host(void)
{
	struct held one, two, three;

	set_up(30 * MIB, (const char *const[]){"tier.place=host", NULL});
	plan_take(&rig, &one, 20 * MIB, a);
	advise(&one, GLAKE_ADVICE_COLD);
	plan_take(&rig, &two, 25 * MIB, a);
	ok(rig_query(&rig, one.addr).away && !rig_query(&rig, two.addr).placed,
		"a cold block makes room on the GPU");
	plan_take(&rig, &three, 25 * MIB, a);
	is_int((int64_t)rig_query(&rig, three.addr).placed, 25 << 20,
		"without one the host is next");
	is_int(advise(&three, GLAKE_ADVICE_PINNED), 0, "that may be pinned");
	plan_drop(&rig, &two, a);
	is_int(fetch(&three), -EBUSY, "then it does not come");
	is_int(glk_cache_quiet(&rig.cache, &(struct glake_returned){0}), 0,
		"a quiet point");
	is_int((int64_t)rig_query(&rig, three.addr).placed, 25 << 20, "leaves it there");
	advise(&three, GLAKE_ADVICE_NORMAL);
	is_int(fetch(&three), 0, "unless it is not pinned");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);

	set_up(30 * MIB, (const char *const[]){"tier.host=64MiB", NULL});
	plan_take(&rig, &one, 20 * MIB, a);
	advise(&one, GLAKE_ADVICE_COLD);
	glk_fault_set(rig.drv, "host_lock:p=1000000:err=ENOMEM");
	is_int(plan_take(&rig, &two, 25 * MIB, a), -ENOMEM, "no room anywhere");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "the GPU has none");
	ok(!rig_query(&rig, one.addr).away && has_marks(&one), "the cold one is here");
	is_sound(&rig, "the books agree");
	glk_fault_set(rig.drv, "off");
	is_int(plan_take(&rig, &two, 25 * MIB, a), 0, "the next time there is");
	rig_close(&rig, 2);
}
/* One that cannot go now holds up none behind it. */
static void others_go(void)
{
	static const char *const small[] = {"tier.host=64MiB", NULL};
	struct held first, second, rest, more;

	set_up(50 * MIB, small);
	plan_take(&rig, &rest, 5 * MIB, a);
	plan_take(&rig, &first, 20 * MIB, b);
	plan_take(&rig, &second, 20 * MIB, a);
	advise(&first, GLAKE_ADVICE_COLD);
	advise(&second, GLAKE_ADVICE_COLD);
	rig_capture(&rig, b);
	is_int(plan_take(&rig, &more, 15 * MIB, a), 0,
		"the first captures, the second goes");
	rig_end(&rig);

	set_up(150 * MIB, small);
	plan_take(&rig, &first, 100 * MIB, a);
	plan_take(&rig, &second, 40 * MIB, a);
	advise(&first, GLAKE_ADVICE_COLD);
	advise(&second, GLAKE_ADVICE_COLD);
	is_int(plan_take(&rig, &more, 30 * MIB, a), 0,
		"the host has no room for the first, the second goes");
	rig_end(&rig);
}

/* One that is away makes no room, so none is sent away with it for nothing. */
static void is_away_already(void)
{
	struct held gone, here, rest, more;

	set_up(50 * MIB, NULL);
	plan_take(&rig, &gone, 30 * MIB, a);
	advise(&gone, GLAKE_ADVICE_COLD);
	glk_cache_spill(&rig.cache, gone.addr, a);
	plan_take(&rig, &here, 8 * MIB, a);
	plan_take(&rig, &rest, 40 * MIB, a);
	advise(&here, GLAKE_ADVICE_COLD);
	is_int(plan_take(&rig, &more, 30 * MIB, b), -ENOMEM, "cold blocks are too few");
	is_int((int64_t)rig_figures(&rig).victims, 0, "and stay");
	rig_end(&rig);
}

static void pinned(void)
{
	struct glake_suspended did;
	struct held one;

	set_up(30 * MIB, NULL);
	plan_take(&rig, &one, 20 * MIB, a);
	is_int(advise(&one, GLAKE_ADVICE_PINNED), 0, "a pinned block");
	is_int(glk_cache_spill(&rig.cache, one.addr, a), -EBUSY, "does not go");
	has_str(rig_error().text, "pinned", "as it says");
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "a suspension");
	is_int((int64_t)did.stayed_blocks, 1, "leaves it where it is");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "and ends");
	ok(has_marks(&one), "with what was written");
	is_int(advise(&one, GLAKE_ADVICE_NORMAL), 0, "it is pinned no more");
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "and goes");
	is_int(advise(&one, GLAKE_ADVICE_PINNED), 0, "one that is away may be pinned");
	is_int(fetch(&one), 0, "and come");
	is_int(glk_cache_spill(&rig.cache, one.addr, a), -EBUSY, "to stay");
	is_int(rig_free(&rig, one.addr, a), 0, "until it is freed");
	is_int(plan_take(&rig, &one, 20 * MIB, a), 0, "what lies there next");
	is_int((int64_t)rig_query(&rig, one.addr).advice, GLAKE_ADVICE_NORMAL,
		"is not pinned");
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "and goes");
	rig_free(&rig, one.addr, a);
	rig_close(&rig, 0);
}

/* Those that can be no victims are not looked at: a request is not kept by them. */
static void in_no_list(void)
{
	struct held list[4], more;

	set_up(50 * MIB, NULL);
	for (int i = 0; i < 4; i++)
		plan_take(&rig, &list[i], 10 * MIB, a);
	is_int(glk_cache_spill(&rig.cache, list[0].addr, a), 0, "one is sent away");
	is_int(advise(&list[0], GLAKE_ADVICE_COLD), 0, "and said to be cold then");
	is_int((int64_t)glk_victim_cold(&rig.cache), 0, "it is no victim");
	is_int(advise(&list[1], GLAKE_ADVICE_COLD), 0, "one that is cold");
	is_int(glk_cache_hold(&rig.cache, list[1].addr, true), 0, "is pinned");
	is_int((int64_t)glk_victim_cold(&rig.cache), 0, "nor is it one");
	is_int(glk_cache_hold(&rig.cache, list[2].addr, true), 0, "one that is pinned");
	is_int(advise(&list[2], GLAKE_ADVICE_COLD), 0, "is said to be cold");
	is_int((int64_t)glk_victim_cold(&rig.cache), 0, "nor is that");
	is_int(plan_take(&rig, &more, 30 * MIB, b), -ENOMEM, "so that there is no room");
	is_int(glk_cache_hold(&rig.cache, list[2].addr, true), 0, "pinned twice");
	is_int(glk_cache_hold(&rig.cache, list[2].addr, false), 0, "and once less");
	is_int((int64_t)glk_victim_cold(&rig.cache), 0, "it is pinned");
	is_int(glk_cache_hold(&rig.cache, list[2].addr, false), 0, "until it is not");
	is_int((int64_t)glk_victim_cold(&rig.cache), 10 * MIB, "it is one then");
	is_int(glk_cache_hold(&rig.cache, list[1].addr, false), 0, "as is the other one");
	is_int((int64_t)glk_victim_cold(&rig.cache), 20 * MIB, "both are");
	is_int(plan_take(&rig, &more, 30 * MIB, b), 0, "and there is room");
	is_int((int64_t)rig_figures(&rig).victims, 1, "where one was");
	is_int(fetch(&list[0]), -ENOMEM, "there is none for the first");
	is_int(rig_free(&rig, more.addr, b), 0, "freed");
	is_int(fetch(&list[0]), 0, "now there is");
	for (int i = 0; i < 4; i++)
		rig_free(&rig, list[i].addr, a);
	rig_close(&rig, 0);
}

/* Its slot is had by others too, so that it makes no room, though it may be said to be cold. */
static void a_small_one(void)
{
	struct held small, large, more;

	set_up(50 * MIB, NULL);
	plan_take(&rig, &small, 1000, a);
	plan_take(&rig, &large, 20 * MIB, a);
	is_int(advise(&small, GLAKE_ADVICE_COLD), 0, "a small block is cold");
	is_int((int64_t)glk_victim_cold(&rig.cache), 0, "which is no victim");
	is_int(advise(&large, GLAKE_ADVICE_COLD), 0, "a large one too");
	is_int(plan_take(&rig, &more, 30 * MIB, b), 0, "there is room");
	is_int((int64_t)rig_figures(&rig).victims, 1, "that the large one made");
	ok(!rig_query(&rig, small.addr).away && rig_query(&rig, large.addr).away,
		"alone");
	is_sound(&rig, "the books agree");
	rig_free(&rig, small.addr, a);
	rig_free(&rig, large.addr, a);
	rig_free(&rig, more.addr, b);
	rig_close(&rig, 0);
}

static void ends_with_the_block(void)
{
	struct held one, two;
	uint32_t graph;

	set_up(30 * MIB, NULL);
	for (uint32_t advice = GLAKE_ADVICE_COLD; advice <= GLAKE_ADVICE_PINNED;
		advice++) {
		plan_take(&rig, &one, 4096, a);
		is_int(advise(&one, advice), 0, "a small block");
		rig_free(&rig, one.addr, a);
		for (int i = 0; i < 3; i++) {
			plan_take(&rig, &two, 4096, a);
			is_int((int64_t)rig_query(&rig, two.addr).advice,
				GLAKE_ADVICE_NORMAL, "one of its size after it");
		}
	}
	plan_take(&rig, &one, 3 * MIB, a);
	rig_free(&rig, one.addr, a);
	is_int(advise(&one, GLAKE_ADVICE_COLD), -EINVAL, "a block that is not there");
	is_int(glk_cache_advise(&rig.cache, two.addr + 8, 1), -EINVAL,
		"nor inside of one");
	plan_take(&rig, &one, 20 * MIB, a);
	is_int(plan_take(&rig, &one, 29 * MIB, a), -ENOMEM, "small ones make no room");
	rig_begin(&rig, 1, b);
	rig_capture(&rig, b);
	one.addr = rig_alloc(&rig, 4096, b);
	is_int(advise(&one, GLAKE_ADVICE_COLD), -EBUSY, "nor one of a graph");
	rig_free(&rig, one.addr, b);
	graph = rig_capture_end(&rig, b);
	rig_end_pool(&rig, 1);
	rig_drop(&rig, graph);
	is_sound(&rig, "the books agree");
	rig_close(&rig, rig_figures(&rig).live_blocks);
}

/* What was said of one while it was away. */
static void rank_ends_with_the_block(void)
{
	struct held one, two, three, rest[3], more;

	set_up(50 * MIB, NULL);
	plan_take(&rig, &one, 10 * MIB, a);
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "a block goes");
	is_int(glk_cache_rank(&rig.cache, one.addr, 9), 0, "is to go late");
	is_int(fetch(&one), 0, "comes back");
	is_int(rig_free(&rig, one.addr, a), 0, "and is freed");
	plan_take(&rig, &two, 10 * MIB, a);
	ok(two.addr == one.addr, "another one is in its place");
	plan_take(&rig, &three, 10 * MIB, a);
	for (int i = 0; i < 3; i++)
		plan_take(&rig, &rest[i], 10 * MIB, a);
	advise(&two, GLAKE_ADVICE_COLD);
	advise(&three, GLAKE_ADVICE_COLD);
	is_int(plan_take(&rig, &more, 10 * MIB, b), 0, "one of two goes");
	ok(rig_query(&rig, two.addr).away, "the one that was cold first");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 6);
}

/* Behind work that is queued, and for a request that waits for nobody. */
static void in_order(void)
{
	struct held one, two;

	set_up(30 * MIB, (const char *const[]){"soft.streams=stepped", NULL});
	plan_take(&rig, &one, 20 * MIB, a);
	rig_work(&rig, one.addr, one.size, a);
	advise(&one, GLAKE_ADVICE_COLD);
	is_int(rig_try(&rig, 25 * MIB, b, 0, &two.addr), 0,
		"a request of another stream");
	rig_work(&rig, two.addr, 25 * MIB, b);
	glk_soft_run_all(rig.drv);
	is_int(rig_free(&rig, two.addr, b), 0, "uses the memory behind the copy");
	is_int(fetch(&one), 0, "which comes back behind that");
	glk_soft_run_all(rig.drv);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* A cold block of a tag makes room, though the tag before that never had any here. */
static void of_a_tag(void)
{
	struct held held[4], cold, more;

	set_up(50 * MIB, NULL);
	is_int(glk_cache_tag_open(&rig.cache, 0x101), 0, "a tag");
	is_int(glk_cache_tag_open(&rig.cache, 0x102), 0, "and another one");
	is_int(glk_seat_set_tag(&rig.cache, 0x102), 0, "of which a thread");
	glk_seat_leave(&rig.cache);
	is_int(plan_take(&rig, &cold, 10 * MIB, a), 0, "has a block");
	is_int(glk_seat_set_tag(&rig.cache, 0), 0, "it has it no longer");
	for (int i = 0; i < 4; i++)
		plan_take(&rig, &held[i], 10 * MIB, a);
	is_int(plan_take(&rig, &more, 10 * MIB, b), -ENOMEM, "no room");
	is_int(advise(&cold, GLAKE_ADVICE_COLD), 0, "it is cold");
	is_int(plan_take(&rig, &more, 10 * MIB, b), 0, "so there is room");
	ok(rig_query(&rig, cold.addr).away, "which it left");
	ok(plan_drop(&rig, &more, b), "that is free again");
	is_int(fetch(&cold), 0, "and it comes back");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 5);
}

int main(void)
{
	tap_plan_later();
	make_room();
	before_the_host();
	others_go();
	is_away_already();
	pinned();
	in_no_list();
	a_small_one();
	ends_with_the_block();
	rank_ends_with_the_block();
	in_order();
	of_a_tag();
	return tap_done();
}
