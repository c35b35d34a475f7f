/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What other copies do to the paths while one that is queued whole gives way to them: it waits for all that is its
 * own, and uses no path that was refused to it. */
#include "unit/api/copy_rig.h"

#include "base/clock.h"
#include "tier/io/job.h"

#include <pthread.h>
#include <time.h>

#define SLOW 2000		/* us of each copy that the driver is told of */
#define LONG INT64_C(200000000) /* ns in which a stream would go on that does not wait */

static glk_atomic(bool) ended_copy;

struct whole {
	size_t bytes;
	struct glake_copy_job *job;
	bool asked; /* for the job */
	int err;
};

static void *queue(void *arg)
{
	struct whole *w = arg;

	w->err = glake_copy(
		ctx, gpu, host, w->bytes, stream, 0, w->asked ? &w->job : NULL);
	glk_store_release(&ended_copy, true);
	return NULL;
}

static void start(struct whole *w, pthread_t *thread)
{
	glk_store_release(&ended_copy, false);
	if (pthread_create(thread, NULL, queue, w))
		tap_bail("no thread");
}

static void slow_down(const char *beside)
{
	char rule[96];

	snprintf(rule, sizeof(rule), "copy:from=1:delay=%d%s", SLOW, beside);
	glk_fault_set(context->drv, rule);
}

static void a_while(int64_t ns)
{
	struct timespec t = {.tv_nsec = ns};

	nanosleep(&t, NULL);
}

static uint64_t relayed_by(int relay)
{
	uint64_t bytes;

	glk_io_enter(&context->io);
	bytes = context->io.gpu[relay].relayed;
	glk_unlock(&context->io.lock);
	return bytes;
}

/* Whether the stream of the program waits for what is held, for long. */
static bool stands(void)
{
	struct glk_drv *drv = context->drv;
	int64_t since = glk_clock_ns();
	struct glk_drv_event *event;
	bool waits = true;

	if (drv->ops->event_new(drv, 0, &event) ||
		drv->ops->event_record(drv, event, stream))
		tap_bail("no event");
	while (waits && glk_clock_ns() - since < LONG) {
		waits = drv->ops->event_query(drv, event) == -EAGAIN;
		a_while(1000000);
	}
	drv->ops->event_free(drv, event);
	return waits;
}

static void hold_hop(int relay, bool hold)
{
	glk_soft_hold(context->drv, 0, context->io.gpu[0].hop[GLK_IO_DOWN][relay], hold);
}

static void warm(void)
{
	if (glake_copy(ctx, gpu, host, ROOM, stream, 0, NULL) || sync_stream())
		tap_bail("no copy");
	memset(gpu, 0, ROOM);
}

/* Another copy has a relay put off that this one has pieces on. False: this one was queued before that. */
static bool put_off(void)
{
	static const char *const settings[] = {MANY, "io.fed=16TiB", NULL};
	struct glk_job other_job = {.turn = GLK_IO_DOWN};
	struct whole w = {.bytes = ROOM};
	pthread_t thread;
	uint64_t before, copies;
	bool in_time;

	begin(settings);
	fill(host, ROOM);
	warm();
	before = relayed_by(1);
	copies = context->io.copies;
	hold_hop(1, true);
	slow_down("");
	start(&w, &thread);
	while (relayed_by(1) == before && !glk_load_acquire(&ended_copy))
		;
	tap_expect_log(1);
	other_job.io = &context->io;
	glk_io_enter(&context->io);
	in_time = context->io.copies == copies;
	glk_job_put_off(&other_job, 1);
	glk_unlock(&context->io.lock);
	pthread_join(thread, NULL);
	glk_fault_set(context->drv, "off");
	ok(!w.err && stands(), "its stream waits for the pieces that the relay had");
	hold_hop(1, false);
	ok(!sync_stream() && !memcmp(gpu, host, w.bytes), "every byte");
	end();
	return in_time;
}

/* The link of the GPU itself is refused to one copy, and another one begins. False: that call was another one. */
static bool refused(unsigned call)
{
	static const char *const settings[] = {MANY, "io.lend=1", "io.fed=16TiB", NULL};
	struct whole w = {.bytes = 2 * MIB, .asked = true};
	struct CUstream_st *second;
	struct glake_copy_state is;
	uint64_t calls, failed = 0;
	char rule[32];
	pthread_t thread;
	bool off;

	begin(settings);
	if (glake_stream_new(ctx, 0, &second))
		tap_bail("no second stream");
	fill(host, ROOM);
	warm();
	snprintf(rule, sizeof(rule), ";copy:nth=%u:err=EIO", call);
	slow_down(rule);
	start(&w, &thread);
	while (!failed && !glk_load_acquire(&ended_copy))
		glk_fault_count(context->drv, &calls, &failed);
	if (glake_copy(ctx, gpu + 3 * MIB, host + 3 * MIB, 128 * KIB, second, 0, NULL))
		tap_bail("no copy");
	pthread_join(thread, NULL);
	glk_fault_set(context->drv, "off");
	is = state_of(w.job);
	off = context->io.gpu[1].off;
	tap_expect_log(off);
	if (!off) {
		ok(failed == 1 && !w.err && !is.failed_parts,
			"the driver refuses a copy its own link");
		is_int((int64_t)is.paths, 1, "which is not used again by that copy");
	}
	ok(!sync_stream() && !memcmp(gpu, host, w.bytes), "call %u: every byte", call);
	context->drv->ops->stream_sync(context->drv, 0, second);
	glake_copy_close(w.job);
	glake_stream_free(ctx, 0, second);
	end();
	return !off;
}

int main(void)
{
	int tries = 1;

	tap_plan_later();
	copy_rig_start();
	/* another program may have the processor meanwhile */
	while (!put_off() && tries < 100)
		tries++;
	ok(tries < 100, "a relay is put off while a copy is queued");
	/* two calls for a piece over the relay, one for eight of the others */
	for (unsigned call = 16; call < 32 && !refused(call); call++)
		;
	return tap_done();
}
