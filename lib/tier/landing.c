/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locked memory through which contents pass that lie in the store as something else: see struct glk_landing. */
#include "tier/piece.h"
#include "tier/tier.h"

#include <sys/mman.h>

void glk_landing_end(struct glk_store *store, struct glk_landing *landing)
{
	for (int i = 0; i < 2; i++) {
		if (landing->event[i])
			store->drv->ops->event_free(store->drv, landing->event[i]);
	}
	if (landing->base) {
		glk_piece_end(store->drv, store->device, landing->base, landing->bytes);
		glk_node_unclaim(store->host, landing->bytes);
	}
	*landing = (struct glk_landing){0};
}

/* Without the lock. */
static int make(const struct glk_store *store, struct glk_landing *landing)
{
	struct glk_drv *drv = store->drv;
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		err = drv->ops->event_new(drv, store->device, &landing->event[i]);
	return err ? err
		   : glk_piece_make(drv, store->device, store->node, false, true,
			     landing->bytes, &landing->base);
}

int glk_landing_have(struct glk_store *store, struct glk_landing *landing, uint64_t bytes)
{
	struct glk_landing made = {.bytes = bytes};
	int err;

	if (landing->base)
		return 0;
	if (glk_node_claim(store->host, bytes))
		return glk_store_refuse(store->host);
	glk_lock_pause(store->lock);
	err = make(store, &made);
	if (err)
		glk_landing_end(store, &made);
	glk_lock_resume(store->lock);
	if (err) {
		glk_node_unclaim(store->host, bytes);
		return err;
	}
	/* a process that ends in the middle of a copy leaves nothing plain of it either */
	madvise(made.base, bytes, MADV_DONTDUMP);
	glk_node_note_peak(store->host);
	store->packs += bytes;
	*landing = made;
	return 0;
}

int glk_landing_await(
	const struct glk_store *store, struct glk_landing *landing, unsigned half)
{
	struct glk_drv *drv = store->drv;
	int err =
		landing->busy[half] ? drv->ops->event_sync(drv, landing->event[half]) : 0;

	landing->busy[half] = err != 0;
	return err;
}

int glk_landing_mark(const struct glk_store *store, struct glk_landing *landing,
	unsigned half, struct CUstream_st *stream)
{
	struct glk_drv *drv = store->drv;
	bool noted = !drv->ops->event_record(drv, landing->event[half], stream);
	int err = noted ? 0 : drv->ops->device_sync(drv, store->device);

	landing->busy[half] = noted || err;
	return err;
}
