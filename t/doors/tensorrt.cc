/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tensorrt.hpp against TensorRT's own headers, through the base classes that TensorRT calls. */
#ifdef GLK_HAVE_TENSORRT
#include <glake/tensorrt.hpp>
#endif
#define TAP_NO_LOG
#include "tap.h"

#ifdef GLK_HAVE_TENSORRT

int main()
{
	glk::context ctx(glk::options()
				 .backend(GLAKE_BACKEND_SOFT)
				 .no_conf_file()
				 .set("pool.budget", "64MiB"));
	glk::tensorrt_allocator memory(ctx);
	nvinfer1::IGpuAsyncAllocator &async = memory;
	nvinfer1::IGpuAllocator &plain = memory;
	glk::stream_t streams[2];
	void *ptr, *other;

	tap_plan(17);
	tap_note("TensorRT %d.%d", NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR);
	for (glk::stream_t &stream : streams)
		glake_stream_new(ctx.get(), 0, &stream);
	ptr = async.allocateAsync(3 << 20, 256, 0, streams[0]);
	is_int((int64_t)ctx.query(ptr).size, 3 << 20, "memory for TensorRT");
	ok(ctx.query(ptr).stream == streams[0], "in the order of its stream");
	other = async.allocateAsync(1 << 20, 0, 0, streams[1]);
	ok(other && other != ptr, "on a second stream, of any alignment");
	ok(async.deallocateAsync(ptr, streams[0]), "given back");
	ok(async.deallocateAsync(other, streams[0]), "in the order of another stream");
	is_int((int64_t)ctx.stats().live_blocks, 0, "both");
	ok(!async.allocateAsync(0, 256, 0, streams[0]), "0 bytes are nothing");
	ok(async.deallocateAsync(nullptr, streams[0]), "and can be freed");
	ptr = async.allocateAsync(1, 4096, 0, streams[0]);
	ok(ptr && (uintptr_t)ptr % 4096 == 0 && async.deallocateAsync(ptr, streams[0]),
		"a stricter alignment");
	ok(!async.allocateAsync(1, 2 * GLAKE_ALIGN_MAX, 0, streams[0]),
		"one above 2 MiB is refused");
	ok(!async.allocateAsync(1, 1536, 0, streams[0]),
		"and one that is no power of two");
	ok(!async.allocateAsync(256 << 20, 256, 0, streams[0]), "more than there is");
	is_int(glk::last_error().err, -ENOMEM, "and why");
	ok(!async.deallocateAsync(&ctx, streams[0]), "what is none of ours");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	ptr = plain.allocate(1 << 20, 256, 0);
	ok(ptr && !ctx.query(ptr).stream, "without a stream: the default one");
	ok(plain.deallocate(ptr), "given back");
#pragma GCC diagnostic pop
	is_str(async.getInterfaceInfo().kind, "IGpuAllocator",
		"known to TensorRT as what it is");
	for (glk::stream_t stream : streams)
		glake_stream_free(ctx.get(), 0, stream);
	return tap_done();
}
#else
int main()
{
	tap_skip_all("no headers of TensorRT: see t/doors/meson.build");
}
#endif
