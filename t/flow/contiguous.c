/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks of one handle, beside and between stitched ones, under a budget. */
#include "context.h"

static void *single(struct glake *ctx, size_t size)
{
	void *ptr = NULL;

	return glake_alloc(ctx, 0, size, NULL, GLAKE_ALLOC_CONTIGUOUS, &ptr) ? NULL : ptr;
}

int main(void)
{
	struct glake_block block = {.sz = sizeof(block)};
	size_t released = 0;
	struct glake *ctx;
	uint64_t calls;
	char *p, *q;

	tap_plan_later();
	ctx = flow_open((const char *const[]){"pool.budget=256MiB", NULL});
	p = single(ctx, 33 * MIB);
	is_int((int64_t)flow_calls(ctx, GLAKE_CALL_CREATE), 1, "one handle");
	is_int(glake_query(ctx, p + 20 * MIB, &block), 0, "queried by its inside");
	ok(block.base == p && block.size == 33 * MIB && block.given == 34 * MIB &&
			block.page_size == 34 * MIB && block.pages == 1 &&
			block.flags == GLAKE_ALLOC_CONTIGUOUS,
		"it is one page of its own size");
	memset(p, 1, 33 * MIB);
	q = flow_alloc(ctx, 33 * MIB, NULL);
	ok(q, "a stitched one beside it");
	memset(q, 2, 33 * MIB);
	ok(p[0] == 1 && p[33 * MIB - 1] == 1, "they are apart");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	calls = flow_all_calls(ctx);
	ok(single(ctx, 34 * MIB) == p, "the next of its size has it");
	is_int((int64_t)(flow_all_calls(ctx) - calls), 0, "without a driver call");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	ok(single(ctx, 222 * MIB), "one that needs its room");
	is_int((int64_t)flow_stats(ctx, 0).rungs[GLAKE_RUNG_RECUT], 1,
		"takes it, as a rung of the ladder");
	ok(!single(ctx, 4 * MIB), "then it is full");
	is_int(flow_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	is_int(glake_free(ctx, q, NULL), 0, "a stitched one is freed");
	ok(single(ctx, 30 * MIB), "its pages are turned into a handle");
	ok(flow_stats(ctx, 0).rungs[GLAKE_RUNG_RECUT] > 1, "as a rung of the ladder");
	ok(flow_stats(ctx, 0).reserved <= 256 * MIB, "the budget holds");
	is_int(glake_trim(ctx, 0, 0, &released), 0, "trimmed");
	is_int((int64_t)flow_stats(ctx, 0).reserved, (int64_t)(222 + 30) * (int64_t)MIB,
		"to what is live");
	flow_close(ctx, 2);
	return tap_done();
}
