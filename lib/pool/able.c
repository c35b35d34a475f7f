/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a page can do beside lying in memory is fixed when it is made: whether it can leave the
 * process as a file descriptor or as a fabric handle, and whether a network card may reach it.
 * So all pages are made to be able to do what the GPU can, and blocks can be shared later
 * without having been asked for as such. What a network card needs is the exception, for it costs
 * a third of the time that a page takes: it is for hosts that have such a card. Attributes of a
 * GPU promise more than a driver keeps (fabric handles want a service beside it, and the
 * attribute does not say whether that runs), so the first page tells.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "numa/topology.h"
#include "pool/pool.h"

#include <errno.h>
#include <inttypes.h>

/* What is done without first. */
static const struct {
	uint32_t able, cap;
	const char *name;
} abilities[] = {
	{GLK_PAGE_FABRIC, GLAKE_CAP_FABRIC, "fabric handles"},
	{GLK_PAGE_RDMA, GLAKE_CAP_RDMA, "RDMA"},
	{GLK_PAGE_EXPORT_FD, GLAKE_CAP_FD, "file descriptors"},
};

#define ABILITIES (sizeof(abilities) / sizeof(*abilities))

static uint64_t all_peers(const struct glk_node *node)
{
	struct glk_drv *drv = node->pool->drv;
	uint64_t peers = 0;

	for (int i = 0; i < node->pool->gpus && i < 64; i++) {
		bool can = false;

		if (i == node->place.id)
			continue;
		if (drv->ops->peer_can(drv, node->place.id, i, &can) || !can)
			glk_info("GPU %d cannot reach the memory of GPU %d", i,
				node->place.id);
		else
			peers |= UINT64_C(1) << i;
	}
	return peers;
}

void glk_node_describe(struct glk_node *node, const struct glk_conf *conf,
	const struct glake_device *info)
{
	uint32_t able = 0;

	node->caps = info->caps;
	node->granularity = info->granularity;
	/* a part of a memory that is known from here on; a live key */
	glk_store_relaxed(&node->budget,
		glk_conf_share(glk_peek_relaxed(&conf->pool_budget), info->memory));
	for (size_t i = 0; i < ABILITIES; i++) {
		if (info->caps & abilities[i].cap)
			able |= abilities[i].able;
	}
	if (conf->pool_export == GLK_POOL_EXPORT_FD)
		able &= GLK_PAGE_EXPORT_FD;
	else if (conf->pool_export == GLK_POOL_EXPORT_NO)
		able = 0;
	if (conf->pool_rdma == GLK_POOL_RDMA_NO ||
		(conf->pool_rdma == GLK_POOL_RDMA_AUTO && !glk_rdma_present(NULL)))
		able &= ~GLK_PAGE_RDMA;
	glk_store_relaxed(&node->able, able);
	if (conf->pool_peers == GLK_POOL_PEERS_ALL)
		glk_store_relaxed(&node->peers, all_peers(node));
}

size_t glk_node_grants(
	const struct glk_node *node, struct glk_grant ret_grants[GLK_GRANTS_MAX])
{
	const struct glk_node *gpu = node->gpu ? node->gpu : node;
	uint64_t peers = glk_load_relaxed(&gpu->peers);
	size_t count = 0;

	ret_grants[count++] =
		(struct glk_grant){.who = gpu->place, .access = GLK_ACCESS_WRITE};
	for (; peers; peers &= peers - 1)
		ret_grants[count++] =
			(struct glk_grant){.who = {GLK_PLACE_GPU, __builtin_ctzll(peers)},
				.access = GLK_ACCESS_WRITE};
	return count;
}

bool glk_node_is_refusal(int err)
{
	return err == -EPERM || err == -EACCES || err == -EOPNOTSUPP || err == -EINVAL;
}

/* Threads that were refused at the same time write the same. */
static void remember(struct glk_node *node, uint32_t wanted, uint32_t able)
{
	glk_store_relaxed(&node->able, able);
	for (size_t i = 0; i < ABILITIES; i++) {
		if (wanted & ~able & abilities[i].able)
			glk_info("GPU %d: the driver makes no pages for %s",
				node->place.id, abilities[i].name);
	}
}

static int spare(size_t size)
{
	uint64_t usable = glk_numa_usable(NULL);

	if (usable >= size)
		return 0;
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
		"%" PRIu64
		" MiB of the host can be had beside what is left to others, too few "
		"for a page of %zu bytes",
		usable >> 20, size);
}

/* Machines with one node, or none that the kernel tells of, have no lopsided ones. */
static bool has_nodes(void)
{
	struct glk_numa_set nodes;

	return !glk_sysfs_list(NULL, "/sys/devices/system/node/has_memory",
		       GLK_NUMA_NODES, &nodes) &&
		glk_numa_set_count(&nodes) > 1;
}

/* Whether a page may be asked for on the node. Threads that come at once do the same. */
static int node_try(struct glk_node *node)
{
	struct glk_drv *drv = node->pool->drv;
	bool always = node->pool->probe == GLK_TIER_PROBE_ALWAYS;
	int err = 0;

	if (glk_load_relaxed(&node->tried))
		return 0;
	if (always || (node->pool->probe == GLK_TIER_PROBE_AUTO && has_nodes()))
		err = drv->ops->node_try(drv, node->place.id, always);
	if (!err)
		glk_store_relaxed(&node->tried, true);
	return err;
}

/* On the NUMA node of the GPU, or, where the driver makes none there, wherever it does. */
static int make_host(struct glk_node *node, size_t size, uint64_t *ret_handle)
{
	const struct glk_place any = {.kind = GLK_PLACE_ANY};
	bool anywhere = glk_load_relaxed(&node->anywhere);
	struct glk_drv *drv = node->pool->drv;
	int err = spare(size);

	if (err)
		return err;
	err = anywhere ? 0 : node_try(node);
	/* nobody could tell this time: this page alone lies anywhere */
	if (err == -EAGAIN)
		return drv->ops->create(drv, any, size, 0, ret_handle);
	if (!err)
		err = drv->ops->create(
			drv, anywhere ? any : node->place, size, 0, ret_handle);
	if (anywhere || !glk_node_is_refusal(err))
		return err;
	err = drv->ops->create(drv, any, size, 0, ret_handle);
	if (err)
		return err;
	glk_store_relaxed(&node->anywhere, true);
	glk_info(
		"GPU %d: the driver makes no pages on NUMA node %d; memory of the host lies "
		"anywhere",
		node->gpu->place.id, node->place.id);
	return 0;
}

int glk_node_make(
	struct glk_node *node, size_t size, uint64_t *ret_handle, uint8_t *ret_able)
{
	uint32_t wanted = glk_load_relaxed(&node->able), able = wanted;
	struct glk_drv *drv = node->pool->drv;
	int err;

	if (node->gpu) {
		*ret_able = 0;
		return make_host(node, size, ret_handle);
	}
	err = drv->ops->create(drv, node->place, size, able, ret_handle);
	for (size_t i = 0; i < ABILITIES && glk_node_is_refusal(err); i++) {
		if (!(able & abilities[i].able))
			continue;
		able &= ~abilities[i].able;
		err = drv->ops->create(drv, node->place, size, able, ret_handle);
	}
	if (err)
		return err;
	if (able != wanted)
		remember(node, wanted, able);
	*ret_able = (uint8_t)able;
	return 0;
}
