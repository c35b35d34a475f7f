/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Chunks of managed memory: how much of it there may be, and when one goes.
 *
 * Nobody can say how much of it lies on the GPU, so all of it is taken to need room there that is free
 * when a chunk is had: together chunks are never larger than that, unless the caller insists. What is
 * on the GPU already counts twice by this rule, which errs to the side of a GPU that need not evict.
 *
 * A chunk without blocks counts too. Where it is too small for a request it goes before a larger one is
 * made, and only if that one may be made then: chunks do not pile up under a program whose blocks grow,
 * and a request that is refused costs none of them.
 */
#include "cache/managed/managed.h"

#include "base/clock.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/parse.h"
#include "cache/cache.h"

#include <errno.h>

#define GIB (UINT64_C(1) << 30)

/* For so long a refusal stands for who has another kind of memory. */
#define STANDS_NS INT64_C(5000000)

static uint64_t whole(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static uint64_t most_of(const struct glk_cache *cache)
{
	uint64_t most = cache->conf->tier_managed;

	return most ? most : UINT64_MAX;
}

static int refuse(const struct glk_cache *cache, uint64_t size, uint64_t free)
{
	struct glk_said held = glk_say_bytes(cache->managed->bytes),
			asked = glk_say_bytes(size);

	if (most_of(cache) < cache->managed->bytes + size)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"GPU %d has %s of managed memory, and %s more are over the %s that "
			"tier.managed allows",
			cache->device, held.text, asked.text,
			glk_say_bytes(most_of(cache)).text);
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE,
		"GPU %d has %s of managed memory, and with %s more it would be over the %s "
		"that are free there; GLAKE_ALLOC_MANAGED_OVER insists",
		cache->device, held.text, asked.text, glk_say_bytes(free).text);
}

static bool is_idle(const struct glk_chunk *chunk)
{
	return chunk->state == GLK_CHUNK_READY && !chunk->blocks && !chunk->arena.held &&
		!chunk->arena.inside && !chunk->arena.gpu->told;
}

/* Bytes of chunks, without those that would go for one with room for so many. */
static uint64_t staying(const struct glk_managed *m, uint64_t size)
{
	uint64_t bytes = m->bytes;

	for (uint32_t i = 0; i < m->used; i++)
		if (m->at[i].bytes < size && is_idle(&m->at[i]))
			bytes -= m->at[i].bytes;
	return bytes;
}

/* Bytes of a new chunk beside others of `have` bytes: as configured, less where there is no more room, and
 * as many as the block needs. */
static uint64_t measure(const struct glk_cache *cache, uint64_t size, uint64_t have,
	uint64_t free, bool over)
{
	uint64_t slot = cache->conf->pool_small_page;
	uint64_t most = most_of(cache), bytes = cache->conf->tier_managed_chunk;

	if (!over && most > free)
		most = free;
	most = most > have ? most - have : 0;
	/* many chunks are searched one by one: they grow with what there is */
	if (bytes < have / 8)
		bytes = have / 8;
	bytes = whole(bytes > size ? bytes : size, slot);
	if (bytes > most)
		bytes = most / slot * slot;
	return bytes >= size ? bytes : 0;
}

static struct glk_chunk *take(struct glk_managed *m)
{
	for (uint32_t i = 0; i < GLK_CHUNKS_MAX; i++) {
		if (m->at[i].state != GLK_CHUNK_FREE)
			continue;
		m->used = m->used > i ? m->used : i + 1;
		return &m->at[i];
	}
	glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"a GPU has %d chunks of managed memory at most", GLK_CHUNKS_MAX);
	return NULL;
}

/* Words of a bit for each slot. */
static size_t said_words(const struct glk_chunk *chunk, const struct glk_cache *cache)
{
	return (size_t)(chunk->bytes / cache->conf->pool_small_page / 64 + 1);
}

#define SAID 4 /* things that may be said of a slot */

static size_t said_bytes(const struct glk_chunk *chunk, const struct glk_cache *cache)
{
	return said_words(chunk, cache) * (SAID + 64) * sizeof(uint64_t);
}

static int make_said(struct glk_cache *cache, struct glk_chunk *chunk)
{
	size_t words = said_words(chunk, cache);

	chunk->preferred = glk_region_new(said_bytes(chunk, cache));
	if (!chunk->preferred)
		return -ENOMEM;
	chunk->accessed = chunk->preferred + words;
	chunk->own = chunk->accessed + words;
	chunk->eased = chunk->own + words;
	chunk->given_ns = (int64_t *)(chunk->eased + words);
	return 0;
}

static void free_said(struct glk_cache *cache, struct glk_chunk *chunk)
{
	glk_region_free(chunk->preferred, said_bytes(chunk, cache));
	chunk->preferred = NULL;
}

/* The tables of a chunk, and its memory. Without the lock. */
static int make(struct glk_cache *cache, struct glk_chunk *chunk)
{
	struct glk_node *node = glk_pool_gpu(&cache->managed->pool, cache->device);
	struct glk_map_size size = {
		.step = whole(chunk->bytes, GIB), .most = whole(chunk->bytes, GIB)};
	int err;

	if (make_said(cache, chunk))
		return -ENOMEM;
	err = glk_arena_init_alone(
		&chunk->arena, cache, &glk_arena_managed, &chunk->space, node, size);
	if (err)
		free_said(cache, chunk);
	else
		glk_map_limit(&chunk->arena.map, chunk->bytes);
	return err;
}

static void forget(struct glk_cache *cache, struct glk_chunk *chunk)
{
	free_said(cache, chunk);
	cache->managed->bytes -= chunk->bytes;
	chunk->state = GLK_CHUNK_FREE;
}

/* Nobody else touches it meanwhile, since it is ENDING. */
static int take_down(struct glk_cache *cache, struct glk_chunk *chunk)
{
	struct glk_limbo limbo = GLK_LIMBO(&cache->streams);
	int err;

	chunk->state = GLK_CHUNK_ENDING;
	err = glk_limbo_empty(&limbo, &chunk->arena.map);
	if (err) {
		chunk->state = GLK_CHUNK_READY;
		return err;
	}
	glk_arena_fini_alone(&chunk->arena, &chunk->space);
	forget(cache, chunk);
	return 0;
}

/* Each waits for the GPU, the first one longest. */
static void clear(struct glk_cache *cache, uint64_t size)
{
	struct glk_managed *m = cache->managed;
	int err = 0;

	glk_plan_begin(cache);
	for (uint32_t i = 0; i < m->used && !err; i++)
		if (m->at[i].bytes < size && is_idle(&m->at[i]))
			err = take_down(cache, &m->at[i]);
	glk_plan_end(cache);
}

static int ask_free(struct glk_cache *cache, size_t *ret_free)
{
	size_t total = 0;
	int err;

	glk_lock_pause(&cache->lock);
	err = cache->drv->ops->memory_info(cache->drv, cache->device, ret_free, &total);
	glk_lock_resume(&cache->lock);
	return err;
}

/* Bytes that a new chunk may have, after what is too small went for it. */
static int find_room(
	struct glk_cache *cache, uint64_t size, bool over, uint64_t *ret_bytes)
{
	struct glk_managed *m = cache->managed;
	size_t free = SIZE_MAX;
	int err;

	/* what tier.managed refuses is so whatever the GPU has */
	if (!measure(cache, size, staying(m, size), free, over))
		return refuse(cache, size, free);
	err = over ? 0 : ask_free(cache, &free);
	if (err)
		return err;
	*ret_bytes = measure(cache, size, staying(m, size), free, over);
	if (*ret_bytes && staying(m, size) < m->bytes) {
		clear(cache, size);
		*ret_bytes = measure(cache, size, m->bytes, free, over);
	}
	if (*ret_bytes)
		return 0;
	m->refused.bytes = staying(m, size) + size;
	m->refused.held = glk_load_relaxed(&cache->node->held);
	m->refused.until_ns = glk_clock_ns() + STANDS_NS;
	return refuse(cache, size, free);
}

bool glk_chunk_refused(const struct glk_cache *cache, uint64_t size)
{
	const struct glk_managed *m = cache->managed;

	size = whole(size, cache->conf->pool_small_page);
	return m->refused.bytes && staying(m, size) + size >= m->refused.bytes &&
		glk_load_relaxed(&cache->node->held) >= m->refused.held &&
		glk_clock_ns() < m->refused.until_ns;
}

int glk_chunk_make(
	struct glk_cache *cache, uint64_t size, bool over, struct glk_chunk **ret_chunk)
{
	struct glk_managed *m = cache->managed;
	struct glk_chunk *chunk;
	uint64_t bytes = 0;
	int err;

	size = whole(size, cache->conf->pool_small_page);
	err = find_room(cache, size, over, &bytes);
	if (err)
		return err;
	chunk = take(m);
	if (!chunk)
		return -ENOMEM;
	chunk->state = GLK_CHUNK_MAKING;
	chunk->bytes = bytes;
	chunk->blocks = 0;
	chunk->users = chunk->eased_users = 0;
	chunk->unsaying = 0;
	m->bytes += bytes;
	glk_lock_pause(&cache->lock);
	err = make(cache, chunk);
	glk_lock_resume(&cache->lock);
	if (err) {
		m->bytes -= bytes;
		chunk->state = GLK_CHUNK_FREE;
		return err;
	}
	chunk->state = GLK_CHUNK_READY;
	*ret_chunk = chunk;
	return 0;
}

int glk_managed_trim(struct glk_cache *cache)
{
	struct glk_managed *m = cache->managed;
	int err = 0, failed;

	for (uint32_t i = 0; m && i < m->used; i++) {
		struct glk_chunk *chunk = &m->at[i];

		if (!is_idle(chunk))
			continue;
		failed = take_down(cache, chunk);
		/* a stream captures: later */
		if (failed != -EBUSY)
			err = err ? err : failed;
	}
	if (m) {
		glk_lock_pause(&cache->lock);
		glk_managed_source_retry(&m->source);
		glk_lock_resume(&cache->lock);
	}
	return err;
}

int glk_managed_fini(struct glk_cache *cache)
{
	struct glk_managed *m = cache->managed;
	int err = 0, failed;

	for (uint32_t i = 0; m && i < m->used; i++) {
		struct glk_chunk *chunk = &m->at[i];

		if (chunk->state == GLK_CHUNK_FREE)
			continue;
		chunk->arena.map.lock = NULL;
		failed = glk_arena_empty(&chunk->arena);
		err = err ? err : failed;
		glk_arena_fini_alone(&chunk->arena, &chunk->space);
		forget(cache, chunk);
	}
	if (!m)
		return 0;
	if (glk_managed_source_retry(&m->source) && !err)
		err = glk_error(-EIO, GLAKE_ERROR_DRIVER,
			"the driver did not take managed memory of GPU %d back",
			cache->device);
	glk_pool_fini(&m->pool);
	glk_lock_fini(&m->saying);
	glk_region_free(m, sizeof(*m));
	cache->managed = NULL;
	return err;
}

/*
 * Stands between the map of a chunk and the driver. To reserve addresses is to have managed memory, more
 * of it than is asked for, since a map begins and ends at a multiple of what the index of the process
 * counts in: memory that is never touched takes none. Pages and mappings are words.
 */

static struct glk_managed_source *source_of(struct glk_drv *drv)
{
	return (struct glk_managed_source *)(void *)drv;
}

static int source_reserve(
	struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr)
{
	struct glk_managed_source *source = source_of(drv);
	uint64_t addr, base, none;
	int err;

	err = source->real->ops->managed_alloc(
		source->real, source->device, size + align, &addr);
	if (err)
		return err;
	base = (addr + align - 1) & ~((uint64_t)align - 1);
	for (int i = 0; i < GLK_CHUNKS_MAX; i++) {
		none = 0;
		if (!glk_cas_acq_rel(&source->piece[i].base, &none, base))
			continue;
		source->piece[i].addr = addr;
		source->piece[i].size = size + align;
		*ret_addr = base;
		return 0;
	}
	source->real->ops->managed_free(source->real, addr);
	return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"a GPU has %d chunks of managed memory at most", GLK_CHUNKS_MAX);
}

/* In place of a base: somebody gives the piece back, or the driver kept it. */
#define LEAVING UINT64_C(1)

/* Nobody finds it from here on: as soon as the driver has it, its addresses may be another one's. */
static int give_back(struct glk_managed_source *source, int i, uint64_t size)
{
	int err;

	glk_store_relaxed(&source->piece[i].base, LEAVING);
	err = source->real->ops->managed_free(source->real, source->piece[i].addr);
	if (err) /* pairs with: glk_managed_source_retry */
		glk_store_release(&source->piece[i].lost, size);
	else /* pairs with: the exchange in source_reserve */
		glk_store_release(&source->piece[i].base, 0);
	return err;
}

/* What the driver does not take back is kept, to be tried again. */
static int source_unreserve(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct glk_managed_source *source = source_of(drv);

	for (int i = 0; i < GLK_CHUNKS_MAX; i++)
		if (glk_load_relaxed(&source->piece[i].base) == addr)
			return give_back(source, i, size);
	return glk_error(-EIO, GLAKE_ERROR_CORRUPT,
		"no chunk of managed memory begins at %#lx", (unsigned long)addr);
}

bool glk_managed_piece(const struct glk_cache *cache, const struct glk_range *range,
	uint64_t *ret_addr, uint64_t *ret_size)
{
	const struct glk_managed_source *source = &cache->managed->source;

	for (int i = 0; i < GLK_CHUNKS_MAX; i++)
		/* it stays while it has a block */
		if (glk_load_relaxed(&source->piece[i].base) == range->reserved) {
			*ret_addr = source->piece[i].addr;
			*ret_size = source->piece[i].size;
			return true;
		}
	return false;
}

uint64_t glk_managed_source_retry(struct glk_managed_source *source)
{
	uint64_t left = 0;

	for (int i = 0; i < GLK_CHUNKS_MAX; i++) {
		uint64_t lost = glk_load_relaxed(&source->piece[i].lost);

		/* pairs with: give_back */
		if (lost && glk_cas_acq_rel(&source->piece[i].lost, &lost, 0) &&
			give_back(source, i, lost))
			left += lost;
	}
	return left;
}

static int source_create(struct glk_drv *drv, struct glk_place place, size_t size,
	uint32_t flags, uint64_t *ret_page)
{
	(void)drv;
	(void)place;
	(void)size;
	(void)flags;
	*ret_page = 0;
	return 0;
}

static int source_release(struct glk_drv *drv, uint64_t page)
{
	(void)drv;
	(void)page;
	return 0;
}

static int source_map(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t page)
{
	(void)drv;
	(void)addr;
	(void)size;
	(void)page;
	return 0;
}

static int source_set_access(struct glk_drv *drv, uint64_t addr, size_t size,
	const struct glk_grant *grants, size_t count)
{
	(void)drv;
	(void)addr;
	(void)size;
	(void)grants;
	(void)count;
	return 0;
}

static int source_unmap(struct glk_drv *drv, uint64_t addr, size_t size)
{
	(void)drv;
	(void)addr;
	(void)size;
	return 0;
}

/* All that maps and nodes ask for. */
static const struct glk_drv_ops source_ops = {
	.version = GLK_DRV_OPS_VERSION,
	.name = "managed",
	.reserve = source_reserve,
	.unreserve = source_unreserve,
	.create = source_create,
	.release = source_release,
	.map = source_map,
	.set_access = source_set_access,
	.unmap = source_unmap,
};

void glk_managed_source_init(
	struct glk_managed_source *source, struct glk_drv *real, int device)
{
	source->drv.ops = &source_ops;
	source->real = real;
	source->device = device;
}
