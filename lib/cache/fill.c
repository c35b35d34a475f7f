/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How full a GPU is: the part of its memory, or of the budget, that anybody holds. What others hold
 * is known from the last time that the driver was asked, what is held here always.
 *
 * It rises at once, and falls once it is five hundredths lower, so that a program that gives and takes
 * back a little has one target and not two.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/thread.h"
#include "cache/bin/own.h"

#define FALL 0.05

void glk_fill_ask(struct glk_cache *cache)
{
	uint64_t held = glk_load_relaxed(&cache->node->held), used;
	struct glake_error why;
	size_t left, total;

	if (!glk_conf_target_is_auto(cache->conf))
		return;
	why = glk_thread_current->error;
	if (cache->drv->ops->memory_info(cache->drv, cache->device, &left, &total)) {
		glk_error_back(&why);
		return;
	}
	used = total - left;
	glk_store_relaxed(&cache->held_by_others, used > held ? used - held : 0);
}

double glk_fill(struct glk_cache *cache)
{
	uint64_t held, budget;
	double fill;

	if (!glk_conf_target_is_auto(cache->conf))
		return 0;
	held = glk_node_own(cache->node);
	budget = glk_node_most(cache->node);
	fill = (double)(held + glk_load_relaxed(&cache->held_by_others)) /
		(double)cache->memory;
	if (fill < (double)held / (double)budget)
		fill = (double)held / (double)budget;
	if (fill > cache->fill || fill < cache->fill - FALL)
		cache->fill = fill;
	return cache->fill;
}

/* Where many requests had trouble one LOOSE_PART of the GPU, or of the budget, may be held above the peak, but no more
 * than twice the peak, and half of all with what others hold. Where threads meet it is four times what is live in the
 * arenas of streams, and as much for each of them as any small job may hold: what else the job has is no reason. Streams
 * may have arenas of their own in a job whose peak is one SMALL_PART at the most, and those that meet others where it is
 * one LOOSE_PART. */
#define LOOSE_PART 8
#define SMALL_PART 64

static uint64_t most_of(const struct glk_cache *gpu)
{
	uint64_t most = glk_node_most(gpu->node);

	return most < gpu->memory ? most : gpu->memory;
}

/* Half of the budget, or what others leave of half of the GPU. */
static uint64_t half(const struct glk_cache *gpu)
{
	uint64_t others = glk_load_relaxed(&gpu->held_by_others);
	uint64_t left = gpu->memory / 2 > others ? gpu->memory / 2 - others : 0;

	return left < most_of(gpu) / 2 ? left : most_of(gpu) / 2;
}

bool glk_fill_is_roomy(struct glk_cache *gpu, bool met)
{
	unsigned part = met ? LOOSE_PART : SMALL_PART;

	return glk_conf_target_is_auto(gpu->conf) &&
		glk_seats_peak(gpu) <= most_of(gpu) / part &&
		glk_node_own(gpu->node) <= half(gpu);
}

void glk_fill_settle(struct glk_cache *gpu)
{
	glk_own_leave(gpu);
	gpu->loose = false;
	gpu->maps.sum = 0;
}

/* Bytes above the peak for requests that had trouble; 0: they had none, or the target is a number. */
static uint64_t loose(struct glk_cache *gpu, uint64_t peak)
{
	uint64_t room = half(gpu), most = most_of(gpu) / LOOSE_PART;
	uint64_t some = gpu->loose || gpu->waited ? 2 * peak : 0, met;

	if (!glk_conf_target_is_auto(gpu->conf) || (!gpu->loose && !glk_own_any(gpu)))
		return 0;
	room = room > peak ? room - peak : 0;
	met = 4 * glk_own_live(gpu) + glk_own_count(gpu) * GLK_TARGET_LEAST;
	if (gpu->crowded && some < met)
		some = met;
	most = most < some ? most : some;
	return room < most ? room : most;
}

uint64_t glk_fill_above(struct glk_cache *gpu, uint64_t peak)
{
	double target = glk_conf_target(gpu->conf, glk_fill(gpu));
	uint64_t more = (uint64_t)((double)peak * (target - 1));
	uint64_t looser = loose(gpu, peak);

	more = more > looser ? more : looser;
	return more > GLK_TARGET_LEAST ? more : GLK_TARGET_LEAST;
}
