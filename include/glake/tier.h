/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_TIER_H
#define GLAKE_TIER_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct glake_ticket;
struct CUstream_st;

/*
 * Contents beyond the GPU. A block that is *away* has its contents in memory of the host,
 * near its GPU, or of another GPU (tier.away), and keeps its addresses; the memory that was behind them serves other
 * requests. Until it was fetched it must not be used: what lies behind its addresses
 * meanwhile is undefined, or nothing, and work on the GPU that touches it may fail as it
 * does for memory that was freed. It may be freed while it is away. glake_query says
 * whether a block is (away), glake_stats_get how much is.
 *
 * A block may also lie in memory of the host *in place*: with the key tier.place=host a
 * request for which the GPU has no room, on any rung, is given that; and all blocks lie there
 * after glake_suspend_in_place. Kernels use it where
 * it is, over the link, and so may copies; it is freed, queried and marked with streams
 * like any other, and cannot leave the process. It stays where it is until it is freed, or
 * until the program has it on the GPU: one by glake_fetch, all that there is room for by
 * glake_quiet. Nothing moves behind a running program. What has come to the GPU is a block
 * like others; its memory is the GPU's again when it is freed. Pools of graphs have memory
 * of the GPU alone, and so have contiguous blocks, which are for others to use. glake_query
 * says how many bytes of a block are on the host (placed), glake_stats_get of all.
 *
 * With tier.place=peer the GPU of tier.peer lends its memory to the others of the process: what is
 * placed lies there as long as that has room (tier.peer_room, its budget), and on the host beyond,
 * and is used over the link between the GPUs. All that is said of memory of the host in place holds
 * for it, figures tell it apart (placed_peer, borrowed, lent). A GPU that cannot reach the other one
 * has nothing lent, which a warning says when the context is opened; one that refuses a page is not
 * asked again, and one whose driver has no memory for a second, or until some of it has gone back there. When the
 * lender is lost, what lies there is lost with it. It has memory back that
 * idles with the others when they are trimmed, and at the beginning of each of its own suspensions and
 * of their ends. While it is suspended it lends nothing more; what others use of it then stays, and counts
 * as stayed, in no block.
 *
 * With tier.away=peer what goes away lies in memory that the GPU of tier.peer lends, in pieces of 64 MiB,
 * as long as that has room, the same as for what is placed; and on the host beyond, a content in both if it
 * must. It goes and comes over the link between the GPUs, on streams of its own GPU. Wherever contents in
 * memory of the host are spoken of here, these are meant too, but: they are neither hashed (tier.verify) nor
 * compressed, nor is a content of which a part lies there; and they are lost with the lender. What the
 * lender's driver refuses goes to the host; after a refusal or the loss of the lender it is not asked again,
 * which a warning says, and after another error not for a second, or until memory of it has gone back to the driver. glake_query says how much of a block is there (away_peer), glake_stats_get how much of
 * a GPU (store_peer, store_peer_used, borrowed, lent). Memory that is lent and that nothing lies in any more
 * serves the next contents, until glake_trim of the GPU that has it. What a suspended GPU has there
 * stays there. A lender that is suspended has what lies there moved to the host first, each content over the
 * link of its GPU; what the host has no room for, another call has in its hands, or is on the host in part and
 * not what it was there (tier.verify), stays where it is and is had back from there, and the pieces that it lies
 * in count as stayed.
 *
 * Blocks of up to an eighth of pool.small_page (256 KiB), which share their pages with
 * others, do not move but by glake_quiet, glake_suspend_in_place and the end of that; those with a
 * tag (glake/tag.h) go away with it, and by both suspensions of the GPU. Nor do blocks that are out
 * (glake_export, glake_dmabuf), nor those of pools of graphs.
 *
 * A large content (io.least) goes and comes back over the links of other GPUs too, where they lend
 * theirs (io.lend): by glake_spill, glake_fetch, glake_prefetch, glake_suspend, glake_resume and
 * where others need the room. As in glake/copy.h, what one path is refused goes another way, and the
 * driver is asked about the memory and the stream, and called for each piece. So does what goes to the host in
 * place and what comes from there, by glake_suspend_in_place, glake_resume, glake_fetch and glake_quiet, 256 MiB
 * at a time: the GPUs that lend are given rights on those pages of the host meanwhile, and lose them
 * afterwards, by a call of the driver for each; where the driver refuses that a warning says so, and it is asked
 * again by glake_quiet, glake_trim and suspensions. Memory that tier.peer lends comes over the link between the two.
 *
 * With tier.compress=lz4 contents that are away and have rested for a while are compressed by a thread of the
 * library, and take less memory of the host; who has them back waits until they are what they were, as the
 * manual of that key says. What is compressed goes back over the link of its own GPU, and counts in packed
 * and packed_held of glake_stats_get. Where it changed meanwhile that is found, as with tier.verify.
 *
 * Another call about a block that is being moved, a free for one, waits until it has been.
 *
 * A block may be away *in part*: by glake_spill_range, or since glake_fetch_range has had a part of one
 * back that is away. What is here of it is used as ever, what is away as told above; glake_query says
 * how many of its bytes are (away), and glake_map which. For all other calls it is a block: glake_spill
 * and a suspension, of the GPU or of its tag, send what is here, glake_fetch and glake_prefetch have
 * all of it back, or after an error some of it, the end of a suspension what went by that; one that was
 * said to be cold goes with what is here of it. glake_suspend_in_place puts what is here on the host in
 * place, from where it comes as other blocks do, but by a glake_fetch only when nothing of the block is
 * away; what is away stays so. While a part is away the block is neither pinned nor exported.
 */

/*
 * Sends the contents of a block away, as they are behind all work queued so far on
 * `stream`, on the stream of its allocation and on those of glake_use. Its memory serves
 * others from then on, on other streams behind the copy. A request of another thread that finds
 * no room while the call is under way waits for its memory (spill_waits in glake_stats_get).
 *
 * ptr		as glake_alloc gave it
 * stream	of that GPU
 *
 * Returns 0, or -EALREADY (BUSY: it is away, or all that is here of it in memory of the host in
 * place), -EINVAL (as glake_free; too small to move), -EBUSY (BUSY: it is out, or of a pool of graphs;
 * CAPTURE: one of those streams captures a graph), -ENOMEM (LIMIT: tier.host; NOMEM_HOST),
 * -ESTALE, -EIO, -ENODEV (device lost, or in a forked child). After an error the block is
 * where it was.
 * Thread: any. Blocks: for the lock of the GPU, and, where more memory of the host has to
 * be locked, for that: 100 to 250 ms per GiB. For the GPU only where a stream that used the
 * block has ended unannounced, or has no event for the time being, as that of another thread may (memory.h).
 * Driver calls: stream waits, event records and copies; the first time two new streams; with tier.away=peer reserve,
 * create, map and set_access for each 64 MiB that are lent; where needed
 * locks memory of the host, which short-lived threads of the library touch before
 * (tier.host_reserve has it ready), and gives idle pages of the host back.
 */
GLAKE_EXPORT int glake_spill(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/*
 * Has a block back at its addresses. Work queued on `stream` from then on may use it; other
 * streams have to be ordered behind that by the program, also the one of its allocation.
 * When it is freed, `stream` counts as one that glake_use named.
 *
 * A block that lies on the host in place comes to the GPU, behind all work queued so far on
 * `stream`, on the stream of its allocation and on those of glake_use; nothing else may use
 * it until the call returns. Pages that it shares with other blocks, at its ends, stay on
 * the host, with up to 2 MiB (pool.small_page) of it at each: glake_quiet moves those too.
 *
 * Returns 0, or -EALREADY (BUSY: it is here), -ENOMEM, -EBUSY (as glake_alloc; `stream`
 * captures a graph; BUSY: it is on the host and out, or shares all that it has there),
 * -EAGAIN (the GPU is suspended), -EINVAL (as glake_free), -ESTALE, -EIO (CORRUPT: it is away, and not what
 * it was, see tier.verify, tier.compress; it may be freed), -ENODEV. After an
 * error the block is where it was, or where its pages lay between others that were on the
 * GPU already, in part on the GPU. If the driver, after it has refused to map the new pages,
 * refuses the old ones too, what lay in them is lost, which a warning says.
 * Thread: any. Blocks: as glake_alloc for a block of that size; not for the copy, but for
 * one that lies on the host in place until the copy has finished, and for what was compressed
 * (tier.compress) until all but the last 32 MiB of it are on their way. Driver calls: as
 * glake_alloc, and stream waits, event records and copies; for one in place also waits, and
 * map, set access and unmap.
 */
GLAKE_EXPORT int glake_fetch(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/*
 * Sends the contents of a range of a block away, as glake_spill does all of it: of each page of
 * pool.small_page of which all that the block has there lies in the range. What is away already stays
 * as it is. The memory behind a page serves others from then on; that of a large one (pool.large_page)
 * once all of it is away, and that of a page at an end of the block which others share, with those.
 * Ranges may go and come in any order, and overlap. Functions that are told of moves are told of the
 * block.
 *
 * ptr		as glake_alloc gave it
 * offset	bytes, from the beginning of the block
 * bytes	of the range, which may be all of the block
 * stream	of that GPU
 * ret_ticket	as of glake_spill_ticket; NULL if nobody wants to know
 *
 * Returns 0, or as glake_spill, -EALREADY (BUSY: all of it is away), -EINVAL (no bytes, or beyond the
 * end of the block; it holds no whole page; the block is contiguous, and the range not all of it),
 * -EBUSY (BUSY: the block lies in memory of the host in place in part), -EOPNOTSUPP (UNSUPPORTED:
 * managed memory: see glake_managed_prefetch), -ENOMEM (LIMIT: 65536 blocks of the GPU are away in
 * part). After an error all is as it was.
 * Thread: any. Blocks: as glake_spill for a block of that size. Driver calls: those of glake_spill, a
 * copy for each stretch of pages that is here.
 */
GLAKE_EXPORT int glake_spill_range(struct glake *ctx, void *ptr, size_t offset,
	size_t bytes, struct CUstream_st *stream, struct glake_ticket **ret_ticket);

/*
 * Has a range of a block back, as glake_fetch all of it: each page of which the range has a byte. What
 * is here stays as it is. A block that lies on the host in place comes to the GPU as by glake_fetch,
 * and a contiguous one as a whole. Memory of the host that lay behind what has come serves others, but
 * for up to 256 KiB at each end. With tier.verify all that went together with it is hashed. With
 * tier.compress all of that becomes what it was in memory of the host first, for which tier.host has to
 * have room, by as many threads as glake_fetch has for it, and what stays away is not compressed again.
 *
 * offset, bytes	as above
 * ret_ticket	as of glake_fetch_ticket; NULL if nobody wants to know
 *
 * Returns 0, or as glake_fetch, -EALREADY (BUSY: all of it is here), -EINVAL (no bytes, or beyond the
 * end of the block), -EOPNOTSUPP (as above), -ENOMEM (likewise; as glake_spill where a content that is
 * compressed has no room). After an error stretches of the range may be here that were away.
 * Thread: any. Blocks: as glake_fetch for a block of that size; for a content that was compressed also
 * as glake_spill for memory of the host, and until copies to the host that were queued before for blocks
 * freed since have finished, where it has their memory. Driver calls: those of glake_fetch, for each
 * stretch of pages that is away, and those for memory of the host.
 */
GLAKE_EXPORT int glake_fetch_range(struct glake *ctx, void *ptr, size_t offset,
	size_t bytes, struct CUstream_st *stream, struct glake_ticket **ret_ticket);

/* What a program says of a block. */
enum glake_advice {
	GLAKE_ADVICE_NORMAL = 0, /* it is used, as far as is known */
	/* It will not be used for a while: it may be sent away when the GPU has no room. */
	GLAKE_ADVICE_COLD,
	GLAKE_ADVICE_PINNED, /* it stays where it is: somebody knows its memory */
	/* What is in it may be lost when it goes away because of a suspension, of its tag or of the GPU, or
	 * for want of memory: nothing is copied then, and what it reads afterwards is undefined. */
	GLAKE_ADVICE_DISCARDABLE = 4, /* a bit, beside COLD or for itself */
};

/*
 * Says what a block is for, until the next advice.
 *
 * A cold block is sent away, as by glake_spill, when a request finds no room on the GPU on any
 * rung: before it is refused, or given memory of the host by tier.place; those first that were
 * said to be cold first, and as many as the request lacks, as far as tier.host allows; none where
 * their bytes together are fewer than it lacks. So from the advice on it must not be used before
 * glake_fetch was called for it, which ends the advice: -EALREADY then says that it was here all
 * the time. Of those with a lower priority (glake_advise_priority) all go before the next, and of equals
 * the discardable first. For a glake_fetch itself none goes. Blocks that glake_spill refuses may be called
 * cold, and stay, and so do those that were born on the host, by tier.place. A pinned block moves neither by glake_spill, glake_fetch from
 * the host, glake_quiet or glake_suspend nor as a cold one would: for memory that somebody has
 * registered, as NCCL and network cards do. One that is away may be fetched. Where several parts of a
 * program depend on it, each pins it for itself: glake_pin.
 *
 * A discardable block may lose its contents when it goes because of a suspension, and with
 * GLAKE_ADVICE_COLD as one bit more also when others need the room; glake_spill keeps them. glake_query
 * says of one that is away whether it has (dropped). There is no advice for a block that is used
 * often: whoever says nothing keeps it on the GPU.
 *
 * ptr		as glake_alloc gave it
 * advice	GLAKE_ADVICE_...
 *
 * Returns 0, or -EINVAL (as glake_free; no such advice), -EBUSY (BUSY: it is of a pool of
 * graphs), -ENOMEM, -ESTALE, -EIO, -ENODEV (device lost, or in a forked child). A refused call
 * changes nothing.
 * Thread: any. Blocks: for the lock of the GPU. Driver calls: none, but for two new streams the
 * first time that a block is cold.
 */
GLAKE_EXPORT int glake_advise(struct glake *ctx, void *ptr, int advice);

/* The highest priority; 0 is the lowest, and that of a block of which nothing was said. */
#define GLAKE_PRIORITY_MAX 7

/*
 * Says how much a program wants to keep a block on the GPU, against others that it calls cold: it goes
 * after those of lower priority, however long ago they were said to be cold. For the life of the block.
 *
 * priority	0 to GLAKE_PRIORITY_MAX
 *
 * Returns 0, or -EINVAL (as glake_free; no such priority), -EBUSY, -ENOMEM, -ESTALE, -ENODEV (all as
 * glake_advise). A refused call changes nothing.
 * Thread: any. Blocks: for the lock of the GPU. Driver calls: none.
 */
GLAKE_EXPORT int glake_advise_priority(struct glake *ctx, void *ptr, int priority);

/* What came back at a quiet point, and what did not. */
struct glake_returned {
	size_t sz;		  /* sizeof(struct glake_returned) */
	uint64_t returned;	  /* bytes of blocks that came to the GPU by this call */
	uint64_t returned_blocks; /* that have nothing on the host any more */
	uint64_t left; /* bytes of blocks that are on the host still, in place */
	uint64_t left_blocks;
};

/*
 * Says that the program is at a quiet point: that no block of a GPU which lies in memory of the
 * host in place is used, by the GPU or by threads, until the call returns, but by work that was
 * queued before. As many of them come to the GPU as it has room for, small ones too, at the same
 * addresses; the largest first, in parts of 256 MiB, so that a block may come in part. What shares
 * a page with others that are freed or asked about at that moment, or with blocks that are out or
 * pinned, stays. A good place is the end of a step. Where nothing lies on the host nothing is moved.
 *
 * ret_done	what this call did, also one that fails half way; NULL if nobody wants to know
 *
 * Returns 0, also when there was no room for any, or -EBUSY (CAPTURE: a stream captures a graph,
 * also where nothing is to be moved), -EAGAIN (the GPU is suspended), -EIO, -EINVAL (device), -E2BIG
 * (ret_done), -ESTALE, -ENODEV. After an error each block is where it was or on the GPU.
 * Thread: any; other threads that request memory of the GPU and miss wait meanwhile. Blocks: until
 * the GPU has finished its work, and the copies. Driver calls: waits for the GPU; those of
 * glake_alloc, a copy, map, set access and unmap for each part; the first time two new streams.
 */
GLAKE_EXPORT int glake_quiet(
	struct glake *ctx, int device, struct glake_returned *ret_done);

/* What a suspension did, or its end. */
struct glake_suspended {
	size_t sz;	/* sizeof(struct glake_suspended) */
	uint64_t moved; /* bytes of blocks that went, or came back */
	uint64_t moved_blocks;
	/* Bytes of blocks that may not move, or lie on the host in place, bytes that are lent, and those that pools of
	 * graphs hold. */
	uint64_t stayed;
	uint64_t stayed_blocks;
	uint64_t released; /* bytes of pages of the GPU that went back to the driver */
	uint64_t
		managed; /* bytes of managed memory, in pages of 2 MiB, sent to the host */
	uint64_t dropped; /* bytes of blocks that went without their contents */
	uint64_t dropped_blocks;
};

/*
 * Gives the memory of a GPU back to the driver and keeps all addresses: blocks go away, in
 * the order of all work queued so far, and pages are released. Small blocks without a tag, blocks that
 * may not move, and those that lie on the host in part, stay with the pages they lie in; the first
 * are not counted as stayed. Until glake_resume requests for memory and pools of graphs are answered
 * -EAGAIN; frees go on.
 *
 * Memory of the host is kept: what lies idle of it serves this suspension or a later one, until
 * glake_trim. What is for contents that are away (tier.host_reserve) is of another kind than what blocks
 * lie on in place (tier.place_reserve), and where tier.host has no room for both, idle memory of the one
 * goes back to the system for the other.
 *
 * Where the GPU lends its link (io.lend), the memory that copies of others go through there (io.staging)
 * stays if there is some, in no block, and is not counted as stayed; while it is suspended none is taken.
 *
 * The program's work on the GPU should have been queued before the call: a block that other
 * threads use meanwhile moves behind what they had queued when its turn came.
 *
 * ret_done	what this call did, also one that fails half way; NULL if nobody wants to know
 *
 * Returns 0, or -EBUSY (CAPTURE: a pool of graphs is open, or a stream captures a graph),
 * -ENOMEM (as glake_spill), -EIO, -EINVAL (device), -E2BIG (ret_done), -ESTALE, -ENODEV.
 * An error before the first block goes has changed nothing: one of the arguments, of the first use of a GPU
 * and the first move there, which makes streams for it, a capture found at the beginning, and a wait for the
 * GPU that failed; glake_resume is -EINVAL then. After any other the GPU is suspended, with some blocks
 * still here: a second call goes on, glake_resume takes all back. A second call when all are away does nothing.
 * Thread: any. Blocks: until the copies have finished, for which the GPU has to finish its
 * work, and for a lender that of the GPUs that have contents there. Driver calls: those of glake_spill for
 * each block, and unmap and release per page.
 */
GLAKE_EXPORT int glake_suspend(
	struct glake *ctx, int device, struct glake_suspended *ret_done);

/*
 * The same, but that blocks lie in memory of the host in place while the GPU is suspended, at their
 * addresses, small ones too: they are copied into pages of the host, which take the place of those of
 * the GPU. A suspension of that kind can end at once, by glake_resume_lazy, or by glake_resume.
 * Contiguous blocks and those with a tag go away, and so do all that are not small where the driver has
 * no memory of the host that can be mapped, which a warning says. The pages count against tier.host.
 *
 * From the beginning of the call to its end nothing may use the blocks of the GPU, by the GPU or
 * by threads, but work that was queued before. After it they may be used where they are, over the
 * link, also while the GPU is suspended. What shares a page with a block that is pinned or out, or
 * that another thread holds in its hands, stays. A block that went in place goes to no bin when it is
 * freed.
 *
 * Graphs that were captured over blocks, outside of their pools, know addresses alone, and their
 * kernels run wherever blocks lie. Copies in a graph were captured with both sides on the GPU: what
 * the driver makes of them while one lies on the host has not been measured (gpu/cycles tells).
 *
 * ret_done	as above; `moved` is what went to the host in place or away
 *
 * Returns 0, or -EBUSY (CAPTURE: a pool of graphs is open, or a stream captures a graph),
 * -ENOMEM (NOMEM_HOST: tier.host or the host has no room), -EIO, -EINVAL (device), -E2BIG
 * (ret_done), -ESTALE, -ENODEV. As after glake_suspend a second call goes on after an error, and
 * glake_resume and glake_resume_lazy end it: until then some blocks, or parts of them, are on the
 * host and the others still here, all at their addresses.
 * Thread: any. Blocks: until the copies have finished, for which the GPU has to finish its work, and
 * 5.6 GB/s for pages of the host that were not there before (tier.place_reserve has them ready).
 * Driver calls: for each block of two large pages or more, and for each 256 MiB of smaller ones, or 1024 of
 * them if that is less, a copy, waits, two unmaps, set access three times and more for many pages; each page
 * of the GPU is mapped once more and released, and each of the host mapped once; for pages that were not
 * there before those of glake_alloc; the first time two reservations of addresses.
 */
GLAKE_EXPORT int glake_suspend_in_place(
	struct glake *ctx, int device, struct glake_suspended *ret_done);

/*
 * Ends a suspension: all blocks that went away by it come back, and all that lie on the host in
 * place since this one or one before come to the GPU, but those that are pinned. Blocks that
 * glake_spill had sent away stay away; those that tier.place had put on the host stay there, but
 * for as much as there is room for where glake_suspend_in_place has moved them too. After
 * glake_suspend alone, what lay on the host in place before it comes as far as there is room, and the
 * rest stays there. The host keeps the memory they lay in for the next time, until glake_trim.
 *
 * ret_done	as above; `moved` is what came, `stayed` what lies on the host in place
 *
 * Returns 0 when all are back that have to be, or -ENOMEM (others have taken the memory, or what is lent
 * of it; or glake_suspend_in_place has put more on the host than the GPU has, what lay there before
 * included, which glake_resume_lazy leaves there), -EIO, -EBUSY
 * (CAPTURE: memory could be had behind a stream that captures a graph; BUSY: for a second or so
 * nothing came, since other calls have what is left in their hands), -EINVAL (device; it
 * is not suspended), -E2BIG, -ESTALE, -ENODEV. After -ENOMEM, -EIO and -EBUSY the GPU is
 * suspended still and some blocks are back: to be called again.
 * Thread: any. Blocks: until the copies have finished. Driver calls: those of glake_fetch
 * for each block.
 */
GLAKE_EXPORT int glake_resume(
	struct glake *ctx, int device, struct glake_suspended *ret_done);

/*
 * Ends a suspension without waiting for what lies on the host in place: that stays there, is used
 * there over the link, and comes to the GPU by glake_fetch, or as there is room by glake_quiet, or
 * is freed where it is. Until then it cannot leave the process, nor go away. Blocks that went away
 * come back as by glake_resume: all of them after glake_suspend, so that nothing is gained then.
 * New blocks are not given what is on the host. When a block that lies there is freed, its pages
 * of the host go to the next request of its kind, or to the system by glake_trim.
 *
 * ret_done	as above
 *
 * Returns 0, or -ENOMEM (after glake_suspend_in_place for contiguous blocks alone), -EIO, -EBUSY
 * (CAPTURE, BUSY: as glake_resume), -EINVAL (device; it is not suspended), -E2BIG, -ESTALE,
 * -ENODEV. After -ENOMEM, -EIO and -EBUSY the GPU is suspended still and some blocks are back: to be
 * called again.
 * Thread: any. Blocks: as glake_resume for blocks that went away; else not. Driver calls: those of
 * glake_fetch for each block that went away.
 */
GLAKE_EXPORT int glake_resume_lazy(
	struct glake *ctx, int device, struct glake_suspended *ret_done);

GLAKE_END_DECLS

#endif
