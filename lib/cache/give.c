/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a process gives for another one, which asks by a broker: first what lies idle; where that is too little, what
 * the program frees when it is asked; and then what it has called cold.
 */
#include "base/error.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/cache.h"

static bool has_given(struct glk_cache *cache, uint64_t keep, uint64_t *ret_lack)
{
	uint64_t held;

	glk_cache_trim_gpu(cache, keep, &held);
	held = glk_load_relaxed(&cache->node->held);
	*ret_lack = held > keep ? held - keep : 0;
	return !*ret_lack;
}

/* What was freed, and with `bytes` what of cold blocks is sent away, until the GPU has done with it. */
static void settle(struct glk_cache *cache, uint64_t bytes)
{
	struct glake_error why = glk_thread_current->error;

	glk_lock(&cache->lock);
	if (!glk_plan_ask(cache)) {
		if (!bytes || glk_victim_yield(cache, bytes))
			glk_clock_sync(&cache->streams, ~UINT64_C(0));
		glk_plan_leave(cache);
	}
	glk_unlock(&cache->lock);
	glk_error_back(&why);
}

void glk_cache_give(struct glk_cache *cache, uint64_t bytes, int64_t until)
{
	uint64_t held = glk_load_relaxed(&cache->node->held), lack;
	uint64_t keep = held > bytes ? held - bytes : 0;
	const struct glk_thread *thread = glk_thread_self();

	if (has_given(cache, keep, &lack) || glk_clock_ns() >= until || !thread ||
		thread->asked || thread->told)
		return;
	glk_shortage_ask(cache, lack, NULL, until);
	settle(cache, 0);
	if (has_given(cache, keep, &lack) || glk_clock_ns() >= until)
		return;
	settle(cache, lack);
	has_given(cache, keep, &lack);
}
