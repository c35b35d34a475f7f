/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_POOL_PAGE_H
#define GLK_POOL_PAGE_H

/*
 * The descriptor of a page, one physical handle of the driver. Descriptors are slots of a slab
 * and never unmapped while their pool lives, so a stale index reads an old descriptor, never
 * freed memory. They lie apart from user memory: nothing on the GPU can reach them.
 *
 * The state is one atomic word {state:4, generation:60}; every legal move is one CAS in
 * page.c:
 *
 *	EMPTY -create-> OWNED	FREE -take-> OWNED -put-> FREE
 *	OWNED -retire-> LIMBO -release-> EMPTY (generation + 1)		any -lose-> LOST
 *
 * EMPTY has no memory, FREE lies on a list of its node, OWNED belongs to the map of a GPU,
 * LIMBO waits for its release, LOST is memory the driver refused to take back: never reused.
 * All other fields belong to whoever owns the page and are published by the move that ends
 * the ownership (release; the next owner's move acquires). Size, abilities and node are poked,
 * for readers that find out afterwards whether the page was still the one they meant.
 */
#include "base/atomic.h"
#include "base/idstack.h"
#include "pool/use.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum glk_page_state {
	GLK_PAGE_EMPTY = 0,
	GLK_PAGE_FREE = 1,
	GLK_PAGE_OWNED = 2,
	GLK_PAGE_LIMBO = 3,
	GLK_PAGE_LOST = 4,
};

/* Sizes of pages that are kept apart. */
enum glk_class {
	GLK_CLASS_SMALL = 0,  /* one slot */
	GLK_CLASS_HALF = 1,   /* half of pool.large_page, */
	GLK_CLASS_LARGE = 2,  /* pool.large_page, */
	GLK_CLASS_DOUBLE = 3, /* twice that, */
	GLK_CLASS_HUGE = 4,   /* four times */
	GLK_CLASS_OTHER = 5,  /* any other number of slots: of contiguous blocks */
	GLK_CLASS_COUNT = 6,
};

#define GLK_NO_SLOT UINT32_MAX

struct glk_map;

struct glk_page {
	glk_atomic(uint64_t) word;
	uint64_t handle; /* of the driver */
	uint64_t size;	 /* bytes */
	/* Where it was used last, or is, if it is mapped and of the node of the space: map/page/mapping.h */
	struct glk_map *map;
	struct glk_use use;   /* last use, see glk_page_use() in map/page/mapping.h */
	uint32_t first_alias; /* first slot of the newest mapping, GLK_NO_SLOT if none */
	/* First slot of the mapping it is in use through, GLK_NO_SLOT while idle; kept for
	 * pages with several mappings only. */
	uint32_t in_use;
	/* In the node's list of free pages, or in the list of its owner. */
	struct glk_idnode free_link;
	uint32_t
		mark; /* of the last place it was looked at for, see cache/arena/order.c */
	uint16_t aliases;
	uint16_t
		going; /* mappings that the driver is about to take away, see map/page/mapping.h */
	/* While it is sealed, see map/page/seal.h: mappings that blocks stand on; and what is kept of its contents by
	 * blocks that are suspended, see move/seal.h: 0: none is. */
	uint16_t sealers;
	uint32_t kept_as;
	/* What a broker knows it by, since other processes may stand on it: it goes to the driver, and to nobody's list. 0:
	 * none does. */
	uint64_t common;
	uint8_t class;
	uint8_t node;
	uint8_t able; /* GLK_PAGE_... it was made with */
	/* The driver kept a mapping of it: its memory cannot come back. Nobody has the page: it goes to
	 * the list of its node with the last of `going`. */
	bool kept : 1, left : 1, sealed : 1;
	/* Another process has made it, and its bytes are that one's; they are counted as live there alone, as long as
	 * nothing of it was kept here (move/seal.h). */
	bool foreign : 1, elsewhere : 1;
	glk_atomic(bool) out; /* other processes may have it mapped */
};

static inline enum glk_page_state glk_page_state(const struct glk_page *page)
{
	return (enum glk_page_state)(glk_load_relaxed(&page->word) & 15);
}

static inline uint64_t glk_page_generation(const struct glk_page *page)
{
	return glk_load_relaxed(&page->word) >> 4;
}

/*
 * Makes one legal move. False when the page is not in state `from` or the move is not in the
 * table above; the page is then as it was.
 */
bool glk_page_move(
	struct glk_page *page, enum glk_page_state from, enum glk_page_state to);

const char *glk_page_state_name(enum glk_page_state state);

#endif
