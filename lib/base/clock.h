/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_CLOCK_H
#define GLK_BASE_CLOCK_H

/* The monotonic clock in nanoseconds, 30 ns a call: never on a hit. */

#include <stdint.h>
#include <time.h>

static inline int64_t glk_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

#endif
