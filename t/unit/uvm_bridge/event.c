/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Events against a model of the module, in each of its generations: every field of every event, what
 * is told as pressure, and GPUs that come later.
 */
#include "unit/uvm_bridge/opened.h"

/* One event as it should come out. */
static void is_event(const struct glake_uvm_event *got, size_t i)
{
	static const struct {
		int from, to, cause;
	} want[MOVES] = {
		{GLAKE_UVM_HOST, 0, GLAKE_UVM_CAUSE_PREFETCH},
		{1, GLAKE_UVM_HOST, GLAKE_UVM_CAUSE_EVICTION},
		{GLAKE_UVM_HOST, GLAKE_UVM_HOST, GLAKE_UVM_CAUSE_NONE},
		{GLAKE_UVM_OTHER, 1, 2},
		{GLAKE_UVM_OTHER, GLAKE_UVM_OTHER, 0},
		{GLAKE_UVM_OTHER, 0, 0},
		{0, GLAKE_UVM_HOST, GLAKE_UVM_CAUSE_NO_MEMORY},
		{1, 0, GLAKE_UVM_CAUSE_POLICY},
	};
	const struct fake_event *e = &moves[i];
	bool nodes = fake.generation == 'D' && e->kind == GLK_UVM_MIGRATION;

	is_int(got->kind, 1u << e->kind, "the kind of an event");
	is_int(got->from, want[i].from, "from where");
	is_int(got->to, want[i].to, "to where");
	is_int(got->cause, want[i].cause, "why");
	is_int(got->from_node, nodes ? e->from_node : -1, "from which node");
	is_int(got->to_node, nodes ? e->to_node : -1, "to which node");
	is_int(got->address, e->address, "what");
	is_int(got->bytes, e->bytes, "how much");
	is_int(got->begin_ns, e->begin ? e->begin : e->end, "when it began");
	is_int(got->end_ns, e->end, "and ended");
	is_int(got->processors, e->kind == GLK_UVM_THRASHING ? INT64_MIN | 3 : 0,
		"and who took part");
}

static void one_generation(char generation)
{
	struct glake_uvm_event events[16];
	struct glake_uvm_figures figures;
	struct glk_uvm *uvm;
	size_t count = 99;

	fake_init(&fake, generation);
	tap_note("generation %c", generation);
	uvm = open_it(0, GLAKE_UVM_ALL, 64);
	is_int(fake_open_fds(&fake), FAKE_OPEN + 3, "a copy and two trackers");
	happen();
	fake_count(&fake, GLK_UVM_CPU_FAULTS, 5);
	fake_count(&fake, GLK_UVM_GPU_FAULTS, 7);
	fake_count(&fake, 4, 9); /* not enabled */
	figures = figures_of(uvm);
	is_int(figures.state, GLAKE_UVM_OK, "state");
	is_int(figures.to_gpu_bytes, 2 << 20, "bytes to GPUs");
	is_int(figures.to_host_bytes, 65536, "bytes to the host");
	is_int(figures.cpu_faults, 5, "faults of the host");
	is_int(figures.gpu_faults, 7, "faults of GPUs");
	is_int(figures.events, MOVES, "events that were seen");
	is_int(figures.moved_bytes, (2 << 20) + 65536 + 4096, "bytes by events");
	is_int(figures.evictions, 1, "evictions");
	is_int(figures.evicted_bytes, 65536, "their bytes");
	is_int(figures.remote_maps, 2, "remote maps");
	is_int(figures.remote_starved, 1, "for want of memory");
	is_int(figures.thrashing, 1, "thrashing");
	is_int(figures.fatal, 1, "fatal faults");
	is_int(glk_uvm_drain(uvm, events, 3, &count), 0, "three are drained");
	is_int(count, 3, "not more");
	is_int(glk_uvm_drain(uvm, events + 3, 13, &count), 0, "and the rest");
	is_int(count, MOVES - 3, "all of it");
	for (size_t i = 0; i < MOVES; i++)
		is_event(&events[i], i);
	is_int(glk_uvm_drain(uvm, events, 16, &count), 0, "then");
	is_int(count, 0, "there is none");
	figures = figures_of(uvm);
	is_int(figures.events, MOVES, "none was seen twice");
	is_int(figures.dropped, 0, "none was lost");
	close_it(uvm);
}

/* Pressure is what happened since it was last asked for; events stay for who drains. */
static void pressure(uint32_t flags)
{
	struct glake_uvm_pressure got;
	struct glake_uvm_event events[16];
	struct glk_uvm *uvm;
	size_t count;

	fake_init(&fake, 'D');
	fake.late = true;
	uvm = open_it(flags, GLAKE_UVM_ALL, 16);
	is_int(glk_uvm_pressure(uvm, &got), 0, "at first");
	is_int(got.rose, 0, "nothing");
	happen();
	is_int(glk_uvm_pressure(uvm, &got), 0, "then, also what was late");
	is_int(got.rose, 1, "it rose");
	is_int(got.evictions, 1, "by an eviction");
	is_int(got.evicted_bytes, 65536, "of so much");
	is_int(got.remote_starved, 1, "and a remote map");
	is_int(glk_uvm_pressure(uvm, &got), 0, "again");
	is_int(got.rose || got.evictions || got.evicted_bytes || got.remote_starved, 0,
		"it is told once");
	fake_happens(&fake, &moves[7]);
	is_int(glk_uvm_pressure(uvm, &got), 0, "a remote map by advice");
	is_int(got.rose, 0, "is none");
	is_int(glk_uvm_drain(uvm, events, 16, &count), 0, "drained");
	is_int(count, flags & GLAKE_UVM_SUMS ? 0 : MOVES + 1,
		"events stay, or were summed");
	for (int i = 0; i < 40; i++)
		fake_happens(&fake, &moves[1]);
	is_int(glk_uvm_pressure(uvm, &got), 0, "a flood");
	is_int(got.rose, 1, "is pressure");
	is_int(got.evictions + got.dropped, 40, "and what was lost is told");
	ok(got.dropped > 0, "some was");
	close_it(uvm);
}

/* A GPU that was not there when it was opened, and one that is none of the context's. */
static void new_processors(void)
{
	struct fake_event e = moves[0];
	struct glake_uvm_event event;
	struct glk_uvm_setup setup;
	struct glk_uvm *uvm = NULL;
	size_t count;
	int before;

	fake_init(&fake, 'D');
	setup = setup_of(GLAKE_UVM_ALL, 0);
	setup.gpus = 3;
	memset(setup.uuid[2], 0x55, 16);
	if (glk_uvm_open(&setup, &uvm))
		tap_bail("it does not open");
	memset(fake.uuid[4], 0x55, 16);
	memset(fake.uuid[5], 0x66, 16);
	e.to = 5;
	fake_happens(&fake, &e);
	is_int(glk_uvm_drain(uvm, &event, 1, &count), 0, "a GPU that came later");
	is_int(event.to, 2, "is known by the table as it is now");
	e.to = 6;
	fake_happens(&fake, &e);
	before = fake.calls;
	is_int(glk_uvm_drain(uvm, &event, 1, &count), 0, "another one");
	is_int(event.to, GLAKE_UVM_OTHER, "is none of the context's");
	is_int(fake.calls - before, 1, "the table was not read for it");
	e.to = 8;
	fake_happens(&fake, &e);
	before = fake.calls;
	is_int(glk_uvm_drain(uvm, &event, 1, &count), 0, "one without a name");
	is_int(event.to, GLAKE_UVM_OTHER, "is none either");
	is_int(fake.calls - before, 2, "the table was read once");
	fake.ioctl_errno = -EAGAIN;
	fake_happens(&fake, &e);
	e.to = 5;
	fake_happens(&fake, &e);
	is_int(glk_uvm_drain(uvm, &event, 1, &count), 0, "while it cannot be read");
	is_int(event.to, GLAKE_UVM_OTHER, "it stays so");
	is_int(glk_uvm_drain(uvm, &event, 1, &count), 0, "but nothing ends");
	is_int(event.to, 2, "and what was known is known");
	is_int(figures_of(uvm).state, GLAKE_UVM_OK, "the state says so");
	fake.ioctl_errno = 0;
	close_it(uvm);
}

int main(void)
{
	tap_plan_later();
	for (char generation = 'A'; generation <= 'D'; generation++)
		one_generation(generation);
	pressure(0);
	pressure(GLAKE_UVM_SUMS);
	new_processors();
	return tap_done();
}
