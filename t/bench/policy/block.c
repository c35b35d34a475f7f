/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request from its bin to its pages, and a free. Small blocks lie in slots that are theirs
 * alone; everything else shares one range of addresses.
 */
#include "policy.h"

#include <stdio.h>
#include <stdlib.h>

static void slots_of(const struct extent *x, uint32_t *first, uint32_t *last)
{
	*first = (uint32_t)(x->at / SLOT_GRAINS);
	*last = (uint32_t)((x->at + x->len - 1) / SLOT_GRAINS);
}

/* An extent of exactly this run of addresses, out of the free one that holds it. */
static uint32_t carve(struct space *s, const struct place *place, uint64_t len)
{
	uint32_t e = place->extent;

	if (e == NONE) {
		uint32_t last = s->last;

		if (last != NONE && s->extent[last].state == EXTENT_FREE) {
			extent_remove(s, 0, e = last);
			if (place->at + len > s->top)
				s->extent[e].len = place->at + len - s->extent[e].at;
		} else {
			e = extent_new(s, s->top, place->at + len - s->top);
			s->extent[e].prev = last;
			if (last != NONE)
				s->extent[last].next = e;
			s->last = e;
		}
		if (place->at + len > s->top)
			s->top = place->at + len;
	} else {
		extent_remove(s, 0, e);
	}
	if (place->at > s->extent[e].at) {
		uint32_t rest = extent_split(s, e, place->at - s->extent[e].at);

		extent_insert(s, 0, e);
		e = rest;
	}
	if (s->extent[e].len > len)
		extent_insert(s, 0, extent_split(s, e, len));
	s->extent[e].state = EXTENT_GIVEN;
	return e;
}

static uint32_t take(struct sim *sim, const struct place *place, uint64_t len, bool small)
{
	struct calls before = sim->calls;
	uint32_t e, first, last;

	if ((place->at + len) / SLOT_GRAINS + 2 > SLOTS) {
		fprintf(stderr, "policy: out of addresses\n");
		exit(1);
	}
	e = carve(&sim->space, place, len);
	slots_of(&sim->space.extent[e], &first, &last);
	if (small) {
		uint32_t at = sim->slot[first].map;

		if (at != NONE && sim->page[sim->mapping[at].page].class)
			page_unmap(sim, at);
	}
	if (page_trims(sim))
		page_trim(sim, first, last);
	page_enter(sim, first, last);
	page_back(sim, first, last, small || place->at % SLOT_GRAINS,
		(place->at + len) % SLOT_GRAINS);
	if (sim->calls.map != before.map || sim->calls.unmap != before.unmap)
		sim->calls.called++;
	return e;
}

static uint32_t small_fit(struct sim *sim, uint64_t len)
{
	struct space *s = &sim->space;
	uint32_t e = extent_fit(s, 1, len, 0);

	if (e == NONE)
		return NONE;
	extent_remove(s, 1, e);
	if (s->extent[e].len > len)
		extent_insert(s, 1, extent_split(s, e, len));
	s->extent[e].state = EXTENT_GIVEN;
	return e;
}

static uint32_t miss(struct sim *sim, uint64_t len, bool small)
{
	bool flushed = false;
	struct place place;
	uint32_t e;

	for (;;) {
		e = small ? small_fit(sim, len) : NONE;
		if (e != NONE)
			return e;
		place_find(sim, small ? SLOT_GRAINS : len, small, &place);
		if (!place.calls || flushed || !bin_flush(sim, sim->conf->flush))
			break;
		flushed = true;
	}
	e = take(sim, &place, small ? SLOT_GRAINS : len, small);
	if (!small)
		return e;
	sim->space.extent[e].state = EXTENT_SLOT;

	uint32_t inner = extent_new(&sim->space, sim->space.extent[e].at, SLOT_GRAINS);

	sim->space.extent[inner].parent = e;
	extent_insert(&sim->space, 1, inner);
	return small_fit(sim, len);
}

uint32_t block_alloc(struct sim *sim, uint64_t size)
{
	uint64_t rounded = bin_round(sim->conf, size), len = rounded / GRAIN;
	uint32_t e = NONE;

	sim->live += size;
	if (sim->live > sim->peak_live)
		sim->peak_live = sim->live;
	if (rounded <= sim->conf->bin_max)
		e = bin_pop(sim, len);
	if (e != NONE) {
		sim->calls.hits++;
		return e;
	}
	sim->calls.missed++;
	return miss(sim, len, rounded <= sim->conf->small);
}

void block_release(struct sim *sim, uint32_t e)
{
	struct space *s = &sim->space;
	uint32_t parent = s->extent[e].parent, first, last;

	if (parent != NONE) {
		e = extent_merge(s, 1, e);
		if (s->extent[e].len < SLOT_GRAINS) {
			extent_insert(s, 1, e);
			return;
		}
		extent_drop(s, e);
		e = parent;
	}
	slots_of(&s->extent[e], &first, &last);
	page_leave(sim, first, last);
	extent_insert(s, 0, extent_merge(s, 0, e));
}

void block_free(struct sim *sim, uint32_t e)
{
	uint64_t bytes = sim->space.extent[e].len * GRAIN;

	if (bytes <= sim->conf->bin_max && bytes > sim->conf->bin_min)
		bin_push(sim, e);
	else
		block_release(sim, e);
}
