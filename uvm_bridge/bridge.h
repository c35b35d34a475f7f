/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_BRIDGE_H
#define GLK_UVM_BRIDGE_H

/* The tools in use, in their parts. Inside this folder. */
#include "base/atomic.h"
#include "base/error.h"
#include "uvm_bridge/abi.h"
#include "uvm_bridge/ops.h"
#include "uvm_bridge/ring.h"
#include "uvm_bridge/thrash.h"
#include "uvm_bridge/uvm.h"

struct glk_uvm {
	struct glk_uvm_setup setup;
	const struct glk_uvm_ops *ops;
	enum glake_uvm_state state;
	char text[160];
	/* -1: none. Taken out before they are closed, so that a child that is forked meanwhile
	 * closes none of another file. */
	glk_atomic(int) space, counters_fd, events_fd;

	uint64_t *
		counters; /* GLK_UVM_COUNTERS of them, in a page that the module writes */
	uint64_t before[GLK_UVM_COUNTERS]; /* what they came to before a pause */
	struct glk_uvm_ring ring;	   /* no entries: none */
	struct glk_uvm_sums sums;
	struct glk_uvm_thrashes thrashes;
	uint64_t dropped_before;
	struct glake_uvm_pressure told; /* the sums when pressure was last asked for */

	uint8_t table[GLK_UVM_INDEX_V2][GLK_UVM_UUID]; /* processors by their index */
	_Alignas(8) char buffer[GLK_UVM_BUFFER];       /* of the call under way */
};

/* Takes note of a failure, and makes the record of it. Returns the errno value of the state. */
int glk_uvm_fail(struct glk_uvm *uvm, enum glake_uvm_state state, const char *call,
	int native, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* All is well. */
void glk_uvm_counts(struct glk_uvm *uvm);
/* Sums up what is new in the ring, and throws it away where only sums are wanted. */
void glk_uvm_look(struct glk_uvm *uvm);
/* Has the module write out what is under way, unless it is being suspended. A failure is seen in the
 * state. */
void glk_uvm_flush(struct glk_uvm *uvm);
/* Closes the descriptors if the module has failed: what was counted stays. */
void glk_uvm_broke(struct glk_uvm *uvm);
/* Events that were lost. */
uint64_t glk_uvm_dropped(const struct glk_uvm *uvm);
/* The failure of a module that has failed, with a record, or 0. */
int glk_uvm_failure(struct glk_uvm *uvm);

/*
 * tracker.c. Makes a call with what `buffer` holds, which is at most GLK_UVM_BUFFER bytes that
 * start out as zero: see glk_uvm_buffer. 0 or -errno of the system, without a record.
 */
void *glk_uvm_buffer(struct glk_uvm *uvm);
int glk_uvm_call(struct glk_uvm *uvm, int fd, enum glk_uvm_number number);
/* What came of a call: 0, or fails with the state that stands for it. */
int glk_uvm_answer(struct glk_uvm *uvm, const char *call, int err, uint32_t status);

/* find.c. A copy of the descriptor of the module that CUDA has: uvm->space. 0, or fails. */
int glk_uvm_find(struct glk_uvm *uvm);

/* tracker.c. Counters, the processors by their index, and events. 0, or fails. */
int glk_uvm_start_counters(struct glk_uvm *uvm);
int glk_uvm_start_events(struct glk_uvm *uvm);
int glk_uvm_read_table(struct glk_uvm *uvm);
void glk_uvm_release(struct glk_uvm *uvm); /* closes all */

#endif
