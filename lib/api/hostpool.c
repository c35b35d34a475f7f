/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of locked memory of the host: see glake/host.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"

#include <errno.h>

#include <glake/host.h>

#define GRAIN_SHIFT 6

static int is_not_mine(const void *ptr)
{
	return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
		"there is no live block of locked memory of this context at %p", ptr);
}

static int check(size_t size, uint32_t flags, void *const *ret_ptr, uint64_t *ret_align)
{
	uint32_t shift = flags ? flags : GRAIN_SHIFT;

	_Static_assert(1 << GRAIN_SHIFT == GLAKE_HOST_GRAIN &&
			GLAKE_HOST_GRAIN == GLK_HOSTPOOL_GRAIN &&
			UINT64_C(1) << GLAKE_HOST_ALIGN_MAX == GLK_HOSTPOOL_ALIGN_MAX,
		"the pool has the same");
	if (!ret_ptr)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the block");
	if (!size)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "size is 0");
	if (shift > GLAKE_HOST_ALIGN_MAX)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"unknown flags 0x%x: an alignment is 2 to the power of up to %u",
			flags, GLAKE_HOST_ALIGN_MAX);
	if (size > INT64_MAX)
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"no memory of the host for %zu bytes", size);
	*ret_align = UINT64_C(1) << (shift > GRAIN_SHIFT ? shift : GRAIN_SHIFT);
	return 0;
}

int glake_host_alloc(
	struct glake *ctx, int device, size_t size, uint32_t flags, void **ret_ptr)
{
	struct glk_context *context;
	struct glk_cache *cache;
	uint64_t align, addr;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (!err)
		err = check(size, flags, ret_ptr, &align);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_host_alloc(cache, size, align, &addr);
	glk_cancel_restore(cancel);
	if (!err)
		*ret_ptr = (void *)(uintptr_t)addr;
	return err;
}

/* The next pool from `*at` on that may have an address; NULL: none. */
static struct glk_hostpool *next_pool(
	const struct glk_context *context, uint64_t addr, int *at)
{
	while (*at < context->devices) {
		struct glk_hostpool *pool = &context->caches[(*at)++].hostpool;

		if (glk_hostpool_may_have(pool, addr))
			return pool;
	}
	return NULL;
}

int glake_host_free(struct glake *ctx, void *ptr)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_context *context;
	struct glk_hostpool *pool;
	int err, at = 0, cancel;

	if (!ptr)
		return 0;
	err = glk_context_get(ctx, &context);
	if (err == -ENODEV)
		return 0; /* a forked child: the memory is the parent's */
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = -ENOENT;
	while (err == -ENOENT && (pool = next_pool(context, addr, &at)))
		err = glk_hostpool_free(pool, addr);
	glk_cancel_restore(cancel);
	return err == -ENOENT ? is_not_mine(ptr) : err;
}

int glake_host_use(
	struct glake *ctx, const void *ptr, int device, struct CUstream_st *stream)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_context *context;
	struct glk_hostpool *pool;
	struct glk_cache *cache;
	int err, at = 0, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = -ENOENT;
	while (err == -ENOENT && (pool = next_pool(context, addr, &at)))
		err = glk_cache_host_use(cache, stream, pool, addr);
	glk_cancel_restore(cancel);
	return err == -ENOENT ? is_not_mine(ptr) : err;
}

int glake_host_query(
	struct glake *ctx, const void *ptr, struct glake_host_block *ret_block)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glake_host_block block;
	struct glk_context *context;
	struct glk_hostpool *pool;
	int err, at = 0;

	err = glk_context_get(ctx, &context);
	if (err)
		return err;
	err = -ENOENT;
	while (err == -ENOENT && (pool = next_pool(context, addr, &at)))
		err = glk_hostpool_query(pool, addr, &block);
	if (err)
		return is_not_mine(ptr);
	return glk_sized_out(ret_block, &block, sizeof(block));
}
