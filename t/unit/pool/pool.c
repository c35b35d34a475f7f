/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The nodes of a context: how many, which, with what page sizes and budgets, and their end. */
#include "pool/pool.h"
#include "base/conf.h"
#include "unit/fakedrv.h"

#include <errno.h>

#define MIB(n) ((uint64_t)(n) << 20)

static struct fake fake;
static struct glk_conf conf;
static struct glk_pool pool;

static void test_nodes(void)
{
	static const int ids[] = {0, 2, 7};
	struct glk_node *node;

	conf.pool_budget = MIB(100);
	conf.pool_small_page = MIB(4);
	conf.pool_large_page = MIB(32);
	conf.tier_host = MIB(70);
	is_int(glk_pool_init(&pool, &fake.drv, &conf, 4, 3, ids), 0,
		"four GPUs, three with memory of the host");
	node = glk_pool_gpu(&pool, 1);
	ok(node->place.kind == GLK_PLACE_GPU && node->place.id == 1 && node->index == 1,
		"a GPU is known by its number");
	is_int((int64_t)glk_load_relaxed(&node->budget), (int64_t)MIB(100),
		"has the budget");
	ok(node->page_size[GLK_CLASS_SMALL] == MIB(4) &&
			node->page_size[GLK_CLASS_LARGE] == MIB(32),
		"and the page sizes of the configuration");
	ok(node->pool == &pool, "and its pool");
	for (int i = 0; i < 3; i++) {
		node = glk_pool_host(&pool, i);
		ok(node->place.kind == GLK_PLACE_HOST && node->place.id == ids[i] &&
				node->index == 4 + i &&
				node->gpu == glk_pool_gpu(&pool, i),
			"a NUMA node is known by the kernel's number, and its GPU by the node");
	}
	is_int((int64_t)glk_load_relaxed(&node->budget), (int64_t)MIB(70),
		"it has a budget of its own");
	is_int(glk_node_claim(node, MIB(60)), 0, "a part of it that is no page");
	is_int(glk_node_claim(node, MIB(11)), -ENOMEM, "no more than there is");
	is_int((int64_t)glk_load_relaxed(&node->peak), 0,
		"is no peak before it is there");
	glk_node_note_peak(node);
	is_int((int64_t)glk_load_relaxed(&node->peak), (int64_t)MIB(60),
		"and then is one");
	glk_node_unclaim(node, MIB(60));
	is_int((int64_t)glk_load_relaxed(&node->held), 0, "until it is given back");
	glk_pool_fini(&pool);
	conf.pool_budget = conf.tier_host = 0;
	is_int(glk_pool_init(&pool, &fake.drv, &conf, 1, 0, NULL), 0, "a GPU alone");
	ok(glk_load_relaxed(&pool.nodes[0].budget) == UINT64_MAX, "budget 0: none");
	ok(!pool.nodes[0].gpu, "a GPU's memory is its own");
	glk_pool_fini(&pool);
}

static void test_large_page(void)
{
	static const struct {
		const char *what;
		double target;
		uint64_t size;
	} row[] = {{"a target that depends on the time", 0, MIB(16)},
		{"one of 1.02", 1.02, MIB(8)}, {"one above", 1.03, MIB(32)}};

	conf.pool_large_page = 0;
	for (int i = 0; i < 3; i++) {
		conf.policy_target = row[i].target;
		is_int(glk_pool_init(&pool, &fake.drv, &conf, 1, 0, NULL), 0,
			row[i].what);
		is_int((int64_t)pool.nodes[0].page_size[GLK_CLASS_LARGE],
			(int64_t)row[i].size, "  has large pages of its size");
		glk_pool_fini(&pool);
	}
	conf.pool_large_page = MIB(32);
}

static void test_limits(void)
{
	static int ids[GLK_NODES_MAX];
	uint64_t before = glk_region_bytes();

	is_int(glk_pool_init(&pool, &fake.drv, &conf, 64, 64, ids), 0,
		"as many nodes as there may be");
	is_int(glk_pool_host(&pool, 63)->peer->index, GLK_NODES_MAX - 1,
		"the last of them");
	glk_pool_fini(&pool);
	is_int(glk_pool_init(&pool, &fake.drv, &conf, 65, 0, ids), -EINVAL, "one more");
	is_int(fake_class(), GLAKE_ERROR_INVAL, "class of the record");
	has_str(fake_text(), "64 are the most", "which names the limit");
	glk_pool_fini(&pool);
	is_int(glk_pool_init(&pool, &fake.drv, &conf, 2, 3, ids), -EINVAL,
		"memory of the host of a GPU that is not there");
	glk_pool_fini(&pool);
	is_int(glk_pool_init(&pool, &fake.drv, &conf, -1, 1, ids), -EINVAL,
		"less than none");
	is_int(glk_pool_init(&pool, &fake.drv, &conf, 1, -1, ids), -EINVAL,
		"of either kind");
	is_int(glk_pool_init(&pool, &fake.drv, &conf, INT32_MAX, INT32_MAX, ids), -EINVAL,
		"sums do not wrap");
	conf.pool_pages = GLK_ID_MAX;
	is_int(glk_pool_init(&pool, &fake.drv, &conf, 1, 0, NULL), 0,
		"as many descriptors as there may be");
	glk_pool_fini(&pool);
	conf.pool_pages = 100;
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "no table is left");
}

static void test_refused(void)
{
	uint64_t before = glk_region_bytes();
	uint32_t n = 0;
	int err;

	do {
		glk_region_fail_after(++n);
		err = glk_pool_init(&pool, &fake.drv, &conf, 1, 0, NULL);
		glk_region_fail_after(0);
		if (!err)
			break;
		is_int(err, -ENOMEM, "a table is refused");
		is_int(fake_class(), GLAKE_ERROR_NOMEM_HOST, "class of the record");
		is_int((int64_t)glk_region_bytes(), (int64_t)before,
			"the others are gone");
		glk_pool_fini(&pool);
	} while (n < 20);
	ok(!err && n > 3, "nodes, descriptors, links; then it succeeds");
	glk_pool_fini(&pool);
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "no table is left");
}

static void test_end(void)
{
	static const int ids[] = {0};
	const uint64_t sizes[] = {MIB(4), MIB(32), MIB(12)};
	uint32_t page;

	glk_pool_fini(&(struct glk_pool){0});
	ok(true, "the end of what never began");
	is_int(glk_pool_init(&pool, &fake.drv, &conf, 2, 1, ids), 0, "three nodes");
	for (int i = 0; i < 3; i++) {
		for (int size = 0; size < 3; size++) {
			if (glk_node_grow(&pool.nodes[i], sizes[size], &page))
				tap_bail("no page");
			glk_node_put(&pool.nodes[i], page);
		}
	}
	is_int((int64_t)fake.pages, 9, "free pages of every node and class");
	glk_pool_fini(&pool);
	is_int((int64_t)fake.pages, 0, "are released at the end");
	glk_pool_fini(&pool);
	is_int((int64_t)fake.calls[FAKE_RELEASE], 9, "which may come twice");
	is_int((int64_t)fake.broken, 0, "no rule of the driver was broken");
}

int main(void)
{
	tap_plan_later();
	fake_init(&fake);
	glk_conf_init(&conf);
	conf.pool_pages = 100;
	test_nodes();
	test_large_page();
	test_limits();
	test_refused();
	test_end();
	fake_fini(&fake);
	return tap_done();
}
