/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_CIPHER_H
#define GLK_TIER_CIPHER_H

/*
 * Contents are encrypted while they lie on the host (security.level=3). What goes there lands in locked memory that is
 * the library's alone, and a few threads encrypt it from there into the store while the next part is on the link;
 * what comes back is decrypted into the same memory. So the store never has a plain byte, and a copy that fails has
 * changed nothing. The landing is filled with zeros before a call returns, which waits for its copies.
 *
 * A chunk of the store is encrypted for itself and bound to its place, so that contents are cut and come back in part as
 * ever, and one that was changed, or moved, is not decrypted. What another GPU has is plain, since it is not on the
 * host. Where contents are packed too (pack.h) they are so before they are encrypted, and the landing of that is
 * filled with zeros likewise.
 *
 * Threads	under the lock of the GPU, which is given up; one content at a time lands
 * Memory	two halves of 16 MiB, from the first content to the end, and 32 bytes for each chunk
 */
#include "tier/sodium.h"
#include "tier/tier.h"

#define GLK_CIPHER_CHUNKS 64 /* of a half */
#define GLK_CIPHER_HALF	  (GLK_CIPHER_CHUNKS * GLK_STORE_CHUNK)

struct glk_cipher {
	struct glk_sodium_tag *tags; /* of all chunks there may be */
	struct glk_landing landing;
	bool taken;
	pthread_cond_t free;
};

static inline struct glk_sodium_tag *glk_cipher_tag(
	const struct glk_store *store, const struct glk_store_run *r)
{
	return &store->cipher->tags[(size_t)r->piece * GLK_STORE_CHUNKS + r->first];
}

/* Whether a run that is not packed is encrypted, from a byte of it on. */
static inline bool glk_cipher_has(
	const struct glk_store *store, const struct glk_store_run *r, uint64_t skip)
{
	return store->cipher && glk_cipher_tag(store, r)[skip / GLK_STORE_CHUNK].number;
}

/* Bytes of a run from one that is plain on, up to a chunk that is encrypted: encryption may have begun while the content
 * was made what it was (loosen.c). */
static inline uint64_t glk_cipher_plain(
	const struct glk_store *store, const struct glk_store_run *r, uint64_t skip)
{
	uint64_t end = r->chunks * GLK_STORE_CHUNK, at = skip;

	for (at += GLK_STORE_CHUNK - at % GLK_STORE_CHUNK; at < end;
		at += GLK_STORE_CHUNK)
		if (glk_cipher_has(store, r, at))
			break;
	return at - skip;
}

/* Nobody copies any more. */
void glk_cipher_fini(struct glk_mover *mover);
/* Takes part of a content, from the first of what is left of it on: all runs side by side that are to be encrypted, or
 * are. The channel has passed its gate. 0; -ENOMEM; -EIO (class CORRUPT); the driver's error. */
int glk_cipher_copy(struct glk_mover *mover, struct glk_left *left, bool out);
/* Bytes of a run, plain or encrypted, from its beginning on. False: they are not what they were. Without the lock. */
bool glk_cipher_read(const struct glk_store *store, const struct glk_store_run *r,
	char *to, size_t bytes);

#endif
