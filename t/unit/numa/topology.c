/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Nodes, distances and the nearest node on captured and on broken trees. */
#include "unit/numa/tree.h"

#include "base/slab.h"
#include "numa/topology.h"

#define NODES "sys/devices/system/node/"

static struct glk_topology *make(struct tree *tree)
{
	struct glk_topology *topology = NULL;

	if (glk_topology_new(&tree->root, &topology))
		tap_bail("no topology");
	return topology;
}

static const char *cpus(const struct glk_topology *topology, int id)
{
	const struct glk_numa_node *node = glk_topology_find(topology, id);
	static char text[256];

	if (!node || !node->cpus_valid)
		return "?";
	glk_numa_set_format(&node->cpus, text, sizeof(text));
	return text;
}

static void without_numa(void)
{
	const struct glk_numa_node *node;
	struct glk_topology *t;
	struct tree tree;

	tree_open(&tree, "one-no-numa");
	t = make(&tree);
	is_int(glk_topology_status(t), GLK_TOPOLOGY_NO_NODES, "kernel without NUMA");
	is_int((int64_t)glk_topology_count(t), 1, "is one node");
	node = glk_topology_at(t, 0);
	is_int(node->id, 0, "number 0");
	ok(node->memory_valid && node->memory == UINT64_C(8048412) << 10,
		"the machine's memory");
	is_int((int64_t)node->free, INT64_C(5120000) << 10, "of it free");
	is_str(cpus(t, 0), "0,2", "and the CPUs that are online");
	is_int(glk_topology_distance(t, 0, 0), GLK_NUMA_LOCAL, "near to itself");
	is_int(glk_topology_nearest(t, GLK_NUMA_UNKNOWN), 0, "nearest to everything");
	glk_topology_free(t);

	tree_remove(&tree, "sys");
	t = make(&tree);
	is_int(glk_topology_status(t), GLK_TOPOLOGY_NO_SYSFS, "no sysfs");
	ok(glk_topology_at(t, 0)->memory_valid, "memory from procfs");
	is_str(cpus(t, 0), "?", "CPUs are not known");
	glk_topology_free(t);

	tree_remove(&tree, "proc");
	t = make(&tree);
	node = glk_topology_at(t, 0);
	ok(!node->memory_valid && !node->memory && node->has_memory,
		"nothing known: no figures, but a node to use");
	glk_topology_free(t);
	tree_close(&tree);
}

static void two_nodes(void)
{
	struct glk_topology *t;
	struct tree tree;

	tree_open(&tree, "two");
	t = make(&tree);
	is_int(glk_topology_status(t), GLK_TOPOLOGY_OK, "two sockets");
	is_int((int64_t)glk_topology_count(t), 2, "two nodes");
	is_str(cpus(t, 1), "16-31,48-63", "CPUs of node 1");
	is_int((int64_t)glk_topology_find(t, 1)->memory, INT64_C(132087808) << 10,
		"its memory");
	is_int(glk_topology_distance(t, 0, 1), 21, "distance there");
	is_int(glk_topology_distance(t, 1, 1), 10, "and here");
	is_int(glk_topology_distance(t, 0, 2), GLK_NUMA_UNKNOWN, "and to no node");
	is_int(glk_topology_nearest(t, 1), 1, "nearest is itself");
	is_int(glk_topology_nearest(t, GLK_NUMA_UNKNOWN), 0, "of nowhere: the first");
	ok(!glk_topology_at(t, 2) && !glk_topology_find(t, 2), "no third node");
	glk_topology_free(t);
	tree_close(&tree);
}

static void eight_nodes(void)
{
	struct glk_topology *t;
	struct tree tree;

	tree_open(&tree, "eight");
	t = make(&tree);
	is_int((int64_t)glk_topology_count(t), 8, "eight nodes");
	ok(glk_topology_find(t, 4)->has_memory && !glk_topology_find(t, 5)->has_memory,
		"every second has memory");
	ok(glk_topology_find(t, 5)->memory_valid, "that it has none is known");
	is_int(glk_topology_nearest(t, 5), 4, "nearest of 5");
	is_int(glk_topology_nearest(t, 3), 2, "nearest of 3");
	glk_topology_free(t);

	/* Without meminfo the list of nodes with memory decides, without both each may have. */
	tree_remove(&tree, NODES "node5/meminfo");
	t = make(&tree);
	ok(!glk_topology_find(t, 5)->memory_valid && !glk_topology_find(t, 5)->has_memory,
		"has_memory alone");
	glk_topology_free(t);
	tree_remove(&tree, NODES "has_memory");
	t = make(&tree);
	ok(glk_topology_find(t, 5)->has_memory, "nothing tells: it may have memory");
	glk_topology_free(t);
	tree_close(&tree);
}

static void odd_nodes(void)
{
	struct glk_topology *t;
	struct tree tree;

	tree_open(&tree, "sparse");
	t = make(&tree);
	is_int((int64_t)glk_topology_count(t), 4, "four nodes with gaps");
	is_int(glk_topology_at(t, 1)->id, 2, "the second is number 2");
	is_int(glk_topology_at(t, 3)->id, 252, "the last is 252");
	is_str(cpus(t, 252), "", "without CPUs");
	is_int(glk_topology_distance(t, 250, 2), 120,
		"distances follow positions, not numbers");
	is_int(glk_topology_distance(t, 2, 252), 80, "in both directions");
	ok(!glk_topology_find(t, 1), "no node 1");
	is_int(glk_topology_nearest(t, GLK_NUMA_UNKNOWN), 0, "the first with CPUs");
	glk_topology_free(t);
	tree_set(&tree, NODES "node0/meminfo",
		"Node 0 MemTotal: 0 kB\nNode 0 MemFree: 0 kB\n");
	t = make(&tree);
	is_int(glk_topology_nearest(t, GLK_NUMA_UNKNOWN), 2, "and with memory");
	is_int(glk_topology_nearest(t, 0), 2,
		"by distance before CPU-less nodes farther away");
	glk_topology_free(t);
	tree_close(&tree);

	tree_open(&tree, "cpuless");
	t = make(&tree);
	is_int(glk_topology_nearest(t, 0), 1, "of two equally far the one with CPUs");
	is_int(glk_topology_nearest(t, 2), 2, "memory without CPUs is nearest to itself");
	glk_topology_free(t);
	tree_set(&tree, NODES "node1/cpulist", "\n");
	tree_set(&tree, NODES "node2/cpulist", "4-7\n");
	t = make(&tree);
	is_int(glk_topology_nearest(t, 0), 2, "whichever that is");
	glk_topology_free(t);
	tree_close(&tree);

	tree_open(&tree, "h200");
	t = make(&tree);
	is_int((int64_t)glk_topology_count(t), 1, "a guest of one node");
	is_int((int64_t)glk_topology_at(t, 0)->memory, INT64_C(131981020) << 10,
		"has the machine's memory, not what it was given so far");
	glk_topology_free(t);
	tree_remove(&tree, "proc");
	t = make(&tree);
	is_int((int64_t)glk_topology_at(t, 0)->memory, INT64_C(4550128) << 10,
		"and that where nothing else is known");
	glk_topology_free(t);
	tree_close(&tree);

	tree_open(&tree, "offline");
	t = make(&tree);
	is_str(cpus(t, 0), "0-1,3", "CPUs that are off are left out");
	is_str(cpus(t, 1), "4", "on each node");
	glk_topology_free(t);
	tree_close(&tree);
}

/* Puts text into one file of a good tree and looks what becomes of it. */
static void broken(const char *path, const char *text, const char *what, int status,
	int64_t nodes, bool memory, bool has_cpus, int distance)
{
	const struct glk_numa_node *node;
	struct glk_topology *t;
	struct tree tree;

	tree_open(&tree, "two");
	tree_set(&tree, path, text);
	t = make(&tree);
	node = glk_topology_at(t, 0);
	ok(glk_topology_status(t) == (enum glk_topology_status)status &&
			(int64_t)glk_topology_count(t) == nodes &&
			node->memory_valid == memory && node->cpus_valid == has_cpus &&
			glk_topology_distance(t, 0, 1) == distance,
		"%s", what);
	if (!node->memory_valid)
		ok(!node->memory && !node->free, "no figure without knowledge");
	glk_topology_free(t);
	tree_close(&tree);
}

static void broken_content(void)
{
	char huge[GLK_SYSFS_TEXT_MAX + 16];
	const int bad = GLK_TOPOLOGY_MALFORMED, fine = GLK_TOPOLOGY_OK;

	memset(huge, '1', sizeof(huge));
	huge[sizeof(huge) - 1] = 0;
	broken(NODES "online", "", "empty list of nodes", bad, 1, false, true, -1);
	broken(NODES "online", "zero\n", "garbage for it", bad, 1, false, true, -1);
	broken(NODES "online", "0-99999\n", "too many nodes", bad, 1, false, true, -1);
	broken(NODES "online", "-1\n", "a negative node", bad, 1, false, true, -1);
	broken(NODES "online", huge, "a huge list", bad, 1, false, true, -1);
	broken(NODES "online", "0-2", "a node without files", fine, 3, true, true, -1);
	broken(NODES "node0/meminfo", "", "empty meminfo", fine, 2, false, true, 21);
	broken(NODES "node0/meminfo", "Node 0 MemTotal: -4 kB\nNode 0 MemFree: 1 kB\n",
		"negative memory", fine, 2, false, true, 21);
	broken(NODES "node0/meminfo", "Node 0 MemTotal: 4 kB\n", "half a meminfo", fine,
		2, false, true, 21);
	broken(NODES "node0/meminfo", "MemTotal: 4 kB\nMemFree: 5 kB\n",
		"more free than there is", fine, 2, false, true, 21);
	broken(NODES "node0/meminfo",
		"MemTotal: 18446744073709551615 kB\nMemFree: 0 kB\n",
		"memory that overflows", fine, 2, false, true, 21);
	broken(NODES "node0/meminfo", huge, "a huge meminfo", fine, 2, false, true, 21);
	broken(NODES "node0/meminfo", "MemTotal: 8 kB\nMemFree: 4 kB",
		"no newline, no node", fine, 2, true, true, 21);
	broken(NODES "node0/cpulist", "0-", "half a cpulist", fine, 2, true, false, 21);
	broken(NODES "node0/cpulist", huge, "a huge cpulist", fine, 2, true, false, 21);
	broken(NODES "node0/distance", "", "no distances", fine, 2, true, true, -1);
	broken(NODES "node0/distance", "10", "one distance of two", fine, 2, true, true,
		-1);
	broken(NODES "node0/distance", "10 21 30", "three of two", fine, 2, true, true,
		-1);
	broken(NODES "node0/distance", "10 -21", "a negative one", fine, 2, true, true,
		-1);
	broken(NODES "node0/distance", "10 300", "one too large", fine, 2, true, true,
		-1);
	broken(NODES "node0/distance", "10,21", "another separator", fine, 2, true, true,
		-1);
	broken(NODES "node0/distance", "10  21", "two blanks are fine", fine, 2, true,
		true, 21);
}

static void no_memory(void)
{
	struct glk_topology *t = NULL;
	uint64_t before = glk_region_bytes();

	glk_region_fail_after(1);
	is_int(glk_topology_new(NULL, &t), -ENOMEM, "no memory for it");
	glk_region_fail_after(0);
	ok(!t && glk_region_bytes() == before, "leaves nothing");
	glk_topology_free(NULL);
}

int main(void)
{
	uint64_t before;

	tap_plan_later();
	before = glk_region_bytes();
	without_numa();
	two_nodes();
	eight_nodes();
	odd_nodes();
	broken_content();
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "all memory given back");
	no_memory();
	for (int status = 0; status < 4; status++)
		ok(strlen(glk_topology_status_text((enum glk_topology_status)status)) > 5,
			"status %d has a sentence", status);
	return tap_done();
}
