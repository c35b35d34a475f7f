/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What CUDA tells of a stream, in which context it is asked, and whose a stream is. */
#include "cuda_rig.h"

#include <pthread.h>

#include <glake/error.h>

static struct glk_stream_facts facts;

static const char *text(void)
{
	static struct glake_error record;

	record.sz = sizeof(record);
	glake_last_error(&record);
	return record.text;
}

static int ask(struct CUstream_st *stream)
{
	facts = (struct glk_stream_facts){77, 77};
	return drv->ops->stream_facts(drv, 1, stream, &facts);
}

static void ids(void)
{
	is_int(ask(FAKE_STREAM), 0, "a stream");
	is_int((int64_t)facts.id, 0x2064, "its number");
	is_int((int64_t)facts.capture, 0, "it captures nothing");
	is_int(fake->pushes, 0, "no context was pushed for it");
	is_int(fake->retains, 0, "nor made");
	is_int(ask(NULL), 0, "the default stream");
	ok(fake->context == FAKE_CONTEXT(1), "asked in the context of its GPU");
	is_int(ask(GLK_STREAM_LEGACY), 0, "its other name");
	ok(fake->context == FAKE_CONTEXT(1), "in the same");
	is_int(ask(GLK_STREAM_PER_THREAD), 0, "the thread's own");
	ok(fake->context == FAKE_CONTEXT(1), "in the same");
	is_int(drv->ops->stream_facts(drv, 2, NULL, &facts), -EINVAL, "of GPU 2 of 2");
	fake->want_context = true;
	is_int(ask(FAKE_STREAM), 0, "a driver that wants some context");
	ok(fake->context == FAKE_CONTEXT(1), "gets one");
	is_int((int64_t)facts.id, 0x2064, "and answers");
	fake->want_context = false;
}

/* The library asks outside of its locks too. */
static void cancelled(void)
{
	int state;

	ok(!fake->ends_there, "no thread ends inside of the driver");
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	is_int(state, PTHREAD_CANCEL_ENABLE, "and each may end afterwards");
}

static void captures(void)
{
	fake->capturing = GLK_CU_CAPTURE_ACTIVE;
	fake->capture_id = 5;
	is_int(ask(FAKE_STREAM), 0, "while it captures");
	is_int((int64_t)facts.capture, 5, "which graph");
	is_int((int64_t)facts.id, 0, "its number is not asked for");
	ok(!fake->capture_broken, "which would break the capture");
	is_int(fake->mode, 0, "the thread's mode is its own");
	ok(!fake->capture_broken, "the capture lives");
	fake->capture_id = 0;
	ask(FAKE_STREAM);
	ok(facts.capture == GLK_CAPTURE_BROKEN, "a capture without a number");
	fake->capturing = GLK_CU_CAPTURE_INVALIDATED;
	fake->capture_id = 5;
	ask(FAKE_STREAM);
	ok(facts.capture == GLK_CAPTURE_BROKEN, "a broken one counts");
	fake->capturing = GLK_CU_CAPTURE_NONE;
	ask(FAKE_STREAM);
	is_int((int64_t)facts.capture, 0, "its number means nothing after it");
	fail("cuStreamGetCaptureInfo_v1", GLK_CU_STREAM_CAPTURE_IMPLICIT);
	is_int(ask(NULL), 0, "the legacy stream beside a blocking one that captures");
	ok(facts.capture == GLK_CAPTURE_BROKEN, "counts as broken");
	is_int((int64_t)facts.id, 0, "and has no number");
	fail(NULL, 0);
}

static void failures(void)
{
	fail("cuStreamGetCaptureInfo_v1", GLK_CU_INVALID_HANDLE);
	is_int(ask(FAKE_STREAM), -EINVAL, "no stream");
	is_int((int64_t)facts.id, 77, "the output is left alone");
	fail("cuStreamGetId", GLK_CU_ILLEGAL_ADDRESS);
	is_int(ask(FAKE_STREAM), -ENODEV, "a lost GPU");
	is_int((int64_t)facts.capture, 77, "the output is left alone");
	fail(NULL, 0);
}

static void owners(void)
{
	is_int(drv->ops->stream_owner(drv, 0, FAKE_STREAM), 0, "a stream of GPU 0");
	is_int(drv->ops->stream_owner(drv, 1, FAKE_STREAM), -EINVAL, "is not of GPU 1");
	is_str(text(), "the stream is of GPU 0, not of GPU 1", "and says so");
	fake->stream_context = (struct CUctx_st *)(uintptr_t)0x4242;
	is_int(drv->ops->stream_owner(drv, 0, FAKE_STREAM), -EINVAL,
		"nor one of the program's own context");
	has_str(text(), "another context", "and says so");
	fake->stream_context = FAKE_CONTEXT(0);
	is_int(drv->ops->stream_owner(drv, 0, NULL), 0, "default streams");
	is_int(drv->ops->stream_owner(drv, 1, GLK_STREAM_LEGACY), 0, "are of every");
	is_int(drv->ops->stream_owner(drv, 1, GLK_STREAM_PER_THREAD), 0, "GPU");
	is_int(drv->ops->stream_owner(drv, 2, NULL), -EINVAL, "but not of GPU 2 of 2");
	for (int i = 0; i < 4; i++) {
		const glk_cu_result stale[] = {GLK_CU_INVALID_HANDLE,
			GLK_CU_INVALID_VALUE, GLK_CU_INVALID_CONTEXT,
			GLK_CU_CONTEXT_IS_DESTROYED};

		fail("cuStreamGetCtx", stale[i]);
		is_int(drv->ops->stream_owner(drv, 0, FAKE_STREAM), -EINVAL,
			"a stream that was ended");
		has_str(text(), "0x2000 is no stream, or was ended", "is none");
	}
	fail("cuStreamGetCtx", GLK_CU_LAUNCH_FAILED);
	is_int(drv->ops->stream_owner(drv, 0, FAKE_STREAM), -ENODEV, "a lost GPU");
	fail(NULL, 0);
}

/* A driver of CUDA 11 has no numbers for streams. */
static void older(void)
{
	struct glk_cuda_lib old;
	struct glk_drv *late;

	fake->version = 11080;
	is_int(glk_cuda_lib_load(fake_path(12000), &old), 0, "a driver of CUDA 11.8");
	ok(!old.cuStreamGetId, "has no cuStreamGetId");
	is_int(glk_cuda_new(&old, &late), 0, "opens");
	facts = (struct glk_stream_facts){77, 77};
	is_int(late->ops->stream_facts(late, 0, FAKE_STREAM, &facts), 0, "and answers");
	is_int((int64_t)facts.id, 0, "without a number");
	is_int((int64_t)facts.capture, 0, "but with the capture");
	late->ops->close(late);
	fake->version = 13000;
	fake->missing = "cuStreamGetId";
	is_int(glk_cuda_lib_load(fake_path(12000), &old), 0, "a driver without it");
	ok(!old.cuStreamGetId, "will do too");
	fake->missing = NULL;
}

int main(void)
{
	rig_begin();
	ids();
	cancelled();
	captures();
	failures();
	owners();
	older();
	is_int(fake->pushes, fake->pops, "as many pops as pushes");
	return rig_end();
}
