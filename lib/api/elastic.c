/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of elastic blocks: see glake/elastic.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"

#include <errno.h>

#include <glake/elastic.h>

_Static_assert(sizeof(struct glake_range) == sizeof(struct glk_portion),
	"a range is told to the cache as it is");

_Static_assert(sizeof(struct glake_sharing) == sizeof(struct glk_sharing),
	"and so are two that share");

typedef int (*change_fn)(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portions, size_t count, struct CUstream_st *stream,
	uint64_t *ret_bytes);

static int change(struct glake *ctx, void *ptr, const struct glake_range *ranges,
	size_t count, struct CUstream_st *stream, size_t *ret_bytes, change_fn fn)
{
	struct glk_cache *cache;
	uint64_t bytes = 0;
	int err = glk_context_owner(ctx, ptr, &cache), cancel;

	if (err)
		return err;
	if (!ranges || !count)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no range of the block");
	cancel = glk_cancel_off();
	err = fn(cache, (uint64_t)(uintptr_t)ptr, (const struct glk_portion *)ranges,
		count, stream, &bytes);
	glk_cancel_restore(cancel);
	if (ret_bytes)
		*ret_bytes = bytes;
	return err;
}

int glake_commit_ranges(struct glake *ctx, void *ptr, const struct glake_range *ranges,
	size_t count, struct CUstream_st *stream, size_t *ret_bytes)
{
	return change(ctx, ptr, ranges, count, stream, ret_bytes, glk_cache_commit);
}

int glake_commit(struct glake *ctx, void *ptr, size_t offset, size_t bytes,
	struct CUstream_st *stream, size_t *ret_bytes)
{
	const struct glake_range range = {offset, bytes};

	return change(ctx, ptr, &range, 1, stream, ret_bytes, glk_cache_commit);
}

int glake_decommit_ranges(struct glake *ctx, void *ptr, const struct glake_range *ranges,
	size_t count, struct CUstream_st *stream, size_t *ret_bytes)
{
	return change(ctx, ptr, ranges, count, stream, ret_bytes, glk_cache_decommit);
}

int glake_decommit(struct glake *ctx, void *ptr, size_t offset, size_t bytes,
	struct CUstream_st *stream, size_t *ret_bytes)
{
	const struct glake_range range = {offset, bytes};

	return change(ctx, ptr, &range, 1, stream, ret_bytes, glk_cache_decommit);
}

int glake_commit_shared(struct glake *ctx, void *ptr, const struct glake_sharing *ranges,
	size_t count, struct CUstream_st *stream)
{
	const struct glk_shares shares = {
		.pages = (const struct glk_sharing *)ranges, .count = count};
	struct glk_cache *cache;
	int err = glk_context_owner(ctx, ptr, &cache), cancel;

	if (err)
		return err;
	if (!ranges || !count)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no range of the block");
	cancel = glk_cancel_off();
	err = glk_cache_share(cache, (uint64_t)(uintptr_t)ptr, &shares, stream);
	glk_cancel_restore(cancel);
	return err;
}
