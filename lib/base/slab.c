/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Regions are anonymous mappings without swap reservation, so a table sized for the largest
 * GPU costs only the OS pages it touches. Slots of a slab are handed out in rising order
 * first and from the free stack after, most recently given back first. The address sanitizer
 * is told where a region ends, and what lies behind it is nobody's, so that it reports who goes past a
 * table; and that slots of a slab which were never given are nobody's, but for slot 0.
 */
#include "base/slab.h"

#include "base/error.h"

#include <errno.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define BEHIND (128 << 10) /* more than the largest entry of a table */
/* Of a slab: to say it of all of a large one takes long, and an eighth of its memory. */
#define TOLD (1 << 17)
#else
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define BEHIND				      0
#define TOLD				      0
#endif

/*
 * A region that the system did not take back, since it lies in one map with others and a process without a map to
 * spare cannot have that cut. It goes with a later one.
 */
struct left {
	struct left *next;
	size_t bytes;
};

static glk_atomic(struct left *) region_left;
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
	size_t whole = region_round(size);
	char *p;

	if (!size || whole < size || region_refused()) {
		glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "mmap", ENOMEM,
			"no host memory for a table of %zu bytes", size);
		return NULL;
	}
	p = mmap(NULL, whole + BEHIND, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "mmap", errno,
			"no host memory for a table of %zu bytes", size);
		return NULL;
	}
	ASAN_POISON_MEMORY_REGION(p + size, whole + BEHIND - size);
	glk_add_relaxed(&region_bytes, whole);
	return p;
}

static void give_back(void *region, size_t bytes)
{
	struct left *l = region;

	if (!munmap(region, bytes))
		return;
	madvise(region, bytes, MADV_DONTNEED);
	l->bytes = bytes;
	l->next = glk_load_relaxed(&region_left);
	/* pairs with: the exchange of who takes them all */
	while (!glk_cas_weak_release(&region_left, &l->next, l))
		;
}

void glk_region_free(void *region, size_t size)
{
	struct left *l, *next;
	size_t whole;

	if (!region)
		return;
	whole = region_round(size);
	ASAN_UNPOISON_MEMORY_REGION((char *)region + size, whole + BEHIND - size);
	give_back(region, whole + BEHIND);
	/* pairs with: the release of who leaves one */
	l = glk_load_relaxed(&region_left) ? glk_xchg_acq_rel(&region_left, NULL) : NULL;
	for (; l; l = next) {
		next = l->next;
		give_back(l, l->bytes);
	}
	glk_sub_relaxed(&region_bytes, whole);
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

/* What the slots from 1 on take of which it is said whether they were given. */
static size_t told_bytes(const struct glk_slab *slab)
{
	size_t slots = TOLD / slab->slot;

	return (slots < slab->max ? slots : slab->max) * slab->slot;
}

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
	ASAN_POISON_MEMORY_REGION(glk_slab_at(slab, 1), told_bytes(slab));
	return 0;
}

void glk_slab_fini(struct glk_slab *slab)
{
	size_t slots = (size_t)slab->max + 1;

	if (slab->base)
		ASAN_UNPOISON_MEMORY_REGION(glk_slab_at(slab, 1), told_bytes(slab));
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
			/* others may look at it as soon as it counts as used */
			ASAN_UNPOISON_MEMORY_REGION(
				glk_slab_at(slab, used + 1), slab->slot);
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
