/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glake.hpp: what is owned ends with its owner and once, errors carry the library's record in
 * both ways of asking, and GPU memory as a std::pmr::memory_resource.
 */
#define TAP_NO_LOG
#include "tap.h"

#include <glake/glake.hpp>

#include <cerrno>
#include <memory>
#include <type_traits>

static const std::size_t MIB = 1 << 20;

static_assert(!std::is_copy_constructible_v<glk::context>);
static_assert(std::is_nothrow_move_constructible_v<glk::context>);
static_assert(std::is_nothrow_move_assignable_v<glk::context>);
static_assert(!std::is_copy_constructible_v<glk::block>);
static_assert(std::is_nothrow_move_constructible_v<glk::block>);
static_assert(std::is_nothrow_copy_constructible_v<glk::error>);
static_assert(std::is_base_of_v<std::exception, glk::error>);
static_assert(std::is_base_of_v<std::bad_alloc, glk::bad_alloc>);
static_assert(sizeof(glk::context) == sizeof(void *));

static glk::options soft()
{
	return glk::options().backend(GLAKE_BACKEND_SOFT).no_conf_file();
}

/* What a call throws; of class -1 if it throws nothing. */
template <class Call> static glk::error thrown(Call call)
{
	try {
		call();
	} catch (const glk::error &why) {
		return why;
	}
	tap_note("nothing was thrown");
	return glk::error(0);
}

static void contexts()
{
	glk::context ctx(soft().set("pool.budget", "64MiB"));
	struct glake *handle = ctx.get();
	glk::context second(soft()), none(nullptr);

	ok(ctx && handle, "a context");
	is_int(ctx.backend(), GLAKE_BACKEND_SOFT, "on the driver that was asked for");
	ok(ctx.device_count() >= 1, "with a GPU");
	is_int((int64_t)ctx.budget(), 64 * (int64_t)MIB, "and the setting");
	ctx.set_budget(128 * MIB);
	is_int((int64_t)ctx.budget(), 128 * (int64_t)MIB, "which can be changed");
	second = std::move(ctx);
	ok(!ctx && second.get() == handle, "moved");
	is_int((int64_t)second.budget(), 128 * (int64_t)MIB, "and open");
	ok(!none, "an empty one");
	glk::block left = second.alloc(MIB);
	is_int((int64_t)second.close(), 1, "closed, with a block not freed");
	is_int(glake_device_count(handle), -ESTALE, "and no longer there");
	is_int(left.free(std::nothrow), -ESTALE, "the block of a closed context");
	{
		glk::context inner(soft());
		handle = inner.get();
	}
	is_int(glake_device_count(handle), -ESTALE, "closed by its end");
	const glk::context_ref old(handle);
	const glk::error why = thrown([&] { old.stats(); });
	is_int(why.code(), -ESTALE, "one that is used after its end");
	is_str(why.class_name(), "STALE", "says so");
}

static void blocks()
{
	glk::context ctx(soft());
	glk::stream_t stream = nullptr;

	glake_stream_new(ctx.get(), 0, &stream);
	{
		glk::block first = ctx.alloc(3 * MIB, stream);
		glk::block second = std::move(first);

		ok(!first && second && second.as<float>() == second.get(), "moved");
		ok(second.stream() == stream, "with its stream");
		is_int((int64_t)second.query().size, 3 * (int64_t)MIB,
			"what is behind it");
		is_int((int64_t)ctx.query(second.as<char>() + 5).size, 3 * (int64_t)MIB,
			"and behind an address inside");
		is_int((int64_t)ctx.stats().live_blocks, 1, "one block");
		second = ctx.alloc(MIB, stream);
		is_int((int64_t)ctx.stats().live, (int64_t)MIB,
			"another takes its place");
		second.use(nullptr);
		second.set_stream(nullptr);
	}
	is_int((int64_t)ctx.stats().live_blocks, 0, "freed at its end");
	void *raw = ctx.alloc(MIB).release();
	is_int((int64_t)ctx.stats().live_blocks, 1, "released, it stays");
	ctx.free(raw, nullptr);
	const glk::error twice = thrown([&] { ctx.free(raw, nullptr); });
	is_str(twice.class_name(), "DOUBLE_FREE", "a second free");
	is_int(ctx.free(raw, nullptr, std::nothrow), -EINVAL,
		"the same without throwing");
	is_int(glk::last_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "and its class");
	glk::block wide = ctx.alloc(MIB, nullptr, 0, GLAKE_ALLOC_CONTIGUOUS);
	ok(wide.query().can & GLAKE_CAN_CONTIGUOUS, "flags");
	wide.free_after(nullptr, 0);
	ok(!wide, "freed behind events");
	wide.free_after(nullptr, 0);
	wide.free();
	ok(!wide, "an empty block is freed as often as one likes");
	ok(ctx.trim() > 0, "unused memory goes back");
	is_int((int64_t)ctx.stats().reserved, 0, "all of it");
	ok(ctx.driver_stats().calls[GLAKE_CALL_CREATE] > 0, "driver calls are counted");
	ctx.stream_end(nullptr);
	glake_stream_free(ctx.get(), 0, stream);
	is_int((int64_t)ctx.close(), 0, "nothing is left");
}

static void errors()
{
	glk::context ctx(soft().set("pool.budget", "64MiB"));
	glk::error why = thrown([&] { ctx.alloc(256 * MIB); });

	is_int(why.code(), -ENOMEM, "more than there is");
	is_int(why.error_class(), GLAKE_ERROR_NOMEM_DEVICE, "its class");
	has_str(why.what(), "64", "its sentence");
	why = thrown([&] { ctx.alloc(0); });
	is_str(why.class_name(), "INVAL", "no bytes");
	ok(!ctx.alloc(256 * MIB, nullptr, std::nothrow), "the same without throwing");
	is_int(glk::last_error().err, -ENOMEM, "and its record");
	ok(!!ctx.alloc(MIB, nullptr, 0, 0, std::nothrow), "one that fits");
	why = thrown([] { glk::context bad(soft().set("pool.budget", "much")); });
	is_str(why.class_name(), "CONFIG", "a setting that is refused");
	has_str(why.what(), "much", "is named");
	why = thrown([] { glk::context bad(glk::options().conf_file("/nowhere")); });
	is_int(why.code(), -ENOENT, "a file that is not there");
	glk::options wrong = soft().set("pool.no_such", "1").set("pool.budget", "much");
	glk::context bad(wrong.get(), std::nothrow);
	ok(!bad, "a context that cannot be opened is empty");
	ok(thrown([&] { bad.device_count(); }).code() < 0, "and good for nothing");
}

static void shortages()
{
	glk::context ctx(soft().set("pool.budget", "64MiB"));
	glk::block kept = ctx.alloc(48 * MIB);
	int calls = 0;
	auto forget = [&](int device, std::size_t want, glk::stream_t, std::int64_t) {
		calls += device == 0 && want > 0;
		kept = glk::block();
		return 48 * MIB;
	};
	auto fails = [&](int, std::size_t, glk::stream_t, std::int64_t) -> std::size_t {
		calls++;
		throw std::bad_alloc();
	};

	ctx.set_shortage(&fails);
	ok(thrown([&] { ctx.alloc(32 * MIB); }).code() == -ENOMEM && calls == 1,
		"a function that throws when memory is short has freed nothing");
	ctx.set_shortage(&forget);
	ok(!!ctx.alloc(32 * MIB, nullptr, std::nothrow) && calls == 2,
		"one that frees some makes room");
	kept = ctx.alloc(48 * MIB);
	ctx.set_shortage(nullptr);
	ok(!ctx.alloc(32 * MIB, nullptr, std::nothrow) && calls == 2,
		"and is not called once it is none");
}

static void resources()
{
	glk::context ctx(soft().set("pool.budget", "64MiB"));
	glk::memory_resource gpu(ctx), same(ctx), other(ctx, (glk::stream_t)2);
	std::pmr::memory_resource &any = gpu;
	void *ptr = any.allocate(5 * MIB, 256), *nothing = any.allocate(0);
	std::pmr::polymorphic_allocator<float> floats(&any);
	const char *text = "";
	float *array;

	is_int((int64_t)ctx.query(ptr).size, 5 * (int64_t)MIB, "a block by std::pmr");
	ok((uintptr_t)ptr % 256 == 0, "aligned");
	ok(nothing, "no bytes have an address");
	array = floats.allocate(1000);
	is_int((int64_t)ctx.query(array).size, 4000, "and by its allocator");
	floats.deallocate(array, 1000);
	any.deallocate(ptr, 5 * MIB, 256);
	any.deallocate(nothing, 0);
	is_int((int64_t)ctx.stats().live_blocks, 0, "given back");
	try {
		ptr = any.allocate(256 * MIB);
	} catch (const std::bad_alloc &why) {
		const glk::bad_alloc *ours = dynamic_cast<const glk::bad_alloc *>(&why);

		text = ours ? ours->why().class_name() : "";
	}
	is_str(text, "NOMEM_DEVICE",
		"more than there is: std::bad_alloc, with the record");
	ptr = nullptr;
	for (std::size_t align = 1024; align <= GLAKE_ALIGN_MAX; align *= 2) {
		ptr = any.allocate(700, align);
		ok((uintptr_t)ptr % align == 0, "as stricter alignments want");
		any.deallocate(ptr, 700, align);
	}
	ptr = nullptr;
	for (volatile std::size_t align : {std::size_t{3}, std::size_t{513},
		     std::size_t{1536}, 2 * GLAKE_ALIGN_MAX, ~(~std::size_t{0} >> 1)}) {
		try {
			ptr = any.allocate(1, align);
		} catch (const std::bad_alloc &) {
		}
		ok(!ptr, "one of %zu is refused", align);
	}
	ok(any == same && any != other && any != *std::pmr::new_delete_resource(),
		"equal by context, stream and GPU");
}

int main()
{
	tap_plan_later();
	contexts();
	blocks();
	errors();
	shortages();
	resources();
	return tap_done();
}
