/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Versions and flavours out of the texts drivers were seen to write, and out of nonsense. */
#include "unit/numa/tree.h"

#include "uvm_bridge/driver.h"

#define PROC "proc/driver/nvidia/version"

static void line(
	struct tree *tree, const char *text, const char *version, const char *flavour)
{
	char got[GLK_UVM_VERSION_MAX] = "kept";

	tree_set(tree, PROC, text);
	ok(!glk_uvm_version_procfs(&tree->root, got) == !!version, "%.*s",
		(int)strcspn(text, "\n"), *text ? text : "nothing");
	is_str(got, version ? version : "kept", "version");
	is_str(glk_uvm_flavour(&tree->root, ""), flavour, "flavour");
}

static void checks(const char *text, bool good)
{
	ok(!glk_uvm_version_check(text) == good, "%.*s", (int)strcspn(text, "\n"),
		*text ? text : "nothing");
}

int main(void)
{
	char version[GLK_UVM_VERSION_MAX], huge[2048];
	struct tree tree;

	tap_plan_later();
	checks("580.159.04", true);
	checks("1.2", true);
	checks("", false);
	checks("580", false);
	checks("580.", false);
	checks(".580", false);
	checks("580..1", false);
	checks("580.x", false);
	checks("-580.1", false);
	checks("580.1\n", false);
	checks("1.11111111111111111111111111111111111111111111111", false);
	checks("1.1111111111111111111111111111111111111111111111", false);
	checks("1.111111111111111111111111111111111111111111111", true);

	tree_init(&tree);
	tree_set(&tree, "sys/module/nvidia/version", "580.159.04\n");
	is_int(glk_uvm_version_sysfs(&tree.root, "nvidia", version), 0,
		"version in sysfs");
	is_str(version, "580.159.04", "as it stands");
	is_int(glk_uvm_version_sysfs(&tree.root, "nvidia_uvm", version), -ENOENT, "none");
	tree_set(&tree, "sys/module/nvidia/version", "\n");
	is_int(glk_uvm_version_sysfs(&tree.root, "nvidia", version), -EBADMSG, "empty");

	line(&tree,
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release "
		"Build  (dvs)\nGCC version:  gcc version 12.3.0\n",
		"580.159.04", "open");
	line(&tree,
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n"
		"GCC version: 12.2.0\n",
		"550.54.15", "proprietary");
	line(&tree, "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  575.57.08",
		"575.57.08", "open");
	line(&tree, "NVRM version: NVIDIA UNIX x86_64 Kernel Module\n", NULL,
		"proprietary");
	line(&tree, "GCC version:  gcc version 12.3.0\n", NULL, "");
	line(&tree, "", NULL, "");
	memset(huge, 'x', sizeof(huge));
	huge[sizeof(huge) - 1] = 0;
	line(&tree, huge, NULL, "");

	tree_set(&tree, "sys/module/nvidia/taint", "POE\n");
	is_str(glk_uvm_flavour(&tree.root, "Dual MIT/GPL"), "proprietary",
		"taint with P");
	tree_set(&tree, "sys/module/nvidia/taint", "OE\n");
	is_str(glk_uvm_flavour(&tree.root, "NVIDIA"), "open", "taint without P");
	tree_set(&tree, "sys/module/nvidia/taint", "12 garbage\n");
	is_str(glk_uvm_flavour(&tree.root, "NVIDIA"), "proprietary", "licence");
	is_str(glk_uvm_flavour(&tree.root, "Dual MIT/GPL"), "open", "the other licence");
	is_str(glk_uvm_flavour(&tree.root, "GPL"), "", "a licence of nobody");
	tree_close(&tree);
	return tap_done();
}
