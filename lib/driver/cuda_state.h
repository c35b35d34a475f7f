/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_DRIVER_CUDA_STATE_H
#define GLK_DRIVER_CUDA_STATE_H

/* One instance of the CUDA backend, and what its files share. Inside the backend only. */
#include "base/atomic.h"
#include "base/slab.h"
#include "driver/cuda_lib.h"
#include "driver/driver.h"

/* As many as soft.gpus allows; more than the largest host has. */
#define GLK_CUDA_GPUS_MAX 64
/* Upper floors use one event for a batch of frees; the table costs addresses, not memory. */
#define GLK_CUDA_EVENTS_MAX 65536
/* Every GPU and as many NUMA nodes. */
#define GLK_CUDA_GRANTS_MAX (2 * GLK_CUDA_GPUS_MAX)

struct glk_cuda_gpu {
	glk_cu_device device;
	glk_atomic(struct CUctx_st *) context; /* the primary one, once retained */
	glk_atomic(uint64_t) id; /* the driver's number of it; 0: not known */
	glk_atomic(bool) reset;	 /* the program has ended it */
};

/* A slot of the event table, type-stable until close. */
struct glk_drv_event {
	glk_atomic(struct CUevent_st *) event; /* NULL: free */
	int device;
	uint32_t id;
};

struct glk_cuda {
	struct glk_drv drv; /* first */
	const struct glk_cuda_lib *lib;
	unsigned forks; /* fork generation of the process that opened it */
	int gpus;
	struct glk_cuda_gpu gpu[GLK_CUDA_GPUS_MAX];
	struct glk_slab events;
};

static inline struct glk_cuda *glk_cuda_of(struct glk_drv *drv)
{
	return (struct glk_cuda *)drv;
}

/* Opens an instance over a table; glk_cuda_open is this over the table of the process. */
int glk_cuda_new(const struct glk_cuda_lib *lib, struct glk_drv **ret_drv);

/*
 * What a call borrows of the thread: a context pushed, and the capture mode relaxed. Every
 * successful glk_cuda_enter... is ended by glk_cuda_leave, which gives both back.
 */
struct glk_cuda_scope {
	bool pushed;
	bool relaxed;
	glk_cu_capture_mode mode;
};

/* 0, or -ENODEV SHUTDOWN or FORKED: the driver may not be called at all. */
/* 0, or -ENODEV where the program has reset the context of a GPU: streams and events of ours are
 * gone with it, and the driver would follow their handles to nowhere. */
int glk_cuda_intact(struct glk_cuda *cuda, int device);
int glk_cuda_alive(const struct glk_cuda *cuda);

/* The primary context of a GPU, retained at first. -EINVAL: no such GPU. */
int glk_cuda_context(struct glk_cuda *cuda, int device, struct CUctx_st **ret_context);

/* Makes the primary context of a GPU current, retaining it at first. -EINVAL: no such GPU. */
int glk_cuda_enter(struct glk_cuda *cuda, int device, struct glk_cuda_scope *ret_scope);

/*
 * For calls that name no GPU: any context will do, and none is made. It fails only as
 * glk_cuda_alive does.
 */
int glk_cuda_enter_any(struct glk_cuda *cuda, struct glk_cuda_scope *ret_scope);

/* The context of a stream. The default streams are taken as those of GPU `device`. */
int glk_cuda_enter_stream(struct glk_cuda *cuda, struct CUstream_st *stream, int device,
	struct glk_cuda_scope *ret_scope);

/*
 * Lets the calling thread use functions that a stream capture forbids: while any thread
 * captures in global mode, or this one in thread-local mode, they would fail and end the
 * user's capture.
 */
void glk_cuda_relax(struct glk_cuda *cuda, struct glk_cuda_scope *scope);

void glk_cuda_leave(struct glk_cuda *cuda, struct glk_cuda_scope *scope);

/* Gives back every context retained. The last error of the driver, or 0. */
int glk_cuda_contexts_release(struct glk_cuda *cuda);

/* Ends every event that is left; their number. */
unsigned glk_cuda_events_end(struct glk_cuda *cuda);

/* Operations of the table, by file. */
int glk_cuda_device_count(struct glk_drv *drv, int *ret_count);
int glk_cuda_device_info(
	struct glk_drv *drv, int device, struct glake_device *ret_device);
int glk_cuda_memory_info(
	struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total);

int glk_cuda_reserve(struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr);
int glk_cuda_unreserve(struct glk_drv *drv, uint64_t addr, size_t size);
int glk_cuda_create(struct glk_drv *drv, struct glk_place place, size_t size,
	uint32_t flags, uint64_t *ret_page);
int glk_cuda_release(struct glk_drv *drv, uint64_t page);
int glk_cuda_map(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t page);
int glk_cuda_set_access(struct glk_drv *drv, uint64_t addr, size_t size,
	const struct glk_grant *grants, size_t count);
int glk_cuda_unmap(struct glk_drv *drv, uint64_t addr, size_t size);
int glk_cuda_export_fd(struct glk_drv *drv, uint64_t page, int *ret_fd);
int glk_cuda_import_fd(struct glk_drv *drv, int fd, uint64_t *ret_page);
int glk_cuda_page_place(struct glk_drv *drv, uint64_t page, struct glk_place *ret_place);
int glk_cuda_dmabuf_fd(struct glk_drv *drv, uint64_t addr, size_t size, int *ret_fd);
int glk_cuda_peer_can(struct glk_drv *drv, int device, int peer, bool *ret_can);

int glk_cuda_stream_new(struct glk_drv *drv, int device, struct CUstream_st **ret_stream);
int glk_cuda_stream_free(struct glk_drv *drv, int device, struct CUstream_st *stream);
int glk_cuda_stream_sync(struct glk_drv *drv, int device, struct CUstream_st *stream);
int glk_cuda_stream_facts(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_stream_facts *ret_facts);
int glk_cuda_stream_owner(struct glk_drv *drv, int device, struct CUstream_st *stream);
int glk_cuda_device_sync(struct glk_drv *drv, int device);
int glk_cuda_copy(struct glk_drv *drv, uint64_t dst, uint64_t src, size_t size,
	struct CUstream_st *stream);
int glk_cuda_copy_gpu(struct glk_drv *drv, uint64_t dst, uint64_t src, int *ret_device);
int glk_cuda_gate(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_drv_gate *gate, uint32_t number);
int glk_cuda_fill(struct glk_drv *drv, uint64_t dst, uint32_t value, size_t count,
	struct CUstream_st *stream);
int glk_cuda_spot(
	struct glk_drv *drv, uint64_t addr, size_t size, struct glk_spot *ret_spot);
int glk_cuda_host_lock(struct glk_drv *drv, int device, void *ptr, size_t size);
int glk_cuda_host_unlock(struct glk_drv *drv, int device, void *ptr);
int glk_cuda_module_load(
	struct glk_drv *drv, int device, const char *text, uint64_t *ret_module);
int glk_cuda_module_free(struct glk_drv *drv, int device, uint64_t module);
int glk_cuda_kernel_find(struct glk_drv *drv, int device, uint64_t module,
	const struct glk_kernel *kernel, uint64_t *ret_kernel);
int glk_cuda_launch(struct glk_drv *drv, int device, const struct glk_launch *launch,
	struct CUstream_st *stream);
int glk_cuda_node_try(struct glk_drv *drv, int node, bool always);
/* For tests: how long a driver has to answer; 0 for as long as it has otherwise. */
void glk_cuda_node_patience(int64_t ns);
int glk_cuda_managed_alloc(
	struct glk_drv *drv, int device, size_t size, uint64_t *ret_addr);
int glk_cuda_managed_free(struct glk_drv *drv, uint64_t addr);
int glk_cuda_managed_say(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_say what, struct glk_place place);
int glk_cuda_managed_prefetch(struct glk_drv *drv, uint64_t addr, size_t size,
	struct glk_place place, int device, struct CUstream_st *stream);
int glk_cuda_managed_ask(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_ask what, struct glk_place *ret_place);

int glk_cuda_event_new(struct glk_drv *drv, int device, struct glk_drv_event **ret_event);
int glk_cuda_event_free(struct glk_drv *drv, struct glk_drv_event *event);
int glk_cuda_event_record(
	struct glk_drv *drv, struct glk_drv_event *event, struct CUstream_st *stream);
int glk_cuda_event_query(struct glk_drv *drv, struct glk_drv_event *event);
int glk_cuda_event_sync(struct glk_drv *drv, struct glk_drv_event *event);
int glk_cuda_stream_wait(
	struct glk_drv *drv, struct CUstream_st *stream, struct glk_drv_event *event);
int glk_cuda_promise(struct glk_drv *drv, uint64_t addr, size_t size);
int glk_cuda_user_event_new(
	struct glk_drv *drv, int device, struct CUevent_st **ret_event);
int glk_cuda_user_event_free(struct glk_drv *drv, struct CUevent_st *event);
int glk_cuda_user_event_record(struct glk_drv *drv, int device, struct CUevent_st *event,
	struct CUstream_st *stream);
int glk_cuda_user_event_wait(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct CUevent_st *event);

#endif
