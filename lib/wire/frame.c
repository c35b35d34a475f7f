/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages that bring descriptors. A process that has few left gets them a few at a time, and one
 * that cannot take those of a message has none of them: the kernel leaves out what there is no room
 * for, and says so.
 */
#include "wire/wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x464b4c47u /* "GLKF" */

struct head {
	uint32_t magic;
	uint16_t version;
	uint16_t count; /* of descriptors */
	uint32_t kind, length;
};

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(GLK_WIRE_FDS_MAX * sizeof(int))];
};

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* 0; -EAGAIN when the time is up. */
static int wait_for(int fd, short events, int64_t until)
{
	struct pollfd polled = {.fd = fd, .events = events};
	int64_t left = until - now_ms();
	int count = poll(&polled, 1, left > 0 ? (int)left : 0);

	if (count < 0 && errno != EINTR)
		return -errno;
	return count || left > 0 ? 0 : -EAGAIN;
}

static void attach(
	struct msghdr *message, union control *control, const int *fds, size_t count)
{
	memset(control, 0, sizeof(*control));
	message->msg_control = control;
	message->msg_controllen = CMSG_SPACE(count * sizeof(int));
	control->header.cmsg_level = SOL_SOCKET;
	control->header.cmsg_type = SCM_RIGHTS;
	control->header.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control->header), fds, count * sizeof(int));
}

int glk_wire_send(int fd, uint32_t kind, const void *body, size_t length, const int *fds,
	size_t count, int timeout_ms)
{
	struct head head = {
		MAGIC, GLK_WIRE_VERSION, (uint16_t)count, kind, (uint32_t)length};
	struct iovec data[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)body, length}};
	struct msghdr message = {.msg_iov = data, .msg_iovlen = 2};
	int64_t until = now_ms() + timeout_ms;
	union control control;
	int err = 0;

	if (length > GLK_WIRE_BODY_MAX || count > GLK_WIRE_FDS_MAX)
		return -EMSGSIZE;
	if (count)
		attach(&message, &control, fds, count);
	while (!err && sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			err = timeout_ms ? wait_for(fd, POLLOUT, until) : -EAGAIN;
		else if (errno == ECONNRESET || errno == ENOTCONN)
			err = -EPIPE;
		else if (errno != EINTR)
			err = -errno;
	}
	return err;
}

void glk_wire_frame_close(struct glk_wire_frame *frame)
{
	while (frame->count)
		close(frame->fd[--frame->count]);
}

static void take_fds(struct msghdr *message, struct glk_wire_frame *frame)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);

	frame->count = 0;
	if (!header || header->cmsg_level != SOL_SOCKET ||
		header->cmsg_type != SCM_RIGHTS)
		return;
	frame->count = (uint32_t)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(frame->fd, CMSG_DATA(header), frame->count * sizeof(int));
}

static int check(const struct head *head, size_t got, const struct msghdr *message,
	struct glk_wire_frame *frame)
{
	int err = 0;

	if (message->msg_flags & MSG_CTRUNC)
		err = -EMFILE;
	else if (got < sizeof(*head) || message->msg_flags & MSG_TRUNC ||
		head->magic != MAGIC || head->version != GLK_WIRE_VERSION ||
		head->length != got - sizeof(*head) || head->count != frame->count)
		err = -EPROTO;
	if (err) {
		glk_wire_frame_close(frame);
		return err;
	}
	frame->kind = head->kind;
	frame->length = head->length;
	memset(frame->body + frame->length, 0, sizeof(frame->body) - frame->length);
	return 0;
}

int glk_wire_receive(int fd, struct glk_wire_frame *frame, int timeout_ms)
{
	int64_t until = now_ms() + timeout_ms;
	struct head head;
	struct iovec data[2] = {
		{&head, sizeof(head)}, {frame->body, sizeof(frame->body)}};
	union control control;
	struct msghdr message;
	ssize_t got;
	int err;

	for (;;) {
		message = (struct msghdr){.msg_iov = data,
			.msg_iovlen = 2,
			.msg_control = &control,
			.msg_controllen = sizeof(control)};
		got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (got >= 0)
			break;
		if (errno == ECONNRESET || errno == ENOTCONN)
			return -EPIPE;
		if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		err = timeout_ms || errno == EINTR ? wait_for(fd, POLLIN, until)
						   : -EAGAIN;
		if (err)
			return err;
	}
	take_fds(&message, frame);
	if (!got && !frame->count)
		return -EPIPE;
	return check(&head, (size_t)got, &message, frame);
}
