/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lanes: how threads write one trace without meeting. A thread takes a lane at its first event
 * and keeps it until it ends or records in another trace. What it writes is its own; all that
 * threads share are the number of chunks and, when there are no more, the time when recording
 * ended, both changed by compare-and-swap.
 *
 * Order	of an event: time, address, stream; then `what`, by a release, which makes it
 *		one for who reads the file; then the lane moves on. Whoever takes over from a
 *		thread that was killed between the last two steps makes the second
 * Order	in a chunk: times never go back. A thread that takes a lane may have read the
 *		clock before the last one there did, and then begins a chunk
 */
#include "base/cancel.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "watch/trace.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct glk_lock open_lock = GLK_LOCK_INIT(GLK_RANK_TRACE);
static struct glk_trace *open_traces;
static uint64_t last_serial;

static struct glk_trace *find_open(uint64_t serial)
{
	struct glk_trace *trace = open_traces;

	while (trace && trace->serial != serial)
		trace = trace->next_open;
	return trace;
}

/* Gives a thread's lane back, to a trace that is still open. */
static void leave(struct glk_thread *thread)
{
	struct glk_trace *trace;
	struct glk_lane *lane = thread->trace.lane;

	if (!thread->trace.serial)
		return;
	glk_lock(&open_lock);
	trace = find_open(thread->trace.serial);
	if (trace)
		glk_slab_put(&trace->lanes, lane->id);
	glk_unlock(&open_lock);
	thread->trace.serial = 0;
}

void glk_trace_enter(struct glk_trace *trace)
{
	glk_thread_at_end(leave);
	glk_lock(&open_lock);
	trace->serial = ++last_serial;
	trace->next_open = open_traces;
	open_traces = trace;
	glk_unlock(&open_lock);
}

void glk_trace_withdraw(struct glk_trace *trace)
{
	struct glk_trace **link = &open_traces;

	glk_lock(&open_lock);
	while (*link && *link != trace)
		link = &(*link)->next_open;
	if (*link)
		*link = trace->next_open;
	glk_unlock(&open_lock);
}

void glk_trace_forked(void)
{
	open_traces = NULL;
}

/* Writes an event where a lane goes on; where that is. */
static inline struct glake_trace_event *write_event(struct glk_lane *lane, int64_t ns,
	uint64_t what, uint64_t address, uint64_t stream)
{
	struct glake_trace_event *at = glk_load_relaxed(&lane->at);

	at->ns = ns;
	at->address = address;
	at->stream = stream;
	/* pairs with: whoever reads the file while it grows */
	glk_store_release(glk_trace_shared(&at->what), what);
	glk_store_release(&lane->at, at + 1); /* behind the event: see above */
	return at;
}

/* Counts an event that is not recorded; recording ends at its time, if it has not before. */
static struct glk_lane *drop(struct glk_trace *trace, int64_t ns, const char *why)
{
	glk_atomic(int64_t) *end = glk_trace_shared_ns(&trace->header->end_ns);
	int64_t old = glk_load_relaxed(end);

	glk_add_relaxed(glk_trace_shared(&trace->header->dropped), 1);
	while (ns < old && !glk_cas_weak_relaxed(end, &old, ns))
		;
	if (old == GLAKE_TRACE_NEVER)
		glk_warn("recording in %s has ended: %s", trace->path, why);
	return NULL;
}

/* Says in a lane whose events follow. */
static void sign(struct glk_lane *lane, int64_t ns)
{
	uint64_t name[2] = {0}, tid = (uint64_t)gettid();

	prctl(PR_GET_NAME, name);
	write_event(lane, ns,
		glake_trace_what(GLAKE_TRACE_THREAD, 0, (uint64_t)lane->id << 24 | tid),
		name[0], name[1]);
}

/* A chunk for a lane, over which the file reaches before it is counted: so it is never shorter than
 * its header says. 0; -ENOSPC, or what the kernel says. */
static int claim(struct glk_trace *trace, struct glk_lane *lane)
{
	glk_atomic(uint64_t) *chunks = glk_trace_shared(&trace->header->chunks);
	uint64_t mine = glk_load_relaxed(chunks);
	struct glake_trace_event *first;
	size_t offset;
	int err;

	do {
		if (mine >= trace->chunks)
			return -EFBIG;
		offset = GLK_TRACE_HEADER + mine * GLK_TRACE_CHUNK;
		err = glk_trace_reach(trace, offset, GLK_TRACE_CHUNK);
		if (err)
			return err;
	} while (!glk_cas_weak_relaxed(chunks, &mine, mine + 1));
	err = glk_trace_prepare(trace, offset, GLK_TRACE_CHUNK);
	if (err)
		return err;
	first = (void *)((char *)trace->header + offset);
	lane->end = first + GLK_TRACE_EVENTS;
	glk_store_release(&lane->at, first);
	return 0;
}

/* Finds the place where the last thread of a lane has stopped. */
static void resume(struct glk_lane *lane, int64_t ns)
{
	struct glake_trace_event *at = glk_load_relaxed(&lane->at);

	while (at < lane->end && glk_load_relaxed(glk_trace_shared(&at->what)))
		at++;
	/* a chunk begins with an event, so there is one before */
	if (lane->end - at < 2 || at[-1].ns > ns)
		at = lane->end;
	glk_store_relaxed(&lane->at, at);
}

/* The lane of a thread, with room for an event of this time in it if it is not a new one. */
static struct glk_lane *take(
	struct glk_trace *trace, struct glk_thread *thread, int64_t ns, bool *ret_signed)
{
	struct glk_lane *lane;
	uint32_t id;

	*ret_signed = true;
	if (thread->trace.serial == trace->serial)
		return thread->trace.lane;
	leave(thread);
	id = glk_slab_get(&trace->lanes);
	if (!id)
		return NULL;
	lane = glk_slab_at(&trace->lanes, id);
	lane->id = id;
	if (lane->end)
		resume(lane, ns);
	thread->trace.lane = lane;
	thread->trace.serial = trace->serial;
	*ret_signed = false;
	return lane;
}

/* A lane of the calling thread with room for an event of this time; NULL: it is dropped. */
static struct glk_lane *make_room(
	struct glk_trace *trace, struct glk_thread *thread, int64_t ns)
{
	struct glk_lane *lane;
	bool is_signed;
	int err = 0;

	if (ns >= glk_load_relaxed(glk_trace_shared_ns(&trace->header->end_ns)))
		return drop(trace, ns, "");
	lane = thread ? take(trace, thread, ns, &is_signed) : NULL;
	if (!lane)
		return drop(trace, ns, "there is no memory for another thread");
	if (glk_load_relaxed(&lane->at) == lane->end) {
		err = claim(trace, lane);
		is_signed = false;
	}
	if (err)
		return drop(trace, ns,
			err == -EFBIG ? "it has the size of trace.size" : strerror(-err));
	if (!is_signed)
		sign(lane, ns);
	return lane;
}

/* The same, leaving no trace of its own: what the caller was told by a call stays what it was. */
static __attribute__((noinline)) struct glk_lane *make_room_quietly(
	struct glk_trace *trace, int64_t ns)
{
	int saved = errno, cancel = glk_cancel_off();
	struct glk_thread *thread = glk_thread_self();
	struct glake_error error = thread ? thread->error : (struct glake_error){0};
	struct glk_lane *lane = make_room(trace, thread, ns);

	if (thread)
		thread->error = error;
	glk_cancel_restore(cancel);
	errno = saved;
	return lane;
}

struct glake_trace_event *glk_trace_put(struct glk_trace *trace, int64_t now_ns,
	uint64_t what, uint64_t address, uint64_t stream)
{
	const struct glk_thread *thread = glk_thread_current;
	const glk_atomic(int64_t) *end = glk_trace_shared_ns(&trace->header->end_ns);
	struct glk_lane *lane = thread->trace.lane;
	int64_t ns = now_ns - trace->start_ns;

	if (thread->trace.serial != trace->serial ||
		glk_load_relaxed(&lane->at) == lane->end || ns >= glk_load_relaxed(end)) {
		lane = make_room_quietly(trace, ns);
		if (!lane)
			return NULL;
	}
	return write_event(lane, ns, what, address, stream);
}

void glk_trace_refuse(struct glake_trace_event *event, int err)
{
	uint64_t what;

	if (!event)
		return;
	what = glake_trace_what(
		GLAKE_TRACE_FREE_FAILED, glake_trace_device(event->what), (uint64_t)-err);
	glk_store_release(glk_trace_shared(&event->what), what);
}
