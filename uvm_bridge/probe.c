/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ladder of a module: is it loaded, in which version, which major number has it, is there
 * a device node for that, may we use it. Each step fills its field, whatever the others
 * found; the state is the first of them that stands in the way.
 *
 * Loaded means that one source says so: sysfs, the list of modules, or a major number that is
 * taken. Absent means that one says it is not, and none that it is. Sandboxes hide any of
 * them, so no source alone can prove an absence that another contradicts.
 */
#include "uvm_bridge/driver.h"
#include "uvm_bridge/kmod.h"
#include "uvm_bridge/uvm.h"

#include "numa/topology.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct kind {
	const char *name;
	const char *node;
	unsigned int minor;	/* of the node */
	const char *devices[3]; /* names in /proc/devices, of old and new drivers */
	const char *hint;	/* how the node comes into being */
} kinds[GLK_UVM_COUNT] = {
	[GLK_UVM_NVIDIA] = {"nvidia", "/dev/nvidiactl", 255,
		{"nvidiactl", "nvidia", "nvidia-frontend"}, "nvidia-modprobe -c 255"},
	[GLK_UVM_UVM] = {"nvidia_uvm", "/dev/nvidia-uvm", 0, {"nvidia-uvm"},
		"nvidia-modprobe -u -c 0"},
};

enum presence {
	PRESENCE_UNKNOWN,
	PRESENCE_NO,
	PRESENCE_YES,
	PRESENCE_COMING,
	PRESENCE_GOING,
};

static bool named(const struct kind *kind, const char *name)
{
	for (size_t i = 0; i < 3 && kind->devices[i]; i++)
		if (!strcmp(kind->devices[i], name))
			return true;
	return false;
}

/* 0 and the major number, -ENOENT (none has this name), or no list to look into. */
static int find_major(
	const struct glk_sysroot *root, const struct kind *kind, int *ret_major)
{
	char text[GLK_SYSFS_TEXT_MAX], name[64], *line, *rest;
	int err, end, major;
	bool chars = false;

	err = glk_sysfs_text(root, "/proc/devices", text, sizeof(text));
	if (err)
		return err == -ENOENT ? -ENODATA : err;
	for (line = strtok_r(text, "\n", &rest); line;
		line = strtok_r(NULL, "\n", &rest)) {
		if (strchr(line, ':')) {
			chars = !strcmp(line, "Character devices:");
			continue;
		}
		end = 0;
		if (!chars || sscanf(line, "%9d %63s%n", &major, name, &end) != 2 ||
			line[end] || major < 0 || !named(kind, name))
			continue;
		*ret_major = major;
		return 0;
	}
	return -ENOENT;
}

static enum presence of_sysfs(const struct glk_sysroot *root, const struct kind *kind)
{
	char path[96], text[16];

	if (!glk_sysfs_exists(root, "/sys/module"))
		return PRESENCE_UNKNOWN;
	snprintf(path, sizeof(path), "/sys/module/%s", kind->name);
	if (!glk_sysfs_exists(root, path))
		return PRESENCE_NO;
	snprintf(path, sizeof(path), "/sys/module/%s/initstate", kind->name);
	if (glk_sysfs_text(root, path, text, sizeof(text)))
		return PRESENCE_UNKNOWN;
	if (!strcmp(text, "live"))
		return PRESENCE_YES;
	if (!strcmp(text, "coming"))
		return PRESENCE_COMING;
	return !strcmp(text, "going") ? PRESENCE_GOING : PRESENCE_UNKNOWN;
}

static enum presence find_presence(
	const struct glk_sysroot *root, const struct kind *kind, int major_err)
{
	enum presence presence = of_sysfs(root, kind);
	bool listed;

	if (presence > PRESENCE_NO)
		return presence;
	if (!major_err)
		return PRESENCE_YES;
	if (major_err == -ENOENT)
		presence = PRESENCE_NO;
	if (glk_kmod_loaded(root, kind->name, &listed))
		return presence;
	return listed ? PRESENCE_YES : PRESENCE_NO;
}

static void say(struct glk_uvm_module *module, enum glake_module_state state,
	const char *format, ...) __attribute__((format(printf, 3, 4)));

static void say(struct glk_uvm_module *module, enum glake_module_state state,
	const char *format, ...)
{
	va_list args;

	module->state = state;
	va_start(args, format);
	vsnprintf(module->text, sizeof(module->text), format, args);
	va_end(args);
}

/* The node: its number and its mode, never by opening it. */
static void look_at_node(const struct glk_sysroot *root, const struct kind *kind,
	struct glk_uvm_module *module)
{
	struct glk_sysfs_device device;
	int err = glk_sysfs_device(root, kind->node, &device);

	if (err == -ENOENT || err == -ENOTDIR)
		say(module, GLAKE_MODULE_NO_NODE,
			"loaded, but %s is missing; %s makes it", kind->node, kind->hint);
	else if (err == -ENOTTY)
		say(module, GLAKE_MODULE_STALE_NODE,
			"loaded, but %s is no character device", kind->node);
	else if (err)
		say(module, GLAKE_MODULE_NO_PERMISSION,
			"loaded, but %s cannot be looked at: %s", kind->node,
			strerror(-err));
	else if (module->major >= 0 && device.major != (unsigned int)module->major)
		say(module, GLAKE_MODULE_STALE_NODE,
			"loaded, but %s has major number %u and the module %d; %s renews it",
			kind->node, device.major, module->major, kind->hint);
	else if (device.minor != kind->minor)
		say(module, GLAKE_MODULE_STALE_NODE,
			"loaded, but %s has minor number %u instead of %u", kind->node,
			device.minor, kind->minor);
	else if (!device.usable)
		say(module, GLAKE_MODULE_NO_PERMISSION,
			"loaded, but we may not read and write %s", kind->node);
	else if (module->reboot_pending)
		say(module, GLAKE_MODULE_OK,
			"loaded; version %s is on disk, a reboot is pending",
			module->disk_version);
	else
		say(module, GLAKE_MODULE_OK, "loaded");
}

static void not_loaded(struct glk_uvm_module *module, enum presence presence)
{
	if (presence == PRESENCE_COMING)
		say(module, GLAKE_MODULE_ABSENT, "being loaded at this moment");
	else if (presence == PRESENCE_GOING)
		say(module, GLAKE_MODULE_ABSENT, "being unloaded at this moment");
	else if (*module->disk_version)
		say(module, GLAKE_MODULE_ABSENT, "not loaded; version %s is on disk",
			module->disk_version);
	else if (module->disk == GLK_UVM_DISK_NO_LIBKMOD)
		say(module, GLAKE_MODULE_ABSENT,
			"not loaded; what is on disk is not known without libkmod.so.2");
	else if (module->disk == GLK_UVM_DISK_NO_MODULE)
		say(module, GLAKE_MODULE_ABSENT, "not loaded, and not on disk");
	else
		say(module, GLAKE_MODULE_ABSENT, "not loaded");
}

/* Versions of both modules are known by their own files, and differ. */
static bool mismatched(const struct glk_sysroot *root, enum glk_uvm_which which,
	struct glk_uvm_module *module)
{
	char own[GLK_UVM_VERSION_MAX], other[GLK_UVM_VERSION_MAX];

	if (which != GLK_UVM_UVM || glk_uvm_version_sysfs(root, "nvidia_uvm", own) ||
		glk_uvm_version_sysfs(root, "nvidia", other) || !strcmp(own, other))
		return false;
	say(module, GLAKE_MODULE_MISMATCH,
		"version %s beside version %s of nvidia; reload both or reboot", own,
		other);
	return true;
}

static void find_version(const struct glk_sysroot *root, struct glk_uvm_module *module)
{
	if (glk_uvm_version_sysfs(root, module->name, module->version) &&
		glk_uvm_version_sysfs(root, "nvidia", module->version))
		glk_uvm_version_procfs(root, module->version);
	module->reboot_pending = *module->version && *module->disk_version &&
		strcmp(module->version, module->disk_version);
}

/* nvidia.ko's licence tells the flavour, whichever module is asked for. */
static void read_disk(const struct glk_sysroot *root, enum glk_uvm_which which,
	struct glk_uvm_module *module)
{
	struct glk_kmod_file file, nvidia;

	glk_kmod_read(root, kinds[GLK_UVM_NVIDIA].name, &nvidia);
	file = nvidia;
	if (which != GLK_UVM_NVIDIA)
		glk_kmod_read(root, module->name, &file);
	module->disk = file.disk;
	if (!glk_uvm_version_check(file.version))
		snprintf(module->disk_version, sizeof(module->disk_version), "%s",
			file.version);
	snprintf(module->flavour, sizeof(module->flavour), "%s",
		glk_uvm_flavour(root, nvidia.license));
}

void glk_uvm_probe(const struct glk_sysroot *root, enum glk_uvm_which which,
	struct glk_uvm_module *ret_module)
{
	const struct kind *kind = &kinds[which];
	struct glk_uvm_module module = {
		.name = kind->name, .node = kind->node, .major = -1};
	enum presence presence;

	read_disk(root, which, &module);
	presence = find_presence(root, kind, find_major(root, kind, &module.major));
	if (presence == PRESENCE_YES)
		find_version(root, &module);
	if (presence == PRESENCE_UNKNOWN)
		say(&module, GLAKE_MODULE_UNKNOWN,
			"neither sysfs nor procfs is here to tell");
	else if (presence != PRESENCE_YES)
		not_loaded(&module, presence);
	else if (!mismatched(root, which, &module))
		look_at_node(root, kind, &module);
	*ret_module = module;
}

uint32_t glk_uvm_holders(const struct glk_sysroot *root)
{
	static const struct kind holders[] = {
		{.name = "nvidia_peermem"}, {.name = "nvidia_fs"}, {.name = "gdrdrv"}};
	uint32_t found = 0;

	for (unsigned int i = 0; i < 3; i++)
		if (find_presence(root, &holders[i], -ENODATA) == PRESENCE_YES)
			found |= 1u << i;
	return found;
}
