/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the driver answers about handles that are no streams of its GPU any more, or never were:
 * facts that nobody wrote down; and what the calls of a hand-over cost. What the library rests
 * on is checked, the rest is told; README has the table.
 */
#include "probe.h"

/* Each call with a handle; `tick` says which, and skips what was asked before. */
static void ask_all(const char *group, unsigned from, struct stream *stream)
{
	struct event *event = event_new();
	struct context *context = NULL;
	unsigned long long id = 0;
	unsigned number = 0;
	uint64_t capture = 0;
	int status = 0;

#define ASK(name, ...)                                                                   \
	do {                                                                             \
		if (number++ < from)                                                     \
			break;                                                           \
		say(group, #name, 0, 0, -2);                                             \
		say(group, #name, cu.name(__VA_ARGS__), 0, 0);                           \
	} while (0)

	ASK(cuStreamGetCaptureInfo, stream, &status, &capture);
	ASK(cuStreamGetId, stream, &id);
	ASK(cuStreamGetCtx, stream, &context);
	ASK(cuEventRecord, event, stream);
	ASK(cuStreamWaitEvent, stream, event, 0);
	ASK(cuStreamQuery, stream);
	ASK(cuStreamSynchronize, stream);
	ASK(cuStreamDestroy_v2, stream);
#undef ASK
}

static void destroyed(const char *group, unsigned from)
{
	struct stream *stream = stream_new();

	if (cu.cuStreamSynchronize(stream) || cu.cuStreamDestroy_v2(stream))
		_exit(5);
	ask_all(group, from, stream);
}

static void destroyed_busy(const char *group, unsigned from)
{
	struct stream *stream = stream_new();

	keep_busy(stream);
	if (cu.cuStreamDestroy_v2(stream))
		_exit(5);
	ask_all(group, from, stream);
}

static void destroyed_beside(const char *group, unsigned from)
{
	struct stream *stream[16];

	for (int i = 0; i < 16; i++)
		stream[i] = stream_new();
	if (cu.cuStreamDestroy_v2(stream[7]))
		_exit(5);
	ask_all(group, from, stream[7]);
}

/* Of a program that makes another one, which has the handle. */
static void destroyed_again(const char *group, unsigned from)
{
	struct stream *stream = stream_new(), *next;

	if (cu.cuStreamDestroy_v2(stream))
		_exit(5);
	next = stream_new();
	say("handles again", "the handle of the next one is the same", next == stream, 0,
		0);
	ask_all(group, from, stream);
}

static void never(const char *group, unsigned from)
{
	ask_all(group, from, (struct stream *)(uintptr_t)0x1234560);
}

static void heap(const char *group, unsigned from)
{
	ask_all(group, from, calloc(1, 65536));
}

static struct stream *in_other_context(struct context **ret_context)
{
	struct stream *stream;

	if (!cu.cuCtxCreate_v2 || cu.cuCtxCreate_v2(ret_context, 0, 0) ||
		cu.cuCtxSetCurrent(*ret_context))
		_exit(6);
	stream = stream_new();
	cu.cuCtxSetCurrent(primary);
	return stream;
}

static void foreign(const char *group, unsigned from)
{
	struct context *context;

	ask_all(group, from, in_other_context(&context));
}

static void foreign_gone(const char *group, unsigned from)
{
	struct context *context;
	struct stream *stream = in_other_context(&context);

	if (cu.cuCtxDestroy_v2(context) || cu.cuCtxSetCurrent(primary))
		_exit(5);
	ask_all(group, from, stream);
}

static void other_gpu(const char *group, unsigned from)
{
	struct context *context = NULL;
	struct stream *stream;
	int count = 0;

	if (cu.cuDeviceGetCount(&count) || count < 2)
		_exit(6);
	if (cu.cuDevicePrimaryCtxRetain(&context, 1) || cu.cuCtxSetCurrent(context))
		_exit(5);
	stream = stream_new();
	cu.cuCtxSetCurrent(primary);
	ask_all(group, from, stream);
}

/* Of 1000 streams made and ended in turn: how many had the handle of the one before, the number
 * of one before. */
static void reuse(const char *group, unsigned from)
{
	unsigned long long id = 0, last_id = 0;
	int handles = 0, ids = 0, busy_handles = 0;
	struct stream *last = NULL;

	(void)from;
	for (int i = 0; i < 1000; i++) {
		struct stream *stream = stream_new();

		handles += stream == last;
		cu.cuStreamGetId(stream, &id);
		ids += id <= last_id;
		last_id = id;
		last = stream;
		cu.cuStreamDestroy_v2(stream);
	}
	for (int i = 0; i < 20; i++) {
		struct stream *stream = stream_new();

		busy_handles += stream == last;
		keep_busy(stream);
		last = stream;
		cu.cuStreamDestroy_v2(stream);
	}
	say(group, "handles that came back of 1000", handles, 0, 0);
	say(group, "handles that came back of 20 ended with work left", busy_handles, 0,
		0);
	say(group, "numbers that did not grow", ids, 0, 0);
}

/* ---- What the calls of a hand-over cost, ns. ---- */

#define TIMES 1000

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

#define COST(text, times, call)                                                          \
	do {                                                                             \
		for (int i_ = 0; i_ < (times); i_++) {                                   \
			int64_t start_ = now();                                          \
			(void)(call);                                                    \
			took[i_] = now() - start_;                                       \
		}                                                                        \
		qsort(took, (size_t)(times), sizeof(took[0]), by_value);                 \
		say(group, text, (int)took[(times) / 2], (int)took[0],                   \
			(int)took[(times)*99 / 100]);                                    \
	} while (0)

static void costs(const char *group, unsigned from)
{
	struct stream *idle = stream_new(), *busy = stream_new(), *behind = stream_new();
	struct event *passed = event_new(), *pending = event_new(), *event = event_new();
	static int64_t took[TIMES];
	struct context *context;
	unsigned long long id;
	int status, mode = RELAXED;
	uint64_t capture;

	(void)from;
	cu.cuEventRecord(passed, idle);
	cu.cuStreamSynchronize(idle);
	COST("reading the clock", TIMES, 0);
	COST("cuCtxGetCurrent", TIMES, cu.cuCtxGetCurrent(&context));
	COST("cuThreadExchangeStreamCaptureMode", TIMES,
		cu.cuThreadExchangeStreamCaptureMode(&mode));
	COST("cuStreamGetCaptureInfo", TIMES,
		cu.cuStreamGetCaptureInfo(idle, &status, &capture));
	COST("cuStreamGetId", TIMES, cu.cuStreamGetId(idle, &id));
	COST("cuStreamGetCtx", TIMES, cu.cuStreamGetCtx(idle, &context));
	COST("cuEventQuery, passed", TIMES, cu.cuEventQuery(passed));
	COST("cuEventRecord, idle stream", TIMES, cu.cuEventRecord(event, idle));
	COST("cuStreamWaitEvent, passed", TIMES, cu.cuStreamWaitEvent(idle, passed, 0));
	for (int i = 0; i < 4; i++)
		keep_busy(busy);
	cu.cuEventRecord(pending, busy);
	COST("cuEventQuery, pending", 200, cu.cuEventQuery(pending));
	COST("cuStreamGetCaptureInfo, busy", TIMES,
		cu.cuStreamGetCaptureInfo(busy, &status, &capture));
	COST("cuEventRecord, busy stream", 200, cu.cuEventRecord(event, busy));
	COST("cuStreamWaitEvent, pending", 200, cu.cuStreamWaitEvent(behind, pending, 0));
	COST("record and wait, pending", 100,
		(cu.cuEventRecord(event, busy), cu.cuStreamWaitEvent(behind, event, 0)));
	say(group, "still pending at the end", cu.cuEventQuery(pending), 0, 0);
}

/* ---- What is told, and what is checked. ---- */

/* No question about a stream that has ended may look as if it had not. Most crash. */
static void refused(const char *group)
{
	static const char *const calls[] = {
		"cuStreamGetCaptureInfo", "cuStreamGetId", "cuStreamGetCtx"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		ok(answer(group, calls[i]) != SUCCESS, "%s: %s: %d", group, calls[i],
			answer(group, calls[i]));
}

static void handles(void)
{
	int status;

	ask("destroyed", destroyed);
	ask("destroyed with work left", destroyed_busy);
	ask("destroyed beside 15 others", destroyed_beside);
	ask("destroyed and another made since", destroyed_again);
	ask("no address", never);
	ask("memory that is no stream", heap);
	ask("of another context", foreign);
	ask("of a destroyed context", foreign_gone);
	status = ask("of another GPU", other_gpu);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 6)
		tap_note("one GPU: streams of another are not asked about");
	ask("handles again", reuse);
	refused("destroyed");
	refused("destroyed with work left");
	ok(answer("of another context", "cuStreamGetCtx") == SUCCESS,
		"a stream of another context tells whose it is");
	is_int(answer("handles again", "numbers that did not grow"), 0,
		"no number of a stream is given twice");
}

int main(void)
{
	probe_init();
	handles();
	ask("ns: median, least, 99 %", costs);
	tell_rows();
	return tap_done();
}
