/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks of locked memory that were freed while streams used them: see hostpool.h. A stream has a queue of what
 * was freed behind its work, oldest first, so whoever looks whether some of it is free now looks at the heads
 * alone. A block that several streams used stands in the queue of each, and is free when it has left the last.
 *
 * The tick of a free stands for all that the stream was given until then; an event that is recorded on it later
 * covers it. One is recorded at the free, where it can be: work that is queued afterwards is not waited for then.
 */
#include "tier/hostpool.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>

/* Streams that a free records events on; the others have theirs when somebody asks. */
#define RECORDED 16
/* Steps between two chances for others to have the lock: a use that has passed is one, and one that the driver is
 * asked for ASKED. */
#define TURN  16
#define ASKED 4

/* Queues of a GPU: of each stream that has a bit, of those that share one together, and of each of these. */
#define NAMED  GLK_STREAM_BITS
#define QUEUES (NAMED + GLK_STREAMS_MAX + 1)

/* Numbers of uses, oldest first. */
struct queue {
	uint32_t first, last;
	uint32_t next; /* in the row */
	bool listed; /* it is in the row, where those without a use leave when their turn comes */
};

struct glk_hostpool_gpu {
	struct glk_streams *streams;
	uint64_t set; /* of streams, for the wait under way */
	struct queue queue[QUEUES];
};

static struct glk_hostpool_use *use_at(const struct glk_hostpool *pool, uint32_t id)
{
	return glk_slab_at(&pool->uses, id);
}

static struct glk_hostpool_gpu *gpu_of(const struct glk_hostpool *pool, uint32_t queue)
{
	return &pool->gpu[queue / QUEUES];
}

static struct queue *queue_at(const struct glk_hostpool *pool, uint32_t queue)
{
	return &gpu_of(pool, queue)->queue[queue % QUEUES];
}

static size_t gpus_bytes(const struct glk_hostpool *pool)
{
	return (size_t)pool->gpus * sizeof(*pool->gpu);
}

int glk_hostpool_wait_init(struct glk_hostpool *pool)
{
	pool->gpu = glk_region_new(gpus_bytes(pool));
	if (!pool->gpu)
		return -ENOMEM;
	return glk_slab_init(
		&pool->uses, sizeof(struct glk_hostpool_use), GLK_HOSTPOOL_USES);
}

void glk_hostpool_wait_fini(struct glk_hostpool *pool)
{
	glk_slab_fini(&pool->uses);
	glk_region_free(pool->gpu, gpus_bytes(pool));
	pool->gpu = NULL;
}

/* That of the stream of a use. */
static uint32_t queue_of(const struct glk_streams *streams, const struct glk_use *use)
{
	uint32_t at = use->named ? NAMED + glk_use_first(use->named)
				 : (uint32_t)__builtin_ctzll(use->streams);

	return (uint32_t)streams->device * QUEUES + at;
}

/* What waits in a queue since a tick. */
static struct glk_use use_in(uint32_t queue, uint64_t tick)
{
	uint32_t at = queue % QUEUES;

	if (at < NAMED)
		return glk_use_of(UINT64_C(1) << at, tick);
	return (struct glk_use){
		.streams = GLK_USE_CROWD, .tick = tick, .named = at - NAMED};
}

int glk_hostpool_add_use(struct glk_hostpool *pool, uint32_t extent,
	struct glk_streams *streams, const struct glk_use *use)
{
	uint32_t *link = &pool->side[extent].uses, *behind = link, queue, crowd, id;
	unsigned named = 0;

	if (!use->streams)
		return 0;
	queue = queue_of(streams, use);
	crowd = queue - queue % QUEUES + GLK_STREAM_CROWD;
	/* those of a GPU lie next to each other */
	for (; (id = *link); link = &use_at(pool, id)->next) {
		struct glk_hostpool_use *u = use_at(pool, id);

		if (u->queue == queue || (use->named && u->queue == crowd))
			return 0;
		if (u->queue / QUEUES != queue / QUEUES)
			continue;
		behind = &u->next;
		named += u->queue > crowd;
	}
	if (use->named && named == GLK_USE_NAMES)
		queue = crowd;
	id = glk_slab_get(&pool->uses);
	if (!id)
		return -ENOMEM;
	*use_at(pool, id) = (struct glk_hostpool_use){
		.next = *behind, .extent = extent, .queue = queue};
	*behind = id;
	gpu_of(pool, queue)->streams = streams;
	return 0;
}

uint32_t glk_hostpool_gpus(const struct glk_hostpool *pool, uint32_t extent)
{
	uint32_t count = 0, last = UINT32_MAX;

	for (uint32_t id = pool->side[extent].uses; id; id = use_at(pool, id)->next) {
		uint32_t gpu = use_at(pool, id)->queue / QUEUES;

		count += gpu != last;
		last = gpu;
	}
	return count;
}

static void put_queue(struct glk_hostpool *pool, uint32_t queue)
{
	queue_at(pool, queue)->listed = true;
	if (pool->row.count++)
		queue_at(pool, pool->row.last)->next = queue;
	else
		pool->row.first = queue;
	pool->row.last = queue;
}

static uint32_t take_queue(struct glk_hostpool *pool)
{
	uint32_t queue = pool->row.first;

	queue_at(pool, queue)->listed = false;
	pool->row.first = queue_at(pool, queue)->next;
	pool->row.count--;
	return queue;
}

/* The next one whose turn it is; false: none has a use. */
static bool turn(struct glk_hostpool *pool, uint32_t *ret_queue)
{
	while (pool->row.count) {
		*ret_queue = take_queue(pool);
		if (!queue_at(pool, *ret_queue)->first)
			continue;
		put_queue(pool, *ret_queue);
		return true;
	}
	return false;
}

static void put_use(struct glk_hostpool *pool, uint32_t id)
{
	uint32_t queue = use_at(pool, id)->queue;
	struct queue *q = queue_at(pool, queue);

	use_at(pool, id)->next = 0;
	if (q->first)
		use_at(pool, q->last)->next = id;
	else
		q->first = id;
	q->last = id;
	if (!q->listed)
		put_queue(pool, queue);
}

/* Where streams share a bit and are too many to be named, none of them: there may be thousands. */
static void cover(struct glk_streams *streams, const struct glk_use *use)
{
	uint32_t id = glk_use_first(use->named);
	unsigned slot;

	if (!(use->streams & GLK_USE_CROWD))
		id = streams->by_bit[__builtin_ctzll(use->streams)];
	/* not one that has the number of one that went */
	if (id && (!use->named || glk_stream_at(streams, id)->bit == GLK_STREAM_CROWD))
		glk_event_cover(streams, glk_stream_at(streams, id), &slot);
}

void glk_hostpool_leave(struct glk_hostpool *pool, uint32_t extent)
{
	uint32_t id = pool->side[extent].uses, next, count = 0;

	if (!id) {
		glk_hostpool_merge(pool, extent);
		return;
	}
	for (; id; id = next, count++) {
		struct glk_hostpool_use *u = use_at(pool, id);
		struct glk_streams *streams = gpu_of(pool, u->queue)->streams;
		struct glk_use use;

		next = u->next;
		glk_lock(streams->gpu);
		u->tick = glk_clock_tick(streams, NULL);
		use = use_in(u->queue, u->tick);
		glk_clock_join(streams, &use);
		if (count < RECORDED)
			cover(streams, &use);
		glk_unlock(streams->gpu);
		put_use(pool, id);
	}
	pool->side[extent].left = count;
	pool->waits += glk_extent_at(&pool->map, extent)->size;
	pool->waiting++;
}

/* Whether the first of a queue has, after its stream was asked where that is not known. */
static bool finished(const struct glk_hostpool *pool, uint32_t queue,
	enum glk_hostpool_reap how, uint32_t *steps)
{
	struct glk_streams *streams = gpu_of(pool, queue)->streams;
	struct glk_use use =
		use_in(queue, use_at(pool, queue_at(pool, queue)->first)->tick);
	bool done;

	glk_lock(streams->gpu);
	done = glk_clock_finished(streams, &use);
	*steps += done ? 1 : ASKED;
	if (!done)
		done = glk_event_poll_use(streams, &use, how == GLK_HOSTPOOL_RECORD);
	glk_unlock(streams->gpu);
	return done;
}

/* The first of a queue leaves it. */
static void pass(struct glk_hostpool *pool, struct queue *q)
{
	uint32_t id = q->first, extent = use_at(pool, id)->extent;

	q->first = use_at(pool, id)->next;
	pool->passed++;
	glk_slab_put(&pool->uses, id);
	if (--pool->side[extent].left)
		return;
	pool->waits -= glk_extent_at(&pool->map, extent)->size;
	pool->waiting--;
	glk_hostpool_merge(pool, extent);
}

/* Those of a queue that have finished leave it, up to so many. How many did. */
static uint32_t drain(struct glk_hostpool *pool, uint32_t queue, uint32_t most,
	enum glk_hostpool_reap how, uint32_t *steps)
{
	struct queue *q = queue_at(pool, queue);
	uint32_t passed = 0;

	while (passed < most && q->first && finished(pool, queue, how, steps)) {
		pass(pool, q);
		passed++;
		if (*steps < TURN)
			continue;
		*steps = 0;
		glk_lock_yield(&pool->lock);
	}
	return passed;
}

bool glk_hostpool_reap(
	struct glk_hostpool *pool, uint32_t most, enum glk_hostpool_reap how)
{
	uint32_t passed = 0, steps = 0, turns = pool->row.count, queue;

	if (how == GLK_HOSTPOOL_ASK && turns > most)
		turns = most;
	for (; turns && passed < most && turn(pool, &queue); turns--) {
		passed += drain(pool, queue, most - passed, how, &steps);
		if (steps < TURN)
			continue;
		steps = 0;
		glk_lock_yield(&pool->lock);
	}
	return passed > 0;
}

bool glk_hostpool_await(struct glk_hostpool *pool)
{
	struct glake_error why = glk_thread_current->error;
	uint64_t before = pool->passed;
	uint32_t steps = 0, queue;

	/* others may see it first */
	for (uint32_t turns = pool->row.count;
		turns && pool->passed == before && turn(pool, &queue); turns--) {
		struct glk_streams *streams = gpu_of(pool, queue)->streams;
		struct glk_use use =
			use_in(queue, use_at(pool, queue_at(pool, queue)->first)->tick);

		glk_lock_pause(&pool->lock);
		glk_lock(streams->gpu);
		glk_clock_sync_use(streams, &use);
		glk_unlock(streams->gpu);
		glk_lock_resume(&pool->lock);
		drain(pool, queue, GLK_HOSTPOOL_PASSED, GLK_HOSTPOOL_RECORD, &steps);
	}
	/* what is on record is why a piece was refused */
	glk_error_back(&why);
	return pool->passed != before;
}

bool glk_hostpool_await_ended(struct glk_hostpool *pool)
{
	struct glake_error why = glk_thread_current->error;
	uint32_t queue = pool->row.first;

	for (int i = 0; i < pool->gpus; i++)
		pool->gpu[i].set = 0;
	for (uint32_t left = pool->row.count; left; left--) {
		struct glk_use use = use_in(queue, 0);

		gpu_of(pool, queue)->set |= use.streams;
		queue = queue_at(pool, queue)->next;
	}
	for (int i = 0; i < pool->gpus; i++) {
		struct glk_streams *streams = pool->gpu[i].streams;
		uint64_t set = pool->gpu[i].set;

		if (!set)
			continue;
		glk_lock_pause(&pool->lock);
		glk_lock(streams->gpu);
		glk_clock_sync_ended(streams, set);
		glk_unlock(streams->gpu);
		glk_lock_resume(&pool->lock);
	}
	glk_error_back(&why);
	return glk_hostpool_reap(pool, UINT32_MAX, GLK_HOSTPOOL_RECORD);
}
