/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Processes whose blocks are opened here, a connection each, by which the other knows of the end
 * of this one. A connection stays as long as blocks of it are in use, since its end would let them
 * go, and as long as pages of it are kept mapped, since their owner may want them back. One that
 * has failed is asked no more, and keeps nothing.
 *
 * That a block is closed is said without an answer, so that nobody waits for a process that is
 * stopped. What it does not take at once is said when it does.
 */
#include "front/preload/ipc.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECT_S 5

/* Closed blocks that could not be told of; one more waits for its peer. */
#define CLOSINGS_MAX 4096

static pthread_mutex_t closings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct glk_preload_ipc_peer *peer;
	uint64_t id;
} closings[CLOSINGS_MAX];
static int closing_count;
static glk_atomic(bool) closing_some;

/* Of users, names and mirrors; short. */
static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct glk_preload_ipc_peer peers[GLK_PRELOAD_IPC_PEERS];
static glk_atomic(int) peers_max; /* places that were ever used */

/* Bytes that are mapped and not open, at most `keep` from then on. */
static size_t keep(struct glk_preload_ipc_mirror *mirror, size_t keep)
{
	size_t kept = 0;
	bool inside = glk_preload_inside;

	if (!mirror->seat || !glk_preload_in(mirror->seat))
		return 0;
	glk_library.mirror_trim(mirror->seat->glake, mirror->mirror, keep, &kept);
	glk_preload_out(mirror->seat);
	glk_preload_inside = inside;
	return kept;
}

static size_t keep_all(struct glk_preload_ipc_peer *peer, size_t most)
{
	size_t kept = 0;

	for (int i = 0; i < GLK_PRELOAD_IPC_MIRRORS; i++)
		kept += keep(&peer->mirror[i], most);
	return kept;
}

bool glk_preload_ipc_peer_is(const struct glk_preload_ipc_peer *peer)
{
	return peer->fd && glk_wire_is(peer->fd - 1, &peer->mark);
}

/* With `peers_lock`, of one that nobody uses. */
static void end_peer(struct glk_preload_ipc_peer *peer)
{
	bool inside = glk_preload_inside;

	for (int i = 0; i < GLK_PRELOAD_IPC_MIRRORS; i++) {
		struct glk_preload_ipc_mirror *m = &peer->mirror[i];

		if (m->seat)
			glk_preload_ipc_opened_lose(m->mirror);
		if (m->seat && glk_preload_in(m->seat)) {
			glk_library.mirror_end(m->seat->glake, m->mirror);
			glk_preload_out(m->seat);
			glk_preload_inside = inside;
		}
		*m = (struct glk_preload_ipc_mirror){0};
	}
	glk_preload_ipc_fds_lock();
	if (glk_preload_ipc_peer_is(peer)) {
		/* a close alone ends nothing as long as the thread waits for it */
		shutdown(peer->fd - 1, SHUT_RDWR);
		close(peer->fd - 1);
	}
	peer->fd = 0;
	glk_preload_ipc_fds_unlock();
	memset(peer->name, 0, sizeof(peer->name));
	glk_store_relaxed(&peer->asked, false);
}

void glk_preload_ipc_peer_put(struct glk_preload_ipc_peer *peer)
{
	size_t kept;
	bool failed;

	pthread_mutex_lock(&peers_lock);
	failed = glk_load_relaxed(&peer->failed) || !peer->fd;
	peer->users--;
	kept = keep_all(peer, failed ? 0 : SIZE_MAX);
	/* without a thread nobody would hear that they are wanted back */
	if (kept && glk_preload_ipc_begin())
		kept = keep_all(peer, 0);
	if (!peer->users && (failed || !kept))
		end_peer(peer);
	pthread_mutex_unlock(&peers_lock);
}

void glk_preload_ipc_peer_hold(struct glk_preload_ipc_peer *peer)
{
	pthread_mutex_lock(&peers_lock);
	peer->users++;
	pthread_mutex_unlock(&peers_lock);
}

/* An error that is none the next time. */
static bool passes(int err)
{
	return err == -EAGAIN || err == -ENOBUFS || err == -ENOMEM;
}

static int say_closed(struct glk_preload_ipc_peer *peer, uint64_t id, int timeout_ms)
{
	const struct glk_preload_ipc_question question = {.id = id};

	if (glk_load_relaxed(&peer->failed) || !glk_preload_ipc_peer_is(peer))
		return -EPIPE;
	return glk_wire_send(peer->fd - 1, GLK_PRELOAD_IPC_CLOSE, &question,
		sizeof(question), NULL, 0, timeout_ms);
}

/* With `closings_lock`: those that a peer takes now. */
static void say_rest(void)
{
	for (int i = closing_count; i-- > 0;) {
		struct glk_preload_ipc_peer *peer = closings[i].peer;

		if (passes(say_closed(peer, closings[i].id, 0)))
			continue;
		closings[i] = closings[--closing_count];
		glk_preload_ipc_peer_put(peer);
	}
	glk_store_relaxed(&closing_some, closing_count > 0);
}

bool glk_preload_ipc_tell_rest(void)
{
	bool some;

	if (!glk_load_relaxed(&closing_some))
		return false;
	pthread_mutex_lock(&closings_lock);
	say_rest();
	some = closing_count > 0;
	pthread_mutex_unlock(&closings_lock);
	return some;
}

void glk_preload_ipc_tell(struct glk_preload_ipc_peer *peer, uint64_t id, bool may_wait)
{
	bool later = false;

	if (passes(say_closed(peer, id, 0))) {
		pthread_mutex_lock(&closings_lock);
		later = closing_count < CLOSINGS_MAX;
		if (later) {
			closings[closing_count].peer = peer;
			closings[closing_count++].id = id;
			glk_store_relaxed(&closing_some, true);
		}
		pthread_mutex_unlock(&closings_lock);
		if (!later &&
			(!may_wait || say_closed(peer, id, GLK_PRELOAD_IPC_ANSWER_MS)))
			glk_store_relaxed(&peer->failed, true);
	}
	if (!later)
		glk_preload_ipc_peer_put(peer);
	else if (!glk_preload_ipc_begin())
		glk_preload_ipc_wake();
}

int glk_preload_ipc_unmap(const struct glk_preload_ipc_opened *old)
{
	int err;

	if (!glk_preload_in(old->seat))
		return 0; /* its memory has gone with the context */
	err = glk_library.mirror_close(
		old->seat->glake, old->mirror, (void *)(uintptr_t)old->base, old->size);
	glk_preload_out(old->seat);
	return err;
}

static pthread_mutex_t ending_lock = PTHREAD_MUTEX_INITIALIZER;

/* Work of the program that uses them is not waited for: by the rules of CUDA none is left when their
 * owner frees them. */
void glk_preload_ipc_end_unwanted(void)
{
	bool inside = glk_preload_inside;
	struct glk_preload_ipc_opened old;
	bool some;

	/* who comes second may say that they are closed */
	pthread_mutex_lock(&ending_lock);
	some = glk_preload_ipc_unwanted_some();
	while (some && glk_preload_ipc_unwanted_take(&old)) {
		if (glk_preload_ipc_unmap(&old))
			glk_preload_log(GLAKE_LOG_WARNING,
				"the driver keeps %#llx mapped, which its owner has freed",
				old.base);
		glk_preload_inside = inside;
		glk_preload_ipc_unwanted_ended(&old);
		glk_preload_ipc_tell(old.peer, old.handle.id, false);
	}
	pthread_mutex_unlock(&ending_lock);
}

void glk_preload_ipc_peer_trim(struct glk_preload_ipc_peer *peer)
{
	struct glk_preload_ipc_question done = {.id = peer->asked_id};
	int err = 0;

	/* what they have is free when it is said to be */
	glk_preload_ipc_end_unwanted();
	pthread_mutex_lock(&peers_lock);
	keep_all(peer, 0);
	pthread_mutex_unlock(&peers_lock);
	if (!glk_load_relaxed(&peer->asked))
		return;
	if (!glk_load_relaxed(&peer->failed) && glk_preload_ipc_peer_is(peer))
		err = glk_wire_send(peer->fd - 1, GLK_PRELOAD_IPC_RELEASED, &done,
			sizeof(done), NULL, 0, 0);
	if (err && err != -EPIPE)
		glk_preload_ipc_wake(); /* and once more, when it takes something */
	else
		glk_store_relaxed(&peer->asked, false);
}

/* With `talk`; under `peers_lock`, since who looks for peers to poll reads the number. */
static int make_socket(struct glk_preload_ipc_peer *peer)
{
	int fd, err;

	pthread_mutex_lock(&peers_lock);
	glk_preload_ipc_fds_lock();
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	err = -errno;
	if (fd >= 0) {
		peer->mark = glk_wire_mark_of(fd);
		peer->fd = fd + 1;
	}
	glk_preload_ipc_fds_unlock();
	pthread_mutex_unlock(&peers_lock);
	return fd < 0 ? err : 0;
}

/* Who listens at a name that only processes of one user were told, and that anyone may take who has
 * seen it, once its own process has ended. Root opens blocks of all users, and of no other user than
 * the handle names. */
static bool may_ask(int fd, const struct glk_preload_ipc_handle *handle)
{
	uid_t wanted = geteuid() ? geteuid() : handle->uid;
	struct glk_wire_peer peer;

	return !glk_wire_peer(fd, &peer) && glk_wire_may(peer.uid, wanted) &&
		peer.uid == wanted;
}

static int connect_to(
	struct glk_preload_ipc_peer *peer, const struct glk_preload_ipc_handle *handle)
{
	const struct timeval patience = {.tv_sec = CONNECT_S};
	struct sockaddr_un address;
	unsigned int length =
		glk_preload_ipc_address(peer->name, &address, sizeof(address));
	int fd, err = make_socket(peer);

	if (err)
		return err;
	fd = peer->fd - 1;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)))
		err = -EIO;
	while (!err && connect(fd, (struct sockaddr *)&address, length)) {
		if (errno == EAGAIN)
			err = -ETIMEDOUT;
		else if (errno == ECONNREFUSED)
			err = -ESRCH;
		else if (errno != EINTR)
			err = -errno;
	}
	return err || may_ask(fd, handle) ? err : -EPERM;
}

static int connect_and_tell(
	struct glk_preload_ipc_peer *peer, const struct glk_preload_ipc_handle *handle)
{
	int err = connect_to(peer, handle);

	/* it hears of blocks that are freed there; without it they are held until they are closed */
	if (!err && !glk_preload_ipc_begin())
		glk_preload_ipc_wake();
	return err;
}

/* With `peers_lock`: a free place, or that of one of which pages are kept and nothing is open; NULL
 * for none. */
static struct glk_preload_ipc_peer *find_place(void)
{
	struct glk_preload_ipc_peer *unused = NULL;
	int max = glk_load_relaxed(&peers_max);

	for (int i = 0; i < GLK_PRELOAD_IPC_PEERS; i++) {
		if (!peers[i].users && peers[i].fd && !unused)
			unused = &peers[i];
		if (peers[i].users || peers[i].fd)
			continue;
		if (i >= max) {
			pthread_mutex_init(&peers[i].talk, NULL);
			glk_store_relaxed(&peers_max, i + 1);
		}
		return &peers[i];
	}
	if (unused)
		end_peer(unused);
	return unused;
}

/* With `peers_lock`; NULL for none. */
static struct glk_preload_ipc_peer *find(const unsigned char *name)
{
	int max = glk_load_relaxed(&peers_max);
	struct glk_preload_ipc_peer *place;

	for (int i = 0; i < max; i++)
		if ((peers[i].users || peers[i].fd) &&
			!glk_load_relaxed(&peers[i].failed) &&
			!memcmp(peers[i].name, name, sizeof(peers[i].name)))
			return &peers[i];
	place = find_place();
	if (place) {
		memcpy(place->name, name, sizeof(place->name));
		glk_store_relaxed(&place->failed, false);
	}
	return place;
}

int glk_preload_ipc_peer_get(const struct glk_preload_ipc_handle *handle,
	struct glk_preload_ipc_peer **ret_peer)
{
	struct glk_preload_ipc_peer *peer;
	int err = 0;

	pthread_mutex_lock(&peers_lock);
	peer = find(handle->name);
	if (peer)
		peer->users++;
	pthread_mutex_unlock(&peers_lock);
	if (!peer)
		return -ENOSPC;
	pthread_mutex_lock(&peer->talk);
	if (glk_load_relaxed(&peer->failed))
		err = -ESRCH;
	else if (!peer->fd)
		err = connect_and_tell(peer, handle);
	if (!err) {
		*ret_peer = peer;
		return 0;
	}
	glk_store_relaxed(&peer->failed, true);
	pthread_mutex_unlock(&peer->talk);
	glk_preload_ipc_peer_put(peer);
	return err;
}

/* With `peers_lock` and `talk`: the place of a mirror that no block is open in, as those of a context
 * of the peer that has ended. NULL for none. */
static struct glk_preload_ipc_mirror *make_room(struct glk_preload_ipc_peer *peer)
{
	for (int i = 0; i < GLK_PRELOAD_IPC_MIRRORS; i++) {
		struct glk_preload_ipc_mirror *m = &peer->mirror[i];
		bool inside = glk_preload_inside;

		if (glk_preload_ipc_uses(m->mirror) || !glk_preload_in(m->seat))
			continue;
		glk_preload_ipc_opened_lose(m->mirror);
		glk_library.mirror_end(m->seat->glake, m->mirror);
		glk_preload_out(m->seat);
		glk_preload_inside = inside;
		*m = (struct glk_preload_ipc_mirror){0};
		return m;
	}
	return NULL;
}

int glk_preload_ipc_peer_mirror(struct glk_preload_ipc_peer *peer, uint64_t space,
	struct glk_preload_seat *seat, int device, struct glake_mirror **ret_mirror)
{
	struct glk_preload_ipc_mirror *room = NULL;
	struct glake_mirror *mirror;
	int err;

	/* those are added under `talk` alone, and may go meanwhile */
	pthread_mutex_lock(&peers_lock);
	for (int i = 0; i < GLK_PRELOAD_IPC_MIRRORS; i++) {
		struct glk_preload_ipc_mirror *m = &peer->mirror[i];

		if (!m->seat) {
			room = room ? room : m;
			continue;
		}
		if (m->seat != seat || m->space != space || m->device != device)
			continue;
		*ret_mirror = m->mirror;
		pthread_mutex_unlock(&peers_lock);
		return 0;
	}
	room = room ? room : make_room(peer);
	pthread_mutex_unlock(&peers_lock);
	if (!room)
		return -ENOSPC;
	err = glk_library.mirror_new(seat->glake, device, &mirror);
	if (err)
		return err;
	pthread_mutex_lock(&peers_lock);
	*room = (struct glk_preload_ipc_mirror){space, seat, device, mirror};
	pthread_mutex_unlock(&peers_lock);
	*ret_mirror = mirror;
	return 0;
}

void glk_preload_ipc_peers_drop(const struct glk_preload_seat *seat)
{
	int max = glk_load_relaxed(&peers_max);

	pthread_mutex_lock(&peers_lock);
	for (int i = 0; i < max; i++) {
		for (int k = 0; k < GLK_PRELOAD_IPC_MIRRORS; k++)
			if (peers[i].mirror[k].seat == seat)
				peers[i].mirror[k] = (struct glk_preload_ipc_mirror){0};
		if (!peers[i].users && peers[i].fd && !keep_all(&peers[i], SIZE_MAX))
			end_peer(&peers[i]);
	}
	pthread_mutex_unlock(&peers_lock);
}

size_t glk_preload_ipc_peers_poll(struct pollfd *polled)
{
	int max = glk_load_relaxed(&peers_max);
	size_t count = 0;

	pthread_mutex_lock(&peers_lock);
	for (int i = 0; i < max; i++)
		if (peers[i].fd && !glk_load_relaxed(&peers[i].failed))
			polled[count++] = (struct pollfd){.fd = peers[i].fd - 1,
				.events = glk_load_relaxed(&peers[i].asked)
					? POLLIN | POLLOUT
					: POLLIN};
	pthread_mutex_unlock(&peers_lock);
	return count;
}

/* What it says by itself: that pages are wanted back, or that it has ended. With `talk`. */
static void hear(struct glk_preload_ipc_peer *peer)
{
	struct glk_wire_frame frame;
	const struct glk_preload_ipc_answer *said = (const void *)frame.body;
	int err = glk_preload_ipc_peer_is(peer)
		? glk_wire_receive(peer->fd - 1, &frame, 0)
		: -EPIPE;

	if (err == -EAGAIN) {
		if (glk_load_relaxed(&peer->asked))
			glk_preload_ipc_peer_trim(peer);
		return;
	}
	if (!err)
		glk_wire_frame_close(&frame);
	if (!err && frame.kind == GLK_PRELOAD_IPC_FREED) {
		glk_preload_ipc_unwanted(peer, said->id);
		return;
	}
	if (!err && frame.kind == GLK_PRELOAD_IPC_RELEASE) {
		glk_store_relaxed(&peer->asked, true);
		peer->asked_id = said->id;
	} else {
		glk_store_relaxed(&peer->failed, true);
	}
	glk_preload_ipc_peer_trim(peer);
}

/* The peer of a descriptor, with one user more. */
static struct glk_preload_ipc_peer *take(int fd)
{
	struct glk_preload_ipc_peer *peer = NULL;
	int max = glk_load_relaxed(&peers_max);

	pthread_mutex_lock(&peers_lock);
	for (int i = 0; i < max && !peer; i++)
		/* one that failed may have had the number before */
		if (peers[i].fd && peers[i].fd - 1 == fd &&
			!glk_load_relaxed(&peers[i].failed))
			peer = &peers[i];
	if (peer)
		peer->users++;
	pthread_mutex_unlock(&peers_lock);
	return peer;
}

bool glk_preload_ipc_peers_attend(const struct pollfd *polled, size_t count)
{
	struct glk_preload_ipc_peer *peer;
	bool all = true;

	for (size_t i = 0; i < count; i++) {
		peer = polled[i].revents ? take(polled[i].fd) : NULL;
		if (!peer)
			continue;
		/* who asks it now hears of it too */
		if (pthread_mutex_trylock(&peer->talk)) {
			all = false;
		} else {
			if (peer->fd && !glk_load_relaxed(&peer->failed))
				hear(peer);
			/* else it is told when it takes something */
			all &= !glk_load_relaxed(&peer->asked) ||
				!(polled[i].revents & POLLOUT);
			pthread_mutex_unlock(&peer->talk);
		}
		glk_preload_ipc_peer_put(peer);
	}
	return all;
}

void glk_preload_ipc_peers_child(void)
{
	for (int i = 0; i < GLK_PRELOAD_IPC_PEERS; i++) {
		if (glk_preload_ipc_peer_is(&peers[i]))
			close(peers[i].fd - 1);
		peers[i] = (struct glk_preload_ipc_peer){0};
	}
	glk_store_relaxed(&peers_max, 0);
	peers_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	closing_count = 0;
	glk_store_relaxed(&closing_some, false);
	closings_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	ending_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
