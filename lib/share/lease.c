/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The client of a broker: where a node that has no leave left asks for more (struct glk_source), and where memory goes
 * back that others want. All of it lies behind the driver's own calls for pages; a hit comes nowhere near.
 *
 * One connection a context. A question that is answered at once is asked under the lock; one that waits in line has a
 * socket of its own, so that nobody waits for who waits. `leased` is what the broker believes the context to hold: each
 * byte of it is left with the node, or part of what that holds, or of what others have made (commons.c). It is changed under the lock, together with what is
 * said, so that the HELLO of a new connection tells no more and no less.
 *
 *	AWAY -- HELLO, WELCOME --> HERE -- the connection ends, or is silent --> AWAY since a time
 *
 * While it is away growth waits for it, share.wait from that time on at most; after that it goes on alone, and what it
 * takes then counts as leased, or is refused, as share.require says. What the broker granted to a connection that has
 * ended since is void: the next HELLO did not name it.
 *
 * The helper hears the bell, has what lies idle released, and gives it. Without one each request that is not straight does at its end, and who
 * waits in line meanwhile, who has released all that is idle before.
 */
#include "share/lessee.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/slab.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* ms that the broker has for an answer, and to take a frame; and between two tries to reach one that is away. */
#define ANSWER_MS 1000
#define SEND_MS	  100
#define RETRY_MS  50
#define ALONE_MS  1000
/* ns that the driver may be said to need for the memory of a process that has ended. */
#define LATE_MOST INT64_C(10000000000)
/* Times that one question is asked, of brokers that end meanwhile. */
#define TRIES 8

static unsigned count_of(const struct glk_lessee *l)
{
	return (unsigned)(l->pool->gpus < GLK_BROKER_GPUS ? l->pool->gpus
							  : GLK_BROKER_GPUS);
}

/* ---- The connection ---- */

static void close_marked(int *fd, const struct glk_wire_mark *mark)
{
	if (*fd >= 0 && glk_wire_is(*fd, mark))
		close(*fd);
	*fd = -1;
}

void glk_lessee_lose(struct glk_lessee *l, const char *why)
{
	close_marked(&l->conn, &l->conn_mark);
	if (!l->here)
		return;
	l->here = false;
	/* what others have made is told as its own: they may have gone when the next broker asks */
	for (unsigned i = 0; i < count_of(l); i++) {
		l->gpu[i].leased += l->gpu[i].foreign;
		l->gpu[i].foreign = 0;
	}
	l->away = l->tried = glk_clock_ns();
	snprintf(l->why, sizeof(l->why), "%s", why);
	glk_info("the broker at %s is away: %s", l->path, why);
}

int glk_lessee_say(struct glk_lessee *l, uint32_t kind, const void *body, size_t size,
	const int *fds, size_t count)
{
	int err;

	if (!glk_wire_is(l->conn, &l->conn_mark)) {
		l->conn = -1;
		glk_lessee_lose(l, "the program has closed its descriptor");
		return -EPIPE;
	}
	err = glk_wire_send(l->conn, kind, body, size, fds, count, SEND_MS);
	if (err)
		glk_lessee_lose(l, strerror(-err));
	return err;
}

/* The answer to what was said last. */
int glk_lessee_hear(struct glk_lessee *l, struct glk_wire_frame *frame)
{
	int err = glk_wire_receive(l->conn, frame, ANSWER_MS);

	if (err)
		glk_lessee_lose(
			l, err == -EAGAIN ? "it does not answer" : strerror(-err));
	return err;
}

static int fill_hello(struct glk_lessee *l, struct glk_broker_hello *hello)
{
	struct glk_drv *drv = l->pool->drv;
	int err = 0;

	hello->version = GLK_BROKER_VERSION;
	hello->gpus = count_of(l);
	hello->self = l->self;
	hello->helper = l->conf->share_helper;
	snprintf(hello->name, sizeof(hello->name), "%s", program_invocation_short_name);
	for (unsigned i = 0; i < hello->gpus && !err; i++) {
		struct glake_device info = {.sz = sizeof(info)};
		size_t least = l->conf->share_least, most = l->conf->share_most;

		err = drv->ops->device_info(drv, (int)i, &info);
		memcpy(hello->gpu[i].uuid, info.uuid, sizeof(info.uuid));
		hello->gpu[i].memory = info.memory;
		hello->gpu[i].held = l->gpu[i].leased;
		hello->gpu[i].least = least ? glk_conf_share(least, info.memory) : 0;
		hello->gpu[i].most = most ? glk_conf_share(most, info.memory) : 0;
	}
	return err;
}

static void wake_helper(struct glk_lessee *l)
{
	if (glk_wire_is(l->wake, &l->wake_mark))
		glk_wire_bell_ring(l->wake);
}

/* A new bell under the number of the old one, which the helper may be waiting at. */
static int hang_bell(struct glk_lessee *l, int *ret_other)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	if (l->bell < 0 || !glk_wire_is(l->bell, &l->bell_mark)) {
		l->bell = ends[0];
	} else if (dup3(ends[0], l->bell, O_CLOEXEC) < 0) {
		close(ends[0]);
		close(ends[1]);
		return -errno;
	} else {
		close(ends[0]);
	}
	l->bell_mark = glk_wire_mark_of(l->bell);
	*ret_other = ends[1];
	wake_helper(l);
	return 0;
}

static int take_welcome(struct glk_lessee *l)
{
	const struct glk_broker_welcome *welcome = (const void *)l->frame.body;
	const struct glk_broker_refused *refused = (const void *)l->frame.body;
	int err = glk_wire_receive(l->conn, &l->frame, ANSWER_MS);

	if (err) {
		snprintf(l->why, sizeof(l->why), "%s",
			err == -EPROTO ? "it is of another version" : strerror(-err));
		return err;
	}
	glk_wire_frame_close(&l->frame);
	if (l->frame.kind == GLK_BROKER_REFUSED) {
		snprintf(l->why, sizeof(l->why), "%.*s", (int)sizeof(refused->text) - 1,
			refused->text);
		return -EPROTO;
	}
	if (l->frame.kind != GLK_BROKER_WELCOME || l->frame.length != sizeof(*welcome) ||
		welcome->gpus != count_of(l)) {
		snprintf(l->why, sizeof(l->why), "it says what it was not asked");
		return -EPROTO;
	}
	for (unsigned i = 0; i < welcome->gpus; i++) {
		l->gpu[i].least = welcome->gpu[i].least;
		l->gpu[i].most = welcome->gpu[i].most;
	}
	return 0;
}

/* Under the lock. */
static int reach(struct glk_lessee *l)
{
	struct glk_broker_hello hello = {0};
	struct glk_wire_peer peer;
	int fd, other, room, err;

	l->tried = glk_clock_ns();
	if (!strcmp(l->conf->share_broker, "user")) {
		/* where others may write, one of them may have put it */
		err = glk_wire_room_open(false, &room, l->why);
		if (err)
			return err;
		close(room);
	}
	err = glk_wire_dial(l->path, ANSWER_MS, &fd, &peer, l->why);
	if (err)
		return err;
	l->conn = fd;
	l->conn_mark = glk_wire_mark_of(fd);
	snprintf(l->why, sizeof(l->why), "it ended");
	err = fill_hello(l, &hello);
	if (!err)
		err = hang_bell(l, &other);
	if (err)
		goto out;
	err = glk_lessee_say(l, GLK_BROKER_HELLO, &hello, sizeof(hello), &other, 1);
	close(other);
	if (!err)
		err = take_welcome(l);
	if (err)
		goto out;
	l->here = true;
	l->turn++;
	glk_names_again(l);
	if (l->said_away)
		glk_warn("the broker at %s is back", l->path);
	l->said_away = false;
	return 0;
out:
	close_marked(&l->conn, &l->conn_mark);
	return err;
}

/* One that is away for share.wait: 0 goes on alone. */
static int be_alone(struct glk_lessee *l)
{
	bool first = !l->said_away;

	l->said_away = true;
	if (first)
		glk_warn("the broker at %s is away, and %s: %s", l->path,
			l->conf->share_require ? "requests for more memory are refused"
					       : "the process goes on without",
			l->why);
	if (!l->conf->share_require)
		return 0;
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE,
		"the broker at %s, which share.require wants, is away: %s", l->path,
		l->why);
}

/*
 * Until the broker is here. 0; 1: the process is alone; -ENOMEM with a record. Under the lock, which is given up for
 * each wait.
 */
int glk_lessee_find(struct glk_lessee *l)
{
	const struct timespec step = {.tv_nsec = RETRY_MS * 1000000};
	int err;

	while (!l->here) {
		int64_t now = glk_clock_ns();
		bool over = now - l->away >= l->conf->share_wait;

		if (now - l->tried >= (over ? ALONE_MS : RETRY_MS) * INT64_C(1000000) &&
			!reach(l))
			break;
		if (over) {
			err = be_alone(l);
			return err ? err : 1;
		}
		glk_unlock(&l->lock);
		nanosleep(&step, NULL);
		glk_lock(&l->lock);
	}
	return 0;
}

bool glk_lessee_try(struct glk_lessee *l)
{
	if (!l->here && !l->ended &&
		glk_clock_ns() - l->tried >= RETRY_MS * INT64_C(1000000))
		reach(l);
	return l->here;
}

/* ---- Leave ---- */

static void add(struct glk_lessee *l, struct glk_node *node, uint64_t bytes, int64_t late)
{
	l->gpu[node->index].leased += bytes;
	if (late > 0)
		glk_store_relaxed(&node->late, glk_clock_ns() + late);
	glk_add_relaxed(&node->left, bytes);
}

/* Takes of what is left from a node as much as there is, up to `most`; nothing where that is less than `least`. */
static uint64_t take_left(struct glk_node *node, uint64_t least, uint64_t most)
{
	uint64_t left = glk_load_relaxed(&node->left), taken;

	do {
		taken = left < most ? left : most;
		taken = taken < least ? 0 : taken;
	} while (taken && !glk_cas_weak_relaxed(&node->left, &left, left - taken));
	return taken;
}

/* Gives back what is left, `bytes` at most; under the lock. */
static void give(struct glk_lessee *l, struct glk_node *node, uint64_t bytes)
{
	struct glk_broker_bytes given = {.gpu = node->index};

	given.bytes = take_left(node, 0, bytes);
	l->gpu[node->index].leased -= given.bytes;
	l->gpu[node->index].given += given.bytes;
	if (given.bytes && l->here)
		glk_lessee_say(l, GLK_BROKER_GIVE, &given, sizeof(given), NULL, 0);
}

/* An answer to a question for leave of `least` bytes. `turn`: of the connection that it was asked over. */
static int take_answer(struct glk_lessee *l, struct glk_node *node, uint64_t least,
	const struct glk_wire_frame *frame, uint64_t turn)
{
	const struct glk_broker_refused *refused = (const void *)frame->body;
	const struct glk_broker_bytes *granted = (const void *)frame->body;

	if (frame->kind == GLK_BROKER_GRANTED && frame->length == sizeof(*granted) &&
		granted->bytes >= least && granted->bytes <= INT64_MAX &&
		granted->late_ns <= LATE_MOST) {
		if (turn != l->turn || !l->here)
			return -EPIPE;
		add(l, node, granted->bytes, granted->late_ns);
		return 0;
	}
	if (frame->kind != GLK_BROKER_REFUSED || frame->length != sizeof(*refused))
		return -EPROTO;
	l->gpu[node->index].refused++;
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE, "%.*s",
		(int)sizeof(refused->text) - 1, refused->text);
}

/* One that is answered at once. -EPIPE: the broker has gone meanwhile. */
static int ask_now(struct glk_lessee *l, struct glk_node *node, uint64_t bytes)
{
	struct glk_broker_want want = {.gpu = node->index, .least = bytes};
	int err;

	want.like = bytes < l->conf->share_chunk ? l->conf->share_chunk : bytes;
	err = glk_lessee_say(l, GLK_BROKER_WANT, &want, sizeof(want), NULL, 0);
	if (err)
		return -EPIPE;
	err = glk_wire_receive(l->conn, &l->frame, ANSWER_MS);
	if (!err) {
		glk_wire_frame_close(&l->frame);
		err = take_answer(l, node, bytes, &l->frame, l->turn);
		if (err != -EPROTO)
			return err;
	}
	glk_lessee_lose(l, err == -EAGAIN ? "it does not answer" : strerror(-err));
	return -EPIPE;
}

static void hear(struct glk_lessee *l, bool may_trim);

/* Waits for the answer at a socket of the question's own; what the broker asks for meanwhile is given. */
static int await(
	struct glk_lessee *l, int fd, struct glk_wire_frame *frame, int64_t until)
{
	int err = -EAGAIN;

	while (err == -EAGAIN && glk_clock_ns() < until) {
		struct pollfd polled[2] = {{.fd = fd, .events = POLLIN},
			{.fd = l->runs ? -1 : l->bell, .events = POLLIN}};
		int64_t left = (until - glk_clock_ns()) / 1000000 + 1;

		glk_wire_poll(polled, 2, left < ANSWER_MS ? (int)left : ANSWER_MS);
		if (polled[1].revents)
			hear(l, false);
		err = glk_wire_receive(fd, frame, 0);
	}
	return err;
}

/* One that waits in line. Under the lock, which is given up meanwhile. */
static int ask_in_line(struct glk_lessee *l, struct glk_node *node, uint64_t bytes)
{
	struct glk_broker_want want = {.gpu = node->index,
		.least = bytes,
		.like = bytes,
		.wait_ns = l->conf->share_wait};
	struct glk_wire_frame frame;
	uint64_t turn = l->turn;
	int ends[2], err, cancel;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return glk_error_native(-ENOMEM, GLAKE_ERROR_LIMIT, "socketpair", errno,
			"no socket to wait for the broker's answer");
	err = glk_lessee_say(l, GLK_BROKER_WANT, &want, sizeof(want), &ends[1], 1);
	close(ends[1]);
	if (!err) {
		cancel = glk_cancel_off();
		glk_unlock(&l->lock);
		err = await(l, ends[0], &frame,
			glk_clock_ns() + want.wait_ns + ANSWER_MS * INT64_C(1000000));
		glk_lock(&l->lock);
		glk_cancel_restore(cancel);
		if (!err) {
			glk_wire_frame_close(&frame);
			err = take_answer(l, node, bytes, &frame, turn);
		} else if (turn == l->turn) {
			/* what it may have granted is told with the next HELLO not to be */
			glk_lessee_lose(l,
				err == -EAGAIN ? "it does not answer" : strerror(-err));
			err = -EPIPE;
		}
	}
	close(ends[0]);
	return err == -ENOMEM ? err : err ? -EPIPE : 0;
}

static int ask(struct glk_node *node, uint64_t bytes, bool waits)
{
	struct glk_lessee *l = glk_lessee_of(node);
	int64_t since = glk_clock_ns();
	int err = -EPIPE, found;

	/* no time to wait is none to ask others in */
	waits = waits && l->conf->share_wait;
	glk_lock(&l->lock);
	for (int tries = 0; err == -EPIPE; tries++) {
		if (tries == TRIES)
			found = be_alone(l) ? -ENOMEM : 1;
		else
			found = l->ended ? 1 : glk_lessee_find(l);
		if (found) {
			err = found < 0 ? found : 0;
			if (!err)
				add(l, node, bytes, 0);
			break;
		}
		if (waits)
			give(l, node, UINT64_MAX);
		err = waits ? ask_in_line(l, node, bytes) : ask_now(l, node, bytes);
	}
	if (waits)
		l->gpu[node->index].waited += (uint64_t)(glk_clock_ns() - since);
	glk_unlock(&l->lock);
	return err;
}

void glk_lessee_make_room(struct glk_lessee *l, int device, uint64_t bytes)
{
	uint64_t left = glk_load_relaxed(&l->pool->nodes[device].left);

	if (left < bytes)
		l->trim(l->of, device, bytes - left, 0);
}

/* ---- The source ---- */

static int claim(struct glk_node *node, uint64_t size, bool calls)
{
	int err = glk_source_driver.claim(node, size, calls);

	if (err)
		return err;
	while (!err && !take_left(node, size, size))
		err = calls ? ask(node, size, false) : -ENOMEM;
	if (err)
		glk_source_driver.unclaim(node, size, calls);
	return err;
}

/* A node keeps two portions of what it does not use, and of more than that one. */
static void unclaim(struct glk_node *node, uint64_t size, bool calls)
{
	struct glk_lessee *l = glk_lessee_of(node);
	uint64_t left, portion = l->conf->share_chunk;

	glk_source_driver.unclaim(node, size, calls);
	glk_add_relaxed(&node->left, size);
	if (!calls || glk_load_relaxed(&node->left) <= 2 * portion)
		return;
	glk_lock(&l->lock);
	left = glk_load_relaxed(&node->left);
	if (left > 2 * portion)
		give(l, node, left - portion);
	glk_unlock(&l->lock);
}

/* The driver is still at work on the memory of a process that has ended. */
#define LATE_STEP_NS 1000000

static int make(
	struct glk_node *node, size_t size, uint64_t *ret_handle, uint8_t *ret_able)
{
	const struct timespec step = {.tv_nsec = LATE_STEP_NS};
	int err = glk_node_make(node, size, ret_handle, ret_able);

	while (err == -ENOMEM && glk_clock_ns() < glk_load_relaxed(&node->late)) {
		nanosleep(&step, NULL);
		err = glk_node_make(node, size, ret_handle, ret_able);
	}
	return err;
}

/* ---- What the broker asks for ---- */

/* What is held by leave of the broker beyond so much. */
static uint64_t beyond(struct glk_lessee *l, const struct glk_node *node, uint64_t keep)
{
	uint64_t leased = l->gpu[node->index].leased;

	return leased > keep ? leased - keep : 0;
}

static void yield_to(struct glk_lessee *l, struct glk_node *node, uint64_t keep,
	int64_t until, bool may_trim)
{
	struct glk_broker_bytes told = {.gpu = node->index};
	uint64_t left = glk_load_relaxed(&node->left), bytes;

	glk_lock(&l->lock);
	bytes = beyond(l, node, keep);
	glk_unlock(&l->lock);
	if (left < bytes && may_trim)
		l->trim(l->of, node->index, bytes - left, until);
	for (int c = 0; !may_trim && c < GLK_CLASS_COUNT && left < bytes; c++) {
		glk_node_drain(node, (enum glk_class)c, bytes - left);
		left = glk_load_relaxed(&node->left);
	}
	glk_lock(&l->lock);
	l->gpu[node->index].asked++;
	give(l, node, beyond(l, node, keep));
	if (l->here)
		glk_lessee_say(l, GLK_BROKER_TOLD, &told, sizeof(told), NULL, 0);
	glk_unlock(&l->lock);
}

/* All that was asked for until now. */
static void hear(struct glk_lessee *l, bool may_trim)
{
	const struct glk_broker_bytes *want;
	struct glk_wire_frame frame;
	int err = 0;

	while (!err) {
		glk_lock(&l->lock);
		err = glk_wire_is(l->bell, &l->bell_mark)
			? glk_wire_receive(l->bell, &frame, 0)
			: -EBADF;
		if (err && err != -EAGAIN)
			glk_lessee_lose(l,
				err == -EBADF ? "the program has closed its descriptor"
					      : "it has ended");
		glk_unlock(&l->lock);
		if (err)
			return;
		want = (const void *)frame.body;
		if (frame.kind == GLK_BROKER_ASK && frame.length == sizeof(*want) &&
			want->gpu < count_of(l))
			yield_to(l, &l->pool->nodes[want->gpu], want->bytes,
				want->late_ns > 0 && want->late_ns <= LATE_MOST
					? glk_clock_ns() + want->late_ns
					: 0,
				may_trim);
		glk_wire_frame_close(&frame);
	}
}

/* Without a helper. */
static void hear_now(struct glk_node *node)
{
	hear(glk_lessee_of(node), true);
}

/* Again, where the program has closed it. */
static int open_wake(struct glk_lessee *l)
{
	int err = glk_wire_bell_open(&l->wake);

	if (err)
		l->wake = -1;
	else
		l->wake_mark = glk_wire_mark_of(l->wake);
	return err;
}

static void *help(void *arg)
{
	struct glk_lessee *l = arg;

	glk_lock(&l->lock);
	while (!l->ended) {
		struct pollfd polled[2] = {{.events = POLLIN},
			{.fd = l->here ? l->bell : -1, .events = POLLIN}};
		int wait = l->here ? -1 : ALONE_MS;

		if (!glk_wire_is(l->wake, &l->wake_mark) && open_wake(l))
			wait = ALONE_MS;
		polled[0].fd = l->wake;
		glk_unlock(&l->lock);
		glk_wire_poll(polled, 2, wait);
		if (glk_wire_is(l->wake, &l->wake_mark))
			glk_wire_bell_hear(l->wake);
		if (polled[1].revents)
			hear(l, true);
		glk_lock(&l->lock);
		glk_lessee_try(l);
	}
	glk_unlock(&l->lock);
	return NULL;
}

/* ---- Its life ---- */

int glk_lessee_check(const char *path)
{
	if (!*path || *path == '/' || !strcmp(path, "user"))
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_CONFIG,
		"'%s' is no socket of a broker; right is a path from / on, user, or nothing",
		path);
}

static void find_path(struct glk_lessee *l)
{
	const char *given = l->conf->share_broker;

	if (strcmp(given, "user")) {
		snprintf(l->path, sizeof(l->path), "%s", given);
		return;
	}
	glk_wire_room_path(l->path, sizeof(l->path) - sizeof(GLK_BROKER_SOCKET));
	strcat(l->path, "/" GLK_BROKER_SOCKET);
}

int glk_lessee_new(struct glk_pool *pool, const struct glk_conf *conf,
	glk_lessee_trim_fn trim, void *of, struct glk_lessee **ret_lessee)
{
	struct glk_lessee *l;
	int err;

	*ret_lessee = NULL;
	if (!*conf->share_broker)
		return 0;
	l = glk_region_new(sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->source = (struct glk_source){.claim = claim,
		.unclaim = unclaim,
		.make = make,
		.ask = ask,
		.forget = glk_commons_forget};
	l->pool = pool;
	l->conf = conf;
	l->trim = trim;
	l->of = of;
	l->conn = l->bell = l->wake = -1;
	find_path(l);
	if (getrandom(&l->self, sizeof(l->self), 0) != sizeof(l->self))
		l->self = (uint64_t)glk_clock_ns() ^ (uint64_t)getpid() << 40;
	glk_lock_init(&l->lock, GLK_RANK_NODE);
	for (unsigned i = 0; i < count_of(l); i++)
		pool->nodes[i].source = &l->source;
	glk_lock(&l->lock);
	l->away = glk_clock_ns();
	reach(l);
	glk_unlock(&l->lock);
	if (conf->share_helper && !open_wake(l)) {
		err = glk_thread_start(&l->thread, "glake-lease", help, l);
		l->runs = !err;
		if (err)
			glk_warn("no thread to hear the broker: error %d", err);
	}
	l->source.hear = l->runs ? NULL : hear_now;
	*ret_lessee = l;
	return 0;
}

void glk_lessee_stop(struct glk_lessee *l)
{
	if (!l || l->ended)
		return;
	glk_lock(&l->lock);
	l->ended = true;
	wake_helper(l);
	glk_unlock(&l->lock);
	if (l->runs)
		pthread_join(l->thread, NULL);
	l->runs = false;
	/* a broker that was lost counts all until the process ends, where nobody says BYE */
	glk_lock(&l->lock);
	if (!l->here && l->turn)
		reach(l);
	glk_unlock(&l->lock);
}

void glk_lessee_free(struct glk_lessee *l)
{
	if (!l)
		return;
	glk_lessee_stop(l);
	if (l->here)
		glk_lessee_say(l, GLK_BROKER_BYE, NULL, 0, NULL, 0);
	close_marked(&l->conn, &l->conn_mark);
	close_marked(&l->bell, &l->bell_mark);
	close_marked(&l->wake, &l->wake_mark);
	while (l->shared) {
		struct glk_shared *s = l->shared;

		l->shared = s->next;
		glk_shared_free(s);
	}
	glk_lock_fini(&l->lock);
	glk_region_free(l, sizeof(*l));
}

void glk_lessee_get(struct glk_lessee *l, int device, struct glake_lease *ret_lease)
{
	struct glake_lease lease = {.sz = sizeof(lease)};

	if (!l || device >= (int)count_of(l)) {
		*ret_lease = lease;
		return;
	}
	glk_lock(&l->lock);
	lease.state = l->here  ? GLAKE_LEASE_HERE
		: l->said_away ? GLAKE_LEASE_ALONE
			       : GLAKE_LEASE_AWAY;
	lease.helper = l->runs;
	lease.leased = l->gpu[device].leased;
	lease.left = glk_load_relaxed(&l->pool->nodes[device].left);
	lease.least = l->gpu[device].least;
	lease.most = l->gpu[device].most;
	lease.asked = l->gpu[device].asked;
	lease.given = l->gpu[device].given;
	lease.refused = l->gpu[device].refused;
	lease.waited_ns = l->gpu[device].waited;
	glk_unlock(&l->lock);
	*ret_lease = lease;
}
