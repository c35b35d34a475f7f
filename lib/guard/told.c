/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a tool that is attached by NVTX is told. Plain blocks are managed memory then, since a tool takes no page that is mapped for a
 * heap: each chunk is a heap, of which nothing may be touched but its regions, which are the live blocks. A block is a region
 * from before it is given until its free, which waits for the GPU: the tool judges a kernel when it runs, and not when it
 * was queued.
 */
#include "guard/guarded.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "guard/nvtx.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool glk_guard_tells(const struct glk_guard *g, const struct glk_arena *arena)
{
	return g->tool && arena->ops->kind == GLAKE_ARENA_MANAGED;
}

/* The tool is told of the heap of a range. */
static void *make_heap(struct glk_guard *g, const struct glk_range *range)
{
	uint64_t addr, size;
	char name[48];

	snprintf(name, sizeof(name), "glake, GPU %d", g->cache->device);
	/* a tool wants what the driver gave, as a whole */
	return glk_managed_piece(g->cache, range, &addr, &size)
		? glk_nvtx_heap(addr, size, name)
		: NULL;
}

/* The heap of a range; NULL: it has none, as the tool refuses it, or there are too many. Who needs one that another thread
 * tells the tool of waits; who is asked for it by the tool itself, as it is told, has none. */
static void *heap_of(struct glk_guard *g, const struct glk_range *range)
{
	uint32_t i = 0, thread = glk_guard_thread();
	void *handle = NULL;

	glk_lock(&g->lock);
	while (i < g->heap_count && g->heaps[i].base != range->base)
		i++;
	if (i == g->heap_count && i < GLK_GUARD_HEAPS) {
		g->heap_count++;
		g->heaps[i].base = range->base;
		g->heaps[i].maker = thread;
		glk_unlock(&g->lock);
		handle = make_heap(g, range);
		glk_lock(&g->lock);
		g->heaps[i].handle = handle;
		g->heaps[i].maker = 0;
		pthread_cond_broadcast(&g->heap_made);
	} else if (i < g->heap_count && g->heaps[i].maker != thread) {
		while (g->heaps[i].maker)
			glk_lock_wait(&g->lock, &g->heap_made);
		handle = g->heaps[i].handle;
	}
	glk_unlock(&g->lock);
	return handle;
}

/* By one write, so that lines of several threads do not mix. */
static void write_name(
	struct glk_guard *g, uint64_t addr, uint64_t asked, const char *name)
{
	char path[PATH_MAX], line[512];
	int held = glk_load_acquire(&g->names), none = 0, fd, length;

	if (!held &&
		glk_guard_file_name(g->cache->conf->guard_names, path, sizeof(path))) {
		fd = open(path,
			O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY,
			0600);
		if (fd < 0)
			glk_warn("names of blocks cannot be written to %s: %s", path,
				strerror(errno));
		/* another thread may have been faster */
		held = fd < 0 ? -1 : fd + 1;
		if (!glk_cas_acq_rel(&g->names, &none, held)) {
			if (fd >= 0)
				close(fd);
			held = none;
		}
	}
	if (held <= 0)
		return;
	length = snprintf(line, sizeof(line), "0x%" PRIx64 " %" PRIu64 " %.400s\n", addr,
		asked, name);
	for (int i = 0; i < length - 1; i++)
		if ((unsigned char)line[i] < ' ')
			line[i] = ' ';
	if (write(held - 1, line, (size_t)length) != length &&
		glk_cas_acq_rel(&g->names, &held, -1)) {
		glk_warn("names of blocks cannot be written: %s", strerror(errno));
	}
}

void glk_guard_told(
	struct glk_guard *g, const struct glk_range *range, uint64_t addr, uint64_t asked)
{
	void *heap = heap_of(g, range);
	char name[64];

	if (!heap)
		return;
	glk_nvtx_region(heap, addr, asked);
	snprintf(name, sizeof(name), "%zu bytes, thread %" PRIu32, (size_t)asked,
		glk_guard_thread());
	glk_nvtx_name(addr, name);
	write_name(g, addr, asked, name);
}

/* Behind all that was queued; but a capture may be under way, which that would end. */
static void settle(struct glk_cache *cache)
{
	struct glake_error why = glk_thread_current->error;
	bool may;

	glk_lock(&cache->lock);
	may = !glk_clock_captures(&cache->streams);
	glk_unlock(&cache->lock);
	if (may)
		cache->drv->ops->device_sync(cache->drv, cache->device);
	glk_error_back(&why);
}

void glk_guard_untold(struct glk_guard *g, const struct glk_range *range, uint64_t addr)
{
	settle(g->cache);
	if (heap_of(g, range))
		glk_nvtx_region_end(addr);
}

void glk_guard_told_fini(struct glk_guard *g)
{
	while (g->heap_count)
		if (g->heaps[--g->heap_count].handle)
			glk_nvtx_heap_end(g->heaps[g->heap_count].handle);
	if (glk_load_relaxed(&g->names) > 0)
		close(glk_load_relaxed(&g->names) - 1);
}

int glk_guard_name(struct glk_cache *cache, uint64_t addr, const char *name)
{
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_guard *g = glk_guard_of(cache);
	bool named = false, told = false;
	struct glk_extent *e = NULL;

	if (!glk_guard_has_tool(cache))
		return glk_error(-ENOENT, GLAKE_ERROR_INVAL,
			"no tool is attached by NVTX (guard.nvtx)");
	if (range && glk_guard_tells(g, glk_arena_of(range)))
		e = glk_lookup_hold(range, addr);
	if (e) {
		told = heap_of(g, range) != NULL;
		named = told && glk_nvtx_name(addr, name);
		if (told)
			write_name(g, addr, glk_extent_asked(e), name);
		glk_word_let_go(&e->word);
	}
	if (!told)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"no block that the tool knows begins at 0x%" PRIx64, addr);
	return named ? 0
		     : glk_error(-ENOENT, GLAKE_ERROR_INVAL, "the tool takes no names");
}
