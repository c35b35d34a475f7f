/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The walk of the addresses of a GPU, for people: see glake/map.h.
 *
 * Blocks are found by the tables of lookup; what lies between them is told by its slots alone,
 * whatever free extents it is of. So nothing has to be remembered from one turn with the lock to the
 * next but an address. A turn ends after so many runs or steps; what it found is handed out when the
 * lock was given back.
 *
 * Cost		a step for a block, for a slot of free addresses that are mapped, for 64 slots of a
 *		block, and for 4096 that have neither. A block on the host, some of whose pages have
 *		come to the GPU, and one that is away, cost a step for each mapped slot
 */
#include "cache/block.h"
#include "cache/cache.h"
#include "cache/graph/graph.h"
#include "cache/managed/managed.h"
#include "cache/tag/tag.h"

#define RUNS  32  /* of a turn: they lie on the stack */
#define STEPS 512 /* likewise: about 20 us */
#define SKIP  4096

struct turn {
	struct glk_cache *cache;
	const struct glk_range *range;
	struct glk_arena *arena;
	uint64_t at;	 /* address; everything below has been told */
	uint64_t offset; /* the same, in the map */
	uint64_t end;	 /* of what is walked of the range, in the map */
	unsigned steps, count;
	bool done;
	struct glake_run runs[RUNS];
};

/* ---- Where ---- */

/* What there may be to see in a range ends here, in the map. */
static uint64_t end_of(const struct glk_map *map, const struct glk_range *range)
{
	uint64_t end = range->offset + range->size, seen;

	if (range != &map->range[map->ranges - 1])
		return end;
	seen = (uint64_t)glk_map_end(map) << map->shift;
	return seen < end ? seen : end;
}

static void look_at_ranges(struct turn *t, struct glk_arena *arena)
{
	const struct glk_map *map = &arena->map;

	for (unsigned i = 0; i < map->ranges; i++) {
		const struct glk_range *range = &map->range[i];
		uint64_t last = range->base + (end_of(map, range) - range->offset);

		if (last <= t->at || last == range->base ||
			(t->range && range->base >= t->range->base))
			continue;
		t->range = range;
		t->arena = arena;
	}
}

/* The range at or behind the address; none: the walk is over. */
static void find_range(struct turn *t)
{
	struct glk_graphs *graphs = glk_graphs(t->cache);
	struct glk_graph *graph;
	struct glk_managed *managed = t->cache->managed;

	t->range = NULL;
	for (struct glk_arena *a = &t->cache->arena; a; a = a->next)
		look_at_ranges(t, a);
	for (uint32_t i = 0; (graph = glk_graph_next(graphs, &i));)
		look_at_ranges(t, &graph->arena);
	for (uint32_t i = 0; managed && i < managed->used; i++) {
		if (managed->at[i].state == GLK_CHUNK_READY)
			look_at_ranges(t, &managed->at[i].arena);
	}
	t->done = !t->range;
	if (t->done)
		return;
	if (t->at < t->range->base)
		t->at = t->range->base;
	t->offset = t->at - t->range->base + t->range->offset;
	t->end = end_of(&t->arena->map, t->range);
}

static void go_to(struct turn *t, uint64_t offset)
{
	t->at += offset - t->offset;
	t->offset = offset;
}

/* ---- What ---- */

static struct CUstream_st *handle_of(const struct glk_cache *cache, uint32_t stream)
{
	return glk_peek_relaxed(&glk_stream_at(&cache->streams, stream)->handle);
}

static struct glake_run run_of(const struct turn *t, uint64_t end, int state)
{
	struct glake_run run = {.sz = sizeof(run),
		.address = t->at,
		.size = end - t->offset,
		.state = state,
		.arena = t->arena->ops->kind};

	if (run.arena == GLAKE_ARENA_POOL)
		run.pool = glk_graph_of(t->arena)->id;
	if (run.arena == GLAKE_ARENA_TAG)
		run.tag = glk_load_relaxed(&glk_tag_of(t->arena)->id);
	return run;
}

/* Bytes of [begin, end) that lie in slots with a bit. */
static uint64_t bytes_with(
	const struct glk_map *map, const uint64_t *bits, uint64_t begin, uint64_t end)
{
	uint32_t first = glk_slot_of(map, begin), last = glk_slot_of(map, end - 1);
	uint64_t bytes = (uint64_t)glk_bits_count(bits, first, last) << map->shift;

	if (glk_bit_get(bits, first))
		bytes -= begin - ((uint64_t)first << map->shift);
	if (glk_bit_get(bits, last))
		bytes -= ((uint64_t)(last + 1) << map->shift) - end;
	return bytes;
}

/* The work that is waited for: a stream of those that the use names. */
static struct CUstream_st *late_of(struct glk_cache *cache, struct glk_use use)
{
	glk_clock_forget(&cache->streams, &use);
	if (!use.streams)
		return NULL;
	return handle_of(cache,
		use.streams == GLK_USE_CROWD && use.named
			? glk_use_first(use.named)
			: cache->streams.by_bit[__builtin_ctzll(use.streams)]);
}

/* What a slot is that no block stands on, in a part of it; and whose work it waits for. */
static int state_of_slot(
	const struct turn *t, uint32_t slot, struct CUstream_st **ret_late)
{
	const struct glk_map *map = &t->arena->map;
	const struct glk_page *page = glk_map_page(map, map->page[slot]);
	struct glk_mapping m;
	struct glk_use use;

	*ret_late = NULL;
	if (!glk_bit_get(map->mapped, slot))
		return GLAKE_RUN_HOLE;
	if (!map->page[slot])
		return GLAKE_RUN_LEAVING;
	m = glk_mapping_at(map, slot);
	/* one that was sealed waits */
	if (page->sealed && !page->sealers && page->first_alias == m.first) {
		use = page->aliases > 1 ? page->use : glk_use_at(map, slot);
		*ret_late = late_of(t->cache, use);
		return GLAKE_RUN_LIMBO;
	}
	if (!glk_bit_get(map->usable, slot))
		return GLAKE_RUN_ALIAS;
	if (glk_bits_any(map->busy, m.first, m.last))
		return GLAKE_RUN_REST;
	if (page->first_alias != m.first)
		return GLAKE_RUN_ALIAS;
	use = glk_use_of_page(map, slot);
	if (glk_clock_finished(&t->cache->streams, &use))
		return GLAKE_RUN_IDLE;
	*ret_late = late_of(t->cache, use);
	return GLAKE_RUN_LIMBO;
}

/* Memory behind so many bytes of a slot, if any counts there. */
static void add_slot(struct glake_run *run, const struct turn *t, uint32_t slot,
	uint64_t bytes, int state)
{
	const struct glk_map *map = &t->arena->map;

	if (run->arena == GLAKE_ARENA_MANAGED)
		return;
	if (state != GLAKE_RUN_REST && state != GLAKE_RUN_IDLE &&
		state != GLAKE_RUN_LIMBO)
		return;
	if (glk_map_node(map, map->page[slot]) == t->cache->node)
		run->gpu_bytes += bytes;
	else
		run->host_bytes += bytes;
	if (glk_bit_get(map->wide, slot))
		run->large_bytes += bytes;
}

/* ---- Blocks ---- */

/* Memory behind a part of a block that is here. */
static void back_block(struct glake_run *run, const struct turn *t, uint64_t end)
{
	const struct glk_map *map = &t->arena->map;
	uint64_t all = bytes_with(map, map->usable, t->offset, end);
	uint32_t last = glk_slot_of(map, end - 1);

	if (run->arena == GLAKE_ARENA_MANAGED)
		return;
	run->large_bytes = bytes_with(map, map->wide, t->offset, end);
	if (run->large_bytes > all)
		run->large_bytes = all;
	for (uint32_t slot = glk_slot_of(map, t->offset); map->hosted && slot <= last;
		slot++) {
		if (glk_bit_get(map->usable, slot) && glk_bit_get(map->host, slot))
			run->host_bytes += glk_slot_part(map, slot, t->offset, end);
	}
	run->gpu_bytes = all - run->host_bytes;
}

/* One that is away has nothing of its own behind it, but idle pages may lie at its addresses. */
static void back_away(struct glake_run *run, struct turn *t, uint64_t end)
{
	const struct glk_map *map = &t->arena->map;
	uint32_t slot = glk_slot_of(map, t->offset), last = glk_slot_of(map, end - 1);
	struct CUstream_st *late;

	for (; slot <= last; slot++, t->steps++) {
		slot = glk_bits_first(map->mapped, slot, last);
		if (slot == GLK_BITS_NONE)
			return;
		add_slot(run, t, slot, glk_slot_part(map, slot, t->offset, end),
			state_of_slot(t, slot, &late));
	}
}

/* Freed blocks become live, and live ones are freed, without the lock. */
static bool read_live(struct glk_extent *e, uint64_t *ret_asked)
{
	struct glk_live live;

	/* one that is given or freed at this moment is told as what it is about to be no more */
	if (!glk_extent_read(e, &live) && !glk_extent_read(e, &live))
		return false;
	*ret_asked = live.asked;
	return true;
}

static uint32_t flags_of(const struct turn *t, const struct glk_extent *e)
{
	return (e->nested ? GLAKE_RUN_SMALL : 0) |
		(glk_part_is_out(t->arena, e) ? GLAKE_RUN_OUT : 0) |
		(glk_load_relaxed(&e->whole) ? GLAKE_RUN_CONTIGUOUS : 0) |
		(e->offset < t->offset ? GLAKE_RUN_PART : 0);
}

/* Of one that is away in part, or elastic, what is alike from the present offset on: where it ends, and whether it
 * is away, or bare. */
static uint64_t end_of_part(const struct turn *t, const struct glk_extent *e,
	bool *ret_away, bool *ret_bare, bool *ret_shared)
{
	const struct glk_map *map = &t->arena->map;
	uint32_t slot = glk_slot_of(map, t->offset), last = glk_extent_last(map, e);
	struct glk_stretch s;
	uint64_t end;

	*ret_away = glk_part_gone(map, e, slot);
	s = glk_part_next(map, e, slot, last, *ret_away);
	if (*ret_away && glk_part_is_elastic(t->cache, e)) {
		*ret_bare = glk_bit_get(map->bare, slot);
		if (*ret_bare) {
			s = glk_part_bare(map, slot, s.last);
		} else {
			struct glk_piece p = glk_part_piece(t->arena, e, slot);

			s.last = p.s.last;
			*ret_shared = p.word & GLK_KEPT_SEALED;
		}
	}
	end = (uint64_t)(s.last + 1) << map->shift;
	return s.last < last ? end : e->offset + e->size;
}

/* Bytes that were asked for, of a part of it that is here, which lie on the host in place. */
static uint64_t placed_in(const struct turn *t, const struct glk_extent *e, uint64_t end)
{
	const struct glk_map *map = &t->arena->map;
	uint64_t behind = e->offset + glk_extent_asked(e), bytes = 0;
	uint32_t last = glk_slot_of(map, end - 1);

	behind = behind < end ? behind : end;
	for (uint32_t slot = glk_slot_of(map, t->offset); slot <= last; slot++) {
		if (glk_map_is_host(map, map->page[slot]))
			bytes += glk_slot_part(map, slot, t->offset, behind);
	}
	return bytes;
}

/* Whether a sealed page counts at a slot: at the newest of its mappings that the block stands on. */
static bool counts_at(struct turn *t, uint32_t slot)
{
	const struct glk_map *map = &t->arena->map;
	uint32_t at = glk_map_page(map, map->page[slot])->first_alias;

	for (; !glk_is_sealed(map, at); at = map->alias[at])
		t->steps++;
	return at == glk_mapping_at(map, slot).first;
}

/* Of what is here of an elastic block, up to an offset, what is alike: no page of it is sealed, or all count here, or
 * all elsewhere. Where it ends, or the steps of a turn do. */
static uint64_t end_of_alike(struct turn *t, uint64_t end, bool *ret_shared)
{
	const struct glk_map *map = &t->arena->map;
	struct glk_stretch s = {glk_slot_of(map, t->offset), glk_slot_of(map, end - 1)};
	uint32_t last = s.last, slot = s.first + 1;

	s = glk_part_alike(map, s);
	*ret_shared = glk_is_sealed(map, s.first) && !counts_at(t, s.first);
	while (glk_is_sealed(map, s.first) && slot <= s.last && t->steps++ < STEPS &&
		counts_at(t, slot) != *ret_shared)
		slot++;
	if (glk_is_sealed(map, s.first))
		s.last = slot - 1;
	return s.last < last ? (uint64_t)(s.last + 1) << map->shift : end;
}

static void tell_block(struct turn *t, struct glk_extent *e)
{
	uint64_t end = e->offset + e->size, asked = 0, before = t->offset - e->offset;
	bool live = read_live(e, &asked), away = live && glk_extent_away(e), bare = false;
	bool shared = false;
	struct glake_run *run = &t->runs[t->count++];

	if (live && (glk_extent_part(e) || (away && glk_part_is_elastic(t->cache, e))))
		end = end_of_part(t, e, &away, &bare, &shared);
	if (live && !away && glk_part_is_elastic(t->cache, e))
		end = end_of_alike(t, end, &shared);
	*run = run_of(t, end,
		away	       ? GLAKE_RUN_AWAY
			: live ? GLAKE_RUN_LIVE
			       : GLAKE_RUN_QUICK);
	run->flags = flags_of(t, e);
	run->stream = handle_of(t->cache, glk_load_relaxed(&e->stream));
	if (live && !bare)
		run->asked = asked > before ? asked - before : 0;
	if (bare)
		run->flags |= GLAKE_RUN_BARE;
	if (shared)
		run->flags |= GLAKE_RUN_SHARED;
	if (run->asked > run->size && end < e->offset + e->size)
		run->asked = run->size;
	if (away)
		back_away(run, t, end);
	else if (!shared)
		back_block(run, t, end);
	if (run->host_bytes && live && !away)
		run->placed = placed_in(t, e, end);
	t->steps += 1 + (unsigned)(run->size >> (t->arena->map.shift + GLK_GROUP_SHIFT));
	go_to(t, end);
}

/* ---- What lies between ---- */

/* Whether two of the same kind are one. */
static bool goes_on(const struct glake_run *run, const struct glake_run *next)
{
	return run->state == next->state && run->arena == next->arena &&
		run->flags == next->flags && run->stream == next->stream &&
		run->pool.high == next->pool.high && run->pool.low == next->pool.low &&
		run->address + run->size == next->address;
}

static void tell_free(struct turn *t, const struct glake_run *next)
{
	struct glake_run *run = t->count ? &t->runs[t->count - 1] : NULL;

	if (!run || !goes_on(run, next)) {
		t->runs[t->count++] = *next;
		return;
	}
	run->size += next->size;
	run->gpu_bytes += next->gpu_bytes;
	run->host_bytes += next->host_bytes;
	run->large_bytes += next->large_bytes;
}

/* The offset of the first block that begins in a slot, from the present one on; or its end. */
static uint64_t next_in_slot(
	const struct turn *t, uint32_t slot, uint32_t nest, uint64_t end)
{
	const struct glk_map *map = &t->arena->map;
	uint32_t first, at;

	if (nest) {
		at = glk_bits_first(glk_nest_begins(map, nest),
			glk_nest_grain(map, t->offset), glk_nest_grain(map, end - 1));
		return at == GLK_BITS_NONE ? end
					   : ((uint64_t)slot << map->shift) +
				((uint64_t)at << GLK_GRAIN_SHIFT);
	}
	first = (uint32_t)(t->offset >> map->eighth);
	at = glk_bits_first(map->begins, first, (uint32_t)((end - 1) >> map->eighth));
	/* a small block that is sampled may begin and end before it in the same eighth */
	if (at == first &&
		glk_extent_at(map, glk_load_relaxed(&map->start[at]))->offset < t->offset)
		at = (uint64_t)(first + 1) << map->eighth < end
			? glk_bits_first(map->begins, first + 1,
				  (uint32_t)((end - 1) >> map->eighth))
			: GLK_BITS_NONE;
	return at == GLK_BITS_NONE
		? end
		: glk_extent_at(map, glk_load_relaxed(&map->start[at]))->offset;
}

/* The nest at an offset; 0: there is none. */
static uint32_t nest_at(const struct glk_map *map, uint64_t offset)
{
	uint32_t name = glk_load_relaxed(&map->start[offset >> map->eighth]);

	return name & GLK_START_NEST ? name & ~GLK_START_NEST : 0;
}

/* Up to where a slot that ends there is a nest from the present offset on, or none. */
static uint64_t alike_until(const struct turn *t, uint32_t nest, uint64_t end)
{
	const struct glk_map *map = &t->arena->map;
	uint64_t eighth = (t->offset >> map->eighth) + 1;

	while (eighth << map->eighth < end && nest_at(map, eighth << map->eighth) == nest)
		eighth++;
	return eighth << map->eighth;
}

/* Slots without memory in which no block begins, beginning with one: they may be many. */
static uint32_t empty_until(const struct turn *t, uint32_t slot)
{
	const struct glk_map *map = &t->arena->map;
	uint32_t last = glk_slot_of(map, t->end - 1), mapped, begun;

	if (last > slot + SKIP)
		last = slot + SKIP;
	mapped = glk_bits_first(map->mapped, slot, last);
	if (mapped == slot)
		return slot;
	if (mapped != GLK_BITS_NONE)
		last = mapped - 1;
	/* slots of small blocks have memory, unless their tag is suspended */
	for (uint32_t at = slot; t->arena->suspended_blocks && at <= last; at++)
		last = glk_load_relaxed(&map->start[at << GLK_EIGHTH_SHIFT]) &
				GLK_START_NEST
			? at - 1
			: last;
	begun = glk_bits_first(map->begins, slot << GLK_EIGHTH_SHIFT,
		((last + 1) << GLK_EIGHTH_SHIFT) - 1);
	return begun == GLK_BITS_NONE ? last + 1 : begun >> GLK_EIGHTH_SHIFT;
}

/* Up to the next block, or the end of a slot, or of a run of slots that are alike and empty. */
static void tell_between(struct turn *t)
{
	const struct glk_map *map = &t->arena->map;
	uint32_t slot = glk_slot_of(map, t->offset), until;
	uint32_t nest = nest_at(map, t->offset);
	uint64_t end = (uint64_t)(slot + 1) << map->shift;
	struct CUstream_st *late;
	struct glake_run run;
	int state = state_of_slot(t, slot, &late);

	until = nest || state != GLAKE_RUN_HOLE ? slot : empty_until(t, slot);
	if (until > slot)
		end = (uint64_t)until << map->shift;
	else
		end = next_in_slot(t, slot, nest, alike_until(t, nest, end));
	if (end > t->end)
		end = t->end;
	run = run_of(t, end, state);
	run.flags = nest ? GLAKE_RUN_SMALL : 0;
	run.stream = late;
	add_slot(&run, t, slot, run.size, state);
	tell_free(t, &run);
	t->steps += until > slot + SKIP / 2 ? 16 : 1;
	go_to(t, end);
}

/* ---- */

static void take_turn(struct turn *t)
{
	uint32_t id;

	t->steps = t->count = 0;
	glk_lock(&t->cache->lock);
	find_range(t);
	while (!t->done && t->count < RUNS && t->steps < STEPS) {
		id = glk_lookup_around(t->range, t->at);
		if (id)
			tell_block(t, glk_extent_at(&t->arena->map, id));
		else
			tell_between(t);
		if (t->offset >= t->end)
			find_range(t);
	}
	glk_unlock(&t->cache->lock);
}

/* Hands a run out once it is known where it ends. */
struct kept {
	struct glake_run run;
	bool some;
};

static int hand_out(struct turn *t, struct kept *kept, glake_run_fn fn, void *arg)
{
	int err = 0;

	for (unsigned i = 0; i < t->count && !err; i++) {
		struct glake_run *run = &t->runs[i];

		if (kept->some && run->state > GLAKE_RUN_QUICK &&
			goes_on(&kept->run, run)) {
			kept->run.size += run->size;
			kept->run.gpu_bytes += run->gpu_bytes;
			kept->run.host_bytes += run->host_bytes;
			kept->run.large_bytes += run->large_bytes;
			continue;
		}
		err = kept->some ? fn(&kept->run, arg) : 0;
		kept->run = *run;
		kept->some = true;
	}
	return err;
}

int glk_cache_walk(
	struct glk_cache *cache, uint64_t from, uint64_t to, glake_run_fn fn, void *arg)
{
	struct turn t = {.cache = cache, .at = from};
	struct kept kept = {.some = false};
	int err = 0;

	/* pairs with: the release in glk_cache_start */
	if (!glk_load_acquire(&cache->started))
		return 0;
	while (!t.done && !err && t.at < to) {
		take_turn(&t);
		err = hand_out(&t, &kept, fn, arg);
	}
	return err || !kept.some ? err : fn(&kept.run, arg);
}
