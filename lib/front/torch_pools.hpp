/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_TORCH_POOLS_HPP
#define GLK_FRONT_TORCH_POOLS_HPP

/*
 * PyTorch's private pools: those of graphs and of torch.cuda.MemPool are the library's, see
 * glake/graph.h; one that has an allocator of its own is left to PyTorch's. Which pool a request goes
 * to is asked here, the newest first, since a filter may throw; what it says is left in a variable of
 * the thread, where the filter that the library calls finds it.
 *
 * Threads	any; one lock, which filters are called under, as PyTorch does
 */
#include <c10/cuda/CUDACachingAllocator.h>

#include "torch_watch.hpp"

#include <atomic>

extern "C" int glake_torch_request(
	size_t size, int device, struct CUstream_st *stream, void **ret_ptr);

namespace glake_torch
{

using Filter = std::function<bool(cudaStream_t)>;
#if GLK_TORCH(11)
using PoolAllocator = std::shared_ptr<CUDAAllocator>;
#else
using PoolAllocator = CUDAAllocator *;
#endif

inline void check(int err, const char *what)
{
	glake_error error = {sizeof(error)};

	if (!err)
		return;
	glake_last_error(&error);
	TORCH_CHECK_WITH(OutOfMemoryError, error.err != -ENOMEM, "glake: ", what, ": ",
		error.text, " (", glake_error_class_name(error.error_class), ")");
	TORCH_CHECK(false, "glake: ", what, ": ", error.text, " (",
		glake_error_class_name(error.error_class), ")");
}

struct Pool {
	DeviceIndex device;
	MempoolId_t id;
	bool native;		  /* it has an allocator of its own */
	bool last_resort = false; /* it serves requests that find no room elsewhere */
	int owed = 0;		  /* releases that came while it was open */
};

/* A pool that is open, and for which requests. */
struct Open {
	Pool *pool;
	Filter filter;
};

/* The live blocks of a pool. */
struct State final : c10::cuda::CUDACachingAllocator::AllocatorState {
	MempoolId_t id;
	std::vector<glake_pool_block> blocks;
};

inline thread_local const Open *chosen; /* of the request that this thread makes */

/* None for this request at first; what was chosen before is again when it is over. */
class Choice
{
      public:
	Choice() : before_(std::exchange(chosen, nullptr))
	{
	}

	~Choice()
	{
		chosen = before_;
	}

      private:
	const Open *before_;
};

class Pools
{
      public:
	explicit Pools(CUDAAllocator *native) : native_(native)
	{
	}

	void context(struct glake *ctx)
	{
		ctx_ = ctx;
	}

	/* Counts one more; whether the pool is left to PyTorch's own allocator. */
	bool hold(DeviceIndex device, MempoolId_t id, PoolAllocator allocator, bool own)
	{
		Guard guard(lock_);
		Pool *pool = find(device, id);
		bool native = pool ? pool->native : own;

		if (!native)
			check(glake_pool_hold(ctx_, device, name_of(id)), "a pool");
#if GLK_TORCH(8)
		else
			native_->createOrIncrefPool(device, id, std::move(allocator));
#else
		else
			native_->ensureExistsAndIncrefPool(device, id);
#endif
		if (!pool)
			add(device, id, native);
		return native;
	}

	void begin(DeviceIndex device, MempoolId_t id, Filter filter)
	{
		Guard guard(lock_);
		Pool *pool = find(device, id);

		TORCH_CHECK(!pool || opened(pool) == open_.end(),
			"beginAllocateToPool: already recording to mempool_id");
		bool is_new = !pool;
		if (is_new)
			pool = add(device, id, false);
		auto open = std::make_unique<Open>(Open{pool, filter});
		if (pool->native) {
			native_->beginAllocateToPool(device, id, std::move(filter));
		} else if (glake_pool_begin_for(
				   ctx_, device, name_of(id), is_chosen, open.get())) {
			if (is_new)
				remove(pool);
			check(-1, "a pool cannot be opened");
		}
		open_.push_back(std::move(open));
	}

	/* Whether any is open still. */
	bool end(DeviceIndex device, MempoolId_t id)
	{
		Guard guard(lock_);
		Pool *pool = find(device, id);
		auto open = opened(pool);

		if (open == open_.end())
			return !open_.empty();
		if (pool->native)
			native_->endAllocateToPool(device, id);
		else
			check(glake_pool_end(ctx_, device, name_of(id)),
				"the end of a pool");
		open_.erase(open);
		for (; pool->owed; pool->owed--)
			glake_pool_release(ctx_, device, name_of(id));
		if (!use_count(pool))
			remove(pool);
		return !open_.empty();
	}

	/* The last one waits for the GPU: not under the lock, which threads of other GPUs want. */
	void release(DeviceIndex device, MempoolId_t id)
	{
		std::unique_lock<std::recursive_mutex> guard(lock_);
		Pool *pool = find(device, id);

		TORCH_INTERNAL_ASSERT(pool);
		if (pool->native) {
			native_->releasePool(device, id);
		} else if (opened(pool) != open_.end()) {
			pool->owed++; /* the library wants it closed */
		} else {
			guard.unlock();
			glake_pool_release(ctx_, device, name_of(id));
			guard.lock();
			pool = find(device, id);
		}
		if (pool && opened(pool) == open_.end() && !use_count(pool))
			remove(pool);
	}

	int use_count(DeviceIndex device, MempoolId_t id)
	{
		Guard guard(lock_);
		Pool *pool = find(device, id);

		return pool ? use_count(pool) : 0;
	}

	/* Whether PyTorch's own has the pool, and has to be told too. */
	bool is_native(DeviceIndex device, MempoolId_t id)
	{
		Guard guard(lock_);
		Pool *pool = find(device, id);

		TORCH_CHECK(pool, "Could not find pool of id");
		return pool->native;
	}

	bool set_last_resort(DeviceIndex device, MempoolId_t id, bool use)
	{
		Guard guard(lock_);
		bool native = is_native(device, id);

		find(device, id)->last_resort = use;
		return native;
	}

	std::vector<glake_pool_block> live(DeviceIndex device, MempoolId_t id)
	{
		std::vector<glake_pool_block> blocks(64);
		size_t count = 0;

		for (;;) {
			check(glake_pool_blocks(ctx_, device, name_of(id), blocks.data(),
				      blocks.size(), &count),
				"blocks of a pool");
			if (count <= blocks.size())
				break;
			blocks.resize(count);
		}
		blocks.resize(count);
		return blocks;
	}

	void restore(DeviceIndex device, const State &state)
	{
		check(glake_pool_restore(ctx_, device, name_of(state.id),
			      state.blocks.data(), state.blocks.size()),
			"a state of a pool cannot be restored");
	}

	/* For the request that this thread is about to make: whether it goes to PyTorch's own. */
	bool choose(DeviceIndex device, cudaStream_t stream)
	{
		Guard guard(lock_);

		chosen = nullptr;
		for (auto open = open_.rbegin(); open != open_.rend(); ++open)
			if ((*open)->pool->device == device && (*open)->filter(stream)) {
				chosen = open->get();
				return (*open)->pool->native;
			}
		return false;
	}

	/* From a pool whose maker lets others have what it does not use; NULL: from none. */
	void *last_resort(size_t size, DeviceIndex device, cudaStream_t stream)
	{
		Guard guard(lock_);
		void *ptr = nullptr;

		for (const auto &pool : pools_) {
			Open open{pool.get(), nullptr};

			if (!pool->last_resort || pool->native ||
				pool->device != device ||
				opened(pool.get()) != open_.end() ||
				glake_pool_begin_for(ctx_, device, name_of(pool->id),
					is_chosen, &open))
				continue;
			chosen = &open;
			glake_torch_request(size, device, stream, &ptr);
			chosen = nullptr;
			glake_pool_end(ctx_, device, name_of(pool->id));
			glake_pool_release(ctx_, device, name_of(pool->id));
			if (ptr)
				break;
		}
		return ptr;
	}

      private:
	static glake_pool_id name_of(MempoolId_t id)
	{
		return {id.first, id.second};
	}

	static bool is_chosen(CUstream_st *, void *open)
	{
		return chosen == open;
	}

	Pool *find(DeviceIndex device, MempoolId_t id)
	{
		for (const auto &pool : pools_)
			if (pool->device == device && pool->id == id)
				return pool.get();
		return nullptr;
	}

	Pool *add(DeviceIndex device, MempoolId_t id, bool native)
	{
		pools_.push_back(std::make_unique<Pool>(Pool{device, id, native}));
		return pools_.back().get();
	}

	void remove(const Pool *pool)
	{
		pools_.erase(std::find_if(pools_.begin(), pools_.end(),
			[&](const auto &one) { return one.get() == pool; }));
	}

	std::vector<std::unique_ptr<Open>>::iterator opened(const Pool *pool)
	{
		return std::find_if(open_.begin(), open_.end(),
			[&](const auto &one) { return one->pool == pool; });
	}

	int use_count(const Pool *pool)
	{
		glake_pool about = {sizeof(about)};

		if (pool->native)
			return native_->getPoolUseCount(pool->device, pool->id);
		if (glake_pool_get(ctx_, pool->device, name_of(pool->id), &about))
			return 0;
		return static_cast<int>(about.graphs) - pool->owed;
	}

	CUDAAllocator *native_;
	std::atomic<struct glake *> ctx_{nullptr};
	std::recursive_mutex lock_;
	std::vector<std::unique_ptr<Pool>> pools_;
	std::vector<std::unique_ptr<Open>> open_; /* the newest last */
};

} // namespace glake_torch

#endif
