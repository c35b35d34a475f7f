/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads that are cancelled inside the library. Asynchronously, at any instruction: a hit has
 * no lock, so each takes at most the block in its hands with it; what holds locks is not
 * cancelled before it is done. And deferred, which ends a thread at the system calls that the
 * slow paths make. Others work on, on the same streams, all the while.
 */
#include "context.h"
#include "seed.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define KILLS	   2000
#define SLOW_KILLS 100
#define WORKERS	   2
#define STUCK_S	   250

static struct glake *ctx;
static struct CUstream_st *shared;
static atomic_bool stop, trims;
static atomic_int wrong;
static _Atomic(uint64_t) turns;

/* Only what may be cancelled at any instruction is called from here on. */
static void *hit_for_ever(void *arg)
{
	static const size_t size[] = {512, 4096, 3 * MIB, 300 << 10};
	struct CUstream_st *stream = arg;
	int i = 0, unused;
	void *p = NULL;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &unused);
	for (;; i++) {
		if (!glake_alloc(ctx, 0, size[i % 4], stream, 0, &p))
			glake_free(ctx, p, stream);
	}
	return NULL;
}

/* Cancelled where a system call would allow it, or at the end of a turn. */
static void *miss_for_ever(void *arg)
{
	size_t size = 2 * MIB;
	void *p = NULL;

	for (;; size += 512) {
		if (!glake_alloc(ctx, 0, size % (4 * MIB) + 1, arg, 0, &p)) {
			memset(p, 1, 4096);
			glake_free(ctx, p, arg);
		}
		glake_trim(ctx, 0, 0, NULL);
		pthread_testcancel();
	}
	return NULL;
}

/* Those who are not cancelled are never refused, and never find another's mark. */
static void *work(void *arg)
{
	static const size_t size[] = {512, 4096, 3 * MIB, 300 << 10, 9 * MIB};
	uint64_t *p = NULL, served = 0;
	void *ptr;

	for (; !atomic_load(&stop); served++) {
		if (glake_alloc(ctx, 0, size[served % 5], shared, 0, &ptr)) {
			atomic_fetch_add(&wrong, 1);
			continue;
		}
		p = ptr;
		*p = (uintptr_t)arg + served;
		if (served % 100 == 0 && atomic_load(&trims))
			glake_trim(ctx, 0, 64 * MIB, NULL);
		if (*p != (uintptr_t)arg + served || glake_free(ctx, p, shared))
			atomic_fetch_add(&wrong, 1);
		atomic_fetch_add(&turns, 1);
	}
	return NULL;
}

static void nap(uint64_t ns)
{
	struct timespec time = {.tv_nsec = (long)ns};

	nanosleep(&time, NULL);
}

/* Whether the workers move, twice round each. */
static bool others_work(void)
{
	uint64_t seen = atomic_load(&turns);

	for (int i = 0; i < 10000 && atomic_load(&turns) < seen + 2 * WORKERS; i++)
		nap(1000000);
	return atomic_load(&turns) >= seen + 2 * WORKERS;
}

static int kill_some(int kills, void *(*body)(void *), struct CUstream_st *const *stream,
	uint64_t *state)
{
	int done = 0, alive = 0;
	pthread_t thread[4];

	while (done < kills) {
		for (alive = 0; alive < 4; alive++)
			if (pthread_create(&thread[alive], NULL, body, stream[alive]))
				tap_bail("no thread");
		for (int i = 0; i < 4; i++) {
			nap(seed_below(state, 400000));
			pthread_cancel(thread[i]);
		}
		for (int i = 0; i < 4; i++, done++)
			pthread_join(thread[i], NULL);
	}
	return done;
}

static void stuck(int signal)
{
	static const char text[] = "Bail out! a thread waits for one that was killed\n";

	(void)signal;
	_exit(write(STDOUT_FILENO, text, sizeof(text) - 1) > 0 ? 99 : 98);
}

/* The end of a part: others work, and what was lost is within its bound. */
static void judge(const char *what, int killed, size_t largest)
{
	struct glake_stats stats;

	ok(others_work(), "%s: others work", what);
	is_int(atomic_load(&wrong), 0,
		"  none of them was refused or met another's mark");
	stats = flow_stats(ctx, 0);
	tap_note("%d killed, %" PRIu64 " blocks and %" PRIu64 " bytes live, %" PRIu64
		 " hits, %" PRIu64 " misses",
		killed, stats.live_blocks, stats.live, stats.hits, stats.misses);
	ok((int64_t)stats.live_blocks <= killed + WORKERS &&
			(int64_t)stats.live_blocks >= -killed,
		"  at most one block a thread that was killed");
	ok((int64_t)stats.live <= (int64_t)largest * (killed + WORKERS) &&
			(int64_t)stats.live >= -(int64_t)largest * killed,
		"  and its bytes");
}

int main(void)
{
	struct CUstream_st *stream[4] = {0};
	pthread_t worker[WORKERS];
	struct glake_stats stats;
	uint64_t state;
	size_t leaked;
	void *p;
	int killed;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	tap_skip_all("a sanitizer does not follow a thread that ends at any instruction");
#endif
	if (tap_on_valgrind())
		tap_skip_all("valgrind runs one thread at a time");
	tap_plan_later();
	state = seed_thread(seed_start(), 0);
	signal(SIGALRM, stuck);
	alarm(STUCK_S);
	/* room for all the blocks that may be lost */
	ctx = flow_open(
		(const char *const[]){"soft.memory=64GiB", "map.span=1TiB", NULL});
	for (int i = 0; i < 3; i++)
		if (glake_stream_new(ctx, 0, &stream[i]))
			tap_bail("no stream");
	shared = stream[3] = stream[2];
	for (uintptr_t i = 0; i < WORKERS; i++)
		pthread_create(&worker[i], NULL, work, (void *)(i << 60));

	killed = kill_some(KILLS, hit_for_ever, stream, &state);
	judge("in a hit", killed, 3 * MIB);
	atomic_store(&trims, true);
	killed += kill_some(KILLS / 4, hit_for_ever, stream, &state);
	judge("in a hit, beside trims", killed, 3 * MIB);
	killed += kill_some(SLOW_KILLS, miss_for_ever, stream, &state);
	judge("where the driver is called", killed, 9 * MIB);

	atomic_store(&stop, true);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(worker[i], NULL);
	for (int i = 0; i < 3; i++)
		is_int(glake_stream_free(ctx, 0, stream[i]), 0, "a stream ends");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	stats = flow_stats(ctx, 0);
	tap_note("%" PRIu64 " bytes held at the end", stats.reserved);
	ok(stats.reserved <= (uint64_t)killed * 10 * MIB, "to what was lost");
	is_int(stats.lost, 0, "the driver has taken back all it was given");
	is_int(glake_alloc(ctx, 0, GIB, NULL, 0, &p), 0, "a request of another size");
	memset(p, 4, GIB / 64);
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	is_int(glake_close(ctx, &leaked), 0, "closed, and the device has nothing left");
	return tap_done();
}
