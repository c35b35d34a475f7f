/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The bins of a stream: what goes in comes out, last in first, wherever threads put it. */
#include "cache/bin/row.h"
#include "tap.h"

#define NODES 64

static struct glk_idnode nodes[NODES + 1];
static struct glk_bin the_bins[GLK_BINS];
static struct glk_crowd the_crowd;
static struct glk_row the_row;

static struct glk_idnode *link_of(struct glk_idnode *all, uint32_t id)
{
	return &all[id];
}

GLK_ROW_DEFINE(test, struct glk_idnode *, link_of)

static void begin(void)
{
	memset(&the_row, 0, sizeof(the_row));
	memset(the_bins, 0, sizeof(the_bins));
	memset(&the_crowd, 0, sizeof(the_crowd));
	the_row.bin = the_bins;
	for (uint32_t i = 0; i < GLK_BINS; i++)
		glk_store_relaxed(&the_bins[i].key, GLK_BIN_NONE);
}

static void give_crowd(uint32_t i)
{
	glk_store_release(
		&the_bins[i].crowd, &the_crowd); /* pairs with: the acquire in row.h */
}

static bool touched(void)
{
	return glk_load_relaxed(&the_row.touched);
}

/* Pops all blocks of a bin; their number. */
static int take_all(uint32_t i)
{
	int count = 0;

	while (test_pop(&the_row, i, nodes, 0))
		count++;
	return count;
}

static void last_in_first_out(void)
{
	begin();
	is_int(test_pop(&the_row, 5, nodes, 1), 0, "an empty bin");
	is_int(test_pop_once(&the_bins[5].head, nodes), 0, "also at the first attempt");
	for (uint32_t id = 1; id <= 3; id++)
		ok(!test_push(&the_row, 5, nodes, id, 1), "one thread meets nobody");
	for (uint32_t i = 0; i < GLK_BINS; i++) {
		if (i != 5 && test_pop(&the_row, i, nodes, 1))
			ok(false, "bin %u has something", i);
	}
	is_int(test_pop(&the_row, 5, nodes, 2), 3, "the last");
	is_int(test_pop_once(&the_bins[5].head, nodes), 2,
		"the one before, whoever pops");
	ok(test_push_alone(&the_row, &the_bins[5], &nodes[3], 3), "pushed again");
	is_int(test_pop(&the_row, 5, nodes, 1), 3, "out again");
	is_int(test_pop(&the_row, 5, nodes, 1), 1, "the first");
	is_int(test_pop(&the_row, 5, nodes, 1), 0, "and no more");
}

/* A bin at which threads met has a head for each of them. */
static void crowded(void)
{
	uint32_t seen = 0, id, heads = 0;
	uint64_t alone;

	begin();
	test_push(&the_row, 9, nodes, 1, 0);
	give_crowd(9);
	alone = glk_load_relaxed(&the_bins[9].head.head);
	ok(!test_push_alone(&the_row, &the_bins[9], &nodes[2], 2),
		"nobody is alone in a crowd");
	ok(glk_load_relaxed(&the_bins[9].head.head) == alone, "and nothing was pushed");
	for (id = 2; id <= GLK_CROWD_HEADS + 3; id++)
		ok(!test_push(&the_row, 9, nodes, id, id), "to a head of its own");
	for (uint32_t h = 0; h < GLK_CROWD_HEADS; h++)
		heads +=
			(glk_load_relaxed(&the_crowd.at[h].head.head) & GLK_ID_MASK) != 0;
	is_int(heads, GLK_CROWD_HEADS, "all heads have some");
	ok(glk_load_relaxed(&the_bins[9].head.head) == alone,
		"the one from before has its own");

	is_int(test_pop(&the_row, 9, nodes, 3), GLK_CROWD_HEADS + 3,
		"a thread finds its own first, the last of them");
	is_int(test_pop(&the_row, 9, nodes, 3), 3, "then the one before");
	is_int(test_pop(&the_row, 9, nodes, 3), 4, "then that of the next head");
	while ((id = test_pop(&the_row, 9, nodes, 3)))
		seen |= seen >> id & 1 ? UINT32_C(1) << 31 : UINT32_C(1) << id;
	is_int(seen, ((UINT32_C(1) << (GLK_CROWD_HEADS + 3)) - 2) & ~(1u << 3 | 1u << 4),
		"then those of all others, and from before the crowd, each once");

	begin();
	give_crowd(9);
	for (id = 1; id <= 3; id++)
		test_push(&the_row, 9, nodes, id, 6);
	for (id = 3; id; id--)
		is_int(test_pop(&the_row, 9, nodes, 1), id,
			"each head: last in, first out");
}

/* Whatever takes heads for granted must see all of them. */
static void takes(void)
{
	int lost = 0;

	begin();
	for (uint32_t id = 1; id <= 3; id++)
		test_push(&the_row, 511, nodes, id, id);
	is_int(take_all(511), 3, "a bin without a crowd is taken");
	for (uint32_t id = 1; id <= 3; id++)
		test_push(&the_row, 511, nodes, id, id);
	give_crowd(511);
	for (uint32_t id = 4; id <= NODES; id++)
		test_push(&the_row, 511, nodes, id, id * 3);
	is_int(take_all(511), NODES, "one with a crowd, all heads of it");
	is_int(test_pop(&the_row, 511, nodes, 1), 0, "nothing is left");
	is_int(take_all(511), 0, "not even for another");
	for (uint32_t thread = 0; thread < 2 * GLK_CROWD_HEADS; thread++) {
		test_push(&the_row, 511, nodes, 1, thread);
		lost += take_all(511) != 1;
	}
	is_int(lost, 0, "wherever a thread pushes, it is found");
}

/* What says that there may be something to take. */
static void touches(void)
{
	begin();
	ok(!touched() && !glk_row_untouch(&the_row), "nothing was pushed to a new row");
	test_pop(&the_row, 5, nodes, 1);
	ok(!touched(), "a look touches nothing");
	test_push(&the_row, 5, nodes, 1, 1);
	ok(touched(), "a push does");
	test_push(&the_row, 6, nodes, 2, 1);
	ok(touched(), "the next changes nothing");
	ok(glk_row_untouch(&the_row) && !touched(), "who takes all clears it");
	ok(!glk_row_untouch(&the_row), "once");
	is_int(take_all(5) + take_all(6), 2, "and finds them");

	ok(test_push_alone(&the_row, &the_bins[7], &nodes[3], 3) && touched(),
		"a push of one alone touches it again");
	is_int(test_pop(&the_row, 7, nodes, 1), 3, "popped");
	ok(touched(), "over empty bins it is left to the one who takes");
	glk_row_untouch(&the_row);
	give_crowd(8);
	test_push(&the_row, 8, nodes, 4, 4);
	ok(touched(), "so does a push to a crowd");
}

/* Two sizes with the same place lie beside each other; a third has none. */
static void finds(void)
{
	uint64_t same[3], at;
	int found = 0;

	begin();
	for (at = 1; found < 3; at++) {
		if (glk_row_hash(at) == glk_row_hash(17))
			same[found++] = at;
	}
	is_int(glk_row_find(&the_row, 17), GLK_BINS, "no bin for a size");
	glk_store_relaxed(&the_bins[glk_row_hash(17)].key, same[0]);
	glk_store_relaxed(&the_bins[glk_row_hash(17) ^ 1].key, same[1]);
	is_int(glk_row_find(&the_row, same[0]), glk_row_hash(17), "its place");
	is_int(glk_row_find(&the_row, same[1]), glk_row_hash(17) ^ 1, "the place beside");
	is_int(glk_row_find(&the_row, same[2]), GLK_BINS, "no third");
	glk_store_relaxed(&the_bins[glk_row_hash(17)].key, same[0] | GLK_BIN_CROWDED);
	is_int(glk_row_find(&the_row, same[0]), glk_row_hash(17), "with a crowd too");
	ok(glk_bin_grains(&the_bins[glk_row_hash(17)]) == same[0],
		"which is not of its size");
	found = 0;
	for (at = 1; at <= 100000; at++)
		found += glk_row_hash(at) >= GLK_BINS;
	is_int(found, 0, "places are in the row");
	begin();
	for (at = 1; at <= GLK_BINS; at++) {
		if (glk_row_find(&the_row, at) == GLK_BINS)
			glk_store_relaxed(&the_bins[glk_row_hash(at)].key, at);
	}
	found = 0;
	for (at = 1; at <= GLK_BINS; at++)
		found += glk_row_find(&the_row, at) < GLK_BINS;
	ok(found > GLK_BINS / 2, "sizes are spread: %d of %d have a bin", found,
		GLK_BINS);
}

/* Threads that push to one bin do not share a cache line, nor do two bins. */
static void lies_apart(void)
{
	is_int(sizeof(struct glk_bin), 64, "a bin is a cache line");
	is_int(sizeof(the_crowd.at[0]), 64, "so is a head of a crowd");
	is_int(sizeof(struct glk_row) % 64, 0, "a row is some");
}

int main(void)
{
	tap_plan_later();
	last_in_first_out();
	crowded();
	takes();
	touches();
	finds();
	lies_apart();
	return tap_done();
}
