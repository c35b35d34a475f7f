/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host for contents: runs of chunks, however they come and go. */
#include "tier/tier.h"

#include "base/conf.h"
#include "driver/fault.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

static struct glk_lock lock;
static struct glk_drv *drv;
static struct glk_node host; /* whose budget it is */

static void begin(struct glk_store *store, uint64_t most)
{
	glk_store_relaxed(&host.budget, most);
	if (glk_store_init(store, drv, &lock, 0, &host))
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

static uint64_t bytes_of(const struct glk_store *store, uint32_t run)
{
	uint64_t chunks = 0;

	for (; run; run = glk_store_at(store, run)->next)
		chunks += glk_store_at(store, run)->chunks;
	return chunks * GLK_STORE_CHUNK;
}

static void fill(const struct glk_store *store, uint32_t run, int byte)
{
	for (; run; run = glk_store_at(store, run)->next) {
		const struct glk_store_run *r = glk_store_at(store, run);

		memset(store->piece[r->piece].base + r->first * GLK_STORE_CHUNK, byte,
			r->chunks * GLK_STORE_CHUNK);
	}
}

static bool holds(const struct glk_store *store, uint32_t run, char byte)
{
	for (; run; run = glk_store_at(store, run)->next) {
		const struct glk_store_run *r = glk_store_at(store, run);
		const char *at = store->piece[r->piece].base + r->first * GLK_STORE_CHUNK;

		if (*at != byte || at[r->chunks * GLK_STORE_CHUNK - 1] != byte)
			return false;
	}
	return true;
}

static void takes(void)
{
	struct glk_store store;
	uint32_t one, two, three;

	begin(&store, 160 * MIB);
	is_int(glk_store_take(&store, 1, &one), 0, "a byte");
	is_int((int64_t)bytes_of(&store, one), (int64_t)GLK_STORE_CHUNK, "takes a chunk");
	is_int((int64_t)store.held, (int64_t)GLK_STORE_PIECE, "of a piece");
	is_int(glk_store_take(&store, 100 * MIB, &two), 0, "more than a piece");
	is_int((int64_t)bytes_of(&store, two), 100 * MIB, "takes as much as it has");
	is_int((int64_t)store.held, (int64_t)(2 * GLK_STORE_PIECE), "of two");
	is_int((int64_t)store.used, (int64_t)(100 * MIB + GLK_STORE_CHUNK), "counted");
	is_int(glk_store_take(&store, 40 * MIB, &three), -ENOMEM, "there is an end of it");
	is_int((int64_t)store.used, (int64_t)(100 * MIB + GLK_STORE_CHUNK),
		"what was taken for that is back");
	glk_store_put(&store, two, 70);
	is_int(glk_store_take(&store, 120 * MIB, &three), 0, "what was given back serves");
	is_int((int64_t)glk_store_read(&store, three), 70, "behind who read it");
	is_int((int64_t)glk_store_trim(&store), 0, "nothing of that is given away");
	glk_store_put(&store, three, 0);
	is_int((int64_t)glk_store_trim(&store), (int64_t)GLK_STORE_PIECE,
		"a piece that nobody uses is");
	glk_store_put(&store, one, 0);
	is_int((int64_t)glk_store_trim(&store), (int64_t)GLK_STORE_PIECE, "and the other");
	is_int((int64_t)(store.held + store.used), 0, "nothing is held");
	is_int(glk_store_take(&store, 70 * MIB, &one), 0, "it begins anew");
	end(&store);
}

static void fails(void)
{
	struct glk_store store;
	uint32_t run = 77;

	begin(&store, 1 << 30);
	glk_fault_set(drv, "host_lock:nth=2:err=ENOMEM");
	is_int(glk_store_take(&store, 100 * MIB, &run), -ENOMEM, "the second piece fails");
	ok(run == 77 && !store.used && store.held == GLK_STORE_PIECE,
		"the first one is there for others");
	glk_fault_set(drv, "off");
	is_int(glk_store_take(&store, 100 * MIB, &run), 0, "then it goes");
	glk_store_put(&store, run, 0);
	glk_fault_set(drv, "host_unlock:nth=1:err=EIO");
	is_int((int64_t)glk_store_trim(&store), (int64_t)(2 * GLK_STORE_PIECE),
		"what the driver keeps locked is left where it is");
	glk_fault_set(drv, "off");
	end(&store);
}

/* Contents of any size in any order: nobody has what another one has. */
static void comes_and_goes(void)
{
	struct {
		uint32_t run;
		uint64_t bytes;
	} c[60] = {0};
	uint64_t used = 0, most = 0;
	struct glk_store store;
	int torn = 0;

	srand(7);
	begin(&store, UINT64_C(2) << 30);
	for (int n = 0; n < 3000; n++) {
		int i = rand() % 60;

		if (c[i].run) {
			torn += !holds(&store, c[i].run, (char)i);
			glk_store_put(&store, c[i].run, 0);
			used -= c[i].bytes;
			c[i].run = 0;
			continue;
		}
		c[i].bytes = (uint64_t)(rand() % 40 + 1) * GLK_STORE_CHUNK;
		torn += glk_store_take(&store, c[i].bytes, &c[i].run) != 0;
		torn += bytes_of(&store, c[i].run) != c[i].bytes;
		fill(&store, c[i].run, i);
		used += c[i].bytes;
		most = most < used ? used : most;
		torn += store.used != used;
	}
	ok(!torn, "each keeps what it has");
	ok(store.held < most + GLK_STORE_PIECE, "in no more pieces than are needed");
	end(&store);
}

int main(void)
{
	struct glk_conf conf;

	glk_conf_init(&conf);
	glk_conf_set(&conf, "driver.backend=soft");
	glk_conf_set(&conf, "driver.fault=off");
	if (glk_drv_open(&conf, NULL, 0, &drv))
		tap_bail("no software device");
	glk_lock_init(&lock, GLK_RANK_DEVICE);
	tap_plan_later();
	takes();
	fails();
	comes_and_goes();
	is_int(glk_drv_close(drv), 0, "nothing is left at the device");
	return tap_done();
}
