/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rows by index: they are those of the tokens, wherever these lie, and what is queued later waits for the kernel that
 * reads them.
 */
#include "kv_parts.h"

#include "tier/tier.h"

#include <time.h>

#define TOKENS 6000
#define ROW    1008 /* such that rows lie in two places of the table, and on two pages */
#define LANES  3
#define COUNT  200

static struct glake_kv_lane lanes[LANES] = {
	{.bytes = ROW}, {.bytes = ROW}, {.bytes = 4096, .rule = GLAKE_KV_STATE}};

static const struct glake_kv_options options = {.sz = sizeof(options),
	.slots = 4,
	.tokens = TOKENS,
	.lanes = LANES,
	.lane = lanes,
	.prefixes = 1};

static uint32_t indices[COUNT];
static unsigned char rows[COUNT * 4096] __attribute__((aligned(16)));

/* The row of a token, which is equal in no two of those near it, nor in two lanes or sequences. */
static const unsigned char *row_of(uint32_t lane, uint32_t serial, uint32_t token)
{
	static unsigned char ramp[256 + ROW];

	for (uint32_t i = 0; !ramp[1] && i < sizeof(ramp); i++)
		ramp[sizeof(ramp) - 1 - i] = (unsigned char)(sizeof(ramp) - 1 - i);
	return ramp + (token * 7 + token / 256 + lane * 101 + serial * 53) % 256;
}

/* Tokens of both lanes, by a copy in the order of the stream. */
static void write_tokens(
	struct glake_kv *kv, uint32_t slot, uint32_t serial, uint32_t size)
{
	static unsigned char row[TOKENS][ROW];

	for (uint32_t lane = 0; lane < 2; lane++) {
		for (uint32_t t = 0; t < size; t++)
			memcpy(row[t], row_of(lane, serial, t), ROW);
		if (glake_soft_copy(
			    ctx, stream, at(kv, lane, slot, 0), row, (size_t)size * ROW))
			tap_bail(record().text);
		settle();
	}
}

static void draw(uint32_t below, uint64_t seed)
{
	for (uint32_t i = 0; i < COUNT; i++)
		indices[i] = (uint32_t)seed_below(&seed, below);
	/* on both sides of a place of 256 KiB, and of a page */
	indices[0] = (256 << 10) / ROW;
	indices[1] = (2 << 20) / ROW;
	indices[2] = UINT32_MAX;
	indices[3] = TOKENS + 100000;
}

/* Rows that are none of their tokens; of those below `first` and from `end` on all is zero. */
static uint32_t wrong(uint32_t lane, uint32_t serial, uint32_t first, uint32_t end)
{
	static const unsigned char none[ROW];
	uint32_t bad = 0;

	for (uint32_t r = 0; r < COUNT; r++) {
		uint32_t t = indices[r];

		bad += memcmp(rows + r * ROW,
			       t >= first && t < end ? row_of(lane, serial, t) : none,
			       ROW) != 0;
	}
	return bad;
}

static int gathered(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t serial,
	uint32_t first, uint32_t end)
{
	memset(rows, 0xaa, sizeof(rows));
	if (glake_kv_gather(kv, slot, lane, indices, COUNT, rows, stream))
		tap_bail(record().text);
	settle();
	return (int)wrong(lane, serial, first, end);
}

static void wherever_they_lie(void)
{
	struct glake_kv *kv;
	uint32_t slot, other, tokens;

	begin("soft.memory=200MiB");
	kv = make(&options);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), 0, "of all tokens");
	write_tokens(kv, slot, 1, TOKENS);
	draw(TOKENS, 5);
	is_int(gathered(kv, slot, 0, 1, 0, TOKENS), 0, "rows of the GPU");
	is_int(glake_kv_layer_done(kv, slot, 0, 1, stream), 0, "a lane leaves");
	is_int(gathered(kv, slot, 0, 1, 0, TOKENS), 0, "its rows are the same");
	is_int(gathered(kv, slot, 1, 1, 0, TOKENS), 0, "as those of the one that stays");
	is_int((int64_t)figures().away, 3 * (int64_t)PAGE, "and it has not moved");
	is_int(glake_kv_layer_wait(kv, slot, 0, 1, stream), 0, "it is back");
	is_int(glake_kv_publish(kv, slot, TOKENS, "k", 1, stream), 0, "a prefix of it");
	is_int(glake_kv_new(kv, TOKENS, stream, &other), 0, "another one");
	is_int(glake_kv_adopt(kv, other, "k", 1, stream, &tokens), 0, "adopts it");
	is_int(glake_kv_spill(kv, slot, stream), 0, "the first goes");
	is_int(glake_kv_spill(kv, other, stream), 0, "so does the other");
	is_int(gathered(kv, slot, 0, 1, 0, TOKENS), 0, "rows of shared pages and others");
	is_int(glake_kv_prefix_spill(kv, 0, "k", 1, stream), 0, "and so do the pages");
	is_int(gathered(kv, slot, 1, 1, 0, TOKENS), 0, "rows of one are the same");
	is_int(gathered(kv, other, 1, 1, 0, TOKENS), 0, "and of the other");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* Of a content a part comes back, and a gathered row lies in what is left. */
static void parts_of_a_content(void)
{
	struct glake_kv *kv;
	uint32_t slot;

	begin("soft.memory=200MiB");
	kv = make(&options);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), 0, "of all tokens");
	write_tokens(kv, slot, 4, TOKENS);
	is_int(glake_kv_layer_done(kv, slot, 0, 2, stream), 0, "goes");
	is_int(glake_kv_trim(kv, slot, 2000, stream), 0, "is cut there to a page");
	draw(TOKENS, 6);
	/* of the row on both pages half is left */
	for (uint32_t i = 0; i < COUNT; i++)
		indices[i] -= indices[i] == 2 * MIB / ROW;
	is_int(gathered(kv, slot, 1, 4, 0, 2 * MIB / ROW), 0,
		"rows of what is left, and zeroes");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

static void in_front_of_a_window(void)
{
	struct glake_kv_lane window = {
		.bytes = ROW, .rule = GLAKE_KV_WINDOW, .window = 2000};
	struct glake_kv_options o = options;
	struct glake_kv *kv;
	uint32_t slot, first;

	begin("soft.memory=200MiB");
	o.lanes = 1;
	o.lane = &window;
	kv = make(&o);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), 0, "with a window");
	/* tokens of which a byte lies in the first page are told apart by none of these */
	first = (uint32_t)(2 * MIB / ROW) + 1;
	for (uint32_t i = 0; i < COUNT; i++)
		indices[i] = i % 2 ? first - 10 - i : TOKENS - 1 - i;
	if (glake_soft_fill(ctx, stream, at(kv, 0, slot, first), 0x5a5a5a5a,
		    (TOKENS - first) * ROW / 4))
		tap_bail(record().text);
	memset(rows, 0xaa, sizeof(rows));
	is_int(glake_kv_gather(kv, slot, 0, indices, COUNT, rows, stream), 0, "rows");
	settle();
	is_int(rows[0], 0x5a, "of the window");
	is_int(rows[ROW], 0, "and zeroes in front of it");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

static void tokens_in_front(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 2,
		.tokens = 2000,
		.lanes = 6,
		.lane_bytes = ROW,
		.flags = GLAKE_KV_TOKEN_FRONT};
	struct glake_kv *kv;
	uint32_t slot, bad = 0;

	begin("soft.memory=200MiB");
	kv = make(&o);
	is_int(glake_kv_new(kv, 2000, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, 2000, stream), 0, "of tokens beside each other");
	for (uint32_t t = 0; t < 2000; t++) {
		unsigned char *row = at(kv, 3, slot, t);

		if (glake_soft_fill(ctx, stream, row, t * 0x10001, ROW / 4))
			tap_bail(record().text);
	}
	is_int(glake_kv_spill(kv, slot, stream), 0, "goes");
	for (uint32_t i = 0; i < COUNT; i++)
		indices[i] = (i * 677) % 2000;
	is_int(glake_kv_gather(kv, slot, 3, indices, COUNT, rows, stream), 0, "rows");
	settle();
	for (uint32_t i = 0; i < COUNT; i++) {
		uint32_t word[ROW / 4];

		memcpy(word, rows + i * ROW, ROW);
		for (uint32_t w = 0; w < ROW / 4; w++)
			bad += word[w] != indices[i] * 0x10001;
	}
	is_int((int)bad, 0, "of one lane of them");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* The memory of the host that a kernel is to read is not another's before it has. */
static void orders_what_comes_later(void)
{
	struct CUstream_st *beside;
	struct glake_kv *kv;
	uint32_t slot;
	void *other;

	begin_with("soft.memory=200MiB", "soft.streams=stepped");
	if (glake_stream_new(ctx, 0, &beside))
		tap_bail(record().text);
	kv = make(&options);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), 0, "of all tokens");
	is_int(glake_alloc(ctx, 0, 3 * PAGE, beside, 0, &other), 0,
		"and a block that another stream has");
	is_int(glake_soft_fill(ctx, beside, other, 0x77777777, 3 * PAGE / 4), 0,
		"with words");
	write_tokens(kv, slot, 2, TOKENS);
	draw(TOKENS, 7);
	is_int(glake_kv_layer_done(kv, slot, 0, 1, stream), 0, "a lane leaves");
	is_int(glake_kv_gather(kv, slot, 0, indices, COUNT, rows, stream), 0,
		"its rows are asked for");
	is_int(glake_kv_trim(kv, slot, 0, stream), 0, "it goes from there");
	is_int(glake_spill(ctx, other, beside), 0, "and the block takes its place");
	is_int(kv->cache->drv->ops->stream_sync(
		       kv->cache->drv, 0, kv->cache->mover.out_channel.main),
		0, "which has run");
	is_int((int)wrong(0, 2, 0, TOKENS), 0, "not before the rows were read");
	is_int(glake_free(ctx, other, beside), 0, "the block goes");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	glake_stream_free(ctx, 0, beside);
	finish();
}

/* More calls than there are tables. */
static void many_at_once(void)
{
	struct glake_kv *kv;
	uint32_t slot, bad = 0;

	begin_with("soft.memory=200MiB", "soft.streams=stepped");
	kv = make(&options);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), 0, "of all tokens");
	write_tokens(kv, slot, 1, TOKENS);
	draw(TOKENS, 8);
	/* such that each table is that of the other lane the next time */
	for (uint32_t i = 0; i < 3 * GLK_KV_TABLES; i++) {
		bad += glake_kv_gather(kv, slot, i % 3 == 0, indices + i, 1,
			       rows + i * ROW, stream) != 0;
		bad += (i % 2 ? glake_kv_layer_wait(kv, slot, 0, 1, stream)
			      : glake_kv_layer_done(kv, slot, 0, 1, stream)) != 0;
	}
	is_int((int)bad, 0, "a lane goes and comes between rows of it");
	is_int(glake_kv_close(kv, stream), 0, "the cache ends before they are read");
	settle();
	for (uint32_t r = 4; r < 3 * GLK_KV_TABLES; r++)
		bad += memcmp(rows + r * ROW, row_of(r % 3 == 0, 1, indices[r]), ROW) !=
			0;
	is_int((int)bad, 0, "each row is what it was");
	finish();
}

/* Until so many bytes are compressed; a minute at the most. */
static bool rest(struct glk_cache *cache, uint64_t bytes)
{
	uint64_t packed = 0, held;

	for (int i = 0; i < 60000 && packed < bytes; i++) {
		glk_lock(&cache->lock);
		glk_pack_figures(&cache->mover, &packed, &held);
		glk_unlock(&cache->lock);
		nanosleep(&(struct timespec){.tv_nsec = packed < bytes ? 1000000 : 0},
			NULL);
	}
	return packed >= bytes;
}

static void compressed(void)
{
	struct glake_kv *kv;
	uint32_t slot;

	begin_with("tier.compress=lz4", "tier.compress_rest=0s");
	kv = make(&options);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), 0, "of all tokens");
	write_tokens(kv, slot, 1, TOKENS);
	is_int(glake_kv_layer_done(kv, slot, 1, 1, stream), 0, "a lane leaves");
	ok(rest(kv->cache, 3 * PAGE), "and is compressed");
	draw(TOKENS, 10);
	is_int(gathered(kv, slot, 1, 1, 0, TOKENS), 0, "its rows are the same");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* Whether the rows of a lane lie in the store as they are. */
static bool shows(const struct glk_store *store, uint32_t lane)
{
	bool found = false;

	for (uint32_t i = 0; i < store->pieces; i++)
		found |= store->piece[i].base &&
			memmem(store->piece[i].base, GLK_STORE_PIECE, row_of(lane, 1, 5),
				ROW);
	return found;
}

static void encrypted(const char *setting)
{
	struct glk_store *store;
	struct glake_kv *kv;
	uint32_t slot;

	begin_with("security.level=3", setting);
	kv = make(&options);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), 0, "of all tokens");
	write_tokens(kv, slot, 1, TOKENS);
	settle();
	is_int(glake_kv_layer_done(kv, slot, 1, 1, stream), 0, "a lane leaves");
	store = &kv->cache->mover.store;
	ok(store->used && !shows(store, 1), "and does not show where it lies");
	draw(TOKENS, 10);
	is_int(gathered(kv, slot, 1, 1, 0, TOKENS), 0, "its rows are the same");
	ok(!shows(store, 1), "and do not show when they were read");
	is_int(gathered(kv, slot, 1, 1, 0, TOKENS), 0, "nor do they change by that");
	glk_soft_hold(kv->cache->drv, 0, stream, true);
	is_int(glake_kv_gather(kv, slot, 1, indices, COUNT, rows, stream), -EBUSY,
		"rows that cannot be waited for are refused");
	glk_soft_hold(kv->cache->drv, 0, stream, false);
	settle();
	tap_expect_log(tap.logs - tap.expected);
	is_int(gathered(kv, slot, 1, 1, 0, TOKENS), 0, "  and are the same then");
	is_int(glake_kv_layer_wait(kv, slot, 1, 1, stream), 0, "the lane comes back");
	is_int(gathered(kv, slot, 1, 1, 0, TOKENS), 0, "as it was");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* What the first call makes and cannot have: it is told, nothing is left of it, and the next one tries again. */
static void fails(const char *fault, int want)
{
	struct glake_kv *kv;
	uint32_t slot;

	begin_with("soft.memory=200MiB", fault);
	kv = make(&options);
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, TOKENS, stream), 0, "of all tokens");
	write_tokens(kv, slot, 1, TOKENS);
	draw(TOKENS, 9);
	is_int(glake_kv_gather(kv, slot, 0, indices, COUNT, rows, stream), want, fault);
	is_int(gathered(kv, slot, 0, 1, 0, TOKENS), 0, "then there are rows");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

static void refuses(void)
{
	struct glake_kv_options single = options, odd = options;
	struct glake_kv *kv, *beside;
	uint32_t slot, graph;

	begin("soft.memory=200MiB");
	kv = make(&options);
	is_int(glake_kv_gather(NULL, 0, 0, indices, 1, rows, stream), -EINVAL,
		"no cache");
	is_int(glake_kv_gather(kv, 0, 0, indices, 1, rows, stream), -EINVAL,
		"no sequence");
	is_int(glake_kv_gather(kv, 99, 0, indices, 1, rows, stream), -EINVAL, "no slot");
	is_int(glake_kv_new(kv, TOKENS, stream, &slot), 0, "a sequence");
	is_int(glake_kv_gather(kv, slot, 0, indices, 1, rows, stream), -ERANGE,
		"without memory");
	is_int(glake_kv_grow(kv, slot, 1, stream), 0, "it has some");
	is_int(glake_kv_gather(kv, slot, LANES, indices, 1, rows, stream), -EINVAL,
		"no lane");
	is_int(glake_kv_gather(kv, slot, 2, indices, 1, rows, stream), -EINVAL,
		"a state");
	is_int(glake_kv_gather(kv, slot, 0, NULL, 1, rows, stream), -EINVAL,
		"no indices");
	is_int(glake_kv_gather(kv, slot, 0, indices, 1, NULL, stream), -EINVAL,
		"no place");
	is_int(glake_kv_gather(kv, slot, 0, indices, 1, rows + 8, stream), -EINVAL,
		"an odd place");
	is_int(glake_kv_gather(
		       kv, slot, 0, (uint32_t *)(void *)(rows + 2), 1, rows, stream),
		-EINVAL, "odd indices");
	is_int(glake_kv_gather(kv, slot, 0, indices, 0, rows, stream), 0,
		"no rows are none");
	is_int(glake_soft_capture_begin(ctx, 0, stream), 0, "a capture");
	is_int(glake_kv_gather(kv, slot, 0, indices, 1, rows, stream), -EBUSY,
		"is refused");
	is_int(record().error_class, GLAKE_ERROR_CAPTURE, "and told");
	is_int(glake_soft_capture_end(ctx, 0, stream, &graph), 0, "it ends");
	is_int(glake_soft_graph_free(ctx, graph), 0, "with nothing in it");
	is_int(glake_suspend(ctx, 0, NULL), 0, "suspended");
	is_int(glake_kv_gather(kv, slot, 0, indices, 1, rows, stream), -EAGAIN,
		"nothing is read");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	odd.lanes = 1;
	odd.lane = NULL;
	odd.lane_bytes = 24;
	beside = make(&odd);
	is_int(glake_kv_new(beside, 9, stream, &slot), 0, "rows of 24 bytes");
	is_int(glake_kv_gather(beside, slot, 0, indices, 1, rows, stream), -EINVAL,
		"are none");
	is_int(glake_kv_close(beside, stream), 0, "these end");
	single.flags = GLAKE_KV_SINGLE;
	single.prefixes = 0;
	beside = make(&single);
	is_int(glake_kv_new(beside, 9, stream, &slot), 0, "single handles");
	is_int(glake_kv_gather(beside, slot, 0, indices, 1, rows, stream), -EOPNOTSUPP,
		"have no host");
	is_int(glake_kv_close(beside, stream), 0, "these end");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

int main(void)
{
	tap_plan_later();
	wherever_they_lie();
	parts_of_a_content();
	in_front_of_a_window();
	tokens_in_front();
	orders_what_comes_later();
	many_at_once();
	if (glk_pack_able())
		tap_skip("rows of what is compressed", "there is no lz4");
	else
		compressed();
	if (glk_cipher_able()) {
		tap_skip("rows of what is encrypted", "there is no libsodium");
	} else {
		encrypted("soft.memory=200MiB");
		encrypted("soft.streams=stepped");
	}
	fails("driver.fault=host_lock:nth=1:err=ENOMEM", -ENOMEM);
	fails("driver.fault=module_load:nth=1:err=EOPNOTSUPP", -EOPNOTSUPP);
	fails("driver.fault=kernel_find:nth=1:err=EIO", -EIO);
	fails("driver.fault=launch:nth=1:err=EIO", -EIO);
	refuses();
	return tap_done();
}
