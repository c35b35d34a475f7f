/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A context that is recorded: its handle, and what each call leaves in the trace. */
#include "api/context.h"
#include "unit/watch/rig.h"

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)

static struct glake *ctx;
static struct glk_context *context;

static int open_soft(const char *file)
{
	char setting[300];
	const char *const settings[] = {"soft.gpus=2", "driver.fault=off",
		"map.span=8GiB", "soft.memory=1GiB", "trace.size=1MiB", setting, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	snprintf(setting, sizeof(setting), "trace.file=%s", file);
	return glake_open(&options, &ctx);
}

static void test_handle(void)
{
	struct glk_context_entry *entry;
	struct glake *plain, *recorded;

	is_int(open_soft(""), 0, "a context that is not recorded");
	plain = ctx;
	is_int(open_soft(rig_path), 0, "and one that is");
	recorded = ctx;
	ok(glk_context_find(plain) && !glk_context_find(recorded),
		"the quick way finds the first alone");
	is_int(glk_context_get(recorded, &context), 0, "the other way finds it");
	entry = glk_context_entry(recorded);
	ok(entry->context == context && context->trace, "which has a trace");
	ok(!access(rig_path, F_OK), "in a file");
	is_int(glake_device_count(recorded), 2, "calls find it");
	is_int(glake_close(recorded, NULL), 0, "closed");
	is_int(glake_close(recorded, NULL), -ESTALE, "once");
	is_int(glake_device_count(recorded), -ESTALE, "and stale then");
	is_int(glake_device_count(plain), 2, "the other one is still there");
	is_int(open_soft(""), 0, "its place is taken again");
	ok(glk_context_entry(ctx) == entry && ctx != recorded, "by another handle");
	glake_close(ctx, NULL);
	glake_close(plain, NULL);
	unlink(rig_path);
}

static void test_without(void)
{
	int files = rig_count_files();
	uint64_t bytes;
	void *p;

	/* what is made once for the process is there */
	open_soft("");
	glake_alloc(ctx, 0, 5, NULL, 0, &p);
	glake_free(ctx, p, NULL);
	glake_close(ctx, NULL);
	bytes = glk_region_bytes();
	tap_expect_log(1);
	is_int(open_soft("/no/such/folder/a.trace"), 0,
		"a file that cannot be made is no reason not to open");
	ok(glk_context_find(ctx) != NULL, "it is not recorded");
	is_int(glake_alloc(ctx, 0, 5, NULL, 0, &p), 0, "and works");
	glake_free(ctx, p, NULL);
	is_int(glake_close(ctx, NULL), 0, "closed");
	open_soft(rig_path);
	glake_close(ctx, NULL);
	ok(bytes == glk_region_bytes() && files == rig_count_files(), "nothing is kept");
	unlink(rig_path);
}

/* What is expected, event after event. */
static struct rig_file file;
static size_t at = 1;

static void next_is(unsigned kind, unsigned device, uint64_t address, uint64_t size,
	const void *stream, const char *what)
{
	const struct glake_trace_event *e = rig_event(&file, 0, at++);

	ok(glake_trace_kind(e->what) == kind && glake_trace_device(e->what) == device &&
			e->address == address && glake_trace_size(e->what) == size &&
			e->stream == (uintptr_t)stream,
		"%s", what);
	if (glake_trace_kind(e->what) != kind || e->address != address)
		tap_note("kind %u of GPU %u, 0x%" PRIx64 ", %" PRIu64 ", 0x%" PRIx64,
			glake_trace_kind(e->what), glake_trace_device(e->what),
			e->address, glake_trace_size(e->what), e->stream);
}

struct calls {
	struct CUstream_st *a, *b;
	struct CUevent_st *event;
	uint64_t first, second, third, fourth;
	uint64_t released;
};

static uint64_t give(int device, size_t size, struct CUstream_st *stream, uint32_t flags)
{
	void *p = NULL;

	if (glake_alloc(ctx, device, size, stream, flags, &p))
		tap_bail("no block");
	return (uint64_t)(uintptr_t)p;
}

static void make_blocks(struct calls *c)
{
	void *none = NULL;

	c->first = give(0, 1000, c->a, 0);
	c->second = give(1, 3 * MIB, NULL, 0);
	c->third = give(0, 5 * MIB, c->a, GLAKE_ALLOC_CONTIGUOUS);
	glake_alloc(ctx, 0, 2048 * MIB, c->a, 0, &none);
	glake_alloc(ctx, 0, 0, c->a, 0, &none);
	glake_alloc(ctx, 0, SIZE_MAX, c->a, 0, &none);
	glake_alloc(ctx, 7, 1, c->a, 0, &none); /* of no GPU */
	glake_use(ctx, (void *)(uintptr_t)c->first, c->b);
	glake_use(ctx, (void *)8, c->b); /* refused */
	glake_free(ctx, (void *)(uintptr_t)c->first, c->a);
	glake_free(ctx, (void *)(uintptr_t)c->first, c->a); /* again */
	glake_free(ctx, (void *)4096, c->b);		    /* nobody's */
	glake_free(ctx, NULL, c->a);			    /* nothing */
	glake_free(ctx, (void *)(uintptr_t)c->second, NULL);
}

static void check_blocks(const struct calls *c)
{
	next_is(GLAKE_TRACE_ALLOC, 0, c->first, 1000, c->a, "an allocation");
	next_is(GLAKE_TRACE_ALLOC, 1, c->second, 3 * MIB, NULL, "of another GPU");
	next_is(GLAKE_TRACE_ALLOC_CONTIGUOUS, 0, c->third, 5 * MIB, c->a,
		"a contiguous one");
	next_is(GLAKE_TRACE_ALLOC_FAILED, 0, ENOMEM, 2048 * MIB, c->a, "one too many");
	next_is(GLAKE_TRACE_ALLOC_FAILED, 0, EINVAL, 0, c->a, "one of nothing");
	next_is(GLAKE_TRACE_ALLOC_FAILED, 0, ENOMEM, GLAKE_TRACE_SIZE_MAX, c->a,
		"one of everything");
	next_is(GLAKE_TRACE_USE, 0, c->first, 0, c->b, "a use");
	next_is(GLAKE_TRACE_FREE, 0, c->first, 0, c->a, "a free");
	next_is(GLAKE_TRACE_FREE_FAILED, 0, c->first, EINVAL, c->a, "a second one");
	next_is(GLAKE_TRACE_FREE_FAILED, 0, 4096, EINVAL, c->b, "one of nobody's");
	next_is(GLAKE_TRACE_FREE, 1, c->second, 0, NULL, "one on the other GPU");
}

static bool is_any(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	(void)arg;
	return true;
}

/* A pool with one block, then with another one in its place. */
static void make_states(struct calls *c)
{
	struct glake_pool_id id = {.low = 8};
	struct glake_pool_block block;
	size_t count = 0;

	glake_pool_hold(ctx, 0, id);
	glake_pool_begin_for(ctx, 0, id, is_any, NULL);
	c->fourth = give(0, 5000, c->a, 0);
	glake_pool_end(ctx, 0, id);
	glake_pool_blocks(ctx, 0, id, &block, 1, &count);
	glake_pool_restore(ctx, 0, id, &block, count); /* nothing happens */
	block.size = 4000;
	glake_pool_restore(ctx, 0, id, &block, count);
	block.size = 0;
	glake_pool_restore(ctx, 0, id, &block, count); /* refused */
	glake_pool_restore(ctx, 0, id, NULL, 0);
	glake_pool_release(ctx, 0, id);
	glake_pool_release(ctx, 0, id);
}

static void check_states(const struct calls *c)
{
	next_is(GLAKE_TRACE_POOL_BEGIN, 0, 8, 0, NULL, "a pool with a filter");
	next_is(GLAKE_TRACE_ALLOC, 0, c->fourth, 5000, c->a, "a block of it");
	next_is(GLAKE_TRACE_POOL_END, 0, 8, 0, NULL, "its end");
	next_is(GLAKE_TRACE_FREE, 0, c->fourth, 0, c->a, "it goes");
	next_is(GLAKE_TRACE_ALLOC, 0, c->fourth, 4000, c->a, "for a state's");
	next_is(GLAKE_TRACE_FREE, 0, c->fourth, 0, c->a, "which goes for another state");
	next_is(GLAKE_TRACE_POOL_RELEASE, 0, 8, 0, NULL, "a release");
	next_is(GLAKE_TRACE_POOL_RELEASE, 0, 8, 0, NULL, "for each");
}

static void make_orders(struct calls *c)
{
	struct glake_pool_id id = {.high = UINT64_MAX, .low = 6};
	size_t released = 0;

	glake_event_record(ctx, 0, c->event, c->a);
	glake_stream_wait(ctx, 0, c->b, c->event);
	glake_free_after(ctx, (void *)(uintptr_t)c->third, &c->event, 1);
	glake_free_after(ctx, (void *)(uintptr_t)c->third, &c->event, 1); /* again */
	glake_budget_set(ctx, 1, 64 * MIB);
	glake_budget_set(ctx, 1, 0); /* refused */
	glake_trim(ctx, 1, 4096, &released);
	c->released = released;
	glake_pool_begin(ctx, 0, id, c->b);
	glake_pool_begin(ctx, 0, id, c->b); /* it is open */
	glake_pool_end(ctx, 0, id);
	glake_pool_release(ctx, 0, id);
	make_states(c);
	glake_stream_end(ctx, 0, c->a);
	glake_stream_free(ctx, 0, c->b);
	glake_stream_free(ctx, 0, c->a);
}

static void check_orders(const struct calls *c)
{
	next_is(GLAKE_TRACE_EVENT_RECORDED, 0, (uintptr_t)c->event, 0, c->a, "an event");
	next_is(GLAKE_TRACE_STREAM_WAITED, 0, (uintptr_t)c->event, 0, c->b, "a wait");
	next_is(GLAKE_TRACE_FREE_AFTER, 0, c->third, 1, c->a, "a free behind events");
	next_is(GLAKE_TRACE_BUDGET, 1, 64 * MIB, 0, NULL, "a budget");
	next_is(GLAKE_TRACE_TRIM, 1, 4096, c->released, NULL, "a trim");
	next_is(GLAKE_TRACE_POOL_BEGIN, 0, 6, GLAKE_TRACE_SIZE_MAX, c->b, "a pool");
	next_is(GLAKE_TRACE_POOL_END, 0, 6, GLAKE_TRACE_SIZE_MAX, NULL, "its end");
	next_is(GLAKE_TRACE_POOL_RELEASE, 0, 6, GLAKE_TRACE_SIZE_MAX, NULL,
		"and release");
	check_states(c);
	next_is(GLAKE_TRACE_STREAM_END, 0, 0, 0, c->a, "a stream of the program ends");
	next_is(GLAKE_TRACE_STREAM_END, 0, 0, 0, c->b, "and one of the library");
	next_is(GLAKE_TRACE_STREAM_END, 0, 0, 0, c->a, "the first was one, too");
}

static void test_calls(void)
{
	struct calls c = {0};

	open_soft(rig_path);
	glake_stream_new(ctx, 0, &c.a);
	glake_stream_new(ctx, 0, &c.b);
	glake_event_new(ctx, 0, &c.event);
	make_blocks(&c);
	make_orders(&c);
	glake_event_free(ctx, 0, c.event);
	is_int(glake_close(ctx, NULL), 0, "closed");
	file = rig_read();
	is_int((int64_t)file.header.chunks, 1, "one chunk");
	is_str(file.header.backend, "soft", "its driver");
	is_int(file.header.devices, 2, "its GPUs");
	ok(file.header.closed_ns > rig_event(&file, 0, rig_events(&file, 0) - 1)->ns,
		"its end");
	check_blocks(&c);
	check_orders(&c);
	is_int((int64_t)rig_events(&file, 0), (int64_t)at, "and nothing else");
	free(file.bytes);
	unlink(rig_path);
}

/* KV caches: each call that was served. */
static void test_kv(void)
{
	const struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 3,
		.tokens = 4096,
		.lanes = 2,
		.lane_bytes = 2048,
		.prefixes = 1};
	uint32_t one = 9, two = 9, lengths[3] = {2600, 0, 0}, tokens = 0;
	uint64_t base, slot = UINT64_C(1) << 32;
	struct glake_kv_figures f = {.sz = sizeof(f)};
	struct CUstream_st *s;
	struct glake_kv *kv;

	open_soft(rig_path);
	glake_stream_new(ctx, 0, &s);
	if (glake_kv_open(ctx, 0, &o, s, &kv))
		tap_bail("no cache");
	glake_kv_figures_get(kv, &f);
	base = (uintptr_t)f.base;
	glake_kv_new(kv, 4000, s, &one);
	glake_kv_grow(kv, one, 2500, s);
	glake_kv_grow(kv, one, 5000, s); /* refused */
	glake_kv_step(kv, lengths, s);
	glake_kv_fork(kv, one, 2100, 4096, s, &two);
	glake_kv_trim(kv, two, 2050, s);
	glake_kv_publish(kv, one, 2048, "k", 1, s);
	glake_kv_spill(kv, one, s);
	glake_kv_fetch(kv, one, s);
	glake_kv_free(kv, one, s);
	glake_kv_free(kv, two, s);
	glake_kv_prefix_spill(kv, 0, "k", 1, s);
	glake_kv_prefix_fetch(kv, 0, "k", 1, s);
	glake_kv_new(kv, 2048, NULL, &one);
	glake_kv_adopt(kv, one, "k", 1, s, &tokens);
	glake_kv_withdraw(kv, 0, "k", 1, s);
	glake_kv_close(kv, s);
	glake_stream_free(ctx, 0, s);
	is_int(glake_close(ctx, NULL), 0, "closed");
	file = rig_read();
	at = 1;
	next_is(GLAKE_TRACE_KV_OPEN, 0, base, f.size, s, "a KV cache");
	next_is(GLAKE_TRACE_KV_NEW, 0, base, 4000, s, "a sequence");
	next_is(GLAKE_TRACE_KV_GROW, 0, base, 2500, s, "grows");
	next_is(GLAKE_TRACE_KV_STEP, 0, base, slot | 2600, s, "with all others");
	next_is(GLAKE_TRACE_KV_FORK, 0, base, slot | 2100, s, "a fork");
	next_is(GLAKE_TRACE_KV_TRIM, 0, base, slot | 2050, s, "is cut");
	next_is(GLAKE_TRACE_KV_PUBLISH, 0, base, 2048, s, "a prefix");
	next_is(GLAKE_TRACE_KV_SPILL, 0, base, 0, s, "away");
	next_is(GLAKE_TRACE_KV_FETCH, 0, base, 0, s, "and back");
	next_is(GLAKE_TRACE_KV_FREE, 0, base, 0, s, "it ends");
	next_is(GLAKE_TRACE_KV_FREE, 0, base, slot, s, "as the fork does");
	next_is(GLAKE_TRACE_KV_PREFIX_SPILL, 0, base, 0, s, "the prefix is away");
	next_is(GLAKE_TRACE_KV_PREFIX_FETCH, 0, base, 0, s, "and back");
	next_is(GLAKE_TRACE_KV_NEW, 0, base, 2048, NULL, "another one");
	next_is(GLAKE_TRACE_KV_ADOPT, 0, base, 2048, s, "has it");
	next_is(GLAKE_TRACE_KV_WITHDRAW, 0, base, 0, s, "withdrawn");
	next_is(GLAKE_TRACE_KV_CLOSE, 0, base, 0, s, "all ends");
	next_is(GLAKE_TRACE_STREAM_END, 0, 0, 0, s, "and a stream");
	is_int((int64_t)rig_events(&file, 0), (int64_t)at, "and nothing else");
	free(file.bytes);
	unlink(rig_path);
}

/* The bins serve a recorded context as any other. */
static void test_hits(void)
{
	struct glake_stats before = {.sz = sizeof(before)}, after = before;
	bool good = true;
	void *p;

	open_soft(rig_path);
	for (int i = 0; i < 1100; i++) {
		if (i == 100)
			glake_stats_get(ctx, 0, &before);
		good &= !glake_alloc(ctx, 0, 4096, NULL, 0, &p) &&
			!glake_free(ctx, p, NULL);
	}
	glake_stats_get(ctx, 0, &after);
	ok(good, "1100 pairs");
	is_int((int64_t)(after.hits - before.hits), 1000, "served by the bins");
	glake_close(ctx, NULL);
	file = rig_read();
	is_int((int64_t)(rig_events(&file, 0) + rig_events(&file, 1)), 2202,
		"all of them recorded");
	free(file.bytes);
	unlink(rig_path);
}

int main(void)
{
	tap_plan_later();
	rig_start();
	test_handle();
	test_without();
	test_calls();
	test_kv();
	test_hits();
	rig_end();
	return tap_done();
}
