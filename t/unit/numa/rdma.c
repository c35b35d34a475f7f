/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Network cards that reach memory by themselves: with one, with a folder for them, with nothing. */
#include "unit/numa/tree.h"

#include "numa/topology.h"

int main(void)
{
	struct tree tree;

	tap_plan(3);
	tree_init(&tree);
	ok(!glk_rdma_present(&tree.root), "no such class of devices");
	tree_set(&tree, "sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
	ok(glk_rdma_present(&tree.root), "one");
	tree_remove(&tree, "sys/class/infiniband/mlx5_0");
	ok(!glk_rdma_present(&tree.root), "it was taken out, and the class is empty");
	tree_close(&tree);
	return tap_done();
}
