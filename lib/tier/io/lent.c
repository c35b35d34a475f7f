/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Links that are borrowed from other processes: see agree.h. What is borrowed for a copy stays so while
 * copies are on their way, and is given back by the next call that finds they have ended. The share that
 * this process has is a link to the plan.
 */
#include "tier/io/link.h"

#include "driver/driver.h"

#include <errno.h>

static bool name_of(struct glk_io *io, int gpu, struct glake_device *ret_info)
{
	*ret_info = (struct glake_device){.sz = sizeof(*ret_info)};
	return !io->drv->ops->device_info(io->drv, gpu, ret_info) && *ret_info->uuid;
}

bool glk_link_borrow(struct glk_io *io, int relay, int turn)
{
	struct glk_io_ring *ring = &io->gpu[relay].ring[turn];
	unsigned before = ring->shares, shares;
	struct glake_device info;

	if (!io->agree.on || !name_of(io, relay, &info))
		return true;
	shares = glk_agree_borrow(&io->agree, relay, turn, info.uuid);
	if (!before != !shares)
		glk_store_relaxed(&io->borrowed,
			glk_load_relaxed(&io->borrowed) + (shares ? 1u : -1u));
	ring->shares = shares;
	return shares;
}

static void give(struct glk_io *io, int relay, int turn)
{
	struct glk_io_ring *ring = &io->gpu[relay].ring[turn];

	glk_agree_give(&io->agree, relay, turn);
	glk_store_relaxed(&io->borrowed, glk_load_relaxed(&io->borrowed) - 1);
	ring->shares = 0;
}

void glk_link_rest(struct glk_io *io, int relay, int turn)
{
	struct glk_io_ring *ring = &io->gpu[relay].ring[turn];
	int err;

	if (!ring->shares || io->planning)
		return;
	/* the copies of its own GPU want no share; what a lost one had brings nothing any more */
	err = glk_link_pass(io, ring);
	if (!err || err == -ENODEV)
		give(io, relay, turn);
}

void glk_io_rest(struct glk_io *io)
{
	if (!glk_load_relaxed(&io->borrowed))
		return;
	/* who holds the lock then may wait for a stream, and that one for the caller */
	if (glk_add_seq_cst(&io->queueing, 0)) {
		glk_xchg_seq_cst(&io->owed, true);
		if (glk_add_seq_cst(&io->queueing, 0))
			return;
	}
	glk_io_enter(io);
	for (int gpu = 0; gpu < io->gpus; gpu++)
		for (int turn = 0; turn < GLK_IO_WAYS; turn++)
			glk_link_rest(io, gpu, turn);
	glk_unlock(&io->lock);
}

void glk_link_use(struct glk_io *io, int gpu)
{
	struct glake_device info;

	if (io->agree.on && !io->agree.gpu[gpu].used && name_of(io, gpu, &info))
		glk_agree_use(&io->agree, gpu, info.uuid);
}

void glk_io_use(struct glk_io *io, int gpu)
{
	glk_io_enter(io);
	glk_link_use(io, gpu);
	glk_unlock(&io->lock);
}

void glk_io_forked(struct glk_io *io)
{
	glk_agree_forked(&io->agree);
}
