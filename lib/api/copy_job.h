/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_COPY_JOB_H
#define GLK_API_COPY_JOB_H

/*
 * Jobs of copies: values {generation, index}, like the handles of contexts. They lie in one table
 * of the process, so that one that outlives its context is answered.
 */
#include "api/context.h"

#include <glake/copy.h>

/* What a job is to tell. */
struct glk_copy_told {
	struct glake_copy_state state; /* stage is found out */
	const struct glake_copy_part *parts;
	struct glk_feed *feed; /* that tells the rest; NULL: there is none */
};

/* A job with an event of a GPU, nothing recorded yet. 0, -ENOMEM (class LIMIT) or the driver's error. */
int glk_copy_job_new(struct glake *ctx, struct glk_context *context, int device,
	struct glake_copy_job **ret_job);
/* What was queued, and the event on its stream. 0; after an error the job is no more. */
int glk_copy_job_set(struct glake_copy_job *job, const struct glk_copy_told *copy,
	struct CUstream_st *stream);
/* Nothing was queued. */
void glk_copy_job_drop(struct glake_copy_job *job);
/* The context is about to be closed, and with it what its jobs have of the driver. */
void glk_copy_jobs_leave(struct glake *ctx, struct glk_context *context);

#endif
