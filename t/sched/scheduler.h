/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SCHED_H
#define GLK_SCHED_H

/*
 * What the library calls where it is compiled for the tests' scheduler, with GLK_SCHED: see scheduler.c.
 * base/atomic.h has a point before each of its operations, base/rcu.h tells of sections.
 */
#include <stdbool.h>
#include <stdint.h>

/* Another thread may go on from here. */
void glk_sched_point(void);
/* A compare-and-swap that may fail without a reason fails now. */
bool glk_sched_fails(void);
/* A read section of RCU begins, 1, or ends, -1. */
void glk_sched_section(int step);

/* The seed of this run. */
uint64_t glk_sched_seed(void);
/* A program that starts a thread fails. */
extern bool glk_sched_one_thread;
/* Memory that is touched ahead is there. */
extern bool glk_sched_real_memory;

#endif
