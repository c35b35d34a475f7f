/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random requests against a map, as the cache makes them: blocks of all kinds, pages taken
 * from wherever they lie, mappings and pages taken away, driver calls that fail. Every few
 * steps all books are compared with a model (model.h).
 *
 * GLAKE_TEST_SEED repeats a run, GLAKE_TEST_STEPS makes it longer.
 */
#include "seed.h"
#include "unit/map/model.h"

#define STEPS	20000 /* a round */
#define CHECK	24    /* steps between two comparisons */
#define ALIASES 4     /* mappings of a page above which the oldest goes */
#define FAULTS	40    /* steps between two driver calls that fail */

static struct rig rig;
static struct model model;
static uint64_t state, tick, hash;
static int expected_logs;
static struct {
	uint64_t blocks, refused, stitched, kept, freed, singles, released;
} did;

static uint64_t below(uint64_t n)
{
	return seed_below(&state, n);
}

static struct glk_node *node(void)
{
	return &rig.pool.nodes[0];
}

static int detach(struct glk_span *span, uint32_t first, uint32_t last)
{
	int logs = tap.logs;
	int err = glk_slots_detach(span, first, last);

	if (err)
		expected_logs += tap.logs - logs;
	did.kept += err != 0;
	return err;
}

static bool check(struct glk_span *span, uint32_t first, uint32_t last,
	struct glk_fit *fit, void *arg)
{
	if (!rig_check(span, first, last, fit, &rig))
		return false;
	/* now and then a stream is in the way, or costs a wait */
	fit->waits += (uint32_t)(below(10) / 9);
	return below(20) > 0;
}

static uint32_t oldest(const struct glk_page *page)
{
	uint32_t name = page->first_alias, last = name;

	for (; name != GLK_NO_SLOT; name = glk_slot_span(&rig.map, name)
						   ->more[glk_slot_number(name)]
						   .next_alias)
		last = name;
	return last;
}

static void put_back(uint32_t page)
{
	if (glk_page_state(glk_map_page(&rig.map, page)) != GLK_PAGE_OWNED)
		return;
	if (glk_map_page(&rig.map, page)->aliases)
		glk_idle_put(&rig.map, page);
	else
		glk_node_put(node(), page);
}

static uint32_t take_idle(enum glk_class class)
{
	uint32_t page = glk_idle_first(&rig.map, class);

	for (uint64_t n = below(3); page && n; n--) {
		uint32_t next = glk_idle_next(&rig.map, page);

		page = next ? next : page;
	}
	if (page)
		glk_idle_take(&rig.map, page);
	return page;
}

/* A page in our hands: from the node's list, from an idle list, new. 0: none. */
static uint32_t find_page(enum glk_class class)
{
	uint32_t page = 0, name;

	do {
		if (below(4) == 0 && !glk_node_grow(node(), class, 0, &page))
			model.page_tick[page] = 0;
		if (!page)
			page = glk_node_take(node(), class);
		if (!page)
			page = take_idle(class);
		if (!page && !glk_node_grow(node(), class, 0, &page))
			model.page_tick[page] = 0;
		if (!page || glk_map_page(&rig.map, page)->aliases < ALIASES)
			return page;
		name = oldest(glk_map_page(&rig.map, page));
		if (!detach(glk_slot_span(&rig.map, name), glk_slot_number(name),
			    glk_slot_number(name)))
			return page;
		page = 0; /* lost */
	} while (true);
}

static int fill(struct glk_span *span, uint32_t slot)
{
	uint32_t page;
	int err;

	if (glk_bit_get(span->mapped, slot)) {
		err = detach(span, slot, slot);
		if (err)
			return err;
	}
	page = find_page(span->class);
	if (!page)
		return -ENOMEM;
	did.stitched += glk_map_page(&rig.map, page)->aliases > 0;
	err = glk_slot_attach(span, slot, page);
	if (err) {
		put_back(page);
		return err;
	}
	model.slot_tick[span->kind][slot] = 0;
	glk_slot_enter(span, slot);
	return 0;
}

static int grant(struct glk_span *span, uint32_t first, uint32_t last, uint64_t made)
{
	int err = 0;

	for (uint32_t slot = first, end; slot <= last && !err; slot = end + 1) {
		for (end = slot; end < last && made >> (end + 1 - first) & 1 &&
			made >> (slot - first) & 1;)
			end++;
		if (made >> (slot - first) & 1)
			err = glk_slot_grant(span, slot, end);
	}
	return err;
}

/* Puts pages behind a live extent; on failure the extent alone is left. */
static int back(struct glk_span *span, uint32_t first, uint32_t last)
{
	uint64_t entered = 0, made = 0;
	int err = 0;

	glk_slots_enter(span, first, last);
	for (uint32_t slot = first; slot <= last; slot++)
		entered |= (uint64_t)glk_bit_get(span->usable, slot) << (slot - first);
	for (uint32_t slot = first; slot <= last && !err; slot++) {
		if (entered >> (slot - first) & 1)
			continue;
		err = fill(span, slot);
		if (!err)
			made |= UINT64_C(1) << (slot - first);
	}
	if (!err)
		err = grant(span, first, last, made);
	for (uint32_t slot = last + 1; slot-- > first && err;) {
		if (!((made | entered) >> (slot - first) & 1))
			continue;
		glk_slot_leave(span, slot, 0, 0);
		if (made >> (slot - first) & 1)
			detach(span, slot, slot);
	}
	return err;
}

static void note_block(enum glk_kind kind, uint32_t id)
{
	struct glk_extent *e = glk_extent_at(&rig.map, id);

	glk_lookup_enter(&rig.map.span[kind], id);
	model.block[model.blocks++] = (struct block){
		.kind = kind, .id = id, .offset = e->offset, .size = e->size};
	hash = (hash ^ e->offset ^ (uint64_t)kind << 60) * UINT64_C(0x100000001b3);
	did.blocks++;
}

/* Small ones mostly, half a page and its neighbours, up to 256 MiB. */
static uint64_t random_size(void)
{
	uint64_t small = rig.conf.pool_small_page, large = rig.conf.pool_large_page, size;

	switch (below(10)) {
	case 0:
	case 1:
	case 2:
		size = 1 + below(64 << 10);
		break;
	case 3:
		size = 1 + below(small / 2);
		break;
	case 4:
		size = small / 2 + 512 * below(3);
		break;
	case 5:
		size = small / 2 + 512 + below(large / 2);
		break;
	case 6:
		size = large / 2 - 512 + 512 * below(3);
		break;
	case 7:
		size = large * (1 + below(4));
		break;
	case 8:
		size = large / 2 + below(8 * large);
		break;
	default:
		size = below(8) ? MIB(1) + below(MIB(32)) : MIB(1) + below(MIB(255));
	}
	return (size + 511) & ~UINT64_C(511);
}

static void alloc(void)
{
	uint64_t size = random_size();
	enum glk_kind kind = glk_map_kind(&rig.map, size);
	struct glk_span *span = &rig.map.span[kind];
	struct glk_fit fit;
	uint32_t id, first, last;

	if (model.blocks == MODEL_BLOCKS ||
		glk_fit_search(span, size, check, &rig, &fit) ||
		glk_extent_carve(span, fit.from, fit.offset, size, &id)) {
		did.refused++;
		return;
	}
	first = glk_slot_of(span, fit.offset);
	last = glk_slot_of(span, fit.offset + size - 1);
	if (back(span, first, last)) {
		glk_extent_give_back(span, id);
		did.refused++;
		return;
	}
	note_block(kind, id);
}

/* A page for a contiguous extent, or none of it. */
static int back_single(struct glk_span *span, uint32_t slot, uint64_t size)
{
	uint32_t page;
	int err;

	err = glk_node_grow(node(), GLK_CLASS_SINGLE, size, &page);
	if (err)
		return err;
	model.page_tick[page] = 0;
	err = glk_slot_attach(span, slot, page);
	if (err)
		goto release;
	model.slot_tick[span->kind][slot] = 0;
	err = glk_slot_grant(span, slot, slot);
	if (err && detach(span, slot, slot))
		return err;
	if (err)
		goto release;
	span->slot[slot].live = 1;
	return 0;
release:
	glk_node_release(node(), page);
	return err;
}

static void alloc_single(void)
{
	struct glk_span *span = &rig.map.span[GLK_KIND_SINGLE];
	uint64_t size = (1 + below(8)) << span->shift;
	struct glk_fit fit;
	uint32_t id;

	if (model.blocks == MODEL_BLOCKS ||
		glk_fit_search(span, size, check, &rig, &fit) ||
		glk_extent_carve(span, fit.from, fit.offset, size, &id))
		return;
	if (back_single(span, glk_slot_of(span, fit.offset), size)) {
		glk_extent_give_back(span, id);
		return;
	}
	note_block(GLK_KIND_SINGLE, id);
	did.singles++;
}

static void forget_block(uint32_t i)
{
	model.block[i] = model.block[--model.blocks];
}

/* Parks a live contiguous block, takes a parked one again, or releases it. */
static void move_single(uint32_t i)
{
	struct glk_span *span = &rig.map.span[GLK_KIND_SINGLE];
	struct block *b = &model.block[i];
	uint32_t slot = glk_slot_of(span, b->offset), page = span->slot[slot].page;

	if (!b->parked) {
		glk_lookup_leave(span, b->id);
		glk_use_add(&span->use[slot], 1, ++tick);
		model.page_tick[page] = model.slot_tick[GLK_KIND_SINGLE][slot] = tick;
		glk_extent_set(glk_extent_at(&rig.map, b->id), GLK_EXTENT_PARKED);
		b->parked = true;
	} else if (below(2)) {
		glk_extent_set(glk_extent_at(&rig.map, b->id), GLK_EXTENT_LIVE);
		glk_lookup_enter(span, b->id);
		b->parked = false;
	} else {
		span->slot[slot].live = 0;
		if (!detach(span, slot, slot))
			glk_node_release(node(), page);
		glk_extent_give_back(span, b->id);
		forget_block(i);
	}
}

static void free_one(void)
{
	uint32_t i, first, last;
	struct glk_span *span;
	struct block *b;

	if (!model.blocks)
		return;
	i = (uint32_t)below(model.blocks);
	b = &model.block[i];
	if (b->kind == GLK_KIND_SINGLE) {
		move_single(i);
		return;
	}
	span = &rig.map.span[b->kind];
	model_range(&model, b, &first, &last);
	glk_lookup_leave(span, b->id);
	tick++;
	for (uint32_t slot = first; slot <= last; slot++) {
		model.slot_tick[b->kind][slot] = tick;
		model.page_tick[span->slot[slot].page] = tick;
	}
	glk_slots_leave(span, first, last, UINT64_C(1) << below(60), tick);
	glk_extent_give_back(span, b->id);
	forget_block(i);
	did.freed++;
}

/* Removes mappings that no live extent is on, a run of them. */
static void unmap_some(void)
{
	struct glk_span *span = &rig.map.span[below(GLK_KIND_SINGLE)];
	uint32_t first = (uint32_t)below(span->slots), last = first;

	for (; first < span->slots; first++, last = first) {
		if (!span->slot[first].page || span->slot[first].live)
			continue;
		while (last + 1 < span->slots && last - first < 3 &&
			span->slot[last + 1].page && !span->slot[last + 1].live)
			last++;
		detach(span, first, last);
		return;
	}
}

/* Gives an idle page back to the driver, with all its mappings. */
static void release_idle(void)
{
	uint32_t id = take_idle((enum glk_class)below(GLK_CLASS_COUNT));
	struct glk_page *page = glk_map_page(&rig.map, id);

	if (!id)
		return;
	while (page->first_alias != GLK_NO_SLOT) {
		uint32_t slot = glk_slot_number(page->first_alias);

		if (detach(glk_slot_span(&rig.map, page->first_alias), slot, slot))
			return;
	}
	glk_node_release(node(), id);
	did.released++;
}

static void step(bool faults, uint64_t grow)
{
	uint64_t dice = below(100);

	if (faults && below(FAULTS) == 0)
		fake_fail(&rig.fake,
			(enum fake_op)(FAKE_CREATE + below(FAKE_OPS - FAKE_CREATE)),
			1 + below(3), below(2) ? -ENOMEM : -EIO, below(4) == 0);
	if (dice < grow)
		alloc();
	else if (dice < grow + 3)
		alloc_single();
	else if (dice < 94)
		free_one();
	else if (dice < 96)
		unmap_some();
	else if (dice < 99)
		release_idle();
	else
		glk_node_drain(
			node(), (enum glk_class)below(GLK_CLASS_COUNT), below(MIB(64)));
	for (int op = 0; op < FAKE_OPS; op++)
		fake_fail(&rig.fake, (enum fake_op)op, 0, 0, false);
}

static void begin(uint64_t seed, uint64_t small, uint64_t large)
{
	state = seed;
	tick = 0;
	hash = 0;
	memset(&model, 0, sizeof(model));
	rig_conf(&rig);
	rig.conf.pool_small_page = small;
	rig.conf.pool_large_page = large;
	rig.conf.pool_budget = GIB(1) + MIB(512);
	rig.conf.pool_pages = MODEL_PAGES - 1;
	rig_start(&rig);
	model.rig = &rig;
}

/* Steps until the first disagreement; what was allocated where, as a hash. */
static uint64_t run(
	const char *what, uint64_t seed, uint64_t small, uint64_t large, bool faults)
{
	const char *given = getenv("GLAKE_TEST_STEPS");
	uint64_t steps = given ? strtoull(given, NULL, 0) : STEPS, i;
	int wrong = 0;

	memset(&did, 0, sizeof(did));
	begin(seed, small, large);
	for (i = 0; i < steps && !wrong; i++) {
		/* towards full and towards empty in turn */
		step(faults, i / 500 % 2 ? 35 : 60);
		if (i % CHECK == 0 || i + 1 == steps)
			wrong = model_check(&model, &state);
	}
	ok(!wrong && !rig.fake.broken, "%s, pages of %d and %d MiB", what,
		(int)(small >> 20), (int)(large >> 20));
	if (wrong)
		tap_note("after step %" PRIu64, i);
	tap_note("%" PRIu64 " blocks, %" PRIu64 " refused, %" PRIu64 " freed, %" PRIu64
		 " contiguous, %" PRIu64 " pages stitched, %" PRIu64 " released, %" PRIu64
		 " mappings kept by the driver",
		did.blocks, did.refused, did.freed, did.singles, did.stitched,
		did.released, did.kept);
	rig_fini(&rig);
	return hash;
}

int main(void)
{
	uint64_t seed, first;

	tap_plan(7);
	seed = seed_start();
	first = run("random requests", seed_thread(seed, 0), MIB(2), MIB(8), false);
	ok(did.blocks > STEPS / 4 && did.stitched > STEPS / 20 && did.released,
		"of every kind enough");
	ok(run("the same again", seed_thread(seed, 0), MIB(2), MIB(8), false) == first,
		"and the same addresses");
	run("with faults", seed_thread(seed, 1), MIB(2), MIB(8), true);
	run("with faults", seed_thread(seed, 2), MIB(8), MIB(8), true);
	run("with faults", seed_thread(seed, 3), MIB(2), MIB(32), true);
	tap_expect_log(expected_logs);
	return tap_done();
}
