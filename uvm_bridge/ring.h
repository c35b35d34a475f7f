/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_RING_H
#define GLK_UVM_RING_H

/*
 * The ring of events: memory that the module writes records into and one reader takes them from.
 * What is in it is not trusted: an index out of range ends its use, and a record of a kind that is
 * not known is counted and passed over. Inside this folder.
 */
#include "uvm_bridge/abi.h"

#include <glake/uvm.h>

#include <stdbool.h>

struct glk_uvm_thrashes;

struct glk_uvm_ring {
	struct glk_uvm_control *control; /* shared with the module */
	const char *queue;		 /* likewise */
	uint32_t entries;		 /* a power of two */
	bool is_v2;
	/* Events from get to seen have been summed up and wait to be taken. Only we move them. */
	uint32_t get, seen;
	struct glk_uvm_thrashes *thrashes; /* see thrash.h; NULL: nobody asks */
};

/* What was seen of events; struct glake_uvm_figures explains each. */
struct glk_uvm_sums {
	uint64_t events, moved_bytes, evictions, evicted_bytes, remote_maps,
		remote_starved, thrashing, fatal;
};

/* A record as it is: processors are the module's indices, -1 where there is none. */
struct glk_uvm_record {
	struct glake_uvm_event event;
	uint64_t processors[5];
};

/* false: of no kind that is known. */
bool glk_uvm_decode(const void *entry, bool is_v2, struct glk_uvm_record *ret_record);

/* Sums up what nobody has looked at. 0, or -EBADMSG: the module's index is out of range. */
int glk_uvm_ring_look(struct glk_uvm_ring *ring, struct glk_uvm_sums *sums);

/* Takes the oldest event that was looked at; false: there is none. What is not known is left out. */
bool glk_uvm_ring_take(struct glk_uvm_ring *ring, struct glk_uvm_record *ret_record);

/* Gives the room of what was taken back to the module. */
void glk_uvm_ring_give(struct glk_uvm_ring *ring);

/* Events that wait to be taken. */
static inline uint32_t glk_uvm_ring_waiting(const struct glk_uvm_ring *ring)
{
	return ring->entries ? (ring->seen - ring->get) & (ring->entries - 1) : 0;
}

/* Lost since the ring was begun. */
uint64_t glk_uvm_ring_dropped(const struct glk_uvm_ring *ring);

#endif
