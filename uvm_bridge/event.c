/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Events as a program has them: oldest first, with the GPUs of its context in place of the module's
 * indices. An index stays what it is for as long as a GPU is in use; one that is new is looked up
 * in the module's table, which is read once a drain at most.
 */
#include "uvm_bridge/bridge.h"

#include <string.h>

_Static_assert(sizeof(struct glake_uvm_event) == 80, "programs have arrays of them");

static const uint8_t nobody[GLK_UVM_UUID];

/* The table is read anew, once, for an index that was not in it. */
static const uint8_t *uuid_of(struct glk_uvm *uvm, int index, bool *again)
{
	int count = uvm->ring.is_v2 ? GLK_UVM_INDEX_V2 : GLK_UVM_INDEX_V1;

	if (index < 0 || index >= count)
		return nobody;
	if (*again && uvm->state == GLAKE_UVM_OK &&
		!memcmp(uvm->table[index], nobody, GLK_UVM_UUID)) {
		*again = false;
		glk_uvm_read_table(uvm);
		if (uvm->state == GLAKE_UVM_AGAIN)
			glk_uvm_counts(uvm); /* the next drain asks again */
		glk_uvm_broke(uvm);
	}
	return uvm->table[index];
}

static int processor(struct glk_uvm *uvm, int index, bool *again)
{
	const uint8_t *uuid;

	if (!index)
		return GLAKE_UVM_HOST;
	uuid = uuid_of(uvm, index, again);
	if (!memcmp(uuid, nobody, GLK_UVM_UUID))
		return GLAKE_UVM_OTHER;
	for (int i = 0; i < uvm->setup.gpus; i++)
		if (!memcmp(uuid, uvm->setup.uuid[i], GLK_UVM_UUID))
			return i;
	return GLAKE_UVM_OTHER;
}

/* A set of processors, of which those are left out that are not the context's. */
static uint64_t processors(struct glk_uvm *uvm, const uint64_t words[5], bool *again)
{
	uint64_t set = 0;

	for (int i = 0; i < 5; i++)
		for (uint64_t left = words[i]; left; left &= left - 1) {
			int who = processor(uvm, i * 64 + __builtin_ctzll(left), again);

			if (who != GLAKE_UVM_OTHER)
				set |= UINT64_C(1)
					<< (who == GLAKE_UVM_HOST ? GLK_UVM_GPUS : who);
		}
	return set;
}

static void translate(struct glk_uvm *uvm, const struct glk_uvm_record *record,
	struct glake_uvm_event *to, bool *again)
{
	*to = record->event;
	to->from = processor(uvm, record->event.from, again);
	to->to = processor(uvm, record->event.to, again);
	to->processors = processors(uvm, record->processors, again);
}

size_t glk_uvm_places(struct glk_uvm *uvm, struct glk_uvm_place *ret_places, size_t count)
{
	struct glk_uvm_thrash told;
	bool again = true;
	size_t taken = 0;

	while (taken < count && glk_uvm_thrash_take(&uvm->thrashes, &told))
		ret_places[taken++] = (struct glk_uvm_place){told.address,
			processors(uvm, told.processors, &again), told.since_ns};
	return taken;
}

int glk_uvm_drain(struct glk_uvm *uvm, struct glake_uvm_event *events, size_t count,
	size_t *ret_count)
{
	struct glk_uvm_record record;
	bool again = true;
	size_t taken = 0;
	int err;

	glk_uvm_flush(uvm);
	glk_uvm_look(uvm);
	while (taken < count && glk_uvm_ring_take(&uvm->ring, &record))
		translate(uvm, &record, &events[taken++], &again);
	glk_uvm_ring_give(&uvm->ring);
	err = taken ? 0 : glk_uvm_failure(uvm);
	if (!err)
		*ret_count = taken;
	return err;
}

int glk_uvm_pressure(struct glk_uvm *uvm, struct glake_uvm_pressure *ret_pressure)
{
	struct glake_uvm_pressure now = {.sz = sizeof(now)}, *told = &uvm->told;
	int err;

	glk_uvm_flush(uvm);
	glk_uvm_look(uvm);
	err = glk_uvm_failure(uvm);
	if (err)
		return err;
	now.evictions = uvm->sums.evictions - told->evictions;
	now.evicted_bytes = uvm->sums.evicted_bytes - told->evicted_bytes;
	now.remote_starved = uvm->sums.remote_starved - told->remote_starved;
	now.dropped = glk_uvm_dropped(uvm) - told->dropped;
	now.rose = now.evictions || now.remote_starved;
	*told = (struct glake_uvm_pressure){.evictions = uvm->sums.evictions,
		.evicted_bytes = uvm->sums.evicted_bytes,
		.remote_starved = uvm->sums.remote_starved,
		.dropped = glk_uvm_dropped(uvm)};
	*ret_pressure = now;
	return 0;
}
