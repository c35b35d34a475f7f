/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * trace_program MODE [THREADS [PAIRS [SEED]]]: a program to be recorded. Threads allocate and
 * free on streams of their own and hand blocks over to each other, and in the end all of them
 * hold what they hold at once, which is the peak. It prints what a trace of it has to say, as
 * JSON.
 *
 *	churn	as above
 *	alone	one thread, with every kind of call
 *	ever	churn that does not end; of PAIRS microseconds is a pause now and then
 *	stay	churn, after which all threads stay as they are until somebody ends the program
 *	fork	a child that goes on allocating, ending threads and the context
 *	gpus	blocks on two GPUs
 *	short	many threads one after the other, each with a few blocks
 */
#include <glake/glake.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 64
#define SHARED	    256		/* blocks on their way from thread to thread */
#define PEAK_BLOCKS 8		/* of each thread, in the end */
#define PEAK_SIZE   (20u << 20) /* larger than all that the churn holds */

static struct glake *ctx;
static _Atomic(uintptr_t) shared[SHARED];
static atomic_ullong allocs, frees, failed;
static pthread_barrier_t meet;
static unsigned threads, pairs;
static bool ever, stays;

struct worker {
	pthread_t thread;
	struct CUstream_st *stream;
	uint64_t state;
};

static uint64_t below(struct worker *w, uint64_t n)
{
	w->state ^= w->state >> 12;
	w->state ^= w->state << 25;
	w->state ^= w->state >> 27;
	return (w->state * UINT64_C(0x2545f4914f6cdd1d) >> 11) % n;
}

static void *give(int device, size_t size, struct CUstream_st *stream)
{
	void *p = NULL;

	if (glake_alloc(ctx, device, size, stream, 0, &p))
		atomic_fetch_add(&failed, 1);
	else
		atomic_fetch_add(&allocs, 1);
	return p;
}

static void take(void *p, struct CUstream_st *stream)
{
	if (!p)
		return;
	if (glake_free(ctx, p, stream))
		atomic_fetch_add(&failed, 1);
	else
		atomic_fetch_add(&frees, 1);
}

/* A new block goes where an old one lay, which may have been another thread's. */
static void churn(struct worker *w)
{
	for (unsigned i = 0; i < pairs || ever; i++) {
		size_t size = 1 + below(w, below(w, 8) ? 64 << 10 : 256 << 10);
		void *p = give(0, size, w->stream);

		if (ever && pairs && i % 256 == 0)
			usleep(pairs);
		p = (void *)atomic_exchange(&shared[below(w, SHARED)], (uintptr_t)p);
		take(p, w->stream);
	}
}

static void *work(void *arg)
{
	void *held[PEAK_BLOCKS];
	struct worker *w = arg;
	int last;

	churn(w);
	last = pthread_barrier_wait(&meet);
	if (stays && last) {
		printf("{\"allocs\": %llu, \"frees\": %llu}\n", atomic_load(&allocs),
			atomic_load(&frees));
		fflush(stdout);
	}
	while (stays)
		pause();
	for (unsigned i = 0; i < SHARED; i++)
		take((void *)atomic_exchange(&shared[i], 0), w->stream);
	pthread_barrier_wait(&meet);
	for (int i = 0; i < PEAK_BLOCKS; i++)
		held[i] = give(0, PEAK_SIZE, w->stream);
	pthread_barrier_wait(&meet);
	for (int i = 0; i < PEAK_BLOCKS; i++)
		take(held[i], w->stream);
	return NULL;
}

static int run_threads(uint64_t seed)
{
	struct worker worker[THREADS_MAX];

	pthread_barrier_init(&meet, NULL, threads);
	for (unsigned i = 0; i < threads; i++) {
		worker[i].state = (seed + 1) * (i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
		if (glake_stream_new(ctx, 0, &worker[i].stream) ||
			pthread_create(&worker[i].thread, NULL, work, &worker[i]))
			return 1;
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(worker[i].thread, NULL);
		if (glake_stream_free(ctx, 0, worker[i].stream))
			return 1;
	}
	return 0;
}

/* Every kind of call, and what they leave behind them. */
static int run_alone(void)
{
	struct glake_pool_id id = {.low = 7};
	struct CUstream_st *a, *b;
	struct CUevent_st *event;
	void *p, *q;
	size_t n;

	if (glake_stream_new(ctx, 0, &a) || glake_stream_new(ctx, 0, &b) ||
		glake_event_new(ctx, 0, &event))
		return 1;
	churn(&(struct worker){.stream = a, .state = 77});
	p = give(0, 3 << 20, a);
	q = give(0, 1000, b);
	if (!p || !q || glake_use(ctx, p, b) || glake_event_record(ctx, 0, event, a) ||
		glake_stream_wait(ctx, 0, b, event))
		return 1;
	take(p, a);
	if (glake_free_after(ctx, q, &event, 1))
		return 1;
	atomic_fetch_add(&frees, 1);
	if (!glake_alloc(ctx, 0, (size_t)1 << 45, a, 0, &p) || !glake_free(ctx, &p, a))
		return 1; /* these two have to fail */
	if (glake_pool_begin(ctx, 0, id, a) || glake_pool_end(ctx, 0, id) ||
		glake_pool_release(ctx, 0, id) || glake_budget_set(ctx, 0, 1 << 30) ||
		glake_trim(ctx, 0, 0, &n) || glake_event_free(ctx, 0, event) ||
		glake_stream_end(ctx, 0, b) || glake_stream_free(ctx, 0, b))
		return 1;
	for (unsigned i = 0; i < SHARED; i++)
		take((void *)atomic_exchange(&shared[i], 0), a);
	return glake_stream_free(ctx, 0, a) != 0;
}

static void *end_soon(void *arg)
{
	void *p = NULL;

	glake_alloc(ctx, 0, 1, NULL, 0, &p);
	return arg;
}

static int run_child(void)
{
	pthread_t thread;
	void *p = NULL;

	if (!glake_alloc(ctx, 0, 4096, NULL, 0, &p) || glake_free(ctx, &p, NULL))
		return 1;
	for (int i = 0; i < 10; i++) {
		if (pthread_create(&thread, NULL, end_soon, NULL))
			return 1;
		pthread_join(thread, NULL);
	}
	return glake_close(ctx, NULL);
}

static int run_fork(void)
{
	int status = 1;

	for (int i = 0; i < 10; i++) {
		pid_t pid;

		take(give(0, 512, NULL), NULL);
		pid = fork();
		if (pid < 0)
			return 1;
		if (!pid)
			exit(run_child());
		if (waitpid(pid, &status, 0) != pid || status)
			return 1;
		take(give(0, 512, NULL), NULL);
	}
	return 0;
}

static int run_gpus(void)
{
	void *p[2][10];

	for (int i = 0; i < 20; i++)
		p[i % 2][i / 2] = give(i % 2, (size_t)(i % 2 + 1) << 20, NULL);
	for (int i = 0; i < 20; i++)
		take(p[i % 2][i / 2], NULL);
	return 0;
}

static void *live_shortly(void *arg)
{
	void *p[5];

	for (int i = 0; i < 5; i++)
		p[i] = give(0, 4096, NULL);
	for (int i = 0; i < 5; i++)
		take(p[i], NULL);
	return arg;
}

static int run_short(void)
{
	pthread_t thread;

	for (unsigned i = 0; i < pairs; i++) {
		if (pthread_create(&thread, NULL, live_shortly, NULL))
			return 1;
		pthread_join(thread, NULL);
	}
	return 0;
}

static int run(const char *mode, uint64_t seed)
{
	ever = !strcmp(mode, "ever");
	stays = !strcmp(mode, "stay");
	if (!strcmp(mode, "alone"))
		return run_alone();
	if (!strcmp(mode, "fork"))
		return run_fork();
	if (!strcmp(mode, "gpus"))
		return run_gpus();
	if (!strcmp(mode, "short"))
		return run_short();
	return run_threads(seed);
}

int main(int argc, char **argv)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};
	struct glake_stats stats = {.sz = sizeof(stats)};
	uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
	size_t leaked = 0;

	threads = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
	pairs = argc > 3 ? (unsigned)atoi(argv[3]) : 1000;
	if (argc < 2 || !threads || threads > THREADS_MAX || glake_open(&options, &ctx) ||
		run(argv[1], seed) || glake_stats_get(ctx, 0, &stats) ||
		glake_close(ctx, &leaked))
		return 1;
	printf("{\"allocs\": %llu, \"frees\": %llu, \"failed\": %llu, \"leaked\": %zu, "
	       "\"peak_live\": %llu, \"together\": %llu, \"hits\": %llu}\n",
		atomic_load(&allocs), atomic_load(&frees), atomic_load(&failed), leaked,
		(unsigned long long)stats.peak_live,
		(unsigned long long)threads * PEAK_BLOCKS * PEAK_SIZE,
		(unsigned long long)stats.hits);
	return 0;
}
