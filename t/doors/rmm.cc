/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rmm.hpp with RMM's own headers and library on the software device: the resource under RMM's
 * names and adaptors, on eight streams, and what its refusals become. rmm::device_buffer asks
 * CUDA's runtime which GPU is current, so buffers are for t/gpu/rmm.cc.
 */
#ifdef GLK_HAVE_RMM
#include <glake/rmm.hpp>

#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>
#include <rmm/version_config.hpp>
#endif
#define TAP_NO_LOG
#include "tap.h"

#ifdef GLK_HAVE_RMM

static const std::size_t MIB = 1 << 20;
static const int STREAMS = 8;
static const std::size_t A = 256; /* the alignment that RMM asks for */

using any_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;
static_assert(cuda::mr::synchronous_resource_with<glk::rmm_resource,
	cuda::mr::device_accessible>);

static glk::options soft()
{
	return glk::options()
		.backend(GLAKE_BACKEND_SOFT)
		.no_conf_file()
		.set("pool.budget", "64MiB");
}

struct eight {
	explicit eight(glk::context &ctx) : ctx_(ctx)
	{
		for (glk::stream_t &one : streams)
			glake_stream_new(ctx.get(), 0, &one);
	}
	~eight()
	{
		for (glk::stream_t one : streams)
			glake_stream_free(ctx_.get(), 0, one);
	}
	cuda::stream_ref operator[](int i) const
	{
		return cuda::stream_ref(streams[i]);
	}
	glk::stream_t streams[STREAMS];

      private:
	glk::context &ctx_;
};

template <class Kind, class Call> static const char *thrown(Call call)
{
	static std::string text;

	try {
		call();
	} catch (const Kind &why) {
		text = why.what();
		return text.c_str();
	} catch (const std::exception &other) {
		tap_note("another: %s", other.what());
	}
	return nullptr;
}

static void plain()
{
	glk::context ctx(soft());
	eight streams(ctx);
	glk::rmm_resource gpu(ctx);
	any_resource any(gpu);
	rmm::device_async_resource_ref ref(any);
	void *blocks[STREAMS];
	int right = 0;

	for (int i = 0; i < STREAMS; i++) {
		blocks[i] = ref.allocate(streams[i], (i + 1) * MIB / 2, A);
		const struct glake_block about = ctx.query(blocks[i]);
		right += about.stream == streams.streams[i] &&
			about.size == (i + 1) * MIB / 2 &&
			(uintptr_t)blocks[i] % 256 == 0;
	}
	is_int(right, STREAMS, "blocks in the order of eight streams");
	for (int i = 0; i < STREAMS; i++)
		any.deallocate(streams[i], blocks[i], (i + 1) * MIB / 2, A);
	is_int((int64_t)ctx.stats().live_blocks, 0, "given back");
	is_int((int64_t)ctx.stats().allocs, STREAMS, "one request of glake each");
	blocks[0] = any.allocate(streams[3], MIB, A);
	any.deallocate(streams[5], blocks[0], MIB, A);
	is_int((int64_t)ctx.stats().live_blocks, 0, "in the order of another stream");
	blocks[0] = any.allocate_sync(MIB, A);
	ok(!ctx.query(blocks[0]).stream, "without a stream: the default one");
	any.deallocate_sync(blocks[0], MIB, A);
	is_int((int64_t)ctx.stats().live_blocks, 0, "given back");
	ok(!any.allocate(streams[0], 0, A), "0 bytes are nothing");
	any.deallocate(streams[0], nullptr, 0, A);
	any.deallocate_sync(nullptr, 0, A);
	ok(any == any_resource(glk::rmm_resource(ctx)), "equal by context");
	glk::context other(soft());
	ok(any != any_resource(glk::rmm_resource(other)), "and not to another");
	ok(!(gpu == glk::rmm_resource(ctx, 1)), "nor on another GPU");
}

static void adaptors()
{
	glk::context ctx(soft());
	eight streams(ctx);
	any_resource gpu{glk::rmm_resource(ctx)};
	rmm::mr::statistics_resource_adaptor counted(gpu);
	rmm::mr::tracking_resource_adaptor tracked(counted);
	rmm::mr::limiting_resource_adaptor limited(tracked, 8 * MIB);
	rmm::mr::thread_safe_resource_adaptor safe(limited);
	void *ptr = safe.allocate(streams[1], 3 * MIB, A);

	is_int(counted.get_bytes_counter().value, 3 * (int64_t)MIB, "RMM's statistics");
	is_int((int64_t)tracked.get_outstanding_allocations().size(), 1, "its tracking");
	is_int((int64_t)limited.get_allocated_bytes(), 3 * (int64_t)MIB, "its limit");
	is_int((int64_t)ctx.stats().live, 3 * (int64_t)MIB, "and glake's figures");
	ok(thrown<rmm::out_of_memory>(
		   [&] { (void)safe.allocate(streams[1], 6 * MIB, A); }),
		"RMM's limit is met");
	safe.deallocate(streams[1], ptr, 3 * MIB, A);
	is_int(counted.get_bytes_counter().peak, 3 * (int64_t)MIB, "the peak");
	is_int((int64_t)ctx.stats().live, 0, "given back through all of them");

	ptr = gpu.allocate(streams[2], 3000, 4096);
	ok((uintptr_t)ptr % 4096 == 0, "aligned for direct storage");
	gpu.deallocate(streams[2], ptr, 3000, 4096);
	rmm::mr::aligned_resource_adaptor aligned(gpu, 4096);
	ptr = aligned.allocate(streams[2], MIB, A);
	ok((uintptr_t)ptr % 4096 == 0, "aligned as its adaptor wants");
	aligned.deallocate(streams[2], ptr, MIB, A);
	is_int((int64_t)ctx.stats().live, 0, "and given back whole");
}

static void refusals()
{
	glk::context ctx(soft());
	eight streams(ctx);
	any_resource gpu{glk::rmm_resource(ctx)};
	int asked = 0;
	const char *text = thrown<rmm::out_of_memory>(
		[&] { (void)gpu.allocate(streams[0], 256 * MIB, A); });

	has_str(text, "NOMEM_DEVICE", "more than there is: rmm::out_of_memory");
	has_str(text, "glake: ", "in glake's words");
	ok(thrown<std::bad_alloc>([&] { (void)gpu.allocate(streams[0], 256 * MIB, A); }),
		"which is a std::bad_alloc");
	for (std::size_t align : {std::size_t{1536}, 2 * GLAKE_ALIGN_MAX})
		has_str(thrown<rmm::bad_alloc>(
				[&] { (void)gpu.allocate(streams[0], MIB, align); }),
			"glake: an alignment is a power of two, 2 MiB at most",
			"any other is refused");
	text = thrown<rmm::bad_alloc>(
		[&] { (void)glk::rmm_resource(ctx, 77).allocate(streams[0], MIB, A); });
	has_str(text, "INVAL", "a GPU that is not there: rmm::bad_alloc");
	void *held = gpu.allocate(streams[0], 40 * MIB, A);
	rmm::mr::failure_callback_resource_adaptor<> retried(
		gpu,
		[&](std::size_t, void *) {
			gpu.deallocate(streams[0], held, 40 * MIB, A);
			return !asked++;
		},
		nullptr);
	void *ptr = retried.allocate(streams[0], 40 * MIB, A);
	is_int(asked, 1, "RMM's callback on failure is called");
	ok(ptr, "and what it freed serves the request");
	retried.deallocate(streams[0], ptr, 40 * MIB, A);
	is_int((int64_t)ctx.stats().live, 0, "given back");
	any_resource late = gpu;
	void *kept = gpu.allocate(streams[0], MIB, A);
	{
		glk::context moved(std::move(ctx));
		for (glk::stream_t one : streams.streams)
			glake_stream_free(moved.get(), 0, one);
	}
	late.deallocate(streams[0], kept, MIB, A);
	text = thrown<rmm::bad_alloc>([&] { (void)late.allocate(streams[0], MIB, A); });
	has_str(text, "STALE", "after the end of the context");
}

int main()
{
	tap_plan_later();
	tap_note(
		"RMM %d.%d, CCCL %d", RMM_VERSION_MAJOR, RMM_VERSION_MINOR, CCCL_VERSION);
	plain();
	adaptors();
	refusals();
	return tap_done();
}
#else
int main()
{
	tap_skip_all(
		"no headers of RMM, or none for this compiler: see t/doors/meson.build");
}
#endif
