/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The thread. It begins when a process gives its first handle, or opens one of another process; a
 * process that does neither has none. It takes no
 * signal, ends with the process, and is not there in a forked child. It listens at an abstract
 * address with a random name, which needs no directory and works wherever two processes have one
 * network namespace, and talks to processes of the same user and of root alone. It waits for
 * nobody: what cannot be said or heard now is tried again. A program that closes descriptors it does
 * not know closes these too: each is looked at before it is used, and what is left goes on, without
 * new handles and with nothing kept.
 */
#include "front/preload_ipc.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A descriptor that cannot be had now, or a peer that is asked, may be free soon. */
#define RETRY_MS 50
/* How often it is looked whether pages that are out went back to the driver. */
#define LOOK_MS 100

static pthread_mutex_t fds_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t serving = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;

static unsigned char own_name[GLK_PRELOAD_IPC_NAME];
static uint32_t own_uid;
static glk_atomic(bool) runs, listens;

/* Made under `beginning` and `fds_lock`, once. */
static glk_atomic(int) listener = -1;
static int wake = -1;
static struct glk_wire_mark wake_mark, listener_mark;

void glk_preload_ipc_fds_lock(void)
{
	pthread_mutex_lock(&fds_lock);
}

void glk_preload_ipc_fds_unlock(void)
{
	pthread_mutex_unlock(&fds_lock);
}

unsigned int glk_preload_ipc_address(
	const unsigned char *name, void *ret_address, size_t size)
{
	static const char digit[] = "0123456789abcdef", begin[] = "glake-";
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char *at = address.sun_path + 1; /* behind a zero: abstract */

	memcpy(at, begin, sizeof(begin) - 1);
	at += sizeof(begin) - 1;
	for (int i = 0; i < GLK_PRELOAD_IPC_NAME; i++) {
		*at++ = digit[name[i] >> 4];
		*at++ = digit[name[i] & 15];
	}
	memcpy(ret_address, &address, size < sizeof(address) ? size : sizeof(address));
	return (unsigned int)(at - (char *)&address);
}

bool glk_preload_ipc_is_own(const struct glk_preload_ipc_handle *handle)
{
	return glk_load_acquire(&listens) && /* pairs with: glk_preload_ipc_listen */
		!memcmp(handle->name, own_name, sizeof(own_name));
}

uint64_t glk_preload_ipc_unhand(const void *ptr)
{
	uint64_t id;

	if (!glk_preload_ipc_is_given(ptr))
		return 0;
	/* it may be about to leave */
	pthread_mutex_lock(&serving);
	id = glk_preload_ipc_given_drop(ptr);
	pthread_mutex_unlock(&serving);
	return id;
}

void glk_preload_ipc_freed(uint64_t id)
{
	bool tell;

	if (!id)
		return;
	pthread_mutex_lock(&serving);
	tell = glk_preload_ipc_holds_freed(id);
	pthread_mutex_unlock(&serving);
	if (tell)
		glk_preload_ipc_wake();
}

void glk_preload_ipc_wake(void)
{
	/* a program that closes what it does not know may have another one of that number */
	if (glk_load_relaxed(&runs) && glk_wire_is(wake, &wake_mark))
		glk_wire_bell_ring(wake);
}

/* One that nobody has closed; else -1. */
static int own_listener(void)
{
	int fd = glk_load_acquire(&listener); /* pairs with: listen_at_name */

	return fd >= 0 && glk_wire_is(fd, &listener_mark) ? fd : -1;
}

static bool has_wake(void)
{
	return glk_wire_is(wake, &wake_mark);
}

/* False where no descriptor is left. */
static bool greet(void)
{
	int fd, err;

	if (own_listener() < 0)
		return true;
	glk_preload_ipc_fds_lock();
	fd = accept4(
		glk_load_relaxed(&listener), NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	err = errno;
	glk_preload_ipc_fds_unlock();
	if (fd >= 0)
		glk_preload_ipc_guest_add(fd);
	return fd >= 0 || (err != EMFILE && err != ENFILE && err != ENOMEM);
}

struct round {
	struct pollfd polled[2 + GLK_PRELOAD_IPC_GUEST_POLLS + GLK_PRELOAD_IPC_PEERS];
	size_t guests, peers;
	bool room, heard; /* of a descriptor; all that peers said */
	bool rest, lent;  /* to be said; pages */
};

static int wait_for_more(struct round *r)
{
	struct pollfd *polled = r->polled;
	bool retry = !r->room || !r->heard || r->rest, deaf = !has_wake();

	polled[0] = (struct pollfd){.fd = deaf ? -1 : wake, .events = POLLIN};
	polled[1] =
		(struct pollfd){.fd = r->room ? own_listener() : -1, .events = POLLIN};
	r->guests = glk_preload_ipc_guests_poll(&polled[2]);
	r->peers = r->heard ? glk_preload_ipc_peers_poll(&polled[2 + r->guests]) : 0;
	return glk_wire_poll(polled, 2 + r->guests + r->peers,
		retry			  ? RETRY_MS
			: r->lent || deaf ? LOOK_MS
					  : -1);
}

static void attend(struct round *r)
{
	if (r->polled[0].revents && has_wake())
		glk_wire_bell_hear(wake);
	glk_preload_ipc_guests_attend(&r->polled[2], r->guests);
	r->heard = glk_preload_ipc_peers_attend(&r->polled[2 + r->guests], r->peers);
	glk_preload_ipc_end_unwanted();
	r->rest = glk_preload_ipc_tell_rest();
	r->lent = glk_preload_ipc_guests_remind();
	r->room = !r->polled[1].revents || greet();
}

static void *serve(void *arg)
{
	static struct round round;
	bool goes_on = true;

	round = (struct round){.room = true, .heard = true};
	glk_preload_inside = true;
	while (goes_on && !glk_preload_stopped()) {
		if (wait_for_more(&round) < 0)
			continue;
		/* not while the process ends: the driver goes too */
		pthread_mutex_lock(&serving);
		goes_on = !glk_preload_stopped();
		if (goes_on)
			attend(&round);
		pthread_mutex_unlock(&serving);
	}
	return arg;
}

/* With `beginning`. */
static int begin(void)
{
	sigset_t all, before;
	pthread_t thread;
	int err;

	if (glk_load_relaxed(&runs))
		return has_wake() ? 0 : -EAGAIN;
	glk_preload_ipc_fds_lock();
	err = glk_wire_bell_open(&wake);
	glk_preload_ipc_fds_unlock();
	if (err)
		return -EAGAIN;
	wake_mark = glk_wire_mark_of(wake);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, NULL, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		glk_preload_ipc_fds_lock();
		close(wake);
		wake = -1;
		glk_preload_ipc_fds_unlock();
		return -EAGAIN;
	}
	pthread_setname_np(thread, "glake-ipc");
	pthread_detach(thread);
	glk_store_release(&runs, true); /* pairs with: glk_preload_ipc_begin */
	return 0;
}

int glk_preload_ipc_begin(void)
{
	int err;

	if (glk_load_acquire(&runs)) /* pairs with: begin */
		return has_wake() ? 0 : -EAGAIN;
	pthread_mutex_lock(&beginning);
	err = glk_preload_stopped() ? -EAGAIN : begin();
	pthread_mutex_unlock(&beginning);
	return err;
}

static int listen_at_name(void)
{
	struct sockaddr_un address;
	unsigned int length;
	int fd, err = 0;

	if (getrandom(own_name, sizeof(own_name), 0) != sizeof(own_name))
		return -EAGAIN;
	own_uid = geteuid();
	length = glk_preload_ipc_address(own_name, &address, sizeof(address));
	glk_preload_ipc_fds_lock();
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) ||
		listen(fd, GLK_PRELOAD_IPC_GUESTS)) {
		err = -EAGAIN;
		if (fd >= 0)
			close(fd);
	} else {
		listener_mark = glk_wire_mark_of(fd);
		glk_store_release(&listener, fd); /* pairs with: own_listener */
	}
	glk_preload_ipc_fds_unlock();
	return err;
}

int glk_preload_ipc_listen(unsigned char *ret_name, uint32_t *ret_uid)
{
	int err = 0;

	if (!glk_wire_may(geteuid(), geteuid()))
		return -EPERM;
	pthread_mutex_lock(&beginning);
	if (!glk_load_relaxed(&listens)) {
		err = begin();
		if (!err)
			err = listen_at_name();
		if (!err)
			glk_store_release(&listens, true); /* pairs with: is_own */
		glk_preload_ipc_wake();
	} else if (own_listener() < 0) {
		err = -EAGAIN;
	}
	if (!err) {
		memcpy(ret_name, own_name, sizeof(own_name));
		*ret_uid = own_uid;
	}
	pthread_mutex_unlock(&beginning);
	return err;
}

void glk_preload_ipc_leave(const struct glk_preload_seat *seat)
{
	pthread_mutex_lock(&serving);
	glk_preload_ipc_given_leave(seat);
	glk_preload_ipc_guests_leave(seat);
	pthread_mutex_unlock(&serving);
	glk_preload_ipc_wake();
}

void glk_preload_ipc_stop(void)
{
	struct timespec until;

	if (!glk_load_relaxed(&runs))
		return;
	/* an answer that is being given ends before the driver does; one that hangs is left */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (!pthread_mutex_timedlock(&serving, &until))
		pthread_mutex_unlock(&serving);
}

void glk_preload_ipc_child(void)
{
	if (own_listener() >= 0)
		close(glk_load_relaxed(&listener));
	if (wake >= 0 && has_wake())
		close(wake);
	glk_store_relaxed(&listener, -1);
	wake = -1;
	glk_store_relaxed(&listens, false);
	glk_store_relaxed(&runs, false);
	serving = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	beginning = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	glk_preload_ipc_guests_child();
	glk_preload_ipc_peers_child();
	glk_preload_ipc_ask_child();
	glk_preload_ipc_given_child();
	glk_preload_ipc_opened_child();
	glk_preload_ipc_ending_child();
}
