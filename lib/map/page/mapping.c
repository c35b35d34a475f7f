/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Mappings come and go here. Every step is undone exactly when the driver refuses it.
 *
 * Most pages have one mapping. What is known of those lies by slot alone; a page with several
 * keeps in its descriptor when it was last used through any of them, and which one it is in use
 * through.
 */
#include "map/map.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>

static size_t run_bytes(const struct glk_map *map, uint32_t first, uint32_t last)
{
	return (size_t)(last - first + 1) << map->shift;
}

struct glk_use glk_page_use(const struct glk_map *map, uint32_t id)
{
	const struct glk_page *page = glk_map_page(map, id);

	if (page->aliases != 1)
		return page->use;
	return glk_use_sum(map, page->first_alias,
		page->first_alias + glk_page_slots(map, page) - 1);
}

/* Of all mappings of a page. They are counted, because the link of the last one lies in a cache
 * line that nothing else here needs. */
static void set_usable(struct glk_map *map, const struct glk_page *page, bool usable)
{
	uint32_t first = page->first_alias, slots = glk_page_slots(map, page);

	for (unsigned left = page->aliases; left; left--) {
		if (usable)
			glk_bits_set(map->usable, first, first + slots - 1);
		else
			glk_bits_clear(map->usable, first, first + slots - 1);
		if (left > 1)
			first = map->alias[first];
	}
}

void glk_page_take(struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);

	if (!page->aliases)
		return;
	set_usable(map, page, false);
	map->idle_slots -= glk_page_slots(map, page);
}

void glk_page_put_back(struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	uint32_t first = page->first_alias, slots = glk_page_slots(map, page);

	if (!page->aliases) {
		glk_node_put(map->node, id);
		return;
	}
	page->in_use = GLK_NO_SLOT;
	set_usable(map, page, true);
	map->idle_slots += slots;
	glk_idle_touch(map, first, first + slots - 1);
}

/* A second mapping: from now on the page keeps what its one mapping kept for it. */
static void make_shared(struct glk_map *map, struct glk_page *page)
{
	uint32_t first = page->first_alias, last = first + glk_page_slots(map, page) - 1;

	page->use = glk_use_sum(map, first, last);
	glk_bits_set(map->shared, first, last);
}

/* Back to one mapping: its slots keep everything again. */
static void make_single(struct glk_map *map, struct glk_page *page)
{
	uint32_t first = page->first_alias, last = first + glk_page_slots(map, page) - 1;

	glk_use_join(map, first, last, &page->use);
	glk_bits_clear(map->shared, first, last);
}

void glk_mapping_book(struct glk_map *map, uint32_t slot, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	uint32_t last = slot + glk_page_slots(map, page) - 1;
	struct glk_use never = {0};

	if (page->aliases == 1)
		make_shared(map, page);
	if (!page->aliases)
		map->page_bytes += page->size;
	glk_use_set(map, slot, last, page->aliases ? &never : &page->use);
	for (uint32_t i = slot; i <= last; i++)
		map->page[i] = id;
	glk_bit_set(map->head, slot);
	if (slot != last)
		glk_bits_set(map->wide, slot, last);
	map->alias[slot] = page->first_alias;
	page->first_alias = slot;
	page->in_use = slot;
	if (page->aliases++)
		glk_bits_set(map->shared, slot, last);
	glk_bits_set(map->mapped, slot, last);
	glk_bits_set(map->usable, slot, last);
	map->mapped_bytes += page->size;
}

int glk_mapping_make(struct glk_map *map, uint32_t slot, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	struct glk_drv *drv = map->pool->drv;
	int err;

	if (page->aliases == UINT8_MAX)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"page %" PRIu32 " has all the %d mappings a page may have", id,
			UINT8_MAX);
	err = drv->ops->map(drv, glk_slot_addr(map, slot), page->size, page->handle);
	if (!err)
		glk_mapping_book(map, slot, id);
	return err;
}

int glk_mapping_prepare(
	const struct glk_map *map, uint64_t addr, uint32_t id, bool *ret_mapped)
{
	const struct glk_page *page = glk_map_page(map, id);
	struct glk_drv *drv = map->pool->drv;
	int err;

	err = drv->ops->map(drv, addr, page->size, page->handle);
	*ret_mapped = !err;
	return err ? err : glk_map_allow(map, addr, page->size);
}

int glk_mapping_grant(const struct glk_map *map, uint32_t first, uint32_t last)
{
	return glk_map_allow(
		map, glk_slot_addr(map, first), run_bytes(map, first, last));
}

/* Takes a mapping out of the chain of its page. */
static void unchain(struct glk_map *map, struct glk_mapping m, struct glk_page *page)
{
	uint32_t *link = &page->first_alias;

	while (*link != m.first)
		link = &map->alias[*link];
	*link = map->alias[m.first];
	if (page->aliases == 1)
		page->use = glk_use_sum(map, m.first, m.last);
	if (!--page->aliases)
		map->page_bytes -= page->size;
	glk_bits_clear(map->shared, m.first, m.last);
	glk_bits_clear(map->usable, m.first, m.last);
	glk_bits_clear(map->wide, m.first, m.last);
	glk_bit_clear(map->head, m.first);
	for (uint32_t i = m.first; i <= m.last; i++)
		map->page[i] = 0;
	map->mapped_bytes -= page->size;
	if (page->aliases == 1)
		make_single(map, page);
}

/* Whether a page is idle, as it stands; of one that is taken the mappings are stale. */
static bool is_idle(const struct glk_map *map, struct glk_mapping m)
{
	return glk_bit_get(map->usable, m.first) &&
		!glk_bits_any(map->busy, m.first, m.last);
}

/* Whether it is in use through another mapping than this one. */
static bool is_used_elsewhere(
	const struct glk_map *map, const struct glk_page *page, struct glk_mapping m)
{
	uint32_t slots = glk_page_slots(map, page);

	return page->aliases > 1 && page->in_use != GLK_NO_SLOT &&
		page->in_use != m.first &&
		glk_bits_any(map->busy, page->in_use, page->in_use + slots - 1);
}

/*
 * The driver kept a mapping. Its slots stay out of use for good: marked as mapped, not usable,
 * without a page, which no search accepts. The page is lost with all its mappings, unless a
 * live extent is on it: then when it would be released.
 */
static void quarantine(struct glk_map *map, uint32_t slot, uint32_t id, bool busy)
{
	struct glk_page *page = glk_map_page(map, id);

	glk_warn("slot %" PRIu32 " could not be unmapped and stays out of use", slot);
	page->kept = true;
	if (busy)
		return;
	while (page->aliases) {
		struct glk_mapping m = glk_mapping_at(map, page->first_alias);

		/* their slots stay mapped as well */
		unchain(map, m, page);
	}
	glk_node_lose(map->node, id);
}

/* Books a mapping as gone, or as kept by the driver when it answered `err`. */
static void forget(struct glk_map *map, struct glk_mapping m, int err)
{
	uint32_t id = map->page[m.first];
	struct glk_page *page = glk_map_page(map, id);
	bool idle = is_idle(map, m), busy = is_used_elsewhere(map, page, m);

	if (idle)
		map->idle_slots -= glk_page_slots(map, page);
	unchain(map, m, page);
	if (err) {
		quarantine(map, m.first, id, busy);
		return;
	}
	glk_bits_clear(map->mapped, m.first, m.last);
	if (!idle)
		return;
	if (!page->aliases) {
		glk_node_put(map->node, id);
		return;
	}
	map->idle_slots += glk_page_slots(map, page);
	glk_idle_list(map, page->first_alias);
}

int glk_mapping_remove(struct glk_map *map, uint32_t first, uint32_t last)
{
	struct glk_drv *drv = map->pool->drv;
	int err;

	err = drv->ops->unmap(drv, glk_slot_addr(map, first), run_bytes(map, first, last));
	for (uint32_t slot = first; slot <= last;) {
		struct glk_mapping m = {slot, slot};

		/* a page that was lost with an earlier slot took this one with it */
		if (map->page[slot]) {
			m = glk_mapping_at(map, slot);
			forget(map, m, err);
		}
		slot = m.last + 1;
	}
	return err;
}
