/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that were packed go back to a GPU: see pack.h. */
#include "tier/pack.h"

#include "base/error.h"
#include "tier/lz4.h"

#include <errno.h>
#include <string.h>

static struct glk_store *store_of(const struct glk_pack *pack)
{
	return &pack->mover->store;
}

void glk_unpack_trim(struct glk_pack *pack)
{
	struct glk_landing gone = pack->landing;
	struct glk_store *store = store_of(pack);

	if (!gone.base || pack->bytes || pack->unit || pack->taken)
		return;
	/* another one may be made while this one goes */
	pack->landing = (struct glk_landing){0};
	glk_lock_pause(store->lock);
	glk_landing_end(store, &gone);
	glk_lock_resume(store->lock);
	store->packs -= GLK_PACK_LAND;
}

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
};

static int unpack_unit(void *arg, uint32_t i, char **room)
{
	const struct unit *u = &((const struct batch *)arg)->unit[i];
	bool encrypted = u->packed->tag.number;

	if (encrypted && !*room)
		*room = glk_sodium_room_new(GLK_PACK_UNIT);
	if (encrypted && !*room)
		return -ENOMEM;
	return glk_pack_open(u->packed, u->to, u->size, *room) ? 0 : -EIO;
}

int glk_unpack(struct glk_pack *pack, uint32_t run, uint64_t addr, uint32_t *ret_next,
	uint64_t *ret_bytes)
{
	struct CUstream_st *stream = pack->mover->back_channel.main;
	struct glk_store *store = store_of(pack);
	struct glk_drv *drv = store->drv;
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
	base = pack->landing.base + half * GLK_PACK_HALF * GLK_PACK_UNIT;
	for (; run && glk_store_at(store, run)->packed && b.count < GLK_PACK_HALF;) {
		const struct glk_store_run *r = glk_store_at(store, run);

		b.unit[b.count++] = (struct unit){r->packed, r->size, base + bytes};
		bytes += r->size;
		run = r->next;
	}
	glk_lock_pause(store->lock);
	err = glk_landing_await(store, &pack->landing, half);
	if (!err)
		err = glk_unpack_why(
			glk_pack_together(&(struct glk_pack_work){.fn = unpack_unit,
				.arg = &b,
				.units = b.count,
				.each = 1,
				.room = GLK_PACK_UNIT}));
	if (!err)
		err = drv->ops->copy(drv, addr, (uintptr_t)base, bytes, stream);
	if (!err)
		err = glk_landing_mark(store, &pack->landing, half, stream);
	if (b.count && b.unit[0].packed->tag.number) {
		failed = glk_landing_await(store, &pack->landing, half);
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
