/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What links carry is measured once, by some copies between staging memory and locked memory of the
 * host near the link, and from there to 2 MiB of the target, which are given back. Not the program's memory: nothing of
 * it may be touched before its time.
 */
#include "tier/io/link.h"

#include "base/slab.h"
#include "driver/driver.h"

#define PROBE  ((uint64_t)8 << 20)
#define PAGE   ((uint64_t)2 << 20)
#define ROUNDS 3
#define COPIES 4
#define HOPS   16
#define LEAST  0.1 /* bytes a ns: a link that seems slower was in use */

struct probe {
	uint64_t dst, src, bytes;
	int gpu; /* whose stream it is */
	struct CUstream_st *stream;
	unsigned copies;
};

/* Bytes a ns, the best of a few rounds; 0: it cannot be had; below 0: and what was queued may be under
 * way still. */
static double measure(struct glk_io *io, const struct probe *p)
{
	struct glk_drv *drv = io->drv;
	double best = 0, rate, since;
	int err = drv->ops->stream_sync(drv, p->gpu, p->stream);

	for (unsigned round = 0; round < ROUNDS && !err; round++) {
		since = glk_io_now(io);
		for (unsigned i = 0; i < p->copies && !err; i++)
			err = drv->ops->copy(drv, p->dst, p->src, p->bytes, p->stream);
		if (!err)
			err = drv->ops->stream_sync(drv, p->gpu, p->stream);
		rate = (double)(p->bytes * p->copies) / (glk_io_now(io) - since + 1);
		if (!err && rate > best)
			best = rate;
	}
	if (err && drv->ops->stream_sync(drv, p->gpu, p->stream))
		return -1;
	return best < LEAST ? 0 : best;
}

/* Of the node of a relay, for all that are near it. NULL: there is none. */
static void *probe_near(struct glk_io *io, int relay)
{
	int node = glk_io_node(io, relay);
	void *probe;

	for (int gpu = 0; gpu < io->gpus; gpu++) {
		if (io->gpu[gpu].probe && glk_io_node(io, gpu) == node)
			return io->gpu[gpu].probe;
	}
	probe = glk_region_new(PROBE);
	/* where the node cannot be chosen it lies where it falls */
	if (probe)
		glk_numa_prefer(probe, PROBE, node);
	if (probe && io->drv->ops->host_lock(io->drv, relay, probe, PROBE)) {
		glk_region_free(probe, PROBE);
		probe = NULL;
	}
	io->gpu[relay].probe = probe;
	return probe;
}

void glk_link_probe_end(struct glk_io *io)
{
	for (int gpu = 0; io->gpu && gpu < io->gpus; gpu++) {
		struct glk_io_gpu *g = &io->gpu[gpu];

		if (!g->probe)
			continue;
		io->drv->ops->host_unlock(io->drv, gpu, g->probe);
		glk_region_free(g->probe, PROBE);
		g->probe = NULL;
	}
}

static bool measure_host(struct glk_io *io, int relay, void *probe, int turn)
{
	struct glk_io_gpu *g = &io->gpu[relay];
	uint64_t host = (uint64_t)(uintptr_t)probe;
	bool down = turn == GLK_IO_DOWN;
	struct probe p = {.dst = down ? g->ring[turn].base : host,
		.src = down ? host : g->ring[turn].base,
		.bytes = g->size / 2 < PROBE ? g->size / 2 : PROBE,
		.gpu = relay,
		.stream = g->ring[turn].stream,
		.copies = COPIES};
	double rate = g->ring[turn].stream ? measure(io, &p) : 0;

	if (rate > 0)
		g->down.rate = g->up.rate = rate;
	return rate >= 0;
}

/* Of both ways, and what follows from it for others. */
static bool measure_hosts(struct glk_io *io, int relay, int target)
{
	struct glk_io_gpu *r = &io->gpu[relay], *t = &io->gpu[target];
	void *probe = probe_near(io, relay);

	/* once, before the first piece: later a hop may read the slots that this writes */
	r->measured = true;
	if (!probe)
		return true;
	for (int turn = 0; turn < GLK_IO_WAYS; turn++)
		if (!measure_host(io, relay, probe, turn))
			return false;
	r->due = true;
	if (!t->measured)
		t->down.rate = t->up.rate = r->down.rate;
	for (int turn = 0; turn < GLK_IO_WAYS; turn++) {
		if (r->uplink[turn] && r->uplink[turn]->rate < r->down.rate)
			r->uplink[turn]->rate = r->down.rate;
	}
	return true;
}

/* To memory of the target that is there for this alone. */
static double measure_hop(
	struct glk_io *io, int relay, int target, uint64_t addr, int turn)
{
	struct probe p = {.dst = addr,
		.src = io->gpu[relay].base,
		.bytes = PAGE / 2,
		.gpu = target,
		.stream = io->gpu[target].hop[turn][relay],
		.copies = HOPS};

	return p.stream ? measure(io, &p) : 0;
}

static double measure_peer(struct glk_io *io, int relay, int target, int turn)
{
	struct glk_grant grant = {
		.who = {GLK_PLACE_GPU, target}, .access = GLK_ACCESS_WRITE};
	struct glk_node *node = glk_pool_gpu(io->pool, target);
	struct glk_drv *drv = io->drv;
	double rate = 0;
	uint32_t page;
	uint64_t addr;

	if (!glk_node_has_room(node, PAGE) || glk_node_grow(node, PAGE, &page))
		return 0;
	if (drv->ops->reserve(drv, PAGE, PAGE, &addr))
		goto release;
	if (drv->ops->map(drv, addr, PAGE, glk_page_at(io->pool, page)->handle))
		goto unreserve;
	if (!drv->ops->set_access(drv, addr, PAGE, &grant, 1))
		rate = measure_hop(io, relay, target, addr, turn);
	if (rate < 0 || drv->ops->unmap(drv, addr, PAGE)) {
		glk_node_lose(node, page);
		return rate < 0 ? rate : 0;
	}
unreserve:
	drv->ops->unreserve(drv, addr, PAGE);
release:
	glk_node_release(node, page);
	return rate;
}

/* By the hop that there is: of the way that is about to be used, or both. */
static bool measure_hops(struct glk_io *io, int relay, int target)
{
	struct glk_io_gpu *r = &io->gpu[relay], *t = &io->gpu[target];
	int turn = t->hop[GLK_IO_DOWN][relay] ? GLK_IO_DOWN : GLK_IO_UP;
	double rate = measure_peer(io, relay, target, turn);

	if (rate > 0)
		r->leave.rate = r->come.rate = rate;
	return rate >= 0;
}

bool glk_link_measure(struct glk_io *io, int relay, int target)
{
	struct glk_io_gpu *r = &io->gpu[relay], *t = &io->gpu[target];

	if (!r->measured && !measure_hosts(io, relay, target))
		return false;
	/* while the target is suspended nothing is taken there */
	if (!r->due || glk_lend_is_shut(glk_pool_gpu(io->pool, target)))
		return true;
	r->due = false;
	if (!measure_hops(io, relay, target))
		return false;
	/* a target that lends nothing has a link like the others, as far as is known */
	if (!t->measured && t->come.rate < r->leave.rate)
		t->come.rate = t->leave.rate = r->leave.rate;
	return true;
}
