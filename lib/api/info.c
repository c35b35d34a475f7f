/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What this machine has, for a person or a program that wants to know: see glake/info.h.
 * All but GPUs and the driver needs no context, so it can be asked when none can be opened.
 * Everything is read at the call; nothing is kept. Past the last index is the end of a walk and
 * leaves the thread's record alone. Whether memory may be bound to a node only the running kernel
 * can tell; it answers for a replaced root too.
 */
#include "api/info.h"

#include "api/context.h"
#include "base/error.h"
#include "base/sized.h"
#include "numa/topology.h"
#include "uvm_bridge/uvm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The driver may not know the node of a GPU, where sysfs still does. */
void glk_device_find_node(const struct glk_sysroot *root, struct glake_device *device)
{
	struct glk_topology *topology;
	struct glk_pci pci;

	if (device->numa_node >= 0 || glk_pci_read(root, device->pci, &pci) ||
		glk_topology_new(root, &topology))
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
	glk_device_find_node(NULL, &found);
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

int glk_module_read(
	const struct glk_sysroot *root, size_t index, struct glake_module *ret_module)
{
	struct glake_module module = {.sz = sizeof(module)};
	struct glk_uvm_module found;

	if (index >= GLK_UVM_COUNT)
		return -ENOENT;
	glk_uvm_probe(root, (enum glk_uvm_which)index, &found);
	module.state = found.state;
	snprintf(module.name, sizeof(module.name), "%s", found.name);
	snprintf(module.version, sizeof(module.version), "%s", found.version);
	snprintf(module.flavour, sizeof(module.flavour), "%s", found.flavour);
	snprintf(module.text, sizeof(module.text), "%s", found.text);
	if (found.reboot_pending || !*found.version)
		snprintf(module.disk_version, sizeof(module.disk_version), "%s",
			found.disk_version);
	*ret_module = module;
	return 0;
}

int glake_module_get(size_t index, struct glake_module *ret_module)
{
	struct glake_module module;
	int err = glk_module_read(NULL, index, &module);

	return err ? err : glk_sized_out(ret_module, &module, sizeof(module));
}

int glake_parameter_get(const char *name, char *ret_text, size_t size)
{
	int err = name && ret_text ? glk_uvm_param(NULL, name, ret_text, size) : -EINVAL;

	if (err == -EINVAL)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"no name of a parameter, or nowhere to write its value");
	return err;
}

static int64_t bytes(uint64_t bytes, int64_t none)
{
	return bytes > INT64_MAX ? none : (int64_t)bytes;
}

static void read_limits(const struct glk_sysroot *root, struct glake_host *host)
{
	struct glk_limits limits;

	glk_limits_read(root, &limits);
	host->maps = limits.maps;
	host->locked = limits.locked;
	host->locked_hard = limits.locked_hard;
	host->files = limits.files;
	host->files_hard = limits.files_hard;
	host->addresses = limits.addresses;
	host->overcommit = limits.overcommit;
	host->huge_pages = limits.huge;
	host->huge_pages_free = limits.huge_free;
	snprintf(host->transparent, sizeof(host->transparent), "%s", limits.transparent);
	snprintf(host->nodes, sizeof(host->nodes), "%s", limits.nodes);
	host->memory_limit = bytes(glk_numa_group_limit(root), GLAKE_HOST_NO_LIMIT);
	host->memory_spare = bytes(glk_numa_spare(root), GLAKE_HOST_UNKNOWN);
}

static void read_driver(const struct glk_sysroot *root, struct glake_host *host)
{
	const char *folders =
		glk_sysroot_is_real(root) ? secure_getenv("LD_LIBRARY_PATH") : NULL;
	struct glk_uvm_host found;

	glk_uvm_host_read(root, folders, &found);
	host->gpus = found.gpus;
	host->gpus_bound = found.bound;
	host->gpu_nodes = found.nodes;
	host->gpu_nodes_usable = found.usable;
	host->fabric_channel = found.channel;
	snprintf(host->gpus_other, sizeof(host->gpus_other), "%s", found.other);
	snprintf(host->sandbox, sizeof(host->sandbox), "%s", found.sandbox);
	snprintf(host->libcuda, sizeof(host->libcuda), "%s", found.libcuda);
	snprintf(
		host->libcuda_path, sizeof(host->libcuda_path), "%s", found.libcuda_path);
}

void glk_host_read(const struct glk_sysroot *root, struct glake_host *ret_host)
{
	_Static_assert(GLAKE_HOST_UNKNOWN == GLK_LIMIT_UNKNOWN &&
			GLAKE_HOST_NO_LIMIT == GLK_LIMIT_NONE,
		"limits are handed on as they are");
	_Static_assert(GLAKE_HOST_PEERMEM == GLK_UVM_PEERMEM &&
			GLAKE_HOST_FS == GLK_UVM_FS &&
			GLAKE_HOST_GDRDRV == GLK_UVM_GDRDRV,
		"so are the holders");
	struct glake_host host = {.sz = sizeof(host)};

	read_limits(root, &host);
	read_driver(root, &host);
	host.binding = glk_numa_available();
	host.rdma = glk_rdma_present(root);
	host.holders = glk_uvm_holders(root);
	*ret_host = host;
}

int glake_host_get(struct glake_host *ret_host)
{
	struct glake_host host;

	glk_host_read(NULL, &host);
	return glk_sized_out(ret_host, &host, sizeof(host));
}

const char *glake_module_state_name(int state)
{
	static const char *const names[] = {"OK", "ABSENT", "NO_NODE", "STALE_NODE",
		"NO_PERMISSION", "MISMATCH", "UNKNOWN"};

	if (state < 0 || (size_t)state >= sizeof(names) / sizeof(*names))
		return "?";
	return names[state];
}
