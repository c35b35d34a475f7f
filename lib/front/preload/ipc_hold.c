/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which guest holds which block. The pages of a block that is held serve nobody else, even when the
 * program has freed it: CUDA leaves open what becomes of one that is freed first and closed later, and
 * there are programs that close one only when they meet its address again, as UCX does. So as to
 * have those addresses and pages again, guests are told of blocks that were freed, and let go of
 * them: of all but the one that was freed last when those have more than FREED_MOST bytes together, and
 * of all when somebody finds no memory.
 */
#include "front/preload/index.h"
#include "front/preload/ipc.h"

#define HOLDS_MAX  65536
#define FREED_MOST (UINT64_C(256) << 20)

static struct glk_preload_ipc_hold holds[HOLDS_MAX]; /* all of this under `serving` */
static int hold_count;
static uint64_t freed_bytes; /* of those whose guest was not told so far */
static uint64_t newest;	     /* the block that was freed last */
static uint64_t before;	     /* freed_bytes without that one */
static uint64_t asked_round; /* when all were told of all */
static bool some_left;	     /* that could not be told the last time */

/* By id, of which of these: freed and not told, told, or neither; and by guest and id, mixed. */
static struct glk_preload_node id_nodes[HOLDS_MAX], guest_nodes[HOLDS_MAX];
static struct glk_preload_index by_id = {.nodes = id_nodes};
static struct glk_preload_index freed_by_id = {.nodes = id_nodes};
static struct glk_preload_index told_by_id = {.nodes = id_nodes};
static struct glk_preload_index by_guest = {.nodes = guest_nodes};

static uint64_t mix(const void *guest, uint64_t id)
{
	return (uintptr_t)guest * UINT64_C(0x9e3779b97f4a7c15) + id;
}

static struct glk_preload_index *index_of(const struct glk_preload_ipc_hold *hold)
{
	if (!hold->freed)
		return &by_id;
	return hold->told ? &told_by_id : &freed_by_id;
}

static void enter(int at)
{
	uint64_t key = mix(holds[at].guest, holds[at].id);

	glk_preload_index_add(index_of(&holds[at]), at, holds[at].id, holds[at].id);
	glk_preload_index_add(&by_guest, at, key, key);
}

static void leave(int at)
{
	glk_preload_index_remove(index_of(&holds[at]), at);
	glk_preload_index_remove(&by_guest, at);
}

static void set(int at, bool freed, bool told)
{
	leave(at);
	holds[at].freed = freed;
	holds[at].told = told;
	enter(at);
}

/* The place of a hold, or -1. */
static int find(const void *guest, uint64_t id)
{
	uint64_t key = mix(guest, id);
	int at = glk_preload_index_same(&by_guest, key, -1);

	while (at >= 0 && (holds[at].guest != guest || holds[at].id != id))
		at = glk_preload_index_same(&by_guest, key, at);
	return at;
}

/* The last one takes its place. */
static void end_hold(int at)
{
	struct glk_preload_ipc_hold *hold = &holds[at];

	if (hold->freed && !hold->told)
		freed_bytes -= hold->size;
	if (hold->seat && glk_preload_in(hold->seat)) {
		glk_library.export_end(hold->seat->glake, hold->ptr);
		glk_preload_out(hold->seat);
		glk_preload_inside = true; /* as the thread has it */
	}
	leave(at);
	if (at != --hold_count) {
		leave(hold_count);
		holds[at] = holds[hold_count];
		enter(at);
	}
}

unsigned glk_preload_ipc_holds_end(const void *guest, uint64_t id)
{
	unsigned ended = 0;
	int at = id ? find(guest, id) : -1;

	if (at >= 0) {
		end_hold(at);
		return 1;
	}
	for (int i = id ? 0 : hold_count; i-- > 0;) {
		if (holds[i].guest != guest)
			continue;
		end_hold(i);
		ended++;
	}
	return ended;
}

struct glk_preload_ipc_hold *glk_preload_ipc_holds_find(const void *guest, uint64_t id)
{
	int at = find(guest, id);

	return at < 0 ? NULL : &holds[at];
}

bool glk_preload_ipc_holds_room(void)
{
	return hold_count < HOLDS_MAX;
}

void glk_preload_ipc_holds_add(const struct glk_preload_ipc_hold *hold)
{
	holds[hold_count] = *hold;
	enter(hold_count++);
}

bool glk_preload_ipc_holds_freed(uint64_t id)
{
	int at = glk_preload_index_same(&by_id, id, -1);

	before = freed_bytes;
	newest = id;
	for (; at >= 0; at = glk_preload_index_same(&by_id, id, at)) {
		if (!holds[at].seat)
			continue;
		set(at, true, false);
		freed_bytes += holds[at].size;
	}
	return before > FREED_MOST;
}

bool glk_preload_ipc_holds_ask(uint64_t round, bool (*tell)(void *guest, uint64_t id))
{
	uint64_t id = 0;
	bool all = round != asked_round;
	int at = -1;

	if (!some_left && before <= FREED_MOST && !all)
		return false;
	asked_round = round;
	some_left = false;
	before = 0;
	while ((at = glk_preload_index_next(&freed_by_id, id, at)) >= 0) {
		id = holds[at].id;
		if (!all && id == newest)
			continue;
		if (!tell(holds[at].guest, id)) {
			some_left = true;
			continue;
		}
		set(at, true, true);
		freed_bytes -= holds[at].size;
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
		set(i, false, false);
	}
}

void glk_preload_ipc_holds_child(void)
{
	hold_count = 0;
	by_id.root = freed_by_id.root = told_by_id.root = by_guest.root = 0;
	freed_bytes = before = 0;
	some_left = false;
}
