/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A content that was packed is what it was in the store, since it comes back in parts: see pack.h. */
#include "tier/pack.h"

#include "base/error.h"
#include "base/slab.h"
#include "tier/cipher.h"
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

/* Units that threads transcribe between two looks at the tables. */
#define UNITS 64

struct unit {
	const struct glk_packed *packed; /* NULL: it lies in its run as it is */
	const struct glk_store_run *run;
	uint64_t size;
	struct place to;
};

struct batch {
	const struct glk_store *store;
	bool encrypts; /* what it makes, whatever that was */
	struct unit unit[UNITS];
	uint32_t count;
};

/* Where a place is, and how many bytes there are from it to the end of its run. */
static char *at(const struct glk_store *store, const struct place *p, uint64_t *ret_room)
{
	const struct glk_store_run *r = glk_store_at(store, p->run);

	*ret_room = r->chunks * GLK_STORE_CHUNK - p->in;
	return store->piece[r->piece].base + r->first * GLK_STORE_CHUNK + p->in;
}

static void advance(const struct glk_store *store, struct place *p, uint64_t bytes)
{
	uint64_t room;

	while (bytes) {
		at(store, p, &room);
		if (bytes < room) {
			p->in += bytes;
			return;
		}
		bytes -= room;
		p->run = glk_store_at(store, p->run)->next;
		p->in = 0;
	}
}

static void fill(
	const struct glk_store *store, struct place to, const char *from, uint64_t bytes)
{
	while (bytes) {
		uint64_t room;
		char *there = at(store, &to, &room);
		uint64_t part = bytes < room ? bytes : room;

		memcpy(there, from, part);
		from += part;
		bytes -= part;
		advance(store, &to, part);
	}
}

/* The same where contents are encrypted: a chunk at a time, of plain bytes that the thread has. A unit begins with a
 * chunk. */
static void cover(
	const struct glk_store *store, struct place to, const char *from, uint64_t bytes)
{
	for (uint64_t done = 0, part; done < bytes; done += part) {
		const struct glk_store_run *r = glk_store_at(store, to.run);
		uint64_t room;
		char *there = at(store, &to, &room);

		part = bytes - done < GLK_STORE_CHUNK ? bytes - done : GLK_STORE_CHUNK;
		glk_sodium_encrypt(there, from + done, part, (uintptr_t)there,
			glk_cipher_tag(store, r) + to.in / GLK_STORE_CHUNK);
		advance(store, &to, part);
	}
}

static int transcribe_encrypted(
	const struct glk_store *store, const struct unit *u, char *room)
{
	struct glk_store_run r = *u->run;
	struct place to = u->to;
	bool right = true;

	if (u->packed) {
		right = glk_pack_open(u->packed, room, u->size, room + GLK_PACK_UNIT);
		if (right)
			cover(store, to, room, u->size);
		return right ? 0 : -EIO;
	}
	for (uint64_t left = u->size, part; left && right; left -= part, r.first++) {
		part = left < GLK_STORE_CHUNK ? left : GLK_STORE_CHUNK;
		right = glk_cipher_read(store, &r, room, part);
		if (right)
			cover(store, to, room, part);
		advance(store, &to, part);
	}
	return right ? 0 : -EIO;
}

/* `*room`: of the thread, two units, for one that does not lie in one run or is to be encrypted; it is made at the first. */
static int transcribe_unit(void *arg, uint32_t i, char **room)
{
	const struct batch *b = arg;
	const struct unit *u = &b->unit[i];
	const struct glk_store *store = b->store;
	uint64_t space;
	char *to = at(store, &u->to, &space);
	const struct glk_store_run *r = u->run;

	if ((b->encrypts || (u->packed && u->size > space)) && !*room)
		*room = glk_sodium_room_new(2 * GLK_PACK_UNIT);
	if (b->encrypts)
		return *room ? transcribe_encrypted(store, u, *room) : -ENOMEM;
	if (!u->packed) {
		fill(store, u->to,
			store->piece[r->piece].base + r->first * GLK_STORE_CHUNK,
			u->size);
		return 0;
	}
	if (u->size > space)
		to = *room;
	if (!to)
		return -ENOMEM;
	if (!glk_lz4_unpack(u->packed->data, u->packed->used, to, u->size))
		return -EIO;
	if (u->size > space)
		fill(store, u->to, to, u->size);
	return 0;
}

/* The next units of a content, from a run on: the run behind them. */
static uint32_t gather(struct batch *b, uint32_t run, uint64_t *left, struct place *to)
{
	const struct glk_store *store = b->store;

	for (b->count = 0; run && b->count < UNITS; b->count++) {
		const struct glk_store_run *r = glk_store_at(store, run);
		uint64_t size = r->packed ? r->size : r->chunks * GLK_STORE_CHUNK;
		struct unit *u = &b->unit[b->count];

		size = size < *left ? size : *left;
		*u = (struct unit){
			.packed = r->packed, .run = r, .size = size, .to = *to};
		advance(store, to, size);
		*left -= size;
		run = r->next;
	}
	return run;
}

/* The bytes of a content, in another one of its size. The lock is given up. */
static int transcribe(struct glk_store *store, uint32_t from, uint32_t to)
{
	uint64_t left = glk_store_at(store, from)->bytes;
	struct place place = {to, 0};
	struct batch b = {.store = store};
	int err = 0;

	while (from && !err) {
		from = gather(&b, from, &left, &place);
		/* what was plain too: its chunks may be known as encrypted from others that lay there */
		b.encrypts = store->cipher;
		glk_lock_pause(store->lock);
		err = glk_pack_together(&(struct glk_pack_work){.fn = transcribe_unit,
			.arg = &b,
			.units = b.count,
			.each = 1,
			.room = 2 * GLK_PACK_UNIT});
		glk_lock_resume(store->lock);
	}
	return glk_unpack_why(err);
}

static int wait_until(struct glk_mover *mover, uint32_t stream, uint64_t tick)
{
	struct glk_streams *streams = mover->streams;
	struct glk_use use = glk_stream_use(glk_stream_enter(streams, stream), tick);

	return glk_clock_sync_use(streams, &use);
}

/* Nobody reads any more what lay there before, and no copy that was for others is still to write there. */
static int settle(struct glk_mover *mover, uint32_t run)
{
	struct glk_store_ticks until = glk_store_ticks(&mover->store, run);
	int err = wait_until(mover, mover->back, until.read);

	return err ? err : wait_until(mover, mover->out, until.written);
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
	err = glk_store_take(store, glk_store_at(store, run)->bytes, false, &other);
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
