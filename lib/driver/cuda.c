/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The CUDA backend: the driver table filled from libcuda.so.1. An instance is cheap and holds
 * the contexts it retained and the events it made; the loaded library is shared by all
 * instances of the process.
 *
 * Exit	after exit has begun nothing of the driver is called: calls answer -ENODEV SHUTDOWN,
 *	those that give something back answer 0
 * Fork	in a child nothing of the driver is called: calls answer -ENODEV FORKED, close 0
 * Lost	a GPU after a sticky error refuses queued work and queries; pages can still be unmapped
 *	and released
 */
#include "driver/cuda.h"

#include "base/log.h"
#include "base/rcu.h"
#include "driver/cuda_state.h"

#include <errno.h>

static int cuda_close(struct glk_drv *drv)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	unsigned events;
	int err = 0;

	if (!glk_cuda_exiting() && cuda->forks == glk_fork_generation()) {
		events = glk_cuda_events_end(cuda);
		if (events)
			glk_warn("%u CUDA events were left over at close", events);
		err = glk_cuda_contexts_release(cuda);
	}
	glk_slab_fini(&cuda->events);
	glk_region_free(cuda, sizeof(*cuda));
	return err;
}

static const struct glk_drv_ops cuda_ops = {
	.version = GLK_DRV_OPS_VERSION,
	.name = "cuda",
	.close = cuda_close,
	.device_count = glk_cuda_device_count,
	.device_info = glk_cuda_device_info,
	.memory_info = glk_cuda_memory_info,
	.reserve = glk_cuda_reserve,
	.unreserve = glk_cuda_unreserve,
	.create = glk_cuda_create,
	.release = glk_cuda_release,
	.map = glk_cuda_map,
	.set_access = glk_cuda_set_access,
	.promise = glk_cuda_promise,
	.unmap = glk_cuda_unmap,
	.export_fd = glk_cuda_export_fd,
	.import_fd = glk_cuda_import_fd,
	.page_place = glk_cuda_page_place,
	.dmabuf_fd = glk_cuda_dmabuf_fd,
	.peer_can = glk_cuda_peer_can,
	.stream_new = glk_cuda_stream_new,
	.stream_free = glk_cuda_stream_free,
	.stream_sync = glk_cuda_stream_sync,
	.stream_facts = glk_cuda_stream_facts,
	.stream_owner = glk_cuda_stream_owner,
	.device_sync = glk_cuda_device_sync,
	.event_new = glk_cuda_event_new,
	.event_free = glk_cuda_event_free,
	.event_record = glk_cuda_event_record,
	.event_query = glk_cuda_event_query,
	.event_sync = glk_cuda_event_sync,
	.stream_wait = glk_cuda_stream_wait,
	.user_event_new = glk_cuda_user_event_new,
	.user_event_free = glk_cuda_user_event_free,
	.user_event_record = glk_cuda_user_event_record,
	.user_event_wait = glk_cuda_user_event_wait,
	.copy = glk_cuda_copy,
	.copy_gpu = glk_cuda_copy_gpu,
	.fill = glk_cuda_fill,
	.gate = glk_cuda_gate,
	.spot = glk_cuda_spot,
	.host_lock = glk_cuda_host_lock,
	.host_unlock = glk_cuda_host_unlock,
	.module_load = glk_cuda_module_load,
	.module_free = glk_cuda_module_free,
	.kernel_find = glk_cuda_kernel_find,
	.launch = glk_cuda_launch,
	.node_try = glk_cuda_node_try,
	.managed_alloc = glk_cuda_managed_alloc,
	.managed_free = glk_cuda_managed_free,
	.managed_say = glk_cuda_managed_say,
	.managed_prefetch = glk_cuda_managed_prefetch,
	.managed_ask = glk_cuda_managed_ask,
};

static int gpus_find(struct glk_cuda *cuda)
{
	glk_cu_result result;

	cuda->gpus = cuda->lib->gpus;
	if (cuda->gpus > GLK_CUDA_GPUS_MAX) {
		glk_warn("only %d of %d GPUs are used", GLK_CUDA_GPUS_MAX, cuda->gpus);
		cuda->gpus = GLK_CUDA_GPUS_MAX;
	}
	for (int i = 0; i < cuda->gpus; i++) {
		result = cuda->lib->cuDeviceGet(&cuda->gpu[i].device, i);
		if (result)
			return glk_cuda_fail(
				cuda->lib, "cuDeviceGet", result, "GPU %d", i);
	}
	return 0;
}

int glk_cuda_new(const struct glk_cuda_lib *lib, struct glk_drv **ret_drv)
{
	struct glk_cuda *cuda;
	int err;

	cuda = glk_region_new(sizeof(*cuda));
	if (!cuda)
		return -ENOMEM;
	cuda->drv.ops = &cuda_ops;
	cuda->lib = lib;
	cuda->forks = glk_fork_generation();
	err = glk_slab_init(
		&cuda->events, sizeof(struct glk_drv_event), GLK_CUDA_EVENTS_MAX);
	if (err)
		goto free_cuda;
	err = gpus_find(cuda);
	if (err)
		goto fini_events;
	err = glk_cuda_exit_watch();
	if (err)
		goto fini_events;
	*ret_drv = &cuda->drv;
	return 0;

fini_events:
	glk_slab_fini(&cuda->events);
free_cuda:
	glk_region_free(cuda, sizeof(*cuda));
	return err;
}

int glk_cuda_open(const struct glk_conf *conf, struct glk_drv **ret_drv)
{
	const struct glk_cuda_lib *lib;
	int err;

	if (glk_cuda_exiting())
		return glk_error(-ENODEV, GLAKE_ERROR_SHUTDOWN,
			"the process is exiting, and the driver may have gone");
	err = glk_cuda_lib_get(&lib);
	if (err)
		return err;
	return glk_cuda_new(lib, ret_drv);
}

int glk_cuda_version(struct glk_drv *drv)
{
	return glk_cuda_of(drv)->lib->version;
}
