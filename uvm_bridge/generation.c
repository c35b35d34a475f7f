/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which generation of the tools interface the module has, by its version: the interface changed
 * within the branch 550, so that whole versions are compared. A version before the first that was
 * looked at, and one that cannot be read, has none; one after the last is taken for the last
 * generation, since what it answers is checked before it is believed.
 */
#include "uvm_bridge/uvm.h"

#include "numa/topology.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE "/dev/nvidia-uvm-tools"

/* "580.142" as {580, 142, 0}. */
static bool parse(const char *version, unsigned long ret[3])
{
	char *end;

	for (int i = 0; i < 3; i++) {
		ret[i] = 0;
		if (i && !*version)
			continue;
		if (*version < '0' || *version > '9')
			return false;
		ret[i] = strtoul(version, &end, 10);
		if (*end && *end != '.')
			return false;
		version = end + (*end == '.');
		if (*end && !*version)
			return false;
	}
	return !*version;
}

static bool is_from(
	const unsigned long version[3], unsigned long a, unsigned long b, unsigned long c)
{
	const unsigned long first[3] = {a, b, c};

	for (int i = 0; i < 3; i++)
		if (version[i] != first[i])
			return version[i] > first[i];
	return true;
}

char glk_uvm_generation(const char *version)
{
	unsigned long v[3];

	if (!parse(version, v) || !is_from(v, 515, 43, 4))
		return 0;
	if (is_from(v, 565, 57, 1))
		return 'D';
	if (is_from(v, 560, 28, 3))
		return 'C';
	return is_from(v, 550, 40, 53) ? 'B' : 'A';
}

static void say(struct glake_uvm_tools *tools, enum glake_uvm_state state,
	const char *format, ...) __attribute__((format(printf, 3, 4)));

static void say(struct glake_uvm_tools *tools, enum glake_uvm_state state,
	const char *format, ...)
{
	va_list args;

	tools->state = state;
	va_start(args, format);
	vsnprintf(tools->text, sizeof(tools->text), format, args);
	va_end(args);
}

static void look_at_node(
	const struct glk_sysroot *root, int major, struct glake_uvm_tools *tools)
{
	struct glk_sysfs_device device;
	int err = glk_sysfs_device(root, NODE, &device);

	if (err == -ENOENT || err == -ENOTDIR)
		say(tools, GLAKE_UVM_NO_NODE,
			NODE " is missing; nvidia-modprobe -u -c 0 makes it");
	else if (err == -ENOTTY)
		say(tools, GLAKE_UVM_NO_NODE, NODE " is no character device");
	else if (err)
		say(tools, GLAKE_UVM_NO_PERMISSION, NODE " cannot be looked at: %s",
			strerror(-err));
	else if ((major >= 0 && device.major != (unsigned int)major) || device.minor != 1)
		say(tools, GLAKE_UVM_NO_NODE, NODE " is the node %u:%u of another device",
			device.major, device.minor);
	else if (!device.usable)
		say(tools, GLAKE_UVM_NO_PERMISSION, "we may not read and write " NODE);
	else
		say(tools, GLAKE_UVM_OK, "usable, interface %s", tools->generation);
}

void glk_uvm_tools_read(
	const struct glk_sysroot *root, struct glake_uvm_tools *ret_tools, int *ret_major)
{
	struct glake_uvm_tools tools = {.sz = sizeof(tools)};
	struct glk_uvm_module module;

	glk_uvm_probe(root, GLK_UVM_UVM, &module);
	memcpy(tools.version, module.version, sizeof(tools.version));
	tools.generation[0] = glk_uvm_generation(module.version);
	if (module.state != GLAKE_MODULE_OK)
		say(&tools, GLAKE_UVM_NO_MODULE, "nvidia_uvm: %s", module.text);
	else if (!tools.generation[0])
		say(&tools, GLAKE_UVM_UNKNOWN,
			"the tools of nvidia_uvm %s are not known, so they are not used",
			*module.version ? module.version : "of a version not known");
	else
		look_at_node(root, module.major, &tools);
	*ret_tools = tools;
	*ret_major = module.major;
}
