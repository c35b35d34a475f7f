/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * KV caches through the public functions, over the software device, whose memory faults where nothing is committed. A
 * model knows how many tokens each sequence has, what was written of them, and which pages that makes.
 */
#include "kv_parts.h"

#include <pthread.h>
#include <sched.h>

/* One sequence from its first token to its end, and the next one of its slot. */
static void grows(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 4,
		.tokens = 4096,
		.lanes = 8,
		.lane_bytes = 2048};
	struct glake_kv_sequence q = {.sz = sizeof(q)};
	struct glake_kv *kv;
	uint64_t bytes = 0, calls;
	uint32_t slot = 99, other;
	struct glake_driver_stats driver = {.sz = sizeof(driver)};

	begin("soft.memory=1GiB");
	is_int(glake_kv_bytes(&o, 1500, &bytes), 0, "what a sequence will take");
	is_int((int64_t)bytes, 8 * 4 << 20, "  is whole pages of each lane");
	kv = make(&o);
	is_int((int64_t)figures().live, 0, "a new cache has no memory");
	is_int(glake_kv_new(kv, 4096, stream, &slot), 0, "a sequence");
	is_int(slot, 0, "  in the first slot");
	is_int(glake_kv_grow(kv, slot, 100, stream), 0, "a prompt");
	for (uint32_t lane = 0; lane < 8; lane++)
		memset(at(kv, lane, slot, 0), (int)lane + 1, 100 * 2048);
	is_int((int64_t)told(kv).held, 8 * 2 << 20, "  has a page a lane");
	for (uint32_t n = 101; n <= 1500; n++) {
		if (glake_kv_grow(kv, slot, n, stream))
			tap_bail(record().text);
		*at(kv, n % 8, slot, n - 1) = (unsigned char)n;
	}
	is_int((int64_t)told(kv).held, (int64_t)bytes, "1400 tokens later as was told");
	is_int((int64_t)told(kv).extends, 2, "  had in two calls");
	is_int((int64_t)figures().live, (int64_t)bytes, "  which count as live");
	ok(*at(kv, 3, slot, 99) == 4 && *at(kv, 1201 % 8, slot, 1200) == (1201 & 255),
		"and all is there");
	glake_kv_sequence_get(kv, slot, &q);
	ok(q.tokens == 1500 && q.ready == 2048 && q.most == 4096 && q.held == bytes,
		"the sequence is described");
	is_int(glake_kv_trim(kv, slot, 1024, stream), 0, "it is cut");
	is_int((int64_t)told(kv).held, (int64_t)bytes / 2, "  and half of it goes");
	is_int(glake_kv_free(kv, slot, stream), 0, "it ends");
	is_int((int64_t)told(kv).held, 0, "  with all of it");
	glake_driver_stats_get(ctx, &driver);
	calls = driver.calls[GLAKE_CALL_MAP] + driver.calls[GLAKE_CALL_CREATE] +
		driver.calls[GLAKE_CALL_SET_ACCESS];
	is_int(glake_kv_new(kv, 4096, stream, &other), 0, "the next one");
	is_int(glake_kv_grow(kv, other, 1500, stream), 0, "  finds it there");
	glake_driver_stats_get(ctx, &driver);
	is_int((int64_t)(driver.calls[GLAKE_CALL_MAP] + driver.calls[GLAKE_CALL_CREATE] +
		       driver.calls[GLAKE_CALL_SET_ACCESS] - calls),
		0, "  without a call of the driver");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	is_int((int64_t)figures().live, 0, "nothing is live");
	finish();
}

/* All lanes of a token beside each other: a page a sequence. */
static void token_in_front(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 64,
		.tokens = 4096,
		.lanes = 64,
		.lane_bytes = 2048,
		.flags = GLAKE_KV_TOKEN_FRONT};
	uint32_t lengths[64], slot;
	struct glake_kv *kv;
	uint64_t bytes = 0;

	begin("soft.memory=64GiB");
	kv = make(&o);
	for (uint32_t i = 0; i < 64; i++)
		is_int(glake_kv_new(kv, 4096, stream, &slot), 0, "a sequence");
	for (uint32_t n = 32; n <= 512; n += 16) {
		for (uint32_t i = 0; i < 64; i++)
			lengths[i] = n + i % 5;
		if (glake_kv_step(kv, lengths, stream))
			tap_bail(record().text);
	}
	bytes = told(kv).needed;
	is_int((int64_t)bytes, (64 * 512 + 12 * 10 + 0 + 1 + 2 + 3) * 64LL * 2048,
		"bytes of all tokens");
	ok(told(kv).held - bytes <= 64 * PAGE, "at most a page a sequence more is held");
	ok(at(kv, 1, 0, 0) == at(kv, 0, 0, 0) + 2048 &&
			at(kv, 0, 0, 1) == at(kv, 0, 0, 0) + (ptrdiff_t)64 * 2048,
		"lanes of a token lie beside each other");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* Windows lose what lies in front of them, states stay as they are. */
static void windows_and_states(void)
{
	const struct glake_kv_lane lanes[] = {{.bytes = 2048},
		{.bytes = 2048, .rule = GLAKE_KV_WINDOW, .window = 1024},
		{.bytes = 3 * MIB, .rule = GLAKE_KV_STATE}};
	struct glake_kv_options o = {
		.sz = sizeof(o), .slots = 2, .tokens = 16384, .lanes = 3, .lane = lanes};
	struct glake_kv *kv;
	uint32_t slot;

	begin("soft.memory=1GiB");
	kv = make(&o);
	is_int(glake_kv_new(kv, 16384, stream, &slot), 0, "a sequence");
	is_int((int64_t)told(kv).held, 4 << 20, "has its state");
	memset(at(kv, 2, slot, 0), 9, 3 * MIB);
	for (uint32_t n = 1; n <= 9000; n++) {
		if (glake_kv_grow(kv, slot, n, stream))
			tap_bail(record().text);
		*at(kv, 0, slot, n - 1) = (unsigned char)n;
		*at(kv, 1, slot, n - 1) = (unsigned char)n;
	}
	/* 9 pages of all tokens, those from 7976 on, and the state */
	is_int((int64_t)told(kv).held, (9 + 2 + 2) * 2 << 20,
		"a window has the pages of its tokens");
	ok(*at(kv, 1, slot, 7976) == (7977 & 255) && *at(kv, 2, slot, 0) == 9 &&
			*at(kv, 0, slot, 0) == 1,
		"and all is there");
	is_int(glake_kv_trim(kv, slot, 8500, stream), 0, "it is cut");
	is_int(glake_kv_trim(kv, slot, 4000, stream), -ERANGE,
		"but not to a window that went");
	is_int(glake_kv_grow(kv, slot, 8600, stream), 0, "and grows");
	is_int(glake_kv_trim(kv, slot, 0, stream), 0, "all tokens go");
	is_int((int64_t)told(kv).held, 4 << 20, "  but for its state");
	is_int(glake_kv_grow(kv, slot, 8600, stream), 0, "and it grows again");
	memset(at(kv, 0, slot, 0), 1, 8600 * 2048);
	memset(at(kv, 1, slot, 7600), 1, 1000 * 2048);
	is_int(glake_kv_free(kv, slot, stream), 0, "it ends");
	is_int((int64_t)told(kv).held, 0, "with all of it");
	is_int(glake_kv_new(kv, 16384, stream, &slot), 0, "another one");
	is_int(glake_kv_grow(kv, slot, 5000, stream), 0, "that begins with many tokens");
	is_int((int64_t)told(kv).held, (5 + 2 + 2) * 2 << 20,
		"has no more of its window");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

static void refuses(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 2,
		.tokens = 4096,
		.lanes = 4,
		.lane_bytes = 2048};
	struct glake_kv_options wrong = {.sz = sizeof(wrong)};
	struct glake_kv_place place = {.sz = sizeof(place)};
	struct glake_kv_sequence q = {.sz = sizeof(q)};
	struct glake_kv *kv = NULL, *none = NULL;
	uint32_t slot, other, third, lengths[2] = {0, 0};
	uint64_t bytes;

	begin("soft.memory=64MiB");
	is_int(glake_kv_open(ctx, 0, NULL, stream, &kv), -EINVAL, "no options");
	is_int(glake_kv_open(ctx, 0, &wrong, stream, &kv), -EINVAL, "empty ones");
	is_int(glake_kv_open(ctx, 7, &o, stream, &kv), -EINVAL, "no such GPU");
	is_int(glake_kv_open(ctx, 0, &o, stream, NULL), -EINVAL, "no place");
	wrong = o;
	wrong.slots = 65536;
	wrong.tokens = 1 << 20;
	is_int(glake_kv_open(ctx, 0, &wrong, stream, &kv), -ENOMEM, "too large");
	is_int(record().error_class, GLAKE_ERROR_ADDRESS, "  of addresses");
	is_int(glake_kv_bytes(&o, 4097, &bytes), -EINVAL, "more tokens than there are");
	is_int(glake_kv_bytes(&o, 1, NULL), -EINVAL, "no place");
	kv = make(&o);
	is_int(glake_kv_place_get(kv, 4, &place), -EINVAL, "no such lane");
	is_int(glake_kv_place_get(kv, 0, NULL), -EINVAL, "no place");
	is_int(glake_kv_new(kv, 0, stream, &slot), -EINVAL, "no tokens");
	is_int(glake_kv_new(kv, 4097, stream, &slot), -ERANGE, "too many");
	is_int(glake_kv_new(kv, 10, stream, NULL), -EINVAL, "no place");
	is_int(glake_kv_grow(kv, 0, 1, stream), -EINVAL, "no sequence");
	is_int(glake_kv_grow(kv, 99, 1, stream), -EINVAL, "no slot");
	is_int(glake_kv_new(kv, 2000, stream, &slot), 0, "a sequence");
	is_int(glake_kv_new(kv, 4096, stream, &other), 0, "another one");
	is_int(glake_kv_new(kv, 4096, stream, &third), -EBUSY, "no slot is left");
	is_int(glake_kv_grow(kv, slot, 2001, stream), -ERANGE, "more than it may have");
	is_int(glake_kv_grow(kv, slot, 1, NULL), 0, "on another stream");
	is_int(glake_kv_trim(kv, slot, 2, stream), -ERANGE, "cut to more than it has");
	is_int(glake_kv_step(kv, NULL, stream), -EINVAL, "no lengths");
	lengths[0] = 2001;
	is_int(glake_kv_step(kv, lengths, stream), -ERANGE, "one is too long");
	lengths[0] = 1500;
	lengths[1] = 4096;
	/* 32 MiB and 16 of 64 */
	is_int(glake_kv_step(kv, lengths, stream), 0, "both grow");
	is_int((int64_t)told(kv).held, 48 << 20, "  to what they need");
	is_int(glake_kv_limit_set(kv, 48 << 20), 0, "the limit is reached");
	is_int(glake_kv_trim(kv, other, 1024, stream), 0, "a part goes");
	is_int(glake_kv_grow(kv, other, 4096, stream), 0, "and comes");
	is_int(glake_kv_limit_set(kv, 40 << 20), 0, "the limit falls");
	is_int(glake_kv_trim(kv, other, 3072, stream), 0, "a part goes");
	is_int(glake_kv_grow(kv, other, 4096, stream), -EDQUOT, "and does not come back");
	glake_kv_sequence_get(kv, other, &q);
	is_int(q.tokens, 3072, "  which changes nothing");
	is_int(glake_kv_limit_set(kv, 0), 0, "no limit");
	is_int(glake_kv_free(kv, other, stream), 0, "one ends");
	is_int(glake_kv_free(kv, other, stream), -EINVAL, "once");
	is_int(glake_kv_sequence_get(kv, other, &q), -EINVAL, "and is not known");
	is_int(glake_kv_sequence_get(kv, slot, NULL), -EINVAL, "no place");
	is_int(glake_kv_figures_get(kv, NULL), -EINVAL, "likewise");
	is_int(glake_kv_grow(none, 0, 1, stream), -EINVAL, "no cache");
	is_int(glake_kv_close(none, stream), 0, "is nothing to close");
	is_int((int64_t)told(kv).refused, 1, "what was refused memory is counted");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	kv = make(&o);
	is_int(glake_kv_new(kv, 10, stream, &slot), 0, "a sequence");
	glake_stream_free(ctx, 0, stream);
	is_int(glake_close(ctx, NULL), 0, "the context is closed");
	is_int(glake_kv_grow(kv, slot, 1, NULL), -ESTALE, "it is none any more");
	is_int(told(kv).sequences, 1, "but describes what it had");
	is_int(glake_kv_new(kv, 10, NULL, &slot), -ESTALE, "likewise");
	is_int(glake_kv_close(kv, NULL), 0, "and ends");
}

/* What has no room for all lanes has none of them. */
static void all_or_nothing(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 4,
		.tokens = 8192,
		.lanes = 8,
		.lane_bytes = 2048};
	struct glake_kv_sequence q = {.sz = sizeof(q)};
	uint32_t slot[2], lengths[4] = {2048, 2048, 0, 0};
	struct glake_kv *kv;

	begin("soft.memory=50MiB");
	kv = make(&o);
	for (int i = 0; i < 2; i++) {
		is_int(glake_kv_new(kv, 8192, stream, &slot[i]), 0, "a sequence");
		is_int(glake_kv_grow(kv, slot[i], 1000, stream), 0,
			"  has a page a lane");
	}
	memset(at(kv, 5, 1, 0), 6, 2048);
	is_int(glake_kv_step(kv, lengths, stream), -ENOMEM, "no room for both");
	is_int((int64_t)told(kv).held, 32 << 20, "  and neither has more");
	is_int((int64_t)figures().live, 32 << 20, "  of memory");
	glake_kv_sequence_get(kv, slot[0], &q);
	is_int(q.tokens, 1000, "  or of tokens");
	lengths[1] = 0;
	is_int(glake_kv_step(kv, lengths, stream), 0, "room for one");
	is_int(glake_kv_free(kv, slot[0], stream), 0, "which ends");
	is_int(glake_kv_grow(kv, slot[1], 2048, stream), 0, "so the other one has it");
	ok(*at(kv, 5, 1, 0) == 6, "and what was there");
	is_int(glake_suspend(ctx, 0, NULL), 0, "suspended");
	is_int(glake_kv_grow(kv, slot[1], 2047, stream), 0, "nothing is needed");
	is_int(glake_kv_grow(kv, slot[1], 2049, stream), -EAGAIN, "a page is");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	ok(*at(kv, 5, 1, 0) == 6, "what was there is");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

static struct {
	struct glake_kv *kv;
	uint32_t slot;
	int calls, answer;
} short_of;

static size_t end_a_sequence(
	void *user, int device, size_t want, struct CUstream_st *on, int64_t deadline_ns)
{
	(void)user, (void)device, (void)want, (void)deadline_ns;
	short_of.calls++;
	short_of.answer = glake_kv_free(short_of.kv, short_of.slot, on);
	return short_of.answer ? 0 : 16 << 20;
}

/* The program is asked for room with nothing of the cache in hand, so that it may end a sequence; the thread never asks. */
static void asks_for_room(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 4,
		.tokens = 8192,
		.lanes = 8,
		.lane_bytes = 2048};
	uint32_t slot[3], lengths[4] = {0, 0, 2048, 0};
	struct glake_kv *kv;

	begin("soft.memory=50MiB");
	kv = make(&o);
	for (int i = 0; i < 3; i++) {
		is_int(glake_kv_new(kv, 8192, stream, &slot[i]), 0, "a sequence");
		is_int(glake_kv_grow(kv, slot[i], 1000, stream), 0,
			"  has a page a lane");
	}
	short_of.kv = kv;
	short_of.slot = slot[0];
	is_int(glake_shortage_set(ctx, end_a_sequence, NULL), 0, "who makes room");
	is_int(glake_kv_step(kv, lengths, stream), 0, "a step has the room");
	ok(short_of.calls == 1 && !short_of.answer, "  that a sequence left");
	short_of.slot = slot[1];
	is_int(glake_kv_grow(kv, slot[2], 3000, stream), 0, "more of it too");
	is_int(short_of.calls, 2, "  by another one");
	is_int(glake_kv_grow(kv, slot[2], 5000, stream), -ENOMEM, "where there is none");
	is_int(short_of.calls, 3, "  it is asked once");
	is_int((int64_t)told(kv).sequences, 1, "one is left");
	glake_shortage_set(ctx, NULL, NULL);
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* A context whose streams go on when they are told to. */
static void open_stepped(const char *memory)
{
	const char *settings[] = {memory, "soft.streams=stepped", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	if (glake_open(&options, &ctx))
		tap_bail(record().text);
	stream = NULL;
}

/* A stream that comes with the handle, or the number, of one that has ended is waited for like any other. */
static void knows_streams(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 2,
		.tokens = 512,
		.lanes = 1,
		.lane_bytes = 65536};
	struct CUstream_st *one, *two;
	struct glake_kv *kv;
	uint32_t slot;
	void *other = NULL;

	open_stepped("soft.memory=64MiB");
	if (glake_stream_new(ctx, 0, &one))
		tap_bail(record().text);
	kv = make(&o);
	is_int(glake_kv_new(kv, 512, NULL, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, 500, one), 0, "used on a stream");
	glake_stream_free(ctx, 0, one);
	if (glake_stream_new(ctx, 0, &two))
		tap_bail(record().text);
	is_int(glake_kv_grow(kv, slot, 501, two), 0, "and on one that comes after it");
	is_int(glake_soft_fill(ctx, two, at(kv, 0, slot, 0), 1, 1000), 0,
		"whose work waits");
	is_int(glake_kv_free(kv, slot, NULL), 0, "it ends on a third");
	is_int(glake_alloc(ctx, 0, 60 * MIB, NULL, 0, &other), 0, "another block");
	is_int(glake_soft_fill(ctx, NULL, other, 7, 15 * MIB), 0,
		"  has its memory behind that work");
	glake_free(ctx, other, NULL);
	is_int(glake_kv_close(kv, NULL), 0, "all ends");
	glake_stream_free(ctx, 0, two);
	is_int(sound_close(ctx, NULL), 0, "closed");
}

/* A reader on a stream that nobody told of: its memory is another's while it reads, which the device judges. */
static void untold(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 2,
		.tokens = 64,
		.lanes = 1,
		.lane_bytes = 65536};
	struct CUstream_st *one, *two;
	struct glake_kv *kv;
	uint32_t slot;

	open_stepped("soft.memory=8MiB");
	if (glake_stream_new(ctx, 0, &one) || glake_stream_new(ctx, 0, &two))
		tap_bail(record().text);
	stream = one;
	kv = make(&o);
	is_int(glake_kv_new(kv, 64, one, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, 60, one), 0, "used on a stream");
	is_int(glake_soft_kernel(ctx, 0, two, at(kv, 0, slot, 0), 1000, 0), 0,
		"and read on one that nobody told of");
	is_int(glake_kv_free(kv, slot, one), 0, "it ends");
	is_int(glake_kv_new(kv, 64, one, &slot), 0, "another one");
	is_int(glake_kv_grow(kv, slot, 60, one), 0, "has its memory");
	is_int(glake_soft_fill(ctx, one, at(kv, 0, slot, 0), 1, 250), -EINVAL,
		"in a race with the reader");
	is_int(glake_kv_grow(kv, slot, 61, two), 0, "one that is told");
	is_int(glake_soft_stream_sync(ctx, 0, two), 0, "  and done");
	is_int(glake_soft_fill(ctx, one, at(kv, 0, slot, 0), 1, 250), 0, "is in no race");
	is_int(glake_kv_close(kv, one), 0, "all ends");
	glake_stream_free(ctx, 0, two);
	finish();
}

/* A GPU that is lost: what needs it says so, and all ends. */
static void lost(void)
{
	const struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 3,
		.tokens = 8192,
		.lanes = 2,
		.lane_bytes = 2048,
		.prefixes = 1};
	const char *const settings[] = {
		"soft.memory=64MiB", "driver.fault=create:nth=5:sticky=1", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	uint32_t slot, other, lengths[3] = {4096, 0, 0}, tokens;
	struct glake_piece piece;
	struct glake_kv *kv;
	size_t count;

	if (glake_open(&options, &ctx) || glake_stream_new(ctx, 0, &stream))
		tap_bail(record().text);
	kv = make(&o);
	is_int(glake_kv_new(kv, 8192, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, 1500, stream), 0, "grows");
	is_int(glake_kv_publish(kv, slot, 1024, "k", 1, stream), 0, "is published");
	is_int(glake_kv_new(kv, 8192, stream, &other), 0, "another one");
	is_int(glake_kv_grow(kv, slot, 4096, stream), -ENODEV, "does not grow");
	is_int(glake_kv_step(kv, lengths, stream), -ENODEV, "nor with others");
	ok(glake_kv_fork(kv, slot, 1500, 8192, stream, &tokens) == -ENODEV &&
			glake_kv_adopt(kv, other, "k", 1, stream, &tokens) == -ENODEV,
		"nor is anything shared");
	is_int(glake_kv_export(kv, slot, 0, 0, 10, 1, &piece, 1, &count), -ENODEV,
		"nor given");
	ok(told(kv).sequences == 2 && told(kv).length == 1500 && !told(kv).outs &&
			told(kv).held == 4 * PAGE,
		"nothing is changed by that");
	is_int(glake_kv_free(kv, slot, stream), -ENODEV, "it ends with its cache");
	is_int(glake_kv_close(kv, stream), 0, "  which ends");
	glake_stream_free(ctx, 0, stream);
	tap_expect_log(2); /* what the driver has kept */
	is_int(glake_close(ctx, NULL), -ENODEV, "closed");
}

/* ---- By chance ---- */

#define SLOTS 6

struct model {
	bool live;
	uint32_t tokens, most;
	uint32_t mark[4096];
	bool in_window[4096]; /* written in lanes that have one */
};

static uint32_t chance(uint64_t *seed, uint32_t below)
{
	return (uint32_t)seed_below(seed, below);
}

static void write_tokens(struct glake_kv *kv, const struct glake_kv_options *o,
	uint32_t slot, struct model *m, uint32_t from, uint32_t mark)
{
	for (uint32_t t = from; t < m->tokens; t++) {
		m->mark[t] = mark + t;
		m->in_window[t] = false;
		for (uint32_t lane = 0; lane < o->lanes; lane++) {
			if (o->lane[lane].rule == GLAKE_KV_STATE ||
				(o->lane[lane].rule == GLAKE_KV_WINDOW &&
					t + o->lane[lane].window < m->tokens))
				continue;
			m->in_window[t] |= o->lane[lane].rule == GLAKE_KV_WINDOW;
			memcpy(at(kv, lane, slot, t), &m->mark[t], 4);
		}
	}
}

static bool has_tokens(struct glake_kv *kv, const struct glake_kv_options *o,
	uint32_t slot, const struct model *m)
{
	for (uint32_t lane = 0; lane < o->lanes; lane++) {
		uint32_t first = 0;

		if (o->lane[lane].rule == GLAKE_KV_STATE)
			continue;
		if (o->lane[lane].rule == GLAKE_KV_WINDOW &&
			m->tokens > o->lane[lane].window)
			first = m->tokens - o->lane[lane].window;
		for (uint32_t t = first; t < m->tokens; t++) {
			if (o->lane[lane].rule == GLAKE_KV_WINDOW && !m->in_window[t])
				continue;
			if (memcmp(at(kv, lane, slot, t), &m->mark[t], 4)) {
				tap_note("token %u of %u, lane %u", t, m->tokens, lane);
				return false;
			}
		}
	}
	return true;
}

static void program(uint64_t seed)
{
	const bool front = seed % 3 == 0;
	struct glake_kv_lane lanes[5];
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = SLOTS,
		.tokens = 4096,
		.lanes = 5,
		.lane = lanes,
		.flags = front ? GLAKE_KV_TOKEN_FRONT : 0,
		.ahead = seed % 4 == 0 ? 700 : 0};
	static struct model list[SLOTS];
	uint32_t marks = 0, slot, held = 0;
	struct glake_kv *kv;
	bool good = true;
	int n = 0, err;

	memset(list, 0, sizeof(list));
	begin(seed % 2 ? "soft.memory=96MiB" : "soft.memory=1GiB");
	for (int i = 0; i < 5; i++)
		lanes[i] = (struct glake_kv_lane){.bytes = 512 + 2048 * (size_t)i,
			.rule = front	 ? GLAKE_KV_ALL
				: i == 3 ? GLAKE_KV_WINDOW
				: i == 4 ? GLAKE_KV_STATE
					 : GLAKE_KV_ALL,
			.window = !front && i == 3 ? 700 : 0};
	kv = make(&o);
	for (; n < (tap_on_valgrind() ? 40 : 120) && good; n++) {
		struct model *m;
		uint32_t want;

		slot = chance(&seed, SLOTS);
		m = &list[slot];
		if (!m->live) {
			uint32_t most = 1 + chance(&seed, 4096);

			err = glake_kv_new(kv, most, stream, &slot);
			if (!err) {
				list[slot] = (struct model){.live = true, .most = most};
				held++;
			} else {
				good = err == -ENOMEM || (err == -EBUSY && held == SLOTS);
			}
			continue;
		}
		switch (chance(&seed, 8)) {
		case 0:
			good = has_tokens(kv, &o, slot, m) &&
				!glake_kv_free(kv, slot, stream);
			m->live = false;
			held--;
			break;
		case 1:
			want = chance(&seed, m->tokens + 1);
			err = glake_kv_trim(kv, slot, want, stream);
			good = !err || err == -ERANGE;
			if (!err)
				m->tokens = want;
			break;
		case 2:
			good = !glake_suspend(ctx, 0, NULL);
			err = good ? glake_resume(ctx, 0, NULL) : 0;
			good &= !err;
			break;
		default:
			want = m->tokens + chance(&seed, chance(&seed, 3) ? 20 : 1500);
			err = glake_kv_grow(kv, slot, want, stream);
			good = want > m->most ? err == -ERANGE : !err || err == -ENOMEM;
			if (!err && want > m->tokens) {
				uint32_t from = m->tokens;

				m->tokens = want;
				marks += 5000;
				write_tokens(kv, &o, slot, m, from, marks);
			}
			good &= has_tokens(kv, &o, slot, m);
		}
		if ((!o.ahead && told(kv).held != figures().elastic) ||
			told(kv).sequences != held) {
			tap_note("%u sequences of %u, %zu bytes held, %zu committed",
				told(kv).sequences, held, (size_t)told(kv).held,
				(size_t)figures().elastic);
			good = false;
		}
	}
	for (slot = 0; slot < SLOTS; slot++)
		good &= !list[slot].live || has_tokens(kv, &o, slot, &list[slot]);
	ok(good, "a program of %d steps", n);
	if (!o.ahead)
		is_int((int64_t)figures().elastic, (int64_t)told(kv).held,
			"what is committed is what the cache says");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	is_int((int64_t)figures().live, 0, "nothing is live");
	finish();
}

/* Threads that each have a sequence, one that steps all. */
struct worker {
	struct glake_kv *kv;
	uint32_t slot;
	bool torn;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int round = 0; round < 3 && !w->torn; round++) {
		for (uint32_t n = 1; n < 3000 && !w->torn; n += 97) {
			w->torn |= glake_kv_grow(w->kv, w->slot, n, NULL) != 0;
			*at(w->kv, 1, w->slot, n - 1) = (unsigned char)n;
			w->torn |= *at(w->kv, 1, w->slot, n - 1) != (n & 255);
		}
		w->torn |= glake_kv_trim(w->kv, w->slot, 10, NULL) != 0;
	}
	return NULL;
}

static void by_threads(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 3,
		.tokens = 4096,
		.lanes = 2,
		.lane_bytes = 4096};
	struct worker workers[3];
	pthread_t threads[3];
	bool torn = false;

	begin("soft.memory=1GiB");
	workers[0].kv = make(&o);
	for (int i = 0; i < 3; i++) {
		workers[i] = (struct worker){.kv = workers[0].kv};
		if (glake_kv_new(workers[i].kv, 4096, NULL, &workers[i].slot) ||
			pthread_create(&threads[i], NULL, work, &workers[i]))
			tap_bail("no thread");
	}
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		torn |= workers[i].torn;
	}
	ok(!torn, "three threads");
	is_int((int64_t)told(workers[0].kv).held, 3 * 2 * 2 << 20, "have a page a lane");
	is_int(glake_kv_close(workers[0].kv, NULL), 0, "all ends");
	finish();
}

/* With a thread steps find what they need, as far as there is memory; it ends with the context, or the cache. */
static void met_ahead(void)
{
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 3,
		.tokens = 8192,
		.lanes = 2,
		.lane_bytes = 4096,
		.ahead = 600};
	struct glake_kv_sequence q = {.sz = sizeof(q)};
	struct glake_kv *kv, *other;
	uint32_t slot[3];

	begin("soft.memory=120MiB");
	kv = make(&o);
	other = make(&o);
	for (int i = 0; i < 3; i++) {
		if (glake_kv_new(kv, 8192, stream, &slot[i]) ||
			glake_kv_grow(kv, slot[i], 100, stream))
			tap_bail(record().text);
	}
	for (uint32_t n = 101; n <= 2000; n++) {
		for (int i = 0; i < 3; i++) {
			if (glake_kv_grow(kv, slot[i], n, stream))
				tap_bail(record().text);
			*at(kv, 1, slot[i], n - 1) = (unsigned char)(n + (uint32_t)i);
		}
		/* a turn for the thread */
		sched_yield();
	}
	ok(told(kv).pages_ahead > 0, "pages were had ahead");
	ok(told(kv).pages_ahead <= told(kv).pages, "  of all");
	for (int i = 0; i < 3; i++) {
		bool good = true;

		for (uint32_t n = 101; n <= 2000; n++)
			good &= *at(kv, 1, slot[i], n - 1) ==
				(unsigned char)(n + (uint32_t)i);
		ok(good, "all tokens are there");
	}
	glake_kv_sequence_get(kv, slot[0], &q);
	ok(q.held <= 2 * 6 * 2 << 20, "and no more than is ahead");
	is_int(glake_kv_free(kv, slot[1], stream), 0, "one ends");
	/* 120 MiB are 60 pages: two sequences of 8192 tokens want 64 */
	for (uint32_t n = 2001; n <= 4600; n++) {
		if (glake_kv_grow(kv, slot[0], n, stream) ||
			glake_kv_grow(kv, slot[2], n, stream))
			tap_bail(record().text);
	}
	is_int(glake_kv_grow(kv, slot[0], 8192, stream), 0, "what fits is had");
	is_int(glake_kv_grow(kv, slot[2], 8192, stream), -ENOMEM, "what does not is not");
	is_int(glake_kv_close(other, stream), 0, "one without a sequence ends");
	glake_kv_free(kv, slot[0], stream);
	glake_kv_free(kv, slot[2], stream);
	glake_stream_free(ctx, 0, stream);
	is_int(glake_close(ctx, NULL), 0, "the context ends first");
	is_int(glake_kv_grow(kv, slot[0], 1, NULL), -ESTALE, "  so that it is none");
	is_int(glake_kv_close(kv, NULL), 0, "  and ends");
}

int main(void)
{
	tap_plan_later();
	met_ahead();
	grows();
	by_threads();
	if (tap_one_thread_takes_long())
		return tap_done();
	token_in_front();
	windows_and_states();
	refuses();
	all_or_nothing();
	asks_for_room();
	knows_streams();
	untold();
	lost();
	for (uint64_t seed = 1; seed < 5; seed++)
		program(seed);
	return tap_done();
}
