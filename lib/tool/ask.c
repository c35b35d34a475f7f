/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A question to each of many processes, side by side: what one of them takes, or that it does not answer,
 * costs the others nothing. So many at once as the descriptors allow; each has its own time.
 */
#include "tool/process.h"

#include "base/clock.h"
#include "wire/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define AT_ONCE	   256
#define CONNECT_MS 1 /* a queue that is full is tried again */
#define PART	   ((size_t)16 << 10)

struct talk {
	struct process_answer *asked; /* NULL: none */
	int fd;			      /* -1: it waits in front of a full queue */
	int64_t until;
	size_t sent, used, size;
	char *answer;
};

static const struct talk nobody = {.fd = -1};

static int64_t now_ms(void)
{
	return glk_clock_ns() / 1000000;
}

static void finish(struct talk *talk, int err, const char *why)
{
	struct process_answer *asked = talk->asked;

	asked->err = err;
	snprintf(asked->why, sizeof(asked->why), "%.*s", (int)sizeof(asked->why) - 1,
		err ? why : "");
	if (talk->fd >= 0)
		close(talk->fd);
	free(talk->answer);
	*talk = nobody;
}

/* It says what it was asked, in one line. */
static void read_all(struct talk *talk)
{
	char why[GLK_WIRE_WHY_MAX] = "it says what it was not asked";
	char *end = talk->answer + talk->used - 1;
	int err = -EPROTO;

	*end = '\0';
	if (!memchr(talk->answer, '\n', talk->used - 1))
		err = process_read_answer(talk->answer, &talk->asked->result, why);
	finish(talk, err, why);
}

static void try_connect(struct talk *talk, int room)
{
	char name[GLK_WIRE_NAME_MAX], why[GLK_WIRE_WHY_MAX];
	struct glk_wire_peer peer;
	int err;

	glk_wire_name(talk->asked->pid, name);
	err = glk_wire_connect(room, name, CONNECT_MS, &talk->fd, &peer, why);
	if (err)
		talk->fd = -1;
	if (err && err != -ETIMEDOUT)
		finish(talk, err, why);
}

static void push(struct talk *talk)
{
	const char *left = talk->asked->question + talk->sent;
	ssize_t sent = send(talk->fd, left, strlen(left), MSG_NOSIGNAL | MSG_DONTWAIT);

	if (sent >= 0)
		talk->sent += (size_t)sent;
	else if (errno != EAGAIN && errno != EINTR)
		finish(talk, -EPIPE, "it has ended, or does not answer this user");
}

static void pull(struct talk *talk)
{
	ssize_t got;

	if (talk->used == GLK_WIRE_ANSWER_MAX) {
		finish(talk, -EMSGSIZE, "it answers more than there is room for");
		return;
	}
	if (talk->used == talk->size) {
		size_t size = talk->size ? 2 * talk->size : PART;
		char *more = realloc(talk->answer, size);

		if (!more) {
			finish(talk, -ENOMEM, strerror(ENOMEM));
			return;
		}
		talk->answer = more;
		talk->size = size;
	}
	got = recv(talk->fd, talk->answer + talk->used, talk->size - talk->used,
		MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		finish(talk, -EPIPE, "it has ended, or does not answer this user");
		return;
	}
	talk->used += (size_t)got;
	if (talk->answer[talk->used - 1] == '\n')
		read_all(talk);
}

static int most_at_once(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > 2 * AT_ONCE)
		return AT_ONCE;
	return files.rlim_cur < 32 ? 1 : (int)(files.rlim_cur / 4);
}

/* Attends to all for a moment; how many go on. */
static int attend(struct talk *talks, int most, int room)
{
	struct pollfd polled[AT_ONCE];
	int active = 0, wait = 0;

	for (int i = 0; i < most; i++) {
		struct talk *talk = &talks[i];

		if (talk->asked && talk->fd < 0)
			try_connect(talk, room);
		polled[i] = (struct pollfd){.fd = -1};
		if (!talk->asked)
			continue;
		if (talk->fd < 0)
			wait = 10;
		else if (!wait)
			wait = 100;
		polled[i].fd = talk->fd;
		polled[i].events = talk->asked->question[talk->sent] ? POLLOUT : POLLIN;
	}
	poll(polled, (nfds_t)most, wait);
	for (int i = 0; i < most; i++) {
		struct talk *talk = &talks[i];

		if (!talk->asked)
			continue;
		if (talk->fd >= 0 && polled[i].fd >= 0 && polled[i].revents) {
			if (talk->asked->question[talk->sent])
				push(talk);
			else
				pull(talk);
		}
		if (talk->asked && now_ms() >= talk->until)
			finish(talk, -ETIMEDOUT, "it does not answer in time");
		active += talk->asked != NULL;
	}
	return active;
}

void process_ask_all(int room, struct process_answer *asked, int count)
{
	struct talk talks[AT_ONCE];
	int next = 0, most = most_at_once(), active;

	for (int i = 0; i < most; i++)
		talks[i] = nobody;
	do {
		for (int i = 0; i < most && next < count; i++)
			if (!talks[i].asked)
				talks[i] = (struct talk){.asked = &asked[next++],
					.fd = -1,
					.until = now_ms() + PROCESS_ANSWER_MS};
		active = attend(talks, most, room);
	} while (active || next < count);
}
