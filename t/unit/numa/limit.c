/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Limits as the files have them, none of the files, and nonsense in each. */
#include "unit/numa/tree.h"

#include "numa/topology.h"

#include <sys/resource.h>

#define HEAD                                                                             \
	"Limit                     Soft Limit           Hard Limit           Units     \n"

static struct tree tree;

static struct glk_limits limits(void)
{
	struct glk_limits found;

	memset(&found, 0x5a, sizeof(found));
	glk_limits_read(&tree.root, &found);
	return found;
}

static void nothing(void)
{
	struct glk_limits found = limits();

	is_int(found.maps, GLK_LIMIT_UNKNOWN, "no procfs: maps");
	is_int(found.overcommit, GLK_LIMIT_UNKNOWN, "overcommit");
	is_int(found.locked, GLK_LIMIT_UNKNOWN, "locked memory");
	is_int(found.files_hard, GLK_LIMIT_UNKNOWN, "files");
	is_int(found.addresses, GLK_LIMIT_UNKNOWN, "addresses");
	is_int(found.huge, GLK_LIMIT_UNKNOWN, "huge pages");
	is_str(found.transparent, "", "transparent ones");
	is_str(found.nodes, "", "nodes");
}

static void process(void)
{
	struct glk_limits found;

	tree_set(&tree, "proc/self/limits",
		HEAD
		"Max resident set          7                    7                    bytes\n"
		"Max open files            1024                 524288               files\n"
		"Max locked memory         8388608              unlimited            bytes\n"
		"Max address space         unlimited            unlimited            bytes\n");
	found = limits();
	is_int(found.files, 1024, "a limit");
	is_int(found.files_hard, 524288, "and how far it can be raised");
	is_int(found.locked, 8388608, "bytes");
	is_int(found.locked_hard, GLK_LIMIT_NONE, "no limit");
	is_int(found.addresses, GLK_LIMIT_NONE, "none of addresses");
	tree_set(&tree, "proc/self/limits",
		HEAD
		"Max open files            -3                   files\n"
		"   Max locked memory      5                    5                    bytes\n"
		"Max address space         18446744073709551615 1                    bytes\n");
	found = limits();
	is_int(found.files, GLK_LIMIT_UNKNOWN, "no number");
	is_int(found.locked, GLK_LIMIT_UNKNOWN, "no line of its own");
	is_int(found.addresses, GLK_LIMIT_NONE, "more than can be told");
	tree_set(&tree, "proc/self/limits", "");
	is_int(limits().files, GLK_LIMIT_UNKNOWN, "an empty file");
}

static void kernel(void)
{
	struct glk_limits found;

	tree_set(&tree, "proc/sys/vm/max_map_count", "65530\n");
	tree_set(&tree, "proc/sys/vm/overcommit_memory", "2\n");
	tree_set(&tree, "proc/self/status",
		"Name:\tx\nMems_allowed_list:\t0-1,8\nNext:\t1\n");
	tree_set(&tree, "sys/kernel/mm/transparent_hugepage/enabled",
		"always [madvise] never\n");
	found = limits();
	is_int(found.maps, 65530, "maps");
	is_int(found.overcommit, 2, "overcommit");
	is_str(found.nodes, "0-1,8", "nodes");
	is_str(found.transparent, "madvise", "the one in brackets");
	tree_set(&tree, "proc/sys/vm/max_map_count", "many\n");
	tree_set(&tree, "sys/kernel/mm/transparent_hugepage/enabled", "always\n");
	found = limits();
	is_int(found.maps, GLK_LIMIT_UNKNOWN, "no number");
	is_str(found.transparent, "", "none in brackets");
	tree_set(&tree, "proc/self/status", "Name:\tx\nMems_allowed_list:\t1-0\n");
	tree_set(&tree, "sys/kernel/mm/transparent_hugepage/enabled", "[always\n");
	found = limits();
	is_str(found.nodes, "", "no list");
	is_str(found.transparent, "", "half a bracket");
}

static void huge(void)
{
	struct glk_limits found;

	tree_set(&tree, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
	tree_set(
		&tree, "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "12\n");
	tree_set(
		&tree, "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "2\n");
	tree_set(&tree, "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages",
		"0\n");
	tree_set(&tree, "sys/kernel/mm/hugepages/hugepages-xkB/nr_hugepages", "9\n");
	tree_set(&tree, "sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages", "9\n");
	found = limits();
	is_int(found.huge, INT64_C(3) << 30, "of all sizes, and of no half of a figure");
	is_int(found.huge_free, INT64_C(24) << 20, "those not in use");
	tree_set(&tree, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
		"9223372036854775807\n");
	is_int(limits().huge, INT64_C(2) << 30, "a figure that cannot be is left out");
}

int main(void)
{
	struct glk_limits found;
	struct rlimit locked;

	tap_plan_later();
	tree_init(&tree);
	nothing();
	process();
	kernel();
	huge();
	tree_close(&tree);
	glk_limits_read(NULL, &found);
	getrlimit(RLIMIT_MEMLOCK, &locked); /* valgrind has its own idea of files */
	ok(found.locked == GLK_LIMIT_UNKNOWN || found.locked == GLK_LIMIT_NONE ||
			found.locked == (int64_t)locked.rlim_cur,
		"this machine's procfs says what the system call does");
	tap_note("this machine: %lld maps, %lld files, huge pages %s, nodes %s",
		(long long)found.maps, (long long)found.files, found.transparent,
		found.nodes);
	return tap_done();
}
