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
	tree_close(&tree);
	return tap_done();
}
