/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The software device as a driver: its table, what it says of its GPUs, its beginning and its end. */
#include "soft/graph.h"
#include "soft/managed.h"

#include "base/conf.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static int soft_device_count(struct glk_drv *drv, int *ret_count)
{
	glk_soft_charge(soft_of(drv), GLAKE_CALL_OTHER, 1);
	*ret_count = soft_of(drv)->gpus;
	return 0;
}

static int soft_memory_info(
	struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total)
{
	struct soft *soft = soft_of(drv);
	const struct soft_room *room;
	uint8_t place = 0;
	int err;

	err = glk_soft_place(soft, (struct glk_place){GLK_PLACE_GPU, device}, &place);
	if (err)
		return err;
	room = &soft->rooms[place];
	glk_soft_enter(soft);
	glk_soft_page_reap(soft);
	*ret_free = room->total - room->used;
	glk_unlock(&soft->lock);
	*ret_total = room->total;
	return 0;
}

static int soft_device_info(
	struct glk_drv *drv, int device, struct glake_device *ret_device)
{
	struct glake_device info = {.sz = ret_device->sz};
	size_t free = 0, total = 0;
	int err = soft_memory_info(drv, device, &free, &total);

	if (err)
		return err;
	snprintf(info.name, sizeof(info.name), "glake software device");
	snprintf(info.uuid, sizeof(info.uuid), "GPU-50f70000-0000-0000-0000-%012x",
		(unsigned)device);
	info.memory = total;
	info.free = free;
	info.free_valid = 1;
	info.numa_node = device % soft_of(drv)->nodes;
	info.caps =
		GLAKE_CAP_VMM | GLAKE_CAP_FD | GLAKE_CAP_HOST_NUMA | GLAKE_CAP_MANAGED;
	info.caps |= soft_of(drv)->mps ? GLAKE_CAP_MPS : 0;
	info.granularity = GLK_GRANULE;
	info.granularity_recommended = GLK_GRANULE;
	*ret_device = info;
	return 0;
}

static void costs_read(struct soft *soft, const struct glk_conf *conf)
{
	int64_t *cost = soft->cost;

	cost[GLAKE_CALL_RESERVE] = conf->soft_cost_reserve;
	cost[GLAKE_CALL_UNRESERVE] = conf->soft_cost_reserve;
	cost[GLAKE_CALL_CREATE] = conf->soft_cost_create;
	cost[GLAKE_CALL_MAP] = conf->soft_cost_map;
	cost[GLAKE_CALL_SET_ACCESS] = conf->soft_cost_set_access;
	cost[GLAKE_CALL_UNMAP] = conf->soft_cost_unmap;
	cost[GLAKE_CALL_RELEASE] = conf->soft_cost_release;
	cost[GLAKE_CALL_EXPORT] = conf->soft_cost_export;
	cost[GLAKE_CALL_IMPORT] = conf->soft_cost_import;
	cost[GLAKE_CALL_EVENT_CREATE] = conf->soft_cost_event;
	cost[GLAKE_CALL_EVENT_RECORD] = conf->soft_cost_event;
	cost[GLAKE_CALL_EVENT_QUERY] = conf->soft_cost_event;
	cost[GLAKE_CALL_STREAM_WAIT] = conf->soft_cost_event;
}

/* Descriptors of imported pages that are left. */
static void close_imports(const struct soft *soft)
{
	uint32_t last = glk_load_relaxed(&soft->pages.used);

	for (uint32_t id = 1; id <= last; id++) {
		const struct soft_page *page = soft_page_at(soft, id);

		if (page->live && page->fd >= 0)
			close(page->fd);
	}
}

/* Also of a half-made instance. */
static int soft_close(struct glk_drv *drv)
{
	struct soft *soft = soft_of(drv);

	for (uint32_t i = 0; i < soft->book.span_count; i++)
		munmap((void *)soft->book.spans[i].addr, soft->book.spans[i].size);
	glk_soft_managed_fini(soft);
	glk_soft_maps_note(soft, -soft->maps);
	close_imports(soft);
	glk_slab_fini(&soft->hosts);
	glk_book_fini(&soft->book);
	glk_soft_file_close(&soft->file);
	glk_slab_fini(&soft->graph_nodes);
	glk_slab_fini(&soft->graphs);
	glk_slab_fini(&soft->ops);
	glk_slab_fini(&soft->events);
	glk_slab_fini(&soft->streams);
	glk_slab_fini(&soft->pages);
	glk_lock_fini(&soft->lock);
	glk_region_free(soft, sizeof(*soft));
	return 0;
}

static int rooms_open(struct soft *soft, const struct glk_conf *conf)
{
	size_t sum = 0;
	int err;

	for (int i = 0; i < soft->gpus + soft->nodes; i++) {
		struct soft_room *room = &soft->rooms[i];

		room->total = i < soft->gpus ? conf->soft_memory : conf->soft_host_memory;
		room->total &= ~(GLK_GRANULE - 1);
		sum += room->total;
	}
	/* No more pages than granules can ever be alive. */
	sum /= GLK_GRANULE;
	err = glk_slab_init(&soft->pages, sizeof(struct soft_page),
		sum < GLK_ID_MAX ? (uint32_t)sum : GLK_ID_MAX);
	return err ? err : glk_soft_file_open(&soft->file, sum);
}

static int tables_open(struct soft *soft)
{
	int err;

	err = glk_slab_init(&soft->streams, sizeof(struct soft_stream), SOFT_STREAMS);
	if (!err)
		err = glk_slab_init(
			&soft->events, sizeof(struct soft_event), SOFT_EVENTS);
	if (!err)
		err = glk_slab_init(&soft->ops, sizeof(struct soft_op), SOFT_QUEUED);
	if (!err)
		err = glk_slab_init(
			&soft->graphs, sizeof(struct soft_graph), SOFT_GRAPHS);
	if (!err)
		err = glk_slab_init(
			&soft->graph_nodes, sizeof(struct soft_node), SOFT_NODES);
	if (!err)
		err = glk_soft_host_init(soft);
	if (!err)
		err = glk_book_init(&soft->book, SOFT_MAPPINGS);
	if (err)
		return err;
	/* The default stream of GPU n is slot n + 1: the first ones a new slab gives. */
	for (int i = 0; i < soft->gpus; i++)
		glk_soft_stream_init(soft, glk_slab_get(&soft->streams), i);
	return 0;
}

/* It refuses what it does not make, and does no worse. */
static int soft_node_try(struct glk_drv *drv, int node, bool always)
{
	return 0;
}

static const struct glk_drv_ops soft_ops = {
	.version = GLK_DRV_OPS_VERSION,
	.name = "soft",
	.close = soft_close,
	.device_count = soft_device_count,
	.device_info = soft_device_info,
	.memory_info = soft_memory_info,
	.reserve = glk_soft_reserve,
	.unreserve = glk_soft_unreserve,
	.create = glk_soft_create,
	.release = glk_soft_release,
	.map = glk_soft_map,
	.set_access = glk_soft_set_access,
	.promise = glk_soft_promise,
	.unmap = glk_soft_unmap,
	.export_fd = glk_soft_export_fd,
	.import_fd = glk_soft_import_fd,
	.page_place = glk_soft_page_place,
	.peer_can = glk_soft_peer_can,
	.stream_new = glk_soft_stream_new,
	.stream_free = glk_soft_stream_free,
	.stream_sync = glk_soft_stream_sync,
	.stream_facts = glk_soft_stream_facts,
	.stream_owner = glk_soft_stream_owner,
	.device_sync = glk_soft_device_sync,
	.event_new = glk_soft_event_new,
	.event_free = glk_soft_event_free,
	.event_record = glk_soft_event_record,
	.event_query = glk_soft_event_query,
	.event_sync = glk_soft_event_sync,
	.stream_wait = glk_soft_stream_wait,
	.user_event_new = glk_soft_user_event_new,
	.user_event_free = glk_soft_user_event_free,
	.user_event_record = glk_soft_user_event_record,
	.user_event_wait = glk_soft_user_event_wait,
	.copy = glk_soft_copy,
	.copy_gpu = glk_soft_copy_gpu,
	.fill = glk_soft_fill,
	.gate = glk_soft_gate,
	.module_load = glk_soft_module_load,
	.module_free = glk_soft_module_free,
	.kernel_find = glk_soft_kernel_find,
	.launch = glk_soft_launch,
	.host_lock = glk_soft_host_lock,
	.host_unlock = glk_soft_host_unlock,
	.host_node = glk_soft_host_node,
	.spot = glk_soft_spot,
	.link_get = glk_soft_link_get,
	.node_try = soft_node_try,
	.managed_alloc = glk_soft_managed_alloc,
	.managed_free = glk_soft_managed_free,
	.managed_say = glk_soft_managed_say,
	.managed_prefetch = glk_soft_prefetch,
	.managed_ask = glk_soft_managed_ask,
	.figures = glk_soft_figures,
	.times = glk_soft_times,
};

int glk_soft_open(const struct glk_conf *conf, struct glk_drv **ret_drv)
{
	struct soft *soft;
	int err;

	if (conf->soft_gpus < 1 || conf->soft_gpus > 64 || conf->soft_nodes < 1 ||
		conf->soft_nodes > 64)
		return glk_error(-EINVAL, GLAKE_ERROR_CONFIG,
			"soft.gpus and soft.nodes must be 1 to 64");
	soft = glk_region_new(sizeof(*soft));
	if (!soft)
		return -ENOMEM;
	soft->drv.ops = &soft_ops;
	glk_lock_init(&soft->lock, GLK_RANK_DRIVER);
	soft->gpus = (int)conf->soft_gpus;
	soft->mps = conf->soft_mps;
	soft->gated = conf->soft_gates;
	soft->nodes = (int)conf->soft_nodes;
	soft->stepped = conf->soft_streams != GLK_SOFT_STREAMS_WORKER;
	soft->random = conf->soft_streams == GLK_SOFT_STREAMS_RANDOM;
	glk_soft_queue_init(soft, conf->soft_seed);
	costs_read(soft, conf);
	glk_soft_link_init(soft, conf);
	soft->file.fd = -1;
	err = tables_open(soft);
	if (!err)
		err = rooms_open(soft, conf);
	if (err) {
		soft_close(&soft->drv);
		return err;
	}
	*ret_drv = &soft->drv;
	return 0;
}
