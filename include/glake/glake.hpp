/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_GLAKE_HPP
#define GLAKE_GLAKE_HPP

/*
 * glake for C++17: contexts and blocks that clean up after themselves, errors as exceptions. All
 * of it is inline and calls the functions of the headers for C, which say what may happen, which
 * thread may call, what blocks and what the driver is asked for; here stands only what is added.
 * The namespace is glk, since glake is the name of a structure of C.
 *
 *   glk::context ctx(glk::options().set("pool.budget", "24GiB"));
 *   glk::block tensor = ctx.alloc(48 << 20, stream);
 *   kernel<<<grid, threads, 0, stream>>>(tensor.as<float>());
 *
 * Errors. Functions throw glk::error, which holds the record of glake_last_error. Those that take
 * std::nothrow as their last argument do not throw: they return 0 or a negative errno value, or
 * an empty object, and glk::last_error() has the record.
 *
 * Lifetimes. A context_ref is a name of a context, copied like a pointer; a context owns it. What
 * outlives its context does no harm: the library knows the handle of a closed one, so a block
 * whose context has gone frees nothing.
 */
#include <glake/glake.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace glk
{

/* A cudaStream_t or CUstream goes in as it is. */
using stream_t = struct CUstream_st *;
using event_t = struct CUevent_st *;

/* The record of the last call of this thread that failed. Never throws. */
inline struct glake_error last_error() noexcept
{
	struct glake_error record = {};

	record.sz = sizeof(record);
	glake_last_error(&record);
	return record;
}

/* A call that failed. Copying one never throws. */
class error : public std::exception
{
      public:
	/* Of the last call of this thread that failed; it returned `err`. */
	explicit error(int err) noexcept : record_(last_error()), err_(err) {}

	/* The sentence; for one that there is no record of, the name of its class. */
	const char *what() const noexcept override
	{
		return record_.text[0] ? record_.text : class_name();
	}
	int code() const noexcept { return err_; } /* negative errno value */
	int error_class() const noexcept { return record_.error_class; }
	const char *class_name() const noexcept
	{
		return glake_error_class_name(record_.error_class);
	}
	/* The CUresult or errno of the call below, and that call; 0 and "" if none. */
	int native() const noexcept { return record_.native; }
	const char *call() const noexcept { return record_.call; }
	const struct glake_error &record() const noexcept { return record_; }

      private:
	struct glake_error record_;
	int err_;
};

/* The same for what has to be a std::bad_alloc: memory resources. */
class bad_alloc : public std::bad_alloc
{
      public:
	explicit bad_alloc(const error &why) noexcept : why_(why) {}
	const char *what() const noexcept override { return why_.what(); }
	const error &why() const noexcept { return why_; }

      private:
	error why_;
};

/* Passes on what a function for C returned; throws the error if it is one. */
inline int check(int result)
{
	if (result < 0)
		throw error(result);
	return result;
}

/* What a context is opened with; keeps what it is given. */
class options
{
      public:
	/* A key of glake.conf(5), which wins over file and environment. May throw
	 * std::bad_alloc, as may the next. */
	options &set(const std::string &key, const std::string &value)
	{
		settings_.push_back(key + "=" + value);
		return *this;
	}
	/* The file instead of the installed one. */
	options &conf_file(const std::string &path)
	{
		path_ = path;
		return *this;
	}
	options &no_conf_file() noexcept
	{
		raw_.no_conf_file = 1;
		return *this;
	}
	options &backend(enum glake_backend which) noexcept
	{
		raw_.backend = which;
		return *this;
	}
	/* For glake_open; holds until this object is changed or ends. May throw
	 * std::bad_alloc. */
	const struct glake_options *get()
	{
		list_.clear();
		for (const std::string &setting : settings_)
			list_.push_back(setting.c_str());
		list_.push_back(nullptr);
		raw_.sz = sizeof(raw_);
		raw_.settings = list_.data();
		raw_.conf_file = path_.empty() ? nullptr : path_.c_str();
		return &raw_;
	}

      private:
	struct glake_options raw_ = {};
	std::vector<std::string> settings_;
	std::vector<const char *> list_;
	std::string path_;
};

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
	block(block &&other) noexcept { swap(other); }
	block &operator=(block &&other) noexcept
	{
		block(std::move(other)).swap(*this);
		return *this;
	}
	block(const block &) = delete;
	block &operator=(const block &) = delete;
	/* A free that is refused is dropped here: the stream has ended, or the context. */
	~block() { glake_free(ctx_, ptr_, stream_); }

	void swap(block &other) noexcept
	{
		std::swap(ctx_, other.ctx_);
		std::swap(ptr_, other.ptr_);
		std::swap(stream_, other.stream_);
	}
	void *get() const noexcept { return ptr_; }
	template <class T> T *as() const noexcept { return static_cast<T *>(ptr_); }
	explicit operator bool() const noexcept { return ptr_ != nullptr; }
	stream_t stream() const noexcept { return stream_; }
	/* In whose order it will be freed. */
	void set_stream(stream_t stream) noexcept { stream_ = stream; }

	/* Gives the block: the caller frees it. */
	void *release() noexcept { return std::exchange(ptr_, nullptr); }
	/* Frees it now; one that is refused is kept. */
	int free(const std::nothrow_t &) noexcept
	{
		int err = glake_free(ctx_, ptr_, stream_);

		if (!err)
			ptr_ = nullptr;
		return err;
	}
	void free() { check(free(std::nothrow)); }
	/* Frees it behind events: glake_free_after. */
	int free_after(const event_t *events, std::size_t count,
		const std::nothrow_t &) noexcept
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
	void use(stream_t stream) { check(use(stream, std::nothrow)); }
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

/* A context of somebody else: its functions, and no care for its end. Thread: any. */
class context_ref
{
      public:
	context_ref() noexcept = default;
	explicit context_ref(struct glake *ctx) noexcept : ctx_(ctx) {}

	/* The handle, for the functions for C. */
	struct glake *get() const noexcept { return ctx_; }
	explicit operator bool() const noexcept { return ctx_ != nullptr; }
	friend bool operator==(context_ref a, context_ref b) noexcept
	{
		return a.ctx_ == b.ctx_;
	}
	friend bool operator!=(context_ref a, context_ref b) noexcept { return !(a == b); }

	int device_count() const { return check(glake_device_count(ctx_)); }
	enum glake_backend backend() const
	{
		return static_cast<enum glake_backend>(check(glake_backend(ctx_)));
	}

	/* A block of `size` bytes, 1 or more, that ends with its object. */
	block alloc(std::size_t size, stream_t stream = nullptr, int device = 0,
		std::uint32_t flags = 0) const
	{
		return block(ctx_, alloc_raw(size, stream, device, flags), stream);
	}
	/* Empty if there is none. */
	block alloc(std::size_t size, stream_t stream, int device, std::uint32_t flags,
		const std::nothrow_t &) const noexcept
	{
		void *ptr = nullptr;

		glake_alloc(ctx_, device, size, stream, flags, &ptr);
		return block(ctx_, ptr, stream);
	}
	block alloc(std::size_t size, stream_t stream, const std::nothrow_t &tag) const noexcept
	{
		return alloc(size, stream, 0, 0, tag);
	}
	/* Gives the address alone, for the caller to free. */
	void *alloc_raw(std::size_t size, stream_t stream = nullptr, int device = 0,
		std::uint32_t flags = 0) const
	{
		void *ptr = nullptr;

		check(glake_alloc(ctx_, device, size, stream, flags, &ptr));
		return ptr;
	}
	int free(void *ptr, stream_t stream, const std::nothrow_t &) const noexcept
	{
		return glake_free(ctx_, ptr, stream);
	}
	void free(void *ptr, stream_t stream) const
	{
		check(free(ptr, stream, std::nothrow));
	}
	/* Before a stream is destroyed: glake_stream_end. */
	int stream_end(stream_t stream, int device, const std::nothrow_t &) const noexcept
	{
		return glake_stream_end(ctx_, device, stream);
	}
	void stream_end(stream_t stream, int device = 0) const
	{
		check(stream_end(stream, device, std::nothrow));
	}

	struct glake_block query(const void *ptr) const
	{
		struct glake_block about = {};

		about.sz = sizeof(about);
		check(glake_query(ctx_, ptr, &about));
		return about;
	}
	struct glake_stats stats(int device = 0) const
	{
		struct glake_stats figures = {};

		figures.sz = sizeof(figures);
		check(glake_stats_get(ctx_, device, &figures));
		return figures;
	}
	struct glake_driver_stats driver_stats() const
	{
		struct glake_driver_stats figures = {};

		figures.sz = sizeof(figures);
		check(glake_driver_stats_get(ctx_, &figures));
		return figures;
	}
	/* Most bytes to hold on a GPU; SIZE_MAX: no limit. */
	void set_budget(std::size_t bytes, int device = 0) const
	{
		check(glake_budget_set(ctx_, device, bytes));
	}
	std::size_t budget(int device = 0) const
	{
		std::size_t bytes = 0;

		check(glake_budget_get(ctx_, device, &bytes));
		return bytes;
	}
	/* Gives unused memory back to the driver but for `keep` bytes; how many went. */
	std::size_t trim(int device = 0, std::size_t keep = 0) const
	{
		std::size_t released = 0;

		check(glake_trim(ctx_, device, keep, &released));
		return released;
	}

      protected:
	struct glake *ctx_ = nullptr;
};

/* A context that is closed with its object. Moved, not copied. */
class context : public context_ref
{
      public:
	/* Opened as the configuration says. */
	context() { check(glake_open(nullptr, &ctx_)); }
	explicit context(options &with) { check(glake_open(with.get(), &ctx_)); }
	explicit context(options &&with) : context(with) {}
	/* Empty if it cannot be opened. */
	explicit context(const std::nothrow_t &) noexcept { glake_open(nullptr, &ctx_); }
	context(const struct glake_options *with, const std::nothrow_t &) noexcept
	{
		glake_open(with, &ctx_);
	}
	/* Takes an open one, or with nullptr is empty. */
	explicit context(struct glake *taken) noexcept : context_ref(taken) {}
	context(context &&other) noexcept : context_ref(other.release()) {}
	context &operator=(context &&other) noexcept
	{
		context old(std::exchange(ctx_, other.release()));

		return *this;
	}
	context(const context &) = delete;
	context &operator=(const context &) = delete;
	~context() { glake_close(ctx_, nullptr); }

	/* Gives the context: the caller closes it. */
	struct glake *release() noexcept { return std::exchange(ctx_, nullptr); }
	/* Closes it now; how many blocks were not freed. It is closed also where this throws. */
	std::size_t close()
	{
		std::size_t leaked = 0;

		check(glake_close(release(), &leaked));
		return leaked;
	}
};

/*
 * GPU memory as a std::pmr::memory_resource, in the order of one stream of one GPU.
 *
 * It is not host memory. A container of the standard library on top of it (std::pmr::vector, and
 * the pools of <memory_resource> too, which keep their books inside what they got) writes to it
 * from the host, and that ends the program. It is for code that only hands addresses on: buffers
 * that kernels fill, allocate() and deallocate() of a polymorphic_allocator without construct().
 *
 * An alignment above GLAKE_GRAIN is refused. Throws glk::bad_alloc, a std::bad_alloc. Two are
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

		if (alignment > GLAKE_GRAIN)
			throw std::bad_alloc();
		/* Blocks of 0 bytes differ from each other too. */
		err = glake_alloc(
			ctx_.get(), device_, bytes ? bytes : 1, stream_, 0, &ptr);
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
		const memory_resource *same = dynamic_cast<const memory_resource *>(&other);

		return same && same->ctx_ == ctx_ && same->stream_ == stream_ &&
			same->device_ == device_;
	}

	context_ref ctx_;
	stream_t stream_;
	int device_;
};

} /* namespace glk */

#endif
