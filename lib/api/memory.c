/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of blocks, budgets and trim: see glake/memory.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"
#include "base/thread.h"
#include "cache/bin/hit.h"

#include <errno.h>

#include <glake/elastic.h>

static void record_alloc(struct glk_context *context, int device, size_t size,
	const struct CUstream_st *stream, uint32_t flags, uint64_t addr, int err)
{
	unsigned kind = GLAKE_TRACE_ALLOC;

	if (err)
		kind = GLAKE_TRACE_ALLOC_FAILED;
	else if (flags & GLAKE_ALLOC_CONTIGUOUS)
		kind = GLAKE_TRACE_ALLOC_CONTIGUOUS;
	glk_context_record(
		context, kind, device, err ? (uint64_t)-err : addr, size, stream);
}

#define ELASTIC (GLAKE_ALLOC_ELASTIC | GLAKE_ALLOC_GROWS)

/* A request that is no plain one, and all that may be wrong with one. */
static GLK_COLD int alloc_other(struct glake *ctx, int device, size_t size,
	struct CUstream_st *stream, uint32_t flags, void **ret_ptr)
{
	struct glk_context *context;
	struct glk_cache *cache;
	uint64_t addr = 0;
	int err;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!ret_ptr)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the block");
	if (flags & ~GLAKE_ALLOC_FLAGS)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "unknown flags 0x%x",
			flags & ~GLAKE_ALLOC_FLAGS);
	if (flags & GLAKE_ALLOC_ALIGN & ((flags & GLAKE_ALLOC_ALIGN) - 1))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"an alignment is one power of two, not 0x%x",
			flags & GLAKE_ALLOC_ALIGN);
	if ((flags & GLAKE_ALLOC_MANAGED) && (flags & GLAKE_ALLOC_ALIGN))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"managed memory is aligned to %zu bytes only", GLAKE_GRAIN);
	if ((flags & GLAKE_ALLOC_MANAGED_OVER) && !(flags & GLAKE_ALLOC_MANAGED))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"GLAKE_ALLOC_MANAGED_OVER is for managed memory");
	if ((flags & GLAKE_ALLOC_ELASTIC) ? flags & ~(ELASTIC | GLAKE_ALLOC_ALIGN)
					  : flags & GLAKE_ALLOC_GROWS)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"an elastic block is of no other kind, and GLAKE_ALLOC_GROWS is for it "
			"alone");
	if (flags & GLAKE_ALLOC_ELASTIC) {
		/* no memory, so that a trace knows nothing of it */
		err = glk_cache_elastic(cache, size, stream, flags, &addr);
	} else {
		err = glk_cache_miss(cache, size, stream, flags, &addr);
		record_alloc(context, device, size, stream, flags, addr, err);
	}
	if (err)
		return err;
	*ret_ptr = (void *)(uintptr_t)addr;
	return 0;
}

/* A plain request that is recorded, or any other. */
static GLK_COLD int alloc_recorded(struct glake *ctx, int device, size_t size,
	struct CUstream_st *stream, uint32_t flags, void **ret_ptr)
{
	struct glk_context *context = glk_context_recorded(ctx);
	uint64_t addr = 0;
	int err;

	if (!context || !ret_ptr || flags ||
		(unsigned)device >= (unsigned)context->devices)
		return alloc_other(ctx, device, size, stream, flags, ret_ptr);
	err = glk_cache_alloc(&context->caches[device], size, stream, 0, &addr);
	record_alloc(context, device, size, stream, 0, addr, err);
	if (!err)
		*ret_ptr = (void *)(uintptr_t)addr;
	return err;
}

int glake_alloc(struct glake *ctx, int device, size_t size, struct CUstream_st *stream,
	uint32_t flags, void **ret_ptr)
{
	const struct glk_context_entry *entry = glk_context_entry(ctx);

	/* of a size of 0 there is no bin */
	if (!glk_context_holds(entry, ctx) || !ret_ptr ||
		(unsigned)device >= entry->devices || flags)
		return alloc_recorded(ctx, device, size, stream, flags, ret_ptr);
	return glk_hit_alloc(&entry->caches[device], size, stream, ret_ptr);
}

/* The GPU of this context that an address belongs to. */
static int find_cache(
	struct glk_context *context, uint64_t addr, struct glk_cache **ret_cache)
{
	*ret_cache = glk_context_cache(context, addr);
	if (*ret_cache)
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
		"%p is not memory of this context", (void *)(uintptr_t)addr);
}

/* A free of what is none of ours, of a pool of graphs, or of nothing. */
static GLK_COLD int free_other(struct glake *ctx, void *ptr, struct CUstream_st *stream)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glake_trace_event *event;
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	if (!ptr)
		return 0;
	err = glk_context_get(ctx, &context);
	if (err == -ENODEV)
		return 0; /* a forked child: the memory is the parent's */
	if (err)
		return err;
	err = find_cache(context, addr, &cache);
	event = glk_context_record(
		context, GLAKE_TRACE_FREE, err ? 0 : cache->device, addr, 0, stream);
	if (!err)
		err = glk_cache_free(cache, addr, stream);
	if (err)
		glk_trace_refuse(event, err);
	return err;
}

/*
 * A plain free that is recorded, or any other. The event stands in the trace before the free is
 * made: a process that ends between the two leaves no trace in which a block that was given out
 * again was not freed.
 */
static GLK_COLD int free_recorded(
	struct glake *ctx, void *ptr, struct CUstream_st *stream)
{
	struct glk_context *context = glk_context_recorded(ctx);
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glake_trace_event *event;
	struct glk_cache *cache;
	int err;

	cache = context ? glk_context_cache(context, addr) : NULL;
	if (!cache)
		return free_other(ctx, ptr, stream);
	event = glk_context_record(
		context, GLAKE_TRACE_FREE, cache->device, addr, 0, stream);
	err = glk_cache_free(cache, addr, stream);
	if (err)
		glk_trace_refuse(event, err);
	return err;
}

int glake_free(struct glake *ctx, void *ptr, struct CUstream_st *stream)
{
	const struct glk_context_entry *entry = glk_context_entry(ctx);
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	const struct glk_range *range;
	struct glk_arena *arena;

	if (!glk_context_holds(entry, ctx))
		return free_recorded(ctx, ptr, stream);
	range = glk_index_find(addr);
	if (!range)
		return free_other(ctx, ptr, stream);
	arena = glk_arena_of(range);
	/* of an arena without bins, or of another context */
	if (arena->binned != entry->caches)
		return free_other(ctx, ptr, stream);
	return glk_hit_free(arena, range, addr, stream);
}

/* A block that is found by its name, or whatever else is there. */
static GLK_COLD int give_back_other(struct glake *ctx, void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (!ptr || glake_query(ctx, ptr, &block))
		block.stream = NULL;
	return glake_free(ctx, ptr, block.stream);
}

int glake_give_back(struct glake *ctx, void *ptr)
{
	const struct glk_context_entry *entry = glk_context_entry(ctx);
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	const struct glk_range *range = glk_index_find(addr);
	struct glk_arena *arena;
	int err;

	if (!glk_context_holds(entry, ctx) || !range)
		return give_back_other(ctx, ptr);
	arena = glk_arena_of(range);
	if (arena->binned != entry->caches ||
		!glk_hit_give_back(arena, range, addr, &err))
		return give_back_other(ctx, ptr);
	return err;
}

/* The GPU of a block, for what is no plain free. In a forked child -ENODEV. */
static int block_cache(struct glake *ctx, const void *ptr,
	struct glk_context **ret_context, struct glk_cache **ret_cache)
{
	int err = glk_context_get(ctx, ret_context);

	return err ? err : find_cache(*ret_context, (uint64_t)(uintptr_t)ptr, ret_cache);
}

int glake_use(struct glake *ctx, void *ptr, struct CUstream_st *stream)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = block_cache(ctx, ptr, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_use(cache, addr, stream);
	if (!err)
		glk_context_record(
			context, GLAKE_TRACE_USE, cache->device, addr, 0, stream);
	glk_cancel_restore(cancel);
	return err;
}

/* What the stream of a block is, for the trace. */
static struct glake_trace_event *record_free_after(
	struct glk_context *context, struct glk_cache *cache, uint64_t addr, size_t count)
{
	struct glake_block block = {0};

	if (!glk_load_relaxed(&context->trace) || glk_cache_query(cache, addr, &block))
		return NULL;
	return glk_context_record(context, GLAKE_TRACE_FREE_AFTER, cache->device, addr,
		count, block.stream);
}

int glake_free_after(
	struct glake *ctx, void *ptr, struct CUevent_st *const *events, size_t count)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glake_trace_event *event;
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	if (!ptr)
		return 0;
	if (count && !events)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no list of events");
	err = block_cache(ctx, ptr, &context, &cache);
	if (err) /* a forked child: the memory is the parent's */
		return err == -ENODEV ? 0 : err;
	cancel = glk_cancel_off();
	event = record_free_after(context, cache, addr, count);
	err = glk_cache_free_after(cache, addr, events, count);
	if (err)
		glk_trace_refuse(event, err);
	glk_cancel_restore(cancel);
	return err;
}

int glake_query(struct glake *ctx, const void *ptr, struct glake_block *ret_block)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_context *context;
	struct glk_cache *cache;
	struct glake_block block;
	int err;

	err = glk_context_get(ctx, &context);
	if (err)
		return err;
	err = find_cache(context, addr, &cache);
	if (err)
		return err;
	err = glk_cache_query(cache, addr, &block);
	if (err)
		return err;
	return glk_sized_out(ret_block, &block, sizeof(block));
}

int glake_budget_set(struct glake *ctx, int device, size_t bytes)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!bytes)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a budget of 0 bytes");
	glk_context_budget(context, device, bytes);
	return 0;
}

int glake_budget_get(struct glake *ctx, int device, size_t *ret_bytes)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!ret_bytes)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the budget");
	*ret_bytes = glk_load_relaxed(&cache->node->budget);
	return 0;
}

/* Of all contexts: all GPUs of one have the same function. */
static struct glk_lock shortage_lock = GLK_LOCK_INIT(GLK_RANK_TAG);

int glake_shortage_set(struct glake *ctx, glake_shortage_fn fn, void *user)
{
	const struct glk_thread *thread = glk_thread_current;
	struct glk_context *context;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	if (thread->asked || thread->told)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"a function of the program cannot be replaced by itself");
	glk_lock(&shortage_lock);
	for (int i = 0; i < context->devices; i++)
		glk_cache_shortage(&context->caches[i], fn, user);
	glk_unlock(&shortage_lock);
	return 0;
}

int glake_trim(struct glake *ctx, int device, size_t keep, size_t *ret_released)
{
	struct glk_context *context;
	struct glk_cache *cache;
	uint64_t released;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_trim(cache, keep, false, &released);
	glk_io_rest(&context->io);
	glk_cancel_restore(cancel);
	if (err)
		return err;
	glk_context_record(context, GLAKE_TRACE_TRIM, device, keep, released, NULL);
	if (ret_released)
		*ret_released = released;
	return 0;
}
