/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Parameters of nvidia_uvm, read when asked for: some can be changed while the module runs.
 * Which there are differs from driver to driver, so a missing one is an answer of its own.
 */
#include "uvm_bridge/uvm.h"

#include "numa/topology.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int glk_uvm_param(
	const struct glk_sysroot *root, const char *name, char *ret_text, size_t size)
{
	const size_t len = strlen(name);
	char path[128];

	if (!len || len > 64 ||
		strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != len)
		return -EINVAL;
	snprintf(path, sizeof(path), "/sys/module/nvidia_uvm/parameters/%s", name);
	return glk_sysfs_text(root, path, ret_text, size);
}

const char *glk_uvm_disk_name(enum glk_uvm_disk disk)
{
	static const char *const names[] = {
		"OK", "NO_TREE", "NO_MODULE", "UNREADABLE", "NO_LIBKMOD"};

	if ((unsigned int)disk >= sizeof(names) / sizeof(*names))
		return "?";
	return names[disk];
}
