/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_POOL_POOL_H
#define GLK_POOL_POOL_H

/*
 * The face of this folder: the pages of a context and the nodes they come from. A node is a GPU; or the memory of the
 * host near a GPU, which uses those pages where they lie; or, beside that, what another GPU lends to it: the peer of
 * the host. A node knows how much memory it holds and may hold, has pages made by its source and gives them back, and
 * keeps those that are mapped nowhere on lock-free lists: one for pages of a slot, one for large ones, one for those of
 * any other size. Who asks the host for pages has those of its peer first.
 *
 * Threads	take, put: lock-free, any thread. grow, release: any thread, call the driver
 * Cost		take, put: about 15 ns. grow: one driver call, 8 us on an H200
 */
#include "base/slab.h"
#include "driver/driver.h"
#include "pool/page.h"
#include "pool/use.h"

struct glk_conf;
struct glk_node;

/*
 * Who makes the pages of a node, and takes them back: the driver, within the node's budget (node.c); the driver by leave
 * of a broker, who shares a GPU among processes (share/lease.c); another GPU, which lends them (lend.c). The bytes of a
 * page are claimed before it is made, so that threads that claim at once never pass together what there is.
 */
struct glk_source {
	/* 0, or -ENOMEM with nothing claimed. `calls`: others may be asked for it, with no lock that a hit wants. */
	int (*claim)(struct glk_node *node, uint64_t size, bool calls);
	/* Nothing was made of them, or that has gone back to the driver. `calls`: others may be told, likewise. */
	void (*unclaim)(struct glk_node *node, uint64_t size, bool calls);
	/* Memory for a page, as glk_node_make(). */
	int (*make)(struct glk_node *node, size_t size, uint64_t *ret_handle,
		uint8_t *ret_able);
	/* NULL, or others have a part in the memory, and are asked for so many bytes more. If `waits`, for all of them, and
	 * what they have given and is not used goes back first. Under no lock. 0, or -ENOMEM with a record. */
	int (*ask)(struct glk_node *node, uint64_t bytes, bool waits);
	/* NULL, or what is wanted for others is asked for and given; with no lock and in no plan. */
	void (*hear)(struct glk_node *node);
	/* A page that they know is about to go to the driver, with no lock that a hit wants. Whether its bytes, which
	 * another process has made, are part of what was claimed. */
	bool (*forget)(struct glk_node *node, const struct glk_page *page);
};
extern const struct glk_source glk_source_driver, glk_source_lender;

/*
 * A quota of a GPU, which processes share: what any of them takes is counted before it is there, under no lock. Beside
 * the budget of a context, and before the leave of a broker.
 */
struct glk_quota {
	/* `bytes` more are going to be held. If `may_call`, what the driver has given beside is measured first; with no
	 * lock that a hit wants then. 0, or -ENOMEM without a record. */
	int (*take)(struct glk_quota *quota, uint64_t bytes, bool may_call);
	void (*put)(struct glk_quota *quota, uint64_t bytes);
	/* The most that this process may hold by glake, with what it holds. */
	uint64_t (*room)(const struct glk_quota *quota);
	/* Who has it, in words; for a refusal. */
	void (*tell)(struct glk_quota *quota, char *text, size_t size);
};

struct glk_node {
	struct glk_pool *pool;
	struct glk_place place;
	const struct glk_source *source;
	uint8_t index;
	size_t page_size[GLK_CLASS_OTHER]; /* 0: none of that class are made */
	struct glk_idstack free[GLK_CLASS_COUNT];
	glk_atomic(uint64_t) free_bytes[GLK_CLASS_COUNT];
	glk_atomic(uint64_t) held; /* bytes of physical memory */
	glk_atomic(uint64_t)
		foreign; /* bytes of pages that other processes have made, which `held` has not */
	glk_atomic(uint64_t) peak;
	glk_atomic(uint64_t) budget; /* UINT64_MAX: none */
	glk_atomic(uint64_t) lost;   /* bytes the driver refused to take back */
	/* Bytes of pages that the driver has made and was not asked to take back; and times that it was. */
	glk_atomic(uint64_t) made, going;
	struct glk_quota *quota; /* of a GPU; NULL: there is none */
	/* Bytes of leave of a broker that are not used; and until when the driver may have as much all the same, ns,
	 * since others have ended. */
	glk_atomic(uint64_t) left;
	glk_atomic(int64_t) late;
	uint32_t caps;		   /* GLAKE_CAP_... of a GPU */
	size_t granularity;	   /* of its pages, bytes */
	glk_atomic(uint32_t) able; /* GLK_PAGE_... that new pages are made with */
	glk_atomic(uint64_t)
		peers; /* GPUs that may use its memory beside itself, a bit each */
	const struct glk_node *gpu; /* whose pages they are; NULL: it is a GPU's own */
	/* The driver makes no pages on its NUMA node, so they lie anywhere on the host. */
	glk_atomic(bool) anywhere;
	glk_atomic(bool)
		tried; /* and that it does not crash there is known, or was not asked for */
	/* Of memory of the host: the node whose pages come first. NULL: there is none. */
	struct glk_node *peer;
	/* Of such a peer: the GPU that lends to it. NULL: none ever did. */
	struct glk_node *lender;
	glk_atomic(bool) borrows; /* pages, for requests */
	glk_atomic(bool) stows;	  /* memory that is no page, for contents that are away */
	/* Until when it asks for none, ns, since something failed that may be the borrower's own; or until more has
	 * gone back to the driver. */
	glk_atomic(int64_t) apart;
	glk_atomic(uint32_t) apart_since;
	/* Of a GPU: bytes of what it holds that it has lent, and may lend; none while it is shut. */
	glk_atomic(uint64_t) lent;
	uint64_t lends;
	glk_atomic(bool) shut;
	glk_atomic(int64_t)
		dry; /* ns, until when its driver is asked for none to lend; 0: it may be */
	glk_atomic(uint32_t) wet; /* times that some of it has gone back to the driver */
};

struct glk_pool {
	struct glk_drv *drv;
	struct glk_slab pages;
	/* GPUs, then memory of the host in the same order, then its peers. */
	struct glk_node *nodes;
	int gpus, hosts;
	int probe; /* the key tier.probe */
	glk_atomic(uint64_t)
		gone; /* bytes of pages that were out, since they went to the driver */
};

#define GLK_NODES_MAX 192

/* 0, -ENOMEM, -EINVAL (more nodes than GLK_NODES_MAX). */
/* `host_ids` are the kernel's numbers of the NUMA nodes near the first `hosts` GPUs. */
int glk_pool_init(struct glk_pool *pool, struct glk_drv *drv, const struct glk_conf *conf,
	int gpus, int hosts, const int *host_ids);
/* Releases all free pages; owned ones are the caller's to release before. Takes a zeroed pool
 * and one that could not be made. */
void glk_pool_fini(struct glk_pool *pool);

static inline struct glk_node *glk_pool_gpu(struct glk_pool *pool, int device)
{
	return &pool->nodes[device];
}

static inline struct glk_node *glk_pool_host(struct glk_pool *pool, int device)
{
	return &pool->nodes[pool->gpus + device];
}

static inline struct glk_page *glk_page_at(const struct glk_pool *pool, uint32_t page)
{
	return (struct glk_page *)pool->pages.base + page;
}

/*
 * able.c: what new pages of a GPU are to be able to do, and which other GPUs may use them from
 * the beginning, as the configuration wants and the GPU can. To be called once, before growth.
 */
void glk_node_describe(struct glk_node *node, const struct glk_conf *conf,
	const struct glake_device *info);
/* Read and write for the GPU of a node and for its peers; their number. Memory of the host is used by
 * those that may use its GPU's. */
#define GLK_GRANTS_MAX 65
size_t glk_node_grants(
	const struct glk_node *node, struct glk_grant ret_grants[GLK_GRANTS_MAX]);
/* Answers of a driver that will not have what was asked for, whatever the memory. */
bool glk_node_is_refusal(int err);
/* A page of the driver that can do as much of that as the driver grants. What it refuses is
 * not asked for again. 0 or the driver's error. */
int glk_node_make(
	struct glk_node *node, size_t size, uint64_t *ret_handle, uint8_t *ret_able);

/* A free page of a node, or of its peer before that, now OWNED by the caller; 0 when the lists are empty. */
uint32_t glk_node_take(struct glk_node *node, enum glk_class class);

/* Gives an OWNED page of a node, or of its peer, that is mapped nowhere to the list of its class. */
void glk_node_put(struct glk_node *node, uint32_t page);

/*
 * Makes a page of `size` bytes, of a node, or of its peer if somebody lends it one, OWNED by the caller. 0, or -ENOMEM:
 * over the budget (no record), no memory at the driver, no leave, no descriptor (class LIMIT); -ENODEV, -EIO.
 */
int glk_node_grow(struct glk_node *node, size_t size, uint32_t *ret_page);

/* A page that another process has made, which a broker knows, OWNED by the caller. 0; -ENOMEM: no descriptor. */
int glk_node_adopt(struct glk_node *node, size_t size, uint64_t handle, uint64_t common,
	uint32_t *ret_page);

static inline enum glk_class glk_node_class(const struct glk_node *node, size_t size)
{
	int c = 0;

	while (c < GLK_CLASS_OTHER && size != node->page_size[c])
		c++;
	return (enum glk_class)c;
}

/* Memory that is no page, but counts against the same budget; nobody is asked for it. 0, or -ENOMEM without a
 * record. What was made of it is noted then. */
int glk_node_claim(struct glk_node *node, uint64_t size);
void glk_node_note_peak(struct glk_node *node);
void glk_node_unclaim(struct glk_node *node, uint64_t size);
/* Memory of the source of a node, for a page or for what is none; and it has gone back to the driver. 0, or as
 * glk_node_grow(). */
int glk_source_make(
	struct glk_node *node, size_t size, uint64_t *ret_handle, uint8_t *ret_able);
void glk_source_end(struct glk_node *node, size_t size);

/* Who lends pages to the peer of a node; NULL: nobody. */
static inline struct glk_node *glk_node_lender(const struct glk_node *node)
{
	/* pairs with: the release in glk_beside_lend */
	return node->peer && glk_load_acquire(&node->peer->borrows) ? node->peer->lender
								    : NULL;
}

/* lend.c, for the peer of a node; NULL: there is none. Whether somebody lends to it for contents that are away, and
 * whether these go there now. */
bool glk_lend_stows(const struct glk_node *peer);
bool glk_lend_takes(const struct glk_node *peer);
/* Something about memory of the lender has failed, which may be the borrower's own: a call of the driver for it, or a
 * copy. One that the driver has refused, or whose lender is lost, asks for none again, which a warning says. After
 * any other error this peer alone does when memory of the lender has gone back to the driver, or after
 * GLK_LEND_DRY_NS. */
#define GLK_LEND_DRY_NS INT64_C(1000000000)
void glk_lend_failed(struct glk_node *peer, int err);
/* The same where it is not known who has failed: for that long. */
void glk_lend_leave(struct glk_node *peer);
/* Memory of a GPU has gone back to the driver. */
void glk_lend_wet(struct glk_node *lender);
/* Whether a GPU lends nothing more, and bytes that it has lent: once it is shut no page comes that was not
 * counted, some may be that are about to be refused. */
void glk_lend_shut(struct glk_node *lender, bool on);
bool glk_lend_is_shut(const struct glk_node *lender);
uint64_t glk_lend_lent(const struct glk_node *lender);

/* Bytes that it may hold: its budget, or what its quota leaves to it where that is less. */
static inline uint64_t glk_node_most(const struct glk_node *node)
{
	uint64_t budget = glk_load_relaxed(&node->budget), room;

	if (!node->quota)
		return budget;
	room = node->quota->room(node->quota);
	return room < budget ? room : budget;
}

/* Whether `size` more bytes stay within that. */
bool glk_node_has_room(const struct glk_node *node, uint64_t size);

/*
 * Gives the memory of an OWNED page of a node, or of its peer, that is mapped nowhere back to the driver. 0, or the
 * driver's error, -EIO where it kept a mapping: the page is then LOST and counted.
 */
int glk_node_release(struct glk_node *node, uint32_t page);

/* Books a page that could not be unmapped as LOST. */
void glk_node_lose(struct glk_node *node, uint32_t page);

/* Releases free pages of a class, its peer's first, until `bytes` are given back; the bytes that were. */
uint64_t glk_node_drain(struct glk_node *node, enum glk_class class, uint64_t bytes);

/* Releases all free pages. */
void glk_node_empty(struct glk_node *node);

/* Bytes that a node holds for itself. */
static inline uint64_t glk_node_own(const struct glk_node *node)
{
	uint64_t held = glk_load_relaxed(&node->held),
		 lent = glk_load_relaxed(&node->lent);

	return held > lent ? held - lent : 0;
}

/* Bytes of all free pages, its peer's too. */
static inline uint64_t glk_node_free(const struct glk_node *node)
{
	uint64_t bytes = 0;

	for (; node; node = node->peer)
		for (int c = 0; c < GLK_CLASS_COUNT; c++)
			bytes += glk_load_relaxed(&node->free_bytes[c]);
	return bytes;
}

#endif
