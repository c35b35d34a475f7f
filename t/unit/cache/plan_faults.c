/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Each call of the driver that a request makes fails, one after the other, while a second thread is
 * at work in the same arena; and with it, calls of the second thread.
 */
#include "plan_parts.h"

#include "seed.h"

#include <sched.h>

#define OTHERS 10

/* Of an operation that a request makes, those that fail. */
#define CALLS 6

static struct rig rig;
static struct CUstream_st *stream[2];
static glk_atomic(bool) stop;
static glk_atomic(uint32_t) torn, strange, turns;

static bool is_documented(int err)
{
	return !err || err == -ENOMEM || err == -EIO || err == -EBUSY;
}

static void *others(void *arg)
{
	static const size_t sizes[] = {
		600, 200 << 10, 2 * MIB, 3 * MIB + 512, 10 * MIB, 16 * MIB, 18 * MIB};
	struct held held[OTHERS] = {0};
	uint64_t state = *(uint64_t *)arg, unused;

	while (!glk_load_relaxed(&stop)) {
		struct held *h = &held[seed_below(&state, OTHERS)];
		int err = 0;

		if (h->addr)
			glk_add_relaxed(&torn, !plan_drop(&rig, h, stream[1]));
		else
			err = plan_take(&rig, h, sizes[seed_below(&state, 7)], stream[1]);
		if (!seed_below(&state, 60))
			glk_cache_trim(&rig.cache, 60 * MIB, false, &unused);
		if (!is_documented(err))
			glk_add_relaxed(&strange, 1);
		glk_add_relaxed(&turns, 1);
	}
	for (int i = 0; i < OTHERS; i++)
		glk_add_relaxed(&torn, !plan_drop(&rig, &held[i], stream[1]));
	return NULL;
}

static void fragment(struct held *held, int count)
{
	for (int i = 0; i < count; i++)
		plan_take(&rig, &held[i], 12 * MIB, stream[0]);
	for (int i = 0; i < count; i += 2)
		plan_drop(&rig, &held[i], stream[0]);
	rig_flush(&rig);
}

/* They have done something, or wait for the one that stands. */
static void let_others_work(void)
{
	uint32_t until = glk_load_relaxed(&turns) + 5;
	bool waits = false;

	while (!waits && (int32_t)(glk_load_relaxed(&turns) - until) < 0) {
		sched_yield();
		glk_lock(&rig.cache.lock);
		waits = rig.cache.plans.waiters > 0;
		glk_unlock(&rig.cache.lock);
	}
}

/* A request of a kind, whose call number `nth` of an operation fails; false: it has none such. */
static bool fails_at(const struct plan_op *op, int nth, int err, uint32_t flags,
	const char *rules, uint64_t *state)
{
	struct errand e = {.fn = errand_alloc,
		.rig = &rig,
		.stream = stream[0],
		.size = flags ? 28 * MIB : 35 * MIB,
		.flags = flags};
	struct held held[6] = {0}, got;
	uint64_t seed = seed_next(state);
	pthread_t thread;
	bool standing;

	fragment(held, 6);
	glk_store_relaxed(&stop, false);
	glk_fault_set(gate.drv.inner, rules);
	pthread_create(&thread, NULL, others, &seed);
	standing = gate_send(&e, op->op, nth);
	if (standing)
		let_others_work();
	if (!is_documented(gate_end(&e, err)))
		glk_add_relaxed(&strange, 1);
	glk_store_relaxed(&stop, true);
	pthread_join(thread, NULL);
	glk_fault_set(gate.drv.inner, "off");
	got = plan_got(&e);
	glk_add_relaxed(&torn, !plan_drop(&rig, &got, stream[0]));
	for (int i = 0; i < 6; i++)
		glk_add_relaxed(&torn, !plan_drop(&rig, &held[i], stream[0]));
	return standing;
}

static void all_of(const struct plan_op *op, int err, uint32_t flags, const char *rules,
	const char *const *settings)
{
	bool keeps = op->op == GLK_OP_unmap || op->op == GLK_OP_release ||
		strstr(rules, "unmap") || strstr(rules, "release");
	uint64_t state = 99, unused;
	bool sound = true;
	int stood = 0;

	gate_open_rig(&rig, settings);
	stream[0] = rig_stream(&rig);
	stream[1] = rig_stream(&rig);
	for (int nth = 1; nth <= CALLS && sound; nth++) {
		stood += fails_at(op, nth, err, flags, rules, &state);
		sound = rig_is_sound(&rig);
		if (!sound)
			tap_note("%s %d, %d: %s", op->name, nth, err, rig_error().text);
		/* what the request needs is to be had from the driver again */
		if (nth % 2)
			glk_cache_trim(&rig.cache, 0, false, &unused);
	}
	tap_note("%s, %d, \"%s\": %d calls failed", op->name, err, rules, stood);
	ok(sound && rig_is_sound(&rig), "the books agree");
	ok(keeps || !rig_figures(&rig).lost, "nothing is lost");
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

int main(void)
{
	static const char *const tight[] = {
		"pool.budget=130MiB", "map.aliases=3", "pool.large_page=8MiB", NULL};
	static const char *const plain[] = {"pool.budget=200MiB", "policy.bins=0", NULL};
	static const char *const pairs[] = {"", "create:every=5:err=ENOMEM",
		"map:every=7:err=EIO", "set_access:every=3:err=EIO",
		"unmap:every=6:err=EIO", "release:every=5:err=EIO"};

	tap_plan_later();
	for (size_t i = 0; i < PLAN_OPS; i++) {
		all_of(&plan_ops[i], -EIO, 0, "off", tight);
		all_of(&plan_ops[i], -ENOMEM, 0, "off", plain);
		all_of(&plan_ops[i], -EIO, GLAKE_ALLOC_CONTIGUOUS, "off", tight);
		/* in pairs they show valgrind nothing more */
		for (size_t j = 1;
			j < sizeof(pairs) / sizeof(*pairs) && !tap_on_valgrind(); j++)
			all_of(&plan_ops[i], j % 2 ? -ENOMEM : -EIO, 0, pairs[j], tight);
	}
	is_int(glk_load_relaxed(&strange), 0, "only documented errors");
	is_int(glk_load_relaxed(&torn), 0, "blocks keep what was written");
	return tap_done();
}
