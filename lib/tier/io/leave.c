/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A path that takes part in a copy no more. Its streams may have some of the copy yet, behind pieces of others that
 * stand for as long as a program's stream does: waiting for that would hold up all who need the lock. So an event
 * is put behind what each stream has, and each turn asks for it. Until then the pieces count as under way and are
 * nobody else's, and the copy does not end.
 */
#include "tier/io/feed.h"

#include "driver/driver.h"
#include "tier/io/stage.h"

#include <errno.h>

/* Questions that may be refused: what is under way may write to what is somebody else's otherwise. */
#define ASKS 8

void glk_feed_leave(struct glk_feed *f, unsigned at, double now)
{
	struct glk_feed_lane *lane = &f->lane[at];

	if (!f->flight && !f->leaving)
		f->moved = now;
	if (!lane->is_leaving) {
		f->leaving++;
		lane->refused = 0;
	}
	lane->is_leaving = true;
	/* a path to the GPU itself has one stream */
	for (unsigned i = 0; i < GLK_FEED_STREAMS; i++) {
		lane->is_behind[i] = false;
		lane->is_idle[i] = i && !at;
	}
}

void glk_feed_give_up(struct glk_feed *f, unsigned at, int err, double now)
{
	f->copy.err = err;
	f->lane[at].off = true;
	f->lane[at].hands_back = true;
	f->lane[at].stalls = false;
	if (at)
		glk_job_put_off(&f->job, f->job.relay[at]);
	glk_feed_leave(f, at, now);
}

/* 0: what one of the streams had has passed; -EAGAIN: not yet; or the driver's error. */
static int ask(struct glk_feed *f, unsigned at, unsigned which)
{
	struct glk_feed_lane *lane = &f->lane[at];
	struct glk_drv *drv = f->job.io->drv;
	struct CUstream_st *stream;
	int gpu, err = 0;

	stream = glk_job_stream(&f->job, f->job.relay[at], which, &gpu);
	if (!lane->is_behind[which]) {
		err = glk_stage_event(f->job.io, gpu, &lane->left[which]);
		if (!err)
			err = drv->ops->event_record(drv, lane->left[which], stream);
		lane->is_behind[which] = !err;
	}
	if (!err)
		err = drv->ops->event_query(drv, lane->left[which]);
	lane->is_idle[which] = !err;
	return err;
}

static void hand_back(struct glk_feed *f, unsigned at, bool is_idle)
{
	struct glk_feed_lane *lane = &f->lane[at];
	struct glk_job *job = &f->job;

	for (; lane->count; lane->count--) {
		const struct glk_copy_piece *piece = &lane->piece[lane->first];

		if (is_idle)
			glk_job_hand_back(job, piece);
		if (at) {
			f->copy.relayed -= piece->bytes;
			glk_feed_link(f, at)->relayed -= piece->bytes;
		}
		glk_feed_link(f, at)->flight[job->turn]--;
		f->flight--;
		lane->first = (lane->first + 1) % GLK_FEED_WINDOW;
	}
	lane->flight = 0;
}

bool glk_feed_left(struct glk_feed *f, unsigned at)
{
	struct glk_feed_lane *lane = &f->lane[at];
	bool is_idle = true, is_lost = false;
	int err;

	for (unsigned i = 0; i < GLK_FEED_STREAMS; i++) {
		err = lane->is_idle[i] ? 0 : ask(f, at, i);
		is_idle &= !err;
		if (err && err != -EAGAIN)
			is_lost |= err == -ENODEV || ++lane->refused == ASKS;
	}
	if (!is_idle && !is_lost)
		return false;
	if (lane->hands_back)
		hand_back(f, at, is_idle);
	f->job.unsure |= !is_idle;
	f->is_ended |= !is_idle;
	lane->is_leaving = lane->hands_back = false;
	f->leaving--;
	return true;
}
