/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How the program begins, with which settings, and how it ends: all is given back. */
#include "stress/mover/mover.h"

#include "api/context.h"
#include "base/clock.h"
#include "seed.h"
#include "soft/soft.h"
#include "tier/tier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void world_open(struct world *w, uint64_t seed)
{
	uint64_t state = seed_thread(2 * seed, 1);
	char budget[32], order[40], host[40], room[40];
	const char *const rests[] = {"tier.compress_rest=0", "tier.compress_rest=100us",
		"tier.compress_rest=3ms"};
	const char *settings[24] = {"soft.streams=random", "soft.memory=512MiB",
		"map.span=16GiB", "driver.fault=off", "soft.gpus=2", "tier.peer=1",
		"tier.managed_chunk=8MiB", room, budget, order, host};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glk_context *context;
	unsigned n = 11;
	void *first = NULL;

	make_numbers();
	memset(w, 0, sizeof(*w));
	w->random = seed_thread(2 * seed, 0); /* the lowest bit is lost */
	w->doing = "glake_open";
	w->tell = getenv("GLAKE_TEST_TELL");
	snprintf(budget, sizeof(budget), "pool.budget=%uMiB",
		(unsigned)(16 + seed_below(&state, 4) * 12));
	snprintf(order, sizeof(order), "soft.seed=%u",
		(unsigned)seed_below(&state, 1 << 30));
	snprintf(host, sizeof(host), "tier.host=%uMiB",
		(unsigned)(64 + seed_below(&state, 5) * 64));
	w->peer = seed_below(&state, 3) == 0;
	if (w->peer)
		settings[n++] = "tier.place=peer";
	else if (seed_below(&state, 2))
		settings[n++] = "tier.place=host";
	if (seed_below(&state, 3) == 0)
		settings[n++] = "policy.bins=0";
	if (seed_below(&state, 4) == 0)
		settings[n++] = "pool.large_page=4MiB";
	w->faults = seed_below(&state, 2);
	/* of a piece, and of some less than two */
	w->peer_away = seed_below(&state, 2);
	if (w->peer_away)
		settings[n++] = "tier.away=peer";
	snprintf(room, sizeof(room), "tier.peer_room=%uMiB",
		w->peer_away ? (unsigned)(64 + seed_below(&state, 4) * 20) : 8);
	w->peer |= w->peer_away;
	w->packs = seed_below(&state, 2) && !glk_pack_able();
	if (w->packs) {
		settings[n++] = "tier.compress=lz4";
		settings[n++] = rests[seed_below(&state, 3)];
	}
#ifdef GLK_XXHASH
	if (seed_below(&state, 4) == 0)
		settings[n++] = "tier.verify=yes";
#endif
	if (glake_open(&options, &w->ctx) || glk_context_get(w->ctx, &context))
		tap_bail("no context");
	w->drv = context->drv;
	for (int i = 1; i < LANES; i++)
		judge(w, w->drv->ops->stream_new(w->drv, 0, &w->lane[i]), NULL);
	for (int i = 0; i < EVENTS; i++)
		judge(w, glake_event_new(w->ctx, 0, &w->event[i]), NULL);
	/* what the GPU is begun with does not fail */
	judge(w, glake_alloc(w->ctx, 0, 512, NULL, 0, &first), NULL);
	judge(w, glake_free(w->ctx, first, NULL), NULL);
	for (int i = 0; i < TAGS; i++)
		judge(w, glake_tag_open(w->ctx, i ? "one" : "other", &w->tag[i]), NULL);
}

void world_close(struct world *w)
{
	int64_t until = glk_clock_ns() + (w->packs ? 100000000000 : 0);
	struct glake_stats s = {.sz = sizeof(s)};
	size_t leaked = 0;

	if (!w->wrong)
		look(w);
	end_suspensions(w);
	if (!w->wrong)
		look(w);
	w->doing = "the end";
	for (int i = 0; i < TICKETS; i++)
		glake_ticket_close(w->ticket[i]);
	for (int i = 0; i < BLOCKS; i++) {
		if (w->block[i].at)
			judge(w, glake_free(w->ctx, w->block[i].at, NULL), NULL);
	}
	for (int i = 0; i < TAGS; i++)
		judge(w, glake_tag_close(w->ctx, w->tag[i]), NULL);
	for (int i = 1; i < LANES; i++)
		judge(w, glake_stream_free(w->ctx, 0, w->lane[i]), NULL);
	for (int i = 0; i < EVENTS; i++)
		judge(w, glake_event_free(w->ctx, 0, w->event[i]), NULL);
	/* what copies still use goes with the next one, and what a thread compresses when that has ended */
	for (int i = 0; i < 2 || (s.host_held && glk_clock_ns() < until); i++) {
		glk_soft_run_all(w->drv);
		judge(w, glake_trim(w->ctx, 0, 0, NULL), NULL);
		judge(w, glake_stats_get(w->ctx, 0, &s), NULL);
	}
	if (s.live || s.away || s.placed || s.reserved || s.host_held || s.borrowed)
		failed(w,
			"at the end: live %llu, away %llu, placed %llu, held %llu, host %llu, lent %llu",
			(unsigned long long)s.live, (unsigned long long)s.away,
			(unsigned long long)s.placed, (unsigned long long)s.reserved,
			(unsigned long long)s.host_held, (unsigned long long)s.borrowed);
	judge(w, glake_close(w->ctx, &leaked), NULL);
	if (leaked)
		failed(w, "%zu blocks were left", leaked);
}
