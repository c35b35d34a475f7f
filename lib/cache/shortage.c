/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The function of the program that makes room: a request that would move cold blocks, give memory of the host or
 * be refused asks it first, once, with no lock held and no plan under way, and then begins anew.
 */
#include "base/cancel.h"
#include "base/thread.h"
#include "cache/arena/request.h"

bool glk_shortage_may_ask(
	const struct glk_cache *cache, const struct glk_request *request)
{
	const struct glk_thread *thread = glk_thread_current;

	/* what is more than there may be is refused in any case */
	return cache->shortage.fn && request->rounded <= cache->memory &&
		request->rounded <= glk_load_relaxed(&cache->node->budget) &&
		!request->capture && glk_load_relaxed(&thread->serial) && !thread->told &&
		!thread->asked && thread->error.error_class == GLAKE_ERROR_NOMEM_DEVICE;
}

void glk_shortage_ask(struct glk_cache *cache, uint64_t want, struct CUstream_st *stream)
{
	struct glk_thread *thread = glk_thread_self();
	struct glake_error why = thread->error;
	int cancel = glk_cancel_off();
	glake_shortage_fn fn;
	void *user;

	glk_lock(&cache->lock);
	fn = cache->shortage.fn;
	user = cache->shortage.user;
	cache->shortage.callers += fn != NULL;
	glk_unlock(&cache->lock);
	thread->asked++;
	if (fn)
		fn(user, cache->device, want, stream, 0);
	thread->asked--;
	thread->error = why;
	glk_lock(&cache->lock);
	cache->shortage.callers -= fn != NULL;
	if (!cache->shortage.callers)
		pthread_cond_broadcast(&cache->moved);
	glk_unlock(&cache->lock);
	glk_cancel_restore(cancel);
}

void glk_cache_shortage(struct glk_cache *cache, glake_shortage_fn fn, void *user)
{
	glk_lock(&cache->lock);
	cache->shortage.fn = fn;
	cache->shortage.user = user;
	/* it may go with the caller */
	while (!fn && cache->shortage.callers)
		glk_lock_wait(&cache->lock, &cache->moved);
	glk_unlock(&cache->lock);
}
