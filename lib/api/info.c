/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What this machine has, for a person or a program that wants to know: see glake/info.h.
 * Nodes, and what is in host.c, need no context, so they can be asked when none can be opened.
 * Everything is read at the call; nothing is kept. Past the last index is the end of a walk and
 * leaves the thread's record alone.
 */
#include <glake/info.h>

#include "api/context.h"
#include "base/sized.h"
#include "numa/topology.h"

#include <errno.h>
#include <stdio.h>

/* The driver may not know the node of a GPU, where sysfs still does. */
static void find_node(struct glake_device *device)
{
	struct glk_topology *topology;
	struct glk_pci pci;

	if (device->numa_node >= 0 || !device->pci[0] ||
		glk_pci_read(NULL, device->pci, &pci) ||
		glk_topology_new(NULL, &topology))
		return;
	device->numa_node = glk_topology_of_pci(topology, &pci);
	glk_topology_free(topology);
}

int glake_device_get(struct glake *ctx, int device, struct glake_device *ret_device)
{
	struct glake_device found = {.sz = sizeof(found)};
	struct glk_context *context;
	struct glk_cache *cache;
	int err;

	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	err = context->drv->ops->device_info(context->drv, device, &found);
	if (err)
		return err;
	find_node(&found);
	return glk_sized_out(ret_device, &found, sizeof(found));
}

int glake_driver_get(struct glake *ctx, struct glake_driver *ret_driver)
{
	struct glake_driver driver = {0};
	struct glk_context *context;
	int err;

	err = glk_context_get(ctx, &context);
	if (err)
		return err;
	driver.version = glk_drv_version(context->drv);
	snprintf(driver.name, sizeof(driver.name), "%s", glk_drv_name(context->drv));
	snprintf(driver.fallback, sizeof(driver.fallback), "%s", context->why);
	return glk_sized_out(ret_driver, &driver, sizeof(driver));
}

static void add_distances(struct glake_node *node)
{
	struct glk_topology *t;

	if (glk_topology_new(NULL, &t))
		return;
	for (size_t i = 0; i < glk_topology_count(t) && i < sizeof(node->distance); i++) {
		int distance =
			glk_topology_distance(t, node->id, glk_topology_at(t, i)->id);

		node->distance[i] =
			distance > 0 && distance < 256 ? (uint8_t)distance : 0;
		node->distances++;
	}
	glk_topology_free(t);
}

int glake_node_get(size_t index, struct glake_node *ret_node)
{
	struct glake_node node = {0};
	struct glk_numa_node found;
	struct glk_numa_set nodes;
	enum glk_topology_status status;
	int id;

	status = glk_topology_nodes(NULL, &nodes);
	id = glk_numa_set_next(&nodes, 0);
	for (size_t i = 0; i < index && id >= 0; i++)
		id = glk_numa_set_next(&nodes, (unsigned int)id + 1);
	if (id < 0)
		return -ENOENT;
	glk_topology_read(NULL, status, &nodes, id, &found);
	node.id = id;
	node.memory_valid = found.memory_valid;
	node.memory = found.memory;
	node.free = found.free;
	if (found.cpus_valid)
		glk_numa_set_format(&found.cpus, node.cpus, sizeof(node.cpus));
	add_distances(&node);
	return glk_sized_out(ret_node, &node, sizeof(node));
}

const char *glake_module_state_name(int state)
{
	static const char *const names[] = {"OK", "ABSENT", "NO_NODE", "STALE_NODE",
		"NO_PERMISSION", "MISMATCH", "UNKNOWN"};

	if (state < 0 || (size_t)state >= sizeof(names) / sizeof(*names))
		return "?";
	return names[state];
}
