/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents that are away are what they were when they came: a hash of them, XXH3 of 64 bits, is taken
 * when their copy has ended, and again before they go back. It tells of memory of the host that was
 * written to or lost bits meanwhile, and not of the link, since nothing of it is made on the GPU.
 */
#include "tier/tier.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>

#ifdef GLK_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>

/* The lock is given up. */
static uint64_t hash(struct glk_mover *mover, uint32_t run)
{
	uint64_t left = glk_store_at(&mover->store, run)->bytes;
	XXH3_state_t state;

	XXH3_64bits_reset(&state);
	for (; run; run = glk_store_at(&mover->store, run)->next) {
		const struct glk_store_run *r = glk_store_at(&mover->store, run);
		uint64_t size = r->chunks * GLK_STORE_CHUNK;
		const char *base =
			mover->store.piece[r->piece].base + r->first * GLK_STORE_CHUNK;

		size = size < left ? size : left;
		glk_lock_pause(mover->streams->gpu);
		XXH3_64bits_update(&state, base, size);
		glk_lock_resume(mover->streams->gpu);
		left -= size;
	}
	return XXH3_64bits_digest(&state);
}
#else
static uint64_t hash(struct glk_mover *mover, uint32_t run)
{
	(void)mover;
	return run;
}
#endif

void glk_verify_keep(struct glk_mover *mover, uint32_t run)
{
	struct glk_store_run *first = glk_store_at(&mover->store, run);
	struct glk_use use = glk_stream_use(
		glk_stream_enter(mover->streams, mover->out), mover->streams->tick);

	if (glk_clock_sync_use(mover->streams, &use))
		return;
	first->hash = hash(mover, run);
	first->hashed = true;
}

int glk_verify_check(struct glk_mover *mover, uint32_t run)
{
	const struct glk_store_run *first = glk_store_at(&mover->store, run);
	uint64_t now;

	if (!first->hashed)
		return 0;
	now = hash(mover, run);
	if (now == first->hash)
		return 0;
	return glk_error(-EIO, GLAKE_ERROR_CORRUPT,
		"contents of %" PRIu64 " bytes in memory of the host have the hash %016" PRIx64
		", and had %016" PRIx64 " when they came",
		first->bytes, now, first->hash);
}
