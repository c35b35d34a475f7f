/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A lock that is divided: threads with parts do not exclude each other, who has all of it excludes them all. */
#include "base/atomic.h"
#include "base/lock.h"
#include "base/times.h"
#include "tap.h"

#include <pthread.h>
#include <sched.h>

#define PARTS 3
#define TURNS 4000

static struct glk_lock_part part[PARTS];
static struct glk_lock_parts parts;
static struct glk_lock lock;
static struct glk_times calls;
static unsigned joins;

/* Without any of them: under the lock, or a part of it. */
static unsigned by_part[PARTS], sum, told;

static void joined(struct glk_lock *of)
{
	joins += of == &lock;
	for (unsigned i = 0; i < PARTS; i++) {
		sum += by_part[i];
		by_part[i] = 0;
	}
}

static void begin(void)
{
	parts = (struct glk_lock_parts){part, PARTS, joined};
	glk_lock_init(&lock, GLK_RANK_DEVICE);
	glk_lock_time(&lock, CLOCK_MONOTONIC);
	glk_lock(&lock);
	glk_lock_make_parts(&lock, &parts);
	glk_unlock(&lock);
	joins = sum = told = 0;
}

static void end(void)
{
	glk_lock_end_parts(&lock);
	glk_lock_fini(&lock);
}

static void divide(void)
{
	glk_lock_short(&lock, 0);
	glk_lock_divide(&lock);
	glk_unlock_short(&lock, 0, &calls);
}

/* Whether a thread of its own has a part at once, and not all of it. */
static void *try_part(void *arg)
{
	unsigned *which = arg;
	int64_t since = 0;
	bool had = glk_lock_part(&lock, *which, &since);

	if (had)
		glk_unlock_part(&lock, *which);
	else
		glk_unlock_short(&lock, since, &calls);
	*which = had;
	return NULL;
}

static bool has_part(unsigned which)
{
	pthread_t thread;

	pthread_create(&thread, NULL, try_part, &which);
	pthread_join(thread, NULL);
	return which;
}

static void divides(void)
{
	int64_t since = 0;

	begin();
	ok(!has_part(0), "a lock that is not divided is had as a whole");
	divide();
	ok(glk_lock_part(&lock, 0, &since), "one that is, by its parts");
	ok(glk_lock_is_held(), "which are the lock, as ranks go");
	ok(has_part(1), "another thread has another one meanwhile");
	by_part[0] = 5;
	glk_unlock_part(&lock, 0);
	ok(!glk_lock_is_held(), "and given back none is held");
	is_int(joins, 0, "nobody has had all of it");
	glk_lock(&lock);
	is_int(joins, 1, "who has is told first");
	is_int(sum, 5, "of what was done by parts");
	glk_unlock(&lock);
	ok(!has_part(1), "and it is divided no longer");
	glk_lock(&lock);
	is_int(joins, 1, "so there is nothing to tell");
	glk_unlock(&lock);
	divide();
	ok(glk_lock_try(&lock), "one that is divided is nobody's");
	is_int(joins, 2, "who tries has all of it");
	glk_unlock(&lock);
	end();
}

static glk_atomic(unsigned) step;

static void until(unsigned what)
{
	/* pairs with: to */
	while (glk_load_acquire(&step) != what)
		sched_yield();
}

static void to(unsigned what)
{
	glk_store_release(&step, what); /* pairs with: until */
}

static void *keep_part(void *arg)
{
	int64_t since = 0;

	(void)arg;
	if (glk_lock_part(&lock, 2, &since)) {
		to(1);
		for (int i = 0; i < 50; i++)
			sched_yield();
		told++;
		glk_unlock_part(&lock, 2);
	}
	return NULL;
}

static void waits_for_part(void)
{
	pthread_t thread;

	begin();
	divide();
	to(0);
	pthread_create(&thread, NULL, keep_part, NULL);
	until(1);
	glk_lock(&lock);
	is_int(told, 1, "who takes all of it waits for who has a part");
	glk_unlock(&lock);
	pthread_join(thread, NULL);
	end();
}

static void *want_part(void *arg)
{
	bool *had = arg;
	int64_t since = 0;

	*had = glk_lock_part(&lock, 1, &since);
	if (*had)
		glk_unlock_part(&lock, 1);
	else
		glk_unlock_short(&lock, since, &calls);
	return NULL;
}

/* Who holds it divides it, while another thread waits, or does not. */
static bool had_by_waiting(bool divided)
{
	pthread_t thread;
	bool had;

	begin();
	glk_lock_short(&lock, 0);
	pthread_create(&thread, NULL, want_part, &had);
	while (!glk_load_relaxed(&lock.waiters))
		sched_yield();
	if (divided)
		glk_lock_divide(&lock);
	glk_unlock_short(&lock, 0, &calls);
	pthread_join(thread, NULL);
	end();
	return had;
}

static void divided_by_then(void)
{
	ok(had_by_waiting(true), "who waits has his part once it is divided");
	is_int(joins, 0, "and nobody else is disturbed");
	ok(!had_by_waiting(false), "or all of it");
}

/* By parts, and now and then all of it. */
static void *work(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < TURNS; i++) {
		int64_t since = 0;

		if (i % 50 == me) {
			glk_lock(&lock);
			sum++;
			glk_lock_pause(&lock);
			glk_lock_resume(&lock);
			told++;
			glk_unlock(&lock);
		} else if (glk_lock_part(&lock, me, &since)) {
			by_part[me]++;
			glk_unlock_part(&lock, me);
		} else {
			sum++;
			if (i % 3)
				glk_lock_divide(&lock);
			glk_unlock_short(&lock, since, &calls);
		}
	}
	return NULL;
}

static void together(void)
{
	pthread_t threads[PARTS];

	begin();
	for (uintptr_t i = 0; i < PARTS; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (unsigned i = 0; i < PARTS; i++)
		pthread_join(threads[i], NULL);
	glk_lock(&lock);
	is_int(sum, PARTS * TURNS, "all that three threads did by turns of both kinds");
	is_int(told, PARTS * TURNS / 50, "with those of all of it");
	glk_unlock(&lock);
	ok(joins > 0, "it was divided and joined again");
	end();
}

int main(void)
{
	tap_plan(19);
	divides();
	waits_for_part();
	divided_by_then();
	together();
	return tap_done();
}
