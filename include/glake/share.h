/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_SHARE_H
#define GLAKE_SHARE_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;

/*
 * Memory that others use: other processes, network cards, other GPUs. What a block can do,
 * glake_query says.
 *
 * A block lies on one physical page or on several. Each page can leave the process as a file
 * descriptor, and another process that gets all descriptors of a block maps them side by side
 * and has the same memory, at an address of its own.
 *
 * Neighbours	blocks share pages at their ends. A process that gets a page can read and write
 *		all of it, also what lies beside the block. One that is not trusted with that
 *		is given contiguous blocks (GLAKE_ALLOC_CONTIGUOUS), which share no page
 * Bearers	whoever has a descriptor has the memory, for as long as he keeps it or maps it,
 *		also after the exporter has freed it or has ended. Nothing takes it away from him
 * Holding	while a block is out, its memory serves nobody else: it keeps its pages and its
 *		addresses until glake_export_end was called as often as glake_export and
 *		glake_dmabuf gave it out, also when it is freed meanwhile. An exporter calls that
 *		once the importers have told it that they are done, which is when their
 *		glake_import_end has returned
 * Order	streams of two processes know nothing of each other. The exporter's work on the
 *		block has to have finished, or an interprocess event of it to be waited for,
 *		before the importer's begins
 */

/* What a block has in one page. */
struct glake_piece {
	int fd;		      /* of the page; closed on exec */
	uint32_t flags;	      /* 0 */
	size_t page_size;     /* of the page, bytes */
	size_t offset;	      /* of the block's bytes in the page */
	size_t length;	      /* of the block's bytes in the page */
	uint64_t reserved[2]; /* 0 */
};

/* Most pieces that one import takes. */
#define GLAKE_PIECES_MAX ((size_t)1 << 20)

GLAKE_END_DECLS

#endif
