/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_BROKER_H
#define GLK_SHARE_BROKER_H

/*
 * What a broker and its clients say to each other, in frames (wire/wire.h) over one connection for each context. All
 * numbers are those of one machine. Nothing that either end says is trusted: sizes and numbers are checked.
 *
 *	HELLO ->		the first; with one descriptor, the bell: a socket at which the broker asks
 *		<- WELCOME, or REFUSED
 *	WANT ->			with a descriptor of a socket if it waits: the answer comes there
 *		<- GRANTED, or REFUSED
 *	GIVE ->			no answer
 *		<- ASK		at the bell: how much may be held from then on, so that who has given since gives no more
 *	TOLD ->			what could be given has been: the answer to ASK
 *	PUT ->			a name, with the descriptor of its page
 *		<- DONE, or REFUSED
 *	GET ->			a name
 *		<- FOUND, with the descriptor, or REFUSED
 *	GETS ->			several names
 *		<- FOUNDS	with a descriptor of each that is there
 *	END ->			a name that it has no more, or does not put
 *		<- DONE
 *	SEEK ->			numbers of contents of pages
 *		<- SOUGHT	with descriptors of those that others have, which the client has too from now on
 *	OFFER ->		the same of pages of its own, with their descriptors, for others to have
 *		<- TAKEN	the numbers of those that were not there
 *	LEAVE ->		numbers of pages that it has no more; no answer
 *	BYE ->			all that it held is with the driver again, and nothing more will be said
 *	LIST ->			of anybody, as the first
 *		<- TEXT		with a descriptor of a file in memory, in JSON
 */
#include "share/alike.h"
#include "wire/wire.h"

#include <stdint.h>

#define GLK_BROKER_VERSION 3
#define GLK_BROKER_GPUS	   64

/* The socket, in the directory of the user (wire/room.c). */
#define GLK_BROKER_SOCKET "broker.sock"

enum glk_broker_kind {
	GLK_BROKER_HELLO = 0x100,
	GLK_BROKER_WELCOME,
	GLK_BROKER_REFUSED,
	GLK_BROKER_WANT,
	GLK_BROKER_GRANTED,
	GLK_BROKER_GIVE,
	GLK_BROKER_ASK,
	GLK_BROKER_TOLD,
	GLK_BROKER_PUT,
	GLK_BROKER_GET,
	GLK_BROKER_END,
	GLK_BROKER_FOUND,
	GLK_BROKER_DONE,
	GLK_BROKER_BYE,
	GLK_BROKER_LIST,
	GLK_BROKER_TEXT,
	GLK_BROKER_SEEK,
	GLK_BROKER_SOUGHT,
	GLK_BROKER_OFFER,
	GLK_BROKER_TAKEN,
	GLK_BROKER_LEAVE,
	GLK_BROKER_GETS,
	GLK_BROKER_FOUNDS,
};

struct glk_broker_hello {
	uint32_t version, gpus;
	uint64_t
		self; /* no other context has it: one that comes again takes the place of what it was */
	uint32_t helper; /* not 0: a thread of it hears the bell */
	uint32_t reserved;
	char name[32]; /* of the program, for people */
	struct glk_broker_hello_gpu {
		char uuid[48];
		uint64_t memory, held, least, most; /* bytes; most 0: no limit */
	} gpu[GLK_BROKER_GPUS];
};

struct glk_broker_welcome {
	uint32_t version, gpus;
	struct glk_broker_welcome_gpu {
		uint64_t total, least, most;
	} gpu[GLK_BROKER_GPUS];
};

struct glk_broker_refused {
	int32_t err; /* -errno */
	char text[508];
};

struct glk_broker_want {
	uint32_t gpu, reserved; /* as numbered in HELLO, here and below */
	uint64_t least, like;	/* bytes */
	int64_t wait_ns;	/* 0: no longer than now, and with no descriptor */
};

struct glk_broker_bytes { /* GRANTED, GIVE, ASK, TOLD */
	uint32_t gpu, reserved;
	uint64_t bytes;
	/* GRANTED: ns for which the driver may still be at work on the memory of a process that has ended.
	 * ASK: ns for which an answer is waited for. */
	int64_t late_ns;
};

#define GLK_BROKER_KEY 192

/* Of PUT: its page is part of what the client holds; it was there before, at another broker. Of GET: the client will put
 * it if it is not there; another broker, or an earlier connection, said that somebody else would. */
#define GLK_BROKER_MINE	 1u
#define GLK_BROKER_AGAIN 2u
#define GLK_BROKER_CLAIM 4u

struct glk_broker_item { /* PUT, GET, END, FOUND */
	uint32_t gpu, flags;
	uint64_t stamp;		       /* of the contents */
	uint64_t page, offset, length; /* bytes */
	struct glk_alike_number sum;   /* of all of the page; 0: its publisher has none */
	char key[GLK_BROKER_KEY];
};

#define GLK_BROKER_NAMES GLK_WIRE_FDS_MAX

struct glk_broker_names { /* GETS */
	uint32_t gpu, count;
	struct glk_broker_name {
		uint64_t stamp;
		char key[GLK_BROKER_KEY];
	} name[GLK_BROKER_NAMES];
};

struct glk_broker_founds { /* in the order of the names; descriptors are of those without an error */
	uint32_t count, reserved;
	struct glk_broker_found {
		int32_t err; /* -errno */
		uint32_t reserved;
		uint64_t page, offset, length, stamp;
		struct glk_alike_number sum;
	} found[GLK_BROKER_NAMES];
};

_Static_assert(sizeof(struct glk_broker_names) <= GLK_WIRE_BODY_MAX, "a frame has it");

/* Pages of one size by their contents (depot.h), in a frame with as many descriptors. */
#define GLK_BROKER_PAGES GLK_WIRE_FDS_MAX

struct glk_broker_pages { /* SEEK, SOUGHT, OFFER, TAKEN, LEAVE */
	uint32_t gpu, count;
	uint64_t bytes; /* of each */
	struct glk_alike_number number[GLK_BROKER_PAGES];
	/* By which the broker knows them; 0: not had, or not taken. Descriptors come in the order of those that are not 0. */
	uint32_t id[GLK_BROKER_PAGES];
};

/* broker.c: serves until it is told to end by SIGTERM or SIGINT. The status of the process. */
struct glk_broker_options {
	const char *socket; /* NULL: in the directory of the user */
	bool all_users;	    /* and not its own alone */
	size_t total;	    /* a SHARE of each GPU that it gives */
	size_t least, most; /* likewise, of each client, at most */
};

/* Users who are not the broker's own fill what it has places for if so many of them take all they may. */
#define GLK_BROKER_USERS 4
int glk_broker_run(const struct glk_broker_options *options);

#endif
