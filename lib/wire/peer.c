/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who is at the other end, as the kernel kept it when the connection was made. The user is what is
 * decided by; the number of a process may be given to another one later, and is for people.
 */
#include "wire/wire.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of newer kernels than the headers may be. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* What the kernel shows for users that a namespace has no number for. */
#define NOBODY 65534

int glk_wire_peer(int fd, struct glk_wire_peer *ret_peer)
{
	struct ucred other;
	socklen_t length = sizeof(other);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length))
		return -errno;
	*ret_peer = (struct glk_wire_peer){.uid = other.uid, .pid = other.pid};
	return 0;
}

bool glk_wire_may(uid_t peer, uid_t own)
{
	return peer != NOBODY && own != NOBODY && (peer == own || peer == 0);
}

int glk_wire_pidfd(int fd, int *ret_pidfd)
{
	struct glk_wire_peer peer = {0};
	int pidfd = -1, err;
	socklen_t length = sizeof(pidfd);

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) && pidfd >= 0) {
		*ret_pidfd = pidfd;
		return 0;
	}
	err = glk_wire_peer(fd, &peer);
	if (err)
		return err;
	if (!peer.pid) /* of a namespace that is not seen from here */
		return -EOPNOTSUPP;
	/* if its number has been given to another one meanwhile, the socket tells of its end */
	pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	if (pidfd < 0)
		return errno == ENOSYS || errno == ESRCH ? -EOPNOTSUPP : -errno;
	*ret_pidfd = pidfd;
	return 0;
}

/* How long an error of poll(2) is waited out. */
#define RETRY_NS 50000000

/* As many at a time as the process may have; those who cannot be polled have nothing to say. */
static int poll_parts(struct pollfd *polled, size_t count)
{
	struct rlimit files;
	size_t part = 1, some;
	int all = 0, got;

	if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur > 1)
		part = files.rlim_cur < count ? (size_t)files.rlim_cur : count;
	for (size_t i = 0; i < count; i += some) {
		some = count - i < part ? count - i : part;
		got = poll(&polled[i], some, 0);
		for (size_t k = i; got < 0 && k < i + some; k++)
			polled[k].revents = 0;
		all += got > 0 ? got : 0;
	}
	return all;
}

int glk_wire_poll(struct pollfd *polled, size_t count, int timeout_ms)
{
	const struct timespec moment = {.tv_nsec = RETRY_NS};
	int got = poll(polled, count, timeout_ms);

	if (got >= 0 || errno == EINTR)
		return got;
	nanosleep(&moment, NULL);
	return poll_parts(polled, count);
}

struct glk_wire_mark glk_wire_mark_of(int fd)
{
	struct stat about;

	return fstat(fd, &about)
		? (struct glk_wire_mark){0}
		: (struct glk_wire_mark){about.st_dev, about.st_ino, about.st_mode};
}

bool glk_wire_is(int fd, const struct glk_wire_mark *mark)
{
	struct glk_wire_mark is = glk_wire_mark_of(fd);

	return fd >= 0 && is.ino == mark->ino && is.dev == mark->dev &&
		is.mode == mark->mode;
}
