/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who of a serving engine's requests is computed when, and which layers are where: see planner.h. */
#include "kv/planner.h"

#include "base/error.h"
#include "base/slab.h"

#include <errno.h>
#include <inttypes.h>

/* Layers that a prompt has at a time at least, when the others leave: one is computed while one leaves. */
#define LEAST 2
/* Of what work took, so much goes into what the next one is reckoned to take. */
#define LEARN 0.25
#define WRONG 64 /* times, at most */
/* Tokens that one who has more than was expected gets memory for at a time. */
#define MORE 64

static double times(const struct glake_planner *p, int what, double ns)
{
	return ns * p->factor[what];
}

double glk_planner_step(
	const struct glake_planner *p, uint32_t sequences, uint64_t tokens)
{
	const struct glake_planner_cost *c = &p->o.cost;

	return c->step + c->step_sequence * sequences + c->step_token * (double)tokens;
}

static double prompt_ns(const struct glake_planner *p, uint32_t tokens)
{
	const struct glake_planner_cost *c = &p->o.cost;
	double n = tokens;

	return c->prompt + c->prompt_token * n + c->prompt_square * n * n;
}

/* One whose layers leave takes at least as long as the link needs for them. */
static double prompt_away(const struct glake_planner *p, uint32_t tokens, uint32_t away)
{
	double ns = times(p, GLAKE_PLANNER_PROMPT, prompt_ns(p, tokens));
	double link = (double)glk_planner_bytes(p, away, tokens) / p->o.out;

	return link > ns ? link : ns;
}

/* ---- Lists ---- */

static void put(struct glake_planner *p, struct glk_planner_list *list, uint32_t id,
	uint32_t before)
{
	struct glk_planner_request *r = &p->request[id];

	r->next = before;
	r->before = before == GLK_PLANNER_NONE ? list->last : p->request[before].before;
	if (r->before == GLK_PLANNER_NONE)
		list->first = id;
	else
		p->request[r->before].next = id;
	if (before == GLK_PLANNER_NONE)
		list->last = id;
	else
		p->request[before].before = id;
	list->count++;
}

static void take(struct glake_planner *p, struct glk_planner_list *list, uint32_t id)
{
	struct glk_planner_request *r = &p->request[id];

	if (r->before == GLK_PLANNER_NONE)
		list->first = r->next;
	else
		p->request[r->before].next = r->next;
	if (r->next == GLK_PLANNER_NONE)
		list->last = r->before;
	else
		p->request[r->next].before = r->before;
	list->count--;
}

/* By who has to end first, then by who came first. */
static void put_away(struct glake_planner *p, uint32_t id)
{
	struct glk_planner_request *r = &p->request[id], *other;
	uint32_t at = p->away.last;

	for (; at != GLK_PLANNER_NONE; at = other->before) {
		other = &p->request[at];
		if (other->until < r->until ||
			(other->until == r->until && other->arrived <= r->arrived))
			break;
	}
	put(p, &p->away, id,
		at == GLK_PLANNER_NONE ? p->away.first : p->request[at].next);
}

static struct glk_planner_list *list_of(
	struct glake_planner *p, const struct glk_planner_request *r)
{
	switch (r->stage) {
	case GLAKE_PLANNER_WAITS:
		return &p->waits;
	case GLAKE_PLANNER_RUNS:
		return &p->runs;
	case GLAKE_PLANNER_PROMPTS:
		return NULL;
	default:
		return &p->away;
	}
}

/* ---- Layers and memory ---- */

static unsigned char *layers_of(const struct glake_planner *p, uint32_t id)
{
	return p->layer + (size_t)id * p->o.layers;
}

/* Bytes that it has, by its stage. */
static uint64_t due(const struct glake_planner *p, const struct glk_planner_request *r)
{
	/* memory of one that comes is had at once */
	uint32_t here = p->o.layers - r->layers[GLK_LAYER_THERE];

	switch (r->ended ? GLAKE_PLANNER_AWAY : r->stage) {
	case GLAKE_PLANNER_WAITS:
		return 0;
	case GLAKE_PLANNER_PROMPTS:
		if (r->room < p->o.layers)
			return glk_planner_bytes(p, r->room, r->prompt + 1);
		return glk_planner_whole(p, r);
	case GLAKE_PLANNER_AWAY:
		if (r->ended)
			here = r->layers[GLK_LAYER_LEAVES] + r->layers[GLK_LAYER_COMES];
		return glk_planner_bytes(p, here, r->prompt + r->tokens);
	default:
		return glk_planner_whole(p, r);
	}
}

static void charge(struct glake_planner *p, uint32_t id)
{
	struct glk_planner_request *r = &p->request[id];
	uint64_t bytes = due(p, r), there = 0;

	if (!r->ended)
		there = glk_planner_bytes(p,
			r->layers[GLK_LAYER_THERE] + r->layers[GLK_LAYER_TO_COME] +
				r->layers[GLK_LAYER_COMES] + r->layers[GLK_LAYER_LEAVES],
			r->prompt + r->tokens);
	p->used += bytes - r->charge;
	p->host += there - r->there;
	r->charge = bytes;
	r->there = there;
}

static bool is_to_move(int state)
{
	return state == GLK_LAYER_TO_LEAVE || state == GLK_LAYER_TO_COME;
}

static void set(struct glake_planner *p, uint32_t id, uint32_t layer, int state)
{
	unsigned char *at = &layers_of(p, id)[layer];

	p->moves += is_to_move(state);
	p->moves -= is_to_move(*at);
	p->request[id].layers[*at]--;
	p->request[id].layers[state]++;
	*at = (unsigned char)state;
}

/* All layers in one state go to another. */
static void set_all(struct glake_planner *p, uint32_t id, int from, int to)
{
	for (uint32_t i = 0; i < p->o.layers && p->request[id].layers[from]; i++)
		if (layers_of(p, id)[i] == from)
			set(p, id, i, to);
}

static bool is_moving(const struct glk_planner_request *r)
{
	return r->layers[GLK_LAYER_LEAVES] + r->layers[GLK_LAYER_COMES];
}

static void enter(struct glake_planner *p, uint32_t id, int stage)
{
	struct glk_planner_request *r = &p->request[id];
	struct glk_planner_list *list;

	r->stage = stage;
	list = list_of(p, r);
	if (list == &p->away)
		put_away(p, id);
	else if (list)
		put(p, list, id, GLK_PLANNER_NONE);
	charge(p, id);
}

static void leave(struct glake_planner *p, uint32_t id)
{
	struct glk_planner_list *list = list_of(p, &p->request[id]);

	if (list)
		take(p, list, id);
}

/* Layers that it has at a time at most while its prompt is computed and the first ones leave as they are done. */
static uint32_t most_at_a_time(
	const struct glake_planner *p, uint32_t tokens, uint32_t away)
{
	double each = times(p, GLAKE_PLANNER_PROMPT, prompt_ns(p, tokens)) / p->o.layers;
	double out = (double)glk_planner_bytes(p, 1, tokens) / p->o.out, passed = 0;
	uint32_t most = 0, gone = 0;

	for (uint32_t i = 0; i < p->o.layers; i++) {
		/* those that have left by the time that this one is begun */
		while (gone < away && gone < i) {
			double begins =
				(gone + 1) * each > passed ? (gone + 1) * each : passed;

			if (begins + out > i * each)
				break;
			passed = begins + out;
			gone++;
		}
		most = i + 1 - gone > most ? i + 1 - gone : most;
	}
	return most;
}

/* The fewest layers that have to leave for a prompt to fit so many at a time; all where it has to wait for the link. */
static uint32_t fewest_away(const struct glake_planner *p, uint32_t tokens, uint64_t room)
{
	uint32_t low = 1, high = p->o.layers, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (most_at_a_time(p, tokens, middle) <= room)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* ---- Promises ---- */

/* What cannot be kept any more is promised anew, so that it holds up nobody. */
static void renegotiate(struct glake_planner *p, struct glk_planner_list *list)
{
	uint32_t next;

	for (uint32_t id = list->first; id != GLK_PLANNER_NONE; id = next) {
		struct glk_planner_request *r = &p->request[id];

		next = r->next;
		if (r->kept)
			continue;
		p->figures.renegotiated++;
		r->flags |= GLAKE_PLANNER_LATE_TOKEN;
		/* with as much time again as it is reckoned to need, or nobody could come before it has ended */
		r->until = glk_planner_after(r->ends, (double)(r->ends - p->now));
		r->kept = true;
		if (list == &p->away) {
			take(p, list, id);
			put_away(p, id);
		}
	}
}

/* The future without anybody new. */
static void look_ahead(struct glake_planner *p)
{
	glk_planner_walk(p, NULL, NULL);
	renegotiate(p, &p->runs);
	renegotiate(p, &p->away);
}

static int64_t end_by(const struct glk_planner_request *r, int64_t first)
{
	return r->token ? glk_planner_after(first, (double)r->token * (r->generated - 1))
			: GLK_PLANNER_NEVER;
}

/* Whether it could end in time if nobody else were there. */
static bool is_possible(
	const struct glake_planner *p, const struct glk_planner_request *r)
{
	double step = glk_planner_step(p, 1, r->prompt + r->generated);

	return !r->token || times(p, GLAKE_PLANNER_STEP, step) <= (double)r->token;
}

/* Whether a prompt may be computed now. */
static bool may_begin(struct glake_planner *p, struct glk_planner_asks *asks)
{
	struct glk_planner_request *r = &p->request[asks->id];
	bool own, others, is_alone = !p->runs.count && !p->away.count;

	if (p->o.policy == GLAKE_PLANNER_FIRST || is_alone)
		return true;
	r->until = end_by(r, glk_planner_after(p->now, (double)asks->takes));
	others = glk_planner_walk(p, asks, &own);
	r->until = GLK_PLANNER_NEVER;
	if (others && (own || !is_possible(p, r)))
		return true;
	p->figures.held_off += !r->held;
	r->held = true;
	return false;
}

/* ---- Who comes back, who leaves ---- */

static bool has_seat(const struct glake_planner *p)
{
	uint32_t coming = 0;

	if (!p->o.batch)
		return true;
	for (uint32_t id = p->away.first; id != GLK_PLANNER_NONE;
		id = p->request[id].next)
		coming += p->request[id].stage == GLAKE_PLANNER_COMES;
	return p->runs.count + coming < p->o.batch;
}

static void come_back(struct glake_planner *p, uint32_t id)
{
	leave(p, id);
	set_all(p, id, GLK_LAYER_TO_LEAVE, GLK_LAYER_HERE);
	set_all(p, id, GLK_LAYER_THERE, GLK_LAYER_TO_COME);
	enter(p, id,
		p->request[id].layers[GLK_LAYER_TO_COME] ? GLAKE_PLANNER_COMES
							 : GLAKE_PLANNER_RUNS);
}

/* A whole request, with all its layers. */
static void go_away(struct glake_planner *p, uint32_t id)
{
	leave(p, id);
	set_all(p, id, GLK_LAYER_HERE, GLK_LAYER_TO_LEAVE);
	enter(p, id, GLAKE_PLANNER_AWAY);
}

/* Layers that those have who come after one, and that nobody needs before it. */
static uint64_t kept_behind(const struct glake_planner *p, uint32_t id)
{
	uint64_t bytes = 0;

	for (id = p->request[id].next; id != GLK_PLANNER_NONE; id = p->request[id].next)
		if (p->request[id].stage == GLAKE_PLANNER_AWAY)
			bytes += p->request[id].charge;
	return bytes;
}

/* Those who come last send away what they kept, until that is enough. What is on its way counts. */
static void send_behind(struct glake_planner *p, uint32_t first, uint64_t bytes)
{
	uint64_t sent = 0;

	for (uint32_t id = p->away.last; id != first && sent < bytes;
		id = p->request[id].before) {
		if (p->request[id].stage != GLAKE_PLANNER_AWAY)
			continue;
		sent += p->request[id].charge;
		set_all(p, id, GLK_LAYER_HERE, GLK_LAYER_TO_LEAVE);
		charge(p, id);
	}
}

/* Layers of who comes next take the room that there is, while nobody waits for it: once there is room for all of it the
 * link has less to bring. */
static void bring_some(struct glake_planner *p, uint32_t id)
{
	const struct glk_planner_request *r = &p->request[id];
	uint64_t layers =
		glk_planner_room(p) / glk_planner_bytes(p, 1, r->prompt + r->tokens);

	if (p->o.policy != GLAKE_PLANNER_LAYERS || p->waits.count)
		return;
	for (uint32_t i = 0; i < p->o.layers && layers; i++) {
		if (layers_of(p, id)[i] != GLK_LAYER_THERE)
			continue;
		set(p, id, i, GLK_LAYER_TO_COME);
		layers--;
	}
	charge(p, id);
}

/* All come back for whom there is memory, who has to end first before the others. */
static void bring_back(struct glake_planner *p)
{
	uint32_t id = p->away.first, next;
	uint64_t needs;

	for (; id != GLK_PLANNER_NONE; id = next) {
		struct glk_planner_request *r = &p->request[id];

		next = r->next;
		if (r->stage != GLAKE_PLANNER_AWAY)
			continue;
		/* what leaves has to be there before it can come */
		if (is_moving(r) || !has_seat(p))
			return;
		if (!glk_planner_has_place(p, r))
			continue;
		needs = glk_planner_whole(p, r) - r->charge;
		if (needs > glk_planner_room(p)) {
			if (needs <= glk_planner_room(p) + kept_behind(p, id))
				send_behind(p, id, needs - glk_planner_room(p));
			bring_some(p, id);
			return;
		}
		come_back(p, id);
	}
}

/* With GLAKE_PLANNER_SWAP: of those that run who came last, until there is room for another. */
static void make_way(struct glake_planner *p, struct glk_planner_asks *asks)
{
	uint64_t bytes = glk_planner_whole(p, &p->request[asks->id]);
	uint64_t room = glk_planner_room(p);
	uint32_t id, before;
	bool may;

	for (id = p->runs.last; id != GLK_PLANNER_NONE && room < bytes; id = before) {
		before = p->request[id].before;
		if (p->request[id].made_way)
			continue;
		room += p->request[id].charge;
		p->request[id].makes_way = true;
		p->leaving++;
		go_away(p, id);
	}
	may = room >= bytes && may_begin(p, asks);
	for (id = p->away.last; id != GLK_PLANNER_NONE; id = before) {
		before = p->request[id].before;
		if (!p->request[id].makes_way)
			continue;
		p->request[id].made_way = may;
		if (may)
			continue;
		p->request[id].makes_way = false;
		p->leaving--;
		come_back(p, id);
	}
}

/* ---- What is computed ---- */

static bool has_host(const struct glake_planner *p, uint64_t bytes)
{
	return !p->o.host || p->host + bytes <= p->o.host;
}

/* Bytes that the next in line would need at least, so that it is not held up by layers that another keeps. */
static uint64_t for_the_next(
	const struct glake_planner *p, const struct glk_planner_request *r)
{
	const struct glk_planner_request *next =
		r->next == GLK_PLANNER_NONE ? r : &p->request[r->next];

	return glk_planner_bytes(p, LEAST, next->prompt + 1);
}

/* How many layers leave, and how many have room at a time; false: it does not fit. */
static bool fit(struct glake_planner *p, const struct glk_planner_request *r,
	uint32_t *ret_away, uint32_t *ret_room)
{
	uint64_t room = glk_planner_room(p),
		 layer = glk_planner_bytes(p, 1, r->prompt + 1);
	uint64_t next = for_the_next(p, r), layers;

	if (has_seat(p) && glk_planner_whole(p, r) <= room) {
		*ret_away = 0;
		*ret_room = p->o.layers;
		return true;
	}
	if (p->o.policy != GLAKE_PLANNER_LAYERS)
		return false;
	if (room < LEAST * layer) {
		send_behind(p, GLK_PLANNER_NONE, LEAST * layer - room);
		return false;
	}
	layers = room > next + LEAST * layer ? (room - next) / layer : LEAST;
	/* the first step wants all of them, and a seat: no more need be kept than the others fill */
	layers = layers < p->o.layers ? layers : p->o.layers - 1;
	layers = layers > LEAST ? layers : LEAST;
	*ret_away = fewest_away(p, r->prompt, layers);
	*ret_room = (uint32_t)layers;
	return has_host(p, glk_planner_bytes(p, *ret_away, r->prompt + 1));
}

static void begin(
	struct glake_planner *p, uint32_t id, uint32_t away, uint32_t room, int64_t takes)
{
	struct glk_planner_request *r = &p->request[id];

	leave(p, id);
	r->room = room;
	for (uint32_t i = 0; i < away; i++)
		set(p, id, i, GLK_LAYER_LEAVES);
	enter(p, id, GLAKE_PLANNER_PROMPTS);
	if (r->first && r->arrived + r->first < glk_planner_after(p->now, (double)takes))
		r->flags |= GLAKE_PLANNER_LATE_FIRST;
	if (!is_possible(p, r))
		r->flags |= GLAKE_PLANNER_LATE_TOKEN;
	p->figures.prompts++;
	p->figures.prompts_away += away > 0;
	p->reckoned = prompt_ns(p, r->prompt);
	p->work = (struct glake_planner_work){.what = GLAKE_PLANNER_PROMPT,
		.id = id,
		.away = away,
		.room = room,
		.flags = r->flags,
		.takes = takes};
}

/* The first in line, if it fits and breaks no promise. */
static bool begin_first(struct glake_planner *p)
{
	uint32_t id = p->waits.first, away = 0, room = 0;
	struct glk_planner_asks asks = {.id = id};
	struct glk_planner_request *r;
	bool fits;

	if (id == GLK_PLANNER_NONE)
		return false;
	r = &p->request[id];
	fits = fit(p, r, &away, &room);
	if (!fits && (p->o.policy != GLAKE_PLANNER_SWAP || p->leaving))
		return false;
	asks.whole = !fits || !away;
	asks.takes = (int64_t)prompt_away(p, r->prompt, fits ? away : 0);
	if (p->o.policy != GLAKE_PLANNER_FIRST)
		look_ahead(p);
	if (!fits) {
		make_way(p, &asks);
		return false;
	}
	if (!may_begin(p, &asks))
		return false;
	begin(p, id, away, room, asks.takes);
	return true;
}

/* Whether there is memory for a token more; who has none leaves. More than was expected is had by some tokens at a time. */
static bool has_more(struct glake_planner *p, uint32_t id)
{
	struct glk_planner_request *r = &p->request[id];
	uint64_t before = r->charge;

	if (r->tokens >= r->generated) {
		r->generated = r->tokens + MORE;
		if (r->until != GLK_PLANNER_NEVER)
			r->until = glk_planner_after(r->until, (double)r->token * MORE);
	} else if (glk_planner_has_place(p, r)) {
		return true;
	}
	if (glk_planner_has_place(p, r) &&
		glk_planner_whole(p, r) - before <= glk_planner_room(p)) {
		charge(p, id);
		return true;
	}
	go_away(p, id);
	return false;
}

static bool step(struct glake_planner *p)
{
	uint64_t tokens = 0;
	uint32_t count = 0, next;

	for (uint32_t id = p->runs.first; id != GLK_PLANNER_NONE; id = next) {
		next = p->request[id].next;
		if ((p->o.batch && count == p->o.batch) || !has_more(p, id))
			continue;
		tokens += p->request[id].prompt + p->request[id].tokens;
		p->batch[count++] = id;
	}
	if (!count)
		return false;
	p->figures.steps++;
	p->reckoned = glk_planner_step(p, count, tokens);
	p->work = (struct glake_planner_work){.what = GLAKE_PLANNER_STEP,
		.count = count,
		.batch = p->batch,
		.takes = (int64_t)times(p, GLAKE_PLANNER_STEP, p->reckoned)};
	return true;
}

static void tick(struct glake_planner *p, int64_t now)
{
	if (now > p->now)
		p->now = now;
}

static void settle(struct glake_planner *p)
{
	/* what leaves for the first in line is not for those who come */
	if (!p->leaving)
		bring_back(p);
}

int glk_planner_next(
	struct glake_planner *p, int64_t now, struct glake_planner_work *ret_work)
{
	tick(p, now);
	if (p->work.what)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"what the planner said last is under way: glake_planner_done first");
	settle(p);
	if (begin_first(p) || step(p))
		p->since = p->now;
	*ret_work = p->work;
	return 0;
}

static void learn(struct glake_planner *p)
{
	double took = (double)(p->now - p->since);
	double *factor = &p->factor[p->work.what];
	double by = p->reckoned > 0 ? took / p->reckoned : 1;

	by = by > WRONG ? WRONG : by < 1.0 / WRONG ? 1.0 / WRONG : by;
	*factor += LEARN * (by - *factor);
}

static void has_first(struct glake_planner *p, uint32_t id)
{
	struct glk_planner_request *r = &p->request[id];

	r->tokens = 1;
	r->until = end_by(r, p->now);
	enter(p, id, r->room < p->o.layers ? GLAKE_PLANNER_AWAY : GLAKE_PLANNER_RUNS);
}

int glk_planner_done(struct glake_planner *p, int64_t now)
{
	if (!p->work.what)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"nothing is under way that could be done");
	tick(p, now);
	learn(p);
	if (p->work.what == GLAKE_PLANNER_PROMPT)
		has_first(p, p->work.id);
	for (uint32_t i = 0; i < p->work.count; i++) {
		p->request[p->batch[i]].tokens++;
		charge(p, p->batch[i]);
	}
	p->work = (struct glake_planner_work){0};
	settle(p);
	return 0;
}

/* ---- Moves ---- */

/* The next run of layers of a request that are to move the same way. */
static bool find_move(struct glake_planner *p, uint32_t id, struct glake_planner_copy *m)
{
	const unsigned char *at = layers_of(p, id);
	struct glk_planner_request *r = &p->request[id];
	uint32_t first = 0, end;
	int to;

	if (!r->layers[GLK_LAYER_TO_LEAVE] && !r->layers[GLK_LAYER_TO_COME])
		return false;
	while (!is_to_move(at[first]))
		first++;
	to = at[first] == GLK_LAYER_TO_LEAVE ? GLK_LAYER_LEAVES : GLK_LAYER_COMES;
	for (end = first + 1; end < p->o.layers && at[end] == at[first]; end++)
		;
	*m = (struct glake_planner_copy){.id = id,
		.layer = first,
		.layers = end - first,
		.back = to == GLK_LAYER_COMES,
		.deadline = GLK_PLANNER_NEVER};
	if (m->back && r->until != GLK_PLANNER_NEVER)
		m->deadline = r->until -
			(int64_t)(glk_planner_left(r) *
				times(p, GLAKE_PLANNER_STEP,
					glk_planner_step(p, p->runs.count + 1,
						p->o.memory /
							glk_planner_bytes(
								p, p->o.layers, 1))));
	r->due = m->back ? m->deadline : r->due;
	for (uint32_t i = first; i < end; i++)
		set(p, id, i, to);
	charge(p, id);
	return true;
}

int glk_planner_move(
	struct glake_planner *p, int64_t now, struct glake_planner_copy *ret_move)
{
	tick(p, now);
	if (p->moves && p->work.what == GLAKE_PLANNER_PROMPT &&
		find_move(p, p->work.id, ret_move))
		return 0;
	for (uint32_t id = p->moves ? p->away.first : GLK_PLANNER_NONE;
		id != GLK_PLANNER_NONE; id = p->request[id].next)
		if (find_move(p, id, ret_move))
			return 0;
	return -EAGAIN;
}

static void is_gone(struct glake_planner *p, uint32_t id)
{
	p->request[id].live = false;
	p->request[id].ended = false;
	put(p, &p->free, id, GLK_PLANNER_NONE);
}

/* Nobody waits for it to leave any more. */
static void has_left(struct glake_planner *p, struct glk_planner_request *r)
{
	if (!r->makes_way || is_moving(r) || r->layers[GLK_LAYER_TO_LEAVE])
		return;
	r->makes_way = false;
	p->leaving--;
}

int glk_planner_moved(struct glake_planner *p, int64_t now, uint32_t id, uint32_t layer,
	uint32_t layers, int result)
{
	struct glk_planner_request *r = &p->request[id];
	const unsigned char *at = layers_of(p, id) + layer;
	int was = at[0], to;

	if (was != GLK_LAYER_LEAVES && was != GLK_LAYER_COMES)
		return -EINVAL;
	for (uint32_t i = 0; i < layers; i++)
		if (at[i] != was)
			return -EINVAL;
	tick(p, now);
	if (was == GLK_LAYER_COMES)
		to = result ? GLK_LAYER_TO_COME : GLK_LAYER_HERE;
	else if (result && r->stage == GLAKE_PLANNER_PROMPTS)
		to = GLK_LAYER_TO_LEAVE; /* the next one needs its place */
	else
		to = result ? GLK_LAYER_HERE : GLK_LAYER_THERE;
	if (r->ended && to == GLK_LAYER_TO_COME)
		to = GLK_LAYER_THERE;
	for (uint32_t i = 0; i < layers; i++)
		set(p, id, layer + i, to);
	if (!result && was == GLK_LAYER_LEAVES)
		p->figures.out += glk_planner_bytes(p, layers, r->prompt + r->tokens);
	if (!result && was == GLK_LAYER_COMES) {
		p->figures.back += glk_planner_bytes(p, layers, r->prompt + r->tokens);
		p->figures.layers_back += layers;
		p->figures.layers_late += p->now > r->due ? layers : 0;
	}
	has_left(p, r);
	charge(p, id);
	if (r->ended && !is_moving(r)) {
		is_gone(p, id);
	} else if (r->stage == GLAKE_PLANNER_COMES &&
		r->layers[GLK_LAYER_HERE] == p->o.layers) {
		leave(p, id);
		enter(p, id, GLAKE_PLANNER_RUNS);
	}
	settle(p);
	return 0;
}

/* ---- A request's life ---- */

int glk_planner_submit(struct glake_planner *p, int64_t now,
	const struct glake_planner_request *given, uint32_t *ret_id)
{
	uint32_t id = p->free.first;
	struct glk_planner_request *r;

	tick(p, now);
	if (glk_planner_bytes(p, p->o.layers,
		    (uint64_t)given->prompt + given->generated) > p->o.memory)
		return glk_error(-ERANGE, GLAKE_ERROR_LIMIT,
			"a request of %" PRIu32 " and %" PRIu32
			" tokens needs more than the %" PRIu64
			" bytes that caches may have",
			given->prompt, given->generated, p->o.memory);
	if (id == GLK_PLANNER_NONE)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"%" PRIu32
			" requests are there, as many as the planner was made for",
			p->o.requests);
	take(p, &p->free, id);
	r = &p->request[id];
	*r = (struct glk_planner_request){.live = true,
		.stage = GLAKE_PLANNER_WAITS,
		.prompt = given->prompt,
		.generated = given->generated,
		.arrived = p->now,
		.first = given->first,
		.token = given->token,
		.until = GLK_PLANNER_NEVER,
		.ends = GLK_PLANNER_NEVER,
		.kept = true};
	r->layers[GLK_LAYER_HERE] = p->o.layers;
	for (uint32_t i = 0; i < p->o.layers; i++)
		layers_of(p, id)[i] = GLK_LAYER_HERE;
	enter(p, id, GLAKE_PLANNER_WAITS);
	*ret_id = id;
	return 0;
}

static bool is_in_work(const struct glake_planner *p, uint32_t id)
{
	if (p->work.what == GLAKE_PLANNER_PROMPT && p->work.id == id)
		return true;
	for (uint32_t i = 0; i < p->work.count; i++)
		if (p->batch[i] == id)
			return true;
	return false;
}

int glk_planner_end(struct glake_planner *p, int64_t now, uint32_t id)
{
	struct glk_planner_request *r = &p->request[id];

	if (is_in_work(p, id))
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"request %" PRIu32 " is being computed", id);
	tick(p, now);
	leave(p, id);
	set_all(p, id, GLK_LAYER_TO_COME, GLK_LAYER_THERE);
	set_all(p, id, GLK_LAYER_TO_LEAVE, GLK_LAYER_HERE);
	r->ended = true;
	has_left(p, r);
	charge(p, id);
	if (!is_moving(r))
		is_gone(p, id);
	settle(p);
	return 0;
}

void glk_planner_memory(struct glake_planner *p, int64_t now, uint64_t bytes)
{
	tick(p, now);
	p->o.memory = bytes;
	settle(p);
}

/* ---- A planner's life ---- */

static struct glk_planner_list empty(void)
{
	return (struct glk_planner_list){GLK_PLANNER_NONE, GLK_PLANNER_NONE, 0};
}

static size_t size_of(const struct glake_planner_options *o)
{
	return o->requests *
		(sizeof(struct glk_planner_request) + sizeof(struct glk_planner_release) +
			2 * sizeof(uint32_t) + (size_t)o->layers);
}

int glk_planner_new(
	const struct glake_planner_options *o, struct glake_planner **ret_planner)
{
	struct glake_planner *p = glk_region_new(sizeof(*p) + size_of(o));
	char *at;

	if (!p)
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"no memory for a planner of %" PRIu32 " requests", o->requests);
	p->o = *o;
	at = (char *)(p + 1);
	p->request = (void *)at;
	at += o->requests * sizeof(*p->request);
	p->heap = (void *)at;
	at += o->requests * sizeof(*p->heap);
	p->batch = (void *)at;
	p->line = p->batch + o->requests;
	p->layer = (void *)(p->line + o->requests);
	p->free = p->waits = p->runs = p->away = empty();
	for (uint32_t i = 0; i < o->requests; i++)
		put(p, &p->free, i, GLK_PLANNER_NONE);
	for (int i = 0; i < 3; i++)
		p->factor[i] = 1;
	*ret_planner = p;
	return 0;
}

void glk_planner_free(struct glake_planner *p)
{
	if (p)
		glk_region_free(p, sizeof(*p) + size_of(&p->o));
}
