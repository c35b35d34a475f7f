/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A quiet point beside blocks that have to stay: what shares a page with one of them stays, and nothing else. */
#include "range_parts.h"

#define BLOCKS 3

static struct rig rig;
static struct CUstream_st *a;
static struct held list[BLOCKS];

/* Both ends of a block, that others may share. */
static void write_ends(const struct held *h)
{
	write_words(h, 0, MIB);
	write_words(h, h->size - MIB, MIB);
}

static bool have_ends(void)
{
	bool right = true;

	for (int i = 0; i < BLOCKS; i++)
		right = right && has_words(&list[i], 0, MIB) &&
			has_words(&list[i], list[i].size - MIB, MIB);
	return right;
}

/* Side by side, all on the host in place. */
static void set_up(const char *page, size_t first, size_t second, size_t third)
{
	const size_t sizes[BLOCKS] = {first, second, third};

	rig_open(&rig,
		(const char *const[]){"soft.host_memory=2GiB", "tier.host=1GiB",
			"policy.bins=0", page, NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < BLOCKS; i++) {
		if (plan_take(&rig, &list[i], sizes[i], a))
			tap_bail("no block");
		write_ends(&list[i]);
	}
	ok(list[0].addr + first == list[1].addr && list[1].addr + second == list[2].addr,
		"blocks side by side");
}

static void lower_all(void)
{
	struct glake_suspended did;

	is_int(glk_cache_suspend(&rig.cache, true, &did), 0, "the GPU is suspended");
	is_int(glk_cache_resume(&rig.cache, true, &did), 0, "and resumed at once");
}

static void advise(int i, enum glake_advice advice)
{
	is_int(glk_cache_advise(&rig.cache, list[i].addr, advice), 0,
		"a block is to stay, or not any more");
}

static struct glake_returned quiet(void)
{
	struct glake_returned did = {0};

	is_int(glk_cache_quiet(&rig.cache, &did), 0, "a quiet point");
	ok(have_ends(), "all have what was written");
	is_sound(&rig, "the books agree");
	return did;
}

static void free_all(void)
{
	for (int i = 0; i < BLOCKS; i++)
		is_int(rig_free(&rig, list[i].addr, a), 0, "one is freed");
	rig_close(&rig, 0);
}

static void tear_down(void)
{
	is_int((int64_t)quiet().left, 0, "at last nothing is left on the host");
	free_all();
}

/* The one in the middle stays: of those beside it so does a page each at most, the smallest of the host. */
static void one_stays(const char *page)
{
	set_up(page, 21 * MIB, 21 * MIB, 21 * MIB);
	lower_all();
	advise(1, GLAKE_ADVICE_PINNED);
	quiet();
	is_int((int64_t)rig_query(&rig, list[1].addr).placed, 21 * MIB,
		"it is where it was");
	ok(rig_query(&rig, list[0].addr).placed <= 2 * MIB,
		"one beside it has come, but for the page they share");
	ok(rig_query(&rig, list[2].addr).placed <= 2 * MIB, "and so has the other one");
	advise(1, GLAKE_ADVICE_NORMAL);
	tear_down();
}

/* Both neighbours of one stay: what lies between comes as a whole, but for the page that it shares with each. */
static void both_stay(size_t size, int most)
{
	uint64_t copies;

	set_up("pool.large_page=2MiB", 21 * MIB, size, 21 * MIB);
	lower_all();
	advise(0, GLAKE_ADVICE_PINNED);
	advise(2, GLAKE_ADVICE_PINNED);
	copies = rig_calls(&rig, GLAKE_CALL_COPY);
	quiet();
	copies = rig_calls(&rig, GLAKE_CALL_COPY) - copies;
	ok(copies <= (uint64_t)most, "%d copies are queued", (int)copies);
	is_int((int64_t)(rig_query(&rig, list[0].addr).placed +
		       rig_query(&rig, list[2].addr).placed),
		42 * MIB, "they are where they were");
	ok(rig_query(&rig, list[1].addr).placed <= 4 * MIB,
		"what lies between has come, but for two pages");
	advise(0, GLAKE_ADVICE_NORMAL);
	advise(2, GLAKE_ADVICE_NORMAL);
	tear_down();
}

/* One between them is away in part. */
static void one_is_away_in_part(void)
{
	set_up(NULL, 21 * MIB, 21 * MIB, 21 * MIB);
	is_int(spill_range(&rig, &list[1], 8 * MIB, 4 * MIB, a), 0, "a range goes");
	lower_all();
	advise(0, GLAKE_ADVICE_PINNED);
	advise(2, GLAKE_ADVICE_PINNED);
	quiet();
	ok(rig_query(&rig, list[1].addr).placed <= 4 * MIB,
		"the rest of it has come, but for two pages");
	ok(away_of(&rig, &list[1]) > 0, "what was away is away");
	advise(0, GLAKE_ADVICE_NORMAL);
	advise(2, GLAKE_ADVICE_NORMAL);
	tear_down();
}

/* Bytes for which the GPU has room, by its budget or by what the driver has. */
static void leave_room(uint64_t bytes, bool by_budget, struct held *filler)
{
	uint64_t held = glk_load_relaxed(&rig.cache.node->held), released;

	if (by_budget) {
		glk_store_relaxed(&rig.cache.node->budget, held + bytes);
		return;
	}
	if (glk_cache_trim(&rig.cache, 0, false, &released))
		tap_bail("no trim");
	held = glk_load_relaxed(&rig.cache.node->held);
	if (plan_take(&rig, filler, 1024 * MIB - held - bytes, a))
		tap_bail("no filler");
}

/* There is room for less than a part of the largest: for the others, and for as much of it as there is left. */
static void little_room(bool by_budget)
{
	uint64_t calls, failed, left;
	struct held filler = {0};

	set_up(NULL, 21 * MIB, 300 * MIB, 21 * MIB);
	lower_all();
	leave_room(80 * MIB, by_budget, &filler);
	glk_fault_set(rig.drv, "create:from=1:err=ENOMEM");
	left = quiet().left;
	glk_fault_count(rig.drv, &calls, &failed);
	glk_fault_set(rig.drv, "off");
	ok(failed > 0 && failed < 100 && left > 320 * MIB,
		"where there is none the driver is asked %d times", (int)failed);
	left = quiet().left;
	ok(left >= 262 * MIB && left <= 272 * MIB,
		"%s: where 80 MiB have room so many come: %d are left",
		by_budget ? "budget" : "driver", (int)(left / MIB));
	is_int((int64_t)quiet().left, (int64_t)left, "and then no more");
	glk_store_relaxed(&rig.cache.node->budget, UINT64_MAX);
	if (filler.addr)
		is_int(rig_free(&rig, filler.addr, a), 0, "there is room again");
	free_all();
}

/* There is room for one of three, to the byte. */
static void just_room(void)
{
	struct held filler = {0};

	set_up("pool.large_page=2MiB", 20 * MIB, 20 * MIB, 20 * MIB);
	lower_all();
	leave_room(20 * MIB, true, &filler);
	is_int((int64_t)quiet().left, 40 * MIB, "one that just fits comes");
	glk_store_relaxed(&rig.cache.node->budget, UINT64_MAX);
	free_all();
}

int main(void)
{
	static const char *const pages[] = {NULL, "pool.large_page=2MiB"};

	if (tap_one_thread_takes_long())
		tap_skip_all("takes too long here");
	tap_plan_later();
	for (int i = 0; i < 2; i++)
		one_stays(pages[i]);
	both_stay(276 * MIB, 11);
	both_stay(22 * MIB, 1);
	one_is_away_in_part();
	little_room(true);
	little_room(false);
	just_room();
	return tap_done();
}
