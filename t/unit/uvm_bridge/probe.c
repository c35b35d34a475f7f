/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every state of a module, each source of each fact, and files with nonsense in them. */
#include "unit/numa/tree.h"

#include "uvm_bridge/uvm.h"

#include <glake/info.h>

#include <time.h>

static void has_state(struct tree *tree, enum glk_uvm_which which, int state,
	const char *part, const char *what)
{
	struct glk_uvm_module module;

	glk_uvm_probe(&tree->root, which, &module);
	is_int(module.state, state, what);
	has_str(module.text, part, "its sentence");
	ok(strlen(module.text) < sizeof(module.text) - 1, "is whole");
}

static void all_well(struct tree *tree)
{
	struct glk_uvm_module module;

	glk_uvm_probe(&tree->root, GLK_UVM_UVM, &module);
	is_int(module.state, GLAKE_MODULE_OK, "nvidia_uvm in order");
	is_str(module.name, "nvidia_uvm", "its name");
	is_str(module.version, "580.159.04", "version");
	is_str(module.flavour, "open", "flavour");
	is_int(module.major, 238, "major number");
	is_int(module.disk, GLK_UVM_DISK_NO_TREE, "no modules on disk");
	ok(!*module.disk_version && !module.reboot_pending, "so no other version");
	glk_uvm_probe(&tree->root, GLK_UVM_NVIDIA, &module);
	is_int(module.state, GLAKE_MODULE_OK, "nvidia in order");
	is_int(module.major, 195, "its major number");
	is_str(module.version, "580.159.04", "its version");
}

static void nodes(struct tree *tree)
{
	tree_set(tree, "dev/nvidia-uvm", "c 235 0 rw");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_STALE_NODE, "major number 235",
		"wrong major");
	tree_set(tree, "dev/nvidia-uvm", "c 238 1 rw");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_STALE_NODE, "minor number 1",
		"wrong minor");
	tree_set(tree, "dev/nvidia-uvm", "b 238 0 rw");
	has_state(
		tree, GLK_UVM_UVM, GLAKE_MODULE_STALE_NODE, "no character", "no device");
	tree_set(tree, "dev/nvidia-uvm", "c 238 0 --");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_NO_PERMISSION, "may not", "not for us");
	tree_remove(tree, "dev/nvidia-uvm");
	has_state(
		tree, GLK_UVM_UVM, GLAKE_MODULE_NO_NODE, "nvidia-modprobe -u", "no node");
	has_state(tree, GLK_UVM_NVIDIA, GLAKE_MODULE_OK, "loaded", "nvidia has its own");
	tree_remove(tree, "dev");
	has_state(
		tree, GLK_UVM_NVIDIA, GLAKE_MODULE_NO_NODE, "/dev/nvidiactl", "no /dev");
	/* Without a list of major numbers only the minor number can be compared. */
	tree_set(tree, "dev/nvidia-uvm", "c 235 0 rw");
	tree_remove(tree, "proc/devices");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_OK, "loaded", "major not known");
}

static void presence(struct tree *tree)
{
	struct glk_uvm_module module;

	tree_set(tree, "sys/module/nvidia_uvm/initstate", "coming\n");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_ABSENT, "being loaded", "coming");
	tree_set(tree, "sys/module/nvidia_uvm/initstate", "going\n");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_ABSENT, "being unloaded", "going");
	tree_set(tree, "sys/module/nvidia_uvm/initstate", "???\n");
	has_state(
		tree, GLK_UVM_UVM, GLAKE_MODULE_OK, "loaded", "garbage: the major tells");
	tree_set(tree, "proc/devices", "Character devices:\n195 nvidia\n");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_ABSENT, "not loaded",
		"and its absence too");
	tree_remove(tree, "proc/devices");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_UNKNOWN, "neither", "nothing to tell");
	tree_remove(tree, "sys/module/nvidia_uvm");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_ABSENT, "not loaded",
		"sysfs tells alone");
	glk_uvm_probe(&tree->root, GLK_UVM_UVM, &module);
	is_str(module.version, "", "what is not loaded has no version");
}

/* As in a sandbox that shows procfs alone. */
static void no_sysfs(struct tree *tree)
{
	struct glk_uvm_module module;

	tree_remove(tree, "sys");
	glk_uvm_probe(&tree->root, GLK_UVM_UVM, &module);
	is_int(module.state, GLAKE_MODULE_OK, "procfs alone is enough");
	is_str(module.version, "580.159.04", "version from there");
	is_str(module.flavour, "open", "flavour from there");
	tree_set(tree, "proc/devices", "Block devices:\n238 nvidia-uvm\n");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_ABSENT, "not loaded",
		"a block device's major");
	tree_set(tree, "proc/devices",
		"Character devices:\nx nvidia-uvm\n-3 nvidia-uvm\n"
		"238 nvidia-uvm extra\n238 nvidia-uvm-tools\n");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_ABSENT, "not loaded",
		"lines that are none");
	tree_set(tree, "proc/devices", "Character devices:\n238 nvidia-uvm");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_OK, "loaded", "no newline at the end");
	tree_remove(tree, "proc");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_UNKNOWN, "neither", "no procfs either");
	has_state(
		tree, GLK_UVM_NVIDIA, GLAKE_MODULE_UNKNOWN, "neither", "for nvidia too");
}

static void huge_devices(struct tree *tree)
{
	tree_remove(tree, "sys");
	for (int i = 0; i < 2000; i++)
		tree_append(tree, "proc/devices", "300 something\n", 14);
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_UNKNOWN, "neither",
		"a huge list is no list");
}

static void versions(struct tree *tree)
{
	struct glk_uvm_module module;

	tree_set(tree, "sys/module/nvidia_uvm/version", "575.57.08\n");
	has_state(
		tree, GLK_UVM_UVM, GLAKE_MODULE_MISMATCH, "575.57.08", "versions differ");
	has_state(
		tree, GLK_UVM_UVM, GLAKE_MODULE_MISMATCH, "580.159.04", "both are named");
	has_state(
		tree, GLK_UVM_NVIDIA, GLAKE_MODULE_OK, "loaded", "nvidia works without");
	tree_set(tree, "sys/module/nvidia_uvm/version", "garbage\n");
	glk_uvm_probe(&tree->root, GLK_UVM_UVM, &module);
	is_int(module.state, GLAKE_MODULE_OK, "garbage is no mismatch");
	is_str(module.version, "580.159.04", "nvidia's version stands in");
	tree_remove(tree, "sys/module/nvidia/version");
	tree_remove(tree, "proc/driver");
	glk_uvm_probe(&tree->root, GLK_UVM_UVM, &module);
	is_int(module.state, GLAKE_MODULE_OK, "no version at all is no fault");
	is_str(module.version, "", "and not known");
	is_str(module.flavour, "open", "the flavour comes from the taint");
	/* A mismatch weighs more than a missing node. */
	tree_set(tree, "sys/module/nvidia_uvm/version", "575.57.08\n");
	tree_set(tree, "sys/module/nvidia/version", "580.159.04\n");
	tree_remove(tree, "dev");
	has_state(tree, GLK_UVM_UVM, GLAKE_MODULE_MISMATCH, "reload",
		"mismatch before node");
}

static void holders(struct tree *tree)
{
	is_int(glk_uvm_holders(&tree->root), 0, "no holders");
	tree_set(tree, "sys/module/nvidia_peermem/initstate", "live\n");
	tree_set(tree, "sys/module/gdrdrv/initstate", "live\n");
	tree_set(tree, "sys/module/nvidia_fs/initstate", "going\n");
	is_int(glk_uvm_holders(&tree->root), GLK_UVM_PEERMEM | GLK_UVM_GDRDRV,
		"two, one going");
	tree_remove(tree, "sys");
	is_int(glk_uvm_holders(&tree->root), 0, "no sysfs: none is known");
}

static void on_this_machine(void)
{
	for (int which = 0; which < GLK_UVM_COUNT; which++) {
		struct glk_uvm_module module;

		glk_uvm_probe(NULL, (enum glk_uvm_which)which, &module);
		tap_note("%s: %s, version '%s', %s, disk %s", module.name, module.text,
			module.version,
			*module.flavour ? module.flavour : "flavour unknown",
			glk_uvm_disk_name(module.disk));
		ok(*module.text, "a sentence for the real %s", module.name);
		is_int(module.state == GLAKE_MODULE_ABSENT ||
				module.state == GLAKE_MODULE_UNKNOWN,
			!*module.version, "a version if and only if it is loaded");
	}
}

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* How long it takes to tell both modules; figures, no checks. */
static void speed(const struct glk_sysroot *root, const char *where)
{
	struct glk_uvm_module module;
	double first = 0, best = 0, start, took;

	for (int round = 0; round < 20; round++) {
		start = now_ms();
		for (int which = 0; which < GLK_UVM_COUNT; which++)
			glk_uvm_probe(root, (enum glk_uvm_which)which, &module);
		took = now_ms() - start;
		first = round ? first : took;
		best = round && best < took ? best : took;
	}
	tap_note("presence of both modules, %s: %.3f ms at first, %.3f ms at best of 20",
		where, first, best);
}

int main(void)
{
	static void (*const bodies[])(struct tree *) = {
		all_well, nodes, presence, no_sysfs, huge_devices, versions, holders};
	struct tree tree;

	tap_plan_later();
	speed(NULL, "this machine, libkmod being loaded");
	tree_open(&tree, "h200");
	speed(&tree.root, "as on an H200");
	tree_close(&tree);
	for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
		tree_open(&tree, "h200");
		bodies[i](&tree);
		tree_close(&tree);
	}
	on_this_machine();
	return tap_done();
}
