/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* plan.pml: the steps of a plan. */

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
