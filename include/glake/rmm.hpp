/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_RMM_HPP
#define GLAKE_RMM_HPP

/*
 * GPU memory of glake for RMM and what stands on it (cuDF, cuML, RAFT): a memory resource as RMM
 * 26.10 and CCCL 3.5 know it, cuda::mr::resource_with<..., cuda::mr::device_accessible>. For C++20,
 * with RMM's headers and its library, which want g++ 12 or clang 16.
 *
 *   glk::context ctx;
 *   rmm::mr::set_current_device_resource(glk::rmm_resource(ctx));
 *   rmm::device_buffer buffer(bytes, stream);
 *
 * glake keeps what is freed for the next request, so no pool of RMM's is wanted on top. Its
 * adaptors (statistics, logging, limits) work as on any resource. A stream that buffers were made
 * or freed on is told to glake before it is destroyed, context_ref::stream_end: see
 * glake_stream_end. RMM's and cuDF's pools of streams last as long as the program.
 */
#if !__has_include(<rmm/error.hpp>) || !__has_include(<cuda/memory_resource>)
#error "glake/rmm.hpp needs the headers of RMM 26.10 and of the CCCL that comes with it"
#endif

#include <glake/glake.hpp>

#include <cuda/memory_resource>
#include <cuda/stream>
#include <cuda_runtime_api.h>
#include <rmm/error.hpp>

#include <cerrno>
#include <cstddef>
#include <string>

namespace glk
{

/*
 * Memory of one GPU of a context, which whoever made it keeps open for as long as there are
 * buffers: a copy is a name, as RMM copies resources. Two are equal if context and GPU are.
 *
 * Requests throw rmm::out_of_memory for -ENOMEM and rmm::bad_alloc for all else, with glake's
 * sentence. 0 bytes are a null pointer. Blocks lie at multiples of GLAKE_GRAIN or of the alignment;
 * one that is above GLAKE_ALIGN_MAX or no power of two is refused with rmm::bad_alloc.
 * Thread: any. Blocks and Driver calls: as glake_alloc and glake_free, but for allocate_sync.
 */
class rmm_resource
{
      public:
	explicit rmm_resource(context_ref ctx, int device = 0) noexcept
		: ctx_(ctx), device_(device)
	{
	}

	/* In the order of the stream. */
	void *allocate(::cuda::stream_ref stream, std::size_t bytes,
		std::size_t alignment = GLAKE_GRAIN)
	{
		return give(native(stream.get()), bytes, alignment);
	}
	/* Behind the work that the stream has now. A free that the library refuses, of a stream of
	 * another GPU, leaves the block live. */
	void deallocate(::cuda::stream_ref stream, void *ptr, std::size_t,
		std::size_t = GLAKE_GRAIN) noexcept
	{
		glake_free(ctx_.get(), ptr, native(stream.get()));
	}
	/* For use on all streams at once: on CUDA it waits for the default stream, whose order
	 * the block is in. Not while a graph is captured. */
	void *allocate_sync(std::size_t bytes, std::size_t alignment = GLAKE_GRAIN)
	{
		void *ptr = give(nullptr, bytes, alignment);

		if (ptr && ctx_.backend() == GLAKE_BACKEND_CUDA)
			wait_or_free(ptr);
		return ptr;
	}
	/* Of memory that no work uses any more. Waits for nothing. */
	void deallocate_sync(void *ptr, std::size_t, std::size_t = GLAKE_GRAIN) noexcept
	{
		if (ptr)
			glake_free_after(ctx_.get(), ptr, nullptr, 0);
	}

	context_ref context() const noexcept
	{
		return ctx_;
	}
	int device() const noexcept
	{
		return device_;
	}
	friend bool operator==(const rmm_resource &a, const rmm_resource &b) noexcept
	{
		return a.ctx_ == b.ctx_ && a.device_ == b.device_;
	}
	friend void get_property(
		const rmm_resource &, ::cuda::mr::device_accessible) noexcept
	{
	}

      private:
	/* Stream 0 is what it is where this is compiled. */
	static stream_t native(::cudaStream_t stream) noexcept
	{
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
		return stream ? stream : cudaStreamPerThread;
#else
		return stream;
#endif
	}
	void *give(stream_t stream, std::size_t bytes, std::size_t alignment)
	{
		void *ptr = nullptr;
		int err;

		if (alignment > GLAKE_ALIGN_MAX || (alignment & (alignment - 1)))
			throw ::rmm::bad_alloc(
				"glake: an alignment is a power of two, 2 MiB at most");
		err = bytes ? glake_alloc(ctx_.get(), device_, bytes, stream,
				      alignment & GLAKE_ALLOC_ALIGN, &ptr)
			    : 0;
		if (err == -ENOMEM)
			throw ::rmm::out_of_memory(sentence(err));
		if (err)
			throw ::rmm::bad_alloc(sentence(err));
		return ptr;
	}
	void wait_or_free(void *ptr)
	{
		int current = 0;

		cudaGetDevice(&current);
		cudaSetDevice(device_);
		const cudaError_t err = cudaStreamSynchronize(cudaStreamLegacy);
		cudaSetDevice(current);
		if (err == cudaSuccess)
			return;
		cudaGetLastError();
		glake_free(ctx_.get(), ptr, nullptr);
		throw ::rmm::bad_alloc(
			std::string("glake: the default stream cannot be waited for: ") +
			cudaGetErrorString(err));
	}
	static std::string sentence(int err)
	{
		const error why(err);

		return std::string("glake: ") + why.what() + " (" + why.class_name() +
			")";
	}

	context_ref ctx_;
	int device_;
};

static_assert(::cuda::mr::resource_with<rmm_resource, ::cuda::mr::device_accessible>,
	"rmm_resource is what RMM wants of a resource");

} /* namespace glk */

#endif
