/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams, captures, and the context that queued work runs in. */
#include "cuda_fake.h"
#include "tap.h"

#include <errno.h>

static struct glk_cuda_lib lib;
static struct fake *fake;
static struct glk_drv *drv;

static void fail(const char *call, glk_cu_result result)
{
	fake->fail_call = call;
	fake->fail_result = result;
}

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

	is_int(drv->ops->host_lock(drv, memory, sizeof(memory)), 0, "memory of the host");
	ok(fake->address == (uintptr_t)memory && fake->size == sizeof(memory), "is locked");
	is_int((int64_t)fake->flags, 1, "for all contexts");
	fake->address = 0;
	is_int(drv->ops->host_unlock(drv, memory), 0, "and let go");
	ok(fake->address == (uintptr_t)memory, "where it was");
	fail("cuMemHostRegister", GLK_CU_OUT_OF_MEMORY);
	is_int(drv->ops->host_lock(drv, memory, 64), -ENOMEM, "more than may be locked");
	fail("cuMemHostUnregister", GLK_CU_INVALID_VALUE);
	is_int(drv->ops->host_unlock(drv, memory), -EINVAL, "what is not");
	fail(NULL, 0);
}

int main(void)
{
	struct glk_cuda *cuda;

	tap_plan_later();
	cuda = fake_open(&lib, &fake);
	if (!cuda)
		tap_bail("no fake libcuda");
	drv = &cuda->drv;
	life();
	captures();
	work();
	host();
	is_int(fake->pushes, fake->pops, "as many pops as pushes");
	is_int(fake->mode, 0, "the capture mode is as before");
	is_int(drv->ops->close(drv), 0, "close");
	return tap_done();
}
