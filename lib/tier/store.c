/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host for contents that are away: see tier.h. */
#include "tier/tier.h"

#include "base/error.h"
#include "base/parse.h"
#include "tier/cipher.h"
#include "tier/pack.h"
#include "tier/piece.h"

#include <errno.h>

/* Runs there may be; each content has one or a few. */
#define RUNS (1u << 22)

int glk_store_init(struct glk_store *store, struct glk_drv *drv, struct glk_lock *lock,
	int device, int node, struct glk_node *host)
{
	int err;

	*store = (struct glk_store){
		.drv = drv, .lock = lock, .device = device, .node = node, .host = host};
	store->piece = glk_region_new(GLK_STORE_PIECES * sizeof(*store->piece));
	if (!store->piece)
		return -ENOMEM;
	err = glk_slab_init(&store->runs, sizeof(struct glk_store_run), RUNS);
	if (err) {
		glk_region_free(store->piece, GLK_STORE_PIECES * sizeof(*store->piece));
		store->piece = NULL;
		return err;
	}
	pthread_cond_init(&store->made, NULL);
	return 0;
}

struct glk_store_piece *glk_store_place(struct glk_store *store)
{
	for (uint32_t i = 0; i < store->pieces; i++) {
		if (!store->piece[i].base && !store->piece[i].lent)
			return &store->piece[i];
	}
	return &store->piece[store->pieces++];
}

/* Of the budget, for as many pieces as it allows, of `wanted`. */
static uint32_t claim(struct glk_store *store, uint32_t wanted)
{
	uint32_t count = 0;

	while (count < wanted &&
		(store->held + store->lent) / GLK_STORE_PIECE < GLK_STORE_PIECES &&
		!glk_node_claim(store->host, GLK_STORE_PIECE)) {
		store->held += GLK_STORE_PIECE;
		count++;
	}
	return count;
}

static void unclaim(struct glk_store *store, uint32_t pieces)
{
	for (; pieces; pieces--) {
		store->held -= GLK_STORE_PIECE;
		glk_node_unclaim(store->host, GLK_STORE_PIECE);
	}
}

/* ---- Nodes of the host ---- */

#define ANY GLK_STORE_NEARS

void glk_store_near(struct glk_store *store, int node, uint64_t stripe, uint64_t least)
{
	unsigned i = 0;

	store->stripe = stripe < GLK_STORE_CHUNK ? 1
		: stripe < GLK_STORE_PIECE	 ? (uint32_t)(stripe / GLK_STORE_CHUNK)
						 : GLK_STORE_CHUNKS;
	store->least = least;
	while (i < store->nears && store->near[i].node != node)
		i++;
	if (i == store->nears && i < GLK_STORE_NEARS)
		store->near[store->nears++] = (struct glk_store_near){.node = node};
	if (i < store->nears)
		store->near[i].links++;
}

/* The node that has least for its links, of bytes that each has, and is not out of the question. ANY: none. */
static unsigned least_of(
	const struct glk_store *store, unsigned nears, const uint64_t *has, uint32_t out)
{
	unsigned least = ANY;

	for (unsigned i = 0; i < nears; i++) {
		if (out >> i & 1)
			continue;
		if (least == ANY ||
			has[i] * store->near[least].links <
				has[least] * store->near[i].links)
			least = i;
	}
	return least;
}

/* For which nodes the next pieces are made: for one, or for all, so that each has as much as it has of the links. */
static void choose(
	const struct glk_store *store, unsigned near, uint32_t count, int *node)
{
	uint64_t has[GLK_STORE_NEARS];
	uint32_t full = 0;

	for (unsigned i = 0; i < GLK_STORE_NEARS; i++) {
		has[i] = store->near[i].there;
		full |= (uint32_t)store->near[i].full << i;
	}
	for (uint32_t i = 0; i < count; i++) {
		unsigned at = near;

		if (store->nears && near == ANY)
			at = least_of(store, store->nears, has, full);
		if (at == ANY) {
			node[i] = store->node;
			continue;
		}
		node[i] = store->near[at].node;
		has[at] += GLK_STORE_PIECE;
	}
}

/* A piece lies on a node that was made for one. */
static void place(struct glk_store *store, struct glk_store_piece *p, int asked, int lies)
{
	for (unsigned i = 0; i < store->nears; i++) {
		if (store->near[i].node == asked && lies != asked)
			store->near[i].full = true;
		if (store->near[i].node == lies)
			p->near = (uint8_t)i;
	}
	if (!store->nears)
		return;
	store->near[p->near].there += GLK_STORE_PIECE;
	store->astray += asked == lies ? 0 : GLK_STORE_PIECE;
}

/* ---- Pieces are made ---- */

/* Up to so many pieces more, and at least one, which others may take meanwhile; or what somebody else is
 * making is waited for. Near one of the nodes, or ANY. */
static int grow(struct glk_store *store, uint64_t pieces, unsigned near)
{
	int asked[GLK_PIECES], lies[GLK_PIECES];
	char *base[GLK_PIECES];
	uint32_t claimed, made = 0;
	int err;

	if (store->making) {
		glk_lock_wait(store->lock, &store->made);
		return 0;
	}
	claimed = claim(store, pieces < GLK_PIECES ? (uint32_t)pieces : GLK_PIECES);
	if (!claimed)
		return glk_store_refuse(store->host);
	store->making = true;
	choose(store, near, claimed, asked);
	glk_lock_pause(store->lock);
	err = glk_pieces_make(store->drv, store->device, asked, base, claimed, &made);
	for (uint32_t i = 0; store->nears && i < made; i++)
		lies[i] = glk_piece_node(store->drv, base[i], asked[i]);
	glk_lock_resume(store->lock);
	store->making = false;
	pthread_cond_broadcast(&store->made);
	unclaim(store, claimed - made);
	for (uint32_t i = 0; i < made; i++) {
		struct glk_store_piece *p = glk_store_place(store);

		*p = (struct glk_store_piece){.base = base[i]};
		if (store->nears)
			place(store, p, asked[i], lies[i]);
	}
	store->there += made * GLK_STORE_PIECE;
	if (made)
		glk_node_note_peak(store->host);
	return err;
}

void glk_store_settle(struct glk_store *store)
{
	while (store->making)
		glk_lock_wait(store->lock, &store->made);
}

int glk_store_ready(struct glk_store *store, uint64_t bytes)
{
	uint64_t room;
	int err = 0;

	while (!err && (room = store->held - store->used) < bytes)
		err = grow(store, (bytes - room + GLK_STORE_PIECE - 1) / GLK_STORE_PIECE,
			ANY);
	return err;
}

static bool is_used(const struct glk_store_piece *p, uint32_t chunk)
{
	return p->used[chunk >> 6] >> (chunk & 63) & 1;
}

void glk_store_mark(struct glk_store *store, struct glk_store_piece *p, uint32_t first,
	uint32_t chunks, bool used)
{
	uint64_t *bytes = p->lent ? &store->lent_used : &store->used;
	size_t at = (size_t)(p - store->piece) * GLK_STORE_CHUNKS + first;

	/* nothing is encrypted there yet */
	if (used && store->cipher)
		memset(&store->cipher->tags[at], 0,
			chunks * sizeof(*store->cipher->tags));
	for (uint32_t i = first; i < first + chunks; i++) {
		uint64_t bit = UINT64_C(1) << (i & 63);

		p->used[i >> 6] = used ? p->used[i >> 6] | bit : p->used[i >> 6] & ~bit;
	}
	p->count += used ? chunks : -chunks;
	*bytes += used ? chunks * GLK_STORE_CHUNK : -(chunks * GLK_STORE_CHUNK);
}

/* The next run of free chunks of a piece, of no more than `most`; 0 chunks: there is none. */
static uint32_t find_run(const struct glk_store_piece *p, uint32_t from, uint32_t most,
	uint32_t *ret_first)
{
	uint32_t chunks = 0;

	while (from < GLK_STORE_CHUNKS && is_used(p, from))
		from++;
	while (from + chunks < GLK_STORE_CHUNKS && chunks < most &&
		!is_used(p, from + chunks))
		chunks++;
	*ret_first = from;
	return chunks;
}

/* Takes what a piece has of the chunks that are left, and links it before a chain. */
static int take_from(
	struct glk_store *store, uint32_t piece, uint64_t *left, uint32_t *chain)
{
	struct glk_store_piece *p = &store->piece[piece];
	uint32_t first = 0, chunks, id;

	while (*left && p->base && !p->barred && p->count < GLK_STORE_CHUNKS) {
		chunks = find_run(p, first,
			*left < GLK_STORE_CHUNKS ? (uint32_t)*left : GLK_STORE_CHUNKS,
			&first);
		if (!chunks)
			break;
		id = glk_slab_get(&store->runs);
		if (!id)
			return -ENOMEM;
		glk_store_make(store, id,
			(struct glk_store_run){.next = *chain,
				.piece = piece,
				.first = (uint16_t)first,
				.chunks = (uint16_t)chunks});
		*chain = id;
		glk_store_mark(store, p, first, chunks, true);
		*left -= chunks;
	}
	return 0;
}

/* The same of all pieces that are lent, or of all others, or of those near a node, from one on: *from is the last one
 * of which something was taken, or behind them all. */
static int take_of(struct glk_store *store, bool lent, unsigned near, uint32_t *from,
	uint64_t *left, uint32_t *chain)
{
	uint32_t i = *from;
	int err = 0;

	for (; i < store->pieces && *left && !err; i++) {
		const struct glk_store_piece *p = &store->piece[i];

		if (p->lent == lent && (near == ANY || p->near == near))
			err = take_from(store, i, left, chain);
		*from = i;
	}
	if (*left)
		*from = i;
	return err;
}

/* Of each node a share, in stripes, or of the first one alone. What cannot be had there is left. */
static int take_near(
	struct glk_store *store, unsigned nears, uint64_t *left, uint32_t *chain)
{
	uint64_t has[GLK_STORE_NEARS] = {0}, links = 0;
	uint32_t from[GLK_STORE_NEARS] = {0}, out = 0;
	unsigned at;
	int err = 0;

	for (unsigned i = 0; i < nears; i++)
		links += store->near[i].links;
	while (*left && !err && (at = least_of(store, nears, has, out)) != ANY) {
		const struct glk_store_near *near = &store->near[at];
		uint64_t stripe = *left < store->stripe ? *left : store->stripe;
		uint64_t wants = stripe, share = *left * near->links / links;

		err = take_of(store, false, at, &from[at], &wants, chain);
		*left -= stripe - wants;
		has[at] += stripe - wants;
		if (!wants || err)
			continue;
		from[at] = 0;
		if (near->full || grow(store, share / GLK_STORE_CHUNKS + 1, at))
			out |= 1u << at;
	}
	return err;
}

int glk_store_take(struct glk_store *store, uint64_t bytes, bool lent, uint32_t *ret_run)
{
	uint64_t left = (bytes + GLK_STORE_CHUNK - 1) / GLK_STORE_CHUNK;
	unsigned nears = bytes < store->least && store->nears ? 1 : store->nears;
	uint32_t chain = 0, from;
	int err = 0;

	while (left && !err) {
		from = 0;
		lent = lent && glk_lend_takes(store->host->peer);
		if (lent)
			err = take_of(store, true, ANY, &from, &left, &chain);
		lent = lent && !err && left && glk_store_borrow(store);
		if (lent)
			continue;
		if (nears && left && !err)
			err = take_near(store, nears, &left, &chain);
		nears = from = 0;
		if (left && !err)
			err = take_of(store, false, ANY, &from, &left, &chain);
		if (left && !err)
			err = grow(store,
				(left + GLK_STORE_CHUNKS - 1) / GLK_STORE_CHUNKS, ANY);
		if (err == -ENOMEM && store->yield &&
			store->yield(store->arg, GLK_STORE_PIECE))
			err = 0;
	}
	if (err) {
		glk_store_put(store, chain, 0);
		return err;
	}
	glk_store_at(store, chain)->bytes = bytes;
	glk_poke_relaxed(&glk_store_at(store, chain)->afar, glk_store_afar(store, chain));
	*ret_run = chain;
	return 0;
}

void glk_store_leave(
	struct glk_store *store, const struct glk_store_run *r, uint64_t read)
{
	struct glk_store_piece *p = &store->piece[r->piece];

	glk_store_mark(store, p, r->first, r->chunks, false);
	p->read = p->read < read ? read : p->read;
}

void glk_store_put(struct glk_store *store, uint32_t run, uint64_t read)
{
	uint64_t written = run ? glk_store_at(store, run)->written : 0;

	if (run && store->pack)
		glk_pack_leave(store->pack, run);
	for (uint32_t next; run; run = next) {
		struct glk_store_run *r = glk_store_at(store, run);
		struct glk_store_piece *p = &store->piece[r->piece];

		next = r->next;
		if (store->pack && glk_pack_drops(store->pack, run, read))
			continue;
		p->written = p->written < written ? written : p->written;
		if (r->packed)
			glk_pack_spend(store->pack, r);
		else
			glk_store_leave(store, r, read);
		glk_slab_put(&store->runs, run);
	}
}

struct glk_store_ticks glk_store_ticks(const struct glk_store *store, uint32_t run)
{
	struct glk_store_ticks until = {0};

	for (; run; run = glk_store_at(store, run)->next) {
		const struct glk_store_piece *p =
			&store->piece[glk_store_at(store, run)->piece];

		until.read = until.read < p->read ? p->read : until.read;
		until.written = until.written < p->written ? p->written : until.written;
	}
	return until;
}

/*
 * ---- Contents that come back in part ----
 *
 * What has come makes room by whole chunks, and what is left is one content or two. Where it ends inside a chunk, the
 * chunk stays. A step for each run of the content.
 */

/* The chunks of a content that stay: those below `before`, and those from `behind` on. */
struct cut {
	uint64_t before, behind;
	uint32_t spare;
	struct glk_store_rest rest;
	uint32_t *end; /* the link that ends what lies before */
};

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

/* A part of what was a content is one; none where there is no run. */
static void begin(struct glk_store *store, uint32_t run, const struct glk_store_run *was,
	uint64_t bytes, uint32_t skip)
{
	struct glk_store_run *head = glk_store_at(store, run);

	if (!run)
		return;
	head->bytes = bytes;
	head->written = was->written;
	head->skip = skip;
	head->loose = true;
	head->hashed = false;
	glk_poke_relaxed(&head->afar, glk_store_afar(store, run));
}

struct glk_store_rest glk_store_cut(struct glk_store *store, uint32_t run, uint64_t from,
	uint64_t to, uint64_t read, uint32_t spare)
{
	struct glk_store_run was = *glk_store_at(store, run);
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
	begin(store, c.rest.before, &was, from, was.skip);
	begin(store, c.rest.behind, &was, was.bytes - to,
		(uint32_t)((was.skip + to) % GLK_STORE_CHUNK));
	if (c.spare)
		glk_slab_put(&store->runs, c.spare);
	return c.rest;
}

uint64_t glk_store_trim(
	struct glk_store *store, uint64_t keep, glk_store_rests_fn rests, void *arg)
{
	uint64_t given = 0;

	for (uint32_t i = 0; i < store->pieces && store->there > keep; i++) {
		char *base = store->piece[i].base;

		if (!base || store->piece[i].lent || store->piece[i].count)
			continue;
		/* again for each: others may have copied something since, and freed it */
		if (!rests(arg))
			break;
		store->piece[i].base = NULL;
		store->there -= GLK_STORE_PIECE;
		for (unsigned n = 0; n < store->nears; n++)
			store->near[n].full = false;
		if (store->nears)
			store->near[store->piece[i].near].there -= GLK_STORE_PIECE;
		glk_lock_pause(store->lock);
		glk_piece_end(store->drv, store->device, base, GLK_STORE_PIECE);
		glk_lock_resume(store->lock);
		unclaim(store, 1);
		given += GLK_STORE_PIECE;
	}
	return given;
}

int glk_store_fini(struct glk_store *store)
{
	int err = glk_store_give_all(store);

	for (uint32_t i = 0; i < store->pieces; i++) {
		if (!store->piece[i].base)
			continue;
		glk_piece_end(
			store->drv, store->device, store->piece[i].base, GLK_STORE_PIECE);
		glk_node_unclaim(store->host, GLK_STORE_PIECE);
	}
	if (store->piece) {
		pthread_cond_destroy(&store->made);
		glk_region_free(store->piece, GLK_STORE_PIECES * sizeof(*store->piece));
	}
	glk_slab_fini(&store->runs);
	store->piece = NULL;
	return err;
}
