/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which bin a size has, and small blocks that are carved ahead of requests: see quick.h. */
#include "cache/quick.h"

#include "base/conf.h"

/* Most bytes and blocks that one miss carves ahead. */
#define REFILL_BYTES  (UINT64_C(256) << 10)
#define REFILL_BLOCKS 255

static enum glk_kind sort_of(const struct glk_cache *cache, uint64_t grains)
{
	return glk_map_kind(&cache->map, grains << GLK_GRAIN_SHIFT);
}

static void set_key(struct glk_bin *bin, uint64_t grains)
{
	uint64_t crowded = glk_load_relaxed(&bin->crowd) ? GLK_BIN_CROWDED : 0;

	glk_store_relaxed(&bin->key, grains | crowded);
}

static void make_bins(struct glk_cache *cache, struct glk_row *row)
{
	row->bin = &cache->bins[(size_t)(row - cache->rows) * GLK_BINS];
	for (uint32_t i = 0; i < GLK_BINS; i++)
		glk_store_relaxed(&row->bin[i].key, GLK_BIN_NONE);
}

struct glk_row *glk_quick_row(
	struct glk_cache *cache, uint32_t stream, struct CUstream_st *handle)
{
	struct glk_row *row = &cache->rows[stream];

	if (glk_load_relaxed(&row->entered) && row->key == (uintptr_t)handle)
		return row;
	/* a row that had another stream keeps its keys, and what may lie under them */
	if (!glk_load_relaxed(&row->entered))
		make_bins(cache, row);
	row->key = (uintptr_t)handle;
	glk_store_relaxed(&row->handle, glk_load_relaxed(&cache->diverted) ? GLK_ROW_ENDED : handle);
	glk_store_release(&row->entered, true); /* pairs with: sit */
	if (cache->last_row < stream)
		cache->last_row = stream;
	return row;
}

uint32_t glk_quick_bin(struct glk_cache *cache, struct glk_row *row, uint64_t grains)
{
	uint32_t i = glk_row_find(row, grains);
	uint64_t old;
	struct glk_harvest h = {0};

	if (i < GLK_BINS)
		return glk_quick_name(cache, row, i);
	/* row 0 is nobody's, so that what names it goes to no bin */
	if (cache->conf->policy_bins == GLK_POLICY_BINS_NONE &&
		grains << GLK_GRAIN_SHIFT > cache->small_most)
		return 0;
	i = glk_row_hash(grains);
	if (glk_bin_grains(&row->bin[i]) != GLK_BIN_NONE)
		i ^= 1;
	old = glk_bin_grains(&row->bin[i]);
	if (old != GLK_BIN_NONE) {
		glk_harvest_bin(cache, row, i, &h);
		glk_harvest_merge(cache, &h);
		row->keyed[sort_of(cache, old)][i / 64] &= ~(UINT64_C(1) << i % 64);
	}
	row->keyed[sort_of(cache, grains)][i / 64] |= UINT64_C(1) << i % 64;
	row->bin[i].refill = 0;
	set_key(&row->bin[i], grains);
	return glk_quick_name(cache, row, i);
}

void glk_quick_crowd(struct glk_cache *cache, struct glk_bin *bin)
{
	uint32_t id;

	glk_lock(cache->lock);
	id = glk_load_relaxed(&bin->crowd) ? 0 : glk_slab_get(&cache->crowds);
	if (id) /* pairs with: the acquire in row.h */
		glk_store_release(&bin->crowd, glk_slab_at(&cache->crowds, id));
	set_key(bin, glk_bin_grains(bin));
	glk_unlock(cache->lock);
}

/* Carves a block of the same size right behind one, where pages are, in use by no other
 * stream. 0: there is no room. */
static uint32_t carve_behind(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
	uint64_t offset = e->offset + e->size;
	uint32_t next = glk_load_relaxed(&e->next), first, last, id;
	unsigned waits;

	/* with no extent behind it, new addresses: its page may go on there */
	if (next ? glk_extent_state(glk_extent_at(&cache->map, next)) !=
					GLK_EXTENT_FREE ||
				glk_extent_at(&cache->map, next)->size < request->rounded
		 : request->rounded > span->size - offset)
		return 0;
	first = glk_slot_of(span, offset);
	last = glk_slot_of(span, offset + request->rounded - 1);
	if (glk_bits_count(span->usable, first, last) != last - first + 1 ||
		glk_bits_meet(span->shared, span->usable, first, last))
		return 0;
	for (uint32_t slot = first; slot <= last; slot++) {
		if (!glk_request_may(cache, request, &span->use[slot], &waits) || waits)
			return 0;
	}
	if (glk_extent_carve(span, next, offset, request->rounded, &id))
		return 0;
	request->own = false;
	if (glk_back(cache, request, span, id)) {
		glk_extent_give_back(span, id);
		return 0;
	}
	return id;
}

void glk_quick_refill(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, uint32_t extent)
{
	struct glk_row *row = glk_quick_row_of(cache, request->bin);
	struct glk_bin *bin = &row->bin[glk_quick_index(request->bin)];
	uint64_t most = REFILL_BYTES / request->rounded;
	uint32_t made[REFILL_BLOCKS], count = 0;

	if (most > bin->refill)
		most = bin->refill;
	bin->refill = bin->refill * 2 + 1;
	if (bin->refill > REFILL_BLOCKS)
		bin->refill = REFILL_BLOCKS;
	while (count < most) {
		extent = carve_behind(cache, request, span, extent);
		if (!extent)
			break;
		made[count++] = extent;
	}
	/* the lowest comes out first */
	while (count--) {
		struct glk_extent *e = glk_extent_at(&cache->map, made[count]);

		glk_store_relaxed(&e->bin, request->bin);
		e->stream = (uint16_t)request->stream->id;
		e->left = 0;
		glk_extent_set(e, GLK_EXTENT_QUICK);
		glk_lookup_enter(span, made[count]);
		glk_quick_push(row, glk_quick_index(request->bin),
			glk_quick_base(&cache->map), made[count], 0);
	}
}
