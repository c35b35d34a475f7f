/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which node a PCI device, as a GPU, hangs on. Firmware often does not say (-1), virtual
 * machines hardly ever do; then the device's local CPUs can still tell, when they are not
 * simply all CPUs.
 */
#include "numa/topology.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `least` to `most` hexadecimal digits. */
static int parse_hex(const char **at, int least, int most, unsigned int *ret_number)
{
	const char *p = *at;
	unsigned int n = 0;
	int digits = 0;

	for (; digits < most; digits++, p++) {
		if (*p >= '0' && *p <= '9')
			n = n << 4 | (unsigned int)(*p - '0');
		else if ((*p | 32) >= 'a' && (*p | 32) <= 'f')
			n = n << 4 | (unsigned int)((*p | 32) - 'a' + 10);
		else
			break;
	}
	if (digits < least)
		return -EINVAL;
	*at = p;
	*ret_number = n;
	return 0;
}

int glk_pci_parse(const char *text, char *ret_id, size_t size)
{
	unsigned int domain = 0, bus, slot, function;
	const char *at = text;
	int n;

	if (strchr(text, ':') != strrchr(text, ':') &&
		(parse_hex(&at, 4, 8, &domain) || *at++ != ':'))
		return -EINVAL;
	if (parse_hex(&at, 2, 2, &bus) || *at++ != ':' || parse_hex(&at, 2, 2, &slot) ||
		*at++ != '.' || parse_hex(&at, 1, 1, &function) || *at)
		return -EINVAL;
	if (slot > 31 || function > 7)
		return -EINVAL;
	n = snprintf(ret_id, size, "%04x:%02x:%02x.%x", domain, bus, slot, function);
	return n < 0 || (size_t)n >= size ? -EINVAL : 0;
}

int glk_pci_read(const struct glk_sysroot *root, const char *id, struct glk_pci *ret_pci)
{
	struct glk_pci pci = {.node = GLK_NUMA_UNKNOWN};
	char path[96];
	int64_t node;
	int err;

	err = glk_pci_parse(id, pci.id, sizeof(pci.id));
	if (err)
		return err;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", pci.id);
	if (!glk_sysfs_exists(root, path))
		return -ENOENT;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci.id);
	if (!glk_sysfs_number(root, path, &node) && node >= 0 && node < GLK_NUMA_NODES)
		pci.node = (int)node;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/local_cpulist", pci.id);
	pci.cpus_valid = !glk_sysfs_list(root, path, GLK_NUMA_SET_MAX, &pci.cpus);
	*ret_pci = pci;
	return 0;
}

int glk_pci_port(
	const struct glk_sysroot *root, const char *id, char *ret_port, size_t size)
{
	char own[GLK_PCI_MAX], path[96], end[GLK_SYSFS_PATH_MAX], *at;
	int err;

	err = glk_pci_parse(id, own, sizeof(own));
	if (err)
		return err;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", own);
	if (glk_sysfs_resolve(root, path, end, sizeof(end)))
		return -ENOENT;
	/* behind the bridge of the host, which has a name of its own: pci0000:3a */
	at = strstr(end, "/pci");
	at = at ? strchr(at + 1, '/') : NULL;
	if (!at)
		return -ENOENT;
	at[1 + strcspn(at + 1, "/")] = '\0';
	return glk_pci_parse(at + 1, ret_port, size) ? -ENOENT : 0;
}

/* a is not empty, lies in b, and leaves room in all. */
static bool inside(const struct glk_numa_set *a, const struct glk_numa_set *b)
{
	for (size_t i = 0; i < GLK_NUMA_SET_MAX / 64; i++)
		if (a->word[i] & ~b->word[i])
			return false;
	return glk_numa_set_next(a, 0) >= 0;
}

int glk_topology_of_pci(const struct glk_topology *topology, const struct glk_pci *pci)
{
	const struct glk_numa_node *node, *found = NULL;
	size_t with_cpus = 0;

	if (glk_topology_find(topology, pci->node))
		return pci->node;
	if (!pci->cpus_valid)
		return GLK_NUMA_UNKNOWN;
	for (size_t i = 0; (node = glk_topology_at(topology, i)); i++) {
		if (!node->cpus_valid || glk_numa_set_next(&node->cpus, 0) < 0)
			continue;
		with_cpus++;
		if (inside(&pci->cpus, &node->cpus))
			found = node;
	}
	/* With one node that has CPUs, local CPUs tell nothing: all devices have the same. */
	return found && with_cpus > 1 ? found->id : GLK_NUMA_UNKNOWN;
}
