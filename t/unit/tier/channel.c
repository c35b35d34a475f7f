/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies of which some take a turn on a second stream: in order all the same, and whole whatever fails. */
#include "tier/channel.h"

#include "soft/fault.h"
#include "unit/stream/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART  GLK_CHANNEL_TURN
#define BYTES (2 * PART + PART / 2)

static struct gpu gpu;
static struct glk_channel channel;
static unsigned char *from, *to;

static void begin(void)
{
	uint32_t id;

	gpu_open(&gpu);
	channel = (struct glk_channel){0};
	if (glk_channel_init(&channel, &gpu.streams, &id))
		tap_bail("no channel");
	ok(glk_stream_at(&gpu.streams, id)->handle == channel.main,
		"its main stream is known");
	memset(to, 0, BYTES);
}

static void end(void)
{
	is_int(glk_channel_fini(&channel, &gpu.streams), 0, "it ends");
	gpu_close(&gpu);
}

static int copy(uint64_t bytes)
{
	return glk_channel_copy(
		&channel, gpu.drv, 0, (uintptr_t)to, (uintptr_t)from, bytes);
}

static uint32_t pending(struct CUstream_st *stream)
{
	uint32_t count;

	if (glk_soft_pending(gpu.drv, 0, stream, &count))
		tap_bail("no such stream");
	return count;
}

static bool is_copied(uint64_t first, uint64_t bytes)
{
	return !memcmp(to + first, from + first, bytes);
}

static void takes_turns(void)
{
	begin();
	is_int(copy(BYTES), 0, "a copy of two turns and a half");
	glk_soft_hold(gpu.drv, 0, channel.side, true);
	glk_soft_run_all(gpu.drv);
	ok(is_copied(0, PART), "the first one is made on the main stream");
	ok(pending(channel.side) && !to[PART] && !to[BYTES - 1],
		"the next one on the side, and what comes behind it waits");
	glk_soft_hold(gpu.drv, 0, channel.side, false);
	glk_soft_run_all(gpu.drv);
	ok(is_copied(0, BYTES) && !pending(channel.main), "then all of it is there");
	end();
}

static void counts_small_ones(void)
{
	bool beside = false;

	begin();
	for (uint64_t i = 0; i < PART / (1 << 20); i++) {
		if (copy(1 << 20))
			tap_bail("no copy");
		beside |= pending(channel.side) > 0;
	}
	ok(!beside, "small copies that make a turn together stay on the main stream");
	is_int(copy(1 << 20), 0, "one more");
	ok(pending(channel.side), "is beside it");
	is_int(copy(1 << 20), 0, "the one behind it");
	glk_soft_hold(gpu.drv, 0, channel.main, true);
	glk_soft_run_all(gpu.drv);
	ok(pending(channel.side), "waits for what was before");
	glk_soft_hold(gpu.drv, 0, channel.main, false);
	glk_soft_run_all(gpu.drv);
	ok(is_copied(0, 1 << 20) && !pending(channel.side), "and comes to its end");
	end();
}

/* Where an event fails on the way there, and on the way back. */
static void is_whole(const char *fault, const char *name)
{
	begin();
	glk_fault_set(gpu.drv, fault);
	ok(!copy(BYTES), "%s: the copy is made", name);
	glk_fault_set(gpu.drv, "off");
	glk_soft_run_all(gpu.drv);
	ok(is_copied(0, BYTES), "%s: all of it", name);
	end();
}

static void fails(void)
{
	begin();
	glk_fault_set(gpu.drv, "copy:nth=2:err=EIO");
	is_int(copy(BYTES), -EIO, "an error of the driver is told");
	glk_fault_set(gpu.drv, "off");
	glk_soft_run_all(gpu.drv);
	ok(is_copied(0, PART) && !to[PART] && !to[2 * PART], "what was queued is made");
	end();
}

int main(void)
{
	tap_plan_later();
	from = malloc(BYTES);
	to = malloc(BYTES);
	if (!from || !to)
		tap_bail("no memory");
	memset(from, 0x5a, BYTES);
	takes_turns();
	counts_small_ones();
	is_whole("event_record:nth=1:err=EIO", "no event on the main stream");
	is_whole("stream_wait:nth=1:err=EIO", "no wait on the side");
	is_whole("event_record:nth=2:err=EIO", "no event on the side");
	is_whole("stream_wait:nth=2:err=EIO", "no wait behind it");
	fails();
	free(from);
	free(to);
	return tap_done();
}
