/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tools in use, from the first descriptor to the last. A failure of the module at any time has
 * a state: descriptors are closed then, and figures and what lies in the ring stay to be read.
 *
 *	OK		counts; descriptors are open
 *	PAUSED		by glk_uvm_pause
 *	any other	by a failure; stays until the end, or the next glk_uvm_continue
 */
#include "uvm_bridge/bridge.h"

#include "base/slab.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What each state is to a caller. */
static const struct {
	int err;
	enum glake_error_class class;
} answers[] = {
	[GLAKE_UVM_NO_MODULE] = {-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED},
	[GLAKE_UVM_UNKNOWN] = {-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED},
	[GLAKE_UVM_NO_NODE] = {-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED},
	[GLAKE_UVM_NO_PERMISSION] = {-EACCES, GLAKE_ERROR_PERM},
	[GLAKE_UVM_NO_CUDA] = {-ENOENT, GLAKE_ERROR_UNSUPPORTED},
	[GLAKE_UVM_AMBIGUOUS] = {-EINVAL, GLAKE_ERROR_INVAL},
	[GLAKE_UVM_MISFIT] = {-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED},
	[GLAKE_UVM_REFUSED] = {-EIO, GLAKE_ERROR_DRIVER},
	[GLAKE_UVM_SICK] = {-ENODEV, GLAKE_ERROR_DEVICE_LOST},
	[GLAKE_UVM_AGAIN] = {-EAGAIN, GLAKE_ERROR_AGAIN},
	[GLAKE_UVM_GONE] = {-ENODEV, GLAKE_ERROR_DEVICE_LOST},
	[GLAKE_UVM_BROKEN] = {-EIO, GLAKE_ERROR_DRIVER},
};

int glk_uvm_fail(struct glk_uvm *uvm, enum glake_uvm_state state, const char *call,
	int native, const char *format, ...)
{
	va_list args;

	uvm->state = state;
	va_start(args, format);
	vsnprintf(uvm->text, sizeof(uvm->text), format, args);
	va_end(args);
	return glk_error_native(
		answers[state].err, answers[state].class, call, native, "%s", uvm->text);
}

static size_t whole_pages(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (size + page - 1) / page * page;
}

static size_t queue_bytes(const struct glk_uvm_ring *ring)
{
	return whole_pages((size_t)ring->entries *
		(ring->is_v2 ? GLK_UVM_ENTRY_V2 : GLK_UVM_ENTRY_V1));
}

static int no_memory(void)
{
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
		"no memory of the host for the counters of nvidia_uvm");
}

/* A page for the counters, one for the indices of the ring, and the ring. */
static int make_room(struct glk_uvm *uvm)
{
	const struct glk_uvm_ops *ops = uvm->ops;
	struct glk_uvm_ring *ring = &uvm->ring;

	uvm->counters = ops->map(ops->arg, whole_pages(GLK_UVM_COUNTERS * 8));
	if (!uvm->counters)
		return no_memory();
	if (!uvm->setup.events)
		return 0;
	ring->is_v2 = uvm->setup.generation == 'D';
	ring->entries = uvm->setup.entries;
	ring->thrashes = &uvm->thrashes;
	ring->control = ops->map(ops->arg, whole_pages(sizeof(*ring->control)));
	ring->queue = ops->map(ops->arg, queue_bytes(ring));
	return ring->control && ring->queue ? 0 : no_memory();
}

static void free_room(struct glk_uvm *uvm)
{
	const struct glk_uvm_ops *ops = uvm->ops;
	struct glk_uvm_ring *ring = &uvm->ring;

	if (ring->queue)
		ops->unmap(ops->arg, (void *)(uintptr_t)ring->queue, queue_bytes(ring));
	if (ring->control)
		ops->unmap(ops->arg, ring->control, whole_pages(sizeof(*ring->control)));
	if (uvm->counters)
		ops->unmap(ops->arg, uvm->counters, whole_pages(GLK_UVM_COUNTERS * 8));
}

void glk_uvm_counts(struct glk_uvm *uvm)
{
	uvm->state = GLAKE_UVM_OK;
	snprintf(uvm->text, sizeof(uvm->text), "counting, interface %c",
		uvm->setup.generation);
}

/* All from the search on. After a failure nothing is open. */
static int begin(struct glk_uvm *uvm)
{
	int err = glk_uvm_find(uvm);

	if (!err)
		err = glk_uvm_start_counters(uvm);
	if (!err && uvm->ring.entries)
		err = glk_uvm_read_table(uvm);
	if (!err && uvm->ring.entries)
		err = glk_uvm_start_events(uvm);
	if (err) {
		glk_uvm_release(uvm);
		return err;
	}
	glk_uvm_counts(uvm);
	return 0;
}

static int check(const struct glk_uvm_setup *setup)
{
	uint32_t entries = setup->entries;

	if (setup->flags & ~GLAKE_UVM_SUMS || setup->events & ~GLAKE_UVM_ALL)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"flags 0x%x or events 0x%x that there are not", setup->flags,
			setup->events);
	if (entries &&
		(entries < 2 || entries > GLAKE_UVM_ENTRIES_MAX ||
			entries & (entries - 1)))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"a ring of %u entries; a power of two from 2 to %d is one",
			entries, GLAKE_UVM_ENTRIES_MAX);
	return 0;
}

int glk_uvm_open(const struct glk_uvm_setup *setup, struct glk_uvm **ret_uvm)
{
	struct glk_uvm *uvm;
	int err = check(setup);

	if (err)
		return err;
	uvm = glk_region_new(sizeof(*uvm));
	if (!uvm)
		return -ENOMEM;
	uvm->setup = *setup;
	if (!uvm->setup.entries)
		uvm->setup.entries = GLAKE_UVM_ENTRIES_MAX;
	uvm->ops = setup->ops ? setup->ops : &glk_uvm_system;
	glk_store_relaxed(&uvm->space, -1);
	glk_store_relaxed(&uvm->counters_fd, -1);
	glk_store_relaxed(&uvm->events_fd, -1);
	err = make_room(uvm);
	if (!err)
		err = begin(uvm);
	if (err) {
		free_room(uvm);
		glk_region_free(uvm, sizeof(*uvm));
		return err;
	}
	*ret_uvm = uvm;
	return 0;
}

void glk_uvm_close(struct glk_uvm *uvm)
{
	glk_uvm_release(uvm);
	free_room(uvm);
	glk_region_free(uvm, sizeof(*uvm));
}

uint32_t glk_uvm_kinds(const struct glk_uvm *uvm)
{
	return uvm->setup.events;
}

bool glk_uvm_sums_only(const struct glk_uvm *uvm)
{
	return uvm->setup.flags & GLAKE_UVM_SUMS;
}

void glk_uvm_broke(struct glk_uvm *uvm)
{
	if (uvm->state != GLAKE_UVM_OK)
		glk_uvm_release(uvm);
}

void glk_uvm_look(struct glk_uvm *uvm)
{
	if (glk_uvm_ring_look(&uvm->ring, &uvm->sums)) {
		if (uvm->state == GLAKE_UVM_OK)
			glk_uvm_fail(uvm, GLAKE_UVM_BROKEN, "", 0,
				"an index of nvidia_uvm is beyond the ring of events");
		glk_uvm_broke(uvm);
	}
	if (uvm->setup.flags & GLAKE_UVM_SUMS && uvm->ring.entries) {
		uvm->ring.get = uvm->ring.seen;
		glk_uvm_ring_give(&uvm->ring);
	}
}

void glk_uvm_flush(struct glk_uvm *uvm)
{
	struct glk_uvm_flush *words;
	int err;

	if (uvm->state == GLAKE_UVM_AGAIN)
		glk_uvm_continue(uvm);
	if (uvm->state != GLAKE_UVM_OK)
		return;
	words = glk_uvm_buffer(uvm);
	err = glk_uvm_call(
		uvm, glk_load_relaxed(&uvm->space), GLK_UVM_TOOLS_FLUSH_EVENTS);
	if (err == -EAGAIN || (!err && words->status == GLK_UVM_BUSY_RETRY))
		return;
	if (err)
		glk_uvm_answer(uvm, "FLUSH_EVENTS", err, 0);
	else if (words->status && !(words->status & GLK_UVM_WARNING))
		glk_uvm_fail(uvm, GLAKE_UVM_SICK, "FLUSH_EVENTS", (int)words->status,
			"a fatal error of the driver, status 0x%x", words->status);
	glk_uvm_broke(uvm);
}

static uint64_t counter(const struct glk_uvm *uvm, enum glk_uvm_counter which)
{
	return uvm->before[which] + glk_peek_relaxed(&uvm->counters[which]);
}

uint64_t glk_uvm_dropped(const struct glk_uvm *uvm)
{
	return uvm->dropped_before + glk_uvm_ring_dropped(&uvm->ring);
}

void glk_uvm_pause(struct glk_uvm *uvm)
{
	if (uvm->state != GLAKE_UVM_OK)
		return;
	glk_uvm_flush(uvm);
	glk_uvm_look(uvm);
	glk_uvm_release(uvm);
	if (uvm->state != GLAKE_UVM_OK)
		return;
	uvm->state = GLAKE_UVM_PAUSED;
	snprintf(uvm->text, sizeof(uvm->text), "paused while a GPU is suspended");
}

void glk_uvm_continue(struct glk_uvm *uvm)
{
	struct glk_uvm_ring *ring = &uvm->ring;

	if (uvm->state == GLAKE_UVM_OK)
		return;
	for (int i = 0; i < GLK_UVM_COUNTERS; i++) {
		uvm->before[i] = counter(uvm, (enum glk_uvm_counter)i);
		glk_poke_relaxed(&uvm->counters[i], 0);
	}
	if (ring->entries) {
		/* what nobody has taken so far is lost with the old ring */
		uvm->dropped_before = glk_uvm_dropped(uvm) + glk_uvm_ring_waiting(ring);
		memset(ring->control, 0, sizeof(*ring->control));
		ring->get = ring->seen = 0;
	}
	if (begin(uvm) != -EMFILE)
		return;
	uvm->state = GLAKE_UVM_AGAIN;
	snprintf(uvm->text, sizeof(uvm->text), "there was no descriptor left");
}

void glk_uvm_forked(struct glk_uvm *uvm)
{
	glk_atomic(int) * fds[] = {&uvm->space, &uvm->counters_fd, &uvm->events_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
		int fd = glk_xchg_acq_rel(fds[i], -1);

		if (fd >= 0)
			uvm->ops->close(uvm->ops->arg, fd);
	}
}

void glk_uvm_figures(struct glk_uvm *uvm, struct glake_uvm_figures *ret_figures)
{
	struct glake_uvm_figures figures = {.sz = sizeof(figures)};

	glk_uvm_look(uvm);
	figures.state = uvm->state;
	memcpy(figures.text, uvm->text, sizeof(figures.text));
	figures.watched = uvm->setup.events;
	figures.to_gpu_bytes = counter(uvm, GLK_UVM_BYTES_TO_GPU);
	figures.to_host_bytes = counter(uvm, GLK_UVM_BYTES_TO_HOST);
	figures.cpu_faults = counter(uvm, GLK_UVM_CPU_FAULTS);
	figures.gpu_faults = counter(uvm, GLK_UVM_GPU_FAULTS);
	figures.events = uvm->sums.events;
	figures.dropped = glk_uvm_dropped(uvm);
	figures.moved_bytes = uvm->sums.moved_bytes;
	figures.evictions = uvm->sums.evictions;
	figures.evicted_bytes = uvm->sums.evicted_bytes;
	figures.remote_maps = uvm->sums.remote_maps;
	figures.remote_starved = uvm->sums.remote_starved;
	figures.thrashing = uvm->sums.thrashing;
	figures.fatal = uvm->sums.fatal;
	*ret_figures = figures;
}

int glk_uvm_failure(struct glk_uvm *uvm)
{
	if (uvm->state == GLAKE_UVM_OK || uvm->state == GLAKE_UVM_PAUSED)
		return 0;
	return glk_error(
		answers[uvm->state].err, answers[uvm->state].class, "%s", uvm->text);
}
