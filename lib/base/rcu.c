/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Registration, grace periods and fork for base/rcu.h.
 *
 * liburcu aborts when the mmap for its registry of readers fails; glk_rcu_ready therefore
 * maps and unmaps a probe of 1 MiB, the registry of 4000 threads, before a thread's first
 * section. Fork hooks of one process must be installed once: a second copy of them deadlocks
 * the parent inside fork, so they are guarded here and can be left to the host.
 */
#include "base/rcu.h"

#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#ifdef GLK_TSAN
char glk_rcu_token;
#endif

glk_atomic(unsigned) glk_forks;

typedef void (*child_fn)(void);
static glk_atomic(child_fn) at_child;

void glk_fork_at_child(void (*fn)(void))
{
	glk_store_release(&at_child, fn); /* pairs with: fork_count */
}

static struct glk_lock init_lock = GLK_LOCK_INIT(GLK_RANK_FORK);
static bool hooks_installed;

static void fork_prepare(void)
{
	urcu_bp_before_fork();
}

static void fork_parent(void)
{
	urcu_bp_after_fork_parent();
}

static void fork_count(void)
{
	child_fn child = glk_load_acquire(&at_child); /* pairs with: glk_fork_at_child */

	glk_add_relaxed(&glk_forks, 1);
	glk_lock_forked();
	if (child)
		child();
}

static void fork_child(void)
{
	urcu_bp_after_fork_child();
	fork_count();
}

int glk_rcu_init(bool host_has_hooks)
{
	int err = 0;

	glk_lock(&init_lock);
	if (!hooks_installed) {
		err = host_has_hooks
			? pthread_atfork(NULL, NULL, fork_count)
			: pthread_atfork(fork_prepare, fork_parent, fork_child);
		hooks_installed = !err;
	}
	glk_unlock(&init_lock);
	if (err)
		return glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "pthread_atfork",
			err, "fork hooks could not be installed");
	return glk_rcu_ready();
}

int glk_rcu_ready(void)
{
	struct glk_thread *self = glk_thread_self();
	size_t probe = (size_t)1 << 20;
	void *p;

	if (!self)
		return -ENOMEM;
	if (self->rcu_ready)
		return 0;
	p = mmap(NULL, probe, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "mmap", errno,
			"no host memory to register this thread with RCU");
	munmap(p, probe);
	urcu_bp_register_thread();
	self->rcu_ready = true;
	return 0;
}

void glk_rcu_wait(void)
{
	urcu_bp_synchronize_rcu();
#ifdef GLK_TSAN
	__tsan_acquire(&glk_rcu_token);
#endif
}

bool glk_rcu_is_fast(void)
{
	return urcu_bp_has_sys_membarrier;
}
