/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests and frees of others go through beside a plan that stands in a call of the driver, and
 * take nothing of its memory; when the call fails all is as it was. */
#include "plan_parts.h"

#define FRAGMENTS 8

/* Every second of these is free, and its pages lie idle. */
static void fragment(struct rig *rig, struct held *held, struct CUstream_st *stream)
{
	for (int i = 0; i < FRAGMENTS; i++) {
		if (plan_take(rig, &held[i], 24 * MIB, stream))
			tap_bail(rig_error().text);
	}
	for (int i = 0; i < FRAGMENTS; i += 2)
		plan_drop(rig, &held[i], stream);
	rig_flush(rig);
}

static bool all_apart(const struct held *list, int count)
{
	bool apart = true;

	for (int i = 0; i < count; i++) {
		for (int j = 0; j < i; j++)
			apart &= !plan_overlap(&list[i], &list[j]);
	}
	return apart;
}

/* Blocks of all kinds, some of them freed again: what B does. */
static void live_beside(
	struct rig *rig, struct held *list, int count, struct CUstream_st *b)
{
	static const size_t sizes[] = {700, 24 * MIB, 100 << 10, 3 * MIB + 4096, 40 * MIB,
		700, 2 * MIB, 5 * MIB, 256 << 10, 8 * MIB};
	int missed = 0, torn = 0;

	for (int i = 0; i < count; i++)
		missed += plan_take(rig, &list[i], sizes[i % 10], b) != 0;
	for (int i = 0; i < count; i += 3)
		torn += !plan_drop(rig, &list[i], b);
	for (int i = 0; i < count; i += 3)
		missed += plan_take(rig, &list[i], sizes[(i + 5) % 10], b) != 0;
	is_int(missed, 0, "meanwhile all others are served");
	is_int(torn, 0, "and may free");
}

/* A needs a page of its own, for which idle ones have to go: it stands in each of its calls. */
static void others_go_on(const struct plan_op *op, int err)
{
	struct errand e = {
		.fn = errand_alloc, .size = 72 * MIB, .flags = GLAKE_ALLOC_CONTIGUOUS};
	struct held held[FRAGMENTS], list[13];
	struct CUstream_st *b;
	struct rig rig;
	int torn = 0, got;

	gate_open_rig(&rig, (const char *const[]){"pool.budget=400MiB", NULL});
	e.rig = &rig;
	e.stream = rig_stream(&rig);
	b = rig_stream(&rig);
	fragment(&rig, held, b);
	ok(gate_send(&e, op->op, 1), "a request stands in %s", op->name);
	live_beside(&rig, list, 12, b);
	ok(!glk_load_acquire(&e.done), "and are done before it");
	got = gate_end(&e, err);
	/* what goes back to the driver is no matter of the request */
	is_int(got, op->op == GLK_OP_unmap || op->op == GLK_OP_release ? 0 : err,
		"it ends as the call does");
	list[12] = plan_got(&e);
	ok(all_apart(list, 13), "blocks lie apart");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 13; i++)
		torn += !plan_drop(&rig, &list[i], b);
	for (int i = 1; i < FRAGMENTS; i += 2)
		torn += !plan_drop(&rig, &held[i], b);
	is_int(torn, 0, "and keep what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

/* A block between two others, with which it shares its first and its last slot: they are freed, and
 * what lies idle goes to the driver, while its middle is about to be mapped. */
static void neighbours_go(const struct plan_op *op, int err)
{
	struct errand e = {.fn = errand_alloc, .size = 6 * MIB};
	struct held side[2], middle, got;
	struct CUstream_st *s;
	uint64_t unused, base;
	struct rig rig;

	gate_open_rig(&rig, (const char *const[]){"policy.bins=0", NULL});
	e.rig = &rig;
	s = rig_stream(&rig);
	e.stream = rig_stream(&rig);
	plan_take(&rig, &side[0], 3 * MIB, s);
	plan_take(&rig, &middle, 6 * MIB, s);
	plan_take(&rig, &side[1], 3 * MIB, s);
	base = side[0].addr;
	is_int((int64_t)(side[1].addr - base), 9 * (int64_t)MIB, "three in a row");
	plan_drop(&rig, &middle, s);
	glk_cache_trim(&rig.cache, 0, false, &unused);
	ok(gate_send(&e, op->op, 1), "between two others one stands in %s", op->name);
	ok(plan_drop(&rig, &side[0], s) && plan_drop(&rig, &side[1], s), "they go");
	is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0,
		"and what lies idle does");
	is_int(gate_end(&e, err), err, "it ends as the call does");
	got = plan_got(&e);
	is_sound(&rig, "the books agree");
	if (!err) {
		is_int((int64_t)(got.addr - base), 3 * (int64_t)MIB,
			"it lies between them");
		is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0,
			"and is not idle");
		is_int((int64_t)rig_figures(&rig).reserved, 8 * (int64_t)MIB,
			"nor part of it");
		ok(plan_drop(&rig, &got, s), "it keeps what was written");
	}
	glk_cache_trim(&rig.cache, 0, false, &unused);
	is_int((int64_t)rig_figures(&rig).reserved, 0, "nothing is left behind");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void errand_spill(struct errand *e)
{
	e->err = glk_cache_spill(&e->rig->cache, e->addr, e->stream);
}

/* While a block is on its way: what is asked of the addresses on both sides of it is answered at once. */
static void at_its_ends(void)
{
	struct errand e = {.fn = errand_spill};
	struct glake_block block = {.sz = sizeof(block)};
	struct held row[3];
	struct rig rig;

	gate_open_rig(&rig,
		(const char *const[]){"policy.bins=0", "soft.host_memory=512MiB",
			"tier.host=256MiB", NULL});
	e.rig = &rig;
	e.stream = rig_stream(&rig);
	for (int i = 0; i < 3; i++)
		plan_take(&rig, &row[i], 4 * MIB, e.stream);
	e.addr = row[1].addr;
	ok(row[1].addr == row[0].addr + 4 * MIB && row[2].addr == row[1].addr + 4 * MIB,
		"three in a row");
	/* what it takes for the first one is there then */
	ok(!glk_cache_spill(&rig.cache, e.addr, e.stream) &&
			!glk_cache_fetch(&rig.cache, e.addr, e.stream),
		"one goes and comes");
	ok(gate_send(&e, GLK_OP_copy, 1), "the middle one stands in its copy");
	is_int(glk_cache_query(&rig.cache, row[2].addr, &block), 0,
		"the next one is there");
	ok(plan_drop(&rig, &row[0], e.stream) && plan_drop(&rig, &row[2], e.stream),
		"both may go");
	is_int(rig_free(&rig, e.addr + 4 * MIB, e.stream), -EINVAL, "and are gone");
	is_int(rig_free(&rig, e.addr - 4 * MIB, e.stream), -EINVAL, "both");
	is_int(glk_cache_query(&rig.cache, row[1].addr - 1, &block), -EINVAL,
		"nothing is in front of it");
	ok(!glk_load_acquire(&e.done), "which it is still doing");
	is_int(gate_end(&e, 0), 0, "it goes");
	is_int(glk_cache_fetch(&rig.cache, row[1].addr, e.stream), 0, "and comes");
	ok(plan_drop(&rig, &row[1], e.stream), "as it was");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void errand_fetch(struct errand *e)
{
	e->err = glk_cache_fetch(&e->rig->cache, e->addr, e->stream);
}

/* One that lies on the host is fetched. Beside it, on its first slot too, is one that is away there, as a whole or in
 * part, which is freed meanwhile and becomes part of what was free before it. */
static void away_goes(int op, int nth, bool part)
{
	struct errand e = {.fn = errand_fetch};
	struct glake_block block = {.sz = sizeof(block)};
	struct glake_suspended did = {.sz = sizeof(did)};
	struct held before, away, placed;
	struct CUstream_st *s;
	struct rig rig;

	gate_open_rig(&rig,
		(const char *const[]){"policy.bins=0", "tier.place=host",
			"soft.host_memory=512MiB", "tier.host=256MiB", NULL});
	e.rig = &rig;
	s = rig_stream(&rig);
	e.stream = rig_stream(&rig);
	plan_take(&rig, &before, 3 * MIB, s);
	plan_take(&rig, &away, 8 * MIB, s);
	plan_take(&rig, &placed, 5 * MIB, s);
	e.addr = placed.addr;
	ok(away.addr == before.addr + 3 * MIB && placed.addr == away.addr + 8 * MIB,
		"three in a row");
	is_int(glk_cache_move(&rig.cache, away.addr, s, false,
		       part ? &(struct glk_portion){5 * MIB, 3 * MIB} : NULL, NULL),
		0, "the middle one goes away");
	is_int(glk_cache_suspend(&rig.cache, true, &did), 0, "the others go to the host");
	is_int(glk_cache_resume(&rig.cache, true, &did), 0, "and stay there");
	ok(gate_send(&e, op, nth), "the last one is on its way there");
	is_int(rig_free(&rig, away.addr, s), 0, "the middle one is freed");
	ok(plan_drop(&rig, &before, s), "and the first one is");
	is_int(gate_end(&e, 0), 0, "it ends as the call does");
	is_int(glk_cache_query(&rig.cache, placed.addr, &block), 0, "it is there");
	is_int((int64_t)rig_figures(&rig).placed, (int64_t)block.placed,
		"what lies on the host is what it has there");
	is_sound(&rig, "the books agree");
	ok(plan_drop(&rig, &placed, s), "it keeps what was written");
	is_int((int64_t)rig_figures(&rig).placed, 0, "then nothing does");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	for (int part = 0; part < 2; part++) {
		away_goes(GLK_OP_create, 1, part);
		away_goes(GLK_OP_unmap, 1, part);
		away_goes(GLK_OP_unmap, 2, part);
	}
	for (size_t i = 0; i < PLAN_OPS; i++) {
		others_go_on(&plan_ops[i], 0);
		others_go_on(&plan_ops[i], -EIO);
	}
	for (size_t i = 0; i < 3; i++) {
		neighbours_go(&plan_ops[i], 0);
		neighbours_go(&plan_ops[i], -EIO);
	}
	at_its_ends();
	return tap_done();
}
