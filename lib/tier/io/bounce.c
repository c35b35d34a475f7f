/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies through pinned buffers: see bounce.h. */
#include "tier/io/bounce.h"

#include "base/conf.h"
#include "base/log.h"
#include "map/map.h"
#include "tier/io/io.h"
#include "tier/piece.h"

#include <errno.h>

/* Chunks whose copies are queued when one is waited for, on the way to the host. */
#define AHEAD (GLK_BOUNCE_SLOTS - 2)

/* One range on its way, cut into chunks of a slot. */
struct trip {
	struct glk_bounce *bounce;
	struct glk_bounce_ring *ring;
	int gpu, turn;
	struct CUstream_st *stream;
	uint64_t device; /* address on the GPU */
	char *host;
	uint64_t bytes, chunks;
	uint64_t posted, copied; /* chunks that threads were given, and have copied */
	uint64_t sent;		 /* chunks whose copy was queued */
};

int glk_bounce_init(struct glk_bounce *bounce, struct glk_drv *drv, struct glk_pool *pool,
	const struct glk_conf *conf, int gpus)
{
	*bounce = (struct glk_bounce){0};
	if (!conf->io_threads || !gpus)
		return 0;
	bounce->ring = glk_region_new((size_t)gpus * sizeof(*bounce->ring));
	if (!bounce->ring)
		return -ENOMEM;
	bounce->drv = drv;
	bounce->pool = pool;
	bounce->gpus = gpus;
	glk_crew_init(&bounce->crew, "glake-copy", (unsigned)conf->io_threads);
	return 0;
}

/* ---- Slots ---- */

static struct glk_bounce_slot *slot_of(const struct trip *trip, uint64_t chunk)
{
	return &trip->ring->slot[chunk % GLK_BOUNCE_SLOTS];
}

static char *base_of(const struct trip *trip, uint64_t chunk)
{
	return trip->ring->base + chunk % GLK_BOUNCE_SLOTS * GLK_BOUNCE_SLOT;
}

static uint64_t size_of(const struct trip *trip, uint64_t chunk)
{
	uint64_t left = trip->bytes - chunk * GLK_BOUNCE_SLOT;

	return left < GLK_BOUNCE_SLOT ? left : GLK_BOUNCE_SLOT;
}

static int ring_ready(struct glk_bounce *bounce, int gpu, struct glk_bounce_ring *ring)
{
	int node = glk_pool_host(bounce->pool, gpu)->place.id, err = 0;

	for (int i = 0; i < GLK_BOUNCE_SLOTS && !err; i++)
		if (!ring->slot[i].event)
			err = bounce->drv->ops->event_new(
				bounce->drv, gpu, &ring->slot[i].event);
	if (!err && !ring->base)
		err = glk_piece_make(bounce->drv, gpu, node, false, true, GLK_BOUNCE_SIZE,
			&ring->base);
	return err;
}

static int settle(struct glk_bounce *bounce, struct glk_bounce_slot *slot)
{
	int err = slot->pending ? bounce->drv->ops->event_sync(bounce->drv, slot->event)
				: 0;

	if (!err)
		slot->pending = false;
	return err;
}

/* Between a slot and the GPU. What is under way to or from the slot can be waited for afterwards, or the
 * ring is used no more. */
static int send(struct trip *trip)
{
	struct glk_bounce_slot *slot = slot_of(trip, trip->sent);
	uint64_t base = (uint64_t)(uintptr_t)base_of(trip, trip->sent);
	uint64_t there = trip->device + trip->sent * GLK_BOUNCE_SLOT;
	struct glk_drv *drv = trip->bounce->drv;
	bool down = trip->turn == GLK_IO_DOWN;
	int err;

	err = drv->ops->copy(drv, down ? there : base, down ? base : there,
		size_of(trip, trip->sent), trip->stream);
	if (err)
		return err;
	err = drv->ops->event_record(drv, slot->event, trip->stream);
	slot->pending = !err;
	if (err && drv->ops->stream_sync(drv, trip->gpu, trip->stream)) {
		trip->ring->off = true;
		return err;
	}
	trip->sent++;
	return 0;
}

/* Between the program's memory and a slot. */
static void post(struct trip *trip)
{
	struct glk_crew_task *task = &slot_of(trip, trip->posted)->task;
	char *there = trip->host + trip->posted * GLK_BOUNCE_SLOT;
	char *base = base_of(trip, trip->posted);
	bool down = trip->turn == GLK_IO_DOWN;

	task->dst = down ? base : there;
	task->src = down ? there : base;
	task->bytes = size_of(trip, trip->posted);
	trip->posted++;
	glk_crew_post(&trip->bounce->crew, task);
}

static void await_copied(struct trip *trip)
{
	glk_crew_wait(&trip->bounce->crew, &slot_of(trip, trip->copied)->task);
	trip->copied++;
}

/* ---- The two ways ---- */

/* The threads fill one slot while the one before it is sent. */
static int go_down(struct trip *trip)
{
	int err = 0;

	while (!err && trip->sent < trip->chunks) {
		if (trip->posted < trip->chunks) {
			err = settle(trip->bounce, slot_of(trip, trip->posted));
			if (!err)
				post(trip);
		}
		if (!err &&
			(trip->posted - trip->sent > 1 || trip->posted == trip->chunks)) {
			await_copied(trip);
			err = send(trip);
		}
	}
	return err;
}

/* The threads empty one slot while the next ones arrive. */
static int go_up(struct trip *trip)
{
	int err = 0;

	while (!err && trip->copied < trip->chunks) {
		if (trip->sent < trip->chunks) {
			err = settle(trip->bounce, slot_of(trip, trip->sent));
			if (!err)
				err = send(trip);
		}
		if (!err &&
			(trip->sent - trip->posted > AHEAD ||
				(trip->sent == trip->chunks &&
					trip->posted < trip->chunks))) {
			err = settle(trip->bounce, slot_of(trip, trip->posted));
			if (!err)
				post(trip);
		}
		if (!err &&
			(trip->posted - trip->copied > 1 ||
				(trip->posted == trip->chunks)))
			await_copied(trip);
	}
	return err;
}

static int travel(struct trip *trip, uint64_t *ret_done)
{
	bool down = trip->turn == GLK_IO_DOWN;
	uint64_t done;
	int err;

	trip->chunks = (trip->bytes + GLK_BOUNCE_SLOT - 1) / GLK_BOUNCE_SLOT;
	err = down ? go_down(trip) : go_up(trip);
	while (trip->copied < trip->posted)
		await_copied(trip);
	done = (down ? trip->sent : trip->copied) * GLK_BOUNCE_SLOT;
	*ret_done = done < trip->bytes ? done : trip->bytes;
	glk_store_relaxed(
		&trip->ring->bytes, glk_load_relaxed(&trip->ring->bytes) + *ret_done);
	return err;
}

/* ---- Which ranges ---- */

/* The GPU at one end, where memory that the driver does not know is at the other; -1: it is not so. */
static int gpu_between(
	struct glk_io *io, uint64_t gpu_end, uint64_t plain_end, uint64_t bytes)
{
	struct glk_spot at, other;

	if (io->drv->ops->spot(io->drv, plain_end, bytes, &other) ||
		other.kind != GLK_SPOT_PLAIN || glk_index_find(plain_end) ||
		glk_index_find(plain_end + bytes - 1) ||
		io->drv->ops->spot(io->drv, gpu_end, bytes, &at) ||
		at.kind != GLK_SPOT_GPU)
		return -1;
	return at.device;
}

static bool is_for(struct glk_io *io, const struct glake_copy_range *r,
	struct CUstream_st *stream, struct trip *trip)
{
	uint64_t dst = (uintptr_t)r->dst, src = (uintptr_t)r->src;

	if (!io->bounce.drv || r->bytes < GLK_BOUNCE_LEAST)
		return false;
	*trip = (struct trip){.bounce = &io->bounce,
		.gpu = gpu_between(io, dst, src, r->bytes),
		.turn = GLK_IO_DOWN,
		.stream = stream,
		.device = dst,
		/* it is read alone on this way */
		.host = (char *)(uintptr_t)src,
		.bytes = r->bytes};
	if (trip->gpu < 0) {
		trip->gpu = gpu_between(io, src, dst, r->bytes);
		trip->turn = GLK_IO_UP;
		trip->device = src;
		trip->host = r->dst;
	}
	return trip->gpu >= 0 && trip->gpu < io->bounce.gpus &&
		glk_io_is_stream_of(io, trip->gpu, stream);
}

/* False: somebody else has it, or it cannot be had. */
static bool take(struct trip *trip)
{
	bool is_busy = false;

	trip->ring = &trip->bounce->ring[trip->gpu][trip->turn];
	/* pairs with: the release in give */
	if (!glk_cas_acq_rel(&trip->ring->busy, &is_busy, true))
		return false;
	if (!trip->ring->off && !ring_ready(trip->bounce, trip->gpu, trip->ring))
		return true;
	/* pairs with: the compare and swap above */
	glk_store_release(&trip->ring->busy, false);
	return false;
}

static void give(struct trip *trip)
{
	/* pairs with: the compare and swap in take */
	glk_store_release(&trip->ring->busy, false);
}

int glk_bounce_copy(struct glk_io *io, const struct glake_copy_range *r,
	struct CUstream_st *stream, uint64_t *ret_done)
{
	struct trip trip;
	int err;

	*ret_done = 0;
	if (is_for(io, r, stream, &trip) && take(&trip)) {
		err = travel(&trip, ret_done);
		give(&trip);
		return err;
	}
	err = io->drv->ops->copy(
		io->drv, (uintptr_t)r->dst, (uintptr_t)r->src, r->bytes, stream);
	if (!err)
		*ret_done = r->bytes;
	return err;
}

/* ---- The end ---- */

static void end_ring(struct glk_bounce *bounce, int gpu, struct glk_bounce_ring *ring)
{
	bool is_sure = !ring->off;

	for (int i = 0; i < GLK_BOUNCE_SLOTS; i++) {
		is_sure &= !settle(bounce, &ring->slot[i]);
		if (ring->slot[i].event)
			bounce->drv->ops->event_free(bounce->drv, ring->slot[i].event);
	}
	if (!ring->base)
		return;
	/* what may still be read or written stays where it is */
	if (is_sure || !bounce->drv->ops->device_sync(bounce->drv, gpu))
		glk_piece_end(bounce->drv, gpu, ring->base, GLK_BOUNCE_SIZE);
	else
		glk_warn(
			"%d MiB of locked memory for copies of GPU %d are left as they are: "
			"the GPU cannot be waited for",
			(int)(GLK_BOUNCE_SIZE >> 20), gpu);
}

void glk_bounce_fini(struct glk_bounce *bounce)
{
	if (!bounce->drv)
		return;
	glk_crew_fini(&bounce->crew);
	for (int gpu = 0; gpu < bounce->gpus; gpu++)
		for (int turn = 0; turn < GLK_IO_WAYS; turn++)
			end_ring(bounce, gpu, &bounce->ring[gpu][turn]);
	glk_region_free(bounce->ring, (size_t)bounce->gpus * sizeof(*bounce->ring));
}
