/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The books of a GPU, checked against each other: everything that the other files of this
 * folder keep incrementally is counted again from what it is derived from. Debugging and
 * tests call it; it changes nothing.
 *
 * It wants the map at rest, between two requests: each live extent stands on its slots, and
 * no page is in anybody's hands. Cost: all extents and slots, and the tree once for each free
 * extent.
 */
#include "map/map.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>

#define broken(...) glk_error(-EIO, GLAKE_ERROR_CORRUPT, __VA_ARGS__)

struct tally {
	struct glk_map *map;
	uint64_t mapped_bytes, page_bytes, idle_pages, idle_bytes; /* found in the slots */
	uint64_t lives;	     /* live extents on slots, of the span under way */
	uint32_t slot, live; /* slot last stood on, live extents on it so far */
	uint32_t starts;     /* entries for lookup */
};

/* Whether lookup names it. */
static bool is_named(const struct glk_extent *e)
{
	return glk_extent_state(e) == GLK_EXTENT_LIVE ||
		glk_extent_state(e) == GLK_EXTENT_QUICK;
}

static bool is_live(const struct glk_extent *e)
{
	return is_named(e) || glk_extent_state(e) == GLK_EXTENT_PARKED;
}

/* Compares the slot last stood on with its counter. */
static int settle(struct tally *t, const struct glk_span *span)
{
	uint32_t live = t->live;

	t->live = 0;
	if (live && span->slot[t->slot].live != live)
		return broken("span %d slot %" PRIu32 ": %" PRIu32
			      " live extents counted, %" PRIu32 " stand on it",
			span->kind, t->slot, span->slot[t->slot].live, live);
	return 0;
}

static int stand(struct tally *t, const struct glk_span *span, const struct glk_extent *e)
{
	uint32_t slot = glk_slot_of(span, e->offset);
	uint32_t last = glk_slot_of(span, e->offset + e->size - 1);
	int err = 0;

	/* a contiguous block is booked on its first slot alone */
	if (span->kind == GLK_KIND_SINGLE)
		last = slot;
	for (; slot <= last && !err; slot++) {
		if (slot != t->slot)
			err = settle(t, span);
		t->slot = slot;
		t->live++;
		t->lives++;
	}
	return err;
}

static int check_lookup(struct tally *t, const struct glk_span *span, uint32_t id)
{
	const struct glk_extent *e = glk_extent_at(span->map, id);
	uint64_t addr = span->base + e->offset;

	if (!is_named(e))
		return 0;
	t->starts++;
	if (glk_span_lookup(span, addr) != id ||
		glk_span_lookup(span, addr + e->size - 1) != id)
		return broken("span %d extent %" PRIu32 ": not found by its addresses",
			span->kind, id);
	return 0;
}

static bool in_tree(const struct glk_span *span, uint32_t id)
{
	const struct glk_extent *e = glk_extent_at(span->map, id), *n;
	uint32_t at = span->root;

	for (uint32_t steps = 0; at && at != id && steps < span->free_count; steps++) {
		n = glk_extent_at(span->map, at);
		at = n->size < e->size || (n->size == e->size && n->offset < e->offset)
			? n->right
			: n->left;
	}
	return at == id;
}

static int check_extent(struct tally *t, const struct glk_span *span, uint32_t id)
{
	const struct glk_extent *e = glk_extent_at(span->map, id);
	const struct glk_extent *prev =
		e->prev ? glk_extent_at(span->map, e->prev) : NULL;
	uint64_t grain = UINT64_C(1) << GLK_GRAIN_SHIFT;

	if (prev ? prev->next != id || prev->offset + prev->size != e->offset : e->offset)
		return broken("span %d extent %" PRIu32
			      ": does not begin where extent %" PRIu32 " before it ends",
			span->kind, id, e->prev);
	if (!e->size || e->size % grain)
		return broken("span %d extent %" PRIu32 ": %" PRIu64 " bytes", span->kind,
			id, e->size);
	if (glk_extent_state(e) == GLK_EXTENT_FREE) {
		if (prev && glk_extent_state(prev) == GLK_EXTENT_FREE)
			return broken("span %d extent %" PRIu32
				      ": free beside free extent %" PRIu32,
				span->kind, id, e->prev);
		if (!in_tree(span, id))
			return broken("span %d extent %" PRIu32
				      ": free and not in the tree",
				span->kind, id);
		return 0;
	}
	if (!is_live(e) ||
		(glk_extent_state(e) == GLK_EXTENT_PARKED &&
			span->kind != GLK_KIND_SINGLE))
		return broken("span %d extent %" PRIu32 ": state %d", span->kind, id,
			glk_extent_state(e));
	return check_lookup(t, span, id);
}

/* Nodes of the tree, at most `most`: the next one in order is searched from the root. */
static uint32_t count_tree(const struct glk_span *span, uint32_t most)
{
	uint64_t size = 0, offset = 0;
	uint32_t found = 0, best;

	do {
		best = 0;
		for (uint32_t at = span->root, steps = 0; at && steps <= most; steps++) {
			const struct glk_extent *e = glk_extent_at(span->map, at);
			bool after = e->size > size ||
				(e->size == size && e->offset >= offset);

			best = after ? at : best;
			at = after ? e->left : e->right;
		}
		if (best) {
			size = glk_extent_at(span->map, best)->size;
			offset = glk_extent_at(span->map, best)->offset + 1;
		}
	} while (best && ++found < most);
	return found;
}

static int check_row(struct tally *t, const struct glk_span *span)
{
	uint32_t free_count = 0, live_count = 0, id = span->last, first = 0;
	const struct glk_extent *e;
	int err = 0;

	if (id ? glk_extent_at(span->map, id)->offset +
					glk_extent_at(span->map, id)->size !=
				span->high
	       : span->high != 0)
		return broken("span %d: the last extent does not end at %" PRIu64,
			span->kind, span->high);
	/* backwards: a broken row ends here, since offsets must fall down to 0 */
	for (; id && !err; id = e->prev) {
		e = glk_extent_at(span->map, id);
		err = check_extent(t, span, id);
		free_count += glk_extent_state(e) == GLK_EXTENT_FREE;
		live_count += is_live(e);
		first = id;
	}
	for (id = first; id && !err; id = e->next) {
		e = glk_extent_at(span->map, id);
		if (is_live(e))
			err = stand(t, span, e);
	}
	if (!err)
		err = settle(t, span);
	if (!err && (free_count != span->free_count || live_count != span->live_count))
		err = broken("span %d: %" PRIu32 " free and %" PRIu32
			     " live extents, %" PRIu32 " and %" PRIu32 " counted",
			span->kind, free_count, live_count, span->free_count,
			span->live_count);
	if (!err && count_tree(span, free_count + 1) != free_count)
		err = broken("span %d: the tree does not hold the %" PRIu32
			     " free extents",
			span->kind, free_count);
	return err;
}

/* The chain of a page, and whether `name` is in it. */
static int check_chain(struct glk_map *map, uint32_t id, uint32_t name)
{
	const struct glk_page *page = glk_map_page(map, id);
	uint32_t at = page->first_alias, found = 0, length = 0;

	for (; at != GLK_NO_SLOT && length <= page->aliases; length++) {
		const struct glk_slot *s =
			&glk_slot_span(map, at)->slot[glk_slot_number(at)];

		if (s->page != id)
			return broken("page %" PRIu32 ": slot %#" PRIx32
				      " of its chain holds page %" PRIu32,
				id, at, s->page);
		found += at == name;
		at = glk_slot_span(map, at)->more[glk_slot_number(at)].next_alias;
	}
	if (length != page->aliases || found != 1)
		return broken("page %" PRIu32 ": %" PRIu32
			      " slots in its chain, %d counted, slot %#" PRIx32
			      " %" PRIu32 " times",
			id, length, page->aliases, name, found);
	return 0;
}

static int check_page(struct tally *t, const struct glk_span *span, uint32_t slot)
{
	const struct glk_slot *s = &span->slot[slot];
	const struct glk_page *page = glk_map_page(t->map, s->page);
	uint32_t name = glk_slot_name(span, slot);
	bool idle, here;
	int err = check_chain(t->map, s->page, name);
	enum glk_class class =
		span->kind == GLK_KIND_SINGLE ? GLK_CLASS_SINGLE : span->class;

	if (err)
		return err;
	idle = !glk_page_busy(t->map, page);
	here = page->aliases == 1 ? !idle : page->in_use == name;
	if (glk_page_state(page) != GLK_PAGE_OWNED || page->class != class)
		return broken("slot %#" PRIx32 ": page %" PRIu32 " of class %d is %s",
			name, s->page, page->class,
			glk_page_state_name(glk_page_state(page)));
	if (!glk_bit_get(span->mapped, slot) ||
		glk_bit_get(span->usable, slot) != (idle || here))
		return broken("slot %#" PRIx32
			      ": bits mapped %d and usable %d, page %" PRIu32
			      " is in use at %#" PRIx32,
			name, glk_bit_get(span->mapped, slot),
			glk_bit_get(span->usable, slot), s->page, page->in_use);
	if (glk_bit_get(span->shared, slot) != (page->aliases > 1))
		return broken("slot %#" PRIx32 ": bit shared %d, page %" PRIu32
			      " has %d mappings",
			name, glk_bit_get(span->shared, slot), s->page, page->aliases);
	if (here != (s->live > 0))
		return broken("slot %#" PRIx32 ": %" PRIu32
			      " live extents on page %" PRIu32 ", in use at %#" PRIx32,
			name, s->live, s->page, page->in_use);
	if (span->kind != GLK_KIND_SINGLE && idle != glk_idle_has(t->map, s->page))
		return broken("page %" PRIu32 ": idle %d and on an idle list %d", s->page,
			idle, glk_idle_has(t->map, s->page));
	t->mapped_bytes += page->size;
	if (page->first_alias == name)
		t->page_bytes += page->size;
	if (idle && page->first_alias == name) {
		t->idle_pages++;
		t->idle_bytes += page->size;
	}
	return 0;
}

/* Entries for lookup that name nothing or the wrong extent. */
static int check_starts(struct tally *t, const struct glk_span *span, uint32_t slot)
{
	const struct glk_slot *s = &span->slot[slot];
	uint64_t offset = (uint64_t)slot << span->shift;
	uint64_t high = offset + (UINT64_C(1) << span->shift);
	const struct glk_extent *e;

	for (int i = 0; i < GLK_SLOT_STARTS; i++) {
		if (!span->more[slot].start[i])
			continue;
		e = glk_extent_at(span->map, span->more[slot].start[i]);
		t->starts--;
		if (!is_named(e) || e->offset < offset || e->offset >= high)
			return broken("span %d slot %" PRIu32 ": extent %" PRIu32
				      " does not begin in it",
				span->kind, slot, span->more[slot].start[i]);
	}
	if (!s->cover)
		return 0;
	e = glk_extent_at(span->map, s->cover);
	if (!is_named(e) || e->offset >= offset || e->offset + e->size <= offset)
		return broken("span %d slot %" PRIu32 ": extent %" PRIu32
			      " does not reach in",
			span->kind, slot, s->cover);
	return 0;
}

static int check_slot(struct tally *t, const struct glk_span *span, uint32_t slot)
{
	const struct glk_slot *s = &span->slot[slot];
	int err = check_starts(t, span, slot);

	if (err)
		return err;
	t->lives -= s->live;
	if (s->page)
		return check_page(t, span, slot);
	/* mapped without a page: what the driver would not unmap */
	if (s->live || glk_bit_get(span->usable, slot))
		return broken("span %d slot %" PRIu32 ": %" PRIu32
			      " live extents, usable %d, no page",
			span->kind, slot, s->live, glk_bit_get(span->usable, slot));
	return 0;
}

static int check_span(struct tally *t, const struct glk_span *span)
{
	uint32_t end = glk_span_end(span);
	int err;

	t->lives = 0;
	t->starts = 0;
	err = check_row(t, span);
	for (uint32_t slot = 0; slot < end && !err; slot++)
		err = check_slot(t, span, slot);
	if (err)
		return err;
	if (span->kind == GLK_KIND_SMALL && span->high)
		t->starts -= glk_bits_count(
			span->begins, 0, (uint32_t)((span->high - 1) >> GLK_GRAIN_SHIFT));
	if (t->lives || t->starts)
		return broken(
			"span %d: slots count live extents that do not stand on them, or "
			"name some that do not begin there",
			span->kind);
	if (end < span->slots &&
		(glk_bits_count(span->mapped, end, span->slots - 1) ||
			glk_bits_count(span->usable, end, span->slots - 1)))
		return broken("span %d: slots above the high-water mark are in use",
			span->kind);
	return 0;
}

/* The idle pages of a class in the order in which they would be taken. */
static int check_idle(struct tally *t, unsigned class, unsigned list)
{
	struct glk_map *map = t->map;
	const struct glk_idle_list *l = &map->idle[class][list];
	uint32_t valid = 0;

	for (uint32_t i = l->begin; i < l->end; i++) {
		uint32_t id = glk_idle_listed(map, class, list, i);
		const struct glk_page *page = glk_map_page(map, id);
		uint32_t want =
			page->aliases < GLK_IDLE_LISTS ? page->aliases : GLK_IDLE_LISTS;

		if (!id)
			continue;
		if (!t->idle_pages || want != list + 1 || page->class != class ||
			glk_page_busy(map, page))
			return broken("page %" PRIu32
				      ": class %d with %d mappings, in use %d"
				      ", lies on idle list %u of class %u",
				id, page->class, page->aliases, glk_page_busy(map, page),
				list + 1, class);
		t->idle_pages--;
		t->idle_bytes -= page->size;
		valid++;
	}
	if (valid != l->valid)
		return broken("idle list %u of class %u: %" PRIu32
			      " pages, counted as %" PRIu32,
			list + 1, class, valid, l->valid);
	return 0;
}

int glk_map_verify(struct glk_map *map)
{
	struct tally t = {.map = map};
	uint64_t idle_bytes;
	int err = 0;

	for (int kind = 0; kind < GLK_KIND_COUNT && !err; kind++)
		err = check_span(&t, &map->span[kind]);
	idle_bytes = t.idle_bytes;
	for (unsigned list = 0; list < GLK_IDLE_LISTS && !err; list++)
		err = check_idle(&t, GLK_CLASS_SMALL, list);
	for (unsigned list = 0; list < GLK_IDLE_LISTS && !err; list++)
		err = check_idle(&t, GLK_CLASS_LARGE, list);
	if (err)
		return err;
	if (t.idle_pages || t.idle_bytes)
		return broken("%" PRIu64 " idle pages lie on no list", t.idle_pages);
	if (t.mapped_bytes != map->mapped_bytes || idle_bytes != map->idle_bytes)
		return broken("%" PRIu64 " bytes mapped and %" PRIu64 " idle, %" PRIu64
			      " and %" PRIu64 " booked",
			t.mapped_bytes, idle_bytes, map->mapped_bytes, map->idle_bytes);
	if (t.page_bytes != map->page_bytes)
		return broken("%" PRIu64 " bytes of pages, %" PRIu64 " booked", t.page_bytes,
			map->page_bytes);
	return 0;
}
