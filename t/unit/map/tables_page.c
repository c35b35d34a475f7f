/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The half of map_verify() that asks behind the slots: each mapping is whole, the chain of
 * its page agrees with it, and whether it is usable follows from who is busy where.
 */
#include "unit/map/tables.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>

struct tally {
	struct glk_map *map;
	uint64_t mapped_bytes;
	struct glk_stock of[GLK_OF_COUNT];
	uint64_t held;	   /* of the map */
	uint32_t mappings; /* met, less those in the chains of the pages that were met */
	uint32_t hosted;   /* likewise */
	uint64_t waits;	   /* bytes of pages that were sealed and are in nobody's use */
};

/* What the chain of a page says. */
struct chain {
	uint32_t busy;	 /* mappings that live extents touch */
	uint32_t in_use; /* first slot of such a one */
};

/* The chain of a page, in which the mapping at slot `name` is once. */
static int check_chain(
	struct glk_map *map, uint32_t id, uint32_t name, struct chain *ret_chain)
{
	const struct glk_page *page = glk_map_page(map, id);
	uint32_t slots = glk_page_slots(map, page), at = page->first_alias;
	uint32_t found = 0, length = 0;
	struct chain chain = {.in_use = GLK_NO_SLOT};

	for (; at != GLK_NO_SLOT && length <= page->aliases; length++) {
		if (at >= map->space->capacity || map->page[at] != id)
			return map_unsound("page %" PRIu32 ": slot %" PRIu32
					   " of its chain does not hold it",
				id, at);
		found += at == name;
		if (glk_bits_any(map->busy, at, at + slots - 1)) {
			chain.busy++;
			chain.in_use = at;
		}
		at = map->alias[at];
	}
	if (length != page->aliases || at != GLK_NO_SLOT || found != 1)
		return map_unsound("page %" PRIu32 ": %" PRIu32
				   " mappings in its chain, %d counted, slot %" PRIu32
				   " %" PRIu32 " times",
			id, length, page->aliases, name, found);
	if (page->sealed && (page->sealers != chain.busy || page->in_use != GLK_NO_SLOT))
		return map_unsound("page %" PRIu32 ": sealed, in use through %" PRIu32
				   " mappings, counted as %d",
			id, chain.busy, page->sealers);
	if (chain.busy > 1 && !page->sealed)
		return map_unsound("page %" PRIu32 ": in use through %" PRIu32
				   " mappings at once",
			id, chain.busy);
	*ret_chain = chain;
	return 0;
}

/* A page is of the node of the space, or of the host near it. */
static bool is_known(const struct glk_map *map, const struct glk_page *page)
{
	return page->node == map->node->index ||
		map->pool->nodes[page->node].gpu == map->node;
}

/* A page, asked at its most recent mapping. */
static int check_page(struct tally *t, uint32_t id, const struct chain *chain)
{
	const struct glk_map *map = t->map;
	const struct glk_page *page = glk_map_page(map, id);
	bool host = glk_map_is_host(map, id);
	struct glk_stock *stock = &t->of[host];

	t->mappings -= page->aliases;
	stock->page_bytes += page->size;
	t->held += page->map == map ? page->size : 0;
	if (page->class != glk_node_class(map->node, page->size) || !is_known(map, page))
		return map_unsound("page %" PRIu32 ": %" PRIu64
				   " bytes, of class %d and node %d",
			id, page->size, page->class, page->node);
	if (page->aliases > 1 && !page->sealed && page->in_use != chain->in_use)
		return map_unsound("page %" PRIu32 ": in use at slot %" PRIu32
				   ", which it holds at %" PRIu32,
			id, chain->in_use, page->in_use);
	if (page->node == map->node->index &&
		page->map !=
			glk_slot_map(
				map, chain->busy ? chain->in_use : page->first_alias) &&
		(chain->busy || !page->map))
		return map_unsound("page %" PRIu32 ": used last in another map", id);
	t->waits += page->sealed && !chain->busy ? page->size : 0;
	if (chain->busy || page->sealed)
		return 0;
	stock->idle_slots += glk_page_slots(map, page);
	if (!glk_idle_listed(
		    &map->space->of[host], (page->first_alias >> GLK_GROUP_SHIFT) + 1))
		return map_unsound("page %" PRIu32 ": idle at slot %" PRIu32
				   ", in a group on no list",
			id, page->first_alias);
	return 0;
}

/* The bits of a mapping: all alike, and what they follow from. */
static int check_bits(
	const struct glk_map *map, struct glk_mapping m, bool shared, bool usable)
{
	uint32_t slots = m.last - m.first + 1;

	for (uint32_t slot = m.first; slot <= m.last; slot++) {
		if (map->page[slot] != map->page[m.first])
			return map_unsound("slot %" PRIu32 ": page %" PRIu32
					   ", inside a mapping of page %" PRIu32,
				slot, map->page[slot], map->page[m.first]);
	}
	if (!glk_bits_all(map->mapped, m.first, m.last))
		return map_unsound("slot %" PRIu32
				   ": a mapping begins there that is not mapped",
			m.first);
	if (glk_bits_count(map->shared, m.first, m.last) != (shared ? slots : 0))
		return map_unsound("slot %" PRIu32 ": shared on %" PRIu32 " of %" PRIu32
				   " slots, its page has %s",
			m.first, glk_bits_count(map->shared, m.first, m.last), slots,
			shared ? "several mappings" : "one mapping");
	if (glk_bits_first(map->head, m.first, m.last) != m.first ||
		glk_bits_count(map->head, m.first, m.last) != 1)
		return map_unsound("slot %" PRIu32
				   ": a mapping begins there and is not marked so",
			m.first);
	if (glk_bits_count(map->wide, m.first, m.last) != (slots > 1 ? slots : 0))
		return map_unsound("slot %" PRIu32 ": wide on %" PRIu32 " of %" PRIu32
				   " slots",
			m.first, glk_bits_count(map->wide, m.first, m.last), slots);
	if (glk_bits_any(map->lost, m.first, m.last))
		return map_unsound(
			"slot %" PRIu32 ": said to be lost, and mapped", m.first);
	if (glk_bits_count(map->usable, m.first, m.last) != (usable ? slots : 0))
		return map_unsound("slot %" PRIu32 ": usable on %" PRIu32 " of %" PRIu32
				   " slots, its page is %s",
			m.first, glk_bits_count(map->usable, m.first, m.last), slots,
			usable ? "idle or in use here" : "in use elsewhere");
	return 0;
}

/* The mapping that begins at a slot, which has a page. */
static int check_mapping(struct tally *t, uint32_t first, uint32_t *ret_last)
{
	struct glk_map *map = t->map;
	uint32_t id = map->page[first];
	const struct glk_page *page = glk_map_page(map, id);
	const struct glk_range *range =
		map->space->range[((uint64_t)first << map->shift) >> GLK_RANGE_SHIFT];
	enum glk_page_state state = GLK_PAGE_EMPTY;
	struct glk_mapping m = {first, first};
	struct chain chain = {0};
	bool usable;
	int err;

	if (id <= glk_load_relaxed(&map->pool->pages.used))
		state = glk_page_state(page);
	if (state != GLK_PAGE_OWNED)
		return map_unsound("slot %" PRIu32 ": page %" PRIu32 " is %s", first, id,
			glk_page_state_name(state));
	if (!page->size || page->size & (glk_slot_bytes(map) - 1) ||
		((uint64_t)first << map->shift) + page->size >
			range->offset + range->size)
		return map_unsound("slot %" PRIu32 ": page %" PRIu32 " of %" PRIu64
				   " bytes, which are not whole slots of a range",
			first, id, page->size);
	err = check_chain(map, id, first, &chain);
	if (err)
		return err;
	m.last = first + glk_page_slots(map, page) - 1;
	usable = page->sealed ? glk_bit_get(map->busy, first)
			      : !chain.busy || chain.in_use == first;
	err = check_bits(map, m, page->aliases > 1, usable);
	if (!err &&
		glk_bits_count(map->sealed, m.first, m.last) !=
			(page->sealed && usable ? m.last - m.first + 1 : 0))
		err = map_unsound("slot %" PRIu32 ": marked as sealed, or not", first);
	t->mappings++;
	t->mapped_bytes += page->size;
	if (glk_bits_count(map->host, m.first, m.last) !=
		(glk_map_is_host(map, id) ? m.last - m.first + 1 : 0))
		return map_unsound("slot %" PRIu32
				   ": on the host, or not, and page %" PRIu32,
			first, id);
	if (glk_slot_map(map, first) == map && glk_map_is_host(map, id))
		t->hosted += m.last - m.first + 1;
	if (chain.in_use == first && !page->sealed)
		t->of[glk_map_is_host(map, id)].stranded +=
			m.last - m.first + 1 - glk_bits_count(map->busy, m.first, m.last);
	if (!err && page->first_alias == first)
		err = check_page(t, id, &chain);
	*ret_last = m.last;
	return err;
}

/* Mapped without a page is what the driver would not unmap. A live extent has none where its contents
 * were lost. */
static int check_none(const struct glk_map *map, uint32_t slot)
{
	if (glk_bit_get(map->usable, slot) || glk_bit_get(map->shared, slot) ||
		(glk_bit_get(map->busy, slot) && !glk_bit_get(map->lost, slot)) ||
		glk_bit_get(map->sealed, slot) || glk_bit_get(map->head, slot) ||
		glk_bit_get(map->wide, slot))
		return map_unsound("slot %" PRIu32
				   ": usable %d, shared %d, busy %d, no page",
			slot, glk_bit_get(map->usable, slot),
			glk_bit_get(map->shared, slot), glk_bit_get(map->busy, slot));
	return 0;
}

static int check_slots(struct tally *t)
{
	struct glk_map *map = t->map;
	uint32_t end = glk_space_end(map->space), most = map->space->capacity - 1;
	int err = 0;

	for (uint32_t slot = 0; slot < end && !err; slot++) {
		if (map->page[slot])
			err = check_mapping(t, slot, &slot);
		else
			err = check_none(map, slot);
	}
	if (!err && t->mappings)
		err = map_unsound("mappings overlap, or lie in a chain and nowhere else");
	if (!err && end <= most &&
		(glk_bits_any(map->mapped, end, most) ||
			glk_bits_any(map->usable, end, most) ||
			glk_bits_any(map->busy, end, most)))
		err = map_unsound("slots are in use above the high-water mark");
	return err;
}

/* The list of groups, from either end. */
static int check_list(const struct glk_map *map, const struct glk_stock *stock)
{
	uint32_t groups = ((map->space->capacity - 1) >> GLK_GROUP_SHIFT) + 1, length = 0;
	uint32_t at = glk_idle_oldest(stock), before = 0, listed = 0;

	for (; at && length <= groups; length++) {
		if (at > groups || stock->idle[at].older != before)
			break;
		before = at;
		at = stock->idle[at].newer;
	}
	for (uint32_t g = 1; g <= groups; g++)
		listed += glk_idle_listed(stock, g);
	if (at || before != glk_idle_newest(stock) || listed != length ||
		listed != stock->listed)
		return map_unsound("the list of groups breaks at %" PRIu32 " of %" PRIu32
				   ", the newest is %" PRIu32,
			length, listed, glk_idle_newest(stock));
	return 0;
}

static int check_stock(const struct glk_stock *stock, const struct glk_stock *found)
{
	if (found->page_bytes != stock->page_bytes)
		return map_unsound("pages of %" PRIu64
				   " bytes mapped, counted as %" PRIu64,
			found->page_bytes, stock->page_bytes);
	if (found->idle_slots != stock->idle_slots)
		return map_unsound("%" PRIu64 " slots of idle pages, counted as %" PRIu64,
			found->idle_slots, stock->idle_slots);
	if (found->stranded != stock->stranded)
		return map_unsound("%" PRIu64 " slots are stranded, counted as %" PRIu64,
			found->stranded, stock->stranded);
	return 0;
}

int map_verify_pages(struct glk_map *map)
{
	const struct glk_space *space = map->space;
	struct tally t = {.map = map};
	int err = 0;

	for (int i = 0; i < GLK_OF_COUNT && !err; i++)
		err = check_list(map, &space->of[i]);
	if (!err)
		err = check_slots(&t);
	if (!err && space->claims)
		err = map_unsound(
			"slots are claimed, by %" PRIu32 " plans", space->claims);
	if (!err && glk_bits_any(map->claimed, 0, space->capacity - 1))
		err = map_unsound("slots are claimed, by no plan");
	for (int i = 0; i < GLK_OF_COUNT && !err; i++)
		err = check_stock(&space->of[i], &t.of[i]);
	/* those that wait and are mapped nowhere were not met */
	if (!err && t.waits > space->unsealed_bytes)
		err = map_unsound("sealed pages of %" PRIu64 " bytes wait, %" PRIu64
				  " are counted",
			t.waits, space->unsealed_bytes);
	if (err)
		return err;
	if (t.mapped_bytes != space->mapped_bytes)
		return map_unsound("%" PRIu64 " bytes mapped, counted as %" PRIu64,
			t.mapped_bytes, space->mapped_bytes);
	if (t.held != map->held || t.hosted != map->hosted)
		return map_unsound("%" PRIu64 " bytes of pages used last and %" PRIu32
				   " slots on the host, counted as %" PRIu64
				   " and %" PRIu32,
			t.held, t.hosted, map->held, map->hosted);
	return 0;
}
