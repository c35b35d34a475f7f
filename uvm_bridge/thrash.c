/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of places that went to and fro. Addresses are not trusted, and never followed here. */
#include "uvm_bridge/thrash.h"

#include <string.h>

#define PLACE_SHIFT 16

/* Neighbours in the table that an address may have instead. */
#define STEPS 4

static bool is_free(const struct glk_uvm_thrash *place)
{
	uint64_t all = 0;

	for (int i = 0; i < 5; i++)
		all |= place->processors[i];
	return !all;
}

void glk_uvm_thrash_note(
	struct glk_uvm_thrashes *places, const struct glk_uvm_record *record)
{
	uint64_t name = record->event.address >> PLACE_SHIFT;
	uint32_t at = (uint32_t)(name * UINT64_C(0x9e3779b97f4a7c15) >> 56);
	struct glk_uvm_thrash told = {
		.address = record->event.address, .since_ns = record->event.begin_ns};

	memcpy(told.processors, record->processors, sizeof(told.processors));
	if (record->event.kind != GLAKE_UVM_THRASHING || is_free(&told))
		return;
	for (uint32_t i = 0; i < STEPS; i++) {
		struct glk_uvm_thrash *place = &places->at[(at + i) % GLK_UVM_THRASHES];

		if (is_free(place)) {
			*place = told;
			places->count++;
			return;
		}
		if (place->address >> PLACE_SHIFT != name)
			continue;
		if (place->since_ns > told.since_ns)
			place->since_ns = told.since_ns;
		for (int j = 0; j < 5; j++)
			place->processors[j] |= told.processors[j];
		return;
	}
}

bool glk_uvm_thrash_take(
	struct glk_uvm_thrashes *places, struct glk_uvm_thrash *ret_place)
{
	for (uint32_t i = 0; places->count && i < GLK_UVM_THRASHES; i++) {
		struct glk_uvm_thrash *place = &places->at[i];

		if (is_free(place))
			continue;
		*ret_place = *place;
		*place = (struct glk_uvm_thrash){0};
		places->count--;
		return true;
	}
	return false;
}
