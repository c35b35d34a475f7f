/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Dependencies of the program: what a stream is known to be behind, and no more than that. */
#include "gpu.h"

#include <errno.h>

/* An event is a value here: the driver is not asked about any. */
static struct CUevent_st *event(uintptr_t n)
{
	return (struct CUevent_st *)(n << 8 | 0x80);
}

static void record(struct gpu *gpu, uintptr_t n, const struct glk_stream *s)
{
	if (glk_note_record(&gpu->streams, event(n), s))
		tap_bail("no table of events");
}

static void wait(struct gpu *gpu, const struct glk_stream *s, uintptr_t n)
{
	glk_note_wait(&gpu->streams, event(n), s);
}

static unsigned waits(struct gpu *gpu, struct glk_use use, const struct glk_stream *s)
{
	return gpu_waits(&gpu->streams, &use, s);
}

static void orders(void)
{
	struct glk_stream *a, *b, *c;
	struct glk_use before, after;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	c = gpu_stream(&gpu);
	before = gpu_free(&gpu, a);
	wait(&gpu, b, 1);
	is_int(waits(&gpu, before, b), 1,
		"an event that was never recorded tells nothing");
	record(&gpu, 1, a);
	after = gpu_free(&gpu, a);
	is_int(waits(&gpu, before, b), 1, "a record tells nothing");
	wait(&gpu, b, 1);
	is_int(waits(&gpu, before, b), 0, "a wait does: B is behind what A freed before");
	is_int(waits(&gpu, after, b), 1, "not behind what A freed later");
	is_int(waits(&gpu, before, c), 1, "C is behind nothing");
	is_int(glk_clock_order(&gpu.streams, &before, b), 0, "B takes it");
	is_int((int64_t)gpu.streams.waits, 0, "without a wait of ours");
	is_int((int64_t)gpu.streams.records, 0, "or an event");
	is_int((int64_t)before.streams, (int64_t)glk_stream_mask(b), "it is B's now");
	record(&gpu, 1, a);
	is_int(waits(&gpu, after, b), 1,
		"a new record tells nothing until it is waited for");
	wait(&gpu, b, 1);
	is_int(waits(&gpu, after, b), 0, "and then of all before it");
	gpu_close(&gpu);
}

/* What a stream is behind at a record, who waits for that is behind too. */
static void passes_on(void)
{
	struct glk_stream *a, *b, *c, *d;
	struct glk_use of_a, of_b, later;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	c = gpu_stream(&gpu);
	d = gpu_stream(&gpu);
	of_a = gpu_free(&gpu, a);
	of_b = gpu_free(&gpu, b);
	record(&gpu, 1, a);
	record(&gpu, 2, b);
	wait(&gpu, b, 1);
	wait(&gpu, c, 2);
	is_int(waits(&gpu, of_b, c), 0, "C is behind B");
	is_int(waits(&gpu, of_a, c), 1, "as B was at its record, before it waited for A");
	record(&gpu, 2, b);
	wait(&gpu, c, 2);
	is_int(waits(&gpu, of_a, c), 0, "after another record C is behind A by way of B");
	later = gpu_free(&gpu, a);
	is_int(glk_clock_order(&gpu.streams, &later, c), 0, "a wait of ours");
	record(&gpu, 3, c);
	wait(&gpu, d, 3);
	is_int(waits(&gpu, of_a, d), 0, "is passed on by an event of the program");
	is_int(waits(&gpu, of_b, d), 0, "with all else");
	is_int((int64_t)gpu.streams.waits, 1, "and was one wait");
	gpu_close(&gpu);
}

static void forgets(void)
{
	struct glk_stream *a, *b, *old;
	struct glk_use use;
	uint8_t bit;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	glk_note_forget(&gpu.streams, event(1));
	ok(!gpu.streams.notes, "forgetting one that was never seen needs no table");
	use = gpu_free(&gpu, a);
	record(&gpu, 1, a);
	glk_note_forget(&gpu.streams, event(2));
	glk_note_forget(&gpu.streams, event(1));
	wait(&gpu, b, 1);
	is_int(waits(&gpu, use, b), 1, "an event that is forgotten tells nothing");
	record(&gpu, 1, b);
	wait(&gpu, a, 1);
	use = gpu_free(&gpu, b);
	is_int(waits(&gpu, use, a), 1, "its handle may be another event's");

	/* the bit of one that ended and was noted goes to another stream */
	old = gpu_stream(&gpu);
	bit = old->bit;
	gpu_free(&gpu, old);
	record(&gpu, 5, old);
	glk_soft_run_all(gpu.drv);
	glk_stream_retire(&gpu.streams, old->handle);
	old = gpu_stream(&gpu);
	is_int(old->bit, bit, "a new stream has the bit of one that ended");
	use = gpu_free(&gpu, old);
	wait(&gpu, b, 5);
	is_int(waits(&gpu, use, b), 1, "an event of the one before tells nothing of it");
	gpu_close(&gpu);
}

/* There is no memory for the table. */
static void lacks_memory(void)
{
	struct glk_stream *a, *b;
	struct glk_use use;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	use = gpu_free(&gpu, a);
	glk_region_fail_after(1);
	is_int(glk_note_record(&gpu.streams, event(1), a), -ENOMEM, "no table of events");
	is_int(gpu_class(), GLAKE_ERROR_NOMEM_HOST, "  its class");
	glk_region_fail_after(0);
	wait(&gpu, b, 1);
	is_int(waits(&gpu, use, b), 1, "nothing is known");
	record(&gpu, 1, a);
	wait(&gpu, b, 1);
	is_int(waits(&gpu, use, b), 0, "later there is one");
	gpu_close(&gpu);
}

/* Of a stream of the crowd nothing is noted, since it shares its bit. */
static void ignores_crowd(void)
{
	struct glk_stream *a, *b, *x, *y;
	struct glk_use of_a, of_x;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	for (int i = 2; i < GLK_STREAM_CROWD; i++)
		gpu_stream(&gpu);
	x = gpu_stream(&gpu);
	y = gpu_stream(&gpu);
	is_int(y->bit, GLK_STREAM_CROWD, "two streams in the crowd");
	of_a = gpu_free(&gpu, a);
	of_x = gpu_free(&gpu, x);
	record(&gpu, 1, a);
	wait(&gpu, x, 1);
	is_int(waits(&gpu, of_a, x), 1, "a wait of one is not noted");
	is_int(waits(&gpu, of_a, y), 1, "and not taken for that of another");
	record(&gpu, 1, x);
	wait(&gpu, b, 1);
	is_int(waits(&gpu, of_x, b), 1, "nor is a record");
	is_int(waits(&gpu, of_a, b), 1, "which ends what the event stood for");
	/* what was learned of the crowd as a whole is passed on */
	gpu_free(&gpu, y);
	is_int(glk_clock_order(&gpu.streams, &of_x, b), 0, "B waits for the crowd");
	record(&gpu, 2, b);
	wait(&gpu, a, 2);
	of_x = gpu_free(&gpu, x);
	is_int(waits(&gpu, of_x, a), 1, "A is not behind what that freed later");
	gpu_close(&gpu);
}

#define MANY 4000

/* More events than are remembered: old ones are forgotten, and none is taken for another. */
static void evicts(void)
{
	struct glk_stream *a, *s[8];
	struct glk_use use[MANY];
	unsigned known = 0, wrong = 0;
	uint64_t bytes;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	for (int i = 0; i < 8; i++)
		s[i] = gpu_stream(&gpu);
	record(&gpu, 1, a);
	bytes = glk_region_bytes();
	for (uintptr_t n = 0; n < MANY; n++) {
		use[n] = gpu_free(&gpu, a);
		record(&gpu, n + 10, a);
	}
	is_int((int64_t)glk_region_bytes(), (int64_t)bytes,
		"4000 events take no more memory");
	/* each wait tells of its event at most: the streams take turns, oldest first */
	for (uintptr_t n = 0; n + 1 < MANY; n++) {
		wait(&gpu, s[n % 8], n + 10);
		known += !waits(&gpu, use[n], s[n % 8]);
		wrong += !waits(&gpu, use[n + 1], s[n % 8]);
	}
	tap_note("%u of %d remembered", known, MANY);
	is_int(wrong, 0, "none stands for more than it did");
	ok(known > 200 && known <= 512, "some hundreds are remembered");
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	orders();
	passes_on();
	forgets();
	lacks_memory();
	ignores_crowd();
	evicts();
	return tap_done();
}
