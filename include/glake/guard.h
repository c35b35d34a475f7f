/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_GUARD_H
#define GLAKE_GUARD_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;

/*
 * Memory that the program writes where it should not: the key guard.mode says what is done to find that, for
 * blocks that are asked for from then on. What is found is said in an error of the log, in the file of
 * guard.report, and by the two calls below; the program goes on.
 */

/* What was found. */
enum glake_finding_kind {
	GLAKE_FINDING_OVERRUN = 1, /* bytes behind a block were written */
	GLAKE_FINDING_AFTER_FREE =
		3, /* bytes of a block were written when it was freed */
	GLAKE_FINDING_DOUBLE_FREE =
		2, /* a block was freed that is freed already; nothing was written */
	GLAKE_FINDING_UNDERRUN = 4, /* bytes before a sampled block were written */
};

/* Findings that are kept on each GPU, the last ones. */
#define GLAKE_FINDINGS 64

/* Return addresses that are kept of a call, see guard.stacks. */
#define GLAKE_FRAMES 12

struct glake_finding {
	size_t sz;   /* sizeof(struct glake_finding) */
	int kind;    /* GLAKE_FINDING_... */
	int device;  /* GPU number */
	void *base;  /* first byte of the block */
	size_t size; /* bytes, as asked for */
	size_t offset; /* of the first byte that was written, from `base`; of an underrun how far before it */
	size_t bytes;		    /* that were written, of those that are looked at */
	struct CUstream_st *stream; /* that the block was asked for on */
	uint32_t thread;	    /* that asked for it: its number in the system */
	uint32_t freed_by;	    /* the same for its free; 0: it is live */
	int64_t age_ns;		    /* of the block when it was freed, or looked at */
	int64_t freed_ns;	    /* time since its free; 0: it is live */
	void *next; /* the block that begins at `base + given`, if bytes right before it were written; NULL: none, or others */
	size_t next_size; /* bytes, as asked for */
	uint32_t
		owners; /* of an overrun: blocks of this size, one after the other, that had the place and the canary; this is the last */
	uint32_t unused;
	/* With guard.stacks: where it was asked for, and where it was freed, the innermost one first; 0 behind the last one. */
	uint64_t made_at[GLAKE_FRAMES], freed_at[GLAKE_FRAMES];
};

/* What glake_check has done. */
struct glake_checked {
	size_t sz;	 /* sizeof(struct glake_checked) */
	uint64_t blocks; /* that were looked at */
	uint64_t
		broken; /* of these, those behind which something was written, or before */
	uint64_t
		freed; /* blocks behind which was looked since they were freed, or will be: since open */
	uint64_t kept; /* blocks that were filled when they were freed, since open */
	uint64_t
		unchecked; /* that were freed without a look, since open: by events, while their stream
			     * captured, or with more frees under way than are kept */
	uint64_t
		unguarded; /* that were to be guarded and are not, since open: there was no room, their
			     * contents left the GPU, or the driver has no kernels */
	uint64_t findings; /* since open, of all kinds */
	uint64_t
		again; /* requests that were served by what was kept, since open: their canaries were there */
	uint64_t
		contents; /* that are away and have a hash (tier.verify) or are encrypted (security.level=3), and are what they were; with that also pages that are sealed, since the last check or by glake_seal, and what is published or attached, if the driver runs kernels */
	uint64_t cleared; /* bytes, as security.level says, since open */
	uint64_t
		uncleared; /* blocks, and parts of KV caches, that were to be and were not, since open: a stream captured, or the driver refused */
};

/*
 * Looks at all that is guarded, on all GPUs, behind the work that was queued there; at contents that are away; and whether the
 * driver has in use what the library holds.
 *
 * ret_checked	what was done, also where something was found; NULL if nobody wants to know
 *
 * Returns 0, or -EIO (GUARD: something was written that should not have been, now or since the last call that said
 * so; the record names the first block; CORRUPT: contents of a block that is away are not what they were, or more memory is
 * booked than the driver says is in use), -EBUSY (CAPTURE: a stream captures a graph), -EIO (DRIVER), -E2BIG, -ENOMEM, -ESTALE,
 * -ENODEV (device lost, or in a forked child).
 * Thread: any; frees of the blocks that are looked at wait meanwhile. Blocks: until the GPUs are idle. Driver calls:
 * a wait, a copy and a kernel for each 131072 blocks, a kernel for each 1024 that are kept, and waits; at the first time on a GPU a stream and a page.
 */
GLAKE_EXPORT int glake_check(struct glake *ctx, struct glake_checked *ret_checked);

/*
 * Gives what was found on a GPU, by number from 0 in the order in which it was found. The last 64 are kept.
 *
 * Returns 0, -ENOENT (there are not so many, or it is kept no longer), -EINVAL (no such device, NULL), -E2BIG, -ESTALE,
 * -ENODEV (in a forked child). Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_finding_get(struct glake *ctx, int device, uint64_t number,
	struct glake_finding *ret_finding);

/* Names a kind of mistake. Returns its name, as "overrun", or NULL for a number out of range. The text is the library's and
 * stays. Thread: any. Blocks: no. Driver calls: none. */
GLAKE_EXPORT const char *glake_finding_name(int kind);

/*
 * Names a live block for a tool that is attached by NVTX (guard.nvtx), as compute-sanitizer and Nsight are: what it finds there is
 * reported by that. Until then the block is called by its size and by the thread that asked for it.
 *
 * ptr	first byte of the block; NULL: nothing is named, and it is asked whether there is such a tool
 * name	what it is called; borrowed, and read before the call returns; NULL only with ptr. A tool is told its first 49
 *	bytes, as compute-sanitizer has no more; guard.names has all of it
 *
 * Returns 0, -ENOENT (no such tool is attached, or it takes no names), -EINVAL (no live block begins there of which it was told;
 * NULL), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_block_name(struct glake *ctx, const void *ptr, const char *name);

/* What an address is. */
enum glake_what {
	GLAKE_WHAT_FOREIGN = 0, /* never memory of this context */
	GLAKE_WHAT_LIVE =
		1, /* inside of a live block: of the bytes that were asked for */
	GLAKE_WHAT_BEHIND =
		2, /* behind these, up to the end of what the block was given: its canary lies there */
	GLAKE_WHAT_FREED =
		3, /* of no live block, and a guarded one that was freed held it last */
	GLAKE_WHAT_FREE = 4, /* of no live block, and nobody knows who had it last */
	GLAKE_WHAT_GUARD =
		5, /* around a block that is sampled, or was: but for the rest of its slots nothing is ever mapped there */
};

struct glake_described {
	size_t sz;   /* sizeof(struct glake_described) */
	int what;    /* enum glake_what */
	int device;  /* GPU number; -1: FOREIGN */
	void *base;  /* first byte of the block; NULL: FREE and FOREIGN */
	size_t size; /* bytes, as asked for */
	size_t given; /* bytes, as given; of one that was freed as many as are known to have been its */
	int64_t offset;		    /* of the address, from `base` */
	struct CUstream_st *stream; /* that the block was asked for on */
	uint32_t tag;		    /* of a live block, see tag.h; 0: none */
	uint32_t
		thread; /* that asked for it, if it is or was guarded: its number in the system */
	uint32_t freed_by; /* the same for its free; 0: it is live */
	int64_t age_ns;	   /* of a guarded block, or as old as it became */
	int64_t freed_ns;  /* time since its free */
	/* Live blocks before and behind the address, or the block, no further away than 2 MiB; NULL: there is none. */
	void *before, *behind;
	size_t before_size, behind_size; /* bytes, as asked for */
};

/*
 * Says what an address is, any one, at any time: of a live block, of one that was freed, of the bytes between two, or
 * no memory of the context. Blocks that are not guarded (guard.mode) have no age and no thread, and are forgotten
 * when they are freed; of the guarded ones the last 4096 that were freed are known on each GPU.
 *
 * Returns 0, or -EINVAL (NULL, sz not set), -E2BIG, -ESTALE, -ENODEV (in a forked child).
 * Thread: any; where blocks come and go meanwhile the answer is of some moment of the call. Blocks: for the lock of a GPU,
 * some times. Driver calls: none.
 */
GLAKE_EXPORT int glake_describe(
	struct glake *ctx, const void *ptr, struct glake_described *ret_described);

/* Names what an address is. Returns its name, as "freed", or NULL for a number out of range. The text is the library's and stays.
 * Thread: any. Blocks: no. Driver calls: none. */
GLAKE_EXPORT const char *glake_what_name(int what);

GLAKE_END_DECLS

#endif
