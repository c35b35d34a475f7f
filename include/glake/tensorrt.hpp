/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_TENSORRT_HPP
#define GLAKE_TENSORRT_HPP

/*
 * GPU memory of glake for TensorRT: its asynchronous allocator. For C++17 with TensorRT's headers,
 * 10 or later; tried with those of 10.3 to 11.1.
 *
 *   glk::context ctx;
 *   glk::tensorrt_allocator memory(ctx);
 *   runtime->setGpuAllocator(&memory);      // or of a builder
 *   context->setTemporaryStorageAllocator(&memory);
 *
 * What TensorRT frees without a stream, by the functions that it calls deprecated, it has waited
 * for, as with cudaFree. A stream that contexts were run on is told to glake before it is
 * destroyed: see glake_stream_end.
 */
#if !__has_include(<NvInferRuntime.h>)
#error "glake/tensorrt.hpp needs the headers of TensorRT: NvInferRuntime.h"
#endif

#include <glake/glake.hpp>

#include <NvInferRuntime.h>

#include <cstdint>

namespace glk
{

/*
 * Memory of one GPU of a context. TensorRT wants it to live longer than all objects that use it;
 * the context has to as well. Requests that cannot be met are a null pointer, which TensorRT
 * reports; why, glk::last_error() knows on the same thread.
 * Thread: any. Blocks and Driver calls: as glake_alloc and glake_free.
 */
class tensorrt_allocator : public nvinfer1::IGpuAsyncAllocator
{
      public:
	explicit tensorrt_allocator(context_ref ctx, int device = 0) noexcept
		: ctx_(ctx), device_(device)
	{
	}

	/* Alignments are 0 or a power of two, up to GLAKE_ALIGN_MAX; others are refused. */
	void *allocateAsync(const std::uint64_t size, const std::uint64_t alignment,
		const nvinfer1::AllocatorFlags, cudaStream_t stream) noexcept override
	{
		void *ptr = nullptr;

		if (size && alignment <= GLAKE_ALIGN_MAX &&
			!(alignment & (alignment - 1)))
			glake_alloc(ctx_.get(), device_, size, stream,
				static_cast<std::uint32_t>(alignment) & GLAKE_ALLOC_ALIGN,
				&ptr);
		return ptr;
	}
	bool deallocateAsync(void *const memory, cudaStream_t stream) noexcept override
	{
		return !glake_free(ctx_.get(), memory, stream);
	}

      private:
	context_ref ctx_;
	int device_;
};

} /* namespace glk */

#endif
