/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pools of PyTorch's plug-in with the real types of C++: std::function by value, kept and ended
 * as it should be, throwing, of a layout that is unknown; and exceptions through an allocation.
 */
#define TAP_NO_LOG
#include "tap.h"

#include <glake/glake.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

using stream_t = struct CUstream_st *;
using pool_id = std::pair<unsigned long long, unsigned long long>;
using filter_fn = std::function<bool(stream_t)>;

static const size_t MIB = 1 << 20;

static void *(*torch_alloc)(size_t, int, stream_t);
static void (*torch_free)(void *, size_t, int, stream_t);
static void (*begin_pool)(int, pool_id, filter_fn);
static void (*end_pool)(int, pool_id);
static void (*release_pool)(int, pool_id);
static void (*raise_with)(void (*)(int, const char *));
static struct glake *(*context)();

template <typename F> static void find(void *plug, const char *name, F &ret)
{
	ret = reinterpret_cast<F>(dlsym(plug, name));
	if (!ret)
		tap_bail(name);
}

static void load(int argc, char **argv)
{
	void *plug;

	setenv("GLAKE_DRIVER_BACKEND", "soft", 1);
	setenv("GLAKE_POOL_BUDGET", "256MiB", 1);
	plug = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
	if (!plug)
		tap_bail("the plug-in cannot be loaded");
	find(plug, "glake_torch_alloc", torch_alloc);
	find(plug, "glake_torch_free", torch_free);
	find(plug, "glake_torch_begin_pool", begin_pool);
	find(plug, "glake_torch_end_pool", end_pool);
	find(plug, "glake_torch_release_pool", release_pool);
	find(plug, "glake_torch_raise_with", raise_with);
	find(plug, "glake_torch_context", context);
}

struct out_of_memory : std::runtime_error {
	using std::runtime_error::runtime_error;
};

static void raise(int is_memory, const char *text)
{
	if (is_memory)
		throw out_of_memory(text);
	throw std::runtime_error(text);
}

static struct glake_pool about(unsigned long long first, unsigned long long second)
{
	struct glake_pool pool = {};

	pool.sz = sizeof(pool);
	if (glake_pool_get(context(), 0, {first, second}, &pool))
		pool.sz = 0;
	return pool;
}

/* The pool that a request of `stream` goes to, by its name; 0 for none. */
static int64_t pool_of(stream_t stream)
{
	struct glake_block block = {};
	void *ptr = torch_alloc(MIB, 0, stream);

	block.sz = sizeof(block);
	if (!ptr || glake_query(context(), ptr, &block))
		return -1;
	torch_free(ptr, MIB, 0, stream);
	return static_cast<int64_t>(block.pool.high * 1000 + block.pool.low);
}

static void routes(stream_t a, stream_t b)
{
	int asked = 0;

	begin_pool(0, {1, 0}, [&asked, a](stream_t stream) {
		asked++;
		return stream == a;
	});
	is_int(pool_of(a), 1000, "a request of the stream goes to the pool");
	is_int(pool_of(b), 0, "one of another stream does not");
	is_int(asked, 2, "the function was asked for both");
	begin_pool(0, {0, 2}, [](stream_t) { return true; });
	is_int(pool_of(a), 2, "a newer pool is asked first");
	is_int(pool_of(b), 2, "and takes all");
	is_int(asked, 2, "so that the older one is not asked");
	end_pool(0, {0, 2});
	is_int(pool_of(a), 1000, "when that is closed the older one is asked again");
	is_int(pool_of(b), 0, "by its own rule");
	end_pool(0, {1, 0});
	is_int(pool_of(a), 0, "none is open");
	is_int(asked, 4, "and nobody is asked");
	is_int(about(1, 0).graphs, 1, "what was given stays the pool's");
	begin_pool(0, {1, 0}, [](stream_t) { return true; });
	is_int(about(1, 0).graphs, 2, "a further graph of the same pool");
	end_pool(0, {1, 0});
	release_pool(0, {1, 0});
	is_int(about(1, 0).graphs, 1, "one is gone");
	release_pool(0, {1, 0});
	release_pool(0, {0, 2});
	ok(!about(1, 0).sz && !about(0, 2).sz, "and with the last one the pool");
	release_pool(0, {1, 0});
	release_pool(0, {9, 9});
	end_pool(0, {9, 9});
	ok(true, "to release what is not there, or to close it, is no error");
}

/* A thread's pool, as torch.cuda.use_mem_pool opens it. */
static void routes_threads()
{
	std::thread::id self = std::this_thread::get_id();
	int64_t there = -1;

	begin_pool(0, {0, 3},
		[self](stream_t) { return std::this_thread::get_id() == self; });
	std::thread([&there] { there = pool_of(nullptr); }).join();
	is_int(pool_of(nullptr), 3, "this thread's requests go to its pool");
	is_int(there, 0, "another's do not");
	end_pool(0, {0, 3});
	release_pool(0, {0, 3});
}

static int copies;

/* Too large to lie inside of a std::function. */
struct large {
	std::array<int, 100> data = {};
	large()
	{
		copies++;
	}
	large(const large &other) : data(other.data)
	{
		copies++;
	}
	~large()
	{
		copies--;
	}
	bool operator()(stream_t) const
	{
		return data[99] == 7;
	}
};

static void keeps_functions()
{
	{
		large functor;

		functor.data[99] = 7;
		begin_pool(0, {0, 4}, functor);
		is_int(copies, 2, "a large function is kept in a copy of its own");
	}
	is_int(copies, 1, "the caller's has gone");
	is_int(pool_of(nullptr), 4, "it works");
	end_pool(0, {0, 4});
	is_int(copies, 0, "it goes with the end of the pool");
	release_pool(0, {0, 4});
}

static bool thrown(const std::function<void()> &call)
{
	try {
		call();
	} catch (const std::exception &) {
		return true;
	}
	return false;
}

static void throws()
{
	bool memory = false;
	void *ptr;

	begin_pool(0, {0, 5}, [](stream_t) -> bool { throw std::bad_alloc(); });
	ok(thrown([] { torch_alloc(MIB, 0, nullptr); }),
		"what the function throws reaches PyTorch");
	ok(thrown([] { torch_alloc(MIB, 0, nullptr); }), "each time");
	end_pool(0, {0, 5});
	release_pool(0, {0, 5});
	is_int(pool_of(nullptr), 0, "and leaves no trace");

	raise_with(raise);
	try {
		torch_alloc(static_cast<size_t>(1) << 40, 0, nullptr);
	} catch (const out_of_memory &error) {
		memory = strstr(error.what(), "CUDA out of memory") != nullptr;
	}
	ok(memory, "a request that cannot be served throws what is wanted");
	begin_pool(0, {0, 6}, [](stream_t) { return true; });
	ok(thrown([] {
		begin_pool(0, {0, 6}, [](stream_t) { return true; });
	}),
		"a pool that is open cannot be opened");
	ok(thrown([] { torch_alloc(static_cast<size_t>(1) << 40, 0, nullptr); }),
		"no room in a pool");
	is_int(pool_of(nullptr), 6, "it is as it was");
	end_pool(0, {0, 6});
	release_pool(0, {0, 6});
	ok(thrown([] {
		begin_pool(0, {0, 0}, [](stream_t) { return true; });
	}),
		"two zeroes are no name");
	ok(thrown([] {
		begin_pool(5, {0, 7}, [](stream_t) { return true; });
	}),
		"nor is there such a GPU");
	is_int(pool_of(nullptr), 0, "nothing is open");
	ptr = torch_alloc(MIB, 0, nullptr);
	ok(ptr, "and all goes on");
	torch_free(ptr, MIB, 0, nullptr);
}

static bool no_manager(void *, const void *, int)
{
	return true;
}

/* What is no std::function of libstdc++ is not called. */
static void refuses_layouts(stream_t a)
{
	static char data[64];
	struct {
		void *word[4];
	} odd[] = {
		{{nullptr, nullptr, nullptr, nullptr}},
		{{data, data, data, data}},
		{{data, data, reinterpret_cast<void *>(&no_manager), data}},
		{{data, data, reinterpret_cast<void *>(&no_manager),
			reinterpret_cast<void *>(&no_manager)}},
	};
	/* as one of another version of the C++ library might be passed */
	auto begin = reinterpret_cast<void (*)(int, pool_id, void *)>(
		reinterpret_cast<void (*)()>(begin_pool));
	int64_t there = -1;

	begin_pool(0, {0, 8}, filter_fn());
	is_int(pool_of(a), 8, "an empty function: the thread's own requests");
	std::thread([&there, a] { there = pool_of(a); }).join();
	is_int(there, 0, "and no other's");
	end_pool(0, {0, 8});
	release_pool(0, {0, 8});
	for (auto &words : odd) {
		begin(0, {0, 8}, &words);
		is_int(pool_of(a), 8, "the same for words that are no function");
		end_pool(0, {0, 8});
		release_pool(0, {0, 8});
	}
	begin(0, {0, 8}, nullptr);
	begin(0, {8, 0}, reinterpret_cast<char *>(odd) + 4);
	is_int(pool_of(a), 8, "and for none; a graph's pool takes what is captured");
	end_pool(0, {8, 0});
	end_pool(0, {0, 8});
	release_pool(0, {8, 0});
	release_pool(0, {0, 8});
}

/* Requests of other threads while pools come and go. */
static void races(stream_t a)
{
	std::thread others[2];
	int failed = 0;

	for (auto &other : others)
		other = std::thread([a] {
			for (int i = 0; i < 3000; i++)
				torch_free(torch_alloc(65536, 0, a), 65536, 0, a);
		});
	for (unsigned long long i = 1; i <= 200; i++) {
		large functor;

		begin_pool(0, {i, 0}, functor);
		failed += pool_of(nullptr) != 0;
		end_pool(0, {i, 0});
		release_pool(0, {i, 0});
	}
	for (auto &other : others)
		other.join();
	is_int(failed, 0, "pools come and go beside requests");
	is_int(copies, 0, "no function is left");
}

/* As many as a program opens at once. */
static void many()
{
	static unsigned long long wanted;
	int failed = 0;

	for (unsigned long long i = 1; i <= 200; i++)
		begin_pool(0, {0, i}, [i](stream_t) { return wanted == i; });
	for (wanted = 1; wanted <= 200; wanted += 33)
		failed += pool_of(nullptr) != static_cast<int64_t>(wanted);
	for (unsigned long long i = 1; i <= 200; i++) {
		end_pool(0, {0, i});
		release_pool(0, {0, i});
	}
	is_int(failed, 0, "each of many pools has what it wants");
	is_int(pool_of(nullptr), 0, "and no more when all are closed");
}

int main(int argc, char **argv)
{
	stream_t a = nullptr, b = nullptr;

	tap_plan_later();
	load(argc, argv);
	if (glake_stream_new(context(), 0, &a) || glake_stream_new(context(), 0, &b))
		tap_bail("no streams");
	routes(a, b);
	routes_threads();
	keeps_functions();
	throws();
	many();
	refuses_layouts(a);
	races(a);
	is_int(glake_stream_free(context(), 0, a), 0, "a stream ends");
	is_int(glake_stream_free(context(), 0, b), 0, "and the other");
	return tap_done();
}
