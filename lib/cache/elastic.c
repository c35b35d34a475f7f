/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Elastic blocks: addresses that memory is committed behind by ranges, and taken from again, see glake/elastic.h.
 * Such a block is born as if all of it had been dropped, told by pieces (part.h), and a piece of which nothing is
 * committed is bare: it does not come back with a fetch or a resumption. To commit is to have a bare piece back, to
 * decommit is to drop what is there, so that all that moves blocks knows them as it knows blocks that are away
 * in part.
 *
 * What counts as live of it, for its tag too, is what is committed.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/asked.h"
#include "cache/bin/hit.h"
#include "cache/cache.h"
#include "cache/fetch.h"
#include "cache/sealed.h"
#include "cache/tag/tag.h"

#include <errno.h>
#include <inttypes.h>

#include <glake/elastic.h>

/* ---- Born ---- */

/* Whole slots with as little mapped there as can be, and no pages. */
static int place(struct glk_arena *arena, struct glk_request *request, uint32_t *ret_id)
{
	struct glk_map *map = &arena->map;
	struct glk_want want = {.size = request->rounded, .kind = GLK_FIT_WHOLE};
	struct glk_fit fit;
	int err;

	err = glk_place_seek(arena, request, &want, &fit);
	if (err == -ENOMEM && glk_arena_idle(&arena->gpu->arena, arena->gpu->node)) {
		/* idle pages lie where there would be a place */
		glk_event_poll(&arena->gpu->streams);
		glk_plan_begin(arena->gpu);
		glk_trim_release(&arena->gpu->arena, arena->gpu->node, UINT64_MAX,
			UINT32_MAX, NULL);
		glk_plan_end(arena->gpu);
		err = glk_place_seek(arena, request, &want, &fit);
	}
	if (err)
		return err;
	return glk_extent_carve(map, fit.from, fit.offset, request->rounded, ret_id);
}

static int make(struct glk_arena *arena, struct glk_request *request,
	struct CUstream_st *name, uint64_t *ret_addr)
{
	struct glk_map *map = &arena->map;
	struct glk_cache *cache = arena->gpu;
	struct glk_extent *e;
	uint32_t id;
	int err;

	err = place(arena, request, &id);
	if (err)
		return err;
	e = glk_extent_at(map, id);
	glk_store_relaxed(&e->slack, (uint32_t)(e->size - request->size));
	glk_store_relaxed(&e->stream, (uint16_t)request->stream->id);
	glk_store_relaxed(&e->whole, false);
	err = glk_part_elastic(arena, e, request->flags & GLAKE_ALLOC_GROWS);
	if (err) {
		glk_store_relaxed(&e->bin, 0);
		glk_extent_give_back(map, id);
		return err;
	}
	cache->bare += e->size;
	cache->elastic_blocks++;
	glk_tag_of(arena)->blocks++;
	glk_quick_born(glk_quick_row(cache, request->stream->id, name), 0);
	glk_lookup_enter(map, id);
	glk_seat_alloc(glk_slab_at(&cache->seats, 0), 0, 0);
	cache->served++;
	*ret_addr = glk_load_relaxed(&e->addr);
	return 0;
}

int glk_cache_elastic(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr)
{
	struct glk_request request = {.size = size, .flags = flags, .patient = true};
	uint32_t tag = glk_seat_tag(cache), on = 0;
	struct glk_arena *arena;
	uint64_t slot;
	int err;

	if (!size || size > cache->conf->map_span)
		return glk_error(size ? -ENOMEM : -EINVAL,
			size ? GLAKE_ERROR_ADDRESS : GLAKE_ERROR_INVAL,
			"an elastic block of %" PRIu64
			" bytes: 1 to the %s that map.span allows",
			size, glk_say_bytes(cache->conf->map_span).text);
	/* who asks about one while it changes waits, as for one that moves */
	err = glk_away_start(cache);
	if (!err)
		err = glk_stream_get(&cache->streams, stream, NULL, &on);
	if (err)
		return err;
	glk_lock(&cache->lock);
	err = glk_plan_ask(cache);
	if (err) {
		glk_unlock(&cache->lock);
		return err;
	}
	request.stream = glk_stream_enter(&cache->streams, on);
	err = glk_tag_elastic(cache, tag, &arena);
	if (!err) {
		slot = glk_slot_bytes(&arena->map);
		request.rounded = (size + slot - 1) & ~(slot - 1);
		err = make(arena, &request, glk_stream_name(stream), ret_addr);
	}
	glk_plan_leave(cache);
	glk_unlock(&cache->lock);
	return err;
}

int glk_elastic_beside(struct glk_arena *arena, uint32_t on, struct CUstream_st *stream,
	uint32_t slots, uint64_t *ret_addr)
{
	uint64_t bytes = (uint64_t)slots << arena->map.shift;
	struct glk_request request = {.size = bytes,
		.rounded = bytes,
		.patient = true,
		.stream = glk_stream_enter(&arena->gpu->streams, on)};

	return make(arena, &request, glk_stream_name(stream), ret_addr);
}

/* ---- Books ---- */

static uint64_t slots_of(const struct glk_map *map, uint32_t slots)
{
	return (uint64_t)slots << map->shift;
}

void glk_elastic_end(struct glk_arena *arena, const struct glk_extent *e, uint64_t stay)
{
	struct glk_row *row = &arena->gpu->rows[glk_load_relaxed(&e->stream)];
	const struct glk_part *part = glk_part_at(arena->gpu, e);
	uint64_t bare = slots_of(&arena->map, part->bare_slots);

	/* what stays was counted once */
	arena->ops->grew(
		arena, e, part->bare + stay - glk_extent_asked(e), bare + stay - e->size);
	arena->gpu->bare += stay;
	arena->gpu->shared -= stay;
	glk_poke_relaxed(&row->blocks, row->blocks - 1);
	arena->gpu->bare -= e->size;
	arena->gpu->elastic_blocks--;
	glk_tag_of(arena)->blocks--;
	glk_seat_free(glk_slab_at(&arena->gpu->seats, 0), 0, 0);
}

/* ---- Commit ---- */

/* Ranges of a block that are to change, and what did. */
struct change {
	struct glk_arena *arena;
	struct glk_extent *e;
	uint32_t on;
	const struct glk_portion *portions;
	struct glk_portion
		*went; /* these, to be told what of them did; NULL: nobody asks */
	size_t count;
	uint64_t bytes, wants; /* that came or went; that there was no room for */
	uint64_t freed;	       /* of those that went, what exists no more */
	uint64_t left;	       /* that the tag may have more */
	uint32_t how;	       /* GLK_COMMIT_... */
	bool sealed;	       /* of what goes away: that alone */
	struct glk_stretch few[32], *came; /* stretches that have come, in order */
	uint32_t done;
};

static uint64_t bytes_of(const struct change *c, struct glk_stretch s)
{
	uint64_t addr;

	return glk_part_span(&c->arena->map, c->e, s, &addr);
}

static uint64_t given_of(const struct change *c, struct glk_stretch s)
{
	return slots_of(&c->arena->map, s.last - s.first + 1);
}

static struct glk_stretch next_bare(
	const struct glk_map *map, struct glk_stretch s, uint32_t last)
{
	return s.last < last ? glk_part_bare(map, s.last + 1, last)
			     : (struct glk_stretch){1, 0};
}

/* How many bare stretches there are in the ranges, and their bytes. Ranges may overlap, so it may be fewer. */
static uint64_t measure(const struct change *c, uint32_t *ret_stretches)
{
	const struct glk_map *map = &c->arena->map;
	uint64_t bytes = 0;
	uint32_t stretches = 0;

	for (size_t i = 0; i < c->count; i++) {
		struct glk_stretch r =
			glk_portion_slots(&c->arena->map, c->e, &c->portions[i], true);
		struct glk_stretch s = glk_part_bare(map, r.first, r.last);

		for (; s.first <= s.last; s = next_bare(map, s, r.last)) {
			bytes += bytes_of(c, s);
			stretches++;
		}
	}
	*ret_stretches = stretches;
	return bytes;
}

/* Idle pages of several slots go from where such of one are wanted: they would serve there. */
static int clear_wide(struct change *c, struct glk_stretch s)
{
	const struct glk_map *map = &c->arena->map;
	uint32_t slot = glk_bits_first(map->wide, s.first, s.last);
	int err = 0;

	while (slot != GLK_BITS_NONE && !err) {
		struct glk_mapping m = glk_mapping_at(map, slot);

		if (!glk_bits_any(map->busy, m.first, m.last))
			err = glk_arena_clear(c->arena, m.first, m.last);
		slot = m.last < s.last ? glk_bits_first(map->wide, m.last + 1, s.last)
				       : GLK_BITS_NONE;
	}
	return err;
}

/* Whether a stretch is to have large pages. */
static bool is_large(const struct change *c, struct glk_stretch s)
{
	return c->how & GLK_COMMIT_LARGE && s.last - s.first + 1 >= c->arena->map.large;
}

/* It was used by nothing yet. */
static void undo(struct change *c)
{
	struct glk_use use = glk_block_use(c->arena->gpu, c->e, c->on);

	while (c->done) {
		struct glk_stretch s = c->came[--c->done];

		glk_part_depart(c->arena, c->e, s, GLK_KEPT_BARE, &use);
		c->arena->ops->grew(c->arena, c->e, -bytes_of(c, s), -given_of(c, s));
	}
	c->bytes = 0;
}

/* Stretches without any mapping, which come together: pages for all of them, and then one call of the driver after the
 * other. What it takes to look at the tables between two of them is most of what there is beside the driver. */
struct batch {
	struct glk_stretch run[GLK_MAPPING_RUNS];
	uint32_t count, slots;
	uint32_t last; /* slot of any of them */
	uint32_t page[GLK_MAPPING_RUNS];
};

static bool fits(const struct change *c, const struct batch *b, struct glk_stretch s)
{
	const struct glk_map *map = &c->arena->map;

	return glk_part_is_single(c->arena->gpu, c->e) && !is_large(c, s) &&
		s.last - s.first < GLK_MAPPING_RUNS - b->slots &&
		!glk_bits_any(map->mapped, s.first, s.last) &&
		!glk_is_claimed(map, s.first, s.last);
}

static void add(struct batch *b, struct glk_stretch s)
{
	b->last = b->count && b->last > s.last ? b->last : s.last;
	b->run[b->count++] = s;
	b->slots += s.last - s.first + 1;
}

/* Whether any of a stretch is in it already. Mostly they come in order. */
static bool has(const struct batch *b, struct glk_stretch s)
{
	for (uint32_t i = 0; s.first <= b->last && i < b->count; i++) {
		if (b->run[i].first <= s.last && s.first <= b->run[i].last)
			return true;
	}
	return false;
}

static int map_batch(struct change *c, struct batch *b, struct glk_request *request)
{
	struct glk_map *map = &c->arena->map;
	struct glk_use never = {0};
	uint32_t pages, n = 0;
	int err = glk_arena_pages(c->arena, request, &pages);

	if (err)
		return err;
	for (; pages; pages = glk_page_next(map, pages))
		b->page[n++] = pages;
	glk_plan_begin(c->arena->gpu);
	for (uint32_t i = 0; i < b->count; i++) {
		glk_slots_enter(map, b->run[i].first, b->run[i].last);
		glk_claim(map, b->run[i].first, b->run[i].last);
	}
	err = glk_mapping_make_runs(map, b->run, b->count, b->page);
	for (uint32_t i = 0; i < b->count; i++) {
		glk_unclaim(map, b->run[i].first, b->run[i].last);
		if (err)
			glk_slots_leave(map, b->run[i].first, b->run[i].last, &never);
	}
	for (uint32_t i = 0; err && i < n; i++) {
		/* lost, with a mapping that the driver kept */
		if (glk_page_state(glk_map_page(map, b->page[i])) == GLK_PAGE_OWNED)
			glk_page_put_back(map, b->page[i]);
	}
	glk_plan_end(c->arena->gpu);
	return err;
}

/* Stretches come with the pages of a request: those of a batch, or one by itself. The tag of the block pledges them
 * meanwhile. */
static int have(struct change *c, struct glk_request *request,
	const struct glk_stretch *run, uint32_t count, struct batch *b)
{
	struct glk_cache *cache = c->arena->gpu;
	struct glk_tag *tag = glk_tag_of(c->arena);
	uint32_t none[2] = {0, 0};
	int err;

	for (uint32_t i = 0; i < count; i++) {
		request->size += bytes_of(c, run[i]);
		request->rounded += given_of(c, run[i]);
	}
	request->stream = glk_stream_enter(&cache->streams, c->on);
	err = glk_limit_pledge(
		cache, &tag->limit, tag->live, "the tag of this block", request->size);
	if (err)
		return err;
	err = b ? map_batch(c, b, request)
		: glk_arena_back(c->arena, request, glk_extent_id(&c->arena->map, c->e));
	tag->limit.pledged -= request->size;
	if (err)
		return err;
	for (uint32_t i = 0; i < count; i++) {
		glk_part_arrive(c->arena, c->e, run[i], 0, none);
		c->came[c->done++] = run[i];
	}
	c->arena->ops->grew(c->arena, c->e, request->size, request->rounded);
	c->bytes += request->size;
	return 0;
}

static int come(struct change *c, struct glk_stretch s)
{
	bool large = is_large(c, s);
	/* what would reach beyond an end goes elsewhere */
	struct glk_request request = {.patient = true,
		.run = &s,
		.single = glk_part_is_single(c->arena->gpu, c->e) && !large,
		.trim = large};
	int err = request.single ? clear_wide(c, s) : 0;

	return err ? err : have(c, &request, &s, 1, NULL);
}

static int come_together(struct change *c, struct batch *b)
{
	/* all of them pages of one slot, as at the beginning of a run */
	struct glk_request request = {.patient = true, .single = true, .lead = b->slots};
	int err = b->count ? have(c, &request, b->run, b->count, b) : 0;

	b->count = b->slots = 0;
	return err;
}

static int come_all(struct change *c)
{
	const struct glk_map *map = &c->arena->map;
	struct batch b;
	int err = 0;

	b.count = b.slots = 0;
	for (size_t i = 0; i < c->count && !err; i++) {
		struct glk_stretch r =
			glk_portion_slots(&c->arena->map, c->e, &c->portions[i], true);
		struct glk_stretch s = glk_part_bare(map, r.first, r.last);

		for (; !err && s.first <= s.last; s = next_bare(map, s, r.last)) {
			bool fit = fits(c, &b, s);

			/* one that is in the batch comes again where ranges overlap */
			if (b.count && (!fit || has(&b, s))) {
				err = come_together(c, &b);
				s = glk_part_bare(map, s.first, s.last);
				if (err || s.first > s.last)
					break;
				fit = fits(c, &b, s);
			}
			if (fit)
				add(&b, s);
			else
				err = come(c, s);
		}
		glk_plan_step(c->arena->gpu);
	}
	return err ? err : come_together(c, &b);
}

/* With the room that cold blocks leave where there is none, as for a request. */
static int come_somehow(struct change *c, uint64_t bytes)
{
	struct glk_cache *cache = c->arena->gpu;
	int err = come_all(c);

	while (err == -ENOMEM && c->how & GLK_COMMIT_INSISTS && glk_victim_cold(cache) &&
		glk_thread_current->error.error_class == GLAKE_ERROR_NOMEM_DEVICE &&
		glk_ladder_cold(cache, bytes - c->bytes))
		err = come_all(c);
	return err;
}

/* All ranges lie in the block, which is elastic. */
static int check(const struct change *c)
{
	uint64_t asked = glk_extent_asked(c->e);

	int err = glk_part_check_elastic(c->arena, c->e);

	for (size_t i = 0; i < c->count && !err; i++) {
		const struct glk_portion *p = &c->portions[i];

		if (!p->bytes)
			return glk_error(
				-EINVAL, GLAKE_ERROR_INVAL, "a range of 0 bytes");
		if (p->offset >= asked || p->bytes > asked - p->offset)
			return glk_error(-ERANGE, GLAKE_ERROR_INVAL,
				"%" PRIu64 " bytes at %" PRIu64
				" reach past an elastic block of %" PRIu64 " bytes",
				p->bytes, p->offset, asked);
	}
	return err;
}

/* Bytes that the tag of the block may have more. */
static uint64_t left_of(const struct glk_arena *arena)
{
	const struct glk_tag *tag = glk_tag_of(arena);
	uint64_t taken = tag->live + tag->limit.pledged;

	if (!tag->limit.most)
		return UINT64_MAX;
	return tag->limit.most > taken ? tag->limit.most - taken : 0;
}

static int commit(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	uint32_t said = glk_advice_of(arena, e), stretches;
	struct change *c = how->arg;
	uint64_t bytes;
	size_t size;
	int err;

	c->arena = arena;
	c->e = e;
	c->on = on;
	err = check(c);
	if (err)
		return err;
	bytes = measure(c, &stretches);
	if (!bytes)
		return 0;
	size = stretches * sizeof(*c->came);
	c->came = size <= sizeof(c->few) ? c->few : glk_region_new(size);
	if (!c->came)
		return -ENOMEM;
	/* it makes no room for itself, and may be cold with what it has then */
	glk_advice_set(arena, e, GLAKE_ADVICE_NORMAL);
	err = come_somehow(c, bytes);
	if (err)
		undo(c);
	else
		glk_away_mark(arena->gpu, e, on);
	glk_part_settle(arena, e, on, err);
	glk_advice_set(arena, e, said);
	if (c->came != c->few)
		glk_region_free(c->came, size);
	c->wants = err == -ENOMEM ? bytes : 0;
	c->left = left_of(arena);
	return err;
}

/* ---- Decommit ---- */

/* Whether the block stands on any of the slots. */
static bool stands(const struct change *c, uint32_t first, uint32_t last)
{
	const struct glk_map *map = &c->arena->map;
	struct glk_stretch s = glk_part_next(map, c->e, first, last, false);

	return s.first <= s.last;
}

/* Of a stretch that is here, what goes with whole pages: at an end not a page that the rest of the block stands
 * on too. */
static struct glk_stretch whole_pages(const struct change *c, struct glk_stretch s)
{
	const struct glk_map *map = &c->arena->map;
	struct glk_mapping m = glk_mapping_at(map, s.first);

	if (m.first < s.first && stands(c, m.first, s.first - 1))
		s.first = m.last + 1;
	if (s.first > s.last)
		return s;
	m = glk_mapping_at(map, s.last);
	if (m.last > s.last && stands(c, s.last + 1, m.last))
		s.last = m.first - 1;
	return s;
}

/* A stretch that goes, and whether its memory stays, for another range of the block. */
static void note_gone(struct change *c, struct glk_stretch s, bool stays)
{
	struct glk_part *part = glk_part_at(c->arena->gpu, c->e);
	uint64_t bytes = bytes_of(c, s);

	c->bytes += bytes;
	if (stays) {
		part->shared -= bytes;
		c->arena->gpu->shared -= bytes;
		c->arena->gpu->bare += bytes;
		return;
	}
	c->freed += bytes;
	c->arena->ops->grew(c->arena, c->e, -bytes, -given_of(c, s));
}

/* Of a stretch that is here what goes at once: each sealed page by itself. */
static struct glk_stretch next_going(const struct change *c, uint32_t slot, uint32_t last)
{
	const struct glk_map *map = &c->arena->map;
	struct glk_stretch s = glk_part_next(map, c->e, slot, last, false);

	if (s.first > s.last || !glk_part_at(c->arena->gpu, c->e)->sealed)
		return s;
	s = glk_part_alike(map, s);
	if (glk_is_sealed(map, s.first)) {
		struct glk_mapping m = glk_mapping_at(map, s.first);

		s.last = m.last < s.last ? m.last : s.last;
	}
	return s;
}

static void go_here(struct change *c, struct glk_stretch r, const struct glk_use *use)
{
	const struct glk_map *map = &c->arena->map;
	struct glk_stretch s = next_going(c, r.first, r.last), in;

	for (; s.first <= s.last; s = next_going(c, s.last + 1, r.last)) {
		in = whole_pages(c, s);
		if (in.first + 1 > in.last + 1)
			continue;
		note_gone(c, in,
			glk_is_sealed(map, in.first) &&
				glk_seal_stays(c->arena, in.first, 0));
		glk_part_depart(c->arena, c->e, in, GLK_KEPT_BARE, use);
		glk_plan_step(c->arena->gpu);
	}
}

/* Contents that are away are forgotten. */
static int go_away(struct change *c, struct glk_stretch r)
{
	const struct glk_map *map = &c->arena->map;
	struct glk_stretch s = glk_part_kept(map, c->e, r.first, r.last);
	struct glk_piece p;
	bool stays;
	int err = 0;

	for (; s.first <= s.last && !err;
		s = glk_part_kept(map, c->e, s.last + 1, r.last)) {
		p = glk_part_piece(c->arena, c->e, s.first);
		s.last = p.s.last < r.last ? p.s.last : r.last;
		/* a page that is sealed goes as a whole */
		if (p.word & GLK_KEPT_SEALED &&
			(p.s.first < s.first || p.s.last > s.last))
			continue;
		stays = p.word & GLK_KEPT_SEALED &&
			glk_seal_stays(c->arena, s.first, p.word);
		err = glk_fetch_nothing(c->arena, c->e, s);
		if (!err)
			note_gone(c, s, stays);
	}
	return err;
}

/* A portion begins behind the page that has stayed, since what lies before it needs it. */
static void tell_went(const struct change *c, struct glk_portion *p)
{
	const struct glk_map *map = &c->arena->map;
	uint32_t slot = glk_portion_slots(map, c->e, p, false).first;
	uint64_t stay;

	if (glk_part_gone(map, c->e, slot))
		return;
	stay = slots_of(map, glk_mapping_at(map, slot).last + 1 - slot);
	stay = stay < p->bytes ? stay : p->bytes;
	p->offset += stay;
	p->bytes -= stay;
}

static int decommit(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct change *c = how->arg;
	struct glk_use use;
	int err;

	c->arena = arena;
	c->e = e;
	c->on = on;
	err = check(c);
	if (err)
		return err;
	use = glk_block_use(arena->gpu, e, on);
	for (size_t i = 0; i < c->count && !err; i++) {
		struct glk_stretch r =
			glk_portion_slots(&arena->map, e, &c->portions[i], false);

		if (r.first + 1 > r.last + 1)
			continue;
		err = go_away(c, r);
		if (!err)
			go_here(c, r, &use);
		glk_plan_step(arena->gpu);
	}
	for (size_t i = 0; i < c->count && c->went && !err; i++)
		tell_went(c, &c->went[i]);
	glk_part_settle(arena, e, on, err);
	return err;
}

/* ---- In the hands of another call ---- */

int glk_elastic_come(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_portion *portions, size_t count, uint32_t how,
	uint64_t *ret_wants)
{
	struct change c = {.portions = portions, .count = count, .how = how};
	const struct glk_asking asking = {.arg = &c};
	int err = commit(arena, e, on, &asking);

	*ret_wants = c.wants;
	return err;
}

uint64_t glk_elastic_go(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_portion *portions, size_t count)
{
	struct change c = {.arena = arena, .e = e, .on = on};
	struct glk_use use = glk_block_use(arena->gpu, e, on);

	for (size_t i = 0; i < count; i++)
		go_here(&c, glk_portion_slots(&arena->map, e, &portions[i], true), &use);
	return c.freed;
}

/* ---- Out ---- */

/* Ranges whose pages others have: while there are any, nothing of the block moves. */

struct ranging {
	const struct glk_portion *portion;
	struct glk_pin *pin;
};

static int check_slot(
	const struct glk_arena *arena, const struct glk_extent *e, uint32_t slot)
{
	const struct glk_map *map = &arena->map;

	if (glk_part_gone(map, e, slot))
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"a part of the range is away, or not committed");
	if (glk_map_is_host(map, map->page[slot]))
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"only pages of the GPU leave an elastic block");
	return 0;
}

static int pin_portion(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	const struct ranging *r = how->arg;
	struct glk_stretch s;
	uint32_t pages = 0;
	int err;

	(void)on;
	err = glk_part_check_elastic(arena, e);
	if (!err)
		err = glk_portion_check(e, r->portion);
	if (err)
		return err;
	s = glk_portion_slots(&arena->map, e, r->portion, true);
	for (uint32_t slot = s.first; slot <= s.last && !err; slot++) {
		err = check_slot(arena, e, slot);
		pages += slot == s.first || glk_bit_get(arena->map.head, slot);
	}
	if (err)
		return err;
	glk_part_at(arena->gpu, e)->outs++;
	*r->pin = (struct glk_pin){
		.range = glk_cache_range(arena->gpu, glk_load_relaxed(&e->addr)),
		.base = glk_load_relaxed(&e->addr) + r->portion->offset,
		.size = r->portion->bytes,
		.first = s.first,
		.last = s.last,
		.count = pages};
	return 0;
}

int glk_cache_pin_portion(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portion, struct CUstream_st *stream,
	struct glk_pin *ret_pin)
{
	struct ranging r = {.portion = portion, .pin = ret_pin};
	const struct glk_asking how = {.fn = pin_portion, .arg = &r};

	return glk_asked(cache, addr, stream, &how);
}

void glk_cache_unpin_portion(struct glk_cache *cache, uint64_t addr)
{
	struct glk_arena *arena;
	struct glk_extent *e;

	glk_lock(&cache->lock);
	/* who waits for one that moves gives its place in a plan up meanwhile */
	glk_plan_enter(cache);
	e = glk_away_find(cache, addr, &arena);
	if (e)
		glk_part_at(cache, e)->outs--;
	glk_plan_leave(cache);
	glk_unlock(&cache->lock);
}

/* ---- Away ---- */

static int send(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct change *c = how->arg;
	const struct glk_part_way way = {.on = on, .sealed = c->sealed};
	int err = 0;

	for (size_t i = 0; i < c->count && !err; i++)
		err = glk_portion_leave(arena, e, &way, &c->portions[i]);
	if (glk_extent_away(e))
		glk_advice_leave(arena, e);
	glk_mover_mark(&arena->gpu->mover);
	return err;
}

int glk_elastic_send(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portions, size_t count, bool sealed,
	struct CUstream_st *stream)
{
	struct change c = {.portions = portions, .count = count, .sealed = sealed};
	const struct glk_asking how = {.fn = send, .arg = &c};

	return glk_asked(cache, addr, stream, &how);
}

/* ---- Asked ---- */

bool glk_elastic_ask(struct glk_cache *cache, uint64_t wants, struct CUstream_st *stream)
{
	struct glk_request request = {.rounded = wants};
	bool may;

	glk_lock(&cache->lock);
	may = wants && glk_shortage_may_ask(cache, &request);
	glk_unlock(&cache->lock);
	if (may)
		glk_shortage_ask(cache, wants, stream, 0);
	return may;
}

/* How much of what there is no room for there would be. */
static uint64_t room_for(struct glk_cache *cache, const struct change *c)
{
	uint64_t slot, room;

	glk_lock(&cache->lock);
	slot = glk_slot_bytes(&cache->arena.map);
	room = glk_cache_room(cache);
	glk_unlock(&cache->lock);
	room = (room < c->left ? room : c->left) & ~(slot - 1);
	return room < c->wants ? room : c->wants;
}

int glk_elastic_commit(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portions, size_t count, struct CUstream_st *stream,
	uint32_t how, uint64_t *ret_wants)
{
	struct change c = {.portions = portions, .count = count, .how = how};
	struct glk_asking asking = {.fn = commit, .takes = true, .arg = &c};
	int err = glk_asked(cache, addr, stream, &asking);

	*ret_wants = c.wants;
	return err;
}

int glk_cache_commit(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portions, size_t count, struct CUstream_st *stream,
	uint64_t *ret_bytes)
{
	struct change c = {
		.portions = portions, .count = count, .how = GLK_COMMIT_INSISTS};
	struct glk_asking how = {.fn = commit, .takes = true, .arg = &c};
	int err = glk_asked(cache, addr, stream, &how);

	if (err == -ENOMEM && glk_elastic_ask(cache, c.wants, stream))
		err = glk_asked(cache, addr, stream, &how);
	*ret_bytes = err == -ENOMEM ? room_for(cache, &c) : c.bytes;
	return err;
}

static int go(struct glk_cache *cache, uint64_t addr, struct change *c,
	struct CUstream_st *stream, uint64_t *ret_bytes, uint64_t *ret_freed)
{
	const struct glk_asking how = {.fn = decommit, .arg = c};
	int err = glk_asked(cache, addr, stream, &how);

	*ret_bytes = c->bytes;
	*ret_freed = c->freed;
	return err;
}

int glk_elastic_decommit(struct glk_cache *cache, uint64_t addr,
	struct glk_portion *portions, size_t count, struct CUstream_st *stream,
	uint64_t *ret_bytes, uint64_t *ret_freed)
{
	struct change c = {.portions = portions, .went = portions, .count = count};

	return go(cache, addr, &c, stream, ret_bytes, ret_freed);
}

int glk_cache_decommit(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portions, size_t count, struct CUstream_st *stream,
	uint64_t *ret_bytes)
{
	struct change c = {.portions = portions, .count = count};
	uint64_t freed;

	return go(cache, addr, &c, stream, ret_bytes, &freed);
}
