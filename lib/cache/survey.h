/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_SURVEY_H
#define GLK_CACHE_SURVEY_H

/*
 * What is walked for, and not kept. The lock is taken for a bounded number of steps at a
 * time, and not at all for the bins, so that at rest alone all of it is of one moment.
 */
#include <stddef.h>
#include <stdint.h>

#define GLK_SURVEY_STREAMS 16 /* those that have most; the others are added up */

struct glk_survey_stream {
	char name
		[32]; /* "legacy", "thread-7", "0x55d0c8a0"; "ended" and "rest" at the end */
	uint64_t given, blocks; /* live, born on it */
	uint64_t quick;		/* bytes in its bins */
	uint64_t limbo; /* bytes of free pages whose work on it is not known to be done */
};

struct glk_survey {
	uint64_t limbo;	     /* the same, on any stream */
	uint64_t ready_hole; /* the longest run of free slots that have pages, bytes */
	struct glk_survey_stream stream[GLK_SURVEY_STREAMS + 2];
	size_t streams;
};

#endif
