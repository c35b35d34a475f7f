// SPDX-License-Identifier: LGPL-2.1-or-later
// The C interface from C++: the headers are as they are, an owner and an exception are a few lines.
#include <glake/glake.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

static void check(int err)
{
	if (err >= 0)
		return;
	glake_error error{};
	error.sz = sizeof(error);
	glake_last_error(&error);
	throw std::runtime_error(std::string(error.text) + " (" +
		glake_error_class_name(error.error_class) + ")");
}

struct close_context {
	void operator()(glake *ctx) const
	{
		glake_close(ctx, nullptr);
	}
};
using context = std::unique_ptr<glake, close_context>;

static context open_context()
{
	glake *ctx = nullptr;
	check(glake_open(nullptr, &ctx));
	return context(ctx);
}

// Memory of GPU 0 in the order of one stream; it goes back in that order too.
template <class T> class buffer
{
      public:
	buffer(const context &ctx, std::size_t count, CUstream_st *stream)
		: ctx_(ctx.get()), stream_(stream), count_(count)
	{
		check(glake_alloc(ctx_, 0, count * sizeof(T), stream, 0, &data_));
	}
	~buffer()
	{
		glake_free(ctx_, data_, stream_);
	}
	buffer(const buffer &) = delete;
	buffer &operator=(const buffer &) = delete;

	T *data() const
	{
		return static_cast<T *>(data_);
	}
	std::size_t size() const
	{
		return count_;
	}

      private:
	glake *ctx_;
	CUstream_st *stream_;
	std::size_t count_;
	void *data_ = nullptr;
};

int main()
{
	try {
		context ctx = open_context();
		{
			buffer<std::uint32_t> a(ctx, 1000, nullptr);

			// with CUDA: a kernel on a.data()
			check(glake_soft_fill(ctx.get(), nullptr, a.data(), 6, a.size()));
			check(glake_soft_stream_sync(ctx.get(), 0, nullptr));
			std::cout << "the last of " << a.size() << " is "
				  << a.data()[a.size() - 1] << "\n";
		}
		try {
			buffer<std::uint32_t> none(ctx, SIZE_MAX / 8, nullptr);
		} catch (const std::runtime_error &error) {
			std::cout << "refused: " << error.what() << "\n";
		}
		return 0;
	} catch (const std::runtime_error &error) {
		std::cerr << error.what() << "\n";
		return 1;
	}
}
