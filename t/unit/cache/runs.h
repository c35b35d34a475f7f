/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_RUNS_H
#define GLK_UNIT_CACHE_RUNS_H

/* A part of walk.c: what glk_cache_walk() hands out, added up, against the figures. */

struct walk_runs {
	struct glake_stats sum;
	uint64_t gpu, host, unused; /* bytes of memory; of the GPU, that nobody uses */
	uint64_t count, end;
	bool ordered, sane, quiet;
	bool away, placed; /* a run of the last block was */
};

static inline bool walk_run_is_sane(const struct glake_run *r)
{
	bool block = r->state <= GLAKE_RUN_QUICK;
	uint64_t memory = r->gpu_bytes + r->host_bytes;
	uint64_t all = r->arena == GLAKE_ARENA_MANAGED ? 0 : r->size;

	return r->size && r->size % GLAKE_GRAIN == 0 && r->address % GLAKE_GRAIN == 0 &&
		memory <= r->size && r->large_bytes <= memory && r->placed <= r->asked &&
		(r->state == GLAKE_RUN_LIVE || r->state == GLAKE_RUN_QUICK ||
					r->state == GLAKE_RUN_IDLE ||
					r->state == GLAKE_RUN_LIMBO ||
					r->state == GLAKE_RUN_REST
				? memory == (r->flags & GLAKE_RUN_SHARED ? 0 : all)
				: r->state == GLAKE_RUN_AWAY || !memory) &&
		(block || !r->asked) && r->asked <= r->size &&
		(r->arena == GLAKE_ARENA_POOL) == (r->pool.high || r->pool.low) &&
		(r->arena == GLAKE_ARENA_TAG || !r->tag);
}

static inline int walk_add_run(const struct glake_run *r, void *arg)
{
	struct walk_runs *runs = arg;
	struct glake_stats *s = &runs->sum;

	runs->ordered &= r->address >= runs->end;
	if (!runs->quiet && !walk_run_is_sane(r)) {
		tap_note("run 0x%" PRIx64 " of %" PRIu64 ": state %d, gpu %" PRIu64
			 ", host %" PRIu64 ", large %" PRIu64 ", asked %" PRIu64,
			r->address, r->size, r->state, r->gpu_bytes, r->host_bytes,
			r->large_bytes, r->asked);
		runs->sane = false;
	}
	runs->end = r->address + r->size;
	runs->count++;
	runs->gpu += r->gpu_bytes;
	runs->host += r->host_bytes;
	if (r->state == GLAKE_RUN_LIVE || r->state == GLAKE_RUN_AWAY) {
		bool bare = r->flags & GLAKE_RUN_BARE,
		     shared = r->flags & GLAKE_RUN_SHARED;
		bool away = r->state == GLAKE_RUN_AWAY && !bare,
		     first = !(r->flags & GLAKE_RUN_PART);

		/* one that is away in part has several runs */
		runs->away &= !first;
		runs->placed &= !first;
		s->live += shared ? 0 : r->asked;
		s->given += bare || shared ? 0 : r->size;
		s->live_blocks += first;
		s->placed += r->placed;
		s->placed_blocks += r->placed > 0 && !runs->placed;
		s->away += away ? r->asked : 0;
		s->away_blocks += away && !runs->away;
		runs->away |= away;
		runs->placed |= r->placed > 0;
		runs->unused += r->state == GLAKE_RUN_AWAY ? r->gpu_bytes : 0;
	} else if (r->state == GLAKE_RUN_QUICK) {
		s->quick += r->size;
	} else if (r->state == GLAKE_RUN_IDLE || r->state == GLAKE_RUN_LIMBO) {
		runs->unused += r->gpu_bytes;
	}
	return 0;
}

static inline bool walk_runs_tell(const char *name, uint64_t runs, uint64_t figure)
{
	if (runs != figure)
		tap_note("%s: the runs have %" PRIu64 ", the figures %" PRIu64, name,
			runs, figure);
	return runs == figure;
}

/* Bytes of pages that were sealed, are in nobody's use and are mapped nowhere any more. */
static inline uint64_t waits_nowhere(const struct glk_cache *cache)
{
	const struct glk_map *map = &cache->arena.map;
	uint64_t bytes = 0;

	for (uint32_t id = cache->space.unsealed; id; id = glk_page_next(map, id)) {
		const struct glk_page *page = glk_map_page(map, id);

		bytes += page->aliases ? 0 : page->size;
	}
	return bytes;
}

/* Whether the walk for people tells the same; memory that is lost is in no run. */
static inline bool walk_runs_are_sound(
	struct glk_cache *cache, const struct glake_stats *s)
{
	struct walk_runs runs = {.ordered = true, .sane = true};
	const struct glk_node *host = cache->host;
	bool same = !glk_cache_walk(cache, 0, UINT64_MAX, walk_add_run, &runs);

	runs.gpu += glk_node_free(cache->node) + waits_nowhere(cache);
	runs.unused += glk_node_free(cache->node) + waits_nowhere(cache);
	runs.host += cache->mover.store.held + cache->mover.store.packs +
		(host ? glk_node_free(host) : 0);
#define X(figure) same &= walk_runs_tell(#figure, runs.sum.figure, s->figure);
	/* clang-format off */
	X(live_blocks) X(quick) X(placed) X(placed_blocks) X(away) X(away_blocks)
	/* what is shared and suspended counts at none of its ranges */
	if (!glk_load_relaxed(&cache->seals.live)) {
		X(live) X(given)
	}
	/* clang-format on */
#undef X
	if (!s->lost) {
		same &= walk_runs_tell("reserved", runs.gpu, s->reserved);
		same &= walk_runs_tell("host_held", runs.host, s->host_held);
		/* what is away may lie at both ends in slots that others use */
		if (!s->away_blocks)
			same &= walk_runs_tell("free_pages", runs.unused, s->free_pages);
	}
	if (!runs.ordered)
		tap_note("runs overlap");
	return same && runs.ordered && (runs.sane || s->lost);
}

#endif
