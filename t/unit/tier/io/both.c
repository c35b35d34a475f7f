/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Copies both ways at once, and of several GPUs, in the modelled time of the software device: ways do not hold up
 * each other, with little staging memory, and where links share an uplink.
 */
#define ROOM  ((size_t)4 << 20)
#define BYTES ROOM /* of each copy: what is modelled is the same in more pieces */
#include "unit/api/copy_rig.h"

#define RATE 55.5 /* soft.link, bytes a ns */

/* A thread that fills staging memory and waits for a processor makes modelled time longer, never shorter. */
#define TRIES 5
static int wrong; /* jobs, blocks and contents, of all scenes */

static double modelled(void)
{
	int64_t now = 0;

	glk_soft_pace_time(context->drv, &now);
	return (double)now;
}

/* Copies of one GPU: its streams and blocks for each way. */
struct end {
	struct CUstream_st *stream[GLK_IO_WAYS];
	void *block[GLK_IO_WAYS];
	struct glake_copy_job *job[GLK_IO_WAYS];
};

struct scene {
	int gpus;
	unsigned way[GLK_IO_WAYS]; /* GPUs that copy, a bit each */
	size_t bytes[GLK_IO_WAYS];
	int share; /* GPUs of an uplink */
};

static void open_scene(const struct scene *s, struct end *end)
{
	char gpus[32], share[32];
	const char *const settings[] = {gpus, share, "soft.memory=128MiB",
		"map.span=4GiB", "io.lend=all", "io.least=0", "io.piece=64KiB",
		"io.staging=2MiB", "driver.fault=off", "soft.streams=worker", NULL};

	snprintf(gpus, sizeof(gpus), "soft.gpus=%d", s->gpus);
	snprintf(share, sizeof(share), "soft.link_share=%d", s->share ? s->share : 1);
	begin(settings);
	if (glk_soft_pace(context->drv))
		tap_bail("no pace");
	for (int i = 0; i < s->gpus * GLK_IO_WAYS; i++) {
		struct end *e = &end[i / GLK_IO_WAYS];
		int turn = i % GLK_IO_WAYS, gpu_at = i / GLK_IO_WAYS;

		if (s->way[turn] >> gpu_at & 1 &&
			(glake_stream_new(ctx, gpu_at, &e->stream[turn]) ||
				glake_alloc(ctx, gpu_at, s->bytes[turn], e->stream[turn],
					0, &e->block[turn])))
			tap_bail("no block");
	}
}

static void close_scene(const struct scene *s, struct end *end)
{
	for (int i = 0; i < s->gpus * GLK_IO_WAYS; i++) {
		struct end *e = &end[i / GLK_IO_WAYS];
		int turn = i % GLK_IO_WAYS;

		if (!e->block[turn])
			continue;
		wrong += state_of(e->job[turn]).stage != GLAKE_COPY_DONE;
		wrong += memcmp(e->block[turn], turn ? other : host, s->bytes[turn]) != 0;
		wrong += glake_copy_close(e->job[turn]) != 0;
		wrong += glake_free(ctx, e->block[turn], e->stream[turn]) != 0;
		wrong += glake_stream_free(ctx, i / GLK_IO_WAYS, e->stream[turn]) != 0;
	}
	wrong += !ended();
}

/* ns until the last one has arrived. What goes up is the same for all, so that they may go to one place. */
static double time_of(const struct scene *s)
{
	struct end end[8] = {0};
	double since, took;

	open_scene(s, end);
	since = modelled();
	for (int turn = 0; turn < GLK_IO_WAYS; turn++) {
		for (int i = 0; i < s->gpus; i++) {
			struct end *e = &end[i];
			bool up = turn == GLK_IO_UP;
			int err;

			if (!e->block[turn])
				continue;
			if (up)
				memset(e->block[turn], 7, s->bytes[turn]);
			err = glake_copy(ctx, up ? (void *)other : e->block[turn],
				up ? e->block[turn] : (void *)host, s->bytes[turn],
				e->stream[turn], 0, &e->job[turn]);
			if (err)
				tap_bail("no copy");
		}
	}
	while (!glk_soft_pace_step(context->drv))
		;
	took = modelled() - since;
	close_scene(s, end);
	return took;
}

static struct scene scene_of(int gpus, unsigned down, unsigned up)
{
	return (struct scene){.gpus = gpus,
		.way = {[GLK_IO_DOWN] = down, [GLK_IO_UP] = up},
		.bytes = {[GLK_IO_DOWN] = BYTES, [GLK_IO_UP] = BYTES}};
}

/* To one GPU and from it. */
static void one_gpu(int gpus, int share)
{
	struct scene both = scene_of(gpus, 1, 1), down = scene_of(gpus, 1, 0);
	double one, two, most = 0;

	down.share = both.share = share;
	for (int i = 0; i < TRIES && most <= 1.95; i++) {
		one = time_of(&down);
		two = time_of(&both);
		most = 2 * one / two > most ? 2 * one / two : most;
	}
	ok(most > 1.95, "%d GPUs, %d to an uplink: both ways carry %.3f of one", gpus,
		share, most);
}

/* What the most loaded link has to carry, to what it took: more than `least`. */
static double carried(const struct scene *s, double part, double least)
{
	double most = 0;

	for (int i = 0; i < TRIES && most <= least; i++) {
		double took = time_of(s);

		most = part / took > most ? part / took : most;
	}
	return most;
}

static void several(int gpus)
{
	/* from GPU 1 and past it: over its link to the others, which carries seven of those to the host */
	double some = gpus > 4 ? 0.8 : 0.97, part = (double)BYTES / RATE, got;
	unsigned all = (1u << gpus) - 1;
	struct scene s = scene_of(gpus, all, all);

	got = carried(&s, part, 0.97);
	ok(got > 0.97, "%d GPUs: all of them, both ways, %.3f of plain copies", gpus,
		got);
	s = scene_of(gpus, 1, 2);
	got = carried(&s, part / gpus, some);
	ok(got > some, "down to one and up from another: %.3f of the links", got);
	s = scene_of(gpus, 1, all & ~1u);
	got = carried(&s, part * (gpus - 1) / gpus, 0.94);
	ok(got > 0.94, "down to one and up from all others: %.3f", got);
}

int main(void)
{
	int most = tap_on_valgrind() ? 2 : 8;

	tap_plan_later();
	copy_rig_start();
	fill(host, ROOM);
	for (int gpus = 2; gpus <= most; gpus *= 2)
		one_gpu(gpus, 1);
	one_gpu(4, 2);
	for (int gpus = 2; gpus <= most; gpus *= 2)
		several(gpus);
	is_int(wrong, 0, "all arrives as it was");
	return tap_done();
}
