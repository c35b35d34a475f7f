/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_STRESS_MOVER_H
#define GLK_STRESS_MOVER_H

/*
 * Random programs whose blocks leave the GPU and come back in all ways there are: spilled, cold, with a
 * tag, hinted, suspended, in place, lent, managed, compressed meanwhile; some pinned, some discardable; while calls of the
 * driver fail. A program is right by the rules of the headers and knows what is in its blocks, so
 * whatever the software device complains of, a figure that does not fit, and contents that are not what
 * was written are the library's fault.
 */
#include <glake/glake.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES	5 /* streams, the default one among them */
#define BLOCKS	20
#define EVENTS	8
#define TICKETS 6
#define TAGS	2

/* Contents are places in one row of numbers. */
#define UNKNOWN (-1)

struct block {
	char *at;
	size_t size;
	int tag; /* -1: none */
	bool managed;
	int of, last;  /* lanes of the request, and of the last use */
	unsigned told; /* lanes that the library knows of */
	int contents;
	bool away; /* the program sent it away, or may not use it since it is cold or hinted */
	bool sent; /* by glake_spill, and nothing may have it back but glake_fetch */
	int advice;
	int pins;
};

struct world {
	struct glake *ctx;
	struct glk_drv *drv;
	uint64_t random;
	struct CUstream_st *lane[LANES];
	struct CUevent_st *event[EVENTS];
	unsigned next_event;
	struct glake_ticket *ticket[TICKETS];
	uint32_t tag[TAGS];
	bool tag_suspended[TAGS], tag_dropped[TAGS];
	bool suspended, in_place, faults, peer, peer_away;
	bool perhaps; /* suspended by a call that failed, which may have changed nothing */
	bool packs;   /* tier.compress */
	bool tell;    /* what is done, and look after each turn */
	bool lost;    /* some contents, by faults of the driver */
	bool struck;  /* a call of the driver may fail in the call under way */
	int warned;   /* messages before it */
	struct block block[BLOCKS];
	uint64_t turns, moves, refused, struck_calls;
	uint64_t packed; /* rests after which something was compressed */
	const char *doing;
	const char *wrong;
	char text[640];
};

void world_open(struct world *w, uint64_t seed);
/* Everything is given back. */
void world_close(struct world *w);
void turn(struct world *w);

/* tiers.c: messages so far; the last one; and that they were expected. */
int messages(const char **ret_last);
void messages_expected(void);

/* ---- Between the files. ---- */

/* What blocks hold. */
void make_numbers(void);
uint64_t below(struct world *w, uint64_t n);
bool chance(struct world *w, unsigned percent);
void failed(struct world *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* For a call that answers 0, or `may`, or, where the driver fails, what it may; whether it was 0. */
bool judge(struct world *w, int err, const int *may);
#define MAY(...) ((const int[]){__VA_ARGS__, 0})
/* Around a call in which the driver may fail. */
void strike(struct world *w, const char *doing);
void calm(struct world *w);
struct glake_block asked(struct world *w, const struct block *b);
bool usable(struct world *w, const struct block *b);
/* All that can be looked at. */
void look(struct world *w);

/* moves.c */
void turn_move(struct world *w);
void turn_suspend(struct world *w);
void end_suspensions(struct world *w);

#endif
