/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Copies that are fed while links change, in the modelled time of the software device: what the rates
 * allow is reached within a tenth, whoever stands still keeps what he had, and every byte is right.
 */
#define ROOM ((size_t)24 << 20)
#include "unit/api/copy_rig.h"

#include "tier/io/feed.h"
#include "unit/tier/io/flow.h"

#include <stdlib.h>
#include <unistd.h>

#define PIECE (64 * KIB)
#define RATE  55500 /* soft.link, MB a second */

#define PACED                                                                            \
	"soft.gpus=4", "soft.memory=64MiB", "map.span=4GiB", "io.lend=all",              \
		"io.least=0", "io.piece=64KiB", "io.staging=2MiB", "io.fed=0",           \
		"driver.fault=off", "soft.streams=worker"

static double modelled(struct glk_io *io)
{
	int64_t now = 0;

	glk_soft_pace_time(io->drv, &now);
	return (double)now;
}

static void begin_paced(void)
{
	static const char *const settings[] = {PACED, NULL};

	begin(settings);
	context->io.now = modelled;
	if (glk_soft_pace(context->drv))
		tap_bail("no pace");
}

/* One copy ends on its link, and what follows is given out. False: nothing was under way. */
static bool step(void)
{
	bool went = !glk_soft_pace_step(context->drv);

	glk_lock(&context->io.lock);
	glk_feed_turn(&context->io);
	glk_unlock(&context->io.lock);
	return went;
}

static uint64_t copied(struct glake_copy_job *job)
{
	return state_of(job).copied;
}

/* A change of the links of some GPUs when a part of the copy has arrived. */
struct change {
	int gpu;
	double times; /* what it carried before; below 0: nothing */
};

static double flow(const double *rate)
{
	struct flow_host h = {.gpus = 4, .target = 0};

	for (int i = 0; i < 4; i++) {
		h.lends[i] = true;
		h.link[i] = rate[i];
		h.leave[i] = h.come[i] = 390;
		h.group[i] = -1;
	}
	return flow_of_host(&h);
}

/* How much longer it takes than the most that flows before and after; 0: a byte is wrong. */
static double changed(const struct change *c, int changes, size_t bytes, bool up)
{
	double rate[4] = {55.5, 55.5, 55.5, 55.5}, since, at, best = 0;
	struct glake_copy_job *job;
	unsigned char *to, *from;

	begin_paced();
	to = up ? other : gpu;
	from = up ? gpu : host;
	fill(from, bytes);
	memset(to, 0, bytes);
	since = at = modelled(&context->io);
	if (glake_copy(ctx, to, from, bytes, stream, 0, &job))
		tap_bail("no copy");
	best = (double)bytes;
	for (int i = 0; i < changes; i++) {
		uint64_t part = bytes * (uint64_t)(i + 1) / (uint64_t)(changes + 1);

		while (copied(job) < part && step())
			;
		best -= (modelled(&context->io) - at) * flow(rate);
		at = modelled(&context->io);
		rate[c[i].gpu] *= c[i].times < 0 ? 0 : c[i].times;
		glk_soft_pace_link(context->drv, c[i].gpu,
			c[i].times < 0 ? -1 : (int64_t)(rate[c[i].gpu] * 1000));
	}
	while (state_of(job).stage == GLAKE_COPY_QUEUED && step())
		;
	best = at - since + best / flow(rate);
	best = (modelled(&context->io) - since) / best;
	if (state_of(job).stage != GLAKE_COPY_DONE || memcmp(to, from, bytes) ||
		state_of(job).paths != 4 || !state_of(job).fed)
		best = 0;
	glake_copy_close(job);
	if (!ended())
		best = 0;
	return best;
}

static void adapts(void)
{
	static const struct {
		const char *what;
		struct change c[3];
		int changes;
	} cases[] = {
		{"nothing changes", {{0, 1}}, 0},
		{"a lent link has half", {{2, 0.5}}, 1},
		{"a lent link has twice as much", {{2, 2}}, 1},
		{"its own link has half", {{0, 0.5}}, 1},
		{"its own link has twice as much", {{0, 2}}, 1},
		{"one has a tenth", {{1, 0.1}}, 1},
		{"three change", {{1, 0.5}, {0, 2}, {1, 3}}, 3},
	};
	double times;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (int up = 0; up < 2; up++) {
			times = changed(cases[i].c, cases[i].changes, ROOM - 12345, up);
			ok(times > 0.9 && times <= 1.1, "%s, %s: %.3f of the least time",
				cases[i].what, up ? "up" : "down", times);
		}
	}
}

/* A link stands still: what it had waits, and all the rest goes another way. */
static void stalls(int which)
{
	double three[4] = {55.5, 55.5, 55.5, 55.5}, since, took, best;
	struct glake_copy_job *job;
	uint64_t before, most;

	begin_paced();
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0, "a copy");
	while (copied(job) < ROOM / 4 && step())
		;
	before = copied(job);
	glk_soft_pace_link(context->drv, which, -1);
	since = modelled(&context->io);
	while (step())
		;
	took = modelled(&context->io) - since;
	three[which] = 0;
	best = (double)(ROOM - before) / flow(three);
	most = ROOM - copied(job);
	ok(most && most <= GLK_FEED_WINDOW * PIECE,
		"GPU %d stands still: %llu bytes wait for it", which,
		(unsigned long long)most);
	ok(took <= 1.1 * best, "the rest takes %.3f of the least time", took / best);
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED, "it has not finished");
	is_int(glake_copy_wait(job, 0), -ETIMEDOUT, "nor does a wait say so");
	is_int(glake_copy_cancel(job), -EBUSY, "what was queued cannot be cancelled");
	glk_soft_pace_link(context->drv, which, RATE);
	while (step())
		;
	is_int(state_of(job).stage, GLAKE_COPY_DONE, "when it goes on all arrives");
	ok(!memcmp(gpu, host, ROOM), "every byte");
	is_int(glake_copy_close(job), 0, "closed");
	end();
}

/* So long that it is told. */
static void stall_is_told(void)
{
	struct glake_copy_job *job;

	begin_paced();
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0, "a copy");
	for (int i = 0; i < 20; i++)
		step();
	is_int(state_of(job).stalled, 0, "no path stalls");
	/* the others are so slow that time passes */
	for (int i = 0; i < 4; i++)
		glk_soft_pace_link(context->drv, i, i == 2 ? -1 : 500);
	while (step())
		;
	is_int(state_of(job).stalled, 1, "one does, which is told");
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED, "while it waits");
	glk_soft_pace_link(context->drv, 2, RATE);
	is_int(glake_copy_wait(job, -1), 0, "it goes on");
	is_int(state_of(job).stalled, 1, "and is told still");
	ok(!memcmp(gpu, host, ROOM), "every byte");
	glake_copy_close(job);
	end();
}

/* Whether what is told not to be copied was not touched, and all the rest is right. */
static int partly(struct glake_copy_job *job, const unsigned char *to,
	const unsigned char *from, size_t bytes)
{
	struct glake_copy_state now = state_of(job);
	static unsigned char lost[ROOM];
	struct glake_copy_part part;
	uint64_t sum = 0;
	int wrong = 0;

	memset(lost, 0, bytes);
	for (uint32_t i = 0; i < now.failed_parts; i++) {
		wrong += glake_copy_failed(job, i, &part) != 0;
		memset(lost + part.offset, 1, part.bytes);
		sum += part.bytes;
	}
	wrong += sum != now.failed || now.copied + now.failed != bytes;
	for (size_t i = 0; i < bytes; i++)
		wrong += lost[i] ? to[i] != 0 : to[i] != from[i];
	return wrong;
}

/* After so many pieces. */
static void cancelled(void)
{
	int wrong = 0, whole = 0, none = 0, tries = 0;
	size_t bytes = 2 * MIB - 77;

	for (int n = 0; n < 80; n += 1 + (int)(dice() % 5), tries++) {
		struct glake_copy_job *job;
		int err;

		begin_paced();
		for (size_t i = 0; i < bytes; i++)
			host[i] = (unsigned char)(1 + i % 251);
		memset(gpu, 0, ROOM);
		if (glake_copy(ctx, gpu, host, bytes, stream, 0, &job))
			tap_bail("no copy");
		context->drv->ops->fill(
			context->drv, (uintptr_t)(gpu + 4 * MIB), 7, MIB / 4, stream);
		for (int i = 0; i < n; i++)
			step();
		wrong += n < 8 && gpu[4 * MIB];
		err = glake_copy_cancel(job);
		wrong += err && err != -EBUSY;
		wrong += !err && glake_copy_cancel(job) != -EBUSY;
		while (step())
			;
		wrong += sync_stream() != 0;
		wrong += glake_copy_wait(job, -1) != (err ? 0 : -ECANCELED);
		wrong += state_of(job).error != (err ? 0 : -ECANCELED);
		wrong += state_of(job).stage !=
			(err ? GLAKE_COPY_DONE : GLAKE_COPY_FAILED);
		wrong += partly(job, gpu, host, bytes);
		wrong += gpu[4 * MIB] != 7;
		whole += err != 0;
		none += !state_of(job).copied;
		wrong += glake_copy_cancel(job) != -EBUSY;
		wrong += glake_copy_close(job) != 0;
		wrong += !ended();
	}
	ok(!wrong, "%d copies cancelled in the middle: what is told is so", tries);
	ok(whole > 2 && whole < tries - 2 && !none, "%d of them came too late", whole);
}

/* Many at once to two GPUs, over the links of all. */
static void many(void)
{
	struct CUstream_st *streams[10];
	struct glake_copy_job *job[100];
	size_t part = ROOM / 100 & ~(size_t)7;
	double since, took, best;
	int wrong = 0;

	begin_paced();
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	for (int i = 0; i < 10; i++)
		if (glake_stream_new(ctx, 0, &streams[i]))
			tap_bail("no stream");
	since = modelled(&context->io);
	for (size_t i = 0; i < 100; i++)
		wrong += glake_copy(ctx, gpu + i * part, host + i * part, part,
				 streams[i % 10], 0, &job[i]) != 0;
	while (step())
		;
	took = modelled(&context->io) - since;
	best = (double)(100 * part) / flow((double[]){55.5, 55.5, 55.5, 55.5});
	for (size_t i = 0; i < 100; i++) {
		wrong += state_of(job[i]).stage != GLAKE_COPY_DONE ||
			!state_of(job[i]).fed;
		wrong += glake_copy_close(job[i]) != 0;
	}
	is_int(wrong, 0, "a hundred at once on ten streams");
	ok(!memcmp(gpu, host, 100 * part), "every byte");
	ok(took <= 1.1 * best, "in %.3f of the least time", took / best);
	for (int i = 0; i < 10; i++)
		glake_stream_free(ctx, 0, streams[i]);
	end();
}

/* A link serves its own GPU first. */
static void own_first(void)
{
	struct CUstream_st *far_stream;
	struct glake_copy_job *near_job, *far_job;
	void *far = NULL;

	begin_paced();
	fill(host, ROOM);
	if (glake_alloc(ctx, 1, ROOM / 2, NULL, 0, &far) ||
		glake_stream_new(ctx, 1, &far_stream))
		tap_bail("no second GPU");
	is_int(glake_copy(ctx, gpu, host, ROOM / 2, stream, 0, &near_job), 0, "one copy");
	is_int(glake_copy(ctx, far, host + ROOM / 2, ROOM / 2, far_stream, 0, &far_job),
		0, "and one to another GPU");
	for (int i = 0; i < 60; i++)
		step();
	ok(copied(far_job) > copied(near_job) / 8,
		"which has its own link: %llu and %llu",
		(unsigned long long)copied(near_job),
		(unsigned long long)copied(far_job));
	while (step())
		;
	ok(!memcmp(gpu, host, ROOM / 2) && !memcmp(far, host + ROOM / 2, ROOM / 2),
		"every byte of both");
	glake_copy_close(near_job);
	glake_copy_close(far_job);
	glake_free(ctx, far, NULL);
	glake_stream_free(ctx, 1, far_stream);
	end();
}

/* Over one lent link to two GPUs: what goes to one is booked there, though the other copy began later. */
static void booked_apart(void)
{
	struct CUstream_st *far_stream;
	struct glake_copy_job *near_job, *far_job;
	void *far = NULL;

	begin_paced();
	fill(host, ROOM);
	if (glake_alloc(ctx, 1, ROOM / 2, NULL, 0, &far) ||
		glake_stream_new(ctx, 1, &far_stream))
		tap_bail("no second GPU");
	glk_soft_hold(context->drv, 1, far_stream, true);
	is_int(glake_copy(ctx, gpu, host, ROOM / 2, stream, 0, &near_job), 0, "one copy");
	is_int(glake_copy(ctx, far, host + ROOM / 2, ROOM / 2, far_stream, 0, &far_job),
		0, "and one to another GPU, whose stream stands");
	while (step())
		;
	is_int(state_of(near_job).stage, GLAKE_COPY_DONE, "the first one is made");
	is_int((int64_t)copied(far_job), 0, "before the other begins");
	ok(context->io.gpu[0].come.free > 0, "it is booked on what comes to its GPU");
	ok(context->io.gpu[1].come.free <= 0, "and not on what comes to the other");
	glk_soft_hold(context->drv, 1, far_stream, false);
	while (state_of(far_job).stage == GLAKE_COPY_QUEUED)
		step();
	ok(!memcmp(gpu, host, ROOM / 2) && !memcmp(far, host + ROOM / 2, ROOM / 2),
		"every byte of both");
	glake_copy_close(near_job);
	glake_copy_close(far_job);
	glake_free(ctx, far, NULL);
	glake_stream_free(ctx, 1, far_stream);
	end();
}

static const struct glk_drv_ops *usual;
static int waits, wrong_waits;

/* Two paths stand: a piece of each is waited for, then twice what both streams of each have. The first one goes on
 * before the last of the first time, the second one before the last of all. */
static int wait_event(struct glk_drv *drv, struct glk_drv_event *event)
{
	const struct glk_feed *f = context->io.feeder->first;
	bool is_right = false;

	for (unsigned i = 0; f && i < f->job.count; i++) {
		const struct glk_feed_lane *lane = &f->lane[i];

		is_right |= lane->count && !lane->hands_back &&
			event == lane->event[lane->first];
		for (int j = 0; j < GLK_FEED_STREAMS; j++)
			is_right |= lane->is_leaving && lane->is_behind[j] &&
				event == lane->left[j];
	}
	wrong_waits += !is_right;
	waits++;
	for (int i = 1; i <= waits / 4 && i < 3; i++)
		glk_soft_hold(drv, 0, context->io.gpu[0].hop[GLK_IO_DOWN][i], false);
	return usual->event_sync(drv, event);
}

/* Whoever waits for all copies waits for what is under way alone, and leaves a path where that fails. */
static void waited_for(void)
{
	static const char *const settings[] = {MANY, "io.fed=0", NULL};
	struct glake_copy_job *job;
	struct glk_drv_ops ops;

	begin(settings);
	usual = context->drv->ops;
	ops = *usual;
	ops.event_sync = wait_event;
	context->drv->ops = &ops;
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	/* there are streams then */
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, &job) |
			glake_copy_wait(job, -1) | glake_copy_close(job),
		0, "a copy before");
	for (int i = 1; i < 3; i++)
		glk_soft_hold(
			context->drv, 0, context->io.gpu[0].hop[GLK_IO_DOWN][i], true);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job) | glake_copy_close(job),
		0, "a copy, of which two paths stand");
	waits = wrong_waits = 0;
	glk_io_still(&context->io);
	ok(waits && !wrong_waits, "%d waits, for what is under way", waits);
	ok(context->io.gpu[1].off && context->io.gpu[2].off && !context->io.gpu[3].off,
		"the two paths are used no more");
	tap_expect_log(2);
	ok(!memcmp(gpu, host, ROOM), "every byte");
	end();
}

/* Others use the GPUs that lend their links, of which they leave half. */
static void half_of_links(void)
{
	static const char *const settings[] = {PACED, "io.agree=always", NULL};
	static const char *const theirs[] = {
		MANY, "io.agree=always", "io.lend_to=user", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = theirs};
	char folder[128], name[192];
	struct glake_copy_job *job;
	struct glake *second = NULL;
	void *block[4] = {NULL};
	double part;

	if (!mkdtemp(tap_template(folder, sizeof(folder), "feed")) ||
		setenv("XDG_RUNTIME_DIR", folder, 1) || glake_open(&options, &second))
		tap_bail("no second context");
	for (int i = 1; i < 4; i++)
		if (glake_alloc(second, i, MIB, NULL, 0, &block[i]))
			tap_bail("no block");
	begin(settings);
	context->io.now = modelled;
	if (glk_soft_pace(context->drv))
		tap_bail("no pace");
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0,
		"a copy over half links");
	while (state_of(job).stage == GLAKE_COPY_QUEUED && step())
		;
	ok(state_of(job).stage == GLAKE_COPY_DONE && !memcmp(gpu, host, ROOM),
		"every byte");
	part = (double)state_of(job).relayed / ROOM;
	ok(state_of(job).fed && part > 0.5 && part < 0.63,
		"is fed no more than they carry: %.3f, of 0.6", part);
	glake_copy_close(job);
	end();
	for (int i = 1; i < 4; i++)
		glake_free(second, block[i], NULL);
	glake_close(second, NULL);
	snprintf(name, sizeof(name), "%s/glake/links", folder);
	unlink(name);
	*strrchr(name, '/') = '\0';
	rmdir(name);
	rmdir(folder);
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
	half_of_links();
	adapts();
	stalls(2);
	stalls(0);
	stall_is_told();
	cancelled();
	many();
	own_first();
	booked_apart();
	waited_for();
	return tap_done();
}
