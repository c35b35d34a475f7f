/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FAKEDRV_H
#define GLK_FAKEDRV_H

/*
 * A driver without memory: it keeps the books of addresses, pages and mappings, counts calls,
 * fails the calls it is told to, and notes every broken rule (a page mapped twice over, an
 * unmap of part of a mapping, a release of what was released). Any thread may call it.
 */
#include "base/error.h"
#include "driver/driver.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>

enum fake_op {
	FAKE_RESERVE,
	FAKE_UNRESERVE,
	FAKE_CREATE,
	FAKE_RELEASE,
	FAKE_MAP,
	FAKE_SET_ACCESS,
	FAKE_UNMAP,
	FAKE_OPS,
};

#define FAKE_BASE      (UINT64_C(1) << 44)
#define FAKE_GRANULE   21
#define FAKE_AREAS     64
#define FAKE_PAGES_MAX (1u << 18)

struct fake {
	struct glk_drv drv; /* first, so that the one is the other */
	struct glk_drv_ops ops;
	pthread_mutex_t lock;
	uint64_t calls[FAKE_OPS];
	uint64_t fail_in[FAKE_OPS]; /* the n-th call from now on fails; 0: none */
	bool fail_on[FAKE_OPS];	    /* and all after it */
	int fail_err[FAKE_OPS];
	uint64_t broken; /* rules */
	uint64_t size;	 /* of all reservations */
	uint64_t limit;	 /* largest reservation that is granted; 0: any */
	uint64_t skew;	 /* bytes from an aligned address to where reservations begin */
	struct {
		uint64_t base, size; /* size 0: none */
	} area[FAKE_AREAS];
	uint64_t granules; /* from FAKE_BASE up to the end of the last reservation */
	uint64_t memory;   /* bytes that pages may hold together; 0: any */
	uint64_t held, pages, mappings;
	uint32_t refused; /* GLK_PAGE_... that no page is made with */
	bool no_node;	  /* nor on any NUMA node */
	bool bad_node;	  /* to ask for one there is no good idea */
	int nodes_tried;
	int not_yet;	     /* so many tries say nothing */
	int refusal;	     /* the answer to that */
	uint32_t flags;	     /* of the last page */
	bool unreachable;    /* no GPU can be given access to another's memory */
	uint64_t *page_size; /* by handle; 0: none */
	uint32_t *freed;     /* handles given back */
	uint32_t freed_count, next;
	struct {
		uint64_t page;	 /* 0: not mapped */
		uint64_t serial; /* of the map call */
		bool head, access;
	} * granule;
};

static inline const char *fake_name(enum fake_op op)
{
	static const char *const names[] = {"reserve", "unreserve", "create", "release",
		"map", "set_access", "unmap"};

	return names[op];
}

static inline int fake_rule(struct fake *fake, const char *what)
{
	fake->broken++;
	tap_note("driver rule broken: %s", what);
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "%s", what);
}

/* Counts a call and says whether it is to fail. */
static inline int fake_enter(struct fake *fake, enum fake_op op)
{
	bool fail = fake->fail_in[op] == 1;

	fake->calls[op]++;
	if (fake->fail_in[op] && !(fail && fake->fail_on[op]))
		fake->fail_in[op]--;
	if (!fail)
		return 0;
	return glk_error_native(fake->fail_err[op],
		fake->fail_err[op] == -ENOMEM ? GLAKE_ERROR_NOMEM_DEVICE
					      : GLAKE_ERROR_DRIVER,
		fake_name(op), 999, "told to fail");
}

/* Addresses above all there are, a granule at least from the last ones. */
static inline uint64_t fake_area(struct fake *fake, uint64_t size, uint64_t align)
{
	uint64_t base = FAKE_BASE + (fake->granules << FAKE_GRANULE), granules;
	void *old = fake->granule;
	int i = 0;

	while (fake->area[i].size)
		i++;
	base = ((base + align - 1) & ~(align - 1)) + fake->skew;
	granules = ((base + size - FAKE_BASE) >> FAKE_GRANULE) + 1;
	/* zeroed without being touched, however many there are */
	fake->granule = calloc(granules, sizeof(*fake->granule));
	if (!fake->granule)
		tap_bail("no memory for the false driver");
	if (old)
		memcpy(fake->granule, old, fake->granules * sizeof(*fake->granule));
	free(old);
	fake->granules = granules;
	fake->area[i].base = base;
	fake->area[i].size = size;
	fake->size += size;
	return base;
}

static inline int fake_reserve(
	struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr)
{
	struct fake *fake = (struct fake *)drv;
	int err;

	pthread_mutex_lock(&fake->lock);
	err = fake_enter(fake, FAKE_RESERVE);
	if (!err && (!size || size % align || align % (1u << FAKE_GRANULE)))
		err = fake_rule(fake, "a reservation of an odd size");
	if (!err && fake->limit && size > fake->limit)
		err = glk_error_native(
			-ENOMEM, GLAKE_ERROR_ADDRESS, "reserve", 2, "%zu bytes", size);
	if (!err)
		*ret_addr = fake_area(fake, size, align);
	pthread_mutex_unlock(&fake->lock);
	return err;
}

/* The reservation that holds [addr, addr + size); -1: none does. */
static inline int fake_within(const struct fake *fake, uint64_t addr, uint64_t size)
{
	for (int i = 0; i < FAKE_AREAS; i++) {
		if (addr - fake->area[i].base < fake->area[i].size &&
			size <= fake->area[i].size - (addr - fake->area[i].base))
			return i;
	}
	return -1;
}

static inline int fake_unreserve(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct fake *fake = (struct fake *)drv;
	int err, i;

	pthread_mutex_lock(&fake->lock);
	err = fake_enter(fake, FAKE_UNRESERVE);
	i = fake_within(fake, addr, size);
	if (!err && (i < 0 || addr != fake->area[i].base || size != fake->area[i].size))
		err = fake_rule(fake, "unreserve of what was not reserved");
	if (!err) {
		fake->area[i].size = 0;
		fake->size -= size;
	}
	if (!err && !fake->size) {
		free(fake->granule);
		fake->granule = NULL;
		fake->granules = 0;
	}
	pthread_mutex_unlock(&fake->lock);
	return err;
}

static inline int fake_create(struct glk_drv *drv, struct glk_place place, size_t size,
	uint32_t flags, uint64_t *ret_page)
{
	struct fake *fake = (struct fake *)drv;
	uint64_t page;
	int err;

	pthread_mutex_lock(&fake->lock);
	err = fake_enter(fake, FAKE_CREATE);
	if (!err && place.kind == GLK_PLACE_HOST && fake->no_node)
		err = glk_error_native(
			fake->refusal, GLAKE_ERROR_PERM, "create", 801, "on a node");
	if (!err && (flags & fake->refused))
		err = glk_error_native(fake->refusal, GLAKE_ERROR_PERM, "create", 800,
			"flags %#x", flags);
	if (!err && fake->memory && size > fake->memory - fake->held)
		err = glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE, "create", 2,
			"%zu bytes", size);
	if (!err) {
		page = fake->freed_count ? fake->freed[--fake->freed_count]
					 : ++fake->next;
		if (page >= FAKE_PAGES_MAX)
			tap_bail("too many pages for the false driver");
		fake->page_size[page] = size;
		fake->held += size;
		fake->flags = flags;
		fake->pages++;
		*ret_page = page;
	}
	pthread_mutex_unlock(&fake->lock);
	return err;
}

static inline int fake_release(struct glk_drv *drv, uint64_t page)
{
	struct fake *fake = (struct fake *)drv;
	int err;

	pthread_mutex_lock(&fake->lock);
	err = fake_enter(fake, FAKE_RELEASE);
	if (!err && (page >= FAKE_PAGES_MAX || !fake->page_size[page]))
		err = fake_rule(fake, "release of a page that is none");
	if (!err) {
		fake->held -= fake->page_size[page];
		fake->page_size[page] = 0;
		fake->pages--;
		fake->freed[fake->freed_count++] = (uint32_t)page;
	}
	pthread_mutex_unlock(&fake->lock);
	return err;
}

/* Whether [addr, addr + size) is granules of one reservation; gives the first one. */
static inline bool fake_range(
	const struct fake *fake, uint64_t addr, uint64_t size, uint64_t *ret_first)
{
	uint64_t mask = (UINT64_C(1) << FAKE_GRANULE) - 1;

	*ret_first = (addr - FAKE_BASE) >> FAKE_GRANULE;
	return !((addr | size) & mask) && size && fake_within(fake, addr, size) >= 0;
}

static inline int fake_map(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t page)
{
	struct fake *fake = (struct fake *)drv;
	uint64_t first, count = size >> FAKE_GRANULE;
	int err;

	pthread_mutex_lock(&fake->lock);
	err = fake_enter(fake, FAKE_MAP);
	if (!err && !fake_range(fake, addr, size, &first))
		err = fake_rule(fake, "map outside the reservation");
	if (!err && (page >= FAKE_PAGES_MAX || fake->page_size[page] != size))
		err = fake_rule(fake, "map of a page that is none, or not whole");
	for (uint64_t i = 0; !err && i < count; i++) {
		if (fake->granule[first + i].page)
			err = fake_rule(fake, "map over a mapping");
	}
	for (uint64_t i = 0; !err && i < count; i++) {
		fake->granule[first + i].page = page;
		fake->granule[first + i].serial = fake->calls[FAKE_MAP];
		fake->granule[first + i].head = !i;
		fake->granule[first + i].access = false;
	}
	fake->mappings += !err;
	pthread_mutex_unlock(&fake->lock);
	return err;
}

/* Whether a run of granules is whole mappings; the number of them, 0 if not. */
static inline uint64_t fake_whole(const struct fake *fake, uint64_t first, uint64_t count)
{
	uint64_t end = first + count, found = 0;

	for (uint64_t i = first; i < end; i++) {
		if (!fake->granule[i].page)
			return 0;
		found += fake->granule[i].head;
	}
	if (!fake->granule[first].head)
		return 0;
	if (end < fake->granules && fake->granule[end].page && !fake->granule[end].head)
		return 0;
	return found;
}

static inline int fake_set_access(struct glk_drv *drv, uint64_t addr, size_t size,
	const struct glk_grant *grants, size_t count)
{
	struct fake *fake = (struct fake *)drv;
	uint64_t first;
	int err;

	pthread_mutex_lock(&fake->lock);
	err = fake_enter(fake, FAKE_SET_ACCESS);
	if (!err && (count != 1 || grants->access != GLK_ACCESS_WRITE))
		err = fake_rule(fake, "access of another kind than expected");
	if (!err &&
		(!fake_range(fake, addr, size, &first) ||
			!fake_whole(fake, first, size >> FAKE_GRANULE)))
		err = fake_rule(fake, "access to what is not a run of whole mappings");
	for (uint64_t i = 0; !err && i < size >> FAKE_GRANULE; i++)
		fake->granule[first + i].access = true;
	pthread_mutex_unlock(&fake->lock);
	return err;
}

static inline int fake_unmap(struct glk_drv *drv, uint64_t addr, size_t size)
{
	struct fake *fake = (struct fake *)drv;
	uint64_t first;
	int err;

	pthread_mutex_lock(&fake->lock);
	err = fake_enter(fake, FAKE_UNMAP);
	if (!err &&
		(!fake_range(fake, addr, size, &first) ||
			!fake_whole(fake, first, size >> FAKE_GRANULE)))
		err = fake_rule(fake, "unmap of what is not a run of whole mappings");
	if (!err)
		fake->mappings -= fake_whole(fake, first, size >> FAKE_GRANULE);
	for (uint64_t i = 0; !err && i < size >> FAKE_GRANULE; i++)
		fake->granule[first + i].page = 0;
	pthread_mutex_unlock(&fake->lock);
	return err;
}

static inline int fake_node_try(struct glk_drv *drv, int node, bool always)
{
	struct fake *fake = (struct fake *)drv;

	fake->nodes_tried++;
	if (fake->nodes_tried <= fake->not_yet)
		return glk_error(-EAGAIN, GLAKE_ERROR_UNSUPPORTED, "no room to try");
	return fake->bad_node ? glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED, "a trap")
			      : 0;
}

static inline int fake_peer_can(struct glk_drv *drv, int device, int peer, bool *ret_can)
{
	*ret_can = !((struct fake *)drv)->unreachable;
	return 0;
}

static inline struct glk_drv *fake_init(struct fake *fake)
{
	memset(fake, 0, sizeof(*fake));
	fake->ops = (struct glk_drv_ops){.version = GLK_DRV_OPS_VERSION,
		.name = "fake",
		.reserve = fake_reserve,
		.unreserve = fake_unreserve,
		.create = fake_create,
		.release = fake_release,
		.map = fake_map,
		.set_access = fake_set_access,
		.unmap = fake_unmap,
		.peer_can = fake_peer_can,
		.node_try = fake_node_try};
	fake->drv.ops = &fake->ops;
	pthread_mutex_init(&fake->lock, NULL);
	fake->page_size = calloc(FAKE_PAGES_MAX, sizeof(*fake->page_size));
	fake->freed = calloc(FAKE_PAGES_MAX, sizeof(*fake->freed));
	if (!fake->page_size || !fake->freed)
		tap_bail("no memory for the false driver");
	return &fake->drv;
}

static inline void fake_fini(struct fake *fake)
{
	free(fake->page_size);
	free(fake->freed);
	free(fake->granule);
	pthread_mutex_destroy(&fake->lock);
}

/* The n-th call of a kind from now on answers `err`; with `on`, all after it too. n 0: none. */
static inline void fake_fail(
	struct fake *fake, enum fake_op op, uint64_t n, int err, bool on)
{
	fake->fail_in[op] = n;
	fake->fail_err[op] = err;
	fake->fail_on[op] = on;
}

/* What is mapped at an address; 0 for nothing. */
static inline uint64_t fake_page_at(const struct fake *fake, uint64_t addr)
{
	return fake->granule[(addr - FAKE_BASE) >> FAKE_GRANULE].page;
}

/* The number of the call that mapped it. */
static inline uint64_t fake_serial_at(const struct fake *fake, uint64_t addr)
{
	return fake->granule[(addr - FAKE_BASE) >> FAKE_GRANULE].serial;
}

static inline bool fake_access_at(const struct fake *fake, uint64_t addr)
{
	return fake->granule[(addr - FAKE_BASE) >> FAKE_GRANULE].access;
}

/* The class and the call of the last record. */
static inline int fake_class(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error.error_class;
}

static inline const char *fake_text(void)
{
	static struct glake_error error;

	error.sz = sizeof(error);
	glake_last_error(&error);
	return error.text;
}

#endif
