/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A block stands on sealed pages, which others may stand on: see seal.h. */
#include "cache/sealed.h"

#include "cache/arena/request.h"
#include "cache/cache.h"

void glk_seal_promise(const struct glk_arena *arena, uint32_t slot, uint32_t count)
{
	const struct glk_map *map = &arena->map;
	struct glk_drv *drv = map->pool->drv;

	glk_map_pause(map);
	drv->ops->promise(drv, glk_slot_addr(map, slot), (size_t)count << map->shift);
	glk_map_resume(map);
}

static uint32_t slots_of(const struct glk_map *map, uint32_t page)
{
	return glk_page_slots(map, glk_map_page(map, page));
}

/* A sealed page that is mapped there already, from an earlier time, needs nothing. */
static bool lies_there(const struct glk_map *map, uint32_t slot, uint32_t page)
{
	return map->page[slot] == page && glk_bit_get(map->head, slot) &&
		!glk_is_claimed(map, slot, slot + slots_of(map, page) - 1);
}

static int map_there(struct glk_arena *arena, uint32_t slot, uint32_t last,
	const uint32_t *pages, uint32_t count)
{
	struct glk_map *map = &arena->map;
	int err = glk_arena_clear(arena, slot, last);

	if (err)
		return err;
	glk_claim(map, slot, last);
	glk_plan_begin(arena->gpu);
	err = glk_mapping_make_sealed(map, slot, pages, count);
	glk_unclaim(map, slot, last);
	glk_plan_end(arena->gpu);
	return err;
}

int glk_seal_stand(struct glk_arena *arena, struct glk_extent *e, uint32_t slot,
	const uint32_t *pages, uint32_t count)
{
	struct glk_map *map = &arena->map;
	uint32_t there = 0, from = slot, behind;
	int err = 0;

	while (there < count && lies_there(map, from, pages[there]))
		from += slots_of(map, pages[there++]);
	behind = from;
	for (uint32_t i = there; i < count; i++)
		behind += slots_of(map, pages[i]);
	if (there < count)
		err = map_there(arena, from, behind - 1, pages + there, count - there);
	if (err)
		return err;
	if (there)
		glk_bits_set(map->usable, slot, from - 1);
	glk_seal_enter(map, slot, behind - 1);
	glk_sums_forget(arena->gpu, slot, behind - slot);
	glk_part_at(arena->gpu, e)->sealed += behind - slot;
	/* a mapping from before the page was sealed may be written by rights */
	if (there)
		glk_seal_promise(arena, slot, from - slot);
	return 0;
}

int glk_seal_come(struct glk_arena *arena, struct glk_extent *e, uint32_t slot)
{
	uint32_t word = *glk_part_word(arena, e, slot);

	return glk_seal_stand(arena, e, slot, &glk_seal_at(arena->gpu, word)->page, 1);
}

void glk_seal_came(
	struct glk_arena *arena, struct glk_extent *e, uint32_t slot, uint32_t word)
{
	struct glk_kept_seal *k = glk_seal_at(arena->gpu, word);

	k->page = arena->map.page[slot];
	glk_map_page(&arena->map, k->page)->kept_as = word & GLK_KEPT_RUN;
	glk_seal_page(arena, e, slot);
	glk_seal_promise(arena, slot, slots_of(&arena->map, k->page));
}
