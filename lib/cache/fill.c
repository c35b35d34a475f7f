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

/* A number is the same for all. */
static bool goes_by_fill(const struct glk_cache *cache)
{
	return glk_conf_target(cache->conf, 0) > glk_conf_target(cache->conf, 1);
}

void glk_fill_ask(struct glk_cache *cache)
{
	struct glake_error why = glk_thread_current->error;
	uint64_t held = glk_load_relaxed(&cache->node->held), used;
	size_t left, total;

	if (!goes_by_fill(cache))
		return;
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

	if (!goes_by_fill(cache))
		return 0;
	held = glk_node_own(cache->node);
	budget = glk_load_relaxed(&cache->node->budget);
	fill = (double)(held + glk_load_relaxed(&cache->held_by_others)) /
		(double)cache->memory;
	if (fill < (double)held / (double)budget)
		fill = (double)held / (double)budget;
	if (fill > cache->fill || fill < cache->fill - FALL)
		cache->fill = fill;
	return cache->fill;
}
