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

/* The same as hardware counts it, by which the driver's modules tell time. */
static inline int64_t glk_clock_raw_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Ticks of a counter of the processor that goes on at one rate, for differences; ns where it has
 * none that programs may read, and where the tests' scheduler has a clock of its own. */
static inline int64_t glk_clock_ticks(void)
{
#if defined(__x86_64__) && !defined(GLK_SCHED)
	return (int64_t)__builtin_ia32_rdtsc();
#else
	return glk_clock_ns();
#endif
}

#endif
