/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_WIRE_SERVER_H
#define GLK_WIRE_SERVER_H

/* Addresses of sockets, and those who ask at one. Inside this folder. */
#include "base/atomic.h"
#include "wire/wire.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

/* By the descriptor of the directory: what lies there now, however long its path is. */
static inline bool glk_wire_address(
	int room, const char *name, struct sockaddr_un *ret_address)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int length = snprintf(address.sun_path, sizeof(address.sun_path),
		"/proc/self/fd/%d/%s", room, name);

	*ret_address = address;
	return length > 0 && (size_t)length < sizeof(address.sun_path);
}

struct glk_wire_client {
	int fd; /* one more than it is: 0 is none */
	struct glk_wire_mark mark;
	bool half;  /* it asks nothing more */
	bool last;  /* nothing more is taken of it */
	bool more;  /* there may be a whole question in `in` */
	bool aside; /* its answer takes long: it is of the thread that gives it, */
	bool gone;  /* which has found that it is to be left */
	int pass;   /* a descriptor that goes with the answer, likewise */
	struct glk_wire_mark pass_mark;
	uint64_t number;
	int64_t since;	 /* ns, when it took or gave something last */
	size_t in_used;	 /* bytes of questions */
	size_t out_used; /* of an answer */
	size_t out_sent;
	char *in;  /* GLK_WIRE_QUESTION_MAX */
	char *out; /* GLK_WIRE_ANSWER_MAX */
};

/* Whether this thread gives a long answer, and no other after it. */
bool glk_wire_is_aside(void);

/* Bytes of memory for one that asks. */
#define GLK_WIRE_PER_CLIENT (GLK_WIRE_QUESTION_MAX + GLK_WIRE_ANSWER_MAX)

/* Of this process. */
extern struct glk_wire_server {
	struct glk_wire_options options;
	pthread_t thread;
	pid_t pid;   /* whose it is; 0: there is none */
	bool ending; /* somebody waits for the thread */
	/* With a long answer: the thread that gives it, and whom to. */
	pthread_t second;
	struct glk_wire_client *aside; /* NULL: there is none */
	int room, listener, wake;
	struct glk_wire_mark marks[3]; /* of these, as they were made */
	char name[GLK_WIRE_NAME_MAX];
	int most; /* clients */
	char *buffers;
	struct glk_wire_client clients[GLK_WIRE_CLIENTS_MAX];
} glk_wire_server;

/* While any descriptor comes or goes, which a fork waits for. */
extern pthread_mutex_t glk_wire_descriptors;
extern glk_atomic(bool) glk_wire_stopped;

/* Whether a descriptor of the server is still what it was; likewise one who asks. */
bool glk_wire_is_ours(int fd);
static inline bool glk_wire_is_there(const struct glk_wire_client *client)
{
	return glk_wire_is(client->fd - 1, &client->mark);
}

/* server_loop.c: starts the thread that serves. 0 or -errno. */
int glk_wire_start_thread(void);

/* A descriptor goes with the answer that is being given. */
void glk_wire_client_pass(struct glk_wire_client *client, int fd);
/* What it has to say or to take; `events` as poll(2) has them. False: it is to be left. */
bool glk_wire_client_attend(struct glk_wire_client *client, short events,
	const struct glk_wire_options *options, int64_t now_ns);
/* What to wait for, as poll(2) has it. */
short glk_wire_client_wants(const struct glk_wire_client *client);

#endif
