/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_UVM_H
#define GLK_UVM_UVM_H

/*
 * The face of this folder: what there is to know about NVIDIA's kernel modules without
 * touching them. Allocation never needs any of it; it explains a machine to a person and
 * decides which tools of nvidia-uvm may be used.
 *
 * The probe is passive: files of sysfs and procfs are read, device nodes are looked at by
 * stat and never opened, the module file on disk is read through libkmod. Nothing is loaded,
 * no node is made. Every absence has a name and none is a failure.
 *
 * Threads	any
 * Blocks	reads files; never on the allocation path
 */
#include <glake/info.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct glk_sysroot;

/* In the order of glake_module_get. */
enum glk_uvm_which {
	GLK_UVM_NVIDIA = 0,
	GLK_UVM_UVM = 1,
	GLK_UVM_COUNT,
};

/* What is known of the module file that the next boot or load would take. */
enum glk_uvm_disk {
	GLK_UVM_DISK_OK = 0,
	GLK_UVM_DISK_NO_TREE = 1, /* no /lib/modules for this kernel, as in containers */
	GLK_UVM_DISK_NO_MODULE = 2,  /* the tree does not have it */
	GLK_UVM_DISK_UNREADABLE = 3, /* it is there, its description cannot be read */
	GLK_UVM_DISK_NO_LIBKMOD = 4, /* the library that reads it is not installed */
};

const char *glk_uvm_disk_name(enum glk_uvm_disk disk);

#define GLK_UVM_VERSION_MAX 48

/* Text that is not known is "". */
struct glk_uvm_module {
	const char *name; /* "nvidia_uvm" */
	const char *node; /* "/dev/nvidia-uvm" */
	enum glake_module_state state;
	char version[GLK_UVM_VERSION_MAX];	/* of the loaded module */
	char disk_version[GLK_UVM_VERSION_MAX]; /* of the module file */
	bool reboot_pending;			/* both are known and differ */
	enum glk_uvm_disk disk;
	char flavour[16]; /* "open", "proprietary": of the whole driver */
	int major;	  /* in /proc/devices; -1 if not known */
	char text[160];	  /* one sentence about the state */
};

/*
 * Looks at one module. The first finding decides: not loaded, versions that differ
 * (nvidia_uvm alone: nvidia is fine without it), no node, wrong node, no permission. A node
 * that a device cgroup denies still counts as usable, since only open would tell.
 */
void glk_uvm_probe(const struct glk_sysroot *root, enum glk_uvm_which which,
	struct glk_uvm_module *ret_module);

/* Modules that hold memory of the GPU for other devices; such memory may be in use by DMA. */
#define GLK_UVM_PEERMEM 0x1u /* nvidia_peermem */
#define GLK_UVM_FS	0x2u /* nvidia_fs, GPUDirect Storage */
#define GLK_UVM_GDRDRV	0x4u /* gdrdrv, GDRCopy */

/* Which of them are loaded. */
uint32_t glk_uvm_holders(const struct glk_sysroot *root);

/* What lies around the modules. Text that is not known is "". */
struct glk_uvm_host {
	int gpus;	/* GPUs of NVIDIA on the PCI bus; -1 if it cannot be looked at */
	int bound;	/* of them, driven by the module nvidia; -1 as well */
	char other[32]; /* a driver that has one of the others, "vfio-pci" */
	int nodes;	/* device nodes /dev/nvidia<n> */
	int usable;	/* of them, we may read and write */
	int channel;	/* of IMEX, for fabric handles: 1 usable, 0 not by us, -1 none */
	char sandbox[24];		   /* "docker", "kubepods", "gvisor", "wsl" */
	char libcuda[GLK_UVM_VERSION_MAX]; /* version of libcuda.so.1, by its name */
	char libcuda_path[256];		   /* where that was found */
};

/*
 * Reads it. `folders`, separated by colons, or NULL, come before the usual ones when the library
 * is looked for; the loader may know of more.
 */
void glk_uvm_host_read(const struct glk_sysroot *root, const char *folders,
	struct glk_uvm_host *ret_host);

/*
 * The value of a parameter of nvidia_uvm as the kernel writes it: "Y", "51", "(null)".
 * 0; -ENOENT (this driver has no such parameter, or is not loaded: nothing may be concluded
 * about its default); -EINVAL (not a parameter's name); -EFBIG, -EBADMSG, -EACCES.
 */
int glk_uvm_param(
	const struct glk_sysroot *root, const char *name, char *ret_text, size_t size);

#endif
