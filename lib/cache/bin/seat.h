/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_SEAT_H
#define GLK_CACHE_SEAT_H

/*
 * The seat of a thread at a GPU: what lets it be served without a lock. It has the rows of the
 * streams the thread used last, and the thread's part of the figures. A thread takes its seat
 * at its first request and keeps it until it ends; then the next thread continues with the
 * figures as they stand, so nothing is ever added up but the seats.
 *
 * Writers	the thread of the seat, by load and store; figures of other threads' blocks
 *		that it frees may drop below zero
 * Peak		a thread that requests or frees after another takes its turn, and what was
 *		reached in the turn before is told from that one's figures alone, if all others
 *		were idle. Threads at work side by side take their turn more and more rarely
 * Readers	any thread; sums are exact while nobody is inside the library
 * Threads without a seat, for want of memory, are served under the lock and share seat 0
 */
#include "base/thread.h"
#include "cache/bin/row.h"
#include "move/gpu.h"

struct glk_cache;

#define GLK_SEAT_ROWS 64

/* The serial number of a GPU that was closed; no seat has it. */
#define GLK_SEAT_NOBODY (UINT64_MAX >> GLK_SEAT_BITS)

#define GLK_SEATS_MAX GLK_THREAD_MAX
#define GLK_SEAT_BITS 17

struct glk_seat {
	/* By the hash of the stream's handle, or by another one where two have the same; row 0, which is nobody's, where
	 * none is known. */
	struct glk_row *rows[GLK_SEAT_ROWS];
	glk_atomic(uint64_t) allocs, frees;
	glk_atomic(uint64_t) live,
		peak; /* bytes asked for; the most since its turn began */
	/* Bytes of blocks as they lie, that it gave out and took back. */
	glk_atomic(uint64_t) given, back;
	const glk_atomic(uint64_t) * turn; /* whose it is, by the name of the seat */
	uint64_t name;
	struct glk_cache *cache;
	glk_atomic(
		uint64_t) turned; /* requests and frees so far when its last turn began */
	uint32_t rest,
		rests; /* until it asks for its turn again; how long that was made */
	uint32_t id;
	uint32_t pad[9];
};

_Static_assert(GLK_SEATS_MAX < 1 << GLK_SEAT_BITS, "a name has room for each number");
_Static_assert(sizeof(struct glk_seat) % 64 == 0, "two threads never share a cache line");

/* A seat among those of all GPUs, so that one comparison tells a thread that its place is at this GPU and that it has
 * the turn there: the serial number of the GPU, never 0, and the seat's own. */
static inline uint64_t glk_seat_name(uint64_t serial, uint32_t id)
{
	return serial << GLK_SEAT_BITS | id;
}

static inline uint64_t glk_seat_serial(uint64_t name)
{
	return name >> GLK_SEAT_BITS;
}

static inline uint32_t glk_seat_number(uint64_t name)
{
	return (uint32_t)name & ((1u << GLK_SEAT_BITS) - 1);
}

static inline unsigned glk_seat_hash(const void *handle)
{
	/* small numbers and addresses of objects alike: the highest bits of the product */
	return (unsigned)((uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 58) %
		GLK_SEAT_ROWS;
}

static inline unsigned glk_seat_other(const void *handle)
{
	return (unsigned)((uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 46) %
		GLK_SEAT_ROWS;
}

/* seat.c: the row of a stream that is not at its hash; row 0: it is not known. */
struct glk_row *glk_seat_elsewhere(const struct glk_seat *seat, const void *handle)
	__attribute__((noinline));

/* seat.c: the row of a stream is known from now on; that of the stream that was there is known by its other hash. */
void glk_seat_sit(struct glk_seat *seat, const void *handle, struct glk_row *row);

/* seat.c: takes the turn, unless it was so short of late that others are at work too. */
void glk_seat_turn(struct glk_seat *seat) __attribute__((noinline));

/* In its turn. */
static inline void glk_seat_gave(struct glk_seat *seat, uint64_t asked, uint64_t given)
{
	uint64_t live = glk_load_relaxed(&seat->live) + asked;

	glk_add_own(&seat->allocs, 1);
	glk_add_own(&seat->given, given);
	glk_store_relaxed(&seat->live, live);
	if ((int64_t)live > (int64_t)glk_load_relaxed(&seat->peak))
		glk_store_relaxed(&seat->peak, live);
}

/* In its turn, of a block that keeps its place: so many bytes more, or fewer. */
static inline void glk_seat_grew(struct glk_seat *seat, uint64_t asked, uint64_t given)
{
	uint64_t live = glk_load_relaxed(&seat->live) + asked;

	if ((int64_t)given < 0)
		glk_add_own(&seat->back, -given);
	else
		glk_add_own(&seat->given, given);
	glk_store_relaxed(&seat->live, live);
	if ((int64_t)live > (int64_t)glk_load_relaxed(&seat->peak))
		glk_store_relaxed(&seat->peak, live);
}

static inline void glk_seat_took(struct glk_seat *seat, uint64_t asked, uint64_t given)
{
	glk_add_own(&seat->frees, 1);
	glk_add_own(&seat->live, -asked);
	glk_add_own(&seat->back, given);
}

static inline void glk_seat_alloc(struct glk_seat *seat, uint64_t asked, uint64_t given)
{
	if (glk_load_relaxed(seat->turn) != seat->name)
		glk_seat_turn(seat);
	glk_seat_gave(seat, asked, given);
}

static inline void glk_seat_free(struct glk_seat *seat, uint64_t asked, uint64_t given)
{
	if (glk_load_relaxed(seat->turn) != seat->name)
		glk_seat_turn(seat);
	glk_seat_took(seat, asked, given);
}

/* seat.c: gives a GPU its number before any thread can ask it: threads compare it when the GPU
 * is not started yet, too. */
void glk_seats_number(struct glk_cache *cache);
/* 0 or -ENOMEM; takes a zeroed structure. */
int glk_seats_init(struct glk_cache *cache);
void glk_seats_fini(struct glk_cache *cache);
/* The seat of the calling thread, taken now if it has none; NULL: none can be had. */
struct glk_seat *glk_seat_take(struct glk_cache *cache);
/* A thread with a tag has no seat at the GPUs of its context, so that none of its requests is a hit. Gives the tag
 * of the calling thread; 0: it has none here. */
uint32_t glk_seat_tag(const struct glk_cache *cache);
/* Sets it, for the context that a GPU is of; 0: none. 0 or -ENOMEM without a record. */
int glk_seat_set_tag(const struct glk_cache *cache, uint32_t id);
/* The seat that the calling thread has goes to others. */
void glk_seat_leave(const struct glk_cache *cache);
void glk_seats_sum(struct glk_cache *cache, struct glk_seats *ret_sum);
/* The most bytes that were live: exact while threads use the GPU one after the other, some requests
 * each, else the most that was seen at their turns and by requests that missed. */
uint64_t glk_seats_peak(struct glk_cache *cache);
void glk_seats_note_peak(struct glk_cache *cache, uint64_t live);
void glk_seats_reset_peak(struct glk_cache *cache);

#endif
