/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contexts: retained once, pushed only when needed, always popped. */
#include "cuda_fake.h"
#include "tap.h"

#include <errno.h>

static struct glk_cuda_lib lib;
static struct fake *fake;
static struct glk_cuda *cuda;

static void entering(void)
{
	struct glk_cuda_scope scope;

	is_int(glk_cuda_enter(cuda, 1, &scope), 0, "enter GPU 1");
	ok(fake->current == FAKE_CONTEXT(1), "its context is current");
	is_int(fake->retained[1], 1, "and retained");
	is_int(fake->relaxed_calls, 1, "in relaxed capture mode");
	glk_cuda_leave(cuda, &scope);
	ok(!fake->current, "and gone after");
	is_int(fake->mode, 0, "the capture mode is as before");

	is_int(glk_cuda_enter(cuda, 1, &scope), 0, "again");
	is_int(fake->retains, 1, "retained once only");
	glk_cuda_leave(cuda, &scope);
	is_int(fake->pushes, 2, "two pushes");
	is_int(fake->pops, 2, "two pops");

	fake->current = FAKE_CONTEXT(1);
	glk_cuda_enter(cuda, 1, &scope);
	is_int(fake->pushes, 2, "no push when it is current already");
	glk_cuda_leave(cuda, &scope);
	ok(fake->current == FAKE_CONTEXT(1), "and no pop");

	glk_cuda_enter(cuda, 0, &scope);
	ok(fake->current == FAKE_CONTEXT(0), "another GPU above it");
	glk_cuda_leave(cuda, &scope);
	ok(fake->current == FAKE_CONTEXT(1), "and the program's is back");
	fake->current = NULL;
	is_int(glk_cuda_enter(cuda, 2, &scope), -EINVAL, "GPU 2 of 2");
	is_int(glk_cuda_enter(cuda, -1, &scope), -EINVAL, "GPU -1");
}

static void streams(void)
{
	struct glk_cuda_scope scope;

	fake->stream_context = (struct CUctx_st *)(uintptr_t)0x4242;
	is_int(glk_cuda_enter_stream(cuda, FAKE_STREAM, 0, &scope), 0, "a stream");
	ok(fake->current == fake->stream_context, "its own context, also a foreign one");
	glk_cuda_leave(cuda, &scope);
	is_int(glk_cuda_enter_stream(cuda, NULL, 1, &scope), 0, "the default stream");
	ok(fake->current == FAKE_CONTEXT(1), "of the GPU named");
	glk_cuda_leave(cuda, &scope);
	fake->stream_context = FAKE_CONTEXT(0);

	fake->fail_call = "cuStreamGetCtx";
	fake->fail_result = GLK_CU_INVALID_HANDLE;
	is_int(glk_cuda_enter_stream(cuda, FAKE_STREAM, 0, &scope), -EINVAL, "no stream");
	fake->fail_call = NULL;
}

static void failing(void)
{
	struct glake_error record = {.sz = sizeof(record)};
	struct glk_cuda_scope scope;

	glk_cuda_contexts_release(cuda);
	is_int(fake->retained[0] + fake->retained[1], 0, "all given back");
	is_int(glk_cuda_enter_any(cuda, &scope), 0, "any context, none there");
	ok(!scope.pushed, "is none");
	glk_cuda_leave(cuda, &scope);

	fake->fail_call = "cuDevicePrimaryCtxRetain";
	fake->fail_result = GLK_CU_OUT_OF_MEMORY;
	is_int(glk_cuda_enter(cuda, 0, &scope), -ENOMEM, "no memory for a context");
	is_int(fake->mode, 0, "the capture mode is as before");
	fake->fail_call = "cuCtxPushCurrent";
	fake->fail_result = GLK_CU_CONTEXT_IS_DESTROYED;
	is_int(glk_cuda_enter(cuda, 0, &scope), -ENODEV, "the program destroyed it");
	glake_last_error(&record);
	is_int(record.error_class, GLAKE_ERROR_DEVICE_LOST, "which is a lost GPU");
	is_int(glk_cuda_enter_any(cuda, &scope), 0, "giving back goes on without it");
	ok(!scope.pushed, "nothing pushed");
	glk_cuda_leave(cuda, &scope);
	fake->fail_call = "cuThreadExchangeStreamCaptureMode";
	fake->fail_result = GLK_CU_UNKNOWN;
	is_int(glk_cuda_enter(cuda, 0, &scope), 0, "without a capture mode to set");
	glk_cuda_relax(cuda, &scope);
	ok(!scope.relaxed, "it is not relaxed");
	glk_cuda_leave(cuda, &scope);
	fake->fail_call = "cuDevicePrimaryCtxRelease";
	fake->fail_result = GLK_CU_DEINITIALIZED;
	is_int(glk_cuda_contexts_release(cuda), 0,
		"giving back to a driver that has gone");
	fake->fail_call = NULL;
	is_int(fake->pushes, fake->pops, "as many pops as pushes");
}

int main(void)
{
	tap_plan_later();
	cuda = fake_open(&lib, &fake);
	if (!cuda)
		tap_bail("no fake libcuda");
	entering();
	streams();
	failing();
	is_int(cuda->drv.ops->close(&cuda->drv), 0, "close");
	return tap_done();
}
