/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_INFO_H
#define GLAKE_INFO_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;

/* What a GPU can do; a bit is set only when the driver said yes. */
#define GLAKE_CAP_VMM	    0x001u /* virtual memory management calls */
#define GLAKE_CAP_FD	    0x002u /* pages can be exported as POSIX file descriptors */
#define GLAKE_CAP_FABRIC    0x004u /* pages can be exported as fabric handles */
#define GLAKE_CAP_RDMA	    0x008u /* pages can be registered for GPUDirect RDMA */
#define GLAKE_CAP_DMABUF    0x010u /* ranges can be exported as dma-buf */
#define GLAKE_CAP_HOST_NUMA 0x020u /* pages can be made on a chosen host NUMA node */
#define GLAKE_CAP_MANAGED   0x040u /* concurrent managed access */
#define GLAKE_CAP_PAGEABLE  0x080u /* reads pageable host memory (HMM, ATS) */
#define GLAKE_CAP_MPS                                                                    \
	0x100u /* programs share it by MPS: an illegal access of one ends all */

/* One GPU of a context. */
struct glake_device {
	size_t sz; /* sizeof(struct glake_device) */
	char name[96];
	char uuid[48];	 /* "GPU-..." */
	char pci[16];	 /* "0000:3b:00.0"; "" on the software device */
	uint64_t memory; /* bytes in all */
	uint64_t free;	 /* bytes free now; 0 if unknown, see free_valid */
	int free_valid;
	int numa_node;	      /* nearest host node; -1 if unknown */
	uint32_t caps;	      /* GLAKE_CAP_... */
	int major, minor;     /* compute capability; 0.0 on the software device */
	uint64_t granularity; /* smallest page, bytes */
	uint64_t granularity_recommended; /* page that performs best, bytes */
};

/*
 * Describes a GPU. Returns 0, or -EINVAL (no such device, NULL, sz not set), -ESTALE,
 * -E2BIG, -ENODEV (device lost, or in a forked child), -EIO.
 * Thread: any. Blocks: reads files of sysfs. Driver calls: questions.
 */
GLAKE_EXPORT int glake_device_get(
	struct glake *ctx, int device, struct glake_device *ret_device);

/* One NUMA node of the host. */
struct glake_node {
	size_t sz;	  /* sizeof(struct glake_node) */
	int id;		  /* the kernel's number */
	int memory_valid; /* memory and free are known */
	uint64_t memory;  /* bytes in all; 0 on a node without memory */
	uint64_t free;	  /* bytes free */
	char cpus[256];	  /* as "0-15,32-47"; "" if it has none */
	/* To the nodes, in their order, as ACPI has them: 10 to itself, 0 where nothing is
	 * known. Of a host with more nodes, to the first 64. */
	uint32_t distances; /* nodes that the next field has */
	uint8_t distance[64];
};

/*
 * Describes node number `index`, from 0. Returns 0, or -ENOENT (past the last), -EINVAL (NULL,
 * sz not set), -E2BIG.
 * Thread: any. Blocks: reads files of sysfs. Driver calls: none.
 */
GLAKE_EXPORT int glake_node_get(size_t index, struct glake_node *ret_node);

/* Whether a kernel module can be used, or why not. */
enum glake_module_state {
	GLAKE_MODULE_OK = 0,
	GLAKE_MODULE_ABSENT = 1,	/* not loaded */
	GLAKE_MODULE_NO_NODE = 2,	/* loaded, its device node is missing */
	GLAKE_MODULE_STALE_NODE = 3,	/* the node has the wrong major number */
	GLAKE_MODULE_NO_PERMISSION = 4, /* the node exists, we may not open it */
	GLAKE_MODULE_MISMATCH = 5, /* nvidia and nvidia_uvm have different versions */
	GLAKE_MODULE_UNKNOWN = 6,  /* no sysfs and no procfs to tell */
};

/* The nvidia or nvidia_uvm kernel module. Text that is not known is "". */
struct glake_module {
	size_t sz;	  /* sizeof(struct glake_module) */
	char name[32];	  /* "nvidia_uvm" */
	int state;	  /* enum glake_module_state */
	char version[48]; /* of the loaded module, "580.159.04" */
	char disk_version
		[48];	  /* of the module file on disk, if it differs: reboot pending */
	char flavour[16]; /* "open" or "proprietary" */
	char text[160];	  /* one sentence about the state */
};

/*
 * Describes a module; index 0: nvidia, 1: nvidia_uvm. Returns 0, or -ENOENT (past the last),
 * -EINVAL (NULL, sz), -E2BIG.
 * Thread: any. Blocks: reads files of sysfs, procfs and of the modules. Driver calls: none.
 */
GLAKE_EXPORT int glake_module_get(size_t index, struct glake_module *ret_module);

/*
 * Names a state of a module. Returns its name, as "NO_NODE", or "?" for an unknown one,
 * never NULL. The text is the library's and stays.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT const char *glake_module_state_name(int state);

/*
 * Reads a parameter of nvidia_uvm as the kernel writes it: "Y", "51", "(null)".
 *
 * Returns 0, or -ENOENT (this driver has no such parameter, or nvidia_uvm is not loaded, or there
 * is no sysfs: of its default nothing can be said), -EINVAL (NULL, not a parameter's name), -EFBIG
 * (longer than `size`), -EBADMSG (no text), -EACCES (not for this user). After an error ret_text
 * holds nothing of meaning.
 * Thread: any. Blocks: reads a file of sysfs. Driver calls: none.
 */
GLAKE_EXPORT int glake_parameter_get(const char *name, char *ret_text, size_t size);

#define GLAKE_HOST_UNKNOWN  (-1)      /* it could not be found out */
#define GLAKE_HOST_NO_LIMIT INT64_MAX /* there is none */

/* Modules through which other devices reach memory of a GPU. */
#define GLAKE_HOST_PEERMEM 0x1u /* nvidia_peermem */
#define GLAKE_HOST_FS	   0x2u /* nvidia_fs, GPUDirect Storage */
#define GLAKE_HOST_GDRDRV  0x4u /* gdrdrv, GDRCopy */

/*
 * The machine around the GPUs, and what this process may have of it. Numbers are
 * GLAKE_HOST_UNKNOWN where nothing tells, and limits GLAKE_HOST_NO_LIMIT where there is none;
 * text that is not known is "".
 */
struct glake_host {
	size_t sz;	      /* sizeof(struct glake_host) */
	int64_t maps;	      /* most mappings of a process, vm.max_map_count */
	int64_t locked;	      /* bytes a process may lock, RLIMIT_MEMLOCK */
	int64_t locked_hard;  /* how far it may raise that by itself */
	int64_t files;	      /* file descriptors, RLIMIT_NOFILE */
	int64_t files_hard;   /* how far it may raise that by itself */
	int64_t addresses;    /* bytes of addresses, RLIMIT_AS */
	int64_t memory_limit; /* bytes, the least limit that its control groups show */
	int64_t memory_spare; /* bytes that machine and control groups have left for it */
	int64_t overcommit;   /* vm.overcommit_memory: 0, 1 or 2 */
	int64_t huge_pages;   /* bytes that are reserved as huge pages */
	int64_t huge_pages_free; /* of them, not in use */
	char transparent[16];	 /* huge pages of the kernel's own: "always", "never" */
	char nodes[256];	 /* NUMA nodes it may take memory from, as "0-1" */
	int binding;		 /* 1: it may bind memory to a node; 0: that is denied */
	int rdma;		 /* 1: there is an RDMA device; 0: none is seen */
	uint32_t holders;	 /* GLAKE_HOST_PEERMEM and the like that are loaded */
	int gpus;		 /* GPUs of NVIDIA on the PCI bus */
	int gpus_bound;		 /* of them, driven by the module nvidia */
	char gpus_other[32];	 /* another driver that has one of them, as "vfio-pci" */
	int gpu_nodes;		 /* device nodes /dev/nvidia0 and so on */
	int gpu_nodes_usable;	 /* of them, this process may read and write */
	int fabric_channel; /* of IMEX, for fabric handles: 1 usable, 0 not by this process */
	char sandbox[24]; /* what the process runs in: "docker", "gvisor", "wsl" */
	char libcuda[48]; /* version of the driver's library, libcuda.so.1, by its file */
	char libcuda_path[256]; /* where that lies; the loader may know of another */
};

/*
 * Describes the machine around the GPUs. Returns 0, or -EINVAL (NULL, sz not set), -E2BIG.
 * Thread: any. Blocks: reads files of sysfs and procfs. Driver calls: none.
 */
GLAKE_EXPORT int glake_host_get(struct glake_host *ret_host);

/* The driver below a context. */
struct glake_driver {
	size_t sz;     /* sizeof(struct glake_driver) */
	char name[16]; /* "soft" or "cuda" */
	int version;   /* CUDA driver API, 13000 for 13.0; 0 on the software device */
	char fallback
		[256]; /* why CUDA was not taken, when it was not asked for; else "" */
};

/*
 * Describes the driver. Returns 0, or -EINVAL (NULL, sz not set), -ESTALE, -E2BIG, -ENODEV
 * (in a forked child).
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_driver_get(struct glake *ctx, struct glake_driver *ret_driver);

GLAKE_END_DECLS

#endif
