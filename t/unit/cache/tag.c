/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks of a tag leave as a whole and come back with what was in them, while others go on. */
#include "move/away.h"
#include "move/outcome.h"
#include "seed.h"
#include "tag_parts.h"

#include <stdlib.h>

static void set_up(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	if (glk_cache_tag_open(&rig.cache, TAG) || glk_cache_tag_open(&rig.cache, OTHER))
		tap_bail("no tag");
}

static void close_up(size_t live)
{
	rig_set_tag(&rig, 0);
	rig_close(&rig, live);
}

static int leave(uint32_t id)
{
	return glk_cache_tag_suspend(&rig.cache, id, 0, &did);
}

static int come(uint32_t id)
{
	return glk_cache_tag_resume(&rig.cache, id, &did);
}

#define COUNT 60

/* From some bytes to some megabytes, every third of another tag, every fourth of none. */
static uint32_t tag_of(int i)
{
	return i % 4 == 3 ? 0 : i % 3 ? TAG : OTHER;
}

static size_t size_of(int i)
{
	return i % 2 ? (size_t)(i * 130 + 300) << 10 : (size_t)600 * (size_t)(i + 1);
}

static int take_all(struct held *list)
{
	int torn = 0;

	for (int i = 0; i < COUNT; i++)
		torn += take(&list[i], size_of(i), tag_of(i), i % 5 ? a : b) != 0;
	return torn;
}

static int drop_all(struct held *list)
{
	int torn = 0;

	for (int i = 0; i < COUNT; i++)
		torn += !plan_drop(&rig, &list[i], i % 5 ? a : b);
	return torn;
}

static void goes_whole(void)
{
	struct held list[COUNT], more;
	int torn, blocks = 0;
	uint64_t held, addr;

	set_up(NULL);
	torn = take_all(list);
	for (int i = 0; i < COUNT; i++) {
		torn += rig_query(&rig, list[i].addr).tag != tag_of(i);
		blocks += tag_of(i) == TAG;
	}
	ok(!torn, "blocks of all sizes, of two tags and of none");
	is_int((int64_t)told(TAG).blocks, blocks, "one tag has its blocks");
	is_sound(&rig, "the books agree");
	held = rig_figures(&rig).reserved;
	ok(told(TAG).held >= 30 * MIB, "and its pages");
	is_int(leave(TAG), 0, "it is suspended");
	is_int((int64_t)did.moved_blocks, blocks, "with all its blocks, small ones too");
	is_int((int64_t)did.stayed_blocks, 0, "none stays");
	is_int((int64_t)told(TAG).held, 0, "nor any page");
	is_int((int64_t)(held - rig_figures(&rig).reserved), (int64_t)did.released,
		"which went back to the driver");
	is_int((int64_t)rig_figures(&rig).tags_suspended, 1, "which is counted");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < COUNT; i++)
		torn += (rig_query(&rig, list[i].addr).away != 0) != (tag_of(i) == TAG);
	ok(!torn, "each block says where it is");
	rig_set_tag(&rig, TAG);
	is_int(rig_try(&rig, 600, a, 0, &addr), -EAGAIN, "a small request is refused");
	is_int(rig_try(&rig, 9 * MIB, a, 0, &addr), -EAGAIN, "and a large one");
	rig_set_tag(&rig, 0);
	is_int(take(&more, 9 * MIB, OTHER, a), 0, "another tag serves");
	ok(plan_drop(&rig, &more, a), "and takes back");
	is_int(take(&more, 9 * MIB, 0, a), 0, "so does what has none");
	is_int(glk_cache_fetch(&rig.cache, list[1].addr, a), -EAGAIN,
		"no block is fetched");
	is_int(glk_cache_spill(&rig.cache, list[1].addr, a), -EALREADY, "nor spilled");
	is_int(leave(TAG), 0, "once more");
	is_int((int64_t)did.moved_blocks, 0, "there is nothing to do");
	torn = rig_free(&rig, list[1].addr, a) + rig_free(&rig, list[2].addr, a) +
		rig_free(&rig, list[4].addr, a);
	list[1].addr = list[2].addr = list[4].addr = 0;
	ok(!torn, "blocks are freed meanwhile, large and small");
	is_sound(&rig, "the books agree");
	is_int(come(TAG), 0, "it comes back");
	is_int((int64_t)did.moved_blocks, blocks - 3, "with what is left");
	is_sound(&rig, "the books agree");
	is_int(take(&list[2], 600, TAG, a), 0, "and serves again");
	ok(plan_drop(&rig, &more, a) && !drop_all(list), "with what was written");
	is_int(glk_cache_tag_close(&rig.cache, TAG), 0, "closed");
	is_sound(&rig, "the books agree");
	close_up(0);
}

static void refuses(void)
{
	struct held one, small, near;
	uint64_t addr;
	struct glk_pin pin;

	set_up(NULL);
	is_int(come(TAG), -EINVAL, "one that is not suspended");
	is_int(leave(TAG + 0x100), -ESTALE, "one that is none");
	is_int(come(TAG + 0x100), -ESTALE, "likewise");
	is_int(leave(TAG), 0, "one without a block is suspended");
	is_int(take(&one, 9 * MIB, TAG, a), -EAGAIN, "gets none");
	is_int(glk_cache_tag_close(&rig.cache, TAG), -EBUSY, "is not closed");
	is_int(come(TAG), 0, "and comes back");
	is_int(take(&one, 9 * MIB, TAG, a) | take(&small, 600, TAG, a) |
			take(&near, 700, TAG, b),
		0, "three blocks");
	is_int(glk_cache_tag_close(&rig.cache, TAG), -EBUSY,
		"with blocks it is not closed");
	is_int(glk_cache_pin(&rig.cache, small.addr, false, &pin), 0,
		"a small one is out");
	is_int(glk_cache_advise(&rig.cache, one.addr, GLAKE_ADVICE_PINNED), 0,
		"a large one is pinned");
	is_int(leave(TAG), 0, "suspended");
	is_int((int64_t)did.stayed_blocks, 3, "they stay, with what shares a slot");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_unpin(&rig.cache, small.addr), 0, "the one is back");
	is_int(leave(TAG), 0, "suspended once more");
	is_int((int64_t)did.moved_blocks, 2, "the small ones go");
	is_int((int64_t)told(TAG).away, 2, "which is told");
	is_int(glk_cache_prefetch(&rig.cache, small.addr, a, 0, 0, NULL), -EAGAIN,
		"no hint brings one back while the tag is suspended");
	is_int(come(TAG), 0, "resumed");
	rig_capture(&rig, b);
	is_int(leave(TAG), -EBUSY, "not while a stream captures");
	is_int(glk_cache_quiet(&rig.cache, &(struct glake_returned){0}), -EBUSY,
		"nor is that a quiet point, with nothing on the host");
	is_int(told(TAG).suspended, 0, "then nothing was done");
	rig_drop(&rig, rig_capture_end(&rig, b));
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "the GPU is suspended");
	is_int(leave(TAG), -EAGAIN, "then no tag is");
	is_int(come(TAG), -EINVAL, "nor does one come back that is here");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	is_int(leave(TAG) | glk_cache_suspend(&rig.cache, false, &did), 0,
		"first the tag, then all");
	is_int(come(TAG), -EAGAIN, "a tag does not come back to a GPU that is suspended");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "the GPU is resumed");
	ok(rig_query(&rig, small.addr).away, "the tag stays away");
	is_int(come(TAG), 0, "until it is asked for");
	rig_set_tag(&rig, TAG + 0x100);
	is_int(rig_try(&rig, 600, a, 0, &addr), -ESTALE,
		"a thread with a tag that is none");
	rig_set_tag(&rig, 0);
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &small, a) &&
			plan_drop(&rig, &near, b),
		"nothing was lost");
	is_sound(&rig, "the books agree");
	close_up(0);
}

/* What may be dropped is, and its memory can be had again. */
static void drops(void)
{
	struct held keep, lose, small;
	uint64_t spilled, released;

	set_up(NULL);
	take(&keep, 9 * MIB, TAG, a);
	take(&lose, 9 * MIB, TAG, a);
	take(&small, 600, TAG, a);
	is_int(glk_cache_advise(&rig.cache, lose.addr, GLAKE_ADVICE_DISCARDABLE), 0,
		"one");
	is_int(leave(TAG), 0, "of three is not kept");
	is_int((int64_t)did.dropped, 9 << 20, "bytes are dropped");
	is_int((int64_t)did.moved_blocks, 2, "blocks are kept");
	is_int((int64_t)rig_figures(&rig).discards, 1, "which is counted");
	is_int(come(TAG), 0, "all come back");
	ok(has_marks(&keep) && has_marks(&small), "those with what was written");
	is_int((int64_t)rig_query(&rig, lose.addr).away, 0, "it is here");
	write_marks(&lose);
	spilled = rig_figures(&rig).spilled;
	is_int(glk_cache_trim(&rig.cache, 0, false, &released), 0, "trimmed");
	is_int(glk_cache_tag_suspend(&rig.cache, TAG, GLAKE_TAG_DROP, &did), 0,
		"all are dropped");
	is_int((int64_t)rig_figures(&rig).store, 0, "which takes no memory of the host");
	is_int((int64_t)did.dropped_blocks, 3, "small ones too");
	is_int((int64_t)rig_figures(&rig).spilled, (int64_t)spilled, "nothing is copied");
	is_int((int64_t)told(TAG).held, 0, "nothing is held");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, small.addr, a), 0, "the small one is freed");
	is_int(come(TAG), 0, "the others come back");
	write_marks(&keep);
	write_marks(&lose);
	ok(plan_drop(&rig, &keep, a) && plan_drop(&rig, &lose, a), "and can be used");
	is_sound(&rig, "the books agree");
	close_up(0);
}

/* A small block that is out and was freed keeps its slot, with what lies beside it. */
static void keeps_what_is_out(void)
{
	struct held small, near, third;
	struct glk_pin pin;

	set_up(NULL);
	take(&small, 600, TAG, a);
	take(&near, 700, TAG, a);
	take(&third, 800, TAG, a);
	glk_cache_pin(&rig.cache, small.addr, false, &pin);
	is_int(rig_free(&rig, small.addr, a), 0, "freed while it is out");
	is_int(leave(TAG), 0, "suspended");
	is_int((int64_t)did.stayed_blocks, 2, "those beside it stay");
	is_int((int64_t)did.stayed, 1500, "bytes of them");
	is_int((int64_t)rig_query(&rig, near.addr).away, 0, "where it is");
	is_int(glk_cache_unpin(&rig.cache, small.addr), 0, "it comes back");
	is_int(leave(TAG), 0, "suspended once more");
	is_int((int64_t)did.moved_blocks, 2, "then the others go");
	is_sound(&rig, "the books agree");
	is_int(come(TAG), 0, "resumed");
	ok(plan_drop(&rig, &near, a) && plan_drop(&rig, &third, a), "nothing was lost");
	is_int(glk_cache_tag_close(&rig.cache, TAG), 0, "closed");
	close_up(0);
}

/* No more than the limit, whatever is free; the next tag of the entry has none. */
static void keeps_to_limit(void)
{
	struct held one, two, other;

	set_up(NULL);
	is_int(take(&one, 3 * MIB, TAG, a), 0, "a block");
	is_int(glk_cache_tag_limit(&rig.cache, TAG, 4 * MIB), 0, "a limit");
	is_int((int64_t)told(TAG).limit, 4 << 20, "is told");
	is_int(take(&two, MIB + 1, TAG, a), -ENOMEM, "a byte more than it");
	is_int(rig_error().error_class, GLAKE_ERROR_LIMIT, "  is one too many");
	has_str(rig_error().text,
		"the tag of this thread may have 4 MiB on GPU 0: 3 MiB are live",
		"  and it is said why");
	is_int(take(&other, 9 * MIB, OTHER, a), 0, "another tag has none");
	is_int(take(&two, MIB, TAG, a), 0, "what there is left is had");
	is_int(leave(TAG), 0, "what is away");
	is_int(come(TAG), 0, "  counts too");
	is_int(glk_cache_tag_limit(&rig.cache, TAG, MIB), 0, "less than is live");
	ok(has_marks(&one) && has_marks(&two), "  takes nothing away");
	ok(plan_drop(&rig, &one, a), "a block goes");
	is_int(take(&one, 1, TAG, a), -ENOMEM, "  and makes no room yet");
	ok(plan_drop(&rig, &two, a), "the other goes");
	is_int(take(&one, MIB, TAG, a), 0, "  and does");
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &other, a), "all go");
	is_int(glk_cache_tag_limit(&rig.cache, TAG + 0x100, MIB), -ESTALE, "no tag");
	is_int(glk_cache_tag_close(&rig.cache, TAG), 0, "closed");
	is_int(glk_cache_tag_open(&rig.cache, TAG), 0, "opened anew");
	is_int((int64_t)told(TAG).limit, 0, "without a limit");
	close_up(0);
}

/* A block freed while its tag is suspended leaves nothing to the next at its addresses. */
static void leaves_no_pins(void)
{
	struct held old, new;
	struct glk_pin pin;

	set_up(NULL);
	take(&old, 3 * MIB, TAG, a);
	is_int(leave(TAG), 0, "suspended");
	is_int(rig_free(&rig, old.addr, a), 0, "freed meanwhile");
	is_int(come(TAG), 0, "resumed");
	take(&new, 3 * MIB, TAG, a);
	is_int((int64_t) new.addr, (int64_t)old.addr, "another has its addresses");
	is_int(glk_cache_pin(&rig.cache, new.addr, false, &pin), 0, "it is pinned");
	is_int(glk_cache_unpin(&rig.cache, new.addr), 0, "once");
	is_int(glk_cache_unpin(&rig.cache, new.addr), -EINVAL, "and no more");
	ok(plan_drop(&rig, &new, a), "it goes");
	is_int(glk_cache_tag_close(&rig.cache, TAG), 0, "closed");
	close_up(0);
}

/* With the GPU its blocks go like all others, and discardable ones are dropped. */
static void goes_with_all(void)
{
	struct held one, lost, plain, small;

	set_up(NULL);
	take(&one, 9 * MIB, TAG, a);
	take(&lost, 5 * MIB, TAG, a);
	take(&plain, 3 * MIB, 0, a);
	take(&small, 1 << 10, TAG, b);
	glk_cache_advise(&rig.cache, lost.addr, GLAKE_ADVICE_DISCARDABLE);
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "the GPU is suspended");
	is_int((int64_t)did.moved, (12 << 20) + 1024, "what is kept");
	is_int((int64_t)did.dropped, 5 << 20, "and what is not");
	is_int((int64_t)rig_query(&rig, lost.addr).dropped, 5 << 20, "as it says");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "nothing is held");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	is_int((int64_t)did.moved_blocks, 4, "with all of them");
	is_int(glk_cache_suspend(&rig.cache, true, &did) |
			(int)rig_figures(&rig).reserved,
		0, "in place: nothing is held");
	is_int(glk_cache_resume(&rig.cache, true, &did) |
			(int)rig_query(&rig, small.addr).away,
		0, "and small ones are back");
	write_marks(&lost);
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &lost, a) &&
			plan_drop(&rig, &plain, a) && plan_drop(&rig, &small, b),
		"nothing else was lost");
	is_sound(&rig, "the books agree");
	close_up(0);
}

/* The device judges who uses what when. */
static void goes_in_order(void)
{
	struct held list[4];
	int torn = 0;

	set_up((const char *const[]){"soft.streams=stepped", NULL});
	for (int i = 0; i < 4; i++) {
		torn += take(&list[i], i % 2 ? 700 : 7 * MIB, TAG, i & 2 ? b : a) != 0;
		rig_work(&rig, list[i].addr, list[i].size, i & 2 ? b : a);
	}
	rig_work(&rig, list[0].addr, list[0].size, a);
	torn += leave(TAG) != 0;
	torn += come(TAG) != 0;
	for (int i = 0; i < 4; i++)
		rig_work(&rig, list[i].addr, list[i].size, i & 2 ? b : a);
	torn += rig_free(&rig, list[3].addr, b) + leave(TAG) + come(TAG);
	ok(!torn, "copies run behind what was queued, and in front of what is");
	glk_soft_run_all(rig.drv);
	ok(has_marks(&list[0]) && has_marks(&list[1]) && has_marks(&list[2]),
		"what was written is there");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 3; i++)
		torn += rig_free(&rig, list[i].addr, i & 2 ? b : a);
	glk_soft_run_all(rig.drv);
	close_up(0);
}

/* What lies idle with a tag serves who has none. */
static void lends(void)
{
	struct held one, two;

	set_up(NULL);
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	take(&one, 40 * MIB, TAG, a);
	ok(plan_drop(&rig, &one, a), "a block of a tag is freed");
	is_int(take(&two, 40 * MIB, 0, a), 0, "another one has its memory");
	is_sound(&rig, "the books agree");
	ok(plan_drop(&rig, &two, a), "and gives it back");
	is_int(take(&one, 40 * MIB, OTHER, a), 0, "for another tag");
	ok(plan_drop(&rig, &one, a), "which is freed");
	is_int(glk_cache_trim(&rig.cache, 0, false, &(uint64_t){0}), 0, "trimmed");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "nothing is held");
	is_sound(&rig, "the books agree");
	close_up(0);
}

/* What is idle keeps its places in all of them: the second time no driver is called. */
static void shares(void)
{
	struct held one, two;
	uint64_t addr, mapped;

	set_up(NULL);
	glk_store_relaxed(&rig.cache.node->budget, 40 * MIB);
	take(&one, 40 * MIB, TAG, a);
	addr = one.addr;
	ok(plan_drop(&rig, &one, a), "a block of a tag is freed");
	is_int((int64_t)told(TAG).held, 40 * MIB, "whose memory the tag had last");
	is_int(take(&two, 40 * MIB, 0, a), 0, "another one has it");
	ok(!told(TAG).held && !rig_figures(&rig).unmapped,
		"the tag has it no longer, but a place for it");
	mapped = rig_figures(&rig).mapped;
	is_sound(&rig, "the books agree");
	ok(plan_drop(&rig, &two, a) && !take(&one, 40 * MIB, TAG, a), "and back again");
	ok(one.addr == addr && rig_figures(&rig).mapped == mapped &&
			!rig_figures(&rig).unmapped,
		"nothing was mapped for that");
	is_int((int64_t)told(TAG).held, 40 * MIB, "it is the tag's");
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	is_int(take(&two, 8 * MIB, 0, a), 0, "one of no tag beside it");
	ok(plan_drop(&rig, &two, a), "is freed");
	is_int(leave(TAG), 0, "the tag is suspended");
	is_int((int64_t)rig_figures(&rig).reserved, 8 * MIB,
		"what others have idle stays");
	is_int((int64_t)did.released, 40 * MIB, "what the tag had went");
	is_sound(&rig, "the books agree");
	is_int(come(TAG), 0, "it comes back");
	ok(plan_drop(&rig, &one, a), "with what was written");
	is_sound(&rig, "the books agree");
	close_up(0);
}

#define PLACES 400

/* Where blocks of random sizes lie that come and go, from the first byte of their addresses on. Little lies beside
 * them, so that nobody's places are the smallest. */
static void note_places(uint32_t tag, uint64_t seed, uint64_t *ret_places)
{
	static const char *const settings[] = {"policy.bins=0", "map.span=2GiB", NULL};
	struct held list[24] = {{0}};
	uint64_t state = seed;

	set_up(settings);
	for (int i = 0; i < PLACES; i++) {
		struct held *h = &list[seed_next(&state) % 24];
		size_t size = 1 + seed_next(&state) % (size_t)(i % 3 ? 2 * MIB : MIB);

		if (h->addr && rig_free(&rig, h->addr, a))
			tap_bail("a block is not freed");
		if (take(h, size, tag, a))
			tap_bail("no memory");
		ret_places[i] = h->addr - glk_index_find(h->addr)->base;
	}
	for (int i = 0; i < 24; i++)
		rig_free(&rig, list[i].addr, a);
	close_up(0);
}

static void places_as_others(void)
{
	uint64_t places[2][PLACES], seed = seed_start();

	note_places(0, seed, places[0]);
	/* so that its slots come far behind the first */
	note_places(TAG, seed, places[1]);
	ok(!memcmp(places[0], places[1], sizeof(places[0])),
		"a tag has places for its blocks as what has none");
}

static void every_call_fails(void)
{
	static const char *const calls[] = {"copy", "host_lock", "event_record",
		"stream_wait", "stream_new", "create", "map", "set_access", "reserve"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		int failed = 0, torn = 0;

		for (int nth = 1; nth < (tap_on_valgrind() ? 2 : 4); nth++) {
			struct held one = {0}, small[3] = {{0}};
			char rule[64];

			set_up(NULL);
			snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", calls[i], nth);
			torn += take(&one, 3 * MIB, TAG, a);
			for (int k = 0; k < 3; k++)
				torn += take(&small[k], 5000, TAG, k ? a : b);
			glk_fault_set(rig.drv, rule);
			if (leave(TAG)) {
				failed++;
				torn += !rig_is_sound(&rig) || leave(TAG);
			}
			if (come(TAG)) {
				failed++;
				torn += !rig_is_sound(&rig) || come(TAG);
			}
			glk_fault_set(rig.drv, "off");
			for (int k = 0; k < 3; k++)
				torn += !plan_drop(&rig, &small[k], k ? a : b);
			torn += !plan_drop(&rig, &one, a) || !rig_is_sound(&rig);
			close_up(0);
			tap_expect_log(tap.logs - tap.expected);
		}
		ok(!torn, "%s fails, %d times with an answer", calls[i], failed);
	}
}

/* The memory of blocks that left waits for their copies, and goes with the next call where that fails. */
static void not_waited_for(void)
{
	struct held one;

	set_up(NULL);
	is_int(take(&one, 3 * MIB, TAG, a), 0, "a block");
	glk_fault_set(rig.drv, "event_sync:nth=1:err=EIO");
	is_int(leave(TAG), -EIO, "its copy cannot be waited for, which is told");
	glk_fault_set(rig.drv, "off");
	is_sound(&rig, "the books agree");
	is_int(leave(TAG) | come(TAG), 0, "the next call can");
	ok(plan_drop(&rig, &one, a), "nothing was lost");
	close_up(0);
}

/* Too little room on the way back, and on the host. */
static void runs_short(void)
{
	struct held list[4], small;
	int torn = 0;

	set_up((const char *const[]){"tier.host=64MiB", NULL});
	for (int i = 0; i < 4; i++)
		torn += take(&list[i], 20 * MIB, TAG, a);
	torn += take(&small, 600, TAG, a);
	is_int(leave(TAG), -ENOMEM, "the host has no room for all");
	ok(did.moved_blocks == 3 && told(TAG).suspended, "but for some");
	is_sound(&rig, "the books agree");
	torn += rig_free(&rig, list[0].addr, a) + rig_free(&rig, list[1].addr, a);
	is_int(leave(TAG), 0, "a second call goes on");
	glk_store_relaxed(&rig.cache.node->budget, 30 * MIB);
	is_int(come(TAG), -ENOMEM, "the GPU has no room for all");
	ok(told(TAG).suspended && told(TAG).away, "some are away");
	glk_store_relaxed(&rig.cache.node->budget, UINT64_MAX);
	is_int(come(TAG), 0, "a second call goes on");
	ok(!torn && plan_drop(&rig, &list[2], a) && plan_drop(&rig, &list[3], a) &&
			plan_drop(&rig, &small, a),
		"nothing was lost");
	is_sound(&rig, "the books agree");
	close_up(0);
}

/* What has come to lie in its room, and may go again, goes: a block that was called cold, and one that a hint
 * brought back, of which the program may not know when. */
static void has_room_of_cold_ones(void)
{
	struct held mine, cold, hinted;
	int torn = 0;

	set_up((const char *const[]){
		"pool.budget=48MiB", "tier.prefetch_spare=2MiB", NULL});
	torn += plan_take(&rig, &hinted, 20 * MIB, b);
	is_int(glk_cache_spill(&rig.cache, hinted.addr, b), 0, "a block is away");
	torn += take(&mine, 30 * MIB, TAG, a);
	is_int(leave(TAG), 0, "a tag goes");
	torn += plan_take(&rig, &cold, 20 * MIB, b);
	torn += glk_cache_advise(&rig.cache, cold.addr, GLAKE_ADVICE_COLD);
	is_int(glk_cache_prefetch(&rig.cache, hinted.addr, b, 0, 0, NULL), 0,
		"the block is wanted soon");
	glk_prefetch_pump(&rig.cache);
	is_int((int64_t)rig_query(&rig, hinted.addr).away, 0, "and comes");
	is_int(come(TAG), 0, "the tag comes all the same");
	ok(rig_query(&rig, cold.addr).away && rig_query(&rig, hinted.addr).away,
		"the others go again");
	is_sound(&rig, "the books agree");
	torn += !plan_drop(&rig, &mine, a);
	torn += glk_cache_fetch(&rig.cache, cold.addr, b) +
		glk_cache_fetch(&rig.cache, hinted.addr, b);
	ok(!torn && plan_drop(&rig, &cold, b) && plan_drop(&rig, &hinted, b),
		"nothing was lost");
	close_up(0);
}

/* Also where it is a small one, which has a page for itself. */
static void has_room_of_small_ones(void)
{
	struct held mine, hinted[2];
	int torn = 0;

	set_up((const char *const[]){
		"pool.budget=48MiB", "tier.prefetch_spare=2MiB", NULL});
	for (int i = 0; i < 2; i++) {
		torn += plan_take(&rig, &hinted[i], MIB - MIB / 4, b);
		torn += glk_cache_spill(&rig.cache, hinted[i].addr, b);
	}
	torn += take(&mine, 48 * MIB, TAG, a);
	is_int(leave(TAG), 0, "a tag that needs all goes");
	for (int i = 0; i < 2; i++)
		torn += glk_cache_prefetch(&rig.cache, hinted[i].addr, b, 0, 0, NULL);
	glk_prefetch_pump(&rig.cache);
	ok(!torn && !rig_query(&rig, hinted[0].addr).away &&
			!rig_query(&rig, hinted[1].addr).away,
		"small blocks come into its room");
	is_int(come(TAG), 0, "which it has again");
	is_int((int64_t)rig_figures(&rig).victim_bytes, 2 * (MIB - MIB / 4),
		"they have gone");
	torn += !plan_drop(&rig, &mine, a);
	for (int i = 0; i < 2; i++)
		torn += glk_cache_fetch(&rig.cache, hinted[i].addr, b) |
			!plan_drop(&rig, &hinted[i], b);
	is_int(torn, 0, "and nothing was lost");
	close_up(0);
}

/* Others ask, free and query all the while. */
static glk_atomic(bool) stop;

struct other {
	pthread_t thread;
	uint32_t tag;
	unsigned seed;
	int torn, refused;
};

static void *others(void *arg)
{
	struct other *o = arg;
	struct held list[16] = {{0}};

	rig_set_tag(&rig, o->tag);
	while (!glk_load_relaxed(&stop)) {
		struct held *h = &list[rand_r(&o->seed) % 16];
		size_t size = rand_r(&o->seed) % 3 ? 600 : 3 * MIB;
		struct glake_block block = {.sz = sizeof(block)};
		int err;

		if (h->addr) {
			o->torn += glk_cache_query(&rig.cache, h->addr, &block) != 0;
			o->torn += glk_cache_use(&rig.cache, h->addr, b) != 0;
			o->torn += rig_free(&rig, h->addr, a) != 0;
			h->addr = 0;
			continue;
		}
		err = rig_try(&rig, size, a, 0, &h->addr);
		o->refused += err == -EAGAIN;
		if (err == -EAGAIN)
			usleep(100);
		o->torn += err && err != -EAGAIN;
		h->addr = err ? 0 : h->addr;
	}
	for (int i = 0; i < 16; i++)
		o->torn += list[i].addr && rig_free(&rig, list[i].addr, a);
	return NULL;
}

static void among_others(void)
{
	struct other list[4] = {{.tag = TAG}, {.tag = TAG}, {.tag = OTHER}, {.tag = 0}};
	int torn = 0;
	struct held one;

	set_up(NULL);
	take(&one, 5 * MIB, TAG, a);
	for (unsigned i = 0; i < 4; i++) {
		list[i].seed = i + 1;
		pthread_create(&list[i].thread, NULL, others, &list[i]);
	}
	for (int i = 0; i < (tap_on_valgrind() ? 4 : 20); i++) {
		torn += leave(TAG) != 0;
		torn += rig_query(&rig, one.addr).away == 0;
		torn += come(TAG) != 0 || !has_marks(&one);
	}
	glk_store_relaxed(&stop, true);
	for (int i = 0; i < 4; i++) {
		pthread_join(list[i].thread, NULL);
		torn += list[i].torn;
		torn += i > 1 && list[i].refused;
	}
	ok(!torn, "threads of other tags notice nothing");
	ok(plan_drop(&rig, &one, a), "nothing was lost");
	is_sound(&rig, "the books agree");
	close_up(0);
}

/* Freed on the thread's own default stream a block of a tag has an event there, as others have. */
static void records_own(void)
{
	uint64_t records;
	struct held one;

	set_up((const char *const[]){"soft.streams=stepped", NULL});
	take(&one, 5 * MIB, TAG, GLK_STREAM_PER_THREAD);
	records = rig_calls(&rig, GLAKE_CALL_EVENT_RECORD);
	is_int(rig_free(&rig, one.addr, GLK_STREAM_PER_THREAD), 0, "freed");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_EVENT_RECORD) - records), 1,
		"with an event for others to come");
	glk_soft_run_all(rig.drv);
	close_up(0);
}

/* By a request of a tag it is not found out how tight the GPU's own arena is. */
static void weighs_its_own(void)
{
	struct held own, one;
	uint64_t weighed;

	set_up(NULL);
	take(&own, 5 * MIB, 0, a);
	weighed = rig.cache.weighed;
	take(&one, 5 * MIB, TAG, a);
	is_int((int64_t)(rig.cache.weighed - weighed), 0, "a tag weighs its own");
	is_int(rig_free(&rig, own.addr, a), 0, "one is freed");
	is_int(rig_free(&rig, one.addr, a), 0, "and the other");
	close_up(0);
}

int main(void)
{
	tap_plan_later();
	weighs_its_own();
	records_own();
	goes_whole();
	refuses();
	drops();
	keeps_what_is_out();
	keeps_to_limit();
	leaves_no_pins();
	goes_with_all();
	goes_in_order();
	lends();
	shares();
	places_as_others();
	every_call_fails();
	not_waited_for();
	runs_short();
	has_room_of_cold_ones();
	has_room_of_small_ones();
	among_others();
	return tap_done();
}
