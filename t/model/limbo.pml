/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How mappings and pages are taken away (lib/stream/limbo.c, lib/cache/arena/back.c), for spin.
 * Blocks of two streams lie on one slot or two. A request takes what is usable there, removes
 * what is stale, and gets idle pages, which keep their mappings elsewhere, or new ones for the
 * rest; it may fail half way and undoes what it did. One block may become a graph's: then work
 * names its slots that is on no known stream, until the graph is gone and the GPU was waited
 * for. A remover releases idle pages.
 *
 * Shown: no mapping goes while an operation that names its slot has not run; a page is in use
 * through one slot at most, and released when it has none. Each of the mistakes below must be
 * refuted:
 *
 *	NO_CLOCK	a mapping goes without a look at the clock of the GPU
 *	STALE_UNASKED	one whose page is in use elsewhere goes without a look at the clock
 *	ALIAS_UNASKED	a page is released after a look at one of its mappings
 *	ALIAS_LEFT	a page is released with a mapping left
 *	STEAL_UNORDERED	a stream gets an idle page without being put behind its work
 *	UNDO_FOUND	a request that fails unmaps what it had found mapped
 *	POOL_IDLE	the slots of a graph are idle while it can be launched
 *	POOL_UNSYNCED	they are idle when the graph is gone and its work is not
 *
 * The clock tells of a slot what an event recorded at the last free would cover: a set of
 * operations, which drop out when they have run; t/model/ticket.pml shows that. What is done
 * under the lock of the GPU is one step: no reader without it follows a mapping.
 *
 * Bounds: two slots and two pages, each of which may be mapped in both; two streams and three
 * requests; two rounds of the remover, one graph. Not modelled: slots on which two blocks meet,
 * pages of several slots, and mappings that the driver does not give up.
 */
#define SLOTS	 2
#define PAGES	 2
#define STREAMS	 2
#define OPS	 4
#define REQUESTS 3
#define ROUNDS	 2
#define NOWHERE	 PAGES

bool lock; /* of the GPU */
byte requests;

/* The GPU: sets of operations. */
byte pending;	    /* that have not run */
byte before[OPS];   /* that run before one */
byte tail[STREAMS]; /* that run before the next one of a stream */
byte names[SLOTS];  /* that name a slot */

/* The map. */
byte page[SLOTS] = NOWHERE;
bool live[SLOTS];  /* a block is on it */
bool made[SLOTS];  /* mapped by the request under way */
bool exists[PAGES];
bool drawn; /* there is a graph, or was one */

/* What the clock tells. */
byte own[SLOTS];
byte all[PAGES];

#define has(set, i)  ((set) >> (i) & 1)
#define is_on(p, x)  (page[x] == p)
#define is_mapped(x) (page[x] != NOWHERE)
#define is_shared(x) (page[0] == page[1] && is_mapped(x))
#define is_stale(x)  (is_shared(x) && live[1 - x])
#define is_idle(p)   (!(is_on(p, 0) && live[0]) && !(is_on(p, 1) && live[1]))
#define can_queue    (pending != (1 << OPS) - 1)

inline run_one(o)
{
	d_step {
		has(pending, o) && !before[o] ->
		pending = pending & ~(1 << o);
		for (i : 0 .. OPS - 1) {
			before[i] = before[i] & pending
		};
		for (i : 0 .. 1) {
			tail[i] = tail[i] & pending;
			names[i] = names[i] & pending;
			own[i] = own[i] & pending;
			all[i] = all[i] & pending
		};
		i = 0
	}
}

active proctype gpu()
{
	byte i;

end:	do
	:: run_one(0)
	:: run_one(1)
	:: run_one(2)
	:: run_one(3)
	od
}

inline unmap(x)
{
	assert(!names[x]);
	own[1 - x] = (is_shared(x) -> own[1 - x] | all[page[x]] : own[1 - x]);
	own[x] = 0;
	page[x] = NOWHERE
}

/* Puts a stream behind the work on a page, which lies behind that stream then. */
inline order(s, p)
{
#ifndef STEAL_UNORDERED
	tail[s] = tail[s] | all[p];
#endif
	all[p] = tail[s];
	own[0] = (is_on(p, 0) && !is_on(p, 1) -> tail[s] : own[0]);
	own[1] = (is_on(p, 1) && !is_on(p, 0) -> tail[s] : own[1])
}

/* What is usable is used as it is. */
inline enter(s, x)
{
	if
	:: has(want, x) && is_mapped(x) && !is_stale(x) ->
		order(s, page[x]);
		live[x] = true
	:: else -> skip
	fi
}

#if defined(NO_CLOCK) || defined(STALE_UNASKED)
#define is_ready(x) true
#else
#define is_ready(x) (!own[x])
#endif

/* What is stale goes. */
inline clear(x)
{
	if
	:: has(want, x) && is_stale(x) && !is_ready(x) -> failed = true
	:: has(want, x) && is_stale(x) && is_ready(x) && !failed -> d_step { unmap(x) }
	:: else -> skip
	fi
}

/* The rest gets a page: an idle one, or a new one, or none. */
inline fill(s, x)
{
	if
	:: has(want, x) && !is_mapped(x) && !failed ->
		if
		:: is_idle(0) -> p = 0
		:: is_idle(1) && exists[0] -> p = 1
		:: p = NOWHERE
		fi;
		d_step {
			if
			:: p != NOWHERE ->
				exists[p] = true;
				order(s, p);
				own[x] = (is_on(p, 1 - x) -> 0 : all[p]);
				page[x] = p;
				made[x] = true;
				live[x] = true
			:: else -> failed = true
			fi;
			p = 0
		}
	:: else -> skip
	fi
}

inline undo(x)
{
	if
	:: has(want, x) && live[x] ->
		live[x] = false;
		if
#ifdef UNDO_FOUND
		:: true -> unmap(x)
#else
		:: made[x] -> unmap(x)
#endif
		:: else -> skip
		fi
	:: else -> skip
	fi
}

/* Asks for a block on one slot or both. */
inline request(s)
{
	if
	:: !live[0] -> want = 1
	:: !live[1] -> want = 2
	:: !live[0] && !live[1] -> want = 3
	fi;
	d_step { enter(s, 0); enter(s, 1) };
	clear(0);
	clear(1);
	fill(s, 0);
	fill(s, 1);
	if
	:: failed = true /* no access to what was mapped, say */
	:: skip
	fi;
	d_step {
		if
		:: failed -> undo(1); undo(0); want = 0
		:: else ->
			assert(!(is_shared(0) && live[0] && live[1]))
		fi;
		made[0] = false;
		made[1] = false;
		failed = false
	}
}

/* An operation names all slots of the block. That of a graph waits for no stream. */
inline queue(after)
{
	d_step {
		assert((!has(want, 0) || is_mapped(0)) && (!has(want, 1) || is_mapped(1)));
		i = 0;
		do
		:: has(pending, i) -> i++
		:: else -> break
		od;
		pending = pending | 1 << i;
		before[i] = after;
		names[0] = names[0] | has(want, 0) << i;
		names[1] = names[1] | has(want, 1) << i
	}
}

inline leave(x, work)
{
	if
	:: has(want, x) ->
		live[x] = false;
		own[x] = own[x] | work;
		all[page[x]] = all[page[x]] | work
	:: else -> skip
	fi
}

inline free(work)
{
	d_step { !lock -> leave(0, work); leave(1, work) }
}

/* The block belongs to a graph, which goes some day. */
inline serve_graph()
{
#ifdef POOL_IDLE
	free(0);
#endif
	do
	:: atomic { can_queue -> queue(0); i = 0 }
	:: break
	od;
#ifndef POOL_UNSYNCED
	!pending; /* the GPU was waited for */
#endif
#ifndef POOL_IDLE
	free(0)
#endif
}

proctype user(byte s)
{
	byte want, p, i;
	bool failed;

	do
	:: atomic {
		!lock && requests < REQUESTS && !(live[0] && live[1]) ->
		lock = true;
		requests++;
		request(s);
		lock = false
	};
		if
		:: !want -> skip
		:: want ->
			if
			:: atomic {
				can_queue ->
				queue(tail[s]);
				tail[s] = tail[s] | 1 << i;
				i = 0
			}
			:: skip
			fi;
			free(tail[s])
		:: want && !drawn -> drawn = true; serve_graph()
		fi;
		want = 0
	:: requests == REQUESTS -> break
	od
}

#ifdef NO_CLOCK
#define may_go(p) true
#elif defined(ALIAS_UNASKED)
#define may_go(p) (is_on(p, 0) -> !own[0] : !is_on(p, 1) || !own[1])
#else
#define may_go(p) (!(is_on(p, 0) && own[0]) && !(is_on(p, 1) && own[1]))
#endif

inline release(p)
{
	if
	:: exists[p] && is_idle(p) && may_go(p) ->
		d_step {
			if
			:: is_on(p, 0) -> unmap(0)
			:: else -> skip
			fi;
#ifndef ALIAS_LEFT
			if
			:: is_on(p, 1) -> unmap(1)
			:: else -> skip
			fi;
#endif
			assert(!is_on(p, 0) && !is_on(p, 1));
			exists[p] = false;
			all[p] = 0
		}
	:: else -> skip
	fi
}

active proctype remover()
{
	byte rounds;

	do
	:: atomic {
		!lock && rounds < ROUNDS ->
		lock = true;
		rounds++;
		release(0);
		release(1);
		lock = false
	}
	:: rounds == ROUNDS -> break
	od
}

init
{
	atomic { run user(0); run user(1) }
}
