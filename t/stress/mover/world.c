/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The program, what it asks for and uses, and what is looked at. */
#include "stress/mover/mover.h"

#include "api/context.h"
#include "base/clock.h"
#include "seed.h"
#include "soft/fault.h"
#include "soft/soft.h"
#include "tier/tier.h"
#include "unit/cache/walk.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define STEP                                                                             \
	(128 * KIB) /* from one piece of a block that is written and compared to the next */
#define PIECE	((size_t)512)
#define NUMBERS (16 * MIB / sizeof(uint32_t))
#define PLACES	4096
#define PIECES	128

static uint32_t numbers[NUMBERS + PLACES];

void make_numbers(void)
{
	if (numbers[1])
		return;
	for (size_t i = 0; i < NUMBERS + PLACES; i++)
		numbers[i] = (uint32_t)i * 2654435761u + 1;
}

uint64_t below(struct world *w, uint64_t n)
{
	return seed_below(&w->random, n);
}

bool chance(struct world *w, unsigned percent)
{
	return below(w, 100) < percent;
}

void failed(struct world *w, const char *format, ...)
{
	va_list args;
	int used;

	if (w->wrong)
		return;
	used = snprintf(w->text, sizeof(w->text),
		"turn %llu, %s: ", (unsigned long long)w->turns, w->doing);
	va_start(args, format);
	vsnprintf(w->text + used, sizeof(w->text) - (size_t)used, format, args);
	va_end(args);
	w->wrong = w->text;
}

bool judge(struct world *w, int err, const int *may)
{
	struct glake_error record = {.sz = sizeof(record)};

	if (w->tell)
		tap_note("%s: %d", w->doing, err);
	if (!err)
		return true;
	w->refused++;
	for (; may && *may; may++) {
		if (err == *may)
			return false;
	}
	if (w->struck && (err == -EIO || err == -ENOMEM))
		return false;
	glake_last_error(&record);
	failed(w, "%d, %s", err, record.text);
	return false;
}

/* What is given back is not refused: that memory would be lost by rights. */
void strike(struct world *w, const char *doing)
{
	static const char *const ops[] = {"copy", "create", "map", "set_access",
		"event_record", "event_query", "stream_wait", "host_lock", "event_new",
		"stream_new", "managed_prefetch"};
	const char *last;
	char rule[64];

	w->doing = doing;
	w->moves++;
	w->warned = messages(&last);
	if (!w->faults || !chance(w, 30))
		return;
	w->struck = true;
	w->struck_calls++;
	snprintf(rule, sizeof(rule), "%s:%s=%u:err=%s",
		ops[below(w, sizeof(ops) / sizeof(*ops))], chance(w, 70) ? "nth" : "from",
		(unsigned)(1 + below(w, 12)), chance(w, 50) ? "EIO" : "ENOMEM");
	glk_fault_set(w->drv, rule);
	if (w->tell)
		tap_note("%s: %s", doing, rule);
}

void calm(struct world *w)
{
	const char *last;

	if (w->struck)
		glk_fault_set(w->drv, "off");
	/* A warning says that something lies nowhere any more, since the driver took nothing back
	 * either: the program can only end. */
	if (messages(&last) != w->warned) {
		if (!w->struck)
			failed(w, "a warning: %s", last);
		w->lost = true;
		messages_expected();
	}
	w->struck = false;
}

struct glake_block asked(struct world *w, const struct block *b)
{
	struct glake_block got = {.sz = sizeof(got)};
	int err = glake_query(w->ctx, b->at, &got);

	if (err)
		failed(w, "glake_query: %d", err);
	return got;
}

bool usable(struct world *w, const struct block *b)
{
	if (b->managed)
		return true;
	if (b->away || (b->tag >= 0 && w->tag_suspended[b->tag]))
		return false;
	return !asked(w, b).away;
}

static void order(struct world *w, int before, int after)
{
	struct CUevent_st *event = w->event[w->next_event++ % EVENTS];

	if (before == after)
		return;
	w->doing = "order";
	judge(w, glake_event_record(w->ctx, 0, event, w->lane[before]), NULL);
	judge(w, glake_stream_wait(w->ctx, 0, w->lane[after], event), NULL);
}

/* A lane is to use a block next. */
static void take(struct world *w, struct block *b, int lane)
{
	order(w, b->last, lane);
	b->last = lane;
	if (b->told >> lane & 1)
		return;
	w->doing = "glake_use";
	judge(w, glake_use(w->ctx, b->at, w->lane[lane]), NULL);
	b->told |= 1u << lane;
}

static void write_all(struct world *w, struct block *b, int lane)
{
	struct glake_copy_range ranges[PIECES];
	size_t count = 0, at = 0;

	b->contents = (int)below(w, PLACES);
	for (; at + PIECE <= b->size && count < PIECES; at += STEP)
		ranges[count++] = (struct glake_copy_range){
			b->at + at, &numbers[(size_t)b->contents + at / 4], PIECE};
	w->doing = "glake_copy_list";
	judge(w, glake_copy_list(w->ctx, ranges, count, w->lane[lane], 0, NULL), NULL);
}

static void copy(struct world *w, struct block *to, struct block *from, int lane)
{
	size_t size = to->size < from->size ? to->size : from->size;

	take(w, to, lane);
	take(w, from, lane);
	w->doing = "glake_copy";
	judge(w, glake_copy(w->ctx, to->at, from->at, size, w->lane[lane], 0, NULL),
		NULL);
	to->contents = to->size <= from->size ? from->contents : UNKNOWN;
}

static struct block *choose(struct world *w, bool live)
{
	for (int i = 0; i < 12; i++) {
		struct block *b = &w->block[below(w, BLOCKS)];

		if ((b->at != NULL) == live && (!live || usable(w, b)))
			return b;
	}
	return NULL;
}

static void turn_ask(struct world *w)
{
	static const size_t sizes[] = {512, 30 * KIB, 200 * KIB, 300 * KIB, 700 * KIB,
		MIB, 2 * MIB, 3 * MIB, 5 * MIB};
	struct block *b = choose(w, false);
	size_t size = sizes[below(w, sizeof(sizes) / sizeof(*sizes))];
	int tag = chance(w, 30) ? (int)below(w, TAGS) : -1, lane = (int)below(w, LANES);
	uint32_t flags = 0;
	void *p = NULL;
	bool got;

	if (!b)
		return;
	size += below(w, size);
	if (chance(w, 6))
		flags = GLAKE_ALLOC_MANAGED;
	else if (chance(w, 4))
		flags = GLAKE_ALLOC_CONTIGUOUS;
	if (flags == GLAKE_ALLOC_MANAGED)
		tag = -1;
	if (tag >= 0)
		judge(w, glake_tag_set(w->ctx, w->tag[tag], NULL), NULL);
	strike(w, "glake_alloc");
	got = judge(w, glake_alloc(w->ctx, 0, size, w->lane[lane], flags, &p),
		w->suspended || (tag >= 0 && w->tag_suspended[tag])
			? MAY(-ENOMEM, -EAGAIN)
			: MAY(-ENOMEM));
	calm(w);
	glake_tag_set(w->ctx, 0, NULL);
	if (!got)
		return;
	*b = (struct block){.at = p,
		.size = size,
		.tag = tag,
		.managed = flags == GLAKE_ALLOC_MANAGED,
		.of = lane,
		.last = lane,
		.told = 1u << lane};
	write_all(w, b, lane);
}

static void turn_free(struct world *w)
{
	struct block *b = &w->block[below(w, BLOCKS)];
	int lane = (int)below(w, LANES);

	if (!b->at)
		return;
	/* one that came back is behind a stream that the library knows of */
	w->doing = "glake_free";
	judge(w, glake_free(w->ctx, b->at, w->lane[lane]), NULL);
	b->at = NULL;
}

static void turn_use(struct world *w)
{
	struct block *b = choose(w, true), *c;
	int lane = (int)below(w, LANES);

	if (!b)
		return;
	c = chance(w, 20) ? choose(w, true) : NULL;
	if (c && c != b && c->contents != UNKNOWN) {
		copy(w, b, c, lane);
		return;
	}
	take(w, b, lane);
	if (chance(w, 50)) {
		w->doing = "a kernel";
		judge(w,
			glk_soft_work(w->drv, 0, w->lane[lane],
				(uint64_t)(uintptr_t)b->at, b->size, false),
			NULL);
	} else {
		write_all(w, b, lane);
	}
}

static void compare(struct world *w, const struct block *b)
{
	for (size_t at = 0; at + PIECE <= b->size; at += STEP) {
		const uint32_t *want = &numbers[(size_t)b->contents + at / 4];

		if (!memcmp(b->at + at, want, PIECE))
			continue;
		failed(w,
			"block %d of %zu bytes at %p, tag %d, has not what was written at %zu",
			(int)(b - w->block), b->size, (void *)b->at, b->tag, at);
		return;
	}
}

/* The tables against each other. */
static void verify(struct world *w)
{
	struct glk_context *context;
	struct glk_cache *cache;

	if (glk_context_get(w->ctx, &context))
		return;
	cache = &context->caches[0];
	if (!glk_load_relaxed(&cache->started))
		return;
	if (!(context->devices == 1 ? walk_is_sound(cache)
				    : walk_tables_are_sound(cache)) ||
		!books_rest(cache))
		failed(w, "the books do not agree");
}

/* A block, in the figures that tell of all. */
static void add(struct glake_stats *s, const struct block *b, const struct glake_block *q)
{
	s->live += b->size;
	s->live_blocks++;
	s->away += q->away;
	s->away_blocks += q->away > 0;
	s->placed += q->placed;
	s->placed_blocks += q->placed > 0;
	s->managed += b->managed ? b->size : 0;
	s->managed_blocks += b->managed;
	s->tagged += b->tag >= 0 ? b->size : 0;
	s->tagged_blocks += b->tag >= 0;
}

void look(struct world *w)
{
	struct glake_stats s = {.sz = sizeof(s)}, sum = {0};
	uint64_t peer = 0;

	if (w->lost)
		return;
	w->doing = "look";
	verify(w);
	/* before work runs, of which the figures know nothing */
	judge(w, glake_stats_get(w->ctx, 0, &s), NULL);
	glk_soft_run_all(w->drv);
	for (int i = 0; i < BLOCKS && !w->wrong; i++) {
		struct block *b = &w->block[i];
		struct glake_block q;

		if (!b->at)
			continue;
		q = asked(w, b);
		add(&sum, b, &q);
		peer += q.away_peer;
		if (q.size != b->size || (int)q.pins != b->pins)
			failed(w, "block %d has %zu bytes, %u pins", i, q.size, q.pins);
		if (q.away_peer > q.away - q.dropped)
			failed(w, "block %d has %zu bytes away, %zu of them with a GPU",
				i, q.away, q.away_peer);
		if (q.away && b->pins)
			failed(w, "block %d is pinned and away", i);
		if (q.away && !b->away && !w->suspended &&
			!(b->tag >= 0 && w->tag_suspended[b->tag]))
			failed(w, "block %d is away, and nobody sent it", i);
		if (!q.away && b->sent)
			failed(w, "block %d is here, and nobody had it back", i);
		if (b->contents != UNKNOWN && usable(w, b))
			compare(w, b);
	}
	if (peer > s.store_peer_used || s.store_peer_used > s.store_peer ||
		s.store_peer > s.borrowed)
		failed(w,
			"%llu bytes with a GPU, %llu used there, %llu held, %llu borrowed",
			(unsigned long long)peer, (unsigned long long)s.store_peer_used,
			(unsigned long long)s.store_peer, (unsigned long long)s.borrowed);
#define X(figure)                                                                        \
	if (s.figure != sum.figure)                                                      \
		failed(w, #figure ": told %llu, of blocks %llu",                         \
			(unsigned long long)s.figure, (unsigned long long)sum.figure);
	X(live)
	X(live_blocks)
	X(away)
	X(away_blocks)
	X(placed)
	X(placed_blocks)
	X(managed)
	X(managed_blocks)
	X(tagged)
	X(tagged_blocks)
#undef X
}

/* Contents rest until there are some that are compressed, but not for long. */
static void rest(struct world *w)
{
	int64_t until = glk_clock_ns() + 20000000;
	struct glake_stats s = {.sz = sizeof(s)};

	w->doing = "a rest";
	glk_soft_run_all(w->drv);
	while (!w->wrong && !s.packed && glk_clock_ns() < until) {
		judge(w, glake_stats_get(w->ctx, 0, &s), NULL);
		sched_yield();
	}
	w->packed += s.packed > 0;
}

void turn(struct world *w)
{
	w->turns++;
	switch (below(w, 20)) {
	case 0 ... 4:
		turn_ask(w);
		break;
	case 5 ... 6:
		turn_free(w);
		break;
	case 7 ... 10:
		turn_use(w);
		break;
	case 11:
		if (chance(w, 30)) {
			w->doing = "glake_trim";
			judge(w, glake_trim(w->ctx, 0, below(w, 64) << 20, NULL), NULL);
		} else if (chance(w, 30)) {
			look(w);
		} else if (w->packs && chance(w, 50)) {
			rest(w);
		}
		break;
	case 12:
		turn_suspend(w);
		break;
	default:
		turn_move(w);
		break;
	}
	if (w->tell && !w->wrong)
		look(w);
}
