/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Slots are given once, come back, and run out with a record. */
#include "base/slab.h"
#include "tap.h"

#include <errno.h>
#include <glake/error.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

static void refuses(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	struct glk_slab slab;

	is_int(glk_slab_init(&slab, 0, 8), -EINVAL, "no slot size");
	is_int(glk_slab_init(&slab, 8, 0), -EINVAL, "no slots");
	is_int(glk_slab_init(&slab, 8, GLK_ID_MAX + 1), -EINVAL,
		"more slots than indices");
	is_int(glk_slab_init(&slab, SIZE_MAX, 2), -EINVAL, "size overflows");
	for (uint32_t n = 1; n <= 2; n++) {
		glk_region_fail_after(n);
		is_int(glk_slab_init(&slab, 64, 8), -ENOMEM, "no memory");
		glk_region_fail_after(0);
		glake_last_error(&error);
		is_int(error.error_class, GLAKE_ERROR_NOMEM_HOST, "class of the record");
	}
	is_int((int64_t)glk_region_bytes() % 4096, 0, "regions are whole pages");
}

/* Slots of whole pages, and as many links as fill some: one slot fewer or more is a page. */
static void to_the_byte(void)
{
	uint64_t before = glk_region_bytes();
	struct glk_slab slab;

	is_int(glk_slab_init(&slab, 4096, 4095), 0, "slots of a page");
	is_int((int64_t)(glk_region_bytes() - before),
		4096 * (4096 + (int64_t)sizeof(*slab.links)),
		"one more than there may be, since none has the number 0");
	glk_slab_fini(&slab);
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "all memory given back");
}

/* Where the address sanitizer looks: slots that nobody was given, and fields of which the caller forgot one. */
static void what_is_nobodys(void)
{
#if defined(__SANITIZE_ADDRESS__)
	struct glk_slab slab;
	uint32_t id;

	is_int(glk_slab_init(&slab, 64, 8), 0, "a slab");
	id = glk_slab_get(&slab);
	ok(!__asan_region_is_poisoned(glk_slab_at(&slab, id), 64),
		"a slot that was given is somebody's");
	ok(__asan_address_is_poisoned(glk_slab_at(&slab, id + 1)),
		"the next one is not, yet");
	glk_slab_put(&slab, id);
	ok(!__asan_region_is_poisoned(glk_slab_at(&slab, id), 64),
		"one that came back may be read");
	glk_slab_spoil(glk_slab_at(&slab, id), 8);
	ok(((char *)glk_slab_at(&slab, id))[7] && !((char *)glk_slab_at(&slab, id))[8],
		"spoilt fields are not zero, and no other is");
	glk_slab_fini(&slab);
#else
	char field = 0;

	glk_slab_spoil(&field, sizeof(field));
	is_int(field, 0, "nothing is spoilt without the address sanitizer");
#endif
}

int main(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	uint64_t before = 0;
	struct glk_slab slab;
	uint32_t ids[8];
	bool distinct = true;

	tap_plan_later();
	refuses();
	to_the_byte();
	what_is_nobodys();
	before = glk_region_bytes();

	is_int(glk_slab_init(&slab, 64, 8), 0, "init");
	for (int i = 0; i < 8; i++) {
		ids[i] = glk_slab_get(&slab);
		memset(glk_slab_at(&slab, ids[i]), i, 64);
		for (int k = 0; k < i; k++)
			distinct &= ids[k] != ids[i];
	}
	ok(distinct && ids[0], "eight distinct slots, none of them 0");
	is_int(glk_slab_get(&slab), 0, "the ninth is refused");
	glake_last_error(&error);
	is_int(error.error_class, GLAKE_ERROR_LIMIT, "as a limit, not as no memory");
	glk_slab_put(&slab, ids[3]);
	is_int(((char *)glk_slab_at(&slab, ids[3]))[5], 3,
		"a slot given back can be read");
	is_int(glk_slab_get(&slab), ids[3], "and comes again");
	glk_slab_fini(&slab);
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "all memory given back");
	return tap_done();
}
