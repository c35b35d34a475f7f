/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where the pages of a request come from, for all of them at once: pages mapped nowhere; new
 * ones, as long as what is held stays within policy.target of the most that was ever live; idle
 * pages, which keep their mappings as aliases. (New before idle leaves layouts alone, and jobs of
 * equal steps settle: t/bench/policy.) Beyond the target blocks in bins go back, idle pages of the
 * other size serve as they are or are broken up, and only then the node grows up to its budget.
 * What is still missing then is the ladder's.
 *
 * Among idle pages those that need no stream wait go first. The walk over them is bounded: it is
 * the same for a request that needs one page and for one that needs thousands.
 */
#include "base/conf.h"
#include "cache/arena/request.h"
#include "cache/bin/own.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"

#include <errno.h>
#include <string.h>

/* Groups of 64 slots whose idle pages are looked at for a request, in each of the passes. */
#define GROUPS 256

/* policy.target, where there is plenty of memory. */
#define PLENTY 1.05

/* With more seats than this they are not all added up at each miss. */
#define SUM_SEATS 16

struct order {
	struct glk_arena *arena;
	struct glk_request *request;
	const struct glk_need *need;
	struct glk_supply *supply;
	struct glk_node *node;		/* that the pages are of */
	uint32_t lack[GLK_CLASS_COUNT]; /* missing pages */
	int err;
};

static uint64_t size_of(const struct order *o, enum glk_class class)
{
	const struct glk_map *map = &o->arena->map;

	return class == GLK_CLASS_OTHER ? o->need->other
					: (uint64_t)map->of[class] << map->shift;
}

static uint64_t missing(const struct order *o)
{
	uint64_t bytes = 0;

	for (int c = 0; c < GLK_CLASS_COUNT; c++)
		bytes += o->lack[c] ? o->lack[c] * size_of(o, (enum glk_class)c) : 0;
	return bytes;
}

static bool is_done(const struct order *o)
{
	return !missing(o);
}

static void push(struct order *o, uint32_t id)
{
	struct glk_map *map = &o->arena->map;
	unsigned class = glk_map_page(map, id)->class;
	uint32_t *list = &o->supply->page[class];

	o->lack[class] -= o->lack[class] > 0;
	o->supply->slots += class == GLK_CLASS_SMALL;
	glk_page_link(map, id, *list);
	*list = id;
}

static uint32_t pop(struct glk_arena *arena, uint32_t *list)
{
	uint32_t id = *list;

	*list = glk_page_next(&arena->map, id);
	return id;
}

uint32_t glk_supply_pop(
	struct glk_arena *arena, struct glk_supply *supply, uint32_t slots)
{
	int c = GLK_CLASS_OTHER;

	while (c > 0 &&
		(!supply->page[c] ||
			glk_page_slots(&arena->map,
				glk_map_page(&arena->map, supply->page[c])) > slots))
		c--;
	return pop(arena, &supply->page[c]);
}

void glk_supply_put_back(struct glk_arena *arena, struct glk_supply *supply)
{
	for (int c = 0; c < GLK_CLASS_COUNT; c++) {
		while (supply->page[c]) {
			uint32_t id = pop(arena, &supply->page[c]);

			/* lost meanwhile, with a mapping that the driver kept */
			if (glk_page_state(glk_map_page(&arena->map, id)) ==
				GLK_PAGE_OWNED)
				glk_page_put_back(&arena->map, id);
			glk_plan_step(arena->gpu);
		}
	}
}

/* Pages of other sizes that are looked at for one of the right size. */
#define SIZES 64

/* One of the right size among those that were freed last. */
static uint32_t take_other(struct order *o)
{
	struct glk_map *map = &o->arena->map;
	uint32_t id, next, past = 0, count = 0;

	while ((id = glk_node_take(o->node, GLK_CLASS_OTHER))) {
		if (glk_map_page(map, id)->size == o->need->other)
			break;
		glk_page_link(map, id, past);
		past = id;
		if (++count == SIZES) {
			id = 0;
			break;
		}
	}
	for (; past; past = next) {
		next = glk_page_next(map, past);
		glk_node_put(o->node, past);
	}
	return id;
}

/* A free page of a class, in the order of the request; 0: none that it may have. */
static uint32_t take_free(struct order *o, enum glk_class class)
{
	struct glk_arena *arena = o->arena;
	uint32_t id =
		class == GLK_CLASS_OTHER ? take_other(o) : glk_node_take(o->node, class);
	unsigned waits;
	struct glk_use use;

	if (!id)
		return 0;
	use = glk_page_use(&arena->map, id);
	if (!glk_request_may(arena, o->request, &use, &waits) ||
		glk_request_order_page(arena, o->request, id)) {
		glk_node_put(o->node, id);
		return 0;
	}
	return id;
}

/* As long as some of a class are missing. */
static void take_class(struct order *o, enum glk_class class)
{
	uint32_t id;

	while (o->lack[class] && (id = take_free(o, class))) {
		push(o, id);
		glk_plan_step(o->arena->gpu);
	}
}

static void take_all_free(struct order *o)
{
	for (int c = GLK_CLASS_COUNT - 1; c >= 0; c--)
		take_class(o, (enum glk_class)c);
}

/* Mappings that a page may have with another one: for a request in the arena of a stream none, so that what becomes of
 * it there is nothing to others, see apart.h; contents that come back are no reason to unmap anything. */
static long most_aliases(const struct glk_arena *arena, const struct glk_request *request)
{
	return arena->number && !request->node
		? 1
		: glk_peek_relaxed(&arena->gpu->conf->map_aliases);
}

/* The oldest mappings go when a page would have more than that. */
static void drop_oldest_aliases(
	struct glk_arena *arena, const struct glk_request *request, uint32_t id)
{
	struct glk_limbo limbo = glk_request_limbo(arena);
	struct glk_map *map = &arena->map;
	const struct glk_page *page = glk_map_page(map, id);
	long most = most_aliases(arena, request);

	while (page->aliases >= most) {
		uint32_t oldest = page->first_alias, last;

		for (unsigned left = page->aliases; left > 1; left--)
			oldest = map->alias[oldest];
		last = oldest + glk_page_slots(map, page) - 1;
		/* not ready, or between blocks that are just copied: one mapping more than wanted does no harm */
		if (glk_is_claimed(map, oldest, last) ||
			glk_limbo_unmap(&limbo, map, oldest, last))
			break;
	}
}

struct pass {
	struct order *order;
	bool waits;	       /* pages that need a stream wait may be had */
	const uint32_t *count; /* missing ones */
};

static enum glk_idle_answer take_one(struct glk_map *map, uint32_t id, void *arg)
{
	struct pass *pass = arg;
	struct order *o = pass->order;
	struct glk_use use = glk_page_use(map, id);
	unsigned waits;

	if (!glk_request_may(o->arena, o->request, &use, &waits) ||
		(waits && !pass->waits) ||
		glk_request_order_page(o->arena, o->request, id)) {
		glk_plan_step(o->arena->gpu);
		return GLK_IDLE_NEXT;
	}
	glk_page_take(map, id);
	drop_oldest_aliases(o->arena, o->request, id);
	/* the driver kept that mapping: the page is lost, and not the last one */
	if (glk_page_state(glk_map_page(map, id)) != GLK_PAGE_OWNED)
		return GLK_IDLE_NEXT;
	push(o, id);
	glk_plan_step(o->arena->gpu);
	return *pass->count ? GLK_IDLE_NEXT : GLK_IDLE_STOP;
}

/* Idle pages of a class, as long as some are missing: see struct pass. */
static void take_idle(struct order *o, enum glk_class class)
{
	bool alone = glk_clock_alone(&o->arena->gpu->streams);
	struct pass pass = {.order = o, .count = &o->lack[class]};

	if (!o->lack[class])
		return;
	for (int waits = 0; waits < (alone ? 1 : 2) && *pass.count; waits++) {
		struct glk_idle_walk walk = {.of = glk_node_of(o->node),
			.slots = (uint32_t)(size_of(o, class) >> o->arena->map.shift),
			.groups = GROUPS};

		pass.waits = waits;
		glk_idle_each(&o->arena->map, &walk, take_one, &pass);
	}
}

static void take_all_idle(struct order *o)
{
	if (!o->arena->map.space->of[glk_node_of(o->node)].idle_slots)
		return;
	for (int c = GLK_CLASS_COUNT - 1; c >= 0; c--)
		take_idle(o, (enum glk_class)c);
}

struct borrow {
	struct glk_arena *from;
	uint32_t left;
};

static enum glk_idle_answer strip(struct glk_map *map, uint32_t id, void *arg)
{
	struct borrow *b = arg;
	struct glk_limbo limbo = GLK_LIMBO(&b->from->gpu->streams);

	if (!glk_limbo_strip(&limbo, map, id))
		b->left--;
	return b->left ? GLK_IDLE_NEXT : GLK_IDLE_STOP;
}

static void borrow(struct glk_arena *from, uint32_t slots, uint32_t count)
{
	struct borrow b = {.from = from, .left = count};
	struct glk_idle_walk walk = {.slots = slots, .groups = GROUPS};

	glk_idle_each(&from->map, &walk, strip, &b);
}

/*
 * For a pool of graphs: pages that the GPU's own arena has idle lose their mappings there and go
 * to the node. That costs less memory than to make some, and no stream wait, which could not be
 * had.
 */
static void borrow_all(struct order *o)
{
	struct glk_arena *home = o->arena->home;

	if (home->map.space == o->arena->map.space ||
		!home->map.space->of[GLK_OF_NODE].idle_slots)
		return;
	for (int c = GLK_CLASS_HUGE; c >= 0; c--)
		if (o->lack[c])
			borrow(home, home->map.of[c], o->lack[c]);
	take_all_free(o);
}

/* Small pages in place of those of up to a large one, as many as fill some; those over go back at the end. */
static void stand_in(struct order *o)
{
	const struct glk_map *map = &o->arena->map;
	uint32_t had = o->supply->slots, slots = 0, lack[GLK_CLASS_LARGE + 1], in;

	if (o->need->whole)
		return;
	for (int c = GLK_CLASS_HALF; c <= GLK_CLASS_LARGE; c++) {
		lack[c] = o->lack[c];
		slots += lack[c] * map->of[c];
		o->lack[c] = 0;
	}
	if (!slots)
		return;
	o->lack[GLK_CLASS_SMALL] += slots;
	take_all_free(o);
	take_all_idle(o);
	/* what is missing of the last one is made small as well, so that none is wasted */
	had = o->supply->slots - had;
	for (int c = GLK_CLASS_HALF; c <= GLK_CLASS_LARGE; c++) {
		if (!lack[c])
			continue;
		in = (had + map->of[c] - 1) / map->of[c];
		in = in < lack[c] ? in : lack[c];
		had -= in * map->of[c] < had ? in * map->of[c] : had;
		o->lack[c] = lack[c] - in;
		o->lack[GLK_CLASS_SMALL] -= o->lack[c] * map->of[c];
	}
}

/* Twice as many pages of half the size in place of those that are missing and larger than a class. One at the end of a
 * block with slots behind it stays: of two halves the second would have no slot of the block. */
static void halve(struct order *o, enum glk_class down_to)
{
	for (int c = GLK_CLASS_HUGE; c > (int)down_to; c--) {
		uint32_t count;

		if (!o->lack[c])
			continue;
		take_idle(o, (enum glk_class)c);
		count = o->lack[c] - (o->lack[c] && c == (int)o->need->end);
		o->lack[c] -= count;
		o->lack[c - 1] += 2 * count;
		take_class(o, (enum glk_class)(c - 1));
	}
}

/* Bytes of the next page that is missing: the largest. */
static uint64_t next_size(const struct order *o)
{
	int c = GLK_CLASS_OTHER;

	while (c > 0 && !o->lack[c])
		c--;
	return size_of(o, (enum glk_class)c);
}

static bool may_hold(const struct order *o, uint64_t most)
{
	uint64_t held = glk_node_own(o->node);

	return !is_done(o) && held <= most && next_size(o) <= most - held;
}

/* New pages, while what is held stays below `most`. 0, -ENOMEM at the budget or at the driver's
 * end, or another error of the driver. Gives the lock up meanwhile. */
static int grow_all(struct order *o, uint64_t most)
{
	struct glk_cache *gpu = o->arena->gpu;
	int err = 0;
	uint32_t id;

	if (!may_hold(o, most))
		return 0;
	glk_lock_pause(&gpu->lock);
	while (!err && may_hold(o, most)) {
		err = glk_node_grow(o->node, next_size(o), &id);
		if (!err)
			push(o, id);
	}
	glk_fill_ask(gpu);
	glk_lock_resume(&gpu->lock);
	return err;
}

/* Blocks that wait in bins may have this part of what may be held above the peak. */
#define WAITING 4

static uint64_t peak_of(struct glk_cache *gpu, uint64_t size)
{
	/* as it is now, and before a reset: who reads the figures must change nothing */
	uint64_t peak = glk_seats_peak(gpu);
	uint64_t live = gpu->sum.live + size;
	uint64_t elsewhere = gpu->away + gpu->placed + gpu->managed_live;

	if (peak < gpu->past_peak)
		peak = gpu->past_peak;
	peak = peak < live ? live : peak;
	live -= live < elsewhere ? live : elsewhere;
	elsewhere = gpu->away + gpu->most_placed + gpu->most_managed;
	peak -= peak < elsewhere ? peak : elsewhere;
	return peak < live ? live : peak;
}

uint64_t glk_supply_target(struct glk_cache *gpu, uint64_t size)
{
	uint64_t peak = peak_of(gpu, size);

	return peak + glk_fill_above(gpu, peak);
}

static bool targets_plenty(struct glk_cache *gpu)
{
	return glk_conf_target(gpu->conf, glk_fill(gpu)) >= PLENTY;
}

bool glk_supply_is_plenty(const struct glk_arena *arena, uint64_t size, uint64_t bytes)
{
	struct glk_cache *gpu = arena->gpu;
	uint64_t held = glk_node_own(gpu->node), most;

	/* the others have no target */
	if (!arena->binned || !targets_plenty(gpu))
		return false;
	most = glk_supply_target(gpu, size);
	return held + bytes <= most && most <= glk_node_most(gpu->node);
}

enum glk_class glk_supply_largest(const struct glk_arena *arena, enum glk_class least)
{
	struct glk_cache *gpu = arena->gpu;
	uint64_t most = glk_node_most(gpu->node), peak = glk_seats_peak(gpu),
		 others = glk_load_relaxed(&gpu->held_by_others);

	peak = peak < gpu->past_peak ? gpu->past_peak : peak;
	most = most < gpu->memory ? most : gpu->memory;
	most = others < most ? most - others : 0;
	if (peak <= most / 4)
		return GLK_CLASS_HUGE;
	if (peak > most / 2)
		return least;
	return least == GLK_CLASS_LARGE ? GLK_CLASS_HUGE : GLK_CLASS_DOUBLE;
}

bool glk_supply_drain(struct glk_arena *arena, uint64_t size)
{
	struct glk_cache *gpu = arena->gpu;
	uint64_t rest, peak, above, most, budget;

	if (!arena->binned)
		return false;
	rest = glk_arena_idle(&gpu->arena, gpu->node);
	peak = peak_of(gpu, size);
	above = glk_fill_above(gpu, peak);
	budget = glk_node_most(gpu->node);
	most = peak + above < budget ? peak + above : budget;
	if (glk_own_taken(gpu) <= gpu->sum.given + above / WAITING &&
		(rest >= size || glk_node_own(gpu->node) + size - rest <= most))
		return false;
	return glk_quick_drain(gpu);
}

/* From which part of all that is held on what lies beside live blocks is much, and what is held above their peak. */
#define BESIDE 16

/* The rest of glk_supply_weigh(), with so many bytes beside live blocks. */
static GLK_COLD void pack(
	struct glk_cache *gpu, struct glk_map *map, uint64_t size, uint64_t beside)
{
	uint64_t held = glk_node_own(gpu->node), peak, above;

	if (beside <= held / BESIDE || map != &gpu->arena.map)
		return;
	peak = peak_of(gpu, size);
	above = glk_fill_above(gpu, peak);
	above = above > peak / BESIDE ? above : peak / BESIDE;
	map->packs = true;
	/* before the target is reached, so that it is not passed */
	map->tight = held > peak + above / 4 * 3;
	if (held > peak + above)
		glk_quick_ebb(gpu);
}

void glk_supply_sum(struct glk_cache *gpu)
{
	uint32_t used = glk_load_relaxed(&gpu->seats.used);

	if (used <= SUM_SEATS || gpu->served % used == 0)
		glk_seats_sum(gpu, &gpu->sum);
}

void glk_supply_weigh(struct glk_arena *arena, uint64_t size)
{
	struct glk_cache *gpu = arena->gpu;
	struct glk_map *map = arena->number ? &gpu->arena.map : &arena->map;
	const struct glk_stock *stock = &map->space->of[GLK_OF_NODE];
	uint64_t idle = (stock->idle_slots + stock->stranded) << map->shift, used;

	glk_supply_sum(gpu);
	if (arena->binned) {
		gpu->weighed = gpu->served;
		gpu->keeps_aside = gpu->conf->policy_bins && targets_plenty(gpu);
	}
	used = gpu->sum.given + idle;
	map->packs = map->tight = false;
	if (stock->page_bytes > used + GLK_TARGET_LEAST)
		pack(gpu, map, size, stock->page_bytes - used);
}

bool glk_supply_tight(const struct glk_arena *arena, uint64_t size)
{
	const struct glk_map *map = &arena->map;
	struct glk_cache *gpu = arena->gpu;
	uint64_t budget = glk_node_most(gpu->node), slack, peak, most;
	uint64_t held = glk_node_own(gpu->node);

	if (arena->ops->fixed)
		return false;
	slack = glk_arena_idle(arena, gpu->node);
	if (slack >= held / 5)
		return false;
	peak = peak_of(gpu, size);
	most = peak + glk_fill_above(gpu, peak);
	if (most > budget)
		most = budget > peak ? budget : peak;
	/* a fifth more than the target leaves room for is what other waste adds up to */
	gpu->stranded_most = (most - peak) * 6 / 5 >> map->shift;
	if (map->space->of[GLK_OF_NODE].stranded <= gpu->stranded_most)
		return false;
	return slack + (most > held ? most - held : 0) < held / 5;
}

/* What the target is for: before the node grows past it, memory is looked for more closely. */
static int economise(struct order *o, uint64_t target)
{
	struct glk_cache *gpu = o->arena->gpu;
	struct glk_arena *home = o->arena->home;
	uint64_t held, over;
	int err;

	if (o->node == gpu->node && glk_quick_drain(gpu)) {
		take_all_free(o);
		take_all_idle(o);
	}
	if (!o->need->whole && !o->request->run)
		halve(o, o->need->least);
	stand_in(o);
	borrow_all(o);
	held = glk_node_own(o->node);
	over = held + missing(o);
	over = over > target ? over - target : 0;
	if (over && !is_done(o))
		glk_trim_release(home, o->node, over < missing(o) ? over : missing(o),
			GROUPS, NULL);
	err = grow_all(o, UINT64_MAX);
	if (err != -ENOMEM || o->need->whole)
		return err;
	/* there may be memory, but not in such pieces */
	halve(o, o->need->least);
	take_all_idle(o);
	stand_in(o);
	return grow_all(o, UINT64_MAX);
}

static int again(struct glk_climb *c)
{
	struct order *o = c->arg;
	int err = grow_all(o, UINT64_MAX);

	c->lack = missing(o);
	return is_done(o) ? 0 : err ? err : -ENOMEM;
}

/* The ladder, for all that is still missing. */
static int climb(struct order *o)
{
	struct glk_climb c = {.arena = o->arena,
		.request = o->request,
		.again = again,
		.arg = o,
		.node = o->node};

	take_all_free(o);
	take_all_idle(o);
	c.lack = missing(o);
	return c.lack ? glk_ladder_pages(&c) : 0;
}

int glk_supply_get(struct glk_arena *arena, struct glk_request *request,
	const struct glk_need *need, struct glk_supply *ret_supply)
{
	struct order o = {.arena = arena,
		.request = request,
		.need = need,
		.supply = ret_supply,
		.node = glk_request_node(arena, request)};
	uint64_t target;
	int err = 0;

	memcpy(o.lack, need->pages, sizeof(o.lack));
	*ret_supply = (struct glk_supply){0};
	take_all_free(&o);
	if (!is_done(&o) && arena->map.space->unsealed) {
		struct glk_limbo limbo = glk_request_limbo(arena);

		glk_limbo_reap(&limbo, &arena->map);
		take_all_free(&o);
	}
	if (!is_done(&o) && !need->whole)
		halve(&o, glk_supply_largest(arena, need->least));
	/* pages of the host cost more than a mapping: idle ones are taken before new ones are made */
	target = o.node == arena->gpu->node ? glk_supply_target(arena->gpu, request->size)
					    : UINT64_MAX;
	if (!is_done(&o) && !o.node->gpu)
		err = grow_all(&o, target);
	if (!is_done(&o) && (!err || err == -ENOMEM)) {
		take_all_idle(&o);
		err = is_done(&o) ? 0 : economise(&o, target);
	}
	if (err == -ENOMEM && !need->tries)
		err = climb(&o);
	if (err)
		glk_supply_put_back(arena, ret_supply);
	return err;
}

/* Pages in the order in which they are to be mapped. */
struct chain {
	struct glk_map *map;
	uint32_t first, last;
};

/* So many slots, in pages of so many or fewer. */
static void add(struct glk_arena *arena, struct chain *c, struct glk_supply *supply,
	uint32_t slots, uint32_t most)
{
	while (slots) {
		uint32_t id = glk_supply_pop(arena, supply, most < slots ? most : slots);

		slots -= glk_page_slots(c->map, glk_map_page(c->map, id));
		glk_page_link(c->map, id, 0);
		if (c->last)
			glk_page_link(c->map, c->last, id);
		else
			c->first = id;
		c->last = id;
	}
}

int glk_supply_chain(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_pages)
{
	struct chain chain = {.map = &arena->map};
	uint32_t slots = glk_slot_of(&arena->map, request->rounded);
	uint32_t of = arena->map.large, large = 0;
	struct glk_supply supply;
	struct glk_need need;
	int err;

	if (of > 1)
		large = (slots - request->lead - request->tail) / of;
	need = (struct glk_need){.least = GLK_CLASS_LARGE};
	need.pages[GLK_CLASS_SMALL] = slots - large * of;
	need.pages[GLK_CLASS_LARGE] = large;
	glk_plan_begin(arena->gpu);
	err = glk_supply_get(arena, request, &need, &supply);
	glk_plan_end(arena->gpu);
	if (err)
		return err;
	add(arena, &chain, &supply, request->lead, 1);
	add(arena, &chain, &supply, large * of, UINT32_MAX);
	add(arena, &chain, &supply, slots - large * of - request->lead, 1);
	*ret_pages = chain.first;
	glk_supply_put_back(arena, &supply);
	return 0;
}
