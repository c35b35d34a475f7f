/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The tree of free extents against a sorted array, and its depth where indices form patterns. */
#include "map/map.h"
#include "seed.h"

#define MOVES  100000
#define MOST   2000
#define FOUND  64
#define MANY   200000
#define DEPTHS 64 /* twice 2 ln n and more for all sizes here */

static struct glk_map map;
static struct glk_tree tree;
static uint32_t order[MOST + 1]; /* in the tree, by size, then offset */
static uint32_t count;

static struct glk_extent *at(uint32_t id)
{
	return glk_extent_at(&map, id);
}

static bool less(uint32_t x, uint32_t y)
{
	if (at(x)->size != at(y)->size)
		return at(x)->size < at(y)->size;
	return at(x)->offset < at(y)->offset;
}

static void model_insert(uint32_t id)
{
	uint32_t i = count++;

	for (; i && less(id, order[i - 1]); i--)
		order[i] = order[i - 1];
	order[i] = id;
}

static void model_remove(uint32_t index)
{
	count--;
	memmove(&order[index], &order[index + 1], (count - index) * sizeof(*order));
}

/* 1 when the first `max` extents of at least `size` bytes are not what the array says. */
static int compare_find(uint64_t size, unsigned max)
{
	uint32_t found[FOUND + 1] = {0}, first = 0;
	unsigned n, want;

	while (first < count && at(order[first])->size < size)
		first++;
	want = count - first < max ? count - first : max;
	found[max] = UINT32_MAX;
	n = glk_tree_find(&map, &tree, size, found, max);
	if (n == want && !memcmp(found, &order[first], n * sizeof(*found)) &&
		found[max] == UINT32_MAX)
		return 0;
	tap_note("at least %" PRIu64 ": %u found, %u wanted", size, n, want);
	return 1;
}

/* Sizes of which many are alike; offsets that all differ. */
static uint32_t make(uint64_t *state)
{
	uint32_t id = glk_slab_get(&map.extents);

	if (!id)
		tap_bail("no descriptor");
	at(id)->offset = (seed_below(state, 1000000) << 16 | id) << 9;
	at(id)->size = (seed_below(state, 4) ? 1 + seed_below(state, 50)
					     : 1 + seed_below(state, 1000000))
		<< 9;
	/* as if left over from a tree that it was in */
	at(id)->tree.left = at(id)->tree.right = id;
	return id;
}

static void test_random(uint64_t *state)
{
	int wrong = 0, largest = 0, absent = 0;
	uint32_t id, before;

	for (int i = 0; i < MOVES; i++) {
		/* the array is rebuilt now and then, from nothing up and down again */
		bool grow = seed_below(state, 100) < (i % 20000 < 10000 ? 60u : 40u);

		if (count < MOST && (grow || !count)) {
			id = make(state);
			glk_tree_insert(&map, &tree, id);
			model_insert(id);
		} else {
			uint32_t index = (uint32_t)seed_below(state, count);

			id = order[index];
			if (count < MOST && index % 4 == 0) {
				model_remove(index);
				index = make(state);
				/* in its very place, unless another of that size lies between */
				if (seed_below(state, 2))
					at(index)->size = at(id)->size;
				glk_tree_replace(&map, &tree, id, index);
				model_insert(index);
				glk_slab_put(&map.extents, id);
				continue;
			}
			glk_tree_remove(&map, &tree, id);
			model_remove(index);
			before = tree.count;
			glk_tree_remove(&map, &tree, id);
			absent += tree.count != before;
			glk_slab_put(&map.extents, id);
		}
		if (i % 16)
			continue;
		wrong += compare_find(seed_below(state, 60) << 9,
			(unsigned)seed_below(state, FOUND + 1));
		largest += glk_tree_largest(&map, &tree) !=
			(count ? at(order[count - 1])->size : 0);
		wrong += tree.count != count;
	}
	is_int(wrong, 0, "finds what the array says, in its order");
	is_int(largest, 0, "the largest is the last of the array");
	is_int(absent, 0, "what is not in the tree is not removed");
	while (count) {
		glk_tree_remove(&map, &tree, order[0]);
		glk_slab_put(&map.extents, order[0]);
		model_remove(0);
	}
	ok(!glk_bits_any(tree.some, 0, GLK_TREE_CLASSES - 1) && !tree.count,
		"an empty tree at the end");
	is_int(glk_tree_find(&map, &tree, 0, &id, 1), 0, "in which nothing is found");
	is_int((int64_t)glk_tree_largest(&map, &tree), 0, "and nothing is largest");
}

static int depth(uint32_t id)
{
	int left, right;

	if (!id)
		return 0;
	left = depth(at(id)->tree.left);
	right = depth(at(id)->tree.right);
	return 1 + (left > right ? left : right);
}

/*
 * Blocks of one size that were given out one after the other, and every `stride`-th of them
 * freed: the indices in the tree form a pattern that a weak hash turns into a chain.
 */
static void test_stride(uint32_t stride)
{
	uint32_t id, found[4], in = 0;
	int deep;

	for (id = stride; id <= MANY; id += stride, in++)
		glk_tree_insert(&map, &tree, id);
	deep = depth(tree.root[glk_tree_class(512)]);
	ok(deep < DEPTHS, "every %u-th freed, %u in all: %d deep", stride, in, deep);
	ok(glk_tree_find(&map, &tree, 512, found, 4) == 4 && found[0] == stride &&
			found[3] == 4 * stride,
		"and the lowest are found");
	for (id = stride; id <= MANY; id += stride)
		glk_tree_remove(&map, &tree, id);
}

static void test_strides(void)
{
	static const uint32_t strides[] = {1, 2, 34, 55, 89, 144, 233, 377, 610, 987,
		1597, 2584, 4181, 64, 256, 1024, 4096};

	for (uint32_t i = 0; i < MANY; i++) {
		uint32_t id = glk_slab_get(&map.extents);

		if (!id)
			tap_bail("no descriptor");
		at(id)->size = 512;
		at(id)->offset = (uint64_t)id << 9;
	}
	for (unsigned i = 0; i < sizeof(strides) / sizeof(*strides); i++)
		test_stride(strides[i]);
}

/* Classes are in the order of sizes, and no more than an eighth apart. */
static void test_classes(void)
{
	uint32_t last = 0, wrong = 0;
	uint64_t first = 0; /* size of the class */

	for (uint64_t size = 512; size <= UINT64_C(1) << 48;
		size += size >> 12 > 512 ? size >> 12 & ~UINT64_C(511) : 512) {
		uint32_t class = glk_tree_class(size);

		wrong += class < last || class > last + 1 || class >= GLK_TREE_CLASSES;
		first = class == last ? first : size;
		wrong += size - first > size / 8;
		last = class;
	}
	is_int(wrong, 0, "classes are in the order of sizes");
	ok(glk_tree_class(UINT64_MAX) < GLK_TREE_CLASSES, "and suffice for all sizes");
}

/* By address alone, whatever their sizes. */
static void test_by_address(uint64_t *state)
{
	struct glk_tree blocks = {.by_address = true};
	uint32_t wrong = 0, id[1000], n = 0;

	for (uint32_t i = 0; i < 1000; i++) {
		uint32_t extent = make(state);

		/* extents do not overlap: one each 2 MiB */
		at(extent)->offset = (uint64_t)extent << 21;
		glk_tree_insert_in(&map, &blocks, 0, extent);
		if (i % 3)
			id[n++] = extent;
		else
			glk_tree_remove_in(&map, &blocks, 0, extent);
	}
	is_int(blocks.count, n, "a tree by address");
	for (uint32_t i = 0; i < n; i++) {
		uint64_t offset = at(id[i])->offset;

		wrong += glk_tree_floor(&map, &blocks, offset) != id[i];
		wrong += glk_tree_floor(&map, &blocks, offset + 4096) != id[i];
		wrong += glk_tree_floor(&map, &blocks, offset - 1) != (i ? id[i - 1] : 0);
	}
	is_int(wrong, 0, "finds the last one at or below an address");
}

int main(void)
{
	uint64_t seed, state;

	tap_plan(6 + 2 * 17 + 2 + 2);
	seed = seed_start();
	state = seed_thread(seed, 0);
	if (glk_slab_init(&map.extents, sizeof(struct glk_extent), MANY))
		tap_bail("no descriptors");
	test_random(&state);
	glk_slab_fini(&map.extents);
	if (glk_slab_init(&map.extents, sizeof(struct glk_extent), MANY))
		tap_bail("no descriptors");
	test_strides();
	test_classes();
	glk_slab_fini(&map.extents);
	if (glk_slab_init(&map.extents, sizeof(struct glk_extent), MANY))
		tap_bail("no descriptors");
	test_by_address(&state);
	glk_slab_fini(&map.extents);
	return tap_done();
}
