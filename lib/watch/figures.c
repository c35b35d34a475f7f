/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table of figures. A row names a word of struct glake_stats, or of another structure that is
 * gathered; its name is that of the field, with the unit. Who reads figures by name
 * stays right for ever, so rows are added and never renamed: t/data/figures.txt has them all, and
 * glake-figures(7) is made of this table.
 */
#include "watch/figures.h"

#include <string.h>

/* Where the words of a row are. */
enum part {
	IN_STATS,
	IN_DERIVED,
	IN_SURVEY,
	IN_IO,
	IN_STREAMS, /* one for each */
	IN_TIMES,   /* histograms */
	IN_CALLS,
	IN_CALL_TIMES, /* histograms */
	IN_NODES,      /* one for each */
	IN_MANAGED,    /* where it is open */
};

struct row {
	const char *name, *help;
	int unit, kind;
	size_t offset; /* of its first word */
	/* several words side by side */
	const char *label;
	const char *(*of)(int index);
	int count;
	enum part part;
};

#define ROW(field, suffix, unit, kind, help)                                             \
	{                                                                                \
#field suffix, help, unit, kind, offsetof(struct glake_stats, field),    \
			NULL, NULL, 1, IN_STATS                                          \
	}
#define BYTES(field, help)                                                               \
	ROW(field, "_bytes", GLAKE_FIGURE_BYTES, GLAKE_FIGURE_GAUGE, help)
#define GONE(field, help)                                                                \
	ROW(field, "_bytes", GLAKE_FIGURE_BYTES, GLAKE_FIGURE_COUNTER, help)
#define NOW(field, help)   ROW(field, "", GLAKE_FIGURE_NUMBER, GLAKE_FIGURE_GAUGE, help)
#define COUNT(field, help) ROW(field, "", GLAKE_FIGURE_NUMBER, GLAKE_FIGURE_COUNTER, help)

#define PLACE(part, type, field, name, unit, help)                                       \
	{                                                                                \
		name, help, unit, GLAKE_FIGURE_GAUGE, offsetof(struct type, field),      \
			NULL, NULL, 1, part                                              \
	}
#define STREAM(field, name, unit, help)                                                  \
	{                                                                                \
		name, help, unit, GLAKE_FIGURE_GAUGE,                                    \
			offsetof(struct glk_survey_stream, field), "stream", NULL, 1,    \
			IN_STREAMS                                                       \
	}
#define NODE(field, name, help)                                                          \
	{                                                                                \
		name, help, GLAKE_FIGURE_BYTES, GLAKE_FIGURE_GAUGE,                      \
			offsetof(struct glk_figures_node, field), "node", NULL, 1,       \
			IN_NODES                                                         \
	}
#define TIER(field, name, help)                                                          \
	{                                                                                \
		name, help, GLAKE_FIGURE_BYTES, GLAKE_FIGURE_GAUGE,                      \
			offsetof(struct glk_figures_derived, field), "tier", tier_name,  \
			GLK_FIGURES_TIERS, IN_DERIVED                                    \
	}
#define TIMES(index, name, help)                                                         \
	{                                                                                \
		name, help, GLAKE_FIGURE_NS, GLAKE_FIGURE_HISTOGRAM,                     \
			(index) * sizeof(struct glake_histogram), NULL, NULL, 1,         \
			IN_TIMES                                                         \
	}

static const char *tier_name(int tier)
{
	static const char *const names[GLK_FIGURES_TIERS] = {"gpu", "peer", "host"};

	return names[tier];
}

static const char *wait_name(int index)
{
	return index ? "memory" : "streams";
}

static const struct row of_gpu[] = {
	BYTES(live, "Asked for by live blocks."),
	BYTES(given, "Given to live blocks, in whole grains."),
	BYTES(reserved, "Physical pages held on the GPU."),
	BYTES(free_pages, "Pages held that no live block touches."),
	BYTES(mapped, "Mappings, each alias counted."),
	BYTES(address_space, "Reserved addresses."),
	BYTES(metadata, "Memory of the host for the tables of the library."),
	BYTES(budget, "Most physical memory that may be held."),
	BYTES(peak_live, "Most that was live since open or reset."),
	BYTES(peak_reserved, "Most pages held since open or reset."),
	COUNT(allocs, "Requests served."),
	COUNT(frees, "Blocks freed."),
	COUNT(hits, "Requests served from bins, without a lock."),
	COUNT(misses, "Requests that looked for a place."),
	COUNT(stitches, "Misses backed with pages that lay elsewhere."),
	COUNT(oom, "Requests refused for want of memory."),
	NOW(live_blocks, "Live blocks."),
	NOW(free_extents, "Free runs of addresses."),
	BYTES(largest_hole, "Largest free run of addresses below the high-water mark."),
	BYTES(lost, "What the driver refused to unmap or release."),
	{"rungs", "Times that a rung of the ladder was climbed for want of memory.",
		GLAKE_FIGURE_NUMBER, GLAKE_FIGURE_COUNTER,
		offsetof(struct glake_stats, rungs), "rung", glake_rung_name,
		GLAKE_RUNG_COUNT, IN_STATS},
	COUNT(called, "Misses for which the driver was called."),
	BYTES(quick, "Freed blocks that wait whole for the next request of their size."),
	COUNT(flushes, "Times that bins gave blocks back to be merged."),
	NOW(streams, "Streams that are known."),
	NOW(events, "Events of the library at the driver."),
	GONE(unmapped, "Mappings that went."),
	GONE(released, "Pages that went to the driver with their mappings."),
	COUNT(held_back, "Times that something was not ready to go."),
	COUNT(graces, "Grace periods waited for as the table of streams grew."),
	NOW(pools, "Pools of graphs."),
	BYTES(pool_held, "Pages that stay with pools of graphs."),
	ROW(hold_max, "_ns", GLAKE_FIGURE_NS, GLAKE_FIGURE_GAUGE,
		"Longest that the lock of the GPU was held since open or reset."),
	BYTES(away, "Blocks whose contents are in memory of the host, or parts of them."),
	NOW(away_blocks, "Blocks whose contents are in memory of the host."),
	COUNT(spills, "Blocks, or ranges of them, whose contents went to the host."),
	COUNT(fetches, "Blocks, or ranges of them, whose contents came back."),
	BYTES(host_held, "Memory of the host that is held, locked, for the GPU."),
	BYTES(placed, "Blocks that lie in memory of the host, in place."),
	NOW(placed_blocks, "Blocks that lie in memory of the host, in place."),
	BYTES(peak_host_held, "Most memory of the host held since open or reset."),
	GONE(returned, "What came from the host, in place, to the GPU."),
	COUNT(returned_blocks, "Blocks that came from the host, in place, to the GPU."),
	COUNT(victims, "Cold blocks that requests sent away for want of memory."),
	ROW(victim_bytes, "", GLAKE_FIGURE_BYTES, GLAKE_FIGURE_COUNTER,
		"Cold blocks that requests sent away for want of memory."),
	BYTES(idle, "Pages held that no block touches and that keep mappings."),
	BYTES(stranded, "Free parts of pages in use, in whole slots of 2 MiB."),
	BYTES(in_flight, "Pages in the hands of requests under way."),
	GONE(spilled, "Blocks whose contents went to the host."),
	GONE(fetched, "Blocks whose contents came back."),
	BYTES(store, "Memory of the host that is held for contents that are away."),
	BYTES(store_used, "The part of it that has some."),
	BYTES(placed_peer, "The part of what lies in place that another GPU has lent."),
	BYTES(borrowed, "Pages of another GPU that are held for this one."),
	BYTES(lent, "Pages held on this GPU that are lent to others."),
	PLACE(IN_SURVEY, glk_survey, limbo, "limbo_bytes", GLAKE_FIGURE_BYTES,
		"Free pages whose last work is not known to be done."),
	PLACE(IN_SURVEY, glk_survey, ready_hole, "ready_hole_bytes", GLAKE_FIGURE_BYTES,
		"Longest run of free slots of 2 MiB that have pages."),
	PLACE(IN_DERIVED, glk_figures_derived, reserved_over_live,
		"reserved_over_live_ratio", GLAKE_FIGURE_RATIO,
		"Pages held on the GPU over bytes of live blocks that lie there."),
	PLACE(IN_DERIVED, glk_figures_derived, hits_over_allocs, "hit_ratio",
		GLAKE_FIGURE_RATIO,
		"Requests served from bins over all served, since open."),
	TIER(held, "tier_held_bytes", "Memory held, by where it is."),
	TIER(live, "tier_live_bytes", "Bytes of live blocks, by where they are."),
	STREAM(given, "stream_given_bytes", GLAKE_FIGURE_BYTES,
		"Given to live blocks that were asked for on the stream."),
	STREAM(blocks, "stream_live_blocks", GLAKE_FIGURE_NUMBER,
		"Live blocks that were asked for on the stream."),
	STREAM(quick, "stream_quick_bytes", GLAKE_FIGURE_BYTES,
		"Freed blocks that wait in bins of the stream."),
	STREAM(limbo, "stream_limbo_bytes", GLAKE_FIGURE_BYTES,
		"Free pages whose last work on the stream is not known to be done."),
	TIMES(GLK_FIGURES_REQUEST, "request_duration_ns",
		"Times of requests that no bin served, refused ones too."),
	TIMES(GLK_FIGURES_FREE, "free_duration_ns",
		"Times of frees that went to no bin."),
	TIMES(GLK_FIGURES_HOLD, "hold_duration_ns",
		"Times that the lock of the GPU was held."),
	{"wait_duration_ns",
		"Times of waits for work on streams, and for memory others have.",
		GLAKE_FIGURE_NS, GLAKE_FIGURE_HISTOGRAM,
		GLK_FIGURES_WAIT_STREAMS * sizeof(struct glake_histogram), "for",
		wait_name, 2, IN_TIMES},
	TIMES(GLK_FIGURES_SPILL, "spill_duration_ns",
		"Times that it took to send a block to the host, its copy queued."),
	TIMES(GLK_FIGURES_FETCH, "fetch_duration_ns",
		"Times that it took to have a block back, its copy queued."),
	BYTES(managed, "Live blocks of managed memory."),
	NOW(managed_blocks, "Live blocks of managed memory."),
	BYTES(managed_held, "Chunks of managed memory that were had from the driver."),
	NOW(managed_chunks, "Chunks of managed memory."),
	COUNT(managed_advised,
		"Blocks of managed memory that went to and fro and were advised."),
	PLACE(IN_IO, glk_figures_io, staging, "relay_staging_bytes", GLAKE_FIGURE_BYTES,
		"Memory of the GPU through which copies of other GPUs pass."),
	{"relayed_bytes", "What copies of other GPUs sent over the link of this one.",
		GLAKE_FIGURE_BYTES, GLAKE_FIGURE_COUNTER,
		offsetof(struct glk_figures_io, relayed), NULL, NULL, 1, IN_IO},
	PLACE(IN_IO, glk_figures_io, shares, "link_borrowed_shares", GLAKE_FIGURE_NUMBER,
		"Quarters of the link to the host, each way, that are borrowed by agreement."),
	PLACE(IN_IO, glk_figures_io, host_rate, "link_host_second_bytes",
		GLAKE_FIGURE_BYTES,
		"What the link to the host carries in a second, as copies see it; 0: unknown."),
	PLACE(IN_IO, glk_figures_io, peer_rate, "link_peer_second_bytes",
		GLAKE_FIGURE_BYTES,
		"What the link to other GPUs carries in a second, likewise."),
	BYTES(host_pool_live, "Asked for by live blocks of locked memory of the host."),
	BYTES(host_pool_given, "Given to them, in whole 64 bytes."),
	BYTES(host_pool_held, "Memory of the host that is locked for such blocks."),
	BYTES(host_pool_waiting, "Freed blocks of it that streams may still use."),
	NOW(host_pool_blocks, "Live blocks of locked memory of the host."),
	NOW(host_pool_pieces, "Pieces that they lie in."),
	COUNT(host_pool_allocs, "Requests for locked memory of the host served."),
	COUNT(host_pool_grows, "Pieces that were made for them."),
	COUNT(host_pool_refused, "Requests for locked memory of the host refused."),
	BYTES(peak_host_pool_live, "Most of it live since open or reset."),
	BYTES(peak_host_pool_held, "Most of it locked since open or reset."),
	NOW(tags, "Tags that are open."),
	NOW(tags_suspended, "Tags that are suspended on the GPU."),
	BYTES(tagged, "Live blocks with a tag."),
	NOW(tagged_blocks, "Live blocks with a tag."),
	BYTES(tagged_held, "Pages at addresses of blocks with a tag."),
	COUNT(discards, "Blocks that went away without their contents."),
	GONE(discarded, "Blocks that went away without their contents."),
	COUNT(prefetches, "Blocks that came back as a hint asked for."),
	COUNT(prefetch_early, "Prefetches that ended before they were due."),
	COUNT(prefetch_late,
		"Prefetches that ended later, or were not begun before the fetch."),
	COUNT(prefetch_useless,
		"Hints, and blocks that came by them, of which nothing was had."),
	NOW(prefetch_queued, "Hints that wait."),
	BYTES(packed, "Contents that are away and compressed."),
	BYTES(packed_held, "Memory of the host that they take."),
	BYTES(store_peer,
		"Memory of another GPU that is held for contents that are away."),
	BYTES(store_peer_used, "The part of it that has some."),
	GONE(total_given, "Blocks given since open."),
	BYTES(elastic, "Committed memory of elastic blocks."),
	NOW(elastic_blocks, "Elastic blocks."),
	BYTES(elastic_shared,
		"Of elastic blocks, what is committed with memory of another range."),
	COUNT(spill_waits,
		"Times that requests waited for blocks that were being sent away."),
	TIMES(GLK_FIGURES_EARLY, "prefetch_early_duration_ns",
		"Times by which prefetches were early."),
	TIMES(GLK_FIGURES_LATE, "prefetch_late_duration_ns",
		"Times by which prefetches were late."),
};

#define MANAGED(field, suffix, unit, help)                                               \
	{                                                                                \
		"managed_" #field #suffix, help, unit, GLAKE_FIGURE_COUNTER,             \
			offsetof(struct glake_uvm_figures, field##suffix), NULL, NULL,   \
			1, IN_MANAGED                                                    \
	}
#define MANAGED_BYTES(field, help) MANAGED(field, _bytes, GLAKE_FIGURE_BYTES, help)
#define MANAGED_COUNT(field, help) MANAGED(field, , GLAKE_FIGURE_NUMBER, help)

static const struct row of_context[] = {
	{"driver_calls", "Calls of the driver.", GLAKE_FIGURE_NUMBER,
		GLAKE_FIGURE_COUNTER, offsetof(struct glake_driver_stats, calls), "call",
		glake_call_name, GLAKE_CALL_COUNT, IN_CALLS},
	{"driver_call_time_ns",
		"Time of the calls of the driver, modelled on the software device.",
		GLAKE_FIGURE_NS, GLAKE_FIGURE_COUNTER,
		offsetof(struct glake_driver_stats, ns), "call", glake_call_name,
		GLAKE_CALL_COUNT, IN_CALLS},
	NODE(held, "node_held_bytes", "Memory of the host that is held, locked."),
	NODE(store, "node_store_bytes", "Memory held for contents that are away."),
	NODE(store_used, "node_store_used_bytes", "The part of it that has some."),
	NODE(placed, "node_placed_bytes",
		"Blocks that lie in memory of the host, in place."),
	NODE(spare, "node_spare_bytes", "Memory held that nothing uses."),
	{"driver_call_duration_ns",
		"Times of single calls of the driver; of events and stream waits every eighth.",
		GLAKE_FIGURE_NS, GLAKE_FIGURE_HISTOGRAM, 0, "call", glake_call_name,
		GLAKE_CALL_COUNT, IN_CALL_TIMES},
	/* of a context that has the counters of managed memory open */
	MANAGED_BYTES(to_gpu, "Managed memory that moved from the host to GPUs."),
	MANAGED_BYTES(to_host, "Managed memory that moved from GPUs to the host."),
	MANAGED_COUNT(cpu_faults, "Faults of processors of the host in managed memory."),
	MANAGED_COUNT(gpu_faults, "Faults of GPUs in managed memory."),
	MANAGED_COUNT(events, "Events of managed memory that were seen."),
	MANAGED_COUNT(dropped, "Events of managed memory that were lost."),
	MANAGED_BYTES(moved, "Managed memory that moved, by events."),
	MANAGED_COUNT(evictions, "Moves of managed memory for want of memory."),
	MANAGED_BYTES(evicted, "Managed memory that moved for want of memory."),
	MANAGED_COUNT(remote_maps, "Managed memory that is used from afar."),
	MANAGED_COUNT(remote_starved,
		"Managed memory that is used from afar for want of memory."),
	MANAGED_COUNT(thrashing, "Ranges of managed memory that went to and fro."),
	MANAGED_COUNT(fatal, "Accesses to managed memory that could not be made good."),
};

/* The words of a row: where the first is, how far the next, and how many; and what each is of, in
 * texts that lie as far from each other. */
struct words {
	const char *first;
	size_t stride, count;
	const char *names; /* NULL: the row names them */
};

static struct words in_gpu(const struct row *row, const struct glk_figures_gpu *gpu)
{
	struct words words = {.stride = sizeof(uint64_t), .count = (size_t)row->count};

	switch (row->part) {
	case IN_DERIVED:
		words.first = (const char *)&gpu->derived;
		break;
	case IN_SURVEY:
		words.first = (const char *)&gpu->survey;
		break;
	case IN_IO:
		words.first = (const char *)&gpu->io;
		break;
	case IN_STREAMS:
		words.first = (const char *)gpu->survey.stream;
		words.stride = sizeof(*gpu->survey.stream);
		words.count = gpu->survey.streams;
		words.names = gpu->survey.stream[0].name;
		break;
	case IN_TIMES:
		words.first = (const char *)gpu->times;
		words.stride = sizeof(*gpu->times);
		break;
	default:
		words.first = (const char *)&gpu->stats;
		break;
	}
	return words;
}

static struct words in_context(
	const struct row *row, const struct glk_figures_context *context)
{
	struct words words = {.stride = sizeof(uint64_t), .count = (size_t)row->count};

	switch (row->part) {
	case IN_CALL_TIMES:
		words.first = (const char *)context->times;
		words.stride = sizeof(*context->times);
		break;
	case IN_MANAGED:
		words.first = (const char *)&context->managed;
		words.count = context->has_managed;
		break;
	case IN_NODES:
		words.first = (const char *)context->nodes;
		words.stride = sizeof(*context->nodes);
		words.count = context->node_count;
		words.names = context->node_count ? context->nodes[0].name : NULL;
		break;
	default:
		words.first = (const char *)&context->calls;
		break;
	}
	return words;
}

static int walk_row(const struct row *row, const struct glk_figures_context *context,
	int device, const struct words *words, glk_figures_fn fn, void *arg)
{
	struct glake_figure figure = {.sz = sizeof(figure),
		.name = row->name,
		.help = row->help,
		.kind = row->kind,
		.unit = row->unit,
		.device = device,
		.label = row->label};
	int end = 0;

	for (size_t i = 0; i < words->count && !end; i++) {
		const char *word = words->first + row->offset + i * words->stride;

		/* of a histogram the first is the number of calls */
		memcpy(&figure.value, word, sizeof(uint64_t));
		if (row->kind == GLAKE_FIGURE_HISTOGRAM)
			figure.times = (const void *)word;
		if (words->names)
			figure.of = words->names + i * words->stride;
		else
			figure.of = row->of ? row->of((int)i) : NULL;
		end = fn(context, &figure, arg);
	}
	return end;
}

/* In millionths. */
static uint64_t ratio(uint64_t part, uint64_t whole)
{
	double share = whole ? (double)part / (double)whole * 1e6 : 0;

	return whole && share < 1e18 ? (uint64_t)(share + 0.5) : UINT64_MAX;
}

void glk_figures_derive(struct glk_figures_gpu *gpu)
{
	const struct glake_stats *s = &gpu->stats;
	uint64_t off = s->away + s->placed;
	/* contents take whole chunks there */
	uint64_t peer = s->placed_peer +
		(s->store_peer_used < s->away ? s->store_peer_used : s->away);
	struct glk_figures_derived d = {
		.hits_over_allocs = ratio(s->hits, s->allocs),
		.held = {s->reserved, s->borrowed, s->host_held},
		.live = {s->live > off ? s->live - off : 0, peer, off - peer},
	};

	d.reserved_over_live = ratio(s->reserved, d.live[GLK_FIGURES_TIER_GPU]);
	gpu->derived = d;
}

void glk_figures_fit(struct glk_figures *figures, size_t size)
{
	size_t most = figures->count * GLK_FIGURES_CONTEXT_TEXT;

	for (size_t c = 0; c < figures->count; c++)
		most += figures->contexts[c].count * GLK_FIGURES_GPU_TEXT;
	figures->brief = most > size;
}

static bool is_left_out(const struct glk_figures *figures, const struct row *row)
{
	return figures->brief &&
		(row->part == IN_STREAMS || row->kind == GLAKE_FIGURE_HISTOGRAM);
}

int glk_figures_walk(const struct glk_figures *figures, glk_figures_fn fn, void *arg)
{
	struct words words;
	int end = 0;

	for (size_t r = 0; r < sizeof(of_gpu) / sizeof(*of_gpu); r++) {
		if (is_left_out(figures, &of_gpu[r]))
			continue;
		for (size_t c = 0; c < figures->count && !end; c++) {
			const struct glk_figures_context *context = &figures->contexts[c];

			for (size_t g = 0; g < context->count && !end; g++) {
				words = in_gpu(&of_gpu[r], &context->gpus[g]);
				end = walk_row(&of_gpu[r], context,
					context->gpus[g].device, &words, fn, arg);
			}
		}
	}
	for (size_t r = 0; r < sizeof(of_context) / sizeof(*of_context); r++) {
		if (is_left_out(figures, &of_context[r]))
			continue;
		for (size_t c = 0; c < figures->count && !end; c++) {
			words = in_context(&of_context[r], &figures->contexts[c]);
			end = walk_row(&of_context[r], &figures->contexts[c], -1, &words,
				fn, arg);
		}
	}
	return end;
}
