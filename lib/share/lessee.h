/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_LESSEE_H
#define GLK_SHARE_LESSEE_H

/* The client of a broker, as lease.c, names.c and inside this folder nobody else see it. */
#include "share/broker.h"
#include "share/publish.h"
#include "share/share.h"

#include <limits.h>

/* Names that are remembered: as many as a broker has. */
#define GLK_NAMES 4096

/*
 * A name about which a broker said what the next one does not know. Contents are loaded once though a broker ends, or a
 * connection: who was to load them claims them again as soon as it is back, and who was told to come again says so, and
 * does not get the claim before the other had time to come (broker.c).
 */
struct glk_name {
	enum { NONE, CLAIMED, AWAITED, GIVEN_UP /* while the broker was away */ } is;
	bool unsure; /* AWAITED: it may have been claimed, by a question that had no answer */
	uint64_t turn; /* of the connection over which it was first said */
	uint64_t age;  /* in the order in which names came */
	struct glk_broker_item item;
};

struct glk_lessee {
	struct glk_source source; /* the first */
	struct glk_pool *pool;
	const struct glk_conf *conf;
	glk_lessee_trim_fn trim;
	void *of;
	char path[PATH_MAX];
	uint64_t self;
	struct glk_lock lock; /* of all below */
	bool here, said_away, ended;
	char why[GLK_WIRE_WHY_MAX]; /* it is not here */
	int conn, bell,
		wake; /* -1: none. The bell keeps its number while the context lives */
	struct glk_wire_mark conn_mark, bell_mark, wake_mark;
	uint64_t turn;	     /* of the connection */
	int64_t away, tried; /* ns: since when, and when it was looked for last */
	pthread_t thread;
	bool runs;
	struct glk_wire_frame frame;
	struct glk_shared *shared; /* what is published or attached */
	uint32_t names;		   /* behind the last that was used */
	uint64_t named;		   /* so far */
	struct glk_name name[GLK_NAMES];
	struct {
		uint64_t leased, least, most;
		uint64_t
			foreign; /* bytes of pages that others have made, as the broker knows */
		uint64_t asked, given, refused,
			waited; /* so far: asks, bytes, refusals, ns */
	} gpu[GLK_BROKER_GPUS];
};

/* lease.c, under the lock. The connection is lost; something is said, with descriptors; and the answer to what
 * was said last. 0 or -errno, and it is lost. */
void glk_lessee_lose(struct glk_lessee *l, const char *why);
int glk_lessee_say(struct glk_lessee *l, uint32_t kind, const void *body, size_t size,
	const int *fds, size_t count);
int glk_lessee_hear(struct glk_lessee *l, struct glk_wire_frame *frame);
/*
 * Until the broker is here. 0; 1: the process is alone; -ENOMEM with a record. Under the lock, which is given up for
 * each wait.
 */
int glk_lessee_find(struct glk_lessee *l);
/* The same without a wait: whether it is here. */
bool glk_lessee_try(struct glk_lessee *l);

/* Whose source is the broker's. */
static inline struct glk_lessee *glk_lessee_of(const struct glk_node *node)
{
	return (struct glk_lessee *)node->source;
}

/* commons.c, for struct glk_source. */
bool glk_commons_forget(struct glk_node *node, const struct glk_page *page);

/* names.c, over a new connection: what was claimed and what is published is told again. */
void glk_names_again(struct glk_lessee *l);

#endif
