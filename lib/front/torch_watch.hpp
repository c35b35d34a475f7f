/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_TORCH_WATCH_HPP
#define GLK_FRONT_TORCH_WATCH_HPP

/*
 * Those who look on at PyTorch's memory: the history with the stacks that PyTorch gathers, trackers
 * of its events, and pictures of a GPU as PyTorch shows its segments. Off unless asked for.
 *
 * Threads	any; one lock, which trackers are called under, as PyTorch promises them
 */
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>
#include <torch/version.h>

#include <glake/glake.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <stack>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

/* Whether this is PyTorch 2.`minor` or later. */
#define GLK_TORCH(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace glake_torch
{

/* Types have moved from the one to the other. */
using namespace c10::CachingDeviceAllocator;
using namespace c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::cuda::MempoolId_t;
using Context = std::shared_ptr<c10::GatheredContext>;
using Guard = std::lock_guard<std::recursive_mutex>;

constexpr MempoolId_t NO_POOL{0, 0};

inline thread_local std::stack<std::string> compile_contexts;
inline thread_local std::string user_metadata;

class Watch
{
      public:
	/* Whether requests and frees have to be told. */
	bool wanted()
	{
		Guard guard(lock_);

		return on_ || !trackers_.empty();
	}

	bool on()
	{
		Guard guard(lock_);

		return on_;
	}

	void devices(size_t count)
	{
		Guard guard(lock_);

		if (entries_.size() < count)
			entries_.resize(count);
	}

	void set(bool enabled, CreateContextFn gather, size_t most, RecordContext when,
		bool clear, const std::vector<std::string> &skip)
	{
		Guard guard(lock_);

		TORCH_CHECK(when == RecordContext::NEVER || gather);
		on_ = enabled;
		gather_ = enabled ? gather : nullptr;
		when_ = enabled ? when : RecordContext::NEVER;
		most_ = std::max<size_t>(most, 1);
		skip_ = skip;
		if (!enabled || clear) {
			for (auto &entries : entries_)
				entries.clear();
			annotations_.clear();
		}
		if (!enabled)
			contexts_.clear();
	}

	void annotate(DeviceIndex device,
		const std::vector<std::pair<std::string, std::string>> &rows)
	{
		Guard guard(lock_);

		if (!on_)
			return;
		AnnotationEntry entry(device, c10::getApproximateTime());
		for (const auto &row : rows)
			entry.recordUserMetadata(row.first, row.second);
		annotations_.push_back(std::move(entry));
		if (annotations_.size() > most_)
			annotations_.pop_front();
	}

	void track(AllocatorTraceTracker tracker)
	{
		Guard guard(lock_);

		trackers_.push_back(std::move(tracker));
	}

	/* Whose calls asked, where that is wanted. Without the lock: it may ask Python. */
	Context context(RecordContext level)
	{
		CreateContextFn gather;
		{
			Guard guard(lock_);

			gather = on_ && when_ >= level ? gather_ : nullptr;
		}
		return gather ? gather() : nullptr;
	}

	/* A block that was given. */
	void given(DeviceIndex device, void *ptr, size_t size, cudaStream_t stream,
		MempoolId_t pool)
	{
		Context calls = context(RecordContext::STATE);
		Guard guard(lock_);

		if (calls)
			contexts_[ptr] = calls;
		record(TraceEntry::ALLOC, device, ptr, size, stream, pool,
			when_ >= RecordContext::ALLOC ? calls : nullptr);
	}

	/* One that is about to be taken back. */
	void taken(DeviceIndex device, void *ptr, size_t size, cudaStream_t stream,
		MempoolId_t pool)
	{
		Context calls = context(RecordContext::ALL);
		Guard guard(lock_);

		contexts_.erase(ptr);
		record(TraceEntry::FREE_REQUESTED, device, ptr, size, stream, pool,
			calls);
		record(TraceEntry::FREE_COMPLETED, device, ptr, size, stream, pool,
			calls);
	}

	void record(TraceEntry::Action action, DeviceIndex device, void *ptr, size_t size,
		cudaStream_t stream, MempoolId_t pool, Context calls)
	{
		static const char *const names[] = {"alloc", "free_requested",
			"free_completed", "segment_alloc", "segment_free", "segment_map",
			"segment_unmap", "snapshot", "oom", "annotate"};
		Guard guard(lock_);

		if (!on_ && trackers_.empty())
			return;
		TraceEntry entry(
			action, device, reinterpret_cast<size_t>(ptr), size, stream,
#if GLK_TORCH(8)
			pool,
#endif
			c10::getApproximateTime(), std::move(calls)
#if GLK_TORCH(8)
							   ,
			compile_contexts.empty() ? "" : compile_contexts.top()
#endif
#if GLK_TORCH(10)
				,
			user_metadata
#endif
		);
		for (const auto &tracker : trackers_)
			tracker(entry);
		if (!on_ || std::count(skip_.begin(), skip_.end(), names[action]))
			return;
		auto &entries = entries_.at(static_cast<size_t>(device));
		entries.push_back(std::move(entry));
		if (entries.size() > most_)
			entries.pop_front();
	}

	/* What has happened so far, behind what is there already. */
	void copy(SnapshotInfo &info)
	{
		Guard guard(lock_);
		auto to_ns = clock_.makeConverter();

		for (size_t i = 0; i < entries_.size(); i++) {
			info.device_traces[i].assign(
				entries_[i].begin(), entries_[i].end());
			for (auto &entry : info.device_traces[i])
				entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
		}
		for (auto entry : annotations_) {
			entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
			info.external_annotations.push_back(std::move(entry));
		}
	}

	/* Something that the program says of a live block. */
	void say(DeviceIndex device, void *ptr, size_t size, cudaStream_t stream,
		MempoolId_t pool, const std::string &text)
	{
#if GLK_TORCH(14)
		std::string before = std::exchange(user_metadata, text);

		record(TraceEntry::ANNOTATE, device, ptr, size, stream, pool, nullptr);
		user_metadata = before;
#endif
	}

	Context of(uint64_t address)
	{
		Guard guard(lock_);
		auto found = contexts_.find(reinterpret_cast<void *>(address));

		return found == contexts_.end() ? nullptr : found->second;
	}

      private:
	std::recursive_mutex lock_;
	bool on_ = false;
	CreateContextFn gather_ = nullptr;
	RecordContext when_ = RecordContext::NEVER;
	size_t most_ = 1;
	std::vector<std::string> skip_;
	std::vector<AllocatorTraceTracker> trackers_;
	std::vector<std::deque<TraceEntry>> entries_;
	std::deque<AnnotationEntry> annotations_;
	std::unordered_map<void *, Context> contexts_; /* of live blocks */
	c10::ApproximateClockToUnixTimeConverter clock_;
};

/* One walk over the addresses of a GPU, made into segments: stretches that have memory. */
class Picture
{
      public:
	/* `only`: of one pool; NO_POOL: of all. */
	Picture(Watch &watch, DeviceIndex device, MempoolId_t only,
		std::vector<SegmentInfo> &segments)
		: watch_(watch), device_(device), only_(only), segments_(segments)
	{
	}

	/* A glake_run_fn. */
	static int take(const glake_run *run, void *picture)
	{
		static_cast<Picture *>(picture)->add(*run);
		return 0;
	}

	void end()
	{
		if (at_)
			segments_.push_back(std::move(*at_));
		at_.reset();
	}

      private:
	void add(const glake_run &run)
	{
		MempoolId_t pool{run.pool.high, run.pool.low};

		if (run.state >= GLAKE_RUN_ALIAS || (only_ != NO_POOL && pool != only_)) {
			end();
			return;
		}
		if (at_ && at_->owner_private_pool_id != pool)
			end();
		if (!at_)
			begin(run, pool);
		block(run);
	}

	void begin(const glake_run &run, MempoolId_t pool)
	{
		at_.emplace();
		at_->device = device_;
		at_->address = run.address;
		at_->stream = run.stream;
		at_->is_large =
			true; /* there are no pools of small and of large blocks */
		at_->is_expandable = true;
		at_->owner_private_pool_id = pool;
	}

	void block(const glake_run &run)
	{
		bool live = run.state <= GLAKE_RUN_AWAY;
		size_t active = live ? run.size : 0; /* as its figure */
		size_t asked = live ? run.asked : 0;

		if (!(run.flags & GLAKE_RUN_PART) || at_->blocks.empty()) {
			at_->blocks.emplace_back();
			at_->blocks.back().allocated = live;
			at_->blocks.back().active = active;
			at_->blocks.back().context_when_allocated =
				live ? watch_.of(run.address) : nullptr;
		}
		at_->blocks.back().size += run.size;
		at_->blocks.back().requested_size += asked;
		at_->total_size += run.size;
		at_->requested_size += asked;
		at_->allocated_size += live ? run.size : 0;
		at_->active_size += active;
	}

	Watch &watch_;
	DeviceIndex device_;
	MempoolId_t only_;
	std::vector<SegmentInfo> &segments_;
	std::optional<SegmentInfo> at_;
};

} // namespace glake_torch

#endif
