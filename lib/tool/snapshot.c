/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl snapshot: the memory of a running process as a snapshot of PyTorch's own allocator, for
 * what reads those: pytorch.org/memory_viz, torch/cuda/_memory_viz.py. A segment there is memory side
 * by side that blocks are cut from; here, a stretch of addresses of one arena with memory of the GPU
 * behind all of it. What lies on the host is no memory of the GPU, and is left out.
 */
#include "tool/snapshot.h"
#include "tool/pickle.h"
#include "tool/space.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define COMMAND "snapshot"

static const char help[] =
	"usage: glakectl snapshot [OPTION]... [PID|PROGRAM] -o FILE\n"
	"\n"
	"Writes the memory of a process that runs with glake and rpc.socket=yes as a snapshot of\n"
	"PyTorch's allocator, which pytorch.org/memory_viz opens.\n"
	"\n"
	"  -o, --output FILE  where to, as job.pickle\n"
	"  -g, --gpu N        of this GPU alone\n"
	"  -t, --trace FILE   with the events of this trace, as the process records it\n"
	"  -h, --help         show this help\n";

static const struct option long_options[] = {
	{"output", required_argument, NULL, 'o'},
	{"gpu", required_argument, NULL, 'g'},
	{"trace", required_argument, NULL, 't'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static bool is_on_gpu(const struct glake_run *run)
{
	return run->state <= GLAKE_RUN_REST && run->state != GLAKE_RUN_AWAY &&
		run->gpu_bytes == run->size;
}

static bool is_beside(const struct glake_run *run, const struct glake_run *next)
{
	return run->address + run->size == next->address && run->arena == next->arena &&
		run->pool.high == next->pool.high && run->pool.low == next->pool.low;
}

/* Sums of a segment. */
struct segment {
	uint64_t size, allocated, active, asked, stream;
};

/* Runs from one on that are a segment: their number. */
static size_t measure(const struct space_gpu *gpu, size_t from, struct segment *ret)
{
	const struct glake_run *runs = gpu->runs;
	bool some = false, mixed = false;
	size_t i = from;

	*ret = (struct segment){0};
	do {
		ret->size += runs[i].size;
		if (runs[i].state == GLAKE_RUN_LIVE) {
			ret->allocated += runs[i].size;
			ret->asked += runs[i].asked;
			mixed |= some && ret->stream != (uintptr_t)runs[i].stream;
			ret->stream = (uintptr_t)runs[i].stream;
			some = true;
		}
		if (runs[i].state == GLAKE_RUN_LIVE || runs[i].state == GLAKE_RUN_LIMBO)
			ret->active += runs[i].size;
		i++;
	} while (i < gpu->count && is_on_gpu(&runs[i]) &&
		is_beside(&runs[i - 1], &runs[i]));
	if (mixed)
		ret->stream = 0;
	return i - from;
}

static void add_nothing(struct pickle *pickle, const char *key)
{
	pickle_text(pickle, key);
	pickle_list(pickle);
	pickle_close(pickle);
}

static void add_block(
	struct pickle *pickle, struct frames *frames, const struct glake_run *run)
{
	pickle_dict(pickle);
	pickle_add_int(pickle, "address", run->address);
	pickle_add_int(pickle, "size", run->size);
	pickle_add_int(pickle, "requested_size", run->asked);
	pickle_add_text(pickle, "state",
		run->state == GLAKE_RUN_LIVE		? "active_allocated"
			: run->state == GLAKE_RUN_LIMBO ? "active_pending_free"
							: "inactive");
	pickle_text(pickle, "frames");
	frames_add(frames, pickle, run->state == GLAKE_RUN_LIVE ? run->address : 0);
	pickle_close(pickle);
}

static void add_segment(struct pickle *pickle, struct frames *frames,
	const struct space_gpu *gpu, const struct glake_run *runs, size_t count,
	const struct segment *s)
{
	pickle_dict(pickle);
	pickle_add_int(pickle, "device", (uint64_t)gpu->gpu);
	pickle_add_int(pickle, "address", runs->address);
	pickle_add_int(pickle, "total_size", s->size);
	pickle_add_int(pickle, "allocated_size", s->allocated);
	pickle_add_int(pickle, "active_size", s->active);
	pickle_add_int(pickle, "requested_size", s->asked);
	pickle_add_int(pickle, "stream", s->stream);
	pickle_add_text(pickle, "segment_type", "large");
	pickle_text(pickle, "segment_pool_id");
	pickle_list(pickle);
	pickle_int(pickle, (int64_t)runs->pool.high);
	pickle_int(pickle, (int64_t)runs->pool.low);
	pickle_close(pickle);
	pickle_add_int(pickle, "is_expandable", 1);
	add_nothing(pickle, "frames");
	pickle_text(pickle, "blocks");
	pickle_list(pickle);
	for (size_t i = 0; i < count; i++)
		add_block(pickle, frames, &runs[i]);
	pickle_close(pickle);
	pickle_close(pickle);
}

static void add_segments(
	struct pickle *pickle, struct frames *frames, const struct space_gpu *gpu)
{
	struct segment segment;
	size_t count;

	for (size_t i = 0; i < gpu->count; i += count) {
		count = 1;
		if (!is_on_gpu(&gpu->runs[i]))
			continue;
		count = measure(gpu, i, &segment);
		add_segment(pickle, frames, gpu, &gpu->runs[i], count, &segment);
	}
}

/* Traces are by GPU. Those of the library are files of their own; without one there are none. */
static int add_traces(struct pickle *pickle, const struct space *space, const char *trace)
{
	int most = -1, err = 0;

	for (size_t i = 0; i < space->count; i++)
		most = space->gpus[i].gpu > most ? space->gpus[i].gpu : most;
	if (most >= GLK_TOOL_GPUS)
		most = GLK_TOOL_GPUS - 1;
	pickle_text(pickle, "device_traces");
	pickle_list(pickle);
	for (int i = 0; i <= most; i++) {
		pickle_list(pickle);
		if (trace && !err)
			err = snapshot_add_events(pickle, trace, i);
		pickle_close(pickle);
	}
	pickle_close(pickle);
	return err;
}

static int write_pickle(
	const struct space *space, struct frames *frames, const char *trace, FILE *file)
{
	struct pickle pickle;
	int err, ended;

	pickle_begin(&pickle, file);
	pickle_dict(&pickle);
	pickle_text(&pickle, "segments");
	pickle_list(&pickle);
	for (size_t i = 0; i < space->count; i++)
		add_segments(&pickle, frames, &space->gpus[i]);
	pickle_close(&pickle);
	err = add_traces(&pickle, space, trace);
	pickle_text(&pickle, "allocator_settings");
	pickle_dict(&pickle);
	pickle_close(&pickle);
	add_nothing(&pickle, "external_annotations");
	pickle_close(&pickle);
	ended = pickle_end(&pickle);
	return err ? err : ended;
}

static int write_file(const struct space *space, struct frames *frames, const char *trace,
	const char *path)
{
	FILE *file = fopen(path, "we");
	int err = file ? write_pickle(space, frames, trace, file) : -errno;

	if (file && fclose(file) && !err)
		err = -errno;
	/* what is wrong with the trace is told already */
	if (err && err != -ENODATA)
		glk_tool_say("%s: %s", path, strerror(-err));
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

int glk_tool_snapshot(int argc, char **argv)
{
	const char *path = NULL, *trace = NULL;
	struct frames frames;
	struct space space;
	int c, gpu = -1, status = 0;

	while (!status && (c = glk_tool_option(argc, argv, long_options)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return GLK_TOOL_OK;
		}
		if (c == 'o')
			path = optarg;
		else if (c == 't')
			trace = optarg;
		else
			status = c == 'g' ? glk_tool_read_gpu(COMMAND, optarg, &gpu)
					  : GLK_TOOL_USAGE;
	}
	if (status)
		return status;
	if (!path)
		return glk_tool_usage(COMMAND, "-o names the file to write");
	if (optind + 1 < argc)
		return glk_tool_usage(COMMAND, "one process is expected, not also '%s'",
			argv[optind + 1]);
	status = space_read(argv[optind], gpu, &space);
	if (status)
		return status;
	status = frames_read(space.pid, &frames);
	if (!status)
		status = write_file(&space, &frames, trace, path);
	frames_free(&frames);
	if (!status)
		space_say_changed(&space);
	if (!status && space.partial)
		status = GLK_TOOL_FAILED;
	space_free(&space);
	return status;
}
