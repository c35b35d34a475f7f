/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Each GPU: whether it serves memory at all, and what that memory can do. A driver's promise is
 * one thing and a page that it made another; where both differ, the page is right.
 */
#include "tool/doctor.h"

#include "tool/figure.h"

#include <glake/memory.h>

#include <stdio.h>
#include <string.h>

struct view {
	const struct doctor_facts *facts;
	const struct doctor_gpu *gpu;
	struct doctor *doctor;
	int index;
	char name[64];
};

static const char *name(struct view *view, const char *what)
{
	snprintf(view->name, sizeof(view->name), "gpu%d.%s", view->index, what);
	return view->name;
}

static bool judge_memory(struct view *view)
{
	const struct glake_device *device = &view->gpu->device;
	struct doctor *doctor = view->doctor;

	if (view->gpu->err) {
		doctor_add(doctor, DOCTOR_PROBLEM, name(view, "memory"),
			"%s: a small block could not be had: %s", device->name,
			view->gpu->failure);
		if (device->granularity && !(device->caps & GLAKE_CAP_VMM))
			doctor_advise(doctor,
				"this GPU cannot map memory at chosen addresses, "
				"which the library needs; use another one");
		else
			doctor_advise(doctor,
				"nvidia-smi shows who holds the memory of this GPU "
				"and whether it is well; dmesg | grep NVRM");
		return false;
	}
	if (!device->free_valid) {
		doctor_add(doctor, DOCTOR_OK, name(view, "memory"), "%s, %s",
			device->name, figure_bytes(device->memory).text);
	} else if (device->free >= device->memory / 10) {
		doctor_add(doctor, DOCTOR_OK, name(view, "memory"), "%s, %s, %s free",
			device->name, figure_bytes(device->memory).text,
			figure_bytes(device->free).text);
	} else {
		doctor_add(doctor, DOCTOR_NOTE, name(view, "memory"),
			"%s: of %s only %s are free", device->name,
			figure_bytes(device->memory).text,
			figure_bytes(device->free).text);
		doctor_advise(doctor, "nvidia-smi shows which programs hold the rest");
	}
	return true;
}

static void good(struct view *view, const char *what, const char *text)
{
	doctor_add(view->doctor, DOCTOR_OK, name(view, what), "%s", text);
}

static void note(
	struct view *view, const char *what, const char *text, const char *advice)
{
	doctor_add(view->doctor, DOCTOR_NOTE, name(view, what), "%s", text);
	doctor_advise(view->doctor, "%s", advice);
}

static void judge_node(struct view *view)
{
	int node = view->gpu->device.numa_node;

	if (node >= 0)
		doctor_add(view->doctor, DOCTOR_OK, name(view, "node"),
			"near NUMA node %d", node);
	else if (view->facts->node_count < 2)
		good(view, "node", "near the only NUMA node");
	else
		note(view, "node", "nothing tells which NUMA node it is near",
			"a newer firmware, or a virtual machine that is shown the "
			"topology of its host");
}

static void judge_host_numa(struct view *view)
{
	if (view->gpu->device.caps & GLAKE_CAP_HOST_NUMA)
		good(view, "host_numa", "pages can be made on a node of the host");
	else
		note(view, "host_numa",
			"the driver does not say that it makes pages on a node of the "
			"host; glake_spill and glake_suspend do without",
			"a driver of CUDA 12.9 or later says");
}

static void judge_fd(struct view *view)
{
	if (view->gpu->can & GLAKE_CAN_EXPORT)
		good(view, "fd",
			"memory can be given to other processes as file descriptors");
	else
		note(view, "fd", "memory cannot be given to other processes",
			!strcmp(view->facts->export, "no")
				? "pool.export=no says so; auto or fd allows it"
				: "a newer driver; PyTorch's and UCX's sharing between "
				  "processes and NCCL's between GPUs need it");
}

static void judge_fabric(struct view *view)
{
	if (view->gpu->can & GLAKE_CAN_FABRIC)
		good(view, "fabric", "memory has fabric handles");
	else if (!(view->gpu->device.caps & GLAKE_CAP_FABRIC))
		good(view, "fabric",
			"no fabric handles, which only NVLink between hosts needs");
	else if (strcmp(view->facts->export, "auto"))
		good(view, "fabric", "no fabric handles, as pool.export says");
	else
		note(view, "fabric", "the driver promises fabric handles and makes none",
			"where NVLink spans hosts, start nvidia-imex and make a "
			"channel (NVreg_CreateImexChannel0=1); else nothing");
}

static void judge_rdma(struct view *view)
{
	if (!view->facts->host.rdma)
		good(view, "rdma", "not looked for, as the host has no RDMA device");
	else if (view->gpu->can & GLAKE_CAN_DMABUF)
		good(view, "rdma",
			"network cards can be given its memory, as dma-buf too");
	else if (view->gpu->can & GLAKE_CAN_RDMA)
		good(view, "rdma", "network cards can be given its memory");
	else
		note(view, "rdma", "network cards cannot be given its memory",
			"pool.rdma=auto or yes, pool.export=auto, and a GPU and "
			"driver with GPUDirect RDMA");
}

void doctor_judge_gpus(const struct doctor_facts *facts, struct doctor *doctor)
{
	struct view view = {.facts = facts, .doctor = doctor};

	doctor->part = "GPUs";
	for (int i = 0; i < facts->gpu_count; i++) {
		view.gpu = &facts->gpus[i];
		view.index = i;
		if (!judge_memory(&view))
			continue;
		judge_node(&view);
		judge_host_numa(&view);
		judge_fd(&view);
		judge_fabric(&view);
		judge_rdma(&view);
	}
}
