/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "stress/program/program.h"

#include "api/context.h"
#include "cache/graph/graph.h"
#include "seed.h"
#include "soft/soft.h"
#include "unit/cache/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TURNS 60
#define LOOKS 20 /* turns between two looks at the books */

uint64_t below(struct world *w, uint64_t n)
{
	return seed_below(&w->random, n);
}

bool chance(struct world *w, unsigned percent)
{
	return below(w, 100) < percent;
}

void failed(struct world *w, const char *what)
{
	if (w->wrong)
		return;
	snprintf(w->text, sizeof(w->text), "%s", what);
	w->wrong = w->text;
}

void must(struct world *w, int err, const char *what)
{
	struct glake_error record = {.sz = sizeof(record)};

	if (!err || w->wrong)
		return;
	glake_last_error(&record);
	snprintf(w->text, sizeof(w->text), "%s: %d, %s", what, err, record.text);
	w->wrong = w->text;
}

/* The device runs a little, on streams of its choice. */
static void step(struct world *w)
{
	if (w->late && chance(w, 90))
		return;
	for (uint64_t n = below(w, 12); n; n--) {
		unsigned i = (unsigned)below(w, LANES + w->ghosts);

		glk_soft_step(w->drv, 0, i < LANES ? w->lane[i] : w->ghost[i - LANES]);
	}
}

static struct CUevent_st *next_event(struct world *w)
{
	return w->event[w->next_event++ % EVENTS_MADE];
}

/* The program records an event, in one of the ways there are. */
static void record(struct world *w, struct CUevent_st *event, int lane)
{
	if (!w->notes) {
		must(w, w->drv->ops->user_event_record(w->drv, 0, event, w->lane[lane]),
			"a record");
	} else if (chance(w, 50)) {
		must(w, glake_event_record(w->ctx, 0, event, w->lane[lane]),
			"glake_event_record");
	} else {
		must(w, glake_event_recorded(w->ctx, 0, event, w->lane[lane]),
			"glake_event_recorded");
		must(w, w->drv->ops->user_event_record(w->drv, 0, event, w->lane[lane]),
			"a record");
	}
}

static void wait_for(struct world *w, struct CUevent_st *event, int lane)
{
	/* what is not told costs the library a wait and no more */
	if (!w->notes || chance(w, 20)) {
		must(w, w->drv->ops->user_event_wait(w->drv, 0, w->lane[lane], event),
			"a wait");
	} else if (chance(w, 50)) {
		must(w, glake_stream_wait(w->ctx, 0, w->lane[lane], event),
			"glake_stream_wait");
	} else {
		must(w, w->drv->ops->user_event_wait(w->drv, 0, w->lane[lane], event),
			"a wait");
		must(w, glake_stream_waited(w->ctx, 0, w->lane[lane], event),
			"glake_stream_waited");
	}
}

void order(struct world *w, int before, int after)
{
	struct CUevent_st *event = next_event(w);

	if (before == after)
		return;
	record(w, event, before);
	/* other things may come between the two */
	if (chance(w, 20))
		step(w);
	wait_for(w, event, after);
}

static void work(struct world *w, const struct block *b, int lane, bool write)
{
	const char *wrong = oracle_work(
		w->oracle, w->lane[lane], (uint64_t)(uintptr_t)b->at, b->size, write);

	if (wrong)
		failed(w, wrong);
	if (w->capturing >= 0 && (w->lanes_in >> lane & 1)) {
		struct graph *g = &w->graph[w->capturing];

		if (g->nodes == NODES)
			failed(w, "the test's graph is too large");
		else
			g->node[g->nodes++] =
				(struct node){(uint64_t)(uintptr_t)b->at, b->size, write};
	}
}

void touch(struct world *w, struct block *b, int lane, bool write)
{
	for (int i = 0; i < LANES; i++) {
		if (i != lane && (b->users >> i & 1) && (write || i == b->writer))
			order(w, i, lane);
	}
	if (b->of >= 0 && b->of != lane && !(b->users >> b->of & 1))
		order(w, b->of, lane); /* behind the request itself */
	if (!(b->told >> lane & 1) && chance(w, 70)) {
		must(w, glake_use(w->ctx, b->at, w->lane[lane]), "glake_use");
		b->told |= 1u << lane;
	}
	work(w, b, lane, write);
	if (write)
		b->writer = lane;
	b->users |= 1u << lane;
	/* its own graph writes it, and an earlier one may: what that freed was there for it */
	for (int i = 0; i <= b->graph && !b->captured; i++)
		w->graph[i].beside |= 1u << lane;
}

void ask(struct world *w, struct block *b, int lane)
{
	static const size_t sizes[] = {
		512, 4096, 65536, (size_t)1 << 20, (size_t)3 << 20, (size_t)9 << 20};
	uint32_t flags = chance(w, 5) ? GLAKE_ALLOC_CONTIGUOUS : 0;
	size_t size = sizes[below(w, 6)];
	void *p;
	int err;

	size += below(w, size);
	err = glake_alloc(w->ctx, 0, size, w->lane[lane], flags, &p);
	w->requests++;
	w->refused += err != 0;
	w->lacked += err == -ENOMEM;
	/* where only waiting for the GPU would do, a capture stands in the way */
	if (err == -ENOMEM || (err == -EBUSY && w->capturing >= 0))
		return;
	must(w, err, "glake_alloc");
	if (w->wrong)
		return;
	*b = (struct block){.at = p,
		.size = size,
		.flags = flags,
		.of = lane,
		.told = 1u << lane,
		.writer = lane,
		.graph = -1};
	work(w, b, lane, true);
	b->users = 1u << lane;
}

/* A lane on which a block may be freed. */
static int lane_to_free(struct world *w, const struct block *b)
{
	if (b->of >= 0 && chance(w, 70))
		return b->of;
	for (;;) {
		int lane = (int)below(w, LANES);

		if (!(w->lanes_in >> lane & 1))
			return lane;
	}
}

static void free_after(struct world *w, struct block *b)
{
	struct CUevent_st *events[LANES];
	size_t count = 0;

	for (int i = 0; i < LANES; i++) {
		if (!(b->users >> i & 1))
			continue;
		events[count] = next_event(w);
		record(w, events[count++], i);
	}
	must(w, glake_free_after(w->ctx, b->at, events, count), "glake_free_after");
	w->frees++;
	b->at = NULL;
}

void give_back(struct world *w, struct block *b)
{
	unsigned untold;
	int lane;

	if (chance(w, 10) && !w->lanes_in) {
		free_after(w, b);
		return;
	}
	lane = lane_to_free(w, b);
	untold = b->users & ~b->told & ~(1u << lane);
	/* no order holds between a stream that captures and one that does not */
	if (untold && ((untold | 1u << lane) & w->lanes_in))
		return;
	for (int i = 0; i < LANES; i++) {
		if (untold >> i & 1)
			order(w, i, lane);
	}
	must(w, glake_free(w->ctx, b->at, w->lane[lane]), "glake_free");
	w->frees++;
	b->at = NULL;
}

/* One that has a block, or has none. */
static struct block *choose(struct world *w, bool live)
{
	for (int i = 0; i < 8; i++) {
		struct block *b = &w->block[below(w, BLOCKS)];

		if ((b->at != NULL) == live && !b->captured &&
			(!live || b->graph < 0 || chance(w, 50)))
			return b;
	}
	return NULL;
}

static int eager_lane(struct world *w)
{
	int lane;

	do {
		lane = (int)below(w, LANES);
	} while (w->lanes_in >> lane & 1);
	return lane;
}

void replace(struct world *w, int lane)
{
	if ((w->lanes_in >> lane & 1) || w->ghosts == GHOSTS)
		return;
	/* what is still to be used elsewhere is put behind it, on the default stream */
	order(w, lane, 0);
	must(w, glake_stream_end(w->ctx, 0, w->lane[lane]), "glake_stream_end");
	/* the device's own end waits for the work, which CUDA's does not: it comes later */
	w->ghost[w->ghosts++] = w->lane[lane];
	must(w, w->drv->ops->stream_new(w->drv, 0, &w->lane[lane]), "a stream");
	for (int i = 0; i < BLOCKS; i++) {
		struct block *b = &w->block[i];

		if (b->of == lane || (b->users >> lane & 1))
			b->users = (b->users & ~(1u << lane)) | 1u;
		b->told &= ~(1u << lane);
		if (b->of == lane)
			b->of = -1;
		if (b->writer == lane)
			b->writer = 0;
	}
	for (int i = 0; i < GRAPHS; i++) {
		unsigned *beside = &w->graph[i].beside;

		if (*beside >> lane & 1)
			*beside = (*beside & ~(1u << lane)) | 1u;
	}
	if (w->launched == lane)
		w->launched = 0;
}

static void turn(struct world *w)
{
	struct block *b;

	switch (below(w, 20)) {
	case 0 ... 6:
		b = choose(w, false);
		if (b)
			ask(w, b, eager_lane(w));
		break;
	case 7 ... 10:
		b = choose(w, true);
		if (b && !(b->users & w->lanes_in) &&
			(b->of < 0 || !(w->lanes_in >> b->of & 1)))
			touch(w, b, eager_lane(w), chance(w, 50));
		break;
	case 11 ... 14:
		b = choose(w, true);
		if (b)
			give_back(w, b);
		break;
	case 15:
		order(w, eager_lane(w), eager_lane(w));
		break;
	case 16:
		if (chance(w, 30))
			replace(w, 1 + (int)below(w, LANES - 1));
		else if (chance(w, 20))
			must(w, glake_trim(w->ctx, 0, below(w, 64) << 20, NULL),
				"glake_trim");
		break;
	case 17:
		turn_capture(w);
		break;
	default:
		if (w->capturing >= 0)
			turn_in_capture(w);
		else
			turn_launch(w);
		break;
	}
	step(w);
}

static void begin(struct world *w, uint64_t seed)
{
	w->random = seed_thread(seed, 0);
	w->wrong = NULL;
	w->notes = chance(w, 60);
	w->late = chance(w, 40);
	w->capturing = -1;
	w->lanes_in = 0;
	w->ghosts = 0;
	w->launched = -1;
	w->begun = 0;
	w->pool++;
	w->announced = chance(w, 80);
	memset(w->block, 0, sizeof(w->block));
	memset(w->graph, 0, sizeof(w->graph));
	w->lane[0] = NULL;
	for (int i = 1; i < LANES; i++)
		must(w, w->drv->ops->stream_new(w->drv, 0, &w->lane[i]), "a stream");
	for (int i = 0; i < EVENTS_MADE; i++)
		must(w, glake_event_new(w->ctx, 0, &w->event[i]), "an event");
}

static void end(struct world *w)
{
	struct glake_stats s = {.sz = sizeof(s)};

	if (w->capturing >= 0)
		end_capture(w);
	for (int i = 0; i < BLOCKS && !w->wrong; i++) {
		if (w->block[i].at)
			give_back(w, &w->block[i]);
	}
	if (!w->wrong)
		end_graphs(w);
	for (int i = 1; i < LANES; i++)
		must(w, glake_stream_free(w->ctx, 0, w->lane[i]), "glake_stream_free");
	for (int i = 0; i < EVENTS_MADE; i++)
		must(w, glake_event_free(w->ctx, 0, w->event[i]), "glake_event_free");
	while (w->ghosts)
		w->drv->ops->stream_free(w->drv, 0, w->ghost[--w->ghosts]);
	glk_soft_run_all(w->drv);
	/* a capture that got nothing is forgotten then */
	must(w, glake_trim(w->ctx, 0, SIZE_MAX, NULL), "glake_trim");
	must(w, glake_stats_get(w->ctx, 0, &s), "glake_stats_get");
	if (!w->wrong && (s.live || s.live_blocks || s.pools)) {
		snprintf(w->text, sizeof(w->text),
			"at the end %" PRIu64 " blocks and %" PRIu64 " pools are left",
			s.live_blocks, s.pools);
		w->wrong = w->text;
	}
}

static void same(struct world *w, const char *what, uint64_t told, uint64_t want)
{
	if (told == want || w->wrong)
		return;
	snprintf(w->text, sizeof(w->text), "%s: told %" PRIu64 ", it is %" PRIu64, what,
		told, want);
	w->wrong = w->text;
}

/* What the library tells of the blocks and the calls of a program, against what it did. */
static void compare(struct world *w, unsigned turn)
{
	struct glake_stats s = {.sz = sizeof(s)};
	uint64_t live = 0, blocks = 0;

	must(w, glake_stats_get(w->ctx, 0, &s), "glake_stats_get");
	for (unsigned i = 0; i < BLOCKS && !w->wrong; i++) {
		struct glake_block found = {.sz = sizeof(found)};
		const struct block *b = &w->block[i];

		if (!b->at)
			continue;
		live += b->size;
		blocks++;
		must(w, glake_query(w->ctx, b->at + (turn + i) * 97 % b->size, &found),
			"glake_query");
		same(w, "address of a block", (uintptr_t)found.base, (uintptr_t)b->at);
		same(w, "size of a block", found.size, b->size);
		same(w, "flags of a block", found.flags, b->flags);
		if (b->of >= 0)
			same(w, "stream of a block", (uintptr_t)found.stream,
				(uintptr_t)w->lane[b->of]);
		if (found.given < b->size || found.given % GLAKE_GRAIN || !found.pages)
			failed(w, "a block with less than was asked for");
	}
	same(w, "live", s.live, live);
	same(w, "live blocks", s.live_blocks, blocks);
	same(w, "requests served", s.allocs, w->requests - w->refused);
	same(w, "blocks freed", s.frees, w->frees);
	same(w, "requests that lacked memory", s.oom, w->lacked);
}

/* All books of the GPU and of its pools, against each other. */
static void verify(struct world *w)
{
	struct glk_context *context;
	struct glk_cache *cache;

	if (w->wrong || glk_context_get(w->ctx, &context))
		return;
	cache = &context->caches[0];
	/* what guard keeps is in no bin */
	if (glk_guard_ops(cache))
		glk_guard_ops(cache)->yield(cache);
	if (glk_load_relaxed(&cache->started) && !walk_is_sound(cache))
		failed(w, "the books do not agree");
}

const char *program_run(struct world *w, uint64_t seed)
{
	begin(w, seed);
	for (int i = 0; i < TURNS && !w->wrong; i++) {
		turn(w);
		if (w->verify || i % LOOKS == LOOKS - 1) {
			compare(w, (unsigned)i);
			verify(w);
		}
	}
	end(w);
	compare(w, 0);
	verify(w);
	oracle_reset(w->oracle);
	return w->wrong;
}

void world_open(struct world *w, uint64_t seed)
{
	uint64_t state = seed_thread(seed, 1);
	char budget[32], aliases[32];
	const char *settings[12] = {"soft.streams=stepped", "soft.memory=512MiB",
		"map.span=16GiB", "driver.fault=off", budget, aliases};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glk_context *context;
	unsigned n = 6;

	snprintf(budget, sizeof(budget), "pool.budget=%uMiB",
		(unsigned)(24 + seed_below(&state, 4) * 24));
	snprintf(aliases, sizeof(aliases), "map.aliases=%u",
		(unsigned)(1 + seed_below(&state, 8)));
	if (seed_below(&state, 3) == 0)
		settings[n++] = "stream.internal_dependencies=no";
	if (seed_below(&state, 3) == 0)
		settings[n++] = "stream.opportunistic=no";
	if (seed_below(&state, 3) == 0)
		settings[n++] = "stream.event_dependencies=no";
	if (seed_below(&state, 3) == 0)
		settings[n++] = "policy.bins=0";
	memset(w, 0, sizeof(*w));
	w->verify = getenv("GLAKE_VERIFY");
	if (glake_open(&options, &w->ctx) || glk_context_get(w->ctx, &context))
		tap_bail("no context");
	w->drv = context->drv;
	w->oracle = oracle_new(w->drv);
}

const char *world_close(struct world *w)
{
	size_t leaked = 0;
	int err;

	glk_soft_run_all(w->drv);
	oracle_free(w->oracle);
	err = glake_close(w->ctx, &leaked);
	if (err)
		must(w, err, "glake_close");
	else if (leaked)
		failed(w, "blocks were left");
	return w->wrong;
}

void world_abandon(struct world *w)
{
	glk_soft_run_all(w->drv);
	oracle_free(w->oracle);
	glake_close(w->ctx, NULL);
}
