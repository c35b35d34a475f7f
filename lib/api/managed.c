/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of managed memory: see glake/managed.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"

#include <errno.h>

#include <glake/managed.h>

/* A place that a program names, as the driver's. */
static int place_of(
	const struct glk_cache *cache, int place, int id, struct glk_place *ret_place)
{
	struct glk_place found = {GLK_PLACE_ANY, 0};

	if (place == GLAKE_PLACE_GPU && id >= 0 && id < cache->pool->gpus)
		found = (struct glk_place){GLK_PLACE_GPU, id};
	else if (place == GLAKE_PLACE_HOST && id >= 0)
		found = (struct glk_place){GLK_PLACE_HOST, id};
	else if (place != GLAKE_PLACE_HOST || id != -1)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"there is no place %d with number %d", place, id);
	*ret_place = found;
	return 0;
}

int glake_managed_advise(
	struct glake *ctx, void *ptr, size_t size, int advice, int place, int id)
{
	static const enum glk_managed_say says[] = {
		[GLAKE_MANAGED_PREFER] = GLK_MANAGED_PREFER,
		[GLAKE_MANAGED_UNPREFER] = GLK_MANAGED_UNPREFER,
		[GLAKE_MANAGED_ACCESSED] = GLK_MANAGED_ACCESSED,
		[GLAKE_MANAGED_UNACCESSED] = GLK_MANAGED_UNACCESSED,
	};
	struct glk_place at = {GLK_PLACE_ANY, 0};
	struct glk_cache *cache;
	int err, cancel;

	if (advice < GLAKE_MANAGED_PREFER || advice > GLAKE_MANAGED_UNACCESSED)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "there is no advice %d", advice);
	err = glk_context_owner(ctx, ptr, &cache);
	if (!err && advice != GLAKE_MANAGED_UNPREFER)
		err = place_of(cache, place, id, &at);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_managed_say(
		cache, (uint64_t)(uintptr_t)ptr, size, says[advice], at);
	glk_cancel_restore(cancel);
	return err;
}

int glake_managed_prefetch(struct glake *ctx, void *ptr, size_t size, int place, int id,
	struct CUstream_st *stream)
{
	struct glk_cache *cache;
	struct glk_place at;
	int err, cancel;

	err = glk_context_owner(ctx, ptr, &cache);
	if (!err)
		err = place_of(cache, place, id, &at);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_managed_prefetch(
		cache, (uint64_t)(uintptr_t)ptr, size, at, stream);
	glk_cancel_restore(cancel);
	return err;
}

int glake_managed_get(struct glake *ctx, const void *ptr, size_t size, int what,
	int *ret_place, int *ret_id)
{
	bool sent = what == GLAKE_MANAGED_PREFETCHED;
	struct glk_cache *cache;
	struct glk_place at;
	int err, cancel;

	if ((what != GLAKE_MANAGED_PREFERRED && !sent) || !ret_place || !ret_id)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"no place for the answer, or no question %d", what);
	err = glk_context_owner(ctx, ptr, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_managed_ask(cache, (uint64_t)(uintptr_t)ptr, size,
		sent ? GLK_MANAGED_PREFETCHED : GLK_MANAGED_PREFERRED, &at);
	glk_cancel_restore(cancel);
	if (err == -ENOENT)
		return glk_error(-ENOENT, GLAKE_ERROR_INVAL,
			"the memory at %p has no such place, or more than one", ptr);
	if (err)
		return err;
	*ret_place = at.kind == GLK_PLACE_GPU ? GLAKE_PLACE_GPU : GLAKE_PLACE_HOST;
	*ret_id = at.kind == GLK_PLACE_ANY ? -1 : at.id;
	return 0;
}
