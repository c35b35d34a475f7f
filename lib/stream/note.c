/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Dependencies that the program makes between its streams with events of its own. Who is told
 * of them inserts no wait where the program has one already.
 *
 * What an event stands for is kept from its record to its next one: the stream and tick, and
 * what that stream was behind itself at the time, for a wait passes all of that on. The handle
 * of an event is a value. Old entries give way to new ones: what is forgotten costs a wait of
 * ours, and no more.
 *
 * A stream of the crowd shares its bit with others, so nothing is noted of it.
 */
#include "stream/stream.h"

#include <errno.h>
#include <string.h>

#define NOTES	 512 /* events that are remembered; a power of two */
#define NOTES_BY 8   /* places an event may have, beside each other */

struct glk_note {
	const struct CUevent_st *event;
	uint64_t age;
	uint64_t behind[GLK_STREAM_BITS]; /* of each bit, until which tick */
};

static uint32_t place(const struct CUevent_st *event)
{
	uint64_t hash = (uintptr_t)event * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(hash >> 40) & (NOTES - NOTES_BY);
}

static struct glk_note *find(
	const struct glk_streams *streams, const struct CUevent_st *event)
{
	struct glk_note *note = streams->notes;

	if (!note)
		return NULL;
	note += place(event);
	for (int i = 0; i < NOTES_BY; i++) {
		if (note[i].event == event)
			return &note[i];
	}
	return NULL;
}

/* The place of an event: its own, or that of the one recorded longest ago. */
static struct glk_note *choose(
	const struct glk_streams *streams, const struct CUevent_st *event)
{
	struct glk_note *own = find(streams, event);
	struct glk_note *oldest = streams->notes + place(event);

	if (own)
		return own;
	for (int i = 1; i < NOTES_BY; i++) {
		if (oldest->age > streams->notes[place(event) + (uint32_t)i].age)
			oldest = &streams->notes[place(event) + (uint32_t)i];
	}
	return oldest;
}

int glk_note_record(struct glk_streams *streams, const struct CUevent_st *event,
	const struct glk_stream *s)
{
	struct glk_note *note;

	if (s->bit >= GLK_STREAM_CROWD) {
		glk_note_forget(streams, event);
		return 0;
	}
	if (!streams->notes)
		streams->notes = glk_region_new(NOTES * sizeof(*note));
	if (!streams->notes)
		return -ENOMEM;
	note = choose(streams, event);
	note->event = event;
	note->age = streams->tick + 1; /* later than one that was never used */
	memcpy(note->behind, streams->seen[s->bit], sizeof(note->behind));
	note->behind[s->bit] = streams->tick;
	return 0;
}

void glk_note_wait(struct glk_streams *streams, const struct CUevent_st *event,
	const struct glk_stream *s)
{
	const struct glk_note *note = find(streams, event);
	uint64_t *seen;

	if (!note || s->bit >= GLK_STREAM_CROWD)
		return;
	seen = streams->seen[s->bit];
	for (unsigned bit = 0; bit < GLK_STREAM_BITS; bit++) {
		if (seen[bit] < note->behind[bit])
			seen[bit] = note->behind[bit];
	}
}

void glk_note_forget(struct glk_streams *streams, const struct CUevent_st *event)
{
	struct glk_note *note = find(streams, event);

	if (note)
		memset(note, 0, sizeof(*note));
}

void glk_note_fini(struct glk_streams *streams)
{
	if (streams->notes)
		glk_region_free(streams->notes, NOTES * sizeof(*streams->notes));
	streams->notes = NULL;
}
