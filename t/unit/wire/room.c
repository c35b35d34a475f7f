/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The directory of sockets: what is taken for one, and what is refused in which words. */
#include "rig.h"

#define SOMEBODY 12345

static void refused(int err, const char *word, const char *what)
{
	is_int(rig_open(true), err, what);
	tap_note("%s", rig_why);
	ok(strstr(rig_why, word), "and it is said so");
}

static void test_made(void)
{
	struct stat s;

	is_int(rig_open(false), -ENOENT, "it is not there before anybody made it");
	umask(0);
	is_int(rig_open(true), 0, "it is made");
	ok(!stat(rig_path, &s) && (s.st_mode & 0777) == 0700, "for this user alone");
	is_int(rig_open(true), 0, "and found");
	umask(022);
}

static void test_open_to_others(void)
{
	chmod(rig_path, 0750);
	refused(-EPERM, "open to others, with mode 750", "one that a group may enter");
	chmod(rig_path, 0701);
	refused(-EPERM, "open to others", "one that others may enter");
	chmod(rig_path, 0700);
	chmod(rig_parent, 0770);
	refused(-EPERM, "others may write in",
		"one in a directory that others may write in");
	chmod(rig_parent, 01777);
	refused(-EPERM, "others may write in", "and in one as that of all");
	chmod(rig_parent, 0755);
	is_int(rig_open(true), 0, "others may look at the one above");
	chmod(rig_parent, 0700);
}

static void test_of_others(void)
{
	if (geteuid()) {
		for (int i = 0; i < 2; i++)
			tap_skip("another user's",
				"this is not root, who can give files away");
		return;
	}
	if (chown(rig_path, SOMEBODY, (gid_t)-1))
		ok(false, "chown");
	refused(-EPERM, "belongs to user 12345", "another user's");
	if (chown(rig_path, 0, (gid_t)-1))
		ok(false, "chown");
}

static void test_no_directory(void)
{
	char elsewhere[sizeof(rig_path) + 2];
	int fd;

	snprintf(elsewhere, sizeof(elsewhere), "%s-", rig_path);
	if (rename(rig_path, elsewhere) || symlink(elsewhere, rig_path))
		ok(false, "symlink");
	refused(-ENOTDIR, "is no directory", "a symbolic link to one that would do");
	unlink(rig_path);
	fd = open(rig_path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	refused(-ENOTDIR, "is no directory", "a file");
	unlink(rig_path);
	if (rename(elsewhere, rig_path))
		ok(false, "rename");
	setenv("XDG_RUNTIME_DIR", "/nowhere/at/all", 1);
	if (geteuid()) {
		refused(-ENOENT, "/nowhere/at/all", "one that is not there");
	} else {
		glk_wire_room_path(elsewhere, sizeof(elsewhere));
		is_str(elsewhere, "/run/glake",
			"root has its own where nothing else will do");
		tap_skip("nowhere", "root goes elsewhere");
	}
	setenv("XDG_RUNTIME_DIR", rig_parent, 1);
}

static void test_names(void)
{
	static const char *const none[] = {"", "0.sock", "-3.sock", "012.sock",
		"12.sock.", ".12.sock", "12", "a.sock", "99999999999999999999.sock",
		"12 .sock", "+1.sock"};
	char name[GLK_WIRE_NAME_MAX];

	glk_wire_name(4711, name);
	is_str(name, "4711.sock", "the socket of a process");
	is_int(glk_wire_name_pid(name), 4711, "and its process");
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
		ok(!glk_wire_name_pid(none[i]), "'%s' is none", none[i]);
}

static void test_users(void)
{
	ok(glk_wire_may(1000, 1000), "a user may talk to himself");
	ok(glk_wire_may(0, 1000), "and root to him");
	ok(!glk_wire_may(1000, 0), "but he not to root");
	ok(!glk_wire_may(1001, 1000), "nor to another user");
	ok(!glk_wire_may(65534, 65534),
		"one whom the namespace does not know may nothing");
}

int main(void)
{
	tap_plan(39);
	rig_begin();
	test_made();
	test_open_to_others();
	test_of_others();
	test_no_directory();
	test_names();
	test_users();
	rig_end();
	return tap_done();
}
