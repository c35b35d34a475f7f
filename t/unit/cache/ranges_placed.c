/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that are away in part, between others that lie on the host in place: what is here of them goes there
 * and comes from there, and what is away stays so. */
#include "range_parts.h"
#include "soft/fault.h"

#define BLOCKS 3

static struct rig rig;
static struct CUstream_st *a;
static struct held list[BLOCKS];
static struct glake_suspended did;
static struct glake_returned done;

static uint64_t placed(void)
{
	return rig_figures(&rig).placed;
}

static bool all_have(int i, size_t offset, size_t bytes)
{
	bool right = has_words(&list[i], offset, bytes);

	for (int n = 0; n < BLOCKS; n++)
		right = right && (n == i || has_words(&list[n], 0, list[n].size));
	return right;
}

/* Blocks side by side, each with a part of the pages at its ends. */
static void set_up(const char *page)
{
	rig_open(&rig,
		(const char *const[]){"driver.fault=off", "soft.host_memory=2GiB",
			"tier.host=1GiB", "policy.bins=0", page, NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < BLOCKS; i++) {
		plan_take(&rig, &list[i], 21 * MIB, a);
		write_words(&list[i], 0, list[i].size);
	}
}

static void tear_down(void)
{
	for (int i = 0; i < BLOCKS; i++) {
		bool lacks = rig_query(&rig, list[i].addr).away ||
			rig_query(&rig, list[i].addr).placed;

		is_int(glk_cache_fetch(&rig.cache, list[i].addr, a),
			lacks ? 0 : -EALREADY, "one is had back");
	}
	ok(all_have(0, 0, list[0].size), "with what was written");
	for (int i = 0; i < BLOCKS; i++)
		is_int(rig_free(&rig, list[i].addr, a), 0, "and freed");
	is_sound(&rig, "the books agree");
	is_int((int64_t)placed(), 0, "nothing is placed");
	rig_close(&rig, 0);
}

static void lower_all(void)
{
	is_int(glk_cache_suspend(&rig.cache, true, &did), 0, "the GPU is suspended");
	is_int(glk_cache_resume(&rig.cache, true, &did), 0, "and resumed at once");
}

/* What is here of one goes to the host in place, and is used there. */
static void goes_in_place(const char *page, bool lazy)
{
	uint64_t away;

	set_up(page);
	is_int(spill_range(&rig, &list[1], 3 * MIB, 12 * MIB, a), 0, "a range goes");
	away = rig_query(&rig, list[1].addr).away;
	is_int(glk_cache_suspend(&rig.cache, true, &did), 0, "the GPU is suspended");
	is_int((int64_t)did.moved, (int64_t)(63 * MIB - away), "with all that was here");
	is_int((int64_t)did.stayed, 0, "nothing stays");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "nothing is held");
	is_int((int64_t)rig_query(&rig, list[1].addr).away, (int64_t)away,
		"what was away is");
	is_int((int64_t)rig_query(&rig, list[1].addr).placed, (int64_t)(21 * MIB - away),
		"the rest is in place");
	ok(all_have(1, 0, 3 * MIB) && all_have(1, 17 * MIB, 4 * MIB),
		"with what was written");
	write_words(&list[1], 0, 2 * MIB);
	is_sound(&rig, "the books agree");
	is_int(fetch_range(&rig, &list[1], 8 * MIB, 1, a), -EAGAIN, "nothing comes now");
	is_int(lazy ? glk_cache_resume(&rig.cache, true, &did)
		    : glk_cache_resume(&rig.cache, false, &did),
		0, "the GPU is resumed");
	is_int((int64_t)did.moved, lazy ? 0 : (int64_t)(63 * MIB - away),
		"with what had gone");
	is_int((int64_t)placed(), lazy ? (int64_t)(63 * MIB - away) : 0,
		"which is where it is");
	is_int((int64_t)rig_query(&rig, list[1].addr).away, (int64_t)away,
		"what was away is");
	is_sound(&rig, "the books agree");
	if (lazy) {
		is_int(spill_range(&rig, &list[1], 16 * MIB, 4 * MIB, a), -EALREADY,
			"no range goes from the host in place");
		is_int(glk_cache_spill(&rig.cache, list[1].addr, a), -EALREADY,
			"nor does all that is there");
		is_int((int64_t)rig_query(&rig, list[1].addr).away, (int64_t)away,
			"nothing has moved");
		is_int(fetch_range(&rig, &list[1], 6 * MIB, 1, a), 0, "a page comes");
		is_int((int64_t)rig_query(&rig, list[1].addr).away,
			(int64_t)(away - 2 * MIB), "one");
		is_int(spill_range(&rig, &list[1], 6 * MIB, 4 * MIB, a), -EBUSY,
			"which goes as a whole then");
		is_int(glk_cache_quiet(&rig.cache, &done), 0, "a quiet point");
		is_int((int64_t)done.left, 0, "has all the rest on the GPU");
	}
	ok(all_have(1, 0, 3 * MIB) && all_have(1, 17 * MIB, 4 * MIB),
		"with what was written");
	tear_down();
}

/* It comes back while its rest is in place, and then that comes, each by a call. */
static void is_fetched(void)
{
	set_up(NULL);
	is_int(spill_range(&rig, &list[1], 4 * MIB, 8 * MIB, a), 0, "a range goes");
	lower_all();
	is_int(glk_cache_fetch(&rig.cache, list[1].addr, a), 0, "all of it is had");
	is_int((int64_t)rig_query(&rig, list[1].addr).away, 0, "nothing is away");
	ok(all_have(1, 0, 21 * MIB), "it has what was written");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_fetch(&rig.cache, list[1].addr, a), 0, "and what is in place");
	ok(rig_query(&rig, list[1].addr).placed <= 4 * MIB,
		"but for pages that it shares");
	is_int(glk_cache_quiet(&rig.cache, &done), 0, "a quiet point has the rest");
	is_int((int64_t)done.left, 0, "all of it");
	is_sound(&rig, "the books agree");
	tear_down();
}

/* One of the copies fails, of a run whose blocks have others there already: what was there stays, and counts. */
static void is_undone(const char *page)
{
	bool struck = true, sound = true;
	int tried = 0;
	char rule[64];

	for (int nth = 1; struck && sound; nth++, tried++) {
		set_up(page);
		sound = !spill_range(&rig, &list[1], 4 * MIB, 8 * MIB, a);
		snprintf(rule, sizeof(rule), "copy:nth=%d:err=EIO", nth);
		glk_fault_set(rig.drv, rule);
		glk_cache_suspend(&rig.cache, true, &did);
		struck = rig_struck(&rig);
		glk_fault_set(rig.drv, "off");
		sound &= rig_is_sound(&rig) && all_have(1, 0, 4 * MIB) &&
			all_have(1, 17 * MIB, 4 * MIB);
		if (glk_load_relaxed(&rig.cache.suspended))
			sound &= !glk_cache_resume(&rig.cache, false, &did);
		sound &= rig_is_sound(&rig);
		if (!sound)
			tap_note("copy %d", nth);
		tear_down();
	}
	ok(sound && tried > 1, "each of %d copies fails, and the books agree", tried - 1);
}

int main(void)
{
	static const char *const pages[] = {
		NULL, "pool.large_page=4MiB", "pool.large_page=2MiB"};

	if (tap_one_thread_takes_long())
		tap_skip_all("takes too long here");
	tap_plan_later();
	for (int i = 0; i < 3; i++) {
		goes_in_place(pages[i], false);
		goes_in_place(pages[i], true);
	}
	is_fetched();
	for (int i = 0; i < 3; i++)
		is_undone(pages[i]);
	return tap_done();
}
