/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ring of events: what fits and what is lost at each size, a hundred thousand events without a
 * loss at the size that is the default, records of no kind, indices that cannot be.
 */
#include "unit/uvm_bridge/fake.h"

#include "tap.h"
#include "uvm_bridge/ring.h"
#include "uvm_bridge/uvm.h"

#include <time.h>

static struct fake fake;

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static struct glk_uvm *open_it(char generation, uint32_t flags, uint32_t entries)
{
	struct glk_uvm_setup setup = {.ops = &fake.ops,
		.generation = generation,
		.major = FAKE_MAJOR,
		.flags = flags,
		.events = GLAKE_UVM_ALL,
		.entries = entries};
	struct glk_uvm *uvm = NULL;

	fake_init(&fake, generation);
	if (glk_uvm_open(&setup, &uvm))
		tap_bail("it does not open");
	return uvm;
}

static void one_size(uint32_t entries)
{
	struct fake_event e = {.kind = GLK_UVM_MIGRATION, .to = 1, .bytes = 1};
	struct glake_uvm_event events[64];
	struct glk_uvm *uvm = open_it('D', 0, entries);
	struct glake_uvm_figures figures;
	uint64_t lost = 0;
	bool whole = true;
	size_t count;

	/* each round leaves the indices elsewhere */
	for (uint32_t round = 0; round < 2 * entries + 1; round++) {
		uint32_t made = round % (entries + 3);

		for (uint32_t i = 0; i < made; i++) {
			e.address = round * 1000 + i;
			fake_happens(&fake, &e);
		}
		if (glk_uvm_drain(uvm, events, 64, &count))
			whole = false;
		whole &= count == (made < entries ? made : entries - 1);
		lost += made - count;
		for (size_t i = 0; i < count; i++)
			whole &= events[i].address == round * 1000 + i;
	}
	glk_uvm_figures(uvm, &figures);
	ok(whole, "a ring of %u holds %u, in their order", entries, entries - 1);
	is_int(figures.dropped, lost, "what is lost is counted");
	glk_uvm_close(uvm);
}

/* As many as come in a second, in bursts that fill the ring. */
static void a_second(char generation)
{
	const uint64_t all = tap_storms_take_long() ? 20000 : 100000;
	static struct glake_uvm_event events[1000];
	struct fake_event e = {
		.kind = GLK_UVM_MIGRATION, .to = 1, .bytes = 4096, .cause = 4};
	struct glk_uvm *uvm = open_it(generation, 0, 0);
	uint64_t made = 0, got = 0;
	struct glake_uvm_figures figures;
	int64_t spent = 0, start;
	bool whole = true;
	size_t count;

	while (got < all && whole) {
		for (int i = 0; made < all && i < GLAKE_UVM_ENTRIES_MAX - 1; i++) {
			e.address = made++ * 4096;
			fake_happens(&fake, &e);
		}
		start = now_ns();
		do {
			whole = !glk_uvm_drain(uvm, events, 1000, &count);
			for (size_t i = 0; i < count; i++)
				whole &= events[i].address == got++ * 4096;
		} while (count == 1000 && whole);
		spent += now_ns() - start;
	}
	glk_uvm_figures(uvm, &figures);
	ok(whole, "generation %c: events come in their order", generation);
	is_int(got, all, "all of them");
	is_int(figures.dropped, 0, "none was lost");
	is_int(figures.evicted_bytes, all * 4096, "and all were summed up");
	tap_note("%.0f ns an event", (double)spent / (double)all);
	glk_uvm_close(uvm);
}

/* Nobody drains: sums alone are kept, as often as they are asked for. */
static void sums(void)
{
	struct fake_event e = {.kind = GLK_UVM_MIGRATION, .to = 1, .bytes = 64};
	struct glk_uvm *uvm = open_it('D', GLAKE_UVM_SUMS, 1024);
	struct glake_uvm_figures figures;
	int64_t start;

	for (int i = 0; i < 10000; i++) {
		fake_happens(&fake, &e);
		if (i % 1000 == 999)
			glk_uvm_figures(uvm, &figures);
	}
	is_int(figures.events, 10000, "summed up on the way");
	is_int(figures.moved_bytes, 640000, "their bytes");
	is_int(figures.dropped, 0, "none was lost");
	start = now_ns();
	for (int i = 0; i < 1000; i++)
		glk_uvm_figures(uvm, &figures);
	tap_note("figures read in %.3f us, 2 is what they may take",
		(double)(now_ns() - start) / 1e6);
	glk_uvm_close(uvm);
}

static void bare(void)
{
	static struct glk_uvm_control control;
	static char queue[4 * GLK_UVM_ENTRY_V2];
	struct glk_uvm_ring ring = {
		.control = &control, .queue = queue, .entries = 4, .is_v2 = true};
	struct glk_uvm_sums sums = {0};
	struct glk_uvm_record record;

	queue[0] = GLK_UVM_THROTTLING;
	queue[GLK_UVM_ENTRY_V2] = 1;
	queue[2 * GLK_UVM_ENTRY_V2] = (char)0xff;
	control.put_behind = 3;
	is_int(glk_uvm_ring_look(&ring, &sums), 0, "three records");
	is_int(sums.events, 3, "are seen");
	is_int(glk_uvm_ring_waiting(&ring), 3, "and wait");
	ok(glk_uvm_ring_take(&ring, &record), "one is known");
	is_int(record.event.kind, GLAKE_UVM_THROTTLING, "which is given");
	ok(!glk_uvm_ring_take(&ring, &record), "the others are passed over");
	is_int(control.get_behind, 0, "their room is ours still");
	glk_uvm_ring_give(&ring);
	is_int(control.get_behind, 3, "until it is given back");
	is_int(control.get_ahead, 3, "both ways");
	control.put_behind = 4;
	is_int(glk_uvm_ring_look(&ring, &sums), -EBADMSG, "one beyond the ring");
	control.put_behind = UINT32_MAX;
	is_int(glk_uvm_ring_look(&ring, &sums), -EBADMSG, "the largest");
	is_int(sums.events, 3, "nothing was looked at");
	control.dropped[2] = 5;
	control.dropped[63] = 6;
	is_int(glk_uvm_ring_dropped(&ring), 11, "losses of all kinds");
	ring = (struct glk_uvm_ring){0};
	is_int(glk_uvm_ring_look(&ring, &sums), 0, "no ring");
	ok(!glk_uvm_ring_take(&ring, &record), "gives nothing");
	glk_uvm_ring_give(&ring);
	is_int(glk_uvm_ring_dropped(&ring) + glk_uvm_ring_waiting(&ring), 0, "at all");
}

int main(void)
{
	tap_plan_later();
	bare();
	for (uint32_t entries = 2; entries <= 32; entries *= 2)
		one_size(entries);
	a_second('A');
	a_second('D');
	sums();
	return tap_done();
}
