/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Addresses of another process, repeated here. A block that is opened often lies on pages that
 * were opened before, at the addresses that they had then: an exporter maps as seldom as it can,
 * too. So pages are kept where they were, by their number, and a block of pages that are all there
 * needs no call of the driver.
 *
 * A window is a reservation for a part of the exporter's addresses, with a slot for each granule.
 * A page lies in one or more slots; the first one has what is known of it. It is in use as often as
 * blocks on it are open, and in a list with all others of the GPU when it is not, from which the
 * oldest go when there are more than share.keep bytes. They do not hold a window: where all are
 * taken, one goes that no open block lies in.
 *
 * The users of a page do not say whose they are, for blocks share pages. So a table has the blocks that
 * are open, and how often: with open addressing; room for one more is made before a block is opened, so
 * that nothing fails when it is.
 *
 * Locks	that of the imports for all tables and for unmapping. A page that is COMING or
 *		MAPPED belongs to the thread that holds `opening` of its mirror, see mirror_open.c
 */
#include "share/mirror.h"

#include <errno.h>

#define WINDOW	   (UINT64_C(64) << 30)
#define WINDOW_MIN (UINT64_C(1) << 30)
#define ROOM_MIN   128 /* what a page of the host holds */

uint64_t glk_mirrored_size(
	const struct glk_imports *imports, const struct glk_mirrored *page)
{
	return (uint64_t)page->slots * imports->node->granularity;
}

uint64_t glk_mirrored_addr(
	const struct glk_imports *imports, const struct glk_mirrored *page)
{
	return page->window->base +
		(uint64_t)(page - page->window->slot) * imports->node->granularity;
}

bool glk_mirror_is_known(
	const struct glk_imports *imports, const struct glake_mirror *mirror)
{
	const struct glake_mirror *m = imports->mirrors;

	while (m && m != mirror)
		m = m->next;
	return m;
}

static size_t table_size(const struct glk_window *window)
{
	return window->slots * sizeof(*window->slot);
}

static int end_window(struct glk_imports *imports, struct glk_window *window)
{
	struct glk_drv *drv = imports->drv;
	int err = drv->ops->unreserve(drv, window->base, window->span);

	if (err)
		return err;
	glk_region_free(window->slot, table_size(window));
	*window = (struct glk_window){0};
	return 0;
}

static int make_window(struct glk_imports *imports, struct glk_window *window,
	uint64_t at, uint64_t span, size_t align)
{
	struct glk_drv *drv = imports->drv;
	struct glk_window new = {.at = at, .span = span};
	int err;

	new.slots = (uint32_t)(span / imports->node->granularity);
	new.slot = glk_region_new(table_size(&new));
	if (!new.slot)
		return -ENOMEM;
	err = drv->ops->reserve(drv, span, align, &new.base);
	if (err) {
		glk_region_free(new.slot, table_size(&new));
		return err;
	}
	*window = new;
	return 0;
}

static void link_in(struct glk_imports *imports, struct glk_mirrored *page)
{
	page->newer = NULL;
	page->older = imports->newest;
	if (page->older)
		page->older->newer = page;
	else
		imports->oldest = page;
	imports->newest = page;
	imports->kept += glk_mirrored_size(imports, page);
	page->mirror->kept += glk_mirrored_size(imports, page);
}

static void link_out(struct glk_imports *imports, struct glk_mirrored *page)
{
	*(page->newer ? &page->newer->older : &imports->newest) = page->older;
	*(page->older ? &page->older->newer : &imports->oldest) = page->newer;
	imports->kept -= glk_mirrored_size(imports, page);
	page->mirror->kept -= glk_mirrored_size(imports, page);
}

void glk_mirrored_use(struct glk_imports *imports, struct glk_mirrored *page)
{
	if (!page->users && page->state == GLK_MIRRORED_LIVE)
		link_out(imports, page);
	page->users++;
	page->window->users++;
	page->mirror->users++;
}

void glk_mirrored_leave(struct glk_imports *imports, struct glk_mirrored *page)
{
	page->users--;
	page->window->users--;
	page->mirror->users--;
	if (!page->users && page->state == GLK_MIRRORED_LIVE)
		link_in(imports, page);
}

int glk_mirrored_drop(struct glk_imports *imports, struct glk_mirrored *page)
{
	struct glk_drv *drv = imports->drv;
	struct glk_window *window = page->window;
	uint32_t slots = page->slots;
	int err = 0;

	if (page->state >= GLK_MIRRORED_MAPPED)
		err = drv->ops->unmap(drv, glk_mirrored_addr(imports, page),
			glk_mirrored_size(imports, page));
	if (err)
		return err;
	if (page->state == GLK_MIRRORED_LIVE && !page->users)
		link_out(imports, page);
	window->users -= page->users;
	page->mirror->users -= page->users;
	for (uint32_t i = 0; i < slots; i++)
		page[i] = (struct glk_mirrored){0};
	window->pages--;
	return 0;
}

/* All pages of a window, as far as the driver lets go of them. */
static int drop_pages(struct glk_imports *imports, struct glk_window *window)
{
	int err = 0, failed;

	for (uint32_t i = 0; window->pages && i < window->slots; i++) {
		if (!window->slot[i].state || window->slot[i].back)
			continue;
		failed = glk_mirrored_drop(imports, &window->slot[i]);
		err = err ? err : failed;
	}
	return err;
}

/* The window whose page was used longest ago, of those without a page in use. */
static struct glk_window *find_unused(
	const struct glk_imports *imports, const struct glake_mirror *mirror)
{
	struct glk_mirrored *page = imports->oldest;

	while (page && (page->mirror != mirror || page->window->users))
		page = page->newer;
	return page ? page->window : NULL;
}

/* A place in the list: one that was never used, one that nothing lies in, or one that no open
 * block lies in. */
static int find_place(struct glk_imports *imports, struct glake_mirror *mirror,
	struct glk_window **ret_window)
{
	struct glk_window *window;
	int err;

	for (int i = 0; i < GLK_WINDOWS_MAX; i++) {
		*ret_window = &mirror->window[i];
		if (!(*ret_window)->base)
			return 0;
	}
	for (int i = 0; i < GLK_WINDOWS_MAX; i++) {
		*ret_window = &mirror->window[i];
		if (!(*ret_window)->pages && !end_window(imports, *ret_window))
			return 0;
	}
	window = find_unused(imports, mirror);
	if (!window)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"the blocks that are open lie too far apart in their process");
	*ret_window = window;
	err = drop_pages(imports, window);
	return err ? err : end_window(imports, window);
}

int glk_mirror_window(struct glk_imports *imports, struct glake_mirror *mirror,
	uint64_t at, uint64_t span, struct glk_window **ret_window)
{
	/* a large page of an odd number of slots has a smaller one */
	size_t large = imports->node->page_size[GLK_CLASS_LARGE], align = large & -large;
	uint64_t first, size = WINDOW, end;
	struct glk_window *window;
	int err;

	for (int i = 0; i < GLK_WINDOWS_MAX; i++) {
		window = &mirror->window[i];
		if (window->base && at >= window->at && span <= window->span &&
			at - window->at <= window->span - span) {
			*ret_window = window;
			return 0;
		}
	}
	if (__builtin_add_overflow(at, span, &end) || end > UINT64_MAX - align)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"no block of an exporter lies at %#lx", (unsigned long)at);
	err = find_place(imports, mirror, &window);
	if (err)
		return err;
	/* a smaller one where addresses are short */
	do {
		first = at & ~(size - 1);
		err = end - first > size
			? -ENOMEM
			: make_window(imports, window, first, size, align);
		size /= 2;
	} while (err == -ENOMEM && size >= WINDOW_MIN);
	if (err == -ENOMEM) {
		first = at & ~((uint64_t)align - 1);
		size = (end - first + align - 1) & ~((uint64_t)align - 1);
		err = make_window(imports, window, first, size, align);
	}
	if (!err)
		*ret_window = window;
	return err;
}

int glk_mirrored_claim(struct glk_imports *imports, struct glake_mirror *mirror,
	struct glk_window *window, uint32_t slot, uint32_t slots, uint64_t number)
{
	struct glk_mirrored *page;
	int err = 0;

	for (uint32_t i = slot; i < slot + slots && !err; i++) {
		page = &window->slot[i];
		if (!page->state)
			continue;
		page -= page->back;
		err = page->users
			? glk_error(-EBUSY, GLAKE_ERROR_BUSY,
				  "other pages are in use at the addresses of this block")
			: glk_mirrored_drop(imports, page);
	}
	if (err)
		return err;
	page = &window->slot[slot];
	for (uint32_t i = 0; i < slots; i++)
		page[i] = (struct glk_mirrored){.back = i, .state = GLK_MIRRORED_COMING};
	page->mirror = mirror;
	page->window = window;
	page->number = number;
	page->slots = slots;
	window->pages++;
	glk_mirrored_use(imports, page);
	return 0;
}

static size_t blocks_bytes(size_t room)
{
	return room * sizeof(struct glk_mirror_block);
}

/* Forgets all of them. */
static void free_blocks(struct glk_mirror_blocks *blocks)
{
	glk_region_free(blocks->at, blocks_bytes(blocks->room));
	*blocks = (struct glk_mirror_blocks){0};
}

static size_t home(const struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	uint64_t x = addr ^ size * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
	x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return (x ^ x >> 33) & (blocks->room - 1);
}

/* Its place, or the free one where it would be. */
static struct glk_mirror_block *find_block(
	const struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	size_t i = home(blocks, addr, size);

	while (blocks->at[i].opens &&
		(blocks->at[i].addr != addr || blocks->at[i].size != size))
		i = (i + 1) & (blocks->room - 1);
	return &blocks->at[i];
}

int glk_mirror_blocks_room(struct glk_mirror_blocks *blocks)
{
	struct glk_mirror_blocks new = {.count = blocks->count};

	/* a quarter stays free */
	if (blocks->count + 1 <= blocks->room / 4 * 3)
		return 0;
	new.room = blocks->room ? blocks->room * 2 : ROOM_MIN;
	new.at = glk_region_new(blocks_bytes(new.room));
	if (!new.at)
		return -ENOMEM;
	for (size_t i = 0; i < blocks->room; i++) {
		const struct glk_mirror_block *block = &blocks->at[i];

		if (block->opens)
			*find_block(&new, block->addr, block->size) = *block;
	}
	free_blocks(blocks);
	*blocks = new;
	return 0;
}

void glk_mirror_blocks_add(struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	struct glk_mirror_block *block = find_block(blocks, addr, size);

	blocks->count += !block->opens;
	block->addr = addr;
	block->size = size;
	block->opens++;
}

bool glk_mirror_blocks_has(
	const struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	return blocks->count && find_block(blocks, addr, size)->opens;
}

bool glk_mirror_blocks_take(
	struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size)
{
	struct glk_mirror_block *block =
		blocks->count ? find_block(blocks, addr, size) : NULL;
	size_t mask = blocks->room - 1, hole, i;

	if (!block || !block->opens)
		return false;
	if (--block->opens)
		return true;
	blocks->count--;
	/* those behind it that a search would not reach across the hole come forward */
	hole = (size_t)(block - blocks->at);
	for (i = (hole + 1) & mask; blocks->at[i].opens; i = (i + 1) & mask) {
		size_t from = home(blocks, blocks->at[i].addr, blocks->at[i].size);

		if (((i - from) & mask) < ((i - hole) & mask))
			continue;
		blocks->at[hole] = blocks->at[i];
		hole = i;
	}
	blocks->at[hole].opens = 0;
	return true;
}

/* The oldest of a mirror, or of all. */
static struct glk_mirrored *find_oldest(
	struct glk_imports *imports, const struct glake_mirror *mirror)
{
	struct glk_mirrored *page = imports->oldest;

	while (page && mirror && page->mirror != mirror)
		page = page->newer;
	return page;
}

int glk_mirrors_bound(struct glk_imports *imports)
{
	int err = 0;

	while (imports->kept > imports->keep && !err)
		err = glk_mirrored_drop(imports, imports->oldest);
	return err;
}

static int trim(struct glk_imports *imports, struct glake_mirror *mirror, uint64_t keep)
{
	struct glk_mirrored *page;
	int err = 0;

	while (!err && mirror->kept > keep && (page = find_oldest(imports, mirror)))
		err = glk_mirrored_drop(imports, page);
	return err;
}

int glk_mirror_trim(struct glk_imports *imports, struct glake_mirror *mirror,
	uint64_t keep, uint64_t *ret_kept)
{
	int err = -ENOENT;

	glk_lock(&imports->lock);
	if (glk_mirror_is_known(imports, mirror)) {
		err = trim(imports, mirror, keep);
		*ret_kept = mirror->kept;
	}
	glk_unlock(&imports->lock);
	return err;
}

int glk_mirror_new(struct glk_imports *imports, struct glake_mirror **ret_mirror)
{
	struct glake_mirror *mirror = glk_region_new(sizeof(*mirror));
	bool full;

	if (!mirror)
		return -ENOMEM;
	glk_lock(&imports->lock);
	full = imports->mirror_count == GLK_MIRRORS_MAX;
	if (!full) {
		glk_lock_init(&mirror->opening, GLK_RANK_MIRROR);
		mirror->next = imports->mirrors;
		imports->mirrors = mirror;
		imports->mirror_count++;
	}
	glk_unlock(&imports->lock);
	if (full) {
		glk_region_free(mirror, sizeof(*mirror));
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"there are %d mirrors of this GPU, which are there until they are ended",
			GLK_MIRRORS_MAX);
	}
	*ret_mirror = mirror;
	return 0;
}

/* All that is mapped, and the addresses. What the driver keeps stays reserved until it ends. */
static int take_down(struct glk_imports *imports, struct glake_mirror *mirror)
{
	int err = 0, failed;

	free_blocks(&mirror->blocks);
	for (int w = 0; w < GLK_WINDOWS_MAX; w++) {
		struct glk_window *window = &mirror->window[w];

		failed = drop_pages(imports, window);
		err = err ? err : failed;
		if (!window->base)
			continue;
		failed = window->pages ? 0 : end_window(imports, window);
		err = err ? err : failed;
	}
	return err;
}

/* Frees it unless something of it stays. */
static void free_mirror(struct glk_imports *imports, struct glake_mirror *mirror)
{
	struct glake_mirror **link = &imports->mirrors;

	for (int w = 0; w < GLK_WINDOWS_MAX; w++)
		if (mirror->window[w].base)
			return;
	while (*link != mirror)
		link = &(*link)->next;
	*link = mirror->next;
	imports->mirror_count--;
	glk_lock_fini(&mirror->opening);
	glk_region_free(mirror, sizeof(*mirror));
}

int glk_mirror_end(struct glk_imports *imports, struct glake_mirror *mirror)
{
	int err = -ENOENT;

	glk_lock(&imports->lock);
	if (glk_mirror_is_known(imports, mirror)) {
		err = mirror->busy ? glk_error(-EBUSY, GLAKE_ERROR_BUSY,
					     "a block is being opened in the mirror")
				   : take_down(imports, mirror);
		if (!mirror->busy)
			free_mirror(imports, mirror);
	}
	glk_unlock(&imports->lock);
	return err;
}

static int window_access(struct glk_imports *imports, const struct glk_window *window,
	struct glk_sweep *sweep)
{
	uint32_t pages = window->pages;
	int err = 0, failed;

	for (uint32_t i = 0; pages && i < window->slots && (!err || sweep->anyway); i++) {
		const struct glk_mirrored *page = &window->slot[i];

		if (!page->state || page->back)
			continue;
		pages--;
		if (page->state != GLK_MIRRORED_LIVE)
			continue;
		failed = glk_sweep_range(sweep, imports->drv,
			glk_mirrored_addr(imports, page),
			glk_mirrored_size(imports, page));
		err = failed ? failed : err;
	}
	return err;
}

int glk_imports_access(struct glk_imports *imports, struct glk_sweep *sweep)
{
	int err = glk_import_sweep(imports, sweep), failed;

	for (struct glake_mirror *m = imports->mirrors; m; m = m->next)
		for (int w = 0; w < GLK_WINDOWS_MAX && (!err || sweep->anyway); w++) {
			failed = window_access(imports, &m->window[w], sweep);
			err = failed ? failed : err;
		}
	return err;
}

/* All of them; how many had open blocks. 0 or the driver's first error. */
static int end_all(struct glk_imports *imports, size_t *ret_live)
{
	struct glake_mirror *mirror = imports->mirrors, *next;
	int err = 0, failed;

	*ret_live = 0;
	for (; mirror; mirror = next) {
		next = mirror->next;
		*ret_live += mirror->users > 0;
		failed = err == -ENODEV ? 0 : take_down(imports, mirror);
		err = err ? err : failed;
		free_blocks(&mirror->blocks);
		for (int w = 0; w < GLK_WINDOWS_MAX; w++)
			if (mirror->window[w].base)
				glk_region_free(mirror->window[w].slot,
					table_size(&mirror->window[w]));
		glk_lock_fini(&mirror->opening);
		glk_region_free(mirror, sizeof(*mirror));
	}
	imports->mirrors = NULL;
	return err;
}

int glk_imports_fini(struct glk_imports *imports, size_t *ret_live)
{
	int err = end_all(imports, ret_live);

	err = glk_import_end_all(imports, err, ret_live);
	glk_lock_fini(&imports->lock);
	return err;
}
