/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The large block that was freed last, for spin: see lib/cache/bin/latest.h. Two threads ask for an extent
 * and free it; what it is, and of which size, changes each time it is merged and carved. A request takes it
 * by one CAS, with its size read before and looked at again after that; a free gives it by one CAS, and all
 * else is under the lock of the GPU, where whoever comes settles first. An owner may send its contents away,
 * by which it leaves its slots and says so in its bin. A third thread settles, as one that asks for figures,
 * and may leave another block there.
 *
 * Shown: a block has one owner, of the size that was asked for and with its pages; it is merged once, and by
 * nobody while it is live; a settle loses no block; and slots are told of only where the block is on them.
 * Each of the mistakes below must be refuted:
 *
 *	TAKE_STORE	a request tests the word and then stores
 *	TAKE_UNCHECKED	what was taken is given out without a second look at its size
 *	GIVE_STORE	a free tests the word and then stores
 *	GIVE_UNCLAIMED	a free gives the block before it claims it
 *	GIVE_AWAY	a block whose contents are away is given
 *	SETTLE_STORE	a settle reads the word and then stores
 *	SETTLE_MERGES	a settle merges a block that was taken
 *	SETTLE_AWAY	a settle tells of slots that the block has left
 *	FREE_UNSETTLED	a free that merges does not settle first
 *	STRAY_UNSETTLED	nor does who took a block of another size
 *
 * Whether a block is kept is a guess of the policy, so both answers are tried. Bounds: one extent of two
 * sizes, two threads of three requests each, two settles.
 */
#define USERS	 2
#define REQUESTS 3
#define SETTLES	 2

mtype = { FREE, LIVE, QUICK };
mtype:word = { NONE, KEPT, TAKEN, OTHER };

mtype state = FREE;
mtype:word word = NONE;
bit size;      /* of the two */
bool on;       /* it is on its slots, and its bin says nothing */
byte owners;
bool other;    /* another block is kept, which a free of it left */
bool lock;     /* of the GPU */
byte over;     /* threads that are */

inline take_lock() { atomic { !lock -> lock = true } }
inline drop_lock() { lock = false }

/* By the owner of an extent that is QUICK. */
inline make_live()
{
	d_step {
		assert(state == QUICK && !owners && on && size == want);
		owners++;
		state = LIVE
	}
}

inline merge()
{
	d_step {
		assert(state == QUICK && !owners);
		state = FREE;
		on = false
	}
}

/* Under the lock. */
inline settle()
{
#ifdef SETTLE_STORE
	was = word;
	word = NONE;
#else
	d_step { was = word; word = NONE }
#endif
	if
	:: was == KEPT -> merge()
	:: was == OTHER -> other = false
#ifdef SETTLE_MERGES
	:: was == TAKEN -> merge()
#elif defined(SETTLE_AWAY)
	:: was == TAKEN -> assert(on && state != FREE)
#else
	/* only its owner sends it away, and that is seen under the lock */
	:: was == TAKEN -> assert(state != FREE)
#endif
	:: else
	fi;
	was = NONE
}

inline try_take()
{
	got = false;
	if
	:: word == KEPT ->
		if
		:: size == want ->
#ifdef TAKE_STORE
			word = TAKEN;
			got = true
#else
			d_step {
				if
				:: word == KEPT -> word = TAKEN; got = true
				:: else
				fi
			}
#endif
		:: else
		fi
	:: else
	fi
}

inline stray()
{
	take_lock();
#ifndef STRAY_UNSETTLED
	settle();
#endif
	merge();
	drop_lock()
}

/* The request has it, or finds no memory. */
inline miss()
{
	take_lock();
	settle();
	if
	:: state == FREE ->
		d_step { state = QUICK; size = want; on = true }
		make_live();
		mine = true
	:: else
	fi;
	drop_lock()
}

inline ask()
{
	try_take();
	if
#ifdef TAKE_UNCHECKED
	:: got -> make_live(); mine = true
#else
	:: got && size == want -> make_live(); mine = true
	:: got && size != want -> stray(); miss()
#endif
	:: else -> miss()
	fi;
	got = false
}

inline claim()
{
	d_step {
		assert(state == LIVE && owners == 1);
		owners--;
		state = QUICK
	}
}

inline try_give()
{
	got = false;
	if
#ifdef GIVE_AWAY
	:: word == TAKEN ->
#else
	:: word == TAKEN && on ->
#endif
#ifdef GIVE_STORE
		word = KEPT;
		got = true
#else
		d_step {
			if
			:: word == TAKEN -> word = KEPT; got = true
			:: else
			fi
		}
#endif
	:: else
	fi
}

inline give_back()
{
#ifdef GIVE_UNCLAIMED
	try_give();
	claim();
#else
	claim();
	try_give();
#endif
	if
	:: got
	:: else ->
		take_lock();
#ifndef FREE_UNSETTLED
		settle();
#endif
		if
		:: on -> word = KEPT
		:: merge()
		fi;
		drop_lock()
	fi;
	got = false;
	mine = false
}

/* The contents of a live block go away, and its slots are left. */
inline send()
{
	take_lock();
	on = false;
	drop_lock()
}

active [USERS] proctype user()
{
	byte left = REQUESTS;
	mtype:word was = NONE;
	bool got, mine;
	bit want;

	do
	:: left ->
		left--;
		if
		:: want = 0
		:: want = 1
		fi;
		ask();
		if
		:: mine ->
			if
			:: send()
			:: skip
			fi;
			give_back()
		:: else
		fi
	:: else -> break
	od;
	over++
}

active proctype asks()
{
	byte left = SETTLES;
	mtype:word was = NONE;

	do
	:: left ->
		left--;
		take_lock();
		settle();
		if
		:: d_step { other = true; word = OTHER }
		:: skip
		fi;
		drop_lock()
	:: else -> break
	od;
	over++
}

/* The settle of the end finds what is left. */
active proctype ending()
{
	mtype:word was = NONE;

	over == USERS + 1;
	settle();
	assert(state == FREE && !owners && !other)
}
