/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The thread, and what it and others find it by. It begins when a process gives its first handle, or
 * opens one of another process; a process that does neither has none. It takes no
 * signal, ends with the process, and is not there in a forked child. It listens at an abstract
 * address with a random name, which needs no directory and works wherever two processes have one
 * network namespace. A program that closes descriptors it does not know closes these too: each is
 * looked at before it is used, and what is left goes on, without new handles and with nothing kept.
 *
 * What the thread does stands above this (ipc_serve.c), and is told before it begins.
 */
#include "front/preload/ipc.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static pthread_mutex_t fds_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
static glk_atomic(glk_preload_ipc_body *) body;

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

void glk_preload_ipc_wake(void)
{
	/* a program that closes what it does not know may have another one of that number */
	if (glk_load_relaxed(&runs) && glk_wire_is(wake, &wake_mark))
		glk_wire_bell_ring(wake);
}

/* One that nobody has closed; else -1. */
int glk_preload_ipc_listener(void)
{
	int fd = glk_load_acquire(&listener); /* pairs with: listen_at_name */

	return fd >= 0 && glk_wire_is(fd, &listener_mark) ? fd : -1;
}

int glk_preload_ipc_bell(void)
{
	return glk_wire_is(wake, &wake_mark) ? wake : -1;
}

void glk_preload_ipc_serves(glk_preload_ipc_body *fn)
{
	glk_store_release(&body, fn); /* pairs with: begin */
}

/* With `beginning`. */
static int begin(void)
{
	sigset_t all, before;
	pthread_t thread;
	int err;

	if (glk_load_relaxed(&runs))
		return glk_preload_ipc_bell() < 0 ? -EAGAIN : 0;
	glk_preload_ipc_fds_lock();
	err = glk_wire_bell_open(&wake);
	glk_preload_ipc_fds_unlock();
	if (err)
		return -EAGAIN;
	wake_mark = glk_wire_mark_of(wake);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* pairs with: glk_preload_ipc_serves */
	err = pthread_create(&thread, NULL, glk_load_acquire(&body), NULL);
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
		return glk_preload_ipc_bell() < 0 ? -EAGAIN : 0;
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
		glk_store_release(
			&listener, fd); /* pairs with: glk_preload_ipc_listener */
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
	} else if (glk_preload_ipc_listener() < 0) {
		err = -EAGAIN;
	}
	if (!err) {
		memcpy(ret_name, own_name, sizeof(own_name));
		*ret_uid = own_uid;
	}
	pthread_mutex_unlock(&beginning);
	return err;
}

void glk_preload_ipc_thread_child(void)
{
	if (glk_preload_ipc_listener() >= 0)
		close(glk_load_relaxed(&listener));
	if (wake >= 0 && glk_preload_ipc_bell() >= 0)
		close(wake);
	glk_store_relaxed(&listener, -1);
	wake = -1;
	glk_store_relaxed(&listens, false);
	glk_store_relaxed(&runs, false);
	beginning = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
