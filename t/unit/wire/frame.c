/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Frames: whole or not at all, with their descriptors or with none, and no longer than one waits. */
#include "tap.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int ends[2];
static struct glk_wire_frame frame;

static void pair(void)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		tap_bail("no socket");
}

static void unpair(void)
{
	close(ends[0]);
	close(ends[1]);
}

static int files(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static int send_some(size_t length, size_t count)
{
	static char body[GLK_WIRE_BODY_MAX + 1];
	int fds[GLK_WIRE_FDS_MAX + 1];

	memset(body, 'x', sizeof(body));
	for (size_t i = 0; i < count; i++)
		fds[i] = STDERR_FILENO;
	return glk_wire_send(ends[0], 7, body, length, fds, count, 0);
}

static void whole(size_t length, size_t count)
{
	int before = files();

	is_int(send_some(length, count), 0, "a frame");
	memset(&frame, 0x55, sizeof(frame));
	is_int(glk_wire_receive(ends[1], &frame, 0), 0, "  received");
	ok(frame.kind == 7 && frame.length == length && frame.count == count,
		"  is whole");
	ok(length == GLK_WIRE_BODY_MAX || !frame.body[length], "  and nothing behind it");
	is_int(files() - before, (int)count, "  with its descriptors");
	ok(!count || fcntl(frame.fd[count - 1], F_GETFD) & FD_CLOEXEC,
		"  for this one alone");
	glk_wire_frame_close(&frame);
	is_int(files(), before, "  closed");
}

static int raw(const void *data, size_t size)
{
	if (send(ends[0], data, size, 0) != (ssize_t)size)
		tap_bail("not sent");
	return glk_wire_receive(ends[1], &frame, 0);
}

static void nonsense(void)
{
	uint32_t head[5] = {0x464b4c47u, GLK_WIRE_VERSION, 1, 4, 0};
	char large[GLK_WIRE_BODY_MAX + 64] = {0};

	is_int(raw("x", 1), -EPROTO, "a byte");
	is_int(raw(head, sizeof(head)), 0, "made by hand");
	head[0]++;
	is_int(raw(head, sizeof(head)), -EPROTO, "no frame");
	head[0]--;
	head[1] += 1;
	is_int(raw(head, sizeof(head)), -EPROTO, "of a newer version");
	head[1] = GLK_WIRE_VERSION | 3u << 16;
	is_int(raw(head, sizeof(head)), -EPROTO, "descriptors that did not come");
	head[1] = GLK_WIRE_VERSION;
	head[3] = 5;
	is_int(raw(head, sizeof(head)), -EPROTO, "longer than it is");
	memcpy(large, head, sizeof(head));
	is_int(raw(large, sizeof(large)), -EPROTO, "larger than there is room for");
	is_int(send_some(GLK_WIRE_BODY_MAX + 1, 0), -EMSGSIZE, "nor is that sent");
	is_int(send_some(4, GLK_WIRE_FDS_MAX + 1), -EMSGSIZE, "nor so many descriptors");
}

/* Descriptors for which there is no room. */
static void no_room(void)
{
	const char *loaded = getenv("LD_PRELOAD");
	struct rlimit limit, few;
	int before = files(), err;

	if (loaded && strstr(loaded, "vgpreload")) {
		tap_skip("no room for descriptors", "valgrind has limits of its own");
		return;
	}
	getrlimit(RLIMIT_NOFILE, &limit);
	few = limit;
	few.rlim_cur = (rlim_t)ends[1] + 4;
	send_some(4, 12);
	setrlimit(RLIMIT_NOFILE, &few);
	err = glk_wire_receive(ends[1], &frame, 0);
	setrlimit(RLIMIT_NOFILE, &limit);
	is_int(err, -EMFILE, "no room for its descriptors");
	is_int(files(), before, "  and none is left of them");
	whole(4, 12);
}

static void waits(void)
{
	struct timespec start, end;
	int sent = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	is_int(glk_wire_receive(ends[1], &frame, 0), -EAGAIN, "nothing has come");
	is_int(glk_wire_receive(ends[1], &frame, 20), -EAGAIN, "nor in a while");
	clock_gettime(CLOCK_MONOTONIC, &end);
	ok((end.tv_sec - start.tv_sec) * 1000000000 + end.tv_nsec - start.tv_nsec >=
			20000000,
		"  that was waited for");
	while (sent < 100000 && !send_some(4000, 0))
		sent++;
	ok(sent < 100000, "one who does not read is sent some, and no more");
	is_int(glk_wire_send(ends[0], 1, "", 0, NULL, 0, 20), -EAGAIN, "nor in a while");
	while (!glk_wire_receive(ends[1], &frame, 0))
		sent--;
	is_int(sent, 0, "it reads all of that");
	close(ends[1]);
	ends[1] = -1;
	is_int(glk_wire_send(ends[0], 1, "", 0, NULL, 0, 20), -EPIPE, "nobody is there");
	is_int(glk_wire_receive(ends[0], &frame, 20), -EPIPE, "  nor says anything");
}

/* The end of a process that has left its socket to a child. */
static void process(void)
{
	struct pollfd polled = {.events = POLLIN};
	int fds[2], pidfd = -1, err;
	pid_t pid, child = 0;

	if (pipe(fds))
		tap_bail("no pipe");
	pair();
	pid = fork();
	if (!pid) {
		int own[2];

		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, own))
			_exit(1);
		glk_wire_send(ends[0], 1, "", 0, own, 1, 0);
		child = fork();
		if (!child)
			for (;;)
				pause();
		(void)!write(fds[1], &child, sizeof(child));
		for (;;)
			pause();
	}
	if (read(fds[0], &child, sizeof(child)) != sizeof(child) ||
		glk_wire_receive(ends[1], &frame, 60000) || frame.count != 1)
		tap_bail("no child");
	err = glk_wire_pidfd(frame.fd[0], &pidfd);
	if (err == -EOPNOTSUPP) {
		tap_skip("the end of a process",
			"this kernel has no descriptors of processes");
	} else {
		is_int(err, 0, "a descriptor of the other process");
		polled.fd = pidfd;
		is_int(poll(&polled, 1, 0), 0, "  it lives");
		kill(pid, SIGKILL);
		is_int(poll(&polled, 1, 60000), 1,
			"  and has ended, whoever keeps its socket");
		close(pidfd);
	}
	kill(pid, SIGKILL);
	kill(child, SIGKILL);
	waitpid(pid, NULL, 0);
	glk_wire_frame_close(&frame);
	unpair();
}

static void marks(void)
{
	struct glk_wire_mark mark;
	int fd;

	pair();
	mark = glk_wire_mark_of(ends[0]);
	ok(glk_wire_is(ends[0], &mark), "a mark");
	fd = ends[0];
	close(fd);
	ok(!glk_wire_is(fd, &mark), "  of what was closed");
	ok(dup2(STDERR_FILENO, fd) == fd && !glk_wire_is(fd, &mark),
		"  and is another now");
	unpair();
}

int main(void)
{
	tap_plan_later();
	pair();
	whole(0, 0);
	whole(1, 1);
	whole(GLK_WIRE_BODY_MAX, GLK_WIRE_FDS_MAX);
	nonsense();
	no_room();
	waits();
	unpair();
	process();
	marks();
	return tap_done();
}
