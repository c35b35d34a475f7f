/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The order of hints: see hint.h. */
#include "move/hint.h"

#include "base/atomic.h"

#include <stddef.h>

static struct glk_hint *at(struct glk_hints *hints, uint32_t id)
{
	return id ? &hints->hint[id] : NULL;
}

static uint32_t id_of(const struct glk_hints *hints, const struct glk_hint *h)
{
	return (uint32_t)(h - hints->hint);
}

static uint32_t *row_of(struct glk_hints *hints, uint64_t addr)
{
	return &hints->row[(addr * UINT64_C(0x9e3779b97f4a7c15) >> 32) % GLK_HINT_ROWS];
}

struct glk_hint *glk_hint_new(struct glk_hints *hints, uint64_t addr)
{
	uint32_t *row = row_of(hints, addr), id = hints->free;
	struct glk_hint *h;

	if (id)
		hints->free = hints->hint[id].chain;
	else if (hints->used < GLK_HINTS)
		id = ++hints->used;
	else
		return NULL;
	h = &hints->hint[id];
	*h = (struct glk_hint){.addr = addr, .serial = ++hints->serial, .chain = *row};
	*row = id;
	return h;
}

struct glk_hint *glk_hint_find(struct glk_hints *hints, uint64_t addr)
{
	struct glk_hint *h = at(hints, *row_of(hints, addr));

	while (h && h->addr != addr)
		h = at(hints, h->chain);
	return h;
}

void glk_hint_hide(struct glk_hints *hints, struct glk_hint *h)
{
	uint32_t *link = row_of(hints, h->addr), id = id_of(hints, h);

	while (*link && *link != id)
		link = &hints->hint[*link].chain;
	if (*link)
		*link = h->chain;
	h->chain = 0;
}

/* ---- The heap ---- */

static bool is_before(const struct glk_hint *a, const struct glk_hint *b)
{
	if (a->deadline != b->deadline)
		return a->deadline < b->deadline;
	if (a->priority != b->priority)
		return a->priority > b->priority;
	return a->serial < b->serial;
}

static void put(struct glk_hints *hints, uint32_t place, uint32_t id)
{
	hints->heap[place] = id;
	hints->hint[id].at = place;
}

static void rise(struct glk_hints *hints, uint32_t place, uint32_t id)
{
	while (place > 1 &&
		is_before(&hints->hint[id], &hints->hint[hints->heap[place / 2]])) {
		put(hints, place, hints->heap[place / 2]);
		place /= 2;
	}
	put(hints, place, id);
}

static void sink(struct glk_hints *hints, uint32_t place, uint32_t id)
{
	for (uint32_t child; (child = place * 2) <= hints->queued; place = child) {
		if (child < hints->queued &&
			is_before(&hints->hint[hints->heap[child + 1]],
				&hints->hint[hints->heap[child]]))
			child++;
		if (!is_before(&hints->hint[hints->heap[child]], &hints->hint[id]))
			break;
		put(hints, place, hints->heap[child]);
	}
	put(hints, place, id);
}

void glk_hint_queue(struct glk_hints *hints, struct glk_hint *h)
{
	h->state = GLK_HINT_QUEUED;
	glk_poke_relaxed(&hints->queued, hints->queued + 1);
	rise(hints, hints->queued, id_of(hints, h));
}

void glk_hint_unqueue(struct glk_hints *hints, struct glk_hint *h)
{
	uint32_t place = h->at, last = hints->heap[hints->queued];

	glk_poke_relaxed(&hints->queued, hints->queued - 1);
	h->at = 0;
	if (last == id_of(hints, h))
		return;
	rise(hints, place, last);
	sink(hints, hints->hint[last].at, last);
}

struct glk_hint *glk_hint_next(struct glk_hints *hints)
{
	return hints->queued ? &hints->hint[hints->heap[1]] : NULL;
}

/* ---- Under way ---- */

void glk_hint_fly(struct glk_hints *hints, struct glk_hint *h)
{
	uint32_t id = id_of(hints, h);

	h->state = GLK_HINT_COPYING;
	h->behind = 0;
	if (hints->last)
		hints->hint[hints->last].behind = id;
	else
		hints->first = id;
	hints->last = id;
	hints->flying += h->bytes;
}

struct glk_hint *glk_hint_flying(struct glk_hints *hints)
{
	return at(hints, hints->first);
}

void glk_hint_land(struct glk_hints *hints)
{
	struct glk_hint *h = at(hints, hints->first);

	hints->first = h->behind;
	if (!hints->first)
		hints->last = 0;
	hints->flying -= h->bytes;
	h->state = GLK_HINT_LANDED;
}

void glk_hint_end(struct glk_hints *hints, struct glk_hint *h)
{
	glk_hint_hide(hints, h);
	h->state = GLK_HINT_FREE;
	h->addr = 0;
	h->chain = hints->free;
	hints->free = id_of(hints, h);
}
