/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the thread does: it answers guests, hears peers, and lets go of pages of others. It talks to
 * processes of the same user and of root alone. It waits for nobody: what cannot be said or heard now
 * is tried again.
 */
#include "front/preload/ipc.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

/* A descriptor that cannot be had now, or a peer that is asked, may be free soon. */
#define RETRY_MS 50
/* How often it is looked whether pages that are out went back to the driver. */
#define LOOK_MS 100

static pthread_mutex_t serving = PTHREAD_MUTEX_INITIALIZER;

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

/* False where no descriptor is left. */
static bool greet(void)
{
	int listener = glk_preload_ipc_listener(), fd, err;

	if (listener < 0)
		return true;
	glk_preload_ipc_fds_lock();
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
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
	bool retry = !r->room || !r->heard || r->rest;
	int bell = glk_preload_ipc_bell();

	polled[0] = (struct pollfd){.fd = bell, .events = POLLIN};
	polled[1] = (struct pollfd){
		.fd = r->room ? glk_preload_ipc_listener() : -1, .events = POLLIN};
	r->guests = glk_preload_ipc_guests_poll(&polled[2]);
	r->peers = r->heard ? glk_preload_ipc_peers_poll(&polled[2 + r->guests]) : 0;
	return glk_wire_poll(polled, 2 + r->guests + r->peers,
		retry			      ? RETRY_MS
			: r->lent || bell < 0 ? LOOK_MS
					      : -1);
}

static void attend(struct round *r)
{
	int bell = glk_preload_ipc_bell();

	if (r->polled[0].revents && bell >= 0)
		glk_wire_bell_hear(bell);
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

void glk_preload_ipc_leave(const struct glk_preload_seat *seat)
{
	pthread_mutex_lock(&serving);
	glk_preload_ipc_given_leave(seat);
	glk_preload_ipc_guests_leave(seat);
	pthread_mutex_unlock(&serving);
	glk_preload_ipc_wake();
}

/* At exit waits for an answer that is being given. */
static void stop(void)
{
	struct timespec until;

	/* an answer that is being given ends before the driver does; one that hangs is left */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (!pthread_mutex_timedlock(&serving, &until))
		pthread_mutex_unlock(&serving);
}

void glk_preload_ipc_child(void)
{
	glk_preload_ipc_thread_child();
	serving = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	glk_preload_ipc_guests_child();
	glk_preload_ipc_peers_child();
	glk_preload_ipc_given_child();
	glk_preload_ipc_opened_child();
}

void glk_preload_ipc_ready(void)
{
	glk_preload_on_exit(stop);
	glk_preload_ipc_serves(serve);
}
