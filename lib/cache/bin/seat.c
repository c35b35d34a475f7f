/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Seats come from a slab of their GPU. A thread that ends gives them back, to GPUs that are
 * still open: every GPU in use has a serial number that is never given again, and stands in a
 * list while it may be asked.
 */
#include "cache/bin/seat.h"

#include "base/fork.h"
#include "cache/cache.h"

#include <errno.h>
#include <stddef.h>

/* Where the turn before was one of fewer requests and frees than SHORT, or others were at work in it, threads are side
 * by side: the next turn comes later, by LONG of them at most. */
#define SHORT 8
#define LONG  255

static struct glk_lock seats_lock = GLK_LOCK_INIT(GLK_RANK_SEAT);
static struct glk_cache *open_caches;
static uint64_t last_serial;

static struct glk_cache *find_open(uint64_t serial)
{
	struct glk_cache *cache = open_caches;

	while (cache && cache->serial != serial)
		cache = cache->next_open;
	return cache;
}

static void leave(struct glk_thread_seat *place)
{
	struct glk_cache *cache;

	glk_lock(&seats_lock);
	cache = find_open(glk_seat_serial(place->name));
	if (cache)
		glk_slab_put(&cache->seats, glk_seat_number(place->name));
	glk_unlock(&seats_lock);
	place->name = 0;
}

static void thread_ends(struct glk_thread *thread)
{
	/* in a forked child the lock may be held by a thread that is none of it */
	if (thread->forks != glk_fork_generation())
		return;
	for (int i = 0; i < GLK_THREAD_SEATS; i++)
		if (thread->seats[i].name)
			leave(&thread->seats[i]);
	thread->tag.id = 0;
}

void glk_seats_number(struct glk_cache *cache)
{
	glk_lock(&seats_lock);
	cache->serial = ++last_serial;
	glk_store_relaxed(&cache->seat_turn, glk_seat_name(cache->serial, 0));
	glk_unlock(&seats_lock);
	/* two contexts that one thread uses by turns have places of their own */
	cache->seat_at = (uint32_t)(offsetof(struct glk_thread, seats) +
		cache->serial % GLK_THREAD_SEATS * sizeof(struct glk_thread_seat));
}

static struct glk_seat *seat_up(struct glk_cache *cache, uint32_t id)
{
	struct glk_seat *seat = glk_slab_at(&cache->seats, id);

	seat->id = id;
	seat->cache = cache;
	seat->turn = &cache->seat_turn;
	seat->name = glk_seat_name(cache->serial, id);
	return seat;
}

int glk_seats_init(struct glk_cache *cache)
{
	int err;

	err = glk_slab_init(&cache->seats, sizeof(struct glk_seat), GLK_SEATS_MAX);
	if (err)
		return err;
	glk_thread_at_end(thread_ends);
	seat_up(cache, 0);
	glk_lock(&seats_lock);
	cache->next_open = open_caches;
	open_caches = cache;
	glk_unlock(&seats_lock);
	return 0;
}

void glk_seats_fini(struct glk_cache *cache)
{
	struct glk_cache **link = &open_caches;

	glk_lock(&seats_lock);
	while (*link && *link != cache)
		link = &(*link)->next_open;
	if (*link)
		*link = cache->next_open;
	cache->serial = GLK_SEAT_NOBODY;
	glk_store_relaxed(&cache->seat_turn, glk_seat_name(cache->serial, 0));
	glk_unlock(&seats_lock);
	glk_slab_fini(&cache->seats);
}

void glk_seats_note_peak(struct glk_cache *cache, uint64_t live)
{
	uint64_t peak = glk_load_relaxed(&cache->peak_live);

	while (live > peak && !glk_cas_weak_relaxed(&cache->peak_live, &peak, live))
		;
}

struct glk_seat *glk_seat_take(struct glk_cache *cache)
{
	struct glk_thread *thread = glk_thread_self();
	struct glk_thread_seat *place;
	struct glk_seat *seat;
	uint32_t id;

	if (!thread || glk_seat_tag(cache))
		return NULL;
	place = (void *)((char *)thread + cache->seat_at);
	if (glk_seat_serial(place->name) == cache->serial)
		return place->seat;
	id = glk_slab_get(&cache->seats);
	if (!id)
		return NULL;
	if (place->name)
		leave(place);
	seat = seat_up(cache, id);
	for (int i = 0; i < GLK_SEAT_ROWS; i++)
		seat->rows[i] = &cache->rows[0];
	thread->forks = glk_fork_generation();
	place->seat = seat;
	place->name = seat->name;
	/* its first request may be served from a bin, for which its turn has begun */
	glk_seat_turn(seat);
	return seat;
}

struct glk_row *glk_seat_elsewhere(const struct glk_seat *seat, const void *handle)
{
	struct glk_row *row = seat->rows[glk_seat_other(handle)];

	return glk_load_relaxed(&row->handle) == handle ? row : &seat->cache->rows[0];
}

void glk_seat_sit(struct glk_seat *seat, const void *handle, struct glk_row *row)
{
	struct glk_row **place = &seat->rows[glk_seat_hash(handle)], *was = *place;
	const void *had = glk_load_relaxed(&was->handle);

	*place = row;
	/* nobody, or of a stream that has ended */
	if (was == row || was == &seat->cache->rows[0] || had == GLK_ROW_ENDED)
		return;
	seat->rows[glk_seat_other(had)] = was;
}

uint32_t glk_seat_tag(const struct glk_cache *cache)
{
	const struct glk_thread *thread = glk_thread_current;

	return thread->tag.serial == cache->arena.binned->serial ? thread->tag.id : 0;
}

int glk_seat_set_tag(const struct glk_cache *cache, uint32_t id)
{
	struct glk_thread *thread = glk_thread_self();

	if (!thread)
		return -ENOMEM;
	thread->tag.serial = cache->arena.binned->serial;
	thread->tag.id = id;
	return 0;
}

void glk_seat_leave(const struct glk_cache *cache)
{
	struct glk_thread *thread = glk_thread_self();
	struct glk_thread_seat *place;

	if (!thread)
		return;
	place = (void *)((char *)thread + cache->seat_at);
	if (glk_seat_serial(place->name) == cache->serial)
		leave(place);
}

/* Without the seat of one number. */
static void sum_but(struct glk_cache *cache, uint32_t but, struct glk_seats *ret_sum)
{
	struct glk_seats sum = {0};
	uint32_t used = glk_load_relaxed(&cache->seats.used);

	for (uint32_t id = 0; id <= used; id++) {
		const struct glk_seat *seat = glk_slab_at(&cache->seats, id);

		if (id == but)
			continue;
		sum.frees += glk_load_relaxed(&seat->frees);
		sum.live += glk_load_relaxed(&seat->live);
		sum.total_given += glk_load_relaxed(&seat->given);
		sum.given +=
			glk_load_relaxed(&seat->given) - glk_load_relaxed(&seat->back);
		sum.allocs += glk_load_relaxed(&seat->allocs);
	}
	*ret_sum = sum;
}

void glk_seats_sum(struct glk_cache *cache, struct glk_seats *ret_sum)
{
	sum_but(cache, UINT32_MAX, ret_sum);
}

static uint64_t did_of(const struct glk_seat *seat)
{
	return glk_load_relaxed(&seat->allocs) + glk_load_relaxed(&seat->frees);
}

/* The number of the seat whose turn it is: what its thread has filled in of the seat itself need not be seen yet. */
static uint32_t in_turn(const struct glk_cache *cache)
{
	return glk_seat_number(glk_load_relaxed(&cache->seat_turn));
}

/* What was reached in the turn that now ends, or goes on. Whether it was a long one in which all others were idle. */
static bool note_turn(struct glk_cache *cache)
{
	uint32_t turn = in_turn(cache);
	const struct glk_seat *seat = glk_slab_at(&cache->seats, turn);
	struct glk_seats others;
	uint64_t live;
	bool alone;

	sum_but(cache, turn, &others);
	/* they stand as they stood when it began */
	alone = others.allocs + others.frees == glk_load_relaxed(&cache->seat_others);
	live = others.live + glk_load_relaxed(alone ? &seat->peak : &seat->live);
	if ((int64_t)live > 0)
		glk_seats_note_peak(cache, live);
	return alone && did_of(seat) - glk_load_relaxed(&seat->turned) >= SHORT;
}

/* Under `seat_turning`. */
static void begin_turn(struct glk_cache *cache, struct glk_seat *seat)
{
	struct glk_seats others;

	sum_but(cache, seat->id, &others);
	glk_store_relaxed(&seat->peak, glk_load_relaxed(&seat->live));
	glk_store_relaxed(&seat->turned, did_of(seat));
	glk_store_relaxed(&cache->seat_others, others.allocs + others.frees);
	glk_store_relaxed(&cache->seat_turn, seat->name);
}

void glk_seat_turn(struct glk_seat *seat)
{
	struct glk_cache *cache = seat->cache;
	bool was_long;

	if (seat->rest && seat->rest < seat->rests) {
		seat->rest--;
		return;
	}
	/* pairs with: the release below */
	if (glk_xchg_acq_rel(&cache->seat_turning, 1))
		return;
	/* before it rests, what it does meanwhile being work beside that turn */
	was_long = note_turn(cache);
	if (was_long || !seat->rest) {
		seat->rests = was_long ? 0 : seat->rests * 2 + 1;
		if (seat->rests > LONG)
			seat->rests = LONG;
		seat->rest = seat->rests;
		begin_turn(cache, seat);
	} else {
		seat->rest--;
	}
	glk_store_release(&cache->seat_turning, 0); /* pairs with: the exchange above */
}

uint64_t glk_seats_peak(struct glk_cache *cache)
{
	note_turn(cache);
	return glk_load_relaxed(&cache->peak_live);
}

void glk_seats_reset_peak(struct glk_cache *cache)
{
	struct glk_seat *seat = glk_slab_at(&cache->seats, in_turn(cache));
	struct glk_seats sum;

	glk_seats_sum(cache, &sum);
	glk_store_relaxed(&seat->peak, glk_load_relaxed(&seat->live));
	glk_store_relaxed(&cache->peak_live, sum.live);
}
