/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_LOCK_H
#define GLK_BASE_LOCK_H

/*
 * The mutex of the slow paths, with a rank: a thread takes locks in rising rank only, and
 * gives up what it holds. Debug builds check that. No lock is taken on a hit.
 *
 * Cancellation	is put off from a thread's first lock to its last unlock, in whatever order
 *		they are given back, see cancel.h
 * Short turns	of one who does a bounded number of steps and comes to no wait, no call of the
 *		driver and no point of cancellation cost half: glk_lock_short()
 * Fork		leaves static locks free in the child, and the others as they were: they belong
 *		to contexts, which a child does not enter
 * Messages	that a thread raises while it holds one go out when it holds none, see log.h
 * Parts	of what a lock guards can be taken alone for a short turn, while it is divided. Whoever
 *		takes the lock waits for those who have a part, and has all of it: it is divided no
 *		longer. So a part is for one who writes what nobody has that takes another part
 * Time		a lock that was asked to keeps the longest time that it was held, and how long
 *		each time was where it is told of. It reads the processor's counter twice a turn,
 *		20 ns together
 */
#include "base/atomic.h"
#include "base/cancel.h"
#include "base/log.h"
#include "base/times.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Outermost first. */
enum glk_rank {
	GLK_RANK_FORK = 1, /* installing the hooks of fork */
	GLK_RANK_MIRROR,   /* a block of another process that is being opened */
	GLK_RANK_SERVED,   /* contexts that come to the socket of the process, and go */
	GLK_RANK_ANSWER,   /* a question that is being answered there */
	GLK_RANK_COPY_JOB, /* the table of jobs of copies */
	GLK_RANK_CONTEXT,  /* the list of contexts */
	GLK_RANK_TAG,	   /* names of tags */
	GLK_RANK_KVS,	   /* the list of caches of tokens */
	GLK_RANK_KV,	   /* one of them */
	GLK_RANK_CONF,
	GLK_RANK_MANAGED,    /* counters and events of managed memory */
	GLK_RANK_DEPENDENCY, /* events of the program, from the call to the note */
	GLK_RANK_START,	     /* the first request of a GPU */
	GLK_RANK_GUARD,	     /* what guard keeps of a GPU */
	GLK_RANK_HOSTPOOL,   /* locked memory of the host for the program */
	GLK_RANK_SAYING,     /* what is said of managed memory of a GPU */
	GLK_RANK_STREAM,     /* adding to the table of streams of a GPU */
	GLK_RANK_DEVICE,     /* everything of one GPU: extents, page tables, streams */
	GLK_RANK_COPY,	     /* paths of copies and what is queued on them */
	GLK_RANK_SEAT,	     /* seats of threads that come and go */
	GLK_RANK_TRACE,	     /* lanes of threads that come and go */
	GLK_RANK_NODE,	     /* growth of a node */
	GLK_RANK_TOUCH,	     /* memory of the host that threads touch */
	GLK_RANK_CREW,	     /* memory of the host that threads copy */
	GLK_RANK_TICKET,     /* the table of tickets */
	GLK_RANK_INDEX,	     /* the index of all addresses */
	GLK_RANK_DRIVER,     /* inside a backend of the driver table */
	GLK_RANK_LOG,
	GLK_RANK_THREAD, /* the first record of a thread */
	GLK_RANK_COUNT,
};

enum glk_timing {
	GLK_UNTIMED,
	GLK_IN_TICKS, /* of the processor's counter: CLOCK_MONOTONIC */
	GLK_IN_NS,    /* of another clock */
};

struct glk_lock;

struct glk_lock_part {
	_Alignas(64) pthread_mutex_t mutex;
};

struct glk_lock_parts {
	struct glk_lock_part *at;
	uint32_t count;
	/* Called by who has taken all of a lock that was divided. */
	void (*joined)(struct glk_lock *lock);
};

struct glk_lock {
	pthread_mutex_t mutex;
	enum glk_rank rank;
	bool is_static;
	uint8_t timed;	 /* enum glk_timing */
	clockid_t clock; /* if timed */
	int64_t since;	 /* when it was taken, in ticks or ns */
	int64_t longest; /* the longest turn, likewise */
	/* The longest that it was held, ns, but for the turn under way. Under the lock: who
	 * holds it may read it. */
	int64_t hold_max;
	struct glk_times *holds; /* if timed, all turns; NULL: nobody wants to know */
	/* Threads that found it taken, and those that let one of them pass: see glk_lock_yield(). */
	glk_atomic(uint32_t) waiters;
	glk_atomic(bool) divided; /* written by who has it */
	uint32_t letting;
	pthread_cond_t passed;
	struct glk_lock_parts *parts; /* NULL: it is never divided */
};

void glk_lock_init(struct glk_lock *lock, enum glk_rank rank);
void glk_lock_fini(struct glk_lock *lock);
void glk_lock(struct glk_lock *lock);
/* For one that is not static: false, and it is somebody's. */
bool glk_lock_try(struct glk_lock *lock);
void glk_unlock(struct glk_lock *lock);
/* As glk_unlock() for a timed one, at the end of what began at a time by glk_clock_ticks() and is told of in
 * `times`, which the lock guards. */
void glk_unlock_since(struct glk_lock *lock, int64_t since, struct glk_times *times);
/*
 * Has the lock keep the longest time that it is held, by CLOCK_MONOTONIC, or by the processor
 * time of the thread that holds it: CLOCK_THREAD_CPUTIME_ID, for measurement where others take
 * the processor away. Before any thread takes it.
 */
void glk_lock_time(struct glk_lock *lock, clockid_t clock);
/* Has it begin anew; under the lock. */
void glk_lock_forget(struct glk_lock *lock);
/* pthread_cond_wait() for one who holds it, who does not hold it meanwhile. */
void glk_lock_wait(struct glk_lock *lock, pthread_cond_t *wake);

/* The same for so many ns at most; false: they have passed. The condition was made by
 * glk_lock_cond_init(), and tells time by CLOCK_MONOTONIC. */
bool glk_lock_wait_for(struct glk_lock *lock, pthread_cond_t *wake, int64_t ns);
void glk_lock_cond_init(pthread_cond_t *cond);

/*
 * One who holds it gives it up for a while, to call what takes long, and takes it again. He gives
 * up no other one meanwhile, and takes none of a lower rank. Cancellation stays off, and messages
 * wait, as if he had kept it.
 */
void glk_lock_pause(struct glk_lock *lock);
void glk_lock_resume(struct glk_lock *lock);

/*
 * The same at once: between two, but where others want it one of them has had it meanwhile. A mutex goes to
 * whoever comes first, so one who pauses and resumes in a walk has it again long before they have woken. It
 * waits no longer than a quarter of a second. Not for static locks, whose condition has another clock.
 */
void glk_lock_yield(struct glk_lock *lock);

/* Whether the calling thread holds any, or has given one up for a while. */
bool glk_lock_is_held(void);

/*
 * For statically allocated locks, of which the library has no more than GLK_LOCK_STATIC_MAX. In a
 * forked child they are new: the thread that held one is none of the child's. What they guard is
 * as that thread left it.
 */
#define GLK_LOCK_INIT(r)                                                                 \
	{                                                                                \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (r), .is_static = true,      \
		.passed = PTHREAD_COND_INITIALIZER                                       \
	}
#define GLK_LOCK_STATIC_MAX 16

/* Makes them so; called in each child, while it has one thread. */
void glk_lock_forked(void);

/* What the calling thread holds, together, which is one address to compute. */
struct glk_lock_self {
	uint32_t ranks;
	uint32_t paused;	  /* locks that it will take again */
	bool waited;		  /* for the short turn that it has */
	struct glk_cancel cancel; /* while it holds any */
};
extern _Thread_local struct glk_lock_self glk_lock_self;

/* lock.c, for what follows: the lock of a short turn is somebody's; a turn begins; one that is timed ends; messages go
 * out that were kept. */
int64_t glk_lock_short_wait(struct glk_lock *lock, int64_t since)
	__attribute__((noinline));
void glk_lock_begin(struct glk_lock *lock) __attribute__((noinline));
void glk_lock_count_short(struct glk_lock *lock, int64_t since, struct glk_times *times)
	__attribute__((noinline));
void glk_lock_say_kept(void) __attribute__((noinline));
void glk_lock_join(struct glk_lock *lock) __attribute__((noinline));

/* One of no rank was not made. */
static inline void glk_lock_add_rank(const struct glk_lock *lock)
{
	assert(lock->rank && !(glk_lock_self.ranks >> lock->rank));
	glk_lock_self.ranks |= 1u << lock->rank;
}

static inline void glk_lock_give_back_of(
	const struct glk_lock *lock, pthread_mutex_t *mutex)
{
	uint32_t others = glk_lock_self.ranks & ~(1u << lock->rank);

	assert(glk_lock_self.ranks >> lock->rank & 1);
	pthread_mutex_unlock(mutex);
	glk_lock_self.ranks = others;
	if (others)
		return;
	if (glk_log_has_kept())
		glk_lock_say_kept();
	glk_cancel_put_back(&glk_lock_self.cancel);
}

static inline void glk_lock_give_back(struct glk_lock *lock)
{
	glk_lock_give_back_of(lock, &lock->mutex);
}

/*
 * For a turn that is short, see above; not of a static lock. It is timed only where `since` says when the caller
 * came, by glk_clock_ticks(), or where he has to wait; when he came, or 0, is what it answers. Before he does
 * anything else under it he calls glk_lock_lengthen(), and the turn is like any other.
 */
static inline int64_t glk_lock_short(struct glk_lock *lock, int64_t since)
{
	if (!glk_lock_self.ranks)
		glk_cancel_put_off_type(&glk_lock_self.cancel);
	glk_lock_add_rank(lock);
	if (pthread_mutex_trylock(&lock->mutex))
		return glk_lock_short_wait(lock, since);
	if (glk_load_relaxed(&lock->divided))
		glk_lock_join(lock);
	if (since)
		glk_lock_begin(lock);
	return since;
}

void glk_lock_lengthen(struct glk_lock *lock);

/* Ends one that stayed short. `times` is of calls as this one: see glk_times_due(). Those that were not timed are turns of
 * the lock with the next one of `times` that is. */
static inline void glk_unlock_short(
	struct glk_lock *lock, int64_t since, struct glk_times *times)
{
	if (since)
		glk_lock_count_short(lock, since, times);
	else
		glk_times_pass(times, 1);
	glk_lock_give_back(lock);
}

/* Gives parts to one that has none, by who has it; and before they go. */
void glk_lock_make_parts(struct glk_lock *lock, struct glk_lock_parts *parts);
void glk_lock_end_parts(struct glk_lock *lock);

/* Divides one that the caller has, in a short turn of which nothing is left to do. */
static inline void glk_lock_divide(struct glk_lock *lock)
{
	/* pairs with: glk_lock_part */
	glk_store_release(&lock->divided, true);
}

/* lock.c: the rest of what follows, where it is divided or somebody's. */
bool glk_lock_part_late(struct glk_lock *lock, uint32_t part, int64_t *since)
	__attribute__((noinline));

/*
 * Takes a part of it for a short turn, if it is divided, also by the end of a wait for it, or else all of it as
 * glk_lock_short() does, with *since. Whether it is the part, which is one for who writes what is nobody's else.
 */
static inline bool glk_lock_part(struct glk_lock *lock, uint32_t part, int64_t *since)
{
	if (!glk_lock_self.ranks)
		glk_cancel_put_off_type(&glk_lock_self.cancel);
	glk_lock_add_rank(lock);
	if (glk_load_relaxed(&lock->divided) || pthread_mutex_trylock(&lock->mutex))
		return glk_lock_part_late(lock, part, since);
	if (glk_load_relaxed(&lock->divided))
		glk_lock_join(lock);
	if (*since)
		glk_lock_begin(lock);
	return false;
}

static inline void glk_unlock_part(struct glk_lock *lock, uint32_t part)
{
	glk_lock_give_back_of(lock, &lock->parts->at[part].mutex);
}

#endif
