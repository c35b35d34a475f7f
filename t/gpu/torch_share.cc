/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The time that calls of PyTorch's allocator take: a shim around the one in place, whichever it is, that
 * reads the clock before and after each tensor is made and dropped. All else is passed on. Linux and
 * PyTorch 2.11; torch_jobs.py --share compiles it and puts it in place.
 */
#include <ATen/cuda/CUDAContext.h>
#include <atomic>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <x86intrin.h>

using namespace c10;
using namespace c10::cuda::CUDACachingAllocator;

static CUDAAllocator *inner;
static std::atomic<uint64_t> ticks, calls;

/* Those of a thread come together seldom: autograd's thread and the program's. */
struct Clock {
	uint64_t begun = __rdtsc();
	~Clock()
	{
		ticks.fetch_add(__rdtsc() - begun, std::memory_order_relaxed);
		calls.fetch_add(1, std::memory_order_relaxed);
	}
};

static void give(void *ptr)
{
	Clock clock;

	inner->raw_deleter()(ptr);
}

#define PASS(type, name, params, args)                                                   \
	type name params override                                                        \
	{                                                                                \
		return inner->name args;                                                 \
	}

struct Shim final : CUDAAllocator {
	DataPtr allocate(size_t size) override
	{
		DataPtr made;
		{
			Clock clock;
			made = inner->allocate(size);
		}
		(void)made.compare_exchange_deleter(inner->raw_deleter(), give);
		return made;
	}
	DeleterFnPtr raw_deleter() const override
	{
		return give;
	}
	void *raw_alloc(size_t size) override
	{
		Clock clock;

		return inner->raw_alloc(size);
	}
	void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override
	{
		Clock clock;

		return inner->raw_alloc_with_stream(size, stream);
	}
	void raw_delete(void *ptr) override
	{
		Clock clock;

		inner->raw_delete(ptr);
	}
	void copy_data(void *to, const void *from, size_t count) const override
	{
		inner->copy_data(to, from, count);
	}
	void recordStream(const DataPtr &ptr, cuda::CUDAStream stream) override
	{
		Clock clock;

		if (ptr.get_deleter() != give)
			return inner->recordStream(ptr, stream);
		DataPtr same(
			ptr.get(), ptr.get_context(), inner->raw_deleter(), ptr.device());
		inner->recordStream(same, stream);
		same.release_context();
	}
	bool isEnabled() const override
	{
		return inner->isEnabled();
	}
	void beginAllocateToPool(DeviceIndex d, MempoolId_t id,
		std::function<bool(cudaStream_t)> f) override
	{
		inner->beginAllocateToPool(d, id, std::move(f));
	}
	void createOrIncrefPool(
		DeviceIndex d, MempoolId_t id, std::shared_ptr<CUDAAllocator> a) override
	{
		inner->createOrIncrefPool(d, id, std::move(a));
	}
	void recordHistory(bool on, CreateContextFn fn, size_t most, RecordContext when,
		bool clear, const std::vector<std::string> &skip) override
	{
		inner->recordHistory(on, fn, most, when, clear, skip);
	}
	PASS(bool, initialized, (), ())
	PASS(void, emptyCache, (MempoolId_t id), (id))
	PASS(CachingDeviceAllocator::DeviceStats, getDeviceStats, (DeviceIndex d), (d))
	PASS(void, resetAccumulatedStats, (DeviceIndex d), (d))
	PASS(void, resetPeakStats, (DeviceIndex d), (d))
	PASS(void, init, (int devices), (devices))
	PASS(double, getMemoryFraction, (DeviceIndex d), (d))
	PASS(void, setMemoryFraction, (double fraction, DeviceIndex d), (fraction, d))
	PASS(std::vector<StreamSegmentSize>, getExpandableSegmentSizes, (DeviceIndex d),
		(d))
	PASS(void, enable, (bool on), (on))
	PASS(void, cacheInfo, (DeviceIndex d, size_t *most), (d, most))
	PASS(void *, getBaseAllocation, (void *ptr, size_t *size), (ptr, size))
	PASS(SnapshotInfo, snapshot, (MempoolId_t id, bool traces), (id, traces))
	PASS(void, endAllocateToPool, (DeviceIndex d, MempoolId_t id), (d, id))
	PASS(void, releasePool, (DeviceIndex d, MempoolId_t id), (d, id))
	PASS(int, getPoolUseCount, (DeviceIndex d, MempoolId_t id), (d, id))
	PASS(void, setUseOnOOM, (DeviceIndex d, MempoolId_t id, bool on), (d, id, on))
	PASS(void, setNoSplit, (DeviceIndex d, MempoolId_t id), (d, id))
	PASS(bool, checkPoolLiveAllocations,
		(DeviceIndex d, MempoolId_t id, const std::unordered_set<void *> &live),
		(d, id, live))
	PASS(ShareableHandle, shareIpcHandle, (void *ptr), (ptr))
	PASS(std::shared_ptr<void>, getIpcDevPtr, (std::string handle), (handle))
	PASS(bool, isHistoryEnabled, (), ())
	PASS(void, attachOutOfMemoryObserver, (OutOfMemoryObserver o), (o))
	PASS(void, attachAllocatorTraceTracker, (AllocatorTraceTracker t), (t))
	PASS(void, enablePeerAccess, (DeviceIndex d, DeviceIndex other), (d, other))
	PASS(cudaError_t, memcpyAsync,
		(void *to, int there, const void *from, int here, size_t count,
			cudaStream_t s, bool p2p),
		(to, there, from, here, count, s, p2p))
	PASS(std::shared_ptr<AllocatorState>, getCheckpointState,
		(DeviceIndex d, MempoolId_t id), (d, id))
	PASS(CheckpointDelta, setCheckpointPoolState,
		(DeviceIndex d, std::shared_ptr<AllocatorState> s), (d, s))
	PASS(std::string, name, (), ())
};

static Shim *shim;

/* After CUDA has started, and before what is measured. */
extern "C" void share_begin()
{
	if (!shim) {
		inner = cuda::CUDACachingAllocator::get();
		shim = new Shim();
		cuda::CUDACachingAllocator::allocator.store(shim);
	}
	ticks = 0;
	calls = 0;
}

extern "C" uint64_t share_ticks()
{
	return ticks;
}

extern "C" uint64_t share_calls()
{
	return calls;
}

extern "C" uint64_t share_now()
{
	return __rdtsc();
}
