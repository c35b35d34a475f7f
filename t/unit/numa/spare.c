/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the process may take: the machine, groups of both versions, containers, nothing known. */
#include "unit/numa/tree.h"

#include "numa/topology.h"

#define MIB(n) ((int64_t)(n) << 20)

static struct tree tree;

static void spares(int64_t bytes, const char *what)
{
	is_int((int64_t)glk_numa_spare(&tree.root), bytes, what);
}

static void limit(int64_t bytes, const char *what)
{
	is_int((int64_t)glk_numa_group_limit(&tree.root), bytes, what);
}

static void unified(void)
{
	tree_set(&tree, "proc/self/cgroup", "0::/job/step\n");
	spares(MIB(1000), "groups that are not there");
	tree_set(&tree, "sys/fs/cgroup/job/step/memory.max", "max\n");
	tree_set(&tree, "sys/fs/cgroup/job/step/memory.current", "1048576\n");
	spares(MIB(1000), "a group without a limit");
	limit(-1, "which has none to tell");
	tree_set(&tree, "sys/fs/cgroup/job/memory.max", "734003200\n");
	spares(MIB(700), "the limit of the one above");
	tree_set(&tree, "sys/fs/cgroup/job/memory.current", "209715200\n");
	spares(MIB(500), "less what is used");
	tree_set(&tree, "sys/fs/cgroup/job/memory.stat",
		"anon 7\ninactive_file 104857600\nactive_file 9\n");
	spares(MIB(600), "but for page cache");
	tree_set(&tree, "sys/fs/cgroup/job/step/memory.max", "52428800\n");
	spares(MIB(49), "the least of them");
	tree_set(&tree, "sys/fs/cgroup/job/step/memory.current", "62914560\n");
	spares(0, "one that is over its limit");
	limit(MIB(50), "the least limit of all");
	tree_remove(&tree, "sys/fs/cgroup");
	tree_set(&tree, "sys/fs/cgroup/memory.max", "104857600\n");
	spares(MIB(100), "in a container that sees its own group at the top");
	tree_remove(&tree, "sys/fs/cgroup");
}

static void legacy(void)
{
	tree_set(&tree, "proc/self/cgroup",
		"9:name=systemd:/\n4:cpu,memory:/pod/one\n1:cpuset:/\n0::/\n");
	tree_set(&tree, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "314572800\n");
	tree_set(&tree, "sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "104857600\n");
	tree_set(&tree, "sys/fs/cgroup/memory/pod/memory.stat",
		"inactive_file 5\ntotal_inactive_file 10485760\n");
	spares(MIB(210), "a group of the first version");
	tree_set(&tree, "sys/fs/cgroup/memory/pod/one/memory.limit_in_bytes",
		"9223372036854771712\n");
	spares(MIB(210), "and one without a limit below it");
	limit(MIB(300), "the limit of the other");
	tree_remove(&tree, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes");
	limit(-1, "no limit, as the first version writes it");
	tree_set(&tree, "proc/self/cgroup", "4:cpuset:/pod/one\nnonsense\n");
	spares(MIB(1000), "no group for memory, and what is no line");
}

/* A node whose memory is full of page cache, as every one is that has run for a while. */
static void of_node(const char *meminfo, int64_t bytes, const char *what)
{
	struct glk_numa_node node;
	struct glk_numa_set nodes;
	struct tree two;

	tree_open(&two, "two");
	tree_set(&two, "sys/devices/system/node/node1/meminfo", meminfo);
	glk_topology_read(
		&two.root, glk_topology_nodes(&two.root, &nodes), &nodes, 1, &node);
	is_int((int64_t)glk_numa_usable_of(&node), bytes, what);
	tree_close(&two);
}

static void nodes(void)
{
	of_node("Node 1 MemTotal:  8388608 kB\nNode 1 MemFree:  1048576 kB\n", MIB(768),
		"of a node: what is free, but for what is left to others");
	of_node("Node 1 MemTotal:  8388608 kB\nNode 1 MemFree:  102400 kB\n", 0,
		"little is free");
	of_node("Node 1 MemTotal:  8388608 kB\nNode 1 MemFree:  102400 kB\n"
		"Node 1 Active(file):  2097152 kB\nNode 1 Inactive(file):  4194304 kB\n"
		"Node 1 KReclaimable:  204800 kB\nNode 1 SReclaimable:  204800 kB\n",
		MIB(100 + 4096 + 100 - 256),
		"and there is page cache, and half of the kernel's");
	of_node("Node 1 MemTotal:  8388608 kB\nNode 1 MemFree:  1048576 kB\n"
		"Node 1 Inactive(file):  8388608 kB\n",
		MIB(768), "more of it than there is");
	of_node("Node 1 MemTotal:  8388608 kB\nNode 1 MemFree:  1048576 kB\n"
		"Node 1 Inactive(file):  1024 kB\nNode 1 SReclaimable:  18446744073709551615 kB\n",
		MIB(769), "or that it can count");
	of_node("", 0, "nothing known");
}

int main(void)
{
	tap_plan_later();
	tree_init(&tree);
	is_int((int64_t)glk_numa_spare(&tree.root), -1, "nothing is known");
	limit(-1, "of limits neither");
	tree_set(&tree, "proc/meminfo",
		"MemTotal: 2048000 kB\nMemFree: 1000 kB\nMemAvailable: 1024000 kB\n");
	spares(MIB(1000), "what the machine has left");
	unified();
	legacy();
	nodes();
	tree_close(&tree);
	return tap_done();
}
