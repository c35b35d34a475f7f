/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One NUMA node as /sys/devices/system/node/node<N> describes it, and the set of nodes there
 * is. Every figure has its own "known" bit: a node whose memory cannot be read is still a
 * node. Where the kernel shows no nodes at all, node 0 stands for the machine.
 */
#include "numa/topology.h"

#include <stdio.h>
#include <string.h>

#define NODES "/sys/devices/system/node"
#define CPUS  "/sys/devices/system/cpu"

const char *glk_topology_status_text(enum glk_topology_status status)
{
	switch (status) {
	case GLK_TOPOLOGY_OK:
		return "read from sysfs";
	case GLK_TOPOLOGY_NO_SYSFS:
		return "no /sys here; the host is taken as one node";
	case GLK_TOPOLOGY_NO_NODES:
		return "the kernel has no NUMA support; the host is one node";
	case GLK_TOPOLOGY_MALFORMED:
		return "the list of NUMA nodes cannot be read; the host is taken as one node";
	}
	return "?";
}

enum glk_topology_status glk_topology_nodes(
	const struct glk_sysroot *root, struct glk_numa_set *ret_nodes)
{
	struct glk_numa_set one = {.word = {1}};

	if (!glk_sysfs_list(root, NODES "/online", GLK_NUMA_NODES, ret_nodes) &&
		glk_numa_set_next(ret_nodes, 0) >= 0)
		return GLK_TOPOLOGY_OK;
	*ret_nodes = one;
	if (glk_sysfs_exists(root, NODES))
		return GLK_TOPOLOGY_MALFORMED;
	return glk_sysfs_exists(root, "/sys/devices/system") ? GLK_TOPOLOGY_NO_NODES
							     : GLK_TOPOLOGY_NO_SYSFS;
}

/* Page cache that nobody used of late, and half of what the kernel keeps for speed, of which it can
 * not give all: as it counts MemAvailable, which nodes do not have. */
static uint64_t read_cached(const char *text, uint64_t most)
{
	uint64_t cache = 0, kept = 0;

	if (glk_sysfs_field(text, "Inactive(file):", &cache) || cache > most)
		return 0;
	if (glk_sysfs_field(text, "SReclaimable:", &kept) || kept / 2 > most - cache)
		kept = 0;
	return (cache + kept / 2) * 1024;
}

/* Both figures or none: half of a memory line-up would be misleading. */
static void read_memory(
	const struct glk_sysroot *root, const char *path, struct glk_numa_node *node)
{
	char text[GLK_SYSFS_TEXT_MAX];
	uint64_t total, free;

	if (glk_sysfs_text(root, path, text, sizeof(text)) ||
		glk_sysfs_field(text, "MemTotal:", &total) ||
		glk_sysfs_field(text, "MemFree:", &free))
		return;
	if (free > total || __builtin_mul_overflow(total, 1024u, &total))
		return;
	node->memory = total;
	node->free = free * 1024;
	node->cached = read_cached(text, total / 1024 - free);
	node->memory_valid = true;
	node->has_memory = total > 0;
}

/* The machine as one node. */
static void read_machine(const struct glk_sysroot *root, struct glk_numa_node *node)
{
	read_memory(root, "/proc/meminfo", node);
	node->cpus_valid =
		!glk_sysfs_list(root, CPUS "/online", GLK_NUMA_SET_MAX, &node->cpus) ||
		!glk_sysfs_list(root, CPUS "/present", GLK_NUMA_SET_MAX, &node->cpus);
}

void glk_topology_read(const struct glk_sysroot *root, enum glk_topology_status status,
	const struct glk_numa_set *nodes, int id, struct glk_numa_node *ret_node)
{
	struct glk_numa_set list;
	char path[96];

	*ret_node = (struct glk_numa_node){.id = id, .has_memory = true};
	if (status != GLK_TOPOLOGY_OK) {
		read_machine(root, ret_node);
		return;
	}
	if (!glk_sysfs_list(root, NODES "/has_memory", GLK_NUMA_NODES, &list))
		ret_node->has_memory = glk_numa_set_has(&list, (unsigned int)id);
	snprintf(path, sizeof(path), NODES "/node%d/meminfo", id);
	read_memory(root, path, ret_node);
	/* A guest that gets memory on demand shows in its only node what it was given so far,
	 * 4 of 126 GiB in one with an H200; the machine's figures are those it can count on. */
	if (glk_numa_set_count(nodes) == 1)
		read_memory(root, "/proc/meminfo", ret_node);
	snprintf(path, sizeof(path), NODES "/node%d/cpulist", id);
	ret_node->cpus_valid =
		!glk_sysfs_list(root, path, GLK_NUMA_SET_MAX, &ret_node->cpus);
	/* Kernels list online CPUs here; sandboxes that copy the file may not. */
	if (ret_node->cpus_valid &&
		!glk_sysfs_list(root, CPUS "/online", GLK_NUMA_SET_MAX, &list))
		for (size_t i = 0; i < GLK_NUMA_SET_MAX / 64; i++)
			ret_node->cpus.word[i] &= list.word[i];
}
