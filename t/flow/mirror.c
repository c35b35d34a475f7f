/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Mirrors by the public functions: the lists of an exporter, blocks that are opened again, what has
 * gone back to the driver, and all that is no use of them. One process is both sides.
 */
#include "context.h"

#include <fcntl.h>

#define SIZE   (20 * MIB)
#define PIECES 64

static const char *const settings[] = {"share.keep=64MiB", "map.span=64GiB", NULL};

struct side {
	struct glake *ctx;
	void *ptr;
	int asked;
};

static int fds(void *arg, size_t first, size_t count, int *ret_fds)
{
	struct side *side = arg;

	side->asked++;
	return glake_export_fds(side->ctx, side->ptr, first, count, ret_fds);
}

static int none(void *arg, size_t first, size_t count, int *ret_fds)
{
	return -ESRCH;
}

static uint64_t at(const void *ptr)
{
	return (uint64_t)(uintptr_t)ptr;
}

static void refused(struct side *side, struct glake_mirror *mirror, struct glake *other,
	const struct glake_piece *pieces, size_t count)
{
	struct glake_mirror *foreign = NULL;
	struct glake_piece few[1];
	void *there = side;
	size_t found = 5;
	int fd = -1;

	is_int(glake_export_list(side->ctx, side->ptr, few, 1, &found), -EINVAL,
		"a list that is too short");
	is_int(glake_export_list(side->ctx, NULL, few, 1, &found), -EINVAL, "no block");
	is_int(glake_export_list(side->ctx, side->ptr, NULL, 9, &found), -EINVAL,
		"no list");
	is_int((int64_t)found, 5, "  the output is left alone");
	is_int(glake_export_fds(side->ctx, side->ptr, count, 1, &fd), -EINVAL,
		"a piece that there is not");
	is_int(glake_export_fds(side->ctx, side->ptr, 0, 0, &fd), -EINVAL, "no piece");
	is_int(glake_export_fds(side->ctx, side->ptr, 0, SIZE_MAX, &fd), -EINVAL, "all");
	is_int(glake_export_gone(side->ctx, NULL), -EINVAL, "no place for a number");
	is_int(glake_mirror_new(side->ctx, 7, &foreign), -EINVAL,
		"a GPU that there is not");
	is_int(glake_mirror_new(side->ctx, 0, NULL), -EINVAL, "no place for a mirror");
	is_int(glake_mirror_new(other, 0, &foreign), 0, "a mirror of another context");
	is_int(glake_mirror_open(side->ctx, foreign, at(side->ptr), pieces, count, SIZE,
		       fds, side, &there),
		-EINVAL, "  opens nothing here");
	is_int(glake_mirror_close(side->ctx, foreign, there, SIZE), -EINVAL,
		"  nor closes");
	is_int(glake_mirror_trim(side->ctx, foreign, 0, NULL), -EINVAL, "  nor lets go");
	is_int(glake_mirror_end(side->ctx, foreign), -EINVAL, "  nor ends");
	is_int(flow_error().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	is_int(glake_mirror_end(other, foreign), 0, "  but there");
	is_int(glake_mirror_open(side->ctx, mirror, at(side->ptr), pieces, 0, SIZE, fds,
		       side, &there),
		-EINVAL, "no pieces");
	is_int(glake_mirror_open(side->ctx, mirror, at(side->ptr), pieces, count, SIZE,
		       NULL, side, &there),
		-EINVAL, "nobody who gives descriptors");
	is_int(glake_mirror_open(side->ctx, mirror, at(side->ptr), pieces, count, SIZE,
		       none, side, &there),
		-ESRCH, "one who gives none");
	is_int(glake_mirror_open(side->ctx, mirror, at(side->ptr), pieces, count,
		       SIZE - 1, fds, side, &there),
		-EINVAL, "a byte less");
	ok(there == side, "  the address is left alone");
}

static void forked(struct side *side, struct glake_mirror *mirror, void *there)
{
	size_t kept = 3;
	int status = 1;
	pid_t pid = fork();

	if (!pid)
		_exit(glake_mirror_close(side->ctx, mirror, there, SIZE) ||
			glake_mirror_trim(side->ctx, mirror, 0, &kept) || kept ||
			glake_mirror_end(side->ctx, mirror));
	waitpid(pid, &status, 0);
	is_int(status, 0, "in a forked child nothing happens");
}

int main(void)
{
	struct side side = {.ctx = flow_open(settings)};
	struct glake *other = flow_open(settings);
	struct glake_piece pieces[PIECES];
	struct glake_mirror *mirror = NULL;
	uint64_t before = 9, after = 0;
	size_t count = 0, kept = 9;
	void *there = NULL, *again = NULL;

	tap_plan_later();
	side.ptr = flow_alloc(side.ctx, SIZE, NULL);
	*(volatile unsigned char *)side.ptr = 41;
	is_int(glake_mirror_new(side.ctx, 0, &mirror), 0, "a mirror");
	is_int(glake_export_list(side.ctx, side.ptr, pieces, PIECES, &count), 0,
		"a list");
	ok(count && pieces[0].fd == -1 && pieces[0].number, "  of numbers");
	refused(&side, mirror, other, pieces, count);
	side.asked = 0;
	is_int(glake_mirror_open(side.ctx, mirror, at(side.ptr), pieces, count, SIZE, fds,
		       &side, &there),
		0, "opened");
	is_int(*(volatile unsigned char *)there, 41, "  the same memory");
	ok(side.asked, "  for which it was asked");
	forked(&side, mirror, there);
	is_int(glake_mirror_close(side.ctx, mirror, there, SIZE), 0, "closed");
	is_int(glake_mirror_close(side.ctx, mirror, there, SIZE), -EINVAL, "once");
	is_int(glake_mirror_trim(side.ctx, mirror, SIZE_MAX, &kept), 0, "what is kept");
	ok(kept >= SIZE, "  are its pages");
	side.asked = 0;
	is_int(glake_mirror_open(side.ctx, mirror, at(side.ptr), pieces, count, SIZE, fds,
		       &side, &again),
		0, "opened again");
	ok(again == there && !side.asked, "  without a question");
	glake_mirror_close(side.ctx, mirror, again, SIZE);
	is_int(glake_export_end(side.ctx, side.ptr), 0, "in again");
	is_int(glake_export_fds(side.ctx, side.ptr, 0, 1, &(int){0}), -EINVAL,
		"  no descriptor of it is given then");
	is_int(glake_export_gone(side.ctx, &before), 0, "nothing of it has gone");
	is_int((int64_t)before, 0, "  so far");
	glake_free(side.ctx, side.ptr, NULL);
	glake_trim(side.ctx, 0, 0, NULL);
	glake_export_gone(side.ctx, &after);
	ok(after >= SIZE, "and all of it when it was given back");
	is_int(glake_mirror_trim(side.ctx, mirror, 0, &kept), 0, "the mirror lets go");
	is_int((int64_t)kept, 0, "  of all");
	side.ptr = flow_alloc(side.ctx, SIZE, NULL);
	glake_export_list(side.ctx, side.ptr, pieces, PIECES, &count);
	glake_mirror_open(
		side.ctx, mirror, at(side.ptr), pieces, count, SIZE, fds, &side, &there);
	flow_close(side.ctx, 2); /* the block, and a mirror that has one open */
	flow_close(other, 0);
	return tap_done();
}
