/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_TORCH_H
#define GLK_FRONT_TORCH_H

/*
 * What PyTorch's CUDAPluggableAllocator calls, and what the Python module calls beside it. The
 * signatures are PyTorch's; functions of C++ types stand here as the same calls in C.
 *
 * An allocation that fails has no way to say so but an exception of C++: see torch_raise.c.
 * Everything between such a call and PyTorch is compiled to be unwound.
 */
#include <glake/glake.h>

#include <stdbool.h>

/* MempoolId_t, a std::pair of integers: passed in two registers, as this is. */
struct glk_torch_pool_id {
	uint64_t first, second;
};

/* torch_context.c: the context of this process, opened at the first call and never closed;
 * NULL if there is none, and why in *ret_why. */
GLAKE_EXPORT struct glake *glake_torch_context(void);
GLAKE_EXPORT const char *glake_torch_why(void);
/* The version of this plug-in, which the library below it may have or a newer one. */
GLAKE_EXPORT const char *glake_torch_version(void);
/* Whether it was opened, without opening it. */
GLAKE_EXPORT int glake_torch_opened(void);

/* torch.c */
GLAKE_EXPORT void glake_torch_init(int devices);
GLAKE_EXPORT void *glake_torch_alloc(size_t size, int device, struct CUstream_st *stream);
GLAKE_EXPORT void glake_torch_free(
	void *ptr, size_t size, int device, struct CUstream_st *stream);
/* For torch_allocator.cc. The request alone: 0 or an error of glake_alloc. */
GLAKE_EXPORT int glake_torch_request(
	size_t size, int device, struct CUstream_st *stream, void **ret_ptr);
/* After one that failed: what to tell the program, in at most GLAKE_TORCH_REFUSAL_MAX bytes. */
#define GLAKE_TORCH_REFUSAL_MAX (4 * GLAKE_ERROR_TEXT_MAX)
GLAKE_EXPORT void glake_torch_refusal(
	size_t size, int device, char *ret_text, size_t room);
/* For the history of torch_history.c: a block was given; with a size of 0, it is taken back. */
GLAKE_EXPORT void glake_torch_tell(
	void *ptr, size_t size, int device, struct CUstream_st *stream);
GLAKE_EXPORT void *glake_torch_try_alloc(
	size_t size, int device, struct CUstream_st *stream);
GLAKE_EXPORT void glake_torch_give_back(void *ptr);
GLAKE_EXPORT void glake_torch_reset(void);
GLAKE_EXPORT void glake_torch_memory_fraction(double fraction, int device);
GLAKE_EXPORT void *glake_torch_base_alloc(void *ptr, size_t *ret_size);
GLAKE_EXPORT int glake_torch_record_stream(void *ptr, struct CUstream_st *stream);

/* torch_pool.c: memory of graphs. `filter` is a std::function<bool(cudaStream_t)>. */
struct glk_torch_function;
GLAKE_EXPORT void glake_torch_begin_pool(
	int device, struct glk_torch_pool_id id, struct glk_torch_function *filter);
GLAKE_EXPORT void glake_torch_end_pool(int device, struct glk_torch_pool_id id);
GLAKE_EXPORT void glake_torch_release_pool(int device, struct glk_torch_pool_id id);
/* Whether any pool is open. */
bool glk_torch_pools_open(void);
/* Finds the pool of the request that this thread makes next, in PyTorch's way; may throw. */
void glk_torch_pool_choose(int device, struct CUstream_st *stream);
/* The next request of this thread goes to none. */
void glk_torch_pool_choose_none(void);

/* torch_peers.c: whether a GPU was used before, and what to do when it was not. */
bool glk_torch_peers_known(int device);
void glk_torch_peers_meet(struct glake *ctx, int device);

/* torch_profile.c: looks for what PyTorch's profiler is told by; whether it listens to this
 * thread; tells it of a block that was given, or with less than 0 bytes taken back. */
void glk_torch_profile_find(void);
bool glk_torch_profile_on(void);
void glk_torch_profile_tell(struct glake *ctx, void *ptr, int64_t bytes, int device);

/* torch_raise.c. The exception of `text`, if there is a way to throw one: then it does not
 * return. Else it returns, and has said so on stderr once. */
typedef void (*glk_torch_raise_fn)(int out_of_memory, const char *text);
GLAKE_EXPORT void glake_torch_raise_with(glk_torch_raise_fn fn);
void glk_torch_raise(bool out_of_memory, const char *text);
/* A function of libc10 by its name; NULL where PyTorch is not loaded or has none. */
void *glk_torch_c10(const char *name);
/* What would be thrown now: 2 PyTorch's OutOfMemoryError, 1 its Error, 0 nothing. */
GLAKE_EXPORT int glake_torch_raises(void);

/* torch_segment.c: memory in the manner of cudaMalloc and cudaFree, for torch.cuda.MemPool. */
GLAKE_EXPORT void *glake_torch_segment_alloc(
	size_t size, int device, struct CUstream_st *stream);
/* The same in managed memory, see glake/managed.h; and more of it than the GPU has room for. */
GLAKE_EXPORT void *glake_torch_managed_alloc(
	size_t size, int device, struct CUstream_st *stream);
GLAKE_EXPORT void *glake_torch_managed_over_alloc(
	size_t size, int device, struct CUstream_st *stream);
GLAKE_EXPORT void glake_torch_segment_free(
	void *ptr, size_t size, int device, struct CUstream_st *stream);

/* torch_shortage.c: what is asked of a function in Python that makes room, see glake_shortage_set. */
struct glake_torch_shortage {
	uint64_t number; /* 0: none */
	uint64_t want, stream;
	int64_t deadline_ns;
	int device;
};

/* Whether requests ask, one after the other; as glake_shortage_set. Without Python's lock, as the next. */
GLAKE_EXPORT int glake_torch_shortage_set(int on);
/* The one thread that serves them waits until there is another one than it was told of last. */
GLAKE_EXPORT void glake_torch_shortage_next(struct glake_torch_shortage *ret_asked);
/* With Python's lock: takes it up, if it still waits for that; and then has ended it. Blocks for no
 * thread that waits for anything. */
GLAKE_EXPORT int glake_torch_shortage_begin(uint64_t number);
GLAKE_EXPORT void glake_torch_shortage_end(size_t freed);

/* torch_history.c */
enum glk_torch_action {
	GLK_TORCH_ALLOC = 0,
	GLK_TORCH_FREE = 1,
	GLK_TORCH_OOM = 2,
};

struct glake_torch_record {
	uint64_t address; /* of an OOM the bytes that the GPU has free */
	uint64_t size;	  /* as asked for */
	uint64_t stream;
	int64_t time_us; /* of the calendar */
	int32_t device;
	int32_t action; /* enum glk_torch_action */
	uint64_t stack; /* who asked for it, see front/torch_stack.h; 0: not known */
};

/* torch_context.c: whether a tool wants names of tensors. torch_name.c: gives it that of one, by who holds no lock. */
bool glk_torch_names_on(void);
void glk_torch_name(struct glake *ctx, const void *ptr);

/* Most events kept, and blocks told apart at a time. */
#define GLK_TORCH_EVENTS_MAX ((size_t)1 << 22)
#define GLK_TORCH_BLOCKS_MAX ((size_t)1 << 19)

/*
 * Begins to remember the last `events` requests and frees and all blocks given from now on; 0
 * ends that and forgets. More than GLK_TORCH_EVENTS_MAX are as many. 0 or -ENOMEM.
 */
GLAKE_EXPORT int glake_torch_history(size_t events);
/* Copies the events, oldest first, or with `live` the blocks; as many as `room` has place for.
 * Returns how many there are. */
GLAKE_EXPORT size_t glake_torch_history_get(
	int live, struct glake_torch_record *ret_records, size_t room);
bool glk_torch_history_on(void);
/* With `asks_python` which lines asked for it, where stacks are taken. */
void glk_torch_history_alloc(const void *ptr, size_t size, int device,
	const struct CUstream_st *stream, bool asks_python);
/* Live blocks whose stack is known, as of glake_origins. */
size_t glk_torch_history_origins(
	uint64_t *cursor, struct glake_origin *ret_origins, size_t room);
void glk_torch_history_free(const void *ptr);
void glk_torch_history_oom(
	uint64_t free, size_t size, int device, const struct CUstream_st *stream);

#endif
