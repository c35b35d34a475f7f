/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where lanes lie, and which pages tokens need, against a count by bytes. */
#include "kv/kv.h"

#include "base/error.h"
#include "base/thread.h"
#include "seed.h"
#include "tap.h"

#include <errno.h>

#define PAGE ((uint64_t)2 << 20)

/* Pages that hold a byte of tokens [first, tokens) of a group, counted one by one. */
static struct glk_kv_run count(const struct glk_kv_group *g, uint32_t tokens)
{
	uint64_t begin = 0, end = (uint64_t)tokens * g->row;
	struct glk_kv_run run = {0};

	if (g->rule == GLAKE_KV_STATE)
		end = g->row;
	if (g->rule == GLAKE_KV_WINDOW && tokens > g->window)
		begin = (uint64_t)(tokens - g->window) * g->row;
	while ((run.first + UINT64_C(1)) * PAGE <= begin)
		run.first++;
	while (run.end * PAGE < end)
		run.end++;
	return run;
}

static bool is_sound(const struct glk_kv_shape *s, uint64_t *seed)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < s->groups; i++) {
		const struct glk_kv_group *g = &s->group[i];
		uint32_t tokens = (uint32_t)seed_below(seed, s->tokens + 1);
		struct glk_kv_run is = glk_kv_pages(s, i, tokens),
				  want = count(g, tokens);
		uint32_t ready = glk_kv_ready(s, i, is.end);

		if (g->offset != at || g->slot % PAGE ||
			g->slot < g->row * (g->rule == GLAKE_KV_STATE ? 1 : s->tokens))
			return false;
		at += g->slot * s->slots;
		if (is.first != want.first || is.end != want.end || ready < tokens)
			return false;
		/* a token more would need another page, or is none any more */
		if (ready < s->tokens && count(g, ready + 1).end <= is.end &&
			g->rule != GLAKE_KV_STATE)
			return false;
	}
	return at == s->size;
}

static void by_chance(void)
{
	uint64_t seed = 7;
	bool good = true;

	for (int n = 0; n < 2000 && good; n++) {
		struct glake_kv_lane lanes[9];
		struct glake_kv_options o = {.sz = sizeof(o),
			.slots = 1 + (uint32_t)seed_below(&seed, 40),
			.tokens = 1 + (uint32_t)seed_below(&seed, 9000),
			.lanes = 1 + (uint32_t)seed_below(&seed, 9),
			.flags = seed_below(&seed, 2) ? GLAKE_KV_TOKEN_FRONT : 0,
			.lane = lanes};
		int rule = (int)seed_below(&seed, 2);
		struct glk_kv_shape s;

		for (int i = 0; i < 9; i++) {
			int own = o.flags ? rule : (int)seed_below(&seed, 3);

			lanes[i] = (struct glake_kv_lane){
				.bytes = 1 + (size_t)seed_below(&seed, 20000),
				.rule = own,
				.window = own == GLAKE_KV_WINDOW ? 1 +
						(o.flags ? 77
							 : (uint32_t)seed_below(
								   &seed, 5000))
								 : 0};
		}
		good = !glk_kv_shape_init(&s, &o, PAGE);
		if (!good)
			break;
		good = s.groups == (o.flags ? 1 : o.lanes) && is_sound(&s, &seed);
		for (uint32_t i = 0; i < o.lanes; i++)
			good &= s.lane_bytes[i] == lanes[i].bytes &&
				(o.flags ? !s.lane_group[i] : s.lane_group[i] == i) &&
				(i && o.flags ? s.lane_offset[i] ==
							s.lane_offset[i - 1] +
								lanes[i - 1].bytes
					      : !s.lane_offset[i]);
		glk_kv_shape_fini(&s);
	}
	ok(good, "2000 shapes by chance");
}

static void refuses(void)
{
	struct glake_kv_lane lane = {.bytes = 100};
	struct glake_kv_options good = {.sz = sizeof(good),
		.slots = 2,
		.tokens = 100,
		.lanes = 1,
		.lane_bytes = 16};
	struct glk_kv_shape s;

	is_int(glk_kv_shape_init(&s, &good, PAGE), 0, "a shape");
	is_int((int64_t)s.size, 2 * (int64_t)PAGE, "  of whole pages");
	glk_kv_shape_fini(&s);
#define refused(field, value, want)                                                      \
	do {                                                                             \
		struct glake_kv_options o = good;                                        \
		o.field = (value);                                                       \
		is_int(glk_kv_shape_init(&s, &o, PAGE), want, #field " " #value);        \
	} while (0)
	refused(slots, 0, -EINVAL);
	refused(slots, GLAKE_KV_SLOTS_MAX + 1, -EINVAL);
	refused(tokens, 0, -EINVAL);
	refused(tokens, GLAKE_KV_TOKENS_MAX + 1, -EINVAL);
	refused(lanes, 0, -EINVAL);
	refused(lanes, GLAKE_KV_LANES_MAX + 1, -EINVAL);
	refused(flags, 8, -EINVAL);
	refused(lane_bytes, 0, -EINVAL);
	refused(lane_bytes, (size_t)1 << 40, -EINVAL);
	good.lane = &lane;
	lane.rule = 3;
	is_int(glk_kv_shape_init(&s, &good, PAGE), -EINVAL, "no such rule");
	lane.rule = GLAKE_KV_WINDOW;
	is_int(glk_kv_shape_init(&s, &good, PAGE), -EINVAL, "a window of 0");
	lane = (struct glake_kv_lane){.bytes = 100, .window = 3};
	is_int(glk_kv_shape_init(&s, &good, PAGE), -EINVAL, "a window of another rule");
	lane = (struct glake_kv_lane){.bytes = 100, .rule = GLAKE_KV_STATE};
	good.flags = GLAKE_KV_TOKEN_FRONT;
	is_int(glk_kv_shape_init(&s, &good, PAGE), -EINVAL, "a state in front");
	good.flags = 0;
	lane = (struct glake_kv_lane){.bytes = UINT32_MAX};
	good.slots = GLAKE_KV_SLOTS_MAX;
	good.tokens = GLAKE_KV_TOKENS_MAX;
	is_int(glk_kv_shape_init(&s, &good, PAGE), -ENOMEM, "more than there can be");
	is_int(glk_thread_current->error.error_class, GLAKE_ERROR_ADDRESS,
		"  of addresses");
	ok(!s.region, "  and nothing is left");
}

int main(void)
{
	tap_plan_later();
	by_chance();
	refuses();
	return tap_done();
}
