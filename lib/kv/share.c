/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Beginnings that sequences of a KV cache have together: a fork, and prefixes that are published under a key. Whole
 * pages of the beginning are shared (glake_commit_shared), and what lies behind them in the last one, and states, are
 * copied in stream order. A published prefix is a place like a slot, behind those of sequences, which nothing grows; so
 * nothing else knows of it.
 */
#include "kv/kv.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- A beginning ---- */

static uint32_t whole_of(const struct glake_kv *kv, uint32_t group, uint32_t tokens)
{
	const struct glk_kv_group *g = &kv->shape.group[group];

	return g->rule == GLAKE_KV_STATE || kv->shape.single
		? 0
		: (uint32_t)(tokens * g->row / kv->shape.page);
}

/* Of runs with pages of several slots those that lie wholly in it. */
static int find_large(struct glake_kv *kv, uint32_t place, size_t count)
{
	int err;

	if (!count)
		return 0;
	glk_unlock(&kv->lock);
	err = glk_cache_whole(kv->cache, kv->base, kv->portion, count);
	glk_lock(&kv->lock);
	for (uint32_t i = kv->shape.groups; i && !err; i--) {
		if (glk_kv_run_at(kv, place, i - 1)->large && kv->whole[i - 1])
			kv->whole[i - 1] =
				(uint32_t)(kv->portion[--count].bytes / kv->shape.page);
	}
	return err;
}

int glk_kv_whole(struct glake_kv *kv, uint32_t place, uint32_t tokens)
{
	size_t count = 0;

	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		struct glk_kv_run whole = {.end = whole_of(kv, i, tokens)};

		kv->whole[i] = whole.end;
		if (glk_kv_run_at(kv, place, i)->large && whole.end)
			kv->portion[count++] = glk_kv_portion(kv, place, i, whole);
	}
	return find_large(kv, place, count);
}

/* What a group has of a beginning: pages that are shared, and then such of its own. */
struct front {
	struct glk_kv_run shared, own;
	uint64_t bytes; /* of the second that are copied */
};

static struct front front_of(const struct glake_kv *kv, uint32_t group, uint32_t tokens)
{
	const struct glk_kv_group *g = &kv->shape.group[group];
	struct glk_kv_run want = glk_kv_pages(&kv->shape, group, tokens);
	uint32_t whole = kv->whole[group];
	struct front f = {.shared = {.first = want.first, .end = whole},
		.own = {.first = whole, .end = want.end}};

	f.bytes = g->rule == GLAKE_KV_STATE ? g->row
					    : tokens * g->row - whole * kv->shape.page;
	return f;
}

/* A place that gets the beginning of another one, and what is asked of the block for it. */
struct branch {
	uint32_t from, to, tokens;
	size_t own, shared,
		copied; /* portions that it has for itself, ranges that share, and are copied */
};

static bool has_state(const struct glake_kv *kv)
{
	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		if (kv->shape.group[i].rule == GLAKE_KV_STATE)
			return true;
	}
	return false;
}

static int check(const struct glake_kv *kv, const struct branch *b)
{
	const struct glk_kv_sequence *q = &kv->sequence[b->from];
	int err = glk_kv_away(kv, b->from);

	if (!err)
		err = glk_kv_away(kv, b->to);
	if (err)
		return err;
	if (!b->tokens || b->tokens > q->tokens)
		return glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"the first %" PRIu32 " tokens of a sequence that has %" PRIu32,
			b->tokens, q->tokens);
	if (b->tokens < q->tokens && has_state(kv))
		return glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"the state of a sequence is that of all its %" PRIu32 " tokens",
			q->tokens);
	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		if (glk_kv_pages(&kv->shape, i, b->tokens).first <
			glk_kv_run_at(kv, b->from, i)->first)
			return glk_error(-ERANGE, GLAKE_ERROR_INVAL,
				"the window of %" PRIu32
				" tokens begins where memory went before",
				b->tokens);
	}
	return 0;
}

static void plan(struct glake_kv *kv, struct branch *b)
{
	b->own = b->shared = b->copied = 0;
	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		struct front front = front_of(kv, i, b->tokens);
		struct glk_portion from, to;

		from = glk_kv_portion(kv, b->from, i, front.own);
		to = glk_kv_portion(kv, b->to, i, front.own);
		if (front.bytes)
			kv->sharing[kv->shape.groups + b->copied++] =
				(struct glk_sharing){from.offset, to.offset, front.bytes};
		/* a sequence has its state from its beginning on */
		if (front.own.first < front.own.end &&
			glk_kv_run_at(kv, b->to, i)->end < front.own.end)
			kv->portion[b->own++] = to;
		if (front.shared.first >= front.shared.end)
			continue;
		from = glk_kv_portion(kv, b->from, i, front.shared);
		to = glk_kv_portion(kv, b->to, i, front.shared);
		kv->sharing[b->shared++] =
			(struct glk_sharing){from.offset, to.offset, to.bytes};
	}
}

static uint64_t shared_bytes(const struct glake_kv *kv, const struct branch *b)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < b->shared; i++)
		bytes += kv->sharing[i].bytes;
	return bytes;
}

/* Where nothing is shared, since each lane is one page. */
static int copy(struct glake_kv *kv, const struct branch *b, struct CUstream_st *stream)
{
	const struct glk_sharing *c = kv->sharing + kv->shape.groups;
	struct glk_drv *drv = kv->cache->drv;
	struct glk_stream_facts facts;
	uint32_t on;
	int err = glk_stream_get(&kv->cache->streams, stream, &facts, &on);

	if (!err && facts.capture)
		err = glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"nothing is shared on a stream that captures a graph");
	if (!err)
		err = glk_kv_name(kv, stream);
	for (size_t i = 0; i < b->copied && !err; i++)
		err = drv->ops->copy(drv, kv->base + c[i].to, kv->base + c[i].from,
			c[i].bytes, stream);
	return err;
}

/* By who changes what is committed: a place has the beginning of another one, or nothing. */
static int share(struct glake_kv *kv, struct branch *b, struct CUstream_st *stream)
{
	bool large = glk_kv_is_large(kv, 0, kv->shape.lanes);
	struct glk_shares shares;
	uint64_t bytes, wants = 0;
	int err = check(kv, b);

	if (!err)
		err = glk_kv_whole(kv, b->from, b->tokens);
	if (err)
		return err;
	plan(kv, b);
	err = glk_kv_may_commit(kv, b->own, &bytes);
	if (err)
		return err;
	shares = (struct glk_shares){.own = kv->portion,
		.owned = b->own,
		.how = GLK_COMMIT_INSISTS | (large ? GLK_COMMIT_LARGE : 0),
		.ret_wants = &wants,
		.pages = kv->sharing,
		.count = b->shared,
		.copies = kv->sharing + kv->shape.groups,
		.copied = b->copied};
	glk_unlock(&kv->lock);
	err = kv->shape.single ? copy(kv, b, stream)
			       : glk_cache_share(kv->cache, kv->base, &shares, stream);
	glk_lock(&kv->lock);
	kv->wants = err == -ENOMEM ? wants : 0;
	if (err)
		return err;
	if (b->own)
		glk_kv_note_commit(kv, bytes);
	kv->shared += shared_bytes(kv, b);
	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		struct front front = front_of(kv, i, b->tokens);
		struct glk_kv_run *from = glk_kv_run_at(kv, b->from, i);
		struct glk_kv_run *to = glk_kv_run_at(kv, b->to, i);

		*to = (struct glk_kv_run){.first = front.shared.first,
			.end = front.own.end,
			.sealed = front.shared.end,
			.large = from->large && front.shared.first < front.shared.end};
		if (large)
			glk_kv_note_large(kv, to, front.own.end - front.own.first);
		if (from->sealed < front.shared.end)
			from->sealed = front.shared.end;
	}
	kv->sequence[b->to].tokens = b->tokens;
	glk_kv_settle(kv, b->to);
	return 0;
}

/* ---- Fork ---- */

static int fork_try(struct glake_kv *kv, uint32_t slot, uint32_t tokens, uint32_t most,
	struct CUstream_st *stream, uint32_t *ret_slot, uint64_t *ret_wants)
{
	struct branch b = {.from = slot, .tokens = tokens};
	int err;

	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, GLK_KV_ALL);
	err = glk_kv_check(kv, slot, 0);
	if (!err && (most < tokens || most > kv->shape.tokens))
		err = glk_error(-ERANGE, GLAKE_ERROR_INVAL,
			"a sequence of %" PRIu32 " tokens that begins with %" PRIu32
			", in a KV cache of %" PRIu32,
			most, tokens, kv->shape.tokens);
	if (!err)
		err = glk_kv_find_slot(kv, &b.to);
	if (!err) {
		kv->sequence[b.to] = (struct glk_kv_sequence){
			.most = most, .domain = kv->sequence[slot].domain};
		err = share(kv, &b, stream);
	}
	if (!err) {
		kv->sequence[b.to].live = true;
		kv->forks++;
		*ret_slot = b.to;
	}
	glk_kv_change_end(kv);
	*ret_wants = glk_kv_refused(kv, err);
	glk_unlock(&kv->lock);
	return err;
}

/* ---- Prefixes ---- */

static uint32_t hash(uint64_t domain, const unsigned char *key, size_t size)
{
	uint64_t h =
		(UINT64_C(0xcbf29ce484222325) ^ domain) * UINT64_C(0x9e3779b97f4a7c15);

	for (size_t i = 0; i < size; i++)
		h = (h ^ key[i]) * UINT64_C(0x100000001b3);
	return (uint32_t)(h >> 32);
}

static uint32_t *head_of(const struct glake_kv *kv, const struct glk_kv_key *key)
{
	return &kv->prefix_head[hash(key->domain, key->bytes, key->size) %
		kv->shape.prefixes];
}

static bool is_same(const struct glk_kv_key *a, const struct glk_kv_key *b)
{
	return a->domain == b->domain && a->size == b->size &&
		!memcmp(a->bytes, b->bytes, a->size);
}

/* The link that leads to a prefix, counted from 1; 0 there: it is none. */
static uint32_t *find(const struct glake_kv *kv, const struct glk_kv_key *key)
{
	uint32_t *link = head_of(kv, key);

	while (*link && !is_same(&kv->prefix[*link - 1].key, key))
		link = &kv->prefix[*link - 1].next;
	return link;
}

static int key_of(
	uint64_t domain, const void *bytes, size_t size, struct glk_kv_key *ret_key)
{
	if (!bytes || !size || size > GLAKE_KV_KEY_MAX)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"a key of %zu bytes: 1 to %d", size, GLAKE_KV_KEY_MAX);
	*ret_key = (struct glk_kv_key){.domain = domain, .size = size};
	memcpy(ret_key->bytes, bytes, size);
	return 0;
}

static int is_unknown(void)
{
	return glk_error(-ENOENT, GLAKE_ERROR_INVAL,
		"no prefix is published under this key in this domain");
}

/* A key that is to be published in the domain of a sequence, and a place for it. */
static int prepare(const struct glake_kv *kv, uint32_t slot, const void *bytes,
	size_t size, struct glk_kv_key *key)
{
	int err = glk_kv_check(kv, slot, 0);

	if (!err)
		err = key_of(kv->sequence[slot].domain, bytes, size, key);
	if (err)
		return err;
	if (!kv->shape.prefixes || (!kv->prefix_free && *find(kv, key) == 0))
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"all %" PRIu32 " places for prefixes are taken",
			kv->shape.prefixes);
	if (*find(kv, key))
		return glk_error(-EEXIST, GLAKE_ERROR_BUSY,
			"a prefix is published under this key already");
	return 0;
}

static int publish(struct glake_kv *kv, uint32_t slot, uint32_t tokens, const void *bytes,
	size_t size, struct CUstream_st *stream, uint64_t *ret_wants)
{
	struct branch b = {.from = slot, .tokens = tokens};
	struct glk_kv_prefix *p;
	struct glk_kv_key key;
	uint32_t id, *head;
	int err;

	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, GLK_KV_ALL);
	err = prepare(kv, slot, bytes, size, &key);
	if (!err) {
		b.to = kv->shape.slots + kv->prefix_free - 1;
		kv->sequence[b.to] = (struct glk_kv_sequence){.most = tokens};
		err = share(kv, &b, stream);
	}
	if (!err) {
		id = kv->prefix_free;
		p = &kv->prefix[id - 1];
		kv->prefix_free = p->next;
		head = head_of(kv, &key);
		*p = (struct glk_kv_prefix){.key = key, .next = *head};
		*head = id;
		kv->prefixes++;
	}
	glk_kv_change_end(kv);
	*ret_wants = glk_kv_refused(kv, err);
	glk_unlock(&kv->lock);
	return err;
}

static int adopt(struct glake_kv *kv, uint32_t slot, const void *bytes, size_t size,
	struct CUstream_st *stream, uint32_t *ret_tokens, uint64_t *ret_wants)
{
	struct branch b = {.to = slot};
	struct glk_kv_key key;
	uint32_t id = 0;
	int err;

	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, GLK_KV_ALL);
	err = glk_kv_check(kv, slot, 0);
	if (!err)
		err = key_of(kv->sequence[slot].domain, bytes, size, &key);
	if (!err)
		err = glk_kv_out(kv, slot);
	if (!err && kv->sequence[slot].tokens)
		err = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the sequence in slot %" PRIu32 " has tokens already", slot);
	if (!err)
		id = kv->shape.prefixes ? *find(kv, &key) : 0;
	if (!err && !id)
		err = is_unknown();
	if (!err) {
		b.from = kv->shape.slots + id - 1;
		b.tokens = kv->sequence[b.from].tokens;
		err = glk_kv_check(kv, slot, b.tokens);
	}
	if (!err)
		err = share(kv, &b, stream);
	if (!err) {
		kv->adopts++;
		*ret_tokens = b.tokens;
	}
	glk_kv_change_end(kv);
	*ret_wants = glk_kv_refused(kv, err);
	glk_unlock(&kv->lock);
	return err;
}

int glk_kv_withdraw(struct glake_kv *kv, uint64_t domain, const void *bytes, size_t size,
	struct CUstream_st *stream)
{
	struct glk_kv_key key;
	uint32_t id = 0, *link = NULL;
	size_t count;
	int err = key_of(domain, bytes, size, &key);

	if (err)
		return err;
	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, GLK_KV_ALL);
	if (kv->shape.prefixes) {
		link = find(kv, &key);
		id = *link;
	}
	if (!id)
		err = is_unknown();
	count = err ? 0 : glk_kv_add_spare(kv, kv->shape.slots + id - 1, 0, true);
	if (count)
		err = glk_kv_decommit(kv, count, stream);
	if (!err) {
		glk_kv_note_spare(kv, kv->shape.slots + id - 1, 0, true);
		*link = kv->prefix[id - 1].next;
		kv->prefix[id - 1] = (struct glk_kv_prefix){.next = kv->prefix_free};
		kv->sequence[kv->shape.slots + id - 1].away = false;
		kv->prefix_free = id;
		kv->prefixes--;
	}
	glk_kv_change_end(kv);
	glk_unlock(&kv->lock);
	return err;
}

/* ---- Away ---- */

/* Where both places may have the same pages: they lie at the same offset. Ranges of a group each; their number. */
static size_t add_common(struct glake_kv *kv, uint32_t place, uint32_t slot)
{
	size_t count = 0;

	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		struct glk_kv_run a = *glk_kv_run_at(kv, place, i);
		struct glk_kv_run b = *glk_kv_run_at(kv, slot, i);
		struct glk_kv_run both = {.first = a.first > b.first ? a.first : b.first,
			.end = a.sealed < b.sealed ? a.sealed : b.sealed};
		struct glk_portion to;

		if (both.first >= both.end)
			continue;
		to = glk_kv_portion(kv, slot, i, both);
		kv->portion[count] = to;
		kv->sharing[count++] = (struct glk_sharing){
			glk_kv_portion(kv, place, i, both).offset, to.offset, to.bytes};
	}
	return count;
}

/* Whether a sequence has pages of a prefix; then what it may have of them is told as so many portions. */
static int shares(struct glake_kv *kv, uint32_t place, uint32_t slot, size_t *ret_count)
{
	size_t count = kv->sequence[slot].live ? add_common(kv, place, slot) : 0;
	bool is = false;
	int err = 0;

	if (count) {
		glk_unlock(&kv->lock);
		err = glk_cache_is_shared(kv->cache, kv->base, kv->sharing, count, &is);
		glk_lock(&kv->lock);
	}
	*ret_count = is ? count : 0;
	return err;
}

static int is_read(struct glake_kv *kv, uint32_t place)
{
	size_t count;
	int err = 0;

	for (uint32_t i = 0; i < kv->shape.slots && !err; i++) {
		if (kv->sequence[i].away)
			continue;
		err = shares(kv, place, i, &count);
		if (!err && count)
			err = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
				"the sequence in slot %" PRIu32 " reads the prefix", i);
	}
	return err;
}

/* All of a prefix, and what sequences that are away have left of it. */
static int send_prefix(struct glake_kv *kv, uint32_t place, struct CUstream_st *stream)
{
	int err = is_read(kv, place);
	size_t count;

	if (err)
		return err;
	kv->sequence[place].away = true;
	for (uint32_t i = 0; i < kv->shape.slots && !err; i++) {
		err = shares(kv, place, i, &count);
		if (!err && count)
			err = glk_kv_send(kv, count, true, stream);
	}
	count = err ? 0 : glk_kv_add_spare(kv, place, 0, true);
	if (count)
		err = glk_kv_send(kv, count, true, stream);
	if (!err && count)
		err = glk_kv_send(kv, count, false, stream);
	return err;
}

int glk_kv_prefix_move(struct glake_kv *kv, uint64_t domain, const void *bytes,
	size_t size, struct CUstream_st *stream, bool to_gpu)
{
	uint32_t id = 0, place;
	struct glk_kv_key key;
	int err = key_of(domain, bytes, size, &key);

	if (err)
		return err;
	glk_lock(&kv->lock);
	glk_kv_change_begin(kv, GLK_KV_ALL);
	if (kv->shape.prefixes)
		id = *find(kv, &key);
	place = kv->shape.slots + id - 1;
	if (!id)
		err = is_unknown();
	else if (kv->shape.single)
		err = glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"lanes of single handles stay whole");
	else if (!to_gpu)
		err = send_prefix(kv, place, stream);
	else if (kv->sequence[place].away) {
		err = glk_kv_have(
			kv, glk_kv_add_spare(kv, place, 0, true), stream, false);
		kv->sequence[place].away = err;
	}
	glk_kv_change_end(kv);
	glk_unlock(&kv->lock);
	return err;
}

/* ---- Asked ---- */

int glk_kv_fork(struct glake_kv *kv, uint32_t slot, uint32_t tokens, uint32_t most,
	struct CUstream_st *stream, uint32_t *ret_slot)
{
	uint64_t wants = 0;
	int err = fork_try(kv, slot, tokens, most, stream, ret_slot, &wants);

	if (glk_kv_asks(kv, err, wants, stream))
		err = fork_try(kv, slot, tokens, most, stream, ret_slot, &wants);
	return err;
}

int glk_kv_publish(struct glake_kv *kv, uint32_t slot, uint32_t tokens, const void *bytes,
	size_t size, struct CUstream_st *stream)
{
	uint64_t wants = 0;
	int err = publish(kv, slot, tokens, bytes, size, stream, &wants);

	if (glk_kv_asks(kv, err, wants, stream))
		err = publish(kv, slot, tokens, bytes, size, stream, &wants);
	return err;
}

int glk_kv_adopt(struct glake_kv *kv, uint32_t slot, const void *bytes, size_t size,
	struct CUstream_st *stream, uint32_t *ret_tokens)
{
	uint64_t wants = 0;
	int err = adopt(kv, slot, bytes, size, stream, ret_tokens, &wants);

	if (glk_kv_asks(kv, err, wants, stream))
		err = adopt(kv, slot, bytes, size, stream, ret_tokens, &wants);
	return err;
}
