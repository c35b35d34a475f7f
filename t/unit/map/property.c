/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random requests against a map, as the cache makes them: blocks of all sizes, pages of several
 * sizes taken from wherever they lie, mappings and pages taken away, driver calls that fail.
 * Every few steps all tables are compared with a model (model.h).
 *
 * GLAKE_TEST_SEED repeats a run, GLAKE_TEST_STEPS makes it longer.
 */
#include "unit/map/model.h"

#define STEPS  STORM_SIZE(20000)		   /* a round */
#define CHECK  (tap_storms_take_long() ? 256 : 32) /* steps between two comparisons */
#define FAULTS 10 /* steps between two driver calls that fail */

static struct rig rig;
static struct model model;
static uint64_t state, hash;
static int expected_logs;
static struct {
	uint64_t blocks, refused, freed, released, kept, nests;
} did;

static uint64_t below(uint64_t n)
{
	return seed_below(&state, n);
}

/* How a round goes. */
struct round {
	const char *what;
	uint64_t step_size; /* bytes of a range */
	bool faults;
	bool crowd; /* most blocks are of a few slots, and end inside them */
	/* slots of pages, eight; the fourth is that of large ones */
	const uint32_t *sizes;
};

static const uint32_t mixed[8] = {1, 1, 4, 4, 4, 7, 64, 64};
static const uint32_t tiny[8] = {1, 1, 2, 2, 2, 3, 3, 5};
static const uint32_t huge[8] = {1, 16, 16, 16, 32, 63, 64, 65};

static const struct round rounds[] = {
	{"random requests", GIB(8), false, false, mixed},
	{"in small steps", GIB(1), false, false, mixed},
	{"with faults", GIB(2), true, false, mixed},
	{"with faults", GIB(8), true, false, mixed},
	{"with faults", GIB(1), true, false, mixed},
	{"blocks of few slots", GIB(8), false, true, mixed},
	{"on pages of two and three", GIB(2), false, true, tiny},
	{"on pages of sixteen and more", GIB(1), false, true, huge},
	{"the same with faults", GIB(1), true, true, huge},
};

static const struct round *round_is;

/* One of the sizes of the round, and seldom another number. */
static uint32_t pick(uint32_t slot, uint32_t most)
{
	const uint32_t *sizes = round_is->sizes;
	uint32_t slots = below(16) ? sizes[below(8)] : 1 + (uint32_t)below(100);

	return slots <= most ? slots : most < sizes[3] ? 1 : sizes[3];
}

/* Warnings of what the driver would not unmap are expected, whoever asked for it. */
static void note_logs(int before)
{
	expected_logs += tap.logs - before;
	did.kept += (uint64_t)(tap.logs - before);
}

/* Most are of a slot and around, some within an eighth of it, few up to 400 MiB. */
static uint64_t random_size(void)
{
	uint64_t size, small = S(1) / 8;

	if (round_is->crowd && below(8))
		return (small + 1 + below(S(3)) + 511) & ~UINT64_C(511);
	switch (below(10)) {
	case 0:
	case 1:
		size = 1 + below(32 << 10);
		break;
	case 2:
		size = small - 512 + 512 * below(3);
		break;
	case 3:
		size = 1 + below(S(1));
		break;
	case 4:
	case 5:
		size = S(1 + below(8));
		break;
	case 6:
		size = S(7 * (1 + below(4))) - 512 + 512 * below(3);
		break;
	case 7:
		size = S(64) - S(1) + below(S(2));
		break;
	case 8:
		size = 1 + below(S(200));
		break;
	default:
		size = 1 + below(S(16));
	}
	return (size + 511) & ~UINT64_C(511);
}

static void alloc(void)
{
	uint64_t own = S(below(2) ? round_is->sizes[below(8)] : 1 + below(80));
	struct glk_extent *e;
	uint32_t id;

	if (model.blocks == MODEL_BLOCKS)
		return;
	/* one in twelve has a page of its own */
	id = below(12) ? rig_alloc(&rig, random_size())
		       : rig_alloc_kind(&rig, own, GLK_FIT_WHOLE);
	model_sync(&model);
	if (!id) {
		did.refused++;
		return;
	}
	e = glk_extent_at(&rig.map, id);
	did.nests += e->nested;
	model.block[model.blocks++] =
		(struct block){.id = id, .offset = e->offset, .size = e->size};
	hash = (hash ^ e->offset) * UINT64_C(0x100000001b3);
	did.blocks++;
}

static void free_one(void)
{
	uint64_t stream = UINT64_C(1) << below(60);
	struct block *b;
	uint32_t i, last;

	if (!model.blocks)
		return;
	i = (uint32_t)below(model.blocks);
	b = &model.block[i];
	if (!b->quick) {
		uint64_t addr = glk_map_addr(&rig.map, b->offset);

		if (!glk_lookup_claim(glk_index_find(addr), addr))
			tap_bail("a block cannot be claimed");
		b->quick = true;
		if (below(3) == 0)
			return;
	} else if (below(3) == 0) {
		glk_word_revive(&glk_extent_at(&rig.map, b->id)->word);
		b->quick = false;
		return;
	}
	last = glk_slot_of(&rig.map, b->offset + b->size - 1);
	for (uint32_t slot = glk_slot_of(&rig.map, b->offset); slot <= last; slot++) {
		model.slot_tick[slot] = rig.tick + 1;
		model.page_tick[rig.map.page[slot]] = rig.tick + 1;
		model.stream[rig.map.page[slot]] = stream;
	}
	rig_leave(&rig, b->id, stream);
	*b = model.block[--model.blocks];
	did.freed++;
}

/* Removes mappings that no live extent touches, a run of them. */
static void unmap_some(void)
{
	uint32_t end = glk_map_end(&rig.map), first = (uint32_t)below(end + 1), last;
	struct glk_mapping m, next;

	for (; first < end; first++) {
		if (!rig.map.page[first])
			continue;
		m = glk_mapping_at(&rig.map, first);
		first = m.last;
		if (glk_bits_any(rig.map.busy, m.first, m.last))
			continue;
		for (last = m.last; last + 1 < end && rig.map.page[last + 1] && below(3);
			last = next.last) {
			next = glk_mapping_at(&rig.map, last + 1);
			if (glk_bits_any(rig.map.busy, next.first, next.last))
				break;
		}
		glk_mapping_remove(&rig.map, m.first, last);
		return;
	}
}

/* Gives an idle page back to the driver, or to its node, with all its mappings. */
static void release_idle(void)
{
	uint32_t id = rig_idle(&rig, below(5) ? round_is->sizes[below(8)] : 0);
	struct glk_page *page = rig_page(&rig, id);

	if (!id)
		return;
	while (page->aliases && below(8)) {
		uint32_t first = page->first_alias;

		if (glk_mapping_remove(
			    &rig.map, first, first + glk_page_slots(&rig.map, page) - 1))
			return;
	}
	did.released++;
	if (page->aliases || below(2))
		glk_page_put_back(&rig.map, id);
	else
		glk_node_release(rig.map.node, id);
}

/* A walk that takes pages, puts them back and takes them down. */
static enum glk_idle_answer meddle(struct glk_map *map, uint32_t id, void *arg)
{
	struct glk_page *page = glk_map_page(map, id);

	if (page->aliases && below(2)) {
		glk_page_take(map, id);
		while (page->aliases && below(3)) {
			uint32_t first = page->first_alias;

			if (glk_mapping_remove(
				    map, first, first + glk_page_slots(map, page) - 1))
				return GLK_IDLE_NEXT;
		}
		glk_page_put_back(map, id);
	}
	return below(20) ? GLK_IDLE_NEXT : GLK_IDLE_STOP;
}

static void walk(void)
{
	struct glk_idle_walk walk = {.slots = below(2) ? round_is->sizes[below(8)] : 0,
		.groups = 1 + (uint32_t)below(40)};

	glk_idle_each(&rig.map, &walk, meddle, NULL);
}

static void step(bool faults, uint64_t grow)
{
	uint64_t dice = below(100);
	int logs = tap.logs;

	rig.wide = below(2);
	rig.trim = below(4) == 0;
	if (below(200) == 0)
		rig.map.packs = !rig.map.packs;
	if (faults && below(FAULTS) == 0)
		fake_fail(&rig.fake,
			(enum fake_op)(FAKE_CREATE + below(FAKE_OPS - FAKE_CREATE)),
			1 + below(3), below(2) ? -ENOMEM : -EIO, below(4) == 0);
	if (dice < grow)
		alloc();
	else if (dice < 92)
		free_one();
	else if (dice < 95)
		unmap_some();
	else if (dice < 98)
		release_idle();
	else if (dice < 99)
		walk();
	else
		glk_node_drain(rig.map.node, (enum glk_class)below(GLK_CLASS_COUNT),
			below(MIB(64)));
	for (int op = 0; op < FAKE_OPS; op++)
		fake_fail(&rig.fake, (enum fake_op)op, 0, 0, false);
	note_logs(logs);
}

static void begin(uint64_t seed, const struct round *round)
{
	state = seed;
	hash = 0;
	round_is = round;
	memset(&model, 0, sizeof(model));
	rig_conf(&rig);
	rig.size = (struct glk_map_size){.step = round->step_size, .most = GIB(8)};
	rig.conf.pool_large_page = S(round->sizes[3]);
	rig.conf.pool_budget = GIB(2);
	rig.conf.pool_pages = MODEL_PAGES - 1;
	rig.pick = pick;
	rig.aliases = 4;
	rig_start(&rig);
	model.rig = &rig;
}

/* Steps until the first disagreement; what was allocated where, as a hash. */
static uint64_t run(uint64_t seed, const struct round *round)
{
	const char *given = getenv("GLAKE_TEST_STEPS");
	uint64_t steps = given ? strtoull(given, NULL, 0) : STEPS, i;
	int wrong = 0;

	memset(&did, 0, sizeof(did));
	begin(seed, round);
	for (i = 0; i < steps && !wrong; i++) {
		/* towards full and towards empty in turn */
		step(round->faults, i / 500 % 2 ? 35 : 60);
		if (i % CHECK == 0 || i + 1 == steps)
			wrong = model_check(&model, &state);
	}
	ok(!wrong && !rig.fake.broken && !rig.misfits, "%s, ranges of %d GiB",
		round->what, (int)(round->step_size >> 30));
	if (wrong)
		tap_note("after step %" PRIu64, i);
	tap_note("%" PRIu64 " blocks, %" PRIu64 " small, %" PRIu64 " refused, %" PRIu64
		 " freed, %" PRIu64 " pages mapped again, %" PRIu64 " released, %" PRIu64
		 " mappings kept by the driver, %u ranges",
		did.blocks, did.nests, did.refused, did.freed, rig.shared, did.released,
		did.kept, rig.map.ranges);
	tap_note("%" PRIu64 " slots stranded at the most, %" PRIu64
		 " ends in large pages, %" PRIu64 " shared ones, %" PRIu64
		 " mappings trimmed, %" PRIu64 " pages kept whole",
		model.most_stranded, model.own_ends, model.shared_ends, rig.trimmed,
		rig.kept_whole);
	if (!wrong)
		ok(did.blocks > steps / 8 && did.nests && rig.shared && did.released &&
				model.most_stranded && model.own_ends &&
				model.shared_ends && (round->crowd || rig.trimmed) &&
				rig.kept_whole,
			"of every kind some");
	rig_fini(&rig);
	return hash;
}

int main(void)
{
	const unsigned n = sizeof(rounds) / sizeof(*rounds);
	uint64_t seed, first;

	if (tap_one_thread_takes_long())
		tap_skip_all("takes too long here");
	tap_plan_later();
	seed = seed_start();
	first = run(seed_thread(seed, 0), &rounds[0]);
	ok(run(seed_thread(seed, 0), &rounds[0]) == first,
		"the same again, and the same addresses");
	for (unsigned i = 1; i < n; i++)
		run(seed_thread(seed, i), &rounds[i]);
	tap_expect_log(expected_logs);
	return tap_done();
}
