/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_PRELOAD_INDEX_H
#define GLK_FRONT_PRELOAD_INDEX_H

/*
 * Ranges of numbers (addresses of a block, or one id) by their first number and by any number in
 * them, for tables of thousands of entries that are looked up at every call. A range belongs to a
 * place of the caller's table, from 0 on. Ranges may overlap and be equal.
 *
 * Design	a treap (Seidel and Aragon, Randomized Search Trees, Algorithmica 1996) ordered by
 *		first number and place; each node knows the highest number below it. Its chance is a
 *		mix of the place, so it needs neither memory of its own nor a state
 * Memory	an array of nodes, one a place, which the caller has. Indexes may share it when no
 *		place is in two of them at once
 * Cost		about 2 log2 of the entries steps, for each function
 * Callers	one at a time: under the table's lock
 */
#include <stdint.h>

struct glk_preload_node {
	uint64_t first, last,
		most;  /* of the range; the highest `last` of it and below it */
	int low, high; /* one more than the place: 0 is none */
};

struct glk_preload_index {
	struct glk_preload_node *nodes;
	int root; /* as in a node */
};

/* A place that is in none of the indexes of these nodes gets the range from `first` to `last`. */
void glk_preload_index_add(
	struct glk_preload_index *index, int place, uint64_t first, uint64_t last);
/* A place that is in this one leaves it. */
void glk_preload_index_remove(struct glk_preload_index *index, int place);
/* The place whose range has a number, of several the first in order; -1 for none. */
int glk_preload_index_over(const struct glk_preload_index *index, uint64_t number);
/* The next place in order behind `first` and `place`, which need not be there; -1 for none. */
int glk_preload_index_next(
	const struct glk_preload_index *index, uint64_t first, int place);
/* The same among ranges with this very first number. From place -1 on, it is the first one. */
int glk_preload_index_same(
	const struct glk_preload_index *index, uint64_t first, int place);

#endif
