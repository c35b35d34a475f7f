/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A content that was packed is what it was in the store, since it comes back in parts: see pack.h. */
#include "tier/pack.h"

#include "base/error.h"
#include "base/slab.h"
#include "tier/lz4.h"

#include <errno.h>
#include <string.h>

/* Where the next byte goes. */
struct place {
	uint32_t run;
	uint64_t in; /* bytes of it that are there */
};

static bool is_packed(const struct glk_store *store, uint32_t run)
{
	while (run && !glk_store_at(store, run)->packed)
		run = glk_store_at(store, run)->next;
	return run;
}

static bool is_in_hand(const struct glk_pack *pack, uint32_t run)
{
	const struct glk_store *store = &pack->mover->store;

	while (run && run != pack->unit)
		run = glk_store_at(store, run)->next;
	return run;
}

static void fill(
	const struct glk_store *store, struct place *to, const char *from, uint64_t bytes)
{
	while (bytes) {
		const struct glk_store_run *r = glk_store_at(store, to->run);
		uint64_t room = r->chunks * GLK_STORE_CHUNK - to->in;
		uint64_t part = bytes < room ? bytes : room;

		memcpy(store->piece[r->piece].base + r->first * GLK_STORE_CHUNK + to->in, from,
			part);
		from += part;
		bytes -= part;
		to->in += part;
		if (part < room)
			continue;
		to->run = r->next;
		to->in = 0;
	}
}

/* The bytes of a content, in another one of its size. The lock is given up. */
static int transcribe(struct glk_store *store, uint32_t from, uint32_t to)
{
	uint64_t left = glk_store_at(store, from)->bytes;
	char *room = glk_region_new(GLK_PACK_UNIT);
	struct place place = {to, 0};
	bool right = true;

	if (!room)
		return -ENOMEM;
	for (; from && right; from = glk_store_at(store, from)->next) {
		const struct glk_store_run *r = glk_store_at(store, from);
		uint64_t size = r->packed ? r->size : r->chunks * GLK_STORE_CHUNK;
		const char *base = room;

		size = size < left ? size : left;
		left -= size;
		glk_lock_pause(store->lock);
		if (r->packed)
			right = glk_lz4_unpack(r->packed->data, r->packed->used, room, size);
		else
			base = store->piece[r->piece].base + r->first * GLK_STORE_CHUNK;
		if (right)
			fill(store, &place, base, size);
		glk_lock_resume(store->lock);
	}
	glk_region_free(room, GLK_PACK_UNIT);
	return right ? 0
		     : glk_error(-EIO, GLAKE_ERROR_CORRUPT,
			       "contents that were compressed in memory of the host are not what "
			       "they were");
}

static int wait_until(struct glk_mover *mover, uint32_t stream, uint64_t tick)
{
	struct glk_streams *streams = mover->streams;
	struct glk_use use = glk_stream_use(glk_stream_enter(streams, stream), tick);

	return !tick || glk_clock_finished(streams, &use)
		? 0
		: glk_clock_sync_use(streams, &use);
}

/* Nobody reads any more what lay there before, and no copy that was for others is still to write there. */
static int settle(struct glk_mover *mover, uint32_t run)
{
	uint64_t written = glk_store_written(&mover->store, run);
	int err = wait_until(mover, mover->back, glk_store_read(&mover->store, run));

	return err ? err : wait_until(mover, mover->out, written);
}

/* The caller knows a content by its first run, which takes what the other one has. */
static void exchange(struct glk_store *store, uint32_t run, uint32_t other)
{
	struct glk_store_run *first = glk_store_at(store, run), was = *first,
			     *new = glk_store_at(store, other);

	first->next = new->next;
	first->piece = new->piece;
	first->first = new->first;
	first->chunks = new->chunks;
	first->packed = NULL;
	*new = was;
	glk_store_put(store, other, was.read);
}

int glk_pack_loosen(struct glk_mover *mover, uint32_t run)
{
	struct glk_store *store = &mover->store;
	struct glk_pack *pack = store->pack;
	uint32_t other;
	int err;

	if (!pack)
		return 0;
	glk_pack_leave(pack, run);
	glk_store_at(store, run)->loose = true;
	while (is_in_hand(pack, run)) {
		glk_store_relaxed(&pack->unwanted, true);
		glk_lock_wait(store->lock, &pack->landed);
	}
	if (!is_packed(store, run))
		return 0;
	err = glk_store_take_host(store, glk_store_at(store, run)->bytes, &other);
	if (err)
		return err;
	err = settle(mover, other);
	if (!err)
		err = transcribe(store, run, other);
	if (err) {
		glk_store_put(store, other, 0);
		return err;
	}
	exchange(store, run, other);
	return 0;
}
