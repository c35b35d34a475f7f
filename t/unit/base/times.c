/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Times of calls: the bounds of their buckets, ticks as ns, and what several threads write. */
#include "base/times.h"
#include "base/lock.h"

#include "tap.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

static void bounds(void)
{
	static struct glk_times times;
	struct glake_histogram h;
	bool right = true;
	uint64_t sum = 0;

	glk_times_add(&times, 0);
	glk_times_add(&times, 127);
	for (unsigned i = 1; i < GLAKE_HISTOGRAM_BUCKETS; i++) {
		uint64_t low = UINT64_C(64) << i;

		glk_times_add(&times, low);
		glk_times_add(&times, 2 * low - 1);
		sum += 3 * low - 1;
	}
	glk_times_read(&times, &h);
	for (unsigned i = 0; i < GLAKE_HISTOGRAM_BUCKETS; i++)
		right &= h.at[i] == 2;
	ok(right, "bounds are 128 ns and what doubles it, not in their bucket");
	is_int(h.count, 2 * GLAKE_HISTOGRAM_BUCKETS, "all are counted");
	is_int((int64_t)h.sum, (int64_t)(sum + 127), "and their sum");
	is_int((int64_t)h.longest, (INT64_C(128) << (GLAKE_HISTOGRAM_BUCKETS - 1)) - 1,
		"and the longest");
	glk_times_add(&times, INT64_MAX);
	glk_times_read(&times, &h);
	is_int((int64_t)h.at[GLAKE_HISTOGRAM_BUCKETS - 1], 3, "the last has all others");
}

/* Until the clock has gone on by so many ns; by how many. */
static int64_t spend(int64_t ns, int64_t *ret_ticks)
{
	int64_t start = glk_clock_ns(), ticks = glk_clock_ticks(), now;

	do {
		now = glk_clock_ns();
	} while (now - start < ns);
	*ret_ticks = glk_clock_ticks() - ticks;
	return now - start;
}

static void ticks(void)
{
	int64_t count, ns;
	uint64_t told;

	is_int((int64_t)glk_times_ns(-5), 0, "counters that differ make no time");
	is_int((int64_t)glk_times_ns(0), 0, "nor does none");
	/* from here on both are compared */
	glk_times_ns(1);
	spend(1000000, &count);
	glk_times_settle();
	ok(glk_load_relaxed(&glk_times_scale) > 0, "what a tick is, is known");
	/* the reading of one may be far from that of the other, once or twice, and the clock be made
	 * to run slower for a while: what a tick is, is asked again */
	for (int i = 0; i < 20; i++) {
		ns = spend(2000000, &count);
		glk_times_settle();
		told = glk_times_ns(count);
		if (told > (uint64_t)ns * 49 / 50 && told < (uint64_t)ns * 51 / 50)
			break;
	}
	ok(told > (uint64_t)ns * 49 / 50 && told < (uint64_t)ns * 51 / 50,
		"%" PRId64 " ticks are %" PRIu64 " ns, the clock says %" PRId64, count,
		told, ns);
	told = glk_times_ns(INT64_MAX / 2);
	ok(told > (uint64_t)INT64_MAX / 40, "many are not cut");
}

#define WHILE INT64_C(2000000) /* ns */

/* Of the processor, for this thread. */
static int64_t used(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Each turn of a lock is told of, and what ends with one. */
static void told(clockid_t clock, const char *name)
{
	struct glk_times holds = {0}, calls = {0};
	int64_t since = glk_clock_ticks(), unused, from;
	struct glake_histogram h;
	struct glk_lock lock;

	glk_lock_init(&lock, GLK_RANK_DEVICE);
	glk_lock_time(&lock, clock);
	lock.holds = &holds;
	spend(WHILE, &unused);
	for (int i = 0; i < 3; i++) {
		glk_lock(&lock);
		glk_unlock(&lock);
	}
	glk_lock(&lock);
	for (from = used(); used() - from < WHILE;)
		;
	glk_lock_pause(&lock);
	glk_lock_resume(&lock);
	glk_unlock_since(&lock, since, &calls);
	glk_times_read(&holds, &h);
	ok(h.count == 5, "%s: each turn is counted", name);
	ok(h.sum >= WHILE - WHILE / 50 && h.longest <= h.sum &&
			h.longest >= WHILE - WHILE / 50,
		"%s: with how long it was", name);
	glk_times_read(&calls, &h);
	ok(h.count == 1, "%s: what it was for as well", name);
	ok(h.sum >= 2 * (WHILE - WHILE / 50), "%s: from its begin on, by the clock",
		name);
	glk_lock_fini(&lock);
}

/* One of sixteen short turns is timed, and stands for those behind it; one that is not short stands for itself. */
static void told_short(void)
{
	struct glk_times holds = {0}, calls = {0};
	struct glake_histogram h;
	struct glk_lock lock;
	int64_t since = 0;
	unsigned timed = 0;
	bool exact = true;

	glk_lock_init(&lock, GLK_RANK_DEVICE);
	glk_lock_time(&lock, CLOCK_MONOTONIC);
	lock.holds = &holds;
	for (unsigned i = 0; i < 3 * GLK_TIMES_EACH + 5; i++) {
		since = glk_times_due(&calls) ? glk_clock_ticks() : 0;
		timed += since != 0;
		exact &= glk_lock_short(&lock, since) == since;
		glk_unlock_short(&lock, since, &calls);
		glk_times_read(&calls, &h);
		exact &= h.count == i + 1;
	}
	ok(exact, "each short call is counted at once");
	is_int(timed, 4, "four of 53 were timed");
	glk_times_read(&holds, &h);
	is_int((int64_t)h.count, 3 * GLK_TIMES_EACH + 1,
		"the lock has those until the last that was timed");
	ok(h.sum >= h.longest && h.longest > 0, "with what those took");
	glk_lock_short(&lock, 0);
	glk_lock_lengthen(&lock);
	glk_unlock_since(&lock, glk_clock_ticks(), &calls);
	glk_times_read(&calls, &h);
	is_int((int64_t)h.count, 3 * GLK_TIMES_EACH + 6,
		"and one that did not stay short");
	glk_lock_fini(&lock);
}

static struct glk_lock taken;

/* So many short turns by which nobody waits. */
static void pass(unsigned turns, struct glk_times *calls)
{
	for (unsigned i = 0; i < turns; i++) {
		int64_t since = glk_times_due(calls) ? glk_clock_ticks() : 0;

		glk_unlock_short(&taken, glk_lock_short(&taken, since), calls);
	}
}

/* One more, which has to wait. */
static void *wait_for_turn(void *arg)
{
	pass(1, arg);
	return NULL;
}

/* A turn that had to wait is told of for itself: those that were not timed had not. */
static void told_waited(void)
{
	struct glk_times holds = {0}, calls = {0};
	struct glake_histogram h;
	pthread_t thread;
	int64_t unused;

	glk_lock_init(&taken, GLK_RANK_DEVICE);
	glk_lock_time(&taken, CLOCK_MONOTONIC);
	taken.holds = &holds;
	for (unsigned turns = 2 * GLK_TIMES_EACH - 1; turns; turns /= 3) {
		pass(turns, &calls);
		glk_lock(&taken);
		pthread_create(&thread, NULL, wait_for_turn, &calls);
		while (!glk_load_relaxed(&taken.waiters))
			sched_yield();
		spend(50 * WHILE, &unused);
		glk_unlock(&taken);
		pthread_join(thread, NULL);
		pass(1, &calls);
	}
	glk_times_read(&calls, &h);
	is_int((int64_t)h.count, 31 + 10 + 3 + 1 + 4 * 2, "all are counted");
	ok(h.sum >= 4 * 49 * WHILE && h.sum < 5 * 50 * WHILE,
		"four that waited for 100 ms: %" PRIu64 " ns", h.sum);
	glk_lock_fini(&taken);
}

/* Whether what is read of times has gone back since. */
static bool went_back(const struct glk_times *times, struct glake_histogram *before)
{
	struct glake_histogram now;
	bool back;

	glk_times_read(times, &now);
	back = now.count < before->count || now.sum < before->sum ||
		now.longest < before->longest;
	for (int i = 0; i < GLAKE_HISTOGRAM_BUCKETS; i++)
		back |= now.at[i] < before->at[i];
	*before = now;
	return back;
}

/* Of short calls, each tenth as many ns as the one before. */
static void goes_on(void)
{
	struct glake_histogram before = {0};
	struct glk_times times = {0};
	bool back = false;

	for (uint64_t ns = 100000000; ns; ns /= 10) {
		glk_times_count_typical(&times, ns);
		back |= went_back(&times, &before);
		for (unsigned i = 1; i < GLK_TIMES_EACH; i++) {
			glk_times_pass(&times, 1);
			back |= went_back(&times, &before);
		}
	}
	ok(!back, "what is told of short calls does not go back");
	is_int((int64_t)before.sum, INT64_C(111111111) * GLK_TIMES_EACH,
		"and each stands for as many");
}

#define ROUNDS	20000
#define THREADS 4

static struct glk_times shared;
static glk_atomic(bool) done;

static void *write_some(void *arg)
{
	for (uint64_t i = 0; i < ROUNDS; i++)
		glk_times_share(&shared, (i << 3) + (uintptr_t)arg);
	return NULL;
}

/* What is read never goes back. */
static void *read_all(void *arg)
{
	struct glake_histogram before = {0};
	bool *back = arg;

	do {
		*back |= went_back(&shared, &before);
	} while (!glk_load_relaxed(&done));
	return NULL;
}

static void threads(void)
{
	pthread_t thread[THREADS], reader;
	struct glake_histogram h;
	uint64_t sum = 0;
	bool back = false;

	pthread_create(&reader, NULL, read_all, &back);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, write_some, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	glk_store_relaxed(&done, true);
	pthread_join(reader, NULL);
	glk_times_read(&shared, &h);
	for (uint64_t i = 0; i < ROUNDS; i++)
		sum += (i << 3) * THREADS + THREADS * (THREADS - 1) / 2;
	is_int((int64_t)h.count, ROUNDS * THREADS, "threads lose no call");
	is_int((int64_t)h.sum, (int64_t)sum, "nor its time");
	is_int((int64_t)h.longest, ((ROUNDS - 1) << 3) + THREADS - 1, "nor the longest");
	ok(!back, "and nothing went back for a reader");
}

static struct glk_times quick;

static void *pass_some(void *arg)
{
	for (uint64_t i = 0; i < ROUNDS; i++) {
		if (glk_times_due(&quick))
			glk_times_count_typical(&quick, 100 + (i * 7919 & 4095));
		else
			glk_times_pass(&quick, 1);
	}
	glk_store_relaxed(&done, true);
	return arg;
}

/* Short calls of one thread, and a reader. */
static void short_calls(void)
{
	struct glake_histogram before = {0};
	pthread_t thread;
	bool back = false;

	glk_store_relaxed(&done, false);
	pthread_create(&thread, NULL, pass_some, NULL);
	do {
		back |= went_back(&quick, &before);
	} while (!glk_load_relaxed(&done));
	pthread_join(thread, NULL);
	back |= went_back(&quick, &before);
	ok(!back, "nor of short calls for a reader");
	is_int((int64_t)before.count, ROUNDS, "who finds all of them");
}

int main(void)
{
	tap_plan(33);
	bounds();
	ticks();
	told(CLOCK_MONOTONIC, "wall");
	told(CLOCK_THREAD_CPUTIME_ID, "cpu");
	told_short();
	told_waited();
	goes_on();
	threads();
	short_calls();
	return tap_done();
}
