/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_MANAGED_H
#define GLK_SOFT_MANAGED_H

/*
 * Managed memory of the software device. The bytes lie in one mapping of the process, which GPUs and
 * the host use alike; what is modelled is where each block of 2 MiB would lie, what has to be moved
 * when somebody touches it, and what is evicted where a GPU is full. All under the device's lock.
 */
#include "soft/state.h"

#define SOFT_MANAGED_BLOCK (UINT64_C(2) << 20)
#define SOFT_MANAGED	   1024u /* pieces at once */

/* In place of a page's number, for race.c. */
#define SOFT_MANAGED_PAGE (UINT32_C(1) << 31)

/* Where a block lies: 0 nowhere yet, else the number of a room and 1. */
struct soft_managed_block {
	struct soft_managed_block *older, *newer; /* on a GPU: by the last touch */
	uint64_t users;		  /* GPUs that were said to use it, a bit each */
	uint8_t lies, best, sent; /* sent: where it was prefetched to last */
};

struct soft_managed_piece {
	uint64_t addr;
	size_t size, count; /* bytes; blocks */
	struct soft_managed_block *blocks;
	uint32_t queued; /* ranges of queued operations that name it */
	int gpu;	 /* it was had for */
};

struct soft_managed_gpu {
	struct soft_managed_block *oldest, *newest;
	struct glk_soft_managed did;
};

struct soft_managed {
	struct soft_managed_piece piece[SOFT_MANAGED];
	uint32_t used; /* pieces that were ever used */
	struct soft_managed_gpu gpu[64];
};

void glk_soft_managed_fini(struct soft *soft);
/* The piece that holds an address, counted from 0; -1: none does. */
int glk_soft_managed_find(const struct soft *soft, uint64_t addr);
/* An operation of a GPU runs. */
void glk_soft_managed_run(struct soft *soft, int device, const struct soft_op *op);
/* A GPU needs room for so many bytes that are not managed: blocks are evicted. */
void glk_soft_managed_yield(struct soft *soft, int device, size_t bytes);
/* 0; -EINVAL and a record where a range begins in a piece and does not end there. */
int glk_soft_managed_whole(
	const struct soft *soft, uint64_t addr, size_t size, const char *call);
/* The same, and -EINVAL for a range that is in none. */
int glk_soft_managed_range(
	const struct soft *soft, uint64_t addr, size_t size, const char *call);
/* Where blocks at a place lie, as struct soft_managed_block has it; the host, wherever, is the node near
 * the first GPU. 0 or -EINVAL and a record. */
int glk_soft_managed_place(
	const struct soft *soft, struct glk_place place, uint8_t *ret_lies);

int glk_soft_managed_alloc(
	struct glk_drv *drv, int device, size_t size, uint64_t *ret_addr);
int glk_soft_managed_free(struct glk_drv *drv, uint64_t addr);
int glk_soft_managed_say(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_say what, struct glk_place place);
int glk_soft_managed_ask(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_ask what, struct glk_place *ret_place);

#endif
