/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of what is beyond the GPU: see glake/tier.h. */
#include "api/context.h"
#include "api/uvm.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"
#include "base/thread.h"
#include "guard/guard.h"

#include <errno.h>

#include <glake/tier.h>

typedef int (*move_fn)(
	struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);

static int move(struct glake *ctx, void *ptr, struct CUstream_st *stream, move_fn fn)
{
	struct glk_cache *cache;
	int err = glk_context_owner(ctx, ptr, &cache), cancel;

	if (err)
		return err;
	cancel = glk_cancel_off();
	err = fn(cache, (uint64_t)(uintptr_t)ptr, stream);
	glk_prefetch_pump(cache);
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

int glake_advise(struct glake *ctx, void *ptr, int advice)
{
	struct glk_cache *cache;
	int err, cancel, plain = advice & ~GLAKE_ADVICE_DISCARDABLE;

	/* pinned memory goes nowhere, so that nothing of it is dropped */
	if (plain < GLAKE_ADVICE_NORMAL || plain > GLAKE_ADVICE_PINNED ||
		(advice != plain && plain == GLAKE_ADVICE_PINNED))
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "there is no advice %d", advice);
	err = glk_context_owner(ctx, ptr, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_advise(cache, (uint64_t)(uintptr_t)ptr, (uint32_t)advice);
	glk_cancel_restore(cancel);
	return err;
}

int glake_advise_priority(struct glake *ctx, void *ptr, int priority)
{
	struct glk_cache *cache;
	int err, cancel;

	if (priority < 0 || priority > GLAKE_PRIORITY_MAX)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a priority is 0 to %d",
			GLAKE_PRIORITY_MAX);
	err = glk_context_owner(ctx, ptr, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_rank(cache, (uint64_t)(uintptr_t)ptr, (uint32_t)priority);
	glk_cancel_restore(cancel);
	return err;
}

int glake_quiet(struct glake *ctx, int device, struct glake_returned *ret)
{
	struct glake_returned did = {.sz = sizeof(did)};
	struct glake_checked checked = {.sz = sizeof(checked)};
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
	err = glk_cache_quiet(cache, &did);
	if (!err)
		glk_guard_check(cache, &checked);
	glk_prefetch_pump(cache);
	glk_cancel_restore(cancel);
	if (ret)
		glk_sized_out(ret, &did, sizeof(did));
	return err;
}

/* What others have of a GPU and do not use goes back to it, and what they have away there if it is about to
 * be suspended. One that fails keeps what it has. The record of the thread stays. */
static void call_back(
	const struct glk_context *context, const struct glk_cache *from, bool vacate)
{
	struct glake_error why = glk_thread_current->error;
	uint64_t unused;

	for (int i = 0; i < context->devices && glk_load_relaxed(&from->node->lent);
		i++) {
		struct glk_cache *cache = &context->caches[i];

		if (cache->host && glk_load_relaxed(&cache->host->peer->held) &&
			cache->host->peer->lender == from->node) {
			if (vacate)
				glk_cache_vacate(cache);
			glk_cache_trim(cache, UINT64_MAX, true, &unused);
		}
	}
	glk_error_back(&why);
}

/* A GPU is suspended, in place or not, or comes back, lazily or not. */
static int turn(
	struct glake *ctx, int device, struct glake_suspended *ret, bool out, bool placed)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_context *context;
	struct glk_cache *cache;
	int err, cancel;

	err = glk_context_device(ctx, device, &context, &cache);
	/* likewise */
	if (!err && ret)
		err = glk_sized_out(ret, &did, sizeof(did));
	if (err)
		return err;
	cancel = glk_cancel_off();
	/* it lends nothing from the beginning on, so that what others take back stays gone; after an error before it
	 * was suspended it does again */
	if (out)
		glk_cache_lend(cache, false);
	call_back(context, cache, out);
	err = out ? glk_cache_suspend(cache, placed, &did)
		  : glk_cache_resume(cache, placed, &did);
	if (out)
		glk_cache_lend(cache, true);
	/* what is counted of managed memory turns with it */
	if (!err && out)
		glk_managed_pause(context);
	else if (!err)
		glk_managed_continue(context);
	glk_prefetch_pump(cache);
	glk_io_rest(&context->io);
	glk_cancel_restore(cancel);
	if (ret)
		glk_sized_out(ret, &did, sizeof(did));
	return err;
}

int glake_suspend(struct glake *ctx, int device, struct glake_suspended *ret)
{
	return turn(ctx, device, ret, true, false);
}

int glake_suspend_in_place(struct glake *ctx, int device, struct glake_suspended *ret)
{
	return turn(ctx, device, ret, true, true);
}

int glake_resume_lazy(struct glake *ctx, int device, struct glake_suspended *ret)
{
	return turn(ctx, device, ret, false, true);
}

int glake_resume(struct glake *ctx, int device, struct glake_suspended *ret)
{
	return turn(ctx, device, ret, false, false);
}
