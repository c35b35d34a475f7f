/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What security.level clears: what was in a block is in none that comes after it, on whatever way that has its memory. */
#include "guarded.h"

#include <errno.h>

#include <glake/host.h>
#include <glake/publish.h>

static const char *const levels[][2] = {{"security.level=0", NULL},
	{"security.level=1", NULL}, {"security.level=2", NULL},
	{"security.level=3", NULL}};

/* What was written to a block last: a byte that no other block had. */
static unsigned char secret = 1;

static size_t secrets(const void *p, size_t size)
{
	const unsigned char *c = p;
	size_t found = 0;

	if (!memchr(p, secret, size))
		return 0;
	for (size_t i = 0; i < size; i++)
		found += c[i] == secret;
	return found;
}

/* A block with a secret in it, and what waits for its stream. */
static void *kept(struct glake *ctx, size_t size, struct CUstream_st *stream)
{
	void *p = flow_alloc(ctx, size, stream);

	if (!p)
		tap_bail("no block");
	secret = (unsigned char)(secret % 0xbe + 1);
	memset(p, secret, size);
	return p;
}

/* Of a size, which is asked for again at once, and from the same memory as smaller ones. */
static size_t found_after(struct glake *ctx, size_t size, struct CUstream_st *stream)
{
	size_t found = 0, least = size < 8 * MIB ? 512 : MIB;
	void *p[8];

	for (int i = 0; i < 8; i++) {
		p[i] = flow_alloc(ctx, size, stream);
		glake_soft_stream_sync(ctx, 0, NULL);
		found += secrets(p[i], size);
	}
	for (int i = 0; i < 8; i++)
		glake_free(ctx, p[i], stream);
	for (int i = 0; i < 8; i++) {
		p[i] = flow_alloc(ctx, least << (i % 3), stream);
		glake_soft_stream_sync(ctx, 0, NULL);
		found += secrets(p[i], least << (i % 3));
	}
	for (int i = 0; i < 8; i++)
		glake_free(ctx, p[i], stream);
	return found;
}

static void at_free(int level, size_t size)
{
	struct glake *ctx = open_with(levels[level]);
	struct CUstream_st *one, *two;
	struct CUevent_st *event;
	struct glake_checked c;
	void *p;

	if (glake_stream_new(ctx, 0, &one) || glake_stream_new(ctx, 0, &two) ||
		glake_event_new(ctx, 0, &event))
		tap_bail("no streams");
	glake_free(ctx, kept(ctx, size, NULL), NULL);
	ok((found_after(ctx, size, NULL) == 0) == (level >= 2),
		"level %d, %zu bytes: what was freed is cleared with 2", level, size);
	p = kept(ctx, size, one);
	is_int(glake_use(ctx, p, two), 0, "another stream uses one");
	glake_free(ctx, p, one);
	is_int((int64_t)found_after(ctx, size, two) * (level >= 2), 0,
		"  it finds nothing");
	p = kept(ctx, size, one);
	is_int(glake_event_record(ctx, 0, event, two), 0, "an event");
	is_int(glake_free_after(ctx, p, &event, 1), 0, "one is freed behind it");
	is_int((int64_t)found_after(ctx, size, one) * (level >= 2), 0,
		"  nothing is found");
	p = kept(ctx, size, one);
	is_int(glake_free_after(ctx, p, NULL, 0), 0, "or behind none");
	is_int((int64_t)found_after(ctx, size, one) * (level >= 2), 0, "  likewise");
	c = checked(ctx, 0);
	ok((c.cleared > 0) == (level >= 2) && !c.uncleared, "%d MiB were cleared",
		(int)(c.cleared >> 20));
	is_int(glake_event_free(ctx, 0, event), 0, "the event ends");
	is_int(glake_stream_free(ctx, 0, one), 0, "a stream ends");
	is_int(glake_stream_free(ctx, 0, two), 0, "and the other one");
	flow_close(ctx, 0);
}

/* Blocks of two tags and of none. */
static void owners(int level)
{
	struct glake *ctx = open_with(levels[level]);
	uint32_t one, two;

	if (glake_tag_open(ctx, "one", &one) || glake_tag_open(ctx, "two", &two))
		tap_bail("no tags");
	for (size_t size = 1000; size < 10 * MIB; size *= 100) {
		glake_tag_set(ctx, one, NULL);
		glake_free(ctx, kept(ctx, size, NULL), NULL);
		glake_tag_set(ctx, two, NULL);
		is_int((int64_t)found_after(ctx, size, NULL), 0,
			"another tag finds nothing");
		glake_free(ctx, kept(ctx, size, NULL), NULL);
		glake_tag_set(ctx, 0, NULL);
		is_int((int64_t)found_after(ctx, size, NULL), 0, "nor does none");
		glake_free(ctx, kept(ctx, size, NULL), NULL);
		glake_trim(ctx, 0, SIZE_MAX, NULL);
		glake_tag_set(ctx, one, NULL);
		is_int((int64_t)found_after(ctx, size, NULL), 0, "nor a tag of that");
		glake_tag_set(ctx, 0, NULL);
	}
	is_int(glake_tag_close(ctx, one), 0, "closed");
	is_int(glake_tag_close(ctx, two), 0, "both");
	flow_close(ctx, 0);
}

/* Nothing is done where nothing changes its owner. */
static void nothing(void)
{
	struct glake *ctx = open_with(levels[1]);

	for (int i = 0; i < 100; i++)
		glake_free(ctx, given(ctx, 1000), NULL);
	ok(flow_stats(ctx, 0).hits >= 90, "requests hit with level 1");
	is_int((int64_t)checked(ctx, 0).cleared, 0, "  and nothing is cleared");
	flow_close(ctx, 0);
}

/* Pages that contents have left go to others. */
static void leaves(int level)
{
	struct glake *ctx = open_with(levels[level]);
	uint32_t tag;
	char *p, *q;

	if (glake_tag_open(ctx, "one", &tag))
		tap_bail("no tag");
	glake_tag_set(ctx, level == 1 ? tag : 0, NULL);
	p = kept(ctx, 4 * MIB, NULL);
	glake_tag_set(ctx, 0, NULL);
	is_int(glake_spill(ctx, p, NULL), 0, "a block goes to the host");
	q = given(ctx, 4 * MIB);
	glake_soft_stream_sync(ctx, 0, NULL);
	is_int((int64_t)secrets(q, 4 * MIB), 0, "  whoever has its pages finds nothing");
	is_int(glake_fetch(ctx, p, NULL), 0, "it comes back");
	glake_soft_stream_sync(ctx, 0, NULL);
	is_int((int64_t)secrets(p, 4 * MIB), 4 * MIB, "  with what was in it");
	glake_free(ctx, p, NULL);
	glake_free(ctx, q, NULL);
	is_int(glake_tag_close(ctx, tag), 0, "closed");
	flow_close(ctx, 0);
}

/* With 3 also what nobody has freed is cleared: the pages come with what the driver left in them. */
static void before_use(void)
{
	struct glake *ctx = open_with(levels[3]);
	char *p = given(ctx, 3 * MIB);

	is_int((int64_t)checked(ctx, 0).cleared, 3 * MIB,
		"with 3 a new block is cleared");
	glake_free(ctx, p, NULL);
	is_int((int64_t)checked(ctx, 0).cleared, 6 * MIB, "  and when it is freed");
	flow_close(ctx, 0);
}

static void captured(void)
{
	struct glake *ctx = open_with(levels[2]);
	struct CUstream_st *one;
	uint32_t graph;
	void *p;

	if (glake_stream_new(ctx, 0, &one))
		tap_bail("no stream");
	p = kept(ctx, 1000, one);
	is_int(glake_soft_capture_begin(ctx, 0, one), 0, "a stream captures");
	is_int(glake_free(ctx, p, one), 0, "a block is freed in it");
	is_int(glake_soft_capture_end(ctx, 0, one, &graph), 0, "it ends");
	is_int(glake_soft_graph_free(ctx, graph), 0, "  and its graph");
	is_int((int64_t)checked(ctx, 0).uncleared, 1, "it is counted as not cleared");
	is_int(glake_stream_free(ctx, 0, one), 0, "the stream ends");
	flow_close(ctx, 0);
}

/* A tag has a level and a mode of its own. */
static void of_tag(void)
{
	struct glake *ctx = open_with(NULL);
	struct glake_finding f;
	uint32_t tag;
	char *p, *q;

	if (glake_tag_open(ctx, "one", &tag))
		tap_bail("no tag");
	is_int(glake_tag_guard_set(ctx, 0, tag, "canary", 2), 0, "canaries and level 2");
	is_error(glake_tag_guard_set(ctx, 0, tag, "full", -1), -EINVAL, "INVAL");
	is_error(glake_tag_guard_set(ctx, 0, tag, NULL, 4), -EINVAL, "INVAL");
	is_error(glake_tag_guard_set(ctx, 9, tag, NULL, 1), -EINVAL, "INVAL");
	is_error(glake_tag_guard_set(ctx, 0, tag + 1, NULL, 1), -ESTALE, "STALE");
	q = given(ctx, 1000);
	glake_tag_set(ctx, tag, NULL);
	p = given(ctx, 1000);
	is_int((int64_t)checked(ctx, 0).blocks, 1, "the block with the tag has one");
	spoil(p + 1000, 3);
	checked(ctx, -EIO);
	f = finding(ctx, 0);
	ok(f.kind == GLAKE_FINDING_OVERRUN && f.base == p && f.size == 1000 &&
			f.bytes == 3,
		"  which is looked at");
	glake_free(ctx, p, NULL);
	p = kept(ctx, 3000, NULL);
	spoil(p + 3000, 1);
	is_int(glake_free(ctx, p, NULL), 0, "another one is freed");
	checked(ctx, -EIO);
	f = finding(ctx, 1);
	ok(f.base == p && f.freed_by, "  and was looked at then");
	is_int(glake_tag_guard_set(ctx, 0, tag, "poison", -1), 0, "poison");
	p = given(ctx, 3000);
	ok(((unsigned char *)p)[1] == 0xff, "  comes filled");
	glake_tag_set(ctx, 0, NULL);
	is_int((int64_t)found_after(ctx, 3000, NULL), 0, "what was freed is cleared");
	glake_free(ctx, p, NULL);
	glake_free(ctx, q, NULL);
	is_int(glake_tag_close(ctx, tag), 0, "closed");
	is_int(glake_tag_open(ctx, "one", &tag), 0, "opened anew");
	glake_tag_set(ctx, tag, NULL);
	p = given(ctx, 1000);
	glake_tag_set(ctx, 0, NULL);
	is_int((int64_t)checked(ctx, 0).blocks, 0, "it has neither");
	glake_free(ctx, p, NULL);
	is_int(glake_tag_close(ctx, tag), 0, "closed");
	flow_close(ctx, 0);
}

/* Canaries stay where they are, and what is kept is cleared. */
static void with_canary(const char *mode, size_t size)
{
	struct glake *ctx =
		open_with((const char *const[]){mode, "security.level=2", NULL});
	char *p = kept(ctx, size, NULL);

	glake_free(ctx, p, NULL);
	for (int i = 0; i < 3; i++) {
		p = given(ctx, size);
		glake_soft_stream_sync(ctx, 0, NULL);
		ok(!secrets(p, size), "%s, %zu bytes", mode, size);
		memset(p, secret, size);
		glake_free(ctx, p, NULL);
	}
	checked(ctx, 0);
	is_int((int64_t)found_after(ctx, 5000, NULL), 0, "of another size too");
	flow_close(ctx, 0);
}

/* Others have a block that is out, and find in it what they were given, until they are done. */
static void out(int level)
{
	struct glake *ctx = open_with(levels[level]);
	struct glake_piece pieces[8];
	size_t count = 0;
	char *p = kept(ctx, 4 * MIB, NULL);

	is_int(glake_export_list(ctx, p, pieces, COUNT(pieces), &count), 0, "one is out");
	glake_free(ctx, p, NULL);
	glake_soft_stream_sync(ctx, 0, NULL);
	is_int((int64_t)secrets(p, 4 * MIB), 4 * MIB, "  and is freed: it is as it was");
	is_int(glake_export_end(ctx, p), 0, "others are done with it");
	is_int((int64_t)found_after(ctx, 4 * MIB, NULL), 0, "  nobody finds it");
	flow_close(ctx, 0);
}

/* Memory of an elastic block goes in parts, and with it. */
static void elastic(int level)
{
	struct glake *ctx = open_with(
		(const char *const[]){levels[level][0], "pool.budget=8MiB", NULL});
	void *p = NULL, *q;

	secret = (unsigned char)(secret % 0xbe + 1);
	is_int(glake_alloc(ctx, 0, 8 * MIB, NULL, GLAKE_ALLOC_ELASTIC, &p), 0,
		"an elastic block");
	is_int(glake_commit(ctx, p, 0, 6 * MIB, NULL, NULL), 0, "  has memory");
	memset(p, secret, 6 * MIB);
	is_int(glake_decommit(ctx, p, 0, 4 * MIB, NULL, NULL), 0, "a part of it goes");
	q = given(ctx, 6 * MIB);
	glake_soft_stream_sync(ctx, 0, NULL);
	is_int((int64_t)secrets(q, 6 * MIB), 0, "  nobody finds it");
	is_int(glake_free(ctx, q, NULL), 0, "freed");
	is_int(glake_free(ctx, p, NULL), 0, "and the rest");
	q = given(ctx, 8 * MIB);
	glake_soft_stream_sync(ctx, 0, NULL);
	is_int((int64_t)secrets(q, 8 * MIB), 0, "  likewise");
	is_int(glake_free(ctx, q, NULL), 0, "freed");
	flow_close(ctx, 0);
}

/* Sequences of two domains, one after the other in a slot, and whoever has the pages when the cache has gone. */
static void domains(int level, uint32_t flags)
{
	struct glake *ctx = open_with(levels[level]);
	struct glake_kv_options options = {.sz = sizeof(options),
		.slots = 2,
		.tokens = 1024,
		.lanes = 1,
		.lane_bytes = 4096,
		.flags = flags};
	struct glake_kv_place place = {.sz = sizeof(place)};
	struct glake_kv *kv;
	uint32_t slot;

	if (glake_kv_open(ctx, 0, &options, NULL, &kv) ||
		glake_kv_place_get(kv, 0, &place))
		tap_bail("no cache");
	for (uint64_t domain = 1; domain < 4; domain++) {
		is_int(glake_kv_new_in(kv, 1024, domain, NULL, &slot), 0, "a sequence");
		is_int(glake_kv_grow(kv, slot, 1024, NULL), 0, "  grows");
		glake_soft_stream_sync(ctx, 0, NULL);
		is_int((int64_t)secrets((char *)place.base + slot * place.slot, 4 * MIB),
			0, "  and finds nothing of the one before");
		memset((char *)place.base + slot * place.slot, secret, 4 * MIB);
		is_int(glake_kv_free(kv, slot, NULL), 0, "  it ends");
	}
	is_int(glake_kv_close(kv, NULL), 0, "the cache goes");
	is_int((int64_t)found_after(ctx, 2 * MIB, NULL), 0, "nobody finds anything");
	flow_close(ctx, 0);
}

/* Pages of a KV cache that cannot be cleared are counted, and no capture of others ends by it. */
static void sequences_uncleared(void)
{
	struct glake *ctx = open_with((const char *const[]){
		"security.level=2", "driver.fault=fill:nth=1:err=EIO", NULL});
	struct glake_kv_options options = {.sz = sizeof(options),
		.slots = 2,
		.tokens = 1024,
		.lanes = 1,
		.lane_bytes = 4096};
	struct CUstream_st *one;
	struct glake_kv *kv;
	uint32_t slot, graph;
	void *p;

	if (glake_stream_new(ctx, 0, &one) || glake_kv_open(ctx, 0, &options, NULL, &kv))
		tap_bail("no cache");
	is_int(glake_kv_new(kv, 1024, NULL, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, 512, NULL), 0, "  grows, and is not cleared");
	is_int((int64_t)checked(ctx, 0).uncleared, 1, "  which is told");
	is_int(glake_soft_capture_begin(ctx, 0, one), 0, "another stream captures");
	p = flow_alloc(ctx, 1000, one);
	is_int(glake_kv_grow(kv, slot, 1024, NULL), 0, "  while it grows again");
	is_int(glake_soft_capture_end(ctx, 0, one, &graph), 0, "  and goes on");
	is_int(glake_soft_graph_free(ctx, graph), 0, "  to a graph");
	is_int(glake_free(ctx, p, one), 0, "a block goes");
	/* by which it is known that it captures no more */
	is_int(glake_free(ctx, flow_alloc(ctx, 1000, one), one), 0, "and another one");
	is_int((int64_t)checked(ctx, 0).uncleared, 2, "that is told too");
	is_int(glake_kv_close(kv, NULL), 0, "the cache goes");
	is_int(glake_stream_free(ctx, 0, one), 0, "and the stream");
	flow_close(ctx, 0);
}

/* Of glake_host_alloc: who has it next finds zeros. */
static void host_blocks(struct glake *ctx)
{
	struct CUstream_st *one;
	void *p, *q;

	if (glake_stream_new(ctx, 0, &one))
		tap_bail("no stream");
	for (int used = 0; used < 2; used++) {
		is_int(glake_host_alloc(ctx, 0, 5000, 0, &p), 0, "locked memory");
		memset(p, secret, 5000);
		if (used)
			is_int(glake_host_use(ctx, p, 0, one), 0, "  a stream uses it");
		is_int(glake_host_free(ctx, p), 0, "  it is freed");
		ok(used || !secrets(p, 5000), "  and empty at once");
		is_int(glake_host_alloc(ctx, 0, 5000, 0, &q), 0, "the next one");
		ok(!secrets(q, 5000), "  finds nothing");
		is_int(glake_host_free(ctx, q), 0, "  freed");
	}
	is_int(glake_stream_free(ctx, 0, one), 0, "the stream ends");
}

/* Contents that are away are encrypted, and looked at by a check. */
static void on_the_host(void)
{
	struct glake *ctx = open_with(levels[3]);
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_options options = {.sz = sizeof(options),
		.no_conf_file = 1,
		.settings = (const char *const[]){
			"security.level=3", "tier.place=host", NULL}};
	char *p = kept(ctx, 4 * MIB, NULL);
	uint32_t tag;

	is_int(glake_spill(ctx, p, NULL), 0, "a block goes");
	is_int((int64_t)checked(ctx, 0).contents, 1, "  a check looks at it");
	is_int(glake_fetch(ctx, p, NULL), 0, "  it comes back");
	is_int(glake_suspend_in_place(ctx, 0, &did), 0, "a suspension in place");
	is_int((int64_t)checked(ctx, 0).contents, 1, "  sends it away");
	is_int(glake_resume_lazy(ctx, 0, &did), 0, "  and back");
	glake_soft_stream_sync(ctx, 0, NULL);
	is_int((int64_t)secrets(p, 4 * MIB), 4 * MIB, "  with what was in it");
	is_error(glake_conf_set(ctx, "tier.place", "host"), -EINVAL, "INVAL");
	is_int(glake_conf_set(ctx, "tier.place", "gpu"), 0, "tier.place is what it was");
	host_blocks(ctx);
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
	is_error(glake_open(&options, &ctx), -EINVAL, "CONFIG");
	tap_expect_log(tap.logs - tap.expected);

	ctx = open_with((const char *const[]){"tier.place=host", NULL});
	if (glake_tag_open(ctx, "one", &tag))
		tap_bail("no tag");
	is_error(glake_tag_guard_set(ctx, 0, tag, NULL, 3), -EINVAL, "INVAL");
	is_int(glake_conf_set(ctx, "tier.place", "gpu"), 0, "with gpu");
	is_int(glake_tag_guard_set(ctx, 0, tag, NULL, 3), 0, "  a tag may have 3");
	is_error(glake_conf_set(ctx, "tier.place", "host"), -EINVAL, "INVAL");
	glake_tag_set(ctx, tag, NULL);
	p = kept(ctx, 4 * MIB, NULL);
	glake_tag_set(ctx, 0, NULL);
	is_int(glake_spill(ctx, p, NULL), 0, "a block of it goes");
	is_int((int64_t)checked(ctx, 0).contents, 1, "  encrypted");
	is_int(glake_fetch(ctx, p, NULL), 0, "  and comes back");
	is_int((int64_t)secrets(p, 4 * MIB), 4 * MIB, "  with what was in it");
	glake_free(ctx, p, NULL);
	is_int(glake_tag_close(ctx, tag), 0, "closed");
	flow_close(ctx, 0);
}

/* A block that is sealed: a check sees each page of it, and a byte that has changed. */
static void sealed(void)
{
	struct glake *ctx = open_with(levels[3]);
	char *p = NULL, *q = NULL;

	is_int(glake_alloc(ctx, 0, 8 * MIB, NULL, GLAKE_ALLOC_ELASTIC, (void **)&p), 0,
		"an elastic block");
	is_int(glake_commit(ctx, p, 0, 8 * MIB, NULL, NULL), 0, "  has memory");
	for (size_t at = 0; at < 8 * MIB; at++)
		p[at] = (char)(at >> 18);
	is_int((int64_t)checked(ctx, 0).contents, 0, "a check does not look at it");
	is_int(glake_seal(ctx, p, NULL, 0, NULL), 0, "it is sealed");
	is_int((int64_t)checked(ctx, 0).contents, 4, "  from then on each page");
	p[5 * MIB] ^= 1;
	checked(ctx, -EIO);
	is_str(glake_error_class_name(flow_error().error_class), "CORRUPT",
		"  a byte of one has changed");
	ok(strstr(flow_error().text, "sealed page") != NULL, "  which it says: %s",
		flow_error().text);
	p[5 * MIB] ^= 1;
	is_int((int64_t)checked(ctx, 0).contents, 4, "  and is as it was");
	is_int(glake_decommit(ctx, p, 4 * MIB, 2 * MIB, NULL, NULL), 0, "that page goes");
	is_int((int64_t)checked(ctx, 0).contents, 3, "  the others are looked at");
	glake_trim(ctx, 0, 0, NULL);
	is_int(glake_commit(ctx, p, 4 * MIB, 2 * MIB, NULL, NULL), 0,
		"  another one comes");
	is_int((int64_t)checked(ctx, 0).contents, 3, "  of which nothing is known yet");
	is_int((int64_t)checked(ctx, 0).contents, 4, "  but then");
	for (size_t at = 4 * MIB; at < 6 * MIB; at++)
		p[at] = (char)(at >> 18);
	is_int(glake_seal(ctx, p, NULL, 0, NULL), 0, "all are sealed again");
	is_int((int64_t)checked(ctx, 0).contents, 4, "  and looked at");
	is_int(glake_alloc(ctx, 0, 8 * MIB, NULL, GLAKE_ALLOC_ELASTIC, (void **)&q), 0,
		"another one");
	is_int(glake_commit(ctx, q, 0, 8 * MIB, NULL, NULL), 0, "  has memory");
	memcpy(q, p, 8 * MIB);
	is_int(glake_seal(ctx, q, NULL, 0, NULL), 0, "  is sealed, with equal pages");
	is_int((int64_t)checked(ctx, 0).contents, 4, "  which are looked at once");
	p[MIB] ^= 1;
	checked(ctx, -EIO);
	p[MIB] ^= 1;
	is_int(glake_unseal(ctx, p, NULL), 0, "the first is sealed no more");
	glake_soft_stream_sync(ctx, 0, NULL);
	memset(p, 7, 8 * MIB);
	checked(ctx, 0);
	is_int((int64_t)checked(ctx, 0).contents, 4, "  and may be written");
	is_int(glake_seal(ctx, p, NULL, 0, NULL), 0, "  and sealed again");
	checked(ctx, 0);
	is_int(glake_suspend(ctx, 0, NULL), 0, "all of it goes, encrypted");
	ok(checked(ctx, 0).contents > 0, "  and is looked at there");
	is_int(glake_resume(ctx, 0, NULL), 0, "  comes back");
	checked(ctx, 0);
	glake_free(ctx, p, NULL);
	glake_free(ctx, q, NULL);
	is_int((int64_t)checked(ctx, 0).contents, 0, "freed");
	flow_close(ctx, 0);
}

/* A seal looks at what it seals, and not at what is known. */
static void sealed_one_by_one(void)
{
	struct glake *ctx = open_with(levels[3]);
	char *p[2] = {NULL, NULL};

	for (int i = 0; i < 2; i++) {
		if (glake_alloc(
			    ctx, 0, 4 * MIB, NULL, GLAKE_ALLOC_ELASTIC, (void **)&p[i]) ||
			glake_commit(ctx, p[i], 0, 4 * MIB, NULL, NULL))
			tap_bail("no elastic block");
		memset(p[i], i + 1, 4 * MIB);
		memset(p[i] + 2 * MIB, i + 3, 2 * MIB);
		is_int(glake_seal(ctx, p[i], NULL, 0, NULL), 0, "a block is sealed");
		/* what is wrong with the first is a matter of a check */
		p[0][MIB] ^= !i;
	}
	p[0][MIB] ^= 1;
	p[1][MIB] ^= 1;
	checked(ctx, -EIO);
	ok(strstr(flow_error().text, "sealed page") != NULL,
		"a byte of the second has changed since: %s", flow_error().text);
	p[1][MIB] ^= 1;
	is_int((int64_t)checked(ctx, 0).contents, 4, "  and then all is right");
	for (int i = 0; i < 2; i++)
		glake_free(ctx, p[i], NULL);
	flow_close(ctx, 0);
}

/* Contents that need not last are others when their memory is had again. */
static void sealed_and_dropped(void)
{
	struct glake *ctx = open_with(levels[3]);
	uint32_t tag;
	char *p = NULL;

	if (glake_tag_open(ctx, "drop", &tag) || glake_tag_set(ctx, tag, NULL) ||
		glake_alloc(ctx, 0, 8 * MIB, NULL, GLAKE_ALLOC_ELASTIC, (void **)&p) ||
		glake_commit(ctx, p, 0, 8 * MIB, NULL, NULL))
		tap_bail("no elastic block of a tag");
	for (size_t at = 0; at < 8 * MIB; at++)
		p[at] = (char)(at >> 18);
	is_int(glake_seal(ctx, p, NULL, 0, NULL), 0, "a block of a tag is sealed");
	is_int((int64_t)checked(ctx, 0).contents, 4, "  and each page is known");
	is_int(glake_tag_suspend(ctx, 0, tag, GLAKE_TAG_DROP, NULL), 0,
		"  it is dropped");
	is_int((int64_t)checked(ctx, 0).contents, 0, "  nothing of it is there");
	glake_trim(ctx, 0, 0, NULL);
	is_int(glake_tag_resume(ctx, 0, tag, NULL), 0, "  and has memory again");
	is_int((int64_t)checked(ctx, 0).contents, 0, "  of which nothing is known");
	is_int((int64_t)checked(ctx, 0).contents, 4, "  at first");
	glake_tag_set(ctx, 0, NULL);
	glake_free(ctx, p, NULL);
	is_int(glake_tag_close(ctx, tag), 0, "  the tag is closed");
	flow_close(ctx, 0);
}

/* Where the driver runs no kernels, a check looks at all else. */
static void sealed_without_kernels(void)
{
	struct glake *ctx = open_with((const char *const[]){"security.level=3",
		"driver.fault=module_load:from=1:err=EOPNOTSUPP", NULL});
	void *p = NULL;

	if (glake_alloc(ctx, 0, 8 * MIB, NULL, GLAKE_ALLOC_ELASTIC, &p) ||
		glake_commit(ctx, p, 0, 8 * MIB, NULL, NULL))
		tap_bail("no elastic block");
	is_int(glake_seal(ctx, p, NULL, 0, NULL), -EOPNOTSUPP, "without kernels");
	is_int((int64_t)checked(ctx, 0).contents, 0, "  no sealed page is looked at");
	glake_free(ctx, p, NULL);
	flow_close(ctx, 0);
}

/* Pages that two sequences have, small ones or a large one: each 2 MiB of them have a number. */
static void sealed_tokens(uint32_t flags)
{
	uint32_t tokens = flags & GLAKE_KV_LARGE ? 4096 : 1024;
	size_t size = (size_t)tokens * 4096;
	struct glake *ctx = open_with(levels[3]);
	struct glake_kv_options options = {.sz = sizeof(options),
		.slots = 2,
		.tokens = tokens,
		.lanes = 1,
		.lane_bytes = 4096,
		.flags = flags};
	struct glake_kv_place place = {.sz = sizeof(place)};
	uint32_t slot, other;
	struct glake_kv *kv;
	char *at;

	if (glake_kv_open(ctx, 0, &options, NULL, &kv) ||
		glake_kv_place_get(kv, 0, &place))
		tap_bail("no cache");
	is_int(glake_kv_new(kv, tokens, NULL, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, tokens, NULL), 0, "  grows");
	glake_soft_stream_sync(ctx, 0, NULL);
	at = (char *)place.base + slot * place.slot;
	memset(at, 5, size);
	is_int(glake_kv_fork(kv, slot, tokens, tokens, NULL, &other), 0, "it is forked");
	checked(ctx, 0);
	is_int((int64_t)checked(ctx, 0).contents, (int64_t)(size / (2 * MIB)),
		"pages of both are looked at");
	at[3 * MIB] ^= 1;
	checked(ctx, -EIO);
	at[3 * MIB] ^= 1;
	is_int(glake_kv_free(kv, other, NULL), 0, "one ends");
	is_int(glake_kv_free(kv, slot, NULL), 0, "and the other");
	is_int(glake_kv_new(kv, tokens, NULL, &slot), 0, "another sequence");
	is_int(glake_kv_grow(kv, slot, tokens, NULL), 0, "  in its place");
	glake_soft_stream_sync(ctx, 0, NULL);
	memset((char *)place.base + slot * place.slot, 6, size);
	checked(ctx, 0);
	is_int(glake_kv_fork(kv, slot, tokens, tokens, NULL, &other), 0,
		"  is forked too");
	checked(ctx, 0);
	is_int((int64_t)checked(ctx, 0).contents, (int64_t)(size / (2 * MIB)),
		"  and is not taken for the first");
	is_int(glake_kv_close(kv, NULL), 0, "the cache goes");
	flow_close(ctx, 0);
}

/* What was queued before pages are sealed is in them before anything looks. */
static void sealed_behind_work(void)
{
	struct glake *ctx = open_with(
		(const char *const[]){"security.level=3", "soft.streams=stepped", NULL});
	struct glake_kv_options options = {.sz = sizeof(options),
		.slots = 2,
		.tokens = 1024,
		.lanes = 1,
		.lane_bytes = 4096};
	struct glake_kv_place place = {.sz = sizeof(place)};
	struct CUstream_st *stream;
	uint32_t slot, other;
	struct glake_kv *kv;
	void *block;

	if (glake_stream_new(ctx, 0, &stream) ||
		glake_kv_open(ctx, 0, &options, NULL, &kv) ||
		glake_kv_place_get(kv, 0, &place))
		tap_bail("no cache");
	is_int(glake_kv_new(kv, 1024, stream, &slot), 0, "a sequence");
	is_int(glake_kv_grow(kv, slot, 1024, stream), 0, "  grows");
	is_int(glake_soft_fill(ctx, stream, (char *)place.base + slot * place.slot, 5,
		       4 * MIB / 4),
		0, "  tokens are on their way");
	is_int(glake_kv_fork(kv, slot, 1024, 1024, stream, &other), 0, "it is forked");
	is_int(glake_alloc(ctx, 0, 2 * MIB, NULL, GLAKE_ALLOC_ELASTIC, &block), 0,
		"a block");
	is_int(glake_commit(ctx, block, 0, 2 * MIB, NULL, NULL), 0, "  has memory");
	is_int(glake_seal(ctx, block, NULL, 0, NULL), 0, "  is sealed");
	is_int((int64_t)checked(ctx, 0).contents, 3, "  and all is what was written");
	glake_free(ctx, block, NULL);
	is_int(glake_kv_close(kv, stream), 0, "the cache goes");
	is_int(glake_stream_free(ctx, 0, stream), 0, "the stream ends");
	flow_close(ctx, 0);
}

/* Whether the library has what level 3 wants; else it says so. */
static int most(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .no_conf_file = 1, .settings = levels[3]};
	struct glake *ctx;
	int err = glake_open(&options, &ctx);

	if (!err)
		return glake_close(ctx, NULL) ? 0 : 3;
	is_int(err, -EOPNOTSUPP, "without libsodium level 3 is refused");
	return 2;
}

int main(void)
{
	int last;

	tap_plan_later();
	glake_log_hook(hook, NULL, GLAKE_LOG_ERROR);
	last = most();
	for (int level = 0; level <= last; level++) {
		at_free(level, 1000);
		at_free(level, 9 * MIB);
	}
	for (int level = 1; level <= last; level++) {
		owners(level);
		leaves(level);
	}
	for (int level = 1; level <= last; level++) {
		domains(level, 0);
		domains(level, GLAKE_KV_SINGLE);
	}
	for (int level = 2; level <= last; level++) {
		out(level);
		elastic(level);
	}
	sequences_uncleared();
	nothing();
	if (last == 3) {
		before_use();
		on_the_host();
		sealed();
		sealed_one_by_one();
		sealed_and_dropped();
		sealed_without_kernels();
		sealed_tokens(0);
		sealed_tokens(GLAKE_KV_LARGE);
		sealed_behind_work();
	}
	captured();
	of_tag();
	for (size_t size = 1000; size < 1004; size += 3) {
		with_canary("guard.mode=canary", size);
		with_canary("guard.mode=poison", size);
		with_canary("guard.mode=full", size);
	}
	return tap_done();
}
