/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_TOP_H
#define GLK_TOOL_TOP_H

/*
 * glakectl top, inside:
 *
 *	top.c		the command, and tables without a window
 *	top_sample.c	what all processes hold now, and what they did since the last look
 *	top_lines.c	the same as lines of text, as wide and as many as there is room for
 *	top_json.c	the same for programs
 *	top_window.c	the window, made with ncurses; top_no_window.c where that was not there
 *
 * Lines are ASCII, a byte a column, whatever processes call themselves.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TOP_RUNGS     12
#define TOP_RUNG_NAME 20
#define TOP_WIDTH_MAX 512 /* of a line; a wider window stays empty on its right */

/* A GPU of a process, over its contexts; of one that uses none, or does not answer, `gpu` is -1. */
struct top_row {
	pid_t pid;
	int gpu;
	int64_t ns; /* when its figures were gathered */
	int err;    /* it does not answer */
	char why[160];
	char program[64];
	uint64_t live, reserved, away, placed, host_held; /* bytes */
	uint64_t allocs, hits, misses;			  /* since it began */
	size_t rungs;
	struct top_rung {
		char name[TOP_RUNG_NAME];
		uint64_t count, since; /* in all, since the last look */
	} rung[TOP_RUNGS];
	bool known; /* at the last look too, so that what follows is */
	double allocs_s, misses_s,
		hit; /* a second; of requests, 0 to 1, or -1: there were none */
};

struct top_sample {
	int64_t ns; /* when it was taken */
	struct top_row *rows;
	size_t count, room;
	size_t processes;
	char ended
		[160]; /* who was there at the last look and is not any more; "": nobody */
};

enum top_sort {
	TOP_SORT_RESERVED,
	TOP_SORT_LIVE,
	TOP_SORT_RATIO,
	TOP_SORT_ALLOCS,
	TOP_SORT_MISSES,
	TOP_SORT_PID,
	TOP_SORTS,
};

/* What is wanted of all processes. */
struct top_wanted {
	char **names; /* numbers or programs, ended by NULL; none: all */
	enum top_sort sort;
};

/* Looks again. 0, or -errno after a message; then nothing is changed. */
int top_sample_take(int room, const struct top_wanted *wanted, struct top_sample *sample);
void top_sample_sort(struct top_sample *sample, enum top_sort sort);
void top_sample_fini(struct top_sample *sample);

const char *top_sort_name(enum top_sort sort);
/* The head of the table, and a row, in lines of `width` with a zero behind. */
void top_head_line(int width, char *line);
void top_row_line(const struct top_row *row, int width, char *line);
/* Reserved over live of all rows, how many processes there are: one line. */
void top_sum_line(const struct top_sample *sample, int width, char *line);
/* A row at length, a line for each `index` from 0; false past the last. */
bool top_detail_line(const struct top_row *row, int index, int width, char *line);

void top_print_table(const struct top_sample *sample);
/* 0 or -EIO. */
int top_print_json(const struct top_sample *sample);

/* Runs the window until it is closed, or `count` looks, 0 for no end. The exit status. */
int top_window(int room, struct top_wanted *wanted, int64_t interval_ns, unsigned count);

#endif
