/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Copies that go over several paths, and how the others go: see io.h. A copy is cut into pieces. The direct path takes
 * them from the front, the others take them from the back. What a path is refused is handed back and taken by the
 * next.
 *
 * Where the memory of the host is known to lie on several NUMA nodes, each path takes what lies on the node of its
 * link, and other pieces when nothing is left of that: those go over the link between the nodes besides, so they
 * are for paths over which they arrive sooner all the same.
 *
 * A piece is as large as calls are cheap beside it, and no larger: a path has nothing to do until its first piece has
 * been queued, and the last one of each path is waited for alone. So a large copy has PIECES of them for each path, of
 * io.piece at most; where these would be smaller than BOUND it has fewer, but FEWEST; and none is smaller than LEAST,
 * where calls are what it waits for. One GPU over four paths, H200, three relays that it fetches from, GB/s at 16, 64,
 * 256 MiB and 1 GiB, where one path has 55: down 111, 136, 144, 158 with pieces of 2 MiB; 110, 138, 155, 148 of 4; -,
 * 124, 155, 163 of 8; up 133, 144, 126, 136; 120, 142, 137, 139; -, 136, 127, 134. A call took 1.4 us there, and 2.4 on
 * another host. Smaller ones towards the end of each copy brought nothing.
 *
 * A piece with a relay is four calls. Only where its slot will be needed again before the copy ends, an event tells when
 * that is empty; else one behind the last piece tells it of all of them.
 */
#include "tier/io/io.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "driver/driver.h"
#include "map/map.h"
#include "tier/io/link.h"
#include "tier/io/stage.h"

#include <errno.h>

#define PIECES 16
#define FEWEST 2
#define LEAST  ((uint64_t)2 << 20)
#define BOUND  ((uint64_t)4 << 20)
#define PAGE   ((uint64_t)4 << 10)
/* Times that a stream is waited for: what it may be writing to is somebody else's otherwise. */
#define SYNCS 8
/* Ranges that are smaller than such a part of a piece, on average, are for one path. */
#define SMALL_RANGE 32

struct piece {
	uint64_t dst, src, bytes;
	uint64_t offset; /* in the whole copy */
	int node;	 /* of the memory of the host; -1: not known */
};

/* What nobody took yet of ranges in a row whose memory of the host lies on one node. */
struct stock {
	int node;
	size_t front, back; /* ranges in which it begins and ends; back is one behind */
	uint64_t front_at,
		back_at;     /* bytes of the first one taken, and of the last one left */
	uint64_t begin, end; /* in the whole copy */
};

/* One copy while it is queued. */
struct transfer {
	struct glk_io *io;
	struct glk_io_copy *copy;
	int target, turn;
	struct stock stock[GLK_IO_STOCKS];
	unsigned stocks;
	uint64_t left;	       /* bytes of them all */
	struct piece returned; /* taken again before any other is; of no bytes: none */
	struct glk_plan_path path[GLK_IO_GPUS + 1]; /* the first of them is direct */
	int relay[GLK_IO_GPUS + 1];
	unsigned count;
	uint64_t
		apart; /* paths, from the lowest bit on, that take what lies on other nodes alone */
	uint64_t used;		     /* relays that carry a piece of it, a bit each */
	uint64_t owed;		     /* and that the program's stream is not behind yet */
	uint64_t most;		     /* bytes of a piece */
	uint64_t begun;		     /* and whose first stream waits for the start */
	struct glk_drv_event *start; /* behind what its stream had to do before */
	bool unsure;		     /* what is under way cannot be waited for */
	bool went;		     /* a direct piece was queued */
	double now;
};

/* ---- Ranges are cut ---- */

/* Of a range from a place on, at a place of the whole copy. */
static struct piece piece_of(
	const struct transfer *tr, const struct stock *s, size_t range, uint64_t at)
{
	const struct glake_copy_range *r = &tr->copy->ranges[range];

	return (struct piece){.dst = (uintptr_t)r->dst + at,
		.src = (uintptr_t)r->src + at,
		.node = s->node};
}

static void skip_empty(const struct transfer *tr, struct stock *s)
{
	const struct glake_copy_range *r = tr->copy->ranges;

	while (s->front < s->back && s->front_at == r[s->front].bytes) {
		s->front++;
		s->front_at = 0;
	}
	while (s->front < s->back && !s->back_at) {
		s->back--;
		s->back_at = s->front < s->back ? r[s->back - 1].bytes : 0;
	}
}

/* How much of the range at the front or the back is left. */
static uint64_t left_there(const struct transfer *tr, const struct stock *s, bool front)
{
	if (s->back - s->front == 1)
		return s->back_at - s->front_at;
	return front ? tr->copy->ranges[s->front].bytes - s->front_at : s->back_at;
}

static struct piece take_front(const struct transfer *tr, struct stock *s, uint64_t most)
{
	uint64_t left = left_there(tr, s, true);
	struct piece piece = piece_of(tr, s, s->front, s->front_at);

	piece.bytes = left < most ? left : most;
	piece.offset = s->begin;
	s->front_at += piece.bytes;
	s->begin += piece.bytes;
	return piece;
}

static struct piece take_back(const struct transfer *tr, struct stock *s, uint64_t most)
{
	uint64_t left = left_there(tr, s, false),
		 bytes = left % most ? left % most : most;
	struct piece piece;

	s->back_at -= bytes;
	s->end -= bytes;
	piece = piece_of(tr, s, s->back - 1, s->back_at);
	piece.bytes = bytes;
	piece.offset = s->end;
	return piece;
}

/* NUMA node of the host at the link of a path. */
static int node_of(const struct transfer *tr, unsigned path)
{
	return glk_io_node(tr->io, path ? tr->relay[path] : tr->target);
}

/* Something is left of a stock of a node. */
static bool has_left(const struct transfer *tr, int node)
{
	for (unsigned i = 0; i < tr->stocks; i++) {
		if (tr->stock[i].node == node && tr->stock[i].end > tr->stock[i].begin)
			return true;
	}
	return false;
}

/* Paths whose own node has nothing left go over the link between nodes from here on. */
static void part(struct transfer *tr)
{
	for (unsigned i = 0; i < tr->count; i++) {
		struct glk_plan_link **hop =
			tr->path[i].hop[i && tr->turn == GLK_IO_UP ? 1 : 0];
		unsigned lane = 0;

		if (tr->apart >> i & 1 || has_left(tr, node_of(tr, i)))
			continue;
		tr->apart |= UINT64_C(1) << i;
		while (hop[lane])
			lane++;
		hop[lane] = &tr->io->across[tr->turn];
	}
}

/* The one of a path's node; else the one of which most is left. */
static struct stock *stock_for(struct transfer *tr, unsigned path)
{
	struct stock *most = &tr->stock[0];

	for (unsigned i = 0; i < tr->stocks; i++) {
		struct stock *s = &tr->stock[i];
		bool own = !(tr->apart >> path & 1) && s->node == node_of(tr, path);

		if (own && s->end > s->begin)
			return s;
		if (s->end - s->begin > most->end - most->begin)
			most = s;
	}
	return most;
}

/* A piece of what is left for a path, at most `most` bytes, from the front for the direct one and from the back for
 * others. There has to be something left. */
static struct piece take(struct transfer *tr, unsigned path, uint64_t most)
{
	struct piece piece = tr->returned;
	struct stock *s;

	tr->returned.bytes = 0;
	if (piece.bytes)
		return piece;
	s = tr->stocks > 1 ? stock_for(tr, path) : &tr->stock[0];
	skip_empty(tr, s);
	piece = path ? take_back(tr, s, most) : take_front(tr, s, most);
	tr->left -= piece.bytes;
	if (s->begin == s->end && tr->copy->stocks)
		part(tr);
	return piece;
}

/* ---- Pieces are queued ---- */

/* The program's stream goes on behind an event of a GPU. A default stream is taken for that of the
 * event's GPU, so there it has to be an event of its own, of the stream that works for this relay. */
static int go_behind(struct transfer *tr, int relay, int gpu, struct glk_drv_event *event)
{
	struct glk_io_gpu *t = &tr->io->gpu[tr->target];
	struct CUstream_st *own = t->hop[tr->turn][relay];
	struct glk_drv *drv = tr->io->drv;
	int err = 0;

	if (gpu != tr->target && glk_stream_is_default(tr->copy->stream)) {
		if (!own || !t->mark)
			return -EAGAIN;
		err = drv->ops->stream_wait(drv, own, event);
		if (!err)
			err = drv->ops->event_record(drv, t->mark, own);
		event = t->mark;
	}
	return err ? err : drv->ops->stream_wait(drv, tr->copy->stream, event);
}

static int wait_idle(struct transfer *tr, int gpu, struct CUstream_st *stream)
{
	struct glk_drv *drv = tr->io->drv;
	int err = -EIO;

	for (int i = 0; i < SYNCS && err && err != -ENODEV; i++)
		err = drv->ops->stream_sync(drv, gpu, stream);
	return err;
}

/* Behind all that is queued on another stream, by an event or by waiting here. */
static void join(struct transfer *tr, int relay, int gpu, struct CUstream_st *stream)
{
	struct glk_drv *drv = tr->io->drv;
	struct glk_drv_event *mark = tr->io->gpu[gpu].mark;

	if (!stream)
		return;
	if (mark && !drv->ops->event_record(drv, mark, stream) &&
		!go_behind(tr, relay, gpu, mark))
		return;
	/* others need not wait for it: it may have to pass what stands for long */
	glk_io_pause(tr->io);
	tr->unsure |= wait_idle(tr, gpu, stream) != 0;
	glk_io_resume(tr->io);
}

/* The first and the second stream of a piece, and whose they are. */
static struct CUstream_st *streams_of(
	const struct transfer *tr, int relay, bool second, int *ret_gpu)
{
	struct glk_io *io = tr->io;
	bool own = (tr->turn == GLK_IO_DOWN) != second;

	*ret_gpu = own ? relay : tr->target;
	return own ? io->gpu[relay].ring[tr->turn].stream
		   : io->gpu[tr->target].hop[tr->turn][relay];
}

static void join_both(struct transfer *tr, int relay)
{
	struct CUstream_st *stream;
	int gpu;

	tr->owed &= ~(UINT64_C(1) << relay);
	for (int second = 0; second < 2; second++) {
		stream = streams_of(tr, relay, second, &gpu);
		join(tr, relay, gpu, stream);
	}
}

/* A relay that the driver refused something takes no further part in anything. */
static void put_off(struct transfer *tr, int relay)
{
	struct glk_io_gpu *g = &tr->io->gpu[relay];
	struct glake_error why = {.sz = sizeof(why)};

	glake_last_error(&why);
	if (!g->off)
		glk_warn("GPU %d lends its link no more: %s", relay, why.text);
	g->off = true;
	g->ring[tr->turn].buffer.off = true;
	g->ring[tr->turn].unmarked = 0;
}

/* All slots that were used since the last event are empty behind one; *ret_event, if that is wanted. */
static int mark_slots(
	struct glk_io *io, int relay, int turn, struct glk_drv_event **ret_event)
{
	struct glk_io_ring *ring = &io->gpu[relay].ring[turn];
	unsigned slots = ring->buffer.slots,
		 last = (ring->buffer.next + slots - 1) % slots;
	int emptier = turn == GLK_IO_DOWN ? ring->target : relay, err;
	struct glk_drv_event *event = ring->slot[last].by[emptier];

	err = io->drv->ops->event_record(io->drv, event,
		turn == GLK_IO_DOWN ? io->gpu[emptier].hop[turn][relay] : ring->stream);
	if (err)
		return err;
	for (; ring->unmarked; ring->unmarked--, last = (last + slots - 1) % slots)
		ring->slot[last].last = event;
	if (ret_event)
		*ret_event = event;
	return 0;
}

/* What was queued of a piece whose call fails writes to its slot alone. */
static int relay_piece(
	struct transfer *tr, int relay, const struct piece *piece, bool *ret_went)
{
	struct glk_io_ring *ring = &tr->io->gpu[relay].ring[tr->turn];
	struct glk_io_slot *slot = &ring->slot[ring->buffer.next];
	uint64_t at = ring->base + ring->buffer.next * ring->size;
	const struct glk_drv_ops *ops = tr->io->drv->ops;
	struct glk_drv *drv = tr->io->drv;
	struct CUstream_st *first, *second;
	struct glk_drv_event *mark;
	int filler, emptier, err = 0;

	first = streams_of(tr, relay, false, &filler);
	second = streams_of(tr, relay, true, &emptier);
	mark = tr->io->gpu[filler].mark;
	/* the slots of others, and this one where all are in use */
	if (ring->unmarked == ring->buffer.slots ||
		(ring->unmarked && ring->target != tr->target))
		err = mark_slots(tr->io, relay, tr->turn, NULL);
	/* behind what the program had queued */
	if (!err && !(tr->begun >> relay & 1)) {
		err = ops->stream_wait(drv, first, tr->start);
		tr->begun |= (uint64_t)!err << relay;
	}
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
	if (err)
		return err;
	ring->target = tr->target;
	ring->unmarked++;
	return 0;
}

/* A slot of which only the first hop was queued is filled again behind that. 0 or the driver's error. */
static int leave_slot(struct transfer *tr, int relay)
{
	struct glk_io_ring *ring = &tr->io->gpu[relay].ring[tr->turn];
	struct glk_io_slot *slot = &ring->slot[ring->buffer.next];
	const struct glk_drv_ops *ops = tr->io->drv->ops;
	struct CUstream_st *first, *second;
	struct glk_drv *drv = tr->io->drv;
	int filler, emptier, err;

	first = streams_of(tr, relay, false, &filler);
	second = streams_of(tr, relay, true, &emptier);
	err = ring->unmarked ? mark_slots(tr->io, relay, tr->turn, NULL) : 0;
	if (!err)
		err = ops->event_record(drv, tr->io->gpu[filler].mark, first);
	if (!err)
		err = ops->stream_wait(drv, second, tr->io->gpu[filler].mark);
	if (!err)
		err = ops->event_record(drv, slot->by[emptier], second);
	if (err)
		return err;
	slot->last = slot->by[emptier];
	return 0;
}

/* A piece over a path with a relay. 0; or the driver's error: it was handed back, or is on its way. */
static int send(struct transfer *tr, int relay, const struct piece *piece)
{
	bool went = false;
	int err = relay_piece(tr, relay, piece, &went);

	if (went) {
		tr->used |= UINT64_C(1) << relay;
		tr->owed |= UINT64_C(1) << relay;
		tr->copy->relayed += piece->bytes;
		tr->io->gpu[relay].relayed += piece->bytes;
	} else {
		tr->returned = *piece;
	}
	if (!err)
		return 0;
	tr->copy->err = err;
	/* memory that the driver does not know is no fault of the path */
	if (err != -EINVAL || went || leave_slot(tr, relay))
		put_off(tr, relay);
	join_both(tr, relay);
	return err;
}

static void empty_slots(struct transfer *tr, int relay, struct glk_drv_event **ret_event)
{
	int err = mark_slots(tr->io, relay, tr->turn, ret_event);

	if (!err)
		return;
	tr->copy->err = err;
	put_off(tr, relay);
	join_both(tr, relay);
}

static int send_direct(struct transfer *tr, const struct piece *piece)
{
	struct glk_drv *drv = tr->io->drv;
	int err;

	err = drv->ops->copy(drv, piece->dst, piece->src, piece->bytes, tr->copy->stream);
	tr->went |= !err;
	if (!err)
		return 0;
	tr->copy->err = err;
	tr->path[0].off = true;
	tr->returned = *piece;
	return err;
}

/* What a copy is cut into: it fits a slot of every path. */
static uint64_t piece_most(const struct transfer *tr)
{
	uint64_t part = tr->copy->bytes / tr->count, most = part / FEWEST, many;

	/* others are on their way beside it: calls are what it has to be careful with. Of 16 GiB that were sent by 64 MiB
	 * over four paths the calls took longer than a half of the copies, on a thread that gives pages back besides */
	many = part / (tr->copy->behind ? 1 : PIECES);
	most = most < BOUND ? most : BOUND;
	most = most > many ? most : many;
	/* what is aligned stays so */
	most = most > LEAST ? most / PAGE * PAGE : LEAST;
	most = most < tr->io->piece ? most : tr->io->piece;

	for (unsigned i = 1; i < tr->count; i++) {
		uint64_t slot = tr->io->gpu[tr->relay[i]].ring[tr->turn].size;

		most = slot < most ? slot : most;
	}
	return most;
}

/* Until all is queued, no path is left, or there is no such memory. */
static void spread(struct transfer *tr)
{
	struct glk_io_ring *ring;
	uint64_t most, left;
	struct piece piece;
	int at, err = 0;

	tr->most = most = piece_most(tr);
	while (err != -EINVAL) {
		left = tr->returned.bytes ? tr->returned.bytes : tr->left;
		if (!left)
			return;
		at = glk_plan_pick(
			tr->path, tr->count, left < most ? left : most, tr->now);
		if (at < 0)
			break;
		piece = take(tr, (unsigned)at, most);
		err = at ? send(tr, tr->relay[at], &piece) : send_direct(tr, &piece);
		if (!err)
			glk_plan_book(&tr->path[at], piece.bytes, tr->now);
		if (!err && piece.node >= 0 && piece.node != node_of(tr, (unsigned)at))
			tr->io->crossed += piece.bytes;
		ring = &tr->io->gpu[tr->relay[at]].ring[tr->turn];
		/* a slot that was just filled will be again, by what nobody took yet */
		if (!err && at && tr->left / (most * tr->count) >= ring->buffer.slots)
			empty_slots(tr, tr->relay[at], NULL);
		glk_io_give_way(tr->io);
	}
}

static void finish_relay(struct transfer *tr, int relay)
{
	struct glk_io_ring *ring = &tr->io->gpu[relay].ring[tr->turn];
	struct glk_drv_event *event = NULL;
	struct CUstream_st *second;
	int gpu;

	if (!(tr->used >> relay & 1)) {
		glk_link_rest(tr->io, relay, tr->turn);
		return;
	}
	tr->copy->paths++;
	second = streams_of(tr, relay, true, &gpu);
	if (ring->unmarked && ring->target == tr->target)
		empty_slots(tr, relay, &event);
	if (event && go_behind(tr, relay, gpu, event))
		join_both(tr, relay);
	else if (!event && tr->owed >> relay & 1)
		join(tr, relay, gpu, second);
}

/* A part will not be copied. */
static void lose(struct transfer *tr, uint64_t offset, uint64_t bytes)
{
	struct glk_io_copy *copy = tr->copy;

	if (bytes)
		copy->lost[copy->lost_count++] =
			(struct glake_copy_part){.offset = offset, .bytes = bytes};
}

/* What was not queued is told, and why. */
static void settle(struct transfer *tr)
{
	/* who has several stocks asks for no more than whether all of it went */
	if (tr->stocks == 1)
		lose(tr, tr->stock[0].begin, tr->left);
	else if (tr->left)
		lose(tr, 0, tr->copy->bytes);
	lose(tr, tr->returned.offset, tr->returned.bytes);
	if (tr->unsure) {
		tr->copy->err = tr->copy->err ? tr->copy->err : -EIO;
		tr->copy->lost_count = 0;
		lose(tr, 0, tr->copy->bytes);
	}
	if (!tr->copy->lost_count)
		tr->copy->err = 0;
}

/* The program's stream behind all paths. */
static void finish(struct transfer *tr)
{
	struct glk_io *io = tr->io;
	struct glk_io_gpu *t = &io->gpu[tr->target];
	struct glk_drv *drv = io->drv;

	for (unsigned i = 1; i < tr->count; i++) {
		finish_relay(tr, tr->relay[i]);
		glk_io_give_way(io);
	}
	tr->copy->paths += tr->went;
	if (tr->went && !glk_stage_event(io, tr->target, &t->own[tr->turn]) &&
		!drv->ops->event_record(drv, t->own[tr->turn], tr->copy->stream))
		t->busy[tr->turn] = true;
	settle(tr);
	io->copies++;
}

static void add_relays(struct transfer *tr)
{
	struct glk_io *io = tr->io;
	int err;

	for (int relay = 0; relay < io->gpus; relay++) {
		struct glk_io_gpu *g = &io->gpu[relay];

		/* the first copy over a link measures it */
		glk_io_give_way(io);
		if (!(io->lend >> relay & 1) || relay == tr->target || g->off ||
			(tr->copy->is_known && !(tr->copy->relays >> relay & 1)))
			continue;
		if (!glk_link_borrow(io, relay, tr->turn))
			continue;
		err = glk_stage_ready(io, relay, tr->target, tr->turn);
		/* where there is no room, or no way between the two, there is no path */
		if (err && err != -ENOMEM && err != -EOPNOTSUPP)
			put_off(tr, relay);
		if (err) {
			glk_link_rest(io, relay, tr->turn);
			continue;
		}
		if (!glk_link_measure(io, relay, tr->target)) {
			put_off(tr, relay);
			continue;
		}
		tr->relay[tr->count] = relay;
		glk_link_relay(io, relay, tr->target, tr->turn, &tr->path[tr->count++]);
	}
}

/* Others may be queued meanwhile, which have one of their own: the next copy has it again. */
static void end_start(struct transfer *tr)
{
	struct glk_drv_event **kept = &tr->io->gpu[tr->target].start;
	struct glk_drv *drv = tr->io->drv;

	if (tr->copy->behind)
		return;
	if (!*kept) {
		*kept = tr->start;
		return;
	}
	/* nobody could end it later, so it is asked for twice */
	if (drv->ops->event_free(drv, tr->start))
		drv->ops->event_free(drv, tr->start);
}

static bool start(struct transfer *tr)
{
	struct glk_drv_event **kept = &tr->io->gpu[tr->target].start;
	struct glk_drv *drv = tr->io->drv;

	tr->start = tr->copy->behind;
	if (tr->start)
		return true;
	tr->start = *kept;
	*kept = NULL;
	if (glk_stage_event(tr->io, tr->target, &tr->start))
		return false;
	if (!drv->ops->event_record(drv, tr->start, tr->copy->stream))
		return true;
	end_start(tr);
	return false;
}

/* All ranges, by where their memory of the host lies. */
static void stock_up(struct transfer *tr)
{
	static const struct glk_io_stock all = {.node = -1, .count = SIZE_MAX};
	const struct glk_io_copy *copy = tr->copy;
	const struct glk_io_stock *of = copy->stocks ? copy->stock : &all;
	size_t range = 0;

	tr->stocks = copy->stocks ? copy->stocks : 1;
	for (unsigned i = 0; i < tr->stocks; i++) {
		struct stock *s = &tr->stock[i];

		*s = (struct stock){
			.node = of[i].node, .front = range, .begin = tr->left};
		for (size_t in = 0; in < of[i].count && range < copy->count; in++)
			tr->left += copy->ranges[range++].bytes;
		s->back = range;
		s->back_at = copy->ranges[range - 1].bytes;
		s->end = tr->left;
	}
	if (copy->stocks)
		part(tr);
}

/* Queues it over several paths, if there are. Whether it was; under the lock. */
static bool run(struct transfer *tr)
{
	struct glk_io *io = tr->io;

	io->since = glk_clock_ns();
	glk_link_learn(io);
	glk_link_use(io, tr->target);
	glk_link_direct(io, tr->target, tr->turn, &tr->path[0]);
	tr->count = 1;
	add_relays(tr);
	if (tr->count == 1)
		return false;
	stock_up(tr);
	if (!start(tr))
		return false;
	tr->now = (double)glk_clock_ns();
	glk_link_settle(io, tr->now);
	spread(tr);
	finish(tr);
	end_start(tr);
	return true;
}

/* ---- Which copies ---- */

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
static bool is_one_way(struct transfer *tr)
{
	const struct glake_copy_range *r = tr->copy->ranges;
	bool is_found = false;

	for (size_t i = 0; i < tr->copy->count; i++) {
		int to, from, gpu;

		if (!r[i].bytes)
			continue;
		to = end_of(tr->io, r[i].dst, r[i].bytes);
		from = end_of(tr->io, r[i].src, r[i].bytes);
		gpu = to > from ? to : from;
		if (gpu < 0 || (to > from ? from : to) != -1)
			return false;
		if (is_found &&
			(gpu != tr->target || (to > from) != (tr->turn == GLK_IO_DOWN)))
			return false;
		is_found = true;
		tr->target = gpu;
		tr->turn = to > from ? GLK_IO_DOWN : GLK_IO_UP;
	}
	return is_found;
}

/* What is known of both ends of a copy; false: it is for one path. */
static bool has_ends(struct transfer *tr)
{
	const struct glk_io_copy *copy = tr->copy;

	if (!copy->is_known)
		return is_one_way(tr);
	tr->target = copy->gpu;
	tr->turn = copy->is_up ? GLK_IO_UP : GLK_IO_DOWN;
	return copy->relays;
}

uint64_t glk_io_relays(const struct glk_io *io, int gpu, uint64_t bytes)
{
	return io && bytes >= io->least ? io->lend & ~(UINT64_C(1) << gpu) : 0;
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

/* Whether pieces would be worth their calls. */
static bool is_worth_it(const struct glk_io *io, const struct glk_io_copy *copy)
{
	return io->lend && copy->bytes >= io->least &&
		copy->bytes / copy->count >= io->piece / SMALL_RANGE;
}

/* Whether it was queued over several paths, which need much memory to be thought of. */
static bool over_several(struct glk_io *io, struct glk_io_copy *copy)
{
	struct transfer tr = {.io = io, .copy = copy};
	bool queued;

	if (!has_ends(&tr) || !glk_io_is_stream_of(io, tr.target, copy->stream))
		return false;
	glk_add_seq_cst(&io->queueing, 1);
	glk_io_enter(io);
	queued = run(&tr);
	glk_unlock(&io->lock);
	glk_add_seq_cst(&io->queueing, -1u);
	if (glk_xchg_seq_cst(&io->owed, false))
		glk_io_rest(io);
	return queued;
}

int glk_io_copy(struct glk_io *io, struct glk_io_copy *copy, bool direct)
{
	glk_io_rest(io);
	if (!direct && copy->bytes && is_worth_it(io, copy) && over_several(io, copy))
		return 0;
	return plain(io, copy);
}
