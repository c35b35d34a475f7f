/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* All that can be looked at while the threads wait. */
#include "stress/tide/tide.h"

#include "api/context.h"
#include "move/plan.h"
#include "soft/soft.h"
#include "unit/cache/walk.h"

static void verify(struct hand *h, struct glk_cache *cache)
{
	if (!glk_load_relaxed(&cache->started))
		return;
	glk_lock(&cache->lock);
	glk_plan_close(cache);
	for (struct glk_arena *a = &cache->arena; a; a = a->next)
		judge(h, map_verify(&a->map), NULL);
	glk_plan_open(cache);
	glk_unlock(&cache->lock);
	/* hints are carried out by a thread of the library while this is done */
	if (!h->w->ahead && !walk_tables_are_sound(cache))
		failed(h, "the tables do not agree");
}

static void look_at_block(struct hand *h, struct block *b, const struct glake_block *q)
{
	const struct world *w = h->w;
	int i = (int)(b - h->block);

	if (q->size != b->size || (int)q->pins != b->pins)
		failed(h, "block %d has %zu bytes, %u pins", i, q->size, q->pins);
	if (q->away && b->pins)
		failed(h, "block %d is pinned and away", i);
	if (q->away && !b->away && !w->suspended[b->gpu] &&
		!(b->tag >= 0 && w->tag_suspended[b->gpu][b->tag]))
		failed(h, "block %d is away, and nobody sent it", i);
	if (!q->away && b->sent && !b->came)
		failed(h, "block %d is here, and nobody had it back", i);
	if (usable(h, b))
		compare(h, b);
}

/* All others wait. */
void look(struct hand *first, int gpu)
{
	uint64_t away = 0, placed = 0, live = 0;
	struct glake_stats s = {.sz = sizeof(s)};
	struct glk_context *context;
	struct world *w = first->w;

	first->doing = "look";
	if (glk_context_get(w->ctx, &context))
		tides_bail("no context");
	verify(first, &context->caches[gpu]);
	judge(first, glake_stats_get(w->ctx, gpu, &s), NULL);
	w->packed += s.packed > 0;
	glk_soft_run_all(w->drv);
	for (unsigned i = 0; i < w->hands * BLOCKS && !glk_load_relaxed(&w->wrong); i++) {
		struct hand *h = &w->hand[i / BLOCKS];
		struct block *b = &h->block[i % BLOCKS];
		struct glake_block q;

		if (!b->at || b->gpu != gpu)
			continue;
		h->doing = "look";
		q = asked(h, b);
		away += q.away;
		placed += q.placed;
		live += b->size;
		look_at_block(h, b, &q);
	}
	/* as above */
	if (!w->ahead && (s.away != away || s.placed != placed || s.live != live))
		failed(first,
			"GPU %d: away %llu, placed %llu, live %llu; blocks: %llu, %llu, %llu",
			gpu, (unsigned long long)s.away, (unsigned long long)s.placed,
			(unsigned long long)s.live, (unsigned long long)away,
			(unsigned long long)placed, (unsigned long long)live);
}

void meet(struct hand *h)
{
	pthread_barrier_wait(&h->w->meeting);
	if (h == h->w->hand && !glk_load_relaxed(&h->w->wrong)) {
		if (!h->w->faults && tides_warnings())
			failed(h, "a warning");
		for (int gpu = 0; gpu < GPUS && !is_lost(h); gpu++)
			look(h, gpu);
	}
	pthread_barrier_wait(&h->w->meeting);
}
