/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whose default stream a copy is on, and that its job says when that one has passed it. */
#include "unit/api/copy_rig.h"

#include <glake/managed.h>

static const char *const two[] = {
	"soft.gpus=2", "soft.memory=64MiB", "map.span=4GiB", "driver.fault=off", NULL};

/* Whether a copy on a default stream is on that of one GPU: behind what is held there, and not behind
 * what is held on the other's. */
static bool is_on(int device, struct CUstream_st *on, void *dst, const void *src)
{
	struct glk_drv *drv = context->drv;
	struct glake_copy_job *job = NULL;
	bool right = true;

	for (int held = 0; held < 2; held++) {
		glk_soft_hold(drv, held, on, true);
		right = !glake_copy(ctx, dst, src, KIB, on, 0, &job) && right;
		right = (held == device) ==
				(glake_copy_wait(job, held == device ? 0 : -1) ==
					-ETIMEDOUT) &&
			right;
		glk_soft_hold(drv, held, on, false);
		right = !glake_copy_wait(job, -1) && !memcmp(dst, src, KIB) &&
			!glake_copy_close(job) && right;
	}
	return right;
}

static void owners(struct CUstream_st *on, unsigned char *far)
{
	fill(host, MIB);
	ok(is_on(1, on, far, host), "down to GPU 1");
	ok(is_on(1, on, other, far), "up from GPU 1, to locked memory");
	ok(is_on(0, on, gpu, host), "down to GPU 0");
	ok(is_on(1, on, far + MIB / 2, gpu), "from GPU 0 to GPU 1");
	ok(is_on(0, on, gpu + MIB, far), "from GPU 1 to GPU 0");
	ok(is_on(0, on, other + MIB, host), "between memory of the host");
}

static void lists(struct CUstream_st *on, unsigned char *far)
{
	struct glake_copy_range r[] = {
		{gpu, host, KIB}, {gpu + MIB, host, 0}, {far, host, KIB}};
	struct glake_copy_job *job = NULL;

	memset(host, 7, KIB);
	memset(gpu, 0, KIB);
	is_int(glake_copy_list(ctx, r, 3, on, 0, NULL), -EINVAL,
		"a list on the default streams of two GPUs");
	is_int(error_class(), GLAKE_ERROR_INVAL, "  its class");
	is_int(glake_copy_list(ctx, r, 3, on, 0, &job), -EINVAL, "  with a job");
	for (int device = 0; device < 2; device++)
		context->drv->ops->device_sync(context->drv, device);
	ok(!gpu[0], "  of which nothing was queued");
	is_int(glake_copy_list(ctx, r, 2, on, 0, NULL), 0, "one on those of one");
	is_int(glake_copy_list(ctx, r, 3, stream, 0, &job), 0,
		"one of both on a stream of ours");
	is_int(glake_copy_wait(job, -1), 0, "  is made");
	is_int(glake_copy_close(job), 0, "  and ended");
}

static void default_streams(void)
{
	void *far = NULL, *managed = NULL;

	begin(two);
	if (glake_peer_access(ctx, 1, 0, 1) || glake_peer_access(ctx, 0, 1, 1) ||
		glake_alloc(ctx, 1, MIB, NULL, 0, &far) ||
		glake_alloc(ctx, 1, MIB, NULL, GLAKE_ALLOC_MANAGED, &managed))
		tap_bail("no memory of GPU 1");
	owners(NULL, far);
	owners(GLK_STREAM_PER_THREAD, far);
	ok(is_on(1, NULL, managed, host), "to managed memory of GPU 1");
	ok(is_on(1, NULL, other, managed), "from managed memory of GPU 1");
	lists(NULL, far);
	lists(GLK_STREAM_LEGACY, far);
	glake_free(ctx, managed, NULL);
	glake_free(ctx, far, NULL);
	end();
}

/* What the driver is asked to do while nothing is locked that asking for a job needs. */
static const struct glk_drv_ops *usual;
static struct glk_drv_ops slow;
static struct glake_copy_job *done;
static int asked, answer;

static void ask(void)
{
	struct glake_copy_state now = {.sz = sizeof(now)};

	asked++;
	answer |= glake_copy_get(done, &now);
}

static int slow_record(
	struct glk_drv *drv, struct glk_drv_event *event, struct CUstream_st *on)
{
	ask();
	return usual->event_record(drv, event, on);
}

static int slow_free(struct glk_drv *drv, struct glk_drv_event *event)
{
	ask();
	return usual->event_free(drv, event);
}

/* Each would wait for itself, would the call be made with the table of jobs locked. */
static void others_are_asked(void)
{
	struct glake_copy_job *job = NULL, *none = NULL;

	begin(two);
	if (glake_copy(ctx, gpu, host, KIB, stream, 0, &done) ||
		glake_copy_wait(done, -1))
		tap_bail("no copy");
	usual = context->drv->ops;
	slow = *usual;
	slow.event_record = slow_record;
	context->drv->ops = &slow;
	is_int(glake_copy(ctx, gpu, host, KIB, stream, 0, &job), 0, "a copy with a job");
	ok(asked == 1 && !answer, "while its event is recorded others are asked");
	slow.event_free = slow_free;
	glk_fault_set(context->drv, "event_record:nth=1:err=EIO");
	is_int(glake_copy(ctx, gpu, host, KIB, stream, 0, &none), -EIO, "one refused");
	ok(asked == 3 && !answer && !none, "while its event ends too");
	context->drv->ops = usual;
	is_int(glake_copy_wait(job, -1) | glake_copy_close(job) | glake_copy_close(done),
		0, "those that were had end");
	end();
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
	default_streams();
	others_are_asked();
	return tap_done();
}
