/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks of a tag that the GPU has no room for lie on the host in place, at addresses of their tag. */
#include "tag_parts.h"

static void set_budget(uint64_t bytes)
{
	glk_store_relaxed(&rig.cache.node->budget, bytes);
}

static void set_up(uint64_t budget, const char *setting, const char *other)
{
	rig_open(&rig, (const char *const[]){"tier.place=host", setting, other, NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	if (glk_cache_tag_open(&rig.cache, TAG) || glk_cache_tag_open(&rig.cache, OTHER))
		tap_bail("no tag");
	set_budget(budget);
}

static bool is_placed(const struct held *h)
{
	struct glake_block block = rig_query(&rig, h->addr);

	return block.placed == h->size && block.tag == TAG && !block.away;
}

static bool is_here(const struct held *h)
{
	struct glake_block block = rig_query(&rig, h->addr);

	return !block.placed && !block.away;
}

static int leave(void)
{
	return glk_cache_tag_suspend(&rig.cache, TAG, 0, &did);
}

static int come(void)
{
	return glk_cache_tag_resume(&rig.cache, TAG, &did);
}

static int quiet(struct glake_returned *ret)
{
	return glk_cache_quiet(&rig.cache, ret);
}

static void not_unless_asked(void)
{
	struct held one, two;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	glk_cache_tag_open(&rig.cache, TAG);
	set_budget(20 * MIB);
	is_int(take(&one, 16 * MIB, TAG, a), 0, "by default the GPU serves a tag");
	is_int(take(&two, 16 * MIB, TAG, a), -ENOMEM, "as long as it has room");
	rig_close(&rig, 1);
}

/* Where the GPU has no room, and not with other memory than the tag's. */
static void beyond_the_budget(void)
{
	struct held one, two, small[20], three;
	struct glake_returned back = {0};
	struct glake_stats s;
	int torn = 0;

	set_up(20 * MIB, "tier.host=64MiB", NULL);
	is_int(take(&one, 20 * MIB, TAG, a), 0, "a block of a tag");
	ok(is_here(&one), "has memory of the GPU");
	is_int(take(&two, 21 * MIB, TAG, a), 0, "one that there is no room for");
	ok(is_placed(&two), "lies on the host, and says its tag");
	for (int i = 0; i < 20; i++) {
		torn += take(&small[i], (size_t)5000 + (size_t)i * 3000, TAG, a) != 0;
		torn += !is_placed(&small[i]);
	}
	ok(!torn, "small ones too");
	s = rig_figures(&rig);
	is_int((int64_t)s.host_held, 24 << 20, "which share their pages");
	ok(s.placed_blocks == 21 && s.tagged_blocks == 22, "all are counted");
	is_int((int64_t)(s.reserved + s.in_flight), 20 << 20, "the budget holds");
	is_int((int64_t)told(TAG).held, 20 << 20, "the tag has so much of the GPU");
	is_int(take(&three, 50 * MIB, TAG, a), -ENOMEM, "what neither has room for");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_HOST, "is refused by the host");
	is_int(take(&three, 70 * MIB, TAG, a), -ENOMEM, "as is what is larger than both");
	has_str(rig_error().text, "64 MiB of the host are the most", "in words");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_spill(&rig.cache, two.addr, a), -EALREADY, "it goes nowhere");
	is_int(glk_cache_fetch(&rig.cache, two.addr, a), -ENOMEM,
		"nor to a GPU that is full");
	is_int(quiet(&back), 0, "at a quiet point");
	ok(!back.returned && back.left_blocks == 21, "nor then");
	set_budget(UINT64_MAX);
	is_int(glk_cache_fetch(&rig.cache, two.addr, a), 0,
		"it comes where there is room");
	ok(rig_query(&rig, two.addr).placed <= 2 * MIB,
		"but for what it shares with others");
	is_int(quiet(&back), 0, "at a quiet point");
	ok(back.returned && !back.left_blocks && is_here(&two), "all of it does");
	for (int i = 0; i < 20; i++)
		torn += !is_here(&small[i]) || !plan_drop(&rig, &small[i], i % 2 ? a : b);
	ok(!torn && plan_drop(&rig, &one, a) && plan_drop(&rig, &two, a),
		"what was written is there");
	s = rig_figures(&rig);
	ok(!s.placed && !s.placed_blocks && !s.tagged_blocks,
		"nothing is counted any more");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* What was freed serves the next one there, and others, and no block that the GPU has room for. */
static void is_used_again(void)
{
	struct held one, two, three;
	uint64_t made;

	set_up(10 * MIB, "tier.host=64MiB", NULL);
	take(&one, 10 * MIB, TAG, a);
	take(&two, 40 * MIB, TAG, a);
	ok(is_placed(&two) && plan_drop(&rig, &two, a), "a block on the host is freed");
	made = rig_calls(&rig, GLAKE_CALL_CREATE);
	is_int(take(&two, 40 * MIB, TAG, a), 0, "another one");
	ok(is_placed(&two), "lies there");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - made), 0,
		"and no page is made");
	plan_drop(&rig, &two, a);
	is_int(take(&three, 50 * MIB, 0, a), 0, "a block without a tag");
	ok(rig_query(&rig, three.addr).placed == 50 * MIB,
		"has them, where tier.host has no more");
	plan_drop(&rig, &three, a);
	is_int(take(&two, 40 * MIB, TAG, a), 0,
		"and a block of the tag has what that one had");
	ok(is_placed(&two), "on the host");
	plan_drop(&rig, &two, a);
	plan_drop(&rig, &one, a);
	is_int(take(&one, 7 * MIB, TAG, a), 0, "where the GPU has room");
	ok(is_here(&one), "nothing lies on the host");
	is_int(take(&two, 3000, TAG, a), 0, "nothing small");
	ok(is_here(&two), "does");
	is_sound(&rig, "the books agree");
	plan_drop(&rig, &one, a);
	plan_drop(&rig, &two, a);
	glk_cache_trim(&rig.cache, 0, false, &made);
	is_int((int64_t)rig_figures(&rig).host_held, 0, "a trim gives all back");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* With the tag, and with the GPU: what lies on the host stays there. */
static void stays(void)
{
	struct held one, two, part, small;
	struct glake_returned back = {0};
	uint64_t given;

	set_up(20 * MIB, "tier.host=256MiB", NULL);
	take(&one, 20 * MIB, TAG, a);
	take(&two, 30 * MIB, TAG, a);
	take(&small, 3000, TAG, a);
	take(&part, 5 * MIB, OTHER, a);
	is_int(leave(), 0, "the tag is suspended");
	is_int((int64_t)did.moved, 20 << 20, "what is on the GPU goes");
	is_int((int64_t)did.stayed, (30 << 20) + 3000, "what is on the host stays");
	is_int((int64_t)did.stayed_blocks, 2, "two blocks");
	is_int((int64_t)did.released, 20 << 20, "the GPU has its memory back");
	ok(is_placed(&two) && is_placed(&small), "it is where it was");
	is_int(glk_cache_fetch(&rig.cache, two.addr, a), -EAGAIN,
		"and comes not meanwhile");
	set_budget(UINT64_MAX);
	is_int(quiet(&back), 0, "at a quiet point");
	ok(is_placed(&two) && back.left_blocks == 2 && back.returned_blocks == 1,
		"others come alone");
	is_int(come(), 0, "the tag is resumed");
	ok(did.moved_blocks == 1 && did.stayed_blocks == 2,
		"which says what lies on the host");
	is_sound(&rig, "the books agree");
	is_int(quiet(&back), 0, "at a quiet point");
	ok(back.returned_blocks == 2 && !back.left, "it comes");
	is_int(leave(), 0, "and goes with the tag");
	ok(did.moved_blocks == 3 && !did.stayed, "as all do");
	is_int(come(), 0, "and is back");
	ok(has_marks(&one) && has_marks(&two) && has_marks(&small) && has_marks(&part),
		"with what was in it");
	is_sound(&rig, "the books agree");
	plan_drop(&rig, &one, a);
	plan_drop(&rig, &two, b);
	plan_drop(&rig, &small, a);
	plan_drop(&rig, &part, a);
	glk_cache_trim(&rig.cache, 0, false, &given);

	set_budget(8 * MIB);
	take(&one, 8 * MIB, TAG, a);
	take(&two, 9 * MIB, TAG, a);
	take(&small, 700, TAG, a);
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "the GPU is suspended");
	ok(did.moved == 8 * MIB && is_placed(&two) && is_placed(&small),
		"what lies on the host stays there");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "the GPU has nothing");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "it is resumed");
	is_int((int64_t)did.stayed_blocks, 2, "which says what is on the host");
	is_int(glk_cache_suspend(&rig.cache, true, &did), 0, "and suspended in place");
	ok(rig_query(&rig, one.addr).away && is_placed(&two),
		"a tag goes away all the same");
	is_int(glk_cache_resume(&rig.cache, true, &did), 0, "and is back");
	ok(is_here(&one) && is_placed(&two), "where it was");
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &two, a) &&
			plan_drop(&rig, &small, a),
		"what was written is there");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A block that lies in both is the host's for a suspension, and nothing of it is lost on any way. */
static void lies_in_both(void)
{
	struct held one, two, filler;
	uint64_t placed;

	set_up(30 * MIB, "tier.host=256MiB", NULL);
	take(&one, 10 * MIB, TAG, a);
	take(&filler, 20 * MIB, 0, a);
	plan_drop(&rig, &one, a);
	/* ten of them are there, idle among the addresses of the tag */
	is_int(take(&two, 28 * MIB, TAG, a), 0, "a block that the GPU has a part of");
	placed = rig_query(&rig, two.addr).placed;
	ok(placed, "lies on the host, at least in part");
	is_int(leave(), 0, "suspended");
	ok(did.stayed_blocks == 1 && !did.moved, "it stays as it is");
	is_int((int64_t)rig_query(&rig, two.addr).placed, (int64_t)placed,
		"where it was");
	is_int(come(), 0, "resumed");
	is_sound(&rig, "the books agree");
	set_budget(UINT64_MAX);
	is_int(glk_cache_fetch(&rig.cache, two.addr, b), 0, "it is fetched");
	is_int(leave() + come(), 0, "suspended and resumed");
	ok(plan_drop(&rig, &two, b) && plan_drop(&rig, &filler, a),
		"with what was in it");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* The device judges who uses what when. */
static void goes_in_order(void)
{
	struct held list[4];
	int torn = 0;

	set_up(8 * MIB, "soft.streams=stepped", "tier.host=256MiB");
	for (int i = 0; i < 4; i++) {
		torn += take(&list[i], i % 2 ? 700 : 7 * MIB, TAG, i & 2 ? b : a) != 0;
		rig_work(&rig, list[i].addr, list[i].size, i & 2 ? b : a);
	}
	torn += rig_free(&rig, list[2].addr, b);
	torn += take(&list[2], 7 * MIB, TAG, a) != 0;
	rig_work(&rig, list[2].addr, list[2].size, a);
	torn += leave() + come();
	set_budget(UINT64_MAX);
	torn += quiet(&(struct glake_returned){0});
	for (int i = 0; i < 4; i++)
		rig_work(&rig, list[i].addr, list[i].size, b);
	ok(!torn, "behind what was queued, and in front of what is");
	glk_soft_run_all(rig.drv);
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 4; i++)
		torn += rig_free(&rig, list[i].addr, b);
	glk_soft_run_all(rig.drv);
	ok(!torn, "all are freed");
	rig_close(&rig, 0);
}

static void every_call_fails(void)
{
	static const char *const calls[] = {"create", "map", "set_access", "unmap",
		"reserve", "copy", "event_record", "stream_wait", "release"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		int failed = 0, torn = 0;
		bool struck = true;

		for (int nth = 1; nth < (tap_on_valgrind() ? 2 : 6) && struck; nth++) {
			struct held one = {0}, two = {0}, small = {0};
			char rule[64];

			set_up(6 * MIB, "tier.host=64MiB", "policy.bins=0");
			torn += take(&one, 6 * MIB, TAG, a) != 0;
			snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", calls[i], nth);
			glk_fault_set(rig.drv, rule);
			failed += take(&two, 9 * MIB, TAG, b) != 0;
			torn += !rig_is_sound(&rig);
			failed += take(&small, 9000, TAG, b) != 0;
			torn += !rig_is_sound(&rig);
			failed += leave() != 0;
			failed += come() != 0;
			torn += !rig_is_sound(&rig);
			set_budget(UINT64_MAX);
			failed += quiet(&(struct glake_returned){0}) != 0;
			torn += !rig_is_sound(&rig);
			struck = rig_struck(&rig);
			glk_fault_set(rig.drv, "off");
			if (told(TAG).suspended)
				torn += come() != 0;
			torn += !plan_drop(&rig, &one, a) || !plan_drop(&rig, &two, b) ||
				!plan_drop(&rig, &small, b) || !rig_is_sound(&rig);
			rig_close(&rig, 0);
			tap_expect_log(tap.logs - tap.expected);
		}
		ok(!torn, "%s fails, %d times with an answer", calls[i], failed);
	}
}

/* A driver without such memory is not asked again, and the tag is the GPU's alone then. */
static void without_such_memory(void)
{
	struct held one, two;

	set_up(20 * MIB, "tier.host=64MiB", NULL);
	take(&one, 20 * MIB, TAG, a);
	glk_fault_set(rig.drv, "create:p=1000000:err=EOPNOTSUPP");
	is_int(take(&two, 10 * MIB, TAG, a), -ENOMEM, "memory of the host cannot be had");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE,
		"as if it was not asked for");
	tap_expect_log(1);
	glk_fault_set(rig.drv, "off");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

int main(void)
{
	tap_plan_later();
	not_unless_asked();
	beyond_the_budget();
	is_used_again();
	stays();
	lies_in_both();
	goes_in_order();
	every_call_fails();
	without_such_memory();
	return tap_done();
}
