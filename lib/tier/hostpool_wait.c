/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks of locked memory that were freed while streams used them: see hostpool.h. The tick of
 * a free on a GPU stands for all that its streams were given until then; an event that is recorded on
 * them later covers it. One is recorded at the free, where it can be: work that is queued afterwards is
 * not waited for then.
 */
#include "tier/hostpool.h"

#include "base/error.h"
#include "base/thread.h"

/* Streams of a GPU that a free records events on; the others have theirs when somebody asks. */
#define RECORDED 16
/* Blocks that are made free at the most by one look at those that wait, and those that are looked at between two
 * chances for others to have the lock. */
#define FREED 256
#define TURN  64

static struct glk_hostpool_use *use_at(const struct glk_hostpool *pool, uint32_t id)
{
	return glk_slab_at(&pool->uses, id);
}

static void cover(struct glk_streams *streams, const struct glk_use *use)
{
	/* of the streams that share a bit there may be thousands */
	uint64_t set = use->streams & ~GLK_USE_CROWD;
	unsigned count = 0, slot;

	for (uint64_t left = use->named; left; left = glk_use_rest(left)) {
		struct glk_stream *s = glk_stream_at(streams, glk_use_first(left));

		/* not of one that has the number of one that went */
		if (s->bit == GLK_STREAM_CROWD)
			glk_event_cover(streams, s, &slot);
	}
	for (; set && count < RECORDED; set &= set - 1, count++) {
		uint32_t id = streams->by_bit[__builtin_ctzll(set)];

		if (id)
			glk_event_cover(streams, glk_stream_at(streams, id), &slot);
	}
}

void glk_hostpool_leave(struct glk_hostpool *pool, uint32_t extent)
{
	uint32_t id = pool->side[extent].uses;

	if (!id) {
		glk_hostpool_merge(pool, extent);
		return;
	}
	for (; id; id = use_at(pool, id)->next) {
		struct glk_hostpool_use *u = use_at(pool, id);

		glk_lock(u->streams->gpu);
		u->use.tick = glk_clock_tick(u->streams, NULL);
		glk_clock_join(u->streams, &u->use);
		cover(u->streams, &u->use);
		glk_unlock(u->streams->gpu);
	}
	pool->waits += glk_extent_at(&pool->map, extent)->size;
	glk_hostpool_put(pool, &pool->waiting, extent);
}

/* Asks each GPU once, of those that lie next to each other in the list. */
struct reaping {
	enum glk_hostpool_reap how;
	struct glk_streams *asked, *busy;
	/* What was freed then has not finished on all of the crowd of `busy`. */
	uint64_t tick;
};

/* Each stream of the crowd that it may be of, unless the answer is known: what is of all of them, and was
 * freed later, has not finished either. The others were asked. */
static bool ask_each(struct reaping *r, const struct glk_hostpool_use *u)
{
	struct glk_use crowd = u->use;

	crowd.streams &= UINT64_C(1) << GLK_STREAM_CROWD;
	if (r->how != GLK_HOSTPOOL_EACH || !crowd.streams)
		return false;
	if (!crowd.named && r->busy == u->streams && u->use.tick >= r->tick)
		return false;
	if (glk_event_poll_use(u->streams, &crowd))
		return glk_clock_finished(u->streams, &u->use);
	if (crowd.named)
		return false;
	r->busy = u->streams;
	r->tick = u->use.tick;
	return false;
}

static bool finished(struct reaping *r, struct glk_hostpool_use *u)
{
	bool done;

	glk_lock(u->streams->gpu);
	done = glk_clock_finished(u->streams, &u->use);
	if (!done && r->asked != u->streams) {
		if (r->how == GLK_HOSTPOOL_ASK)
			glk_event_ask(u->streams);
		else
			glk_event_poll(u->streams);
		r->asked = u->streams;
		done = glk_clock_finished(u->streams, &u->use);
	}
	done = done || ask_each(r, u);
	glk_unlock(u->streams->gpu);
	return done;
}

/* Drops the uses that have finished. Whether none is left. */
static bool rests(struct glk_hostpool *pool, uint32_t extent, struct reaping *r)
{
	uint32_t *link = &pool->side[extent].uses, id;

	while ((id = *link)) {
		if (!finished(r, use_at(pool, id))) {
			link = &use_at(pool, id)->next;
			continue;
		}
		*link = use_at(pool, id)->next;
		glk_slab_put(&pool->uses, id);
	}
	return !pool->side[extent].uses;
}

bool glk_hostpool_reap(
	struct glk_hostpool *pool, uint32_t most, enum glk_hostpool_reap how)
{
	struct reaping r = {.how = how};
	uint32_t extent, freed = 0;

	if (most > pool->waiting.count)
		most = pool->waiting.count;
	for (uint32_t i = 1; i <= most && freed < FREED; i++) {
		if (i % TURN == 0)
			glk_lock_yield(&pool->lock);
		extent = pool->waiting.first;
		if (!extent)
			break;
		/* one that waits still is behind the others, so that each has its turn */
		glk_hostpool_take(pool, &pool->waiting, extent);
		if (!rests(pool, extent, &r)) {
			glk_hostpool_put(pool, &pool->waiting, extent);
			continue;
		}
		pool->waits -= glk_extent_at(&pool->map, extent)->size;
		glk_hostpool_merge(pool, extent);
		freed++;
	}
	return freed > 0;
}

/* GPUs that are waited for at a time. */
#define GPUS 64

/* What is looked at: fn(u, arg) of each use of the blocks that wait the longest. */
static void each_use(const struct glk_hostpool *pool,
	void (*fn)(const struct glk_hostpool_use *u, void *arg), void *arg)
{
	uint32_t most = GLK_HOSTPOOL_REAPED;

	for (uint32_t e = pool->waiting.first; e && most;
		e = pool->side[e].next, most--) {
		for (uint32_t id = pool->side[e].uses; id; id = use_at(pool, id)->next)
			fn(use_at(pool, id), arg);
	}
}

struct gpus {
	struct glk_streams *of[GPUS];
	unsigned count;
};

static void add_gpu(const struct glk_hostpool_use *u, void *arg)
{
	struct gpus *gpus = arg;
	unsigned i = 0;

	while (i < gpus->count && gpus->of[i] != u->streams)
		i++;
	if (i == gpus->count && i < GPUS)
		gpus->of[gpus->count++] = u->streams;
}

/* The work of one of them. */
struct awaited {
	struct glk_streams *streams;
	struct glk_work work;
};

static void add_work(const struct glk_hostpool_use *u, void *arg)
{
	struct awaited *awaited = arg;

	if (u->streams == awaited->streams)
		glk_work_add(&awaited->work, &u->use);
}

static void await_one(struct glk_hostpool *pool, struct glk_streams *streams,
	int (*sync)(struct glk_streams *streams, const struct glk_work *work))
{
	struct awaited awaited = {.streams = streams};

	each_use(pool, add_work, &awaited);
	glk_lock_pause(&pool->lock);
	glk_lock(streams->gpu);
	sync(streams, &awaited.work);
	glk_unlock(streams->gpu);
	glk_lock_resume(&pool->lock);
}

/* Where nothing is free since, what is on record stays. */
static bool await(struct glk_hostpool *pool,
	int (*sync)(struct glk_streams *streams, const struct glk_work *work))
{
	struct gpus gpus = {.count = 0};
	struct glake_error why = glk_thread_current->error;
	bool any;

	each_use(pool, add_gpu, &gpus);
	if (!gpus.count)
		return false;
	for (unsigned i = 0; i < gpus.count; i++)
		await_one(pool, gpus.of[i], sync);
	any = glk_hostpool_reap(pool, GLK_HOSTPOOL_REAPED, GLK_HOSTPOOL_RECORD);
	if (!any)
		glk_error_back(&why);
	return any;
}

bool glk_hostpool_await(struct glk_hostpool *pool)
{
	return await(pool, glk_work_sync);
}

static int sync_ended(struct glk_streams *streams, const struct glk_work *work)
{
	return glk_clock_sync_ended(
		streams, work->use.streams | (work->names ? GLK_USE_CROWD : 0));
}

bool glk_hostpool_await_ended(struct glk_hostpool *pool)
{
	return await(pool, sync_ended);
}
