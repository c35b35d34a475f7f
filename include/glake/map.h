/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_MAP_H
#define GLAKE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>
#include <glake/memory.h>

GLAKE_BEGIN_DECLS

struct glake;

/*
 * What the addresses of a run are. Memory that nobody uses is idle, in limbo, or the rest of a page
 * that others use; a hole has none.
 */
enum glake_run_state {
	GLAKE_RUN_LIVE = 0, /* a block */
	GLAKE_RUN_AWAY =
		1, /* a block whose contents are in memory of the host: see tier.h */
	GLAKE_RUN_QUICK =
		2, /* a freed block, kept whole for a request of its size and stream */
	GLAKE_RUN_IDLE = 3,  /* memory that nobody uses */
	GLAKE_RUN_LIMBO = 4, /* the same, whose last use is not known to have finished */
	GLAKE_RUN_REST = 5,  /* the rest of pages that blocks beside it use */
	GLAKE_RUN_ALIAS = 6, /* a mapping whose memory is used, or counted, elsewhere */
	GLAKE_RUN_LEAVING =
		7,	    /* a mapping that is about to go, or that the driver kept */
	GLAKE_RUN_HOLE = 8, /* no memory */
	GLAKE_RUN_STATES,
};

/* Whose addresses they are. */
enum glake_run_arena {
	GLAKE_ARENA_COMMON = 0, /* of requests outside of graphs */
	GLAKE_ARENA_HOST = 1, /* of blocks that were placed on the host: see tier.place */
	GLAKE_ARENA_STAGE =
		2, /* none: pages on their way to the GPU lay there until 0.2 */
	GLAKE_ARENA_POOL = 3, /* of a pool of graphs */
	/* Of managed memory: where it lies nobody knows, so none counts as of the GPU or the host. */
	GLAKE_ARENA_MANAGED = 4,
	GLAKE_ARENA_TAG = 5, /* of blocks with a tag: see tag.h */
};

#define GLAKE_RUN_SMALL	     0x1u /* among small blocks: no larger one begins there */
#define GLAKE_RUN_OUT	     0x2u /* others have its memory: see share.h */
#define GLAKE_RUN_CONTIGUOUS 0x4u /* GLAKE_ALLOC_CONTIGUOUS */
#define GLAKE_RUN_PART	     0x8u /* of a block that begins before it: see glake_map */
#define GLAKE_RUN_BARE                                                                   \
	0x10u /* of an elastic block that is away, where nothing is committed: see elastic.h */
/* Of an elastic block, whose memory is that of another range of it, and counts there: asked and size of such a run are
 * not in the sums below. While it is suspended all ranges of pages that are shared are such. */
#define GLAKE_RUN_SHARED 0x20u

/* Addresses that are alike, all bytes of them. */
struct glake_run {
	size_t sz; /* of the structure, set by the library */
	uint64_t address, size;
	int state;	/* enum glake_run_state */
	int arena;	/* enum glake_run_arena */
	uint32_t flags; /* GLAKE_RUN_... */
	/* Of a block, live, away or quick: the stream that it was given to. Of limbo: one whose work
	 * is not known to have finished. */
	struct CUstream_st *stream;
	uint64_t asked;	 /* of a block, live or away: bytes asked for */
	uint64_t placed; /* of these, bytes that lie in memory of the host, in place */
	/* Bytes of memory behind it, of the GPU and of the host. Where a page is mapped more than
	 * once it counts at one of its mappings. */
	uint64_t gpu_bytes, host_bytes;
	uint64_t large_bytes;	   /* of both, in pages of more than pool.small_page */
	struct glake_pool_id pool; /* with GLAKE_ARENA_POOL */
	uint32_t tag;		   /* with GLAKE_ARENA_TAG */
};

/* Takes one run; anything but 0 ends the walk. */
typedef int (*glake_run_fn)(const struct glake_run *run, void *arg);

/*
 * Walks the addresses of a GPU: hands all runs to a function, in the order of their addresses and
 * without a gap inside what was reserved, up to the highest address that was ever used there. The
 * walk begins at the address `from`, 0 for all; one that was ended goes on from the end of the last
 * run. A GPU that was never asked for memory has none.
 *
 * A block that is away in part has a run for each stretch of pages that is here, or away, with what was
 * asked for of it; all but the first have GLAKE_RUN_PART.
 *
 * The lock of the GPU is held for some microseconds at a time, for the next dozens of runs. So
 * runs never overlap, and each was true at one moment, but two of them may be of two moments: what
 * is freed and given again between them may be seen twice, or not at all, and where a block
 * came to lie across the border, its second part is a run of its own (GLAKE_RUN_PART). Hits of
 * other threads take no lock, and go on between any two runs.
 *
 * While no other thread is inside the library the sums are those of glake_stats_get: bytes asked for
 * and sizes of live and away runs are `live` and `given`, sizes of quick ones `quick`, bytes placed
 * `placed`, and gpu_bytes of all runs, with pages that are free and have no addresses, `reserved`,
 * but for memory that the driver refused to take back.
 *
 * The function may call any other, but must not close the context.
 *
 * Returns 0, what the function returned that was not 0, or -EINVAL (no such device, NULL), -ESTALE,
 * -ENODEV (in a forked child).
 * Thread: any. Blocks: for the lock of the GPU, again and again. Driver calls: none.
 */
GLAKE_EXPORT int glake_map(
	struct glake *ctx, int device, uint64_t from, glake_run_fn fn, void *arg);

/*
 * Names a state of a run. Returns its name, as "live", or NULL for a number out of range. The text
 * is the library's and stays.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT const char *glake_run_state_name(int state);

/* A block whose requester is known. */
struct glake_origin {
	uint64_t address; /* where the block begins */
	uint64_t stack;	  /* a number that the door gave, not 0 */
};

/* Tells blocks, as many as there is room for, of those that come at *cursor and behind it. Returns
 * their number. The cursor is 0 at first, and moves on; 0 blocks are the end. */
typedef size_t (*glake_origins_fn)(
	uint64_t *cursor, struct glake_origin *ret_origins, size_t room);

/* Tells the calls of a stack, innermost first: each its line in decimals, its function and its file,
 * with a zero behind each of the three. Returns the bytes of all of it, which is written if it fits; 0:
 * there is no such stack. */
typedef size_t (*glake_calls_fn)(uint64_t stack, char *ret_text, size_t room);

/* What a door between the library and a language knows of who asks. Its functions are called by the
 * thread that answers at the socket, and must not call this library. */
struct glake_origins {
	size_t sz;
	glake_origins_fn blocks;
	glake_calls_fn calls;
};

/*
 * From now on the methods `origins` and `stack` of the socket ask there, and glakectl snapshot has the
 * calls that asked for each block. There is one such door in a process; the last one counts, and NULL
 * ends it. The structure is borrowed, and with its functions has to stay as long as the process.
 *
 * Returns 0; -EINVAL (a function is missing), -E2BIG (of a newer library).
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_origins_set(const struct glake_origins *origins);

GLAKE_END_DECLS

#endif
