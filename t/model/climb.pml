/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who waits for whose plan (lib/move/plan.c), for spin. Requests want pages, of which there are too few
 * for all. Each takes what is free and makes more while there is room. One that finds too little puts back
 * what it has, unless nobody else is inside, and waits for its turn on the ladder, with nobody inside but
 * those who are parked; there it tries again, gives back what it cannot use, and waits for what the GPU is not
 * done with, while others go in and out. Beside them free pages are given back to the driver, and somebody
 * changes the rights of all that is mapped, with nobody inside.
 *
 * With WAITS the GPU ends its work only when a visitor has come and gone, who may come late, and somebody
 * inside waits for that too, with a page in his hands.
 *
 * Shown: nobody waits who is never told, and nobody looks for memory again more often than plans
 * end; one climbs at a time, with nobody else in the middle of anything; who is refused could not be served with
 * all that is not live, not even with what others had in their hands, and while no call fails somebody is
 * served if one alone would be; nobody is inside while plans are closed; no page is lost. Each of the mistakes
 * below must be refuted:
 *
 *	CLIMB_BESIDE	two climb at a time
 *	CLIMB_OPEN	one climbs while others are inside
 *	CLIMB_HOLDING	who waits for its turn keeps what it has in its hands
 *	CLIMB_COUNTED	who waits for its turn is waited for
 *	WAIT_SHUT	nobody is let in while the climber waits for the GPU
 *	PARK_NEVER	who waits for the GPU inside is not parked
 *	PARK_SILENT	nobody is told of it
 *	PARK_ON		it goes on while somebody climbs
 *	OTHERS_NEVER	who finds nothing is refused while plans are under way
 *	END_SILENT	neither the end of a plan is told nor that its request leaves
 *	END_EARLY	both are told before they are so
 *	END_KEPT	a request that is refused is under way for ever
 *	KEEP		it keeps what it had in its hands
 *	LEAVE_SILENT	who leaves does not tell who closes
 *	OPEN_SILENT	who opens does not tell who wants in
 *	ENTER_CLOSED	who comes does not look whether plans are closed
 *	CLOSE_AT_ONCE	who closes does not wait for who is inside
 *
 * What is done under the lock of the GPU is one step. Pages that idle, with their mappings, are
 * free ones here, and blocks live until all requests are over. Bounds: three requests of two or
 * three pages, three or four pages, one failure; with WAITS or CLOSERS two requests.
 */
#if defined(LEAVE_SILENT) || defined(OPEN_SILENT) || defined(ENTER_CLOSED) ||            \
	defined(CLOSE_AT_ONCE)
#define CLOSERS
#endif
#if defined(WAIT_SHUT) || defined(PARK_NEVER) || defined(PARK_SILENT) ||                 \
	defined(PARK_ON) || defined(OTHERS_NEVER)
#define WAITS
#endif
#if defined(CLOSERS) || defined(WAITS)
#define REQUESTS 2
#else
#define REQUESTS 3
#endif
#define LOOKS	 6 /* no request sees as many plans end */

#define has(set, i) ((set) >> (i) & 1)
#define missing	    (want[me] - hand[me])
#define not_live    (all - live[0] - live[1] - live[2])

/* Pages: on the list, room for more, idle behind work of the GPU, in somebody's hands, live. */
byte free, room, late, all;
byte hand[3], live[3];
byte want[3];
byte served;
bool failed;   /* the driver did */
bool launched; /* the visitor has come and gone */

/* Plans. */
byte inside, parked, under_way;
bool closed, shut, climbing, changing, alone;
byte asleep; /* set of those who wait to be told */
byte news;   /* set of those for whom a plan has ended since they looked */

inline tell() { asleep = 0 }
/* Gives the lock up until told. */
inline wait() { asleep = asleep | 1 << me; !has(asleep, me) }

inline enter()
{
#ifndef ENTER_CLOSED
	do
	:: closed || shut -> wait()
	:: else -> break
	od;
#endif
	assert(!changing);
	inside++
}

inline leave()
{
	inside--;
#if !defined(LEAVE_SILENT) && !defined(END_SILENT) && !defined(END_EARLY)
	tell()
#endif
}

inline end()
{
	assert(under_way);
	under_way--;
	news = 127;
#if !defined(END_SILENT) && !defined(END_EARLY)
	tell()
#endif
}

inline park()
{
#ifndef PARK_NEVER
	parked++;
#ifndef PARK_SILENT
	tell()
#endif
#endif
	skip
}

inline unpark()
{
#ifndef PARK_NEVER
#ifndef PARK_ON
	do
	:: shut -> wait()
	:: else -> break
	od;
#endif
	parked--
#endif
	skip
}

/* Nobody but the climber goes on. */
inline shut_out()
{
	shut = true;
#ifndef CLIMB_OPEN
	do
	:: inside > parked + 1 -> wait()
	:: else -> break
	od;
#endif
	alone = true
}

inline let_in() { shut = false; alone = false; tell() }

inline take_free()
{
	d_step {
		do
		:: missing && free -> free--; hand[me]++
		:: else -> break
		od
	}
}

inline put_back() { d_step { free = free + hand[me]; hand[me] = 0 } }

/* One request. */
proctype request(byte me)
{
	byte looks, away;
	bool climbs, bad, tried;

	goto begin;

	/* Without the lock. */
grow:
	do
	:: d_step { missing && room -> room--; hand[me]++ }
	:: d_step { !missing || !room -> skip }; break
	od;
	if
	:: tried -> goto climb_grown
	:: else -> goto grown
	fi;
drain:
	skip;
	d_step { room = room + away; away = 0 };
	goto drained;
map:
	if
	:: skip
	:: d_step { !failed -> failed = true; bad = true }
	fi;
	goto mapped;
await:
	!late || launched;
	goto awaited;

	/* Under the lock. */
begin:
	atomic {
		enter();
		/* addresses may be had when a plan of others has ended */
		if
		:: under_way ->
			news = news & ~(1 << me);
			parked++;
			tell();
			do
			:: !has(news, me) || shut -> wait()
			:: else -> break
			od;
			parked--
		:: skip
		fi;
again:
		assert(!alone || climbs);
		tried = false;
		under_way++;
		take_free();
		if
		:: missing -> goto grow
		:: else -> goto map
		fi;
grown:
		assert(!alone || climbs);
		if
		:: !missing -> goto map
		:: missing && climbs -> goto ladder
		:: missing && !climbs && !climbing && inside <= parked + 1 ->
			climbing = true;
			climbs = true;
			shut = true;
			alone = true;
			goto ladder
		:: else -> skip
		fi;
#ifndef CLIMB_HOLDING
		put_back();
#endif
		end();
#ifndef CLIMB_COUNTED
		parked++;
#endif
		tell();
#ifndef CLIMB_BESIDE
		do
		:: climbing -> wait()
		:: else -> break
		od;
#endif
		assert(!climbing);
		climbing = true;
		climbs = true;
#ifndef CLIMB_COUNTED
		parked--;
#endif
		shut_out();
		goto again;
ladder:
		tried = true;
		away = (free < missing -> free : missing);
		free = free - away;
		goto drain;
drained:
		if
		:: room -> goto grow
		:: else -> skip
		fi;
climb_grown:
		if
		:: !missing -> goto map
		:: missing && late ->
#ifndef WAIT_SHUT
			let_in();
#endif
			goto await
		:: else -> goto others
		fi;
awaited:
		free = free + late;
		late = 0;
		shut_out();
		take_free();
		goto ladder;
others:
		put_back();
		end();
		looks++;
		assert(looks < LOOKS);
#ifndef OTHERS_NEVER
		if
		:: under_way ->
			news = news & ~(1 << me);
			let_in();
			do
			:: !has(news, me) -> wait()
			:: else -> break
			od;
			shut_out();
			goto again
		:: else -> skip
		fi;
#endif
		assert(want[me] > not_live);
		goto out;
mapped:
		if
		:: bad -> goto refused
		:: else -> skip
		fi;
		d_step { live[me] = hand[me]; hand[me] = 0; served++ };
		goto ended;
refused:
		skip;
#ifndef KEEP
		put_back();
#ifdef END_KEPT
		leave();
		goto done;
#endif
#endif
ended:
#ifdef END_EARLY
		tell()
	};
	atomic {
#endif
		end();
out:
		if
		:: climbs ->
			climbs = false;
			climbing = false;
			shut = false;
			alone = false;
			tell()
		:: else -> skip
		fi;
		leave()
	};
done:
	skip
}

/* A trim: all that is free goes. */
proctype trim(byte me)
{
	byte away;

	atomic {
		enter();
		under_way++;
		away = free;
		free = 0
	};
	d_step { room = room + away; away = 0 };
	atomic { end(); leave() }
}

/* Somebody waits for the GPU in the middle of his plan. */
proctype mover(byte me)
{
	byte mine;

	atomic {
		enter();
		under_way++;
		if
		:: free -> free--; mine = 1
		:: else -> skip
		fi
	};
	atomic { park() };
	launched;
	atomic {
		unpark();
		assert(!alone);
		free = free + mine;
		mine = 0;
		end();
		leave()
	}
}

/* A request that finds all it needs. */
proctype visitor(byte me)
{
	atomic { enter() };
	atomic { leave(); launched = true }
}

/* The rights of all that is mapped change. */
proctype closer(byte me)
{
	atomic {
		do
		:: closed -> wait()
		:: else -> break
		od;
		closed = true;
#ifndef CLOSE_AT_ONCE
		do
		:: inside -> wait()
		:: else -> break
		od;
#endif
		changing = true;
		assert(!inside)
	};
	atomic {
		assert(!inside && closed);
		changing = false;
		closed = false;
#ifndef OPEN_SILENT
		tell()
#endif
	}
}

#define some(n) (want[0] <= n || want[1] <= n || want[2] <= n)

init
{
	byte i;

	atomic {
		if
		:: free = 2; room = 2
		:: free = 1; room = 2
		fi;
#ifdef WAITS
		if
		:: late = 1; room = 1
		:: skip
		fi;
#endif
		all = free + room + late;
		if
		:: want[0] = 2; want[1] = 2; want[2] = 3
		:: want[0] = 2; want[1] = 3; want[2] = 3
		:: want[0] = 3; want[1] = 3; want[2] = 3
		fi;
		for (i : 0 .. REQUESTS - 1) {
			run request(i)
		};
#ifdef WAITS
		run mover(3);
		run visitor(4)
#else
#ifdef CLOSERS
		run visitor(2);
		run closer(3);
		run closer(4)
#else
		run trim(3)
#endif
#endif
	};
	(_nr_pr == 1);
	assert(!inside && !parked && !under_way && !climbing && !closed && !shut);
	assert(free + room + late + live[0] + live[1] + live[2] == all);
	assert(served || failed || !some(all))
}
