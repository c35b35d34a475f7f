/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_TRACE_H
#define GLK_TOOL_TRACE_H

/*
 * Allocation traces: read, checked, and compiled into an array that a replay can walk
 * without looking anything up.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <glake/trace.h>

#define TRACE_MESSAGE_MAX 512

/* `err`, with a sentence in `message`. */
int trace_fail(char *message, size_t size, int err, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Who packs: xz, gzip or zstd. By the first bytes of an archive; NULL: it is none. */
#define TRACE_MAGIC_MAX 6
struct trace_packer;
const struct trace_packer *trace_packer_by_magic(const char *bytes, size_t size);
const char *trace_packer_name(const struct trace_packer *packer);
/* Starts its program with an option, and these in place of its standard files. 0 or -errno. */
int trace_packer_start(const struct trace_packer *packer, const char *option, int in,
	int out, int said, pid_t *ret_pid);

/* Bytes of a file, unpacked on the way: plain, xz, gzip or zstd, told by the first bytes. */
struct trace_source;

/* "-" is stdin. 0, or -errno with a sentence in `message`. */
int trace_source_open(
	const char *path, char *message, size_t size, struct trace_source **ret);
/* Fills `buffer`; *ret_size is 0 at the end. 0, or -errno with a sentence in `message`: also
 * when the archive ends before its own end mark, after all that could be unpacked. */
int trace_source_read(struct trace_source *source, char *buffer, size_t capacity,
	char *message, size_t size, size_t *ret_size);
void trace_source_close(struct trace_source *source);

/* The file behind a source that is one and not packed, to be read at any place; -1 for others. */
int trace_source_file(const struct trace_source *source);
/*
 * A file without a name with all the bytes of a source behind `begin`, which was read from it.
 * 0, or -errno with a sentence; the file is there also when the archive broke (-EBADMSG,
 * -ENODATA), with what came before, and else is not.
 */
int trace_spool(struct trace_source *source, const char *begin, size_t begin_size,
	char *message, size_t size, int *ret_fd);

struct trace_table;

/* One row of RMM's log, or one event of our own format. */
enum trace_action {
	TRACE_ALLOCATE,
	TRACE_FREE,
	TRACE_FAILURE, /* "allocate failure": what the recorded program did not get */
	TRACE_OTHER,   /* has no effect in a replay */
};

struct trace_row {
	uint64_t thread;
	int64_t time_us;
	enum trace_action action;
	uint64_t pointer; /* 0 for (nil) */
	uint64_t size;
	uint64_t stream;
	/* Of our own format; all 0 in a log. */
	uint8_t kind; /* enum glake_trace_kind */
	uint8_t device;
	uint16_t time_ns; /* behind the microseconds */
};

/* The row that every log begins with. */
extern const char trace_header[];

/*
 * Reads a row, `line` without its line end. 0, or -EINVAL with what is wrong in `message`.
 */
int trace_row_parse(const char *line, size_t length, char *message, size_t size,
	struct trace_row *ret_row);
/* Whether a row of a log is legal and without effect, where these pointers are live. */
bool trace_row_idle(const struct trace_row *row, const struct trace_table *live);
/* -EINVAL: its block is "live", or "not live". */
int trace_refuse(
	char *message, size_t size, const struct trace_row *row, const char *why);

/* What one event asks for. */
struct trace_event {
	uint32_t block;	 /* the block's number; TRACE_FREE_BIT for a free */
	uint16_t stream; /* number of the stream */
	uint16_t thread; /* number of the thread */
	uint64_t size;	 /* bytes; of the block, for a free too */
};

#define TRACE_FREE_BIT 0x80000000u

/* What may come in: maxima, of which tests use smaller ones, and the GPU. */
struct trace_limits {
	size_t events;
	size_t streams;
	size_t threads;
	int gpu; /* its number; or TRACE_ONE_GPU, TRACE_ALL_GPUS */
};

#define TRACE_ONE_GPU  (-1) /* any, if there is no other in the trace */
#define TRACE_ALL_GPUS (-2)

/* 24 Mi events are 600 MiB of memory, the tool's own bound being 1 GiB. */
#define TRACE_LIMITS                                                                     \
	((struct trace_limits){.events = 24u << 20,                                      \
		.streams = 1024,                                                         \
		.threads = 4096,                                                         \
		.gpu = TRACE_ONE_GPU})

struct trace {
	char name[256]; /* of the file, without folder and endings */
	size_t count;
	struct trace_event *events;
	int64_t *times_us; /* of each event, never going back, from 0 */
	size_t blocks;	   /* block numbers are below this */

	size_t leftovers; /* blocks alive at the end */
	struct trace_event *leftover;

	size_t streams;	      /* stream numbers are below this */
	uint64_t *stream_ids; /* as in the file; 0 is the default stream */
	size_t threads;

	uint64_t peak_live; /* bytes asked for and live at once, at most */
	int64_t job_us;	    /* from the first event to the last */

	size_t rows;	/* after the header */
	size_t skipped; /* rows that could not be used (only when lenient) */
	size_t noops; /* rows without effect: size 0, allocations that failed, other events */
	bool broken; /* the archive was cut off or broken (only when lenient) */
	/* Of our own format, else zeroes. */
	struct glake_trace_header header;
	uint64_t dropped; /* events of the program that it lacks */
};

/* The value of a key in a table of sparse 64-bit keys: live pointers, streams, threads. */
struct trace_table {
	size_t capacity; /* a power of two; 0 before the first use */
	size_t count;
	struct trace_slot {
		uint64_t key;
		uint32_t value; /* plus one; 0 is empty */
	} * slots;
};

/* The value of a key, or -1. */
int64_t trace_table_find(const struct trace_table *table, uint64_t key);
/* The key must not be there. 0 or -ENOMEM. */
int trace_table_add(struct trace_table *table, uint64_t key, uint32_t value);
/* The key must be there. */
void trace_table_remove(struct trace_table *table, uint64_t key);
void trace_table_fini(struct trace_table *table);

/* Times of rows as times since the first of them. Begins as zeroes. */
struct trace_clock {
	bool started;
	int64_t first_us, day_us, last_raw_us, last_us;
};

int64_t trace_clock_step(struct trace_clock *clock, int64_t raw_us);

/* Turns rows into the events of a trace. Begins as zeroes but for the first two. */
struct trace_compiler {
	struct trace *trace;
	struct trace_limits limits;
	size_t capacity;	    /* of the trace's events and times */
	struct trace_table live;    /* pointer -> block */
	struct trace_table streams; /* id -> number */
	struct trace_table threads;
	struct trace_made {
		uint64_t size;
		uint16_t stream;
	} * made; /* of each block, where it was allocated */
	size_t made_capacity;
	uint64_t live_bytes;
	struct trace_clock clock;
};

/*
 * Adds a row. 0; -EINVAL for a row that cannot be right after those before it; -EFBIG past a
 * maximum; -ENOMEM. The last three with a sentence in `message`, and nothing added.
 */
int trace_compile_row(struct trace_compiler *compiler, const struct trace_row *row,
	char *message, size_t size);
/* Completes the trace. 0 or -ENOMEM with a sentence. */
int trace_compile_end(struct trace_compiler *compiler, char *message, size_t size);
void trace_compile_fini(struct trace_compiler *compiler);

/* Takes a row; errors with a sentence in `message`, of which -EINVAL is one in the row. */
typedef int (*trace_visit_fn)(
	void *arg, const struct trace_row *row, char *message, size_t size);

/* What is read from a trace, and what was found. */
struct trace_reading {
	bool lenient;
	int gpu; /* as in struct trace_limits: rows of others are not shown */
	trace_visit_fn visit;
	void *arg;

	size_t rows;	/* after the header */
	size_t skipped; /* that could not be used (only when lenient) */
	size_t others;	/* of other GPUs */
	bool broken;	/* the file was cut off or broken (only when lenient) */
	/* Of our own format, else zeroes. */
	bool is_ours;
	struct glake_trace_header header;
	bool is_written; /* now, by a program that runs */
	size_t before; /* frees, not shown, of blocks that were live when recording began */
	size_t late;   /* events that count as dropped: see end_ns of the header */
	/* It is a snapshot of PyTorch's; blocks, shown, that were live before its first event. */
	bool is_snapshot;
	size_t opened;
	int seen_gpu; /* of the rows shown, plus one; 0: none so far */
};

/*
 * Shows all rows of a trace in turn. Returns 0, or -errno with "FILE:ROW: what" in `message`,
 * rows of a log counted from 1, the header, events of our own format by their time.
 */
int trace_read(
	const char *path, struct trace_reading *reading, char *message, size_t size);

/* For the two formats: hands a row on, of the GPU that is wanted. As visit; -EXDEV: GPUs. */
int trace_show_row(struct trace_reading *reading, const struct trace_row *row,
	char *message, size_t size);

/*
 * Our own format, from a file that can be read at any place. Fills in the reading's header.
 * 0, or -errno with a sentence in `message`.
 */
bool trace_binary_is(const char *bytes, size_t size);
int trace_binary_read(int fd, struct trace_reading *reading, char *message, size_t size);

/* The same for a snapshot of PyTorch's, a pickle or JSON, by Python; it counts the events of a GPU, from
 * 1. */
bool trace_pickle_is(const char *bytes, size_t size);
int trace_pickle_read(int fd, struct trace_reading *reading, char *message, size_t size);

/*
 * Reads a trace. Lenient skips and counts what is wrong with a row, and takes what an
 * archive held before it broke. Returns 0, or -errno with "FILE:ROW: what" in `message`,
 * rows counted from 1, the header.
 */
int trace_load(const char *path, bool lenient, const struct trace_limits *limits,
	char *message, size_t size, struct trace *ret_trace);
void trace_fini(struct trace *trace);

#endif
