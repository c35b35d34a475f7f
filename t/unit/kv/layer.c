/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Prompts that are computed layer by layer with the memory of two layers, queued ahead of the device: what each layer
 * wrote is there when it has come back, and no more memory was held meanwhile.
 */
#include "kv_parts.h"
#include "soft/fault.h"

#define LAYERS 8
#define LANES  (2 * LAYERS)
#define TOKENS 4096
#define ROW    2048
#define LANE   ((size_t)TOKENS * ROW)

static const struct glake_kv_options options = {.sz = sizeof(options),
	.slots = 2,
	.tokens = TOKENS,
	.lanes = LANES,
	.lane_bytes = ROW};

static uint32_t mark(uint32_t lane, uint32_t slot)
{
	return 0x01010101u * (1 + lane + slot * LANES);
}

/* As a kernel of the layer would, in the order of the stream. */
static void write_layer(struct glake_kv *kv, uint32_t slot, uint32_t layer)
{
	for (uint32_t lane = 2 * layer; lane < 2 * layer + 2; lane++)
		if (glake_soft_fill(ctx, stream, at(kv, lane, slot, 0), mark(lane, slot),
			    LANE / 4))
			tap_bail(record().text);
}

/* Lanes of the layer that are not as they were written. */
static size_t wrong_in(struct glake_kv *kv, uint32_t slot, uint32_t layer)
{
	size_t wrong = 0;

	for (uint32_t lane = 2 * layer; lane < 2 * layer + 2; lane++) {
		const unsigned char *byte = at(kv, lane, slot, 0);

		wrong += byte[0] != (mark(lane, slot) & 0xff) ||
			memcmp(byte, byte + 1, LANE - 1) != 0;
	}
	return wrong;
}

/* All layers of a prompt, none of which stays. */
static void compute(struct glake_kv *kv, uint32_t slot)
{
	for (uint32_t i = 0; i < LAYERS; i++) {
		if (glake_kv_layer_grow(kv, slot, 2 * i, 2, TOKENS, stream))
			tap_bail(record().text);
		write_layer(kv, slot, i);
		if (glake_kv_layer_done(kv, slot, 2 * i, 2, stream))
			tap_bail(record().text);
	}
}

static void with_two_layers(uint32_t flags)
{
	struct glake_kv_options o = options;
	struct glake_kv_sequence q = {.sz = sizeof(q)};
	size_t wrong = 0, held = 0;
	struct glake_kv *kv;
	uint32_t slot;

	/* a layer takes 16 MiB, all of them 128 */
	begin("soft.memory=38MiB");
	o.flags = flags;
	kv = make(&o);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	compute(kv, slot);
	settle();
	held = figures().reserved;
	ok(held <= 38 * MIB, "%zu MiB are held for what takes 128", held / MIB);
	is_int((int64_t)figures().away, LAYERS * 2 * (int64_t)LANE, "all of it is away");
	is_int(glake_kv_sequence_get(kv, slot, &q), 0, "the sequence");
	ok(q.away == 1 && q.tokens == 0 && q.ready == 0, "is told to be away");
	for (uint32_t i = 0; i < LAYERS; i++) {
		if (glake_kv_layer_wait(kv, slot, 2 * i, 2, stream))
			tap_bail(record().text);
		settle();
		wrong += wrong_in(kv, slot, i);
		if (glake_kv_layer_done(kv, slot, 2 * i, 2, stream))
			tap_bail(record().text);
	}
	is_int((int64_t)wrong, 0, "each layer comes back as it was written");
	is_int(glake_kv_free(kv, slot, stream), 0, "it ends while it is away");
	is_int((int64_t)figures().away, 0, "and so does what is on the host");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

static void with_room(void)
{
	struct glake_kv_sequence q = {.sz = sizeof(q)};
	size_t wrong = 0;
	struct glake_kv *kv;
	uint32_t slot, other;

	begin("soft.memory=400MiB");
	kv = make(&options);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_new(kv, TOKENS, stream, &other), 0, "and another");
	compute(kv, slot);
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), -EBUSY,
		"it is away to all others");
	is_int(record().error_class, GLAKE_ERROR_BUSY, "as is told");
	is_int(glake_kv_layer_grow(kv, slot, 4, 2, TOKENS, stream), -EBUSY,
		"and its layers to those who would write them");
	is_int(glake_kv_grow(kv, other, 100, stream), 0, "the other one grows");
	for (uint32_t i = 0; i < LAYERS; i++)
		is_int(glake_kv_layer_wait(kv, slot, 2 * i, 2, stream), 0, "a layer");
	is_int(glake_kv_layer_wait(kv, slot, 0, LANES, stream), 0, "what is there is");
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), 0, "it has the tokens then");
	settle();
	for (uint32_t i = 0; i < LAYERS; i++)
		wrong += wrong_in(kv, slot, i);
	is_int((int64_t)wrong, 0, "as they were written");
	glake_kv_sequence_get(kv, slot, &q);
	ok(!q.away && q.tokens == TOKENS && q.held == LANES * LANE, "and is whole");
	is_int(glake_kv_layer_done(kv, slot, 0, 6, stream), 0,
		"three layers leave again");
	is_int(glake_kv_spill(kv, slot, stream), 0, "and then all of it");
	is_int(glake_kv_layer_wait(kv, slot, 0, 2, stream), -EBUSY,
		"which comes as a whole");
	is_int(glake_kv_layer_grow(kv, slot, 0, 2, TOKENS, stream), -EBUSY,
		"or not at all");
	is_int(glake_kv_fetch(kv, slot, stream), 0, "it does");
	settle();
	for (uint32_t i = 0; i < LAYERS; i++)
		wrong += wrong_in(kv, slot, i);
	is_int((int64_t)wrong, 0, "as it was");
	is_int(glake_kv_layer_done(kv, slot, 2, 2, stream), 0, "a layer leaves");
	is_int(glake_kv_trim(kv, slot, 100, stream), 0, "it is cut meanwhile");
	is_int(glake_kv_layer_wait(kv, slot, 2, 2, stream), 0, "and has what is left");
	is_int(glake_kv_grow(kv, slot, 100, stream), 0, "there");
	settle();
	is_int(*at(kv, 2, slot, 99), mark(2, slot) & 0xff, "to its last token");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

static uint64_t calls(enum glake_call call)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	if (glake_driver_stats_get(ctx, &stats))
		tap_bail(record().text);
	return stats.calls[call];
}

/* Four lanes come back at once: what that answers, and the calls that map them. */
#define FEW 4

static int have_all(const char *fault, uint64_t *ret_maps)
{
	struct glake_kv_options few = options;
	struct glk_context *context;
	struct glake_kv *kv;
	size_t wrong = 0;
	uint64_t before;
	uint32_t slot;
	int err;

	few.lanes = FEW;
	begin_with("soft.memory=400MiB", "driver.fault=off");
	kv = make(&few);
	if (glake_kv_new(kv, TOKENS, stream, &slot) || glk_context_get(ctx, &context) ||
		glake_kv_layer_grow(kv, slot, 0, FEW, TOKENS, stream))
		tap_bail(record().text);
	for (uint32_t lane = 0; lane < FEW; lane++)
		if (glake_soft_fill(ctx, stream, at(kv, lane, slot, TOKENS - 1),
			    mark(lane, slot), ROW / 4))
			tap_bail(record().text);
	if (glake_kv_layer_done(kv, slot, 0, FEW, stream))
		tap_bail(record().text);
	settle();
	if (glake_trim(ctx, 0, 0, NULL) || glk_fault_set(context->drv, fault))
		tap_bail(record().text);
	before = calls(GLAKE_CALL_MAP);
	err = glake_kv_layer_wait(kv, slot, 0, FEW, stream);
	*ret_maps = calls(GLAKE_CALL_MAP) - before;
	is_int(glake_kv_layer_wait(kv, slot, 0, FEW, stream), 0, "all are here then");
	settle();
	for (uint32_t lane = 0; lane < FEW; lane++)
		wrong += at(kv, lane, slot, TOKENS - 1)[ROW - 1] !=
			(mark(lane, slot) & 0xff);
	is_int((int64_t)wrong, 0, "as they were written");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
	return err;
}

/* A mapping waits for the copies before it, so none is made behind one. */
static void maps_first(void)
{
	uint64_t maps;

	is_int(have_all("off", &maps), 0, "all of them in one call");
	is_int((int64_t)maps, FEW * (int64_t)(LANE / PAGE),
		"each of their pages is mapped");
	is_int(have_all("copy:nth=1:err=EIO", &maps), -EIO, "the first copy back fails");
	is_int((int64_t)maps, FEW * (int64_t)(LANE / PAGE), "with all pages mapped");
}

static void refuses(void)
{
	struct glake_kv_options front = options;
	struct glake_kv *kv, *beside;
	uint32_t slot;

	begin("soft.memory=38MiB");
	kv = make(&options);
	is_int(glake_kv_layer_grow(kv, 0, 0, 2, 1, stream), -EINVAL, "no sequence");
	is_int(glake_kv_layer_done(kv, 9, 0, 2, stream), -EINVAL, "no slot");
	is_int(glake_kv_new(kv, 2000, stream, &slot), 0, "a sequence");
	is_int(glake_kv_layer_grow(kv, slot, 0, 0, 1, stream), -EINVAL, "no lanes");
	is_int(glake_kv_layer_grow(kv, slot, LANES, 1, 1, stream), -EINVAL,
		"none of those");
	is_int(glake_kv_layer_done(kv, slot, 15, 2, stream), -EINVAL, "nor so many");
	is_int(glake_kv_layer_wait(kv, slot, 1, UINT32_MAX, stream), -EINVAL, "nor more");
	is_int(glake_kv_layer_grow(kv, slot, 0, 2, 2001, stream), -ERANGE,
		"too many tokens");
	is_int(glake_kv_layer_grow(NULL, slot, 0, 2, 1, stream), -EINVAL, "no cache");
	is_int(glake_kv_layer_done(NULL, slot, 0, 2, stream), -EINVAL, "nor then");
	is_int(glake_kv_layer_wait(NULL, slot, 0, 2, stream), -EINVAL, "nor then");
	is_int(glake_kv_layer_done(kv, slot, 0, LANES, stream), 0,
		"what has no memory is done");
	is_int(glake_kv_layer_grow(kv, slot, 0, 2, 1, stream), 0, "and not away");
	is_int(glake_kv_layer_grow(kv, slot, 2, LANES - 2, 2000, stream), -ENOMEM,
		"no room for all of them");
	is_int((int64_t)told(kv).held, 2 * PAGE, "changes nothing");
	is_int(glake_kv_limit_set(kv, 4 * PAGE), 0, "a limit");
	is_int(glake_kv_layer_grow(kv, slot, 2, 4, 1, stream), -EDQUOT, "holds here too");
	is_int(glake_suspend(ctx, 0, NULL), 0, "suspended");
	is_int(glake_kv_layer_grow(kv, slot, 2, 2, 1, stream), -EAGAIN, "nothing is had");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	front.flags = GLAKE_KV_TOKEN_FRONT;
	beside = make(&front);
	is_int(glake_kv_new(beside, 100, stream, &slot), 0, "tokens in front");
	is_int(glake_kv_layer_grow(beside, slot, 0, 2, 1, stream), -EOPNOTSUPP,
		"have no layers");
	is_int(glake_kv_close(beside, stream), 0, "these end");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

int main(void)
{
	tap_plan_later();
	with_two_layers(0);
	with_two_layers(GLAKE_KV_LARGE);
	with_room();
	maps_first();
	refuses();
	return tap_done();
}
