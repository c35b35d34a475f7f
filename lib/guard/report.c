/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is said of a mistake that was found: an error in the log, and a finding that the program can ask for. */
#include "guard/guarded.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>

static struct glake_finding *next(struct glk_guard *g, const struct glk_guard_record *was,
	const struct glk_guard_gone *gone, int kind)
{
	struct glake_finding *f = &g->findings[g->found % GLK_GUARD_FINDINGS];
	int64_t now = glk_clock_ns();

	*f = (struct glake_finding){.sz = sizeof(*f),
		.kind = kind,
		.device = g->cache->device,
		.base = (void *)(uintptr_t)was->addr,
		.size = was->asked,
		.stream = was->stream,
		.thread = was->thread,
		.freed_by = gone ? gone->thread : 0,
		.age_ns = (gone ? gone->freed : now) - was->born,
		.freed_ns = gone ? now - gone->freed : 0};
	g->found++;
	return f;
}

/* The block behind a canary, which may be what was written before its first byte. */
static void find_next(struct glk_guard *g, struct glake_finding *f, uint64_t end)
{
	const struct glk_range *range = glk_cache_range(g->cache, end);
	struct glk_live live;

	if (range && glk_arena_of(range) == &g->cache->arena &&
		glk_lookup_live(range, end, &live) && live.addr == end) {
		f->next = (void *)(uintptr_t)live.addr;
		f->next_size = live.asked;
	}
}

static void say_overrun(const struct glake_finding *f)
{
	uint64_t past = f->offset - f->size;

	glk_err("GPU %d: %zu bytes were written behind the %zu bytes of the block at %p, the first "
		"of them %" PRIu64
		" bytes behind its end; it was asked for on stream %p by thread "
		"%" PRIu32 " and %s%" PRId64 " ms old%s",
		f->device, f->bytes, f->size, f->base, past, (void *)f->stream, f->thread,
		f->freed_by ? "freed when it was " : "is ", f->age_ns / 1000000,
		f->next ? "; the last bytes before the next block are among them" : "");
}

int glk_guard_tell(struct glk_cache *cache)
{
	struct glk_guard *g = glk_guard_of(cache);
	const struct glake_finding *f;
	uint64_t oldest;
	int err = 0;

	if (!glk_guard_ops(cache))
		return 0;
	glk_lock(&g->lock);
	oldest = g->found > GLK_GUARD_FINDINGS ? g->found - GLK_GUARD_FINDINGS : 0;
	oldest = oldest > g->told ? oldest : g->told;
	f = &g->findings[oldest % GLK_GUARD_FINDINGS];
	if (oldest < g->found)
		err = glk_error(-EIO, GLAKE_ERROR_GUARD,
			"%" PRIu64
			" mistakes of the program were found on GPU %d: the first is %s "
			"the block of %zu bytes at %p",
			g->found - g->told, f->device,
			f->kind == GLAKE_FINDING_OVERRUN ? "a write behind"
							 : "a second free of",
			f->size, f->base);
	g->told = g->found;
	glk_unlock(&g->lock);
	return err;
}

void glk_guard_overrun(struct glk_guard *g, const struct glk_guard_record *was,
	const struct glk_guard_gone *gone, const struct glk_guard_found *found)
{
	struct glake_finding *f = next(g, was, gone, GLAKE_FINDING_OVERRUN);
	uint64_t canary = glk_load_relaxed(&was->canary);

	f->offset = was->asked + found->first;
	f->bytes = found->count;
	/* with a gap after the end, and up to the next block: that one was written from below */
	if (found->first && found->first + found->count >= canary)
		find_next(g, f, was->addr + was->asked + canary);
	say_overrun(f);
}

void glk_guard_twice(struct glk_guard *g, const struct glk_guard_gone *gone)
{
	struct glake_finding *f = next(g, &gone->was, gone, GLAKE_FINDING_DOUBLE_FREE);

	glk_err("GPU %d: the block at %p of %zu bytes is freed again, by thread %" PRIu32
		"; thread %" PRIu32 " freed it %" PRId64
		" ms ago, on stream %p, and it was "
		"asked for by thread %" PRIu32 " on stream %p",
		f->device, f->base, f->size, glk_guard_thread(), f->freed_by,
		f->freed_ns / 1000000, (void *)gone->stream, f->thread,
		(void *)f->stream);
}
