/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MACHINE_H
#define GLK_MACHINE_H

/*
 * A machine for glakectl doctor to judge: a tree of sysfs and procfs that is read by the library's
 * own eyes, and what a driver would say, made up.
 */
#include "unit/numa/tree.h"

#include "api/info.h"
#include "tool/doctor.h"
#include "uvm_bridge/uvm.h"

#include <glake/memory.h>

#define GIB (UINT64_C(1) << 30)

static struct tree *now; /* that parameters are read from */

static int parameter(const char *name, char *ret_text, size_t size)
{
	return glk_uvm_param(&now->root, name, ret_text, size);
}

/* A machine as in the tree, where CUDA works on one H200. */
static struct doctor_gpu gpu;
static struct doctor_facts facts;

static void look(struct tree *tree)
{
	now = tree;
	gpu = (struct doctor_gpu){.can = GLAKE_CAN_EXPORT,
		.device = {.name = "NVIDIA H200",
			.memory = 140 * GIB,
			.free = 139 * GIB,
			.free_valid = 1,
			.granularity = 2 << 20,
			.caps = GLAKE_CAP_VMM | GLAKE_CAP_FD | GLAKE_CAP_HOST_NUMA}};
	facts = (struct doctor_facts){.parameter = parameter,
		.opened = true,
		.driver = {.name = "cuda", .version = 13000},
		.export = "auto",
		.gpus = &gpu,
		.gpu_count = 1,
		.node_count = 1,
		.conf_text = "/etc/glake.conf"};
	facts.nodes[0] = (struct glake_node){.memory = 126 * GIB, .memory_valid = 1};
	glk_host_read(&tree->root, &facts.host);
	for (size_t i = 0; i < 2; i++)
		glk_module_read(&tree->root, i, &facts.modules[i]);
	glk_uvm_tools_read(&tree->root, &facts.tools, &(int){0});
}

/* And where it does not. */
static void without_cuda(const char *why)
{
	facts.soft = true;
	facts.gpu_count = 0;
	snprintf(facts.driver.fallback, sizeof(facts.driver.fallback), "%s", why);
}

static struct doctor doctor;

static void judge(void)
{
	bool whole = true, advised = true;

	doctor = (struct doctor){0};
	doctor_judge(&facts, &doctor);
	for (size_t i = 0; i < doctor.count; i++) {
		const struct doctor_check *check = &doctor.checks[i];

		advised &= (check->status == DOCTOR_OK) == !*check->advice;
		whole &= *check->text && *check->name &&
			strlen(check->name) < sizeof(check->name) - 1 &&
			strlen(check->text) < sizeof(check->text) - 1 &&
			strlen(check->advice) < sizeof(check->advice) - 1;
		for (size_t j = 0; j < i; j++)
			whole &= strcmp(check->name, doctor.checks[j].name) != 0;
	}
	ok(whole, "%zu checks with a text and a name of their own", doctor.count);
	ok(advised, "and an advice where one is due, nowhere else");
}

static const struct doctor_check *find(const char *name)
{
	for (size_t i = 0; i < doctor.count; i++)
		if (!strcmp(doctor.checks[i].name, name))
			return &doctor.checks[i];
	return NULL;
}

static void is(
	const char *name, enum doctor_status status, const char *text, const char *advice)
{
	const struct doctor_check *check = find(name);

	ok(check && check->status == status, "%s is %s", name,
		doctor_status_name(status));
	has_str(check ? check->text : "", text, "its text");
	has_str(check ? check->advice : "", advice, "its advice");
}

static void none(const char *name)
{
	ok(!find(name), "no check called %s", name);
}

static void has_problems(size_t problems, size_t notes)
{
	is_int((int64_t)doctor_count(&doctor, DOCTOR_PROBLEM), (int64_t)problems,
		"problems");
	is_int((int64_t)doctor_count(&doctor, DOCTOR_NOTE), (int64_t)notes, "notes");
}

/* The captured machine, with the limits that a system has after its installation. */
static void fit(struct tree *tree)
{
	tree_open(tree, "h200");
	tree_set(tree, "proc/sys/vm/max_map_count", "65530\n");
	tree_set(tree, "proc/sys/vm/overcommit_memory", "0\n");
	tree_set(tree, "proc/self/limits",
		"Max open files            1024                 524288               files\n"
		"Max locked memory         8388608              8388608              bytes\n"
		"Max address space         unlimited            unlimited            bytes\n");
	tree_set(tree, "proc/self/status", "Name:\tx\nMems_allowed_list:\t0\n");
	tree_set(tree, "sys/kernel/mm/transparent_hugepage/enabled",
		"always [madvise] never\n");
	tree_set(tree, "sys/bus/pci/devices/0000:00:06.0/vendor", "0x10de\n");
	tree_set(tree, "sys/bus/pci/devices/0000:00:06.0/class", "0x030200\n");
	tree_append(tree, "sys/bus/pci/drivers/nvidia/", "", 0);
	tree_link(
		tree, "sys/bus/pci/devices/0000:00:06.0/driver", "../../drivers/nvidia");
	tree_set(tree, "usr/lib64/libcuda.so.580.159.04", "");
	tree_link(tree, "usr/lib64/libcuda.so.1", "libcuda.so.580.159.04");
}

#endif
