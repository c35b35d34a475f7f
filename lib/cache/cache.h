/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_CACHE_H
#define GLK_CACHE_CACHE_H

/*
 * The face of this folder: the blocks of one GPU. It turns a request into a live extent with
 * pages behind it, picks the pages, orders streams, climbs the ladder when memory is short,
 * and takes blocks back.
 *
 * Threads	any thread may call any function. A request that finds a block of its size in
 *		the quick bins of its stream takes no lock (bin/), and no question about a live
 *		block does (block.c, pin.c); for the others one lock a GPU guards the tables
 *		below, so GPUs never wait for each other
 * Start	nothing is reserved before the first request of a GPU
 */
#include "cache/arena/arena.h"
#include "cache/bin/row.h"
#include "cache/bin/seat.h"
#include "cache/refusal.h"
#include "cache/rest.h"
#include "cache/survey.h"
#include "move/move.h"

/*
 * block.c. A block that guard keeps when it is freed is in its hands as if it were in a bin. It is booked as freed before
 * guard lets others see it; and as given again: false, with nothing done, while the GPU is suspended. A stream, by its number, is put behind
 * all that uses such a block, with the one that it was freed on: 0; -EAGAIN: one cannot be waited for at present; or the
 * driver's error. And it goes back, behind a stream. One that was freed on a stream whose serial number is another one
 * now, or with 0, is behind what is known of its own streams.
 */
void glk_guarded_keep(struct glk_cache *cache, struct glk_extent *e);
/* Whether one that is claimed was used on a stream alone, as far as the program told. */
bool glk_guarded_only_on(const struct glk_extent *e, uint32_t stream);
bool glk_guarded_again(struct glk_cache *cache, struct glk_extent *e);
int glk_guarded_order(struct glk_cache *cache, struct glk_extent *e, uint32_t freed_on,
	uint64_t serial, uint32_t behind);
void glk_guarded_release(
	struct glk_cache *cache, struct glk_extent *e, uint32_t on, uint64_t serial);
/* intact.c: whether contents of blocks that are away are what they were, as far as they have a hash (tier.verify) or are
 * encrypted. Frees and fetches of a block wait while it is looked at. 0, or -EIO (class CORRUPT) with the first one. Adds to *ret. */
int glk_cache_check_away(struct glk_cache *cache, uint64_t *ret);
/* sampled.c: the arena of such blocks; NULL: there is none yet. Any thread. */
struct glk_arena *glk_cache_sampled(const struct glk_cache *cache);
/* miss.c: whether guard is to see every request, so that none is a hit; and the same under the lock. */
void glk_cache_guard(struct glk_cache *cache, bool every);
void glk_cache_guard_held(struct glk_cache *cache, bool every);

/* device.c. 0 or the driver's error; nothing is reserved yet. */
int glk_cache_init(struct glk_cache *cache, struct glk_drv *drv, struct glk_pool *pool,
	const struct glk_conf *conf, int device);
/* Ends the threads of a GPU, so that nothing is asked of the driver but by the caller. */
void glk_cache_still(struct glk_cache *cache);
/* A thread of what stands on the blocks of a GPU, which has to end before they do: `still` ends it, and is called
 * once, unless it was taken back before. */
struct glk_helper {
	struct glk_helper *other;
	void (*still)(struct glk_helper *helper);
};
void glk_helper_add(struct glk_cache *cache, struct glk_helper *helper);
/* Whether it was there: else it is ended, or about to be. */
bool glk_helper_take(struct glk_cache *cache, struct glk_helper *helper);
/* Gives all memory back; the GPU is idle. Says how many blocks were live. 0 or the first
 * error of the driver. */
int glk_cache_fini(struct glk_cache *cache, size_t *ret_live);

/* fill.c. Asks the driver how much of the GPU others hold, where policy.target goes by that. Not under
 * the lock. */
void glk_fill_ask(struct glk_cache *cache);
/* The part of the GPU, or of the budget, that is held, for policy.target; 0 where that is a number.
 * Under the lock. */
double glk_fill(struct glk_cache *cache);
/* What may be held beside so many live bytes, by policy.target, and by a small job at the least. Likewise. */
#define GLK_TARGET_LEAST (UINT64_C(16) << 20)
uint64_t glk_fill_above(struct glk_cache *gpu, uint64_t peak);
/* Ends what may be held beyond the target for requests that had trouble, until as many have it again. Likewise. */
void glk_fill_settle(struct glk_cache *gpu);
/* Whether streams may have arenas of their own: the job is small beside the GPU, half of which is free. `met`: those that
 * meet others, whose job may be larger. Likewise. */
bool glk_fill_is_roomy(struct glk_cache *gpu, bool met);
/* A request had trouble. Whether many had of late: each with it counts up by so much, and each other one that was no hit
 * counts down by one. So that is more than one in GLK_TROUBLE, for a while. */
#define GLK_TROUBLE	 16u
#define GLK_TROUBLE_MUCH 256u
static inline bool glk_trouble_note(struct glk_trouble *trouble, uint64_t served)
{
	uint32_t without = (uint32_t)served - trouble->at;

	trouble->at = (uint32_t)served;
	trouble->sum -= without < trouble->sum ? without : trouble->sum;
	trouble->sum += GLK_TROUBLE;
	return trouble->sum >= GLK_TROUBLE_MUCH;
}

/* arena/serve.c, block.c, dependency.c: contracts as in glake/memory.h and glake/stream.h. */
int glk_cache_alloc(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr);
int glk_cache_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);
/* A request that the quick bins do not serve: hit.h has those they do. */
int glk_cache_miss(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr) GLK_COLD;
int glk_cache_free_after(struct glk_cache *cache, uint64_t addr,
	struct CUevent_st *const *events, size_t count);
int glk_cache_use(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);
/* A stream has no more work, and its handle will not be used again. */
void glk_cache_stream_end(struct glk_cache *cache, struct CUstream_st *stream);
/* A stream is about to be destroyed by the program. */
int glk_cache_stream_leave(struct glk_cache *cache, struct CUstream_st *stream);
/* Dependencies between streams that the program made: see stream/note.c. */
int glk_cache_event_recorded(struct glk_cache *cache, const struct CUevent_st *event,
	struct CUstream_st *stream);
int glk_cache_stream_waited(struct glk_cache *cache, struct CUstream_st *stream,
	const struct CUevent_st *event);
void glk_cache_event_forget(struct glk_cache *cache, const struct CUevent_st *event);
int glk_cache_query(
	struct glk_cache *cache, uint64_t addr, struct glake_block *ret_block);

/*
 * graph/: pools of graphs, contracts as in glake/graph.h.
 */
struct glk_graph_begin {
	struct glake_pool_id id;
	glake_pool_filter_fn filter; /* NULL: for the capture of `stream` */
	void *arg;
	struct CUstream_st *stream;
	uint64_t capture; /* one that was not announced; 0: it is announced here */
};

int glk_graph_begin(struct glk_cache *cache, const struct glk_graph_begin *begin);
int glk_graph_end(struct glk_cache *cache, struct glake_pool_id id);
int glk_graph_release(struct glk_cache *cache, struct glake_pool_id id);
int glk_graph_get(
	struct glk_cache *cache, struct glake_pool_id id, struct glake_pool *ret);
/* As glake_pool_limit_set(). */
int glk_graph_limit(struct glk_cache *cache, struct glake_pool_id id, uint64_t bytes);
int glk_graph_hold(struct glk_cache *cache, struct glake_pool_id id);
int glk_graph_blocks(struct glk_cache *cache, struct glake_pool_id id,
	struct glake_pool_block *ret_blocks, size_t room, size_t *ret_count);

/* A block that a state has brought back, or one that was freed for it. */
struct glk_state_change {
	int64_t ns;	     /* when that was, see glake/trace.h */
	uint64_t addr, size; /* size as asked for; 0: it was freed */
	struct CUstream_st *stream;
};

/* Called without locks, for each change, when all are made. */
typedef void (*glk_state_fn)(const struct glk_state_change *change, void *arg);

/* `fn` may be NULL. */
int glk_graph_restore(struct glk_cache *cache, struct glake_pool_id id,
	const struct glake_pool_block *blocks, size_t count, glk_state_fn fn, void *arg);
/* A rung of the ladder has helped. Under the lock. */
static inline void glk_cache_climbed(struct glk_cache *cache, enum glake_rung rung)
{
	cache->rungs[rung]++;
	GLK_PROBE2(rung, cache->device, (int)rung);
}

/*
 * pin.c: blocks whose memory leaves the process. A pinned block keeps its addresses and its
 * pages until it was unpinned as often, also when it is freed meanwhile.
 */
struct glk_pin {
	const struct glk_range *range;
	uint64_t base, size;  /* address; bytes asked for */
	uint32_t first, last; /* slots */
	uint32_t count;	      /* pages */
	/* The page that was asked for last, and the first slot behind it. */
	uint32_t asked, behind;
};

/* The live block that begins at an address, or with `inside` the one that holds it. 0; -EINVAL
 * as glake_free(); -ENOMEM (class LIMIT): pinned too often. */
int glk_cache_pin(
	struct glk_cache *cache, uint64_t addr, bool inside, struct glk_pin *ret_pin);
/* A page of it: a glk_share_page_fn. In order each is a step from the one before. No lock: a pinned
 * block keeps its pages. */
struct glk_share_page glk_pin_page(void *pin, size_t i);
/* Once less, for the block that holds an address, live or freed. 0 or -EINVAL. */
int glk_cache_unpin(struct glk_cache *cache, uint64_t addr);
/* The pin of a block that is out already, freed or not; it is out no longer by that. 0 or
 * -EINVAL. */
int glk_cache_pinned(struct glk_cache *cache, uint64_t addr, struct glk_pin *ret_pin);
/* elastic.c. The same for a portion of an elastic block, all of which is to be committed and here, in pages of the GPU: -EBUSY,
 * -EOPNOTSUPP. The block does not move while any is out; what is committed there is for the caller to leave alone. */
int glk_cache_pin_portion(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portion, struct CUstream_st *stream,
	struct glk_pin *ret_pin);
void glk_cache_unpin_portion(struct glk_cache *cache, uint64_t addr);
/* pin.c. Other processes may have its pages mapped from now on, until these go back to the driver. */
void glk_pin_mark(struct glk_pin *pin);

/* beside.c, under the lock: a request of an arena, that of the GPU or of a tag, for which the GPU has no room
 * is served with memory of the host, if the configuration has it so. `err` is what it was answered; that,
 * or 0, or another error. */
int glk_beside_serve(struct glk_arena *arena, const struct glk_request *request, int err,
	struct glk_seat *seat, uint64_t *ret_addr);
/* Whether another GPU lends memory, as the configuration has it, to requests for which there is no room, and to
 * contents that go away. */
void glk_beside_lend(struct glk_cache *cache, bool place, bool away);
/* reserve.c, likewise. Gives so many bytes of the host back that nobody uses; whether there were any. Gives the lock up
 * meanwhile. */
bool glk_beside_release(void *cache, uint64_t bytes);
/* Idle pages of the host that lie among the addresses of the GPU's own blocks and of those with a tag, where no
 * new one finds a place, go to their list, all that may. Gives the lock up meanwhile. */
void glk_beside_leave(struct glk_cache *cache);

/* managed/chunk.c, in a plan: chunks of managed memory without blocks go, if the GPU can be waited for.
 * Gives the lock up meanwhile. 0 or the driver's error. */
int glk_managed_trim(struct glk_cache *cache);
/* managed/say.c: contracts as in glake/managed.h; `size` 0 is the rest of the block. Ask: as the driver,
 * -ENOENT without a record. */
int glk_cache_managed_say(struct glk_cache *cache, uint64_t addr, uint64_t size,
	enum glk_managed_say what, struct glk_place place);
/* managed/say.c: an address went to and fro between processors, of which bit n is GPU n and bit 63 the
 * host, at a time by CLOCK_MONOTONIC_RAW: what was before the block there does not count. It may be
 * anybody's. Without the lock; for a few calls of the driver, and keeps the record of the thread. */
void glk_cache_managed_ease(
	struct glk_cache *cache, uint64_t addr, uint64_t processors, int64_t since_ns);
int glk_cache_managed_ask(struct glk_cache *cache, uint64_t addr, uint64_t size,
	enum glk_managed_ask what, struct glk_place *ret_place);
int glk_cache_managed_prefetch(struct glk_cache *cache, uint64_t addr, uint64_t size,
	struct glk_place place, struct CUstream_st *stream);

/* asked.c, advice.c, quiet.c, suspend.c: contracts as in glake/tier.h. */
int glk_cache_spill(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);
int glk_cache_fetch(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);
/* Either of the two, for a portion of the block, NULL for all of it, and what a ticket has to know of
 * it; NULL: there is none. */
int glk_cache_move(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	bool to_gpu, const struct glk_portion *portion, struct glk_told *ret_told);
/* The second of the two for many portions, of which none lies in another. Of an elastic block they may have large pages. */
int glk_cache_have(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	const struct glk_portion *portions, size_t count, bool large);
/* elastic.c: contracts as in glake/elastic.h; *ret_bytes is written with -ENOMEM of the first too. */
int glk_cache_elastic(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr);
int glk_cache_commit(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portions, size_t count, struct CUstream_st *stream,
	uint64_t *ret_bytes);
/* The same without asking the program for room; what it had no room for. And asks, where the program may be: then it is
 * worth another try. Without a lock. */
#define GLK_COMMIT_INSISTS 0x1u /* it has that of cold blocks too */
#define GLK_COMMIT_LARGE                                                                 \
	0x2u /* large pages lie in it, as often as they fit and as there are */
int glk_elastic_commit(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portions, size_t count, struct CUstream_st *stream,
	uint32_t how, uint64_t *ret_wants);
/* And the bytes that exist no more, of those that went: what is shared stays elsewhere. Both are written with an error
 * too. A portion is what of it went, after 0: one that begins in a page which what lies before it needs is cut. */
int glk_elastic_decommit(struct glk_cache *cache, uint64_t addr,
	struct glk_portion *portions, size_t count, struct CUstream_st *stream,
	uint64_t *ret_bytes, uint64_t *ret_freed);
/* Portions go to the host, of which nobody has any (glk_cache_pin_portion); with `sealed` what is sealed of them, which
 * stays otherwise. 0 also where nothing is there; after an error some of it has gone. */
int glk_elastic_send(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portions, size_t count, bool sealed,
	struct CUstream_st *stream);
bool glk_elastic_ask(struct glk_cache *cache, uint64_t wants, struct CUstream_st *stream);
int glk_cache_decommit(struct glk_cache *cache, uint64_t addr,
	const struct glk_portion *portions, size_t count, struct CUstream_st *stream,
	uint64_t *ret_bytes);
/* seal.c: as glake_commit_shared(), with portions that are committed before, and copies in stream order, between ranges
 * that are here then; all or none. */
struct glk_sharing {
	uint64_t from, to, bytes; /* from the beginning of the block */
};
struct glk_shares {
	const struct glk_sharing *pages, *copies;
	size_t count, copied; /* of either */
	const struct glk_portion *own;
	size_t owned;
	uint32_t how;	     /* as of glk_elastic_commit(), */
	uint64_t *ret_wants; /* likewise, where some are owned */
};
int glk_cache_share(struct glk_cache *cache, uint64_t addr,
	const struct glk_shares *shares, struct CUstream_st *stream);
/* Of each portion, of whole slots, the bytes from its beginning on that end with a page: what may be shared of it. */
int glk_cache_whole(struct glk_cache *cache, uint64_t addr, struct glk_portion *portions,
	size_t count);
/* Whether any page of one side of a pair of ranges is that of the other side, here or on the host. */
int glk_cache_is_shared(struct glk_cache *cache, uint64_t addr,
	const struct glk_sharing *ranges, size_t count, bool *ret_is);
/* dedup.c: contracts as glake_seal() and glake_unseal() for an elastic block. *ret has its size; it is written after an
 * error too. `lessee`: NULL, there is no broker. */
int glk_cache_seal(struct glk_cache *cache, struct glk_lessee *lessee, uint64_t addr,
	struct CUstream_st *stream, uint64_t rate, struct glake_sealed *ret);
int glk_cache_unseal(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);
/* How much of all live blocks on the GPU is there more than once, in parts of `grain` bytes, as far as numbers tell.
 * Blocks are claimed while they are read, one after the other. 0, or as glake_alike(). */
int glk_cache_likeness(
	struct glk_cache *cache, size_t grain, uint64_t rate, struct glake_likeness *ret);
/* rows.c: work that is queued on the stream reads whole pages of an elastic block wherever their contents lie. */
struct glk_rows {
	struct glk_portion portion;
	/* Of each GLK_ROWS bytes where they lie, for a GPU; 0: nothing is committed there. Of the same memory each time it
	 * is read by the work of one call after the other. */
	uint64_t *places;
	struct glk_use *read; /* by the work of the last one; streams 0: there was none */
	/* Queues the work. Without the lock. 0 or an error. */
	int (*launch)(void *arg);
	void *arg;
};
#define GLK_ROWS ((uint64_t)256 << 10)
/* 0, or as glake_fetch_range(). */
int glk_cache_rows(struct glk_cache *cache, uint64_t addr, const struct glk_rows *rows,
	struct CUstream_st *stream);
int glk_cache_quiet(struct glk_cache *cache, struct glake_returned *ret);
int glk_cache_suspend(
	struct glk_cache *cache, bool in_place, struct glake_suspended *ret);
int glk_cache_resume(struct glk_cache *cache, bool lazy, struct glake_suspended *ret);
/* suspend.c. What a GPU has away in memory of another one goes to the host, and that memory back. 0; -ENOMEM,
 * -EBUSY (a block is in the hands of another call), or the driver's error, with the rest where it was. */
int glk_cache_vacate(struct glk_cache *cache);
/* A GPU lends no more, or again unless it is suspended. */
void glk_cache_lend(struct glk_cache *cache, bool on);

/* hostpool.c: contracts as in glake/host.h. The stream is of this GPU, the pool any one's; -ENOENT without a
 * record where it has no live block there. */
int glk_cache_host_alloc(
	struct glk_cache *cache, uint64_t size, uint64_t align, uint64_t *ret_addr);
int glk_cache_host_use(struct glk_cache *cache, struct CUstream_st *stream,
	struct glk_hostpool *pool, uint64_t addr);

/*
 * tag/: contracts as in glake/tag.h, for a tag that a number is given to and taken from on each GPU; that
 * gets figures. By one thread at a time for each.
 */
int glk_cache_tag_open(struct glk_cache *cache, uint32_t id);
int glk_cache_tag_close(struct glk_cache *cache, uint32_t id);
int glk_cache_tag_get(struct glk_cache *cache, uint32_t id, struct glake_tag *ret);
int glk_cache_tag_limit(struct glk_cache *cache, uint32_t id, uint64_t bytes);
/* managed/chunk.c: what the driver gave for a range of managed memory, in which a live block lies; false: it is none. */
bool glk_managed_piece(const struct glk_cache *cache, const struct glk_range *range,
	uint64_t *ret_addr, uint64_t *ret_size);

/* What guard keeps of a tag: by its id, NULL where it is not open; by its number from 0 with its arena, NULL where there are
 * no more; and of an arena, NULL where it is of no tag. Any thread. */
struct glk_tag_guard {
	glk_atomic(int) level;	    /* its security.level, and 1; 0: that of all */
	glk_atomic(int) mode;	    /* its guard.mode */
	glk_atomic(void *) records; /* by the number of an extent; NULL: none yet */
};
struct glk_tag_guard *glk_cache_tag_guard(struct glk_cache *cache, uint32_t id);
struct glk_tag_guard *glk_cache_tag_guard_at(
	struct glk_cache *cache, int number, struct glk_arena **ret_arena);
struct glk_tag_guard *glk_arena_tag_guard(struct glk_arena *arena);
int glk_cache_tag_suspend(struct glk_cache *cache, uint32_t id, uint32_t flags,
	struct glake_suspended *ret);
int glk_cache_tag_resume(
	struct glk_cache *cache, uint32_t id, struct glake_suspended *ret);

/* ladder.c: the function that makes room; NULL: none, and the one before is not running any more. */
void glk_cache_shortage(struct glk_cache *cache, glake_shortage_fn fn, void *user);

/* prefetch.c, under the lock: carries a hint out, or drops it, inside of glk_plan_enter(); false: none can be now. Gives
 * the lock up meanwhile. And with the GPU. */
bool glk_prefetch_carry(struct glk_cache *cache);
void glk_prefetch_fini(struct glk_cache *cache);
/* As glake_prefetch(); *t is the ticket, whose number is set; NULL: none is wanted. */
int glk_cache_prefetch(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	int64_t deadline, int priority, struct glk_ticket *t);
/* As glake_ticket_cancel(). */
int glk_cache_prefetch_cancel(struct glk_cache *cache, const struct glk_ticket *t);
/* Carries out what can be; without the lock, and keeps the record of the thread. */
void glk_prefetch_pump(struct glk_cache *cache);

/* watching.c: how far it is, by asking the GPU; *t is what it was and what it is then. 0 or the driver's
 * error. */
int glk_cache_ticket_look(struct glk_cache *cache, struct glk_ticket *t);
/* As glake_ticket_wait(). */
int glk_cache_ticket_wait(struct glk_cache *cache, struct glk_ticket *t, int64_t ns);

/* survey.c: takes the lock for a bounded number of steps at a time. */
void glk_cache_survey(struct glk_cache *cache, struct glk_survey *ret_survey);

/* figures.c */
void glk_cache_figures(struct glk_cache *cache, struct glake_stats *ret_stats);
/* Under the lock: bytes of pages that are in the hands of requests, and on their way. */
uint64_t glk_cache_in_flight(const struct glk_cache *cache);
void glk_cache_reset_peaks(struct glk_cache *cache);

/* runs.c: as glake_map(), not much further than to an address. */
int glk_cache_walk(
	struct glk_cache *cache, uint64_t from, uint64_t to, glake_run_fn fn, void *arg);

/* refusal.c: a request was answered -ENOMEM, with a record. Without the lock. */
void glk_refusal_note(struct glk_cache *cache, const struct glk_request *request,
	const struct CUstream_st *stream, bool graph) GLK_COLD;
/* The last one in words, into GLK_REFUSAL_TEXT bytes. 0, or -ENOENT without a record. */
int glk_refusal_text(struct glk_cache *cache, int form, char *buffer, size_t *ret_length);

/* peer.c: as glake_peer_access(). */
int glk_cache_peer(struct glk_cache *cache, int peer, bool on);
/* Under the lock: some GPUs keep rights on pages that they should not have, a bit each (cache->rights_left); and in
 * closed plans: they lose them, as far as the driver takes them. */
void glk_peer_stays(struct glk_cache *cache, uint64_t gpus);
void glk_peer_settle(struct glk_cache *cache);

/* trim.c: as glake_trim(); or of memory of the host only what is lent goes, to its lender, and the rest is kept for the
 * next time. */
int glk_cache_trim(
	struct glk_cache *cache, uint64_t keep, bool lent, uint64_t *ret_released);
/* trim.c: so many bytes of the GPU for another process: what lies idle; and before `until`, which may be 0, what the
 * program frees when it is asked, and cold blocks. That waits for the GPU. */
void glk_cache_give(struct glk_cache *cache, uint64_t bytes, int64_t until);
/* Gives the idle pages of an arena back that are ready to go. Under the lock. 0 or the driver's error. */
int glk_trim_ready(struct glk_arena *arena);

#endif
