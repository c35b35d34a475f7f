/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The bins of a stream: what goes in comes out, last in first, wherever threads put it. */
#include "cache/row.h"
#include "tap.h"

#define NODES 64

static struct glk_idnode nodes[NODES + 1];
static struct glk_row bins;

static struct glk_idnode *link_of(struct glk_idnode *all, uint32_t id)
{
	return &all[id];
}

GLK_ROW_DEFINE(test, struct glk_idnode *, link_of)

static void begin(void)
{
	memset(&bins, 0, sizeof(bins));
	for (uint32_t i = 0; i < GLK_BINS; i++)
		glk_store_relaxed(&bins.bin[i].key, GLK_BIN_NONE);
}

static bool marked(uint32_t i)
{
	return glk_load_relaxed(&bins.used[i / 64]) >> i % 64 & 1;
}

/* Takes all heads of a bin, the length of their chains. */
static int take_all(uint32_t i)
{
	int count = 0;

	glk_row_unmark(&bins, i);
	for (uint32_t h = 0; h < GLK_BIN_HEADS; h++) {
		uint32_t id = test_take(&bins, i, h);

		for (; id; id = glk_load_relaxed(&nodes[id].next))
			count++;
	}
	return count;
}

static void last_in_first_out(void)
{
	begin();
	is_int(test_pop(&bins, 5, nodes, 1), 0, "an empty bin");
	ok(!marked(5), "has no mark");
	for (uint32_t id = 1; id <= 3; id++)
		test_push(&bins, 5, nodes, id, 1);
	ok(marked(5), "a mark since the first push");
	for (uint32_t i = 0; i < GLK_BINS; i++) {
		if (i != 5 && (marked(i) || test_pop(&bins, i, nodes, 1)))
			ok(false, "bin %u has something", i);
	}
	is_int(test_pop(&bins, 5, nodes, 2), 3, "the last");
	is_int(test_pop(&bins, 5, nodes, 3), 2, "the one before, whoever pops");
	test_push(&bins, 5, nodes, 3, 2);
	is_int(test_pop(&bins, 5, nodes, 1), 3, "pushed again, out again");
	is_int(test_pop(&bins, 5, nodes, 1), 1, "the first");
	is_int(test_pop(&bins, 5, nodes, 1), 0, "and no more");
	ok(marked(5), "a mark over an empty bin is left to the one who takes");
	is_int(glk_load_relaxed(&bins.bin[5].crowded), 0, "one thread is no crowd");
}

/* A bin at which threads met has a head for each of them, in turn. */
static void crowded(void)
{
	uint32_t seen = 0, id;

	begin();
	test_push(&bins, 9, nodes, 1, 0);
	glk_store_relaxed(&bins.bin[9].crowded, 1);
	for (id = 2; id <= 9; id++)
		test_push(&bins, 9, nodes, id, id);
	for (uint32_t h = 0; h < GLK_BIN_HEADS; h++)
		ok(glk_load_relaxed(&bins.bin[9].head[h].head) & GLK_ID_MASK,
			"head %u has some", h);
	is_int(test_pop(&bins, 9, nodes, 7), 7, "a thread finds its own first");
	is_int(test_pop(&bins, 9, nodes, 7), 3, "then what shares its head");
	while ((id = test_pop(&bins, 9, nodes, 7)))
		seen |= UINT32_C(1) << id;
	is_int(seen, 0x3fe & ~(1 << 7 | 1 << 3), "then those of all others, each once");

	/* a block lies in the first head from before the crowd */
	begin();
	test_push(&bins, 9, nodes, 1, 3);
	glk_store_relaxed(&bins.bin[9].crowded, 1);
	is_int(test_pop(&bins, 9, nodes, 3), 1, "what was pushed before is found");
}

static void takes(void)
{
	uint64_t tag;

	begin();
	glk_store_relaxed(&bins.bin[511].crowded, 1);
	for (uint32_t id = 1; id <= NODES; id++)
		test_push(&bins, 511, nodes, id, id * 3);
	is_int(take_all(511), NODES, "everything is taken");
	ok(!marked(511), "the mark is gone");
	is_int(test_pop(&bins, 511, nodes, 1), 0, "nothing is left");
	is_int(take_all(511), 0, "not even for another");
	test_push(&bins, 511, nodes, 4, 1);
	ok(marked(511), "the next push marks it again");
	is_int(take_all(511), 1, "and is taken");

	/* a push that began before the take of an empty head must fail and look again */
	begin();
	tag = glk_load_relaxed(&bins.bin[2].head[0].head);
	test_take(&bins, 2, 0);
	ok(tag != glk_load_relaxed(&bins.bin[2].head[0].head),
		"taking from an empty head is seen by a push under way");
	glk_or_relaxed(&bins.used[0], UINT64_MAX);
	glk_row_unmark(&bins, 63);
	ok(glk_load_relaxed(&bins.used[0]) == UINT64_MAX >> 1, "a mark is one bit");
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
	is_int(glk_row_find(&bins, 17), GLK_BINS, "no bin for a size");
	glk_store_relaxed(&bins.bin[glk_row_hash(17)].key, same[0]);
	glk_store_relaxed(&bins.bin[glk_row_hash(17) ^ 1].key, same[1]);
	is_int(glk_row_find(&bins, same[0]), glk_row_hash(17), "its place");
	is_int(glk_row_find(&bins, same[1]), glk_row_hash(17) ^ 1, "the place beside");
	is_int(glk_row_find(&bins, same[2]), GLK_BINS, "no third");
	found = 0;
	for (at = 1; at <= 100000; at++)
		found += glk_row_hash(at) >= GLK_BINS;
	is_int(found, 0, "places are in the row");
	found = 0;
	for (at = 1; at <= GLK_BINS; at++) {
		if (glk_row_find(&bins, at) == GLK_BINS)
			glk_store_relaxed(&bins.bin[glk_row_hash(at)].key, at);
	}
	for (at = 1; at <= GLK_BINS; at++)
		found += glk_row_find(&bins, at) < GLK_BINS;
	ok(found > GLK_BINS / 2, "sizes are spread: %d of %d have a bin", found,
		GLK_BINS);
}

int main(void)
{
	tap_plan_later();
	last_in_first_out();
	crowded();
	takes();
	finds();
	return tap_done();
}
