/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a program begins with, by its seed, and its end. */
#include "stress/tide/tide.h"

#include "api/context.h"
#include "base/clock.h"
#include "seed.h"
#include "soft/soft.h"
#include "tier/tier.h"

#include <sched.h>

static void open_hand(struct hand *h, struct world *w, uint64_t seed)
{
	h->w = w;
	h->random = seed;
	h->doing = "the beginning";
	for (int gpu = 0; gpu < GPUS; gpu++) {
		for (int i = 1; i < LANES; i++)
			judge(h, w->drv->ops->stream_new(w->drv, gpu, &h->lane[gpu][i]),
				NULL);
		for (int i = 0; i < EVENTS; i++)
			judge(h, glake_event_new(w->ctx, gpu, &h->event[gpu][i]), NULL);
	}
}

static unsigned choose_settings(struct world *w, uint64_t *state, const char **settings)
{
	static const char *const budgets[] = {
		"pool.budget=20MiB", "pool.budget=32MiB", "pool.budget=48MiB"};
	static const char *const hosts[] = {
		"tier.host=64MiB", "tier.host=192MiB", "tier.host=512MiB"};
	static const char *const places[] = {
		"tier.place=peer", "tier.place=host", "tier.place=gpu"};
	static const char *const rests[] = {"tier.compress_rest=0",
		"tier.compress_rest=100us", "tier.compress_rest=2ms"};
	unsigned n = 0;

	settings[n++] = budgets[seed_below(state, 3)];
	settings[n++] = hosts[seed_below(state, 3)];
	settings[n++] = places[seed_below(state, 3)];
	if (seed_below(state, 2) && !glk_pack_able()) {
		settings[n++] = "tier.compress=lz4";
		settings[n++] = rests[seed_below(state, 3)];
	}
#ifdef GLK_XXHASH
	if (seed_below(state, 4) == 0)
		settings[n++] = "tier.verify=yes";
#endif
	w->ahead = seed_below(state, 4) == 0;
	if (w->ahead)
		settings[n++] =
			seed_below(state, 4) == 0 ? "pool.rest=1ms" : "pool.ahead=64MiB";
	if (seed_below(state, 3) == 0)
		settings[n++] = "policy.bins=0";
	if (seed_below(state, 4) == 0)
		settings[n++] = "pool.large_page=4MiB";
	w->faults = seed_below(state, 3) == 0;
	w->hands = 2 + (unsigned)seed_below(state, HANDS - 1);
	return n;
}

void tides_open(struct world *w, uint64_t seed)
{
	uint64_t state = seed_thread(2 * seed, HANDS);
	const char *settings[24] = {"soft.streams=random", "soft.memory=512MiB",
		"map.span=16GiB", "driver.fault=off", "soft.gpus=2", "tier.peer=1",
		"tier.peer_room=8MiB"};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glk_context *context;
	void *first = NULL;

	draw_numbers();
	memset(w, 0, sizeof(*w));
	choose_settings(w, &state, settings + 7);
	if (getenv("GLAKE_TEST_TELL")) {
		for (int i = 7; settings[i]; i++)
			tap_note("%s", settings[i]);
		tap_note("%u threads%s", w->hands, w->faults ? ", the driver fails" : "");
	}
	if (glake_open(&options, &w->ctx) || glk_context_get(w->ctx, &context))
		tides_bail("no context");
	w->drv = context->drv;
	pthread_barrier_init(&w->meeting, NULL, w->hands);
	for (unsigned i = 0; i < w->hands; i++)
		open_hand(&w->hand[i], w, seed_thread(2 * seed, i));
	for (int gpu = 0; gpu < GPUS; gpu++) {
		pthread_rwlock_init(&w->use[gpu], NULL);
		/* what the GPU is begun with does not fail */
		judge(w->hand, glake_alloc(w->ctx, gpu, 512, NULL, 0, &first), NULL);
		judge(w->hand, glake_free(w->ctx, first, NULL), NULL);
	}
	for (int i = 0; i < TAGS; i++)
		judge(w->hand, glake_tag_open(w->ctx, i ? "one" : "other", &w->tag[i]),
			NULL);
}

static void close_hand(struct hand *h)
{
	struct world *w = h->w;

	h->doing = "the end";
	for (int i = 0; i < TICKETS; i++)
		glake_ticket_close(h->ticket[i]);
	for (int i = 0; i < BLOCKS; i++) {
		if (h->block[i].at)
			judge(h, glake_free(w->ctx, h->block[i].at, NULL), NULL);
	}
	for (int gpu = 0; gpu < GPUS; gpu++) {
		for (int i = 1; i < LANES; i++)
			judge(h, glake_stream_free(w->ctx, gpu, h->lane[gpu][i]), NULL);
		for (int i = 0; i < EVENTS; i++)
			judge(h, glake_event_free(w->ctx, gpu, h->event[gpu][i]), NULL);
	}
}

/* What copies still use goes with the next trim, and what a thread compresses when that has ended. */
static void empty(struct hand *h)
{
	struct glake_stats s[GPUS] = {{.sz = sizeof(s[0])}, {.sz = sizeof(s[0])}};
	int64_t until = glk_clock_ns() + 100000000000;
	bool left = true;

	for (int i = 0; i < 2 || (left && glk_clock_ns() < until); i++) {
		left = false;
		glk_soft_run_all(h->w->drv);
		for (int gpu = 0; gpu < GPUS; gpu++) {
			judge(h, glake_trim(h->w->ctx, gpu, 0, NULL), NULL);
			judge(h, glake_stats_get(h->w->ctx, gpu, &s[gpu]), NULL);
			left |= s[gpu].reserved || s[gpu].host_held;
		}
		sched_yield();
	}
	for (int gpu = 0; gpu < GPUS && !is_lost(h); gpu++) {
		if (s[gpu].live || s[gpu].away || s[gpu].placed || s[gpu].reserved ||
			s[gpu].host_held)
			failed(h,
				"GPU %d: live %llu, away %llu, placed %llu, held %llu, host %llu",
				gpu, (unsigned long long)s[gpu].live,
				(unsigned long long)s[gpu].away,
				(unsigned long long)s[gpu].placed,
				(unsigned long long)s[gpu].reserved,
				(unsigned long long)s[gpu].host_held);
	}
}

void tides_close(struct world *w)
{
	struct hand *h = w->hand;
	size_t leaked = 0;

	deed_resume_all(h);
	for (int gpu = 0; gpu < GPUS && !glk_load_relaxed(&w->wrong) && !is_lost(h);
		gpu++)
		look(h, gpu);
	for (unsigned i = 0; i < w->hands; i++)
		close_hand(&w->hand[i]);
	for (int i = 0; i < TAGS; i++)
		judge(h, glake_tag_close(w->ctx, w->tag[i]), NULL);
	empty(h);
	judge(h, glake_close(w->ctx, &leaked), NULL);
	if (leaked)
		failed(h, "%zu blocks were left", leaked);
	tides_expected();
	pthread_barrier_destroy(&w->meeting);
	for (int gpu = 0; gpu < GPUS; gpu++)
		pthread_rwlock_destroy(&w->use[gpu]);
}
