/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Links as a driver tells of them, and when one is free. */
#include "tier/io/link.h"

#include "driver/driver.h"
#include "tap.h"

#include <errno.h>

#define GPUS 3

static struct glk_io io;
static struct glk_io_gpu gpus[GPUS + 1];
static struct glk_plan_link groups[GLK_IO_GPUS * GLK_IO_WAYS + 1];
static int asked, queries, pending;

/* It answers for whatever GPU: the second one shares the uplink of the first, the third has a number that is none. */
static int link_get(struct glk_drv *drv, int device, struct glk_link *ret_link)
{
	(void)drv;
	asked++;
	*ret_link = (struct glk_link){.host = 50000 + device,
		.peer = 300000 + device,
		.uplink = 60000,
		.group = device < 2 ? 0 : GLK_IO_GPUS};
	return 0;
}

static int event_query(struct glk_drv *drv, struct glk_drv_event *event)
{
	(void)drv;
	(void)event;
	queries++;
	return pending ? -EAGAIN : 0;
}

static void is_learned(void)
{
	int wrong = 0;

	glk_link_learn(&io);
	is_int(asked, GPUS, "a driver is asked once for each GPU");
	for (int i = 0; i < GPUS; i++)
		wrong += !gpus[i].measured || gpus[i].down.rate != 50 + i / 1000.0 ||
			gpus[i].up.rate != gpus[i].down.rate ||
			gpus[i].come.rate != 300 + i / 1000.0 ||
			gpus[i].leave.rate != gpus[i].come.rate;
	is_int(wrong, 0, "what it says is known, either way");
	ok(!gpus[GPUS].measured, "and of no other");
	ok(gpus[0].uplink[0] && gpus[0].uplink[0] == gpus[1].uplink[0] &&
			gpus[0].uplink[1] == gpus[1].uplink[1] &&
			gpus[0].uplink[0] != gpus[0].uplink[1],
		"two share an uplink for each way");
	ok(!gpus[2].uplink[0] && !groups[GLK_IO_GPUS * GLK_IO_WAYS].rate,
		"one of no group has none");
	glk_link_learn(&io);
	is_int(asked, GPUS, "it is asked the first time");
}

/* With what went over the link directly: its event, and whether it may not have passed. */
static void is_free(bool busy, bool event, bool done, bool want)
{
	static char place;
	struct glk_io_gpu *g = &gpus[0];

	g->busy[GLK_IO_UP] = busy;
	g->own[GLK_IO_UP] = event ? (struct glk_drv_event *)(void *)&place : NULL;
	pending = !done;
	queries = 0;
	ok(glk_link_idle(&io, g, GLK_IO_UP) == want && g->busy[GLK_IO_UP] == !want,
		"%s%s%s: the link is %s", busy ? "busy" : "not busy",
		event ? ", an event" : "", done ? " that has passed" : "",
		want ? "free" : "not free");
	is_int(queries, busy && event, "  the event is asked for where it matters");
	g->own[GLK_IO_UP] = NULL;
}

int main(void)
{
	static const struct glk_drv_ops ops = {
		.link_get = link_get, .event_query = event_query};
	static struct glk_drv drv = {.ops = &ops};

	tap_plan_later();
	io = (struct glk_io){.drv = &drv, .gpus = GPUS, .gpu = gpus, .groups = groups};
	is_learned();
	is_free(false, false, false, true);
	is_free(false, true, false, true);
	is_free(true, false, true, false);
	is_free(true, true, false, false);
	is_free(true, true, true, true);
	return tap_done();
}
