/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What wakes a thread that polls: a datagram socket that is connected to itself, so that nobody
 * else can send to it. An eventfd would do, but all of them are one inode, and its mark could not
 * tell ours from one that the program made at the number of ours.
 */
#include "wire/wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int glk_wire_bell_open(int *ret_fd)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un self = {.sun_family = AF_UNIX};
	socklen_t length = sizeof(self);
	int err = 0;

	if (fd < 0)
		return -errno;
	/* an address of the system's choice, which is no file */
	if (bind(fd, (struct sockaddr *)&self, sizeof(self.sun_family)) ||
		getsockname(fd, (struct sockaddr *)&self, &length) ||
		connect(fd, (struct sockaddr *)&self, length))
		err = -errno;
	if (err)
		close(fd);
	else
		*ret_fd = fd;
	return err;
}

void glk_wire_bell_ring(int fd)
{
	/* one that is full rings already */
	while (send(fd, "", 1, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

void glk_wire_bell_hear(int fd)
{
	char byte;

	while (recv(fd, &byte, 1, 0) >= 0 || errno == EINTR)
		;
}
