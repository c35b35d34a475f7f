/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_LETTER_H
#define GLK_T_LETTER_H

/* An exported block on its way to another process, over a socket of whole messages. */
#include <glake/share.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LETTER_MOST 64

struct letter {
	struct glake_piece piece[LETTER_MOST];
	size_t count, size;
	int word; /* whatever the two have agreed on */
};

/* 0, or -1 where it was not sent. */
static inline int letter_post(int to, const struct letter *letter)
{
	char control[CMSG_SPACE(LETTER_MOST * sizeof(int))] = {0};
	struct iovec data = {(void *)(uintptr_t)letter, sizeof(*letter)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	struct cmsghdr *header;
	int fds[LETTER_MOST];

	for (size_t i = 0; i < letter->count; i++)
		fds[i] = letter->piece[i].fd;
	if (letter->count) {
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(letter->count * sizeof(int));
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(letter->count * sizeof(int));
		memcpy(CMSG_DATA(header), fds, letter->count * sizeof(int));
	}
	return sendmsg(to, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(*letter) ? 0 : -1;
}

/* 0 with the descriptors as they are named here; -1 when nobody writes any more, or half of it
 * was lost. */
static inline int letter_fetch(int from, struct letter *letter)
{
	char control[CMSG_SPACE(LETTER_MOST * sizeof(int))];
	struct iovec data = {letter, sizeof(*letter)};
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control)};
	int fds[LETTER_MOST];

	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*letter) ||
		(message.msg_flags & MSG_CTRUNC))
		return -1;
	if (letter->count)
		memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)),
			letter->count * sizeof(int));
	for (size_t i = 0; i < letter->count; i++)
		letter->piece[i].fd = fds[i];
	return 0;
}

static inline void letter_close(const struct letter *letter)
{
	for (size_t i = 0; i < letter->count; i++)
		close(letter->piece[i].fd);
}

#endif
