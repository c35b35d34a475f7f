/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ranks a thread holds are a set of bits. Debug builds assert that a new one lies above all
 * of them, and that who gives a lock up, for good or to wait, holds one of its rank. They lie in
 * thread-local storage and not in the thread's record, which a thread may have to do without: that
 * it holds a lock is known all the same.
 *
 * A thread puts cancellation off with its first lock and restores it behind its last one, so what
 * was found is the thread's too. It is restored while the thread holds none: what it runs at its
 * end may take locks.
 *
 * A thread that finds a lock taken counts itself before it waits, so that one who holds it in a long
 * walk knows of it, and sleeps until somebody who waited has it. Those who were asleep on a condition of
 * their own are not counted: they come when nobody is there.
 *
 * Static locks write themselves down before they are taken for the first time, so that a forked
 * child finds every one that can be held.
 */
#include "base/lock.h"

#include "base/atomic.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/times.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>

_Thread_local struct glk_lock_self glk_lock_self;

/* Below all ranks: the thread will take a lock again that it has given up for a while. */
#define PAUSED 1u

static glk_atomic(struct glk_lock *) statics[GLK_LOCK_STATIC_MAX];

static __attribute__((noinline)) void write_down(struct glk_lock *lock)
{
	struct glk_lock *there;

	for (int i = 0; i < GLK_LOCK_STATIC_MAX; i++) {
		there = NULL;
		/* pairs with: the load in glk_lock_forked */
		if (glk_cas_acq_rel(&statics[i], &there, lock) || there == lock)
			return;
	}
	assert(false && "GLK_LOCK_STATIC_MAX is too small");
}

void glk_lock_forked(void)
{
	struct glk_lock *lock;

	for (int i = 0; i < GLK_LOCK_STATIC_MAX; i++) {
		lock = glk_load_acquire(&statics[i]); /* pairs with: write_down */
		if (lock)
			*lock = (struct glk_lock)GLK_LOCK_INIT(lock->rank);
	}
	glk_lock_self.ranks = glk_lock_self.paused = 0;
}

void glk_lock_init(struct glk_lock *lock, enum glk_rank rank)
{
	pthread_mutex_init(&lock->mutex, NULL);
	glk_lock_cond_init(&lock->passed);
	glk_store_relaxed(&lock->waiters, 0);
	glk_store_relaxed(&lock->divided, false);
	lock->parts = NULL;
	lock->letting = 0;
	lock->rank = rank;
	lock->is_static = false;
	lock->timed = GLK_UNTIMED;
	lock->holds = NULL;
}

/* Out of line, so that who takes a lock needs no room for it. */
static __attribute__((noinline)) int64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* What a turn is told in: ticks of the processor's counter where it has one, a third of the cost
 * of the clock; or ns. */
static int64_t now(const struct glk_lock *lock)
{
	return lock->timed == GLK_IN_TICKS ? glk_clock_ticks() : read_clock(lock->clock);
}

void glk_lock_time(struct glk_lock *lock, clockid_t clock)
{
	glk_times_settle();
	lock->timed = clock == CLOCK_MONOTONIC ? GLK_IN_TICKS : GLK_IN_NS;
	lock->clock = clock;
	lock->hold_max = 0;
	lock->longest = 0;
}

void glk_lock_forget(struct glk_lock *lock)
{
	lock->longest = 0;
	lock->hold_max = 0;
}

void glk_lock_make_parts(struct glk_lock *lock, struct glk_lock_parts *parts)
{
	for (uint32_t i = 0; i < parts->count; i++)
		pthread_mutex_init(&parts->at[i].mutex, NULL);
	lock->parts = parts;
}

void glk_lock_end_parts(struct glk_lock *lock)
{
	for (uint32_t i = 0; lock->parts && i < lock->parts->count; i++)
		pthread_mutex_destroy(&lock->parts->at[i].mutex);
	lock->parts = NULL;
}

void glk_lock_join(struct glk_lock *lock)
{
	/* pairs with: the second look in take_part, by the mutex */
	glk_store_relaxed(&lock->divided, false);
	for (uint32_t i = 0; i < lock->parts->count; i++) {
		pthread_mutex_lock(&lock->parts->at[i].mutex);
		pthread_mutex_unlock(&lock->parts->at[i].mutex);
	}
	lock->parts->joined(lock);
}

/* Whoever has the mutex has all of it. */
static inline void begin_turn(struct glk_lock *lock)
{
	if (glk_load_relaxed(&lock->divided))
		glk_lock_join(lock);
	if (lock->timed)
		lock->since = now(lock);
}

static __attribute__((noinline)) void note_longest(struct glk_lock *lock, int64_t held)
{
	uint64_t ns = lock->timed == GLK_IN_TICKS ? glk_times_ns(held) : (uint64_t)held;

	lock->longest = held;
	lock->hold_max = (int64_t)ns;
	if (lock->holds && ns > glk_load_relaxed(&lock->holds->longest))
		glk_store_relaxed(&lock->holds->longest, ns);
}

/* When that was, as `since` is told in. */
static inline int64_t end_turn_as(
	struct glk_lock *lock, void (*count)(struct glk_times *times, uint64_t ns))
{
	int64_t at, held;

	if (!lock->timed)
		return 0;
	at = now(lock);
	held = at - lock->since;
	if (lock->holds)
		count(lock->holds,
			lock->timed == GLK_IN_TICKS ? glk_times_ns(held)
						    : (uint64_t)held);
	if (held > lock->longest)
		note_longest(lock, held);
	return at;
}

static void count_one(struct glk_times *times, uint64_t ns)
{
	glk_times_count(times, ns);
}

static inline int64_t end_turn(struct glk_lock *lock)
{
	return end_turn_as(lock, count_one);
}

void glk_lock_fini(struct glk_lock *lock)
{
	pthread_cond_destroy(&lock->passed);
	pthread_mutex_destroy(&lock->mutex);
}

/* When that was. */
static __attribute__((noinline)) int64_t wait_for(struct glk_lock *lock)
{
	int64_t since = glk_clock_ticks();

	glk_add_relaxed(&lock->waiters, 1);
	pthread_mutex_lock(&lock->mutex);
	glk_sub_relaxed(&lock->waiters, 1);
	if (lock->letting)
		pthread_cond_broadcast(&lock->passed);
	return since;
}

static inline void take(struct glk_lock *lock)
{
	if (pthread_mutex_trylock(&lock->mutex))
		wait_for(lock);
	begin_turn(lock);
}

void glk_lock(struct glk_lock *lock)
{
	if (!glk_lock_self.ranks)
		glk_cancel_put_off(&glk_lock_self.cancel);
	else
		glk_cancel_put_off_rest(&glk_lock_self.cancel);
	glk_lock_add_rank(lock);
	if (lock->is_static)
		write_down(lock);
	take(lock);
}

bool glk_lock_try(struct glk_lock *lock)
{
	if (pthread_mutex_trylock(&lock->mutex))
		return false;
	if (!glk_lock_self.ranks)
		glk_cancel_put_off(&glk_lock_self.cancel);
	else
		glk_cancel_put_off_rest(&glk_lock_self.cancel);
	glk_lock_add_rank(lock);
	begin_turn(lock);
	return true;
}

int64_t glk_lock_short_wait(struct glk_lock *lock, int64_t since)
{
	int64_t came = wait_for(lock);

	glk_lock_self.waited = true;
	begin_turn(lock);
	return since ? since : came;
}

/* Whether it is divided, with the part. */
static bool take_part(struct glk_lock *lock, pthread_mutex_t *part)
{
	if (!glk_load_relaxed(&lock->divided))
		return false;
	pthread_mutex_lock(part);
	/* pairs with: glk_lock_divide; who takes all of it clears that before he comes for the part */
	if (glk_load_acquire(&lock->divided))
		return true;
	pthread_mutex_unlock(part);
	return false;
}

bool glk_lock_part_late(struct glk_lock *lock, uint32_t part, int64_t *since)
{
	pthread_mutex_t *mutex = &lock->parts->at[part].mutex;
	int64_t came = 0;

	for (;;) {
		if (take_part(lock, mutex))
			return true;
		if (pthread_mutex_trylock(&lock->mutex))
			came = wait_for(lock);
		if (!glk_load_relaxed(&lock->divided))
			break;
		pthread_mutex_unlock(&lock->mutex);
	}
	if (came) {
		glk_lock_self.waited = true;
		*since = *since ? *since : came;
	}
	if (*since)
		begin_turn(lock);
	return false;
}

void glk_lock_begin(struct glk_lock *lock)
{
	begin_turn(lock);
}

void glk_lock_lengthen(struct glk_lock *lock)
{
	glk_cancel_put_off_rest(&glk_lock_self.cancel);
	glk_lock_self.waited = false;
	begin_turn(lock);
}

/* Whether the thread holds a lock, and no short turn of one. */
static inline bool holds_long(const struct glk_lock *lock)
{
	return glk_lock_self.ranks >> lock->rank & 1 &&
		glk_lock_self.cancel.state != GLK_CANCEL_LEFT;
}

void glk_lock_wait(struct glk_lock *lock, pthread_cond_t *wake)
{
	assert(holds_long(lock));
	end_turn(lock);
	pthread_cond_wait(wake, &lock->mutex);
	begin_turn(lock);
}

void glk_lock_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

bool glk_lock_wait_for(struct glk_lock *lock, pthread_cond_t *wake, int64_t ns)
{
	int64_t until = read_clock(CLOCK_MONOTONIC) + ns;
	struct timespec ts = {
		.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
	int err;

	assert(holds_long(lock));
	end_turn(lock);
	err = pthread_cond_timedwait(wake, &lock->mutex, &ts);
	begin_turn(lock);
	return err != ETIMEDOUT;
}

/* What was found has to outlast this: messages are written under a lock. */
void glk_lock_say_kept(void)
{
	struct glk_cancel was = glk_lock_self.cancel;

	glk_log_flush();
	glk_lock_self.cancel = was;
}

void glk_unlock(struct glk_lock *lock)
{
	end_turn(lock);
	glk_lock_give_back(lock);
}

/* The end of a call, behind that of its turn. */
static inline int64_t end_call(const struct glk_lock *lock, int64_t turn)
{
	return lock->timed == GLK_IN_TICKS ? turn : glk_clock_ticks();
}

/* One that had to wait stands for itself alone: those that were not timed had not. */
void glk_lock_count_short(struct glk_lock *lock, int64_t since, struct glk_times *times)
{
	void (*count)(struct glk_times *, uint64_t) = count_one;
	uint64_t ns;
	int64_t turn;

	if (!glk_lock_self.waited) {
		count = glk_times_count_typical;
		if (lock->holds)
			glk_times_pass(lock->holds, glk_load_relaxed(&times->passed));
	}
	turn = end_turn_as(lock, count);
	ns = glk_times_ns(end_call(lock, turn) - since);

	glk_lock_self.waited = false;
	count(times, ns);
	glk_times_note(times, ns);
}

void glk_unlock_since(struct glk_lock *lock, int64_t since, struct glk_times *times)
{
	int64_t turn = end_turn(lock);

	glk_times_add(times, glk_times_ns(end_call(lock, turn) - since));
	glk_lock_give_back(lock);
}

void glk_lock_pause(struct glk_lock *lock)
{
	assert(holds_long(lock));
	end_turn(lock);
	pthread_mutex_unlock(&lock->mutex);
	glk_lock_self.ranks = (glk_lock_self.ranks & ~(1u << lock->rank)) | PAUSED;
	glk_lock_self.paused++;
}

void glk_lock_resume(struct glk_lock *lock)
{
	assert(!(glk_lock_self.ranks >> lock->rank));
	/* a forked child has none */
	if (glk_lock_self.paused)
		glk_lock_self.paused--;
	if (!glk_lock_self.paused)
		glk_lock_self.ranks &= ~PAUSED;
	glk_lock_self.ranks |= 1u << lock->rank;
	take(lock);
}

/* One who waits may be stopped, as by a signal, until who walks goes on. */
#define PASS_NS INT64_C(250000000)

void glk_lock_yield(struct glk_lock *lock)
{
	/* others that let somebody pass are about to come back */
	if (!glk_load_relaxed(&lock->waiters) && !lock->letting) {
		glk_lock_pause(lock);
		glk_lock_resume(lock);
		return;
	}
	lock->letting++;
	glk_lock_wait_for(lock, &lock->passed, PASS_NS);
	lock->letting--;
	if (lock->letting)
		pthread_cond_broadcast(&lock->passed);
}

bool glk_lock_is_held(void)
{
	return glk_lock_self.ranks;
}
