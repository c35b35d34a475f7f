/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What opening takes it gives back, wherever it fails; what closing says, and when. */
#include "api/context.h"
#include "base/slab.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <glake/glake.h>

#define MIB ((size_t)1 << 20)

static int open_with(const char *setting, struct glake **ret_ctx)
{
	const char *const settings[] = {
		setting, "map.span=8GiB", "soft.gpus=2", "soft.nodes=2", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	return glake_open(&options, ret_ctx);
}

static int error_class(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error.error_class;
}

static int files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	if (!dir)
		tap_bail("no /proc/self/fd");
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* Each table that opening wants cannot be had. */
static void lacks_memory(void)
{
	uint64_t bytes = glk_region_bytes();
	struct glake *ctx = (struct glake *)3;
	int open_files = files(), err = -1;
	bool same = true;
	uint32_t n;

	for (n = 1; n < 200; n++) {
		glk_region_fail_after(n);
		err = open_with("driver.fault=off", &ctx);
		glk_region_fail_after(0);
		if (!err)
			break;
		same &= err == -ENOMEM && error_class() == GLAKE_ERROR_NOMEM_HOST &&
			glk_region_bytes() == bytes && files() == open_files &&
			ctx == (struct glake *)3;
	}
	ok(n > 5 && !err, "opening wants %u tables", n - 1);
	ok(same, "without any one of them it fails and leaves nothing");
	is_int(glake_close(ctx, NULL), 0, "with all of them it opens");
	is_int((int64_t)glk_region_bytes(), (int64_t)bytes, "and leaves nothing either");
}

static void lacks_driver(void)
{
	uint64_t bytes = glk_region_bytes();
	struct glake *ctx = NULL;
	int open_files = files(), err = -1, n;
	bool same = true;
	char fault[64];

	for (n = 1; n < 100; n++) {
		snprintf(fault, sizeof(fault), "driver.fault=any:nth=%d:err=EIO", n);
		err = open_with(fault, &ctx);
		if (!err)
			break;
		same &= err == -EIO && glk_region_bytes() == bytes &&
			files() == open_files && !ctx;
	}
	ok(n > 1 && !err, "opening makes %d calls of the driver", n - 1);
	ok(same, "where one fails, so does it, and leaves nothing");
	is_int(glake_close(ctx, NULL), 0, "closed");
}

static void cycles(void)
{
	uint64_t bytes = 0;
	bool same = true;

	for (int i = 0; i < 50; i++) {
		struct glake *ctx = NULL;
		void *p = NULL;

		same &= !open_with("pool.budget=64MiB", &ctx);
		for (int n = 0; n < 6; n++)
			same &= !glake_alloc(ctx, n % 2, 7 * MIB, NULL, 0, &p);
		glake_free(ctx, p, NULL);
		same &= !glake_alloc(ctx, 0, 20 * MIB, NULL, GLAKE_ALLOC_CONTIGUOUS, &p);
		same &= !glake_close(ctx, NULL);
		/* the first one makes what is made once for the process */
		if (!i)
			bytes = glk_region_bytes();
		same &= glk_region_bytes() == bytes;
	}
	ok(same, "50 contexts leave no table");
}

/* A driver that keeps what it is asked to take back: told, and closed all the same. */
static void refuses(void)
{
	static const struct {
		const char *fault;
		int err;
	} ways[] = {{"driver.fault=unmap:from=1:err=EIO", -EIO},
		{"driver.fault=release:from=1:err=EIO", -EIO},
		{"driver.fault=device_sync:from=1:err=EIO", 0},
		{"driver.fault=unmap:nth=1:err=EIO", 0},
		{"driver.fault=unmap:nth=1:sticky=1", -ENODEV}};
	uint64_t bytes = glk_region_bytes();
	int open_files = files();

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		struct glake *ctx = NULL;
		size_t leaked = 0;
		void *p = NULL;
		int logs = tap.logs;

		if (open_with(ways[i].fault, &ctx) ||
			glake_alloc(ctx, 0, 9 * MIB, NULL, 0, &p))
			tap_bail("no block");
		is_int(glake_close(ctx, &leaked), ways[i].err, ways[i].fault);
		is_int((int64_t)leaked, 1, "  one block was live");
		tap_expect_log(tap.logs - logs);
		is_int(glake_device_count(ctx), -ESTALE, "  it is closed");
		ok(glk_region_bytes() == bytes && files() == open_files,
			"  the process has everything back");
	}
}

/* A handle is a value: whatever it is, it is compared and never followed. */
static void recognises(void)
{
	struct glk_context *context = NULL;
	struct glake *ctx = NULL, *again = NULL;
	int err = 0;

	open_with("driver.fault=off", &ctx);
	is_int(glk_context_get(ctx, &context), 0, "an open one");
	ok(context && context->devices == 2 && context->drv,
		"has what it was opened with");
	for (uintptr_t bits = 0; bits < 64; bits++) {
		struct glake *other =
			(struct glake *)((uintptr_t)ctx ^ (UINTPTR_MAX << bits));

		err |= glk_context_get(other, &context) != -ESTALE;
		err |= glk_context_get(
			       (struct glake *)((uintptr_t)ctx ^ (uintptr_t)1 << bits),
			       &context) != -ESTALE;
	}
	is_int(err, 0, "one bit off, it is stale");
	is_int(glake_close(ctx, NULL), 0, "closed");
	for (int i = 0; i < 300 && !err; i++) {
		open_with("driver.fault=off", &again);
		err |= again == ctx || glk_context_get(ctx, &context) != -ESTALE;
		glake_close(again, NULL);
	}
	is_int(err, 0, "300 contexts later it still is");
}

int main(void)
{
	struct glake *ctx = NULL;

	tap_plan_later();
	/* what the process keeps for good is had by now */
	if (open_with("driver.fault=off", &ctx) || glake_close(ctx, NULL))
		tap_bail("no context");
	lacks_memory();
	lacks_driver();
	cycles();
	refuses();
	recognises();
	return tap_done();
}
