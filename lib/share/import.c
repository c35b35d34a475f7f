/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of other processes behind addresses of ours. An import is a reservation of its own
 * with the pages side by side in it. Their handles are given back as soon as they are mapped,
 * since a mapping keeps its page, so an import is nothing but a range of addresses.
 *
 * It is taken down when the stream's work has finished and not before that was waited for: what
 * the caller then tells the exporter is true.
 *
 * Every step can be refused by the driver, also on the way back. What it keeps stays in the
 * entry of its import and is asked for again when the GPU is closed.
 */
#include "base/error.h"
#include "base/thread.h"
#include "share/mirror.h"
#include "share/publish.h"

#include <errno.h>
#include <inttypes.h>

enum import_state {
	FREE = 0,
	BUSY, /* made or taken down by one thread */
	LIVE,
	ENDING, /* LIVE until its stream was waited for, which one thread does */
	KEPT,	/* of nobody, and yet not gone */
};

struct glk_import {
	uint64_t base;	 /* of the reservation; 0: none */
	uint64_t span;	 /* bytes of it */
	uint64_t mapped; /* bytes of it, from its beginning on */
	uint64_t page;	 /* handle that is still to be given back, if `has_page` */
	uint64_t addr;	 /* as it was given */
	uint32_t own;	 /* a page of the node that is behind it; 0: what was imported */
	bool has_page;
	bool reads;    /* and does not write */
	uint8_t state; /* enum import_state */
};

static struct glk_import *at(const struct glk_imports *imports, uint32_t id)
{
	return glk_slab_at(&imports->slab, id);
}

void glk_imports_init(struct glk_imports *imports, struct glk_drv *drv,
	struct glk_node *node, uint64_t keep)
{
	imports->keep = keep;
	imports->drv = drv;
	imports->node = node;
	glk_lock_init(&imports->lock, GLK_RANK_NODE);
}

/* An entry that is the caller's; 0 and a record for none. */
static uint32_t take_entry(struct glk_imports *imports)
{
	uint32_t id = 0;
	int err = 0;

	glk_lock(&imports->lock);
	if (!imports->slab.base)
		err = glk_slab_init(
			&imports->slab, sizeof(struct glk_import), GLK_IMPORTS_MAX);
	if (!err)
		id = glk_slab_get(&imports->slab);
	if (id)
		*at(imports, id) = (struct glk_import){.state = BUSY};
	glk_unlock(&imports->lock);
	return id;
}

static void set_state(struct glk_imports *imports, uint32_t id, enum import_state state)
{
	glk_lock(&imports->lock);
	at(imports, id)->state = (uint8_t)state;
	if (state == FREE)
		glk_slab_put(&imports->slab, id);
	glk_unlock(&imports->lock);
}

void glk_import_put_by(struct glk_imports *imports, uint64_t page)
{
	uint32_t id = take_entry(imports);

	if (!id)
		return;
	at(imports, id)->page = page;
	at(imports, id)->has_page = true;
	set_state(imports, id, KEPT);
}

/* Gives back what there is, in reverse; goes on after a failure with what does not depend on
 * it. 0 or the first error. */
static int take_down(struct glk_imports *imports, struct glk_import *import)
{
	struct glk_drv *drv = imports->drv;
	int err = 0, failed;

	if (import->mapped) {
		err = drv->ops->unmap(drv, import->base, import->mapped);
		import->mapped = err ? import->mapped : 0;
	}
	if (import->own && !import->mapped) {
		failed = glk_node_release(imports->node, import->own);
		import->own = 0;
		err = err ? err : failed;
	}
	if (import->has_page) {
		failed = drv->ops->release(drv, import->page);
		import->has_page = failed;
		err = err ? err : failed;
	}
	if (import->span && !import->mapped) {
		failed = drv->ops->unreserve(drv, import->base, import->span);
		import->span = failed ? import->span : 0;
		err = err ? err : failed;
	}
	return err;
}

/* The same for an entry in the hands of the caller, which is free then, or kept. */
static int drop(struct glk_imports *imports, uint32_t id)
{
	int err = take_down(imports, at(imports, id));

	set_state(imports, id, err ? KEPT : FREE);
	return err;
}

/* Whether the list is that of one block: pages in the order of its addresses, only the first
 * one begun in the middle, only the last one ended there. */
int glk_import_check(const struct glk_imports *imports, const struct glake_piece *pieces,
	size_t count, size_t size, uint64_t *ret_span)
{
	uint64_t span = 0, sum = 0;

	for (size_t i = 0; i < count; i++) {
		const struct glake_piece *p = &pieces[i];

		if (p->flags & ~GLAKE_PIECE_READ || p->reserved)
			return glk_error(-E2BIG, GLAKE_ERROR_INVAL,
				"piece %zu says more than this library knows", i);
		if (p->flags != pieces[0].flags)
			return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				"piece %zu may be written or may not, unlike the first",
				i);
		if (!p->page_size || p->page_size % imports->node->granularity ||
			__builtin_add_overflow(span, p->page_size, &span))
			return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				"piece %zu: a page of %zu bytes, not of whole %zu bytes",
				i, p->page_size, imports->node->granularity);
		if (!p->length || p->offset >= p->page_size ||
			p->length > p->page_size - p->offset)
			return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				"piece %zu: %zu bytes from %zu on are not in a page of %zu bytes",
				i, p->length, p->offset, p->page_size);
		if ((i && p->offset) ||
			(i + 1 < count && p->length != p->page_size - p->offset))
			return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				"piece %zu does not join the ones beside it", i);
		sum += p->length;
	}
	if (sum != size)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the pieces have %" PRIu64 " bytes, not %zu bytes", sum, size);
	*ret_span = span;
	return 0;
}

/* Memory of another GPU is told by the driver, where it can. */
static int check_place(struct glk_imports *imports, uint64_t page, size_t i)
{
	struct glk_drv *drv = imports->drv;
	struct glk_place place;
	int err = drv->ops->page_place(drv, page, &place);

	if (err)
		return err == -EOPNOTSUPP ? 0 : err;
	if (place.kind == imports->node->place.kind &&
		place.id == imports->node->place.id)
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"piece %zu is memory of %s %d, not of GPU %d", i,
		place.kind == GLK_PLACE_GPU ? "GPU" : "NUMA node", place.id,
		imports->node->place.id);
}

int glk_import_page(
	struct glk_imports *imports, int fd, size_t i, bool *ret_is, uint64_t *ret_page)
{
	struct glk_drv *drv = imports->drv;
	int err = drv->ops->import_fd(drv, fd, ret_page);

	*ret_is = !err;
	return err ? err : check_place(imports, *ret_page, i);
}

int glk_import_map(
	struct glk_imports *imports, uint64_t addr, size_t size, uint64_t page, size_t i)
{
	int err = imports->drv->ops->map(imports->drv, addr, size, page);

	/* what drivers say to a page that would not be mapped whole */
	if (err == -EINVAL || err == -EOPNOTSUPP)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"piece %zu: the page does not have %zu bytes", i, size);
	return err;
}

static int map_piece(struct glk_imports *imports, struct glk_import *import,
	const struct glake_piece *piece, size_t i)
{
	struct glk_drv *drv = imports->drv;
	int err;

	err = glk_import_page(imports, piece->fd, i, &import->has_page, &import->page);
	if (!err)
		err = glk_import_map(imports, import->base + import->mapped,
			piece->page_size, import->page, i);
	if (err)
		return err;
	import->mapped += piece->page_size;
	err = drv->ops->release(drv, import->page);
	import->has_page = err;
	return err;
}

static int map_all(struct glk_imports *imports, struct glk_import *import,
	const struct glake_piece *pieces, size_t count, uint64_t span)
{
	/* a large page of an odd number of slots has a smaller one */
	size_t large = imports->node->page_size[GLK_CLASS_LARGE], align = large & -large;
	struct glk_drv *drv = imports->drv;
	int err;

	err = drv->ops->reserve(drv, span, align, &import->base);
	if (err)
		return err;
	import->span = span;
	for (size_t i = 0; i < count && !err; i++)
		err = map_piece(imports, import, &pieces[i], i);
	import->addr = import->base + pieces[0].offset;
	return err;
}

/* Rights for the GPU and its peers, and no longer for those that were. */
int glk_import_allow(struct glk_imports *imports, uint64_t addr, uint64_t size,
	uint64_t was, enum glk_access access)
{
	struct glk_grant grants[GLK_GRANTS_MAX];
	struct glk_drv *drv = imports->drv;
	size_t count = glk_node_grants(imports->node, grants);

	grants[0].access = access;
	for (size_t i = 1; i < count; i++) {
		grants[i].access = access;
		was &= ~(UINT64_C(1) << grants[i].who.id);
	}
	for (; was; was &= was - 1)
		grants[count++] =
			(struct glk_grant){.who = {GLK_PLACE_GPU, __builtin_ctzll(was)}};
	return drv->ops->set_access(drv, addr, size, grants, count);
}

/* Peers may change meanwhile, for all that is live. */
static int publish(struct glk_imports *imports, uint32_t id)
{
	struct glk_import *import = at(imports, id);
	uint64_t peers, was = 0;
	bool same;
	int err;

	do {
		peers = glk_load_relaxed(&imports->node->peers);
		err = glk_import_allow(imports, import->base, import->mapped, was,
			import->reads ? GLK_ACCESS_READ : GLK_ACCESS_WRITE);
		if (err)
			return err;
		was |= peers;
		glk_lock(&imports->lock);
		same = peers == glk_load_relaxed(&imports->node->peers);
		if (same)
			import->state = LIVE;
		glk_unlock(&imports->lock);
	} while (!same);
	return 0;
}

int glk_import(struct glk_imports *imports, const struct glake_piece *pieces,
	size_t count, size_t size, uint64_t *ret_addr)
{
	uint64_t span;
	uint32_t id;
	int err;

	err = glk_import_check(imports, pieces, count, size, &span);
	if (err)
		return err;
	id = take_entry(imports);
	if (!id)
		return -ENOMEM;
	at(imports, id)->reads = pieces[0].flags & GLAKE_PIECE_READ;
	err = map_all(imports, at(imports, id), pieces, count, span);
	if (!err)
		err = publish(imports, id);
	if (err) {
		drop(imports, id);
		return err;
	}
	*ret_addr = at(imports, id)->addr;
	return 0;
}

/* Takes a live import out of the list; 0 if there is none at that address. */
static uint32_t claim(struct glk_imports *imports, uint64_t addr)
{
	uint32_t last, found = 0;

	glk_lock(&imports->lock);
	last = glk_load_relaxed(&imports->slab.used);
	for (uint32_t id = 1; id <= last && !found; id++) {
		struct glk_import *import = at(imports, id);

		if (import->state != LIVE || import->addr != addr)
			continue;
		import->state = ENDING;
		found = id;
	}
	glk_unlock(&imports->lock);
	return found;
}

/* Until the work of a stream has finished. On a GPU that is lost there is none. */
static int wait_for(struct glk_imports *imports, struct CUstream_st *stream)
{
	struct glk_drv *drv = imports->drv;
	int device = imports->node->place.id, err;
	struct glk_stream_facts facts = {0};

	err = drv->ops->stream_owner(drv, device, stream);
	if (!err)
		err = drv->ops->stream_facts(drv, device, stream, &facts);
	if (!err && facts.capture)
		err = glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"the stream captures a graph and cannot be waited for");
	if (!err)
		err = drv->ops->stream_sync(drv, device, stream);
	return err == -ENODEV ? 0 : err;
}

bool glk_import_has(struct glk_imports *imports, uint64_t addr, uint64_t size)
{
	bool has = false;
	uint32_t last;

	glk_lock(&imports->lock);
	last = imports->slab.base ? glk_load_relaxed(&imports->slab.used) : 0;
	for (uint32_t id = 1; id <= last && !has; id++) {
		const struct glk_import *import = at(imports, id);

		has = import->state == LIVE && addr >= import->base &&
			addr - import->base <= import->mapped &&
			size <= import->mapped - (addr - import->base);
	}
	glk_unlock(&imports->lock);
	return has;
}

int glk_import_end(struct glk_imports *imports, uint64_t addr, struct CUstream_st *stream)
{
	uint32_t id = claim(imports, addr);
	int err;

	if (!id)
		return -ENOENT;
	err = wait_for(imports, stream);
	set_state(imports, id, err ? LIVE : BUSY);
	return err ? err : drop(imports, id);
}

void glk_import_undo(struct glk_imports *imports, uint64_t addr)
{
	struct glake_error why = glk_thread_current->error;
	uint32_t id = claim(imports, addr);

	if (id)
		drop(imports, id);
	glk_error_back(&why);
}

/* A page of the node's own, for which others may have to give way. */
static int grow(struct glk_node *node, uint64_t size, uint32_t *ret_page)
{
	int err = glk_node_grow(node, size, ret_page);

	if (err == -ENOMEM && node->source->ask && glk_node_has_room(node, size) &&
		!node->source->ask(node, size, true))
		err = glk_node_grow(node, size, ret_page);
	if (err == -ENOMEM && !glk_node_has_room(node, size))
		glk_error(err, GLAKE_ERROR_NOMEM_DEVICE,
			"the budget has no room for %" PRIu64 " bytes of its own", size);
	return err;
}

/* The contents of an import go to a page that is mapped nowhere yet. */
static int copy_to(struct glk_imports *imports, const struct glk_import *import,
	uint64_t page, struct CUstream_st *stream)
{
	struct glk_drv *drv = imports->drv;
	uint64_t size = import->mapped, at;
	int err, failed;

	err = drv->ops->reserve(drv, size, imports->node->granularity, &at);
	if (err)
		return err;
	err = drv->ops->map(drv, at, size, page);
	if (err)
		goto addresses;
	err = glk_import_allow(imports, at, size, 0, GLK_ACCESS_WRITE);
	if (!err)
		err = drv->ops->copy(drv, at, import->base, size, stream);
	failed = drv->ops->stream_sync(drv, imports->node->place.id, stream);
	err = err ? err : failed;
	failed = drv->ops->unmap(drv, at, size);
	err = err ? err : failed;
	if (failed)
		return err;
addresses:
	failed = drv->ops->unreserve(drv, at, size);
	return err ? err : failed;
}

/* Another page in the place of that of an import, or else the same again. `ret_lost`: neither is there. */
static int exchange(struct glk_imports *imports, struct glk_import *import, uint64_t page,
	uint64_t old, bool *ret_lost)
{
	struct glk_drv *drv = imports->drv;
	uint64_t base = import->base, size = import->mapped;
	int err = drv->ops->unmap(drv, base, size), back;

	*ret_lost = false;
	if (err)
		return err;
	err = drv->ops->map(drv, base, size, page);
	if (!err) {
		err = glk_import_allow(imports, base, size, 0, GLK_ACCESS_WRITE);
		if (!err || drv->ops->unmap(drv, base, size))
			return err;
	}
	back = drv->ops->map(drv, base, size, old);
	if (!back)
		back = glk_import_allow(imports, base, size, 0, GLK_ACCESS_READ);
	*ret_lost = back;
	return err;
}

static int have_own(struct glk_imports *imports, struct glk_import *import, int fd,
	struct CUstream_st *stream, bool *ret_lost)
{
	struct glk_node *node = imports->node;
	struct glk_drv *drv = imports->drv;
	uint64_t old, handle;
	uint32_t page;
	int err, failed;

	*ret_lost = false;
	err = grow(node, import->mapped, &page);
	if (err)
		return err;
	handle = glk_page_at(node->pool, page)->handle;
	err = copy_to(imports, import, handle, stream);
	if (!err)
		err = drv->ops->import_fd(drv, fd, &old);
	if (!err) {
		err = exchange(imports, import, handle, old, ret_lost);
		failed = drv->ops->release(drv, old);
		if (failed && !err)
			glk_import_put_by(imports, old);
	}
	if (err) {
		glk_node_release(node, page);
		return err;
	}
	import->own = page;
	import->reads = false;
	return 0;
}

int glk_import_unseal(
	struct glk_imports *imports, uint64_t addr, int fd, struct CUstream_st *stream)
{
	uint32_t id = claim(imports, addr);
	bool lost = false;
	int err;

	if (!id)
		return -ENOENT;
	err = wait_for(imports, stream);
	if (!err)
		err = have_own(imports, at(imports, id), fd, stream, &lost);
	set_state(imports, id, lost ? KEPT : LIVE);
	return err;
}

void glk_imports_hold(struct glk_imports *imports)
{
	glk_lock(&imports->lock);
}

void glk_imports_let_go(struct glk_imports *imports)
{
	glk_unlock(&imports->lock);
}

int glk_import_sweep(struct glk_imports *imports, struct glk_sweep *sweep)
{
	uint32_t last = glk_load_relaxed(&imports->slab.used);
	int err = 0, failed;

	for (uint32_t id = 1; id <= last && (!err || sweep->anyway); id++) {
		const struct glk_import *import = at(imports, id);
		enum glk_access access = sweep->grant.access;

		if (import->state != LIVE && import->state != ENDING)
			continue;
		if (import->reads && access == GLK_ACCESS_WRITE)
			sweep->grant.access = GLK_ACCESS_READ;
		failed = glk_sweep_range(
			sweep, imports->drv, import->base, import->mapped);
		sweep->grant.access = access;
		err = failed ? failed : err;
	}
	return err;
}

int glk_import_end_all(struct glk_imports *imports, int err, size_t *live)
{
	uint32_t last = glk_load_relaxed(&imports->slab.used);
	int failed;

	for (uint32_t id = 1; id <= last; id++) {
		struct glk_import *import = at(imports, id);

		*live += import->state == LIVE;
		if (import->state == FREE || err == -ENODEV)
			continue;
		failed = take_down(imports, import);
		err = err ? err : failed;
	}
	glk_slab_fini(&imports->slab);
	return err;
}
