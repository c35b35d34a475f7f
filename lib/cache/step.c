/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Large blocks lie where they lay in the step before: see step.h. */
#include "cache/step.h"

#include "base/slab.h"
#include "cache/arena/request.h"
#include "cache/bin/latest.h"
#include "cache/cache.h"

/* Places that are looked at, before and behind the one whose turn it is. */
#define SEARCH 128
/* How sure it is that turns are met: one more for each that is, fewer for one that is not; from SURE on
 * places are taken. */
#define MOST 32
#define SURE 16
#define LESS 8
/* Of the last turns, those that are looked at for a place instead of one that is behind contents that leave, and
 * the places that are tried. */
#define LATEST 4096
#define TRIES  64
/* Steps in which there is some changing of places. */
#define CHANGING 16
/* Requests of a step for each slot that may go on being mapped then. */
#define LITTLE 16
/* Steps whose places are taken before it is seen whether that pays: the first ones may have to map what
 * best fit had put elsewhere. */
#define TRIED 2
/* Steps by best fit, at the most, after places that did not pay. */
#define LONGEST 4096

struct place {
	uint64_t size, offset;
	uint32_t stream; /* its index */
	uint32_t waits;	 /* streams that it was behind, summed over its runs */
};

struct step {
	uint32_t count;
	bool mixed; /* of several streams */
	struct place place[GLK_STEP_PLACES];
};

struct glk_steps {
	struct step step[2];
	unsigned now;	 /* the one that is being written; the other is the last one */
	uint32_t next;	 /* turn in the last one */
	uint32_t sure;	 /* up to MOST */
	uint32_t met;	 /* requests of this step whose turn was the next one */
	bool alike;	 /* the last one was like the one before it */
	uint32_t waited; /* requests of this step that were behind a wait */
	uint32_t waits;	 /* the same of the last step by best fit */
	uint64_t mapped; /* slots that were mapped for requests of this step */
	uint64_t
		usual; /* that may be: as in the last one by best fit, and less in each */
	uint32_t rest; /* steps by best fit that are left */
	uint32_t pause;	  /* how many there were the last time */
	uint32_t taken;	  /* steps since then */
	bool changed;	  /* some of this step have changed places */
	uint32_t changes; /* steps in which some did */
};

static bool is_alike(
	const struct step *step, uint32_t turn, const struct glk_request *request)
{
	return turn < step->count && step->place[turn].size == request->rounded &&
		step->place[turn].stream == request->stream->id;
}

/* The turn of a request in the last step, nearest to what is next; UINT32_MAX: it has none. */
static uint32_t turn_of(const struct glk_steps *s, const struct glk_request *request)
{
	const struct step *last = &s->step[!s->now];

	for (uint32_t i = 0; i < SEARCH; i++) {
		if (is_alike(last, s->next + i, request))
			return s->next + i;
		if (i < s->next && is_alike(last, s->next - 1 - i, request))
			return s->next - 1 - i;
	}
	return UINT32_MAX;
}

/* Idle pages that are looked at for a request. */
#define LOOKS 256

struct idle {
	struct glk_arena *arena;
	const struct glk_request *request;
	uint64_t slots, had;
	uint32_t looks, refused;
};

static enum glk_idle_answer add_idle(struct glk_map *map, uint32_t id, void *arg)
{
	struct idle *idle = arg;
	struct glk_use use = glk_page_use(map, id);
	unsigned waits;

	if (glk_request_may(idle->arena, idle->request, &use, &waits))
		idle->had += glk_page_slots(map, glk_map_page(map, id));
	else
		idle->refused++;
	return idle->had < idle->slots && ++idle->looks < LOOKS ? GLK_IDLE_NEXT
								: GLK_IDLE_STOP;
}

/* Whether so many slots are idle that a request may have, as far as it looks. */
static bool has_idle(
	struct glk_arena *arena, const struct glk_request *request, uint64_t slots)
{
	struct idle idle = {.arena = arena, .request = request, .slots = slots};
	struct glk_idle_walk walk = {.groups = LOOKS};

	if (arena->map.idle_slots < slots)
		return false;
	if (glk_clock_alone(&arena->gpu->streams))
		return true;
	glk_idle_each(&arena->map, &walk, add_idle, &idle);
	return idle.had >= slots || (idle.looks == LOOKS && !idle.refused);
}

/* Whether there are pages for so many slots, without anybody having to make room. */
static bool has_room(
	struct glk_arena *arena, const struct glk_request *request, uint32_t slots)
{
	const struct glk_map *map = &arena->map;
	uint64_t budget = glk_load_relaxed(&map->node->budget);
	uint64_t held = glk_load_relaxed(&map->node->held);
	uint64_t room = glk_node_free(map->node) + (budget > held ? budget - held : 0);
	uint64_t had = room >> map->shift;

	return had >= slots || has_idle(arena, request, slots - had);
}

/*
 * Streams of the program are not to wait for each other more than they did: a place is taken behind waits if the
 * step before took it behind as many, or while fewer requests than in a step by best fit have waited. In the
 * first step they found memory that nobody had used.
 */
static bool may_wait(
	const struct glk_steps *s, const struct place *place, const struct glk_fit *fit)
{
	return !s->step[!s->now].mixed || fit->waits <= place->waits ||
		s->waited < s->waits;
}

/* Whether a place is behind contents on their way to the host. */
static bool is_leaving(
	const struct glk_arena *arena, const struct glk_want *want, uint64_t offset)
{
	struct glk_cache *gpu = arena->gpu;
	const struct glk_stream *out;
	uint32_t shift = arena->map.shift;

	if (!glk_load_relaxed(&gpu->moves))
		return false;
	out = glk_stream_enter(&gpu->streams, gpu->mover.out);
	return out->bit != GLK_STREAM_CROWD &&
		glk_place_is_behind(&arena->map, (uint32_t)(offset >> shift),
			(uint32_t)((offset + want->size - 1) >> shift),
			glk_stream_mask(out));
}

static bool is_there(struct glk_map *map, const struct glk_want *want,
	const struct place *place, struct glk_fit *ret_fit)
{
	uint32_t from = glk_extent_free_at(map, place->offset, want->size);

	return from && glk_fit_at(map, want, from, place->offset, ret_fit);
}

/*
 * Behind contents that leave a request would stand longer than behind work of the program, at the pace of the
 * link. It changes places with the last one of its size whose place costs nothing now: by then they have gone.
 */
static bool change(struct glk_steps *s, struct glk_map *map, uint32_t turn,
	const struct glk_want *want, struct glk_fit *fit)
{
	struct step *last = &s->step[!s->now];
	struct place *place = &last->place[turn];
	uint32_t first = last->count > LATEST ? last->count - LATEST : 0;
	unsigned tried = 0;

	for (uint32_t i = last->count - 1; i > turn && i >= first && tried < TRIES; i--) {
		struct place *other = &last->place[i];
		uint64_t offset = other->offset;
		struct glk_fit there;

		if (other->size != place->size || other->stream != place->stream ||
			offset == place->offset)
			continue;
		tried++;
		if (!is_there(map, want, other, &there) || there.maps || there.waits)
			continue;
		other->offset = place->offset;
		place->offset = offset;
		*fit = there;
		return true;
	}
	return false;
}

bool glk_step_find(const struct glk_arena *arena, const struct glk_request *request,
	const struct glk_want *want, struct glk_fit *ret_fit)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_steps *s = cache->steps;
	struct glk_map *map = &cache->arena.map;
	const struct place *place;
	uint32_t turn;

	if (!s || s->rest || !s->alike || s->sure < SURE || arena != &cache->arena ||
		request->strays || want->kind != GLK_FIT_BLOCK || want->trim)
		return false;
	turn = turn_of(s, request);
	if (turn == UINT32_MAX)
		return false;
	place = &s->step[!s->now].place[turn];
	if (!is_there(map, want, place, ret_fit) || !may_wait(s, place, ret_fit) ||
		(ret_fit->maps && !has_room(&cache->arena, request, ret_fit->maps)))
		return false;
	if (ret_fit->waits && s->changes < CHANGING &&
		is_leaving(arena, want, ret_fit->offset))
		s->changed |= change(s, map, turn, want, ret_fit);
	return true;
}

void glk_step_note(const struct glk_arena *arena, const struct glk_request *request,
	const struct glk_fit *fit)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_steps *s = cache->steps;
	struct step *now;
	uint32_t turn;

	if (!s || arena != &cache->arena || request->flags & GLAKE_ALLOC_CONTIGUOUS)
		return;
	now = &s->step[s->now];
	if (now->count && now->place[0].stream != request->stream->id)
		now->mixed = true;
	if (now->count < GLK_STEP_PLACES)
		now->place[now->count++] = (struct place){
			request->rounded, fit->offset, request->stream->id, fit->waits};
	s->mapped += fit->maps;
	s->waited += fit->waits > 0;
	turn = turn_of(s, request);
	s->met += turn == s->next;
	if (turn == s->next)
		s->sure += s->sure < MOST;
	else
		s->sure -= s->sure < LESS ? s->sure : LESS;
	/* another one in its place, as far as is known */
	if (turn == UINT32_MAX)
		s->next += s->next < s->step[!s->now].count;
	else
		s->next = turn + 1;
}

/* After a step by best fit. Where that settles by itself it goes on. */
static void judge_fit(struct glk_steps *s)
{
	s->usual = s->mapped;
	s->waits = s->waited;
	s->taken = 0;
	s->rest -= s->rest > 1 || s->mapped;
}

/* After one whose places were taken: a quarter less may be mapped from step to step, until it is nothing. */
static void judge_taken(struct glk_steps *s)
{
	/* where some have changed places a little of it is better than to stand behind contents that leave */
	uint64_t little = s->changes ? s->step[s->now].count / LITTLE : 0;

	/* what others have to map when some change places is had once */
	if (s->changed) {
		s->changes++;
		return;
	}
	if (s->taken++ < TRIED)
		return;
	if (s->mapped > s->usual + little) {
		s->pause = s->pause < LONGEST ? 4 * s->pause : LONGEST;
		s->rest = s->pause;
	}
	s->usual -= (s->usual + 3) / 4;
}

/* Whether the step that ends was like the one before, as far as there was one: most of its requests had their
 * turns there, one after the other. */
static bool is_like_last(const struct glk_steps *s)
{
	uint32_t count = s->step[s->now].count;

	return !s->step[!s->now].count || s->met >= count - count / 8;
}

static void turn_over(struct glk_steps *s)
{
	if (s->rest)
		judge_fit(s);
	else if (s->alike)
		judge_taken(s);
	s->alike = is_like_last(s);
	s->met = 0;
	s->now = !s->now;
	s->step[s->now].count = 0;
	s->step[s->now].mixed = false;
	s->next = 0;
	s->sure = MOST;
	s->mapped = 0;
	s->waited = 0;
	s->changed = false;
}

void glk_step_end(struct glk_cache *cache)
{
	struct glk_steps *s;

	glk_lock(&cache->lock);
	s = cache->steps;
	if (s) {
		/* one without a request says nothing */
		if (s->step[s->now].count)
			turn_over(s);
	} else {
		/* steps tell where blocks lie from here on, and note all requests */
		glk_latest_settle(cache);
		s = glk_region_new(sizeof(*s));
		if (s) {
			s->rest = 1;
			s->pause = 2;
		}
		cache->steps = s;
	}
	glk_unlock(&cache->lock);
}

void glk_step_fini(struct glk_cache *cache)
{
	if (cache->steps)
		glk_region_free(cache->steps, sizeof(*cache->steps));
	cache->steps = NULL;
}
