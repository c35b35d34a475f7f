/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_WATCH_BOARD_H
#define GLK_WATCH_BOARD_H

/*
 * The board of figures that a process shares with those who watch it, glake/board.h: the side that
 * writes. A face of this folder beside watch.h.
 *
 * Figures are made ready beside the board, and then copied into it, so that a reader finds it being
 * written for some microseconds. There is one writer; readers are other processes, which hold no
 * lock and hold nobody up. Counters are not written into it where they are counted: those of
 * requests lie by thread, with what is no figure beside them, a good part of the others has to be
 * added up under a lock, and a forked child, which has the memory of its own counters, would count
 * into the board of its parent.
 *
 * Callers	one thread at a time
 * Fork		the board is not mapped in a child, which forgets it: glk_board_forget
 */
#include "watch/figures.h"

#include <glake/board.h>

/* Most bytes of a board; 64 contexts of 16 GPUs take a third of it. */
#define GLK_BOARD_MAX ((size_t)64 << 20)

struct glk_board {
	struct glake_board *at; /* NULL: there is none */
	size_t size;
	int fd;
	void *draft; /* as large: what is about to be written */
	size_t used; /* bytes of the schema that is in the board */
};

/*
 * Makes a board with room for these figures and half as many more, and writes nothing yet. 0; -EFBIG;
 * -EOPNOTSUPP (the kernel, before 5.1, cannot seal a board so that others only read it); -ENOMEM,
 * -EMFILE and what else the system answers.
 */
int glk_board_new(const struct glk_figures *figures, struct glk_board *ret_board);
/* 0; -ENOSPC: they do not fit, and nothing is written. */
int glk_board_write(struct glk_board *board, const struct glk_figures *figures,
	int64_t gathered_ns, uint64_t interval_ns);
/* Its figures stay, and this is said of them. */
void glk_board_rest(struct glk_board *board, enum glake_board_state state);
/* Unmaps it; readers keep theirs. The descriptor is the caller's to close. */
void glk_board_free(struct glk_board *board);
/* In a forked child, where it is not mapped. */
void glk_board_forget(struct glk_board *board);

#endif
