/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_GRAPH_H
#define GLK_SOFT_GRAPH_H

/*
 * Graphs of the software device, while they are captured and after. Inside this folder;
 * all of it under the device's lock.
 *
 * A capture has a branch for each stream that takes part; the first is the stream it began on.
 * The nodes of a branch stand one behind the other. What else is ordered before a node is kept
 * as one number a branch: so many of its first nodes. That is enough to know of any two nodes
 * whether a path leads from one to the other.
 */
#include "soft/state.h"

#define SOFT_GRAPH_BITS	 10 /* of a handle; the others are its generation */
#define SOFT_GRAPHS	 ((1u << SOFT_GRAPH_BITS) - 1)
#define SOFT_NODES	 (1u << 17) /* of all graphs */
#define SOFT_GRAPH_NODES (1u << 14) /* of one */
#define SOFT_BRANCHES	 32u	    /* streams in one capture */

/* What the driver answers, by its numbers. */
enum {
	SOFT_ILLEGAL_STATE = 401,
	SOFT_UNSUPPORTED = 900,
	SOFT_INVALIDATED = 901,
	SOFT_MERGE = 902,
	SOFT_UNMATCHED = 903,
	SOFT_UNJOINED = 904,
	SOFT_ISOLATION = 905,
	SOFT_IMPLICIT = 906,
};

struct soft_node {
	struct soft_op op;	/* what it does; RECORD: nothing, an event stands here */
	uint32_t next;		/* in the order of capture */
	uint32_t below, above;	/* before it and behind it in its branch */
	uint32_t branch, place; /* its place in its branch, from 1 */
	int device;		/* of the stream it was captured on */
	uint32_t before[SOFT_BRANCHES];
};

struct soft_branch {
	uint32_t stream;
	uint32_t first, last;		/* nodes */
	uint32_t nodes;			/* in it */
	uint32_t work;			/* place of the last one that does something */
	uint32_t before[SOFT_BRANCHES]; /* what is ordered before its end */
};

struct soft_graph {
	uint64_t capture; /* number of its capture */
	uint32_t gen, first, last, nodes;
	uint32_t branches;
	bool live, capturing;
	const char *broken; /* the call that broke the capture, or NULL */
	/* Of its latest launch, the last operation: launches of a graph run one after another. */
	uint32_t op;
	uint64_t serial;
	struct soft_branch branch[SOFT_BRANCHES];
};

/* Puts an operation behind a stream that captures. 0; -EBUSY when the capture is broken,
 * -EINVAL and a record with both sides when it would race with another node, -ENOMEM. */
int glk_soft_graph_add(struct soft *soft, uint32_t stream, const struct soft_op *op,
	const char *call, uint32_t *ret_node);

/* An event of the program is recorded on a stream that captures. */
int glk_soft_capture_record(struct soft *soft, uint32_t stream, struct soft_event *e);
/* A stream waits for an event of the program, and the event or the stream is in a capture. */
int glk_soft_capture_wait(struct soft *soft, uint32_t stream, const struct soft_event *e);

static inline struct soft_graph *soft_graph_at(const struct soft *soft, uint32_t id)
{
	return glk_slab_at(&soft->graphs, id);
}

static inline struct soft_node *soft_node_at(const struct soft *soft, uint32_t id)
{
	return glk_slab_at(&soft->graph_nodes, id);
}

#endif
