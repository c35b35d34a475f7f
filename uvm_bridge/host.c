/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What lies around the modules: the GPUs on the PCI bus and who drives them, their device nodes,
 * the library of the driver, the channel that fabric handles want, and the container or sandbox
 * that the process may be in. As passive as the probe: nothing is opened but text.
 */
#include "uvm_bridge/driver.h"

#include "numa/topology.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PCI	     "/sys/bus/pci/devices"
#define CHANNEL	     "/dev/nvidia-caps-imex-channels/channel0"
#define GPU_NODES    256 /* minor numbers of /dev/nvidia<n>; 255 is nvidiactl's */
#define NODE_UNKNOWN (-1)

struct bus {
	const struct glk_sysroot *root;
	struct glk_uvm_host *host;
};

static bool has(const struct glk_sysroot *root, const char *device, const char *file,
	const char *begin)
{
	char path[GLK_SYSFS_PATH_MAX], text[64];
	int n = snprintf(path, sizeof(path), PCI "/%s/%s", device, file);

	return n > 0 && (size_t)n < sizeof(path) &&
		!glk_sysfs_text(root, path, text, sizeof(text)) &&
		!strncmp(text, begin, strlen(begin));
}

/* NVIDIA's vendor id, and of the class display controller: VGA or 3D. */
static int look_at_device(const char *device, void *arg)
{
	struct bus *bus = arg;
	char path[GLK_SYSFS_PATH_MAX], driver[sizeof(bus->host->other)];
	int n;

	if (!has(bus->root, device, "vendor", "0x10de") ||
		!has(bus->root, device, "class", "0x03"))
		return 0;
	bus->host->gpus++;
	n = snprintf(path, sizeof(path), PCI "/%s/driver", device);
	if (n < 0 || (size_t)n >= sizeof(path) ||
		glk_sysfs_target(bus->root, path, driver, sizeof(driver)))
		return 0;
	if (!strcmp(driver, "nvidia"))
		bus->host->bound++;
	else
		memcpy(bus->host->other, driver, sizeof(driver));
	return 0;
}

static void read_bus(const struct glk_sysroot *root, struct glk_uvm_host *host)
{
	struct bus bus = {root, host};

	if (glk_sysfs_each(root, PCI, look_at_device, &bus))
		host->gpus = host->bound = -1;
}

static void read_nodes(const struct glk_sysroot *root, struct glk_uvm_host *host)
{
	struct glk_sysfs_device device;
	char path[32];

	for (unsigned int i = 0; i < GPU_NODES - 1; i++) {
		snprintf(path, sizeof(path), "/dev/nvidia%u", i);
		if (glk_sysfs_device(root, path, &device))
			continue;
		host->nodes++;
		host->usable += device.usable;
	}
	if (!glk_sysfs_device(root, CHANNEL, &device))
		host->channel = device.usable;
}

/* "libcuda.so.1" in one of the folders where the loader looks leads to "libcuda.so.580.159.04". */
static bool read_library_in(
	const struct glk_sysroot *root, const char *folder, struct glk_uvm_host *host)
{
	char path[sizeof(host->libcuda_path)], name[96];
	const char *version;
	int n = snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);

	if (n < 0 || (size_t)n >= sizeof(path) ||
		glk_sysfs_target(root, path, name, sizeof(name)))
		return false;
	memcpy(host->libcuda_path, path, sizeof(path));
	version = strstr(name, ".so.");
	if (version && !glk_uvm_version_check(version += strlen(".so.")))
		memcpy(host->libcuda, version, strlen(version) + 1);
	return true;
}

static void read_library(
	const struct glk_sysroot *root, const char *folders, struct glk_uvm_host *host)
{
	static const char *const usual[] = {"/usr/lib/x86_64-linux-gnu",
		"/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
		"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"};
	char folder[sizeof(host->libcuda_path)];
	size_t length;

	while (folders && *folders) {
		length = strcspn(folders, ":");
		snprintf(folder, sizeof(folder), "%.*s", (int)length, folders);
		if (*folder == '/' && read_library_in(root, folder, host))
			return;
		folders += length + (folders[length] == ':');
	}
	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++)
		if (read_library_in(root, usual[i], host))
			return;
}

/* First what is sure, then what a path of a control group gives away. */
static const char *sandbox_of(const struct glk_sysroot *root)
{
	static const char *const managers[] = {"kubepods", "docker", "libpod", "lxc"};
	char text[4096];

	/* the one version and date that gVisor's kernel has for programs */
	if (!glk_sysfs_text(root, "/proc/version", text, sizeof(text)) &&
		strstr(text, "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"))
		return "gvisor";
	if (glk_sysfs_exists(root, "/dev/dxg"))
		return "wsl";
	if (glk_sysfs_exists(root, "/.dockerenv"))
		return "docker";
	if (glk_sysfs_exists(root, "/run/.containerenv"))
		return "podman";
	if (glk_sysfs_exists(root, "/run/systemd/container"))
		return "container";
	if (glk_sysfs_text(root, "/proc/self/cgroup", text, sizeof(text)))
		return "";
	for (size_t i = 0; i < sizeof(managers) / sizeof(*managers); i++)
		if (strstr(text, managers[i]))
			return managers[i];
	return "";
}

void glk_uvm_host_read(const struct glk_sysroot *root, const char *folders,
	struct glk_uvm_host *ret_host)
{
	struct glk_uvm_host host = {.channel = NODE_UNKNOWN};

	read_bus(root, &host);
	read_nodes(root, &host);
	read_library(root, folders, &host);
	snprintf(host.sandbox, sizeof(host.sandbox), "%s", sandbox_of(root));
	*ret_host = host;
}
