/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Staging memory, streams and events of paths: see stage.h. */
#include "tier/io/stage.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>

/* What pages of the driver are multiples of. */
#define GRAIN ((uint64_t)2 << 20)

int glk_stage_event(struct glk_io *io, int gpu, struct glk_drv_event **event)
{
	return *event ? 0 : io->drv->ops->event_new(io->drv, gpu, event);
}

static int stream_ready(struct glk_io *io, int gpu, struct CUstream_st **stream)
{
	return *stream ? 0 : io->drv->ops->stream_new(io->drv, gpu, stream);
}

/* Each way has half of it, in slots of a piece. */
static void cut(const struct glk_io *io, struct glk_io_gpu *g)
{
	uint64_t half = g->size / 2;
	uint64_t slot = io->piece < half / 2 ? io->piece : half / 2;
	uint64_t slots = half / slot;

	for (int turn = 0; turn < GLK_IO_WAYS; turn++) {
		struct glk_io_ring *ring = &g->ring[turn];

		ring->base = g->base + (uint64_t)turn * half;
		ring->size = slot;
		ring->buffer.slots =
			slots < GLK_PLAN_SLOTS ? (unsigned)slots : GLK_PLAN_SLOTS;
	}
}

/* What the driver keeps mapped is used by nobody, and asked for again at the end. */
static int keep(struct glk_io_gpu *g, uint64_t base, uint64_t size, uint32_t page)
{
	g->base = base;
	g->size = size;
	g->page = page;
	return glk_error(-EIO, GLAKE_ERROR_DRIVER,
		"its staging memory at 0x%" PRIx64
		" could not be unmapped and stays out of use",
		base);
}

/* 0; the driver's error, with the page mapped nowhere; or -EIO, and the driver keeps it where it is. */
static int map(struct glk_io *io, int relay, uint32_t page, uint64_t size)
{
	struct glk_grant grant = {
		.who = {GLK_PLACE_GPU, relay}, .access = GLK_ACCESS_WRITE};
	struct glk_io_gpu *g = &io->gpu[relay];
	uint64_t base;
	int err = glk_drv_place(
		io->drv, size, GRAIN, glk_page_at(io->pool, page)->handle, &grant, &base);

	if (err)
		return base ? keep(g, base, size, page) : err;
	g->base = base;
	g->size = size;
	g->page = page;
	g->access = UINT64_C(1) << relay;
	cut(io, g);
	return 0;
}

/* None while the GPU is suspended, which is looked for again when the page counts: who suspends it reads
 * afterwards what it holds. */
static int make(struct glk_io *io, int relay)
{
	struct glk_node *node = glk_pool_gpu(io->pool, relay);
	uint64_t size = (io->staging + GRAIN - 1) & ~(GRAIN - 1);
	uint32_t page;
	int err;

	if (glk_lend_is_shut(node) || !glk_node_has_room(node, size))
		return -ENOMEM;
	err = glk_node_grow(node, size, &page);
	if (err)
		return err;
	err = glk_lend_is_shut(node) ? -ENOMEM : map(io, relay, page, size);
	if (err && !io->gpu[relay].base)
		glk_node_release(node, page);
	return err;
}

/* The target is let at the staging memory of the relay. */
static int admit(struct glk_io *io, int relay, int target)
{
	struct glk_grant grant = {
		.who = {GLK_PLACE_GPU, target}, .access = GLK_ACCESS_WRITE};
	struct glk_io_gpu *g = &io->gpu[relay];
	struct glk_drv *drv = io->drv;
	bool can = false;
	int err;

	if (g->access >> target & 1)
		return 0;
	err = drv->ops->peer_can(drv, relay, target, &can);
	if (!err && !can)
		err = -EOPNOTSUPP;
	if (!err)
		err = drv->ops->set_access(drv, g->base, g->size, &grant, 1);
	if (!err)
		g->access |= UINT64_C(1) << target;
	return err;
}

static int ring_ready(struct glk_io *io, int relay, int target, int turn)
{
	struct glk_io_ring *ring = &io->gpu[relay].ring[turn];
	int last = turn == GLK_IO_DOWN ? target : relay; /* who empties slots */
	int err = 0;

	for (unsigned i = 0; !err && i < ring->buffer.slots; i++)
		err = glk_stage_event(io, last, &ring->slot[i].by[last]);
	return err;
}

int glk_stage_ready(struct glk_io *io, int relay, int target, int turn)
{
	struct glk_io_gpu *r = &io->gpu[relay], *t = &io->gpu[target];
	int err = 0;

	if (!r->base)
		err = make(io, relay);
	if (!err)
		err = admit(io, relay, target);
	if (!err)
		err = stream_ready(io, relay, &r->ring[turn].stream);
	if (!err)
		err = stream_ready(io, target, &t->hop[turn][relay]);
	if (!err)
		err = glk_stage_event(io, relay, &r->mark);
	if (!err)
		err = glk_stage_event(io, target, &t->mark);
	return err ? err : ring_ready(io, relay, target, turn);
}

static void end_stream(struct glk_io *io, int gpu, struct CUstream_st *stream)
{
	if (stream)
		io->drv->ops->stream_free(io->drv, gpu, stream);
}

static void end_event(struct glk_io *io, struct glk_drv_event *event)
{
	if (event)
		io->drv->ops->event_free(io->drv, event);
}

static void unmap(struct glk_io *io, int gpu)
{
	struct glk_node *node = glk_pool_gpu(io->pool, gpu);
	struct glk_io_gpu *g = &io->gpu[gpu];
	struct glk_drv *drv = io->drv;

	if (drv->ops->unmap(drv, g->base, g->size)) {
		glk_node_lose(node, g->page);
		return;
	}
	glk_node_release(node, g->page);
	drv->ops->unreserve(drv, g->base, g->size);
}

/* The streams of all GPUs have ended before: their work names this one's memory. */
static void end_memory(struct glk_io *io, int gpu)
{
	struct glk_io_gpu *g = &io->gpu[gpu];

	for (int turn = 0; turn < GLK_IO_WAYS; turn++) {
		end_event(io, g->own[turn]);
		for (unsigned i = 0; i < GLK_PLAN_SLOTS; i++)
			for (int by = 0; by < GLK_IO_GPUS; by++)
				end_event(io, g->ring[turn].slot[i].by[by]);
	}
	end_event(io, g->start);
	end_event(io, g->mark);
	if (g->base)
		unmap(io, gpu);
}

void glk_stage_fini(struct glk_io *io)
{
	for (int gpu = 0; gpu < io->gpus; gpu++) {
		for (int turn = 0; turn < GLK_IO_WAYS; turn++) {
			end_stream(io, gpu, io->gpu[gpu].ring[turn].stream);
			for (int peer = 0; peer < io->gpus; peer++)
				end_stream(io, gpu, io->gpu[gpu].hop[turn][peer]);
		}
	}
	for (int gpu = 0; gpu < io->gpus; gpu++)
		end_memory(io, gpu);
}
