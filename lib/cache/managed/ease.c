/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Managed memory that goes to and fro. What ends that without sending it anywhere is to say who uses
 * it: they have it mapped then wherever it lies, and use it over the link in place of a fault that moves
 * it. So much is said of the slot in which it was seen, once, as far as a live block has that address
 * and had it then; what the kernel module knows of memory it knows by pieces of a slot's size, too.
 *
 * A slot of which the program has said anything is left to it; and when it does, what was said here is
 * taken back first. A slot that a block has for itself begins anew with the next block.
 */
#include "cache/managed/managed.h"

#include "base/error.h"
#include "base/thread.h"
#include "cache/block.h"
#include "cache/cache.h"

static struct glk_extent *hold(
	struct glk_cache *cache, uint64_t addr, const struct glk_range **ret_range)
{
	struct glk_look look = glk_look_begin(cache);
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_extent *e = NULL;
	struct glk_live live = {0};

	if (range && glk_arena_of(range)->ops->kind == GLAKE_ARENA_MANAGED &&
		glk_lookup_live(range, addr, &live) && addr - live.addr < live.asked)
		e = glk_lookup_hold(range, live.addr);
	glk_look_end(cache, &look);
	*ret_range = range;
	return e;
}

/* Takes note of what is about to be said of a slot; whether anything is. */
static bool begin(struct glk_chunk *chunk, const struct glk_extent *e, uint32_t slot,
	uint64_t users, int64_t since_ns, bool *ret_first)
{
	struct glk_cache *cache = chunk->arena.gpu;
	uint32_t first, last;
	bool may;

	glk_chunk_slots(chunk, glk_load_relaxed(&e->addr), e->size, &first, &last);
	glk_lock(&cache->lock);
	may = !glk_load_relaxed(&cache->suspended) && !chunk->unsaying &&
		chunk->given_ns[first] < since_ns &&
		!glk_bits_any(chunk->own, slot, slot) &&
		!glk_bits_any(chunk->eased, slot, slot);
	if (may) {
		*ret_first = !glk_bits_any(chunk->eased, first, last);
		glk_bits_set(chunk->eased, slot, slot);
		glk_bits_set(chunk->accessed, slot, slot);
		chunk->eased_users |= users;
		chunk->users |= users;
	}
	glk_unlock(&cache->lock);
	return may;
}

static void say(struct glk_chunk *chunk, const struct glk_extent *e, uint64_t addr,
	uint64_t users, int64_t since_ns)
{
	const struct glk_map *map = &chunk->arena.map;
	struct glk_cache *cache = chunk->arena.gpu;
	uint32_t slot, same;
	bool first;

	glk_chunk_slots(chunk, addr, 1, &slot, &same);
	if (!begin(chunk, e, slot, users, since_ns, &first))
		return;
	if (glk_chunk_user(chunk, glk_slot_addr(map, slot), glk_slot_bytes(map),
		    GLK_MANAGED_ACCESSED, users))
		return;
	glk_lock(&cache->lock);
	cache->managed->advised += first;
	glk_unlock(&cache->lock);
}

void glk_cache_managed_ease(
	struct glk_cache *cache, uint64_t addr, uint64_t processors, int64_t since_ns)
{
	struct glake_error why = glk_thread_current->error;
	const struct glk_range *range;
	struct glk_extent *e;

	for (int i = cache->pool->gpus; i < 63; i++)
		processors &= ~(UINT64_C(1) << i);
	e = processors ? hold(cache, addr, &range) : NULL;
	if (!e)
		return;
	glk_lock(&cache->managed->saying);
	say(glk_chunk_of(glk_arena_of(range)), e, addr, processors, since_ns);
	glk_unlock(&cache->managed->saying);
	glk_word_let_go(&e->word);
	glk_error_back(&why);
}

/* The next run of slots of which the library said something, from one slot to another. */
static bool next_run(struct glk_chunk *chunk, uint32_t from, uint32_t last,
	uint32_t *first, uint32_t *end)
{
	struct glk_cache *cache = chunk->arena.gpu;

	if (from > last)
		return false;
	glk_lock(&cache->lock);
	*first = glk_bits_first(chunk->eased, from, last);
	*end = *first == GLK_BITS_NONE ? GLK_BITS_NONE
				       : glk_bits_first_clear(chunk->eased, *first, last);
	glk_unlock(&cache->lock);
	*end = *end == GLK_BITS_NONE ? last + 1 : *end;
	return *first != GLK_BITS_NONE;
}

void glk_chunk_disown(struct glk_chunk *chunk, uint32_t first, uint32_t last)
{
	const struct glk_map *map = &chunk->arena.map;
	struct glk_cache *cache = chunk->arena.gpu;
	struct glake_error why = glk_thread_current->error;
	uint32_t from, end;

	for (uint32_t at = first; next_run(chunk, at, last, &from, &end); at = end)
		glk_chunk_user(chunk, glk_slot_addr(map, from),
			(uint64_t)(end - from) << map->shift, GLK_MANAGED_UNACCESSED,
			chunk->eased_users);
	glk_lock(&cache->lock);
	glk_bits_clear(chunk->eased, first, last);
	glk_bits_set(chunk->own, first, last);
	glk_unlock(&cache->lock);
	glk_error_back(&why);
}
