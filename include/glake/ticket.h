/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_TICKET_H
#define GLAKE_TICKET_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct glake_ticket;
struct CUstream_st;

/*
 * A ticket stands for contents on their way: glake_spill_ticket, glake_fetch_ticket, glake_spill_range,
 * glake_fetch_range and glake_prefetch give one, which says how far they are and can be waited for. The
 * program closes it; contents go on without. Of a program that closes none the last 65536 are kept: a
 * call that gives one more closes an old one, which is answered -ESTALE from then on. So is one whose
 * context was closed; it may be closed all the same. In a forked child it may be closed only.
 */
enum glake_ticket_state {
	GLAKE_TICKET_QUEUED =
		0, /* work that was queued before is not done, or there is no room yet */
	GLAKE_TICKET_COPYING,
	GLAKE_TICKET_DONE,
	GLAKE_TICKET_FAILED,	/* of a prefetch: the block is where it was */
	GLAKE_TICKET_CANCELLED, /* of a prefetch: it was not carried out, and will not be */
};

enum glake_ticket_kind {
	GLAKE_TICKET_SPILL = 0,
	GLAKE_TICKET_FETCH,
	GLAKE_TICKET_PREFETCH,
};

/* What a ticket says. Times are ns of CLOCK_MONOTONIC; 0: not yet, or none. What the GPU does is seen
 * when it is asked, so a time may be late, and never is early. */
struct glake_ticket_info {
	size_t sz; /* sizeof(struct glake_ticket_info) */
	int state; /* GLAKE_TICKET_QUEUED... */
	int kind;  /* GLAKE_TICKET_SPILL... */
	int device;
	int error;	  /* of one that failed or was cancelled: -errno */
	void *address;	  /* of the block */
	uint64_t bytes;	  /* asked for by it */
	int64_t asked_ns; /* when the call was made that gave the ticket */
	int64_t begun_ns; /* when nothing that was queued before was in the way any more */
	int64_t ended_ns;    /* when it was done, failed or cancelled */
	int64_t deadline_ns; /* of a prefetch: the one that was given */
};

/*
 * As glake_spill, with a ticket for its copy. The memory behind the block serves others in stream
 * order whether the copy has finished or not.
 *
 * ret_ticket	the program's, to be closed
 *
 * Returns 0, or as glake_spill, -EINVAL (ret_ticket is NULL), -ENOMEM (NOMEM_HOST: no ticket). After an
 * error there is no ticket.
 * Thread: any. Blocks: as glake_spill. Driver calls: those of glake_spill.
 */
GLAKE_EXPORT int glake_spill_ticket(struct glake *ctx, void *ptr,
	struct CUstream_st *stream, struct glake_ticket **ret_ticket);

/*
 * As glake_fetch, with a ticket for its copy. When it is done, work on any stream may use the block,
 * and so may threads.
 *
 * ret_ticket	the program's, to be closed
 *
 * Returns 0, or as glake_fetch, -EINVAL (ret_ticket is NULL), -ENOMEM (NOMEM_HOST: no ticket). After an
 * error there is no ticket.
 * Thread: any. Blocks: as glake_fetch. Driver calls: those of glake_fetch.
 */
GLAKE_EXPORT int glake_fetch_ticket(struct glake *ctx, void *ptr,
	struct CUstream_st *stream, struct glake_ticket **ret_ticket);

/*
 * Says that a block that is away will be wanted, so that it may be brought back before it is fetched.
 * Hints are carried out in the order of their deadlines, then of their priorities, then as they came: as
 * far as tier.prefetch_window allows at the call, and then at calls of glake_spill, glake_fetch,
 * glake_quiet, glake_resume, of this function and of those about tickets; with the key pool.ahead by its
 * thread, also between calls. Those calls block and call the driver for hints that wait as this one does.
 * For no hint memory is taken that others may want: it waits while less than tier.prefetch_spare would be
 * left.
 *
 * The block must not be used before glake_fetch was called for it, as if nobody had given the hint. Of one
 * that is here by then that call puts the stream behind the copy, returns 0 and does nothing else. Until
 * then the block is a cold one, which goes away again before a request is refused; glake_query says so.
 *
 * A hint ends without anything when the block is freed, fetched, or sent away again first; when its
 * deadline has passed before its copy could be begun; and when another one is given for the same block,
 * which takes its place. While the GPU is suspended it waits, and ends if the resumption brings the block
 * back; one whose turn comes while the tag of its block is suspended ends.
 *
 * stream	of that GPU, which is to use the block: counts as one that glake_use named when the block is
 *		freed. Nothing is queued on it
 * deadline	ns of CLOCK_MONOTONIC; 0: none, which is later than all
 * priority	higher ones first, among equal deadlines
 * ret_ticket	the program's, to be closed; NULL if nobody wants to know. It is done when the contents are
 *		there, fetched or not
 *
 * Returns 0, or -EALREADY (BUSY: it is here, or on its way), -EAGAIN (AGAIN: the tag of the block is
 * suspended), -EINVAL (as glake_free; deadline; the block is too small to move without its tag), -ENOMEM
 * (LIMIT: 16384 hints of the GPU wait or were not fetched; NOMEM_HOST), -ESTALE, -EIO, -ENODEV (device
 * lost, or in a forked child). After an error there is neither a hint nor a ticket.
 * Thread: any. Blocks: as glake_fetch, for those blocks that are brought back by the call. Driver calls:
 * those of glake_fetch for each, and event queries.
 */
GLAKE_EXPORT int glake_prefetch(struct glake *ctx, void *ptr, struct CUstream_st *stream,
	int64_t deadline, int priority, struct glake_ticket **ret_ticket);

/*
 * Takes the hint of a ticket back. Returns 0, or -EBUSY (BUSY: its contents are on their way or there, or
 * it is no ticket of a prefetch), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: for the lock of the GPU. Driver calls: none.
 */
GLAKE_EXPORT int glake_ticket_cancel(struct glake_ticket *ticket);

/*
 * Asks how far it is. Returns 0, or -EINVAL (ret_info is NULL, sz not set), -E2BIG, -ESTALE (it was
 * closed, or its context was), -EIO, -ENODEV (device lost, or in a forked child).
 * Thread: any. Blocks: for the lock of the GPU. Driver calls: event records and queries.
 */
GLAKE_EXPORT int glake_ticket_get(
	struct glake_ticket *ticket, struct glake_ticket_info *ret_info);

/*
 * Waits until it is done, has failed or was cancelled.
 *
 * ns	how long at most; 0: it is asked once; negative: as long as it takes
 *
 * Returns 0 when it is done, or -ETIMEDOUT (AGAIN: not yet), -ECANCELED (AGAIN: it was cancelled), -EIO (it
 * failed; as glake_ticket_get), -ESTALE, -ENODEV (likewise). It may be waited for again after any.
 * Thread: any, several for one too. Blocks: as told. Driver calls: event records, queries, and waits
 * where there is no limit.
 */
GLAKE_EXPORT int glake_ticket_wait(struct glake_ticket *ticket, int64_t ns);

/*
 * Closes a ticket, whatever it stands for, which goes on. NULL is none. Returns 0, or -ESTALE (it was
 * closed before).
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_ticket_close(struct glake_ticket *ticket);

/*
 * Names a state of a ticket. Returns its name, as "queued", or "unknown", never NULL. The text is the
 * library's and stays.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT const char *glake_ticket_state_name(int state);

/*
 * Names a kind of ticket. Returns its name, as "prefetch", or "unknown", never NULL. The text is the
 * library's and stays.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT const char *glake_ticket_kind_name(int kind);

GLAKE_END_DECLS

#endif
