/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The directory of a user's sockets. Who could write in it, or in the one it lies in, could put
 * a socket of his own in the place of another, so both are looked at after they were opened, and
 * all that follows goes by the descriptor.
 */
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM "glake"
#define END  ".sock"

#define WRITABLE_BY_OTHERS (S_IWGRP | S_IWOTH)
#define OPEN_TO_OTHERS	   (S_IRWXG | S_IRWXO)

__attribute__((format(printf, 3, 4))) static int fail(
	int err, char *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, GLK_WIRE_WHY_MAX, format, args);
	va_end(args);
	return err;
}

/* Where the directory lies in. */
static void find_parent(char *path, size_t size)
{
	const char *given = secure_getenv("XDG_RUNTIME_DIR");
	uid_t uid = geteuid();
	struct stat s;

	/* a root who was a user before, by sudo, has that one's */
	if (given && *given == '/' && (uid || (!stat(given, &s) && !s.st_uid)))
		snprintf(path, size, "%s", given);
	else if (uid)
		snprintf(path, size, "/run/user/%u", uid);
	else
		snprintf(path, size, "/run");
}

void glk_wire_room_path(char *path, size_t size)
{
	char parent[PATH_MAX];

	find_parent(parent, sizeof(parent));
	snprintf(path, size, "%s/" ROOM, parent);
}

static int open_parent(const char *path, int *ret_fd, char *why)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int err = fd < 0 ? -errno : 0;
	struct stat s;

	if (err)
		return fail(err, why, "%s: %s%s", path, strerror(-err),
			err == -ENOENT ? "; XDG_RUNTIME_DIR says where else to look"
				       : "");
	if (fstat(fd, &s))
		err = fail(-errno, why, "%s: %s", path, strerror(errno));
	else if (s.st_uid && s.st_uid != geteuid())
		err = fail(-EPERM, why, "%s belongs to user %u", path, s.st_uid);
	else if (s.st_mode & WRITABLE_BY_OTHERS)
		err = fail(-EPERM, why, "others may write in %s", path);
	if (err)
		close(fd);
	else
		*ret_fd = fd;
	return err;
}

static int check_room(int fd, const char *parent, char *why)
{
	struct stat s;

	if (fstat(fd, &s))
		return fail(-errno, why, "%s/" ROOM ": %s", parent, strerror(errno));
	if (s.st_uid != geteuid())
		return fail(
			-EPERM, why, "%s/" ROOM " belongs to user %u", parent, s.st_uid);
	if (s.st_mode & OPEN_TO_OTHERS)
		return fail(-EPERM, why,
			"%s/" ROOM " is open to others, with mode %03o instead of 700",
			parent, s.st_mode & 0777);
	return 0;
}

int glk_wire_room_open(bool make, int *ret_fd, char *why)
{
	char parent[PATH_MAX];
	int in, fd, err;

	find_parent(parent, sizeof(parent));
	err = open_parent(parent, &in, why);
	if (err)
		return err;
	if (make && mkdirat(in, ROOM, 0700) && errno != EEXIST) {
		err = fail(-errno, why, "%s/" ROOM " cannot be made: %s", parent,
			strerror(errno));
		goto out;
	}
	fd = openat(in, ROOM, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		/* of a symbolic link the kernel says so, with O_DIRECTORY too */
		err = errno == ENOTDIR || errno == ELOOP
			? fail(-ENOTDIR, why, "%s/" ROOM " is no directory", parent)
			: fail(-errno, why, "%s/" ROOM ": %s", parent, strerror(errno));
		goto out;
	}
	err = check_room(fd, parent, why);
	if (err)
		close(fd);
	else
		*ret_fd = fd;
out:
	close(in);
	return err;
}

void glk_wire_name(pid_t pid, char *name)
{
	snprintf(name, GLK_WIRE_NAME_MAX, "%d" END, pid);
}

pid_t glk_wire_name_pid(const char *name)
{
	char again[GLK_WIRE_NAME_MAX];
	unsigned long pid = *name >= '1' && *name <= '9' ? strtoul(name, NULL, 10) : 0;

	if (!pid || pid > INT_MAX)
		return 0;
	glk_wire_name((pid_t)pid, again);
	return strcmp(name, again) ? 0 : (pid_t)pid;
}
