/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where a block goes: the free extents that are just large enough, both ends of each, and the
 * addresses above all others; the place that costs least.
 */
#include "policy.h"

struct price {
	double calls;	/* slots or calls, by conf.cost */
	uint32_t added; /* slots newly in use */
	uint32_t run;	/* slots not mapped, up to here */
	bool needs;	/* anything of the driver */
	bool veto;
	bool trim; /* pages in part are not to be had */
	uint32_t first, last;
};

static void price_run(const struct sim *sim, struct price *price)
{
	uint32_t run = price->run, calls = 0;

	price->run = 0;
	if (!run)
		return;
	price->needs = true;
	if (!sim->conf->cost) {
		price->calls += run;
		return;
	}
	for (unsigned c = sim->conf->classes; c-- > 0;) {
		calls += run / sim->conf->slots[c];
		run %= sim->conf->slots[c];
	}
	price->calls += calls;
}

static void price_slot(struct sim *sim, struct price *price, uint32_t s, bool small)
{
	uint32_t at = sim->slot[s].map;

	if (sim->slot[s].live) {
		price_run(sim, price);
		return;
	}
	if (at == NONE) {
		price->run++;
		price->added++;
		return;
	}

	struct page *page = &sim->page[sim->mapping[at].page];
	uint32_t n = sim->conf->slots[page->class];

	if (small && page->class) {
		price->veto = page->current == at && page->used;
		price->calls += 1;
		price->run++;
		price->added++;
		return;
	}
	if (page->used && page->current == at) {
		price_run(sim, price);
		price->added += !sim->conf->whole;
		return;
	}
	/* The first mapping of an idle page that is met has it. */
	if (!page->used &&
		!(price->trim && (at < price->first || at + n - 1 > price->last)) &&
		(page->mark >> 20 != sim->mark || (page->mark & (SLOTS - 1)) == at)) {
		price_run(sim, price);
		if (!sim->conf->whole)
			price->added++;
		else if (page->mark >> 20 != sim->mark)
			price->added += n;
		page->mark = sim->mark << 20 | at;
		return;
	}
	if (!sim->conf->cost)
		price->calls += 1;
	else
		price->calls += 0.67 / n;
	price->run++;
	price->added++;
}

static bool consider(struct sim *sim, uint32_t e, uint64_t at, uint64_t len, bool small,
	struct place *best)
{
	uint32_t first = (uint32_t)(at / SLOT_GRAINS);
	uint32_t last = (uint32_t)((at + len - 1) / SLOT_GRAINS);
	struct price price = {.trim = best->trim, .first = first, .last = last};
	double cost;

	sim->mark++;
	sim->calls.looked++;
	for (uint32_t s = first; s <= last && !price.veto; s++) {
		/* Ends that are shared get a page of their own. */
		if (s == last && (at + len) % SLOT_GRAINS && sim->conf->cost)
			price_run(sim, &price);
		price_slot(sim, &price, s, small);
		if (s == first && at % SLOT_GRAINS && sim->conf->cost)
			price_run(sim, &price);
	}
	if (price.veto)
		return false;
	price_run(sim, &price);
	cost = price.calls + sim->conf->quarter * price.added;
	if (price.added > best->slack)
		cost += sim->conf->least * (price.added - best->slack);
	if (price.needs && sim->conf->atonce)
		cost += 1e6;
	if (cost < best->cost)
		*best = (struct place){e, at, cost, best->slack, price.needs, best->trim};
	return !price.needs &&
		(sim->conf->atonce == 1 || (sim->conf->atonce == 3 && !best->trim));
}

static uint64_t up(uint64_t at, bool small)
{
	return small ? (at + SLOT_GRAINS - 1) / SLOT_GRAINS * SLOT_GRAINS : at;
}

bool place_find(struct sim *sim, uint64_t len, bool small, struct place *ret_place)
{
	struct space *space = &sim->space;
	struct place best = {NONE, 0, 1e300, page_slack(sim), true,
		sim->conf->foresee && page_trims(sim)};
	uint64_t top = space->top;

	sim->calls.fits++;
	for (uint32_t e = extent_fit(space, 0, len, 0), i = 0;
		e != NONE && i < sim->conf->tries;
		e = extent_fit(space, 0, space->extent[e].len, space->extent[e].at + 1),
		      i++) {
		uint64_t low = up(space->extent[e].at, small);
		uint64_t end = space->extent[e].at + space->extent[e].len;
		uint64_t high = end - len;

		if (small)
			high = high / SLOT_GRAINS * SLOT_GRAINS;
		if (low + len > end)
			continue;
		if (consider(sim, e, low, len, small, &best))
			break;
		if (high != low && consider(sim, e, high, len, small, &best))
			break;
	}
	if (best.calls || !sim->conf->atonce) {
		uint32_t last = space->last;

		if (last != NONE && space->extent[last].state == EXTENT_FREE)
			top = space->extent[last].at;
		consider(sim, NONE, up(top, small), len, small, &best);
		/* A large page that is in use may lie there. */
		if (best.cost == 1e300)
			consider(sim, NONE, up(space->top, small), len, small, &best);
	}
	*ret_place = best;
	return true;
}
