/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents that go over links near several NUMA nodes of the host: they lie on these nodes, and each link carries
 * what lies on its own. GPUs 0 and 2 are near one of two, 1 and 3 near the other, and what the nodes send each other
 * is less than half of what a link carries. GLAKE_T_MOVE_MIB as in move.c.
 */
#include "move/away.h"
#include "tier/io/link.h"
#include "unit/tier/move_rig.h"

static struct glk_store *store_of(void)
{
	return &context->caches[0].mover.store;
}

/* Of all bytes that a step moves, those that go from one node to the other. */
static double crossed(void)
{
	static uint64_t before;
	uint64_t up = 0, down = 0, now;

	glk_soft_across_bytes(context->drv, true, &up);
	glk_soft_across_bytes(context->drv, false, &down);
	now = up + down - before;
	before = up + down;
	return (double)now / (double)(BLOCKS * size);
}

enum nodes {
	UNKNOWN, /* contents lie on one node, and nobody knows what nodes are */
	ALONE,	 /* on one, and what the nodes send each other is known */
	NEAR,	 /* near the links */
};

static void open_nodes(size_t bytes, enum nodes nodes)
{
	size_t piece = bytes / 64 < 8 * MIB ? bytes / 64 : 8 * MIB;
	char text[32];

	snprintf(text, sizeof(text), "io.piece=%zu", piece);
	more[0] = "soft.nodes=2";
	more[1] = "soft.across=20000";
	begin("io.lend=all", text, "io.staging=64MiB", bytes);
	more[0] = NULL;
	crossed();
	if (glk_away_start(&context->caches[0]))
		tap_bail("no mover");
	if (nodes == NEAR)
		return;
	store_of()->nears = 1;
	if (nodes == ALONE)
		return;
	glk_lock(&context->io.lock);
	glk_link_learn(&context->io);
	context->io.across[GLK_IO_DOWN].rate = context->io.across[GLK_IO_UP].rate = 0;
	glk_unlock(&context->io.lock);
}

static void links(enum nodes nodes, double least, double most, double across)
{
	static const char *const names[] = {
		"on a node of which nobody knows", "on one node", "near the links"};
	static const struct {
		const char *name;
		int (*act)(void);
		bool out;
	} way[] = {{"spill", spill, true}, {"fetch", fetch, false},
		{"suspend", suspend, true}, {"resume", resume, false}};
	const char *mib = getenv("GLAKE_T_MOVE_MIB");
	size_t bytes = (mib ? strtoul(mib, NULL, 10) : 8) * MIB;

	open_nodes(bytes, nodes);
	for (int i = 0; i < 4; i++) {
		double rate = rate_of(way[i].act, way[i].out), part = crossed();

		ok(rate > least && rate < most,
			"%s of %d blocks of %zu MiB, %s: %.2f links", way[i].name, BLOCKS,
			bytes / MIB, names[nodes], rate);
		ok(part >= across - 0.05 && part <= across + 0.05,
			"%.2f of it from one node to the other", part);
		if (!way[i].out)
			ok(is_whole(), "all bytes are right");
	}
	is_int(close_all(), 0, "nothing is left");
}

/* Parts of a block that come back alone, in whatever order, find their links as well. */
static void parts(void)
{
	static const int order[] = {2, 0, 3, 1};
	size_t part;

	open_nodes(16 * MIB, NEAR);
	part = size / 4;
	is_int(spill(), 0, "blocks go away");
	crossed();
	for (int i = 0; i < 4; i++) {
		for (int b = 0; b < BLOCKS; b++)
			is_int(glake_fetch_range(ctx, block[b], (size_t)order[i] * part,
				       part, stream, NULL),
				0, "a part comes back");
	}
	context->drv->ops->device_sync(context->drv, 0);
	ok(crossed() < 0.05, "from where its links are");
	ok(is_whole(), "all bytes are right");
	is_int(close_all(), 0, "nothing is left");
}

/* A node that is full: contents lie on the other one, and all of them come back. */
static void full(void)
{
	static char other[1];
	int node = 1;

	open_nodes(8 * MIB, NEAR);
	if (context->drv->ops->host_lock(context->drv, 0, other, (size_t)128 << 30) ||
		context->drv->ops->host_node(context->drv, other, &node))
		tap_bail("no room");
	is_int(spill(), 0, "blocks go away");
	ok(store_of()->astray == GLK_STORE_PIECE && !store_of()->near[1].there,
		"to the node that has room");
	is_int(fetch(), 0, "and come back");
	ok(is_whole(), "all bytes are right");
	context->drv->ops->host_unlock(context->drv, 0, other);
	is_int(close_all(), 0, "nothing is left");
}

int main(void)
{
	tap_plan_later();
	links(UNKNOWN, 0.5, 1, 0.5);
	links(ALONE, 2, 2.5, 0.15);
	links(NEAR, 3.9, 4.01, 0);
	parts();
	full();
	return tap_done();
}
