/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whatever stands in a file of sysfs, it is read right or refused. */
#include "unit/numa/tree.h"

static void reads_text(struct tree *tree)
{
	char text[16];

	tree_set(tree, "sys/value", "live\n");
	is_int(glk_sysfs_text(&tree->root, "/sys/value", text, sizeof(text)), 0,
		"a line");
	is_str(text, "live", "without its newline");
	tree_set(tree, "sys/value", "live");
	is_int(glk_sysfs_text(&tree->root, "/sys/value", text, 5), 0, "no newline");
	is_str(text, "live", "and just room");
	is_int(glk_sysfs_text(&tree->root, "/sys/value", text, 4), -EFBIG, "no room");
	tree_set(tree, "sys/value", "");
	is_int(glk_sysfs_text(&tree->root, "/sys/value", text, sizeof(text)), 0, "empty");
	is_str(text, "", "is empty");
	tree_set(tree, "sys/value", "a\nb \t\r\n\n");
	is_int(glk_sysfs_text(&tree->root, "/sys/value", text, sizeof(text)), 0,
		"two lines");
	is_str(text, "a\nb", "trimmed at the end");
	tree_set(tree, "sys/value", "");
	tree_append(tree, "sys/value", "1\0002", 3);
	is_int(glk_sysfs_text(&tree->root, "/sys/value", text, sizeof(text)), -EBADMSG,
		"a zero byte");
	is_int(glk_sysfs_text(&tree->root, "/sys/none", text, sizeof(text)), -ENOENT,
		"no file");
	is_int(glk_sysfs_text(&tree->root, "/sys", text, sizeof(text)), -EISDIR,
		"a folder");
}

/* A program that has closed its standard input has files of that number. */
static void reads_as_input(struct tree *tree)
{
	int was = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	char text[16] = "";

	tree_set(tree, "sys/value", "live\n");
	close(STDIN_FILENO);
	is_int(glk_sysfs_text(&tree->root, "/sys/value", text, sizeof(text)), 0,
		"a file whose descriptor is 0");
	is_str(text, "live", "is read");
	is_int(fcntl(STDIN_FILENO, F_GETFD), -1, "and closed");
	if (was >= 0) {
		dup2(was, STDIN_FILENO);
		close(was);
	}
}

static void number(struct tree *tree, const char *text, int err, int64_t want)
{
	int64_t n = 77;

	tree_set(tree, "sys/number", text);
	ok(glk_sysfs_number(&tree->root, "/sys/number", &n) == err, "'%.*s'",
		(int)strcspn(text, "\n"), text);
	is_int(n, err ? 77 : want, "its value");
}

static void reads_numbers(struct tree *tree)
{
	char huge[1024];

	number(tree, "0\n", 0, 0);
	number(tree, "42", 0, 42);
	number(tree, "-1\n", 0, -1);
	number(tree, "9223372036854775807\n", 0, INT64_MAX);
	number(tree, "9223372036854775808\n", -ERANGE, 0);
	number(tree, "99999999999999999999999\n", -ERANGE, 0);
	number(tree, "", -EBADMSG, 0);
	number(tree, "-", -EBADMSG, 0);
	number(tree, "--1", -EBADMSG, 0);
	number(tree, "+1", -EBADMSG, 0);
	number(tree, " 1", -EBADMSG, 0);
	number(tree, "1 2", -EBADMSG, 0);
	number(tree, "0x10", -EBADMSG, 0);
	number(tree, "n/a\n", -EBADMSG, 0);
	memset(huge, '1', sizeof(huge));
	huge[sizeof(huge) - 1] = 0;
	number(tree, huge, -EFBIG, 0);
}

static void reads_fields(void)
{
	const char *text =
		"Node 0 HighMemFree:   1 kB\nNode 0 MemFree:\t 23 kB\nMemTotal:9";
	uint64_t n = 0;

	is_int(glk_sysfs_field(text, "MemFree:", &n), 0, "a field in the middle");
	is_int((int64_t)n, 23, "not the one whose name ends alike");
	is_int(glk_sysfs_field(text, "MemTotal:", &n), 0,
		"a field without blanks at the end");
	is_int((int64_t)n, 9, "its value");
	is_int(glk_sysfs_field(text, "MemUsed:", &n), -ENOENT, "no such field");
	is_int(glk_sysfs_field("MemFree: -5 kB", "MemFree:", &n), -EBADMSG, "negative");
	is_int(glk_sysfs_field("MemFree:", "MemFree:", &n), -EBADMSG, "no value");
	is_int(glk_sysfs_field("MemFree: 18446744073709551616", "MemFree:", &n), -ERANGE,
		"too large");
}

static void reads_lists(struct tree *tree)
{
	char huge[GLK_SYSFS_TEXT_MAX + 2];
	struct glk_numa_set set;

	tree_set(tree, "sys/list", "0-2\n");
	is_int(glk_sysfs_list(&tree->root, "/sys/list", 3, &set), 0, "a list");
	is_int(glk_numa_set_count(&set), 3, "of three");
	is_int(glk_sysfs_list(&tree->root, "/sys/list", 2, &set), -ERANGE,
		"out of range");
	memset(huge, '0', sizeof(huge));
	huge[sizeof(huge) - 1] = 0;
	tree_set(tree, "sys/list", huge);
	is_int(glk_sysfs_list(&tree->root, "/sys/list", 3, &set), -EFBIG, "a huge file");
}

static void sees_devices(struct tree *tree)
{
	struct glk_sysfs_device device;

	is_int(glk_sysfs_device(NULL, "/dev/null", &device), 0, "a real device node");
	ok(device.major == 1 && device.minor == 3 && device.usable, "1:3, usable");
	is_int(glk_sysfs_device(NULL, "/dev", &device), -ENOTTY, "a folder is none");
	is_int(glk_sysfs_device(NULL, "/dev/glake-none", &device), -ENOENT, "no node");
	tree_set(tree, "dev/x", "c 238 1 r-\n");
	is_int(glk_sysfs_device(&tree->root, "/dev/x", &device), 0, "a node of a tree");
	ok(device.major == 238 && device.minor == 1 && !device.usable, "as it says");
	tree_set(tree, "dev/x", "b 238 1 rw\n");
	is_int(glk_sysfs_device(&tree->root, "/dev/x", &device), -ENOTTY,
		"a block device");
}

int main(void)
{
	char path[2 * GLK_SYSFS_PATH_MAX], text[8];
	struct tree tree;

	tap_plan_later();
	tree_init(&tree);
	reads_text(&tree);
	reads_as_input(&tree);
	reads_numbers(&tree);
	reads_fields();
	reads_lists(&tree);
	sees_devices(&tree);
	memset(path, '/', sizeof(path));
	path[sizeof(path) - 1] = 0;
	is_int(glk_sysfs_text(&tree.root, path, text, sizeof(text)), -ENAMETOOLONG,
		"a path beyond the maximum");
	ok(glk_sysfs_exists(&tree.root, "/sys") && !glk_sysfs_exists(&tree.root, "/proc"),
		"what is there and what is not");
	ok(glk_sysroot_is_real(NULL) && glk_sysroot_is_real(&glk_sysroot_real) &&
			!glk_sysroot_is_real(&tree.root),
		"which root is the machine");
	tree_close(&tree);
	return tap_done();
}
