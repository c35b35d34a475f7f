/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_SNAPSHOT_H
#define GLK_TOOL_SNAPSHOT_H

/* Events of a trace as those of PyTorch's allocator, and who asked for blocks. Inside this command. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct pickle;

struct frames_block {
	uint64_t address, stack;
};

/* Blocks whose requester the process knows, and the stacks that were written so far. */
struct frames {
	pid_t pid;
	int room;
	struct frames_block *blocks;
	size_t count;
	struct frames_stack *stacks;
	size_t stack_count;
	int64_t until;
};

/* Those of one GPU, into a list that is open. 0; -ENODATA after a message. */
int snapshot_add_events(struct pickle *pickle, const char *trace, int gpu);

/* snapshot_frames.c: what the process tells; one that tells nothing has no frames. 0, or 1 after a
 * message. */
int frames_read(pid_t pid, struct frames *ret_frames);
void frames_free(struct frames *frames);
/* The list of frames of the block that begins at this address, NULL and 0 being a list of none. */
void frames_add(struct frames *frames, struct pickle *pickle, uint64_t address);

#endif
