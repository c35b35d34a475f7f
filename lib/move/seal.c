/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is kept of sealed pages: see seal.h. */
#include "move/seal.h"

#include "base/error.h"
#include "base/thread.h"
#include "move/plan.h"

#include <errno.h>
#include <inttypes.h>

struct glk_kept_seal *glk_seal_at(const struct glk_cache *cache, uint32_t word)
{
	return glk_slab_at(&cache->seals, word & GLK_KEPT_RUN);
}

uint32_t glk_seal_run(const struct glk_cache *cache, uint32_t word)
{
	return word & GLK_KEPT_SEALED ? glk_seal_at(cache, word)->run
				      : word & GLK_KEPT_RUN;
}

/* A record for a page, with its contents. */
static int keep(struct glk_arena *arena, struct glk_extent *e, uint32_t slot,
	const struct glk_part_way *way, struct glk_use *use, uint32_t *ret_id)
{
	struct glk_cache *cache = arena->gpu;
	uint32_t page = arena->map.page[slot], run = 0, id = glk_slab_get(&cache->seals);
	struct glk_page *p = glk_map_page(&arena->map, page);
	uint64_t addr = glk_slot_addr(&arena->map, slot);
	int err = 0;

	if (!id)
		return -ENOMEM;
	if (!way->drop)
		err = glk_move_out(&cache->mover, addr, p->size, use, &run);
	if (err) {
		glk_slab_put(&cache->seals, id);
		return err;
	}
	*(struct glk_kept_seal *)glk_slab_at(&cache->seals, id) =
		(struct glk_kept_seal){.page = page, .run = run};
	p->kept_as = id;
	/* what others have made comes back as a page of its own */
	if (p->elsewhere) {
		p->elsewhere = false;
		glk_seal_count(arena, e, -p->size);
		arena->ops->grew(arena, e, p->size, p->size);
	}
	*ret_id = id;
	return 0;
}

int glk_seal_keep(struct glk_arena *arena, struct glk_extent *e, uint32_t slot,
	const struct glk_part_way *way, struct glk_use *use, uint32_t *ret_word)
{
	uint32_t id = glk_map_page(&arena->map, arena->map.page[slot])->kept_as;
	int err = id ? 0 : keep(arena, e, slot, way, use, &id);

	if (err)
		return err;
	*ret_word = id | GLK_KEPT_SEALED | way->why;
	glk_seal_at(arena->gpu, id)->refs++;
	return 0;
}

void glk_seal_left(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s)
{
	for (uint32_t slot = s.first, behind; slot <= s.last; slot = behind) {
		struct glk_page *page = glk_map_page(&arena->map, arena->map.page[slot]);

		behind = slot + glk_page_slots(&arena->map, page);
		if (page->sealers || !page->kept_as)
			continue;
		glk_seal_at(arena->gpu, page->kept_as)->page = 0;
		page->kept_as = 0;
	}
	glk_part_at(arena->gpu, e)->sealed -= s.last - s.first + 1;
}

void glk_seal_unref(struct glk_cache *cache, uint32_t word, uint64_t read)
{
	struct glk_kept_seal *k = glk_seal_at(cache, word);

	/* they may still be on their way to the page of a piece that came before */
	k->read = k->read < read ? read : k->read;
	if (--k->refs)
		return;
	if (k->page)
		glk_map_page(&cache->arena.map, k->page)->kept_as = 0;
	if (k->run)
		glk_store_put(&cache->mover.store, k->run, k->read);
	glk_slab_put(&cache->seals, word & GLK_KEPT_RUN);
}

bool glk_seal_is_here(const struct glk_cache *cache, uint32_t word)
{
	return word & GLK_KEPT_SEALED && glk_seal_at(cache, word)->page;
}

bool glk_seal_stays(const struct glk_arena *arena, uint32_t slot, uint32_t word)
{
	const struct glk_kept_seal *k = word ? glk_seal_at(arena->gpu, word) : NULL;
	const struct glk_page *page;

	if (k)
		return k->refs > 1 ||
			(k->page && glk_map_page(&arena->map, k->page)->sealers);
	page = glk_map_page(&arena->map, arena->map.page[slot]);
	if (page->kept_as)
		k = glk_seal_at(arena->gpu, page->kept_as);
	return page->elsewhere || (k ? k->refs : 0) + page->sealers > 1;
}

bool glk_seal_page(struct glk_arena *arena, struct glk_extent *e, uint32_t slot)
{
	struct glk_mapping m = glk_mapping_at(&arena->map, slot);

	if (glk_is_sealed(&arena->map, slot))
		return false;
	glk_seal_begin(&arena->map, m);
	glk_part_at(arena->gpu, e)->sealed += m.last - m.first + 1;
	glk_sums_forget(arena->gpu, m.first, m.last - m.first + 1);
	return true;
}

void glk_seal_count(struct glk_arena *arena, struct glk_extent *e, uint64_t bytes)
{
	glk_part_at(arena->gpu, e)->shared += bytes;
	arena->gpu->shared += bytes;
	arena->gpu->bare -= bytes;
}
