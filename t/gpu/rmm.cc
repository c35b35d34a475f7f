/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rmm.hpp on a real GPU: rmm::device_buffer on eight streams behind RMM's adaptors, each word
 * checked, requests without a stream, and glake as the resource of the whole program.
 */
#ifdef GLK_HAVE_RMM
#include <glake/rmm.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#endif
#define TAP_NO_LOG
#include "tap.h"

#ifdef GLK_HAVE_RMM
#include <thread>

static const int STREAMS = 8, ROUNDS = 200;
static const std::size_t MIB = 1 << 20;

using any_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;

static std::size_t size_of(int stream, int round)
{
	return 1000 + (std::size_t)(stream * 7919 + round * 104729) % (3 * MIB);
}

/* Fills a buffer, copies it into a second one, frees the first, and looks at the second. */
static void turns(glk::context_ref ctx, any_resource memory, int number, int *ret_wrong)
{
	const rmm::cuda_stream own;
	const cuda::stream_ref stream(own.value());
	std::vector<unsigned char> host;
	int wrong = 0;

	for (int i = 0; i < ROUNDS; i++) {
		const std::size_t size = size_of(number, i);
		const int byte = (number * ROUNDS + i) % 255 + 1;
		rmm::device_buffer first(size, stream, memory);

		host.assign(size, 0);
		wrong += cudaMemsetAsync(first.data(), byte, size, stream.get()) !=
			cudaSuccess;
		rmm::device_buffer second(first, stream, memory);
		first = rmm::device_buffer(size, stream, memory);
		wrong += cudaMemsetAsync(first.data(), 0, size, stream.get()) !=
			cudaSuccess;
		wrong += cudaMemcpyAsync(host.data(), second.data(), size,
				 cudaMemcpyDeviceToHost, stream.get()) != cudaSuccess;
		own.synchronize();
		for (unsigned char one : host)
			wrong += one != byte;
	}
	ctx.stream_end(own.value());
	*ret_wrong = wrong;
}

static void streams(glk::context &ctx)
{
	any_resource gpu{glk::rmm_resource(ctx)};
	rmm::mr::statistics_resource_adaptor counted(gpu);
	rmm::mr::limiting_resource_adaptor limited(counted, 1024 * MIB);
	std::vector<std::thread> threads;
	int wrong[STREAMS], all = 0;

	for (int i = 0; i < STREAMS; i++)
		threads.emplace_back(turns, glk::context_ref(ctx.get()),
			any_resource(limited), i, &wrong[i]);
	for (std::thread &thread : threads)
		thread.join();
	for (int one : wrong)
		all += one;
	is_int(all, 0, "buffers on eight streams of eight threads keep their words");
	is_int(counted.get_bytes_counter().value, 0, "all were given back");
	is_int(counted.get_allocations_counter().total, 3 * STREAMS * ROUNDS,
		"RMM has counted them");
	ok(ctx.stats().allocs >= 3u * STREAMS * ROUNDS, "and glake has served them");
	is_int((int64_t)ctx.stats().live_blocks, 0, "nothing is live");
}

static void whole(glk::context &ctx)
{
	const uint64_t before = ctx.stats().allocs;
	any_resource old = rmm::mr::set_current_device_resource(glk::rmm_resource(ctx));

	const rmm::cuda_stream own, other;
	const cuda::stream_ref stream(own.value());
	{
		rmm::device_buffer buffer(5 * MIB, stream);

		is_int((int64_t)ctx.query(buffer.data()).size, 5 * (int64_t)MIB,
			"glake is the program's resource");
		buffer.resize(9 * MIB, stream);
		is_int((int64_t)ctx.query(buffer.data()).size, 9 * (int64_t)MIB,
			"resized");
		buffer.set_stream(cuda::stream_ref(other.value()));
		own.synchronize();
	}
	is_int((int64_t)(ctx.stats().allocs - before), 2, "two requests");
	is_int((int64_t)ctx.stats().live_blocks, 0, "given back on another stream");
	ctx.stream_end(own.value());
	ctx.stream_end(other.value());
	rmm::mr::set_current_device_resource(old);

	glk::rmm_resource gpu(ctx);
	void *ptr = gpu.allocate_sync(MIB);
	ok(!cudaMemset(ptr, 7, MIB), "memory without a stream");
	cudaDeviceSynchronize();
	gpu.deallocate_sync(ptr, MIB);
	is_int((int64_t)ctx.stats().live_blocks, 0, "given back");
}

int main()
{
	struct glake_options options = {};

	options.sz = sizeof(options);
	options.backend = GLAKE_BACKEND_CUDA;
	glk::context ctx(&options, std::nothrow);
	if (!ctx)
		tap_skip_all(glk::last_error().text);
	tap_plan_later();
	streams(ctx);
	whole(ctx);
	is_int((int64_t)ctx.close(), 0, "closed with nothing live");
	return tap_done();
}
#else
int main()
{
	tap_skip_all("no headers of RMM when this was built: see t/doors/meson.build");
}
#endif
