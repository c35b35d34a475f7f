/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which bin a size has, and small blocks that are carved ahead of requests: see quick.h. */
#include "cache/bin/quick.h"

#include "base/conf.h"

/* Most bytes and blocks that one miss carves ahead. */
#define REFILL_BYTES  (UINT64_C(256) << 10)
#define REFILL_BLOCKS 255

static void set_key(struct glk_bin *bin, uint64_t grains)
{
	uint64_t crowded = glk_load_relaxed(&bin->crowd) ? GLK_BIN_CROWDED : 0;

	glk_store_relaxed(&bin->key, grains | crowded);
}

struct glk_row *glk_quick_row(
	struct glk_cache *cache, uint32_t stream, struct CUstream_st *handle)
{
	struct glk_row *row = &cache->rows[stream];

	if (glk_load_relaxed(&row->entered) && row->key == (uintptr_t)handle)
		return row;
	/* a row that had another stream keeps its keys, and what may lie under them */
	if (!glk_load_relaxed(&row->entered))
		row->bin = &cache->bins[(size_t)stream * GLK_BINS];
	row->key = (uintptr_t)handle;
	glk_poke_relaxed(&row->met, 0);
	glk_store_relaxed(&row->handle,
		glk_load_relaxed(&cache->diverted) ? GLK_ROW_ENDED : handle);
	glk_store_release(&row->entered, true); /* pairs with: sit */
	if (cache->last_row < stream)
		glk_poke_relaxed(&cache->last_row, stream);
	return row;
}

uint32_t glk_quick_bin(struct glk_cache *cache, struct glk_row *row, uint64_t grains)
{
	uint32_t i = glk_row_find(row, grains);

	if (i < GLK_BINS)
		return glk_quick_name(cache, row, i);
	i = glk_row_hash(grains);
	if (glk_bin_grains(&row->bin[i]) != GLK_BIN_NONE)
		i ^= 1;
	/* one that is full of another size is that size's, until further misses have emptied it */
	if (glk_bin_grains(&row->bin[i]) != GLK_BIN_NONE &&
		!glk_quick_empty(cache, row, i))
		return 0; /* row 0 is nobody's, so that what names it goes to no bin */
	row->keyed[i / 64] |= UINT64_C(1) << i % 64;
	row->bin[i].refill = 0;
	set_key(&row->bin[i], grains);
	return glk_quick_name(cache, row, i);
}

void glk_quick_crowd(struct glk_cache *cache, struct glk_bin *bin)
{
	uint32_t id;

	glk_lock(&cache->lock);
	id = glk_load_relaxed(&bin->crowd) ? 0 : glk_slab_get(&cache->crowds);
	if (id) /* pairs with: the acquire in row.h */
		glk_store_release(&bin->crowd, glk_slab_at(&cache->crowds, id));
	set_key(bin, glk_bin_grains(bin));
	glk_unlock(&cache->lock);
}

void glk_quick_refill(
	struct glk_cache *cache, struct glk_request *request, uint32_t extent)
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
		extent = glk_small_behind(&cache->arena, request, extent);
		if (!extent)
			break;
		made[count++] = extent;
	}
	/* the lowest comes out first */
	while (count--) {
		struct glk_extent *e = glk_extent_at(&cache->arena.map, made[count]);

		glk_store_relaxed(&e->bin, request->bin);
		/* pairs with: glk_cache_query */
		glk_store_release(&e->stream, (uint16_t)request->stream->id);
		glk_lookup_list(&cache->arena.map, made[count]);
		glk_quick_born(row, e->size);
		glk_quick_push(row, glk_quick_index(request->bin),
			glk_quick_base(&cache->arena.map), made[count], 0);
	}
}
