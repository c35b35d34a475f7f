/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whether contents that are away are what was sent, of all blocks of a GPU, where they have a hash or are encrypted: see
 * cache.h. */
#include "cache/bin/own.h"
#include "cache/cache.h"

static int check_run(struct glk_cache *cache, uint32_t run, uint64_t *ret)
{
	bool hashed = run && glk_store_at(&cache->mover.store, run)->hashed;
	bool encrypted = false;
	int err = hashed ? glk_verify_check(&cache->mover, run) : 0;

	if (run && !err)
		err = glk_cipher_check(&cache->mover, run, &encrypted);
	*ret += (hashed || encrypted) && !err;
	return err;
}

static int check_pieces(struct glk_arena *arena, struct glk_extent *e, uint64_t *ret)
{
	struct glk_map *map = &arena->map;
	struct glk_stretch s = glk_part_all(map, e), kept;
	int err = 0;

	kept = glk_part_kept(map, e, s.first, s.last);
	while (kept.first <= kept.last && !err) {
		struct glk_piece p = glk_part_piece(arena, e, kept.first);

		err = check_run(arena->gpu, glk_seal_run(arena->gpu, p.word), ret);
		kept = glk_part_kept(map, e, p.s.last + 1, s.last);
	}
	return err;
}

/* It is held, so that nothing of it moves. */
static int check_one(struct glk_arena *arena, struct glk_extent *e, uint64_t *ret)
{
	uint64_t addr = glk_load_relaxed(&e->addr);
	struct glk_cache *cache = arena->gpu;
	int err = 0;

	if (!glk_word_hold(&e->word, &e->addr, addr))
		return 0;
	glk_lock(&cache->lock);
	if (glk_part_is(e))
		err = check_pieces(arena, e, ret);
	else if (glk_extent_away(e))
		err = check_run(cache, glk_kept_run(e), ret);
	glk_unlock(&cache->lock);
	glk_word_let_go(&e->word);
	return err;
}

static int check_arena(struct glk_arena *arena, uint64_t *ret)
{
	uint32_t used = glk_load_relaxed(&arena->map.extents.used);
	int err = 0;

	for (uint32_t id = 1; id <= used && !err; id++) {
		struct glk_extent *e = glk_extent_at(&arena->map, id);

		/* seldom; looked at again when it is held */
		if (glk_part_is(e) || glk_load_relaxed(&e->bin) == GLK_EXTENT_AWAY)
			err = check_one(arena, e, ret);
	}
	return err;
}

int glk_cache_check_away(struct glk_cache *cache, uint64_t *ret)
{
	struct glk_arena *arena = glk_cache_sampled(cache);
	int err = 0;

	if (!glk_load_acquire(&cache->started) || !glk_load_relaxed(&cache->moves))
		return 0;
	for (uint32_t n = 0; !err && n <= glk_own_made(cache); n++)
		err = check_arena(glk_own_numbered(cache, n), ret);
	if (!err && arena)
		err = check_arena(arena, ret);
	for (int i = 0; !err && glk_cache_tag_guard_at(cache, i, &arena); i++)
		if (arena->map.pool)
			err = check_arena(arena, ret);
	return err;
}
