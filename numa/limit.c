/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Limits on what a process may have of the host. They are read as text, those of the process too,
 * so that tests can put any machine in their place.
 */
#include "numa/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUGE_PAGES "/sys/kernel/mm/hugepages"
#define THP	   "/sys/kernel/mm/transparent_hugepage/enabled"

static int64_t number(const struct glk_sysroot *root, const char *path)
{
	int64_t value;

	return glk_sysfs_number(root, path, &value) || value < 0 ? GLK_LIMIT_UNKNOWN
								 : value;
}

/* A word of a line of /proc/self/limits; moves *at behind it. */
static int64_t take(const char **at)
{
	uint64_t value;
	char *end;

	*at += strspn(*at, " ");
	if (!strncmp(*at, "unlimited", strlen("unlimited"))) {
		*at += strlen("unlimited");
		return GLK_LIMIT_NONE;
	}
	value = strtoull(*at, &end, 10);
	if (end == *at || **at == '-')
		return GLK_LIMIT_UNKNOWN;
	*at = end;
	return value > INT64_MAX ? GLK_LIMIT_NONE : (int64_t)value;
}

/* "Max open files            1024                 524288               files" */
static void find(const char *text, const char *name, int64_t *ret_soft, int64_t *ret_hard)
{
	const char *at = strstr(text, name);

	*ret_soft = *ret_hard = GLK_LIMIT_UNKNOWN;
	if (!at || (at != text && at[-1] != '\n'))
		return;
	at += strlen(name);
	*ret_soft = take(&at);
	*ret_hard = take(&at);
}

static void read_process(const struct glk_sysroot *root, struct glk_limits *limits)
{
	char text[GLK_SYSFS_TEXT_MAX];
	int64_t hard;

	if (glk_sysfs_text(root, "/proc/self/limits", text, sizeof(text)))
		*text = 0;
	find(text, "Max locked memory", &limits->locked, &limits->locked_hard);
	find(text, "Max open files", &limits->files, &limits->files_hard);
	find(text, "Max address space", &limits->addresses, &hard);
}

/* "always [madvise] never" */
static void read_transparent(const struct glk_sysroot *root, struct glk_limits *limits)
{
	char text[64], *word, *end;

	if (glk_sysfs_text(root, THP, text, sizeof(text)))
		return;
	word = strchr(text, '[');
	end = word ? strchr(word, ']') : NULL;
	if (!end)
		return;
	*end = 0;
	snprintf(limits->transparent, sizeof(limits->transparent), "%s", word + 1);
}

struct huge {
	const struct glk_sysroot *root;
	struct glk_limits *limits;
};

/* "hugepages-2048kB": both figures or none. */
static int add_size(const char *name, void *arg)
{
	const struct huge *huge = arg;
	int64_t kib, all, unused, size;
	char path[128];
	int end = 0;

	if (strlen(name) > 40 ||
		sscanf(name, "hugepages-%" SCNd64 "kB%n", &kib, &end) != 1 || !end ||
		name[end] || kib <= 0)
		return 0;
	snprintf(path, sizeof(path), HUGE_PAGES "/%s/nr_hugepages", name);
	all = number(huge->root, path);
	snprintf(path, sizeof(path), HUGE_PAGES "/%s/free_hugepages", name);
	unused = number(huge->root, path);
	if (all < 0 || unused < 0 || __builtin_mul_overflow(kib, 1024, &size) ||
		__builtin_mul_overflow(all, size, &all) ||
		__builtin_mul_overflow(unused, size, &unused) ||
		__builtin_add_overflow(huge->limits->huge, all, &all) ||
		__builtin_add_overflow(huge->limits->huge_free, unused, &unused))
		return 0;
	huge->limits->huge = all;
	huge->limits->huge_free = unused;
	return 0;
}

static void read_huge(const struct glk_sysroot *root, struct glk_limits *limits)
{
	struct huge huge = {root, limits};

	if (!glk_sysfs_each(root, HUGE_PAGES, add_size, &huge))
		return;
	limits->huge = limits->huge_free = GLK_LIMIT_UNKNOWN;
}

static void read_nodes(const struct glk_sysroot *root, struct glk_limits *limits)
{
	static const char key[] = "\nMems_allowed_list:";
	char text[GLK_SYSFS_TEXT_MAX];
	struct glk_numa_set nodes;
	char *line;

	if (glk_sysfs_text(root, "/proc/self/status", text, sizeof(text)))
		return;
	line = strstr(text, key);
	if (!line)
		return;
	line += strlen(key);
	line += strspn(line, " \t");
	line[strcspn(line, "\n")] = 0;
	if (!glk_numa_set_parse(line, GLK_NUMA_NODES, &nodes))
		glk_numa_set_format(&nodes, limits->nodes, sizeof(limits->nodes));
}

void glk_limits_read(const struct glk_sysroot *root, struct glk_limits *ret_limits)
{
	struct glk_limits limits = {0};

	limits.maps = number(root, "/proc/sys/vm/max_map_count");
	limits.overcommit = number(root, "/proc/sys/vm/overcommit_memory");
	read_process(root, &limits);
	read_transparent(root, &limits);
	read_huge(root, &limits);
	read_nodes(root, &limits);
	*ret_limits = limits;
}
