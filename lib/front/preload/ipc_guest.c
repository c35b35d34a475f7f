/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Processes that have blocks of this one open. Such a block is held in the library, so that its
 * pages serve nobody else even when the program has freed it. Holds belong to a connection and end
 * with it, or with the process at its other end where a child of that keeps it: whoever is killed
 * lets go. An answer that cannot be sent ends none: the guest waits for it in vain, and goes on with
 * what it has open.
 *
 * A guest keeps pages mapped that it has closed. When the library has given one that was out back
 * to the driver, or the program finds no memory, guests are asked to let go of them. One that does
 * not answer holds what it has mapped until it ends, which share.keep bounds. Such asking goes in
 * rounds: each has a number, and is over when no guest that is still waited for owes an answer to it.
 */
#include "front/preload/ipc.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define GUESTS_MAX GLK_PRELOAD_IPC_GUESTS

/* How long a request for memory waits for guests to let go of some. */
#define RECLAIM_MS 1000

static struct guest {
	int fd, pidfd; /* one more than they are: 0 is none */
	struct glk_wire_mark fd_mark, pidfd_mark;
	struct glake_piece
		*pieces; /* of the block that it opened last, in a list of `room` */
	uint64_t id;	 /* of that */
	size_t room, pages;
	unsigned holds;
	bool lent;	/* it got pages, and may have some as long as it is there */
	bool deaf;	/* the program has closed its socket: it is here until it ends */
	bool full;	/* it reads nothing, and is heard when it does */
	uint64_t asked; /* the last RELEASE that was sent, and that it answered */
	uint64_t released;
	uint64_t
		owes; /* the one that it did not answer; 0: none, and it may be sent one */
	uint64_t since; /* the question that it asked last, by their number */
} guests[GUESTS_MAX];	/* all of this under `serving` */

static uint64_t questions;

static pthread_mutex_t round_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t round_over;
static pthread_once_t round_once = PTHREAD_ONCE_INIT;
static glk_atomic(uint64_t) wanted;
static uint64_t over;		      /* under round_lock */
static glk_atomic(uint64_t) given_up; /* the last that was waited for in vain */
static glk_atomic(bool) any_lent;

static struct {
	struct glk_preload_seat *seat;
	uint64_t gone; /* bytes, as the library said last */
} looked[GLK_PRELOAD_GPUS_MAX];

/* Whether pages that were out have gone to the driver since it was looked last. */
static bool some_gone(void)
{
	bool some = false;

	for (int i = 0; i < GLK_PRELOAD_GPUS_MAX; i++) {
		struct glk_preload_seat *seat = glk_preload_seat_at(i);
		uint64_t gone = 0;

		if (!seat || !glk_preload_in(seat))
			continue;
		glk_library.export_gone(seat->glake, &gone);
		glk_preload_out(seat);
		glk_preload_inside = true;
		some |= gone != (looked[i].seat == seat ? looked[i].gone : 0);
		looked[i].seat = seat;
		looked[i].gone = gone;
	}
	return some;
}

static void end_round(uint64_t id)
{
	pthread_mutex_lock(&round_lock);
	over = id;
	pthread_cond_broadcast(&round_over);
	pthread_mutex_unlock(&round_lock);
}

static void make_round(void)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&round_over, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

/* Whether guests may have pages; the round that is on then, a new one if pages that were out went back
 * to the driver. */
static bool look(uint64_t *ret_round)
{
	uint64_t asked = glk_load_relaxed(&wanted);

	pthread_once(&round_once, make_round);
	if (!glk_load_relaxed(&any_lent)) {
		/* the last guest left after somebody had begun to wait for it */
		end_round(asked);
		return false;
	}
	if (some_gone())
		glk_add_relaxed(&wanted, 1);
	*ret_round = glk_load_relaxed(&wanted);
	return true;
}

static void drop_pieces(struct guest *guest)
{
	if (guest->pieces)
		munmap(guest->pieces, guest->room * sizeof(*guest->pieces));
	guest->pieces = NULL;
	guest->pages = 0;
}

/* Of one block, or all for 0. */
static void end_holds(struct guest *guest, uint64_t id)
{
	if (guest->holds)
		guest->holds -= glk_preload_ipc_holds_end(guest, id);
}

static bool has_fd(const struct guest *guest)
{
	return guest->fd && glk_wire_is(guest->fd - 1, &guest->fd_mark);
}

static bool has_pidfd(const struct guest *guest)
{
	return guest->pidfd && glk_wire_is(guest->pidfd - 1, &guest->pidfd_mark);
}

/* What is its own: the program may have closed some, and have others of their number. */
static void close_fds(struct guest *guest)
{
	if (has_fd(guest))
		close(guest->fd - 1);
	if (has_pidfd(guest))
		close(guest->pidfd - 1);
}

static void leave(struct guest *guest)
{
	drop_pieces(guest);
	end_holds(guest, 0);
	glk_preload_ipc_fds_lock();
	close_fds(guest);
	*guest = (struct guest){0};
	glk_preload_ipc_fds_unlock();
}

/* No more than a quarter of the descriptors that the process may have. */
static int most_guests(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur / 8 >= GUESTS_MAX)
		return GUESTS_MAX;
	return files.rlim_cur < 16 ? 1 : (int)(files.rlim_cur / 8);
}

/* A free place, or that of the one without a block that has been silent for longest. */
static struct guest *find_place(void)
{
	struct guest *silent = NULL;
	int most = most_guests();

	for (int i = 0; i < most; i++) {
		struct guest *guest = &guests[i];

		if (!guest->fd)
			return guest;
		if (!guest->holds && (!silent || guest->since < silent->since))
			silent = guest;
	}
	if (silent)
		leave(silent);
	return silent;
}

void glk_preload_ipc_guest_add(int fd)
{
	struct guest *guest = find_place();
	struct glk_wire_peer peer;
	int pidfd;

	if (!guest || glk_wire_peer(fd, &peer) || !glk_wire_may(peer.uid, geteuid())) {
		close(fd);
		return;
	}
	glk_preload_ipc_fds_lock();
	guest->fd = fd + 1;
	guest->pidfd = glk_wire_pidfd(fd, &pidfd) ? 0 : pidfd + 1;
	guest->fd_mark = glk_wire_mark_of(fd);
	if (guest->pidfd)
		guest->pidfd_mark = glk_wire_mark_of(pidfd);
	guest->since = ++questions;
	guest->asked = guest->released = glk_load_relaxed(&wanted);
	glk_preload_ipc_fds_unlock();
}

static int list(struct guest *guest, struct glk_preload_seat *seat, void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake_piece *pieces;
	size_t count = 0;
	int err;

	if (glk_library.query(seat->glake, ptr, &block))
		return -ESRCH;
	pieces = mmap(NULL, block.pages * sizeof(*pieces), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pieces == MAP_FAILED)
		return -ENOMEM;
	err = glk_library.export_list(seat->glake, ptr, pieces, block.pages, &count);
	if (err) {
		munmap(pieces, block.pages * sizeof(*pieces));
		return err;
	}
	guest->pieces = pieces;
	guest->room = block.pages;
	guest->pages = count;
	return 0;
}

/* Of the block that it opened last. */
static uint64_t size_of(const struct guest *guest)
{
	uint64_t size = 0;

	for (size_t i = 0; i < guest->pages; i++)
		size += guest->pieces[i].length;
	return size;
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
	if (!glk_preload_ipc_holds_room())
		return -ENOSPC;
	/* it is not freed meanwhile: that waits for `serving` */
	if (!glk_preload_in(seat))
		return -ESRCH;
	err = list(guest, seat, ptr);
	glk_preload_out(seat);
	glk_preload_inside = true;
	if (err)
		return err;
	guest->id = id;
	guest->holds++;
	glk_preload_ipc_holds_add(&(struct glk_preload_ipc_hold){.guest = guest,
		.seat = seat,
		.id = id,
		.ptr = ptr,
		.size = size_of(guest)});
	return 0;
}

/* What it does not take is lost. 0; -EPIPE: it has left; or another -errno. */
static int answer(struct guest *guest, uint32_t what,
	const struct glk_preload_ipc_answer *answer, const int *fds, size_t count)
{
	int err;

	if (!has_fd(guest))
		return -EBADF;
	err = glk_wire_send(guest->fd - 1, what, answer,
		GLK_PRELOAD_IPC_ANSWER_SIZE(answer->here), fds, count, 0);
	guest->full |= err == -EAGAIN;
	return err;
}

/* False for a guest that is to be left. */
static bool refuse(struct guest *guest, uint32_t what, int err)
{
	const struct glk_preload_ipc_answer refusal = {.err = err};

	return answer(guest, what, &refusal, NULL, 0) != -EPIPE;
}

/* The pages of the block that it opened last. */
static bool send_list(struct guest *guest, uint32_t what,
	const struct glk_preload_ipc_hold *hold, size_t first)
{
	const struct glake_piece *piece = guest->pieces;
	struct glk_preload_ipc_answer list = {.pages = guest->pages,
		.at = (uint64_t)(uintptr_t)hold->ptr,
		.space = (uint64_t)(uintptr_t)hold->seat,
		.size = hold->size,
		.offset = piece->offset};
	struct glake_device device = {.sz = sizeof(device)};

	if (glk_preload_in(hold->seat)) {
		if (!glk_library.device_get(
			    hold->seat->glake, hold->seat->device, &device))
			memcpy(list.uuid, device.uuid, sizeof(list.uuid));
		glk_preload_out(hold->seat);
		glk_preload_inside = true;
	}
	for (size_t i = first; i < guest->pages && list.here < GLK_PRELOAD_IPC_LIST;
		i++) {
		list.page[list.here].number = piece[i].number;
		list.page[list.here++].size = piece[i].page_size;
	}
	return answer(guest, what, &list, NULL, 0) != -EPIPE;
}

static bool send_pages(struct guest *guest, const struct glk_preload_ipc_hold *hold,
	const struct glk_preload_ipc_question *question)
{
	const struct glk_preload_ipc_answer given = {0};
	size_t count = (size_t)question->count;
	int fds[GLK_WIRE_FDS_MAX], err = -ESRCH;

	if (!count || count > GLK_WIRE_FDS_MAX)
		return false;
	if (glk_preload_in(hold->seat)) {
		guest->lent = true;
		glk_store_relaxed(&any_lent, true);
		err = glk_library.export_fds(hold->seat->glake, hold->ptr,
			(size_t)question->first, count, fds);
		glk_preload_out(hold->seat);
		glk_preload_inside = true;
	}
	if (err)
		return refuse(guest, GLK_PRELOAD_IPC_PAGES, err);
	err = answer(guest, GLK_PRELOAD_IPC_PAGES, &given, fds, count);
	while (count)
		close(fds[--count]);
	/* such as -ETOOMANYREFS: it may take the message without them */
	if (err && err != -EPIPE && err != -EAGAIN)
		return refuse(guest, GLK_PRELOAD_IPC_PAGES, err);
	return err != -EPIPE;
}

/* False for a guest that is to be left. */
static bool answer_one(struct guest *guest, uint32_t what,
	const struct glk_preload_ipc_question *question)
{
	struct glk_preload_ipc_hold *hold;
	int err = 0;

	guest->since = ++questions;
	switch (what) {
	case GLK_PRELOAD_IPC_OPEN:
		err = open_block(guest, question->id);
		break;
	case GLK_PRELOAD_IPC_CLOSE:
		end_holds(guest, question->id);
		return true;
	case GLK_PRELOAD_IPC_RELEASED:
		if (question->id == guest->asked) {
			guest->released = question->id;
			guest->owes = 0;
		}
		return true;
	case GLK_PRELOAD_IPC_MORE:
	case GLK_PRELOAD_IPC_PAGES:
		break;
	default:
		return false;
	}
	hold = glk_preload_ipc_holds_find(guest, question->id);
	if (!err && (!hold || !hold->seat))
		err = -ESRCH;
	if (err)
		return refuse(guest, what, err);
	if (what == GLK_PRELOAD_IPC_PAGES)
		return send_pages(guest, hold, question);
	if (!guest->pieces || guest->id != question->id)
		return refuse(guest, what, -EINVAL);
	return send_list(guest, what, hold,
		what == GLK_PRELOAD_IPC_MORE ? (size_t)question->first : 0);
}

static bool attend(struct guest *guest)
{
	struct glk_preload_ipc_question question;
	struct glk_wire_frame frame;
	int err = glk_wire_receive(guest->fd - 1, &frame, 0);

	if (err)
		return err != -EPIPE && err != -EPROTO && err != -EMFILE;
	if (frame.count || frame.length != sizeof(question)) {
		glk_wire_frame_close(&frame);
		return false;
	}
	memcpy(&question, frame.body, sizeof(question));
	return answer_one(guest, frame.kind, &question);
}

size_t glk_preload_ipc_guests_poll(struct pollfd *polled)
{
	size_t count = 0;

	for (int i = 0; i < GUESTS_MAX; i++) {
		if (!guests[i].fd)
			continue;
		if (!guests[i].deaf)
			polled[count++] = (struct pollfd){.fd = guests[i].fd - 1,
				.events = guests[i].full ? POLLOUT : POLLIN};
		if (guests[i].pidfd)
			polled[count++] = (struct pollfd){
				.fd = guests[i].pidfd - 1, .events = POLLIN};
	}
	return count;
}

/* The one of a descriptor, which may have gone since. */
static struct guest *find(int fd)
{
	for (int i = 0; i < GUESTS_MAX; i++)
		if (guests[i].fd &&
			((!guests[i].deaf && guests[i].fd - 1 == fd) ||
				guests[i].pidfd - 1 == fd))
			return &guests[i];
	return NULL;
}

/* False for a guest that is to be left. */
static bool attend_fd(struct guest *guest, int fd)
{
	if (!guest->deaf && fd == guest->fd - 1) {
		guest->full = false;
		guest->deaf = !has_fd(guest);
		return guest->deaf || attend(guest);
	}
	if (has_pidfd(guest))
		return false;
	/* whether it has ended nobody can say any more, but its socket */
	guest->pidfd = 0;
	return true;
}

void glk_preload_ipc_guests_attend(const struct pollfd *polled, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct guest *guest = polled[i].revents ? find(polled[i].fd) : NULL;

		if (guest && !attend_fd(guest, polled[i].fd))
			leave(guest);
	}
}

/* One that was waited for in vain is not waited for again until it answers. */
static bool is_late(const struct guest *guest)
{
	return guest->owes && guest->owes <= glk_load_relaxed(&given_up);
}

/* Whether a guest could be told that a block which it has open was freed. */
static bool tell_freed(void *who, uint64_t id)
{
	const struct glk_preload_ipc_answer freed = {.id = id};
	struct guest *guest = who;

	return !guest->deaf && !guest->full &&
		!answer(guest, GLK_PRELOAD_IPC_FREED, &freed, NULL, 0);
}

bool glk_preload_ipc_guests_remind(void)
{
	const struct glk_preload_ipc_answer none = {0};
	struct glk_preload_ipc_answer release = none;
	bool lent = false, owed = false;

	lent = glk_preload_ipc_holds_ask(glk_load_relaxed(&wanted), tell_freed);
	if (!look(&release.id))
		return lent;
	for (int i = 0; i < GUESTS_MAX; i++) {
		struct guest *guest = &guests[i];

		if (!guest->fd || !guest->lent || guest->deaf)
			continue;
		lent = true;
		/* one at a time; one that has no room for it is asked the next time */
		if (!guest->owes && guest->asked != release.id &&
			!answer(guest, GLK_PRELOAD_IPC_RELEASE, &release, NULL, 0)) {
			guest->asked = release.id;
			guest->owes = release.id;
		}
		owed |= guest->released < release.id && !guest->full && !is_late(guest);
	}
	glk_store_relaxed(&any_lent, lent);
	if (!owed)
		end_round(release.id);
	return lent;
}

void glk_preload_ipc_guests_leave(const struct glk_preload_seat *seat)
{
	glk_preload_ipc_holds_leave(seat);
	/* all of its memory goes to the driver */
	glk_add_relaxed(&wanted, 1);
}

void glk_preload_ipc_guests_child(void)
{
	for (int i = 0; i < GUESTS_MAX; i++) {
		close_fds(&guests[i]);
		guests[i] = (struct guest){0};
	}
	glk_preload_ipc_holds_child();
	round_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

bool glk_preload_ipc_reclaim(void)
{
	struct timespec until;
	bool done, in_time = true;
	uint64_t id;

	if (!glk_load_relaxed(&any_lent) || glk_preload_stopped())
		return false;
	pthread_once(&round_once, make_round);
	id = glk_add_relaxed(&wanted, 1) + 1;
	glk_preload_ipc_wake();
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += RECLAIM_MS / 1000;
	pthread_mutex_lock(&round_lock);
	while (over < id && in_time)
		in_time = !pthread_cond_timedwait(&round_over, &round_lock, &until);
	done = over >= id;
	pthread_mutex_unlock(&round_lock);
	if (!done)
		glk_store_relaxed(&given_up, id);
	return done;
}
