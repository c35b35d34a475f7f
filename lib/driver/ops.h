/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_DRIVER_OPS_H
#define GLK_DRIVER_OPS_H

/*
 * The operations of the driver table as a list, so that what is the same for all of them
 * (counting, failing, passing on, answering "unsupported") is written once:
 *
 *	X(op, (parameters), (arguments for `inner`), kind of call)
 *
 * `close` and `figures` are not in it: no wrapper passes those on unchanged.
 */
#include "driver/driver.h"

/* clang-format off */
#define GLK_DRV_OPS(X)                                                                   \
	X(device_count, (struct glk_drv *drv, int *ret_count),                           \
		(inner, ret_count), OTHER)                                               \
	X(device_info, (struct glk_drv *drv, int device, struct glake_device *ret_device), \
		(inner, device, ret_device), OTHER)                                      \
	X(memory_info, (struct glk_drv *drv, int device, size_t *ret_free,               \
		size_t *ret_total),                                                      \
		(inner, device, ret_free, ret_total), OTHER)                             \
	X(reserve, (struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr), \
		(inner, size, align, ret_addr), RESERVE)                                 \
	X(unreserve, (struct glk_drv *drv, uint64_t addr, size_t size),                  \
		(inner, addr, size), UNRESERVE)                                          \
	X(create, (struct glk_drv *drv, struct glk_place place, size_t size,             \
		uint32_t flags, uint64_t *ret_page),                                     \
		(inner, place, size, flags, ret_page), CREATE)                           \
	X(release, (struct glk_drv *drv, uint64_t page),                                 \
		(inner, page), RELEASE)                                                  \
	X(map, (struct glk_drv *drv, uint64_t addr, size_t size, uint64_t page),         \
		(inner, addr, size, page), MAP)                                          \
	X(set_access, (struct glk_drv *drv, uint64_t addr, size_t size,                  \
		const struct glk_grant *grants, size_t count),                           \
		(inner, addr, size, grants, count), SET_ACCESS)                          \
	X(promise, (struct glk_drv *drv, uint64_t addr, size_t size),                    \
		(inner, addr, size), OTHER)                                              \
	X(unmap, (struct glk_drv *drv, uint64_t addr, size_t size),                      \
		(inner, addr, size), UNMAP)                                              \
	X(export_fd, (struct glk_drv *drv, uint64_t page, int *ret_fd),                  \
		(inner, page, ret_fd), EXPORT)                                           \
	X(import_fd, (struct glk_drv *drv, int fd, uint64_t *ret_page),                  \
		(inner, fd, ret_page), IMPORT)                                           \
	X(page_place, (struct glk_drv *drv, uint64_t page, struct glk_place *ret_place), \
		(inner, page, ret_place), OTHER)                                         \
	X(dmabuf_fd, (struct glk_drv *drv, uint64_t addr, size_t size, int *ret_fd),     \
		(inner, addr, size, ret_fd), EXPORT)                                     \
	X(peer_can, (struct glk_drv *drv, int device, int peer, bool *ret_can),          \
		(inner, device, peer, ret_can), OTHER)                                   \
	X(stream_new, (struct glk_drv *drv, int device, struct CUstream_st **ret_stream), \
		(inner, device, ret_stream), OTHER)                                      \
	X(stream_free, (struct glk_drv *drv, int device, struct CUstream_st *stream),    \
		(inner, device, stream), SYNC)                                           \
	X(stream_sync, (struct glk_drv *drv, int device, struct CUstream_st *stream),    \
		(inner, device, stream), SYNC)                                           \
	X(stream_facts, (struct glk_drv *drv, int device,                                \
		struct CUstream_st *stream, struct glk_stream_facts *ret_facts),         \
		(inner, device, stream, ret_facts), OTHER)                               \
	X(stream_owner, (struct glk_drv *drv, int device, struct CUstream_st *stream),   \
		(inner, device, stream), OTHER)                                          \
	X(device_sync, (struct glk_drv *drv, int device),                                \
		(inner, device), SYNC)                                                   \
	X(event_new, (struct glk_drv *drv, int device, struct glk_drv_event **ret_event), \
		(inner, device, ret_event), EVENT_CREATE)                                \
	X(event_free, (struct glk_drv *drv, struct glk_drv_event *event),                \
		(inner, event), OTHER)                                                   \
	X(event_record, (struct glk_drv *drv, struct glk_drv_event *event,               \
		struct CUstream_st *stream),                                             \
		(inner, event, stream), EVENT_RECORD)                                    \
	X(event_query, (struct glk_drv *drv, struct glk_drv_event *event),               \
		(inner, event), EVENT_QUERY)                                             \
	X(event_sync, (struct glk_drv *drv, struct glk_drv_event *event),                \
		(inner, event), SYNC)                                                    \
	X(stream_wait, (struct glk_drv *drv, struct CUstream_st *stream,                 \
		struct glk_drv_event *event),                                            \
		(inner, stream, event), STREAM_WAIT)                                     \
	X(user_event_new, (struct glk_drv *drv, int device, struct CUevent_st **ret_event), \
		(inner, device, ret_event), EVENT_CREATE)                                \
	X(user_event_free, (struct glk_drv *drv, struct CUevent_st *event),              \
		(inner, event), OTHER)                                                   \
	X(user_event_record, (struct glk_drv *drv, int device, struct CUevent_st *event, \
		struct CUstream_st *stream),                                             \
		(inner, device, event, stream), EVENT_RECORD)                            \
	X(user_event_wait, (struct glk_drv *drv, int device, struct CUstream_st *stream, \
		struct CUevent_st *event),                                               \
		(inner, device, stream, event), STREAM_WAIT)                             \
	X(copy, (struct glk_drv *drv, uint64_t dst, uint64_t src, size_t size,           \
		struct CUstream_st *stream),                                             \
		(inner, dst, src, size, stream), COPY)                                   \
	X(copy_gpu, (struct glk_drv *drv, uint64_t dst, uint64_t src, int *ret_device),  \
		(inner, dst, src, ret_device), OTHER)                                    \
	X(fill, (struct glk_drv *drv, uint64_t dst, uint32_t value, size_t count,        \
		struct CUstream_st *stream),                                             \
		(inner, dst, value, count, stream), COPY)                                \
	X(module_load, (struct glk_drv *drv, int device, const char *text,               \
		uint64_t *ret_module),                                                   \
		(inner, device, text, ret_module), OTHER)                                \
	X(module_free, (struct glk_drv *drv, int device, uint64_t module),               \
		(inner, device, module), OTHER)                                          \
	X(kernel_find, (struct glk_drv *drv, int device, uint64_t module,                \
		const struct glk_kernel *kernel, uint64_t *ret_kernel),                  \
		(inner, device, module, kernel, ret_kernel), OTHER)                      \
	X(launch, (struct glk_drv *drv, int device, const struct glk_launch *launch,     \
		struct CUstream_st *stream),                                             \
		(inner, device, launch, stream), OTHER)                                  \
	X(gate, (struct glk_drv *drv, int device, struct CUstream_st *stream,            \
		struct glk_drv_gate *words, uint32_t number),                            \
		(inner, device, stream, words, number), OTHER)                           \
	X(host_lock, (struct glk_drv *drv, int device, void *ptr, size_t size),          \
		(inner, device, ptr, size), OTHER)                                               \
	X(host_unlock, (struct glk_drv *drv, int device, void *ptr),                     \
		(inner, device, ptr), OTHER)                                                     \
	X(host_node, (struct glk_drv *drv, void *ptr, int *node),                        \
		(inner, ptr, node), OTHER)                                               \
	X(spot, (struct glk_drv *drv, uint64_t addr, size_t size,                        \
		struct glk_spot *ret_spot),                                              \
		(inner, addr, size, ret_spot), OTHER)                                    \
	X(link_get, (struct glk_drv *drv, int device, struct glk_link *ret_link),        \
		(inner, device, ret_link), OTHER)                                        \
	X(node_try, (struct glk_drv *drv, int node, bool always),                        \
		(inner, node, always), OTHER)                                            \
	X(managed_alloc, (struct glk_drv *drv, int device, size_t size,                  \
		uint64_t *ret_addr),                                                     \
		(inner, device, size, ret_addr), MANAGED_ALLOC)                          \
	X(managed_free, (struct glk_drv *drv, uint64_t addr),                            \
		(inner, addr), MANAGED_FREE)                                             \
	X(managed_say, (struct glk_drv *drv, uint64_t addr, size_t size,                 \
		enum glk_managed_say what, struct glk_place place),                      \
		(inner, addr, size, what, place), MANAGED_ADVISE)                        \
	X(managed_prefetch, (struct glk_drv *drv, uint64_t addr, size_t size,            \
		struct glk_place place, int device, struct CUstream_st *stream),         \
		(inner, addr, size, place, device, stream), MANAGED_PREFETCH)            \
	X(managed_ask, (struct glk_drv *drv, uint64_t addr, size_t size,                 \
		enum glk_managed_ask what, struct glk_place *ret_place),                 \
		(inner, addr, size, what, ret_place), OTHER)
/* clang-format on */

/* Number of each operation, in the order of the list. */
enum glk_drv_op {
#define X(op, params, args, call) GLK_OP_##op,
	GLK_DRV_OPS(X)
#undef X
		GLK_OP_COUNT,
};

/* A table in which every operation goes to drv->inner. `close` ends the inner one only. */
extern const struct glk_drv_ops glk_drv_pass;

/* A copy of a backend's table with stubs in the place of what it lacks; they answer
 * -EOPNOTSUPP and a record that names driver and operation. */
void glk_drv_fill(const struct glk_drv_ops *ops, struct glk_drv_ops *ret_ops);

/* The backend below all wrappers. */
struct glk_drv *glk_drv_bottom(struct glk_drv *drv);

#endif
