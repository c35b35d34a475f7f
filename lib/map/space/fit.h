/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_FIT_H
#define GLK_MAP_FIT_H

/*
 * Where a request would lie. Lower scores are better, compared from the first member to the
 * last. `late` and `waits` are filled by the caller's function from the slots of the place, which
 * may also veto it by returning false.
 */
#include "map/page/mapping.h"

/* Extents looked at before the best so far is taken; 16 gave the same results as all of them
 * on the recorded jobs. */
#define GLK_FIT_CANDIDATES 16
/* Those always looked at; and all of them where memory is packed, so that a wait less costs little of it. */
#define GLK_FIT_FEW 4

struct glk_fit {
	uint64_t score;	 /* slots to map, and a quarter for each that comes into use */
	bool late;	 /* one of the waits is for all that a stream was given so far */
	uint32_t waits;	 /* streams to wait for, summed over its runs */
	uint32_t stale;	 /* slots whose mapping has to go first */
	uint64_t size;	 /* of the extent it is cut from */
	uint64_t offset; /* in the map */
	uint32_t maps;	 /* slots to map */
	uint32_t from;	 /* free extent; 0: new addresses */
	/* with more waits than the first the place loses anyway, and with more than the second if it is late */
	uint32_t most, most_late;
	bool trims; /* idle pages at its ends go first: see glk_want */
	bool own;   /* for the function: nothing of other streams is in it */
	bool crowd; /* likewise: its waits are for more streams than can be told apart */
};

enum glk_fit_kind {
	GLK_FIT_BLOCK = 0,
	GLK_FIT_NEST, /* for small blocks, a slot: behind it a page of one slot, or none; or an eighth */
	GLK_FIT_WHOLE, /* whole slots for a page of their own: nothing usable but one such page */
};

typedef bool (*glk_fit_fn)(struct glk_map *map, uint32_t first_slot, uint32_t last_slot,
	struct glk_fit *fit, void *arg);

struct glk_want {
	uint64_t size;
	enum glk_fit_kind kind;
	bool trim; /* idle pages at an end that reach beyond the place are not to be used */
	bool holes; /* new addresses only where no free extent will do, or to make the last one longer */
	glk_fit_fn fn; /* NULL: any place will do */
	void *arg;
};

/* The mapping of the idle page of several slots at an end of a place, if it reaches beyond the
 * place; else an empty one, whose first slot lies behind its last. */
static inline struct glk_mapping glk_fit_end(
	const struct glk_map *map, uint32_t slot, uint32_t first, uint32_t last)
{
	struct glk_mapping m = {1, 0};

	if (!glk_bit_get(map->wide, slot) || !glk_bit_get(map->usable, slot))
		return m;
	m = glk_mapping_at(map, slot);
	if ((m.first >= first && m.last <= last) ||
		glk_bits_any(map->busy, m.first, m.last))
		return (struct glk_mapping){1, 0};
	return m;
}

/* 0, or -ENOMEM without a record: there are no free addresses for it in the ranges there are.
 * Pages that are mapped above the high-water mark do not count. */
int glk_fit_search(
	struct glk_map *map, const struct glk_want *want, struct glk_fit *ret_fit);
/* Takes new addresses instead of `fit` where the pages mapped above the mark make them the
 * better place; how many fewer slots are to be mapped there. */
uint32_t glk_fit_ahead(
	struct glk_map *map, const struct glk_want *want, struct glk_fit *fit);

#endif
