/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Preloaded under valgrind, which has 60 GiB of addresses for a program at most: reservations
 * of 1 GiB and more without access get addresses that are none of the process, and what is
 * done to them afterwards is done nowhere. A replay never touches the memory that it asks for,
 * so that jobs of any size can be counted.
 */
#include "base/atomic.h"

#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST UINT64_C(0x100000000000)
#define LARGE (UINT64_C(1) << 30)

static glk_atomic(uint64_t) next = FIRST;

static int is_nowhere(const void *at)
{
	return (uintptr_t)at >= FIRST && (uintptr_t)at < glk_load_relaxed(&next);
}

void *mmap64(void *at, size_t size, int access, int flags, int fd, off_t offset)
{
	uint64_t whole = (size + 2 * LARGE - 1) & ~(LARGE - 1);

	if (is_nowhere(at))
		return at;
	if (!at && size >= LARGE && access == PROT_NONE)
		/* never next to one another */
		return (void *)(uintptr_t)glk_add_relaxed(&next, whole);
	return (void *)syscall(SYS_mmap, at, size, access, flags, fd, offset);
}

void *mmap(void *at, size_t size, int access, int flags, int fd, off_t offset)
	__attribute__((alias("mmap64")));

int munmap(void *at, size_t size)
{
	return is_nowhere(at) ? 0 : (int)syscall(SYS_munmap, at, size);
}

int mprotect(void *at, size_t size, int access)
{
	return is_nowhere(at) ? 0 : (int)syscall(SYS_mprotect, at, size, access);
}

int madvise(void *at, size_t size, int advice)
{
	return is_nowhere(at) ? 0 : (int)syscall(SYS_madvise, at, size, advice);
}
