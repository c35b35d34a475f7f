/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A thread that calls nothing of the driver, so that nothing of it can keep it waiting. Where a turn of who
 * feeds copies is stuck in a call, another call of the program may have the driver to itself and wait for a
 * stream that stands at a word: neither would ever go on. It writes the words.
 *
 * It gives up the turn that it has seen, or none: the turn's word is changed by one compare and swap, which fails
 * when the turn has ended. Who ends a turn that was given up waits until the words are written, so that none of a
 * later copy is.
 */
#include "tier/io/feed.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>

#define PATIENCE_NS INT64_C(30000000000)
/* Looks in such a time. */
#define LOOKS 4

static void write_words(struct glk_feeder *feeder)
{
	for (unsigned i = 0; i < GLK_FEEDS; i++)
		/* pairs with: streams, which read it in the memory of the host */
		glk_store_release(&feeder->words[i], glk_load_relaxed(&feeder->value[i]));
}

/* False: it has ended. */
static bool give_up(struct glk_feeder *feeder, int64_t since)
{
	/* pairs with: the exchange in glk_guard_leave */
	return glk_cas_acq_rel(&feeder->turn, &since, -since);
}

static void *run(void *arg)
{
	struct glk_feeder *feeder = arg;
	int64_t patience, since, seen = 0;
	unsigned looks = 0;

	glk_lock(&feeder->guard_lock);
	while (!feeder->guard_stop) {
		patience = glk_load_relaxed(&feeder->patience);
		if (glk_load_relaxed(&feeder->is_busy))
			glk_lock_wait_for(&feeder->guard_lock, &feeder->guard_wake,
				patience / LOOKS);
		else
			glk_lock_wait(&feeder->guard_lock, &feeder->guard_wake);
		since = glk_load_relaxed(&feeder->turn);
		looks = since > 0 && since == seen ? looks + 1 : 0;
		seen = since;
		/* while the process is stopped the clock goes on, and there are no looks */
		if (looks >= LOOKS && glk_clock_ns() - since > patience &&
			give_up(feeder, since))
			write_words(feeder);
	}
	glk_unlock(&feeder->guard_lock);
	return NULL;
}

int glk_guard_start(struct glk_feeder *feeder)
{
	glk_lock_init(&feeder->guard_lock, GLK_RANK_GUARD);
	glk_lock_cond_init(&feeder->guard_wake);
	glk_store_relaxed(&feeder->patience, PATIENCE_NS);
	feeder->is_guarded =
		!glk_thread_start(&feeder->guard, "glake-guard", run, feeder);
	if (feeder->is_guarded)
		return 0;
	glk_guard_stop(feeder);
	return -EAGAIN;
}

void glk_guard_stop(struct glk_feeder *feeder)
{
	if (feeder->is_guarded) {
		glk_lock(&feeder->guard_lock);
		feeder->guard_stop = true;
		pthread_cond_signal(&feeder->guard_wake);
		glk_unlock(&feeder->guard_lock);
		pthread_join(feeder->guard, NULL);
	}
	pthread_cond_destroy(&feeder->guard_wake);
	glk_lock_fini(&feeder->guard_lock);
}

void glk_guard_wake(struct glk_feeder *feeder)
{
	glk_lock(&feeder->guard_lock);
	if (!glk_load_relaxed(&feeder->is_busy))
		pthread_cond_signal(&feeder->guard_wake);
	glk_store_relaxed(&feeder->is_busy, true);
	glk_unlock(&feeder->guard_lock);
}

void glk_guard_enter(struct glk_feeder *feeder)
{
	glk_store_relaxed(&feeder->turn, glk_clock_ns());
}

bool glk_guard_leave(struct glk_feeder *feeder, bool is_busy)
{
	/* pairs with: the compare and swap in give_up */
	bool was = glk_xchg_acq_rel(&feeder->turn, 0) < 0;

	if (was) {
		/* who gave it up has the lock until all is written */
		glk_lock(&feeder->guard_lock);
		glk_unlock(&feeder->guard_lock);
	}
	glk_store_relaxed(&feeder->is_busy, is_busy);
	return was;
}

bool glk_guard_gave_up(const struct glk_feeder *feeder)
{
	return glk_load_relaxed(&feeder->turn) < 0;
}
