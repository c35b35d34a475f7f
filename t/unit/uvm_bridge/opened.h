/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_OPENED_H
#define GLK_UVM_OPENED_H

/* The bridge on the model, opened and closed, and something of each kind that happens. */
#include "unit/uvm_bridge/fake.h"

#include "tap.h"
#include "uvm_bridge/uvm.h"

static struct fake fake;

static UNUSED_FN struct glk_uvm_setup setup_of(uint32_t events, uint32_t entries)
{
	struct glk_uvm_setup setup = {.ops = &fake.ops,
		.generation = fake.generation,
		.major = FAKE_MAJOR,
		.events = events,
		.entries = entries,
		.gpus = 2};

	memcpy(setup.uuid, fake.uuid, 2 * sizeof(setup.uuid[0]));
	return setup;
}

static UNUSED_FN struct glk_uvm *open_it(
	uint32_t flags, uint32_t events, uint32_t entries)
{
	struct glk_uvm_setup setup = setup_of(events, entries);
	struct glk_uvm *uvm = NULL;

	setup.flags = flags;
	if (glk_uvm_open(&setup, &uvm))
		tap_bail("it does not open");
	return uvm;
}

/* Closes, and looks at what is left. */
static UNUSED_FN void close_it(struct glk_uvm *uvm)
{
	glk_uvm_close(uvm);
	is_int(fake_open_fds(&fake), FAKE_OPEN, "every descriptor is closed");
	is_int(fake.maps, 0, "all memory is unmapped");
	is_int(fake.unknown, 0, "no number that the module does not know");
	is_int(fake.dirty, 0, "buffers are zero behind the structures");
}

static UNUSED_FN struct glake_uvm_figures figures_of(struct glk_uvm *uvm)
{
	struct glake_uvm_figures figures;

	glk_uvm_figures(uvm, &figures);
	return figures;
}

static const struct fake_event moves[] = {
	{.kind = GLK_UVM_MIGRATION,
		.cause = GLK_UVM_CAUSE_PREFETCH,
		.to = 1,
		.from_node = 3,
		.to_node = -1,
		.address = 0x7f0000200000,
		.bytes = 2 << 20,
		.begin = 100,
		.end = 250},
	{.kind = GLK_UVM_MIGRATION,
		.cause = GLK_UVM_CAUSE_EVICTION,
		.from = 2,
		.from_node = -1,
		.to_node = 1,
		.address = 0x7f0000400000,
		.bytes = 65536,
		.begin = 300,
		.end = 301},
	{.kind = GLK_UVM_MIGRATION,
		.cause = 6,
		.from_node = 0,
		.to_node = 2,
		.address = 0x7f0000600000,
		.bytes = 4096,
		.begin = 310,
		.end = 311},
	{.kind = GLK_UVM_FATAL_FAULT,
		.cause = 2,
		.to = 2,
		.address = 0x7f0000a00000,
		.end = 400},
	{.kind = GLK_UVM_THRASHING,
		.address = 0x7f0000b00000,
		.bytes = 65536,
		.end = 500},
	{.kind = GLK_UVM_THROTTLING, .to = 1, .address = 0x7f0000b00000, .end = 501},
	{.kind = GLK_UVM_MAP_REMOTE,
		.cause = GLK_UVM_REMOTE_OUT_OF_MEMORY,
		.from = 1,
		.address = 0x7f0000c00000,
		.bytes = 4096,
		.end = 600},
	{.kind = GLK_UVM_MAP_REMOTE,
		.cause = GLK_UVM_REMOTE_POLICY,
		.from = 2,
		.to = 1,
		.address = 0x7f0000d00000,
		.bytes = 8192,
		.end = 601},
};

#define MOVES (sizeof(moves) / sizeof(*moves))

static UNUSED_FN void happen(void)
{
	for (size_t i = 0; i < MOVES; i++) {
		struct fake_event e = moves[i];

		if (e.kind == GLK_UVM_THRASHING) /* the host and both GPUs */
			e.processors = fake.generation == 'D' ? 0x203 : 0x7;
		fake_happens(&fake, &e);
	}
}

#endif
