/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The process that owns a block. It gives handles without telling anyone; the pages leave it when
 * another process asks. A thread answers, begun with the first handle: it takes no signal, ends
 * with the process, and is not there in a forked child. It listens at an abstract address with a
 * random name, and talks to processes of the same user and of root alone.
 *
 * A block that another process has open is held in the library, so that its pages serve nobody
 * else even when the program has freed it. Holds belong to a connection, and end with it:
 * whoever is killed lets go.
 */
#include "front/preload_ipc.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Processes that have some of our blocks open, and blocks that these have. */
#define GUESTS_MAX 256
#define HOLDS_MAX  65536

/* A descriptor that cannot be had now may be there soon. */
#define RETRY_MS 50

static pthread_mutex_t fds_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t serving = PTHREAD_MUTEX_INITIALIZER;

static unsigned char own_name[GLK_PRELOAD_IPC_NAME];
static glk_atomic(bool) listens;

/* Written by the thread alone, descriptors under `fds_lock` too. */
static int listener = -1;
static struct guest {
	int fd;			    /* one more than it is: 0 is none */
	struct glake_piece *pieces; /* on their way to it, in a list of `room` */
	size_t room, pages, sent, size;
	const struct glk_preload_seat *seat;
} guests[GUESTS_MAX];

static struct {
	const struct guest *guest;
	struct glk_preload_seat *seat; /* NULL: its GPU was reset */
	uint64_t id;
	void *ptr;
} holds[HOLDS_MAX]; /* under `serving` */

static int hold_count;

void glk_preload_ipc_fds_lock(void)
{
	pthread_mutex_lock(&fds_lock);
}

void glk_preload_ipc_fds_unlock(void)
{
	pthread_mutex_unlock(&fds_lock);
}

unsigned int glk_preload_ipc_address(
	const unsigned char *name, void *ret_address, size_t size)
{
	static const char digit[] = "0123456789abcdef", begin[] = "glake-";
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char *at = address.sun_path + 1; /* behind a zero: abstract */

	memcpy(at, begin, sizeof(begin) - 1);
	at += sizeof(begin) - 1;
	for (int i = 0; i < GLK_PRELOAD_IPC_NAME; i++) {
		*at++ = digit[name[i] >> 4];
		*at++ = digit[name[i] & 15];
	}
	memcpy(ret_address, &address, size < sizeof(address) ? size : sizeof(address));
	return (unsigned int)(at - (char *)&address);
}

bool glk_preload_ipc_is_of(int fd, uid_t also)
{
	struct ucred other;
	socklen_t length = sizeof(other);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length))
		return false;
	return other.uid == geteuid() || other.uid == also;
}

bool glk_preload_ipc_is_own(const struct glk_preload_ipc_handle *handle)
{
	return glk_load_acquire(&listens) && /* pairs with: glk_preload_ipc_begin */
		!memcmp(handle->name, own_name, sizeof(own_name));
}

void glk_preload_ipc_freed(const void *ptr)
{
	if (!glk_preload_ipc_is_given(ptr))
		return;
	/* it may be about to leave */
	pthread_mutex_lock(&serving);
	glk_preload_ipc_given_drop(ptr, NULL);
	pthread_mutex_unlock(&serving);
}

static void drop_pieces(struct guest *guest)
{
	for (size_t i = guest->sent; i < guest->pages; i++)
		close(guest->pieces[i].fd);
	if (guest->pieces)
		munmap(guest->pieces, guest->room * sizeof(*guest->pieces));
	guest->pieces = NULL;
	guest->pages = guest->sent = 0;
}

/* Ends the holds of a guest: one of a block, or all for 0. */
static void end_holds(const struct guest *guest, uint64_t id)
{
	for (int i = hold_count; i-- > 0;) {
		if (holds[i].guest != guest || (id && holds[i].id != id))
			continue;
		if (holds[i].seat)
			glk_library.export_end(holds[i].seat->glake, holds[i].ptr);
		holds[i] = holds[--hold_count];
		if (id)
			return;
	}
}

static int export(struct guest *guest, struct glk_preload_seat *seat, void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake_piece *pieces;
	size_t count = 0;
	int err;

	err = glk_library.query(seat->glake, ptr, &block);
	if (err)
		return -ESRCH;
	pieces = mmap(NULL, block.pages * sizeof(*pieces), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pieces == MAP_FAILED)
		return -ENOMEM;
	err = glk_library.export(seat->glake, ptr, pieces, block.pages, &count);
	if (err) {
		munmap(pieces, block.pages * sizeof(*pieces));
		return err;
	}
	guest->pieces = pieces;
	guest->room = block.pages;
	guest->pages = count;
	guest->sent = 0;
	guest->size = block.size;
	guest->seat = seat;
	return 0;
}

static int open_block(struct guest *guest, uint64_t id)
{
	struct glk_preload_seat *seat;
	void *ptr;
	int err;

	drop_pieces(guest);
	ptr = glk_preload_ipc_given(id, &seat);
	if (!ptr)
		return -ESRCH;
	if (hold_count == HOLDS_MAX)
		return -ENOSPC;
	/* it is not freed meanwhile: that waits for `serving` */
	err = export(guest, seat, ptr);
	if (err)
		return err;
	holds[hold_count].guest = guest;
	holds[hold_count].seat = seat;
	holds[hold_count].id = id;
	holds[hold_count++].ptr = ptr;
	return 0;
}

/* False if the guest does not take it. */
static bool send_answer(
	struct guest *guest, const struct glk_preload_ipc_answer *answer, const int *fds)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(GLK_PRELOAD_IPC_PAGES * sizeof(int))];
	} control = {0};
	struct iovec data = {
		(void *)(uintptr_t)answer, GLK_PRELOAD_IPC_ANSWER_SIZE(answer->here)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	if (answer->here) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(answer->here * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(answer->here * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, answer->here * sizeof(int));
	}
	return sendmsg(guest->fd - 1, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
		(ssize_t)data.iov_len;
}

/* The next pages of the block that is on its way. */
static bool send_pages(struct guest *guest)
{
	struct glk_preload_ipc_answer answer = {
		.pages = guest->pages, .size = guest->size};
	struct glake_device device = {.sz = sizeof(device)};
	int fds[GLK_PRELOAD_IPC_PAGES];
	bool sent;

	if (!glk_library.device_get(guest->seat->glake, guest->seat->device, &device))
		memcpy(answer.uuid, device.uuid, sizeof(answer.uuid));
	while (answer.here < GLK_PRELOAD_IPC_PAGES &&
		guest->sent + answer.here < guest->pages) {
		const struct glake_piece *p = &guest->pieces[guest->sent + answer.here];

		fds[answer.here] = p->fd;
		answer.page[answer.here++] =
			(struct glk_preload_ipc_page){p->page_size, p->offset, p->length};
	}
	sent = send_answer(guest, &answer, fds);
	for (uint32_t i = 0; sent && i < answer.here; i++)
		close(fds[i]);
	if (sent)
		guest->sent += answer.here;
	if (guest->sent == guest->pages)
		drop_pieces(guest);
	return sent;
}

/* False for a guest that is to be left. */
static bool answer_one(struct guest *guest)
{
	struct glk_preload_ipc_answer refusal = {0};
	struct glk_preload_ipc_question question;
	ssize_t got;

	got = recv(guest->fd - 1, &question, sizeof(question), MSG_DONTWAIT);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR;
	if (got != sizeof(question))
		return false;
	switch (question.what) {
	case GLK_PRELOAD_IPC_OPEN:
		refusal.err = open_block(guest, question.id);
		break;
	case GLK_PRELOAD_IPC_MORE:
		refusal.err = guest->pieces ? 0 : -EINVAL;
		break;
	case GLK_PRELOAD_IPC_CLOSE:
		end_holds(guest, question.id);
		return send_answer(guest, &refusal, NULL);
	default:
		return false;
	}
	return refusal.err ? send_answer(guest, &refusal, NULL) : send_pages(guest);
}

static void leave_guest(struct guest *guest)
{
	drop_pieces(guest);
	end_holds(guest, 0);
	glk_preload_ipc_fds_lock();
	close(guest->fd - 1);
	guest->fd = 0;
	glk_preload_ipc_fds_unlock();
}

/* False where no descriptor is left. */
static bool greet(void)
{
	struct guest *guest = NULL;
	int fd, err;

	for (int i = 0; i < GUESTS_MAX && !guest; i++)
		guest = guests[i].fd ? NULL : &guests[i];
	glk_preload_ipc_fds_lock();
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	err = errno;
	if (fd >= 0 && (!guest || !glk_preload_ipc_is_of(fd, 0)))
		close(fd);
	else if (fd >= 0)
		guest->fd = fd + 1;
	glk_preload_ipc_fds_unlock();
	return fd >= 0 || (err != EMFILE && err != ENFILE && err != ENOMEM);
}

/* One that asks or has gone. Not while the process ends: the driver goes too. */
static bool attend(struct guest *guest)
{
	bool goes_on;

	pthread_mutex_lock(&serving);
	goes_on = !glk_preload_stopped();
	if (goes_on && !answer_one(guest))
		leave_guest(guest);
	pthread_mutex_unlock(&serving);
	return goes_on;
}

static void *serve(void *arg)
{
	static struct pollfd polled[GUESTS_MAX + 1];
	static struct guest *of[GUESTS_MAX + 1];
	bool room = true;
	nfds_t count;

	glk_preload_inside = true;
	while (!glk_preload_stopped()) {
		polled[0] = (struct pollfd){.fd = room ? listener : -1, .events = POLLIN};
		count = 1;
		for (int i = 0; i < GUESTS_MAX; i++) {
			if (!guests[i].fd)
				continue;
			of[count] = &guests[i];
			polled[count++] =
				(struct pollfd){.fd = guests[i].fd - 1, .events = POLLIN};
		}
		if (poll(polled, count, room ? -1 : RETRY_MS) < 0)
			continue;
		for (nfds_t i = 1; i < count; i++)
			if (polled[i].revents && !attend(of[i]))
				return NULL;
		room = !polled[0].revents || greet();
	}
	return NULL;
}

static int listen_at_name(void)
{
	struct sockaddr_un address;
	unsigned int length;
	int err = 0;

	if (getrandom(own_name, sizeof(own_name), 0) != sizeof(own_name))
		return -EAGAIN;
	length = glk_preload_ipc_address(own_name, &address, sizeof(address));
	glk_preload_ipc_fds_lock();
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) ||
		listen(listener, GUESTS_MAX)) {
		err = -EAGAIN;
		if (listener >= 0)
			close(listener);
		listener = -1;
	}
	glk_preload_ipc_fds_unlock();
	return err;
}

int glk_preload_ipc_begin(unsigned char *ret_name)
{
	sigset_t all, before;
	pthread_t thread;
	int err;

	if (glk_load_relaxed(&listens)) {
		memcpy(ret_name, own_name, sizeof(own_name));
		return 0;
	}
	err = listen_at_name();
	if (err)
		return err;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, NULL, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		glk_preload_ipc_fds_lock();
		close(listener);
		listener = -1;
		glk_preload_ipc_fds_unlock();
		return -EAGAIN;
	}
	pthread_setname_np(thread, "glake-ipc");
	pthread_detach(thread);
	memcpy(ret_name, own_name, sizeof(own_name));
	glk_store_release(&listens, true); /* pairs with: glk_preload_ipc_is_own */
	return 0;
}

void glk_preload_ipc_leave(const struct glk_preload_seat *seat)
{
	pthread_mutex_lock(&serving);
	glk_preload_ipc_given_drop(NULL, seat);
	for (int i = 0; i < GUESTS_MAX; i++)
		if (guests[i].pieces && guests[i].seat == seat)
			drop_pieces(&guests[i]);
	for (int i = 0; i < hold_count; i++)
		if (holds[i].seat == seat)
			holds[i].seat = NULL;
	pthread_mutex_unlock(&serving);
}

void glk_preload_ipc_stop(void)
{
	struct timespec until;

	if (!glk_load_relaxed(&listens))
		return;
	/* an answer that is being given ends before the driver does; one that hangs is left */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (!pthread_mutex_timedlock(&serving, &until))
		pthread_mutex_unlock(&serving);
}

void glk_preload_ipc_serve_child(void)
{
	if (listener >= 0)
		close(listener);
	listener = -1;
	for (int i = 0; i < GUESTS_MAX; i++) {
		if (guests[i].fd)
			close(guests[i].fd - 1);
		guests[i] = (struct guest){0};
	}
	hold_count = 0;
	glk_store_relaxed(&listens, false);
	serving = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
