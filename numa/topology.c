/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The nodes of the host as one object that never changes: an array in order of node numbers,
 * which may have gaps, and the square of distances between them by position. Nodes that come
 * or go later (memory hotplug) are seen by making a new one.
 */
#include "numa/topology.h"

#include "base/slab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct glk_topology {
	size_t size; /* of this region */
	size_t count;
	enum glk_topology_status status;
	uint8_t *distance; /* count * count; 0: not known */
	struct glk_numa_node nodes[];
};

/*
 * The file of node i has one figure for each online node, in order. Another number of figures,
 * or one that a SLIT cannot hold, and the row stays unknown.
 */
static void read_distances(
	const struct glk_sysroot *root, struct glk_topology *t, size_t i)
{
	char text[GLK_SYSFS_TEXT_MAX], path[96];
	uint8_t *row = t->distance + i * t->count;
	char *at = text;
	size_t n = 0;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/distance",
		t->nodes[i].id);
	if (glk_sysfs_text(root, path, text, sizeof(text)))
		return;
	for (; *at && n < t->count; n++) {
		char *end;
		long figure = strtol(at, &end, 10);

		if (end == at || figure < GLK_NUMA_LOCAL || figure > UINT8_MAX ||
			(*end && *end != ' '))
			break;
		row[n] = (uint8_t)figure;
		at = end;
	}
	if (*at || n != t->count)
		memset(row, 0, t->count);
}

int glk_topology_new(const struct glk_sysroot *root, struct glk_topology **ret_topology)
{
	enum glk_topology_status status;
	struct glk_topology *t;
	struct glk_numa_set nodes;
	size_t count, size;

	status = glk_topology_nodes(root, &nodes);
	count = glk_numa_set_count(
		&nodes); /* 1 ... GLK_NUMA_NODES: nothing below overflows */
	size = sizeof(*t) + count * sizeof(*t->nodes) + count * count;
	t = glk_region_new(size);
	if (!t)
		return -ENOMEM;
	t->size = size;
	t->status = status;
	t->count = count;
	t->distance = (uint8_t *)&t->nodes[count];
	for (int id = glk_numa_set_next(&nodes, 0), i = 0; id >= 0;
		id = glk_numa_set_next(&nodes, (unsigned int)id + 1), i++)
		glk_topology_read(root, status, &nodes, id, &t->nodes[i]);
	for (size_t i = 0; i < count && status == GLK_TOPOLOGY_OK; i++)
		read_distances(root, t, i);
	*ret_topology = t;
	return 0;
}

void glk_topology_free(struct glk_topology *topology)
{
	if (topology)
		glk_region_free(topology, topology->size);
}

enum glk_topology_status glk_topology_status(const struct glk_topology *topology)
{
	return topology->status;
}

size_t glk_topology_count(const struct glk_topology *topology)
{
	return topology->count;
}

const struct glk_numa_node *glk_topology_at(
	const struct glk_topology *topology, size_t index)
{
	return index < topology->count ? &topology->nodes[index] : NULL;
}

const struct glk_numa_node *glk_topology_find(const struct glk_topology *topology, int id)
{
	for (size_t i = 0; i < topology->count; i++)
		if (topology->nodes[i].id == id)
			return &topology->nodes[i];
	return NULL;
}

int glk_topology_distance(const struct glk_topology *topology, int from, int to)
{
	const struct glk_numa_node *a = glk_topology_find(topology, from);
	const struct glk_numa_node *b = glk_topology_find(topology, to);
	uint8_t distance;

	if (!a || !b)
		return GLK_NUMA_UNKNOWN;
	distance = topology->distance[(size_t)(a - topology->nodes) * topology->count +
		(size_t)(b - topology->nodes)];
	if (distance)
		return distance;
	return a == b ? GLK_NUMA_LOCAL : GLK_NUMA_UNKNOWN;
}

/* Smaller is nearer; an unknown distance is farther than any known one. */
static int rank(
	const struct glk_topology *topology, int from, const struct glk_numa_node *to)
{
	int distance = glk_topology_distance(topology, from, to->id);
	bool cpus = !to->cpus_valid || glk_numa_set_next(&to->cpus, 0) >= 0;

	return (distance == GLK_NUMA_UNKNOWN ? UINT8_MAX + 1 : distance) * 2 + !cpus;
}

int glk_topology_nearest(const struct glk_topology *topology, int id)
{
	const struct glk_numa_node *best = glk_topology_find(topology, id);

	if (best && best->has_memory)
		return id;
	best = NULL;
	for (size_t i = 0; i < topology->count; i++) {
		const struct glk_numa_node *node = &topology->nodes[i];

		if (node->has_memory &&
			(!best || rank(topology, id, node) < rank(topology, id, best)))
			best = node;
	}
	return best ? best->id : GLK_NUMA_UNKNOWN;
}
