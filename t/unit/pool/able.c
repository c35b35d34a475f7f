/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What pages are made to be able to do, and what is left of it where the driver refuses. */
#include "base/conf.h"
#include "numa/topology.h"
#include "pool/pool.h"
#include "unit/fakedrv.h"

#include <string.h>

#define ALL_CAPS  (GLAKE_CAP_VMM | GLAKE_CAP_FD | GLAKE_CAP_FABRIC | GLAKE_CAP_RDMA)
#define ALL_FLAGS (GLK_PAGE_EXPORT_FD | GLK_PAGE_FABRIC | GLK_PAGE_RDMA)

static struct fake fake;
static struct glk_conf conf;
static struct glk_pool pool;
static struct glk_node *node;

static void start(uint32_t caps, const char *setting)
{
	struct glake_device info = {
		.sz = sizeof(info), .caps = caps, .granularity = (size_t)2 << 20};

	glk_conf_init(&conf);
	/* whether the host has a device for RDMA is another question */
	if (glk_conf_set(&conf, "pool.rdma=yes") ||
		(setting && glk_conf_set(&conf, setting)))
		tap_bail(setting);
	if (glk_pool_init(&pool, fake_init(&fake), &conf, 3, 0, NULL))
		tap_bail("no pool");
	node = glk_pool_gpu(&pool, 1);
	glk_node_describe(node, &conf, &info);
}

/* Calls of create for one page, and what it can do; -1 and nothing for none. */
static int64_t grow(uint32_t *ret_able)
{
	uint64_t before = fake.calls[FAKE_CREATE];
	uint32_t page = 0;

	if (glk_node_grow(node, node->page_size[GLK_CLASS_SMALL], &page))
		return -1;
	*ret_able = glk_page_at(&pool, page)->able;
	if (*ret_able != fake.flags)
		tap_bail("the page does not say what it was made with");
	glk_node_release(node, page);
	return (int64_t)(fake.calls[FAKE_CREATE] - before);
}

static void stop(void)
{
	is_int((int64_t)fake.broken, 0, "no rule of the driver was broken");
	glk_pool_fini(&pool);
	fake_fini(&fake);
}

static void test_wants(void)
{
	uint32_t able = 77;

	start(ALL_CAPS, NULL);
	is_int(grow(&able), 1, "a page of a GPU that can do everything");
	is_int(able, ALL_FLAGS, "can do everything");
	stop();
	start(GLAKE_CAP_VMM | GLAKE_CAP_RDMA, NULL);
	is_int(grow(&able), 1, "one of a GPU that cannot");
	is_int(able, GLK_PAGE_RDMA, "is asked for no more");
	stop();
	start(ALL_CAPS, "pool.export=fd");
	is_int(grow(&able), 1, "where only descriptors are wanted");
	is_int(able, GLK_PAGE_EXPORT_FD, "no more is asked for");
	stop();
	start(ALL_CAPS, "pool.export=no");
	is_int(grow(&able), 1, "where nothing is wanted");
	is_int(able, 0, "nothing is asked for");
	stop();
	start(ALL_CAPS, "pool.rdma=no");
	is_int(grow(&able), 1, "where no network card is to reach it");
	is_int(able, ALL_FLAGS & ~GLK_PAGE_RDMA, "all else is asked for");
	stop();
	start(ALL_CAPS, "pool.rdma=auto");
	is_int(grow(&able), 1, "where the host decides");
	is_int((able & GLK_PAGE_RDMA) != 0, glk_rdma_present(NULL), "it does");
	stop();
}

/* What each refusal costs, once. */
static void refused(uint32_t refused, int refusal, uint32_t left, int64_t calls)
{
	uint32_t able = 77;

	start(ALL_CAPS, NULL);
	fake.refused = refused;
	fake.refusal = refusal;
	is_int(grow(&able), calls, "some are refused");
	is_int(able, left, "  the others are left");
	is_int(grow(&able), 1, "  which the next page is asked for at once");
	is_int(able, left, "  and has");
	stop();
}

static void test_refusals(void)
{
	refused(GLK_PAGE_FABRIC, -EPERM, GLK_PAGE_EXPORT_FD | GLK_PAGE_RDMA, 2);
	refused(GLK_PAGE_FABRIC, -EOPNOTSUPP, GLK_PAGE_EXPORT_FD | GLK_PAGE_RDMA, 2);
	refused(GLK_PAGE_RDMA, -EINVAL, GLK_PAGE_EXPORT_FD, 3);
	refused(GLK_PAGE_EXPORT_FD, -EACCES, 0, 4);
	refused(ALL_FLAGS, -EPERM, 0, 4);
}

/* Pages of the host, which want nothing of that: on the GPU's node, or where the driver makes them. */
static void test_host(void)
{
	static const int ids[] = {0, 3};
	uint32_t page = 0;

	glk_conf_init(&conf);
	if (glk_pool_init(&pool, fake_init(&fake), &conf, 2, 2, ids))
		tap_bail("no pool");
	node = glk_pool_host(&pool, 1);
	is_int(glk_node_grow(node, 2 << 20, &page), 0, "a page of the host");
	is_int((int64_t)fake.calls[FAKE_CREATE], 1, "is asked for once");
	ok(!glk_page_at(&pool, page)->able && !glk_load_relaxed(&node->anywhere),
		"on the node, and for this process");
	glk_node_release(node, page);
	fake.no_node = true;
	fake.refusal = -EOPNOTSUPP;
	is_int(glk_node_grow(node, 2 << 20, &page), 0, "where nodes have none");
	is_int((int64_t)fake.calls[FAKE_CREATE], 3, "it is asked for anywhere");
	glk_node_release(node, page);
	is_int(glk_node_grow(node, 2 << 20, &page), 0, "as is the next one");
	is_int((int64_t)fake.calls[FAKE_CREATE], 4, "at once");
	glk_node_release(node, page);
	stop();
}

/* A node that another process has to try first; pages that are asked for, and that tries, of three. */
static void tried(const char *setting, bool bad, int not_yet, int64_t creates,
	int64_t tries, bool anywhere)
{
	static const int ids[] = {0, 3};
	uint32_t page[3];

	glk_conf_init(&conf);
	if (glk_conf_set(&conf, setting) ||
		glk_pool_init(&pool, fake_init(&fake), &conf, 2, 2, ids))
		tap_bail("no pool");
	node = glk_pool_host(&pool, 1);
	fake.bad_node = bad;
	fake.not_yet = not_yet;
	for (int i = 0; i < 3; i++) {
		if (glk_node_grow(node, 2 << 20, &page[i]))
			tap_bail("no page");
	}
	is_int((int64_t)fake.calls[FAKE_CREATE], creates, setting);
	is_int(fake.nodes_tried, tries, "  the node is tried so often");
	is_int(glk_load_relaxed(&node->anywhere), anywhere, "  and left if it is bad");
	for (int i = 0; i < 3; i++)
		glk_node_release(node, page[i]);
	stop();
}

static void test_tries(void)
{
	tried("tier.probe=always", false, 0, 3, 1, false);
	tried("tier.probe=always", true, 0, 3, 1, true);
	tried("tier.probe=never", true, 0, 3, 0, false);
	/* what could not be tried is not left for ever */
	tried("tier.probe=always", false, 2, 3, 3, false);
	tried("tier.probe=always", true, 2, 3, 3, true);
}

/* Errors that have nothing to do with it change nothing. */
static void test_errors(void)
{
	static const int errors[] = {-ENOMEM, -EIO, -ENODEV};
	uint32_t able = 77;

	start(ALL_CAPS, NULL);
	for (int i = 0; i < 3; i++) {
		fake_fail(&fake, FAKE_CREATE, 1, errors[i], false);
		is_int(grow(&able), -1, "no page");
		is_int(able, 77, "  the output is left alone");
	}
	is_int(grow(&able), 1, "the next one");
	is_int(able, ALL_FLAGS, "can do everything");
	/* one that all pages are refused with says nothing of flags */
	fake_fail(&fake, FAKE_CREATE, 1, -EINVAL, true);
	is_int(grow(&able), -1, "a driver that makes none at all");
	fake_fail(&fake, FAKE_CREATE, 0, 0, false);
	is_int(grow(&able), 1, "once it does again");
	is_int(able, ALL_FLAGS, "they can do everything");
	stop();
}

static void test_peers(void)
{
	struct glake_device info = {.sz = sizeof(info)};

	start(ALL_CAPS, NULL);
	is_int((int64_t)glk_load_relaxed(&node->peers), 0, "no peers unless asked for");
	stop();
	start(ALL_CAPS, "pool.peers=all");
	is_int((int64_t)glk_load_relaxed(&node->peers), 5, "all but itself");
	fake.unreachable = true;
	glk_node_describe(node, &conf, &info);
	is_int((int64_t)glk_load_relaxed(&node->peers), 0, "none where none can");
	stop();
}

int main(void)
{
	tap_plan_later();
	test_wants();
	test_refusals();
	test_host();
	test_tries();
	test_errors();
	test_peers();
	return tap_done();
}
