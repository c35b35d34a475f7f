/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The broker: sockets and processes around the books (books.h), in one thread that waits in epoll. It makes no memory
 * and knows no driver. Nobody is waited for: what a client does not take at once it does not get, and its connection
 * ends.
 *
 * Ends		A client that says BYE has given all back. One whose connection ends otherwise may still hold memory:
 *		it is kept in the books until its process has ended, or says HELLO again with what it holds. Where the
 *		kernel has no descriptor of a process the end of the connection has to do
 * Late		the driver takes some ten ms to have the memory of a process back that was killed: whoever is granted
 *		bytes in the second after is told so, and tries again where the driver refuses
 */
#include "share/broker.h"

#include "base/clock.h"
#include "base/conf.h"
#include "base/json.h"
#include "base/log.h"
#include "base/slab.h"
#include "share/books.h"
#include "share/depot.h"
#include "share/listener.h"
#include "share/shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LATE_NS INT64_C(1000000000)
/* For which the clients of a broker that has ended may be on their way to the next; the slowest look for it once a second. */
#define COME_BACK_NS INT64_C(5000000000)
#define HELLO_NS     INT64_C(5000000000) /* that one has to say who it is */
#define EVENTS	     64
#define HOLDERS	     4			    /* that a refusal names */
#define WAIT_NS	     INT64_C(3600000000000) /* as share.wait: that one may wait at most */
#define WAITERS	     16 /* clients that fill all places for those who wait */
/* Bytes of a GPU, so that no sum over all clients, names or pages runs over. */
#define MEMORY_MAX (UINT64_C(1) << 46)

_Static_assert(
	GLK_DEPOT_PAGES + GLK_SHELF_ITEMS + GLK_BOOKS_CLIENTS <= UINT64_MAX / MEMORY_MAX,
	"each may have as many as a GPU has");

enum source { LISTENER, SIGNALS, CONNECTION, PROCESS };

struct peer {
	bool lives;
	bool broken;	 /* its connection is to be closed, */
	bool *trouble;	 /* of which there is one at least then */
	uint32_t turn;	 /* of its place, so that no event meets another one there */
	uint32_t client; /* of the books; 0: it has not said HELLO */
	int conn, bell, pidfd; /* -1: none, or none any more */
	struct glk_wire_peer who;
	uint64_t self;
	int64_t since;
	bool helper;
	char name[32];
	uint32_t gpus;
	uint8_t gpu[GLK_BROKER_GPUS]; /* of the books, by its own numbers */
};

struct broker {
	const struct glk_broker_options *options;
	struct glk_books *books;
	struct glk_shelf *shelf;
	struct glk_depot *depot;
	struct glk_listener listener;
	int epoll, signals;
	int spare; /* given up to accept one more, who is told by the end of his connection that there is no room */
	uint64_t turned; /* clients, since one was taken */
	bool ends, trouble;
	int64_t died; /* when a process ended that held memory */
	int64_t began;
	uint32_t last, nameless;
	uint32_t owner[GLK_BOOKS_CLIENTS + 1]; /* the peer of a client */
	struct peer peer[GLK_BOOKS_CLIENTS + 1];
	struct {
		int fd; /* plus one; 0: none */
		uint32_t client;
	} waits[GLK_BOOKS_WANTS + 1]; /* sockets of those who wait in line */
	uint32_t last_wait;
};

static bool watch(struct broker *b, int fd, enum source source, uint32_t id)
{
	uint64_t turn = id ? b->peer[id].turn : 0;
	struct epoll_event event = {.events = EPOLLIN,
		.data.u64 = (uint64_t)source << 56 | (turn & 0xffffff) << 32 | id};

	return !epoll_ctl(b->epoll, EPOLL_CTL_ADD, fd, &event);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void fail(struct peer *p)
{
	p->broken = *p->trouble = true;
}

/* ---- What is said to clients: one that does not take it tells what it holds when it comes again ---- */

static void send_to(struct peer *p, int fd, uint32_t kind, const void *body, size_t size)
{
	if (glk_wire_send(fd, kind, body, size, NULL, 0, 0))
		fail(p);
}

static void refuse(struct peer *p, int fd, int err, const char *text)
{
	struct glk_broker_refused refused = {.err = err};

	snprintf(refused.text, sizeof(refused.text), "%s", text);
	send_to(p, fd, GLK_BROKER_REFUSED, &refused, sizeof(refused));
}

/* Who has the memory, for people. */
static void say_holders(struct broker *b, unsigned gpu, char *text, size_t size)
{
	struct glk_books_gpu of = glk_books_gpu_get(b->books, gpu);
	uint32_t client = 0;
	int used;

	used = snprintf(text, size,
		"the broker has %" PRIu64 " of %" PRIu64 " MiB left, %" PRIu64
		" guaranteed",
		of.free >> 20, of.total >> 20, of.kept >> 20);
	for (int i = 0; i < HOLDERS; i++) {
		struct glk_books_lease lease;

		client = glk_books_holder(b->books, gpu, client);
		if (!client || used < 0 || (size_t)used >= size)
			break;
		lease = glk_books_lease_get(b->books, client, gpu);
		used += snprintf(text + used, size - (size_t)used,
			"; %s (%d) has %" PRIu64 " MiB", b->peer[b->owner[client]].name,
			b->peer[b->owner[client]].who.pid, lease.held >> 20);
	}
}

static void on_answer(
	void *of, uint32_t client, unsigned gpu, uint64_t want, int err, uint64_t bytes)
{
	struct broker *b = of;
	struct peer *p = &b->peer[b->owner[client]];
	struct glk_broker_bytes granted = {.bytes = bytes};
	char text[sizeof(((struct glk_broker_refused *)NULL)->text)];
	int fd = want ? b->waits[want].fd - 1 : p->conn;
	int64_t late = b->died ? b->died + LATE_NS - glk_clock_ns() : 0;

	granted.late_ns = late > 0 ? late : 0;
	if (err) {
		say_holders(b, gpu, text, sizeof(text));
		glk_info("%s (%d) was refused memory: %s", p->name, p->who.pid, text);
		refuse(p, fd, err, text);
	} else {
		send_to(p, fd, GLK_BROKER_GRANTED, &granted, sizeof(granted));
	}
	if (want) {
		close(fd);
		b->waits[want].fd = 0;
	}
}

static void on_ask(void *of, uint32_t client, unsigned gpu, uint64_t bytes, int64_t until)
{
	struct broker *b = of;
	struct peer *p = &b->peer[b->owner[client]];
	uint64_t held = glk_books_lease_get(b->books, client, gpu).held;
	struct glk_broker_bytes ask = {.bytes = held > bytes ? held - bytes : 0,
		.late_ns = until - glk_clock_ns()};

	for (uint32_t i = 0; i < p->gpus; i++) {
		if (p->gpu[i] == gpu)
			ask.gpu = i;
	}
	/* one that does not hear is passed over in time */
	if (p->bell >= 0)
		glk_wire_send(p->bell, GLK_BROKER_ASK, &ask, sizeof(ask), NULL, 0, 0);
}

/* ---- Who comes and goes ---- */

static void leave_books(struct broker *b, struct peer *p, int64_t now)
{
	uint32_t client = p->client;

	p->client = 0;
	if (!client)
		return;
	/* what others have of it is not free when it goes */
	glk_shelf_leave(b->shelf, client, now);
	glk_depot_leave(b->depot, client, now);
	glk_books_leave(b->books, client, now);
	/* its wants have gone without an answer */
	for (uint32_t i = 1; i <= b->last_wait; i++) {
		if (!b->waits[i].fd || b->waits[i].client != client)
			continue;
		close(b->waits[i].fd - 1);
		b->waits[i].fd = 0;
	}
}

static void drop(struct broker *b, struct peer *p, int64_t now)
{
	close_fd(&p->conn);
	close_fd(&p->bell);
	close_fd(&p->pidfd);
	p->lives = false;
	leave_books(b, p, now);
}

/* The connection has ended, and what the client holds is with the driver or not. */
static void lose(struct broker *b, struct peer *p, int64_t now)
{
	if (!p->client || p->pidfd < 0) {
		drop(b, p, now);
		return;
	}
	close_fd(&p->conn);
	close_fd(&p->bell);
	p->broken = false;
}

static void has_died(struct broker *b, struct peer *p, int64_t now)
{
	b->died = now;
	glk_info("%s (%d) has ended with its memory", p->name, p->who.pid);
	drop(b, p, now);
}

/* A connection that nobody accepts would wake the loop for ever. */
static void turn_away(struct broker *b)
{
	int fd;

	close_fd(&b->spare);
	fd = accept4(b->listener.fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	b->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* who comes again and again fills no log */
	if (!b->turned++)
		glk_warn("a client was turned away: no descriptor is left");
}

/* A user who is not the broker's own leaves room for others. */
static bool is_guest(uid_t uid)
{
	return uid && uid != geteuid();
}

static bool has_many(const struct broker *b, uid_t uid)
{
	uint32_t count = 0;

	if (!is_guest(uid))
		return false;
	for (uint32_t id = 1; id <= b->last; id++)
		count += b->peer[id].lives && b->peer[id].who.uid == uid;
	return count >= GLK_BOOKS_CLIENTS / GLK_BROKER_USERS;
}

static void greet(struct broker *b)
{
	int fd = accept4(b->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct glk_wire_peer who;
	uint32_t id = 1;
	struct peer *p;

	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		turn_away(b);
	if (fd < 0)
		return;
	if (b->turned > 1)
		glk_warn("%" PRIu64 " clients were turned away until now", b->turned);
	b->turned = 0;
	while (id <= b->last && b->peer[id].lives)
		id++;
	if (id > GLK_BOOKS_CLIENTS || glk_wire_peer(fd, &who) ||
		!(glk_wire_may(who.uid, geteuid()) ||
			(b->options->all_users && glk_wire_may(who.uid, who.uid))) ||
		has_many(b, who.uid)) {
		close(fd);
		return;
	}
	b->last = id > b->last ? id : b->last;
	p = &b->peer[id];
	*p = (struct peer){.lives = true,
		.trouble = &b->trouble,
		.turn = p->turn + 1,
		.conn = fd,
		.bell = -1,
		.pidfd = -1,
		.who = who,
		.since = glk_clock_ns()};
	b->nameless++;
	if (!watch(b, fd, CONNECTION, id))
		fail(p);
}

/* ---- What clients say ---- */

static uint64_t part_of(size_t share, uint64_t whole)
{
	size_t bytes = glk_conf_share(share, whole);

	return bytes < whole ? bytes : whole;
}

/* Names of GPUs are what clients say: those of a user who is not the broker's own are so many at most. */
static bool may_name(
	const struct broker *b, const struct peer *p, uint32_t before, unsigned number)
{
	uint64_t names = UINT64_C(1) << number;

	for (uint32_t id = 1; id <= b->last; id++) {
		const struct peer *other = &b->peer[id];
		uint32_t gpus = other == p ? before : other->client ? other->gpus : 0;

		for (uint32_t i = 0; other->who.uid == p->who.uid && i < gpus; i++)
			names |= UINT64_C(1) << other->gpu[i];
	}
	return __builtin_popcountll(names) <= GLK_BOOKS_GPUS / GLK_BROKER_USERS;
}

_Static_assert(GLK_BOOKS_GPUS <= 64, "a bit for each");

/* A GPU, and what it holds of it. */
static int take_gpu(struct broker *b, struct peer *p, uint32_t i,
	const struct glk_broker_hello_gpu *gpu)
{
	char name[GLK_BOOKS_NAME];
	int number;

	snprintf(name, sizeof(name), "%.*s", (int)sizeof(gpu->uuid) - 1, gpu->uuid);
	number = glk_books_gpu(b->books, name, part_of(b->options->total, gpu->memory));
	if (number < 0)
		return number;
	if (is_guest(p->who.uid) && !may_name(b, p, i, (unsigned)number))
		return -ENOSPC;
	p->gpu[i] = (uint8_t)number;
	/* until all of the client is known: it uses the GPU */
	glk_books_rules(b->books, p->client, (unsigned)number, 0, UINT64_MAX);
	if (gpu->held)
		glk_books_holds(b->books, p->client, (unsigned)number,
			gpu->held < gpu->memory ? gpu->held : gpu->memory);
	return 0;
}

static struct glk_broker_welcome_gpu set_rules(struct broker *b, struct peer *p,
	uint32_t i, const struct glk_broker_hello_gpu *gpu)
{
	uint64_t most, least;
	struct glk_books_lease lease;

	most = part_of(b->options->most, gpu->memory);
	most = gpu->most && gpu->most < most ? gpu->most : most;
	least = b->options->least ? part_of(b->options->least, gpu->memory) : gpu->least;
	least = gpu->least < least ? gpu->least : least;
	glk_books_rules(b->books, p->client, p->gpu[i], least, most);
	lease = glk_books_lease_get(b->books, p->client, p->gpu[i]);
	return (struct glk_broker_welcome_gpu){
		.total = glk_books_gpu_get(b->books, p->gpu[i]).total,
		.least = lease.least,
		.most = lease.most};
}

static bool is_right(const struct glk_broker_hello *hello)
{
	bool right = hello->gpus && hello->gpus <= GLK_BROKER_GPUS;

	for (uint32_t i = 0; right && i < hello->gpus; i++)
		right = hello->gpu[i].memory <= MEMORY_MAX;
	return right;
}

/* One that comes again: what it was is replaced by what it says now. */
static void forget_former(struct broker *b, struct peer *p, uint64_t self, int64_t now)
{
	for (uint32_t id = 1; id <= b->last; id++) {
		struct peer *former = &b->peer[id];

		if (former != p && former->lives && former->client &&
			former->self == self && former->who.uid == p->who.uid) {
			glk_shelf_follow(b->shelf, former->client, p->client);
			drop(b, former, now);
		}
	}
}

static void take_hello(
	struct broker *b, struct peer *p, struct glk_wire_frame *frame, int64_t now)
{
	const struct glk_broker_hello *hello = (const void *)frame->body;
	struct glk_broker_welcome welcome = {.version = GLK_BROKER_VERSION};
	int err = 0;

	if (hello->version != GLK_BROKER_VERSION) {
		refuse(p, p->conn, -EPROTO, "the broker is of another version");
		fail(p);
		return;
	}
	if (p->client || frame->length != sizeof(*hello) || frame->count != 1 ||
		!is_right(hello)) {
		fail(p);
		return;
	}
	p->bell = frame->fd[0];
	frame->count = 0;
	p->self = hello->self;
	p->helper = hello->helper;
	p->gpus = welcome.gpus = hello->gpus;
	snprintf(p->name, sizeof(p->name), "%.*s", (int)sizeof(hello->name) - 1,
		hello->name);
	/* it goes to logs and errors of others */
	for (char *c = p->name; *c; c++)
		*c = *c < ' ' || *c > '~' ? '?' : *c;
	p->client = glk_books_join(b->books);
	if (!p->client) {
		refuse(p, p->conn, -ENOSPC, "the broker has too many clients");
		fail(p);
		return;
	}
	b->nameless--;
	b->owner[p->client] = (uint32_t)(p - b->peer);
	/* without it the end of the connection has to do */
	if (!glk_wire_pidfd(p->conn, &p->pidfd) &&
		!watch(b, p->pidfd, PROCESS, (uint32_t)(p - b->peer)))
		close_fd(&p->pidfd);
	for (uint32_t i = 0; i < hello->gpus && !err; i++)
		err = take_gpu(b, p, i, &hello->gpu[i]);
	if (err) {
		refuse(p, p->conn, err, "the broker has too many GPUs");
		leave_books(b, p, now);
		fail(p);
		return;
	}
	/* what it holds was never free in between */
	forget_former(b, p, hello->self, now);
	for (uint32_t i = 0; i < hello->gpus; i++)
		welcome.gpu[i] = set_rules(b, p, i, &hello->gpu[i]);
	send_to(p, p->conn, GLK_BROKER_WELCOME, &welcome, sizeof(welcome));
}

/* A place for the socket of one that waits; 0: there is none, or the client or its user has its part of them. */
static uint32_t take_wait(struct broker *b, uint32_t client, struct glk_wire_frame *frame)
{
	uid_t uid = b->peer[b->owner[client]].who.uid;
	uint32_t i, has = 0, of_user = 0, place = 0;

	for (i = 1; i <= b->last_wait; i++) {
		uint32_t other = b->waits[i].client;

		if (b->waits[i].fd) {
			has += other == client;
			of_user += b->peer[b->owner[other]].who.uid == uid;
		} else if (!place) {
			place = i;
		}
	}
	i = place ? place : i;
	if (i > GLK_BOOKS_WANTS || has >= GLK_BOOKS_WANTS / WAITERS ||
		(is_guest(uid) && of_user >= GLK_BOOKS_WANTS / GLK_BROKER_USERS))
		return 0;
	b->last_wait = i > b->last_wait ? i : b->last_wait;
	b->waits[i].fd = frame->fd[0] + 1;
	b->waits[i].client = client;
	frame->count = 0;
	return i;
}

static void take_want(
	struct broker *b, struct peer *p, struct glk_wire_frame *frame, int64_t now)
{
	const struct glk_broker_want *want = (const void *)frame->body;
	bool waits = want->wait_ns > 0;
	uint32_t place = 0;

	if (frame->length != sizeof(*want) || want->gpu >= p->gpus || !want->least ||
		frame->count != (waits ? 1u : 0u) || want->wait_ns > WAIT_NS) {
		fail(p);
		return;
	}
	if (waits) {
		place = take_wait(b, p->client, frame);
		if (!place) {
			refuse(p, frame->fd[0], -ENOSPC, "too many wait at the broker");
			return;
		}
	}
	glk_books_want(b->books, p->client, p->gpu[want->gpu], want->least, want->like,
		waits ? now + want->wait_ns : now, place, now);
}

static void take_bytes(
	struct broker *b, struct peer *p, struct glk_wire_frame *frame, int64_t now)
{
	const struct glk_broker_bytes *bytes = (const void *)frame->body;

	if (frame->length != sizeof(*bytes) || frame->count || bytes->gpu >= p->gpus)
		fail(p);
	else if (frame->kind == GLK_BROKER_TOLD)
		glk_books_told(b->books, p->client, p->gpu[bytes->gpu], now);
	else if (glk_books_give(
			 b->books, p->client, p->gpu[bytes->gpu], bytes->bytes, now))
		fail(p);
}

static const char *why_not(int err)
{
	if (err == -EEXIST)
		return "other contents have that name, or another process puts them there";
	if (err == -ENOENT)
		return "nothing is published by that name";
	if (err == -EAGAIN)
		return "another process is about to publish it";
	if (err == -EINVAL)
		return "it is not the publisher's own";
	return "too much is published";
}

static void take_item(
	struct broker *b, struct peer *p, struct glk_wire_frame *frame, int64_t now)
{
	const struct glk_broker_item *said = (const void *)frame->body;
	bool put = frame->kind == GLK_BROKER_PUT, claims, later;
	struct glk_broker_item found;
	struct glk_shelf_item item;
	int err = 0;

	if (frame->length != sizeof(*said) || said->gpu >= p->gpus ||
		frame->count != (put ? 1u : 0u) ||
		!memchr(said->key, 0, sizeof(said->key)) ||
		(put &&
			(said->offset > said->page ||
				said->length > said->page - said->offset))) {
		fail(p);
		return;
	}
	item = (struct glk_shelf_item){.uid = p->who.uid,
		.gpu = p->gpu[said->gpu],
		.stamp = said->stamp,
		.sum = said->sum,
		.page = said->page,
		.offset = said->offset,
		.length = said->length,
		.fd = put ? frame->fd[0] : -1};
	memcpy(item.key, said->key, sizeof(item.key));
	if (put && !(said->flags & (GLK_BROKER_MINE | GLK_BROKER_AGAIN))) {
		/* nobody's bytes: new contents are part of what their publisher has leave for */
		err = -EINVAL;
	} else if (put && said->page > glk_books_gpu_get(b->books, item.gpu).total) {
		/* one that was taken alone, or of a broker that had more */
		err = -ENOSPC;
	} else if (put) {
		err = glk_shelf_put(b->shelf, p->client, &item,
			said->flags & GLK_BROKER_MINE, said->flags & GLK_BROKER_AGAIN,
			now);
		frame->count = err != 0;
	} else if (frame->kind == GLK_BROKER_GET) {
		claims = said->flags & GLK_BROKER_CLAIM;
		/* who was to put it may be on his way here */
		later = claims && said->flags & GLK_BROKER_AGAIN &&
			now - b->began < COME_BACK_NS;
		err = glk_shelf_get(b->shelf, p->client, &item, claims && !later, &item);
		err = err == -ENOENT && later ? -EAGAIN : err;
	} else {
		glk_shelf_end(b->shelf, p->client, &item, now);
	}
	if (err < 0) {
		refuse(p, p->conn, err, why_not(err));
		return;
	}
	found = *said;
	found.stamp = item.stamp;
	found.sum = item.sum;
	found.page = item.page;
	found.offset = item.offset;
	found.length = item.length;
	if (frame->kind != GLK_BROKER_GET)
		send_to(p, p->conn, GLK_BROKER_DONE, NULL, 0);
	else if (glk_wire_send(p->conn, GLK_BROKER_FOUND, &found, sizeof(found), &item.fd,
			 1, 0))
		fail(p);
}

/* Several names that a client wants to have, and claims none of. */
static void take_names(struct broker *b, struct peer *p, struct glk_wire_frame *frame)
{
	const struct glk_broker_names *said = (const void *)frame->body;
	struct glk_broker_founds founds = {.count = said->count};
	int fds[GLK_BROKER_NAMES];
	uint32_t had = 0;

	if (frame->length != sizeof(*said) || frame->count || said->gpu >= p->gpus ||
		said->count > GLK_BROKER_NAMES) {
		fail(p);
		return;
	}
	for (uint32_t i = 0; i < said->count; i++) {
		struct glk_broker_found *found = &founds.found[i];
		struct glk_shelf_item item = {.uid = p->who.uid,
			.gpu = p->gpu[said->gpu],
			.stamp = said->name[i].stamp};

		memcpy(item.key, said->name[i].key, sizeof(item.key) - 1);
		found->err = glk_shelf_get(b->shelf, p->client, &item, false, &item);
		if (found->err)
			continue;
		found->page = item.page;
		found->offset = item.offset;
		found->length = item.length;
		found->stamp = item.stamp;
		found->sum = item.sum;
		fds[had++] = item.fd;
	}
	if (glk_wire_send(
		    p->conn, GLK_BROKER_FOUNDS, &founds, sizeof(founds), fds, had, 0))
		fail(p);
}

/* Pages that are sought, or offered with their descriptors, of which those that are not taken are closed. */
static void take_pages(
	struct broker *b, struct peer *p, struct glk_wire_frame *frame, int64_t now)
{
	bool offer = frame->kind == GLK_BROKER_OFFER;
	const struct glk_broker_pages *said = (const void *)frame->body;
	struct glk_broker_pages answer;
	uint32_t fds = 0;

	if (frame->length != sizeof(*said) || said->gpu >= p->gpus || !said->bytes ||
		said->count > GLK_BROKER_PAGES ||
		frame->count != (offer ? said->count : 0) ||
		said->bytes > glk_books_gpu_get(b->books, p->gpu[said->gpu]).total) {
		fail(p);
		return;
	}
	answer = *said;
	for (uint32_t i = 0; i < said->count; i++) {
		struct glk_depot_page page = {.uid = p->who.uid,
			.gpu = p->gpu[said->gpu],
			.number = said->number[i],
			.bytes = said->bytes,
			.fd = offer ? frame->fd[i] : -1};

		if (frame->kind == GLK_BROKER_LEAVE) {
			if (glk_depot_end(b->depot, p->client, said->id[i], now))
				fail(p);
			continue;
		}
		answer.id[i] = offer
			? glk_depot_put(b->depot, p->client, &page)
			: glk_depot_get(b->depot, p->client, &page, &page.fd);
		if (offer != !answer.id[i])
			continue;
		frame->fd[fds++] = page.fd;
	}
	frame->count = offer ? fds : 0;
	if (frame->kind == GLK_BROKER_LEAVE)
		return;
	if (glk_wire_send(p->conn, offer ? GLK_BROKER_TAKEN : GLK_BROKER_SOUGHT, &answer,
		    sizeof(answer), frame->fd, offer ? 0 : fds, 0))
		fail(p);
}

static void write_client(
	struct broker *b, struct glk_json *json, uint32_t client, unsigned gpu)
{
	struct glk_books_lease lease = glk_books_lease_get(b->books, client, gpu);
	const struct peer *p = &b->peer[b->owner[client]];

	if (!lease.most)
		return;
	glk_json_object(json);
	glk_json_add_text(json, "name", p->name);
	glk_json_add_int(json, "pid", p->who.pid);
	glk_json_add_uint(json, "uid", p->who.uid);
	glk_json_add_text(json, "hears",
		p->conn < 0	    ? "gone"
			: p->helper ? "thread"
				    : "calls");
	glk_json_add_uint(json, "held", lease.held);
	glk_json_add_uint(json, "least", lease.least);
	glk_json_add_uint(json, "most", lease.most);
	glk_json_add_uint(json, "asked", lease.asked);
	glk_json_add_uint(json, "wanted", lease.wanted);
	glk_json_end(json);
}

static void write_item(struct glk_json *json, const struct glk_shelf_item *item)
{
	glk_json_object(json);
	glk_json_add_text(json, "key", item->key);
	glk_json_add_uint(json, "uid", item->uid);
	glk_json_add_uint(json, "bytes", item->length);
	glk_json_add_bool(json, "written", !item->writer);
	glk_json_add_uint(json, "users", item->users);
	glk_json_end(json);
}

static void write_gpu(struct broker *b, struct glk_json *json, unsigned gpu)
{
	struct glk_shelf_item item;
	uint32_t at = 0;
	struct glk_books_gpu of = glk_books_gpu_get(b->books, gpu);
	struct glk_depot_sum common = glk_depot_sum(b->depot, gpu);

	glk_json_object(json);
	glk_json_add_text(json, "gpu", glk_books_gpu_name(b->books, gpu));
	glk_json_add_uint(json, "total", of.total);
	glk_json_add_uint(json, "free", of.free);
	glk_json_add_uint(json, "held", of.held);
	glk_json_add_uint(json, "published", of.published);
	glk_json_add_uint(json, "guaranteed", of.kept);
	glk_json_add_uint(json, "common", common.bytes);
	glk_json_add_uint(json, "saved", common.saved);
	glk_json_add_uint(json, "waiting", of.waiting);
	glk_json_add_uint(json, "asks", of.asks);
	glk_json_add_uint(json, "stalls", of.stalls);
	glk_json_add_uint(json, "refusals", of.refusals);
	glk_json_key(json, "contents");
	glk_json_array(json);
	while ((at = glk_shelf_next(b->shelf, gpu, at, &item)))
		write_item(json, &item);
	glk_json_end(json);
	glk_json_key(json, "clients");
	glk_json_array(json);
	for (uint32_t id = 1; id <= b->last; id++) {
		if (b->peer[id].lives && b->peer[id].client)
			write_client(b, json, b->peer[id].client, gpu);
	}
	glk_json_end(json);
	glk_json_end(json);
}

/* As a file in memory, so that nobody who reads it slowly is waited for. */
static void tell_all(struct broker *b, struct peer *p)
{
	int fd = memfd_create("glake-broker", MFD_CLOEXEC), copy = fd < 0 ? -1 : dup(fd);
	FILE *file = copy < 0 ? NULL : fdopen(copy, "w");
	struct glk_json json;
	int err = -EMFILE;

	if (file) {
		glk_json_init(&json, file, 0);
		glk_json_object(&json);
		glk_json_add_int(&json, "pid", getpid());
		glk_json_key(&json, "gpus");
		glk_json_array(&json);
		for (unsigned g = 0; g < glk_books_gpus(b->books); g++)
			write_gpu(b, &json, g);
		glk_json_end(&json);
		glk_json_end(&json);
		err = glk_json_fini(&json);
		fclose(file);
	} else if (copy >= 0) {
		close(copy);
	}
	if (err || glk_wire_send(p->conn, GLK_BROKER_TEXT, NULL, 0, &fd, 1, 0))
		fail(p);
	close_fd(&fd);
}

static void take_frame(struct broker *b, struct peer *p, int64_t now)
{
	struct glk_wire_frame frame;
	int err = glk_wire_receive(p->conn, &frame, 0);

	if (err == -EAGAIN)
		return;
	if (err) {
		fail(p);
		return;
	}
	if (frame.kind == GLK_BROKER_HELLO)
		take_hello(b, p, &frame, now);
	else if (frame.kind == GLK_BROKER_LIST)
		tell_all(b, p);
	else if (!p->client)
		fail(p);
	else if (frame.kind == GLK_BROKER_WANT)
		take_want(b, p, &frame, now);
	else if (frame.kind == GLK_BROKER_GIVE || frame.kind == GLK_BROKER_TOLD)
		take_bytes(b, p, &frame, now);
	else if (frame.kind == GLK_BROKER_PUT || frame.kind == GLK_BROKER_GET ||
		frame.kind == GLK_BROKER_END)
		take_item(b, p, &frame, now);
	else if (frame.kind == GLK_BROKER_GETS)
		take_names(b, p, &frame);
	else if (frame.kind == GLK_BROKER_SEEK || frame.kind == GLK_BROKER_OFFER ||
		frame.kind == GLK_BROKER_LEAVE)
		take_pages(b, p, &frame, now);
	else if (frame.kind == GLK_BROKER_BYE)
		drop(b, p, now);
	else
		fail(p);
	glk_wire_frame_close(&frame);
}

/* ---- The loop ---- */

static void attend(struct broker *b, uint64_t what, int64_t now)
{
	enum source source = (enum source)(what >> 56);
	struct peer *p = &b->peer[(uint32_t)what];

	if (source == LISTENER)
		greet(b);
	else if (source == SIGNALS)
		b->ends = true;
	else if (!p->lives || (what >> 32 & 0xffffff) != (p->turn & 0xffffff))
		return;
	else if (source == CONNECTION && p->conn >= 0)
		take_frame(b, p, now);
	else if (source == PROCESS)
		has_died(b, p, now);
}

/* Those with whom something went wrong, and those who say nothing. */
static void sweep(struct broker *b, int64_t now)
{
	b->nameless = 0;
	b->trouble = false;
	for (uint32_t id = 1; id <= b->last; id++) {
		struct peer *p = &b->peer[id];

		if (!p->lives)
			continue;
		if (p->broken || (!p->client && now - p->since > HELLO_NS))
			lose(b, p, now);
		else
			b->nameless += !p->client;
	}
}

static int until(struct broker *b, int64_t due)
{
	int64_t left = due - glk_clock_ns();

	if (b->nameless && left > HELLO_NS)
		left = HELLO_NS;
	if (left > INT64_C(3600000000000))
		return -1;
	return left <= 0 ? 0 : (int)((left + 999999) / 1000000);
}

static void serve(struct broker *b)
{
	struct epoll_event events[EVENTS];
	int64_t due;
	int count;

	while (!b->ends) {
		if (b->trouble || b->nameless)
			sweep(b, glk_clock_ns());
		due = glk_books_due(b->books, glk_clock_ns());
		/* what follows from one that has gone may be that another one has */
		if (b->trouble)
			continue;
		count = epoll_wait(b->epoll, events, EVENTS, until(b, due));
		for (int i = 0; i < count; i++)
			attend(b, events[i].data.u64, glk_clock_ns());
	}
}

/* ---- Its beginning ---- */

static void close_plain(int fd)
{
	close(fd);
}

/* How many there may be. */
static uint32_t raise_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return 0;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	return files.rlim_cur < GLK_DEPOT_PAGES * 2 ? (uint32_t)files.rlim_cur
						    : GLK_DEPOT_PAGES * 2;
}

/* A half of all descriptors, so that clients and names have theirs. */
static struct glk_depot *open_depot(struct broker *b)
{
	uint32_t most = raise_files() / 2;

	return glk_depot_new(b->books, close_plain, most,
		b->options->all_users ? most / GLK_BROKER_USERS : most);
}

static int open_all(struct broker *b, char *why)
{
	sigset_t ends;
	int err;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	signal(SIGPIPE, SIG_IGN);
	b->signals = signalfd(-1, &ends, SFD_CLOEXEC);
	b->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (b->signals < 0 || b->epoll < 0)
		return -errno;
	err = glk_listener_open(
		&b->listener, b->options->socket, b->options->all_users, why);
	if (err)
		return err;
	b->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return watch(b, b->listener.fd, LISTENER, 0) && watch(b, b->signals, SIGNALS, 0)
		? 0
		: -errno;
}

int glk_broker_run(const struct glk_broker_options *options)
{
	struct broker *b = glk_region_new(sizeof(*b));
	char why[GLK_WIRE_WHY_MAX] = "";
	int err;

	if (!b)
		return 1;
	b->options = options;
	b->books = glk_books_new(
		&(struct glk_books_deeds){.answer = on_answer, .ask = on_ask, .of = b});
	b->shelf = b->books
		? glk_shelf_new(b->books, close_plain,
			  options->all_users ? GLK_SHELF_ITEMS / GLK_BROKER_USERS
					     : GLK_SHELF_ITEMS)
		: NULL;
	b->depot = b->books ? open_depot(b) : NULL;
	err = b->shelf && b->depot ? open_all(b, why) : -ENOMEM;
	if (err)
		glk_err("the broker cannot begin at %s: %s", b->listener.path,
			*why ? why : strerror(-err));
	b->began = glk_clock_ns();
	if (!err)
		serve(b);
	if (!err && glk_listener_is_own(&b->listener))
		unlink(b->listener.path);
	glk_shelf_free(b->shelf);
	glk_depot_free(b->depot);
	glk_books_free(b->books);
	glk_region_free(b, sizeof(*b));
	return err ? 1 : 0;
}
