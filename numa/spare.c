/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How much more memory of the host the process may take: what the machine has left, and what the
 * control groups do that the process is in, of either version, each of them and all above it. Page
 * cache that nobody has used of late can be had, and counts as left.
 */
#include "numa/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a hierarchy of groups is, and the names of its files. */
struct hierarchy {
	const char *root, *limit, *usage, *cache;
};

static const struct hierarchy unified = {
	"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
static const struct hierarchy legacy = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
	"memory.usage_in_bytes", "total_inactive_file"};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool read_file(const struct glk_sysroot *root, const char *folder,
	const char *name, char *text, size_t size)
{
	char path[GLK_SYSFS_PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", folder, name);

	return n > 0 && (size_t)n < sizeof(path) &&
		!glk_sysfs_text(root, path, text, size);
}

static bool number(const char *text, uint64_t *ret)
{
	char *end;

	*ret = strtoull(text, &end, 10);
	return end != text && !*end;
}

/* What the groups leave, and the least of their limits. */
struct room {
	uint64_t spare, limit;
};

/* One group; nothing changes where it has no limit, or is not there. */
static void look_in(const struct glk_sysroot *root, const struct hierarchy *h,
	const char *folder, char *text, struct room *room)
{
	uint64_t limit, usage = 0, cache = 0;

	/* "max" is no number */
	if (!read_file(root, folder, h->limit, text, GLK_SYSFS_TEXT_MAX) ||
		!number(text, &limit))
		return;
	room->limit = least(room->limit, limit);
	if (!read_file(root, folder, h->usage, text, GLK_SYSFS_TEXT_MAX) ||
		!number(text, &usage))
		usage = 0;
	else if (read_file(root, folder, "memory.stat", text, GLK_SYSFS_TEXT_MAX))
		glk_sysfs_field(text, h->cache, &cache);
	usage -= least(usage, cache);
	room->spare = least(room->spare, limit > usage ? limit - usage : 0);
}

/* A group and all above it. In a container the path may be one of the host's, of which nothing is
 * there but the top. */
static void look_above(const struct glk_sysroot *root, const struct hierarchy *h,
	const char *group, char *text, struct room *room)
{
	size_t top = strlen(h->root);
	char folder[GLK_SYSFS_PATH_MAX];
	char *slash;

	if (snprintf(folder, sizeof(folder), "%s%s", h->root, group) >=
		(int)sizeof(folder))
		return;
	for (;;) {
		look_in(root, h, folder, text, room);
		slash = strrchr(folder, '/');
		if (strlen(folder) <= top || !slash)
			return;
		*slash = 0;
		if (strlen(folder) < top)
			return;
	}
}

/* A line of /proc/self/cgroup, as "0::/user.slice" or "4:cpu,memory:/job". */
static void look_at_line(
	const struct glk_sysroot *root, char *line, char *text, struct room *room)
{
	char *controllers = strchr(line, ':'), *group, *at;

	group = controllers ? strchr(++controllers, ':') : NULL;
	if (!group)
		return;
	*group++ = 0;
	if (!*controllers) {
		look_above(root, &unified, group, text, room);
		return;
	}
	while ((at = strsep(&controllers, ","))) {
		if (strcmp(at, "memory"))
			continue;
		look_above(root, &legacy, group, text, room);
		return;
	}
}

/* To others. */
#define LEFT (UINT64_C(256) << 20)

static struct room look(const struct glk_sysroot *root)
{
	struct room room = {.spare = UINT64_MAX, .limit = UINT64_MAX};
	char groups[4096], text[GLK_SYSFS_TEXT_MAX];
	char *next;

	if (glk_sysfs_text(root, "/proc/self/cgroup", groups, sizeof(groups)))
		return room;
	for (char *line = groups; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		look_at_line(root, line, text, &room);
	}
	return room;
}

uint64_t glk_numa_spare(const struct glk_sysroot *root)
{
	uint64_t spare = look(root).spare, kib;
	char text[GLK_SYSFS_TEXT_MAX];

	if (glk_sysfs_text(root, "/proc/meminfo", text, sizeof(text)) ||
		glk_sysfs_field(text, "MemAvailable:", &kib))
		return spare;
	return least(spare, kib << 10);
}

uint64_t glk_numa_usable(const struct glk_sysroot *root)
{
	uint64_t spare = glk_numa_spare(root);

	return spare > LEFT ? spare - LEFT : 0;
}

uint64_t glk_numa_usable_of(const struct glk_numa_node *node)
{
	uint64_t spare = node->memory_valid ? node->free + node->cached : 0;

	return spare > LEFT ? spare - LEFT : 0;
}

uint64_t glk_numa_group_limit(const struct glk_sysroot *root)
{
	uint64_t limit = look(root).limit;

	/* what version 1 has for none: the largest multiple of a page below 2^63 */
	return limit >= UINT64_C(1) << 62 ? UINT64_MAX : limit;
}
