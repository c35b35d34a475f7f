/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The reservation and its parts, and what is left when one of them cannot be had. */
#include "unit/map/rig.h"

static struct rig rig;

static int init(void)
{
	return glk_map_init(&rig.map, &rig.pool, &rig.pool.nodes[0], &rig.conf,
		rig.conf.map_span);
}

/* A pool and no map. */
static void start(void)
{
	rig_conf(&rig);
	if (glk_pool_init(&rig.pool, fake_init(&rig.fake), &rig.conf, 1, 0, NULL))
		tap_bail("no pool");
}

static void stop(const char *what)
{
	ok(!rig.fake.broken && !rig.fake.size, "%s: no rule broken, nothing reserved",
		what);
	glk_pool_fini(&rig.pool);
	fake_fini(&rig.fake);
}

static void test_parts(void)
{
	struct glk_map *map = &rig.map;
	uint64_t at;
	int wrong = 0;

	start();
	is_int(init(), 0, "4 GiB");
	is_int((int64_t)map->size, (int64_t)GIB(4), "are had");
	ok(map->span[GLK_KIND_SMALL].size == MIB(512) &&
			map->span[GLK_KIND_MEDIUM].size == MIB(512) &&
			map->span[GLK_KIND_LARGE].size == GIB(2) &&
			map->span[GLK_KIND_SINGLE].size == GIB(1),
		"an eighth, an eighth, half, a quarter");
	at = map->base;
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		struct glk_span *span = &map->span[kind];

		wrong += span->base != at || (int)span->kind != kind || span->map != map;
		wrong += glk_map_span(map, at) != span;
		wrong += glk_map_span(map, at + span->size - 1) != span;
		wrong += span->slots != span->size >> span->shift;
		at += span->size;
	}
	is_int(wrong, 0, "each is found from its first to its last byte");
	ok(at == map->base + map->size, "without a gap");
	is_int(map->span[GLK_KIND_LARGE].shift, 23, "large slots have 8 MiB");
	is_int(map->span[GLK_KIND_SINGLE].shift, 21, "others 2 MiB");
	ok(glk_map_holds(map, map->base) && glk_map_holds(map, at - 1),
		"it holds its ends");
	ok(!glk_map_holds(map, map->base - 1) && !glk_map_holds(map, at) &&
			!glk_map_holds(map, 0) && !glk_map_holds(map, UINT64_MAX),
		"and nothing beside them");
	glk_map_fini(map);
	glk_map_fini(map);
	is_int((int64_t)rig.fake.calls[FAKE_UNRESERVE], 1, "ended once");
	glk_map_fini(&(struct glk_map){0});
	stop("parts");
}

static void test_kinds(void)
{
	start();
	is_int(init(), 0, "pages of 2 and 8 MiB");
	is_int(glk_map_kind(&rig.map, 512), GLK_KIND_SMALL, "a grain is small");
	is_int(glk_map_kind(&rig.map, MIB(1)), GLK_KIND_SMALL,
		"half a small page is small");
	is_int(glk_map_kind(&rig.map, MIB(1) + 512), GLK_KIND_MEDIUM,
		"a grain more is medium");
	is_int(glk_map_kind(&rig.map, MIB(4) - 512), GLK_KIND_MEDIUM,
		"below half a large page");
	is_int(glk_map_kind(&rig.map, MIB(4)), GLK_KIND_LARGE,
		"half a large page is large");
	is_int(glk_map_kind(&rig.map, GIB(100)), GLK_KIND_LARGE, "and all above");
	glk_map_fini(&rig.map);
	stop("kinds");
	start();
	rig.pool.nodes[0].page_size[GLK_CLASS_LARGE] = MIB(2);
	is_int(init(), 0, "one size of page");
	is_int(glk_map_kind(&rig.map, MIB(1)), GLK_KIND_SMALL, "half of it is small");
	is_int(glk_map_kind(&rig.map, MIB(1) + 512), GLK_KIND_LARGE,
		"and nothing medium");
	glk_map_fini(&rig.map);
	stop("kinds of one size");
}

static void test_halved(void)
{
	start();
	rig.conf.map_span = (uint64_t)1 << 42;
	rig.fake.limit = GIB(9);
	is_int(init(), 0, "4 TiB are not to be had");
	is_int((int64_t)rig.map.size, (int64_t)GIB(8), "8 GiB are");
	is_int((int64_t)rig.fake.calls[FAKE_RESERVE], 10, "by halving");
	glk_map_fini(&rig.map);
	rig.fake.limit = MIB(64);
	is_int(init(), 0, "64 MiB are enough");
	is_int((int64_t)rig.map.size, (int64_t)MIB(64), "for a beginning");
	is_int(rig.map.span[GLK_KIND_LARGE].slots, 4, "with four large slots");
	glk_map_fini(&rig.map);
	rig.fake.limit = MIB(64) - 1;
	is_int(init(), -ENOMEM, "less is refused");
	is_int(fake_class(), GLAKE_ERROR_ADDRESS, "for want of addresses");
	glk_map_fini(&rig.map);
	stop("halved");
	start();
	fake_fail(&rig.fake, FAKE_RESERVE, 1, -ENODEV, false);
	is_int(init(), -ENODEV, "another error");
	is_int((int64_t)rig.fake.calls[FAKE_RESERVE], 1, "is not tried again");
	stop("another error");
}

/* Sizes that the configuration allows and that do not go together well. */
static void test_odd(void)
{
	start();
	rig.conf.map_span = GIB(1);
	rig.pool.nodes[0].page_size[GLK_CLASS_LARGE] = GIB(1);
	is_int(init(), 0, "a span of one large page");
	is_int((int64_t)rig.map.size, (int64_t)GIB(8), "is as large as it must be");
	is_int(rig.map.span[GLK_KIND_LARGE].slots, 4, "with four large slots");
	glk_map_fini(&rig.map);
	stop("a small span");
	start();
	rig.conf.map_span = GIB(4) + MIB(100);
	is_int(init(), 0, "a span of an odd size");
	is_int((int64_t)rig.map.size, (int64_t)(GIB(4) + MIB(64)),
		"is cut to whole pages");
	glk_map_fini(&rig.map);
	stop("an odd span");
}

/* The largest span: grains of small blocks are numbered with 32 bits. */
static void test_largest(void)
{
	struct glk_span *span = &rig.map.span[GLK_KIND_SMALL];
	uint64_t end;
	uint32_t low, high;

	start();
	rig.conf.map_span = (uint64_t)64 << 40;
	is_int(init(), 0, "64 TiB");
	end = span->size;
	ok(end >> GLK_GRAIN_SHIFT <= (uint64_t)UINT32_MAX + 1,
		"a number for every grain");
	is_int((int64_t)rig.map.span[GLK_KIND_MEDIUM].base,
		(int64_t)(rig.map.base + ((uint64_t)8 << 40)),
		"medium blocks begin after an eighth");
	ok(glk_map_span(&rig.map, span->base + ((uint64_t)8 << 40) - 1) == span,
		"which is the small span's to its end");
	ok(rig.map.span[GLK_KIND_LARGE].slots < UINT32_C(1) << 28, "slots have names");
	if (glk_extent_carve(span, 0, 0, 512, &low) ||
		glk_extent_carve(span, 0, end - 512, 512, &high))
		tap_bail("no addresses");
	glk_lookup_enter(span, low);
	glk_lookup_enter(span, high);
	is_int(glk_span_lookup(span, span->base), low, "the first grain");
	is_int(glk_span_lookup(span, span->base + end - 512), high, "the last grain");
	is_int(glk_span_lookup(span, span->base + end - 513), 0, "nothing before it");
	is_int(glk_span_lookup(span, span->base + end), 0, "nothing behind it");
	glk_map_fini(&rig.map);
	stop("the largest span");
}

static void test_refused(void)
{
	uint64_t before;
	uint32_t n = 0;
	int err;

	start();
	before = glk_region_bytes();
	do {
		glk_region_fail_after(++n);
		err = init();
		glk_region_fail_after(0);
		if (!err)
			break;
		is_int(err, -ENOMEM, "a table is refused");
		is_int(fake_class(), GLAKE_ERROR_NOMEM_HOST, "for want of host memory");
		ok(glk_region_bytes() == before && !rig.fake.size, "nothing is left");
		glk_map_fini(&rig.map);
		ok(!rig.fake.broken, "ending it does no harm");
	} while (n < 100);
	ok(!err && n > 20, "each of the tables was refused once");
	glk_map_fini(&rig.map);
	ok(glk_region_bytes() == before, "nothing is left");
	rig.conf.map_extents = 0;
	is_int(init(), -EINVAL, "no extents at all");
	glk_map_fini(&rig.map);
	stop("refused");
}

static void test_bytes(void)
{
	uint64_t empty;

	rig_init(&rig);
	empty = glk_map_bytes(&rig.map);
	ok(empty < 65536, "an empty map uses next to nothing");
	for (int i = 0; i < 64; i++)
		rig_alloc(&rig, MIB(8));
	ok(glk_map_bytes(&rig.map) >= empty + 64 * sizeof(struct glk_slot),
		"slots count");
	ok(glk_map_bytes(&rig.map) < empty + 65536, "those in use alone");
	ok(rig_sound(&rig), "sound");
	rig_fini(&rig);
}

int main(void)
{
	tap_plan_later();
	test_parts();
	test_kinds();
	test_halved();
	test_odd();
	test_largest();
	test_refused();
	test_bytes();
	return tap_done();
}
