/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * PyTorch's allocator of pinned memory, on glake. Only code made with PyTorch's headers can be one: the
 * Python module compiles this for the PyTorch that is installed, and hands over the functions of the
 * library, which it does not link with.
 *
 * PyTorch says of each copy that does not block which stream it is on (record_event), and frees a
 * block when its storage goes: glake_host_use and glake_host_free. What the allocator before this one
 * gave goes back there, as each block knows its own way. While graphs are captured it gives what is
 * asked for, since its pools keep addresses.
 */
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace
{

/* Of the library, as its headers have it. */
struct Error {
	size_t sz;
	int err, error_class, native;
	char call[32], text[256];
};

/* A class of the library's errors. */
constexpr int NOT_MINE = 11;

/* As glake/host.py has it. */
struct Functions {
	size_t sz;
	void *context;
	int (*device_count)(void *context);
	int (*alloc)(
		void *context, int device, size_t size, uint32_t flags, void **ret_ptr);
	int (*free)(void *context, void *ptr);
	int (*use)(void *context, const void *ptr, int device, void *stream);
	int (*trim)(void *context, int device, size_t keep, size_t *ret_released);
	int (*last_error)(Error *ret_error);
};

Functions glake;

void give_back(void *ptr)
{
	glake.free(glake.context, ptr);
}

int current_device()
{
	const auto *cuda = c10::impl::getDeviceGuardImpl(at::kCUDA);

	return cuda->deviceCount() ? cuda->getDevice().index() : 0;
}

class Pinned final : public at::HostAllocator
{
      public:
	explicit Pinned(at::HostAllocator *before) : before_(before)
	{
	}

	at::DataPtr allocate(size_t size) override
	{
		void *ptr = nullptr;

		if (!size || pools_)
			return before_->allocate(size);
		if (glake.alloc(glake.context, current_device(), size, 0, &ptr)) {
			Error error = {sizeof(error)};

			glake.last_error(&error);
			TORCH_CHECK_WITH(OutOfMemoryError, false, "glake: ", error.text);
		}
		return {ptr, ptr, give_back, at::Device(at::kCPU)};
	}

	/* What lies there may be of either. */
	at::DeleterFnPtr raw_deleter() const override
	{
		return nullptr;
	}

	void copy_data(void *to, const void *from, size_t count) const override
	{
		default_copy_data(to, from, count);
	}

	bool record_event(void *ptr, void *context, c10::Stream stream) override
	{
		int err = glake.use(glake.context, ptr, stream.device_index(),
			stream.native_handle());

		/* the program keeps what a captured graph copies from, as PyTorch wants it */
		if (!err || err == -EBUSY)
			return true;
		Error error = {sizeof(error)};

		glake.last_error(&error);
		if (error.error_class == NOT_MINE)
			return before_->record_event(ptr, context, stream);
		/* the free waits for no stream that was not noted: it has to be done before */
		stream.synchronize();
		return true;
	}

	/* Memory of GPUs stays. */
	void empty_cache() override
	{
		before_->empty_cache();
		for (int i = 0; i < glake.device_count(glake.context); i++)
			glake.trim(glake.context, i, SIZE_MAX, nullptr);
	}

	at::HostStats get_stats() override
	{
		return before_->get_stats();
	}

	void reset_accumulated_stats() override
	{
		before_->reset_accumulated_stats();
	}

	void reset_peak_stats() override
	{
		before_->reset_peak_stats();
	}

	void begin_allocate_to_pool(
		c10::MempoolId_t pool, std::function<bool(c10::Stream)> filter) override
	{
		before_->begin_allocate_to_pool(pool, filter);
		pools_++;
	}

	void end_allocate_to_pool(c10::MempoolId_t pool) override
	{
		before_->end_allocate_to_pool(pool);
		pools_--;
	}

	void release_pool(c10::MempoolId_t pool) override
	{
		before_->release_pool(pool);
	}

      private:
	at::HostAllocator *before_;
	std::atomic<int> pools_{0};
};

} // namespace

/* Not 0: it cannot be. Called once. */
extern "C" __attribute__((visibility("default"))) int glake_torch_host_use(
	const Functions *functions)
{
	at::HostAllocator *before;

	if (functions->sz != sizeof(glake))
		return 1;
	glake = *functions;
	try {
		before = at::getHostAllocator(at::kCUDA);
		at::setHostAllocator(at::kCUDA, new Pinned(before), UINT8_MAX);
		return at::getHostAllocator(at::kCUDA) == before;
	} catch (const std::exception &) {
		return 1;
	}
}
