/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_PUBLISH_H
#define GLK_SHARE_PUBLISH_H

/*
 * Contents that exist once, by name, through the broker of a context (share.h). The page of a block, which is its own
 * alone, stays the publisher's; the broker keeps a descriptor of it, and hands that to those who attach.
 */
#include "share/broker.h"
#include "share/share.h"

#include <glake/publish.h>

/* What this context has published, or attached. */
struct glk_shared {
	struct glk_shared *next;
	struct glk_broker_item item;
	uint64_t addr;
	int fd; /* of its page, for the next broker */
	bool attached;
	uint32_t looks; /* threads that read it, and for which it stays */
};

/* lease.c: whether a text is one of share.broker. 0, or -EINVAL and a record. */
int glk_lessee_check(const char *path);
/* A question about a name, and its answer; `put`, or NULL, is what GLK_BROKER_PUT publishes. 0; -EAGAIN, the broker is
 * away; as the broker refuses it. With a record; without one -EINPROGRESS: it was said, and had no answer. After 0 and
 * this one it is kept, before a next broker can be met. */
int glk_lessee_item(struct glk_lessee *lessee, uint32_t kind,
	const struct glk_broker_item *item, struct glk_shared *put,
	struct glk_wire_frame *frame);
/* The same for several that are wanted and not claimed, GLK_BROKER_NAMES at most, with no error of one of them for all:
 * each item is as it was found, with its descriptor, which is the caller's, or -errno for that. */
int glk_lessee_items(struct glk_lessee *lessee, struct glk_broker_item *items, int *fds,
	uint32_t count);
/* Keeps what was attached, and gives it up; NULL: there is none at that address. */
void glk_lessee_keep(struct glk_lessee *lessee, struct glk_shared *shared);
struct glk_shared *glk_lessee_take(struct glk_lessee *lessee, int device, uint64_t addr);

/* The next one of a GPU after so many, which stays until it is let go of; NULL: there is none. */
struct glk_shared *glk_lessee_hold(struct glk_lessee *lessee, int device, uint32_t after);
void glk_lessee_let_go(struct glk_lessee *lessee, struct glk_shared *shared);

/* What lies idle in this process goes, as far as there is too little leave for so many bytes. */
void glk_lessee_make_room(struct glk_lessee *lessee, int device, uint64_t bytes);

/*
 * commons.c: pages of sealed blocks that processes have in common, by content (depot.h), of one GPU, GLK_COMMONS_MOST at
 * a time. Each has a number of its contents, and gets the one by which the broker knows it, or 0.
 */
#define GLK_COMMONS_MOST GLK_BROKER_PAGES

struct glk_common {
	struct glk_alike_number number;
	uint64_t known; /* 0: the broker does not */
	int fd;
	uint32_t page; /* of the pool: that of the caller, or 0 */
};

/* A number of the connection to the broker; 0: it is not there, or does not know the GPU. And whether it knows a page. */
uint64_t glk_commons_turn(struct glk_lessee *lessee, int device);
static inline bool glk_commons_has(uint64_t turn, const struct glk_page *page)
{
	return page->common && page->common >> 32 == (turn & UINT32_MAX);
}
/* Pages of so many bytes that others have: those that the driver takes have a page of the pool, OWNED and mapped nowhere, for the caller. 0;
 * -EAGAIN, the broker is away. */
int glk_commons_seek(struct glk_lessee *lessee, struct glk_node *node, uint64_t bytes,
	struct glk_common *commons, uint32_t count);
/* Pages of the pool that were made to be exported, for others to have from now on, as far as the broker takes them. 0; -EAGAIN; an error of
 * the driver. */
int glk_commons_offer(struct glk_lessee *lessee, struct glk_node *node, uint64_t bytes,
	struct glk_common *commons, uint32_t count);

/* publish.c: contracts as glake_publish() and so on. `page` is the one that the block has, all of it. `sums`: contents
 * have a number, which is compared with that of those who attach. */
int glk_publish(struct glk_lessee *lessee, struct glk_drv *drv, int device, uint64_t addr,
	glk_share_page_fn page, void *of, const char *key, uint64_t stamp, bool sums);
int glk_attach(struct glk_lessee *lessee, struct glk_imports *imports, const char *key,
	uint64_t stamp, bool claim, bool sums, uint64_t *ret_size, uint64_t *ret_addr);
/* All or none. */
int glk_attach_all(struct glk_lessee *lessee, struct glk_imports *imports,
	const char *const *keys, const uint64_t *stamps, size_t count, bool sums,
	size_t *ret_sizes, void **ret_ptrs);
/* Of all that is published or attached on a GPU and has a number; adds to *ret how many. 0; -EIO (CORRUPT): one is not what it was. */
int glk_published_check(
	struct glk_lessee *lessee, struct glk_drv *drv, int device, uint64_t *ret);
int glk_detach(struct glk_lessee *lessee, struct glk_imports *imports, uint64_t addr,
	struct CUstream_st *stream);
int glk_publish_not(struct glk_lessee *lessee, int device, const char *key);
int glk_unseal(struct glk_lessee *lessee, struct glk_imports *imports, uint64_t addr,
	struct CUstream_st *stream);
void glk_shared_free(struct glk_shared *shared);

/* import.c: an import that nothing has used goes at once. */
void glk_import_undo(struct glk_imports *imports, uint64_t addr);
/* import.c: an import of one page has another one, with the contents, at the same address. `fd`: of the one it has.
 * 0; -ENOENT without a record. */
int glk_import_unseal(
	struct glk_imports *imports, uint64_t addr, int fd, struct CUstream_st *stream);

#endif
