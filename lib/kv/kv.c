/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sequences of a KV cache: see kv.h. */
#include "kv/kv.h"

#include "base/error.h"
#include "base/parse.h"
#include "base/slab.h"

#include <errno.h>
#include <inttypes.h>

#include <glake/elastic.h>

/* ---- All caches ---- */

/* Those of all contexts: there are few, and who looks at them is a person. */
static struct glk_lock listed = GLK_LOCK_INIT(GLK_RANK_KVS);
static struct glake_kv *first;

static void enlist(struct glake_kv *kv)
{
	glk_lock(&listed);
	kv->next = first;
	first = kv;
	glk_unlock(&listed);
}

static void delist(const struct glake_kv *kv)
{
	struct glake_kv **link = &first;

	glk_lock(&listed);
	while (*link != kv)
		link = &(*link)->next;
	*link = kv->next;
	glk_unlock(&listed);
}

void glk_kv_each(const struct glk_cache *cache,
	void (*fn)(struct glake_kv *kv, void *arg), void *arg)
{
	glk_lock(&listed);
	for (struct glake_kv *kv = first; kv; kv = kv->next) {
		if (kv->cache == cache)
			fn(kv, arg);
	}
	glk_unlock(&listed);
}

/* ---- A cache ---- */

static size_t runs_of(const struct glk_kv_shape *s)
{
	return (size_t)glk_kv_places(s) * s->groups;
}

static int make_tables(struct glake_kv *kv)
{
	const struct glk_kv_shape *s = &kv->shape;
	size_t slots = glk_kv_places(s) * sizeof(*kv->sequence), runs = runs_of(s);
	char *at;

	kv->tables = slots + runs * (sizeof(*kv->run) + sizeof(*kv->portion)) +
		2 * s->groups * sizeof(*kv->sharing) + s->groups * sizeof(*kv->whole) +
		s->prefixes * (sizeof(*kv->prefix) + sizeof(*kv->prefix_head));
	at = glk_region_new(kv->tables);
	if (!at)
		return -ENOMEM;
	kv->portion = (void *)at;
	at += runs * sizeof(*kv->portion);
	kv->sharing = (void *)at;
	at += 2 * s->groups * sizeof(*kv->sharing);
	kv->prefix = (void *)at;
	at += s->prefixes * sizeof(*kv->prefix);
	kv->sequence = (void *)at;
	at += slots;
	kv->run = (void *)at;
	at += runs * sizeof(*kv->run);
	kv->whole = (void *)at;
	at += s->groups * sizeof(*kv->whole);
	kv->prefix_head = (void *)at;
	for (uint32_t i = s->prefixes; i; i--) {
		kv->prefix[i - 1].next = kv->prefix_free;
		kv->prefix_free = i;
	}
	return 0;
}

static void end(struct glake_kv *kv)
{
	if (kv->portion)
		glk_region_free(kv->portion, kv->tables);
	glk_kv_shape_fini(&kv->shape);
	pthread_cond_destroy(&kv->settled);
	pthread_cond_destroy(&kv->ahead.wake);
	glk_lock_fini(&kv->lock);
	glk_region_free(kv, sizeof(*kv));
}

/* Lanes that are a block each. What an error leaves is freed by another call. */
static int free_single(struct glake_kv *kv, struct CUstream_st *stream)
{
	int err = 0;

	while (kv->blocks && !err) {
		err = glk_cache_free(kv->cache,
			kv->base + kv->shape.group[kv->blocks - 1].offset, stream);
		kv->blocks -= !err;
	}
	return err;
}

/* All memory at once: each place has all its pages, always. */
static int make_single(struct glake_kv *kv, struct CUstream_st *stream)
{
	const struct glk_kv_shape *s = &kv->shape;
	int err = 0;

	if (kv->limit && kv->limit < s->size)
		return glk_error(-EDQUOT, GLAKE_ERROR_LIMIT,
			"lanes of single handles take %s at once, and the limit is %s",
			glk_say_bytes(s->size).text, glk_say_bytes(kv->limit).text);
	for (; kv->blocks < s->groups && !err; kv->blocks += !err) {
		struct glk_kv_group *g = &s->group[kv->blocks];
		uint64_t addr = 0;

		err = glk_cache_miss(kv->cache, g->slot * glk_kv_places(s), stream,
			GLAKE_ALLOC_CONTIGUOUS, &addr);
		kv->base = kv->blocks ? kv->base : addr;
		g->offset = addr - kv->base;
	}
	if (err) {
		free_single(kv, stream);
		return err;
	}
	kv->held = s->size;
	for (uint32_t i = 0; i < glk_kv_places(s); i++) {
		for (uint32_t g = 0; g < s->groups; g++)
			*glk_kv_run_at(kv, i, g) = glk_kv_pages(s, g, 0);
	}
	return 0;
}

int glk_kv_open(struct glk_cache *cache, const struct glake_kv_options *options,
	struct CUstream_st *stream, struct glake_kv **ret_kv)
{
	struct glake_kv *kv = glk_region_new(sizeof(*kv));
	int err;

	if (!kv)
		return -ENOMEM;
	kv->cache = cache;
	kv->limit = options->limit;
	kv->memory = cache->memory;
	glk_lock_init(&kv->lock, GLK_RANK_KV);
	pthread_cond_init(&kv->settled, NULL);
	pthread_cond_init(&kv->ahead.wake, NULL);
	err = glk_kv_shape_init(
		&kv->shape, options, cache->node->page_size[GLK_CLASS_SMALL]);
	if (!err)
		err = make_tables(kv);
	if (!err && kv->shape.single)
		err = make_single(kv, stream);
	else if (!err)
		err = glk_cache_elastic(
			cache, kv->shape.size, stream, GLAKE_ALLOC_ELASTIC, &kv->base);
	if (err) {
		end(kv);
		return err;
	}
	kv->ahead.tokens = kv->shape.single ? 0 : options->ahead;
	if (kv->ahead.tokens)
		glk_kv_ahead_start(kv);
	enlist(kv);
	*ret_kv = kv;
	return 0;
}

static bool has_sealed(const struct glake_kv *kv, uint32_t slot)
{
	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		if (glk_kv_run_at(kv, slot, i)->sealed)
			return true;
	}
	return false;
}

/* What is shared goes first, page by page, between which others have the lock of the GPU: a free of the block would
 * hold it for all of them. */
static int end_shared(struct glake_kv *kv, struct CUstream_st *stream)
{
	int err = 0;

	glk_lock(&kv->lock);
	for (uint32_t i = 0; i < glk_kv_places(&kv->shape) && !err; i++) {
		if (!has_sealed(kv, i))
			continue;
		err = glk_kv_decommit(kv, glk_kv_add_spare(kv, i, 0, true), stream);
		if (!err)
			glk_kv_note_spare(kv, i, 0, true);
	}
	glk_unlock(&kv->lock);
	return err;
}

int glk_kv_close(struct glake_kv *kv, struct CUstream_st *stream, bool has_block)
{
	uint32_t ahead = kv->ahead.tokens;
	int err = 0;

	if (has_block && kv->outs)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"others have memory of the KV cache: glake_kv_export_end");
	if (has_block)
		glk_kv_gather_end(kv);
	if (has_block && kv->shape.single) {
		err = free_single(kv, stream);
	} else if (has_block) {
		glk_kv_ahead_stop(kv);
		/* a stream that captures takes the block alone */
		err = end_shared(kv, stream);
		if (err != -EINVAL)
			err = glk_cache_free(kv->cache, kv->base, stream);
	}
	if (!err) {
		delist(kv);
		end(kv);
	} else if (ahead) {
		kv->ahead.tokens = ahead;
		kv->ahead.stop = false;
		glk_kv_ahead_start(kv);
	}
	return err;
}

/* Bytes that all sequences need in a group. */
static uint64_t needed_by(
	const struct glake_kv *kv, uint32_t group, const struct glake_kv_figures *sum)
{
	const struct glk_kv_group *g = &kv->shape.group[group];
	uint64_t tokens = 0;

	if (g->rule == GLAKE_KV_STATE)
		return sum->sequences * g->row;
	if (g->rule == GLAKE_KV_ALL)
		return sum->length * g->row;
	for (uint32_t i = 0; i < kv->shape.slots; i++) {
		uint32_t has = kv->sequence[i].live ? kv->sequence[i].tokens : 0;

		tokens += has < g->window ? has : g->window;
	}
	return tokens * g->row;
}

void glk_kv_figures(struct glake_kv *kv, struct glake_kv_figures *ret)
{
	const struct glk_kv_shape *s = &kv->shape;
	uint64_t room, rows = 0;

	glk_lock(&kv->lock);
	*ret = (struct glake_kv_figures){.sz = sizeof(*ret),
		.base = (void *)(uintptr_t)kv->base,
		.size = s->size,
		.slots = s->slots,
		.tokens = s->tokens,
		.lanes = s->lanes,
		.held = kv->held,
		.limit = kv->limit,
		.grows = kv->grows,
		.extends = kv->extends,
		.pages = kv->pages,
		.refused = kv->refused,
		.prefixes = kv->prefixes,
		.shared = kv->shared,
		.forks = kv->forks,
		.adopts = kv->adopts,
		.outs = kv->outs,
		.waits = kv->waits,
		.pages_ahead = kv->pages_ahead};
	room = kv->limit ? kv->limit : kv->memory;
	for (uint32_t i = 0; i < s->slots; i++) {
		ret->sequences += kv->sequence[i].live;
		ret->away += kv->sequence[i].live && kv->sequence[i].away;
		ret->length += kv->sequence[i].live ? kv->sequence[i].tokens : 0;
	}
	for (uint32_t i = s->slots; i < glk_kv_places(s); i++)
		ret->prefixes_away += kv->sequence[i].away;
	for (uint32_t i = 0; i < s->groups; i++)
		ret->needed += needed_by(kv, i, ret);
	glk_unlock(&kv->lock);
	for (uint32_t i = 0; i < s->groups; i++)
		rows += s->group[i].rule == GLAKE_KV_STATE ? 0 : s->group[i].row;
	ret->capacity = rows ? room / rows : 0;
}

/* ---- Sequences ---- */

int glk_kv_name(struct glake_kv *kv, struct CUstream_st *stream)
{
	struct glk_streams *streams = &kv->cache->streams;
	uint64_t ended = glk_peek_relaxed(&streams->ended);
	uint32_t id;
	int err = glk_stream_get(streams, stream, NULL, &id);

	/* pairs with: the release below */
	if (glk_load_acquire(&kv->ended) != ended) {
		for (size_t i = 0; i < GLK_STREAM_WORDS; i++)
			glk_store_relaxed(&kv->named[i], 0);
		glk_store_release(&kv->ended, ended); /* pairs with: the acquire above */
	}
	if (err || glk_load_relaxed(&kv->named[id / 64]) >> id % 64 & 1)
		return err;
	for (uint32_t i = 0; i < (kv->shape.single ? kv->shape.groups : 1) && !err; i++)
		err = glk_cache_use(
			kv->cache, kv->base + kv->shape.group[i].offset, stream);
	if (!err)
		glk_or_relaxed(&kv->named[id / 64], UINT64_C(1) << id % 64);
	return err;
}

static int is_none(uint32_t slot)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"there is no sequence in slot %" PRIu32, slot);
}

/* Under the lock: whether a sequence may have so many tokens. */
int glk_kv_check(const struct glake_kv *kv, uint32_t slot, uint32_t tokens)
{
	if (slot >= kv->shape.slots || !kv->sequence[slot].live)
		return is_none(slot);
	if (tokens > kv->sequence[slot].most)
		return glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"%" PRIu32 " tokens for a sequence of %" PRIu32 " at most",
			tokens, kv->sequence[slot].most);
	return 0;
}

/* Pages in front of the windows of a sequence go. Where they cannot they stay, and are tried again later. */
static void shed(struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream)
{
	uint32_t tokens = kv->sequence[slot].tokens;
	size_t count = 0;

	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		struct glk_kv_run want = glk_kv_pages(&kv->shape, i, tokens);
		struct glk_kv_run *run = glk_kv_run_at(kv, slot, i);
		struct glk_kv_run old = {.first = run->first,
			.end = want.first < run->end ? want.first : run->end};

		if (old.first < old.end)
			kv->portion[count++] = glk_kv_portion(kv, slot, i, old);
	}
	/* what others have stays until they say */
	if (!count || kv->sequence[slot].outs || glk_kv_decommit(kv, count, stream))
		return;
	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		struct glk_kv_run want = glk_kv_pages(&kv->shape, i, tokens);
		struct glk_kv_run *run = glk_kv_run_at(kv, slot, i);

		if (run->first < want.first)
			run->first = want.first < run->end ? want.first : run->end;
	}
	glk_kv_settle(kv, slot);
}

/* It has so many tokens, which it is ready for. */
static void lengthen(struct glake_kv *kv, uint32_t slot, uint32_t tokens)
{
	struct glk_kv_sequence *q = &kv->sequence[slot];

	if (tokens <= q->tokens)
		return;
	q->tokens = tokens;
	if (kv->ahead.tokens)
		glk_kv_ahead_note(kv, q);
}

int glk_kv_away(const struct glake_kv *kv, uint32_t slot)
{
	if (!kv->sequence[slot].away)
		return 0;
	if (slot >= kv->shape.slots)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the prefix is on the host: glake_kv_prefix_fetch");
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"the sequence in slot %" PRIu32 " is on the host: glake_kv_fetch", slot);
}

static bool sheds(const struct glake_kv *kv, uint32_t slot)
{
	return kv->sequence[slot].tokens >= kv->sequence[slot].sheds;
}

/* Of all lanes. */
static int commit(
	struct glake_kv *kv, size_t count, struct CUstream_st *stream, bool large)
{
	return glk_kv_commit(
		kv, count, stream, GLK_COMMIT_INSISTS | (large ? GLK_COMMIT_LARGE : 0));
}

static int grow(struct glake_kv *kv, uint32_t slot, uint32_t tokens,
	struct CUstream_st *stream, uint64_t *ret_wants)
{
	bool large = glk_kv_is_large(kv, 0, kv->shape.lanes);
	size_t count;
	int err = glk_kv_name(kv, stream);

	if (err)
		return err;
	glk_lock(&kv->lock);
	err = glk_kv_check(kv, slot, tokens);
	if (!err && tokens <= kv->sequence[slot].ready &&
		tokens < kv->sequence[slot].sheds) {
		lengthen(kv, slot, tokens);
		kv->grows++;
		glk_unlock(&kv->lock);
		return 0;
	}
	if (!err) {
		glk_kv_change_begin(kv, slot);
		/* it may have ended meanwhile */
		err = glk_kv_check(kv, slot, tokens);
		if (!err)
			err = glk_kv_away(kv, slot);
		count = err ? 0 : glk_kv_add_missing(kv, slot, tokens, 0);
		if (count)
			err = commit(kv, count, stream, large);
		if (!err && count) {
			glk_kv_note_missing(kv, slot, tokens, large);
			glk_kv_settle(kv, slot);
		}
		if (!err)
			lengthen(kv, slot, tokens);
		if (!err && sheds(kv, slot))
			shed(kv, slot, stream);
		glk_kv_change_end(kv);
	}
	*ret_wants = glk_kv_refused(kv, err);
	glk_unlock(&kv->lock);
	return err;
}

/* Whether all lengths may be, and which need something: none does. */
static int check_all(const struct glake_kv *kv, const uint32_t *lengths, bool *ret_needs)
{
	bool needs = false;
	int err = 0;

	for (uint32_t i = 0; i < kv->shape.slots && !err; i++) {
		if (!lengths[i])
			continue;
		err = glk_kv_check(kv, i, lengths[i]);
		if (!err)
			err = glk_kv_away(kv, i);
		needs |= !err &&
			(lengths[i] > kv->sequence[i].ready ||
				lengths[i] >= kv->sequence[i].sheds);
	}
	*ret_needs = needs;
	return err;
}

static int step_changed(
	struct glake_kv *kv, const uint32_t *lengths, struct CUstream_st *stream)
{
	bool needs, large = glk_kv_is_large(kv, 0, kv->shape.lanes);
	size_t count = 0;
	int err = check_all(kv, lengths, &needs);

	for (uint32_t i = 0; i < kv->shape.slots && !err; i++) {
		if (lengths[i] > kv->sequence[i].ready)
			count = glk_kv_add_missing(kv, i, lengths[i], count);
	}
	if (!err && count)
		err = commit(kv, count, stream, large);
	for (uint32_t i = 0; i < kv->shape.slots && !err; i++) {
		if (!lengths[i])
			continue;
		if (lengths[i] > kv->sequence[i].ready) {
			glk_kv_note_missing(kv, i, lengths[i], large);
			glk_kv_settle(kv, i);
		}
		lengthen(kv, i, lengths[i]);
	}
	for (uint32_t i = 0; i < kv->shape.slots && !err; i++) {
		if (lengths[i] && sheds(kv, i))
			shed(kv, i, stream);
	}
	return err;
}

static int step(struct glake_kv *kv, const uint32_t *lengths, struct CUstream_st *stream,
	uint64_t *ret_wants)
{
	bool needs;
	int err = glk_kv_name(kv, stream);

	if (err)
		return err;
	glk_lock(&kv->lock);
	err = check_all(kv, lengths, &needs);
	if (!err && !needs) {
		for (uint32_t i = 0; i < kv->shape.slots; i++)
			lengthen(kv, i, lengths[i]);
		kv->grows++;
	} else if (!err) {
		glk_kv_change_begin(kv, GLK_KV_ALL);
		err = step_changed(kv, lengths, stream);
		glk_kv_change_end(kv);
	}
	*ret_wants = glk_kv_refused(kv, err);
	glk_unlock(&kv->lock);
	return err;
}

static int is_full(const struct glake_kv *kv)
{
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"all %" PRIu32 " slots of the KV cache have a sequence", kv->shape.slots);
}

int glk_kv_find_slot(const struct glake_kv *kv, uint32_t *ret_slot)
{
	uint32_t slot = 0;

	while (slot < kv->shape.slots && kv->sequence[slot].live)
		slot++;
	if (slot == kv->shape.slots)
		return is_full(kv);
	*ret_slot = slot;
	return 0;
}

static int begin(struct glake_kv *kv, uint32_t tokens, uint64_t domain,
	struct CUstream_st *stream, uint32_t *ret_slot, uint64_t *ret_wants)
{
	uint32_t slot = 0;
	size_t count;
	int err = 0;

	if (!tokens)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "a sequence of 0 tokens at most");
	if (tokens > kv->shape.tokens)
		return glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"a sequence of %" PRIu32 " tokens in a KV cache of %" PRIu32,
			tokens, kv->shape.tokens);
	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, GLK_KV_ALL);
	err = glk_kv_find_slot(kv, &slot);
	kv->domains |= domain != 0;
	/* a slot whose pages stay has what was in them */
	for (uint32_t i = 0; i < kv->shape.groups && !err && kv->shape.single; i++) {
		struct glk_kv_run run = *glk_kv_run_at(kv, slot, i);

		kv->portion[0] = glk_kv_portion(kv, slot, i, run);
		if (run.first < run.end)
			glk_kv_clear(kv, 1, stream);
	}
	count = err ? 0 : glk_kv_add_missing(kv, slot, 0, 0); /* its states */
	if (count)
		err = glk_kv_commit(kv, count, stream, GLK_COMMIT_INSISTS);
	if (!err) {
		kv->sequence[slot] = (struct glk_kv_sequence){
			.live = true, .most = tokens, .domain = domain};
		glk_kv_note_missing(kv, slot, 0, false);
		glk_kv_settle(kv, slot);
		*ret_slot = slot;
	}
	glk_kv_change_end(kv);
	*ret_wants = glk_kv_refused(kv, err);
	glk_unlock(&kv->lock);
	return err;
}

/* Pages of a group that so many tokens do not need; with `all` every one. */
static struct glk_kv_run spare_of(const struct glake_kv *kv, uint32_t slot,
	uint32_t group, uint32_t tokens, bool all)
{
	struct glk_kv_run want = glk_kv_pages(&kv->shape, group, tokens);
	struct glk_kv_run spare = *glk_kv_run_at(kv, slot, group);

	if (kv->shape.single)
		spare.first = spare.end;
	else if (!all && spare.first < want.end)
		spare.first = want.end;
	return spare;
}

size_t glk_kv_add_spare(struct glake_kv *kv, uint32_t slot, uint32_t tokens, bool all)
{
	size_t count = 0;

	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		struct glk_kv_run spare = spare_of(kv, slot, i, tokens, all);

		if (spare.first < spare.end)
			kv->portion[count++] = glk_kv_portion(kv, slot, i, spare);
	}
	return count;
}

void glk_kv_note_spare(struct glake_kv *kv, uint32_t slot, uint32_t tokens, bool all)
{
	size_t count = 0;

	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		const struct glk_kv_group *g = &kv->shape.group[i];
		struct glk_kv_run want = glk_kv_pages(&kv->shape, i, tokens);
		struct glk_kv_run spare = spare_of(kv, slot, i, tokens, all);
		struct glk_kv_run *run = glk_kv_run_at(kv, slot, i);

		/* a page of several slots has stayed where any of it is needed */
		if (spare.first < spare.end)
			run->end = (uint32_t)((kv->portion[count++].offset - g->offset -
						      slot * g->slot) /
				kv->shape.page);
		if ((all || !want.end) && !kv->shape.single)
			*run = (struct glk_kv_run){0};
		if (run->sealed > run->end)
			run->sealed = run->end;
	}
	glk_kv_settle(kv, slot);
}

static int is_shared(uint32_t tokens)
{
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"%" PRIu32
		" tokens end in a page that is shared: fork so many of them instead",
		tokens);
}

/* Whether the next token would be written in a page that is shared: -EBUSY. */
static int check_cut(struct glake_kv *kv, uint32_t slot, uint32_t tokens)
{
	int err = glk_kv_whole(kv, slot, tokens);

	for (uint32_t i = 0; i < kv->shape.groups && !err; i++) {
		const struct glk_kv_group *g = &kv->shape.group[i];
		uint64_t end = g->rule == GLAKE_KV_STATE ? 0 : tokens * g->row;

		if (end > kv->whole[i] * kv->shape.page &&
			end / kv->shape.page < glk_kv_run_at(kv, slot, i)->sealed)
			err = is_shared(tokens);
	}
	return err;
}

/* Whether a window of fewer tokens would begin in pages that went. */
static bool is_shed(const struct glake_kv *kv, uint32_t slot, uint32_t tokens)
{
	for (uint32_t i = 0; tokens && i < kv->shape.groups; i++) {
		struct glk_kv_run has = *glk_kv_run_at(kv, slot, i);

		if (glk_kv_pages(&kv->shape, i, tokens).first < has.first)
			return true;
	}
	return false;
}

int glk_kv_trim(struct glake_kv *kv, uint32_t slot, uint32_t tokens,
	struct CUstream_st *stream, bool ends)
{
	size_t count;
	int err;

	if (slot >= kv->shape.slots)
		return is_none(slot);
	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, slot);
	err = glk_kv_check(kv, slot, 0);
	if (!err)
		err = glk_kv_out(kv, slot);
	if (!err && tokens > kv->sequence[slot].tokens)
		err = glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"%" PRIu32 " tokens are to stay of a sequence that has %" PRIu32,
			tokens, kv->sequence[slot].tokens);
	if (!err && !ends && is_shed(kv, slot, tokens))
		err = glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"the window of %" PRIu32
			" tokens begins where memory went before",
			tokens);
	if (!err && !ends)
		err = check_cut(kv, slot, tokens);
	count = err ? 0 : glk_kv_add_spare(kv, slot, tokens, ends);
	if (count)
		err = glk_kv_decommit(kv, count, stream);
	if (!err) {
		glk_kv_note_spare(kv, slot, tokens, ends);
		kv->sequence[slot].tokens = tokens;
		kv->sequence[slot].live = !ends;
	}
	glk_kv_change_end(kv);
	glk_unlock(&kv->lock);
	return err;
}

int glk_kv_send(
	struct glake_kv *kv, size_t count, bool sealed, struct CUstream_st *stream)
{
	int err;

	glk_unlock(&kv->lock);
	err = glk_elastic_send(kv->cache, kv->base, kv->portion, count, sealed, stream);
	glk_lock(&kv->lock);
	return err;
}

int glk_kv_have(struct glake_kv *kv, size_t count, struct CUstream_st *stream, bool large)
{
	int err;

	if (!count)
		return 0;
	glk_unlock(&kv->lock);
	err = glk_cache_have(kv->cache, kv->base, stream, kv->portion, count, large);
	glk_lock(&kv->lock);
	/* what is there already is */
	return err == -EALREADY ? 0 : err;
}

int glk_kv_move(
	struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream, bool to_gpu)
{
	size_t count;
	int err;

	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, slot < kv->shape.slots ? slot : GLK_KV_ALL);
	err = glk_kv_check(kv, slot, 0);
	if (!err && !to_gpu)
		err = glk_kv_out(kv, slot);
	if (!err && !to_gpu && kv->shape.single)
		err = glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"lanes of single handles stay whole");
	if (!err && (!to_gpu || kv->sequence[slot].away)) {
		kv->sequence[slot].away = true;
		glk_kv_settle(kv, slot);
		count = glk_kv_add_spare(kv, slot, 0, true);
		err = to_gpu ? glk_kv_have(kv, count, stream, false)
			     : glk_kv_send(kv, count, false, stream);
		kv->sequence[slot].away = err || !to_gpu;
		/* as a whole from here on, also what went lane by lane */
		for (uint32_t i = 0; i < kv->shape.groups; i++)
			glk_kv_run_at(kv, slot, i)->away = false;
		glk_kv_settle(kv, slot);
	}
	glk_kv_change_end(kv);
	glk_unlock(&kv->lock);
	return err;
}

int glk_kv_sequence_get(struct glake_kv *kv, uint32_t slot, struct glake_kv_sequence *ret)
{
	int err;

	glk_lock(&kv->lock);
	err = glk_kv_check(kv, slot, 0);
	if (!err) {
		const struct glk_kv_sequence *q = &kv->sequence[slot];

		*ret = (struct glake_kv_sequence){.sz = sizeof(*ret),
			.tokens = q->tokens,
			.ready = q->ready < q->most ? q->ready : q->most,
			.most = q->most,
			.domain = q->domain,
			.away = q->away,
			.outs = q->outs};
		for (uint32_t i = 0; i < kv->shape.groups; i++) {
			struct glk_kv_run run = *glk_kv_run_at(kv, slot, i);

			ret->held += (run.end - run.first) * kv->shape.page;
		}
	}
	glk_unlock(&kv->lock);
	return err;
}

/* ---- Asked ---- */

/* Each again after the program has made room, for which it is asked once, with nothing of the cache in hand: it may
 * end sequences of it. */

bool glk_kv_asks(struct glake_kv *kv, int err, uint64_t wants, struct CUstream_st *stream)
{
	return err == -ENOMEM && glk_elastic_ask(kv->cache, wants, stream);
}

int glk_kv_grow(
	struct glake_kv *kv, uint32_t slot, uint32_t tokens, struct CUstream_st *stream)
{
	uint64_t wants = 0;
	int err = grow(kv, slot, tokens, stream, &wants);

	if (glk_kv_asks(kv, err, wants, stream))
		err = grow(kv, slot, tokens, stream, &wants);
	return err;
}

int glk_kv_step(struct glake_kv *kv, const uint32_t *lengths, struct CUstream_st *stream)
{
	uint64_t wants = 0;
	int err = step(kv, lengths, stream, &wants);

	if (glk_kv_asks(kv, err, wants, stream))
		err = step(kv, lengths, stream, &wants);
	return err;
}

int glk_kv_new(struct glake_kv *kv, uint32_t tokens, uint64_t domain,
	struct CUstream_st *stream, uint32_t *ret_slot)
{
	uint64_t wants = 0;
	int err = begin(kv, tokens, domain, stream, ret_slot, &wants);

	if (glk_kv_asks(kv, err, wants, stream))
		err = begin(kv, tokens, domain, stream, ret_slot, &wants);
	return err;
}
