/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Four threads take, put, make and release the pages of one node, two classes on two lists,
 * under a budget and over a driver with less memory than that. A page has one owner at a time,
 * who finds what the last one wrote; at the end every page that was made is accounted for.
 */
#include "pool/pool.h"
#include "base/conf.h"
#include "seed.h"
#include "unit/fakedrv.h"

#define THREADS 4
#define MOVES	STORM_SIZE(1000000)
#define PAGES	64 /* descriptors */
#define MIB(n)	((uint64_t)(n) << 20)
#define BUDGET	MIB(96)
#define MEMORY	MIB(88)

static struct fake fake;
static struct glk_conf conf;
static struct glk_pool pool;
static struct glk_node *node;
static glk_atomic(int) owner[PAGES + 1];
static glk_atomic(int) bad_owner, bad_payload, bad_page, bad_error, over;

/* Two plain words that only ever change together. */
static struct {
	uint64_t count, inverse;
} payload[PAGES + 1];

struct worker {
	pthread_t thread;
	int number;
	uint64_t state;
	uint64_t owned; /* pages that became this thread's */
	uint64_t made, released;
	uint32_t held[PAGES];
	uint32_t holds;
};

static void own(struct worker *worker, uint32_t id, enum glk_class class)
{
	struct glk_page *page = glk_page_at(&pool, id);
	int nobody = 0;

	if (!id || id > PAGES || worker->holds == PAGES) {
		glk_add_relaxed(&bad_page, 1);
		return;
	}
	if (!glk_cas_acq_rel(&owner[id], &nobody, worker->number))
		glk_add_relaxed(&bad_owner, 1);
	if (payload[id].inverse != ~payload[id].count)
		glk_add_relaxed(&bad_payload, 1);
	if (glk_page_state(page) != GLK_PAGE_OWNED || page->class != class ||
		page->size != node->page_size[class])
		glk_add_relaxed(&bad_page, 1);
	payload[id].count++;
	payload[id].inverse = ~payload[id].count;
	worker->held[worker->holds++] = id;
	worker->owned++;
}

static uint32_t disown(struct worker *worker)
{
	uint32_t at = (uint32_t)seed_below(&worker->state, worker->holds);
	uint32_t id = worker->held[at];

	worker->held[at] = worker->held[--worker->holds];
	glk_store_relaxed(&owner[id], 0);
	return id;
}

static void grow(struct worker *worker, enum glk_class class)
{
	uint32_t id;
	int err = glk_node_grow(node, node->page_size[class], &id);

	if (!err) {
		worker->made++;
		own(worker, id, class);
	} else if (err != -ENOMEM) {
		glk_add_relaxed(&bad_error, 1);
	}
}

static void release(struct worker *worker)
{
	if (glk_node_release(node, disown(worker)))
		glk_add_relaxed(&bad_error, 1);
	else
		worker->released++;
}

static void *work(void *arg)
{
	struct worker *worker = arg;

	for (int i = 0; i < MOVES; i++) {
		uint64_t dice = seed_below(&worker->state, 1000);
		enum glk_class class = dice & 1 ? GLK_CLASS_LARGE : GLK_CLASS_SMALL;
		uint32_t id;

		if (dice < 100) {
			grow(worker, class);
		} else if (dice < 150 && worker->holds) {
			release(worker);
		} else if (dice < 153) {
			/* what it releases counts for this thread */
			uint64_t given = glk_node_drain(node, class, MIB(4));

			worker->released += given / node->page_size[class];
		} else if (dice < 570 || !worker->holds) {
			id = glk_node_take(node, class);
			if (id)
				own(worker, id, class);
		} else {
			glk_node_put(node, disown(worker));
		}
		if (glk_load_relaxed(&node->held) > BUDGET)
			glk_add_relaxed(&over, 1);
	}
	return NULL;
}

/* Pages on a list by taking them all; their bytes. */
static uint64_t empty(enum glk_class class, uint64_t *bytes)
{
	uint64_t n = 0;
	uint32_t id;

	while ((id = glk_node_take(node, class))) {
		n++;
		*bytes += glk_page_at(&pool, id)->size;
		glk_node_release(node, id);
	}
	return n;
}

static void account(struct worker *workers)
{
	uint64_t made = 0, released = 0, holds = 0, owned = 0, marks = 0, bytes = 0;
	uint64_t counted, held = glk_load_relaxed(&node->held), listed;

	for (int i = 0; i < THREADS; i++) {
		made += workers[i].made;
		released += workers[i].released;
		holds += workers[i].holds;
		owned += workers[i].owned;
	}
	for (int id = 1; id <= PAGES; id++)
		marks += payload[id].count;
	counted = glk_load_relaxed(&node->free_bytes[GLK_CLASS_SMALL]) /
			node->page_size[GLK_CLASS_SMALL] +
		glk_load_relaxed(&node->free_bytes[GLK_CLASS_LARGE]) /
			node->page_size[GLK_CLASS_LARGE];
	is_int((int64_t)marks, (int64_t)owned, "every owning left its mark");
	is_int((int64_t)fake.pages, (int64_t)(made - released),
		"pages made and not released are what the driver has");
	is_int((int64_t)held, (int64_t)fake.held, "and as many bytes");
	for (int i = 0; i < THREADS; i++) {
		for (uint32_t k = 0; k < workers[i].holds; k++) {
			bytes += glk_page_at(&pool, workers[i].held[k])->size;
			glk_node_release(node, workers[i].held[k]);
		}
	}
	listed = empty(GLK_CLASS_SMALL, &bytes) + empty(GLK_CLASS_LARGE, &bytes);
	is_int((int64_t)listed, (int64_t)counted, "the lists hold what was counted");
	is_int((int64_t)(listed + holds), (int64_t)(made - released),
		"a page is on a list or owned");
	is_int((int64_t)bytes, (int64_t)held, "and no byte is anywhere else");
	is_int((int64_t)fake.held, 0, "all of it goes back");
	tap_note("%" PRIu64 " pages made, %" PRIu64 " times owned", made, owned);
}

int main(void)
{
	static struct worker workers[THREADS];
	uint64_t seed;

	tap_plan(13);
	seed = seed_start();
	glk_conf_init(&conf);
	conf.pool_pages = PAGES;
	conf.pool_budget = BUDGET;
	if (glk_pool_init(&pool, fake_init(&fake), &conf, 1, 0, NULL))
		tap_bail("no pool");
	fake.memory = MEMORY;
	node = glk_pool_gpu(&pool, 0);
	for (int id = 1; id <= PAGES; id++)
		payload[id].inverse = ~payload[id].count;
	for (int i = 0; i < THREADS; i++) {
		workers[i].number = i + 1;
		workers[i].state = seed_thread(seed, (unsigned)i);
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	is_int(glk_load_relaxed(&bad_owner), 0, "one owner at a time");
	is_int(glk_load_relaxed(&bad_payload), 0, "who sees what the last one wrote");
	is_int(glk_load_relaxed(&bad_page), 0, "and gets a page of the class asked for");
	is_int(glk_load_relaxed(&bad_error), 0, "no failure but for want of memory");
	is_int(glk_load_relaxed(&over), 0, "the budget was never passed");
	account(workers);
	is_int((int64_t)fake.broken, 0, "no rule of the driver was broken");
	glk_pool_fini(&pool);
	fake_fini(&fake);
	return tap_done();
}
