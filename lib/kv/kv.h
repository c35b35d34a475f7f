/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_KV_H
#define GLK_KV_H

/*
 * A KV cache over one elastic block: see glake/kv.h for what it is to users.
 *
 * Lanes lie in groups: each by itself, or all of a token beside each other in one group, which may be a contiguous block
 * each, in place of a range of an elastic one: then all pages are always there, and nothing is shared. A group is
 * [slots][rows of tokens], each slot of whole pages. Sequences share pages that are written no more, and no others
 * (share.c). All that has to be known of a sequence is how many tokens it has and, by group, which run of pages is committed; whether a call needs
 * memory at all is one comparison with the tokens that all groups are ready for.
 *
 * Memory that was decommitted stays mapped and idle at its addresses (map/page/idle.h), so that a slot's next
 * sequence commits it again without a call of the driver, and everybody else can have it: there is no second list
 * of pages here.
 *
 * Threads	one lock a cache, of arithmetic alone. Who has to change what is committed does so without it, one
 *		at a time, and others who need that wait; those who need nothing do not
 */
#include "cache/cache.h"

#include <errno.h>
#include <glake/kv.h>
#include <glake/share.h>

/* Lanes that lie beside each other. */
struct glk_kv_group {
	uint64_t
		offset; /* in the block; where each is one, from the first, and less than 0 as well */
	uint64_t row;  /* bytes of a token; of a state all of it */
	uint64_t slot; /* bytes from one slot to the next */
	int rule;
	uint32_t window;
};

/* Pages of a group that a sequence has, from its first; those in front of one may be shared, and are not written. */
struct glk_kv_run {
	uint32_t first, end, sealed;
	uint32_t outs; /* times that others have some of it: see export.c */
	bool large;    /* some of its pages may be of several slots */
	bool away;     /* it was sent to the host by itself: see layer.c */
};

struct glk_kv_sequence {
	bool live;
	bool away;     /* it was sent to the host, or runs of it were */
	uint32_t outs; /* of all its runs */
	bool pending;  /* pages that were got ahead are not to be used yet: see ahead.c */
	uint32_t most, tokens;
	uint64_t domain;
	uint32_t ready; /* tokens that all groups have pages for */
	uint32_t
		sheds; /* tokens from which on a page lies in front of a window; UINT32_MAX: none ever does */
};

/* What a prefix is published under. */
struct glk_kv_key {
	uint64_t domain;
	size_t size;
	unsigned char bytes[GLAKE_KV_KEY_MAX];
};

struct glk_kv_prefix {
	struct glk_kv_key key;
	uint32_t
		next; /* of those with its hash, or that are free, counted from 1; 0: the last */
};

struct glk_kv_shape {
	uint32_t slots, tokens, lanes, groups;
	uint32_t prefixes;   /* places behind the slots */
	bool single;	     /* each group is a block of one handle */
	bool large;	     /* lanes have large pages, where they keep every token */
	uint64_t page, size; /* bytes, of all of it */
	struct glk_kv_group *group;
	uint32_t *lane_group;  /* of a lane, */
	uint64_t *lane_offset; /* and where it lies in a row */
	size_t *lane_bytes;
	void *region; /* that these lie in */
	size_t region_size;
};

/* Kernels that gather rows, under way at a time. */
#define GLK_KV_TABLES 64

struct glake_kv {
	struct glake *ctx;     /* the caller's handle of it */
	struct glake_kv *next; /* in the list of all: see kv.c */
	struct glk_cache *cache;
	struct glk_lock lock;
	pthread_cond_t settled; /* nobody changes what is committed */
	struct glk_kv_shape shape;
	bool domains; /* a sequence of it has one that is not 0 */
	uint64_t base;
	struct glk_kv_sequence *sequence;
	struct glk_kv_run *run;	     /* by slot and group */
	struct glk_portion *portion; /* for who changes what is committed: as many */
	struct glk_sharing *
		sharing; /* likewise, by group: ranges that share pages, and then that are copied */
	uint32_t *whole; /* likewise: see glk_kv_whole() */
	struct glk_kv_prefix *prefix;
	uint32_t *prefix_head; /* by hash */
	uint32_t prefix_free,
		prefixes; /* the first of those that are free; that are published */
	size_t tables;	  /* bytes of all of these */
	bool changing;
	uint32_t pending; /* sequences */
	uint32_t outs;	  /* of all sequences */
	uint32_t blocks;  /* of one handle each, that it has */
	uint64_t held, limit;
	uint64_t
		shared; /* bytes of pages that sequences and prefixes have, beyond those held */
	uint64_t grows, extends, pages, refused, pages_ahead, forks, adopts, waits;
	uint64_t wants;	 /* bytes that the last commit had no room for */
	uint64_t memory; /* of the GPU */
	/* Streams that the block is known to be used on, a bit each; and how many had ended when that was found
	 * out, since another one may have the number of one that has. */
	glk_atomic(uint64_t) named[GLK_STREAM_WORDS], ended;
	struct {
		uint32_t tokens; /* 0: there is no thread */
		struct glk_helper helper;
		pthread_t thread;
		pthread_cond_t wake;
		struct CUstream_st *stream; /* its own */
		bool asleep, stop;
	} ahead;
	/* See gather.c, by who changes what is committed. */
	struct {
		struct glk_helper helper;
		uint64_t module, kernel;
		uint64_t *table; /* all of them, of so many bytes, */
		size_t size;
		uint64_t places; /* entries of each */
		uint32_t count;	 /* 0: nothing was gathered yet */
		uint32_t turn;
		struct glk_use read[GLK_KV_TABLES]; /* by the last kernel of each */
	} gather;
};

/* shape.c. Where all lies, of pages of so many bytes. 0, -EINVAL, -ENOMEM; to be ended by the second. */
int glk_kv_shape_init(struct glk_kv_shape *shape, const struct glake_kv_options *options,
	uint64_t page);
void glk_kv_shape_fini(struct glk_kv_shape *shape);
/* The pages that a group has for tokens [.., tokens) of a sequence. */
struct glk_kv_run glk_kv_pages(
	const struct glk_kv_shape *shape, uint32_t group, uint32_t tokens);
/* Tokens that pages up to one suffice for. */
uint32_t glk_kv_ready(const struct glk_kv_shape *shape, uint32_t group, uint32_t pages);

static inline struct glk_kv_run *glk_kv_run_at(
	const struct glake_kv *kv, uint32_t slot, uint32_t group)
{
	return &kv->run[(size_t)slot * kv->shape.groups + group];
}

static inline struct glk_portion glk_kv_portion(
	const struct glake_kv *kv, uint32_t slot, uint32_t group, struct glk_kv_run pages)
{
	const struct glk_kv_group *g = &kv->shape.group[group];
	uint64_t page = kv->shape.page;

	return (struct glk_portion){g->offset + slot * g->slot + pages.first * page,
		(pages.end - pages.first) * page};
}

/* Slots, and places of prefixes behind them. */
static inline uint32_t glk_kv_places(const struct glk_kv_shape *shape)
{
	return shape->slots + shape->prefixes;
}

/* commit.c, by who changes what is committed, with the lock, which is given up meanwhile. So many portions are, or
 * are not any more: `how` as of glk_elastic_commit(). 0, or an error with nothing changed; -EDQUOT past the limit. */
int glk_kv_commit(
	struct glake_kv *kv, size_t count, struct CUstream_st *stream, uint32_t how);
/* The same in two steps, for who has another call commit them: 0 or -EDQUOT; and so many bytes are. */
int glk_kv_may_commit(const struct glake_kv *kv, size_t count, uint64_t *ret_bytes);
void glk_kv_note_commit(struct glake_kv *kv, uint64_t bytes);
int glk_kv_decommit(struct glake_kv *kv, size_t count, struct CUstream_st *stream);
/* Of so many portions that were committed: what was in their pages is cleared where security.level says so. */
void glk_kv_clear(struct glake_kv *kv, size_t count, struct CUstream_st *stream);
/* By who changes what is committed, likewise: portions go to the host, with `sealed` the pages that are, which stay
 * otherwise; and come back. 0, or an error after which some of them may have moved. */
int glk_kv_send(
	struct glake_kv *kv, size_t count, bool sealed, struct CUstream_st *stream);
int glk_kv_have(
	struct glake_kv *kv, size_t count, struct CUstream_st *stream, bool large);
/* Waits until nobody changes what is committed, and is the one who does; for the pages that a sequence is about to
 * have ahead too, or all of them are. */
#define GLK_KV_ALL UINT32_MAX
void glk_kv_change_begin(struct glake_kv *kv, uint32_t slot);
void glk_kv_change_end(struct glake_kv *kv);
/* Portions of a slot that tokens need more, from `count` on; their number. They are had; and the sequence is ready for
 * what it has. */
size_t glk_kv_add_missing(
	const struct glake_kv *kv, uint32_t slot, uint32_t tokens, size_t count);
void glk_kv_note_missing(struct glake_kv *kv, uint32_t slot, uint32_t tokens, bool large);
/* The same of one group. */
size_t glk_kv_add_missing_of(const struct glake_kv *kv, uint32_t slot, uint32_t group,
	uint32_t tokens, size_t count);
void glk_kv_note_missing_of(
	struct glake_kv *kv, uint32_t slot, uint32_t group, uint32_t tokens, bool large);
/* Whether what these lanes get has large pages, as often as they fit in the portions; then so many pages of a run may
 * be such. Lanes that lose their front page by page have none. */
bool glk_kv_is_large(const struct glake_kv *kv, uint32_t lane, uint32_t lanes);
void glk_kv_note_large(const struct glake_kv *kv, struct glk_kv_run *run, uint32_t pages);
void glk_kv_settle(struct glake_kv *kv, uint32_t slot);

/* ahead.c. The thread of a cache; where it cannot be had 0 all the same, after a warning. Without the lock. */
void glk_kv_ahead_start(struct glake_kv *kv);
void glk_kv_ahead_stop(struct glake_kv *kv);
/* Under the lock: a sequence has grown. */
static inline void glk_kv_ahead_note(struct glake_kv *kv, const struct glk_kv_sequence *q)
{
	if (kv->ahead.asleep && q->ready - q->tokens < kv->ahead.tokens &&
		q->ready < q->most) {
		kv->ahead.asleep = false;
		pthread_cond_signal(&kv->ahead.wake);
	}
}

/* kv.c: contracts as in glake/kv.h, on a cache that is open. */
int glk_kv_open(struct glk_cache *cache, const struct glake_kv_options *options,
	struct CUstream_st *stream, struct glake_kv **ret_kv);
int glk_kv_close(struct glake_kv *kv, struct CUstream_st *stream, bool has_block);
int glk_kv_new(struct glake_kv *kv, uint32_t tokens, uint64_t domain,
	struct CUstream_st *stream, uint32_t *ret_slot);
int glk_kv_step(struct glake_kv *kv, const uint32_t *lengths, struct CUstream_st *stream);
int glk_kv_grow(
	struct glake_kv *kv, uint32_t slot, uint32_t tokens, struct CUstream_st *stream);
int glk_kv_trim(struct glake_kv *kv, uint32_t slot, uint32_t tokens,
	struct CUstream_st *stream, bool ends);
int glk_kv_move(
	struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream, bool to_gpu);
int glk_kv_sequence_get(
	struct glake_kv *kv, uint32_t slot, struct glake_kv_sequence *ret);
/* Calls fn for each cache of a GPU that is open; none is closed meanwhile. */
void glk_kv_each(const struct glk_cache *cache,
	void (*fn)(struct glake_kv *kv, void *arg), void *arg);
void glk_kv_figures(struct glake_kv *kv, struct glake_kv_figures *ret);
/* Under the lock: whether there is a sequence, which may have so many tokens; the lowest slot that is free, or -EBUSY. */
int glk_kv_check(const struct glake_kv *kv, uint32_t slot, uint32_t tokens);
/* The memory is used on a stream, which what goes of it later is behind. 0, or -EINVAL (the stream). */
int glk_kv_name(struct glake_kv *kv, struct CUstream_st *stream);
/* -EBUSY with a record where a sequence is on the host, else 0. */
int glk_kv_away(const struct glake_kv *kv, uint32_t slot);
int glk_kv_find_slot(const struct glake_kv *kv, uint32_t *ret_slot);
/* Portions of a place that so many tokens do not need, with `all` every page; they went, as far as the portions say. */
size_t glk_kv_add_spare(struct glake_kv *kv, uint32_t slot, uint32_t tokens, bool all);
void glk_kv_note_spare(struct glake_kv *kv, uint32_t slot, uint32_t tokens, bool all);
/* Under the lock, at the end of what may commit: counts a refusal; the bytes that there was no room for, or 0. */
static inline uint64_t glk_kv_refused(struct glake_kv *kv, int err)
{
	kv->refused += err == -ENOMEM || err == -EDQUOT;
	return err == -ENOMEM ? kv->wants : 0;
}
/* Asks the program for room after an -ENOMEM, with nothing of the cache in hand: whether it is worth another try. */
bool glk_kv_asks(
	struct glake_kv *kv, int err, uint64_t wants, struct CUstream_st *stream);

/* layer.c: likewise, of some lanes. */
int glk_kv_layer_grow(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	uint32_t tokens, struct CUstream_st *stream);
int glk_kv_layer_move(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t lanes,
	struct CUstream_st *stream, bool to_gpu);

/* gather.c: likewise; and what it made ends, before the block does. */
int glk_kv_gather(struct glake_kv *kv, uint32_t slot, uint32_t lane, const void *indices,
	uint32_t count, void *to, struct CUstream_st *stream);
void glk_kv_gather_end(struct glake_kv *kv);

/* export.c: likewise. And -EBUSY with a record where a sequence is out, else 0. */
int glk_kv_export(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t first,
	uint32_t tokens, bool reads, struct glake_piece *ret_pieces, size_t max,
	size_t *ret_count);
int glk_kv_export_end(struct glake_kv *kv, uint32_t slot, uint32_t lane);
int glk_kv_out(const struct glake_kv *kv, uint32_t slot);

/* share.c. By who changes what is committed, likewise: of each group the pages of a place that lie wholly in its first
 * tokens, of several slots too: they will not be written again. */
int glk_kv_whole(struct glake_kv *kv, uint32_t place, uint32_t tokens);
/* Contracts as in glake/kv.h, on a cache that is open. */
int glk_kv_fork(struct glake_kv *kv, uint32_t slot, uint32_t tokens, uint32_t most,
	struct CUstream_st *stream, uint32_t *ret_slot);
int glk_kv_publish(struct glake_kv *kv, uint32_t slot, uint32_t tokens, const void *bytes,
	size_t size, struct CUstream_st *stream);
int glk_kv_adopt(struct glake_kv *kv, uint32_t slot, const void *bytes, size_t size,
	struct CUstream_st *stream, uint32_t *ret_tokens);
int glk_kv_withdraw(struct glake_kv *kv, uint64_t domain, const void *bytes, size_t size,
	struct CUstream_st *stream);
int glk_kv_prefix_move(struct glake_kv *kv, uint64_t domain, const void *bytes,
	size_t size, struct CUstream_st *stream, bool to_gpu);

#endif
