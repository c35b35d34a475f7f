/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_CONTEXT_HPP
#define GLAKE_CONTEXT_HPP

/* A context that is closed with its object, and what it is opened with. */
#include <glake/block.hpp>
#include <glake/context.h>
#include <glake/stats.h>
#include <glake/stream.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace glk
{

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

/* A context of somebody else: its functions, and no care for its end. Thread: any. */
class context_ref
{
      public:
	context_ref() noexcept = default;
	explicit context_ref(struct glake *ctx) noexcept : ctx_(ctx)
	{
	}

	/* The handle, for the functions for C. */
	struct glake *get() const noexcept
	{
		return ctx_;
	}
	explicit operator bool() const noexcept
	{
		return ctx_ != nullptr;
	}
	friend bool operator==(context_ref a, context_ref b) noexcept
	{
		return a.ctx_ == b.ctx_;
	}
	friend bool operator!=(context_ref a, context_ref b) noexcept
	{
		return !(a == b);
	}

	int device_count() const
	{
		return check(glake_device_count(ctx_));
	}
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
	block alloc(std::size_t size, stream_t stream,
		const std::nothrow_t &tag) const noexcept
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
	/*
	 * A function object that frees memory when it is short (glake_shortage_set), called as
	 * std::size_t(int device, std::size_t want, stream_t stream, std::int64_t deadline_ns). It stays the
	 * caller's, until nullptr is set or the context is closed; what it throws ends here, and is no answer.
	 */
	template <class Function> void set_shortage(Function *function) const
	{
		check(glake_shortage_set(
			ctx_, function ? &ask<Function> : nullptr, function));
	}
	void set_shortage(std::nullptr_t) const
	{
		check(glake_shortage_set(ctx_, nullptr, nullptr));
	}

      protected:
	struct glake *ctx_ = nullptr;

      private:
	template <class Function>
	static std::size_t ask(void *function, int device, std::size_t want,
		stream_t stream, std::int64_t deadline_ns) noexcept
	{
		try {
			return (*static_cast<Function *>(function))(
				device, want, stream, deadline_ns);
		} catch (...) {
			return 0;
		}
	}
};

/* A context that is closed with its object. Moved, not copied. */
class context : public context_ref
{
      public:
	/* Opened as the configuration says. */
	context()
	{
		check(glake_open(nullptr, &ctx_));
	}
	explicit context(options &with)
	{
		check(glake_open(with.get(), &ctx_));
	}
	explicit context(options &&with) : context(with)
	{
	}
	/* Empty if it cannot be opened. */
	explicit context(const std::nothrow_t &) noexcept
	{
		glake_open(nullptr, &ctx_);
	}
	context(const struct glake_options *with, const std::nothrow_t &) noexcept
	{
		glake_open(with, &ctx_);
	}
	/* Takes an open one, or with nullptr is empty. */
	explicit context(struct glake *taken) noexcept : context_ref(taken)
	{
	}
	context(context &&other) noexcept : context_ref(other.release())
	{
	}
	context &operator=(context &&other) noexcept
	{
		context old(std::exchange(ctx_, other.release()));

		return *this;
	}
	context(const context &) = delete;
	context &operator=(const context &) = delete;
	~context()
	{
		glake_close(ctx_, nullptr);
	}

	/* Gives the context: the caller closes it. */
	struct glake *release() noexcept
	{
		return std::exchange(ctx_, nullptr);
	}
	/* Closes it now; how many blocks were not freed. It is closed also where this throws. */
	std::size_t close()
	{
		std::size_t leaked = 0;

		check(glake_close(release(), &leaked));
		return leaked;
	}
};

} /* namespace glk */

#endif
