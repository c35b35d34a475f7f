/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The thread that makes pages before they are needed: see ahead.h. */
#include "cache/ahead.h"

#include "base/cancel.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* Of 32 parts, those of each kind. Small pages serve many requests each, and the recorded jobs
 * hold 1 to 6 % of their memory in them. */
static const unsigned part_of_32[GLK_KIND_COUNT] = {1, 1, 30, 0};

/* Bytes of a class that nobody uses. */
static uint64_t idle_bytes(const struct glk_cache *cache, enum glk_class class)
{
	uint64_t pages = glk_load_relaxed(&cache->node->free_count[class]);

	for (int list = 0; list < GLK_IDLE_LISTS; list++)
		pages += cache->map.idle[class][list].valid;
	return pages * cache->node->page_size[class];
}

static bool may_grow(struct glk_ahead *a, const struct glk_span *span)
{
	const struct glk_cache *cache = a->cache;
	uint64_t held = glk_load_relaxed(&cache->node->held);
	uint64_t limit = glk_load_relaxed(&cache->node->budget);
	uint64_t page = UINT64_C(1) << span->shift, wanted = 0;

	if (limit > cache->memory)
		limit = cache->memory;
	if (held != a->refused)
		a->refused = 0;
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		if (cache->map.span[kind].class == span->class)
			wanted += a->part[kind] * page;
	}
	return !a->refused && idle_bytes(cache, span->class) + page <= wanted &&
		a->size + page <= limit && held <= limit - a->size - page;
}

/* The next slot of a span to fill; false if there is none now. */
static bool choose_slot(struct glk_ahead *a, struct glk_span *span, uint32_t *ret_slot)
{
	uint32_t slot = glk_span_fresh(span);

	if (slot < a->next[span->kind])
		slot = a->next[span->kind];
	while (slot < a->goal[span->kind] && glk_bit_get(span->mapped, slot))
		slot++;
	a->next[span->kind] = slot;
	*ret_slot = slot;
	return slot < a->goal[span->kind] && may_grow(a, span);
}

static bool choose(struct glk_ahead *a)
{
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		struct glk_span *span = &a->cache->map.span[kind];

		if (!a->goal[kind])
			continue;
		if (choose_slot(a, span, &a->slot)) {
			a->kind = (enum glk_kind)kind;
			return true;
		}
		a->goal[kind] = 0; /* until the mark rises again */
	}
	return false;
}

static void drop_goals(struct glk_ahead *a)
{
	memset(a->goal, 0, sizeof(a->goal));
}

/* Undoes as much as the driver did. */
static void undo(struct glk_ahead *a, struct glk_span *span)
{
	struct glk_cache *cache = a->cache;

	if (a->mapped) {
		glk_slot_book(span, a->slot, a->page);
		glk_limbo_undo(span, a->slot);
	}
	if (a->page &&
		glk_page_state(glk_map_page(&cache->map, a->page)) == GLK_PAGE_OWNED)
		glk_node_release(cache->node, a->page);
	drop_goals(a);
	if (a->err == -ENOMEM)
		a->refused = glk_load_relaxed(&cache->node->held);
	else
		a->broken = true;
}

bool glk_ahead_settle(struct glk_cache *cache)
{
	struct glk_ahead *a = cache->ahead;
	struct glk_span *span;

	if (!a || !a->under_way)
		return false;
	glk_lock(&a->busy); /* the thread holds it until the driver has answered */
	glk_unlock(&a->busy);
	a->under_way = false;
	span = &cache->map.span[a->kind];
	if (span->ahead <= a->slot)
		span->ahead = a->slot + 1;
	if (a->err) {
		undo(a, span);
		return true;
	}
	glk_slot_book(span, a->slot, a->page);
	glk_idle_put_slot(span, a->slot);
	a->made++;
	return true;
}

bool glk_ahead_rest(struct glk_cache *cache)
{
	if (!cache->ahead)
		return false;
	drop_goals(cache->ahead);
	return glk_ahead_settle(cache);
}

bool glk_ahead_note(struct glk_cache *cache, enum glk_kind kind)
{
	struct glk_span *span = &cache->map.span[kind];
	struct glk_ahead *a = cache->ahead;
	uint32_t fresh = glk_span_fresh(span), end = fresh + a->part[kind];
	bool asleep = a->asleep;

	if (span->high == a->seen[kind] || !a->part[kind] || a->broken)
		return false;
	a->seen[kind] = span->high;
	if (end > span->slots)
		end = span->slots;
	if (fresh >= end ||
		glk_bits_count(span->usable, fresh, end - 1) >
			a->part[kind] - (a->part[kind] + 3) / 4)
		return false;
	a->goal[kind] = end;
	a->next[kind] = fresh;
	a->asleep = false;
	return asleep;
}

void glk_ahead_wake(struct glk_cache *cache)
{
	pthread_cond_signal(&cache->ahead->wake);
}

/* The thread, with the lock of the GPU: one page. */
static void grow(struct glk_ahead *a)
{
	struct glk_cache *cache = a->cache;
	struct glk_span *span = &cache->map.span[a->kind];

	a->under_way = true;
	glk_lock(&a->busy);
	glk_unlock(cache->lock);
	a->page = 0;
	a->mapped = false;
	a->err = glk_node_grow(cache->node, span->class, 0, &a->page);
	if (!a->err)
		a->err = glk_slot_prepare(span, a->slot, a->page, &a->mapped);
	glk_unlock(&a->busy);
	glk_lock(cache->lock);
	glk_ahead_settle(cache);
}

/* Others have the lock meanwhile, and keep in it what is theirs. */
static void sleep_on(struct glk_ahead *a)
{
	struct glk_lock *lock = a->cache->lock;
	int was = lock->cancel;

	a->asleep = true;
	while (a->asleep && !a->stop)
		glk_lock_wait(lock, &a->wake);
	lock->cancel = was;
}

static void *run(void *arg)
{
	struct glk_ahead *a = arg;
	struct glk_cache *cache = a->cache;
	bool broken;

	pthread_setname_np(pthread_self(), "glake-ahead");
	glk_cancel_off(); /* for good: locks are not given back in the reverse order here */
	glk_lock(cache->lock);
	while (!a->stop && !a->broken) {
		if (choose(a)) {
			grow(a);
			continue;
		}
		sleep_on(a);
	}
	a->asleep = false;
	broken = a->broken;
	glk_unlock(cache->lock);
	if (broken)
		glk_warn("GPU %d: no pages are made ahead any more: %s", cache->device,
			glk_thread_current->error.text);
	return NULL;
}

/* Signals go to the program's own threads. */
static int make_thread(struct glk_ahead *a)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	err = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (err)
		return err;
	err = pthread_create(&a->thread, NULL, run, a);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

/* Slots of each kind, for as many bytes as the addresses have room for. */
static void set_parts(struct glk_ahead *a)
{
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		const struct glk_span *span = &a->cache->map.span[kind];
		uint64_t slots = (a->size / 32 * part_of_32[kind]) >> span->shift;

		a->part[kind] = slots < span->slots ? (uint32_t)slots : span->slots;
		a->goal[kind] = a->part[kind];
	}
}

void glk_ahead_start(struct glk_cache *cache)
{
	struct glk_ahead *a;
	int err;

	if (!cache->conf->pool_ahead)
		return;
	a = glk_region_new(sizeof(*a));
	if (!a) {
		glk_warn("GPU %d: no memory to make pages ahead", cache->device);
		return;
	}
	a->cache = cache;
	a->size = cache->conf->pool_ahead;
	set_parts(a);
	glk_lock_init(&a->busy, GLK_RANK_NODE);
	pthread_cond_init(&a->wake, NULL);
	cache->ahead = a;
	err = make_thread(a);
	if (!err)
		return;
	cache->ahead = NULL;
	pthread_cond_destroy(&a->wake);
	glk_lock_fini(&a->busy);
	glk_region_free(a, sizeof(*a));
	glk_warn("GPU %d: no thread to make pages ahead: error %d", cache->device, err);
}

void glk_ahead_stop(struct glk_cache *cache)
{
	struct glk_ahead *a = cache->ahead;

	if (!a)
		return;
	glk_lock(cache->lock);
	a->stop = true;
	pthread_cond_signal(&a->wake);
	glk_unlock(cache->lock);
	pthread_join(a->thread, NULL);
	cache->ahead = NULL;
	pthread_cond_destroy(&a->wake);
	glk_lock_fini(&a->busy);
	glk_region_free(a, sizeof(*a));
}
