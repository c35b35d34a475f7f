/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kernels of guard, and what they found. Looks at blocks that were freed are entries of a ring, in memory of the host;
 * a kernel takes some of them and writes to each what it found. They end in any order, and are read in that in which they
 * were queued. A look at all that are live goes over a table in batches, each copied to a page of the GPU first.
 */
#include "base/error.h"
#include "base/log.h"
#include "guard/guarded.h"

#include <errno.h>

#define PAGE (UINT64_C(2) << 20)

/* Blocks of a kernel that fills one block of memory, that looks at one, and at all. Of a kernel over 8 GiB each look is an
 * entry of the host that is read and written: 264 blocks read 3.8 TB/s on an H200, 1056 3.2, 4224 1.5. */
#define BLOCKS_FILL 1024
#define BLOCKS_LOOK 256
#define BLOCKS_ALL  4096

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
			drv, device, w->module, &glk_guard_canaries, &w->canaries);
	if (!err)
		err = drv->ops->kernel_find(
			drv, device, w->module, &glk_guard_bodies, &w->bodies);
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

/* ---- Blocks that come and go ---- */

static uint32_t parts_of(uint64_t bytes, uint32_t most)
{
	uint64_t parts = (bytes + GLK_GUARD_PART - 1) / GLK_GUARD_PART;

	return parts < most ? (uint32_t)parts : most;
}

int glk_guard_write(struct glk_guard *g, uint64_t addr, uint64_t body, uint32_t canary,
	uint32_t front, struct CUstream_st *stream)
{
	struct glk_guard_range r = {.addr = addr,
		.body = body,
		.canary = canary,
		.front = front,
		.secret = g->secret};
	struct glk_launch launch = {.kernel = g->work.fill,
		.blocks = body ? parts_of(body, BLOCKS_FILL) : 1,
		.threads = body ? GLK_GUARD_THREADS : GLK_GUARD_LANES,
		.args = &r,
		.size = sizeof(r),
		.addr = addr - front,
		.bytes = front + body + canary,
		.write = true};

	return g->cache->drv->ops->launch(
		g->cache->drv, g->cache->device, &launch, stream);
}

bool glk_guard_look_note(struct glk_guard *g, uint64_t number, bool front)
{
	const struct glk_guard_gone *gone = glk_guard_gone(g, number);
	uint64_t at = g->look_end % GLK_GUARD_LOOKS;

	if (g->look_end - g->look_first == GLK_GUARD_LOOKS)
		return false;
	g->work.host->look[at] = (struct glk_guard_look){
		.addr = gone->was.addr - (front ? gone->was.front : 0),
		.asked = front ? 0 : gone->was.asked,
		.length = front ? gone->was.front : glk_load_relaxed(&gone->was.canary),
		.body = {.first = UINT64_MAX},
		.canary = {.first = UINT64_MAX}};
	g->look[at].gone = number;
	g->look[at].filled = gone->filled;
	g->look[at].front = front;
	g->look_end++;
	return true;
}

bool glk_guard_look_queue(struct glk_guard *g, uint64_t from, struct CUstream_st *stream)
{
	struct glk_guard_look *looks = g->work.host->look;
	bool filled = g->look[from % GLK_GUARD_LOOKS].filled;
	uint32_t count = (uint32_t)(g->look_end - from), most = BLOCKS_ALL / count;
	struct glk_guard_run run = {.looks = (uintptr_t)looks,
		.first = (uint32_t)(from % GLK_GUARD_LOOKS),
		.count = count,
		.secret = g->secret};
	uint32_t per = GLK_GUARD_THREADS / GLK_GUARD_LANES;
	struct glk_launch launch = {.kernel = filled ? g->work.bodies : g->work.canaries,
		.threads = GLK_GUARD_THREADS,
		.args = &run,
		.size = sizeof(run)};

	most = most < BLOCKS_LOOK ? most : BLOCKS_LOOK;
	for (uint64_t i = from; filled && i < g->look_end; i++) {
		struct glk_guard_look *look = &looks[i % GLK_GUARD_LOOKS];

		look->parts = parts_of(look->asked, most);
		run.parts = run.parts > look->parts ? run.parts : look->parts;
	}
	launch.blocks = filled ? count * run.parts : (count + per - 1) / per;
	/* of one a driver can judge what it touches */
	if (count == 1) {
		const struct glk_guard_look *look = &looks[run.first];

		launch.addr = look->addr + (filled ? 0 : look->asked);
		launch.bytes = look->length + (filled ? look->asked : 0);
	}
	if (!g->cache->drv->ops->launch(g->cache->drv, g->cache->device, &launch, stream))
		return true;
	g->look_end = from;
	return false;
}

/* Something is wrong with a block that was freed, which others may have had since. Of a canary it is said once. */
static void say(struct glk_guard *g, const struct glk_guard_gone *gone,
	const struct glk_guard_look *look, bool front)
{
	struct glk_guard_record *record = gone->record;

	if (record->serial != gone->was.serial)
		record = NULL;
	if (look->body.count)
		glk_guard_late(g, gone, &look->body);
	if (look->canary.count && front)
		glk_guard_underrun(g, &gone->was, gone, &look->canary);
	else if (look->canary.count && (!record || !glk_load_relaxed(&record->said)))
		glk_guard_overrun(g, &gone->was, gone, &look->canary);
	if (record && (look->body.count || look->canary.count))
		glk_store_relaxed(&record->said, true);
}

void glk_guard_poll(struct glk_guard *g)
{
	for (; g->look_first < g->look_end; g->look_first++) {
		uint64_t at = g->look_first % GLK_GUARD_LOOKS;
		const struct glk_guard_look *look = &g->work.host->look[at];

		/* pairs with: the last write of the kernel, or the release of its twin */
		if (glk_peek_acquire(&look->ended) <
			(g->look[at].filled ? look->parts : 1))
			break;
		if (look->body.count || look->canary.count)
			say(g, glk_guard_gone(g, g->look[at].gone), look,
				g->look[at].front);
	}
}

/* ---- All ---- */

/* Canaries of a batch, and whose each is: held, so that they stay where they are. One with two has both in turn. */
struct batch {
	struct glk_guard *g;
	struct glk_arena *arena;
	struct glk_extent *held[GLK_GUARD_TABLE];
	uint32_t count, blocks;
};

static void enter(struct batch *b, struct glk_extent *e, uint64_t addr, uint32_t bytes)
{
	b->g->work.host->table[b->count] =
		(struct glk_guard_entry){.addr = addr, .bytes = bytes};
	b->held[b->count++] = e;
}

/* A block whose canaries were queued before the wait. */
static void add(struct batch *b, uint32_t id, uint64_t serial)
{
	struct glk_extent *e = glk_extent_at(&b->arena->map, id);
	struct glk_guard_record *record = glk_guard_record(b->g, b->arena, e);
	uint64_t addr = glk_load_relaxed(&e->addr);
	uint32_t canary;

	/* pairs with: the release of who has written the record */
	if (!record || !glk_load_acquire(&record->guarded) ||
		!glk_word_hold(&e->word, &e->addr, addr))
		return;
	canary = glk_load_relaxed(&record->canary);
	if (!glk_load_relaxed(&record->guarded) || !(canary + record->front) ||
		glk_load_relaxed(&record->said) || record->addr != addr ||
		record->serial > serial || glk_extent_lacks(e)) {
		glk_word_let_go(&e->word);
		return;
	}
	b->blocks++;
	if (canary)
		enter(b, e, addr + record->asked, canary);
	if (record->front)
		enter(b, e, addr - record->front, record->front);
}

static int run(struct batch *b)
{
	struct glk_guard_work *w = &b->g->work;
	uint32_t per = GLK_GUARD_THREADS / GLK_GUARD_LANES * GLK_GUARD_TOGETHER;
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
	uint32_t twice = 0;

	for (uint32_t i = 0; !err && b->count && i < founds->count && i < GLK_GUARD_FOUND;
		i++) {
		struct glk_guard_record *record =
			glk_guard_record(b->g, b->arena, b->held[founds->at[i].index]);

		if (b->g->work.host->table[founds->at[i].index].addr < record->addr)
			glk_guard_underrun(b->g, record, NULL, &founds->at[i].found);
		else
			glk_guard_overrun(b->g, record, NULL, &founds->at[i].found);
		/* none that was said is in the batch: it is broken at both ends */
		twice += glk_load_relaxed(&record->said);
		glk_store_relaxed(&record->said, true);
	}
	if (!err && b->count) {
		ret->blocks += b->blocks;
		ret->broken += founds->count - twice;
	}
	for (uint32_t i = 0; i < b->count; i++)
		if (!i || b->held[i] != b->held[i - 1])
			glk_word_let_go(&b->held[i]->word);
	b->count = b->blocks = 0;
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
		if (b->count >= GLK_GUARD_TABLE - 1 || id == used)
			err = look_at_batch(b, ret);
	}
	return err;
}

static int look_at_all(struct batch *b, uint64_t serial, struct glake_checked *ret)
{
	struct glk_arena *sampled = glk_cache_sampled(b->g->cache), *arena;
	struct glk_tag_guard *tag;
	int err = make_table(b->g);

	if (!err)
		err = look_at_arena(b, &b->g->cache->arena, serial, ret);
	if (!err && sampled)
		err = look_at_arena(b, sampled, serial, ret);
	for (int i = 0; !err && (tag = glk_cache_tag_guard_at(b->g->cache, i, &arena));
		i++)
		if (glk_load_relaxed(&tag->records))
			err = look_at_arena(b, arena, serial, ret);
	return err;
}

static int look(
	struct glk_guard *g, uint64_t serial, uint64_t freed, struct glake_checked *ret)
{
	struct batch *b = glk_region_new(sizeof(*b));
	uint64_t found;
	int err = -ENOMEM;

	found = glk_guard_enter(g);
	if (b) {
		b->g = g;
		err = g->work.ready ? look_at_all(b, serial, ret) : 0;
	}
	if (!err)
		err = glk_guard_look_at_all(g, freed);
	ret->freed += g->looked;
	ret->kept += g->filled;
	ret->again += g->again;
	ret->unchecked += g->unchecked;
	ret->unguarded += glk_load_relaxed(&g->unguarded);
	ret->findings += g->found;
	ret->cleared += glk_load_relaxed(&g->cleared);
	ret->uncleared += glk_load_relaxed(&g->uncleared);
	glk_guard_leave(g, found);
	if (b)
		glk_region_free(b, sizeof(*b));
	return err;
}

int glk_guard_check(struct glk_cache *cache, struct glake_checked *ret)
{
	struct glk_guard *g = glk_guard_of(cache);
	uint64_t serial, freed;
	int err;

	if (!glk_guard_ops(cache) ||
		!glk_load_acquire(&cache->started)) /* as glk_cache_start() */
		return 0;
	/* others go on meanwhile: what they queue is not waited for */
	serial = glk_load_acquire(&g->serial); /* pairs with: the addition in born */
	glk_lock(&g->lock);
	freed = g->freed;
	glk_unlock(&g->lock);
	glk_lock(&cache->lock);
	err = glk_clock_sync_all(&cache->streams);
	glk_unlock(&cache->lock);
	return err ? err : look(g, serial, freed, ret);
}
