/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams that used a block: see marks.h; and what that makes of it. */
#include "move/marks.h"
#include "move/block.h"

#define LOW_BITS    38
#define NUMBER_BITS 13
#define LOW	    ((UINT64_C(1) << LOW_BITS) - 1)
#define SEVERAL	    ((UINT64_C(1) << NUMBER_BITS) - 1) /* in place of the first number */

_Static_assert(LOW_BITS + 2 * NUMBER_BITS == 64, "two numbers above the bits");
_Static_assert(GLK_STREAMS_MAX < SEVERAL, "each stream has a number there");

static uint64_t first_of(uint64_t marks)
{
	return marks >> LOW_BITS & SEVERAL;
}

static uint64_t second_of(uint64_t marks)
{
	return marks >> (LOW_BITS + NUMBER_BITS);
}

static uint64_t with_number(uint64_t marks, uint64_t number)
{
	uint64_t first = first_of(marks);

	if (first == number || first == SEVERAL || second_of(marks) == number)
		return marks;
	if (first && number != SEVERAL && !second_of(marks))
		return marks | number << (LOW_BITS + NUMBER_BITS);
	return (marks & LOW) | (first ? SEVERAL : number) << LOW_BITS;
}

static void add_number(struct glk_extent *e, uint64_t number)
{
	uint64_t old = glk_load_relaxed(&e->marks);

	while (!glk_cas_weak_relaxed(&e->marks, &old, with_number(old, number)))
		;
}

void glk_marks_add(
	const struct glk_streams *streams, struct glk_extent *e, uint32_t stream)
{
	uint64_t mask = glk_stream_known_mask(glk_stream_at(streams, stream));

	if (mask & LOW)
		glk_or_relaxed(&e->marks, mask);
	else if (mask)
		add_number(e, stream);
}

void glk_marks_add_use(const struct glk_streams *streams, struct glk_extent *e,
	const struct glk_use *use)
{
	uint64_t high = use->streams & ~LOW & ~GLK_USE_CROWD;

	glk_or_relaxed(&e->marks, use->streams & LOW);
	for (; high; high &= high - 1) {
		uint32_t id = streams->by_bit[__builtin_ctzll(high)];

		if (id)
			add_number(e, id);
	}
	for (uint64_t left = use->named; left; left = glk_use_rest(left))
		add_number(e, glk_use_first(left));
	if (glk_use_crowded(use))
		add_number(e, SEVERAL);
}

/* One that has gone has no bit. Whoever has its number by now is waited for too, which does no harm. */
static void add_to(
	const struct glk_streams *streams, uint64_t number, struct glk_use *use)
{
	struct glk_use more;

	if (!number)
		return;
	more = glk_stream_use(glk_stream_at(streams, (uint32_t)number), use->tick);
	glk_use_add(use, &more);
}

struct glk_use glk_marks_use(
	struct glk_streams *streams, const struct glk_extent *e, uint64_t tick)
{
	uint64_t marks = glk_load_relaxed(&e->marks);
	struct glk_use use = glk_use_of(marks & LOW, tick);

	if (first_of(marks) == SEVERAL) {
		use.streams |= streams->used & ~LOW;
	} else {
		add_to(streams, first_of(marks), &use);
		add_to(streams, second_of(marks), &use);
	}
	glk_clock_join(streams, &use);
	return use;
}

/* A live block that was used on further streams goes to no bin. Its holders may do this at once. */
void glk_block_to_no_bin(struct glk_extent *e)
{
	uint32_t bin = glk_load_relaxed(&e->bin);

	while (bin != GLK_BIN_PINNED && bin != GLK_BIN_MARKED && bin != GLK_EXTENT_AWAY &&
		bin != GLK_EXTENT_PART &&
		!glk_cas_weak_relaxed(&e->bin, &bin, GLK_BIN_MARKED))
		;
}

/* Books a free: the set of streams that used a block are the one it was given to, the one it is
 * freed on, and those it was used on. A stream that has ended and has no more work is in no set. */
struct glk_use glk_block_use(
	struct glk_cache *cache, const struct glk_extent *e, uint32_t freed_on)
{
	struct glk_stream *of = glk_stream_at(&cache->streams, e->stream), *on = of;
	struct glk_use use, more;
	uint64_t tick;

	if (freed_on)
		on = glk_stream_enter(&cache->streams, freed_on);
	tick = glk_clock_tick(&cache->streams, on);
	use = glk_stream_use(on, tick);
	if (of != on) {
		glk_event_due(&cache->streams, glk_stream_mask(on), e->size);
		glk_clock_raise(&cache->streams, of, tick);
		more = glk_stream_use(of, tick);
		glk_use_add(&use, &more);
	}
	if (glk_marks_any(e)) {
		more = glk_marks_use(&cache->streams, e, tick);
		glk_event_due(&cache->streams, more.streams, e->size);
		glk_use_add(&use, &more);
	}
	return use;
}
