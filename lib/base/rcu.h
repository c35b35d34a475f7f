/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_RCU_H
#define GLK_BASE_RCU_H

/*
 * Read-copy-update for tables that change rarely: stream tables, span tables, configuration.
 * It guards retired metadata only. It never decides when GPU memory may be reused: a stopped
 * reader would then hold GPU memory.
 *
 * This is the only file that knows liburcu, flavour bp, inlined. A read section costs about
 * 1 ns where the kernel has membarrier(2), 67 ns where it has not.
 *
 * Readers	do not block, allocate or call the driver inside a section, and no pointer
 *		leaves it unless it names something type-stable
 * Writers	build a copy, publish it with glk_rcu_xchg, then wait with glk_rcu_wait, off
 *		every hit, with no section open and no lock held that a reader may want
 * Threads	a thread calls glk_rcu_ready() before its first section. liburcu aborts when
 *		a thread's first section finds no memory for its registry; the probe in
 *		glk_rcu_ready answers -ENOMEM instead, save for a failure between the probe
 *		and the registration
 * Fork		hooks are installed once per process by glk_rcu_init; a child opens no section
 */
#if defined(__SANITIZE_ADDRESS__)
#define GLK_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GLK_ASAN 1
#endif
#endif

/* liburcu 0.13 lays its readers out less aligned than it declares them, harmless in itself;
 * sanitized builds call it out of line, or every inlined section is reported. */
#ifdef GLK_ASAN
extern int urcu_bp_has_sys_membarrier;
#else
#define _LGPL_SOURCE
#endif
#include <urcu-bp.h>

#include "base/atomic.h"
#include "base/fork.h"

#include <stdbool.h>

#if defined(__SANITIZE_THREAD__)
#define GLK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GLK_TSAN 1
#endif
#endif

#ifdef GLK_TSAN
/* liburcu orders by inline assembly, which the sanitizer cannot see; tell it. */
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
extern char glk_rcu_token;
#endif

/* Where the tests' scheduler runs threads one by one, it has to know which are inside: see t/sched. */
#ifdef GLK_SCHED
__attribute__((weak)) void glk_sched_section(int step);
#define GLK_SECTION(step) (glk_sched_section ? glk_sched_section(step) : (void)0)
#else
#define GLK_SECTION(step) ((void)0)
#endif

static inline void glk_rcu_read_lock(void)
{
	GLK_SECTION(1);
	urcu_bp_read_lock();
}

static inline void glk_rcu_read_unlock(void)
{
#ifdef GLK_TSAN
	__tsan_release(&glk_rcu_token);
#endif
	urcu_bp_read_unlock();
	GLK_SECTION(-1);
}

/* Pointers under RCU are atomics; load pairs with the release half of glk_rcu_xchg. */
#define glk_rcu_load(p)	   glk_load_acquire(p)
#define glk_rcu_xchg(p, v) glk_xchg_acq_rel((p), (v))

/* Registers the calling thread; 0, or -ENOMEM before any section was opened. */
int glk_rcu_ready(void);

/* Waits for a grace period: until every section open at the call has ended. */
void glk_rcu_wait(void);

/* Installs the fork hooks once per process, unless the host has its own. 0 or -ENOMEM. */
int glk_rcu_init(bool host_has_hooks);

/* Whether sections cost nanoseconds here: the kernel grants membarrier(2). */
bool glk_rcu_is_fast(void);

#endif
