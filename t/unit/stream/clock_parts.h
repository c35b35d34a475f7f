/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_STREAM_CLOCK_PARTS_H
#define GLK_UNIT_STREAM_CLOCK_PARTS_H

/* What clock.c and clock_odd.c share. */
#include "driver/fault.h"
#include "gpu.h"
#include "seed.h"
#include <errno.h>

/* Two frees, two events; the device runs the first alone. */
static inline void steps(void)
{
	struct glk_use first, second;
	struct glk_stream *a;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	first = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	second = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	is_int((int64_t)gpu.streams.records, 2, "an event for each");
	is_int(glk_soft_step(gpu.drv, 0, a->handle), 0, "the first passes");
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &first), "its memory is free");
	ok(!glk_clock_finished(&gpu.streams, &second), "the other is not");
	is_int(glk_soft_step(gpu.drv, 0, a->handle), 0, "the second passes");
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &second), "now it is");
	gpu_close(&gpu);
}

#endif
