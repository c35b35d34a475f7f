/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What only the running kernel can do: bind memory to a node, and say where it lies. libnuma
 * answers whether the calls exist and are allowed here (containers often deny them). Node
 * masks are plain words of our own, so that nothing is allocated.
 */
#include "numa/topology.h"

#include "base/error.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <string.h>

#define WORD_BITS (8 * sizeof(unsigned long))

bool glk_numa_available(void)
{
	return numa_available() >= 0;
}

int glk_numa_cpu_node(int cpu)
{
	int node, saved = errno;

	if (cpu < 0 || !glk_numa_available())
		return GLK_NUMA_UNKNOWN;
	node = numa_node_of_cpu(cpu);
	errno = saved;
	return node < 0 ? GLK_NUMA_UNKNOWN : node;
}

int glk_numa_bind(void *addr, size_t size, int node)
{
	unsigned long mask[GLK_NUMA_NODES / WORD_BITS] = {0};
	struct glk_numa_set nodes;
	int native;

	if (!size || node < 0 || node >= GLK_NUMA_NODES)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"cannot bind %zu bytes to node %d", size, node);
	if (!glk_numa_available()) {
		if (!node && glk_topology_nodes(NULL, &nodes) != GLK_TOPOLOGY_OK)
			return 0;
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"this kernel has no NUMA calls, or they are denied");
	}
	mask[(size_t)node / WORD_BITS] = 1ul << ((size_t)node % WORD_BITS);
	/* The kernel reads one bit less than it is told. */
	if (!mbind(addr, size, MPOL_BIND, mask, GLK_NUMA_NODES + 1, 0))
		return 0;
	native = errno;
	if (native == EPERM)
		return glk_error_native(-EPERM, GLAKE_ERROR_PERM, "mbind", native,
			"binding to node %d is denied", node);
	if (native == ENOMEM)
		return glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "mbind", native,
			"no memory for the policy of node %d", node);
	return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "mbind", native,
		"cannot bind %zu bytes at %p to node %d", size, addr, node);
}

int glk_numa_where(const void *addr, int *ret_node)
{
	int node;

	if (!glk_numa_available())
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"this kernel has no NUMA calls, or they are denied");
	if (get_mempolicy(&node, NULL, 0, (void *)addr, MPOL_F_NODE | MPOL_F_ADDR))
		return glk_error_native(-EFAULT, GLAKE_ERROR_INVAL, "get_mempolicy",
			errno, "no memory at %p", addr);
	*ret_node = node;
	return 0;
}
