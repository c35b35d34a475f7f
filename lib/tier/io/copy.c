/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which copies go over several paths, and how the others go: see io.h. */
#include "driver/driver.h"
#include "map/map.h"
#include "tier/io/job.h"
#include "tier/io/link.h"

/* Ranges that are smaller than such a part of a piece, on average, are for one path. */
#define SMALL_RANGE 32

/* One end of a range: a GPU, or -1 for locked memory of the host; -2 for other memory. */
static int end_of(struct glk_io *io, const void *ptr, size_t bytes)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_spot spot;

	if (io->drv->ops->spot(io->drv, addr, bytes, &spot))
		return -2;
	if (spot.kind == GLK_SPOT_GPU)
		return spot.device;
	/* pages of the host in place are open to one GPU and its peers */
	return spot.kind == GLK_SPOT_LOCKED && !glk_index_find(addr) ? -1 : -2;
}

/* Whether all ranges go between locked memory of the host and one GPU, one way. */
static bool is_one_way(struct glk_job *job)
{
	const struct glake_copy_range *r = job->copy->ranges;
	bool is_found = false;

	for (size_t i = 0; i < job->copy->count; i++) {
		int to, from, gpu;

		if (!r[i].bytes)
			continue;
		to = end_of(job->io, r[i].dst, r[i].bytes);
		from = end_of(job->io, r[i].src, r[i].bytes);
		gpu = to > from ? to : from;
		if (gpu < 0 || (to > from ? from : to) != -1)
			return false;
		if (is_found &&
			(gpu != job->target || (to > from) != (job->turn == GLK_IO_DOWN)))
			return false;
		is_found = true;
		job->target = gpu;
		job->turn = to > from ? GLK_IO_DOWN : GLK_IO_UP;
	}
	return is_found;
}

/* What is known of both ends of a copy; false: it is for one path. */
static bool has_ends(struct glk_job *job)
{
	const struct glk_io_copy *copy = job->copy;

	if (!copy->is_known)
		return is_one_way(job);
	job->target = copy->gpu;
	job->turn = copy->is_up ? GLK_IO_UP : GLK_IO_DOWN;
	return copy->relays;
}

uint64_t glk_io_relays(const struct glk_io *io, int gpu, uint64_t bytes)
{
	return io && bytes >= io->least ? io->lend & ~(UINT64_C(1) << gpu) : 0;
}

bool glk_io_is_stream_of(struct glk_io *io, int gpu, struct CUstream_st *stream)
{
	struct glk_stream_facts facts = {0};

	return !io->drv->ops->stream_owner(io->drv, gpu, stream) &&
		!io->drv->ops->stream_facts(io->drv, gpu, stream, &facts) &&
		!facts.capture;
}

/* Each range over one link. 0, also where the first ones were queued. */
static int plain(struct glk_io *io, struct glk_io_copy *copy)
{
	const struct glake_copy_range *r = copy->ranges;
	uint64_t done = 0, part;
	int err;

	copy->paths = 1;
	for (size_t i = 0; i < copy->count; i++) {
		if (!r[i].bytes)
			continue;
		err = glk_bounce_copy(io, &r[i], copy->stream, &part);
		done += part;
		if (err && !done)
			return err;
		if (err) {
			copy->lost[0] = (struct glake_copy_part){
				.offset = done, .bytes = copy->bytes - done};
			copy->lost_count = 1;
			copy->err = err;
			return 0;
		}
	}
	return 0;
}

/* Whether pieces would be worth their six calls. */
static bool is_worth_it(const struct glk_io *io, const struct glk_io_copy *copy)
{
	return io->lend && copy->bytes >= io->least &&
		copy->bytes / copy->count >= io->piece / SMALL_RANGE;
}

int glk_io_copy(struct glk_io *io, struct glk_io_copy *copy, bool direct)
{
	struct glk_job job = {.io = io, .copy = copy};
	bool queued;

	glk_io_rest(io);
	if (direct || !copy->bytes || !is_worth_it(io, copy) || !has_ends(&job) ||
		!glk_io_is_stream_of(io, job.target, copy->stream))
		return plain(io, copy);
	glk_add_seq_cst(&io->queueing, 1);
	glk_io_enter(io);
	queued = glk_job_run(&job);
	glk_unlock(&io->lock);
	glk_add_seq_cst(&io->queueing, -1u);
	if (glk_xchg_seq_cst(&io->owed, false))
		glk_io_rest(io);
	return queued ? 0 : plain(io, copy);
}
