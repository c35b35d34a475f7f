/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BENCH_MORE_H
#define GLK_BENCH_MORE_H

/* The parts of bench-more, and what they measure. */
#include "tool/bench.h"
#include "tool/bench_copy.h"
#include "worst.h"

#define BENCH_HANDOVERS	  6
#define BENCH_SCALES	  4
#define BENCH_SIZES_STEPS 8
#define BENCH_WORST_ROWS  144

extern const struct bench_part bench_sizes, bench_kv, bench_host, bench_worst,
	bench_scale, bench_packed, bench_beside, bench_handover;

/* kv: what a KV cache costs, by the order of its lanes. */
#define BENCH_KV_ROWS 8

struct bench_kv {
	const char *backend;
	unsigned rounds;
	struct bench_kv_order {
		struct {
			struct bench_range us, driver_us;
		} row[BENCH_KV_ROWS];
		uint64_t needed, held, shared; /* bytes */
	} order[2];
};

/* sizes: requests whose sizes never repeat, and what the library keeps for them. */
struct bench_sizes {
	unsigned requests;
	unsigned live;
	struct bench_sizes_step {
		unsigned requests; /* so far */
		struct glake_stats stats;
		uint64_t process_mappings, process_bytes; /* of addresses; 0: not known */
		uint64_t calls; /* of the driver, in this step */
		double ns;	/* a request, with the free before it */
	} step[BENCH_SIZES_STEPS];
	bool bounded; /* nothing grew by half in the second half */
};

/* worst: the longest calls, by patterns and what they may grow with. */
struct bench_worst {
	size_t rows;
	struct bench_worst_row {
		const char *pattern, *against;
		unsigned count, rounds;
		const char *skipped; /* why, or NULL */
		bool has[WORST_FIGURES];
		struct bench_range figure[WORST_FIGURES];
		/* the longest of the calls, each in its quickest round */
		double calm[WORST_FIGURES];
		uint64_t calls;
	} row[BENCH_WORST_ROWS];
};

/* scale: the pairs of glakectl bench alloc by several threads, beside one. */
struct bench_scale {
	unsigned rounds, threads;
	size_t pairs; /* a round and thread */
	struct bench_scale_mode {
		const char *name; /* "own streams" or "one stream" */
		size_t block;
		struct bench_range one_ns, ns;	   /* a pair takes its thread */
		struct bench_range one_rate, rate; /* pairs a second, of all threads */
		struct bench_range ratio;	   /* of the rates of one round */
		double best; /* of the shortest times of all rounds */
		struct bench_hits count;
	} modes[BENCH_SCALES];
	struct bench_range
		machine; /* the same ratio for a counter in place of the library */
	double machine_best;
	bool all_hits;
};

/* handover: requests that get what another stream freed, with work pending or not. */
struct bench_handover {
	unsigned rounds, blocks; /* a round */
	struct bench_handover_case {
		const char *policy;
		size_t block;
		bool waits; /* one a request should be inserted, else none */
		size_t requests;
		double mean;
		int64_t min, median, p99, max;
		/* Of the driver, a request. */
		double calls[GLAKE_CALL_COUNT], driver_ns[GLAKE_CALL_COUNT], driver;
		bool meant; /* that is what was measured */
	} cases[BENCH_HANDOVERS];
	bool meant;
};

/* packed: contents that are compressed while they are away, GB/s; of so many bytes how many. */
struct bench_packed {
	unsigned rounds;
	bool able; /* the library can */
	uint64_t bytes, held;
	struct bench_range pack, unpack, loosen;
	size_t torn;
};

/* beside: copies over lent links beside copies within the memory of the GPUs that lend. */
struct bench_beside {
	unsigned rounds, count;
	struct bench_beside_case {
		struct bench_copy_case alone;
		double memory; /* GB/s of each GPU that lends, alone */
		struct {
			double rate, slowed, memory_slowed; /* GB/s, percent */
		} beside[BENCH_COPY_WAYS];
	} cases[BENCH_COPY_CASES];
};

#endif
