/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where pages come from and go to, and the source that is the driver: bytes are claimed from the budget with one CAS.
 * A quota that processes share counts them before.
 *
 * Free pages lie on Treiber stacks with tagged indices (base/idstack.h): last in, first out,
 * which is what keeps an address translation warm.
 */
#include "base/error.h"
#include "pool/pool.h"

#include <errno.h>

static struct glk_idnode *free_link(struct glk_pool *pool, uint32_t page)
{
	return &glk_page_at(pool, page)->free_link;
}

GLK_IDSTACK_DEFINE(free_list, struct glk_pool *, free_link)

/* The node of a page that one of a node, or of its peer, is. */
static struct glk_node *own(struct glk_node *node, const struct glk_page *page)
{
	return &node->pool->nodes[page->node];
}

uint32_t glk_node_take(struct glk_node *node, enum glk_class class)
{
	uint32_t page = node->peer ? glk_node_take(node->peer, class) : 0;
	struct glk_page *p;

	if (page)
		return page;
	page = free_list_pop(&node->free[class], node->pool);
	if (!page)
		return 0;
	p = glk_page_at(node->pool, page);
	glk_sub_relaxed(&node->free_bytes[class], p->size);
	if (!glk_page_move(p, GLK_PAGE_FREE, GLK_PAGE_OWNED))
		return 0; /* not ours to fix: the page stays out of use */
	return page;
}

void glk_node_put(struct glk_node *node, uint32_t page)
{
	struct glk_page *p = glk_page_at(node->pool, page);
	enum glk_class class = (enum glk_class)p->class;

	node = own(node, p);
	if (!glk_page_move(p, GLK_PAGE_OWNED, GLK_PAGE_FREE))
		return;
	glk_add_relaxed(&node->free_bytes[class], p->size);
	free_list_push(&node->free[class], node->pool, page);
}

bool glk_node_has_room(const struct glk_node *node, uint64_t size)
{
	uint64_t held = glk_load_relaxed(&node->held);
	uint64_t budget = glk_node_most(node);

	return held <= budget && size <= budget - held;
}

static int claim(struct glk_node *node, uint64_t size, bool calls)
{
	uint64_t held = glk_load_relaxed(&node->held);
	uint64_t budget = glk_load_relaxed(&node->budget);

	if (node->quota && node->quota->take(node->quota, size, calls))
		return -ENOMEM;
	do {
		if (held > budget || size > budget - held) {
			if (node->quota)
				node->quota->put(node->quota, size);
			return -ENOMEM;
		}
	} while (!glk_cas_weak_relaxed(&node->held, &held, held + size));
	return 0;
}

static void unclaim(struct glk_node *node, uint64_t size, bool calls)
{
	glk_sub_relaxed(&node->held, size);
	if (node->quota)
		node->quota->put(node->quota, size);
}

const struct glk_source glk_source_driver = {
	.claim = claim, .unclaim = unclaim, .make = glk_node_make};

void glk_node_note_peak(struct glk_node *node)
{
	uint64_t held = glk_load_relaxed(&node->held);
	uint64_t peak = glk_load_relaxed(&node->peak);

	while (held > peak && !glk_cas_weak_relaxed(&node->peak, &peak, held))
		;
}

int glk_node_claim(struct glk_node *node, uint64_t size)
{
	return node->source->claim(node, size, false);
}

void glk_node_unclaim(struct glk_node *node, uint64_t size)
{
	node->source->unclaim(node, size, false);
}

int glk_source_make(
	struct glk_node *node, size_t size, uint64_t *ret_handle, uint8_t *ret_able)
{
	int err = node->source->claim(node, size, true);

	if (err)
		return err;
	err = node->source->make(node, size, ret_handle, ret_able);
	if (err)
		node->source->unclaim(node, size, true);
	else
		glk_node_note_peak(node);
	return err;
}

void glk_source_end(struct glk_node *node, size_t size)
{
	node->source->unclaim(node, size, true);
	glk_lend_wet(node->lender ? node->lender : node);
}

/* A descriptor has a page, which is OWNED then. */
static void enter(
	struct glk_node *node, uint32_t page, uint64_t handle, size_t size, uint8_t able)
{
	struct glk_page *p = glk_page_at(node->pool, page);

	glk_slab_spoil(&p->map,
		offsetof(struct glk_page, class) - offsetof(struct glk_page, map));
	p->handle = handle;
	/* pairs with: glk_cache_query */
	glk_poke_release(&p->node, node->index);
	glk_poke_release(&p->able, able);
	glk_poke_release(&p->size, size);
	p->use = (struct glk_use){0};
	p->map = NULL;
	p->first_alias = GLK_NO_SLOT;
	p->in_use = GLK_NO_SLOT;
	p->aliases = 0;
	p->class = (uint8_t)glk_node_class(node, size);
	p->kept = false;
	p->going = 0;
	p->left = p->sealed = p->foreign = p->elsewhere = false;
	p->sealers = 0;
	p->kept_as = 0;
	p->common = 0;
	glk_store_relaxed(&p->out, false);
	glk_page_move(p, GLK_PAGE_EMPTY, GLK_PAGE_OWNED);
}

int glk_node_adopt(struct glk_node *node, size_t size, uint64_t handle, uint64_t common,
	uint32_t *ret_page)
{
	uint32_t page = glk_slab_get(&node->pool->pages);
	struct glk_page *p = glk_page_at(node->pool, page);

	if (!page)
		return -ENOMEM;
	enter(node, page, handle, size, 0);
	p->common = common;
	p->foreign = p->elsewhere = true;
	glk_add_relaxed(&node->foreign, size);
	*ret_page = page;
	return 0;
}

static int grow(struct glk_node *node, size_t size, uint32_t *ret_page)
{
	uint32_t page = glk_slab_get(&node->pool->pages);
	uint64_t handle;
	uint8_t able;
	int err;

	if (!page)
		return -ENOMEM;
	err = glk_source_make(node, size, &handle, &able);
	if (err) {
		glk_slab_put(&node->pool->pages, page);
		return err;
	}
	glk_add_relaxed(&node->made, size);
	enter(node, page, handle, size, able);
	*ret_page = page;
	return 0;
}

int glk_node_grow(struct glk_node *node, size_t size, uint32_t *ret_page)
{
	/* whatever has failed there */
	if (glk_node_lender(node) && !grow(node->peer, size, ret_page))
		return 0;
	return grow(node, size, ret_page);
}

void glk_node_lose(struct glk_node *node, uint32_t page)
{
	struct glk_page *p = glk_page_at(node->pool, page);

	if (glk_page_move(p, GLK_PAGE_OWNED, GLK_PAGE_LOST) ||
		glk_page_move(p, GLK_PAGE_LIMBO, GLK_PAGE_LOST))
		glk_add_relaxed(p->foreign ? &node->foreign : &node->lost,
			p->foreign ? -p->size : p->size);
}

int glk_node_release(struct glk_node *node, uint32_t page)
{
	struct glk_page *p = glk_page_at(node->pool, page);
	struct glk_drv *drv = node->pool->drv;
	bool out = glk_load_relaxed(&p->out), foreign = p->foreign, leased = false;
	uint64_t size = p->size;
	int err;

	node = own(node, p);
	if (p->kept && glk_page_state(p) == GLK_PAGE_OWNED) {
		glk_node_lose(node, page);
		return glk_error(-EIO, GLAKE_ERROR_DRIVER,
			"the driver kept a mapping of page %u and with it the memory",
			page);
	}
	if (!glk_page_move(p, GLK_PAGE_OWNED, GLK_PAGE_LIMBO))
		return glk_error(-EIO, GLAKE_ERROR_CORRUPT, "page %u to release is %s",
			page, glk_page_state_name(glk_page_state(p)));
	/* before its bytes are given for others: some may have it */
	if (p->common && node->source->forget)
		leased = node->source->forget(node, p);
	if (!foreign) {
		/* both pair with: glake_check */
		glk_sub_acq_rel(&node->made, size);
		glk_add_acq_rel(&node->going, 1);
	}
	err = drv->ops->release(drv, p->handle);
	if (err) {
		if (!foreign)
			glk_add_relaxed(&node->made, size);
		glk_node_lose(node, page);
		return err;
	}
	glk_page_move(p, GLK_PAGE_LIMBO, GLK_PAGE_EMPTY);
	glk_slab_put(&node->pool->pages, page);
	if (!foreign) {
		glk_source_end(node, size);
	} else {
		glk_sub_relaxed(&node->foreign, size);
		if (leased)
			glk_add_relaxed(&node->left, size);
	}
	if (out)
		glk_add_relaxed(&node->pool->gone, size);
	return 0;
}

uint64_t glk_node_drain(struct glk_node *node, enum glk_class class, uint64_t bytes)
{
	uint64_t given = 0;
	uint32_t page;

	while (given < bytes && (page = glk_node_take(node, class))) {
		uint64_t size = glk_page_at(node->pool, page)->size;

		if (!glk_node_release(node, page))
			given += size;
	}
	return given;
}

void glk_node_empty(struct glk_node *node)
{
	for (int c = 0; c < GLK_CLASS_COUNT; c++)
		glk_node_drain(node, (enum glk_class)c, UINT64_MAX);
}
