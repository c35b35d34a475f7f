/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The thread that answers. A long answer is finished by the thread that has begun it, which keeps the
 * one who asked and touches nothing else, while another one takes its place; there are two at most.
 */
#include "wire/server.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOK_MS	 500 /* how often it is looked who has been silent for so long */
#define RETRY_MS 50  /* a descriptor that cannot be had now may be there soon */
#define BURST	 16  /* of those who come, before those who are there have their turn */

static glk_atomic(bool) is_given; /* the long answer */

/* Of a thread that answers: who is answered; whether that takes long. How many have come. */
static _Thread_local struct glk_wire_client *asking;
static _Thread_local bool takes_long;
static uint64_t come;

static void *serve(void *arg);

int glk_wire_start_thread(void)
{
	return -glk_thread_start(&glk_wire_server.thread,
		glk_wire_server.options.thread_name, serve, NULL);
}

/* With `glk_wire_descriptors`. */
static void leave(struct glk_wire_client *client)
{
	if (glk_wire_is_there(client)) {
		/* it hears of it even where a child was forked past our hooks */
		shutdown(client->fd - 1, SHUT_RDWR);
		close(client->fd - 1);
	}
	client->fd = 0;
	if (glk_wire_server.options.left)
		glk_wire_server.options.left(client->number, glk_wire_server.options.arg);
	madvise(client->in, GLK_WIRE_PER_CLIENT, MADV_DONTNEED);
}

/* A place for one more; with `glk_wire_descriptors`. NULL: the only one is taken for long. */
static struct glk_wire_client *find_place(void)
{
	struct glk_wire_client *silent = NULL;

	for (int i = 0; i < glk_wire_server.most; i++) {
		struct glk_wire_client *client = &glk_wire_server.clients[i];

		if (!client->fd)
			return client;
		if (client != glk_wire_server.aside &&
			(!silent || client->since < silent->since))
			silent = client;
	}
	if (silent)
		leave(silent);
	return silent;
}

/* With `descriptors`: the next of those who wait. 0 or an error of accept(2). */
static int take_next(void)
{
	int fd = accept4(
		glk_wire_server.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct glk_wire_client *client;
	struct glk_wire_peer peer;
	char *room;

	if (fd < 0)
		return errno;
	if (glk_wire_peer(fd, &peer) || !glk_wire_may(peer.uid, geteuid())) {
		close(fd);
		return ECONNABORTED;
	}
	client = find_place();
	if (!client) {
		close(fd);
		return ECONNABORTED;
	}
	room = glk_wire_server.buffers +
		(size_t)(client - glk_wire_server.clients) * GLK_WIRE_PER_CLIENT;
	*client = (struct glk_wire_client){.fd = fd + 1,
		.mark = glk_wire_mark_of(fd),
		.since = glk_clock_ns(),
		.number = ++come,
		.in = room,
		.out = room + GLK_WIRE_QUESTION_MAX};
	return 0;
}

/* False if no descriptor is to be had, or nobody is there any more. */
static bool greet(bool *ret_retry)
{
	int err;

	pthread_mutex_lock(&glk_wire_descriptors);
	err = take_next();
	pthread_mutex_unlock(&glk_wire_descriptors);
	*ret_retry = err && err != EAGAIN && err != ECONNABORTED && err != EINTR;
	return !err || err == ECONNABORTED || err == EINTR;
}

void glk_wire_pass(int fd)
{
	glk_wire_client_pass(asking, fd);
}

uint64_t glk_wire_asker(void)
{
	return asking->number;
}

static size_t answer(const char *line, size_t length, char *text, size_t size, void *arg)
{
	/* not while the process ends: what it is about goes too */
	return glk_load_relaxed(&glk_wire_stopped)
		? 0
		: glk_wire_server.options.answer(
			  line, length, text, size, glk_wire_server.options.arg);
}

static void attend(struct glk_wire_client *client, short events)
{
	const struct glk_wire_options *own = &glk_wire_server.options;
	const struct glk_wire_options guarded = {.answer = answer};
	int64_t now = glk_clock_ns();
	int64_t patience = client->out_used ? own->slow_ms : own->idle_ms;
	bool goes;

	asking = client;
	goes = !glk_wire_is_there(client) ||
		(events || (client->more && !client->out_used)
				? !glk_wire_client_attend(client, events, &guarded, now)
				: now - client->since > patience * 1000000);

	if (takes_long)
		client->gone = goes;
	if (!goes || takes_long)
		return;
	pthread_mutex_lock(&glk_wire_descriptors);
	leave(client);
	pthread_mutex_unlock(&glk_wire_descriptors);
}

/* A long answer has been given: who has it is one of all again. */
static void take_back(void)
{
	struct glk_wire_client *client = glk_wire_server.aside;

	/* pairs with: the release at the end of serve */
	if (!client || !glk_load_acquire(&is_given))
		return;
	pthread_join(glk_wire_server.second, NULL);
	pthread_mutex_lock(&glk_wire_descriptors);
	if (glk_wire_is_ours(glk_wire_server.wake))
		glk_wire_bell_hear(glk_wire_server.wake);
	glk_wire_server.aside = NULL;
	client->aside = false;
	if (client->gone)
		leave(client);
	pthread_mutex_unlock(&glk_wire_descriptors);
}

/* Somebody has closed what is not his. */
static bool are_gone(void)
{
	bool gone;

	pthread_mutex_lock(&glk_wire_descriptors);
	gone = !glk_wire_is_ours(glk_wire_server.listener) ||
		!glk_wire_is_ours(glk_wire_server.wake);
	pthread_mutex_unlock(&glk_wire_descriptors);
	return gone;
}

/* Does what is due, not while the process ends; for how long to wait then, ms. */
static int do_due(int most)
{
	int wait = -1;

	if (glk_wire_server.options.due && !glk_load_relaxed(&glk_wire_stopped))
		wait = glk_wire_server.options.due(glk_wire_server.options.arg);
	return wait < 0 || wait > most ? most : wait;
}

void glk_wire_takes_long(void)
{
	pthread_t own;

	if (!takes_long)
		take_back();
	pthread_mutex_lock(&glk_wire_descriptors);
	own = glk_wire_server.thread;
	if (!takes_long && !glk_wire_server.aside && !glk_wire_server.ending &&
		glk_wire_server.pid == getpid()) {
		glk_store_relaxed(&is_given, false);
		glk_wire_server.aside = asking;
		asking->aside = true;
		glk_wire_server.second = own;
		takes_long = !glk_wire_start_thread();
	}
	if (glk_wire_server.aside == asking && !takes_long) {
		glk_wire_server.aside = NULL;
		asking->aside = false;
		glk_wire_server.thread = own;
	}
	pthread_mutex_unlock(&glk_wire_descriptors);
}

bool glk_wire_is_aside(void)
{
	return takes_long;
}

/* The answer is given, and another thread serves. */
static void *end_long(void)
{
	glk_store_release(&is_given, true); /* pairs with: the acquire in take_back */
	pthread_mutex_lock(&glk_wire_descriptors);
	if (glk_wire_is_ours(glk_wire_server.wake) && !glk_wire_server.ending)
		glk_wire_bell_ring(glk_wire_server.wake);
	pthread_mutex_unlock(&glk_wire_descriptors);
	return NULL;
}

static void *serve(void *arg)
{
	struct pollfd polled[GLK_WIRE_CLIENTS_MAX + 2];
	struct glk_wire_client *of[GLK_WIRE_CLIENTS_MAX + 2];
	bool retry = false;

	while (!glk_load_relaxed(&glk_wire_stopped)) {
		nfds_t count = 2;
		bool more =
			false; /* questions that have been taken and wait for their turn */

		take_back();
		polled[0] = (struct pollfd){.fd = glk_wire_server.wake, .events = POLLIN};
		polled[1] = (struct pollfd){
			.fd = retry ? -1 : glk_wire_server.listener, .events = POLLIN};
		for (int i = 0; i < glk_wire_server.most; i++) {
			if (!glk_wire_server.clients[i].fd ||
				glk_wire_server.clients[i].aside)
				continue;
			of[count] = &glk_wire_server.clients[i];
			more |= of[count]->more && !of[count]->out_used;
			polled[count++] =
				(struct pollfd){.fd = glk_wire_server.clients[i].fd - 1,
					.events = glk_wire_client_wants(
						&glk_wire_server.clients[i])};
		}
		if (glk_wire_poll(polled, count,
			    do_due(more		    ? 0
					    : retry ? RETRY_MS
						    : LOOK_MS)) < 0)
			continue;
		if (are_gone())
			break;
		retry = false;
		for (nfds_t i = 2; i < count; i++) {
			attend(of[i], polled[i].revents);
			if (takes_long)
				return end_long();
		}
		for (int i = 0; polled[1].revents && i < BURST && greet(&retry); i++)
			;
	}
	return arg;
}
