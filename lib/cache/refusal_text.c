/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A refusal in words. All it tells was kept: nothing here looks at the GPU. */
#include "cache/refusal.h"

#include "base/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include <glake/managed.h>
#include <glake/memory.h>
#include <glake/refusal.h>

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
