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
#include "cache/cache.h"

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

uint64_t glk_fill_above(struct glk_cache *gpu, uint64_t peak)
{
	double target = glk_conf_target(gpu->conf, glk_fill(gpu));
	uint64_t more = (uint64_t)((double)peak * (target - 1));

	return more > GLK_TARGET_LEAST ? more : GLK_TARGET_LEAST;
}
