/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_PRELOAD_H
#define GLK_FRONT_PRELOAD_H

/*
 * libglake-preload.so: a program that was started with it gets its GPU memory from glake and
 * knows nothing of it. The functions of the CUDA driver that give and take memory stand here
 * under their own names, in front of the driver's; whoever looks one up gets ours:
 *
 *	by symbol		the dynamic linker finds this library first
 *	by dlsym		ours, which answers for libcuda.so.1 and is the C library's for
 *				everything else
 *	by cuGetProcAddress	ours, both versions; what the driver answers is replaced when it
 *				is a function that we stand in front of
 *
 * The CUDA runtime, shared or linked into the program, finds the driver in the second way and
 * its functions in the third, and so do cudaGetDriverEntryPoint and all libraries above it.
 * So cudaMalloc and its kin need no hook: they check their arguments, make the context, call
 * our driver functions, and keep their own last error.
 *
 * What a hook does not serve it hands to the next function of that name, with the arguments as
 * they came: pointers that are not ours, contexts other than the primary one of a GPU, requests
 * while a stream captures a graph, refused arguments, everything in a forked child. Hooks keep
 * no state of a block, but for those that have a handle for other processes; whether an address
 * is ours only the library knows.
 *
 * Rules
 *  - the library below never reaches a hook: it finds the driver through glake_preload_dlsym,
 *    and a thread that is inside it is marked besides
 *  - nothing is called that a capture forbids: queries and waits have the capture mode of the
 *    thread exchanged
 *  - one GPU, one context of the library: resetting a GPU ends that one and no other
 *
 * The files stand on each other one way, in the order in which they are declared here: what a hook
 * begins with (mode, next, library); GPUs, streams, memory that others have (ipc), blocks; the
 * hooks, a file for each kind of them; find, which names them all, and life.
 */
#include "front/preload/table.h"

#include "base/atomic.h"

#include <pthread.h>
#include <stdbool.h>

#include <glake/glake.h>

#define GLK_PRELOAD_GPUS_MAX 64
#define GLK_PRELOAD_SHARDS   16

/* A hook exists under its name for the whole program. */
#define GLK_PRELOAD_DECLARE(fn, symbol, version, streams, group, parameters, arguments)  \
	GLAKE_EXPORT glk_cu_result fn parameters;
GLK_PRELOAD_HOOKS(GLK_PRELOAD_DECLARE)
#undef GLK_PRELOAD_DECLARE

/* clang-format off */
#define GLK_PRELOAD_ID(fn, symbol, version, streams, group, parameters, arguments)       \
	GLK_PRELOAD_##fn,
enum glk_preload_id {
	GLK_PRELOAD_HOOKS(GLK_PRELOAD_ID)
	GLK_PRELOAD_COUNT,
};
#undef GLK_PRELOAD_ID
/* clang-format on */

/* The functions behind ours, and those we call: NULL where there is none. */
struct glk_preload_next {
#define GLK_PRELOAD_NEXT(fn, symbol, version, streams, group, parameters, arguments)     \
	glk_cu_result(*fn) parameters;
	GLK_PRELOAD_HOOKS(GLK_PRELOAD_NEXT)
#undef GLK_PRELOAD_NEXT
#define GLK_PRELOAD_CALL(fn, parameters) glk_cu_result(*fn) parameters;
	GLK_PRELOAD_CALLS(GLK_PRELOAD_CALL)
#undef GLK_PRELOAD_CALL
	bool complete; /* all that we call is there */
};

/* mode.c: whether hooks are served, which is known before main. */
typedef void glk_preload_fn(void);

int glk_preload_log_level(void);
void glk_preload_log_level_set(const char *name);
/* Not without a driver, with GLAKE_DISABLE, with more rights than the user, at exit, or in a
 * forked child. */
bool glk_preload_active(void);
/* With GLAKE_DISABLE, or with more rights than the user. */
bool glk_preload_inert(void);
/* The one lock, for what is done rarely; none of the others' functions is called under it. */
extern pthread_mutex_t glk_preload_lock;
/* Where a thread is inside the library, or in calls of ours that shall reach nobody. */
extern _Thread_local bool glk_preload_inside;
/* From the first context on the end of the process is watched for and children are not served. */
void glk_preload_started(void);
/* What is done then, besides. */
void glk_preload_on_exit(glk_preload_fn *fn);
void glk_preload_stop(void);
bool glk_preload_stopped(void);
void glk_preload_child(void);

/* Ways to a hook. */
enum glk_preload_route {
	GLK_PRELOAD_BY_CALL = 1, /* someone called it: by symbol, if in no other way */
	GLK_PRELOAD_BY_DLSYM = 2,
	GLK_PRELOAD_BY_PROC = 4,
};

/* Each hook begins with it: whether it is to be served. Frees are looked at in the end too. */
bool glk_preload_called(enum glk_preload_id id);
/* A program was given the address of a hook. */
void glk_preload_reach(enum glk_preload_id id, enum glk_preload_route route);
/* Ways by which a hook was reached so far. */
unsigned glk_preload_routes(enum glk_preload_id id);

/* One line to stderr, as the library writes them. */
void glk_preload_log(int level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * next.c: the next functions. Never NULL; without a driver all of it is. Hands an
 * unserved call on: the driver's answer, or that there is none.
 */
const struct glk_preload_next *glk_preload_next(void);
#define GLK_PRELOAD_PASS(fn, ...)                                                        \
	(glk_preload_next()->fn ? glk_preload_next()->fn(__VA_ARGS__)                    \
				: (glk_cu_result)GLK_CU_NOT_INITIALIZED)

/* Runs before the library is set up, when a sanitizer that is loaded first looks up what it
 * stands in front of itself. */
#define GLK_PRELOAD_EARLY __attribute__((no_sanitize("address", "thread")))

/* The C library's dlsym, and the driver's library: NULL while nobody has loaded it. */
typedef void *glk_preload_dlsym_fn(void *handle, const char *name);
glk_preload_dlsym_fn *glk_preload_dlsym(void);
void *glk_preload_driver(void);
/* Any library, likewise; its handle is kept where the caller says. */
void *glk_preload_loaded(const char *name, glk_atomic(void *) * kept);
/* For libglake, so that it finds the driver itself. */
GLAKE_EXPORT void *glake_preload_dlsym(void *handle, const char *name);

/* library.c: what is called of libglake, as a table. It may be called where there is a
 * seat, and where loading has answered true: false is said once, and nothing is served then. */
/* clang-format off */
#define GLK_PRELOAD_LIBRARY(F)							\
	F(alloc) F(close) F(conf_key_get) F(conf_value_get) F(device_count)	\
	F(device_get) F(event_forget) F(event_recorded) F(export_end)	\
	F(export_fds) F(export_gone) F(export_list) F(free) F(free_after) \
	F(last_error) F(mirror_close) F(mirror_end) F(mirror_new)	\
	F(mirror_open) F(mirror_trim) F(open) F(peer_access) F(pool_begin_for) F(pool_end)	\
	F(query) F(quota_get) F(quota_pass) F(stats_get) F(stats_reset) F(stream_end) F(stream_free) F(stream_new)	\
	F(stream_waited) F(trim) F(version_string)
/* clang-format on */

struct glk_preload_library {
#define GLK_PRELOAD_MEMBER(name) __typeof__(glake_##name) *name;
	GLK_PRELOAD_LIBRARY(GLK_PRELOAD_MEMBER)
#undef GLK_PRELOAD_MEMBER
};

extern struct glk_preload_library glk_library;
/* With no lock held. */
bool glk_preload_library_load(void);
void glk_preload_library_child(void);
/* The keys of the preload, read once the driver is loaded. */
struct glk_preload_conf {
	bool free_waits;  /* cuMemFree waits for the GPU, as the driver's does */
	bool serve_plain; /* cuMemAlloc is served, and not only cuMemAllocAsync */
	bool events;	  /* the program's events are noted */
	bool quota;	  /* there is one, or may be */
};

const struct glk_preload_conf *glk_preload_conf(void);

/*
 * gpu.c: a GPU whose memory comes from the library. Seats are written once and never
 * freed; a reset of the GPU makes a new one.
 */
struct glk_preload_seat {
	struct CUctx_st *context; /* the primary one */
	struct glake *glake;
	int device;
	/* Never has work: plain memory is given and taken on it. */
	struct CUstream_st *idle;
	struct CUmemPoolHandle_st *pool; /* the default one of the driver */
	int captures;			 /* under the lock */
	/* For a reset: threads that are inside the library about it, and that none shall come. */
	struct {
		_Alignas(64) glk_atomic(int) inside;
	} shard[GLK_PRELOAD_SHARDS];
	glk_atomic(bool) closing;
};

/* The functions with the suffix _ptsz take NULL for the stream of the thread. */
static inline struct CUstream_st *glk_preload_of_thread(struct CUstream_st *stream)
{
	return stream ? stream : GLK_CU_STREAM_PER_THREAD;
}

/* Calls of the library about a seat stand between these two. False, and no
 * call, where its GPU is being reset or has been. They do not nest. */
bool glk_preload_in(struct glk_preload_seat *seat);
void glk_preload_out(struct glk_preload_seat *seat);
/* Returns when no thread is between them, and none will be. */
void glk_preload_seat_shut(struct glk_preload_seat *seat);
/* Takes a seat away, so that no thread finds it and none is made until the end; NULL if there
 * is none. */
struct glk_preload_seat *glk_preload_seat_take(int device);
void glk_preload_seat_take_end(int device);

/* Is called of each seat that is made. */
typedef void glk_preload_seat_fn(struct glk_preload_seat *seat);
void glk_preload_on_seat(glk_preload_seat_fn *fn);
/* Says what went through the library of a GPU. */
void glk_preload_report_seat(struct glk_preload_seat *seat);
/* The seat of the current context, or of that of a stream, made at first; NULL: not served. A
 * stream that captures a graph is not. */
struct glk_preload_seat *glk_preload_seat(void);
struct glk_preload_seat *glk_preload_seat_of_stream(struct CUstream_st *stream);
/* The same without making one, capturing or not. */
struct glk_preload_seat *glk_preload_seat_known(struct CUstream_st *stream);
/* The GPU of a context, which is its primary one; -1 if it is none. */
int glk_preload_gpu_of(struct CUctx_st *context);
/* The context of a stream; NULL if it cannot be told. */
struct CUctx_st *glk_preload_context(struct CUstream_st *stream);
/* That of a GPU; NULL for one that has none. */
struct glk_preload_seat *glk_preload_seat_at(int device);
bool glk_preload_captures(struct CUstream_st *stream);
/* Memory of the driver's pools is not served from now on. */
void glk_preload_pools_leave(int device, bool leave);
bool glk_preload_pools_left(int device);

/* Makes a context current for some calls, with the capture mode relaxed. */
struct glk_preload_scope {
	bool pushed, relaxed;
	glk_cu_capture_mode mode;
};

glk_cu_result glk_preload_enter(
	struct CUctx_st *context, struct glk_preload_scope *ret_scope);
void glk_preload_leave(struct glk_preload_scope *scope);

/* Where this is returned, the next function is to be called. */
#define GLK_PRELOAD_UNSERVED ((glk_cu_result)-1)

/*
 * stream.c: captures that the program has begun. The wait of cuMemFree would end one,
 * and so would one of the library's, which hears of them.
 */
bool glk_preload_capturing(void);

/*
 * ipc.c, and what stands beside it: memory that other processes have open, and memory of
 * others. Whether an address is in the latter, and its whole.
 */
bool glk_preload_ipc_range(
	glk_cu_address ptr, glk_cu_address *ret_base, size_t *ret_size);
/* A number of a live block that no other has; 0: none. */
uint64_t glk_preload_ipc_number(struct glk_preload_seat *seat, void *ptr);
/* A block is about to be freed: its handle is no good from now on. Its number, if it has one. */
uint64_t glk_preload_ipc_unhand(const void *ptr);
/* It is, and nothing uses it: processes that have it open are told so when it is time. */
void glk_preload_ipc_freed(uint64_t id);
/* A GPU is about to be reset, after which blocks of others there are gone too. */
void glk_preload_ipc_leave(const struct glk_preload_seat *seat);
void glk_preload_ipc_drop(const struct glk_preload_seat *seat);
/* Has other processes let go of pages that went back to the driver. Whether they did, and it may be
 * asked for memory once more; waits for a second at most. */
bool glk_preload_ipc_reclaim(void);
/* In a child closes all of it. */
void glk_preload_ipc_child(void);
void glk_preload_ipc_fds_lock(void);
void glk_preload_ipc_fds_unlock(void);

/* block.c: blocks. */

/* Memory usable by all streams at once. */
glk_cu_result glk_preload_give_plain(
	struct glk_preload_seat *seat, size_t size, glk_cu_address *ret);
/* Memory in the order of a stream. */
glk_cu_result glk_preload_give(struct glk_preload_seat *seat, size_t size,
	struct CUstream_st *stream, glk_cu_address *ret);
glk_cu_result glk_preload_take_plain(glk_cu_address ptr);
glk_cu_result glk_preload_take(glk_cu_address ptr, struct CUstream_st *stream);
/* The live block around an address, and its seat. 0; -ENOENT not ours at all; -EINVAL ours, but
 * no live block. */
int glk_preload_find(glk_cu_address ptr, struct glk_preload_seat **ret_seat,
	struct glake_block *ret_block);
/* Waits for the work of a GPU. */
glk_cu_result glk_preload_wait(struct glk_preload_seat *seat);
/* Blocks of cuMemFree that wait for the end of captures. */
bool glk_preload_is_late(const void *ptr);
void glk_preload_late_drop(struct glk_preload_seat *seat);

/* pool.c: whether requests from a pool of the program may be served. */
bool glk_preload_pool_serves(
	const struct glk_preload_seat *seat, struct CUmemPoolHandle_st *pool);

/*
 * quota.c: what a quota leaves of a GPU, and what the program sees as its whole memory; false: there is none.
 */
bool glk_preload_quota(int device, uint64_t *ret_free, uint64_t *ret_limit);
/* Memory that the driver is to give, of the current GPU with `device` -1. False: the quota has no room for it. */
enum glk_preload_kind {
	GLK_PRELOAD_ADDRESS,
	GLK_PRELOAD_PAGE,
	GLK_PRELOAD_ARRAY,
	GLK_PRELOAD_KINDS
};
struct glk_preload_passing {
	int device; /* -1: no quota counts it */
	size_t bytes;
};

bool glk_preload_pass(
	bool serves, int device, size_t bytes, struct glk_preload_passing *ret);
/* It has, under this name, or has not. */
void glk_preload_passed(const struct glk_preload_passing *passing, glk_cu_result result,
	enum glk_preload_kind kind, uint64_t name);
/* Says how much that was, where a process ends. */
void glk_preload_report_passed(void);
/* It has what bears the name back. */
void glk_preload_unpass(enum glk_preload_kind kind, uint64_t name);
void glk_preload_quota_child(void);
/* What dlsym answers for NVML in place of what it finds; false to leave that. */
bool glk_preload_nvml_find(
	glk_preload_dlsym_fn *next, void *handle, const char *name, void **ret_found);

/* find.c */
const char *glk_preload_name(enum glk_preload_id id);

#endif
