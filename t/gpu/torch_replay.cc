/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Replays requests through the CUDA allocator that PyTorch runs on, below Python, and times each
 * call alone. Built and loaded by allocators.py where PyTorch and its headers are.
 */
#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <vector>

static double now()
{
	return std::chrono::duration<double, std::nano>(
		std::chrono::steady_clock::now().time_since_epoch())
		.count();
}

/*
 * An event with a size allocates block `id` on stream `stream`, one with size 0 frees it.
 * Times are in ns; ret_alloc has room for n. After each of the events in `sample`, which ascend,
 * the bytes that GPU 0 has reserved go to ret_reserved; to look is not in the times. Returns the
 * number of allocations, or -1.
 */
extern "C" long torch_replay(long n, const int64_t *size, const int64_t *id,
	const int64_t *stream, long ids, const uintptr_t *streams, long samples,
	const int64_t *sample, double *ret_alloc, double *ret_free, int64_t *ret_reserved)
{
	auto *allocator = c10::cuda::CUDACachingAllocator::get();
	std::vector<void *> blocks(static_cast<size_t>(ids));
	long allocs = 0, next = 0;

	*ret_free = 0;
	try {
		for (long i = 0; i < n; i++) {
			void *&block = blocks[static_cast<size_t>(id[i])];
			double before = now();

			if (size[i]) {
				block = allocator->raw_alloc_with_stream(
					static_cast<size_t>(size[i]),
					reinterpret_cast<cudaStream_t>(
						streams[stream[i]]));
				ret_alloc[allocs++] = now() - before;
			} else {
				allocator->raw_delete(block);
				*ret_free += now() - before;
				block = nullptr;
			}
			if (next < samples && sample[next] == i)
				ret_reserved[next++] = allocator->getDeviceStats(0)
							       .reserved_bytes[0]
							       .current;
		}
	} catch (const std::exception &) {
		return -1;
	}
	for (void *block : blocks)
		if (block)
			allocator->raw_delete(block);
	return allocs;
}

/* Pairs of one size, in ns each. */
extern "C" double torch_pair(long n, int64_t size, uintptr_t stream)
{
	auto *allocator = c10::cuda::CUDACachingAllocator::get();
	double before = now();

	for (long i = 0; i < n; i++)
		allocator->raw_delete(
			allocator->raw_alloc_with_stream(static_cast<size_t>(size),
				reinterpret_cast<cudaStream_t>(stream)));
	return (now() - before) / static_cast<double>(n);
}
