/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whether network cards of this host reach memory by themselves. */
#include "numa/topology.h"

#include <dirent.h>
#include <stdio.h>

#define DEVICES "/sys/class/infiniband"

bool glk_rdma_present(const struct glk_sysroot *root)
{
	char path[GLK_SYSFS_PATH_MAX];
	const struct dirent *entry;
	bool present = false;
	DIR *devices;

	if (!root)
		root = &glk_sysroot_real;
	snprintf(path, sizeof(path), "%s" DEVICES, root->prefix);
	devices = opendir(path);
	if (!devices)
		return false;
	while (!present && (entry = readdir(devices)))
		present = entry->d_name[0] != '.';
	closedir(devices);
	return present;
}
