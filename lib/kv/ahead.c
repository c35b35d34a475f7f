/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The thread of a KV cache that has pages ready before a step needs them: it goes from the sequence that is nearest to
 * its end of them to the next, and sleeps when all are ready for as many tokens more as was asked for, or when there
 * was no memory, until a sequence grows.
 *
 * It gets pages in the order of a stream of its own and waits for that, so that they may be used on any stream then;
 * meanwhile the sequence is `pending`: who needs those very pages waits for it, and nobody else.
 */
#include "kv/kv.h"

#include "base/log.h"
#include "base/thread.h"

#define NONE UINT32_MAX

/* Tokens that a sequence should be ready for. */
static uint32_t target_of(const struct glake_kv *kv, const struct glk_kv_sequence *q)
{
	uint64_t tokens = (uint64_t)q->tokens + kv->ahead.tokens;

	return tokens < q->most ? (uint32_t)tokens : q->most;
}

/* The sequence that has the fewest tokens left before it needs pages; none needs any. */
static uint32_t most_urgent(const struct glake_kv *kv)
{
	uint32_t found = NONE, least = UINT32_MAX;

	for (uint32_t i = 0; i < kv->shape.slots; i++) {
		const struct glk_kv_sequence *q = &kv->sequence[i];

		if (!q->live || q->away || !q->tokens || q->ready >= target_of(kv, q) ||
			q->ready - q->tokens >= least)
			continue;
		least = q->ready - q->tokens;
		found = i;
	}
	return found;
}

/* What a sequence lacks for so many tokens. Whether it was had. */
static bool get(struct glake_kv *kv, uint32_t slot)
{
	struct glk_kv_sequence *q = &kv->sequence[slot];
	uint64_t before = kv->pages;
	uint32_t tokens;
	size_t count;
	int err = 0;

	glk_kv_change_begin(kv, slot);
	tokens = target_of(kv, q);
	count = q->live && !q->away ? glk_kv_add_missing(kv, slot, tokens, 0) : 0;
	if (count)
		err = glk_kv_commit(kv, count, kv->ahead.stream, 0);
	if (!err && count) {
		kv->pages_ahead += kv->pages - before;
		glk_kv_note_missing(kv, slot, tokens, false);
		q->pending = true;
		kv->pending++;
	}
	glk_kv_change_end(kv);
	if (!q->pending)
		return !err && count;
	glk_unlock(&kv->lock);
	err = kv->cache->drv->ops->stream_sync(
		kv->cache->drv, kv->cache->device, kv->ahead.stream);
	glk_lock(&kv->lock);
	q->pending = false;
	kv->pending--;
	/* a GPU that is lost: who uses them is told */
	glk_kv_settle(kv, slot);
	pthread_cond_broadcast(&kv->settled);
	return !err;
}

static void *run(void *arg)
{
	struct glake_kv *kv = arg;
	uint32_t slot;

	glk_lock(&kv->lock);
	while (!kv->ahead.stop) {
		slot = most_urgent(kv);
		if (slot != NONE && get(kv, slot))
			continue;
		kv->ahead.asleep = true;
		while (kv->ahead.asleep && !kv->ahead.stop)
			glk_lock_wait(&kv->lock, &kv->ahead.wake);
	}
	kv->ahead.asleep = false;
	glk_unlock(&kv->lock);
	return NULL;
}

static void end(struct glake_kv *kv)
{
	struct glk_drv *drv = kv->cache->drv;

	glk_lock(&kv->lock);
	kv->ahead.stop = true;
	pthread_cond_signal(&kv->ahead.wake);
	glk_unlock(&kv->lock);
	pthread_join(kv->ahead.thread, NULL);
	glk_cache_stream_end(kv->cache, kv->ahead.stream);
	drv->ops->stream_free(drv, kv->cache->device, kv->ahead.stream);
	kv->ahead.tokens = 0;
}

static void still(struct glk_helper *helper)
{
	end((struct glake_kv *)(void *)((char *)helper -
		offsetof(struct glake_kv, ahead.helper)));
}

void glk_kv_ahead_start(struct glake_kv *kv)
{
	struct glk_drv *drv = kv->cache->drv;
	int err = drv->ops->stream_new(drv, kv->cache->device, &kv->ahead.stream);

	if (!err) {
		err = glk_thread_start(&kv->ahead.thread, "glake-kv", run, kv);
		if (err)
			drv->ops->stream_free(drv, kv->cache->device, kv->ahead.stream);
	}
	if (err) {
		glk_warn("GPU %d: no thread to have pages of a KV cache ready: error %d",
			kv->cache->device, err);
		kv->ahead.tokens = 0;
		return;
	}
	kv->ahead.helper.still = still;
	glk_helper_add(kv->cache, &kv->ahead.helper);
}

void glk_kv_ahead_stop(struct glake_kv *kv)
{
	if (kv->ahead.tokens && glk_helper_take(kv->cache, &kv->ahead.helper))
		end(kv);
}
