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
	return glk_use_same(&a, &b);
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
		glk_use_add(&want[slot], &use);
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
		glk_use_add(&sum, &want[slot]);
	}
	wrong += !same(glk_use_sum(&rig.map, first, last), sum);
	return wrong + (runs > last - first + 1);
}

/* The same by glk_use_next(), of slots that are usable: each is met once, in order, and has the use of its run. */
static int check_walk(uint32_t first, uint32_t last)
{
	struct glk_use_walk walk = glk_use_begin(&rig.map, first, last);
	struct glk_use_run run;
	uint32_t next = first;
	int wrong = 0;

	while (glk_use_next(&rig.map, &walk, &run)) {
		wrong += run.first < next || run.last < run.first || run.last > last ||
			run.first >> 6 != run.last >> 6 || run.shared;
		if (wrong)
			return wrong;
		for (; next < run.first; next++)
			wrong += glk_bit_get(rig.map.usable, next);
		for (; next <= run.last; next++)
			wrong += !glk_bit_get(rig.map.usable, next) ||
				!same(want[next], *glk_use_in(&rig.map, &run));
	}
	for (; next <= last; next++)
		wrong += glk_bit_get(rig.map.usable, next);
	return wrong;
}

static struct glk_use of_crowd(uint64_t others, uint64_t tick, uint64_t named)
{
	struct glk_use use = glk_use_of(others | GLK_USE_CROWD, tick);

	use.named = named;
	return use;
}

#define NAMES(a, b, c, d)                                                                \
	((uint64_t)(a) | (uint64_t)(b) << 16 | (uint64_t)(c) << 32 | (uint64_t)(d) << 48)

/* Those of the crowd have names as long as they are few. */
static void test_names(void)
{
	struct glk_use a = of_crowd(0, 5, 70), b = of_crowd(0, 9, 70), sum = a;
	struct glk_use other = of_crowd(0, 7, 4096), alone = glk_use_of(3, 20);
	struct glk_use more = of_crowd(0, 1, NAMES(1, 70, 4096, 0)), many;

	glk_use_add(&sum, &b);
	ok(sum.named == 70 && sum.tick == 9, "the same one twice");
	ok(glk_use_holds(&sum, &a) && !glk_use_holds(&a, &sum), "later holds earlier");
	glk_use_add(&sum, &alone);
	ok(sum.named == 70 && sum.tick == 20 && !glk_use_crowded(&sum), "beside others");
	glk_use_add(&alone, &a);
	ok(glk_use_same(&alone, &sum), "from either side");
	ok(!glk_use_holds(&sum, &other), "it is no other one");
	glk_use_add(&sum, &other);
	ok(sum.named == NAMES(70, 4096, 0, 0) && !glk_use_crowded(&sum), "two are named");
	ok(glk_use_holds(&sum, &other) && glk_use_holds(&sum, &a), "which hold both");
	ok(!glk_use_holds(&other, &sum) && !glk_use_holds(&a, &sum),
		"and are held by neither");
	glk_use_add(&sum, &more);
	ok(sum.named == NAMES(1, 70, 4096, 0) && sum.tick == 20, "in order, each once");
	more.named = NAMES(2, 70, 71, 0);
	many = sum;
	glk_use_add(&many, &more);
	ok(glk_use_crowded(&many) && !many.named, "five are too many");
	more.named = 4095;
	glk_use_add(&sum, &more);
	ok(sum.named == NAMES(1, 70, 4095, 4096), "four are not");
	ok(glk_use_holds(&many, &sum) && !glk_use_holds(&sum, &many),
		"too many hold what is named");
	ok(!glk_use_holds(&a, &(struct glk_use){.streams = GLK_USE_CROWD, .tick = 1}),
		"and are held by none");
	glk_use_add(&many, &a);
	ok(!many.named, "and stay too many");
	glk_use_add(&a, &many);
	ok(glk_use_crowded(&a), "from either side");
	glk_use_drop(&alone, GLK_USE_CROWD);
	ok(glk_use_same(&alone, &(struct glk_use){.streams = 3, .tick = 20}),
		"none is left of what is dropped");
}

/* Sets of numbers, beside a bit each. */
static void test_sets(uint64_t *state)
{
	int wrong = 0;

	for (int i = 0; i < MOVES; i++) {
		uint64_t named[2] = {0}, both, all = 0;
		uint32_t bits[2] = {0}, left;

		for (int k = 0; k < 2; k++) {
			for (int n = (int)seed_below(state, 5); n; n--)
				bits[k] |= 2u << seed_below(state, 6);
			left = bits[k];
			for (int n = 0; left; n++, left &= left - 1)
				named[k] |= (uint64_t)__builtin_ctz(left)
					<< GLK_USE_NAME_BITS * n;
		}
		left = bits[0] | bits[1];
		for (int n = 0; left && n < GLK_USE_NAMES; n++, left &= left - 1)
			all |= (uint64_t)__builtin_ctz(left) << GLK_USE_NAME_BITS * n;
		both = glk_use_names(named[0], named[1]);
		wrong += both != (left ? 0 : all);
		wrong += glk_use_names_all(named[0], named[1]) != !(bits[1] & ~bits[0]);
	}
	is_int(wrong, 0, "sets of streams");
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

	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		if (seed_below(state, 4))
			glk_bit_set(rig.map.usable, slot);
	}

	for (int i = 0; i < MOVES; i++) {
		uint32_t x = (uint32_t)seed_below(state, SLOTS);
		uint32_t y =
			x + (uint32_t)seed_below(state, seed_below(state, 2) ? 8 : 200);
		struct glk_use use = glk_use_of(
			UINT64_C(1) << seed_below(state, 64), seed_below(state, 50));

		y = y < SLOTS ? y : SLOTS - 1;
		if (seed_below(state, 3))
			set(x, y, use);
		else
			join(x, y, use);
		if (i % 16 == 0)
			wrong += compare();
		wrong += check_runs(x / 2, y);
		wrong += check_walk(x / 2, y);
	}
	is_int(wrong, 0, "random runs");
	glk_bits_clear(rig.map.usable, 0, SLOTS - 1);
}

int main(void)
{
	uint64_t state;

	tap_plan_later();
	state = seed_start() | 1;
	rig_init(&rig);
	test_names();
	test_sets(&state);
	test_edges();
	test_random(&state);
	rig_stop(&rig);
	return tap_done();
}
