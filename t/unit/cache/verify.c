/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that changed while they were away are not had back: tier.verify. */
#include "move/away.h"

#include "plan_parts.h"

static struct rig rig;
static struct CUstream_st *a;

static void set_up(const char *verify)
{
	rig_open(&rig, (const char *const[]){"soft.host_memory=256MiB", verify, NULL});
	a = rig_stream(&rig);
}

/* A byte of what is kept, with the GPU at rest. */
static void spoil(uint32_t run, uint64_t at)
{
	struct glk_store *store = &rig.cache.mover.store;

	while (at >= glk_store_at(store, run)->chunks * GLK_STORE_CHUNK) {
		at -= glk_store_at(store, run)->chunks * GLK_STORE_CHUNK;
		run = glk_store_at(store, run)->next;
	}
	store->piece[glk_store_at(store, run)->piece]
		.base[glk_store_at(store, run)->first * GLK_STORE_CHUNK + at] ^= 4;
}

/* Where a block that is away is kept. */
static uint32_t first_run(const struct held *h)
{
	const struct glk_range *range = glk_cache_range(&rig.cache, h->addr);
	const struct glk_extent *e =
		glk_extent_at(range->map, glk_lookup_first(range, h->addr));

	return first_run_of(glk_arena_of(range), e);
}

static void finds_a_bit(void)
{
	const size_t sizes[] = {300 << 10, 5 * MIB, (70 * MIB) + 512};
	int torn = 0, missed = 0;
	uint64_t looked = 0, sound = 0;

	set_up("tier.verify=yes");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		const uint64_t at[] = {0, sizes[i] / 2, sizes[i] - 1};
		struct held h;

		torn += plan_take(&rig, &h, sizes[i], a) != 0;
		for (size_t k = 0; k < 3; k++) {
			uint32_t run;

			torn += glk_cache_spill(&rig.cache, h.addr, a) != 0;
			torn += glk_cache_fetch(&rig.cache, h.addr, a) || !has_marks(&h);
			torn += glk_cache_spill(&rig.cache, h.addr, a) != 0;
			run = first_run(&h);
			missed += glk_cache_check_away(&rig.cache, &looked) != 0;
			sound++;
			spoil(run, at[k]);
			missed += glk_cache_check_away(&rig.cache, &looked) != -EIO;
			missed += glk_cache_fetch(&rig.cache, h.addr, a) != -EIO;
			missed += rig_error().error_class != GLAKE_ERROR_CORRUPT;
			spoil(run, at[k]);
			torn += glk_cache_fetch(&rig.cache, h.addr, a) || !has_marks(&h);
		}
		torn += !plan_drop(&rig, &h, a);
	}
	ok(!missed, "a bit that changed is found, wherever it lies");
	is_int((int64_t)looked, (int64_t)sound, "what is as it was is counted");
	tap_expect_log(9);
	ok(!torn, "and what did not change comes back");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* One that cannot be had is freed, and a suspension ends then. */
static void is_freed(void)
{
	struct glake_suspended did;
	struct held one, two;

	set_up("tier.verify=yes");
	plan_take(&rig, &one, 9 * MIB, a);
	plan_take(&rig, &two, 9 * MIB, a);
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "a GPU is suspended");
	spoil(first_run(&one), 77);
	is_int(glk_cache_resume(&rig.cache, false, &did), -EIO,
		"what changed does not come back");
	tap_expect_log(1);
	is_int(rig_free(&rig, one.addr, a), 0, "it is freed");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "and the others come");
	ok(plan_drop(&rig, &two, a), "whole");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Small blocks of a tag share what is kept: a bit of it, and none of them comes. */
static void finds_small(void)
{
	struct glake_suspended did;
	struct held one, two;
	uint32_t run;

	set_up("tier.verify=yes");
	if (glk_cache_tag_open(&rig.cache, 0x101) || glk_seat_set_tag(&rig.cache, 0x101))
		tap_bail("no tag");
	glk_seat_leave(&rig.cache);
	plan_take(&rig, &one, 5000, a);
	plan_take(&rig, &two, 100 << 10, a);
	glk_seat_set_tag(&rig.cache, 0);
	is_int(glk_cache_tag_suspend(&rig.cache, 0x101, 0, &did), 0,
		"a tag is suspended");
	is_int((int64_t)did.moved_blocks, 2, "with two small blocks");
	run = first_run(&two);
	spoil(run, two.addr % (2 * MIB) + 70000);
	is_int(glk_cache_tag_resume(&rig.cache, 0x101, &did), -EIO,
		"what changed does not come back");
	is_int(rig_error().error_class, GLAKE_ERROR_CORRUPT, "  its class");
	tap_expect_log(1);
	is_sound(&rig, "the books agree");
	spoil(run, two.addr % (2 * MIB) + 70000);
	is_int(glk_cache_tag_resume(&rig.cache, 0x101, &did), 0, "what it was does");
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &two, a), "whole");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void is_off(void)
{
	struct held h;

	set_up("tier.verify=no");
	plan_take(&rig, &h, 9 * MIB, a);
	glk_cache_spill(&rig.cache, h.addr, a);
	rig.drv->ops->device_sync(rig.drv, 0);
	spoil(first_run(&h), 0);
	is_int(glk_cache_fetch(&rig.cache, h.addr, a), 0, "nothing is looked at unasked");
	rig_free(&rig, h.addr, a);
	rig_close(&rig, 0);
}

/* A library without what hashes says so where the key is read. */
static void is_missing(void)
{
	static const char *const settings[] = {"tier.verify=yes", NULL};
	struct glake_options options = {
		.sz = sizeof(options), .no_conf_file = 1, .settings = settings};
	struct glk_conf conf;

	tap_expect_log(1);
	is_int(glk_conf_read(&options, NULL, NULL, &conf), -EOPNOTSUPP,
		"a library without xxhash.h refuses the key");
}

int main(void)
{
	tap_plan_later();
	if (tap_has_xxhash()) {
		finds_small();
		if (tap_one_thread_takes_long())
			return tap_done();
		finds_a_bit();
		is_freed();
		tap_skip("a library without xxhash.h refuses the key", "this one has it");
	} else {
		is_missing();
		tap_skip("what changed is found",
			"the library was built without xxhash.h");
	}
	is_off();
	return tap_done();
}
