/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_GUARD_GUARD_H
#define GLK_GUARD_GUARD_H

/*
 * The face of this folder: what finds memory that the program writes where it should not. It gives the cache a table
 * of functions when the first block is to be guarded (cache/cache.h); until then nothing of it runs.
 *
 * A guarded block has a canary behind it: the bytes of its extent that nobody asked for, up to 512 of them, with a
 * pattern of their address. A kernel writes it before the block is given, on the stream of that request: were it
 * written later it would cover up what the program has done meanwhile. So that this is seldom, a block that was freed is
 * kept with its canary, for the next of its size on its stream. Looks at canaries may be late, and are gathered: what a
 * kernel found lies in memory of the host, and is read by later calls. All that are live are looked at by one kernel
 * over a table.
 *
 *	guard.c		which blocks are guarded, and their records
 *	kept.c		blocks that were freed and are kept
 *	check.c		kernels, and what they found
 *	look.c		looks at all of it, each so often
 *	report.c	what is said of that
 *	describe.c	what any address is
 *	stack.c		who asked for a block and who freed it
 *	twins.c		the kernels in C, for the software device
 *	told.c		what a tool that is attached by NVTX is told
 *	nvtx.c		how it is told
 *
 * Records	by the number of an extent. Whoever gives a block out or has claimed it writes its record; others hold
 *		the block while they read it
 * Locks	one for each GPU, for what kernels found; the driver is called under it, and no lock of the cache is
 *		held when it is taken
 */
#include "cache/cache.h"

#include <glake/guard.h>

struct glk_guard;
struct glk_guard_looks;

/* The mode of blocks that are asked for from now on, and guard.rate. 0, or -ENOMEM. By one thread at a time for each
 * GPU. */
int glk_guard_set(struct glk_cache *cache, int mode, uint64_t rate);
/* security.level, or of a tag that is open its own and its guard.mode; less than 0: as it was. 0 or -ENOMEM. Likewise. */
int glk_guard_level(struct glk_cache *cache, int level);
int glk_guard_tag(struct glk_cache *cache, uint32_t tag, int level, int mode);
/* Whether pages that are shared by owners, or with `owners` false by none that are known, are cleared before each has them. */
bool glk_guard_shares(struct glk_cache *cache, bool owners);
/* Fills with zeros, on a stream; where that cannot be it is counted. */
void glk_guard_clear(struct glk_cache *cache, uint64_t addr, uint64_t bytes,
	struct CUstream_st *stream);
/* Before the cache ends, when the GPU is idle. */
void glk_guard_fini(struct glk_cache *cache);

/* Looks at all that is guarded on a GPU, behind all work that was queued there; adds to *ret. 0 with what was found,
 * or -EBUSY (CAPTURE), -EIO or -ENODEV of the driver. */
int glk_guard_check(struct glk_cache *cache, struct glake_checked *ret);
/* A thread that does so each so many ns, of GPUs in a row that stay; NULL: none, for 0 and where the log says so. And its end,
 * behind a look under way. */
struct glk_guard_looks *glk_guard_looks_new(
	struct glk_cache *caches, int count, int64_t ns);
void glk_guard_looks_end(struct glk_guard_looks *looks);
/* What an address of a GPU is: fills all but sz of *d, which is zeroed. Keeps the record of the thread. */
void glk_guard_describe(
	struct glk_cache *cache, uint64_t addr, struct glake_described *d);
/* -EIO (GUARD) with a record, once for all that was found so far; else 0. */
int glk_guard_tell(struct glk_cache *cache);
/* What a tool calls the block at an address: 0, -ENOENT or -EINVAL, see glake_block_name(). */
int glk_guard_name(struct glk_cache *cache, uint64_t addr, const char *name);
/* Whether such a tool is attached. */
bool glk_guard_has_tool(struct glk_cache *cache);
/* The name of a kind of finding; NULL: there is no such kind. */
const char *glk_guard_kind_name(int kind);
/* How many mistakes were found so far. */
uint64_t glk_guard_count(struct glk_cache *cache);
/* What was found so far, by number from 0; -ENOENT without a record: no more, or it is too long ago. */
int glk_guard_finding(
	struct glk_cache *cache, uint64_t number, struct glake_finding *ret);

#endif
