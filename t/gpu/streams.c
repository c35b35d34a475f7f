/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory that goes from stream to stream on a real GPU, see traffic.h: 1 to 16 threads on 16
 * streams, under each policy, with events of the program that the library is told of and with
 * events that it is not. Every word is checked. Planted mistakes of the program have to be
 * seen, else the checks prove nothing.
 *
 *	gpu-streams [SECONDS [RUNS]]
 *
 * each of the first RUNS runs for SECONDS, which is 4 unless given; planted mistakes for 0.3.
 */
#include "traffic.h"

#define BUDGET	"256MiB"
#define LIVE	(80 * MIB)
#define ENOUGH	2000000 /* hand-overs in all, where each run has its 4 seconds */
#define SECONDS 4.0

static struct gpu_work work;
static double seconds = SECONDS;
static uint64_t handed, blocks;

struct run {
	const char *name;
	unsigned threads;
	bool tell;
	const char *settings[4];
	enum mistake mistake;
};

static const struct run runs[] = {
	{"1 thread", 1, false, {NULL}, MISTAKE_NONE},
	{"2 threads", 2, true, {NULL}, MISTAKE_NONE},
	{"4 threads", 4, true, {NULL}, MISTAKE_NONE},
	{"16 threads", 16, true, {NULL}, MISTAKE_NONE},
	{"1 thread, events told", 1, true, {NULL}, MISTAKE_NONE},
	{"16 threads, events not told", 16, false, {NULL}, MISTAKE_NONE},
	{"told events count for nothing", 4, true, {"stream.event_dependencies=no"},
		MISTAKE_NONE},
	{"waits for the GPU to unmap", 4, true, {"stream.opportunistic=no"},
		MISTAKE_NONE},
	{"no waits of ours", 4, true, {"stream.internal_dependencies=no"}, MISTAKE_NONE},
	{"finished work alone", 4, true,
		{"stream.internal_dependencies=no", "stream.event_dependencies=no"},
		MISTAKE_NONE},
	{"our waits alone, 16 threads", 16, true, {"stream.event_dependencies=no"},
		MISTAKE_NONE},
	{"finished work alone, with waits to unmap", 2, true,
		{"stream.internal_dependencies=no", "stream.opportunistic=no",
			"stream.event_dependencies=no"},
		MISTAKE_NONE},
	{"the control of the mistakes", 4, true, {NULL}, MISTAKE_NONE},
	{"a use is not told", 4, true, {NULL}, MISTAKE_USE},
	{"a wait is told and not made", 4, true, {NULL}, MISTAKE_WAIT},
};

#define RUNS	(sizeof(runs) / sizeof(runs[0]))
#define CONTROL (RUNS - 3) /* the first of those that lag behind */
#define SETTLED 4	   /* runs, the last of them with 16 threads */

static struct glake *open_context(const struct run *run)
{
	const char *settings[8] = {"pool.budget=" BUDGET};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};
	struct glake *ctx = NULL;

	for (int i = 0; i < 4; i++)
		settings[i + 1] = run->settings[i];
	must(glake_open(&options, &ctx), "glake_open");
	return ctx;
}

static void tell(const struct run *run, const struct traffic *t,
	const struct gpu_counters *counters)
{
	struct glake_driver_stats calls = {.sz = sizeof(calls)};
	struct glake_stats stats = {.sz = sizeof(stats)};

	must(glake_stats_get(t->ctx, 0, &stats), "no figures");
	must(glake_driver_stats_get(t->ctx, &calls), "no figures");
	tap_note("%s: %lu blocks, %" PRIu64 " handed over, %lu launches, %" PRIu64
		 " wrong words",
		run->name, t->blocks, counters->handed, t->launches, counters->wrong);
	tap_note("  hits %" PRIu64 ", misses %" PRIu64 ", stitches %" PRIu64
		 ", cross-stream %" PRIu64 ", recut %" PRIu64 ", limbo %" PRIu64
		 ", flushes %" PRIu64 ", refused %lu",
		stats.hits, stats.misses, stats.stitches,
		stats.rungs[GLAKE_RUNG_CROSS_STREAM], stats.rungs[GLAKE_RUNG_RECUT],
		stats.rungs[GLAKE_RUNG_LIMBO], stats.flushes, t->refused);
	tap_note("  records %" PRIu64 ", queries %" PRIu64 ", waits %" PRIu64
		 ", syncs %" PRIu64 ", maps %" PRIu64 ", unmaps %" PRIu64,
		calls.calls[GLAKE_CALL_EVENT_RECORD], calls.calls[GLAKE_CALL_EVENT_QUERY],
		calls.calls[GLAKE_CALL_STREAM_WAIT], calls.calls[GLAKE_CALL_SYNC],
		calls.calls[GLAKE_CALL_MAP], calls.calls[GLAKE_CALL_UNMAP]);
	tap_note("  freed: plain %lu, used elsewhere %lu, behind events %lu, elsewhere "
		 "%lu; streams ended %lu, ordered %lu",
		t->ways[0], t->ways[1], t->ways[2], t->ways[3], t->ended, t->ordered);
	if (counters->wrong)
		tap_note("  one wrong word: %#" PRIx64 ", want %#" PRIx64,
			counters->found, counters->wanted);
}

static void judge(const struct run *run, const struct traffic *t,
	const struct gpu_counters *counters)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	bool waits = true;

	is_int(t->failed, 0, run->name);
	if (run->mistake) {
		ok(counters->wrong > 0, "%s: it is seen", run->name);
		return;
	}
	is_int(counters->wrong, 0, "no word is wrong");
	is_int(t->refused, 0, "no request was refused");
	must(glake_stats_get(t->ctx, 0, &stats), "no figures");
	is_int(stats.live_blocks, 0, "all is freed");
	for (int i = 0; i < 4; i++)
		waits = waits && !(run->settings[i] && strstr(run->settings[i], "inter"));
	if (waits)
		ok(stats.rungs[GLAKE_RUNG_CROSS_STREAM] > 0, "waits were inserted");
	ok(counters->handed > 0, "memory went from stream to stream");
	ok(stats.stitches > 0, "blocks were stitched");
	handed += counters->handed;
	blocks += t->blocks;
}

static void run_one(unsigned number)
{
	const struct run *run = &runs[number];
	struct traffic *t = calloc(1, sizeof(*t));
	struct gpu_counters counters;
	size_t leaked = 9;

	if (!t)
		tap_bail("no host memory");
	t->work = &work;
	t->threads = run->threads;
	t->tell = run->tell;
	t->mistake = run->mistake;
	t->lags = number >= CONTROL;
	t->live_most = LIVE;
	t->seed = number + 1;
	t->ctx = open_context(run);
	traffic_start(t);
	traffic_sleep(number < CONTROL ? seconds : 0.3);
	traffic_stop(t);
	counters = gpu_counters_take(&work);
	tell(run, t, &counters);
	judge(run, t, &counters);
	is_done(glake_close(t->ctx, &leaked), "close");
	is_int(leaked, 0, "nothing leaked");
	free(t);
}

int main(int argc, char **argv)
{
	size_t before = 0, after = 0, total = 0;
	unsigned count = RUNS;
	struct glk_drv *drv;

	/* else streams share queues, and wait for each other where nobody said so */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
	if (argc > 1)
		seconds = atof(argv[1]);
	if (argc > 2 && (unsigned)atoi(argv[2]) < RUNS)
		count = (unsigned)atoi(argv[2]);
	drv = gpu_open();
	tap_plan_later();
	gpu_work_init(&work);
	for (unsigned i = 0; i < count; i++) {
		run_one(i);
		must(drv->ops->memory_info(drv, 0, &after, &total), "no memory info");
		/* by then the driver has what it keeps for 16 threads and their streams */
		if (i < SETTLED)
			before = after;
	}
	is_int(after, before, "free memory is where it was");
	tap_note("%" PRIu64 " blocks, %" PRIu64 " handed over, every word checked",
		blocks, handed);
	if (seconds >= SECONDS && count == RUNS)
		ok(handed >= ENOUGH, "enough of them");
	must_cuda(work.mem_free(work.counters), "no end of the counters");
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
