/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What only the running kernel can do: bind memory to a node, and say where it lies. libnuma
 * answers whether the calls exist and are allowed here (containers often deny them); where it is
 * not installed nothing is bound. Node masks are plain words of our own, so that nothing is
 * allocated.
 */
#include "numa/topology.h"

#include "base/error.h"
#include "base/late.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <string.h>

#define WORD_BITS (8 * sizeof(unsigned long))

#define LIBNUMA	     "libnuma.so.1"
#define FUNCTIONS(F) F(numa_available) F(numa_node_of_cpu) F(mbind) F(get_mempolicy)

struct functions {
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
};

/* 0; -EOPNOTSUPP with a record. */
static int load(struct functions *ret_numa)
{
#define NAME(name) #name,
	static const char *const names[] = {FUNCTIONS(NAME)};
#undef NAME

	if (glk_late_load(LIBNUMA, names, sizeof(names) / sizeof(*names), ret_numa))
		return -EOPNOTSUPP;
	if (ret_numa->numa_available() >= 0)
		return 0;
	return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"this kernel has no NUMA calls, or they are denied");
}

bool glk_numa_available(void)
{
	struct functions numa;

	return !load(&numa);
}

int glk_numa_cpu_node(int cpu)
{
	int node, saved = errno;
	struct functions numa;

	if (cpu < 0 || load(&numa))
		return GLK_NUMA_UNKNOWN;
	node = numa.numa_node_of_cpu(cpu);
	errno = saved;
	return node < 0 ? GLK_NUMA_UNKNOWN : node;
}

int glk_numa_prefer(void *addr, size_t size, int node)
{
	unsigned long mask[GLK_NUMA_NODES / WORD_BITS] = {0};
	struct functions numa;

	if (!size || node < 0 || node >= GLK_NUMA_NODES)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%zu bytes cannot prefer node %d", size, node);
	if (load(&numa))
		return -EOPNOTSUPP;
	mask[(size_t)node / WORD_BITS] = 1ul << ((size_t)node % WORD_BITS);
	if (!numa.mbind(addr, size, MPOL_PREFERRED, mask, GLK_NUMA_NODES + 1, 0))
		return 0;
	return glk_error_native(-errno, GLAKE_ERROR_INVAL, "mbind", errno,
		"%zu bytes at %p cannot prefer node %d", size, addr, node);
}

int glk_numa_bind(void *addr, size_t size, int node)
{
	unsigned long mask[GLK_NUMA_NODES / WORD_BITS] = {0};
	struct glk_numa_set nodes;
	struct functions numa;
	int native;

	if (!size || node < 0 || node >= GLK_NUMA_NODES)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"cannot bind %zu bytes to node %d", size, node);
	if (load(&numa))
		return !node && glk_topology_nodes(NULL, &nodes) != GLK_TOPOLOGY_OK
			? 0
			: -EOPNOTSUPP;
	mask[(size_t)node / WORD_BITS] = 1ul << ((size_t)node % WORD_BITS);
	/* The kernel reads one bit less than it is told. */
	if (!numa.mbind(addr, size, MPOL_BIND, mask, GLK_NUMA_NODES + 1, 0))
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
	struct functions numa;
	int node;

	if (load(&numa))
		return -EOPNOTSUPP;
	if (numa.get_mempolicy(&node, NULL, 0, (void *)addr, MPOL_F_NODE | MPOL_F_ADDR))
		return glk_error_native(-EFAULT, GLAKE_ERROR_INVAL, "get_mempolicy",
			errno, "no memory at %p", addr);
	*ret_node = node;
	return 0;
}
