/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* All calls by which blocks move, or that say what may move. */
#include "stress/mover/mover.h"

#include "tap.h"

#include <errno.h>

static struct CUstream_st *any_lane(struct world *w, int *ret_lane)
{
	*ret_lane = (int)below(w, LANES);
	return w->lane[*ret_lane];
}

/* Small blocks do not move, and managed memory knows no advice. */
#define ODD -EINVAL

static void keep_ticket(struct world *w, struct glake_ticket *ticket)
{
	struct glake_ticket **place = &w->ticket[below(w, TICKETS)];

	glake_ticket_close(*place);
	*place = ticket;
}

struct range {
	size_t offset, bytes;
};

static struct range any_range(struct world *w, const struct block *b)
{
	struct range r = {.offset = chance(w, 40) ? 0 : below(w, b->size)};

	r.bytes = chance(w, 40) ? b->size - r.offset : 1 + below(w, b->size - r.offset);
	return r;
}

static void spill(struct world *w, struct block *b)
{
	struct glake_ticket *ticket = NULL;
	bool with = chance(w, 30), here = asked(w, b).away < b->size;
	struct CUstream_st *stream;
	int lane, err;

	stream = any_lane(w, &lane);
	if (chance(w, 40)) {
		struct range r = any_range(w, b);

		strike(w, "glake_spill_range");
		err = glake_spill_range(
			w->ctx, b->at, r.offset, r.bytes, stream, with ? &ticket : NULL);
	} else {
		strike(w, "glake_spill");
		err = with ? glake_spill_ticket(w->ctx, b->at, stream, &ticket)
			   : glake_spill(w->ctx, b->at, stream);
	}
	/* the GPU is suspended, perhaps in place */
	if (judge(w, err,
		    MAY(-EALREADY, ODD, -EBUSY, -ENOMEM, -EAGAIN,
			    b->managed ? -EOPNOTSUPP : 0)) &&
		!b->managed) {
		if (b->pins || b->advice == GLAKE_ADVICE_PINNED)
			failed(w, "a pinned block went");
		if (!here)
			failed(w, "one that was away went");
		b->away = b->sent = true;
	}
	calm(w);
	if (ticket)
		keep_ticket(w, ticket);
}

static void fetch(struct world *w, struct block *b)
{
	struct glake_ticket *ticket = NULL;
	bool with = chance(w, 30);
	struct glake_block before = asked(w, b);
	struct CUstream_st *stream;
	int lane, err;

	stream = any_lane(w, &lane);
	strike(w, "glake_fetch");
	err = with ? glake_fetch_ticket(w->ctx, b->at, stream, &ticket)
		   : glake_fetch(w->ctx, b->at, stream);
	if (judge(w, err, MAY(-EALREADY, ODD, -EBUSY, -ENOMEM, -EAGAIN))) {
		if (before.dropped)
			b->contents = UNKNOWN;
		b->told |= 1u << lane;
		if (!b->managed)
			b->last = lane;
		b->away = b->sent = false;
	} else if (err == -EALREADY && !b->managed) {
		if (b->sent)
			failed(w, "one that was sent away is said to be here");
		b->away = false;
	}
	/* its advice to be cold ends with both */
	if ((!err || err == -EALREADY) && (b->advice & 3) == GLAKE_ADVICE_COLD)
		b->advice = (int)asked(w, b).advice;
	calm(w);
	if (ticket)
		keep_ticket(w, ticket);
}

/* A part of one that is away. What is here of it is used by nobody before all of it is; until then all
 * of it comes on one stream. */
static void fetch_range(struct world *w, struct block *b)
{
	struct range r = any_range(w, b);
	int err;

	if (asked(w, b).dropped)
		b->contents = UNKNOWN;
	strike(w, "glake_fetch_range");
	err = glake_fetch_range(w->ctx, b->at, r.offset, r.bytes, w->lane[b->last], NULL);
	if (judge(w, err,
		    MAY(-EALREADY, ODD, -EBUSY, -ENOMEM, -EAGAIN,
			    b->managed ? -EOPNOTSUPP : 0))) {
		b->told |= 1u << b->last;
		b->away = b->sent = asked(w, b).away > 0;
	}
	if ((!err || err == -EALREADY) && (b->advice & 3) == GLAKE_ADVICE_COLD)
		b->advice = (int)asked(w, b).advice;
	calm(w);
}

static void advise(struct world *w, struct block *b)
{
	static const int advices[] = {GLAKE_ADVICE_NORMAL, GLAKE_ADVICE_COLD,
		GLAKE_ADVICE_COLD, GLAKE_ADVICE_COLD, GLAKE_ADVICE_PINNED,
		GLAKE_ADVICE_DISCARDABLE, GLAKE_ADVICE_COLD | GLAKE_ADVICE_DISCARDABLE};
	int advice = advices[below(w, sizeof(advices) / sizeof(*advices))];

	if (chance(w, 20)) {
		w->doing = "glake_advise_priority";
		judge(w,
			glake_advise_priority(
				w->ctx, b->at, (int)below(w, GLAKE_PRIORITY_MAX + 1)),
			MAY(ODD, -EBUSY));
		return;
	}
	if (asked(w, b).dropped)
		b->contents = UNKNOWN;
	strike(w, "glake_advise");
	if (judge(w, glake_advise(w->ctx, b->at, advice), MAY(ODD, -EBUSY))) {
		b->advice = advice;
		if (advice & GLAKE_ADVICE_COLD)
			b->away = true;
	}
	calm(w);
}

static void pin(struct world *w, struct block *b)
{
	w->doing = "glake_pin";
	if (b->pins && chance(w, 70)) {
		w->doing = "glake_unpin";
		b->pins -= judge(w, glake_unpin(w->ctx, b->at), NULL);
	} else if (!b->away || chance(w, 10)) {
		b->pins += judge(w, glake_pin(w->ctx, b->at), MAY(-EBUSY));
	}
}

static void prefetch(struct world *w, struct block *b)
{
	struct glake_ticket *ticket = NULL;
	struct CUstream_st *stream;
	int lane;

	stream = any_lane(w, &lane);
	strike(w, "glake_prefetch");
	if (judge(w,
		    glake_prefetch(w->ctx, b->at, stream, chance(w, 80) ? 0 : 1,
			    (int)below(w, 3), chance(w, 50) ? &ticket : NULL),
		    MAY(-EALREADY, -EAGAIN, ODD, -ENOMEM)) &&
		!b->managed) {
		/* it may come by itself from now on */
		b->away = true;
		b->sent = false;
	}
	calm(w);
	if (ticket)
		keep_ticket(w, ticket);
}

static void tickets(struct world *w)
{
	struct glake_ticket *ticket = w->ticket[below(w, TICKETS)];
	struct glake_ticket_info info = {.sz = sizeof(info)};

	if (!ticket)
		return;
	strike(w, "tickets");
	switch (below(w, 3)) {
	case 0:
		judge(w, glake_ticket_get(ticket, &info), NULL);
		break;
	case 1:
		judge(w, glake_ticket_wait(ticket, 0), MAY(-ETIMEDOUT, -ECANCELED, -EIO));
		break;
	default:
		judge(w, glake_ticket_cancel(ticket), MAY(-EBUSY));
		break;
	}
	calm(w);
}

static void quiet(struct world *w)
{
	struct glake_returned done = {.sz = sizeof(done)};

	strike(w, "glake_quiet");
	judge(w, glake_quiet(w->ctx, 0, &done), w->suspended ? MAY(-EAGAIN) : NULL);
	calm(w);
}

void turn_move(struct world *w)
{
	struct block *b = &w->block[below(w, BLOCKS)];
	uint64_t what = below(w, 20);

	if (what >= 17) {
		if (what == 17)
			quiet(w);
		else
			tickets(w);
		return;
	}
	if (!b->at)
		return;
	if (what < 5)
		spill(w, b);
	else if (what < 7 && b->sent)
		fetch_range(w, b);
	else if (what < 10)
		fetch(w, b);
	else if (what < 13)
		advise(w, b);
	else if (what < 15)
		prefetch(w, b);
	else
		pin(w, b);
}

/* What comes back of those that were dropped is nothing that was written. */
static void note_dropped(struct world *w, int tag)
{
	for (int i = 0; i < BLOCKS; i++) {
		struct block *b = &w->block[i];
		bool by_tag = b->at && b->tag >= 0 && w->tag_dropped[b->tag];

		if (!b->at || b->managed || !asked(w, b).dropped)
			continue;
		if (!(b->advice & GLAKE_ADVICE_DISCARDABLE) && !by_tag &&
			b->contents != UNKNOWN)
			failed(w, "block %d was dropped, advice %d", i, b->advice);
		b->contents = UNKNOWN;
	}
}

static void tag_turn(struct world *w)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_tag told = {.sz = sizeof(told)};
	int tag = (int)below(w, TAGS);
	bool drop = chance(w, 15);
	int err;

	if (!w->tag_suspended[tag] || chance(w, 10)) {
		if (drop)
			w->tag_dropped[tag] = true;
		strike(w, "glake_tag_suspend");
		err = glake_tag_suspend(
			w->ctx, 0, w->tag[tag], drop ? GLAKE_TAG_DROP : 0, &did);
		judge(w, err, w->suspended ? MAY(-EAGAIN) : MAY(-ENOMEM));
		calm(w);
		/* what failed at the very beginning has changed nothing */
		judge(w, glake_tag_get(w->ctx, 0, w->tag[tag], &told), NULL);
		if (!err && !told.suspended)
			failed(w, "the tag is not suspended");
		w->tag_suspended[tag] = told.suspended;
	} else {
		note_dropped(w, tag);
		strike(w, "glake_tag_resume");
		if (judge(w, glake_tag_resume(w->ctx, 0, w->tag[tag], &did),
			    w->suspended ? MAY(-EAGAIN, -ENOMEM) : MAY(-ENOMEM)))
			w->tag_suspended[tag] = w->tag_dropped[tag] = false;
		calm(w);
	}
	note_dropped(w, tag);
}

static void suspend(struct world *w)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	bool in_place = chance(w, 50);
	int err;

	strike(w, in_place ? "glake_suspend_in_place" : "glake_suspend");
	err = in_place ? glake_suspend_in_place(w->ctx, 0, &did)
		       : glake_suspend(w->ctx, 0, &did);
	judge(w, err, MAY(-ENOMEM));
	calm(w);
	w->perhaps = err && (!w->suspended || w->perhaps);
	w->suspended = true;
	note_dropped(w, -1);
}

static void resume(struct world *w)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	bool lazy = chance(w, 50);
	int err;

	note_dropped(w, -1);
	strike(w, lazy ? "glake_resume_lazy" : "glake_resume");
	err = lazy ? glake_resume_lazy(w->ctx, 0, &did) : glake_resume(w->ctx, 0, &did);
	if (judge(w, err, w->perhaps ? MAY(-ENOMEM, -EINVAL) : MAY(-ENOMEM)) ||
		err == -EINVAL)
		w->suspended = w->perhaps = false;
	calm(w);
}

/* The GPU that lends has no blocks of its own. */
static void lender_turn(struct world *w)
{
	struct glake_suspended did = {.sz = sizeof(did)};

	struct glake_stats s = {.sz = sizeof(s)};
	int err;

	w->doing = "the lender";
	if (glake_resume(w->ctx, 1, &did) != -EINVAL)
		return;
	strike(w, "the lender");
	err = glake_suspend(w->ctx, 1, &did);
	judge(w, err, NULL);
	calm(w);
	judge(w, glake_stats_get(w->ctx, 0, &s), NULL);
	if (!err && s.borrowed != did.stayed)
		failed(w, "%llu bytes stay with the lender, which tells of %llu",
			(unsigned long long)s.borrowed, (unsigned long long)did.stayed);
}

void turn_suspend(struct world *w)
{
	uint64_t what = below(w, 10);

	if (what < 5)
		tag_turn(w);
	else if (what == 5 && w->peer)
		lender_turn(w);
	else if (w->suspended && chance(w, 70))
		resume(w);
	else if (chance(w, 50))
		suspend(w);
}

/* Blocks are freed until what is suspended comes back. */
static void make_room(struct world *w)
{
	for (int i = 0; i < BLOCKS; i++) {
		struct block *b = &w->block[i];

		if (!b->at)
			continue;
		judge(w, glake_free(w->ctx, b->at, NULL), NULL);
		b->at = NULL;
		return;
	}
	failed(w, "nothing is left, and there is no room");
}

void end_suspensions(struct world *w)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	int err;

	w->doing = "the last resumption";
	note_dropped(w, -1);
	while (w->suspended && !w->wrong) {
		err = glake_resume(w->ctx, 0, &did);
		w->suspended = err == -ENOMEM;
		judge(w, err, w->perhaps ? MAY(-ENOMEM, -EINVAL) : MAY(-ENOMEM));
		if (w->suspended)
			make_room(w);
	}
	for (int i = 0; i < TAGS; i++) {
		note_dropped(w, i);
		while (w->tag_suspended[i] && !w->wrong) {
			err = glake_tag_resume(w->ctx, 0, w->tag[i], &did);
			w->tag_suspended[i] = err == -ENOMEM;
			judge(w, err, MAY(-ENOMEM));
			if (w->tag_suspended[i])
				make_room(w);
		}
	}
}
