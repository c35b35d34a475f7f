/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_IO_H
#define GLK_TIER_IO_IO_H

/*
 * The face of this folder: copies between locked memory of the host and a GPU, over the link of
 * that GPU and over those of GPUs that lend theirs.
 *
 * A copy is cut into pieces, which are queued at once: those of the direct path on the
 * program's stream, the others on streams of the library behind it, which the program's stream
 * waits for in the end. So nothing of the library has to run until the copy has finished, no
 * thread and no callback, and no call of the program can get in the way of it.
 *
 * A piece that goes through a GPU R which lends its link, to a GPU T: the copy engine of R brings
 * it into a slot of R's staging memory, that of T takes it from there. On the way back T puts it
 * into a slot and R takes it to the host. So R needs no rights on the memory of T, and T is
 * given rights on staging memory alone. A slot is filled again when its second hop has passed. A relay that sends on
 * what it has would bring 5 % more at 1 GiB, and would need rights on memory of the program's; and one copy from the
 * host into the memory of T on a stream of R goes over the link of T (H200, driver 580.159.04), so there are two hops.
 *
 * A path that the driver refuses is not used again; its piece goes another way.
 *
 * Threads	any; one lock of the context guards what is queued by it. It is held while the driver is
 *		called, and nothing else of the library waits for it. Who queues a copy lets others go
 *		before it after GLK_IO_TURN_NS, between two pieces: copies of several threads take turns, and a
 *		call that asks for little waits for such a time and the calls of the driver for one piece
 */
#include "base/clock.h"
#include "base/lock.h"
#include "pool/pool.h"
#include "tier/io/agree.h"
#include "tier/io/bounce.h"
#include "tier/io/plan.h"

#include <glake/copy.h>

#define GLK_IO_GPUS    64
#define GLK_IO_TURN_NS 50000

enum { GLK_IO_DOWN, GLK_IO_UP, GLK_IO_WAYS }; /* to a GPU, to the host */

/* A place for a piece between its hops. */
struct glk_io_slot {
	struct glk_drv_event
		*last; /* behind which it may be filled again; NULL: at once */
	struct glk_drv_event *by[GLK_IO_GPUS]; /* events of the GPUs that emptied it */
};

/* Those of one GPU for one way. */
struct glk_io_ring {
	uint64_t base, size; /* address and bytes of each slot */
	struct glk_io_slot slot[GLK_PLAN_SLOTS];
	struct glk_plan_buffer buffer; /* of the paths of all copies that go through it */
	/* Before `buffer.next`: that are in use by copies of one GPU, and no event tells of yet. */
	unsigned unmarked;
	int target;
	struct CUstream_st *stream; /* of the GPU, over its link to the host */
	struct glk_plan_link
		share;	 /* of the link, that is borrowed from others (agree.h) */
	unsigned shares; /* of four; 0: none are borrowed, nor have to be given back */
};

struct glk_io_gpu {
	uint64_t base, size; /* its staging memory; 0: none yet */
	uint32_t page;
	uint64_t access; /* GPUs that may use it, a bit each */
	bool off;	 /* the driver has refused something */
	bool measured;	 /* its links are */
	bool due;	 /* but not yet the one to other GPUs */
	void *probe;	 /* locked memory of the host to measure with; NULL: none */
	struct glk_io_ring ring[GLK_IO_WAYS];
	struct CUstream_st
		*hop[GLK_IO_WAYS][GLK_IO_GPUS]; /* to and from the staging of others */
	struct glk_drv_event *start;		/* for the next copy; NULL: one has it */
	struct glk_drv_event *mark;
	struct glk_drv_event
		*own[GLK_IO_WAYS]; /* behind what went over its link directly */
	bool busy[GLK_IO_WAYS];	   /* that may not have passed */
	struct glk_plan_link down, up, leave, come;
	struct glk_plan_link *uplink[GLK_IO_WAYS]; /* shared with others; NULL: none */
	uint64_t relayed; /* bytes that went over its link for others */
};

struct glk_io {
	struct glk_lock lock;
	struct glk_drv *drv;
	struct glk_pool *pool;
	int gpus;
	uint64_t lend; /* GPUs that do, a bit each */
	uint64_t piece, staging, least;
	struct glk_bounce bounce; /* for memory of the host that is not locked */
	/* Links of other GPUs that are borrowed, one each way. */
	glk_atomic(unsigned) borrowed;
	glk_atomic(unsigned) queueing; /* threads that wait for room for pieces */
	glk_atomic(bool) owed;	       /* one of them gives links back for others */
	glk_atomic(
		unsigned) coming; /* calls that have come to the lock, or are about to */
	/* Under the lock from here on. */
	int64_t since;	       /* ns, when a copy had its last turn */
	unsigned come;	       /* calls that have come to the lock */
	unsigned waiting;      /* threads that let others go before them */
	pthread_cond_t passed; /* another one has come */
	struct glk_agree agree;
	char uuid[GLK_IO_GPUS]
		 [sizeof(((struct glake_device *)0)->uuid)]; /* "": not asked for yet */
	bool known;					     /* which links there are */
	struct glk_io_gpu *gpu;
	struct glk_plan_link *groups; /* one each way for each group of GPUs */
	struct glk_plan_link across[GLK_IO_WAYS]; /* between NUMA nodes of the host */
	uint64_t crossed;  /* bytes that are known to have gone over it */
	uint64_t copies;   /* over several paths */
	unsigned planning; /* copies that count on links while the lock is given up */
	double (*now)(struct glk_io *io); /* ns; of a test that makes its own time */
};

/* ns. Under the lock. */
static inline double glk_io_now(struct glk_io *io)
{
	return io->now ? io->now(io) : (double)glk_clock_ns();
}

/* Whether a stream is of a GPU, and captures no graph. */
static inline bool glk_io_is_stream_of(
	struct glk_io *io, int gpu, struct CUstream_st *stream)
{
	struct glk_stream_facts facts = {0};

	return !io->drv->ops->stream_owner(io->drv, gpu, stream) &&
		!io->drv->ops->stream_facts(io->drv, gpu, stream, &facts) &&
		!facts.capture;
}

/* 0; -EINVAL for a list of GPUs that cannot be read, with a record. */
int glk_io_lend(const char *text, int gpus, uint64_t *ret_lend);
/* Whether a text is such a list. 0 or -EINVAL. */
int glk_io_lend_check(const char *text);
/* Of a context; nothing is taken from any GPU. 0, -EINVAL as above, -ENOMEM. */
int glk_io_init(struct glk_io *io, struct glk_drv *drv, struct glk_pool *pool,
	const struct glk_conf *conf, int gpus);
/* Waits for what is under way and gives all back. Takes a zeroed one. */
void glk_io_fini(struct glk_io *io);

/* A GPU is used by the program from here on, which other processes are told where they agree. */
void glk_io_use(struct glk_io *io, int gpu);
/* Links that were borrowed are given back when their copies have ended. Called by what comes after copies;
 * nearly nothing where there are none. Where a copy is being queued it is done when that is. */
void glk_io_rest(struct glk_io *io);
/* Takes the lock; who has it for long lets the caller go before it. Cancellation is off. */
void glk_io_enter(struct glk_io *io);
/* The lock is given up for a call of the driver that may wait for a stream, and taken again. What was borrowed
 * for a copy stays so. */
void glk_io_pause(struct glk_io *io);
void glk_io_resume(struct glk_io *io);
/* Where the turn has taken long, whoever is about to take the lock has it meanwhile. */
void glk_io_give_way(struct glk_io *io);
/* In a forked child. */
void glk_io_forked(struct glk_io *io);

/* NUMA node of the host near a GPU. */
static inline int glk_io_node(const struct glk_io *io, int gpu)
{
	return glk_pool_host(io->pool, gpu)->place.id;
}

/* Ranges of a copy in a row whose memory of the host lies on one NUMA node, one of them at least. */
struct glk_io_stock {
	int node;
	size_t count;
};

#define GLK_IO_STOCKS 8

/* Parts of a copy that were not made: bytes counted through its ranges. */
#define GLK_IO_LOST_MAX 2

struct glk_io_copy {
	const struct glake_copy_range *ranges;
	size_t count;
	struct CUstream_st *stream;
	/* All that its pieces on the links of others have to come after, and the stream is behind already; NULL: all that
	 * was queued on the stream. */
	struct glk_drv_event *behind;
	/* Pages of the host, or what is none, on which the GPU has rights and some others, a bit each. */
	bool is_known, is_up;
	int gpu;
	uint64_t relays;
	/* Where its ranges lie on the host, all of them in their order, where that is known too. Parts that are lost are
	 * not told of several. 0: it is not. */
	const struct glk_io_stock *stock;
	unsigned stocks;
	/* What came of it. */
	uint64_t bytes, relayed;
	unsigned paths;
	struct glake_copy_part lost[GLK_IO_LOST_MAX];
	unsigned lost_count;
	int err; /* why they are lost */
};

/*
 * Queues a copy over as many paths as are good for it: one where that is not between a GPU and
 * locked memory of the host, its stream is not of that GPU or captures a graph, it is small, or no
 * GPU lends its link. 0, also where parts of it are lost, which copy->lost tells; the driver's error where
 * nothing of it was queued.
 */
int glk_io_copy(struct glk_io *io, struct glk_io_copy *copy, bool direct);
/* GPUs whose links a copy of so many bytes may go over, beside that of the GPU itself, a bit each, if it is worth
 * that. Takes NULL. Not under the lock. */
uint64_t glk_io_relays(const struct glk_io *io, int gpu, uint64_t bytes);

#endif
