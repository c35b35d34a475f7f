/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The clock of a GPU (lib/stream), for spin. A piece of memory is given to streams, used and
 * freed; the GPU runs what is queued when it likes, each stream in its order; the library
 * learns from its events and by waiting for streams, inserts stream waits, and is told of one
 * that the program made itself. One stream may end, announced or not, and a new one follow;
 * another one captures graphs, which may be launched on any stream.
 *
 * Shown: when memory is given to a stream, and when an operation on it is queued, all
 * operations of its earlier lives have run, or run before what is queued on that stream next.
 * For what is given to a graph they have run. Each of the mistakes below must be refuted:
 *
 *	TICK_FIRST	a free takes its tick before the last use is queued
 *	RECORD_FIRST	an event gets the tick of a moment after its record
 *	NO_SECOND	a free forgets the stream that the memory was used on besides its own
 *	OLD_TICK	memory that was put behind others' work is its stream's at its old tick
 *	WAIT_NOW	the program's wait counts from now, not from the record
 *	NOTE_LATE	the program's record is noted after it was made
 *	NOTE_EARLY	the program's wait is noted before it is made
 *	NOTE_CROSSED	a thread waits for an event between another one's note and its record
 *	EARLY_BIT	a bit goes to a new stream before the old one's last event has passed
 *	OPEN_BOOKS	the end of a stream is no tick, so what lives on passes for finished
 *	GRAPH_EVENT	an event recorded on a stream that captures is taken for its work
 *	GRAPH_NOTED	a dependency made in a capture is taken for one between streams
 *	GRAPH_OWN	a graph gets what lies in the order of the stream that captures it
 *	GONE_DONE	a stream on which nothing can be recorded any more passes for finished
 *	HANDLE_AGAIN	a new stream with the handle of one that has ended passes for that one
 *
 * Order is told by sets of operations, which drop out when they have run: the tail of a stream
 * is what its next operation runs after; an event is a copy of that, done when empty; a wait
 * joins the copy to another tail. What the library does under the lock of the GPU is one step.
 *
 * Bounds: three streams, one of which ends and one captures; a life of the memory and its next
 * owner. What would be too much at once is looked at by turns: a dependency that the program
 * makes; with LATER a second life; with BESIDE another block that is freed on the same page and
 * joins the use; with FAILING a request that gives back what it put in order.
 *
 * Not modelled: the crowd that shares the last bit; several events in flight on a stream (the
 * newest moves on); the bins, whose blocks stay in the order of their stream and take a tick
 * when they leave.
 */
#define STREAMS 3
#define OPS	4
#define ENDING	0 /* the stream that may end */
#define DRAWING 1 /* the stream that may capture */

#ifdef LATER
#define LIVES 2
#else
#define LIVES 1
#endif
#ifdef OLD_TICK
#define FAILING
#endif
#if !defined(LATER) && !defined(BESIDE) && !defined(FAILING)
#define NOTES
#endif
#ifdef NOTE_CROSSED
#define THREADS 2
#else
#define THREADS 1
#endif

/* ENDED: unannounced, as yet; GONE: the library knows; NONE: the bit is nobody's */
mtype = { LIVE, CAPTURING, LEAVING, ENDED, GONE, NONE };

typedef row { byte tick[STREAMS] }

mtype state[STREAMS] = LIVE;
bit heir; /* the stream that ended has left its bit to another */

/* The GPU: sets of operations. */
byte pending;	    /* that have not run */
byte before[OPS];   /* that run before one */
byte tail[STREAMS]; /* that run before the next one of a stream */
byte now;	    /* of the memory's present life */
byte old;	    /* of its earlier lives */

/* The clock. */
byte tick, freed[STREAMS], done[STREAMS];
row seen[STREAMS]; /* [waiter].tick[waited for] */

/* The event in flight on each stream, and its tick. */
bool flying[STREAMS];
byte event[STREAMS], stamp[STREAMS];

/* The memory: the streams that used it, the tick of its last free, and the streams of its
 * present life. */
byte used, until, marks;

/* The program's event, and what was noted of it. */
byte note, note_stream;
row note_behind;
bool noted;
bool recorded, waited; /* it has been, or is about to be */

#define has(set, i)	 ((set) >> (i) & 1)
#define is_open(b)	 (state[b] == LIVE || state[b] == CAPTURING)
#define is_ending(b)	 (state[b] == LEAVING || state[b] == GONE)
#define can_queue(b)	 (state[b] == LIVE && pending != (1 << OPS) - 1)
#define is_covered(b)	 (flying[b] && stamp[b] >= freed[b])
#define needed(b)	 (until < freed[b] -> until : freed[b])
#define is_finished(b)	 (state[b] == NONE || done[b] >= needed(b))
#define is_seen(b, s)	 (b == s || seen[s].tick[b] >= until)
#ifdef GRAPH_OWN
#define is_behind(b, s)	 is_seen(b, s)
#else
#define is_behind(b, s)	 (state[s] == LIVE && is_seen(b, s))
#endif
#define needs_wait(b, s) (has(used, b) && !is_finished(b) && !is_behind(b, s))

inline drop_event(b)
{
	flying[b] = false;
	event[b] = 0;
	stamp[b] = 0
}

inline drop_note()
{
	noted = false;
	note = 0;
	note_stream = 0;
	note_behind.tick[0] = 0;
	note_behind.tick[1] = 0;
	note_behind.tick[2] = 0
}

/* The memory was used until now. What was learned before says nothing of that, and is forgotten
 * so that there are fewer states. */
inline use(streams)
{
	used = streams;
	until = tick;
	for (b : 0 .. STREAMS - 1) {
		seen[0].tick[b] = 0;
		seen[1].tick[b] = 0;
		seen[2].tick[b] = 0;
		freed[b] = (done[b] >= freed[b] -> 0 : freed[b]);
		done[b] = 0;
		if
		:: is_covered(b) -> stamp[b] = freed[b]
		:: else -> drop_event(b)
		fi
	};
	b = 0;
#ifndef WAIT_NOW
	drop_note()
#endif
}

/* The program queues an operation on the memory. */
inline queue(s)
{
	d_step {
		assert(!(old & ~tail[s]));
		i = 0;
		do
		:: has(pending, i) -> i++
		:: else -> break
		od;
		before[i] = tail[s];
		pending = pending | 1 << i;
		tail[s] = tail[s] | 1 << i;
		now = now | 1 << i;
		i = 0
	}
}

inline run_one(o)
{
	d_step {
		has(pending, o) && !before[o] ->
		pending = pending & ~(1 << o);
		now = now & pending;
		old = old & pending;
		note = note & pending;
		for (i : 0 .. STREAMS - 1) {
			tail[i] = tail[i] & pending;
			event[i] = event[i] & pending
		};
		for (i : 0 .. OPS - 1) {
			before[i] = before[i] & pending
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

/* The end of a stream: what it did for memory that lives on counts as freed. */
inline close_books(b)
{
#ifndef OPEN_BOOKS
	tick++;
	freed[b] = tick
#else
	skip
#endif
}

/* The bit of a stream that has ended is nobody's when all its work has finished. */
inline settle(b)
{
	if
	:: is_ending(b) && done[b] >= freed[b] -> state[b] = NONE
	:: else -> skip
	fi
}

#ifdef GRAPH_EVENT
#define can_record(b) is_open(b)
#else
#define can_record(b) (state[b] == LIVE)
#endif

/* An event that covers all frees on a stream, if one can be had. */
inline cover(b)
{
	if
	:: !is_covered(b) && can_record(b) ->
		flying[b] = true;
		event[b] = (state[b] == LIVE -> tail[b] : 0);
		stamp[b] = tick
	:: !is_covered(b) && state[b] == ENDED ->
		state[b] = GONE;
		close_books(b);
#ifdef GONE_DONE
		done[b] = tick
#endif
	:: else -> skip
	fi
}

/* Puts a stream behind all that used the memory, if that can be done. */
inline order(s)
{
	given = true;
	for (b : 0 .. STREAMS - 1) {
		if
		:: needs_wait(b, s) && state[s] == CAPTURING -> given = false
		:: needs_wait(b, s) && state[s] == LIVE ->
			if
			:: flying[b] && stamp[b] >= needed(b) -> skip
			:: else -> cover(b)
			fi;
			if
			:: flying[b] && stamp[b] >= needed(b) ->
				tail[s] = tail[s] | event[b];
				seen[s].tick[b] = (is_covered(b) -> tick : stamp[b])
			:: else -> given = given && is_finished(b)
			fi
		:: else -> skip
		fi
	};
	b = 0
}

/* Asks for the memory. */
inline request(s)
{
	d_step {
		order(s);
		if
		:: given && used & ~(1 << s) ->
			/* the others' work lies behind this stream's now */
#ifdef OLD_TICK
			used = 1 << s
#else
			tick++;
			freed[s] = tick;
			use(1 << s)
#endif
		:: else -> skip
		fi;
		if
		:: given && state[s] == LIVE -> assert(!(old & ~tail[s])); marks = 1 << s
		:: given && state[s] == CAPTURING ->
			assert(!old); /* the next thing to happen may be a launch, anywhere */
			lives = LIVES
		:: else -> skip
		fi
	}
}

inline bury()
{
	old = old | now;
	now = 0
}

/* Streams that are known to have ended have closed their books. */
inline free()
{
	d_step {
		tick++;
		for (b : 0 .. STREAMS - 1) {
			freed[b] = (has(marks, b) && !is_ending(b) -> tick : freed[b])
		};
		use(used | marks);
		marks = 0;
		bury()
	}
}

inline choose(s)
{
	if
	:: is_open(0) -> s = 0
	:: is_open(1) -> s = 1
	:: is_open(2) -> s = 2
	fi
}

/* The stream is still the one that got the memory. */
#define is_mine(s) (s != ENDING || born == heir)

/* Uses the memory on any stream, which the program has put behind its own. */
inline use_besides()
{
	if
	:: can_queue(0) -> other = 0
	:: can_queue(1) -> other = 1
	:: can_queue(2) -> other = 2
	fi;
	tail[other] = tail[other] | tail[s];
	queue(other);
#ifndef NO_SECOND
	marks = marks | 1 << other;
#endif
	other = 0
}

/* The lives of the memory. */
active proctype user()
{
	byte lives, s, other, b, i;
	bool given, first, second, failed;
	bit born;

	do
	:: atomic { choose(s); request(s); born = heir };
		if
		:: !given -> skip
#ifdef FAILING
		:: given && !failed -> failed = true; marks = 0
#endif
		:: given && lives == LIVES -> break
		:: given && lives < LIVES ->
			do
			:: atomic {
				!first && is_mine(s) && can_queue(s) ->
				first = true;
				queue(s)
			}
			:: atomic {
				!second && is_mine(s) && can_queue(2) ->
				second = true;
				use_besides()
			}
			:: break
			od;
			free();
#ifdef TICK_FIRST
			if
			:: atomic { is_mine(s) && can_queue(s) -> queue(s); bury() }
			:: skip
			fi;
#endif
			lives++
		fi;
		d_step { given = false; first = false; second = false; s = 0; born = 0 }
	od
}

#ifdef BESIDE
active proctype neighbour()
{
	byte s, b;

end:	atomic {
		choose(s);
		d_step { tick++; freed[s] = tick; use(used | 1 << s) }
	}
}
#endif

inline ask(b)
{
	d_step {
		flying[b] && !event[b] ->
		done[b] = stamp[b];
		drop_event(b);
		settle(b)
	}
}

#ifdef RECORD_FIRST
#define poll(b)                                                                          \
	d_step { state[b] == LIVE -> drop_event(b); event[b] = tail[b] };                \
	d_step { state[b] == LIVE -> flying[b] = true; stamp[b] = tick }
#else
#define poll(b)                                                                          \
	d_step { !flying[b] && done[b] < freed[b] && !is_ending(b) -> cover(b) }
#endif

/* A stream was waited for, or the last event of one that has ended. */
inline wait_for(b)
{
	d_step {
		(state[b] == LIVE && !(old & tail[b])) ||
			(is_ending(b) && is_covered(b) && !event[b]) ->
		done[b] = tick;
		drop_event(b);
		settle(b)
	}
}

/* What the library does besides requests and frees. */
active proctype library()
{
	byte b;

end:	do
	:: ask(0)
	:: ask(1)
	:: ask(2)
	:: poll(0)
	:: poll(1)
	:: poll(2)
	:: wait_for(0)
	:: wait_for(1)
	:: wait_for(2)
	:: d_step { /* the GPU was waited for; more may have been queued on what is live */
		!old && !(is_ending(ENDING) && tail[ENDING]) && state[DRAWING] != CAPTURING ->
		for (b : 0 .. STREAMS - 1) {
			done[b] = tick;
			drop_event(b);
			settle(b)
		};
		b = 0
	}
	:: d_step { /* a look at the memory drops the streams that have finished */
		!marks ->
		for (b : 0 .. STREAMS - 1) {
			used = (is_finished(b) -> used & ~(1 << b) : used)
		};
		b = 0
	}
	od
}

#include "ticket_program.pml"
