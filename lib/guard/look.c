/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Looks at all that is guarded, each so often, by a thread of its own, for programs that seldom free what they spoil: see
 * guard.h. What it finds is in the log, in guard.report and for glake_finding_get() at once; the next glake_check() tells
 * of it as of all that was found.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "guard/guard.h"

#include <errno.h>

struct glk_guard_looks {
	pthread_t thread;
	pthread_cond_t wake;
	struct glk_lock lock;
	struct glk_cache *caches;
	int count;
	int64_t ns;
	bool ends;
};

static void look(struct glk_guard_looks *looks)
{
	struct glake_checked did = {.sz = sizeof(did)};

	for (int i = 0; i < looks->count; i++) {
		if (glk_guard_ops(&looks->caches[i]))
			glk_guard_check(&looks->caches[i], &did);
	}
}

static void *run(void *arg)
{
	struct glk_guard_looks *looks = arg;

	glk_lock(&looks->lock);
	while (!looks->ends) {
		if (glk_lock_wait_for(&looks->lock, &looks->wake, looks->ns))
			continue;
		glk_unlock(&looks->lock);
		look(looks);
		glk_lock(&looks->lock);
	}
	glk_unlock(&looks->lock);
	return NULL;
}

struct glk_guard_looks *glk_guard_looks_new(
	struct glk_cache *caches, int count, int64_t ns)
{
	struct glk_guard_looks *looks = ns ? glk_region_new(sizeof(*looks)) : NULL;
	int err = ENOMEM;

	if (!ns)
		return NULL;
	if (looks) {
		*looks = (struct glk_guard_looks){
			.caches = caches, .count = count, .ns = ns};
		glk_lock_init(&looks->lock, GLK_RANK_NODE);
		glk_lock_cond_init(&looks->wake);
		err = glk_thread_start(&looks->thread, "glake-guard", run, looks);
	}
	if (!err)
		return looks;
	glk_warn("no thread to look at what is guarded: error %d", err);
	if (looks) {
		pthread_cond_destroy(&looks->wake);
		glk_lock_fini(&looks->lock);
		glk_region_free(looks, sizeof(*looks));
	}
	return NULL;
}

void glk_guard_looks_end(struct glk_guard_looks *looks)
{
	if (!looks)
		return;
	glk_lock(&looks->lock);
	looks->ends = true;
	pthread_cond_signal(&looks->wake);
	glk_unlock(&looks->lock);
	pthread_join(looks->thread, NULL);
	pthread_cond_destroy(&looks->wake);
	glk_lock_fini(&looks->lock);
	glk_region_free(looks, sizeof(*looks));
}
