/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pools of graphs as a program sees them, with streams of its choice; captures are CUDA's. */
#include "context.h"

#include <pthread.h>

static const struct glake_pool_id first = {.low = 1}, second = {.high = 5};

static bool is_one(struct CUstream_st *stream, void *arg)
{
	return stream == arg;
}

static struct glake_pool told(struct glake *ctx, struct glake_pool_id id)
{
	struct glake_pool pool = {.sz = sizeof(pool)};

	if (glake_pool_get(ctx, 0, id, &pool))
		tap_bail("no pool");
	return pool;
}

static struct glake_pool_id pool_of(struct glake *ctx, const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glake_query(ctx, ptr, &block))
		tap_bail("no block");
	return block.pool;
}

static bool is_of(struct glake *ctx, const void *ptr, struct glake_pool_id id)
{
	struct glake_pool_id of = pool_of(ctx, ptr);

	return of.high == id.high && of.low == id.low;
}

static void lives(void)
{
	struct glake *ctx = flow_open((const char *const[]){"pool.budget=128MiB", NULL});
	struct CUstream_st *a = NULL, *b = NULL;
	char *p, *q, *r;

	glake_stream_new(ctx, 0, &a);
	glake_stream_new(ctx, 0, &b);
	is_int(glake_pool_begin_for(ctx, 0, first, is_one, a), 0, "a pool for stream A");
	ok(told(ctx, first).is_open && told(ctx, first).graphs == 1, "is open");
	p = flow_alloc(ctx, 9 * MIB, a);
	q = flow_alloc(ctx, 9 * MIB, b);
	ok(is_of(ctx, p, first), "serves A");
	ok(!pool_of(ctx, q).low && !pool_of(ctx, q).high, "and not B");
	is_int(glake_pool_begin(ctx, 0, second, b), 0, "another one for captures of B");
	r = flow_alloc(ctx, 100, b);
	ok(!pool_of(ctx, r).low && !pool_of(ctx, r).high, "which captures nothing");
	is_int((int64_t)flow_stats(ctx, 0).pools, 2, "two pools");
	is_int(glake_pool_end(ctx, 0, second), 0, "the second is closed");
	is_int(glake_pool_release(ctx, 0, second), 0, "and goes");
	is_int((int64_t)told(ctx, first).live, 9 * (int64_t)MIB, "the first has a block");
	is_int((int64_t)told(ctx, first).blocks, 1, "one");
	is_int((int64_t)told(ctx, first).held, 10 * (int64_t)MIB, "and two pages");
	is_int((int64_t)flow_stats(ctx, 0).pool_held, 10 * (int64_t)MIB,
		"as the figures say");
	is_int((int64_t)flow_stats(ctx, 0).live, 18 * (int64_t)MIB + 100,
		"which have all blocks");
	is_int(glake_free(ctx, p, a), 0, "freed");
	ok(flow_alloc(ctx, 9 * MIB, a) == p, "and given again");
	is_int(glake_pool_end(ctx, 0, first), 0, "it is closed");
	ok(!told(ctx, first).is_open, "and says so");
	ok(flow_alloc(ctx, 9 * MIB, a) != p, "others serve A");
	is_int(glake_free(ctx, p, a), 0, "what it gave is freed");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "all is trimmed");
	is_int((int64_t)told(ctx, first).held, 10 * (int64_t)MIB, "but its pages");
	is_int(glake_pool_begin_for(ctx, 0, first, is_one, a), 0, "opened again");
	ok(flow_alloc(ctx, 9 * MIB, a) == p, "it has them at the same addresses");
	is_int(glake_pool_end(ctx, 0, first), 0, "closed");
	is_int(glake_pool_release(ctx, 0, first), 0, "the first time");
	is_int((int64_t)told(ctx, first).graphs, 1, "there is one graph left");
	is_int(glake_pool_release(ctx, 0, first), 0, "the second time");
	is_int((int64_t)flow_stats(ctx, 0).pools, 1, "a live block keeps it");
	p[0] = 1;
	is_int(glake_free(ctx, p, b), 0, "freed");
	is_int((int64_t)flow_stats(ctx, 0).pools, 1, "a free takes nothing down");
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "but trim does");
	is_int((int64_t)flow_stats(ctx, 0).pools, 0, "it goes");
	p = flow_alloc(ctx, 96 * MIB, b);
	ok(p, "all memory is there");
	is_int(glake_stream_free(ctx, 0, a), 0, "a stream");
	is_int(glake_stream_free(ctx, 0, b), 0, "and the other");
	flow_close(ctx, 4);
}

/* A pool has no more than its limit. */
static void has_limit(void)
{
	struct glake *ctx = flow_open(NULL);
	struct CUstream_st *a = NULL;
	void *p, *q = NULL;

	glake_stream_new(ctx, 0, &a);
	is_error(glake_pool_limit_set(ctx, 0, first, MIB), -EINVAL, "INVAL");
	glake_pool_begin_for(ctx, 0, first, is_one, a);
	is_int(glake_pool_limit_set(ctx, 0, first, 4 * MIB), 0, "a limit");
	is_int((int64_t)told(ctx, first).limit, 4 * (int64_t)MIB, "is told");
	p = flow_alloc(ctx, 3 * MIB, a);
	is_error(glake_alloc(ctx, 0, 2 * MIB, a, 0, &q), -ENOMEM, "LIMIT");
	is_int(glake_alloc(ctx, 0, 2 * MIB, NULL, 0, &q), 0,
		"others are not bound by it");
	is_int(glake_free(ctx, q, NULL), 0, "freed");
	is_int(glake_pool_limit_set(ctx, 0, first, 0), 0, "no limit");
	is_int(glake_alloc(ctx, 0, 2 * MIB, a, 0, &q), 0, "and one more block");
	is_int(glake_free(ctx, p, a) | glake_free(ctx, q, a), 0, "both go");
	glake_pool_end(ctx, 0, first);
	glake_pool_release(ctx, 0, first);
	glake_stream_free(ctx, 0, a);
	flow_close(ctx, 0);
}

/* Blocks of pools are blocks like others where a program asks of them. */
static void is_like_any(void)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = flow_open(NULL);
	struct CUstream_st *a = NULL;
	struct CUevent_st *event = NULL;
	char *p, *q = NULL;
	void *got = NULL;

	glake_stream_new(ctx, 0, &a);
	glake_event_new(ctx, 0, &event);
	glake_pool_begin_for(ctx, 0, first, is_one, a);
	p = flow_alloc(ctx, 700, a);
	glake_alloc(ctx, 0, 3 * MIB, a, GLAKE_ALLOC_CONTIGUOUS, &got);
	q = got;
	memset(p, 1, 700);
	memset(q, 2, 3 * MIB);
	is_int(glake_query(ctx, q + 2 * MIB, &block), 0, "a contiguous block of a pool");
	ok(block.base == q && block.size == 3 * MIB && block.stream == a &&
			block.flags == GLAKE_ALLOC_CONTIGUOUS && block.pool.low == 1,
		"is told as one");
	is_int(glake_use(ctx, p, NULL), 0, "a block is used on the default stream");
	is_error(glake_free(ctx, p + 1, a), -EINVAL, "INVAL");
	is_int(glake_event_record(ctx, 0, event, a), 0, "an event");
	is_int(glake_free_after(ctx, p, &event, 1), 0, "freed behind it");
	is_error(glake_free(ctx, p, a), -EINVAL, "DOUBLE_FREE");
	is_error(glake_use(ctx, p, a), -EINVAL, "DOUBLE_FREE");
	is_int(glake_free(ctx, q, NULL), 0, "freed on another stream");
	is_error(glake_free(ctx, q, a), -EINVAL, "DOUBLE_FREE");
	is_int(glake_pool_end(ctx, 0, first), 0, "closed");
	is_int(glake_pool_release(ctx, 0, first), 0, "released");
	is_error(glake_free(ctx, p, a), -EINVAL, "NOT_MINE");
	is_error(glake_query(ctx, q, &block), -EINVAL, "NOT_MINE");
	is_int(glake_event_free(ctx, 0, event), 0, "the event ends");
	is_int(glake_stream_free(ctx, 0, a), 0, "and the stream");
	flow_close(ctx, 0);
}

/* What a program does with a block that a state has brought back. */
static void comes_back(void)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = flow_open(NULL);
	struct glake_pool_block state[3];
	struct glake_stats f, g;
	struct CUstream_st *a = NULL;
	size_t count = 0;
	char *p, *q;

	glake_stream_new(ctx, 0, &a);
	is_int(glake_pool_hold(ctx, 0, first), 0, "a pool is held");
	ok(!told(ctx, first).is_open && told(ctx, first).graphs == 1, "and closed");
	is_int(glake_pool_begin_for(ctx, 0, first, is_one, a), 0, "it is opened");
	p = flow_alloc(ctx, 9 * MIB, a);
	q = flow_alloc(ctx, 100, a);
	is_int(glake_pool_end(ctx, 0, first), 0, "and closed");
	is_int(glake_pool_blocks(ctx, 0, first, state, 3, &count), 0, "its state");
	is_int((int64_t)count, 2, "is of two blocks");
	memset(q, 5, 100);
	is_int(glake_free(ctx, p, a), 0, "one is freed");
	f = flow_stats(ctx, 0);
	is_int(glake_pool_restore(ctx, 0, first, state, count), 0, "and comes back");
	g = flow_stats(ctx, 0);
	is_int((int64_t)(g.live - f.live), 9 * (int64_t)MIB, "it is live");
	is_int((int64_t)(g.allocs - f.allocs), 1, "it alone was given");
	is_int((int64_t)(g.misses - f.misses), 1, "  which was no hit");
	is_int((int64_t)g.peak_live, (int64_t)f.peak_live, "no more than before");
	is_int(glake_query(ctx, p + 5 * MIB, &block), 0, "it is told of");
	ok(block.base == p && block.size == 9 * MIB && block.stream == a &&
			block.pool.low == 1,
		"as before");
	ok(q[0] == 5 && q[99] == 5, "the other one is as it was");
	is_int(glake_use(ctx, p, NULL), 0, "it is used on another stream");
	is_int(glake_free(ctx, p, a), 0, "and freed");
	is_error(glake_free(ctx, p, a), -EINVAL, "DOUBLE_FREE");
	is_int(glake_pool_restore(ctx, 0, first, NULL, 0), 0, "all are freed");
	is_error(glake_free(ctx, q, a), -EINVAL, "DOUBLE_FREE");
	is_int(glake_pool_release(ctx, 0, first), 0, "released");
	is_int(glake_pool_release(ctx, 0, first), 0, "twice");
	is_int((int64_t)flow_stats(ctx, 0).pools, 0, "it goes");
	glake_stream_free(ctx, 0, a);
	flow_close(ctx, 0);
}

/* One name on two GPUs is two pools. */
static void is_of_a_gpu(void)
{
	struct glake *ctx = flow_open((const char *const[]){"soft.gpus=2", NULL});
	struct glake_pool pool = {.sz = sizeof(pool)};

	is_int(glake_pool_begin_for(ctx, 0, first, is_one, NULL), 0, "a pool on GPU 0");
	is_error(glake_pool_get(ctx, 1, first, &pool), -EINVAL, "INVAL");
	is_int(glake_pool_begin_for(ctx, 1, first, is_one, NULL), 0,
		"one of its name on GPU 1");
	is_int(glake_pool_end(ctx, 0, first), 0, "closed there");
	is_int(glake_pool_get(ctx, 1, first, &pool), 0, "is still open");
	ok(pool.is_open && pool.graphs == 1, "here");
	is_int(glake_pool_end(ctx, 1, first), 0, "closed");
	is_int(glake_pool_release(ctx, 1, first), 0, "released");
	is_int(glake_pool_release(ctx, 0, first), 0, "both");
	flow_close(ctx, 0);
}

/* A context is closed with pools open and blocks in them. */
static void is_left(void)
{
	struct glake *ctx = flow_open(NULL);
	struct CUstream_st *a = NULL;

	glake_stream_new(ctx, 0, &a);
	glake_pool_begin_for(ctx, 0, first, is_one, a);
	flow_alloc(ctx, 9 * MIB, a);
	flow_alloc(ctx, 100, a);
	flow_alloc(ctx, 100, NULL);
	glake_pool_begin(ctx, 0, second, a);
	glake_stream_free(ctx, 0, a);
	flow_close(ctx, 3);
}

/* An older program's structure is filled as far as it goes. */
static void older(void)
{
	struct glake *ctx = flow_open(NULL);
	struct {
		size_t sz;
		uint64_t live, behind;
	} old = {.sz = sizeof(size_t) + sizeof(uint64_t), .live = 7, .behind = 42};

	glake_pool_begin_for(ctx, 0, first, is_one, NULL);
	flow_alloc(ctx, 100, NULL);
	is_int(glake_pool_get(ctx, 0, first, (struct glake_pool *)&old), 0,
		"a smaller one");
	ok(old.live == 100 && old.behind == 42, "is filled as far as it goes");
	glake_pool_end(ctx, 0, first);
	flow_close(ctx, 1);
}

#define THREADS 3
#define ROUNDS	150

struct share {
	struct glake *ctx;
	struct CUstream_st *stream;
	int wrong;
};

/* Each thread with a pool of many graphs and a stream of its own, all on one GPU. */
static void *live_on(void *arg)
{
	struct share *s = arg;
	struct glake_pool_id id = {.low = (uintptr_t)s};

	for (int n = 0; n < ROUNDS; n++) {
		void *p[4];

		s->wrong += glake_pool_begin_for(s->ctx, 0, id, is_one, s->stream) != 0;
		for (int i = 0; i < 4; i++) {
			p[i] = flow_alloc(
				s->ctx, ((size_t)n % 7 + 1) * 3 * MIB, s->stream);
			s->wrong += !p[i] || !is_of(s->ctx, p[i], id);
		}
		for (int i = 0; i < 4; i++)
			s->wrong += glake_free(s->ctx, p[i], s->stream) != 0;
		s->wrong += glake_pool_end(s->ctx, 0, id) != 0;
		p[0] = flow_alloc(s->ctx, 100, s->stream);
		s->wrong +=
			is_of(s->ctx, p[0], id) || glake_free(s->ctx, p[0], s->stream);
	}
	s->wrong += told(s->ctx, id).graphs != ROUNDS;
	for (int n = 0; n < ROUNDS; n++)
		s->wrong += glake_pool_release(s->ctx, 0, id) != 0;
	return NULL;
}

static void are_shared(void)
{
	struct glake *ctx = flow_open(NULL);
	struct share share[THREADS];
	pthread_t thread[THREADS];
	int wrong = 0;
	void *p = NULL;

	for (int i = 0; i < THREADS; i++) {
		share[i] = (struct share){.ctx = ctx};
		glake_stream_new(ctx, 0, &share[i].stream);
		pthread_create(&thread[i], NULL, live_on, &share[i]);
	}
	for (int n = 0; n < 500; n++) {
		p = flow_alloc(ctx, 5 * MIB, NULL);
		wrong += !p || glake_free(ctx, p, NULL);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		wrong += share[i].wrong;
		glake_stream_free(ctx, 0, share[i].stream);
	}
	is_int(wrong, 0, "three threads, each with pools of its own, and one without");
	glake_trim(ctx, 0, SIZE_MAX, NULL);
	is_int((int64_t)flow_stats(ctx, 0).pools, 0, "no pool is left");
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	lives();
	has_limit();
	is_like_any();
	comes_back();
	is_of_a_gpu();
	is_left();
	older();
	are_shared();
	return tap_done();
}
