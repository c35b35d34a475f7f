/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What lies around the modules: buses, nodes, libraries and sandboxes of several machines. */
#include "unit/numa/tree.h"

#include "uvm_bridge/uvm.h"

#define PCI "sys/bus/pci/devices/"

static struct glk_uvm_host look(struct tree *tree)
{
	struct glk_uvm_host host;

	memset(&host, 0x5a, sizeof(host));
	glk_uvm_host_read(&tree->root, NULL, &host);
	return host;
}

static void device(struct tree *tree, const char *id, const char *vendor,
	const char *class, const char *driver)
{
	char path[128], target[128];

	snprintf(path, sizeof(path), PCI "%s/vendor", id);
	tree_set(tree, path, vendor);
	snprintf(path, sizeof(path), PCI "%s/class", id);
	tree_set(tree, path, class);
	if (!driver)
		return;
	snprintf(path, sizeof(path), "sys/bus/pci/drivers/%s/", driver);
	tree_append(tree, path, "", 0);
	snprintf(path, sizeof(path), PCI "%s/driver", id);
	snprintf(target, sizeof(target), "../../drivers/%s", driver);
	tree_link(tree, path, target);
}

static void bus(struct tree *tree)
{
	struct glk_uvm_host host = look(tree);

	is_int(host.gpus, -1, "no bus");
	is_int(host.bound, -1, "of drivers nothing either");
	device(tree, "0000:00:01.0", "0x8086\n", "0x030000\n", NULL);
	device(tree, "0000:00:02.0", "0x10de\n", "0x040300\n", "snd_hda_intel");
	is_int(look(tree).gpus, 0, "another's GPU, and sound of NVIDIA");
	device(tree, "0000:3b:00.0", "0x10de\n", "0x030200\n", "nvidia");
	device(tree, "0000:3c:00.0", "0x10de\n", "0x030000\n", "vfio-pci");
	device(tree, "0000:3d:00.0", "0x10de\n", "0x030000\n", NULL);
	host = look(tree);
	is_int(host.gpus, 3, "three GPUs");
	is_int(host.bound, 1, "one of them with the driver");
	is_str(host.other, "vfio-pci", "and who has another");
	tree_remove(tree, PCI "0000:3c:00.0");
	is_str(look(tree).other, "", "nobody");
}

static void nodes(struct tree *tree)
{
	struct glk_uvm_host host = look(tree);

	is_int(host.nodes, 0, "no nodes");
	is_int(host.channel, -1, "no channel");
	tree_set(tree, "dev/nvidia0", "c 195 0 rw");
	tree_set(tree, "dev/nvidia7", "c 195 7 r-");
	tree_set(tree, "dev/nvidiactl", "c 195 255 rw");
	tree_set(tree, "dev/nvidia8", "no device");
	host = look(tree);
	is_int(host.nodes, 2, "two nodes of GPUs");
	is_int(host.usable, 1, "one for us");
	tree_set(tree, "dev/nvidia-caps-imex-channels/channel0", "c 242 0 --");
	is_int(look(tree).channel, 0, "a channel for others");
	tree_set(tree, "dev/nvidia-caps-imex-channels/channel0", "c 242 0 rw");
	is_int(look(tree).channel, 1, "and for us");
}

static void library(struct tree *tree)
{
	struct glk_uvm_host host = look(tree);

	is_str(host.libcuda_path, "", "no library");
	tree_set(tree, "usr/lib64/libcuda.so.580.159.04", "");
	tree_link(tree, "usr/lib64/libcuda.so.1", "libcuda.so.580.159.04");
	host = look(tree);
	is_str(host.libcuda_path, "/usr/lib64/libcuda.so.1", "one where Fedora has it");
	is_str(host.libcuda, "580.159.04", "its version");
	tree_set(tree, "opt/compat/libcuda.so.590.44.01", "");
	tree_link(tree, "opt/compat/libcuda.so.1", "libcuda.so.590.44.01");
	glk_uvm_host_read(&tree->root, "::/nowhere:relative:/opt/compat:", &host);
	is_str(host.libcuda, "590.44.01", "the loader's folders come first");
	is_str(host.libcuda_path, "/opt/compat/libcuda.so.1", "by their own path");
	tree_set(tree, "usr/lib/x86_64-linux-gnu/libcuda.so.1", "no link");
	host = look(tree);
	is_str(host.libcuda_path, "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "a file");
	is_str(host.libcuda, "", "does not tell its version");
	tree_remove(tree, "usr/lib/x86_64-linux-gnu/libcuda.so.1");
	tree_set(tree, "usr/lib/x86_64-linux-gnu/libcuda.so.garbage", "");
	tree_link(tree, "usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.garbage");
	is_str(look(tree).libcuda, "", "nor does a name that is none");
}

static void sandbox(struct tree *tree)
{
	is_str(look(tree).sandbox, "", "none");
	tree_set(tree, "proc/self/cgroup", "0::/system.slice/ssh.service\n");
	is_str(look(tree).sandbox, "", "a service is none");
	tree_set(tree, "proc/self/cgroup", "4:memory:/kubepods/burstable/pod1/x\n");
	is_str(look(tree).sandbox, "kubepods", "a pod");
	tree_set(tree, "run/.containerenv", "");
	is_str(look(tree).sandbox, "podman", "Podman");
	tree_set(tree, ".dockerenv", "");
	is_str(look(tree).sandbox, "docker", "Docker");
	tree_set(tree, "dev/dxg", "c 10 125 rw");
	is_str(look(tree).sandbox, "wsl", "the GPU of Windows");
	tree_set(tree, "proc/version",
		"Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n");
	is_str(look(tree).sandbox, "gvisor", "gVisor");
}

int main(void)
{
	static void (*const bodies[])(struct tree *) = {bus, nodes, library, sandbox};
	struct glk_uvm_host host;
	struct tree tree;

	tap_plan_later();
	for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
		tree_init(&tree);
		bodies[i](&tree);
		tree_close(&tree);
	}
	glk_uvm_host_read(NULL, NULL, &host);
	tap_note("this machine: %d GPUs, %d nodes, library '%s', in '%s'", host.gpus,
		host.nodes, host.libcuda, host.sandbox);
	ok(host.usable <= host.nodes && host.bound <= host.gpus, "this machine");
	return tap_done();
}
