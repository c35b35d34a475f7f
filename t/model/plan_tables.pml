/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* plan.pml: what the tables are, and how they change under the lock. */

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
