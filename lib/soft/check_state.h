/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_CHECK_STATE_H
#define GLK_SOFT_CHECK_STATE_H

/*
 * The ledger of the check wrapper, shared by the check_* files alone.
 *
 * No lock is held while the driver works: a call looks at the ledger and marks what it is
 * about to change, calls, and then books the change or takes the mark back. A second call
 * that meets a mark has broken a rule, for the two were not ordered.
 */
#include "base/error.h"
#include "base/lock.h"
#include "soft/book.h"
#include "soft/check.h"

/* A broken rule: the driver's own name of the call, and CUDA_ERROR_INVALID_VALUE. */
#define check_rule(call, format, ...)                                                    \
	glk_error_native(                                                                \
		-EINVAL, GLAKE_ERROR_INVAL, call, 1, call " rule: " format, __VA_ARGS__)

#define CHECK_PAGES    (1u << 21)
#define CHECK_MAPPINGS (1u << 21)
#define CHECK_EVENTS   (1u << 18)
#define CHECK_MANAGED  4096u

struct check_page {
	uint64_t handle; /* the driver's */
	size_t size;	 /* 0: imported and not yet mapped */
	uint32_t gen, maps;
	uint32_t flags; /* GLK_PAGE_... it was made with */
	bool live, released;
	bool leaving; /* its release is on the way down */
};

struct check_event {
	struct glk_drv_event *event; /* the driver's */
	uint32_t gen;
	bool live;
};

struct check_managed {
	uint64_t addr;
	size_t size;  /* 0: none */
	bool leaving; /* its free is on the way down */
};

struct check {
	struct glk_drv drv;
	struct glk_drv_ops ops; /* the passing table with our entries in it */
	struct glk_lock lock;
	size_t granularity;
	int gpus;
	struct glk_book book;
	struct glk_slab pages, events;
	glk_atomic(int64_t) streams; /* made and not freed */
	struct check_managed managed[CHECK_MANAGED];
};

static inline struct check *check_of(struct glk_drv *drv)
{
	return (struct check *)drv;
}

static inline struct check_page *check_page_at(const struct check *check, uint32_t id)
{
	return glk_slab_at(&check->pages, id);
}

/* check_page.c and check_map.c put their operations into the table. */
void glk_check_page_ops(struct glk_drv_ops *ops);
void glk_check_map_ops(struct glk_drv_ops *ops);
void glk_check_stream_ops(struct glk_drv_ops *ops);
void glk_check_managed_ops(struct glk_drv_ops *ops);
/* Pieces of managed memory that were not freed. */
unsigned glk_check_managed_left(const struct check *check);

/* The page of one of our handles that is alive and not released, or NULL and a record. Under
 * the lock. */
struct check_page *glk_check_page_find(
	const struct check *check, uint64_t page, const char *call);
/* Forgets a page that is released and mapped nowhere. Under the lock. */
void glk_check_page_settle(struct check *check, uint32_t id);

#endif
