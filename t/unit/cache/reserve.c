/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host that is ready before anything leaves the GPU. */
#include "cache/reserve.h"

#include "plan_parts.h"

#include <time.h>

static struct rig rig;
static struct CUstream_st *a;

static uint64_t host_held(void)
{
	return rig_figures(&rig).host_held;
}

/* The thread is given ten minutes. */
static bool comes_to(uint64_t bytes)
{
	for (int i = 0; i < 60000 && host_held() != bytes; i++)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	return host_held() == bytes;
}

static void open_with(const char *reserve, const char *most)
{
	rig_open(&rig, (const char *const[]){reserve, most, NULL});
	a = rig_stream(&rig);
}

/* More than the budget has: as much as there is, and one line in the log. */
static void is_bounded(void)
{
	struct held one;

	tap_expect_log(1);
	open_with("tier.host_reserve=1GiB", "tier.host=128MiB");
	plan_take(&rig, &one, 4 * MIB, a);
	ok(comes_to(128 * MIB), "no more than tier.host is taken");
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "which serves all the same");
	is_int(rig_free(&rig, one.addr, a), 0, "a free");
	rig_close(&rig, 0);
}

/* The GPU ends while the thread makes it. */
static void is_interrupted(void)
{
	struct held one;

	for (int i = 0; i < 5; i++) {
		open_with("tier.host_reserve=256MiB", "tier.host=1GiB");
		plan_take(&rig, &one, 4 * MIB, a);
		nanosleep(&(struct timespec){.tv_nsec = i * 3000000}, NULL);
		plan_drop(&rig, &one, a);
		rig_close(&rig, 0);
	}
	ok(true, "an end does not wait for what is not begun");
}

int main(void)
{
	tap_plan_later();
	is_bounded();
	is_interrupted();
	return tap_done();
}
