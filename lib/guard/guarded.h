/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_GUARD_GUARDED_H
#define GLK_GUARD_GUARDED_H

/* What the files of this folder share. */
#include "guard/guard.h"
#include "guard/pattern.h"

/* The longest canary. */
#define GLK_CANARY_MOST UINT64_C(512)

/* Frees whose canaries are being looked at, and those that were last: a ring. */
#define GLK_GUARD_GONE 4096
/* Findings that are kept. */
#define GLK_GUARD_FINDINGS 64
/* Ranges of a table that is looked at: what fits into a page of the GPU. */
#define GLK_GUARD_TABLE ((UINT32_C(2) << 20) / sizeof(struct glk_guard_entry))

/* The most that are sampled at a time, and what numbers of extents they may have. */
#define GLK_GUARD_SAMPLES 32
#define GLK_GUARD_SAMPLED 256
/* The largest that is sampled, and bytes for each block of guard.rate. */
#define GLK_GUARD_SAMPLE_MOST (UINT64_C(64) << 20)
#define GLK_GUARD_RATE_BYTES  (UINT64_C(256) << 10)

/* A block that is guarded, by the number of its extent. */
struct glk_guard_record {
	glk_atomic(bool) guarded;
	uint32_t canary; /* bytes of it; 0: it ends against nothing */
	uint32_t thread; /* that asked for it */
	uint64_t addr, asked;
	struct CUstream_st *stream;
	int64_t born;
	uint64_t serial; /* of all, in the order in which their canaries were queued */
};

/* One that was freed. */
struct glk_guard_gone {
	struct glk_guard_record was;
	struct CUstream_st *stream; /* that it was freed on */
	int64_t freed;
	uint32_t thread;
	uint32_t blocks; /* of the kernel that looks at its canary, or at all of it */
	bool looks;	 /* which is not known to have ended */
	bool kept;	 /* at all of it: nobody had it since its free */
};

/* One that is kept. */
struct glk_guard_kept {
	struct glk_extent *e;
	uint32_t on; /* the stream that it was freed on */
	struct glk_guard_gone gone;
};

/* Blocks that are kept, and of the memory of the GPU. */
#define GLK_GUARD_KEPT	    1024
#define GLK_GUARD_KEPT_PART 32

/* Kernels, and memory of the host that the GPU reads and writes. */
struct glk_guard_work {
	uint64_t module, fill, scan, check;
	struct CUstream_st *stream; /* NULL: nothing was checked as a whole yet */
	uint64_t table;		    /* of the GPU; 0: likewise */
	uint64_t page;
	struct glk_guard_host {
		struct glk_guard_found gone[GLK_GUARD_GONE];
		struct glk_guard_founds founds;
		struct glk_guard_entry table[GLK_GUARD_TABLE];
	} * host;
	bool ready;
	int failed; /* why it cannot be had; 0: it was not tried, or can */
};

struct glk_guard {
	struct glk_cache *cache;
	glk_atomic(int) mode;
	glk_atomic(uint64_t) rate;
	uint32_t secret;
	struct glk_guard_record *records;
	struct glk_guard_record sampled[GLK_GUARD_SAMPLED];
	glk_atomic(uint32_t) samples; /* live ones */
	/* Blocks and bytes that were given when one was sampled last. */
	glk_atomic(uint64_t) blocks_then, bytes_then;
	glk_atomic(uint64_t) serial;
	glk_atomic(uint64_t) unguarded; /* that were to be guarded and are not */
	struct glk_lock lock;
	/* Under the lock from here on. */
	struct glk_guard_work work;
	struct glk_guard_gone gone[GLK_GUARD_GONE];
	struct glk_guard_kept kept[GLK_GUARD_KEPT];
	uint64_t kept_first, kept_end, kept_bytes; /* a ring too */
	uint32_t
		behind; /* number of the stream of work, for the cache; 0: not asked yet */
	uint64_t freed, seen; /* entries so far; those of which all is known */
	uint64_t looked;      /* blocks that were looked at when they were freed */
	uint64_t unchecked;   /* that were freed without a look */
	struct glake_finding findings[GLK_GUARD_FINDINGS];
	bool no_file;	      /* guard.report could not be written */
	uint64_t found, told; /* so far, and of these those that a caller was told of */
};

static inline struct glk_guard *glk_guard_of(const struct glk_cache *cache)
{
	return cache->guarding;
}

/* Of an extent of an arena; NULL: there is none. */
static inline struct glk_guard_record *glk_guard_record(
	struct glk_guard *g, const struct glk_arena *arena, const struct glk_extent *e)
{
	uint32_t id = glk_extent_id(&arena->map, e);

	if (arena == &g->cache->arena)
		return &g->records[id];
	return arena == glk_cache_sampled(g->cache) && id < GLK_GUARD_SAMPLED
		? &g->sampled[id]
		: NULL;
}

/* guard.c: the number of the calling thread in the system. */
uint32_t glk_guard_thread(void);

/* twins.c */
extern const struct glk_kernel glk_guard_fill, glk_guard_scan, glk_guard_table_check;
extern const char glk_guard_text[];

/* check.c, all under the lock of guard. What kernels need, made at the first use: 0 or the driver's error. */
int glk_guard_ready(struct glk_guard *g);
void glk_guard_work_fini(struct glk_guard *g);
/* Writes the pattern to a range, behind a stream. */
int glk_guard_write(
	struct glk_guard *g, uint64_t addr, uint64_t bytes, struct CUstream_st *stream);
/* Has a canary looked at behind a stream, or all of one that is kept; what is known of it is copied. False: no kernel
 * does. */
bool glk_guard_look(struct glk_guard *g, const struct glk_guard_gone *gone,
	struct CUstream_st *stream, bool may);
/* The stream of guard itself, made at the first use. */
int glk_guard_stream(struct glk_guard *g);
/* Reads what such looks found, as far as they have ended. */
void glk_guard_poll(struct glk_guard *g);

/* report.c, under the lock of guard: something is wrong in the canary of a block; `gone` NULL: it is live. */
void glk_guard_overrun(struct glk_guard *g, const struct glk_guard_record *was,
	const struct glk_guard_gone *gone, const struct glk_guard_found *found);
void glk_guard_late(struct glk_guard *g, const struct glk_guard_gone *gone,
	const struct glk_guard_found *found);
void glk_guard_twice(struct glk_guard *g, const struct glk_guard_gone *gone);

#endif
