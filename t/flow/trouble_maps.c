/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Out of maps: the kernel gives a process vm.max_map_count of them, and on the software device
 * pages that are stitched take one each. The program here uses up all but a few, so that
 * requests, frees and trims meet the limit at every step, and then gives them back. The device
 * leaves a sixteenth of them to the program: that is where it stops, if it knows how many there
 * are, and the kernel stops it later, if it does not.
 */
#include "context.h"

#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS	   64
#define MOST_MAPS  (1 << 20) /* a limit above this one is not run into here */
#define HOST_PAGES ((size_t)2 * MOST_MAPS)

static char *waste;
static size_t wasted;
static long host_page;
static int reserve; /* what the device leaves */

static void give_back(int spare)
{
	for (; spare > 0 && wasted; spare -= 2, wasted -= 2)
		mprotect(waste + (wasted - 1) * (size_t)host_page, (size_t)host_page,
			PROT_NONE);
}

/* Makes maps of the process until the system has no more, then gives `spare` back. */
static bool use_up(int spare)
{
	waste = mmap(NULL, HOST_PAGES * (size_t)host_page, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (waste == MAP_FAILED)
		return false;
	wasted = 0;
	/* each page with rights of its own splits the map around it in two more */
	while (wasted + 2 < HOST_PAGES &&
		!mprotect(waste + (wasted + 1) * (size_t)host_page, (size_t)host_page,
			PROT_READ))
		wasted += 2;
	if (wasted + 2 >= HOST_PAGES)
		return false;
	give_back(spare);
	return true;
}

static void give_up(void)
{
	munmap(waste, HOST_PAGES * (size_t)host_page);
}

/* What a request at the limit may answer. */
static bool is_documented(int err)
{
	int class = flow_error().error_class;

	return err == -ENOMEM &&
		(class == GLAKE_ERROR_LIMIT || class == GLAKE_ERROR_NOMEM_HOST ||
			class == GLAKE_ERROR_ADDRESS);
}

/* Blocks whose pages lie scattered, so that the next large one is stitched of them. */
static void scatter(struct glake *ctx, void **block)
{
	for (int i = 0; i < BLOCKS; i++)
		block[i] = flow_alloc(ctx, 8 * MIB, NULL);
	for (int i = 0; i < BLOCKS; i += 2) {
		glake_free(ctx, block[i], NULL);
		block[i] = NULL;
	}
}

/* A page that shows at two places has one mark. */
static bool is_apart(char *block, size_t size)
{
	bool apart = true;

	for (size_t at = 0; at < size; at += MIB)
		*(size_t *)(void *)(block + at) = at;
	for (size_t at = 0; at < size; at += MIB)
		apart &= *(size_t *)(void *)(block + at) == at;
	return apart;
}

static int free_all(struct glake *ctx, void **block)
{
	int refused = 0;

	for (int i = 0; i < BLOCKS; i++)
		refused += glake_free(ctx, block[i], NULL) != 0;
	memset(block, 0, BLOCKS * sizeof(*block));
	return refused;
}

static void at_the_limit(int spare)
{
	struct glake *ctx = flow_open((const char *const[]){"soft.memory=1GiB",
		"pool.budget=640MiB", "map.span=64GiB", "policy.target=1.04", NULL});
	struct glake_stats before, after;
	void *block[BLOCKS], *wide = NULL, *small = NULL;
	int err, odd = 0, served = 0;

	scatter(ctx, block);
	before = flow_stats(ctx, 0);
	if (!use_up(spare))
		tap_bail("no end of maps");
	err = glake_alloc(ctx, 0, 240 * MIB, NULL, 0, &wide);
	tap_note("%d maps to spare: %d, %s", spare, err, flow_error().text);
	ok(!err || is_documented(err), "%d maps to spare: a stitched block", spare);
	after = flow_stats(ctx, 0);
	if (err)
		ok(before.live == after.live && before.given == after.given &&
				before.live_blocks == after.live_blocks && !wide,
			"  refused without a trace");
	else
		ok(is_apart(wide, 240 * MIB), "  no two of its pages are one");
	is_int(after.lost, 0, "  nothing is lost");
	/* frees, requests of all sizes and trims go on as far as they can */
	for (int i = 1; i < BLOCKS; i += 4) {
		odd += glake_free(ctx, block[i], NULL) != 0;
		block[i] = NULL;
		err = glake_alloc(ctx, 0, (size_t)i << 18, NULL, 0, &block[i]);
		odd += err && !is_documented(err);
		served += !err;
		if (!err)
			*(uint64_t *)block[i] = 2;
		if (i % 8 == 1)
			continue;
		err = glake_trim(ctx, 0, 0, NULL);
		if (err && odd++ == 0)
			tap_note("trim: %d, %s", err, flow_error().text);
	}
	is_int(odd, 0, "  frees, requests and trims are answered as documented");
	tap_note("%d of %d requests served", served, BLOCKS / 4);
	is_int(flow_stats(ctx, 0).lost, 0, "  nothing is lost");
	give_up();
	is_int(glake_free(ctx, wide, NULL), 0, "  freed");
	is_int(free_all(ctx, block), 0, "  the others freed");
	after = flow_stats(ctx, 0);
	is_int(after.live + after.given + after.live_blocks, 0, "  nothing is live");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "  trimmed");
	is_int(flow_stats(ctx, 0).reserved, 0, "  to nothing");
	is_int(glake_alloc(ctx, 0, 600 * MIB, NULL, 0, &wide), 0,
		"  all can be had again");
	is_int(glake_alloc(ctx, 0, 512, NULL, 0, &small), 0, "  to the last");
	if (!wide || !small)
		tap_bail("less than before");
	ok(is_apart(wide, 600 * MIB), "  and no two pages are one");
	flow_close(ctx, 2);
}

/* Opening and closing without a map to spare, or with few more than `least`. */
static void open_at_the_limit(int least)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};
	int odd = 0, opened = 0, maps = flow_count_maps();

	if (!use_up(least))
		tap_bail("no end of maps");
	for (int spare = 0; spare < 120; spare += 4) {
		struct glake *ctx = NULL;
		void *p = NULL;
		int err;

		err = glake_open(&options, &ctx);
		odd += err && !is_documented(err);
		if (err && !is_documented(err))
			tap_note("open: %d, %s", err, flow_error().text);
		if (!err) {
			err = glake_alloc(ctx, 0, 9 * MIB, NULL, 0, &p);
			odd += err && !is_documented(err);
			opened += !err;
			odd += glake_free(ctx, p, NULL) != 0;
			odd += glake_close(ctx, NULL) != 0;
		}
		give_back(4);
	}
	give_up();
	is_int(odd, 0, "a context is opened, used and closed, or refused");
	tap_note("%d of 30 were opened and used with %d maps and more", opened, least);
	if (least)
		ok(opened > 0, "some were opened and used");
	ok(flow_count_maps() <= maps, "and none left a map");
}

static int reserve_read(void)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	int limit = 0;

	if (!file || fscanf(file, "%d", &limit) != 1)
		tap_skip_all("no vm.max_map_count");
	fclose(file);
	return limit / 16 > 1024 ? limit / 16 : 1024;
}

int main(void)
{
	void *first;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	tap_skip_all("a sanitizer needs maps of its own");
#endif
	if (tap_on_valgrind())
		tap_skip_all("valgrind needs maps of its own");
	host_page = sysconf(_SC_PAGESIZE);
	first = mmap(NULL, HOST_PAGES * (size_t)host_page, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (first == MAP_FAILED)
		tap_skip_all("no addresses to split into maps");
	munmap(first, HOST_PAGES * (size_t)host_page);
	if (!use_up(0))
		tap_skip_all("this system has no end of maps");
	give_up();
	reserve = reserve_read();
	tap_plan_later();
	at_the_limit(0);
	at_the_limit(8);
	at_the_limit(40);
	at_the_limit(reserve + 8);
	at_the_limit(reserve + 80);
	open_at_the_limit(0);
	open_at_the_limit(reserve);
	return tap_done();
}
