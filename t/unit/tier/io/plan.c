/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Plans on hosts of all kinds, carried out in simulated time: every byte goes once, no link carries more
 * than it can, and all has arrived at most a tenth later than the most that flows through the links
 * allows.
 */
#include "tier/io/plan.h"

#include "seed.h"
#include "tap.h"
#include "unit/tier/io/flow.h"

#define PIECE  1000000.0
#define PIECES 400
#define HOSTS  60

static uint64_t state;

static double between(double low, double high)
{
	return low + (high - low) * (double)(seed_next(&state) % 1000) / 1000;
}

/* A host with links of its own and what is booked on them. */
struct rig {
	struct flow_host h;
	bool up;
	struct glk_plan_link link[8], leave[8], come[8], uplink[8];
	struct glk_plan_path path[8];
	struct glk_plan_buffer buffer[8];
	int gpu[8];
	unsigned count;
};

static void over_host(struct rig *rig, int gpu, struct glk_plan_link **hop)
{
	hop[0] = &rig->link[gpu];
	hop[1] = rig->h.group[gpu] < 0 ? NULL : &rig->uplink[rig->h.group[gpu]];
}

static void wire(struct rig *rig, unsigned slots)
{
	struct flow_host *h = &rig->h;

	for (int i = 0; i < 8; i++) {
		rig->link[i] = (struct glk_plan_link){.rate = h->link[i]};
		/* what leaves the target comes to the others */
		rig->leave[i] = (struct glk_plan_link){
			.rate = rig->up ? h->come[i] : h->leave[i]};
		rig->come[i] = (struct glk_plan_link){
			.rate = rig->up ? h->leave[i] : h->come[i]};
		rig->uplink[i] = (struct glk_plan_link){.rate = h->uplink[i]};
	}
	rig->count = 0;
	for (int n = 0; n < h->gpus; n++) {
		/* the target's own first */
		int i = n == 0 ? h->target : n <= h->target ? n - 1 : n;
		struct glk_plan_path *p = &rig->path[rig->count];

		if (i != h->target && !h->lends[i])
			continue;
		rig->buffer[rig->count] = (struct glk_plan_buffer){.slots = slots};
		*p = (struct glk_plan_path){
			.buffer = i == h->target ? NULL : &rig->buffer[rig->count]};
		over_host(rig, i, p->hop[rig->up && i != h->target ? 1 : 0]);
		p->own = &rig->link[i];
		if (i != h->target) {
			p->hop[!rig->up][0] =
				rig->up ? &rig->leave[h->target] : &rig->leave[i];
			p->hop[!rig->up][1] =
				rig->up ? &rig->come[i] : &rig->come[h->target];
		}
		rig->gpu[rig->count++] = i;
	}
}

static struct flow_host random_host(void)
{
	struct flow_host h = {.gpus = 1 + (int)(seed_next(&state) % 8)};

	h.target = (int)(seed_next(&state) % (unsigned)h.gpus);
	for (int i = 0; i < 8; i++) {
		h.lends[i] = seed_next(&state) % 4 != 0;
		h.link[i] = between(20, 60);
		h.leave[i] = between(300, 450);
		h.come[i] = between(300, 450);
		h.uplink[i] = between(30, 120);
		h.group[i] = seed_next(&state) % 2 ? i / 2 : -1;
	}
	return h;
}

/* Which path each piece takes. */
static void assign(struct rig *rig, int *taken)
{
	for (unsigned i = 0; i < rig->count; i++)
		taken[i] = 0;
	for (int n = 0; n < PIECES; n++) {
		int at = glk_plan_pick(rig->path, rig->count, (uint64_t)PIECE, 0);

		if (at < 0)
			tap_bail("no path");
		taken[at]++;
		glk_plan_book(&rig->path[at], (uint64_t)PIECE, 0);
	}
}

/* A hop of a path that carries a piece at the moment. */
struct moving {
	struct glk_plan_link *const *link;
	double left, rate;
	bool fixed;
};

static bool goes_over(const struct moving *m, const struct glk_plan_link *link)
{
	for (int j = 0; j < GLK_PLAN_LANES && m->link[j]; j++)
		if (m->link[j] == link)
			return true;
	return false;
}

/* What a link has left for each of those that it carries and that have no rate yet. */
static double share(const struct moving *m, int count, const struct glk_plan_link *link)
{
	double left = link->rate;
	int open = 0;

	for (int i = 0; i < count; i++) {
		if (!goes_over(&m[i], link))
			continue;
		open += !m[i].fixed;
		left -= m[i].fixed ? m[i].rate : 0;
	}
	return open ? left / open : -1;
}

/* Rates by which all are served alike as far as the links allow (max-min fair). */
static void serve(struct moving *m, int count)
{
	for (int done = 0; done < count;) {
		const struct glk_plan_link *tight = NULL;
		double least = 0, here;

		for (int i = 0; i < count; i++)
			for (int j = 0; j < GLK_PLAN_LANES && m[i].link[j]; j++) {
				here = share(m, count, m[i].link[j]);
				if (here < 0 || m[i].fixed || (tight && here >= least))
					continue;
				tight = m[i].link[j];
				least = here;
			}
		for (int i = 0; i < count; i++) {
			if (m[i].fixed || !goes_over(&m[i], tight))
				continue;
			m[i].fixed = true;
			m[i].rate = least;
			done++;
		}
	}
}

/* A path while it works: how many pieces are before, between and behind its hops. */
struct works {
	int before, between, behind;
	bool busy[2];
	double left[2];
};

/* Hops that can begin do. */
static void start(const struct rig *rig, struct works *w, unsigned i)
{
	int in_slots = w[i].between + w[i].busy[0] + w[i].busy[1];

	if (!w[i].busy[0] && w[i].before &&
		(!rig->path[i].buffer || in_slots < (int)rig->path[i].buffer->slots)) {
		w[i].before--;
		w[i].busy[0] = true;
		w[i].left[0] = PIECE;
	}
	if (!w[i].busy[1] && w[i].between) {
		w[i].between--;
		w[i].busy[1] = true;
		w[i].left[1] = PIECE;
	}
}

static void stop(const struct rig *rig, struct works *w, unsigned i, int hop)
{
	w[i].busy[hop] = false;
	if (hop || !rig->path[i].buffer)
		w[i].behind++;
	else
		w[i].between++;
}

/* The next moment at which a hop ends; the time until then, 0: all is done. */
static double step(const struct rig *rig, struct works *w)
{
	struct moving m[16];
	unsigned of[16];
	int hop[16], count = 0;
	double dt = 0;

	for (unsigned i = 0; i < rig->count; i++) {
		start(rig, w, i);
		for (int h = 0; h < 2; h++) {
			if (!w[i].busy[h])
				continue;
			of[count] = i;
			hop[count] = h;
			m[count++] = (struct moving){
				.link = rig->path[i].hop[h], .left = w[i].left[h]};
		}
	}
	serve(m, count);
	for (int n = 0; n < count; n++)
		if (!n || m[n].left / m[n].rate < dt)
			dt = m[n].left / m[n].rate;
	for (int n = 0; n < count; n++) {
		w[of[n]].left[hop[n]] -= dt * m[n].rate;
		if (w[of[n]].left[hop[n]] < PIECE * 1e-9)
			stop(rig, w, of[n], hop[n]);
	}
	return dt;
}

/* The time until all have arrived. */
static double simulate(const struct rig *rig, const int *taken, int *ret_arrived)
{
	struct works w[8] = {{0}};
	double now = 0, dt;

	for (unsigned i = 0; i < rig->count; i++)
		w[i].before = taken[i];
	while ((dt = step(rig, w)) > 0)
		now += dt;
	*ret_arrived = 0;
	for (unsigned i = 0; i < rig->count; i++)
		*ret_arrived += w[i].behind;
	return now;
}

/* Bytes that go over a link, in the time that it would need for them. */
static double longest(const struct rig *rig, const int *taken)
{
	double most = 0, sum;

	for (unsigned i = 0; i < rig->count; i++)
		for (int h = 0; h < 2; h++)
			for (int j = 0; j < GLK_PLAN_LANES && rig->path[i].hop[h][j];
				j++) {
				struct glk_plan_link *link = rig->path[i].hop[h][j];

				sum = 0;
				for (unsigned k = 0; k < rig->count; k++)
					for (int l = 0; l < 6; l++)
						if (rig->path[k].hop[l / 3][l % 3] ==
							link)
							sum += taken[k] * PIECE;
				if (sum / link->rate > most)
					most = sum / link->rate;
			}
	return most;
}

static void hosts(void)
{
	int slow = 0, lost = 0, above = 0, taken[8], arrived;
	double worst = 0;

	for (int n = 0; n < HOSTS; n++) {
		struct rig rig = {.h = random_host(), .up = n & 1};
		double best = PIECES * PIECE / flow_of_host(&rig.h), took;

		wire(&rig, 4);
		assign(&rig, taken);
		took = simulate(&rig, taken, &arrived);
		lost += arrived != PIECES;
		above += took < longest(&rig, taken) * (1 - 1e-6) ||
			took < best * (1 - 1e-6);
		slow += took > 1.1 * best;
		if (took / best > worst)
			worst = took / best;
	}
	ok(!lost, "all pieces arrive");
	ok(!above, "no link carries more than it can");
	ok(!slow, "%d hosts: the slowest plan takes %.3f of the least time", HOSTS,
		worst);
}

/* Closed forms. */
static double factor(int gpus, int share, double uplink, bool up)
{
	struct rig rig = {.h = {.gpus = gpus}, .up = up};
	int taken[8], arrived;

	for (int i = 0; i < 8; i++) {
		rig.h.lends[i] = true;
		rig.h.link[i] = 55.5;
		rig.h.leave[i] = rig.h.come[i] = 390;
		rig.h.uplink[i] = uplink;
		rig.h.group[i] = share > 1 ? i / share : -1;
	}
	wire(&rig, 4);
	assign(&rig, taken);
	return PIECES * PIECE / simulate(&rig, taken, &arrived) / 55.5;
}

static bool near(double value, double want)
{
	return value > want * 0.97 && value <= want * 1.0001;
}

static void known(void)
{
	ok(near(factor(1, 1, 0, false), 1), "one GPU: its link");
	ok(near(factor(4, 1, 0, false), 4), "four GPUs: four times that");
	ok(near(factor(4, 1, 0, true), 4), "and back");
	ok(near(factor(2, 2, 55.5, false), 1),
		"two behind one uplink: what that carries");
	ok(near(factor(4, 2, 55.5, false), 2), "two pairs: twice that");
	ok(near(factor(4, 2, 83.25, true), 3), "with a faster uplink: three times");
	ok(near(factor(8, 1, 0, false), 390 / 55.5 + 1),
		"eight: what comes over the peers' link");
}

/* One that is busy is left alone until it is free; one that is off for good. */
static void busy(void)
{
	struct rig rig = {.h = {.gpus = 3, .target = 0}};
	int taken[3] = {0};

	for (int i = 0; i < 3; i++) {
		rig.h.lends[i] = true;
		rig.h.link[i] = 50;
		rig.h.leave[i] = rig.h.come[i] = 400;
		rig.h.group[i] = -1;
	}
	wire(&rig, 4);
	rig.link[1].free = 100 * PIECE / 50;
	for (int n = 0; n < 100; n++) {
		int at = glk_plan_pick(rig.path, rig.count, (uint64_t)PIECE, 0);

		taken[at]++;
		glk_plan_book(&rig.path[at], (uint64_t)PIECE, 0);
	}
	is_int(taken[1], 0, "a GPU that is busy is left alone");
	ok(taken[0] >= 50 && taken[2] > 45, "the others share");
	rig.path[2].off = true;
	rig.path[0].off = true;
	is_int(glk_plan_pick(rig.path, rig.count, 1, 0), 1, "unless there is no other");
	rig.path[1].off = true;
	is_int(glk_plan_pick(rig.path, rig.count, 1, 0), -1, "nor any");
}

/* A slot is filled again when it is empty, and not before. */
static void slots(void)
{
	struct glk_plan_link in = {.rate = 100}, out = {.rate = 10};
	struct glk_plan_buffer buffer = {.slots = 2};
	struct glk_plan_path p = {.hop = {{&in}, {&out}}, .own = &in, .buffer = &buffer};

	ok(glk_plan_book(&p, 1000, 0) == 110, "a piece goes hop by hop");
	ok(glk_plan_book(&p, 1000, 0) == 200, "the next behind it, on the slower link");
	out.free = 0;
	ok(glk_plan_arrival(&p, 1000, 0) == 220,
		"the third enters when the first has left");
	ok(glk_plan_book(&p, 1000, 0) == 220, "as is booked");
	ok(glk_plan_book(&p, 1000, 1000) == 1110, "what comes later begins later");
}

int main(void)
{
	tap_plan_later();
	state = seed_thread(seed_start(), 0);
	known();
	busy();
	slots();
	hosts();
	return tap_done();
}
