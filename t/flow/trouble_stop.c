/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads that are stopped in the middle of a hit, for as long as it takes: a signal finds
 * them there and its handler waits. Others go on meanwhile, with hits and misses of the same
 * sizes on the same stream, with trims that empty the very bins, with new streams and with
 * contexts that open and close. When the stopped ones are let go, nothing is missing.
 */
#include "context.h"
#include "seed.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define STOPPED 4
#define ROUNDS	40
#define STUCK_S 250

static struct glake *ctx;
static struct CUstream_st *shared;
static atomic_bool stop;
static atomic_int wrong, parked;
static _Atomic(uint64_t) turns[STOPPED];
static int gate[2]; /* a byte lets one thread go */

/* The thread may miss now, and was to be stopped meanwhile. */
static _Thread_local volatile sig_atomic_t may_miss, late;

static void park(int signal)
{
	int saved = errno;
	char byte;

	(void)signal;
	/* a sanitizer hands over late what came before the thread blocked it */
	if (may_miss) {
		late = 1;
		return;
	}
	atomic_fetch_add(&parked, 1);
	while (read(gate[0], &byte, 1) < 0)
		;
	atomic_fetch_sub(&parked, 1);
	errno = saved;
}

/* Hits alone while a signal may come: blocks enough for all threads wait in the bin. */
static void *hit(void *arg)
{
	uintptr_t number = (uintptr_t)arg;
	uint64_t *p, served = 0;
	sigset_t set;
	void *ptr;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	for (; !atomic_load(&stop); served++) {
		if (glake_alloc(ctx, 0, 4096, shared, 0, &ptr)) {
			atomic_fetch_add(&wrong, 1);
			continue;
		}
		p = ptr;
		*p = number << 60 | served;
		/* what another does to a stopped thread's block shows here */
		if (*p != (number << 60 | served) || glake_free(ctx, p, shared))
			atomic_fetch_add(&wrong, 1);
		atomic_fetch_add(&turns[number], 1);
		/* others may have emptied the bin: a miss, which is not to be stopped */
		if (served % 64)
			continue;
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		may_miss = 1;
		for (int i = 0; i < 2; i++)
			if (glake_alloc(ctx, 0, 4096, shared, 0, &ptr) ||
				glake_free(ctx, ptr, shared))
				atomic_fetch_add(&wrong, 1);
		may_miss = 0;
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
		if (late) {
			late = 0;
			park(SIGUSR1);
		}
	}
	return (void *)(uintptr_t)served;
}

static void stuck(int signal)
{
	static const char text[] = "Bail out! a thread waits for one that is stopped\n";

	(void)signal;
	_exit(write(STDOUT_FILENO, text, sizeof(text) - 1) > 0 ? 99 : 98);
}

/* Blocks of the size, freed: so many that nobody misses. */
static void prime(void)
{
	void *block[256];

	for (int i = 0; i < 256; i++)
		block[i] = flow_alloc(ctx, 4096, shared);
	for (int i = 0; i < 256; i++)
		if (glake_free(ctx, block[i], shared))
			atomic_fetch_add(&wrong, 1);
}

/* Everything a program does, while the others stand still. */
static void go_on(void)
{
	struct CUstream_st *own = NULL;
	struct glake *other = NULL;
	void *p[64], *large, *q;
	int refused = 0;

	refused += glake_stream_new(ctx, 0, &own) != 0;
	for (int i = 0; i < 64; i++) {
		refused += glake_alloc(ctx, 0, 4096, shared, 0, &p[i]) != 0;
		memset(p[i], i, 4096);
	}
	large = flow_alloc(ctx, 40 * MIB, own);
	refused += !large;
	refused += glake_trim(ctx, 0, 0, NULL) != 0;
	for (int i = 0; i < 64; i++)
		refused += glake_free(ctx, p[i], i % 2 ? shared : own) != 0;
	refused += glake_free(ctx, large, own) != 0;
	refused += glake_trim(ctx, 0, 0, NULL) != 0;
	refused += glake_stream_free(ctx, 0, own) != 0;
	other = flow_open((const char *const[]){"map.span=64GiB", NULL});
	q = flow_alloc(other, 3 * MIB, NULL);
	refused += !q || glake_free(other, q, NULL) != 0;
	refused += glake_close(other, NULL) != 0;
	atomic_fetch_add(&wrong, refused);
}

static void nap(uint64_t ns)
{
	struct timespec time = {.tv_nsec = (long)ns};

	nanosleep(&time, NULL);
}

static void round_of(pthread_t *thread, uint64_t *state)
{
	uint64_t seen[STOPPED];

	prime();
	nap(seed_below(state, 3000000));
	for (int i = 0; i < STOPPED; i++)
		pthread_kill(thread[i], SIGUSR1);
	while (atomic_load(&parked) < STOPPED)
		nap(10000);
	go_on();
	for (int i = 0; i < STOPPED; i++)
		seen[i] = atomic_load(&turns[i]);
	/* their bins are full again, for hits */
	prime();
	if (write(gate[1], "gogo", STOPPED) != STOPPED)
		tap_bail("the gate is stuck");
	for (int i = 0; i < STOPPED; i++)
		while (atomic_load(&turns[i]) == seen[i])
			nap(10000);
}

int main(void)
{
	struct sigaction action = {.sa_handler = park};
	struct glake_stats stats;
	pthread_t thread[STOPPED];
	uint64_t state;
	sigset_t set;

	if (tap_on_valgrind())
		tap_skip_all("valgrind runs one thread at a time");
	tap_plan_later();
	state = seed_thread(seed_start(), 0);
	signal(SIGALRM, stuck);
	alarm(STUCK_S);
	if (pipe(gate) || sigaction(SIGUSR1, &action, NULL))
		tap_bail("no gate");
	ctx = flow_open((const char *const[]){"map.span=64GiB", NULL});
	if (glake_stream_new(ctx, 0, &shared))
		tap_bail("no stream");
	prime();
	/* a thread's first request is a miss: made before signals reach it */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (uintptr_t i = 0; i < STOPPED; i++)
		pthread_create(&thread[i], NULL, hit, (void *)i);
	for (int i = 0; i < ROUNDS && !atomic_load(&wrong); i++)
		round_of(thread, &state);
	atomic_store(&stop, true);
	for (int i = 0; i < STOPPED; i++)
		pthread_join(thread[i], NULL);
	is_int(atomic_load(&wrong), 0, "others went on beside threads stopped in a hit");
	stats = flow_stats(ctx, 0);
	tap_note("%" PRIu64 " hits, %" PRIu64 " misses", stats.hits, stats.misses);
	is_int(stats.live + stats.given + stats.live_blocks, 0, "nothing is live");
	is_int(stats.allocs, stats.frees, "every block came back");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	stats = flow_stats(ctx, 0);
	is_int(stats.reserved + stats.quick + stats.lost, 0, "to nothing");
	is_int(glake_stream_free(ctx, 0, shared), 0, "the stream ends");
	flow_close(ctx, 0);
	return tap_done();
}
