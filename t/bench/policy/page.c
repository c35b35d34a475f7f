/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages, their mappings, and where the pages of a place come from: free ones, idle ones, new
 * ones below the target, bins, pages of other sizes, and at last new ones beyond it.
 */
#include "policy.h"

#include <stdlib.h>

#define SLOT_BYTES 2097152.0

void page_init(struct sim *sim)
{
	sim->slot = calloc(SLOTS, sizeof(*sim->slot));
	sim->mapping = calloc(SLOTS, sizeof(*sim->mapping));
	for (uint32_t s = 0; s < SLOTS; s++)
		sim->slot[s].map = NONE;
	for (unsigned c = 0; c < CLASSES; c++)
		sim->free[c] = (struct list){NONE, NONE};
	sim->page_spare = NONE;
	idle_init(sim);
}

void page_fini(struct sim *sim)
{
	idle_fini(sim);
	free(sim->slot);
	free(sim->mapping);
	free(sim->page);
}

static void use(struct sim *sim, struct page *page, uint32_t used)
{
	uint32_t n = sim->conf->slots[page->class];

	sim->stranded -= page->used ? n - page->used : 0;
	page->used = used;
	sim->stranded += used ? n - used : 0;
}

static void free_put(struct sim *sim, uint32_t p)
{
	struct page *page = &sim->page[p];

	page->next = sim->free[page->class].first;
	sim->free[page->class].first = p;
	sim->free_pages[page->class]++;
}

static uint32_t free_get(struct sim *sim, unsigned class)
{
	uint32_t p = sim->free[class].first;

	if (p != NONE) {
		sim->free[class].first = sim->page[p].next;
		sim->free_pages[class]--;
	}
	return p;
}

static void link_mapping(struct sim *sim, uint32_t p, uint32_t at)
{
	struct page *page = &sim->page[p];
	struct mapping *m = &sim->mapping[at];

	*m = (struct mapping){.page = p, .prev = NONE, .next = page->head};
	if (page->head != NONE)
		sim->mapping[page->head].prev = at;
	page->head = at;
	page->count++;
	sim->calls.map++;
	for (uint32_t i = 0; i < sim->conf->slots[page->class]; i++)
		sim->slot[at + i].map = at;
}

static void unlink_mapping(struct sim *sim, uint32_t at)
{
	struct mapping *m = &sim->mapping[at];
	struct page *page = &sim->page[m->page];

	*(m->prev == NONE ? &page->head : &sim->mapping[m->prev].next) = m->next;
	if (m->next != NONE)
		sim->mapping[m->next].prev = m->prev;
	page->count--;
	sim->calls.unmap++;
	for (uint32_t i = 0; i < sim->conf->slots[page->class]; i++)
		sim->slot[at + i].map = NONE;
	if (page->current == at)
		page->current = page->head;
}

void page_unmap(struct sim *sim, uint32_t at)
{
	uint32_t p = sim->mapping[at].page;
	bool idle = sim->page[p].idle;

	if (idle)
		idle_take(sim, p);
	unlink_mapping(sim, at);
	if (idle && sim->page[p].count)
		idle_put(sim, p);
	else if (idle)
		free_put(sim, p);
}

void page_enter(struct sim *sim, uint32_t first, uint32_t last)
{
	for (uint32_t s = first; s <= last; s++) {
		uint32_t at = sim->slot[s].map;

		if (sim->slot[s].live++ || at == NONE)
			continue;

		uint32_t p = sim->mapping[at].page;

		if (sim->page[p].idle) {
			idle_take(sim, p);
			sim->page[p].current = at;
		}
		if (sim->page[p].current == at)
			use(sim, &sim->page[p], sim->page[p].used + 1);
	}
}

void page_leave(struct sim *sim, uint32_t first, uint32_t last)
{
	for (uint32_t s = first; s <= last; s++) {
		if (--sim->slot[s].live)
			continue;

		uint32_t p = sim->mapping[sim->slot[s].map].page;

		use(sim, &sim->page[p], sim->page[p].used - 1);
		if (!sim->page[p].used)
			idle_put(sim, p);
	}
}

double page_growth(const struct sim *sim)
{
	double peak = (double)sim->peak_live, by_target = peak * sim->conf->target;
	double by_slack = peak + sim->conf->slack;

	return (by_target > by_slack ? by_target : by_slack) / SLOT_BYTES;
}

static uint32_t create(struct sim *sim, unsigned class)
{
	uint32_t p = sim->page_spare;

	if (p != NONE) {
		sim->page_spare = sim->page[p].next;
	} else {
		if (sim->pages == sim->page_room) {
			sim->page_room = sim->page_room ? 2 * sim->page_room : 4096;
			sim->page =
				realloc(sim->page, sim->page_room * sizeof(*sim->page));
			if (!sim->page)
				abort();
		}
		p = sim->pages++;
	}
	sim->page[p] = (struct page){.class = class, .head = NONE, .current = NONE};
	sim->held += sim->conf->slots[class];
	if (sim->held > sim->peak_held) {
		sim->peak_held = sim->held;
		if (sim->conf->verbose)
			watch_peak(sim);
	}
	sim->calls.create++;
	return p;
}

static void release(struct sim *sim, uint32_t p)
{
	while (sim->page[p].head != NONE)
		unlink_mapping(sim, sim->page[p].head);
	sim->held -= sim->conf->slots[sim->page[p].class];
	sim->calls.release++;
	sim->calls.broken++;
	sim->page[p].next = sim->page_spare;
	sim->page_spare = p;
}

static bool release_one(struct sim *sim, unsigned class)
{
	uint32_t p = free_get(sim, class);

	if (p == NONE) {
		p = idle_first(sim, class);
		if (p == NONE)
			return false;
		idle_take(sim, p);
	}
	release(sim, p);
	return true;
}

/* Releases pages of other sizes until `slots` fit below what may be held; larger ones first. */
static void make_room(struct sim *sim, unsigned class, uint32_t slots, double may)
{
	int batch = sim->conf->batch;

	for (unsigned c = sim->conf->classes; c-- > 0;)
		while (c != class && ((double)(sim->held + slots) > may || batch > 0)) {
			if (!release_one(sim, c))
				break;
			batch--;
		}
}

/* Slots of the pages that can be had without a call to make one. */
static uint32_t at_hand(const struct sim *sim, unsigned class)
{
	return (sim->free_pages[class] + idle_count(sim, class)) *
		sim->conf->slots[class];
}

double page_slack(const struct sim *sim)
{
	double slack = page_growth(sim) - (double)sim->held;

	if (slack < 0)
		slack = 0;
	for (unsigned c = 0; c < sim->conf->classes; c++)
		slack += at_hand(sim, c);
	return slack;
}

/* Too much lies in rests of large pages, and not much else is at hand. A budget below the
 * target is the target. */
bool page_trims(const struct sim *sim)
{
	double over = sim->conf->target - 1, held = (double)sim->held;

	if (sim->budget && sim->budget / (double)sim->peak_live - 1 < over)
		over = sim->budget / (double)sim->peak_live - 1;
	return (double)sim->stranded > sim->conf->trim * over * held &&
		page_slack(sim) < sim->conf->scarce * held;
}

void page_trim(struct sim *sim, uint32_t first, uint32_t last)
{
	const uint32_t end[2] = {first, last};

	for (int i = 0; i < 2; i++) {
		uint32_t at = sim->slot[end[i]].map, n;

		if (at == NONE || !sim->page[sim->mapping[at].page].idle)
			continue;
		n = sim->conf->slots[sim->page[sim->mapping[at].page].class];
		if (at < first || at + n - 1 > last)
			page_unmap(sim, at);
	}
}

static bool substitute(const struct sim *sim, unsigned class)
{
	uint32_t slots = 0, most = sim->conf->undo * sim->held / 100;

	if (!class || !sim->conf->sub)
		return false;
	for (unsigned c = 0; c < class; c++)
		slots += at_hand(sim, c);
	return slots >= sim->conf->slots[class] && (!sim->conf->undo || slots <= most);
}

/* A page that is mapped nowhere or idle, or NONE: smaller ones shall be taken. */
static uint32_t page_get(struct sim *sim, unsigned class)
{
	const struct conf *conf = sim->conf;
	uint32_t n = conf->slots[class], p;
	double may = page_growth(sim);
	bool allowed = (double)sim->held * SLOT_BYTES < conf->share[class] * conf->gpu;

	if (sim->budget && may > sim->budget / SLOT_BYTES)
		may = sim->budget / SLOT_BYTES;
	for (;;) {
		bool fits = (double)(sim->held + n) <= may;

		p = free_get(sim, class);
		if (p != NONE)
			return p;
		if (conf->grow && fits && allowed)
			return create(sim, class);
		p = idle_first(sim, class);
		if (p != NONE) {
			idle_take(sim, p);
			return p;
		}
		if (!allowed)
			return NONE;
		if (fits)
			return create(sim, class);
		if (!sim->binned || !bin_flush(sim, FLUSH_ALL))
			break;
	}
	if (substitute(sim, class))
		return NONE;
	make_room(sim, class, n, may);
	if (sim->budget && (double)(sim->held + n) > sim->budget / SLOT_BYTES) {
		if (class)
			return NONE;
		sim->calls.oom++;
	}
	return create(sim, class);
}

static void map_run(struct sim *sim, uint32_t first, uint32_t end, unsigned class)
{
	uint32_t n = sim->conf->slots[class];

	while (first < end) {
		uint32_t p;

		if (end - first < n) {
			map_run(sim, first, end, class - 1);
			return;
		}
		p = page_get(sim, class);
		if (p == NONE) {
			map_run(sim, first, first + n, class - 1);
			first += n;
			continue;
		}
		link_mapping(sim, p, first);
		sim->page[p].current = first;
		sim->page[p].used = n;
		first += n;
	}
}

void page_back(struct sim *sim, uint32_t first, uint32_t last, bool shared_first,
	bool shared_last)
{
	unsigned large = sim->conf->classes - 1;

	for (uint32_t s = first; s <= last; s++) {
		uint32_t at = sim->slot[s].map;

		if (at != NONE && sim->page[sim->mapping[at].page].current != at)
			page_unmap(sim, at);
	}
	for (uint32_t s = first, end; s <= last; s = end) {
		end = s + 1;
		if (sim->slot[s].map != NONE)
			continue;
		if ((s == first && shared_first) || (s == last && shared_last)) {
			map_run(sim, s, end, 0);
			continue;
		}
		while (end <= last && sim->slot[end].map == NONE &&
			!(end == last && shared_last))
			end++;
		map_run(sim, s, end, large);
	}
}
