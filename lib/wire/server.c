/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The socket of this process, and the thread that answers at it: it alone touches those who
 * ask, and is told to end by a descriptor that it waits for beside theirs.
 *
 * Bounds	GLK_WIRE_CLIENTS_MAX at once, and no more than a sixteenth of the descriptors
 *		that the process may have; one more takes the place of the one that has been silent
 *		for longest. What one sends and is sent has its own room, which is touched as it
 *		is used. Who reads nothing, or asks nothing, is left after a while
 * Descriptors	that cannot be had are waited for; the queue of the kernel holds those who come
 * Name		the socket is bound under a name of its own and moved to that of the process when it
 *		listens, so that a name of a living process is always one that answers
 * Strangers	a program that closes descriptors it does not know closes these too, and may have
 *		others of their number: each is looked at before it is used for an end, and the
 *		thread ends when one is gone
 * Lock		`glk_wire_descriptors` while any comes or goes, which a fork waits for, so that the child
 *		knows all that it has to close
 */
#include "wire/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define IDLE_MS 30000
#define SLOW_MS 5000
#define EXIT_S	1

pthread_mutex_t glk_wire_descriptors = PTHREAD_MUTEX_INITIALIZER;
struct glk_wire_server glk_wire_server = {.room = -1, .listener = -1, .wake = -1};
glk_atomic(bool) glk_wire_stopped;

static pthread_once_t hooks = PTHREAD_ONCE_INIT;

bool glk_wire_is_ours(int fd)
{
	return glk_wire_is(fd,
		&glk_wire_server.marks[fd == glk_wire_server.room ? 0
				: fd == glk_wire_server.listener  ? 1
								  : 2]);
}

static void close_one(int *fd)
{
	if (glk_wire_is_ours(*fd))
		close(*fd);
	*fd = -1;
}

static void note_descriptors(void)
{
	glk_wire_server.marks[0] = glk_wire_mark_of(glk_wire_server.room);
	glk_wire_server.marks[1] = glk_wire_mark_of(glk_wire_server.listener);
	glk_wire_server.marks[2] = glk_wire_mark_of(glk_wire_server.wake);
}

/* With `glk_wire_descriptors`, or in a child. */
static void close_all(void)
{
	for (int i = 0; i < GLK_WIRE_CLIENTS_MAX; i++)
		if (glk_wire_server.clients[i].fd &&
			glk_wire_is_there(&glk_wire_server.clients[i]))
			close(glk_wire_server.clients[i].fd - 1);
	memset(glk_wire_server.clients, 0, sizeof(glk_wire_server.clients));
	close_one(&glk_wire_server.listener);
	close_one(&glk_wire_server.wake);
	close_one(&glk_wire_server.room);
	glk_wire_server.pid = 0;
	glk_wire_server.ending = false;
	glk_wire_server.aside = NULL;
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&glk_wire_descriptors);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&glk_wire_descriptors);
}

static void fork_child(void)
{
	/* the memory stays: an answer may be half written there */
	if (glk_wire_server.pid)
		close_all();
	glk_wire_descriptors = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* With `glk_wire_descriptors`: the name goes and the thread is told to end. False: somebody has done so. */
static bool tell_end(void)
{
	if (glk_wire_server.pid != getpid() || glk_wire_server.ending)
		return false;
	glk_wire_server.ending = true;
	if (glk_wire_is_ours(glk_wire_server.room))
		unlinkat(glk_wire_server.room, glk_wire_server.name, 0);
	glk_store_relaxed(&glk_wire_stopped, true);
	/* else the thread looks by itself within LOOK_MS */
	if (glk_wire_is_ours(glk_wire_server.wake))
		glk_wire_bell_ring(glk_wire_server.wake);
	return true;
}

/* What is being answered is waited for, since what it is about may go next. */
static void at_end_of_process(void)
{
	struct timespec until;
	bool ends;

	pthread_mutex_lock(&glk_wire_descriptors);
	ends = tell_end();
	pthread_mutex_unlock(&glk_wire_descriptors);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += EXIT_S;
	/* nobody takes the place of another any more */
	if (ends && !pthread_timedjoin_np(glk_wire_server.thread, NULL, &until) &&
		glk_wire_server.aside)
		pthread_timedjoin_np(glk_wire_server.second, NULL, &until);
}

static void set_hooks(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
	atexit(at_end_of_process);
}

/* Whether someone answers at a name. */
static bool is_served(const char *name)
{
	struct glk_wire_peer peer;
	char why[GLK_WIRE_WHY_MAX];
	int fd;

	if (glk_wire_connect(glk_wire_server.room, name, 1, &fd, &peer, why))
		return false;
	close(fd);
	return true;
}

/* With `glk_wire_descriptors`. */
static int listen_at_name(char *why)
{
	char first[GLK_WIRE_NAME_MAX + 4];
	struct sockaddr_un address;
	int err = 0;

	snprintf(first, sizeof(first), ".%s", glk_wire_server.name);
	if (!glk_wire_address(glk_wire_server.room, first, &address))
		return -ENAMETOOLONG;
	glk_wire_server.listener =
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (glk_wire_server.listener < 0)
		return -errno;
	if (is_served(glk_wire_server.name)) {
		snprintf(why, GLK_WIRE_WHY_MAX,
			"process %d of another namespace has a socket of that name",
			glk_wire_server.pid);
		return -EADDRINUSE;
	}
	unlinkat(glk_wire_server.room, first, 0);
	if (bind(glk_wire_server.listener, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	if (fchmodat(glk_wire_server.room, first, 0600, 0) ||
		listen(glk_wire_server.listener, GLK_WIRE_CLIENTS_MAX) ||
		renameat(glk_wire_server.room, first, glk_wire_server.room,
			glk_wire_server.name)) {
		err = -errno;
		unlinkat(glk_wire_server.room, first, 0);
	}
	return err;
}

static void set_options(const struct glk_wire_options *options)
{
	struct rlimit files;

	glk_wire_server.options = *options;
	if (!options->idle_ms)
		glk_wire_server.options.idle_ms = IDLE_MS;
	if (!options->slow_ms)
		glk_wire_server.options.slow_ms = SLOW_MS;
	glk_wire_server.most = GLK_WIRE_CLIENTS_MAX;
	if (!getrlimit(RLIMIT_NOFILE, &files) &&
		files.rlim_cur / 16 < GLK_WIRE_CLIENTS_MAX)
		glk_wire_server.most =
			files.rlim_cur < 32 ? 1 : (int)(files.rlim_cur / 16);
}

/* With `glk_wire_descriptors`. */
static int begin(const struct glk_wire_options *options, char *why)
{
	int err;

	if (!glk_wire_may(geteuid(), geteuid())) {
		snprintf(why, GLK_WIRE_WHY_MAX,
			"user %u cannot be told from users of other namespaces",
			geteuid());
		return -EPERM;
	}
	set_options(options);
	err = glk_wire_room_open(true, &glk_wire_server.room, why);
	if (err)
		return err;
	glk_wire_server.pid = getpid();
	glk_wire_name(glk_wire_server.pid, glk_wire_server.name);
	err = listen_at_name(why);
	if (err)
		goto out;
	err = glk_wire_bell_open(&glk_wire_server.wake);
	if (err)
		goto name;
	glk_wire_server.buffers = mmap(NULL, GLK_WIRE_CLIENTS_MAX * GLK_WIRE_PER_CLIENT,
		PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		0);
	err = glk_wire_server.buffers == MAP_FAILED ? -ENOMEM : 0;
	if (err)
		goto name;
	note_descriptors();
	glk_store_relaxed(&glk_wire_stopped, false);
	err = glk_wire_start_thread();
	if (!err)
		return 0;
	munmap(glk_wire_server.buffers, GLK_WIRE_CLIENTS_MAX * GLK_WIRE_PER_CLIENT);
name:
	unlinkat(glk_wire_server.room, glk_wire_server.name, 0);
out:
	note_descriptors();
	close_all();
	return err;
}

int glk_wire_serve(const struct glk_wire_options *options, char *why)
{
	int err;

	*why = '\0';
	pthread_once(&hooks, set_hooks);
	pthread_mutex_lock(&glk_wire_descriptors);
	err = glk_wire_server.pid ? -EALREADY : begin(options, why);
	pthread_mutex_unlock(&glk_wire_descriptors);
	if (err && !*why)
		snprintf(why, GLK_WIRE_WHY_MAX, "%s", strerror(-err));
	return err;
}

void glk_wire_end(void)
{
	bool ends;

	pthread_mutex_lock(&glk_wire_descriptors);
	ends = tell_end();
	pthread_mutex_unlock(&glk_wire_descriptors);
	if (!ends)
		return;
	pthread_join(glk_wire_server.thread, NULL);
	/* nobody takes the place of another any more */
	if (glk_wire_server.aside)
		pthread_join(glk_wire_server.second, NULL);
	pthread_mutex_lock(&glk_wire_descriptors);
	close_all();
	munmap(glk_wire_server.buffers, GLK_WIRE_CLIENTS_MAX * GLK_WIRE_PER_CLIENT);
	pthread_mutex_unlock(&glk_wire_descriptors);
}
