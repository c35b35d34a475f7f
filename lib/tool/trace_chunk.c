/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One chunk of a trace of our own format, event by event, with a small window of it in memory.
 * What a killed thread has not completed is no event; what stands behind the end of a chunk, of
 * an unknown kind or before its time shows that the file was damaged.
 *
 * Of a trace that is being written a chunk ends at the first event that is later than the begin
 * of reading. An event may also be completed between the moments when its words are read; so
 * they are read twice, and those are taken that were complete the first time.
 */
#include "tool/trace_binary.h"

uint64_t binary_place(const struct binary *b, uint64_t chunk, size_t event)
{
	const struct glake_trace_header *header = &b->reading->header;

	return header->header_size + chunk * header->chunk_size + event * BINARY_EVENT;
}

/* Events of a chunk that are in the file. */
size_t binary_events(const struct binary *b, uint64_t chunk)
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
int binary_chunk_settle(struct binary *b, struct binary_chunk *c, bool *ret_end)
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

void binary_chunk_begin(struct binary *b, struct binary_chunk *c, uint64_t chunk)
{
	*c = (struct binary_chunk){.chunk = chunk, .numbers = binary_events(b, chunk)};
}
