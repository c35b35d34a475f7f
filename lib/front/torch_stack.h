/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_TORCH_STACK_H
#define GLK_FRONT_TORCH_STACK_H

/*
 * Which lines of Python ask for memory: for the history of requests, and off unless asked for. A stack is
 * the number of its innermost frame in a tree of frames, so that those that begin alike share what they
 * have in common, and one that was seen before costs a look a frame and no memory.
 *
 * Bounds	34 MiB in all, touched as it fills. A stack that finds no room is counted and left out
 * Callers	threads that hold no lock; one that Python does not know has no stack, and is counted. A
 *		thread that has let Python's lock go waits for it
 * Python	code objects of places that were seen are kept until the taking ends, so that their
 *		addresses stay theirs. Texts are copied when a place is first seen: to read them
 *		takes no Python. No lock of ours is held while Python is asked, which may run
 *		anything: what asks for memory inside has no stack
 * Fork		a child takes none; what was taken before stays readable
 * Cost		see glake-python(3)
 */
#include <glake/glake.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLK_TORCH_DEPTH_MAX 256

struct glake_torch_stacks {
	uint64_t taken;	  /* stacks, each time */
	uint64_t without; /* by threads that have none */
	uint64_t dropped; /* for lack of room */
	uint64_t places, nodes, text_bytes;
};

/*
 * From now on the innermost `depth` frames are taken of who asks for memory, and what was taken before
 * is forgotten; more than GLK_TORCH_DEPTH_MAX are as many. 0 ends that: stacks that were taken stay, and
 * it waits for threads that take one, as is right when Python ends; all others wait for a second at most.
 * Less than 0 forgets them as well. By a thread of Python, with or without its lock. 0; -ENOENT: no
 * Python of 3.9 or later runs in this process; -EOPNOTSUPP: this thread is unknown to it, it has more
 * interpreters than the main one, or it ends; -EBUSY: another thread is at it; -ENOMEM.
 */
GLAKE_EXPORT int glake_torch_stacks(int depth);
GLAKE_EXPORT void glake_torch_stacks_get(struct glake_torch_stacks *ret_stacks);
/*
 * The frames of a stack, innermost first, each its line in decimals, its function and its file, with a
 * zero behind each of the three. Bytes of all of it; it is written if it fits. 0: there is no such
 * stack, or no more.
 */
GLAKE_EXPORT size_t glake_torch_stack_text(uint64_t stack, char *ret_text, size_t room);

bool glk_torch_stacks_on(void);
/* That of this thread; 0: none. */
uint64_t glk_torch_stack_take(void);

#endif
