/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sets up the nodes of a context: its GPUs, the memory of the host near each of them, and the peers of that. */
#include "pool/pool.h"

#include "base/conf.h"
#include "base/error.h"

#include <errno.h>

/*
 * With 8 MiB jobs hold 1.005 of what is live; pages of 32 MiB halve the time of their first pass
 * and want 2 to 5 % of it: so they are for those who allow that. Where that depends on the time, as with
 * auto, there are all sizes from 8 to 64 MiB (t/bench/frontier.md).
 */
static size_t large_page(const struct glk_conf *conf)
{
	if (conf->pool_large_page)
		return conf->pool_large_page;
	if (glk_conf_target_is_auto(conf))
		return 16 * GLK_MIB;
	return glk_conf_target(conf, 0) > 1.02 ? 32 * GLK_MIB : 8 * GLK_MIB;
}

/* Whether pages of a GPU have all sizes. */
static bool is_graded(const struct glk_conf *conf)
{
	return !conf->pool_large_page && glk_conf_target_is_auto(conf) &&
		conf->pool_small_page < 8 * GLK_MIB;
}

static struct glk_node *node_init(
	struct glk_pool *pool, int index, int id, const struct glk_conf *conf)
{
	struct glk_node *node = &pool->nodes[index];
	bool gpu = index < pool->gpus, peer = index >= pool->gpus + pool->hosts;
	uint64_t budget;

	node->pool = pool;
	node->source = peer ? &glk_source_lender : &glk_source_driver;
	node->index = (uint8_t)index;
	node->place.kind = gpu ? GLK_PLACE_GPU : GLK_PLACE_HOST;
	node->place.id = id;
	node->page_size[GLK_CLASS_SMALL] = conf->pool_small_page;
	node->page_size[GLK_CLASS_LARGE] = large_page(conf);
	/* a page costs the driver much the same, whatever its size, and copies to the GPU stand still meanwhile */
	for (int c = GLK_CLASS_HALF; gpu && is_graded(conf) && c <= GLK_CLASS_HUGE; c++)
		node->page_size[c] = 8 * GLK_MIB << (c - GLK_CLASS_HALF);
	if (!gpu)
		node->gpu = &pool->nodes[(index - pool->gpus) % pool->hosts];
	/* live keys: a pool may be made late. What is lent counts at the lender */
	budget = peer ? 0 : glk_peek_relaxed(gpu ? &conf->pool_budget : &conf->tier_host);
	glk_store_relaxed(&node->budget, budget ? budget : UINT64_MAX);
	return node;
}

int glk_pool_init(struct glk_pool *pool, struct glk_drv *drv, const struct glk_conf *conf,
	int gpus, int hosts, const int *host_ids)
{
	int err;

	*pool = (struct glk_pool){
		.drv = drv, .gpus = gpus, .hosts = hosts, .probe = conf->tier_probe};
	if (gpus > GLK_NODES_MAX / 3 || hosts < 0 || hosts > gpus)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%d GPUs, %d with memory of the host: %d are the most", gpus,
			hosts, GLK_NODES_MAX / 3);
	pool->nodes = glk_region_new(GLK_NODES_MAX * sizeof(*pool->nodes));
	if (!pool->nodes)
		return -ENOMEM;
	err = glk_slab_init(
		&pool->pages, sizeof(struct glk_page), (uint32_t)conf->pool_pages);
	if (err) {
		glk_region_free(pool->nodes, GLK_NODES_MAX * sizeof(*pool->nodes));
		pool->nodes = NULL;
		return err;
	}
	for (int i = 0; i < gpus; i++)
		node_init(pool, i, i, conf);
	for (int i = gpus; i < gpus + hosts; i++)
		node_init(pool, i, host_ids[i - gpus], conf)->peer =
			node_init(pool, i + hosts, 0, conf);
	return 0;
}

void glk_pool_fini(struct glk_pool *pool)
{
	if (!pool->nodes)
		return;
	for (int i = 0; i < pool->gpus + pool->hosts; i++)
		glk_node_empty(&pool->nodes[i]);
	glk_slab_fini(&pool->pages);
	glk_region_free(pool->nodes, GLK_NODES_MAX * sizeof(*pool->nodes));
	pool->nodes = NULL;
}
