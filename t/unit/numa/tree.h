/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TREE_H
#define GLK_TREE_H

/*
 * Captured trees of /sys, /proc and /dev. A tree is one text file under t/data/sysfs, a line
 * "path=content" for each line of each file in it; a path that ends in '/' is an empty
 * directory. It is unpacked into a temporary folder that serves as the root, and a test may
 * change it there before it looks.
 *
 * A device node is a file with the content "c 238 0 rw" (or "c 238 0 --" for one that we may
 * not open, "b ..." for a block device), since making real nodes takes root.
 */
#include "numa/sysfs.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

struct tree {
	char dir[112];
	struct glk_sysroot root;
};

static inline int tree_device(const char *path, struct glk_sysfs_device *ret_device)
{
	FILE *file = fopen(path, "re");
	unsigned int major, minor;
	char kind, read, write;
	int n;

	if (!file)
		return -errno;
	n = fscanf(file, "%c %u %u %c%c", &kind, &major, &minor, &read, &write);
	fclose(file);
	if (n != 5 || kind != 'c')
		return -ENOTTY;
	*ret_device = (struct glk_sysfs_device){
		.major = major, .minor = minor, .usable = read == 'r' && write == 'w'};
	return 0;
}

/* Appends bytes to a file of the tree and makes the folders above it. */
static inline void tree_append(
	struct tree *tree, const char *path, const void *data, size_t size)
{
	char full[GLK_SYSFS_PATH_MAX];
	FILE *file;
	int n;

	n = snprintf(full, sizeof(full), "%s/%s", tree->dir, path);
	if (n < 0 || (size_t)n >= sizeof(full))
		tap_bail("path of a tree is too long");
	for (char *slash = full + strlen(tree->dir) + 1; (slash = strchr(slash, '/'));
		slash++) {
		*slash = 0;
		if (mkdir(full, 0755) && errno != EEXIST)
			tap_bail("cannot make a folder of a tree");
		*slash = '/';
	}
	if (full[n - 1] == '/')
		return;
	file = fopen(full, "ae");
	if (!file || fwrite(data, 1, size, file) != size || fclose(file))
		tap_bail("cannot write a file of a tree");
}

static inline void tree_remove(struct tree *tree, const char *path);

/* The file has this text, whatever it had before. */
static inline void tree_set(struct tree *tree, const char *path, const char *text)
{
	tree_remove(tree, path);
	tree_append(tree, path, text, strlen(text));
}

/* A symbolic link, whose folder is made too. */
static inline void tree_link(struct tree *tree, const char *path, const char *target)
{
	char full[GLK_SYSFS_PATH_MAX];

	tree_set(tree, path, "");
	tree_remove(tree, path);
	snprintf(full, sizeof(full), "%s/%s", tree->dir, path);
	if (symlink(target, full))
		tap_bail("cannot make a link of a tree");
}

/* An empty tree. */
static inline void tree_init(struct tree *tree)
{
	if (!mkdtemp(tap_template(tree->dir, sizeof(tree->dir), "tree")))
		tap_bail("cannot make a temporary folder");
	tree->root = (struct glk_sysroot){.prefix = tree->dir, .device = tree_device};
}

/* The tree of t/data/sysfs/<name>. */
static inline void tree_open(struct tree *tree, const char *name)
{
	const char *data = getenv("GLK_DATA") ? getenv("GLK_DATA") : GLK_DATA;
	char path[GLK_SYSFS_PATH_MAX], line[1024];
	FILE *file;

	tree_init(tree);
	snprintf(path, sizeof(path), "%s/sysfs/%s", data, name);
	file = fopen(path, "re");
	if (!file)
		tap_bail(path);
	while (fgets(line, sizeof(line), file)) {
		char *text = strchr(line, '=');

		if (*line == '#' || *line == '\n')
			continue;
		if (!text) {
			line[strcspn(line, "\n")] = 0;
			tree_append(tree, line, "", 0);
			continue;
		}
		*text++ = 0;
		tree_append(tree, line, text, strlen(text));
	}
	fclose(file);
}

static inline int tree_unlink(
	const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* A file, or a folder with all in it. */
static inline void tree_remove(struct tree *tree, const char *path)
{
	char full[GLK_SYSFS_PATH_MAX];

	snprintf(full, sizeof(full), "%s/%s", tree->dir, path);
	nftw(full, tree_unlink, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void tree_close(struct tree *tree)
{
	tree_remove(tree, "");
}

#endif
