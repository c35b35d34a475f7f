/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_KV_H
#define GLAKE_KV_H

/*
 * KV caches: what attention keeps of each token, for many sequences that grow and end by themselves. A cache is one
 * elastic block (elastic.h) in which every sequence has a slot of the most tokens it may have, and memory for the
 * tokens it has. So a kernel gets plain strides and a slot as an index, one launch takes a batch, nothing is ever
 * copied to make room, and no kernel knows of pages.
 *
 *	lane	one tensor of what is kept: a layer's keys, or its values. [slots][most tokens][bytes of a token]
 *	slot	the place of a sequence in all lanes, from 0
 *
 *	struct glake_kv_options o = {.sz = sizeof(o), .slots = 64, .tokens = 4096, .lanes = 64, .lane_bytes = 2048};
 *	glake_kv_open(ctx, 0, &o, stream, &kv);
 *	glake_kv_new(kv, 4096, stream, &slot);
 *	glake_kv_grow(kv, slot, prompt, stream);	there is memory for the prompt
 *	glake_kv_grow(kv, slot, prompt + 1, stream);	and for a token more
 *	glake_kv_free(kv, slot, stream);
 *
 * Memory goes by pages of 2 MiB. With each lane by itself (the default) a sequence has at most one page a lane more
 * than its tokens need, and tokens of a layer lie one behind the other; with GLAKE_KV_TOKEN_FRONT all lanes of a token
 * lie beside each other, and it is one page a sequence. glake_kv_bytes says what it will be. Memory that a sequence
 * gives back stays mapped where it is, for the next one of its slot, until somebody else needs it.
 *
 * Sequences that begin alike share that beginning: one is forked into another slot, for samples in parallel, or its
 * beginning is published under a key, for whoever comes with the same prompt:
 *
 *	glake_kv_fork(kv, slot, 1000, 4096, stream, &other);	it has the first 1000 tokens too
 *	glake_kv_publish(kv, slot, 1000, hash, 32, stream);
 *	glake_kv_new(kv, 4096, stream, &third);
 *	glake_kv_adopt(kv, third, hash, 32, stream, &tokens);	1000
 *
 * Whole pages of a beginning exist once, and are sealed (glake_commit_shared): nobody writes those tokens again, which a
 * kernel that does on the side of the fork pays with an illegal access. What the last page has of it is copied, in
 * stream order, and so are states. Both sides go on by themselves then, end in any order, and the pages go with the
 * last. Keys and sequences are of a domain, a number that the program gives, such as one for each tenant: what is
 * published in one is not found in another.
 *
 * Threads	any. A call that needs no memory waits for none that does; those that do, for each other
 */

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>
#include <glake/memory.h>

GLAKE_BEGIN_DECLS

struct glake_kv;
struct glake_piece;

/* What of a sequence a lane keeps. */
enum glake_kv_rule {
	GLAKE_KV_ALL = 0,    /* every token */
	GLAKE_KV_WINDOW = 1, /* the last so many tokens: pages in front of them go */
	GLAKE_KV_STATE = 2,  /* bytes of the sequence, however many tokens it has */
};

struct glake_kv_lane {
	size_t bytes;	 /* of a token; with GLAKE_KV_STATE of a sequence; 1 or more */
	int rule;	 /* enum glake_kv_rule */
	uint32_t window; /* tokens, with GLAKE_KV_WINDOW */
};

/* All lanes of a token beside each other; they have one rule then, and it is no state. */
#define GLAKE_KV_TOKEN_FRONT 0x1u
/* Each lane, or all where they lie beside each other, is a block of one physical page, as network cards and those who
 * register memory for them want it (glake_dmabuf and glake_export of the base of the lane; a NIXL agent registers the
 * lane as one range). What it costs: the memory for all slots, at their most tokens, is there from glake_kv_open to
 * glake_kv_close, so that the limit is one for that; a fork and a prefix are copies of all their tokens; there is no
 * spill (-EOPNOTSUPP), and `ahead` means nothing. */
#define GLAKE_KV_SINGLE 0x2u
/* What a lane gets at once has pages of pool.large_page, as many as fit in it and as there are, and behind them such of 2
 * MiB: a call of the driver for each of them, for a growth, for a fork and for a prefix that is adopted. What it costs: a
 * fork, and a prefix, of fewer tokens than a growth ended with copies the large page in which it ends, and has as much
 * more; trim keeps a page while it holds any token that stays, which counts as held, and is refused (-EBUSY) where
 * the last token lies in a large page that is shared. Lanes with a window or a state, all that come in one call with
 * such, and what a thread gets ahead have pages of 2 MiB. Not with the two flags above (-EINVAL). */
#define GLAKE_KV_LARGE 0x4u

#define GLAKE_KV_LANES_MAX  4096
#define GLAKE_KV_SLOTS_MAX  65536
#define GLAKE_KV_TOKENS_MAX (1u << 28)
#define GLAKE_KV_KEY_MAX    64 /* bytes of a key */

struct glake_kv_options {
	size_t sz;	 /* sizeof(struct glake_kv_options) */
	uint32_t slots;	 /* sequences at a time */
	uint32_t tokens; /* the most that one may have */
	uint32_t lanes;
	uint32_t flags; /* GLAKE_KV_... */
	/* `lanes` of them; NULL: all keep every token, with so many bytes each. */
	const struct glake_kv_lane *lane;
	size_t lane_bytes;
	uint64_t limit; /* bytes of pages, as glake_kv_limit_set; 0: none */
	uint32_t ahead; /* tokens; 0: none: see below */
	uint32_t
		prefixes; /* published at a time, up to GLAKE_KV_SLOTS_MAX; each takes addresses as a slot does */
};

/*
 * Bytes of pages that a sequence of so many tokens takes in a cache like this, with pages of 2 MiB.
 *
 * Returns 0, or -EINVAL (a number out of range; NULL), -E2BIG (options). Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_kv_bytes(
	const struct glake_kv_options *options, uint32_t tokens, uint64_t *ret_bytes);

/*
 * Makes a cache on a GPU, of which nothing has memory yet. Its addresses count for map.span, which is to be
 * larger where they do not fit. With `ahead` it has a thread, which sees to it that each sequence has memory for so
 * many tokens more than it has, one sequence at a time, so that a step finds it there; what it gets counts as held.
 *
 * stream	as of glake_alloc
 * ret_kv	for the caller to end by glake_kv_close, before the context or after it
 *
 * Returns 0, or -EINVAL (a number out of range, NULL, device, stream), -ENOMEM (ADDRESS: more addresses than map.span;
 * NOMEM_HOST; LIMIT; with GLAKE_KV_SINGLE as glake_alloc), -EDQUOT (with that: a limit that is less than all), -E2BIG, -EAGAIN (suspended), -ESTALE, -EIO, -ENODEV. Thread: any. Blocks: as glake_alloc. Driver
 * calls: where addresses must be had, reserve.
 */
GLAKE_EXPORT int glake_kv_open(struct glake *ctx, int device,
	const struct glake_kv_options *options, struct CUstream_st *stream,
	struct glake_kv **ret_kv);

/*
 * Ends it with all its sequences, in stream order as glake_free. No other call may be in it, or come; NULL is nothing.
 *
 * Returns 0, or -EINVAL (the stream: then it is not ended), -EIO (likewise), -EBUSY (BUSY, likewise: a sequence is out). Thread: any. Blocks: as glake_free.
 * Driver calls: as glake_free.
 */
GLAKE_EXPORT int glake_kv_close(struct glake_kv *kv, struct CUstream_st *stream);

/* Where a lane lies: the byte b of token t of a slot s is at base + s * slot + t * token + b. */
struct glake_kv_place {
	size_t sz; /* sizeof(struct glake_kv_place) */
	void *base;
	size_t slot, token; /* bytes from one to the next; a state has no tokens: 0 */
	size_t bytes;	    /* of a token, or of a state */
};

/*
 * Says where a lane lies. Returns 0, or -EINVAL (no such lane, NULL), -E2BIG. Thread: any. Blocks: no. Driver calls:
 * none.
 */
GLAKE_EXPORT int glake_kv_place_get(
	const struct glake_kv *kv, uint32_t lane, struct glake_kv_place *ret_place);

/* A cache, as it is. */
struct glake_kv_figures {
	size_t sz;		/* sizeof(struct glake_kv_figures) */
	void *base;		/* of its addresses, */
	uint64_t size;		/* bytes of them */
	uint32_t slots, tokens; /* as it was opened */
	uint32_t lanes;
	uint32_t sequences; /* slots that are taken */
	uint64_t length;    /* tokens of all of them */
	uint64_t needed;    /* bytes that these need */
	uint64_t held;	    /* bytes of pages that they have */
	uint64_t limit;	    /* 0: none */
	uint64_t
		capacity; /* tokens of one sequence after the other that the limit has room for; without one, that
				  * the memory of the GPU has: whatever is free */
	uint64_t grows; /* calls that found memory for all they needed */
	uint64_t extends,
		pages;	  /* calls that had to get some; pages of 2 MiB that they got */
	uint64_t refused; /* calls that got none */
	uint64_t pages_ahead; /* of the pages, those that the thread got */
	uint64_t
		shared; /* bytes of pages that sequences and prefixes have together, each but once, which held has not */
	uint64_t forks, adopts; /* calls that shared something */
	uint32_t prefixes;	/* that are published */
	uint32_t outs;		/* exports that have not ended */
	uint32_t away;		/* sequences that are on the host, */
	uint32_t prefixes_away; /* and prefixes */
	uint64_t waits; /* calls that had to wait for another one, or for the thread */
};

/*
 * Gives them. Returns 0, or -EINVAL (NULL), -E2BIG, -ENODEV (in a forked child). Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_kv_figures_get(
	struct glake_kv *kv, struct glake_kv_figures *ret_figures);

/*
 * Takes a slot for a sequence without tokens, the lowest that is free, and the memory of its states.
 *
 * tokens	the most that it will have
 *
 * Returns 0, or -ERANGE (more than the cache was opened for), -EBUSY (BUSY: no slot is free), -EINVAL (0 tokens, NULL,
 * the stream), -EDQUOT (as glake_kv_grow, for its states), -ENOMEM (likewise), -EAGAIN, -EIO, -ESTALE, -ENODEV. Thread: any. Blocks: as glake_kv_grow. Driver calls: as glake_kv_grow.
 */
GLAKE_EXPORT int glake_kv_new(struct glake_kv *kv, uint32_t tokens,
	struct CUstream_st *stream, uint32_t *ret_slot);

/*
 * The same in a domain; those of glake_kv_new are of domain 0.
 *
 * Returns what glake_kv_new does. Thread: any. Blocks: as glake_kv_grow. Driver calls: as glake_kv_grow.
 */
GLAKE_EXPORT int glake_kv_new_in(struct glake_kv *kv, uint32_t tokens, uint64_t domain,
	struct CUstream_st *stream, uint32_t *ret_slot);

/*
 * Has memory for so many tokens of a sequence in all lanes, usable in the order of `stream`, or in none. What the
 * others have is not touched; a shorter length than it has changes nothing. Pages in front of a window go, in
 * stream order. A sequence that is grown on one stream and then on another is used there behind the first, which is for
 * the program to see to.
 *
 * Returns 0, or -EINVAL (no sequence in the slot; the stream), -ERANGE (more tokens than it was made for), -EDQUOT
 * (LIMIT: the limit of the cache), -ENOMEM (as glake_commit), -EBUSY (likewise; BUSY: it is away, see glake_kv_spill),
 * -EAGAIN, -EIO, -ESTALE, -ENODEV (as glake_commit). After an error
 * nothing is changed.
 * Thread: any. Blocks: not where there is memory already, but for the lock of the GPU the first time on a stream; else as
 * glake_commit. Driver calls: likewise none; else those of glake_commit.
 */
GLAKE_EXPORT int glake_kv_grow(
	struct glake_kv *kv, uint32_t slot, uint32_t tokens, struct CUstream_st *stream);

/*
 * The same for all sequences at once: `lengths` has the tokens for each slot of the cache; 0 for those that stay as they
 * are, which have no sequence or one.
 *
 * Returns what glake_kv_grow does, or -EINVAL (no lengths). Thread: any. Blocks: as glake_kv_grow. Driver calls: as glake_kv_grow.
 */
GLAKE_EXPORT int glake_kv_step(
	struct glake_kv *kv, const uint32_t *lengths, struct CUstream_st *stream);

/*
 * Takes tokens from the end of a sequence, down to so many, and gives pages that it needs no more to others, in the order
 * of `stream`.
 *
 * Returns 0, or -ERANGE (more tokens than it has, or a window that would begin where memory went), -EINVAL (no sequence
 * in the slot; the stream), -EBUSY (as glake_decommit; BUSY: the last of them end in a page that was shared, which must
 * not be written: glake_kv_fork has so many tokens in pages that may), -ENOMEM (likewise), -ESTALE, -ENODEV. Thread: any. Blocks: as glake_decommit. Driver calls: as glake_decommit.
 */
GLAKE_EXPORT int glake_kv_trim(
	struct glake_kv *kv, uint32_t slot, uint32_t tokens, struct CUstream_st *stream);

/*
 * Ends a sequence: its slot is free and its memory another's, in the order of `stream`. The next one of the slot finds it
 * there without a call of the driver, as long as nobody else wanted it.
 *
 * Returns what glake_kv_trim does. Thread: any. Blocks: as glake_decommit. Driver calls: as glake_decommit.
 */
GLAKE_EXPORT int glake_kv_free(
	struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream);

/*
 * Takes a slot, the lowest that is free, for a sequence that begins with the first tokens of another one, in its domain.
 * Whole pages of them are shared from now on, as said above, and the rest is copied, behind the work that was queued on
 * `stream`.
 *
 * tokens	that it begins with, 1 or more; all of the other's where that has a state
 * most		tokens that it will have, those among them
 *
 * Returns 0, or -EINVAL (no sequence in the slot; NULL; the stream), -ERANGE (tokens that the other one has not; fewer
 * with a state; a window that would begin where memory went; most), -EBUSY (BUSY: no slot is free; what is to be
 * shared is away; CAPTURE: the stream captures), -EDQUOT (as glake_kv_grow, for what is copied), -ENOMEM (likewise; LIMIT: a page
 * is shared 1024 times), -EOPNOTSUPP (what is to be shared lies on the host, after glake_resume_lazy), -EAGAIN, -EIO,
 * -ESTALE, -ENODEV. After an error nothing is changed.
 * Thread: any. Blocks: as glake_commit_shared. Driver calls: those of glake_commit and of glake_commit_shared, and a copy
 * for each lane, or with GLAKE_KV_TOKEN_FRONT one.
 */
GLAKE_EXPORT int glake_kv_fork(struct glake_kv *kv, uint32_t slot, uint32_t tokens,
	uint32_t most, struct CUstream_st *stream, uint32_t *ret_slot);

/*
 * Publishes the first tokens of a sequence under a key, in the domain of the sequence. It keeps them after the sequence
 * has ended, until it is withdrawn.
 *
 * tokens	as of glake_kv_fork
 * key, size	1 to GLAKE_KV_KEY_MAX bytes, as a hash of the tokens and of what else makes them equal
 *
 * Returns what glake_kv_fork does, or -EEXIST (BUSY: that key is taken), -EBUSY (BUSY: as many prefixes are published as
 * the cache was opened for), -EINVAL (the key). Thread: any. Blocks: as glake_commit_shared. Driver calls: as glake_kv_fork.
 */
GLAKE_EXPORT int glake_kv_publish(struct glake_kv *kv, uint32_t slot, uint32_t tokens,
	const void *key, size_t size, struct CUstream_st *stream);

/*
 * Gives a sequence that has no tokens those that are published under a key in its domain. A stream that is another one
 * than that of the publication is used behind it, which is for the program to see to.
 *
 * ret_tokens	as many
 *
 * Returns 0, or -ENOENT (nothing is published under it there), -EBUSY (BUSY: the sequence has tokens; as glake_kv_fork),
 * -ERANGE (more tokens than it was made for), -EINVAL (the key; as glake_kv_fork), -EDQUOT (likewise), -ENOMEM
 * (likewise), -EOPNOTSUPP (likewise), -EAGAIN, -EIO, -ESTALE, -ENODEV. After an error nothing is changed.
 * Thread: any. Blocks: as glake_commit_shared. Driver calls: as glake_kv_fork.
 */
GLAKE_EXPORT int glake_kv_adopt(struct glake_kv *kv, uint32_t slot, const void *key,
	size_t size, struct CUstream_st *stream, uint32_t *ret_tokens);

/*
 * Ends what is published under a key: sequences that have adopted it keep it, and pages that nobody has go, in the order
 * of `stream`.
 *
 * Returns 0, or -ENOENT (nothing is), -EINVAL (the key; the stream), -EBUSY (as glake_decommit), -ENOMEM (likewise),
 * -ESTALE, -ENODEV. Thread: any. Blocks: as glake_decommit. Driver calls: as glake_decommit.
 */
GLAKE_EXPORT int glake_kv_withdraw(struct glake_kv *kv, uint64_t domain, const void *key,
	size_t size, struct CUstream_st *stream);

/*
 * Sends the memory of a sequence to the host, in the order of `stream` and behind all other streams that use the cache, as
 * glake_spill_range() does, and has it back, as glake_fetch_range(). Pages that it shares stay where they are, until
 * glake_kv_prefix_spill(). While it is away it does not grow, is not forked, and counts for the limit as before; it may end.
 *
 * Returns 0, also where nothing was to move; -EINVAL (no sequence in the slot; the stream), -ENOMEM (as
 * glake_spill_range, glake_fetch_range), -EBUSY (likewise), -EAGAIN, -EIO, -ESTALE, -ENODEV (likewise). After an error
 * some of it may have moved, and it is away.
 * Thread: any. Blocks: as those for each lane. Driver calls: as those for each lane.
 */
GLAKE_EXPORT int glake_kv_spill(
	struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream);
GLAKE_EXPORT int glake_kv_fetch(
	struct glake_kv *kv, uint32_t slot, struct CUstream_st *stream);

/*
 * Sends what is published under a key to the host, with all that it shares, and has it back at the same addresses. It
 * goes while no sequence that is on the GPU has any of its pages: those that have are spilled before, and have them back
 * with glake_kv_fetch(), whether the prefix came back or not. The contents go once, and come once for all who have them;
 * pages that another prefix has too are given back when that has gone as well. While it is away it is not adopted, and
 * counts for the limit as before; it may be withdrawn, and who has adopted it keeps it.
 *
 * Returns 0, also where nothing was to move; -ENOENT (nothing is published under it there), -EBUSY (BUSY: a sequence on
 * the GPU has pages of it; as glake_spill_range), -EINVAL (the key; the stream), -EOPNOTSUPP (GLAKE_KV_SINGLE), -ENOMEM
 * (as glake_kv_spill), -EAGAIN, -EIO, -ESTALE, -ENODEV (likewise). After an error some of it may have moved, and it is
 * away.
 * Thread: any. Blocks: as glake_kv_spill. Driver calls: as glake_kv_spill.
 */
GLAKE_EXPORT int glake_kv_prefix_spill(struct glake_kv *kv, uint64_t domain,
	const void *key, size_t size, struct CUstream_st *stream);
GLAKE_EXPORT int glake_kv_prefix_fetch(struct glake_kv *kv, uint64_t domain,
	const void *key, size_t size, struct CUstream_st *stream);

/*
 * Layer by layer: a prompt whose cache has no room as a whole is computed with the memory of a few layers, each of which
 * goes to the host when it is done, and comes back before it is read again. A layer is some lanes, one behind the other,
 * such as its keys and its values.
 *
 *	for each layer:
 *		glake_kv_layer_grow(kv, slot, lane, 2, prompt, stream);
 *		its kernels write and read the lanes
 *		glake_kv_layer_done(kv, slot, lane, 2, stream);
 *	for each layer, later:
 *		glake_kv_layer_wait(kv, slot, lane, 2, stream);
 *	glake_kv_grow(kv, slot, prompt, stream);	it has the tokens, and finds memory for all of them
 *
 * All are in the order of streams: an engine may queue all layers of a prompt ahead of the GPU. Memory of a layer that is
 * done is the next one's behind the copy. Which layers leave and when they come back is for the planner to say
 * (planner.h). While lanes of a sequence are away it is away to all other calls.
 */

/*
 * Has memory for so many tokens of some lanes of a sequence, as glake_kv_grow has for all of them. The sequence has no
 * more tokens than before.
 *
 * lane, lanes	the first, and how many
 *
 * Returns what glake_kv_grow does, or -EINVAL (no such lanes), -EOPNOTSUPP (GLAKE_KV_TOKEN_FRONT, GLAKE_KV_SINGLE), -EBUSY
 * (BUSY: one of them is away, or the sequence is out). After an error nothing is changed. Thread: any. Blocks: as glake_kv_grow.
 * Driver calls: as glake_kv_grow.
 */
GLAKE_EXPORT int glake_kv_layer_grow(struct glake_kv *kv, uint32_t slot, uint32_t lane,
	uint32_t lanes, uint32_t tokens, struct CUstream_st *stream);

/*
 * Sends the memory of some lanes of a sequence to the host, in the order of `stream` and behind all other streams that use
 * the cache; and has it back, in the order of `stream`, which waits for the copy. Pages that the sequence shares stay. What
 * is there already is.
 *
 * Returns what glake_kv_spill and glake_kv_fetch do, or -EINVAL (no such lanes), -EOPNOTSUPP (GLAKE_KV_TOKEN_FRONT,
 * GLAKE_KV_SINGLE), -EBUSY (BUSY: all of the sequence was sent away at once, see glake_kv_spill; it is out). After an error some
 * of it may have moved, and it is away. Thread: any. Blocks: as glake_kv_spill: for the calls of the driver, not for the copies.
 * Driver calls: as glake_kv_spill; none to map what still lies at its addresses.
 *
 * Lanes that are had by one call are all mapped before the first copy is queued. A driver may hold a mapping up while copies
 * to the GPU are under way (580 does: until those are done, or for a millisecond a page), so a call for each layer waits for
 * the copies of the layer before it, which one call for all of them does not. But whoever needs memory of the cache meanwhile
 * waits for that call. With GLAKE_KV_LARGE there are fewer mappings.
 *
 * A program that has no time for these calls makes them on a thread and a stream of its own, and has its other streams wait
 * for an event there: nothing of what that thread waits for is queued behind the event. The library has no thread
 * for it. Pages have to be chosen before a stream may wait for them, or they could be such as are given back by work
 * behind that wait, and the stream and the thread would wait for each other; and who chooses has the cache's memory
 * to himself until they are mapped, so that the next layer would be held up all the same.
 */
GLAKE_EXPORT int glake_kv_layer_done(struct glake_kv *kv, uint32_t slot, uint32_t lane,
	uint32_t lanes, struct CUstream_st *stream);
GLAKE_EXPORT int glake_kv_layer_wait(struct glake_kv *kv, uint32_t slot, uint32_t lane,
	uint32_t lanes, struct CUstream_st *stream);

/*
 * Rows by index, for attention that reads few tokens of many: copies those of a lane to memory of the program, one behind
 * the other, wherever they lie, and moves nothing. A kernel of the library reads them in the order of `stream`, what is
 * on the host (glake_kv_spill, glake_kv_layer_done) over the link; rows of 1 to 4 KiB have it busy from a few
 * hundred on. What goes to the host and comes back later is behind it. A token that the sequence has no memory for,
 * which one in front of a window has not, nor any number past its end such as UINT32_MAX, is zeroes; of one that nobody
 * wrote the row is undefined. Contents are read as they are: tier.verify looks at what comes back alone.
 *
 *	glake_kv_layer_done(kv, slot, lane, 2, stream);
 *	top<<<..., stream>>>(indices, 2048);		which tokens count
 *	glake_kv_gather(kv, slot, lane, indices, 2048, keys, stream);
 *	glake_kv_gather(kv, slot, lane + 1, indices, 2048, values, stream);
 *
 * indices	numbers of tokens, in memory that the GPU can read, when the stream is there: its own, or locked memory of
 *		the host
 * to		`count` rows of glake_kv_place.bytes, at a multiple of 16
 *
 * Returns 0, also with a count of 0; -EINVAL (no sequence in the slot, no such lane, a state, NULL, the stream, rows that
 * do not begin and end at multiples of 16 bytes or have more than 256 KiB, indices at no multiple of 4), -ERANGE (the
 * sequence has no memory for any token), -EOPNOTSUPP (the driver runs no kernels of the library; GLAKE_KV_SINGLE),
 * -EBUSY (CAPTURE: a stream captures), -EAGAIN (suspended), -ENOMEM, -EIO, -ESTALE, -ENODEV. After an error
 * nothing is queued. Thread: any.
 * Blocks: as glake_kv_grow, at the first time until the kernel is loaded, and for the kernel of 64 calls ago at the latest.
 * Driver calls: launch; where something is on the host, event and stream wait; the first time, those that load it.
 */
GLAKE_EXPORT int glake_kv_gather(struct glake_kv *kv, uint32_t slot, uint32_t lane,
	const uint32_t *indices, uint32_t count, void *to, struct CUstream_st *stream);

/*
 * Gives tokens of a lane to another process, as the list of the pages that they lie in (share.h): descriptors, and where
 * in each the bytes are. That process imports them by glake_import(), with the sum of the lengths as the size, and has
 * token `first` at the beginning and each next one glake_kv_place.token bytes on. With GLAKE_KV_TOKEN_FRONT these are all
 * lanes of the tokens, from the first one on. The descriptors are the caller's, who sends and closes them.
 *
 * While a sequence is out it grows, is forked and published, and nothing of it goes: trim, free, spill, adopt and
 * glake_kv_close are -EBUSY, the GPU is suspended without the block of the cache, and pages in front of a window stay.
 * What is written to those tokens later, the importer sees; streams of two processes know nothing of each other
 * (share.h, Order). A published prefix is given by adopting it. An importer that has it keeps the pages also when this
 * process has ended, with what was in them then; when it ends itself, this process has to be told and calls
 * glake_kv_export_end().
 *
 * lane		of a state all of it is one token
 * reads	not 0: the pieces say GLAKE_PIECE_READ, so that the importer cannot write; so they do in any case where
 *		others share the first page
 * ret_pieces	a list of `max`: no more are needed than pages of 2 MiB reach into the range; of GLAKE_KV_SINGLE 1
 *
 * Returns 0, or -EINVAL (no sequence in the slot, no such lane, NULL, a list that is too short), -ERANGE (tokens that it
 * has no memory for: 0, beyond what it is ready for, or in front of a window), -EBUSY (BUSY: it is away), -EOPNOTSUPP
 * (pages that were not made to be exported, see pool.export, or that lie on the host after glake_resume_lazy), -EMFILE
 * or -ENFILE (LIMIT), -ENOMEM, -ESTALE, -ENODEV, -EIO. A refused call changes nothing and leaves nothing open.
 * Thread: any. Blocks: as glake_export. Driver calls: as glake_export.
 */
GLAKE_EXPORT int glake_kv_export(struct glake_kv *kv, uint32_t slot, uint32_t lane,
	uint32_t first, uint32_t tokens, int reads, struct glake_piece *ret_pieces,
	size_t max, size_t *ret_count);

/*
 * Says that who got tokens of a lane is done with them, once for each glake_kv_export of it.
 *
 * Returns 0, also in a forked child, where nothing happens; -EINVAL (no sequence in the slot, no such lane, one that is
 * not out), -ESTALE. Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_kv_export_end(struct glake_kv *kv, uint32_t slot, uint32_t lane);

/* A sequence. */
struct glake_kv_sequence {
	size_t sz;	 /* sizeof(struct glake_kv_sequence) */
	uint32_t tokens; /* that it has, */
	uint32_t ready;	 /* that there is memory for, */
	uint32_t most;	 /* and that it may have */
	uint64_t held;	 /* bytes of its pages, those that it shares among them */
	uint64_t domain;
	int away;      /* 1: since glake_kv_spill */
	uint32_t outs; /* exports of it that have not ended */
};

/*
 * Describes one. Returns 0, or -EINVAL (no sequence in the slot; NULL), -E2BIG, -ENODEV (in a forked child). Thread: any. Blocks: briefly. Driver calls:
 * none.
 */
GLAKE_EXPORT int glake_kv_sequence_get(
	struct glake_kv *kv, uint32_t slot, struct glake_kv_sequence *ret_sequence);

/*
 * Bounds the bytes of pages of a cache; 0: no limit. One below what is held takes effect as sequences end: until then
 * they keep what they have and get nothing more. Pages that go then are idle for whoever wants them in this context;
 * glake_trim() has other processes have them.
 *
 * Returns 0, or -EINVAL (NULL), -ENODEV (in a forked child). Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_kv_limit_set(struct glake_kv *kv, uint64_t bytes);

GLAKE_END_DECLS

#endif
