/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * PyTorch's profiler is told of memory by its own allocators, and CUDAPluggableAllocator does not
 * do that for those that it calls. So we do, by the two functions of libc10 that they use, which
 * are found by their names. Whether this thread is being profiled is asked at every request, as
 * they do, which takes 8 ns; a PyTorch without these functions costs a load.
 */
#include "front/torch.h"

#include "base/atomic.h"

/* c10::memoryProfilingEnabled() */
#define ENABLED "_ZN3c1022memoryProfilingEnabledEv"
/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device) */
#define REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"

/* c10::Device, which is passed in a register. */
struct device {
	int8_t type, index;
};

#define TYPE_CUDA 1

typedef bool (*enabled_fn)(void);
typedef void (*report_fn)(
	void *ptr, int64_t size, size_t allocated, size_t reserved, struct device device);

static glk_atomic(enabled_fn) enabled;
static glk_atomic(report_fn) report;

void glk_torch_profile_find(void)
{
	enabled_fn ask;
	report_fn tell;

	*(void **)&ask = glk_torch_c10(ENABLED);
	*(void **)&tell = glk_torch_c10(REPORT);
	if (!ask || !tell)
		return;
	glk_store_relaxed(&report, tell);
	glk_store_release(&enabled, ask); /* pairs with: the acquire below */
}

bool glk_torch_profile_on(void)
{
	/* pairs with: the release in glk_torch_profile_find */
	enabled_fn ask = glk_load_acquire(&enabled);

	return ask && ask();
}

void glk_torch_profile_tell(struct glake *ctx, void *ptr, int64_t bytes, int device)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct device where = {.type = TYPE_CUDA, .index = (int8_t)device};

	if (!glake_stats_get(ctx, device, &stats))
		glk_load_relaxed (&report)(ptr, bytes, stats.live, stats.reserved, where);
}
