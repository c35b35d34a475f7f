/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What breaks a capture: each question or wait, in each mode of capture, by the thread that
 * captures and by another one, with the thread's mode relaxed and not. What the library does
 * beside captures must be harmless where its thread is relaxed; README has the table.
 */
#include "probe.h"

struct scene {
	struct stream *captured, *other, *busy;
	struct event *inside, *passed, *pending;
	int mode;
	bool relaxed;
	const char *group;
	unsigned number, from;
};

struct act {
	const char *name;
	int (*fn)(const struct scene *s);
};

static int query_inside(const struct scene *s)
{
	return cu.cuEventQuery(s->inside);
}

static int status_of(struct stream *stream)
{
	uint64_t capture = 0;
	int status = -1;

	return cu.cuStreamGetCaptureInfo(stream, &status, &capture) ? -1 : status;
}

static int query_passed(const struct scene *s)
{
	return cu.cuEventQuery(s->passed);
}

static int query_pending(const struct scene *s)
{
	return cu.cuEventQuery(s->pending);
}

static int sync_passed(const struct scene *s)
{
	return cu.cuEventSynchronize(s->passed);
}

static int sync_pending(const struct scene *s)
{
	return cu.cuEventSynchronize(s->pending);
}

static int destroy_inside(const struct scene *s)
{
	return cu.cuEventDestroy_v2(s->inside);
}

static int wait_inside(const struct scene *s)
{
	return cu.cuStreamWaitEvent(s->other, s->inside, 0);
}

/* 1000 and the status of that stream. */
static int wait_inside_joins(const struct scene *s)
{
	int result = cu.cuStreamWaitEvent(s->other, s->inside, 0);

	return result ? result : 1000 + status_of(s->other);
}

static int record_inside_outside(const struct scene *s)
{
	return cu.cuEventRecord(s->inside, s->other);
}

static int wait_outside(const struct scene *s)
{
	return cu.cuStreamWaitEvent(s->captured, s->passed, 0);
}

static int sync_context(const struct scene *s)
{
	(void)s;
	return cu.cuCtxSynchronize();
}

static int sync_other(const struct scene *s)
{
	return cu.cuStreamSynchronize(s->other);
}

static int sync_busy(const struct scene *s)
{
	return cu.cuStreamSynchronize(s->busy);
}

static int sync_default(const struct scene *s)
{
	(void)s;
	return cu.cuStreamSynchronize(NULL);
}

static int query_other(const struct scene *s)
{
	return cu.cuStreamQuery(s->other);
}

static int id_of_captured(const struct scene *s)
{
	unsigned long long id;

	return cu.cuStreamGetId(s->captured, &id);
}

static int id_of_other(const struct scene *s)
{
	unsigned long long id;

	return cu.cuStreamGetId(s->other, &id);
}

static int id_of_default(const struct scene *s)
{
	unsigned long long id;

	(void)s;
	return cu.cuStreamGetId(NULL, &id);
}

static int info_of_captured(const struct scene *s)
{
	uint64_t capture;
	int status;

	return cu.cuStreamGetCaptureInfo(s->captured, &status, &capture);
}

static int info_of_default(const struct scene *s)
{
	uint64_t capture;
	int status;

	(void)s;
	return cu.cuStreamGetCaptureInfo(NULL, &status, &capture);
}

static int context_of_captured(const struct scene *s)
{
	struct context *context;

	return cu.cuStreamGetCtx(s->captured, &context);
}

static int destroy_other(const struct scene *s)
{
	return cu.cuStreamDestroy_v2(s->other);
}

static int memory_info(const struct scene *s)
{
	size_t free, total;

	(void)s;
	return cu.cuMemGetInfo_v2(&free, &total);
}

static const struct act acts[] = {
	{"query the event recorded in it", query_inside},
	{"query an event that passed", query_passed},
	{"query a pending event", query_pending},
	{"wait on the host for an event that passed", sync_passed},
	{"wait on the host for a pending event", sync_pending},
	{"destroy the event recorded in it", destroy_inside},
	{"another stream waits for the event recorded in it", wait_inside},
	{"the same, and whether it is in the capture then", wait_inside_joins},
	{"record that event on another stream", record_inside_outside},
	{"the capturing stream waits for an event from outside", wait_outside},
	{"cuCtxSynchronize", sync_context},
	{"cuStreamSynchronize of another", sync_other},
	{"cuStreamSynchronize of a busy one", sync_busy},
	{"cuStreamSynchronize of the default stream", sync_default},
	{"cuStreamQuery of another", query_other},
	{"cuStreamGetId of the capturing stream", id_of_captured},
	{"cuStreamGetId of another", id_of_other},
	{"cuStreamGetId of the default stream", id_of_default},
	{"cuStreamGetCaptureInfo of the capturing stream", info_of_captured},
	{"cuStreamGetCaptureInfo of the default stream", info_of_default},
	{"cuStreamGetCtx of the capturing stream", context_of_captured},
	{"cuStreamDestroy of another", destroy_other},
	{"cuMemGetInfo", memory_info},
};

#define ACTS (sizeof(acts) / sizeof(acts[0]))

struct errand {
	const struct scene *scene;
	const struct act *act;
	int result;
};

static void *run_errand(void *arg)
{
	struct errand *errand = arg;
	int mode = RELAXED;

	cu.cuCtxSetCurrent(primary);
	if (errand->scene->relaxed)
		cu.cuThreadExchangeStreamCaptureMode(&mode);
	errand->result = errand->act->fn(errand->scene);
	if (errand->scene->relaxed)
		cu.cuThreadExchangeStreamCaptureMode(&mode);
	return NULL;
}

static void one_act(struct scene *s, const struct act *act, bool thread)
{
	struct errand errand = {s, act, 0};
	void *graph = NULL;
	pthread_t other;
	int status;

	if (s->number++ < s->from)
		return;
	s->captured = stream_new();
	s->other = stream_new();
	s->busy = stream_new();
	s->inside = event_new();
	s->passed = event_new();
	s->pending = event_new();
	cu.cuEventRecord(s->passed, s->other);
	cu.cuStreamSynchronize(s->other);
	keep_busy(s->busy);
	cu.cuEventRecord(s->pending, s->busy);
	if (cu.cuStreamBeginCapture_v2(s->captured, s->mode) ||
		cu.cuEventRecord(s->inside, s->captured))
		_exit(5);
	say(s->group, act->name, 0, 0, -2);
	if (thread) {
		pthread_create(&other, NULL, run_errand, &errand);
		pthread_join(other, NULL);
	} else {
		run_errand(&errand);
	}
	status = status_of(s->captured);
	say(s->group, act->name, errand.result, status,
		cu.cuStreamEndCapture(s->captured, &graph));
	cu.cuCtxSynchronize();
}

static void captures(const char *group, unsigned from)
{
	struct scene s = {.group = group, .from = from, .mode = group[5] - '0'};
	bool thread = strstr(group, "other") != NULL;

	s.relaxed = strstr(group, "relaxed") != NULL;
	for (size_t i = 0; i < ACTS; i++)
		one_act(&s, &acts[i], thread);
}

static void live_on(const char *group, const char *call)
{
	for (unsigned i = 0; i < row_count; i++)
		if (!strcmp(rows[i].group, group) && !strcmp(rows[i].call, call))
			ok(rows[i].status == ACTIVE && !rows[i].end,
				"%s: %s: the capture lives", group, call);
}

static void all_modes(void)
{
	static const char *const harmless[] = {"query an event that passed",
		"query a pending event", "cuStreamSynchronize of another",
		"wait on the host for a pending event", "cuStreamGetId of another",
		"cuStreamGetCaptureInfo of the capturing stream",
		"cuStreamGetCtx of the capturing stream", "cuMemGetInfo"};
	static const char *const actors[] = {
		"same thread, relaxed", "other thread, relaxed", "other thread"};
	char group[48];

	for (int mode = 0; mode < 3; mode++) {
		for (int k = 0; k < 3; k++) {
			snprintf(group, sizeof(group), "mode %d, %s", mode, actors[k]);
			ask(group, captures);
			for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]) &&
				strstr(group, "relaxed");
				i++)
				live_on(group, harmless[i]);
		}
	}
}

int main(void)
{
	probe_init();
	all_modes();
	tell_rows();
	return tap_done();
}
