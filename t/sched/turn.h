/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SCHED_TURN_H
#define GLK_SCHED_TURN_H

/* What the calls that threads wait in (calls.c) want of who decides whose turn it is (scheduler.c). */
#include "scheduler.h"

#include <poll.h>
#include <stdint.h>
#include <time.h>

#define NEVER INT64_MAX
#define DATE_NS                                                                          \
	INT64_C(1800000000000000000) /* CLOCK_REALTIME is so far ahead of CLOCK_MONOTONIC */

/* The calling thread has turns; it has none while others do; no other one can run beside it. */
bool turn_is_ours(void);
bool turn_is_outside(void);
bool turn_is_alone(void);

/* The clock, ns; it goes on by so many. */
int64_t turn_now(void);
void turn_pass(int64_t ns);
uint64_t turn_below(uint64_t n);

/* Returns when somebody woke those who wait for `on`, or its time has come. `where` is for people. */
void turn_wait(const char *where, const void *on, int64_t until);
/* The same at a point of cancellation; the caller holds nothing. */
void turn_wait_cancellable(const char *where, const void *on, int64_t until);
/* For descriptors. */
void turn_wait_polled(struct pollfd *polled, nfds_t count, int64_t until);
/* In a handler of cancellation: it waits for nothing any more. */
void turn_cancelled(void);
void turn_wake(const void *on);
void turn_wake_one(const void *on);

/* Another process may be about to do something. */
bool turn_has_child(void);

#endif
