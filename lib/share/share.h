/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_SHARE_H
#define GLK_SHARE_SHARE_H

/*
 * The face of this folder: memory that leaves the process and memory that comes into it. It
 * knows pages and addresses and no blocks: that a page stays what it is while it is out is for
 * those above to see to.
 *
 * Order		dmabuf.c; export.c; import.c, and on it mirror.c and mirror_open.c; books.c, shelf.c, and on them broker.c, which
 *		is no part of the library but a program (broker_main.c); lease.c, which asks it, on it names.c, and on that publish.c; quota.c
 * Threads	any thread may call any function
 * Cost		on an H200 an export of a page takes 35 us, whatever its size, and 0.5 to 0.9 ms
 *		while no other page of the process is out; an import 30 us and its mapping
 */
#include "base/lock.h"
#include "map/map.h"
#include "pool/pool.h"
#include "share/alike.h"

#include <glake/publish.h>
#include <glake/share.h>

/* What a block has in one page. */
struct glk_share_page {
	uint64_t handle;       /* of the driver */
	uint64_t number;       /* which no other page of the pool has or will have */
	size_t size;	       /* of the page */
	size_t offset, length; /* the block's bytes in it */
	uint32_t able;	       /* GLK_PAGE_... */
};

/* Gives page number `i` of something. */
typedef struct glk_share_page (*glk_share_page_fn)(void *of, size_t i);

/*
 * export.c: descriptors of all pages, which are the caller's then. 0; -EOPNOTSUPP (a page was
 * not made for it), -EMFILE or -ENFILE (class LIMIT), -ENOMEM (host), or the driver's error,
 * with nothing left open and `ret_pieces` as it was.
 */
int glk_share_export(struct glk_drv *drv, glk_share_page_fn page, void *of, size_t count,
	struct glake_piece *ret_pieces);

/* The same without descriptors, and descriptors of some of the pages. */
int glk_share_list(
	glk_share_page_fn page, void *of, size_t count, struct glake_piece *ret_pieces);
int glk_share_fds(struct glk_drv *drv, glk_share_page_fn page, void *of, size_t first,
	size_t count, int *ret_fds);

/* import.c: memory of other processes on one GPU. */
#define GLK_IMPORTS_MAX 65536

struct glk_imports {
	struct glk_drv *drv;
	struct glk_node *node;
	struct glk_lock lock; /* of the entries; taken after that of the GPU */
	struct glk_slab slab; /* made at the first import */
	struct glake_mirror
		*mirrors; /* under the lock, as all of them but what their heads say */
	uint32_t mirror_count;
	struct glk_mirrored *newest, *oldest; /* pages in no use, by the time of that */
	uint64_t kept, keep;		      /* bytes of them: now, at most */
};

void glk_imports_init(struct glk_imports *imports, struct glk_drv *drv,
	struct glk_node *node, uint64_t keep);
/* Takes down what is left, and says how many were live. 0 or the driver's first error. */
int glk_imports_fini(struct glk_imports *imports, size_t *ret_live);
/* Contract as glake_import(). */
int glk_import(struct glk_imports *imports, const struct glake_piece *pieces,
	size_t count, size_t size, uint64_t *ret_addr);
/* The same for glake_import_end(); -ENOENT without a record: nothing was imported there. */
int glk_import_end(
	struct glk_imports *imports, uint64_t addr, struct CUstream_st *stream);
/* For a change of the node's peers: nothing comes or goes meanwhile, and what is imported is
 * gone through as glk_map_access() does. */
void glk_imports_hold(struct glk_imports *imports);
void glk_imports_let_go(struct glk_imports *imports);
int glk_imports_access(struct glk_imports *imports, struct glk_sweep *sweep);

/*
 * mirror.c: contracts as glake_mirror_...(), for mirrors of this GPU; -ENOENT without a record: it
 * is none of them.
 */
#define GLK_MIRRORS_MAX 256

int glk_mirror_new(struct glk_imports *imports, struct glake_mirror **ret_mirror);
int glk_mirror_open(struct glk_imports *imports, struct glake_mirror *mirror, uint64_t at,
	const struct glake_piece *pieces, size_t count, size_t size,
	glake_mirror_fds_fn fds, void *arg, uint64_t *ret_addr);
int glk_mirror_close(struct glk_imports *imports, struct glake_mirror *mirror,
	uint64_t addr, uint64_t size);
int glk_mirror_trim(struct glk_imports *imports, struct glake_mirror *mirror,
	uint64_t keep, uint64_t *ret_kept);
int glk_mirror_end(struct glk_imports *imports, struct glake_mirror *mirror);

/*
 * lease.c: leave of a broker for what the GPUs of a context hold (struct glk_source). Made before any page is; what a
 * thread of it, and calls without one, give back on the broker's word, beyond leave that is not used, is for `trim` to
 * find: so many bytes of a GPU go to the driver if they lie idle, or until a time of the clock, which may be 0, can be
 * made to. The thread ends with the second call, and leave with
 * the third, when all pages are with the driver.
 */
struct glk_lessee;
struct glk_conf;
typedef void (*glk_lessee_trim_fn)(void *of, int device, uint64_t bytes, int64_t until);

/* 0, and NULL where share.broker is not set; -ENOMEM. */
int glk_lessee_new(struct glk_pool *pool, const struct glk_conf *conf,
	glk_lessee_trim_fn trim, void *of, struct glk_lessee **ret_lessee);
void glk_lessee_stop(struct glk_lessee *lessee);
void glk_lessee_free(struct glk_lessee *lessee);
/* NULL: there is no broker. */
void glk_lessee_get(struct glk_lessee *lessee, int device, struct glake_lease *ret_lease);

/* Whether a range is part of one that is imported, or attached. */
bool glk_import_has(struct glk_imports *imports, uint64_t addr, uint64_t size);

/*
 * alike.c: how much of some ranges is there more than once, in parts of `part` bytes, whole rounds of
 * GLK_ALIKE_ROUND. All of them are readable by the GPU, and nobody writes them. 0 or the driver's error.
 */
struct glk_alike_range {
	uint64_t addr, size;
};

int glk_alike(struct glk_drv *drv, int device, const struct glk_alike_range *ranges,
	size_t count, size_t part, struct glake_likeness *ret);

/* The number of contents of whole pages, which nobody writes. 0 or the driver's error. */
int glk_alike_number(struct glk_drv *drv, int device, uint64_t addr, uint64_t bytes,
	struct glk_alike_number *ret_number);

/*
 * The same in steps, for who holds what is read while it is: a look hashes stretches in parts, and pairs each part with
 * the first one of its number. `rate`: bytes a second that it hashes at most, 0 for any.
 */
struct glk_likeness;

/* Pages that are compared at once, and parts that each is compared in: whole rounds of GLK_ALIKE_ROUND. */
#define GLK_LIKENESS_PAGES 64
#define GLK_LIKENESS_SPLIT 32

/* 0; -EINVAL, too many parts; -ENOMEM; the driver's error. */
int glk_likeness_new(struct glk_drv *drv, int device, uint64_t parts, size_t part,
	uint64_t rate, struct glk_likeness **ret);
void glk_likeness_free(struct glk_likeness *look);
/* Parts beyond those that it was made for are left out. The memory is read until the second. 0 or the driver's error. */
int glk_likeness_hash(struct glk_likeness *look, uint64_t addr, uint64_t bytes);
int glk_likeness_wait(struct glk_likeness *look);
uint64_t glk_likeness_looked(const struct glk_likeness *look);
/* The number of a part, in their order, and where it lies; when the wait for it has ended. */
const struct glk_alike_number *glk_likeness_number(
	const struct glk_likeness *look, uint64_t part, uint64_t *ret_addr);
/* The pairs, the first of them hashed before the other, and how many; until the next comparison. */
uint64_t glk_likeness_pair(struct glk_likeness *look, const struct glk_alike_pair **ret);
/* Every byte of at most GLK_LIKENESS_PAGES pairs of so many bytes. 0 or the driver's error. */
int glk_likeness_compare(struct glk_likeness *look, struct glk_alike_pair *pairs,
	uint32_t count, size_t bytes);

/*
 * quota.c: bytes of a GPU that processes hold together, with what the driver gives them beside glake. One for the
 * process, with the rules of the first context that has any. Begun before any page is made, and ended when all are with
 * the driver.
 */
struct glk_quota_rules {
	size_t share; /* share.quota, 0: none */
	char path[128], name[128];
};

struct glk_quota_rules glk_quota_rules(const struct glk_conf *conf);
bool glk_quota_wants(const struct glk_quota_rules *rules);
/* 0, also where there is none; -ENOMEM, -ENOSPC, or the driver's error. Whether it is to be ended is told either way. */
int glk_quota_begin(
	struct glk_pool *pool, const struct glk_quota_rules *rules, bool *ret_has);
void glk_quota_end(void);
/* share.quota has another value. */
void glk_quota_set(size_t share);
/* Contracts as glake_quota_get() and glake_quota_pass(); the rules are for a process without a context. */
void glk_quota_get(const struct glk_quota_rules *rules, const char *uuid, uint64_t memory,
	struct glake_quota *ret_quota);
int glk_quota_pass(const struct glk_quota_rules *rules, const char *uuid, uint64_t memory,
	int64_t bytes);

/*
 * dmabuf.c: a dma-buf over a range and where in it the range begins, for a dma-buf has whole
 * pages of the host. `handles`: physical ones behind the range. 0, or as glake_dmabuf().
 */
int glk_share_dmabuf(struct glk_drv *drv, uint64_t addr, size_t size, size_t handles,
	int *ret_fd, size_t *ret_offset);

#endif
