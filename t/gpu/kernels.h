/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_GPU_KERNELS_H
#define GLK_T_GPU_KERNELS_H

/*
 * Kernels that fill and check blocks, see kernels.cu, and what else a program does with CUDA
 * itself: streams, events and graphs of its own. No pool of CUDA's is touched.
 */
#include "gpu.h"
#include "kernels.ptx.h"

#define JIT_ABSENT 221 /* CUDA_ERROR_JIT_COMPILER_NOT_FOUND */

#define JOBS  16 /* blocks a launch */
#define NAMES 64 /* streams that are told apart */

#define ROUNDS 16

struct gpu_job {
	uint64_t base, tag, words;
};

struct gpu_jobs {
	struct gpu_job at[JOBS];
};

/* What the kernels count. */
struct gpu_counters {
	uint64_t handed;	/* blocks whose memory another stream wrote last */
	uint64_t wrong;		/* words */
	uint64_t found, wanted; /* one of them */
};

struct gpu_work {
	int (*stream_create)(struct CUstream_st **stream, unsigned flags);
	int (*stream_destroy)(struct CUstream_st *stream);
	int (*stream_sync)(struct CUstream_st *stream);
	int (*event_create)(struct CUevent_st **event, unsigned flags);
	int (*event_destroy)(struct CUevent_st *event);
	int (*event_record)(struct CUevent_st *event, struct CUstream_st *stream);
	int (*stream_wait)(
		struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
	int (*sync)(void);
	int (*mem_alloc)(uint64_t *addr, size_t size);
	int (*mem_free)(uint64_t addr);
	int (*mem_read)(void *to, uint64_t from, size_t size);
	int (*mem_clear)(uint64_t addr, unsigned char value, size_t size);
	int (*instantiate)(void **exec, void *graph, unsigned long long flags);
	int (*graph_launch)(void *exec, struct CUstream_st *stream);
	int (*exec_destroy)(void *exec);
	void *put, *check, *turn;
	uint64_t counters; /* of the GPU: struct gpu_counters */
	uint64_t rounds;   /* ROUNDS numbers: of the round of a graph */
	struct gpu_extra extra;
};

#define NON_BLOCKING 1 /* of streams */
#define NO_TIMING    2 /* of events */

static UNUSED_FN void gpu_work_symbols(struct gpu_work *work)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	const struct {
		void **fn;
		const char *name;
	} table[] = {
		{(void **)&work->stream_create, "cuStreamCreate"},
		{(void **)&work->stream_destroy, "cuStreamDestroy_v2"},
		{(void **)&work->stream_sync, "cuStreamSynchronize"},
		{(void **)&work->event_create, "cuEventCreate"},
		{(void **)&work->event_destroy, "cuEventDestroy_v2"},
		{(void **)&work->event_record, "cuEventRecord"},
		{(void **)&work->stream_wait, "cuStreamWaitEvent"},
		{(void **)&work->sync, "cuCtxSynchronize"},
		{(void **)&work->mem_alloc, "cuMemAlloc_v2"},
		{(void **)&work->mem_free, "cuMemFree_v2"},
		{(void **)&work->mem_read, "cuMemcpyDtoH_v2"},
		{(void **)&work->mem_clear, "cuMemsetD8_v2"},
		{(void **)&work->instantiate, "cuGraphInstantiateWithFlags"},
		{(void **)&work->graph_launch, "cuGraphLaunch"},
		{(void **)&work->exec_destroy, "cuGraphExecDestroy"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		*table[i].fn = cuda ? dlsym(cuda, table[i].name) : NULL;
		if (!*table[i].fn)
			tap_bail(table[i].name);
	}
}

/* For a call of CUDA that the rest cannot do without. */
#define must_cuda(result, what)                                                          \
	do {                                                                             \
		int result_ = (result);                                                  \
		if (result_) {                                                           \
			tap_note("CUresult %d", result_);                                \
			tap_bail(what);                                                  \
		}                                                                        \
	} while (0)

/* Leaves the primary context current in the calling thread. */
static UNUSED_FN void gpu_work_init(struct gpu_work *work)
{
	const struct {
		void **fn;
		const char *name;
	} kernels[] = {
		{&work->put, "put"}, {&work->check, "check"}, {&work->turn, "turn"}};
	size_t bytes = sizeof(struct gpu_counters) + ROUNDS * sizeof(uint64_t);
	void *module = NULL;
	int result;

	work->extra = gpu_extra();
	gpu_work_symbols(work);
	work->extra.context_set(work->extra.primary);
	result = work->extra.module_load(&module, kernels_ptx);
	if (result == JIT_ABSENT)
		tap_skip_all(
			"no kernel: the driver has no JIT compiler installed beside it");
	must_cuda(result, "the kernels cannot be loaded");
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		must_cuda(work->extra.module_function(
				  kernels[i].fn, module, kernels[i].name),
			kernels[i].name);
	must_cuda(work->mem_alloc(&work->counters, bytes), "no counters");
	must_cuda(work->mem_clear(work->counters, 0, bytes), "no counters");
	work->rounds = work->counters + sizeof(struct gpu_counters);
}

/* Waits for the GPU. */
static UNUSED_FN struct gpu_counters gpu_counters_take(const struct gpu_work *work)
{
	struct gpu_counters counters = {0};

	must_cuda(work->sync(), "the GPU has gone");
	must_cuda(work->mem_read(&counters, work->counters, sizeof(counters)),
		"no counters");
	must_cuda(work->mem_clear(work->counters, 0, sizeof(counters)), "no counters");
	return counters;
}

/* The words of a block on stream number `name`, from 1. */
static UNUSED_FN uint64_t gpu_tag(unsigned name, uint32_t serial)
{
	return UINT64_C(10) << 60 | (uint64_t)(name % NAMES) << 54 |
		(uint64_t)(serial & 0x3fffffff) << 24;
}

static UNUSED_FN struct gpu_job gpu_job(
	const void *block, size_t size, unsigned name, uint32_t serial)
{
	return (struct gpu_job){(uintptr_t)block, gpu_tag(name, serial), size / 8};
}

static UNUSED_FN int gpu_launch(const struct gpu_work *work, void *kernel,
	const struct gpu_jobs *jobs, unsigned count, uint64_t round, uint32_t delay,
	struct CUstream_st *stream)
{
	uint64_t most = 0, counters = work->counters;
	void *arguments[] = {(void *)(uintptr_t)jobs, &counters, &round, &delay};
	unsigned wide;

	for (unsigned i = 0; i < count; i++)
		if (most < jobs->at[i].words)
			most = jobs->at[i].words;
	wide = (unsigned)(most / 1024) + 1;
	return work->extra.launch(kernel, wide < 64 ? wide : 64, count, 1,
		most < 256 ? 64 : 256, 1, 1, 0, stream, arguments, NULL);
}

/* Fills blocks; `round` is an address or 0, `delay` in ns. The CUresult. */
static UNUSED_FN int gpu_put(const struct gpu_work *work, const struct gpu_jobs *jobs,
	unsigned count, uint64_t round, uint32_t delay, struct CUstream_st *stream)
{
	return gpu_launch(work, work->put, jobs, count, round, delay, stream);
}

static UNUSED_FN int gpu_check(const struct gpu_work *work, const struct gpu_jobs *jobs,
	unsigned count, uint64_t round, uint32_t delay, struct CUstream_st *stream)
{
	return gpu_launch(work, work->check, jobs, count, round, delay, stream);
}

/* Adds 1 to the number of a round, at its address. */
static UNUSED_FN int gpu_turn(
	const struct gpu_work *work, uint64_t round, struct CUstream_st *stream)
{
	void *arguments[] = {&round};

	return work->extra.launch(
		work->turn, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

/* Writes a pattern to blocks, or counts the words that are not of it, and waits for that: GB/s. */
static UNUSED_FN double gpu_pass(struct gpu_work *work, void *const *block, int count,
	size_t size, uint32_t serial, bool check, struct CUstream_st *on)
{
	double begin;

	must_cuda(work->sync(), "the GPU has gone");
	begin = now_s();
	for (int i = 0; i < count; i++) {
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(block[i], size, 1, serial + (uint32_t)i)};

		must_cuda(check ? gpu_check(work, &jobs, 1, 0, 0, on)
				: gpu_put(work, &jobs, 1, 0, 0, on),
			"a kernel");
	}
	must_cuda(work->sync(), "the GPU has gone");
	return (double)count * (double)size / (now_s() - begin) / 1e9;
}

#endif
