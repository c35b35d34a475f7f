/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which descriptor of the module is the one that CUDA has its address space behind. CUDA has two
 * that look alike, and other libraries may have some: the module is asked through a copy of each.
 * Only CUDA's answers a question about pageable memory; another library's may do so too, and then
 * only a block of managed memory tells, which is in one address space alone.
 *
 * Other threads may close and open descriptors meanwhile, so that what a copy is of is looked at
 * again. Nothing is asked of a descriptor that changes anything.
 */
#include "uvm_bridge/bridge.h"

#include <errno.h>
#include <string.h>

/* Descriptors of the module that are looked at. CUDA has two. */
#define MOST 64

struct search {
	struct glk_uvm *uvm;
	int fds[MOST];
	int count;
	int found;   /* a copy; -1: none */
	int refused; /* what the system said of one; 0 */
};

static bool is_module(const struct glk_uvm *uvm, int fd)
{
	int major, minor;

	return !uvm->ops->device(uvm->ops->arg, fd, &major, &minor) &&
		major == uvm->setup.major && minor == uvm->setup.minor;
}

static int collect(int fd, void *arg)
{
	struct search *search = arg;

	if (is_module(search->uvm, fd))
		search->fds[search->count++] = fd;
	return search->count == MOST;
}

/* Whether an address space is behind it: 1, 0, or fails. */
static int has_space(struct search *search, int fd)
{
	struct glk_uvm *uvm = search->uvm;
	struct glk_uvm_pageable *words = glk_uvm_buffer(uvm);
	int err = glk_uvm_call(uvm, fd, GLK_UVM_PAGEABLE_MEM_ACCESS);

	if (err == -EINVAL || err == -ENOTTY || err == -ENOSYS) {
		search->refused = err;
		return 0;
	}
	if (err)
		return glk_uvm_answer(uvm, "PAGEABLE_MEM_ACCESS", err, 0);
	if (!words->status || words->status & GLK_UVM_WARNING)
		return 1;
	if (words->status == GLK_UVM_ILLEGAL_ACTION)
		return 0;
	return glk_uvm_fail(uvm, GLAKE_UVM_SICK, "PAGEABLE_MEM_ACCESS",
		(int)words->status, "a fatal error of the driver, status 0x%x",
		words->status);
}

/* Whether the block of managed memory that was named is in it. */
static bool has_managed(struct glk_uvm *uvm, int fd)
{
	struct glk_uvm_range *words = glk_uvm_buffer(uvm);

	words->base = (uintptr_t)uvm->setup.managed;
	words->length = uvm->setup.managed_size;
	words->status = GLK_UVM_INVALID_ADDRESS;
	return !glk_uvm_call(uvm, fd, GLK_UVM_VALIDATE_VA_RANGE) && !words->status;
}

/* Keeps a copy, or closes it. */
static int consider(struct search *search, int copy)
{
	struct glk_uvm *uvm = search->uvm;
	int is = is_module(uvm, copy) ? has_space(search, copy) : 0;

	if (is > 0 && uvm->setup.managed)
		is = has_managed(uvm, copy);
	if (is > 0 && search->found < 0) {
		search->found = copy;
		return 0;
	}
	if (is > 0 && !uvm->setup.managed &&
		uvm->ops->same(uvm->ops->arg, search->found, copy) <= 0)
		is = glk_uvm_fail(uvm, GLAKE_UVM_AMBIGUOUS, "", 0,
			"this process has nvidia_uvm open several times, and no managed "
			"memory tells which is CUDA's");
	uvm->ops->close(uvm->ops->arg, copy);
	return is < 0 ? is : 0;
}

static int look(struct search *search)
{
	struct glk_uvm *uvm = search->uvm;
	int err = uvm->ops->each(uvm->ops->arg, collect, search);

	if (err < 0)
		return glk_uvm_fail(uvm, GLAKE_UVM_NO_CUDA, "opendir", -err,
			"the descriptors of this process cannot be listed: %s",
			strerror(-err));
	for (int i = 0; i < search->count; i++) {
		int copy = uvm->ops->dup(uvm->ops->arg, search->fds[i]);

		if (copy == -EMFILE)
			return glk_error_native(-EMFILE, GLAKE_ERROR_LIMIT, "fcntl",
				EMFILE, "there is no descriptor left for nvidia_uvm");
		if (copy < 0)
			continue; /* closed meanwhile */
		err = consider(search, copy);
		if (err)
			return err;
	}
	return 0;
}

int glk_uvm_find(struct glk_uvm *uvm)
{
	struct search search = {.uvm = uvm, .found = -1};
	int err = look(&search);

	if (err && search.found >= 0)
		uvm->ops->close(uvm->ops->arg, search.found);
	if (err)
		return err;
	if (search.found >= 0) {
		glk_store_relaxed(&uvm->space, search.found);
		return 0;
	}
	if (search.refused)
		return glk_uvm_answer(uvm, "PAGEABLE_MEM_ACCESS", search.refused, 0);
	if (uvm->setup.managed && search.count)
		return glk_uvm_fail(uvm, GLAKE_UVM_AMBIGUOUS, "VALIDATE_VA_RANGE", 0,
			"what was named is no block of managed memory of this process");
	return glk_uvm_fail(uvm, GLAKE_UVM_NO_CUDA, "", 0,
		"CUDA has not opened nvidia_uvm in this process yet");
}
