/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A driver that fails, as a program sees it: each call of a request fails once, the request
 * says so, and the next one is served. One that says once that it has no memory is asked again
 * when memory that nobody uses was given back, and nobody hears of it. The enumeration with a
 * look inside is unit/cache/faults.
 */
#include "context.h"

/* What a request may answer, and whether its blocks are in order afterwards. */
static void survives(const char *fault, int want)
{
	struct glake *ctx = flow_open((const char *const[]){
		fault, "pool.budget=64MiB", "soft.memory=1GiB", "map.span=8GiB", NULL});
	void *first = NULL, *p[4], *wide = NULL;
	struct glake_stats stats;
	int err, failed = 0;

	err = glake_alloc(ctx, 0, 8 * MIB, NULL, 0, &first);
	failed += err == want;
	if (err)
		err = glake_alloc(ctx, 0, 8 * MIB, NULL, 0, &first);
	for (int i = 0; i < 4; i++) {
		p[i] = NULL;
		err = glake_alloc(ctx, 0, 8 * MIB, NULL, 0, &p[i]);
		failed += err == want;
		if (err)
			glake_alloc(ctx, 0, 8 * MIB, NULL, 0, &p[i]);
	}
	glake_free(ctx, p[0], NULL);
	glake_free(ctx, p[2], NULL);
	err = glake_alloc(ctx, 0, 32 * MIB, NULL, 0, &wide);
	failed += err == want;
	if (err)
		err = glake_alloc(ctx, 0, 32 * MIB, NULL, 0, &wide);
	is_int(err, 0, fault + strlen("driver.fault="));
	is_int(failed, want == -ENOMEM ? 0 : 1,
		want == -ENOMEM ? "  no request said so" : "  one request said so");
	stats = flow_stats(ctx, 0);
	is_int((int64_t)stats.live, (8 + 16 + 32) * (int64_t)MIB,
		"  all blocks are there");
	ok(stats.reserved <= 64 * MIB, "  within the budget");
	memset(wide, 3, 32 * MIB);
	memset(first, 4, 8 * MIB);
	flow_close(ctx, 4);
}

/* A GPU that is lost: requests fail fast, frees work, and the rest of the context goes on. */
static void loses(void)
{
	struct glake *ctx =
		flow_open((const char *const[]){"driver.fault=create:nth=4:sticky=1",
			"soft.gpus=2", "soft.memory=1GiB", "map.span=8GiB", NULL});
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
	survives("driver.fault=create:nth=1:err=EIO", -EIO);
	survives("driver.fault=create:nth=5:err=EIO", -EIO);
	survives("driver.fault=map:nth=1:err=EIO", -EIO);
	survives("driver.fault=map:nth=7:err=EIO", -EIO);
	survives("driver.fault=map:nth=8:err=ENOMEM", -ENOMEM);
	survives("driver.fault=set_access:nth=1:err=ENOMEM", -ENOMEM);
	survives("driver.fault=set_access:nth=6:err=EIO", -EIO);
	survives("driver.fault=reserve:nth=1:err=EIO", -EIO);
	loses();
	return tap_done();
}
