/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the machine has, through the public interface, on the software device. */
#include "tap.h"

#include "api/info.h"
#include "numa/topology.h"
#include "unit/api/sound.h"
#include "unit/numa/tree.h"

#include <errno.h>
#include <glake/context.h>
#include <glake/error.h>
#include <glake/info.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

static void nodes(void)
{
	struct glake_node node = {.sz = sizeof(node)};
	struct glk_topology *topology;
	size_t count = 0;
	bool same = true;

	if (glk_topology_new(NULL, &topology))
		tap_bail("no topology");
	while (!glake_node_get(count, &node)) {
		const struct glk_numa_node *found = glk_topology_at(topology, count++);

		same &= found && found->id == node.id && found->memory == node.memory &&
			node.memory_valid == found->memory_valid &&
			node.free <= node.memory &&
			node.distances == glk_topology_count(topology) &&
			node.distance[count - 1] ==
				glk_topology_distance(topology, node.id, node.id);
	}
	is_int((int64_t)count, (int64_t)glk_topology_count(topology), "all nodes");
	ok(same, "as numa/ has them");
	ok(count && node.sz == sizeof(node), "at least one; sz is the caller's");
	is_int(glake_node_get(count, &node), -ENOENT, "none after the last");
	is_int(glake_node_get(SIZE_MAX, &node), -ENOENT, "nor far behind it");
	is_int(glake_node_get(0, NULL), -EINVAL, "nowhere to write");
	glk_topology_free(topology);
}

static void sizes(void)
{
	struct glake_node node;

	memset(&node, 0x5a, sizeof(node));
	node.sz = offsetof(struct glake_node, memory);
	is_int(glake_node_get(0, &node), 0, "an older program's structure");
	ok(node.memory == UINT64_C(0x5a5a5a5a5a5a5a5a), "is not written beyond its end");
	node.sz = 0;
	is_int(glake_node_get(0, &node), -EINVAL, "sz was forgotten");
}

static void modules(void)
{
	struct glake_module module = {.sz = sizeof(module)};

	is_int(glake_module_get(0, &module), 0, "the first module");
	is_str(module.name, "nvidia", "is nvidia");
	ok(module.text[0], "with a sentence");
	is_int(glake_module_get(1, &module), 0, "the second");
	is_str(module.name, "nvidia_uvm", "is nvidia_uvm");
	ok(module.state >= GLAKE_MODULE_OK && module.state <= GLAKE_MODULE_UNKNOWN,
		"a state");
	is_int(glake_module_get(2, &module), -ENOENT, "there is no third");
	is_int(glake_module_get(0, NULL), -EINVAL, "nowhere to write");
	is_str(glake_module_state_name(GLAKE_MODULE_OK), "OK", "the first state");
	is_str(glake_module_state_name(GLAKE_MODULE_UNKNOWN), "UNKNOWN", "the last");
	is_str(glake_module_state_name(GLAKE_MODULE_UNKNOWN + 1), "?", "none");
	is_str(glake_module_state_name(-1), "?", "none below 0");
}

static void host(void)
{
	struct glake_host host = {.sz = sizeof(host)};
	struct rlimit locked;
	char text[64];
	int err;

	is_int(glake_host_get(&host), 0, "the host");
	if (!access("/proc/self/limits", R_OK)) {
		getrlimit(RLIMIT_MEMLOCK, &locked);
		is_int(host.locked,
			locked.rlim_cur == RLIM_INFINITY ? GLAKE_HOST_NO_LIMIT
							 : (int64_t)locked.rlim_cur,
			"the limit that the system tells too");
	} else {
		is_int(host.locked, GLAKE_HOST_UNKNOWN,
			"no limit is known without procfs");
	}
	is_int(host.binding, glk_numa_available(), "binding is as the kernel says");
	host.sz = offsetof(struct glake_host, locked);
	host.locked = 7;
	is_int(glake_host_get(&host), 0, "an older program's structure");
	is_int(host.locked, 7, "is not written beyond its end");
	is_int(glake_host_get(NULL), -EINVAL, "nowhere to write");
	err = glake_parameter_get("uvm_global_oversubscription", text, sizeof(text));
	ok(err == (access("/sys/module/nvidia_uvm", F_OK) ? -ENOENT : 0),
		"a parameter, if nvidia_uvm is loaded");
	is_int(glake_parameter_get("no such", text, sizeof(text)), -EINVAL, "no name");
	is_int(glake_parameter_get("x", NULL, 0), -EINVAL, "nowhere to write");
}

static void devices(void)
{
	static const char *const settings[] = {"soft.gpus=2", "soft.memory=3GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glake_device device = {.sz = sizeof(device)};
	struct glake_driver driver = {.sz = sizeof(driver)};
	struct glake_error error = {.sz = sizeof(error)};
	struct glake *ctx;

	is_int(glake_open(&options, &ctx), 0, "open");
	is_int(glake_device_get(ctx, 1, &device), 0, "the second GPU");
	is_int((int64_t)device.memory, INT64_C(3) << 30, "has the memory it was given");
	ok(device.name[0] && device.uuid[0] && device.granularity,
		"name, uuid, page size");
	ok(device.caps & GLAKE_CAP_VMM, "can map");
	is_int(glake_device_get(ctx, 2, &device), -EINVAL, "no third");
	is_int(glake_device_get(ctx, -1, &device), -EINVAL, "none below 0");
	is_int(glake_device_get(ctx, 0, NULL), -EINVAL, "nowhere to write");
	is_int(glake_driver_get(ctx, &driver), 0, "the driver");
	is_str(driver.name, "soft", "is the software device");
	is_int(driver.version, 0, "which has no version of CUDA");
	is_str(driver.fallback, "", "and was asked for");
	is_int(glake_driver_get(ctx, NULL), -EINVAL, "nowhere to write");
	is_int(sound_close(ctx, NULL), 0, "close");
	is_int(glake_device_get(ctx, 0, &device), -ESTALE, "no GPU of a closed context");
	is_int(glake_driver_get(ctx, &driver), -ESTALE, "nor its driver");
	glake_last_error(&error);
	is_int(error.error_class, GLAKE_ERROR_STALE, "the record says so");
}

/* The node of a GPU of that name, of which the driver says this. */
static int node_of(const struct tree *tree, const char *pci, int told)
{
	struct glake_device device = {.sz = sizeof(device), .numa_node = told};

	snprintf(device.pci, sizeof(device.pci), "%s", pci);
	glk_device_find_node(&tree->root, &device);
	return device.numa_node;
}

static void device_nodes(void)
{
	struct tree tree;

	tree_open(&tree, "two");
	is_int(node_of(&tree, "0000:AF:00.0", -1), 1,
		"sysfs tells where the driver does not");
	is_int(node_of(&tree, "0000:AF:00.0", 0), 0, "what the driver tells stands");
	is_int(node_of(&tree, "0000:00:00.0", -1), -1, "neither knows");
	is_int(node_of(&tree, "", -1), -1, "nor has it a name");
	tree_close(&tree);
}

int main(void)
{
	tap_plan_later();
	nodes();
	sizes();
	modules();
	host();
	devices();
	device_nodes();
	return tap_done();
}
