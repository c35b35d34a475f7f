/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that go to pages of the host in place, and come from there: by a suspension in place, by a resumption, a
 * fetch and a quiet point, over the link of their GPU or over those that others lend. GLAKE_T_MOVE_MIB as in move.c.
 */
#include "unit/api/sound.h"
#include "unit/tier/move_rig.h"

static uint64_t rolled;

static int lower(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};

	return glake_suspend_in_place(ctx, 0, &did);
}

static int resume_lazily(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};

	return glake_resume_lazy(ctx, 0, &did);
}

static int quiet(void)
{
	struct glake_returned did = {.sz = sizeof(did)};

	return glake_quiet(ctx, 0, &did);
}

static uint64_t placed(void)
{
	struct glake_block is = {.sz = sizeof(is)};
	uint64_t sum = 0;

	for (int i = 0; i < BLOCKS; i++) {
		if (glake_query(ctx, block[i], &is))
			tap_bail("no block");
		sum += is.placed;
	}
	return sum;
}

/* Blocks that a GPU may use. */
static int usable(int device)
{
	struct CUstream_st *own;
	int may = 0;

	if (glake_stream_new(ctx, device, &own))
		tap_bail("no stream");
	for (int i = 0; i < BLOCKS; i++)
		may += !glk_soft_work(
			context->drv, device, own, (uintptr_t)block[i], size, true);
	context->drv->ops->stream_sync(context->drv, device, own);
	glake_stream_free(ctx, device, own);
	return may;
}

static bool may_use(int device)
{
	return usable(device) == BLOCKS;
}

static void links(const char *lend, double least, double most)
{
	static const struct {
		const char *name;
		int (*act)(void);
		bool out, lazy;
	} way[] = {{"suspended in place", lower, true, false},
		{"resumed from there", resume, false, false},
		{"suspended in place again", lower, true, true},
		{"fetched", fetch, false, false}, {"and again", lower, true, true},
		{"a quiet point", quiet, false, false}};
	const char *mib = getenv("GLAKE_T_MOVE_MIB");
	size_t bytes = (mib ? strtoul(mib, NULL, 10) : 8) * MIB;
	int wrong = 0, open = 0;
	char piece[32];
	double rate;

	snprintf(piece, sizeof(piece), "io.piece=%zu",
		bytes / 64 < 8 * MIB ? bytes / 64 : 8 * MIB);
	begin(lend, piece, "io.staging=64MiB", bytes);
	for (size_t i = 0; i < sizeof(way) / sizeof(*way); i++) {
		rate = rate_of(way[i].act, way[i].out);
		ok(rate > least && rate < most,
			"%s, %s, %d blocks of %zu MiB: %.2f links", lend, way[i].name,
			BLOCKS, bytes / MIB, rate);
		wrong += way[i].lazy && resume_lazily();
		wrong += !is_whole();
		wrong += placed() != (way[i].out ? BLOCKS * bytes : 0);
		for (int device = 1; device < 4; device++)
			open += usable(device);
	}
	is_int(wrong, 0, "all bytes are right, and where they should be");
	is_int(open, 0, "and no other GPU may use them afterwards");
	is_int(close_all(), 0, "nothing is left");
}

/* Peers had rights before, and have them afterwards. */
static void peers(void)
{
	const struct glk_io *io;

	begin("io.lend=1,2", "io.piece=512KiB", "io.staging=4MiB", 8 * MIB);
	io = &context->io;
	is_int(glake_peer_access(ctx, 0, 1, 1), 0, "one that lends is a peer");
	is_int(lower() | resume_lazily(), 0, "suspended in place");
	ok(io->gpu[1].relayed && io->gpu[2].relayed, "over its link, and another one");
	ok(may_use(1) && !may_use(2) && !may_use(3), "the peer may use them");
	is_int(glake_peer_access(ctx, 0, 1, 0) | glake_peer_access(ctx, 0, 3, 1), 0,
		"another is one while they are there");
	is_int(quiet(), 0, "they come back");
	ok(!may_use(1) && !may_use(2) && may_use(3), "for that one");
	ok(is_whole() && !placed(), "all bytes");
	is_int(close_all(), 0, "nothing is left");
}

/* Between two GPUs no other lends its link, and none gets rights. */
static int to_a_peer(const char *lend)
{
	struct glake_driver_stats before = {.sz = sizeof(before)}, after = before;

	begin(lend, "tier.place=peer", "tier.peer=1", 8 * MIB);
	glake_driver_stats_get(ctx, &before);
	is_int(lower() | resume_lazily(), 0, "suspended to a lender");
	ok(placed() == BLOCKS * size, "all of them");
	is_int(quiet(), 0, "they come back");
	ok(is_whole(), "with all bytes");
	glake_driver_stats_get(ctx, &after);
	is_int(close_all(), 0, "nothing is left");
	return (int)(after.calls[GLAKE_CALL_SET_ACCESS] -
		before.calls[GLAKE_CALL_SET_ACCESS]);
}

/* What the driver refuses: the rights, which are not had, or cannot be taken back at once. */
static void refused(void)
{
	const struct glk_io *io;
	uint64_t calls, failed;

	begin("io.lend=1", "io.piece=512KiB", "io.staging=4MiB", 16 * MIB);
	io = &context->io;
	is_int(lower() | resume(), 0, "there and back");
	ok(io->gpu[1].relayed > 0, "over two links");
	is_int(lower() | resume_lazily(), 0, "there");
	glk_fault_set(context->drv, "set_access:nth=2:len=5:err=EIO");
	is_int(glake_fetch(ctx, block[0], stream), 0, "back, where rights are refused");
	glk_fault_count(context->drv, &calls, &failed);
	glk_fault_set(context->drv, "off");
	is_int((int64_t)failed, 5, "those, and that they are taken back");
	tap_expect_log(1);
	is_int(fetch(), 0, "the other one");
	ok(is_whole() && !placed() && !usable(1), "all bytes");
	is_int(close_all(), 0, "nothing is left");
}

/* So many calls for rights fail from the n-th on, while pages go to the host. What was said. */
static int rights_fail(int n, int len)
{
	int logs = tap.logs;
	char rule[64];

	begin("io.lend=1", "io.piece=512KiB", "io.staging=4MiB", 8 * MIB);
	/* so that links are ready */
	if (lower() || resume())
		tap_bail("not there and back");
	snprintf(rule, sizeof(rule), "set_access:nth=%d:len=%d:err=EIO", n, len);
	glk_fault_set(context->drv, rule);
	lower();
	glk_fault_set(context->drv, "off");
	tap_expect_log(tap.logs - logs);
	return tap.logs - logs;
}

/* Rights that cannot be taken back at once are when nothing is under way, which is told. */
static int rights_stay(void)
{
	int open = 0, said = 0, at = 0, n, logs;

	for (n = 1; n < 12; n++) {
		logs = rights_fail(n, 4);
		said += logs;
		at = logs && !at ? n : at;
		if (resume_lazily())
			resume();
		open += usable(1);
		resume();
		if (!is_whole() || close_all())
			tap_bail("bytes are wrong");
	}
	ok(at > 0 && said < n, "rights that stay are told, once each time");
	is_int(open, 0, "and no other GPU has any after the suspension");
	for (int trims = 0; trims < 2; trims++) {
		is_int(rights_fail(at, 1000), 1,
			"where they stay longer it is told once");
		if (resume_lazily())
			resume();
		ok(!trims || usable(1) > 0, "  and another GPU has some");
		is_int(trims ? glake_trim(ctx, 0, 0, NULL) : quiet(), 0,
			trims ? "a trim" : "a quiet point");
		is_int(usable(1), 0, "  takes them");
		resume();
		ok(is_whole() && !context->caches[0].rights_left,
			"all bytes, and no rights are left");
		is_int(close_all(), 0, "nothing is left");
	}
	return at;
}

/* Rights that a driver goes on refusing to take are asked for at each trim, and taken when it does. */
static void rights_stay_long(int at)
{
	uint64_t calls, before, failed;

	rights_fail(at, 1000);
	if (resume_lazily())
		resume();
	ok(usable(1) > 0, "rights that stay");
	glk_fault_set(context->drv, "set_access:from=1:err=EIO");
	for (int i = 0; i < 3; i++) {
		glk_fault_count(context->drv, &calls, &before);
		is_int(glake_trim(ctx, 0, 0, NULL), 0, "a trim");
		glk_fault_count(context->drv, &calls, &failed);
		ok(failed > before, "  asks for them");
	}
	glk_fault_set(context->drv, "off");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "the next one, when the driver does");
	ok(!usable(1) && !context->caches[0].rights_left, "  takes them");
	resume();
	ok(is_whole(), "all bytes");
	is_int(close_all(), 0, "nothing is left");
}

/* Nor are they taken while some of the copy may be under way; when it could not be waited for that is told too. */
static void rights_under_way(void)
{
	begin("io.lend=1", "io.piece=512KiB", "io.staging=4MiB", 16 * MIB);
	if (lower() || resume() || lower() || resume_lazily())
		tap_bail("not there and back");
	glk_fault_set(context->drv, "event_sync:nth=1:len=6:err=EIO");
	ok(fetch() != 0, "a copy that cannot be waited for");
	glk_fault_set(context->drv, "off");
	ok(usable(1) > 0 && context->caches[0].rights_left,
		"another GPU has rights still, which is known");
	/* that, and pages which it may write to */
	tap_expect_log(2);
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "a trim");
	is_int(usable(1), 0, "  takes them");
	quiet();
	ok(is_whole() && !context->caches[0].rights_left,
		"all bytes, and no rights are left");
	is_int(close_all(), 0, "nothing is left");
}

/* The old pages stay where they are, if they cannot be unmapped: none has rights there that had none. */
static void stay(void)
{
	int open = 0, there = 0;

	begin("io.lend=1", "io.piece=512KiB", "io.staging=4MiB", 16 * MIB);
	is_int(lower() | resume_lazily(), 0, "there");
	for (int n = 1; n < 4; n++) {
		char rule[32];

		snprintf(rule, sizeof(rule), "unmap:nth=%d:err=EIO", n);
		glk_fault_set(context->drv, rule);
		there += glake_fetch(ctx, block[0], stream) != 0;
		glk_fault_set(context->drv, "off");
		open += usable(1);
	}
	tap_expect_log(there);
	ok(there > 0, "it stays there %d times, where pages are not unmapped", there);
	is_int(open, 0, "and no other GPU may use it");
	is_int(fetch(), 0, "back");
	ok(is_whole() && !placed() && !usable(1), "all bytes");
	is_int(close_all(), 0, "nothing is left");
}

/* A page of the host of which a block has the second half alone. */
static void half(void)
{
	static const char *const settings[] = {SETTINGS, "io.least=2MiB", "io.lend=1",
		"io.piece=512KiB", "io.staging=4MiB", "tier.place=host", "tier.host=1GiB",
		"policy.bins=0", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	void *full, *all, *one, *two;
	uint64_t before;

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context) ||
		glake_stream_new(ctx, 0, &stream) || glake_budget_set(ctx, 0, 64 * MIB) ||
		glake_alloc(ctx, 0, 64 * MIB, stream, 0, &full) ||
		glake_alloc(ctx, 0, 32 * MIB, stream, 0, &all))
		tap_bail("no context");
	is_int(glake_free(ctx, all, stream), 0, "pages of the host");
	if (glake_alloc(ctx, 0, 4 * MIB, stream, 0, &one) ||
		glake_alloc(ctx, 0, 28 * MIB, stream, 0, &two))
		tap_bail("no blocks");
	size = 28 * MIB;
	block[0] = block[1] = two;
	is_int((int64_t)placed(), (int64_t)(BLOCKS * size),
		"two blocks share a page of it");
	fill(two, 7);
	is_int(glake_free(ctx, one, stream) | glake_free(ctx, full, stream), 0,
		"one of them goes");
	before = context->io.gpu[1].relayed;
	is_int(quiet(), 0, "a quiet point");
	ok(!placed() && is_filled(two, 7), "the other one comes to the GPU");
	ok(context->io.gpu[1].relayed > before, "over two links");
	is_int(glake_free(ctx, two, stream) | glake_stream_free(ctx, 0, stream) |
			sound_close(ctx, NULL),
		0, "the end");
}

/* The n-th call fails, and the next ones do not. */
static bool try_one(int (*act)(void), const char *form, unsigned n, uint64_t *ret_failed)
{
	char rule[64];
	uint64_t calls;
	int off = 0, logs;
	bool fine;

	begin("io.lend=all", "io.piece=512KiB", "io.staging=4MiB", 3 * MIB);
	if (act != lower && (lower() || (act != resume && resume_lazily())))
		tap_bail("refused");
	logs = tap.logs;
	snprintf(rule, sizeof(rule), form, n);
	glk_fault_set(context->drv, rule);
	act();
	glk_fault_count(context->drv, &calls, ret_failed);
	glk_fault_set(context->drv, "off");
	for (int device = 0; device < 4; device++)
		off += context->io.gpu[device].off;
	resume();
	fine = is_whole();
	for (int device = 1; device < 4; device++)
		fine &= !usable(device);
	quiet();
	fine &= is_whole();
	tap_expect_log(tap.logs - logs);
	fine &= !close_all();
	if (!fine)
		tap_note("%s: not as it should be", rule);
	return fine && tap.logs - logs >= off;
}

static void faults(const char *name, int (*act)(void), const char *form)
{
	unsigned n = 0, tries = 0, step = tap_storms_take_long() ? 60 : 30;
	uint64_t failed = 1;
	bool fine = true;

	for (; failed; tries++) {
		n += 1 + (unsigned)(seed_next(&rolled) % step);
		fine &= try_one(act, form, n, &failed);
	}
	ok(fine, "%s, %s: no byte is wrong, nothing is left", name, form);
	ok(n > 60, "%u tries, up to call %u", tries, n);
}

int main(void)
{
	tap_plan_later();
	rolled = seed_thread(seed_start(), 0);
	links("io.lend=", 0.99, 1.01);
	links("io.lend=2", 1.8, 2.01);
	links("io.lend=all", 3.5, 4.01);
	peers();
	is_int(to_a_peer("io.lend=all"), to_a_peer("io.lend="),
		"with rights as without others");
	refused();
	rights_stay_long(rights_stay());
	rights_under_way();
	stay();
	half();
	faults("suspended in place", lower, "any:nth=%u:err=EIO");
	faults("resumed from there", resume, "any:nth=%u:err=EIO");
	faults("fetched", fetch, "any:nth=%u:err=EINVAL");
	return tap_done();
}
