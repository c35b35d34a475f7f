/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies through buffers, whatever the driver refuses: no byte is wrong that is not told. */
#include "unit/api/unpinned_rig.h"

#define BYTES (17 * MIB + 5) /* more than the buffers hold at a time */

struct outcome {
	int wrong, whole, part, refused;
	uint64_t failed;
};

static int complete(struct glake_copy_job *job, unsigned char *to,
	const unsigned char *from, struct outcome *o)
{
	struct glake_copy_state now = state_of(job);
	struct glake_copy_part part = {.offset = BYTES};
	int wrong = now.stage == GLAKE_COPY_QUEUED || !now.error != !now.failed_parts;

	o->whole += now.stage == GLAKE_COPY_DONE;
	o->part += now.stage == GLAKE_COPY_FAILED;
	if (now.failed_parts)
		wrong += glake_copy_failed(job, 0, &part) ||
			part.offset + part.bytes != BYTES || now.failed != part.bytes;
	return wrong + (memcmp(to, from, part.offset) != 0);
}

static void try_one(bool up, const char *form, unsigned n, struct outcome *o)
{
	static const char *const settings[] = {
		CREW, "soft.streams=random", "driver.fault=off", NULL};
	unsigned char *to = up ? back : block, *from = up ? block : plain;
	struct glake_copy_job *job = NULL;
	char rule[128];
	uint64_t calls;

	open_crew(settings);
	to = up ? back : block;
	from = up ? block : plain;
	fill(from, BYTES);
	memset(to, 0, BYTES);
	snprintf(rule, sizeof(rule), form, n);
	glk_fault_set(context->drv, rule);
	if (glake_copy(ctx, to, from, BYTES, stream, 0, &job)) {
		o->refused++;
		job = NULL;
	}
	glk_fault_count(context->drv, &calls, &o->failed);
	glk_fault_set(context->drv, "off");
	sync_stream();
	if (job)
		o->wrong += complete(job, to, from, o) + glake_copy_close(job);
	/* afterwards it is as if nothing had been, in the buffers or without them */
	fill(from, BYTES);
	o->wrong += glake_copy(ctx, to, from, BYTES, stream, 0, NULL) || sync_stream() ||
		memcmp(to, from, BYTES);
	glake_free(ctx, block, stream);
	o->wrong += !ended();
}

static void faults(const char *form, unsigned least)
{
	for (int up = 0; up < 2; up++) {
		struct outcome o = {.failed = 1};
		unsigned n = 0, tries = 0;

		for (; o.failed; tries++) {
			int before = o.wrong;

			n += tap_storms_take_long() ? 15 : 1;
			try_one(up, form, n, &o);
			if (o.wrong > before)
				tap_note("call %u", n);
		}
		ok(!o.wrong, "%s, %s: no byte is wrong that is not told", form,
			up ? "up" : "down");
		ok(n > least && o.whole + o.part + o.refused == (int)tries,
			"%u tries: %d copied whole, %d in part, %d refused", tries,
			o.whole, o.part, o.refused);
	}
}

/* What can neither be told of by an event nor be waited for: the buffers are used no more. */
static void unsure(void)
{
	static const char *const settings[] = {CREW, "driver.fault=off", NULL};

	open_crew(settings);
	fill(plain, BYTES);
	glk_fault_set(
		context->drv, "event_record:nth=1:err=EIO;stream_sync:nth=1:err=EIO");
	is_int(glake_copy(ctx, block, plain, BYTES, stream, 0, NULL), -EIO,
		"an event that cannot be recorded");
	glk_fault_set(context->drv, "off");
	ok(context->io.bounce.ring[0][GLK_IO_DOWN].off, "nor its stream be waited for");
	ok(there_and_back(5 * MIB), "copies go on");
	is_int((int64_t)through(GLK_IO_DOWN), 0, "without these buffers");
	ok(through(GLK_IO_UP) > 5 * MIB - 1, "and with the others");
	close_crew();
}

int main(void)
{
	tap_plan_later();
	unpinned_start();
	faults("any:nth=%u:err=EIO", 10);
	faults("event_record:nth=%u:err=EIO", 4);
	faults("event_sync:nth=%u:err=EIO", 1);
	faults("copy:from=%u:err=EIO", 4);
	unsure();
	return tap_done();
}
