/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What glakectl doctor makes of machines of all kinds; its checks are looked at by their names.
 */
#include "unit/tool/machine.h"

static void all_well(struct tree *tree)
{
	look(tree);
	judge();
	has_problems(0, 0);
	is("driver", DOCTOR_OK, "CUDA driver API 13.0, 1 GPU", "");
	is("driver.bus", DOCTOR_OK, "1 of NVIDIA", "");
	is("module.nvidia", DOCTOR_OK, "580.159.04, open, loaded", "");
	is("module.nvidia_uvm", DOCTOR_OK, "580.159.04", "");
	is("module.tools", DOCTOR_OK, "interface D", "");
	is("driver.nodes", DOCTOR_OK, "1, all of them", "");
	is("driver.libcuda", DOCTOR_OK, "580.159.04, /usr/lib64", "");
	is("parameters", DOCTOR_OK, "none hurts", "");
	is("gpu0.memory", DOCTOR_OK, "NVIDIA H200, 140 GiB, 139 GiB free", "");
	is("limit.files", DOCTOR_OK, "1024", "");
	none("driver.sandbox");
	none("driver.visible");
}

/* Of use to who asks what managed memory does: never more than a note. */
static void tools(struct tree *tree)
{
	tree_set(tree, "dev/nvidia-uvm-tools", "c 238 1 --");
	look(tree);
	judge();
	is("module.tools", DOCTOR_NOTE, "may not read", "right to the node");
	tree_remove(tree, "dev/nvidia-uvm-tools");
	look(tree);
	judge();
	is("module.tools", DOCTOR_NOTE, "is missing", "nvidia-modprobe -u -c 0");
	tree_set(tree, ".dockerenv", "");
	look(tree);
	judge();
	is("module.tools", DOCTOR_NOTE, "is missing", "--gpus all");
	tree_set(tree, "sys/module/nvidia/version", "510.39.01\n");
	tree_set(tree, "sys/module/nvidia_uvm/version", "510.39.01\n");
	look(tree);
	judge();
	is("module.tools", DOCTOR_NOTE, "510.39.01 are not known", "newer glake");
	tree_remove(tree, "dev/nvidia-uvm");
	look(tree);
	judge();
	none("module.tools");
}

static void no_module(struct tree *tree)
{
	tree_remove(tree, "sys/module/nvidia");
	tree_remove(tree, "sys/module/nvidia_uvm");
	tree_set(tree, "proc/devices", "Character devices:\n  1 mem\n");
	tree_remove(tree, "sys/bus/pci/devices/0000:00:06.0/driver");
	look(tree);
	without_cuda("the driver finds no GPU");
	judge();
	is("driver", DOCTOR_PROBLEM, "no GPU is used: the driver finds no GPU", "below");
	is("driver.bus", DOCTOR_PROBLEM, "driven by nothing", "modprobe nvidia");
	is("module.nvidia", DOCTOR_PROBLEM, "not loaded", "install NVIDIA's driver");
	is("module.nvidia_uvm", DOCTOR_PROBLEM, "not loaded", "modprobe nvidia_uvm");
	none("driver.nodes");
	tree_set(tree, ".dockerenv", "");
	look(tree);
	without_cuda("nothing");
	judge();
	is("module.nvidia", DOCTOR_PROBLEM, "not loaded", "on the host: modprobe nvidia");
	/* CUDA works all the same: what is seen here is not all there is */
	look(tree);
	judge();
	has_problems(0, 3);
	is("module.nvidia", DOCTOR_NOTE, "not loaded", "modprobe");
	/* the software device needs none of it */
	look(tree);
	facts.soft = facts.soft_wanted = true;
	judge();
	is("driver", DOCTOR_NOTE, "software device", "--driver cuda");
	is("module.nvidia", DOCTOR_NOTE, "not loaded", "modprobe");
	is_int((int64_t)doctor_count(&doctor, DOCTOR_PROBLEM), 0, "and nothing is wrong");
}

/* A machine of nothing but a kernel, and then not even that. */
static void no_driver(struct tree *tree)
{
	tree_remove(tree, "sys/bus/pci/devices/0000:00:06.0");
	tree_set(tree, "sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086\n");
	tree_remove(tree, "usr");
	look(tree);
	without_cuda("libcuda.so.1 cannot be loaded");
	judge();
	is("driver.bus", DOCTOR_PROBLEM, "no GPU of NVIDIA", "--driver soft");
	is("driver.libcuda", DOCTOR_PROBLEM, "none of the usual",
		"install the libraries");
	tree_remove(tree, "sys");
	tree_remove(tree, "proc");
	tree_remove(tree, "dev");
	look(tree);
	without_cuda("nothing");
	judge();
	is("module.nvidia", DOCTOR_PROBLEM, "neither sysfs nor procfs", "mount /proc");
	none("limit.maps");
	none("limit.files");
	none("memory.transparent");
	none("parameters");
	facts.conf_errors = 1;
	facts.opened = false;
	snprintf(facts.failure, sizeof(facts.failure), "pool.budget is no size");
	judge();
	is("driver", DOCTOR_PROBLEM, "does not open: pool.budget", "configuration first");
}

static void nodes(struct tree *tree)
{
	tree_remove(tree, "dev");
	look(tree);
	without_cuda("the driver finds no GPU");
	judge();
	is("module.nvidia", DOCTOR_PROBLEM, "/dev/nvidiactl is missing",
		"nvidia-modprobe");
	is("driver.nodes", DOCTOR_PROBLEM, "no /dev/nvidia0", "nvidia-modprobe");
	tree_set(tree, "run/.containerenv", "");
	look(tree);
	without_cuda("the driver finds no GPU");
	judge();
	is("module.nvidia_uvm", DOCTOR_PROBLEM, "is missing", "--gpus all");
	is("driver.nodes", DOCTOR_PROBLEM, "no /dev/nvidia0", "--gpus all");
	is("driver.sandbox", DOCTOR_OK, "podman", "");
	tree_set(tree, "dev/nvidiactl", "c 195 255 rw");
	tree_set(tree, "dev/nvidia-uvm", "c 238 0 --");
	tree_set(tree, "dev/nvidia0", "c 195 0 --");
	look(tree);
	without_cuda("the driver finds no GPU");
	judge();
	is("module.nvidia_uvm", DOCTOR_PROBLEM, "may not", "udev");
	is("driver.nodes", DOCTOR_PROBLEM, "1 of 1", "right");
	/* one of two for this user; two of three in this container */
	tree_set(tree, "dev/nvidia-uvm", "c 238 0 rw");
	tree_set(tree, "dev/nvidia1", "c 195 1 rw");
	look(tree);
	judge();
	is("driver.nodes", DOCTOR_NOTE, "1 of 2", "right");
	tree_set(tree, "dev/nvidia0", "c 195 0 rw");
	look(tree);
	facts.host.gpus = facts.host.gpus_bound = 3;
	judge();
	is("driver.nodes", DOCTOR_NOTE, "2 of the machine's 3", "more GPUs");
}

static void versions(struct tree *tree)
{
	tree_set(tree, "proc/driver/nvidia/version",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue\n");
	look(tree);
	judge();
	is("module.nvidia", DOCTOR_OK, "580.159.04, proprietary", "");
	tree_set(tree, "usr/lib64/libcuda.so.590.44.01", "");
	tree_link(tree, "usr/lib64/libcuda.so.1", "libcuda.so.590.44.01");
	look(tree);
	without_cuda("the kernel module and libcuda.so.1 are of different versions");
	judge();
	is("driver.libcuda", DOCTOR_PROBLEM, "version 590.44.01, the module nvidia 580",
		"reboot");
	look(tree);
	judge();
	is("driver.libcuda", DOCTOR_NOTE, "590.44.01", "forward compatibility");
	tree_set(tree, "sys/module/nvidia_uvm/version", "575.57.08\n");
	look(tree);
	without_cuda("nothing");
	judge();
	is("module.nvidia_uvm", DOCTOR_PROBLEM, "575.57.08", "reload both");
	look(tree);
	snprintf(facts.modules[0].disk_version, sizeof(facts.modules[0].disk_version),
		"590.44.01");
	judge();
	is("module.nvidia", DOCTOR_NOTE, "580.159.04", "reboot");
}

static void bus(struct tree *tree)
{
	tree_append(tree, "sys/bus/pci/drivers/nouveau/", "", 0);
	tree_append(tree, "sys/bus/pci/drivers/vfio-pci/", "", 0);
	tree_link(
		tree, "sys/bus/pci/devices/0000:00:06.0/driver", "../../drivers/nouveau");
	look(tree);
	without_cuda("the driver finds no GPU");
	judge();
	is("driver.bus", DOCTOR_PROBLEM, "driven by nouveau", "blacklist nouveau");
	tree_link(tree, "sys/bus/pci/devices/0000:00:06.0/driver",
		"../../drivers/vfio-pci");
	look(tree);
	without_cuda("the driver finds no GPU");
	judge();
	is("driver.bus", DOCTOR_PROBLEM, "1 of 1 GPUs", "unbind them from vfio-pci");
	facts.visible = "";
	judge();
	is("driver.visible", DOCTOR_PROBLEM, "hides all", "unset");
	facts.visible = "0,1";
	judge();
	is("driver.visible", DOCTOR_OK, "0,1", "");
	facts.visible = "0\x1b[2J\n1";
	judge();
	is("driver.visible", DOCTOR_OK, "=0?[2J?1:", "");
	/* where nothing on this machine looks wrong and CUDA does not work all the same */
	tree_link(
		tree, "sys/bus/pci/devices/0000:00:06.0/driver", "../../drivers/nvidia");
	look(tree);
	without_cuda("the system is not ready for CUDA");
	judge();
	has_problems(1, 0);
	is("driver", DOCTOR_PROBLEM, "not ready", "nvidia-smi");
}

static void windows(struct tree *tree)
{
	tree_remove(tree, "sys/module/nvidia");
	tree_remove(tree, "sys/module/nvidia_uvm");
	tree_remove(tree, "sys/bus/pci/devices/0000:00:06.0");
	tree_remove(tree, "usr/lib64");
	tree_set(tree, "proc/devices", "Character devices:\n  1 mem\n");
	tree_set(tree, "dev/dxg", "c 10 125 rw");
	tree_set(tree, "usr/lib/wsl/lib/libcuda.so.1", "");
	look(tree);
	judge();
	has_problems(0, 0);
	is("driver.sandbox", DOCTOR_OK, "wsl", "");
	none("module.nvidia");
	none("driver.bus");
}

static void parameters(struct tree *tree)
{
	static const struct {
		const char *name, *value;
		enum doctor_status status;
	} bad[] = {
		{"uvm_global_oversubscription", "0", DOCTOR_NOTE},
		{"uvm_perf_prefetch_enable", "N", DOCTOR_NOTE},
		{"uvm_page_table_location", "sys", DOCTOR_NOTE},
		{"uvm_enable_builtin_tests", "1", DOCTOR_PROBLEM},
		{"uvm_exp_gpu_cache_sysmem", "1", DOCTOR_PROBLEM},
	};
	char path[128], name[80], advice[96];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(path, sizeof(path), "sys/module/nvidia_uvm/parameters/%s",
			bad[i].name);
		tree_set(tree, path, bad[i].value);
	}
	look(tree);
	judge();
	has_problems(2, 3);
	none("parameters");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(name, sizeof(name), "parameter.%s", bad[i].name);
		snprintf(advice, sizeof(advice), "options nvidia_uvm %s=", bad[i].name);
		is(name, bad[i].status, bad[i].value, advice);
	}
	tree_remove(tree, "sys/module/nvidia_uvm/parameters");
	look(tree);
	judge();
	has_problems(0, 0);
	none("parameters");
}

static void low_limits(struct tree *tree)
{
	tree_set(tree, "proc/sys/vm/max_map_count", "30000\n");
	tree_set(tree, "proc/sys/vm/overcommit_memory", "2\n");
	tree_set(tree, "proc/self/limits",
		"Max open files            256                  524288               files\n"
		"Max locked memory         65536                65536                bytes\n"
		"Max address space         68719476736          unlimited            bytes\n");
	tree_set(tree, "sys/kernel/mm/transparent_hugepage/enabled",
		"always madvise [never]\n");
	tree_set(tree, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "4096\n");
	tree_set(tree, "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
		"4096\n");
	tree_set(tree, "proc/self/cgroup", "0::/\n");
	tree_set(tree, "sys/fs/cgroup/memory.max", "8589934592\n");
	look(tree);
	judge();
	is("limit.maps", DOCTOR_NOTE, "30000", "sysctl");
	is("limit.files", DOCTOR_NOTE, "256", "ulimit -n");
	is("limit.locked", DOCTOR_OK, "64.0 KiB", "");
	is("limit.addresses", DOCTOR_PROBLEM, "64.0 GiB", "ulimit -v");
	is("limit.memory", DOCTOR_NOTE, "8.00 GiB", "raise");
	is("memory.overcommit", DOCTOR_NOTE, "is 2", "overcommit_memory=0");
	is("memory.transparent", DOCTOR_NOTE, "no huge pages", "madvise");
	is("memory.reserved", DOCTOR_NOTE, "8.00 GiB", "nr_hugepages=0");
	tree_set(tree, "proc/sys/vm/max_map_count", "1000\n");
	tree_set(tree, "sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
	tree_set(tree, "sys/fs/cgroup/memory.current", "8589934000\n");
	look(tree);
	judge();
	is("limit.maps", DOCTOR_PROBLEM, "1000", "sysctl");
	is("limit.locked", DOCTOR_NOTE, "network card", "memlock");
	is("limit.memory", DOCTOR_NOTE, "592 B", "end what holds it");
}

static void numa(struct tree *tree)
{
	look(tree);
	facts.node_count = 2;
	facts.nodes[1] = facts.nodes[0];
	facts.host.binding = 0;
	gpu.device.numa_node = 1;
	judge();
	is("numa", DOCTOR_OK, "2 nodes, 252 GiB", "");
	is("numa.binding", DOCTOR_NOTE, "cannot be bound", "libnuma.so.1");
	is("numa.allowed", DOCTOR_NOTE, "node 0 alone", "cpuset");
	snprintf(facts.host.nodes, sizeof(facts.host.nodes), "4,0-1");
	gpu.device.numa_node = -1;
	judge();
	none("numa.allowed");
	is("gpu0.node", DOCTOR_NOTE, "nothing tells", "firmware");
	gpu.device.numa_node = 3;
	facts.host.binding = 1;
	judge();
	is("numa.allowed", DOCTOR_NOTE, "GPU 0 is near node 3", "cpuset");
	is("gpu0.node", DOCTOR_OK, "node 3", "");
	is("numa.binding", DOCTOR_OK, "can be bound", "");
	gpu.device.numa_node = 4;
	facts.nodes[1].memory_valid = 0;
	judge();
	none("numa.allowed");
	is_str(find("numa")->text, "2 nodes", "memory of one is not known");
	facts.node_count = 1;
	facts.host.binding = 0;
	gpu.device.numa_node = -1;
	judge();
	is("numa.binding", DOCTOR_OK, "need not", "");
	is("gpu0.node", DOCTOR_OK, "only NUMA node", "");
}

static void abilities(struct tree *tree)
{
	look(tree);
	gpu.can = 0;
	gpu.device.caps = GLAKE_CAP_VMM | GLAKE_CAP_FD | GLAKE_CAP_FABRIC;
	facts.host.rdma = 1;
	judge();
	is("gpu0.fd", DOCTOR_NOTE, "cannot be given", "newer driver");
	is("gpu0.fabric", DOCTOR_NOTE, "promises", "nvidia-imex");
	is("gpu0.rdma", DOCTOR_NOTE, "cannot be given", "pool.rdma");
	is("gpu0.host_numa", DOCTOR_NOTE, "does not say", "12.9");
	is("rdma", DOCTOR_NOTE, "no way", "nvidia_peermem");
	facts.host.holders = GLAKE_HOST_PEERMEM;
	facts.host.fabric_channel = 0;
	snprintf(facts.export, sizeof(facts.export), "no");
	judge();
	is("gpu0.fd", DOCTOR_NOTE, "cannot", "pool.export=no");
	is("gpu0.fabric", DOCTOR_OK, "pool.export", "");
	is("rdma", DOCTOR_OK, "nvidia_peermem", "");
	is("fabric", DOCTOR_NOTE, "may not", "channel0");
	facts.host.fabric_channel = 1;
	gpu.can = GLAKE_CAN_EXPORT | GLAKE_CAN_FABRIC | GLAKE_CAN_DMABUF;
	gpu.device.caps |= GLAKE_CAP_DMABUF;
	judge();
	is("gpu0.fabric", DOCTOR_OK, "has fabric handles", "");
	is("gpu0.rdma", DOCTOR_OK, "dma-buf", "");
	is("rdma", DOCTOR_OK, "nvidia_peermem, dma-buf", "");
	is("fabric", DOCTOR_OK, "is there", "");
	gpu.device.free = GIB;
	judge();
	is("gpu0.memory", DOCTOR_NOTE, "only 1.00 GiB", "nvidia-smi");
	gpu.err = -ENOMEM;
	snprintf(gpu.failure, sizeof(gpu.failure), "no memory left");
	judge();
	is("gpu0.memory", DOCTOR_PROBLEM, "no memory left", "nvidia-smi");
	none("gpu0.fd");
	gpu.device.caps = 0;
	judge();
	is("gpu0.memory", DOCTOR_PROBLEM, "could not be had", "cannot map");
}

/* More GPUs than there is room for are said to be there. */
static void crowd(struct tree *tree)
{
	static struct doctor_gpu many[256];

	look(tree);
	for (size_t i = 0; i < 256; i++)
		many[i] = gpu;
	facts.gpus = many;
	facts.gpu_count = 256;
	judge();
	is_int((int64_t)doctor.count, DOCTOR_CHECKS, "a full report");
	ok(doctor.left_out, "says that it is");
}

int main(void)
{
	static void (*const bodies[])(struct tree *) = {all_well, tools, no_module,
		no_driver, nodes, versions, bus, windows, parameters, low_limits, numa,
		abilities, crowd};
	struct tree tree;

	tap_plan_later();
	for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
		fit(&tree);
		bodies[i](&tree);
		tree_close(&tree);
	}
	return tap_done();
}
