/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Folders of a tree, and what its links lead to. */
#include "numa/sysfs.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int make_path(const struct glk_sysroot *root, const char *path, char *ret_path)
{
	int n = snprintf(ret_path, GLK_SYSFS_PATH_MAX, "%s%s",
		(root ? root : &glk_sysroot_real)->prefix, path);

	return n < 0 || n >= GLK_SYSFS_PATH_MAX ? -ENAMETOOLONG : 0;
}

int glk_sysfs_each(const struct glk_sysroot *root, const char *path,
	int (*fn)(const char *name, void *arg), void *arg)
{
	char full[GLK_SYSFS_PATH_MAX];
	const struct dirent *entry;
	DIR *folder;
	int err;

	err = make_path(root, path, full);
	if (err)
		return err;
	folder = opendir(full);
	if (!folder)
		return -errno;
	while (!err && (entry = readdir(folder)))
		if (entry->d_name[0] != '.')
			err = fn(entry->d_name, arg);
	closedir(folder);
	return err;
}

int glk_sysfs_resolve(
	const struct glk_sysroot *root, const char *path, char *ret_path, size_t size)
{
	char full[GLK_SYSFS_PATH_MAX], end[PATH_MAX];
	int err;

	err = make_path(root, path, full);
	if (err)
		return err;
	if (!realpath(full, end))
		return -errno;
	if (strlen(end) >= size)
		return -EFBIG;
	memcpy(ret_path, end, strlen(end) + 1);
	return 0;
}

int glk_sysfs_target(
	const struct glk_sysroot *root, const char *path, char *ret_name, size_t size)
{
	char end[PATH_MAX];
	const char *name;
	int err;

	err = glk_sysfs_resolve(root, path, end, sizeof(end));
	if (err)
		return err;
	name = strrchr(end, '/') + 1;
	if (strlen(name) >= size)
		return -EFBIG;
	memcpy(ret_name, name, strlen(name) + 1);
	return 0;
}
