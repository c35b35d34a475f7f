/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The instance: open over a loaded libcuda, close, exit (fault 45), fork. */
#include "driver/cuda.h"

#include "base/rcu.h"
#include "cuda_fake.h"
#include "tap.h"

#include <errno.h>
#include <sys/wait.h>

#define PAGE ((size_t)2 << 20)

static struct fake *fake;
static struct glk_drv *drv;

static int class_now(void)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	return record.error_class;
}

/* The exit status of `body` run in a child. */
static int in_child(void (*body)(void))
{
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		body();
		_exit(99);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void opening(void)
{
	struct glk_drv *other = NULL;

	/* The fake bears the name libcuda.so.1 and is loaded, so it is the driver here. */
	is_int(glk_cuda_open(NULL, &drv), 0, "open");
	is_int(glk_cuda_version(drv), 13000, "version");
	is_str(drv->ops->name, "cuda", "name");
	is_int(drv->ops->version, GLK_DRV_OPS_VERSION, "version of the table");
	is_int(fake->retains, 0, "no context was made");
	is_int(glk_cuda_open(NULL, &other), 0, "open again");
	ok(other != drv, "is another instance");
	is_int(other->ops->close(other), 0, "close it");

	fake->gpus = 2;
	for (uint32_t n = 1; n <= 3; n++) {
		glk_region_fail_after(n);
		is_int(glk_cuda_open(NULL, &other), -ENOMEM, "no memory for its tables");
	}
	glk_region_fail_after(0);
	fake->fail_call = "cuDeviceGet";
	fake->fail_result = GLK_CU_UNKNOWN;
	is_int(glk_cuda_open(NULL, &other), -EIO, "a GPU that cannot be named");
	fake->fail_call = NULL;
}

static void many_gpus(void)
{
	struct glk_cuda_lib lib;
	struct glk_drv *wide;
	int count = 0;

	fake->gpus = GLK_CUDA_GPUS_MAX + 1;
	is_int(glk_cuda_lib_load(fake_path(12000), &lib), 0, "65 GPUs");
	tap_expect_log(1);
	is_int(glk_cuda_new(&lib, &wide), 0, "open");
	wide->ops->device_count(wide, &count);
	is_int(count, GLK_CUDA_GPUS_MAX, "64 are used");
	wide->ops->close(wide);
	fake->gpus = 2;
}

/* Each operation of the table, with what it must answer. */
static int every(int want, int want_giving)
{
	struct glk_place place = {GLK_PLACE_GPU, 0};
	struct glk_grant grant = {place, GLK_ACCESS_WRITE};
	struct glake_device info = {.sz = sizeof(info)};
	struct glk_drv_event *event = NULL;
	struct CUstream_st *stream = NULL;
	size_t a = 0, b = 0;
	uint64_t out = 0;
	int bad = 0, fd = -1;
	struct CUevent_st *user = NULL;
	struct glk_stream_facts facts;

	bad += drv->ops->device_info(drv, 0, &info) != want;
	bad += drv->ops->memory_info(drv, 0, &a, &b) != want;
	bad += drv->ops->reserve(drv, PAGE, PAGE, &out) != want;
	bad += drv->ops->create(drv, place, PAGE, 0, &out) != want;
	bad += drv->ops->map(drv, 0, PAGE, 1) != want;
	bad += drv->ops->set_access(drv, 0, PAGE, &grant, 1) != want;
	bad += drv->ops->export_fd(drv, 1, &fd) != want;
	bad += drv->ops->import_fd(drv, 0, &out) != want;
	bad += drv->ops->stream_new(drv, 0, &stream) != want;
	bad += drv->ops->stream_sync(drv, 0, NULL) != want;
	bad += drv->ops->stream_facts(drv, 0, NULL, &facts) != want;
	bad += drv->ops->stream_facts(drv, 0, FAKE_STREAM, &facts) != want;
	bad += drv->ops->stream_owner(drv, 0, FAKE_STREAM) != want;
	bad += drv->ops->device_sync(drv, 0) != want;
	bad += drv->ops->event_new(drv, 0, &event) != want;
	bad += drv->ops->user_event_new(drv, 0, &user) != want;
	bad += drv->ops->user_event_record(drv, 0, user, FAKE_STREAM) != want;
	bad += drv->ops->user_event_wait(drv, 0, FAKE_STREAM, user) != want;
	bad += drv->ops->user_event_free(drv, user) != want_giving;
	bad += drv->ops->copy(drv, 0, 0, 1, NULL) != want;
	bad += drv->ops->copy(drv, 0, 0, 1, FAKE_STREAM) != want;
	bad += drv->ops->fill(drv, 0, 0, 1, NULL) != want;
	bad += drv->ops->unmap(drv, 0, PAGE) != want_giving;
	bad += drv->ops->release(drv, 1) != want_giving;
	bad += drv->ops->unreserve(drv, 0, PAGE) != want_giving;
	bad += drv->ops->stream_free(drv, 0, FAKE_STREAM) != want_giving;
	return bad;
}

static int calls_before;
static struct glk_drv_event *last_event;

static void after_exit(void)
{
	struct glk_drv *other;
	int bad = every(-ENODEV, 0);

	bad += class_now() != GLAKE_ERROR_SHUTDOWN;
	bad += drv->ops->event_record(drv, last_event, NULL) != -ENODEV;
	bad += drv->ops->event_query(drv, last_event) != -ENODEV;
	bad += drv->ops->event_sync(drv, last_event) != -ENODEV;
	bad += drv->ops->stream_wait(drv, NULL, last_event) != -ENODEV;
	bad += drv->ops->event_free(drv, last_event) != 0;
	bad += glk_cuda_open(NULL, &other) != -ENODEV;
	bad += drv->ops->close(drv) != 0;
	_exit(bad ? bad : fake->calls == calls_before ? 0 : 98);
}

/* The handler is installed before ours, so it runs after ours. */
static void exit_in_child(void)
{
	struct glk_cuda_lib lib;

	atexit(after_exit);
	if (glk_cuda_lib_load(fake_path(12000), &lib) || glk_cuda_new(&lib, &drv) ||
		drv->ops->event_new(drv, 0, &last_event))
		_exit(97);
	calls_before = fake->calls;
	exit(96);
}

static void use_in_child(void)
{
	struct glk_drv *other;
	int calls = fake->calls;
	int bad = every(-ENODEV, -ENODEV);

	bad += class_now() != GLAKE_ERROR_FORKED;
	bad += drv->ops->event_free(drv, last_event) != -ENODEV;
	bad += glk_cuda_open(NULL, &other) != -ENODEV;
	bad += class_now() != GLAKE_ERROR_FORKED;
	bad += drv->ops->close(drv) != 0;
	_exit(bad ? bad : fake->calls == calls ? 0 : 98);
}

int main(void)
{
	tap_plan_later();
	fake = fake_load(12000);
	if (!fake)
		tap_bail(dlerror());
	/* First, while no handler of ours is there. */
	is_int(in_child(exit_in_child), 0,
		"after exit began: SHUTDOWN, no call of the driver");

	is_int(glk_rcu_init(false), 0, "fork hooks");
	opening();
	many_gpus();
	is_int(drv->ops->event_new(drv, 0, &last_event), 0, "an event");
	is_int(in_child(use_in_child), 0, "in a child: FORKED, no call of the driver");
	is_int(every(0, 0), 0, "and all goes on in the parent");
	tap_expect_log(1); /* two events left over */
	is_int(drv->ops->close(drv), 0, "close");
	is_int(fake->events, 0, "ends the events");
	is_int(fake->retained[0], 0, "and gives the context back");
	return tap_done();
}
