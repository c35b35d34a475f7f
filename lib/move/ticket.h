/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_TICKET_H
#define GLK_MOVE_TICKET_H

/*
 * Tickets for contents on their way. They are numbers, and what is behind one lies in a table of the
 * process, so that one that is kept too long is answered and not followed. A number is {serial, place};
 * none is given twice. The table is had at the first ticket and stays.
 *
 * Most		GLK_TICKETS. A new one takes the first free place of the next PLACES behind the last
 *		one's; where there is none it takes the first of them, from a ticket that was not closed
 * State	changes under the lock of the GPU that a ticket is of, and the lock of the table, which
 *		is taken after that. A ticket that is overwritten meanwhile keeps what the new one says
 */
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

#include <glake/ticket.h>

#define GLK_TICKET_BITS 16
#define GLK_TICKETS	(1u << GLK_TICKET_BITS)

/* What is known of one movement when it was queued. */
struct glk_told {
	uint64_t bytes;
	struct glk_use before; /* what used it */
	struct glk_use after;  /* of the copy; no streams: nothing is under way */
	uint32_t way;	       /* the stream that carries it; 0: none */
	uint64_t behind;       /* tick of what that had to carry before */
};

struct glk_ticket {
	uint64_t number; /* 0: the place is free */
	uintptr_t owner; /* the handle of its context */
	uint64_t addr;
	int device, kind, state, error;
	int64_t asked, begun, ended, deadline;
	struct glk_told told; /* after QUEUED for a prefetch */
};

/* The table is there. 0, or -ENOMEM with a record. */
int glk_ticket_ready(void);
/* A number for what *t says, but for its own; the table is there. */
uint64_t glk_ticket_new(const struct glk_ticket *t);
/* What is behind a number. 0, or -ESTALE with a record. */
int glk_ticket_read(uint64_t number, struct glk_ticket *ret_ticket);
/* State and times change, if the ticket is still open; those of one that has ended stay. */
void glk_ticket_write(const struct glk_ticket *t);
/* 0, or -ESTALE with a record. */
int glk_ticket_close(uint64_t number);

static inline bool glk_ticket_has_ended(const struct glk_ticket *t)
{
	return t->state > GLAKE_TICKET_COPYING;
}

/* It has ended, with 0 or an error. */
void glk_ticket_end(uint64_t number, int state, int error);
/* A prefetch has been queued at the driver. */
void glk_ticket_begin(uint64_t number, const struct glk_told *told);

#endif
