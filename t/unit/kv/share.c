/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sequences of a KV cache that begin alike: forks, and prefixes under a key. */
#include "kv_parts.h"

#include <pthread.h>

static const struct glake_kv_options layers = {.sz = sizeof(layers),
	.slots = 8,
	.tokens = 4096,
	.lanes = 4,
	.lane_bytes = 2048,
	.prefixes = 3};

/* Fills tokens of all lanes. */
static void fill(struct glake_kv *kv, uint32_t lanes, uint32_t slot, uint32_t from,
	uint32_t to, int value)
{
	for (uint32_t lane = 0; lane < lanes; lane++) {
		for (uint32_t t = from; t < to; t++)
			memset(at(kv, lane, slot, t), value, 2048);
	}
}

static bool has(struct glake_kv *kv, uint32_t lanes, uint32_t slot, uint32_t from,
	uint32_t to, int value)
{
	for (uint32_t lane = 0; lane < lanes; lane++) {
		for (uint32_t t = from; t < to; t++) {
			if (at(kv, lane, slot, t)[2047] != value)
				return false;
		}
	}
	return true;
}

/* Two go on from one beginning, each by itself. */
static void forks(void)
{
	struct glake_kv *kv;
	uint32_t one, two, three, unused;
	struct glake_kv_sequence q = {.sz = sizeof(q)};

	begin("soft.memory=1GiB");
	kv = make(&layers);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 2500, stream), 0, "  of 2500 tokens");
	fill(kv, 4, one, 0, 2500, 1);
	is_int(glake_kv_fork(kv, one, 2500, 4000, stream, &two), 0, "is forked");
	settle();
	ok(has(kv, 4, two, 0, 2500, 1), "the other one has them");
	/* pages of 1024 tokens: two are whole */
	is_int((int64_t)told(kv).held, (12 + 4) * 2 << 20, "what is whole exists once");
	is_int((int64_t)told(kv).shared, 8 * 2 << 20, "  and is told");
	is_int((int64_t)figures().elastic_shared, 8 * 2 << 20, "  by the GPU too");
	is_int(glake_kv_grow(kv, two, 2600, stream), 0, "it grows");
	is_int(glake_kv_grow(kv, one, 2600, stream), 0, "and so does the first");
	fill(kv, 4, two, 2500, 2600, 2);
	fill(kv, 4, one, 2500, 2600, 3);
	ok(has(kv, 4, one, 0, 2500, 1) && has(kv, 4, one, 2500, 2600, 3) &&
			has(kv, 4, two, 0, 2500, 1) && has(kv, 4, two, 2500, 2600, 2),
		"each by itself");
	is_int(glake_kv_trim(kv, two, 2100, stream), 0, "one is cut");
	is_int(glake_kv_trim(kv, two, 1500, stream), -EBUSY,
		"but not in what they share");
	is_int(glake_kv_trim(kv, one, 100, stream), -EBUSY, "on neither side");
	is_int(glake_kv_fork(kv, two, 1500, 1600, stream, &three), 0, "a fork does that");
	settle();
	ok(has(kv, 4, three, 0, 1500, 1), "with what was there");
	is_int(glake_kv_grow(kv, three, 1600, stream), 0, "and grows");
	fill(kv, 4, three, 1500, 1600, 4);
	ok(has(kv, 4, one, 1500, 1600, 1), "by itself");
	is_int(glake_kv_trim(kv, two, 1024, stream), 0, "at a page it is cut");
	is_int(glake_kv_grow(kv, two, 1100, stream), 0, "and grows");
	fill(kv, 4, two, 1024, 1100, 5);
	ok(has(kv, 4, one, 1024, 1100, 1), "by itself");
	is_int(glake_kv_free(kv, one, stream), 0, "the first ends");
	ok(has(kv, 4, two, 0, 1024, 1) && has(kv, 4, three, 0, 1500, 1),
		"the others have it all");
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "another one in its slot");
	is_int(one, 0, "  which is the first");
	is_int(glake_kv_grow(kv, one, 3000, stream), 0, "grows");
	fill(kv, 4, one, 0, 3000, 6);
	ok(has(kv, 4, two, 0, 1024, 1) && has(kv, 4, three, 0, 1500, 1), "  by itself");
	glake_kv_sequence_get(kv, three, &q);
	ok(q.tokens == 1600 && q.most == 1600 && q.held == 8 * PAGE, "all is described");
	is_int(glake_kv_fork(kv, 7, 1, 1, stream, &unused), -EINVAL, "of no sequence");
	is_int(glake_kv_fork(kv, one, 0, 1, stream, &unused), -ERANGE, "no tokens");
	is_int(glake_kv_fork(kv, one, 3001, 3001, stream, &unused), -ERANGE, "too many");
	is_int(glake_kv_fork(kv, one, 10, 9, stream, &unused), -ERANGE,
		"more than its most");
	is_int(glake_kv_fork(kv, one, 10, 5000, stream, &unused), -ERANGE,
		"more than there are");
	is_int(glake_kv_fork(kv, one, 10, 10, stream, NULL), -EINVAL, "no place");
	for (int i = 0; i < 5; i++)
		is_int(glake_kv_fork(kv, one, 2048, 4096, stream, &unused), 0, "a fork");
	is_int(glake_kv_fork(kv, one, 2048, 4096, stream, &unused), -EBUSY, "no slot");
	is_int((int64_t)told(kv).forks, 7, "they are counted");
	for (uint32_t slot = 0; slot < 8; slot++)
		is_int(glake_kv_free(kv, slot, stream), 0, "each ends");
	ok(!told(kv).held && !told(kv).shared, "nothing is held");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	is_int((int64_t)figures().live, 0, "nothing is live");
	finish();
}

/* A prefix stays when its sequence has ended, for those of its domain. */
static void publishes(void)
{
	static unsigned char key[GLAKE_KV_KEY_MAX + 1] = {1, 2, 3};
	struct glake_kv_options few = layers;
	struct glake_kv *kv;
	uint32_t one, two, other, tokens = 99;

	begin("soft.memory=1GiB");
	kv = make(&layers);
	is_int(glake_kv_new_in(kv, 4096, 5, stream, &one), 0, "a sequence in a domain");
	is_int(glake_kv_publish(kv, one, 1, key, 3, stream), -ERANGE, "without tokens");
	is_int(glake_kv_grow(kv, one, 2100, stream), 0, "it grows");
	fill(kv, 4, one, 0, 2100, 1);
	is_int(glake_kv_publish(kv, one, 2048, key, 0, stream), -EINVAL, "no key");
	is_int(glake_kv_publish(kv, one, 2048, NULL, 3, stream), -EINVAL, "none at all");
	is_int(glake_kv_publish(kv, one, 2048, key, 65, stream), -EINVAL, "a long one");
	is_int(glake_kv_publish(kv, 6, 2048, key, 3, stream), -EINVAL, "no sequence");
	is_int(glake_kv_publish(kv, one, 2048, key, 3, stream), 0, "published");
	is_int((int64_t)told(kv).held, 12 * 2 << 20, "which takes no memory");
	is_int(glake_kv_publish(kv, one, 1024, key, 3, stream), -EEXIST, "once");
	is_int(glake_kv_publish(kv, one, 2100, key, 4, stream), 0, "under another key");
	is_int((int64_t)told(kv).held, 16 * 2 << 20, "with a copy of its ends");
	is_int(told(kv).prefixes, 2, "two are published");
	is_int(glake_kv_free(kv, one, stream), 0, "the sequence ends");
	is_int((int64_t)told(kv).held, 12 * 2 << 20, "what is published stays");
	is_int(told(kv).sequences, 0, "and is no sequence");
	is_int(glake_kv_new(kv, 4096, stream, &other), 0, "one of another domain");
	is_int(glake_kv_adopt(kv, other, key, 3, stream, &tokens), -ENOENT, "has none");
	is_int(glake_kv_new_in(kv, 4096, 5, stream, &one), 0, "one of that domain");
	is_int(glake_kv_new_in(kv, 2048, 5, stream, &two), 0, "another one");
	is_int(glake_kv_adopt(kv, one, key, 5, stream, &tokens), -ENOENT, "no such key");
	is_int(glake_kv_adopt(kv, one, key, 0, stream, &tokens), -EINVAL, "no key");
	is_int(glake_kv_adopt(kv, one, key, 3, stream, NULL), -EINVAL, "no place");
	is_int(glake_kv_adopt(kv, two, key, 4, stream, &tokens), -ERANGE,
		"more than it may have");
	is_int(tokens, 99, "nothing was written");
	is_int(glake_kv_adopt(kv, two, key, 3, stream, &tokens), 0, "has it");
	is_int(tokens, 2048, "all of it");
	is_int(glake_kv_adopt(kv, two, key, 3, stream, &tokens), -EBUSY, "once");
	is_int(glake_kv_adopt(kv, one, key, 4, stream, &tokens), 0, "the longer one");
	is_int(tokens, 2100, "is longer");
	settle();
	ok(has(kv, 4, one, 0, 2100, 1) && has(kv, 4, two, 0, 2048, 1),
		"and both have what was written");
	is_int(glake_kv_grow(kv, one, 2200, stream), 0, "it grows");
	fill(kv, 4, one, 2100, 2200, 2);
	is_int(glake_kv_withdraw(kv, 0, key, 3, stream), -ENOENT, "not of that domain");
	is_int(glake_kv_withdraw(kv, 5, key, 3, stream), 0, "withdrawn");
	is_int(glake_kv_withdraw(kv, 5, key, 3, stream), -ENOENT, "once");
	is_int(glake_kv_withdraw(kv, 5, key, 99, stream), -EINVAL, "no key");
	ok(has(kv, 4, two, 0, 2048, 1), "who has it keeps it");
	is_int(glake_kv_publish(kv, one, 100, key, 3, stream), 0, "the key is free");
	is_int(glake_kv_publish(kv, one, 100, key, 7, stream), 0, "a third");
	is_int(glake_kv_publish(kv, one, 100, key, 8, stream), -EBUSY, "and no more");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	is_int((int64_t)figures().live, 0, "nothing is live");
	few.prefixes = 0;
	kv = make(&few);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a cache without any");
	is_int(glake_kv_grow(kv, one, 10, stream), 0, "has sequences");
	is_int(glake_kv_publish(kv, one, 10, key, 3, stream), -EBUSY, "and no prefixes");
	is_int(glake_kv_adopt(kv, one, key, 3, stream, &tokens), -EBUSY, "nor");
	is_int(glake_kv_withdraw(kv, 0, key, 3, stream), -ENOENT, "any to withdraw");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* What is published in one cache is nothing in another, of the same shape or not. */
static void of_another(void)
{
	struct glake_kv_options o = layers;
	struct glake_kv *kv, *same, *other;
	uint32_t one, two, three, tokens = 99;

	begin("soft.memory=1GiB");
	kv = make(&layers);
	same = make(&layers);
	o.lanes = 2;
	other = make(&o);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 2048, stream), 0, "grows");
	is_int(glake_kv_publish(kv, one, 2048, "k", 1, stream), 0, "and is published");
	is_int(glake_kv_new(same, 4096, stream, &two), 0, "one of another cache");
	is_int(glake_kv_new(other, 4096, stream, &three), 0, "one of another shape");
	is_int(glake_kv_adopt(same, two, "k", 1, stream, &tokens), -ENOENT, "has none");
	is_int(glake_kv_adopt(other, three, "k", 1, stream, &tokens), -ENOENT,
		"nor that");
	is_int(glake_kv_fork(same, 1, 10, 20, stream, &two), -EINVAL, "nor one to fork");
	is_int(glake_kv_withdraw(same, 0, "k", 1, stream), -ENOENT, "nor to withdraw");
	is_int(glake_kv_publish(same, two, 1, "k", 1, stream), -ERANGE, "nor tokens");
	ok(tokens == 99 && !told(same).held && !told(other).held, "nothing is written");
	is_int(glake_kv_close(same, stream), 0, "one ends");
	is_int(glake_kv_close(other, stream), 0, "the other");
	is_int(glake_kv_close(kv, stream), 0, "and the third");
	finish();
}

/* States are copied, and windows shared from where they begin. */
static void states_and_windows(void)
{
	const struct glake_kv_lane lanes[] = {{.bytes = 2048},
		{.bytes = 2048, .rule = GLAKE_KV_WINDOW, .window = 1024},
		{.bytes = 3 * MIB, .rule = GLAKE_KV_STATE}};
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 4,
		.tokens = 16384,
		.lanes = 3,
		.lane = lanes,
		.prefixes = 2};
	uint32_t one, two, three, tokens;
	struct glake_kv *kv;

	begin("soft.memory=1GiB");
	kv = make(&o);
	is_int(glake_kv_new(kv, 16384, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 5000, stream), 0, "of 5000 tokens");
	fill(kv, 1, one, 0, 5000, 1);
	for (uint32_t t = 3976; t < 5000; t++)
		memset(at(kv, 1, one, t), 2, 2048);
	memset(at(kv, 2, one, 0), 3, 3 * MIB);
	is_int(glake_kv_fork(kv, one, 4000, 16384, stream, &two), -ERANGE,
		"a state is of all tokens");
	is_int(glake_kv_fork(kv, one, 5000, 16384, stream, &two), 0, "a fork");
	settle();
	ok(has(kv, 1, two, 0, 5000, 1) && at(kv, 1, two, 3976)[2047] == 2 &&
			at(kv, 1, two, 4999)[2047] == 2 &&
			at(kv, 2, two, 0)[3 * MIB - 1] == 3,
		"has all of it");
	/* 4 whole pages of the first lane and one of the window are shared */
	is_int((int64_t)told(kv).shared, 5 * 2 << 20, "and shares what is whole");
	memset(at(kv, 2, two, 0), 4, 3 * MIB);
	is_int(at(kv, 2, one, 0)[0], 3, "the state is its own");
	is_int(glake_kv_grow(kv, two, 9000, stream), 0, "it grows");
	is_int((int64_t)told(kv).shared, 4 * 2 << 20, "and its window goes on");
	is_int(glake_kv_publish(kv, two, 9000, "a", 1, stream), 0, "published");
	is_int(glake_kv_new(kv, 16384, stream, &three), 0, "another one");
	is_int(glake_kv_adopt(kv, three, "a", 1, stream, &tokens), 0, "has that");
	settle();
	is_int(at(kv, 2, three, 0)[3 * MIB - 1], 4, "with its state");
	is_int(glake_kv_free(kv, two, stream), 0, "one ends");
	is_int(glake_kv_grow(kv, three, 9100, stream), 0, "the other one goes on");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* What there is no room for, or the driver does not do, is not shared. */
static void all_or_nothing(void)
{
	struct glake_kv_options o = layers;
	uint32_t one, two = 99;
	struct glake_kv *kv;

	o.limit = 14 * PAGE;
	begin("soft.memory=1GiB");
	kv = make(&o);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 2500, stream), 0, "of 12 pages of 14");
	fill(kv, 4, one, 0, 2500, 1);
	is_int(glake_kv_fork(kv, one, 2500, 4096, stream, &two), -EDQUOT,
		"no room for 4");
	ok(two == 99 && told(kv).sequences == 1 && told(kv).held == 12 * PAGE &&
			!told(kv).shared,
		"changes nothing");
	is_int(glake_kv_fork(kv, one, 2048, 4096, stream, &two), 0,
		"whole pages need none");
	is_int(glake_kv_free(kv, two, stream), 0, "it ends");
	is_int(glake_kv_limit_set(kv, 0), 0, "no limit");
	is_int(glake_suspend(ctx, 0, NULL), 0, "suspended");
	is_int(glake_kv_fork(kv, one, 2048, 4096, stream, &two), -EAGAIN,
		"nothing is shared");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	is_int(glake_spill(ctx, told(kv).base, stream), 0, "what is not shared is away");
	is_int(glake_kv_fork(kv, one, 2500, 4096, stream, &two), -EBUSY,
		"so that there is nothing to copy");
	is_int((int64_t)told(kv).held, 12 * 2 << 20, "  which changes nothing");
	is_int(glake_kv_fork(kv, one, 2048, 4096, stream, &two), 0,
		"what is shared is here");
	is_int(glake_fetch(ctx, told(kv).base, stream), 0, "it comes back");
	is_int(glake_kv_fork(kv, one, 2500, 4096, stream, &two), 0, "and all is there");
	settle();
	ok(has(kv, 4, two, 0, 2500, 1), "  as it was");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* A sequence goes to the host, what it shares stays, and nothing of it is used meanwhile. */
static void goes_away(void)
{
	struct glake_kv_sequence q = {.sz = sizeof(q)};
	uint32_t one, two, unused, lengths[8] = {0};
	struct glake_kv *kv;

	begin("soft.memory=38MiB");
	kv = make(&layers);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 2500, stream), 0, "of 12 pages");
	fill(kv, 4, one, 0, 2500, 1);
	is_int(glake_kv_fork(kv, one, 2500, 4096, stream, &two), 0, "is forked");
	settle();
	is_int(glake_kv_spill(kv, 7, stream), -EINVAL, "none in that slot");
	is_int(glake_kv_spill(kv, 99, stream), -EINVAL, "no such slot");
	is_int(glake_kv_fetch(kv, one, stream), 0, "it is there");
	is_int(glake_kv_spill(kv, one, stream), 0, "it goes");
	is_int(glake_kv_spill(kv, one, stream), 0, "and has gone");
	is_int((int64_t)figures().away, 4 * 2 << 20, "all that is its own");
	glake_kv_sequence_get(kv, one, &q);
	ok(q.away == 1 && q.tokens == 2500 && q.ready == 0, "which is told");
	is_int(glake_kv_grow(kv, one, 2500, stream), -EBUSY, "it is not used");
	lengths[0] = 2500;
	lengths[1] = 2600;
	is_int(glake_kv_step(kv, lengths, stream), -EBUSY, "nor with others");
	lengths[0] = 0;
	is_int(glake_kv_step(kv, lengths, stream), 0, "which go on without it");
	is_int(glake_kv_fork(kv, one, 10, 4096, stream, &unused), -EBUSY, "nor forked");
	is_int(glake_kv_publish(kv, one, 10, "k", 1, stream), -EBUSY, "nor published");
	is_int(glake_kv_grow(kv, two, 4096, stream), 0, "others have its memory");
	is_int(glake_kv_fetch(kv, one, stream), -ENOMEM, "so that it does not come");
	is_int(glake_kv_grow(kv, one, 2500, stream), -EBUSY, "and is away still");
	is_int(glake_kv_trim(kv, two, 2600, stream), 0, "they give it back");
	is_int(glake_kv_fetch(kv, one, stream), 0, "it comes");
	is_int(glake_kv_grow(kv, one, 2501, stream), 0, "and grows");
	ok(has(kv, 4, one, 0, 2500, 1) && has(kv, 4, two, 0, 2500, 1), "all is there");
	is_int(glake_kv_spill(kv, one, stream), 0, "it goes");
	is_int(glake_kv_free(kv, one, stream), 0, "and ends there");
	is_int((int64_t)figures().away, 0, "nothing of it is left");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	is_int((int64_t)figures().live, 0, "nothing is live");
	finish();
}

/* A prefix goes to the host with all that has its pages, and comes back to each of them. */
static void prefix_goes_away(void)
{
	struct glake_kv *kv;
	uint32_t one, two, three, tokens = 0;

	begin("soft.memory=64MiB");
	kv = make(&layers);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 2500, stream), 0, "of 12 pages");
	fill(kv, 4, one, 0, 2500, 1);
	is_int(glake_kv_publish(kv, one, 2500, "long", 4, stream), 0, "published");
	is_int(glake_kv_publish(kv, one, 1500, "short", 5, stream), 0, "in part too");
	settle();
	is_int(glake_kv_prefix_spill(kv, 0, "none", 4, stream), -ENOENT,
		"no such prefix");
	is_int(glake_kv_prefix_fetch(kv, 0, "none", 4, stream), -ENOENT, "nor to fetch");
	is_int(glake_kv_prefix_spill(kv, 1, "long", 4, stream), -ENOENT, "nor there");
	is_int(glake_kv_prefix_spill(kv, 0, "long", 0, stream), -EINVAL, "no key");
	is_int(glake_kv_prefix_spill(kv, 0, NULL, 4, stream), -EINVAL, "none at all");
	is_int(glake_kv_prefix_spill(NULL, 0, "long", 4, stream), -EINVAL, "no cache");
	is_int(glake_kv_prefix_spill(kv, 0, "long", 4, stream), -EBUSY, "it is read");
	is_int((int64_t)figures().away, 0, "and stays");
	is_int(glake_kv_prefix_fetch(kv, 0, "long", 4, stream), 0, "and is there");
	is_int(glake_kv_spill(kv, one, stream), 0, "its reader goes");
	is_int((int64_t)figures().away, 4 * 2 << 20, "with what is its own");
	is_int(glake_kv_prefix_spill(kv, 0, "long", 4, stream), 0, "then it goes");
	is_int(glake_kv_prefix_spill(kv, 0, "long", 4, stream), 0, "and has gone");
	/* the sequence: 4 + 8, the prefix: 8 + 4, of which 8 exist once */
	is_int((int64_t)told(kv).prefixes_away, 1, "which is told");
	is_int(told(kv).away, 1, "  of both");
	is_int((int64_t)figures().away, (12 + 12) * 2 << 20, "with all that they share");
	ok(has(kv, 4, 9, 0, 1024, 1), "a prefix that has a page of it keeps that");
	is_int(glake_kv_new(kv, 4096, stream, &two), 0, "another sequence");
	is_int(glake_kv_adopt(kv, two, "long", 4, stream, &tokens), -EBUSY,
		"does not have it");
	is_int(glake_kv_adopt(kv, two, "short", 5, stream, &tokens), 0, "but the other");
	is_int(glake_kv_grow(kv, two, 3000, stream), 0, "and the memory");
	is_int(glake_kv_prefix_spill(kv, 0, "long", 4, stream), -EBUSY,
		"and reads a page of it");
	is_int(glake_suspend(ctx, 0, NULL), 0, "the GPU is suspended");
	is_int(glake_resume(ctx, 0, NULL), 0, "and resumed");
	is_int((int64_t)figures().away, 24 * 2 << 20, "without what was away");
	is_int(glake_kv_free(kv, two, stream), 0, "the other one ends");
	is_int(glake_kv_fetch(kv, one, stream), 0, "the reader comes");
	ok(has(kv, 4, one, 0, 2500, 1), "with all of it");
	is_int(glake_kv_prefix_fetch(kv, 0, "long", 4, stream), 0, "and the prefix");
	settle();
	is_int((int64_t)figures().away, 0, "nothing is away");
	ok(has(kv, 4, 8, 0, 2500, 1) && told(kv).shared == (8 + 4) * PAGE &&
			told(kv).held == (12 + 4 + 4) * PAGE,
		"they have one memory again");
	is_int(glake_kv_new(kv, 4096, stream, &three), 0, "a third one");
	is_int(glake_kv_adopt(kv, three, "long", 4, stream, &tokens), 0, "has it");
	settle();
	ok(has(kv, 4, three, 0, 2500, 1), "all of it");
	is_int(glake_kv_free(kv, one, stream), 0, "one ends");
	is_int(glake_kv_spill(kv, three, stream), 0, "the other goes");
	is_int(glake_kv_prefix_spill(kv, 0, "long", 4, stream), 0, "as the prefix does");
	is_int(glake_kv_prefix_spill(kv, 0, "short", 5, stream), 0, "and the short one");
	is_int((int64_t)figures().elastic, (8 + 4 + 4 + 4) * 2 << 20,
		"what is committed is the same");
	is_int(glake_kv_withdraw(kv, 0, "long", 4, stream), 0, "it is withdrawn there");
	is_int(told(kv).prefixes_away, 1, "and gone");
	is_int(glake_kv_fetch(kv, three, stream), 0, "who has it comes");
	ok(has(kv, 4, three, 0, 2500, 1), "with all of it");
	is_int(glake_kv_publish(kv, three, 2048, "long", 4, stream), 0, "the place is");
	is_int(told(kv).prefixes_away, 1, "one that is here");
	is_int(glake_kv_free(kv, three, stream), 0, "it ends");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	is_int((int64_t)figures().live, 0, "nothing is live");
	finish();
}

static int asked;

static size_t count_asked(
	void *user, int device, size_t want, struct CUstream_st *on, int64_t deadline_ns)
{
	(void)user, (void)device, (void)want, (void)on, (void)deadline_ns;
	asked++;
	return 0;
}

/* A page is shared 1024 times, and no room that the program makes changes that. */
static void is_shared_often(void)
{
	const struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 1026,
		.tokens = 16384,
		.lanes = 1,
		.lane_bytes = 2048};
	uint32_t one, two, other;
	struct glake_kv *kv;
	int done = 0;

	begin("soft.memory=16MiB");
	kv = make(&o);
	is_int(glake_kv_new(kv, 16384, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 1024, stream), 0, "of a page");
	is_int(glake_kv_new(kv, 16384, stream, &two), 0, "another one");
	while (done < 1023 && !glake_kv_fork(kv, one, 1024, 1024, stream, &other))
		done++;
	is_int(done, 1023, "the first is at 1024 places");
	is_int(glake_shortage_set(ctx, count_asked, NULL), 0, "who makes room");
	is_int(glake_kv_grow(kv, two, 8192, stream), -ENOMEM, "there is none");
	is_int(asked, 1, "  who was asked");
	is_int(glake_kv_fork(kv, one, 1024, 1024, stream, &other), -ENOMEM,
		"nor a place more");
	is_int(asked, 1, "  for which nobody is asked");
	glake_shortage_set(ctx, NULL, NULL);
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* A driver that fails in the middle of a fork, twice one after the other: nothing is left of it. */
static void undoes(void)
{
	int failed = 0;

	for (int nth = 1; nth < 16; nth++) {
		char rule[64];
		const char *const settings[] = {"soft.memory=256MiB", rule, NULL};
		struct glake_options options = {.sz = sizeof(options),
			.backend = GLAKE_BACKEND_SOFT,
			.no_conf_file = 1,
			.settings = settings};
		uint32_t one, two;
		struct glake_kv *kv;
		int err;

		snprintf(rule, sizeof(rule),
			"driver.fault=stream_facts:from=%d:len=2:err=EIO", nth);
		if (glake_open(&options, &ctx) || glake_stream_new(ctx, 0, &stream))
			tap_bail(record().text);
		if (!glake_kv_open(ctx, 0, &layers, stream, &kv)) {
			err = glake_kv_new(kv, 4096, stream, &one);
			err = err ? err : glake_kv_grow(kv, one, 2500, stream);
			err = err ? 0 : glake_kv_fork(kv, one, 2500, 4096, stream, &two);
			failed += err != 0;
			if (err &&
				(told(kv).held != 12 * PAGE || told(kv).shared ||
					figures().elastic != 12 * PAGE))
				ok(false, "call %d: %zu held, %zu shared, %zu committed",
					nth, (size_t)told(kv).held,
					(size_t)told(kv).shared,
					(size_t)figures().elastic);
			while (glake_kv_close(kv, stream))
				;
		}
		glake_stream_free(ctx, 0, stream);
		sound_close(ctx, NULL);
	}
	ok(failed > 0, "forks that fail change nothing");
}

/* ---- Threads ---- */

#define WORKERS 4

struct worker {
	struct glake_kv *kv;
	uint64_t seed;
	int number;
	const char *torn; /* what went wrong */
};

/* A sequence that begins with the first tokens of what all have, which it goes on from by itself. */
static const char *goes_on(struct worker *w, uint32_t slot, uint32_t tokens)
{
	uint32_t more = tokens + (uint32_t)seed_below(&w->seed, 1500);
	int err = glake_kv_grow(w->kv, slot, more, stream);

	if (err)
		return err == -ENOMEM ? NULL : "grow";
	settle();
	if (!has(w->kv, 2, slot, 0, tokens, 1))
		return "contents";
	fill(w->kv, 2, slot, tokens, more, 2 + w->number);
	return has(w->kv, 2, slot, tokens, more, 2 + w->number) ? NULL : "its own";
}

static const char *turn(struct worker *w)
{
	unsigned char key[2] = {'k', (unsigned char)w->number};
	uint32_t slot, other, tokens = 0;
	const char *torn;
	int err = glake_kv_new(w->kv, 4096, stream, &slot);

	if (err)
		return err == -EBUSY ? NULL : "new";
	err = glake_kv_adopt(w->kv, slot, "all", 3, stream, &tokens);
	torn = err ? "adopt" : tokens != 2500 ? "tokens" : goes_on(w, slot, tokens);
	if (torn)
		return torn;
	tokens = 1 + (uint32_t)seed_below(&w->seed, 2500);
	err = glake_kv_fork(w->kv, slot, tokens, 4096, stream, &other);
	if (err && err != -EBUSY && err != -ENOMEM)
		return "fork";
	if (!err && seed_below(&w->seed, 2))
		torn = glake_kv_free(w->kv, slot, stream) ? "free" : NULL;
	else if (!err)
		torn = glake_kv_publish(w->kv, slot, tokens, key, 2, stream) ? "publish"
			: glake_kv_free(w->kv, slot, stream)		     ? "free"
			: glake_kv_withdraw(w->kv, 0, key, 2, stream)	     ? "withdraw"
									     : NULL;
	else
		return glake_kv_free(w->kv, slot, stream) ? "free" : NULL;
	torn = torn ? torn : goes_on(w, other, tokens);
	if (!torn && !seed_below(&w->seed, 4) && glake_trim(ctx, 0, 0, NULL))
		torn = "trim";
	return torn ? torn : glake_kv_free(w->kv, other, stream) ? "free" : NULL;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < STORM_SIZE(100) && !w->torn; i++)
		w->torn = turn(w);
	return NULL;
}

/* Threads that adopt one prefix, fork what they have of it, publish, grow and end. */
static void by_threads(uint64_t seed)
{
	struct glake_kv_options o = layers;
	struct worker workers[WORKERS];
	pthread_t threads[WORKERS];
	struct glake_kv *kv;
	uint32_t slot;

	o.lanes = 2;
	o.slots = 7;
	o.prefixes = 1 + WORKERS;
	begin("soft.memory=256MiB");
	kv = make(&o);
	if (glake_kv_new(kv, 2500, stream, &slot) ||
		glake_kv_grow(kv, slot, 2500, stream))
		tap_bail(record().text);
	fill(kv, 2, slot, 0, 2500, 1);
	if (glake_kv_publish(kv, slot, 2500, "all", 3, stream) ||
		glake_kv_free(kv, slot, stream))
		tap_bail(record().text);
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){
			.kv = kv, .number = i, .seed = seed_thread(seed, (unsigned)i)};
		if (pthread_create(&threads[i], NULL, work, &workers[i]))
			tap_bail("no thread");
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(threads[i], NULL);
		ok(!workers[i].torn, "thread %d: %s", i,
			workers[i].torn ? workers[i].torn : "all is its own");
	}
	is_int(told(kv).sequences, 0, "no sequence is left");
	is_int((int64_t)told(kv).held, 2 * 3 * 2 << 20, "but the prefix");
	is_int((int64_t)told(kv).shared, 0, "  which nobody shares");
	is_int((int64_t)figures().elastic, 2 * 3 * 2 << 20, "  and the GPU says so");
	is_int(glake_kv_withdraw(kv, 0, "all", 3, stream), 0, "it goes");
	is_int((int64_t)told(kv).held, 0, "nothing is held");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

struct mover {
	struct glake_kv *kv;
	uint32_t slot;
	bool torn;
};

static void *goes_and_comes(void *arg)
{
	struct mover *m = arg;

	for (int i = 0; i < 60; i++)
		m->torn |= glake_kv_spill(m->kv, m->slot, stream) != 0 ||
			glake_kv_fetch(m->kv, m->slot, stream) != 0;
	return NULL;
}

/* A sequence that is on its way, or away, is not forked, and a fork has all of it. */
static void on_its_way(void)
{
	struct mover m = {.torn = false};
	uint32_t other;
	pthread_t thread;
	bool torn = false;
	int forked = 0, refused = 0, err;

	begin("soft.memory=256MiB");
	m.kv = make(&layers);
	if (glake_kv_new(m.kv, 4096, stream, &m.slot) ||
		glake_kv_grow(m.kv, m.slot, 2500, stream))
		tap_bail(record().text);
	fill(m.kv, 4, m.slot, 0, 2500, 1);
	if (pthread_create(&thread, NULL, goes_and_comes, &m))
		tap_bail("no thread");
	for (int i = 0; i < 40 && !torn; i++) {
		err = glake_kv_fork(m.kv, m.slot, 2500, 4096, stream, &other);
		refused += err == -EBUSY;
		forked += !err;
		torn |= err && err != -EBUSY;
		if (err)
			continue;
		settle();
		torn |= !has(m.kv, 4, other, 0, 2500, 1) ||
			glake_kv_free(m.kv, other, stream);
	}
	pthread_join(thread, NULL);
	ok(!torn && !m.torn && forked + refused > 0,
		"%d forks of one that goes and comes, %d refused", forked, refused);
	ok(has(m.kv, 4, m.slot, 0, 2500, 1), "which has what it had");
	is_int(glake_kv_close(m.kv, stream), 0, "all ends");
	finish();
}

int main(void)
{
	tap_plan_later();
	forks();
	by_threads(seed_start());
	on_its_way();
	if (tap_one_thread_takes_long())
		return tap_done();
	publishes();
	of_another();
	states_and_windows();
	all_or_nothing();
	goes_away();
	prefix_goes_away();
	is_shared_often();
	undoes();
	return tap_done();
}
