/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What kernels.cu has the GPU do, in C: the software device runs these, and tests compare the two. */
#include "guard/guarded.h"
#include "guard/kernels.ptx.h"

/* Words of a pattern, and bytes at both ends of a range. */
struct pattern {
	uint32_t (*word)(uint64_t addr, uint32_t secret);
	uint8_t (*byte)(uint64_t addr, uint32_t secret);
};

static const struct pattern freed = {glk_guard_freed_word, glk_guard_freed_byte};
static const struct pattern canary = {glk_guard_word, glk_guard_byte};

/* Whether a word begins at an address, of a range that ends at another. */
static bool is_word(uint64_t addr, uint64_t end)
{
	return !(addr % sizeof(uint32_t)) && end - addr >= sizeof(uint32_t);
}

/* The software device tells the thread sanitizer what is written, where it runs the kernel. */
__attribute__((no_sanitize("thread"))) static void write(
	const struct pattern *p, uint64_t addr, uint64_t end, uint32_t secret)
{
	while (addr < end) {
		if (is_word(addr, end)) {
			*(uint32_t *)addr = p->word(addr, secret);
			addr += sizeof(uint32_t);
		} else {
			*(uint8_t *)addr = p->byte(addr, secret);
			addr++;
		}
	}
}

static void fill(const void *args)
{
	const struct glk_guard_range *r = args;
	uint64_t middle = r->addr + r->body;

	write(&canary, r->addr - r->front, r->addr, r->secret);
	write(&freed, r->addr, middle, r->secret);
	write(&canary, middle, middle + r->canary, r->secret);
}

static void look(const struct pattern *p, uint64_t begin, uint64_t end, uint32_t secret,
	struct glk_guard_found *found)
{
	for (uint64_t at = begin; at < end; at++) {
		while (is_word(at, end) && *(const uint32_t *)at == p->word(at, secret))
			at += sizeof(uint32_t);
		if (at == end)
			break;
		if (*(const uint8_t *)at == p->byte(at, secret))
			continue;
		if (at - begin < found->first)
			found->first = at - begin;
		found->count++;
	}
}

static void look_at(const struct glk_guard_run *r, bool bodies)
{
	for (uint32_t i = 0; i < r->count; i++) {
		struct glk_guard_look *l = (struct glk_guard_look *)r->looks +
			(r->first + i) % GLK_GUARD_LOOKS;
		uint64_t end = l->addr + l->asked;

		if (bodies)
			look(&freed, l->addr, end, r->secret, &l->body);
		look(&canary, end, end + l->length, r->secret, &l->canary);
		/* pairs with: the acquire in glk_guard_poll */
		glk_poke_release(&l->ended, bodies ? l->parts : 1);
	}
}

static void canaries(const void *args)
{
	look_at(args, false);
}

static void bodies(const void *args)
{
	look_at(args, true);
}

static void check(const void *args)
{
	const struct glk_guard_table *t = args;
	const struct glk_guard_entry *entries =
		(const struct glk_guard_entry *)t->entries;
	struct glk_guard_founds *founds = (struct glk_guard_founds *)t->founds;

	for (uint32_t i = 0; i < t->count; i++) {
		struct glk_guard_found found = {.first = UINT64_MAX};

		look(&canary, entries[i].addr, entries[i].addr + entries[i].bytes,
			t->secret, &found);
		if (!found.count)
			continue;
		if (founds->count < GLK_GUARD_FOUND) {
			founds->at[founds->count].found = found;
			founds->at[founds->count].index = i;
		}
		founds->count++;
	}
}

const struct glk_kernel glk_guard_fill = {"glake_guard_fill", fill};
const struct glk_kernel glk_guard_canaries = {"glake_guard_canaries", canaries};
const struct glk_kernel glk_guard_bodies = {"glake_guard_bodies", bodies};
const struct glk_kernel glk_guard_table_check = {"glake_guard_check", check};
