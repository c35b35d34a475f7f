/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Elastic blocks: addresses that get memory by ranges and lose it again, alone and among all else that moves. A model
 * knows of each page whether it is committed, whether its contents are away, and what was written there last.
 */
#include "cache/tag/tag.h"
#include "move/seal.h"
#include "range_parts.h"

#include <stdlib.h>

#include <glake/elastic.h>

#define TAG 0x101u

static struct rig rig;
static struct CUstream_st *a, *b;

static void set_up(const char *const *settings, uint64_t budget)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, budget);
}

static uint64_t elastic(size_t size, uint32_t flags)
{
	uint64_t addr = 0;

	if (glk_cache_elastic(&rig.cache, size, a, GLAKE_ALLOC_ELASTIC | flags, &addr))
		tap_bail(rig_error().text);
	return addr;
}

static int commit(uint64_t addr, uint64_t offset, uint64_t bytes, uint64_t *ret_bytes)
{
	const struct glk_portion p = {offset, bytes};
	uint64_t unused;

	return glk_cache_commit(
		&rig.cache, addr, &p, 1, a, ret_bytes ? ret_bytes : &unused);
}

static int decommit(uint64_t addr, uint64_t offset, uint64_t bytes, uint64_t *ret_bytes)
{
	const struct glk_portion p = {offset, bytes};
	uint64_t unused;

	return glk_cache_decommit(
		&rig.cache, addr, &p, 1, a, ret_bytes ? ret_bytes : &unused);
}

static uint64_t committed(uint64_t addr)
{
	return rig_query(&rig, addr).committed;
}

/* Larger than the GPU, memory where it was committed and nowhere else. */
static void grows_and_shrinks(void)
{
	struct glake_stats s;
	uint64_t addr, bytes;

	set_up(NULL, 64 * MIB);
	addr = elastic(3 * 1024 * MIB + 700, 0);
	ok(addr % (2 * MIB) == 0, "it begins with a page");
	is_int((int64_t)rig_query(&rig, addr).size, 3 * 1024 * (int64_t)MIB + 700,
		"it has the size that was asked for");
	s = rig_figures(&rig);
	ok(!committed(addr) && !s.live && !s.reserved && s.live_blocks == 1,
		"and no memory");
	is_sound(&rig, "the books agree");
	is_int(commit(addr, 5 * MIB, 6 * MIB, &bytes), 0, "a range is committed");
	is_int((int64_t)bytes, 8 * MIB, "to whole pages");
	memset((void *)(addr + 4 * MIB), 7, 8 * MIB);
	is_int((int64_t)committed(addr + 100), 8 * MIB, "which is told");
	s = rig_figures(&rig);
	ok(s.live == 8 * MIB && s.reserved == 8 * MIB && s.elastic == 8 * MIB &&
			s.elastic_blocks == 1 && !s.away,
		"and counts as live");
	is_sound(&rig, "the books agree");
	is_int(commit(addr, 0, 16 * MIB, &bytes), 0, "more around it");
	is_int((int64_t)bytes, 8 * MIB, "adds what was not");
	ok(*(char *)(addr + 4 * MIB) == 7 && *(char *)(addr + 12 * MIB - 1) == 7,
		"what was there stays");
	is_int(commit(addr, 0, 16 * MIB, &bytes), 0, "the same again");
	is_int((int64_t)bytes, 0, "adds nothing");
	is_int(commit(addr, 3 * 1024 * MIB, 700, &bytes), 0, "the end");
	is_int((int64_t)bytes, 700, "has as much as was asked for");
	is_sound(&rig, "the books agree");
	is_int(decommit(addr, 3 * MIB, 6 * MIB, &bytes), 0, "a range is decommitted");
	is_int((int64_t)bytes, 4 * MIB, "as far as it holds whole pages");
	is_int((int64_t)committed(addr), 12 * MIB + 700, "the others stay");
	is_int(decommit(addr, 5 * MIB, 2 * MIB, &bytes), 0, "one that holds none");
	is_int((int64_t)bytes, 0, "is nothing");
	is_sound(&rig, "the books agree");
	is_int(decommit(addr, 0, 3 * 1024 * MIB + 700, &bytes), 0, "all of it");
	is_int((int64_t)bytes, 12 * MIB + 700, "gives back what there was");
	is_int((int64_t)rig_figures(&rig).live, 0, "nothing is live");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, addr, a), 0, "freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* What was decommitted serves others when its stream has passed, and a block of the same addresses finds it. */
static void in_stream_order(void)
{
	uint64_t addr, other;

	set_up((const char *const[]){"soft.streams=stepped", NULL}, 32 * MIB);
	addr = elastic(256 * MIB, 0);
	is_int(commit(addr, 0, 32 * MIB, NULL), 0, "all memory is committed");
	is_int(decommit(addr, 0, 32 * MIB, NULL), 0, "and decommitted");
	is_int(commit(addr, 0, 32 * MIB, NULL), 0, "and committed where it was");
	is_int(decommit(addr, 16 * MIB, 16 * MIB, NULL), 0, "half of it goes");
	is_int(commit(addr, 128 * MIB, 16 * MIB, NULL), 0, "and lies elsewhere");
	is_sound(&rig, "the books agree");
	is_int(decommit(addr, 0, 256 * MIB, NULL), 0, "all goes");
	other = rig_alloc(&rig, 30 * MIB, a);
	ok(other != 0, "another block of its stream has the memory");
	is_sound(&rig, "the books agree");
	rig_free(&rig, other, a);
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* What there is no room for changes nothing, and says what there would be. */
static void all_or_nothing(void)
{
	struct glk_portion list[100];
	uint64_t addr, bytes = 0;

	set_up(NULL, 40 * MIB);
	addr = elastic(1024 * MIB, 0);
	for (unsigned i = 0; i < 100; i++)
		list[i] = (struct glk_portion){i * 4 * MIB, 1};
	is_int(commit(addr, 10 * MIB, 2 * MIB, NULL), 0, "a page");
	is_int(glk_cache_commit(&rig.cache, addr, list, 19, a, &bytes), 0,
		"some ranges together");
	is_int((int64_t)bytes, 38 * MIB, "each with its page");
	is_int(decommit(addr, 0, 8 * MIB, NULL), 0, "two of them go");
	is_int(glk_cache_commit(&rig.cache, addr, list, 100, a, &bytes), -ENOMEM,
		"more than there is room for");
	is_int((int64_t)bytes, 4 * MIB, "which says what there would be");
	is_int((int64_t)committed(addr), 36 * MIB, "and changes nothing");
	is_sound(&rig, "the books agree");
	is_int(commit(addr, 1023 * MIB, 2 * MIB, &bytes), -ERANGE, "past the end");
	is_int(commit(addr, 1024 * MIB, 1, &bytes), -ERANGE, "behind it");
	is_int(commit(addr, 0, SIZE_MAX, &bytes), -ERANGE, "far beyond");
	is_int(commit(addr, 0, 0, &bytes), -EINVAL, "nothing");
	is_int(decommit(addr, 1023 * MIB, 2 * MIB, &bytes), -ERANGE, "past the end");
	is_int(commit(addr + 2 * MIB, 0, 1, &bytes), -EINVAL, "its inside");
	rig_free(&rig, addr, a);
	is_int(commit(addr, 0, 1, &bytes), -EINVAL, "one that was freed");
	addr = rig_alloc(&rig, 4 * MIB, a);
	is_int(commit(addr, 0, 1, &bytes), -EINVAL, "one that is none");
	is_int(decommit(addr, 0, 2 * MIB, &bytes), -EINVAL, "likewise");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* Larger pages where nothing is expected to go; those that a range does not hold stay. */
static void keeps_large_pages(void)
{
	uint64_t addr, bytes;

	set_up(NULL, 256 * MIB);
	addr = elastic(1024 * MIB, GLAKE_ALLOC_GROWS);
	is_int(commit(addr, 0, 64 * MIB, NULL), 0, "a range is committed");
	is_int((int64_t)rig_query(&rig, addr).page_size, 8 * MIB, "with large pages");
	is_int(decommit(addr, 4 * MIB, 16 * MIB, &bytes), 0, "some of it goes");
	is_int((int64_t)bytes, 8 * MIB, "in whole pages");
	is_sound(&rig, "the books agree");
	is_int(commit(addr, 8 * MIB, 2 * MIB, NULL), 0, "a part comes back");
	is_int(decommit(addr, 0, 64 * MIB, &bytes), 0, "all of it goes");
	is_int((int64_t)bytes, 58 * MIB, "all that was left");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* A block of a new tag, which may have `limit` bytes; 0: any. */
static uint64_t of_tag(uint64_t size, uint64_t limit)
{
	uint64_t addr;

	if (glk_cache_tag_open(&rig.cache, TAG) ||
		(limit && glk_cache_tag_limit(&rig.cache, TAG, limit)))
		tap_bail("no tag");
	rig_set_tag(&rig, TAG);
	addr = elastic(size, 0);
	rig_set_tag(&rig, 0);
	return addr;
}

/* A tag's limit counts what is committed. */
static void is_limited(void)
{
	uint64_t addr;

	set_up(NULL, 256 * MIB);
	addr = of_tag(1024 * MIB, 20 * MIB);
	is_int(rig_query(&rig, addr).tag == TAG, 1, "it is of the tag");
	is_int(commit(addr, 0, 18 * MIB, NULL), 0, "what the tag may have");
	is_int(commit(addr, 18 * MIB, 4 * MIB, NULL), -ENOMEM, "and no more");
	is_int(rig_error().error_class, GLAKE_ERROR_LIMIT, "which is told");
	is_int(decommit(addr, 0, 4 * MIB, NULL), 0, "some of it goes");
	is_int(commit(addr, 18 * MIB, 4 * MIB, NULL), 0, "and makes room");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	is_int(glk_cache_tag_close(&rig.cache, TAG), 0, "nothing is left of it");
	rig_close(&rig, 0);
}

/* Ranges that overlap count once, and what is committed already asks for nothing. */
static void counts_once(void)
{
	const struct glk_portion twice[] = {{0, 16 * MIB}, {8 * MIB, 8 * MIB}};
	uint64_t addr, bytes;

	set_up(NULL, 256 * MIB);
	addr = of_tag(64 * MIB, 20 * MIB);
	is_int(glk_cache_commit(&rig.cache, addr, twice, 2, a, &bytes), 0,
		"ranges that overlap");
	is_int((int64_t)bytes, 16 * MIB, "  are what they are together");
	is_int(commit(addr, 32 * MIB, 16 * MIB, &bytes), -ENOMEM, "past the limit");
	is_int((int64_t)bytes, 4 * MIB, "  which says what it leaves");
	is_int(glk_cache_tag_limit(&rig.cache, TAG, 8 * MIB), 0, "a limit below that");
	is_int(commit(addr, 0, 16 * MIB, &bytes), 0, "what is there is");
	rig_set_tag(&rig, TAG);
	is_int(rig_free(&rig, elastic(64 * MIB, 0), a), 0, "and addresses cost nothing");
	rig_set_tag(&rig, 0);
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	is_int(glk_cache_tag_close(&rig.cache, TAG), 0, "nothing is left of it");
	rig_close(&rig, 0);
}

/* Addresses of one that was freed serve the next, though its pages lie there. */
static void reuses_addresses(void)
{
	uint64_t addr;
	int refused = 0;

	set_up(NULL, 256 * MIB); /* of 8 GiB of addresses */
	for (int i = 0; i < 8; i++) {
		addr = 0;
		refused += glk_cache_elastic(&rig.cache, 5000 * MIB, a,
				   GLAKE_ALLOC_ELASTIC, &addr) != 0;
		refused += addr && commit(addr, (uint64_t)i * 600 * MIB, 40 * MIB, NULL);
		refused += addr && rig_free(&rig, addr, a);
	}
	is_int(refused, 0, "the same addresses, again and again");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A cold one makes room for others with what it has, and none for itself. */
static void is_cold(void)
{
	uint64_t addr, other;

	set_up((const char *const[]){"soft.host_memory=1GiB", "tier.host=512MiB", NULL},
		64 * MIB);
	addr = elastic(256 * MIB, 0);
	is_int(glk_cache_advise(&rig.cache, addr, GLAKE_ADVICE_COLD), 0,
		"cold before it has anything");
	is_int(commit(addr, 0, 40 * MIB, NULL), 0, "it gets some");
	*(char *)(addr + 30 * MIB) = 9;
	other = rig_alloc(&rig, 40 * MIB, a);
	ok(other, "which goes for another one");
	is_int((int64_t)rig_query(&rig, addr).away, 40 * MIB, "  all of it");
	rig_free(&rig, other, a);
	is_int(commit(addr, 64 * MIB, 30 * MIB, NULL), 0, "it gets more");
	is_int(commit(addr, 100 * MIB, 60 * MIB, NULL), -ENOMEM,
		"it makes no room for itself");
	is_int((int64_t)rig_query(&rig, addr).away, 40 * MIB,
		"  and nothing has changed");
	other = rig_alloc(&rig, 60 * MIB, a);
	ok(other, "but for another one");
	rig_free(&rig, other, a);
	is_int(glk_cache_fetch(&rig.cache, addr, a), -ENOMEM, "70 do not come to 64");
	is_int(decommit(addr, 64 * MIB, 30 * MIB, NULL), 0, "some goes");
	is_int(glk_cache_fetch(&rig.cache, addr, a), -EALREADY, "the rest has come");
	ok(*(char *)(addr + 30 * MIB) == 9, "  as it was");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* Each call of the driver fails once, at each of its places: nothing is committed by that, and nothing is lost. */
static void undoes(void)
{
	static const char *const ops[] = {"create", "map", "set_access", "event_record"};
	const struct glk_portion list[] = {
		{0, 2 * MIB}, {6 * MIB, 2 * MIB}, {20 * MIB, 6 * MIB}, {40 * MIB, 1}};
	uint64_t addr, bytes, failed = 0;
	char rule[64];

	set_up(NULL, 64 * MIB);
	addr = elastic(256 * MIB, 0);
	is_int(commit(addr, 4 * MIB, 2 * MIB, NULL), 0, "a page");
	memset((void *)(addr + 4 * MIB), 5, 2 * MIB);
	for (size_t op = 0; op < sizeof(ops) / sizeof(*ops); op++) {
		for (int nth = 1; nth <= 7; nth++) {
			int err;

			snprintf(rule, sizeof(rule), "%s:from=%d:len=1:err=EIO", ops[op],
				nth);
			glk_fault_set(rig.drv, rule);
			err = glk_cache_commit(&rig.cache, addr, list, 4, a, &bytes);
			glk_fault_set(rig.drv, "off");
			failed += err != 0;
			if ((err && err != -EIO) ||
				committed(addr) != (err ? 2 : 14) * MIB ||
				!rig_is_sound(&rig))
				ok(false, "%s fails: %d, %zu committed", rule, err,
					(size_t)committed(addr));
			if (!err && decommit(addr, 0, 4 * MIB, NULL))
				ok(false, "%s: what came goes", rule);
			if (!err && decommit(addr, 6 * MIB, 250 * MIB, NULL))
				ok(false, "%s: what came goes", rule);
			is_int(glk_cache_trim(&rig.cache, 0, false, &bytes), 0,
				"trimmed");
		}
	}
	ok(failed >= 15, "%d commits failed, and undid what they had", (int)failed);
	ok(*(char *)(addr + 4 * MIB) == 5, "what was there stays");
	is_int(glk_cache_commit(&rig.cache, addr, list, 4, a, &bytes), 0, "all come");
	is_int((int64_t)bytes, 12 * MIB, "  as many as were asked for");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* ---- Sealed ---- */

static int share_list(uint64_t addr, const struct glk_sharing *list, size_t count)
{
	const struct glk_shares shares = {.pages = list, .count = count};

	return glk_cache_share(&rig.cache, addr, &shares, a);
}

static int share_one(uint64_t addr, uint64_t from, uint64_t to, uint64_t bytes)
{
	const struct glk_sharing s = {from, to, bytes};

	return share_list(addr, &s, 1);
}

/* Whether the GPU may write there. */
static bool may_write(uint64_t addr)
{
	return !rig.drv->ops->fill(rig.drv, addr, 1, 4, a);
}

/* Pages at several places exist once, until the last range that has them goes. */
static void is_shared(void)
{
	struct glake_stats s;
	uint64_t addr, bytes;

	set_up(NULL, 64 * MIB);
	addr = elastic(1024 * MIB, 0);
	is_int(commit(addr, 0, 16 * MIB, NULL), 0, "a front");
	memset((void *)addr, 3, 16 * MIB);
	is_int(share_one(addr, 0, 100 * MIB, 12 * MIB), 0, "shared");
	is_int(share_one(addr, 100 * MIB, 200 * MIB, 12 * MIB), 0,
		"and again from there");
	s = rig_figures(&rig);
	is_int((int64_t)s.reserved, 16 * (int64_t)MIB, "it exists once");
	is_int((int64_t)s.live, 16 * (int64_t)MIB, "and counts once");
	is_int((int64_t)s.elastic_shared, 24 * (int64_t)MIB, "the others are told");
	is_int((int64_t)committed(addr), 40 * (int64_t)MIB, "all are committed");
	ok(*(char *)(addr + 200 * MIB) == 3 && *(char *)(addr + 112 * MIB - 1) == 3,
		"they have the contents");
	is_sound(&rig, "the books agree");
	ok(!may_write(addr + 100 * MIB), "nobody writes at the new place");
	ok(!may_write(addr), "nor, by promise, at the old one");
	ok(may_write(addr + 14 * MIB), "but beside it");
	is_int(decommit(addr, 0, 16 * MIB, &bytes), 0, "the first goes");
	is_int((int64_t)bytes, 16 * (int64_t)MIB, "all of it");
	s = rig_figures(&rig);
	ok(s.live == 12 * MIB && s.elastic_shared == 12 * MIB, "what others have stays");
	ok(*(char *)(addr + 100 * MIB) == 3, "  with its contents");
	is_sound(&rig, "the books agree");
	is_int(commit(addr, 0, 40 * MIB, NULL), 0, "others come to its addresses");
	memset((void *)addr, 4, 40 * MIB);
	ok(*(char *)(addr + 200 * MIB) == 3, "  and are others");
	is_int(decommit(addr, 0, 400 * MIB, &bytes), 0, "all goes");
	is_int((int64_t)rig_figures(&rig).live, 0, "nothing is live");
	is_sound(&rig, "the books agree");
	is_int(commit(addr, 0, 64 * MIB, NULL), 0, "all memory serves again");
	is_int(decommit(addr, 0, 64 * MIB, NULL), 0, "and goes");
	is_int(glk_cache_trim(&rig.cache, 0, false, &bytes), 0, "trimmed");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "nothing is held");
	is_int(commit(addr, 0, 4 * MIB, NULL), 0, "once more");
	is_int(share_one(addr, 0, 4 * MIB, 4 * MIB), 0, "side by side");
	rig_free(&rig, addr, a);
	is_int((int64_t)rig_figures(&rig).live, 0, "freed with all that it shares");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Where the very page lay before it was sealed it still does, and nobody writes it. */
static void lies_where_it_lay(void)
{
	uint64_t addr, maps;

	set_up(NULL, 2 * MIB);
	addr = elastic(64 * MIB, 0);
	is_int(commit(addr, 0, 2 * MIB, NULL), 0, "a page");
	is_int(decommit(addr, 0, 2 * MIB, NULL), 0, "goes");
	is_int(commit(addr, 32 * MIB, 2 * MIB, NULL), 0, "and lies elsewhere");
	maps = rig_calls(&rig, GLAKE_CALL_MAP);
	is_int(share_one(addr, 32 * MIB, 0, 2 * MIB), 0, "and where it lay, too");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_MAP) - maps), 0, "  as it still did");
	ok(!may_write(addr), "nobody writes there");
	ok(!may_write(addr + 32 * MIB), "nor there");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* A page that waits for work of its stream keeps no other one from whoever needs it. */
static void passes_others(bool waits)
{
	const struct glk_portion one = {0, 2 * MIB}, all = {0, 64 * MIB};
	const struct glk_sharing s = {0, 32 * MIB, 2 * MIB};
	const struct glk_shares shares = {.pages = &s, .count = 1};
	uint64_t addr[3], bytes;
	uint32_t left = 0, id;

	set_up((const char *const[]){"soft.streams=stepped", NULL}, 4 * MIB);
	for (int i = 0; i < 3; i++) {
		if (glk_cache_elastic(&rig.cache, 64 * MIB, i ? b : a,
			    GLAKE_ALLOC_ELASTIC, &addr[i]))
			tap_bail(rig_error().text);
	}
	for (int i = 0; i < 2; i++) {
		if (glk_cache_commit(&rig.cache, addr[i], &one, 1, i ? b : a, &bytes) ||
			glk_cache_share(&rig.cache, addr[i], &shares, i ? b : a))
			tap_bail(rig_error().text);
	}
	glk_soft_run_all(rig.drv);
	is_int(glk_soft_work(rig.drv, 0, a, addr[0], 64, false), 0, "a kernel reads one");
	/* where its stream has to be waited for, the older one alone is */
	for (int i = 0; i < 2; i++) {
		int at = waits ? 1 - i : i;

		is_int(glk_cache_decommit(
			       &rig.cache, addr[at], &all, 1, at ? b : a, &bytes),
			0, "both are given up");
	}
	if (glk_stream_get(&rig.cache.streams, b, NULL, &id))
		tap_bail(rig_error().text);
	glk_lock(&rig.cache.lock);
	if (!waits)
		glk_clock_sync(&rig.cache.streams,
			glk_stream_mask(glk_stream_at(&rig.cache.streams, id)));
	glk_unlock(&rig.cache.lock);
	is_int(glk_cache_commit(&rig.cache, addr[2], &one, 1, b, &bytes), 0,
		"the second serves at once, as its stream is done");
	is_int(glk_soft_pending(rig.drv, 0, a, &left), 0, "of the kernel");
	ok(left > 0, "  nobody has waited for the end");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 3; i++)
		rig_free(&rig, addr[i], b);
	rig_close(&rig, 0);
}

/* What may not be shared changes nothing. */
static void is_not_shared(void)
{
	static const char *const settings[] = {
		"soft.host_memory=1GiB", "tier.host=512MiB", NULL};
	const struct glk_sharing twice[] = {
		{0, 20 * MIB, 4 * MIB}, {0, 22 * MIB, 4 * MIB}};
	const struct glk_sharing behind[] = {
		{0, 22 * MIB, 4 * MIB}, {0, 20 * MIB, 4 * MIB}};
	struct glk_portion p = {4 * MIB, 2 * MIB};
	uint64_t addr, grows, bytes;

	set_up(settings, 64 * MIB);
	addr = elastic(64 * MIB - 5, 0);
	is_int(commit(addr, 0, 8 * MIB, NULL), 0, "a front");
	is_int(share_one(addr, 0, 9 * MIB, 2 * MIB), -EINVAL, "no whole pages");
	is_int(share_one(addr, 0, 10 * MIB, 0), -EINVAL, "nothing");
	is_int(share_one(addr, 0, 62 * MIB, 2 * MIB), -ERANGE, "past the end");
	is_int(share_one(addr, 62 * MIB, 10 * MIB, 2 * MIB), -ERANGE, "from there");
	is_int(share_one(addr, 8 * MIB, 10 * MIB, 2 * MIB), -EBUSY, "not committed");
	is_int(share_one(addr, 0, 4 * MIB, 2 * MIB), -EEXIST, "what is committed");
	is_int(share_one(addr, 0, 0, 2 * MIB), -EEXIST, "the same");
	is_int(share_list(addr, twice, 2), -EEXIST, "twice");
	is_int(share_list(addr, behind, 2), -EEXIST, "from in front of what came");
	is_int((int64_t)committed(addr), 8 * (int64_t)MIB, "nothing has changed");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_move(&rig.cache, addr, a, false, &p, NULL), 0, "a page is away");
	is_int(share_one(addr, 0, 20 * MIB, 8 * MIB), -EBUSY, "which is not shared");
	is_int(share_one(addr, 0, 20 * MIB, 4 * MIB), 0, "those before it are");
	is_int(glk_cache_spill(&rig.cache, addr, a), 0, "what is not sealed is spilled");
	is_int((int64_t)rig_query(&rig, addr).away, 4 * (int64_t)MIB,
		"  and nothing else");
	is_int(glk_cache_fetch(&rig.cache, addr, a), 0, "and comes");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	is_int(share_one(addr, 0, 20 * MIB, 4 * MIB), -EINVAL, "one that was freed");
	grows = elastic(64 * MIB, GLAKE_ALLOC_GROWS);
	is_int(commit(grows, 0, 16 * MIB, NULL), 0, "two large pages");
	is_int(share_one(grows, 0, 32 * MIB, 6 * MIB), -EOPNOTSUPP, "the front of one");
	is_int(share_one(grows, 2 * MIB, 32 * MIB, 14 * MIB), -EOPNOTSUPP,
		"and one without");
	is_int((int64_t)committed(grows), 16 * (int64_t)MIB, "are not shared");
	is_int(share_one(grows, 0, 34 * MIB, 16 * MIB), 0, "both are");
	is_int(share_one(grows, 8 * MIB, 22 * MIB, 8 * MIB), 0, "one is again");
	is_sound(&rig, "the books agree");
	is_int((int64_t)rig_figures(&rig).elastic, 16 * (int64_t)MIB, "each counts once");
	is_int(decommit(grows, 2 * MIB, 8 * MIB, &bytes), 0, "a part of each");
	is_int((int64_t)bytes, 0, "takes nothing");
	rig_free(&rig, grows, a);
	is_sound(&rig, "the books agree");
	addr = rig_alloc(&rig, 4 * MIB, a);
	is_int(share_one(addr, 0, 2 * MIB, 2 * MIB), -EINVAL, "a block that is none");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* Contents of sealed pages go once, and come once, to all of their places. */
static void is_suspended(void)
{
	static const char *const settings[] = {
		"soft.host_memory=1GiB", "tier.host=512MiB", NULL};
	struct glake_suspended did;
	uint64_t addr, bytes;

	set_up(settings, 64 * MIB);
	addr = elastic(1024 * MIB, 0);
	is_int(commit(addr, 0, 34 * MIB, NULL), 0, "a front");
	for (unsigned i = 0; i < 17; i++)
		memset((void *)(addr + i * 2 * MIB), (int)i + 1, 2 * MIB);
	for (unsigned i = 1; i < 8; i++)
		is_int(share_one(addr, 0, i * 100 * MIB, 32 * MIB), 0, "shared");
	for (int way = 0; way < 2; way++) {
		ok(leaves(&rig, way), "all leaves the GPU");
		is_int((int64_t)rig_figures(&rig).elastic_shared, 7 * 32 * (int64_t)MIB,
			"and stays shared");
		is_int(glk_cache_resume(&rig.cache, false, &did), 0, "all comes back");
		ok(rig_figures(&rig).reserved < 40 * MIB, "once");
		for (unsigned i = 0; i < 8; i++)
			if (*(char *)(addr + i * 100 * MIB + 31 * MIB) != 16)
				ok(false, "place %u has other contents", i);
		ok(*(char *)(addr + 33 * MIB) == 17, "and what is not sealed is there");
		is_sound(&rig, "the books agree");
	}
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended");
	is_int(decommit(addr, 0, 34 * MIB, &bytes), 0, "one place goes meanwhile");
	is_int((int64_t)bytes, 34 * (int64_t)MIB, "all of it");
	is_int((int64_t)rig_figures(&rig).live, 32 * (int64_t)MIB, "the others stay");
	is_int(decommit(addr, 200 * MIB, 824 * MIB, &bytes), 0, "all but one go");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "which comes");
	ok(*(char *)(addr + 131 * MIB) == 16, "with its contents");
	is_int((int64_t)rig_figures(&rig).live, 32 * (int64_t)MIB, "and is all there is");
	is_int(share_one(addr, 100 * MIB, 400 * MIB, 32 * MIB), 0, "shared once more");
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended");
	for (int i = 0; i < 2; i++) {
		is_int((int64_t)rig_figures(&rig).elastic_shared,
			(1 - i) * 32 * (int64_t)MIB, "places that share");
		is_int(decommit(addr, i ? 100 * MIB : 400 * MIB, 32 * MIB, &bytes), 0,
			"one place goes meanwhile");
		is_int((int64_t)rig_figures(&rig).live, (1 - i) * 32 * (int64_t)MIB,
			i ? "the contents with the last" : "the contents stay");
		is_sound(&rig, "the books agree");
	}
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "nothing comes");
	is_int(commit(addr, 0, 4 * MIB, NULL), 0, "others");
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "suspended");
	rig_free(&rig, addr, a);
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "freed meanwhile");
	is_sound(&rig, "the books agree");
	is_int((int64_t)rig_figures(&rig).live, 0, "nothing is live");
	rig_close(&rig, 0);
}

/* Contents that come back once are read until they are there, whoever else has the page then. */
static void is_read_until_it_came(void)
{
	static const char *const settings[] = {
		"soft.host_memory=1GiB", "tier.host=512MiB", NULL};
	struct glake_suspended did;
	uint64_t addr;

	set_up(settings, 64 * MIB);
	addr = of_tag(64 * MIB, 0);
	is_int(commit(addr, 0, 2 * MIB, NULL), 0, "a page");
	is_int(share_one(addr, 0, 32 * MIB, 2 * MIB), 0, "at two places");
	is_int(glk_cache_tag_suspend(&rig.cache, TAG, 0, &did), 0, "goes");
	is_int(glk_cache_tag_resume(&rig.cache, TAG, &did), 0, "and comes");
	ok(rig.cache.mover.store.piece[0].read > 0,
		"who copies to its place on the host waits for that");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* Each call of the driver fails once: nothing is shared by that. */
static void undoes_shares(void)
{
	static const char *const ops[] = {"map", "set_access"};
	const struct glk_sharing list[] = {
		{0, 64 * MIB, 8 * MIB}, {2 * MIB, 90 * MIB, 4 * MIB}};
	uint64_t addr, failed = 0;
	char rule[64];

	set_up(NULL, 64 * MIB);
	addr = elastic(256 * MIB, 0);
	is_int(commit(addr, 0, 8 * MIB, NULL), 0, "pages");
	memset((void *)addr, 5, 8 * MIB);
	for (size_t op = 0; op < sizeof(ops) / sizeof(*ops); op++) {
		for (int nth = 1; nth <= 7; nth++) {
			int err;

			snprintf(rule, sizeof(rule), "%s:from=%d:len=1:err=EIO", ops[op],
				nth);
			glk_fault_set(rig.drv, rule);
			err = share_list(addr, list, 2);
			glk_fault_set(rig.drv, "off");
			failed += err != 0;
			if ((err && err != -EIO) ||
				committed(addr) != (err ? 8 : 20) * MIB ||
				!rig_is_sound(&rig))
				ok(false, "%s fails: %d, %zu committed", rule, err,
					(size_t)committed(addr));
			if (decommit(addr, 64 * MIB, 64 * MIB, NULL))
				ok(false, "%s: what came goes", rule);
			/* so that the driver is asked again */
			if (commit(addr, 64 * MIB, 40 * MIB, NULL) ||
				decommit(addr, 64 * MIB, 40 * MIB, NULL))
				ok(false, "%s: others come and go", rule);
		}
	}
	ok(failed >= 8, "%d failed, and undid what they had", (int)failed);
	ok(*(char *)(addr + 7 * MIB) == 5, "what was there stays");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* ---- By chance ---- */

#define BLOCKS 6
#define SLOTS  24 /* of a block */

enum slot { BARE, HERE, AWAY };

struct model {
	uint64_t addr;
	size_t size;
	bool tagged;
	enum slot slot[SLOTS];
	uint64_t value[SLOTS]; /* that was written there last */
	bool sealed[SLOTS];
};

static size_t end_of(const struct model *m, unsigned slot)
{
	size_t end = (slot + 1) * 2 * MIB;

	return end < m->size ? end : m->size;
}

static uint64_t *word_at(const struct model *m, unsigned slot, bool last)
{
	return (uint64_t *)(m->addr +
		(last ? (end_of(m, slot) - 8) & ~(size_t)7 : slot * 2 * MIB));
}

static void write_slot(struct model *m, unsigned slot)
{
	static uint64_t writes;

	m->value[slot] = m->addr + slot + (++writes << 48);
	m->sealed[slot] = false;
	for (int i = 0; i < 2; i++)
		*word_at(m, slot, i) = m->value[slot];
}

static unsigned slots_of(const struct model *m)
{
	return (unsigned)((m->size + 2 * MIB - 1) / (2 * MIB));
}

static bool is_whole(const struct model *m)
{
	for (unsigned slot = 0; slot < slots_of(m); slot++) {
		uint64_t want = m->value[slot];

		if (m->slot[slot] == HERE &&
			(*word_at(m, slot, false) != want ||
				*word_at(m, slot, true) != want))
			return false;
	}
	return true;
}

/* Bytes of slots that are so. */
static uint64_t bytes_of(const struct model *m, enum slot what)
{
	uint64_t bytes = 0;

	for (unsigned slot = 0; slot < slots_of(m); slot++)
		bytes += m->slot[slot] == what ? end_of(m, slot) - slot * 2 * MIB : 0;
	return bytes;
}

static bool is_told(const struct model *m)
{
	struct glake_block block = rig_query(&rig, m->addr);
	uint64_t bare = bytes_of(m, BARE), away = bytes_of(m, AWAY);

	if (block.committed == m->size - bare && block.away == away)
		return true;
	tap_note("%zu committed, %zu away; %zu and %" PRIu64 " expected", block.committed,
		block.away, m->size - bare, away);
	return false;
}

/* A range comes or goes, or moves to the host and back. Whether it did what it has to. */
static bool change(struct model *m, struct CUstream_st *stream)
{
	struct glk_portion p = {.offset = (size_t)rand() % m->size};
	uint64_t bytes = 0, want = 0;
	int what = rand() % 4, err;

	p.bytes = 1 + (size_t)rand() % (m->size - p.offset);
	for (unsigned slot = 0; slot < slots_of(m); slot++) {
		bool some =
			p.offset < end_of(m, slot) && p.offset + p.bytes > slot * 2 * MIB;
		bool all = p.offset <= slot * 2 * MIB &&
			p.offset + p.bytes >= end_of(m, slot);

		want += what == 0   ? some && m->slot[slot] == BARE
			: what == 1 ? all && m->slot[slot] != BARE
				    : 0;
	}
	if (what == 0)
		err = glk_cache_commit(&rig.cache, m->addr, &p, 1, stream, &bytes);
	else if (what == 1)
		err = glk_cache_decommit(&rig.cache, m->addr, &p, 1, stream, &bytes);
	else
		err = glk_cache_move(&rig.cache, m->addr, stream, what == 3, &p, NULL);
	if (what == 0 && err == -ENOMEM)
		return bytes < want * 2 * MIB && is_told(m) && is_whole(m);
	if (what < 2 && (err || !bytes != !want)) {
		tap_note("%d: %d, %" PRIu64 ": %s", what, err, bytes, rig_error().text);
		return false;
	}
	if (what == 3 && err == -ENOMEM) {
		/* some of it may have come: it is as it is */
		err = glk_cache_spill(&rig.cache, m->addr, stream);
		for (unsigned slot = 0; slot < slots_of(m); slot++) {
			if (m->slot[slot] == HERE && !m->sealed[slot])
				m->slot[slot] = AWAY;
		}
		return !err || err == -EALREADY;
	}
	if (what >= 2 && err && err != -EALREADY && err != -EINVAL)
		return false;
	for (unsigned slot = 0; slot < slots_of(m); slot++) {
		bool some =
			p.offset < end_of(m, slot) && p.offset + p.bytes > slot * 2 * MIB;
		bool all = p.offset <= slot * 2 * MIB &&
			p.offset + p.bytes >= end_of(m, slot);
		enum slot *s = &m->slot[slot];

		/* what is sealed stays */
		if (what == 2 && m->sealed[slot])
			continue;
		if (what == 0 && some && *s == BARE) {
			*s = HERE;
			write_slot(m, slot);
		} else if (what == 1 && all) {
			*s = BARE;
		} else if (what == 2 && all && *s == HERE && !err) {
			*s = AWAY;
		} else if (what == 3 && some && *s == AWAY && !err) {
			*s = HERE;
		}
	}
	return is_told(m) && is_whole(m);
}

/* Whole pages come to lie at another place too. Whether they did, or not where they may not. */
static bool share(struct model *m, struct CUstream_st *stream)
{
	unsigned whole = (unsigned)(m->size / (2 * MIB)), from, to, n;
	struct glk_sharing s;
	const struct glk_shares shares = {.pages = &s, .count = 1};
	int want = 0, err;

	if (!whole)
		return true;
	from = (unsigned)rand() % whole;
	to = (unsigned)rand() % whole;
	n = 1 + (unsigned)rand() % (whole - (from > to ? from : to));
	s = (struct glk_sharing){from * 2 * MIB, to * 2 * MIB, n * 2 * MIB};
	for (unsigned i = 0; i < n && !want; i++) {
		want = m->slot[from + i] != HERE  ? -EBUSY
			: m->slot[to + i] != BARE ? -EEXIST
						  : 0;
	}
	err = glk_cache_share(&rig.cache, m->addr, &shares, stream);
	if (err != want) {
		tap_note("shared: %d, not %d: %s", err, want, rig_error().text);
		return false;
	}
	for (unsigned i = 0; i < n && !err; i++) {
		m->slot[to + i] = HERE;
		m->value[to + i] = m->value[from + i];
		m->sealed[from + i] = m->sealed[to + i] = true;
	}
	return is_told(m) && is_whole(m);
}

static bool make(struct model *m, struct CUstream_st *stream)
{
	uint32_t flags = GLAKE_ALLOC_ELASTIC;

	*m = (struct model){.size = 1 + (size_t)rand() % (SLOTS * 2 * MIB),
		.tagged = rand() % 3 == 0};
	m->size = (m->size + 15) & ~(size_t)15;
	rig_set_tag(&rig, m->tagged ? TAG : 0);
	if (glk_cache_elastic(&rig.cache, m->size, stream, flags, &m->addr))
		tap_bail(rig_error().text);
	rig_set_tag(&rig, 0);
	return is_told(m);
}

/* All goes and comes. Whether it did. */
static bool turn(int way)
{
	struct glake_suspended did;
	int err;

	if (way == 0)
		return !glk_cache_tag_suspend(&rig.cache, TAG, 0, &did) &&
			!glk_cache_tag_resume(&rig.cache, TAG, &did);
	if (!leaves(&rig, way != 1))
		return false;
	err = glk_cache_resume(&rig.cache, false, &did);
	return !err || err == -ENOMEM;
}

static bool step(struct model *list, uint64_t *plain, bool turns)
{
	struct CUstream_st *stream = rand() % 2 ? a : b;
	struct model *m = &list[rand() % BLOCKS];
	uint64_t unused;

	if (!m->addr)
		return make(m, stream);
	if (rand() % 20 == 0) {
		bool good = is_whole(m) && !rig_free(&rig, m->addr, stream);

		m->addr = 0;
		return good;
	}
	if (rand() % 10 == 0) {
		if (*plain)
			rig_free(&rig, *plain, stream);
		*plain = rig_alloc(&rig, (1 + (size_t)rand() % 20) * MIB, stream);
		return true;
	}
	if (rand() % 40 == 0)
		return !glk_cache_trim(&rig.cache, 0, false, &unused);
	if (turns && rand() % 30 == 0)
		return turn(rand() % 3);
	if (rand() % 4 == 0)
		return share(m, stream);
	return change(m, stream);
}

static void program(unsigned seed, bool turns)
{
	static const char *const settings[] = {
		"soft.host_memory=1GiB", "tier.host=512MiB", NULL};
	struct model list[BLOCKS] = {0};
	int steps = tap_storms_take_long() ? 100 : 600, n = 0;
	uint64_t plain = 0;
	bool good = true;

	srand(seed);
	set_up(settings, turns ? 400 * MIB : 96 * MIB);
	if (glk_cache_tag_open(&rig.cache, TAG))
		tap_bail("no tag");
	for (; n < steps && good; n++) {
		good = step(list, &plain, turns);
		if (n % 4 == 0)
			good &= rig_is_sound(&rig);
	}
	for (int i = 0; i < BLOCKS; i++)
		good &= !list[i].addr || (is_told(&list[i]) && is_whole(&list[i]));
	ok(good, "seed %u: %d steps", seed, n);
	for (int i = 0; i < BLOCKS; i++) {
		if (list[i].addr)
			rig_free(&rig, list[i].addr, a);
	}
	if (plain)
		rig_free(&rig, plain, a);
	is_sound(&rig, "the books agree");
	is_int((int64_t)rig_figures(&rig).live, 0, "nothing is live");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	grows_and_shrinks();
	in_stream_order();
	all_or_nothing();
	keeps_large_pages();
	is_limited();
	counts_once();
	reuses_addresses();
	is_cold();
	undoes();
	is_shared();
	lies_where_it_lay();
	passes_others(false);
	passes_others(true);
	is_not_shared();
	is_suspended();
	is_read_until_it_came();
	undoes_shares();
	for (unsigned seed = 1; seed < 7; seed++)
		program(seed, seed % 2);
	return tap_done();
}
