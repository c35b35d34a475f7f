/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who waits for whose plan (lib/cache/plan.c, the climb in lib/cache/arena/supply.c), for
 * spin. Three requests want pages, of which there are too few for all. Each takes what is free,
 * makes more while there is room, and climbs the ladder for the rest, with what it has in its
 * hands. What it got goes back when it finds too little, or when the driver fails it. Before one is
 * refused that others met it stands alone: it is tried once more while no other one is. Beside them free
 * pages are given back to the driver, and somebody changes the rights of all that is mapped, with
 * nobody inside.
 *
 * Shown: nobody waits who is never told, and nobody looks for memory again more often than plans
 * end; one climbs at a time; who is refused could not be served with what nobody has, not even
 * with what others had in their hands, and while no call fails somebody is served if one alone would be; nobody is inside while plans are
 * closed; no page is lost. Each of the mistakes below must be refuted:
 *
 *	CLIMB_SILENT	who waits until others have ended is not told that one climbs now
 *	CLIMB_UNCOUNTED	one that waits for its turn to climb is waited for
 *	CLIMB_BESIDE	two climb at a time
 *	YIELD_NEVER	who finds nothing is refused while others are under way
 *	LOOK_LATE	what ended while the ladder was climbed is not looked at
 *	STAND_NEVER	who has met others is refused without standing alone
 *	STAND_EARLY	who stands does not wait until no other one is tried
 *	TRY_BESIDE	who is tried does not look whether another one stands
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
 * three pages, three or four pages, one failure; with CLOSERS two requests, one that needs no
 * plan, and two who close.
 */
#if defined(LEAVE_SILENT) || defined(OPEN_SILENT) || defined(ENTER_CLOSED) ||            \
	defined(CLOSE_AT_ONCE)
#define CLOSERS
#endif
#ifdef CLOSERS
#define REQUESTS 2
#else
#define REQUESTS 3
#endif
#define LOOKS	 6 /* no request sees as many plans end */

#define has(set, i) ((set) >> (i) & 1)
#define missing	    (want[me] - hand[me])
#define not_live    (all - live[0] - live[1] - live[2])

/* Pages: on the list, room for more, in somebody's hands, live. */
byte free, room, all;
byte hand[3], live[3];
byte want[3];
byte served;
bool failed; /* the driver did */

/* Plans. */
byte inside, under_way, climbers;
bool closed, climbing, changing;
byte tries, met, stands, stood;
byte asleep; /* set of those who wait to be told */
byte news;   /* set of those for whom a plan has ended since they looked */

inline tell() { asleep = 0 }
/* Gives the lock up until told. */
inline wait() { asleep = asleep | 1 << me; !has(asleep, me) }

inline enter()
{
#ifndef ENTER_CLOSED
	do
	:: closed -> wait()
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
	news = 31;
#if !defined(END_SILENT) && !defined(END_EARLY)
	tell()
#endif
}

inline take_free()
{
	d_step {
		do
		:: missing && free -> free--; hand[me]++
		:: else -> break
		od
	}
}

/* One request. */
proctype request(byte me)
{
	byte looks, away, others, turn;
	bool climbs, bad, tried, had_met, alone;

	goto begin;

	/* Without the lock. */
grow:
	do
	:: d_step { missing && room -> room--; hand[me]++ }
	:: d_step { !missing || !room -> skip }; break
	od;
	if
	:: climbs -> goto climb_grown
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

	/* Under the lock. */
begin:
	atomic {
		enter();
		/* addresses may be had when a plan of others has ended */
		if
		:: under_way ->
			news = news & ~(1 << me);
			do
			:: !has(news, me) -> wait()
			:: else -> break
			od
		:: skip
		fi;
again:
		looks = 0;
#ifndef TRY_BESIDE
		do
		:: stands != stood && !alone -> wait()
		:: else -> break
		od;
#endif
		had_met = tries > 0;
		met = met + had_met;
		others = met;
		tries++;
		under_way++;
		take_free();
		if
		:: missing -> goto grow
		:: else -> goto map
		fi;
grown:
		if
		:: !missing -> goto map
		:: else -> skip
		fi;

		climbs = true;
#ifndef CLIMB_UNCOUNTED
		climbers++;
#endif
#ifndef CLIMB_SILENT
		tell();
#endif
#ifndef CLIMB_BESIDE
		do
		:: climbing -> wait()
		:: else -> break
		od;
#endif
#ifdef CLIMB_UNCOUNTED
		climbers++;
#endif
		assert(!climbing);
		climbing = true;
look:
		looks++;
		assert(looks < LOOKS);
		news = news & ~(1 << me);
		take_free();
		tried = false;
ladder:
		if
		:: !missing -> goto climbed
		:: else -> skip
		fi;
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
		:: !missing -> goto climbed
		:: missing && !tried -> tried = true; goto ladder
		:: else -> skip
		fi;
#ifdef LOOK_LATE
		news = news & ~(1 << me);
#endif
#ifndef YIELD_NEVER
		do
		:: !has(news, me) && under_way > climbers -> wait()
		:: else -> break
		od;
#endif
		if
		:: has(news, me) -> goto look
		:: else -> skip
		fi;
climbed:
		climbers--;
		climbing = false;
		climbs = false;
		tell();
		if
		:: !missing -> goto map
		:: else -> skip
		fi;
		assert(hand[me] + free + room < want[me]);
		goto refused;
mapped:
		if
		:: bad -> goto refused
		:: else -> skip
		fi;
		d_step { live[me] = hand[me]; hand[me] = 0; served++ };
		goto out;
refused:
		skip;
#ifndef KEEP
		d_step { free = free + hand[me]; hand[me] = 0 };
#ifdef END_KEPT
		leave();
		goto done;
#endif
#endif
#ifndef STAND_NEVER
		if
		:: !bad && !alone && (had_met || met != others) ->
			end();
			tries--;
			tell();
			turn = stands;
			stands++;
			do
#ifdef STAND_EARLY
			:: stood != turn -> wait()
#else
			:: stood != turn || tries -> wait()
#endif
			:: else -> break
			od;
			alone = true;
			goto again
		:: else -> skip
		fi;
#endif
		assert(bad || want[me] > not_live);
out:
		tries--;
		if
		:: alone ->
			alone = false;
			stood++;
			tell()
		:: else -> skip
		fi;
#ifdef END_EARLY
		tell()
	};
	atomic {
#endif
		end();
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

/* A request that finds all it needs. */
proctype visitor(byte me)
{
	atomic { enter() };
	atomic { leave() }
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
		all = free + room;
		if
		:: want[0] = 2; want[1] = 2; want[2] = 3
		:: want[0] = 2; want[1] = 3; want[2] = 3
		:: want[0] = 3; want[1] = 3; want[2] = 3
		fi;
		for (i : 0 .. REQUESTS - 1) {
			run request(i)
		};
#ifdef CLOSERS
		run visitor(2);
		run closer(3);
		run closer(4)
#else
		run trim(3)
#endif
	};
	(_nr_pr == 1);
	assert(!inside && !under_way && !climbers && !climbing && !closed);
	assert(free + room + live[0] + live[1] + live[2] == all);
	assert(served || failed || !some(all))
}
