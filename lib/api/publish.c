/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of contents by name: see glake/publish.h. */
#include <glake/publish.h>

#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"
#include "share/publish.h"

#include <errno.h>

_Static_assert(GLAKE_KEY_MAX == GLK_BROKER_KEY, "names are what the broker takes");

static int publish(struct glk_context *context, struct glk_cache *cache, const void *ptr,
	const char *key, uint64_t stamp)
{
	struct glake_block block = {.sz = sizeof(block)};
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_pin pin;
	int err;

	err = glk_cache_pin(cache, addr, false, &pin);
	if (err)
		return err;
	err = glk_cache_query(cache, addr, &block);
	if (!err && (!(block.flags & GLAKE_ALLOC_CONTIGUOUS) || pin.count != 1))
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block at %p shares pages with others: contiguous ones are published",
			ptr);
	if (!err && !(block.can & GLAKE_CAN_EXPORT))
		err = glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"the page of the block was not made to be exported");
	if (!err) {
		glk_pin_mark(&pin);
		err = glk_publish(context->lessee, cache->drv, cache->device, addr,
			glk_pin_page, &pin, key, stamp,
			glk_load_relaxed(&cache->encrypts));
	}
	if (err)
		glk_cache_unpin(cache, addr);
	return err;
}

int glake_publish(struct glake *ctx, const void *ptr, const char *key, uint64_t stamp)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_get(ctx, &context);
	if (!err)
		err = glk_context_owner(ctx, ptr, &cache);
	if (err)
		return err;
	if (!key)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no name");
	cancel = glk_cancel_off();
	err = publish(context, cache, ptr, key, stamp);
	glk_cancel_restore(cancel);
	return err;
}

int glake_publish_not(struct glake *ctx, int device, const char *key)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!key)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no name");
	cancel = glk_cancel_off();
	err = glk_publish_not(context->lessee, device, key);
	glk_cancel_restore(cancel);
	return err;
}

int glake_attach(struct glake *ctx, int device, const char *key, uint64_t stamp,
	uint32_t flags, size_t *ret_size, void **ret_ptr)
{
	struct glk_context *context;
	struct glk_cache *cache;
	uint64_t addr, size;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	if (!key || !ret_size || !ret_ptr || flags & ~GLAKE_ATTACH_CLAIM)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"no name, no place for the address or its size, or unknown flags");
	cancel = glk_cancel_off();
	err = glk_attach(context->lessee, &cache->imports, key, stamp,
		flags & GLAKE_ATTACH_CLAIM, glk_load_relaxed(&cache->encrypts), &size,
		&addr);
	glk_cancel_restore(cancel);
	if (err)
		return err;
	*ret_size = size;
	*ret_ptr = (void *)(uintptr_t)addr;
	return 0;
}

int glake_attach_all(struct glake *ctx, int device, const char *const *keys,
	const uint64_t *stamps, size_t count, size_t *ret_sizes, void **ret_ptrs)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	for (size_t i = 0; keys && i < count; i++)
		err = keys[i] ? err : -EINVAL;
	if (err || !keys || !count || !ret_sizes || !ret_ptrs)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"no names, or no places for the addresses or their sizes");
	cancel = glk_cancel_off();
	err = glk_attach_all(context->lessee, &cache->imports, keys, stamps, count,
		glk_load_relaxed(&cache->encrypts), ret_sizes, ret_ptrs);
	glk_cancel_restore(cancel);
	return err;
}

/* Part of a live block with its contents there, or of an import. */
static int check_range(struct glk_cache *cache, const struct glake_stretch *range)
{
	uint64_t addr = (uint64_t)(uintptr_t)range->ptr;
	struct glake_block block = {.sz = sizeof(block)};
	uint64_t from;

	if (addr % 16)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"a range begins at %p, no multiple of 16", range->ptr);
	if (glk_import_has(&cache->imports, addr, range->size))
		return 0;
	if (glk_cache_query(cache, addr, &block))
		return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
			"there is no live block of GPU %d at %p", cache->device,
			range->ptr);
	from = addr - (uint64_t)(uintptr_t)block.base;
	if (from > block.size || range->size > block.size - from)
		return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
			"the block at %p ends before the range", block.base);
	if (block.away || block.committed < block.size)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"some of the block at %p is away, or was never there",
			block.base);
	return 0;
}

#define GRAIN ((size_t)64 << 10)
#define ROUND ((size_t)16 << 10)

int glake_alike(struct glake *ctx, int device, const struct glake_stretch *stretches,
	size_t count, size_t grain, struct glake_likeness *ret_likeness)
{
	struct glake_likeness likeness = {.sz = sizeof(likeness)};
	size_t bytes = count * sizeof(struct glk_alike_range);
	struct glk_alike_range *list;
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	grain = grain ? grain : GRAIN;
	if (!stretches || !count || count > UINT32_MAX || grain % ROUND)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%zu stretches in parts of %zu bytes: one at least, and whole 16 KiB are right",
			count, grain);
	err = glk_sized_out(ret_likeness, &likeness, sizeof(likeness));
	if (err)
		return err;
	list = glk_region_new(bytes);
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < count && !err; i++) {
		list[i] = (struct glk_alike_range){
			(uint64_t)(uintptr_t)stretches[i].ptr, stretches[i].size};
		err = check_range(cache, &stretches[i]);
	}
	cancel = glk_cancel_off();
	if (!err)
		err = glk_alike(cache->drv, device, list, count, grain, &likeness);
	glk_cancel_restore(cancel);
	glk_region_free(list, bytes);
	return err ? err : glk_sized_out(ret_likeness, &likeness, sizeof(likeness));
}

int glake_detach(struct glake *ctx, void *ptr, struct CUstream_st *stream)
{
	struct glk_context *context;
	int err = glk_context_get(ctx, &context), cancel;

	if (err) /* a forked child: the memory is the parent's */
		return err == -ENODEV ? 0 : err;
	cancel = glk_cancel_off();
	err = -ENOENT;
	for (int i = 0; i < context->devices && err == -ENOENT; i++)
		err = glk_detach(context->lessee, &context->caches[i].imports,
			(uint64_t)(uintptr_t)ptr, stream);
	glk_cancel_restore(cancel);
	if (err != -ENOENT)
		return err;
	return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE, "nothing is attached at %p", ptr);
}

int glake_seal(struct glake *ctx, void *ptr, struct CUstream_st *stream, uint64_t rate,
	struct glake_sealed *ret_sealed)
{
	struct glake_sealed sealed = {.sz = sizeof(sealed)};
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_get(ctx, &context), cancel;

	if (!err)
		err = glk_context_owner(ctx, ptr, &cache);
	if (!err && ret_sealed)
		err = glk_sized_out(ret_sealed, &sealed, sizeof(sealed));
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_seal(
		cache, context->lessee, (uint64_t)(uintptr_t)ptr, stream, rate, &sealed);
	glk_cancel_restore(cancel);
	if (ret_sealed)
		glk_sized_out(ret_sealed, &sealed, sizeof(sealed));
	return err;
}

/* What is attached, or else a block. */
static int unseal(struct glk_context *context, struct glk_cache *cache, uint64_t addr,
	struct CUstream_st *stream)
{
	int err = -ENOENT;

	for (int i = 0; i < context->devices && err == -ENOENT; i++)
		err = glk_unseal(
			context->lessee, &context->caches[i].imports, addr, stream);
	if (err == -ENOENT && cache)
		err = glk_cache_unseal(cache, addr, stream);
	return err;
}

int glake_unseal(struct glake *ctx, void *ptr, struct CUstream_st *stream)
{
	struct glk_context *context;
	struct glk_cache *cache = NULL;
	int err = glk_context_get(ctx, &context), cancel;

	if (err)
		return err;
	if (glk_context_owner(ctx, ptr, &cache))
		cache = NULL;
	cancel = glk_cancel_off();
	err = unseal(context, cache, (uint64_t)(uintptr_t)ptr, stream);
	glk_cancel_restore(cancel);
	if (err != -ENOENT)
		return err;
	return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE, "nothing is attached at %p", ptr);
}
