/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The socket of a broker: the one that systemd hands over, or one that it makes, under a name of its own first, so that
 * one that is there is always one that listens. */
#include "share/listener.h"

#include "share/broker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* As systemd hands it over. -1: it does not. */
static int given_listener(void)
{
	const char *pid = secure_getenv("LISTEN_PID"),
		   *count = secure_getenv("LISTEN_FDS");

	if (!pid || !count || atoi(pid) != getpid() || atoi(count) < 1)
		return -1;
	return 3;
}

static bool is_served(const char *path)
{
	struct glk_wire_peer peer;
	char why[GLK_WIRE_WHY_MAX];
	int fd, err = glk_wire_dial(path, 100, &fd, &peer, why);

	if (!err)
		close(fd);
	/* one that has no time, or is not to be trusted, is there too */
	return !err || err == -ETIMEDOUT || err == -EPERM;
}

static int find_path(struct glk_listener *l, const char *given, char *why)
{
	int room, err;

	if (given) {
		snprintf(l->path, sizeof(l->path), "%s", given);
		return 0;
	}
	err = glk_wire_room_open(true, &room, why);
	if (err)
		return err;
	close(room);
	glk_wire_room_path(l->path, sizeof(l->path) - sizeof(GLK_BROKER_SOCKET));
	strcat(l->path, "/" GLK_BROKER_SOCKET);
	return 0;
}

static int listen_at(struct glk_listener *l, bool all_users, char *why)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char first[sizeof(address.sun_path)];
	mode_t mask;
	int err = 0;

	if ((size_t)snprintf(first, sizeof(first), "%s.%d", l->path, getpid()) >=
		sizeof(first))
		return -ENAMETOOLONG;
	if (is_served(l->path)) {
		snprintf(why, GLK_WIRE_WHY_MAX, "a broker is there already");
		return -EADDRINUSE;
	}
	memcpy(address.sun_path, first, sizeof(first));
	l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return -errno;
	mask = umask(all_users ? 0111 : 0177);
	if (bind(l->fd, (struct sockaddr *)&address, sizeof(address)))
		err = -errno;
	umask(mask);
	if (err)
		return err;
	if (listen(l->fd, SOMAXCONN) || lstat(first, &l->made) ||
		rename(first, l->path)) {
		err = -errno;
		unlink(first);
	}
	return err;
}

int glk_listener_open(struct glk_listener *l, const char *path, bool all_users, char *why)
{
	int err;

	l->fd = given_listener();
	if (l->fd >= 0)
		return 0;
	err = find_path(l, path, why);
	return err ? err : listen_at(l, all_users, why);
}

/* Another broker may have taken its place, where somebody took the socket away. */
bool glk_listener_is_own(const struct glk_listener *l)
{
	struct stat is;

	return *l->path && !lstat(l->path, &is) && is.st_dev == l->made.st_dev &&
		is.st_ino == l->made.st_ino;
}
