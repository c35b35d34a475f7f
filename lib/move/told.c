/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who is told of moves: see told.h. */
#include "move/told.h"

#include "base/cancel.h"
#include "base/error.h"
#include "base/thread.h"
#include "move/plan.h"

#include <errno.h>

/* Without a record of the thread nothing is known about it, so nobody is called. */
static int call(
	struct glk_cache *cache, struct glk_hearer *h, const struct glake_move *move)
{
	struct glk_thread *thread = glk_thread_self();
	glake_move_fn fn = h->fn;
	struct glake_error why;
	void *arg = h->arg;
	int cancel, err;

	if (!thread)
		return -EBUSY;
	h->callers++;
	glk_plan_park(cache, false);
	glk_lock_pause(&cache->lock);
	cancel = glk_cancel_off();
	why = thread->error;
	thread->told++;
	err = fn(move, arg);
	thread->told--;
	thread->error = why;
	glk_cancel_restore(cancel);
	glk_lock_resume(&cache->lock);
	if (!--h->callers)
		pthread_cond_broadcast(&cache->moved);
	glk_plan_unpark(cache, false);
	return err;
}

static bool was_there(const struct glk_hearer *h, const struct glk_telling *t)
{
	return h->fn && h->number <= t->last;
}

static struct glake_move move_of(const struct glk_arena *arena,
	const struct glk_extent *e, enum glake_move_way way)
{
	struct glake_block block = {0};

	if (arena->ops->kind == GLAKE_ARENA_TAG)
		arena->ops->describe(arena, &block);
	return (struct glake_move){.sz = sizeof(struct glake_move),
		.device = arena->gpu->device,
		.way = (int)way,
		.ptr = (void *)(uintptr_t)glk_load_relaxed(&e->addr),
		.size = glk_extent_asked(e),
		.tag = block.tag};
}

/* The first so many entries. */
static void tell_after(struct glk_cache *cache, struct glake_move *move,
	const struct glk_telling *t, uint32_t count, int err)
{
	move->is_over = 1;
	move->err = err;
	for (uint32_t i = 0; i < count; i++) {
		if (was_there(&cache->hearers[i], t))
			call(cache, &cache->hearers[i], move);
	}
}

void glk_tell_after(struct glk_arena *arena, const struct glk_extent *e,
	enum glake_move_way way, const struct glk_telling *t, int err)
{
	struct glake_move move;

	if (!t->last)
		return;
	move = move_of(arena, e, way);
	tell_after(arena->gpu, &move, t, GLAKE_MOVE_WATCHES_MAX, err);
}

int glk_tell_before(struct glk_arena *arena, const struct glk_extent *e,
	enum glake_move_way way, struct glk_telling *t)
{
	struct glk_cache *cache = arena->gpu;
	struct glake_move move;

	if (!cache->hearing)
		return 0;
	if (!t->last)
		t->last = cache->heard;
	move = move_of(arena, e, way);
	for (uint32_t i = 0; i < GLAKE_MOVE_WATCHES_MAX; i++) {
		struct glk_hearer *h = &cache->hearers[i];

		/* what comes back to a program that asks for it is not kept away */
		if (!was_there(h, t) || !call(cache, h, &move) || way == GLAKE_MOVE_BACK)
			continue;
		tell_after(cache, &move, t, i, -EBUSY);
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"a function of the program keeps the block at %p where it is",
			move.ptr);
	}
	return 0;
}

bool glk_told_to_stay(int err)
{
	return err == -EBUSY &&
		glk_thread_current->error.error_class != GLAKE_ERROR_CAPTURE;
}

int glk_cache_hear(struct glk_cache *cache, uint32_t entry, glake_move_fn fn, void *arg)
{
	struct glk_hearer *h = &cache->hearers[entry];

	glk_lock(&cache->lock);
	cache->hearing += fn != NULL;
	cache->hearing -= h->fn != NULL;
	h->fn = fn;
	h->arg = arg;
	h->number = ++cache->heard;
	/* the function may go with the caller */
	while (!fn && h->callers)
		glk_lock_wait(&cache->lock, &cache->moved);
	glk_unlock(&cache->lock);
	return 0;
}
