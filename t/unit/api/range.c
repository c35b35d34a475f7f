/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parts of blocks that go away and come back, by the public functions. */
#include "tier_parts.h"

static uint64_t away_of(const char *p)
{
	struct glake_block block = {.sz = sizeof(block)};

	return glake_query(ctx, p, &block) ? UINT64_MAX : block.away;
}

static void goes_and_comes(void)
{
	struct glake_ticket *out = NULL, *back = NULL;
	struct glake_ticket_info info = {.sz = sizeof(info)};
	struct glake_stats stats = {.sz = sizeof(stats)};
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give(1);
	is_int(glake_spill_range(ctx, p, 0, 4 * MIB, a, &out), 0,
		"a half of a block goes");
	is_int((int64_t)away_of(p), 4 * MIB, "which is told");
	is_int(glake_ticket_wait(out, 0), -ETIMEDOUT, "its copy is not done");
	is_int(glake_ticket_get(out, &info), 0, "its ticket");
	ok(info.bytes == 4 * MIB && info.address == p && info.kind == GLAKE_TICKET_SPILL,
		"says what it is for");
	is_int(glake_fetch_range(ctx, p, 2 * MIB, 1, a, &back), 0, "a page comes back");
	is_int((int64_t)away_of(p), 2 * MIB, "which is told");
	run();
	is_int(glake_ticket_wait(out, 0), 0, "both");
	is_int(glake_ticket_wait(back, 0), 0, "are done");
	is_int(glake_ticket_get(back, &info), 0, "the other ticket");
	ok(info.bytes == 1 && info.kind == GLAKE_TICKET_FETCH, "says so too");
	glake_ticket_close(out);
	glake_ticket_close(back);
	is_int(glake_spill_range(ctx, p, 0, SIZE, a, NULL), 0,
		"the rest goes, without a ticket");
	is_int(glake_stats_get(ctx, 0, &stats), 0, "figures");
	is_int((int64_t)stats.away, (int64_t)SIZE, "all is away");
	is_int(glake_prefetch(ctx, p, a, 0, 0, &back), 0, "a hint for it");
	run();
	is_int(glake_ticket_wait(back, 0), 0, "is carried out");
	glake_ticket_close(back);
	is_int(glake_fetch_range(ctx, p, 0, 1, a, NULL), 0, "it is fetched");
	is_int(glake_fetch_range(ctx, p, 0, SIZE, a, NULL), -EALREADY, "and here");
	run();
	ok(has_mark(p, 1), "with what was in it");
	is_int(glake_spill_range(ctx, p, 4 * MIB, 4 * MIB, a, NULL), 0,
		"the other half goes");
	is_int(glake_prefetch(ctx, p, a, 0, 0, NULL), 0, "and is hinted");
	is_int(glake_fetch(ctx, p, a), 0, "and fetched");
	run();
	ok(has_mark(p, 1), "with what was in it");
	is_int(glake_free(ctx, p, a), 0, "it is freed");
	close_soft();
}

static void refuses(void)
{
	struct glake_ticket *ticket = NULL;
	struct glake_error error = {.sz = sizeof(error)};
	void *managed = NULL;
	char *p;

	open_soft("soft.streams=stepped", NULL);
	p = give(1);
	is_int(glake_spill_range(NULL, p, 0, SIZE, a, NULL), -ESTALE, "no context");
	is_int(glake_fetch_range(NULL, p, 0, SIZE, a, NULL), -ESTALE, "for either");
	is_int(glake_spill_range(ctx, &ctx, 0, 1, a, NULL), -EINVAL, "no memory of it");
	is_int(glake_spill_range(ctx, p + 512, 0, 2 * MIB, a, &ticket), -EINVAL,
		"no block");
	is_int(glake_spill_range(ctx, p, SIZE, 1, a, &ticket), -EINVAL, "no byte of it");
	is_int(glake_spill_range(ctx, p, 1, 2 * MIB, a, &ticket), -EINVAL,
		"no page of it");
	is_int(glake_last_error(&error), 0, "why");
	is_int(error.error_class, GLAKE_ERROR_INVAL, "is told");
	is_int(glake_fetch_range(ctx, p, 0, SIZE, a, &ticket), -EALREADY, "it is here");
	is_int(glake_alloc(ctx, 0, SIZE, a, GLAKE_ALLOC_MANAGED, &managed), 0,
		"managed memory");
	is_int(glake_spill_range(ctx, managed, 0, 4 * MIB, a, &ticket), -EOPNOTSUPP,
		"is the driver's to move");
	is_int(glake_fetch_range(ctx, managed, 0, 4 * MIB, a, &ticket), -EOPNOTSUPP,
		"both ways");
	ok(!ticket, "there is no ticket of those");
	is_int(glake_suspend(ctx, 0, NULL), 0, "the GPU is suspended");
	is_int(glake_fetch_range(ctx, p, 0, 1, a, NULL), -EAGAIN, "then nothing comes");
	is_int(glake_spill_range(ctx, p, 0, SIZE, a, NULL), -EALREADY, "nor goes");
	is_int(glake_resume(ctx, 0, NULL), 0, "until it is resumed");
	glake_free(ctx, managed, a);
	is_int(glake_free(ctx, p, a), 0, "it is freed");
	close_soft();
}

int main(void)
{
	tap_plan_later();
	goes_and_comes();
	refuses();
	return tap_done();
}
