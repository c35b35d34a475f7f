/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is fetched next is known from the last step: see learn.h. */
#include "cache/learn.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/slab.h"
#include "base/thread.h"
#include "cache/away.h"
#include "cache/prefetch.h"

/* Places that are looked at, before and behind the one that is next: a step that skips more, or has more
 * between, is found again later. */
#define SEARCH 128
/* Hints of a step that nobody has met yet; the oldest goes. */
#define OPEN 64
/* Of these hints: behind those of the program. */
#define LEAST INT32_MIN

/* What was fetched in a step, in order. */
struct step {
	uint32_t count;
	uint64_t addr[GLK_LEARN_STEP];
};

struct glk_learn {
	struct step step[2];
	unsigned now;  /* the one that is being written; the other is the last one */
	uint32_t next; /* place in the last one, or behind its end */
	uint64_t open[OPEN];
	uint32_t opened;
};

static struct glk_learn *table(struct glk_cache *cache)
{
	if (!cache->learn)
		cache->learn = glk_region_new(sizeof(*cache->learn));
	return cache->learn;
}

void glk_learn_fini(struct glk_cache *cache)
{
	if (cache->learn)
		glk_region_free(cache->learn, sizeof(*cache->learn));
	cache->learn = NULL;
}

static bool is_mine(const struct glk_hint *h)
{
	return h && !h->ticket && h->priority == LEAST;
}

/* Nothing has come of it, and nothing will. What is here, or on its way, waits for the fetch of a block that is
 * away as far as the program knows. */
static void drop(struct glk_cache *cache, uint64_t addr)
{
	const struct glk_hint *h =
		addr && cache->hints ? glk_hint_find(cache->hints, addr) : NULL;

	if (is_mine(h) && h->state == GLK_HINT_QUEUED)
		glk_prefetch_drop(cache, addr);
}

/* A block that is about to be fetched, if it is away and nobody else said so. */
static void expect(struct glk_cache *cache, uint64_t addr)
{
	struct glk_hint wish = {
		.deadline = GLK_HINT_NEVER, .priority = LEAST, .on = cache->mover.back};
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_extent *e = range ? glk_lookup_hold(range, addr) : NULL;
	struct glk_learn *l = cache->learn;

	if (!e)
		return;
	if (glk_extent_lacks(e) && !e->nested &&
		!(cache->hints && glk_hint_find(cache->hints, addr)) &&
		!glk_prefetch_add(glk_arena_of(range), e, &wish, NULL)) {
		drop(cache, l->open[l->opened % OPEN]);
		l->open[l->opened++ % OPEN] = addr;
	}
	glk_word_let_go(&e->word);
}

/* The next ones. Why one could not be hinted is nobody's business. */
static void expect_all(struct glk_cache *cache)
{
	const struct glk_learn *l = cache->learn;
	const struct step *last = &l->step[!l->now];
	struct glake_error why = glk_thread_current->error;

	for (uint32_t i = l->next; i < last->count && i < l->next + GLK_LEARN_AHEAD; i++)
		expect(cache, last->addr[i]);
	glk_error_back(&why);
}

/* Where a block stands in the last step, nearest to what was expected; UINT32_MAX: not there. */
static uint32_t place_of(const struct glk_learn *l, uint64_t addr)
{
	const struct step *last = &l->step[!l->now];

	for (uint32_t i = 0; i < SEARCH; i++) {
		if (l->next + i < last->count && last->addr[l->next + i] == addr)
			return l->next + i;
		if (i < l->next && last->addr[l->next - 1 - i] == addr)
			return l->next - 1 - i;
	}
	return UINT32_MAX;
}

/* Goes on from there. Whether it was one of those that were expected. */
static bool follow(struct glk_learn *l, uint64_t addr)
{
	uint32_t place = place_of(l, addr), next = l->next;

	/* another block in its place, as far as is known */
	if (place == UINT32_MAX)
		l->next += l->next < l->step[!l->now].count;
	else
		l->next = place + 1;
	return place != UINT32_MAX && place >= next && place < next + GLK_LEARN_AHEAD;
}

void glk_learn_fetched(struct glk_cache *cache, uint64_t addr)
{
	struct glk_learn *l;
	struct step *now;

	if (!cache->conf->tier_learn)
		return;
	glk_lock(&cache->lock);
	l = table(cache);
	if (l) {
		now = &l->step[l->now];
		if (now->count < GLK_LEARN_STEP)
			now->addr[now->count++] = addr;
		if (l->step[!l->now].count) {
			if (follow(l, addr))
				cache->prefetch.hits++;
			else
				cache->prefetch.misses++;
			expect_all(cache);
		}
	}
	glk_unlock(&cache->lock);
}

void glk_learn_step(struct glk_cache *cache)
{
	struct glk_learn *l;

	if (!cache->conf->tier_learn)
		return;
	glk_lock(&cache->lock);
	l = cache->learn;
	/* one without a fetch teaches nothing */
	if (l && l->step[l->now].count) {
		for (unsigned i = 0; i < OPEN; i++) {
			drop(cache, l->open[i]);
			l->open[i] = 0;
		}
		l->now = !l->now;
		l->step[l->now].count = 0;
		l->next = 0;
		expect_all(cache);
	}
	glk_unlock(&cache->lock);
}
