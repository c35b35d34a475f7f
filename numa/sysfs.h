/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_NUMA_SYSFS_H
#define GLK_NUMA_SYSFS_H

/*
 * Small files of /sys and /proc, and device nodes of /dev, under a root that tests replace by
 * a captured tree. Reached through numa/topology.h by the rooms that stand on this one.
 *
 * These files are written by kernels, containers and sandboxes of all kinds, so nothing in
 * them is trusted: a file is read whole or refused, a number is a number to its last byte, a
 * list is well formed and in range, or the answer is an error and the caller's value is
 * "unknown". No record is written: an absent file is no failure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What stat says of a device node. */
struct glk_sysfs_device {
	unsigned int major, minor;
	bool usable; /* we may read and write it, as far as its mode tells */
};

struct glk_sysroot {
	const char *
		prefix; /* put before "/sys", "/proc" and "/dev"; "" on the machine itself */
	/* Answers for a device node instead of stat, for trees that cannot hold nodes; gets the
	 * path with its prefix. NULL: stat. */
	int (*device)(const char *path, struct glk_sysfs_device *ret_device);
};

/* The machine itself; what a NULL root stands for in every call. */
extern const struct glk_sysroot glk_sysroot_real;

bool glk_sysroot_is_real(const struct glk_sysroot *root);

#define GLK_SYSFS_PATH_MAX 512

/* Room for the largest file that is read whole: /proc/devices on a machine full of drivers. */
#define GLK_SYSFS_TEXT_MAX 16384

/*
 * A set of numbers, for CPUs and nodes. Linux has at most 8192 CPUs and 1024 nodes.
 */
#define GLK_NUMA_SET_MAX 8192

struct glk_numa_set {
	uint64_t word[GLK_NUMA_SET_MAX / 64];
};

static inline bool glk_numa_set_has(const struct glk_numa_set *set, unsigned int n)
{
	return n < GLK_NUMA_SET_MAX && (set->word[n / 64] >> (n % 64) & 1);
}

static inline void glk_numa_set_add(struct glk_numa_set *set, unsigned int n)
{
	if (n < GLK_NUMA_SET_MAX)
		set->word[n / 64] |= UINT64_C(1) << (n % 64);
}

unsigned int glk_numa_set_count(const struct glk_numa_set *set);
/* The first number in it that is `from` or more; -1 if none. */
int glk_numa_set_next(const struct glk_numa_set *set, unsigned int from);

/*
 * "0-3,8" and the like; "" is the empty set. Strides ("0-6:2") are not used by these files.
 * 0, or -EBADMSG for anything else, or -ERANGE for a number of `max` or above.
 */
int glk_numa_set_parse(const char *text, unsigned int max, struct glk_numa_set *ret_set);

/* The same backwards; cut after the last range that fits. */
void glk_numa_set_format(const struct glk_numa_set *set, char *text, size_t size);

/*
 * The whole file as text, ended by 0, spaces and newlines at its end removed. 0, or the errno
 * value of open or read, -EFBIG when it does not fit, -EBADMSG when it holds a zero byte; the
 * buffer then holds nothing of meaning.
 */
int glk_sysfs_text(
	const struct glk_sysroot *root, const char *path, char *ret_text, size_t size);

/* A decimal number, with or without a sign. As above; -EBADMSG, -ERANGE. */
int glk_sysfs_number(
	const struct glk_sysroot *root, const char *path, int64_t *ret_number);

/* A list of numbers below `max`. As above. */
int glk_sysfs_list(const struct glk_sysroot *root, const char *path, unsigned int max,
	struct glk_numa_set *ret_set);

/*
 * The number behind `key` in lines like "Node 0 MemTotal:   4286668 kB"; what stands before
 * the key on its line is ignored. 0, -ENOENT (no such line), -EBADMSG, -ERANGE.
 */
int glk_sysfs_field(const char *text, const char *key, uint64_t *ret_number);

/*
 * Calls fn with the name of each entry of a folder, those that begin with a dot left out, until it
 * answers other than 0. Returns that answer, 0 at the end, or what opendir says, as -ENOENT.
 */
int glk_sysfs_each(const struct glk_sysroot *root, const char *path,
	int (*fn)(const char *name, void *arg), void *arg);

/*
 * The last part of the name of what a path leads to, all links followed: "vfio-pci" for the link
 * `driver` of a device. 0; -ENOENT (or it leads nowhere), -EFBIG, or what realpath says.
 */
int glk_sysfs_target(
	const struct glk_sysroot *root, const char *path, char *ret_name, size_t size);

/* The whole of that name: "/sys/devices/pci0000:3a/...", behind that of the root. As above. */
int glk_sysfs_resolve(
	const struct glk_sysroot *root, const char *path, char *ret_path, size_t size);

/* A directory or file is there. */
bool glk_sysfs_exists(const struct glk_sysroot *root, const char *path);

/* 0, -ENOENT, -ENOTTY (not a character device), or what stat says. Never opens it. */
int glk_sysfs_device(const struct glk_sysroot *root, const char *path,
	struct glk_sysfs_device *ret_device);

#endif
