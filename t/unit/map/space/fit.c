/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which place a request gets: each criterion decides once where all before it are equal, then
 * vetoes, places that are asked about, and the places above the high-water mark.
 *
 * Slots are given by their bits alone, and waits by a table of this test.
 */
#include "unit/map/space/fit_parts.h"

static void test_criteria(void)
{
	start("AbbCdddE");
	slots("usuuuuuu");
	waits[4] = waits[5] = waits[6] = 2;
	found(2, 4, COUNTS(.waits = 4), "fewest maps, before waits and size");
	stop();

	start("AbbCddE");
	slots("uuuusuu");
	slots("uuuu");
	waits[1] = 1;
	found(2, 1, COUNTS(.waits = 1), "fewest maps, though it waits");
	stop();

	start("AbbCddEffG");
	slots("uuuuuuuuuu");
	waits[1] = 3;
	waits[4] = 1;
	waits[7] = 2;
	found(2, 4, COUNTS(.waits = 1), "fewest waits, before the lowest address");
	stop();

	start("AbbCddEffG");
	slots("uuuuuuuuuu");
	waits[1] = waits[2] = waits[4] = waits[8] = 1;
	late[4] = late[8] = true;
	found(2, 1, COUNTS(.waits = 2), "no late wait, before fewer waits");
	stop();

	start("AbbCddEffG");
	slots("uuuuuuuuuu");
	waits[1] = waits[4] = waits[5] = waits[7] = 1;
	waits[2] = 2;
	late[1] = late[4] = late[7] = true;
	found(2, 7, COUNTS(.late = true, .waits = 1), "of late ones the fewest waits");
	stop();

	start("AbbCddE");
	slots("uuuusuu");
	slots("uuuu");
	waits[1] = 1;
	late[1] = true;
	found(2, 1, COUNTS(.late = true, .waits = 1),
		"fewest maps, though it waits for all");
	stop();

	/* with no usable slot anywhere, new addresses cost as much as the best of them */
	start("AbbCddEffG");
	slots("-ss--s");
	found(2, 7, COUNTS(.maps = 2),
		"fewest stale mappings, before the lowest address");
	stop();

	start("AbbbCddEffG");
	slots("uuuuuuuuuuu");
	found(2, 5, COUNTS(0), "the smallest extent, before the lowest address");
	stop();

	start("AbbCddEffG");
	slots("uuuuuuuuuu");
	found(2, 1, COUNTS(0), "the lowest address at last");
	is_int(asked, 1, "which is known after one question");
	stop();

	start("AbbbbC");
	slots("u--uuu");
	found(2, 3, COUNTS(0), "the high end of an extent");
	stop();
	start("AbbbbC");
	slots("uuu--u");
	found(2, 1, COUNTS(0), "the low end of an extent");
	stop();
	start("AbbbbC");
	slots("u-uu-u");
	found(2, 1, COUNTS(.maps = 1), "not its middle");
	stop();
	start("AbbbC");
	slots("u-u-b");
	found(2, 1, COUNTS(.maps = 1), "its low end, whatever lies behind the other");
	stop();
}

static void test_new(void)
{
	start("AbbC");
	slots("u");
	found(2, 1, COUNTS(.maps = 2), "a hole before new addresses that cost the same");
	stop();
	start("AbbC");
	slots("us");
	found(2, 4, COUNTS(.maps = 2), "new addresses before a stale mapping");
	stop();
	start("AbbbC");
	slots("u");
	found(2, 1, COUNTS(.maps = 2), "a larger hole before them too");
	stop();
	start("AbbbC");
	slots("uu");
	found(2, 1, COUNTS(.maps = 1), "unless it saves a map");
	stop();
	start("Abb");
	slots("uuu");
	found(4, 1, COUNTS(.maps = 2), "beginning with the free extent at the end");
	stop();
	start("");
	found(2, 0, COUNTS(.maps = 2), "the first block of a map");
	stop();
	start("Abb");
	slots("uuu");
	found(2, 1, COUNTS(0), "the free extent at the end, if it is enough");
	stop();
}

/* Four slots are in use, and 8 times the memory held is the most that may be. */
static void wide(uint64_t held, uint64_t wait, uint32_t n, uint32_t want,
	struct glk_fit counts, const char *what)
{
	start("AbbC");
	slots("us");
	waits[1] = (uint32_t)wait;
	glk_store_relaxed(&rig.map.node->held, held);
	found(n, want, counts, what);
	stop();
}

static void test_wide(void)
{
	wide(S(4) / 8, 0, 2, 4, COUNTS(.maps = 2), "new addresses while they are few");
	wide(S(4) / 8 - 1, 0, 2, 1, COUNTS(.maps = 2, .stale = 1),
		"else a stale mapping");
	wide(S(4) / 8 - 1, 0, 3, 4, COUNTS(.maps = 3), "unless no hole will do");
	wide(S(4) / 8 - 1, 1, 2, 4, COUNTS(.maps = 2), "or it would be waited for");

	holes = true;
	wide(S(4) / 8, 0, 2, 1, COUNTS(.maps = 2, .stale = 1),
		"a hole at once where that is wanted");
	holes = true;
	wide(S(4) / 8, 1, 2, 1, COUNTS(.maps = 2, .waits = 1, .stale = 1),
		"though it is waited for");
	holes = true;
	wide(S(4) / 8, 0, 3, 4, COUNTS(.maps = 3), "unless none will do");

	start("AbbbCdd");
	slots("usssuuu");
	holes = true;
	found(3, 5, COUNTS(.maps = 1), "or the last one has less to map");
	stop();
}

/* One more extent, from slot 1 up to the middle of a slot. */
static void up_to(uint64_t high, bool freed)
{
	uint32_t id;

	if (glk_extent_carve(&rig.map, 0, S(1), high - S(1), &id))
		tap_bail("no addresses");
	if (freed)
		glk_extent_give_back(&rig.map, id);
}

static void test_veto(void)
{
	start("AbbCddE");
	slots("uuuuuuu");
	veto[2] = true;
	found(2, 4, COUNTS(0), "the next best");
	stop();
	start("AbbbC");
	slots("uuuuu");
	veto[1] = true;
	found(2, 2, COUNTS(0), "the other end");
	stop();
	start("AbbbC");
	slots("uuuuu");
	veto[2] = true;
	found(2, 5, COUNTS(.maps = 2), "new addresses, when all holes are vetoed");
	stop();
	start("Abb");
	slots("uus");
	veto[2] = true;
	found(4, 3, COUNTS(.maps = 4),
		"the mark, when the extent that ends there is vetoed");
	stop();
	start("A");
	up_to(S(5) / 2, true);
	veto[1] = true;
	ok(search(S(2)).offset == S(5) / 2, "the mark, though it divides a slot");
	stop();
	start("A");
	up_to(S(3) / 2, false);
	veto[1] = true;
	found(1, 2, COUNTS(.maps = 1), "the slot nobody ever used");
	stop();
	start("Ab");
	memset(veto, 1, sizeof(veto));
	ok(search(S(1)).offset == UINT64_MAX, "all is vetoed");
	is_int(fake_class(), 0, "without a record");
	stop();
}

/* A place that has lost already is not asked about. */
static void test_asked(void)
{
	start("AbbCddEffG");
	slots("u--uuuu--u");
	waits[4] = 1;
	search(S(2));
	is_int(asked, 2,
		"two holes asked about, one with more maps and new addresses not");
	stop();
	start("AbbbC");
	slots("uuuuu");
	waits[1] = waits[3] = 1;
	search(S(2));
	is_int(asked, 2, "both ends, and new addresses only by their maps");
	stop();
}

/* More holes than are looked at: those beyond are not found, new addresses are. */
static void test_candidates(void)
{
	struct glk_extent *e;
	struct glk_fit fit;
	uint32_t id[2 * GLK_FIT_CANDIDATES + 4];
	uint32_t n = 2 * GLK_FIT_CANDIDATES + 4;

	rig_init(&rig);
	memset(waits, 0, sizeof(waits));
	memset(veto, 0, sizeof(veto));
	for (uint32_t i = 0; i < n; i++) {
		if (glk_extent_carve(&rig.map, 0, S(i), S(1), &id[i]))
			tap_bail("no addresses");
	}
	for (uint32_t i = 0; i < n; i += 2)
		glk_extent_give_back(&rig.map, id[i]);
	e = glk_extent_at(&rig.map, id[2 * GLK_FIT_CANDIDATES - 2]);
	glk_bit_set(rig.map.usable, glk_slot_of(&rig.map, e->offset));
	fit = search(S(1));
	ok(fit.offset == e->offset && !fit.maps, "the last extent that is looked at");
	glk_bit_clear(rig.map.usable, glk_slot_of(&rig.map, e->offset));
	glk_bit_set(rig.map.usable, 2 * GLK_FIT_CANDIDATES);
	fit = search(S(1));
	ok(fit.offset == 0 && fit.maps == 1, "the one after it is not");
	stop();
}

static void test_full(void)
{
	struct glk_fit fit = {.offset = 7};
	uint32_t id;
	uint64_t size;

	start("");
	size = rig.map.size;
	is_int(search_for(size + 512, &fit), -ENOMEM, "larger than the range");
	is_int(search_for(UINT64_MAX - 511, &fit), -ENOMEM, "sums do not wrap");
	is_int(search_for(size, &fit), 0, "the whole range");
	ok(fit.offset == 0 && fit.from == 0, "from its base");
	if (glk_extent_carve(&rig.map, 0, 0, size - 512, &id))
		tap_bail("no addresses");
	fit.offset = 7;
	is_int(search_for(1024, &fit), -ENOMEM, "a grain too few");
	ok(fit.offset == 7, "no place is given");
	is_int(fake_class(), 0, "without a record");
	is_int(search_for(512, &fit), 0, "the last grain");
	ok(fit.offset == size - 512, "at the end");
	if (glk_extent_carve(&rig.map, 0, size - 512, 512, &id))
		tap_bail("no addresses");
	is_int(search_for(512, &fit), -ENOMEM, "and then none");
	glk_extent_give_back(&rig.map, id);
	is_int(search_for(512, &fit), 0, "until it is freed");
	is_int(fit.from, id, "the free extent");
	is_int(search_for(1024, &fit), -ENOMEM, "of one grain");
	stop();
}

/* A slot that is in use already counts a quarter of one to be mapped. */
static void test_busy(void)
{
	start("AbbbCdddE");
	slots("u-uuu-bbu");
	found(3, 5, COUNTS(.maps = 1), "the place that puts fewer slots to use");
	stop();
	start("AbbbbCddddE");
	slots("ubbb-u--uuu");
	found(4, 1, COUNTS(.maps = 1), "a map saved before that");
	stop();
	start("AbbbCdddE");
	slots("uuuuubbbu");
	found(3, 1, COUNTS(0), "which does not count where nothing is to be mapped");
	stop();
}

/* One end of an extent alone, where the configuration says so. */
static void test_ends(void)
{
	start("AbbbbC");
	slots("u--uuu");
	rig.map.ends = GLK_POLICY_ENDS_LOW;
	found(2, 1, COUNTS(.maps = 2), "the low end");
	stop();
	start("AbbbbC");
	slots("uuu--u");
	rig.map.ends = GLK_POLICY_ENDS_HIGH;
	found(2, 3, COUNTS(.maps = 2), "the high end");
	stop();
}

/* Many holes that are large enough and begin beside a slot hide none that holds a whole one. */
static void test_hidden(void)
{
	uint32_t id[41], n;
	struct glk_fit fit;

	start("");
	if (glk_extent_carve(&rig.map, 0, 0, MIB(1), &id[0]))
		tap_bail("no addresses");
	/* 2 MiB each from the middle of a slot on, of which every second one is free */
	for (n = 0; n < 40; n++) {
		if (glk_extent_carve(&rig.map, 0, MIB(1) + n * MIB(4), MIB(2), &id[n]) ||
			glk_extent_carve(
				&rig.map, 0, MIB(3) + n * MIB(4), MIB(2), &id[40]))
			tap_bail("no addresses");
		glk_extent_give_back(&rig.map, id[n]);
	}
	glk_extent_raise(&rig.map, S(100));
	if (glk_extent_carve(&rig.map, 0, S(100), GIB(4) - S(100), &id[40]))
		tap_bail("no addresses");
	kind = GLK_FIT_WHOLE;
	fit = search(S(1));
	ok(fit.offset == S(81) && fit.from,
		"a whole slot is found behind 40 halves of two");
	kind = GLK_FIT_NEST;
	ok(search(S(1)).offset == S(81), "for small blocks, too");
	kind = GLK_FIT_WHOLE;
	ok(search(S(19)).offset == S(81), "as many as there are");
	ok(search(S(20)).offset == UINT64_MAX, "and no more");
	stop();
}

/* Pages that are mapped above the mark. */
static void test_ahead(void)
{
	struct glk_want want = {.size = S(2), .fn = check, .arg = &rig};
	struct glk_fit fit;

	start("AbbC");
	slots("u---uuuu");
	fit = search(S(2));
	is_int(fit.maps, 2, "a hole without pages");
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 0, "none are ahead");
	rig.map.ahead = 8;
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 2, "two slots fewer to map");
	ok(fit.offset == S(4) && !fit.maps && !fit.from, "at the mark");
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 0, "there is none better");
	stop();
	start("Abb");
	slots("u--uuuu");
	rig.map.ahead = 7;
	want.size = S(3);
	fit = search(S(3));
	ok(fit.offset == S(1) && fit.maps == 3,
		"beginning with a free extent that has no pages");
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 3, "behind it there are");
	is_int((int64_t)fit.offset, (int64_t)S(3), "at the mark");
	stop();
	start("Abb");
	slots("u--uuuu");
	rig.map.ahead = 3;
	fit = search(S(3));
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 0,
		"pages below the mark are not ahead");
	stop();
}

/* Where memory is packed the smallest few are compared, and the smallest one is taken where places are tight. */
static void test_packed(void)
{
	static const char *const row = "AbbCddEffGhhIjjjK";

	for (int i = 0; i < 3; i++) {
		static const uint32_t place[] = {13, 4, 1}, count[] = {0, 1, 4};
		static const char *const what[] = {"the fewest waits of all",
			"where memory is packed, of the smallest few",
			"where places are tight, whatever the smallest waits for"};

		start(row);
		slots("uuuuuuuuuuuuuuuuu");
		rig.map.packs = i > 0;
		rig.map.tight = i > 1;
		waits[1] = waits[2] = waits[7] = waits[10] = 2;
		waits[4] = 1;
		found(2, place[i], COUNTS(.waits = count[i]), what[i]);
		stop();
	}
}

/* Nests of an eighth of a slot, in slots that are in use too. */
static void test_eighths(void)
{
	uint64_t eighth;
	struct glk_fit fit;
	uint32_t id;

	start("AbC");
	slots("uuu");
	eighth = glk_map_small(&rig.map);
	kind = GLK_FIT_NEST;
	if (glk_extent_carve(&rig.map, glk_extent_at(&rig.map, rig.map.last)->prev, S(1),
		    512, &id))
		tap_bail("no addresses");
	glk_bit_set(rig.map.busy, 1);
	fit = search(eighth);
	ok(fit.offset == S(1) + eighth && !fit.maps, "begins where an eighth does");
	is_int((int64_t)search(S(1)).offset, (int64_t)S(3), "a whole slot is not left");
	stop();
}

int main(void)
{
	tap_plan_later();
	test_criteria();
	test_packed();
	test_eighths();
	test_new();
	test_wide();
	test_veto();
	test_asked();
	test_candidates();
	test_full();
	test_busy();
	test_ends();
	test_ahead();
	test_hidden();
	return tap_done();
}
