/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Asks another process. The one that answers is not trusted with this one's time or memory: a
 * question has one time limit over all of it, and an answer no more room than the caller has.
 */
#include "base/clock.h"
#include "wire/address.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
	return glk_clock_ns() / 1000000;
}

static int say(int err, char *why)
{
	const char *text = strerror(-err);

	if (err == -ESRCH)
		text = "it is not there any more";
	else if (err == -EPIPE)
		text = "it has ended, or does not answer this user";
	else if (err == -ETIMEDOUT)
		text = "it does not answer in time";
	else if (err == -EMSGSIZE)
		text = "it answers more than there is room for";
	else if (err == -EPROTO)
		text = "it says what it was not asked";
	snprintf(why, GLK_WIRE_WHY_MAX, "%s", text);
	return err;
}

/* `room`: the directory, whose owner the other one is, or, if `service`, root. */
static int check_peer(int room, int fd, bool service, struct glk_wire_peer *ret_peer)
{
	struct glk_wire_peer peer;
	struct stat s;
	int err = glk_wire_peer(fd, &peer);

	if (!err && fstat(room, &s))
		err = -errno;
	if (err)
		return err;
	if (!glk_wire_may(peer.uid, s.st_uid) || (!service && peer.uid != s.st_uid) ||
		(service && s.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	*ret_peer = peer;
	return 0;
}

static int dial(int room, const char *name, int type, int timeout_ms, int *ret_fd,
	struct glk_wire_peer *ret_peer, char *why)
{
	/* a queue that is full holds connect(2) up for so long */
	const struct timeval patience = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
	struct sockaddr_un address;
	int fd, err = 0;

	if (!glk_wire_address(room, name, &address))
		return say(-ENAMETOOLONG, why);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return say(-errno, why);
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)))
		err = -errno;
	while (!err && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		if (errno == ECONNREFUSED || errno == ENOENT)
			err = -ESRCH;
		else if (errno == EAGAIN)
			err = -ETIMEDOUT;
		else if (errno != EINTR)
			err = -errno;
	}
	if (!err)
		err = check_peer(room, fd, type == SOCK_SEQPACKET, ret_peer);
	if (err) {
		close(fd);
		return say(err, why);
	}
	*ret_fd = fd;
	return 0;
}

int glk_wire_connect(int room, const char *name, int timeout_ms, int *ret_fd,
	struct glk_wire_peer *ret_peer, char *why)
{
	return dial(room, name, SOCK_STREAM, timeout_ms, ret_fd, ret_peer, why);
}

int glk_wire_dial(const char *path, int timeout_ms, int *ret_fd,
	struct glk_wire_peer *ret_peer, char *why)
{
	const char *name = strrchr(path, '/');
	char folder[PATH_MAX];
	int room, err;

	if (!name || name - path >= PATH_MAX - 1)
		return say(-EINVAL, why);
	snprintf(folder, sizeof(folder), "%.*s", (int)(name - path) + 1, path);
	room = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (room < 0)
		return say(errno == ENOENT ? -ESRCH : -errno, why);
	err = dial(room, name + 1, SOCK_SEQPACKET, timeout_ms, ret_fd, ret_peer, why);
	close(room);
	return err;
}

/* Until there is something to do, or the time is up. */
static int wait_for(int fd, short events, int64_t until)
{
	struct pollfd polled = {.fd = fd, .events = events};
	int64_t left = until - now_ms();
	int count = left > 0 ? poll(&polled, 1, (int)left) : 0;

	if (count < 0 && errno != EINTR)
		return -errno;
	return count || left > 0 ? 0 : -ETIMEDOUT;
}

static int send_all(int fd, const char *at, size_t left, int64_t until)
{
	ssize_t sent;
	int err;

	while (left) {
		sent = send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent >= 0) {
			at += sent;
			left -= (size_t)sent;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return errno == ECONNRESET ? -EPIPE : -errno;
		err = wait_for(fd, POLLOUT, until);
		if (err)
			return err;
	}
	return 0;
}

int glk_wire_ask(int fd, const char *question, int timeout_ms, char *answer, size_t size,
	char *why)
{
	int64_t until = now_ms() + timeout_ms;
	int err = send_all(fd, question, strlen(question), until);
	char *end = NULL;
	size_t used = 0;
	ssize_t got;

	while (!err && !end) {
		if (used == size)
			return say(-EMSGSIZE, why);
		err = wait_for(fd, POLLIN, until);
		if (err)
			break;
		got = recv(fd, answer + used, size - used, MSG_DONTWAIT);
		if (!got || (got < 0 && errno == ECONNRESET))
			err = -EPIPE;
		else if (got < 0 && errno != EAGAIN && errno != EINTR)
			err = -errno;
		if (got <= 0)
			continue;
		end = memchr(answer + used, '\n', (size_t)got);
		used += (size_t)got;
		if (end && end + 1 != answer + used)
			err = -EPROTO;
	}
	if (err)
		return say(err, why);
	*end = '\0';
	return 0;
}
