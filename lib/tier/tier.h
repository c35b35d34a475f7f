/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_TIER_H
#define GLK_TIER_TIER_H

/*
 * The face of this folder: where contents of a GPU lie while its memory serves others, and how
 * they go there and come back. It moves bytes and knows no blocks.
 *
 * A store is memory of the host, near one GPU, locked for copies. It has pieces of 64 MiB, cut into
 * chunks of 256 KiB; what is kept in it is a chain of runs of chunks, so there is no
 * fragmentation to speak of: at most a part of a chunk is lost for each content.
 *
 * Two streams of the library carry the contents, one each way, so that both ways of the link can be
 * busy. What lies in the store was written and is read in the order of these streams, and memory
 * of the GPU is given and taken in the order of ticks like any other (stream/stream.h). What
 * waits for the GPU is a stream of which no event can be had, and a copy that failed half way.
 *
 * Threads	all under the lock of the GPU, which is given up while the driver is called
 */
#include "base/slab.h"
#include "pool/pool.h"
#include "stream/stream.h"

#define GLK_STORE_CHUNK	 ((uint64_t)256 << 10)
#define GLK_STORE_CHUNKS 256 /* of a piece */
#define GLK_STORE_PIECE	 (GLK_STORE_CHUNK * GLK_STORE_CHUNKS)
/* Pieces there may be: a TiB. */
#define GLK_STORE_PIECES 16384

struct glk_store_piece {
	char *base;
	uint64_t used[GLK_STORE_CHUNKS / 64];
	uint32_t count;	 /* chunks in use */
	uint64_t read;	 /* tick until which it was read from by contents that are gone */
};

struct glk_store {
	struct glk_drv *drv;
	struct glk_lock *lock;
	int node;		       /* NUMA node of the GPU; -1: not known */
	struct glk_node *host;	       /* whose budget it may hold memory of */
	struct glk_store_piece *piece; /* GLK_STORE_PIECES */
	uint32_t pieces;
	struct glk_slab runs;
	uint64_t held; /* bytes locked, and about to be */
	uint64_t used; /* bytes of chunks in use */
};

/* A part of a content. */
struct glk_store_run {
	uint32_t next; /* of the same content; 0: the last */
	uint32_t piece;
	uint16_t first, chunks;
	/* Of the first one: the caller's, the tick on the stream that writes, and bytes. */
	uint32_t owner;
	uint64_t written, bytes;
};

/* 0 or -ENOMEM. */
int glk_store_init(struct glk_store *store, struct glk_drv *drv, struct glk_lock *lock,
	int node, struct glk_node *host);
/* Takes a zeroed one. Nobody copies any more. */
void glk_store_fini(struct glk_store *store);
/* Room for a content; more memory of the host is locked where there is not enough. 0, or -ENOMEM (class
 * LIMIT: its budget; NOMEM_HOST) with nothing taken. */
int glk_store_take(struct glk_store *store, uint64_t bytes, uint32_t *ret_run);
/* Gives it back. Reads of it that were queued until the tick `read` may be under way; 0: none. */
void glk_store_put(struct glk_store *store, uint32_t run, uint64_t read);
/* The tick until which others may read what a content is about to overwrite; 0: nobody does. */
uint64_t glk_store_read(const struct glk_store *store, uint32_t run);
/* Gives pieces that nobody uses back to the system; nobody reads them any more. The bytes. */
uint64_t glk_store_trim(struct glk_store *store);

static inline struct glk_store_run *glk_store_at(const struct glk_store *store, uint32_t run)
{
	return glk_slab_at(&store->runs, run);
}

struct glk_mover {
	struct glk_streams *streams;
	struct glk_store store;
	struct CUstream_st *out_handle, *back_handle;
	uint32_t out, back; /* to the host and to the GPU: streams, by their number */
};

/* move.c. Makes the two streams and an empty store. Without the lock. 0 or the driver's error. */
int glk_mover_init(struct glk_mover *mover, struct glk_streams *streams, int node,
	struct glk_node *host);
/* Ends them: the GPU is idle. Takes a zeroed one. */
int glk_mover_fini(struct glk_mover *mover);
/* Gives memory of the host back that nothing lies in, if no copy is under way as far as is known. */
void glk_mover_trim(struct glk_mover *mover);
/*
 * Copies bytes of the GPU into the store, behind a use, which is that of the copy afterwards: the
 * memory may be given to others in stream order. 0; -EBUSY (class CAPTURE) where a stream of the use
 * cannot be waited for, -ENOMEM as glk_store_take(), or the driver's error, with the contents where
 * they were.
 */
int glk_move_out(struct glk_mover *mover, uint64_t addr, uint64_t bytes,
	struct glk_use *use, uint32_t *ret_run);
/* Copies them back, to memory that the stream `back` may write to; *ret_use is that of the copy. The
 * content stays in the store. 0 or the driver's error. */
int glk_move_back(
	struct glk_mover *mover, uint32_t run, uint64_t addr, struct glk_use *ret_use);

#endif
