/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_REQUEST_H
#define GLK_CACHE_REQUEST_H

/*
 * A request that is no hit, on its way through the files of this folder. All under the lock of
 * the GPU.
 *
 *	serve.c		from beginning to end: place, pages, its entry in the tables
 *	place.c		where it finds its place
 *	small.c		the place of a small block
 *	order.c		which memory its stream may have, and behind what
 *	back.c		pages behind its place
 *	supply.c	where those pages come from
 *	trim.c		idle pages that go back
 *	../ladder.c	when there are too few, or there is no place
 */
#include "base/conf.h"
#include "cache/cache.h"

/* serve.c: serves a request, under the figures of a seat. `row`: that of its stream; NULL: freed,
 * it goes to no bin. */
int glk_arena_serve(struct glk_arena *arena, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr);
/* Pages for as many bytes as the request is rounded to, in the hands of the caller and linked in the order of
 * addresses: glk_page_next(). 0, or an error with everything undone. */
int glk_arena_pages(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_pages);
/* Pages behind an extent that has a place and stands on no slots, or not on those of the request's run,
 * with all that a request may do where memory is short. 0, or an error with everything undone. */
int glk_arena_back(struct glk_arena *arena, struct glk_request *request, uint32_t extent);
/* Slots of a block, on which it does not stand, have no mapping any more: waits for who is at them, and for the work on
 * what lay there. 0, -EBUSY (CAPTURE), -EIO. */
int glk_arena_clear(struct glk_arena *arena, uint32_t first, uint32_t last);
/* The same for what needs no wait; -EAGAIN without a record: some does. */
int glk_arena_clear_ready(struct glk_arena *arena, uint32_t first, uint32_t last);
/* What is tried for a request: a place with pages behind it. 0, or an error with everything undone. */
typedef int (*glk_try_fn)(
	struct glk_arena *arena, struct glk_request *request, uint32_t *extent);
/* cache/ladder.c: after a first try that failed, others after all there is to be done about that. What the
 * last one answered. */
int glk_ladder_place(struct glk_arena *arena, struct glk_request *request, glk_try_fn fn,
	uint32_t *extent, int err) GLK_COLD;

static inline int glk_request_somehow(struct glk_arena *arena,
	struct glk_request *request, glk_try_fn fn, uint32_t *extent)
{
	int err;

	arena->inside++;
	err = fn(arena, request, extent);
	if (err)
		err = glk_ladder_place(arena, request, fn, extent, err);
	if (request->climbs) {
		request->alone = request->climbs = false;
		glk_plan_climbed(arena->gpu);
	}
	arena->inside--;
	return err;
}

/* Whether freed blocks of a size go to bins. */
static inline bool glk_request_binned(const struct glk_cache *gpu, uint64_t size)
{
	return size <= gpu->conf->policy_bins;
}

/* Above the grain; 0: none that is not met anyhow. */
static inline uint64_t glk_request_align(const struct glk_request *request)
{
	return request->flags & GLAKE_ALLOC_CONTIGUOUS
		? 0
		: request->flags & GLAKE_ALLOC_ALIGN;
}

/* Bytes of a place that has room for it at its alignment, wherever that begins. */
static inline uint64_t glk_request_span(const struct glk_request *request)
{
	uint64_t align = glk_request_align(request);

	return request->rounded + (align ? align - GLAKE_GRAIN : 0);
}

/* Where it begins in such a place; a map begins at a multiple of a slot. */
static inline uint64_t glk_request_begin(
	const struct glk_request *request, uint64_t offset)
{
	uint64_t align = glk_request_align(request);

	return align ? (offset + align - 1) & ~(align - 1) : offset;
}

/* Whose pages a request is to have. */
static inline struct glk_node *glk_request_node(
	const struct glk_arena *arena, const struct glk_request *request)
{
	if (request->node)
		return request->node;
	return arena->ops->host ? arena->gpu->host : arena->map.node;
}
/* place.c. The place of a request, searched with what is known, and again with what the streams have to
 * tell if it would cost calls of the driver. More addresses are reserved where there is none. 0,
 * or -ENOMEM (class ADDRESS). */
int glk_place_seek(struct glk_arena *arena, struct glk_request *request,
	const struct glk_want *want, struct glk_fit *ret_fit);
/* small.c: a small block, in a slot with others of its kind. 0; -ENOSPC without a record: none of
 * those has room, and there may be no more of them; or an error. */
int glk_small_alloc(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_extent);

/* order.c. Whether `request` may have memory with this use, by the policies of the section stream, and
 * behind how many waits. */
bool glk_request_may(struct glk_arena *arena, const struct glk_request *request,
	const struct glk_use *use, unsigned *ret_waits);
/* For what has to be unmapped on behalf of a request. */
static inline struct glk_limbo glk_request_limbo(const struct glk_arena *arena)
{
	return (struct glk_limbo){.streams = &arena->gpu->streams,
		.patient = !arena->gpu->conf->stream_opportunistic,
		.closed = arena->ops->closed};
}
/* Orders its stream behind the use, with stream waits where needed, and changes the use to what
 * it is then. 0; -EAGAIN when one cannot be waited for at present, which is known from then on;
 * or the driver's error. */
int glk_request_order(
	struct glk_arena *arena, struct glk_request *request, struct glk_use *use);
/* The same for a page that is idle or free, and for the usable slots of a run. */
int glk_request_order_page(
	struct glk_arena *arena, struct glk_request *request, uint32_t page);
int glk_request_order_run(struct glk_arena *arena, struct glk_request *request,
	uint32_t first, uint32_t last);
/* For the search of a place: vetoes mappings that may not go yet, counts waits. */
struct glk_seek {
	struct glk_arena *arena;
	struct glk_request *request;
};
bool glk_place_check(struct glk_map *map, uint32_t first_slot, uint32_t last_slot,
	struct glk_fit *fit, void *arg);
/* Whether a part of a place among addresses of the GPU lies on the host, where no block is born but one that
 * gets pages of the host. */
bool glk_place_on_host(const struct glk_arena *arena, const struct glk_request *request,
	uint32_t first, uint32_t last);
/* By the policies of the section stream: the operations of arenas that have no policy of their own. */
bool glk_common_may(struct glk_arena *arena, const struct glk_request *request,
	const struct glk_use *use, unsigned *ret_waits);
int glk_common_order(
	struct glk_arena *arena, struct glk_request *request, struct glk_use *use);
/* The kind of arena that a GPU has for what is asked of it outside of graphs. */
extern const struct glk_arena_ops glk_arena_common;

/* back.c: puts pages behind a live extent and books it on its slots. 0, or an error with
 * everything undone but the extent. Gives the lock up where it calls the driver. */
int glk_back(struct glk_arena *arena, struct glk_request *request, uint32_t extent);

/*
 * supply.c: the pages of a request, all of them before the first is mapped. They are OWNED,
 * taken from where they were, in the order of the request's stream, and linked: glk_page_next().
 */
struct glk_supply {
	uint32_t page[GLK_CLASS_COUNT]; /* first page of each list; 0: none */
	uint32_t slots;			/* of small pages */
};

struct glk_need {
	uint32_t pages[GLK_CLASS_COUNT]; /* of each class */
	uint64_t other;			 /* bytes of one that is of none */
	bool whole;			 /* nothing stands in for them */
	enum glk_class
		least; /* of those that stand in for larger ones before small ones do */
	enum glk_class
		end; /* no others but small ones stand in for the last of this class; 0: there is none */
	bool tries; /* who asks has another way: no ladder is climbed for it */
};

/* 0, or -ENOMEM with a record of what was tried, and nothing taken. Smaller pages may stand in for
 * larger ones, as many as fill one. Gives the lock up meanwhile. */
int glk_supply_get(struct glk_arena *arena, struct glk_request *request,
	const struct glk_need *need, struct glk_supply *ret_supply);
/* Puts all pages that are left back to where the next request finds them. */
void glk_supply_put_back(struct glk_arena *arena, struct glk_supply *supply);
/* One try of glk_arena_pages(). */
int glk_supply_chain(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_pages);
/* The largest page that is left of so many slots or fewer. */
uint32_t glk_supply_pop(
	struct glk_arena *arena, struct glk_supply *supply, uint32_t slots);

/* Whether so many bytes of pages more, for a request, are within what may be held, and that is far above what is live. */
bool glk_supply_is_plenty(const struct glk_arena *arena, uint64_t size, uint64_t bytes);
/* The class of the largest pages that are made for a request that may have those of `least`: it falls with the most
 * that was ever live on the GPU. */
enum glk_class glk_supply_largest(const struct glk_arena *arena, enum glk_class least);
/* Bytes that may be held, with a request of so many more, before memory is looked for more
 * closely. */
uint64_t glk_supply_target(struct glk_cache *gpu, uint64_t size);

/*
 * trim.c, which gives the lock up meanwhile. Pages that stay since work on them is under way: so much of it as
 * makes room, when it is done. What many streams were in is left unless it is asked for.
 */
struct glk_late {
	struct glk_work work;
	uint64_t bytes;
	bool many, left;
};
/* Pages that nobody uses: free ones first, then idle ones of any size, from so many groups of 64 slots at most.
 * The bytes that were given back. `late`: see above; NULL: nobody asks what work is in the way. */
uint64_t glk_trim_release(struct glk_arena *home, struct glk_node *node, uint64_t bytes,
	uint32_t groups, struct glk_late *late);
/* Free ones alone. */
uint64_t glk_trim_drain(struct glk_cache *gpu, struct glk_node *node, uint64_t bytes);
/* What is mapped nowhere and what lies idle of a node, until it holds no more than that; and of the host but for what
 * tier.place_reserve keeps, behind what its peer has, or with `lent` of that alone. 0 or the driver's error. */
int glk_trim_node(struct glk_cache *cache, struct glk_node *node, uint64_t keep);
int glk_trim_host(struct glk_cache *cache, bool lent);

/* refusal.c. -ENOMEM, with a record that says how many bytes of pages were missing, and what there is; or for how
 * many bytes there are no addresses. */
int glk_refusal_memory(
	struct glk_arena *home, const struct glk_node *node, uint64_t bytes) GLK_COLD;
int glk_refusal_addresses(const struct glk_map *map, uint64_t size) GLK_COLD;

/*
 * cache/ladder.c: what is tried for a request that has not enough, where all rungs stand in one table, in order. It is
 * climbed twice over: within a try of a request, for pages that are missing, with those in hand that it has got;
 * and by a request of which a try has failed, for a place, after which it is tried again as a whole. Who climbs is
 * alone, see move/plan.h. Everything else answers -ENOMEM.
 */
struct glk_climb {
	struct glk_arena *arena;
	struct glk_request *request;
	/* Whether it is enough now: 0; -ENOMEM; -EBUSY: it may be when the GPU has been waited for; or an error
	 * that ends it. */
	int (*again)(struct glk_climb *climb);
	void *arg;     /* for pages */
	glk_try_fn fn; /* for a place */
	uint32_t *extent;
	struct glk_node *node; /* whose pages are missing; NULL: a place is */
	uint64_t lack;	       /* bytes of them, which `again` keeps */
	/* Of the ladder: to be given back in this round, and given. */
	uint64_t want, given;
	struct glk_late late;
	unsigned waits, looks, tries;
	uint64_t frees;
	bool shared; /* others were asked for it by a broker */
};

/*
 * For pages. 0; -ENOMEM with a record; without one where others are inside: all that was had is to go back then, and
 * it is climbed by the try that follows; or the error that ended it.
 */
int glk_ladder_pages(struct glk_climb *climb);
/* Cold blocks go for so many bytes, if all of them are enough. */
bool glk_ladder_cold(struct glk_cache *cache, uint64_t bytes);

#endif
