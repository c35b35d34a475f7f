/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_UVM_H
#define GLK_UVM_UVM_H

/*
 * The face of this folder: what there is to know about NVIDIA's kernel modules without
 * touching them, and at the end of it what nvidia-uvm counts and tells of managed memory.
 * Allocation never needs any of it; it explains a machine to a person and decides which tools
 * of nvidia-uvm may be used.
 *
 * The probe is passive: files of sysfs and procfs are read, device nodes are looked at by
 * stat and never opened, the module file on disk is read through libkmod. Nothing is loaded,
 * no node is made; only glakectl doctor does that, where it is told to. Every absence has a name
 * and none is a failure.
 *
 * Threads	any
 * Blocks	reads files; never on the allocation path
 */
#include <glake/info.h>
#include <glake/uvm.h>

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

/*
 * generation.c. Which generation of the tools interface, 'A' to 'D', a version of the module has;
 * 0: of none that is known. See abi.h.
 */
char glk_uvm_generation(const char *version);

/* The tools as far as they can be looked at without being opened; the major number of the module,
 * or -1. */
void glk_uvm_tools_read(const struct glk_sysroot *root, struct glake_uvm_tools *ret_tools,
	int *ret_major);

/*
 * bridge.c. The tools in use: counters, and perhaps events, of the managed memory of the process.
 * The one part of this folder that opens something: only when asked to, and only what find.c and
 * tracker.c say.
 *
 * Threads	one at a time, but for glk_uvm_forked
 * Blocks	for the module; never under a lock that an allocation could want
 */
struct glk_uvm;
struct glk_uvm_ops;

#define GLK_UVM_GPUS 63 /* that events name; bit 63 of a set of them is the host */

struct glk_uvm_setup {
	const struct glk_uvm_ops *ops; /* NULL: system calls */
	char generation;
	int major, minor;		 /* of the node of the module, not of its tools */
	uint32_t flags, events, entries; /* as in struct glake_uvm_options */
	const void *managed;
	size_t managed_size;
	int gpus; /* of the context */
	uint8_t uuid[GLK_UVM_GPUS][16];
};

/* 0, or the errors of glake_uvm_open, with a record. Nothing is open then. */
int glk_uvm_open(const struct glk_uvm_setup *setup, struct glk_uvm **ret_uvm);
void glk_uvm_close(struct glk_uvm *uvm);

/* What it was opened with. */
uint32_t glk_uvm_kinds(const struct glk_uvm *uvm);
bool glk_uvm_sums_only(const struct glk_uvm *uvm);

/* Lets go of all descriptors; figures stay, and what is in the ring until it is continued. */
void glk_uvm_pause(struct glk_uvm *uvm);
/* Looks for the module anew. Where that fails, the state says how. */
void glk_uvm_continue(struct glk_uvm *uvm);

/* In a forked child: closes the descriptors. Nothing else is done with it there. */
void glk_uvm_forked(struct glk_uvm *uvm);

void glk_uvm_figures(struct glk_uvm *uvm, struct glake_uvm_figures *ret_figures);
/* 0, -EIO or -ENODEV, as glake_uvm_drain and glake_uvm_pressure_get. */
int glk_uvm_drain(struct glk_uvm *uvm, struct glake_uvm_event *events, size_t count,
	size_t *ret_count);

/* A place that events of the kind THRASHING told of, and who went to and fro there. */
struct glk_uvm_place {
	uint64_t address;    /* as the module had it: not to be trusted */
	uint64_t processors; /* as in struct glake_uvm_event */
	int64_t since_ns;    /* the earliest that was told of, by CLOCK_MONOTONIC_RAW */
};

/* Takes such places, each once however often it was told of; how many, `count` at most. */
size_t glk_uvm_places(
	struct glk_uvm *uvm, struct glk_uvm_place *ret_places, size_t count);
int glk_uvm_pressure(struct glk_uvm *uvm, struct glake_uvm_pressure *ret_pressure);

#endif
