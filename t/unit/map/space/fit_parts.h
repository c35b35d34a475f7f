/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_FIT_PARTS_H
#define GLK_MAP_FIT_PARTS_H

/* Rows of extents over slots that are given by their bits alone, and waits by a table of the
 * test. */
#include "unit/map/rig.h"

#define SLOTS 64

static struct rig rig;
static uint32_t waits[SLOTS]; /* of a place that touches the slot */
static bool late[SLOTS];      /* likewise */
static bool veto[SLOTS];
static uint32_t asked;

static inline bool check(
	struct glk_map *at, uint32_t first, uint32_t last, struct glk_fit *fit, void *arg)
{
	asked++;
	if (at != &rig.map || arg != &rig || last < first || fit->waits)
		tap_bail("asked about a place in a way nobody announced");
	for (uint32_t slot = first; slot <= last && slot < SLOTS; slot++) {
		if (veto[slot])
			return false;
		fit->waits += waits[slot];
		fit->late |= late[slot];
		if (fit->waits > (fit->late ? fit->most_late : fit->most))
			return false;
	}
	return true;
}

/* A row of extents over large slots: upper case live, lower case free, a slot a letter; runs
 * of one letter are one extent. */
static inline void start(const char *row)
{
	uint32_t id[SLOTS];
	int n = 0;

	rig_init(&rig);
	glk_store_relaxed(&rig.map.node->held, S(SLOTS));
	memset(waits, 0, sizeof(waits));
	memset(late, 0, sizeof(late));
	memset(veto, 0, sizeof(veto));
	for (int i = 0, end; row[i]; i = end) {
		for (end = i; row[end] == row[i];)
			end++;
		if (glk_extent_carve(&rig.map, 0, S(i), S(end - i), &id[n]))
			tap_bail("no addresses");
		n++;
	}
	for (int i = 0, k = 0; row[i]; i++) {
		if (i && row[i] == row[i - 1])
			continue;
		if (row[i] >= 'a')
			glk_extent_give_back(&rig.map, id[k]);
		k++;
	}
}

/* Slots: u usable, s stale, b usable and busy, anything else not mapped. */
static inline void slots(const char *what)
{
	for (uint32_t i = 0; what[i]; i++) {
		if (what[i] == 'u' || what[i] == 'b')
			glk_bit_set(rig.map.usable, i);
		if (what[i] == 'u' || what[i] == 'b' || what[i] == 's')
			glk_bit_set(rig.map.mapped, i);
		if (what[i] == 'b')
			glk_bit_set(rig.map.busy, i);
	}
}

static enum glk_fit_kind kind; /* of all that is searched */
static bool holes;	       /* likewise */

static inline int search_for(uint64_t size, struct glk_fit *ret_fit)
{
	struct glk_want want = {
		.size = size, .kind = kind, .holes = holes, .fn = check, .arg = &rig};

	return glk_fit_search(&rig.map, &want, ret_fit);
}

static inline struct glk_fit search(uint64_t size)
{
	struct glk_fit fit = {.offset = UINT64_MAX};

	asked = 0;
	if (search_for(size, &fit))
		fit.offset = UINT64_MAX;
	return fit;
}

/* The place for `n` slots is slot `want`, with these counts, and can be carved. */
static inline void found(
	uint32_t n, uint32_t want, struct glk_fit counts, const char *what)
{
	struct glk_fit fit = search(S(n));
	uint32_t id;

	if (!ok(fit.offset == S(want) && fit.maps == counts.maps &&
			    fit.late == counts.late && fit.waits == counts.waits &&
			    fit.stale == counts.stale,
		    "%s", what))
		tap_note("slot %d: %u maps, %u waits, %u stale", (int)(fit.offset / S(1)),
			fit.maps, fit.waits, fit.stale);
	ok(!glk_extent_carve(&rig.map, fit.from, fit.offset, S(n), &id) &&
			glk_extent_at(&rig.map, id)->offset == S(want),
		"%s: carved", what);
}

#define COUNTS(...) ((struct glk_fit){__VA_ARGS__})

static inline void stop(void)
{
	memset(rig.map.usable, 0, SLOTS / 8);
	memset(rig.map.mapped, 0, SLOTS / 8);
	memset(rig.map.busy, 0, SLOTS / 8);
	kind = GLK_FIT_BLOCK;
	holes = false;
	glk_store_relaxed(&rig.map.node->held, 0);
	rig_fini(&rig);
}

#endif
