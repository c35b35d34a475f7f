/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * More streams than bits: whoever wants what one of the crowd used has to do with that one, however
 * many there are. All others have work queued behind memory that they freed.
 */
#define RIG_STREAMS 4100
#include "unit/cache/rig.h"

#include "base/clock.h"

#include <errno.h>

#define SIZE (8 * MIB)
#define KIB  ((size_t)1 << 10)

static struct rig rig;

/* Streams with a slot of small blocks between them, freed to the arena and busy all the same; the
 * last two are not. The device judges each kernel by all that are queued, so of thousands a twelfth is busy. */
static void crowd_open(int count, const char *policy)
{
	rig_open(&rig, (const char *const[]){"soft.streams=stepped", policy, NULL});
	for (int i = 0; i < count; i++) {
		struct CUstream_st *stream = rig_stream(&rig);
		uint64_t addr = rig_alloc(&rig, 4 * KIB, stream);

		if (i < count - 2 && (count <= 1000 || i % 12 == 1))
			rig_work(&rig, addr, 4 * KIB, stream);
		rig_free(&rig, addr, stream);
	}
	rig_flush(&rig);
}

/* Events that are there already may be asked about, a few of them. */
static uint64_t of_streams(void)
{
	return rig_calls(&rig, GLAKE_CALL_EVENT_RECORD) +
		rig_calls(&rig, GLAKE_CALL_STREAM_WAIT) +
		rig_calls(&rig, GLAKE_CALL_SYNC);
}

static uint32_t pending(int stream)
{
	uint32_t count = 0;

	glk_soft_pending(rig.drv, 0, rig.stream[stream], &count);
	return count;
}

/* A block that the last but one of them freed, with work queued behind it. */
static uint64_t freed_by_one(int count, size_t size)
{
	uint64_t addr = rig_alloc(&rig, size, rig.stream[count - 2]);

	rig_work(&rig, addr, size, rig.stream[count - 2]);
	rig_free(&rig, addr, rig.stream[count - 2]);
	return addr;
}

static void orders(int count)
{
	uint64_t freed, calls, waits, got;
	int64_t since;

	crowd_open(count, NULL);
	freed = freed_by_one(count, SIZE);
	calls = of_streams();
	waits = rig_calls(&rig, GLAKE_CALL_STREAM_WAIT);
	since = glk_clock_ns();
	got = rig_alloc(&rig, SIZE, rig.stream[count - 1]);
	tap_note("%d streams: %d calls for a request, %d ns", count,
		(int)(of_streams() - calls), (int)(glk_clock_ns() - since));
	ok(got == freed, "one stream gets what another one freed");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT) - waits), 1,
		"behind that one");
	ok(of_streams() - calls <= 2, "with one event");
	/* the device would refuse the kernel were it not ordered */
	rig_work(&rig, got, SIZE, rig.stream[count - 1]);
	rig_free(&rig, got, rig.stream[count - 1]);
	calls = of_streams();
	ok(rig_alloc(&rig, SIZE, rig.stream[count - 1]) == freed, "now it is its own");
	is_int((int64_t)(of_streams() - calls), 0, "without a call");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Where memory is short, what is in the way of giving it back is waited for. */
static void climbs(int count)
{
	uint64_t calls;
	int64_t since;

	crowd_open(count, RIG_DONE);
	freed_by_one(count, SIZE);
	glk_store_relaxed(
		&rig.cache.node->budget, glk_load_relaxed(&rig.cache.node->held) + MIB);
	calls = rig_calls(&rig, GLAKE_CALL_SYNC);
	since = glk_clock_ns();
	ok(rig_alloc(&rig, SIZE, rig.stream[count - 1]), "memory under pressure");
	calls = rig_calls(&rig, GLAKE_CALL_SYNC) - calls;
	tap_note("%d streams: %d waits, %d ns", count, (int)calls,
		(int)(glk_clock_ns() - since));
	is_int((int64_t)calls, 1, "is had after one wait");
	is_int(pending(count - 2), 0, "for the stream that had it");
	ok(pending(count - 3) && pending(1), "others may still be at work");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Before a request is refused all that may stand in its way is waited for. */
static void refuses(int count)
{
	uint64_t addr;

	crowd_open(count, RIG_DONE);
	ok(rig_alloc(&rig, 2 * SIZE, rig.stream[0]), "a block that stays");
	addr = freed_by_one(count, SIZE);
	glk_store_relaxed(
		&rig.cache.node->budget, glk_load_relaxed(&rig.cache.node->held));
	is_int(rig_try(&rig, 2 * SIZE, rig.stream[count - 1], 0, &addr), -ENOMEM,
		"more than there is");
	is_int(pending(count - 2), 0, "is refused when nobody is left who may free it");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* The number of one that ended is another one's, which is known and was given nothing yet: a block that
 * the first one left says nothing of work of the second. */
static void takes_over(void)
{
	int count = GLK_STREAM_CROWD + 2;
	struct CUstream_st *last, *next;
	uint64_t left, freed;
	uint32_t known;

	crowd_open(count, "stream.event_dependencies=no");
	last = rig.stream[count - 2];
	left = rig_alloc(&rig, 4 * KIB, last);
	freed = rig_single(&rig, SIZE, last);
	rig_free(&rig, freed, last);
	rig.drv->ops->stream_sync(rig.drv, 0, last);
	glk_cache_stream_end(&rig.cache, last);
	known = glk_load_relaxed(&rig.cache.streams.slab.live);
	next = rig_stream(&rig);
	is_int(glk_cache_event_recorded(&rig.cache, NULL, next), 0, "a stream is named");
	is_int(glk_load_relaxed(&rig.cache.streams.slab.live), known + 1, "and known");
	rig_free(&rig, left, rig.stream[0]);
	glk_store_relaxed(
		&rig.cache.node->budget, glk_load_relaxed(&rig.cache.node->held));
	ok(rig_single(&rig, 6 * MIB, rig.stream[0]), "what the first one used is free");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

int main(void)
{
	static const int counts[] = {64, 100, 1000, 4000};

	tap_plan_later();
	for (int i = 0; i < 4; i++) {
		orders(counts[i]);
		climbs(counts[i]);
	}
	refuses(100);
	takes_over();
	return tap_done();
}
