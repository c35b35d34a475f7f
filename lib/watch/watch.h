/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_WATCH_WATCH_H
#define GLK_WATCH_WATCH_H

/*
 * The face of this folder: what is kept of a running program for people to look at. So far the
 * trace: all requests, frees and what else orders memory, in the file that the key trace.file
 * names, see glake/trace.h for its format.
 *
 * Addresses for the whole file are mapped at the beginning; the file grows chunk by chunk, so that
 * one that was never closed is no larger than what was recorded. Each thread writes into a chunk
 * of its own, its lane's; a lane goes to the next thread when its thread ends. An event
 * is four stores into the page cache, so what was recorded outlives the process, however that
 * ends, and there is nothing to flush.
 *
 * Callers	any thread, with no lock held
 * Progress	lock-free; a thread's first event, and its last breath, take a lock for a moment.
 *		Nothing waits for another thread or for the disk, save that the kernel slows down
 *		a process that fills the page cache faster than it can be written back
 * Full		when no chunk is to be had, since the file or the disk is full, recording ends at
 *		the time of the first event that found none, for all threads: what is in the file
 *		before that time is complete, and the rest is counted. The room of a chunk on the
 *		disk and its pages are made when it is claimed (fallocate; madvise, Linux 5.14;
 *		before that the room alone), so that a full disk is an answer and not a SIGBUS. A file system that
 *		takes new room to write the same page again, as those that copy on write, can
 *		still send one, and so can whoever truncates the file meanwhile
 * Fork		a child does not record: its context is none, see api/context.c
 * Cancellation	at any instruction, as glake_alloc: the event under way is lost
 * Cost		an event is 120 instructions with the clock (t/bench/instructions.py) and some
 *		50 ns on an H200 host, of which the clock takes 28 and the pages of the file 12;
 *		a chunk of 2047 events five system calls. The counter below the clock, read by
 *		itself (rdtscp), took 22 to 29 ns where the clock took 28 to 35, and leaves the
 *		order of threads to us
 */
#include <glake/trace.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct glk_trace;

/* The whole file is this much at least: the header and a few chunks. */
#define GLK_TRACE_SIZE_MIN ((size_t)1 << 20)

struct glk_trace_options {
	const char *
		file; /* its name, where %p is the process, %n the number of the trace in it
			     and %% a % */
	size_t size; /* of the file, at most */
	int64_t now_ns, now_realtime_ns;
	int devices;
	const char *backend;
	/* The program runs: blocks are live that the trace does not have, the name is what it is, an
	 * absolute path, and why it is refused is in the record alone. */
	bool midway;
};

/* Whether a text is the name of a file as below. 0; -EINVAL with a record. */
int glk_trace_name_check(const char *pattern);

/*
 * Makes the file, for its owner alone. 0, or -errno after a warning in the log: -EEXIST,
 * -EINVAL (the name), -EFBIG (the process may not write that much), -ENOSPC, -ENOMEM, or what
 * open, ftruncate or mmap answer; nothing is left behind then.
 */
int glk_trace_open(const struct glk_trace_options *options, struct glk_trace **ret_trace);
/* Where it is; as long as it is open. */
const char *glk_trace_path(const struct glk_trace *trace);
/* What comes from now on is not in it. Readers take it for complete. Others may record meanwhile, so
 * it stays until it is closed. */
void glk_trace_stop(struct glk_trace *trace, int64_t now_ns);
/* Completes the file and cuts it to what is in it. Nobody records meanwhile; threads may end.
 * NULL does nothing. */
void glk_trace_close(struct glk_trace *trace, int64_t now_ns);

/*
 * Records one event: its time as the clock tells it, and the words of struct glake_trace_event.
 * Where it lies, or NULL: it was not recorded, and is counted.
 */
struct glake_trace_event *glk_trace_put(struct glk_trace *trace, int64_t now_ns,
	uint64_t what, uint64_t address, uint64_t stream);
/* Turns a free that was recorded, and that the library refused then, into a failed one; NULL
 * does nothing. By the thread that recorded it, before its next event. */
void glk_trace_refuse(struct glake_trace_event *event, int err);

/* In a forked child: no trace is the child's, and no thread but this one is there. */
void glk_trace_forked(void);

#endif
