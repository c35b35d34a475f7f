/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pieces are given out to paths, and what has arrived is noted: see feed.h. */
#include "tier/io/feed.h"

#include "driver/driver.h"
#include "tier/io/link.h"

#include <errno.h>

/* So many times as long as it should take, and some time more, is a stall. */
#define STALL_TIMES 8
#define STALL_NS    2e6
/* Questions that may be refused before they are given up. */
#define ASKS 8
/* What numbers are equal. */
#define NEAR (1 + 1e-9)

static uint64_t left_of(const struct glk_feed *f)
{
	uint64_t left = f->job.end - f->job.begin;

	for (unsigned i = 0; i < f->job.returns; i++)
		left += f->job.returned[i].bytes;
	return left;
}

static bool is_off(const struct glk_feed *f, unsigned at)
{
	return f->lane[at].off || (at && f->job.io->gpu[f->job.relay[at]].off);
}

/* ---- When what would have arrived ---- */

struct outlook {
	double rate, left; /* bytes a ns; bytes under way */
};

/* One that is later than it should be is as slow as that. */
static struct outlook look(const struct glk_feed_lane *lane, double now)
{
	struct outlook o = {.rate = lane->rate, .left = (double)lane->flight};
	double head, took = now - lane->since;

	if (!lane->count)
		return o;
	head = (double)lane->piece[lane->first].bytes;
	if (took * o.rate > head)
		o.rate = head / took;
	o.left -= took > 0 ? took * o.rate : 0;
	return o;
}

/* Whether a path has had what its part of a link that others use carries (agree.h), and a piece more. */
static bool is_ahead(const struct glk_feed *f, unsigned at, double now)
{
	const struct glk_job *job = &f->job;
	const struct glk_io_ring *ring = &job->io->gpu[job->relay[at]].ring[job->turn];

	return at && ring->shares && ring->shares < GLK_AGREE_SHARES &&
		ring->share.free > now + (double)glk_job_piece(job) / ring->share.rate;
}

/* Whether a path would bring a piece before the others could bring all that is left, or any of them a
 * piece: at the end a slow one takes none that a fast one would have brought meanwhile. */
static bool is_good(const struct glk_feed *f, unsigned at, double bytes, double now)
{
	struct outlook mine = look(&f->lane[at], now), o;
	double left = (double)left_of(f), rate = 0, best = 0, arrival;

	for (unsigned i = 0; i < f->job.count; i++) {
		if (i == at || is_off(f, i) || f->lane[i].stalls || is_ahead(f, i, now))
			continue;
		o = look(&f->lane[i], now);
		arrival = (o.left + bytes) / o.rate;
		best = rate > 0 && best < arrival ? best : arrival;
		left += o.left;
		rate += o.rate;
	}
	if (rate <= 0)
		return true;
	best = left / rate > best ? left / rate : best;
	return (mine.left + bytes) / mine.rate <= best * NEAR;
}

/* ---- Giving out ---- */

/* The stream on which a piece arrives. */
static struct CUstream_st *last_stream(const struct glk_feed *f, unsigned at)
{
	const struct glk_job *job = &f->job;
	int relay = job->relay[at];

	return at && job->turn == GLK_IO_UP
		? job->io->gpu[relay].ring[job->turn].stream
		: job->io->gpu[job->target].hop[job->turn][relay];
}

/* On its way to arrive, behind what the path has already. */
static void note(
	struct glk_feed *f, unsigned at, const struct glk_copy_piece *piece, double now)
{
	struct glk_feed_lane *lane = &f->lane[at];

	if (!lane->count)
		lane->since = now;
	f->moved = f->flight++ ? f->moved : now;
	lane->piece[(lane->first + lane->count++) % GLK_FEED_WINDOW] = *piece;
	lane->flight += piece->bytes;
	lane->carried = true;
	glk_feed_link(f, at)->flight[f->job.turn]++;
	glk_plan_book(&f->job.path[at], piece->bytes, now);
}

static int send(struct glk_feed *f, unsigned at, const struct glk_copy_piece *piece,
	bool *ret_went)
{
	struct glk_job *job = &f->job;
	struct glk_drv *drv = job->io->drv;
	int err;

	if (at)
		return glk_job_relay(job, job->relay[at], piece, ret_went);
	err = drv->ops->copy(
		drv, piece->dst, piece->src, piece->bytes, last_stream(f, at));
	*ret_went = !err;
	if (!err)
		return 0;
	f->copy.err = err;
	f->lane[at].off = true;
	glk_job_hand_back(job, piece);
	return err;
}

static void give(struct glk_feed *f, unsigned at, uint64_t most, double now)
{
	struct glk_feed_lane *lane = &f->lane[at];
	struct glk_drv *drv = f->job.io->drv;
	unsigned slot = (lane->first + lane->count) % GLK_FEED_WINDOW;
	struct glk_copy_piece piece = glk_job_take(&f->job, !at, most);
	bool went = false;
	int err = send(f, at, &piece, &went);

	/* no such memory: no path will do */
	if (err == -EINVAL && !went)
		f->is_ended = true;
	/* half of it may be queued, and read what the program may free once all has arrived */
	if (!went && at)
		glk_feed_leave(f, at, now);
	if (!went)
		return;
	note(f, at, &piece, now);
	if (!err)
		err = drv->ops->event_record(drv, lane->event[slot], last_stream(f, at));
	if (err)
		glk_feed_give_up(f, at, err, now);
}

/* One piece, if the path has room for one and there is one for it. */
static bool serve(struct glk_feed *f, unsigned at, double now)
{
	const struct glk_feed_lane *lane = &f->lane[at];
	const struct glk_plan_buffer *buffer = f->job.path[at].buffer;
	uint64_t most = glk_job_piece(&f->job), left = left_of(f);
	unsigned room = GLK_FEED_WINDOW;

	if (buffer && buffer->slots < room)
		room = buffer->slots;
	if (f->stage != GLK_FEED_RUNNING || f->is_ended || !left || is_off(f, at) ||
		lane->stalls || lane->count >= room || is_ahead(f, at, now) ||
		glk_feed_link(f, at)->flight[f->job.turn] >= GLK_FEED_WINDOW ||
		glk_guard_gave_up(f->job.io->feeder))
		return false;
	if (!is_good(f, at, (double)(left < most ? left : most), now))
		return false;
	give(f, at, most, now);
	return true;
}

/* ---- What has arrived ---- */

static void arrived(struct glk_feed *f, unsigned at, uint64_t bytes, double now)
{
	struct glk_feed_lane *lane = &f->lane[at];

	if (bytes && now > lane->since)
		lane->rate = (lane->rate + (double)bytes / (now - lane->since)) / 2;
	lane->since = bytes ? now : lane->since;
}

/* By pieces that were queued whole, and may wait for their stream; behind others of the copy only by those that do. */
static bool is_taken(const struct glk_feed *f, unsigned at)
{
	struct glk_io *io = f->job.io;
	struct glk_io_ring *ring = &io->gpu[f->job.relay[at]].ring[f->job.turn];

	if (!at || ring->is_fed || !ring->newest || (f->lane[at].count && !ring->waits))
		return false;
	return glk_link_pass(io, ring) == -EAGAIN;
}

/* Whether any has. */
static bool harvest(struct glk_feed *f, unsigned at, double now)
{
	struct glk_feed_lane *lane = &f->lane[at];
	struct glk_drv *drv = f->job.io->drv;
	uint64_t bytes = 0;
	bool is_late;
	double due;
	int err = 0;

	while (lane->count) {
		err = drv->ops->event_query(drv, lane->event[lane->first]);
		if (err)
			break;
		bytes += lane->piece[lane->first].bytes;
		lane->flight -= lane->piece[lane->first].bytes;
		lane->first = (lane->first + 1) % GLK_FEED_WINDOW;
		lane->count--;
		f->flight--;
		glk_feed_link(f, at)->flight[f->job.turn]--;
	}
	f->copied += bytes;
	f->moved = bytes ? now : f->moved;
	arrived(f, at, bytes, now);
	lane->stalls = is_taken(f, at);
	if (err == -EAGAIN) {
		due = (double)lane->piece[lane->first].bytes / lane->rate;
		is_late = now - lane->since > STALL_TIMES * due + STALL_NS;
		lane->stalled |= is_late;
		lane->stalls |= is_late;
		return bytes;
	}
	if (err)
		glk_feed_give_up(f, at, err, now);
	return bytes || err;
}

static bool started(struct glk_feed *f, double now)
{
	struct glk_drv *drv = f->job.io->drv;
	int err = drv->ops->event_query(drv, f->start);

	if (err == -EAGAIN)
		return false;
	if (!err) {
		f->stage = GLK_FEED_RUNNING;
		f->moved = now;
		for (unsigned i = 0; i < f->job.count; i++)
			f->lane[i].since = now;
		return true;
	}
	if (err == -ENODEV || ++f->refused == ASKS) {
		f->copy.err = err;
		f->is_ended = true;
	}
	return f->is_ended;
}

static bool harvest_all(struct glk_feed *f, double now)
{
	bool moved = false;

	if (f->stage == GLK_FEED_WAITING && !f->is_ended) {
		moved = started(f, now);
		if (!moved)
			return false;
	}
	for (unsigned i = 0; i < f->job.count; i++) {
		moved |= f->lane[i].is_leaving && glk_feed_left(f, i);
		moved |= !f->lane[i].hands_back && harvest(f, i, now);
	}
	return moved;
}

/* ---- The end ---- */

void glk_feed_end_events(struct glk_feed *f)
{
	struct glk_drv *drv = f->job.io->drv;

	for (unsigned i = 0; i < f->job.count; i++) {
		for (unsigned j = 0; j < GLK_FEED_WINDOW; j++) {
			glk_feed_end_event(drv, f->lane[i].event[j]);
			f->lane[i].event[j] = NULL;
		}
		for (unsigned j = 0; j < GLK_FEED_STREAMS; j++) {
			glk_feed_end_event(drv, f->lane[i].left[j]);
			f->lane[i].left[j] = NULL;
		}
	}
}

static bool is_over(const struct glk_feed *f)
{
	bool is_alive = false;

	for (unsigned i = 0; i < f->job.count; i++)
		is_alive |= !is_off(f, i);
	if (f->flight || f->leaving)
		return false;
	if (f->stage == GLK_FEED_WAITING)
		return f->is_ended;
	return f->is_ended || !left_of(f) || !is_alive;
}

/* The stream goes on, whatever has arrived. */
static void write_word(struct glk_feed *f)
{
	struct glk_feeder *feeder = f->job.io->feeder;

	f->goes_on = true;
	/* pairs with: the stream, which reads it in the memory of the host */
	glk_store_release(
		&feeder->words[f->word], glk_load_relaxed(&feeder->value[f->word]));
}

void glk_feed_let_go(struct glk_feed *f)
{
	f->copy.err = -EIO;
	f->job.unsure = f->is_ended = true;
	write_word(f);
}

static void finish(struct glk_feed *f)
{
	if (f->is_cancelled && !f->job.unsure)
		f->copy.err = -ECANCELED;
	glk_job_settle(&f->job);
	glk_feed_end_events(f);
	f->stage = GLK_FEED_DONE;
	write_word(f);
}

/* Over each path of a copy in turn, or over its own link alone. */
static bool serve_all(struct glk_feed *f, bool own, double now)
{
	bool moved = false, again = true;

	while (again) {
		again = false;
		for (unsigned i = own ? 0 : 1; i < (own ? 1 : f->job.count); i++)
			again |= serve(f, i, now);
		moved |= again;
	}
	return moved;
}

/* Pieces are under way, and none has arrived for long. */
static bool is_stuck(const struct glk_feed *f, double now)
{
	int64_t patience = glk_load_relaxed(&f->job.io->feeder->patience);

	return (f->flight || f->leaving) && now - f->moved > (double)patience;
}

/* Ends what is over. What is left to do: see glk_feed_turn. */
static int end_all(struct glk_feed *first, double now, bool *moved)
{
	int busy = 0, stage;

	for (struct glk_feed *f = first; f; f = f->next) {
		if (f->stage != GLK_FEED_DONE && !f->goes_on &&
			(glk_guard_gave_up(f->job.io->feeder) || is_stuck(f, now)))
			glk_feed_let_go(f);
		if (f->stage != GLK_FEED_DONE && is_over(f)) {
			finish(f);
			*moved = true;
		}
		stage = f->stage == GLK_FEED_DONE      ? 0
			: f->stage == GLK_FEED_RUNNING ? 2
						       : 1;
		busy = stage > busy ? stage : busy;
	}
	return busy;
}

int glk_feed_turn(struct glk_io *io)
{
	struct glk_feed *first = io->feeder ? io->feeder->first : NULL;
	bool moved = first;
	int busy = 0;
	double now;

	if (first)
		glk_guard_enter(io->feeder);
	while (moved) {
		moved = false;
		now = glk_io_now(io);
		for (struct glk_feed *f = first; f; f = f->next)
			moved |= f->stage != GLK_FEED_DONE && harvest_all(f, now);
		for (int own = 1; own >= 0; own--)
			for (struct glk_feed *f = first; f; f = f->next)
				moved |= serve_all(f, own, now);
		busy = end_all(first, now, &moved);
	}
	if (first && glk_guard_leave(io->feeder, busy)) {
		for (struct glk_feed *f = first; f; f = f->next)
			if (f->stage != GLK_FEED_DONE && !f->goes_on)
				glk_feed_let_go(f);
	}
	return busy;
}
