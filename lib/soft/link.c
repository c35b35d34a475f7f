/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The links of the software device, in modelled time. Each GPU has a link to the host, each way for
 * itself, some of which share an uplink, and one to the other GPUs. Memory of the host that is known to lie on another
 * NUMA node than the GPU's is behind one more link, which all such copies share. A copy begins when those before it
 * on its stream have passed, and ends when each of its links has carried it behind all that was put there
 * before. While one of them is busy with others the rest stand still for nobody: they carry theirs, and what
 * comes later. Streams carry the time at which their last copy ended, and events
 * carry it from one to another.
 *
 * Order	links are given in the order in which copies run: with soft.streams=worker, and none
 *		held, that in which they are queued
 * Pace		for tests of what happens while copies are under way: a copy that is the next of its
 *		stream begins when its links are free, at the rates that they have then, and runs when
 *		the modelled time has come to its end. That time goes from one end to the next, so that
 *		what is queued in between begins in the order of time
 */
#include "soft/managed.h"

#include "base/conf.h"

#include <errno.h>

/* Bytes a ns of so many MB a second. */
static double rate_of(int64_t mb)
{
	return (double)mb / 1000;
}

void glk_soft_link_init(struct soft *soft, const struct glk_conf *conf)
{
	soft->link = (struct glk_link){.host = conf->soft_link,
		.peer = conf->soft_peer_link,
		.uplink = conf->soft_uplink,
		.across = conf->soft_across};
	soft->across[SOFT_DOWN].rate = soft->across[SOFT_UP].rate =
		rate_of(conf->soft_across);
	/* a configuration made by hand may have none */
	soft->link_share = conf->soft_link_share > 0 ? (int)conf->soft_link_share : 1;
	for (int i = 0; i < soft->gpus; i++) {
		soft->lanes[i][SOFT_DOWN].rate = rate_of(conf->soft_link);
		soft->lanes[i][SOFT_UP].rate = rate_of(conf->soft_link);
		soft->lanes[i][SOFT_LEAVE].rate = rate_of(conf->soft_peer_link);
		soft->lanes[i][SOFT_COME].rate = rate_of(conf->soft_peer_link);
		soft->uplinks[i][SOFT_DOWN].rate = rate_of(conf->soft_uplink);
		soft->uplinks[i][SOFT_UP].rate = rate_of(conf->soft_uplink);
	}
}

int glk_soft_link_get(struct glk_drv *drv, int device, struct glk_link *ret_link)
{
	const struct soft *soft = soft_of(drv);
	uint8_t place = 0;
	int err;

	err = glk_soft_place(soft, (struct glk_place){GLK_PLACE_GPU, device}, &place);
	if (err)
		return err;
	*ret_link = soft->link;
	ret_link->group = soft->link_share > 1 ? device / soft->link_share : -1;
	return 0;
}

int glk_soft_gpu_at(const struct soft *soft, uint64_t addr)
{
	const struct glk_mapping *mapping = glk_book_find(&soft->book, addr);
	int place = mapping ? soft_page_at(soft, mapping->page)->place : soft->gpus;

	return place < soft->gpus ? place : -1;
}

/* The lanes that a copy goes over; how many. */
static int way(struct soft *soft, const struct soft_op *op, struct soft_lane *ret[3])
{
	int from = glk_soft_gpu_at(soft, op->src), to = glk_soft_gpu_at(soft, op->dst);
	int gpu = from < 0 ? to : from;
	int turn = from < 0 ? SOFT_DOWN : SOFT_UP, count = 1, node;

	if (from == to)
		return 0;
	if (from >= 0 && to >= 0) {
		ret[0] = &soft->lanes[from][SOFT_LEAVE];
		ret[1] = &soft->lanes[to][SOFT_COME];
		return 2;
	}
	ret[0] = &soft->lanes[gpu][turn];
	if (soft->link_share > 1)
		ret[count++] = &soft->uplinks[gpu / soft->link_share][turn];
	node = soft->nodes > 1 ? glk_soft_host_node_at(soft, from < 0 ? op->src : op->dst)
			       : -1;
	if (node >= 0 && node != gpu % soft->nodes)
		ret[count++] = &soft->across[turn];
	return count;
}

/* A copy begins: when it ends. */
static double begin(
	struct soft *soft, const struct soft_stream *s, const struct soft_op *op)
{
	double start = (double)s->now, longest = 0, took;
	struct soft_lane *lanes[3];
	int count = way(soft, op, lanes);

	for (int i = 0; i < count; i++) {
		took = lanes[i]->rate > 0 ? (double)op->size / lanes[i]->rate : 0;
		lanes[i]->free = (lanes[i]->free > start ? lanes[i]->free : start) + took;
		lanes[i]->bytes += op->size;
		if (lanes[i]->free > longest)
			longest = lanes[i]->free;
	}
	return longest > start ? longest : start;
}

static void copied(struct soft *soft, struct soft_stream *s, const struct soft_op *op)
{
	double end = op->end > 0 ? op->end : begin(soft, s, op);

	s->now = end > (double)s->now ? (int64_t)end : s->now;
}

void glk_soft_link_run(struct soft *soft, struct soft_stream *s, const struct soft_op *op)
{
	struct soft_event *e =
		op->value && (op->kind == SOFT_RECORD || op->kind == SOFT_WAIT)
		? glk_slab_at(&soft->events, op->value)
		: NULL;

	if (op->kind == SOFT_COPY)
		copied(soft, s, op);
	else if (op->kind == SOFT_RECORD && e)
		e->now = s->now;
	else if (op->kind == SOFT_WAIT && e && e->now > s->now)
		s->now = e->now;
}

bool glk_soft_pace_ready(struct soft *soft, struct soft_stream *s, struct soft_op *op)
{
	double end;

	if (op->kind != SOFT_COPY)
		return true;
	if (op->end <= 0) {
		end = begin(soft, s, op);
		/* 0 stands for one that has not begun */
		op->end = end > 0 ? end : 1;
	}
	return op->end <= soft->pace;
}

bool glk_soft_pace_next(struct soft *soft)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used);
	double first = 0;

	for (uint32_t id = 1; soft->paced && id <= used; id++) {
		uint32_t head = soft_stream_at(soft, id)->head;
		double end = head ? soft_op_at(soft, head)->end : 0;

		if (end > 0 && (first <= 0 || end < first))
			first = end;
	}
	if (first <= 0)
		return false;
	soft->pace = first > soft->pace ? first : soft->pace;
	return true;
}

/* Memory of the process of which the device knows nothing. */
static bool is_plain(const struct soft *soft, uint64_t addr)
{
	return !glk_book_span(&soft->book, addr, 1) &&
		glk_soft_managed_find(soft, addr) < 0 &&
		!glk_soft_host_is_locked(soft, addr, 1);
}

int glk_soft_spot(
	struct glk_drv *drv, uint64_t addr, size_t size, struct glk_spot *ret_spot)
{
	struct soft *soft = soft_of(drv);
	struct glk_spot spot = {.kind = GLK_SPOT_OTHER, .device = -1};
	int gpu;

	glk_soft_enter(soft);
	gpu = glk_soft_gpu_at(soft, addr);
	if (gpu >= 0 && glk_soft_gpu_at(soft, addr + size - 1) == gpu)
		spot = (struct glk_spot){.kind = GLK_SPOT_GPU, .device = gpu};
	else if (gpu < 0 && glk_soft_host_is_locked(soft, addr, size))
		spot.kind = GLK_SPOT_LOCKED;
	else if (is_plain(soft, addr) && is_plain(soft, addr + size - 1))
		spot.kind = GLK_SPOT_PLAIN;
	glk_unlock(&soft->lock);
	*ret_spot = spot;
	return 0;
}
