/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_STRESS_TIDE_H
#define GLK_STRESS_TIDE_H

/*
 * Threads whose blocks, on two GPUs, leave and come back in all ways there are, side by side: spilled, in
 * ranges too, cold, with a tag, hinted, suspended, in place, lent, compressed; some pinned; while calls of
 * the driver may fail. Each thread has blocks of its own and does to them what it likes. What must not be
 * while others use blocks, a quiet point or a suspension, waits until nobody queues work; what that finds
 * on its way are calls of others that move blocks, ask for them and free them.
 *
 * Every so often all threads meet, and one looks at everything.
 */
#include <glake/glake.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

#define GPUS	2
#define LANES	3 /* streams of a thread on each GPU, the default one among them */
#define HANDS	4
#define BLOCKS	10
#define EVENTS	4
#define TICKETS 4
#define TAGS	2

#define UNKNOWN (-1) /* contents */

struct block {
	char *at;
	size_t size;
	int gpu;
	int tag;	/* -1: none */
	int last;	/* lane of the last use */
	unsigned told;	/* lanes that the library knows of */
	int contents;	/* a place in one row of numbers */
	uint32_t drops; /* of its tag, when they were written */
	bool away; /* the program sent it away, or may not use it since it is cold or hinted */
	bool sent; /* by glake_spill, and nothing may have it back but glake_fetch */
	bool came; /* some of it has come back since, or all, of which a suspension took some */
	int advice;
	int pins;
};

struct world;

/* A thread. */
struct hand {
	struct world *w;
	pthread_t thread;
	uint64_t random;
	struct CUstream_st *lane[GPUS][LANES];
	struct CUevent_st *event[GPUS][EVENTS];
	unsigned next_event;
	struct glake_ticket *ticket[TICKETS];
	struct block block[BLOCKS];
	uint64_t turns, moves, refused, compared;
	const char *doing;
};

struct world {
	struct glake *ctx;
	struct glk_drv *drv;
	struct hand hand[HANDS];
	unsigned hands, turns; /* of each hand, between two meetings */
	pthread_barrier_t meeting;
	/* Of each GPU: who queues work reads, who needs that nobody does writes. */
	pthread_rwlock_t use[GPUS];
	/* Written by the latter. */
	bool suspended[GPUS], tag_suspended[GPUS][TAGS];
	bool perhaps
		[GPUS]; /* suspended by a call that failed, which may have changed nothing */
	uint32_t drops[GPUS][TAGS];
	uint32_t tag[TAGS];
	bool faults, ahead;
	glk_atomic(bool) lost; /* some contents, by faults of the driver */
	glk_atomic(bool) wrong;
	uint64_t packed; /* meetings at which something was compressed */
	char text[640];
};

void tides_open(struct world *w, uint64_t seed);
/* All threads do so many turns between each two meetings. */
void tides_run(struct world *w, unsigned turns, unsigned meetings);
/* Everything is given back. */
void tides_close(struct world *w);

/* tides.c: warnings of the library that nobody expected so far; that they were; nothing can be tested. */
int tides_warnings(void);
void tides_expected(void);
void tides_bail(const char *why) __attribute__((noreturn));

/* ---- Between the files. ---- */

uint64_t below(struct hand *h, uint64_t n);
bool chance(struct hand *h, unsigned percent);
void failed(struct hand *h, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* For a call that answers 0, or `may`, or, where the driver fails, what it may; whether it was 0. */
bool judge(struct hand *h, int err, const int *may);
#define MAY(...) ((const int[]){__VA_ARGS__, 0})
struct glake_block asked(struct hand *h, const struct block *b);
/* Whether contents were lost, by faults of the driver: a warning has said that something lies nowhere any
 * more, since the driver took nothing back either. */
bool is_lost(struct hand *h);
/* While its GPU is used. */
bool usable(struct hand *h, const struct block *b);

/* With what was written, when all work on it has ended. What others lose by their moves is their own, or
 * nobody used the GPU meanwhile. */
void compare(struct hand *h, const struct block *b);
void draw_numbers(void);

/* look.c: one looks at all blocks of a GPU, while the others wait; all meet for that. */
void look(struct hand *first, int gpu);
void meet(struct hand *h);

/* deeds.c */
void deed_move(struct hand *h);
void deed_suspend(struct hand *h);
/* One thread, alone: nothing is suspended any more. */
void deed_resume_all(struct hand *h);

#endif
