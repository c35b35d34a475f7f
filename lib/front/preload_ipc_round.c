/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rounds of asking guests for the pages that they keep: each has a number, and is over when no guest
 * that is still waited for owes an answer to it.
 */
#include "front/preload_ipc.h"

#include <time.h>

/* How long a request for memory waits for guests to let go of some. */
#define RECLAIM_MS 1000

static pthread_mutex_t round_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t round_over;
static pthread_once_t round_once = PTHREAD_ONCE_INIT;
static glk_atomic(uint64_t) wanted;
static uint64_t over;		      /* under round_lock */
static glk_atomic(uint64_t) given_up; /* the last that was waited for in vain */
static glk_atomic(bool) any_lent;

static struct {
	struct glk_preload_seat *seat;
	uint64_t gone; /* bytes, as the library said last */
} looked[GLK_PRELOAD_GPUS_MAX];

/* Whether pages that were out have gone to the driver since it was looked last. */
static bool some_gone(void)
{
	bool some = false;

	for (int i = 0; i < GLK_PRELOAD_GPUS_MAX; i++) {
		struct glk_preload_seat *seat = glk_preload_seat_at(i);
		uint64_t gone = 0;

		if (!seat || !glk_preload_in(seat))
			continue;
		glk_library.export_gone(seat->glake, &gone);
		glk_preload_out(seat);
		glk_preload_inside = true;
		some |= gone != (looked[i].seat == seat ? looked[i].gone : 0);
		looked[i].seat = seat;
		looked[i].gone = gone;
	}
	return some;
}

void glk_preload_ipc_round_end(uint64_t id)
{
	pthread_mutex_lock(&round_lock);
	over = id;
	pthread_cond_broadcast(&round_over);
	pthread_mutex_unlock(&round_lock);
}

static void make_round(void)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&round_over, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

bool glk_preload_ipc_round_look(uint64_t *ret_round)
{
	uint64_t asked = glk_load_relaxed(&wanted);

	pthread_once(&round_once, make_round);
	if (!glk_load_relaxed(&any_lent)) {
		/* the last guest left after somebody had begun to wait for it */
		glk_preload_ipc_round_end(asked);
		return false;
	}
	if (some_gone())
		glk_add_relaxed(&wanted, 1);
	*ret_round = glk_load_relaxed(&wanted);
	return true;
}

uint64_t glk_preload_ipc_round_wanted(void)
{
	return glk_load_relaxed(&wanted);
}

void glk_preload_ipc_round_want(void)
{
	glk_add_relaxed(&wanted, 1);
}

uint64_t glk_preload_ipc_round_given_up(void)
{
	return glk_load_relaxed(&given_up);
}

void glk_preload_ipc_round_lent(bool lent)
{
	glk_store_relaxed(&any_lent, lent);
}

bool glk_preload_ipc_reclaim(void)
{
	struct timespec until;
	bool done, in_time = true;
	uint64_t id;

	if (!glk_load_relaxed(&any_lent) || glk_preload_stopped())
		return false;
	pthread_once(&round_once, make_round);
	id = glk_add_relaxed(&wanted, 1) + 1;
	glk_preload_ipc_wake();
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += RECLAIM_MS / 1000;
	pthread_mutex_lock(&round_lock);
	while (over < id && in_time)
		in_time = !pthread_cond_timedwait(&round_over, &round_lock, &until);
	done = over >= id;
	pthread_mutex_unlock(&round_lock);
	if (!done)
		glk_store_relaxed(&given_up, id);
	return done;
}

void glk_preload_ipc_round_child(void)
{
	round_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
