/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that lie on the host come to the GPU, where the program says so. */
#include "plan_parts.h"

static struct rig rig;
static struct CUstream_st *a, *b;

/* A GPU with a budget, and a host with another. */
static void set_up(size_t budget, const char *setting)
{
	const char *settings[] = {"tier.place=host", "tier.host=512MiB",
		"soft.host_memory=512MiB", "policy.bins=0", setting, NULL};

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, budget);
}

static uint64_t placed(const struct held *h)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glk_cache_query(&rig.cache, h->addr + h->size / 2, &block) ||
		block.base != (void *)h->addr)
		return UINT64_MAX;
	return block.placed;
}

static int fetch(const struct held *h, struct CUstream_st *stream)
{
	return glk_cache_fetch(&rig.cache, h->addr, stream);
}

static struct glake_returned quiet(int err)
{
	struct glake_returned did = {0};

	is_int(glk_cache_quiet(&rig.cache, &did), err, "a quiet point");
	is_sound(&rig, "the books agree");
	return did;
}

/* A block of the GPU, and what it has no room for. */
static void fill(size_t budget, struct held *one, struct held *two, size_t size)
{
	set_up(budget, NULL);
	plan_take(&rig, one, budget - MIB, a);
	plan_take(&rig, two, size, a);
	is_int((int64_t)placed(two), (int64_t)size, "a block lies on the host");
}

static void comes_back(void)
{
	struct held one, two, three;
	struct glake_stats s;

	fill(40 * MIB, &one, &two, 33 * MIB + 700);
	is_int(fetch(&two, a), -ENOMEM, "there is no room for it");
	is_int((int64_t)placed(&two), (int64_t)two.size, "it is where it was");
	is_sound(&rig, "the books agree");
	plan_drop(&rig, &one, a);
	is_int(fetch(&two, b), 0, "when there is it comes to the GPU");
	is_int((int64_t)placed(&two), 0, "and is on the host no longer");
	ok(has_marks(&two), "with what was written, at its addresses");
	s = rig_figures(&rig);
	is_int((int64_t)s.placed, 0, "no bytes on the host");
	is_int((int64_t)s.placed_blocks, 0, "no block");
	is_int((int64_t)s.returned, (int64_t)two.size, "so many came back");
	is_int((int64_t)s.returned_blocks, 1, "of a block");
	is_int((int64_t)s.reserved, 40 << 20, "the GPU holds more");
	is_sound(&rig, "the books agree");
	is_int(fetch(&two, b), -EALREADY, "it is here");
	write_marks(&two);
	rig_work(&rig, two.addr, two.size, b);
	glk_soft_run_all(rig.drv);
	write_marks(&two);
	ok(plan_drop(&rig, &two, b), "it is freed");
	is_sound(&rig, "the books agree");
	is_int(plan_take(&rig, &three, 38 * MIB, a), 0, "another request");
	is_int((int64_t)placed(&three), 0, "has the pages of the GPU that it had");
	ok(plan_drop(&rig, &three, a), "and keeps them");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* What is idle goes to the GPU's requests, and to the driver. */
static void gives_back(void)
{
	struct held one, two;
	uint64_t given;

	fill(40 * MIB, &one, &two, 30 * MIB);
	plan_drop(&rig, &one, a);
	fetch(&two, a);
	plan_drop(&rig, &two, a);
	is_sound(&rig, "the books agree");
	is_int(glk_cache_trim(&rig.cache, 0, &given), 0, "a trim");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "gives all of the GPU back");
	is_int((int64_t)rig_figures(&rig).host_held, 0, "and of the host");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Behind all work that is known, which is waited for; and what was freed between blocks is not run over. */
static void in_order(void)
{
	struct held one, two;

	set_up(40 * MIB, "soft.streams=stepped");
	plan_take(&rig, &one, 39 * MIB, a);
	plan_take(&rig, &two, 30 * MIB, a);
	rig_free(&rig, one.addr, a);
	rig_work(&rig, two.addr, 15 * MIB, a);
	rig_work(&rig, two.addr + 15 * MIB, 15 * MIB, b);
	is_int(glk_cache_use(&rig.cache, two.addr, b), 0, "a stream uses it");
	is_int(fetch(&two, a), 0, "it comes behind that");
	is_int((int64_t)placed(&two), 0, "to the GPU");
	write_marks(&two);
	rig_work(&rig, two.addr, two.size, b);
	is_int(rig_free(&rig, two.addr, a), 0, "and is freed while it is used");
	is_int(plan_take(&rig, &one, 39 * MIB, a), 0,
		"others have its pages behind that");
	glk_soft_run_all(rig.drv);
	rig_free(&rig, one.addr, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Pages that a block shares with others stay, unless the program is at a quiet point. */
static void shares(void)
{
	struct held one, list[6], small[3];
	struct glake_suspended suspended;
	struct glake_returned did;
	int torn = 0;

	set_up(80 * MIB, NULL);
	plan_take(&rig, &one, 79 * MIB, a);
	for (int i = 0; i < 6; i++)
		torn += plan_take(&rig, &list[i], 3 * MIB + 512, a) != 0;
	for (int i = 0; i < 3; i++)
		torn += plan_take(&rig, &small[i], 1000 * ((size_t)i + 1), a) != 0;
	plan_drop(&rig, &one, a);
	is_int(fetch(&small[0], a), -EBUSY, "a small block shares its page");
	has_str(rig_error().text, "glake_quiet", "which a quiet point moves");
	is_int(fetch(&list[1], a), 0, "a block comes");
	is_int(glk_cache_suspend(&rig.cache, &suspended), 0, "a suspension leaves it");
	is_int((int64_t)(suspended.stayed + placed(&list[1])), (int64_t)list[1].size,
		"with what it has on the GPU");
	is_int(glk_cache_resume(&rig.cache, &suspended), 0, "and ends");
	ok(placed(&list[1]) > 0 && placed(&list[1]) < list[1].size,
		"but for its ends, of %zu bytes", (size_t)placed(&list[1]));
	is_int(fetch(&list[1], a), -EBUSY, "which are others' too");
	is_sound(&rig, "the books agree");
	did = quiet(0);
	is_int((int64_t)did.left, 0, "nothing is left on the host");
	is_int((int64_t)did.returned_blocks, 9, "all came");
	is_int((int64_t)rig_figures(&rig).returned, (int64_t)(6 * list[0].size + 6000),
		"each byte once");
	for (int i = 0; i < 6; i++)
		torn += !plan_drop(&rig, &list[i], i & 1 ? a : b);
	for (int i = 0; i < 3; i++)
		torn += !plan_drop(&rig, &small[i], a);
	is_int(torn, 0, "with what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* As far as there is room, and the largest first. */
static void as_there_is_room(void)
{
	struct held one, two, list[4];
	struct glake_returned did;

	set_up(40 * MIB, NULL);
	did = quiet(0);
	is_int((int64_t)did.left, 0, "where nothing was placed nothing is done");
	plan_take(&rig, &one, 24 * MIB, a);
	plan_take(&rig, &two, 15 * MIB, a);
	for (int i = 0; i < 4; i++)
		plan_take(&rig, &list[i], (size_t)(i + 1) * 4 * MIB, a);
	did = quiet(0);
	is_int((int64_t)did.returned, 0, "a GPU that is full takes none");
	is_int((int64_t)did.left, 40 << 20, "all are left");
	is_int((int64_t)did.left_blocks, 4, "as blocks");
	plan_drop(&rig, &one, a);
	did = quiet(0);
	is_int((int64_t)did.returned, 24 << 20, "when it has room");
	is_int((int64_t)did.returned_blocks, 2, "some come");
	is_int((int64_t)did.left, 16 << 20, "and some do not");
	is_int((int64_t)placed(&list[3]), 0, "the largest is here");
	is_int((int64_t)placed(&list[2]), 12 << 20, "the next has no room beside it");
	is_int((int64_t)placed(&list[1]), 0, "but one that is smaller has");
	plan_drop(&rig, &two, a);
	did = quiet(0);
	is_int((int64_t)did.left_blocks, 0, "then all");
	for (int i = 0; i < 4; i++)
		ok(plan_drop(&rig, &list[i], a), "with what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A block that came back goes away and comes, and through a suspension, like any other. */
static void goes_again(void)
{
	struct glake_suspended did;
	struct held one, two;

	fill(40 * MIB, &one, &two, 31 * MIB + 512);
	plan_drop(&rig, &one, a);
	is_int(fetch(&two, a), 0, "a block came back");
	is_int(glk_cache_spill(&rig.cache, two.addr, a), 0, "it goes away");
	is_sound(&rig, "the books agree");
	is_int(plan_take(&rig, &one, 39 * MIB, a), 0, "others have its memory");
	is_int((int64_t)placed(&one), 0, "which is the GPU's");
	is_int(fetch(&two, a), -ENOMEM, "it does not come back without any");
	is_sound(&rig, "the books agree");
	plan_drop(&rig, &one, a);
	is_int(fetch(&two, a), 0, "but with some");
	is_int((int64_t)placed(&two), 0, "to the GPU");
	ok(has_marks(&two), "with what was written");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_suspend(&rig.cache, &did), 0, "the GPU is suspended");
	is_int((int64_t)did.moved, (int64_t)two.size, "it goes away");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "and the GPU has nothing");
	is_int(glk_cache_quiet(&rig.cache, &(struct glake_returned){0}), -EAGAIN,
		"no quiet point meanwhile");
	is_int(glk_cache_resume(&rig.cache, &did), 0, "the GPU is resumed");
	is_int((int64_t)placed(&two), 0, "it is on the GPU");
	ok(plan_drop(&rig, &two, a), "with what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void refuses(void)
{
	struct glake_returned did;
	struct glk_pin pin;
	struct held one, two;
	uint32_t graph;

	fill(40 * MIB, &one, &two, 31 * MIB);
	plan_drop(&rig, &one, a);
	rig_begin(&rig, 1, b);
	rig_capture(&rig, b);
	is_int(fetch(&two, b), -EBUSY, "not on a stream that captures");
	is_int(glk_cache_quiet(&rig.cache, &did), -EBUSY, "nor is that a quiet point");
	is_int(rig_error().error_class, GLAKE_ERROR_CAPTURE, "class of the record");
	graph = rig_capture_end(&rig, b);
	rig_end_pool(&rig, 1);
	rig_drop(&rig, graph);
	is_int(glk_cache_pin(&rig.cache, two.addr, false, &pin), 0,
		"a block that is out");
	is_int(fetch(&two, b), -EBUSY, "stays");
	did = quiet(0);
	is_int((int64_t)did.left, 31 << 20, "at a quiet point too");
	is_int(glk_cache_unpin(&rig.cache, two.addr), 0, "it is out no more");
	did = quiet(0);
	is_int((int64_t)did.left, 0, "then it comes");
	is_int(glk_cache_pin(&rig.cache, two.addr, false, &pin), 0, "it may go out");
	is_int(rig_free(&rig, two.addr, a), 0, "and be freed meanwhile");
	is_sound(&rig, "the books agree");
	glk_cache_unpin(&rig.cache, two.addr);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Each call of the driver fails once, at each place: all is where it was, and comes the next time. */
static int fails(
	const char *call, int nth, bool at_a_quiet_point, int *torn, bool *struck)
{
	struct glake_returned did;
	struct held one, list[3];
	char rule[64];
	int err;

	set_up(12 * MIB, "pool.large_page=4MiB");
	plan_take(&rig, &one, 11 * MIB, a);
	plan_take(&rig, &list[0], 5 * MIB + 512, a);
	plan_take(&rig, &list[1], 2 * MIB, a);
	plan_take(&rig, &list[2], 3000, a);
	plan_drop(&rig, &one, a);
	snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", call, nth);
	glk_fault_set(rig.drv, rule);
	err = at_a_quiet_point ? glk_cache_quiet(&rig.cache, &did) : fetch(&list[0], b);
	*struck = rig_struck(&rig);
	glk_fault_set(rig.drv, "off");
	if (!rig_is_sound(&rig)) {
		tap_note("%s, %d", call, nth);
		*torn += 1;
	}
	for (int i = 0; i < 3; i++)
		*torn += !has_marks(&list[i]);
	/* what the driver kept is not there any more */
	glk_store_relaxed(&rig.cache.node->budget, 100 * MIB);
	*torn += glk_cache_quiet(&rig.cache, &did) != 0;
	*torn += did.left > 0 || !rig_is_sound(&rig);
	for (int i = 0; i < 3; i++)
		*torn += !plan_drop(&rig, &list[i], a);
	*torn += !rig_is_sound(&rig);
	return err;
}

static void every_call_fails(void)
{
	static const char *const calls[] = {"copy", "event_new", "event_record",
		"event_sync", "stream_wait", "stream_new", "create", "map", "set_access",
		"unmap", "release", "reserve", "device_info"};

	if (tap_one_thread_takes_long())
		return;
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		int failed = 0, torn = 0, most = tap_storms_take_long() ? 2 : 4;

		for (int quiet_point = 0; quiet_point < 2; quiet_point++) {
			bool struck = true;

			for (int nth = 1; nth <= most && struck; nth++) {
				failed += fails(calls[i], nth, quiet_point, &torn,
						  &struck) != 0;
				rig_close(&rig, 0);
				tap_expect_log(tap.logs - tap.expected);
			}
		}
		ok(!torn, "%s fails, %d times with an answer", calls[i], failed);
	}
}

static void errand_fetch(struct errand *e)
{
	e->err = glk_cache_fetch(&e->rig->cache, e->addr, e->stream);
}

static void errand_quiet(struct errand *e)
{
	e->err = glk_cache_quiet(&e->rig->cache, &(struct glake_returned){0});
}

static void *run_free(void *arg)
{
	struct errand *e = arg;

	errand_free(e);
	glk_store_release(&e->done, true);
	return NULL;
}

static void set_up_gate(void)
{
	gate_open_rig(&rig,
		(const char *const[]){"tier.place=host", "tier.host=512MiB",
			"soft.host_memory=512MiB", "policy.bins=0", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, 40 * MIB);
}

/* In the middle of it a free of that block waits, and others lie beside it and are freed. */
static void meets(void (*fn)(struct errand *e), int op, const char *name, int err)
{
	struct held one, two, beside = {0}, three = {0};
	struct errand mover = {.rig = &rig}, freer = {.rig = &rig};
	int got;

	set_up_gate();
	plan_take(&rig, &one, 39 * MIB, a);
	plan_take(&rig, &two, 32 * MIB, a);
	plan_take(&rig, &three, 5 * MIB, a);
	plan_drop(&rig, &one, a);
	mover.fn = fn;
	mover.addr = freer.addr = two.addr;
	mover.stream = freer.stream = a;
	ok(gate_send(&mover, op, 1), "a block comes, and stands in %s", name);
	pthread_create(&freer.thread, NULL, run_free, &freer);
	ok(plan_drop(&rig, &three, a), "one beside it is freed");
	if (fn == errand_fetch) {
		is_int(plan_take(&rig, &beside, 5 * MIB, a), 0, "another request");
		ok(!plan_overlap(&beside, &two), "lies elsewhere");
	}
	for (int i = 0; i < 100; i++)
		sched_yield();
	ok(!glk_load_acquire(&freer.done), "a free of the block waits");
	/* the ladder may have called it, and gone on without */
	got = gate_end(&mover, err);
	ok(got == err || (op == GLK_OP_unmap && (!got || got == -ENOMEM)),
		"the call ends, with %d", got);
	pthread_join(freer.thread, NULL);
	is_int(freer.err, 0, "and so does the free");
	is_sound(&rig, "the books agree");
	ok(plan_drop(&rig, &beside, a), "nobody else wrote");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

static void meets_others(void)
{
	static const struct {
		const char *name;
		int op;
	} ops[] = {{"copy", GLK_OP_copy}, {"unmap", GLK_OP_unmap}};

	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		for (int err = 0; err >= -EIO; err -= EIO) {
			meets(errand_fetch, ops[i].op, ops[i].name, err);
			meets(errand_quiet, ops[i].op, ops[i].name, err);
		}
	}
}

/* A block comes back to a page that it shares with another one, which comes from the host meanwhile: `near`
 * shares pages of the host with `late`, and is away when that begins to come. */
static void comes_between(void)
{
	struct held full, hole, late, near;
	struct errand e = {.fn = errand_fetch, .rig = &rig};

	set_up_gate();
	plan_take(&rig, &full, 39 * MIB, a);
	plan_take(&rig, &hole, 8 * MIB, a);
	rig_free(&rig, hole.addr, a);
	plan_take(&rig, &late, 3 * MIB, a);
	plan_take(&rig, &near, 11 * MIB, a);
	ok(placed(&late) && placed(&near), "two blocks lie on the host side by side");
	plan_drop(&rig, &full, a);
	is_int(glk_cache_fetch(&rig.cache, near.addr, a), 0, "one comes");
	is_int(glk_cache_spill(&rig.cache, near.addr, a), 0, "and goes away");
	e.addr = late.addr;
	e.stream = a;
	ok(gate_send(&e, GLK_OP_set_access, 1), "the other one is about to come");
	is_int(glk_cache_fetch(&rig.cache, near.addr, b), 0, "when the first is back");
	gate_end(&e, 0);
	is_sound(&rig, "the books agree");
	ok(has_marks(&near), "it keeps what was written");
	ok(has_marks(&late), "and so does the other");
	plan_drop(&rig, &near, b);
	plan_drop(&rig, &late, a);
	is_sound(&rig, "the books agree at the end");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	comes_back();
	gives_back();
	in_order();
	shares();
	as_there_is_room();
	goes_again();
	refuses();
	every_call_fails();
	meets_others();
	comes_between();
	return tap_done();
}
