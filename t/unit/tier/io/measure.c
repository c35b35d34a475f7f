/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What links carry where the driver does not tell it, by a clock that the test makes. */
#include "tier/io/link.h"
#include "unit/api/copy_rig.h"

#define GUESS_HOST 55.5
#define GUESS_PEER 390.0
/* Copied in a round: by half of io.staging four times, and 1 MiB sixteen times between GPUs. */
#define HOST_BYTES (4.0 * (double)MIB)
#define PEER_BYTES (16.0 * (double)MIB)

/* It goes on by so many ns when it is read, so that each round takes that. */
static double tick;

static double ticking(struct glk_io *io)
{
	static double now;

	(void)io;
	return now += tick;
}

/* How often the driver was waited for. */
static uint64_t waits(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	glake_driver_stats_get(ctx, &stats);
	return stats.calls[GLAKE_CALL_SYNC];
}

static bool about(double rate, double wanted)
{
	return rate > 0.999 * wanted && rate < 1.001 * wanted;
}

/* The copies of a context whose first GPU lends nothing. Rounds of them take so long. */
static void measured(double round, double to_host, double peer)
{
	static const char *const settings[] = {MANY, "io.lend=1-3", NULL};
	struct glk_io_gpu *g;
	uint64_t before;
	int wrong = 0;

	tick = round;
	begin(settings);
	g = context->io.gpu;
	context->io.now = ticking;
	glk_fault_set(context->drv, "link_get:from=1:err=EOPNOTSUPP");
	before = waits();
	ok(round_trip(3 * MIB) && waits() > before + 6, "links are measured");
	for (int i = 1; i < 4; i++)
		wrong += !g[i].measured || !about(g[i].down.rate, to_host) ||
			!about(g[i].up.rate, to_host) || !about(g[i].leave.rate, peer) ||
			!about(g[i].come.rate, peer);
	ok(!wrong, "they carry %.2f bytes a ns, and %.2f between GPUs", to_host, peer);
	ok(!g[0].measured && about(g[0].down.rate, to_host) &&
			about(g[0].up.rate, to_host),
		"and so does that of a GPU which lends nothing");
	ok(g[0].come.rate >= g[1].leave.rate && g[0].leave.rate >= g[1].come.rate,
		"which takes as much as comes");
	before = waits();
	ok(round_trip(3 * MIB) && waits() <= before + 1, "once");
	end();
}

/* Near each link, by memory that is there once for each node. */
static void near(void)
{
	static const char *const settings[] = {MANY, "io.lend=1-3", "soft.nodes=2", NULL};
	const struct glk_io_gpu *g;

	tick = 1e5;
	begin(settings);
	g = context->io.gpu;
	context->io.now = ticking;
	glk_fault_set(context->drv, "link_get:from=1:err=EOPNOTSUPP");
	ok(round_trip(3 * MIB), "links near two nodes are measured");
	ok(g[1].probe && g[2].probe && g[1].probe != g[2].probe,
		"each by memory of its node");
	ok(!g[3].probe && g[3].measured, "which those of one node share");
	end();
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
	measured(1e5, HOST_BYTES / 1e5, PEER_BYTES / 1e5);
	/* faster than was thought */
	measured(2e4, HOST_BYTES / 2e4, PEER_BYTES / 2e4);
	/* slow links are links all the same */
	measured(2e7, HOST_BYTES / 2e7, PEER_BYTES / 2e7);
	/* those that seem to carry nothing were in use, and carry what was thought */
	measured(1e9, GUESS_HOST, GUESS_PEER);
	near();
	return tap_done();
}
