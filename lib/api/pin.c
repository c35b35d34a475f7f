/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of pins and of who is told of moves: see glake/pin.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"

#include <errno.h>

#include <glake/pin.h>

/* Of the numbers of all contexts: they are given and taken rarely. */
static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_TAG);

/* The lowest bits of a number are the entry's, from 1; the rest counts who had it. */
#define BITS 8
_Static_assert(GLAKE_MOVE_WATCHES_MAX < 1 << BITS, "the number of a function has room");

static int pin(struct glake *ctx, void *ptr, bool on)
{
	struct glk_cache *cache;
	int err = glk_context_owner(ctx, ptr, &cache), cancel;

	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_hold(cache, (uint64_t)(uintptr_t)ptr, on);
	glk_cancel_restore(cancel);
	return err;
}

int glake_pin(struct glake *ctx, void *ptr)
{
	return pin(ctx, ptr, true);
}

int glake_unpin(struct glake *ctx, void *ptr)
{
	return pin(ctx, ptr, false);
}

/* On each GPU, at the same place. */
static void set(struct glk_context *context, uint32_t entry, glake_move_fn fn, void *arg)
{
	for (int i = 0; i < context->devices; i++)
		glk_cache_hear(&context->caches[i], entry, fn, arg);
}

int glake_move_watch(struct glake *ctx, glake_move_fn fn, void *arg, uint32_t *ret_watch)
{
	struct glk_context *context;
	uint32_t i = 0;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	if (!fn || !ret_watch)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			fn ? "no place for the number" : "no function");
	glk_lock(&lock);
	while (i < GLAKE_MOVE_WATCHES_MAX && context->watches[i].on)
		i++;
	if (i < GLAKE_MOVE_WATCHES_MAX) {
		set(context, i, fn, arg);
		context->watches[i].on = true;
		*ret_watch = ++context->watches[i].turn << BITS | (i + 1);
	} else {
		err = glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"%d functions are told of moves, the most there can be",
			GLAKE_MOVE_WATCHES_MAX);
	}
	glk_unlock(&lock);
	return err;
}

int glake_move_unwatch(struct glake *ctx, uint32_t watch)
{
	uint32_t number = watch & ((1u << BITS) - 1);
	struct glk_context *context;
	int err = glk_context_get(ctx, &context);
	bool found;

	if (err)
		return err;
	glk_lock(&lock);
	found = number && number <= GLAKE_MOVE_WATCHES_MAX &&
		context->watches[number - 1].on &&
		context->watches[number - 1].turn << BITS ==
			(watch & ~((1u << BITS) - 1));
	if (found) {
		set(context, number - 1, NULL, NULL);
		context->watches[number - 1].on = false;
	}
	glk_unlock(&lock);
	return found ? 0
		     : glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			       "no function is told of moves by the number %u", watch);
}
