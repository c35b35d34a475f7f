/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_MODEL_H
#define GLK_MAP_MODEL_H

/*
 * What a map should look like, counted afresh from three things that it does not keep itself:
 * the list of blocks a test was given, the false driver's own mappings, and when each page and
 * each slot was last left. Each check returns the number of disagreements.
 */
#include "seed.h"
#include "unit/map/serve.h"

#define MODEL_BLOCKS 512
#define MODEL_SLOTS  8192
#define MODEL_PAGES  8192

struct block {
	uint32_t id;
	uint64_t offset, size;
	bool quick;
};

struct model {
	struct rig *rig;
	struct block block[MODEL_BLOCKS];
	uint32_t blocks;
	uint64_t page_tick[MODEL_PAGES]; /* last left, since it was created */
	uint64_t slot_tick[MODEL_SLOTS]; /* since it was mapped */
	uint64_t stream[MODEL_PAGES];	 /* that left it last */
	uint64_t life[MODEL_PAGES];	 /* generation of a page */
	uint64_t serial[MODEL_SLOTS];	 /* of the call that mapped a slot */
	/* counted by model_count() */
	uint32_t ends[MODEL_SLOTS]; /* blocks that begin or end there */
	bool busy[MODEL_SLOTS];
	uint32_t mapped[MODEL_PAGES]; /* slots of a page */
	uint32_t used[MODEL_PAGES];   /* mappings of a page that are in use */
	uint32_t met[MODEL_PAGES];    /* by a walk of idle pages */
	uint64_t stranded;	      /* slots of pages in use that no block touches */
	/* of all checks: the most slots stranded; end slots, in the same mapping of several slots,
	 * that a block has for itself, and that it shares with others */
	uint64_t most_stranded, own_ends, shared_ends;
};

static inline int model_wrong(const char *what, uint64_t a, uint64_t b)
{
	tap_note("%s: %" PRIu64 ", %" PRIu64, what, a, b);
	return 1;
}

/* Forgets when slots were left that were mapped anew, and new pages. */
static inline void model_sync(struct model *model)
{
	struct rig *rig = model->rig;
	uint32_t used = glk_load_relaxed(&rig->pool.pages.used);

	for (uint32_t slot = 0; slot < glk_map_end(&rig->map); slot++) {
		if (!rig->map.page[slot] ||
			model->serial[slot] ==
				fake_serial_at(&rig->fake, rig_addr(rig, slot)))
			continue;
		model->serial[slot] = fake_serial_at(&rig->fake, rig_addr(rig, slot));
		model->slot_tick[slot] = 0;
	}
	for (uint32_t id = 1; id <= used && id < MODEL_PAGES; id++) {
		uint64_t life = glk_page_generation(rig_page(rig, id));

		if (life == model->life[id])
			continue;
		model->life[id] = life;
		model->page_tick[id] = 0;
		model->stream[id] = 0;
	}
}

static inline void model_count(struct model *model)
{
	struct glk_map *map = &model->rig->map;

	memset(model->ends, 0, sizeof(model->ends));
	memset(model->busy, 0, sizeof(model->busy));
	memset(model->mapped, 0, sizeof(model->mapped));
	memset(model->used, 0, sizeof(model->used));
	for (uint32_t i = 0; i < model->blocks; i++) {
		uint64_t offset = model->block[i].offset, size = model->block[i].size;
		uint32_t first = glk_slot_of(map, offset);
		uint32_t last = glk_slot_of(map, offset + size - 1);

		model->ends[first]++;
		if (first != last)
			model->ends[last]++;
		for (uint32_t slot = first; slot <= last; slot++)
			model->busy[slot] = true;
	}
	for (uint32_t slot = 0, head = 0; slot < glk_map_end(map); slot++) {
		uint32_t page = map->page[slot];
		bool first = false;

		if (!page)
			continue;
		if (!(model->mapped[page]++ %
			    glk_page_slots(map, glk_map_page(map, page))))
			head = slot;
		/* in use once, however many of its slots are */
		for (uint32_t i = head; i < slot; i++)
			first |= model->busy[i];
		model->used[page] += model->busy[slot] && !first;
	}
}

/* Blocks are where they were given, and found by every address asked. */
static inline int model_blocks(struct model *model, uint64_t *state)
{
	struct glk_map *map = &model->rig->map;
	uint64_t taken = 0;
	int wrong = 0;

	for (uint32_t i = 0; i < model->blocks; i++) {
		struct block *b = &model->block[i];
		struct glk_extent *e = glk_extent_at(map, b->id);
		uint64_t addr = glk_map_addr(map, b->offset);
		uint64_t at = addr + seed_below(state, b->size);

		taken += b->size;
		if (e->offset != b->offset || e->size != b->size ||
			glk_extent_state(e) !=
				(b->quick ? GLK_EXTENT_QUICK : GLK_EXTENT_LIVE))
			wrong += model_wrong("a block has moved", e->offset, b->offset);
		if (!glk_index_find(at) || glk_index_find(at)->map != map ||
			glk_lookup_around(glk_index_find(at), at) != b->id ||
			glk_lookup_first(glk_index_find(at), addr) != b->id)
			wrong += model_wrong("a block is not found", b->id, at);
	}
	if (taken != map->taken)
		wrong += model_wrong("bytes given out", map->taken, taken);
	return wrong;
}

/* An address anywhere belongs to whom the list says. */
static inline int model_address(struct model *model, uint64_t offset)
{
	struct glk_map *map = &model->rig->map;
	const struct glk_range *range = glk_map_range(map, offset);
	uint32_t want = 0, got;

	got = glk_lookup_around(range, range->base + (offset - range->offset));
	for (uint32_t i = 0; i < model->blocks; i++) {
		struct block *b = &model->block[i];

		if (offset - b->offset < b->size)
			want = b->id;
	}
	return got == want ? 0 : model_wrong("an address belongs to", got, want);
}

/* One slot against the driver and against what else its page is mapped at. */
static inline int model_slot(struct model *model, uint32_t slot)
{
	struct glk_map *map = &model->rig->map;
	struct fake *fake = &model->rig->fake;
	uint64_t addr = glk_slot_addr(map, slot);
	uint32_t page = map->page[slot];
	bool mapped = glk_bit_get(map->mapped, slot);
	bool usable = glk_bit_get(map->usable, slot), busy = model->busy[slot],
	     here = busy;
	struct glk_mapping m;
	int wrong = 0;

	if (map->count[slot] != model->ends[slot] || glk_bit_get(map->busy, slot) != busy)
		wrong += model_wrong("live on a slot", slot, model->ends[slot]);
	if (!page) {
		if (usable || busy)
			wrong += model_wrong("usable without a page", slot, busy);
		if (mapped != !!fake_page_at(fake, addr))
			wrong += model_wrong("no page, mapped", slot, mapped);
		return wrong;
	}
	if (!mapped || fake_page_at(fake, addr) != glk_map_page(map, page)->handle)
		wrong += model_wrong("another page is mapped", slot, page);
	if (!fake_access_at(fake, addr))
		wrong += model_wrong("no access to a slot", slot, page);
	m = glk_mapping_at(map, slot);
	if (slot < m.first || slot > m.last || map->page[m.first] != page)
		wrong += model_wrong("a mapping", slot, m.first);
	for (uint32_t i = m.first; i <= m.last; i++)
		here |= model->busy[i];
	model->stranded += here && !busy;
	if (m.first != m.last && model->ends[slot])
		*(model->ends[slot] > 1 ? &model->shared_ends : &model->own_ends) += 1;
	if (usable != (here || !model->used[page]))
		wrong += model_wrong("usable", slot, usable);
	if (glk_use_at(map, slot).tick < model->slot_tick[slot] ||
		glk_use_at(map, slot).tick > model->page_tick[page])
		wrong += model_wrong("use of a slot", glk_use_at(map, slot).tick,
			model->slot_tick[slot]);
	return wrong;
}

/* Sizes of pages that are walked by themselves, in slots. */
#define MODEL_WALKED 7

static inline enum glk_idle_answer model_meet(
	struct glk_map *map, uint32_t page, void *arg)
{
	struct model *model = arg;

	model->met[page]++;
	return GLK_IDLE_NEXT;
}

/* Idle pages are those that are mapped and not in use, each met once, and once among those of its size. */
static inline int model_idle(struct model *model)
{
	struct glk_map *map = &model->rig->map;
	uint64_t slots = 0;
	int wrong = 0;

	memset(model->met, 0, sizeof(model->met));
	for (uint32_t size = 0; size <= MODEL_WALKED; size++)
		glk_idle_each(map,
			&(struct glk_idle_walk){.slots = size, .groups = UINT32_MAX},
			model_meet, model);
	for (uint32_t page = 1; page < MODEL_PAGES; page++) {
		bool idle = model->mapped[page] && !model->used[page];
		uint32_t size = 0;

		if (idle) {
			size = glk_page_slots(map, glk_map_page(map, page));
			slots += size;
		}
		if (model->met[page] != (idle ? 1u + (size <= MODEL_WALKED) : 0))
			wrong += model_wrong("idle page met", page, model->met[page]);
	}
	if (slots != map->space->of[0].idle_slots)
		wrong += model_wrong("idle slots", map->space->of[0].idle_slots, slots);
	return wrong;
}

/* Every page is in one place: mapped, free or lost; and the driver holds as much as booked. */
static inline int model_pages(struct model *model)
{
	struct rig *rig = model->rig;
	struct glk_node *node = rig->map.node;
	uint32_t used = glk_load_relaxed(&rig->pool.pages.used);
	uint64_t live = 0, bytes = 0, free = 0, lost = 0;
	int wrong = 0;

	for (uint32_t id = 1; id <= used && id < MODEL_PAGES; id++) {
		struct glk_page *page = glk_page_at(&rig->pool, id);
		enum glk_page_state state = glk_page_state(page);
		struct glk_use use;

		live += state != GLK_PAGE_EMPTY;
		free += state == GLK_PAGE_FREE ? page->size : 0;
		lost += state == GLK_PAGE_LOST ? page->size : 0;
		bytes += model->mapped[id] * S(1);
		if (model->used[id] > 1)
			wrong += model_wrong("in use twice", id, model->used[id]);
		if ((state == GLK_PAGE_OWNED) != (model->mapped[id] > 0))
			wrong += model_wrong("mapped in state", id, state);
		if (!model->mapped[id])
			continue;
		use = glk_page_use(&rig->map, id);
		if (use.tick != model->page_tick[id] ||
			(model->stream[id] & ~use.streams))
			wrong += model_wrong(
				"use of a page", use.tick, model->page_tick[id]);
	}
	if (bytes != rig->map.space->mapped_bytes)
		wrong += model_wrong("mapped bytes", rig->map.space->mapped_bytes, bytes);
	if (glk_load_relaxed(&node->held) != rig->fake.held || live != rig->fake.pages)
		wrong += model_wrong(
			"held", glk_load_relaxed(&node->held), rig->fake.held);
	if (free != glk_node_free(node) || lost != glk_load_relaxed(&node->lost))
		wrong += model_wrong("free and lost", free, lost);
	return wrong;
}

/* All of it. */
static inline int model_check(struct model *model, uint64_t *state)
{
	struct glk_map *map = &model->rig->map;
	int wrong = 0;

	model_count(model);
	model->stranded = 0;
	wrong += model_blocks(model, state);
	for (unsigned r = 0; r < map->ranges; r++) {
		uint32_t first = glk_slot_of(map, map->range[r].offset);
		uint32_t slots = (uint32_t)(map->range[r].size >> map->shift);

		for (uint32_t slot = first; slot < first + slots; slot++)
			wrong += model_slot(model, slot);
		for (int i = 0; i < 4; i++)
			wrong += model_address(model,
				map->range[r].offset +
					seed_below(state, map->range[r].size));
	}
	wrong += model_address(model, seed_below(state, map->high + 1));
	if (model->stranded != map->space->of[0].stranded)
		wrong += model_wrong(
			"stranded slots", map->space->of[0].stranded, model->stranded);
	if (model->stranded > model->most_stranded)
		model->most_stranded = model->stranded;
	wrong += model_idle(model);
	wrong += model_pages(model);
	return wrong + !rig_sound(model->rig);
}

#endif
