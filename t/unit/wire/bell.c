/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bells: rung often, heard once, by nobody else, and told from what took their number. */
#include "tap.h"
#include "wire/wire.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RINGERS 4
#define RINGS	10000

static bool rings(int fd, int timeout_ms)
{
	struct pollfd polled = {.fd = fd, .events = POLLIN};

	return poll(&polled, 1, timeout_ms) == 1 && polled.revents == POLLIN;
}

static void *ring_often(void *fd)
{
	for (int i = 0; i < RINGS; i++)
		glk_wire_bell_ring(*(int *)fd);
	return NULL;
}

static void rung(void)
{
	pthread_t thread[RINGERS];
	int fd = -1;

	is_int(glk_wire_bell_open(&fd), 0, "a bell");
	ok(!rings(fd, 0), "it is silent");
	glk_wire_bell_ring(fd);
	ok(rings(fd, 0), "rung");
	glk_wire_bell_hear(fd);
	ok(!rings(fd, 0), "and heard");
	glk_wire_bell_hear(fd);
	ok(!rings(fd, 0), "hearing nothing does not wait");
	for (int i = 0; i < RINGERS; i++)
		pthread_create(&thread[i], NULL, ring_often, &fd);
	for (int i = 0; i < RINGERS; i++)
		pthread_join(thread[i], NULL);
	ok(rings(fd, 0), "%d times at once, without waiting", RINGERS * RINGS);
	glk_wire_bell_hear(fd);
	ok(!rings(fd, 0), "is heard once");
	close(fd);
}

static void own(void)
{
	struct sockaddr_un at = {0};
	socklen_t length = sizeof(at);
	struct glk_wire_mark mark;
	int fd = -1, other, event;

	is_int(glk_wire_bell_open(&fd), 0, "another");
	other = socket(AF_UNIX, SOCK_DGRAM, 0);
	ok(!getsockname(fd, (struct sockaddr *)&at, &length), "it has an address");
	ok(sendto(other, "", 1, 0, (struct sockaddr *)&at, length) < 0 && errno == EPERM,
		"to which nobody else can send");
	close(other);
	mark = glk_wire_mark_of(fd);
	ok(glk_wire_is(fd, &mark), "it is known by its mark");
	event = eventfd(0, 0);
	dup2(event, fd);
	ok(!glk_wire_is(fd, &mark), "an eventfd of its number is not");
	other = -1;
	is_int(glk_wire_bell_open(&other), 0, "a third one");
	dup2(other, fd);
	ok(!glk_wire_is(fd, &mark), "nor is another bell");
	close(event);
	close(other);
	close(fd);
}

int main(void)
{
	rung();
	own();
	return tap_done();
}
