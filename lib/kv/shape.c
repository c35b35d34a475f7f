/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where the lanes of a cache lie, and which pages tokens need: arithmetic alone, see kv.h. */
#include "kv/kv.h"

#include "base/error.h"
#include "base/slab.h"

#include <errno.h>
#include <inttypes.h>

#define FLAGS (GLAKE_KV_TOKEN_FRONT | GLAKE_KV_SINGLE | GLAKE_KV_LARGE)

static int is_wrong(const char *what, uint64_t has, uint64_t most)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"a KV cache of %" PRIu64 " %s: 1 to %" PRIu64, has, what, most);
}

static int check_lane(const struct glake_kv_lane *lane, uint32_t i)
{
	if (!lane->bytes || lane->bytes > UINT32_MAX)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"lane %" PRIu32 " has %zu bytes a token", i, lane->bytes);
	if (lane->rule < GLAKE_KV_ALL || lane->rule > GLAKE_KV_STATE)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"lane %" PRIu32 ": there is no rule %d", i, lane->rule);
	if ((lane->rule == GLAKE_KV_WINDOW) != (lane->window > 0))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"lane %" PRIu32
			": a window is for GLAKE_KV_WINDOW, and has tokens",
			i);
	return 0;
}

static struct glake_kv_lane lane_of(const struct glake_kv_options *o, uint32_t i)
{
	return o->lane ? o->lane[i] : (struct glake_kv_lane){.bytes = o->lane_bytes};
}

static int check(const struct glake_kv_options *o)
{
	struct glake_kv_lane first;
	int err = 0;

	if (!o->slots || o->slots > GLAKE_KV_SLOTS_MAX)
		return is_wrong("slots", o->slots, GLAKE_KV_SLOTS_MAX);
	if (!o->tokens || o->tokens > GLAKE_KV_TOKENS_MAX)
		return is_wrong("tokens", o->tokens, GLAKE_KV_TOKENS_MAX);
	if (!o->lanes || o->lanes > GLAKE_KV_LANES_MAX)
		return is_wrong("lanes", o->lanes, GLAKE_KV_LANES_MAX);
	if (o->prefixes > GLAKE_KV_SLOTS_MAX)
		return is_wrong("prefixes", o->prefixes, GLAKE_KV_SLOTS_MAX);
	if (o->flags & ~FLAGS)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "unknown flags 0x%x",
			o->flags & ~FLAGS);
	if (o->flags & GLAKE_KV_LARGE &&
		o->flags & (GLAKE_KV_TOKEN_FRONT | GLAKE_KV_SINGLE))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"large pages are for lanes that have memory by themselves");
	first = lane_of(o, 0);
	for (uint32_t i = 0; i < o->lanes && !err; i++) {
		struct glake_kv_lane lane = lane_of(o, i);

		err = check_lane(&lane, i);
		if (!err && o->flags & GLAKE_KV_TOKEN_FRONT &&
			(lane.rule != first.rule || lane.window != first.window ||
				lane.rule == GLAKE_KV_STATE))
			err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
				"lanes of a token beside each other have one rule, and are no "
				"states");
	}
	return err;
}

static int make_tables(struct glk_kv_shape *s)
{
	size_t lanes = s->lanes;
	char *at;

	s->region_size = lanes *
		(sizeof(*s->group) + sizeof(*s->lane_offset) + sizeof(*s->lane_bytes) +
			sizeof(*s->lane_group));
	s->region = glk_region_new(s->region_size);
	if (!s->region)
		return -ENOMEM;
	at = s->region;
	s->group = (void *)at;
	at += lanes * sizeof(*s->group);
	s->lane_offset = (void *)at;
	at += lanes * sizeof(*s->lane_offset);
	s->lane_bytes = (void *)at;
	at += lanes * sizeof(*s->lane_bytes);
	s->lane_group = (void *)at;
	return 0;
}

/* A group behind those before it. */
static int place_group(struct glk_kv_shape *s, struct glk_kv_group *g)
{
	uint64_t rows = g->rule == GLAKE_KV_STATE ? 1 : s->tokens, bytes;

	g->offset = s->size;
	if (__builtin_mul_overflow(g->row, rows, &g->slot) ||
		__builtin_add_overflow(g->slot, s->page - 1, &g->slot))
		return -ENOMEM;
	g->slot &= ~(s->page - 1);
	if (g->slot / s->page > UINT32_MAX)
		return -ENOMEM;
	if (__builtin_mul_overflow(g->slot, glk_kv_places(s), &bytes) ||
		__builtin_add_overflow(s->size, bytes, &s->size))
		return -ENOMEM;
	return 0;
}

int glk_kv_shape_init(
	struct glk_kv_shape *s, const struct glake_kv_options *options, uint64_t page)
{
	bool beside = options->flags & GLAKE_KV_TOKEN_FRONT;
	int err = check(options);

	if (err)
		return err;
	*s = (struct glk_kv_shape){.slots = options->slots,
		.tokens = options->tokens,
		.prefixes = options->prefixes,
		.lanes = options->lanes,
		.single = options->flags & GLAKE_KV_SINGLE,
		.large = options->flags & GLAKE_KV_LARGE,
		.page = page};
	err = make_tables(s);
	for (uint32_t i = 0; i < s->lanes && !err; i++) {
		struct glake_kv_lane lane = lane_of(options, i);
		struct glk_kv_group *g;

		if (!i || !beside)
			s->group[s->groups++] = (struct glk_kv_group){
				.rule = lane.rule, .window = lane.window};
		g = &s->group[s->groups - 1];
		s->lane_group[i] = s->groups - 1;
		s->lane_offset[i] = g->row;
		s->lane_bytes[i] = lane.bytes;
		g->row += lane.bytes;
	}
	for (uint32_t i = 0; i < s->groups && !err; i++)
		err = place_group(s, &s->group[i]);
	if (!err)
		return 0;
	if (s->region)
		glk_error(-ENOMEM, GLAKE_ERROR_ADDRESS,
			"there are not so many addresses as the KV cache would have");
	glk_kv_shape_fini(s);
	return -ENOMEM;
}

void glk_kv_shape_fini(struct glk_kv_shape *s)
{
	if (s->region)
		glk_region_free(s->region, s->region_size);
	*s = (struct glk_kv_shape){0};
}

struct glk_kv_run glk_kv_pages(
	const struct glk_kv_shape *s, uint32_t group, uint32_t tokens)
{
	const struct glk_kv_group *g = &s->group[group];
	struct glk_kv_run run = {0};

	if (s->single) {
		run.end = (uint32_t)(g->slot / s->page);
		return run;
	}
	if (g->rule == GLAKE_KV_STATE) {
		run.end = (uint32_t)((g->row + s->page - 1) / s->page);
		return run;
	}
	run.end = (uint32_t)((tokens * g->row + s->page - 1) / s->page);
	if (g->rule == GLAKE_KV_WINDOW && tokens > g->window)
		run.first = (uint32_t)((tokens - g->window) * g->row / s->page);
	return run;
}

uint32_t glk_kv_ready(const struct glk_kv_shape *s, uint32_t group, uint32_t pages)
{
	const struct glk_kv_group *g = &s->group[group];
	uint64_t tokens =
		g->rule == GLAKE_KV_STATE ? s->tokens : pages * s->page / g->row;

	return tokens < s->tokens ? (uint32_t)tokens : s->tokens;
}
