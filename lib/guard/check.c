/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kernels of guard, and what they found. A look at one canary is queued behind the free of its block and writes to
 * an entry of a ring, in memory of the host: entries end in any order, and are read in that of the frees. A look at all
 * goes over a table in batches, each copied to a page of the GPU first.
 */
#include "base/error.h"
#include "base/log.h"
#include "guard/guarded.h"

#include <errno.h>

#define PAGE (UINT64_C(2) << 20)

/* Blocks of a kernel over one range, each of which reads so many bytes at least. */
#define BLOCKS_MOST 1024
#define BLOCK_LEAST (UINT64_C(16) << 10)

static int find_kernels(struct glk_guard *g)
{
	struct glk_drv *drv = g->cache->drv;
	struct glk_guard_work *w = &g->work;
	int device = g->cache->device;
	int err = drv->ops->module_load(drv, device, glk_guard_text, &w->module);

	if (err)
		return err;
	err = drv->ops->kernel_find(drv, device, w->module, &glk_guard_fill, &w->fill);
	if (!err)
		err = drv->ops->kernel_find(
			drv, device, w->module, &glk_guard_scan, &w->scan);
	if (!err)
		err = drv->ops->kernel_find(
			drv, device, w->module, &glk_guard_table_check, &w->check);
	if (err)
		drv->ops->module_free(drv, device, w->module);
	return err;
}

static int make(struct glk_guard *g)
{
	struct glk_drv *drv = g->cache->drv;
	struct glk_guard_work *w = &g->work;
	int err;

	w->host = glk_region_new(sizeof(*w->host));
	if (!w->host)
		return -ENOMEM;
	err = drv->ops->host_lock(drv, g->cache->device, w->host, sizeof(*w->host));
	if (err)
		goto region;
	err = find_kernels(g);
	if (!err)
		return 0;
	drv->ops->host_unlock(drv, g->cache->device, w->host);
region:
	glk_region_free(w->host, sizeof(*w->host));
	w->host = NULL;
	return err;
}

int glk_guard_ready(struct glk_guard *g)
{
	struct glk_guard_work *w = &g->work;
	struct glake_error why = {.sz = sizeof(why)};

	if (w->ready || w->failed)
		return w->failed;
	w->failed = make(g);
	w->ready = !w->failed;
	if (w->failed) {
		glake_last_error(&why);
		glk_warn("no block of GPU %d is guarded: %s", g->cache->device, why.text);
	}
	return w->failed;
}

static void end_table(struct glk_guard *g)
{
	struct glk_drv *drv = g->cache->drv;
	struct glk_guard_work *w = &g->work;

	if (w->table) {
		drv->ops->unmap(drv, w->table, PAGE);
		drv->ops->release(drv, w->page);
		drv->ops->unreserve(drv, w->table, PAGE);
		w->table = 0;
	}
	if (w->stream)
		drv->ops->stream_free(drv, g->cache->device, w->stream);
	w->stream = NULL;
}

void glk_guard_work_fini(struct glk_guard *g)
{
	struct glk_drv *drv = g->cache->drv;
	struct glk_guard_work *w = &g->work;

	end_table(g);
	if (!w->ready)
		return;
	drv->ops->module_free(drv, g->cache->device, w->module);
	drv->ops->host_unlock(drv, g->cache->device, w->host);
	glk_region_free(w->host, sizeof(*w->host));
}

int glk_guard_stream(struct glk_guard *g)
{
	struct glk_guard_work *w = &g->work;

	return w->stream ? 0
			 : g->cache->drv->ops->stream_new(
				   g->cache->drv, g->cache->device, &w->stream);
}

/* A stream and a page for a table, at the first use. */
static int make_table(struct glk_guard *g)
{
	struct glk_place place = {GLK_PLACE_GPU, g->cache->device};
	struct glk_grant grant = {place, GLK_ACCESS_WRITE};
	struct glk_drv *drv = g->cache->drv;
	struct glk_guard_work *w = &g->work;
	int err;

	if (w->table)
		return 0;
	err = glk_guard_stream(g);
	if (err)
		return err;
	err = drv->ops->reserve(drv, PAGE, PAGE, &w->table);
	if (err)
		goto none;
	err = drv->ops->create(drv, place, PAGE, 0, &w->page);
	if (err)
		goto addresses;
	err = drv->ops->map(drv, w->table, PAGE, w->page);
	if (err)
		goto page;
	err = drv->ops->set_access(drv, w->table, PAGE, &grant, 1);
	if (!err)
		return 0;
	drv->ops->unmap(drv, w->table, PAGE);
page:
	drv->ops->release(drv, w->page);
addresses:
	drv->ops->unreserve(drv, w->table, PAGE);
none:
	w->table = 0;
	return err;
}

/* ---- One range ---- */

static int launch(struct glk_guard *g, uint64_t kernel, struct glk_guard_range *r,
	bool write, struct CUstream_st *stream)
{
	uint64_t blocks = (r->bytes + BLOCK_LEAST - 1) / BLOCK_LEAST;
	struct glk_launch launch = {.kernel = kernel,
		.threads =
			r->bytes <= GLK_CANARY_MOST ? GLK_GUARD_LANES : GLK_GUARD_THREADS,
		.args = r,
		.size = sizeof(*r),
		.addr = r->addr,
		.bytes = r->bytes,
		.write = write};

	launch.blocks = (uint32_t)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST);
	r->secret = g->secret;
	r->blocks = launch.blocks;
	return g->cache->drv->ops->launch(
		g->cache->drv, g->cache->device, &launch, stream);
}

int glk_guard_write(
	struct glk_guard *g, uint64_t addr, uint64_t bytes, struct CUstream_st *stream)
{
	struct glk_guard_range r = {.addr = addr, .bytes = bytes};

	return launch(g, g->work.fill, &r, true, stream);
}

static struct glk_guard_found *found_of(struct glk_guard *g, uint64_t number)
{
	return &g->work.host->gone[number % GLK_GUARD_GONE];
}

bool glk_guard_look(struct glk_guard *g, const struct glk_guard_gone *gone,
	struct CUstream_st *stream, bool may)
{
	struct glk_guard_gone *entry = &g->gone[g->freed % GLK_GUARD_GONE];
	uint64_t asked = gone->was.asked, canary = gone->was.canary;
	struct glk_guard_range r = {.addr = gone->was.addr + (gone->kept ? 0 : asked),
		.bytes = gone->kept ? asked + canary : canary};
	struct glk_guard_found *found;

	glk_guard_poll(g);
	/* the GPU is behind by so many frees: this one is not remembered */
	if (g->freed - g->seen == GLK_GUARD_GONE)
		return false;
	*entry = *gone;
	if (may && r.bytes) {
		found = found_of(g, g->freed);
		*found = (struct glk_guard_found){.first = UINT64_MAX};
		r.found = (uintptr_t)found;
		entry->looks = !launch(g, g->work.scan, &r, false, stream);
		entry->blocks = r.blocks;
	}
	g->freed++;
	return entry->looks;
}

void glk_guard_poll(struct glk_guard *g)
{
	for (; g->seen < g->freed; g->seen++) {
		struct glk_guard_gone *gone = &g->gone[g->seen % GLK_GUARD_GONE];
		struct glk_guard_found *found;

		if (!gone->looks)
			continue;
		found = found_of(g, g->seen);
		/* pairs with: the last write of the kernel, or the release of its twin */
		if (glk_peek_acquire(&found->ended) < gone->blocks)
			break;
		gone->looks = false;
		if (found->count && gone->kept)
			glk_guard_late(g, gone, found);
		else if (found->count)
			glk_guard_overrun(g, &gone->was, gone, found);
	}
}

/* ---- All ---- */

/* Those of a batch: held, so that they stay where they are. */
struct batch {
	struct glk_guard *g;
	struct glk_arena *arena;
	struct glk_extent *held[GLK_GUARD_TABLE];
	uint32_t count;
};

/* A block whose canary was queued before the wait. */
static void add(struct batch *b, uint32_t id, uint64_t serial)
{
	struct glk_extent *e = glk_extent_at(&b->arena->map, id);
	struct glk_guard_record *record = glk_guard_record(b->g, b->arena, e);
	struct glk_guard_entry *entry = &b->g->work.host->table[b->count];
	uint64_t addr = glk_load_relaxed(&e->addr);

	/* pairs with: the release of who has written the record */
	if (!record || !glk_load_acquire(&record->guarded) ||
		!glk_word_hold(&e->word, &e->addr, addr))
		return;
	if (!glk_load_relaxed(&record->guarded) || !record->canary ||
		record->addr != addr || record->serial > serial || glk_extent_lacks(e)) {
		glk_word_let_go(&e->word);
		return;
	}
	*entry = (struct glk_guard_entry){
		.addr = addr + record->asked, .bytes = record->canary};
	b->held[b->count++] = e;
}

static int run(struct batch *b)
{
	struct glk_guard_work *w = &b->g->work;
	uint32_t per = GLK_GUARD_THREADS / GLK_GUARD_LANES;
	struct glk_guard_table table = {.entries = w->table,
		.founds = (uintptr_t)&w->host->founds,
		.count = b->count,
		.secret = b->g->secret};
	struct glk_launch launch = {.kernel = w->check,
		.blocks = (b->count + per - 1) / per,
		.threads = GLK_GUARD_THREADS,
		.args = &table,
		.size = sizeof(table)};
	struct glk_drv *drv = b->g->cache->drv;
	int err;

	w->host->founds.count = 0;
	err = drv->ops->copy(drv, w->table, (uintptr_t)w->host->table,
		b->count * sizeof(*w->host->table), w->stream);
	if (!err)
		err = drv->ops->launch(drv, b->g->cache->device, &launch, w->stream);
	if (!err)
		err = drv->ops->stream_sync(drv, b->g->cache->device, w->stream);
	return err;
}

static int look_at_batch(struct batch *b, struct glake_checked *ret)
{
	struct glk_guard_founds *founds = &b->g->work.host->founds;
	int err = b->count ? run(b) : 0;

	for (uint32_t i = 0; !err && b->count && i < founds->count && i < GLK_GUARD_FOUND;
		i++) {
		struct glk_guard_record *record =
			glk_guard_record(b->g, b->arena, b->held[founds->at[i].index]);

		glk_guard_overrun(b->g, record, NULL, &founds->at[i]);
		/* said once */
		record->canary = 0;
	}
	if (!err && b->count) {
		ret->blocks += b->count;
		ret->broken += founds->count;
	}
	for (uint32_t i = 0; i < b->count; i++)
		glk_word_let_go(&b->held[i]->word);
	b->count = 0;
	return err;
}

static int look_at_arena(struct batch *b, struct glk_arena *arena, uint64_t serial,
	struct glake_checked *ret)
{
	uint32_t used = glk_load_relaxed(&arena->map.extents.used);
	int err = 0;

	b->arena = arena;
	for (uint32_t id = 1; id <= used && !err; id++) {
		add(b, id, serial);
		if (b->count == GLK_GUARD_TABLE || id == used)
			err = look_at_batch(b, ret);
	}
	return err;
}

static int look_at_all(struct batch *b, uint64_t serial, struct glake_checked *ret)
{
	struct glk_arena *sampled = glk_cache_sampled(b->g->cache);
	int err = make_table(b->g);

	if (!err)
		err = look_at_arena(b, &b->g->cache->arena, serial, ret);
	if (!err && sampled)
		err = look_at_arena(b, sampled, serial, ret);
	return err;
}

static int look(struct glk_guard *g, uint64_t serial, struct glake_checked *ret)
{
	struct batch *b = glk_region_new(sizeof(*b));
	int err = -ENOMEM;

	glk_lock(&g->lock);
	if (b) {
		b->g = g;
		err = g->work.ready ? look_at_all(b, serial, ret) : 0;
	}
	/* all that was queued has ended */
	if (!err && g->work.ready)
		glk_guard_poll(g);
	ret->freed += g->looked;
	ret->kept += g->kept_end;
	ret->unchecked += g->unchecked;
	ret->unguarded += glk_load_relaxed(&g->unguarded);
	ret->findings += g->found;
	glk_unlock(&g->lock);
	if (b)
		glk_region_free(b, sizeof(*b));
	return err;
}

int glk_guard_check(struct glk_cache *cache, struct glake_checked *ret)
{
	struct glk_guard *g = glk_guard_of(cache);
	uint64_t serial;
	int err;

	if (!glk_guard_ops(cache) ||
		!glk_load_acquire(&cache->started)) /* as glk_cache_start() */
		return 0;
	glk_guard_ops(cache)->yield(cache);
	serial = glk_load_acquire(&g->serial); /* pairs with: the addition in born */
	glk_lock(&cache->lock);
	err = glk_clock_sync_all(&cache->streams);
	glk_unlock(&cache->lock);
	return err ? err : look(g, serial, ret);
}
