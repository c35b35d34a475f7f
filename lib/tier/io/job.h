/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_JOB_H
#define GLK_TIER_IO_JOB_H

/* One copy while it is queued. */
#include "tier/io/io.h"

/* Handed back at a time: a merged one, that at hand, and what is left of another. Each is taken again before any
 * other piece is. */
#define GLK_JOB_RETURNED 4

struct glk_copy_piece {
	uint64_t dst, src, bytes;
	uint64_t offset; /* in the whole copy */
};

struct glk_job {
	struct glk_io *io;
	struct glk_io_copy *copy;
	int target, turn;
	size_t front, back; /* ranges in which they stand; back is one behind */
	uint64_t front_at,
		back_at;     /* bytes of the first one taken, and of the last one left */
	uint64_t begin, end; /* of what nobody took yet, in the whole copy */
	struct glk_copy_piece merged; /* of no bytes: none */
	struct glk_copy_piece returned[GLK_JOB_RETURNED];
	unsigned returns;
	struct glk_plan_path path[GLK_IO_GPUS + 1]; /* the first of them is direct */
	int relay[GLK_IO_GPUS + 1];
	unsigned count;
	uint64_t used; /* relays that carry a piece of it, a bit each */
	/* Behind the last piece over each; NULL: there is none that its stream is not behind. */
	struct glk_drv_event *newest[GLK_IO_GPUS];
	uint64_t begun;		     /* and whose first stream waits for the start */
	struct glk_drv_event *start; /* behind what its stream had to do before */
	bool unsure;		     /* what is under way cannot be waited for */
	bool went;		     /* a direct piece was queued */
	double now;
};

/*
 * cut.c: pieces of what is left, at most `most` bytes, one after the other from the front or from the
 * back of all ranges. What was handed back is taken first. There has to be something left.
 */
struct glk_copy_piece glk_job_take(struct glk_job *job, bool front, uint64_t most);
void glk_job_hand_back(struct glk_job *job, const struct glk_copy_piece *piece);
/* A part will not be copied. */
void glk_job_lose(struct glk_job *job, uint64_t offset, uint64_t bytes);

/* job.c: queues it over several paths, if there are. Whether it was; under the lock. */
bool glk_job_run(struct glk_job *job);

#endif
