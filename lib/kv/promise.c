/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The future of a planner, as far as it is reckoned: who runs ends when its tokens are had, each step taking as long as
 * one with the memory full; memory is then another's, and of those that are away the one comes next that has to end
 * earliest, over a link that brings one after the other.
 */
#include "kv/planner.h"

/* Of the time that is left to a promise. Of 10^5 requests at one and a half times the rate that can be kept up a 32nd
 * broke 14, a 16th 1 and a tenth none (glakectl kv simulate -n 100000 -r 0.279). */
#define MARGIN 10

/* ---- Memory that ends, by time ---- */

static void push(struct glake_planner *p, int64_t at, uint64_t bytes)
{
	struct glk_planner_release *heap = p->heap;
	uint32_t i = p->heap_count++, up;

	for (; i; i = up) {
		up = (i - 1) / 2;
		if (heap[up].at <= at)
			break;
		heap[i] = heap[up];
	}
	heap[i] = (struct glk_planner_release){at, bytes};
}

static struct glk_planner_release pop(struct glake_planner *p)
{
	struct glk_planner_release *heap = p->heap, top = heap[0],
				   last = heap[--p->heap_count];
	uint32_t i = 0, down;

	for (; (down = 2 * i + 1) < p->heap_count; i = down) {
		if (down + 1 < p->heap_count && heap[down + 1].at < heap[down].at)
			down++;
		if (last.at <= heap[down].at)
			break;
		heap[i] = heap[down];
	}
	heap[i] = last;
	return top;
}

/* ---- The walk ---- */

struct walk {
	struct glake_planner *p;
	const struct glk_planner_asks *asks;
	int64_t from, link; /* when it begins, and the link is free */
	uint64_t room;
	double step, back; /* ns of a step; bytes a ns */
	bool kept, own;
};

/* A prompt is let in where a little more is left than is reckoned: who comes back when is not known to the token. */
static void settle(struct walk *w, uint32_t id, int64_t ends)
{
	struct glk_planner_request *r = &w->p->request[id];
	int64_t margin = w->asks ? (ends - w->p->now) / MARGIN : 0;
	bool in_time = ends <= r->until - margin;

	if (!w->asks) {
		r->ends = ends;
		r->kept = in_time;
		return;
	}
	if (id == w->asks->id)
		w->own = in_time;
	else if (r->kept && !in_time)
		w->kept = false;
}

static void run(struct walk *w, uint32_t id, int64_t from)
{
	struct glk_planner_request *r = &w->p->request[id];
	int64_t ends = glk_planner_after(from, (double)glk_planner_left(r) * w->step);

	settle(w, id, ends);
	push(w->p, ends, glk_planner_whole(w->p, r));
}

/* One that is away comes as soon as there is memory for all of it. */
static void come(struct walk *w, uint32_t id)
{
	struct glake_planner *p = w->p;
	struct glk_planner_request *r = &p->request[id];
	uint64_t needs = glk_planner_whole(p, r);
	struct glk_planner_release next;
	int64_t at = w->from;

	while (w->room < needs && p->heap_count) {
		next = pop(p);
		w->room += next.bytes;
		at = next.at > at ? next.at : at;
	}
	w->room -= needs < w->room ? needs : w->room;
	at = at > w->link ? at : w->link;
	w->link = glk_planner_after(at, (double)needs / w->back);
	run(w, id, w->link);
}

/* Who has to end first, of those without a promise who came first: in their line already, but for the last. */
static bool is_before(const struct glake_planner *p, uint32_t a, uint32_t b)
{
	const struct glk_planner_request *x = &p->request[a], *y = &p->request[b];

	return x->until != y->until ? x->until < y->until : x->arrived < y->arrived;
}

static uint32_t line_up(struct glake_planner *p, const struct glk_planner_asks *asks)
{
	uint32_t count = 0, i;

	for (uint32_t id = p->away.first; id != GLK_PLANNER_NONE;
		id = p->request[id].next) {
		if (p->request[id].stage == GLAKE_PLANNER_AWAY)
			p->line[count++] = id;
	}
	if (!asks || asks->whole)
		return count;
	for (i = count++; i && is_before(p, asks->id, p->line[i - 1]); i--)
		p->line[i] = p->line[i - 1];
	p->line[i] = asks->id;
	return count;
}

/* As long as with all that is had by then, or with the memory full of it. */
static double step_of(const struct glake_planner *p)
{
	uint64_t tokens = 0, full = p->o.memory / glk_planner_bytes(p, p->o.layers, 1);
	uint32_t count = p->runs.count + p->away.count + 1;

	for (uint32_t id = p->runs.first; id != GLK_PLANNER_NONE;
		id = p->request[id].next)
		tokens += p->request[id].prompt + p->request[id].generated;
	for (uint32_t id = p->away.first; id != GLK_PLANNER_NONE;
		id = p->request[id].next)
		tokens += p->request[id].prompt + p->request[id].generated;
	/* as many as have room together */
	if (tokens > full)
		count = (uint32_t)(1 + (uint64_t)count * full / tokens);
	return glk_planner_step(p, count, tokens < full ? tokens : full) *
		p->factor[GLAKE_PLANNER_STEP];
}

bool glk_planner_walk(
	struct glake_planner *p, const struct glk_planner_asks *asks, bool *ret_own)
{
	struct walk w = {.p = p,
		.asks = asks,
		.from = asks ? glk_planner_after(p->now, (double)asks->takes) : p->now,
		.room = glk_planner_room(p),
		.step = step_of(p),
		.back = p->o.back,
		.kept = true,
		.own = true};
	uint64_t whole;
	uint32_t count;

	p->heap_count = 0;
	w.link = w.from;
	if (asks && asks->whole) {
		whole = glk_planner_whole(p, &p->request[asks->id]);
		w.room -= whole < w.room ? whole : w.room;
		run(&w, asks->id, w.from);
	}
	for (uint32_t id = p->runs.first; id != GLK_PLANNER_NONE;
		id = p->request[id].next)
		run(&w, id, w.from);
	for (uint32_t id = p->away.first; id != GLK_PLANNER_NONE;
		id = p->request[id].next) {
		struct glk_planner_request *r = &p->request[id];

		if (r->stage != GLAKE_PLANNER_COMES)
			continue;
		w.link = glk_planner_after(w.link, (double)r->there / w.back);
		run(&w, id, w.link);
	}
	count = line_up(p, asks);
	/* what they keep goes to the host where one before them needs it */
	for (uint32_t i = 0; i < count; i++)
		w.room += p->request[p->line[i]].charge;
	for (uint32_t i = 0; i < count; i++)
		come(&w, p->line[i]);
	if (ret_own)
		*ret_own = w.own;
	return w.kept;
}
