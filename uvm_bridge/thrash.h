/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_THRASH_H
#define GLK_UVM_THRASH_H

/*
 * Places that went to and fro between processors, as events told, until somebody asks: 64 KiB are one
 * place, since the module tells of each page of the system. What finds no room is left out; the module
 * tells of it again while it goes on. Inside this folder.
 */
#include "uvm_bridge/ring.h"

#define GLK_UVM_THRASHES 256 /* a power of two */

struct glk_uvm_thrash {
	uint64_t address;	/* the first that was told of there */
	int64_t since_ns;	/* the earliest time that was told */
	uint64_t processors[5]; /* by the module's indices; all 0: no place */
};

struct glk_uvm_thrashes {
	uint32_t count;
	struct glk_uvm_thrash at[GLK_UVM_THRASHES];
};

/* An event, of any kind. */
void glk_uvm_thrash_note(
	struct glk_uvm_thrashes *places, const struct glk_uvm_record *record);

/* Takes a place out; false: there is none. */
bool glk_uvm_thrash_take(
	struct glk_uvm_thrashes *places, struct glk_uvm_thrash *ret_place);

#endif
