/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef PIECES_H
#define PIECES_H

/*
 * A block on its way to another process: its size, then its pieces, each in a message of its own
 * with the descriptor of its page (SCM_RIGHTS). Descriptors that go along may be closed once they
 * are sent.
 */
#include <glake/share.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct parcel {
	size_t bytes, count;
};

static inline void or_die(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static inline struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	or_die(strlen(path) < sizeof(address.sun_path), path);
	memcpy(address.sun_path, path, strlen(path));
	return address;
}

/* Sends or receives a piece; the descriptor that comes is a new one of this process. */
static inline void pass_piece(int socket, struct glake_piece *piece, int receive)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec data = {.iov_base = piece, .iov_len = sizeof(*piece)};
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	if (receive) {
		or_die(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == sizeof(*piece),
			"recvmsg");
		head = CMSG_FIRSTHDR(&message);
		or_die(head && head->cmsg_type == SCM_RIGHTS &&
				head->cmsg_len == CMSG_LEN(sizeof(int)),
			"no descriptor came");
		memcpy(&piece->fd, CMSG_DATA(head), sizeof(int));
		return;
	}
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &piece->fd, sizeof(int));
	or_die(sendmsg(socket, &message, 0) == sizeof(*piece), "sendmsg");
}

#endif
