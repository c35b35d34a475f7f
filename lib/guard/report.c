/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is said of a mistake that was found: an error in the log, and a finding that the program can ask for. Names of a stack are
 * looked up, and the file is written, when the lock of guard was given back: the loader has a lock too, which a thread may hold
 * that asks for memory.
 */
#include "guard/guarded.h"

#include "base/clock.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *glk_guard_kind_name(int kind)
{
	static const char *const names[] = {
		[GLAKE_FINDING_OVERRUN] = "overrun",
		[GLAKE_FINDING_DOUBLE_FREE] = "double_free",
		[GLAKE_FINDING_AFTER_FREE] = "after_free",
		[GLAKE_FINDING_UNDERRUN] = "underrun",
	};

	return kind < 0 || (size_t)kind >= sizeof(names) / sizeof(*names) ? NULL
									  : names[kind];
}

bool glk_guard_file_name(const char *pattern, char *name, size_t room)
{
	size_t at = 0;

	for (; *pattern && at + 16 < room; pattern++) {
		if (pattern[0] == '%' && pattern[1] == 'p') {
			at += (size_t)snprintf(name + at, room - at, "%d", (int)getpid());
			pattern++;
			continue;
		}
		pattern += pattern[0] == '%' && pattern[1] == '%';
		name[at++] = *pattern;
	}
	name[at] = 0;
	return at && !*pattern;
}

/* Of names of a stack. */
#define STACK 1536

/* One line, by one write, so that those of several processes do not mix. */
static void write_line(struct glk_guard *g, const struct glake_finding *f)
{
	char name[PATH_MAX], line[768 + 2 * STACK], made[STACK], freed[STACK];
	int fd, length;

	if (glk_guard_stack_text(f->made_at, made, sizeof(made)))
		glk_err("  the block at %p was asked for by %s", f->base, made);
	if (glk_guard_stack_text(f->freed_at, freed, sizeof(freed)))
		glk_err("  the block at %p was freed by %s", f->base, freed);
	if (glk_load_relaxed(&g->no_file) ||
		!glk_guard_file_name(g->cache->conf->guard_report, name, sizeof(name)))
		return;
	length = snprintf(line, sizeof(line),
		"{\"kind\":\"%s\",\"process\":%d,\"gpu\":%d,\"block\":\"%p\",\"size\":%zu,"
		"\"offset\":%zu,\"bytes\":%zu,\"stream\":\"%p\",\"thread\":%" PRIu32
		",\"freed_by\":%" PRIu32 ",\"age_ns\":%" PRId64 ",\"freed_ns\":%" PRId64
		",\"next\":\"%p\",\"next_size\":%zu,\"owners\":%" PRIu32
		",\"made_at\":\"%s\",\"freed_at\":\"%s\"}\n",
		glk_guard_kind_name(f->kind), (int)getpid(), f->device, f->base, f->size,
		f->offset, f->bytes, (void *)f->stream, f->thread, f->freed_by, f->age_ns,
		f->freed_ns, f->next, f->next_size, f->owners, made, freed);
	fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY,
		0600);
	if (fd < 0 || write(fd, line, (size_t)length) != length) {
		/* said once: the log has what was found */
		glk_store_relaxed(&g->no_file, true);
		glk_warn("the report of guard cannot be written to %s: %s", name,
			strerror(errno));
	}
	if (fd >= 0)
		close(fd);
}

uint64_t glk_guard_enter(struct glk_guard *g)
{
	glk_lock(&g->lock);
	return g->found;
}

void glk_guard_leave(struct glk_guard *g, uint64_t found)
{
	uint64_t end = g->found;

	glk_unlock(&g->lock);
	for (; found < end; found++) {
		struct glake_finding f = {.sz = sizeof(f)};

		if (!glk_guard_finding(g->cache, found, &f))
			write_line(g, &f);
	}
}

static struct glake_finding *next(struct glk_guard *g, const struct glk_guard_record *was,
	const struct glk_guard_gone *gone, int kind)
{
	struct glake_finding *f = &g->findings[g->found % GLAKE_FINDINGS];
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
		.freed_ns = gone ? now - gone->freed : 0,
		.owners = was->owners};
	memcpy(f->made_at, was->made_at, sizeof(f->made_at));
	if (gone)
		memcpy(f->freed_at, gone->freed_at, sizeof(f->freed_at));
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
	char owners[96] = "";

	if (f->owners > 1)
		snprintf(owners, sizeof(owners),
			"; it is the last of %" PRIu32
			" of its size that had the place, each of which may have done it",
			f->owners);
	glk_err("GPU %d: %zu bytes were written behind the %zu bytes of the block at %p, the first "
		"of them %" PRIu64
		" bytes behind its end; it was asked for on stream %p by thread "
		"%" PRIu32 " and %s%" PRId64 " ms old%s%s",
		f->device, f->bytes, f->size, f->base, past, (void *)f->stream, f->thread,
		f->freed_by ? "freed when it was " : "is ", f->age_ns / 1000000,
		f->next ? "; the last bytes before the next block are among them" : "",
		owners);
}

int glk_guard_tell(struct glk_cache *cache)
{
	static const char *const words[] = {
		[GLAKE_FINDING_OVERRUN] = "a write behind",
		[GLAKE_FINDING_DOUBLE_FREE] = "a second free of",
		[GLAKE_FINDING_AFTER_FREE] = "a write after the free of",
		[GLAKE_FINDING_UNDERRUN] = "a write before",
	};
	struct glk_guard *g = glk_guard_of(cache);
	const struct glake_finding *f;
	uint64_t oldest;
	int err = 0;

	if (!glk_guard_ops(cache))
		return 0;
	glk_lock(&g->lock);
	oldest = g->found > GLAKE_FINDINGS ? g->found - GLAKE_FINDINGS : 0;
	oldest = oldest > g->told ? oldest : g->told;
	f = &g->findings[oldest % GLAKE_FINDINGS];
	if (oldest < g->found)
		err = glk_error(-EIO, GLAKE_ERROR_GUARD,
			"%" PRIu64
			" mistakes of the program were found on GPU %d: the first is %s "
			"the block of %zu bytes at %p",
			g->found - g->told, f->device, words[f->kind], f->size, f->base);
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

void glk_guard_underrun(struct glk_guard *g, const struct glk_guard_record *was,
	const struct glk_guard_gone *gone, const struct glk_guard_found *found)
{
	struct glake_finding *f = next(g, was, gone, GLAKE_FINDING_UNDERRUN);

	f->offset = was->front - found->first;
	f->bytes = found->count;
	glk_err("GPU %d: %zu bytes were written before the %zu bytes of the block at %p, the first "
		"of them %zu bytes before its beginning; it was asked for on stream %p by thread "
		"%" PRIu32 " and %s%" PRId64 " ms old",
		f->device, f->bytes, f->size, f->base, f->offset, (void *)f->stream,
		f->thread, f->freed_by ? "freed when it was " : "is ",
		f->age_ns / 1000000);
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

void glk_guard_late(struct glk_guard *g, const struct glk_guard_gone *gone,
	const struct glk_guard_found *found)
{
	struct glake_finding *f = next(g, &gone->was, gone, GLAKE_FINDING_AFTER_FREE);

	f->offset = found->first;
	f->bytes = found->count;
	glk_err("GPU %d: %zu bytes of the block at %p of %zu bytes were written after its free, the "
		"first of them %zu bytes from its beginning; thread %" PRIu32
		" freed it %" PRId64
		" ms ago, on stream %p, and it was asked for by thread %" PRIu32
		" on stream %p",
		f->device, f->bytes, f->base, f->size, f->offset, f->freed_by,
		f->freed_ns / 1000000, (void *)gone->stream, f->thread,
		(void *)f->stream);
}
