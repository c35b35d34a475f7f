/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages that are mapped and that no live block touches, in the order in which they are taken:
 * the page that is idle for longest, the word of 64 slots in which no page became idle for
 * longest, or the lowest address; each within the pages with the fewest mappings, if asked.
 */
#include "policy.h"

#include <stdlib.h>

static unsigned bucket_of(const struct sim *sim, const struct page *page)
{
	if (!sim->conf->fewest)
		return 0;
	return page->count < BUCKETS ? page->count - 1 : BUCKETS - 1;
}

void idle_init(struct sim *sim)
{
	for (unsigned c = 0; c < sim->conf->classes; c++)
		for (unsigned b = 0; b < BUCKETS; b++) {
			struct idle *idle = &sim->idle[c][b];

			idle->list = (struct list){NONE, NONE};
			idle->bits = calloc(WORDS, sizeof(*idle->bits));
			idle->word_prev = calloc(WORDS, sizeof(*idle->word_prev));
			idle->word_next = calloc(WORDS, sizeof(*idle->word_next));
			idle->listed = calloc(WORDS, sizeof(*idle->listed));
		}
}

void idle_fini(struct sim *sim)
{
	for (unsigned c = 0; c < sim->conf->classes; c++)
		for (unsigned b = 0; b < BUCKETS; b++) {
			free(sim->idle[c][b].bits);
			free(sim->idle[c][b].word_prev);
			free(sim->idle[c][b].word_next);
			free(sim->idle[c][b].listed);
		}
}

static void word_remove(struct idle *idle, uint32_t w)
{
	uint32_t prev = idle->word_prev[w], next = idle->word_next[w];

	*(prev == NONE ? &idle->list.first : &idle->word_next[prev]) = next;
	*(next == NONE ? &idle->list.last : &idle->word_prev[next]) = prev;
	idle->listed[w] = false;
}

static void word_append(struct idle *idle, uint32_t w)
{
	idle->word_prev[w] = idle->list.last;
	idle->word_next[w] = NONE;
	*(idle->list.last == NONE ? &idle->list.first
				  : &idle->word_next[idle->list.last]) = w;
	idle->list.last = w;
	idle->listed[w] = true;
}

void idle_put(struct sim *sim, uint32_t p)
{
	struct page *page = &sim->page[p];
	struct idle *idle = &sim->idle[page->class][bucket_of(sim, page)];
	uint32_t w = page->current / 64;

	page->idle = true;
	idle->pages++;
	if (sim->conf->order == ORDER_EXACT) {
		page->prev = idle->list.last;
		page->next = NONE;
		*(idle->list.last == NONE ? &idle->list.first
					  : &sim->page[idle->list.last].next) = p;
		idle->list.last = p;
		return;
	}
	idle->bits[w] |= 1ull << page->current % 64;
	if (idle->listed[w])
		word_remove(idle, w);
	word_append(idle, w);
}

void idle_take(struct sim *sim, uint32_t p)
{
	struct page *page = &sim->page[p];
	struct idle *idle = &sim->idle[page->class][bucket_of(sim, page)];
	uint32_t w = page->current / 64;

	page->idle = false;
	idle->pages--;
	if (sim->conf->order == ORDER_EXACT) {
		*(page->prev == NONE ? &idle->list.first : &sim->page[page->prev].next) =
			page->next;
		*(page->next == NONE ? &idle->list.last : &sim->page[page->next].prev) =
			page->prev;
		return;
	}
	idle->bits[w] &= ~(1ull << page->current % 64);
	if (!idle->bits[w])
		word_remove(idle, w);
}

static uint32_t lowest(const struct sim *sim, const struct idle *idle, uint32_t w)
{
	uint32_t slot = w * 64 + (uint32_t)__builtin_ctzll(idle->bits[w]);

	return sim->mapping[slot].page;
}

uint32_t idle_first(struct sim *sim, unsigned class)
{
	for (unsigned b = 0; b < BUCKETS; b++) {
		const struct idle *idle = &sim->idle[class][b];
		uint32_t w = 0;

		if (!idle->pages)
			continue;
		if (sim->conf->order == ORDER_EXACT)
			return idle->list.first;
		if (sim->conf->order == ORDER_COARSE)
			return lowest(sim, idle, idle->list.first);
		while (!idle->bits[w])
			w++;
		return lowest(sim, idle, w);
	}
	return NONE;
}

uint32_t idle_count(const struct sim *sim, unsigned class)
{
	uint32_t n = 0;

	for (unsigned b = 0; b < BUCKETS; b++)
		n += sim->idle[class][b].pages;
	return n;
}
