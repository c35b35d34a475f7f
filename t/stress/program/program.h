/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_STRESS_PROGRAM_H
#define GLK_STRESS_PROGRAM_H

/*
 * Random programs against the public face of the library, on a software device whose streams
 * run when they are stepped. A program is right by the rules of the headers: it orders its own
 * use of a block by events, and tells the library what the headers ask for. So whatever the
 * software device or the oracle complains of is the library's fault.
 */
#include "stress/program/oracle.h"

#include <glake/glake.h>

#define LANES	    6  /* streams at a time, the default stream among them */
#define GHOSTS	    16 /* streams that ended with work left */
#define BLOCKS	    16
#define EVENTS_MADE 8
#define NODES	    256
#define GRAPHS	    4

struct block {
	char *at;
	size_t size;
	uint32_t flags; /* it was asked for with */
	int of;		/* lane it was given to; -1: that stream has ended */
	unsigned users; /* lanes with work on it since their order was last established */
	unsigned told;	/* lanes the library knows to use it */
	int writer;	/* lane of the last write */
	int graph;	/* captured in this pool of graphs; -1: in none */
	bool captured;	/* given during the capture under way */
};

struct node {
	uint64_t addr;
	size_t size;
	bool write;
};

struct graph {
	bool used;
	uint32_t graph;
	struct glake_pool_id pool; /* of a capture that was not announced */
	struct node node[NODES];
	unsigned nodes;
	unsigned
		beside; /* lanes that used its blocks outside of it since its last launch */
};

struct world {
	struct glake *ctx;
	struct glk_drv *drv;
	struct oracle *oracle;
	uint64_t random;
	struct CUstream_st *lane[LANES];
	struct CUstream_st *ghost[GHOSTS]; /* the library was told that they end */
	unsigned ghosts;
	struct CUevent_st *event[EVENTS_MADE];
	unsigned next_event;
	bool notes; /* the program tells of its events */
	bool late;  /* the device is far behind */
	/* The books after each turn; else now and then, and after each program. */
	bool verify;
	struct block block[BLOCKS];
	/* One pool of graphs a program, and at most one capture at a time. */
	struct graph graph[GRAPHS];
	int capturing;	   /* graph under capture; -1: none */
	unsigned lanes_in; /* lanes that capture */
	int origin;
	int launched;	/* lane of the last launch; -1: none */
	unsigned begun; /* times that the pool was begun */
	uint64_t pool;	/* its number, a new one each time */
	bool announced;
	uint64_t requests, refused, lacked, shared, captures, launches, frees;
	const char *wrong;
	char text[640];
};

/* A context configured by a seed. */
void world_open(struct world *w, uint64_t seed);
/* Everything is given back: NULL, or what is wrong. */
const char *world_close(struct world *w);

/* The same for one in which something went wrong, and whatever else may. */
void world_abandon(struct world *w);

/* Runs the program of a seed and ends what it left: NULL, or what is wrong. */
const char *program_run(struct world *w, uint64_t seed);

/* ---- Between the files of a program. ---- */

uint64_t below(struct world *w, uint64_t n);
bool chance(struct world *w, unsigned percent);
void failed(struct world *w, const char *what);
/* For calls that may not fail. */
void must(struct world *w, int err, const char *what);
/* Puts a lane behind the work so far of another. */
void order(struct world *w, int before, int after);
void touch(struct world *w, struct block *b, int lane, bool write);
void give_back(struct world *w, struct block *b);
void ask(struct world *w, struct block *b, int lane);
/* The stream of a lane ends, with work left perhaps, and another one takes its place. */
void replace(struct world *w, int lane);

/* graph.c: a turn of one of these kinds, if it can be had. */
void turn_capture(struct world *w);
void turn_in_capture(struct world *w);
void turn_launch(struct world *w);
void end_capture(struct world *w);
void end_graphs(struct world *w);

#endif
