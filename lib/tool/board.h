/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_BOARD_H
#define GLK_TOOL_BOARD_H

/*
 * Boards of figures of other processes, glake/board.h: what one says, and those of all processes
 * that are watched. A process of an older library, or on an older kernel, has none, and is asked.
 */
#include "tool/process.h"

#include <glake/board.h>

/* One, mapped. Zeroed, there is none. */
struct board {
	const struct glake_board *at;
	size_t size;
	void *copy;					 /* as large */
	uint64_t state, writes, written_ns, interval_ns; /* as they were read */
};

/* Takes a descriptor, which the caller keeps. 0; -EPROTO: it is no board, or not sealed; -ENOMEM. */
int board_open(int fd, struct board *ret_board);
/* Its figures at one moment as stats would answer them, but for what tells the process. 0; -EPROTO;
 * -EAGAIN: it was being written all the time. */
int board_read(struct board *board, struct json_object **ret_stats);
void board_close(struct board *board);

/* boards.c: processes whose boards are kept open from one look to the next. */
struct boards;

/* As often as it is looked. NULL: there is no memory. */
struct boards *boards_new(int64_t interval_ns);
void boards_free(struct boards *boards);
/* It is looked so often from now on. */
void boards_pace(struct boards *boards, int64_t interval_ns);
/* As process_look(room, "stats"), and as process_ask() for "stats" of one. */
int boards_look(struct boards *boards, int room, struct process **ret_list);
int boards_ask(struct boards *boards, int room, pid_t pid,
	struct json_object **ret_result, char *why);

#endif
