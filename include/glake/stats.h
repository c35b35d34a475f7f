/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_STATS_H
#define GLAKE_STATS_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;

/* Kinds of driver calls that are counted. */
enum glake_call {
	GLAKE_CALL_RESERVE = 0,
	GLAKE_CALL_UNRESERVE,
	GLAKE_CALL_CREATE,
	GLAKE_CALL_MAP,
	GLAKE_CALL_SET_ACCESS,
	GLAKE_CALL_UNMAP,
	GLAKE_CALL_RELEASE,
	GLAKE_CALL_EXPORT,
	GLAKE_CALL_IMPORT,
	GLAKE_CALL_EVENT_CREATE,
	GLAKE_CALL_EVENT_RECORD,
	GLAKE_CALL_EVENT_QUERY,
	GLAKE_CALL_STREAM_WAIT,
	GLAKE_CALL_SYNC, /* anything that waits for the GPU */
	GLAKE_CALL_COPY,
	GLAKE_CALL_OTHER,
	GLAKE_CALL_MANAGED_ALLOC, /* managed memory, see managed.h */
	GLAKE_CALL_MANAGED_FREE,
	GLAKE_CALL_MANAGED_ADVISE,
	GLAKE_CALL_MANAGED_PREFETCH,
	GLAKE_CALL_COUNT,
};

/* Rungs of the ladder that a request climbs when memory is short, each counted. */
enum glake_rung {
	GLAKE_RUNG_LIMBO = 0, /* pools of graphs that were released gave their pages */
	GLAKE_RUNG_RECUT, /* pages that nobody used, of any size, made room for new ones */
	GLAKE_RUNG_CROSS_STREAM, /* another stream's memory, behind a stream wait */
	GLAKE_RUNG_SPILL_PEER,	 /* a request was given memory that another GPU lends */
	GLAKE_RUNG_SPILL_HOST,	 /* a request was given memory of the host */
	GLAKE_RUNG_COUNT,
};

/* Figures of one GPU of a context. All sizes in bytes. */
struct glake_stats {
	size_t sz; /* sizeof(struct glake_stats) */

	uint64_t live;		/* asked for by live blocks */
	uint64_t given;		/* the same, rounded to the grain */
	uint64_t reserved;	/* physical pages held on the GPU */
	uint64_t free_pages;	/* of these, touched by no live block */
	uint64_t mapped;	/* mappings, aliases counted each */
	uint64_t address_space; /* reserved addresses */
	uint64_t metadata; /* host memory of the tables of this GPU, and of all pages */
	uint64_t budget;   /* UINT64_MAX: none */
	/* Since open or glake_stats_reset. Exact while threads use the GPU one after the other, some
	 * requests each; where they work side by side the most that was seen now and then. */
	uint64_t peak_live;
	uint64_t peak_reserved;

	uint64_t allocs; /* requests served */
	uint64_t frees;
	uint64_t
		hits; /* requests served without a lock, with a freed block of their size */
	uint64_t
		misses; /* requests that looked for a place; most of them find one mapped */
	uint64_t stitches; /* misses backed with pages that lay elsewhere */
	uint64_t oom;	   /* requests answered -ENOMEM */
	uint64_t live_blocks;
	uint64_t free_extents;
	uint64_t
		largest_hole; /* free address run, backed or not, below the high-water mark */
	uint64_t lost;	      /* bytes the driver refused to unmap or release */

	uint64_t rungs[GLAKE_RUNG_COUNT];

	uint64_t called; /* misses for which the driver was called */
	uint64_t
		quick; /* bytes of freed blocks kept whole: in the quick bins, and large ones */
	uint64_t flushes; /* times that the bins gave blocks back to be merged */

	/* Streams and limbo: a mapping goes when nobody on the GPU uses it any more. */
	uint64_t streams; /* known at present, those that ended with work left included */
	uint64_t events;  /* of the library, at the driver at present */
	uint64_t unmapped;  /* bytes of mappings that went */
	uint64_t released;  /* bytes of pages that went with theirs, to the driver */
	uint64_t held_back; /* times that something was not ready to go */
	uint64_t graces;    /* grace periods waited for, as the table of streams grew */

	/* Pools of graphs; what they have is in the figures above too. */
	uint64_t pools;
	uint64_t pool_held; /* bytes of pages that stay with them */

	/* The longest time, ns, that the lock of the GPU was held at once since open or
	 * glake_stats_reset, by the clock that the key stats.hold_clock names. Others who miss
	 * wait for so long; hits do not take it. Without the call under way. Of turns that are all short and alike one
	 * in 16 is timed. */
	int64_t hold_max;

	/* Contents in memory of the host or of another GPU, see tier.h. Blocks that are away count as live. */
	uint64_t away; /* bytes of such blocks, or of what is away of them */
	uint64_t away_blocks;
	uint64_t
		spills; /* blocks, and ranges of them, that went there, suspension included */
	uint64_t fetches;   /* likewise, that came back */
	uint64_t host_held; /* bytes of the host that are held for the GPU, locked */
	/* Blocks that lie in memory of the host, in place, since the GPU had no room for them: see
	 * tier.place. They count as live, and their pages in host_held. */
	uint64_t placed;
	uint64_t placed_blocks;
	uint64_t peak_host_held; /* since open or glake_stats_reset */
	/* Of those, what came to the GPU by glake_fetch and glake_quiet since open: bytes, and blocks
	 * of which nothing is on the host any more. */
	uint64_t returned;
	uint64_t returned_blocks;
	/* Cold blocks that requests sent away since the GPU had no room, counted in spills too; and
	 * their bytes. */
	uint64_t victims;
	uint64_t victim_bytes;

	/* Of the pages that no block touches: those that keep mappings. The others of free_pages are
	 * mapped nowhere. */
	uint64_t idle;
	/* Free parts of pages in use, in whole slots of 2 MiB: they serve requests that find a place
	 * right there and no others, since a page that is in use stays where it is. */
	uint64_t stranded;
	/* Pages in the hands of requests under way; 0 at rest. */
	uint64_t in_flight;
	uint64_t spilled, fetched; /* bytes of blocks that went and came back */
	/* Of host_held: memory for contents that are away, and how much of it has some. */
	uint64_t store, store_used;

	/* Managed memory, see managed.h. Its blocks count as live; nobody knows how much of it lies on
	 * the GPU. */
	uint64_t managed; /* bytes asked for by live blocks */
	uint64_t managed_blocks;
	uint64_t managed_held; /* bytes of chunks */
	uint64_t managed_chunks;

	/* Blocks of glake_host_alloc, see host.h. They are memory of the host for the program, and
	 * in none of the figures above. */
	uint64_t host_pool_live;    /* bytes asked for by live blocks */
	uint64_t host_pool_given;   /* bytes given to them */
	uint64_t host_pool_held;    /* bytes that are locked */
	uint64_t host_pool_waiting; /* bytes of freed blocks that streams may still use */
	uint64_t host_pool_blocks;  /* live ones */
	uint64_t host_pool_pieces;  /* that they lie in */
	uint64_t host_pool_allocs;  /* requests served */
	uint64_t host_pool_grows;   /* pieces that were made for them */
	uint64_t host_pool_refused; /* requests that were not */
	uint64_t peak_host_pool_live,
		peak_host_pool_held; /* since open or glake_stats_reset */

	/* Blocks with a tag, see tag.h. They count as live. */
	uint64_t tags;		 /* that are open */
	uint64_t tags_suspended; /* on this GPU */
	uint64_t tagged;	 /* bytes asked for by live blocks */
	uint64_t tagged_blocks;
	uint64_t tagged_held; /* bytes of pages of the GPU at their addresses */
	/* Blocks whose contents were dropped, not copied, when they went away; bytes of them. */
	uint64_t discards, discarded;

	/* By glake_prefetch: blocks that came, which fetches has too; how many of them were there in
	 * time, and how many were not, or not before they were fetched; hints, and blocks, of which
	 * nothing was had: freed, sent away again, too late to begin, or cancelled. And hints that wait. */
	uint64_t prefetches;
	uint64_t prefetch_early, prefetch_late, prefetch_useless;
	uint64_t prefetch_queued;
	/* Times that a request found no room and waited for a block that was about to be sent away. */
	uint64_t spill_waits;

	/* Of placed, what lies in memory that another GPU lends (tier.peer); pages of that one which
	 * are held for this GPU, in no other figure of it; and of reserved, what this GPU has lent. */
	uint64_t placed_peer;
	uint64_t borrowed;
	uint64_t lent;

	/* Blocks of managed memory that went to and fro and that the library said something of: see
	 * uvm.h. Each counts once, until its memory is another block's. */
	uint64_t managed_advised;

	/* With tier.compress: of contents that are away, the bytes that are compressed, which are not in
	 * store_used, and the bytes of the host that they take, which are not in store. */
	uint64_t packed, packed_held;

	/* With tier.away=peer: of borrowed, memory for contents that are away, and how much of it has some. */
	uint64_t store_peer, store_peer_used;

	/* Bytes of all blocks given since open, as they lie: given, and those that were freed. */
	uint64_t total_given;

	/* Elastic blocks, see elastic.h: bytes of them that are committed, which count as live. */
	uint64_t elastic;
	uint64_t elastic_blocks;
	/* Of them, bytes that are committed with memory of another range, and count nowhere else. */
	uint64_t elastic_shared;
};

/*
 * Gives the figures of one GPU. They are exact when no other thread is inside the library;
 * else each is a value the figure had during the call.
 *
 * Returns 0, or -EINVAL (no such device, NULL, sz not set), -E2BIG, -ESTALE, -ENODEV (in a
 * forked child).
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_stats_get(
	struct glake *ctx, int device, struct glake_stats *ret_stats);

/*
 * Sets the peaks of a GPU, peak_live and others, to the present values, hold_max to 0. Returns 0, or -EINVAL (no such device), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_stats_reset(struct glake *ctx, int device);

/* Driver calls of the whole context since it was opened. */
struct glake_driver_stats {
	size_t sz;	/* sizeof(struct glake_driver_stats) */
	int64_t now_ns; /* all kinds together */
	uint64_t calls[GLAKE_CALL_COUNT];
	int64_t ns[GLAKE_CALL_COUNT]; /* modelled on the software device, else measured */
};

/*
 * Gives the number of driver calls and the time they took. Returns 0, or -EINVAL (NULL, sz
 * not set), -E2BIG, -ESTALE, -ENODEV (in a forked child). Thread: any. Blocks: no. Driver
 * calls: none.
 */
GLAKE_EXPORT int glake_driver_stats_get(
	struct glake *ctx, struct glake_driver_stats *ret_stats);

/*
 * Name a kind of driver call, and a rung of the ladder. Return the name, as "set_access" and
 * "cross_stream", or NULL for a number out of range. The text is the library's and stays.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT const char *glake_call_name(int call);
GLAKE_EXPORT const char *glake_rung_name(int rung);

GLAKE_END_DECLS

#endif
