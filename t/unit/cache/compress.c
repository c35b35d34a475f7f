/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that rest are made smaller, and come back as they were: tier.compress. */
#include "move/away.h"
#include "tier/lz4.h"

#include "sent_parts.h"

#include <string.h>

static void set_up(const char *setting, const char *other)
{
	rig_open(&rig,
		(const char *const[]){"tier.compress=lz4", "tier.compress_rest=0s",
			"soft.host_memory=1GiB", setting, other, NULL});
	a = rig_stream(&rig);
}

enum kind { ALIKE, NOISE, MIXED, KINDS };

/* Noise, where a content has some, comes from its number. */
static uint64_t word_of(enum kind kind, uint64_t number, size_t at)
{
	uint64_t noise = (number + at) * UINT64_C(0x9e3779b97f4a7c15);

	noise = (noise ^ noise >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	if (kind == MIXED)
		kind = at / (MIB + 4096) % 2 ? NOISE : ALIKE;
	return kind == NOISE ? noise ^ noise >> 32 : number + (at >> 16);
}

struct content {
	uint64_t addr, number;
	size_t size;
	enum kind kind;
};

static uint64_t numbers;

static int take(struct content *c, size_t size, enum kind kind)
{
	int err;

	*c = (struct content){.size = size, .kind = kind, .number = ++numbers << 40};
	err = rig_try(&rig, size, a, 0, &c->addr);
	for (size_t at = 0; !err && at + 8 <= size; at += 8)
		*(uint64_t *)(c->addr + at) = word_of(kind, c->number, at);
	return err;
}

/* A word in each 248 bytes, so that all places in a page are met. */
static bool holds(const struct content *c)
{
	for (size_t at = 0; at + 8 <= c->size; at += 248) {
		if (*(uint64_t *)(c->addr + at) != word_of(c->kind, c->number, at))
			return false;
	}
	return true;
}

static int spill(const struct content *c)
{
	return spill_at(c->addr);
}

static int fetch(const struct content *c)
{
	return fetch_at(c->addr);
}

static bool drop(struct content *c)
{
	bool same = holds(c);
	int err = rig_free(&rig, c->addr, a);

	c->addr = 0;
	return same && !err;
}

static void gets_smaller(void)
{
	size_t sizes[] = {300 << 10, 5 * MIB, 70 * MIB + 512, 4 * MIB, 17 * MIB};
	struct glake_stats s;
	uint64_t given;

	for (int kind = 0; kind < KINDS; kind++) {
		struct content c[5];
		uint64_t sum = 0;
		int torn = 0;

		/* more than the landing has, once */
		if (kind != ALIKE)
			sizes[2] = 9 * MIB + 512;
		set_up(NULL, NULL);
		for (int i = 0; i < 5; i++) {
			torn += take(&c[i], sizes[i], (enum kind)kind) || spill(&c[i]);
			sum += sizes[i];
		}
		settle();
		s = rig_figures(&rig);
		if (kind == NOISE) {
			ok(!s.packed && s.store_used >= sum, "noise stays as it is");
		} else if (kind == ALIKE) {
			ok(s.packed == sum && !s.store_used,
				"all that is alike is packed");
			ok(s.packed_held < sum / 20, "and is small: %llu of %llu",
				(unsigned long long)s.packed_held,
				(unsigned long long)sum);
			ok(!s.store && s.host_held == s.packed_held + GLK_PACK_LAND,
				"what was locked has gone back to the system");
		} else {
			ok(s.packed && s.packed_held < s.packed * 7 / 8,
				"where the half of it is alike it shrinks: %llu of %llu",
				(unsigned long long)s.packed_held,
				(unsigned long long)s.packed);
		}
		is_sound(&rig, "the books agree");
		for (int i = 0; i < 5; i++)
			torn += fetch(&c[i]) || !drop(&c[i]);
		ok(!torn, "it comes back as it was");
		settle();
		s = rig_figures(&rig);
		ok(!s.packed && !s.packed_held && !s.store_used, "nothing is kept");
		glk_cache_trim(&rig.cache, 0, false, &given);
		is_int((int64_t)rig_figures(&rig).host_held, 0, "nor held after a trim");
		is_sound(&rig, "the books agree");
		rig_close(&rig, 0);
	}
}

/* Small blocks of a tag are one content. */
static void with_a_tag(void)
{
	struct glake_suspended did;
	struct content c[30];
	int torn = 0;

	set_up(NULL, NULL);
	if (glk_cache_tag_open(&rig.cache, 0x101) || glk_seat_set_tag(&rig.cache, 0x101))
		tap_bail("no tag");
	glk_seat_leave(&rig.cache);
	for (int i = 0; i < 30; i++)
		torn += take(&c[i], (size_t)3000 + (size_t)i * 2048, ALIKE);
	glk_seat_set_tag(&rig.cache, 0);
	torn += glk_cache_tag_suspend(&rig.cache, 0x101, 0, &did);
	settle();
	ok(!torn && rig_figures(&rig).packed == 2 * MIB,
		"small blocks of a tag are packed");
	torn += glk_cache_tag_resume(&rig.cache, 0x101, &did);
	for (int i = 0; i < 30; i++)
		torn += !drop(&c[i]);
	ok(!torn, "and come back");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static uint32_t first_run(const struct content *c)
{
	const struct glk_range *range = glk_cache_range(&rig.cache, c->addr);

	return first_run_of(glk_arena_of(range),
		glk_extent_at(range->map, glk_lookup_first(range, c->addr)));
}

/* What is packed and is not what it was. */
static void is_verified(const char *verify, const char *what)
{
	struct content c;
	struct glk_packed *packed;
	uint32_t sizes, run;
	int torn = 0, units = 0;

	set_up(verify, NULL);
	torn += take(&c, 20 * MIB, ALIKE) || spill(&c);
	settle();
	torn += fetch(&c) || !holds(&c);
	torn += spill(&c);
	settle();
	packed = glk_store_at(&rig.cache.mover.store, first_run(&c))->packed;
	ok(!torn && packed, "a content comes and goes, and is packed");
	for (run = first_run(&c); run;
		run = glk_store_at(&rig.cache.mover.store, run)->next)
		units++;
	is_int(units, 5, "in units of 4 MiB, behind which there is nothing");
	memcpy(&sizes, packed->data, sizeof(sizes));
	memset(packed->data, 0xff, sizeof(sizes));
	is_int(fetch(&c), -EIO, what);
	is_int(rig_error().error_class, GLAKE_ERROR_CORRUPT, "  its class");
	tap_expect_log(tap.logs - tap.expected);
	memcpy(packed->data, &sizes, sizeof(sizes));
	is_int(fetch(&c), 0, "what it was does");
	ok(drop(&c), "as it was");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Without room for the way back, or for what is packed, all stays as it is. */
static void without_room(void)
{
	struct content c;

	set_up("tier.host=64MiB", NULL);
	ok(!take(&c, 40 * MIB, ALIKE) && !spill(&c), "all of tier.host is in use");
	settle();
	is_int((int64_t)rig_figures(&rig).packed, 0, "there is no room for the way back");
	ok(!fetch(&c) && drop(&c), "what is as it was comes");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);

	set_up("tier.host=128MiB", NULL);
	ok(!take(&c, 40 * MIB, ALIKE) && !spill(&c), "with 64 MiB more");
	settle();
	is_int((int64_t)rig_figures(&rig).packed, 0, "there is none for what is packed");
	ok(!fetch(&c) && drop(&c), "what is as it was comes");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void every_call_fails(void)
{
	static const char *const calls[] = {"copy", "host_lock", "event_record",
		"event_new", "stream_wait", "event_sync", "device_sync", "host_unlock"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		int failed = 0, torn = 0;
		bool struck = true;

		for (int nth = 1; nth < (tap_storms_take_long() ? 2 : 10) && struck;
			nth++) {
			struct content c, d;
			char rule[64];

			set_up(NULL, NULL);
			torn += take(&c, 5 * MIB, MIXED) || take(&d, 3 * MIB, ALIKE);
			snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", calls[i], nth);
			torn += glk_fault_set(rig.drv, rule) != 0;
			failed += spill(&c) != 0;
			failed += spill(&d) != 0;
			settle();
			torn += !rig_is_sound(&rig);
			failed += fetch(&c) != 0;
			failed += fetch(&d) != 0;
			struck = rig_struck(&rig);
			glk_fault_set(rig.drv, "off");
			for (int k = 0; k < 2; k++) {
				int err = fetch(k ? &c : &d);

				torn += err && err != -EALREADY;
			}
			torn += !rig_is_sound(&rig);
			torn += !drop(&c) || !drop(&d);
			rig_close(&rig, 0);
			tap_expect_log(tap.logs - tap.expected);
		}
		ok(!torn, "%s fails, %d times with an answer", calls[i], failed);
	}
}

/* Memory of the library cannot be had, at each point. */
static void no_memory(void)
{
	int torn = 0, refused = 0;

	for (int nth = 1; nth < 12; nth++) {
		struct content c;

		set_up("tier.verify=no", NULL);
		torn += take(&c, 6 * MIB, ALIKE) != 0;
		glk_region_fail_after((uint32_t)nth);
		refused += spill(&c) != 0;
		if (rig.cache.mover.store.pack)
			settle();
		glk_region_fail_after(0);
		torn += fetch(&c) && fetch(&c) != -EALREADY;
		torn += !drop(&c) || !rig_is_sound(&rig);
		rig_close(&rig, 0);
		tap_expect_log(tap.logs - tap.expected);
	}
	ok(!torn && refused, "without memory: %d times refused, and nothing lost",
		refused);
}

/* In the order of streams that somebody steps: what has not gone is not packed. */
static void goes_in_order(void)
{
	struct content c;
	int torn = 0;

	set_up("soft.streams=stepped", NULL);
	torn += take(&c, 12 * MIB, ALIKE);
	rig_work(&rig, c.addr, c.size, a);
	torn += spill(&c);
	nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
	is_int((int64_t)rig_figures(&rig).packed, 0, "its copy is under way");
	is_int(fetch(&c), 0, "it is fetched");
	is_int(spill(&c), 0, "and sent again");
	glk_soft_run_all(rig.drv);
	settle();
	is_int((int64_t)rig_figures(&rig).packed, 12 << 20, "its copy has ended");
	torn += fetch(&c);
	glk_soft_run_all(rig.drv);
	ok(!torn, "it is back");
	is_sound(&rig, "the books agree");
	torn += rig_free(&rig, c.addr, a);
	rig_close(&rig, 0);
}

/* A trim while that is made which brings packed contents back: the thread sanitizer sees who looks at it. */
static void meets_trims(void)
{
	struct content c;
	uint64_t unused;
	int torn = 0;

	set_up(NULL, NULL);
	torn += take(&c, 3 * MIB, ALIKE);
	glk_fault_set(rig.drv, "event_new:from=1:delay=3000");
	torn += spill(&c);
	for (int i = 0; i < 60000 && !rig_figures(&rig).packed; i++)
		torn += glk_cache_trim(&rig.cache, 0, false, &unused) != 0;
	glk_fault_set(rig.drv, "off");
	settle();
	torn += fetch(&c) || !drop(&c);
	ok(!torn, "a content is packed and comes back while trims come and go");
	rig_close(&rig, 0);
}

#ifndef GLK_LZ4
/* A library without what compresses says so where the key is read. */
static void is_missing(void)
{
	static const char *const settings[] = {"tier.compress=lz4", NULL};
	struct glake_options options = {
		.sz = sizeof(options), .no_conf_file = 1, .settings = settings};
	struct glk_conf conf;

	tap_expect_log(1);
	is_int(glk_conf_read(&options, NULL, NULL, &conf), -EOPNOTSUPP,
		"a library without lz4.h refuses the key");
}
#endif

int main(void)
{
	tap_plan_later();
#ifndef GLK_LZ4
	is_missing();
#endif
	if (glk_pack_able()) {
		tap_skip("contents get smaller", "the library has no lz4");
		return tap_done();
	}
	gets_smaller();
	every_call_fails();
	goes_in_order();
	meets_trims();
	/* in the others there is less for the thread that packs than in these */
	if (tap_one_thread_takes_long())
		return tap_done();
	with_a_tag();
	is_verified("tier.verify=no", "what is packed tells that it changed");
#ifdef GLK_XXHASH
	is_verified("tier.verify=yes", "and so does who verifies");
#endif
	without_room();
	no_memory();
	return tap_done();
}
