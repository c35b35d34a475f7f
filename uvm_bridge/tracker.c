/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Calls of the module, and the two kinds of trackers: each is an open file of its tools that was
 * told which address space to look at and where to write. A tracker keeps that address space, and
 * what CUDA has in it, until it is closed.
 *
 * Layouts are chosen by the version of the module. That they are right shows in the first call:
 * what one generation writes to, another leaves as it was. An answer that does not fit ends it.
 */
#include "uvm_bridge/bridge.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NODE	  "/dev/nvidia-uvm-tools"
#define UNTOUCHED 0xa5a5a5a5u

void *glk_uvm_buffer(struct glk_uvm *uvm)
{
	memset(uvm->buffer, 0, sizeof(uvm->buffer));
	return uvm->buffer;
}

int glk_uvm_call(struct glk_uvm *uvm, int fd, enum glk_uvm_number number)
{
	return uvm->ops->ioctl(uvm->ops->arg, fd, number, uvm->buffer);
}

/* What the system itself said: only this and no status is known. */
static int refused(struct glk_uvm *uvm, const char *call, int err)
{
	switch (err) {
	case -EAGAIN:
		return glk_uvm_fail(uvm, GLAKE_UVM_AGAIN, call, -err,
			"the driver is being suspended");
	case -EINVAL:
	case -ENOTTY:
	case -ENOSYS:
	case -EPERM:
	case -EACCES:
		return glk_uvm_fail(uvm, GLAKE_UVM_REFUSED, call, -err,
			"this system does not let nvidia_uvm be asked: %s",
			strerror(-err));
	case -ENODEV:
	case -ENXIO:
	case -EBADF:
		return glk_uvm_fail(uvm, GLAKE_UVM_GONE, call, -err,
			"nvidia_uvm was unloaded, or its descriptors were closed");
	default:
		return glk_uvm_fail(uvm, GLAKE_UVM_SICK, call, -err,
			"nvidia_uvm cannot be asked: %s", strerror(-err));
	}
}

int glk_uvm_answer(struct glk_uvm *uvm, const char *call, int err, uint32_t status)
{
	if (err)
		return refused(uvm, call, err);
	if (!status || status & GLK_UVM_WARNING)
		return 0;
	switch (status) {
	case GLK_UVM_BUSY_RETRY:
		return glk_uvm_fail(
			uvm, GLAKE_UVM_AGAIN, call, (int)status, "nvidia_uvm is busy");
	case GLK_UVM_NO_PERMISSION:
		return glk_uvm_fail(uvm, GLAKE_UVM_NO_PERMISSION, call, (int)status,
			"nvidia_uvm does not allow this process to use its tools");
	default:
		return glk_uvm_fail(uvm, GLAKE_UVM_REFUSED, call, (int)status,
			"nvidia_uvm refused %s with status 0x%x", call, status);
	}
}

static int misfit(struct glk_uvm *uvm, const char *call)
{
	return glk_uvm_fail(uvm, GLAKE_UVM_MISFIT, call, 0,
		"nvidia_uvm does not answer %s as generation %c should", call,
		uvm->setup.generation);
}

static int open_node(struct glk_uvm *uvm, int *ret_fd)
{
	int fd = uvm->ops->open(uvm->ops->arg, NODE);

	switch (fd < 0 ? -fd : 0) {
	case 0:
		*ret_fd = fd;
		return 0;
	case ENOENT:
		return glk_uvm_fail(
			uvm, GLAKE_UVM_NO_NODE, "open", ENOENT, NODE " is missing");
	case EACCES:
	case EPERM:
		return glk_uvm_fail(uvm, GLAKE_UVM_NO_PERMISSION, "open", -fd,
			"we may not open " NODE ": %s", strerror(-fd));
	case ENODEV:
	case ENXIO:
		return glk_uvm_fail(uvm, GLAKE_UVM_GONE, "open", -fd,
			NODE " has no module behind it: nvidia_uvm was unloaded");
	case EMFILE:
	case ENFILE:
		return glk_error_native(-EMFILE, GLAKE_ERROR_LIMIT, "open", -fd,
			"there is no descriptor left for " NODE);
	default:
		return glk_uvm_fail(uvm, GLAKE_UVM_SICK, "open", -fd,
			NODE " cannot be opened: %s", strerror(-fd));
	}
}

/*
 * The status of a tracker's beginning, and whether generation and answer go together. The words
 * were 1, 1 and UNTOUCHED: A and D write the first, C the second, B the first and the third.
 */
static bool fits(
	char generation, const struct glk_uvm_tracker *tracker, uint32_t *ret_status)
{
	bool is_c = generation == 'C';

	*ret_status = is_c ? tracker->word52 : tracker->word48;
	/* 1 is no status: nothing was written */
	if (*ret_status == 1 || (is_c ? tracker->word48 : tracker->word52) != 1)
		return false;
	if (generation == 'B' && !*ret_status)
		return tracker->word56 == 1;
	return tracker->word56 == UNTOUCHED;
}

static int begin(struct glk_uvm *uvm, enum glk_uvm_number number, const void *queue,
	uint32_t entries, const void *control, glk_atomic(int) * ret_fd)
{
	struct glk_uvm_tracker *tracker = glk_uvm_buffer(uvm);
	uint32_t status;
	int fd, err;

	err = open_node(uvm, &fd);
	if (err)
		return err;
	glk_store_relaxed(ret_fd, fd);
	tracker->queue = (uintptr_t)queue;
	tracker->entries = entries;
	tracker->control = (uintptr_t)control;
	tracker->all_processors = 1;
	tracker->uvm_fd = glk_load_relaxed(&uvm->space);
	tracker->word48 = tracker->word52 = 1;
	tracker->word56 = UNTOUCHED;
	err = glk_uvm_call(uvm, fd, number);
	if (!err && !fits(uvm->setup.generation, tracker, &status))
		return misfit(uvm, "INIT_EVENT_TRACKER");
	return glk_uvm_answer(uvm, "INIT_EVENT_TRACKER", err, err ? 0 : status);
}

/* A call of one set of flags. */
static int with_flags(struct glk_uvm *uvm, int fd, enum glk_uvm_number number,
	const char *name, uint64_t flags)
{
	struct glk_uvm_flags *words = glk_uvm_buffer(uvm);
	int err;

	words->flags = flags;
	words->status = UNTOUCHED;
	err = glk_uvm_call(uvm, fd, number);
	if (!err && words->status == UNTOUCHED)
		return misfit(uvm, name);
	return glk_uvm_answer(uvm, name, err, words->status);
}

int glk_uvm_start_counters(struct glk_uvm *uvm)
{
	const uint64_t flags = 1u << GLK_UVM_BYTES_TO_GPU | 1u << GLK_UVM_BYTES_TO_HOST |
		1u << GLK_UVM_CPU_FAULTS | 1u << GLK_UVM_GPU_FAULTS;
	int err = begin(uvm, GLK_UVM_TOOLS_INIT_EVENT_TRACKER, NULL, 0, uvm->counters,
		&uvm->counters_fd);

	return err ? err
		   : with_flags(uvm, glk_load_relaxed(&uvm->counters_fd),
			     GLK_UVM_TOOLS_ENABLE_COUNTERS, "ENABLE_COUNTERS", flags);
}

int glk_uvm_start_events(struct glk_uvm *uvm)
{
	int err = begin(uvm,
		uvm->ring.is_v2 ? GLK_UVM_TOOLS_INIT_EVENT_TRACKER_V2
				: GLK_UVM_TOOLS_INIT_EVENT_TRACKER,
		uvm->ring.queue, uvm->ring.entries, uvm->ring.control, &uvm->events_fd);

	return err ? err
		   : with_flags(uvm, glk_load_relaxed(&uvm->events_fd),
			     GLK_UVM_TOOLS_EVENT_QUEUE_ENABLE,
			     "EVENT_QUEUE_ENABLE_EVENTS", uvm->setup.events);
}

/* A, B and C have their status in the word behind the one where D has it. What was known stays
 * where the call fails. */
int glk_uvm_read_table(struct glk_uvm *uvm)
{
	struct glk_uvm_table *words = glk_uvm_buffer(uvm);
	bool is_d = uvm->setup.generation == 'D';
	uint32_t status;
	int err;

	words->table = (uintptr_t)uvm->table;
	words->word8 = uvm->setup.generation == 'C';
	words->word12 = UNTOUCHED;
	err = glk_uvm_call(uvm, glk_load_relaxed(&uvm->space),
		is_d ? GLK_UVM_TOOLS_UUID_TABLE_V2 : GLK_UVM_TOOLS_UUID_TABLE);
	status = is_d ? words->word8 : words->word12;
	if (!err && (words->word12 == UNTOUCHED) != is_d)
		return misfit(uvm, "GET_PROCESSOR_UUID_TABLE");
	return glk_uvm_answer(uvm, "GET_PROCESSOR_UUID_TABLE", err, err ? 0 : status);
}

/* The module stops by itself when a tracker is closed; that it is told before is good order. */
static void stop(
	struct glk_uvm *uvm, glk_atomic(int) * tracker, enum glk_uvm_number number)
{
	struct glk_uvm_flags *words = glk_uvm_buffer(uvm);
	int fd = glk_xchg_acq_rel(tracker, -1);

	if (fd < 0)
		return;
	words->flags = number == GLK_UVM_TOOLS_DISABLE_COUNTERS
		? (1u << GLK_UVM_COUNTERS) - 1
		: GLAKE_UVM_ALL;
	glk_uvm_call(uvm, fd, number);
	uvm->ops->close(uvm->ops->arg, fd);
}

void glk_uvm_release(struct glk_uvm *uvm)
{
	int fd;

	stop(uvm, &uvm->events_fd, GLK_UVM_TOOLS_EVENT_QUEUE_DISABLE);
	stop(uvm, &uvm->counters_fd, GLK_UVM_TOOLS_DISABLE_COUNTERS);
	fd = glk_xchg_acq_rel(&uvm->space, -1);
	if (fd >= 0)
		uvm->ops->close(uvm->ops->arg, fd);
}
