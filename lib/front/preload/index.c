/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every function goes down one path of the tree, and mends `most` on its way back. */
#include "front/preload/index.h"

#include <stdbool.h>

/* The last steps of splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t chance(int link)
{
	uint64_t x = (uint64_t)link * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t most_of(const struct glk_preload_node *nodes, int link)
{
	return link ? nodes[link - 1].most : 0;
}

static void mend(struct glk_preload_node *nodes, int link)
{
	struct glk_preload_node *node = &nodes[link - 1];
	uint64_t low = most_of(nodes, node->low), high = most_of(nodes, node->high);

	node->most = node->last;
	if (low > node->most)
		node->most = low;
	if (high > node->most)
		node->most = high;
}

/* Whether a node stands at or before a first number and a place, given as a link. */
static bool is_before(
	const struct glk_preload_node *nodes, int link, uint64_t first, int place)
{
	uint64_t own = nodes[link - 1].first;

	return own < first || (own == first && link <= place);
}

static void split(
	struct glk_preload_node *nodes, int link, int at, int *ret_low, int *ret_high)
{
	struct glk_preload_node *node = &nodes[link - 1];

	if (!link) {
		*ret_low = *ret_high = 0;
		return;
	}
	if (is_before(nodes, link, nodes[at - 1].first, at)) {
		split(nodes, node->high, at, &node->high, ret_high);
		*ret_low = link;
	} else {
		split(nodes, node->low, at, ret_low, &node->low);
		*ret_high = link;
	}
	mend(nodes, link);
}

static int join(struct glk_preload_node *nodes, int low, int high)
{
	int top = !low || (high && chance(high) > chance(low)) ? high : low;

	if (!low || !high)
		return top;
	if (top == low)
		nodes[low - 1].high = join(nodes, nodes[low - 1].high, high);
	else
		nodes[high - 1].low = join(nodes, low, nodes[high - 1].low);
	mend(nodes, top);
	return top;
}

void glk_preload_index_add(
	struct glk_preload_index *index, int place, uint64_t first, uint64_t last)
{
	struct glk_preload_node *nodes = index->nodes, *new = &nodes[place];
	int at = place + 1, *link = &index->root;

	*new = (struct glk_preload_node){.first = first, .last = last};
	while (*link && chance(*link) > chance(at)) {
		struct glk_preload_node *node = &nodes[*link - 1];

		if (last > node->most)
			node->most = last;
		link = is_before(nodes, *link, first, at) ? &node->high : &node->low;
	}
	split(nodes, *link, at, &new->low, &new->high);
	mend(nodes, at);
	*link = at;
}

static void take_out(struct glk_preload_node *nodes, int *link, int at)
{
	struct glk_preload_node *node = &nodes[*link - 1];

	if (*link == at) {
		*link = join(nodes, node->low, node->high);
		return;
	}
	take_out(nodes,
		is_before(nodes, *link, nodes[at - 1].first, at) ? &node->high
								 : &node->low,
		at);
	mend(nodes, *link);
}

void glk_preload_index_remove(struct glk_preload_index *index, int place)
{
	take_out(index->nodes, &index->root, place + 1);
}

int glk_preload_index_over(const struct glk_preload_index *index, uint64_t number)
{
	const struct glk_preload_node *nodes = index->nodes;
	int link = index->root;

	while (link) {
		const struct glk_preload_node *node = &nodes[link - 1];

		/* where one below reaches that far, the first that does has it or none has */
		if (node->low && most_of(nodes, node->low) >= number)
			link = node->low;
		else if (node->first <= number && node->last >= number)
			break;
		else
			link = node->first <= number ? node->high : 0;
	}
	return link - 1;
}

int glk_preload_index_next(
	const struct glk_preload_index *index, uint64_t first, int place)
{
	int link = index->root, found = 0;

	while (link) {
		const struct glk_preload_node *node = &index->nodes[link - 1];

		if (is_before(index->nodes, link, first, place + 1)) {
			link = node->high;
		} else {
			found = link;
			link = node->low;
		}
	}
	return found - 1;
}

int glk_preload_index_same(
	const struct glk_preload_index *index, uint64_t first, int place)
{
	int next = glk_preload_index_next(index, first, place);

	return next >= 0 && index->nodes[next].first == first ? next : -1;
}
