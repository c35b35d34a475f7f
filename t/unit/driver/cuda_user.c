/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Events as a program makes them: native handles, recorded in the thread's own mode. */
#include "cuda_rig.h"

static void life(void)
{
	struct CUevent_st *event = NULL;

	is_int(drv->ops->user_event_new(drv, 1, &event), 0, "new");
	ok(event == (struct CUevent_st *)(uintptr_t)0x3001, "the driver's own handle");
	is_int(fake->event_flags, GLK_CU_EVENT_DISABLE_TIMING, "without timing");
	ok(fake->context == FAKE_CONTEXT(1), "of GPU 1");
	is_int(drv->ops->user_event_record(drv, 1, event, NULL), 0, "record");
	ok(fake->context == FAKE_CONTEXT(1), "in the context of its GPU");
	is_int(drv->ops->user_event_wait(drv, 0, NULL, event), 0, "a wait on GPU 0");
	ok(fake->context == FAKE_CONTEXT(0), "in the context of the stream's GPU");
	is_int(drv->ops->user_event_free(drv, event), 0, "free");
	is_int(fake->events, 0, "none left");
}

static void captures(void)
{
	struct CUevent_st *event = NULL;

	fake->capturing = GLK_CU_CAPTURE_ACTIVE;
	fake->event_mode = 77;
	is_int(drv->ops->user_event_new(drv, 0, &event), 0, "new beside a capture");
	is_int(drv->ops->user_event_record(drv, 0, event, FAKE_STREAM), 0, "record");
	is_int(fake->event_mode, 0, "in the thread's own mode");
	fake->event_mode = 77;
	is_int(drv->ops->user_event_wait(drv, 0, FAKE_STREAM, event), 0, "wait");
	is_int(fake->event_mode, 0, "in the thread's own mode");
	is_int(drv->ops->user_event_free(drv, event), 0, "free");
	fake->capturing = GLK_CU_CAPTURE_NONE;
}

static void failing(void)
{
	struct CUevent_st *event = (struct CUevent_st *)(uintptr_t)0x4444;
	const struct {
		const char *call;
		glk_cu_result result;
		int err;
	} cases[] = {
		{"cuEventCreate", GLK_CU_OUT_OF_MEMORY, -ENOMEM},
		{"cuEventRecord", GLK_CU_INVALID_HANDLE, -EINVAL},
		{"cuStreamWaitEvent", 905, -EBUSY},
		{"cuEventDestroy", GLK_CU_INVALID_HANDLE, -EINVAL},
	};
	int got[4];

	for (int i = 0; i < 4; i++) {
		fake->fail_call = cases[i].call;
		fake->fail_result = cases[i].result;
		got[0] = drv->ops->user_event_new(drv, 0, &event);
		got[1] = drv->ops->user_event_record(drv, 0, event, FAKE_STREAM);
		got[2] = drv->ops->user_event_wait(drv, 0, FAKE_STREAM, event);
		got[3] = drv->ops->user_event_free(drv, event);
		for (int j = 0; j < 4; j++)
			ok(got[j] == (i == j ? cases[i].err : 0),
				"%s fails: call %d answers %d", cases[i].call, j, got[j]);
	}
	fail("cuEventDestroy", GLK_CU_DEINITIALIZED);
	is_int(drv->ops->user_event_free(drv, event), 0, "free when the driver has gone");
	fake->fail_call = NULL;
	is_int(drv->ops->user_event_new(drv, 2, &event), -EINVAL, "GPU 2 of 2");
	is_int(drv->ops->user_event_record(drv, -1, event, NULL), -EINVAL, "GPU -1");
	is_int(drv->ops->user_event_wait(drv, 9, NULL, event), -EINVAL, "GPU 9");
}

int main(void)
{
	rig_begin();
	life();
	captures();
	failing();
	is_int(fake->pushes, fake->pops, "as many pops as pushes");
	return rig_end();
}
