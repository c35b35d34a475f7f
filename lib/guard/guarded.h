/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_GUARD_GUARDED_H
#define GLK_GUARD_GUARDED_H

/* What the files of this folder share. */
#include "guard/guard.h"
#include "guard/pattern.h"

/* Blocks that were freed last, of which some are kept: a ring. */
#define GLK_GUARD_GONE GLK_GUARD_LOOKS
/* Ranges of a table that is looked at: what fits into a page of the GPU. */
#define GLK_GUARD_TABLE ((UINT32_C(2) << 20) / sizeof(struct glk_guard_entry))

/* Ranges of addresses that a tool is told of. */
#define GLK_GUARD_HEAPS 256
/* The most that are sampled at a time. */
#define GLK_GUARD_SAMPLES 32
/* The largest that is sampled, and bytes for each block of guard.rate. */
#define GLK_GUARD_SAMPLE_MOST (UINT64_C(64) << 20)
#define GLK_GUARD_RATE_BYTES  (UINT64_C(256) << 10)

/* A block that is guarded, by the number of its extent. */
struct glk_guard_record {
	glk_atomic(bool) guarded;
	glk_atomic(bool) said;	     /* its canary is broken, and that was said */
	glk_atomic(uint32_t) canary; /* bytes of it; 0: it ends against nothing */
	uint32_t front;		     /* of the one before it; 0: there is none */
	uint32_t thread;	     /* that asked for it */
	uint32_t
		owners; /* blocks that had the place and the canary, one after the other */
	uint64_t addr, asked;
	struct CUstream_st *stream;
	int64_t born;
	uint64_t serial; /* of all, in the order in which their canaries were queued */
	uint64_t made_at[GLAKE_FRAMES]; /* see guard.stacks */
};

/* One that was freed, and whether it is kept. */
struct glk_guard_gone {
	struct glk_guard_record was;
	struct glk_guard_record *record; /* of its extent, which may be another's now */
	struct CUstream_st *stream;	 /* that it was freed on */
	int64_t freed;
	uint32_t thread;
	uint32_t on;	 /* the number of that stream */
	uint64_t serial; /* of that, by which it is known when others have its number */
	struct glk_extent *e; /* NULL: it is not kept, serves again, or has gone back */
	uint64_t older; /* the next of its bucket: its number and 1; 0: there is none */
	uint64_t freed_at[GLAKE_FRAMES];
	bool filled;  /* as freed memory is */
	bool serves;  /* it may serve again, in the order of that stream */
	bool looked;  /* a kernel that looks at it is queued behind all that used it */
	bool ordered; /* the stream of guard is behind all that used it */
};

/* What is kept, of what is live and of the memory of the GPU, and bytes more; frees after which that is asked again. And
 * buckets of what may serve again. */
#define GLK_GUARD_KEPT_PART  32
#define GLK_GUARD_KEPT_LEAST (UINT64_C(32) << 20)
#define GLK_GUARD_KEPT_ASK   64
#define GLK_GUARD_BUCKETS    4096
/* Small ones with a canary are kept for themselves, so that none goes for a large one: half of what is asked for is such. */
#define GLK_GUARD_KEPT_SMALL (UINT64_C(128) << 10)

enum glk_guard_kept { GLK_GUARD_SMALL, GLK_GUARD_LARGE, GLK_GUARD_KEPT_KINDS };

/* Frees after which a kernel looks at what they left, and the most that it looks at. */
#define GLK_GUARD_BATCH	     512
#define GLK_GUARD_BATCH_MOST 1024

/* Kernels, and memory of the host that the GPU reads and writes. */
struct glk_guard_work {
	uint64_t module, fill, canaries, bodies, check;
	struct CUstream_st *stream; /* NULL: nothing was checked as a whole yet */
	uint64_t table;		    /* of the GPU; 0: likewise */
	uint64_t page;
	struct glk_guard_host {
		struct glk_guard_look look[GLK_GUARD_LOOKS];
		struct glk_guard_founds founds;
		struct glk_guard_entry table[GLK_GUARD_TABLE];
	} * host;
	bool ready;
	int failed; /* why it cannot be had; 0: it was not tried, or can */
};

struct glk_guard {
	struct glk_cache *cache;
	glk_atomic(int) mode, level;
	glk_atomic(bool) left; /* contents of some block have left its pages */
	glk_atomic(uint64_t) cleared,
		uncleared; /* bytes; and blocks that were freed without */
	glk_atomic(uint64_t) rate;
	uint32_t secret;
	bool shared;	  /* by MPS */
	bool tool;	  /* one is attached by NVTX: it sees what guard.mode would */
	const void *base; /* of the library, in the addresses of the process */
	struct glk_guard_record *records, *sampled;
	glk_atomic(uint32_t) samples; /* live ones */
	/* Blocks and bytes that were given when one was sampled last. */
	glk_atomic(uint64_t) blocks_then, bytes_then;
	glk_atomic(uint64_t) serial;
	glk_atomic(uint64_t) unguarded; /* that were to be guarded and are not */
	struct glk_lock lock;
	/* Under the lock from here on. */
	struct {
		uint64_t base;
		void *handle;	/* NULL: the tool refuses it */
		uint32_t maker; /* thread that tells the tool of it; 0: it was told */
	} heaps[GLK_GUARD_HEAPS];
	uint32_t heap_count;
	pthread_cond_t heap_made;
	glk_atomic(int)
		names; /* descriptor of guard.names and 1; 0: it was not opened, -1: it cannot be */
	struct glk_guard_work work;
	struct glk_guard_gone gone[GLK_GUARD_GONE];
	uint64_t freed;	     /* entries so far */
	uint64_t kept_first; /* before this one none is kept */
	/* By enum glk_guard_kept: before which one none is kept, and bytes. */
	struct {
		uint64_t first, bytes;
	} kept[GLK_GUARD_KEPT_KINDS];
	uint64_t most, most_until; /* that may be kept, and until which free that holds */
	uint64_t bucket[GLK_GUARD_BUCKETS]; /* the newest of each, as `older` */
	uint64_t look_from;		    /* before this one all were looked at */
	uint32_t unlooked;		    /* frees since a kernel looked at some */
	uint64_t unlooked_bytes;	    /* of those that were filled */
	/* What the looks of the same number are at, by the number of the entry. */
	struct {
		uint64_t gone;
		bool filled, front;
	} look[GLK_GUARD_LOOKS];
	uint64_t look_first, look_end; /* queued, and not known to have ended */
	uint32_t
		behind; /* number of the stream of work, for the cache; 0: not asked yet */
	uint64_t looked;    /* frees behind which somebody looks, or will */
	uint64_t filled;    /* blocks that were filled when they were freed */
	uint64_t again;	    /* requests that were served by what was kept */
	uint64_t unchecked; /* that were freed without a look */
	struct glake_finding findings[GLAKE_FINDINGS];
	glk_atomic(bool) no_file; /* guard.report could not be written */
	uint64_t found, told; /* so far, and of these those that a caller was told of */
};

static inline struct glk_guard *glk_guard_of(const struct glk_cache *cache)
{
	return cache->guarding;
}

/* Of an extent of an arena; NULL: there is none. */
static inline struct glk_guard_record *glk_guard_record(
	struct glk_guard *g, struct glk_arena *arena, const struct glk_extent *e)
{
	struct glk_guard_record *of_tag;
	struct glk_tag_guard *tag;
	uint32_t id = glk_extent_id(&arena->map, e);

	if (arena == &g->cache->arena)
		return &g->records[id];
	if (arena == glk_cache_sampled(g->cache))
		return &g->sampled[id];
	tag = glk_arena_tag_guard(arena);
	/* pairs with: the release in glk_guard_tag */
	of_tag = tag ? glk_load_acquire(&tag->records) : NULL;
	return of_tag ? &of_tag[id] : NULL;
}

/* Of a stream, by its number. */
static inline uint64_t glk_guard_serial(const struct glk_guard *g, uint32_t on)
{
	return glk_load_relaxed(&glk_stream_at(&g->cache->streams, on)->serial);
}

/* guard.c: the number of the calling thread in the system. */
uint32_t glk_guard_thread(void);
/* Whether a kernel may be queued on a stream: while it captures a graph it would be a part of that. */
bool glk_guard_may_queue(struct glk_cache *cache, struct CUstream_st *stream);

/* stack.c: frames of the calling thread, with 0 behind the last one; without the lock of guard, since the loader has one that
 * a constructor may hold which asks for memory. Their names: false: there are none. And g->base: of the library, or NULL where it
 * is a part of the program, and all frames are shown. */
void glk_guard_stack(const struct glk_guard *g, uint64_t *ret_frames);
bool glk_guard_stack_text(const uint64_t *frames, char *text, size_t room);
const void *glk_guard_stack_base(void);

/* told.c, without the lock of guard. Whether blocks of an arena are told to a tool; a block that is held is, and that it goes. */
bool glk_guard_tells(const struct glk_guard *g, const struct glk_arena *arena);
void glk_guard_told(struct glk_guard *g, const struct glk_range *range, uint64_t addr,
	uint64_t asked);
void glk_guard_untold(struct glk_guard *g, const struct glk_range *range, uint64_t addr);
/* All of it, at the end. */
void glk_guard_told_fini(struct glk_guard *g);

/* twins.c */
extern const struct glk_kernel glk_guard_fill, glk_guard_canaries, glk_guard_bodies,
	glk_guard_table_check;
extern const char glk_guard_text[];

/* check.c, all under the lock of guard. What kernels need, made at the first use: 0 or the driver's error. */
int glk_guard_ready(struct glk_guard *g);
void glk_guard_work_fini(struct glk_guard *g);
/* Fills a body, and writes the canary behind it and the one before it, behind a stream. */
int glk_guard_write(struct glk_guard *g, uint64_t addr, uint64_t body, uint32_t canary,
	uint32_t front, struct CUstream_st *stream);
/* A look at one that was freed, by its number, or at the canary before it: noted, as the last of those that are not queued.
 * False: so many are under way. */
bool glk_guard_look_note(struct glk_guard *g, uint64_t number, bool front);
/* Queues those that were noted from one number on, all of a kind, behind a stream; false: they are forgotten. */
bool glk_guard_look_queue(struct glk_guard *g, uint64_t from, struct CUstream_st *stream);
/* The stream of guard itself, made at the first use. */
int glk_guard_stream(struct glk_guard *g);
/* Reads what such looks found, as far as they have ended. */
void glk_guard_poll(struct glk_guard *g);

static inline struct glk_guard_gone *glk_guard_gone(struct glk_guard *g, uint64_t number)
{
	return &g->gone[number % GLK_GUARD_GONE];
}

/* kept.c, under the lock of guard. Makes the place for the next one that is freed, in a call that names a stream or 0;
 * false: the GPU is behind by so many frees. */
bool glk_guard_make_place(struct glk_guard *g, uint32_t on, struct CUstream_st *stream);
/* The last one that was freed is kept: false, and it is the caller's still. */
bool glk_guard_keep(struct glk_guard *g, struct glk_extent *e);
/* One of a size that may serve on a stream, which is the caller's then; NULL: there is none. */
struct glk_extent *glk_guard_take(struct glk_guard *g, uint64_t size, uint32_t on);
/* All of a stream that can be looked at are, behind it. */
void glk_guard_look_at(struct glk_guard *g, uint32_t on, struct CUstream_st *stream);
/* When all work of those that were freed before a number has ended: those that are kept are looked at. 0, or the
 * driver's error. */
int glk_guard_look_at_all(struct glk_guard *g, uint64_t to);
/* All of it goes back. Whether there was any. */
bool glk_guard_let_all_go(struct glk_guard *g);

/* report.c: expands guard.report or guard.names; false: it is none, or has no room. */
bool glk_guard_file_name(const char *pattern, char *name, size_t room);
/* Takes the lock of guard where mistakes may be found, and gives it back, and then says of those that were found since, where
 * there were so many, who asked for their blocks. */
uint64_t glk_guard_enter(struct glk_guard *g);
void glk_guard_leave(struct glk_guard *g, uint64_t found);
/* Under the lock of guard: something is wrong in the canary behind a block, or before it; `gone` NULL: it is live. */
void glk_guard_overrun(struct glk_guard *g, const struct glk_guard_record *was,
	const struct glk_guard_gone *gone, const struct glk_guard_found *found);
void glk_guard_underrun(struct glk_guard *g, const struct glk_guard_record *was,
	const struct glk_guard_gone *gone, const struct glk_guard_found *found);
void glk_guard_late(struct glk_guard *g, const struct glk_guard_gone *gone,
	const struct glk_guard_found *found);
void glk_guard_twice(struct glk_guard *g, const struct glk_guard_gone *gone);

#endif
