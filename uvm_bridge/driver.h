/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_DRIVER_H
#define GLK_UVM_DRIVER_H

/* Version and flavour of the driver that runs. Inside this folder. */
#include "uvm_bridge/uvm.h"

/* "580.159.04": digits and dots, at least one of each. 0 or -EBADMSG. */
int glk_uvm_version_check(const char *text);

/* What /sys/module/<module>/version says. 0, -ENOENT, -EBADMSG and the like. */
int glk_uvm_version_sysfs(const struct glk_sysroot *root, const char *module,
	char ret_version[GLK_UVM_VERSION_MAX]);

/* What /proc/driver/nvidia/version says. As above. */
int glk_uvm_version_procfs(
	const struct glk_sysroot *root, char ret_version[GLK_UVM_VERSION_MAX]);

/*
 * "open", "proprietary" or "" from, in this order: the line in procfs, the taint of the
 * loaded module, the licence of the file on disk ("" if it is not known).
 */
const char *glk_uvm_flavour(const struct glk_sysroot *root, const char *license);

#endif
