/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Traces of our own format, see glake/trace.h: what threads wrote side by side, put in one
 * order. The chunks are sorted by their first event, and one is opened when the merge has come
 * to it, so at any time about as many are open as the program had threads.
 *
 * A file is untrusted input. Whatever its numbers say, no more is read than is there, and
 * memory is bounded by the maxima below. What a program that was killed leaves is not broken:
 * its last chunks are not full, and the file may be larger than what is in it.
 *
 * Cost		16 bytes a chunk, 4 KiB one that is open
 */
#include "tool/trace.h"

#include "base/clock.h"
#include "tool/tool.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZES_MAX     ((uint32_t)1 << 20) /* of header and chunks */
#define CHUNKS_MAX    ((uint64_t)4 << 20)
#define OPEN_MAX      ((size_t)1 << 16) /* a program has no more threads in a trace */
#define PROGRESS_STEP 65536

#define BINARY_EVENT  sizeof(struct glake_trace_event)
#define BINARY_WINDOW 128 /* events of an open chunk in memory */

struct binary {
	int fd;
	struct trace_reading *reading;
	char *message;
	size_t message_size;
	uint64_t size;	/* of the file */
	int64_t now_ns; /* of a trace that is being written: what is later is not read */
	struct binary_place *places;
	size_t count, next;
	struct binary_chunk **heap;
	size_t open, capacity;
	struct trace_table blocks; /* that are live, where recording began midway */
};

/* A chunk that has something in it. */
struct binary_place {
	int64_t ns; /* of the first event */
	uint64_t chunk;
};

/* An open chunk: at its next event, which is right and wanted. */
struct binary_chunk {
	uint64_t chunk, lane;
	int64_t last_ns;
	size_t at, count; /* in the window */
	size_t number,
		numbers; /* of the next event to read; those of the chunk in the file */
	struct glake_trace_event events[BINARY_WINDOW];
};

/* Leaves a sentence; returns `err`. */
static int binary_fail(struct binary *b, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int binary_fail(struct binary *b, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(b->message, b->message_size, format, args);
	va_end(args);
	return err;
}

/* Something in a chunk is wrong: counted when lenient, and 0; else an error. */
static int binary_wrong(struct binary *b, uint64_t chunk, size_t event, const char *what)
{
	if (b->reading->lenient) {
		b->reading->rows++;
		b->reading->skipped++;
		return 0;
	}
	return binary_fail(b, -EINVAL, "chunk %llu, event %zu: %s",
		(unsigned long long)chunk, event, what);
}

/* As many bytes as there are, up to `size`. 0 or an error. */
static int binary_read_at(
	struct binary *b, void *to, size_t size, uint64_t at, size_t *ret_got)
{
	size_t got = 0;

	while (got < size) {
		ssize_t n = pread(b->fd, (char *)to + got, size - got, (off_t)(at + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return binary_fail(b, -errno, "%s", strerror(errno));
		if (!n)
			break;
		got += (size_t)n;
	}
	*ret_got = got;
	return 0;
}

/*
 * One chunk of a trace of our own format, event by event, with a small window of it in memory.
 * What a killed thread has not completed is no event; what stands behind the end of a chunk, of
 * an unknown kind or before its time shows that the file was damaged.
 *
 * Of a trace that is being written a chunk ends at the first event that is later than the begin
 * of reading. An event may also be completed between the moments when its words are read; so
 * they are read twice, and those are taken that were complete the first time.
 */

/* Where an event lies in the file. */
static uint64_t binary_place(const struct binary *b, uint64_t chunk, size_t event)
{
	const struct glake_trace_header *header = &b->reading->header;

	return header->header_size + chunk * header->chunk_size + event * BINARY_EVENT;
}

/* Events of a chunk that are in the file. */
static size_t binary_events(const struct binary *b, uint64_t chunk)
{
	size_t all = b->reading->header.chunk_size / BINARY_EVENT;
	uint64_t at = binary_place(b, chunk, 0), there = at < b->size ? b->size - at : 0;

	return there / BINARY_EVENT < all ? (size_t)(there / BINARY_EVENT) : all;
}

static int reread(struct binary *b, struct binary_chunk *c, size_t count)
{
	uint64_t what[BINARY_WINDOW];
	size_t got;
	int err;

	for (size_t i = 0; i < count; i++)
		what[i] = c->events[i].what;
	err = binary_read_at(b, c->events, count * BINARY_EVENT,
		binary_place(b, c->chunk, c->number), &got);
	for (size_t i = 0; i < count; i++)
		c->events[i].what = what[i];
	return err;
}

static int refill(struct binary *b, struct binary_chunk *c)
{
	size_t want = c->numbers - c->number, got = 0;
	int err;

	if (want > BINARY_WINDOW)
		want = BINARY_WINDOW;
	err = binary_read_at(b, c->events, want * BINARY_EVENT,
		binary_place(b, c->chunk, c->number), &got);
	if (!err && b->reading->is_written)
		err = reread(b, c, got / BINARY_EVENT);
	c->at = 0;
	c->count = got / BINARY_EVENT;
	if (c->count < want)
		c->numbers = c->number + c->count; /* it was cut just now */
	return err;
}

/* Behind the end of a chunk no event is complete. */
static int check_end(struct binary *b, struct binary_chunk *c)
{
	int err = 0;

	while (!err && c->number < c->numbers) {
		if (c->at == c->count)
			err = refill(b, c);
		for (; !err && c->at < c->count; c->at++, c->number++) {
			if (c->events[c->at].what && c->events[c->at].ns <= b->now_ns)
				err = binary_wrong(b, c->chunk, c->number,
					"it stands behind the end of its chunk");
		}
	}
	return err;
}

/* What is wrong with an event; NULL: nothing. */
static const char *fault_of(const struct binary *b, const struct binary_chunk *c)
{
	const struct glake_trace_event *e = &c->events[c->at];
	const struct glake_trace_header *header = &b->reading->header;
	unsigned kind = glake_trace_kind(e->what);

	if (kind == GLAKE_TRACE_NONE || kind >= GLAKE_TRACE_KINDS)
		return "of a kind that is not known";
	if (e->ns < c->last_ns)
		return "its time lies before that of the event before";
	if (header->devices && glake_trace_device(e->what) >= header->devices)
		return "of a GPU that the program did not have";
	if ((kind == GLAKE_TRACE_ALLOC || kind == GLAKE_TRACE_ALLOC_CONTIGUOUS) &&
		(!glake_trace_size(e->what) || !e->address))
		return "a block of no bytes, or at no address";
	return NULL;
}

/* Goes to the next event that is right, the one at hand included. *ret_end: there is none. */
static int binary_chunk_settle(struct binary *b, struct binary_chunk *c, bool *ret_end)
{
	const struct glake_trace_event *e;
	const char *fault;
	int err = 0;

	*ret_end = true;
	for (; c->number < c->numbers; c->at++, c->number++) {
		if (c->at == c->count)
			err = refill(b, c);
		if (err || c->number == c->numbers)
			return err;
		e = &c->events[c->at];
		if (!e->what)
			return check_end(b, c);
		if (e->ns > b->now_ns)
			return 0;
		fault = fault_of(b, c);
		err = fault ? binary_wrong(b, c->chunk, c->number, fault) : 0;
		if (err)
			return err;
		if (fault)
			continue;
		c->last_ns = e->ns;
		if (glake_trace_kind(e->what) == GLAKE_TRACE_THREAD)
			c->lane = glake_trace_size(e->what) >> 24;
		else if (e->ns >= b->reading->header.end_ns) {
			b->reading->late++;
			continue;
		}
		*ret_end = false;
		return 0;
	}
	return 0;
}

bool trace_binary_is(const char *bytes, size_t size)
{
	return size >= GLAKE_TRACE_MAGIC_SIZE &&
		!memcmp(bytes, GLAKE_TRACE_MAGIC, GLAKE_TRACE_MAGIC_SIZE);
}

static bool is_text(const char *text, size_t size)
{
	return memchr(text, '\0', size);
}

/* A header may end before `midway`, which is 0 then. */
#define HEADER_LEAST offsetof(struct glake_trace_header, midway)

static int check_sizes(struct binary *b)
{
	struct glake_trace_header *h = &b->reading->header;

	if (h->event_size != BINARY_EVENT)
		return binary_fail(b, -EINVAL, "events of %u bytes; they have %zu",
			h->event_size, BINARY_EVENT);
	if (h->header_size < HEADER_LEAST || h->header_size > SIZES_MAX)
		return binary_fail(b, -EINVAL, "a header of %u bytes; it has %zu to %u",
			h->header_size, HEADER_LEAST, SIZES_MAX);
	if (h->header_size < sizeof(*h))
		h->midway = 0;
	if (h->chunk_size < 2 * BINARY_EVENT || h->chunk_size > SIZES_MAX ||
		h->chunk_size % BINARY_EVENT)
		return binary_fail(b, -EINVAL,
			"chunks of %u bytes; they have %zu to %u, whole events",
			h->chunk_size, 2 * BINARY_EVENT, SIZES_MAX);
	if (h->chunks > CHUNKS_MAX)
		return binary_fail(b, -EFBIG, "%llu chunks, more than %llu",
			(unsigned long long)h->chunks, (unsigned long long)CHUNKS_MAX);
	if (!is_text(h->backend, sizeof(h->backend)) ||
		!is_text(h->library, sizeof(h->library)) ||
		!is_text(h->program, sizeof(h->program)))
		return binary_fail(b, -EINVAL, "a text in the header has no end");
	return 0;
}

/* Whether the file may grow, and then up to which time it is whole: see glake/trace.h. */
static void look_for_writer(struct binary *b, int64_t now)
{
	const struct glake_trace_header *h = &b->reading->header;

	b->now_ns = INT64_MAX;
	if (h->closed_ns || !flock(b->fd, LOCK_SH | LOCK_NB)) {
		flock(b->fd, LOCK_UN);
		return;
	}
	b->reading->is_written = errno == EWOULDBLOCK;
	if (b->reading->is_written && now > h->start_ns)
		b->now_ns = now - h->start_ns;
}

static int read_header(struct binary *b)
{
	struct glake_trace_header *h = &b->reading->header;
	int64_t now = glk_clock_ns();
	struct stat stat;
	size_t got;
	int err = binary_read_at(b, h, sizeof(*h), 0, &got);

	if (err)
		return err;
	if (fstat(b->fd, &stat))
		return binary_fail(b, -errno, "%s", strerror(errno));
	b->size = (uint64_t)stat.st_size;
	if (got < sizeof(*h))
		return binary_fail(b, -ENODATA, "the file is cut off in its header");
	if (!h->version || h->version > GLAKE_TRACE_VERSION)
		return binary_fail(b, -EPROTONOSUPPORT,
			"version %u of the format; this glakectl knows up to version %d",
			h->version, GLAKE_TRACE_VERSION);
	look_for_writer(b, now);
	return check_sizes(b);
}

static int check_length(struct binary *b)
{
	uint64_t whole = binary_place(b, b->reading->header.chunks, 0);

	if (!b->reading->header.chunks || whole <= b->size)
		return 0;
	if (!b->reading->lenient)
		return binary_fail(b, -ENODATA,
			"the file is cut off: of %llu bytes it has %llu bytes",
			(unsigned long long)whole, (unsigned long long)b->size);
	b->reading->broken = true;
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct binary_place *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns < y->ns ? -1 : 1;
	return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

/* Where each chunk begins that has something in it. */
static int find_chunks(struct binary *b)
{
	uint64_t chunks = b->reading->header.chunks;
	struct glake_trace_event event;
	size_t got;
	int err = 0;

	b->places = calloc(chunks ? chunks : 1, sizeof(*b->places));
	if (!b->places)
		return binary_fail(b, -ENOMEM, "no memory for %llu chunks",
			(unsigned long long)chunks);
	for (uint64_t i = 0; i < chunks && binary_events(b, i) && !err; i++) {
		err = binary_read_at(
			b, &event, BINARY_EVENT, binary_place(b, i, 0), &got);
		if (err || got < BINARY_EVENT || !event.what)
			continue;
		if (b->reading->is_written) /* now it is complete */
			err = binary_read_at(
				b, &event, BINARY_EVENT, binary_place(b, i, 0), &got);
		if (err || event.ns > b->now_ns)
			continue;
		if (glake_trace_kind(event.what) != GLAKE_TRACE_THREAD)
			err = binary_wrong(
				b, i, 0, "the chunk does not begin with its thread");
		else
			b->places[b->count++] = (struct binary_place){event.ns, i};
	}
	if (b->count)
		qsort(b->places, b->count, sizeof(*b->places), by_time);
	return err;
}

static bool is_before(const struct binary_chunk *x, const struct binary_chunk *y)
{
	int64_t a = x->events[x->at].ns, b = y->events[y->at].ns;

	return a != b ? a < b : x->chunk < y->chunk;
}

static void sink(struct binary *b, size_t at)
{
	struct binary_chunk *moved = b->heap[at];

	for (;;) {
		size_t child = 2 * at + 1;

		if (child + 1 < b->open && is_before(b->heap[child + 1], b->heap[child]))
			child++;
		if (child >= b->open || !is_before(b->heap[child], moved))
			break;
		b->heap[at] = b->heap[child];
		at = child;
	}
	b->heap[at] = moved;
}

static void rise(struct binary *b, size_t at)
{
	struct binary_chunk *moved = b->heap[at];

	for (; at && is_before(moved, b->heap[(at - 1) / 2]); at = (at - 1) / 2)
		b->heap[at] = b->heap[(at - 1) / 2];
	b->heap[at] = moved;
}

static int reserve(struct binary *b)
{
	size_t capacity = b->capacity ? 2 * b->capacity : 64;
	struct binary_chunk **heap;

	if (b->open == OPEN_MAX)
		return binary_fail(
			b, -EFBIG, "more than %zu chunks of one time", OPEN_MAX);
	if (b->open < b->capacity)
		return 0;
	heap = realloc(b->heap, capacity * sizeof(struct binary_chunk *));
	if (!heap)
		return binary_fail(b, -ENOMEM, "no memory for %zu chunks", capacity);
	b->heap = heap;
	b->capacity = capacity;
	return 0;
}

static int open_next(struct binary *b)
{
	uint64_t chunk = b->places[b->next++].chunk;
	struct binary_chunk *c;
	bool end;
	int err = reserve(b);

	if (err)
		return err;
	c = calloc(1, sizeof(*c));
	if (!c)
		return binary_fail(b, -ENOMEM, "no memory for a chunk");
	*c = (struct binary_chunk){.chunk = chunk, .numbers = binary_events(b, chunk)};
	err = binary_chunk_settle(b, c, &end);
	if (err || end) {
		free(c);
		return err;
	}
	b->heap[b->open++] = c;
	rise(b, b->open - 1);
	return 0;
}

static enum trace_action action_of(unsigned kind)
{
	switch (kind) {
	case GLAKE_TRACE_ALLOC:
	case GLAKE_TRACE_ALLOC_CONTIGUOUS:
		return TRACE_ALLOCATE;
	case GLAKE_TRACE_ALLOC_FAILED:
		return TRACE_FAILURE;
	case GLAKE_TRACE_FREE:
	case GLAKE_TRACE_FREE_AFTER:
		return TRACE_FREE;
	default:
		return TRACE_OTHER;
	}
}

/* Whether a row frees a block that was there before recording began; follows the others. 0 or
 * -ENOMEM. */
static int follow(struct binary *b, const struct trace_row *row, bool *ret_before)
{
	bool known;

	*ret_before = false;
	if (!b->reading->header.midway ||
		(row->action != TRACE_ALLOCATE && row->action != TRACE_FREE))
		return 0;
	known = trace_table_find(&b->blocks, row->pointer) >= 0;
	*ret_before = row->action == TRACE_FREE && !known;
	if (row->action == TRACE_FREE && known)
		trace_table_remove(&b->blocks, row->pointer);
	if (row->action == TRACE_FREE || known)
		return 0;
	return trace_table_add(&b->blocks, row->pointer, 1)
		? binary_fail(b, -ENOMEM, "no memory for the live blocks")
		: 0;
}

static int show(struct binary *b, const struct binary_chunk *c)
{
	const struct glake_trace_event *e = &c->events[c->at];
	char what[TRACE_MESSAGE_MAX];
	struct trace_row row = {
		.thread = c->lane,
		.time_us = e->ns / 1000,
		.time_ns = (uint16_t)(e->ns % 1000),
		.kind = (uint8_t)glake_trace_kind(e->what),
		.device = (uint8_t)glake_trace_device(e->what),
		.pointer = e->address,
		.size = glake_trace_size(e->what),
		.stream = e->stream,
	};
	bool before;
	int err;

	row.action = action_of(row.kind);
	err = follow(b, &row, &before);
	b->reading->before += before;
	if (err || before)
		return err;
	/* who goes on is no event of the program */
	if (row.kind != GLAKE_TRACE_THREAD && !(++b->reading->rows % PROGRESS_STEP))
		progress_step(b->reading->rows, 0);
	err = trace_show_row(b->reading, &row, what, sizeof(what));
	if (err == -EINVAL && b->reading->lenient) {
		b->reading->skipped++;
		err = 0;
	}
	return err ? binary_fail(b, err, "event %zu: %s", b->reading->rows, what) : 0;
}

static int merge(struct binary *b)
{
	struct binary_chunk *first;
	bool end;
	int err = 0;

	while (!err && (b->open || b->next < b->count)) {
		first = b->open ? b->heap[0] : NULL;
		if (!first ||
			(b->next < b->count &&
				b->places[b->next].ns <= first->events[first->at].ns)) {
			err = open_next(b);
			continue;
		}
		err = show(b, first);
		first->at++;
		first->number++;
		if (!err)
			err = binary_chunk_settle(b, first, &end);
		if (!err && end) {
			free(first);
			b->heap[0] = b->heap[--b->open];
		}
		if (!err && b->open)
			sink(b, 0);
	}
	return err;
}

int trace_binary_read(int fd, struct trace_reading *reading, char *message, size_t size)
{
	struct binary b = {
		.fd = fd, .reading = reading, .message = message, .message_size = size};
	int err;

	reading->is_ours = true;
	err = read_header(&b);
	if (!err)
		err = check_length(&b);
	if (!err)
		err = find_chunks(&b);
	if (!err)
		err = merge(&b);
	while (b.open)
		free(b.heap[--b.open]);
	free(b.heap);
	free(b.places);
	trace_table_fini(&b.blocks);
	return err;
}
