/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_PLANNER_H
#define GLAKE_PLANNER_H

/*
 * Which requests of a serving engine run, and which layers of their caches are on the GPU meanwhile.
 *
 * A prompt needs the memory of its whole cache before its first token, so requests wait for others to end while the
 * GPU could compute. But a request that has its first token may let the next ones wait, as long as its time per token
 * stays within what was promised, and its cache may be on the host until then. So a prompt is computed with few layers'
 * memory: the first layers leave for the host as they are done, and come back when there is room, before the first step.
 * The planner decides who is computed when, how many layers leave, and who comes back; it computes when each running
 * request would end and admits nobody who would break a promise made to another one. Where memory is there for all
 * of a request nothing leaves, and it is first come, first served.
 *
 * It is arithmetic on a clock that the caller tells: it has no thread, calls no driver, knows no GPU, and says the same
 * for the same calls. The engine asks what to compute, does it, and tells when it is done:
 *
 *	glake_planner_submit(p, now, &request, &id);		whenever one comes
 *	for (;;) {
 *		while (!glake_planner_move(p, now, &move))	copies to queue; glake_planner_moved() when one has ended
 *			...
 *		glake_planner_next(p, now, &work);
 *		a prompt is computed, or a token for each of work.batch
 *		glake_planner_done(p, now);			and glake_planner_end() for those that have ended
 *	}
 *
 * What work takes is first reckoned by struct glake_planner_cost, then corrected by what it took: an engine whose figures
 * are wrong makes other promises after some steps, and stands still at no time.
 *
 * Source: the idea is LayerKV's (arXiv:2410.00428); the arithmetic is this library's own.
 *
 * Threads	one at a time in a planner; any in different ones
 */
#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake_planner;

enum glake_planner_policy {
	GLAKE_PLANNER_LAYERS = 0, /* as said above */
	GLAKE_PLANNER_FIRST = 1,  /* first come, first served: nothing leaves */
	/* first come, first served: who came last leaves as a whole for one that waits, and comes back when there is room */
	GLAKE_PLANNER_SWAP = 2,
};

/* What work takes, in ns; none is negative. */
struct glake_planner_cost {
	double prompt;	      /* of a prompt */
	double prompt_token;  /* of each of its tokens */
	double prompt_square; /* and of the square of how many these are */
	double step;	      /* of a step */
	double step_sequence; /* of each of its sequences */
	double step_token;    /* of each token that these have */
};

#define GLAKE_PLANNER_REQUESTS_MAX 65536
#define GLAKE_PLANNER_LAYERS_MAX   4096

struct glake_planner_options {
	size_t sz;	      /* sizeof(struct glake_planner_options) */
	uint32_t layers;      /* of the model */
	uint64_t layer_bytes; /* of a token in the cache of a layer */
	uint64_t memory;      /* bytes of the GPU that caches may have */
	uint64_t
		host; /* bytes of the host that layers may have; 0: as many as they want */
	double out, back; /* bytes a ns that the link carries to the host, and back */
	struct glake_planner_cost cost;
	uint32_t requests; /* the most at a time, that wait or run */
	uint32_t batch;	   /* sequences of a step; 0: as many as there are */
	int policy;	   /* enum glake_planner_policy */
};

/*
 * Makes a planner. *ret_planner is the caller's, to end by glake_planner_close.
 *
 * Returns 0, or -EINVAL (a number out of range, NULL), -E2BIG (options), -ENOMEM (NOMEM_HOST). Thread: any. Blocks: no.
 * Driver calls: none.
 */
GLAKE_EXPORT int glake_planner_open(
	const struct glake_planner_options *options, struct glake_planner **ret_planner);

/* Ends it; NULL is nothing. Thread: one. Blocks: no. Driver calls: none. */
GLAKE_EXPORT void glake_planner_close(struct glake_planner *planner);

struct glake_planner_request {
	size_t sz;	 /* sizeof(struct glake_planner_request) */
	uint32_t prompt; /* tokens; 1 or more */
	uint32_t
		generated; /* tokens that are expected, the first among them; 1 or more */
	int64_t first; /* ns from its arrival to the first token, as promised; 0: nothing is */
	int64_t token; /* ns from there to the end, by tokens that come after the first; 0: nothing is */
};

/*
 * A request has come at a time `now`, in ns of any clock. A time before one that was told is taken to be that.
 *
 * ret_id	its number, until glake_planner_end
 *
 * Returns 0, or -EINVAL (0 tokens, a negative objective, NULL), -E2BIG (its options), -ERANGE (LIMIT: alone it would
 * not have room in the memory), -EBUSY (BUSY: as many are there as the planner was made for). Thread: one. Blocks: no.
 * Driver calls: none.
 */
GLAKE_EXPORT int glake_planner_submit(struct glake_planner *planner, int64_t now,
	const struct glake_planner_request *request, uint32_t *ret_id);

/*
 * It has ended, or is given up, at whatever stage. Its memory is another's, that of layers on their way when these
 * are told to have moved.
 *
 * Returns 0, or -EINVAL (no such request), -EBUSY (BUSY: its prompt is being computed, or a token of it: after
 * glake_planner_done). Thread: one. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_planner_end(
	struct glake_planner *planner, int64_t now, uint32_t id);

enum glake_planner_what {
	GLAKE_PLANNER_IDLE = 0, /* nothing, until something is told */
	GLAKE_PLANNER_PROMPT = 1,
	GLAKE_PLANNER_STEP = 2, /* a token more for each of a batch */
};

/* A promise that cannot be kept, whatever comes first. */
#define GLAKE_PLANNER_LATE_FIRST 0x1u
#define GLAKE_PLANNER_LATE_TOKEN 0x2u
/* It has more tokens than the memory has room for, and has to be ended, or the memory to grow. */
#define GLAKE_PLANNER_NO_ROOM 0x4u

struct glake_planner_work {
	size_t sz; /* sizeof(struct glake_planner_work) */
	int what;  /* enum glake_planner_what */
	/* Of a prompt: */
	uint32_t id;
	uint32_t
		away; /* layers, from the first, that leave as soon as they are done; each is told to have moved */
	uint32_t
		room; /* layers that there is memory for at a time; all of them where none leaves */
	uint32_t flags; /* GLAKE_PLANNER_LATE_... */
	/* Of a step: */
	uint32_t count;
	const uint32_t *batch; /* `count` ids, until the next call */
	int64_t takes;	       /* ns, as reckoned */
};

/*
 * Says what is to be computed next. It is under way then, until glake_planner_done; idle is not.
 *
 * Returns 0, or -EBUSY (BUSY: something is under way), -EINVAL (NULL), -E2BIG. Thread: one. Blocks: no; at most
 * 200 us with 256 requests. Driver calls: none.
 */
GLAKE_EXPORT int glake_planner_next(
	struct glake_planner *planner, int64_t now, struct glake_planner_work *ret_work);

/*
 * What was under way is done, and has taken from then to now.
 *
 * Returns 0, or -EINVAL (nothing is under way, NULL). Thread: one. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_planner_done(struct glake_planner *planner, int64_t now);

/* Layers of a request that are to be copied. */
struct glake_planner_copy {
	size_t sz; /* sizeof(struct glake_planner_copy) */
	uint32_t id;
	uint32_t layer, layers; /* the first, and how many */
	int back;		/* 1: to the GPU, where their memory is to be had first */
	int64_t deadline; /* ns: when they had better be there; INT64_MAX: nobody waits */
};

/*
 * Gives the next move, which is under way then. Moves one way are to be made one after the other, as they are given: those
 * that come back in the order of their deadlines, as far as room let them, so that a copy engine which takes its copies
 * in turn has nothing to choose.
 *
 * Returns 0, or -EAGAIN (there is none at present; no record), -EINVAL (NULL), -E2BIG. Thread: one. Blocks: no. Driver
 * calls: none.
 */
GLAKE_EXPORT int glake_planner_move(
	struct glake_planner *planner, int64_t now, struct glake_planner_copy *ret_move);

/*
 * Layers have moved: those of a move, or of a prompt whose layers leave as they are done.
 *
 * result	0; or an errno, negative: they are where they were. Those of a prompt, and those that come, are moved again;
 *		others that did not leave may stay
 *
 * Returns 0, or -EINVAL (no such layers are on their way). Thread: one. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_planner_moved(struct glake_planner *planner, int64_t now,
	uint32_t id, uint32_t layer, uint32_t layers, int result);

/*
 * Changes the memory that caches may have; less than what is in use takes effect as requests end and layers leave.
 *
 * Returns 0, or -EINVAL (NULL). Thread: one. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_planner_memory(
	struct glake_planner *planner, int64_t now, uint64_t bytes);

enum glake_planner_stage {
	GLAKE_PLANNER_WAITS = 0,   /* for its prompt to be computed */
	GLAKE_PLANNER_PROMPTS = 1, /* which is under way */
	GLAKE_PLANNER_AWAY =
		2, /* it has its first token; layers of it are on the host, or on their way there */
	GLAKE_PLANNER_COMES = 3, /* they are on their way back */
	GLAKE_PLANNER_RUNS = 4,	 /* it has a token more with each step */
};

struct glake_planner_state {
	size_t sz;	 /* sizeof(struct glake_planner_state) */
	int stage;	 /* enum glake_planner_stage */
	uint32_t tokens; /* that it has generated */
	uint32_t here;	 /* layers on the GPU, or on their way from it */
	uint32_t flags;	 /* GLAKE_PLANNER_LATE_... */
	int64_t until; /* ns: when it has to end for its promise; INT64_MAX: it has none, or not yet */
	int64_t ends; /* ns: when it would end, as reckoned; INT64_MAX: it waits for its prompt */
};

/* Describes one. Returns 0, or -EINVAL (no such request, NULL), -E2BIG. Thread: one. Blocks: no. Driver calls: none. */
GLAKE_EXPORT int glake_planner_state_get(const struct glake_planner *planner, uint32_t id,
	struct glake_planner_state *ret_state);

struct glake_planner_figures {
	size_t sz; /* sizeof(struct glake_planner_figures) */
	uint32_t waiting, running, away;
	uint64_t memory, used; /* bytes; those that requests have or were promised */
	uint64_t host;	       /* bytes of layers there, or on their way there */
	uint64_t prompts;      /* that were computed, */
	uint64_t prompts_away; /* of which layers left */
	uint64_t steps;
	uint64_t out, back; /* bytes that moved */
	uint64_t held_off;  /* times that a prompt waited for a promise to others */
	uint64_t
		renegotiated; /* promises that could not be kept any more, for whatever reason */
	double prompt_factor,
		step_factor; /* what work took over what it was reckoned to */
	uint64_t layers_back,
		layers_late; /* that came back; of these, after their deadline */
};

/* Gives them. Returns 0, or -EINVAL (NULL), -E2BIG. Thread: one. Blocks: no. Driver calls: none. */
GLAKE_EXPORT int glake_planner_figures_get(
	const struct glake_planner *planner, struct glake_planner_figures *ret_figures);

GLAKE_END_DECLS

#endif
