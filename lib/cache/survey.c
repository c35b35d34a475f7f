/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Figures that are walked for when somebody asks. Free pages are looked at a bounded number at a
 * time under the lock. Bins are walked without it: their links are those of blocks that may be
 * given out meanwhile, so a walk may end up in another bin, and ends after as many steps as there
 * are extents.
 */
#include "cache/bin/quick.h"

#include <inttypes.h>
#include <stdio.h>

/* Words of the bitmaps, and free slots, between two chances for others to have the lock: some
 * microseconds. */
#define TURN_WORDS 1024
#define TURN_SLOTS 64

struct pages {
	struct glk_cache *cache;
	struct glk_map *map;
	uint64_t run, longest;			 /* slots */
	uint64_t limbo, by_bit[GLK_STREAM_BITS]; /* slots */
	unsigned words, slots;			 /* of this turn */
};

/* A slot that nobody touches, if its page is idle, which counts where the first of its mappings lies. */
static void add_slot(struct pages *p, uint32_t slot)
{
	const struct glk_page *page = glk_map_page(p->map, p->map->page[slot]);
	struct glk_mapping m = glk_mapping_at(p->map, slot);
	struct glk_use use;

	p->slots++;
	if (page->first_alias != m.first || glk_bits_any(p->map->busy, m.first, m.last))
		return;
	use = glk_use_of_page(p->map, slot);
	if (!use.streams)
		return;
	glk_clock_forget(&p->cache->streams, &use);
	p->limbo += use.streams != 0;
	for (uint64_t left = use.streams; left; left &= left - 1)
		p->by_bit[__builtin_ctzll(left)]++;
}

static void add_word(struct pages *p, uint32_t w)
{
	uint64_t free = p->map->usable[w] & ~p->map->busy[w];

	for (uint64_t left = free; left; left &= left - 1) {
		uint32_t slot = w << 6 | (uint32_t)__builtin_ctzll(left);

		if (p->map->page[slot])
			add_slot(p, slot);
	}
	if (!free || !~free) {
		p->run = free ? p->run + 64 : 0;
		p->longest = p->longest < p->run ? p->run : p->longest;
		return;
	}
	for (unsigned i = 0; i < 64; i++) {
		p->run = free >> i & 1 ? p->run + 1 : 0;
		p->longest = p->longest < p->run ? p->run : p->longest;
	}
}

static void walk_pages(struct glk_cache *cache, struct pages *p)
{
	uint32_t end;

	*p = (struct pages){.cache = cache, .map = &cache->arena.map};
	glk_lock(&cache->lock);
	end = glk_space_end(p->map->space);
	for (uint32_t w = 0; w < (end + 63) >> 6; w++) {
		add_word(p, w);
		if (++p->words < TURN_WORDS && p->slots < TURN_SLOTS)
			continue;
		p->words = 0;
		p->slots = 0;
		glk_lock_yield(&cache->lock);
	}
	glk_unlock(&cache->lock);
}

/* What was found in a row and in its bins. */
struct found {
	uint32_t row;
	uint64_t bytes, blocks;	      /* live, and in bins */
	uint64_t quick, quick_blocks; /* in bins */
};

static uint32_t walk_head(struct glk_cache *cache, const struct glk_idstack *s,
	uint32_t left, struct found *f)
{
	/* pairs with: the CAS in push */
	uint32_t id = (uint32_t)(glk_load_acquire(&s->head) & GLK_ID_MASK);

	for (; id && left; left--) {
		const struct glk_extent *e = glk_extent_at(&cache->arena.map, id);

		f->quick += glk_peek_relaxed(&e->size);
		f->quick_blocks++;
		id = glk_load_relaxed(&e->quick.next);
	}
	return left;
}

static uint32_t walk_bins(struct glk_cache *cache, const struct glk_row *row,
	uint32_t left, struct found *f)
{
	for (unsigned i = 0; i < GLK_LOOKASIDE; i++) {
		uint64_t word = glk_load_relaxed(&row->aside.place[i]);

		f->quick += glk_lookaside_grains(word >> GLK_ID_BITS) << GLK_GRAIN_SHIFT;
		f->quick_blocks += word > 0;
	}
	for (uint32_t i = 0; i < GLK_BINS && left; i++) {
		const struct glk_bin *bin = &row->bin[i];
		struct glk_crowd *crowd;

		if (glk_bin_grains(bin) == GLK_BIN_NONE)
			continue;
		left = walk_head(cache, &bin->head, left, f);
		/* pairs with: the release where it is given */
		crowd = glk_load_acquire(&bin->crowd);
		for (int h = 0; crowd && h < GLK_CROWD_HEADS; h++)
			left = walk_head(cache, &crowd->at[h].head, left, f);
	}
	return left;
}

/* Into the list of those that have most, in order; what falls out of it. */
static struct found put_in(struct found *most, size_t *count, struct found f)
{
	struct found other;

	for (size_t i = 0; i < *count; i++) {
		if (most[i].bytes >= f.bytes)
			continue;
		other = most[i];
		most[i] = f;
		f = other;
	}
	if (*count == GLK_SURVEY_STREAMS)
		return f;
	most[(*count)++] = f;
	return (struct found){0};
}

static void add_up(struct glk_survey_stream *to, const struct found *f)
{
	/* read one after the other, and what is in bins came later */
	to->given += f->bytes > f->quick ? f->bytes - f->quick : 0;
	to->blocks += f->blocks > f->quick_blocks ? f->blocks - f->quick_blocks : 0;
	to->quick += f->quick;
}

/* Under the lock, for a name and a bit that belong together. The bit, if it is the stream's alone. */
static uint64_t describe(struct glk_cache *cache, const struct found *f,
	const struct pages *pages, struct glk_survey_stream *to)
{
	const struct glk_stream *s = glk_stream_at(&cache->streams, f->row);
	uint64_t key = glk_load_relaxed(&s->key);

	if (!key)
		snprintf(to->name, sizeof(to->name), "legacy");
	else if (s->handle == GLK_STREAM_PER_THREAD)
		snprintf(to->name, sizeof(to->name), "thread-%" PRIu64,
			glk_stream_thread(key));
	else
		snprintf(to->name, sizeof(to->name), "0x%" PRIx64, key);
	add_up(to, f);
	/* those of the last bit are not told apart */
	if (s->bit >= GLK_STREAM_CROWD)
		return 0;
	to->limbo = pages->by_bit[s->bit] << pages->map->shift;
	return UINT64_C(1) << s->bit;
}

static bool has_ended(const struct glk_cache *cache, uint32_t row)
{
	return glk_load_relaxed(&glk_stream_at(&cache->streams, row)->key) ==
		GLK_KEY_NONE;
}

static void walk_rows(
	struct glk_cache *cache, const struct pages *pages, struct glk_survey *survey)
{
	struct glk_survey_stream ended = {.name = "ended"}, rest = {.name = "rest"};
	uint32_t left = glk_load_relaxed(&cache->arena.map.extents.used);
	struct found most[GLK_SURVEY_STREAMS];
	uint32_t last = glk_peek_relaxed(&cache->last_row);
	uint64_t named = 0;
	size_t count = 0;

	for (uint32_t i = 1; i <= last; i++) {
		const struct glk_row *row = &cache->rows[i];
		struct found f = {.row = i};

		/* pairs with: the release in glk_quick_row */
		if (!glk_load_acquire(&row->entered))
			continue;
		f.bytes = glk_peek_relaxed(&row->bytes);
		f.blocks = glk_peek_relaxed(&row->blocks);
		if (!f.blocks && has_ended(cache, i))
			continue;
		if (glk_load_relaxed(&row->touched))
			left = walk_bins(cache, row, left, &f);
		if (has_ended(cache, i))
			add_up(&ended, &f);
		else if (f = put_in(most, &count, f), f.row)
			add_up(&rest, &f);
	}
	glk_lock(&cache->lock);
	for (size_t i = 0; i < count; i++) {
		if (has_ended(cache, most[i].row))
			add_up(&ended, &most[i]);
		else
			named |= describe(cache, &most[i], pages,
				&survey->stream[survey->streams++]);
	}
	glk_unlock(&cache->lock);
	for (uint64_t others = ~named; others; others &= others - 1)
		rest.limbo += pages->by_bit[__builtin_ctzll(others)] << pages->map->shift;
	survey->stream[survey->streams++] = ended;
	survey->stream[survey->streams++] = rest;
}

void glk_cache_survey(struct glk_cache *cache, struct glk_survey *ret_survey)
{
	struct pages pages;

	*ret_survey = (struct glk_survey){0};
	walk_pages(cache, &pages);
	ret_survey->limbo = pages.limbo << pages.map->shift;
	ret_survey->ready_hole = pages.longest << pages.map->shift;
	walk_rows(cache, &pages, ret_survey);
}
