/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The machine around the GPUs: NUMA, the limits of the process, memory of the host, and what
 * network cards and other hosts need to reach a GPU. What is not known is not judged.
 */
#include "tool/doctor.h"

#include "tool/figure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAPS	  65530 /* Linux's own default */
#define MAPS_BARE 4096	/* below this the libraries of the driver may not load */
#define FILES	  1024
#define SPARE	  (INT64_C(256) << 20) /* which tier.host leaves alone */

/* Bytes of all GPUs. */
static uint64_t gpu_memory(const struct doctor_facts *facts)
{
	uint64_t sum = 0;

	for (int i = 0; i < facts->gpu_count; i++)
		sum += facts->gpus[i].device.memory;
	return sum;
}

static bool gpu_can(const struct doctor_facts *facts, uint32_t cap)
{
	bool can = false;

	for (int i = 0; i < facts->gpu_count; i++)
		can |= facts->gpus[i].device.caps & cap;
	return can;
}

/* Whether node `id` is in a list as "0-1,8". */
static bool listed(const char *list, long id)
{
	char *end;

	for (; *list; list = end + (*end == ',')) {
		long first = strtol(list, &end, 10), last = first;

		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		if (id >= first && id <= last)
			return true;
		if (*end != ',')
			break;
	}
	return false;
}

static void judge_nodes(const struct doctor_facts *facts, struct doctor *doctor)
{
	size_t shown =
		facts->node_count < DOCTOR_NODES ? facts->node_count : DOCTOR_NODES;
	const char *plural = facts->node_count == 1 ? "" : "s";
	uint64_t memory = 0;
	bool known = shown == facts->node_count;

	for (size_t i = 0; i < shown; i++) {
		known &= facts->nodes[i].memory_valid != 0;
		memory += facts->nodes[i].memory;
	}
	if (known)
		doctor_add(doctor, DOCTOR_OK, "numa", "%zu node%s, %s", facts->node_count,
			plural, figure_bytes(memory).text);
	else
		doctor_add(doctor, DOCTOR_OK, "numa", "%zu node%s", facts->node_count,
			plural);
}

static void judge_binding(const struct doctor_facts *facts, struct doctor *doctor)
{
	const struct glake_host *host = &facts->host;

	if (host->binding) {
		doctor_add(doctor, DOCTOR_OK, "numa.binding",
			"memory of the host can be bound to a node");
	} else if (facts->node_count < 2) {
		doctor_add(doctor, DOCTOR_OK, "numa.binding",
			"memory cannot be bound to a node, and need not with one");
	} else {
		doctor_add(doctor, DOCTOR_NOTE, "numa.binding",
			"memory of the host cannot be bound to the node near a GPU");
		doctor_advise(doctor,
			"install libnuma.so.1, and let the container make the "
			"NUMA calls: its seccomp profile, CAP_SYS_NICE");
	}
	for (int i = 0; i < facts->gpu_count && *host->nodes; i++) {
		int node = facts->gpus[i].device.numa_node;

		if (node < 0 || listed(host->nodes, node))
			continue;
		doctor_add(doctor, DOCTOR_NOTE, "numa.allowed",
			"this process may take memory of node %s alone, and GPU %d is near "
			"node %d",
			host->nodes, i, node);
		doctor_advise(doctor,
			"give it that node: cpuset.mems of its control group, "
			"--cpuset-mems of the container, numactl --membind");
		return;
	}
}

static void judge_maps(const struct glake_host *host, struct doctor *doctor)
{
	if (host->maps < 0)
		return;
	if (host->maps >= MAPS) {
		doctor_add(doctor, DOCTOR_OK, "limit.maps", "vm.max_map_count is %lld",
			(long long)host->maps);
		return;
	}
	doctor_add(doctor, host->maps < MAPS_BARE ? DOCTOR_PROBLEM : DOCTOR_NOTE,
		"limit.maps", "vm.max_map_count is %lld, below Linux's own %d",
		(long long)host->maps, MAPS);
	doctor_advise(doctor,
		"sysctl -w vm.max_map_count=262144, and the same in a file of "
		"/etc/sysctl.d");
}

static void judge_locked(const struct glake_host *host, struct doctor *doctor)
{
	if (host->locked < 0)
		return;
	if (host->locked == GLAKE_HOST_NO_LIMIT) {
		doctor_add(
			doctor, DOCTOR_OK, "limit.locked", "no limit of locked memory");
		return;
	}
	if (!host->rdma) {
		doctor_add(doctor, DOCTOR_OK, "limit.locked",
			"%s, to which the driver does not count what it locks",
			figure_bytes((uint64_t)host->locked).text);
		return;
	}
	doctor_add(doctor, DOCTOR_NOTE, "limit.locked",
		"%s of memory may be locked, and what a network card is given of the host counts",
		figure_bytes((uint64_t)host->locked).text);
	doctor_advise(doctor,
		"ulimit -l unlimited, LimitMEMLOCK=infinity of a service, "
		"--ulimit memlock=-1 of a container");
}

static void judge_files(const struct glake_host *host, struct doctor *doctor)
{
	if (host->files < 0)
		return;
	if (host->files == GLAKE_HOST_NO_LIMIT) {
		doctor_add(
			doctor, DOCTOR_OK, "limit.files", "no limit of file descriptors");
	} else if (host->files >= FILES) {
		doctor_add(doctor, DOCTOR_OK, "limit.files", "%lld file descriptors",
			(long long)host->files);
	} else {
		doctor_add(doctor, DOCTOR_NOTE, "limit.files",
			"%lld file descriptors; a page on its way to another process takes one",
			(long long)host->files);
		doctor_advise(doctor,
			"ulimit -n 65536, LimitNOFILE=65536 of a service, "
			"--ulimit nofile=65536 of a container");
	}
}

/* A GPU wants addresses of its own in the process, and the library four times its memory. */
static void judge_addresses(const struct doctor_facts *facts, struct doctor *doctor)
{
	int64_t limit = facts->host.addresses;

	if (limit < 0)
		return;
	if (limit == GLAKE_HOST_NO_LIMIT) {
		doctor_add(doctor, DOCTOR_OK, "limit.addresses", "no limit of addresses");
		return;
	}
	doctor_add(doctor, DOCTOR_PROBLEM, "limit.addresses",
		"%s of addresses; the driver and the library reserve several times the memory of "
		"the GPUs",
		figure_bytes((uint64_t)limit).text);
	doctor_advise(doctor,
		"ulimit -v unlimited, LimitAS=infinity of a service; to bound "
		"memory use a control group");
}

static void judge_memory(const struct doctor_facts *facts, struct doctor *doctor)
{
	const struct glake_host *host = &facts->host;
	uint64_t gpus = gpu_memory(facts);

	if (host->memory_spare < 0)
		return;
	if (host->memory_spare < SPARE) {
		doctor_add(doctor, DOCTOR_NOTE, "limit.memory",
			"%s of memory of the host are left: contents of a GPU cannot go there",
			figure_bytes((uint64_t)host->memory_spare).text);
		doctor_advise(doctor,
			"end what holds it, or raise the limit of the control group "
			"or container");
	} else if (host->memory_limit != GLAKE_HOST_NO_LIMIT &&
		(uint64_t)host->memory_limit < gpus) {
		doctor_add(doctor, DOCTOR_NOTE, "limit.memory",
			"its control group gives this process %s, which is less than GPUs hold "
			"that may be suspended",
			figure_bytes((uint64_t)host->memory_limit).text);
		doctor_advise(doctor,
			"raise the limit if contents of whole GPUs shall go to the "
			"host: glake_spill, glake_suspend");
	} else {
		doctor_add(doctor, DOCTOR_OK, "limit.memory",
			"%s of memory of the host are left for this process",
			figure_bytes((uint64_t)host->memory_spare).text);
	}
}

static void judge_overcommit(const struct glake_host *host, struct doctor *doctor)
{
	if (host->overcommit < 0)
		return;
	if (host->overcommit != 2) {
		doctor_add(doctor, DOCTOR_OK, "memory.overcommit",
			"vm.overcommit_memory is %lld", (long long)host->overcommit);
		return;
	}
	doctor_add(doctor, DOCTOR_NOTE, "memory.overcommit",
		"vm.overcommit_memory is 2: memory and addresses may be refused that would "
		"never be used");
	doctor_advise(doctor, "sysctl -w vm.overcommit_memory=0");
}

static void judge_huge_pages(const struct glake_host *host, struct doctor *doctor)
{
	if (!strcmp(host->transparent, "never")) {
		doctor_add(doctor, DOCTOR_NOTE, "memory.transparent",
			"the kernel gives no huge pages of its own: memory for contents that "
			"leave a GPU is slower to get");
		doctor_advise(doctor,
			"echo madvise > "
			"/sys/kernel/mm/transparent_hugepage/enabled");
	} else if (*host->transparent) {
		doctor_add(doctor, DOCTOR_OK, "memory.transparent", "huge pages: %s",
			host->transparent);
	}
	if (host->huge_pages_free > 0) {
		doctor_add(doctor, DOCTOR_NOTE, "memory.reserved",
			"%s are set aside as huge pages and not in use; the library takes none "
			"of them",
			figure_bytes((uint64_t)host->huge_pages_free).text);
		doctor_advise(doctor,
			"sysctl -w vm.nr_hugepages=0, unless another program "
			"wants them");
	} else if (!host->huge_pages_free) {
		doctor_add(doctor, DOCTOR_OK, "memory.reserved",
			"no huge pages are set aside unused");
	}
}

static void judge_rdma(const struct doctor_facts *facts, struct doctor *doctor)
{
	const struct glake_host *host = &facts->host;
	bool peermem = host->holders & GLAKE_HOST_PEERMEM;
	bool dmabuf = gpu_can(facts, GLAKE_CAP_DMABUF);

	if (!host->rdma) {
		doctor_add(doctor, DOCTOR_OK, "rdma", "no RDMA device on this host");
	} else if (peermem || dmabuf) {
		doctor_add(doctor, DOCTOR_OK, "rdma",
			"an RDMA device; memory of GPUs by %s%s%s",
			peermem ? "nvidia_peermem" : "", peermem && dmabuf ? ", " : "",
			dmabuf ? "dma-buf" : "");
	} else {
		doctor_add(doctor, DOCTOR_NOTE, "rdma",
			"an RDMA device, but no way from it to memory of a GPU is seen");
		doctor_advise(doctor,
			"modprobe nvidia_peermem, or use NVIDIA's open kernel "
			"modules, which have dma-buf");
	}
}

static void judge_fabric(const struct doctor_facts *facts, struct doctor *doctor)
{
	switch (facts->host.fabric_channel) {
	case 1:
		doctor_add(doctor, DOCTOR_OK, "fabric", "a channel of IMEX is there");
		break;
	case 0:
		doctor_add(doctor, DOCTOR_NOTE, "fabric",
			"the channel of IMEX may not be used by this process");
		doctor_advise(doctor,
			"give this user the right to "
			"/dev/nvidia-caps-imex-channels/channel0");
		break;
	default:
		doctor_add(doctor, DOCTOR_OK, "fabric",
			"no channel of IMEX, which only NVLink between hosts needs");
	}
}

void doctor_judge_host(const struct doctor_facts *facts, struct doctor *doctor)
{
	doctor->part = "Host";
	judge_nodes(facts, doctor);
	judge_binding(facts, doctor);
	judge_maps(&facts->host, doctor);
	judge_locked(&facts->host, doctor);
	judge_files(&facts->host, doctor);
	judge_addresses(facts, doctor);
	judge_memory(facts, doctor);
	judge_overcommit(&facts->host, doctor);
	judge_huge_pages(&facts->host, doctor);
	judge_rdma(facts, doctor);
	judge_fabric(facts, doctor);
}
