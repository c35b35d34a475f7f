/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * guard.mode=full on a device whose streams wait for the host: a free does not wait, and what is queued on its stream
 * from then on meets nothing all the same. guard_full.c has the same without.
 */
#include "guarded.h"

#include <errno.h>

static bool is_nothing(struct glake *ctx, const char *p)
{
	return kernel(ctx, p, 1) == -EINVAL &&
		strstr(flow_error().text, "nothing is mapped");
}

static struct glake *open_gates(const char *setting, const char *other)
{
	return open_with((const char *const[]){
		"guard.mode=full", "soft.gates=yes", setting, other, NULL});
}

static void sync_all(struct glake *ctx)
{
	is_int(glake_soft_stream_sync(ctx, 0, NULL), 0, "all is done");
}

/* What is queued before runs with its memory, although the free does not wait for it. */
static void no_wait(void)
{
	struct glake *ctx = open_gates("soft.streams=stepped", NULL);
	char *p = given(ctx, 3 * MIB), *q;
	uint64_t waits = flow_calls(ctx, GLAKE_CALL_SYNC);

	is_int(glake_soft_fill(ctx, NULL, p, 0x01020304, MIB / 4), 0, "work is queued");
	is_int(glake_free(ctx, p, NULL), 0, "the block is freed");
	q = given(ctx, 3 * MIB);
	is_int(glake_soft_fill(ctx, NULL, q, 0x05060708, 3 * MIB / 4), 0,
		"work on another one is queued");
	is_int((int64_t)(flow_calls(ctx, GLAKE_CALL_SYNC) - waits), 0,
		"nobody has waited for any of it");
	ok(!kernel(ctx, p, 1), "its work is not done yet, so it is still mapped");
	sync_all(ctx);
	ok(!q[3 * MIB - 1] || q[0] == 8, "the other one has what was written");
	flow_close(ctx, 1);
}

/* Many in a row, more than are under way at a time. */
static void many(size_t size, int count)
{
	struct glake *ctx = open_gates(NULL, NULL);
	uint64_t waits = flow_calls(ctx, GLAKE_CALL_SYNC);
	static char *p[1500];
	int missed = 0, torn = 0;
	struct glake_checked c;

	for (int i = 0; i < count; i++) {
		p[i] = given(ctx, size);
		torn += kernel(ctx, p[i], size) != 0;
		torn += glake_free(ctx, p[i], NULL) != 0;
	}
	ok(!torn, "%d blocks of %zu bytes come and go", count, size);
	is_int((int64_t)(flow_calls(ctx, GLAKE_CALL_SYNC) - waits), 0,
		"  and nobody waits");
	sync_all(ctx);
	for (int i = 0; i < count; i++)
		missed += !is_nothing(ctx, p[i]);
	is_int(missed, 0, "  whoever uses one of them meets nothing");
	is_error(glake_free(ctx, p[0], NULL), -EINVAL, "DOUBLE_FREE");
	c = checked(ctx, -EIO);
	ok(c.findings == 1 && !c.unchecked, "  all of them were looked at");
	flow_close(ctx, 0);
}

/* Memory that is behind gates is waited for where there is no other. */
static void short_of_memory(void)
{
	struct glake *ctx = open_gates("pool.budget=96MiB", NULL);
	int torn = 0;

	for (int i = 0; i < 40; i++) {
		char *p = given(ctx, 30 * MIB);

		torn += kernel(ctx, p, 30 * MIB) != 0;
		torn += glake_free(ctx, p, NULL) != 0;
	}
	ok(!torn && !checked(ctx, 0).unguarded, "a budget for three serves forty");
	sync_all(ctx);
	is_int(glake_conf_set(ctx, "guard.mode", "off"), 0, "the mode ends");
	flow_close(ctx, 0);
}

/* Where there is no gate, or a stream that none would hold, the free waits, and the mapping is gone when it returns. */
static void waits(const char *why, const char *setting, bool second)
{
	struct glake *ctx = open_gates(setting, NULL);
	struct CUstream_st *other;
	int missed = 0;
	char *p;

	if (second) {
		if (glake_stream_new(ctx, 0, &other))
			tap_bail("no stream");
		p = flow_alloc(ctx, 1000, other);
		is_int(glake_free(ctx, p, other), 0, "one of another stream is freed");
	}
	for (int i = 0; i < 20; i++) {
		p = given(ctx, (size_t)i * 100000 + 1);
		glake_free(ctx, p, NULL);
		missed += !is_nothing(ctx, p);
	}
	is_int(missed, 0, why);
	if (second)
		is_int(glake_stream_free(ctx, 0, other), 0, "the other stream ends");
	flow_close(ctx, 0);
}

/* What the driver keeps mapped stays out of use, and the stream goes on. */
static void kept(void)
{
	struct glake *ctx = open_gates("driver.fault=unmap:nth=2:err=EIO", NULL);
	char *p;

	for (int i = 0; i < 4; i++) {
		p = given(ctx, 3 * MIB);
		is_int(glake_free(ctx, p, NULL), 0, "a block is freed");
		sync_all(ctx);
	}
	ok(is_nothing(ctx, p), "the last one has gone");
	/* its thread has ended then */
	flow_close(ctx, 0);
	ok(strstr(said.last, "could not be unmapped"), "  of one it is said: %s",
		said.last);
}

/* The judge of the software device says so where a GPU would end the kernel. */
static void used_behind(void)
{
	struct glake *ctx = open_gates("soft.streams=stepped", NULL);
	char *p = given(ctx, 3 * MIB);

	is_int(glake_free(ctx, p, NULL), 0, "a block is freed");
	is_int(kernel(ctx, p, 1), 0, "  and used by what is queued behind that");
	sync_all(ctx);
	/* its thread has ended then */
	flow_close(ctx, 0);
	ok(strstr(said.last, "could not be unmapped"), "  which is said: %s", said.last);
}

int main(void)
{
	tap_plan_later();
	glake_log_hook(hook, NULL, GLAKE_LOG_WARNING);
	no_wait();
	many(1000, 1500);
	many(9 * MIB + 5, 40);
	short_of_memory();
	waits("without gates", "driver.fault=gate:from=1:err=EOPNOTSUPP", false);
	waits("without locked memory", "driver.fault=host_lock:from=2:err=EIO", false);
	waits("beside another stream", NULL, true);
	kept();
	used_behind();
	return tap_done();
}
