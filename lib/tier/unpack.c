/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that were packed go back to a GPU: see pack.h. */
#include "tier/pack.h"

#include "base/error.h"
#include "tier/lz4.h"
#include "tier/piece.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static struct glk_store *store_of(const struct glk_pack *pack)
{
	return &pack->mover->store;
}

/* ---- The landing ---- */

static void free_events(struct glk_drv *drv, struct glk_drv_event *event[2])
{
	for (int i = 0; i < 2; i++) {
		if (event[i])
			drv->ops->event_free(drv, event[i]);
		event[i] = NULL;
	}
}

/* Without the lock. */
static int make_landing(const struct glk_store *store, struct glk_drv_event *ret_event[2],
	char **ret_base)
{
	struct glk_drv *drv = store->drv;
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		err = drv->ops->event_new(drv, store->device, &ret_event[i]);
	if (!err)
		err = glk_piece_make(drv, store->device, store->node, false, true,
			GLK_PACK_LAND, ret_base);
	if (err)
		free_events(drv, ret_event);
	return err;
}

int glk_unpack_ready(struct glk_pack *pack)
{
	struct glk_store *store = store_of(pack);
	struct glk_drv_event *event[2] = {NULL, NULL};
	char *base = NULL;
	int err;

	if (pack->base)
		return 0;
	if (glk_node_claim(store->host, GLK_PACK_LAND))
		return glk_store_refuse(store->host);
	glk_lock_pause(store->lock);
	err = make_landing(store, event, &base);
	glk_lock_resume(store->lock);
	if (err) {
		glk_node_unclaim(store->host, GLK_PACK_LAND);
		return err;
	}
	/* what was encrypted is plain in it for a moment */
	madvise(base, GLK_PACK_LAND, MADV_DONTDUMP);
	glk_node_note_peak(store->host);
	store->packs += GLK_PACK_LAND;
	pack->event[0] = event[0];
	pack->event[1] = event[1];
	pack->base = base;
	return 0;
}

void glk_unpack_fini(struct glk_pack *pack)
{
	struct glk_store *store = store_of(pack);

	if (!pack->base)
		return;
	free_events(store->drv, pack->event);
	glk_piece_end(store->drv, store->device, pack->base, GLK_PACK_LAND);
	glk_node_unclaim(store->host, GLK_PACK_LAND);
	pack->base = NULL;
}

void glk_unpack_trim(struct glk_pack *pack)
{
	struct glk_drv_event *event[2] = {pack->event[0], pack->event[1]};
	struct glk_store *store = store_of(pack);
	char *base = pack->base;

	if (!base || pack->bytes || pack->unit || pack->taken)
		return;
	/* another one may be made while this one goes */
	pack->base = NULL;
	pack->event[0] = pack->event[1] = NULL;
	pack->busy[0] = pack->busy[1] = false;
	glk_lock_pause(store->lock);
	free_events(store->drv, event);
	glk_piece_end(store->drv, store->device, base, GLK_PACK_LAND);
	glk_lock_resume(store->lock);
	store->packs -= GLK_PACK_LAND;
	glk_node_unclaim(store->host, GLK_PACK_LAND);
}

/* ---- Units ---- */

int glk_unpack_why(int err)
{
	if (err == -EIO)
		return glk_error(-EIO, GLAKE_ERROR_CORRUPT,
			"contents that were compressed in memory of the host are not what they were");
	return err
		? glk_error(err, GLAKE_ERROR_NOMEM_HOST,
			  "no memory of the host for contents that were compressed there")
		: 0;
}

struct unit {
	const struct glk_packed *packed;
	size_t size;
	char *to;
};

struct batch {
	struct unit unit[GLK_PACK_HALF];
	uint32_t count;
	glk_atomic(uint32_t) next;
	glk_atomic(int) err; /* -EIO: one is not what it was; -ENOMEM */
};

static void unpack_units(void *arg)
{
	struct batch *b = arg;
	char *room = NULL;
	uint32_t i;

	while ((i = glk_add_relaxed(&b->next, 1)) < b->count) {
		const struct unit *u = &b->unit[i];
		bool encrypted = u->packed->tag.number;

		if (encrypted && !room)
			room = glk_sodium_room_new(GLK_PACK_UNIT);
		if (encrypted && !room)
			glk_store_relaxed(&b->err, -ENOMEM);
		else if (!glk_pack_open(u->packed, u->to, u->size, room))
			glk_store_relaxed(&b->err, -EIO);
	}
	if (room)
		glk_sodium_room_free(room, GLK_PACK_UNIT);
}

static int unpack_all(struct batch *b)
{
	glk_pack_together(b->count, unpack_units, b);
	return glk_unpack_why(glk_load_relaxed(&b->err));
}

/* What is on its way from there has gone. */
static int wait_for(struct glk_pack *pack, unsigned half)
{
	struct glk_drv *drv = store_of(pack)->drv;
	int err = pack->busy[half] ? drv->ops->event_sync(drv, pack->event[half]) : 0;

	pack->busy[half] = err != 0;
	return err;
}

/* Where no event can tell of the copy it is waited for. */
static int send(struct glk_pack *pack, unsigned half, uint64_t addr, const char *from,
	uint64_t bytes)
{
	struct CUstream_st *stream = pack->mover->back_channel.main;
	struct glk_drv *drv = store_of(pack)->drv;
	int err = drv->ops->copy(drv, addr, (uintptr_t)from, bytes, stream), failed;

	if (err)
		return err;
	failed = drv->ops->event_record(drv, pack->event[half], stream);
	pack->busy[half] = !failed;
	return failed ? drv->ops->device_sync(drv, store_of(pack)->device) : 0;
}

int glk_unpack(struct glk_pack *pack, uint32_t run, uint64_t addr, uint32_t *ret_next,
	uint64_t *ret_bytes)
{
	struct glk_store *store = store_of(pack);
	struct batch b = {.count = 0};
	uint64_t bytes = 0;
	char *base;
	unsigned half;
	int err, failed;

	while (pack->taken)
		glk_lock_wait(store->lock, &pack->landed);
	pack->taken = true;
	half = pack->half;
	pack->half = !half;
	base = pack->base + half * GLK_PACK_HALF * GLK_PACK_UNIT;
	for (; run && glk_store_at(store, run)->packed && b.count < GLK_PACK_HALF;) {
		const struct glk_store_run *r = glk_store_at(store, run);

		b.unit[b.count++] = (struct unit){r->packed, r->size, base + bytes};
		bytes += r->size;
		run = r->next;
	}
	glk_lock_pause(store->lock);
	err = wait_for(pack, half);
	if (!err)
		err = unpack_all(&b);
	if (!err)
		err = send(pack, half, addr, base, bytes);
	if (b.count && b.unit[0].packed->tag.number) {
		failed = wait_for(pack, half);
		err = err ? err : failed;
		explicit_bzero(base, bytes);
	}
	glk_lock_resume(store->lock);
	pack->taken = false;
	pthread_cond_broadcast(&pack->landed);
	*ret_next = run;
	*ret_bytes = bytes;
	return err;
}
