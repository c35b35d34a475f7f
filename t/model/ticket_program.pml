/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The program of ticket.pml: its events and waits, and the ends of its streams. */
#ifdef GRAPH_NOTED
#define is_told(b) true
#else
#define is_told(b) (state[b] == LIVE)
#endif

inline note_record(s)
{
	noted = is_told(s);
	note_stream = s;
	for (b : 0 .. STREAMS - 1) {
		note_behind.tick[b] = (b == s -> tick : seen[s].tick[b])
	};
	b = 0
}

inline make_record(s)
{
	note = (state[s] == LIVE -> tail[s] : 0)
}

inline make_wait(s)
{
	tail[s] = (state[s] == LIVE -> tail[s] | note : tail[s])
}

inline note_wait(s)
{
#ifdef WAIT_NOW
	note_behind.tick[note_stream] = tick;
#endif
	for (b : 0 .. STREAMS - 1) {
		if
		:: noted && is_told(s) && seen[s].tick[b] < note_behind.tick[b] ->
			seen[s].tick[b] = note_behind.tick[b]
		:: else -> skip
		fi
	};
	b = 0
}

#ifdef NOTE_LATE
#define record_steps(s) make_record(s) }; d_step { note_record(s)
#else
#define record_steps(s) note_record(s) }; d_step { make_record(s)
#endif
#ifdef NOTE_EARLY
#define wait_steps(s) note_wait(s) }; d_step { make_wait(s)
#else
#define wait_steps(s) make_wait(s) }; d_step { note_wait(s)
#endif

#define record_on(s)                                                                     \
	d_step { !recorded && is_open(s) -> recorded = true; record_steps(s) }
#define wait_on(s)                                                                       \
	d_step { !waited && noted && is_open(s) -> waited = true; wait_steps(s); drop_note() }

/* A new stream gets the bit of one that has ended. */
inline enter(b)
{
	state[b] = LIVE;
	heir = 1;
	tail[b] = 0;
	freed[b] = 0;
	done[b] = tick;
	seen[b].tick[0] = 0;
	seen[b].tick[1] = 0;
	seen[b].tick[2] = 0;
	drop_event(b)
}

#define may_end (state[ENDING] == LIVE && !heir)

/* What the program does with its streams; one call after the other. */
active [THREADS] proctype program()
{
	byte b;

end:	do
#ifdef NOTES
	:: record_on(0)
	:: record_on(1)
	:: record_on(2)
	:: wait_on(0)
	:: wait_on(1)
	:: wait_on(2)
#endif
	:: d_step { may_end -> close_books(ENDING); cover(ENDING); state[ENDING] = LEAVING }
	:: d_step { may_end -> state[ENDING] = ENDED }
	:: d_step { state[ENDING] == NONE -> enter(ENDING) }
#ifdef EARLY_BIT
	:: d_step { state[ENDING] == LEAVING -> enter(ENDING) }
#endif
#ifdef HANDLE_AGAIN
	:: d_step { state[ENDING] == ENDED -> state[ENDING] = LIVE; heir = 1; tail[ENDING] = 0 }
#endif
	:: d_step { state[DRAWING] == LIVE -> state[DRAWING] = CAPTURING }
	:: d_step { state[DRAWING] == CAPTURING -> state[DRAWING] = LIVE }
	od
}
