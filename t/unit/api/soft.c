/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Work for the software device through the public face: that it runs, is judged and refused. */
#include "api/context.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static struct glake *ctx;
static struct CUstream_st *a, *b;
static struct CUevent_st *event;
static uint32_t *p;

static void open_soft(const char *streams)
{
	char text[64];
	const char *const settings[] = {
		text, "soft.gpus=2", "driver.fault=off", "map.span=8GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	void *block = NULL;

	snprintf(text, sizeof(text), "soft.streams=%s", streams);
	if (glake_open(&options, &ctx) || glake_stream_new(ctx, 0, &a) ||
		glake_stream_new(ctx, 0, &b) || glake_event_new(ctx, 0, &event) ||
		glake_alloc(ctx, 0, 4 * MIB, a, 0, &block))
		tap_bail("no context");
	p = block;
}

static void close_soft(void)
{
	is_int(glake_free(ctx, p, a), 0, "the block is freed");
	is_int(glake_event_free(ctx, 0, event), 0, "the event");
	is_int(glake_stream_free(ctx, 0, a) | glake_stream_free(ctx, 0, b), 0,
		"the streams");
	is_int(sound_close(ctx, NULL), 0, "closed");
}

static struct glake_error error(void)
{
	struct glake_error found = {.sz = sizeof(found)};

	glake_last_error(&found);
	return found;
}

static void runs(void)
{
	uint32_t host[4] = {1, 2, 3, 4};

	open_soft("worker");
	is_int(glake_soft_fill(ctx, a, p, 7, 1024), 0, "a fill");
	is_int(p[1023], 7, "has run");
	is_int(glake_soft_copy(ctx, a, p, host, sizeof(host)), 0, "a copy from the host");
	is_int(glake_soft_copy(ctx, a, p + 8, p, sizeof(host)), 0,
		"one inside the block");
	memset(host, 0, sizeof(host));
	is_int(glake_soft_copy(ctx, a, host, p + 8, sizeof(host)), 0,
		"and one to the host");
	is_int(host[0] + host[3], 5, "bring the bytes round");
	is_int(glake_soft_kernel(ctx, 0, a, p, 4 * MIB, 1), 0, "a kernel");
	is_int(p[1023], 7, "changes nothing");
	is_int(glake_soft_stream_sync(ctx, 0, a), 0, "all is done");
	is_int(glake_soft_fill(ctx, a, p, 9, 0), 0, "a fill of nothing");
	is_int(p[0], 1, "does nothing");
	close_soft();
}

/* A default stream is one of every GPU: that of the memory. */
static void others(void)
{
	uint32_t *q;
	void *block = NULL;

	open_soft("stepped");
	is_int(glake_alloc(ctx, 1, MIB, NULL, 0, &block), 0, "a block of another GPU");
	q = block;
	is_int(glake_soft_fill(ctx, NULL, q, 3, 4), 0, "a fill on the default stream");
	is_int(glake_soft_copy(ctx, NULL, q + 4, q, 16), 0, "a copy behind it");
	is_int(glake_soft_fill(ctx, a, q, 4, 4), -EINVAL,
		"not on a stream of a GPU without rights");
	is_int(glake_soft_stream_sync(ctx, 0, NULL), 0, "that of GPU 0");
	is_int(q[7], 0, "is another one");
	is_int(glake_soft_stream_sync(ctx, 1, NULL), 0, "that of GPU 1");
	is_int(q[7], 3, "has it");
	is_int(glake_free(ctx, q, NULL), 0, "freed");
	close_soft();
}

static void waits(void)
{
	open_soft("stepped");
	is_int(glake_soft_fill(ctx, a, p, 5, 16), 0, "a fill that waits");
	is_int(p[0], 0, "has not run");
	is_int(glake_soft_kernel(ctx, 0, b, p, 64, 0), -EINVAL,
		"another stream reads: a race");
	has_str(error().text, "stream order rule", "which the record names");
	is_int(glake_event_record(ctx, 0, event, a), 0, "an event");
	is_int(glake_stream_wait(ctx, 0, b, event), 0, "puts that stream behind");
	is_int(glake_soft_kernel(ctx, 0, b, p, 64, 0), 0, "then it may");
	is_int(glake_soft_stream_sync(ctx, 0, b), 0, "who waits for it");
	is_int(p[15], 5, "has waited for the fill");
	close_soft();
}

static void graphs(void)
{
	struct glake_pool_id id = {.low = 1};
	void *scratch = NULL;
	uint32_t graph = 0, none = 5;

	open_soft("worker");
	is_int(glake_pool_begin(ctx, 0, id, a), 0, "a pool of a graph");
	is_int(glake_soft_capture_begin(ctx, 0, a), 0, "a capture");
	is_int(glake_alloc(ctx, 0, MIB, a, 0, &scratch), 0, "a block of it");
	is_int(glake_soft_fill(ctx, a, scratch, 9, 16), 0, "is filled");
	is_int(glake_soft_copy(ctx, a, p, scratch, 64), 0, "and copied");
	is_int(glake_free(ctx, scratch, a), 0, "and freed");
	is_int(glake_soft_capture_end(ctx, 0, a, &graph), 0, "the end of the capture");
	ok(graph, "gives a graph");
	is_int(glake_pool_end(ctx, 0, id), 0, "the pool is closed");
	is_int(p[0], 0, "nothing has run");
	for (int i = 0; i < 2; i++) {
		is_int(glake_soft_graph_launch(ctx, 0, graph, b), 0, "a launch");
		is_int(glake_soft_stream_sync(ctx, 0, b), 0, "is waited for");
		is_int(p[15], 9, "and has run");
		p[15] = 0;
	}
	is_int(glake_soft_capture_begin(ctx, 0, b), 0, "a capture on another stream");
	is_int(glake_soft_graph_launch(ctx, 0, graph, b), -EBUSY,
		"is broken by a launch");
	is_int(glake_soft_capture_end(ctx, 0, b, &none), -EIO, "and over");
	is_int(glake_soft_graph_free(ctx, graph), 0, "the graph goes");
	is_int(glake_soft_graph_free(ctx, graph), -EINVAL, "once");
	is_int(glake_soft_graph_launch(ctx, 0, graph, b), -EINVAL, "and runs no more");
	is_int(glake_pool_release(ctx, 0, id), 0, "with its pool");
	is_int(glake_soft_capture_end(ctx, 0, a, &none), -EINVAL,
		"no capture to be ended");
	is_int(glake_soft_capture_begin(ctx, 0, NULL), -EINVAL,
		"none on the legacy stream");
	is_int(glake_soft_capture_begin(ctx, 0, a), 0, "another capture");
	is_int(glake_soft_capture_end(ctx, 0, a, NULL), -EINVAL,
		"no place for the graph");
	is_int(glake_soft_stream_sync(ctx, 0, a), -EBUSY, "a wait breaks it");
	is_int(error().error_class, GLAKE_ERROR_CAPTURE, "  its class");
	is_int(glake_soft_capture_end(ctx, 0, a, &none), -EIO, "and gives no graph");
	is_int(none, 5, "no number is written");
	close_soft();
}

static void refuses(void)
{
	struct CUstream_st *wrong = (struct CUstream_st *)77;

	open_soft("worker");
	is_int(glake_soft_fill(ctx, wrong, p, 1, 1), -EINVAL, "no stream");
	is_int(glake_soft_fill(ctx, a, (char *)p + 1, 1, 1), -EINVAL, "no multiple of 4");
	is_int(glake_soft_fill(ctx, a, p, 1, SIZE_MAX), -EINVAL, "too many words");
	is_int(glake_soft_fill(ctx, a, p, 1, 512 * MIB), -EINVAL, "beyond all memory");
	is_int(glake_soft_copy(ctx, a, p, NULL, 4), -EINVAL, "from nowhere");
	is_int(glake_soft_kernel(ctx, 2, a, p, 4, 0), -EINVAL, "no such GPU");
	is_int(glake_soft_kernel(ctx, 1, a, p, 4, 0), -EINVAL, "a stream of another GPU");
	is_int(glake_soft_stream_sync(ctx, 1, a), -EINVAL, "the same for a wait");
	is_int(glake_soft_capture_begin(ctx, 1, a), -EINVAL, "and a capture");
	is_int(p[0], 0, "nothing has run");
	close_soft();
}

/* What all of them answer where there is nothing to be had. */
static void all(int wanted, const char *where)
{
	uint32_t graph = 1, got = 5;

	ok(glake_soft_fill(ctx, a, p, 1, 1) == wanted, "%s: fill", where);
	ok(glake_soft_copy(ctx, a, p, p + 1, 4) == wanted, "%s: copy", where);
	ok(glake_soft_kernel(ctx, 0, a, p, 4, 1) == wanted, "%s: kernel", where);
	ok(glake_soft_stream_sync(ctx, 0, a) == wanted, "%s: wait", where);
	ok(glake_soft_capture_begin(ctx, 0, a) == wanted, "%s: begin", where);
	ok(glake_soft_capture_end(ctx, 0, a, &got) == wanted, "%s: end", where);
	ok(glake_soft_graph_launch(ctx, 0, graph, a) == wanted, "%s: launch", where);
	ok(glake_soft_graph_free(ctx, graph) == wanted, "%s: free", where);
	ok(got == 5, "%s: nothing is written", where);
}

static void elsewhere(void)
{
	static const struct glk_drv_ops ops = {.name = "cuda"};
	struct glk_drv cuda = {.ops = &ops}, *soft;
	struct glk_context *context;
	int status = -1;

	open_soft("worker");
	if (glk_context_get(ctx, &context))
		tap_bail("no context");
	soft = context->drv;
	context->drv = &cuda;
	all(-EOPNOTSUPP, "on CUDA");
	is_int(error().error_class, GLAKE_ERROR_UNSUPPORTED, "  its class");
	has_str(error().text, "runs on cuda", "  and its sentence");
	context->drv = soft;
	if (!fork())
		_exit(glake_soft_fill(ctx, a, p, 1, 1) == -ENODEV &&
					glake_soft_graph_free(ctx, 1) == -ENODEV
				? 0
				: 1);
	ok(wait(&status) > 0 && !status, "a forked child is told so");
	close_soft();
	all(-ESTALE, "closed");
}

int main(void)
{
	tap_plan_later();
	runs();
	others();
	waits();
	graphs();
	refuses();
	elsewhere();
	return tap_done();
}
