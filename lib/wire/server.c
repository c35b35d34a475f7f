/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The socket of this process, and the thread that answers at it: it alone touches those who
 * ask, and is told to end by a descriptor that it waits for beside theirs. A long answer is finished by
 * the thread that has begun it, which keeps the one who asked and touches nothing else, while another
 * one takes its place; there are two at most. Nothing is read of one that asks while an answer waits to
 * be taken, so that it holds no more than one question and one answer's room, and whoever does not
 * read is not listened to either.
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
 * Lock		`descriptors` while any comes or goes, which a fork waits for, so that the child
 *		knows all that it has to close
 */
#include "base/atomic.h"
#include "base/clock.h"
#include "base/thread.h"
#include "wire/address.h"
#include "wire/wire.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define IDLE_MS	 30000
#define SLOW_MS	 5000
#define EXIT_S	 1
#define LOOK_MS	 500 /* how often it is looked who has been silent for so long */
#define RETRY_MS 50  /* a descriptor that cannot be had now may be there soon */
#define BURST	 16  /* of those who come, before those who are there have their turn */
/* Questions that one may have answered before others have their turn, and for how long, ns. */
#define TURN	16
#define TURN_NS INT64_C(2000000)

struct client {
	int fd; /* one more than it is: 0 is none */
	struct glk_wire_mark mark;
	bool half;	 /* it asks nothing more */
	bool last;	 /* nothing more is taken of it */
	bool more;	 /* there may be a whole question in `in` */
	bool aside;	 /* its answer takes long: it is of the thread that gives it, */
	bool gone;	 /* which has found that it is to be left */
	int64_t since;	 /* ns, when it took or gave something last */
	size_t in_used;	 /* bytes of questions */
	size_t out_used; /* of an answer */
	size_t out_sent;
	char *in;  /* GLK_WIRE_QUESTION_MAX */
	char *out; /* GLK_WIRE_ANSWER_MAX */
};

/* Bytes of memory for one that asks. */
#define PER_CLIENT (GLK_WIRE_QUESTION_MAX + GLK_WIRE_ANSWER_MAX)

/* Of this process. */
static struct {
	struct glk_wire_options options;
	pthread_t thread;
	pid_t pid;   /* whose it is; 0: there is none */
	bool ending; /* somebody waits for the thread */
	/* With a long answer: the thread that gives it, and whom to. */
	pthread_t second;
	struct client *aside; /* NULL: there is none */
	int room, listener, wake;
	struct glk_wire_mark marks[3]; /* of these, as they were made */
	char name[GLK_WIRE_NAME_MAX];
	int most; /* clients */
	char *buffers;
	struct client clients[GLK_WIRE_CLIENTS_MAX];
} server = {.room = -1, .listener = -1, .wake = -1};

/* While any descriptor comes or goes, which a fork waits for. */
static pthread_mutex_t descriptors = PTHREAD_MUTEX_INITIALIZER;
static glk_atomic(bool) stopped;
static glk_atomic(bool) is_given; /* the long answer */

/* Of a thread that answers: who is answered; whether that takes long. */
static _Thread_local struct client *asking;
static _Thread_local bool takes_long;

static pthread_once_t hooks = PTHREAD_ONCE_INIT;

/* Whether a descriptor of the server is still what it was; likewise one who asks. */
static bool is_ours(int fd)
{
	return glk_wire_is(fd,
		&server.marks[fd == server.room		? 0
				: fd == server.listener ? 1
							: 2]);
}

static bool is_there(const struct client *client)
{
	return glk_wire_is(client->fd - 1, &client->mark);
}

/* What to wait for, as poll(2) has it. */
static short wants(const struct client *client)
{
	if (client->out_used)
		return POLLOUT;
	return client->half || client->last ? 0 : POLLIN;
}

/* False: it takes nothing any more. */
static bool flush(struct client *c, int64_t now_ns)
{
	ssize_t sent;

	while (c->out_sent < c->out_used) {
		sent = send(c->fd - 1, c->out + c->out_sent, c->out_used - c->out_sent,
			MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN;
		c->out_sent += (size_t)sent;
		c->since = now_ns;
	}
	c->out_used = c->out_sent = 0;
	return true;
}

/* False: it has gone. */
static bool take(struct client *c, int64_t now_ns)
{
	ssize_t got = recv(c->fd - 1, c->in + c->in_used,
		GLK_WIRE_QUESTION_MAX - c->in_used, MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR;
	if (!got)
		c->half = true;
	else
		c->since = now_ns;
	c->in_used += (size_t)got;
	c->more = true;
	return true;
}

static size_t answer(const char *line, size_t length, char *text)
{
	/* not while the process ends: what it is about goes too */
	return glk_load_relaxed(&stopped)
		? 0
		: server.options.answer(
			  line, length, text, GLK_WIRE_ANSWER_MAX, server.options.arg);
}

/* Answers the first question that is whole; a last one needs no end of its line. */
static bool answer_next(struct client *c)
{
	char *end = memchr(c->in, '\n', c->in_used);
	size_t length = end ? (size_t)(end - c->in) : c->in_used;
	bool whole = end || (c->half && c->in_used);
	const char *line = c->in;

	if (!whole && c->in_used < GLK_WIRE_QUESTION_MAX) {
		c->more = false;
		return false;
	}
	if (!whole) {
		c->last = true;
		line = NULL;
		length = 0;
	}
	c->out_used = answer(line, length, c->out);
	if (!line || !end) {
		c->in_used = 0;
		return true;
	}
	c->in_used -= length + 1;
	memmove(c->in, end + 1, c->in_used);
	return true;
}

/* What it has to say or to take; `events` as poll(2) has them. False: it is to be left. */
static bool attend_client(struct client *c, short events, int64_t now_ns)
{
	int left = TURN;
	bool tired = false;

	if (c->out_used && !flush(c, now_ns))
		return false;
	if (!c->out_used && events & (POLLIN | POLLHUP | POLLERR) && !c->half &&
		!c->last && c->in_used < GLK_WIRE_QUESTION_MAX && !take(c, now_ns))
		return false;
	while (!tired && !c->out_used && !c->last && left-- && answer_next(c)) {
		/* an answer may take long, and is no silence of who waits for it */
		c->since = glk_clock_ns();
		if (!flush(c, c->since))
			return false;
		tired = takes_long || c->since - now_ns > TURN_NS;
	}
	return c->out_used || !(c->last || (c->half && !c->more));
}

static void *serve(void *arg);

/* 0 or -errno. */
static int start_thread(void)
{
	return -glk_thread_start(&server.thread, server.options.thread_name, serve, NULL);
}

/* With `descriptors`. */
static void leave(struct client *client)
{
	if (is_there(client)) {
		/* it hears of it even where a child was forked past our hooks */
		shutdown(client->fd - 1, SHUT_RDWR);
		close(client->fd - 1);
	}
	client->fd = 0;
	if (server.options.left)
		server.options.left(server.options.arg);
	madvise(client->in, PER_CLIENT, MADV_DONTNEED);
}

/* A place for one more; with `descriptors`. NULL: the only one is taken for long. */
static struct client *find_place(void)
{
	struct client *silent = NULL;

	for (int i = 0; i < server.most; i++) {
		struct client *client = &server.clients[i];

		if (!client->fd)
			return client;
		if (client != server.aside && (!silent || client->since < silent->since))
			silent = client;
	}
	if (silent)
		leave(silent);
	return silent;
}

/* With `descriptors`: the next of those who wait. 0 or an error of accept(2). */
static int take_next(void)
{
	int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *client;
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
	room = server.buffers + (size_t)(client - server.clients) * PER_CLIENT;
	*client = (struct client){.fd = fd + 1,
		.mark = glk_wire_mark_of(fd),
		.since = glk_clock_ns(),
		.in = room,
		.out = room + GLK_WIRE_QUESTION_MAX};
	return 0;
}

/* False if no descriptor is to be had, or nobody is there any more. */
static bool greet(bool *ret_retry)
{
	int err;

	pthread_mutex_lock(&descriptors);
	err = take_next();
	pthread_mutex_unlock(&descriptors);
	*ret_retry = err && err != EAGAIN && err != ECONNABORTED && err != EINTR;
	return !err || err == ECONNABORTED || err == EINTR;
}

static void attend(struct client *client, short events)
{
	const struct glk_wire_options *own = &server.options;
	int64_t now = glk_clock_ns();
	int64_t patience = client->out_used ? own->slow_ms : own->idle_ms;
	bool goes;

	asking = client;
	goes = !is_there(client) ||
		(events || (client->more && !client->out_used)
				? !attend_client(client, events, now)
				: now - client->since > patience * 1000000);

	if (takes_long)
		client->gone = goes;
	if (!goes || takes_long)
		return;
	pthread_mutex_lock(&descriptors);
	leave(client);
	pthread_mutex_unlock(&descriptors);
}

/* A long answer has been given: who has it is one of all again. */
static void take_back(void)
{
	struct client *client = server.aside;

	/* pairs with: the release at the end of serve */
	if (!client || !glk_load_acquire(&is_given))
		return;
	pthread_join(server.second, NULL);
	pthread_mutex_lock(&descriptors);
	if (is_ours(server.wake))
		glk_wire_bell_hear(server.wake);
	server.aside = NULL;
	client->aside = false;
	if (client->gone)
		leave(client);
	pthread_mutex_unlock(&descriptors);
}

/* Somebody has closed what is not his. */
static bool are_gone(void)
{
	bool gone;

	pthread_mutex_lock(&descriptors);
	gone = !is_ours(server.listener) || !is_ours(server.wake);
	pthread_mutex_unlock(&descriptors);
	return gone;
}

void glk_wire_takes_long(void)
{
	pthread_t own;

	if (!takes_long)
		take_back();
	pthread_mutex_lock(&descriptors);
	own = server.thread;
	if (!takes_long && !server.aside && !server.ending && server.pid == getpid()) {
		glk_store_relaxed(&is_given, false);
		server.aside = asking;
		asking->aside = true;
		server.second = own;
		takes_long = !start_thread();
	}
	if (server.aside == asking && !takes_long) {
		server.aside = NULL;
		asking->aside = false;
		server.thread = own;
	}
	pthread_mutex_unlock(&descriptors);
}

/* The answer is given, and another thread serves. */
static void *end_long(void)
{
	glk_store_release(&is_given, true); /* pairs with: the acquire in take_back */
	pthread_mutex_lock(&descriptors);
	if (is_ours(server.wake) && !server.ending)
		glk_wire_bell_ring(server.wake);
	pthread_mutex_unlock(&descriptors);
	return NULL;
}

static void *serve(void *arg)
{
	struct pollfd polled[GLK_WIRE_CLIENTS_MAX + 2];
	struct client *of[GLK_WIRE_CLIENTS_MAX + 2];
	bool retry = false;

	while (!glk_load_relaxed(&stopped)) {
		nfds_t count = 2;
		bool more =
			false; /* questions that have been taken and wait for their turn */

		take_back();
		polled[0] = (struct pollfd){.fd = server.wake, .events = POLLIN};
		polled[1] = (struct pollfd){
			.fd = retry ? -1 : server.listener, .events = POLLIN};
		for (int i = 0; i < server.most; i++) {
			if (!server.clients[i].fd || server.clients[i].aside)
				continue;
			of[count] = &server.clients[i];
			more |= of[count]->more && !of[count]->out_used;
			polled[count++] = (struct pollfd){.fd = server.clients[i].fd - 1,
				.events = wants(&server.clients[i])};
		}
		if (glk_wire_poll(polled, count,
			    more	    ? 0
				    : retry ? RETRY_MS
					    : LOOK_MS) < 0)
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

static void close_one(int *fd)
{
	if (is_ours(*fd))
		close(*fd);
	*fd = -1;
}

static void note_descriptors(void)
{
	server.marks[0] = glk_wire_mark_of(server.room);
	server.marks[1] = glk_wire_mark_of(server.listener);
	server.marks[2] = glk_wire_mark_of(server.wake);
}

/* With `descriptors`, or in a child. */
static void close_all(void)
{
	for (int i = 0; i < GLK_WIRE_CLIENTS_MAX; i++)
		if (server.clients[i].fd && is_there(&server.clients[i]))
			close(server.clients[i].fd - 1);
	memset(server.clients, 0, sizeof(server.clients));
	close_one(&server.listener);
	close_one(&server.wake);
	close_one(&server.room);
	server.pid = 0;
	server.ending = false;
	server.aside = NULL;
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&descriptors);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&descriptors);
}

static void fork_child(void)
{
	/* the memory stays: an answer may be half written there */
	if (server.pid)
		close_all();
	descriptors = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* With `descriptors`: the name goes and the thread is told to end. False: somebody has done so. */
static bool tell_end(void)
{
	if (server.pid != getpid() || server.ending)
		return false;
	server.ending = true;
	if (is_ours(server.room))
		unlinkat(server.room, server.name, 0);
	glk_store_relaxed(&stopped, true);
	/* else the thread looks by itself within LOOK_MS */
	if (is_ours(server.wake))
		glk_wire_bell_ring(server.wake);
	return true;
}

/* What is being answered is waited for, since what it is about may go next. */
static void at_end_of_process(void)
{
	struct timespec until;
	bool ends;

	pthread_mutex_lock(&descriptors);
	ends = tell_end();
	pthread_mutex_unlock(&descriptors);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += EXIT_S;
	/* nobody takes the place of another any more */
	if (ends && !pthread_timedjoin_np(server.thread, NULL, &until) && server.aside)
		pthread_timedjoin_np(server.second, NULL, &until);
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

	if (glk_wire_connect(server.room, name, 1, &fd, &peer, why))
		return false;
	close(fd);
	return true;
}

/* With `descriptors`. */
static int listen_at_name(char *why)
{
	char first[GLK_WIRE_NAME_MAX + 4];
	struct sockaddr_un address;
	int err = 0;

	snprintf(first, sizeof(first), ".%s", server.name);
	if (!glk_wire_address(server.room, first, &address))
		return -ENAMETOOLONG;
	server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server.listener < 0)
		return -errno;
	if (is_served(server.name)) {
		snprintf(why, GLK_WIRE_WHY_MAX,
			"process %d of another namespace has a socket of that name",
			server.pid);
		return -EADDRINUSE;
	}
	unlinkat(server.room, first, 0);
	if (bind(server.listener, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	if (fchmodat(server.room, first, 0600, 0) ||
		listen(server.listener, GLK_WIRE_CLIENTS_MAX) ||
		renameat(server.room, first, server.room, server.name)) {
		err = -errno;
		unlinkat(server.room, first, 0);
	}
	return err;
}

static void set_options(const struct glk_wire_options *options)
{
	struct rlimit files;

	server.options = *options;
	if (!options->idle_ms)
		server.options.idle_ms = IDLE_MS;
	if (!options->slow_ms)
		server.options.slow_ms = SLOW_MS;
	server.most = GLK_WIRE_CLIENTS_MAX;
	if (!getrlimit(RLIMIT_NOFILE, &files) &&
		files.rlim_cur / 16 < GLK_WIRE_CLIENTS_MAX)
		server.most = files.rlim_cur < 32 ? 1 : (int)(files.rlim_cur / 16);
}

/* With `descriptors`. */
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
	err = glk_wire_room_open(true, &server.room, why);
	if (err)
		return err;
	server.pid = getpid();
	glk_wire_name(server.pid, server.name);
	err = listen_at_name(why);
	if (err)
		goto out;
	err = glk_wire_bell_open(&server.wake);
	if (err)
		goto name;
	server.buffers =
		mmap(NULL, GLK_WIRE_CLIENTS_MAX * PER_CLIENT, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	err = server.buffers == MAP_FAILED ? -ENOMEM : 0;
	if (err)
		goto name;
	note_descriptors();
	glk_store_relaxed(&stopped, false);
	err = start_thread();
	if (!err)
		return 0;
	munmap(server.buffers, GLK_WIRE_CLIENTS_MAX * PER_CLIENT);
name:
	unlinkat(server.room, server.name, 0);
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
	pthread_mutex_lock(&descriptors);
	err = server.pid ? -EALREADY : begin(options, why);
	pthread_mutex_unlock(&descriptors);
	if (err && !*why)
		snprintf(why, GLK_WIRE_WHY_MAX, "%s", strerror(-err));
	return err;
}

void glk_wire_end(void)
{
	bool ends;

	pthread_mutex_lock(&descriptors);
	ends = tell_end();
	pthread_mutex_unlock(&descriptors);
	if (!ends)
		return;
	pthread_join(server.thread, NULL);
	/* nobody takes the place of another any more */
	if (server.aside)
		pthread_join(server.second, NULL);
	pthread_mutex_lock(&descriptors);
	close_all();
	munmap(server.buffers, GLK_WIRE_CLIENTS_MAX * PER_CLIENT);
	pthread_mutex_unlock(&descriptors);
}
