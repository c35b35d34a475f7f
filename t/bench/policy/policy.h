/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A model of the library's miss: addresses, pages and bins without a driver, without locks
 * and with one stream. It answers what a rule of the policy costs before the rule is built:
 * memory reserved over memory live, and the driver's time by the costs of one call each.
 */
#ifndef POLICY_H
#define POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NONE	    UINT32_MAX
#define GRAIN	    512u
#define SLOT_GRAINS 4096u /* a slot is 2 MiB */
#define SLOTS	    (1u << 20)
#define CLASSES	    4
#define BUCKETS	    4
#define WORDS	    (SLOTS / 64)
#define PASSES	    8

enum order { ORDER_EXACT, ORDER_COARSE, ORDER_ADDRESS };
enum flush { FLUSH_NEVER = 0, FLUSH_ALL = -1 };

struct conf {
	unsigned classes;
	uint32_t slots[CLASSES]; /* of a page of the class, rising, the first 1 */
	double share[CLASSES];	 /* a class is created only below this share of gpu */
	double gpu;		 /* bytes */
	double target;
	double slack; /* bytes that may be held above the peak whatever the target */
	double limit; /* x peak of the whole trace, 0 for none */
	uint64_t small;
	uint64_t bin_max, bin_min;
	int flush; /* blocks a miss, or FLUSH_ALL */
	int round; /* 0: grain, 1: small blocks by 8 a power of two, 2: large ones, 3: both */
	enum order order;
	int fewest; /* pages with fewer mappings first */
	int cost;   /* 0: slots, 1: driver calls */
	int atonce; /* take a place that needs no call without looking further */
	double quarter;
	int whole; /* count all slots of an idle large page as newly in use */
	unsigned tries;
	int sub;   /* past the target, small pages in place of a large one */
	int batch; /* pages broken up at once */
	int undo; /* make large pages of idle small ones when there are this many, in % */
	double least;  /* what a slot costs that the target has no page for */
	int grow;      /* 0: idle pages first, 1: new ones first while below the target */
	double trim;   /* no more large pages are used in part when their rests
		       * are this x (target - 1) of what is held */
	double scarce; /* and what can be had is below this share of it */
	int foresee;   /* and places are priced by that */
	unsigned passes;
	bool verbose;
};

struct op {
	uint32_t id;
	uint64_t size; /* 0: free */
};

struct trace {
	char name[32];
	struct op *op;
	size_t ops, room;
	uint32_t blocks;
	uint64_t peak; /* bytes live at most */
	double job_s;  /* 0: not recorded */
};

int trace_load(struct trace *t, const char *path);
int trace_synthetic(struct trace *t, const char *name);
void trace_add(struct trace *t, uint32_t id, uint64_t size);
void trace_finish(struct trace *t);

enum state { EXTENT_FREE, EXTENT_GIVEN, EXTENT_BINNED, EXTENT_SLOT };

struct extent {
	uint64_t at, len;    /* grains */
	uint32_t prev, next; /* by address */
	uint32_t left, right, rank;
	uint32_t parent; /* of an extent inside a slot of small blocks */
	uint32_t bin_next;
	enum state state;
};

/* Free extents by length, then address: 0 all sizes, 1 inside slots of small blocks. */
struct space {
	struct extent *extent;
	uint32_t used, room, spare;
	uint32_t root[2], last;
	uint32_t free[2], peak_free[2];
	uint64_t top;
	uint32_t seed;
};

uint32_t extent_new(struct space *s, uint64_t at, uint64_t len);
void extent_drop(struct space *s, uint32_t e);
void extent_insert(struct space *s, int tree, uint32_t e);
void extent_remove(struct space *s, int tree, uint32_t e);
/* The first that is at least (len, at). */
uint32_t extent_fit(const struct space *s, int tree, uint64_t len, uint64_t at);
uint32_t extent_split(struct space *s, uint32_t e, uint64_t len);
uint32_t extent_merge(struct space *s, int tree, uint32_t e);

struct slot {
	uint32_t map; /* first slot of the mapping that covers it */
	uint32_t live;
};

/* Named by its first slot. */
struct mapping {
	uint32_t page, prev, next;
};

struct page {
	uint32_t class, head, count;
	uint32_t current; /* the mapping in use, or used last */
	uint32_t used;	  /* slots of it with live blocks */
	uint32_t prev, next;
	uint64_t mark;
	bool idle;
};

struct list {
	uint32_t first, last;
};

struct idle {
	struct list list;
	uint32_t pages;
	uint64_t *bits; /* slots with a page of the list */
	uint32_t *word_prev,
		*word_next; /* words by the time a page became idle in them */
	bool *listed;
};

struct calls {
	uint64_t create, map, unmap, release;
	uint64_t missed, called, hits, looked, fits, oom, broken;
};

struct bin {
	uint64_t len;
	uint32_t first;
	uint32_t prev, next; /* bins with blocks, by the time they were asked for */
	uint32_t blocks;
};

#define BINS 65536

/* Bytes live, given to large blocks and of those in bins; the others are slots. */
struct watch {
	uint64_t live, given, binned;
	uint64_t held, used, small, stranded, idle, free;
};

struct sim {
	const struct conf *conf;
	struct space space;
	struct slot *slot;
	struct mapping *mapping;
	struct page *page;
	uint32_t pages, page_room, page_spare;
	struct list free[CLASSES];
	uint32_t free_pages[CLASSES];
	struct idle idle[CLASSES][BUCKETS];
	uint64_t held, peak_held; /* slots */
	uint64_t stranded;	  /* slots: rests of pages in use */
	uint64_t live, peak_live; /* bytes */
	uint64_t binned;
	double budget; /* bytes, 0 for none */
	struct bin bin[BINS];
	struct list bins;
	uint64_t mark;
	struct calls calls;
	struct watch watch;
};

void page_init(struct sim *sim);
void page_fini(struct sim *sim);
void page_unmap(struct sim *sim, uint32_t at);
/* Takes idle large pages away that the run would use in part. */
void page_trim(struct sim *sim, uint32_t first, uint32_t last);
/* A live block more, or one less, in each slot of the run. */
void page_enter(struct sim *sim, uint32_t first, uint32_t last);
void page_leave(struct sim *sim, uint32_t first, uint32_t last);
/* Maps what is not mapped in a run that was entered; ends that are shared get single pages. */
void page_back(struct sim *sim, uint32_t first, uint32_t last, bool shared_first,
	bool shared_last);
double page_growth(const struct sim *sim);

/* Slots that can be had without going past the target. */
double page_slack(const struct sim *sim);
bool page_trims(const struct sim *sim);

uint32_t idle_first(struct sim *sim, unsigned class);
uint32_t idle_count(const struct sim *sim, unsigned class);
void idle_put(struct sim *sim, uint32_t p);
void idle_take(struct sim *sim, uint32_t p);
void idle_init(struct sim *sim);
void idle_fini(struct sim *sim);

struct place {
	uint32_t extent; /* NONE: at the top */
	uint64_t at;
	double cost, slack;
	bool calls, trim;
};

bool place_find(struct sim *sim, uint64_t len, bool small, struct place *ret_place);

uint64_t bin_round(const struct conf *conf, uint64_t size);
uint32_t bin_pop(struct sim *sim, uint64_t len);
void bin_push(struct sim *sim, uint32_t e);
/* Gives blocks back, all or the oldest; false where there are none. */
bool bin_flush(struct sim *sim, int blocks);

uint32_t block_alloc(struct sim *sim, uint64_t size);
void block_free(struct sim *sim, uint32_t e);
void block_release(struct sim *sim, uint32_t e);

void watch_peak(struct sim *sim);

#endif
