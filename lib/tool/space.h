/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_SPACE_H
#define GLK_TOOL_SPACE_H

/*
 * The address space of a process as it tells it at its socket: of each GPU that it uses, the runs of
 * glake/map.h.
 */
#include <glake/map.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Of all GPUs; what tells more is no process of glake. */
#define SPACE_RUNS_MAX ((size_t)1 << 23)
#define SPACE_GPUS_MAX 1024

struct space_gpu {
	unsigned context;
	int gpu;
	uint64_t serial;   /* of the context that was read */
	uint64_t reserved; /* bytes held on it when it was first asked */
	uint64_t changed;  /* requests, frees and moves while it was read */
	struct glake_run *runs;
	size_t count;
};

struct space {
	pid_t pid;
	char program[64], version[32];
	struct space_gpu *gpus;
	size_t count;
	bool partial; /* without a GPU that changed too fast */
};

/* Reads that of a process, named by its number or its program; NULL: the only one. `gpu` alone, or
 * -1: all. GPUs whose context has gone meanwhile, or that change too fast, are left out after a
 * message. 0, or 1 after a message. */
int space_read(const char *name, int gpu, struct space *ret_space);
void space_free(struct space *space);

/* What people are told where it changed while it was read. */
void space_say_changed(const struct space *space);

/* Bytes that were asked for by live blocks, wherever they are. */
uint64_t space_live(const struct space_gpu *gpu);

/* space_cells.c: which kind a run is shown as. */
enum space_by {
	SPACE_BY_STATE = 0,
	SPACE_BY_STREAM,
	SPACE_BY_SIZE,
};

#define SPACE_KINDS_MAX 16

struct space_kind {
	char name[24];
	char letter;
	uint64_t bytes;	 /* of all runs that are shown so */
	uint64_t stream; /* by stream */
};

struct space_kinds {
	enum space_by by;
	unsigned count;
	struct space_kind kind[SPACE_KINDS_MAX];
};

/* The kinds of all runs of a GPU, with their bytes. The first is addresses without memory. */
void space_kinds(const struct space_gpu *gpu, enum space_by by, struct space_kinds *ret);

/*
 * A picture: rows of cells, each of so many bytes, which shows the kind that has most of it. Where
 * addresses without memory would fill rows, they are left out, and a row tells how many.
 */
struct space_row {
	uint64_t address;
	uint64_t gap;  /* bytes left out; then it has no cells */
	unsigned used; /* cells */
	unsigned char *kind;
};

struct space_picture {
	unsigned columns, count;
	uint64_t cell; /* bytes */
	struct space_row *rows;
	unsigned char *cells;
};

/* In at most `most` rows, or a few more where it is in many pieces. 0 or -ENOMEM. */
int space_draw(const struct space_gpu *gpu, const struct space_kinds *kinds,
	unsigned columns, unsigned most, struct space_picture *ret);
void space_picture_free(struct space_picture *picture);

#endif
