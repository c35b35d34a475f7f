/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the program tells of its streams: their ends, and what they wait for. */
#include "base/conf.h"
#include "cache/bin/quick.h"

#include <errno.h>

/* What lies in the bins of a stream that is about to end goes back while its work is still known, where it is
 * found; else the next request sees to it. */
static void end_row(struct glk_cache *cache, struct CUstream_st *stream)
{
	uint32_t id = glk_stream_find(&cache->streams, stream);

	if (!id)
		return;
	glk_lock(&cache->lock);
	glk_quick_end(cache, id, glk_stream_name(stream));
	glk_unlock(&cache->lock);
}

void glk_cache_stream_end(struct glk_cache *cache, struct CUstream_st *stream)
{
	end_row(cache, stream);
	glk_stream_retire(&cache->streams, stream);
}

int glk_cache_stream_leave(struct glk_cache *cache, struct CUstream_st *stream)
{
	int err;

	/* pairs with: glk_cache_start */
	if (!glk_load_acquire(&cache->started))
		return 0;
	end_row(cache, stream);
	err = glk_stream_leave(&cache->streams, stream);
	return err == -ENOENT ? 0 : err;
}

/* The stream of a dependency; 0: nothing is to be noted. */
static int depends(
	struct glk_cache *cache, struct CUstream_st *stream, uint32_t *ret_stream)
{
	struct glk_stream_facts facts;
	int err;

	err = glk_cache_start(cache);
	if (err)
		return err;
	err = glk_stream_get(&cache->streams, stream, &facts, ret_stream);
	if (err)
		return err;
	/* the order of a graph is none of its streams' own */
	if (facts.capture || !cache->conf->stream_event_dependencies)
		*ret_stream = 0;
	return 0;
}

int glk_cache_event_recorded(struct glk_cache *cache, const struct CUevent_st *event,
	struct CUstream_st *stream)
{
	uint32_t id = 0;
	int err;

	err = depends(cache, stream, &id);
	if (err)
		return err;
	glk_lock(&cache->lock);
	if (id)
		err = glk_note_record(
			&cache->streams, event, glk_stream_enter(&cache->streams, id));
	else
		glk_note_forget(&cache->streams, event);
	glk_unlock(&cache->lock);
	return err;
}

int glk_cache_stream_waited(struct glk_cache *cache, struct CUstream_st *stream,
	const struct CUevent_st *event)
{
	uint32_t id = 0;
	int err;

	err = depends(cache, stream, &id);
	if (err || !id)
		return err;
	glk_lock(&cache->lock);
	glk_note_wait(&cache->streams, event, glk_stream_enter(&cache->streams, id));
	glk_unlock(&cache->lock);
	return 0;
}

void glk_cache_event_forget(struct glk_cache *cache, const struct CUevent_st *event)
{
	if (!glk_load_acquire(&cache->started)) /* pairs with: glk_cache_start */
		return;
	glk_lock(&cache->lock);
	glk_note_forget(&cache->streams, event);
	glk_unlock(&cache->lock);
}
