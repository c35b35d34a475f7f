/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams, captures, and the context that queued work runs in. */
#include "cuda_rig.h"

static void life(void)
{
	struct CUstream_st *stream = NULL;

	is_int(drv->ops->stream_new(drv, 1, &stream), 0, "new");
	is_int(fake->stream_flags, GLK_CU_STREAM_NON_BLOCKING, "non-blocking");
	ok(fake->context == FAKE_CONTEXT(1), "of GPU 1");
	is_int(drv->ops->stream_sync(drv, 1, stream), 0, "sync");
	is_int(drv->ops->device_sync(drv, 1), 0, "sync of the GPU");
	fail("cuStreamSynchronize", GLK_CU_LAUNCH_FAILED);
	is_int(drv->ops->stream_free(drv, 1, stream), -ENODEV, "its work failed");
	is_int(fake->streams, 0, "it is ended all the same");
	fail("cuStreamDestroy", GLK_CU_DEINITIALIZED);
	is_int(drv->ops->stream_free(drv, 1, stream), 0, "the driver has gone");
	fail("cuStreamDestroy", GLK_CU_INVALID_HANDLE);
	is_int(drv->ops->stream_free(drv, 1, stream), -EINVAL, "no stream");
	fail(NULL, 0);
	is_int(drv->ops->stream_free(drv, 1, NULL), -EINVAL, "the default stream stays");
	fail("cuStreamCreate", GLK_CU_OUT_OF_MEMORY);
	is_int(drv->ops->stream_new(drv, 0, &stream), -ENOMEM, "none to be had");
	fail(NULL, 0);
}

static void captures(void)
{
	fake->capturing = GLK_CU_CAPTURE_ACTIVE;
	is_int(drv->ops->stream_sync(drv, 0, NULL), 0, "sync beside a capture");
	is_int(drv->ops->device_sync(drv, 0), 0, "sync of the GPU beside it");
	ok(!fake->capture_broken, "it lives");
	fake->capturing = GLK_CU_CAPTURE_NONE;
	fail("cuCtxSynchronize", GLK_CU_STREAM_CAPTURE_UNSUPPORTED);
	is_int(drv->ops->device_sync(drv, 0), -EBUSY, "not while a stream captures");
	fail(NULL, 0);
}

static void work(void)
{
	fake->stream_context = FAKE_CONTEXT(1);
	is_int(drv->ops->copy(drv, 8, 16, 24, FAKE_STREAM), 0, "copy");
	ok(fake->context == FAKE_CONTEXT(1), "in the stream's context");
	is_int(fake->size, 24, "of that size");
	fake->pointer_gpu = 1;
	is_int(drv->ops->fill(drv, 8, 0x55, 6, NULL), 0, "fill on the default stream");
	ok(fake->context == FAKE_CONTEXT(1), "in the context of the memory's GPU");
	is_int(fake->size, 6, "of that many words");
	fake->pointer_gpu = -1;
	is_int(drv->ops->copy(drv, 8, 16, 24, NULL), 0, "host to host");
	ok(fake->context == FAKE_CONTEXT(0), "in the first context");
	fail("cuMemcpyAsync", GLK_CU_INVALID_VALUE);
	is_int(drv->ops->copy(drv, 8, 16, 24, FAKE_STREAM), -EINVAL, "a copy refused");
	fail("cuMemsetD32Async", GLK_CU_ILLEGAL_ADDRESS);
	is_int(drv->ops->fill(drv, 8, 0, 1, FAKE_STREAM), -ENODEV,
		"a fill on a lost GPU");
	fail(NULL, 0);
}

static void host(void)
{
	static char memory[64];

	is_int(drv->ops->host_lock(drv, 0, memory, sizeof(memory)), 0,
		"memory of the host");
	ok(fake->address == (uintptr_t)memory && fake->size == sizeof(memory),
		"is locked");
	is_int((int64_t)fake->flags, 1, "for all contexts");
	fake->address = 0;
	is_int(drv->ops->host_unlock(drv, 0, memory), 0, "and let go");
	ok(fake->address == (uintptr_t)memory, "where it was");
	fake->current = (struct CUctx_st *)(uintptr_t)0x4242;
	is_int(drv->ops->host_lock(drv, 1, memory, 64), 0,
		"while the program's context is current");
	ok(fake->context == FAKE_CONTEXT(1), "  in that of the GPU, which stays");
	is_int(drv->ops->host_unlock(drv, 1, memory), 0, "  and let go");
	ok(fake->context == FAKE_CONTEXT(1), "  there");
	fake->current = FAKE_CONTEXT(0);
	is_int(drv->ops->host_lock(drv, 1, memory, 64), 0,
		"while that of another GPU is");
	ok(fake->context == FAKE_CONTEXT(1), "  likewise");
	is_int(drv->ops->host_unlock(drv, 1, memory), 0, "  and let go");
	ok(fake->context == FAKE_CONTEXT(1), "  there");
	ok(fake->current == FAKE_CONTEXT(0), "what was current is again");
	fake->current = NULL;
	is_int(drv->ops->host_lock(drv, 2, memory, 64), -EINVAL, "for no GPU");
	fail("cuMemHostRegister", GLK_CU_OUT_OF_MEMORY);
	is_int(drv->ops->host_lock(drv, 0, memory, 64), -ENOMEM,
		"more than may be locked");
	fail("cuMemHostUnregister", GLK_CU_INVALID_VALUE);
	is_int(drv->ops->host_unlock(drv, 0, memory), -EINVAL, "what is not");
	fail(NULL, 0);
}

/* Kernels of the library: text, a function by its name, one structure as what it is given. */
static void launches(void)
{
	static const struct glk_kernel kernel = {.name = "some"};
	struct glk_launch launch = {
		.blocks = 3, .threads = 32, .args = &launch, .size = sizeof(launch)};
	const char *const text = "text";
	uint64_t module = 0;

	is_int(drv->ops->module_load(drv, 1, text, &module), 0, "kernels are loaded");
	ok(module == (uintptr_t)text && fake->context == FAKE_CONTEXT(1),
		"  in the context of the GPU");
	is_int(drv->ops->kernel_find(drv, 1, module, &kernel, &launch.kernel), 0, "one");
	ok(launch.kernel == (uintptr_t)kernel.name, "  by its name");
	is_int(drv->ops->launch(drv, 1, &launch, NULL), 0, "is launched");
	ok(fake->address == (uintptr_t)&launch && fake->size == 96 &&
			fake->context == FAKE_CONTEXT(1),
		"  with what it is given, on the default stream of the GPU");
	is_int(drv->ops->launch(drv, 0, &launch, FAKE_STREAM), 0, "and on another");
	fake->capturing = true;
	is_int(drv->ops->module_load(drv, 0, text, &module), 0,
		"loaded while another stream captures");
	ok(!fake->capture_broken, "  which goes on");
	fake->capturing = false;
	fail("cuModuleLoadData", GLK_CU_JIT_COMPILER_NOT_FOUND);
	is_int(drv->ops->module_load(drv, 0, text, &module), -EOPNOTSUPP,
		"without a compiler there are none");
	fail("cuModuleGetFunction", GLK_CU_INVALID_VALUE);
	is_int(drv->ops->kernel_find(drv, 0, module, &kernel, &launch.kernel), -EINVAL,
		"one that is not there");
	fail("cuLaunchKernel", GLK_CU_ILLEGAL_ADDRESS);
	is_int(drv->ops->launch(drv, 0, &launch, NULL), -ENODEV, "on a lost GPU");
	fail(NULL, 0);
	is_int(drv->ops->module_free(drv, 1, module), 0, "they go");
	is_int(drv->ops->module_load(drv, 2, text, &module), -EINVAL, "for no GPU");
}

/* A stream that waits for the host. */
static void gates(void)
{
	static struct glk_drv_gate words;

	is_int(drv->ops->gate(drv, 1, NULL, &words, 7), 0, "a gate");
	ok(fake->address == (uintptr_t)&words.open && fake->size == 7 &&
			fake->context == FAKE_CONTEXT(1),
		"  on the default stream of the GPU");
	fail("cuStreamWriteValue32", GLK_CU_NOT_SUPPORTED);
	is_int(drv->ops->gate(drv, 0, FAKE_STREAM, &words, 8), -EOPNOTSUPP,
		"a GPU that has none");
	fail("cuStreamWaitValue32", GLK_CU_ILLEGAL_ADDRESS);
	is_int(drv->ops->gate(drv, 0, FAKE_STREAM, &words, 8), -ENODEV, "a lost one");
	fail(NULL, 0);
}

static int kind_at(uint64_t addr, size_t size)
{
	struct glk_spot spot;

	return drv->ops->spot(drv, addr, size, &spot) ? -1 : (int)spot.kind;
}

/* On the default stream of which GPU a copy is asked to be, and is. */
static int gpu_for(uint64_t dst, uint64_t src)
{
	int device = -1;

	if (drv->ops->copy_gpu(drv, dst, src, &device) ||
		drv->ops->copy(drv, dst, src, 64, NULL) ||
		fake->context != FAKE_CONTEXT(device))
		return -1;
	return device;
}

static void default_streams(void)
{
	const uint64_t locked = 4096, memory = 1 << 20;

	fake->pointer_locked = 2 * locked;
	fake->pointer_type = GLK_CU_MEMORY_GPU;
	fake->pointer_gpu = 1;
	is_int(gpu_for(memory, locked), 1, "from locked memory to GPU 1");
	is_int(gpu_for(locked, memory), 1,
		"and back: where the memory lies, not who locked it");
	is_int(gpu_for(locked, locked + 64), 0, "between locked memory");
	fake->pointer_type = GLK_CU_MEMORY_HOST;
	fake->pointer_managed = true;
	is_int(gpu_for(locked, memory), 1, "from managed memory of GPU 1");
	fake->pointer_managed = false;
	is_int(gpu_for(memory, 2 * memory), 1,
		"where the driver names a GPU for other memory");
	fake->pointer_locked = 0;
	fake->pointer_type = 0;
	fake->pointer_gpu = -1;
}

/* What lies at both ends of a range. */
static void spots(void)
{
	struct glk_spot spot;

	fake->pointer_gpu = -1;
	is_int(kind_at(4096, 64), GLK_SPOT_PLAIN, "memory that the driver does not know");
	fail("cuPointerGetAttribute", GLK_CU_ILLEGAL_ADDRESS);
	is_int(kind_at(4096, 64), GLK_SPOT_OTHER,
		"what it does not answer for is not that");
	fail(NULL, 0);
	fake->pointer_type = GLK_CU_MEMORY_HOST;
	is_int(kind_at(4096, 64), GLK_SPOT_LOCKED, "memory of the host that it does");
	fake->pointer_end = 4096 + 63;
	is_int(kind_at(4096, 64), GLK_SPOT_OTHER, "but for the last byte");
	is_int(kind_at(4096, 63), GLK_SPOT_LOCKED, "up to that");
	fake->pointer_end = 0;
	fake->pointer_type = GLK_CU_MEMORY_GPU;
	fake->pointer_gpu = 1;
	is_int(drv->ops->spot(drv, 4096, 64, &spot), 0, "memory of a GPU");
	ok(spot.kind == GLK_SPOT_GPU && spot.device == 1, "of the second");
	fake->pointer_managed = true;
	is_int(kind_at(4096, 64), GLK_SPOT_OTHER, "managed memory lies anywhere");
	fake->pointer_managed = false;
	fake->pointer_gpu = 99;
	is_int(kind_at(4096, 64), GLK_SPOT_OTHER, "of a GPU that is not ours");
	fake->pointer_gpu = -1;
	fake->pointer_type = 0;
}

int main(void)
{
	rig_begin();
	life();
	captures();
	work();
	default_streams();
	host();
	launches();
	gates();
	spots();
	is_int(fake->pushes, fake->pops, "as many pops as pushes");
	is_int(fake->mode, 0, "the capture mode is as before");
	return rig_end();
}
