/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_NUMA_TOPOLOGY_H
#define GLK_NUMA_TOPOLOGY_H

/*
 * The face of this folder: the NUMA nodes of the host, which of them is nearest to a GPU, and
 * the binding of host memory to one.
 *
 * Discovery reads sysfs under a root that tests replace. Nothing that is missing makes a call
 * fail: without nodes in sysfs there is one node 0 with all CPUs and all memory, and the
 * status of the topology says that it was made up. What concerns the running machine alone
 * (binding, where an address lies) asks the kernel through libnuma.
 *
 * Threads	any; a topology never changes after it was made
 * Cost		three small files a node; never on the allocation path
 */
#include "numa/sysfs.h"

#define GLK_NUMA_NODES 1024 /* of Linux, CONFIG_NODES_SHIFT <= 10 */

/* Distances as ACPI's SLIT has them. */
#define GLK_NUMA_LOCAL	 10
#define GLK_NUMA_UNKNOWN (-1)

struct glk_numa_node {
	int id;		   /* the kernel's number; numbers may have gaps */
	bool memory_valid; /* memory and free are known */
	bool cpus_valid;
	bool has_memory;	  /* node may serve memory; true if nothing is known */
	uint64_t memory;	  /* bytes */
	uint64_t free;		  /* bytes, when it was read */
	uint64_t cached;	  /* bytes in use that the kernel gives up for others */
	struct glk_numa_set cpus; /* online */
};

/* How much of the truth a topology tells. */
enum glk_topology_status {
	GLK_TOPOLOGY_OK = 0,
	GLK_TOPOLOGY_NO_SYSFS = 1,  /* no /sys: one node was made up from /proc/meminfo */
	GLK_TOPOLOGY_NO_NODES = 2,  /* kernel without NUMA: the same */
	GLK_TOPOLOGY_MALFORMED = 3, /* the list of nodes cannot be read: the same */
};

/* A sentence without full stop. Never NULL. */
const char *glk_topology_status_text(enum glk_topology_status status);

/* The online nodes. Always at least one. */
enum glk_topology_status glk_topology_nodes(
	const struct glk_sysroot *root, struct glk_numa_set *ret_nodes);

/* One node of that set, read now. */
void glk_topology_read(const struct glk_sysroot *root, enum glk_topology_status status,
	const struct glk_numa_set *nodes, int id, struct glk_numa_node *ret_node);

/*
 * All nodes at once, with distances. Gives an object to be ended with glk_topology_free.
 * 0 or -ENOMEM with a record.
 */
struct glk_topology;

int glk_topology_new(const struct glk_sysroot *root, struct glk_topology **ret_topology);
void glk_topology_free(struct glk_topology *topology);

enum glk_topology_status glk_topology_status(const struct glk_topology *topology);

/* Nodes in order of their numbers; index from 0. NULL past the last. */
size_t glk_topology_count(const struct glk_topology *topology);
const struct glk_numa_node *glk_topology_at(
	const struct glk_topology *topology, size_t index);
/* By the kernel's number; NULL when there is no such node. */
const struct glk_numa_node *glk_topology_find(
	const struct glk_topology *topology, int id);

/* GLK_NUMA_LOCAL or more; GLK_NUMA_UNKNOWN when a node or the figure is not known. */
int glk_topology_distance(const struct glk_topology *topology, int from, int to);

/*
 * The node with memory that is nearest to `id`: itself if it has memory, then by distance,
 * then nodes that also have CPUs, then the lowest number. Nodes without CPUs may be a GPU's
 * own memory or slow memory, so they lose ties. An unknown `id`, GLK_NUMA_UNKNOWN among them,
 * has no distances and is answered by the last two rules alone. GLK_NUMA_UNKNOWN only if no
 * node has memory.
 */
int glk_topology_nearest(const struct glk_topology *topology, int id);

/* "0000:3b:00.0" from any case, with 4 to 8 digits of domain or none. 0 or -EINVAL. */
#define GLK_PCI_MAX 16
int glk_pci_parse(const char *text, char *ret_id, size_t size);

/* Where a PCI device hangs. */
struct glk_pci {
	char id[GLK_PCI_MAX]; /* as sysfs spells it */
	int node;	      /* GLK_NUMA_UNKNOWN where the firmware does not say */
	bool cpus_valid;
	struct glk_numa_set cpus; /* its local CPUs */
};

/* 0, -EINVAL (not a bus id), -ENOENT (no such device, or no sysfs). No record. */
int glk_pci_read(const struct glk_sysroot *root, const char *id, struct glk_pci *ret_pci);

/*
 * The port of the host that a PCI device hangs on, as "0000:3a:01.0", whatever switches lie between:
 * devices of one port share its link. A device without one is its own. 0, -EINVAL, -ENOENT (as above,
 * or sysfs does not show it). No record.
 */
int glk_pci_port(
	const struct glk_sysroot *root, const char *id, char *ret_port, size_t size);

/*
 * The node of a PCI device: what the firmware says; else the one node that holds all its
 * local CPUs, if that leaves some CPUs out; else GLK_NUMA_UNKNOWN.
 */
int glk_topology_of_pci(const struct glk_topology *topology, const struct glk_pci *pci);

/* rdma.c: the host has an InfiniBand or RoCE device, as far as the kernel shows it. */
bool glk_rdma_present(const struct glk_sysroot *root);

/* The kernel of this machine has NUMA calls, and we are allowed to make them. */
bool glk_numa_available(void);

/* The node of a CPU of this machine; GLK_NUMA_UNKNOWN. */
int glk_numa_cpu_node(int cpu);

/*
 * Pages of [addr, addr + size) will be taken from this node when they are first touched;
 * those touched already stay where they are. addr is the start of an OS page.
 *
 * 0; -EINVAL (range, no such node); -EOPNOTSUPP (no NUMA calls here; node 0 of a kernel
 * without NUMA is no failure, since all memory is there); -EPERM, -ENOMEM. A record for each.
 */
int glk_numa_bind(void *addr, size_t size, int node);
/* The same as a wish: where the node is full, memory comes from another one. 0; -EINVAL,
 * -EOPNOTSUPP, or what mbind says. */
int glk_numa_prefer(void *addr, size_t size, int node);

/* The node that the OS page at addr lies on; touches it. 0, -EFAULT, -EOPNOTSUPP. */
int glk_numa_where(const void *addr, int *ret_node);

/* spare.c. Bytes of memory of the host that the process may take beside what it has, by what the
 * machine has left and by its control groups; UINT64_MAX where nothing is known. Read now. */
uint64_t glk_numa_spare(const struct glk_sysroot *root);
/* The part of it that the process should take: 256 MiB are left to the rest, since a system that has
 * no memory ends processes. */
uint64_t glk_numa_usable(const struct glk_sysroot *root);
/* The same of a node alone, by its figures: what is free, and page cache that was not used of late. 0
 * where they are not known. */
uint64_t glk_numa_usable_of(const struct glk_numa_node *node);
/* The least limit of memory, bytes, of those control groups; UINT64_MAX if none is known. */
uint64_t glk_numa_group_limit(const struct glk_sysroot *root);

/*
 * limit.c. What the system and the limits of the process let it have of the host, as procfs and
 * sysfs tell it now. GLK_LIMIT_UNKNOWN where they do not, GLK_LIMIT_NONE where there is no limit.
 */
#define GLK_LIMIT_UNKNOWN (-1)
#define GLK_LIMIT_NONE	  INT64_MAX

struct glk_limits {
	int64_t maps;		     /* vm.max_map_count */
	int64_t locked, locked_hard; /* RLIMIT_MEMLOCK, bytes */
	int64_t files, files_hard;   /* RLIMIT_NOFILE */
	int64_t addresses;	     /* RLIMIT_AS, bytes */
	int64_t overcommit;	     /* vm.overcommit_memory: 0, 1, 2 */
	int64_t huge, huge_free;     /* bytes reserved as huge pages of all sizes */
	char transparent[16];	     /* "always", "madvise", "never"; "" if not known */
	char nodes[256]; /* that memory may come from, as "0-1"; "" if not known */
};

void glk_limits_read(const struct glk_sysroot *root, struct glk_limits *ret_limits);

#endif
