/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents between a GPU and the host, where they are encrypted: see cipher.h. */
#include "tier/cipher.h"

#include "base/error.h"
#include "tier/pack.h"

#include <errno.h>
#include <string.h>

/* Chunks for each thread, at least: to start one takes as long as a tenth of that. */
#define EACH 4

enum way { OUT, BACK, CHECK, BARE, COVER, CLEAR };

struct chunk {
	char *at, *land; /* in the store, and where it lands */
	struct glk_sodium_tag *tag;
	size_t bytes;
};

/* Chunks of one half. */
struct batch {
	enum way way;
	uint32_t count;
	struct chunk chunk[GLK_CIPHER_CHUNKS];
};

/* ---- Chunks ---- */

static bool is_treated(enum way way, const struct chunk *c)
{
	uint64_t bound = (uintptr_t)c->at;

	switch (way) {
	case OUT:
		glk_sodium_encrypt(c->at, c->land, c->bytes, bound, c->tag);
		return true;
	case BACK:
		return glk_sodium_decrypt(c->land, c->at, bound, c->tag);
	case CHECK:
		return glk_sodium_decrypt(NULL, c->at, bound, c->tag);
	case BARE:
		if (!glk_sodium_decrypt(c->at, c->at, bound, c->tag))
			return false;
		c->tag->number = 0;
		return true;
	case COVER:
		glk_sodium_encrypt(c->at, c->at, c->tag->bytes, bound, c->tag);
		return true;
	case CLEAR:
		explicit_bzero(c->land, c->bytes);
		return true;
	}
	return false;
}

static int treat(void *arg, uint32_t i, char **room)
{
	const struct batch *b = arg;

	(void)room;
	return is_treated(b->way, &b->chunk[i]) ? 0 : -EIO;
}

/* Without the lock. */
static int treat_all(struct batch *b)
{
	return glk_pack_together(&(struct glk_pack_work){
		       .fn = treat, .arg = b, .units = b->count, .each = EACH})
		? glk_error(-EIO, GLAKE_ERROR_CORRUPT,
			  "contents that were encrypted in memory of the host are not what they were")
		: 0;
}

static bool takes(enum way way, const struct glk_sodium_tag *tag)
{
	if (way == COVER)
		return !tag->number && tag->bytes;
	return way == OUT || tag->number;
}

/* The next chunks of what is left: where they land, of runs that are treated alike, up to one that is not; else those of
 * a run that the way takes. Their bytes. */
static uint64_t gather(
	const struct glk_store *store, struct glk_left *left, char *land, struct batch *b)
{
	uint64_t bytes = 0;

	b->count = 0;
	while (left->bytes && b->count < GLK_CIPHER_CHUNKS) {
		const struct glk_store_run *r = glk_store_at(store, left->run);
		uint64_t in = left->skip % GLK_STORE_CHUNK, size = GLK_STORE_CHUNK - in;
		uint64_t chunk = left->skip / GLK_STORE_CHUNK;

		bool in_it = !r->packed && !glk_store_is_afar(store, r) &&
			takes(b->way, glk_cipher_tag(store, r) + chunk);

		if (!in_it && land)
			break;
		size = size < left->bytes ? size : left->bytes;
		if (in_it) {
			b->chunk[b->count] = (struct chunk){
				.at = store->piece[r->piece].base +
					(r->first + chunk) * GLK_STORE_CHUNK,
				.land = land ? land + b->count * GLK_STORE_CHUNK : NULL,
				.tag = glk_cipher_tag(store, r) + chunk,
				.bytes = size};
			b->count++;
			bytes += size;
		}
		left->addr += size;
		left->bytes -= size;
		left->skip += size;
		if (left->skip == r->chunks * GLK_STORE_CHUNK) {
			left->run = r->next;
			left->skip = 0;
		}
	}
	return bytes;
}

/* ---- The landing ---- */

void glk_cipher_hold(struct glk_mover *mover)
{
	struct glk_cipher *c = mover->store.cipher;

	if (!c)
		return;
	while (c->taken)
		glk_lock_wait(mover->store.lock, &c->free);
	c->taken = true;
}

void glk_cipher_let_go(struct glk_mover *mover)
{
	struct glk_cipher *c = mover->store.cipher;

	if (!c)
		return;
	c->taken = false;
	pthread_cond_broadcast(&c->free);
}

/* ---- Contents ---- */

struct flight {
	struct glk_mover *mover;
	struct glk_channel *channel;
	struct glk_landing *landing;
	struct batch half[2];
	uint32_t most[2]; /* chunks that were in it */
};

static int queue(
	struct flight *f, unsigned half, uint64_t to, uint64_t from, uint64_t bytes)
{
	struct glk_store *store = &f->mover->store;
	int err =
		glk_channel_copy(f->channel, store->drv, store->device, to, from, bytes);
	int failed = glk_landing_mark(store, f->landing, half, f->channel->main);

	return err ? err : failed;
}

/* A half goes to the host, while the one before it is encrypted. */
static int go(struct flight *f, unsigned half, char *land, uint64_t addr, uint64_t bytes)
{
	int err = queue(f, half, (uintptr_t)land, addr, bytes);

	if (!err)
		err = glk_landing_await(&f->mover->store, f->landing, !half);
	if (!err && f->half[!half].count)
		err = treat_all(&f->half[!half]);
	f->half[!half].count = 0;
	return err;
}

/* And is decrypted, while the one before it comes. */
static int come(
	struct flight *f, unsigned half, char *land, uint64_t addr, uint64_t bytes)
{
	int err = treat_all(&f->half[half]);

	return err ? err : queue(f, half, addr, (uintptr_t)land, bytes);
}

/* No byte of it is left in the landing. */
static void clear(struct flight *f, char *base)
{
	struct batch *b = &f->half[0];

	b->way = CLEAR;
	for (unsigned half = 0; half < 2; half++) {
		b->count = f->most[half];
		for (uint32_t i = 0; i < b->count; i++)
			b->chunk[i] = (struct chunk){.land = base +
					half * GLK_CIPHER_HALF + i * GLK_STORE_CHUNK,
				.bytes = GLK_STORE_CHUNK};
		if (b->count)
			treat_all(b);
	}
}

static int copy(struct glk_mover *mover, struct glk_left *left, bool out)
{
	struct glk_store *store = &mover->store;
	struct glk_landing *landing = &store->cipher->landing;
	struct flight f = {.mover = mover,
		.channel = out ? &mover->out_channel : &mover->back_channel,
		.landing = landing};
	struct glk_lock *lock = store->lock;
	int err = glk_landing_have(store, landing, 2 * GLK_CIPHER_HALF), failed;
	unsigned half = 0;
	char *base;

	if (err)
		return err;
	base = landing->base;
	f.half[0].way = f.half[1].way = out ? OUT : BACK;
	for (; !err; half = !half) {
		uint64_t in = left->skip % GLK_STORE_CHUNK, addr = left->addr, bytes;
		char *land = base + half * GLK_CIPHER_HALF;

		if (landing->busy[half]) {
			glk_lock_pause(lock);
			err = glk_landing_await(store, landing, half);
			glk_lock_resume(lock);
		}
		bytes = err ? 0 : gather(store, left, land, &f.half[half]);
		if (!bytes)
			break;
		if (f.most[half] < f.half[half].count)
			f.most[half] = f.half[half].count;
		glk_lock_pause(lock);
		err = (out ? go : come)(&f, half, land + in, addr, bytes);
		glk_lock_resume(lock);
	}
	glk_lock_pause(lock);
	for (int i = 0; i < 2; i++) {
		failed = glk_landing_await(store, landing, half);
		err = err ? err : failed;
		if (!err && out && f.half[half].count)
			err = treat_all(&f.half[half]);
		half = !half;
	}
	clear(&f, base);
	glk_lock_resume(lock);
	return err;
}

int glk_cipher_copy(struct glk_mover *mover, struct glk_left *left, bool out)
{
	int err;

	glk_cipher_hold(mover);
	err = copy(mover, left, out);
	glk_cipher_let_go(mover);
	return err;
}

/* All chunks of a content that a way takes. */
static int treat_content(
	struct glk_mover *mover, uint32_t run, enum way way, bool *ret_any)
{
	struct glk_store *store = &mover->store;
	struct glk_store_run *first = glk_store_at(store, run);
	struct batch b = {.way = way};
	int err = 0;

	*ret_any = false;
	if (!store->cipher)
		return 0;
	first->readers++;
	for (; run && !err; run = glk_store_at(store, run)->next) {
		const struct glk_store_run *r = glk_store_at(store, run);
		struct glk_left left = {
			.run = run, .bytes = r->packed ? 0 : r->chunks * GLK_STORE_CHUNK};

		while (!err && gather(store, &left, NULL, &b)) {
			*ret_any = true;
			glk_lock_pause(store->lock);
			err = treat_all(&b);
			glk_lock_resume(store->lock);
		}
	}
	first->readers--;
	return err;
}

int glk_cipher_check(struct glk_mover *mover, uint32_t run, bool *ret_any)
{
	int err;

	glk_cipher_hold(mover);
	err = treat_content(mover, run, CHECK, ret_any);
	glk_cipher_let_go(mover);
	return err;
}

int glk_cipher_cover(struct glk_mover *mover, uint32_t run)
{
	bool any;

	return treat_content(mover, run, COVER, &any);
}

int glk_cipher_bare(struct glk_mover *mover, uint32_t run)
{
	bool any;
	int err = treat_content(mover, run, BARE, &any);

	if (err)
		glk_cipher_cover(mover, run);
	return err;
}

bool glk_cipher_read(const struct glk_store *store, const struct glk_store_run *r,
	char *to, size_t bytes)
{
	const struct glk_sodium_tag *tag = glk_cipher_tag(store, r);
	const char *at = store->piece[r->piece].base + r->first * GLK_STORE_CHUNK;
	bool right = true;

	for (size_t done = 0, part; done < bytes && right; done += part, tag++) {
		part = bytes - done < GLK_STORE_CHUNK ? bytes - done : GLK_STORE_CHUNK;
		if (tag->number)
			right = glk_sodium_decrypt(
				to + done, at + done, (uintptr_t)(at + done), tag);
		else
			memcpy(to + done, at + done, part);
	}
	return right;
}

/* ---- One of a GPU ---- */

#define TAGS ((size_t)GLK_STORE_PIECES * GLK_STORE_CHUNKS)

int glk_cipher_start(struct glk_mover *mover)
{
	struct glk_cipher *c;
	int err = glk_cipher_able();

	if (err || mover->store.cipher)
		return err;
	c = glk_region_new(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->tags = glk_region_new(TAGS * sizeof(*c->tags));
	if (!c->tags) {
		glk_region_free(c, sizeof(*c));
		return -ENOMEM;
	}
	pthread_cond_init(&c->free, NULL);
	glk_lock(mover->store.lock);
	mover->store.cipher = c;
	glk_unlock(mover->store.lock);
	return 0;
}

void glk_cipher_fini(struct glk_mover *mover)
{
	struct glk_store *store = &mover->store;
	struct glk_cipher *c = store->cipher;

	if (!c)
		return;
	glk_landing_end(store, &c->landing);
	pthread_cond_destroy(&c->free);
	store->cipher = NULL;
	glk_region_free(c->tags, TAGS * sizeof(*c->tags));
	glk_region_free(c, sizeof(*c));
}
