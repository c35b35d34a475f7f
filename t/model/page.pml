/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of pages and their mappings, for spin: a host thread takes pages, maps them, queues
 * work and frees; the GPU works when it likes; a program asks where a block lies, under the
 * lock; a reclaimer takes mappings away in batches, of pages whose work has finished.
 *
 * Shown: no kernel and no question ever meets a mapping that has gone, and a page has one state
 * and one owner. Each of the mistakes below must be refuted:
 *
 *	NO_EVENT	does not wait for the GPU
 *	NO_LOCK		a question is not under the lock
 *	REUSE_LIMBO	takes a page out of limbo as if it were free
 *
 * Bounds: two pages, two readers, three blocks, two batches.
 */
#define PAGES	2
#define READERS 2
#define BLOCKS	3
#define BATCHES 2
#define NONE	PAGES

mtype = { EMPTY, FREE, OWNED, LIMBO };

/* EMPTY: no memory; FREE: on the list of its node; OWNED: of the map of a GPU */
mtype state[PAGES] = EMPTY;
bool mapped[PAGES];   /* the driver has the mapping */
bool live[PAGES];     /* a block is on it, and the tables name it */
bool work[PAGES];     /* queued or running kernels use the mapping */
bool lock;	      /* of the GPU: map, cache and limbo */

inline take_lock() { atomic { !lock -> lock = true } }
inline drop_lock() { lock = false }

/* Someone uses the mapping of a page right now. */
inline touch(p) { assert(mapped[p] && state[p] == OWNED) }

active proctype host()
{
	byte p, blocks;

	do
	:: blocks < BLOCKS ->
		blocks++;
		p = 0;
		if
		:: p = 1
		:: skip
		fi;
		take_lock();
		if
		:: state[p] == OWNED && !live[p] -> skip /* idle: its mapping is a hit */
		:: state[p] == FREE -> state[p] = OWNED
		:: state[p] == EMPTY -> state[p] = OWNED /* grow */
#ifdef REUSE_LIMBO
		:: state[p] == LIMBO -> state[p] = OWNED
#endif
		:: else -> drop_lock(); p = NONE
		fi;
		if
		:: p == NONE -> skip
		:: else ->
			assert(!live[p]);
			mapped[p] = true;
			live[p] = true;
			drop_lock();
			work[p] = true; /* a kernel is queued */
			take_lock();
			live[p] = false; /* freed in stream order: the tables forget it */
			drop_lock()
		fi
	:: else -> break
	od
}

active proctype gpu()
{
	do
	:: work[0] -> touch(0); work[0] = false
	:: work[1] -> touch(1); work[1] = false
	:: timeout -> break
	od
}

active [READERS] proctype reader()
{
	byte p;

#ifndef NO_LOCK
	take_lock();
#endif
	if
	:: live[0] -> p = 0
	:: live[1] -> p = 1
	:: else -> p = NONE
	fi;
	if
	:: p != NONE -> touch(p); touch(p)
	:: else -> skip
	fi;
#ifndef NO_LOCK
	drop_lock()
#endif
}

active proctype reclaimer()
{
	byte p, batches;

	do
	:: batches < BATCHES ->
		batches++;
		take_lock();
		p = 0;
		do
		:: p < PAGES ->
			if
#ifdef NO_EVENT
			:: state[p] == OWNED && mapped[p] && !live[p] ->
#else
			:: state[p] == OWNED && mapped[p] && !live[p] && !work[p] ->
#endif
				mapped[p] = false;
				if
				:: state[p] = FREE
				:: state[p] = LIMBO;
#ifdef REUSE_LIMBO
				   drop_lock(); take_lock();
#endif
				   assert(state[p] == LIMBO);
				   state[p] = EMPTY
				fi
			:: else -> skip
			fi;
			p++
		:: else -> break
		od;
		drop_lock()
	:: else -> break
	od
}
