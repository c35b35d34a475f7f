/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host that is locked for copies: the rules of the driver, and nothing more, since
 * all memory of the process can be copied here. */
#include "soft/state.h"

#include "base/error.h"

#include <errno.h>

/* Pieces that may be locked at a time. */
#define HOSTS 65536

struct soft_host {
	uintptr_t addr;
	size_t size; /* 0: none */
	int node;    /* -1: nobody has asked */
};

static struct soft_host *host_at(const struct soft *soft, uint32_t id)
{
	return glk_slab_at(&soft->hosts, id);
}

int glk_soft_host_init(struct soft *soft)
{
	return glk_slab_init(&soft->hosts, sizeof(struct soft_host), HOSTS);
}

static int lock_host(struct soft *soft, uintptr_t addr, size_t size)
{
	uint32_t last = glk_load_relaxed(&soft->hosts.used), id;

	for (id = 1; id <= last; id++) {
		const struct soft_host *h = host_at(soft, id);

		if (h->size && h->addr < addr + size && addr < h->addr + h->size)
			return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL,
				"cuMemHostRegister", 712,
				"%zu bytes at %#lx are locked already", size,
				(unsigned long)addr);
	}
	id = glk_slab_get(&soft->hosts);
	if (!id)
		return -ENOMEM;
	*host_at(soft, id) = (struct soft_host){addr, size, -1};
	return 0;
}

int glk_soft_host_lock(struct glk_drv *drv, int device, void *ptr, size_t size)
{
	struct soft *soft = soft_of(drv);
	int err;

	glk_soft_charge(soft, GLAKE_CALL_OTHER, 1);
	if (!ptr || !size)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemHostRegister",
			1, "%zu bytes at %p", size, ptr);
	glk_soft_enter(soft);
	err = lock_host(soft, (uintptr_t)ptr, size);
	glk_unlock(&soft->lock);
	return err;
}

/* What holds an address. NULL: nothing. */
static struct soft_host *holder(const struct soft *soft, uint64_t addr)
{
	uint32_t last = glk_load_relaxed(&soft->hosts.used);

	for (uint32_t id = 1; id <= last; id++) {
		struct soft_host *h = host_at(soft, id);

		if (h->size && addr >= h->addr && addr - h->addr < h->size)
			return h;
	}
	return NULL;
}

bool glk_soft_host_is_locked(const struct soft *soft, uint64_t addr, size_t size)
{
	const struct soft_host *h = holder(soft, addr);

	return h && size <= h->size - (addr - h->addr);
}

int glk_soft_host_node_at(const struct soft *soft, uint64_t addr)
{
	const struct glk_mapping *mapping = glk_book_find(&soft->book, addr);
	const struct soft_host *h = mapping ? NULL : holder(soft, addr);

	if (mapping)
		return soft_page_at(soft, mapping->page)->place - soft->gpus;
	return h ? h->node : -1;
}

static bool has_room(const struct soft *soft, int node, size_t size)
{
	const struct soft_room *room = &soft->rooms[soft->gpus + node];

	return size <= room->total - room->used;
}

/* The next one that has room, from the one that was asked for on; that one, if none has any. */
int glk_soft_host_node(struct glk_drv *drv, void *ptr, int *node)
{
	struct soft *soft = soft_of(drv);
	struct soft_host *h;
	int at = *node, err = -EINVAL;

	glk_soft_charge(soft, GLAKE_CALL_OTHER, 1);
	glk_soft_enter(soft);
	h = holder(soft, (uintptr_t)ptr);
	if (h && h->node < 0 && *node >= 0 && *node < soft->nodes) {
		for (int i = 1; i < soft->nodes && !has_room(soft, at, h->size); i++)
			at = (*node + i) % soft->nodes;
		h->node = has_room(soft, at, h->size) ? at : *node;
		soft->rooms[soft->gpus + h->node].used += h->size;
		*node = h->node;
		err = 0;
	}
	glk_unlock(&soft->lock);
	return err ? glk_error(err, GLAKE_ERROR_INVAL, "%p cannot lie on node %d", ptr,
			     *node)
		   : 0;
}

int glk_soft_host_unlock(struct glk_drv *drv, int device, void *ptr)
{
	struct soft *soft = soft_of(drv);
	uint32_t last, id = 1;
	bool found;

	glk_soft_charge(soft, GLAKE_CALL_OTHER, 1);
	glk_soft_enter(soft);
	last = glk_load_relaxed(&soft->hosts.used);
	while (id <= last &&
		(!host_at(soft, id)->size || host_at(soft, id)->addr != (uintptr_t)ptr))
		id++;
	found = id <= last;
	if (found) {
		struct soft_host *h = host_at(soft, id);

		if (h->node >= 0)
			soft->rooms[soft->gpus + h->node].used -= h->size;
		h->size = 0;
		glk_slab_put(&soft->hosts, id);
	}
	glk_unlock(&soft->lock);
	return found ? 0
		     : glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemHostUnregister",
			       713, "%p is not locked", ptr);
}
