/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One that asks. Nothing is read of it while an answer waits to be taken, so that it holds no more
 * than one question and one answer's room, and whoever does not read is not listened to either.
 */
#include "wire/server.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>

/* Questions that one may have answered before others have their turn, and for how long, ns. */
#define TURN	16
#define TURN_NS INT64_C(2000000)

short glk_wire_client_wants(const struct glk_wire_client *client)
{
	if (client->out_used)
		return POLLOUT;
	return client->half || client->last ? 0 : POLLIN;
}

void glk_wire_client_pass(struct glk_wire_client *c, int fd)
{
	c->pass = fd + 1;
	c->pass_mark = glk_wire_mark_of(fd);
}

/* What is left of the answer; its first bytes take the descriptor with them. */
static ssize_t send_some(const struct glk_wire_client *c)
{
	struct iovec data = {c->out + c->out_sent, c->out_used - c->out_sent};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	int fd = c->pass - 1;

	if (c->pass) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.room);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	return sendmsg(c->fd - 1, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* False: it takes nothing any more, or what was to go with it has been closed by the program. */
static bool flush(struct glk_wire_client *c, int64_t now_ns)
{
	ssize_t sent;

	while (c->out_sent < c->out_used) {
		if (c->pass && !glk_wire_is(c->pass - 1, &c->pass_mark))
			return false;
		sent = send_some(c);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN;
		c->pass = 0;
		c->out_sent += (size_t)sent;
		c->since = now_ns;
	}
	c->out_used = c->out_sent = 0;
	return true;
}

/* False: it has gone. */
static bool take(struct glk_wire_client *c, int64_t now_ns)
{
	ssize_t got = recv(c->fd - 1, c->in + c->in_used,
		GLK_WIRE_QUESTION_MAX - c->in_used, MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR;
	if (!got)
		c->half = true;
	else
		c->since = now_ns;
	c->in_used += (size_t)got;
	c->more = true;
	return true;
}

/* Answers the first question that is whole; a last one needs no end of its line. */
static bool answer_next(struct glk_wire_client *c, const struct glk_wire_options *options)
{
	char *end = memchr(c->in, '\n', c->in_used);
	size_t length = end ? (size_t)(end - c->in) : c->in_used;
	bool whole = end || (c->half && c->in_used);
	const char *line = c->in;

	if (!whole && c->in_used < GLK_WIRE_QUESTION_MAX) {
		c->more = false;
		return false;
	}
	if (!whole) {
		c->last = true;
		line = NULL;
		length = 0;
	}
	c->pass = 0;
	c->out_used =
		options->answer(line, length, c->out, GLK_WIRE_ANSWER_MAX, options->arg);
	if (!line || !end) {
		c->in_used = 0;
		return true;
	}
	c->in_used -= length + 1;
	memmove(c->in, end + 1, c->in_used);
	return true;
}

bool glk_wire_client_attend(struct glk_wire_client *c, short events,
	const struct glk_wire_options *options, int64_t now_ns)
{
	int left = TURN;
	bool tired = false;

	if (c->out_used && !flush(c, now_ns))
		return false;
	if (!c->out_used && events & (POLLIN | POLLHUP | POLLERR) && !c->half &&
		!c->last && c->in_used < GLK_WIRE_QUESTION_MAX && !take(c, now_ns))
		return false;
	while (!tired && !c->out_used && !c->last && left-- && answer_next(c, options)) {
		/* an answer may take long, and is no silence of who waits for it */
		c->since = glk_clock_ns();
		if (!flush(c, c->since))
			return false;
		tired = glk_wire_is_aside() || c->since - now_ns > TURN_NS;
	}
	return c->out_used || !(c->last || (c->half && !c->more));
}
