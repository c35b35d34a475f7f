/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The links of GPUs: see link.h. What is booked on a link is an estimate; when everything that was
 * queued on it is seen to have finished the link is free, whatever had been thought. The share of a borrowed
 * link that this process has is a link to the plan.
 */
#include "tier/io/link.h"

#include "base/slab.h"
#include "driver/driver.h"

#include <errno.h>
#include <string.h>

/* What is taken to be true until it was measured: PCIe 5 and NVLink 4, MB a second. */
#define HOST_RATE 55500
#define PEER_RATE 390000
/* Between NUMA nodes, by what is said of such links: two to four of 25 to 60 GB/s each way. */
#define ACROSS_RATE 111000

static double rate_of(int64_t mb)
{
	return (double)mb / 1000;
}

void glk_link_groups(const struct glk_sysroot *root, const char (*ids)[GLK_PCI_MAX],
	int count, int *ret_groups)
{
	char port[GLK_IO_GPUS][GLK_PCI_MAX];

	for (int i = 0; i < count; i++) {
		ret_groups[i] = -1;
		if (glk_pci_port(root, ids[i], port[i], sizeof(port[i])))
			port[i][0] = '\0';
		for (int j = 0; j < i; j++) {
			if (!port[i][0] || strcmp(port[i], port[j]))
				continue;
			ret_groups[i] = ret_groups[j] = j;
			break;
		}
	}
}

static void set(struct glk_io *io, int gpu, const struct glk_link *link)
{
	struct glk_io_gpu *g = &io->gpu[gpu];

	g->down.rate = g->up.rate = rate_of(link->host);
	g->leave.rate = g->come.rate = rate_of(link->peer);
	io->across[GLK_IO_DOWN].rate = io->across[GLK_IO_UP].rate = rate_of(link->across);
	for (int turn = 0; turn < GLK_IO_WAYS; turn++) {
		if (link->group < 0 || link->group >= GLK_IO_GPUS)
			continue;
		g->uplink[turn] = &io->groups[link->group * GLK_IO_WAYS + turn];
		g->uplink[turn]->rate = rate_of(link->uplink);
	}
}

/* By what hangs on the ports of the host; rates are measured later. */
static void guess(struct glk_io *io)
{
	struct glk_link link = {.host = HOST_RATE,
		.peer = PEER_RATE,
		.uplink = HOST_RATE,
		.across = ACROSS_RATE};
	struct glake_device info = {.sz = sizeof(info)};
	char ids[GLK_IO_GPUS][GLK_PCI_MAX] = {{0}};
	int groups[GLK_IO_GPUS];

	for (int gpu = 0; gpu < io->gpus; gpu++) {
		if (!io->drv->ops->device_info(io->drv, gpu, &info))
			memcpy(ids[gpu], info.pci, sizeof(ids[gpu]));
	}
	glk_link_groups(NULL, (const char(*)[GLK_PCI_MAX])ids, io->gpus, groups);
	for (int gpu = 0; gpu < io->gpus; gpu++) {
		link.group = groups[gpu];
		set(io, gpu, &link);
	}
}

void glk_link_learn(struct glk_io *io)
{
	struct glk_link link;
	int gpu = 0;

	if (io->known)
		return;
	io->known = true;
	while (gpu < io->gpus && !io->drv->ops->link_get(io->drv, gpu, &link)) {
		set(io, gpu, &link);
		io->gpu[gpu++].measured = true;
	}
	if (gpu == io->gpus)
		return;
	guess(io);
}

int glk_link_pass(struct glk_io *io, struct glk_io_ring *ring)
{
	struct glk_drv_event *passed = NULL;
	int err = ring->unmarked ? -EBUSY : 0;

	for (unsigned i = 0; i < ring->buffer.slots && !err; i++) {
		struct glk_io_slot *slot = &ring->slot[i];

		if (slot->last && slot->last != passed)
			err = io->drv->ops->event_query(io->drv, slot->last);
		if (err)
			return err;
		passed = slot->last ? slot->last : passed;
		slot->last = NULL;
	}
	return err;
}

bool glk_link_idle(struct glk_io *io, struct glk_io_gpu *g, int turn)
{
	if (g->busy[turn] && g->own[turn] &&
		!io->drv->ops->event_query(io->drv, g->own[turn]))
		g->busy[turn] = false;
	return !glk_link_pass(io, &g->ring[turn]) && !g->busy[turn];
}

static void earlier(double *at, double now)
{
	if (*at > now)
		*at = now;
}

/* A link with others is free as far as they all are, and those between GPUs too. */
void glk_link_settle(struct glk_io *io, double now)
{
	bool busy[GLK_IO_WAYS][GLK_IO_GPUS + 1] = {0}, any = false;

	for (int i = 0; i < io->gpus * GLK_IO_WAYS; i++) {
		struct glk_io_gpu *g = &io->gpu[i / GLK_IO_WAYS];
		int turn = i % GLK_IO_WAYS;
		size_t group = g->uplink[turn]
			? (size_t)(g->uplink[turn] - io->groups) / GLK_IO_WAYS
			: GLK_IO_GPUS;

		if (!glk_link_idle(io, g, turn)) {
			busy[turn][group] = any = true;
			continue;
		}
		earlier(turn == GLK_IO_DOWN ? &g->down.free : &g->up.free, now);
		earlier(&g->ring[turn].share.free, now);
		for (unsigned s = 0; s < g->ring[turn].buffer.slots; s++)
			earlier(&g->ring[turn].buffer.held[s], now);
	}
	for (int i = 0; i < GLK_IO_GPUS * GLK_IO_WAYS; i++) {
		if (!busy[i % GLK_IO_WAYS][i / GLK_IO_WAYS])
			earlier(&io->groups[i].free, now);
	}
	for (int gpu = 0; !any && gpu < io->gpus; gpu++) {
		earlier(&io->gpu[gpu].leave.free, now);
		earlier(&io->gpu[gpu].come.free, now);
	}
	for (int turn = 0; !any && turn < GLK_IO_WAYS; turn++)
		earlier(&io->across[turn].free, now);
}

/* Over the link of a GPU to the host. */
static void over_host(struct glk_io_gpu *g, int turn, struct glk_plan_link **hop)
{
	hop[0] = turn == GLK_IO_DOWN ? &g->down : &g->up;
	hop[1] = g->uplink[turn];
}

void glk_link_direct(
	struct glk_io *io, int target, int turn, struct glk_plan_path *ret_path)
{
	*ret_path = (struct glk_plan_path){0};
	over_host(&io->gpu[target], turn, ret_path->hop[0]);
	ret_path->own = ret_path->hop[0][0];
}

void glk_link_relay(struct glk_io *io, int relay, int target, int turn,
	struct glk_plan_path *ret_path)
{
	struct glk_plan_path *path = ret_path;
	struct glk_io_gpu *r = &io->gpu[relay], *t = &io->gpu[target];
	struct glk_plan_link **hop = path->hop[turn == GLK_IO_DOWN ? 0 : 1];
	struct glk_io_ring *ring = &r->ring[turn];

	*path = (struct glk_plan_path){.buffer = &ring->buffer};
	over_host(r, turn, hop);
	/* the part of it that is borrowed is a link of its own, behind those that are there. It may change while a copy is
	 * under way, so all of it is one without a limit */
	ring->share.rate = ring->shares && ring->shares < GLK_AGREE_SHARES
		? hop[0]->rate * ring->shares / GLK_AGREE_SHARES
		: 0;
	hop[hop[1] ? 2 : 1] = &ring->share;
	path->own = turn == GLK_IO_DOWN ? &r->down : &r->up;
	if (turn == GLK_IO_DOWN) {
		path->hop[1][0] = &r->leave;
		path->hop[1][1] = &t->come;
	} else {
		path->hop[0][0] = &t->leave;
		path->hop[0][1] = &r->come;
	}
}

/* ---- Links that are borrowed from other processes: see agree.h ---- */

/* NULL: it has none. Asked for once: the driver looks at more than that to tell it. */
static const char *name_of(struct glk_io *io, int gpu)
{
	struct glake_device info = {.sz = sizeof(info)};

	if (!*io->uuid[gpu] && !io->drv->ops->device_info(io->drv, gpu, &info))
		memcpy(io->uuid[gpu], info.uuid, sizeof(io->uuid[gpu]));
	return *io->uuid[gpu] ? io->uuid[gpu] : NULL;
}

bool glk_link_borrow(struct glk_io *io, int relay, int turn)
{
	struct glk_io_ring *ring = &io->gpu[relay].ring[turn];
	const char *uuid = io->agree.on ? name_of(io, relay) : NULL;
	unsigned before = ring->shares, shares;

	if (!uuid)
		return true;
	shares = glk_agree_borrow(&io->agree, relay, turn, uuid);
	if (!before != !shares)
		glk_store_relaxed(&io->borrowed,
			glk_load_relaxed(&io->borrowed) + (shares ? 1u : -1u));
	ring->shares = shares;
	return shares;
}

void glk_link_rest(struct glk_io *io, int relay, int turn)
{
	struct glk_io_ring *ring = &io->gpu[relay].ring[turn];
	int err;

	if (!ring->shares || io->planning)
		return;
	/* the copies of its own GPU want no share; what a lost one had brings nothing any more */
	err = glk_link_pass(io, ring);
	if (err && err != -ENODEV)
		return;
	glk_agree_give(&io->agree, relay, turn);
	glk_store_relaxed(&io->borrowed, glk_load_relaxed(&io->borrowed) - 1);
	ring->shares = 0;
}

void glk_link_use(struct glk_io *io, int gpu)
{
	if (io->agree.on && !io->agree.gpu[gpu].used && name_of(io, gpu))
		glk_agree_use(&io->agree, gpu, io->uuid[gpu]);
}

/*
 * What links carry is measured once, by some copies between staging memory and locked memory of the
 * host near the link, and from there to 2 MiB of the target, which are given back. Not the program's memory: nothing of
 * it may be touched before its time.
 */

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
	bool kept;

	if (!glk_node_has_room(node, PAGE) || glk_node_grow(node, PAGE, &page))
		return 0;
	if (glk_drv_place(drv, PAGE, PAGE, glk_page_at(io->pool, page)->handle, &grant,
		    &addr)) {
		kept = addr;
	} else {
		rate = measure_hop(io, relay, target, addr, turn);
		kept = rate < 0 || drv->ops->unmap(drv, addr, PAGE);
		if (!kept)
			drv->ops->unreserve(drv, addr, PAGE);
	}
	if (kept)
		glk_node_lose(node, page);
	else
		glk_node_release(node, page);
	return kept && rate > 0 ? 0 : rate;
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
