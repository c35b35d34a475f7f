/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ranges of blocks go away and come back, in any order, with what was in them. */
#include "range_parts.h"

static struct rig rig;
static struct CUstream_st *a, *b;

static void set_up(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
}

/* What a range has leaves room for others, and the rest of the block stays in use. */
static void makes_room(void)
{
	struct glake_stats s;
	struct held one, two;

	set_up(NULL);
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	plan_take(&rig, &one, 40 * MIB, a);
	write_words(&one, 0, one.size);
	is_int(plan_take(&rig, &two, 24 * MIB, a), -ENOMEM, "no room for another block");
	is_int(spill_range(&rig, &one, 8 * MIB, 24 * MIB, a), 0,
		"the middle of a block goes");
	is_int((int64_t)away_of(&rig, &one), 24 * MIB, "which is told");
	is_sound(&rig, "the books agree");
	is_int(plan_take(&rig, &two, 24 * MIB, a), 0, "another one has its memory");
	ok(has_words(&one, 0, 8 * MIB) && has_words(&one, 32 * MIB, 8 * MIB),
		"what is here has what was written");
	write_words(&one, 0, 8 * MIB);
	s = rig_figures(&rig);
	is_int((int64_t)s.away, 24 * MIB, "bytes that are away");
	is_int((int64_t)s.away_blocks, 1, "of a block");
	is_int((int64_t)s.spills, 1, "that went once");
	is_int(spill_range(&rig, &one, 8 * MIB, 24 * MIB, a), -EALREADY, "it is away");
	is_int(spill_range(&rig, &one, 4 * MIB, 24 * MIB, b), 0, "what is not goes");
	is_int((int64_t)away_of(&rig, &one), 28 * MIB, "and nothing else");
	is_int(fetch_range(&rig, &one, 32 * MIB, 8 * MIB, a), -EALREADY,
		"the end is here");
	is_int(fetch_range(&rig, &one, 8 * MIB, 8 * MIB, a), 0,
		"a part of it comes back");
	ok(has_words(&one, 8 * MIB, 8 * MIB), "with what was in it");
	is_int((int64_t)away_of(&rig, &one), 20 * MIB, "the others stay away");
	is_sound(&rig, "the books agree");
	ok(plan_drop(&rig, &two, a), "the other block is freed");
	is_int(glk_cache_fetch(&rig.cache, one.addr, b), 0, "all of it comes back");
	ok(!away_of(&rig, &one) && has_words(&one, 0, one.size), "with what was in it");
	is_int(glk_cache_fetch(&rig.cache, one.addr, b), -EALREADY, "it is here");
	s = rig_figures(&rig);
	ok(!s.away && !s.away_blocks, "nothing is away");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, one.addr, a), 0, "and freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A block that went as a whole comes back in parts, and one that went in parts as a whole. */
static void mixes(void)
{
	struct held one;

	set_up(NULL);
	plan_take(&rig, &one, 40 * MIB + 300, a);
	write_words(&one, 0, one.size);
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "a block goes");
	is_int(fetch_range(&rig, &one, 10 * MIB, 1, a), 0, "a byte of it comes back");
	is_int((int64_t)(one.size - away_of(&rig, &one)), 2 * MIB, "with its page");
	ok(has_words(&one, 10 * MIB, 2 * MIB), "and what was in it");
	is_sound(&rig, "the books agree");
	is_int(fetch_range(&rig, &one, 40 * MIB + 299, 1, b), 0, "the last one");
	is_int((int64_t)(one.size - away_of(&rig, &one)), 2 * MIB + 300,
		"with what is beside it");
	is_int(fetch_range(&rig, &one, 0, 3 * MIB, a), 0, "the first ones");
	ok(has_words(&one, 0, 4 * MIB) && has_words(&one, 40 * MIB, 300),
		"they are whole");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "what is here goes");
	is_int(glk_cache_spill(&rig.cache, one.addr, a), -EALREADY, "once");
	is_int((int64_t)away_of(&rig, &one), (int64_t)one.size, "all is away");
	is_sound(&rig, "the books agree");
	is_int(spill_range(&rig, &one, 0, one.size, a), -EALREADY, "all of it");
	is_int(fetch_range(&rig, &one, 0, one.size, a), 0, "all of it comes back");
	ok(!away_of(&rig, &one) && has_words(&one, 0, one.size), "with what was in it");
	is_int(spill_range(&rig, &one, 0, one.size, a), 0, "and goes");
	is_int((int64_t)away_of(&rig, &one), (int64_t)one.size, "all is away");
	is_int(glk_cache_fetch(&rig.cache, one.addr, a), 0, "and comes");
	ok(has_words(&one, 0, one.size), "with what was in it");
	is_int(rig_free(&rig, one.addr, a), 0, "it is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Pages at its ends that a block shares with others stay with those. */
static void shares_its_ends(void)
{
	struct held list[3];

	set_up((const char *const[]){"policy.bins=0", NULL});
	for (int i = 0; i < 3; i++)
		plan_take(&rig, &list[i], 5 * MIB, a);
	for (int i = 0; i < 3; i++)
		is_int(spill_range(&rig, &list[i], 0, 2 * MIB + (i ? 1 * MIB : 0), a), 0,
			"the beginning of one goes");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 3; i++)
		is_int(spill_range(&rig, &list[i], 3 * MIB, 2 * MIB, a), 0,
			"and the end");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_spill(&rig.cache, list[1].addr, b), -EALREADY,
		"nothing is left of one");
	is_int(fetch_range(&rig, &list[1], 0, 1, b), 0, "its first byte comes");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, list[0].addr, a), 0, "its neighbour is freed");
	is_sound(&rig, "the books agree");
	for (int i = 1; i < 3; i++)
		is_int(glk_cache_fetch(&rig.cache, list[i].addr, a), 0, "they come back");
	ok(plan_drop(&rig, &list[1], a) && plan_drop(&rig, &list[2], a),
		"with what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void refuses(void)
{
	struct held small, one, lone = {.size = 10 * MIB};
	struct glk_pin pin;

	set_up(NULL);
	plan_take(&rig, &small, 600, a);
	plan_take(&rig, &one, 20 * MIB, a);
	lone.addr = rig_single(&rig, lone.size, a);
	is_int(spill_range(&rig, &small, 0, 600, a), -EINVAL,
		"a small block does not move");
	is_int(spill_range(&rig, &one, 0, 0, a), -EINVAL, "no bytes are no range");
	is_int(spill_range(&rig, &one, 20 * MIB, 1, a), -EINVAL,
		"none lies behind a block");
	is_int(spill_range(&rig, &one, 19 * MIB, 2 * MIB, a), -EINVAL,
		"or reaches beyond it");
	is_int(spill_range(&rig, &one, 1, SIZE_MAX, a), -EINVAL, "however large");
	is_int(fetch_range(&rig, &one, 19 * MIB, 2 * MIB, a), -EINVAL,
		"to be fetched neither");
	is_int(spill_range(&rig, &one, 3 * MIB, 2 * MIB, a), -EINVAL,
		"it holds a whole page");
	is_int(fetch_range(&rig, &one, 0, 1, a), -EALREADY, "it is here");
	is_int(spill_range(&rig, &lone, 0, 4 * MIB, a), -EINVAL,
		"a contiguous one goes whole");
	is_int(spill_range(&rig, &lone, 0, lone.size, a), 0, "as it does");
	is_int(fetch_range(&rig, &lone, 0, 1, a), 0, "and comes whole");
	is_int((int64_t)away_of(&rig, &lone), 0, "all of it");
	is_int(glk_cache_pin(&rig.cache, one.addr, false, &pin), 0, "one that is out");
	is_int(spill_range(&rig, &one, 0, 4 * MIB, a), -EBUSY, "stays");
	is_int(glk_cache_unpin(&rig.cache, one.addr), 0, "until it is back");
	is_int(glk_cache_hold(&rig.cache, one.addr, true), 0, "and one that is pinned");
	is_int(spill_range(&rig, &one, 0, 4 * MIB, a), -EBUSY, "stays too");
	is_int(glk_cache_hold(&rig.cache, one.addr, false), 0, "until it is not");
	is_int(spill_range(&rig, &one, 0, 4 * MIB, a), 0, "then it goes");
	is_int(glk_cache_pin(&rig.cache, one.addr, false, &pin), -EBUSY,
		"it has no pages for others");
	is_int(glk_cache_hold(&rig.cache, one.addr, true), -EBUSY,
		"nor memory to be known");
	is_int(glk_cache_use(&rig.cache, one.addr, b), 0, "a stream may be named");
	is_int(glk_cache_advise(&rig.cache, one.addr, GLAKE_ADVICE_COLD), 0,
		"and it may be cold");
	is_int((int64_t)away_of(&rig, &one), 4 * MIB, "a part is away all the same");
	is_int(glk_cache_advise(&rig.cache, one.addr, GLAKE_ADVICE_PINNED), 0,
		"or pinned");
	is_int(spill_range(&rig, &one, 8 * MIB, 4 * MIB, a), -EBUSY,
		"then the rest stays");
	is_int(fetch_range(&rig, &one, 0, 2 * MIB, a), 0, "and what is away may come");
	rig_capture(&rig, b);
	is_int(fetch_range(&rig, &one, 2 * MIB, 2 * MIB, b), -EBUSY,
		"not into a capture");
	rig_drop(&rig, rig_capture_end(&rig, b));
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, one.addr, b), 0, "it may be freed");
	ok(!rig_free(&rig, lone.addr, a) && plan_drop(&rig, &small, a),
		"nothing was lost");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Where a block goes when it is freed once all of it is back: as before, unless another stream had it back. */
static void keeps_its_bin(void)
{
	for (int other = 0; other < 2; other++) {
		uint32_t bin;
		struct held one;

		set_up(NULL);
		/* the next one of its size finds a bin for it */
		for (int i = 0; i < 3; i++)
			rig_free(&rig, rig_alloc(&rig, 4 * MIB, a), a);
		plan_take(&rig, &one, 4 * MIB, a);
		bin = glk_load_relaxed(&extent_of(&rig, &one)->bin);
		is_int(spill_range(&rig, &one, 0, 2 * MIB, a), 0, "a part goes");
		is_int(fetch_range(&rig, &one, 0, 2 * MIB, other ? b : a), 0,
			"and comes");
		is_int(glk_load_relaxed(&extent_of(&rig, &one)->bin),
			other ? GLK_BIN_MARKED : bin,
			other ? "behind another stream it is in no bin"
			      : "behind its own it goes where it would have gone");
		ok(plan_drop(&rig, &one, a), "with what was written");
		is_sound(&rig, "the books agree");
		rig_close(&rig, 0);
	}
}

/* Each call of the driver fails once: what was to go is here, and what was to come is away or here. */
static void every_call_fails(void)
{
	static const char *const calls[] = {"copy", "host_lock", "event_new",
		"event_record", "stream_wait", "stream_new", "create", "map",
		"set_access"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		int failed = 0, torn = 0, missed = 0;

		/* with each of two beginnings in turn, until both have no such call */
		for (int nth = 1; nth < 9 && missed < 2; nth++) {
			struct held one, two;
			uint64_t away;
			char rule[64];

			set_up((const char *const[]){
				"policy.bins=0", "pool.large_page=4MiB", NULL});
			glk_store_relaxed(&rig.cache.node->budget, 17 * MIB);
			plan_take(&rig, &one, 15 * MIB, a);
			write_words(&one, 0, one.size);
			if (nth % 2)
				torn += spill_range(&rig, &one, 6 * MIB, 2 * MIB, a) != 0;
			snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", calls[i], nth);
			glk_fault_set(rig.drv, rule);
			if (spill_range(&rig, &one, 4 * MIB, 8 * MIB, b)) {
				failed++;
				torn += away_of(&rig, &one) != (nth % 2 ? 2 : 0) * MIB ||
					!rig_is_sound(&rig) ||
					!has_words(&one, 0, 6 * MIB);
				torn += spill_range(&rig, &one, 4 * MIB, 8 * MIB, b) != 0;
			}
			torn += plan_take(&rig, &two, 8 * MIB, b) &&
				plan_take(&rig, &two, 8 * MIB, b);
			glk_store_relaxed(&rig.cache.node->budget, 30 * MIB);
			away = away_of(&rig, &one);
			if (fetch_range(&rig, &one, 6 * MIB, 3 * MIB, b)) {
				failed++;
				torn += away_of(&rig, &one) > away || !rig_is_sound(&rig);
				torn += fetch_range(&rig, &one, 6 * MIB, 3 * MIB, b) != 0;
			}
			if (glk_cache_fetch(&rig.cache, one.addr, b)) {
				failed++;
				torn += glk_cache_fetch(&rig.cache, one.addr, b) != 0;
			}
			missed = rig_struck(&rig) ? 0 : missed + 1;
			glk_fault_set(rig.drv, "off");
			torn += !rig_is_sound(&rig) || !has_words(&one, 0, one.size);
			torn += rig_free(&rig, one.addr, b) != 0 ||
				!plan_drop(&rig, &two, b);
			rig_close(&rig, 0);
			tap_expect_log(tap.logs - tap.expected);
		}
		ok(!torn, "%s fails, %d times with an answer", calls[i], failed);
	}
}

/* What is copied is what was written by all work queued before, and others have the memory behind that.
 * */
static void goes_in_order(void)
{
	struct held one;
	uint64_t two;

	set_up((const char *const[]){"soft.streams=stepped", "policy.bins=0", NULL});
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	plan_take(&rig, &one, 40 * MIB, a);
	glk_soft_run_all(rig.drv);
	rig_work(&rig, one.addr, one.size, b);
	glk_cache_use(&rig.cache, one.addr, b);
	is_int(spill_range(&rig, &one, 0, 32 * MIB, a), 0,
		"a range goes with work queued");
	rig_work(&rig, one.addr + 32 * MIB, 8 * MIB, b);
	is_int(rig_try(&rig, 32 * MIB, b, 0, &two), 0, "another stream has its memory");
	rig_work(&rig, two, 32 * MIB, b);
	is_int(rig_free(&rig, two, b), 0, "gives it back");
	is_int(fetch_range(&rig, &one, 8 * MIB, 8 * MIB, a), 0,
		"and a part is had again");
	rig_work(&rig, one.addr + 8 * MIB, 8 * MIB, a);
	is_int(spill_range(&rig, &one, 8 * MIB, 4 * MIB, a), 0, "and goes again");
	is_int(glk_cache_fetch(&rig.cache, one.addr, b), 0,
		"and all is had, before anything has run");
	rig_work(&rig, one.addr, one.size, b);
	is_sound(&rig, "the books agree");
	glk_soft_run_all(rig.drv);
	ok(has_marks(&one), "what was written is there");
	is_int(spill_range(&rig, &one, 2 * MIB, 20 * MIB, a), 0, "a range goes");
	is_int(rig_free(&rig, one.addr, b), 0, "and the block is freed behind that");
	is_sound(&rig, "the books agree");
	glk_soft_run_all(rig.drv);
	rig_close(&rig, 0);
}

/* The end of a chunk that stays in use is read by who has the beginning: what comes to lie there, when the
 * block was freed, comes behind that. */
static void shares_a_chunk(void)
{
	struct held first, one, other, copy;
	struct CUstream_st *out;

	set_up((const char *const[]){"soft.streams=stepped", "policy.bins=0", NULL});
	plan_take(&rig, &first, 6 * MIB - (128 << 10), a);
	plan_take(&rig, &one, 20 * MIB, a);
	plan_take(&rig, &other, 20 * MIB, b);
	plan_take(&rig, &copy, 4 * MIB, a);
	ok(one.addr % (2 * MIB) > 2 * MIB - GLK_STORE_CHUNK,
		"less than a chunk of a block lies in its first page");
	write_words(&one, 0, one.size);
	write_words(&other, 0, other.size);
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "it goes");
	glk_soft_run_all(rig.drv);
	is_int(fetch_range(&rig, &one, 0, 4096, a), 0, "the page is had again");
	rig.drv->ops->copy(rig.drv, copy.addr, one.addr, 128 << 10, a);
	is_int(rig_free(&rig, one.addr, a), 0, "used, and freed behind that");
	is_int(glk_cache_spill(&rig.cache, other.addr, b), 0, "another block goes");
	out = rig.cache.mover.out_channel.main;
	while (!glk_soft_step(rig.drv, 0, b) || !glk_soft_step(rig.drv, 0, out))
		;
	glk_soft_run_all(rig.drv);
	one.addr = copy.addr;
	ok(has_words(&one, 0, 128 << 10), "what was used is what it was");
	is_int(glk_cache_fetch(&rig.cache, other.addr, b), 0, "the other one comes");
	glk_soft_run_all(rig.drv);
	ok(has_words(&other, 0, other.size), "as it was");
	is_sound(&rig, "the books agree");
	ok(!rig_free(&rig, first.addr, a) && !rig_free(&rig, other.addr, a) &&
			!rig_free(&rig, copy.addr, a),
		"all is freed");
	glk_soft_run_all(rig.drv);
	rig_close(&rig, 0);
}

/* Contents with a hash, of which parts come back. */
static void is_verified(void)
{
	struct held one;
	uint32_t run;

	set_up((const char *const[]){"tier.verify=yes", NULL});
	plan_take(&rig, &one, 20 * MIB, a);
	write_words(&one, 0, one.size);
	is_int(spill_range(&rig, &one, 0, 12 * MIB, a), 0, "a range goes");
	is_int(fetch_range(&rig, &one, 4 * MIB, 2 * MIB, a), 0, "its middle comes");
	is_int(fetch_range(&rig, &one, 6 * MIB, 2 * MIB, a), 0, "and what is behind it");
	run = first_run_of(&rig.cache.arena, extent_of(&rig, &one));
	if (glk_store_at(&rig.cache.mover.store, run)->hashed) {
		struct glk_store_run *r = glk_store_at(&rig.cache.mover.store, run);
		char *byte = rig.cache.mover.store.piece[r->piece].base +
			r->first * GLK_STORE_CHUNK + 5000;

		*byte ^= 1;
		is_int(fetch_range(&rig, &one, 0, 2 * MIB, a), -EIO,
			"what was written to does not come");
		tap_expect_log(1);
		is_int((int64_t)away_of(&rig, &one), 8 * MIB, "it stays away");
		*byte ^= 1;
	}
	is_int(glk_cache_fetch(&rig.cache, one.addr, a), 0, "what is whole does");
	ok(has_words(&one, 0, one.size), "with what was in it");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, one.addr, a), 0, "it is freed");
	rig_close(&rig, 0);
}

/* Calls for a range that is away, which move nothing; ns for one, to be read by people. */
static int64_t ask(const struct held *h, size_t offset)
{
	int64_t since = glk_clock_ns();

	for (int i = 0; i < 1000; i++)
		spill_range(&rig, h, offset, 2 * MIB, a);
	return (glk_clock_ns() - since) / 1000;
}

#define RANGES ((size_t)100)

/* A call costs what its range does, in however many pieces the block is. */
static void costs_its_range(void)
{
	struct held one = {.size = RANGES * 4 * MIB};
	uint64_t before;
	int64_t first = 0;
	int torn = 0;

	set_up((const char *const[]){"soft.host_memory=1GiB", "tier.host=512MiB", NULL});
	one.addr = rig_alloc(&rig, one.size, a);
	ok(one.addr, "a block");
	for (size_t i = 0; i < RANGES; i++) {
		torn += spill_range(&rig, &one, i * 4 * MIB, 2 * MIB, a) != 0;
		if (!i)
			first = ask(&one, 0);
	}
	ok(!torn, "a hundred ranges go");
	tap_note("a call for one costs %" PRId64 " ns, with 100 of them %" PRId64, first,
		ask(&one, 2 * RANGES * MIB));
	is_int((int64_t)away_of(&rig, &one), 2 * RANGES * MIB, "which is told");
	before = rig.cache.mover.store.runs.live;
	for (size_t i = RANGES - 1; i < RANGES; i -= 3) {
		uint64_t copies = rig_calls(&rig, GLAKE_CALL_COPY);

		torn += fetch_range(&rig, &one, i * 4 * MIB, 2 * MIB, a) != 0;
		torn += rig_calls(&rig, GLAKE_CALL_COPY) != copies + 1;
	}
	ok(!torn && before - rig.cache.mover.store.runs.live == 34,
		"a third of them come");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_fetch(&rig.cache, one.addr, a), 0, "and the rest");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, one.addr, a), 0, "it is freed");
	rig_close(&rig, 0);
}

int main(void)
{
	if (tap_one_thread_takes_long())
		tap_skip_all("takes too long here");
	tap_plan_later();
	makes_room();
	mixes();
	shares_its_ends();
	refuses();
	keeps_its_bin();
	every_call_fails();
	goes_in_order();
	shares_a_chunk();
	if (tap_has_xxhash())
		is_verified();
	else
		tap_skip("what changed does not come",
			"the library was built without xxhash.h");
	if (!tap_storms_take_long())
		costs_its_range();
	return tap_done();
}
