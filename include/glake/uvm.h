/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_UVM_H
#define GLAKE_UVM_H

/*
 * What the kernel module nvidia_uvm tells of managed memory: memory of cuMemAllocManaged, which
 * moves between GPUs and host as it is touched. Blocks of this library are not managed memory and
 * never move by themselves, but they compete with it: where a growing pool pushes managed memory
 * out of a GPU, only the module knows.
 *
 * The figures are of the process, not of a context, so at most one context has them open at a time.
 * Counters cost the module an addition an event. Events lie in a ring that has room for 8191 at
 * most; what comes while it is full is lost and counted. The library has no thread that drains it:
 * at R events a second somebody must call glake_uvm_drain, or with GLAKE_UVM_SUMS any function that
 * reads, every 8191/R seconds: every 81 ms at 100 000 a second.
 *
 * Nothing of this happens unless glake_uvm_open is called. Between it and glake_uvm_close two or
 * three descriptors are open, all closed on exec: a copy of the one by which CUDA has the module
 * open, and one or two of its tools. They keep what CUDA has allocated alive, so close before the CUDA context is
 * destroyed; glake_close does it too. glake_suspend lets go of them until glake_resume: programs
 * that save the process with cuCheckpointProcessLock call it before. In a forked child they are
 * closed as far as the library may install hooks of fork (glake_options).
 *
 * Where events of the kind THRASHING are on, memory of this library's own managed blocks (managed.h)
 * that goes to and fro is said to be used by each processor that takes part (GLAKE_MANAGED_ACCESSED):
 * they have it mapped then wherever it lies, use it over the link, and it does not move any more
 * as it is touched. glake_uvm_drain and glake_uvm_pressure_get do it, and with GLAKE_UVM_SUMS
 * glake_uvm_figures_get: for 64 places at most each time, of 2 MiB (pool.small_page), and once for a
 * place while its blocks live; events from before a block was given do not count for it. The program's
 * own advice takes back what was said there, and is the last word until the block is freed. managed_advised
 * of struct glake_stats counts the blocks; uvm.advise=no has it left alone. What was said so is not
 * undone when the counters are closed.
 *
 * Every way that it cannot be had has a state and a sentence, and none has any effect on the rest
 * of the library.
 */
#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;

/* Whether the module's tools can be used, or why not. */
enum glake_uvm_state {
	GLAKE_UVM_OK = 0,	 /* they can be used, or are in use */
	GLAKE_UVM_NO_MODULE = 1, /* nvidia_uvm cannot be used, see glake_module_get */
	GLAKE_UVM_UNKNOWN = 2,	 /* its version is not one whose interface is known */
	GLAKE_UVM_NO_NODE = 3,	 /* /dev/nvidia-uvm-tools is missing, or is another's */
	GLAKE_UVM_NO_PERMISSION = 4, /* it exists, this process may not open it */
	GLAKE_UVM_NO_CUDA = 5,	     /* CUDA has not opened the module in this process */
	GLAKE_UVM_AMBIGUOUS = 6, /* it was opened several times: managed memory decides */
	GLAKE_UVM_MISFIT = 7,	 /* it does not answer as its version should */
	GLAKE_UVM_REFUSED = 8,	 /* it refused a call */
	GLAKE_UVM_SICK = 9,	 /* a fatal error of the driver, which stays */
	GLAKE_UVM_AGAIN = 10,	 /* the driver is being suspended, or is busy: later */
	GLAKE_UVM_GONE = 11,	 /* it was unloaded meanwhile, or descriptors closed */
	GLAKE_UVM_BROKEN = 12,	 /* its index of the ring is out of range */
	GLAKE_UVM_PAUSED = 13,	 /* by glake_suspend, until glake_resume */
};

/*
 * Names a state. Returns its name, as "NO_NODE", or "?" for an unknown one, never NULL. The text
 * is the library's and stays.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT const char *glake_uvm_state_name(int state);

/* The tools of nvidia_uvm on this machine. Text that is not known is "". */
struct glake_uvm_tools {
	size_t sz;	    /* sizeof(struct glake_uvm_tools) */
	int state;	    /* enum glake_uvm_state */
	char generation[4]; /* of their interface, "A" to "D"; "" if it is not known */
	char version[48];   /* of the loaded module, "580.159.04" */
	char text[160];	    /* one sentence about the state */
};

/*
 * Tells whether the tools could be used, without opening them: by the version of the module and
 * the device node. Needs no context.
 *
 * Returns 0, or -EINVAL (NULL, sz not set), -E2BIG.
 * Thread: any. Blocks: reads files of sysfs and procfs. Driver calls: none.
 */
GLAKE_EXPORT int glake_uvm_tools_get(struct glake_uvm_tools *ret_tools);

/* Kinds of events, as bits to choose them by. */
#define GLAKE_UVM_MIGRATION   (1u << 2)	 /* a range moved, or was copied */
#define GLAKE_UVM_FATAL_FAULT (1u << 6)	 /* an access that no handling can make good */
#define GLAKE_UVM_THRASHING   (1u << 10) /* a range goes to and fro */
#define GLAKE_UVM_THROTTLING  (1u << 11) /* so a processor has to wait for it */
#define GLAKE_UVM_REMOTE_MAP  (1u << 13) /* memory is used from afar and does not move */
#define GLAKE_UVM_ALL                                                                    \
	(GLAKE_UVM_MIGRATION | GLAKE_UVM_FATAL_FAULT | GLAKE_UVM_THRASHING |             \
		GLAKE_UVM_THROTTLING | GLAKE_UVM_REMOTE_MAP)

#define GLAKE_UVM_SUMS	      0x1u /* events are summed up, and glake_uvm_drain gives none */
#define GLAKE_UVM_ENTRIES_MAX 8192

struct glake_uvm_options {
	size_t sz;	 /* sizeof(struct glake_uvm_options) */
	uint32_t flags;	 /* GLAKE_UVM_SUMS */
	uint32_t events; /* kinds to have; 0 for none: counters alone, and no ring */
	/* Of the ring, one of which stays free: a power of two from 2 to GLAKE_UVM_ENTRIES_MAX; 0
	 * for the most. */
	uint32_t entries;
	/* The start and the exact size, bytes, of a block of managed memory, which tells CUDA's
	 * descriptor of the module from others'; NULL where there are no others. It is asked for
	 * again by glake_resume. */
	const void *managed;
	size_t managed_size;
};

/*
 * Starts counters, and events if any are asked for, of the managed memory of this process. CUDA
 * has to have opened the module, which it does with its first context.
 *
 * options	NULL: counters alone
 *
 * Returns 0, or -EBUSY (BUSY: a context has them open), -EOPNOTSUPP (UNSUPPORTED: the software
 * device, or one of the states NO_MODULE to NO_NODE and MISFIT), -EACCES (PERM: NO_PERMISSION),
 * -ENODEV (DEVICE_LOST: SICK, GONE; or in a forked child), -ENOENT (UNSUPPORTED: NO_CUDA), -EAGAIN
 * (AGAIN: the driver is being suspended, or is busy), -EIO (DRIVER: REFUSED), -EINVAL (entries,
 * flags or events that cannot be; AMBIGUOUS and no managed memory was named, or that is none),
 * -EMFILE (LIMIT), -ENOMEM, -E2BIG, -ESTALE. The record has the sentence. After an error nothing
 * is open.
 * Thread: any. Blocks: reads files of sysfs and procfs. Driver calls: of the module, not of CUDA:
 * up to ten, and one or two for each descriptor of it that the process has.
 */
GLAKE_EXPORT int glake_uvm_open(
	struct glake *ctx, const struct glake_uvm_options *options);

/*
 * Ends them and closes every descriptor; what was not drained is gone.
 *
 * Returns 0, or -EALREADY (BUSY: this context has none open), -ESTALE, -ENODEV (in a forked
 * child).
 * Thread: any. Blocks: briefly. Driver calls: of the module, not of CUDA: four at most.
 */
GLAKE_EXPORT int glake_uvm_close(struct glake *ctx);

/* All since glake_uvm_open. Those that end in _bytes count bytes, the others events. */
struct glake_uvm_figures {
	size_t sz; /* sizeof(struct glake_uvm_figures) */
	int state; /* enum glake_uvm_state: OK, PAUSED, or why nothing is counted any more */
	uint32_t watched; /* kinds of events that are on; what is not stays 0 below */
	uint64_t to_gpu_bytes;	/* moved from the host to GPUs */
	uint64_t to_host_bytes; /* moved from GPUs to the host */
	uint64_t cpu_faults;
	uint64_t gpu_faults;
	/* of events */
	uint64_t events;	/* taken out of the ring, and seen in it */
	uint64_t dropped;	/* lost since the ring was full: sums are lower bounds */
	uint64_t moved_bytes;	/* of all migrations */
	uint64_t evictions;	/* migrations for want of memory */
	uint64_t evicted_bytes; /* of them */
	uint64_t remote_maps;
	uint64_t remote_starved; /* of them, for want of memory */
	uint64_t thrashing;
	uint64_t fatal;
	char text[160]; /* one sentence about the state */
};

/*
 * Reads counters and sums: of events as far as the module has written them, which it does when it
 * comes to it, or is made to by glake_uvm_drain and glake_uvm_pressure_get.
 *
 * Returns 0, or -EALREADY (BUSY: this context has none open), -EINVAL (NULL, sz), -E2BIG, -ESTALE,
 * -ENODEV (in a forked child). Also where the module has failed: state and text say so then, and
 * the figures are the last ones.
 * Thread: any. Blocks: for a drain in another thread. Driver calls: none, but for advice with
 * GLAKE_UVM_SUMS; 2 us, and 20 ns for each event that nobody has looked at.
 */
GLAKE_EXPORT int glake_uvm_figures_get(
	struct glake *ctx, struct glake_uvm_figures *ret_figures);

#define GLAKE_UVM_HOST	(-1) /* the host, in place of a GPU */
#define GLAKE_UVM_OTHER (-2) /* a GPU that is none of the context, or nothing is known */

/* Why something moved. */
enum glake_uvm_cause {
	GLAKE_UVM_CAUSE_NONE = 0,      /* not known; also between nodes of the host */
	GLAKE_UVM_CAUSE_USER = 1,      /* the program asked, as by cuMemPrefetchAsync */
	GLAKE_UVM_CAUSE_COHERENCE = 2, /* it was touched */
	GLAKE_UVM_CAUSE_PREFETCH = 3,  /* what lies beside it was touched */
	GLAKE_UVM_CAUSE_EVICTION = 4,  /* want of memory */
	GLAKE_UVM_CAUSE_ACCESSES = 5,  /* it was used much from afar */
	GLAKE_UVM_CAUSE_THRASHING = 6, /* of a remote map */
	GLAKE_UVM_CAUSE_POLICY = 7,    /* of a remote map: by advice of the program */
	GLAKE_UVM_CAUSE_NO_MEMORY = 8, /* of a remote map: no memory to move it to */
};

/* One event. Its size does not change. */
struct glake_uvm_event {
	uint32_t kind; /* one of GLAKE_UVM_MIGRATION and the like */
	int32_t cause; /* enum glake_uvm_cause; of a fatal fault the module's own number */
	/* Numbers of GPUs, or GLAKE_UVM_HOST and GLAKE_UVM_OTHER. Of a remote map: who uses it,
	 * and where it lies. Of FATAL_FAULT and THROTTLING `to` is the processor. */
	int32_t from, to;
	/* NUMA nodes of a migration, from and to; -1: not the host, or not known. */
	int32_t from_node, to_node;
	uint64_t address;
	uint64_t bytes;	  /* 0 where there is only an address */
	int64_t begin_ns; /* by CLOCK_MONOTONIC_RAW; of a migration its begin */
	int64_t end_ns;	  /* the same but for a migration */
	/* Of THRASHING: who takes part. Bit n is GPU n of the context, bit 63 the host. */
	uint64_t processors;
	uint64_t reserved[2];
};

/*
 * Takes events out of the ring, oldest first, after the module was asked to finish what it has
 * under way.
 *
 * events	an array of the caller
 * count	events that it has room for
 * ret_count	events that were written; less than `count` where there were no more
 *
 * Returns 0, or -EALREADY (BUSY: this context has none open), -EINVAL (NULL; opened without events
 * or with GLAKE_UVM_SUMS; AMBIGUOUS after glake_resume), -EIO (DRIVER: the module has failed, the
 * record says how), -ENODEV (DEVICE_LOST: likewise; or in a forked child), -EAGAIN (AGAIN:
 * glake_resume could not open them again; the next call tries once more), -ENOENT (UNSUPPORTED:
 * likewise, NO_CUDA), -EACCES (PERM: likewise, NO_PERMISSION), -EOPNOTSUPP (UNSUPPORTED: likewise,
 * NO_NODE or MISFIT), -ESTALE. What is in the ring is given before any of that is told, and while
 * the driver is being suspended.
 * Thread: any, one at a time. Blocks: until the module has finished. Driver calls: of the module
 * one, and two where a GPU is seen for the first time; of CUDA none, but for advice.
 */
GLAKE_EXPORT int glake_uvm_drain(struct glake *ctx, struct glake_uvm_event *events,
	size_t count, size_t *ret_count);

/* Whether managed memory had to make way since this was last asked. */
struct glake_uvm_pressure {
	size_t sz; /* sizeof(struct glake_uvm_pressure) */
	int rose;  /* 1: there were evictions, or remote maps for want of memory */
	uint64_t evictions; /* since it was last asked, or since glake_uvm_open */
	uint64_t evicted_bytes;
	uint64_t remote_starved;
	uint64_t dropped; /* events that were lost meanwhile: there may have been more */
};

/*
 * Tells it, for a policy that decides whether to hold less. Events stay in the ring for
 * glake_uvm_drain, unless GLAKE_UVM_SUMS is set. It needs the kinds MIGRATION and REMOTE_MAP. The
 * library itself does not call it.
 *
 * Returns 0, or -EALREADY (BUSY: this context has none open), -EINVAL (NULL, sz; opened without
 * one of those kinds), -E2BIG, -ESTALE, -EIO (as glake_uvm_drain), -ENODEV (likewise), -EAGAIN
 * (likewise), -ENOENT (likewise), -EACCES (likewise), -EOPNOTSUPP (likewise).
 * Thread: any. Blocks: until the module has finished what it has under way. Driver calls: of the
 * module one; of CUDA none, but for advice.
 */
GLAKE_EXPORT int glake_uvm_pressure_get(
	struct glake *ctx, struct glake_uvm_pressure *ret_pressure);

GLAKE_END_DECLS

#endif
