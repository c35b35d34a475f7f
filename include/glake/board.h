/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_BOARD_H
#define GLAKE_BOARD_H

#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

/*
 * Boards of figures: memory that a running process shares with those who watch it, so that they read
 * its figures as often as they like without asking again. The process hands a descriptor of it to
 * whoever asks at its socket, by the method board, see glakectl(1); `glakectl top` and `glakectl stat
 * --interval` read it so. There is no function here; this header is for programs that read such a
 * board themselves, and have mapped it with PROT_READ.
 *
 * The descriptor is one of memfd_create(2), sealed: its size stays, and nobody but the process can
 * write it. A board outlives its process, as long as it is mapped, with what was written last.
 *
 * All numbers are in the byte order of the machine. Up to `sequence` nothing changes; all behind it
 * may, and is guarded by it: it is odd while the process writes, and even and another one after.
 * Who reads
 *
 *	loads the sequence with acquire order, and begins again if it is odd;
 *	copies what it wants, by words of 8 bytes, each loaded with acquire order;
 *	loads the sequence again, and begins again if it is not what it was.
 *
 * The schema is text: lines of words with a blank between two, in this order,
 *
 *	context NUMBER DRIVER
 *	figure CONTEXT GPU UNIT KIND WORDS NAME [LABEL OF]
 *
 * GPU is -1 for a figure of the whole context; UNIT and KIND are numbers of glake/figures.h, where
 * LABEL and OF are told of too. The values are words of 8 bytes, WORDS of them for each figure, in
 * the order of the schema: of a histogram `count`, `sum`, `longest` and the buckets, of others one.
 * The schema is written anew, and `shape` is another number, when a context, a GPU, a stream or a
 * node comes or goes.
 */
#define GLAKE_BOARD_MAGIC      "\x89glkbrd\n" /* 8 bytes, without a zero behind */
#define GLAKE_BOARD_MAGIC_SIZE 8
#define GLAKE_BOARD_VERSION    1

enum glake_board_state {
	GLAKE_BOARD_GOES_ON = 0,
	/* There was no room for all figures; the process has a larger board, for those who ask again. */
	GLAKE_BOARD_REPLACED = 1,
	/* The socket was closed. */
	GLAKE_BOARD_ENDED = 2,
};

struct glake_board {
	unsigned char magic[GLAKE_BOARD_MAGIC_SIZE];
	uint32_t version; /* GLAKE_BOARD_VERSION; readers refuse any other */
	uint32_t
		header_size; /* of this; what a later library has behind it comes before the rest */
	uint64_t size; /* of the whole board, bytes */
	uint64_t pid;
	uint64_t schema_at, schema_room; /* from the beginning of the board, bytes */
	uint64_t values_at, values_room; /* likewise */
	uint64_t sequence;
	uint64_t state;	     /* enum glake_board_state */
	uint64_t writes;     /* so far */
	uint64_t written_ns; /* CLOCK_MONOTONIC, when its figures were gathered */
	uint64_t
		interval_ns; /* how often it is written; 0: not any more, since nobody asked */
	uint64_t shape;
	uint64_t schema_size; /* bytes */
	uint64_t values;      /* words */
};

GLAKE_END_DECLS

#endif
