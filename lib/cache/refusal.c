/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is kept of a request that was refused: see refusal.h. */
#include "cache/refusal.h"

#include "base/clock.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"

#include <errno.h>
#include <string.h>

/* Owners of whom the largest are looked for: powers of two, and streams, of which those that come
 * late share a place when there are more. */
#define SIZES	64
#define STREAMS 64

struct sums {
	struct glk_refusal *r;
	struct glk_owner sizes[SIZES], streams[STREAMS];
};

static unsigned power_of(uint64_t size)
{
	return size > 1 ? 64 - (unsigned)__builtin_clzll(size - 1) : 0;
}

static void add_to(struct glk_owner *owner, uint64_t name, uint64_t bytes)
{
	owner->name = name;
	owner->count++;
	owner->bytes += bytes;
}

static struct glk_owner *stream_of(struct sums *s, uint64_t stream)
{
	unsigned at = (unsigned)(stream * UINT64_C(0x9e3779b97f4a7c15) >> 58);

	for (unsigned i = 0; i < STREAMS; i++, at = (at + 1) % STREAMS) {
		if (!s->streams[at].count || s->streams[at].name == stream)
			return &s->streams[at];
	}
	return NULL;
}

static int add_run(const struct glake_run *run, void *arg)
{
	struct sums *s = arg;
	struct glk_pieces *p = &s->r->walk.pieces[run->state];
	uint64_t stream = (uintptr_t)run->stream;
	struct glk_owner *owner;

	if (s->r->walk.runs == GLK_REFUSAL_RUNS)
		return 1;
	s->r->walk.runs++;
	p->count++;
	p->bytes += run->size;
	p->largest = run->size > p->largest ? run->size : p->largest;
	if (run->state == GLAKE_RUN_LIMBO)
		s->r->walk.late = stream;
	if (run->state > GLAKE_RUN_AWAY)
		return 0;
	add_to(&s->sizes[power_of(run->asked) % SIZES],
		UINT64_C(1) << power_of(run->asked) % SIZES, run->asked);
	owner = stream_of(s, stream);
	if (owner)
		add_to(owner, stream, run->asked);
	return 0;
}

/* The largest ones first. */
static void choose(const struct glk_owner *from, unsigned count, struct glk_owner *to)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned at = GLK_REFUSAL_OWNERS;

		while (at && from[i].bytes > to[at - 1].bytes)
			at--;
		if (at == GLK_REFUSAL_OWNERS)
			continue;
		memmove(&to[at + 1], &to[at],
			(GLK_REFUSAL_OWNERS - 1 - at) * sizeof(*to));
		to[at] = from[i];
	}
}

static void walk(struct glk_cache *cache, struct glk_refusal *r)
{
	struct sums sums = {.r = r};
	size_t unused = 0, total = 0;

	r->walk.runs = 0;
	r->walk.late = 0;
	memset(r->walk.pieces, 0, sizeof(r->walk.pieces));
	memset(r->walk.sizes, 0, sizeof(r->walk.sizes));
	memset(r->walk.streams, 0, sizeof(r->walk.streams));
	r->walk.whole = !glk_cache_walk(cache, 0, add_run, &sums);
	choose(sums.sizes, SIZES, r->walk.sizes);
	choose(sums.streams, STREAMS, r->walk.streams);
	if (cache->drv->ops->memory_info(cache->drv, cache->device, &unused, &total))
		unused = total = 0;
	r->walk.device_free = unused;
	r->walk.device_total = total;
}

/* A line each, at a level that few listen to. */
static void log_it(const struct glk_cache *cache, const struct glk_refusal *r)
{
	char text[GLK_REFUSAL_TEXT], *end;

	glk_refusal_print(
		r, cache->device, GLAKE_REFUSAL_WHOLE, r->at, text, sizeof(text));
	for (char *line = text; *line; line = end + 1) {
		end = strchr(line, '\n');
		if (!end)
			break;
		*end = '\0';
		glk_info("%s", line);
	}
}

void glk_refusal_note(struct glk_cache *cache, const struct glk_request *request,
	const struct CUstream_st *stream, bool graph)
{
	struct glake_error why = glk_thread_current->error;
	int64_t now = glk_clock_ns();
	struct glake_stats stats;
	struct glk_refusal r;
	bool walks;

	glk_cache_figures(cache, &stats);
	glk_lock(&cache->lock);
	r = cache->refusal;
	walks = !r.walk.count || now - r.walk.at >= GLK_REFUSAL_EVERY_NS;
	r.count++;
	r.at = now;
	r.asked = request->size;
	r.lacked = cache->lacked ? cache->lacked : request->size;
	cache->lacked = 0;
	r.stream = (uintptr_t)stream;
	r.flags = request->flags;
	r.graph = graph;
	r.why = why;
	r.stats = stats;
	r.host_budget = cache->host ? glk_load_relaxed(&cache->host->budget) : 0;
	r.places = glk_peek_relaxed(&cache->places);
	r.may_place = cache->host && !r.places &&
		request->size <= cache->conf->map_span &&
		glk_peek_relaxed(&cache->conf->tier_place) == GLK_TIER_PLACE_GPU;
	if (walks) {
		/* others who are refused meanwhile walk no more */
		r.walk.at = now;
		r.walk.count++;
	}
	cache->refusal = r;
	glk_unlock(&cache->lock);
	if (!walks)
		return;
	walk(cache, &r);
	glk_lock(&cache->lock);
	cache->refusal.walk = r.walk;
	glk_unlock(&cache->lock);
	if (glk_log_wants(GLAKE_LOG_INFO))
		log_it(cache, &r);
	glk_error_back(&why);
}

int glk_refusal_text(struct glk_cache *cache, int form, char *buffer, size_t *ret_length)
{
	struct glk_refusal r;

	glk_lock(&cache->lock);
	r = cache->refusal;
	glk_unlock(&cache->lock);
	if (!r.count)
		return -ENOENT;
	*ret_length = glk_refusal_print(
		&r, cache->device, form, glk_clock_ns(), buffer, GLK_REFUSAL_TEXT);
	return 0;
}
