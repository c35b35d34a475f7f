/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of what is beyond the GPU: see glake/tier.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"

#include <errno.h>

#include <glake/tier.h>

typedef int (*move_fn)(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);

static int move(struct glake *ctx, void *ptr, struct CUstream_st *stream, move_fn fn)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_get(ctx, &context);
	if (err)
		return err;
	cache = glk_context_cache(context, addr);
	if (!cache)
		return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
			"%p is not memory of this context", ptr);
	cancel = glk_cancel_off();
	err = fn(cache, addr, stream);
	glk_cancel_restore(cancel);
	return err;
}

int glake_spill(struct glake *ctx, void *ptr, struct CUstream_st *stream)
{
	return move(ctx, ptr, stream, glk_cache_spill);
}

int glake_fetch(struct glake *ctx, void *ptr, struct CUstream_st *stream)
{
	return move(ctx, ptr, stream, glk_cache_fetch);
}

typedef int (*turn_fn)(struct glk_cache *cache, struct glake_suspended *ret);

static int turn(struct glake *ctx, int device, struct glake_suspended *ret, turn_fn fn)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	/* what it can take is asked before anything moves */
	if (!err && ret)
		err = glk_sized_out(ret, &did, sizeof(did));
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = fn(cache, &did);
	glk_cancel_restore(cancel);
	if (ret)
		glk_sized_out(ret, &did, sizeof(did));
	return err;
}

int glake_suspend(struct glake *ctx, int device, struct glake_suspended *ret)
{
	return turn(ctx, device, ret, glk_cache_suspend);
}

int glake_resume(struct glake *ctx, int device, struct glake_suspended *ret)
{
	return turn(ctx, device, ret, glk_cache_resume);
}
