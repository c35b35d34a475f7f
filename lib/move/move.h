/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_MOVE_H
#define GLK_MOVE_MOVE_H

/*
 * The face of this room: where contents are, and who moves them out of memory. A block of a GPU is here, away, in part
 * here, or cold; who moves it has it in his hands, functions of the program are told, and plans of others are waited
 * for. What comes back wants memory, and with it all that stands on this room: it comes in cache/.
 *
 *	advice	what the program says of blocks; victim: cold ones go, since others need the room
 *	away	who has a block in his hands; kept: small blocks; placed: what lies on the host in place
 *	part	pieces of blocks that are gone; seal: those that several have; spill: they go
 *	hint	blocks that will be wanted; outcome: what became of that; ticket: what is known of one on its way
 *	marks	streams that used a block; told: who hears of moves; plan: who waits for whom
 */
#include "move/advice.h"
#include "move/away.h"
#include "move/hint.h"
#include "move/marks.h"
#include "move/outcome.h"
#include "move/part.h"
#include "move/plan.h"
#include "move/seal.h"
#include "move/ticket.h"
#include "move/told.h"

#endif
