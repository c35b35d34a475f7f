/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Folders and links of a tree, and what is neither. */
#include "unit/numa/tree.h"

struct seen {
	int count, stop;
	char last[32];
};

static int look(const char *name, void *arg)
{
	struct seen *seen = arg;

	seen->count++;
	snprintf(seen->last, sizeof(seen->last), "%s", name);
	return seen->count == seen->stop ? 42 : 0;
}

int main(void)
{
	struct seen seen = {0};
	char name[16] = "kept", path[GLK_SYSFS_PATH_MAX];
	struct tree tree;

	tap_plan_later();
	tree_init(&tree);
	is_int(glk_sysfs_each(&tree.root, "/sys", look, &seen), -ENOENT, "no folder");
	tree_set(&tree, "sys/one", "text");
	is_int(glk_sysfs_each(&tree.root, "/sys/one", look, &seen), -ENOTDIR, "a file");
	is_int(seen.count, 0, "nothing was seen");
	tree_set(&tree, "sys/.hidden", "");
	is_int(glk_sysfs_each(&tree.root, "/sys", look, &seen), 0, "a folder");
	is_int(seen.count, 1, "of one entry that is shown");
	is_str(seen.last, "one", "by its name");
	tree_set(&tree, "sys/two", "");
	tree_set(&tree, "sys/three", "");
	seen = (struct seen){.stop = 2};
	is_int(glk_sysfs_each(&tree.root, "/sys", look, &seen), 42, "an answer ends it");
	is_int(seen.count, 2, "there");
	ok(!glk_sysfs_each(NULL, "/", look, &seen), "of the machine too");

	is_int(glk_sysfs_target(&tree.root, "/sys/link", name, sizeof(name)), -ENOENT,
		"no link");
	tree_link(&tree, "sys/link", "lost");
	is_int(glk_sysfs_target(&tree.root, "/sys/link", name, sizeof(name)), -ENOENT,
		"one that leads nowhere");
	is_str(name, "kept", "and nothing was written");
	tree_link(&tree, "sys/first", "second");
	tree_link(&tree, "sys/second", "three");
	is_int(glk_sysfs_target(&tree.root, "/sys/first", name, sizeof(name)), 0,
		"over two links");
	is_str(name, "three", "to their end");
	is_int(glk_sysfs_target(&tree.root, "/sys/one", name, sizeof(name)), 0, "a file");
	is_str(name, "one", "is its own end");
	is_int(glk_sysfs_target(&tree.root, "/sys/first", name, 5), -EFBIG, "no room");
	tree_link(&tree, "sys/round", "round");
	is_int(glk_sysfs_target(&tree.root, "/sys/round", name, sizeof(name)), -ELOOP,
		"in a circle");
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = 0;
	is_int(glk_sysfs_target(&tree.root, path, name, sizeof(name)), -ENAMETOOLONG,
		"a name that is too long");
	is_int(glk_sysfs_each(&tree.root, path, look, &seen), -ENAMETOOLONG,
		"of a folder");
	tree_close(&tree);
	return tap_done();
}
