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

inline check()
{
	for (x : 0 .. PAGES - 1) {
		y = on(x) & busy & usable;
		z = 0;
		for (qs : 0 .. SLOTS - 1) {
			z = z + (has(heads(x), qs) && (y & mask_at(x, qs)))
		};
		assert(z <= 1)
	};
	x = 0
}

inline put_free(p)
{
#ifdef GOING_FREED
	left = left & ~(1 << p);
	if
	:: true ->
#else
	left = (going[p] -> left | 1 << p : left & ~(1 << p));
	if
	:: !going[p] ->
#endif
		assert(state[p] == OWNED);
		state[p] = FREE;
		in_use[p] = NO_SLOT
	:: else -> skip
	fi
}

inline put_back(p)
{
	if
	:: !on(p) -> put_free(p)
	:: else ->
		in_use[p] = NO_SLOT;
		usable = usable | on(p)
	fi
}

inline unchain(s)
{
	up = page[s];
	um = mask_at(up, s);
	usable = usable & ~um;
	wide = wide & ~um;
	head = head & ~um;
	page[s] = NONE;
	if
	:: is_wide(up) -> page[s + 1] = NONE
	:: else -> skip
	fi;
#ifndef UNDO_USED
	in_use[up] = (in_use[up] == s -> NO_SLOT : in_use[up])
#endif
}

inline detach(s)
{
	dp = page[s];
	assert(dp != NONE && has(head, s) && !lives_on(s) && !lives_on(end_of(s)));
	di = is_idle(dp);
	unchain(s);
	was[s] = dp;
	going[dp]++;
	left = (di && !on(dp) -> left | 1 << dp : left)
}

inline quarantine(p, own)
{
	qi = is_idle(p);
	if
	:: state[p] != OWNED -> skip
	:: else ->
		kept = kept | 1 << p;
		if
		:: !qi && (!own || is_used(p)) -> skip
		:: else ->
			left = left & ~(1 << p);
			for (qs : 0 .. SLOTS - 1) {
				if
				:: has(heads(p), qs) -> unchain(qs)
				:: else -> skip
				fi
			};
			state[p] = LOST
		fi
	fi
}

inline gone(a, b, failed, own)
{
	gs = a;
	do
	:: gs <= b ->
		gp = was[gs];
		assert(gp != NONE);
		gm = mask_at(gp, gs);
		was[gs] = NONE;
		assert(going[gp]);
		going[gp]--;
		if
		:: failed -> quarantine(gp, own)
		:: else -> mapped = mapped & ~gm
		fi;
		if
		:: has(left, gp) && !going[gp] -> put_free(gp)
		:: else -> skip
		fi;
		gs = gs + (is_wide(gp) -> 2 : 1)
	:: else -> break
	od
}

/* In order of addresses, as others of the place may be mappings of the same page. */
inline enter(f, l)
{
	for (x : f .. l) {
		y = begin_of(x);
		z = page[y];
		if
		:: has(usable, x) && is_shared(z) && !(busy & mask_at(z, y)) ->
#ifndef ALIAS_USABLE
			usable = usable & ~on(z);
#endif
			in_use[z] = y;
			usable = usable | mask_at(z, y)
		:: else -> skip
		fi
	};
	count[f]++;
	count[l] = count[l] + (f != l);
	busy = busy | span(f, l)
}

inline leave_end(s)
{
	assert(count[s]);
	count[s]--;
	busy = (count[s] -> busy : busy & ~(1 << s))
}

inline leave(f, l)
{
	busy = busy & ~(span(f, l) & ~(1 << f) & ~(1 << l));
	leave_end(f);
	if
	:: f != l -> leave_end(l)
	:: else -> skip
	fi;
	for (x : f .. l) {
		y = begin_of(x);
		z = page[y];
		if
		:: has(usable, x) && is_shared(z) && in_use[z] == y && !(busy & mask_at(z, y)) ->
			put_back(z)
		:: else -> skip
		fi
	};
	x = 0; y = 0; z = 0;
	check()
}

inline drv_unmap(a, b)
{
	assert(has(drv_head, a) && (b == SLOTS - 1 || drv[b + 1] == NONE || has(drv_head, b + 1)));
	for (x : a .. b) {
		assert(drv[x] != NONE && !lives_on(x));
		drv[x] = NONE
	};
	drv_head = drv_head & ~span(a, b);
	drv_access = drv_access & ~span(a, b);
	x = 0
}

/* A call that may fail. */
#define may_fail (faults < FAULTS)

inline unmap_run(a, b)
{
	if
	:: d_step { drv_unmap(a, b) }
	:: d_step { may_fail -> faults++; bad = true }
	fi
}

/* A page of a size that nobody uses; the lowest. */
#define idle_small \
	(is_taken_in(1) -> 1 : (is_taken_in(2) -> 2 : (is_taken_in(3) -> 3 : NONE)))
#define is_taken_in(p) (state[p] == OWNED && on(p) && is_idle(p))
#define one_small(s) (state[1] == s -> 1 : (state[2] == s -> 2 : (state[3] == s -> 3 : NONE)))

#ifdef GOING_UNSEEN
#define is_vetoed(f, l) (claimed & span(f, l))
#else
#define is_vetoed(f, l)                                                                  \
	((claimed & span(f, l)) || ((span(f, l) & ~usable) && (span(f, l) & gone_soon)))
#endif
#define can(a, b) (!(taken & span(a, b)) && !is_vetoed((a) / 2, (b) / 2))
#ifdef SIX
#define is_fit (can(0, 5) || can(2, 9) || can(9, 11))
#else
#define is_fit	  (can(0, 3) || can(0, 4) || can(2, 5) || can(4, 7) || can(5, 7) || can(3, 6))
#endif

inline seek()
{
	if
#ifdef SIX
	:: can(2, 9) -> lo = 2; hi = 9
	:: can(0, 5) -> lo = 0; hi = 5
	:: can(9, 11) -> lo = 9; hi = 11
#else
	:: can(0, 3) -> lo = 0; hi = 3
	:: can(0, 4) -> lo = 0; hi = 4
	:: can(2, 5) -> lo = 2; hi = 5
	:: can(4, 7) -> lo = 4; hi = 7
	:: can(5, 7) -> lo = 5; hi = 7
	:: can(3, 6) -> lo = 3; hi = 6
#endif
	fi
}

inline take_out(s)
{
	from = (from > (s) -> (s) : from);
	goes = goes | mask_at(page[s], s);
	behind = (behind <= end_of(s) -> end_of(s) + 1 : behind);
	detach(s)
}

/* Wide pages that are idle and reach beyond an end. */
inline trim_end(s)
{
	if
	:: has(wide & usable, s) && !(busy & mask_at(0, begin_of(s))) &&
			(begin_of(s) < lo / 2 || begin_of(s) + 1 > hi / 2) ->
		qs = begin_of(s);
		take_out(qs)
	:: else -> skip
	fi
}

inline detach_stale()
{
	for (z : lo / 2 .. hi / 2) {
		if
		:: has(stale, z) -> gm = begin_of(z); take_out(gm)
		:: else -> skip
		fi
	};
	z = 0
}

/* The next run of mappings that are about to go, from `from` on: from .. to; or none. */
inline next_going()
{
	do
	:: from < behind && !has(gone_soon & goes, from) -> from++
	:: else -> break
	od;
	to = from;
	do
	:: to + 1 < behind && has(gone_soon & goes, to + 1) -> to++
	:: else -> break
	od
}

/* Whether a wide page suits a slot that is to be mapped: it lies in the place whole. */
#define whole_from (lo & 1 -> lo / 2 + 1 : lo / 2)
#define whole_to   (hi & 1 -> hi / 2 : hi / 2 - 1)
#define suits_wide(s)                                                                    \
	((s) >= whole_from && (s) + 1 <= whole_to && !has(mapped, (s) + 1) && next[(s) + 1] == NONE)

/* The first slot that has no page yet. */
inline next_lacking()
{
	at = lo / 2;
	do
	:: at <= hi / 2 && (has(mapped, at) || next[at] != NONE) -> at++
	:: else -> break
	od
}

inline give_next(p)
{
	next[at] = p;
	if
	:: is_wide(p) -> next[at + 1] = p
	:: else -> skip
	fi
}

/* The next run that is to be mapped: from .. to; or none. */
inline next_run()
{
	from = lo / 2;
	do
	:: from <= hi / 2 && next[from] == NONE -> from++
	:: else -> break
	od;
	to = from;
	do
	:: to < hi / 2 && next[to + 1] != NONE -> to++
	:: else -> break
	od
}

inline drv_map()
{
	for (x : from .. to) {
		assert(drv[x] == NONE && !has(mapped, x));
		assert(next[x] != NONE && state[next[x]] == OWNED);
		drv[x] = next[x];
		drv_head = (is_wide(next[x]) && x > from && drv[x - 1] == next[x]
				-> drv_head : drv_head | 1 << x)
	};
	x = 0
}

inline book(s, p)
{
	assert(!has(mapped, s) && !is_used(p));
	um = mask_at(p, s);
	page[s] = p;
	if
	:: is_wide(p) -> page[s + 1] = p; wide = wide | um
	:: else -> skip
	fi;
	head = head | 1 << s;
	in_use[p] = s;
	mapped = mapped | um;
	usable = usable | um
}

/* What was mapped, or was not; or what the driver kept of that. */
inline book_run()
{
	z = from;
	do
	:: z <= to ->
		up = next[z];
		gs = z;
		z = z + (is_wide(up) -> 2 : 1);
		next[gs] = NONE;
		if
		:: is_wide(up) -> next[gs + 1] = NONE
		:: else -> skip
		fi;
		x = up;
		if
		:: !bad ->
			book(gs, x);
			made = made | 1 << x
		:: bad ->
			if
			:: held_back ->
				qs = gs;
				book(qs, x);
				usable = usable & ~mask_at(x, qs);
				y = qs;
				detach(y);
				gm = y;
				gone(gm, y, true, true)
			:: else -> skip
			fi;
			if
			:: state[x] == OWNED -> put_back(x)
			:: else -> skip
			fi
		fi
	:: else -> break
	od;
	x = 0; y = 0; z = 0;
	check()
}

/* Pages that were had and are not mapped. */
inline put_rest_back()
{
	for (z : lo / 2 .. hi / 2) {
		up = next[z];
		if
		:: up != NONE ->
			next[z] = NONE;
			if
			:: is_wide(up) -> next[z + 1] = NONE
			:: else -> skip
			fi;
			gp = up;
			if
			:: state[gp] == OWNED -> put_back(gp)
			:: else -> skip
			fi
		:: else -> skip
		fi
	};
	z = 0
}

inline end_plan()
{
	claimed = claimed & ~span(lo / 2, hi / 2);
	assert(under_way && claims);
	under_way--;
	claims--;
#ifndef END_SILENT
	waiting = 0
#endif
}

inline go_live()
{
	for (x : lo / 2 .. hi / 2) {
		assert(page[x] != NONE && drv[x] == page[x] && has(drv_access & usable, x));
		assert(has(busy, x))
	};
	assert(!(alive & span(lo, hi)));
	alive = alive | span(lo, hi);
	check()
}

inline forget()
{
	lo = 0; hi = 0; from = 0; to = 0; behind = 0; goes = 0; at = 0;
	made = 0; err = false; bad = false; held_back = false; carried = false; trim = false; p = NONE
}

proctype user(byte me)
{
	byte rounds, lo, hi, from, to, behind, goes, at, made, p = NONE;
	bit err, bad, held_back, trim, carried;

	goto search;

	/* Calls of the driver, without the lock. */
going_unmap:
	unmap_run(from, to);
	goto going_done;
make:
	if
	:: skip
	:: d_step { may_fail -> faults++; bad = true }
	fi;
	goto make_done;
drop_unmap:
	unmap_run(from, to);
	goto drop_done;
map:
	if
	:: d_step { drv_map() };
		if
		:: d_step { drv_access = drv_access | span(from, to) }
		:: d_step { may_fail -> faults++; bad = true };
			if
			:: d_step { drv_unmap(from, to) }
			:: d_step { may_fail -> faults++; held_back = true }
			fi
		fi
	:: d_step { may_fail -> faults++; bad = true }
	fi;
	goto map_done;
undo_unmap:
	unmap_run(from, to);
	goto undo_done;
use:
	skip;
	goto free;

	/* Under the lock. */
search:
	atomic {
		if
		:: rounds == ROUNDS -> goto done
		:: rounds < ROUNDS && is_fit -> seek()
		:: rounds < ROUNDS && !is_fit && claims ->
			waiting = waiting | 1 << me;
			goto wait
		:: rounds < ROUNDS && !is_fit && !claims -> goto done
		fi;
		rounds++;
#ifndef FEW
		if
		:: trim = true
		:: skip
		fi;
#endif
		d_step {
			taken = taken | span(lo, hi);
			from = SLOTS;
			if
			:: trim -> trim_end(lo / 2); trim_end(hi / 2)
			:: else -> skip
			fi;
#ifndef COUNT_LATE
			enter(lo / 2, hi / 2);
#endif
			x = 0; y = 0; z = 0;
			check()
		};
		if
		:: !(span(lo / 2, hi / 2) & ~usable) ->
			d_step {
#ifdef COUNT_LATE
				enter(lo / 2, hi / 2);
#endif
				go_live()
			};
			goto use
#ifndef FEW
		:: trim && (span(lo / 2, hi / 2) & stale) -> /* not ready after all */
			d_step {
				leave(lo / 2, hi / 2);
				err = true;
#ifdef BETWEEN
				goes = span(0, SLOTS - 1)
#endif
			};
			goto going_next
#endif
		:: span(lo / 2, hi / 2) & ~usable -> skip
		fi;
		d_step {
#ifndef STALE_KEPT
			detach_stale();
#endif
#ifndef NO_CLAIM
			claimed = claimed | (span(lo / 2, hi / 2) & ~usable);
#endif
			claims++;
			under_way++;
			carried = true;
			goes = span(0, SLOTS - 1);
#ifdef HALF_GOES
			from = (from < lo / 2 -> lo / 2 : from);
			behind = (behind > hi / 2 + 1 -> hi / 2 + 1 : behind)
#endif
		};
going_next:
		skip;
		d_step { next_going() };
		if
		:: from < behind -> goto going_unmap
		:: else -> goto going_over
		fi;
going_done:
		skip;
		d_step {
			gone(from, to, bad, false);
			err = err | bad;
			bad = false;
			from = to + 1
		};
		goto going_next;
going_over:
		skip;
		d_step { goes = 0; behind = 0; from = 0; to = 0; at = 0 };
		if
		:: err && !carried -> goto give_up
		:: err && carried -> goto failed
		:: else -> skip
		fi;

		/* pages for all slots that have none */
supply:
		skip;
		d_step { next_lacking() };
		if
		:: at > hi / 2 -> goto map_next
		:: else -> skip
		fi;
		if
		:: suits_wide(at) && state[0] == FREE ->
			d_step { state[0] = OWNED; give_next(0) };
			goto supply
		:: suits_wide(at) && state[0] == EMPTY -> p = 0; state[0] = OWNED; goto make
		:: suits_wide(at) && is_taken_in(0) -> p = 0; goto take
		:: (!suits_wide(at) || state[0] == LOST || (state[0] == OWNED && !is_taken_in(0))) &&
				one_small(FREE) != NONE ->
			d_step { p = one_small(FREE); state[p] = OWNED; give_next(p); p = NONE };
			goto supply
		:: (!suits_wide(at) || state[0] == LOST || (state[0] == OWNED && !is_taken_in(0))) &&
				one_small(FREE) == NONE ->
			if
			:: one_small(EMPTY) != NONE -> p = one_small(EMPTY); state[p] = OWNED; goto make
			:: idle_small != NONE -> p = idle_small; goto take
			:: one_small(EMPTY) == NONE && idle_small == NONE -> goto failed
			fi
		:: else -> goto failed
		fi;
make_done:
		if
		:: bad -> d_step { state[p] = EMPTY; bad = false; p = NONE }; goto failed
		:: else ->
			d_step { give_next(p); p = NONE };
			goto supply
		fi;
take:
		skip;
		d_step {
#ifndef ALIAS_USABLE
			usable = usable & ~on(p);
#endif
			from = NO_SLOT
		};
		if
		:: is_shared(p) ->
			d_step {
				y = heads(p);
				from = first_of(y);
				to = end_of(from);
				gm = from;
				detach(gm);
				y = 0
			}
		:: skip
		fi;
		if
		:: from != NO_SLOT -> goto drop_unmap
		:: else -> from = 0; goto had
		fi;
drop_done:
		skip;
		d_step { gone(from, to, bad, true); bad = false; from = 0; to = 0 };
had:
		if
		:: state[p] == OWNED -> d_step { give_next(p); p = NONE }
		:: else -> p = NONE
		fi;
		goto supply;

		/* the driver maps them */
map_next:
		skip;
		d_step { at = 0; next_run() };
		if
		:: from > hi / 2 -> goto mapped_all
		:: else -> skip
		fi;
#ifdef BOOK_EARLY
		d_step {
			for (x : from .. to) {
				page[x] = next[x]
			};
			x = 0;
			usable = usable | span(from, to);
			claimed = claimed & ~span(from, to)
		};
#endif
#ifdef UNCLAIM_EARLY
		claimed = claimed & ~span(from, to);
#endif
		goto map;
map_done:
		skip;
		d_step { book_run(); err = bad; bad = false; held_back = false };
		if
		:: err -> goto failed
		:: else -> goto map_next
		fi;
mapped_all:
		skip;
		d_step {
#ifdef COUNT_LATE
			enter(lo / 2, hi / 2);
#endif
			end_plan();
			go_live();
			made = 0; from = 0; to = 0
		};
		goto use;

		/* what was mapped is unmapped */
failed:
		skip;
		d_step { put_rest_back() };
undo_next:
		if
		:: !made -> goto undone
		:: else -> skip
		fi;
		d_step {
			p = 0;
			do
			:: !has(made, p) -> p++
			:: else -> break
			od;
			made = made & ~(1 << p);
			from = in_use[p];
			to = end_of(from);
			gm = from;
			detach(gm)
		};
		goto undo_unmap;
undo_done:
		skip;
		d_step {
			gone(from, to, bad, true);
			if
#ifdef UNDO_KEPT
			:: true -> put_back(p)
#else
			:: !bad -> put_back(p)
#endif
			:: else -> skip
			fi;
			bad = false; p = NONE; from = 0; to = 0;
			check()
		};
		goto undo_next;
undone:
		skip;
		d_step {
			end_plan();
#if !defined(COUNT_LATE) && !defined(COUNT_KEPT)
			leave(lo / 2, hi / 2)
#endif
		};
give_up:
		skip;
		d_step { taken = taken & ~span(lo, hi); forget() };
		goto search;
free:
		skip;
		d_step {
			for (x : lo / 2 .. hi / 2) {
				assert(drv[x] == page[x] && has(drv_access & usable & busy, x))
			};
			x = 0;
			alive = alive & ~span(lo, hi);
			leave(lo / 2, hi / 2);
			taken = taken & ~span(lo, hi);
			forget()
		};
		goto search
	};
wait:
	!has(waiting, me);
	goto search;
done:
	skip
}

/* Releases idle pages, as a ladder or a trim does. */
#define can_go(p) (state[p] == OWNED && on(p) && is_idle(p) && !going[p])

proctype ladder()
{
	byte rounds, p, from, to;
	bit bad;

	goto pick;
unmap:
	unmap_run(from, to);
	goto unmapped;
release:
	if
	:: d_step { assert(!drv_on(p)) }
	:: d_step { may_fail -> faults++; bad = true }
	fi;
	goto released;
pick:
	atomic {
		if
		:: rounds == LADDERS -> goto done
		:: rounds < LADDERS && can_go(0) -> p = 0
		:: rounds < LADDERS && can_go(1) -> p = 1
		:: rounds < LADDERS && can_go(2) -> p = 2
		:: rounds < LADDERS && can_go(3) -> p = 3
		:: goto done
		fi;
		rounds++;
		usable = usable & ~on(p);
again:
		if
		:: on(p) ->
			d_step {
				y = heads(p);
				from = first_of(y);
				to = end_of(from);
				gm = from;
				detach(gm);
				y = 0
			};
			goto unmap
#ifndef GOING_RELEASED
		:: !on(p) && going[p] -> d_step { put_back(p) }; goto over
		:: !on(p) && !going[p] && has(kept, p) -> state[p] = LOST; goto over
		:: !on(p) && !going[p] && !has(kept, p) -> state[p] = LIMBO; goto release
#else
		:: !on(p) -> state[p] = LIMBO; goto release
#endif
		fi;
unmapped:
		skip;
		d_step { gone(from, to, bad, true); from = 0; to = 0; check() };
		if
		:: bad -> assert(state[p] == LOST)
		:: else -> goto again
		fi;
		goto over;
released:
		if
		:: bad -> state[p] = LOST; kept = kept | 1 << p
		:: else -> state[p] = EMPTY; in_use[p] = NO_SLOT
		fi;
over:
		p = 0;
		bad = false;
		goto pick
	};
done:
	skip
}

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
