/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_BOOKS_H
#define GLK_UNIT_CACHE_BOOKS_H

/* A part of walk.c: what the memory of the host and the streams keep of themselves, against what lies there; and
 * whether nothing of a GPU is under way. */

bool books_tell(const char *what, uint64_t told, uint64_t seen)
{
	if (told != seen)
		tap_note("%s: told %" PRIu64 ", walked %" PRIu64, what, told, seen);
	return told == seen;
}

/* Free pages of a node, by its lists, and what is held of it. */
static inline bool books_node(const struct glk_node *node)
{
	uint32_t used = glk_load_relaxed(&node->pool->pages.used);
	uint64_t bytes[GLK_CLASS_COUNT] = {0}, listed = 0, lost = 0, kept = 0;
	bool same = true;

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_page *p = glk_page_at(node->pool, id);
		enum glk_page_state state = glk_page_state(p);

		if (state == GLK_PAGE_EMPTY || p->node != node->index)
			continue;
		bytes[p->class] += state == GLK_PAGE_FREE ? p->size : 0;
		lost += state == GLK_PAGE_LOST ? p->size : 0;
		kept += p->size;
	}
	for (unsigned c = 0; c < GLK_CLASS_COUNT; c++) {
		uint32_t id =
			(uint32_t)(glk_load_relaxed(&node->free[c].head) & GLK_ID_MASK);

		for (listed = 0; id && listed <= bytes[c];
			id = glk_load_relaxed(
				&glk_page_at(node->pool, id)->free_link.next))
			listed += glk_page_at(node->pool, id)->size;
		same &= books_tell("bytes of free pages",
			glk_load_relaxed(&node->free_bytes[c]), bytes[c]);
		same &= books_tell("bytes of their lists", listed, bytes[c]);
	}
	same &= books_tell("bytes that are lost", glk_load_relaxed(&node->lost), lost);
	if (glk_load_relaxed(&node->held) >= kept &&
		glk_load_relaxed(&node->peak) >= glk_load_relaxed(&node->held))
		return same;
	tap_note("held: %" PRIu64 ", at its most %" PRIu64 ", of pages alone %" PRIu64,
		glk_load_relaxed(&node->held), glk_load_relaxed(&node->peak), kept);
	return false;
}

/* Contents that are away, by the pieces that they lie in. */
static inline bool books_store(const struct glk_store *store)
{
	const struct glk_pack *pack = store->pack;
	uint64_t used[2] = {0}, bytes[2] = {0};
	bool same = true;

	if (pack && pack->landing.base &&
		!(pack->landing.event[0] && pack->landing.event[1])) {
		tap_note("what is unpacked lands without its events");
		return false;
	}

	for (uint32_t i = 0; i < store->pieces; i++) {
		const struct glk_store_piece *p = &store->piece[i];
		uint32_t chunks = 0;

		for (uint32_t w = 0; w < GLK_STORE_CHUNKS / 64; w++)
			chunks += (uint32_t)__builtin_popcountll(p->used[w]);
		/* the driver did not unmap it */
		if (p->barred)
			return true;
		same &= books_tell("chunks of a piece", p->count, chunks);
		bytes[p->lent] += p->base ? GLK_STORE_PIECE : 0;
		used[p->lent] += chunks * GLK_STORE_CHUNK;
	}
	same &= books_tell("the store's pieces", store->there, bytes[0]);
	same &= books_tell("the store's chunks", store->used, used[0]);
	same &= books_tell("the store's pieces that are lent", store->lent, bytes[1]);
	return same && books_tell("chunks that are lent", store->lent_used, used[1]);
}

/* Blocks of the host for the program. */
bool books_hostpool(struct glk_hostpool *pool)
{
	uint64_t live = 0, given = 0, waits = 0, there = 0, pieces = 0, blocks = 0,
		 whole = 0;
	uint32_t waiting = 0, last;
	struct glake_stats stats = {0};
	bool same;

	if (!glk_load_relaxed(&pool->made))
		return true;
	glk_lock(&pool->lock);
	last = glk_load_relaxed(&pool->map.extents.used);
	for (uint32_t id = 1; id <= last; id++) {
		const struct glk_extent *e = glk_extent_at(&pool->map, id);
		enum glk_extent_state state = glk_extent_state(e);

		if (state == GLK_EXTENT_NONE)
			continue;
		there += e->size;
		pieces += !e->prev;
		if (state == GLK_EXTENT_LIVE) {
			blocks++;
			live += glk_extent_asked(e);
			given += e->size;
		} else if (state == GLK_EXTENT_QUICK) {
			waiting++;
			waits += e->size;
		} else {
			whole += e->prev || e->next ? 0 : e->size;
		}
	}
	same = books_tell("live blocks of the host", pool->allocs - pool->frees, blocks);
	same &= books_tell("their bytes", pool->live, live);
	same &= books_tell("bytes given", pool->given, given);
	same &= books_tell("bytes that wait", pool->waits, waits);
	same &= books_tell("bytes of pieces", pool->there, there);
	same &= books_tell("pieces", pool->pieces, pieces);
	same &= books_tell("blocks in their tree", pool->blocks.count, blocks);
	same &= books_tell("blocks that wait", pool->waiting, waiting);
	same &= books_tell("bytes of whole pieces", pool->whole.bytes, whole);
	same &= pool->growing || pool->giving || pool->held >= there;
	glk_unlock(&pool->lock);
	glk_hostpool_figures(pool, &stats);
	same &= books_tell("host_pool_live", stats.host_pool_live, live);
	same &= books_tell("host_pool_given", stats.host_pool_given, given);
	same &= books_tell("host_pool_waiting", stats.host_pool_waiting, waits);
	same &= books_tell("host_pool_blocks", stats.host_pool_blocks, blocks);
	same &= books_tell("host_pool_pieces", stats.host_pool_pieces, pieces);
	return same && stats.peak_host_pool_live >= live &&
		stats.peak_host_pool_held >= there && stats.host_pool_held >= there &&
		stats.host_pool_grows >= pieces && stats.host_pool_allocs >= blocks;
}

/* Streams, by what their slots say. */
static inline bool books_streams(const struct glk_streams *streams)
{
	uint64_t used = 0, flying = 0, ends = 0, here = 0;
	uint32_t events = streams->events.count;
	bool same = true;

	for (uint32_t id = 1; id <= glk_load_relaxed(&streams->slab.used); id++) {
		const struct glk_stream *s = glk_stream_at(streams, id);

		events += s->count;
		if (s->bit >= GLK_STREAM_BITS)
			continue;
		used |= UINT64_C(1) << s->bit;
		flying |= s->count ? UINT64_C(1) << s->bit : 0;
		ends += s->state != GLK_STREAM_LIVE;
		if (s->bit != GLK_STREAM_CROWD)
			continue;
		here++;
		same &= glk_bit_get(streams->crowd.here, id);
		/* its events, and what it freed since */
		same &= s->done >= s->freed || glk_bit_get(streams->crowd.working, id);
	}
	for (unsigned w = 0; w < GLK_STREAM_WORDS; w++)
		here -= (uint64_t)__builtin_popcountll(streams->crowd.here[w]);
	same &= books_tell("events", streams->events.made, events);
	same &= books_tell("bits of streams", streams->used, used);
	same &= books_tell("bits with events", streams->flying & flying, flying);
	same &= books_tell("streams that end", streams->ended - streams->settled, ends);
	if (!same || here)
		tap_note("the streams' books are wrong");
	return same && !here;
}

/* Whether no call is in the middle of anything. */
bool books_rest(struct glk_cache *cache)
{
	const struct glk_streams *streams = &cache->streams;
	uint32_t under_way = cache->plans.waiters + cache->plans.inside +
		cache->plans.under_way + cache->plans.parked + cache->plans.climbing +
		cache->plans.closed;
	uint32_t calls = cache->shortage.callers, hearers = 0;
	struct glk_graph *graph;
	bool same;

	for (const struct glk_arena *a = &cache->arena; a; a = a->next)
		calls += a->inside;
	for (uint32_t i = 0; (graph = glk_graph_next(glk_graphs(cache), &i));)
		calls += graph->arena.inside;
	for (unsigned i = 0; i < GLAKE_MOVE_WATCHES_MAX; i++) {
		calls += cache->hearers[i].callers;
		hearers += cache->hearers[i].fn != NULL;
	}
	/* one with what the driver kept there serves nobody any more */
	for (unsigned i = 0; i < GLK_WINDOWS; i++)
		calls += cache->windows[i].taken && !cache->windows[i].kept;
	calls += cache->hostpool.giving + cache->hostpool.growing;
	same = books_tell("plans", under_way, 0);
	same &= books_tell("calls", calls, 0);
	same &= books_tell("who hears of moves", cache->hearing, hearers);
	same &= books_tell("blocks that move", cache->moving != NULL, 0);
	same &= books_tell("suspensions", cache->turning, 0);
	same &= books_tell("spills", cache->sending, 0);
	same &= books_tell("waits", streams->syncing + (streams->awaited != NULL), 0);
	return same &&
		books_tell("turns of a seat", glk_load_relaxed(&cache->seat_turning), 0);
}

#endif
