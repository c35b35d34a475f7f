/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The plan of a request that has to call the driver (lib/cache/arena/back.c), and how mappings are
 * booked (lib/map/page), for spin. Two requests take places that may meet in an end slot, beside a
 * neighbour who frees and a ladder that releases idle pages. What is done under the lock of the
 * GPU is one step; each call of the driver is one of its own, before and after which others go
 * on, and may fail.
 *
 * Shown: a page is in use through one mapping; a live block stands on slots that the driver has
 * mapped with access, by the pages that the tables name; the driver is asked to map what is not
 * mapped, to unmap whole mappings that are, and to release pages that have none; no count falls
 * below zero; who waits for a place goes on; and when all blocks are free, each page is free, idle,
 * lost with a mapping that the driver kept, or not there. Each of the mistakes below must be
 * refuted:
 *
 *	NO_CLAIM	the slots that are to be mapped are not claimed
 *	UNCLAIM_EARLY	they are claimed no longer while the driver maps them
 *	COUNT_LATE	a block counts on its slots only when they are mapped
 *	COUNT_KEPT	a request that failed still counts
 *	BOOK_EARLY	a mapping is booked before the driver is called
 *	HALF_GOES	of a wide mapping that is stale the part in the place is unmapped
 *	GOING_UNSEEN	a place is had on mappings that are about to go
 *	GOING_FREED	a page is free while a mapping of it is about to go
 *	GOING_RELEASED	it is released then
 *	STALE_KEPT	what is stale in a place stays, and is mapped over
 *	ALIAS_USABLE	a page that is taken is still usable through its mappings
 *	UNDO_KEPT	a page is put back that the driver kept mapped where the request failed
 *	END_SILENT	who waits for a plan is not told of its end
 *	BETWEEN		a request that took mappings at its two ends and may not take what is stale
 *			unmaps all that is about to go between them, whoever takes it away
 *	UNDO_USED	a page whose mapping the driver keeps in an undo passes for one that is in
 *			use there
 *
 * A wide page has two slots, and the policy of the search is any place. The clock may refuse that
 * what is stale goes, whatever it said before. Bounds: four slots, a wide page and three small
 * ones, a block a request, two failures, one page of the ladder, scenes of pages that are mapped
 * already. By turns: with TWICE two blocks a request, with THIRD a third request and no ladder,
 * with SIX six slots, where a place has two wide ends or two runs to map.
 *
 * Not modelled: slots of small blocks, counts of what is idle and stranded, and more pages than
 * are mapped in one call. Who has how much memory is t/model/climb.pml.
 */
#if defined(BETWEEN) || defined(UNDO_USED)
#define SIX
#endif
#ifdef SIX
#define SLOTS 6
#else
#define SLOTS 4
#endif
#define PAGES 4 /* the first is the wide one */
#define NONE  PAGES
#define NO_SLOT SLOTS

#ifdef TWICE
#define ROUNDS 2
#else
#define ROUNDS 1
#endif
#if defined(TWICE)
#define FAULTS 1
#define FEW /* scenes */
#else
#define FAULTS 2
#endif
#define LADDERS 1 /* pages it releases */

#define has(set, i)   ((set) >> (i) & 1)
#define span(a, b)    ((2 << (b)) - (1 << (a)))
#define first_of(set)                                                                    \
	(has(set, 0) -> 0 : (has(set, 1) -> 1 : (has(set, 2) -> 2 : (has(set, 3) -> 3 :  \
		(has(set, 4) -> 4 : 5)))))
#define is_wide(p)    ((p) == 0)
#define mask_at(p, s) ((is_wide(p) -> 3 : 1) << (s))

/* EMPTY: no memory; FREE: on the list of its node; LIMBO: being released */
mtype = { EMPTY, FREE, OWNED, LIMBO, LOST };

/* The tables: sets of slots. */
byte mapped, usable, wide, head, busy, claimed;
byte page[SLOTS] = NONE;
byte was[SLOTS] = NONE; /* page of a mapping that is about to go */
byte count[SLOTS];	/* blocks that begin or end there */
byte next[SLOTS] = NONE; /* page that who claimed it will map there */

mtype state[PAGES] = EMPTY;
byte in_use[PAGES] = NO_SLOT;
byte going[PAGES];
byte left, kept; /* sets of pages */

/* The driver: what is mapped where, where mappings begin, and what may be accessed. */
byte drv[SLOTS] = NONE;
byte drv_head, drv_access;
byte faults;

/* Addresses, in halves of a slot. */
short taken, alive;

/* Plans. */
byte under_way, claims;
byte waiting; /* set of users */

#define slots_of(t, p)                                                                   \
	((t[0] == p) | (t[1] == p) << 1 | (t[2] == p) << 2 | (t[3] == p) << 3 | more_of(t, p))
#ifdef SIX
#define more_of(t, p) (t[4] == p) << 4 | (t[5] == p) << 5
#else
#define more_of(t, p) 0
#endif
#define on(p)	      slots_of(page, p)
#define drv_on(p)     slots_of(drv, p)
#define heads(p)      (on(p) & head)
#define is_shared(p)  ((heads(p) & (heads(p) - 1)) != 0)
#define lacking	      on(NONE)
#define gone_soon     (mapped & lacking)
#define stale	      (mapped & ~usable & ~lacking)
#define begin_of(s)   ((has(wide, s) && !has(head, s)) -> (s) - 1 : (s))
#define end_of(s)     ((has(wide, s) && has(head, s)) -> (s) + 1 : (s))
#define lives_on(s)   (alive >> (2 * (s)) & 3)

#define is_used(p) \
	(on(p) && (is_shared(p) -> in_use[p] != NO_SLOT && (busy & mask_at(p, in_use[p])) \
				: busy & on(p)))
#define is_idle(p) (on(p) -> !(on(p) & ~usable) && !is_used(p) : has(left, p))

/* Scratch, without a meaning between two steps. */
hidden byte x, y, z, up, um, dp, gp, gs, gm, qs;
hidden byte di, qi;

#include "plan_tables.pml"
#include "plan_steps.pml"
#include "plan_threads.pml"

/* Has a block from the beginning, and frees it. */
proctype neighbour(byte lo; byte hi)
{
	d_step {
		for (x : lo / 2 .. hi / 2) {
			assert(drv[x] == page[x] && has(drv_access & usable & busy, x))
		};
		x = 0;
		alive = alive & ~span(lo, hi);
		leave(lo / 2, hi / 2);
		taken = taken & ~span(lo, hi)
	}
}

inline put(p, s)
{
	state[p] = OWNED;
	x = s;
	book(x, p);
	drv[s] = p;
	drv_head = drv_head | 1 << s;
	drv_access = drv_access | mask_at(p, s);
	if
	:: is_wide(p) -> drv[s + 1] = p
	:: else -> skip
	fi
}

inline live_at(lo, hi)
{
	taken = taken | span(lo, hi);
	alive = alive | span(lo, hi);
	enter(lo / 2, hi / 2)
}

init
{
	atomic {
		if
#ifdef SIX
		:: d_step {
			put(0, 0); put(0, 4); put(1, 2); put(1, 3);
			put_back(0); put_back(1)
		}
		:: d_step {
			put(1, 4); put(1, 5); put(2, 1);
			put_back(1); put_back(2)
		}
#else
		:: skip
		:: d_step { put(1, 1); live_at(2, 2) };
			run neighbour(2, 2)
#ifndef FEW
		:: d_step { put(0, 2); put(0, 0); put_back(0) }
		:: d_step { put(0, 2); put(0, 0); live_at(0, 0) };
			run neighbour(0, 0)
		:: d_step { put(0, 0); put(0, 2); live_at(5, 5) };
			run neighbour(5, 5)
		:: d_step { put(1, 0); put(1, 2); put(1, 3); put_back(1) }
		:: d_step { put(1, 2); put(1, 3); put_back(1) }
		:: d_step { put(1, 0); put(1, 2); put(2, 3); put_back(2); live_at(5, 5) };
			run neighbour(5, 5)
#endif
#endif
		fi;
		run user(0);
		run user(1);
#ifdef THIRD
		run user(2)
#else
		run ladder()
#endif
	};
	(_nr_pr == 1);
	d_step {
		assert(!taken && !alive && !busy && !claimed && !claims && !under_way && !left);
		for (x : 0 .. SLOTS - 1) {
			assert(!count[x] && next[x] == NONE && was[x] == NONE);
			assert(has(mapped, x) == (drv[x] != NONE));
			assert(page[x] == NONE || drv[x] == page[x])
		};
		for (x : 0 .. PAGES - 1) {
			assert(!going[x]);
			assert(state[x] == EMPTY || (state[x] == FREE && !on(x) && (!drv_on(x) || has(kept, x))) ||
				(state[x] == LOST && has(kept, x)) ||
				(state[x] == OWNED && on(x) && !(on(x) & ~usable)))
		}
	}
}
