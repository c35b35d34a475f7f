/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_HINT_H
#define GLK_MOVE_HINT_H

/*
 * Hints that a block will be wanted: a heap of those that wait, by deadline, then priority, then age;
 * a table of all by address; and a list of those whose copies are under way, in the order of the
 * stream that carries them. prefetch.c carries them out.
 *
 * Life of a hint
 *
 *	QUEUED		in the heap
 *	HELD		the program is fetching its block: it is QUEUED again if that fails
 *	BEGUN		its block is about to be had
 *	COPYING		its copy is queued
 *	LANDED		the copy has finished, and the program has not asked for the block yet
 *
 * All under the lock of the GPU. Nothing blocks, allocates or calls the driver.
 */
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

/* Of a GPU. */
#define GLK_HINTS     16384
#define GLK_HINT_ROWS 4096
/* The deadline of one that has none. */
#define GLK_HINT_NEVER INT64_MAX

enum glk_hint_state {
	GLK_HINT_FREE = 0,
	GLK_HINT_QUEUED,
	GLK_HINT_HELD,
	GLK_HINT_BEGUN,
	GLK_HINT_COPYING,
	GLK_HINT_LANDED,
};

struct glk_hint {
	uint64_t addr, bytes; /* asked for */
	uint64_t ticket;      /* 0: nobody has one */
	uint64_t serial;
	int64_t deadline, ended; /* ns */
	int priority;
	uint8_t state;
	bool dropped;	    /* what is under way for it is of no use any more */
	bool fetched;	    /* the program has asked for the block */
	bool cold;	    /* the block is a cold one by the hint alone */
	bool judged;	    /* whether it was early or late was told */
	uint32_t on;	    /* the stream that is to use the block */
	uint32_t at;	    /* place in the heap, from 1; 0: not there */
	uint32_t chain;	    /* of its row, or of those that are free */
	uint32_t behind;    /* under way */
	struct glk_use use; /* of the copy */
};

struct glk_hints {
	uint32_t queued; /* poked: see atomic.h */
	uint32_t used, free;
	uint32_t first, last; /* under way */
	uint64_t flying;      /* bytes of them */
	uint64_t serial;
	uint64_t refused; /* bytes held when there was no memory for one; 0: there was */
	bool busy;	  /* one is BEGUN */
	uint32_t row[GLK_HINT_ROWS];
	uint32_t heap[GLK_HINTS + 1];
	struct glk_hint hint[GLK_HINTS + 1];
};

/* A hint in the table, in no state yet; NULL: there are GLK_HINTS. */
struct glk_hint *glk_hint_new(struct glk_hints *hints, uint64_t addr);
/* The one for an address; NULL: there is none. */
struct glk_hint *glk_hint_find(struct glk_hints *hints, uint64_t addr);
/* It is not found any more. */
void glk_hint_hide(struct glk_hints *hints, struct glk_hint *h);
/* Into the heap, QUEUED, and out of it. */
void glk_hint_queue(struct glk_hints *hints, struct glk_hint *h);
void glk_hint_unqueue(struct glk_hints *hints, struct glk_hint *h);
/* The next one; NULL: none waits. */
struct glk_hint *glk_hint_next(struct glk_hints *hints);
/* Its copy is queued, behind those of others. */
void glk_hint_fly(struct glk_hints *hints, struct glk_hint *h);
/* The oldest of those; NULL: none is under way. It is LANDED, and under way no longer. */
struct glk_hint *glk_hint_flying(struct glk_hints *hints);
void glk_hint_land(struct glk_hints *hints);
/* It is nobody's. Not under way, nor in the heap. */
void glk_hint_end(struct glk_hints *hints, struct glk_hint *h);

#endif
