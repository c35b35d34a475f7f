/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which guest holds which block. The pages of a block that is held serve nobody else, even when the
 * program has freed it: CUDA leaves open what becomes of one that is freed first and closed later, and
 * there are programs that close one only when they meet its address again, as UCX does. So as to
 * have those addresses and pages again, guests are told of blocks that were freed, and let go of
 * them: of all but the one that was freed last when those have more than FREED_MOST bytes together, and
 * of all when somebody finds no memory.
 */
#include "front/preload_ipc.h"

#define HOLDS_MAX  65536
#define FREED_MOST (UINT64_C(256) << 20)

static struct glk_preload_ipc_hold holds[HOLDS_MAX]; /* all of this under `serving` */
static int hold_count;
static uint64_t freed_bytes; /* of those whose guest was not told so far */
static uint64_t newest;	     /* the block that was freed last */
static uint64_t before;	     /* freed_bytes without that one */
static uint64_t asked_round; /* when all were told of all */
static bool some_left;	     /* that could not be told the last time */

static void end_hold(struct glk_preload_ipc_hold *hold)
{
	if (hold->freed && !hold->told)
		freed_bytes -= hold->size;
	if (hold->seat && glk_preload_in(hold->seat)) {
		glk_library.export_end(hold->seat->glake, hold->ptr);
		glk_preload_out(hold->seat);
		glk_preload_inside = true; /* as the thread has it */
	}
	*hold = holds[--hold_count];
}

unsigned glk_preload_ipc_holds_end(const void *guest, uint64_t id)
{
	unsigned ended = 0;

	for (int i = hold_count; i-- > 0;) {
		if (holds[i].guest != guest || (id && holds[i].id != id))
			continue;
		end_hold(&holds[i]);
		ended++;
		if (id)
			break;
	}
	return ended;
}

struct glk_preload_ipc_hold *glk_preload_ipc_holds_find(const void *guest, uint64_t id)
{
	for (int i = hold_count; i-- > 0;)
		if (holds[i].guest == guest && holds[i].id == id)
			return &holds[i];
	return NULL;
}

bool glk_preload_ipc_holds_room(void)
{
	return hold_count < HOLDS_MAX;
}

void glk_preload_ipc_holds_add(const struct glk_preload_ipc_hold *hold)
{
	holds[hold_count++] = *hold;
}

bool glk_preload_ipc_holds_freed(uint64_t id)
{
	before = freed_bytes;
	newest = id;
	for (int i = 0; i < hold_count; i++) {
		if (holds[i].id != id || holds[i].freed || !holds[i].seat)
			continue;
		holds[i].freed = true;
		freed_bytes += holds[i].size;
	}
	return before > FREED_MOST;
}

bool glk_preload_ipc_holds_ask(bool (*tell)(void *guest, uint64_t id))
{
	uint64_t round = glk_preload_ipc_round_wanted();
	bool all = round != asked_round;

	if (!some_left && before <= FREED_MOST && !all)
		return false;
	asked_round = round;
	some_left = false;
	before = 0;
	for (int i = 0; i < hold_count; i++) {
		if (!holds[i].freed || holds[i].told || (!all && holds[i].id == newest))
			continue;
		if (!tell(holds[i].guest, holds[i].id)) {
			some_left = true;
			continue;
		}
		holds[i].told = true;
		freed_bytes -= holds[i].size;
	}
	return some_left;
}

void glk_preload_ipc_holds_leave(const struct glk_preload_seat *seat)
{
	for (int i = 0; i < hold_count; i++) {
		if (holds[i].seat != seat)
			continue;
		if (holds[i].freed && !holds[i].told)
			freed_bytes -= holds[i].size;
		holds[i].seat = NULL;
		holds[i].freed = false;
	}
}

void glk_preload_ipc_holds_child(void)
{
	hold_count = 0;
	freed_bytes = before = 0;
	some_left = false;
}
