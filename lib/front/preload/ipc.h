/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_PRELOAD_IPC_H
#define GLK_FRONT_PRELOAD_IPC_H

/*
 * Handles of blocks for other processes (cuIpcGetMemHandle and its kin). A handle names the
 * process that gave it and one block of that; whoever opens it asks that process over a socket,
 * and gets the numbers of the block's pages and, for those that he has not mapped yet,
 * descriptors, a few at a time.
 *
 *	index.c		how blocks are found in tables of thousands
 *	ipc_thread.c	the thread: how it begins, is woken, and where it listens
 *	ipc_given.c	what this process has given handles of
 *	ipc_hold.c	what those who ask here hold
 *	ipc_guest.c	those who ask here, how they are asked for pages, and waited for
 *	ipc_opened.c	what this process has opened
 *	ipc_peer.c	connections to processes whose blocks are opened
 *	ipc_ask.c	what is asked there, and the pages that are mapped
 *	ipc_serve.c	what the thread does: it answers, and lets go of pages of others
 *	ipc.c		the functions of the driver
 *
 * They stand on each other in this order.
 *
 * Pages stay mapped when a block is closed (share.keep), so their owner can have them back: it
 * sends RELEASE on the connection, to which the thread here answers RELEASED when they are gone. A
 * block that is open when its owner frees it is closed here when the owner sends FREED.
 *
 * Locks, in this order: `talk` of a peer, held while it is asked, by nobody who closes a block
 * and by the thread only if it is free; `serving`, held by the thread while it does anything; the
 * short ones of the tables; that of the descriptors, which a fork takes.
 */
#include "front/preload/preload.h"

#include "wire/wire.h"

#include <sys/types.h>

#define GLK_PRELOAD_IPC_NAME 16

/* What a handle of CUDA holds of ours. */
struct glk_preload_ipc_handle {
	char magic[8];
	uint32_t version;
	uint32_t check;				  /* of all else */
	uint64_t id;				  /* of the block; none is used again */
	unsigned char name[GLK_PRELOAD_IPC_NAME]; /* of the process: random */
	int32_t pid;				  /* for messages */
	uint32_t uid;				  /* of the process */
	uint32_t reserved[4];
};

_Static_assert(sizeof(struct glk_preload_ipc_handle) == sizeof(struct glk_cu_ipc_handle),
	"a handle of ours takes the place of one of CUDA");

#define GLK_PRELOAD_IPC_MAGIC	"glakeIPC"
#define GLK_PRELOAD_IPC_VERSION 3

/* Kinds of frames. */
enum glk_preload_ipc_what {
	/* Of those who ask; each is answered by one of its kind but CLOSE and RELEASED. */
	GLK_PRELOAD_IPC_OPEN = 1, /* holds the block, and lists its first pages */
	GLK_PRELOAD_IPC_MORE,	  /* lists pages from `first` on */
	GLK_PRELOAD_IPC_PAGES,	  /* gives descriptors of `count` pages from `first` on */
	GLK_PRELOAD_IPC_CLOSE,	  /* holds it once less */
	GLK_PRELOAD_IPC_RELEASED, /* no page that is not open is mapped any more */
	/* Of those who own, at any time. */
	GLK_PRELOAD_IPC_RELEASE,
	GLK_PRELOAD_IPC_FREED, /* the block of `id`, which may be closed now */
};

struct glk_preload_ipc_question {
	uint64_t id; /* of RELEASED, the one of RELEASE */
	uint64_t first, count;
};

#define GLK_PRELOAD_IPC_LIST 256

struct glk_preload_ipc_answer {
	int32_t err;   /* 0 or -errno; nothing else is said then */
	uint32_t here; /* pages in this message */
	uint64_t id;   /* of RELEASE and FREED */
	uint64_t pages, size;
	uint64_t at;	 /* the block's address there */
	uint64_t space;	 /* whose addresses these are: none is used again */
	uint64_t offset; /* of the block in its first page */
	char uuid[48];	 /* of the GPU */
	struct {
		uint64_t number, size;
	} page[GLK_PRELOAD_IPC_LIST];
};

#define GLK_PRELOAD_IPC_ANSWER_SIZE(here)                                                \
	(offsetof(struct glk_preload_ipc_answer, page) + (here)*2 * sizeof(uint64_t))

_Static_assert(
	sizeof(struct glk_preload_ipc_answer) <= GLK_WIRE_BODY_MAX, "it is a frame");

/*
 * ipc_given.c: gives the handle of a live block, always the same one. 0; -EAGAIN: there
 * is no thread or socket to be had; -ENOSPC: too many; -EPERM: nobody could tell this user.
 */
int glk_preload_ipc_give(struct glk_preload_seat *seat, void *ptr,
	struct glk_preload_ipc_handle *ret_handle);
uint32_t glk_preload_ipc_check(const struct glk_preload_ipc_handle *handle);
/* The block of a handle; NULL if there is none any more. */
void *glk_preload_ipc_given(uint64_t id, struct glk_preload_seat **ret_seat);
bool glk_preload_ipc_is_given(const void *ptr);
/* The handle of a block is no good from now on. The number of the block, or 0. */
uint64_t glk_preload_ipc_given_drop(const void *ptr);
/* Those of a GPU. */
void glk_preload_ipc_given_leave(const struct glk_preload_seat *seat);

/* ipc_thread.c: has the thread begin, once. 0 or -EAGAIN. */
int glk_preload_ipc_begin(void);
/* The same, and has it listen: what a handle says of this process. 0, -EAGAIN or -EPERM. */
int glk_preload_ipc_listen(unsigned char *ret_name, uint32_t *ret_uid);
/* Whether this process has given it. */
bool glk_preload_ipc_is_own(const struct glk_preload_ipc_handle *handle);
/* Has the thread look for what is to be done. */
void glk_preload_ipc_wake(void);
/* The socket of a process; its length. */
unsigned int glk_preload_ipc_address(
	const unsigned char *name, void *ret_address, size_t size);
/* What the thread is to do, before it begins. */
typedef void *glk_preload_ipc_body(void *arg);
void glk_preload_ipc_serves(glk_preload_ipc_body *fn);
/* For that: where it listens and is woken, or -1, since a program may have closed them. */
int glk_preload_ipc_listener(void);
int glk_preload_ipc_bell(void);
void glk_preload_ipc_thread_child(void);

/* ipc_serve.c: what begins the thread is called behind it. */
void glk_preload_ipc_ready(void);

/* ipc_guest.c: under `serving`, by the thread. */
struct pollfd;

/* One that has connected is taken in, or closed where there is no room. */
void glk_preload_ipc_guest_add(int fd);
/* Entries for poll(2), at most GLK_PRELOAD_IPC_GUEST_POLLS; their number. */
#define GLK_PRELOAD_IPC_GUESTS	    256
#define GLK_PRELOAD_IPC_GUEST_POLLS (2 * GLK_PRELOAD_IPC_GUESTS)
size_t glk_preload_ipc_guests_poll(struct pollfd *polled);
/* Those of them that have something to say, or have gone. */
void glk_preload_ipc_guests_attend(const struct pollfd *polled, size_t count);
/* Asks them for pages that went back to the driver, if there are any or somebody waits. Whether
 * to look again soon. */
bool glk_preload_ipc_guests_remind(void);
void glk_preload_ipc_guests_leave(const struct glk_preload_seat *seat);
void glk_preload_ipc_guests_child(void);

/* ipc_hold.c: under `serving`, by the thread but for _freed. */
struct glk_preload_ipc_hold {
	void *guest;
	struct glk_preload_seat *seat; /* NULL: its GPU was reset */
	uint64_t id;
	void *ptr;
	uint64_t size;
	bool freed, told; /* by the program here; to the guest */
};

bool glk_preload_ipc_holds_room(void);
void glk_preload_ipc_holds_add(const struct glk_preload_ipc_hold *hold);
struct glk_preload_ipc_hold *glk_preload_ipc_holds_find(const void *guest, uint64_t id);
/* Ends the holds of a guest: one of a block, or all for 0. How many. */
unsigned glk_preload_ipc_holds_end(const void *guest, uint64_t id);
/* The program has freed a block, and nothing uses it. Whether guests should be told. */
bool glk_preload_ipc_holds_freed(uint64_t id);
/* Tells guests of such blocks, if it is time: of all of them with a new round. Whether some could not
 * be told. */
bool glk_preload_ipc_holds_ask(uint64_t round, bool (*tell)(void *guest, uint64_t id));
void glk_preload_ipc_holds_leave(const struct glk_preload_seat *seat);
void glk_preload_ipc_holds_child(void);

/* ipc_peer.c: a process that has given handles. */
#define GLK_PRELOAD_IPC_PEERS	256
#define GLK_PRELOAD_IPC_MIRRORS 64
/* How long an answer is waited for. */
#define GLK_PRELOAD_IPC_ANSWER_MS 5000

struct glk_preload_ipc_peer {
	pthread_mutex_t talk; /* of the connection: asked, and read */
	int fd;		      /* one more than it is: 0 is none */
	struct glk_wire_mark mark;
	unsigned char name[GLK_PRELOAD_IPC_NAME];
	unsigned users;	   /* blocks that are open or being opened, and the thread */
	unsigned closings; /* of those, closed and not told so far */
	glk_atomic(bool) failed;
	glk_atomic(
		bool) asked; /* for RELEASE, while it could not be done; under `talk` */
	uint64_t asked_id;
	uint64_t
		opening; /* block that is being opened, and whether FREED came for it; likewise */
	bool opening_freed;
	struct glk_preload_ipc_mirror {
		uint64_t space;
		struct glk_preload_seat *seat; /* NULL: none, or its GPU was reset */
		int device;
		struct glake_mirror *mirror;
	} mirror[GLK_PRELOAD_IPC_MIRRORS];
};

/* The peer of a handle, with one user more; connected under its `talk`, which the caller holds
 * from then on. 0; -ESRCH: it is gone; -ETIMEDOUT; -EPERM: it is another user's; -ENOSPC. */
int glk_preload_ipc_peer_get(const struct glk_preload_ipc_handle *handle,
	struct glk_preload_ipc_peer **ret_peer);
/* One user more, for a caller that is one. */
void glk_preload_ipc_peer_hold(struct glk_preload_ipc_peer *peer);
/* One user less; the caller does not hold `talk`, unless it stays one. */
void glk_preload_ipc_peer_put(struct glk_preload_ipc_peer *peer);
/* The mirror of some addresses of it, made if there is none. 0 or -errno. */
int glk_preload_ipc_peer_mirror(struct glk_preload_ipc_peer *peer, uint64_t space,
	struct glk_preload_seat *seat, int device, struct glake_mirror **ret_mirror);
/* Says that a block is used no more, now or as soon as the process takes it, and gives the user
 * of it back. Waits for nobody but where thousands are to be said; who may not wait gives the
 * connection up then. */
void glk_preload_ipc_tell(struct glk_preload_ipc_peer *peer, uint64_t id, bool may_wait);
/* Tells what could not be told. Whether some is left. */
bool glk_preload_ipc_tell_rest(void);
/* Whether its connection is there: the program may have closed it. */
bool glk_preload_ipc_peer_is(const struct glk_preload_ipc_peer *peer);
/* Unmaps what is not open, and says so where that was asked for. Under `talk`. */
void glk_preload_ipc_peer_trim(struct glk_preload_ipc_peer *peer);
void glk_preload_ipc_peers_drop(const struct glk_preload_seat *seat);
/* For the thread, as those of guests: connections on which the other end speaks by itself. False:
 * to be looked at again soon. */
size_t glk_preload_ipc_peers_poll(struct pollfd *polled);
bool glk_preload_ipc_peers_attend(const struct pollfd *polled, size_t count);
void glk_preload_ipc_peers_child(void);

/* ipc_ask.c: a block as it was given. */
struct glk_preload_ipc_block {
	struct glake_piece *pieces; /* in memory of its own */
	uint64_t id, pages, size, at, space;
	char uuid[48];
};

/* Asks for a block, under `talk`. 0; -ESRCH: the process or the block is gone; -ETIMEDOUT: it does
 * not answer; or another -errno of either process. */
int glk_preload_ipc_ask(struct glk_preload_ipc_peer *peer, uint64_t id,
	struct glk_preload_ipc_block *ret_block);
void glk_preload_ipc_block_end(struct glk_preload_ipc_block *block);
/* Maps it. */
int glk_preload_ipc_map(struct glk_preload_ipc_peer *peer, struct glk_preload_seat *seat,
	int device, const struct glk_preload_ipc_block *block,
	struct glake_mirror **ret_mirror, glk_cu_address *ret);

/* ipc_opened.c: a block of another process that is open here. */
struct glk_preload_ipc_opened {
	struct glk_preload_ipc_handle handle;
	struct glk_preload_seat *seat;
	struct glk_preload_ipc_peer *peer;
	struct glake_mirror *mirror;
	int device; /* that has the memory */
	glk_cu_address base;
	size_t size;
	unsigned count;
	bool closing;  /* one thread does so: it is nobody else's */
	bool unwanted; /* its owner has freed it */
	bool ending; /* it is being closed for that; count 0: the program has closed it meanwhile */
	bool gone; /* it was closed for that */
	bool lost; /* gone, and its addresses may be somebody else's */
};

bool glk_preload_ipc_opened_some(void);
/* Whether a handle is open here, which is counted then. */
bool glk_preload_ipc_opened_again(const struct glk_preload_ipc_handle *handle,
	const struct glk_preload_seat *seat, glk_cu_address *ret);
/* False: there are too many. */
bool glk_preload_ipc_opened_add(const struct glk_preload_ipc_opened *opened);
/* The program closes one: GLK_PRELOAD_UNSERVED if there is none. With a seat, it was the last time,
 * and the caller ends it by the next, from whom nobody else takes it. */
glk_cu_result glk_preload_ipc_opened_close(
	glk_cu_address ptr, struct glk_preload_seat **ret_seat, int *ret_device);
/* Takes it out, unless it stays after all. False: there is none for the caller. */
bool glk_preload_ipc_opened_closed(
	glk_cu_address base, bool stays, struct glk_preload_ipc_opened *ret_old);
/* Takes one of a GPU out, of the places below `at`. Its place, or -1. */
int glk_preload_ipc_opened_take(const struct glk_preload_seat *seat, int at,
	struct glk_preload_ipc_opened *ret_old);
/* Whether a block is open in a mirror. */
bool glk_preload_ipc_uses(const struct glake_mirror *mirror);
/* The program closes what is not here: whether it may have been. */
bool glk_preload_ipc_opened_was(glk_cu_address ptr);
/* Addresses of a mirror are given back. */
void glk_preload_ipc_opened_lose(const struct glake_mirror *mirror);
/* A peer has freed a block that is open or being opened here: it is closed by the thread, or with the
 * next trim of a peer. The program may close it all the same. Under `talk`. */
void glk_preload_ipc_unwanted(struct glk_preload_ipc_peer *peer, uint64_t id);
/* Whether there are some since it was asked last. */
bool glk_preload_ipc_unwanted_some(void);
/* One of them: it is ending now, and the caller's. False: there is none. */
bool glk_preload_ipc_unwanted_take(struct glk_preload_ipc_opened *ret_old);
/* It is gone. */
void glk_preload_ipc_unwanted_ended(const struct glk_preload_ipc_opened *old);

/* ipc_peer.c: closes those. */
void glk_preload_ipc_end_unwanted(void);
/* 0, also where its memory has gone with its GPU. */
int glk_preload_ipc_unmap(const struct glk_preload_ipc_opened *old);

/* ipc_given.c and ipc_opened.c: in a child. */
void glk_preload_ipc_given_child(void);
void glk_preload_ipc_opened_child(void);

#endif
