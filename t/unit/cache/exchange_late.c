/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A block comes back to a page that it shares with another one, which comes from the host meanwhile. */
#include "plan_parts.h"

static struct rig rig;
static struct CUstream_st *a, *b;

static uint64_t placed(const struct held *h)
{
	struct glake_block block = {.sz = sizeof(block)};

	return glk_cache_query(&rig.cache, h->addr, &block) ? UINT64_MAX : block.placed;
}

static void fetch(struct errand *e)
{
	e->err = glk_cache_fetch(&rig.cache, e->addr, e->stream);
}

static void set_up(void)
{
	gate_open_rig(&rig,
		(const char *const[]){"tier.place=host", "tier.host=512MiB",
			"soft.host_memory=512MiB", "policy.bins=0", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, 40 * MIB);
}

/* `near` shares pages of the host with `late`, and is away when that begins to come. */
static void comes_between(void)
{
	struct held full, hole, late, near;
	struct errand e = {.fn = fetch, .rig = &rig};

	set_up();
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
	comes_between();
	return tap_done();
}
