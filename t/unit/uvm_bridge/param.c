/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parameters of the module as text; a missing one is an answer, a path is no name. */
#include "unit/numa/tree.h"

#include "uvm_bridge/uvm.h"

int main(void)
{
	struct tree tree;
	char text[16] = "";

	tap_plan_later();
	tree_open(&tree, "h200");
	is_int(glk_uvm_param(
		       &tree.root, "uvm_global_oversubscription", text, sizeof(text)),
		0, "a number");
	is_str(text, "1", "its text");
	is_int(glk_uvm_param(&tree.root, "uvm_disable_hmm", text, sizeof(text)), 0,
		"a switch");
	is_str(text, "N", "its text");
	is_int(glk_uvm_param(&tree.root, "uvm_page_table_location", text, sizeof(text)),
		0, "a string without value");
	is_str(text, "(null)", "its text");
	is_int(glk_uvm_param(&tree.root, "uvm_page_table_location", text, 4), -EFBIG,
		"no room");
	is_int(glk_uvm_param(
		       &tree.root, "uvm_perf_lapse_vote_threshold", text, sizeof(text)),
		-ENOENT, "one that this driver lacks");
	is_int(glk_uvm_param(&tree.root, "", text, sizeof(text)), -EINVAL, "no name");
	is_int(glk_uvm_param(&tree.root, "../version", text, sizeof(text)), -EINVAL,
		"a path");
	tree_remove(&tree, "sys/module/nvidia_uvm");
	is_int(glk_uvm_param(&tree.root, "uvm_disable_hmm", text, sizeof(text)), -ENOENT,
		"module not loaded");
	tree_close(&tree);
	is_str(glk_uvm_disk_name(GLK_UVM_DISK_NO_TREE), "NO_TREE", "a name");
	is_str(glk_uvm_disk_name((enum glk_uvm_disk)9), "?", "no name");
	return tap_done();
}
