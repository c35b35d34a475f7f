/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_BLOCK_HPP
#define GLAKE_BLOCK_HPP

/* A block of GPU memory that is freed with its object. */
#include <glake/error.hpp>
#include <glake/memory.h>

#include <cstddef>
#include <new>
#include <utility>

namespace glk
{

/* A cudaStream_t or CUstream goes in as it is. */
using stream_t = struct CUstream_st *;
using event_t = struct CUevent_st *;

/*
 * A block, freed where its owner ends: in the order of a stream, which is that of the request
 * unless set_stream names another. The host may not look inside: the address is the GPU's.
 * Thread: one object is used by one thread at a time.
 */
class block
{
      public:
	block() noexcept = default;
	/* Takes a block of glake_alloc. */
	block(struct glake *ctx, void *ptr, stream_t stream) noexcept
		: ctx_(ctx), ptr_(ptr), stream_(stream)
	{
	}
	block(block &&other) noexcept
	{
		swap(other);
	}
	block &operator=(block &&other) noexcept
	{
		block(std::move(other)).swap(*this);
		return *this;
	}
	block(const block &) = delete;
	block &operator=(const block &) = delete;
	/* A free that is refused is dropped here: the stream has ended, or the context. */
	~block()
	{
		glake_free(ctx_, ptr_, stream_);
	}

	void swap(block &other) noexcept
	{
		std::swap(ctx_, other.ctx_);
		std::swap(ptr_, other.ptr_);
		std::swap(stream_, other.stream_);
	}
	void *get() const noexcept
	{
		return ptr_;
	}
	template <class T> T *as() const noexcept
	{
		return static_cast<T *>(ptr_);
	}
	explicit operator bool() const noexcept
	{
		return ptr_ != nullptr;
	}
	stream_t stream() const noexcept
	{
		return stream_;
	}
	/* In whose order it will be freed. */
	void set_stream(stream_t stream) noexcept
	{
		stream_ = stream;
	}

	/* Gives the block: the caller frees it. */
	void *release() noexcept
	{
		return std::exchange(ptr_, nullptr);
	}
	/* Frees it now; one that is refused is kept. */
	int free(const std::nothrow_t &) noexcept
	{
		int err = glake_free(ctx_, ptr_, stream_);

		if (!err)
			ptr_ = nullptr;
		return err;
	}
	void free()
	{
		check(free(std::nothrow));
	}
	/* Frees it behind events: glake_free_after. */
	int free_after(
		const event_t *events, std::size_t count, const std::nothrow_t &) noexcept
	{
		int err = ptr_ ? glake_free_after(ctx_, ptr_, events, count) : 0;

		if (!err)
			ptr_ = nullptr;
		return err;
	}
	void free_after(const event_t *events, std::size_t count)
	{
		check(free_after(events, count, std::nothrow));
	}
	/* A further stream uses it: glake_use. */
	int use(stream_t stream, const std::nothrow_t &) noexcept
	{
		return glake_use(ctx_, ptr_, stream);
	}
	void use(stream_t stream)
	{
		check(use(stream, std::nothrow));
	}
	/* What is behind it: glake_query. */
	struct glake_block query() const
	{
		struct glake_block about = {};

		about.sz = sizeof(about);
		check(glake_query(ctx_, ptr_, &about));
		return about;
	}

      private:
	struct glake *ctx_ = nullptr;
	void *ptr_ = nullptr;
	stream_t stream_ = nullptr;
};

} /* namespace glk */

#endif
