/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_KMOD_H
#define GLK_UVM_KMOD_H

/* libkmod: the module file on disk, and the list of loaded modules. Inside this folder. */
#include "uvm_bridge/uvm.h"

struct glk_kmod_file {
	enum glk_uvm_disk disk;
	char version[GLK_UVM_VERSION_MAX]; /* "" if it says none */
	char license[32];
};

/* The file of a module, below the root's /lib/modules/<release of this kernel>. */
void glk_kmod_read(const struct glk_sysroot *root, const char *module,
	struct glk_kmod_file *ret_file);

/*
 * Whether /proc/modules lists a module. The list has one place, which libkmod does not let
 * be moved: -EOPNOTSUPP for any root but the machine's. Else 0, -ENOENT (no list here) or
 * what libkmod answers; -EOPNOTSUPP also where it is not installed.
 */
int glk_kmod_loaded(const struct glk_sysroot *root, const char *module, bool *ret_loaded);

#endif
