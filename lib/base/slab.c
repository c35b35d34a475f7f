/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Regions are anonymous mappings without swap reservation, so a table sized for the largest
 * GPU costs only the OS pages it touches. Slots of a slab are handed out in rising order
 * first and from the free stack after, most recently given back first.
 */
#include "base/slab.h"

#include "base/error.h"

#include <errno.h>
#include <sys/mman.h>

static glk_atomic(uint64_t) region_bytes;
static glk_atomic(uint32_t) region_fail;

static size_t region_round(size_t size)
{
	return (size + 4095) & ~(size_t)4095;
}

static int region_refused(void)
{
	uint32_t left = glk_load_relaxed(&region_fail);

	if (!left)
		return 0;
	if (left > 1)
		glk_store_relaxed(&region_fail, left - 1);
	return left == 1;
}

void *glk_region_new(size_t size)
{
	void *p;

	if (!size || size > SIZE_MAX - 4095 || region_refused()) {
		glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "mmap", ENOMEM,
			"no host memory for a table of %zu bytes", size);
		return NULL;
	}
	size = region_round(size);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "mmap", errno,
			"no host memory for a table of %zu bytes", size);
		return NULL;
	}
	glk_add_relaxed(&region_bytes, size);
	return p;
}

void glk_region_free(void *region, size_t size)
{
	if (!region)
		return;
	size = region_round(size);
	munmap(region, size);
	glk_sub_relaxed(&region_bytes, size);
}

uint64_t glk_region_bytes(void)
{
	return glk_load_relaxed(&region_bytes);
}

void glk_region_fail_after(uint32_t n)
{
	glk_store_relaxed(&region_fail, n);
}

static struct glk_idnode *slab_link(struct glk_slab *slab, uint32_t id)
{
	return &slab->links[id];
}

GLK_IDSTACK_DEFINE(slab_free, struct glk_slab *, slab_link)

int glk_slab_init(struct glk_slab *slab, size_t slot, uint32_t max)
{
	size_t bytes, links;

	if (!slot || !max || max > GLK_ID_MAX ||
		__builtin_mul_overflow(slot, (size_t)max + 1, &bytes))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"slab of %u slots of %zu bytes", max, slot);
	links = ((size_t)max + 1) * sizeof(*slab->links);
	*slab = (struct glk_slab){.slot = slot, .max = max};
	slab->base = glk_region_new(bytes);
	if (!slab->base)
		return -ENOMEM;
	slab->links = glk_region_new(links);
	if (!slab->links) {
		glk_region_free(slab->base, bytes);
		slab->base = NULL;
		return -ENOMEM;
	}
	return 0;
}

void glk_slab_fini(struct glk_slab *slab)
{
	size_t slots = (size_t)slab->max + 1;

	glk_region_free(slab->base, slots * slab->slot);
	glk_region_free(slab->links, slots * sizeof(*slab->links));
	slab->base = NULL;
	slab->links = NULL;
}

uint32_t glk_slab_get(struct glk_slab *slab)
{
	uint32_t id = slab_free_pop(&slab->free, slab);
	uint32_t used;

	if (!id) {
		used = glk_load_relaxed(&slab->used);
		do {
			if (used >= slab->max) {
				glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
					"all %u descriptors are in use", slab->max);
				return 0;
			}
		} while (!glk_cas_weak_relaxed(&slab->used, &used, used + 1));
		id = used + 1;
	}
	glk_add_relaxed(&slab->live, 1);
	return id;
}

void glk_slab_put(struct glk_slab *slab, uint32_t id)
{
	glk_sub_relaxed(&slab->live, 1);
	slab_free_push(&slab->free, slab, id);
}
