/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* All calls by which blocks move, or that say what may move. */
#include "stress/tide/tide.h"

#include <errno.h>
#include <string.h>

/* Small blocks do not move. */
#define ODD -EINVAL

static struct CUstream_st *any_lane(struct hand *h, const struct block *b, int *ret_lane)
{
	*ret_lane = (int)below(h, LANES);
	return h->lane[b->gpu][*ret_lane];
}

static void keep_ticket(struct hand *h, struct glake_ticket *ticket)
{
	struct glake_ticket **place = &h->ticket[below(h, TICKETS)];

	if (!ticket)
		return;
	glake_ticket_close(*place);
	*place = ticket;
}

static void any_range(
	struct hand *h, const struct block *b, size_t *offset, size_t *bytes)
{
	*offset = chance(h, 40) ? 0 : below(h, b->size);
	*bytes = chance(h, 40) ? b->size - *offset : 1 + below(h, b->size - *offset);
}

static void spill(struct hand *h, struct block *b)
{
	struct glake_ticket *ticket = NULL;
	struct CUstream_st *stream;
	size_t offset, bytes;
	int lane, err;

	stream = any_lane(h, b, &lane);
	if (chance(h, 50)) {
		any_range(h, b, &offset, &bytes);
		h->doing = "glake_spill_range";
		err = glake_spill_range(h->w->ctx, b->at, offset, bytes, stream,
			chance(h, 30) ? &ticket : NULL);
	} else {
		h->doing = "glake_spill";
		err = chance(h, 30)
			? glake_spill_ticket(h->w->ctx, b->at, stream, &ticket)
			: glake_spill(h->w->ctx, b->at, stream);
	}
	keep_ticket(h, ticket);
	if (!judge(h, err, MAY(-EALREADY, ODD, -EBUSY, -ENOMEM, -EAGAIN)))
		return;
	if (b->pins || b->advice == GLAKE_ADVICE_PINNED)
		failed(h, "a pinned block went");
	b->away = b->sent = true;
	b->came = false;
}

static void fetch(struct hand *h, struct block *b)
{
	struct glake_ticket *ticket = NULL;
	struct CUstream_st *stream;
	int lane, err;

	stream = any_lane(h, b, &lane);
	h->doing = "glake_fetch";
	err = chance(h, 30) ? glake_fetch_ticket(h->w->ctx, b->at, stream, &ticket)
			    : glake_fetch(h->w->ctx, b->at, stream);
	keep_ticket(h, ticket);
	if (judge(h, err, MAY(-EALREADY, ODD, -EBUSY, -ENOMEM, -EAGAIN))) {
		b->told |= 1u << lane;
		b->last = lane;
		b->away = b->sent = false;
	} else if (err == -EALREADY) {
		if (b->sent && !b->came)
			failed(h, "one that was sent away is said to be here");
		b->away = false;
	}
	/* its advice to be cold ends with both */
	if ((!err || err == -EALREADY) && (b->advice & 3) == GLAKE_ADVICE_COLD)
		b->advice = (int)asked(h, b).advice;
}

/* A part of one that is away. What is here of it is used by nobody before all of it is; until then all
 * of it comes on one stream. */
static void fetch_range(struct hand *h, struct block *b)
{
	size_t offset, bytes;
	int err;

	any_range(h, b, &offset, &bytes);
	h->doing = "glake_fetch_range";
	err = glake_fetch_range(
		h->w->ctx, b->at, offset, bytes, h->lane[b->gpu][b->last], NULL);
	if (judge(h, err, MAY(-EALREADY, ODD, -EBUSY, -ENOMEM, -EAGAIN))) {
		b->told |= 1u << b->last;
		b->away = b->sent = b->came = asked(h, b).away > 0;
	}
	if ((!err || err == -EALREADY) && (b->advice & 3) == GLAKE_ADVICE_COLD)
		b->advice = (int)asked(h, b).advice;
}

static void advise(struct hand *h, struct block *b)
{
	static const int advices[] = {GLAKE_ADVICE_NORMAL, GLAKE_ADVICE_COLD,
		GLAKE_ADVICE_COLD, GLAKE_ADVICE_COLD, GLAKE_ADVICE_PINNED,
		GLAKE_ADVICE_DISCARDABLE, GLAKE_ADVICE_COLD | GLAKE_ADVICE_DISCARDABLE};
	int advice = advices[below(h, sizeof(advices) / sizeof(*advices))];

	if (chance(h, 20)) {
		h->doing = "glake_advise_priority";
		judge(h,
			glake_advise_priority(
				h->w->ctx, b->at, (int)below(h, GLAKE_PRIORITY_MAX + 1)),
			MAY(ODD, -EBUSY));
		return;
	}
	/* others may suspend at any moment, and what was dropped be back before this thread looks */
	if (advice & GLAKE_ADVICE_DISCARDABLE)
		b->contents = UNKNOWN;
	if (advice & GLAKE_ADVICE_COLD)
		b->away = true;
	h->doing = "glake_advise";
	if (judge(h, glake_advise(h->w->ctx, b->at, advice), MAY(ODD, -EBUSY)))
		b->advice = advice;
}

static void pin(struct hand *h, struct block *b)
{
	if (b->pins && chance(h, 70)) {
		h->doing = "glake_unpin";
		b->pins -= judge(h, glake_unpin(h->w->ctx, b->at), NULL);
	} else if (!b->away || chance(h, 10)) {
		h->doing = "glake_pin";
		b->pins += judge(h, glake_pin(h->w->ctx, b->at), MAY(-EBUSY));
	}
}

static void prefetch(struct hand *h, struct block *b)
{
	struct glake_ticket *ticket = NULL;
	struct CUstream_st *stream;
	int lane, err;

	stream = any_lane(h, b, &lane);
	h->doing = "glake_prefetch";
	err = glake_prefetch(h->w->ctx, b->at, stream, chance(h, 80) ? 0 : 1,
		(int)below(h, 3), chance(h, 50) ? &ticket : NULL);
	keep_ticket(h, ticket);
	if (judge(h, err, MAY(-EALREADY, -EAGAIN, ODD, -ENOMEM))) {
		/* it may come by itself from now on */
		b->away = true;
		b->sent = false;
	}
}

static void tickets(struct hand *h)
{
	struct glake_ticket *ticket = h->ticket[below(h, TICKETS)];
	struct glake_ticket_info info = {.sz = sizeof(info)};

	if (!ticket)
		return;
	h->doing = "tickets";
	switch (below(h, 3)) {
	case 0:
		judge(h, glake_ticket_get(ticket, &info), NULL);
		break;
	case 1:
		judge(h, glake_ticket_wait(ticket, 0), MAY(-ETIMEDOUT, -ECANCELED, -EIO));
		break;
	default:
		judge(h, glake_ticket_cancel(ticket), MAY(-EBUSY));
		break;
	}
}

void deed_move(struct hand *h)
{
	struct block *b = &h->block[below(h, BLOCKS)];
	uint64_t what = below(h, 18);

	h->moves++;
	if (what == 17)
		tickets(h);
	if (!b->at || what == 17)
		return;
	if (what < 5)
		spill(h, b);
	else if (what < 8 && b->sent)
		fetch_range(h, b);
	else if (what < 11)
		fetch(h, b);
	else if (what < 13)
		advise(h, b);
	else if (what < 15)
		prefetch(h, b);
	else
		pin(h, b);
}

static void tag_turn(struct hand *h, int gpu)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_tag told = {.sz = sizeof(told)};
	struct world *w = h->w;
	int tag = (int)below(h, TAGS);
	bool drop = chance(h, 10);

	if (!w->tag_suspended[gpu][tag] || chance(h, 10)) {
		w->drops[gpu][tag] += drop;
		h->doing = "glake_tag_suspend";
		judge(h,
			glake_tag_suspend(w->ctx, gpu, w->tag[tag],
				drop ? GLAKE_TAG_DROP : 0, &did),
			w->suspended[gpu] ? MAY(-EAGAIN) : MAY(-ENOMEM));
	} else {
		h->doing = "glake_tag_resume";
		judge(h, glake_tag_resume(w->ctx, gpu, w->tag[tag], &did),
			w->suspended[gpu] ? MAY(-EAGAIN) : MAY(-ENOMEM, -EBUSY));
	}
	judge(h, glake_tag_get(w->ctx, gpu, w->tag[tag], &told), NULL);
	w->tag_suspended[gpu][tag] = told.suspended;
}

static void suspend(struct hand *h, int gpu)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	bool in_place = chance(h, 50);

	h->doing = in_place ? "glake_suspend_in_place" : "glake_suspend";
	h->w->perhaps[gpu] = !judge(h,
		in_place ? glake_suspend_in_place(h->w->ctx, gpu, &did)
			 : glake_suspend(h->w->ctx, gpu, &did),
		MAY(-ENOMEM));
	h->w->suspended[gpu] = true;
}

static void resume(struct hand *h, int gpu)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	bool lazy = chance(h, 50);
	int err;

	h->doing = lazy ? "glake_resume_lazy" : "glake_resume";
	err = lazy ? glake_resume_lazy(h->w->ctx, gpu, &did)
		   : glake_resume(h->w->ctx, gpu, &did);
	if (judge(h, err,
		    h->w->perhaps[gpu] ? MAY(-ENOMEM, -EBUSY, -EINVAL)
				       : MAY(-ENOMEM, -EBUSY)) ||
		err == -EINVAL)
		h->w->suspended[gpu] = h->w->perhaps[gpu] = false;
}

static void quiet(struct hand *h, int gpu)
{
	struct glake_returned done = {.sz = sizeof(done)};

	h->doing = "glake_quiet";
	judge(h, glake_quiet(h->w->ctx, gpu, &done),
		h->w->suspended[gpu] ? MAY(-EAGAIN) : NULL);
}

void deed_suspend(struct hand *h)
{
	int gpu = (int)below(h, GPUS);
	uint64_t what = below(h, 10);

	h->moves++;
	pthread_rwlock_wrlock(&h->w->use[gpu]);
	if (what < 4)
		tag_turn(h, gpu);
	else if (what < 7)
		quiet(h, gpu);
	else if (h->w->suspended[gpu] && chance(h, 80))
		resume(h, gpu);
	else if (!h->w->suspended[gpu])
		suspend(h, gpu);
	pthread_rwlock_unlock(&h->w->use[gpu]);
}

/* A block is freed, so that what is suspended can come back. */
static void make_room(struct hand *h, int gpu)
{
	struct world *w = h->w;

	for (unsigned i = 0; i < w->hands * BLOCKS; i++) {
		struct block *b = &w->hand[i / BLOCKS].block[i % BLOCKS];

		if (!b->at || b->gpu != gpu)
			continue;
		judge(h, glake_free(w->ctx, b->at, NULL), NULL);
		b->at = NULL;
		return;
	}
	failed(h, "nothing is left, and there is no room");
}

static void resume_gpu(struct hand *h, int gpu)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct world *w = h->w;
	int err;

	h->doing = "the last resumption";
	while (w->suspended[gpu] && !glk_load_relaxed(&w->wrong)) {
		err = glake_resume(w->ctx, gpu, &did);
		w->suspended[gpu] = err == -ENOMEM;
		judge(h, err, w->perhaps[gpu] ? MAY(-ENOMEM, -EINVAL) : MAY(-ENOMEM));
		if (err == -ENOMEM)
			make_room(h, gpu);
	}
	for (int i = 0; i < TAGS; i++) {
		while (w->tag_suspended[gpu][i] && !glk_load_relaxed(&w->wrong)) {
			err = glake_tag_resume(w->ctx, gpu, w->tag[i], &did);
			w->tag_suspended[gpu][i] = err == -ENOMEM;
			judge(h, err, MAY(-ENOMEM));
			if (err == -ENOMEM)
				make_room(h, gpu);
		}
	}
}

/* The GPU that borrows first: what it has of the other one is in the way there. */
void deed_resume_all(struct hand *h)
{
	for (int gpu = 0; gpu < GPUS; gpu++)
		resume_gpu(h, gpu);
}
