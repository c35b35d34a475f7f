/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a copy has borrowed of links is given back once it has ended, by whatever is called next. */
#include "unit/api/copy_rig.h"
#include "unit/api/stuck.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define AGREE MANY, "io.agree=always"

static int look(const struct glake_figure *figure, void *arg)
{
	if (figure->device == 1 && !strcmp(figure->name, "link_borrowed_shares"))
		*(int64_t *)arg = (int64_t)figure->value;
	return 0;
}

static int64_t shares(void)
{
	int64_t found = -1;

	glake_figures(ctx, look, &found);
	return found;
}

static unsigned borrowed(void)
{
	return glk_load_relaxed(&context->io.borrowed);
}

/* A copy that is under way, to be ended; or held, until its stream may go on. */
static struct glake_copy_job *begin_copy(bool held)
{
	struct glake_copy_job *job = NULL;

	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, 3 * MIB, stream, 0, &job), 0, "a copy");
	is_int(borrowed(), 3, "borrows the links of the others");
	glake_trim(ctx, 0, 0, NULL);
	is_int(borrowed(), 3, "as long as it is under way");
	if (!held)
		glk_soft_hold(context->drv, 0, stream, false);
	return job;
}

static void given_back(void)
{
	static const char *const settings[] = {AGREE, NULL};
	struct glake_copy_job *job;
	void *far = NULL;

	begin(settings);
	glake_alloc(ctx, 1, MIB, NULL, 0, &far);
	job = begin_copy(false);
	is_int(shares(), 4, "which the figures tell");
	is_int(glake_copy_wait(job, -1), 0, "a wait for its end");
	is_int(borrowed(), 0, "gives them back");
	is_int(shares(), 0, "as the figures tell");
	glake_copy_close(job);
	job = begin_copy(false);
	sync_stream();
	is_int(state_of(job).stage, GLAKE_COPY_DONE, "a question");
	is_int(borrowed(), 0, "does too");
	glake_copy_close(job);
	glake_copy_close(begin_copy(false));
	sync_stream();
	glake_trim(ctx, 0, 0, NULL);
	is_int(borrowed(), 0, "and a trim");
	glake_copy_close(begin_copy(false));
	sync_stream();
	glake_copy(ctx, gpu, host, 1, stream, GLAKE_COPY_DIRECT, NULL);
	is_int(borrowed(), 0, "and another copy");
	glake_copy_close(begin_copy(false));
	sync_stream();
	is_int(glake_suspend(ctx, 0, NULL) | glake_resume(ctx, 0, NULL), 0,
		"a suspension");
	is_int(borrowed(), 0, "too");
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, 64 * KIB, stream, 0, NULL), 0, "one piece");
	is_int(borrowed(), 0, "gives back what it does not use, while it is under way");
	glk_soft_hold(context->drv, 0, stream, false);
	sync_stream();
	glake_free(ctx, far, NULL);
	end();
}

/* Some, as one of random size may be too small for all links. */
static bool round_trips(void)
{
	for (int i = 0; i < 6; i++)
		if (!round_trip(3 * MIB))
			return false;
	return true;
}

/* Two contexts of a process are to each other as two processes. */
static void contexts(void)
{
	static const char *const settings[] = {AGREE, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glake *second = NULL;
	void *theirs = NULL;

	begin(settings);
	ok(round_trips() && context->io.gpu[1].relayed, "all links for one context");
	glk_io_rest(&context->io);
	context->io.gpu[1].relayed = context->io.gpu[2].relayed = 0;
	if (glake_open(&options, &second) ||
		glake_alloc(second, 1, MIB, NULL, 0, &theirs))
		tap_bail("no second context");
	ok(round_trips() && !context->io.gpu[1].relayed && context->io.gpu[2].relayed,
		"but not that of a GPU which another one uses");
	glake_free(second, theirs, NULL);
	glake_close(second, NULL);
	ok(round_trips() && context->io.gpu[1].relayed, "until that one is closed");
	end();
}

/* A copy that goes another way gives back nothing that one uses which is under way. */
static void others(void)
{
	static const char *const settings[] = {AGREE, NULL};
	struct CUstream_st *far_stream = NULL;
	struct glake_copy_job *job;
	void *far = NULL;

	begin(settings);
	if (glake_stream_new(ctx, 1, &far_stream) ||
		glake_alloc(ctx, 1, MIB, far_stream, 0, &far))
		tap_bail("no second GPU");
	job = begin_copy(true);
	glk_fault_set(context->drv, "peer_can:from=1:err=EOPNOTSUPP");
	is_int(glake_copy(ctx, far, host, MIB, far_stream, 0, NULL), 0,
		"a copy to a GPU that reaches none of the others");
	is_int(borrowed(), 3, "gives back nothing of another copy");
	glk_fault_set(context->drv, "off");
	glk_soft_hold(context->drv, 0, stream, false);
	is_int(glake_copy_wait(job, -1), 0, "which ends");
	is_int(borrowed(), 0, "and gives it back");
	glake_copy_close(job);
	glake_free(ctx, far, far_stream);
	glake_stream_free(ctx, 1, far_stream);
	end();
}

/* Two to different GPUs over one link: the later one has passed first. */
static void two_targets(void)
{
	static const char *const settings[] = {AGREE, "io.lend=2", NULL};
	struct CUstream_st *far_stream = NULL, *hop;
	struct glk_drv *drv;
	void *far = NULL;

	begin(settings);
	drv = context->drv;
	if (glake_stream_new(ctx, 1, &far_stream) ||
		glake_alloc(ctx, 1, MIB, far_stream, 0, &far))
		tap_bail("no second GPU");
	is_int(glake_copy(ctx, gpu, host, 512 * KIB, stream, 0, NULL) | sync_stream(), 0,
		"a copy over a lent link");
	hop = context->io.gpu[0].hop[GLK_IO_DOWN][2];
	glk_soft_hold(drv, 0, hop, true);
	is_int(glake_copy(ctx, gpu, host, 512 * KIB, stream, 0, NULL), 0,
		"one that stands");
	is_int(glake_copy(ctx, far, host, 512 * KIB, far_stream, 0, NULL) |
			drv->ops->stream_sync(drv, 1, far_stream),
		0, "and one to another GPU, which has passed");
	glk_io_rest(&context->io);
	is_int(borrowed(), 1, "gives back nothing of the first one");
	glk_soft_hold(drv, 0, hop, false);
	is_int(sync_stream(), 0, "which passes");
	glk_io_rest(&context->io);
	is_int(borrowed(), 0, "and then it is given back");
	glake_free(ctx, far, far_stream);
	glake_stream_free(ctx, 1, far_stream);
	end();
}

/* A GPU is lost with some of a copy on its way: nothing comes any more, and others may have the link. */
static void lost(void)
{
	static const char *const settings[] = {AGREE, "io.lend=2", NULL};
	struct CUstream_st *hop;

	begin(settings);
	is_int(glake_copy(ctx, gpu, host, 512 * KIB, stream, 0, NULL) | sync_stream(), 0,
		"a copy over a lent link");
	hop = context->io.gpu[0].hop[GLK_IO_DOWN][2];
	glk_soft_hold(context->drv, 0, hop, true);
	is_int(glake_copy(ctx, gpu, host, 512 * KIB, stream, 0, NULL), 0,
		"one that stands");
	glk_fault_set(context->drv, "event_query:from=1:err=EIO");
	glk_io_rest(&context->io);
	is_int(borrowed(), 1, "what cannot be asked about keeps the link");
	glk_fault_set(context->drv, "event_query:nth=1:sticky=1");
	glk_io_rest(&context->io);
	is_int(borrowed(), 0, "what is lost does not");
	glk_fault_set(context->drv, "off");
	glk_soft_hold(context->drv, 0, hop, false);
	is_int(sync_stream(), 0, "it ends");
	end();
}

static void *queue(void *arg)
{
	return (void *)(intptr_t)glake_copy(arg, gpu, host, 3 * MIB, stream, 0, NULL);
}

/* Who asks does not wait for one that queues pieces, which may take as long as its stream does. */
static void briefly(void)
{
	static const char *const settings[] = {AGREE, NULL};
	struct glake_copy_job *job;
	void *failed = &job;
	pthread_t thread;

	begin(settings);
	stuck_prepare();
	job = begin_copy(false);
	sync_stream();
	stuck_at(2);
	if (pthread_create(&thread, NULL, queue, ctx))
		tap_bail("no thread");
	stuck_wait();
	is_int(state_of(job).stage, GLAKE_COPY_DONE,
		"a question while another copy is queued");
	ok(stuck_end(), "is answered before that is");
	pthread_join(thread, &failed);
	ok(!failed, "it is");
	sync_stream();
	state_of(job);
	is_int(borrowed(), 0, "and all is given back");
	glake_copy_close(job);
	end();
}

static void *queue_little(void *arg)
{
	return (void *)(intptr_t)glake_copy(
		ctx, gpu + 3 * MIB, host + 3 * MIB, 4 * KIB, arg, 0, NULL);
}

/* A copy that lets another one go before it has links of which that one has no use: they stay borrowed. */
static void in_turns(void)
{
	static const char *const settings[] = {AGREE, NULL};
	struct CUstream_st *second = NULL;
	uint64_t calls, refused;
	pthread_t first, later;
	void *failed, *late;
	unsigned coming;

	begin(settings);
	if (glake_stream_new(ctx, 0, &second))
		tap_bail("no second stream");
	stuck_prepare();
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	stuck_at(1);
	if (pthread_create(&first, NULL, queue, ctx))
		tap_bail("no thread");
	stuck_wait();
	is_int(borrowed(), 3, "the first piece of a copy is queued");
	coming = glk_load_relaxed(&context->io.coming);
	if (pthread_create(&later, NULL, queue_little, second))
		tap_bail("no thread");
	while (glk_load_relaxed(&context->io.coming) == coming)
		sched_yield();
	/* of the two events that tell of a start one is kept */
	glk_fault_set(context->drv, "event_free:nth=1:err=EIO");
	ok(stuck_end(), "and one of one piece comes");
	pthread_join(later, &late);
	pthread_join(first, &failed);
	ok(!late && !failed, "both are queued");
	glk_fault_count(context->drv, &calls, &refused);
	glk_fault_set(context->drv, "off");
	is_int((int64_t)refused, 1, "an event that does not end is asked for twice");
	is_int(borrowed(), 3, "the links of the first one are borrowed");
	ok(context->io.gpu[1].relayed && context->io.gpu[2].relayed &&
			context->io.gpu[3].relayed,
		"which goes over all of them");
	glk_soft_hold(context->drv, 0, stream, false);
	is_int(sync_stream() | context->drv->ops->stream_sync(context->drv, 0, second), 0,
		"both end");
	ok(!memcmp(gpu, host, 3 * MIB + 4 * KIB), "every byte");
	glk_io_rest(&context->io);
	is_int(borrowed(), 0, "and all is given back");
	glake_stream_free(ctx, 0, second);
	end();
}

/* A GPU that cannot be named is nobody's to agree on. */
static void nameless(void)
{
	static const char *const settings[] = {AGREE, NULL};

	begin(settings);
	glk_fault_set(context->drv, "device_info:from=1:err=EIO");
	ok(round_trips() && !borrowed(), "where GPUs have no names nothing is borrowed");
	ok(context->io.gpu[1].relayed, "and copies go over all links");
	glk_fault_set(context->drv, "off");
	end();
}

int main(void)
{
	char folder[128], name[192];

	tap_plan_later();
	copy_rig_start();
	if (!mkdtemp(tap_template(folder, sizeof(folder), "copy")))
		tap_bail("no folder");
	setenv("XDG_RUNTIME_DIR", folder, 1);
	given_back();
	contexts();
	others();
	two_targets();
	lost();
	briefly();
	in_turns();
	nameless();
	snprintf(name, sizeof(name), "%s/glake/links", folder);
	ok(!unlink(name), "there is a file to agree by");
	*strrchr(name, '/') = '\0';
	rmdir(name);
	rmdir(folder);
	return tap_done();
}
