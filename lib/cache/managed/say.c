/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is said of managed memory, and what moves it. The block is held meanwhile, so that it keeps its
 * addresses; the lock is not.
 */
#include "cache/managed/managed.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "cache/block.h"
#include "cache/cache.h"

#include <errno.h>
#include <inttypes.h>

/* A piece of a live managed block. */
struct piece {
	const struct glk_range *range;
	struct glk_extent *e; /* held */
	uint64_t addr, size;
};

static bool is_managed(const struct glk_range *range)
{
	return range && glk_arena_of(range)->ops->kind == GLAKE_ARENA_MANAGED;
}

static int hold(struct glk_cache *cache, uint64_t addr, uint64_t size, struct piece *ret)
{
	struct glk_look look = glk_look_begin(cache);
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_extent *e = NULL;
	struct glk_live live = {0};
	bool found = range && glk_lookup_live(range, addr, &live);
	bool managed = is_managed(range);
	uint64_t asked = 0, at = addr - live.addr;
	bool inside = false;

	if (found && managed)
		e = glk_lookup_hold(range, live.addr);
	if (e) {
		asked = glk_extent_asked(e);
		/* the rest of its last grain is nobody's */
		inside = at < asked && size <= asked - at;
	}
	if (e && !inside)
		glk_word_let_go(&e->word);
	glk_look_end(cache, &look);
	/* a fetch or a suspend of another thread has it: what it does is soon done */
	if (!e && (managed || !found) && glk_away_settled(cache, addr, true))
		return hold(cache, addr, size, ret);
	if (!found)
		return glk_block_refuse(cache, addr);
	if (!managed)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block at 0x%" PRIx64 " is not managed memory", live.addr);
	if (!e)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " is being moved or freed", live.addr);
	if (!inside)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%" PRIu64 " bytes from 0x%" PRIx64
			" on reach over the end of the block",
			size, addr);
	*ret = (struct piece){range, e, addr, size ? size : asked - at};
	return 0;
}

void glk_chunk_slots(const struct glk_chunk *chunk, uint64_t addr, uint64_t size,
	uint32_t *ret_first, uint32_t *ret_last)
{
	const struct glk_map *map = &chunk->arena.map;
	uint64_t offset = addr - map->range[0].base + map->range[0].offset;

	*ret_first = glk_slot_of(map, offset);
	*ret_last = glk_slot_of(map, offset + size - 1);
}

int glk_chunk_user(const struct glk_chunk *chunk, uint64_t addr, uint64_t size,
	enum glk_managed_say what, uint64_t users)
{
	struct glk_drv *drv = chunk->arena.gpu->drv;
	int err = 0;

	for (; users && !err; users &= users - 1) {
		int who = __builtin_ctzll(users);
		struct glk_place place = {GLK_PLACE_GPU, who};

		if (UINT64_C(1) << who == GLK_CHUNK_HOST)
			place = (struct glk_place){GLK_PLACE_ANY, 0};
		/* nobody knows which of the two it was */
		if (place.kind != GLK_PLACE_GPU && what == GLK_MANAGED_UNACCESSED &&
			who < chunk->arena.gpu->pool->gpus)
			err = drv->ops->managed_say(drv, addr, size, what,
				(struct glk_place){GLK_PLACE_GPU, who});
		err = err ? err : drv->ops->managed_say(drv, addr, size, what, place);
	}
	return err;
}

static void note(struct glk_cache *cache, struct glk_chunk *chunk, const struct piece *p,
	enum glk_managed_say what, struct glk_place place)
{
	uint32_t first, last;

	glk_chunk_slots(chunk, p->addr, p->size, &first, &last);
	glk_chunk_disown(chunk, first, last);
	glk_lock(&cache->lock);
	if (what == GLK_MANAGED_PREFER)
		glk_bits_set(chunk->preferred, first, last);
	if (what == GLK_MANAGED_ACCESSED) {
		glk_bits_set(chunk->accessed, first, last);
		chunk->users |= place.kind == GLK_PLACE_GPU ? UINT64_C(1) << place.id
							    : GLK_CHUNK_HOST;
	}
	glk_unlock(&cache->lock);
}

int glk_cache_managed_say(struct glk_cache *cache, uint64_t addr, uint64_t size,
	enum glk_managed_say what, struct glk_place place)
{
	struct glk_managed *m;
	struct piece p;
	int err = hold(cache, addr, size, &p);

	if (err)
		return err;
	m = cache->managed;
	glk_lock(&m->saying);
	/* noted first: what fails half way may have been heard */
	note(cache, glk_chunk_of(glk_arena_of(p.range)), &p, what, place);
	err = cache->drv->ops->managed_say(cache->drv, p.addr, p.size, what, place);
	glk_unlock(&m->saying);
	glk_word_let_go(&p.e->word);
	return err;
}

int glk_cache_managed_ask(struct glk_cache *cache, uint64_t addr, uint64_t size,
	enum glk_managed_ask what, struct glk_place *ret_place)
{
	struct piece p;
	int err = hold(cache, addr, size, &p);

	if (err)
		return err;
	err = cache->drv->ops->managed_ask(cache->drv, p.addr, p.size, what, ret_place);
	glk_word_let_go(&p.e->word);
	return err;
}

int glk_cache_managed_prefetch(struct glk_cache *cache, uint64_t addr, uint64_t size,
	struct glk_place place, struct CUstream_st *stream)
{
	struct glk_stream_facts facts = {0};
	struct piece p;
	uint32_t id;
	int err;

	err = glk_stream_get(&cache->streams, stream, &facts, &id);
	if (err)
		return err;
	if (facts.capture)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"nothing is prefetched on a stream that captures a graph");
	err = hold(cache, addr, size, &p);
	if (err)
		return err;
	err = cache->drv->ops->managed_prefetch(
		cache->drv, p.addr, p.size, place, cache->device, stream);
	/* a stream on which it moves is one that uses it: who has its memory next is behind that */
	if (!err) {
		glk_lock(&cache->lock);
		glk_away_mark(cache, p.e, id);
		glk_unlock(&cache->lock);
	}
	glk_word_let_go(&p.e->word);
	return err;
}

/* The NUMA node near a GPU. */
static struct glk_place host_of(const struct glk_cache *cache)
{
	return cache->host && cache->host->place.id >= 0
		? cache->host->place
		: (struct glk_place){GLK_PLACE_ANY, 0};
}

int glk_managed_move(
	struct glk_arena *arena, struct glk_extent *e, uint32_t on, bool to_gpu)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_place place = {GLK_PLACE_GPU, cache->device};
	struct CUstream_st *stream = glk_stream_at(&cache->streams, on)->handle;
	uint64_t addr = glk_load_relaxed(&e->addr);
	int err;

	if (!to_gpu)
		place = host_of(cache);
	glk_lock_pause(&cache->lock);
	err = cache->drv->ops->managed_prefetch(
		cache->drv, addr, glk_extent_asked(e), place, cache->device, stream);
	glk_lock_resume(&cache->lock);
	if (!err)
		glk_away_mark(cache, e, on);
	return err;
}

/* The slots of a block that no other block has a part of; false: there are none. */
static bool whole_slots(const struct glk_chunk *chunk, uint64_t addr, uint64_t size,
	uint32_t *first, uint32_t *last)
{
	uint64_t slot = glk_slot_bytes(&chunk->arena.map);

	*first += addr % slot != 0;
	*last -= (addr + size) % slot != 0;
	return *first <= *last && *last != UINT32_MAX;
}

/* What is said of slots from here on is said of the new block. What the driver does not take back the
 * next block of this memory tries again: it is advice, and costs time alone. */
void glk_chunk_unsay(struct glk_chunk *chunk, uint64_t addr, uint64_t size)
{
	struct glk_cache *cache = chunk->arena.gpu;
	uint64_t users = chunk->users;
	uint32_t first, last;
	bool placed, used, whole;
	int err = 0;

	glk_chunk_slots(chunk, addr, size, &first, &last);
	chunk->given_ns[first] = glk_clock_raw_ns();
	placed = glk_bits_any(chunk->preferred, first, last);
	used = glk_bits_any(chunk->accessed, first, last);
	whole = whole_slots(chunk, addr, size, &first, &last);
	if (whole) {
		glk_bits_clear(chunk->own, first, last);
		glk_bits_clear(chunk->eased, first, last);
		glk_bits_clear(chunk->preferred, first, last);
		glk_bits_clear(chunk->accessed, first, last);
	}
	if (!placed && !used)
		return;
	chunk->unsaying++;
	glk_lock_pause(&cache->lock);
	if (placed)
		err = cache->drv->ops->managed_say(cache->drv, addr, size,
			GLK_MANAGED_UNPREFER, (struct glk_place){GLK_PLACE_ANY, 0});
	if (used && !err)
		err = glk_chunk_user(chunk, addr, size, GLK_MANAGED_UNACCESSED, users);
	glk_lock_resume(&cache->lock);
	chunk->unsaying--;
	if (!err || !whole)
		return;
	if (placed)
		glk_bits_set(chunk->preferred, first, last);
	if (used)
		glk_bits_set(chunk->accessed, first, last);
}

/* The next run of slots that blocks have, or had: what is freed may still lie on the GPU. */
static bool next_run(const struct glk_map *map, uint32_t *first, uint32_t *last)
{
	uint32_t end = glk_map_end(map), behind;

	if (*first >= end)
		return false;
	*first = glk_bits_first(map->mapped, *first, end - 1);
	if (*first == GLK_BITS_NONE)
		return false;
	behind = glk_bits_first_clear(map->mapped, *first, end - 1);
	*last = behind == GLK_BITS_NONE ? end - 1 : behind - 1;
	return true;
}

static int send_chunk(
	struct glk_chunk *chunk, struct CUstream_st *stream, uint64_t *bytes)
{
	const struct glk_map *map = &chunk->arena.map;
	struct glk_cache *cache = chunk->arena.gpu;
	uint32_t first = 0, last;
	int err = 0;

	/* nobody ends it meanwhile */
	chunk->arena.inside++;
	for (; !err && next_run(map, &first, &last); first = last + 1) {
		uint64_t size = (uint64_t)(last - first + 1) << map->shift;

		glk_lock_pause(&cache->lock);
		err = cache->drv->ops->managed_prefetch(cache->drv,
			glk_slot_addr(map, first), size, host_of(cache), cache->device,
			stream);
		glk_lock_resume(&cache->lock);
		*bytes += err ? 0 : size;
	}
	chunk->arena.inside--;
	return err;
}

int glk_managed_send(struct glk_cache *cache, uint64_t *ret_bytes)
{
	struct glk_managed *m = cache->managed;
	struct CUstream_st *stream =
		glk_stream_at(&cache->streams, cache->mover.out)->handle;
	int err = 0;

	*ret_bytes = 0;
	for (uint32_t i = 0; m && i < m->used && !err; i++)
		if (m->at[i].state == GLK_CHUNK_READY)
			err = send_chunk(&m->at[i], stream, ret_bytes);
	if (err || !*ret_bytes)
		return err;
	glk_lock_pause(&cache->lock);
	err = cache->drv->ops->stream_sync(cache->drv, cache->device, stream);
	glk_lock_resume(&cache->lock);
	return err;
}

/*
 * Managed memory that goes to and fro. What ends that without sending it anywhere is to say who uses
 * it: they have it mapped then wherever it lies, and use it over the link in place of a fault that moves
 * it. So much is said of the slot in which it was seen, once, as far as a live block has that address
 * and had it then; what the kernel module knows of memory it knows by pieces of a slot's size, too.
 *
 * A slot of which the program has said anything is left to it; and when it does, what was said here is
 * taken back first. A slot that a block has for itself begins anew with the next block.
 */

static struct glk_extent *hold_eased(
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
	e = processors ? hold_eased(cache, addr, &range) : NULL;
	if (!e)
		return;
	glk_lock(&cache->managed->saying);
	say(glk_chunk_of(glk_arena_of(range)), e, addr, processors, since_ns);
	glk_unlock(&cache->managed->saying);
	glk_word_let_go(&e->word);
	glk_error_back(&why);
}

/* The next run of slots of which the library said something, from one slot to another. */
static bool next_eased(struct glk_chunk *chunk, uint32_t from, uint32_t last,
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

	for (uint32_t at = first; next_eased(chunk, at, last, &from, &end); at = end)
		glk_chunk_user(chunk, glk_slot_addr(map, from),
			(uint64_t)(end - from) << map->shift, GLK_MANAGED_UNACCESSED,
			chunk->eased_users);
	glk_lock(&cache->lock);
	glk_bits_clear(chunk->eased, first, last);
	glk_bits_set(chunk->own, first, last);
	glk_unlock(&cache->lock);
	glk_error_back(&why);
}
