/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_PRELOAD_IPC_H
#define GLK_FRONT_PRELOAD_IPC_H

/*
 * Handles of blocks for other processes (cuIpcGetMemHandle and its kin). A handle names the
 * process that gave it and one block of that; whoever opens it asks that process over a socket
 * and gets the pages as descriptors, which he maps.
 *
 *	preload_ipc.c		the functions of the driver, and what this process has opened
 *	preload_ipc_peer.c	asks other processes
 *	preload_ipc_given.c	what this process has given handles of
 *	preload_ipc_serve.c	the thread that answers
 *
 * Locks, in this order: `talk` of preload_ipc.c, held while another process is asked and never
 * by the thread that answers; `serving`, held by that thread while it answers one question; the
 * short ones of the tables; that of the descriptors, which a fork takes.
 */
#include "front/preload.h"

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
	uint32_t reserved[5];
};

_Static_assert(sizeof(struct glk_preload_ipc_handle) == sizeof(struct glk_cu_ipc_handle),
	"a handle of ours takes the place of one of CUDA");

#define GLK_PRELOAD_IPC_MAGIC	"glakeIPC"
#define GLK_PRELOAD_IPC_VERSION 1

/* Questions: one message each, and one answer to each. */
enum glk_preload_ipc_what {
	GLK_PRELOAD_IPC_OPEN = 1, /* holds the block, and gives the first pages */
	GLK_PRELOAD_IPC_MORE,	  /* gives the next ones */
	GLK_PRELOAD_IPC_CLOSE,	  /* holds it no longer */
};

struct glk_preload_ipc_question {
	uint32_t what, reserved;
	uint64_t id;
};

/* Most descriptors that the kernel takes in one message. */
#define GLK_PRELOAD_IPC_PAGES 253

struct glk_preload_ipc_page {
	uint64_t page_size, offset, length;
};

struct glk_preload_ipc_answer {
	int32_t err;   /* 0 or -errno */
	uint32_t here; /* pages in this message, with a descriptor each */
	uint64_t pages, size;
	char uuid[48]; /* of the GPU */
	struct glk_preload_ipc_page page[GLK_PRELOAD_IPC_PAGES];
};

#define GLK_PRELOAD_IPC_ANSWER_SIZE(here)                                                \
	(offsetof(struct glk_preload_ipc_answer, page) +                                 \
		(here) * sizeof(struct glk_preload_ipc_page))

/*
 * preload_ipc_given.c: gives the handle of a live block, always the same one. 0; -EAGAIN: there
 * is no thread or socket to be had; -ENOSPC: too many.
 */
int glk_preload_ipc_give(struct glk_preload_seat *seat, void *ptr,
	struct glk_preload_ipc_handle *ret_handle);
uint32_t glk_preload_ipc_check(const struct glk_preload_ipc_handle *handle);
/* The block of a handle; NULL if there is none any more. */
void *glk_preload_ipc_given(uint64_t id, struct glk_preload_seat **ret_seat);
bool glk_preload_ipc_is_given(const void *ptr);
/* The handle of a block, or those of a GPU, are no good from now on. */
void glk_preload_ipc_given_drop(const void *ptr, const struct glk_preload_seat *seat);

/* preload_ipc_serve.c: has the thread begin, once; the name of this process. 0 or -EAGAIN. */
int glk_preload_ipc_begin(unsigned char *ret_name);
/* Whether this process has given it. */
bool glk_preload_ipc_is_own(const struct glk_preload_ipc_handle *handle);
/* The socket of a process; its length. */
unsigned int glk_preload_ipc_address(
	const unsigned char *name, void *ret_address, size_t size);
/* Whether the other end of a socket is a process of this user, or of another one. */
bool glk_preload_ipc_is_of(int fd, uid_t also);

/* In a child: closes what there is. */
void glk_preload_ipc_given_child(void);
void glk_preload_ipc_serve_child(void);
void glk_preload_ipc_peer_child(void);

/* preload_ipc_peer.c: a connection to a process that has given handles. Under `talk`. */
struct glk_preload_ipc_peer;

/* A block as it was given. */
struct glk_preload_ipc_block {
	struct glake_piece *pieces; /* in memory of its own */
	size_t pages, size;
	char uuid[48];
};

/*
 * Asks for the block of a handle. 0; -ESRCH: the process or the block is gone; -ETIMEDOUT: it
 * does not answer; -EPERM: it is another user's; or another -errno of either process.
 */
int glk_preload_ipc_ask(const struct glk_preload_ipc_handle *handle,
	struct glk_preload_ipc_peer **ret_peer, struct glk_preload_ipc_block *ret_block);
/* Closes the descriptors. */
void glk_preload_ipc_block_end(struct glk_preload_ipc_block *block);
/* Says that a block is used no more, and waits for the answer. */
void glk_preload_ipc_tell(struct glk_preload_ipc_peer *peer, uint64_t id);

#endif
