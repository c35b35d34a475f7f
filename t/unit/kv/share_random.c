/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Programs by chance on sequences that begin alike: a model knows what each sequence has written, and which pages are one.
 */
#include "kv_parts.h"

#include <stdlib.h>
#include <unistd.h>

#define SLOTS	 6
#define PREFIXES 4
#define PLACES	 (SLOTS + PREFIXES)
#define LANES	 3
#define TOKENS	 4096
#define MOST	 12 /* pages of a group */

struct model {
	bool live;
	uint32_t tokens, most, domain;
	uint32_t mark[TOKENS];
	uint32_t page[LANES][MOST]; /* by group: which one */
};

static struct model list[PLACES];
static uint32_t pages_made;

static uint32_t chance(uint64_t *seed, uint32_t below)
{
	return (uint32_t)seed_below(seed, below);
}

static uint64_t row_of(const struct glake_kv_options *o, uint32_t group)
{
	uint64_t row = 0;

	if (!(o->flags & GLAKE_KV_TOKEN_FRONT))
		return o->lane[group].bytes;
	for (uint32_t i = 0; i < o->lanes; i++)
		row += o->lane[i].bytes;
	return row;
}

static uint32_t groups_of(const struct glake_kv_options *o)
{
	return o->flags & GLAKE_KV_TOKEN_FRONT ? 1 : o->lanes;
}

/* It has so many tokens; pages that are new are others. */
static void lengthen(const struct glake_kv_options *o, struct model *m, uint32_t tokens)
{
	for (uint32_t g = 0; g < groups_of(o); g++) {
		uint64_t was = (m->tokens * row_of(o, g) + PAGE - 1) / PAGE;

		for (; was < (tokens * row_of(o, g) + PAGE - 1) / PAGE; was++)
			m->page[g][was] = ++pages_made;
	}
	m->tokens = tokens;
}

static void write_tokens(
	struct glake_kv *kv, uint32_t slot, struct model *m, uint32_t from, uint32_t mark)
{
	for (uint32_t t = from; t < m->tokens; t++) {
		m->mark[t] = mark + t;
		for (uint32_t lane = 0; lane < LANES; lane++)
			memcpy(at(kv, lane, slot, t), &m->mark[t], 4);
	}
}

static bool has_tokens(struct glake_kv *kv, uint32_t slot, const struct model *m)
{
	for (uint32_t lane = 0; lane < LANES; lane++) {
		for (uint32_t t = 0; t < m->tokens; t++) {
			if (memcmp(at(kv, lane, slot, t), &m->mark[t], 4)) {
				tap_note("token %u of %u, lane %u", t, m->tokens, lane);
				return false;
			}
		}
	}
	return true;
}

static uint32_t place_of(const struct glake_kv *kv, const struct model *m)
{
	uint32_t place = (uint32_t)(m - list), i = 0;

	if (place < SLOTS)
		return place;
	while (kv->prefix[i].key.size == 0 || kv->prefix[i].key.domain != m->domain ||
		kv->prefix[i].key.bytes[0] != m->most)
		i++;
	return SLOTS + i;
}

/* Of a large page, which is two, both are shared or none is: which it was is told by the cache. */
static bool branch(const struct glake_kv *kv, const struct glake_kv_options *o,
	const struct model *from, struct model *to, uint32_t tokens)
{
	uint32_t place = place_of(kv, to);

	memcpy(to->mark, from->mark, sizeof(to->mark));
	for (uint32_t g = 0; g < groups_of(o); g++) {
		uint64_t whole = tokens * row_of(o, g) / PAGE;

		if (o->flags & GLAKE_KV_LARGE &&
			glk_kv_run_at(kv, place, g)->sealed + 1 == whole)
			whole--;
		if (glk_kv_run_at(kv, place, g)->sealed != whole)
			return false;

		for (uint64_t p = 0; p < (tokens * row_of(o, g) + PAGE - 1) / PAGE; p++)
			to->page[g][p] = p < whole ? from->page[g][p] : ++pages_made;
	}
	to->tokens = tokens;
	return true;
}

/* Bytes of pages, each of them once, and however often they are had. */
static uint64_t bytes_of(const struct glake_kv_options *o, uint64_t *ret_all)
{
	char *seen = calloc(pages_made + 1, 1);
	uint64_t once = 0;

	*ret_all = 0;
	for (int i = 0; i < PLACES && seen; i++) {
		for (uint32_t g = 0; list[i].live && g < groups_of(o); g++) {
			uint64_t pages =
				(list[i].tokens * row_of(o, g) + PAGE - 1) / PAGE;

			for (uint64_t p = 0; p < pages; p++) {
				once += !seen[list[i].page[g][p]];
				seen[list[i].page[g][p]] = 1;
			}
			*ret_all += pages;
		}
	}
	free(seen);
	*ret_all *= PAGE;
	return once * PAGE;
}

/* Whether a cut would end in a page that somebody else has, or had. */
static bool may_cut(int err, uint32_t want, const struct model *m)
{
	return !err || err == -EBUSY || (err == -ERANGE && want > m->tokens);
}

/* Some tokens of a lane as another process would have them; the sequence stays meanwhile. */
static bool is_given(
	struct glake_kv *kv, uint32_t slot, const struct model *m, uint64_t *seed)
{
	struct glake_kv_place place = {.sz = sizeof(place)};
	uint32_t lane = chance(seed, LANES), first = chance(seed, m->tokens + 1);
	uint32_t tokens = m->tokens - first;
	struct glake_piece pieces[64];
	size_t count = 0, bytes = 0;
	void *here = NULL;
	bool same;
	int err = glake_kv_export(kv, slot, lane, first, tokens, 1, pieces, 64, &count);

	if (err)
		return err == -ERANGE && !tokens;
	glake_kv_place_get(kv, lane, &place);
	for (size_t i = 0; i < count; i++)
		bytes += pieces[i].length;
	same = !glake_import(ctx, 0, pieces, count, bytes, &here) &&
		glake_kv_free(kv, slot, stream) == -EBUSY;
	for (size_t i = 0; i < count; i++)
		close(pieces[i].fd);
	for (uint32_t t = 0; t < tokens && same; t++) {
		/* lanes beside each other come together, from the first on */
		const char *token = (const char *)here + t * place.token +
			(at(kv, lane, slot, first) - at(kv, 0, slot, first)) *
				(place.token != place.bytes);

		same = !memcmp(token, &m->mark[first + t], 4);
	}
	return same && !glake_import_end(ctx, here, stream) &&
		!glake_kv_export_end(kv, slot, lane);
}

static bool has_page_of(const struct glake_kv_options *o, const struct model *m,
	const struct model *other)
{
	for (uint32_t g = 0; g < groups_of(o); g++) {
		uint64_t row = row_of(o, g), pages = (m->tokens * row + PAGE - 1) / PAGE;

		for (uint64_t p = 0; p < pages && p * PAGE < other->tokens * row; p++) {
			if (m->page[g][p] == other->page[g][p])
				return true;
		}
	}
	return false;
}

/* A prefix goes while its readers are away, and all come back in any order. */
static bool prefix_moves(
	struct glake_kv *kv, const struct glake_kv_options *o, uint64_t *seed)
{
	const struct model *p = &list[SLOTS + chance(seed, PREFIXES)];
	unsigned char key[4] = {(unsigned char)p->most};
	bool reads[SLOTS], read = false, first = chance(seed, 2);
	int err;

	if (!p->live)
		return true;
	for (uint32_t i = 0; i < SLOTS; i++) {
		reads[i] = list[i].live && has_page_of(o, &list[i], p);
		read |= reads[i];
	}
	err = glake_kv_prefix_spill(kv, p->domain, key, 4, stream);
	if (err != (read ? -EBUSY : 0))
		return false;
	for (uint32_t i = 0; i < SLOTS; i++) {
		if (reads[i] && glake_kv_spill(kv, i, stream))
			return false;
	}
	if (glake_kv_prefix_spill(kv, p->domain, key, 4, stream) ||
		(first && glake_kv_prefix_fetch(kv, p->domain, key, 4, stream)))
		return false;
	for (uint32_t i = SLOTS; i; i--) {
		if (reads[i - 1] &&
			(glake_kv_fetch(kv, i - 1, stream) ||
				!has_tokens(kv, i - 1, &list[i - 1])))
			return false;
	}
	return !glake_kv_prefix_fetch(kv, p->domain, key, 4, stream);
}

/* Lanes leave by themselves and come back. */
static bool layers_move(
	struct glake_kv *kv, uint32_t slot, const struct model *m, uint64_t *seed)
{
	uint32_t lane = chance(seed, LANES), lanes = 1 + chance(seed, LANES - lane);

	if (glake_kv_layer_done(kv, slot, lane, lanes, stream) ||
		(chance(seed, 2) &&
			(glake_suspend(ctx, 0, NULL) || glake_resume(ctx, 0, NULL))) ||
		glake_kv_layer_wait(kv, slot, lane, lanes, stream))
		return false;
	return has_tokens(kv, slot, m);
}

/* More tokens: of some lanes by themselves first. 0 or the error of either. */
static int grow(
	struct glake_kv *kv, uint32_t slot, uint32_t want, bool layers, uint64_t *seed)
{
	uint32_t lane = chance(seed, LANES), lanes = 1 + chance(seed, LANES - lane);
	int err = layers ? glake_kv_layer_grow(kv, slot, lane, lanes, want, stream) : 0;

	return err ? err : glake_kv_grow(kv, slot, want, stream);
}

static bool step(struct glake_kv *kv, const struct glake_kv_options *o, uint64_t *seed)
{
	static uint32_t marks;
	uint32_t slot = chance(seed, SLOTS), want, other, p;
	struct model *m = &list[slot];
	unsigned char key[4] = {0};
	int err;

	if (!m->live) {
		want = 1 + chance(seed, TOKENS);
		p = chance(seed, 2);
		err = glake_kv_new_in(kv, want, p, stream, &slot);
		if (!err)
			list[slot] =
				(struct model){.live = true, .most = want, .domain = p};
		return !err;
	}
	p = chance(seed, PREFIXES);
	key[0] = (unsigned char)p;
	switch (chance(seed, o->flags & GLAKE_KV_TOKEN_FRONT ? 14 : 16)) {
	case 0:
		m->live = false;
		return has_tokens(kv, slot, m) && !glake_kv_free(kv, slot, stream);
	case 1:
		want = chance(seed, m->tokens + 1);
		err = glake_kv_trim(kv, slot, want, stream);
		if (!err)
			m->tokens = want;
		return may_cut(err, want, m) && has_tokens(kv, slot, m);
	case 2:
		return !(chance(seed, 2) ? glake_suspend : glake_suspend_in_place)(
			       ctx, 0, NULL) &&
			!glake_resume(ctx, 0, NULL);
	case 3:
	case 4:
		if (!m->tokens)
			return true;
		want = 1 + chance(seed, m->tokens);
		err = glake_kv_fork(kv, slot, want, TOKENS, stream, &other);
		settle();
		if (!err) {
			list[other] = (struct model){
				.live = true, .most = TOKENS, .domain = m->domain};
			return branch(kv, o, m, &list[other], want) &&
				has_tokens(kv, other, &list[other]);
		}
		for (other = 0; other < SLOTS && list[other].live;)
			other++;
		return err == -ENOMEM || (err == -EBUSY && other == SLOTS);
	case 5:
		if (!m->tokens)
			return true;
		want = 1 + chance(seed, m->tokens);
		err = glake_kv_publish(kv, slot, want, key, 4, stream);
		settle();
		if (!err) {
			/* one key in two domains is two */
			for (p = SLOTS; p < PLACES && list[p].live;)
				p++;
			if (p == PLACES)
				return false;
			list[p] = (struct model){
				.live = true, .most = key[0], .domain = m->domain};
			if (!branch(kv, o, m, &list[p], want))
				return false;
		}
		return !err || err == -EEXIST || err == -ENOMEM || err == -EBUSY;
	case 6:
	case 7:
		for (p = SLOTS; p < PLACES; p++) {
			if (list[p].live && list[p].most == key[0] &&
				list[p].domain == m->domain)
				break;
		}
		err = glake_kv_adopt(kv, slot, key, 4, stream, &want);
		settle();
		if (!err) {
			if (p == PLACES || want != list[p].tokens)
				return false;
			return branch(kv, o, &list[p], m, want) &&
				has_tokens(kv, slot, m);
		}
		return err == -ENOMEM || (err == -EBUSY && m->tokens) ||
			(err == -ENOENT && p == PLACES) ||
			(err == -ERANGE && list[p].tokens > m->most);
	case 8:
		for (p = SLOTS; p < PLACES; p++) {
			if (list[p].live && list[p].most == key[0] &&
				list[p].domain == m->domain)
				break;
		}
		err = glake_kv_withdraw(kv, m->domain, key, 4, stream);
		if (p < PLACES)
			list[p].live = false;
		return err == (p < PLACES ? 0 : -ENOENT);
	case 11:
		return prefix_moves(kv, o, seed);
	case 9:
		return !glake_kv_spill(kv, slot, stream) &&
			!glake_kv_fetch(kv, slot, stream) && has_tokens(kv, slot, m);
	case 10:
		return is_given(kv, slot, m, seed);
	case 14:
		return layers_move(kv, slot, m, seed);
	default:
		want = m->tokens + chance(seed, chance(seed, 3) ? 20 : 1500);
		err = grow(kv, slot, want, o->flags & GLAKE_KV_LARGE, seed);
		if (!err && want > m->tokens) {
			uint32_t from = m->tokens;

			lengthen(o, m, want);
			marks += 5000;
			write_tokens(kv, slot, m, from, marks);
		}
		return (want > m->most ? err == -ERANGE : !err || err == -ENOMEM) &&
			has_tokens(kv, slot, m);
	}
}

static void program(uint64_t seed)
{
	static const struct glake_kv_lane lanes[LANES] = {
		{.bytes = 2048}, {.bytes = 512}, {.bytes = 3000}};
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = SLOTS,
		.tokens = TOKENS,
		.lanes = LANES,
		.lane = lanes,
		.prefixes = PREFIXES,
		.flags = seed % 3 == 0	? GLAKE_KV_TOKEN_FRONT
			: seed % 3 == 1 ? GLAKE_KV_LARGE
					: 0};
	bool large = o.flags & GLAKE_KV_LARGE;
	struct glake_kv *kv;
	uint64_t all = 0, once = 0, slack;
	bool good = true;
	int n = 0;

	memset(list, 0, sizeof(list));
	begin_with(seed % 4 || large ? "soft.memory=512MiB" : "soft.memory=64MiB",
		large ? "pool.large_page=4MiB" : NULL);
	kv = make(&o);
	for (; n < (tap_storms_take_long() ? 40 : 160) && good; n++) {
		struct glake_kv_figures f;

		good = step(kv, &o, &seed);
		f = told(kv);
		once = bytes_of(&o, &all);
		/* of a large page that is cut, what is not needed stays */
		slack = large ? (uint64_t)SLOTS * LANES * PAGE : 0;
		if (f.held < once || f.held > once + slack || f.shared != all - once ||
			figures().elastic != f.held) {
			tap_note(
				"%zu held, %zu shared, %zu committed: %zu and %zu expected",
				(size_t)f.held, (size_t)f.shared,
				(size_t)figures().elastic, (size_t)once,
				(size_t)(all - once));
			good = false;
		}
	}
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		good &= !list[slot].live || has_tokens(kv, slot, &list[slot]);
	ok(good, "a program of %d steps", n);
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	is_int((int64_t)figures().live, 0, "nothing is live");
	finish();
}

int main(void)
{
	tap_plan_later();
	for (uint64_t seed = 1; seed < 7; seed++)
		program(seed);
	return tap_done();
}
