/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_CONTEXT_H
#define GLK_API_CONTEXT_H

/*
 * The face of this folder: what is behind a handle of the public interface. A handle is a
 * value, {generation, index + 1}, never an address, so that a stale one is answered and not
 * followed.
 *
 * The files of this folder stand on each other one way: context.c, the table of handles; one file a
 * public header; served.c, which contexts answer at the socket; what is asked there, rpc.c last;
 * life.c, where all of it begins and ends.
 */
#include "base/clock.h"
#include "base/conf.h"
#include "cache/cache.h"
#include "driver/driver.h"
#include "pool/pool.h"
#include "tier/io/io.h"
#include "watch/watch.h"

#include <glake/context.h>

#include <limits.h>

struct glake_conf_value;

#define GLK_CONTEXT_STOPPED_MAX 16

struct glk_context {
	struct glk_conf conf;
	struct glk_drv *drv;
	struct glk_pool pool;
	struct glk_lessee *lessee;     /* of a broker; NULL: there is none */
	struct glk_guard_looks *looks; /* NULL: guard.look is 0 */
	bool has_quota;
	struct glk_cache *caches; /* one a GPU */
	struct glk_io io;	  /* copies over many paths */
	int devices;
	uint64_t serial; /* of all contexts of the process, from 1: none is given again */
	/* By the program, of each GPU; under the lock of conf.c. */
	bool has_budget[GLK_NODES_MAX / 2];
	/* For reading the file again: what held before it was read, and which it was. */
	struct glk_conf defaults;
	bool no_conf_file;
	char conf_file[PATH_MAX];	      /* "": the installed one */
	uint64_t host_most;		      /* of each GPU, where tier.host is 0 */
	glk_atomic(struct glk_trace *) trace; /* NULL: nothing is recorded */
	/* That were stopped while the program ran, whose last events may be under way. */
	struct glk_trace *stopped[GLK_CONTEXT_STOPPED_MAX];
	int stopped_count;
	char why[256]; /* why CUDA was not taken */
	/* Under the lock of tag.c. An entry without opens is free; its id was that of the last. */
	struct glk_context_tag {
		uint32_t id, opens;
		char name[GLAKE_TAG_NAME_MAX];
	} tags[GLAKE_TAGS_MAX];
	/* Under that of pin.c: who is told of moves. */
	struct {
		uint32_t turn;
		bool on;
	} watches[GLAKE_MOVE_WATCHES_MAX];
};

/*
 * An entry is open while it holds a handle; what it held in the parent stays in `parent`. The
 * handle of a context that is recorded lies apart, where glk_context_find does not look, so
 * that its hits take the way of all other calls and those of others ask nothing.
 */
struct glk_context_entry {
	/* a power of two of bytes, so that it is found by a shift */
	_Alignas(64) glk_atomic(uint64_t) handle;
	glk_atomic(uint64_t) recorded;
	glk_atomic(uint64_t) open; /* of the two, which it moves between (recording.c) */
	struct glk_context *context;
	struct glk_cache *caches; /* of the context, for hits */
	unsigned devices;
	uint64_t generation; /* of the handle given last; under the lock of the table */
	uint64_t parent;
};

/* The lowest bits of a handle are the index of its entry, from 1. */
#define GLK_CONTEXT_INDEX_BITS 8

extern struct glk_context_entry glk_contexts[1 << GLK_CONTEXT_INDEX_BITS];

static inline struct glk_context_entry *glk_context_entry(struct glake *handle)
{
	return &glk_contexts[(uintptr_t)handle & ((1u << GLK_CONTEXT_INDEX_BITS) - 1)];
}

/* Whether the entry is that of a handle: not if it is stale, of a parent process, or if it is
 * recorded. */
static inline bool glk_context_holds(
	const struct glk_context_entry *entry, const struct glake *handle)
{
	/* pairs with: the release in glk_context_publish */
	return glk_load_acquire(&entry->handle) == (uintptr_t)handle;
}

/* The context of such a handle, without a record, or NULL. */
static inline struct glk_context *glk_context_find(struct glake *handle)
{
	struct glk_context_entry *entry = glk_context_entry(handle);

	return glk_context_holds(entry, handle) ? entry->context : NULL;
}

/* Its number in the process, from 1: one that is free is given again. */
static inline unsigned glk_context_number(const struct glake *handle)
{
	return (unsigned)((uintptr_t)handle & ((1u << GLK_CONTEXT_INDEX_BITS) - 1));
}

/* The configuration, with what rooms above it ask of texts; see glk_conf_read_as. */
int glk_context_conf(const struct glake_options *options, glake_conf_finding_fn fn,
	void *arg, bool is_check, struct glk_conf *ret_conf);
/* The same for a context that is being opened, which keeps what it takes to read it again. */
int glk_context_configure(
	struct glk_context *context, const struct glake_options *options);
/* A value of it, as it is now. */
void glk_context_value(
	struct glk_context *context, size_t id, struct glake_conf_value *ret_value);

/* Sets the budget of a GPU as the program does: a file that is read again leaves it alone. */
void glk_context_budget(struct glk_context *context, int device, size_t bytes);

/*
 * The context of a handle. 0; -ESTALE with a record; in a forked child -ENODEV (FORKED). It
 * stays valid until glake_close, which the caller keeps apart from other calls.
 */
int glk_context_get(struct glake *handle, struct glk_context **ret_context);

/* The same and one of its GPUs; -EINVAL for a number that is none. */
int glk_context_device(struct glake *handle, int device, struct glk_context **ret_context,
	struct glk_cache **ret_cache);

/* The GPU that an address of a context belongs to; -EINVAL (NOT_MINE) for one that is of none. */
int glk_context_owner(
	struct glake *handle, const void *ptr, struct glk_cache **ret_cache);

/* The GPU of a context that an address belongs to, be it in a pool of graphs; NULL: none. */
static inline struct glk_cache *glk_context_cache(
	const struct glk_context *context, uint64_t addr)
{
	const struct glk_range *range = glk_index_find(addr);
	struct glk_cache *gpu = range ? glk_arena_of(range)->gpu : NULL;

	return gpu >= context->caches && gpu < context->caches + context->devices ? gpu
										  : NULL;
}

/* For life.c: gives a context a handle; takes one out of the table before it is taken down.
 * -EMFILE; -ESTALE. */
int glk_context_publish(struct glk_context *context, struct glake **ret_handle);
int glk_context_withdraw(struct glake *handle, struct glk_context **ret_context);
/* In a child whose parent had contexts open, -ENODEV (FORKED); what the child forgets of them. */
int glk_context_may_open(void);
void glk_contexts_forked(void);

/* copy.c: a context is about to be closed, and with it what its jobs have of the driver. */
void glk_copy_jobs_leave(struct glake *ctx, struct glk_context *context);

/* A trace of its own; of the options file, size and midway are the caller's. */
int glk_context_trace(const struct glk_context *context,
	struct glk_trace_options *options, struct glk_trace **ret_trace);

/* The context of a handle that is recorded, or NULL. */
static inline struct glk_context *glk_context_recorded(struct glake *handle)
{
	struct glk_context_entry *entry = glk_context_entry(handle);

	/* pairs with: the release in glk_context_publish */
	if (glk_load_acquire(&entry->recorded) != (uintptr_t)handle)
		return NULL;
	return entry->context; /* of NULL there is none */
}

/* Records a call, if the context is recorded at all. Where the event lies, or NULL. */
static inline struct glake_trace_event *glk_context_record(struct glk_context *context,
	unsigned kind, int device, uint64_t address, uint64_t size,
	const struct CUstream_st *stream)
{
	/* pairs with: the release in begin (recording.c) */
	struct glk_trace *trace = glk_load_acquire(&context->trace);

	if (!trace)
		return NULL;
	if (size > GLAKE_TRACE_SIZE_MAX)
		size = GLAKE_TRACE_SIZE_MAX;
	return glk_trace_put(trace, glk_clock_ns(),
		glake_trace_what(kind, (unsigned)device, size), address,
		(uintptr_t)stream);
}

#endif
