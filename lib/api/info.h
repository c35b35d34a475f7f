/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_INFO_H
#define GLK_API_INFO_H

/* What stands behind glake_device_get, glake_module_get and glake_host_get, with the root that tests replace. */
#include <glake/info.h>

struct glk_sysroot;

void glk_device_find_node(const struct glk_sysroot *root, struct glake_device *device);
/* 0 or -ENOENT. */
int glk_module_read(
	const struct glk_sysroot *root, size_t index, struct glake_module *ret_module);
void glk_host_read(const struct glk_sysroot *root, struct glake_host *ret_host);

#endif
