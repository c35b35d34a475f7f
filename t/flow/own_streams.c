/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The default streams of threads. What other threads freed on theirs can be had, although none
 * but they can record an event there: they do so for others, and one on the legacy stream covers what is
 * left.
 */
#include "context.h"

#include <glake/host.h>

#include <pthread.h>
#include <time.h>

#define MIB	((size_t)1 << 20)
#define THREADS 16

static struct glake *ctx;
static pthread_barrier_t together;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

static struct CUstream_st *own(void)
{
	return (struct CUstream_st *)2; /* CU_STREAM_PER_THREAD */
}

/* One block is freed and one stays live beside it, so that no two free ones meet. */
static void *free_one(void *arg)
{
	void *freed, *kept;

	(void)arg;
	pthread_mutex_lock(&one);
	freed = flow_alloc(ctx, 8 * MIB, own());
	kept = flow_alloc(ctx, 8 * MIB, own());
	pthread_mutex_unlock(&one);
	if (glake_free(ctx, freed, own()))
		tap_bail("a free is refused");
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	if (glake_free(ctx, kept, own()))
		tap_bail("a free is refused");
	return NULL;
}

#define MANY 2000

static void *use_one(void *arg)
{
	void *p = NULL;

	if (!glake_alloc(ctx, 0, 20000, own(), 0, &p) && !glake_free(ctx, p, NULL))
		++*(int *)arg;
	return NULL;
}

/* Nothing is held for threads that have ended, and a trim gives all of it back. */
static void nothing_stays(void)
{
	size_t held = (size_t)flow_stats(ctx, 0).reserved;

	ok(held <= 64 * MIB, "  and little is held: %d MiB", (int)(held / MIB));
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "  trimmed");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "  nothing is");
	flow_close(ctx, 0);
}

static void one_after_the_other(void)
{
	pthread_t thread;
	int served = 0;

	ctx = flow_open(NULL);
	for (int i = 0; i < MANY; i++) {
		if (pthread_create(&thread, NULL, use_one, &served))
			tap_bail("no thread");
		pthread_join(thread, NULL);
	}
	is_int(served, MANY, "all threads are served, with nothing live");
	nothing_stays();
}

#define HANDED 20000
#define LIVE   100

struct ring {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	void *block[LIVE];
	unsigned first, count;
};

static void *consume(void *arg)
{
	struct ring *ring = arg;

	for (int i = 0; i < HANDED; i++) {
		void *p;

		pthread_mutex_lock(&ring->lock);
		while (!ring->count)
			pthread_cond_wait(&ring->moved, &ring->lock);
		p = ring->block[ring->first++ % LIVE];
		ring->count--;
		pthread_cond_signal(&ring->moved);
		pthread_mutex_unlock(&ring->lock);
		if (glake_free(ctx, p, own()))
			tap_bail("a free is refused");
	}
	return NULL;
}

/* One thread makes blocks, another frees them, each on its default stream. */
static void hands_over(void)
{
	struct ring ring = {
		.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
	pthread_t thread;

	ctx = flow_open(NULL);
	if (pthread_create(&thread, NULL, consume, &ring))
		tap_bail("no thread");
	for (unsigned i = 0; i < HANDED; i++) {
		void *p = flow_alloc(ctx, 1 + i * 37 % 4000, own());

		pthread_mutex_lock(&ring.lock);
		while (ring.count == LIVE)
			pthread_cond_wait(&ring.moved, &ring.lock);
		ring.block[(ring.first + ring.count++) % LIVE] = p;
		pthread_cond_signal(&ring.moved);
		pthread_mutex_unlock(&ring.lock);
	}
	pthread_join(thread, NULL);
	ok(true, "one thread makes blocks, and another frees them");
	nothing_stays();
}

static void *help(void *block)
{
	if (glake_use(ctx, block, own()))
		tap_bail("a use is refused");
	return NULL;
}

/* A thread's blocks that helpers use on their default streams. */
static void has_helpers(void)
{
	ctx = flow_open(NULL);
	for (int i = 0; i < 50; i++) {
		void *block = flow_alloc(ctx, 32 * MIB, own());
		pthread_t thread;

		if (pthread_create(&thread, NULL, help, block))
			tap_bail("no thread");
		pthread_join(thread, NULL);
		if (glake_free(ctx, block, own()))
			tap_bail("a free is refused");
	}
	ok(true, "helpers use the blocks of a thread");
	nothing_stays();
}

struct helper {
	pthread_barrier_t turn;
	void *block; /* NULL: it ends */
};

static void *go_on_helping(void *arg)
{
	struct helper *h = arg;

	for (;;) {
		pthread_barrier_wait(&h->turn);
		if (!h->block)
			return NULL;
		if (glake_use(ctx, h->block, own()))
			tap_bail("a use is refused");
		pthread_barrier_wait(&h->turn);
	}
}

/* One that lives on, and does nothing else there: who wants what it used has an event on the legacy stream, and
 * a capture that nobody announced, on a stream that does not wait for that one, lives. */
static void has_one_helper(void)
{
	struct CUstream_st *stream, *captured;
	struct helper h = {.block = NULL};
	pthread_t thread;
	uint32_t graph;

	ctx = flow_open((const char *const[]){"soft.memory=1GiB", NULL});
	if (glake_stream_new(ctx, 0, &stream) || glake_stream_new(ctx, 0, &captured))
		tap_bail("no streams");
	pthread_barrier_init(&h.turn, NULL, 2);
	pthread_create(&thread, NULL, go_on_helping, &h);
	is_int(glake_soft_capture_begin(ctx, 0, captured), 0, "a stream captures");
	for (int i = 0; i < 100; i++) {
		h.block = flow_alloc(ctx, 32 * MIB, stream);
		pthread_barrier_wait(&h.turn);
		pthread_barrier_wait(&h.turn);
		if (i == 99)
			is_int(glake_spill(ctx, h.block, stream), 0,
				"what a helper used goes away");
		if (glake_free(ctx, h.block, stream))
			tap_bail("a free is refused");
	}
	is_int(glake_soft_capture_end(ctx, 0, captured, &graph), 0, "the capture lives");
	h.block = NULL;
	ok(flow_stats(ctx, 0).reserved <= 64 * MIB, "  and one block is held: %d MiB",
		(int)(flow_stats(ctx, 0).reserved / MIB));
	glake_soft_graph_free(ctx, graph);
	glake_stream_free(ctx, 0, stream);
	glake_stream_free(ctx, 0, captured);
	nothing_stays();
	pthread_barrier_wait(&h.turn);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&h.turn);
}

#define COMING 1000
#define BUFFER (8 * MIB)

static void *come_to_gpu(void *arg)
{
	void *p = NULL;

	if (!glake_alloc(ctx, 0, BUFFER, own(), 0, &p) && !glake_free(ctx, p, own()))
		++*(int *)arg;
	return NULL;
}

static void *come_to_host(void *arg)
{
	void *p = NULL;

	if (!glake_host_alloc(ctx, 0, BUFFER, 0, &p) &&
		!glake_host_use(ctx, p, 0, own()) && !glake_host_free(ctx, p))
		++*(int *)arg;
	return NULL;
}

/* Threads that come and go, one at a time; those that were served. */
static int come(void *(*fn)(void *arg))
{
	int served = 0;
	pthread_t thread;

	for (int i = 0; i < COMING; i++) {
		if (pthread_create(&thread, NULL, fn, &served))
			tap_bail("no thread");
		pthread_join(thread, NULL);
	}
	return served;
}

/* What they leave behind is waited for by who finds no room without it. */
static void come_and_go(void)
{
	ctx = flow_open(
		(const char *const[]){"soft.memory=256MiB", "host.limit=64MiB", NULL});
	is_int(come(come_to_gpu), COMING, "threads come and go on a small GPU");
	is_int(come(come_to_host), COMING, "and with little memory of the host");
	ok(flow_stats(ctx, 0).host_pool_held <= 64 * MIB, "  which is all they have");
	flow_close(ctx, 0);
}

/* And, where there is a thread that gives back what is idle, by that, when nobody asks for memory. */
static void helped(void)
{
	const struct timespec moment = {.tv_nsec = 20000000};
	size_t held = 0;

	ctx = flow_open((const char *const[]){
		"soft.memory=16GiB", "pool.rest=500ms", "map.span=64GiB", NULL});
	is_int(come(come_to_gpu), COMING, "threads come and go on a large GPU");
	/* an end comes, however slow the machine is */
	for (int i = 0; i < 3000; i++) {
		held = (size_t)flow_stats(ctx, 0).reserved;
		if (held <= 96 * MIB)
			break;
		nanosleep(&moment, NULL);
	}
	ok(held <= 96 * MIB, "what they left goes back when the program rests");
	flow_close(ctx, 0);
}

/* A block that is given back by its address alone goes behind the work of its own stream. */
static void given_back(size_t size)
{
	struct CUstream_st *first, *second;
	void *p, *q;

	ctx = flow_open((const char *const[]){"soft.streams=stepped", NULL});
	if (glake_stream_new(ctx, 0, &first) || glake_stream_new(ctx, 0, &second))
		tap_bail("no streams");
	p = flow_alloc(ctx, size, first);
	glake_soft_kernel(ctx, 0, first, p, size, 1);
	is_int(glake_give_back(ctx, p), 0, "a block is given back");
	q = flow_alloc(ctx, size, first);
	ok(q == p, "  and serve their stream at once");
	is_int(glake_give_back(ctx, q), 0, "  given back again");
	q = flow_alloc(ctx, size, second);
	is_int(glake_soft_kernel(ctx, 0, second, q, size, 1), 0,
		"  and another behind its work: there is no race");
	is_int(glake_free(ctx, q, second), 0, "  freed");
	is_int(glake_give_back(ctx, NULL), 0, "  nothing is given back");
	glake_soft_stream_sync(ctx, 0, first);
	glake_soft_stream_sync(ctx, 0, second);
	glake_stream_free(ctx, 0, first);
	glake_stream_free(ctx, 0, second);
	flow_close(ctx, 0);
}

int main(void)
{
	pthread_t thread[THREADS];
	struct CUstream_st *stream;

	tap_plan_later();
	ctx = flow_open((const char *const[]){
		"pool.budget=256MiB", "soft.streams=stepped", "policy.bins=0", NULL});
	pthread_barrier_init(&together, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&thread[i], NULL, free_one, NULL))
			tap_bail("no thread");
	}
	pthread_barrier_wait(&together);
	is_int(glake_stream_new(ctx, 0, &stream), 0, "a stream");
	for (int i = 0; i < THREADS; i++) {
		void *p = NULL;
		int err = glake_alloc(ctx, 0, 8 * MIB, stream, 0, &p);

		is_int(err, 0, "what a thread freed on its own stream");
		is_int(glake_free_after(ctx, p, NULL, 0), 0, "and it is free again");
	}
	pthread_barrier_wait(&together);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&together);
	is_int(glake_stream_free(ctx, 0, stream), 0, "the stream ends");
	flow_close(ctx, 0);
	one_after_the_other();
	hands_over();
	has_helpers();
	has_one_helper();
	come_and_go();
	helped();
	given_back(20000);
	given_back(9 * MIB);
	return tap_done();
}
