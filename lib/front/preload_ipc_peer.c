/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The process that opens a handle. It has one connection to each process whose blocks it has
 * open, and by that the other knows of its end. One that does not answer is given a few seconds,
 * and a connection that has failed is asked no more; but it stays as long as blocks of it are in
 * use, since its end would let them go.
 */
#include "front/preload_ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PEERS_MAX 256

#define ANSWER_S 5

static struct glk_preload_ipc_peer {
	int fd; /* one more than it is: 0 is none */
	unsigned char name[GLK_PRELOAD_IPC_NAME];
	unsigned users; /* blocks of it that are open */
	bool failed;
} peers[PEERS_MAX]; /* under `talk`, descriptors under their lock too */

static void close_unused(struct glk_preload_ipc_peer *peer)
{
	if (peer->users)
		return;
	glk_preload_ipc_fds_lock();
	close(peer->fd - 1);
	peer->fd = 0;
	glk_preload_ipc_fds_unlock();
}

static int make_socket(struct glk_preload_ipc_peer *peer)
{
	int fd;

	glk_preload_ipc_fds_lock();
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		peer->fd = fd + 1;
	glk_preload_ipc_fds_unlock();
	return fd < 0 ? -errno : 0;
}

static int connect_to(struct glk_preload_ipc_peer *peer, const unsigned char *name)
{
	const struct timeval patience = {.tv_sec = ANSWER_S};
	struct sockaddr_un address;
	unsigned int length = glk_preload_ipc_address(name, &address, sizeof(address));
	int fd, err = make_socket(peer);

	if (err)
		return err;
	fd = peer->fd - 1;
	peer->failed = false;
	memcpy(peer->name, name, sizeof(peer->name));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)))
		err = -EIO;
	while (!err && connect(fd, (struct sockaddr *)&address, length))
		err = errno == EINTR		? 0
			: errno == EAGAIN	? -ETIMEDOUT
			: errno == ECONNREFUSED ? -ESRCH
						: -errno;
	/* the name may have been taken by another; root opens what it likes */
	if (!err && geteuid() && !glk_preload_ipc_is_of(fd, geteuid()))
		err = -EPERM;
	if (err)
		close_unused(peer);
	return err;
}

static int find_peer(const unsigned char *name, struct glk_preload_ipc_peer **ret_peer)
{
	struct glk_preload_ipc_peer *room = NULL;
	int err;

	for (int i = 0; i < PEERS_MAX; i++) {
		struct glk_preload_ipc_peer *peer = &peers[i];

		if (!peer->fd) {
			room = room ? room : peer;
			continue;
		}
		if (peer->failed || memcmp(peer->name, name, sizeof(peer->name)))
			continue;
		*ret_peer = peer;
		return 0;
	}
	if (!room)
		return -ENOSPC;
	err = connect_to(room, name);
	if (!err)
		*ret_peer = room;
	return err;
}

/* Copies the descriptors that came with a message; all of them are closed if that are not
 * `count`. */
static int take_fds(struct msghdr *message, size_t count, int *ret_fds)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	size_t came = 0;

	if (header && header->cmsg_level == SOL_SOCKET &&
		header->cmsg_type == SCM_RIGHTS) {
		came = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(ret_fds, CMSG_DATA(header), came * sizeof(int));
	}
	if (came == count && !(message->msg_flags & MSG_CTRUNC))
		return 0;
	for (size_t i = 0; i < came; i++)
		close(ret_fds[i]);
	/* the kernel leaves out those that this process has no room for */
	return message->msg_flags & MSG_CTRUNC ? -EMFILE : -EPROTO;
}

static int receive(int fd, struct glk_preload_ipc_answer *answer, int *ret_fds)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(GLK_PRELOAD_IPC_PAGES * sizeof(int))];
	} control;
	struct iovec data = {answer, sizeof(*answer)};
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	ssize_t got;

	do
		got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == EAGAIN	      ? -ETIMEDOUT
			: errno == ECONNRESET ? -ESRCH
					      : -errno;
	if (!got)
		return -ESRCH;
	if ((size_t)got < GLK_PRELOAD_IPC_ANSWER_SIZE(0) ||
		answer->here > GLK_PRELOAD_IPC_PAGES ||
		(size_t)got != GLK_PRELOAD_IPC_ANSWER_SIZE(answer->here))
		answer->here = GLK_PRELOAD_IPC_PAGES + 1; /* no message has so many */
	if (answer->err && answer->here)
		answer->here = GLK_PRELOAD_IPC_PAGES + 1;
	answer->uuid[sizeof(answer->uuid) - 1] = '\0';
	return take_fds(&message, answer->here, ret_fds);
}

/* A question and its answer. What fails on the way fails the connection. */
static int ask(struct glk_preload_ipc_peer *peer, enum glk_preload_ipc_what what,
	uint64_t id, struct glk_preload_ipc_answer *answer, int *ret_fds)
{
	const struct glk_preload_ipc_question question = {.what = what, .id = id};
	ssize_t sent;
	int err;

	if (peer->failed)
		return -ESRCH;
	do
		sent = send(peer->fd - 1, &question, sizeof(question), MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent == sizeof(question))
		err = receive(peer->fd - 1, answer, ret_fds);
	else
		err = errno == EAGAIN ? -ETIMEDOUT : -ESRCH;
	/* a message that came in part was one message all the same */
	peer->failed = err && err != -EMFILE;
	return err ? err : answer->err > 0 ? -EPROTO : answer->err;
}

static int add_pages(struct glk_preload_ipc_block *block, size_t have,
	const struct glk_preload_ipc_answer *answer, const int *fds)
{
	if (answer->pages != block->pages || !answer->here ||
		answer->here > block->pages - have) {
		for (uint32_t i = 0; i < answer->here; i++)
			close(fds[i]);
		return -EPROTO;
	}
	for (uint32_t i = 0; i < answer->here; i++)
		block->pieces[have + i] = (struct glake_piece){.fd = fds[i],
			.page_size = answer->page[i].page_size,
			.offset = answer->page[i].offset,
			.length = answer->page[i].length};
	return 0;
}

static void end_block(struct glk_preload_ipc_block *block, size_t have)
{
	for (size_t i = 0; i < have; i++)
		close(block->pieces[i].fd);
	munmap(block->pieces, block->pages * sizeof(*block->pieces));
	block->pieces = NULL;
}

void glk_preload_ipc_block_end(struct glk_preload_ipc_block *block)
{
	end_block(block, block->pages);
}

/* Behind the first answer, which says how many there are. */
static int fetch_pages(struct glk_preload_ipc_peer *peer, uint64_t id,
	struct glk_preload_ipc_answer *answer, int *fds,
	struct glk_preload_ipc_block *block)
{
	size_t have = 0;
	int err = 0;

	block->pages = answer->pages;
	block->size = answer->size;
	memcpy(block->uuid, answer->uuid, sizeof(block->uuid));
	block->pieces = MAP_FAILED;
	if (block->pages && block->pages <= GLAKE_PIECES_MAX)
		block->pieces = mmap(NULL, block->pages * sizeof(*block->pieces),
			PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (block->pieces == MAP_FAILED) {
		for (uint32_t i = 0; i < answer->here; i++)
			close(fds[i]);
		return -ENOMEM;
	}
	while (!err) {
		err = add_pages(block, have, answer, fds);
		have += err ? 0 : answer->here;
		if (err || have == block->pages)
			break;
		err = ask(peer, GLK_PRELOAD_IPC_MORE, id, answer, fds);
	}
	if (err)
		end_block(block, have);
	return err;
}

int glk_preload_ipc_ask(const struct glk_preload_ipc_handle *handle,
	struct glk_preload_ipc_peer **ret_peer, struct glk_preload_ipc_block *ret_block)
{
	struct glk_preload_ipc_answer answer;
	int fds[GLK_PRELOAD_IPC_PAGES + 1];
	struct glk_preload_ipc_peer *peer;
	int err;

	err = find_peer(handle->name, &peer);
	if (err)
		return err;
	err = ask(peer, GLK_PRELOAD_IPC_OPEN, handle->id, &answer, fds);
	if (err) {
		close_unused(peer);
		return err;
	}
	peer->users++;
	err = fetch_pages(peer, handle->id, &answer, fds, ret_block);
	if (err)
		glk_preload_ipc_tell(peer, handle->id);
	else
		*ret_peer = peer;
	return err;
}

void glk_preload_ipc_tell(struct glk_preload_ipc_peer *peer, uint64_t id)
{
	struct glk_preload_ipc_answer answer;
	int fds[GLK_PRELOAD_IPC_PAGES + 1];

	if (!ask(peer, GLK_PRELOAD_IPC_CLOSE, id, &answer, fds))
		for (uint32_t i = 0; i < answer.here; i++)
			close(fds[i]); /* none are right here, but they would be ours */
	peer->users--;
	close_unused(peer);
}

void glk_preload_ipc_peer_child(void)
{
	for (int i = 0; i < PEERS_MAX; i++) {
		if (peers[i].fd)
			close(peers[i].fd - 1);
		peers[i].fd = 0;
	}
}
