/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bytes made smaller, and what they were again. */
#include "tier/lz4.h"

#include "base/late.h"
#include "seed.h"
#include "tier/tier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((size_t)1 << 20)

static char *from, *packed, *back;
static glk_atomic(bool) stop;

static size_t pack(size_t bytes, size_t room)
{
	return glk_lz4_pack(from, bytes, packed, room, &stop);
}

static bool comes_back(size_t bytes, size_t used)
{
	memset(back, 0x5a, bytes + 1);
	return glk_lz4_unpack(packed, used, back, bytes) && !memcmp(from, back, bytes) &&
		back[bytes] == 0x5a;
}

static void fill(uint64_t *state, size_t bytes, unsigned noise)
{
	for (size_t i = 0; i < bytes; i++)
		from[i] = seed_below(state, 100) < noise ? (char)seed_below(state, 256)
							 : (char)(i >> 12);
}

static void sizes(void)
{
	static const size_t list[] = {1, 511, GLK_LZ4_CHUNK - 1, GLK_LZ4_CHUNK,
		GLK_LZ4_CHUNK + 1, 3 * GLK_LZ4_CHUNK, MOST};
	uint64_t state = seed_thread(seed_start(), 1);
	int torn = 0;

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		for (unsigned noise = 0; noise <= 100; noise += 25) {
			size_t used;

			fill(&state, list[i], noise);
			used = pack(list[i], list[i] + 64);
			torn += !used || used > list[i] + 64 ||
				!comes_back(list[i], used);
		}
	}
	ok(!torn, "whatever was packed comes back");
	fill(&state, MOST, 0);
	ok(pack(MOST, MOST) < MOST / 20, "what is alike gets small");
	ok(pack(MOST, 1000) == 0, "and has its room");
	fill(&state, MOST, 100);
	ok(!pack(MOST, MOST - MOST / 8), "noise does not");
	memset(from, 7, GLK_LZ4_CHUNK);
	ok(comes_back(MOST, pack(MOST, MOST)), "nor do chunks of it beside others");
	glk_store_relaxed(&stop, true);
	ok(!pack(MOST, MOST), "nobody wants it any more");
	glk_store_relaxed(&stop, false);
}

/* Whatever changed: an answer, and no byte outside. */
static void spoiled(void)
{
	uint64_t state = seed_thread(seed_start(), 2);
	int torn = 0, found = 0;

	fill(&state, MOST, 10);
	for (int i = 0; i < 300; i++) {
		size_t used = pack(MOST, MOST), at = seed_below(&state, used);

		if (i % 3 == 0)
			at = seed_below(&state, 16);
		packed[at] = (char)(packed[at] ^ (char)(1 + seed_below(&state, 255)));
		back[MOST] = 0x5a;
		found += !glk_lz4_unpack(packed, used, back, MOST);
		torn += back[MOST] != 0x5a;
	}
	ok(!torn && found, "what was packed changed: %d of 300 times it is seen", found);
	ok(!glk_lz4_unpack(packed, 3, back, MOST), "it is too short");
}

int main(void)
{
	tap_plan_later();
	glk_late_hide(1);
	ok(glk_pack_able() < 0, "without the library it says so");
	glk_late_hide(0);
	if (glk_pack_able()) {
		tap_skip("bytes made smaller", "the library has no lz4");
		return tap_done();
	}
	from = malloc(MOST);
	packed = malloc(MOST + 64);
	back = malloc(MOST + 1);
	if (!from || !packed || !back)
		tap_bail("no memory");
	sizes();
	spoiled();
	free(from);
	free(packed);
	free(back);
	return tap_done();
}
