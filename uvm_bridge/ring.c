/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The protocol of the ring. The module writes a record and then put_behind; a reader that has
 * read records writes get_behind, which frees their room. get_ahead, which says how far a reader
 * has claimed, decides alone whether a poll would wake: it moves along. One entry stays free.
 */
#include "uvm_bridge/ring.h"

#include "base/atomic.h"
#include "uvm_bridge/thrash.h"

#include <errno.h>
#include <string.h>

static size_t entry_size(bool is_v2)
{
	return is_v2 ? GLK_UVM_ENTRY_V2 : GLK_UVM_ENTRY_V1;
}

/* The module's list for moves between nodes of the host is another one. */
static int migration_cause(uint8_t cause, int from, int to)
{
	if ((!from && !to) || cause > GLK_UVM_CAUSE_COUNTERS)
		return GLAKE_UVM_CAUSE_NONE;
	return cause;
}

static int remote_cause(uint8_t cause)
{
	static const int causes[] = {GLAKE_UVM_CAUSE_NONE, GLAKE_UVM_CAUSE_COHERENCE,
		GLAKE_UVM_CAUSE_THRASHING, GLAKE_UVM_CAUSE_POLICY,
		GLAKE_UVM_CAUSE_NO_MEMORY, GLAKE_UVM_CAUSE_EVICTION};

	return cause < sizeof(causes) / sizeof(*causes) ? causes[cause]
							: GLAKE_UVM_CAUSE_NONE;
}

static void range(struct glake_uvm_event *event, uint64_t address, uint64_t bytes,
	uint64_t begin, uint64_t end)
{
	event->address = address;
	event->bytes = bytes;
	event->begin_ns = (int64_t)begin;
	event->end_ns = (int64_t)end;
}

static void decode_v1(const void *entry, struct glk_uvm_record *record)
{
	struct glake_uvm_event *event = &record->event;
	union {
		struct glk_uvm_migration_v1 migration;
		struct glk_uvm_fatal_v1 fatal;
		struct glk_uvm_thrashing_v1 thrashing;
		struct glk_uvm_throttling_v1 throttling;
		struct glk_uvm_remote_v1 remote;
	} e;

	_Static_assert(sizeof(e) == GLK_UVM_ENTRY_V1, "an entry");
	memcpy(&e, entry, sizeof(e));
	switch (event->kind) {
	case GLAKE_UVM_MIGRATION:
		event->from = e.migration.from;
		event->to = e.migration.to;
		event->cause = migration_cause(e.migration.cause, event->from, event->to);
		range(event, e.migration.address, e.migration.bytes, e.migration.begin,
			e.migration.end);
		break;
	case GLAKE_UVM_FATAL_FAULT:
		event->to = e.fatal.processor;
		event->cause = e.fatal.reason;
		range(event, e.fatal.address, 0, e.fatal.time, e.fatal.time);
		break;
	case GLAKE_UVM_THRASHING:
		record->processors[0] = e.thrashing.processors;
		range(event, e.thrashing.address, e.thrashing.bytes, e.thrashing.time,
			e.thrashing.time);
		break;
	case GLAKE_UVM_THROTTLING:
		event->to = e.throttling.processor;
		range(event, e.throttling.address, 0, e.throttling.time,
			e.throttling.time);
		break;
	default:
		event->from = e.remote.from;
		event->to = e.remote.to;
		event->cause = remote_cause(e.remote.cause);
		range(event, e.remote.address, e.remote.bytes, e.remote.time,
			e.remote.time);
	}
}

static void decode_v2(const void *entry, struct glk_uvm_record *record)
{
	struct glake_uvm_event *event = &record->event;
	union {
		struct glk_uvm_migration_v2 migration;
		struct glk_uvm_fatal_v2 fatal;
		struct glk_uvm_thrashing_v2 thrashing;
		struct glk_uvm_throttling_v2 throttling;
		struct glk_uvm_remote_v2 remote;
	} e;

	_Static_assert(sizeof(e) == GLK_UVM_ENTRY_V2, "an entry");
	memcpy(&e, entry, sizeof(e));
	switch (event->kind) {
	case GLAKE_UVM_MIGRATION:
		event->from = e.migration.from;
		event->to = e.migration.to;
		event->cause = migration_cause(e.migration.cause, event->from, event->to);
		event->from_node = e.migration.from ? -1 : e.migration.from_node;
		event->to_node = e.migration.to ? -1 : e.migration.to_node;
		range(event, e.migration.address, e.migration.bytes, e.migration.begin,
			e.migration.end);
		break;
	case GLAKE_UVM_FATAL_FAULT:
		event->to = e.fatal.processor;
		event->cause = e.fatal.reason;
		range(event, e.fatal.address, 0, e.fatal.time, e.fatal.time);
		break;
	case GLAKE_UVM_THRASHING:
		memcpy(record->processors, e.thrashing.processors,
			sizeof(record->processors));
		range(event, e.thrashing.address, e.thrashing.bytes, e.thrashing.time,
			e.thrashing.time);
		break;
	case GLAKE_UVM_THROTTLING:
		event->to = e.throttling.processor;
		range(event, e.throttling.address, 0, e.throttling.time,
			e.throttling.time);
		break;
	default:
		event->from = e.remote.from;
		event->to = e.remote.to;
		event->cause = remote_cause(e.remote.cause);
		range(event, e.remote.address, e.remote.bytes, e.remote.time,
			e.remote.time);
	}
}

bool glk_uvm_decode(const void *entry, bool is_v2, struct glk_uvm_record *ret_record)
{
	uint8_t kind = *(const uint8_t *)entry;

	if (kind >= 32 || !(GLAKE_UVM_ALL & 1u << kind))
		return false;
	*ret_record = (struct glk_uvm_record){.event = {.kind = 1u << kind,
						      .from = -1,
						      .to = -1,
						      .from_node = -1,
						      .to_node = -1}};
	if (is_v2)
		decode_v2(entry, ret_record);
	else
		decode_v1(entry, ret_record);
	return true;
}

static const void *entry_at(const struct glk_uvm_ring *ring, uint32_t index)
{
	return ring->queue + (size_t)index * entry_size(ring->is_v2);
}

static uint32_t next(const struct glk_uvm_ring *ring, uint32_t index)
{
	return (index + 1) & (ring->entries - 1);
}

static void sum_up(struct glk_uvm_sums *sums, const struct glake_uvm_event *event)
{
	switch (event->kind) {
	case GLAKE_UVM_MIGRATION:
		sums->moved_bytes += event->bytes;
		if (event->cause != GLAKE_UVM_CAUSE_EVICTION)
			break;
		sums->evictions++;
		sums->evicted_bytes += event->bytes;
		break;
	case GLAKE_UVM_REMOTE_MAP:
		sums->remote_maps++;
		sums->remote_starved += event->cause == GLAKE_UVM_CAUSE_NO_MEMORY ||
			event->cause == GLAKE_UVM_CAUSE_EVICTION;
		break;
	case GLAKE_UVM_THRASHING:
		sums->thrashing++;
		break;
	case GLAKE_UVM_FATAL_FAULT:
		sums->fatal++;
		break;
	}
}

int glk_uvm_ring_look(struct glk_uvm_ring *ring, struct glk_uvm_sums *sums)
{
	struct glk_uvm_record record;
	uint32_t put;

	if (!ring->entries)
		return 0;
	/* pairs with: the module's store behind the record */
	put = glk_peek_acquire(&ring->control->put_behind);
	if (put >= ring->entries)
		return -EBADMSG;
	for (; ring->seen != put; ring->seen = next(ring, ring->seen)) {
		sums->events++;
		if (!glk_uvm_decode(entry_at(ring, ring->seen), ring->is_v2, &record))
			continue;
		sum_up(sums, &record.event);
		if (ring->thrashes)
			glk_uvm_thrash_note(ring->thrashes, &record);
	}
	return 0;
}

bool glk_uvm_ring_take(struct glk_uvm_ring *ring, struct glk_uvm_record *ret_record)
{
	while (ring->entries && ring->get != ring->seen) {
		const void *entry = entry_at(ring, ring->get);

		ring->get = next(ring, ring->get);
		if (glk_uvm_decode(entry, ring->is_v2, ret_record))
			return true;
	}
	return false;
}

void glk_uvm_ring_give(struct glk_uvm_ring *ring)
{
	if (!ring->entries)
		return;
	glk_poke_relaxed(&ring->control->get_ahead, ring->get);
	/* pairs with: the module's load before it writes a record there */
	glk_poke_release(&ring->control->get_behind, ring->get);
}

uint64_t glk_uvm_ring_dropped(const struct glk_uvm_ring *ring)
{
	uint64_t sum = 0;

	for (int i = 0; ring->entries && i < GLK_UVM_KINDS; i++)
		sum += glk_peek_relaxed(&ring->control->dropped[i]);
	return sum;
}
