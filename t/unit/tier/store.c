/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host for contents: runs of chunks, however they come and go. */
#include "tier/tier.h"

#include "base/conf.h"
#include "numa/topology.h"
#include "soft/fault.h"
#include "soft/open.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

static struct glk_lock lock;
static struct glk_drv *drv;
/* Whose budget it is. */
static struct glk_node host = {.source = &glk_source_driver};

static void begin(struct glk_store *store, uint64_t most)
{
	glk_store_relaxed(&host.budget, most);
	if (glk_store_init(store, drv, &lock, 0, 0, &host))
		tap_bail("no store");
	glk_lock(&lock);
}

static void end(struct glk_store *store)
{
	glk_unlock(&lock);
	glk_store_fini(store);
	if (glk_load_relaxed(&host.held))
		tap_bail("the budget is not given back");
}

static bool rests(void *arg)
{
	return !arg;
}

static uint64_t bytes_of(const struct glk_store *store, uint32_t run)
{
	uint64_t chunks = 0;

	for (; run; run = glk_store_at(store, run)->next)
		chunks += glk_store_at(store, run)->chunks;
	return chunks * GLK_STORE_CHUNK;
}

static void takes(void)
{
	struct glk_store store;
	uint32_t one, two, three;

	begin(&store, 160 * MIB);
	is_int(glk_store_take(&store, 1, true, &one), 0, "a byte");
	is_int((int64_t)bytes_of(&store, one), (int64_t)GLK_STORE_CHUNK, "takes a chunk");
	is_int((int64_t)store.held, (int64_t)GLK_STORE_PIECE, "of a piece");
	is_int(glk_store_take(&store, 100 * MIB, true, &two), 0, "more than a piece");
	is_int((int64_t)bytes_of(&store, two), 100 * MIB, "takes as much as it has");
	is_int((int64_t)store.held, (int64_t)(2 * GLK_STORE_PIECE), "of two");
	is_int((int64_t)store.used, (int64_t)(100 * MIB + GLK_STORE_CHUNK), "counted");
	is_int(glk_store_take(&store, 40 * MIB, true, &three), -ENOMEM,
		"there is an end of it");
	is_int((int64_t)store.used, (int64_t)(100 * MIB + GLK_STORE_CHUNK),
		"what was taken for that is back");
	glk_store_put(&store, two, 70);
	is_int(glk_store_take(&store, 120 * MIB, true, &three), 0,
		"what was given back serves");
	is_int((int64_t)glk_store_ticks(&store, three).read, 70, "behind who read it");
	is_int((int64_t)glk_store_trim(&store, 0, rests, NULL), 0,
		"nothing of that is given away");
	glk_store_put(&store, three, 0);
	is_int((int64_t)glk_store_trim(&store, 0, rests, NULL), (int64_t)GLK_STORE_PIECE,
		"a piece that nobody uses is");
	glk_store_put(&store, one, 0);
	is_int((int64_t)glk_store_trim(&store, 0, rests, NULL), (int64_t)GLK_STORE_PIECE,
		"and the other");
	is_int((int64_t)(store.held + store.used), 0, "nothing is held");
	is_int(glk_store_take(&store, 70 * MIB, true, &one), 0, "it begins anew");
	end(&store);
}

/* A content of whole pieces takes no more of them. */
static void fills_pieces(void)
{
	struct glk_store store;
	uint32_t run;

	begin(&store, 512 * MIB);
	is_int(glk_store_take(&store, GLK_STORE_PIECE, true, &run), 0, "all of a piece");
	is_int((int64_t)store.held, (int64_t)GLK_STORE_PIECE, "takes one");
	is_int(glk_store_take(&store, 2 * GLK_STORE_PIECE, true, &run), 0, "of two");
	is_int((int64_t)store.held, (int64_t)(3 * GLK_STORE_PIECE), "two more");
	end(&store);
}

static void fails(void)
{
	struct glk_store store;
	uint32_t run = 77;

	begin(&store, 1 << 30);
	glk_fault_set(drv, "host_lock:nth=2:err=ENOMEM");
	is_int(glk_store_take(&store, 100 * MIB, true, &run), -ENOMEM,
		"the second piece fails");
	ok(run == 77 && !store.used && store.held == GLK_STORE_PIECE,
		"the first one is there for others");
	glk_fault_set(drv, "off");
	is_int(glk_store_take(&store, 100 * MIB, true, &run), 0, "then it goes");
	glk_store_put(&store, run, 0);
	glk_fault_set(drv, "host_unlock:nth=1:err=EIO");
	is_int((int64_t)glk_store_trim(&store, 0, rests, NULL),
		(int64_t)(2 * GLK_STORE_PIECE),
		"what the driver keeps locked is left where it is");
	glk_fault_set(drv, "off");
	end(&store);
}

/* As many pieces as are needed, made together, and no more than the budget has. */
static void makes_several(void)
{
	struct glk_store store;
	uint32_t run = 77;

	begin(&store, 5 * GLK_STORE_PIECE);
	is_int(glk_store_ready(&store, 200 * MIB), 0, "room is made ready");
	is_int((int64_t)store.held, (int64_t)(4 * GLK_STORE_PIECE), "in whole pieces");
	is_int(glk_store_ready(&store, 256 * MIB), 0, "what is there is enough");
	is_int((int64_t)store.held, (int64_t)(4 * GLK_STORE_PIECE), "so nothing is made");
	is_int(glk_store_ready(&store, 400 * MIB), -ENOMEM, "there is an end of it");
	is_int((int64_t)store.held, (int64_t)(5 * GLK_STORE_PIECE),
		"what could be had is");
	is_int((int64_t)glk_store_trim(&store, 0, rests, &store), 0,
		"nothing goes while copies are under way");
	is_int((int64_t)glk_store_trim(&store, 2 * GLK_STORE_PIECE, rests, NULL),
		(int64_t)(3 * GLK_STORE_PIECE), "a trim leaves what is to be kept");
	glk_store_trim(&store, 0, rests, NULL);
	glk_fault_set(drv, "host_lock:nth=3:err=EIO");
	is_int(glk_store_take(&store, 300 * MIB, true, &run), -EIO,
		"the third of five fails");
	is_int((int64_t)store.held, (int64_t)(2 * GLK_STORE_PIECE), "two are there");
	ok(run == 77 && !store.used, "and nothing is taken");
	is_int((int64_t)glk_load_relaxed(&host.held), (int64_t)store.held,
		"the budget knows");
	glk_fault_set(drv, "off");
	end(&store);
}

/* Memory is of the node that it was asked for, on each that has some. */
static void is_near(void)
{
	struct glk_topology *t;
	struct glk_store store;
	uint32_t run;

	if (glk_topology_new(NULL, &t))
		tap_bail("no topology");
	for (size_t i = 0; i < glk_topology_count(t); i++) {
		const struct glk_numa_node *node = glk_topology_at(t, i);
		int where = -1;

		if (!node->has_memory || !glk_numa_available())
			continue;
		begin(&store, 2 * GLK_STORE_PIECE);
		store.node = node->id;
		is_int(glk_store_take(&store, 100 * MIB, true, &run), 0,
			"memory of a node");
		for (; run; run = glk_store_at(&store, run)->next) {
			const struct glk_store_run *r = glk_store_at(&store, run);

			glk_numa_where(
				store.piece[r->piece].base + GLK_STORE_PIECE - 1, &where);
			is_int(where, node->id, "is there");
		}
		end(&store);
	}
	glk_topology_free(t);
}

/* Bytes of the first ones of a content that lie near a node, by index. */
static uint64_t near_of(
	const struct glk_store *store, uint32_t run, uint64_t first, unsigned near)
{
	uint64_t bytes = 0, size;

	for (; run && first; run = glk_store_at(store, run)->next, first -= size) {
		const struct glk_store_run *r = glk_store_at(store, run);

		size = r->chunks * GLK_STORE_CHUNK;
		size = size < first ? size : first;
		bytes += store->piece[r->piece].near == near ? size : 0;
	}
	return bytes;
}

/* A node has as much of a content as it has of the links, whatever part of the content it is. */
static void near_links(void)
{
	struct glk_store store;
	uint32_t small, run, other;

	begin(&store, 16 * GLK_STORE_PIECE);
	for (int link = 0; link < 4; link++)
		glk_store_near(&store, link > 0, 2 * MIB, 16 * MIB);
	is_int(store.nears, 2, "four links near two nodes");
	is_int(glk_store_ready(&store, 4 * GLK_STORE_PIECE), 0, "room is made");
	ok(store.near[0].there == GLK_STORE_PIECE &&
			store.near[1].there == 3 * GLK_STORE_PIECE,
		"a quarter near the one link");
	is_int(glk_store_take(&store, 3 * MIB, true, &small), 0, "a small content");
	is_int((int64_t)near_of(&store, small, 3 * MIB, 0), 3 * MIB, "lies near the GPU");
	is_int(glk_store_take(&store, 160 * MIB, true, &run), 0, "a large one");
	is_int((int64_t)near_of(&store, run, 160 * MIB, 1), 120 * MIB,
		"lies where the links are");
	ok(near_of(&store, run, 16 * MIB, 1) == 12 * MIB &&
			near_of(&store, run, 80 * MIB, 1) == 60 * MIB,
		"and so does each part of it");
	is_int((int64_t)store.held, (int64_t)(4 * GLK_STORE_PIECE), "in what there was");
	is_int(glk_store_take(&store, 160 * MIB, true, &other), 0, "another one");
	ok(near_of(&store, other, 160 * MIB, 1) >= 118 * MIB &&
			near_of(&store, other, 160 * MIB, 1) <= 122 * MIB,
		"does the same, but for a stripe");
	glk_store_put(&store, run, 0);
	glk_store_put(&store, other, 0);
	glk_store_put(&store, small, 0);
	is_int((int64_t)store.astray, 0, "nothing lies elsewhere");
	glk_store_trim(&store, 0, rests, NULL);
	ok(!store.near[0].there && !store.near[1].there, "all of it is given back");
	end(&store);
}

/* What a node has no room for lies on another one, as long as that is so. */
static void near_full(void)
{
	static char other[1];
	size_t most = 256 * MIB;
	struct glk_store store;
	uint32_t run, other_run;
	int node = 1;

	/* all but a piece of that node is somebody else's */
	if (drv->ops->host_lock(drv, 0, other, most - GLK_STORE_PIECE) ||
		drv->ops->host_node(drv, other, &node))
		tap_bail("no room");
	begin(&store, 8 * GLK_STORE_PIECE);
	glk_store_near(&store, 0, 2 * MIB, 16 * MIB);
	glk_store_near(&store, 1, 2 * MIB, 16 * MIB);
	is_int(glk_store_take(&store, 192 * MIB, true, &run), 0, "a content");
	is_int((int64_t)near_of(&store, run, 192 * MIB, 1), (int64_t)GLK_STORE_PIECE,
		"has what there is of a node");
	ok(near_of(&store, run, 192 * MIB, 0) == 128 * MIB, "and the rest of the other");
	is_int((int64_t)store.astray, (int64_t)GLK_STORE_PIECE, "which is counted");
	ok(store.near[1].full && !store.near[0].full, "the node is known to be full");
	is_int((int64_t)store.held, (int64_t)(4 * GLK_STORE_PIECE),
		"a piece a node more is made than is needed, and no more");
	is_int(glk_store_take(&store, 48 * MIB, true, &other_run), 0, "another content");
	is_int((int64_t)store.held, (int64_t)(4 * GLK_STORE_PIECE),
		"takes what there is, and asks the node for none");
	glk_store_put(&store, other_run, 0);
	glk_store_put(&store, run, 0);
	drv->ops->host_unlock(drv, 0, other);
	glk_store_trim(&store, GLK_STORE_PIECE, rests, NULL);
	ok(!store.near[1].full, "when some was given back it is asked again");
	is_int(glk_store_take(&store, 192 * MIB, true, &run), 0, "a content");
	is_int((int64_t)near_of(&store, run, 192 * MIB, 1), 96 * MIB, "lies on both");
	end(&store);
}

/* Where the budget ends nodes do not matter. */
static void near_the_end(void)
{
	struct glk_store store;
	uint32_t small, run;

	begin(&store, 2 * GLK_STORE_PIECE);
	glk_store_near(&store, 0, 2 * MIB, 16 * MIB);
	glk_store_near(&store, 1, 2 * MIB, 16 * MIB);
	is_int(glk_store_take(&store, 8 * MIB, true, &small), 0, "a small content");
	is_int(glk_store_take(&store, 120 * MIB, true, &run), 0, "and all that is left");
	is_int((int64_t)near_of(&store, run, 120 * MIB, 1), (int64_t)GLK_STORE_PIECE,
		"lies on both");
	glk_store_put(&store, small, 0);
	is_int(glk_store_take(&store, 8 * MIB, true, &small), 0, "it comes again");
	glk_store_put(&store, run, 0);
	is_int(glk_store_take(&store, 121 * MIB, true, &run), -ENOMEM,
		"there is an end of it");
	is_int((int64_t)store.used, 8 * MIB, "and nothing is taken");
	end(&store);
}

/* Whether a content has bytes from a place in another one on, of which each begins with its number. */
static bool goes_on(const struct glk_store *store, uint32_t run, uint64_t from)
{
	uint64_t at = from - glk_store_at(store, run)->skip;
	uint64_t end = from + glk_store_at(store, run)->bytes;

	if (at % GLK_STORE_CHUNK)
		return false;
	for (; run; run = glk_store_at(store, run)->next) {
		const struct glk_store_run *r = glk_store_at(store, run);
		const char *base =
			store->piece[r->piece].base + r->first * GLK_STORE_CHUNK;

		for (uint64_t i = 0; i < r->chunks; i++, at += GLK_STORE_CHUNK) {
			if (*(const uint64_t *)(base + i * GLK_STORE_CHUNK) != at)
				return false;
		}
	}
	return at >= end && at < end + GLK_STORE_CHUNK;
}

static void number(struct glk_store *store, uint32_t run)
{
	for (uint64_t at = 0; run; run = glk_store_at(store, run)->next) {
		const struct glk_store_run *r = glk_store_at(store, run);
		char *base = store->piece[r->piece].base + r->first * GLK_STORE_CHUNK;

		for (uint64_t i = 0; i < r->chunks; i++, at += GLK_STORE_CHUNK)
			*(uint64_t *)(base + i * GLK_STORE_CHUNK) = at;
	}
}

/* Contents lose what lies between any two places, and the chunks of that serve others. */
static void is_cut(void)
{
	struct glk_store store;
	uint32_t runs, live;
	int torn = 0;

	srand(11);
	begin(&store, 1 << 30);
	live = glk_load_relaxed(&store.runs.live);
	for (int n = 0; n < 2000; n++) {
		uint64_t bytes = (uint64_t)(rand() % (300 << 10)) * 512 + GLK_STORE_CHUNK;
		uint64_t most = bytes - GLK_STORE_CHUNK + 1, from, to;
		struct glk_store_rest rest;
		uint32_t run, hole;

		/* some of it lies in several runs */
		torn += glk_store_take(&store, 3 * GLK_STORE_CHUNK, true, &hole) != 0;
		torn += glk_store_take(&store, GLK_STORE_CHUNK, true, &runs) != 0;
		glk_store_put(&store, hole, 0);
		torn += glk_store_take(&store, bytes, true, &run) != 0;
		number(&store, run);
		glk_store_at(&store, run)->written = 5;
		from = n % 3 ? (uint64_t)rand() * 512 % most : 0;
		to = n % 5 ? from + GLK_STORE_CHUNK +
				(uint64_t)rand() * 512 %
					(bytes - from - GLK_STORE_CHUNK + 1)
			   : bytes;
		rest = glk_store_cut(&store, run, from, to, 9, glk_slab_get(&store.runs));
		torn += (rest.before > 0) != (from > 0) ||
			(rest.behind > 0) != (to < bytes);
		torn += rest.before &&
			(!goes_on(&store, rest.before, 0) ||
				glk_store_at(&store, rest.before)->bytes != from);
		torn += rest.behind &&
			(!goes_on(&store, rest.behind, to) ||
				glk_store_at(&store, rest.behind)->written != 5);
		torn += store.used > from + (bytes - to) + 4 * GLK_STORE_CHUNK;
		/* and again, what is left of it */
		run = rest.behind;
		if (run && glk_store_at(&store, run)->bytes > GLK_STORE_CHUNK) {
			uint64_t left = glk_store_at(&store, run)->bytes;

			rest.behind = glk_store_cut(
				&store, run, 0, left - 512, 0, glk_slab_get(&store.runs))
					      .behind;
			torn += !goes_on(&store, rest.behind, bytes - 512);
		}
		glk_store_put(&store, rest.before, 0);
		glk_store_put(&store, rest.behind, 0);
		glk_store_put(&store, runs, 0);
		torn += store.used != 0 || glk_load_relaxed(&store.runs.live) != live;
	}
	ok(!torn, "what is left of contents has what it had, and nothing else is kept");
	end(&store);
}

/* A part goes that nobody read, while copies may still write it: who has its chunks next is told so. */
static void is_cut_on_its_way(void)
{
	struct glk_store store;
	uint32_t run, next;
	struct glk_store_rest rest;

	begin(&store, 1 << 30);
	if (glk_store_take(&store, 4 * GLK_STORE_CHUNK, true, &run))
		tap_bail("no room");
	glk_store_at(&store, run)->written = 5;
	rest = glk_store_cut(&store, run, GLK_STORE_CHUNK, 3 * GLK_STORE_CHUNK, 0,
		glk_slab_get(&store.runs));
	if (glk_store_take(&store, 2 * GLK_STORE_CHUNK, true, &next))
		tap_bail("no room");
	is_int((int64_t)glk_store_ticks(&store, next).written, 5,
		"what is cut off may be on its way to chunks that others have now");
	glk_store_put(&store, rest.before, 0);
	glk_store_put(&store, rest.behind, 0);
	glk_store_put(&store, next, 0);
	end(&store);
}

int main(void)
{
	struct glk_conf conf;

	glk_conf_init(&conf);
	glk_conf_set(&conf, "driver.backend=soft");
	glk_conf_set(&conf, "driver.fault=off");
	glk_conf_set(&conf, "soft.nodes=2");
	glk_conf_set(&conf, "soft.host_memory=256MiB");
	if (glk_drv_open(&conf, NULL, 0, &drv))
		tap_bail("no software device");
	glk_lock_init(&lock, GLK_RANK_DEVICE);
	tap_plan_later();
	takes();
	fills_pieces();
	fails();
	makes_several();
	is_near();
	near_links();
	near_full();
	near_the_end();
	is_cut();
	is_cut_on_its_way();
	is_int(glk_drv_close(drv), 0, "nothing is left at the device");
	return tap_done();
}
