/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents that come back in part: what has come makes room in the store by whole chunks, and what is
 * left is one content or two. Where it ends inside a chunk, the chunk stays. A step for each run of the
 * content.
 */
#include "tier/tier.h"

/* The chunks of a content that stay: those below `before`, and those from `behind` on. */
struct cut {
	uint64_t before, behind;
	uint32_t spare;
	struct glk_store_rest rest;
	uint32_t *end; /* the link that ends what lies before */
};

uint32_t glk_store_spare(struct glk_store *store)
{
	return glk_slab_get(&store->runs);
}

static uint64_t within(uint64_t chunk, uint64_t at, uint64_t chunks)
{
	uint64_t in = chunk > at ? chunk - at : 0;

	return in < chunks ? in : chunks;
}

/* A run that begins at a chunk of the content. What lies behind it follows where it is the first of
 * that. */
static void cut_run(struct glk_store *store, uint32_t id, uint64_t at, struct cut *c)
{
	struct glk_store_run *r = glk_store_at(store, id);
	uint32_t low = (uint32_t)within(c->before, at, r->chunks);
	uint32_t high = (uint32_t)within(c->behind, at, r->chunks);
	uint32_t next = r->next, tail = id;

	if (high > low)
		glk_store_mark(store, &store->piece[r->piece], r->first + low, high - low,
			false);
	if (low) {
		*c->end = id;
		c->end = &r->next;
		*c->end = 0;
	}
	if (high < r->chunks) {
		if (low) {
			tail = c->spare;
			c->spare = 0;
		}
		glk_store_make(store, tail,
			(struct glk_store_run){.next = next,
				.piece = r->piece,
				.first = (uint16_t)(r->first + high),
				.chunks = (uint16_t)(r->chunks - high)});
		c->rest.behind = tail;
	} else if (!low) {
		glk_slab_put(&store->runs, id);
	}
	if (low)
		r->chunks = (uint16_t)low;
}

struct glk_store_rest glk_store_cut(struct glk_store *store, uint32_t run, uint64_t from,
	uint64_t to, uint64_t read, uint32_t spare)
{
	struct glk_store_run was = *glk_store_at(store, run), *head;
	struct cut c = {.spare = spare};
	uint64_t at = 0;

	c.end = &c.rest.before;
	c.before = from ? (was.skip + from + GLK_STORE_CHUNK - 1) / GLK_STORE_CHUNK : 0;
	c.behind = to < was.bytes ? (was.skip + to) / GLK_STORE_CHUNK : UINT64_MAX;
	for (uint32_t next; run && !c.rest.behind; run = next) {
		struct glk_store_piece *p =
			&store->piece[glk_store_at(store, run)->piece];
		uint64_t chunks = glk_store_at(store, run)->chunks;

		/* of a chunk that stays as well, in which what went had its end */
		p->read = p->read < read ? read : p->read;
		/* what nobody read may still be on its way there */
		p->written = p->written < was.written ? was.written : p->written;
		next = glk_store_at(store, run)->next;
		/* what lies behind, and in no run of what lies before, keeps its links */
		if (at >= c.behind)
			c.rest.behind = run;
		else
			cut_run(store, run, at, &c);
		at += chunks;
	}
	if (c.rest.before) {
		head = glk_store_at(store, c.rest.before);
		head->bytes = from;
		head->written = was.written;
		head->skip = was.skip;
		head->loose = true;
		head->hashed = false;
		glk_poke_relaxed(&head->afar, glk_store_afar(store, c.rest.before));
	}
	if (c.rest.behind) {
		head = glk_store_at(store, c.rest.behind);
		head->bytes = was.bytes - to;
		head->written = was.written;
		head->skip = (uint32_t)((was.skip + to) % GLK_STORE_CHUNK);
		head->loose = true;
		head->hashed = false;
		glk_poke_relaxed(&head->afar, glk_store_afar(store, c.rest.behind));
	}
	if (c.spare)
		glk_slab_put(&store->runs, c.spare);
	return c.rest;
}
