/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The threads, what they ask for, and what they do with it. */
#include "stress/tide/tide.h"

#include "seed.h"
#include "soft/fault.h"
#include "soft/soft.h"

#include <errno.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define STEP                                                                             \
	(256 * KIB) /* from one piece of a block that is written and compared to the next */
#define PIECE	((size_t)512)
#define NUMBERS (16 * MIB / sizeof(uint32_t))
#define PLACES	4096
#define PIECES	64

static uint32_t numbers[NUMBERS + PLACES];

void draw_numbers(void)
{
	for (size_t i = 0; i < NUMBERS + PLACES; i++)
		numbers[i] = (uint32_t)i * 2654435761u + 1;
}

uint64_t below(struct hand *h, uint64_t n)
{
	return seed_below(&h->random, n);
}

bool chance(struct hand *h, unsigned percent)
{
	return below(h, 100) < percent;
}

bool is_lost(struct hand *h)
{
	if (h->w->faults && tides_warnings())
		glk_store_relaxed(&h->w->lost, true);
	return glk_load_relaxed(&h->w->lost);
}

void failed(struct hand *h, const char *format, ...)
{
	struct world *w = h->w;
	va_list args;
	int used;

	/* what lies nowhere is no figure's, and refused by the driver */
	if (is_lost(h) || glk_xchg_acq_rel(&w->wrong, true))
		return;
	used = snprintf(w->text, sizeof(w->text),
		"hand %d, turn %llu, %s: ", (int)(h - w->hand),
		(unsigned long long)h->turns, h->doing);
	va_start(args, format);
	vsnprintf(w->text + used, sizeof(w->text) - (size_t)used, format, args);
	va_end(args);
}

bool judge(struct hand *h, int err, const int *may)
{
	struct glake_error record = {.sz = sizeof(record)};

	if (!err)
		return true;
	h->refused++;
	for (; may && *may; may++) {
		if (err == *may)
			return false;
	}
	if (h->w->faults && (err == -EIO || err == -ENOMEM))
		return false;
	glake_last_error(&record);
	failed(h, "%d, %s", err, record.text);
	return false;
}

struct glake_block asked(struct hand *h, const struct block *b)
{
	struct glake_block got = {.sz = sizeof(got)};
	int err = glake_query(h->w->ctx, b->at, &got);

	if (err)
		failed(h, "glake_query: %d", err);
	return got;
}

bool usable(struct hand *h, const struct block *b)
{
	if (b->away || (b->tag >= 0 && h->w->tag_suspended[b->gpu][b->tag]))
		return false;
	return !asked(h, b).away;
}

static bool order(struct hand *h, int gpu, int before, int after)
{
	struct CUevent_st *event = h->event[gpu][h->next_event++ % EVENTS];

	if (before == after)
		return true;
	h->doing = "order";
	return judge(h, glake_event_record(h->w->ctx, gpu, event, h->lane[gpu][before]),
		       NULL) &&
		judge(h, glake_stream_wait(h->w->ctx, gpu, h->lane[gpu][after], event),
			NULL);
}

/* A lane is to use a block next. Whether it may. */
static bool take(struct hand *h, struct block *b, int lane)
{
	if (!order(h, b->gpu, b->last, lane))
		return false;
	if (!(b->told >> lane & 1)) {
		h->doing = "glake_use";
		if (!judge(h, glake_use(h->w->ctx, b->at, h->lane[b->gpu][lane]), NULL))
			return false;
	}
	b->last = lane;
	b->told |= 1u << lane;
	return true;
}

static void write_all(struct hand *h, struct block *b, int lane)
{
	struct glake_copy_range ranges[PIECES];
	size_t count = 0, at = 0;
	int contents = (int)below(h, PLACES);

	for (; at + PIECE <= b->size && count < PIECES; at += STEP)
		ranges[count++] = (struct glake_copy_range){
			b->at + at, &numbers[(size_t)contents + at / 4], PIECE};
	h->doing = "glake_copy_list";
	b->drops = b->tag < 0 ? 0 : h->w->drops[b->gpu][b->tag];
	b->contents = UNKNOWN;
	if (judge(h,
		    glake_copy_list(
			    h->w->ctx, ranges, count, h->lane[b->gpu][lane], 0, NULL),
		    NULL) &&
		!(b->advice & GLAKE_ADVICE_DISCARDABLE))
		b->contents = contents;
}

void compare(struct hand *h, const struct block *b)
{
	const struct world *w = h->w;

	if (b->contents == UNKNOWN || is_lost(h) ||
		(b->tag >= 0 && b->drops != w->drops[b->gpu][b->tag]))
		return;
	h->compared++;
	for (size_t at = 0; at + PIECE <= b->size && at < PIECES * STEP; at += STEP) {
		const uint32_t *want = &numbers[(size_t)b->contents + at / 4];

		if (!memcmp(b->at + at, want, PIECE))
			continue;
		failed(h,
			"block %d of %zu bytes at %p on GPU %d, tag %d, has not what was "
			"written at %zu",
			(int)(b - h->block), b->size, (void *)b->at, b->gpu, b->tag, at);
		return;
	}
}

static void ask(struct hand *h, int gpu)
{
	static const size_t sizes[] = {512, 30 * KIB, 200 * KIB, 300 * KIB, 700 * KIB,
		MIB, 2 * MIB, 3 * MIB, 5 * MIB};
	size_t size = sizes[below(h, sizeof(sizes) / sizeof(*sizes))];
	int tag = chance(h, 30) ? (int)below(h, TAGS) : -1, lane = (int)below(h, LANES);
	struct block *b = &h->block[below(h, BLOCKS)];
	struct world *w = h->w;
	void *p = NULL;
	bool got;

	if (b->at)
		return;
	size += below(h, size);
	if (tag >= 0)
		judge(h, glake_tag_set(w->ctx, w->tag[tag], NULL), NULL);
	h->doing = "glake_alloc";
	got = judge(h,
		glake_alloc(w->ctx, gpu, size, h->lane[gpu][lane],
			chance(h, 4) ? GLAKE_ALLOC_CONTIGUOUS : 0, &p),
		MAY(-ENOMEM, -EAGAIN));
	glake_tag_set(w->ctx, 0, NULL);
	if (!got)
		return;
	*b = (struct block){.at = p,
		.size = size,
		.gpu = gpu,
		.tag = tag,
		.last = lane,
		.told = 1u << lane,
		.contents = UNKNOWN};
	if (usable(h, b))
		write_all(h, b, lane);
}

static void give(struct hand *h)
{
	struct block *b = &h->block[below(h, BLOCKS)];

	if (!b->at)
		return;
	h->doing = "glake_free";
	judge(h, glake_free(h->w->ctx, b->at, h->lane[b->gpu][below(h, LANES)]), NULL);
	b->at = NULL;
}

static void use(struct hand *h, struct block *b)
{
	int lane = (int)below(h, LANES);

	if (!b->at || !usable(h, b) || !take(h, b, lane))
		return;
	if (chance(h, 40)) {
		h->doing = "compare";
		judge(h,
			h->w->drv->ops->stream_sync(
				h->w->drv, b->gpu, h->lane[b->gpu][lane]),
			NULL);
		compare(h, b);
	} else if (chance(h, 50)) {
		h->doing = "a kernel";
		judge(h,
			glk_soft_work(h->w->drv, b->gpu, h->lane[b->gpu][lane],
				(uint64_t)(uintptr_t)b->at, b->size, false),
			NULL);
	} else {
		write_all(h, b, lane);
	}
}

static int count_run(const struct glake_run *run, void *arg)
{
	*(uint64_t *)arg += run->size;
	return 0;
}

/* What changes nothing, about blocks of others too. */
static void pry(struct hand *h)
{
	struct glake_block block = {.sz = sizeof(block)};
	int gpu = (int)below(h, GPUS);
	uint64_t bytes = 0;

	switch (below(h, 3)) {
	case 0:
		h->doing = "glake_map";
		judge(h, glake_map(h->w->ctx, gpu, 0, count_run, &bytes), NULL);
		break;
	case 1:
		h->doing = "glake_trim";
		judge(h, glake_trim(h->w->ctx, gpu, below(h, 64) << 20, NULL), NULL);
		break;
	default:
		h->doing = "glake_query";
		if (h->block[0].at)
			asked(h, &h->block[0]);
		/* which others may have been given at this moment */
		glake_query(h->w->ctx, h->block[1].at, &block);
		break;
	}
}

static void turn(struct hand *h)
{
	struct block *b = &h->block[below(h, BLOCKS)];
	int gpu = (int)below(h, GPUS);

	h->turns++;
	switch (below(h, 20)) {
	case 0 ... 4:
		pthread_rwlock_rdlock(&h->w->use[gpu]);
		ask(h, gpu);
		pthread_rwlock_unlock(&h->w->use[gpu]);
		break;
	case 5 ... 6:
		give(h);
		break;
	case 7 ... 10:
		pthread_rwlock_rdlock(&h->w->use[b->gpu]);
		use(h, b);
		pthread_rwlock_unlock(&h->w->use[b->gpu]);
		break;
	case 11:
		pry(h);
		break;
	case 12:
		deed_suspend(h);
		break;
	default:
		deed_move(h);
		break;
	}
}

/* The driver fails in calls of whoever comes. */
static void strike(struct hand *h)
{
	static const char *const ops[] = {"copy", "create", "map", "set_access",
		"event_record", "event_query", "stream_wait", "host_lock", "event_new",
		"stream_new"};
	char rule[64];

	snprintf(rule, sizeof(rule), "%s:%s=%u:err=%s",
		ops[below(h, sizeof(ops) / sizeof(*ops))], chance(h, 80) ? "nth" : "from",
		(unsigned)(1 + below(h, 12)), chance(h, 50) ? "EIO" : "ENOMEM");
	glk_fault_set(h->w->drv, rule);
	turn(h);
	turn(h);
	glk_fault_set(h->w->drv, "off");
}

static void *run(void *arg)
{
	struct hand *h = arg;
	struct world *w = h->w;

	for (unsigned i = 0; i < w->turns && !glk_load_relaxed(&w->wrong); i++) {
		if (w->faults && chance(h, 5))
			strike(h);
		else
			turn(h);
	}
	meet(h);
	return NULL;
}

void tides_run(struct world *w, unsigned turns, unsigned meetings)
{
	w->turns = turns;
	for (; meetings && !glk_load_relaxed(&w->wrong); meetings--) {
		for (unsigned i = 0; i < w->hands; i++)
			pthread_create(&w->hand[i].thread, NULL, run, &w->hand[i]);
		for (unsigned i = 0; i < w->hands; i++)
			pthread_join(w->hand[i].thread, NULL);
	}
}
