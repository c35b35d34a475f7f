/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ranges are cut into pieces: see job.h. */
#include "tier/io/job.h"

#include <assert.h>

static struct glk_copy_piece piece_of(
	const struct glake_copy_range *r, uint64_t at, uint64_t bytes)
{
	return (struct glk_copy_piece){.dst = (uintptr_t)r->dst + at,
		.src = (uintptr_t)r->src + at,
		.bytes = bytes};
}

static void skip_empty(struct glk_job *job)
{
	const struct glake_copy_range *r = job->copy->ranges;

	while (job->front < job->back && job->front_at == r[job->front].bytes) {
		job->front++;
		job->front_at = 0;
	}
	while (job->front < job->back && !job->back_at) {
		job->back--;
		job->back_at = job->front < job->back ? r[job->back - 1].bytes : 0;
	}
}

/* How much of the range at the front or the back is left. */
static uint64_t left_there(const struct glk_job *job, bool front)
{
	const struct glake_copy_range *r = job->copy->ranges;

	if (job->back - job->front == 1)
		return job->back_at - job->front_at;
	return front ? r[job->front].bytes - job->front_at : job->back_at;
}

static struct glk_copy_piece take_front(struct glk_job *job, uint64_t most)
{
	uint64_t left = left_there(job, true), bytes = left < most ? left : most;
	struct glk_copy_piece piece =
		piece_of(&job->copy->ranges[job->front], job->front_at, bytes);

	piece.offset = job->begin;
	job->front_at += bytes;
	job->begin += bytes;
	return piece;
}

static struct glk_copy_piece take_back(struct glk_job *job, uint64_t most)
{
	uint64_t left = left_there(job, false), bytes = left % most ? left % most : most;
	struct glk_copy_piece piece;

	job->back_at -= bytes;
	job->end -= bytes;
	piece = piece_of(&job->copy->ranges[job->back - 1], job->back_at, bytes);
	piece.offset = job->end;
	return piece;
}

/* It is taken again before any other is. */
void glk_job_hand_back(struct glk_job *job, const struct glk_copy_piece *piece)
{
	assert(job->returns < GLK_JOB_RETURNED);
	if (job->returns < GLK_JOB_RETURNED)
		job->returned[job->returns++] = *piece;
	else
		glk_job_lose(job, piece->offset, piece->bytes);
}

static struct glk_copy_piece take_returned(struct glk_job *job, uint64_t most)
{
	struct glk_copy_piece *rest = &job->returned[job->returns - 1], piece = *rest;

	if (piece.bytes <= most) {
		job->returns--;
		return piece;
	}
	piece.bytes = most;
	rest->dst += most;
	rest->src += most;
	rest->offset += most;
	rest->bytes -= most;
	return piece;
}

struct glk_copy_piece glk_job_take(struct glk_job *job, bool front, uint64_t most)
{
	if (job->returns)
		return take_returned(job, most);
	skip_empty(job);
	return front ? take_front(job, most) : take_back(job, most);
}

void glk_job_lose(struct glk_job *job, uint64_t offset, uint64_t bytes)
{
	struct glk_io_copy *copy = job->copy;

	struct glake_copy_part *part = copy->lost;
	uint64_t end = offset + bytes;

	if (!bytes)
		return;
	if (copy->lost_count < GLK_IO_LOST_MAX) {
		part[copy->lost_count++] =
			(struct glake_copy_part){.offset = offset, .bytes = bytes};
		return;
	}
	/* one, with all that lies between them: who is told copies it again */
	for (unsigned i = 0; i < copy->lost_count; i++) {
		offset = part[i].offset < offset ? part[i].offset : offset;
		end = part[i].offset + part[i].bytes > end
			? part[i].offset + part[i].bytes
			: end;
	}
	part[0] = (struct glake_copy_part){.offset = offset, .bytes = end - offset};
	copy->lost_count = 1;
}
