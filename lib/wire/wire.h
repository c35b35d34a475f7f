/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_WIRE_WIRE_H
#define GLK_WIRE_WIRE_H

/*
 * The face of this folder: sockets between processes of one machine. It needs the C library alone
 * and knows nothing of GPUs, nor of what is said.
 *
 *	room.c		the directory where the sockets of a user lie
 *	peer.c		who is at the other end
 *	bell.c		what wakes a thread
 *	frame.c		messages with descriptors, for those who are no text
 *	client.c	asks another process
 *	server.c	a socket of this process, and the thread that answers there
 *
 * The last one stands on the others, and client.c on peer.c.
 *
 * Trust	the directory is this user's own and closed to all others, or there is no socket. Each
 *		end asks the kernel who the other one is: a server answers its own user and root,
 *		a client listens to the user whose directory it has opened. The kernel shows all
 *		users that a namespace does not know as one, 65534, who is trusted in nothing
 * Messages	lines of text in both directions, each answer to one question, without descriptors: a
 *		server has no room for one in what it receives. Frames have a version and few
 *		descriptors each
 * Errors	0 or -errno, and a sentence in `why`, a text of GLK_WIRE_WHY_MAX bytes
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GLK_WIRE_WHY_MAX 512

/* Bytes of a question and of an answer, with the end of the line. */
#define GLK_WIRE_QUESTION_MAX ((size_t)64 << 10)
#define GLK_WIRE_ANSWER_MAX   ((size_t)1 << 20)

/* Who are connected at once; there are fewer where RLIMIT_NOFILE is low. */
#define GLK_WIRE_CLIENTS_MAX 64

/*
 * The directory for the sockets of this user: glake in XDG_RUNTIME_DIR, which is /run/user/UID
 * where nothing is set, and /run for root. `make`: it is made if it is not there.
 *
 * 0, and a descriptor of it; -ENOENT (there is none); -EPERM (it, or the one that it lies in, is
 * another user's or open to others); -ENOTDIR; what else the system answers.
 */
int glk_wire_room_open(bool make, int *ret_fd, char *why);
/* Where it is, or would be. */
void glk_wire_room_path(char *path, size_t size);

/* The name of the socket of a process, and the process of a name; 0: it is none. */
#define GLK_WIRE_NAME_MAX 32
void glk_wire_name(pid_t pid, char *name);
pid_t glk_wire_name_pid(const char *name);

/* Who is at the other end of a connected socket. 0 or -errno. */
struct glk_wire_peer {
	uid_t uid;
	pid_t pid; /* when it connected, as seen from here; 0: it is in no namespace of ours */
};

int glk_wire_peer(int fd, struct glk_wire_peer *ret_peer);
/* A descriptor of its process, which is readable when that has ended, also where a child of it keeps
 * the socket open. The caller's. 0; -EOPNOTSUPP (the kernel has none); -errno. */
int glk_wire_pidfd(int fd, int *ret_pidfd);
/* Whether a user may be answered by processes of another. */
bool glk_wire_may(uid_t peer, uid_t own);

/*
 * Answers a question: writes at most `size` bytes, and returns how many; 0 is no answer. A `line`
 * of NULL was longer than there is room for: its client is left after the answer. Called by the
 * thread of the server, with no lock held.
 */
typedef size_t (*glk_wire_answer_fn)(
	const char *line, size_t length, char *answer, size_t size, void *arg);

/* For the function that gives an answer: it takes long. Another thread serves the others meanwhile, which is there until
 * both are done; a second such answer has none, and holds them up. */
void glk_wire_takes_long(void);

struct glk_wire_options {
	glk_wire_answer_fn answer;
	/* NULL, or: a client is left. Called by the thread of the server, and must take no lock and
	 * call nothing here. */
	void (*left)(void *arg);
	void *arg;
	const char *thread_name;
	/* ms; 0: half a minute, and five seconds. */
	int idle_ms; /* after which one who asks nothing is left */
	int slow_ms; /* after which one who does not read is left */
};

/*
 * Serves at the socket of this process, of which there is one at a time. A thread answers, and a
 * second one while an answer takes long, which take no signal and end with glk_wire_end; a child that
 * is forked has neither. When the process
 * exits the socket goes too, and the answer under way is waited for, for a second at most.
 *
 * 0; -EALREADY; -EADDRINUSE (a process of another namespace has the number of this one); as
 * glk_wire_room_open; -EMFILE, -EAGAIN and what else the system answers.
 */
int glk_wire_serve(const struct glk_wire_options *options, char *why);
/* Waits for the answer that is being given. Nothing without a server. */
void glk_wire_end(void);

/*
 * Connects to a socket of the directory. 0, and a descriptor; -ESRCH (nobody is there any more);
 * -EPERM (it is another user's process); -ETIMEDOUT; what else the system answers.
 */
int glk_wire_connect(int room, const char *name, int timeout_ms, int *ret_fd,
	struct glk_wire_peer *ret_peer, char *why);
/*
 * The same to a socket of frames (below) anywhere, of the owner of its directory or of root. -EPERM also where others
 * may have put it there.
 */
int glk_wire_dial(const char *path, int timeout_ms, int *ret_fd,
	struct glk_wire_peer *ret_peer, char *why);
/*
 * Sends a line, which ends with its newline, and receives one, which ends with a zero instead.
 * 0; -EPIPE (it has ended, or does not want to talk); -ETIMEDOUT; -EMSGSIZE (longer than `size`);
 * -EPROTO (more than a line).
 */
int glk_wire_ask(int fd, const char *question, int timeout_ms, char *answer, size_t size,
	char *why);

/*
 * Frames over a socket of SOCK_SEQPACKET: each is one message, has a kind, and brings no more
 * descriptors than any process has room for. What is received is checked to be a whole frame of
 * this version; what it says is not.
 */
#define GLK_WIRE_VERSION  1
#define GLK_WIRE_BODY_MAX ((size_t)8 << 10)
#define GLK_WIRE_FDS_MAX  32

struct glk_wire_frame {
	uint32_t kind, length, count;
	int fd[GLK_WIRE_FDS_MAX]; /* `count` of them, closed on exec; the caller's */
	union {
		char body[GLK_WIRE_BODY_MAX]; /* `length` bytes; zeros behind them */
		uint64_t aligned;
	};
};

/*
 * Sends `length` bytes and `count` descriptors, which stay the caller's. Waits at most `timeout_ms`
 * for room. 0; -EAGAIN (there is none); -EPIPE (the other end is gone); -EMSGSIZE; what else the
 * system answers.
 */
int glk_wire_send(int fd, uint32_t kind, const void *body, size_t length, const int *fds,
	size_t count, int timeout_ms);
/*
 * Receives one. 0; -EAGAIN (none came in time); -EPIPE; -EMFILE (there was no room for its
 * descriptors, of which none is left); -EPROTO (no frame of this version).
 */
int glk_wire_receive(int fd, struct glk_wire_frame *frame, int timeout_ms);
void glk_wire_frame_close(struct glk_wire_frame *frame);

/*
 * poll(2), also of more descriptors than the process may have now, which the kernel refuses: those
 * are looked at after a moment, a part at a time. What fails otherwise takes a moment too, so that
 * who polls again does not spin. The number of those that have something; -1 for EINTR.
 */
struct pollfd;
int glk_wire_poll(struct pollfd *polled, size_t count, int timeout_ms);

/*
 * Descriptors that a program may close, since it does not know them, and have another of their
 * number then.
 */
struct glk_wire_mark {
	dev_t dev;
	ino_t ino;
	mode_t mode;
};

struct glk_wire_mark glk_wire_mark_of(int fd);
/* Whether it is still what was marked. */
bool glk_wire_is(int fd, const struct glk_wire_mark *mark);

/*
 * A descriptor by which threads wake one that polls it for input. Made: 0, or what the system
 * answers; closed by close(2). Rung: from any thread, and a signal handler; it does not block. Heard:
 * by the one that polls, before it looks for what there is to do.
 */
int glk_wire_bell_open(int *ret_fd);
void glk_wire_bell_ring(int fd);
void glk_wire_bell_hear(int fd);

#endif
