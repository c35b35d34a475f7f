/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_MIRROR_H
#define GLK_SHARE_MIRROR_H

/* Imports as mirrors see them, and the tables of a mirror; inside this folder. See mirror.c. */
#include "base/error.h"
#include "share/share.h"

/* Addresses of the exporter, and what lies at them here. */
struct glk_window {
	uint64_t at, span; /* there; bytes */
	uint64_t base;	   /* here; 0: there is none */
	uint32_t slots;
	uint32_t pages; /* that are mapped, or about to be */
	uint64_t users; /* of them together */
	struct glk_mirrored *slot;
};

enum glk_mirrored_state {
	GLK_MIRRORED_NONE = 0,
	GLK_MIRRORED_COMING, /* of the block that is being opened */
	GLK_MIRRORED_MAPPED, /* the same, without rights so far */
	GLK_MIRRORED_LIVE,
};

/* A slot. What it says beside `back` and `state` is said where its page begins. */
struct glk_mirrored {
	struct glake_mirror *mirror;
	struct glk_window *window;
	uint64_t number;		    /* of the page */
	struct glk_mirrored *newer, *older; /* pages in no use */
	uint32_t slots;			    /* of the page */
	uint32_t users;			    /* times that it is open */
	uint32_t back; /* slots from the beginning of its page to here */
	uint8_t state; /* enum glk_mirrored_state */
};

/* Windows of one mirror: most exporters need one, and blocks that lie across two have their own. */
#define GLK_WINDOWS_MAX 64

struct glk_mirror_block {
	uint64_t addr, size; /* here, as it was opened */
	uint64_t opens;	     /* 0: the place is free */
};

struct glk_mirror_blocks {
	struct glk_mirror_block *at;
	size_t room, count; /* places, a power of two or 0; blocks */
};

struct glake_mirror {
	struct glake_mirror *next;
	struct glk_lock opening;
	uint32_t busy; /* threads that open a block, or wait to */
	uint64_t kept; /* bytes in no use */
	uint64_t users;
	struct glk_mirror_blocks blocks;
	struct glk_window window[GLK_WINDOWS_MAX];
};

/* import.c, for mirrors. */

/* Whether a list is that of one block, and the bytes of its pages. */
int glk_import_check(const struct glk_imports *imports, const struct glake_piece *pieces,
	size_t count, size_t size, uint64_t *ret_span);
/* The page of a descriptor, the caller's if *ret_is, and -EINVAL if it is not memory of this GPU;
 * `i` is its number for messages. */
int glk_import_page(
	struct glk_imports *imports, int fd, size_t i, bool *ret_is, uint64_t *ret_page);
/* One that the driver did not take back, to be asked for again at the end. */
void glk_import_put_by(struct glk_imports *imports, uint64_t page);
/* Maps it; -EINVAL with a sentence if it has another size. */
int glk_import_map(
	struct glk_imports *imports, uint64_t addr, size_t size, uint64_t page, size_t i);
/* Rights for the GPU and its peers, and no longer for those that `was` names. */
int glk_import_allow(struct glk_imports *imports, uint64_t addr, uint64_t size,
	uint64_t was, enum glk_access access);

/* Goes through what is imported, as glk_map_access() does. Under the lock. */
int glk_import_sweep(struct glk_imports *imports, struct glk_sweep *sweep);
/* Takes down all that is imported, with so many live, if the driver is there: `err` says of what went
 * before. 0 or the first error. */
int glk_import_end_all(struct glk_imports *imports, int err, size_t *live);

/* All of mirror.c, under the lock of the imports. */

/* The window around so many bytes there, made if there is none. */
int glk_mirror_window(struct glk_imports *imports, struct glake_mirror *mirror,
	uint64_t at, uint64_t span, struct glk_window **ret_window);
/* Bytes of a page. */
uint64_t glk_mirrored_size(
	const struct glk_imports *imports, const struct glk_mirrored *page);
uint64_t glk_mirrored_addr(
	const struct glk_imports *imports, const struct glk_mirrored *page);
/* Once more, or once less, in use. */
void glk_mirrored_use(struct glk_imports *imports, struct glk_mirrored *page);
void glk_mirrored_leave(struct glk_imports *imports, struct glk_mirrored *page);
/* Room for a page of so many slots, in use by the caller: what was there in no use is unmapped. */
int glk_mirrored_claim(struct glk_imports *imports, struct glake_mirror *mirror,
	struct glk_window *window, uint32_t slot, uint32_t slots, uint64_t number);
/* Takes it away, and unmaps it if it is mapped. 0, or the driver's error and it is there still. */
int glk_mirrored_drop(struct glk_imports *imports, struct glk_mirrored *page);
/* Keeps what may be kept. */
int glk_mirrors_bound(struct glk_imports *imports);

/*
 * Blocks that are open. Room for one more than there are, or -ENOMEM; it stays until a block is added,
 * and those are added one after the other, by whoever holds `opening`.
 */
int glk_mirror_blocks_room(struct glk_mirror_blocks *blocks);
void glk_mirror_blocks_add(
	struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size);
bool glk_mirror_blocks_has(
	const struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size);
/* Once less; false if it is not open. */
bool glk_mirror_blocks_take(
	struct glk_mirror_blocks *blocks, uint64_t addr, uint64_t size);

bool glk_mirror_is_known(
	const struct glk_imports *imports, const struct glake_mirror *mirror);

#endif
