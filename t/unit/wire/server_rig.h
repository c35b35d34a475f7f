/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_WIRE_SERVER_RIG_H
#define GLK_T_WIRE_SERVER_RIG_H

/* Those who ask at the socket of this test. */
#include "rig.h"

#include <poll.h>
#include <sys/socket.h>

#define PATIENCE 20000 /* ms, for what comes at once */
#define MANY	 1000

static int room = -1;
static char name[GLK_WIRE_NAME_MAX];

static int join(void)
{
	struct glk_wire_peer peer;
	int fd, err = glk_wire_connect(room, name, PATIENCE, &fd, &peer, rig_why);

	return err ? err : fd;
}

static void says(int fd, const char *question, const char *expected, const char *what)
{
	static char answer[GLK_WIRE_ANSWER_MAX];
	int err = glk_wire_ask(fd, question, PATIENCE, answer, sizeof(answer), rig_why);

	is_str(err ? rig_why : answer, expected, what);
}

/* The same for several answers, however they come. */
static void goes_on(int fd, const char *expected, const char *what)
{
	size_t used = 0, size = strlen(expected);
	struct pollfd polled = {.fd = fd, .events = POLLIN};
	char answer[64] = "";

	while (used < size && poll(&polled, 1, PATIENCE) > 0) {
		ssize_t got = recv(fd, answer + used, size - used, MSG_DONTWAIT);

		if (got <= 0)
			break;
		used += (size_t)got;
	}
	is_str(answer, expected, what);
}

#endif
