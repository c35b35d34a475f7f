/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What kernels.cu has the GPU do, in C: the software device runs these, and tests compare the two. */
#include "guard/guarded.h"
#include "guard/kernels.ptx.h"

/* Whether a word of the pattern begins at an offset of a range. */
static bool is_word(const struct glk_guard_range *r, uint64_t i)
{
	return !((r->addr + i) % sizeof(uint32_t)) && r->bytes - i >= sizeof(uint32_t);
}

static void fill(const void *args)
{
	const struct glk_guard_range *r = args;
	uint8_t *to = (uint8_t *)r->addr;

	for (uint64_t i = 0; i < r->bytes;) {
		uint64_t addr = r->addr + i;

		if (is_word(r, i)) {
			*(uint32_t *)(to + i) = glk_guard_word(addr, r->secret);
			i += sizeof(uint32_t);
		} else {
			to[i++] = glk_guard_byte(addr, r->secret);
		}
	}
}

static void look(const struct glk_guard_range *r, struct glk_guard_found *found)
{
	const uint8_t *from = (const uint8_t *)r->addr;

	for (uint64_t i = 0; i < r->bytes; i++) {
		while (is_word(r, i) &&
			*(const uint32_t *)(from + i) ==
				glk_guard_word(r->addr + i, r->secret))
			i += sizeof(uint32_t);
		if (i == r->bytes)
			break;
		if (from[i] == glk_guard_byte(r->addr + i, r->secret))
			continue;
		if (i < found->first)
			found->first = i;
		found->count++;
	}
}

static void scan(const void *args)
{
	const struct glk_guard_range *r = args;
	struct glk_guard_found *found = (struct glk_guard_found *)r->found;

	look(r, found);
	/* pairs with: the acquire in glk_guard_poll */
	glk_poke_release(&found->ended, found->ended + r->blocks);
}

static void check(const void *args)
{
	const struct glk_guard_table *t = args;
	const struct glk_guard_entry *entries =
		(const struct glk_guard_entry *)t->entries;
	struct glk_guard_founds *founds = (struct glk_guard_founds *)t->founds;

	for (uint32_t i = 0; i < t->count; i++) {
		struct glk_guard_range r = {.addr = entries[i].addr,
			.bytes = entries[i].bytes,
			.secret = t->secret};
		struct glk_guard_found found = {.first = UINT64_MAX, .index = i};

		look(&r, &found);
		if (found.count && founds->count < GLK_GUARD_FOUND)
			founds->at[founds->count] = found;
		founds->count += found.count > 0;
	}
}

const struct glk_kernel glk_guard_fill = {"glake_guard_fill", fill};
const struct glk_kernel glk_guard_scan = {"glake_guard_scan", scan};
const struct glk_kernel glk_guard_table_check = {"glake_guard_check", check};
