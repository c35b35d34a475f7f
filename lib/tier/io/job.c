/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One copy, cut into pieces and queued: see io.h. The direct path takes pieces from the front, and
 * those that follow each other go in one call; the others take them from the back. What a path
 * is refused is handed back and taken by the next.
 */
#include "tier/io/job.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "driver/driver.h"
#include "tier/io/link.h"
#include "tier/io/stage.h"

#include <errno.h>

/* Pieces that the direct path is given in one call at most, so that it begins early. */
#define MERGED 8

/* The program's stream goes on behind an event of a GPU. A default stream is taken for that of the
 * event's GPU, so there it has to be an event of its own, of the stream that works for this relay. */
static int go_behind(struct glk_job *job, int relay, int gpu, struct glk_drv_event *event)
{
	struct glk_io_gpu *t = &job->io->gpu[job->target];
	struct CUstream_st *own = t->hop[job->turn][relay];
	struct glk_drv *drv = job->io->drv;
	int err = 0;

	if (gpu != job->target && glk_stream_is_default(job->copy->stream)) {
		if (!own || !t->mark)
			return -EAGAIN;
		err = drv->ops->stream_wait(drv, own, event);
		if (!err)
			err = drv->ops->event_record(drv, t->mark, own);
		event = t->mark;
	}
	return err ? err : drv->ops->stream_wait(drv, job->copy->stream, event);
}

/* Times that a stream is waited for: what it may be writing to is somebody else's otherwise. */
#define SYNCS 8

static int wait_idle(struct glk_job *job, int gpu, struct CUstream_st *stream)
{
	struct glk_drv *drv = job->io->drv;
	int err = -EIO;

	for (int i = 0; i < SYNCS && err && err != -ENODEV; i++)
		err = drv->ops->stream_sync(drv, gpu, stream);
	return err;
}

/* Behind all that is queued on another stream, by an event or by waiting here. */
static void join(struct glk_job *job, int relay, int gpu, struct CUstream_st *stream)
{
	struct glk_drv *drv = job->io->drv;
	struct glk_drv_event *mark = job->io->gpu[gpu].mark;

	if (!stream)
		return;
	if (mark && !drv->ops->event_record(drv, mark, stream) &&
		!go_behind(job, relay, gpu, mark))
		return;
	/* others need not wait for it: it may have to pass what stands for long */
	glk_io_pause(job->io);
	job->unsure |= wait_idle(job, gpu, stream) != 0;
	glk_io_resume(job->io);
}

/* The first and the second stream of a piece, and whose they are. */
static struct CUstream_st *streams_of(
	const struct glk_job *job, int relay, bool second, int *ret_gpu)
{
	struct glk_io *io = job->io;
	bool own = (job->turn == GLK_IO_DOWN) != second;

	*ret_gpu = own ? relay : job->target;
	return own ? io->gpu[relay].ring[job->turn].stream
		   : io->gpu[job->target].hop[job->turn][relay];
}

static void join_both(struct glk_job *job, int relay)
{
	struct CUstream_st *stream;
	int gpu;

	for (int second = 0; second < 2; second++) {
		stream = streams_of(job, relay, second, &gpu);
		join(job, relay, gpu, stream);
	}
}

/* A relay that the driver refused something takes no further part in anything. */
static void put_off(struct glk_job *job, int relay)
{
	struct glk_io_gpu *g = &job->io->gpu[relay];
	struct glake_error why = {.sz = sizeof(why)};

	glake_last_error(&why);
	if (!g->off)
		glk_warn("GPU %d lends its link no more: %s", relay, why.text);
	g->off = true;
	g->ring[job->turn].buffer.off = true;
}

/* Behind what the program had queued. */
static int begin_relay(struct glk_job *job, int relay, struct CUstream_st *first)
{
	struct glk_drv *drv = job->io->drv;
	int err;

	if (job->begun >> relay & 1)
		return 0;
	err = drv->ops->stream_wait(drv, first, job->start);
	if (!err)
		job->begun |= UINT64_C(1) << relay;
	return err;
}

/* Six calls; what was queued of a piece whose call fails writes to its slot alone. */
static int relay_piece(struct glk_job *job, int relay, const struct glk_copy_piece *piece,
	bool *ret_went)
{
	struct glk_io_ring *ring = &job->io->gpu[relay].ring[job->turn];
	struct glk_io_slot *slot = &ring->slot[ring->buffer.next];
	uint64_t at = ring->base + ring->buffer.next * ring->size;
	const struct glk_drv_ops *ops = job->io->drv->ops;
	struct glk_drv *drv = job->io->drv;
	struct CUstream_st *first, *second;
	struct glk_drv_event *mark;
	int filler, emptier, err;

	first = streams_of(job, relay, false, &filler);
	second = streams_of(job, relay, true, &emptier);
	mark = job->io->gpu[filler].mark;
	err = begin_relay(job, relay, first);
	if (!err && slot->last)
		err = ops->stream_wait(drv, first, slot->last);
	if (!err)
		err = ops->copy(drv, at, piece->src, piece->bytes, first);
	if (!err)
		err = ops->event_record(drv, mark, first);
	if (!err)
		err = ops->stream_wait(drv, second, mark);
	if (!err)
		err = ops->copy(drv, piece->dst, at, piece->bytes, second);
	*ret_went = !err;
	if (!err)
		err = ops->event_record(drv, slot->by[emptier], second);
	if (err)
		return err;
	job->newest[relay] = slot->last = slot->by[emptier];
	return 0;
}

/* A slot of which only the first hop was queued is filled again behind that. 0 or the driver's error. */
static int leave_slot(struct glk_job *job, int relay)
{
	struct glk_io_ring *ring = &job->io->gpu[relay].ring[job->turn];
	struct glk_io_slot *slot = &ring->slot[ring->buffer.next];
	const struct glk_drv_ops *ops = job->io->drv->ops;
	struct CUstream_st *first, *second;
	struct glk_drv *drv = job->io->drv;
	int filler, emptier, err;

	first = streams_of(job, relay, false, &filler);
	second = streams_of(job, relay, true, &emptier);
	err = ops->event_record(drv, job->io->gpu[filler].mark, first);
	if (!err)
		err = ops->stream_wait(drv, second, job->io->gpu[filler].mark);
	if (!err)
		err = ops->event_record(drv, slot->by[emptier], second);
	if (err)
		return err;
	slot->last = slot->by[emptier];
	return 0;
}

/* A piece over a path with a relay. 0; or the driver's error: it was handed back, or is on its way. */
static int send(struct glk_job *job, int relay, const struct glk_copy_piece *piece)
{
	bool went = false;
	int err = relay_piece(job, relay, piece, &went);

	if (went) {
		job->used |= UINT64_C(1) << relay;
		job->copy->relayed += piece->bytes;
		job->io->gpu[relay].relayed += piece->bytes;
	} else {
		glk_job_hand_back(job, piece);
	}
	if (!err)
		return 0;
	job->copy->err = err;
	/* memory that the driver does not know is no fault of the path */
	if (err != -EINVAL || went || leave_slot(job, relay))
		put_off(job, relay);
	join_both(job, relay);
	job->newest[relay] = NULL;
	return err;
}

static int flush(struct glk_job *job)
{
	struct glk_copy_piece piece = job->merged;
	struct glk_drv *drv = job->io->drv;
	int err;

	job->merged.bytes = 0;
	if (!piece.bytes)
		return 0;
	err = drv->ops->copy(drv, piece.dst, piece.src, piece.bytes, job->copy->stream);
	if (!err) {
		job->went = true;
		return 0;
	}
	job->copy->err = err;
	job->path[0].off = true;
	glk_job_hand_back(job, &piece);
	return err;
}

static int send_direct(struct glk_job *job, const struct glk_copy_piece *piece)
{
	struct glk_copy_piece *m = &job->merged;
	int err = 0;

	if (m->bytes &&
		(m->dst + m->bytes != piece->dst || m->src + m->bytes != piece->src ||
			m->offset + m->bytes != piece->offset ||
			m->bytes >= MERGED * job->io->piece))
		err = flush(job);
	if (err)
		glk_job_hand_back(job, piece);
	else if (m->bytes)
		m->bytes += piece->bytes;
	else
		*m = *piece;
	return err;
}

/* The largest piece that fits a slot of every path. */
static uint64_t piece_most(const struct glk_job *job)
{
	uint64_t most = job->io->piece;

	for (unsigned i = 1; i < job->count; i++) {
		uint64_t slot = job->io->gpu[job->relay[i]].ring[job->turn].size;

		most = slot < most ? slot : most;
	}
	return most;
}

/* Until all is queued, no path is left, or there is no such memory. */
static void spread(struct glk_job *job)
{
	uint64_t most = piece_most(job), left;
	struct glk_copy_piece piece;
	int at, err = 0;

	while (err != -EINVAL) {
		left = job->returns ? job->returned[job->returns - 1].bytes
				    : job->end - job->begin;
		if (!left) {
			err = flush(job);
			if (!err)
				return;
			continue;
		}
		at = glk_plan_pick(
			job->path, job->count, left < most ? left : most, job->now);
		if (at < 0)
			break;
		piece = glk_job_take(job, !at, most);
		err = at ? send(job, job->relay[at], &piece) : send_direct(job, &piece);
		if (!err)
			glk_plan_book(&job->path[at], piece.bytes, job->now);
		glk_io_give_way(job->io);
	}
	flush(job);
}

static void finish_relay(struct glk_job *job, int relay)
{
	/* whose event it is: that of the GPU that emptied the slot */
	int gpu = job->turn == GLK_IO_DOWN ? job->target : relay;

	if (!(job->used >> relay & 1)) {
		glk_link_rest(job->io, relay, job->turn);
		return;
	}
	job->copy->paths++;
	if (job->newest[relay] && go_behind(job, relay, gpu, job->newest[relay]))
		join_both(job, relay);
}

/* What was not queued is told, and why. */
static void settle(struct glk_job *job)
{
	glk_job_lose(job, job->begin, job->end - job->begin);
	for (unsigned i = 0; i < job->returns; i++)
		glk_job_lose(job, job->returned[i].offset, job->returned[i].bytes);
	if (job->unsure) {
		job->copy->err = job->copy->err ? job->copy->err : -EIO;
		job->copy->lost_count = 0;
		glk_job_lose(job, 0, job->copy->bytes);
	}
	if (!job->copy->lost_count)
		job->copy->err = 0;
}

/* The program's stream behind all paths. */
static void finish(struct glk_job *job)
{
	struct glk_io *io = job->io;
	struct glk_io_gpu *t = &io->gpu[job->target];
	struct glk_drv *drv = io->drv;

	for (unsigned i = 1; i < job->count; i++) {
		finish_relay(job, job->relay[i]);
		glk_io_give_way(io);
	}
	job->copy->paths += job->went;
	if (job->went && !glk_stage_event(io, job->target, &t->own[job->turn]) &&
		!drv->ops->event_record(drv, t->own[job->turn], job->copy->stream))
		t->busy[job->turn] = true;
	settle(job);
	io->copies++;
	io->bytes += job->copy->bytes;
}

static void add_relays(struct glk_job *job)
{
	struct glk_io *io = job->io;
	int err;

	for (int relay = 0; relay < io->gpus; relay++) {
		struct glk_io_gpu *g = &io->gpu[relay];

		/* the first copy over a link measures it */
		glk_io_give_way(io);
		if (!(io->lend >> relay & 1) || relay == job->target || g->off ||
			(job->copy->is_known && !(job->copy->relays >> relay & 1)))
			continue;
		if (!glk_link_borrow(io, relay, job->turn))
			continue;
		err = glk_stage_ready(io, relay, job->target, job->turn);
		/* where there is no room, or no way between the two, there is no path */
		if (err && err != -ENOMEM && err != -EOPNOTSUPP)
			put_off(job, relay);
		if (err) {
			glk_link_rest(io, relay, job->turn);
			continue;
		}
		if (!glk_link_measure(io, relay, job->target)) {
			put_off(job, relay);
			continue;
		}
		job->relay[job->count] = relay;
		glk_link_relay(
			io, relay, job->target, job->turn, &job->path[job->count++]);
	}
}

/* Others may be queued meanwhile, which have one of their own: the next copy has it again. */
static void end_start(struct glk_job *job)
{
	struct glk_drv_event **kept = &job->io->gpu[job->target].start;
	struct glk_drv *drv = job->io->drv;

	if (!*kept) {
		*kept = job->start;
		return;
	}
	/* nobody could end it later, so it is asked for twice */
	if (drv->ops->event_free(drv, job->start))
		drv->ops->event_free(drv, job->start);
}

static bool start(struct glk_job *job)
{
	struct glk_drv_event **kept = &job->io->gpu[job->target].start;
	struct glk_drv *drv = job->io->drv;

	job->start = *kept;
	*kept = NULL;
	if (glk_stage_event(job->io, job->target, &job->start))
		return false;
	if (!drv->ops->event_record(drv, job->start, job->copy->stream))
		return true;
	end_start(job);
	return false;
}

bool glk_job_run(struct glk_job *job)
{
	struct glk_io *io = job->io;
	struct glk_io_copy *copy = job->copy;

	io->since = glk_clock_ns();
	glk_link_learn(io);
	glk_link_use(io, job->target);
	glk_link_direct(io, job->target, job->turn, &job->path[0]);
	job->count = 1;
	add_relays(job);
	job->back = copy->count;
	job->back_at = copy->ranges[copy->count - 1].bytes;
	job->end = copy->bytes;
	if (job->count == 1)
		return false;
	if (!start(job))
		return false;
	job->now = (double)glk_clock_ns();
	glk_link_settle(io, job->now);
	spread(job);
	finish(job);
	end_start(job);
	return true;
}
