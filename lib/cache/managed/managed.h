/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_MANAGED_H
#define GLK_CACHE_MANAGED_H

/*
 * Managed memory: see glake/managed.h. It is had from the driver in chunks of tier.managed_chunk and
 * kept, since the driver waits for all work to take one back. Each chunk is an arena of its own, and
 * differs from others in these rules:
 *
 *  - its addresses are its memory. What stands for pages behind them (struct glk_managed_source) costs nothing and stays
 *    until the chunk goes, so nothing is ever mapped elsewhere
 *  - a chunk goes as a whole, when no block of it is live, behind all work of the GPU
 *  - there are no quick bins. What is freed goes to other streams by the rules of all arenas
 *  - a block moves as the driver wants it, or as somebody says: it is never away
 *
 * Life		FREE -make-> MAKING -> READY -trim-> ENDING -> FREE, or back to READY
 */
#include "cache/cache.h"

#define GLK_CHUNKS_MAX 256

enum glk_chunk_state {
	GLK_CHUNK_FREE = 0,
	GLK_CHUNK_MAKING,
	GLK_CHUNK_READY,
	GLK_CHUNK_ENDING, /* somebody takes it down, and has its tables for himself */
};

struct glk_chunk {
	struct glk_arena arena;
	struct glk_space space;
	enum glk_chunk_state state;
	uint64_t bytes;	 /* that may be given */
	uint64_t blocks; /* given out and not freed */
	/* What was said of its memory stays with it. A bit for each slot, in one table: of which a place
	 * was named, and who uses it; of which the program said any of that; and of which the library said
	 * who uses it, since it went to and fro. No slot has both of the latter. */
	uint64_t *preferred, *accessed, *own, *eased;
	/* For each slot when the last block was given whose first byte it has, by CLOCK_MONOTONIC_RAW. */
	int64_t *given_ns;
	/* Threads that take back what was said of memory of a new block: nothing is said meanwhile. */
	uint32_t unsaying;
	/* Who was said to use some, by anybody, and by the library: bit n is GPU n; bit 63 the host, and
	 * the last GPU where there are 64. */
	uint64_t users, eased_users;
};

/* Pages that are none, over addresses that are managed memory: what a map asks of a driver. */
struct glk_managed_source {
	struct glk_drv drv; /* first */
	struct glk_drv *real;
	int device;
	struct {
		glk_atomic(uint64_t) base; /* as the map knows it; 0: none */
		uint64_t addr, size;	   /* as the driver does */
		glk_atomic(
			uint64_t) lost; /* bytes, where the driver did not take it back */
	} piece[GLK_CHUNKS_MAX];
};

struct glk_managed {
	struct glk_managed_source source;
	struct glk_pool pool;
	struct glk_lock saying; /* who says something of a slot: one at a time */
	uint64_t advised;	/* blocks that the library said something of */
	uint32_t used;		/* chunks that were ever used */
	uint64_t bytes; /* of all chunks, those included that are being made or ended */
	uint64_t blocks;
	/* The last request that the GPU had no room for: bytes of chunks together with it, what the GPU's
	 * own pages were then, and until when that is believed. */
	struct {
		uint64_t bytes, held;
		int64_t until_ns;
	} refused;
	struct glk_chunk at[GLK_CHUNKS_MAX];
};

/* chunk.c */
void glk_managed_source_init(
	struct glk_managed_source *source, struct glk_drv *real, int device);
/* Gives the driver once more what it did not take back. Bytes that are left. */
uint64_t glk_managed_source_retry(struct glk_managed_source *source);

/* chunk.c, under the lock of the GPU, which is given up meanwhile. */
/* A chunk with room for a block of so many bytes; `over`: also where the GPU has none. Chunks without
 * blocks that are smaller go for it. 0, -ENOMEM, -EOPNOTSUPP, or another error of the driver. */
int glk_chunk_make(
	struct glk_cache *cache, uint64_t size, bool over, struct glk_chunk **ret_chunk);
/* Whether that was refused some milliseconds ago, and nothing was given back here since: for who can do
 * without and does not insist, so that the driver is not asked about each request. */
bool glk_chunk_refused(const struct glk_cache *cache, uint64_t size);

/* managed.c, under the lock, given up meanwhile: a request for managed memory. */
int glk_managed_serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, uint64_t *ret_addr);
/* The same for one that asks for no kind of memory, as pool.managed has it: from what is there and a new
 * chunk; and with all that has to be waited for or given back first, once there is no memory of the GPU
 * either, whose record stays then. -ENOMEM: the GPU's own memory has to do. */
int glk_managed_try(struct glk_cache *cache, const struct glk_request *request,
	struct glk_seat *seat, uint64_t *ret_addr);
int glk_managed_insist(struct glk_cache *cache, const struct glk_request *request,
	struct glk_seat *seat, uint64_t *ret_addr);
extern const struct glk_arena_ops glk_arena_managed;
struct glk_chunk *glk_chunk_of(const struct glk_arena *arena);
/* At the end of the GPU, which is idle. 0 or the driver's error. */
int glk_managed_fini(struct glk_cache *cache);

#define GLK_CHUNK_HOST (UINT64_C(1) << 63) /* among users */

/* say.c, by who holds a block of the chunk, and `saying`: what the library said of slots is taken back,
 * and it says no more of them. */
void glk_chunk_disown(struct glk_chunk *chunk, uint32_t first, uint32_t last);

/* The slots that a range touches. */
void glk_chunk_slots(const struct glk_chunk *chunk, uint64_t addr, uint64_t size,
	uint32_t *ret_first, uint32_t *ret_last);
/* A user is said, or taken back. Without the lock. */
int glk_chunk_user(const struct glk_chunk *chunk, uint64_t addr, uint64_t size,
	enum glk_managed_say what, uint64_t users);
/* Under the lock, for a block that was just given: what was said of its memory before is taken
 * back. */
void glk_chunk_unsay(struct glk_chunk *chunk, uint64_t addr, uint64_t size);
/* Under the lock, while the GPU is suspended: all that blocks use or used goes to the host, and is there. The
 * bytes that went. 0 or the driver's error. */
int glk_managed_send(struct glk_cache *cache, uint64_t *ret_bytes);
/* As glake_spill() and glake_fetch(), for a block that was claimed. */
int glk_managed_move(
	struct glk_arena *arena, struct glk_extent *e, uint32_t on, bool to_gpu);

#endif
