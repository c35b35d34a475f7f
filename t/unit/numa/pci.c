/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bus ids in all spellings, and the node of a device where firmware tells and where not. */
#include "unit/numa/tree.h"

#include "numa/topology.h"

static void spelled(const char *text, const char *want)
{
	char id[GLK_PCI_MAX] = "kept";

	is_int(glk_pci_parse(text, id, sizeof(id)), want ? 0 : -EINVAL, text);
	is_str(id, want ? want : "kept", "as sysfs spells it");
}

static int node_of(struct tree *tree, const char *id)
{
	struct glk_topology *topology;
	struct glk_pci pci;
	int node, err;

	err = glk_pci_read(&tree->root, id, &pci);
	if (err)
		return err;
	if (glk_topology_new(&tree->root, &topology))
		tap_bail("no topology");
	node = glk_topology_of_pci(topology, &pci);
	glk_topology_free(topology);
	return node;
}

/* A device at the end of a path through the tree of devices. */
static void hang(struct tree *tree, const char *id, const char *behind)
{
	char path[128], target[128];

	snprintf(path, sizeof(path), "sys/devices/%s/%s/numa_node", behind, id);
	tree_set(tree, path, "0\n");
	snprintf(path, sizeof(path), "sys/bus/pci/devices/%s", id);
	snprintf(target, sizeof(target), "../../../devices/%s/%s", behind, id);
	tree_link(tree, path, target);
}

static void port_is(struct tree *tree, const char *id, const char *want, const char *what)
{
	char port[GLK_PCI_MAX] = "none";

	glk_pci_port(&tree->root, id, port, sizeof(port));
	is_str(port, want, what);
}

/* Behind two switches of one port; behind another; at the bridge itself. */
static void ports(void)
{
	struct tree tree;
	char port[GLK_PCI_MAX];

	tree_init(&tree);
	hang(&tree, "0000:3d:00.0", "pci0000:3a/0000:3a:01.0/0000:3b:00.0/0000:3c:00.0");
	hang(&tree, "0000:3e:00.0", "pci0000:3a/0000:3a:01.0/0000:3b:00.0/0000:3c:01.0");
	hang(&tree, "0000:41:00.0", "pci0000:3a/0000:3a:02.0");
	hang(&tree, "0000:00:06.0", "pci0000:00");
	hang(&tree, "0000:77:00.0", "elsewhere");
	port_is(&tree, "0000:3D:00.0", "0000:3a:01.0", "the port behind two switches");
	port_is(&tree, "0000:3e:00.0", "0000:3a:01.0", "is that of its neighbour");
	port_is(&tree, "0000:41:00.0", "0000:3a:02.0", "another one");
	port_is(&tree, "0000:00:06.0", "0000:00:06.0", "itself, where there is none");
	port_is(&tree, "0000:77:00.0", "none", "not on a bus");
	is_int(glk_pci_port(&tree.root, "0000:01:00.0", port, sizeof(port)), -ENOENT,
		"no such device");
	is_int(glk_pci_port(&tree.root, "nonsense", port, sizeof(port)), -EINVAL,
		"no bus id");
	tree_close(&tree);
}

int main(void)
{
	struct tree tree;
	char tiny[8];

	tap_plan_later();
	spelled("0000:3b:00.0", "0000:3b:00.0");
	spelled("0000:3B:00.0", "0000:3b:00.0");
	spelled("00000000:AF:1F.7", "0000:af:1f.7");
	spelled("00010000:01:00.0", "10000:01:00.0");
	spelled("3b:00.0", "0000:3b:00.0");
	spelled("", NULL);
	spelled("0000:3b:00", NULL);
	spelled("0000:3b:00.8", NULL);
	spelled("0000:3b:20.0", NULL);
	spelled("0000:3b:00.0 ", NULL);
	spelled("000:3b:00.0", NULL);
	spelled("000000000:3b:00.0", NULL);
	spelled("0000:3g:00.0", NULL);
	spelled("0000:../../..", NULL);
	is_int(glk_pci_parse("0000:3b:00.0", tiny, sizeof(tiny)), -EINVAL, "no room");

	ports();
	tree_open(&tree, "two");
	is_int(node_of(&tree, "0000:3B:00.0"), 0, "firmware says node 0");
	is_int(node_of(&tree, "0000:af:00.0"), 1, "firmware says node 1");
	is_int(node_of(&tree, "0000:d8:00.0"), 1, "only its CPUs say node 1");
	is_int(node_of(&tree, "0001:01:00.0"), GLK_NUMA_UNKNOWN, "nothing says anything");
	is_int(node_of(&tree, "0000:00:00.0"), -ENOENT, "no such device");
	is_int(node_of(&tree, "/etc"), -EINVAL, "no bus id");
	tree_set(&tree, "sys/bus/pci/devices/0000:3b:00.0/numa_node", "7\n");
	is_int(node_of(&tree, "0000:3b:00.0"), 0,
		"a node that is not there: its CPUs tell");
	tree_set(&tree, "sys/bus/pci/devices/0000:3b:00.0/local_cpulist", "x");
	is_int(node_of(&tree, "0000:3b:00.0"), GLK_NUMA_UNKNOWN,
		"and when they are garbage");
	tree_set(&tree, "sys/bus/pci/devices/0000:3b:00.0/local_cpulist", "");
	is_int(node_of(&tree, "0000:3b:00.0"), GLK_NUMA_UNKNOWN, "or empty: unknown");
	tree_set(&tree, "sys/bus/pci/devices/0000:af:00.0/numa_node", "1024\n");
	tree_remove(&tree, "sys/bus/pci/devices/0000:af:00.0/local_cpulist");
	is_int(node_of(&tree, "0000:af:00.0"), GLK_NUMA_UNKNOWN,
		"a number no node can have");
	tree_close(&tree);

	tree_open(&tree, "one-no-numa");
	is_int(node_of(&tree, "0000:00:05.0"), GLK_NUMA_UNKNOWN,
		"one node: CPUs tell nothing");
	tree_close(&tree);
	tree_open(&tree, "h200");
	is_int(node_of(&tree, "0000:00:06.0"), GLK_NUMA_UNKNOWN, "nor in a guest");
	tree_close(&tree);
	tree_open(&tree, "sparse");
	is_int(node_of(&tree, "0019:01:00.0"), 2, "sparse numbers");
	tree_close(&tree);
	return tap_done();
}
