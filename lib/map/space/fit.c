/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where a request lies: best fit by what would have to be mapped, then by whether a stream is
 * waited for with all that it was given so far, then by stream waits, then by mappings that would
 * have to go first, then by the size of the free extent, then the lowest address. Both ends of an
 * extent are tried (policy.ends), and the first place that needs nothing is taken. A slot that
 * comes into use counts a quarter of one to be mapped: that keeps pages empty that could be given
 * back.
 *
 * While too much memory is stranded in large pages of which blocks use a part, the place that
 * brings the fewest slots into use is looked for among all candidates, and an idle large page
 * that reaches beyond the place counts as one that has to go. While much lies beside blocks, only the
 * smallest few places that are mapped are compared, and near the target the smallest one is taken,
 * whatever has to be waited for: see nest.h.
 *
 * New addresses above the high-water mark count as the largest extent of all: they beat
 * addresses that must be unmapped first, and nothing else, until there are enough of them. For who
 * wants holes they are taken only if none will do, or to make the last one longer: a page that is
 * mapped in one place more leaves a hole behind whenever it is used there, and large requests of
 * another stream find no whole ones then. Pages that were made ahead above the mark are used all the
 * same.
 */
#include "map/map.h"

#include "base/conf.h"

#include <errno.h>

/* The runs of equal use after which no more extents are looked at, so that a search for a large block
 * costs about what one for a small block does. */
#define RUNS 48

/* Addresses in use over memory held from which on there are no new ones as long as a hole will
 * do: pages have no more mappings than that by default (map.aliases), so more addresses would
 * hold nothing. It bounds the tables for sizes that never repeat. */
#define WIDE 8

static bool better(const struct glk_fit *a, const struct glk_fit *b)
{
	if (!a->maps != !b->maps)
		return !a->maps;
	if (a->score != b->score)
		return a->score < b->score;
	if (a->late != b->late)
		return !a->late;
	if (a->waits != b->waits)
		return a->waits < b->waits;
	if (a->stale != b->stale)
		return a->stale < b->stale;
	if (a->size != b->size)
		return a->size < b->size;
	return a->offset < b->offset;
}

/* What the function said of a place. */
struct answer {
	struct glk_fit fit;
	bool may;
};

struct search {
	struct glk_map *map;
	const struct glk_want *want;
	struct glk_fit best;
	uint32_t looked; /* slots that the function was asked about */
	bool found;
	bool ready; /* nothing but places where nothing has to be mapped */
	bool ahead; /* pages above the high-water mark count */
	uint64_t grid;
	struct answer *answers; /* of the first look, both ends of a few extents */
	unsigned answered;
};

static bool all_usable(const struct search *s, uint32_t first, uint32_t last)
{
	return glk_bits_all(s->map->usable, first, last) &&
		(s->ahead || last < glk_map_reach(s->map));
}

/* Slots of a run that are usable as they are. */
static uint32_t count_usable(const struct search *s, uint32_t first, uint32_t last)
{
	uint32_t reach = glk_map_reach(s->map);

	if (!s->ahead && last >= reach) {
		if (first >= reach)
			return 0;
		last = reach - 1;
	}
	return glk_bits_count(s->map->usable, first, last);
}

/* Whether one idle page lies behind a place, and behind nothing else. */
static bool is_whole(const struct glk_map *map, uint32_t first, uint32_t last)
{
	struct glk_mapping m;

	if (!glk_bit_get(map->usable, first))
		return false;
	m = glk_mapping_at(map, first);
	return m.first == first && m.last == last;
}

/* Whether the pages that are behind a place suit what it is for. */
static bool suits(const struct search *s, uint32_t first, uint32_t last)
{
	const struct glk_map *map = s->map;

	switch (s->want->kind) {
	case GLK_FIT_NEST:
		return s->want->size < glk_slot_bytes(map) ||
			!glk_bit_get(map->usable, first) ||
			glk_map_page(map, map->page[first])->size == glk_slot_bytes(map);
	case GLK_FIT_WHOLE:
		return is_whole(map, first, last) ||
			!glk_bits_any(map->usable, first, last);
	case GLK_FIT_BLOCK:
		break;
	}
	return true;
}

/* An idle page at an end of a place, if it reaches beyond the place, goes; what was counted as
 * usable of it is to be mapped as well. */
static void trim(const struct search *s, uint32_t slot, uint32_t first, uint32_t last,
	struct glk_fit *fit)
{
	struct glk_mapping m = glk_fit_end(s->map, slot, first, last);

	if (m.first > m.last)
		return;
	fit->trims = true;
	fit->maps += count_usable(
		s, m.first > first ? m.first : first, m.last < last ? m.last : last);
}

/* Asks the function about a place, or takes what it said of it in the first look. */
static bool ask(struct search *s, uint32_t first, uint32_t last, struct glk_fit *fit)
{
	struct answer *answer;
	bool may;

	for (unsigned i = 0; !s->ready && i < s->answered; i++) {
		if (s->answers[i].fit.offset != fit->offset)
			continue;
		*fit = s->answers[i].fit;
		return s->answers[i].may;
	}
	may = !s->want->fn || s->want->fn(s->map, first, last, fit, s->want->arg);
	/* one that needs nothing is the last that is asked about */
	if (s->ready && !(may && !fit->maps && !fit->waits)) {
		answer = &s->answers[s->answered++];
		answer->fit = *fit;
		answer->may = may;
	}
	return may;
}

/* A place of which all slots are usable, or not. */
static void judge(
	struct search *s, uint32_t from, uint64_t extent_size, uint64_t offset, bool all)
{
	struct glk_map *map = s->map;
	uint32_t first = glk_slot_of(map, offset);
	uint32_t last = glk_slot_of(map, offset + s->want->size - 1);
	struct glk_fit fit = {.size = extent_size, .offset = offset, .from = from};
	uint32_t slots = last - first + 1, end = last + 1;

	/* of new addresses, however many they are, none was ever in use or mapped */
	if (!from && end > glk_map_end(map))
		end = glk_map_end(map);
	if (s->want->kind != GLK_FIT_BLOCK && !suits(s, first, last))
		return;
	fit.maps = all ? 0 : slots - count_usable(s, first, last);
	if (s->want->trim) {
		trim(s, first, first, last, &fit);
		if (!fit.trims || glk_mapping_at(map, first).last < last)
			trim(s, last, first, last, &fit);
	}
	if (fit.maps || s->want->trim)
		fit.score = 4 * (uint64_t)fit.maps + slots;
	if (first < end && fit.score)
		fit.score -= glk_bits_count(map->busy, first, end - 1);
	if (first < end && fit.maps)
		fit.stale = glk_bits_count_only(map->mapped, map->usable, first, end - 1);
	fit.most = fit.most_late = UINT32_MAX;
	if (s->found && !fit.maps == !s->best.maps && fit.score == s->best.score) {
		fit.most = s->best.late ? UINT32_MAX : s->best.waits;
		fit.most_late = s->best.late ? s->best.waits : 0;
	}
	/* the function only adds to the counts, so a place that loses now is not asked about */
	if (s->found && !better(&fit, &s->best))
		return;
	s->looked += 1 + slots / 64;
	if (!ask(s, first, last, &fit))
		return;
	if (s->found && !better(&fit, &s->best))
		return;
	s->best = fit;
	s->found = true;
}

static void try(struct search *s, uint32_t from, uint64_t extent_size, uint64_t offset)
{
	uint32_t first = glk_slot_of(s->map, offset);
	uint32_t last = glk_slot_of(s->map, offset + s->want->size - 1);
	bool all = all_usable(s, first, last);

	/* one where nothing has to be mapped beats all others */
	if (all || (!s->ready && (!s->found || s->best.maps)))
		judge(s, from, extent_size, offset, all);
}

/* What a place begins at a multiple of, less one: a nest of its size, a page of its own of a slot. */
static uint64_t grid(const struct glk_map *map, const struct glk_want *want)
{
	if (want->kind == GLK_FIT_BLOCK)
		return 0;
	return (want->kind == GLK_FIT_NEST ? want->size : glk_slot_bytes(map)) - 1;
}

static uint64_t up(const struct search *s, uint64_t offset)
{
	return (offset + s->grid) & ~s->grid;
}

static uint64_t down(const struct search *s, uint64_t offset)
{
	return offset & ~s->grid;
}

static bool fits_new(const struct search *s, uint64_t offset)
{
	return offset <= s->map->end && s->want->size <= s->map->end - offset;
}

/* Whether there are addresses enough for all mappings. */
static bool is_wide(const struct glk_map *map)
{
	const struct glk_range *newest = &map->range[map->ranges - 1];
	uint64_t unused = newest->offset + newest->size - map->high;

	return (map->size - unused) / WIDE > glk_load_relaxed(&map->node->held);
}

static void try_at(struct search *s, uint64_t offset)
{
	if (!s->found && fits_new(s, offset))
		try(s, 0, UINT64_MAX, offset);
}

/*
 * Above the high-water mark, with the free extent that ends there if it is too short alone.
 * Where that place is vetoed, the mark itself, and then the first slot that nothing was ever
 * mapped at.
 */
static void try_new(struct search *s)
{
	struct glk_map *map = s->map;
	const struct glk_extent *tail = glk_extent_at(map, map->last);
	uint64_t offset = map->high;
	bool found = s->found, grows;

	grows = map->last && glk_extent_state(tail) == GLK_EXTENT_FREE && !tail->nested &&
		tail->size < s->want->size;
	if (found && !s->ahead &&
		(s->want->holes ? !grows : !s->best.waits && is_wide(map)))
		return;
	if (grows)
		offset = tail->offset;
	offset = up(s, offset);
	if (fits_new(s, offset))
		try(s, 0, UINT64_MAX, offset);
	if (found)
		return;
	try_at(s, up(s, map->high));
	try_at(s, (uint64_t)glk_map_end(map) << map->shift);
}

/* Whether no place that is looked at later is better. */
static bool settled(const struct search *s)
{
	return s->found && !s->best.score && (!s->best.waits || s->map->tight);
}

/* Whether others are not looked at any more, though one may be better. */
static bool is_done(const struct search *s)
{
	return settled(s) || (s->found && !s->best.maps && s->map->packs);
}

static void try_extent(struct search *s, uint32_t id)
{
	const struct glk_extent *e = glk_extent_at(s->map, id);
	uint64_t low = up(s, e->offset), size = s->want->size, high;
	int ends = s->map->ends;

	if (low > e->offset + e->size || e->offset + e->size - low < size)
		return;
	high = down(s, e->offset + e->size - size);
	if (ends != GLK_POLICY_ENDS_HIGH)
		try(s, id, e->size, low);
	if (ends == GLK_POLICY_ENDS_HIGH ||
		(ends == GLK_POLICY_ENDS_BOTH && high > low && !settled(s)))
		try(s, id, e->size, high);
}

/* Of the extents of at least `size` bytes the first `max`. */
static void try_extents(struct search *s, uint64_t size, unsigned max)
{
	struct glk_tree_walk walk GLK_UNFILLED;
	uint32_t id;

	glk_tree_begin(&walk, &s->map->common, size);
	for (unsigned i = 0; i < max && !settled(s); i++) {
		if (i >= GLK_FIT_FEW && s->looked > RUNS)
			break;
		id = glk_tree_next(s->map, &walk);
		if (!id)
			break;
		try_extent(s, id);
	}
}

int glk_fit_search(
	struct glk_map *map, const struct glk_want *want, struct glk_fit *ret_fit)
{
	struct answer answers[2 * GLK_FIT_FEW] GLK_UNFILLED;
	struct search s = {.map = map,
		.want = want,
		.ready = !want->trim,
		.grid = grid(map, want),
		.answers = answers};

	/* most requests are settled by one of the first few as it is, and what the others would cost
	 * is not found out for them */
	if (s.ready)
		try_extents(&s, want->size, GLK_FIT_FEW);
	if (!is_done(&s)) {
		s.ready = s.found = false;
		s.looked = 0;
		try_extents(&s, want->size, GLK_FIT_CANDIDATES);
	}
	/* all of those may begin beside a slot, or an eighth; these hold whole ones wherever they begin */
	if (!s.found && want->kind != GLK_FIT_BLOCK)
		try_extents(&s, want->size + s.grid + 1, GLK_FIT_FEW);
	if (!is_done(&s))
		try_new(&s);
	if (!s.found)
		return -ENOMEM;
	*ret_fit = s.best;
	return 0;
}

uint32_t glk_fit_ahead(
	struct glk_map *map, const struct glk_want *want, struct glk_fit *fit)
{
	struct search s = {.map = map,
		.want = want,
		.best = *fit,
		.found = true,
		.ahead = true,
		.grid = grid(map, want)};
	uint32_t maps = fit->maps;

	if (map->ahead <= glk_map_fresh(map) || (fit->from && is_wide(map)))
		return 0;
	try_new(&s);
	/* the free extent before the mark may lack pages that are there behind it */
	if (s.best.maps && fits_new(&s, up(&s, map->high)))
		try(&s, 0, UINT64_MAX, up(&s, map->high));
	*fit = s.best;
	return maps > s.best.maps ? maps - s.best.maps : 0;
}
