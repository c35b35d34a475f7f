/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The index of the preload's tables, against looking through all that is there. */
#define TAP_NO_LOG
#include "tap.h"

#include "front/preload/index.h"

#define PLACES 400
#define ROUNDS 60000
#define MANY   60000

static struct glk_preload_node nodes[PLACES], many_nodes[MANY];

/* Two indexes that share nodes. */
static struct glk_preload_index trees[2] = {{.nodes = nodes}, {.nodes = nodes}};
static struct {
	int in; /* one more than its index; 0: none */
	uint64_t first, last;
} model[PLACES];

static uint64_t state;

static uint64_t dice(uint64_t sides)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (state >> 33) % sides;
}

static bool stands_before(int a, int b)
{
	return model[a].first < model[b].first ||
		(model[a].first == model[b].first && a < b);
}

/* The first in order of those behind (first, place) that have a number, if one is asked for. */
static int search(int which, uint64_t first, int place, const uint64_t *has)
{
	int found = -1;

	for (int i = 0; i < PLACES; i++) {
		if (model[i].in != which + 1 || model[i].first < first ||
			(model[i].first == first && i <= place))
			continue;
		if (has && (model[i].first > *has || model[i].last < *has))
			continue;
		if (found < 0 || stands_before(i, found))
			found = i;
	}
	return found;
}

static int wrong_answers(int which)
{
	uint64_t first = dice(120), number = dice(130);
	int place = (int)dice(PLACES + 1) - 1, wrong = 0;
	int next = search(which, first, place, NULL);

	wrong += glk_preload_index_next(&trees[which], first, place) != next;
	if (next >= 0 && model[next].first != first)
		next = -1;
	wrong += glk_preload_index_same(&trees[which], first, place) != next;
	wrong += glk_preload_index_over(&trees[which], number) !=
		search(which, 0, -1, &number);
	return wrong;
}

static void storm(void)
{
	int wrong = 0;

	for (int i = 0; i < ROUNDS; i++) {
		int place = (int)dice(dice(2) ? 10 : PLACES), which = (int)dice(2);

		if (model[place].in) {
			glk_preload_index_remove(&trees[model[place].in - 1], place);
			model[place].in = 0;
		} else {
			model[place].first = dice(120);
			model[place].last = model[place].first + dice(dice(4) ? 4 : 60);
			model[place].in = which + 1;
			glk_preload_index_add(&trees[which], place, model[place].first,
				model[place].last);
		}
		wrong += wrong_answers(which);
	}
	is_int(wrong, 0, "the same answers as by looking through all");
}

static void edges(void)
{
	struct glk_preload_index all = {.nodes = many_nodes};

	is_int(glk_preload_index_over(&all, 5), -1, "nothing is in an empty one");
	is_int(glk_preload_index_next(&all, 0, -1), -1, "nor comes next");
	glk_preload_index_add(&all, 0, 0, UINT64_MAX);
	glk_preload_index_add(&all, 1, UINT64_MAX, UINT64_MAX);
	is_int(glk_preload_index_over(&all, UINT64_MAX), 0, "the highest number");
	is_int(glk_preload_index_same(&all, UINT64_MAX, -1), 1, "as the first");
	is_int(glk_preload_index_same(&all, UINT64_MAX, 1), -1, "and no more");
	glk_preload_index_remove(&all, 0);
	is_int(glk_preload_index_over(&all, UINT64_MAX), 1, "without the other");
	glk_preload_index_remove(&all, 1);
	is_int(all.root, 0, "empty again");
}

static int depth(int link)
{
	int low, high;

	if (!link)
		return 0;
	low = depth(many_nodes[link - 1].low);
	high = depth(many_nodes[link - 1].high);
	return 1 + (low > high ? low : high);
}

/* In each of the orders in which programs have their blocks. */
static void stays_flat(void)
{
	struct glk_preload_index all = {.nodes = many_nodes};

	for (int order = 0; order < 4; order++) {
		all.root = 0;
		for (int i = 0; i < MANY; i++) {
			uint64_t key = order == 0 ? (uint64_t)i
				: order == 1	  ? (uint64_t)(MANY - i)
				: order == 2	  ? (uint64_t)i << 21
						  : 7;

			glk_preload_index_add(&all, i, key, key);
		}
		ok(depth(all.root) < 64, "%d entries are %d deep", MANY, depth(all.root));
	}
	for (int i = 0; i < MANY; i++)
		glk_preload_index_remove(&all, i);
	is_int(all.root, 0, "all are out");
}

int main(void)
{
	tap_plan(14);
	edges();
	state = 1;
	storm();
	stays_flat();
	is_int(trees[0].root && trees[1].root, 1, "the storm had entries to find");
	return tap_done();
}
