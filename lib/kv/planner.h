/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_KV_PLANNER_H
#define GLK_KV_PLANNER_H

/*
 * The planner of a serving engine: see glake/planner.h for what it is to users.
 *
 * A request that runs has the memory of all the tokens that are expected of it, one whose layers are away has that of
 * the layers which are here. Who has to end earliest comes back first, as soon as all of it fits, and whoever waits is
 * computed in the order of arrival with as few layers away as fit.
 *
 * A promise of tokens is a time by which a request has to have ended. Before a prompt is let in, the future is walked
 * once without it and once with it (promise.c): who would end in time without it must do so with it.
 *
 * Threads	one at a time, which is for the caller to see to
 */
#include <glake/planner.h>

#include <stdbool.h>

#define GLK_PLANNER_NEVER INT64_MAX
#define GLK_PLANNER_NONE  UINT32_MAX

enum glk_planner_layer {
	GLK_LAYER_HERE,
	GLK_LAYER_TO_LEAVE, /* but the move was not asked for yet */
	GLK_LAYER_LEAVES,
	GLK_LAYER_THERE,
	GLK_LAYER_TO_COME,
	GLK_LAYER_COMES,
	GLK_LAYER_STATES,
};

struct glk_planner_request {
	bool live;
	bool ended;	/* but layers of it are on their way */
	bool held;	/* its prompt waited for promises to others */
	bool makes_way; /* it leaves so that the first in line has room, */
	bool made_way;	/* which it does but once */
	int stage;	/* enum glake_planner_stage */
	uint32_t prompt, generated, tokens;
	uint32_t flags;
	int64_t arrived, first, token; /* as it was submitted */
	int64_t until;
	int64_t due;			   /* the deadline of layers that come */
	uint64_t charge;		   /* bytes of the GPU */
	uint64_t there;			   /* bytes of the host */
	uint32_t room;			   /* layers, while its prompt is computed */
	uint32_t layers[GLK_LAYER_STATES]; /* how many are in each state */
	/* In the list of its stage: those that wait, by arrival; that run; that are away or come. And of free ones. */
	uint32_t next, before;
	/* Of the walk of the future: */
	int64_t ends;
	bool kept; /* without the prompt that asks */
};

struct glk_planner_list {
	uint32_t first, last, count;
};

enum { GLK_PLANNER_OUT, GLK_PLANNER_BACK, GLK_PLANNER_WAYS };

/* Memory that somebody has until then. */
struct glk_planner_release {
	int64_t at;
	uint64_t bytes;
};

struct glake_planner {
	struct glake_planner_options o;
	struct glk_planner_request *request;
	unsigned char
		*layer; /* of each request, o.layers of them: enum glk_planner_layer */
	struct glk_planner_list free, waits, runs, away; /* away: and those that come */
	uint64_t used, host;
	int64_t now;
	struct glake_planner_work work; /* under way; idle: nothing is */
	int64_t since;			/* when it began */
	double reckoned;		/* ns that it would take by the cost alone */
	double factor[3];		/* by enum glake_planner_what */
	uint32_t leaving;		/* requests that make way */
	uint32_t moves;			/* layers that are to leave or to come */
	uint32_t *batch;
	/* Of the walk: */
	struct glk_planner_release *heap;
	uint32_t heap_count;
	uint32_t *line; /* who is away, by who has to end earliest */
	struct glake_planner_figures figures;
	size_t region_size;
	void *region;
};

/* A prompt that asks to be let in, or nobody. */
struct glk_planner_asks {
	uint32_t id; /* GLK_PLANNER_NONE: nobody */
	int64_t takes;
	bool whole; /* none of its layers leave */
};

static inline uint64_t glk_planner_bytes(
	const struct glake_planner *p, uint64_t layers, uint64_t tokens)
{
	return layers * tokens * p->o.layer_bytes;
}

/* With all that it is expected to have, as far as that could ever have room. */
static inline uint64_t glk_planner_whole(
	const struct glake_planner *p, const struct glk_planner_request *r)
{
	uint64_t has = glk_planner_bytes(p, p->o.layers, (uint64_t)r->prompt + r->tokens);
	uint64_t whole = glk_planner_bytes(p, p->o.layers,
		(uint64_t)r->prompt +
			(r->generated > r->tokens ? r->generated : r->tokens));

	if (whole <= p->o.memory)
		return whole;
	return has > p->o.memory ? has : p->o.memory;
}

/* Whether all of it could have room, with a token more. */
static inline bool glk_planner_has_place(
	const struct glake_planner *p, const struct glk_planner_request *r)
{
	return glk_planner_bytes(p, p->o.layers, (uint64_t)r->prompt + r->tokens + 1) <=
		p->o.memory;
}

static inline uint64_t glk_planner_room(const struct glake_planner *p)
{
	return p->o.memory > p->used ? p->o.memory - p->used : 0;
}

static inline int64_t glk_planner_after(int64_t at, double ns)
{
	return ns < (double)(GLK_PLANNER_NEVER - at) ? at + (int64_t)ns
						     : GLK_PLANNER_NEVER;
}

/* Tokens that it is still to get, at least the one that comes next. */
static inline uint32_t glk_planner_left(const struct glk_planner_request *r)
{
	return r->generated > r->tokens ? r->generated - r->tokens : 1;
}

/* ns of a step, by the cost alone. */
double glk_planner_step(
	const struct glake_planner *p, uint32_t sequences, uint64_t tokens);

/*
 * promise.c: when everybody ends, with a prompt that begins now or without one: into `ends` of each. Without one `kept`
 * says who ends in time. With one: whether all of those still do, and *ret_own whether it does itself.
 */
bool glk_planner_walk(
	struct glake_planner *p, const struct glk_planner_asks *asks, bool *ret_own);

int glk_planner_new(
	const struct glake_planner_options *o, struct glake_planner **ret_planner);
void glk_planner_free(struct glake_planner *p);
/* As the public ones, with numbers that were looked at: an id is one of a request that is there, or that has ended
 * while layers of it move. */
int glk_planner_submit(struct glake_planner *p, int64_t now,
	const struct glake_planner_request *given, uint32_t *ret_id);
int glk_planner_end(struct glake_planner *p, int64_t now, uint32_t id);
int glk_planner_next(
	struct glake_planner *p, int64_t now, struct glake_planner_work *ret_work);
int glk_planner_done(struct glake_planner *p, int64_t now);
int glk_planner_move(
	struct glake_planner *p, int64_t now, struct glake_planner_copy *ret_move);
int glk_planner_moved(struct glake_planner *p, int64_t now, uint32_t id, uint32_t layer,
	uint32_t layers, int result);
void glk_planner_memory(struct glake_planner *p, int64_t now, uint64_t bytes);

#endif
