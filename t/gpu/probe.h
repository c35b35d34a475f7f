/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_GPU_PROBE_H
#define GLK_T_GPU_PROBE_H

/*
 * Questions to the driver that may crash. Each group of them is asked in a process of its own;
 * after a crash the rest of the group is asked in another one. The library has no part in it.
 */
#include "tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UNUSED_FN __attribute__((unused))

#define SUCCESS	    0
#define NOT_READY   600
#define ACTIVE	    1
#define RELAXED	    2
#define NO_TIMING   2
#define NOBLOCK	    1
#define ROWS	    512
#define WORKSPACE   ((size_t)256 << 20)
#define NOT_PRESENT (-1000)

struct stream;
struct event;
struct context;

#define FUNCTIONS(F)                                                                     \
	F(cuInit, (unsigned))                                                            \
	F(cuDriverGetVersion, (int *))                                                   \
	F(cuDeviceGetCount, (int *))                                                     \
	F(cuDevicePrimaryCtxRetain, (struct context **, int))                            \
	F(cuCtxSetCurrent, (struct context *))                                           \
	F(cuCtxGetCurrent, (struct context **))                                          \
	F(cuCtxCreate_v2, (struct context **, unsigned, int))                            \
	F(cuCtxDestroy_v2, (struct context *))                                           \
	F(cuCtxSynchronize, (void))                                                      \
	F(cuMemAlloc_v2, (uint64_t *, size_t))                                           \
	F(cuMemGetInfo_v2, (size_t *, size_t *))                                         \
	F(cuMemsetD32Async, (uint64_t, unsigned, size_t, struct stream *))               \
	F(cuStreamCreate, (struct stream **, unsigned))                                  \
	F(cuStreamDestroy_v2, (struct stream *))                                         \
	F(cuStreamQuery, (struct stream *))                                              \
	F(cuStreamSynchronize, (struct stream *))                                        \
	F(cuStreamGetId, (struct stream *, unsigned long long *))                        \
	F(cuStreamGetCtx, (struct stream *, struct context **))                          \
	F(cuStreamGetCaptureInfo, (struct stream *, int *, uint64_t *))                  \
	F(cuStreamBeginCapture_v2, (struct stream *, int))                               \
	F(cuStreamEndCapture, (struct stream *, void **))                                \
	F(cuStreamWaitEvent, (struct stream *, struct event *, unsigned))                \
	F(cuThreadExchangeStreamCaptureMode, (int *))                                    \
	F(cuEventCreate, (struct event **, unsigned))                                    \
	F(cuEventDestroy_v2, (struct event *))                                           \
	F(cuEventRecord, (struct event *, struct stream *))                              \
	F(cuEventQuery, (struct event *))                                                \
	F(cuEventSynchronize, (struct event *))

static struct {
#define F(name, arguments) int(*name) arguments;
	FUNCTIONS(F)
#undef F
} cu;

/* ---- Rows come back from the processes as lines. ---- */

struct row {
	char group[48], call[64];
	int result, status,
		end; /* of the call; of the capture after it, and of its end */
};

static struct row rows[ROWS];
static unsigned row_count;
static int out; /* of the process that asks */

static UNUSED_FN void say(
	const char *group, const char *call, int result, int status, int end)
{
	char line[160];
	int length = snprintf(
		line, sizeof(line), "%s|%s|%d|%d|%d\n", group, call, result, status, end);

	if (write(out, line, (size_t)length) != length)
		_exit(3);
}

static struct context *primary;

static UNUSED_FN void load(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);

	if (!cuda)
		_exit(4);
#define F(name, arguments) *(void **)&cu.name = dlsym(cuda, #name);
	FUNCTIONS(F)
#undef F
	if (!cu.cuInit || cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&primary, 0) ||
		cu.cuCtxSetCurrent(primary))
		_exit(4);
}

/* A group goes on behind call number `from`; each call is announced before it is made. */
typedef void (*group_fn)(const char *group, unsigned from);

static UNUSED_FN void read_rows(FILE *in, const char *group, unsigned *done)
{
	char line[200];

	while (fgets(line, sizeof(line), in) && row_count < ROWS) {
		struct row *r = &rows[row_count];

		if (sscanf(line, "%47[^|]|%63[^|]|%d|%d|%d", r->group, r->call,
			    &r->result, &r->status, &r->end) != 5)
			continue;
		/* what was announced stands as crashed until it is answered */
		if (row_count && !strcmp(rows[row_count - 1].call, r->call) &&
			!strcmp(rows[row_count - 1].group, group) &&
			rows[row_count - 1].end == -2)
			rows[row_count - 1] = *r;
		else
			row_count++;
		*done += r->end != -2;
	}
}

/* The exit status of the last process; the signals of crashes go into the rows. */
static UNUSED_FN int ask(const char *group, group_fn fn)
{
	unsigned done = 0, crashes = 0;
	int status, ends[2];

	for (;;) {
		pid_t child;
		FILE *in;

		if (pipe(ends))
			tap_bail("no pipe");
		fflush(stdout);
		child = fork();
		if (!child) {
			out = ends[1];
			alarm(60);
			load();
			fn(group, done);
			_exit(0);
		}
		close(ends[1]);
		in = fdopen(ends[0], "r");
		read_rows(in, group, &done);
		fclose(in);
		if (waitpid(child, &status, 0) != child)
			tap_bail("no child");
		if (!WIFSIGNALED(status) || !row_count || rows[row_count - 1].end != -2 ||
			++crashes > 20)
			break;
		rows[row_count - 1].result = -WTERMSIG(status);
		rows[row_count - 1].end = 0;
		done++;
	}
	return status;
}

static UNUSED_FN int answer(const char *group, const char *call)
{
	for (unsigned i = 0; i < row_count; i++)
		if (!strcmp(rows[i].group, group) && !strcmp(rows[i].call, call))
			return rows[i].result;
	return NOT_PRESENT;
}

static UNUSED_FN struct stream *stream_new(void)
{
	struct stream *stream = NULL;

	if (cu.cuStreamCreate(&stream, NOBLOCK))
		_exit(5);
	return stream;
}

static UNUSED_FN struct event *event_new(void)
{
	struct event *event = NULL;

	if (cu.cuEventCreate(&event, NO_TIMING))
		_exit(5);
	return event;
}

static UNUSED_FN uint64_t workspace(void)
{
	static uint64_t addr;

	if (!addr && cu.cuMemAlloc_v2(&addr, WORKSPACE))
		_exit(5);
	return addr;
}

/* Some 10 ms of work. */
static UNUSED_FN void keep_busy(struct stream *stream)
{
	for (int i = 0; i < 150; i++)
		if (cu.cuMemsetD32Async(workspace(), 1, WORKSPACE / 4, stream))
			_exit(5);
}

/* All rows, for README. */
static UNUSED_FN void tell_rows(void)
{
	for (unsigned i = 0; i < row_count; i++)
		tap_note("%s | %s | %d | %d | %d", rows[i].group, rows[i].call,
			rows[i].result, rows[i].status, rows[i].end);
}

static UNUSED_FN void version(const char *group, unsigned from)
{
	int number = 0;

	(void)from;
	cu.cuDriverGetVersion(&number);
	say(group, "CUDA", number, 0, 0);
}

/* Ends the program as skipped where there is no GPU. */
static UNUSED_FN void probe_init(void)
{
	if (WEXITSTATUS(ask("version", version)) || !row_count)
		tap_skip_all("no GPU");
	tap_plan_later();
}

#endif
