/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_MODEL_H
#define GLK_MAP_MODEL_H

/*
 * What a map should look like, counted afresh from three things that it does not keep itself:
 * the list of blocks a test was given, the false driver's own mappings, and when each page and
 * each mapping was last left. Each check returns the number of disagreements.
 */
#include "unit/map/rig.h"

#define MODEL_BLOCKS 512
#define MODEL_SLOTS  4096 /* of a span */
#define MODEL_PAGES  8192

struct block {
	enum glk_kind kind;
	bool parked;
	uint32_t id;
	uint64_t offset, size;
};

struct model {
	struct rig *rig;
	struct block block[MODEL_BLOCKS];
	uint32_t blocks;
	uint64_t page_tick[MODEL_PAGES]; /* last left, since it was created */
	uint64_t slot_tick[GLK_KIND_COUNT][MODEL_SLOTS]; /* since it was mapped */
	/* counted by model_count() */
	uint32_t live[GLK_KIND_COUNT][MODEL_SLOTS];
	uint32_t mapped[MODEL_PAGES],
		used[MODEL_PAGES]; /* slots of a page; those in use */
};

static inline int model_wrong(const char *what, uint64_t a, uint64_t b)
{
	tap_note("%s: %" PRIu64 ", %" PRIu64, what, a, b);
	return 1;
}

/* The slots a block is booked on. */
static inline void model_range(const struct model *model, const struct block *block,
	uint32_t *ret_first, uint32_t *ret_last)
{
	const struct glk_span *span = &model->rig->map.span[block->kind];

	*ret_first = glk_slot_of(span, block->offset);
	*ret_last = block->kind == GLK_KIND_SINGLE
		? *ret_first
		: glk_slot_of(span, block->offset + block->size - 1);
}

static inline void model_count(struct model *model)
{
	memset(model->live, 0, sizeof(model->live));
	memset(model->mapped, 0, sizeof(model->mapped));
	memset(model->used, 0, sizeof(model->used));
	for (uint32_t i = 0; i < model->blocks; i++) {
		uint32_t first, last;

		model_range(model, &model->block[i], &first, &last);
		for (uint32_t slot = first; slot <= last; slot++)
			model->live[model->block[i].kind][slot]++;
	}
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		struct glk_span *span = &model->rig->map.span[kind];

		for (uint32_t slot = 0; slot < span->slots; slot++) {
			uint32_t page = span->slot[slot].page;

			if (!page)
				continue;
			model->mapped[page]++;
			model->used[page] += model->live[kind][slot] > 0;
		}
	}
}

/* Blocks are where they were given, none on another, and found by every address asked. */
static inline int model_blocks(struct model *model, uint64_t *state)
{
	struct glk_map *map = &model->rig->map;
	uint32_t count[GLK_KIND_COUNT] = {0};
	int wrong = 0;

	for (uint32_t i = 0; i < model->blocks; i++) {
		struct block *b = &model->block[i];
		struct glk_extent *e = glk_extent_at(map, b->id);
		uint64_t addr = map->span[b->kind].base + b->offset;

		count[b->kind]++;
		if (e->offset != b->offset || e->size != b->size)
			wrong += model_wrong("a block has moved", e->offset, b->offset);
		addr += seed_below(state, b->size);
		if (glk_map_span(map, addr) != &map->span[b->kind] ||
			glk_span_lookup(&map->span[b->kind], addr) !=
				(b->parked ? 0 : b->id))
			wrong += model_wrong("a block is not found", b->id, addr);
	}
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		if (map->span[kind].live_count != count[kind])
			wrong += model_wrong(
				"live extents", map->span[kind].live_count, count[kind]);
	}
	return wrong;
}

/* An address anywhere in a span belongs to whom the list says. */
static inline int model_address(struct model *model, enum glk_kind kind, uint64_t offset)
{
	struct glk_span *span = &model->rig->map.span[kind];
	uint32_t want = 0, got = glk_span_lookup(span, span->base + offset);

	for (uint32_t i = 0; i < model->blocks; i++) {
		struct block *b = &model->block[i];

		if (b->kind == kind && !b->parked && offset - b->offset < b->size)
			want = b->id;
	}
	return got == want ? 0 : model_wrong("an address belongs to", got, want);
}

/* One slot against the driver and against what else its page is mapped at. */
static inline int model_slot(struct model *model, struct glk_span *span, uint32_t slot)
{
	struct rig *rig = model->rig;
	uint64_t addr = span->base + ((uint64_t)slot << span->shift);
	uint32_t page = span->slot[slot].page, live = model->live[span->kind][slot];
	bool mapped = glk_bit_get(span->mapped, slot);
	bool usable = glk_bit_get(span->usable, slot);
	int wrong = 0;

	if (span->slot[slot].live != live)
		wrong += model_wrong("live on a slot", span->slot[slot].live, live);
	if (!page) {
		if (usable || live)
			wrong += model_wrong("usable without a page", slot, live);
		/* a contiguous page lies over slots that do not name it */
		if (span->kind != GLK_KIND_SINGLE &&
			mapped != !!fake_page_at(&rig->fake, addr))
			wrong += model_wrong("no page, mapped", slot, mapped);
		return wrong;
	}
	if (!mapped ||
		fake_page_at(&rig->fake, addr) != glk_map_page(&rig->map, page)->handle)
		wrong += model_wrong("another page is mapped", slot, page);
	if (!fake_access_at(&rig->fake, addr))
		wrong += model_wrong("no access to a slot", slot, page);
	if (usable != (live || !model->used[page]))
		wrong += model_wrong("usable", slot, usable);
	if (glk_slot_use(span, slot)->tick != model->page_tick[page])
		wrong += model_wrong("use of a page", glk_slot_use(span, slot)->tick,
			model->page_tick[page]);
	if (span->use[slot].tick < model->slot_tick[span->kind][slot])
		wrong += model_wrong("use of a slot", span->use[slot].tick,
			model->slot_tick[span->kind][slot]);
	return wrong;
}

/* Idle pages are those that are mapped and not in use, each once, in order. */
static inline int model_idle(struct model *model, enum glk_class class)
{
	struct glk_map *map = &model->rig->map;
	uint32_t before = 0, id = glk_idle_first(map, class), found = 0, want = 0;
	uint64_t bytes = 0;
	int wrong = 0;

	for (uint32_t page = 1; page < MODEL_PAGES; page++)
		want += model->mapped[page] && !model->used[page] &&
			glk_map_page(map, page)->class == class;
	for (; id && found <= want; id = glk_idle_next(map, id), found++) {
		uint32_t list = model->mapped[id] < GLK_IDLE_LISTS ? model->mapped[id]
								   : GLK_IDLE_LISTS;

		if (!model->mapped[id] || model->used[id] || list < before)
			wrong += model_wrong("idle page with mappings", id, list);
		before = list;
		bytes += glk_map_page(map, id)->size;
	}
	if (found != want)
		wrong += model_wrong("idle pages", found, want);
	if (class == GLK_CLASS_SMALL)
		for (id = glk_idle_first(map, GLK_CLASS_LARGE); id;
			id = glk_idle_next(map, id))
			bytes += glk_map_page(map, id)->size;
	if (class == GLK_CLASS_SMALL && bytes != map->idle_bytes)
		wrong += model_wrong("idle bytes", map->idle_bytes, bytes);
	return wrong;
}

/* Every page is in one place: mapped, free or lost; and the driver holds as much as booked. */
static inline int model_pages(struct model *model)
{
	struct rig *rig = model->rig;
	struct glk_node *node = &rig->pool.nodes[0];
	uint64_t mapped = 0, lost = 0, bytes = 0,
		 live = glk_load_relaxed(&rig->pool.pages.live);
	uint64_t free_pages = glk_load_relaxed(&node->free_count[GLK_CLASS_SMALL]) +
		glk_load_relaxed(&node->free_count[GLK_CLASS_LARGE]);
	int wrong = 0;

	for (uint32_t id = 1; id < MODEL_PAGES; id++) {
		struct glk_page *page = glk_page_at(&rig->pool, id);

		if (model->used[id] > 1)
			wrong += model_wrong("in use twice", id, model->used[id]);
		if (model->mapped[id] && glk_page_state(page) != GLK_PAGE_OWNED)
			wrong += model_wrong("mapped in state", id, glk_page_state(page));
		mapped += model->mapped[id] > 0;
		bytes += model->mapped[id] * page->size;
		lost += glk_page_state(page) == GLK_PAGE_LOST;
	}
	if (live != mapped + free_pages + lost)
		wrong += model_wrong("pages", live, mapped + free_pages + lost);
	if (bytes != rig->map.mapped_bytes)
		wrong += model_wrong("mapped bytes", rig->map.mapped_bytes, bytes);
	if (glk_load_relaxed(&node->held) != rig->fake.held || live != rig->fake.pages)
		wrong += model_wrong(
			"held", glk_load_relaxed(&node->held), rig->fake.held);
	return wrong;
}

/* All of it. */
static inline int model_check(struct model *model, uint64_t *state)
{
	int wrong = 0;

	model_count(model);
	wrong += model_blocks(model, state);
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		struct glk_span *span = &model->rig->map.span[kind];

		for (uint32_t slot = 0; slot < span->slots; slot++)
			wrong += model_slot(model, span, slot);
		wrong += model_address(
			model, (enum glk_kind)kind, seed_below(state, span->size));
		wrong += model_address(
			model, (enum glk_kind)kind, seed_below(state, span->high + 1));
	}
	wrong += model_idle(model, GLK_CLASS_SMALL);
	wrong += model_idle(model, GLK_CLASS_LARGE);
	wrong += model_pages(model);
	return wrong + !rig_sound(model->rig);
}

#endif
