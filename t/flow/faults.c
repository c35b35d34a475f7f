/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A GPU that is lost, as a program sees it. All other faults are those of unit/cache/faults. */
#include "context.h"

/* A GPU that is lost: requests fail fast, frees work, and the rest of the context goes on. */
static void loses(void)
{
	struct glake *ctx = flow_open((const char *const[]){
		"driver.fault=create:nth=4:sticky=1", "soft.gpus=2", "soft.memory=1GiB",
		"map.span=8GiB", "pool.large_page=8MiB", NULL});
	struct glake_stats stats;
	void *p, *q, *r, *none = NULL;

	p = flow_alloc(ctx, 8 * MIB, NULL);
	q = flow_alloc(ctx, 8 * MIB, NULL);
	r = flow_alloc(ctx, 1000, NULL);
	ok(p && q && r, "three blocks before it");
	is_error(glake_alloc(ctx, 0, 8 * MIB, NULL, 0, &none), -ENODEV, "DEVICE_LOST");
	is_error(glake_alloc(ctx, 0, 3 * MIB, NULL, 0, &none), -ENODEV, "DEVICE_LOST");
	is_int(glake_free(ctx, p, NULL), 0, "a free is a matter of books");
	is_int(glake_free(ctx, r, NULL), 0, "of small blocks too");
	ok(flow_alloc(ctx, 1000, NULL) == r, "and so is a hit");
	stats = flow_stats(ctx, 0);
	is_int((int64_t)stats.live, 8 * (int64_t)MIB + 1000, "figures can be had");
	is_int(glake_free(ctx, q, NULL), 0, "freed");
	tap_expect_log(2);
	is_int(glake_close(ctx, NULL), -ENODEV, "the end says it too");
	is_error(glake_device_count(ctx), -ESTALE, "STALE");
}

int main(void)
{
	tap_plan_later();
	loses();
	return tap_done();
}
