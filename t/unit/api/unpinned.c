/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies from and to memory of the host that is not locked, through buffers that are: every byte, in the
 * order of streams. */
#include "unit/api/unpinned_rig.h"

#include <sys/wait.h>
#include <unistd.h>

static void is_right(const char *streams, struct CUstream_st *on)
{
	const char *const settings[] = {CREW, streams, NULL};
	struct CUstream_st *made;
	int wrong = 0;
	uint64_t sum = 0;

	open_crew(settings);
	made = stream;
	stream = on ? on : stream;
	for (int i = 0; i < (tap_storms_take_long() ? 3 : 10); i++) {
		size_t bytes = i % 3
			? GLK_BOUNCE_LEAST + dice() % (BIG - 400 - GLK_BOUNCE_LEAST)
			: GLK_BOUNCE_LEAST + dice() % 3;

		wrong += !there_and_back(bytes);
		sum += bytes;
	}
	ok(!wrong, "%s: all bytes arrive, and no other is written", streams);
	ok(through(GLK_IO_DOWN) == sum && through(GLK_IO_UP) == sum,
		"%s: through the buffers, both ways", streams);
	ok(there_and_back(GLK_BOUNCE_LEAST - 1) && through(GLK_IO_DOWN) == sum,
		"%s: less than that is the driver's", streams);
	stream = made;
	close_crew();
}

/* The source is the program's own again at once, the target complete; earlier work comes before. */
static void in_order(void)
{
	static const char *const settings[] = {CREW, NULL};
	const size_t bytes = GLK_BOUNCE_SIZE;
	struct glake_copy_job *job;
	struct glk_drv *drv;

	open_crew(settings);
	drv = context->drv;
	fill(plain, bytes);
	memcpy(back, plain, bytes);
	glk_soft_hold(drv, 0, stream, true);
	drv->ops->fill(drv, (uintptr_t)block, 7, bytes / 4, stream);
	is_int(glake_copy(ctx, block, plain, bytes, stream, 0, &job), 0,
		"as much as the buffers hold, on a stream that does not go on");
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED,
		"is under way when the call returns");
	memset(plain, 0x5a, bytes);
	glk_soft_hold(drv, 0, stream, false);
	is_int(glake_copy_wait(job, -1), 0, "then it is done");
	ok(!memcmp(block, back, bytes), "with what was there at the call");
	is_int(glake_copy_close(job), 0, "closed");
	drv->ops->fill(drv, (uintptr_t)block, 0x01010101, BIG / 4, stream);
	is_int(glake_copy(ctx, back, block, BIG, stream, 0, &job), 0, "and back");
	is_int(state_of(job).stage, GLAKE_COPY_DONE, "it is done when the call returns");
	ok(back[0] == 1 && !memcmp(back, back + 1, BIG - 1),
		"behind what was queued before");
	is_int(glake_copy_close(job), 0, "closed");
	close_crew();
}

static void lists(void)
{
	static const char *const settings[] = {CREW, NULL};
	struct glake_copy_range r[4];
	uint64_t bytes = 5 * MIB + 13;

	open_crew(settings);
	fill(plain, BIG);
	fill(host, ROOM);
	r[0] = (struct glake_copy_range){block + 1, plain + 3, bytes};
	r[1] = (struct glake_copy_range){block + 6 * MIB, host, 2 * MIB};
	r[2] = (struct glake_copy_range){block + 9 * MIB, plain + 9 * MIB, 1000};
	r[3] = (struct glake_copy_range){plain + 12 * MIB, gpu, 2 * MIB};
	fill(gpu, 2 * MIB);
	is_int(glake_copy_list(ctx, r, 4, stream, 0, NULL), 0, "ranges of all kinds");
	is_int(sync_stream(), 0, "done");
	for (int i = 0; i < 4; i++)
		ok(!memcmp(r[i].dst, r[i].src, r[i].bytes), "range %d", i);
	is_int((int64_t)through(GLK_IO_DOWN), (int64_t)bytes, "one went through buffers");
	is_int((int64_t)through(GLK_IO_UP), (int64_t)(2 * MIB), "and one back");
	close_crew();
}

/* Copies that are not for the buffers. */
static void direct(void)
{
	static const char *const settings[] = {CREW, "soft.gpus=2", NULL};
	static const char *const none[] = {SOFT, NULL};
	struct CUstream_st *far;
	uint32_t graph;

	open_crew(settings);
	glake_stream_new(ctx, 1, &far);
	fill(plain, BIG);
	is_int(glake_copy(ctx, host, plain, 3 * MIB, stream, 0, NULL), 0,
		"between memory of the host");
	is_int(glake_copy(ctx, gpu, host, 3 * MIB, stream, 0, NULL), 0,
		"from locked memory");
	is_int(sync_stream(), 0, "done");
	ok(!memcmp(gpu, plain, 3 * MIB), "arrive");
	glake_soft_capture_begin(ctx, 0, stream);
	is_int(glake_copy(ctx, block, plain, 3 * MIB, stream, 0, NULL), 0,
		"one is captured");
	is_int(glake_soft_capture_end(ctx, 0, stream, &graph), 0, "which breaks nothing");
	glake_soft_graph_launch(ctx, 0, graph, stream);
	is_int(sync_stream(), 0, "its graph");
	ok(!memcmp(block, plain, 3 * MIB), "makes it");
	glake_soft_graph_free(ctx, graph);
	glake_copy(ctx, block, plain + 1, 3 * MIB, far, 0, NULL);
	is_int((int64_t)through(GLK_IO_DOWN), 0,
		"on a stream of another GPU: none through the buffers");
	ok(!context->io.bounce.crew.started && !context->io.bounce.ring[0][0].base,
		"neither thread nor memory is there before it is used");
	context->drv->ops->stream_sync(context->drv, 1, far);
	glake_stream_free(ctx, 1, far);
	close_crew();
	open_crew(none);
	ok(!context->io.bounce.drv && there_and_back(BIG - 400),
		"without threads it is the driver's");
	close_crew();
}

/* One who finds the buffers in use does not wait for who has them. */
static void beside(void)
{
	static const char *const settings[] = {CREW, NULL};
	struct glk_bounce_ring *ring;

	open_crew(settings);
	ring = &context->io.bounce.ring[0][GLK_IO_UP];
	fill(gpu, ROOM);
	glk_store_relaxed(&ring->busy, true);
	is_int(glake_copy(ctx, plain, gpu, 3 * MIB, stream, 0, NULL) | sync_stream(), 0,
		"while somebody else has the buffers");
	ok(!memcmp(plain, gpu, 3 * MIB) && !ring->base, "it is made without");
	is_int(glake_copy(ctx, gpu, plain, 3 * MIB, stream, 0, NULL) | sync_stream(), 0,
		"back");
	is_int((int64_t)through(GLK_IO_DOWN), (int64_t)(3 * MIB),
		"there are others for that way");
	glk_store_relaxed(&ring->busy, false);
	ok(there_and_back(3 * MIB) && through(GLK_IO_UP) == 3 * MIB,
		"then they are used");
	close_crew();
}

static int64_t copies(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	glake_driver_stats_get(ctx, &stats);
	return (int64_t)stats.calls[GLAKE_CALL_COPY];
}

/* A stream that does not go on, which the software device sees. */
static void stuck(void)
{
	static const char *const settings[] = {CREW, NULL};
	int64_t before;

	open_crew(settings);
	memset(back, 3, 6 * MIB);
	memset(block, 4, 6 * MIB);
	glk_soft_hold(context->drv, 0, stream, true);
	before = copies();
	is_int(glake_copy(ctx, back, block, 6 * MIB, stream, 0, NULL), -EBUSY,
		"what would wait for ever");
	is_int(copies() - before, 2, "both buffers were to be filled before that");
	ok(back[0] == 3 && back[6 * MIB - 1] == 3, "writes nothing");
	glk_soft_hold(context->drv, 0, stream, false);
	ok(there_and_back(6 * MIB), "and can be tried again");
	close_crew();
}

#define THREADS 4

struct worker {
	pthread_t thread;
	unsigned number;
	int wrong;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	const size_t part = BIG / THREADS & ~(size_t)63;
	unsigned char *from = plain + w->number * part, *to = back + w->number * part;
	struct CUstream_st *own = NULL;
	void *there = NULL;

	if (glake_stream_new(ctx, 0, &own) || glake_alloc(ctx, 0, part, own, 0, &there))
		tap_bail("no block");
	for (int i = 0; i < 6; i++) {
		memset(from, (int)(w->number * 16 + (unsigned)i), part);
		w->wrong += glake_copy(ctx, there, from, part, own, 0, NULL) != 0;
		w->wrong += glake_copy(ctx, to, there, part, own, 0, NULL) != 0;
		w->wrong += context->drv->ops->stream_sync(context->drv, 0, own) != 0;
		w->wrong += memcmp(to, from, part) != 0;
	}
	glake_free(ctx, there, own);
	glake_stream_free(ctx, 0, own);
	return NULL;
}

static void many_threads(void)
{
	static const char *const settings[] = {CREW, NULL};
	struct worker w[THREADS];
	int wrong = 0;

	open_crew(settings);
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.number = i};
		if (pthread_create(&w[i].thread, NULL, work, &w[i]))
			tap_bail("no thread");
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		wrong += w[i].wrong;
	}
	is_int(wrong, 0, "threads that copy at once");
	close_crew();
}

/* A child has none of the threads, and the call says so. */
static void forked(void)
{
	static const char *const settings[] = {CREW, NULL};
	int status = -1;
	pid_t pid;

	open_crew(settings);
	ok(there_and_back(2 * MIB), "a copy, and a fork");
	pid = fork();
	if (!pid)
		_exit(glake_copy(ctx, block, plain, 2 * MIB, stream, 0, NULL) !=
				-ENODEV ||
			glake_close(ctx, NULL));
	waitpid(pid, &status, 0);
	is_int(status, 0, "the child is refused a copy, and closes");
	ok(there_and_back(2 * MIB), "the parent goes on");
	close_crew();
}

/* The end comes while buffers are still read. */
static void ends(void)
{
	static const char *const settings[] = {CREW, NULL};
	size_t leaked = 99;

	open_crew(settings);
	fill(plain, 8 * MIB);
	is_int(glake_copy(ctx, block, plain, 8 * MIB, stream, 0, NULL), 0, "a copy");
	glake_free(ctx, block, stream);
	glake_free(ctx, gpu, stream);
	context->drv->ops->host_unlock(context->drv, 0, host);
	context->drv->ops->host_unlock(context->drv, 0, other);
	glake_stream_free(ctx, 0, stream);
	is_int(glake_close(ctx, &leaked), 0, "the end of its context");
	is_int((int64_t)leaked, 0, "leaves nothing");
}

int main(void)
{
	tap_plan_later();
	unpinned_start();
	is_right("soft.streams=worker", NULL);
	is_right("soft.streams=random", NULL);
	is_right("soft.streams=worker", GLK_STREAM_LEGACY);
	in_order();
	lists();
	direct();
	beside();
	stuck();
	many_threads();
	forked();
	ends();
	return tap_done();
}
