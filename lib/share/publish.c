/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents by name: what the publisher and those who attach do with their pages. See publish.h. */
#include "share/publish.h"

#include "base/error.h"
#include "base/slab.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void glk_shared_free(struct glk_shared *shared)
{
	if (shared->fd >= 0)
		close(shared->fd);
	glk_region_free(shared, sizeof(*shared));
}

static int item_of(struct glk_lessee *lessee, int device, const char *key, uint64_t stamp,
	struct glk_broker_item *ret_item)
{
	struct glk_broker_item item = {.gpu = (uint32_t)device, .stamp = stamp};
	size_t length = strnlen(key, sizeof(item.key));

	if (!lessee)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"no broker is configured (share.broker)");
	if (!length || length == sizeof(item.key) || device >= GLK_BROKER_GPUS)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"a name of %zu bytes: 1 to %zu are right", length,
			sizeof(item.key) - 1);
	memcpy(item.key, key, length);
	*ret_item = item;
	return 0;
}

static struct glk_shared *shared_new(
	const struct glk_broker_item *item, uint64_t addr, int fd, bool attached)
{
	struct glk_shared *shared = glk_region_new(sizeof(*shared));

	if (shared)
		*shared = (struct glk_shared){
			.item = *item, .addr = addr, .fd = fd, .attached = attached};
	return shared;
}

/* A driver that runs no kernels gives no numbers. */
static int number(struct glk_drv *drv, int device, uint64_t addr, uint64_t bytes,
	struct glk_alike_number *ret)
{
	struct glake_error why = glk_thread_current->error;
	int err = glk_alike_number(drv, device, addr, bytes, ret);

	if (err != -EOPNOTSUPP)
		return err;
	glk_error_back(&why);
	*ret = (struct glk_alike_number){{0}};
	return 0;
}

static bool has_number(const struct glk_broker_item *item)
{
	static const struct glk_alike_number none;

	return memcmp(&item->sum, &none, sizeof(none));
}

/* Whether contents are what their number says. */
static int verify(struct glk_drv *drv, const struct glk_broker_item *item, uint64_t addr)
{
	struct glk_alike_number now;
	int err = number(drv, (int)item->gpu, addr - item->offset, item->page, &now);

	if (err || !memcmp(&now, &item->sum, sizeof(now)))
		return err;
	return glk_error(-EIO, GLAKE_ERROR_CORRUPT,
		"what is published as %s is not what it was", item->key);
}

int glk_published_check(
	struct glk_lessee *lessee, struct glk_drv *drv, int device, uint64_t *ret)
{
	struct glk_shared *s;
	int err = 0;

	for (uint32_t i = 0; lessee && !err && (s = glk_lessee_hold(lessee, device, i));
		i++) {
		if (has_number(&s->item)) {
			err = verify(drv, &s->item, s->addr);
			*ret += !err;
		}
		glk_lessee_let_go(lessee, s);
	}
	return err;
}

int glk_publish(struct glk_lessee *lessee, struct glk_drv *drv, int device, uint64_t addr,
	glk_share_page_fn page, void *of, const char *key, uint64_t stamp, bool sums)
{
	struct glk_share_page p = page(of, 0);
	struct glk_broker_item item;
	struct glk_wire_frame frame;
	struct glk_shared *shared;
	int err = item_of(lessee, device, key, stamp, &item), fd;

	if (err)
		return err;
	item.flags = GLK_BROKER_MINE;
	item.page = p.size;
	item.offset = p.offset;
	item.length = p.length;
	if (sums)
		err = number(drv, device, addr - p.offset, p.size, &item.sum);
	if (err)
		return err;
	err = glk_share_fds(drv, page, of, 0, 1, &fd);
	if (err)
		return err;
	shared = shared_new(&item, addr, fd, false);
	if (!shared) {
		close(fd);
		return -ENOMEM;
	}
	err = glk_lessee_item(lessee, GLK_BROKER_PUT, &item, shared, &frame);
	/* others may have it where the answer was lost */
	if (err && err != -EINPROGRESS) {
		glk_shared_free(shared);
		return err;
	}
	/* who writes it from now on breaks what this says */
	drv->ops->promise(drv, addr - p.offset, p.size);
	return 0;
}

int glk_publish_not(struct glk_lessee *lessee, int device, const char *key)
{
	struct glk_broker_item item;
	struct glk_wire_frame frame;
	int err = item_of(lessee, device, key, 0, &item);

	return err ? err : glk_lessee_item(lessee, GLK_BROKER_END, &item, NULL, &frame);
}

/* What is mapped has the number that its publisher gave, or gets one. */
static int check(struct glk_imports *imports, struct glk_broker_item *item, uint64_t addr)
{
	if (has_number(item))
		return verify(imports->drv, item, addr);
	return number(imports->drv, (int)item->gpu, addr - item->offset, item->page,
		&item->sum);
}

/* Maps what the broker has handed over. */
static int map(struct glk_lessee *lessee, struct glk_imports *imports,
	const struct glk_broker_item *item, int fd, bool sums, uint64_t *ret_addr)
{
	const struct glake_piece piece = {.fd = fd,
		.flags = GLAKE_PIECE_READ,
		.page_size = item->page,
		.offset = item->offset,
		.length = item->length};
	struct glk_shared *shared = shared_new(item, 0, fd, true);
	int err =
		shared ? glk_import(imports, &piece, 1, item->length, ret_addr) : -ENOMEM;

	if (!err && sums) {
		err = check(imports, &shared->item, *ret_addr);
		if (err)
			glk_import_undo(imports, *ret_addr);
	}
	if (!shared) {
		close(fd);
	} else if (err) {
		glk_shared_free(shared);
	} else {
		shared->addr = *ret_addr;
		shared->item.flags = 0;
		glk_lessee_keep(lessee, shared);
	}
	return err;
}

int glk_attach(struct glk_lessee *lessee, struct glk_imports *imports, const char *key,
	uint64_t stamp, bool claim, bool sums, uint64_t *ret_size, uint64_t *ret_addr)
{
	int device = imports->node->place.id;
	struct glk_broker_item item, found;
	struct glk_wire_frame frame;
	uint64_t addr;
	int err = item_of(lessee, device, key, stamp, &item);

	if (err)
		return err;
	item.flags = claim ? GLK_BROKER_CLAIM : 0;
	err = glk_lessee_item(lessee, GLK_BROKER_GET, &item, NULL, &frame);
	if (err)
		return err;
	memcpy(&found, frame.body, sizeof(found));
	/* nothing that it says is trusted but where the memory is */
	memcpy(found.key, item.key, sizeof(found.key));
	found.gpu = item.gpu;
	err = map(lessee, imports, &found, frame.fd[0], sums, &addr);
	if (err) {
		glk_lessee_item(lessee, GLK_BROKER_END, &item, NULL, &frame);
		return err;
	}
	*ret_size = found.length;
	*ret_addr = addr;
	return 0;
}

/* Gives up what was had, in a call that fails. */
static void undo(struct glk_lessee *lessee, struct glk_imports *imports,
	const struct glk_broker_item *item, uint64_t addr)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_shared *shared =
		addr ? glk_lessee_take(lessee, imports->node->place.id, addr) : NULL;
	struct glk_wire_frame frame;

	if (shared)
		glk_import_undo(imports, addr);
	glk_lessee_item(lessee, GLK_BROKER_END, item, NULL, &frame);
	if (shared)
		glk_shared_free(shared);
	glk_error_back(&why);
}

/* A batch; how many of it are attached. */
static int attach_some(struct glk_lessee *lessee, struct glk_imports *imports,
	struct glk_broker_item *items, uint32_t count, bool sums, size_t *sizes,
	void **ptrs, uint32_t *ret_done)
{
	int fds[GLK_BROKER_NAMES], err;
	uint64_t addr;

	*ret_done = 0;
	err = glk_lessee_items(lessee, items, fds, count);
	if (err)
		return err;
	for (uint32_t i = 0; i < count; i++) {
		if (!err && fds[i] < 0) {
			/* asked for alone, the broker says why */
			err = glk_attach(lessee, imports, items[i].key, items[i].stamp,
				false, sums, &items[i].length, &addr);
		} else if (fds[i] >= 0 && !err) {
			err = map(lessee, imports, &items[i], fds[i], sums, &addr);
			if (err)
				undo(lessee, imports, &items[i], 0);
		} else if (fds[i] >= 0) {
			close(fds[i]);
			undo(lessee, imports, &items[i], 0);
		}
		if (err)
			continue;
		sizes[i] = items[i].length;
		ptrs[i] = (void *)(uintptr_t)addr;
		*ret_done = i + 1;
	}
	return err;
}

int glk_attach_all(struct glk_lessee *lessee, struct glk_imports *imports,
	const char *const *keys, const uint64_t *stamps, size_t count, bool sums,
	size_t *ret_sizes, void **ret_ptrs)
{
	struct glk_broker_item items[GLK_BROKER_NAMES];
	int device = imports->node->place.id, err = 0;
	size_t done = 0;

	while (done < count && !err) {
		uint32_t some = 0, had = 0;

		for (; some < GLK_BROKER_NAMES && done + some < count && !err; some++)
			err = item_of(lessee, device, keys[done + some],
				stamps ? stamps[done + some] : 0, &items[some]);
		if (!err)
			err = attach_some(lessee, imports, items, some, sums,
				&ret_sizes[done], &ret_ptrs[done], &had);
		done += had;
	}
	while (err && done) {
		struct glk_broker_item item;

		item_of(lessee, device, keys[--done], 0, &item);
		undo(lessee, imports, &item, (uint64_t)(uintptr_t)ret_ptrs[done]);
	}
	return err;
}

int glk_detach(struct glk_lessee *lessee, struct glk_imports *imports, uint64_t addr,
	struct CUstream_st *stream)
{
	struct glk_shared *shared =
		lessee ? glk_lessee_take(lessee, imports->node->place.id, addr) : NULL;
	struct glk_wire_frame frame;
	int err;

	if (!shared)
		return -ENOENT;
	err = glk_import_end(imports, addr, stream);
	/* what the driver kept is in use, as the broker has it, until the context is closed */
	if (err) {
		glk_lessee_keep(lessee, shared);
		return err;
	}
	glk_lessee_item(lessee, GLK_BROKER_END, &shared->item, NULL, &frame);
	glk_shared_free(shared);
	return 0;
}

int glk_unseal(struct glk_lessee *lessee, struct glk_imports *imports, uint64_t addr,
	struct CUstream_st *stream)
{
	struct glk_shared *shared =
		lessee ? glk_lessee_take(lessee, imports->node->place.id, addr) : NULL;
	struct glk_wire_frame frame;
	int err;

	if (!shared)
		return -ENOENT;
	glk_lessee_make_room(lessee, imports->node->place.id, shared->item.page);
	err = glk_import_unseal(imports, addr, shared->fd, stream);
	if (err) {
		glk_lessee_keep(lessee, shared);
		return err;
	}
	glk_lessee_item(lessee, GLK_BROKER_END, &shared->item, NULL, &frame);
	glk_shared_free(shared);
	return 0;
}
