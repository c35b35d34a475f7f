/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glake in the place of PyTorch's own allocator of GPU memory: a CUDAAllocator whose every function
 * answers as PyTorch's does. An object made of this belongs to exactly one build of PyTorch, whose
 * headers it was compiled with.
 *
 * The hit	a request and a free are one call of the library each: no lock, no table, no Python.
 *		Whatever else there may be to do (pools that are open, somebody who looks on, a device
 *		that is new, a refusal) is behind one word, `odd`
 * Native	PyTorch's own allocator stays below. It serves pools that have an allocator of their
 *		own, memory that other programs sent, and everything while caching is switched off; a
 *		block goes back to who gave it
 */
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include "torch_pools.hpp"
#include "torch_watch.hpp"

#include <atomic>
#include <cerrno>

extern "C" {
/* Of the plug-in, see front/torch.h. */
struct glake *glake_torch_context(void);
const char *glake_torch_why(void);
void glake_torch_init(int devices);
void glake_torch_memory_fraction(double fraction, int device);
int glake_torch_record_stream(void *ptr, struct CUstream_st *stream);
void glake_torch_refusal(size_t size, int device, char *ret_text, size_t room);
void glake_torch_tell(void *ptr, size_t size, int device, struct CUstream_st *stream);
void glake_torch_raise_with(void (*fn)(int out_of_memory, const char *text));
}

namespace
{

using namespace c10;
using namespace c10::CachingDeviceAllocator;
using namespace c10::cuda::CUDACachingAllocator;
#if GLK_TORCH(7)
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
#endif
using namespace glake_torch;

constexpr size_t TEXT = 2048;
constexpr size_t EXABYTE = size_t(1) << 60;

/* Why a hit may not be one: bits of `odd`. */
enum : unsigned {
	ODD_CLOSED = 1,	  /* the library is not opened yet */
	ODD_POOL = 2,	  /* a pool is open */
	ODD_WATCHED = 4,  /* history, trackers, or the plug-in's history */
	ODD_UNCACHED = 8, /* caching is switched off */
	ODD_NAMED = 16,	  /* a tool wants names of tensors, which the plug-in gives */
};

/* Of a GPU: since when allocations are counted, and the most bytes that were told of. */
struct Since {
	uint64_t allocs = 0, frees = 0, given = 0, back = 0;
	uint64_t peak = 0;
};

void set(StatArray &stats, uint64_t current, uint64_t peak, uint64_t allocated,
	uint64_t freed)
{
	Stat stat;

	stat.current = static_cast<int64_t>(current);
	stat.peak = static_cast<int64_t>(std::max(peak, current));
	stat.allocated = static_cast<int64_t>(allocated);
	stat.freed = static_cast<int64_t>(freed);
	/* there are no pools of small and of large blocks */
	stats[static_cast<size_t>(StatType::AGGREGATE)] = stat;
	stats[static_cast<size_t>(StatType::LARGE_POOL)] = stat;
}

void add(Stat &to, const Stat &more)
{
	to.current += more.current;
	to.peak += more.peak;
	to.allocated += more.allocated;
	to.freed += more.freed;
}

void add(StatArray &to, const StatArray &more)
{
	for (size_t i = 0; i < to.size(); i++)
		add(to[i], more[i]);
}

class GlakeAllocator final : public CUDAAllocator
{
      public:
	explicit GlakeAllocator(CUDAAllocator *native) : native_(native), pools_(native)
	{
	}

	/* ---- The hit. ---- */

	DataPtr allocate(size_t size) override
	{
		DeviceIndex device = current();
		void *ptr = nullptr;

		if (C10_UNLIKELY(odd_.load(std::memory_order_relaxed) & ODD_UNCACHED))
			return native_->allocate(size); /* with a way back of its own */
		ptr = take(size, device, cuda::getCurrentCUDAStream(device).stream());
		return {ptr, ptr, give, Device(kCUDA, device)};
	}

	void *take(size_t size, DeviceIndex device, cudaStream_t stream)
	{
		void *ptr;

		if (C10_UNLIKELY(odd_.load(std::memory_order_relaxed) ||
			    memoryProfilingEnabled() || !size ||
			    glake_alloc(ctx_, device, size, stream, 0, &ptr)))
			return take_odd(size, device, stream);
		return ptr;
	}

	static void give(void *ptr);

	DeleterFnPtr raw_deleter() const override
	{
		return give;
	}

	void *raw_alloc(size_t size) override
	{
		DeviceIndex device = current();

		return take(size, device, cuda::getCurrentCUDAStream(device).stream());
	}

	void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override
	{
		return take(size, current(), stream);
	}

	void raw_delete(void *ptr) override
	{
		give(ptr);
	}

	void copy_data(void *to, const void *from, size_t count) const override
	{
		C10_CUDA_CHECK(cudaMemcpy(to, from, count, cudaMemcpyDeviceToDevice));
	}

	/* ---- Life. ---- */

	void init(int devices) override
	{
		native_->init(devices);
		glake_torch_init(devices);
		open_context();
		Guard guard(lock_);
		if (devices_ >= devices)
			return;
		devices_ = devices;
		watch_.devices(static_cast<size_t>(devices));
		fractions_.resize(static_cast<size_t>(devices), 1.0);
		since_.resize(static_cast<size_t>(devices));
	}

	bool initialized() override
	{
		return devices_ > 0;
	}

	void enable(bool value) override
	{
		native_->enable(value);
		odd(ODD_UNCACHED, !value);
	}

	bool isEnabled() const override
	{
		return native_->isEnabled();
	}

	std::string name() override
	{
		return "glake";
	}

	/* ---- Memory that nobody uses, and bounds. ---- */

#if GLK_TORCH(8)
	void emptyCache(MempoolId_t id = NO_POOL) override
	{
		if (native_used_)
			native_->emptyCache(id);
#else
	void emptyCache() override
	{
		if (native_used_)
			native_->emptyCache();
#endif
		emptied_.fetch_add(1, std::memory_order_relaxed);
		/* also for one pool: what it does not use is not told apart from what others do not */
		for (int i = 0; ctx_ && i < devices_; i++)
			glake_trim(ctx_, i, 0, nullptr);
	}

	double getMemoryFraction(DeviceIndex device) override
	{
		return fractions_.at(index(device));
	}

	void setMemoryFraction(double fraction, DeviceIndex device) override
	{
		TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction,
			". Please set within [0, 1].");
		fractions_.at(index(device)) = fraction;
		glake_torch_memory_fraction(fraction, device);
		native_->setMemoryFraction(fraction, device);
	}

#if GLK_TORCH(10)
	std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override
	{
		return {};
	}
#endif

	/* Any amount can be had of what is free, wherever it lies. */
	void cacheInfo(DeviceIndex device, size_t *largest) override
	{
		glake_stats stats = {sizeof(stats)};
		glake_device gpu = {sizeof(gpu)};

		check(glake_stats_get(ctx_, static_cast<int>(index(device)), &stats),
			"figures");
		check(glake_device_get(ctx_, device, &gpu), "the GPU");
		*largest = std::max<size_t>(
			*largest, gpu.free + stats.free_pages + stats.quick);
	}

	void *getBaseAllocation(void *ptr, size_t *size) override
	{
		glake_block block = {sizeof(block)};

		if (glake_query(ctx_, ptr, &block))
			return native_->getBaseAllocation(ptr, size);
		if (size)
			*size = block.given;
		return block.base;
	}

	/* ---- Order. ---- */

	void recordStream(const DataPtr &ptr, cuda::CUDAStream stream) override
	{
		if (!ptr.get())
			return;
		if (ptr.get_deleter() != give)
			native_->recordStream(ptr, stream);
		else if (ours(ptr.get()))
			check(glake_torch_record_stream(ptr.get(), stream.stream()),
				"a stream that uses a block");
		else /* its own look at the way back of what they gave */
			native_->recordStream(
				DataPtr(ptr.get(), nullptr, native_->raw_deleter(),
					ptr.device()),
				stream);
	}

	void enablePeerAccess(DeviceIndex device, DeviceIndex other) override
	{
		native_->enablePeerAccess(device, other);
		/* memory of the other one, for kernels of the first; refused where there is no way */
		glake_peer_access(ctx_, other, device, 1);
	}

	cudaError_t memcpyAsync(void *to, int to_device, const void *from,
		int from_device, size_t count, cudaStream_t stream, bool p2p) override
	{
		if (p2p || to_device == from_device)
			return cudaMemcpyAsync(
				to, from, count, cudaMemcpyDeviceToDevice, stream);
		return cudaMemcpyPeerAsync(
			to, to_device, from, from_device, count, stream);
	}

	/* ---- Figures. ---- */

	DeviceStats getDeviceStats(DeviceIndex device) override
	{
		glake_driver_stats driver = {sizeof(driver)};
		glake_stats now = {sizeof(now)};
		DeviceStats stats;

		check(glake_stats_get(ctx_, static_cast<int>(index(device)), &now),
			"figures");
		check(glake_driver_stats_get(ctx_, &driver), "figures of the driver");
		const uint64_t *calls = driver.calls;
		uint64_t between = now.reserved - now.free_pages > now.given
			? now.reserved - now.free_pages - now.given
			: 0;

		Since since = since_of(device, std::max(now.peak_live, now.given));
		uint64_t allocs = now.allocs - since.allocs,
			 frees = now.frees - since.frees;
		uint64_t given = now.total_given - since.given;
		uint64_t back = now.total_given - now.given - since.back;

		set(stats.allocation, now.live_blocks, 0, allocs, frees);
		set(stats.active, now.live_blocks, 0, allocs, frees);
		set(stats.segment, calls[GLAKE_CALL_CREATE] - calls[GLAKE_CALL_RELEASE],
			0, calls[GLAKE_CALL_CREATE], calls[GLAKE_CALL_RELEASE]);
		set(stats.inactive_split, now.free_extents, 0, now.free_extents, 0);
		set(stats.inactive_split_bytes, between, 0, between, 0);
		set(stats.allocated_bytes, now.given, since.peak, given, back);
		set(stats.active_bytes, now.given, since.peak, given, back);
		set(stats.requested_bytes, now.live, now.peak_live, given, back);
		set(stats.reserved_bytes, now.reserved, now.peak_reserved, now.reserved,
			0);
		for (uint64_t rung : now.rungs)
			stats.num_alloc_retries += static_cast<int64_t>(rung);
		stats.num_ooms = static_cast<int64_t>(now.oom);
		/* as PyTorch's own counts them: emptying the cache is one, whatever it takes */
		stats.num_sync_all_streams = static_cast<int64_t>(calls[GLAKE_CALL_SYNC] +
			emptied_.load(std::memory_order_relaxed));
		stats.num_device_alloc = static_cast<int64_t>(calls[GLAKE_CALL_CREATE]);
		stats.num_device_free = static_cast<int64_t>(calls[GLAKE_CALL_RELEASE]);
		stats.max_split_size = -1;
		if (native_used_)
			add_native(stats, native_->getDeviceStats(device));
		return stats;
	}

	void resetAccumulatedStats(DeviceIndex device) override
	{
		glake_stats now = {sizeof(now)};

		check(glake_stats_get(ctx_, static_cast<int>(index(device)), &now),
			"figures");
		{
			Guard guard(lock_);

			Since &since = since_.at(index(device));
			since = {now.allocs, now.frees, now.total_given,
				now.total_given - now.given, since.peak};
		}
		native_->resetAccumulatedStats(device);
	}

	void resetPeakStats(DeviceIndex device) override
	{
		check(glake_stats_reset(ctx_, static_cast<int>(index(device))), "peaks");
		{
			Guard guard(lock_);

			since_.at(index(device)).peak = 0;
		}
		native_->resetPeakStats(device);
	}

#if GLK_TORCH(11)
	SnapshotInfo snapshot(
		MempoolId_t id = NO_POOL, bool include_traces = true) override
	{
		SnapshotInfo info{};

		if (native_used_)
			info = native_->snapshot(id, false);
#elif GLK_TORCH(8)
	SnapshotInfo snapshot(MempoolId_t id = NO_POOL) override
	{
		bool include_traces = true;
		SnapshotInfo info{};

		if (native_used_)
			info = native_->snapshot(id);
#else
SnapshotInfo snapshot() override
{
	MempoolId_t id = NO_POOL;
	bool include_traces = true;
	SnapshotInfo info{};

	if (native_used_)
		info = native_->snapshot();
#endif
		info.device_traces.clear();
		info.device_traces.resize(static_cast<size_t>(devices_));
		if (include_traces)
			watch_.copy(info);
		for (int i = 0; i < devices_; i++) {
			auto device = static_cast<DeviceIndex>(i);
			Picture picture(watch_, device, id, info.segments);

			check(glake_map(ctx_, i, 0, Picture::take, &picture), "the map");
			picture.end();
			watch_.record(TraceEntry::SNAPSHOT, device, nullptr, 0, nullptr,
				NO_POOL, nullptr);
		}
		info.config_metadata.last_allocator_settings = "glake";
		return info;
	}

	/* ---- Pools. ---- */

#if GLK_TORCH(8)
	void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
		PoolAllocator allocator = nullptr) override
	{
#else
	void ensureExistsAndIncrefPool(DeviceIndex device, MempoolId_t id) override
	{
		PoolAllocator allocator = nullptr;
#endif
		bool own = allocator && &*allocator != this;

		open_context();
		if (pools_.hold(device, id, std::move(allocator), own))
			native_used_ = true;
	}

	void beginAllocateToPool(
		DeviceIndex device, MempoolId_t id, Filter filter) override
	{
		open_context();
		std::lock_guard<std::mutex> turn(turn_);
		pools_.begin(device, id, std::move(filter));
		odd(ODD_POOL, true);
	}

	void endAllocateToPool(DeviceIndex device, MempoolId_t id) override
	{
		std::lock_guard<std::mutex> turn(turn_);
		odd(ODD_POOL, pools_.end(device, id));
	}

	void releasePool(DeviceIndex device, MempoolId_t id) override
	{
		pools_.release(device, id);
	}

	int getPoolUseCount(DeviceIndex device, MempoolId_t id) override
	{
		return pools_.use_count(device, id);
	}

#if GLK_TORCH(11)
	void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use) override
	{
		if (pools_.set_last_resort(device, id, use))
			native_->setUseOnOOM(device, id, use);
	}
#elif GLK_TORCH(8)
	void setUseOnOOM(DeviceIndex device, MempoolId_t id) override
	{
		if (pools_.set_last_resort(device, id, true))
			native_->setUseOnOOM(device, id);
	}
#endif

#if GLK_TORCH(10)
	/* A block is never a part of another one here. */
	void setNoSplit(DeviceIndex device, MempoolId_t id) override
	{
		if (pools_.is_native(device, id))
			native_->setNoSplit(device, id);
	}
#endif

	bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
		const std::unordered_set<void *> &expected) override
	{
		if (pools_.is_native(device, id))
			return native_->checkPoolLiveAllocations(device, id, expected);
		auto blocks = pools_.live(device, id);
		return blocks.size() == expected.size() &&
			std::all_of(blocks.begin(), blocks.end(), [&](const auto &block) {
				return expected.count(block.ptr);
			});
	}

	std::shared_ptr<AllocatorState> getCheckpointState(
		DeviceIndex device, MempoolId_t id) override
	{
		if (pools_.is_native(device, id))
			return native_->getCheckpointState(device, id);
		auto state = std::make_shared<State>();
		state->id = id;
		state->blocks = pools_.live(device, id);
		return state;
	}

	CheckpointDelta setCheckpointPoolState(
		DeviceIndex device, std::shared_ptr<AllocatorState> before) override
	{
		auto *state = dynamic_cast<State *>(before.get());
		CheckpointDelta delta;

		if (!state)
			return native_->setCheckpointPoolState(device, std::move(before));
		bool watched = odd_.load(std::memory_order_relaxed) & ODD_WATCHED;
		for (const auto &block : pools_.live(device, state->id)) {
			delta.ptrs_freed.push_back(block.ptr);
			if (watched)
				note(false, device, block.ptr, block.size, block.stream);
		}
		pools_.restore(device, *state);
		for (const auto &block : state->blocks) {
			delta.dataptrs_allocd.emplace_back(
				block.ptr, block.ptr, give, Device(kCUDA, device));
			if (watched)
				note(true, device, block.ptr, block.size, block.stream);
		}
		return delta;
	}

	/* ---- Between processes: tensors go by glake/share.py, these are of others. ---- */

	ShareableHandle shareIpcHandle(void *ptr) override
	{
		TORCH_CHECK(!ours(ptr),
			"glake: this tensor leaves the process by torch.multiprocessing alone");
		return native_->shareIpcHandle(ptr);
	}

	std::shared_ptr<void> getIpcDevPtr(std::string handle) override
	{
		return native_->getIpcDevPtr(std::move(handle));
	}

	/* ---- Those who look on. ---- */

	bool isHistoryEnabled() override
	{
		return watch_.on();
	}

#if GLK_TORCH(11)
	void recordHistory(bool enabled, CreateContextFn gather, size_t most,
		RecordContext when, bool clear,
		const std::vector<std::string> &skip) override
	{
#elif GLK_TORCH(8)
	void recordHistory(bool enabled, CreateContextFn gather, size_t most,
		RecordContext when, bool clear) override
	{
		const std::vector<std::string> skip;
#else
void recordHistory(
	bool enabled, CreateContextFn gather, size_t most, RecordContext when) override
{
	const std::vector<std::string> skip;
	bool clear = false;
#endif
		std::lock_guard<std::mutex> turn(turn_);
		watch_.set(enabled, gather, most, when, clear, skip);
		odd(ODD_WATCHED, watch_.wanted() || told_);
	}

	void recordAnnotation(
		const std::vector<std::pair<std::string, std::string>> &rows) override
	{
		watch_.annotate(current(), rows);
	}

#if GLK_TORCH(8)
	void pushCompileContext(std::string &text) override
	{
		compile_contexts.push(text);
	}

	void popCompileContext() override
	{
		if (!compile_contexts.empty())
			compile_contexts.pop();
	}

#endif

#if GLK_TORCH(10)
	void setUserMetadata(const std::string &text) override
	{
		user_metadata = text;
	}

	std::string getUserMetadata() override
	{
		return user_metadata;
	}
#endif

#if GLK_TORCH(14)
	bool supportsUserMetadata() override
	{
		return true;
	}

	void annotateMemory(const void *ptr, const std::string &text) override
	{
		glake_block block = {sizeof(block)};

		if (!ctx_ || glake_query(ctx_, ptr, &block))
			return native_->annotateMemory(ptr, text);
		watch_.say(static_cast<DeviceIndex>(block.device), block.base, block.size,
			block.stream, MempoolId_t{block.pool.high, block.pool.low}, text);
	}
#endif

#if GLK_TORCH(13)
	void markCaptureBegin(DeviceIndex device) override
	{
		native_->markCaptureBegin(device);
	}

	void markCaptureEnd(DeviceIndex device) override
	{
		native_->markCaptureEnd(device);
	}
#endif

#if GLK_TORCH(12)
	/* Nothing is refused while there is room. */
	void attachOomRejectionObserver(OomRejectionObserver observer) override
	{
		native_->attachOomRejectionObserver(std::move(observer));
	}

	std::shared_ptr<GatheredContext> getContextForPointer(const void *ptr) override
	{
		glake_block block = {sizeof(block)};

		if (!ctx_ || glake_query(ctx_, ptr, &block))
			return native_->getContextForPointer(ptr);
		return watch_.of(reinterpret_cast<uint64_t>(block.base));
	}
#endif

	void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override
	{
		Guard guard(lock_);

		native_->attachOutOfMemoryObserver(observer);
		observers_.push_back(std::move(observer));
	}

	void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override
	{
		std::lock_guard<std::mutex> turn(turn_);
		native_->attachAllocatorTraceTracker(tracker);
		watch_.track(std::move(tracker));
		odd(ODD_WATCHED, true);
	}

	/* Requests are told to the plug-in too, whose history is on. */
	void tell_plug(bool on)
	{
		std::lock_guard<std::mutex> turn(turn_);
		told_ = on;
		odd(ODD_WATCHED, watch_.wanted() || told_);
	}

      private:
	static DeviceIndex current()
	{
		DeviceIndex device = 0;

		C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
		return device;
	}

	size_t index(DeviceIndex device) const
	{
		TORCH_CHECK(0 <= device && device < devices_,
			"Allocator not initialized for device ", static_cast<int>(device),
			": did you call init?");
		open_context();
		return static_cast<size_t>(device);
	}

	void open_context() const
	{
		if (C10_LIKELY(ctx_))
			return;
		ctx_ = glake_torch_context();
		TORCH_CHECK(ctx_, "glake could not be opened: ", glake_torch_why());
		pools_.context(ctx_);
		odd(ODD_NAMED, !glake_block_name(ctx_, nullptr, nullptr));
		odd(ODD_CLOSED, false);
	}

	void odd(unsigned bit, bool on) const
	{
		if (on)
			odd_.fetch_or(bit);
		else
			odd_.fetch_and(~bit);
	}

	/* The library's peak is one of bytes asked for: here it does not fall below bytes given that were told. */
	Since since_of(DeviceIndex device, uint64_t peak)
	{
		Guard guard(lock_);
		Since &since = since_.at(index(device));

		since.peak = std::max(since.peak, peak);
		return since;
	}

	bool ours(const void *ptr) const
	{
		glake_block block = {sizeof(block)};

		return ctx_ && ptr && !glake_query(ctx_, ptr, &block);
	}

	/* ---- Requests that are no hits. ---- */

	void *take_odd(size_t size, DeviceIndex device, cudaStream_t stream)
	{
		void *ptr = nullptr;

		if (!size)
			return nullptr;
		if (odd_.load(std::memory_order_relaxed) & ODD_UNCACHED) {
			native_used_ = true;
			return native_->raw_alloc_with_stream(size, stream);
		}
		TORCH_CHECK_WITH(OutOfMemoryError, size < EXABYTE,
			"CUDA out of memory. Tried to allocate more than 1EB memory.");
		open_context();
		Choice choice;
		if (odd_.load(std::memory_order_relaxed) & ODD_POOL &&
			pools_.choose(device, stream))
			return native_->raw_alloc_with_stream(size, stream);
		for (int more = 0; glake_torch_request(size, device, stream, &ptr);
			more++)
			if (!make_room(more, size, device, stream, &ptr))
				refuse(size, device, stream);
			else if (ptr)
				break;
		note(true, device, ptr, size, stream);
		return ptr;
	}

	/* What may help after a refusal, one after the other; false: nothing is left. */
	bool make_room(int turn, size_t size, DeviceIndex device, cudaStream_t stream,
		void **ret)
	{
		glake_error error = {sizeof(error)};

		glake_last_error(&error);
		if (error.err != -ENOMEM)
			return false;
		if (turn == 0) {
			bool freed = false;

			for (const auto &name : FreeCudaMemoryCallbacksRegistry()->Keys())
				freed |= FreeCudaMemoryCallbacksRegistry()
						 ->Create(name)
						 ->Execute();
			if (freed)
				return true;
			turn = 1;
		}
		if (turn == 1) {
			/* it may not give anything back while a graph is captured */
			if (native_used_ && !(odd_.load() & ODD_POOL)) {
				native_->emptyCache();
				return true;
			}
			turn = 2;
		}
		/* a graph does not hold the pool of another */
		*ret = turn == 2 && !chosen ? pools_.last_resort(size, device, stream)
					    : nullptr;
		return *ret;
	}

	[[noreturn]] void refuse(size_t size, DeviceIndex device, cudaStream_t stream)
	{
		glake_device gpu = {sizeof(gpu)};
		glake_stats stats = {sizeof(stats)};
		glake_error error = {sizeof(error)};
		std::vector<OutOfMemoryObserver> observers;
		char text[TEXT];

		glake_last_error(&error);
		glake_torch_refusal(size, device, text, sizeof(text));
		if (error.err != -ENOMEM)
			TORCH_CHECK(false, text);
		glake_device_get(ctx_, device, &gpu);
		glake_stats_get(ctx_, device, &stats);
		watch_.record(TraceEntry::OOM, device, reinterpret_cast<void *>(gpu.free),
			size, stream, NO_POOL, watch_.context(RecordContext::ALLOC));
		{
			Guard guard(lock_);

			observers = observers_;
		}
		reportOutOfMemoryToProfiler(static_cast<int64_t>(size), stats.given,
			stats.reserved, Device(kCUDA, device));
		for (const auto &observer : observers)
			observer(device, size,
				std::min<uint64_t>(gpu.memory, stats.budget), gpu.free);
		TORCH_CHECK_WITH(OutOfMemoryError, false, text);
		__builtin_unreachable();
	}

	/* ---- Those who look on. ---- */

	/* A block that was given, or is about to be taken back. */
	void note(bool given, DeviceIndex device, void *ptr, size_t size,
		cudaStream_t stream)
	{
		glake_stats stats = {sizeof(stats)};
		glake_block block = {sizeof(block)};

		if (odd_.load(std::memory_order_relaxed) & ODD_WATCHED) {
			glake_query(ctx_, ptr, &block);
			(watch_.*(given ? &Watch::given : &Watch::taken))(device, ptr,
				size, stream,
				MempoolId_t{block.pool.high, block.pool.low});
			if (told_)
				glake_torch_tell(ptr, given ? size : 0, device, stream);
		}
		if (memoryProfilingEnabled() && !glake_stats_get(ctx_, device, &stats))
			reportMemoryUsageToProfiler(ptr,
				given ? static_cast<int64_t>(size)
				      : -static_cast<int64_t>(size),
				stats.given, stats.reserved, Device(kCUDA, device));
	}

	/* ---- Frees that are no hits. ---- */

	void give_odd(void *ptr)
	{
		glake_block block = {sizeof(block)};

		if (!ptr)
			return;
		int err = ctx_ ? glake_query(ctx_, ptr, &block) : -EINVAL;
		if (err == -ENODEV) /* in a forked child: the block is the parent's */
			return;
		if (err) {
			native_->raw_delete(ptr);
			return;
		}
		note(false, static_cast<DeviceIndex>(block.device), ptr, block.size,
			block.stream);
		glake_give_back(ctx_, ptr);
	}

	static void add_native(DeviceStats &to, const DeviceStats &more)
	{
		add(to.allocation, more.allocation);
		add(to.segment, more.segment);
		add(to.active, more.active);
		add(to.inactive_split, more.inactive_split);
		add(to.allocated_bytes, more.allocated_bytes);
		add(to.reserved_bytes, more.reserved_bytes);
		add(to.active_bytes, more.active_bytes);
		add(to.inactive_split_bytes, more.inactive_split_bytes);
		add(to.requested_bytes, more.requested_bytes);
		to.num_alloc_retries += more.num_alloc_retries;
		to.num_ooms += more.num_ooms;
		to.num_device_alloc += more.num_device_alloc;
		to.num_device_free += more.num_device_free;
	}

	CUDAAllocator *native_;
	mutable Pools pools_;
	mutable std::atomic<struct glake *> ctx_{nullptr};
	mutable std::atomic<unsigned> odd_{ODD_CLOSED};
	int devices_ = 0;
	std::atomic<bool> native_used_{false}; /* it holds memory, or did */
	std::atomic<bool> told_{false};
	std::atomic<uint64_t> emptied_{0}; /* times that the cache was */
	Watch watch_;
	std::mutex turn_;	    /* of who changes `odd_`, and of what it says */
	std::recursive_mutex lock_; /* of all that follows */
	std::vector<double> fractions_;
	std::vector<Since> since_;
	std::vector<OutOfMemoryObserver> observers_;
};

GlakeAllocator *the_one;

void GlakeAllocator::give(void *ptr)
{
	GlakeAllocator *self = the_one;

	if (C10_UNLIKELY(self->odd_.load(std::memory_order_relaxed) ||
		    memoryProfilingEnabled() || glake_give_back(self->ctx_, ptr)))
		self->give_odd(ptr);
}

void raise(int out_of_memory, const char *text)
{
	TORCH_CHECK_WITH(OutOfMemoryError, !out_of_memory, text);
	TORCH_CHECK(false, text);
}

} // namespace

extern "C" __attribute__((visibility("default"))) const char *glake_torch_install(void)
{
	static std::string why;

	try {
		if (!the_one) {
			the_one = new GlakeAllocator(get());
			/* never ended: tensors are freed until the process is over */
			auto kept = new std::shared_ptr<CUDAAllocator>(
				the_one, [](CUDAAllocator *) {});
			torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(
				*kept);
			glake_torch_raise_with(raise);
		}
		return nullptr;
	} catch (const c10::Error &error) {
		why = error.what_without_backtrace();
	} catch (const std::exception &error) {
		why = error.what();
	}
	the_one = nullptr;
	return why.c_str();
}

extern "C" __attribute__((visibility("default"))) void glake_torch_watch(int on)
{
	if (the_one)
		the_one->tell_plug(on);
}
