/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams of the software device: handles, life and death. What a stream does is in queue.c, what it
 * captures in graph.c. Streams are non-blocking, so the default streams (that of a GPU, and one of
 * each thread) are streams like any other and no order holds between them and the rest.
 *
 * The default stream of a thread has one number, GLK_STREAM_PER_THREAD, which names another stream in
 * every thread and on every GPU. One is made when a thread first names it there. It outlives its
 * thread, since what it has queued may run later, until the device has no stream left to give: then
 * those of ended threads go that have nothing queued, hold and capture nothing.
 *
 * Design	streams of threads: a hash table of streams, which know their thread and GPU; made
 *		anew by a sweep
 * Cost		of those, a hash and as a rule one comparison; a sweep, some microseconds
 */
#include "soft/graph.h"

#include "base/error.h"
#include "base/thread.h"
#include "soft/handle.h"

#include <errno.h>
#include <string.h>

/* Several devices may be open at once. */
static glk_atomic(uint64_t) numbers;

uint64_t glk_soft_stream_number(void)
{
	return glk_add_relaxed(&numbers, 1) + 1;
}

void glk_soft_stream_init(struct soft *soft, uint32_t id, int device)
{
	struct soft_stream *s = soft_stream_at(soft, id);

	*s = (struct soft_stream){.id = glk_soft_stream_number(),
		.gen = s->gen + 1,
		.device = device,
		.live = true};
}

static uint64_t handle_of(const struct soft *soft, uint32_t id)
{
	const struct soft_stream *s = soft_stream_at(soft, id);

	return glk_handle_make(GLK_HANDLE_STREAM, (uint32_t)s->device, s->gen, id);
}

void glk_soft_stream_calm(struct soft *soft, uint32_t id)
{
	const struct soft_stream *s = soft_stream_at(soft, id);
	bool calm = s->live && !s->graph && !s->thread && id > (uint32_t)soft->gpus;

	glk_store_relaxed(&soft->calm[id].id, s->id);
	/* pairs with: the acquire in glk_soft_stream_facts */
	glk_store_release(&soft->calm[id].handle, calm ? handle_of(soft, id) : 0);
}

/* Where the stream of a thread stands, or would. There are more places than streams. */
static uint32_t *place(struct soft *soft, uint64_t thread, int device)
{
	/* Threads are numbered in order, and a program uses few GPUs: neighbours spread well. */
	uint32_t at = (uint32_t)(thread * (uint64_t)soft->gpus + (uint32_t)device);
	const struct soft_stream *s;
	uint32_t *own;

	for (;; at++) {
		own = &soft->own[at % SOFT_OWN];
		s = soft_stream_at(soft, *own);
		if (!*own || (s->thread == thread && s->device == device))
			return own;
	}
}

static bool is_over(const struct soft_stream *s)
{
	return !s->head && !s->held && !s->graph &&
		!glk_thread_lives_at(s->record, s->thread);
}

/* Ends those of threads that have ended, where nothing of them is left to run. */
static void sweep(struct soft *soft)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used);

	memset(soft->own, 0, sizeof(soft->own));
	for (uint32_t id = 1; id <= used; id++) {
		struct soft_stream *s = soft_stream_at(soft, id);

		if (!s->live || !s->thread)
			continue;
		if (is_over(s)) {
			s->live = false;
			glk_slab_put(&soft->streams, id);
		} else {
			*place(soft, s->thread, s->device) = id;
		}
	}
}

/* A slot that is free, its life not begun; 0 and a record for none. */
static uint32_t take(struct soft *soft)
{
	if (glk_load_relaxed(&soft->streams.live) >= SOFT_STREAMS)
		sweep(soft);
	if (glk_load_relaxed(&soft->streams.live) < SOFT_STREAMS)
		return glk_slab_get(&soft->streams);
	glk_error_native(-ENOMEM, GLAKE_ERROR_LIMIT, "cuStreamCreate", 2,
		"the software device has %u streams, those of threads among them, and all "
		"are in use",
		SOFT_STREAMS);
	return 0;
}

/* The default stream of the calling thread, made at first. 0 or -ENOMEM. */
static int own_stream(struct soft *soft, int device, uint32_t *ret_id)
{
	const struct glk_thread *self = glk_thread_self();
	struct soft_stream *s;
	uint64_t thread;
	uint32_t id = 0;

	if (!self)
		return -ENOMEM;
	thread = glk_load_relaxed(&self->serial);
	id = *place(soft, thread, device);
	if (!id) {
		id = take(soft);
		if (!id)
			return -ENOMEM;
		glk_soft_stream_init(soft, id, device);
		s = soft_stream_at(soft, id);
		s->thread = thread;
		s->record = self->id;
		*place(soft, thread, device) = id; /* a sweep may have moved it */
	}
	*ret_id = id;
	return 0;
}

int glk_soft_capture_broken(const struct soft_graph *graph, const char *call)
{
	return glk_error_native(-EBUSY, GLAKE_ERROR_CAPTURE, call, SOFT_INVALIDATED,
		"%s on a stream whose capture was broken by %s and not ended yet", call,
		graph->broken);
}

int glk_soft_capture_break(
	struct soft *soft, uint32_t stream, const char *call, int native, const char *why)
{
	struct soft_graph *graph =
		soft_graph_at(soft, soft_stream_at(soft, stream)->graph);

	if (graph->broken)
		return glk_soft_capture_broken(graph, call);
	graph->broken = call;
	return glk_error_native(
		-EBUSY, GLAKE_ERROR_CAPTURE, call, native, "%s %s", call, why);
}

int glk_soft_stream_usable(struct soft *soft, uint32_t stream, const char *call)
{
	if (!soft_stream_at(soft, stream)->graph)
		return 0;
	return glk_soft_capture_break(soft, stream, call, SOFT_UNSUPPORTED,
		"is not allowed while the stream captures a graph");
}

int glk_soft_stream_any(struct soft *soft, int device, struct CUstream_st *stream,
	const char *call, uint32_t *ret_id)
{
	uint64_t handle = (uint64_t)(uintptr_t)stream;
	const struct soft_stream *s = NULL;
	uint32_t id = glk_handle_id(handle);

	if (device >= soft->gpus || device < 0)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 101,
			"GPU %d does not exist", device);
	if (stream == GLK_STREAM_PER_THREAD)
		return own_stream(soft, device, ret_id);
	if (!stream || stream == GLK_STREAM_LEGACY) {
		*ret_id = (uint32_t)device + 1;
		return 0;
	}
	if (glk_handle_is(handle, GLK_HANDLE_STREAM) && id && id <= SOFT_STREAMS)
		s = soft_stream_at(soft, id);
	if (!s || !s->live || (s->gen & GLK_HANDLE_GEN_MASK) != glk_handle_gen(handle))
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 400,
			"%#lx is no stream of the software device, or was freed",
			(unsigned long)handle);
	*ret_id = id;
	return 0;
}

int glk_soft_stream_find(struct soft *soft, int device, struct CUstream_st *stream,
	const char *call, uint32_t *ret_id)
{
	uint32_t id = 0;
	int err;

	err = glk_soft_stream_any(soft, device, stream, call, &id);
	if (err)
		return err;
	if (soft_stream_at(soft, id)->device != device)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 400,
			"the stream is of GPU %d, not of GPU %d",
			soft_stream_at(soft, id)->device, device);
	*ret_id = id;
	return 0;
}

int glk_soft_stream_new(struct glk_drv *drv, int device, struct CUstream_st **ret_stream)
{
	struct soft *soft = soft_of(drv);
	uint32_t id = 0;

	if (device < 0 || device >= soft->gpus)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuStreamCreate", 101,
			"GPU %d does not exist", device);
	glk_soft_enter(soft);
	id = take(soft);
	if (id) {
		glk_soft_stream_init(soft, id, device);
		glk_soft_stream_calm(soft, id);
		*ret_stream = (struct CUstream_st *)(uintptr_t)handle_of(soft, id);
	}
	glk_unlock(&soft->lock);
	return id ? 0 : -ENOMEM;
}

static int sync(struct soft *soft, int device, struct CUstream_st *stream,
	const char *call, uint32_t *ret_id)
{
	uint32_t id = 0;
	int err;

	err = glk_soft_stream_find(soft, device, stream, call, &id);
	if (err)
		return err;
	err = glk_soft_stream_usable(soft, id, call);
	if (!err)
		err = glk_soft_queue_drain(soft, id, call);
	*ret_id = id;
	return err;
}

int glk_soft_stream_free(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	struct soft *soft = soft_of(drv);
	uint32_t id = 0;
	int err;

	if (glk_stream_is_default(stream))
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuStreamDestroy",
			400, "the default streams cannot be freed");
	glk_soft_enter(soft);
	err = sync(soft, device, stream, "cuStreamDestroy", &id);
	if (!err) {
		soft_stream_at(soft, id)->live = false;
		glk_soft_stream_calm(soft, id);
		glk_slab_put(&soft->streams, id);
	}
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_stream_sync(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	struct soft *soft = soft_of(drv);
	uint32_t id = 0;
	int err;

	glk_soft_enter(soft);
	err = sync(soft, device, stream, "cuStreamSynchronize", &id);
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_device_sync(struct glk_drv *drv, int device)
{
	struct soft *soft = soft_of(drv);
	uint32_t used = glk_load_relaxed(&soft->streams.used);
	int err = 0;

	if (device < 0 || device >= soft->gpus)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuCtxSynchronize",
			101, "GPU %d does not exist", device);
	glk_soft_enter(soft);
	for (uint32_t id = 1; id <= used && !err; id++) {
		const struct soft_stream *s = soft_stream_at(soft, id);

		if (!s->live || s->device != device)
			continue;
		err = glk_soft_stream_usable(soft, id, "cuCtxSynchronize");
		if (!err)
			err = glk_soft_queue_drain(soft, id, "cuCtxSynchronize");
	}
	glk_unlock(&soft->lock);
	return err;
}

/* Whether the default stream of a thread captures: to record on the legacy stream would end that. */
static bool thread_captures(const struct soft *soft, int device)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used);

	for (uint32_t id = 1; id <= used; id++) {
		const struct soft_stream *s = soft_stream_at(soft, id);

		if (s->live && s->thread && s->graph && s->device == device)
			return true;
	}
	return false;
}

static __attribute__((noinline)) int facts_held(struct soft *soft, int device,
	struct CUstream_st *stream, struct glk_stream_facts *ret_facts)
{
	struct glk_stream_facts facts = {0};
	const struct soft_graph *graph;
	const struct soft_stream *s;
	uint32_t id = 0;
	int err;

	glk_soft_enter(soft);
	err = glk_soft_stream_find(soft, device, stream, "cuStreamGetCaptureInfo", &id);
	s = soft_stream_at(soft, id);
	graph = soft_graph_at(soft, s->graph);
	if (!err && id <= (uint32_t)soft->gpus && thread_captures(soft, device))
		facts.capture = GLK_CAPTURE_BROKEN;
	else if (!s->graph)
		facts.id = id <= (uint32_t)soft->gpus ? 0 : s->id;
	else
		facts.capture = graph->broken ? GLK_CAPTURE_BROKEN : graph->capture;
	if (!err)
		*ret_facts = facts;
	glk_unlock(&soft->lock);
	return err;
}

/* As CUDA, which breaks a capture when it is asked for the number of its stream; that of the legacy stream is not
 * asked for. Nearly every request asks, so that it takes no lock as a rule; but each call may be the one at which
 * something of a random order runs. */
int glk_soft_stream_facts(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_stream_facts *ret_facts)
{
	struct soft *soft = soft_of(drv);
	uint64_t handle = (uint64_t)(uintptr_t)stream;
	uint32_t id = glk_handle_id(handle);

	/* pairs with: the release in glk_soft_stream_calm */
	if (id - 1 >= SOFT_STREAMS || soft->random ||
		glk_handle_device(handle) != device ||
		glk_load_acquire(&soft->calm[id].handle) != handle)
		return facts_held(soft, device, stream, ret_facts);
	*ret_facts =
		(struct glk_stream_facts){.id = glk_load_relaxed(&soft->calm[id].id)};
	return 0;
}

int glk_soft_stream_owner(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	struct soft *soft = soft_of(drv);
	uint32_t id = 0;
	int err;

	glk_soft_enter(soft);
	err = glk_soft_stream_find(soft, device, stream, "cuStreamGetCtx", &id);
	glk_unlock(&soft->lock);
	return err;
}
