/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents that are away are what they were when they came: a hash of them, XXH3 of 64 bits, is taken
 * when their copy has ended, and again before they go back. It tells of memory of the host that was
 * written to or lost bits meanwhile, and not of the link, since nothing of it is made on the GPU; nor of
 * memory of another GPU (peer.c).
 */
#include "tier/tier.h"

#include "base/error.h"
#include "tier/pack.h"

#include <errno.h>
#include <inttypes.h>

#ifdef GLK_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Bytes of a run, behind those that are none of it. What was packed is what it was in `room`. False: it is not. */
static bool hash_run(const struct glk_mover *mover, const struct glk_store_run *r,
	char *room, uint32_t skip, uint64_t size, XXH3_state_t *state)
{
	const char *base = room;

	if (!r->packed)
		base = mover->store.piece[r->piece].base + r->first * GLK_STORE_CHUNK +
			skip;
	else if (!glk_pack_open(r->packed, room, size, room + GLK_PACK_UNIT))
		return false;
	XXH3_64bits_update(state, base, size);
	return true;
}

/* The lock is given up. 0; -ENOMEM; -EIO (CORRUPT). */
static int hash(struct glk_mover *mover, uint32_t run, uint64_t *ret_hash)
{
	struct glk_store_run *first = glk_store_at(&mover->store, run);
	char *room = mover->store.pack ? glk_region_new(2 * GLK_PACK_UNIT) : NULL;
	uint64_t left = first->bytes;
	uint32_t skip = first->skip;
	XXH3_state_t state;
	bool right = true;

	if (mover->store.pack && !room)
		return -ENOMEM;
	XXH3_64bits_reset(&state);
	first->readers++;
	for (; run && right; run = glk_store_at(&mover->store, run)->next) {
		const struct glk_store_run *r = glk_store_at(&mover->store, run);
		uint64_t size = r->packed ? r->size : r->chunks * GLK_STORE_CHUNK - skip;

		size = size < left ? size : left;
		left -= size;
		if (glk_store_is_afar(&mover->store, r)) {
			skip = 0;
			continue;
		}
		glk_lock_pause(mover->streams->gpu);
		right = hash_run(mover, r, room, skip, size, &state);
		glk_lock_resume(mover->streams->gpu);
		skip = 0;
	}
	first->readers--;
	if (room)
		glk_region_free(room, 2 * GLK_PACK_UNIT);
	*ret_hash = XXH3_64bits_digest(&state);
	return right
		? 0
		: glk_error(-EIO, GLAKE_ERROR_CORRUPT,
			  "contents of %" PRIu64
			  " bytes in memory of the host, compressed, are not what they were",
			  first->bytes);
}
#else
static int hash(struct glk_mover *mover, uint32_t run, uint64_t *ret_hash)
{
	(void)mover;
	*ret_hash = run;
	return 0;
}
#endif

void glk_verify_keep(struct glk_mover *mover, uint32_t run)
{
	struct glk_store_run *first = glk_store_at(&mover->store, run);
	struct glk_use use = glk_stream_use(
		glk_stream_enter(mover->streams, mover->out), mover->streams->tick);

	/* what is encrypted has more than a hash */
	if (first->afar == first->bytes || mover->store.cipher ||
		glk_clock_sync_use(mover->streams, &use))
		return;
	first->hashed = !hash(mover, run, &first->hash);
}

int glk_verify_check(struct glk_mover *mover, uint32_t run)
{
	const struct glk_store_run *first = glk_store_at(&mover->store, run);
	uint64_t now;
	int err;

	if (!first->hashed)
		return 0;
	err = hash(mover, run, &now);
	if (err || now == first->hash)
		return err;
	return glk_error(-EIO, GLAKE_ERROR_CORRUPT,
		"contents of %" PRIu64
		" bytes in memory of the host have the hash %016" PRIx64
		", and had %016" PRIx64 " when they came",
		first->bytes, now, first->hash);
}
