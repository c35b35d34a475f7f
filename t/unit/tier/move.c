/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents that go to the host and come back, by spill, fetch, suspend and resume: over the link of their GPU
 * as if there were no others, and over those that other GPUs lend. GLAKE_T_MOVE_MIB sets the size of the
 * blocks whose modelled time is told.
 */
#include "unit/tier/move_rig.h"

static uint64_t rolled;

static void links(const char *lend, double least, double most)
{
	static const struct {
		const char *name;
		int (*act)(void);
		bool out;
	} way[] = {{"spill", spill, true}, {"fetch", fetch, false},
		{"suspend", suspend, true}, {"resume", resume, false}};
	const char *mib = getenv("GLAKE_T_MOVE_MIB");
	size_t bytes = (mib ? strtoul(mib, NULL, 10) : 8) * MIB;
	char piece[32];
	double rate;

	/* as many pieces of a small block as there would be of a large one */
	snprintf(piece, sizeof(piece), "io.piece=%zu",
		bytes / 64 < 8 * MIB ? bytes / 64 : 8 * MIB);
	begin(lend, piece, "io.staging=64MiB", bytes);
	for (int i = 0; i < 4; i++) {
		rate = rate_of(way[i].act, way[i].out);
		ok(rate > least && rate < most,
			"%s, %s of %d blocks of %zu MiB: %.2f links", lend, way[i].name,
			BLOCKS, bytes / MIB, rate);
		if (!way[i].out)
			ok(is_whole(), "all bytes are right");
	}
	is_int(close_all(), 0, "nothing is left");
}

/* Copies of the driver and other calls that two spills and fetches make. */
static void count(const char *lend, uint64_t *ret_copies, uint64_t *ret_others)
{
	struct glake_driver_stats before = {.sz = sizeof(before)}, after = before;
	const struct glk_cache *gpu;

	begin(lend, "io.piece=64KiB", "io.staging=2MiB", MIB);
	if (spill() || fetch())
		tap_bail("refused");
	glake_driver_stats_get(ctx, &before);
	if (spill() || fetch())
		tap_bail("refused");
	glake_driver_stats_get(ctx, &after);
	gpu = &context->caches[0];
	is_int(glk_stream_at(&gpu->streams, gpu->mover.out)->most, GLK_LINE_EVENTS,
		"the stream that contents go out on has many events");
	*ret_copies = after.calls[GLAKE_CALL_COPY] - before.calls[GLAKE_CALL_COPY];
	*ret_others = after.calls[GLAKE_CALL_OTHER] - before.calls[GLAKE_CALL_OTHER];
	is_int(close_all(), 0, "nothing is left");
}

/* What is too small for several links, or has one, is copied by the calls that it always was. */
static void same_calls(void)
{
	uint64_t copies, others, lent_copies, lent_others;

	count("io.lend=", &copies, &others);
	count("io.lend=all", &lent_copies, &lent_others);
	is_int((int64_t)copies, 2 * BLOCKS, "one copy for a block each way");
	is_int((int64_t)lent_copies, (int64_t)copies, "where others lend, too");
	is_int((int64_t)lent_others, (int64_t)others, "and no question more");
}

static uint64_t reserved(int device)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	if (glake_stats_get(ctx, device, &stats))
		tap_bail("no figures");
	return stats.reserved;
}

/* A clock that goes on a us when it is read: what links carry does not depend on the machine. */
static double ticking(struct glk_io *io)
{
	static double now;

	(void)io;
	return now += 1000;
}

/* A GPU that is suspended takes no memory to lend its link, nor to have one measured. */
static void lends_none(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_io *io;

	begin("io.lend=1", "io.piece=512KiB", "io.staging=4MiB", 3 * MIB);
	io = &context->io;
	io->now = ticking;
	is_int(glake_suspend(ctx, 1, &did), 0, "who lends its link is suspended");
	/* else nothing has to be measured */
	glk_fault_set(context->drv, "link_get:from=1:err=EOPNOTSUPP");
	is_int(spill(), 0, "blocks of another GPU go away");
	glk_fault_set(context->drv, "off");
	is_int(fetch(), 0, "and come back");
	is_int((int64_t)reserved(1), 0, "and it has no memory");
	is_int((int64_t)io->gpu[1].relayed, 0, "nor carries anything");
	is_int(glake_resume(ctx, 1, &did), 0, "resumed");
	is_int(suspend(), 0, "the other one is suspended");
	ok(io->gpu[1].due, "before it was measured what goes to it");
	is_int(resume(), 0, "and resumed");
	ok(io->gpu[1].due && io->gpu[1].measured, "which measures nothing there either");
	is_int(spill(), 0, "blocks go away");
	ok(!io->gpu[1].due && io->gpu[1].leave.rate != 390, "which does");
	ok(io->gpu[1].relayed > 0, "over both links");
	is_int(glake_suspend(ctx, 1, &did), 0, "suspended again");
	is_int((int64_t)reserved(1), 4 << 20, "it keeps what it has for that");
	is_int((int64_t)did.stayed, 0, "which is not counted");
	is_int(fetch(), 0, "blocks come back");
	is_int((int64_t)reserved(1), 4 << 20, "in no more");
	is_int(glake_resume(ctx, 1, &did), 0, "resumed");
	ok(is_whole(), "blocks are as they were");
	is_int(close_all(), 0, "closed");
}

static const struct glk_drv_ops *usual;
static struct CUstream_st *waits; /* the first one to do so */

static int note_wait(
	struct glk_drv *drv, struct CUstream_st *on, struct glk_drv_event *event)
{
	waits = waits ? waits : on;
	return usual->stream_wait(drv, on, event);
}

/* Small blocks of a tag come back to memory that others have used: what goes over other links is behind them too. */
static void small_ones(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_drv_ops ops;
	void *small, *large;
	uint32_t tag;

	begin("io.lend=all", "pool.large_page=2MiB", "soft.streams=stepped", MIB);
	if (glake_tag_open(ctx, "one", &tag) || glake_tag_set(ctx, tag, NULL) ||
		glake_alloc(ctx, 0, 200 << 10, stream, 0, &small) ||
		glake_tag_set(ctx, 0, NULL))
		tap_bail("no small block");
	is_int(glake_tag_suspend(ctx, 0, tag, 0, &did), 0, "a tag is suspended");
	is_int(glake_alloc(ctx, 0, 4 * MIB, stream, 0, &large), 0,
		"another has its page");
	is_int(glake_soft_fill(ctx, stream, large, 1, MIB), 0, "with work under way");
	is_int(glake_free(ctx, large, stream), 0, "and is freed");
	is_int(glake_budget_set(ctx, 0, reserved(0)), 0, "there is no more");
	usual = context->drv->ops;
	ops = *usual;
	ops.stream_wait = note_wait;
	context->drv->ops = &ops;
	is_int(glake_tag_resume(ctx, 0, tag, &did), 0, "the tag is resumed");
	context->drv->ops = usual;
	ok(waits == context->caches[0].mover.back_channel.gate,
		"and what it is behind is queued where all links wait");
	is_int(glake_free(ctx, small, stream), 0, "the small block goes");
	is_int(glake_tag_close(ctx, tag), 0, "and its tag");
	is_int(close_all(), 0, "closed");
}

/* What was moved comes back. */
static int come_back(int (*act)(void))
{
	int err = act == suspend || act == resume ? resume() : fetch();

	return err == -EINVAL && act != fetch && act != spill ? 0 : err;
}

/* Addresses that the driver does not unmap stay out of use, and what lay there is away for good. */
static bool is_stuck(void)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	return !glake_stats_get(ctx, 0, &stats) && stats.lost;
}

/* The n-th call fails; all is as it was, or as it should be, and works without the fault. */
static bool try_one(int (*act)(void), bool is_back, const char *form, unsigned n,
	uint64_t *ret_failed)
{
	char rule[64];
	int err, off = 0, logs = tap.logs;
	uint64_t calls;
	bool fine;

	begin("io.lend=all", "io.piece=512KiB", "io.staging=4MiB", 3 * MIB);
	if (is_back && (act == fetch ? spill() : suspend()))
		tap_bail("refused");
	snprintf(rule, sizeof(rule), form, n);
	glk_fault_set(context->drv, rule);
	err = act();
	glk_fault_count(context->drv, &calls, ret_failed);
	glk_fault_set(context->drv, "off");
	for (int device = 0; device < 4; device++)
		off += context->io.gpu[device].off;
	tap_expect_log(off);
	/* a mapping that the driver keeps is told, a page is not */
	tap_expect_log(is_stuck() && tap.logs - logs > off);
	/* and again, without a fault */
	fine = come_back(act) ? is_stuck()
			      : is_whole() && !spill() && !fetch() && is_whole();
	fine &= !close_all();
	if (!fine)
		tap_note("%s, answer %d: not as it should be", rule, err);
	return fine;
}

static void faults(const char *name, int (*act)(void), bool is_back, const char *form)
{
	unsigned n = 0, tries = 0, step = tap_storms_take_long() ? 60 : 16;
	uint64_t failed = 1;
	bool fine = true;

	for (; failed; tries++) {
		n += 1 + (unsigned)(seed_next(&rolled) % step);
		fine &= try_one(act, is_back, form, n, &failed);
	}
	ok(fine, "%s, %s: no byte is wrong, nothing is left", name, form);
	ok(n > 60, "%u tries, up to call %u", tries, n);
}

int main(void)
{
	tap_plan_later();
	rolled = seed_thread(seed_start(), 0);
	links("io.lend=", 0.99, 1.01);
	links("io.lend=all", 3.93, 4.01);
	links("io.lend=2", 1.98, 2.01);
	same_calls();
	lends_none();
	small_ones();
	faults("spill", spill, false, "any:nth=%u:err=EIO");
	faults("spill", spill, false, "any:nth=%u:err=EINVAL");
	faults("fetch", fetch, true, "any:nth=%u:err=EIO");
	faults("suspend", suspend, false, "any:nth=%u:err=EIO");
	faults("resume", resume, true, "any:nth=%u:err=EIO");
	more[0] = "soft.nodes=2";
	faults("spill to two nodes", spill, false, "any:nth=%u:err=EIO");
	faults("resume from two nodes", resume, true, "any:nth=%u:err=EIO");
	return tap_done();
}
