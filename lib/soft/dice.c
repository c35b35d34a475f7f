/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Legal orders by a seed. With soft.streams=random, queued work runs before the calls that reach
 * the device: how many steps, and of which streams that can run, a generator says. So all
 * orders that streams and events allow come up, early and late ones, and a program that is
 * right must give the same results in each of them.
 *
 * Calls come in phases of 1 to 256. In each phase some streams sleep, from none to all, so that
 * work may also be left behind for long.
 *
 * Guarantees	in a program of one thread the same seed makes the same steps
 * Cost		for a step a look at every stream ever used
 */
#include "soft/state.h"

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t roll(struct soft_dice *dice)
{
	dice->state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(dice->state);
}

uint32_t glk_soft_dice_roll(struct soft *soft, uint32_t sides)
{
	return (uint32_t)((roll(&soft->dice) >> 32) * sides >> 32);
}

void glk_soft_dice_init(struct soft *soft, int64_t seed)
{
	/* Neighbouring seeds shall not be neighbouring states. */
	soft->dice = (struct soft_dice){.state = mix((uint64_t)seed + 1)};
}

/* A phase with laziness n puts n quarters of the streams to sleep. */
static bool is_awake(const struct soft_dice *dice, uint32_t stream)
{
	return (mix(dice->phase ^ stream) & 3) >= dice->lazy;
}

static void phase_begin(struct soft *soft)
{
	struct soft_dice *dice = &soft->dice;

	dice->left = 1u << glk_soft_dice_roll(soft, 9);
	dice->lazy = glk_soft_dice_roll(soft, 5);
	dice->phase = roll(dice);
}

/* The `wanted`-th of the streams that are awake and can run, or, if there are not so many, 0 and
 * their number. */
static uint32_t runnable(const struct soft *soft, uint32_t wanted, uint32_t *ret_count)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used), count = 0;

	for (uint32_t id = 1; id <= used; id++) {
		if (!glk_soft_queue_can_step(soft, id) || !is_awake(&soft->dice, id))
			continue;
		if (count++ == wanted)
			return id;
	}
	*ret_count = count;
	return 0;
}

static void steps(struct soft *soft)
{
	static const uint8_t counts[] = {0, 0, 0, 1, 1, 1, 3, 12};
	uint32_t count = counts[glk_soft_dice_roll(soft, 8)], ways = 0;

	for (; count; count--) {
		runnable(soft, UINT32_MAX, &ways);
		if (!ways)
			break;
		glk_soft_queue_step(
			soft, runnable(soft, glk_soft_dice_roll(soft, ways), &ways));
	}
}

void glk_soft_enter(struct soft *soft)
{
	glk_lock(&soft->lock);
	if (!soft->stepped && (soft->words || soft->paced))
		glk_soft_queue_run(soft);
	if (!soft->random || !soft->pending)
		return;
	if (!soft->dice.left)
		phase_begin(soft);
	soft->dice.left--;
	steps(soft);
}
