/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Stands for PyTorch's libc10.so, with what its profiler is told by. Device is a struct of two
 * bytes there. */
#include "front_c10.h"

#include <stdbool.h>

struct device {
	int8_t type, index;
};

__attribute__((visibility("default"))) bool c10_listens;
__attribute__((visibility("default"))) int c10_count;
__attribute__((visibility("default"))) struct c10_report c10_last;

bool c10_enabled(void) __asm__("_ZN3c1022memoryProfilingEnabledEv")
	__attribute__((visibility("default")));
void c10_report(void *ptr, int64_t size, size_t allocated, size_t reserved,
	struct device
		device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
	__attribute__((visibility("default")));

bool c10_enabled(void)
{
	return c10_listens;
}

void c10_report(
	void *ptr, int64_t size, size_t allocated, size_t reserved, struct device device)
{
	c10_last = (struct c10_report){
		ptr, size, allocated, reserved, device.type, device.index};
	c10_count++;
}
