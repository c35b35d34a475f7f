/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of tickets: see ticket.h. */
#include "move/ticket.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/slab.h"

#include <errno.h>
#include <inttypes.h>

/* Places that are looked at for a free one. A program that closes its tickets has few. */
#define PLACES 64

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_TICKET);

/* Under the lock. */
static struct glk_ticket *table;
static uint64_t serial; /* of the last one */
static uint32_t cursor; /* behind its place */

int glk_ticket_ready(void)
{
	glk_lock(&lock);
	if (!table)
		table = glk_region_new(GLK_TICKETS * sizeof(*table));
	glk_unlock(&lock);
	return table ? 0 : -ENOMEM;
}

static uint32_t choose(void)
{
	for (uint32_t i = 0; i < PLACES; i++) {
		uint32_t place = (cursor + i) % GLK_TICKETS;

		if (!table[place].number)
			return place;
	}
	return cursor;
}

uint64_t glk_ticket_new(const struct glk_ticket *t)
{
	uint64_t number;
	uint32_t place;

	glk_lock(&lock);
	place = choose();
	cursor = (place + 1) % GLK_TICKETS;
	number = ++serial << GLK_TICKET_BITS | place;
	table[place] = *t;
	table[place].number = number;
	glk_unlock(&lock);
	return number;
}

/* NULL: it is none. */
static struct glk_ticket *find(uint64_t number)
{
	struct glk_ticket *t = table ? &table[number % GLK_TICKETS] : NULL;

	return t && number && t->number == number ? t : NULL;
}

static int is_stale(uint64_t number)
{
	return glk_error(-ESTALE, GLAKE_ERROR_STALE,
		"0x%" PRIx64
		" is no open ticket: it was closed, or 65536 others were left open",
		number);
}

int glk_ticket_read(uint64_t number, struct glk_ticket *ret_ticket)
{
	const struct glk_ticket *t;

	glk_lock(&lock);
	t = find(number);
	if (t)
		*ret_ticket = *t;
	glk_unlock(&lock);
	return t ? 0 : is_stale(number);
}

void glk_ticket_write(const struct glk_ticket *now)
{
	struct glk_ticket *t;

	glk_lock(&lock);
	t = find(now->number);
	if (t && !glk_ticket_has_ended(t))
		*t = *now;
	glk_unlock(&lock);
}

int glk_ticket_close(uint64_t number)
{
	struct glk_ticket *t;

	glk_lock(&lock);
	t = find(number);
	if (t)
		t->number = 0;
	glk_unlock(&lock);
	return t ? 0 : is_stale(number);
}

void glk_ticket_end(uint64_t number, int state, int error)
{
	struct glk_ticket *t;

	glk_lock(&lock);
	t = find(number);
	if (t && !glk_ticket_has_ended(t)) {
		t->state = state;
		t->error = error;
		t->ended = glk_clock_ns();
		if (!t->begun && state == GLAKE_TICKET_DONE)
			t->begun = t->ended;
	}
	glk_unlock(&lock);
}

void glk_ticket_begin(uint64_t number, const struct glk_told *told)
{
	struct glk_ticket *t;

	glk_lock(&lock);
	t = find(number);
	if (t && t->state == GLAKE_TICKET_QUEUED) {
		t->state = GLAKE_TICKET_COPYING;
		t->begun = glk_clock_ns();
		t->told = *told;
	}
	glk_unlock(&lock);
}
