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
#include "base/probe.h"

#include <errno.h>
#include <inttypes.h>

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
	glk_map_stock(map, id)->idle_slots -= glk_page_slots(map, page);
}

/* A page that nobody has and that has no mappings. */
static void put_free(struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);

	page->left = page->going > 0;
	if (!page->left)
		glk_node_put(glk_map_node(map, id), id);
}

void glk_page_put_back(struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	uint32_t first = page->first_alias, slots = glk_page_slots(map, page);

	if (!page->aliases) {
		put_free(map, id);
		return;
	}
	page->in_use = GLK_NO_SLOT;
	set_usable(map, page, true);
	glk_map_stock(map, id)->idle_slots += slots;
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
	bool host = glk_map_is_host(map, id);

	if (page->aliases == 1)
		make_shared(map, page);
	if (!page->aliases)
		glk_map_stock(map, id)->page_bytes += page->size;
	glk_use_set(map, slot, last, page->aliases ? &never : &page->use);
	/* pairs with: the look at the pages of a live block */
	for (uint32_t i = slot; i <= last; i++)
		glk_store_release(&map->page[i], id);
	glk_bit_set(map->head, slot);
	if (slot != last)
		glk_bits_set(map->wide, slot, last);
	map->alias[slot] = page->first_alias;
	page->first_alias = slot;
	page->in_use = slot;
	glk_page_use_at(map, page, slot);
	if (page->aliases++)
		glk_bits_set(map->shared, slot, last);
	glk_bits_set(map->mapped, slot, last);
	glk_bits_clear(map->lost, slot, last);
	glk_bits_set(map->usable, slot, last);
	map->space->mapped_bytes += page->size;
	if (host) {
		glk_bits_set(map->host, slot, last);
		glk_slot_map(map, slot)->hosted += last - slot + 1;
	}
}

static int check_aliases(
	const struct glk_map *map, const uint32_t *pages, uint32_t count, int most)
{
	for (uint32_t i = 0; i < count; i++) {
		if (glk_map_page(map, pages[i])->aliases >= most)
			return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
				"page %" PRIu32
				" has all the %d mappings a page may have",
				pages[i], most);
	}
	return 0;
}

/* Without the lock: what the driver is asked. Says how many pages stay mapped after an error. */
static int map_pages(const struct glk_map *map, uint64_t addr, const uint32_t *pages,
	uint32_t count, const struct glk_grants *grants, uint32_t *ret_kept)
{
	struct glk_drv *drv = map->pool->drv;
	uint64_t at = addr;
	uint32_t done = 0;
	int err = 0;

	for (; done < count && !err; done += !err) {
		const struct glk_page *page = glk_map_page(map, pages[done]);

		err = drv->ops->map(drv, at, page->size, page->handle);
		at += err ? 0 : page->size;
	}
	if (!err)
		err = drv->ops->set_access(
			drv, addr, at - addr, grants->of, grants->count);
	if (err && done && drv->ops->unmap(drv, addr, at - addr))
		*ret_kept = done;
	GLK_PROBE3(map, addr, at - addr, err);
	return err;
}

/* What was mapped, or with an error what the driver has kept of it. */
static void book_made(struct glk_map *map, uint32_t slot, const uint32_t *pages,
	uint32_t count, int err)
{
	for (uint32_t i = 0; i < count; i++) {
		struct glk_mapping m = {slot, slot};

		glk_mapping_book(map, slot, pages[i]);
		m.last += glk_page_slots(map, glk_map_page(map, pages[i])) - 1;
		slot = m.last + 1;
		if (!err)
			continue;
		/* in nobody's use: it goes at once, and did not */
		glk_bits_clear(map->usable, m.first, m.last);
		glk_map_page(map, map->page[m.first])->in_use = GLK_NO_SLOT;
		glk_mapping_detach(map, m.first, m.last);
		glk_mapping_gone(map, m.first, m.last, err, true);
	}
}

static int make(struct glk_map *map, uint32_t slot, const uint32_t *pages, uint32_t count,
	enum glk_access access)
{
	struct glk_grants grants = glk_map_grants(map, access);
	uint64_t addr = glk_slot_addr(map, slot);
	uint32_t kept = 0;
	int err;

	glk_map_pause(map);
	err = map_pages(map, addr, pages, count, &grants, &kept);
	glk_map_resume(map);
	book_made(map, slot, pages, err ? kept : count, err);
	return err;
}

static uint32_t slots_of(struct glk_stretch run)
{
	return run.last - run.first + 1;
}

int glk_mapping_make_runs(struct glk_map *map, const struct glk_stretch *runs,
	uint32_t count, const uint32_t *pages)
{
	uint32_t kept[GLK_MAPPING_RUNS], done = 0, at = 0;
	struct glk_grants grants;
	int err = 0;

	for (uint32_t i = 0; i < count; i++)
		at += slots_of(runs[i]);
	err = check_aliases(map, pages, at, UINT8_MAX);
	if (err)
		return err;
	grants = glk_map_grants(map, GLK_ACCESS_WRITE);
	glk_map_pause(map);
	for (at = 0; done < count && !err; done++) {
		kept[done] = 0;
		err = map_pages(map, glk_slot_addr(map, runs[done].first), pages + at,
			slots_of(runs[done]), &grants, &kept[done]);
		at += slots_of(runs[done]);
	}
	for (uint32_t i = 0; err && i + 1 < done; i++) {
		if (glk_mapping_unmap(
			    map, glk_slot_addr(map, runs[i].first), slots_of(runs[i])))
			kept[i] = slots_of(runs[i]);
	}
	glk_map_resume(map);
	at = 0;
	for (uint32_t i = 0; i < done; i++) {
		book_made(map, runs[i].first, pages + at,
			err ? kept[i] : slots_of(runs[i]), err);
		at += slots_of(runs[i]);
	}
	return err;
}

int glk_mapping_make(
	struct glk_map *map, uint32_t slot, const uint32_t *pages, uint32_t count)
{
	int err = check_aliases(map, pages, count, UINT8_MAX);

	return err ? err : make(map, slot, pages, count, GLK_ACCESS_WRITE);
}

int glk_mapping_make_sealed(
	struct glk_map *map, uint32_t slot, const uint32_t *pages, uint32_t count)
{
	int err = check_aliases(map, pages, count, GLK_SEALERS_MAX);

	return err ? err : make(map, slot, pages, count, GLK_ACCESS_READ);
}

int glk_mapping_open(const struct glk_map *map, uint32_t first, uint32_t last)
{
	struct glk_grants grants = glk_map_grants(map, GLK_ACCESS_WRITE);
	struct glk_drv *drv = map->pool->drv;
	int err;

	glk_map_pause(map);
	err = drv->ops->set_access(drv, glk_slot_addr(map, first),
		(size_t)(last - first + 1) << map->shift, grants.of, grants.count);
	glk_map_resume(map);
	return err;
}

int glk_mapping_unmap(const struct glk_map *map, uint64_t addr, uint32_t slots)
{
	struct glk_drv *drv = map->pool->drv;

	GLK_PROBE2(unmap, addr, (size_t)slots << map->shift);
	return drv->ops->unmap(drv, addr, (size_t)slots << map->shift);
}

/* Takes a mapping out of the chain of its page. */
static void unchain(struct glk_map *map, struct glk_mapping m, struct glk_page *page)
{
	struct glk_stock *stock = glk_map_stock(map, map->page[m.first]);
	uint32_t *link = &page->first_alias;

	while (*link != m.first)
		link = &map->alias[*link];
	*link = map->alias[m.first];
	if (page->aliases == 1)
		page->use = glk_use_sum(map, m.first, m.last);
	if (--page->aliases) {
		glk_page_use_at(map, page,
			page->in_use == GLK_NO_SLOT ? page->first_alias : page->in_use);
	} else {
		stock->page_bytes -= page->size;
		if (page->map)
			page->map->held -= page->size;
		page->map = NULL;
	}
	glk_bits_clear(map->shared, m.first, m.last);
	glk_bits_clear(map->usable, m.first, m.last);
	glk_bits_clear(map->wide, m.first, m.last);
	glk_bit_clear(map->head, m.first);
	for (uint32_t i = m.first; i <= m.last; i++)
		glk_store_release(&map->page[i], 0); /* likewise */
	map->space->mapped_bytes -= page->size;
	if (glk_bit_get(map->host, m.first)) {
		glk_bits_clear(map->host, m.first, m.last);
		glk_slot_map(map, m.first)->hosted -= m.last - m.first + 1;
	}
	if (page->aliases == 1)
		make_single(map, page);
}

/* Whether live extents touch one of the mappings that a page has. */
static bool is_used(const struct glk_map *map, const struct glk_page *page)
{
	uint32_t first = page->aliases > 1 ? page->in_use : page->first_alias;

	if (page->sealed)
		return page->sealers > 0;
	return page->aliases && first != GLK_NO_SLOT &&
		glk_bits_any(map->busy, first, first + glk_page_slots(map, page) - 1);
}

/* Whether nobody uses or has a page; of one that is taken the mappings are stale. */
static bool is_idle(const struct glk_map *map, const struct glk_page *page)
{
	if (page->sealed)
		return false;
	if (!page->aliases)
		return page->left;
	return glk_bit_get(map->usable, page->first_alias) && !is_used(map, page);
}

/* The page that a mapping had which is about to go lies where the link of the mapping was. */
static void detach(struct glk_map *map, struct glk_mapping m)
{
	uint32_t id = map->page[m.first];
	struct glk_page *page = glk_map_page(map, id);
	bool idle = is_idle(map, page);

	unchain(map, m, page);
	map->alias[m.first] = id;
	page->going++;
	if (idle && !page->aliases) {
		glk_map_stock(map, id)->idle_slots -= glk_page_slots(map, page);
		page->left = true;
	} else if (idle) {
		glk_idle_list(map, page->first_alias);
	}
}

void glk_mapping_detach(struct glk_map *map, uint32_t first, uint32_t last)
{
	for (uint32_t slot = first; slot <= last;) {
		struct glk_mapping m = glk_mapping_at(map, slot);

		detach(map, m);
		slot = m.last + 1;
	}
}

/*
 * The driver kept a mapping. Its slots stay out of use for good: marked as mapped, not usable,
 * without a page, which no search accepts.
 */
static void quarantine(struct glk_map *map, uint32_t slot, uint32_t id, bool own)
{
	struct glk_page *page = glk_map_page(map, id);
	bool idle = is_idle(map, page);

	if (glk_page_state(page) != GLK_PAGE_OWNED)
		return; /* lost with an earlier one */
	glk_warn("slot %" PRIu32 " could not be unmapped and stays out of use", slot);
	page->kept = true;
	if (!idle && (!own || is_used(map, page)))
		return;
	if (idle && page->aliases)
		glk_map_stock(map, id)->idle_slots -= glk_page_slots(map, page);
	page->left = false;
	while (page->aliases) {
		struct glk_mapping m = glk_mapping_at(map, page->first_alias);

		/* their slots stay mapped as well */
		unchain(map, m, page);
	}
	glk_node_lose(glk_map_node(map, id), id);
}

void glk_mapping_gone(
	struct glk_map *map, uint32_t first, uint32_t last, int err, bool own)
{
	for (uint32_t slot = first, behind; slot <= last; slot = behind) {
		uint32_t id = map->alias[slot];
		struct glk_page *page = glk_map_page(map, id);

		behind = slot + glk_page_slots(map, page);
		page->going--;
		if (err)
			quarantine(map, slot, id, own);
		else
			glk_bits_clear(map->mapped, slot, behind - 1);
		if (page->left && !page->going)
			put_free(map, id);
	}
}

int glk_mapping_remove(struct glk_map *map, uint32_t first, uint32_t last)
{
	uint64_t addr = glk_slot_addr(map, first);
	int err;

	glk_mapping_detach(map, first, last);
	glk_map_pause(map);
	err = glk_mapping_unmap(map, addr, last - first + 1);
	glk_map_resume(map);
	glk_mapping_gone(map, first, last, err, true);
	return err;
}
