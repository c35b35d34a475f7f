/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A GPU whose blocks go to the host in place while it is suspended, and come back, or stay until they
 * are fetched. */
#include "plan_parts.h"

static struct rig rig;
static struct CUstream_st *a, *b;

static void set_up(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
}

static uint64_t placed(const struct held *h)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glk_cache_query(&rig.cache, h->addr + h->size / 2, &block) ||
		block.base != (void *)h->addr || block.away)
		return UINT64_MAX;
	return block.placed;
}

static struct glake_suspended lower(int err)
{
	struct glake_suspended did = {0};

	is_int(glk_cache_suspend(&rig.cache, true, &did), err, "suspended in place");
	is_sound(&rig, "the books agree");
	return did;
}

static struct glake_suspended resume(int err, bool lazy)
{
	struct glake_suspended did = {0};

	is_int(lazy ? glk_cache_resume(&rig.cache, true, &did)
		    : glk_cache_resume(&rig.cache, false, &did),
		err, lazy ? "resumed lazily" : "resumed");
	is_sound(&rig, "the books agree");
	return did;
}

#define MANY 24

/* Of the host. */
#define ROOM "soft.host_memory=512MiB", "tier.host=400MiB"

/* Blocks of all sizes, many of which share pages. */
static uint64_t take_many(struct held *list)
{
	uint64_t bytes = 0;
	int torn = 0;

	for (size_t i = 0; i < MANY; i++) {
		torn += plan_take(&rig, &list[i],
				i % 4 ? (i * 200 + 300) << 10 : 600 * (i + 1),
				i % 3 ? a : b) != 0;
		bytes += list[i].size;
	}
	ok(!torn, "blocks of all sizes");
	return bytes;
}

static int torn_of(const struct held *list)
{
	int torn = 0;

	for (int i = 0; i < MANY; i++)
		torn += list[i].addr && !has_marks(&list[i]);
	return torn;
}

static void drop_many(struct held *list)
{
	int torn = 0;

	for (int i = 0; i < MANY; i++)
		torn += !plan_drop(&rig, &list[i], i % 3 ? a : b);
	ok(!torn, "all have what was written");
	is_sound(&rig, "the books agree");
}

/* All of them go, the small ones too, and the GPU has nothing. */
static void goes_and_comes(bool lazy)
{
	struct glake_suspended did;
	struct held list[MANY], one;
	uint64_t bytes, addr, given;

	set_up((const char *const[]){ROOM, NULL});
	bytes = take_many(list);
	did = lower(0);
	is_int((int64_t)did.moved, (int64_t)bytes, "all bytes went");
	is_int((int64_t)did.moved_blocks, MANY, "of all blocks");
	is_int((int64_t)did.stayed, 0, "none stayed");
	ok(did.released > bytes, "and their pages went to the driver");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "the GPU has nothing");
	is_int((int64_t)rig_figures(&rig).placed, (int64_t)bytes, "all is on the host");
	is_int(torn_of(list), 0, "and may be read there");
	is_int(rig_try(&rig, 600, a, 0, &addr), -EAGAIN, "no request is served");
	is_int(glk_cache_fetch(&rig.cache, list[7].addr, a), -EAGAIN,
		"no block is fetched");
	is_int(glk_cache_quiet(&rig.cache, &(struct glake_returned){0}), -EAGAIN,
		"nor at a quiet point");
	did = lower(0);
	is_int((int64_t)did.moved, 0, "again: nothing is left to do");
	ok(plan_drop(&rig, &list[9], a) && plan_drop(&rig, &list[8], a),
		"blocks are freed");
	is_sound(&rig, "the books agree");
	bytes -= list[9].size + list[8].size;
	did = resume(0, lazy);
	if (!lazy) {
		is_int((int64_t)did.moved, (int64_t)bytes, "all came back");
		is_int((int64_t)did.moved_blocks, MANY - 2, "as blocks");
		is_int((int64_t)did.stayed, 0, "none stayed on the host");
		is_int((int64_t)placed(&list[7]), 0, "nor is one told to be");
	} else {
		is_int((int64_t)did.moved, 0, "none came back");
		is_int((int64_t)did.stayed, (int64_t)bytes, "all are on the host");
		is_int((int64_t)did.stayed_blocks, MANY - 2, "as blocks");
		is_int((int64_t)rig_figures(&rig).reserved, 0, "and the GPU has nothing");
		is_int(plan_take(&rig, &one, 900 << 10, a), 0, "a request is served");
		is_int((int64_t)placed(&one), 0, "by the GPU, though the host has holes");
		ok(plan_drop(&rig, &one, a), "and is freed");
		is_int(glk_cache_spill(&rig.cache, list[7].addr, a), -EALREADY,
			"what is on the host does not go away");
		is_int(glk_cache_fetch(&rig.cache, list[7].addr, b), 0, "one is fetched");
		ok(placed(&list[7]) < list[7].size, "it comes to the GPU");
		ok(has_marks(&list[7]), "as it was");
		is_sound(&rig, "the books agree");
		ok(plan_drop(&rig, &list[11], a), "one is freed where it is");
		is_int(glk_cache_quiet(&rig.cache, &(struct glake_returned){0}), 0,
			"a quiet point");
		is_int((int64_t)rig_figures(&rig).placed, 0, "has all on the GPU");
	}
	drop_many(list);
	is_int(glk_cache_trim(&rig.cache, 0, false, &given), 0, "a trim");
	is_int((int64_t)rig_figures(&rig).host_held, 0, "leaves nothing on the host");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "and nothing on the GPU");
	rig_close(&rig, 0);
}

/* What may not go stays, with what shares its pages; the rest goes, and a contiguous block goes away. */
static void stays(void)
{
	struct held one, two, three, small, single = {.size = 10 * MIB, .mark = 7};
	struct glake_block block = {.sz = sizeof(block)};
	struct glake_suspended did;
	struct glk_pin pin;

	set_up((const char *const[]){ROOM, NULL});
	plan_take(&rig, &one, 20 * MIB, a);
	plan_take(&rig, &two, 30 * MIB, a);
	plan_take(&rig, &three, 3 * MIB, a);
	plan_take(&rig, &small, 5000, a);
	single.addr = rig_single(&rig, single.size, a);
	write_marks(&single);
	is_int(glk_cache_pin(&rig.cache, three.addr, false, &pin), 0, "one is out");
	is_int(glk_cache_advise(&rig.cache, small.addr, GLAKE_ADVICE_PINNED), 0,
		"another is pinned");
	did = lower(0);
	ok(did.stayed >= three.size + small.size && did.stayed < 20 * MIB,
		"they stay, with %zu bytes", (size_t)did.stayed);
	ok(rig_figures(&rig).reserved <= 16 * MIB, "and with few pages");
	is_int((int64_t)placed(&one), (int64_t)one.size, "one went");
	ok(!glk_cache_query(&rig.cache, single.addr, &block) && block.away,
		"a contiguous one is away");
	did = resume(0, true);
	ok(!glk_cache_query(&rig.cache, single.addr, &block) && !block.away &&
			!block.placed && block.pages == 1,
		"and comes back, to one page");
	is_int(glk_cache_pin(&rig.cache, one.addr, false, &pin), 0,
		"a block on the host may be looked at");
	ok(!glk_pin_page(&pin, 0).able, "and its pages leave the process in no way");
	is_int(glk_cache_fetch(&rig.cache, one.addr, a), -EBUSY, "it stays meanwhile");
	is_int(glk_cache_unpin(&rig.cache, one.addr), 0, "until it is let go");
	is_int(glk_cache_advise(&rig.cache, two.addr, GLAKE_ADVICE_PINNED), 0,
		"one is pinned on the host");
	did = lower(0);
	did = resume(0, false);
	is_int((int64_t)did.stayed, (int64_t)two.size, "it stays there");
	is_int((int64_t)placed(&one), 0, "others come");
	is_int(glk_cache_advise(&rig.cache, two.addr, GLAKE_ADVICE_NORMAL), 0, "until");
	is_int(glk_cache_fetch(&rig.cache, two.addr, b), 0, "it may come");
	glk_cache_unpin(&rig.cache, three.addr);
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &two, a) &&
			plan_drop(&rig, &three, b) && plan_drop(&rig, &small, a) &&
			plan_drop(&rig, &single, a),
		"all have what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Too little memory of the host: some go, and a second call, or either end, goes on. */
static void lacks_room(void)
{
	struct glake_suspended did;
	struct held list[MANY];
	uint64_t bytes, moved;

	set_up((const char *const[]){ROOM, NULL});
	bytes = take_many(list);
	glk_store_relaxed(&rig.cache.host->budget, 24 * MIB);
	did = lower(-ENOMEM);
	has_str(rig_error().text, "tier.host", "which is said");
	moved = did.moved;
	ok(moved > 0 && moved < bytes && did.stayed == bytes - moved, "some went");
	is_int(torn_of(list), 0, "and all have what was written");
	did = resume(0, false);
	is_int((int64_t)did.moved, (int64_t)moved, "they come back");
	did = lower(-ENOMEM);
	glk_store_relaxed(&rig.cache.host->budget, UINT64_MAX);
	moved = did.moved;
	did = lower(0);
	is_int((int64_t)(did.moved + moved), (int64_t)bytes, "with room the rest goes");
	glk_store_relaxed(&rig.cache.node->budget, 20 * MIB);
	did = resume(-ENOMEM, false);
	has_str(rig_error().text, "glake_resume_lazy", "a way out is named");
	ok(did.moved > 0, "without room on the GPU some come");
	is_int(torn_of(list), 0, "and all have what was written");
	did = resume(0, true);
	ok(did.stayed > 0, "the rest may stay");
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0,
		"a suspension of the other kind");
	did = resume(0, false);
	ok(did.stayed > 0, "leaves there what the GPU has no room for");
	is_int(torn_of(list), 0, "and all have what was written");
	glk_store_relaxed(&rig.cache.node->budget, UINT64_MAX);
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "one more");
	is_sound(&rig, "the books agree");
	did = resume(0, false);
	is_int((int64_t)did.stayed, 0, "ends with all on the GPU");
	drop_many(list);
	rig_close(&rig, 0);
}

/* More than the GPU has: what cannot lie on the host is back before what can fills it. */
static void whole_ones_first(void)
{
	struct held whole[2], list[20];
	int torn = 0;

	set_up((const char *const[]){ROOM, "tier.place=host", "policy.bins=0", NULL});
	glk_store_relaxed(&rig.cache.node->budget, 64 * MIB);
	for (int i = 0; i < 2; i++) {
		uint64_t addr;

		torn |= rig_try(&rig, 4 * MIB, a, GLAKE_ALLOC_CONTIGUOUS, &addr);
		whole[i] = (struct held){.addr = addr, .size = 4 * MIB};
		write_marks(&whole[i]);
	}
	for (int i = 0; i < 20; i++)
		torn |= plan_take(&rig, &list[i], 4 * MIB, a);
	is_int(torn, 0, "contiguous blocks, and more others than there is room for");
	lower(0);
	resume(0, false);
	is_int((int64_t)rig.cache.away_blocks, 0, "none is away");
	for (int i = 0; i < 20; i++)
		torn += !plan_drop(&rig, &list[i], a);
	ok(!torn && plan_drop(&rig, &whole[0], a) && plan_drop(&rig, &whole[1], a),
		"all have what was written");
	rig_close(&rig, 0);
}

/* What tier.place has put there stays, and what came of it to the GPU goes too. */
static void beside(void)
{
	struct held one, two, three;
	struct glake_suspended did;

	set_up((const char *const[]){ROOM, "tier.place=host", "policy.bins=0", NULL});
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	plan_take(&rig, &one, 40 * MIB, a);
	plan_take(&rig, &two, 30 * MIB, a);
	plan_take(&rig, &three, 20 * MIB, a);
	plan_drop(&rig, &one, a);
	is_int(glk_cache_fetch(&rig.cache, two.addr, a), 0, "a block came to the GPU");
	plan_take(&rig, &one, 18 * MIB, a);
	did = lower(0);
	is_int((int64_t)did.moved, 48 << 20, "it goes with the others");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "and the GPU has nothing");
	did = resume(0, false);
	is_int((int64_t)placed(&one), 0, "one was born on the GPU");
	is_int((int64_t)did.stayed, 18 << 20,
		"of the one that has no room stays what has none");
	is_int((int64_t)placed(&two), 0, "the one that had some is back");
	ok(plan_drop(&rig, &one, a) && plan_drop(&rig, &two, a) &&
			plan_drop(&rig, &three, a),
		"with what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A driver that maps no memory of the host: blocks go away as they would have. */
static void does_without(void)
{
	struct held list[MANY];
	struct glake_suspended did;

	set_up((const char *const[]){ROOM, NULL});
	take_many(list);
	glk_fault_set(rig.drv, "create:from=1:err=EPERM");
	did = lower(0);
	glk_fault_set(rig.drv, "off");
	tap_expect_log(1);
	is_int((int64_t)did.moved_blocks, MANY - MANY / 4,
		"all but the small ones are away");
	is_int((int64_t)rig_figures(&rig).placed, 0, "none is in place");
	did = resume(0, true);
	is_int((int64_t)did.moved_blocks, MANY - MANY / 4, "so they have to come back");
	drop_many(list);
	rig_close(&rig, 0);
}

/* What was freed where it lay on the host gives its addresses back with the next request. */
static void leaves(void)
{
	struct held one;
	uint64_t addr;

	set_up((const char *const[]){ROOM, "policy.bins=0", NULL});
	plan_take(&rig, &one, 24 * MIB, a);
	lower(0);
	resume(0, true);
	ok(plan_drop(&rig, &one, a), "freed where it lies on the host");
	ok(rig.cache.arena.map.hosted > 0, "its pages are in the way");
	glk_lock(&rig.cache.lock);
	is_int(glk_clock_sync_all(&rig.cache.streams), 0, "until its work has passed");
	glk_unlock(&rig.cache.lock);
	addr = rig_alloc(&rig, 2 * MIB, a);
	ok(addr, "a request");
	is_int(rig.cache.arena.map.hosted, 0, "has them leave");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

struct told {
	int moves, open, most;
};

static int hear(const struct glake_move *move, void *arg)
{
	struct told *told = arg;

	told->moves += move->is_over;
	told->open += move->is_over ? -1 : 1;
	if (told->most < told->open)
		told->most = told->open;
	return 0;
}

/* Functions of the program are told of one move after the other, each before and after it. */
static void is_told(void)
{
	struct told told = {0};
	struct held list[4];

	set_up((const char *const[]){ROOM, "policy.bins=0", NULL});
	for (int i = 0; i < 4; i++)
		plan_take(&rig, &list[i], 24 * MIB, a);
	glk_cache_hear(&rig.cache, 0, hear, &told);
	lower(0);
	is_int(told.moves, 4, "four blocks go");
	resume(0, false);
	is_int(told.moves, 8, "and come");
	is_int(told.most, 1, "one after the other");
	is_int(told.open, 0, "and all have ended");
	glk_cache_hear(&rig.cache, 0, NULL, NULL);
	for (int i = 0; i < 4; i++)
		ok(plan_drop(&rig, &list[i], a), "as it was");
	rig_close(&rig, 0);
}

/* Each call of the driver fails once, on the way there or back: nothing is torn, who was told of a move is told of its
 * end, and the next goes through. */
static int fails(const char *call, int nth, bool back, int *torn, bool *struck)
{
	struct glake_suspended did;
	struct told told = {0};
	struct held list[4];
	char rule[64];
	int err;

	set_up((const char *const[]){
		ROOM, "policy.bins=0", "pool.large_page=4MiB", NULL});
	plan_take(&rig, &list[0], 4 * MIB + 512, a);
	plan_take(&rig, &list[1], MIB, a);
	plan_take(&rig, &list[2], 3000, a);
	plan_take(&rig, &list[3], MIB / 2, a);
	snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", call, nth);
	glk_cache_hear(&rig.cache, 0, hear, &told);
	if (back)
		*torn += glk_cache_suspend(&rig.cache, true, &did) != 0;
	glk_fault_set(rig.drv, rule);
	err = back ? glk_cache_resume(&rig.cache, false, &did)
		   : glk_cache_suspend(&rig.cache, true, &did);
	*struck = rig_struck(&rig);
	glk_fault_set(rig.drv, "off");
	if (!rig_is_sound(&rig) || told.open) {
		tap_note("%s, %d: %d are on their way", call, nth, told.open);
		*torn += 1;
	}
	for (int i = 0; i < 4; i++)
		*torn += !has_marks(&list[i]);
	if (!back)
		*torn += glk_cache_suspend(&rig.cache, true, &did) != 0;
	if (glk_load_relaxed(&rig.cache.suspended))
		*torn += glk_cache_resume(&rig.cache, false, &did) != 0;
	*torn += did.stayed > 0 || !rig_is_sound(&rig);
	glk_cache_hear(&rig.cache, 0, NULL, NULL);
	for (int i = 0; i < 4; i++)
		*torn += !plan_drop(&rig, &list[i], a);
	*torn += !rig_is_sound(&rig);
	return err;
}

static void every_call_fails(void)
{
	static const char *const calls[] = {"copy", "event_new", "event_record",
		"event_sync", "stream_wait", "stream_new", "device_sync", "create", "map",
		"set_access", "unmap", "release", "reserve"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		int failed = 0, torn = 0, most = tap_storms_take_long() ? 1 : 3;

		for (int back = 0; back < 2; back++) {
			bool struck = true;

			for (int nth = 1; nth <= most && struck; nth++) {
				failed += fails(calls[i], nth, back, &torn, &struck) != 0;
				rig_close(&rig, 0);
				tap_expect_log(tap.logs - tap.expected);
			}
		}
		ok(!torn, "%s fails, %d times with an answer", calls[i], failed);
	}
}

int main(void)
{
	tap_plan_later();
	goes_and_comes(false);
	goes_and_comes(true);
	stays();
	lacks_room();
	whole_ones_first();
	beside();
	does_without();
	is_told();
	leaves();
	every_call_fails();
	return tap_done();
}
