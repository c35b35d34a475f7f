/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_FEED_H
#define GLK_TIER_IO_FEED_H

/*
 * Copies that are fed to their paths piece by piece. The program's stream stands at a word of the host
 * from the call on. When what was queued there before has passed, each path is given a few pieces, on
 * streams of the library, and the next one when one has arrived: a path that carries more takes more, one
 * that stands still keeps only what it has. When all have arrived the word is written, and the
 * stream goes on.
 *
 * Nothing is queued before the copy may begin, so no piece stands on a stream of the library in
 * front of those of another copy and waits. A link of the host is given no more than a few pieces over all
 * copies: first those to its own GPU, then in the order of the calls. One of which others leave a part (agree.h)
 * is given no more than that carries.
 *
 * Trouble	a path that is refused something, or fails, is used no more; when its streams have passed what they
 *		had, which is asked from turn to turn and not waited for (leave.c), its pieces go another way. If
 *		that cannot be asked, or no path is left, the copy ends with an error and the word is written
 *		all the same
 * Stalls	a piece that takes several times as long as it should is told; what was queued cannot be
 *		taken back, and the copy has not finished before it has arrived
 * Patience	the streams go on, and the copies have failed, when no piece of one has arrived for half a
 *		minute, or a turn of the thread has taken so long: a call of the driver is stuck, which may
 *		wait for such a stream. Pieces may arrive after that; the job ends when they have
 * Threads	one of the context gives out pieces, while there are any; the call that begins a copy gives out
 *		the first ones. All under the lock of io.h, but for what may wait for a program's stream. A
 *		second one guards the first, and calls nothing of the driver
 * End		the context feeds what it can to the end before it is closed
 */
#include "tier/io/job.h"

#include <pthread.h>

/* Pieces queued on a path: one arrives, one is on its way, one waits while the thread sleeps. */
#define GLK_FEED_WINDOW 3
/* Of each path that may be handed back: those, and one that it is refused. Then it takes none any more. */
#define GLK_FEED_RETURNED (GLK_FEED_WINDOW + 1)
/* Streams of a path: one of each GPU. */
#define GLK_FEED_STREAMS 2
/* Copies at a time; what is more is queued whole. */
#define GLK_FEEDS 256

enum glk_feed_stage {
	GLK_FEED_WAITING, /* for its stream */
	GLK_FEED_RUNNING,
	GLK_FEED_DONE, /* all has arrived that will, and the word is written */
};

/* A path of one copy. */
struct glk_feed_lane {
	struct glk_copy_piece piece[GLK_FEED_WINDOW]; /* a ring */
	struct glk_drv_event *event[GLK_FEED_WINDOW];
	unsigned first, count;
	uint64_t flight;       /* bytes of them */
	double rate;	       /* bytes a ns, as it was lately */
	double since;	       /* ns, when the first of them could begin */
	bool off;	       /* it takes none */
	bool stalls;	       /* the first of them is overdue */
	bool stalled, carried; /* at some time */
	/* leave.c: what its streams had may be under way, though it takes no piece any more. */
	bool is_leaving;
	bool hands_back; /* its pieces, then: whether they arrive is not asked */
	bool is_behind[GLK_FEED_STREAMS]; /* the event below is */
	bool is_idle[GLK_FEED_STREAMS];	  /* and has passed */
	unsigned refused;		  /* questions about that */
	struct glk_drv_event
		*left[GLK_FEED_STREAMS]; /* behind what each had; NULL: not made yet */
};

struct glk_feed {
	struct glk_feed *next; /* in the order of the calls */
	size_t size; /* of this, the ranges behind it, and the pieces behind those */
	struct glk_job job;
	struct glk_io_copy copy;
	enum glk_feed_stage stage;
	bool is_ended; /* no piece is given out any more */
	bool is_cancelled;
	bool goes_on;	  /* its stream does: the word is written */
	bool is_lost;	  /* nobody will know whether its stream has passed the word */
	unsigned refused; /* questions about the start */
	unsigned flight;  /* pieces on all paths */
	unsigned leaving; /* paths that are */
	double moved;	  /* ns, when one arrived last, or the first was given out */
	uint64_t copied;  /* bytes that have arrived */
	struct glk_drv_event *start,
		*passed; /* on the program's stream, before and behind the word */
	unsigned word;
	/* Somebody will ask what came of it. Away from what is read beside it in one load. */
	glk_atomic(bool) is_held;
	struct glk_feed_lane lane[GLK_IO_GPUS + 1];
	struct glake_copy_range ranges[];
};

struct glk_feeder {
	struct glk_io *io;
	pthread_t thread;
	pthread_cond_t wake;
	bool stop;
	bool is_lost; /* a stream may stand at a word for ever: they are never given back */
	struct glk_feed *first;
	glk_drv_word *words; /* locked memory of the host */
	int locker;	     /* the GPU that it is locked for */
	glk_atomic(uint64_t)
		value[GLK_FEEDS]; /* of the last copy that had the word: it only grows */
	bool taken[GLK_FEEDS];
	/* guard.c */
	pthread_t guard;
	struct glk_lock guard_lock;
	pthread_cond_t guard_wake;
	bool is_guarded, guard_stop; /* under its lock */
	glk_atomic(bool) is_busy;    /* some copy is fed */
	/* ns, when the turn that is under way began; 0: none is; below 0: the guard has given it up. */
	glk_atomic(int64_t) turn;
	glk_atomic(int64_t) patience; /* ns */
};

/* Under the lock: feeds a copy that is ready to be queued. False: nothing was done. */
bool glk_feed_begin(struct glk_job *job);
/* Under the lock: whether any is fed. */
bool glk_feed_is_busy(const struct glk_io *io);
/* Under the lock: whether one that is fed may yet go over the link of a relay. */
bool glk_feed_counts_on(const struct glk_io *io, int relay, int turn);
/* Under the lock: a turn of the thread, which anybody may take. 2: pieces are under way, 1: streams have to
 * come to their copies first, 0: nothing is left to do. */
int glk_feed_turn(struct glk_io *io);
/* Under the lock. The GPU whose link to the host a path goes over. */
static inline struct glk_io_gpu *glk_feed_link(const struct glk_feed *f, unsigned at)
{
	return &f->job.io->gpu[f->job.relay[at]];
}

/* leave.c, under the lock; nothing waits. A path takes part no more. What it had goes another way as soon as it is
 * certain that it writes nothing any more. `now`: ns. */
void glk_feed_give_up(struct glk_feed *f, unsigned at, int err, double now);
/* The copy ends only behind what the streams of a path have, where that is more than its pieces. */
void glk_feed_leave(struct glk_feed *f, unsigned at, double now);
/* In a turn, of one that is leaving: whether it has left, or cannot be asked. */
bool glk_feed_left(struct glk_feed *f, unsigned at);

/* Under the lock, which is given up meanwhile: whether nothing is left to do on a stream. */
bool glk_feed_is_free(struct glk_io *io, int target, struct CUstream_st *stream);
void glk_feed_end_events(struct glk_feed *f);
/* The stream goes on, and the copy has failed: what is under way may be part of a knot with that stream. */
void glk_feed_let_go(struct glk_feed *f);

/* guard.c: who lets all streams go on when a turn, which is stuck in the driver, has taken too long */
int glk_guard_start(struct glk_feeder *feeder);
void glk_guard_stop(struct glk_feeder *feeder);
/* A copy is fed from now on. */
void glk_guard_wake(struct glk_feeder *feeder);
/* Under the lock of io.h: a turn begins, and ends; whether it was given up. Then all streams go on, and no word
 * is written by the guard any more. */
void glk_guard_enter(struct glk_feeder *feeder);
bool glk_guard_leave(struct glk_feeder *feeder, bool is_busy);
/* In a turn: whether it is given up. It gives out no pieces then. */
bool glk_guard_gave_up(const struct glk_feeder *feeder);

/* feeder.c, under the lock */
/* The thread and its words, made at first; NULL: there are none. */
struct glk_feeder *glk_feeder_get(struct glk_io *io, int gpu);
/* Frees what has finished and is asked for by nobody. */
void glk_feeder_sweep(struct glk_feeder *feeder);
/* NULL does nothing. */
void glk_feed_end_event(struct glk_drv *drv, struct glk_drv_event *event);
void glk_feed_free(struct glk_feeder *feeder, struct glk_feed *feed);
/* Not under it: when glk_io_still() has returned. */
void glk_feeder_end(struct glk_io *io);

#endif
