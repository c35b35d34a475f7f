/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extents: runs of addresses, linked by address, the free ones in a treap by length and then
 * address. Extents are indices, so that the array may move.
 */
#include "policy.h"

#include <stdlib.h>

static bool before(const struct extent *e, uint64_t len, uint64_t at)
{
	return e->len < len || (e->len == len && e->at < at);
}

uint32_t extent_new(struct space *s, uint64_t at, uint64_t len)
{
	uint32_t e = s->spare;

	if (e != NONE) {
		s->spare = s->extent[e].next;
	} else {
		if (s->used == s->room) {
			s->room = s->room ? 2 * s->room : 1024;
			s->extent = realloc(s->extent, s->room * sizeof(*s->extent));
			if (!s->extent)
				abort();
		}
		e = s->used++;
	}
	s->seed = s->seed * 1664525u + 1013904223u;
	s->extent[e] = (struct extent){.at = at,
		.len = len,
		.prev = NONE,
		.next = NONE,
		.left = NONE,
		.right = NONE,
		.rank = s->seed,
		.parent = NONE,
		.bin_next = NONE,
		.state = EXTENT_GIVEN};
	return e;
}

void extent_drop(struct space *s, uint32_t e)
{
	s->extent[e].next = s->spare;
	s->spare = e;
}

/* Those before (len, at) go left. */
static void cut(struct space *s, uint32_t t, uint64_t len, uint64_t at, uint32_t *left,
	uint32_t *right)
{
	struct extent *x = s->extent;

	while (t != NONE) {
		if (before(&x[t], len, at)) {
			*left = t;
			left = &x[t].right;
			t = x[t].right;
		} else {
			*right = t;
			right = &x[t].left;
			t = x[t].left;
		}
	}
	*left = *right = NONE;
}

static void join(struct space *s, uint32_t *where, uint32_t a, uint32_t b)
{
	struct extent *x = s->extent;

	while (a != NONE && b != NONE) {
		if (x[a].rank > x[b].rank) {
			*where = a;
			where = &x[a].right;
			a = x[a].right;
		} else {
			*where = b;
			where = &x[b].left;
			b = x[b].left;
		}
	}
	*where = a != NONE ? a : b;
}

void extent_insert(struct space *s, int tree, uint32_t e)
{
	struct extent *x = s->extent;
	uint32_t *where = &s->root[tree];

	while (*where != NONE && x[*where].rank >= x[e].rank)
		where = before(&x[*where], x[e].len, x[e].at) ? &x[*where].right
							      : &x[*where].left;
	cut(s, *where, x[e].len, x[e].at, &x[e].left, &x[e].right);
	*where = e;
	x[e].state = EXTENT_FREE;
	if (++s->free[tree] > s->peak_free[tree])
		s->peak_free[tree] = s->free[tree];
}

void extent_remove(struct space *s, int tree, uint32_t e)
{
	struct extent *x = s->extent;
	uint32_t *where = &s->root[tree];

	while (*where != e)
		where = before(&x[*where], x[e].len, x[e].at) ? &x[*where].right
							      : &x[*where].left;
	join(s, where, x[e].left, x[e].right);
	x[e].left = x[e].right = NONE;
	s->free[tree]--;
}

uint32_t extent_fit(const struct space *s, int tree, uint64_t len, uint64_t at)
{
	uint32_t best = NONE;

	for (uint32_t t = s->root[tree]; t != NONE;) {
		if (before(&s->extent[t], len, at)) {
			t = s->extent[t].right;
		} else {
			best = t;
			t = s->extent[t].left;
		}
	}
	return best;
}

/* Cuts what is beyond len off an extent that is in no tree, and returns it. */
uint32_t extent_split(struct space *s, uint32_t e, uint64_t len)
{
	uint32_t rest = extent_new(s, s->extent[e].at + len, s->extent[e].len - len);
	struct extent *x = s->extent;

	x[rest].parent = x[e].parent;
	x[rest].prev = e;
	x[rest].next = x[e].next;
	if (x[e].next != NONE)
		x[x[e].next].prev = rest;
	else if (x[e].parent == NONE)
		s->last = rest;
	x[e].next = rest;
	x[e].len = len;
	return rest;
}

static void absorb(struct space *s, uint32_t e, uint32_t next)
{
	struct extent *x = s->extent;

	x[e].len += x[next].len;
	x[e].next = x[next].next;
	if (x[e].next != NONE)
		x[x[e].next].prev = e;
	else if (x[e].parent == NONE)
		s->last = e;
	extent_drop(s, next);
}

/* Merges with free neighbours; the result is in no tree. */
uint32_t extent_merge(struct space *s, int tree, uint32_t e)
{
	uint32_t prev = s->extent[e].prev, next = s->extent[e].next;

	if (next != NONE && s->extent[next].state == EXTENT_FREE) {
		extent_remove(s, tree, next);
		absorb(s, e, next);
	}
	if (prev != NONE && s->extent[prev].state == EXTENT_FREE) {
		extent_remove(s, tree, prev);
		absorb(s, prev, e);
		e = prev;
	}
	return e;
}
