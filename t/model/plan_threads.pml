/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* plan.pml: a request from its place to its end, and the ladder. */

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
