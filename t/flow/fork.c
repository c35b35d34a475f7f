/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fork: the GPUs stay the parent's. A child is answered at once, whatever other threads of
 * the parent were doing when it was made, and its end disturbs nobody. Children speak by their
 * exit status; an alarm ends one that is stuck.
 */
#include "context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define FORKS	   40
#define HITS_FORKS 200
#define STUCK_S	   100

/* A thread that a child starts has no seat yet. */
static void *begin(void *arg)
{
	struct glake *ctx = arg;
	void *p = NULL;

	return (void *)(uintptr_t)(glake_alloc(ctx, 0, 512, NULL, 0, &p) == -ENODEV &&
		flow_error().error_class == GLAKE_ERROR_FORKED &&
		!glake_free(ctx, &p, NULL));
}

static bool begins_threads(struct glake *ctx)
{
	void *fine = (void *)1;
	pthread_t thread;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return true; /* the one starts none after a fork, the other may deadlock in its malloc */
#endif
	return !pthread_create(&thread, NULL, begin, ctx) &&
		!pthread_join(thread, &fine) && fine;
}

/* What a child finds wrong, as bits. */
static int child(struct glake *ctx, void *ptr)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glake_error error = {.sz = sizeof(error)};
	struct glake *own = NULL;
	size_t leaked = 1;
	void *got = NULL;
	int wrong = 0;

	wrong |= 1 * (glake_alloc(ctx, 0, 4096, NULL, 0, &got) != -ENODEV || got);
	glake_last_error(&error);
	wrong |= 2 * (error.error_class != GLAKE_ERROR_FORKED || error.err != -ENODEV);
	wrong |= 4 * (glake_free(ctx, ptr, NULL) != 0);
	wrong |= 8 * (glake_stats_get(ctx, 0, &stats) != -ENODEV);
	wrong |= 16 * (glake_trim(ctx, 0, 0, NULL) != -ENODEV);
	wrong |= 128 * !begins_threads(ctx);
	wrong |= 32 * (glake_close(ctx, &leaked) != 0 || leaked);
	wrong |= 64 * (glake_open(NULL, &own) != -ENODEV || own);
	glake_last_error(&error);
	wrong |= 64 * (error.error_class != GLAKE_ERROR_FORKED);
	return wrong;
}

static bool all(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	(void)arg;
	return true;
}

static int nobody(const struct glake_figure *figure, void *arg)
{
	(void)figure;
	(void)arg;
	return 1;
}

/* The same of streams, events, pools and figures; the number of the first. */
static int told_child(struct glake *ctx, void *ptr)
{
	struct glake_pool_id id = {.low = 1};
	struct glake_pool pool = {.sz = sizeof(pool)};
	size_t blocks = 77;
	struct CUstream_st *stream = NULL;
	struct CUevent_st *event = NULL, *some = (struct CUevent_st *)0x4440;
	size_t length;
	int answers[] = {glake_use(ctx, ptr, NULL), glake_stream_end(ctx, 0, NULL),
		glake_figures(ctx, nobody, NULL),
		glake_figures_text(ctx, GLAKE_FIGURES_JSON, NULL, 0, &length),
		glake_stream_new(ctx, 0, &stream), glake_event_new(ctx, 0, &event),
		glake_event_free(ctx, 0, some), glake_event_record(ctx, 0, some, NULL),
		glake_stream_wait(ctx, 0, NULL, some),
		glake_event_recorded(ctx, 0, some, NULL),
		glake_stream_waited(ctx, 0, NULL, some), glake_event_forget(ctx, 0, some),
		glake_pool_begin(ctx, 0, id, NULL),
		glake_pool_begin_for(ctx, 0, id, all, NULL), glake_pool_end(ctx, 0, id),
		glake_pool_release(ctx, 0, id), glake_pool_get(ctx, 0, id, &pool),
		glake_pool_hold(ctx, 0, id), glake_pool_limit_set(ctx, 0, id, 1),
		glake_shortage_set(ctx, NULL, NULL),
		glake_pool_blocks(ctx, 0, id, NULL, 0, &blocks),
		glake_pool_restore(ctx, 0, id, NULL, 0)};
	struct glake_error error = {.sz = sizeof(error)};

	for (int i = 0; i < (int)(sizeof(answers) / sizeof(*answers)); i++) {
		if (answers[i] != -ENODEV)
			return i + 1;
	}
	glake_last_error(&error);
	if (error.error_class != GLAKE_ERROR_FORKED || stream || event || blocks != 77)
		return 100;
	return glake_free_after(ctx, ptr, &some, 1) || glake_free_after(ctx, ptr, NULL, 0)
		? 101
		: 0;
}

static int run_child(struct glake *ctx, void *ptr)
{
	pid_t pid = flow_fork(STUCK_S);
	int wrong;

	if (!pid)
		_exit(child(ctx, ptr));
	wrong = flow_wait(pid);
	pid = flow_fork(STUCK_S);
	if (!pid)
		_exit(told_child(ctx, ptr));
	return wrong | flow_wait(pid) << 10;
}

static void forks(void)
{
	struct glake *ctx = flow_open(NULL), *more;
	char *p = flow_alloc(ctx, 9 * MIB, NULL);
	struct glake_stats before, after;

	memset(p, 0x5a, 9 * MIB);
	before = flow_stats(ctx, 0);
	is_int(run_child(ctx, p), 0, "a child is answered, and closes in peace");
	after = flow_stats(ctx, 0);
	ok(!memcmp(&before, &after, sizeof(before)), "the parent's figures stand");
	ok(p[0] == 0x5a && p[9 * MIB - 1] == 0x5a, "and its memory");
	ok(flow_alloc(ctx, 100, NULL), "it goes on");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	more = flow_open(NULL);
	is_int(run_child(more, NULL), 0, "the same for another context");
	flow_close(more, 0);
	flow_close(ctx, 1);
}

struct busy {
	struct glake *ctx;
	atomic_bool stop;
	atomic_int turns;
};

static void *allocate(void *arg)
{
	struct busy *busy = arg;

	do {
		void *p = flow_alloc(busy->ctx, 100 << 10, NULL);
		void *q = flow_alloc(busy->ctx, 9 * MIB, NULL);

		glake_free(busy->ctx, p, NULL);
		glake_free(busy->ctx, q, NULL);
		glake_trim(busy->ctx, 0, 0, NULL);
		atomic_fetch_add(&busy->turns, 1);
	} while (!atomic_load(&busy->stop));
	return NULL;
}

static void *open_and_close(void *arg)
{
	struct busy *busy = arg;

	do {
		struct glake *ctx =
			flow_open((const char *const[]){"map.span=64GiB", NULL});

		flow_alloc(ctx, 1, NULL);
		glake_close(ctx, NULL);
		atomic_fetch_add(&busy->turns, 1);
	} while (!atomic_load(&busy->stop));
	return NULL;
}

/* Takes the lock of the table of contexts as often as it can. */
static void *close_nothing(void *arg)
{
	struct busy *busy = arg;
	struct glake *gone = flow_open(NULL);

	glake_close(gone, NULL);
	do {
		glake_close(gone, NULL);
	} while (!atomic_load(&busy->stop));
	return NULL;
}

static void quiet(int level, const char *line, void *arg)
{
	(void)level;
	(void)line;
	(void)arg;
}

/* Logs as often as it can. */
static void *fail(void *arg)
{
	struct busy *busy = arg;
	void *none = NULL;

	do {
		glake_alloc(busy->ctx, 0, 0, NULL, 0, &none);
	} while (!atomic_load(&busy->stop));
	return NULL;
}

/* Locks that others held when the child was made are held in it for ever. */
static void forks_amid_threads(void)
{
	static struct busy busy;
	static void *(*const bodies[])(void *) = {allocate, allocate, open_and_close,
		open_and_close, close_nothing, close_nothing, fail, fail};
	pthread_t thread[8];
	int wrong = 0;
	char *p;

	glake_log_hook(quiet, NULL, GLAKE_LOG_DEBUG);
	busy.ctx = flow_open(NULL);
	p = flow_alloc(busy.ctx, 100, NULL);
	for (int i = 0; i < 8; i++)
		pthread_create(&thread[i], NULL, bodies[i], &busy);
	while (atomic_load(&busy.turns) < 20)
		sched_yield();
	for (int i = 0; i < FORKS && !wrong; i++)
		wrong = run_child(busy.ctx, p);
	is_int(wrong, 0, "children made while other threads were inside");
	atomic_store(&busy.stop, true);
	for (int i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	glake_log_hook(tap_log, NULL, GLAKE_LOG_WARNING);
	is_int(glake_free(busy.ctx, p, NULL), 0, "freed");
	flow_close(busy.ctx, 0);
}

static _Atomic(uint64_t) hits, refused;
static struct glake *shared;
static atomic_bool stop_hits;

static void *hit(void *arg)
{
	static const size_t size[] = {512, 4096, 60 << 10, MIB / 4};
	void *p;

	for (uint64_t n = 0; !atomic_load(&stop_hits); n++) {
		if (glake_alloc(shared, 0, size[n % 4], arg, 0, &p) ||
			glake_free(shared, p, arg))
			atomic_fetch_add(&refused, 1);
		atomic_fetch_add(&hits, 1);
	}
	return NULL;
}

/* Each child finds the tables as they stood in mid-step; the parent's figures are exact at the end. */
static void forks_amid_hits(void)
{
	struct CUstream_st *stream = NULL;
	struct glake_stats stats;
	pthread_t thread[4];
	int wrong = 0;

	shared = flow_open((const char *const[]){"map.span=64GiB", NULL});
	glake_stream_new(shared, 0, &stream);
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, hit, i < 2 ? stream : NULL);
	for (int i = 0; i < HITS_FORKS && !wrong; i++) {
		uint64_t seen = atomic_load(&hits);

		wrong = run_child(shared, NULL);
		while (atomic_load(&hits) == seen)
			sched_yield();
	}
	is_int(wrong, 0, "children made in the middle of hits are answered");
	atomic_store(&stop_hits, true);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	is_int((int64_t)refused, 0, "the parent's threads were served all the while");
	stats = flow_stats(shared, 0);
	is_int((int64_t)stats.allocs, (int64_t)hits, "its figures have every request");
	is_int((int64_t)stats.frees, (int64_t)hits, "and every free");
	is_int((int64_t)(stats.live + stats.given), 0, "nothing is live");
	is_int(glake_stream_free(shared, 0, stream), 0, "a stream ends");
	flow_close(shared, 0);
}

/* A child of a process that has no context open may have one. */
static int opens(void)
{
	struct glake *ctx = flow_open(NULL);
	void *p = flow_alloc(ctx, 9 * MIB, NULL);

	return !p || glake_free(ctx, p, NULL) || glake_close(ctx, NULL);
}

static void without_a_context(const char *when)
{
	pid_t pid = flow_fork(STUCK_S);

	if (!pid)
		_exit(opens());
	is_int(flow_wait(pid), 0, when);
}

int main(void)
{
	tap_plan_later();
	without_a_context("a child forked before the first context opens its own");
	forks();
	without_a_context("one forked after the last was closed does, too");
	forks_amid_threads();
	forks_amid_hits();
	return tap_done();
}
