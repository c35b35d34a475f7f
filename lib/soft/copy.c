/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What names memory on a stream: copies, fills and the pretend kernels of tests. Rights are
 * judged when the operation is queued, and the queue keeps mappings and rights in place until
 * it has run, so that running it cannot fault. A graph keeps nothing: what it names is judged
 * again at every launch.
 */
#include "soft/graph.h"
#include "soft/managed.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

/* The GPU that an address belongs to, managed or not; -1: none, or one without rights. */
static int owner_of(const struct soft *soft, uint64_t addr)
{
	const struct glk_mapping *mapping = glk_book_find(&soft->book, addr);
	int gpu = glk_soft_gpu_at(soft, addr), piece;

	if (gpu >= 0)
		return mapping->readers >> gpu & 1 ? gpu : -1;
	piece = glk_soft_managed_find(soft, addr);
	return piece < 0 ? -1 : soft->managed->piece[piece].gpu;
}

/* Of pages of the host, and the like: the first GPU that may touch them; -1: none. */
static int user_of(const struct soft *soft, uint64_t addr)
{
	const struct glk_mapping *mapping = glk_book_find(&soft->book, addr);

	return mapping && mapping->readers ? __builtin_ctzll(mapping->readers) : -1;
}

/* Whose default streams are meant. */
static int device_of(const struct soft *soft, uint64_t dst, uint64_t src)
{
	int device = owner_of(soft, dst);

	if (device < 0)
		device = owner_of(soft, src);
	if (device < 0)
		device = user_of(soft, dst);
	if (device < 0)
		device = user_of(soft, src);
	return device < 0 ? 0 : device;
}

int glk_soft_copy_gpu(struct glk_drv *drv, uint64_t dst, uint64_t src, int *ret_device)
{
	struct soft *soft = soft_of(drv);

	glk_soft_enter(soft);
	*ret_device = device_of(soft, dst, src);
	glk_unlock(&soft->lock);
	return 0;
}

/* Into the queue, or into the graph that the stream captures. */
static int submit(
	struct soft *soft, uint32_t id, const struct soft_op *op, const char *call)
{
	const struct soft_stream *s = soft_stream_at(soft, id);
	uint32_t slot;
	int err;

	if (!op->size)
		return 0;
	err = glk_soft_access_judge(soft, s->device, op, call);
	if (err)
		return err;
	return s->graph ? glk_soft_graph_add(soft, id, op, call, &slot)
			: glk_soft_race_add(soft, id, op, &slot);
}

static int queue(struct soft *soft, struct CUstream_st *stream, const struct soft_op *op,
	const char *call)
{
	int device = device_of(soft, op->dst, op->src), err;
	uint32_t id;

	err = glk_soft_stream_any(soft, device, stream, call, &id);
	return err ? err : submit(soft, id, op, call);
}

int glk_soft_copy(struct glk_drv *drv, uint64_t dst, uint64_t src, size_t size,
	struct CUstream_st *stream)
{
	struct soft_op op = {.kind = SOFT_COPY, .dst = dst, .src = src, .size = size};
	struct soft *soft = soft_of(drv);
	int err;

	glk_soft_charge(soft, GLAKE_CALL_COPY, 1);
	glk_soft_enter(soft);
	err = queue(soft, stream, &op, "cuMemcpyAsync");
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_fill(struct glk_drv *drv, uint64_t dst, uint32_t value, size_t count,
	struct CUstream_st *stream)
{
	struct soft_op op = {.kind = SOFT_FILL, .dst = dst, .value = value};
	struct soft *soft = soft_of(drv);
	int err;

	if (dst % sizeof(value) || __builtin_mul_overflow(count, sizeof(value), &op.size))
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemsetD32Async", 1,
			"%zu words at %#lx", count, (unsigned long)dst);
	glk_soft_charge(soft, GLAKE_CALL_COPY, 1);
	glk_soft_enter(soft);
	err = queue(soft, stream, &op, "cuMemsetD32Async");
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_work(struct glk_drv *drv, int device, struct CUstream_st *stream,
	uint64_t addr, size_t size, bool write)
{
	struct soft_op op = {
		.kind = SOFT_WORK, .dst = addr, .size = size, .write = write};
	struct soft *soft = glk_soft_below(drv);
	uint32_t id;
	int err;

	if (!soft)
		return -EINVAL;
	glk_soft_enter(soft);
	err = glk_soft_stream_find(soft, device, stream, "cuLaunchKernel", &id);
	if (!err)
		err = submit(soft, id, &op, "cuLaunchKernel");
	glk_unlock(&soft->lock);
	return err;
}

/* A module is nothing here: a kernel is its twin. */
int glk_soft_module_load(
	struct glk_drv *drv, int device, const char *text, uint64_t *ret_module)
{
	(void)drv, (void)device, (void)text;
	*ret_module = 1;
	return 0;
}

int glk_soft_module_free(struct glk_drv *drv, int device, uint64_t module)
{
	(void)drv, (void)device, (void)module;
	return 0;
}

int glk_soft_kernel_find(struct glk_drv *drv, int device, uint64_t module,
	const struct glk_kernel *kernel, uint64_t *ret_kernel)
{
	(void)drv, (void)device, (void)module;
	*ret_kernel = (uintptr_t)kernel;
	return 0;
}

int glk_soft_launch(struct glk_drv *drv, int device, const struct glk_launch *launch,
	struct CUstream_st *stream)
{
	const struct glk_kernel *kernel = (const void *)(uintptr_t)launch->kernel;
	struct soft_op op = {.kind = SOFT_LAUNCH,
		.dst = launch->addr,
		.size = launch->bytes,
		.write = launch->write,
		.twin = kernel->twin};
	struct soft *soft = soft_of(drv);
	uint32_t id, slot;
	int err;

	memcpy(op.args, launch->args, launch->size);
	glk_soft_charge(soft, GLAKE_CALL_OTHER, 1);
	glk_soft_enter(soft);
	err = glk_soft_stream_find(soft, device, stream, "cuLaunchKernel", &id);
	if (!err)
		err = glk_soft_stream_usable(soft, id, "cuLaunchKernel");
	if (!err && op.size)
		err = glk_soft_access_judge(soft, device, &op, "cuLaunchKernel");
	if (!err)
		err = glk_soft_race_add(soft, id, &op, &slot);
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_prefetch(struct glk_drv *drv, uint64_t addr, size_t size,
	struct glk_place place, int device, struct CUstream_st *stream)
{
	struct soft_op op = {.kind = SOFT_PREFETCH, .dst = addr, .size = size};
	struct soft *soft = soft_of(drv);
	uint32_t id, slot;
	uint8_t lies;
	int err;

	glk_soft_charge(soft, GLAKE_CALL_MANAGED_PREFETCH, 1);
	err = glk_soft_managed_place(soft, place, &lies);
	if (err)
		return err;
	op.value = lies - 1u;
	glk_soft_enter(soft);
	err = glk_soft_managed_range(soft, addr, size, "cuMemPrefetchAsync");
	if (!err)
		err = glk_soft_stream_find(
			soft, device, stream, "cuMemPrefetchAsync", &id);
	if (!err)
		err = glk_soft_stream_usable(soft, id, "cuMemPrefetchAsync");
	if (!err)
		err = glk_soft_race_add(soft, id, &op, &slot);
	glk_unlock(&soft->lock);
	return err;
}
