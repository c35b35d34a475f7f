/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which interface a version has, to the last digit; and what a machine lets be used of it. */
#include "unit/numa/tree.h"

#include "uvm_bridge/uvm.h"

static const struct {
	const char *version;
	char generation;
} versions[] = {
	{"515.43.03", 0},
	{"515.43.04", 'A'},
	{"515.105.01", 'A'},
	{"535.43.02", 'A'},
	{"550.40.07", 'A'},
	{"550.40.52", 'A'},
	{"550.40.53", 'B'},
	{"550.54.14", 'B'},
	{"550.163.01", 'B'},
	{"555.58.02", 'B'},
	{"560.28.02", 'B'},
	{"560.28.03", 'C'},
	{"560.35.03", 'C'},
	{"565.57", 'C'},
	{"565.57.00", 'C'},
	{"565.57.01", 'D'},
	{"570.86.10", 'D'},
	{"580.142", 'D'},
	{"580.159.04", 'D'},
	{"595.45.04", 'D'},
	{"610.43.03", 'D'},
	{"390.157", 0},
	{"", 0},
	{"580", 'D'},
	{"580.", 0},
	{".580", 0},
	{"580..1", 0},
	{"580.1.2.3", 0},
	{"580.x", 0},
	{"-580.1", 0},
	{" 580.1", 0},
	{"99999999999999999999999.1", 'D'},
};

static struct glake_uvm_tools tools;

static void look(struct tree *tree, int state, const char *generation, const char *text)
{
	int major;

	glk_uvm_tools_read(&tree->root, &tools, &major);
	is_int(tools.state, state, "state");
	is_str(tools.generation, generation, "generation");
	has_str(tools.text, text, "sentence");
}

int main(void)
{
	struct tree tree;
	int major;

	tap_plan_later();
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		ok(glk_uvm_generation(versions[i].version) == versions[i].generation,
			"'%s' is %c", versions[i].version,
			versions[i].generation ? versions[i].generation : '-');
	tree_open(&tree, "h200");
	look(&tree, GLAKE_UVM_OK, "D", "usable");
	is_str(tools.version, "580.159.04", "version");
	glk_uvm_tools_read(&tree.root, &tools, &major);
	is_int(major, 238, "the number of the module");
	tree_set(&tree, "dev/nvidia-uvm-tools", "c 238 1 --");
	look(&tree, GLAKE_UVM_NO_PERMISSION, "D", "may not");
	tree_set(&tree, "dev/nvidia-uvm-tools", "c 239 1 rw");
	look(&tree, GLAKE_UVM_NO_NODE, "D", "239:1 of another");
	tree_set(&tree, "dev/nvidia-uvm-tools", "c 238 0 rw");
	look(&tree, GLAKE_UVM_NO_NODE, "D", "238:0 of another");
	tree_set(&tree, "dev/nvidia-uvm-tools", "b 238 1 rw");
	look(&tree, GLAKE_UVM_NO_NODE, "D", "no character device");
	tree_remove(&tree, "dev/nvidia-uvm-tools");
	look(&tree, GLAKE_UVM_NO_NODE, "D", "is missing");
	tree_set(&tree, "sys/module/nvidia/version", "510.39.01\n");
	tree_set(&tree, "sys/module/nvidia_uvm/version", "510.39.01\n");
	look(&tree, GLAKE_UVM_UNKNOWN, "", "510.39.01 are not known");
	tree_set(&tree, "sys/module/nvidia_uvm/version", "560.35.03\n");
	look(&tree, GLAKE_UVM_NO_MODULE, "C", "nvidia_uvm: version 560.35.03");
	tree_remove(&tree, "sys/module/nvidia_uvm/version");
	tree_remove(&tree, "sys/module/nvidia/version");
	tree_remove(&tree, "proc/driver/nvidia/version");
	look(&tree, GLAKE_UVM_UNKNOWN, "", "of a version not known");
	tree_remove(&tree, "sys/module/nvidia_uvm");
	tree_set(&tree, "proc/devices", "Character devices:\n  1 mem\n");
	look(&tree, GLAKE_UVM_NO_MODULE, "", "not loaded");
	tree_close(&tree);
	return tap_done();
}
