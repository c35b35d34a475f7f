/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of extents, for spin: threads allocate and free without a lock, by a bin of freed
 * extents of one size; misses, merges and flushes are under the lock of the GPU. A freed block
 * waits in its bin or is merged at once with what is free beside it. What the bin is for changes
 * under the lock, while requests go by the size they read before, and frees put a block back
 * where it was given from, whatever lies there by now. One thread frees blocks of others.
 *
 * Shown: a block is live once and never merged while it is; one of two frees of it wins, and
 * none that read the word in an earlier life; what was freed lies in the bin or is free at the
 * end; nobody waits for ever. Each of the mistakes below must be refuted:
 *
 *	FREE_STORE	free tests the word and then stores
 *	NO_STEP		the generation does not step, so a word of an earlier life passes
 *	PUSH_FIRST	free pushes before it claims
 *	MERGE_QUICK	a freed neighbour is merged while it waits in the bin
 *	POP_UNCHECKED	what was popped is given out without a look at its size
 *	STRAY_DROPPED	what was popped and is of another size is merged by nobody
 *
 * The bin is a set: t/model/row.cc shows that of the real one. What may wait in it is a guess of
 * the policy, so both answers are tried. Bounds: three grains, two threads of two requests each,
 * one double free, one flush.
 */
#define GRAINS	 3
#define NOBODY	 GRAINS
#define USERS	 2
#define THREADS	 (USERS + 1)
#define REQUESTS 2

mtype = { NONE, FREE, LIVE, QUICK };

/* An extent is named after its first grain. */
mtype state[GRAINS] = NONE;
byte size[GRAINS];
byte bin;     /* set of extents */
byte key = 1; /* the size it is for */
bool lock;    /* of the GPU */
byte given;   /* set of grains that are in live blocks */

/*
 * The block that a thread has or frees, and whether its extent has become live again since:
 * then the generation is another one than the thread knows.
 */
byte mine[THREADS] = NOBODY;
bool stale[THREADS];

#define grains_of(e) (((1 << size[e]) - 1) << (e))
#define in_bin(e)    (bin >> (e) & 1)
#ifdef MERGE_QUICK
#define merges(e)    (state[e] == FREE || state[e] == QUICK)
#else
#define merges(e)    (state[e] == FREE)
#endif

inline take_lock() { atomic { !lock -> lock = true } }
inline drop_lock() { lock = false }

/* The owner of an extent makes it live for a request of `want` grains. */
inline make_live(e, want)
{
	d_step {
		assert(size[e] == want && state[e] != LIVE);
		assert(!(given & grains_of(e)) && !in_bin(e));
		given = given | grains_of(e);
		at = 0;
		do
		:: at < THREADS -> stale[at] = stale[at] || mine[at] == e; at++
		:: else -> break
		od;
		at = 0;
		mine[me] = e;
		state[e] = LIVE
	}
}

inline push(e)
{
	d_step { assert(!in_bin(e)); bin = bin | 1 << e }
}

/* Under the lock, by its owner: an extent becomes free and one with what is free beside it. */
inline merge(e)
{
	d_step {
		assert(state[e] == QUICK && !in_bin(e) && !(given & grains_of(e)));
		at = e + size[e];
		if
		:: at < GRAINS && merges(at) ->
			size[e] = size[e] + size[at];
			state[at] = NONE
		:: else -> skip
		fi;
		state[e] = FREE;
		at = 0;
		do
		:: at < e ->
			if
			:: merges(at) && at + size[at] == e ->
				state[at] = FREE;
				size[at] = size[at] + size[e];
				state[e] = NONE
			:: else -> skip
			fi;
			at++
		:: else -> break
		od;
		at = 0
	}
}

/* Without a lock: any of the bin. */
inline pop()
{
	if
	:: atomic { in_bin(0) -> e = 0; bin = bin & ~1 }
	:: atomic { in_bin(1) -> e = 1; bin = bin & ~2 }
	:: atomic { in_bin(2) -> e = 2; bin = bin & ~4 }
	:: atomic { bin == 0 -> e = NOBODY }
	fi
}

/* Under the lock: gives the bin back, one by one. */
inline flush()
{
	do
	:: true ->
		pop();
		if
		:: e == NOBODY -> break
		:: else -> merge(e)
		fi
	od
}

/* Under the lock: the lowest free extent that is large enough is cut. */
inline carve(want)
{
	d_step {
		e = 0;
		do
		:: e < GRAINS && (state[e] != FREE || size[e] < want) -> e++
		:: else -> break
		od;
		if
		:: e == GRAINS -> e = NOBODY
		:: else ->
			if
			:: size[e] > want ->
				state[e + want] = FREE;
				size[e + want] = size[e] - want;
				size[e] = want
			:: else -> skip
			fi
		fi
	}
}

/* A request that the bin does not serve. */
inline miss(want)
{
	take_lock();
	if
	:: key != want ->
		if
		:: bin -> flush()
		:: skip /* the bin was for no size, or a push under way is not seen */
		fi;
		key = want
	:: else -> skip
	fi;
	carve(want);
	if
	:: e == NOBODY -> flush(); carve(want)
	:: else -> skip
	fi;
	if
	:: e != NOBODY -> make_live(e, want)
	:: else -> skip
	fi;
	drop_lock()
}

/* From the bin, if it is for that size. */
inline alloc(want)
{
	e = NOBODY;
	if
	:: key == want -> pop()
	:: else -> skip
	fi;
#ifdef POP_UNCHECKED
	if
	:: e != NOBODY -> make_live(e, want)
#else
	if
	:: e != NOBODY && size[e] == want -> make_live(e, want)
	:: e != NOBODY && size[e] != want ->
#ifndef STRAY_DROPPED
		take_lock();
		merge(e);
		drop_lock();
#endif
		miss(want)
#endif
	:: else -> miss(want)
	fi
}

/*
 * Frees the block of the thread. A second free that reads the word when the extent lives again
 * cannot be told from a good one, so it is not made.
 */
inline free(e)
{
#ifdef PUSH_FIRST
	if
	:: state[e] == LIVE -> push(e)
	:: else -> skip
	fi;
#endif
	won = state[e] == LIVE && !stale[me];
	d_step {
#ifdef FREE_STORE
#elif defined(NO_STEP)
		won = won && state[e] == LIVE;
#else
		won = won && state[e] == LIVE && !stale[me];
#endif
		if
		:: won ->
			assert(state[e] == LIVE && !stale[me]);
			given = given & ~grains_of(e);
			state[e] = QUICK
		:: else -> skip
		fi;
		mine[me] = NOBODY;
		stale[me] = false
	};
	if
	:: !won -> skip
#ifndef PUSH_FIRST
	:: won -> push(e) /* whatever the bin is for by now */
	:: won ->
		take_lock();
		merge(e);
		drop_lock()
#else
	:: won -> skip
#endif
	fi;
	won = false
}

proctype user(byte me)
{
	byte e, requests, at;
	bool won;

	do
	:: requests < REQUESTS ->
		requests++;
		if
		:: alloc(1)
		:: alloc(2)
		fi;
		if
		:: e != NOBODY -> free(e)
		:: else -> skip
		fi;
		e = 0
	:: else -> break
	od
}

/* Frees a block that another thread holds. */
proctype stranger(byte me)
{
	byte e, at;
	bool won;

	if
	:: atomic { state[0] == LIVE -> e = 0; mine[me] = e }
	:: atomic { state[1] == LIVE -> e = 1; mine[me] = e }
	:: atomic { state[2] == LIVE -> e = 2; mine[me] = e }
	:: e = NOBODY
	fi;
	if
	:: e != NOBODY -> free(e)
	:: else -> skip
	fi
}

proctype flusher()
{
	byte e, at;

	take_lock();
	flush();
	drop_lock()
}

init
{
	byte e;

	atomic {
		state[0] = FREE;
		size[0] = GRAINS;
		for (e : 1 .. USERS) {
			run user(e - 1)
		};
		run stranger(USERS);
		run flusher()
	};
	(_nr_pr == 1);
	d_step {
		assert(!given && !lock);
		e = 0;
		do
		:: e < GRAINS ->
			assert(state[e] == FREE || (state[e] == QUICK && in_bin(e)));
			bin = bin & ~(1 << e);
			e = e + size[e]
		:: else -> break
		od;
		assert(e == GRAINS && !bin)
	}
}
