/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_KV_BOOKS_H
#define GLK_UNIT_KV_BOOKS_H

/* What a KV cache keeps of its sequences and prefixes, against each other and against what is committed of its block. */
#include "base/error.h"
#include "base/thread.h"
#include "kv/kv.h"
#include "move/away.h"
#include "move/part.h"
#include "unit/cache/walk.h"

/* What a sequence is ready for, and the length at which a page of it goes, as its pages say. */
static inline bool kv_ready_is_sound(const struct glake_kv *kv, uint32_t slot)
{
	const struct glk_kv_sequence *q = &kv->sequence[slot];
	uint32_t ready = q->away ? 0 : kv->shape.tokens, sheds = UINT32_MAX;

	for (uint32_t g = 0; g < kv->shape.groups; g++) {
		const struct glk_kv_group *group = &kv->shape.group[g];
		struct glk_kv_run run = *glk_kv_run_at(kv, slot, g);
		uint64_t tokens = run.end * kv->shape.page / group->row, goes;

		if (group->rule != GLAKE_KV_STATE && tokens < ready)
			ready = (uint32_t)tokens;
		if (group->rule != GLAKE_KV_WINDOW)
			continue;
		/* the first token of which nothing lies in the first page is the first of its window */
		goes = group->window;
		while ((goes - group->window) * group->row <
			(run.first + UINT64_C(1)) * kv->shape.page)
			goes++;
		sheds = goes < sheds ? (uint32_t)goes : sheds;
	}
	return books_tell("tokens that a sequence is ready for", q->ready, ready) &&
		books_tell("tokens at which a page goes", q->sheds, sheds) &&
		q->tokens <= q->most && (q->away || q->tokens <= q->ready);
}

/* Pages of a place in a group: those in its run are committed, and no others; of these only the front is sealed. */
static inline bool kv_run_is_sound(const struct glake_kv *kv, const struct glk_map *map,
	const struct glk_extent *e, uint32_t place, uint32_t g)
{
	const struct glk_kv_group *group = &kv->shape.group[g];
	struct glk_kv_run run = *glk_kv_run_at(kv, place, g);
	uint32_t pages = (uint32_t)(group->slot / kv->shape.page), wrong = 0;
	uint32_t first =
		glk_slot_of(map, e->offset + group->offset + place * group->slot);

	for (uint32_t i = 0; i < pages; i++) {
		bool has = i >= run.first && i < run.end;

		wrong += has == glk_bit_get(map->bare, first + i);
		wrong += i >= run.sealed && has && glk_is_sealed(map, first + i);
	}
	if (wrong || run.first > run.end || run.sealed > run.end || run.end > pages)
		tap_note("place %u, group %u: pages [%u, %u), sealed to %u: %u are wrong",
			place, g, run.first, run.end, run.sealed, wrong);
	return !wrong && run.first <= run.end && run.sealed <= run.end &&
		run.end <= pages;
}

static inline bool kv_prefixes_are_sound(const struct glake_kv *kv)
{
	uint32_t found = 0, free = 0;
	bool same = true;

	for (uint32_t h = 0; h < kv->shape.prefixes; h++) {
		for (uint32_t id = kv->prefix_head[h]; id && found <= kv->shape.prefixes;
			id = kv->prefix[id - 1].next) {
			found++;
			same &= kv->sequence[kv->shape.slots + id - 1].tokens > 0;
		}
	}
	for (uint32_t id = kv->prefix_free; id && free <= kv->shape.prefixes;
		id = kv->prefix[id - 1].next)
		free++;
	same &= books_tell("prefixes", kv->prefixes, found);
	return same && books_tell("places of prefixes", free + found, kv->shape.prefixes);
}

static inline bool kv_is_sound(struct glake_kv *kv)
{
	struct glake_error why = glk_thread_self()->error;
	struct glk_cache *cache = kv->cache;
	const struct glk_extent *e;
	struct glk_arena *arena;
	uint64_t pages = 0;
	bool same = true;

	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, GLK_KV_ALL);
	glk_unlock(&kv->lock);
	glk_lock(&cache->lock);
	e = glk_away_find(cache, kv->base, &arena);
	for (uint32_t i = 0; e && i < glk_kv_places(&kv->shape); i++) {
		bool live = i < kv->shape.slots && kv->sequence[i].live;

		for (uint32_t g = 0; g < kv->shape.groups; g++) {
			struct glk_kv_run run = *glk_kv_run_at(kv, i, g);

			same &= kv_run_is_sound(kv, &arena->map, e, i, g);
			pages += run.end - run.first;
			/* one that has ended has nothing */
			same &= live || i >= kv->shape.slots || !run.end;
		}
		same &= !live || kv_ready_is_sound(kv, i);
		same &= !kv->sequence[i].pending;
	}
	if (e) {
		const struct glk_part *part = glk_part_at(cache, e);

		same &= books_tell("bytes that a KV cache holds", kv->held,
			glk_extent_asked(e) - part->bare - part->shared);
		same &= books_tell("bytes that it shares", kv->shared, part->shared);
	}
	glk_unlock(&cache->lock);
	glk_lock(&kv->lock);
	same &= books_tell(
		"bytes of its places", kv->held + kv->shared, pages * kv->shape.page);
	same &= kv_prefixes_are_sound(kv);
	glk_kv_change_end(kv);
	glk_unlock(&kv->lock);
	glk_error_back(&why);
	return same && e;
}

#endif
