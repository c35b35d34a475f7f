/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pieces of a store that lie in memory of another GPU (tier.away=peer): lent by it like pages of blocks, to the peer
 * of the host (pool/lend.c), at addresses of their own, where the GPU of the store alone may read and write. No
 * processor does, so what lies there is neither hashed nor packed. One is made when a content finds no room
 * in those that there are, which takes the driver less than a millisecond, and none is made ahead.
 *
 * Nothing here takes the lock of the lender: what it lends is counted in its node.
 */
#include "tier/tier.h"

#include "base/log.h"
#include "base/thread.h"

#include <inttypes.h>

/* Of the driver's pages. */
#define ALIGN ((size_t)2 << 20)

/* What the driver keeps is asked for again: mapped, all of it is as it was, and else nobody's. Without the
 * lock. 0 or the driver's error. */
static int end(struct glk_store *store, struct glk_store_piece *p)
{
	uint64_t base = (uintptr_t)p->base;
	struct glk_drv *drv = store->drv;
	int err = base ? drv->ops->unmap(drv, base, GLK_STORE_PIECE) : 0;

	if (err)
		return err;
	if (base)
		drv->ops->unreserve(drv, base, GLK_STORE_PIECE);
	p->base = NULL;
	err = drv->ops->release(drv, p->handle);
	if (err)
		return err;
	glk_source_end(store->host->peer, GLK_STORE_PIECE);
	*p = (struct glk_store_piece){0};
	return 0;
}

/* Without the lock. 0; or an error, with a piece that serves nobody where the driver keeps its memory. */
static int make(struct glk_store *store, struct glk_store_piece *ret)
{
	struct glk_grant grant = {
		.who = {GLK_PLACE_GPU, store->device}, .access = GLK_ACCESS_WRITE};
	struct glk_store_piece piece = {.lent = true};
	struct glk_node *peer = store->host->peer;
	uint64_t base = 0;
	uint8_t able;
	int err = glk_source_make(peer, GLK_STORE_PIECE, &piece.handle, &able);

	if (err)
		return err;
	err = glk_drv_place(
		store->drv, GLK_STORE_PIECE, ALIGN, piece.handle, &grant, &base);
	if (err)
		glk_lend_failed(peer, err);
	piece.base = (char *)(uintptr_t)base;
	piece.barred = err;
	if (err && !end(store, &piece)) {
		/* that was its own memory: the next one would fail too */
		glk_lend_failed(peer, err);
		return err;
	}
	if (piece.base && piece.barred)
		glk_warn("GPU %d: 0x%" PRIx64
			 " could not be unmapped and stays out of use",
			store->device, base);
	*ret = piece;
	return err;
}

/* A piece that nothing lies in, which nobody finds meanwhile. */
static void give_one(struct glk_store *store, struct glk_store_piece *p)
{
	struct glk_store_piece piece = *p;
	int err;

	p->base = NULL;
	p->count = GLK_STORE_CHUNKS;
	glk_lock_pause(store->lock);
	err = end(store, &piece);
	glk_lock_resume(store->lock);
	*p = piece;
	if (!err)
		store->lent -= GLK_STORE_PIECE;
}

bool glk_store_borrow(struct glk_store *store)
{
	struct glk_store_piece piece = {0}, *p = NULL;
	int err;

	if ((store->held + store->lent) / GLK_STORE_PIECE >= GLK_STORE_PIECES)
		return false;
	store->lent += GLK_STORE_PIECE;
	glk_lock_pause(store->lock);
	err = make(store, &piece);
	glk_lock_resume(store->lock);
	if (piece.lent)
		*(p = glk_store_place(store)) = piece;
	else
		store->lent -= GLK_STORE_PIECE;
	/* who was shut meanwhile has looked for what nobody uses, and has not found this one */
	if (p && !glk_lend_stows(store->host->peer)) {
		give_one(store, p);
		return false;
	}
	return !err;
}

void glk_store_give(struct glk_store *store, glk_store_rests_fn rests, void *arg)
{
	for (uint32_t i = 0; i < store->pieces && store->lent; i++) {
		struct glk_store_piece *p = &store->piece[i];

		if (!p->lent || p->count)
			continue;
		/* again for each, as in glk_store_trim(); one that the driver keeps is no reason to keep others */
		if (!rests(arg))
			return;
		give_one(store, p);
	}
}

int glk_store_give_all(struct glk_store *store)
{
	int err = 0, failed;

	for (uint32_t i = 0; i < store->pieces; i++) {
		struct glk_store_piece *p = &store->piece[i];

		if (!p->lent)
			continue;
		failed = end(store, p);
		err = err ? err : failed;
		p->base = NULL;
	}
	return err;
}

uint64_t glk_store_afar(const struct glk_store *store, uint32_t run)
{
	const struct glk_store_run *first = glk_store_at(store, run);
	uint64_t left = first->bytes, skip = first->skip, bytes = 0;

	for (; run && left; run = glk_store_at(store, run)->next) {
		const struct glk_store_run *r = glk_store_at(store, run);
		uint64_t size = r->packed ? r->size : r->chunks * GLK_STORE_CHUNK - skip;

		size = size < left ? size : left;
		if (glk_store_is_afar(store, r))
			bytes += size;
		left -= size;
		skip = 0;
	}
	return bytes;
}
