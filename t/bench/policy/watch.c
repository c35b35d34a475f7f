/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What memory is held for at the moment when more is held than ever before: live bytes, bins,
 * rests of slots, slots of large pages that are partly used, idle and free pages.
 */
#include "policy.h"

void watch_peak(struct sim *sim)
{
	struct watch w = {.live = sim->live};

	for (uint32_t e = sim->space.last; e != NONE; e = sim->space.extent[e].prev) {
		const struct extent *x = &sim->space.extent[e];

		if (x->state == EXTENT_SLOT)
			w.small++;
		else if (x->state != EXTENT_FREE)
			w.given += x->len * GRAIN;
		if (x->state == EXTENT_BINNED)
			w.binned += x->len * GRAIN;
	}
	for (uint32_t p = 0; p < sim->pages; p++) {
		const struct page *page = &sim->page[p];

		w.used += page->used;
		if (page->used)
			w.stranded += sim->conf->slots[page->class] - page->used;
	}
	for (unsigned c = 0; c < sim->conf->classes; c++) {
		w.idle += idle_count(sim, c) * sim->conf->slots[c];
		w.free += sim->free_pages[c] * sim->conf->slots[c];
	}
	w.held = sim->held;
	sim->watch = w;
}
