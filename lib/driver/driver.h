/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_DRIVER_DRIVER_H
#define GLK_DRIVER_DRIVER_H

/*
 * The face of this folder: everything the library asks of a GPU driver, as one table of
 * operations. `cuda` fills it from libcuda.so.1, `soft` from memfd and mmap; `count`, `check`
 * and `fault` wrap any of them and can be stacked.
 *
 * Nothing above this folder names CUDA. Devices are numbers, addresses 64-bit integers, pages
 * opaque handles, streams CUDA's own handle (an integer on the software device).
 *
 * Errors	0 or -errno, with the native code in the thread's record:
 *		-ENOMEM no memory, -EINVAL a broken rule of the driver (our bug), -EAGAIN not
 *		ready, -ENODEV device lost, -EOPNOTSUPP not by this driver, -EBUSY not while
 *		the stream captures a graph (class CAPTURE), -EIO any other
 * Threads	any thread may call any operation
 * Context	a backend makes the right CUDA context current inside the call and restores it
 */
#include "base/atomic.h"

#include <glake/info.h>
#include <glake/stats.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
struct CUevent_st;
struct glk_conf;
struct glk_times;
struct glk_drv;

/* Where a page lives. */
enum glk_place_kind {
	GLK_PLACE_GPU = 0,  /* id: device number */
	GLK_PLACE_HOST = 1, /* id: NUMA node of the host */
	GLK_PLACE_ANY =
		2, /* the host, wherever; id 0. For pages that are no other process's */
};

struct glk_place {
	enum glk_place_kind kind;
	int id;
};

/* Who may touch a mapping, and how. */
enum glk_access {
	GLK_ACCESS_NONE = 0,
	GLK_ACCESS_READ = 1,
	GLK_ACCESS_WRITE = 3, /* read and write */
};

struct glk_grant {
	struct glk_place who;
	enum glk_access access;
};

/* Flags of create: what the page must be able to do later. */
#define GLK_PAGE_EXPORT_FD 0x1u
#define GLK_PAGE_FABRIC	   0x2u
#define GLK_PAGE_RDMA	   0x4u

struct glk_drv_event; /* opaque to all but the backend */

/*
 * The default streams, CUDA's own numbers. NULL is another name of the legacy one. The second
 * is the calling thread's own: the same number names another stream in every thread.
 */
#define GLK_STREAM_LEGACY     ((struct CUstream_st *)1)
#define GLK_STREAM_PER_THREAD ((struct CUstream_st *)2)

static inline bool glk_stream_is_default(const struct CUstream_st *stream)
{
	return (uintptr_t)stream <= (uintptr_t)GLK_STREAM_PER_THREAD;
}

/* A capture that cannot be told, or that was broken and not ended yet. */
#define GLK_CAPTURE_BROKEN UINT64_MAX

/* What is known of a stream without waiting for it. */
struct glk_stream_facts {
	uint64_t id; /* never given to two streams of the process; 0: the driver cannot
			   * tell, and of a stream that captures none can */
	uint64_t
		capture; /* of the graph it captures, the same for all streams of one capture;
			   * 0: none; GLK_CAPTURE_BROKEN */
};

/* What may be said of managed memory, to the driver. */
enum glk_managed_say {
	GLK_MANAGED_PREFER =
		0, /* it is best at a place, where others use it over the link */
	GLK_MANAGED_UNPREFER, /* no such place; who is said does not matter */
	GLK_MANAGED_ACCESSED, /* a place uses it, and shall need no fault for that */
	GLK_MANAGED_UNACCESSED,
};

/* What may be asked of it. */
enum glk_managed_ask {
	GLK_MANAGED_PREFERRED = 0, /* the place it is best at */
	GLK_MANAGED_PREFETCHED,	   /* where it was prefetched to last */
};

/* What the driver knows of memory that is to be copied. */
enum glk_spot_kind {
	GLK_SPOT_OTHER =
		0, /* managed memory, pages of the host, several kinds, or not known */
	GLK_SPOT_PLAIN,	 /* of the host, of which the driver knows nothing */
	GLK_SPOT_LOCKED, /* of the host, locked: all GPUs copy from and to it */
	GLK_SPOT_GPU,
};

struct glk_spot {
	enum glk_spot_kind kind;
	int device; /* of GPU */
};

/* The links of a GPU, each way alike, in MB (10^6 bytes) a second; 0: no limit. */
struct glk_link {
	int64_t host, peer;
	int64_t uplink; /* that it shares with the other GPUs of its group */
	int group;	/* -1: it shares none */
	int64_t across; /* of the whole host, from one NUMA node to another one */
};

/*
 * A kernel of the library: its name in the text that is loaded, and the same in C for a device that has no processor of
 * its own. Both take one structure, by value and by address.
 */
struct glk_kernel {
	const char *name;
	void (*twin)(const void *args);
};

#define GLK_LAUNCH_ARGS 64

struct glk_launch {
	uint64_t kernel; /* of kernel_find */
	uint32_t blocks, threads;
	const void *args;
	size_t size; /* of them, GLK_LAUNCH_ARGS bytes at most */
	/* What it touches, for a driver that judges; 0 bytes: memory that nobody else uses until it has ended. */
	uint64_t addr, bytes;
	bool write;
};

/*
 * Where a stream waits for the host, in memory that was locked for its GPU: the last number that it came to, which it
 * writes, and the last one that it may pass, which the host does. Numbers go up, and on again from 0.
 */
struct glk_drv_gate {
	glk_atomic(uint32_t) at, open;
};

static inline bool glk_drv_gate_reached(uint32_t number, uint32_t by)
{
	return (int32_t)(by - number) >= 0;
}

#define GLK_DRV_OPS_VERSION 11

/*
 * Entries marked optional may be NULL in a backend; glk_count_open fills them with stubs that
 * answer -EOPNOTSUPP, so callers never test.
 */
struct glk_drv_ops {
	uint32_t version;
	const char *name;

	/* Ends the instance. Everything made through it must be gone; what is not is leaked,
	 * reported in the log and answered -EBUSY (software device) or given back (CUDA). */
	int (*close)(struct glk_drv *drv);

	int (*device_count)(struct glk_drv *drv, int *ret_count);
	/* Fills all but sz. */
	int (*device_info)(
		struct glk_drv *drv, int device, struct glake_device *ret_device);
	int (*memory_info)(
		struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total);

	/* Addresses. size and align are multiples of the granularity. */
	int (*reserve)(
		struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr);
	int (*unreserve)(struct glk_drv *drv, uint64_t addr, size_t size);

	/* Physical pages. */
	int (*create)(struct glk_drv *drv, struct glk_place place, size_t size,
		uint32_t flags, uint64_t *ret_page);
	/* The memory goes when the last mapping has gone. */
	int (*release)(struct glk_drv *drv, uint64_t page);

	/* A page is mapped whole. No access until set_access. */
	int (*map)(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t page);
	/* [addr, addr + size) is a run of whole mappings. Places that no grant names keep the
	 * rights they have. */
	int (*set_access)(struct glk_drv *drv, uint64_t addr, size_t size,
		const struct glk_grant *grants, size_t count);
	/* What is mapped in a run is read from now on and not written, whatever the rights: a driver that judges
	 * refuses work that is queued later and would write there. */
	int (*promise)(struct glk_drv *drv, uint64_t addr, size_t size);
	int (*unmap)(struct glk_drv *drv, uint64_t addr, size_t size);

	int (*export_fd)(
		struct glk_drv *drv, uint64_t page, int *ret_fd); /* optional; gives fd */
	/* optional; fd stays the caller's */
	int (*import_fd)(struct glk_drv *drv, int fd, uint64_t *ret_page);
	/* optional; where the memory of a page lies, an imported one too */
	int (*page_place)(
		struct glk_drv *drv, uint64_t page, struct glk_place *ret_place);
	/* optional; a dma-buf of mapped addresses in whole pages of the host; gives fd. -EINVAL
	 * where the driver makes none over these mappings. */
	int (*dmabuf_fd)(struct glk_drv *drv, uint64_t addr, size_t size, int *ret_fd);
	/* optional; whether a GPU can be given access to memory of another one */
	int (*peer_can)(struct glk_drv *drv, int device, int peer, bool *ret_can);

	/* Streams and events. Events carry no timing. */
	int (*stream_new)(
		struct glk_drv *drv, int device, struct CUstream_st **ret_stream);
	/* Waits for the work of the stream, then ends it. */
	int (*stream_free)(struct glk_drv *drv, int device, struct CUstream_st *stream);
	int (*stream_sync)(struct glk_drv *drv, int device, struct CUstream_st *stream);
	/* Legal while the stream captures. The default streams are those of the GPU named. It is asked where nobody
	 * has put cancellation off: a backend in which a thread must not end does so. */
	int (*stream_facts)(struct glk_drv *drv, int device, struct CUstream_st *stream,
		struct glk_stream_facts *ret_facts);
	/* 0 if the stream is of that GPU and of the context the library uses there; -EINVAL if it
	 * is of another, or is no stream (any more), -EBUSY if it is in a broken capture. The
	 * default streams are of every GPU. */
	int (*stream_owner)(struct glk_drv *drv, int device, struct CUstream_st *stream);
	int (*device_sync)(struct glk_drv *drv, int device);
	int (*event_new)(
		struct glk_drv *drv, int device, struct glk_drv_event **ret_event);
	int (*event_free)(struct glk_drv *drv, struct glk_drv_event *event);
	int (*event_record)(struct glk_drv *drv, struct glk_drv_event *event,
		struct CUstream_st *stream);
	/* 0 done, -EAGAIN pending. Safe while another stream captures a graph. */
	int (*event_query)(struct glk_drv *drv, struct glk_drv_event *event);
	/* Waits until it is done. Safe while another stream captures a graph. */
	int (*event_sync)(struct glk_drv *drv, struct glk_drv_event *event);
	int (*stream_wait)(struct glk_drv *drv, struct CUstream_st *stream,
		struct glk_drv_event *event);

	/*
	 * Events as a program makes them itself: native handles, for which the capture of a graph
	 * means what it means to the program. Recorded on a capturing stream, an event belongs to
	 * the graph, and a stream that waits for it joins the capture. Recorded on streams of its
	 * GPU; a stream of any GPU may wait.
	 */
	int (*user_event_new)(
		struct glk_drv *drv, int device, struct CUevent_st **ret_event);
	int (*user_event_free)(struct glk_drv *drv, struct CUevent_st *event);
	int (*user_event_record)(struct glk_drv *drv, int device,
		struct CUevent_st *event, struct CUstream_st *stream);
	/* `device` is the GPU of the stream. */
	int (*user_event_wait)(struct glk_drv *drv, int device,
		struct CUstream_st *stream, struct CUevent_st *event);

	/* Copies and fills, queued on a stream; addresses of pages or of host memory. */
	int (*copy)(struct glk_drv *drv, uint64_t dst, uint64_t src, size_t size,
		struct CUstream_st *stream);
	/* The GPU on whose default stream a copy between two addresses is: that of dst's memory,
	 * else that of src's, else one that can make it. */
	int (*copy_gpu)(struct glk_drv *drv, uint64_t dst, uint64_t src, int *ret_device);
	/* count words of 32 bits. */
	int (*fill)(struct glk_drv *drv, uint64_t dst, uint32_t value, size_t count,
		struct CUstream_st *stream);

	/*
	 * Kernels, optional. A module is made of text for the GPU named, in the context that the library uses there,
	 * -EOPNOTSUPP where the driver cannot make it; not while a stream of the caller's captures. kernel_find gives what
	 * launch takes. launch queues it on a stream of that GPU, which captures nothing.
	 */
	int (*module_load)(
		struct glk_drv *drv, int device, const char *text, uint64_t *ret_module);
	int (*module_free)(struct glk_drv *drv, int device, uint64_t module);
	int (*kernel_find)(struct glk_drv *drv, int device, uint64_t module,
		const struct glk_kernel *kernel, uint64_t *ret_kernel);
	int (*launch)(struct glk_drv *drv, int device, const struct glk_launch *launch,
		struct CUstream_st *stream);
	/* Optional: work that is queued on a stream of that GPU from then on waits for a number of a gate. The stream captures
	 * nothing. Whoever opens it must not wait for what may itself wait for the stream: unmap does not. After an error the
	 * stream may write the number, and does not wait for it: it is not asked for again. */
	int (*gate)(struct glk_drv *drv, int device, struct CUstream_st *stream,
		struct glk_drv_gate *words, uint32_t number);

	/* Locks host memory in place, whole pages of the system, so that all GPUs copy from and to
	 * it at the speed of the link; and lets it go, when no copy of it is under way. It is locked
	 * as long as the GPU named has its own context, whatever contexts the program makes and ends;
	 * the same GPU lets it go. */
	int (*host_lock)(struct glk_drv *drv, int device, void *ptr, size_t size);
	int (*host_unlock)(struct glk_drv *drv, int device, void *ptr);
	/* Optional, of a driver that makes up the host too, where the system's calls tell of another one: what was locked
	 * shall lie on a NUMA node, as far as that has room; *node is where it does. */
	int (*host_node)(struct glk_drv *drv, void *ptr, int *node);

	/* What lies at a range of addresses. 0, and GLK_SPOT_OTHER for whatever is not known. */
	int (*spot)(struct glk_drv *drv, uint64_t addr, size_t size,
		struct glk_spot *ret_spot);
	/* Optional: what the links of a GPU carry, where that need not be measured. */
	int (*link_get)(struct glk_drv *drv, int device, struct glk_link *ret_link);

	/* Optional: before the first page on a NUMA node of the host, where the driver may do worse than
	 * refuse it: makes sure of that, up to seconds long, once in a process; `always`: also of a driver
	 * that is known to be sound. One that does not answer is waited for once, for 20 s. 0; -EOPNOTSUPP: no such page shall be asked for; or -EAGAIN: nor now,
	 * and who wants the next one asks again. */
	int (*node_try)(struct glk_drv *drv, int node, bool always);

	/*
	 * Managed memory, optional: addresses that GPUs and the host use alike, whose memory the
	 * driver moves to who touches it. -EOPNOTSUPP (class UNSUPPORTED) where the GPU has none, or
	 * none that both may use at the same time.
	 */
	int (*managed_alloc)(
		struct glk_drv *drv, int device, size_t size, uint64_t *ret_addr);
	/* The address is one that managed_alloc gave. Waits for all work of the GPUs. */
	int (*managed_free)(struct glk_drv *drv, uint64_t addr);
	/* The next three: a range in one piece of managed memory. A place of the host is a NUMA node,
	 * or any. */
	int (*managed_say)(struct glk_drv *drv, uint64_t addr, size_t size,
		enum glk_managed_say what, struct glk_place place);
	/* Moves it, in the order of a stream of GPU `device`. Not while that captures a graph. */
	int (*managed_prefetch)(struct glk_drv *drv, uint64_t addr, size_t size,
		struct glk_place place, int device, struct CUstream_st *stream);
	/* -ENOENT without a record: nowhere, or not all of it the same. */
	int (*managed_ask)(struct glk_drv *drv, uint64_t addr, size_t size,
		enum glk_managed_ask what, struct glk_place *ret_place);

	/* Optional in a backend. With a modelled clock it fills `ns` and `now_ns` with the
	 * modelled times of all calls so far and leaves `calls` alone; the count wrapper adds
	 * its calls, and its measured times where a backend has none. */
	int (*figures)(struct glk_drv *drv, struct glake_driver_stats *ret_stats);
	/* The times of single calls, GLAKE_CALL_COUNT kinds: of the count wrapper, which asks a
	 * backend that has them modelled. NULL in others. */
	const struct glk_times *(*times)(struct glk_drv *drv);
};

/* The head of every instance; backends and wrappers embed it first in a larger structure. */
struct glk_drv {
	const struct glk_drv_ops *ops;
	struct glk_drv *inner; /* what a wrapper stands on; NULL in a backend */
};

int glk_drv_close(struct glk_drv *drv);

/* Memory of a handle at addresses of its own, for one who may use it. 0, or the driver's error: with *ret_addr where it
 * keeps the memory mapped there, and else 0. */
int glk_drv_place(struct glk_drv *drv, size_t size, size_t align, uint64_t handle,
	const struct glk_grant *grant, uint64_t *ret_addr);

/*
 * nvml.c: bytes that NVML says this process has on the GPU of a UUID, all of them: contexts, code, what libraries made
 * for themselves. 0; -ENODEV: there is no NVML (libnvidia-ml.so.1), or it does not know the GPU; -ENOENT: it lists
 * processes and not this one, which has nothing there or process ids of its own, as in a container; -EOPNOTSUPP: it
 * does not tell bytes. Under no lock that a hit wants: some 100 us.
 */
int glk_nvml_used(const char *uuid, uint64_t *ret_bytes);

/* The CUDA driver API version, 13000 for 13.0; 0 on the software device. */
int glk_drv_version(struct glk_drv *drv);
/* "soft" or "cuda", whatever wraps it. */
const char *glk_drv_name(struct glk_drv *drv);

#endif
