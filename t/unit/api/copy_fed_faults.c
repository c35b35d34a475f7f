/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies that are fed, whatever the driver refuses: no byte is wrong that is not told, the stream goes on. */
#include "unit/api/copy_rig.h"

#include "tier/io/feed.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Faults that are tried whatever comes of them. */
#define FAULTS_LEAST 20

struct outcome {
	int wrong, told, whole, refused, fed;
	uint64_t failed;
};

/* What is told not to have been copied is; then all of it has to be there. */
static int complete(struct glake_copy_job *job, unsigned char *to,
	const unsigned char *from, struct outcome *o)
{
	int err = glake_copy_wait(job, -1), wrong;
	struct glake_copy_state now = state_of(job);
	struct glake_copy_part part;
	uint64_t sum = 0;

	wrong = now.stage == GLAKE_COPY_QUEUED || err != now.error;
	o->told += now.stage == GLAKE_COPY_FAILED;
	o->whole += now.stage == GLAKE_COPY_DONE;
	o->fed += (int)now.fed;
	wrong += (now.stage == GLAKE_COPY_FAILED) != (now.failed_parts > 0);
	wrong += !now.error != !now.failed_parts;
	wrong += now.copied + now.failed != now.bytes;
	for (uint32_t i = 0; i < now.failed_parts; i++) {
		wrong += glake_copy_failed(job, i, &part) != 0;
		memcpy(to + part.offset, from + part.offset, part.bytes);
		sum += part.bytes;
	}
	return wrong + (sum != now.failed) + (memcmp(to, from, now.bytes) != 0);
}

static void try_one(bool up, const char *form, unsigned n, struct outcome *o)
{
	static const char *const settings[] = {
		MANY, "io.fed=0", "soft.gpus=3", "soft.streams=random", NULL};
	struct glake_copy_job *job = NULL;
	unsigned char *to, *from;
	char rule[256];
	uint64_t calls;
	int most = 2000;

	begin(settings);
	to = up ? other : gpu;
	from = up ? gpu : host;
	fill(from, MIB);
	memset(to, 0, MIB);
	snprintf(rule, sizeof(rule), form, n);
	glk_fault_set(context->drv, rule);
	if (glake_copy(ctx, to, from, MIB - 3, stream, 0, &job)) {
		o->refused++;
		job = NULL;
	}
	/* as long as pieces are given out, so that their calls fail too */
	for (; most && job; most--) {
		struct glake_copy_state now = {.sz = sizeof(now)};

		if (!glake_copy_get(job, &now) && now.stage != GLAKE_COPY_QUEUED)
			break;
	}
	glk_fault_count(context->drv, &calls, &o->failed);
	glk_fault_set(context->drv, "off");
	o->wrong += sync_stream() != 0;
	if (job)
		o->wrong += complete(job, to, from, o) + glake_copy_close(job);
	o->wrong += to[MIB - 3] != 0;
	for (int device = 0; device < 3; device++)
		o->wrong += context->drv->ops->device_sync(context->drv, device) != 0;
	/* what is left of the paths goes on as if nothing had been */
	fill(from, MIB);
	o->wrong += glake_copy(ctx, to, from, MIB, stream, 0, NULL) || sync_stream() ||
		memcmp(to, from, MIB);
	for (int device = 0; device < 3; device++)
		tap_expect_log(context->io.gpu[device].off);
	/* a device that is lost takes no event back, be it that of a job */
	if (strstr(form, "sticky"))
		tap_expect_log(!ended());
	else
		o->wrong += !ended();
}

/* The n-th call fails, for some n, beside those that always do. */
static void faults(const char *form, uint64_t always)
{
	unsigned span = tap_storms_take_long() ? 40 : 12;

	for (int up = 0; up < 2; up++) {
		struct outcome o = {.failed = always + 1};
		unsigned n = 0, tries = 0;

		for (; (o.failed > always || n < FAULTS_LEAST) && n < 600; tries++) {
			int before = o.wrong;

			n += 1 + (unsigned)(dice() % (n < FAULTS_LEAST ? 2 : span));
			try_one(up, form, n, &o);
			if (o.wrong > before)
				tap_note("call %u", n);
		}
		ok(!o.wrong, "%s, %s: no byte is wrong that is not told", form,
			up ? "up" : "down");
		ok(n >= FAULTS_LEAST && o.whole + o.told + o.refused == (int)tries &&
				o.fed,
			"%u tries: %d copied whole, %d in part, %d refused; %d were fed",
			tries, o.whole, o.told, o.refused, o.fed);
	}
}

/* A path that fails in the middle: what it had is copied again another way. */
static void path_fails(void)
{
	static const char *const settings[] = {MANY, "io.fed=0", NULL};
	struct glake_copy_job *job;
	int wrong = 0, off = 0;
	char rule[64];

	/* most of these questions are about paths that are lent: as many as it takes */
	for (int tries = 0; tries < 22 || (off <= 4 && tries < 2200); tries++) {
		int n = 4 + tries * 3 % 66;

		begin(settings);
		fill(host, ROOM);
		memset(gpu, 0, ROOM);
		glk_soft_hold(context->drv, 0, stream, true);
		wrong += glake_copy(ctx, gpu, host, ROOM, stream, 0, &job) != 0;
		snprintf(rule, sizeof(rule), "event_query:nth=%d:err=EIO", n);
		glk_fault_set(context->drv, rule);
		glk_soft_hold(context->drv, 0, stream, false);
		wrong += glake_copy_wait(job, -1) != 0 || state_of(job).failed;
		wrong += memcmp(gpu, host, ROOM) != 0;
		for (int i = 1; i < 4; i++) {
			off += context->io.gpu[i].off;
			tap_expect_log(context->io.gpu[i].off);
		}
		wrong += glake_copy_close(job) != 0;
		wrong += !ended();
	}
	is_int(wrong, 0, "whatever question about a piece fails, all is copied");
	ok(off > 4, "of %d paths that are used no more", off);
}

/* All lent links fail at once, each with as many pieces as it has: its own one brings them all, or where it fails
 * too more parts are lost than are told one by one. */
static void all_fail(bool own_too)
{
	static const char *const settings[] = {
		MANY, "io.fed=0", "soft.gpus=16", "soft.streams=stepped", NULL};
	struct glake_copy_job *job;
	struct outcome o = {0};
	unsigned flight = 0;

	begin(settings);
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0,
		"a copy over 16 links");
	/* the thread gives out nothing meanwhile */
	glk_lock(&context->io.lock);
	glk_soft_run_all(context->drv);
	glk_feed_turn(&context->io);
	for (int i = 1; i < 16; i++)
		flight += context->io.gpu[i].flight[GLK_IO_DOWN];
	is_int(flight, 15 * GLK_FEED_WINDOW, "which have all that they are given");
	glk_fault_set(context->drv, "event_query:nth=2:len=15:err=EIO");
	glk_feed_turn(&context->io);
	glk_fault_set(context->drv, own_too ? "copy:from=1:err=EIO" : "off");
	glk_unlock(&context->io.lock);
	while (state_of(job).stage == GLAKE_COPY_QUEUED)
		glk_soft_run_all(context->drv);
	glk_fault_set(context->drv, "off");
	is_int(complete(job, gpu, host, &o), 0,
		"and then none has any; all but what is told is there");
	ok(!o.whole == own_too, "%llu bytes are not",
		(unsigned long long)state_of(job).failed);
	for (int i = 1; i < 16; i++)
		tap_expect_log(context->io.gpu[i].off);
	is_int(glake_copy_close(job), 0, "closed");
	end();
}

/* Where the words of the thread that feeds cannot be locked there is none, and copies are queued whole. */
static void has_no_thread(void)
{
	static const char *const settings[] = {MANY, "io.fed=0", NULL};
	struct glake_copy_job *job;

	begin(settings);
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	glk_fault_set(context->drv, "host_lock:from=1:err=ENOMEM");
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job) |
			glake_copy_wait(job, -1),
		0, "a copy without the thread");
	glk_fault_set(context->drv, "off");
	ok(!state_of(job).fed && !context->io.feeder, "is not fed");
	ok(!memcmp(gpu, host, ROOM), "every byte");
	is_int(glake_copy_close(job), 0, "closed");
	end();
}

/* The first half of a piece is queued, and its second one refused: the source is read until that has passed. */
static void half_a_piece(bool held)
{
	static const char *const settings[] = {MANY, "io.fed=0", "io.lend=1", NULL};
	struct glake_copy_job *job;
	struct CUstream_st *first;

	begin(settings);
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, &job) |
			glake_copy_wait(job, -1) | glake_copy_close(job),
		0, "a copy over two links");
	first = context->io.gpu[1].ring[GLK_IO_DOWN].stream;
	if (!first)
		tap_bail("no stream of the other link");
	memset(gpu, 0, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0, "another one");
	glk_soft_hold(context->drv, 1, first, held);
	/* behind three pieces of the other path and the first half */
	glk_fault_set(context->drv, "copy:nth=5:err=EIO");
	glk_soft_hold(context->drv, 0, stream, false);
	if (held) {
		is_int(glake_copy_wait(job, 50000000), -ETIMEDOUT,
			"it has not ended while it may be read");
		is_int((int64_t)state_of(job).failed, 0, "nothing is lost yet");
		glk_soft_hold(context->drv, 1, first, false);
	}
	is_int(glake_copy_wait(job, -1), 0, "the piece goes the other way");
	ok(!memcmp(gpu, host, ROOM), "every byte");
	ok(context->io.gpu[1].off, "the link is used no more");
	tap_expect_log(context->io.gpu[1].off);
	glk_fault_set(context->drv, "off");
	glake_copy_close(job);
	end();
}

/* Exits with the number of what is wrong. A call takes half a second beside the time in which the process is
 * stopped, so that a slow machine adds to it what it may. */
static void be_stopped(void)
{
	static const char *const settings[] = {MANY, "io.fed=0", NULL};
	struct glake_copy_job *job;
	int wrong;

	begin(settings);
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	/* there is a thread then */
	wrong = glake_copy(ctx, gpu, host, MIB, stream, 0, &job) != 0;
	wrong += glake_copy_wait(job, -1) || glake_copy_close(job);
	glk_store_relaxed(&context->io.feeder->patience, 3000000000);
	glk_soft_hold(context->drv, 0, stream, true);
	wrong += glake_copy(ctx, gpu, host, ROOM, stream, 0, &job) != 0;
	/* a turn is under way when it is stopped, and goes on for a moment afterwards */
	glk_fault_set(context->drv, "event_query:nth=1:delay=4500000");
	usleep(100000);
	raise(SIGSTOP);
	usleep(700000);
	glk_fault_set(context->drv, "off");
	glk_soft_hold(context->drv, 0, stream, false);
	wrong += glake_copy_wait(job, -1) != 0;
	wrong += memcmp(gpu, host, ROOM) != 0;
	wrong += !state_of(job).fed || glake_copy_close(job) || !ended();
	_exit(wrong);
}

/* The time that a process is stopped is no time that a call is stuck. */
static void stopped(void)
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		be_stopped();
	if (child < 0 || waitpid(child, &status, WUNTRACED) != child ||
		!WIFSTOPPED(status))
		tap_bail("no process that is stopped");
	usleep(4000000);
	kill(child, SIGCONT);
	waitpid(child, &status, 0);
	is_int(status, 0,
		"a process that was stopped for long has its copies all the same");
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
#ifndef GLK_SCHED /* whose clock stands while a process does */
	stopped();
#else
	(void)stopped;
#endif
	half_a_piece(false);
	half_a_piece(true);
	path_fails();
	has_no_thread();
	all_fail(false);
	all_fail(true);
	faults("any:nth=%u:err=EIO", 0);
	faults("any:nth=%u:err=EINVAL", 0);
	faults("event_query:from=%u:err=EIO", 0);
	faults("event_record:from=%u:err=EIO", 0);
	faults("copy:from=%u:err=EIO", 0);
	faults("copy:nth=%u:sticky=1", 0);
	return tap_done();
}
