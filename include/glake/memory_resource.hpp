/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_MEMORY_RESOURCE_HPP
#define GLAKE_MEMORY_RESOURCE_HPP

#include <glake/context.hpp>

#include <cstddef>
#include <memory_resource>
#include <new>

namespace glk
{

/*
 * GPU memory as a std::pmr::memory_resource, in the order of one stream of one GPU.
 *
 * It is not host memory. A container of the standard library on top of it (std::pmr::vector, and
 * the pools of <memory_resource> too, which keep their books inside what they got) writes to it
 * from the host, and that ends the program. It is for code that only hands addresses on: buffers
 * that kernels fill, allocate() and deallocate() of a polymorphic_allocator without construct().
 *
 * An alignment that is above GLAKE_ALIGN_MAX or no power of two is refused. Throws glk::bad_alloc, a std::bad_alloc. Two are
 * equal if context, GPU and stream are. Thread: any.
 */
class memory_resource : public std::pmr::memory_resource
{
      public:
	explicit memory_resource(
		context_ref ctx, stream_t stream = nullptr, int device = 0) noexcept
		: ctx_(ctx), stream_(stream), device_(device)
	{
	}

      private:
	void *do_allocate(std::size_t bytes, std::size_t alignment) override
	{
		void *ptr = nullptr;
		int err;

		if (alignment > GLAKE_ALIGN_MAX || (alignment & (alignment - 1)))
			throw std::bad_alloc();
		/* Blocks of 0 bytes differ from each other too. */
		err = glake_alloc(ctx_.get(), device_, bytes ? bytes : 1, stream_,
			alignment & GLAKE_ALLOC_ALIGN, &ptr);
		if (err)
			throw bad_alloc(error(err));
		return ptr;
	}
	void do_deallocate(void *ptr, std::size_t, std::size_t) override
	{
		glake_free(ctx_.get(), ptr, stream_);
	}
	bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
	{
		const memory_resource *same =
			dynamic_cast<const memory_resource *>(&other);

		return same && same->ctx_ == ctx_ && same->stream_ == stream_ &&
			same->device_ == device_;
	}

	context_ref ctx_;
	stream_t stream_;
	int device_;
};

} /* namespace glk */

#endif
