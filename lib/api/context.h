/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_CONTEXT_H
#define GLK_API_CONTEXT_H

/*
 * The face of this folder: what is behind a handle of the public interface. A handle is a
 * value, {generation, index + 1}, never an address, so that a stale one is answered and not
 * followed.
 */
#include "base/clock.h"
#include "base/conf.h"
#include "cache/cache.h"
#include "driver/driver.h"
#include "pool/pool.h"
#include "watch/watch.h"

#include <glake/context.h>

struct glk_context {
	struct glk_conf conf;
	struct glk_drv *drv;
	struct glk_pool pool;
	struct glk_cache *caches; /* one a GPU */
	int devices;
	struct glk_trace *trace; /* NULL: nothing is recorded */
	char why[256];		 /* why CUDA was not taken */
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
	struct glk_context *context;
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

/* The context of a handle, without a record: NULL if it is stale, of a parent process, or if it
 * is recorded. */
static inline struct glk_context *glk_context_find(struct glake *handle)
{
	struct glk_context_entry *entry = glk_context_entry(handle);

	/* pairs with: the release in publish */
	if (glk_load_acquire(&entry->handle) != (uintptr_t)handle)
		return NULL;
	return entry->context;
}

/* The configuration, with what rooms above it ask of texts; see glk_conf_read_as. */
int glk_context_conf(const struct glake_options *options, glake_conf_finding_fn fn,
	void *arg, bool is_check, struct glk_conf *ret_conf);

/*
 * The context of a handle. 0; -ESTALE with a record; in a forked child -ENODEV (FORKED). It
 * stays valid until glake_close, which the caller keeps apart from other calls.
 */
int glk_context_get(struct glake *handle, struct glk_context **ret_context);

/* The same and one of its GPUs; -EINVAL for a number that is none. */
int glk_context_device(struct glake *handle, int device, struct glk_context **ret_context,
	struct glk_cache **ret_cache);

/* The GPU of a context that an address belongs to, be it in a pool of graphs; NULL: none. */
static inline struct glk_cache *glk_context_cache(
	const struct glk_context *context, uint64_t addr)
{
	const struct glk_range *range = glk_index_find(addr);
	struct glk_cache *gpu = range ? glk_arena_of(range)->gpu : NULL;

	return gpu >= context->caches && gpu < context->caches + context->devices ? gpu
										  : NULL;
}

/* The context of a handle that is recorded, or NULL. */
static inline struct glk_context *glk_context_recorded(struct glake *handle)
{
	struct glk_context_entry *entry = glk_context_entry(handle);

	/* pairs with: the release in publish */
	if (glk_load_acquire(&entry->recorded) != (uintptr_t)handle)
		return NULL;
	return entry->context; /* of NULL there is none */
}

/* Records a call, if the context is recorded at all. Where the event lies, or NULL. */
static inline struct glake_trace_event *glk_context_record(struct glk_context *context,
	unsigned kind, int device, uint64_t address, uint64_t size,
	const struct CUstream_st *stream)
{
	if (!context->trace)
		return NULL;
	if (size > GLAKE_TRACE_SIZE_MAX)
		size = GLAKE_TRACE_SIZE_MAX;
	return glk_trace_put(context->trace, glk_clock_ns(),
		glake_trace_what(kind, (unsigned)device, size), address,
		(uintptr_t)stream);
}

#endif
