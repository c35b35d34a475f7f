/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_TRACE_TOOL_H
#define GLK_TOOL_TRACE_TOOL_H

/* glakectl trace: what its two halves share, and the ways to write a trace. */
#include "tool/tool.h"
#include "tool/trace.h"

#include <stdio.h>

#define TRACE_TOOL_SHOW	   "trace show"
#define TRACE_TOOL_CONVERT "trace convert"
#define TRACE_TOOL_RECORD  "trace record"
#define TRACE_TOOL_CUT	   "trace cut"

#define TRACE_CUT_STREAMS 64

struct trace_tool_options {
	const char *file, *output, *format;
	int gpu;
	bool lenient, json, quiet;
	/* Of cut. */
	bool cuts, frees;
	int64_t from_ns, to_ns; /* since the first event; `to` 0: no end */
	uint64_t first, last;	/* events, from 1; `last` 0: no end */
	uint64_t stream[TRACE_CUT_STREAMS];
	size_t streams; /* 0: all */
};

/* The commands. The exit status. */
int trace_tool_show(const struct trace_tool_options *options);
int trace_tool_convert(const struct trace_tool_options *options); /* and cut */

/* The name of a kind of event; those of a log have one too. */
const char *trace_kind_name(unsigned kind);
unsigned trace_kind_of(const struct trace_row *row);
/* "glake", "csv" or "pickle". */
const char *trace_format_name(const struct trace_reading *reading);

/* The live blocks. Begins as zeroes. */
struct trace_live {
	struct trace_table blocks; /* pointer -> entry, from 1 */
	struct trace_live_block {
		struct trace_row row; /* of its allocation */
		uint64_t number;      /* in the order of those; 0: it is not in use, */
		uint32_t next;	      /* and this is the next of those */
	} * block;
	size_t used, capacity;
	uint32_t unused; /* the first of those not in use; 0: none */
	uint64_t given;	 /* blocks so far */
	uint64_t bytes[GLK_TOOL_GPUS], peak[GLK_TOOL_GPUS];
};

/* Follows a row; the size of its block, of a free too. 0; -EINVAL for a row that cannot be
 * right, -ENOMEM, both with a sentence. */
int trace_live_row(struct trace_live *live, const struct trace_row *row, char *message,
	size_t size, uint64_t *ret_size);
void trace_live_fini(struct trace_live *live);

/* Takes a row of a part: its time, and bytes of its block. 0, or -errno with a sentence. */
typedef int (*trace_put_fn)(void *arg, const struct trace_row *row, int64_t ns,
	uint64_t bytes, char *message, size_t size);

/*
 * A part of a trace: what is live where it begins is allocated there again, so that it stands for
 * itself. Begins as zeroes but for the first three.
 */
struct trace_cut {
	const struct trace_tool_options *options;
	trace_put_fn put;
	void *arg;
	struct trace_live live; /* of the streams that are wanted */
	uint64_t number;	/* of rows so far */
	bool begun;
	int64_t base_ns, last_ns; /* where it begins, and its last event */
	size_t opened, freed;
};

int trace_cut_row(struct trace_cut *cut, const struct trace_row *row, int64_t ns,
	uint64_t bytes, char *message, size_t size);
/* Behind the last row: frees what is live, where that is wanted. */
int trace_cut_end(struct trace_cut *cut, char *message, size_t size);
void trace_cut_fini(struct trace_cut *cut);

/*
 * Writes our own format: one chunk after the other, so that rows keep their order whatever
 * their times are. Begins as zeroes.
 */
struct trace_writer {
	FILE *file;
	struct glake_trace_header header;
	struct glake_trace_event *chunk;
	size_t at; /* next event of the chunk */
	int64_t last_ns;
	struct trace_table lanes; /* a row's thread -> lane */
	struct trace_signature {
		uint64_t low, high, what;
	} * signatures; /* of lanes */
	size_t signatures_capacity;
	size_t lane; /* whose events follow, plus one; 0: to be written yet */
};

/* `file` is empty, and can be written at any place. 0 or -ENOMEM, -EIO with a sentence. */
int trace_writer_begin(struct trace_writer *writer, FILE *file,
	const struct glake_trace_header *header, char *message, size_t size);
int trace_writer_row(struct trace_writer *writer, const struct trace_row *row, int64_t ns,
	char *message, size_t size);
/* Completes the file. */
int trace_writer_end(struct trace_writer *writer, char *message, size_t size);
void trace_writer_fini(struct trace_writer *writer);

/* Writes RMM's log: its first row, and each other; `ns` since 1970, or of any day. 0 or -EIO with
 * a sentence. */
int trace_log_begin(FILE *file, char *message, size_t size);
int trace_log_row(FILE *file, const struct trace_row *row, int64_t ns, uint64_t bytes,
	char *message, size_t size);

/* Who packs a file of this name; NULL for one that is plain. 0; -EOPNOTSUPP for a name that
 * promises what nobody here can do. */
int trace_packer_of(const char *path, const struct trace_packer **ret_packer);
/* Packs all of a file. 0; -ENOPKG: its program cannot be run; -EIO, which that has said why. */
int trace_pack(const struct trace_packer *packer, FILE *from, FILE *to);

/* A file that comes into being when it is complete, packed as its name says; for what is no
 * regular file, and for stdout with a path of NULL, at once unless it is packed. */
struct trace_output {
	FILE *file;
	const char *path;
	const struct trace_packer *packer;
	char part[4096]; /* "": none */
};

/* Whether what is to be written would replace what is read; a path of NULL would not. */
bool trace_output_is(const char *path, const char *trace);
/* 0 or -errno; -EOPNOTSUPP: see trace_packer_of. */
int trace_output_open(struct trace_output *output, const char *path);
/* 0, or -errno: then, or if it is not `good`, nothing is left. */
int trace_output_close(struct trace_output *output, bool good);

#endif
