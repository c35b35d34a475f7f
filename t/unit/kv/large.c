/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lanes with large pages: the calls that they take, what a trim keeps, and that sequences without them in the same slots
 * are as those of any cache.
 */
#include "kv_parts.h"
#include "soft/fault.h"

#include <unistd.h>

#define LANES  4
#define TOKENS 12288
#define ROW    2048
#define PROMPT                                                                           \
	11264 /* tokens: 22 MiB a lane, which are two pages of 8 MiB and three of 2 */
#define LANE  ((size_t)PROMPT * ROW)
#define CALLS 5

static const struct glake_kv_options options = {.sz = sizeof(options),
	.slots = 4,
	.tokens = TOKENS,
	.lanes = LANES,
	.lane_bytes = ROW,
	.prefixes = 2,
	.flags = GLAKE_KV_LARGE};

static uint64_t calls(enum glake_call call)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	if (glake_driver_stats_get(ctx, &stats))
		tap_bail(record().text);
	return stats.calls[call];
}

static uint32_t mark(uint32_t lane, uint32_t token)
{
	return lane * 100000 + token;
}

/* The first bytes of each token. */
static void write_from(
	struct glake_kv *kv, uint32_t slot, uint32_t first, uint32_t tokens)
{
	for (uint32_t lane = 0; lane < LANES; lane++) {
		for (uint32_t t = first; t < tokens; t++) {
			uint32_t number = mark(lane, t);

			memcpy(at(kv, lane, slot, t), &number, sizeof(number));
		}
	}
}

static void write_tokens(struct glake_kv *kv, uint32_t slot, uint32_t tokens)
{
	write_from(kv, slot, 0, tokens);
}

static bool has_tokens(struct glake_kv *kv, uint32_t slot, uint32_t tokens)
{
	for (uint32_t lane = 0; lane < LANES; lane++) {
		for (uint32_t t = 0; t < tokens; t++) {
			uint32_t number = mark(lane, t);

			if (memcmp(at(kv, lane, slot, t), &number, sizeof(number)))
				return false;
		}
	}
	return true;
}

/* A prompt, lane by lane in pairs. */
static uint32_t compute(struct glake_kv *kv)
{
	uint32_t slot;

	if (glake_kv_new(kv, TOKENS, stream, &slot))
		tap_bail(record().text);
	for (uint32_t lane = 0; lane < LANES; lane += 2) {
		if (glake_kv_layer_grow(kv, slot, lane, 2, PROMPT, stream))
			tap_bail(record().text);
	}
	if (glake_kv_grow(kv, slot, PROMPT, stream))
		tap_bail(record().text);
	write_tokens(kv, slot, PROMPT);
	return slot;
}

static uint64_t held_by(struct glake_kv *kv, uint32_t slot)
{
	struct glake_kv_sequence q = {.sz = sizeof(q)};

	if (glake_kv_sequence_get(kv, slot, &q))
		tap_bail(record().text);
	told(kv);
	return q.held;
}

static void moves(void)
{
	uint64_t maps, access;
	struct glake_kv *kv;
	uint32_t slot;

	begin("soft.memory=512MiB");
	kv = make(&options);
	maps = calls(GLAKE_CALL_MAP);
	access = calls(GLAKE_CALL_SET_ACCESS);
	slot = compute(kv);
	is_int((int64_t)(calls(GLAKE_CALL_MAP) - maps), LANES * CALLS,
		"a lane of eleven pages of 2 MiB has five");
	is_int((int64_t)(calls(GLAKE_CALL_SET_ACCESS) - access), LANES,
		"and access to all of them at once");
	is_int((int64_t)held_by(kv, slot), LANES * (int64_t)LANE, "as many bytes");
	is_int(glake_kv_layer_done(kv, slot, 0, LANES, stream), 0, "all lanes leave");
	settle();
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "and their pages");
	maps = calls(GLAKE_CALL_MAP);
	is_int(glake_kv_layer_wait(kv, slot, 0, LANES, stream), 0, "they come back");
	is_int((int64_t)(calls(GLAKE_CALL_MAP) - maps), LANES * CALLS, "likewise");
	settle();
	ok(has_tokens(kv, slot, PROMPT), "with all tokens");
	is_int(glake_suspend_in_place(ctx, 0, NULL), 0, "all lies on the host");
	is_int(glake_resume(ctx, 0, NULL), 0, "and does no more");
	ok(has_tokens(kv, slot, PROMPT), "with all tokens");
	is_int(glake_kv_spill(kv, slot, stream), 0, "the sequence leaves as a whole");
	is_int(glake_suspend(ctx, 0, NULL), 0, "and all that there is");
	is_int(glake_resume(ctx, 0, NULL), 0, "is back");
	is_int(glake_kv_fetch(kv, slot, stream), 0, "it comes back too");
	settle();
	ok(has_tokens(kv, slot, PROMPT), "with all tokens");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

static void cuts(void)
{
	struct glake_kv *kv;
	uint64_t maps;
	uint32_t slot;

	begin("soft.memory=512MiB");
	kv = make(&options);
	slot = compute(kv);
	is_int(glake_kv_trim(kv, slot, 9000, stream), 0, "cut behind the large pages");
	is_int((int64_t)held_by(kv, slot), LANES * 9 * (int64_t)PAGE,
		"small ones go by one");
	is_int(glake_kv_trim(kv, slot, 5000, stream), 0, "cut in the second large one");
	is_int((int64_t)held_by(kv, slot), LANES * 8 * (int64_t)PAGE, "which stays");
	is_int((int64_t)figures().elastic, LANES * 8 * (int64_t)PAGE, "and counts");
	maps = calls(GLAKE_CALL_MAP);
	is_int(glake_kv_grow(kv, slot, 8192, stream), 0, "to the end of it");
	is_int((int64_t)(calls(GLAKE_CALL_MAP) - maps), 0, "there is memory");
	is_int(glake_kv_grow(kv, slot, 8193, stream), 0, "a token more");
	is_int((int64_t)held_by(kv, slot), LANES * 9 * (int64_t)PAGE, "is a small page");
	is_int(glake_kv_trim(kv, slot, 4096, stream), 0, "cut between the two");
	is_int((int64_t)held_by(kv, slot), LANES * 4 * (int64_t)PAGE, "the second goes");
	ok(has_tokens(kv, slot, 4096), "and what stays is as it was");
	is_int(glake_kv_trim(kv, slot, 0, stream), 0, "cut to nothing");
	is_int((int64_t)held_by(kv, slot), 0, "nothing stays");
	is_int(glake_kv_layer_grow(kv, slot, 0, LANES, 6000, stream), 0,
		"again, to the middle of an idle large one");
	is_int(glake_kv_grow(kv, slot, 6000, stream), 0, "which goes elsewhere");
	is_int(glake_kv_trim(kv, slot, 5000, stream), 0, "so that a cut");
	is_int((int64_t)held_by(kv, slot), LANES * 5 * (int64_t)PAGE,
		"takes a small one");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* Whole pages are shared, of whatever size, each with one call; what lies behind them is copied. */
static void shares(void)
{
	uint32_t slot, other, third, tokens;
	struct glake_kv *kv;
	uint64_t maps;

	begin("soft.memory=1GiB");
	kv = make(&options);
	slot = compute(kv);
	maps = calls(GLAKE_CALL_MAP);
	is_int(glake_kv_fork(kv, slot, 9000, TOKENS, stream, &other), 0, "a fork");
	is_int((int64_t)(calls(GLAKE_CALL_MAP) - maps), LANES * 3,
		"has two large pages and a small one a lane");
	settle();
	ok(has_tokens(kv, other, 9000), "with the tokens");
	is_int((int64_t)told(kv).shared, LANES * 8 * (int64_t)PAGE, "the two are shared");
	is_int((int64_t)held_by(kv, other), LANES * 9 * (int64_t)PAGE, "all is had");
	is_int(glake_kv_fork(kv, other, 6000, TOKENS, stream, &third), 0,
		"a fork that ends in the second");
	settle();
	ok(has_tokens(kv, third, 6000), "has the tokens");
	is_int((int64_t)told(kv).shared, LANES * 12 * (int64_t)PAGE, "shares the first");
	is_int((int64_t)held_by(kv, third), LANES * 6 * (int64_t)PAGE,
		"and has a copy of what it needs of the second");
	is_int(glake_kv_trim(kv, other, 6144, stream), -EBUSY,
		"no cut between pages of 2 MiB of one that is shared");
	is_int(glake_kv_trim(kv, slot, 8192, stream), 0, "but at its end");
	is_int(glake_kv_trim(kv, other, 4096, stream), 0, "and at its beginning");
	is_int((int64_t)told(kv).shared, LANES * 8 * (int64_t)PAGE,
		"the first is thrice");
	is_int(glake_kv_grow(kv, other, 6000, stream), 0, "which goes on");
	write_from(kv, other, 4096, 6000);
	ok(has_tokens(kv, slot, 8192) && has_tokens(kv, third, 6000), "by itself");
	is_int(glake_kv_publish(kv, slot, 8192, "key", 3, stream), 0, "a prefix");
	settle();
	is_int(glake_kv_free(kv, third, stream), 0, "one ends");
	is_int(glake_kv_free(kv, slot, stream), 0, "and the first");
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "another one in its slot");
	maps = calls(GLAKE_CALL_MAP);
	is_int(glake_kv_adopt(kv, slot, "key", 3, stream, &tokens), 0, "adopts");
	is_int((int64_t)(calls(GLAKE_CALL_MAP) - maps), 0, "what still lies there");
	settle();
	ok(tokens == 8192 && has_tokens(kv, slot, tokens), "the tokens");
	is_int(glake_kv_fork(kv, slot, 8192, TOKENS, stream, &third), 0,
		"a fork of that");
	is_int(glake_kv_spill(kv, slot, stream), 0, "what is shared stays");
	is_int((int64_t)figures().away, 0, "all of it");
	is_int(glake_kv_prefix_spill(kv, 0, "key", 3, stream), -EBUSY, "it is read");
	is_int(glake_kv_spill(kv, third, stream), 0, "the second does not");
	is_int(glake_kv_spill(kv, other, stream), 0, "nor the one with the first");
	is_int(glake_kv_prefix_spill(kv, 0, "key", 3, stream), 0, "so that it goes");
	is_int((int64_t)figures().away, LANES * (3 * 8 + 4 + 2) * (int64_t)PAGE,
		"three times, a part of it once more, and two pages");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "and its pages");
	is_int(glake_suspend(ctx, 0, NULL), 0, "with all else");
	is_int(glake_resume(ctx, 0, NULL), 0, "which comes back");
	maps = calls(GLAKE_CALL_MAP);
	is_int(glake_kv_fetch(kv, third, stream), 0, "the last comes first");
	is_int((int64_t)(calls(GLAKE_CALL_MAP) - maps), LANES * 2, "as it was");
	is_int(glake_kv_fetch(kv, slot, stream), 0, "then the other");
	settle();
	ok(has_tokens(kv, third, 8192) && has_tokens(kv, slot, 8192), "with the tokens");
	is_int(glake_kv_free(kv, slot, stream), 0, "it ends");
	is_int(glake_kv_fetch(kv, other, stream), 0, "the third comes");
	is_int(glake_kv_prefix_fetch(kv, 0, "key", 3, stream), 0, "and the prefix");
	is_int((int64_t)told(kv).shared, LANES * 12 * (int64_t)PAGE, "which is shared");
	is_int(glake_suspend(ctx, 0, NULL), 0, "all leaves again");
	is_int(glake_resume(ctx, 0, NULL), 0, "and comes");
	is_int(glake_kv_withdraw(kv, 0, "key", 3, stream), 0, "the prefix goes");
	ok(has_tokens(kv, third, 8192) && has_tokens(kv, other, 6000), "others stay");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* In a slot with idle large pages. */
static void goes_on(void)
{
	uint32_t slot, other;
	struct glake_kv *kv;

	begin("soft.memory=1GiB");
	kv = make(&options);
	slot = compute(kv);
	is_int(glake_kv_free(kv, slot, stream), 0, "one with large pages");
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "and one in its slot");
	for (uint32_t tokens = 1000; tokens <= 6000; tokens += 1000)
		is_int(glake_kv_grow(kv, slot, tokens, stream), 0, "that grows by bits");
	is_int((int64_t)held_by(kv, slot), LANES * 6 * (int64_t)PAGE, "has small ones");
	write_tokens(kv, slot, 6000);
	is_int(glake_kv_fork(kv, slot, 5000, TOKENS, stream, &other), 0, "is forked");
	settle();
	ok(told(kv).shared == LANES * 4 * PAGE && has_tokens(kv, other, 5000),
		"and shares them");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

static void leaves(void)
{
	struct glake_piece pieces[16];
	void *here = NULL;
	size_t count = 0, wrong = 0;
	struct glake_kv *kv;
	uint32_t slot;

	begin("soft.memory=512MiB");
	kv = make(&options);
	slot = compute(kv);
	is_int(glake_kv_export(kv, slot, 1, 2000, 8000, 1, pieces, 16, &count), 0,
		"tokens of a lane are given");
	is_int((int64_t)count, 4, "in two large pages and two small ones");
	is_int(glake_import(ctx, 0, pieces, count, (size_t)8000 * ROW, &here), 0,
		"imported");
	for (uint32_t t = 0; here && t < 8000; t++) {
		uint32_t number = mark(1, 2000 + t);

		wrong += memcmp((char *)here + (size_t)t * ROW, &number,
				 sizeof(number)) != 0;
	}
	is_int((int64_t)wrong, 0, "they are there");
	for (size_t i = 0; i < count; i++)
		close(pieces[i].fd);
	is_int(glake_import_end(ctx, here, stream), 0, "the importer is done");
	is_int(glake_kv_export_end(kv, slot, 1), 0, "as is told");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* In one call with a lane that has a window there are none, for any. */
static void windows(void)
{
	static const struct glake_kv_lane lanes[] = {{.bytes = ROW},
		{.bytes = ROW, .rule = GLAKE_KV_WINDOW, .window = TOKENS}};
	struct glake_kv_options some = options;
	struct glake_kv *kv;
	uint32_t slot;
	uint64_t maps;

	some.lanes = 2;
	some.lane = lanes;
	some.lane_bytes = 0;
	begin("soft.memory=512MiB");
	kv = make(&some);
	maps = calls(GLAKE_CALL_MAP);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_layer_grow(kv, slot, 0, 2, PROMPT, stream), 0, "both at once");
	is_int((int64_t)(calls(GLAKE_CALL_MAP) - maps), 2 * (int64_t)(LANE / PAGE),
		"have small pages");
	is_int(glake_kv_trim(kv, slot, 0, stream), 0, "they go");
	glake_trim(ctx, 0, 0, NULL);
	maps = calls(GLAKE_CALL_MAP);
	is_int(glake_kv_layer_grow(kv, slot, 1, 1, PROMPT, stream), 0, "the window");
	is_int((int64_t)(calls(GLAKE_CALL_MAP) - maps), (int64_t)(LANE / PAGE),
		"has small pages");
	maps = calls(GLAKE_CALL_MAP);
	is_int(glake_kv_layer_grow(kv, slot, 0, 1, PROMPT, stream), 0, "the other one");
	is_int((int64_t)(calls(GLAKE_CALL_MAP) - maps), CALLS, "has large ones");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* Each call of the driver fails once, at each of its places: a growth changes nothing then, and what did not come back does
 * with the next call. */
static void undoes(void)
{
	static const char *const ops[] = {"create", "map", "set_access"};
	struct glk_context *context;
	struct glake_kv *kv;
	int failed = 0, wrong = 0;
	uint32_t slot;
	char rule[64];

	begin_with("soft.memory=512MiB", "driver.fault=off");
	kv = make(&options);
	if (glk_context_get(ctx, &context) || glake_kv_new(kv, TOKENS, stream, &slot))
		tap_bail(record().text);
	for (int i = 0; i < 3 * 3; i++) {
		snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", ops[i % 3],
			1 + 3 * (i / 3));
		glake_trim(ctx, 0, 0, NULL);
		glk_fault_set(context->drv, rule);
		if (glake_kv_layer_grow(kv, slot, 0, LANES, PROMPT, stream)) {
			failed++;
			wrong += held_by(kv, slot) != 0;
		}
		glk_fault_set(context->drv, "off");
		if (glake_kv_layer_grow(kv, slot, 0, LANES, PROMPT, stream) ||
			glake_kv_grow(kv, slot, PROMPT, stream))
			tap_bail(record().text);
		write_tokens(kv, slot, PROMPT);
		if (glake_kv_layer_done(kv, slot, 0, LANES, stream))
			tap_bail(record().text);
		settle();
		glake_trim(ctx, 0, 0, NULL);
		glk_fault_set(context->drv, rule);
		failed += glake_kv_layer_wait(kv, slot, 0, LANES, stream) != 0;
		glk_fault_set(context->drv, "off");
		if (glake_kv_layer_wait(kv, slot, 0, LANES, stream))
			tap_bail(record().text);
		settle();
		wrong += !has_tokens(kv, slot, PROMPT);
		if (glake_kv_trim(kv, slot, 0, stream))
			tap_bail(record().text);
		told(kv);
	}
	ok(failed > 8, "%d calls failed", failed);
	is_int(wrong, 0, "and nothing was wrong for it");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* Where there are none, or no room for one, small ones do. */
static void makes_do(void)
{
	struct glake_kv_options wrong = options;
	struct glake_kv *kv = NULL;
	uint32_t slot;

	begin("soft.memory=94MiB");
	kv = make(&options);
	slot = compute(kv);
	is_int((int64_t)held_by(kv, slot), LANES * (int64_t)LANE, "all that there is");
	is_int(glake_kv_free(kv, slot, stream), 0, "it ends");
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "one with small pages");
	is_int(glake_kv_grow(kv, slot, PROMPT, stream), 0, "has all that there is");
	is_int((int64_t)held_by(kv, slot), LANES * (int64_t)LANE, "as much");
	is_int(glake_kv_limit_set(kv, LANES * LANE), 0, "a limit");
	is_int(glake_kv_layer_grow(kv, slot, 0, 2, TOKENS, stream), -EDQUOT, "holds");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	wrong.flags |= GLAKE_KV_TOKEN_FRONT;
	is_int(glake_kv_open(ctx, 0, &wrong, stream, &kv), -EINVAL,
		"not with tokens in front");
	wrong.flags = GLAKE_KV_LARGE | GLAKE_KV_SINGLE;
	is_int(glake_kv_open(ctx, 0, &wrong, stream, &kv), -EINVAL, "nor single handles");
	wrong.flags = GLAKE_KV_LARGE << 1;
	is_int(glake_kv_open(ctx, 0, &wrong, stream, &kv), -EINVAL,
		"nor what is unknown");
	finish();
}

int main(void)
{
	tap_plan_later();
	moves();
	cuts();
	shares();
	goes_on();
	leaves();
	windows();
	makes_do();
	undoes();
	return tap_done();
}
