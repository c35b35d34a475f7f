/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Uses by run against an array with one for each slot. */
#include "seed.h"
#include "unit/map/rig.h"

#define SLOTS 512
#define MOVES 60000

static struct rig rig;
static struct glk_use want[SLOTS];

static struct glk_use at(uint32_t slot)
{
	return glk_use_at(&rig.map, slot);
}

static bool same(struct glk_use a, struct glk_use b)
{
	return a.streams == b.streams && a.tick == b.tick;
}

static int compare(void)
{
	int wrong = 0;

	for (uint32_t slot = 0; slot < SLOTS; slot++)
		wrong += !same(at(slot), want[slot]);
	return wrong;
}

static void set(uint32_t first, uint32_t last, struct glk_use use)
{
	glk_use_set(&rig.map, first, last, &use);
	for (uint32_t slot = first; slot <= last; slot++)
		want[slot] = use;
}

static void join(uint32_t first, uint32_t last, struct glk_use use)
{
	glk_use_join(&rig.map, first, last, &use);
	for (uint32_t slot = first; slot <= last; slot++)
		glk_use_add(&want[slot], use.streams, use.tick);
}

/* The runs of [first, last], by glk_use_end(), each of one use. */
static int check_runs(uint32_t first, uint32_t last)
{
	struct glk_use sum = {0};
	uint32_t runs = 0, end;
	int wrong = 0;

	for (uint32_t slot = first; slot <= last; slot = end + 1, runs++) {
		end = glk_use_end(&rig.map, slot, last);
		wrong += end < slot || end > last;
		if (wrong)
			return wrong;
		for (uint32_t i = slot; i <= end; i++)
			wrong += !same(want[i], want[slot]);
		glk_use_add(&sum, want[slot].streams, want[slot].tick);
	}
	wrong += !same(glk_use_sum(&rig.map, first, last), sum);
	return wrong + (runs > last - first + 1);
}

static void test_edges(void)
{
	static const uint32_t ends[] = {
		0, 1, 2, 62, 63, 64, 65, 126, 127, 128, 129, 191, 192};
	struct glk_use use = {0};
	int wrong = 0;

	is_int(compare(), 0, "never used");
	for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		for (unsigned k = i; k < sizeof(ends) / sizeof(*ends); k++) {
			use.streams = UINT64_C(1) << k;
			use.tick++;
			set(ends[i], ends[k], use);
			wrong += compare();
			use.tick++;
			join(ends[i], ends[k], use);
			wrong += compare();
		}
	}
	is_int(wrong, 0, "runs that begin and end at the edges of words");
	set(0, SLOTS - 1, (struct glk_use){.streams = 1, .tick = 1000});
	is_int(compare(), 0, "all at once");
	is_int(glk_use_end(&rig.map, 3, SLOTS - 1), 63, "a run ends with its word");
	is_int(glk_use_end(&rig.map, 3, 40), 40, "or with what is asked");
	set(SLOTS - 1, SLOTS - 1, (struct glk_use){.streams = 2, .tick = 1001});
	is_int(compare(), 0, "the last slot");
	join(10, 20, (struct glk_use){.streams = 1, .tick = 1000});
	is_int(glk_use_end(&rig.map, 3, SLOTS - 1), 63, "what was known makes no run");
}

static void test_random(uint64_t *state)
{
	int wrong = 0;

	for (int i = 0; i < MOVES; i++) {
		uint32_t x = (uint32_t)seed_below(state, SLOTS);
		uint32_t y =
			x + (uint32_t)seed_below(state, seed_below(state, 2) ? 8 : 200);
		struct glk_use use = {.streams = UINT64_C(1) << seed_below(state, 64),
			.tick = seed_below(state, 50)};

		y = y < SLOTS ? y : SLOTS - 1;
		if (seed_below(state, 3))
			set(x, y, use);
		else
			join(x, y, use);
		if (i % 16 == 0)
			wrong += compare();
		wrong += check_runs(x / 2, y);
	}
	is_int(wrong, 0, "random runs");
}

int main(void)
{
	uint64_t state;

	tap_plan_later();
	state = seed_start() | 1;
	rig_init(&rig);
	test_edges();
	test_random(&state);
	rig_stop(&rig);
	return tap_done();
}
