/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_TURNS_H
#define GLK_T_TURNS_H

/*
 * Two engines on one GPU, a process each, with loads by turns: while one has many sequences the other has few, and what
 * the one gives up as they end the other may have. Who includes this says how tokens are written and read, and how a
 * stream is waited for.
 *
 * An engine takes a sequence when all that it has can come to their ends below its limit, and gives idle pages back to
 * the driver when some have ended; so nothing is refused, and nothing begun anew. Who tells both what to do raises the
 * limit of the one by what the other needs no more.
 */
#include "seed.h"
#include "tap.h"

#include <glake/glake.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURNS_PAGE ((uint64_t)2 << 20)

struct turns_way {
	int (*open)(struct glake **ret_ctx, uint64_t bytes);
	void (*write)(void *at, size_t bytes, unsigned char value);
	unsigned char (*read)(const void *at);
	int (*wait)(struct glake *ctx, struct CUstream_st *stream);
	uint32_t slots, tokens, lanes;
	uint64_t bytes; /* that both have together */
};

/* What an engine is to do, and what it says then. */
struct turns_order {
	uint64_t limit;
	uint32_t load; /* sequences at a time; 0: it ends */
};

struct turns_report {
	uint64_t reserved, held, needed; /* bytes: of the GPU, of pages, of tokens */
	uint64_t promised;		 /* that what runs has at its end */
	uint64_t refused;
	uint32_t sequences, ended, wrong;
};

struct turns_sequence {
	uint32_t slot, tokens, stop;
	unsigned char mark;
};

struct turns_engine {
	const struct turns_way *way;
	struct glake_kv_options options;
	struct glake *ctx;
	struct CUstream_st *stream;
	struct glake_kv *kv;
	struct turns_sequence list[64];
	uint32_t count;
	uint64_t seed, promised;
	struct turns_report report;
};

static uint64_t turns_bytes(const struct turns_engine *e, uint32_t tokens)
{
	uint64_t bytes = 0;

	if (glake_kv_bytes(&e->options, tokens, &bytes))
		_exit(20);
	return bytes;
}

static char *turns_at(
	const struct turns_engine *e, uint32_t lane, uint32_t slot, uint32_t token)
{
	struct glake_kv_place place = {.sz = sizeof(place)};

	if (glake_kv_place_get(e->kv, lane, &place))
		_exit(21);
	return (char *)place.base + slot * place.slot + token * place.token;
}

static void turns_begin(struct turns_engine *e, uint64_t limit)
{
	struct turns_sequence *s = &e->list[e->count];
	uint64_t bytes;

	s->stop = 1 + (uint32_t)seed_below(&e->seed, e->way->tokens);
	s->tokens = 0;
	s->mark = (unsigned char)(1 + seed_below(&e->seed, 250));
	bytes = turns_bytes(e, s->stop);
	if (e->promised + bytes > limit)
		return;
	if (glake_kv_new(e->kv, s->stop, e->stream, &s->slot))
		_exit(22);
	e->promised += bytes;
	e->count++;
}

static void turns_grow(struct turns_engine *e, struct turns_sequence *s)
{
	uint32_t more = 1 + (uint32_t)seed_below(&e->seed, e->way->tokens / 8);
	uint32_t to = s->tokens + more < s->stop ? s->tokens + more : s->stop;

	if (glake_kv_grow(e->kv, s->slot, to, e->stream)) {
		e->report.wrong++;
		return;
	}
	for (uint32_t lane = 0; lane < e->way->lanes; lane++)
		e->way->write(turns_at(e, lane, s->slot, s->tokens),
			(to - s->tokens) * e->options.lane_bytes, s->mark);
	s->tokens = to;
}

/* One that has come to its end has what was written all the time. */
static void turns_end(struct turns_engine *e, uint32_t number)
{
	struct turns_sequence *s = &e->list[number];

	for (uint32_t lane = 0; lane < e->way->lanes; lane++) {
		const char *first = turns_at(e, lane, s->slot, 0);
		size_t bytes = s->tokens * e->options.lane_bytes;

		e->report.wrong += e->way->read(first) != s->mark ||
			e->way->read(first + bytes / 2) != s->mark ||
			e->way->read(first + bytes - 1) != s->mark;
	}
	if (glake_kv_free(e->kv, s->slot, e->stream))
		_exit(23);
	e->promised -= turns_bytes(e, s->stop);
	e->report.ended++;
	*s = e->list[--e->count];
}

static void turns_step(struct turns_engine *e, const struct turns_order *order)
{
	struct glake_kv_figures f = {.sz = sizeof(f)};
	struct glake_stats stats = {.sz = sizeof(stats)};
	uint32_t before = e->report.ended;

	if (glake_kv_limit_set(e->kv, order->limit))
		_exit(24);
	if (e->count < order->load)
		turns_begin(e, order->limit);
	for (uint32_t i = 0; i < e->count; i++)
		turns_grow(e, &e->list[i]);
	for (uint32_t i = e->count; i; i--) {
		if (e->list[i - 1].tokens == e->list[i - 1].stop)
			turns_end(e, i - 1);
	}
	if (e->way->wait(e->ctx, e->stream) ||
		(e->report.ended > before && glake_trim(e->ctx, 0, 0, NULL)) ||
		glake_kv_figures_get(e->kv, &f) || glake_stats_get(e->ctx, 0, &stats))
		_exit(25);
	e->report.reserved = stats.reserved;
	e->report.held = f.held;
	e->report.needed = f.needed;
	e->report.refused = f.refused;
	e->report.sequences = f.sequences;
	e->report.promised = e->promised;
}

/* The process of an engine. */
static int turns_engine(const struct turns_way *way, int socket, uint64_t seed)
{
	struct turns_engine e = {.way = way, .seed = seed};
	struct turns_order order;

	e.options = (struct glake_kv_options){.sz = sizeof(e.options),
		.slots = way->slots,
		.tokens = way->tokens,
		.lanes = way->lanes,
		.lane_bytes = 2048};
	if (way->open(&e.ctx, way->bytes) || glake_stream_new(e.ctx, 0, &e.stream) ||
		glake_kv_open(e.ctx, 0, &e.options, e.stream, &e.kv))
		return 10;
	while (read(socket, &order, sizeof(order)) == (ssize_t)sizeof(order) &&
		order.load) {
		turns_step(&e, &order);
		if (write(socket, &e.report, sizeof(e.report)) !=
			(ssize_t)sizeof(e.report))
			return 11;
	}
	if (glake_kv_close(e.kv, e.stream) || glake_stream_free(e.ctx, 0, e.stream) ||
		glake_close(e.ctx, NULL))
		return 12;
	return 0;
}

/* Both, by turns. */
static void turns_judge(const struct turns_way *way, const int sockets[2])
{
	struct turns_report report[2] = {{0}, {0}};
	uint64_t most[2] = {0, 0}, limit[2] = {0, 0}, over = 0, worst = 0, raised = 0,
		 lowered = 0;
	bool spoke = true;

	for (int step = 0; step < 200 && spoke; step++) {
		int busy = step / 25 % 2;

		for (int i = 0; i < 2; i++) {
			int who = i ? busy : !busy;
			uint64_t other = report[!busy].promised, floor = way->bytes / 8,
				 may, sum;
			struct turns_order order = {.load = who == busy ? way->slots : 1};

			other = other > floor ? other : floor;
			order.limit = who == busy ? way->bytes - other : other;
			raised += limit[who] && order.limit > limit[who];
			lowered += order.limit < limit[who];
			limit[who] = order.limit;
			spoke &= write(sockets[who], &order, sizeof(order)) ==
					(ssize_t)sizeof(order) &&
				read(sockets[who], &report[who], sizeof(report[who])) ==
					(ssize_t)sizeof(report[who]);
			sum = report[0].reserved + report[1].reserved;
			may = (report[0].needed + report[1].needed) * 105 / 100 +
				(uint64_t)(report[0].sequences + report[1].sequences) *
					way->lanes * TURNS_PAGE;
			over += sum > may || sum > way->bytes;
			worst = may && sum * 1000 / may > worst ? sum * 1000 / may
								: worst;
			most[who] = report[who].held > most[who] ? report[who].held
								 : most[who];
		}
	}
	for (int i = 0; i < 2; i++) {
		const struct turns_order end = {.load = 0};

		spoke &= write(sockets[i], &end, sizeof(end)) == (ssize_t)sizeof(end);
	}
	ok(spoke, "two engines by turns: both come to the end");
	is_int((int64_t)over, 0,
		"what both have of the GPU is never above 1.05 of their tokens and a page a lane");
	tap_note("%zu per mille of that at most", (size_t)worst);
	ok(!report[0].refused && !report[1].refused, "nothing is refused");
	ok(!report[0].wrong && !report[1].wrong, "and nothing lost");
	ok(report[0].ended > 20 && report[1].ended > 20, "%u and %u sequences have ended",
		report[0].ended, report[1].ended);
	ok(raised > 20 && lowered > 20,
		"with limits that went up %zu times, and down %zu", (size_t)raised,
		(size_t)lowered);
	ok(most[0] > way->bytes / 2 && most[1] > way->bytes / 2,
		"each had more than half of the memory at times: %zu and %zu MiB of %zu",
		(size_t)(most[0] >> 20), (size_t)(most[1] >> 20),
		(size_t)(way->bytes >> 20));
}

#endif
