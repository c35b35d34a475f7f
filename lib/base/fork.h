/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_FORK_H
#define GLK_BASE_FORK_H

/* Counts the forks in this line of processes, so that a child knows what is not its own. The
 * hooks that count lie in rcu.c. */
#include "base/atomic.h"

extern glk_atomic(unsigned) glk_forks;

/* Forks so far: a context of another count is FORKED. */
static inline unsigned glk_fork_generation(void)
{
	return glk_load_relaxed(&glk_forks);
}

/* Has a function called in each child, while it has no thread but the one that forked. One
 * function a process. */
void glk_fork_at_child(void (*fn)(void));

#endif
