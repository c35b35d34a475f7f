/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks of mirrors. Opening one has three steps: under the lock its pages are found or claimed;
 * without it those that were claimed are asked for, a few at a time, and mapped; then all GPUs that
 * may use them are given rights, and they are live. Until then they are nobody else's, and a step
 * that fails gives them back.
 */
#include "share/mirror.h"

#include <errno.h>
#include <unistd.h>

struct opening {
	struct glk_imports *imports;
	struct glake_mirror *mirror;
	struct glk_window *window;
	const struct glake_piece *pieces;
	size_t count;
	uint64_t at, size; /* of the block, in the exporter */
	uint32_t first;	   /* slot */
	glake_mirror_fds_fn fds;
	void *arg;
};

static uint32_t slots_of(const struct opening *o, size_t i)
{
	return (uint32_t)(o->pieces[i].page_size / o->imports->node->granularity);
}

/* With what it has in use so far; `count` pieces of it. */
static void give_back(const struct opening *o, size_t count)
{
	struct glk_mirrored *page = &o->window->slot[o->first];

	for (size_t i = 0; i < count; i++) {
		uint32_t slots = slots_of(o, i);

		if (page->state == GLK_MIRRORED_LIVE)
			glk_mirrored_leave(o->imports, page);
		else if (glk_mirrored_drop(o->imports, page))
			/* mapped without rights: it goes with the mirror */
			page->number = 0;
		page += slots;
	}
	glk_mirrors_bound(o->imports);
}

/* Under the lock. */
static int claim(const struct opening *o, bool *ret_whole)
{
	uint32_t slot = o->first;
	bool whole = true;
	int err = 0;

	for (size_t i = 0; i < o->count && !err; i++) {
		struct glk_mirrored *page = &o->window->slot[slot];
		uint32_t slots = slots_of(o, i);

		if (page->state == GLK_MIRRORED_LIVE && !page->back &&
			page->number == o->pieces[i].number && page->slots == slots) {
			glk_mirrored_use(o->imports, page);
		} else {
			whole = false;
			err = glk_mirrored_claim(o->imports, o->mirror, o->window, slot,
				slots, o->pieces[i].number);
		}
		if (err)
			give_back(o, i);
		slot += slots;
	}
	*ret_whole = whole;
	return err;
}

static int map_page(const struct opening *o, struct glk_mirrored *page, int fd, size_t i)
{
	struct glk_drv *drv = o->imports->drv;
	uint64_t handle = 0;
	bool is = false;
	int err, failed;

	err = glk_import_page(o->imports, fd, i, &is, &handle);
	if (!err)
		err = glk_import_map(o->imports, glk_mirrored_addr(o->imports, page),
			o->pieces[i].page_size, handle, i);
	if (!err) {
		glk_lock(&o->imports->lock);
		page->state = GLK_MIRRORED_MAPPED;
		glk_unlock(&o->imports->lock);
	}
	failed = is ? drv->ops->release(drv, handle) : 0;
	if (failed)
		glk_import_put_by(o->imports, handle);
	return err ? err : failed;
}

/* Gives their descriptors back, also at an error; how many were mapped. */
static int map_given(const struct opening *o, struct glk_mirrored *page, const int *fds,
	size_t first, size_t count, size_t *ret_done)
{
	int err = 0;

	*ret_done = 0;
	for (size_t i = 0; i < count; i++) {
		if (!err) {
			err = map_page(o, page, fds[i], first + i);
			page += slots_of(o, first + i);
			*ret_done += !err;
		}
		close(fds[i]);
	}
	return err;
}

/* Where descriptors are short, here or there, a few less may do; a driver that needs one itself may
 * call that a lack of memory. */
static bool is_shortage(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM;
}

/* Pieces that follow each other. */
static int map_some(
	const struct opening *o, struct glk_mirrored *page, size_t first, size_t count)
{
	size_t step = count, end = first + count, done;
	int fds[GLAKE_MIRROR_FDS], err = 0;

	while (first < end && !err) {
		step = end - first < step ? end - first : step;
		done = 0;
		err = o->fds(o->arg, first, step, fds);
		if (!err)
			err = map_given(o, page, fds, first, step, &done);
		for (; done; done--)
			page += slots_of(o, first++);
		if (is_shortage(err) && step > 1) {
			step /= 2;
			err = 0;
		}
	}
	return err;
}

/* Without the lock. */
static int map_missing(const struct opening *o)
{
	struct glk_mirrored *page = &o->window->slot[o->first], *begin = page;
	size_t run = 0;
	int err = 0;

	for (size_t i = 0; i < o->count && !err; i++) {
		bool comes = page->state == GLK_MIRRORED_COMING;

		page += slots_of(o, i);
		run += comes;
		if (run && (!comes || run == GLAKE_MIRROR_FDS || i + 1 == o->count)) {
			err = map_some(o, begin, comes ? i + 1 - run : i - run, run);
			run = 0;
		}
		if (!run)
			begin = page;
	}
	return err;
}

/* For runs of new pages. */
static int allow(const struct opening *o, uint64_t was)
{
	struct glk_mirrored *page = &o->window->slot[o->first];
	uint64_t addr = 0, size = 0;
	int err = 0;

	for (size_t i = 0; i < o->count && !err; i++) {
		bool new = page->state == GLK_MIRRORED_MAPPED;

		if (new && !size)
			addr = glk_mirrored_addr(o->imports, page);
		size += new ? o->pieces[i].page_size : 0;
		if (size && (!new || i + 1 == o->count)) {
			err = glk_import_allow(
				o->imports, addr, size, was, GLK_ACCESS_WRITE);
			size = 0;
		}
		page += slots_of(o, i);
	}
	return err;
}

static void set_live(const struct opening *o)
{
	struct glk_mirrored *page = &o->window->slot[o->first];

	for (size_t i = 0; i < o->count; i++) {
		page->state = GLK_MIRRORED_LIVE;
		for (uint32_t s = 1; s < slots_of(o, i); s++)
			page[s].state = GLK_MIRRORED_LIVE;
		page += slots_of(o, i);
	}
}

/* Peers may change meanwhile, for all that is live. */
static int publish(const struct opening *o)
{
	struct glk_imports *imports = o->imports;
	uint64_t peers, was = 0;
	bool same;
	int err;

	do {
		peers = glk_load_relaxed(&imports->node->peers);
		err = allow(o, was);
		if (err)
			return err;
		was |= peers;
		glk_lock(&imports->lock);
		same = peers == glk_load_relaxed(&imports->node->peers);
		if (same)
			set_live(o);
		glk_unlock(&imports->lock);
	} while (!same);
	return 0;
}

static int check(const struct glk_imports *imports, uint64_t at,
	const struct glake_piece *pieces, size_t count, size_t size, uint64_t *ret_span)
{
	size_t granularity = imports->node->granularity;
	int err = glk_import_check(imports, pieces, count, size, ret_span);

	if (err)
		return err;
	if (pieces[0].flags & GLAKE_PIECE_READ)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"what is only to be read is imported by itself");
	for (size_t i = 0; i < count; i++)
		if (!pieces[i].number)
			return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				"piece %zu has no number of its page", i);
	if (at < pieces[0].offset || (at - pieces[0].offset) % granularity)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the address in the exporter does not fit %zu bytes from the beginning of "
			"a page on",
			pieces[0].offset);
	if (*ret_span / granularity > UINT32_MAX / 2)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no block has %zu bytes", size);
	return 0;
}

/* Under the lock: it has an address, and may be closed. */
static void set_open(struct opening *o, uint64_t *ret_addr)
{
	*ret_addr = o->window->base + (o->at - o->window->at);
	glk_mirror_blocks_add(&o->mirror->blocks, *ret_addr, o->size);
}

/* Windows may lie across each other: that in which the block is open now, if it is. */
static bool find_open(struct opening *o, uint64_t from, uint64_t span)
{
	for (int i = 0; i < GLK_WINDOWS_MAX; i++) {
		struct glk_window *w = &o->mirror->window[i];

		o->window = w;
		if (w->base && from >= w->at && span <= w->span &&
			from - w->at <= w->span - span &&
			glk_mirror_blocks_has(
				&o->mirror->blocks, w->base + (o->at - w->at), o->size))
			return true;
	}
	return false;
}

/* With `opening` of the mirror. */
static int open_block(struct opening *o, uint64_t span, uint64_t *ret_addr)
{
	struct glk_imports *imports = o->imports;
	uint64_t from = o->at - o->pieces[0].offset;
	bool whole = false;
	int err;

	glk_lock(&imports->lock);
	err = glk_mirror_blocks_room(&o->mirror->blocks);
	if (!err && !find_open(o, from, span))
		err = glk_mirror_window(imports, o->mirror, from, span, &o->window);
	if (!err) {
		o->first =
			(uint32_t)((from - o->window->at) / imports->node->granularity);
		err = claim(o, &whole);
	}
	if (!err && whole)
		set_open(o, ret_addr);
	glk_unlock(&imports->lock);
	if (err || whole)
		return err;
	err = map_missing(o);
	if (!err)
		err = publish(o);
	glk_lock(&imports->lock);
	if (err)
		give_back(o, o->count);
	else
		set_open(o, ret_addr);
	glk_unlock(&imports->lock);
	return err;
}

int glk_mirror_open(struct glk_imports *imports, struct glake_mirror *mirror, uint64_t at,
	const struct glake_piece *pieces, size_t count, size_t size,
	glake_mirror_fds_fn fds, void *arg, uint64_t *ret_addr)
{
	struct opening o = {.imports = imports,
		.mirror = mirror,
		.pieces = pieces,
		.count = count,
		.at = at,
		.size = size,
		.fds = fds,
		.arg = arg};
	uint64_t span;
	bool known;
	int err;

	glk_lock(&imports->lock);
	known = glk_mirror_is_known(imports, mirror);
	if (known)
		mirror->busy++;
	glk_unlock(&imports->lock);
	if (!known)
		return -ENOENT;
	err = check(imports, at, pieces, count, size, &span);
	glk_lock(&mirror->opening);
	if (!err)
		err = open_block(&o, span, ret_addr);
	glk_unlock(&mirror->opening);
	glk_lock(&imports->lock);
	mirror->busy--;
	glk_unlock(&imports->lock);
	return err;
}

/* The window around an address here. */
static struct glk_window *find_window(
	struct glake_mirror *mirror, uint64_t addr, uint64_t size)
{
	for (int i = 0; i < GLK_WINDOWS_MAX; i++) {
		struct glk_window *w = &mirror->window[i];

		if (w->base && addr >= w->base && size <= w->span &&
			addr - w->base <= w->span - size)
			return w;
	}
	return NULL;
}

static int close_block(struct glk_imports *imports, struct glake_mirror *mirror,
	uint64_t addr, uint64_t size)
{
	size_t granularity = imports->node->granularity;
	struct glk_mirrored *page, *last;
	struct glk_window *window;

	if (!glk_mirror_blocks_take(&mirror->blocks, addr, size))
		return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
			"no block of %lu bytes is open at %#lx, or it was closed before",
			(unsigned long)size, (unsigned long)addr);
	/* pages of an open block stay where they are */
	window = find_window(mirror, addr, size);
	page = &window->slot[(addr - window->base) / granularity];
	last = &window->slot[(addr + size - 1 - window->base) / granularity];
	for (page -= page->back; page <= last; page += page->slots)
		glk_mirrored_leave(imports, page);
	return glk_mirrors_bound(imports);
}

int glk_mirror_close(struct glk_imports *imports, struct glake_mirror *mirror,
	uint64_t addr, uint64_t size)
{
	int err = -ENOENT;

	glk_lock(&imports->lock);
	if (glk_mirror_is_known(imports, mirror))
		err = close_block(imports, mirror, addr, size);
	glk_unlock(&imports->lock);
	return err;
}
