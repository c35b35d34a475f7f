/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_TIER_H
#define GLK_TIER_TIER_H

/*
 * The face of this folder: where contents of a GPU lie while its memory serves others, and how
 * they go there and come back. It moves bytes and knows no blocks.
 *
 * A store is memory of the host, near one GPU, locked for copies, and memory of another GPU that lends
 * it (peer.c), which contents go to first while there is some. It has pieces of 64 MiB, cut into
 * chunks of 256 KiB; what is kept in it is a chain of runs of chunks, so there is no
 * fragmentation to speak of: at most a part of a chunk is lost for each content. Pieces are made
 * as many at a time as a content needs (piece.h).
 *
 * Where GPUs near other NUMA nodes lend their links, a content that is large enough for them lies on these nodes too,
 * on each as much as the node has of the links, by stripes: so links find memory of their own node, whatever part of
 * the content comes back. What a node has no room for lies where there is some.
 *
 * Two channels of the library carry the contents (channel.h), one each way, so that both ways of the link
 * can be busy, each in the order of a stream. A large content goes over links that other GPUs lend as well
 * (io/io.h), as work of these
 * streams. What lies in the store was written and is read in their order, but what others carry in that of their
 * gates: a chunk says until when it is read and written. Memory of the GPU is
 * given and taken in the order of ticks like any other (stream/stream.h). What waits for the GPU is a
 * stream of which no event can be had, and a copy that failed half way.
 *
 * With tier.compress contents that rest are made smaller, and are what they were before they go back (pack.h). With
 * security.level=3 they are encrypted as long as they lie on the host (cipher.h).
 *
 * Threads	all under the lock of the GPU, which is given up while the driver is called
 */
#include "base/slab.h"
#include "pool/pool.h"
#include "stream/stream.h"
#include "tier/channel.h"

#include <stddef.h>
#include <string.h>

struct glk_cipher;
struct glk_io;
struct glk_pack;
struct glk_packed;

#define GLK_STORE_CHUNK	 ((uint64_t)256 << 10)
#define GLK_STORE_CHUNKS 256 /* of a piece */
#define GLK_STORE_PIECE	 (GLK_STORE_CHUNK * GLK_STORE_CHUNKS)
/* Pieces there may be: a TiB. */
#define GLK_STORE_PIECES 16384

struct glk_store_piece {
	char *base;
	uint64_t used[GLK_STORE_CHUNKS / 64];
	uint32_t count; /* chunks in use */
	uint64_t read;	/* tick until which it was read from by contents that are gone */
	uint64_t written; /* and until which they were written there */
	uint64_t handle;  /* of memory that is lent: the driver's */
	bool lent;	  /* by another GPU; else it is memory of the host */
	bool barred; /* and mapped without rights, since the driver would not unmap it: nothing lies there */
	uint8_t near; /* of the store's nodes, by index */
};

/* A NUMA node of the host near links that contents of a store may go over. */
struct glk_store_near {
	int node;
	unsigned links;
	uint64_t there; /* bytes of pieces that lie there */
	bool full; /* a piece was made for it and lies elsewhere; until one is given back */
};

#define GLK_STORE_NEARS 8

/*
 * landing.c. Locked memory of the host through which contents pass that lie in the store as something else: two halves,
 * so that one is on the link while the other is made ready.
 */
struct glk_landing {
	char *base; /* NULL: not yet */
	uint64_t bytes;
	struct glk_drv_event *event[2]; /* behind the copies of each half */
	bool busy[2];			/* which may be under way */
};

struct glk_store {
	struct glk_drv *drv;
	struct glk_lock *lock;
	int device;		       /* number of the GPU */
	int node;		       /* NUMA node of the GPU; -1: not known */
	struct glk_node *host;	       /* whose budget it may hold memory of */
	struct glk_store_piece *piece; /* GLK_STORE_PIECES */
	uint32_t pieces;
	struct glk_slab runs;
	uint64_t held;	/* bytes locked, about to be, and about to be no more */
	uint64_t there; /* bytes of the pieces that there are */
	uint64_t used;	/* bytes of chunks in use */
	uint64_t
		lent; /* bytes of pieces that another GPU lends, about to be and about to be no more */
	uint64_t
		lent_used; /* of chunks in use there; `held`, `there` and `used` have none of it */
	uint64_t reserve; /* bytes that a trim leaves */
	bool making;	  /* somebody makes pieces */
	/* Has others give so many bytes of the budget back that they do not use, and gives the lock up meanwhile:
	 * whether there were any. NULL: there are no others. */
	bool (*yield)(void *arg, uint64_t bytes);
	void *arg;
	pthread_cond_t made;
	struct glk_pack *pack;	   /* NULL: contents are not packed */
	struct glk_cipher *cipher; /* NULL: nor encrypted; it stays */
	uint64_t packs;		   /* bytes of the host that this holds beside */
	/* That of the GPU first. 0: there is no other. */
	struct glk_store_near near[GLK_STORE_NEARS];
	unsigned nears;
	uint32_t stripe; /* chunks of a content in a row on one of them */
	uint64_t least;	 /* bytes of a content that lies on several */
	uint64_t
		astray; /* bytes of pieces, ever, that were made for one and lie elsewhere */
};

/* A part of a content. */
struct glk_store_run {
	uint32_t next; /* of the same content; 0: the last */
	uint32_t piece;
	uint16_t first, chunks;
	/* Of the first one: the caller's, the tick on the stream that writes, and bytes. */
	uint32_t owner;
	uint64_t written, bytes;
	uint64_t hash; /* verify.c */
	uint32_t skip; /* bytes of the first chunk that are none of it any more */
	bool hashed;
	/* pack.h: its bytes, and where they lie if they were packed; then it has no chunks. */
	uint32_t size;
	struct glk_packed *packed;
	/* Of the first one: the content waits to be packed, between others, since then; who reads it, and
	 * until which tick it was. */
	bool waits;
	bool loose; /* it is not packed, and will not be: a part of it has come back */
	uint32_t older, newer, readers;
	int64_t since;
	uint64_t read;
	uint64_t
		afar; /* of the bytes, those that another GPU has; poked. The last: see glk_store_make() */
};

/* 0 or -ENOMEM. */
int glk_store_init(struct glk_store *store, struct glk_drv *drv, struct glk_lock *lock,
	int device, int node, struct glk_node *host);
/* Takes a zeroed one. Nobody copies any more. */
/* 0 or the driver's error about memory that was lent. */
int glk_store_fini(struct glk_store *store);
/* Room for a content; more memory of the host is locked where there is not enough. 0, or -ENOMEM (class
 * LIMIT: its budget; NOMEM_HOST) with nothing taken. If `lent`, of another GPU before the host, as long as that has
 * some. */
int glk_store_take(struct glk_store *store, uint64_t bytes, bool lent, uint32_t *ret_run);
/* Room on the host for contents to come, of so many bytes beside what is in use. 0, or as glk_store_take()
 * with what could be had kept. */
int glk_store_ready(struct glk_store *store, uint64_t bytes);
/* piece.c. -ENOMEM (class LIMIT), with the record of a claim that the host has no room for. */
int glk_store_refuse(const struct glk_node *host);
/* Waits until nobody makes any. */
void glk_store_settle(struct glk_store *store);
/* Under the lock, which is given up: there is one, of so many bytes. 0; -ENOMEM; the driver's error. */
int glk_landing_have(
	struct glk_store *store, struct glk_landing *landing, uint64_t bytes);
/* It goes, if there is one. Without the lock, as the two below. */
void glk_landing_end(struct glk_store *store, struct glk_landing *landing);
/* The copies of a half are over. */
int glk_landing_await(
	const struct glk_store *store, struct glk_landing *landing, unsigned half);
/* Copies of it were queued on a stream, which is waited for where no event can tell of them. */
int glk_landing_mark(const struct glk_store *store, struct glk_landing *landing,
	unsigned half, struct CUstream_st *stream);
/* A link that contents of so many bytes and more may go over has a node near it: first that of the GPU itself. */
void glk_store_near(struct glk_store *store, int node, uint64_t stripe, uint64_t least);
/* Gives it back. Reads of it that were queued until the tick `read` may be under way; 0: none. */
void glk_store_put(struct glk_store *store, uint32_t run, uint64_t read);
/*
 * The bytes of a content from one place to another are had, by reads that were queued until a
 * tick, and go; what lies before is a content of its own, and so is what lies behind, 0 for none.
 * Chunks that both have a part of are the ones before: the bytes that go are a chunk and more, or reach
 * to an end. `spare` is a run of the slab, which may be needed. None of them has a hash.
 */
struct glk_store_rest {
	uint32_t before, behind;
};
struct glk_store_rest glk_store_cut(struct glk_store *store, uint32_t run, uint64_t from,
	uint64_t to, uint64_t read, uint32_t spare);
/* store.c: chunks of a piece are in use, or are no more. */
void glk_store_mark(struct glk_store *store, struct glk_store_piece *p, uint32_t first,
	uint32_t chunks, bool used);
/* The place of a piece that is not there, or a new one. */
struct glk_store_piece *glk_store_place(struct glk_store *store);
/* The same for the chunks of one run, which stays. */
void glk_store_leave(
	struct glk_store *store, const struct glk_store_run *r, uint64_t read);
/* The tick until which others may read what a content is about to overwrite; 0: nobody does. And until which
 * copies of others may write there, on the stream that writes. */
struct glk_store_ticks {
	uint64_t read, written;
};
struct glk_store_ticks glk_store_ticks(const struct glk_store *store, uint32_t run);
/* Gives pieces that nobody uses back to the system, until there are no more bytes than `keep`, while `rests`
 * says that no copy is under way. The lock is given up for each. The bytes. */
typedef bool (*glk_store_rests_fn)(void *arg);
uint64_t glk_store_trim(
	struct glk_store *store, uint64_t keep, glk_store_rests_fn rests, void *arg);

static inline struct glk_store_run *glk_store_at(
	const struct glk_store *store, uint32_t run)
{
	return glk_slab_at(&store->runs, run);
}

/* One that was just taken, and whose afar may still be read by who saw it before. */
static inline void glk_store_make(
	const struct glk_store *store, uint32_t run, struct glk_store_run as)
{
	struct glk_store_run *r = glk_store_at(store, run);

	memcpy(r, &as, offsetof(struct glk_store_run, afar));
	glk_poke_relaxed(&r->afar, as.afar);
}

/* peer.c, under the lock, which both give up. A piece more that another GPU lends: false if it has none. And
 * those that nobody uses go back to it, while `rests` says that no copy is under way. */
bool glk_store_borrow(struct glk_store *store);
void glk_store_give(struct glk_store *store, glk_store_rests_fn rests, void *arg);
/* All of them, at the end. 0 or the driver's error. */
int glk_store_give_all(struct glk_store *store);
/* Bytes of a content that another GPU has. */
uint64_t glk_store_afar(const struct glk_store *store, uint32_t run);

static inline bool glk_store_is_afar(
	const struct glk_store *store, const struct glk_store_run *r)
{
	return !r->packed && store->piece[r->piece].lent;
}

struct glk_mover {
	struct glk_streams *streams;
	struct glk_store store;
	struct glk_channel out_channel, back_channel;
	uint32_t out, back; /* to the host and to the GPU: their streams, by number */
	/* Bytes that were queued to the host, until the last mark, and from one to the next. */
	uint64_t queued, marked, gap;
	struct glk_io
		*io; /* links of other GPUs that may carry contents too; NULL: none */
};

/* What is left of a content: from a place in a run on, and where it is on the GPU. */
struct glk_left {
	uint32_t run;
	uint64_t addr, bytes, skip;
};

/* sodium.c. Whether contents can be encrypted at all: 0, or with a record -EOPNOTSUPP (libsodium is not there, or this
 * library was built without it) or -ENOMEM (LIMIT: the page of the key cannot be locked). */
int glk_cipher_able(void);
/* cipher.c. A mover encrypts what goes to the host from now on; one that does already does. Without the lock, by one thread at a
 * time. 0, -ENOMEM, or as glk_cipher_able(). */
int glk_cipher_start(struct glk_mover *mover);
/* Contents that are read where they lie: between the first and the last no other comes or goes, and each is plain from
 * the second on until the third, by when the reads have ended. Nothing of it is packed. They take a mover that encrypts
 * none. 0; -EIO (class CORRUPT). */
void glk_cipher_hold(struct glk_mover *mover);
int glk_cipher_bare(struct glk_mover *mover, uint32_t run);
int glk_cipher_cover(struct glk_mover *mover, uint32_t run);
void glk_cipher_let_go(struct glk_mover *mover);
/* Whether all of a content is what it was; *ret_any: any of it is encrypted. 0; -EIO (class CORRUPT). */
int glk_cipher_check(struct glk_mover *mover, uint32_t run, bool *ret_any);
/* lz4.c. Whether contents can be packed at all: 0, or -EOPNOTSUPP with a record. */
int glk_pack_able(void);
/* pack.c. A mover has its contents packed from now on, when they have rested so many ns. Without the lock. 0, -ENOMEM, or
 * as glk_pack_able(). */
int glk_pack_start(struct glk_mover *mover, int64_t rest);
/* Ends the thread, behind what it does. Without the lock; takes a mover that has none. */
void glk_pack_stop(struct glk_mover *mover);
/* loosen.c. A content of which a part is to come back alone: what is packed of it is what it was in the store,
 * and stays so. Takes a mover that packs none. 0; -ENOMEM as glk_store_take(); -EIO (class CORRUPT). */
int glk_pack_loosen(struct glk_mover *mover, uint32_t run);
/* Under the lock: bytes of contents that are packed, and of the memory that they take. */
void glk_pack_figures(
	const struct glk_mover *mover, uint64_t *ret_bytes, uint64_t *ret_held);

/* move.c. Makes the two channels and an empty store. Without the lock. 0 or the driver's error. */
int glk_mover_init(struct glk_mover *mover, struct glk_streams *streams, int node,
	struct glk_node *host);
/* Contents go over links that other GPUs lend, too, if any does. Without the lock. 0 or the driver's error. */
int glk_mover_borrow(struct glk_mover *mover, struct glk_io *io);
/* Ends them: the GPU is idle. Takes a zeroed one. */
int glk_mover_fini(struct glk_mover *mover);
/* The stream in whose order a content of so many bytes has its source and its target: `out` or `back`, or what
 * stands before it, and then it does not go behind other contents on their way. Under the lock. */
uint32_t glk_mover_entry(struct glk_mover *mover, bool out, uint64_t bytes);
/* Under the lock, which may have been given up since: `back` is behind that. 0 or the driver's error. */
int glk_mover_enter_back(struct glk_mover *mover, uint64_t bytes);
/* Gives memory of the host back that nothing lies in, if no copy is under way as far as is known: all but
 * the reserve, or so many bytes, of the reserve too. */
void glk_mover_trim(struct glk_mover *mover);
/* Memory that another GPU lends goes back to it, likewise. */
void glk_mover_give(struct glk_mover *mover);
/* Both, and what is for the way back of packed contents, where there are none. */
void glk_mover_trim_all(struct glk_mover *mover);
void glk_mover_yield(struct glk_mover *mover, uint64_t bytes);
/*
 * Copies bytes of the GPU into the store, behind a use, which is that of the copy afterwards: the
 * memory may be given to others in stream order. 0; -EBUSY (class CAPTURE) where a stream of the use
 * cannot be waited for, -ENOMEM as glk_store_take(), or the driver's error, with the contents where
 * they were.
 */
int glk_move_out(struct glk_mover *mover, uint64_t addr, uint64_t bytes,
	struct glk_use *use, uint32_t *ret_run);
/* The part of a content that another GPU has goes to the host; the content is in the hands of the caller. 0 or as
 * glk_move_out(), with a part of that part on the host. */
int glk_move_home(struct glk_mover *mover, uint32_t run);
/* verify.c. Waits for the copy of a content to the host and keeps its hash; where the GPU cannot be waited for there
 * is none. What another GPU has is not in it. The lock is given up meanwhile. */
void glk_verify_keep(struct glk_mover *mover, uint32_t run);
/* Whether it is still what it was, or has no hash: 0, or -EIO (class CORRUPT). Likewise. */
int glk_verify_check(struct glk_mover *mover, uint32_t run);
/* An event tells of the copies to the host so far, where one can be had; where there are many already, of one
 * part of them in so many. */
void glk_mover_mark(struct glk_mover *mover);
/* Copies some back, from a place in the content on, to memory that the stream `back` may write
 * to; *ret_use is that of the copy. The content stays in the store. 0 or the driver's error. */
int glk_move_back(struct glk_mover *mover, uint32_t run, uint64_t from, uint64_t bytes,
	uint64_t addr, struct glk_use *ret_use);
/*
 * A content that is not packed (glk_pack_loosen) is read where it lies, by work that is queued on a stream of the caller
 * between the two: it is there behind the copies that wrote it, and what is written there later, and contents that come
 * back, are behind the work. The other one says where each chunk lies of so many bytes from a place of it, which is the
 * beginning of a chunk. 0, or as glk_move_out() with nothing lent.
 */
int glk_move_lend(struct glk_mover *mover, uint32_t run, struct glk_stream *reader);
void glk_move_lent(struct glk_mover *mover, uint32_t run, struct glk_stream *reader);
void glk_move_places(const struct glk_mover *mover, uint32_t run, uint64_t from,
	uint64_t bytes, uint64_t *ret_places);
/*
 * Copies bytes from one place to another that the GPU may use both, on the stream `out` or on `back`, and
 * behind a use, which is that of the copy afterwards, also after an error. Over the links of `relays` too, a bit
 * for each GPU that may use what is none of the GPU's; 0 where neither side is the host's. Returns as glk_move_out().
 * Nothing is under way after an error.
 */
int glk_move_across(struct glk_mover *mover, uint64_t to, uint64_t from, uint64_t bytes,
	bool out, uint64_t relays, struct glk_use *use);

#endif
