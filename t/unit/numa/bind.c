/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* On the machine this runs on: discovery agrees with libnuma, binding with the kernel. */
#include "unit/numa/tree.h"

#include "numa/topology.h"

#include "base/late.h"

#include <glake/error.h>
#include <numa.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

static void agrees(const struct glk_topology *t)
{
	bool same_memory = true, same_distance = true, same_cpus = true;
	struct sysinfo machine;
	int nodes = 0;

	for (int id = 0; id <= numa_max_node(); id++)
		nodes += numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned int)id) ||
			glk_topology_find(t, id);
	is_int((int64_t)glk_topology_count(t), nodes, "as many nodes as libnuma sees");
	for (size_t i = 0; i < glk_topology_count(t); i++) {
		const struct glk_numa_node *node = glk_topology_at(t, i);
		long long size = numa_node_size64(node->id, NULL);

		same_memory &= size < 0 || (uint64_t)size == node->memory ||
			glk_topology_count(t) == 1;
		for (size_t j = 0; j < glk_topology_count(t); j++) {
			int to = glk_topology_at(t, j)->id;
			int distance = numa_distance(node->id, to);

			same_distance &= !distance ||
				distance == glk_topology_distance(t, node->id, to);
		}
		for (int cpu = glk_numa_set_next(&node->cpus, 0); cpu >= 0;
			cpu = glk_numa_set_next(&node->cpus, (unsigned int)cpu + 1))
			same_cpus &= glk_numa_cpu_node(cpu) == node->id;
	}
	ok(same_memory, "the same memory");
	if (glk_topology_count(t) == 1 && !sysinfo(&machine))
		is_int((int64_t)glk_topology_at(t, 0)->memory,
			(int64_t)machine.totalram * machine.mem_unit,
			"all of the machine");
	ok(same_distance, "the same distances");
	ok(same_cpus, "the same node for each CPU");
}

static void binds(const struct glk_topology *t)
{
	const size_t size = 1 << 20;
	char *memory = mmap(
		NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		tap_bail("no memory");
	for (size_t i = 0; i < glk_topology_count(t); i++) {
		const struct glk_numa_node *node = glk_topology_at(t, i);
		int where = -1;

		if (!node->has_memory)
			continue;
		madvise(memory, size, MADV_DONTNEED);
		is_int(glk_numa_prefer(memory, size, node->id), 0, "wished for");
		is_int(glk_numa_bind(memory, size, node->id), 0, "bound");
		memory[size - 1] = 1;
		is_int(glk_numa_where(memory + size - 1, &where), 0, "asked");
		is_int(where, node->id, "and there");
	}
	munmap(memory, size);
}

static void refuses(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	char byte = 0;
	int where = 7;

	is_int(glk_numa_bind(&byte, 0, 0), -EINVAL, "nothing to bind");
	is_int(glk_numa_prefer(&byte, 0, 0), -EINVAL, "nor to wish for");
	is_int(glk_numa_prefer(&byte, 1, GLK_NUMA_NODES), -EINVAL, "nor from no node");
	is_int(glk_numa_bind(&byte, 1, -1), -EINVAL, "to no node");
	is_int(glk_numa_bind(&byte, 1, GLK_NUMA_NODES), -EINVAL,
		"to a node beyond the maximum");
	is_int(glk_numa_cpu_node(-1), GLK_NUMA_UNKNOWN, "no CPU");
	is_int(glk_numa_cpu_node(1 << 30), GLK_NUMA_UNKNOWN, "no such CPU");
	if (!glk_numa_available())
		return;
	is_int(glk_numa_bind((void *)1, 4096, 0), -EINVAL,
		"an address inside an OS page");
	is_int(glk_numa_bind(NULL, 4096, GLK_NUMA_NODES - 1), -EINVAL, "no such node");
	glake_last_error(&error);
	is_str(error.call, "mbind", "the record names the call");
	is_int(glk_numa_where(NULL, &where), -EFAULT, "no memory there");
	is_int(where, 7, "nothing was written");
	glk_late_hide(1);
	ok(!glk_numa_available(), "without libnuma there are no calls");
	is_int(glk_numa_where(&byte, &where), -EOPNOTSUPP,
		"nobody knows where memory lies");
	glake_last_error(&error);
	has_str(error.text, "libnuma.so.1 cannot be loaded", "the record says so");
	is_int(glk_numa_bind(NULL, 4096, GLK_NUMA_NODES - 1), -EOPNOTSUPP,
		"nor binds it");
	is_int(glk_numa_prefer(NULL, 4096, 0), -EOPNOTSUPP, "nor wishes for it");
	is_int(glk_numa_cpu_node(0), GLK_NUMA_UNKNOWN, "nor where a CPU is");
	glk_late_hide(0);
}

int main(void)
{
	struct glk_topology *t;

	tap_plan_later();
	if (glk_topology_new(NULL, &t))
		tap_bail("no topology");
	tap_note("%zu nodes: %s", glk_topology_count(t),
		glk_topology_status_text(glk_topology_status(t)));
	refuses();
	if (glk_numa_available() && glk_topology_status(t) == GLK_TOPOLOGY_OK) {
		agrees(t);
		binds(t);
	} else {
		tap_skip("libnuma's answers", "no NUMA calls on this machine");
	}
	glk_topology_free(t);
	return tap_done();
}
