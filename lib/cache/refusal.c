/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a request is told that is refused for want of memory, and what is kept of it: see refusal.h. */
#include "cache/refusal.h"

#include "base/clock.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/graph/graph.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <glake/managed.h>
#include <glake/memory.h>
#include <glake/refusal.h>

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
	r->walk.whole = !glk_cache_walk(cache, 0, UINT64_MAX, add_run, &sums);
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
	r.large = cache->arena.map.large > 1;
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

/* ---- Sentences ---- */

static int refuse_host(const struct glk_node *host, uint64_t size)
{
	struct glk_said asked = glk_say_bytes(size);
	char why[sizeof(((struct glake_error *)NULL)->text)];

	/* the driver, or the machine, has said why */
	if (glk_node_has_room(host, size)) {
		snprintf(why, sizeof(why), "%s", glk_thread_current->error.text);
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"GPU %d has no room for %s of pages more, and on the host: %s",
			host->gpu->place.id, asked.text, why);
	}
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
		"neither GPU %d nor the memory of the host near it has room for %s of pages "
		"more: %s of the host are held, of the %s that tier.host allows",
		host->gpu->place.id, asked.text,
		glk_say_bytes(glk_load_relaxed(&host->held)).text,
		glk_say_bytes(glk_load_relaxed(&host->budget)).text);
}

/* The broker, or the driver, has said why. */
static int refuse_leave(const struct glk_node *node, uint64_t size)
{
	char why[sizeof(((struct glake_error *)NULL)->text)];

	snprintf(why, sizeof(why), "%s", glk_thread_current->error.text);
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE,
		"GPU %d: no room for %s of pages more, with %s held: %s", node->place.id,
		glk_say_bytes(size).text,
		glk_say_bytes(glk_load_relaxed(&node->held)).text, why);
}

static int refuse_quota(const struct glk_node *node, uint64_t size)
{
	char why[sizeof(((struct glake_error *)NULL)->text)];

	node->quota->tell(node->quota, why, sizeof(why));
	return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"GPU %d has no room for %s of pages more: %s", node->place.id,
		glk_say_bytes(size).text, why);
}

struct sentence {
	char text[GLAKE_ERROR_TEXT_MAX];
	size_t used;
};

static __attribute__((format(printf, 2, 3))) void add(
	struct sentence *s, const char *format, ...)
{
	size_t room = sizeof(s->text) - s->used;
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(s->text + s->used, room, format, args);
	va_end(args);
	/* as a whole, or not at all, which a length below zero is too */
	if ((size_t)length >= room)
		s->text[s->used] = '\0';
	else
		s->used += (size_t)length;
}

static void add_bytes(struct sentence *s, uint64_t bytes, const char *what)
{
	if (bytes)
		add(s, ", %s %s", glk_say_bytes(bytes).text, what);
}

/* Where the memory is that is held: with live blocks, with others, or in motion. */
static void add_held(struct sentence *s, struct glk_cache *gpu)
{
	const struct glk_map *map = &gpu->arena.map;
	uint64_t born = 0;
	struct glk_seats sum;

	glk_seats_sum(gpu, &sum);
	for (uint32_t i = 1; i <= gpu->last_row; i++)
		born += gpu->rows[i].bytes;
	add(s, ", %s in live blocks", glk_say_bytes(sum.live).text);
	add_bytes(s,
		(map->space->of[GLK_OF_NODE].stranded << map->shift) + map->nested_bytes -
			map->nested_taken,
		"beside them in their pages");
	add_bytes(s, born > sum.given ? born - sum.given : 0, "in bins");
	add_bytes(s, glk_cache_in_flight(gpu), "in plans");
	add(s, ", %s idle", glk_say_bytes(glk_arena_idle(&gpu->arena, gpu->node)).text);
	add_bytes(s, glk_graph_held(gpu), "in pools of graphs");
}

int glk_refusal_memory(struct glk_arena *home, const struct glk_node *node, uint64_t size)
{
	struct glk_cache *gpu = home->gpu;
	uint64_t budget = glk_load_relaxed(&node->budget);
	const struct glk_slab *pages = &gpu->pool->pages;
	const struct glk_map *map = &gpu->arena.map;
	struct sentence s = {.used = 0};

	gpu->lacked = size;
	if (glk_node_has_room(node, size) && glk_load_relaxed(&pages->live) >= pages->max)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"GPU %d needs one page more than the %" PRIu32
			" that pool.pages allows",
			gpu->device, pages->max);
	if (node != gpu->node)
		return refuse_host(node, size);
	if (node->source->ask && glk_node_has_room(node, size))
		return refuse_leave(node, size);
	if (node->quota && node->quota->room(node->quota) < budget &&
		!glk_node_has_room(node, size))
		return refuse_quota(node, size);
	add(&s, "GPU %d has no room for %s of pages more: %s held with ", gpu->device,
		glk_say_bytes(size).text,
		glk_say_bytes(glk_load_relaxed(&node->held)).text);
	if (budget != UINT64_MAX)
		add(&s, "a budget of %s", glk_say_bytes(budget).text);
	else
		add(&s, "no budget set");
	add_held(&s, gpu);
	add(&s, ", largest hole %s",
		glk_say_bytes(glk_tree_largest(map, &map->common)).text);
	add(&s, "; %s would help",
		budget != UINT64_MAX
			? "a larger budget or fewer live blocks"
			: "fewer live blocks here, or less in other programs,");
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE, "%s", s.text);
}

int glk_refusal_addresses(const struct glk_map *map, uint64_t size)
{
	return glk_error(-ENOMEM, GLAKE_ERROR_ADDRESS,
		"no free addresses for a block of %s: %s of them are reserved, of the %s that "
		"map.span allows, and the largest hole has %s",
		glk_say_bytes(size).text, glk_say_bytes(map->size).text,
		glk_say_bytes(map->most).text,
		glk_say_bytes(glk_tree_largest(map, &map->common)).text);
}

/* ---- In words: all it tells was kept, and nothing here looks at the GPU ---- */

#define MIB (UINT64_C(1) << 20)

struct page {
	char *buffer;
	size_t size, used;
	unsigned pieces; /* of advice */
};

static __attribute__((format(printf, 2, 3))) void put(
	struct page *page, const char *format, ...)
{
	size_t room = page->size - page->used;
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(page->buffer + page->used, room, format, args);
	va_end(args);
	page->used += length < 0 ? 0 : (size_t)length < room ? (size_t)length : room - 1;
}

/* ---- What there is ---- */

static void put_pieces(struct page *page, const struct glk_refusal *r, int state,
	const char *what, const char *why)
{
	const struct glk_pieces *p = &r->walk.pieces[state];

	if (p->count)
		put(page, "  %s %s, in %" PRIu64 " pieces, the largest %s%s\n",
			glk_say_bytes(p->bytes).text, what, p->count,
			glk_say_bytes(p->largest).text, why);
}

static void put_there(struct page *page, const struct glk_refusal *r)
{
	const struct glake_stats *s = &r->stats;

	put(page, "What there is:\n  %s are held", glk_say_bytes(s->reserved).text);
	if (s->budget != UINT64_MAX)
		put(page, ", of a budget of %s", glk_say_bytes(s->budget).text);
	if (r->walk.device_total)
		put(page, "; the driver had %s free of %s",
			glk_say_bytes(r->walk.device_free).text,
			glk_say_bytes(r->walk.device_total).text);
	put(page, "\n  %s in %" PRIu64 " live blocks", glk_say_bytes(s->live).text,
		s->live_blocks);
	if (s->away)
		put(page, ", of which %s are away", glk_say_bytes(s->away).text);
	if (s->placed)
		put(page, ", of which %s lie on the host", glk_say_bytes(s->placed).text);
	put(page, "\n");
	put_pieces(page, r, GLAKE_RUN_REST, "are the rest of pages that live blocks use",
		": too small, or no room for new pages beside them");
	put_pieces(page, r, GLAKE_RUN_QUICK,
		"are freed blocks in the bins of their streams", "");
	put_pieces(page, r, GLAKE_RUN_IDLE, "are idle", ": not enough for it");
	put_pieces(page, r, GLAKE_RUN_LIMBO, "wait for work on streams", "");
	if (r->walk.pieces[GLAKE_RUN_LIMBO].count)
		put(page, "    one of them is 0x%" PRIx64 "\n", r->walk.late);
	if (s->pools)
		put(page,
			"  %s are of %" PRIu64
			" pools of graphs, which keep them until they are released\n",
			glk_say_bytes(s->pool_held).text, s->pools);
	put(page, "  the largest hole between blocks has %s of addresses\n",
		glk_say_bytes(s->largest_hole).text);
	if (s->host_held)
		put(page, "  %s of the host are held\n",
			glk_say_bytes(s->host_held).text);
	if (s->managed_held)
		put(page, "  %s of managed memory are held, %s in live blocks\n",
			glk_say_bytes(s->managed_held).text,
			glk_say_bytes(s->managed).text);
}

/* ---- Where it stopped ---- */

static void put_stop(struct page *page, const struct glk_refusal *r)
{
	put(page, "Where it stopped:\n  ");
	if (r->why.error_class == GLAKE_ERROR_ADDRESS ||
		r->why.error_class == GLAKE_ERROR_LIMIT)
		put(page, "before memory was looked for: a limit was reached\n");
	else if (r->flags & GLAKE_ALLOC_MANAGED)
		put(page,
			"where a chunk of managed memory is had: chunks without blocks and idle "
			"pages were given back\n");
	else if (r->asked > r->stats.budget ||
		(r->walk.device_total && r->asked > r->walk.device_total))
		put(page, "at once: it is more than the GPU may ever hold\n");
	else if (r->places)
		put(page, "on the last rung, memory of the host\n");
	else if (r->graph)
		put(page,
			"on the last rung of a pool of graphs, which waits for nobody\n");
	else
		put(page,
			"on the last rung: pages that nobody uses were given back, bins emptied, "
			"streams waited for; the host was not asked\n");
}

/* ---- What would have helped ---- */

static __attribute__((format(printf, 2, 3))) void advise(
	struct page *page, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	put(page, "%s%s", page->pieces++ ? "; " : "", text);
}

static void advise_budget(struct page *page, const struct glk_refusal *r)
{
	const struct glake_stats *s = &r->stats;
	uint64_t want = s->reserved + r->lacked;

	if (s->budget == UINT64_MAX || want <= s->budget)
		return;
	if (r->walk.device_total && r->lacked > r->walk.device_free)
		return;
	advise(page, "pool.budget=%" PRIu64 "MiB, or glake_budget_set()",
		(want + MIB - 1) / MIB);
}

static void advise_host(struct page *page, const struct glk_refusal *r)
{
	uint64_t want = r->stats.host_held + r->lacked;

	if (r->flags & GLAKE_ALLOC_CONTIGUOUS || r->graph)
		return;
	if (r->may_place)
		advise(page,
			"tier.place=host, for memory of the host where the GPU has none");
	else if (r->places && r->host_budget < want)
		advise(page, "tier.host=%" PRIu64 "MiB", (want + MIB - 1) / MIB);
}

static void advise_managed(struct page *page, const struct glk_refusal *r)
{
	const struct glake_stats *s = &r->stats;

	if (r->why.error_class == GLAKE_ERROR_LIMIT)
		advise(page,
			"a larger tier.managed, or the limit that the sentence above names");
	else if (!(r->flags & GLAKE_ALLOC_MANAGED_OVER))
		advise(page,
			"GLAKE_ALLOC_MANAGED_OVER, for more than is free on the GPU");
	if (s->managed)
		advise(page,
			"fewer live blocks of managed memory, then glake_trim(): chunks with any "
			"are kept whole, %s in all",
			glk_say_bytes(s->managed_held).text);
	if (!page->pieces)
		advise(page, "a smaller request");
}

static void put_advice(struct page *page, const struct glk_refusal *r)
{
	const struct glake_stats *s = &r->stats;
	const struct glk_pieces *rest = &r->walk.pieces[GLAKE_RUN_REST];

	page->pieces = 0;
	if (r->why.error_class == GLAKE_ERROR_ADDRESS)
		advise(page, "a larger map.span");
	else if (r->flags & GLAKE_ALLOC_MANAGED)
		advise_managed(page, r);
	else if (r->why.error_class == GLAKE_ERROR_LIMIT)
		advise(page, "the limit that the sentence above names");
	if (page->pieces)
		return;
	advise_budget(page, r);
	advise_host(page, r);
	if (r->flags & GLAKE_ALLOC_CONTIGUOUS && s->free_pages >= r->asked)
		advise(page, "a block that is not contiguous");
	if (s->pool_held)
		advise(page, "glake_pool_release() of graphs that are done, %s",
			glk_say_bytes(s->pool_held).text);
	if (rest->bytes >= r->asked)
		advise(page, "%s: %s are the rest of pages",
			r->large
				? "a smaller pool.large_page"
				: "blocks that stay for long asked for side by side, or with "
				  "a tag of their own",
			glk_say_bytes(rest->bytes).text);
	if (s->live >= s->away + s->placed + r->asked)
		advise(page,
			"fewer live blocks, or glake_spill() or GLAKE_ADVICE_COLD for "
			"some that are not used for a while");
	if (!page->pieces)
		advise(page, "a smaller request");
}

/* ---- Who has the memory ---- */

static void put_owners(struct page *page, const struct glk_owner *owners, bool sizes)
{
	for (int i = 0; i < GLK_REFUSAL_OWNERS && owners[i].count; i++) {
		if (sizes)
			put(page, "  up to %s:", glk_say_bytes(owners[i].name).text);
		else
			put(page, "  stream 0x%" PRIx64 ":", owners[i].name);
		put(page, " %s in %" PRIu64 "\n", glk_say_bytes(owners[i].bytes).text,
			owners[i].count);
	}
}

static void put_walk(struct page *page, const struct glk_refusal *r, int64_t now)
{
	if (!r->walk.runs)
		return;
	put(page, "Live blocks by size, those first that have most:\n");
	put_owners(page, r->walk.sizes, true);
	put(page, "Live blocks by stream:\n");
	put_owners(page, r->walk.streams, false);
	if (!r->walk.whole)
		put(page,
			"  pieces and blocks are of the first %d runs of addresses; there are "
			"more\n",
			GLK_REFUSAL_RUNS);
	if (r->walk.at != r->at)
		put(page, "  pieces and blocks as of %" PRId64 " ms before that\n",
			(r->at - r->walk.at) / 1000000);
	put(page, "This was %" PRId64 " ms ago.\n", (now - r->at) / 1000000);
}

static void put_head(struct page *page, const struct glk_refusal *r, int gpu)
{
	put(page,
		"GPU %d refused %s on stream 0x%" PRIx64 "%s%s, refusal %" PRIu64
		":\n  %s\n",
		gpu, glk_say_bytes(r->asked).text, r->stream,
		r->flags & GLAKE_ALLOC_CONTIGUOUS	 ? ", contiguous"
			: r->flags & GLAKE_ALLOC_MANAGED ? ", managed"
							 : "",
		r->graph ? ", for a graph" : "", r->count, r->why.text);
}

size_t glk_refusal_print(const struct glk_refusal *r, int gpu, int form, int64_t now,
	char *buffer, size_t size)
{
	struct page page = {.buffer = buffer, .size = size};

	if (form == GLAKE_REFUSAL_ADVICE) {
		put_advice(&page, r);
		return page.used;
	}
	put_head(&page, r, gpu);
	put_there(&page, r);
	put_stop(&page, r);
	put(&page, "What would have helped:\n  ");
	put_advice(&page, r);
	put(&page, "\n");
	put_walk(&page, r, now);
	return page.used;
}
